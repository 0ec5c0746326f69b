//! The shadow of a memory: sixteen bytes for every eight that were touched, so that the common access is one look.
//!
//! ```text
//! address ─► page (4 KiB of memory) ─► entry: writer  readers  site  masks  flags      one writer, one reader set: inline
//!                                         └─ spilled ─► cells[site]                    anything else: a whole `Cell`
//! ```
//!
//! An entry answers "has the current segment already written, or read, all of these bytes?" with two compares, spilled or not;
//! then there is nothing to do, because segments are strictly one after another and nobody else came between.

use std::ops::Range;

use crate::cell::{Cell, DeltaKey, Granule, Readers, STALE, Writer, class_of};
use crate::edge::EdgeKind;
use crate::segments::{Access, Segments};
use crate::sets::{EMPTY, SetIdx};
use crate::trace::Sink;

/// Bytes of memory under one entry.
pub(crate) const CELL: u64 = 8;
const PAGE_SHIFT: u32 = 12;
const ENTRIES: usize = 1 << (PAGE_SHIFT - 3);
/// In [`Entry::wflags`]: the truth is `cells[site]`, and the entry only remembers what the current segment did.
const SPILLED: u8 = 0x80;

#[derive(Clone, Copy, Default, Debug)]
struct Entry {
    writer: u32,
    readers: SetIdx,
    site: u32,
    wmask: u8,
    rmask: u8,
    wflags: u8,
    rflags: u8,
}

type Page = Box<[Entry; ENTRIES]>;

/// The shadow of one memory (or of one table, eight bytes an element).
#[derive(Default, Debug)]
pub(crate) struct Shadow {
    pages: Vec<Option<Page>>,
    cells: Vec<Cell>,
    free: Vec<u32>,
}

/// The bits of the bytes `from..from + len` of a cell.
#[inline(always)]
fn mask_of(from: u32, len: u32) -> u8 {
    (((1u32 << len) - 1) << from) as u8
}

/// Calls `each(cell address, mask)` for every cell that `range` touches.
pub(crate) fn for_cells(range: Range<u64>, mut each: impl FnMut(u64, u8)) {
    let mut at = range.start;
    while at < range.end {
        let cell = at & !(CELL - 1);
        let end = range.end.min(cell.saturating_add(CELL));
        each(cell, mask_of((at - cell) as u32, (end - at) as u32));
        at = end;
    }
}

impl Shadow {
    #[inline(always)]
    fn entry(&self, address: u64) -> Option<&Entry> {
        match self.pages.get((address >> PAGE_SHIFT) as usize) {
            Some(Some(page)) => Some(&page[(address >> 3) as usize % ENTRIES]),
            _ => None,
        }
    }

    /// Whether a load changes nothing: the current segment has already written, or already read since, all of its bytes.
    #[inline(always)]
    pub fn load_is_known(&self, address: u64, len: u32, current: u32, sets_base: SetIdx, flags: u8) -> bool {
        let from = (address % CELL) as u32;
        if from + len > CELL as u32 {
            return false;
        }
        let Some(entry) = self.entry(address) else { return false };
        entry.covers_read(mask_of(from, len), current, sets_base, flags)
    }

    /// Whether a store changes nothing: the current segment has already written all of its bytes in the same way.
    #[inline(always)]
    pub fn store_is_known(&self, address: u64, len: u32, current: u32, flags: u8) -> bool {
        let from = (address % CELL) as u32;
        if from + len > CELL as u32 {
            return false;
        }
        let Some(entry) = self.entry(address) else { return false };
        entry.covers_write(mask_of(from, len), current, flags)
    }

    /// Whether the current segment has written a byte of the range.
    pub fn has_own<S: Sink>(&self, graph: &Segments<S>, range: Range<u64>) -> bool {
        let mut own = 0;
        for_cells(range, |cell, mask| own |= mask & self.state(cell).own(graph));
        own != 0
    }

    /// The cells of a range as they are now, with the part of them that is in the range.
    pub fn snapshot(&self, range: Range<u64>) -> Vec<(u64, u8, Cell)> {
        let mut cells = Vec::new();
        for_cells(range, |cell, mask| cells.push((cell, mask, self.state(cell))));
        cells
    }

    fn state(&self, cell: u64) -> Cell {
        match self.entry(cell) {
            None => Cell::default(),
            Some(entry) if entry.wflags & SPILLED != 0 => self.cells[entry.site as usize].clone(),
            Some(entry) => entry.unpack(),
        }
    }

    /// A plain read of a range; `access` says what it brings at a cell.
    pub fn read<S: Sink>(
        &mut self,
        graph: &mut Segments<S>,
        granule: Granule,
        range: Range<u64>,
        mut access: impl FnMut(u64, u8) -> Access,
    ) {
        for_cells(range, |cell, mask| {
            let to = access(cell, mask);
            if !self.entry_mut(cell).read(graph, granule, &to, mask) {
                self.with(graph, cell, |graph, state| state.read(graph, granule, &to, mask));
            }
        });
    }

