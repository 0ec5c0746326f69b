//! What the passes read of a trace: for every node its sources, each once, with the set of its edges.
//!
//! ```text
//! Trace: edges of 20 bytes ──(once)──► [node 0: (from, set) (from, set) …][node 1: …]…   8 bytes a source
//!                                                        sets: one list for the whole trace
//! ```
//!
//! When a source finishes is one number, whatever hangs on it, so that a pass looks at it once and not once per edge.

use std::io;

use worksp_tracer::edge::{CLASSES, EdgeClass, EdgeKind, KINDS};
use worksp_tracer::hints::push_large;
use worksp_tracer::spill::Spill;
use worksp_tracer::TraceWriter;
use worksp_tracer::trace::{Edge, Node, NodeIdx, Sink, Trace, Unit};

/// Sources that are held in memory at most, unless the file cannot be written: 4 MiB.
const HELD_MAX: usize = 1 << 19;
/// Sets that are told apart at most; real traces have some hundred. A source of yet another set is listed several times.
const SETS_MAX: usize = 1 << 12;
/// Labels: kind and class of an edge, and the one that all edges share on which a spawn is charged.
const LABELS: usize = KINDS.len() * CLASSES.len() + 1;
const CHARGED: usize = LABELS - 1;
const EMPTY: u32 = 0;

/// Bytes of a source.
const BYTES: usize = 8;
/// A source as it is stored: the number of its node, then that of its set, each in four bytes.
pub(super) type Source = [u8; BYTES];

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
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let label = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(match label {
                CHARGED => (EdgeKind::Spawn, EdgeClass::None),
                label => (KINDS[label / CLASSES.len()], CLASSES[label % CLASSES.len()]),
            })
        })
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
#[derive(Debug)]
pub struct Sources {
    /// By number.
    pub(super) sets: Vec<EdgeSet>,
    /// Whether a source of a node may be listed several times, with a part of its edges each.
    pub(super) has_torn: bool,
    /// How many sources each node has.
    counts: Vec<u32>,
    all: Spill<Source, BYTES>,
}

impl Sources {
    /// Reads the edges of a trace once.
    pub(super) fn of(trace: &Trace) -> io::Result<Sources> {
        Sources::within(trace, HELD_MAX, SETS_MAX)
    }

    /// Holds about this many, and tells about this many sets apart.
    pub(super) fn within(trace: &Trace, held_max: usize, sets_max: usize) -> io::Result<Sources> {
        let nodes = trace.nodes();
        let mut builder = Builder::within(held_max, sets_max);
        trace.for_each(|node, edges| builder.push(&node, edges, nodes))?;
        Ok(builder.finish())
    }

    pub(super) fn len(&self) -> u64 {
        self.all.len()
    }

    /// Calls `f` with every node and its sources, in order.
    ///
    /// # Errors
    /// When the temporary file cannot be read.
    #[inline(always)]
    pub(super) fn for_each(&self, mut f: impl FnMut(usize, &[Source])) -> io::Result<()> {
        let (mut reader, mut start) = (self.all.reader(), 0);
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
        let (mut reader, mut end) = (self.all.reader(), self.len());
        for (node, count) in self.counts.iter().enumerate().rev() {
            let start = end - u64::from(*count);
            if wants(state, node) {
                f(state, node, reader.get(start..end)?);
            }
            end = start;
        }
        Ok(())
    }
}

/// Sources as their nodes come.
struct Builder {
    found: Sources,
    sets: Sets,
    of_node: Vec<Source>,
}

impl Builder {
    fn within(held_max: usize, sets_max: usize) -> Builder {
        let found = Sources { sets: Vec::new(), has_torn: false, counts: Vec::new(), all: Spill::new(held_max) };
        Builder { found, sets: Sets::new(sets_max), of_node: Vec::new() }
    }

    /// The next node; `nodes` are those before it, at least.
    fn push(&mut self, node: &Node, edges: &[Edge], nodes: &[Node]) {
        self.of_node.clear();
        for of_one in edges.chunk_by(|a, b| a.from == b.from) {
            self.found.has_torn |= self.sets.sources(of_one, |edge| is_charged(edge, node, nodes), &mut self.of_node);
        }
        push_large(&mut self.found.counts, self.of_node.len() as u32);
        self.found.all.push(&self.of_node);
    }

    fn finish(self) -> Sources {
        Sources { sets: self.sets.sets, ..self.found }
    }
}

/// Takes a trace and its sources in one go, and writes the trace's file meanwhile.
pub struct TraceAndSources {
    trace: Trace,
    sources: Builder,
    file: Option<TraceWriter>,
}

impl TraceAndSources {
    /// Nothing yet.
    pub fn new(file: Option<TraceWriter>) -> TraceAndSources {
        TraceAndSources { trace: Trace::default(), sources: Builder::within(HELD_MAX, SETS_MAX), file }
    }

    /// The trace, its sources, and the file that lacks its end.
    pub fn finish(self) -> (Trace, Sources, Option<TraceWriter>) {
        (self.trace, self.sources.finish(), self.file)
    }
}

impl Sink for TraceAndSources {
    fn unit(&mut self, unit: Unit) {
        self.trace.unit(unit);
        if let Some(file) = &mut self.file {
            file.unit(unit);
        }
    }

    fn node(&mut self, node: Node, edges: &[Edge]) {
        self.sources.push(&node, edges, self.trace.nodes());
        if let Some(file) = &mut self.file {
            file.node(node, edges);
        }
        self.trace.node(node, edges);
    }

    fn memory(&self) -> u64 {
        let found = &self.sources.found;
        let file = self.file.as_ref().map_or(0, Sink::memory);
        self.trace.memory() + size_of_val(&found.counts[..]) as u64 + found.all.memory() + file
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
