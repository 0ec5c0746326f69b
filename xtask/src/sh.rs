//! Running other programs, with errors that say what ran and what it printed.

use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};

/// Runs a command to its end and returns its standard output.
///
/// # Errors
/// When it cannot be started or fails; the message holds the command line and the end of its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let line = line_of(command);
    let done = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{line}`: is it installed? try `cargo xtask setup`"))?;
    if !done.status.success() {
        let stderr = String::from_utf8_lossy(&done.stderr);
        let mut last: Vec<&str> = stderr.lines().rev().take(15).collect();
        last.reverse();
        bail!("`{line}` failed ({}):\n{}", done.status, last.join("\n"));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Whether a command runs and succeeds.
pub fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).output().is_ok_and(|done| done.status.success())
}

/// The command as a person would type it.
pub fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let mut line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    if line.len() > 400 {
        let cut = (0..=400).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
        line.truncate(cut);
        line.push('…');
    }
    line
}

/// Runs a command to its end with this process's own output.
///
/// # Errors
/// When it cannot be started or fails.
pub fn loud(command: &mut Command) -> Result<()> {
    let line = line_of(command);
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_say_what_ran_and_what_it_said() {
        let error = output(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("sh -c") && error.contains("exit status: 3") && error.contains("why"), "{error}");
        let error = output(&mut Command::new("no-such-program-anywhere")).unwrap_err().to_string();
        assert!(error.contains("no-such-program-anywhere"), "{error}");
        assert_eq!(output(Command::new("echo").arg("ok")).unwrap(), "ok\n");
    }
}
