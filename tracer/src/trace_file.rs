//! Trace files (`.wspt`): units and nodes streamed out as they are finished, everything else at the end.
//!
//! ```text
//! HEAD  what is known before the run            UNIT  boundary, parent │ …      (always before the nodes that name them)
//! INFO  everything about the trace, at the end  NODE  counts │ nodes: weight, unit, edges into it │ their edges, 20 bytes each
//! ```
//!
//! `UNIT` and `NODE` chunks are arrays of little-endian 32-bit words; `HEAD` and `INFO` are archives. Nothing in a file is
//! trusted: every number that another one depends on is checked when it is read.

use std::path::{Path, PathBuf};

use rkyv::{Archive, Deserialize, Serialize};
use worksp_engine::probe::Site;

use crate::container::{ContainerError, Kind, Reader, Tag, Writer};
use crate::edge::{EdgeClass, EdgeKind};
use crate::trace::{Boundary, Check, Checks, Edge, NO_UNIT, Node, Sink, Trace, TraceInfo, Unit, Witness};

const HEAD: Tag = *b"HEAD";
const INFO: Tag = *b"INFO";
const UNITS: Tag = *b"UNIT";
const NODES: Tag = *b"NODE";

/// Words of nodes and edges that are collected before a chunk is written.
const CHUNK_WORDS: usize = 1 << 18;
const NODE_WORDS: usize = 4;
const EDGE_WORDS: usize = 5;
/// The most work that a file may announce: spans and burdens on top of it must fit into 64 bits.
const WORK_MAX: u64 = 1 << 60;

/// Why a trace file cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceFileError {
    /// The file under it.
    #[error(transparent)]
    Container(#[from] ContainerError),
}

/// Writes a trace as it grows. Problems are kept until [`TraceWriter::finish`], and nothing more is written.
#[derive(Debug)]
pub struct TraceWriter {
    out: Writer,
    units: Vec<u32>,
    nodes: Vec<u32>,
    edges: Vec<u32>,
    problem: Option<ContainerError>,
}

impl TraceWriter {
    /// Begins a file. `head` is what is known before the run (module, entry, granule, units).
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: impl AsRef<Path>, head: &TraceInfo) -> Result<TraceWriter, TraceFileError> {
        let mut out = Writer::create(path, Kind::TRACE)?;
        out.archive(HEAD, &StoredInfo::from(head))?;
        Ok(TraceWriter { out, units: Vec::new(), nodes: Vec::new(), edges: Vec::new(), problem: None })
    }

    /// Whether `NAME.partial` stays behind when the file is not finished.
    pub fn keep_partial(&mut self, keep: bool) {
        self.out.keep_partial(keep);
    }

    /// Writes the rest and gives the file its name.
    ///
    /// # Errors
    /// When anything could not be written.
    pub fn finish(mut self, info: &TraceInfo) -> Result<PathBuf, TraceFileError> {
        self.flush();
        if let Some(problem) = self.problem {
            return Err(problem.into());
        }
        self.out.archive(INFO, &StoredInfo::from(info))?;
        Ok(self.out.finish()?)
    }

    fn flush(&mut self) {
        let result = self.try_flush();
        self.units.clear();
        self.nodes.clear();
        self.edges.clear();
        if let (Err(problem), None) = (result, &self.problem) {
            self.problem = Some(problem);
        }
    }

    fn try_flush(&mut self) -> Result<(), ContainerError> {
        if self.problem.is_some() {
            return Ok(());
        }
        if !self.units.is_empty() {
            self.out.chunk(UNITS, &bytes_of(&[&self.units]))?;
        }
        if !self.nodes.is_empty() {
            let counts = [(self.nodes.len() / NODE_WORDS) as u32, (self.edges.len() / EDGE_WORDS) as u32, 0, 0];
            self.out.chunk(NODES, &bytes_of(&[&counts, &self.nodes, &self.edges]))?;
        }
        Ok(())
    }
}

impl Sink for TraceWriter {
    fn unit(&mut self, unit: Unit) {
        self.units.extend([unit.boundary, unit.parent]);
    }

