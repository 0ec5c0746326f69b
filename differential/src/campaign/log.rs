//! A campaign's directory: its plan, and for each shard a file of lines, one for each batch that was finished.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;

use super::{BATCH, Error, Finding, Plan, SCHEMA, Shard};
use crate::generate::Generator;
use crate::run::oracle::Compiler;

/// What came of a batch.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Its number.
    pub batch: u64,
    /// What made it.
    pub generator: Generator,
    /// Programs that ran.
    pub programs: u64,
    /// Programs that could not be made or that an engine refuses for a limit.
    pub skipped: u64,
    /// Calls of them.
    pub calls: u64,
    /// Calls in a mode that were held against the oracle.
    pub comparisons: u64,
    /// Programs that exhausted stack or memory.
    pub poisoned: u64,
    /// Who answered.
    pub compiler: Option<Compiler>,
    /// Processor time, microseconds.
    pub cpu_us: u64,
    /// What all programs did, as one number in hexadecimal, if digests are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Cells of operator and shapes that no batch of this shard had before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<String>,
    /// Programs that did something else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
}

/// Sums over lines.
#[derive(Clone, PartialEq, Default, Debug, serde::Serialize)]
pub struct Totals {
    /// Batches.
    pub batches: u64,
    /// See [`Line::programs`].
    pub programs: u64,
    /// See [`Line::skipped`].
    pub skipped: u64,
    /// See [`Line::calls`].
    pub calls: u64,
    /// See [`Line::comparisons`].
    pub comparisons: u64,
    /// See [`Line::poisoned`].
    pub poisoned: u64,
    /// Findings, before those with one signature are taken together.
    pub findings: u64,
    /// Processor time, seconds.
    pub cpu_s: f64,
}

impl Totals {
    /// With one more batch.
    pub fn add(&mut self, line: &Line) {
        self.batches += 1;
        self.programs += line.programs;
        self.skipped += line.skipped;
        self.calls += line.calls;
        self.comparisons += line.comparisons;
        self.poisoned += line.poisoned;
        self.findings += line.findings.len() as u64;
        self.cpu_s += line.cpu_us as f64 / 1e6;
    }

    /// The sum of both.
    pub fn and(&self, other: &Totals) -> Totals {
        Totals {
            batches: self.batches + other.batches,
            programs: self.programs + other.programs,
            skipped: self.skipped + other.skipped,
            calls: self.calls + other.calls,
            comparisons: self.comparisons + other.comparisons,
            poisoned: self.poisoned + other.poisoned,
            findings: self.findings + other.findings,
            cpu_s: self.cpu_s + other.cpu_s,
        }
    }

    /// Whether so many programs were poisoned that the campaign says little.
    pub fn too_poisoned(&self) -> bool {
        self.poisoned * 100 > self.programs
    }
}

/// A campaign's directory.
#[derive(Debug)]
pub struct Campaign {
    /// Where it is.
    pub dir: PathBuf,
    /// What it runs.
    pub plan: Plan,
}

const PLAN: &str = "campaign.json";

impl Campaign {
    /// Begins a campaign in a directory that has none; another shard of the same plan may be there already.
    ///
    /// # Errors
    ///
    /// When there is another campaign, or this shard of it has begun, or files cannot be written.
    pub fn begin(dir: &Path, plan: Plan, shard: Shard) -> Result<Campaign, Error> {
        let path = dir.join(PLAN);
        if path.exists() {
            let there = Campaign::open(dir)?;
            if there.plan != plan || there.lines_path(shard).exists() {
                return Err(Error::Exists { path: dir.to_owned() });
            }
            return Ok(there);
        }
        if dir.is_file() {
            return Err(Error::content(dir, "not a folder"));
        }
        std::fs::create_dir_all(dir).map_err(Error::file(dir))?;
        let text = serde_json::to_string_pretty(&plan).expect("a plan has no other keys") + "\n";
        // Written whole under another name: there is no moment at which half a plan stands there.
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        let mut file = tempfile::Builder::new().permissions(readable).tempfile_in(dir).map_err(Error::file(dir))?;
        file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(Error::file(&path))?;
        match file.persist_noclobber(&path) {
            Ok(_) => Ok(Campaign { dir: dir.to_owned(), plan }),
            // Another shard was faster.
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Campaign::begin(dir, plan, shard),
            Err(error) => Err(Error::file(&path)(error.error)),
        }
    }

