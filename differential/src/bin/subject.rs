//! One subject of the benchmark harness: `subject MODE …` prints one report (see `cargo xtask bench`).
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use clap::{Args, Parser};
use worksp_differential::subject::{self, Report, kernels};
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
    /// A replay on the engine in pieces, each in a process of its own, which goes on from what the one before saved
    Pieces {
        recording: PathBuf,
        /// Operators in each piece
        #[arg(long, default_value_t = 10_000_000)]
        work: u64,
        /// Run one piece only: begin where this file says, if it exists, and leave it for the next one
        #[arg(long)]
        state: Option<PathBuf>,
    },
    /// A kernel: `run(n)` of a module, with `n` from `sizes.txt` beside it
    Kernel {
        #[arg(value_enum)]
        way: kernels::Way,
        module: PathBuf,
    },
    /// Loading a module, validation included; with `--threads` all of it is translated
    Translate {
        module: PathBuf,
        #[arg(long)]
        threads: Option<usize>,
    },
    /// A run that stops and goes on again and again
    Suspend {
        #[arg(long, default_value_t = 1_000_000)]
        pauses: u32,
        /// At host calls instead of out of fuel
        #[arg(long)]
        host: bool,
    },
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
        Err(error) if error.is::<Saved>() => ExitCode::from(MORE),
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
        Mode::Pieces { recording, work, state: Some(state) } => subject::piece(&recording, &state, work)?.ok_or(Saved)?,
        Mode::Pieces { recording, work, state: None } => pieces(&recording, work)?,
        Mode::Kernel { way, module } => kernels::run(&module, way)?,
        Mode::Translate { module, threads } => kernels::translate(&module, threads)?,
        Mode::Suspend { pauses, host } => kernels::suspend(pauses, host)?,
        Mode::Wasmi { recording } => subject::peer(&recording)?,
    })
}

/// The status of a piece that is not the last one.
const MORE: u8 = 3;

/// A piece ended, but not the request.
#[derive(Debug)]
struct Saved;

impl std::fmt::Display for Saved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the request goes on")
    }
}

impl std::error::Error for Saved {}

/// Starts a process for each piece.
fn pieces(recording: &Path, work: u64) -> Result<Report, AnyError> {
    let began = Instant::now();
    let dir = tempfile::tempdir()?;
    let state = dir.path().join("state");
    let (mut count, mut bytes_max) = (1_u64, 0);
    loop {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("pieces").arg(recording).args(["--work", &work.to_string(), "--state"]).arg(&state);
        let done = command.stderr(Stdio::inherit()).output()?;
        match done.status.code() {
            Some(0) => {
                let last: serde_json::Value = serde_json::from_slice(&done.stdout)?;
                let digest = last["digest"].as_str().ok_or("the last piece printed no digest")?.to_owned();
                eprintln!("{count} processes, at most {bytes_max} bytes saved");
                return Ok(Report { seconds: began.elapsed().as_secs_f64(), digest, work: last["work"].as_u64() });
            }
            Some(code) if code == i32::from(MORE) => bytes_max = bytes_max.max(std::fs::metadata(&state)?.len()),
            _ => return Err(format!("piece {count} failed ({})", done.status).into()),
        }
        count += 1;
    }
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
