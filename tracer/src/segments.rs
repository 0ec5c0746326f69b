//! Cutting a run into segments, and collecting the edges into the current one.
//!
//! ```text
//! open_unit:   parent ──(spawn)──► child's first         close_unit:   child's last │ parent's last ──(order)──► parent's next
//! ```
//!
//! Segments are strictly one after another, so one is open at any time, and every edge goes from a closed one into it.

use crate::edge::{EdgeClass, EdgeKind, distinct};
use crate::sets::{EMPTY, Run, SEGMENT_MAX, SETS_MAX, SetIdx, Sets, Source};
use crate::trace::{Edge, NO_UNIT, Node, NodeIdx, Sink, Unit, Witness};

/// Entries of the filter for edges that were just added.
const RECENT: usize = 1 << 10;
/// Edges that are collected before duplicates are taken out for the first time.
const COMPACT_MIN: usize = 4096;

/// Nodes beyond which a trace is too large; what one event may add still has numbers.
const NODES_MAX: u32 = 1 << 30;

/// What an access brings to its edges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// `IN_ALLOCATOR`, `OUTPUT` (see `cell.rs`).
    pub flags: u8,
    /// Where it is made.
    pub site: u32,
    /// The class of the place that it touches, when nothing stronger applies.
    pub region: EdgeClass,
    /// What it touches.
    pub object: u32,
    /// In which memory.
    pub place: u16,
    /// A read below the stack pointer with which the segment started.
    pub dead: bool,
    /// For reads of the stack: the segment in which its present owner claimed the address.
    pub owned_since: u32,
}

impl Access {
    /// The same towards bytes of which it touches these: an edge from mere neighbours says nothing about owners.
    pub fn meeting(&self, touched: u8) -> Access {
        Access { owned_since: if touched == 0 { 0 } else { self.owned_since }, ..*self }
    }
}

#[derive(Clone, Copy, Debug)]
struct OpenUnit {
    unit: u32,
    /// The unit's last closed segment.
    last: Option<NodeIdx>,
}

/// Where edges came from: a segment, a node, or a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    Segment(u32),
    Node(NodeIdx),
    Set(SetIdx),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RecentEdge {
    from: From,
    segment: u32,
    kind_class: u16,
}

/// The graph as it grows.
#[derive(Debug)]
pub(crate) struct Segments<S> {
    sink: S,
    sets: Sets,
    /// The open segment's number; closed ones are lower.
    current: u32,
    open: bool,
    started_at_work: u64,
    units: Vec<OpenUnit>,
    units_count: u32,
    nodes_count: u32,
    edges: Vec<Edge>,
    /// Scratch of [`distinct`].
    keys: Vec<u64>,
    compacted: Vec<Edge>,
    /// Scratch: the nodes that stand for a run of a set.
    sources: Vec<NodeIdx>,
    compact_at: usize,
    recent: Vec<RecentEdge>,
    /// The node of every closed segment.
    node_of_segment: Vec<NodeIdx>,
    last_root_node: Option<NodeIdx>,
    /// The first stack raw edge whose ends belong to different owners; its later end is a segment number.
    unsound_stack_edge: Option<Witness>,
}

impl<S: Sink> Segments<S> {
    pub fn new(sink: S) -> Segments<S> {
        Segments {
            sink,
            sets: Sets::new(),
            current: 0,
            open: false,
            started_at_work: 0,
            units: Vec::new(),
            units_count: 0,
            nodes_count: 0,
            edges: Vec::new(),
            keys: Vec::new(),
            compacted: Vec::new(),
            sources: Vec::new(),
            compact_at: COMPACT_MIN,
            // No segment has this number.
            recent: vec![RecentEdge { from: From::Segment(0), segment: u32::MAX, kind_class: 0 }; RECENT],
            node_of_segment: Vec::new(),
            last_root_node: None,
            unsound_stack_edge: None,
        }
    }

    /// The open segment's number.
    #[inline(always)]
    pub fn current(&self) -> u32 {
        self.current
    }

    /// Whether a segment is open.
    pub fn is_open(&self) -> bool {
        self.open
    }

    pub fn sets(&self) -> &Sets {
        &self.sets
    }

    pub fn sets_mut(&mut self) -> &mut Sets {
        &mut self.sets
    }