    fn node(&mut self, node: Node, edges: &[Edge]) {
        self.nodes.extend([node.weight as u32, (node.weight >> 32) as u32, node.unit, edges.len() as u32]);
        for edge in edges {
            let last = edge.kind as u32 | (edge.class as u32) << 8 | u32::from(edge.place) << 16;
            self.edges.extend([edge.from, edge.from_site, edge.to_site, edge.object, last]);
        }
        if self.nodes.len() + self.edges.len() + self.units.len() >= CHUNK_WORDS {
            self.flush();
        }
    }

    fn memory(&self) -> u64 {
        4 * (self.units.capacity() + self.nodes.capacity() + self.edges.capacity()) as u64
    }
}

/// A trace from a file.
#[derive(Debug)]
pub struct TraceFile {
    /// The trace, or what of it was written.
    pub trace: Trace,
    /// Whether the file is whole. A prefix lacks names and checks, and its later part of the run.
    pub complete: bool,
}

/// Reads a trace file, whole or a prefix of one.
///
/// # Errors
/// When it is no trace file, of another version, damaged, or contradicts itself.
pub fn read(path: impl AsRef<Path>) -> Result<TraceFile, TraceFileError> {
    load(&Reader::open(path, Kind::TRACE)?)
}

/// Reads a trace file that is in memory; `name` is for messages.
///
/// # Errors
/// Those of [`read`].
pub fn from_bytes(name: impl AsRef<Path>, bytes: &[u8]) -> Result<TraceFile, TraceFileError> {
    load(&Reader::from_bytes(name, bytes, Kind::TRACE)?)
}

fn load(reader: &Reader) -> Result<TraceFile, TraceFileError> {
    let mut loader = Loader::default();
    let mut info = None;
    for (index, chunk) in reader.chunks().iter().enumerate() {
        let corrupt = |what: String| TraceFileError::from(reader.corrupt_chunk(index, what));
        match chunk.tag {
            UNITS => loader.units(&words_of(reader.payload(index)?)).map_err(corrupt)?,
            NODES => loader.nodes(&words_of(reader.payload(index)?)).map_err(corrupt)?,
            INFO => info = Some(index),
            _ => {}
        }
    }
    let index = match info {
        Some(index) => index,
        None => reader.only(HEAD)?,
    };
    let stored: &ArchivedStoredInfo = reader.archived::<ArchivedStoredInfo>(index)?;
    let stored: StoredInfo = rkyv::deserialize::<StoredInfo, rkyv::rancor::Error>(stored)
        .map_err(|e| reader.corrupt_chunk(index, e.to_string()))?;
    let mut trace = loader.trace;
    trace.info = stored.into_info().map_err(|what| reader.corrupt_chunk(index, what))?;
    let complete = info.is_some() && reader.complete();
    if complete {
        check_totals(&trace, loader.work).map_err(|what| reader.corrupt_chunk(index, what))?;
    } else {
        (trace.info.work, trace.info.segments) = (loader.work, loader.segments);
    }
    Ok(TraceFile { trace, complete })
}

/// What only the whole file can contradict.
fn check_totals(trace: &Trace, work: u64) -> Result<(), String> {
    let info = &trace.info;
    if info.work != work {
        return Err(format!("work is {} but its segments weigh {work}", info.work));
    }
    let sites = info.sites.len() as u64;
    let mut named = 0;
    let looked = trace.for_each(|_, edges| named = edges.iter().map(|e| e.from_site.max(e.to_site)).fold(named, u32::max));
    looked.map_err(|e| e.to_string())?;
    if u64::from(named) > sites {
        return Err(format!("an edge names a site beyond the {sites} there are"));
    }
    if trace.units().iter().any(|u| u.boundary as usize >= info.boundaries.len()) {
        return Err(format!("a unit names a boundary beyond the {} there are", info.boundaries.len()));
    }
    Ok(())
}

/// Checks units and nodes as it takes them in.
#[derive(Default)]
struct Loader {
    trace: Trace,
    work: u64,
    segments: u64,
}

impl Loader {
    fn units(&mut self, words: &[u32]) -> Result<(), String> {
        let (units, []) = words.as_chunks::<2>() else { return Err("half a unit".to_owned()) };
        for &[boundary, parent] in units {
            let number = self.trace.units().len();
            if parent as usize > number {
                return Err(format!("unit {number} is nested in unit {parent}, which begins later"));
            }
            self.trace.unit(Unit { boundary, parent });
        }
        Ok(())
    }

