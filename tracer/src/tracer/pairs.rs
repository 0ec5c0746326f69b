//! Pairs of a load and a store that may be a delta: loads wait here until their store comes, or something that makes them plain.

use std::ops::Range;

use worksp_engine::probe::{Probe, Rmw, SiteId};

use super::view::View;
use super::{Tracer, shadow_of};
use crate::cell::{Cell, DeltaKey};
use crate::shadow::{CELL, for_cells};
use crate::trace::Sink;

/// Loads of delta pairs that may wait for their stores at one time; the oldest is taken as an ordinary read beyond that.
const PENDING_MAX: usize = 8;

/// The load of a possible delta that has not met its store yet.
#[derive(Clone, Debug)]
pub(super) struct PendingLoad {
    mem: u32,
    range: Range<u64>,
    family: Rmw,
    site: SiteId,
    activation: u64,
    flags: u8,
    /// Who owned its first and its last cell.
    owners: [u32; 2],
    /// Its cells before the segment wrote other bytes of them, once it did.
    before: Vec<(u64, u8, Cell)>,
}

impl<S: Sink> Tracer<S> {
    /// The loads that wait are ordinary reads after all.
    pub(super) fn flush_pending(&mut self) {
        while !self.pending.is_empty() {
            self.flush_oldest();
        }
    }

    fn take_pending(&mut self, at: usize) -> PendingLoad {
        let load = self.pending.remove(at);
        self.pending_cells = self.pending.iter().fold(0, |bits, load| bits | bits_of(&load.range));
        load
    }

    fn flush_oldest(&mut self) {
        self.flush_at(0);
    }

    /// The waiting load at this index is an ordinary read, at the time at which it was made.
    fn flush_at(&mut self, at: usize) {
        let PendingLoad { mem, range, site, flags, owners, before, .. } = self.take_pending(at);
        let (_, graph, view, _) = self.view(site, mem, Some(flags));
        let view = View { owners: Some((range.start, owners)), ..view };
        for (cell, mask, mut state) in before {
            state.read(graph, view.granule, &view.read_access(cell, mask), mask);
        }
        self.read_owned(site, mem, range, Some(flags), Some(owners));
    }

    /// Some bytes are about to be written. Loads of them wait no longer. A load of other bytes of the same cells waits on, and
    /// remembers what the write hides from it.
    pub(super) fn flush_written(&mut self, mem: u32, range: &Range<u64>, hides: bool) {
        let is_small = range.end - range.start <= CELL;
        if self.pending.is_empty() || (is_small && self.pending_cells & bits_of(range) == 0) {
            return;
        }
        let overlaps = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        while let Some(at) = self.pending.iter().position(|l| l.mem == mem && overlaps(&l.range, range)) {
            self.flush_at(at);
        }
        let cells = range.start & !(CELL - 1)..range.end.next_multiple_of(CELL);
        let shadow = shadow_of(&mut self.memories, mem);
        for load in &mut self.pending {
            if hides && load.mem == mem && load.before.is_empty() && overlaps(&load.range, &cells) {
                load.before = shadow.snapshot(load.range.clone());
            }
        }
    }

    /// A load and a store that may be a delta, with nothing between them: the same as one after the other.
    pub(crate) fn pair(&mut self, load: SiteId, store: SiteId, mem: u32, addr: u64, len: u32, family: Rmw) {
        let range = addr..addr + u64::from(len);
        if shadow_of(&mut self.memories, mem).has_own(&self.graph, range.clone()) {
            self.read_memory(load, mem, range.clone(), None);
            return self.store(store, mem, addr, len, Rmw::Plain);
        }
        if self.pending.len() >= PENDING_MAX {
            self.flush_oldest();
        }
        self.delta(store, mem, range, family);
    }

    pub(super) fn pend(&mut self, site: SiteId, mem: u32, range: Range<u64>, family: Rmw) {
        // What the segment wrote itself it may read and write as it likes.
        if shadow_of(&mut self.memories, mem).has_own(&self.graph, range.clone()) {
            return self.read_memory(site, mem, range, None);
        }
        if self.pending.len() >= PENDING_MAX {
            self.flush_oldest();
        }
        let flags = self.flags_at(range.start);
        let activation = self.activation_ids.last().copied().unwrap_or(0);
        self.pending_cells |= bits_of(&range);
        let (_, _, view, _) = self.view(site, mem, Some(flags));
        let mut owners = [0; 2];
        for_cells(range.clone(), |cell, mask| owners[usize::from(cell > range.start)] = view.read_access(cell, mask).owned_since);
        self.pending.push(PendingLoad { mem, range, family, site, activation, flags, owners, before: Vec::new() });
    }

    /// Whether the store completes the pair that a waiting load began; the load then waits no longer.
    pub(super) fn take_pair(&mut self, mem: u32, range: &Range<u64>, family: Rmw) -> bool {
        let activation = self.activation_ids.last().copied().unwrap_or(0);
        let flags = self.flags_at(range.start);
        let found = self.pending.iter().rposition(|load| {
            load.mem == mem
                && load.range == *range
                && load.family == family
                && load.activation == activation
                && load.flags == flags
        });
        found.map(|at| self.take_pending(at)).is_some()
    }

    pub(super) fn delta(&mut self, site: SiteId, mem: u32, range: Range<u64>, family: Rmw) {
        self.flush_written(mem, &range, false);
        if self.allocator.is_inside() && mem == 0 {
            self.allocator.wrote(range.clone());
        }
        let key = DeltaKey { family: family as u8, start: range.start, len: (range.end - range.start) as u32 };
        let (shadow, graph, view, _) = self.view(site, mem, None);
        shadow.delta(graph, view.granule, key, |cell, mask| view.read_access(cell, mask));
    }
}

/// The bits of [`Tracer::pending_cells`] of a load.
fn bits_of(range: &Range<u64>) -> u64 {
    1 << (range.start / CELL % 64) | 1 << ((range.end - 1) / CELL % 64)
}
