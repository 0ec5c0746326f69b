//! Eight bytes of memory, exactly: who wrote each byte last, who has read it since, which deltas lie on top.
//!
//! Records are kept per byte whatever the granule is; the granule only widens *which* bytes of the cell an access meets. That is
//! why a coarser granule only ever adds edges.
//!
//! | access | edges from | becomes |
//! |---|---|---|
//! | plain read, when exposed | raw from plain writers and all deltas | a reader |
//! | plain write | waw from plain writers and all deltas, war from readers | the plain writer; hides the rest |
//! | delta | raw and waw from plain writers, war from readers; of other families, likewise, from all deltas; of its own (class `delta`) from the newest | a delta |

use smallvec::SmallVec;

use crate::edge::{EdgeClass, EdgeKind};
use crate::segments::{Access, Segments};
use crate::sets::{EMPTY, SetIdx};
use crate::trace::Sink;

/// Made inside an allocator entry point.
pub(crate) const IN_ALLOCATOR: u8 = 1;
/// Made by an output call.
pub(crate) const OUTPUT: u8 = 2;
/// Made in an earlier life of the address.
pub(crate) const STALE: u8 = 4;

/// How far accesses meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Granule {
    /// Bytes.
    One,
    /// Four aligned bytes.
    Four,
    /// Eight aligned bytes.
    Eight,
}

impl Granule {
    /// The granule of this many bytes, if there is one.
    pub fn from_bytes(bytes: u32) -> Option<Granule> {
        match bytes {
            1 => Some(Granule::One),
            4 => Some(Granule::Four),
            8 => Some(Granule::Eight),
            _ => None,
        }
    }

    /// Its bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Granule::One => 1,
            Granule::Four => 4,
            Granule::Eight => 8,
        }
    }

    /// All bytes of the granules that `mask` touches.
    pub(crate) fn expand(self, mask: u8) -> u8 {
        let half = |half: u8| if mask & half == 0 { 0 } else { half };
        match self {
            Granule::One => mask,
            Granule::Four => half(0x0f) | half(0xf0),
            Granule::Eight => half(0xff),
        }
    }

    /// The part of a read that is exposed: its pieces, one per granule, that `own` does not cover.
    pub(crate) fn exposed(self, mask: u8, own: u8) -> u8 {
        mask & self.expand(mask & !own)
    }
}

/// What two deltas must share to commute: the operation and the bytes, or the operation and no byte at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeltaKey {
    /// The family (`Rmw` as a number).
    pub family: u8,
    /// The first byte's address.
    pub start: u64,
    /// Bytes.
    pub len: u32,
}

