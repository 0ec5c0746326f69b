//! What commands share: failures, the options that describe a request, output that suits its reader.

use std::fmt;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use worksp::report::{Style, grouped};
use worksp_recorder::{Dir, Entry, Exit, RecordOptions, Script, Stdin, Stdout, Stub};
use worksp_tracer::container::Kind;

/// Why a command failed: a message for people. The exit status is 2.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    /// A failure in these words.
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\x1b[1;31merror:\x1b[0m {}", self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(inner) = source {
            let text = inner.to_string();
            if !message.contains(&text) {
                message.push_str(&format!(": {text}"));
            }
            source = inner.source();
        }
        Failure(message)
    }
}

/// What ^C leaves behind, and what to do with it.
pub(crate) static INTERRUPTED: Mutex<&str> =
    Mutex::new("nothing was written under a final name (a `.partial` file may remain: delete it or run again)");

/// Makes ^C end the process with a message and status 2. Files are written under another name until they are complete, so
/// nothing half-written is left under a final name.
pub(crate) fn stop_on_interrupt() {
    let handler = || {
        let advice = INTERRUPTED.lock().map_or("", |advice| *advice);
        eprintln!("\nerror: interrupted; {advice}");
        std::process::exit(2);
    };
    if ctrlc::set_handler(handler).is_err() {
        // Without a handler ^C still ends the process, with the system's own status.
        eprintln!("warning: ^C cannot be caught here; it will end worksp without a message");
    }
}

/// How to run the program, in the words of Wasmtime's own command line.
#[derive(Args, Debug, Clone)]
pub(crate) struct Request {
    /// Show the program the host's folder HOST as GUEST
    #[arg(long = "dir", value_name = "HOST[::GUEST]")]
    dirs: Vec<String>,
    /// Set an environment variable (nothing is inherited); NAME alone takes the current value
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Call this export instead of `_start`, after `_initialize` if there is one
    #[arg(long, value_name = "EXPORT", conflicts_with = "script")]
    invoke: Option<String>,
    /// Drive a library: calls, memory reads and writes, in order (docs/SCRIPT.md)
    #[arg(long, value_name = "CALLS.json")]
    script: Option<PathBuf>,
    /// Make an import that nobody provides constant: a function that returns VALUE (0), a global, an empty memory or table
    #[arg(long = "stub", value_name = "MODULE.NAME[=VALUE]")]
    stubs: Vec<String>,
    /// Let no memory grow beyond this many MiB, while recording and while replaying
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=65536))]
    memory_max: u64,
    /// Arguments for the program, or for the export that is invoked
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

impl Request {
    /// Whether anything was said that only a new recording can honour.
    pub(crate) fn is_given(&self) -> bool {
        let lists = [&self.dirs, &self.env, &self.stubs, &self.args];
        self.invoke.is_some() || self.script.is_some() || lists.iter().any(|list| !list.is_empty())
    }

    /// The recorder's options.
    pub(crate) fn to_options(&self, module: &Path) -> Result<RecordOptions, Failure> {
        let entry = match (&self.invoke, &self.script) {
            (Some(export), _) => Entry::Invoke(export.clone()),
            (None, Some(path)) => Entry::Script(Script::read(path)?),
            (None, None) => Entry::Start,
        };
        let dirs = self.dirs.iter().map(|text| Dir::parse(text)).collect::<Result<_, _>>()?;
        let stubs = self.stubs.iter().map(|text| Stub::parse(text)).collect::<Result<_, _>>()?;
        let env = self.env.iter().map(|text| match text.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => match std::env::var(text) {
                Ok(value) => Ok((text.clone(), value)),
                Err(_) => Err(Failure::new(format!("--env {text}: no such variable is set here; write {text}=VALUE"))),
            },
        });
        Ok(RecordOptions {
            entry,
            args: self.args.clone(),
            env: env.collect::<Result<_, _>>()?,
            dirs,
            stubs,
            stdin: Stdin::Inherit,
            stdout: Stdout::Inherit,
            stderr: Stdout::Inherit,
            module_name: module.display().to_string(),
            memory_bytes_max: self.memory_max << 20,
            ..RecordOptions::default()
        })
    }
}

/// Reads a file, or says which one could not be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|e| unreadable(path, &e))
}

/// The kind that a file of ours claims to be, or `None` for all others.
pub(crate) fn sniff(path: &Path) -> Result<Option<Kind>, Failure> {
    let mut head = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| unreadable(path, &e))?;
    file.take(Kind::SNIFF_BYTES).read_to_end(&mut head).map_err(|e| unreadable(path, &e))?;
    Ok(Kind::sniff(&head))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot read {}: {error}; check the path", path.display()))
}

/// How a program ended, in a few words.
pub(crate) fn ended(exit: &Exit) -> String {
    match exit {
        Exit::Returned(_) => "returned".to_owned(),
        Exit::Status(status) => format!("exited with status {status}"),
        Exit::Trapped { message, .. } => format!("trapped: {}", message.lines().next().unwrap_or("no message")),
    }
}

/// A duration as people say it.
pub(crate) fn seconds(duration: Duration) -> String {
    let s = duration.as_secs_f64();
    if s >= 10.0 {
        format!("{s:.1} s")
    } else if s >= 0.1 {
        format!("{s:.2} s")
    } else {
        format!("{:.1} ms", s * 1e3)
    }
}

/// Whether the reader of stdout is a person.
pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// How to draw for the reader of stdout.
pub(crate) fn output_style() -> Style {
    if is_terminal() { Style::Terminal } else { Style::Plain }
}

/// A bar on stderr for work that is long; silent in a pipe and with `quiet`.
pub(crate) struct Meter {
    bar: ProgressBar,
    started: Instant,
    done: u64,
}

impl Meter {
    /// `total` is the work to be done, or 0 when nobody knows.
    pub(crate) fn new(what: &str, total: u64, quiet: bool) -> Meter {
        let bar = if quiet || !std::io::stderr().is_terminal() {
            ProgressBar::hidden()
        } else if total == 0 {
            ProgressBar::new_spinner().with_style(style("{prefix:>10} {spinner} {msg}"))
        } else {
            ProgressBar::new(total).with_style(style("{prefix:>10} [{bar:40}] {percent:>3}% {msg}"))
        };
        Meter { bar: bar.with_prefix(what.to_owned()), started: Instant::now(), done: 0 }
    }

    /// This much work is done.
    pub(crate) fn set(&mut self, done: u64) {
        self.done = done;
        let rate = done as f64 / self.started.elapsed().as_secs_f64().max(1e-9) / 1e6;
        self.bar.set_position(done);
        self.bar.set_message(format!("{} operators, {rate:.0} M/s", grouped(done)));
    }

    /// All is done: the time it took.
    pub(crate) fn finish(self) -> Duration {
        self.bar.finish_and_clear();
        self.started.elapsed()
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_three_digits_or_so() {
        assert_eq!(seconds(Duration::from_micros(1234)), "1.2 ms");
        assert_eq!(seconds(Duration::from_millis(1234)), "1.23 s");
        assert_eq!(seconds(Duration::from_secs(83)), "83.0 s");
    }
}
