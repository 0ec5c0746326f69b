//! The subjects of the benchmark harness: one request done in one way, timed without compilation and set-up.
//!
//! ```text
//! module + options ─► native | record      (Wasmtime with the real host)
//! recording ────────► plain | counting     (our engine, the host's answers from the recording)
//!           └───────► wasmi                (wasmi, likewise)
//! ```
//!
//! Every subject checks what it computed before it reports a time: the replays compare host calls, output and final memories
//! with the recording, and all report the same digest of exit and output.

pub mod kernels;
mod pieces;
mod wasmi;

use std::path::Path;
use std::time::Instant;

use sha2::{Digest, Sha256};
use worksp_engine::probe::{NoProbe, TracePlan};
use worksp_engine::{Config, Extern, ExternType, Module, Store};
use worksp_recorder::{RecordOptions, Recorder};
use worksp_tracer::recording::{Exit, Recording};
use worksp_tracer::replay::Replay;

/// Why a subject could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recorder failed.
    #[error(transparent)]
    Record(#[from] worksp_recorder::Error),
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] worksp_tracer::recording::RecordingError),
    /// The engine's replay failed or disagrees with the recording.
    #[error(transparent)]
    Replay(#[from] worksp_tracer::replay::ReplayError),
    /// A replay in pieces failed.
    #[error("cannot replay {path} in pieces: {reason}", path = path.display())]
    Pieces {
        /// The recording.
        path: std::path::PathBuf,
        /// What happened.
        reason: String,
    },
    /// wasmi failed.
    #[error("wasmi cannot replay {path}: {reason}", path = path.display())]
    Wasmi {
        /// The recording.
        path: std::path::PathBuf,
        /// What happened.
        reason: String,
    },
}

/// What a subject reports.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// How long the request took.
    pub seconds: f64,
    /// A hash of how it ended and of its standard output.
    pub digest: String,
    /// Operators executed, where they are counted.
    pub work: Option<u64>,
}

impl Report {
    /// The line that the harness reads.
    pub fn to_json(&self) -> String {
        let Report { seconds, digest, work } = self;
        serde_json::json!({ "schema": "worksp.subject.v1", "seconds": [seconds], "digest": digest, "work": work }).to_string()
    }
}

/// Runs a request natively, recording into `out` if given.
///
/// # Errors
/// When the recorder fails.
pub fn native(module: &[u8], options: RecordOptions, out: Option<&Path>) -> Result<Report, Error> {
    let recorder = Recorder::new(module, options)?;
    let summary = match out {
        Some(out) => recorder.record(out)?,
        None => recorder.run_unrecorded()?,
    };
    Ok(Report { seconds: summary.duration.as_secs_f64(), digest: digest(&summary.exit, &summary.stdout), work: None })
}

/// Replays a recording on the engine without observing it; `counting` makes it count work.
///
/// # Errors
/// When the replay fails or disagrees with the recording.
pub fn engine(path: &Path, counting: bool) -> Result<Report, Error> {
    let recording = Recording::open(path)?;
    let replay = Replay::new(&recording, Config { fuel: counting, ..Config::default() })?;
    let began = Instant::now();
    let replayed = replay.run(TracePlan::default(), &mut NoProbe, |_| ())?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(Report { seconds, digest: digest(&replayed.exit, &replayed.stdout.kept), work: counting.then_some(replayed.work) })
}

/// Replays a recording on wasmi.
///
/// # Errors
/// When wasmi cannot run the module or disagrees with the recording.
pub fn peer(path: &Path) -> Result<Report, Error> {
    let recording = Recording::open(path)?;
    let wrong = |reason: String| Error::Wasmi { path: path.to_owned(), reason };
    let prepared = wasmi::prepare(&recording).map_err(wrong)?;
    let began = Instant::now();
    prepared.run().map_err(wrong)?;
    let seconds = began.elapsed().as_secs_f64();
    let outcome = recording.outcome()?;
    Ok(Report { seconds, digest: digest(&outcome.exit, &outcome.stdout.kept), work: None })
}

