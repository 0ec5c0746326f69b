//! The instruction buffer: emits, patches, takes back; charges fuel by block; maps code to operators.

use crate::isa::{self, Opcode, Single};

/// Translated code, ready to be linked: the words at `headers` hold opcodes that become handler addresses.
pub(crate) struct Code {
    pub(crate) words: Vec<u64>,
    /// Word indices of instruction headers, ascending.
    pub(crate) headers: Vec<u32>,
    /// For each header the operator that it came from, when asked for.
    pub(crate) places: Vec<Place>,
    pub(crate) handlers: super::Handlers,
    pub(crate) frame_bytes: u32,
    pub(crate) params: u32,
    pub(crate) zeroed: u32,
}

/// Where an instruction came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Word index of the instruction.
    pub(crate) at: u32,
    /// Module offset of its operator.
    pub(crate) offset: u32,
    /// Work that its block charged in advance for operators after it.
    pub(crate) unspent: u32,
    /// A charge with nothing in the accumulator: code for any probe may go on here.
    pub(crate) is_safe: bool,
}

/// A position in the code: the word index of an instruction's header.
pub(super) type Pos = u32;

/// An instruction that was taken back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) opcode: Opcode,
    pub(super) fields: [u32; 2],
}

/// Builds one function's code.
pub(super) struct Emitter {
    words: Vec<u64>,
    headers: Vec<Pos>,
    func: u32,
    counted: bool,
    places: Option<Vec<(Place, u32)>>,
    /// Module offset of the current operator.
    pub(super) offset: u32,
    /// The open block's charge and the operators counted in it so far.
    charge: Option<Pos>,
    count: u32,
    block_totals: Vec<u32>,
    overflow: bool,
}

impl Emitter {
    pub(super) fn new(func: u32, counted: bool, mapped: bool) -> Emitter {
        Emitter {
            words: Vec::new(),
            headers: Vec::new(),
            func,
            counted,
            places: mapped.then(Vec::new),
            offset: 0,
            charge: None,
            count: 0,
            block_totals: Vec::new(),
            overflow: false,
        }
    }

    /// Where the next instruction will be.
    pub(super) fn here(&self) -> Pos {
        self.words.len() as Pos
    }

    /// The last instruction, if there is one.
    pub(super) fn last(&self) -> Option<Pos> {
        self.headers.last().copied()
    }

    /// Appends an instruction.
    pub(super) fn emit(&mut self, opcode: Opcode, fields: &[u32]) -> Pos {
        let at = self.here();
        if self.words.len() + 8 > (i32::MAX / 8) as usize {
            self.overflow = true;
            self.words.truncate(0);
            self.headers.truncate(0);
        }
        self.headers.push(at);
        self.words.push(u64::from(opcode));
        for pair in fields.chunks(2) {
            self.words.push(u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32);
        }
        if let Some(places) = &mut self.places {
            let spent = if self.charge.is_some() { self.count } else { u32::MAX };
            let block = self.block_totals.len() as u32;
            places.push((Place { at, offset: self.offset, unspent: spent, is_safe: false }, block));
        }
        at
    }

    /// Turns a comparison of floats that comes last into its opposite, as if there were no NaNs; `false` when there is none.
    #[cfg(feature = "mutants")]
    pub(super) fn invert_float(&mut self) -> bool {
        let last = self.last().and_then(|at| Some((at, isa::opposite_float(self.opcode(at))?)));
        if let Some((at, opposite)) = last {
            self.set_opcode(at, opposite);
        }
        last.is_some()
    }

    /// Appends a single-handler instruction.
    pub(super) fn single(&mut self, op: Single, fields: &[u32]) -> Pos {
        self.emit(isa::single(op), fields)
    }

    /// The opcode of an instruction.
    pub(super) fn opcode(&self, at: Pos) -> Opcode {
        self.words.get(at as usize).map_or(u16::MAX, |w| *w as Opcode)
    }

    /// Replaces an instruction's opcode.
    pub(super) fn set_opcode(&mut self, at: Pos, opcode: Opcode) {
        if let Some(word) = self.words.get_mut(at as usize) {
            *word = u64::from(opcode);
        }
    }

    /// One field of an instruction.
    pub(super) fn field(&self, at: Pos, n: usize) -> u32 {
        self.words.get(at as usize + 1 + n / 2).map_or(0, |w| (*w >> (32 * (n % 2))) as u32)
    }

    /// Replaces one field of an instruction.
    pub(super) fn set_field(&mut self, at: Pos, n: usize, value: u32) {
        if let Some(word) = self.words.get_mut(at as usize + 1 + n / 2) {
            let shift = 32 * (n % 2);
            *word = *word & !(0xffff_ffff << shift) | u64::from(value) << shift;
        }
    }

    /// Points field 0 of the branch at `at` to `target`.
    pub(super) fn set_target(&mut self, at: Pos, target: Pos) {
        let distance = (i64::from(target) - i64::from(at)) * 8;
        self.set_field(at, 0, distance as i32 as u32);
    }

    /// Takes back the last instruction, which has the layout `- a b`.
    pub(super) fn take_last(&mut self) -> Option<Taken> {
        let at = self.headers.pop()?;
        let taken = Taken { opcode: self.opcode(at), fields: [self.field(at, 1), self.field(at, 2)] };
        self.words.truncate(at as usize);
        if let Some(places) = &mut self.places {
            places.pop();
        }
        Some(taken)
    }

    /// Counts the current operator: opens a block of straight-line code if none is open. `holds`: the accumulator is in use.
    pub(super) fn count_operator(&mut self, holds: bool) {
        if self.counted {
            if self.charge.is_none() {
                self.count = 0;
                let at = self.single(Single::Charge, &[0, self.func]);
                self.charge = Some(at);
                if let Some((place, _)) = self.places.as_mut().and_then(|places| places.last_mut()) {
                    place.is_safe = !holds;
                }
            }
            self.count += 1;
        }
    }

    /// Ends the block: what follows is reached from elsewhere too, or not always.
    pub(super) fn close_block(&mut self) {
        if let Some(at) = self.charge.take() {
            self.set_field(at, 0, self.count);
        }
        self.block_totals.push(self.count);
        self.count = 0;
    }

    /// Has branches and jumps charge what they lead to.
    fn fuse_charges(&mut self) {
        for index in 0..self.headers.len() {
            let at = self.headers[index];
            let is_charge = |at: Pos| self.opcode(at) == isa::single(Single::Charge);
            let behind = self.headers.get(index + 1).is_some_and(|next| is_charge(*next));
            // In other instructions field 0 means something else, but those are not fused.
            let target = is_charge(at.wrapping_add_signed(self.field(at, 0) as i32 / 8));
            if let Some(fused) = isa::charging(self.opcode(at), behind, target) {
                self.set_opcode(at, fused);
            }
        }
    }

    /// The finished code; `None` when it outgrew its fields.
    pub(super) fn finish(mut self) -> Option<(Vec<u64>, Vec<Pos>, Vec<Place>)> {
        self.close_block();
        self.fuse_charges();
        let totals = self.block_totals;
        let unspent = |place: Place, block: u32| match place.unspent {
            u32::MAX => 0,
            spent => totals[block as usize] - spent,
        };
        let places = self.places.unwrap_or_default().into_iter();
        let places = places.map(|(place, block)| Place { unspent: unspent(place, block), ..place }).collect();
        (!self.overflow).then_some((self.words, self.headers, places))
    }
}
