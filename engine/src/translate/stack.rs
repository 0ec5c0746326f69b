//! Where operand values are, and how they get into slots or the accumulator.
//!
//! Stack heights and local indices count values; slots count 64-bit words. A vector takes two slots, so that neither is the other
//! plus a constant: [`Translator::canonical`] and [`Translator::local_slot`] are the only ways from the one to the other.

use super::Translator;
use super::code::Pos;
use crate::isa::{Operand, Single};
use crate::mutants::mutant;

/// Where a value on the operand stack is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Home {
    /// In a local that was not written since.
    Local(u32),
    /// Nowhere: a constant (raw bits).
    Const(u64),
    /// In the slot of its own height.
    Canonical,
    /// In the accumulator; the holder says who put it there.
    Acc,
}

/// A value on the operand stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) home: Home,
    /// The first slot of its height; set when it is pushed.
    pub(super) slot: u32,
    /// A vector, which takes two slots: in a local or in its canonical slots, never in the accumulator and no constant.
    pub(super) wide: bool,
    /// The instruction that wrote a vector to its canonical slots, while nothing can reach the code behind it from elsewhere.
    pub(super) producer: Option<Pos>,
    /// Traced code: may be a unit's result that only moved so far.
    pub(super) maybe_result: bool,
    /// Traced code: number of the read-modify-write chain that it belongs to, or 0.
    pub(super) chain: u32,
}

impl Value {
    pub(super) fn new(home: Home) -> Value {
        Value { home, slot: 0, wide: false, producer: None, maybe_result: false, chain: 0 }
    }

    /// The slots that it takes.
    pub(super) fn slots(&self) -> u32 {
        1 + u32::from(self.wide)
    }
}

/// What the accumulator holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    /// Nothing of interest.
    Nothing,
    /// The stack value at this index, put there by this instruction; `stored` if it wrote its slot as well.
    Stack { index: usize, producer: Pos, stored: bool },
    /// The same value as a local.
    Local(u32),
}

/// An operand's type, as far as immediates go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    /// 32 raw bits.
    W32,
    /// An i64: the immediate is sign-extended.
    I64,
    /// An f64: the immediate is an f32 that is widened.
    F64,
}

/// The immediate that stands for a constant of this width, if there is one.
pub(super) fn immediate(raw: u64, width: Width) -> Option<u32> {
    match width {
        Width::W32 => Some(raw as u32),
        Width::I64 if mutant!(ImmediateUnsigned) && raw >> 32 == 0 => Some(raw as u32),
        Width::I64 => (i64::from(raw as i32) as u64 == raw).then_some(raw as u32),
        Width::F64 => {
            let narrow = f64::from_bits(raw) as f32;
            (!narrow.is_nan() && (f64::from(narrow).to_bits() == raw || mutant!(ImmediateRounded))).then(|| narrow.to_bits())
        }
    }
}

