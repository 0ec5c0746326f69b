//! What to record: the entry, its surroundings, and stubs.

use std::path::PathBuf;

use worksp_host::{Dir, Stdin, Stdout};
use worksp_tracer::recording::Command;

use crate::error::Error;
use crate::script::Script;

/// Which calls make up the request.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Entry {
    /// A command: `_start`, with [`RecordOptions::args`] as its arguments.
    #[default]
    Start,
    /// One export, after `_initialize` if there is one; [`RecordOptions::args`] are parsed by its type.
    Invoke(String),
    /// Several calls and memory writes.
    Script(Script),
}

/// How to run and record a program.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// What runs.
    pub entry: Entry,
    /// Arguments, without the program's name.
    pub args: Vec<String>,
    /// Environment variables. Nothing is inherited.
    pub env: Vec<(String, String)>,
    /// Folders that the program sees.
    pub dirs: Vec<Dir>,
    /// Constant imports.
    pub stubs: Vec<Stub>,
    /// Standard input.
    pub stdin: Stdin,
    /// Standard output.
    pub stdout: Stdout,
    /// Standard error.
    pub stderr: Stdout,
    /// What to call the module; its last path component is the program's name (`argv[0]`).
    pub module_name: String,
    /// No memory grows beyond this many bytes, here and in a replay.
    pub memory_bytes_max: u64,
    /// No table grows beyond this many elements, here and in a replay.
    pub table_elements_max: u64,
    /// Load the module with worksp's own engine first, so that what it cannot replay is refused before it is recorded.
    pub check_engine: bool,
}

impl Default for RecordOptions {
    fn default() -> Self {
        RecordOptions {
            entry: Entry::Start,
            args: Vec::new(),
            env: Vec::new(),
            dirs: Vec::new(),
            stubs: Vec::new(),
            stdin: Stdin::Empty,
            stdout: Stdout::Inherit,
            stderr: Stdout::Inherit,
            module_name: "module.wasm".to_string(),
            memory_bytes_max: 4 << 30,
            table_elements_max: 10_000_000,
            check_engine: true,
        }
    }
}

impl RecordOptions {
    /// A command with these arguments.
    pub fn command(args: impl IntoIterator<Item = impl Into<String>>) -> RecordOptions {
        RecordOptions { args: args.into_iter().map(Into::into).collect(), ..RecordOptions::default() }
    }

    /// One export with these arguments.
    pub fn invoke(export: impl Into<String>, args: impl IntoIterator<Item = impl Into<String>>) -> RecordOptions {
        RecordOptions { entry: Entry::Invoke(export.into()), ..RecordOptions::command(args) }
    }

    /// A script.
    pub fn script(script: Script) -> RecordOptions {
        RecordOptions { entry: Entry::Script(script), ..RecordOptions::default() }
    }

    /// The program's name as it sees it.
    pub(crate) fn program_name(&self) -> String {
        let path = PathBuf::from(&self.module_name);
        path.file_name().map_or_else(|| self.module_name.clone(), |name| name.to_string_lossy().into_owned())
    }

    /// For display in the recording.
    pub(crate) fn to_command(&self) -> Command {
        Command {
            entry: match &self.entry {
                Entry::Start => "_start".to_string(),
                Entry::Invoke(export) => format!("invoke {export}"),
                Entry::Script(script) => format!("script {}", script.path().display()),
            },
            args: self.args.clone(),
            env: self.env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            dirs: self.dirs.iter().map(|dir| format!("{}::{}", dir.host.display(), dir.guest)).collect(),
            stubs: self.stubs.iter().map(Stub::to_string).collect(),
        }
    }
}

/// Parses an environment variable: `NAME=VALUE`, or `NAME` for the value that it has in this process (none: empty).
///
/// # Errors
/// When the name is empty.
pub fn parse_env(text: &str) -> Result<(String, String), Error> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_string()),
        None => (text, std::env::var(text).unwrap_or_default()),
    };
    if name.is_empty() {
        return Err(Error::Environment { text: text.to_string() });
    }
    Ok((name.to_string(), value))
}

/// A constant import: a function that returns a constant, a global, or an empty memory or table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stub {
    /// The module that it is imported from.
    pub module: String,
    /// Its name there.
    pub name: String,
    /// The value, as on the command line; zero if absent.
    pub value: Option<String>,
}

impl Stub {
    /// Parses `MODULE.NAME` or `MODULE.NAME=VALUE`. The module's name ends at the first dot.
    ///
    /// # Errors
    /// When there is no dot.
    pub fn parse(text: &str) -> Result<Stub, Error> {
        let (path, value) = match text.split_once('=') {
            Some((path, value)) => (path, Some(value.to_string())),
            None => (text, None),
        };
        match path.split_once('.') {
            Some((module, name)) => Ok(Stub { module: module.to_string(), name: name.to_string(), value }),
            None => {
                let reason = "write MODULE.NAME or MODULE.NAME=VALUE, for example env.now=0".to_string();
                Err(Error::Stub { stub: text.to_string(), reason })
            }
        }
    }
}

impl std::fmt::Display for Stub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.module, self.name)?;
        self.value.as_ref().map_or(Ok(()), |value| write!(f, "={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_variables_are_parsed() {
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(parse_env("A=b=c").unwrap(), pair("A", "b=c"));
        assert_eq!(parse_env("CARGO_PKG_NAME").unwrap(), pair("CARGO_PKG_NAME", &std::env::var("CARGO_PKG_NAME").unwrap_or_default()));
        assert!(parse_env("=x").unwrap_err().to_string().contains("NAME=VALUE"));
    }

    #[test]
    fn stubs_are_parsed() {
        let check = |text: &str, expect: Option<(&str, &str, Option<&str>)>| {
            let stub = Stub::parse(text).ok();
            assert_eq!(stub.as_ref().map(|s| (s.module.as_str(), s.name.as_str(), s.value.as_deref())), expect);
            assert_eq!(stub.map(|stub| stub.to_string()), expect.map(|_| text.to_string()));
        };
        check("env.now", Some(("env", "now", None)));
        check("env.now=-1", Some(("env", "now", Some("-1"))));
        check("a.b.c=1", Some(("a", "b.c", Some("1"))));
        check("env", None);
    }
}