    fn nodes(&mut self, words: &[u32]) -> Result<(), String> {
        let Some((&[nodes_count, edges_count, ..], rest)) = words.split_first_chunk::<4>() else {
            return Err("no counts".to_owned());
        };
        let nodes_words = nodes_count as usize * NODE_WORDS;
        if rest.len() != nodes_words + edges_count as usize * EDGE_WORDS {
            return Err(format!("{nodes_count} nodes and {edges_count} edges do not fill the chunk"));
        }
        let (nodes, edges) = rest.split_at(nodes_words);
        let (nodes, edges) = (nodes.as_chunks::<NODE_WORDS>().0, edges.as_chunks::<EDGE_WORDS>().0);
        let mut at = 0;
        let mut into = Vec::new();
        for &[low, high, unit, count] in nodes {
            let number = self.trace.nodes().len() as u32;
            let Some(theirs) = edges.get(at..at + count as usize) else {
                return Err(format!("node {number} has more edges than the chunk"));
            };
            at += count as usize;
            let node = Node { weight: u64::from(low) | u64::from(high) << 32, unit };
            self.check_node(number, &node)?;
            into.clear();
            for edge in theirs {
                into.push(read_edge(number, edge)?);
            }
            if !into.is_sorted_by(|a: &Edge, b: &Edge| (a.from, a.kind, a.class) < (b.from, b.kind, b.class)) {
                return Err(format!("the edges into node {number} are not in order"));
            }
            self.trace.node(node, &into);
        }
        if at != edges.len() { Err("edges that no node has".to_owned()) } else { Ok(()) }
    }

    fn check_node(&mut self, number: u32, node: &Node) -> Result<(), String> {
        if node.is_join() && node.weight != 0 {
            return Err(format!("node {number} is a join, and weighs {}", node.weight));
        }
        if node.unit != NO_UNIT && node.unit as usize >= self.trace.units().len() {
            return Err(format!("node {number} belongs to unit {}, which has not begun", node.unit));
        }
        self.segments += u64::from(!node.is_join());
        self.work = self.work.checked_add(node.weight).filter(|w| *w <= WORK_MAX).ok_or("more work than can be")?;
        Ok(())
    }
}

fn read_edge(to: u32, words: &[u32; EDGE_WORDS]) -> Result<Edge, String> {
    let &[from, from_site, to_site, object, last] = words;
    if from >= to {
        return Err(format!("an edge goes from node {from} to node {to}: it must go forward"));
    }
    let kind = EdgeKind::from_number(last as u8).ok_or_else(|| format!("edge kind {} is unknown", last as u8))?;
    let class = (last >> 8) as u8;
    let class = EdgeClass::from_number(class).ok_or_else(|| format!("edge class {class} is unknown"))?;
    if kind.is_structural() != (class == EdgeClass::None) || (kind == EdgeKind::Result) != (class == EdgeClass::Result) {
        return Err(format!("{} edges have no class {}", kind.name(), class.name()));
    }
    Ok(Edge { from, from_site, to_site, object, kind, class, place: (last >> 16) as u16 })
}

fn bytes_of(parts: &[&[u32]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 * parts.iter().map(|p| p.len()).sum::<usize>());
    for part in parts {
        bytes.extend(part.iter().flat_map(|word| word.to_le_bytes()));
    }
    bytes
}

/// The words of a payload; bytes after the last whole one make the counts wrong, which is found then.
fn words_of(bytes: &[u8]) -> Vec<u32> {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut words: Vec<u32> = words.iter().map(|w| u32::from_le_bytes(*w)).collect();
    if !rest.is_empty() {
        words.push(0);
    }
    words
}

// --- what is stored of `TraceInfo` -----------------------------------------------------------------------------------

#[derive(Archive, Serialize, Deserialize, Debug)]
struct StoredInfo {
    module: String,
    sha256: [u8; 32],
    entry: String,
    granule: u32,
    unit_specs: Vec<String>,
    layout: String,
    allocator: Vec<String>,
    work: u64,
    segments: u64,
    checks: [StoredCheck; 3],
    /// Kind, function, and offset or ordinal.
    boundaries: Vec<(u8, u32, u32)>,
    sites: Vec<(u32, u32)>,
    functions: Vec<String>,
    globals: Vec<(u32, String)>,
    imports: Vec<String>,
}

/// State (0 unchecked, 1 holds, 2 violated), and the witness of a violation.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug)]
struct StoredCheck {
    state: u8,
    from: u32,
    to: u32,
    from_site: u32,
    to_site: u32,
    address: u64,
}

