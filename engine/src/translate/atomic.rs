//! Atomic operators.
//!
//! Their operands and results are in slots. A read-modify-write of a family that commutes is a chain that has already ended (see
//! `trace.rs`): using the value that it read breaks it.

use wasmparser::{MemArg, Operator};

use super::Translator;
use super::operator::halves;
use super::stack::{Home, Value};
use crate::isa::{AtomicRmw, Single};
use crate::probe::Rmw;

/// What an atomic operator does.
#[derive(Clone, Copy)]
enum Atomic {
    Load,
    Store,
    Rmw(AtomicRmw),
    Cmpxchg,
    Wait,
    Notify,
}

/// The access behind an operator, and how many bytes it touches.
fn access_of<'o>(op: &'o Operator<'_>) -> Option<(Atomic, u32, &'o MemArg)> {
    macro_rules! find {
        ($($atomic:expr => $($v:ident $bytes:literal),*;)*) => {
            match op {
                $($( Operator::$v { memarg } => Some(($atomic, $bytes, memarg)), )*)*
                _ => None,
            }
        };
    }
    find! {
        Atomic::Load => I32AtomicLoad 4, I32AtomicLoad8U 1, I32AtomicLoad16U 2, I64AtomicLoad 8, I64AtomicLoad8U 1, I64AtomicLoad16U 2,
            I64AtomicLoad32U 4;
        Atomic::Store => I32AtomicStore 4, I32AtomicStore8 1, I32AtomicStore16 2, I64AtomicStore 8, I64AtomicStore8 1,
            I64AtomicStore16 2, I64AtomicStore32 4;
        Atomic::Rmw(AtomicRmw::Add) => I32AtomicRmwAdd 4, I32AtomicRmw8AddU 1, I32AtomicRmw16AddU 2, I64AtomicRmwAdd 8,
            I64AtomicRmw8AddU 1, I64AtomicRmw16AddU 2, I64AtomicRmw32AddU 4;
        Atomic::Rmw(AtomicRmw::Sub) => I32AtomicRmwSub 4, I32AtomicRmw8SubU 1, I32AtomicRmw16SubU 2, I64AtomicRmwSub 8,
            I64AtomicRmw8SubU 1, I64AtomicRmw16SubU 2, I64AtomicRmw32SubU 4;
        Atomic::Rmw(AtomicRmw::And) => I32AtomicRmwAnd 4, I32AtomicRmw8AndU 1, I32AtomicRmw16AndU 2, I64AtomicRmwAnd 8,
            I64AtomicRmw8AndU 1, I64AtomicRmw16AndU 2, I64AtomicRmw32AndU 4;
        Atomic::Rmw(AtomicRmw::Or) => I32AtomicRmwOr 4, I32AtomicRmw8OrU 1, I32AtomicRmw16OrU 2, I64AtomicRmwOr 8,
            I64AtomicRmw8OrU 1, I64AtomicRmw16OrU 2, I64AtomicRmw32OrU 4;
        Atomic::Rmw(AtomicRmw::Xor) => I32AtomicRmwXor 4, I32AtomicRmw8XorU 1, I32AtomicRmw16XorU 2, I64AtomicRmwXor 8,
            I64AtomicRmw8XorU 1, I64AtomicRmw16XorU 2, I64AtomicRmw32XorU 4;
        Atomic::Rmw(AtomicRmw::Xchg) => I32AtomicRmwXchg 4, I32AtomicRmw8XchgU 1, I32AtomicRmw16XchgU 2, I64AtomicRmwXchg 8,
            I64AtomicRmw8XchgU 1, I64AtomicRmw16XchgU 2, I64AtomicRmw32XchgU 4;
        Atomic::Cmpxchg => I32AtomicRmwCmpxchg 4, I32AtomicRmw8CmpxchgU 1, I32AtomicRmw16CmpxchgU 2, I64AtomicRmwCmpxchg 8,
            I64AtomicRmw8CmpxchgU 1, I64AtomicRmw16CmpxchgU 2, I64AtomicRmw32CmpxchgU 4;
        Atomic::Wait => MemoryAtomicWait32 4, MemoryAtomicWait64 8;
        Atomic::Notify => MemoryAtomicNotify 4;
    }
}