/// Replays the next `work` operators of a recording on the engine; `state` is a file that says where to begin, if it exists, and gets where to
/// go on. `None` until the request has ended.
///
/// # Errors
/// When the state is none of this recording's, or the replay disagrees with the recording.
pub fn piece(path: &Path, state: &Path, work: u64) -> Result<Option<Report>, Error> {
    let recording = Recording::open(path)?;
    let began = Instant::now();
    let piece = pieces::piece(&recording, state, work).map_err(|reason| Error::Pieces { path: path.to_owned(), reason })?;
    let outcome = recording.outcome()?;
    Ok(match piece {
        pieces::Piece::Saved => None,
        pieces::Piece::Ended(work) => {
            Some(Report { seconds: began.elapsed().as_secs_f64(), digest: digest(&outcome.exit, &outcome.stdout.kept), work: Some(work) })
        }
    })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A host function for every import of a module, each with its number.
fn host_funcs(store: &mut Store, module: &Module) -> Result<Vec<Extern>, String> {
    let import = |(number, import): (usize, &worksp_engine::Import)| match &import.ty {
        ExternType::Func(ty) => Ok(Extern::Func(store.host_func(ty.clone(), number as u32))),
        other => Err(format!("{}.{} is a {other}", import.module, import.name)),
    };
    module.imports().iter().enumerate().map(import).collect()
}

/// Equal for equal endings and equal (kept) output.
fn digest(exit: &Exit, stdout: &[u8]) -> String {
    let mut hash = Sha256::new();
    match exit {
        Exit::Returned(results) => hash.update(format!("returned {results:?}\n")),
        Exit::Status(status) => hash.update(format!("exit {status}\n")),
        Exit::Trapped { code, .. } => hash.update(format!("trap {code:?}\n")),
    }
    hash.update(stdout);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use worksp_recorder::Stdout;

    /// Prints a line, reads it back from memory, grows the memory and ends with a status.
    const COMMAND: &str = r#"(module
        (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
        (memory (export "memory") 1)
        (data (i32.const 64) "hello\n")
        (func (export "_start")
            (drop (call $random_get (i32.const 128) (i32.const 8)))
            (i32.store (i32.const 0) (i32.const 64))
            (i32.store (i32.const 4) (i32.const 6))
            (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))
            (drop (memory.grow (i32.const 1)))
            (call $proc_exit (i32.add (i32.const 1) (i32.load (i32.const 16))))))"#;

    fn record(dir: &Path, module: &str) -> std::path::PathBuf {
        let options = RecordOptions { stdout: Stdout::Capture, ..RecordOptions::default() };
        let path = dir.join("request.wspr");
        let report = native(module.as_bytes(), options.clone(), Some(&path)).unwrap();
        assert_eq!(report.digest, native(module.as_bytes(), options, None).unwrap().digest);
        path
    }

    #[test]
    fn all_subjects_agree() {
        let dir = tempfile::tempdir().unwrap();
        let path = record(dir.path(), COMMAND);
        let plain = engine(&path, false).unwrap();
        assert_eq!(plain.digest, digest(&Exit::Status(7), b"hello\n"));
        let counting = engine(&path, true).unwrap();
        assert_eq!((&counting.digest, counting.work), (&plain.digest, Some(24)));
        assert_eq!(peer(&path).unwrap().digest, plain.digest);
        let state = dir.path().join("state");
        let (last, pieces) = (0..24).find_map(|before| Some((piece(&path, &state, 5).unwrap()?, before + 1))).unwrap();
        assert_eq!((last.digest, last.work), (plain.digest.clone(), Some(24)));
        assert_eq!(pieces, 3);
        assert!(plain.to_json().contains(r#""schema":"worksp.subject.v1""#));
    }

    #[test]
    fn wasmi_notices_another_module() {
        let dir = tempfile::tempdir().unwrap();
        let recording = Recording::open(record(dir.path(), COMMAND)).unwrap();
        let other = wat::parse_str(COMMAND.replace("hello", "hallo")).unwrap();
        let error = wasmi::prepare_module(&recording, &other).unwrap().run().unwrap_err();
        assert!(error.contains("host reads"), "{error}");
    }
}
