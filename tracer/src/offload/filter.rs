//! What the open segment is known to have done already: such an access changes nothing and need not be sent.
//!
//! Everything here is a cache: an entry that was pushed out only means that the tracer gets an event which it then ignores itself.
//! An *epoch* ends wherever the tracer may cut a segment, or change what it knows of an address otherwise (an allocator entry
//! point, an action of the host).

use std::ops::Range;

use worksp_engine::probe::{LocalRole, Rmw};

use crate::shadow::{CELL, mask_of};

/// Cells of linear memory that are remembered: 256 KiB, so that they stay in a second-level cache.
const CELLS: usize = 1 << 14;
/// Cells that are forgotten one by one.
const FORGET_MAX: u64 = 1 << 8;
const ELEMENTS: usize = 1 << 6;
/// Locals that are remembered in an activation.
const LOCALS: u32 = 128;
/// In the keys of cells, an epoch's distance from the one before.
const KEYS: u64 = 1 << 32;
/// No key: with 61 bits of a cell's number, sums stay below 2^64 and never lead back to an earlier epoch.
const KEY_MAX: u64 = 1 << 63;

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Cell {
    /// The epoch's first key, plus the cell's number.
    key: u64,
    read: u8,
    written: u8,
    /// The bytes of the delta that was made last, and its family.
    delta: u8,
    family: u8,
}

/// What is known of the carried locals of one activation: two bits for each of the first [`LOCALS`].
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Locals {
    epoch: u64,
    /// Reading it plainly changes nothing: the segment has read it so, or written it plainly.
    read: [u64; 2],
    /// Nor does any other access: the segment has written it plainly.
    written: [u64; 2],
}

impl Locals {
    /// Those of an activation of which nothing is known.
    pub(super) const UNKNOWN: Locals = Locals { epoch: 0, read: [0; 2], written: [0; 2] };
}

#[inline(always)]
fn has_local(set: &[u64; 2], local: u32) -> bool {
    set[local as usize / 64 % 2] >> (local % 64) & 1 != 0
}

#[inline(always)]
fn place_of_cell(addr: u64) -> usize {
    (addr / CELL) as usize % CELLS
}

