//! What the passes read of a trace: for every node its sources, each once, with the set of its edges.
//!
//! ```text
//! Trace: edges of 20 bytes ──(once)──► [node 0: (from, set) (from, set) …][node 1: …]…   8 bytes a source
//! file [0 ───── spilled)   held [spilled ───── len)      sets: one list for the whole trace
//! ```
//!
//! When a source finishes is one number, whatever hangs on it, so that a pass looks at it once and not once per edge.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use worksp_tracer::edge::{CLASSES, EdgeClass, EdgeKind, KINDS};
use worksp_tracer::trace::{Edge, Node, NodeIdx, Trace};

/// Sources that are held in memory at most, unless the file cannot be written: 8 MiB.
const HELD_MAX: usize = 1 << 20;
/// Sources that a reader fetches at a time: 512 KiB.
const BLOCK: u64 = 1 << 16;
/// Sets that are told apart at most; real traces have some hundred. A source of yet another set is listed several times.
const SETS_MAX: usize = 1 << 12;
/// Labels: kind and class of an edge, and the one that all edges share on which a spawn is charged.
const LABELS: usize = KINDS.len() * CLASSES.len() + 1;
const CHARGED: usize = LABELS - 1;
const EMPTY: u32 = 0;

/// A source as it is stored: the number of its node, then that of its set, each in four bytes.
pub(super) type Source = [u8; 8];

fn source(from: NodeIdx, set: u32) -> Source {
    (u64::from(set) << 32 | u64::from(from)).to_le_bytes()
}

/// The node and the number of the set.
#[inline(always)]
pub(super) fn parts(source: &Source) -> (NodeIdx, u32) {
    let both = u64::from_le_bytes(*source);
    (both as u32, (both >> 32) as u32)
}

/// The kinds and classes of the edges between two nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct EdgeSet(u128);

impl EdgeSet {
    /// What is charged is listed as a spawn: all of it is kept always.
    pub(super) fn edges(self) -> impl Iterator<Item = (EdgeKind, EdgeClass)> {
        let all = KINDS.into_iter().flat_map(|kind| CLASSES.into_iter().map(move |class| (kind, class)));
        let charged = self.is_charged().then_some((EdgeKind::Spawn, EdgeClass::None));
        all.filter(move |&(kind, class)| self.0 >> label(kind, class) & 1 != 0).chain(charged)
    }

    /// Whether one of them is a spawn that is charged.
    pub(super) fn is_charged(self) -> bool {
        self.0 >> CHARGED & 1 != 0
    }
}

fn label(kind: EdgeKind, class: EdgeClass) -> usize {
    kind as usize * CLASSES.len() + class as usize
}

/// The sets of a trace, numbered as they are met.
struct Sets {
    sets: Vec<EdgeSet>,
    /// By set and label: the set with that label added, or [`EMPTY`] where it was not met yet.
    with: Vec<[u32; LABELS]>,
    sets_max: usize,
}

impl Sets {
    fn new(sets_max: usize) -> Sets {
        Sets { sets: vec![EdgeSet::default()], with: vec![[EMPTY; LABELS]], sets_max }
    }

    /// `set` and `label`, unless there are too many sets already; one label alone always has its set.
    #[inline(always)]
    fn with(&mut self, set: u32, label: usize) -> Option<u32> {
        match self.with[set as usize][label] {
            EMPTY => self.add(set, label),
            known => Some(known),
        }
    }

    /// Adds the source of these edges, in several parts if there are too many sets; returns whether that was so.
    #[inline(always)]
    fn sources(&mut self, edges: &[Edge], is_charged: impl Fn(&Edge) -> bool, to: &mut Vec<Source>) -> bool {
        let (mut set, mut is_torn) = (EMPTY, false);
        for edge in edges {
            let label = if is_charged(edge) { CHARGED } else { label(edge.kind, edge.class) };
            set = match self.with(set, label) {
                Some(set) => set,
                None => {
                    is_torn = true;
                    to.push(source(edge.from, set));
                    self.with(EMPTY, label).expect("one label alone always has its set")
                }
            };
        }
        to.push(source(edges[0].from, set));
        is_torn
    }

    #[cold]
    fn add(&mut self, set: u32, label: usize) -> Option<u32> {
        if set != EMPTY && self.sets.len() >= self.sets_max {
            return None;
        }
        let number = self.sets.len() as u32;
        self.sets.push(EdgeSet(self.sets[set as usize].0 | 1 << label));
        self.with.push([EMPTY; LABELS]);
        self.with[set as usize][label] = number;
        Some(number)
    }
}

/// All sources of a trace, within a bound of memory.
pub(super) struct Sources {
    /// By number.
    pub(super) sets: Vec<EdgeSet>,
    /// Whether a source of a node may be listed several times, with a part of its edges each.
    pub(super) has_torn: bool,
    /// How many sources each node has.
    counts: Vec<u32>,
    held: Vec<Source>,
    spilled: u64,
    file: Option<File>,
    held_max: usize,
}

