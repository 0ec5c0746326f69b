//! The shadow of a memory: sixteen bytes for every eight that were touched, so that the common access is one look.
//!
//! ```text
//! address ─► page (4 KiB of memory) ─► record: writer  readers  site  masks  flags     one writer, one reader set: inline
//!                                         ├─ pair ─────► pairs[site]                   one of each per four bytes
//!                                         └─ spilled ──► cells[site]                   anything else: a whole `Cell`
//! ```
//!
//! A record answers "has the current segment already written, or read, all of these bytes?" with two compares; then there is
//! nothing to do, because segments are strictly one after another and nobody else came between.

use std::ops::Range;

use crate::cell::{Cell, DeltaKey, Granule, Readers, STALE, Writer, class_of};
use crate::edge::EdgeKind;
use crate::hints::prefetch;
use crate::segments::{Access, Segments};
use crate::sets::{EMPTY, SetIdx};
use crate::trace::Sink;

/// Bytes of memory under one record of a page.
pub(crate) const CELL: u64 = 8;
const PAGE_SHIFT: u32 = 12;
const RECORDS: usize = 1 << (PAGE_SHIFT - 3);
/// In [`Record::wflags`]: the truth is `cells[site]`, and the record only remembers what the current segment did.
const SPILLED: u8 = 0x80;
/// In [`Record::wflags`]: the truth is `pairs[site]`.
const PAIR: u8 = 0x40;

/// Who wrote some bytes last and who has read them since, as long as that is one segment and one set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Record {
    writer: u32,
    readers: SetIdx,
    site: u32,
    wmask: u8,
    rmask: u8,
    wflags: u8,
    rflags: u8,
}

type Page = Box<[Record; RECORDS]>;

/// The shadow of one memory (or of one table, eight bytes an element).
#[derive(Default, Debug)]
pub(crate) struct Shadow {
    pages: Vec<Option<Page>>,
    pages_count: usize,
    pairs: Slab<[Record; 2]>,
    cells: Slab<Cell>,
}

/// Values with numbers that are used again.
#[derive(Default, Debug)]
struct Slab<T> {
    values: Vec<T>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.values[index as usize] = value;
                index
            }
            None => {
                self.values.push(value);
                (self.values.len() - 1) as u32
            }
        }
    }

    fn memory(&self) -> usize {
        self.values.capacity() * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }

    fn remove(&mut self, index: u32) -> T
    where
        T: Default,
    {
        self.free.push(index);
        std::mem::take(&mut self.values[index as usize])
    }
}

