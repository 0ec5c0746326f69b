//! One subject of the benchmark harness: `subject MODE …` prints one report (see `cargo xtask bench`).
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser};
use worksp_differential::subject::{self, Report};
use worksp_recorder::{Dir, Entry, RecordOptions, Script, Stdin, Stdout};

#[derive(Parser)]
#[command(about = "One subject of the benchmark harness")]
enum Mode {
    /// Wasmtime with the real host, not recorded
    Native(Request),
    /// The same, recorded
    Record {
        #[command(flatten)]
        request: Request,
        /// The recording
        #[arg(short)]
        out: PathBuf,
    },
    /// A replay on the engine, not observed
    Plain { recording: PathBuf },
    /// A replay on the engine that counts work
    Counting { recording: PathBuf },
    /// A replay on wasmi
    Wasmi { recording: PathBuf },
}

/// As for `worksp record`.
#[derive(Args)]
struct Request {
    module: PathBuf,
    #[arg(long = "dir")]
    dirs: Vec<String>,
    #[arg(long = "env")]
    env: Vec<String>,
    #[arg(long, conflicts_with = "script")]
    invoke: Option<String>,
    #[arg(long)]
    script: Option<PathBuf>,
    #[arg(last = true)]
    args: Vec<String>,
}

type AnyError = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run(Mode::parse()) {
        Ok(report) => {
            println!("{}", report.to_json());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mode: Mode) -> Result<Report, AnyError> {
    Ok(match mode {
        Mode::Native(request) => native(&request, None)?,
        Mode::Record { request, out } => native(&request, Some(&out))?,
        Mode::Plain { recording } => subject::engine(&recording, false)?,
        Mode::Counting { recording } => subject::engine(&recording, true)?,
        Mode::Wasmi { recording } => subject::peer(&recording)?,
    })
}

fn native(request: &Request, out: Option<&Path>) -> Result<Report, AnyError> {
    let module = std::fs::read(&request.module).map_err(|error| format!("cannot read {}: {error}", request.module.display()))?;
    let entry = match (&request.invoke, &request.script) {
        (Some(export), _) => Entry::Invoke(export.clone()),
        (None, Some(script)) => Entry::Script(Script::read(script)?),
        (None, None) => Entry::Start,
    };
    let pair = |text: &String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| format!("{text:?}: write NAME=VALUE"));
    let options = RecordOptions {
        entry,
        args: request.args.clone(),
        env: request.env.iter().map(pair).collect::<Result<_, _>>()?,
        dirs: request.dirs.iter().map(|dir| Dir::parse(dir)).collect::<Result<_, _>>()?,
        stdin: Stdin::Empty,
        stdout: Stdout::Capture,
        stderr: Stdout::Capture,
        module_name: request.module.display().to_string(),
        ..RecordOptions::default()
    };
    Ok(subject::native(&module, options, out)?)
}
