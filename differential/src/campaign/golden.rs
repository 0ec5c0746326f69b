//! What an oracle said once, kept as one number for each batch: engines can be held against it where there is no oracle, and much faster.
//!
//! ```text
//! {"schema":"worksp.golden.v1","seed":1,"generators":["single"],"versions":[1]}
//! 9f86d081884c7d65        batch 0
//! ...
//! ```

use std::path::Path;

use super::work::digest;
use super::{BATCH, Error, Plan};
use crate::compare::{Batch, Bench, digests};
use crate::generate::{Case, Generator};
use crate::generate::corpus::Corpus;
use crate::program::Program;
use crate::run::ours::Mode;

const SCHEMA: &str = "worksp.golden.v1";

#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    schema: String,
    seed: u64,
    generators: Vec<Generator>,
    versions: Vec<u32>,
}

/// Answers of an oracle that are kept.
#[derive(Clone, PartialEq, Debug)]
pub struct Golden {
    plan: Plan,
    digests: Vec<String>,
}

/// A batch that does something else than it did on the oracle.
#[derive(Clone, PartialEq, Debug)]
pub struct Mismatch {
    /// What made it.
    pub generator: Generator,
    /// Its first case.
    pub first: u64,
    /// In which mode.
    pub mode: Mode,
}

impl Golden {
    /// Asks the oracle about the first so many batches.
    ///
    /// # Errors
    ///
    /// When a generator makes modules instead of programs, the engine differs from the oracle, or a program is poisoned: nothing that is in doubt is kept.
    pub fn ask(seed: u64, generators: &[Generator], batches: u64) -> Result<Golden, String> {
        if let Some(other) = generators.iter().find(|generator| !generator.makes_programs()) {
            return Err(format!("{other} makes modules, which run one by one: answers are kept for generators of programs"));
        }
        let plan = Plan::new(seed, generators.to_vec(), vec![Mode::Plain]);
        let mut bench = Bench::new(&plan.modes);
        bench.digests = true;
        let mut kept = Vec::new();
        for batch in 0..batches {
            let outcome = bench.run(&Batch::of(&programs(&plan, batch)));
            let (generator, first) = plan.batch(batch);
            if !outcome.divergences.is_empty() || outcome.poisoned > 0 {
                return Err(format!("{generator} {first} to {}: the engine differs, or a program is poisoned; `worksp fuzz run` says more", first + BATCH - 1));
            }
            kept.push(digest(&outcome.digests));
        }
        Ok(Golden { plan, digests: kept })
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// When it is none of these, or generators have changed since.
    pub fn read(path: &Path) -> Result<Golden, Error> {
        let text = std::fs::read_to_string(path).map_err(Error::file(path))?;
        let (head, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let header: Header = serde_json::from_str(head).map_err(|e| Error::content(path, format!("line 1: {e}")))?;
        let plan = Plan::new(header.seed, header.generators.clone(), vec![Mode::Plain]);
        if header.schema != SCHEMA || header.generators.is_empty() || !header.generators.iter().all(|generator| generator.makes_programs()) {
            return Err(Error::content(path, format!("not answers that this build reads ({SCHEMA})")));
        }
        if plan.versions != header.versions {
            return Err(Error::content(path, "generators have other versions now and make other programs; ask the oracle again with --write"));
        }
        let digests: Vec<String> = rest.lines().map(str::to_owned).collect();
        if let Some(line) = digests.iter().position(|digest| digest.len() != 16 || !digest.bytes().all(|b| b.is_ascii_hexdigit())) {
            return Err(Error::content(path, format!("line {}: not 16 hexadecimal digits", line + 2)));
        }
        Ok(Golden { plan, digests })
    }

    /// Writes a file.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let Plan { seed, generators, versions, .. } = self.plan.clone();
        let header = serde_json::to_string(&Header { schema: SCHEMA.into(), seed, generators, versions }).expect("no other keys");
        let text = self.digests.iter().fold(header + "\n", |text, digest| text + digest + "\n");
        std::fs::write(path, text).map_err(Error::file(path))
    }

    /// Programs that answers are kept of.
    pub fn programs(&self) -> u64 {
        self.digests.len() as u64 * BATCH
    }

    /// Runs all of them in these modes; tells after each batch how many are done.
    pub fn check(&self, modes: &[Mode], mut tell: impl FnMut(u64)) -> Vec<Mismatch> {
        let mut runners: Vec<_> = modes.iter().map(|mode| (*mode, mode.runner(true))).collect();
        let mut mismatches = Vec::new();
        for (batch, expected) in (0..).zip(&self.digests) {
            let programs = Batch::of(&programs(&self.plan, batch));
            for (mode, runner) in &mut runners {
                let found = digests(&programs, &mut **runner);
                if !found.is_ok_and(|found| digest(&found) == *expected) {
                    let (generator, first) = self.plan.batch(batch);
                    mismatches.push(Mismatch { generator, first, mode: *mode });
                }
            }
            tell((batch + 1) * BATCH);
        }
        mismatches
    }
}

fn programs(plan: &Plan, batch: u64) -> Vec<Program> {
    let (generator, first) = plan.batch(batch);
    let cases = (first..first + BATCH).filter_map(|index| generator.case(plan.seed, index, &Corpus::default()));
    cases.filter_map(|case| if let Case::Program(program) = case { Some(program) } else { None }).collect()
}