/// Whether an access can be remembered: it touches one cell, whose number fits into a key.
#[inline(always)]
fn has_key(addr: u64, len: u32) -> bool {
    addr % CELL + u64::from(len) <= CELL && addr / CELL <= u64::from(u32::MAX)
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Filter {
    epoch: u64,
    /// The first key of cells in this epoch.
    first_key: u64,
    cells: Box<[Cell; CELLS]>,
    /// Epoch, table and element plus one.
    elements: [(u64, u32, u64); ELEMENTS],
    /// By global: the epochs in which it was read, and written, last.
    globals: Vec<[u64; 2]>,
}

impl Filter {
    pub(super) fn new() -> Filter {
        Filter {
            epoch: 1,
            first_key: KEYS,
            cells: Box::new([Cell::default(); CELLS]),
            elements: [(0, 0, 0); ELEMENTS],
            globals: Vec::new(),
        }
    }

    /// Nothing is known any more.
    #[inline(always)]
    pub(super) fn next_epoch(&mut self) {
        self.epoch += 1;
        self.first_key += KEYS;
        if self.first_key == KEY_MAX {
            self.forget_cells();
        }
    }

    /// Keys begin anew.
    #[cold]
    fn forget_cells(&mut self) {
        self.first_key = KEYS;
        self.cells.fill(Cell::default());
    }

    /// The key of an address's cell.
    #[inline(always)]
    fn cell_key(&self, addr: u64) -> u64 {
        self.first_key + addr / CELL
    }

    /// What is known of the cell in which an access to memory 0 begins, and the mask of the access's bytes. The bits of an access that
    /// goes on in the next cell do not fit into those of one.
    #[inline(always)]
    fn known(&self, addr: u64, len: u32) -> (Cell, u32) {
        let cell = &self.cells[place_of_cell(addr)];
        let mask = ((1 << len) - 1) << (addr % CELL);
        (if cell.key == self.cell_key(addr) { *cell } else { Cell::default() }, mask)
    }

    /// Whether a load of memory 0 changes nothing: the segment has written all of its bytes, or, in a plain load, has read them and made
    /// no delta in their cell since.
    #[inline(always)]
    pub(super) fn knows_load(&self, addr: u64, len: u32, plain: bool) -> bool {
        let (cell, mask) = self.known(addr, len);
        mask & !u32::from(cell.written) == 0 || (plain && mask & !u32::from(cell.read) == 0 && cell.delta == 0)
    }

    /// Whether a store to memory 0 changes nothing: the segment has written all of its bytes, and has not read a neighbour in the
    /// same granule since that made them count as read.
    #[inline(always)]
    pub(super) fn knows_store(&self, addr: u64, len: u32) -> bool {
        let (cell, mask) = self.known(addr, len);
        mask & !u32::from(cell.written) == 0 && mask & u32::from(cell.read) == 0
    }

    /// A load of memory 0 that may change something.
    #[inline(always)]
    pub(super) fn load(&mut self, addr: u64, len: u32, plain: bool) {
        if let Some((cell, mask)) = self.remembered(addr, len, plain) {
            cell.read |= mask;
            // What the segment wrote itself, unknown to us, would now count as read: see `delta`.
            cell.delta = 0;
        }
    }

    /// A store to memory 0 that may change something.
    #[inline(always)]
    pub(super) fn store(&mut self, addr: u64, len: u32, plain: bool) {
        if let Some((cell, mask)) = self.remembered(addr, len, plain) {
            cell.read &= !mask;
            cell.written |= mask;
            if cell.delta & mask != 0 {
                cell.delta = 0;
            }
        }
    }

    /// Whether a delta of memory 0 changes nothing: the segment has made the same one.
    #[inline(always)]
    pub(super) fn knows_delta(&self, addr: u64, len: u32, family: Rmw) -> bool {
        let cell = self.cell(addr);
        let is_same = has_key(addr, len) && (cell.delta, cell.family) == (mask_of((addr % CELL) as u32, len), family as u8);
        is_same && cell.key == self.cell_key(addr)
    }

    /// What is known of a cell; for [`Filter::delta`].
    #[inline(always)]
    pub(super) fn cell(&self, addr: u64) -> Cell {
        self.cells[place_of_cell(addr)]
    }

    /// A delta of memory 0 was made of a load and a store with nothing between them. `before` is what was known before the load. It
    /// stays true: a delta hides nothing.
    pub(super) fn delta(&mut self, addr: u64, len: u32, family: Rmw, before: Cell) {
        if !has_key(addr, len) {
            return;
        }
        let (key, delta) = (self.cell_key(addr), mask_of((addr % CELL) as u32, len));
        let before = if before.key == key { before } else { Cell { key, ..Cell::default() } };
        // What the segment wrote itself it may read and write as it likes: there was no delta.
        if before.written & delta == 0 {
            // The next load here is sent, and ends what is known of the delta: if the segment had written the cell in a way that is not
            // remembered, this was no delta but a write, and the one after that load is the write that edges name.
            self.cells[place_of_cell(addr)] = Cell { delta, family: family as u8, ..before };
        }
    }

    /// The entry of a plain access to one cell, made its own if it was another's, and the mask of its bytes. Any other access (two
    /// cells, or what may become a delta) is not remembered, and what touches its cells next is sent.
    #[inline(always)]
    fn remembered(&mut self, addr: u64, len: u32, plain: bool) -> Option<(&mut Cell, u8)> {
        if !plain || !has_key(addr, len) {
            self.forget(addr..addr + u64::from(len));
            return None;
        }
        let key = self.cell_key(addr);
        let cell = &mut self.cells[place_of_cell(addr)];
        if cell.key != key {
            *cell = Cell { key, ..Cell::default() };
        }
        Some((cell, mask_of((addr % CELL) as u32, len)))
    }

    /// Something else happens to the cells of this range, which is not empty: whatever touches them next is sent.
    pub(super) fn forget(&mut self, range: Range<u64>) {
        self.forget_where(range, |_| true);
    }

    /// The bytes of this range, which is not empty, get another owner: what was read before is read anew. Nobody else's are those that the
    /// segment has written and that nothing of an earlier segment is read from.
    pub(super) fn forget_reads(&mut self, range: Range<u64>) {
        self.forget_where(range, |cell| cell.read | cell.delta != 0);
    }

    #[inline(always)]
    fn forget_where(&mut self, range: Range<u64>, wanted: impl Fn(&Cell) -> bool) {
        let (first, last) = (range.start / CELL, (range.end - 1) / CELL);
        if last - first >= FORGET_MAX {
            return self.next_epoch();
        }
        for number in first..=last {
            let cell = &mut self.cells[place_of_cell(number * CELL)];
            if wanted(cell) {
                *cell = Cell::default();
            }
        }
    }

    /// Whether reading an element of a table changes nothing.
    pub(super) fn element(&mut self, table: u32, index: u64) -> bool {
        let entry = &mut self.elements[index as usize % ELEMENTS];
        let this = (self.epoch, table, index + 1);
        std::mem::replace(entry, this) == this
    }

    /// Whether reading a global changes nothing.
    pub(super) fn global_get(&mut self, global: u32) -> bool {
        let epoch = self.epoch;
        std::mem::replace(&mut self.global(global)[0], epoch) == epoch
    }

    /// Whether writing a global changes nothing, but for its value.
    pub(super) fn global_set(&mut self, global: u32) -> bool {
        let epoch = self.epoch;
        std::mem::replace(self.global(global), [epoch; 2])[1] == epoch
    }

    fn global(&mut self, global: u32) -> &mut [u64; 2] {
        let global = global as usize;
        if global >= self.globals.len() {
            self.globals.resize(global + 1, [0; 2]);
        }
        &mut self.globals[global]
    }

    /// Whether reading a carried local changes nothing: the segment has written it plainly, or both reads are plain.
    #[inline(always)]
    pub(super) fn knows_local_read(&self, locals: &Locals, local: u32, role: LocalRole) -> bool {
        let known = if role == LocalRole::Plain { &locals.read } else { &locals.written };
        locals.epoch == self.epoch && local < LOCALS && has_local(known, local)
    }

    /// Whether writing a carried local changes nothing: the segment has written it plainly.
    #[inline(always)]
    pub(super) fn knows_local_write(&self, locals: &Locals, local: u32) -> bool {
        locals.epoch == self.epoch && local < LOCALS && has_local(&locals.written, local)
    }

    /// A read that changes something.
    pub(super) fn local_read(&self, locals: &mut Locals, local: u32, role: LocalRole) {
        if role == LocalRole::Plain {
            self.set_local(locals, local, true, false);
        }
    }

    /// A write that changes something. In another role it hides nothing, and what is read after it depends on it.
    pub(super) fn local_write(&self, locals: &mut Locals, local: u32, role: LocalRole) {
        let is_plain = role == LocalRole::Plain;
        self.set_local(locals, local, is_plain, is_plain);
    }

    fn set_local(&self, locals: &mut Locals, local: u32, read: bool, written: bool) {
        if locals.epoch != self.epoch {
            *locals = Locals { epoch: self.epoch, ..Locals::UNKNOWN };
        }
        if local < LOCALS {
            let (word, bit) = (local as usize / 64, 1 << (local % 64));
            for (set, known) in [(&mut locals.read, read), (&mut locals.written, written)] {
                set[word] = if known { set[word] | bit } else { set[word] & !bit };
            }
        }
    }
}
