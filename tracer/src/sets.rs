//! Sets of segments that grow by the current one: all readers since a write, all deltas since a plain access.
//!
//! A set is a chain of nodes that share their tails, so that the thousand granules of a table that the same segments read
//! share one chain. A node's newest member is the segment that was current when it was made; since segments are strictly
//! one after another, `set >= base` says "the newest member is the current segment" without looking. Most sets have one member
//! only: they are that member, and no node.

use rustc_hash::FxHashMap;

use crate::hints::{large_list, push_large};

/// A set: 0 is the empty one, [`SINGLE`] and a member the one with that member, anything else the number of a node.
pub(crate) type SetIdx = u32;

/// In a set: it has one member, which is in the other bits.
const SINGLE: SetIdx = 1 << 31;

/// The empty set.
pub(crate) const EMPTY: SetIdx = 0;

/// Nodes beyond which a trace is too large; what one event may add still has numbers.
pub(crate) const SETS_MAX: usize = 1 << 30;
/// Bits of a member that hold flags.
const FLAG_BITS: u32 = 3;
/// The member of a node that says "everything below belongs to an earlier life of the address".
const BARRIER: u32 = u32::MAX;
/// The largest segment number that fits.
pub(crate) const SEGMENT_MAX: u32 = (1 << (31 - FLAG_BITS)) - 1;
/// Nodes for which there is room from the start.
const NODES: usize = 1 << 20;
/// Members per join node: what a second walk over a shared tail may repeat.
const JOIN_WIDTH: usize = 16;

#[derive(Clone, Copy, Debug)]
struct SetNode {
    parent: SetIdx,
    /// Segment and flags, or [`BARRIER`].
    member: u32,
    /// The child that was made last; valid when it was made by the current segment.
    memo: SetIdx,
    /// What became of the run of equal flags that ends here.
    run: RunState,
    /// The oldest segment below, or this one.
    oldest: u32,
    /// The first node below that is not of the run of equal flags that ends here.
    end: SetIdx,
}

/// Whether a run was a source of edges: never, first for some segment, or often enough that there is a join node for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RunState(u32);

impl RunState {
    const UNUSED: RunState = RunState(0);
    const JOINED: u32 = 1 << 31;

    fn used_in(segment: u32) -> RunState {
        RunState(segment + 1)
    }

    fn joined(node: u32) -> RunState {
        assert!(node < RunState::JOINED, "a graph that is full does not grow");
        RunState(RunState::JOINED | node)
    }

    fn join(self) -> Option<u32> {
        (self.0 & RunState::JOINED != 0).then_some(self.0 & !RunState::JOINED)
    }
}

/// The part of a set whose members have the same flags and live in the same life of the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// The newest node of the run.
    pub top: SetIdx,
    /// Flags that all its members have.
    pub flags: u8,
    /// Whether the members belong to an earlier life of the address.
    pub stale: bool,
}

/// All sets.
#[derive(Debug)]
pub(crate) struct Sets {
    nodes: Vec<SetNode>,
    base: SetIdx,
    /// The nodes of sets with one member that got a second one.
    singles: FxHashMap<u32, SetIdx>,
    current: u32,
}

