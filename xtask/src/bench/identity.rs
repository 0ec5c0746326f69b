//! What ran, and where: revision, toolchain, machine, load, hashes.

use super::raw::{RUN_SCHEMA, Run};
use super::suite::Suite;
use crate::sh;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use worksp_fixtures::sha256_of;

/// The identity of a run of `suite` that uses `files` (label and path).
///
/// # Errors
/// When a file cannot be read or git cannot be asked.
pub fn of(suite: &Suite, rounds: usize, files: &BTreeMap<String, PathBuf>) -> Result<Run> {
    let text = |command: &mut Command| sh::output(command).map(|text| text.trim().to_owned());
    Ok(Run {
        schema: RUN_SCHEMA.to_owned(),
        suite: suite.name.to_owned(),
        about: suite.about.to_owned(),
        began: text(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]))?,
        revision: text(Command::new("git").args(["rev-parse", "HEAD"]))?,
        dirty: !text(Command::new("git").args(["status", "--porcelain", "--untracked-files=no"]))?.is_empty(),
        rustc: text(Command::new("rustc").arg("--version"))?,
        profile: "release".to_owned(),
        os: text(Command::new("uname").args(["-sr"]))?,
        arch: std::env::consts::ARCH.to_owned(),
        cpu: cpu_model(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        load: load(),
        sha256: hashes(files)?,
        ratios: suite.ratios.iter().map(|(n, d)| ((*n).to_owned(), (*d).to_owned())).collect(),
        rounds,
    })
}

/// The SHA-256 of every file, by label.
///
/// # Errors
/// When a file cannot be read.
pub fn hashes(files: &BTreeMap<String, PathBuf>) -> Result<BTreeMap<String, String>> {
    files.iter().map(|(label, path)| Ok((label.clone(), sha256_of(path)?))).collect()
}

/// The load averages over 1, 5 and 15 minutes; zeros where the system does not tell.
pub fn load() -> [f64; 3] {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut words = text.split(' ').map(|word| word.parse().unwrap_or(0.0));
    std::array::from_fn(|_| words.next().unwrap_or(0.0))
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| "unknown".to_owned(), |(_, model)| model.to_owned())
}