    /// Opens a campaign.
    ///
    /// # Errors
    ///
    /// When there is none, or one that this build cannot go on with.
    pub fn open(dir: &Path) -> Result<Campaign, Error> {
        let path = dir.join(PLAN);
        let text = match std::fs::read_to_string(&path) {
            Err(_) if dir.is_file() => return Err(Error::content(dir, "not a folder")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::content(dir, "no campaign here; `worksp fuzz run` begins one, --dir names its folder"));
            }
            text => text.map_err(Error::file(&path))?,
        };
        let schema = serde_json::from_str::<serde_json::Value>(&text).ok().and_then(|value| value["schema"].as_str().map(str::to_owned));
        match schema.as_deref() {
            Some(SCHEMA) => {}
            Some(other) => return Err(Error::content(&path, format!("a campaign of layout {other}; this build reads {SCHEMA}"))),
            None => return Err(Error::content(&path, "not the plan of a campaign; begin a new one with another --dir")),
        }
        let plan: Plan = serde_json::from_str(&text).map_err(|e| Error::content(&path, e.to_string()))?;
        if plan.generators.is_empty() || plan.versions.len() != plan.generators.len() || plan.modes.is_empty() || plan.shards == 0 {
            return Err(Error::content(&path, "a plan without generators, modes or shards"));
        }
        Ok(Campaign { dir: dir.to_owned(), plan })
    }

    /// Whether this build makes the same programs as the one that began the campaign.
    ///
    /// # Errors
    ///
    /// When a generator has another version.
    pub fn check_versions(&self) -> Result<(), Error> {
        for (generator, version) in self.plan.generators.iter().zip(&self.plan.versions) {
            if *version != generator.version() {
                let now = generator.version();
                let what = format!("begun with version {version} of {generator}; this build has {now}, which makes other programs; begin a new campaign");
                return Err(Error::content(&self.dir.join(PLAN), what));
            }
        }
        Ok(())
    }

    /// Where findings are kept.
    pub fn findings_dir(&self) -> PathBuf {
        self.dir.join("findings")
    }

    fn lines_path(&self, shard: Shard) -> PathBuf {
        self.dir.join(format!("shard-{}-of-{}.jsonl", shard.index, shard.count))
    }

    /// The lines of all shards that have begun.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or a line in it is none.
    pub fn lines(&self, mut see: impl FnMut(Line)) -> Result<(), Error> {
        for index in 0..self.plan.shards {
            let path = self.lines_path(Shard { index, count: self.plan.shards });
            if path.exists() {
                let file = File::open(&path).map_err(Error::file(&path))?;
                read_lines(&path, &file, &mut see)?;
            }
        }
        Ok(())
    }

    /// Opens the file of a shard to go on with it: no other process can, and a line that is not whole is cut off.
    ///
    /// # Errors
    ///
    /// When another process has it, or it is not what it should be.
    pub fn shard(&self, shard: Shard) -> Result<ShardFile, Error> {
        let path = self.lines_path(shard);
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(&path).map_err(Error::file(&path))?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::Locked { path }),
            Err(error) => return Err(Error::file(&path)(error.into())),
        }
        let (mut done, mut totals, mut cells) = (FxHashSet::default(), Totals::default(), FxHashSet::default());
        let whole = read_lines(&path, &file, &mut |line: Line| {
            totals.add(&line);
            done.insert(line.batch);
            cells.extend(line.cells);
        })?;
        file.set_len(whole).map_err(Error::file(&path))?;
        file.seek(SeekFrom::End(0)).map_err(Error::file(&path))?;
        let busy = Busy::open(&path.with_extension("busy"), &done)?;
        Ok(ShardFile { path, file, done, totals, cells, busy })
    }
}

