//! The work of a campaign: jobs that take batches in turn until time or programs run out.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{BATCH, Campaign, CaseId, Cells, Error, Finding, Line, Plan, Shard, Totals, examine};
use crate::compare::{Bench, Divergence, Outcome};
use crate::generate::Case;
use crate::generate::corpus::Corpus;
use crate::run::oracle::Compiler;

/// When to stop, and how many work.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time after which no batch begins.
    pub time_max: Option<Duration>,
    /// Programs of this run of this shard.
    pub programs_max: Option<u64>,
    /// Threads.
    pub jobs: usize,
    /// Stop at the first difference.
    pub first: bool,
    /// Time for shrinking one program.
    pub shrink_max: Duration,
    /// Seconds after which a batch that is not finished is taken for one that never ends.
    pub hang_s: u64,
    /// Whether digests are kept.
    pub digests: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            time_max: None,
            programs_max: None,
            jobs: 1,
            first: false,
            shrink_max: Duration::from_secs(10),
            hang_s: 120,
            digests: false,
        }
    }
}

/// How far a campaign is.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Sums over the shard, what earlier runs did included.
    pub totals: &'a Totals,
    /// The part of it that this run did.
    pub run: &'a Totals,
    /// What was just found.
    pub findings: &'a [Finding],
}

/// A batch in which the process ended so often is not begun again.
const BEGUN_MAX: u32 = 5;

/// At most so many findings of one run are shrunk; the others are only written down.
const SHRUNK_MAX: u64 = 20;

struct Shared<'a> {
    campaign: &'a Campaign,
    corpus: &'a Corpus,
    limits: Limits,
    file: Mutex<super::log::ShardFile>,
    cells: Mutex<Cells>,
    next: Mutex<u64>,
    shard: Shard,
    started: Instant,
    run: Mutex<Totals>,
    shrunk: AtomicU64,
    failed: Mutex<Option<Error>>,
    stopped: std::sync::atomic::AtomicBool,
}

/// Works on a shard until its limits are reached; tells of every batch.
///
/// # Errors
///
/// When files cannot be written, another process is at work, or a batch does not end.
pub fn run(campaign: &Campaign, shard: Shard, limits: Limits, tell: &(dyn Fn(&Progress) + Sync)) -> Result<Totals, Error> {
    campaign.check_versions()?;
    let corpus = campaign.plan.modules()?;
    let file = campaign.shard(shard)?;
    let mut cells = Cells::default();
    cells.know(&file.cells);
    let shared = Shared {
        campaign,
        corpus: &corpus,
        limits,
        file: Mutex::new(file),
        cells: Mutex::new(cells),
        next: Mutex::new(u64::from(shard.index)),
        shard,
        started: Instant::now(),
        run: Mutex::default(),
        shrunk: AtomicU64::new(0),
        failed: Mutex::new(None),
        stopped: false.into(),
    };
    // Since when each job is at work on which batch; microseconds since the start, and 0 for none.
    let at: Vec<[AtomicU64; 2]> = (0..limits.jobs.max(1)).map(|_| Default::default()).collect();
    let left = AtomicU64::new(at.len() as u64);
    std::thread::scope(|scope| {
        for place in &at {
            let (shared, left) = (&shared, &left);
            scope.spawn(move || {
                if let Err(error) = job(shared, place, tell) {
                    shared.failed.lock().expect("no job panics while it holds this").get_or_insert(error);
                    shared.stopped.store(true, Ordering::Relaxed);
                }
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        // Nobody can end a thread that never comes back: the process ends, and says where it was.
        while left.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(20));
            let now = shared.started.elapsed().as_micros() as u64;
            for [since, batch] in &at {
                let since = since.load(Ordering::Relaxed);
                let seconds = now.saturating_sub(since) / 1_000_000;
                if since > 0 && seconds > limits.hang_s {
                    hang(campaign, batch.load(Ordering::Relaxed), seconds);
                }
            }
        }
    });
    if let Some(error) = shared.failed.into_inner().expect("no job panicked") {
        return Err(error);
    }
    Ok(shared.file.into_inner().expect("no job panicked").totals)
}

fn hang(campaign: &Campaign, batch: u64, seconds: u64) -> ! {
    let (generator, first) = campaign.plan.batch(batch);
    let id = |index| CaseId { generator, version: generator.version(), seed: campaign.plan.seed, index };
    eprintln!("error: one of the cases {} to {} is not finished after {seconds} s; `worksp fuzz replay ID` runs one alone", id(first), id(first + BATCH - 1));
    std::process::exit(1)
}

impl Shared<'_> {
    /// The next batch that nobody has done, if there is time for one.
    fn take(&self) -> Option<u64> {
        let over = self.limits.time_max.is_some_and(|max| self.started.elapsed() >= max) || self.stopped.load(Ordering::Relaxed);
        let run = self.run.lock().expect("no job panics while it holds this").clone();
        let enough = self.limits.programs_max.is_some_and(|max| run.programs + run.skipped >= max) || (self.limits.first && run.findings > 0);
        if over || enough {
            return None;
        }
        let mut next = self.next.lock().expect("no job panics while it holds this");
        let file = self.file.lock().expect("no job panics while it holds this");
        while file.done.contains(&next) {
            *next += u64::from(self.shard.count);
        }
        let batch = *next;
        *next += u64::from(self.shard.count);
        Some(batch)
    }
}

