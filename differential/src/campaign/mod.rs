//! Campaigns: batch after batch of programs, until there is no time left; what came of each is a line in a file.
//!
//! ```text
//! Plan ─► batches, numbered ─► jobs ─► Bench ─► Line ─► shard-I-of-N.jsonl ─► Totals ─► status, report
//!                                        │
//!                                        └ a difference ─► confirmed ─► shrunk ─► findings/ID.{json,wasm,wat,wast}
//! ```
//!
//! The lines are all there is: a campaign that was killed goes on with the batches that have no line. A line that is not whole
//! belongs to a batch that was not finished.

mod cells;
mod finding;
mod golden;
mod log;
mod work;

use std::path::{Path, PathBuf};

pub use cells::{Cells, possible_cells};
pub use finding::{Finding, Kept, Kind, Shown, examine};
pub use golden::{Golden, Mismatch};
pub use log::{Campaign, Line, Totals};
pub use work::{Limits, Progress, by_program, cpu_us, run};

use crate::generate::Generator;
use crate::generate::corpus::Corpus;
use crate::run::ours::Mode;

/// What a campaign runs, fixed when it begins.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Layout of the campaign's files.
    pub schema: String,
    /// What all random numbers come from.
    pub seed: u64,
    /// Batches are dealt to them in turn, to each as its weight says.
    pub generators: Vec<Generator>,
    /// Their versions: the same number means the same programs.
    pub versions: Vec<u32>,
    /// Modes that are held against the oracle.
    pub modes: Vec<Mode>,
    /// Where `corpus` takes its modules from.
    pub corpus: Option<Folder>,
    /// Number of shards.
    pub shards: u32,
}

/// A folder of modules.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// SHA-256 of the SHA-256 sums of its modules: other modules make other cases.
    pub sha256: String,
}

/// [`Plan::schema`].
pub const SCHEMA: &str = "worksp.campaign.v1";
/// Programs of one batch.
pub const BATCH: u64 = 64;

impl Plan {
    /// A plan for these generators in their present versions.
    pub fn new(seed: u64, generators: Vec<Generator>, modes: Vec<Mode>) -> Plan {
        let versions = generators.iter().map(|generator| generator.version()).collect();
        Plan { schema: SCHEMA.into(), seed, generators, versions, modes, corpus: None, shards: 1 }
    }

    /// The modules that `corpus` needs.
    ///
    /// # Errors
    ///
    /// When they are not there, or are others than when the campaign began.
    pub fn modules(&self) -> Result<Corpus, Error> {
        let Some(folder) = &self.corpus else { return Ok(Corpus::default()) };
        let corpus = Corpus::read(&folder.path).map_err(Error::Generator)?;
        if corpus.fingerprint() != folder.sha256 {
            let path = folder.path.display();
            return Err(Error::Generator(format!("{path}: the modules are not those with which the campaign began; begin a new one")));
        }
        Ok(corpus)
    }

    /// Which generator makes a batch, and the index of the batch's first case in it: in turn, each as often as its weight says.
    pub fn batch(&self, batch: u64) -> (Generator, u64) {
        let round = self.generators.iter().map(|generator| generator.weight()).sum::<u64>().max(1);
        let (rounds, mut left) = (batch / round, batch % round);
        for generator in &self.generators {
            if left < generator.weight() {
                return (*generator, (rounds * generator.weight() + left) * BATCH);
            }
            left -= generator.weight();
        }
        unreachable!("the rest is less than the sum of the weights")
    }
}

/// Which shard of how many, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// This one.
    pub index: u32,
    /// Of so many.
    pub count: u32,
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parsed = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match parsed {
            Some((index, count)) if index < count && count <= 4096 => Ok(Shard { index, count }),
            _ => Err(format!("a shard is I/N with I below N and N at most 4096, such as 0/4; not {text}")),
        }
    }
}

/// A program of a campaign, by name: `GENERATOR-VERSION-SEED-INDEX`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CaseId {
    /// What makes it.
    pub generator: Generator,
    /// In this version.
    pub version: u32,
    /// From this seed.
    pub seed: u64,
    /// Its number.
    pub index: u64,
}

impl std::fmt::Display for CaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}-{}-{}-{}", self.generator, self.version, self.seed, self.index)
    }
}

impl std::str::FromStr for CaseId {
    type Err = String;

    fn from_str(text: &str) -> Result<CaseId, String> {
        let parts: Vec<&str> = text.split('-').collect();
        let [generator, version, seed, index] = parts.as_slice() else {
            return Err(format!("a case is GENERATOR-VERSION-SEED-INDEX, such as single-1-7-12345; not {text}"));
        };
        let number = |text: &str| text.parse().map_err(|_| format!("{text} is no number of at most {}", u64::MAX));
        let generator: Generator = clap::ValueEnum::from_str(generator, false).map_err(|_| format!("there is no generator {generator}"))?;
        let version = u32::try_from(number(version)?).map_err(|_| "versions are small numbers".to_owned())?;
        if version != generator.version() {
            let now = generator.version();
            return Err(format!("version {version} of {generator} is not in this build, which has {now}; replay the .wasm that the finding kept instead"));
        }
        Ok(CaseId { generator, version, seed: number(seed)?, index: number(index)? })
    }
}

/// What goes wrong with a campaign other than what it looks for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {what}", path = path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Another process works on this shard.
    #[error("{path}: another process is at work on this shard; choose another --shard or --dir", path = path.display())]
    Locked {
        /// The shard's file.
        path: PathBuf,
    },
    /// There is a campaign already.
    #[error("{path}: there is a campaign already; `worksp fuzz resume --dir {path}` goes on with it, another --dir begins a new one", path = path.display())]
    Exists {
        /// Its directory.
        path: PathBuf,
    },
    /// A generator has nothing to make programs from.
    #[error("{0}")]
    Generator(String),
}

impl Error {
    fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    }

    fn content(path: &Path, what: impl Into<String>) -> Error {
        Error::Content { path: path.to_owned(), what: what.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_batch_has_its_own_cases() {
        let plan = Plan::new(1, vec![Generator::Smith, Generator::Single, Generator::Region], Mode::ALL.to_vec());
        let mut next = rustc_hash::FxHashMap::<Generator, u64>::default();
        for batch in 0..1000 {
            let (generator, first) = plan.batch(batch);
            let next = next.entry(generator).or_default();
            assert_eq!(first, *next, "batch {batch}");
            *next += BATCH;
        }
        assert_eq!(next[&Generator::Single], 600 * BATCH);
    }

    #[test]
    fn cases_have_names() {
        let case = CaseId { generator: Generator::Single, version: Generator::Single.version(), seed: u64::MAX, index: 7 };
        assert_eq!(case.to_string().parse(), Ok(case));
        for wrong in ["", "single", "single-1-1", "single-1-1-x", "single-1-1-1-1", "double-1-1-1", "single-0-1-1"] {
            assert!(wrong.parse::<CaseId>().is_err(), "{wrong}");
        }
        assert_eq!("2/7".parse(), Ok(Shard { index: 2, count: 7 }));
        assert!(["", "7/7", "1", "-1/3", "1/99999"].iter().all(|wrong| wrong.parse::<Shard>().is_err()));
    }
}