/// Bytes of a line, at most; findings make them long.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Reads lines; returns the length of all that are whole. A batch that has two is an error, as one that is none of the plan's kind is.
fn read_lines(path: &Path, file: &File, see: &mut dyn FnMut(Line)) -> Result<u64, Error> {
    let (mut reader, mut text, mut whole, mut number) = (BufReader::new(file), Vec::new(), 0, 0);
    let mut seen = FxHashSet::default();
    loop {
        text.clear();
        let length = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut text).map_err(Error::file(path))?;
        if length as u64 == LINE_BYTES_MAX {
            return Err(Error::content(path, format!("line {}: longer than any that is written", number + 1)));
        }
        if text.last() != Some(&b'\n') {
            return Ok(whole);
        }
        number += 1;
        let line: Line = serde_json::from_slice(&text).map_err(|e| Error::content(path, format!("line {number}: {e}")))?;
        if !seen.insert(line.batch) || line.programs > BATCH {
            return Err(Error::content(path, format!("line {number}: batch {} is there twice, or too large", line.batch)));
        }
        see(line);
        whole += length as u64;
    }
}

/// The file of a shard that this process works on.
#[derive(Debug)]
pub struct ShardFile {
    path: PathBuf,
    file: File,
    /// Batches that have a line.
    pub done: FxHashSet<u64>,
    /// Sums over them.
    pub totals: Totals,
    /// Cells that they had.
    pub cells: FxHashSet<String>,
    busy: Busy,
}

/// Batches that began, and how often, kept until they are done: one in which the process ended again and again is to blame for it.
#[derive(Debug)]
struct Busy {
    path: PathBuf,
    begun: BTreeMap<u64, u32>,
}

impl Busy {
    /// What an earlier process left, without what is done.
    fn open(path: &Path, done: &FxHashSet<u64>) -> Result<Busy, Error> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.map_err(Error::file(path))?,
        };
        // Anything else in it is a write that a kill cut short.
        let entries = text.lines().filter_map(|line| line.split_once(' ')).filter_map(|(batch, times)| Some((batch.parse().ok()?, times.parse().ok()?)));
        Ok(Busy { path: path.to_owned(), begun: entries.filter(|(batch, _)| !done.contains(batch)).collect() })
    }

    fn write(&self) -> Result<(), Error> {
        if self.begun.is_empty() {
            return match std::fs::remove_file(&self.path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::file(&self.path)(error)),
                _ => Ok(()),
            };
        }
        let text: String = self.begun.iter().map(|(batch, times)| format!("{batch} {times}\n")).collect();
        std::fs::write(&self.path, text).map_err(Error::file(&self.path))
    }
}

impl ShardFile {
    /// Takes note that a batch begins; says how often it began before without an end.
    ///
    /// # Errors
    ///
    /// When that cannot be written.
    pub fn begin(&mut self, batch: u64) -> Result<u32, Error> {
        let times = self.busy.begun.entry(batch).or_default();
        let before = *times;
        *times += 1;
        self.busy.write()?;
        Ok(before)
    }

    /// Adds a line, in one write: either all of it is there or, after a kill, a part that does not count.
    ///
    /// # Errors
    ///
    /// When the disk is full; what is there stays good.
    pub fn add(&mut self, line: &Line) -> Result<(), Error> {
        let text = serde_json::to_string(line).expect("a line has no other keys") + "\n";
        let length = self.file.metadata().map_err(Error::file(&self.path))?.len();
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            // Not worth an error of its own: the next one to open the file cuts it off, too.
            self.file.set_len(length).ok();
            return Err(Error::file(&self.path)(error));
        }
        self.done.insert(line.batch);
        self.totals.add(line);
        self.busy.begun.remove(&line.batch);
        self.busy.write()
    }
}