impl Translator<'_> {
    /// The first slot of a stack height, which may be one above the topmost value.
    pub(super) fn canonical(&self, index: usize) -> u32 {
        match index.checked_sub(1) {
            None => super::end_of(self.local_slots),
            Some(below) => self.values[below].slot + self.values[below].slots(),
        }
    }

    /// The first slot of a local.
    pub(super) fn local_slot(&self, local: u32) -> u32 {
        self.local_slots[if mutant!(LocalFar) && local == 64 { 63 } else { local as usize }]
    }

    /// Whether a local holds a vector.
    fn local_is_wide(&self, local: u32) -> bool {
        self.local_slots[local as usize + 1] - self.local_slots[local as usize] == 2
    }

    /// Makes sure that the frame has this many slots.
    pub(super) fn reserve(&mut self, slots: u32) {
        self.slots_max = self.slots_max.max(slots);
    }

    pub(super) fn push(&mut self, value: Value) {
        if let Home::Local(local) = value.home {
            self.pending[local as usize] += 1;
        }
        let slot = self.canonical(self.values.len());
        self.reserve(slot + value.slots());
        self.values.push(Value { slot, ..value });
    }

    /// Pushes the result of the instruction at `producer`, whose field 0 is this height's slot.
    pub(super) fn push_result(&mut self, producer: Pos, stored: bool) {
        let index = self.values.len();
        self.push(Value::new(Home::Acc));
        self.holder = Holder::Stack { index, producer, stored };
    }

    /// Pushes the vector that the instruction at `producer` writes to this height's slots, which its field 0 names.
    pub(super) fn push_vector(&mut self, producer: Pos) {
        self.push(Value { wide: true, producer: Some(producer), ..Value::new(Home::Canonical) });
    }

    /// Field 0 for a result that is about to be pushed.
    pub(super) fn result_field(&self) -> u32 {
        self.canonical(self.values.len()) * 8
    }

    /// Pops a value and says how an instruction reads it: the accumulator, a slot, or `None` for a constant.
    pub(super) fn pop(&mut self) -> (Value, Option<Operand>) {
        let value = self.values.pop().expect("validated: the stack holds an operand");
        let index = self.values.len();
        self.flushed = self.flushed.min(index);
        let operand = match value.home {
            Home::Const(_) => None,
            Home::Canonical => Some(Operand::Slot(self.canonical(index))),
            Home::Acc => {
                self.holder = Holder::Nothing;
                Some(Operand::Acc)
            }
            Home::Local(local) => {
                self.pending[local as usize] -= 1;
                Some(if self.holder == Holder::Local(local) { Operand::Acc } else { Operand::Slot(self.local_slot(local)) })
            }
        };
        (value, operand)
    }

    /// Pops a value as an accumulator or slot operand; constants are put into their slot first.
    pub(super) fn pop_place(&mut self) -> (Value, Operand) {
        let (value, operand) = self.pop();
        let place = operand.unwrap_or_else(|| {
            let Home::Const(raw) = value.home else { unreachable!("only constants have no place") };
            let slot = self.canonical(self.values.len());
            self.constant_to(slot, raw);
            Operand::Slot(slot)
        });
        (value, place)
    }

    /// Pops a value as a slot operand.
    pub(super) fn pop_slot(&mut self) -> (Value, u32) {
        let index = self.values.len() - 1;
        if self.values[index].home == Home::Acc {
            self.spill();
        }
        match self.pop_place() {
            (value, Operand::Slot(slot)) => (value, slot),
            (value, _) => match value.home {
                Home::Local(local) => (value, self.local_slot(local)),
                _ => unreachable!("the accumulator was spilled"),
            },
        }
    }

    /// Pops a value as any operand that a field of this width can name.
    pub(super) fn pop_operand(&mut self, width: Width) -> (Value, Operand) {
        if let Some(Value { home: Home::Const(raw), .. }) = self.values.last()
            && let Some(imm) = immediate(*raw, width)
        {
            let (value, _) = self.pop();
            return (value, Operand::Imm(imm));
        }
        self.pop_place()
    }

    /// Two operands cannot both be the accumulator, nor both immediates: makes the left one a slot if they are.
    pub(super) fn distinct(&mut self, left: (Value, Operand), right: Operand) -> Operand {
        match (left.1, right) {
            (Operand::Acc, Operand::Acc) => match left.0.home {
                Home::Local(local) => Operand::Slot(self.local_slot(local)),
                _ => unreachable!("the accumulator holds one stack value"),
            },
            (Operand::Imm(_), Operand::Imm(_)) => {
                let Home::Const(raw) = left.0.home else { unreachable!("immediates are constants") };
                let slot = self.canonical(self.values.len());
                self.constant_to(slot, raw);
                Operand::Slot(slot)
            }
            _ => left.1,
        }
    }

    /// Makes sure that the accumulator can be overwritten.
    pub(super) fn free_acc(&mut self) {
        self.spill();
        self.holder = Holder::Nothing;
    }

    /// If a stack value is in the accumulator only, tells its producer to store it.
    fn spill(&mut self) {
        if let Holder::Stack { index, producer, stored } = self.holder {
            let is_lost = mutant!(SpillLostDeep) && index > 3;
            if !stored && !is_lost {
                let opcode = self.code.opcode(producer);
                self.code.set_opcode(producer, opcode + 1);
            }
            self.values[index].home = Home::Canonical;
            self.holder = Holder::Nothing;
        }
    }

    /// As `free_acc`, but what was there is lost.
    #[cfg(feature = "mutants")]
    pub(super) fn lose_acc(&mut self) {
        if let Holder::Stack { index, .. } = self.holder {
            self.values[index].home = Home::Canonical;
        }
        self.holder = Holder::Nothing;
    }

    /// Writes a constant to a slot.
    pub(super) fn constant_to(&mut self, slot: u32, raw: u64) {
        if raw >> 32 == 0 || (mutant!(ConstantHighLost) && raw as u32 == 0) {
            self.code.single(Single::CopyImm, &[slot * 8, raw as u32]);
        } else {
            self.code.single(Single::CopyImm64, &[slot * 8, raw as u32, (raw >> 32) as u32]);
        }
    }

    /// Copies what a slot, or the two of a vector, hold.
    pub(super) fn copy(&mut self, slot: u32, from: u32, wide: bool) {
        let op = if wide && !mutant!(VectorCopyHalf) { Single::VectorCopy } else { Single::Copy };
        self.code.single(op, &[slot * 8, from * 8]);
    }

    /// Copies the stack value at `index` to a slot, leaving the stack as it is.
    pub(super) fn copy_to(&mut self, index: usize, slot: u32) {
        let value = self.values[index];
        let from = match value.home {
            Home::Canonical => self.canonical(index),
            Home::Local(local) => self.local_slot(local),
            Home::Const(raw) => {
                return self.constant_to(slot, raw);
            }
            Home::Acc => {
                self.code.single(Single::CopyAcc, &[slot * 8]);
                return;
            }
        };
        if from != slot {
            self.copy(slot, from, value.wide);
            self.note_slot_move(from, slot, &value);
        }
    }

    /// Puts the values from `first` up into their canonical slots, constants too.
    pub(super) fn settle(&mut self, first: usize) {
        for index in first..self.values.len() {
            self.settle_one(index);
        }
    }

    fn settle_one(&mut self, index: usize) {
        match self.values[index].home {
            Home::Canonical => {}
            Home::Acc => self.spill(),
            home => {
                self.copy_to(index, self.canonical(index));
                if let Home::Local(local) = home {
                    self.pending[local as usize] -= 1;
                }
                self.values[index].home = Home::Canonical;
            }
        }
    }

    /// Before a label or a block: no value may be in the accumulator or stand for a local. Constants may stay.
    pub(super) fn flush(&mut self) {
        mutant! { AccLostAtBlock: self.lose_acc(); }
        for index in self.flushed..self.values.len() {
            mutant! { FlushSkipsLocal: if index == 0 && matches!(self.values[index].home, Home::Local(_)) { continue; } }
            if !matches!(self.values[index].home, Home::Const(_)) {
                self.settle_one(index);
            }
            self.values[index].producer = None;
        }
        self.flushed = self.values.len();
        self.holder = Holder::Nothing;
    }

    /// Before `local` is written: values that stand for it move to their own slots.
    fn preserve(&mut self, local: u32) {
        if self.pending[local as usize] == 0 || (mutant!(PreserveLostWide) && self.local_is_wide(local)) {
            return;
        }
        for index in self.flushed..self.values.len() {
            if self.values[index].home == Home::Local(local) {
                self.settle_one(index);
                mutant! { PreserveOne: break; }
            }
        }
    }

    /// `local.get`
    pub(super) fn local_get(&mut self, local: u32) {
        let mut value = Value { wide: self.local_is_wide(local), ..Value::new(Home::Local(local)) };
        self.trace_local_get(local, &mut value);
        self.push(value);
    }

    /// `local.set` and `local.tee`.
    pub(super) fn local_set(&mut self, local: u32, tee: bool) {
        let top = self.values.len() - 1;
        let producer = match self.holder {
            Holder::Stack { index, producer, stored } if index == top => Some((producer, stored)),
            _ => None,
        };
        let (value, operand) = self.pop();
        if !(mutant!(PreserveLostTee) && tee || mutant!(PreserveLostConstant) && matches!(value.home, Home::Const(_))) {
            self.preserve(local);
        }
        let slot = self.local_slot(local);
        match (value.home, operand) {
            (Home::Const(raw), _) => {
                self.constant_to(slot, raw);
                if !mutant!(MirrorStaleConstant) {
                    self.forget(local);
                }
            }
            (Home::Acc, _) => {
                let (producer, stored) = producer.expect("the accumulator's value has a producer");
                if self.code.last() == Some(producer) || mutant!(RetargetEarlier) {
                    self.code.set_field(producer, 0, slot * 8);
                    if !stored {
                        let opcode = self.code.opcode(producer);
                        self.code.set_opcode(producer, opcode + 1);
                    }
                } else {
                    self.code.single(Single::CopyAcc, &[slot * 8]);
                }
                self.holder = Holder::Local(local);
            }
            (Home::Local(from), _) if from == local => {}
            (Home::Canonical, _) if let Some(producer) = value.producer.filter(|at| self.code.last() == Some(*at) || mutant!(RetargetVector)) => {
                self.code.set_field(producer, 0, slot * 8);
            }
            (_, Some(Operand::Slot(from))) => {
                self.copy(slot, from, value.wide);
                if !mutant!(MirrorStaleCopy) {
                    self.forget(local);
                }
            }
            (_, _) => {
                // Another local that the accumulator mirrors.
                self.code.single(Single::CopyAcc, &[slot * 8]);
            }
        }
        self.trace_local_set(local, &value, top, tee);
        if tee {
            self.push(Value { home: Home::Local(local), producer: None, chain: 0, ..value });
        }
    }

    fn forget(&mut self, local: u32) {
        if self.holder == Holder::Local(local) {
            self.holder = Holder::Nothing;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immediates_stand_for_exactly_their_constants() {
        let check = |raw, width, expected| assert_eq!(immediate(raw, width), expected, "{raw:#x} as {width:?}");
        check(0xffff_ffff, Width::W32, Some(0xffff_ffff));
        check((-1i64) as u64, Width::I64, Some(0xffff_ffff));
        check(0xffff_ffff, Width::I64, None);
        check(0x8000_0000, Width::I64, None);
        check(0.5f64.to_bits(), Width::F64, Some(0.5f32.to_bits()));
        check((-0.0f64).to_bits(), Width::F64, Some((-0.0f32).to_bits()));
        check(0.1f64.to_bits(), Width::F64, None);
        check(f64::NAN.to_bits(), Width::F64, None);
        check(f64::INFINITY.to_bits(), Width::F64, Some(f32::INFINITY.to_bits()));
        check(1e300f64.to_bits(), Width::F64, None);
    }
}
