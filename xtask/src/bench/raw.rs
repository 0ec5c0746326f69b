//! The raw record: one JSON object a line, as measured, nothing discarded.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a subject prints, as the last line of its standard output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Always `worksp.subject.v1`.
    pub schema: String,
    /// The time of the work alone, without compilation and set-up, once per repetition in the process.
    pub seconds: Vec<f64>,
    /// A hash of everything that the run produced; equal for all subjects of a case that have one.
    pub digest: Option<String>,
    /// Operators executed, where the subject counts them.
    pub work: Option<u64>,
}

/// The version of [`Report`].
pub const REPORT_SCHEMA: &str = "worksp.subject.v1";

/// One line of a raw file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// The first line: what ran where.
    Run(Run),
    /// One process.
    Sample(Sample),
    /// The last line of a run that was completed.
    End {
        /// Wall time of the whole run.
        wall_s: f64,
        /// The load averages after it.
        load: [f64; 3],
    },
}

/// The identity of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Always `worksp.bench.v1`.
    pub schema: String,
    /// The suite.
    pub suite: String,
    /// What it answers.
    pub about: String,
    /// When it began, UTC.
    pub began: String,
    /// The revision, and whether tracked files differed from it.
    pub revision: String,
    /// Whether the work tree differed from the revision.
    pub dirty: bool,
    /// `rustc --version`.
    pub rustc: String,
    /// The build profile.
    pub profile: String,
    /// The operating system and kernel.
    pub os: String,
    /// The processor's architecture.
    pub arch: String,
    /// The processor's model.
    pub cpu: String,
    /// Cores that the run could use.
    pub cores: usize,
    /// The load averages before it.
    pub load: [f64; 3],
    /// SHA-256 of every module and binary that ran.
    pub sha256: BTreeMap<String, String>,
    /// The ratios that are asked for: numerator, denominator.
    pub ratios: Vec<(String, String)>,
    /// Rounds that were declared before the run.
    pub rounds: usize,
}

/// One process of one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The case.
    pub case: String,
    /// The subject.
    pub subject: String,
    /// Whether this is the A/A twin of the subject.
    pub twin: bool,
    /// The round, from 0.
    pub round: usize,
    /// The process's place in its round, from 0.
    pub place: usize,
    /// The subject's own times.
    pub seconds: Vec<f64>,
    /// The process's wall time.
    pub wall_s: f64,
    /// Its user time.
    pub user_s: f64,
    /// Its system time.
    pub system_s: f64,
    /// Its peak resident memory.
    pub peak_kib: u64,
    /// Hash of what it produced.
    pub digest: Option<String>,
    /// Operators executed.
    pub work: Option<u64>,
}

/// The version of [`Run`].
pub const RUN_SCHEMA: &str = "worksp.bench.v1";