    /// A plain write of a range.
    pub fn write<S: Sink>(
        &mut self,
        graph: &mut Segments<S>,
        granule: Granule,
        range: Range<u64>,
        mut access: impl FnMut(u64, u8) -> Access,
    ) {
        for_cells(range, |cell, mask| {
            let to = access(cell, mask);
            if !self.entry_mut(cell).write(graph, granule, &to, mask) {
                self.with(graph, cell, |graph, state| state.write(graph, granule, &to, mask));
            }
        });
    }

    /// A confirmed delta of a range.
    pub fn delta<S: Sink>(
        &mut self,
        graph: &mut Segments<S>,
        granule: Granule,
        key: DeltaKey,
        mut access: impl FnMut(u64, u8) -> Access,
    ) {
        for_cells(key.start..key.start + u64::from(key.len), |cell, mask| {
            let to = access(cell, mask);
            self.with(graph, cell, |graph, state| state.delta(graph, granule, &to, mask, key));
        });
    }

    /// Ends the life of a range, where it was ever touched; see [`Cell::end_life`]. `keep` says which bytes of a cell stay.
    pub fn end_life<S: Sink>(
        &mut self,
        graph: &mut Segments<S>,
        range: Range<u64>,
        keep_flags: u8,
        mut keep: impl FnMut(u64) -> u8,
    ) {
        self.for_touched(range, |shadow, cell, mask| {
            if shadow.entry(cell).is_none_or(Entry::is_over) {
                return;
            }
            let kept = keep(cell);
            shadow.with(graph, cell, |graph, state| state.end_life(graph, mask, kept, keep_flags));
        });
    }

    /// Forgets a range: somebody outside of the run wrote it.
    pub fn forget<S: Sink>(&mut self, graph: &mut Segments<S>, range: Range<u64>) {
        self.for_touched(range, |shadow, cell, mask| shadow.with(graph, cell, |_, state| state.forget(mask)));
    }

    /// Calls `each` for the cells of a range whose page exists.
    fn for_touched(&mut self, range: Range<u64>, mut each: impl FnMut(&mut Shadow, u64, u8)) {
        let mut at = range.start;
        while at < range.end {
            let page = (at >> PAGE_SHIFT) as usize;
            let end = range.end.min((page as u64 + 1) << PAGE_SHIFT);
            if matches!(self.pages.get(page), Some(Some(_))) {
                for_cells(at..end, |cell, mask| each(self, cell, mask));
            }
            at = end;
        }
    }

    /// Runs `f` on the state of a cell and stores it back in the smallest form that holds it.
    fn with<S: Sink>(&mut self, graph: &mut Segments<S>, cell: u64, f: impl FnOnce(&mut Segments<S>, &mut Cell)) {
        let entry = *self.entry_mut(cell);
        if entry.wflags & SPILLED != 0 {
            let state = &mut self.cells[entry.site as usize];
            f(graph, state);
            let entry = match Entry::pack(state) {
                Some(inline) => {
                    *state = Cell::default();
                    self.free.push(entry.site);
                    inline
                }
                None => Entry::remember(state, graph, entry.site),
            };
            *self.entry_mut(cell) = entry;
            return;
        }
        let mut state = entry.unpack();
        f(graph, &mut state);
        let entry = match Entry::pack(&state) {
            Some(inline) => inline,
            None => {
                let index = self.free.pop().unwrap_or_else(|| {
                    self.cells.push(Cell::default());
                    (self.cells.len() - 1) as u32
                });
                let entry = Entry::remember(&state, graph, index);
                self.cells[index as usize] = state;
                entry
            }
        };
        *self.entry_mut(cell) = entry;
    }

    #[inline]
    fn entry_mut(&mut self, cell: u64) -> &mut Entry {
        let page = (cell >> PAGE_SHIFT) as usize;
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new([Entry::default(); ENTRIES]));
        &mut page[(cell >> 3) as usize % ENTRIES]
    }
}

impl Entry {
    #[inline(always)]
    fn covers_read(&self, mask: u8, current: u32, sets_base: SetIdx, flags: u8) -> bool {
        // What was written in an earlier life is looked at again: it may have been freed.
        (self.writer == current && mask & !self.wmask == 0 && self.wflags & STALE == 0)
            || (self.readers >= sets_base && mask & !self.rmask == 0 && self.rflags == flags)
    }

    #[inline(always)]
    fn covers_write(&self, mask: u8, current: u32, flags: u8) -> bool {
        self.writer == current && mask & !self.wmask == 0 && mask & self.rmask == 0 && self.wflags & !SPILLED == flags
    }

