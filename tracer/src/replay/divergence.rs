//! How a replay can fail: a clear report of the first difference.

use std::fmt;
use std::path::PathBuf;

use worksp_engine::{Error, Trap};

use crate::recording::{Exit, RecordingError};

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The engine does not run the module, or a limit was exceeded.
    #[error("the recorded module cannot be replayed: {0}")]
    Engine(#[from] Error),
    /// Engine and recording disagree.
    #[error(transparent)]
    Diverged(#[from] Box<Divergence>),
    /// The recording's events make no sense.
    #[error("{path} makes no sense at event {event}: {what}; record the request again", path = path.display())]
    Malformed {
        /// The recording.
        path: PathBuf,
        /// The event's number, from 1.
        event: u64,
        /// What is wrong.
        what: String,
    },
}

impl From<Divergence> for ReplayError {
    fn from(divergence: Divergence) -> Self {
        ReplayError::Diverged(Box::new(divergence))
    }
}

/// The first difference between a recording and its replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// The number of the event at which it showed, from 1; 0 before the first.
    pub event: u64,
    /// What was compared.
    pub what: String,
    /// What the recording has.
    pub expected: String,
    /// What the engine did.
    pub found: String,
    /// The calls that were open, innermost first.
    pub calls: Vec<String>,
}

impl Divergence {
    pub(super) fn new(event: u64, what: impl Into<String>, expected: &dyn fmt::Display, found: &dyn fmt::Display) -> Divergence {
        Divergence { event, what: what.into(), expected: expected.to_string(), found: found.to_string(), calls: Vec::new() }
    }

    pub(super) fn with_calls(mut self, calls: impl Iterator<Item = String>) -> Divergence {
        self.calls.extend(calls);
        self
    }

    /// Puts the trap's activations before the calls that are known already.
    pub(super) fn with_trap(mut self, trap: &Trap) -> Divergence {
        let frames = trap.backtrace().iter().map(|frame| format!("{} (offset {:#x})", frame.name, frame.offset));
        self.calls = frames.chain(std::mem::take(&mut self.calls)).collect();
        self
    }
}

/// Calls of a report at each end, when there are too many to print all.
const CALLS_SHOWN: usize = 20;

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the replay differs from the recording at event {}: {}", self.event, self.what)?;
        writeln!(f, "  recorded: {}", self.expected)?;
        write!(f, "  replayed: {}", self.found)?;
        for (index, call) in self.calls.iter().enumerate() {
            if self.calls.len() > 2 * CALLS_SHOWN && index == CALLS_SHOWN {
                write!(f, "\n    … {} more", self.calls.len() - 2 * CALLS_SHOWN)?;
            }
            if index < CALLS_SHOWN || index + CALLS_SHOWN >= self.calls.len() {
                write!(f, "\n    {} {call}", if index == 0 { "in" } else { "from" })?;
            }
        }
        write!(f, "\n  This is a bug in worksp or in a host function that was not fully recorded; please report it with the recording.")
    }
}

impl std::error::Error for Divergence {}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Returned(results) if results.is_empty() => f.write_str("a return"),
            Exit::Returned(results) => write!(f, "a return of {results:x?}"),
            Exit::Status(status) => write!(f, "exit with status {status}"),
            Exit::Trapped { message, .. } => write!(f, "a trap: {message}"),
        }
    }
}