impl From<&Check> for StoredCheck {
    fn from(check: &Check) -> StoredCheck {
        let plain = |state| StoredCheck { state, from: 0, to: 0, from_site: 0, to_site: 0, address: 0 };
        match check {
            Check::Unchecked => plain(0),
            Check::Holds => plain(1),
            Check::Violated(w) => StoredCheck {
                state: 2,
                from: w.from,
                to: w.to,
                from_site: w.from_site,
                to_site: w.to_site,
                address: w.address,
            },
        }
    }
}

impl StoredCheck {
    fn into_check(self) -> Result<Check, String> {
        let StoredCheck { state, from, to, from_site, to_site, address } = self;
        match state {
            0 => Ok(Check::Unchecked),
            1 => Ok(Check::Holds),
            2 => Ok(Check::Violated(Witness { from, to, from_site, to_site, address })),
            other => Err(format!("state {other} of a check is unknown")),
        }
    }
}

impl From<&TraceInfo> for StoredInfo {
    fn from(info: &TraceInfo) -> StoredInfo {
        let boundaries = info.boundaries.iter().map(|boundary| match *boundary {
            Boundary::Root(func) => (0, func, 0),
            Boundary::Func(func) => (1, func, 0),
            Boundary::Site(site) => (2, site.func, site.offset),
            Boundary::Loop { func, ordinal } => (3, func, ordinal),
        });
        StoredInfo {
            module: info.module.clone(),
            sha256: info.sha256,
            entry: info.entry.clone(),
            granule: info.granule,
            unit_specs: info.unit_specs.clone(),
            layout: info.layout.clone(),
            allocator: info.allocator.clone(),
            work: info.work,
            segments: info.segments,
            checks: [&info.checks.stack, &info.checks.freed, &info.checks.delta].map(StoredCheck::from),
            boundaries: boundaries.collect(),
            sites: info.sites.iter().map(|site| (site.func, site.offset)).collect(),
            functions: info.functions.clone(),
            globals: info.globals.clone(),
            imports: info.imports.clone(),
        }
    }
}

