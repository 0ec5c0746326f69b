//! Modules that are built here: our driver and a package's sources, through clang for WASI, or natively for comparison.

use super::archive::unpacked;
use crate::sh;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use worksp_fixtures::{Build, Obtain, Program, cache_dir, fixtures_dir};

/// Builds a program's module to `out`, with function names and line numbers.
///
/// # Errors
/// When the compiler fails.
pub fn wasm(program: &Program, recipe: &Build, out: &Path) -> Result<()> {
    let clang = if sh::succeeds(Command::new("clang-14").arg("--version")) { "clang-14" } else { "clang" };
    let mut command = Command::new(clang);
    command.args(["--target=wasm32-wasi", "-O2", "-g", "-w"]);
    // Debian's search path for this target falls through to the machine's own headers: name the C library's alone.
    command.args(["-nostdlibinc", "-isystem", "/usr/include/wasm32-wasi"]);
    // The module's bytes must not depend on where this checkout lies.
    command.arg("-ffile-compilation-dir=.");
    for (from, to) in [(cache_dir().join("unpacked"), "lib"), (fixtures_dir(), "fixtures")] {
        command.arg(format!("-ffile-prefix-map={}={to}", from.display()));
    }
    if recipe.reactor {
        command.arg("-mexec-model=reactor");
    }
    add_inputs(&mut command, program, recipe)?;
    command.arg("-lm").arg("-o").arg(out);
    sh::output(&mut command).map(drop)
}

/// Builds a kernel natively, runs it and compares what it prints with what the manifest expects of its two requests.
///
/// # Errors
/// When the compiler fails or a result differs.
pub fn check_native(program: &Program) -> Result<()> {
    let Obtain::Build(recipe @ Build { reactor: true, .. }) = &program.obtain else { return Ok(()) };
    let work = tempfile::tempdir_in(cache_dir())?;
    let binary = work.path().join("native");
    let mut command = Command::new("cc");
    command.args(["-O2", "-w", "-ffp-contract=off"]);
    add_inputs(&mut command, program, recipe)?;
    sh::output(command.arg("-lm").arg("-o").arg(&binary))?;
    let printed = sh::output(&mut Command::new(&binary))?;
    let found: Vec<&str> = printed.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    let expected: Vec<&str> = program.requests.iter().filter_map(|request| request.expect.results.as_ref()?.first()).map(String::as_str).collect();
    ensure!(!found.is_empty() && found == expected, "run() and batch(8) give {found:?}, programs.toml expects {expected:?}");
    Ok(())
}

/// The inputs that both compilers take.
fn add_inputs(command: &mut Command, program: &Program, recipe: &Build) -> Result<()> {
    for include in &recipe.include {
        command.arg("-I").arg(fill(program, include));
    }
    command.args(recipe.flags.iter().map(|flag| fill(program, flag)));
    for pattern in &recipe.sources {
        command.args(expand(&fill(program, pattern))?);
    }
    command.args(recipe.libs.iter().map(|lib| format!("-l{lib}")));
    Ok(())
}

/// Replaces `{here}` and the names of the program's archives.
fn fill(program: &Program, text: &str) -> String {
    let text = text.replace("{here}", &fixtures_dir().to_string_lossy());
    program.archives().iter().fold(text, |text, name| text.replace(&format!("{{{name}}}"), &unpacked(name).to_string_lossy()))
}

/// The files that a path means whose last part may hold one `*`, sorted so that the linker sees one order everywhere.
fn expand(pattern: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(pattern);
    let (dir, name) = path.parent().zip(path.file_name().and_then(|name| name.to_str())).context("a source is a file in a directory")?;
    let Some((prefix, suffix)) = name.split_once('*') else { return Ok(vec![path.to_owned()]) };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let file = entry?.file_name();
        let file = file.to_string_lossy();
        if file.starts_with(prefix) && file.ends_with(suffix) {
            files.push(dir.join(&*file));
        }
    }
    if files.is_empty() {
        bail!("no file matches {pattern}");
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_give_sorted_files() {
        let work = tempfile::tempdir().unwrap();
        for name in ["lb.c", "la.c", "la.h", "x.c"] {
            std::fs::write(work.path().join(name), "").unwrap();
        }
        let at = |name: &str| work.path().join(name);
        let found = |pattern: &str| expand(&at(pattern).to_string_lossy());
        assert_eq!(found("l*.c").unwrap(), [at("la.c"), at("lb.c")]);
        assert_eq!(found("x.c").unwrap(), [at("x.c")]);
        assert!(found("*.cc").unwrap_err().to_string().contains("no file matches"));
    }

    #[test]
    fn places_are_filled_in() {
        let lz4 = worksp_fixtures::program("lz4_compress").unwrap();
        let Obtain::Build(recipe) = &lz4.obtain else { panic!("lz4_compress is built") };
        for text in recipe.sources.iter().chain(&recipe.include) {
            let filled = fill(lz4, text);
            assert!(!filled.contains(['{', '}']), "{filled}");
        }
    }
}