impl Sources {
    /// Reads the edges of a trace once.
    pub(super) fn of(trace: &Trace) -> io::Result<Sources> {
        Sources::within(trace, HELD_MAX, SETS_MAX)
    }

    /// Holds about this many, and tells about this many sets apart.
    pub(super) fn within(trace: &Trace, held_max: usize, sets_max: usize) -> io::Result<Sources> {
        let nodes = trace.nodes();
        let counts = Vec::with_capacity(nodes.len());
        let mut all = Sources { sets: Vec::new(), has_torn: false, counts, held: Vec::new(), spilled: 0, file: None, held_max };
        let mut sets = Sets::new(sets_max);
        trace.for_each(|node, edges| {
            let before = all.held.len();
            for of_one in edges.chunk_by(|a, b| a.from == b.from) {
                all.has_torn |= sets.sources(of_one, |edge| is_charged(edge, &node, nodes), &mut all.held);
            }
            all.counts.push((all.held.len() - before) as u32);
            if all.held.len() >= all.held_max && all.spill().is_err() {
                // No room on the disk: memory it is, from now on.
                all.held_max = usize::MAX;
            }
        })?;
        all.sets = sets.sets;
        Ok(all)
    }

    fn spill(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(tempfile::tempfile()?);
        }
        let Some(file) = &self.file else { return Ok(()) };
        file.write_all_at(self.held.as_flattened(), self.spilled * size_of::<Source>() as u64)?;
        self.spilled += self.held.len() as u64;
        self.held.clear();
        Ok(())
    }

    pub(super) fn len(&self) -> u64 {
        self.spilled + self.held.len() as u64
    }

    /// Calls `f` with every node and its sources, in order.
    ///
    /// # Errors
    /// When the temporary file cannot be read.
    #[inline(always)]
    pub(super) fn for_each(&self, mut f: impl FnMut(usize, &[Source])) -> io::Result<()> {
        let (mut reader, mut start) = (self.reader(), 0);
        for (node, count) in self.counts.iter().enumerate() {
            let end = start + u64::from(*count);
            f(node, reader.get(start..end)?);
            start = end;
        }
        Ok(())
    }

    /// The same from the last node to the first, for those nodes that `wants` asks for.
    ///
    /// # Errors
    /// As [`Sources::for_each`].
    pub(super) fn for_each_back<S>(
        &self,
        state: &mut S,
        wants: impl Fn(&S, usize) -> bool,
        mut f: impl FnMut(&mut S, usize, &[Source]),
    ) -> io::Result<()> {
        let (mut reader, mut end) = (self.reader(), self.len());
        for (node, count) in self.counts.iter().enumerate().rev() {
            let start = end - u64::from(*count);
            if wants(state, node) {
                f(state, node, reader.get(start..end)?);
            }
            end = start;
        }
        Ok(())
    }

    fn reader(&self) -> Reader<'_> {
        Reader { sources: self, buffer: Vec::new(), start: 0 }
    }
}

/// Whether a spawn is charged on this edge: from parent to child, and from parent to its own continuation.
#[inline(always)]
fn is_charged(edge: &Edge, to: &Node, nodes: &[Node]) -> bool {
    match edge.kind {
        EdgeKind::Spawn => true,
        EdgeKind::Order => nodes[edge.from as usize].unit == to.unit,
        _ => false,
    }
}

/// Reads ranges of sources; fast when they follow each other, in either direction.
struct Reader<'a> {
    sources: &'a Sources,
    buffer: Vec<Source>,
    /// The number of the buffer's first source.
    start: u64,
}

impl Reader<'_> {
    /// The sources with these numbers, all of one node.
    #[inline(always)]
    fn get(&mut self, range: Range<u64>) -> io::Result<&[Source]> {
        let spilled = self.sources.spilled;
        if range.start >= spilled {
            return Ok(&self.sources.held[(range.start - spilled) as usize..(range.end - spilled) as usize]);
        }
        if range.start < self.start || range.end > self.start + self.buffer.len() as u64 {
            self.fetch(&range)?;
        }
        Ok(&self.buffer[(range.start - self.start) as usize..(range.end - self.start) as usize])
    }

    /// Fetches a block on that side of the range where reading goes on.
    #[cold]
    fn fetch(&mut self, range: &Range<u64>) -> io::Result<()> {
        let Some(file) = &self.sources.file else { return Err(io::Error::other("sources were spilled to no file")) };
        let block = if range.start < self.start {
            range.end.saturating_sub(BLOCK).min(range.start)..range.end
        } else {
            range.start..range.end.max((range.start + BLOCK).min(self.sources.spilled))
        };
        self.buffer.resize((block.end - block.start) as usize, Source::default());
        self.start = block.start;
        file.read_exact_at(self.buffer.as_flattened_mut(), block.start * size_of::<Source>() as u64)
    }
}
