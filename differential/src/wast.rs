//! Runs scripts of the specification's test suite (`.wast`) on the engine.

mod script;
mod spectest;
mod values;

use std::fmt;
use std::path::Path;

use worksp_engine::probe::NoProbe;
use worksp_engine::{Config, Engine};

use crate::witness::Witness;
use script::Script;

/// How the engine runs a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Nothing is counted or observed.
    Plain,
    /// Work is counted.
    Counting,
    /// Every function and loop is a unit, and every event is reported to a probe that checks its place in the order of events.
    Traced,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 3] = [Mode::Plain, Mode::Counting, Mode::Traced];
}

/// What became of a script.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The script's name.
    pub file: String,
    /// Assertions that hold.
    pub passed: usize,
    /// Assertions that do not, and directives that could not be carried out.
    pub failures: Vec<Failure>,
    /// Modules that the engine could not load or instantiate, whether an assertion needs them or not. Each is a failure too.
    pub modules_refused: usize,
    /// Operators that were executed (0 in [`Mode::Plain`]).
    pub work: u64,
}

/// One directive that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The script's name.
    pub file: String,
    /// Line of the directive, from 1.
    pub line: usize,
    /// What happened instead.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

impl Report {
    /// Whether everything went well.
    pub fn is_ok(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "{failure}")?;
        }
        write!(
            f,
            "{}: {} passed, {} failed, {} modules refused",
            self.file,
            self.passed,
            self.failures.len(),
            self.modules_refused
        )
    }
}

/// Runs a script; `file` is its name in messages.
pub fn run_file(file: &str, text: &str, mode: Mode) -> Report {
    run_with(Config::default(), file, text, mode)
}

/// Runs a script on an engine that makes NaNs canonical, as those were that campaigns write.
pub fn run_finding(file: &str, text: &str, mode: Mode) -> Report {
    run_with(Config { canonicalize_nans: true, ..Config::default() }, file, text, mode)
}

fn run_with(config: Config, file: &str, text: &str, mode: Mode) -> Report {
    let engine = Engine::new(Config { fuel: mode == Mode::Counting, ..config });
    match mode {
        Mode::Plain | Mode::Counting => Script::<NoProbe>::run(&engine, file, text),
        Mode::Traced => Script::<Witness>::run(&engine, file, text),
    }
}

/// Runs a script from a file.
///
/// # Errors
/// When the file cannot be read as text.
pub fn run_path(path: &Path, mode: Mode) -> std::io::Result<Report> {
    let text = std::fs::read_to_string(path)?;
    Ok(run_file(&path.display().to_string(), &text, mode))
}
