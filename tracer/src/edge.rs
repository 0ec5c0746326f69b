//! Edges: what one segment may wait for, and what carries it. The two lists that everything else iterates over.

use crate::trace::Edge;

/// How two segments hang together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum EdgeKind {
    /// The parent's segment before a nested unit → the unit's first segment.
    Spawn = 0,
    /// Consecutive segments of one unit, and the last segment of one root → the first of the next.
    Order = 1,
    /// A member → the node of weight 0 that stands for many sources at once. Always kept; the class is on the way out.
    Join = 2,
    /// A unit's last segment → a segment that uses the returned value.
    Result = 3,
    /// Read after write.
    Raw = 4,
    /// Write after read.
    War = 5,
    /// Write after write.
    Waw = 6,
}

/// Every kind in the order of its number.
pub const KINDS: [EdgeKind; 7] = [
    EdgeKind::Spawn,
    EdgeKind::Order,
    EdgeKind::Join,
    EdgeKind::Result,
    EdgeKind::Raw,
    EdgeKind::War,
    EdgeKind::Waw,
];

impl EdgeKind {
    /// The kind of a number, or `None` when there is no such kind.
    pub fn from_number(number: u8) -> Option<EdgeKind> {
        KINDS.get(number as usize).copied()
    }

    /// The word for it in reports.
    pub fn name(self) -> &'static str {
        match self {
            EdgeKind::Spawn => "spawn",
            EdgeKind::Order => "order",
            EdgeKind::Join => "join",
            EdgeKind::Result => "result",
            EdgeKind::Raw => "raw",
            EdgeKind::War => "war",
            EdgeKind::Waw => "waw",
        }
    }

    /// Whether the edge is kept at every rung, because it is how the program is nested and not what it computes.
    pub fn is_structural(self) -> bool {
        matches!(self, EdgeKind::Spawn | EdgeKind::Order | EdgeKind::Join)
    }
}

/// What carries a dependence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum EdgeClass {
    /// Structural edges carry nothing.
    None = 0,
    /// The value that a unit returned.
    Result = 1,
    /// Carried locals and live-outs of loop units.
    Scalar = 2,
    /// An induction variable.
    Induction = 3,
    /// An integer reduction variable.
    Reduction = 4,
    /// The stack-pointer global.
    Sp = 5,
    /// Any other global.
    Global = 6,
    /// The C stack in linear memory.
    Stack = 7,
    /// A raw edge of the C stack into a read below the stack pointer with which its segment started: garbage, which only M1
    /// takes at face value. Reported as `stack`.
    StackDead = 8,
    /// Data and bss.
    Static = 9,
    /// Both ends inside allocator entry points, or two lives of one address.
    Allocator = 10,
    /// Everything else in linear memory.
    Heap = 11,
    /// Two read-modify-writes that commute.
    Delta = 12,
    /// Table elements and table growth.
    Table = 13,
    /// `memory.grow`/`memory.size`, dropped segments.
    Growth = 14,
    /// The order of output calls, the bytes they read and the bytes in which they report.
    Output = 15,
    /// The order of all other host calls.
    Host = 16,
}

/// Every class in the order of its number.
pub const CLASSES: [EdgeClass; 17] = [
    EdgeClass::None,
    EdgeClass::Result,
    EdgeClass::Scalar,
    EdgeClass::Induction,
    EdgeClass::Reduction,
    EdgeClass::Sp,
    EdgeClass::Global,
    EdgeClass::Stack,
    EdgeClass::StackDead,
    EdgeClass::Static,
    EdgeClass::Allocator,
    EdgeClass::Heap,
    EdgeClass::Delta,
    EdgeClass::Table,
    EdgeClass::Growth,
    EdgeClass::Output,
    EdgeClass::Host,
];

impl EdgeClass {
    /// The class of a number, or `None` when there is no such class.
    pub fn from_number(number: u8) -> Option<EdgeClass> {
        CLASSES.get(number as usize).copied()
    }

    /// The word for it in reports.
    pub fn name(self) -> &'static str {
        match self.reported() {
            EdgeClass::None => "none",
            EdgeClass::Result => "result",
            EdgeClass::Scalar => "scalar",
            EdgeClass::Induction => "induction",
            EdgeClass::Reduction => "reduction",
            EdgeClass::Sp => "sp",
            EdgeClass::Global => "global",
            EdgeClass::Stack | EdgeClass::StackDead => "stack",
            EdgeClass::Static => "static",
            EdgeClass::Allocator => "allocator",
            EdgeClass::Heap => "heap",
            EdgeClass::Delta => "delta",
            EdgeClass::Table => "table",
            EdgeClass::Growth => "growth",
            EdgeClass::Output => "output",
            EdgeClass::Host => "host",
        }
    }

    /// The class that reports count it under.
    pub fn reported(self) -> EdgeClass {
        if self == EdgeClass::StackDead { EdgeClass::Stack } else { self }
    }

    /// Whether edges of this class carry an address of linear memory as their object.
    pub fn has_address(self) -> bool {
        use EdgeClass::*;
        matches!(self, Stack | StackDead | Static | Allocator | Heap | Delta)
    }
}

/// Sorts edges by (from, kind, class) into `to` and keeps the first of equal ones in program order.
pub(crate) fn distinct(edges: &[Edge], keys: &mut Vec<u64>, to: &mut Vec<Edge>) {
    /// Bits of a key that hold an edge's number.
    const NUMBER: u32 = 24;
    let key = |e: &Edge| u64::from(e.from) << 32 | u64::from(e.kind as u8) << 29 | u64::from(e.class as u8) << NUMBER;
    const { assert!(KINDS.len() <= 8 && CLASSES.len() <= 32) };
    to.clear();
    if edges.len() >= 1 << NUMBER {
        to.extend_from_slice(edges);
        to.sort_by_key(|e| (e.from, e.kind, e.class));
        to.dedup_by_key(|e| (e.from, e.kind, e.class));
        return;
    }
    // Numbers are quicker to sort than edges.
    keys.clear();
    keys.extend((0..).zip(edges).map(|(number, e)| key(e) | number));
    keys.sort_unstable();
    keys.dedup_by_key(|key| *key >> NUMBER);
    to.extend(keys.iter().map(|key| edges[(*key & ((1 << NUMBER) - 1)) as usize]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lists_agree() {
        for (i, kind) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, i);
            assert_eq!(EdgeKind::from_number(i as u8), Some(*kind));
        }
        for (i, class) in CLASSES.iter().enumerate() {
            assert_eq!(*class as usize, i);
            assert_eq!(EdgeClass::from_number(i as u8), Some(*class));
        }
        assert_eq!(EdgeKind::from_number(KINDS.len() as u8), None);
        assert_eq!(EdgeClass::from_number(CLASSES.len() as u8), None);
    }

    #[test]
    fn dead_stack_reads_are_reported_as_stack() {
        assert_eq!(EdgeClass::StackDead.name(), "stack");
        assert_eq!(EdgeClass::StackDead.reported(), EdgeClass::Stack);
    }
}