/// The family of a read-modify-write that commutes with others of it.
fn family(op: AtomicRmw) -> Rmw {
    match op {
        AtomicRmw::Add | AtomicRmw::Sub => Rmw::Add,
        AtomicRmw::And => Rmw::And,
        AtomicRmw::Or => Rmw::Or,
        AtomicRmw::Xor => Rmw::Xor,
        AtomicRmw::Xchg => Rmw::Plain,
    }
}

impl Translator<'_> {
    /// Translates an atomic operator; `false` when it is none.
    pub(super) fn atomic(&mut self, op: &Operator<'_>) -> bool {
        if matches!(op, Operator::AtomicFence) {
            // One agent sees its own accesses in order.
            return true;
        }
        let Some((atomic, bytes, memarg)) = access_of(op) else { return false };
        match atomic {
            Atomic::Load => {
                let access = self.atomic_access(bytes, memarg);
                self.atomic_result(Single::AtomicLoad, access, &[]);
            }
            Atomic::Store => {
                let value = self.slot_field();
                let [addr, low, site, bytes, memory, high] = self.atomic_access(bytes, memarg);
                self.code.single(Single::AtomicStore, &[0, addr, low, site, bytes, memory, high, value]);
            }
            Atomic::Rmw(op) => {
                let value = self.slot_field();
                let access = self.atomic_access(bytes, memarg);
                self.atomic_result(Single::AtomicRmw, access, &[value, op as u32]);
                self.chain_of_rmw(family(op), bytes);
            }
            Atomic::Cmpxchg => self.atomic_with_two(Single::AtomicCmpxchg, bytes, memarg),
            Atomic::Wait => self.atomic_with_two(Single::AtomicWait, bytes, memarg),
            Atomic::Notify => {
                // How many to wake is of no interest: nobody waits.
                self.slot_field();
                let access = self.atomic_access(bytes, memarg);
                self.atomic_result(Single::AtomicNotify, access, &[]);
            }
        }
        true
    }

    fn atomic_with_two(&mut self, op: Single, bytes: u32, memarg: &MemArg) {
        let second = self.slot_field();
        let first = self.slot_field();
        let access = self.atomic_access(bytes, memarg);
        self.atomic_result(op, access, &[first, second]);
    }

    /// Pops the address; the fields that all atomic accesses have behind their destination.
    fn atomic_access(&mut self, bytes: u32, memarg: &MemArg) -> [u32; 6] {
        let [low, high] = halves(memarg.offset);
        let addr = self.slot_field();
        let site = self.site() << 3;
        [addr, low, site, bytes, memarg.memory, high]
    }

    /// Emits an access with a result, which it writes to its slot, and pushes that.
    fn atomic_result(&mut self, op: Single, access: [u32; 6], operands: &[u32]) {
        self.free_acc();
        let mut fields = [0; 9];
        fields[0] = self.result_field();
        fields[1..7].copy_from_slice(&access);
        fields[7..7 + operands.len()].copy_from_slice(operands);
        let at = self.code.single(op, &fields[..7 + operands.len()]);
        self.push_result(at, true);
    }

    /// The value on top was read by the atomic read-modify-write that was emitted last.
    fn chain_of_rmw(&mut self, family: Rmw, bytes: u32) {
        if family == Rmw::Plain {
            return;
        }
        let at = self.code.last().expect("it was emitted");
        let chain = self.ended_chain(at, bytes, family);
        if let Some(value @ Value { home: Home::Acc, .. }) = self.values.last_mut() {
            value.chain = chain;
        }
    }
}