impl StoredInfo {
    fn into_info(self) -> Result<TraceInfo, String> {
        let [stack, freed, delta] = self.checks;
        let boundaries = self.boundaries.into_iter().map(|(kind, func, n)| match kind {
            0 => Ok(Boundary::Root(func)),
            1 => Ok(Boundary::Func(func)),
            2 => Ok(Boundary::Site(Site { func, offset: n })),
            3 => Ok(Boundary::Loop { func, ordinal: n }),
            other => Err(format!("boundary kind {other} is unknown")),
        });
        Ok(TraceInfo {
            module: self.module,
            sha256: self.sha256,
            entry: self.entry,
            granule: self.granule,
            unit_specs: self.unit_specs,
            layout: self.layout,
            allocator: self.allocator,
            work: self.work,
            segments: self.segments,
            checks: Checks { stack: stack.into_check()?, freed: freed.into_check()?, delta: delta.into_check()? },
            boundaries: boundaries.collect::<Result<_, String>>()?,
            sites: self.sites.into_iter().map(|(func, offset)| Site { func, offset }).collect(),
            functions: self.functions,
            globals: self.globals,
            imports: self.imports,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a trace that is in memory.
    fn write(trace: &Trace, path: impl AsRef<Path>) -> Result<PathBuf, TraceFileError> {
        let mut writer = TraceWriter::create(path, &trace.info)?;
        trace.units().iter().for_each(|unit| writer.unit(*unit));
        trace.for_each(|node, edges| writer.node(node, edges)).expect("held in memory");
        writer.finish(&trace.info)
    }

    fn example() -> Trace {
        let mut trace = Trace::default();
        let edge = |from, kind, class| Edge { from, from_site: 1, to_site: 2, object: 64, kind, class, place: 0 };
        trace.unit(Unit { boundary: 0, parent: 0 });
        trace.node(Node { weight: 5, unit: 0 }, &[]);
        trace.unit(Unit { boundary: 1, parent: 0 });
        trace.node(Node { weight: 1 << 33, unit: 1 }, &[edge(0, EdgeKind::Spawn, EdgeClass::None)]);
        trace.node(Node { weight: 0, unit: NO_UNIT }, &[edge(1, EdgeKind::Join, EdgeClass::None)]);
        let into = [edge(0, EdgeKind::Order, EdgeClass::None), edge(2, EdgeKind::War, EdgeClass::Heap)];
        trace.node(Node { weight: 7, unit: 0 }, &into);
        trace.info = TraceInfo {
            module: "m".to_owned(),
            work: (1 << 33) + 12,
            segments: 3,
            granule: 8,
            boundaries: vec![Boundary::Root(3), Boundary::Loop { func: 3, ordinal: 1 }],
            sites: vec![Site { func: 3, offset: 70 }, Site { func: 3, offset: 80 }],
            checks: Checks {
                stack: Check::Violated(Witness { from: 1, to: 3, from_site: 1, to_site: 2, address: 9 }),
                freed: Check::Holds,
                delta: Check::Unchecked,
            },
            ..TraceInfo::default()
        };
        trace
    }

    fn file_of(trace: &Trace) -> Vec<u8> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = write(trace, folder.path().join("a.wspt")).expect("written");
        std::fs::read(path).expect("read")
    }

    fn assert_same(a: &Trace, b: &Trace) {
        assert_eq!(a.units(), b.units());
        assert_eq!(a.to_vec().expect("held in memory"), b.to_vec().expect("held in memory"));
    }

    #[test]
    fn a_trace_comes_back() {
        let trace = example();
        let file = from_bytes("a.wspt", &file_of(&trace)).expect("read");
        assert!(file.complete);
        assert_same(&file.trace, &trace);
        assert_eq!(file.trace.info, trace.info);
    }

    #[test]
    fn a_prefix_is_readable() {
        let trace = example();
        let bytes = file_of(&trace);
        let info = bytes.windows(8).position(|w| w == b"INFOchnk").expect("the last chunk");
        let file = from_bytes("a.wspt", &bytes[..info + 40]).expect("read");
        assert!(!file.complete);
        assert_same(&file.trace, &trace);
        assert_eq!((file.trace.info.work, file.trace.info.segments), (trace.info.work, 3));
    }

    #[test]
    fn contradictions_are_errors() {
        let broken = |change: fn(&mut Loader, &mut Vec<u32>)| {
            let mut loader = Loader::default();
            loader.trace.unit(Unit { boundary: 0, parent: 0 });
            let kind = EdgeKind::Raw as u32 | (EdgeClass::Heap as u32) << 8;
            let mut words = vec![2, 1, 0, 0, 5, 0, 0, 0, 6, 0, 0, 1, 0, 0, 0, 0, kind];
            change(&mut loader, &mut words);
            loader.nodes(&words).err().unwrap_or_default()
        };
        assert_eq!(broken(|_, _| {}), "");
        assert_eq!(broken(|_, w| w[12] = 1), "an edge goes from node 1 to node 1: it must go forward");
        assert_eq!(broken(|_, w| w[16] = 9), "edge kind 9 is unknown");
        assert_eq!(broken(|_, w| w[16] = 99 << 8), "edge class 99 is unknown");
        assert_eq!(broken(|_, w| w[16] = EdgeKind::Raw as u32), "raw edges have no class none");
        assert_eq!(broken(|_, w| w[6] = 1), "node 0 belongs to unit 1, which has not begun");
        assert_eq!(broken(|_, w| w[6] = NO_UNIT), "node 0 is a join, and weighs 5");
        assert_eq!(broken(|_, w| w[0] = u32::MAX), "4294967295 nodes and 1 edges do not fill the chunk");
        assert_eq!(broken(|_, w| w[11] = 7), "node 1 has more edges than the chunk");
        assert_eq!(broken(|_, w| w[5] = 1 << 31), "more work than can be");
        assert_eq!(broken(|l, _| l.work = u64::MAX), "more work than can be");
        assert_eq!(Loader::default().units(&[0, 1]).unwrap_err(), "unit 0 is nested in unit 1, which begins later");
    }

    #[test]
    fn flipped_bytes_never_panic() {
        let bytes = file_of(&example());
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for round in 0..12_000 {
            let mut broken = bytes.clone();
            for _ in 0..1 + round % 3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (state >> 33) as usize % broken.len();
                broken[at] ^= 1 << (state >> 29 & 7);
            }
            if let Err(error) = from_bytes("a.wspt", &broken) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
}