/// The bits of the bytes `from..from + len` of a cell.
#[inline(always)]
pub(crate) fn mask_of(from: u32, len: u32) -> u8 {
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
    fn entry(&self, address: u64) -> Option<&Record> {
        match self.pages.get((address >> PAGE_SHIFT) as usize) {
            Some(Some(page)) => Some(&page[(address >> 3) as usize % RECORDS]),
            _ => None,
        }
    }

    /// Bytes held.
    pub fn memory(&self) -> u64 {
        let pages = self.pages.capacity() * size_of::<Option<Page>>() + self.pages_count * size_of::<[Record; RECORDS]>();
        (pages + self.pairs.memory() + self.cells.memory()) as u64
    }

    /// Begins to fetch the record of an address into the cache.
    #[inline(always)]
    pub fn look_ahead(&self, address: u64) {
        if let Some(entry) = self.entry(address) {
            prefetch(entry);
        }
    }

    /// Once that record is there: what it points to.
    #[inline(always)]
    pub fn look_behind(&self, address: u64) {
        match self.entry(address) {
            Some(entry) if entry.wflags & SPILLED != 0 => prefetch(&self.cells.values[entry.site as usize]),
            Some(entry) if entry.wflags & PAIR != 0 => prefetch(&self.pairs.values[entry.site as usize]),
            _ => {}
        }
    }

    /// Whether the current segment has written a byte of the range.
    pub fn has_own<S: Sink>(&self, graph: &Segments<S>, range: Range<u64>) -> bool {
        let mut own = 0;
        for_cells(range, |cell, mask| own |= mask & self.own(graph, cell));
        own != 0
    }

    /// The bytes of a cell that the current segment has written.
    fn own<S: Sink>(&self, graph: &Segments<S>, cell: u64) -> u8 {
        let of = |r: &Record| if r.writer == graph.current() { r.wmask } else { 0 };
        match self.entry(cell) {
            None => 0,
            Some(entry) if entry.wflags & SPILLED != 0 => self.cells.values[entry.site as usize].own(graph),
            Some(entry) if entry.wflags & PAIR != 0 => self.pairs.values[entry.site as usize].iter().fold(0, |own, r| own | of(r)),
            Some(entry) => of(entry),
        }
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
            Some(entry) if entry.wflags & SPILLED != 0 => self.cells.values[entry.site as usize].clone(),
            Some(entry) if entry.wflags & PAIR != 0 => unpack(&self.pairs.values[entry.site as usize]),
            Some(entry) => unpack(&[*entry]),
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
            let entry = self.entry_mut(cell);
            if entry.covers_read(mask, graph, to.flags) {
                return;
            }
            let (kind, index) = (entry.wflags & (SPILLED | PAIR), entry.site);
            let done = match kind {
                0 => read(std::array::from_mut(entry), graph, granule, &to, mask),
                PAIR => read(&mut self.pairs.values[index as usize], graph, granule, &to, mask),
                _ => false,
            };
            if !done {
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
            let entry = self.entry_mut(cell);
            if entry.covers_write(mask, graph.current(), to.flags) {
                return;
            }
            let (kind, index) = (entry.wflags & (SPILLED | PAIR), entry.site);
            let done = match kind {
                0 => write(std::array::from_mut(entry), graph, granule, &to, mask),
                PAIR => self.write_pair(graph, granule, &to, cell, index, mask),
                _ => false,
            };
            if !done {
                self.with(graph, cell, |graph, state| state.write(graph, granule, &to, mask));
            }
        });
    }

    fn write_pair<S: Sink>(
        &mut self,
        graph: &mut Segments<S>,
        granule: Granule,
        to: &Access,
        cell: u64,
        index: u32,
        mask: u8,
    ) -> bool {
        let pair = &mut self.pairs.values[index as usize];
        if !write(pair, graph, granule, to, mask) {
            return false;
        }
        // The same write of both halves makes one record of them again.
        if mask == u8::MAX {
            let [low, high] = *pair;
            self.pairs.remove(index);
            *self.entry_mut(cell) = Record { wmask: low.wmask | high.wmask, ..low };
        }
        true
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
            if shadow.entry(cell).is_none_or(Record::is_over) {
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
        let mut state = if entry.wflags & SPILLED != 0 {
            let state = &mut self.cells.values[entry.site as usize];
            f(graph, state);
            if pack_pair(state).is_none() {
                *self.entry_mut(cell) = Record::remember(&self.cells.values[entry.site as usize], graph, entry.site);
                return;
            }
            self.cells.remove(entry.site)
        } else {
            let mut state = if entry.wflags & PAIR != 0 { unpack(&self.pairs.remove(entry.site)) } else { unpack(&[entry]) };
            f(graph, &mut state);
            state
        };
        let entry = match (pack_one(&state), pack_pair(&state)) {
            (Some(one), _) => one,
            (None, Some(pair)) => Record { site: self.pairs.insert(pair), wflags: PAIR, ..Record::default() },
            (None, None) => {
                let index = self.cells.insert(std::mem::take(&mut state));
                Record::remember(&self.cells.values[index as usize], graph, index)
            }
        };
        *self.entry_mut(cell) = entry;
    }

    #[inline]
    fn entry_mut(&mut self, cell: u64) -> &mut Record {
        let page = (cell >> PAGE_SHIFT) as usize;
        if page >= self.pages.len() {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| {
            self.pages_count += 1;
            Box::new([Record::default(); RECORDS])
        });
        &mut page[(cell >> 3) as usize % RECORDS]
    }
}

/// The bytes of the I-th of N records that share a cell.
const fn domain<const N: usize>(i: usize) -> u8 {
    match (N, i) {
        (1, _) => 0xff,
        (_, 0) => 0x0f,
        _ => 0xf0,
    }
}

/// `Cell::read` where the result are records again; says whether it was done.
#[inline]
fn read<S: Sink, const N: usize>(
    records: &mut [Record; N],
    graph: &mut Segments<S>,
    granule: Granule,
    to: &Access,
    mask: u8,
) -> bool {
    let current = graph.current();
    let own = records.iter().filter(|r| r.writer == current).fold(0, |own, r| own | r.wmask);
    let exposed = granule.exposed(mask, own);
    if exposed == 0 {
        return true;
    }
    // Readers of some of the bytes, but not of others, are another set.
    let alone = |r: &Record| graph.sets().is_only(r.readers, current, to.flags);
    for (i, r) in records.iter().enumerate() {
        let part = exposed & domain::<N>(i);
        if part != 0 && r.rmask != 0 && r.rmask != part && !alone(r) {
            return false;
        }
    }
    let wide = granule.expand(exposed);
    for r in records.iter().filter(|r| r.wmask & wide != 0) {
        let class = class_of(EdgeKind::Raw, r.wflags, false, to);
        graph.edge(r.writer, EdgeKind::Raw, class, r.site, &to.meeting(r.wmask & exposed));
    }
    for (i, r) in records.iter_mut().enumerate() {
        let part = exposed & domain::<N>(i);
        if part != 0 {
            let before = if r.rmask == 0 { EMPTY } else { r.readers };
            r.readers = graph.sets_mut().push(before, current, to.flags);
            r.rmask |= part;
            r.rflags = to.flags;
        }
    }
    true
}