impl Sets {
    pub fn new() -> Sets {
        let mut nodes = large_list(NODES);
        nodes.push(SetNode { parent: EMPTY, member: BARRIER, memo: 0, run: RunState::UNUSED, oldest: u32::MAX, end: EMPTY });
        Sets { nodes, base: 1, singles: FxHashMap::default(), current: 0 }
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes held.
    pub fn memory(&self) -> u64 {
        (size_of_val(&self.nodes[..]) + self.singles.capacity() * size_of::<(u32, SetIdx)>()) as u64
    }

    /// `segment` is current from here on.
    pub fn begin_segment(&mut self, segment: u32) {
        self.base = self.nodes.len() as u32;
        self.current = segment;
    }

    /// Whether the newest member is the current segment.
    #[inline(always)]
    pub fn is_current(&self, set: SetIdx) -> bool {
        match single(set) {
            Some(member) => segment_of(member) == self.current,
            None => set >= self.base,
        }
    }

    /// The set with the current segment added.
    pub fn push(&mut self, set: SetIdx, segment: u32, flags: u8) -> SetIdx {
        debug_assert!(flags < 1 << FLAG_BITS && segment <= SEGMENT_MAX);
        let member = segment << FLAG_BITS | u32::from(flags);
        if set == EMPTY || set == SINGLE | member {
            return SINGLE | member;
        }
        let node = self.node(set);
        self.child(node, member)
    }

    /// The number of a set's node.
    fn node(&mut self, set: SetIdx) -> SetIdx {
        let Some(member) = single(set) else { return set };
        let nodes = &mut self.nodes;
        *self.singles.entry(member).or_insert_with(|| {
            push_large(nodes, SetNode { parent: EMPTY, member, memo: 0, run: RunState::UNUSED, oldest: segment_of(member), end: EMPTY });
            (nodes.len() - 1) as u32
        })
    }

    /// The set, all of whose members are now of an earlier life.
    pub fn barrier(&mut self, set: SetIdx) -> SetIdx {
        if set == EMPTY {
            return EMPTY;
        }
        let node = self.node(set);
        self.child(node, BARRIER)
    }

    /// Whether the only member is `segment` with these flags.
    #[inline]
    pub fn is_only(&self, set: SetIdx, segment: u32, flags: u8) -> bool {
        set == SINGLE | segment << FLAG_BITS | u32::from(flags)
    }

    fn child(&mut self, set: SetIdx, member: u32) -> SetIdx {
        let node = self.nodes[set as usize];
        if node.member == member {
            return set;
        }
        if node.memo >= self.base && self.nodes[node.memo as usize].member == member {
            return node.memo;
        }
        let new = self.nodes.len() as u32;
        assert!(new < SINGLE, "a graph that is full does not grow");
        let continues = member != BARRIER && node.member != BARRIER && flags_of(member) == flags_of(node.member);
        let end = if continues { node.end } else { set };
        push_large(&mut self.nodes, SetNode { parent: set, member, memo: 0, run: RunState::UNUSED, oldest: node.oldest, end });
        self.nodes[set as usize].memo = new;
        new
    }

    /// The runs of equal flags in the set, newest first, without the current segment.
    pub fn runs(&self, set: SetIdx, current: u32, mut each: impl FnMut(Run)) {
        if let Some(member) = single(set) {
            if segment_of(member) != current {
                each(Run { top: set, flags: flags_of(member), stale: false });
            }
            return;
        }
        let (mut at, mut stale) = (set, false);
        while at != EMPTY {
            let node = self.nodes[at as usize];
            if node.member == BARRIER {
                stale = true;
            } else if node.member >> FLAG_BITS != current {
                each(Run { top: at, flags: flags_of(node.member), stale });
                at = node.end;
                continue;
            }
            at = node.parent;
        }
    }

    /// A member that is older than `segment`, if there is one.
    pub fn find_older(&self, set: SetIdx, segment: u32) -> Option<u32> {
        if let Some(member) = single(set) {
            return Some(segment_of(member)).filter(|older| *older < segment);
        }
        let mut at = if self.nodes[set as usize].oldest < segment { set } else { EMPTY };
        while at != EMPTY {
            let node = self.nodes[at as usize];
            if node.member != BARRIER && node.member >> FLAG_BITS < segment {
                return Some(node.member >> FLAG_BITS);
            }
            at = node.parent;
        }
        None
    }

    /// The sources of edges that stand for the members of the run that ends at `top`: each by itself the first time, and joined
    /// from the second time on, so that edges stay linear in the number of members.
    pub fn sources(&mut self, top: SetIdx, make: impl FnMut(&[Source]) -> u32, mut each: impl FnMut(Source)) {
        if let Some(member) = single(top) {
            return each(Source::Segment(segment_of(member)));
        }
        let SetNode { end, run, .. } = self.nodes[top as usize];
        if run == RunState::UNUSED {
            self.nodes[top as usize].run = RunState::used_in(self.current);
        }
        let mut at = top;
        while at != end {
            let node = self.nodes[at as usize];
            // Members that join a run after it was used need not repeat those below. What the current segment used does not count: it
            // may ask again.
            let was_used = node.run != RunState::UNUSED && node.run != RunState::used_in(self.current);
            if was_used && node.parent != end {
                return each(Source::Node(self.join(at, make)));
            }
            each(Source::Segment(node.member >> FLAG_BITS));
            at = node.parent;
        }
    }

    /// The graph node that joins the run that ends at `top`. `make` makes a graph node out of segments and joins.
    fn join(&mut self, top: SetIdx, mut make: impl FnMut(&[Source]) -> u32) -> u32 {
        let end = self.nodes[top as usize].end;
        let mut path = Vec::new();
        let mut sources: Vec<Source> = Vec::with_capacity(JOIN_WIDTH + 1);
        let mut at = top;
        while at != end {
            let node = self.nodes[at as usize];
            if let Some(join) = node.run.join() {
                sources.push(Source::Node(join));
                break;
            }
            path.push(at);
            at = node.parent;
        }
        while let Some(at) = path.pop() {
            sources.push(Source::Segment(self.nodes[at as usize].member >> FLAG_BITS));
            if sources.len() > JOIN_WIDTH || path.is_empty() {
                let made = make(&sources);
                self.nodes[at as usize].run = RunState::joined(made);
                sources.clear();
                sources.push(Source::Node(made));
            }
        }
        match sources[..] {
            [Source::Node(node)] => node,
            _ => unreachable!("the walk ends with one join"),
        }
    }
}

/// The member of a set that has one only.
#[inline(always)]
fn single(set: SetIdx) -> Option<u32> {
    (set & SINGLE != 0).then_some(set & !SINGLE)
}

fn segment_of(member: u32) -> u32 {
    member >> FLAG_BITS
}

fn flags_of(member: u32) -> u8 {
    (member & ((1 << FLAG_BITS) - 1)) as u8
}

/// What a join node joins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// A segment.
    Segment(u32),
    /// A graph node, a join itself.
    Node(u32),
}