    /// `Cell::read` where the result is an entry again; says whether it was.
    fn read<S: Sink>(&mut self, graph: &mut Segments<S>, granule: Granule, to: &Access, mask: u8) -> bool {
        if self.covers_read(mask, graph.current(), graph.sets().base(), to.flags) {
            return true;
        }
        if self.wflags & SPILLED != 0 {
            return false;
        }
        let own = if self.writer == graph.current() { self.wmask } else { 0 };
        let exposed = granule.exposed(mask, own);
        if exposed == 0 {
            return true;
        }
        // Readers of some of the bytes, but not of others, are another set.
        let is_first = self.rmask == 0;
        let alone = || graph.sets().is_only(self.readers, graph.current(), to.flags);
        if !is_first && self.rmask != exposed && !alone() {
            return false;
        }
        if self.wmask & granule.expand(exposed) != 0 {
            let class = class_of(EdgeKind::Raw, self.wflags, false, to);
            graph.edge(self.writer, EdgeKind::Raw, class, self.site, &to.meeting(self.wmask & exposed));
        }
        let before = if is_first { EMPTY } else { self.readers };
        let current = graph.current();
        self.readers = graph.sets_mut().push(before, current, to.flags);
        self.rmask |= exposed;
        self.rflags = to.flags;
        true
    }

    /// `Cell::write` likewise.
    fn write<S: Sink>(&mut self, graph: &mut Segments<S>, granule: Granule, to: &Access, mask: u8) -> bool {
        let current = graph.current();
        if self.covers_write(mask, current, to.flags) {
            return true;
        }
        let same = self.writer == current && self.wflags == to.flags;
        if self.wflags & SPILLED != 0 || (self.wmask & !mask != 0 && !same) {
            return false;
        }
        let wide = granule.expand(mask);
        if self.wmask & wide != 0 {
            graph.edge(self.writer, EdgeKind::Waw, class_of(EdgeKind::Waw, self.wflags, false, to), self.site, to);
        }
        if self.rmask & wide != 0 {
            graph.edges_from_set(self.readers, &[EdgeKind::War], 0, to, |kind, flags, stale| class_of(kind, flags, stale, to));
        }
        self.rmask &= !mask;
        self.wmask = if same { self.wmask | mask } else { mask };
        (self.writer, self.site, self.wflags) = (current, to.site, to.flags);
        true
    }

    /// Whether there is no life to end.
    fn is_over(&self) -> bool {
        self.wflags & SPILLED == 0
            && (self.wmask == 0 || self.wflags & STALE != 0)
            && (self.rmask == 0 || self.rflags & STALE != 0)
    }

    fn unpack(&self) -> Cell {
        let mut cell = Cell::default();
        if self.wmask != 0 {
            cell.writers.push(Writer { segment: self.writer, site: self.site, mask: self.wmask, flags: self.wflags });
        }
        if self.rmask != 0 {
            cell.readers.push(Readers { set: self.readers, mask: self.rmask, flags: self.rflags });
        }
        cell
    }

    fn pack(cell: &Cell) -> Option<Entry> {
        if cell.writers.len() > 1 || cell.readers.len() > 1 || !cell.deltas.is_empty() {
            return None;
        }
        let mut entry = Entry::default();
        if let Some(w) = cell.writers.first() {
            (entry.writer, entry.site, entry.wmask, entry.wflags) = (w.segment, w.site, w.mask, w.flags);
        }
        if let Some(r) = cell.readers.first() {
            (entry.readers, entry.rmask, entry.rflags) = (r.set, r.mask, r.flags);
        }
        Some(entry)
    }

    /// What the fast checks need of a spilled cell.
    fn remember<S: Sink>(cell: &Cell, graph: &Segments<S>, index: u32) -> Entry {
        let mut entry = Entry { site: index, wflags: SPILLED, ..Entry::default() };
        let mut own_reads = cell.readers.iter().filter(|r| graph.sets().is_current(r.set));
        if let Some(r) = own_reads.next() {
            (entry.readers, entry.rmask, entry.rflags) = (r.set, r.mask, r.flags);
        }
        if own_reads.next().is_none()
            && let Some(w) = cell.writers.iter().find(|w| w.segment == graph.current())
        {
            (entry.writer, entry.wmask, entry.wflags) = (w.segment, w.mask, w.flags | SPILLED);
        }
        entry
    }
}

/// A cell whose accesses all meet, outside of linear memory: a global, a growth counter.
pub(crate) fn read_single<S: Sink>(cell: &mut Cell, graph: &mut Segments<S>, to: &Access) {
    let is_own = matches!(cell.writers[..], [w] if w.segment == graph.current());
    let is_known = matches!(cell.readers[..], [r] if graph.sets().is_current(r.set) && r.flags == to.flags);
    if is_own || is_known {
        return;
    }
    cell.read(graph, Granule::Eight, to, 1);
}

/// Likewise a write.
pub(crate) fn write_single<S: Sink>(cell: &mut Cell, graph: &mut Segments<S>, to: &Access) {
    let is_own = matches!(cell.writers[..], [w] if w.segment == graph.current() && w.flags == to.flags);
    if is_own && cell.readers.is_empty() {
        return;
    }
    cell.write(graph, Granule::Eight, to, 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sixteen_bytes() {
        assert_eq!(size_of::<Entry>(), 16);
    }

    #[test]
    fn cells_of_a_range() {
        let mut got = Vec::new();
        for_cells(6..17, |cell, mask| got.push((cell, mask)));
        assert_eq!(got, [(0, 0b1100_0000), (8, 0xff), (16, 0b1)]);
    }
}