/// `Cell::write` likewise.
#[inline]
fn write<S: Sink, const N: usize>(
    records: &mut [Record; N],
    graph: &mut Segments<S>,
    granule: Granule,
    to: &Access,
    mask: u8,
) -> bool {
    let current = graph.current();
    let same = |r: &Record| r.writer == current && r.wflags == to.flags;
    let parts = || (0..N).map(|i| mask & domain::<N>(i)).zip(records.iter()).filter(|(part, _)| *part != 0);
    if parts().all(|(part, r)| same(r) && part & !r.wmask == 0 && part & r.rmask == 0) {
        return true;
    }
    if parts().any(|(_, r)| r.wmask & !mask != 0 && !same(r)) {
        return false;
    }
    let wide = granule.expand(mask);
    for r in records.iter().filter(|r| r.wmask & wide != 0) {
        graph.edge(r.writer, EdgeKind::Waw, class_of(EdgeKind::Waw, r.wflags, false, to), r.site, to);
    }
    let mut before = EMPTY;
    for r in records.iter().filter(|r| r.rmask & wide != 0) {
        if std::mem::replace(&mut before, r.readers) != r.readers {
            graph.edges_from_set(r.readers, &[EdgeKind::War], 0, to, |kind, flags, stale| class_of(kind, flags, stale, to));
        }
    }
    for (i, r) in records.iter_mut().enumerate() {
        let part = mask & domain::<N>(i);
        if part != 0 {
            r.wmask = if same(r) { r.wmask | part } else { part };
            r.rmask &= !part;
            (r.writer, r.site, r.wflags) = (current, to.site, to.flags);
        }
    }
    true
}

fn unpack(records: &[Record]) -> Cell {
    let mut cell = Cell::default();
    for r in records {
        let writer = Writer { segment: r.writer, site: r.site, mask: r.wmask, flags: r.wflags };
        match cell.writers.last_mut().filter(|w| Writer { mask: r.wmask, ..**w } == writer) {
            Some(same) => same.mask |= r.wmask,
            None if r.wmask != 0 => cell.writers.push(writer),
            None => {}
        }
        match cell.readers.last_mut().filter(|o| o.set == r.readers) {
            Some(same) if r.rmask != 0 => same.mask |= r.rmask,
            None if r.rmask != 0 => cell.readers.push(Readers { set: r.readers, mask: r.rmask, flags: r.rflags }),
            _ => {}
        }
    }
    cell
}

/// The record of these bytes of a cell, if one can hold it.
fn pack(cell: &Cell, bytes: u8) -> Option<Record> {
    if !cell.deltas.is_empty() {
        return None;
    }
    let mut writers = cell.writers.iter().filter(|w| w.mask & bytes != 0);
    let mut readers = cell.readers.iter().filter(|r| r.mask & bytes != 0);
    let mut record = Record::default();
    if let Some(w) = writers.next() {
        (record.writer, record.site, record.wmask, record.wflags) = (w.segment, w.site, w.mask & bytes, w.flags);
    }
    if let Some(r) = readers.next() {
        (record.readers, record.rmask, record.rflags) = (r.set, r.mask & bytes, r.flags);
    }
    (writers.next().is_none() && readers.next().is_none()).then_some(record)
}

fn pack_one(cell: &Cell) -> Option<Record> {
    pack(cell, domain::<1>(0))
}

fn pack_pair(cell: &Cell) -> Option<[Record; 2]> {
    Some([pack(cell, domain::<2>(0))?, pack(cell, domain::<2>(1))?])
}

impl Record {
    #[inline(always)]
    fn covers_read<S: Sink>(&self, mask: u8, graph: &Segments<S>, flags: u8) -> bool {
        // What was written in an earlier life is looked at again: it may have been freed.
        (self.writer == graph.current() && mask & !self.wmask == 0 && self.wflags & STALE == 0)
            || (mask & !self.rmask == 0 && self.rflags == flags && graph.sets().is_current(self.readers))
    }

    #[inline(always)]
    fn covers_write(&self, mask: u8, current: u32, flags: u8) -> bool {
        self.writer == current && mask & !self.wmask == 0 && mask & self.rmask == 0 && self.wflags & !SPILLED == flags
    }

    /// Whether there is no life to end.
    fn is_over(&self) -> bool {
        self.wflags & (SPILLED | PAIR) == 0
            && (self.wmask == 0 || self.wflags & STALE != 0)
            && (self.rmask == 0 || self.rflags & STALE != 0)
    }

    /// What the fast checks need of a spilled cell.
    fn remember<S: Sink>(cell: &Cell, graph: &Segments<S>, index: u32) -> Record {
        let mut entry = Record { site: index, wflags: SPILLED, ..Record::default() };
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
    fn records_are_sixteen_bytes() {
        assert_eq!(size_of::<Record>(), 16);
    }

    #[test]
    fn cells_of_a_range() {
        let mut got = Vec::new();
        for_cells(6..17, |cell, mask| got.push((cell, mask)));
        assert_eq!(got, [(0, 0b1100_0000), (8, 0xff), (16, 0b1)]);
    }
}