    /// Bytes held, and those that it takes to use what is there.
    pub fn memory(&self) -> u64 {
        let edges = (self.edges.capacity() + self.compacted.capacity()) * size_of::<Edge>();
        let scratch = edges + self.keys.capacity() * size_of::<u64>();
        let nodes = size_of_val(&self.node_of_segment[..]);
        (scratch + nodes) as u64 + self.sets.memory() + self.sink.memory()
    }

    /// Whether there are numbers for more segments, sets and nodes.
    pub fn has_numbers(&self) -> bool {
        self.current < SEGMENT_MAX && self.sets.len() < SETS_MAX && self.nodes_count < NODES_MAX
    }

    /// The number of segments so far.
    pub fn segments_count(&self) -> u64 {
        self.node_of_segment.len() as u64
    }

    /// The node of a closed segment.
    pub fn node_of(&self, segment: u32) -> Option<NodeIdx> {
        self.node_of_segment.get(segment as usize).copied()
    }

    /// How many units are open.
    pub fn depth(&self) -> usize {
        self.units.len()
    }

    /// A unit begins, nested in the innermost open one, or as the next root.
    pub fn open_unit(&mut self, boundary: u32, work: u64) {
        let unit = self.units_count;
        self.units_count += 1;
        let (parent, before) = match self.units.last().map(|u| u.unit) {
            Some(parent) => {
                let node = self.close_segment(work);
                if let Some(last) = self.units.last_mut() {
                    last.last = Some(node);
                }
                (parent, Some((node, EdgeKind::Spawn)))
            }
            None => (unit, self.last_root_node.map(|node| (node, EdgeKind::Order))),
        };
        self.sink.unit(Unit { boundary, parent });
        self.units.push(OpenUnit { unit, last: None });
        self.open_segment(before, work);
    }

    /// The innermost open unit ends; its parent goes on.
    pub fn close_unit(&mut self, work: u64) {
        if self.units.is_empty() {
            return;
        }
        let node = self.close_segment(work);
        self.units.pop();
        match self.units.last() {
            Some(parent) => self.open_segment(parent.last.map(|last| (last, EdgeKind::Order)), work),
            None => self.last_root_node = Some(node),
        }
    }

    fn open_segment(&mut self, before: Option<(NodeIdx, EdgeKind)>, work: u64) {
        self.open = true;
        self.started_at_work = work;
        self.sets.begin_segment(self.current);
        if let Some((from, kind)) = before {
            self.push(Edge { from, from_site: 0, to_site: 0, object: 0, kind, class: EdgeClass::None, place: 0 });
        }
    }

    fn close_segment(&mut self, work: u64) -> NodeIdx {
        let Some(&OpenUnit { unit, .. }) = self.units.last() else { unreachable!("a segment belongs to a unit") };
        self.open = false;
        let weight = work - self.started_at_work;
        if !S::RAW {
            self.compact();
        }
        let edges = std::mem::take(&mut self.edges);
        let node = self.emit(Node { weight, unit }, &edges);
        self.edges = edges;
        self.edges.clear();
        self.compact_at = COMPACT_MIN;
        self.node_of_segment.push(node);
        assert!(self.current < SEGMENT_MAX, "a graph that is full does not grow");
        self.current += 1;
        node
    }

    fn emit(&mut self, node: Node, edges: &[Edge]) -> NodeIdx {
        let number = self.nodes_count;
        self.nodes_count = number.checked_add(1).expect("a graph that is full does not grow");
        self.sink.node(node, edges);
        number
    }

    /// Adds an edge from a closed segment into the open one. The open one itself is no source.
    #[inline]
    pub fn edge(&mut self, from: u32, kind: EdgeKind, class: EdgeClass, from_site: u32, to: &Access) {
        if from == self.current {
            return;
        }
        if kind == EdgeKind::Raw && class == EdgeClass::Stack && from < to.owned_since {
            self.note_unsound_stack_edge(from, from_site, to);
        }
        if self.is_recent(From::Segment(from), kind, class) {
            return;
        }
        let from = self.node_of_segment[from as usize];
        self.push(Edge { from, from_site, to_site: to.site, object: to.object, kind, class, place: to.place });
    }

    /// Whether such edges were just added; notes it. It only saves work: edges are made distinct when their node is complete.
    #[inline(always)]
    fn is_recent(&mut self, from: From, kind: EdgeKind, class: EdgeClass) -> bool {
        let (From::Segment(number) | From::Node(number) | From::Set(number)) = from;
        let kind_class = (kind as u16) << 8 | class as u16;
        let place = number as usize ^ (class as usize) << 7 ^ (kind as usize) << 4;
        let this = RecentEdge { from, segment: self.current, kind_class };
        std::mem::replace(&mut self.recent[place % RECENT], this) == this
    }