impl DeltaKey {
    fn commutes(&self, other: &DeltaKey) -> bool {
        let apart = self.start + u64::from(self.len) <= other.start || other.start + u64::from(other.len) <= self.start;
        self.family == other.family && (apart || (self.start == other.start && self.len == other.len))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Writer {
    pub segment: u32,
    pub site: u32,
    pub mask: u8,
    pub flags: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Readers {
    pub set: SetIdx,
    pub mask: u8,
    /// Flags of the newest reader; [`STALE`] when all of them are.
    pub flags: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Deltas {
    pub set: SetIdx,
    pub newest: u32,
    pub site: u32,
    pub mask: u8,
    pub stale: bool,
    pub key: DeltaKey,
}

/// The state of eight bytes. Writers' masks are disjoint, and so are readers'.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cell {
    pub writers: SmallVec<[Writer; 2]>,
    pub readers: SmallVec<[Readers; 4]>,
    pub deltas: SmallVec<[Deltas; 1]>,
}

/// The class of an edge whose earlier end has these flags.
pub(crate) fn class_of(kind: EdgeKind, from_flags: u8, stale: bool, to: &Access) -> EdgeClass {
    if (from_flags | to.flags) & OUTPUT != 0 {
        EdgeClass::Output
    } else if to.region == EdgeClass::Sp {
        EdgeClass::Sp
    } else if to.region == EdgeClass::Stack {
        if kind == EdgeKind::Raw && to.dead { EdgeClass::StackDead } else { EdgeClass::Stack }
    } else if stale || from_flags & STALE != 0 || from_flags & to.flags & IN_ALLOCATOR != 0 {
        EdgeClass::Allocator
    } else {
        to.region
    }
}

impl Cell {
    /// The bytes that the current segment has written.
    pub fn own<S: Sink>(&self, graph: &Segments<S>) -> u8 {
        self.writers.iter().filter(|w| w.segment == graph.current()).fold(0, |mask, w| mask | w.mask)
    }

    /// A plain read of the bytes in `mask`.
    pub fn read<S: Sink>(&mut self, graph: &mut Segments<S>, granule: Granule, to: &Access, mask: u8) {
        let exposed = granule.exposed(mask, self.own(graph));
        if exposed == 0 {
            return;
        }
        let wide = granule.expand(exposed);
        self.edges_from_writers(graph, &[EdgeKind::Raw], to, exposed, wide);
        for d in self.deltas.iter().filter(|d| d.mask & wide != 0) {
            d.edges(graph, &[EdgeKind::Raw], &to.meeting(d.mask & exposed));
        }
        self.add_reader(graph, exposed, to.flags);
    }

    /// A plain write of the bytes in `mask`.
    pub fn write<S: Sink>(&mut self, graph: &mut Segments<S>, granule: Granule, to: &Access, mask: u8) {
        if self.is_known_write(graph, to, mask) {
            return;
        }
        let wide = granule.expand(mask);
        self.edges_from_writers(graph, &[EdgeKind::Waw], to, mask, wide);
        self.edges_from_readers(graph, to, wide);
        for d in self.deltas.iter().filter(|d| d.mask & wide != 0) {
            d.edges(graph, &[EdgeKind::Waw], to);
        }
        self.forget(mask);
        self.add_writer(Writer { segment: graph.current(), site: to.site, mask, flags: to.flags });
    }

    /// Whether the segment has written all of the bytes in the same way, and nothing else has happened to them since.
    fn is_known_write<S: Sink>(&self, graph: &Segments<S>, to: &Access, mask: u8) -> bool {
        let own = self.writers.iter().filter(|w| w.segment == graph.current() && w.flags == to.flags).fold(0, |own, w| own | w.mask);
        mask & !own == 0 && self.readers.iter().all(|r| r.mask & mask == 0) && self.deltas.iter().all(|d| d.mask & mask == 0)
    }

    /// A confirmed delta of the bytes in `mask`, none of which the segment has written.
    pub fn delta<S: Sink>(&mut self, graph: &mut Segments<S>, granule: Granule, to: &Access, mask: u8, key: DeltaKey) {
        debug_assert_eq!(mask & self.own(graph), 0, "such a pair is an ordinary read and write");
        let wide = granule.expand(mask);
        self.edges_from_writers(graph, &[EdgeKind::Raw, EdgeKind::Waw], to, mask, wide);
        self.edges_from_readers(graph, to, wide);
        for d in self.deltas.iter().filter(|d| d.mask & wide != 0) {
            if !d.stale && d.key.commutes(&key) && to.flags & OUTPUT == 0 {
                for kind in [EdgeKind::Raw, EdgeKind::Waw] {
                    graph.edge(d.newest, kind, EdgeClass::Delta, d.site, to);
                }
            } else {
                d.edges(graph, &[EdgeKind::Raw, EdgeKind::Waw], &to.meeting(d.mask & mask));
            }
        }
        self.add_delta(graph, to, mask, key);
    }

    /// Makes what is known about the bytes in `mask` an earlier life of them, but for the writes in `keep`, which begin the new
    /// life; `keep_flags` is taken off those.
    pub fn end_life<S: Sink>(&mut self, graph: &mut Segments<S>, mask: u8, keep: u8, keep_flags: u8) {
        for mut w in std::mem::take(&mut self.writers) {
            let (stale, kept) = (w.mask & mask & !keep, w.mask & mask & keep);
            w.mask &= !mask;
            self.add_writer(w);
            self.add_writer(Writer { mask: stale, flags: w.flags | STALE, ..w });
            self.add_writer(Writer { mask: kept, flags: w.flags & !keep_flags, ..w });
        }
        for mut r in std::mem::take(&mut self.readers) {
            let stale = r.mask & mask;
            r.mask &= !mask;
            if stale != 0 {
                let set = graph.sets_mut().barrier(r.set);
                self.push_readers(Readers { set, mask: stale, flags: STALE });
            }
            if r.mask != 0 {
                self.push_readers(r);
            }
        }
        for mut d in std::mem::take(&mut self.deltas) {
            let stale = d.mask & mask;
            d.mask &= !mask;
            if stale != 0 {
                self.deltas.push(Deltas { mask: stale, stale: true, ..d });
            }
            if d.mask != 0 {
                self.deltas.push(d);
            }
        }
    }

    /// Forgets everything about the bytes in `mask`.
    pub fn forget(&mut self, mask: u8) {
        self.writers.retain(|w| {
            w.mask &= !mask;
            w.mask != 0
        });
        self.readers.retain(|r| {
            r.mask &= !mask;
            r.mask != 0
        });
        self.deltas.retain(|d| {
            d.mask &= !mask;
            d.mask != 0
        });
    }

    fn edges_from_writers<S: Sink>(&self, graph: &mut Segments<S>, kinds: &[EdgeKind], to: &Access, mask: u8, wide: u8) {
        for w in self.writers.iter().filter(|w| w.mask & wide != 0) {
            let to = &to.meeting(w.mask & mask);
            for &kind in kinds {
                graph.edge(w.segment, kind, class_of(kind, w.flags, false, to), w.site, to);
            }
        }
    }

    fn edges_from_readers<S: Sink>(&self, graph: &mut Segments<S>, to: &Access, wide: u8) {
        for r in self.readers.iter().filter(|r| r.mask & wide != 0) {
            graph.edges_from_set(r.set, &[EdgeKind::War], 0, to, |kind, flags, stale| class_of(kind, flags, stale, to));
        }
    }

    fn add_writer(&mut self, new: Writer) {
        if new.mask == 0 {
            return;
        }
        match self.writers.iter_mut().find(|w| w.segment == new.segment && w.flags == new.flags) {
            Some(w) => (w.mask, w.site) = (w.mask | new.mask, new.site),
            None => self.writers.push(new),
        }
    }

    fn add_reader<S: Sink>(&mut self, graph: &mut Segments<S>, mask: u8, flags: u8) {
        let current = graph.current();
        let mut rest = mask;
        for at in 0..self.readers.len() {
            let r = self.readers[at];
            let part = r.mask & mask;
            if part == 0 {
                continue;
            }
            rest &= !part;
            let new = Readers { set: graph.sets_mut().push(r.set, current, flags), mask: part, flags };
            if part == r.mask {
                self.readers[at] = new;
            } else {
                self.readers[at].mask &= !part;
                self.readers.push(new);
            }
        }
        if rest != 0 {
            let set = graph.sets_mut().push(EMPTY, current, flags);
            self.readers.push(Readers { set, mask: rest, flags });
        }
        self.merge_readers();
    }

    /// Bytes with the same readers share a record.
    fn merge_readers(&mut self) {
        let mut at = 1;
        while at < self.readers.len() {
            let r = self.readers[at];
            match self.readers[..at].iter_mut().find(|other| other.set == r.set) {
                Some(other) => {
                    other.mask |= r.mask;
                    self.readers.swap_remove(at);
                }
                None => at += 1,
            }
        }
    }

    fn push_readers(&mut self, new: Readers) {
        match self.readers.iter_mut().find(|r| r.set == new.set) {
            Some(r) => r.mask |= new.mask,
            None => self.readers.push(new),
        }
    }

    fn add_delta<S: Sink>(&mut self, graph: &mut Segments<S>, to: &Access, mask: u8, key: DeltaKey) {
        let current = graph.current();
        // A group that a plain write has partly hidden stays as it is: its members no longer stand for all its bytes.
        let open = self.deltas.iter_mut().find(|d| d.key == key && d.mask == mask && !d.stale);
        match open {
            Some(d) => {
                d.set = graph.sets_mut().push(d.set, current, to.flags);
                if d.newest != current {
                    (d.newest, d.site) = (current, to.site);
                }
            }
            None => {
                let set = graph.sets_mut().push(EMPTY, current, to.flags);
                self.deltas.push(Deltas { set, newest: current, site: to.site, mask, stale: false, key });
            }
        }
    }
}

impl Deltas {
    /// Edges from every member: they depend on order with whatever comes after.
    fn edges<S: Sink>(&self, graph: &mut Segments<S>, kinds: &[EdgeKind], to: &Access) {
        graph.edges_from_set(self.set, kinds, self.site, to, |kind, flags, stale| {
            class_of(kind, flags, stale || self.stale, to)
        });
    }
}