fn job(shared: &Shared, [since, at]: &[AtomicU64; 2], tell: &(dyn Fn(&Progress) + Sync)) -> Result<(), Error> {
    let Plan { seed, modes, .. } = &shared.campaign.plan;
    let mut bench = Bench::new(modes);
    bench.digests = shared.limits.digests;
    while let Some(batch) = shared.take() {
        at.store(batch, Ordering::Relaxed);
        since.store((shared.started.elapsed().as_micros() as u64).max(1), Ordering::Relaxed);
        let begun = shared.file.lock().expect("no job panics while it holds this").begin(batch)?;
        let cpu = cpu_us();
        let (generator, first) = shared.campaign.plan.batch(batch);
        let cases: Vec<Option<Case>> = (first..first + BATCH).map(|index| generator.case(*seed, index, shared.corpus)).collect();
        // Oracles crash, too: the fastest of them is not asked again about a batch in which the process ended.
        bench.careful = begun > 0;
        let crashes = begun >= BEGUN_MAX;
        let outcome = if crashes { Outcome::default() } else { bench.cases(&cases) };
        let cpu_us = cpu_us() - cpu;
        since.store(0, Ordering::Relaxed);
        let id = |program: u32| CaseId { generator, version: generator.version(), seed: *seed, index: first + u64::from(program) };
        let findings = if crashes { vec![Finding::crash(id(0), id(BATCH as u32 - 1), begun, modes)] } else { findings(shared, &cases, &outcome, id)? };
        let cells = shared.cells.lock().expect("no job panics while it holds this").new_in(cases.iter().flatten().filter_map(Case::program));
        let line = Line {
            batch,
            generator,
            programs: outcome.programs,
            skipped: outcome.skipped,
            calls: outcome.calls,
            comparisons: outcome.comparisons,
            poisoned: outcome.poisoned,
            compiler: outcome.compiler,
            cpu_us,
            digest: shared.limits.digests.then(|| digest(&outcome.digests)),
            cells,
            findings,
        };
        let mut file = shared.file.lock().expect("no job panics while it holds this");
        file.add(&line)?;
        let mut run = shared.run.lock().expect("no job panics while it holds this");
        run.add(&line);
        tell(&Progress { totals: &file.totals, run: &run, findings: &line.findings });
    }
    Ok(())
}

/// What the differences of a batch are about.
fn findings(shared: &Shared, cases: &[Option<Case>], outcome: &Outcome, id: impl Fn(u32) -> CaseId) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    for divergences in by_program(&outcome.divergences) {
        let index = divergences[0].program;
        let Some(case) = &cases[index as usize] else { continue };
        let shrinks = shared.shrunk.fetch_add(1, Ordering::Relaxed) < SHRUNK_MAX;
        let time_max = if shrinks { shared.limits.shrink_max } else { Duration::ZERO };
        let shown = examine(id(index), case, &divergences, outcome.compiler.unwrap_or(Compiler::Full), time_max);
        shown.write(&shared.campaign.findings_dir())?;
        findings.push(shown.finding);
    }
    Ok(findings)
}

/// Differences of the same program together.
pub fn by_program(divergences: &[Divergence]) -> Vec<Vec<&Divergence>> {
    let mut groups: BTreeMap<u32, Vec<&Divergence>> = BTreeMap::new();
    divergences.iter().for_each(|divergence| groups.entry(divergence.program).or_default().push(divergence));
    groups.into_values().collect()
}

/// One number for many.
pub(super) fn digest(digests: &[u64]) -> String {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    digests.iter().for_each(|digest| hash.update(&digest.to_le_bytes()));
    format!("{:016x}", hash.digest())
}

/// Processor time of this thread, microseconds.
pub fn cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}