    #[cold]
    fn note_unsound_stack_edge(&mut self, from: u32, from_site: u32, to: &Access) {
        let (from, current) = (self.node_of_segment[from as usize], self.current);
        let address = u64::from(to.object);
        self.unsound_stack_edge.get_or_insert(Witness { from, to: current, from_site, to_site: to.site, address });
    }

    /// The first stack raw edge whose ends belong to different owners. To be called when all segments are closed.
    pub fn unsound_stack_edge(&self) -> Option<Witness> {
        self.unsound_stack_edge.as_ref().map(|w| self.resolve(w))
    }

    /// A witness whose later end is a segment number, with that segment's node.
    pub fn resolve(&self, witness: &Witness) -> Witness {
        Witness { to: self.node_of(witness.to).unwrap_or(witness.to), ..witness.clone() }
    }

    /// Adds edges from all members of a set but the open segment, through joins where a run has many. `class` names the class of
    /// a run by its flags.
    pub fn edges_from_set(
        &mut self,
        set: SetIdx,
        kinds: &[EdgeKind],
        from_site: u32,
        to: &Access,
        class: impl Fn(EdgeKind, u8, bool) -> EdgeClass,
    ) {
        if set == EMPTY {
            return;
        }
        let mut runs: smallvec::SmallVec<[Run; 4]> = smallvec::SmallVec::new();
        self.sets.runs(set, self.current, |run| runs.push(run));
        let reads_stack = kinds.contains(&EdgeKind::Raw) && class(EdgeKind::Raw, 0, false) == EdgeClass::Stack;
        if self.unsound_stack_edge.is_none()
            && to.owned_since > 0
            && reads_stack
            && let Some(older) = self.sets.find_older(set, to.owned_since)
        {
            self.note_unsound_stack_edge(older, from_site, to);
        }
        for run in runs {
            let mut new: smallvec::SmallVec<[(EdgeKind, EdgeClass); 2]> =
                kinds.iter().map(|&kind| (kind, class(kind, run.flags, run.stale))).collect();
            new.retain(|(kind, class)| !self.is_recent(From::Set(run.top), *kind, *class));
            if new.is_empty() {
                continue;
            }
            self.sources(run.top);
            for at in 0..self.sources.len() {
                let from = self.sources[at];
                for &(kind, class) in &new {
                    if !self.is_recent(From::Node(from), kind, class) {
                        self.push(Edge { from, from_site, to_site: to.site, object: to.object, kind, class, place: to.place });
                    }
                }
            }
        }
    }

    /// Puts the nodes that stand for a run of a set into `self.sources`, and emits the joins among them.
    fn sources(&mut self, top: SetIdx) {
        let Segments { sets, sink, nodes_count, node_of_segment, sources, .. } = self;
        let node_of = |source| match source {
            Source::Segment(segment) => node_of_segment[segment as usize],
            Source::Node(node) => node,
        };
        let join = |members: &[Source]| {
            let mut edges: smallvec::SmallVec<[Edge; 20]> = members
                .iter()
                .map(|member| Edge {
                    from: node_of(*member),
                    from_site: 0,
                    to_site: 0,
                    object: 0,
                    kind: EdgeKind::Join,
                    class: EdgeClass::None,
                    place: 0,
                })
                .collect();
            edges.sort_by_key(|e| e.from);
            let number = *nodes_count;
            *nodes_count = number.checked_add(1).expect("a graph that is full does not grow");
            sink.node(Node { weight: 0, unit: NO_UNIT }, &edges);
            number
        };
        sources.clear();
        sets.sources(top, join, |source| sources.push(node_of(source)));
    }

    fn push(&mut self, edge: Edge) {
        self.edges.push(edge);
        if self.edges.len() >= self.compact_at {
            self.compact();
            self.compact_at = (2 * self.edges.len()).max(COMPACT_MIN);
        }
    }

    fn compact(&mut self) {
        distinct(&self.edges, &mut self.keys, &mut self.compacted);
        std::mem::swap(&mut self.edges, &mut self.compacted);
    }

    /// Ends the run: closes every open unit and hands back the sink.
    pub fn finish(mut self, work: u64) -> S {
        while self.depth() > 0 {
            self.close_unit(work);
        }
        self.sink
    }
}
