//! Mutants: bugs planted on purpose, which a differential campaign must find. Only with the feature `mutants`, which nothing that is
//! shipped turns on; without it every site is the constant `false` and leaves nothing.
//!
//! ```text
//! TABLE ──► choose("SubSwapImmediate") ──► CHOSEN ◄── mutant!(SubSwapImmediate), at the site of the bug
//! ```
//!
//! Sites are where such bugs come from: `kernels.rs` (what an operator computes), the translator, the handlers, the store.

#[cfg(feature = "mutants")]
pub(crate) mod kernels;
#[cfg(feature = "mutants")]
mod table;

use crate::isa::{BinaryOp, LoadKind, Operand, StoreKind, UnaryOp};

/// Whether this build has mutants. No build that is shipped has.
pub const MUTANTS: bool = cfg!(feature = "mutants");

/// `mutant!(Name)`: whether this mutant is the chosen one. `mutant! { Name: statements }`: what only it does.
#[cfg(feature = "mutants")]
macro_rules! mutant {
    ($name:ident) => { $crate::mutants::is($crate::mutants::Bug::$name) };
    ($name:ident: $($bug:tt)*) => { if $crate::mutants::is($crate::mutants::Bug::$name) { $($bug)* } };
}
/// Without the feature it never is.
#[cfg(not(feature = "mutants"))]
macro_rules! mutant {
    ($name:ident) => { $crate::mutants::never(stringify!($name)) };
    ($name:ident: $($bug:tt)*) => {};
}
pub(crate) use mutant;

/// No mutant is the chosen one.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn never(_name: &str) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub(crate) use table::Bug;
#[cfg(feature = "mutants")]
pub use chooser::{Mutant, UnknownMutant, choose, list};

#[cfg(feature = "mutants")]
pub(crate) use chooser::is;

#[cfg(feature = "mutants")]
mod chooser {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Bug;
    use super::table::TABLE;

    /// One planted bug.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Mutant {
        /// The name that chooses it.
        pub name: &'static str,
        /// What sort of bug it is.
        pub kind: &'static str,
        /// The bug.
        pub bug: &'static str,
        /// The program that sees it.
        pub seen: &'static str,
    }

    /// No mutant has this name.
    #[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
    #[error("there is no mutant called {0}")]
    pub struct UnknownMutant(pub String);

    /// The number of the chosen mutant, counted from 1; 0 for none.
    static CHOSEN: AtomicU32 = AtomicU32::new(0);

    /// All mutants.
    pub fn list() -> &'static [Mutant] {
        TABLE
    }

    /// Makes every engine of this process behave as this mutant from now on; `None` for the engine as it should be. Call it before the
    /// first store is made: code that was translated stays as it is.
    ///
    /// # Errors
    /// When no mutant has this name.
    pub fn choose(name: Option<&str>) -> Result<(), UnknownMutant> {
        let number = match name {
            None => 0,
            Some(name) => 1 + TABLE.iter().position(|m| m.name == name).ok_or_else(|| UnknownMutant(name.to_owned()))?,
        };
        // Only a number: it publishes nothing else.
        CHOSEN.store(number as u32, Ordering::Relaxed);
        Ok(())
    }

    /// Whether this is the chosen one.
    #[inline(always)]
    pub(crate) fn is(bug: Bug) -> bool {
        CHOSEN.load(Ordering::Relaxed) == bug as u32 + 1
    }
}

/// A binary operation with its operands, as mutants of one operand shape have them.
#[inline(always)]
pub(crate) fn binary(op: BinaryOp, a: Operand, b: Operand) -> (BinaryOp, Operand, Operand) {
    use Operand::{Acc, Imm, Slot};
    match (op, a, b) {
        (BinaryOp::I32Sub, Imm(_), _) if mutant!(SubSwapImmediate) => (op, b, a),
        (BinaryOp::I64Sub, Acc, Slot(_)) if mutant!(SubSwapAccumulator) => (op, b, a),
        (BinaryOp::I32DivU, Slot(_), Slot(_)) if mutant!(DivSwapSlots) => (op, b, a),
        (BinaryOp::I64Shl, Slot(_), Acc) if mutant!(ShlSwapAccumulator) => (op, b, a),
        (BinaryOp::I32LtU, Imm(_), _) if mutant!(LtSwapImmediate) => (op, b, a),
        (BinaryOp::I64Rotl, Imm(_), _) if mutant!(RotlSwapImmediate) => (op, b, a),
        (BinaryOp::F32Copysign, Slot(_), Imm(_)) if mutant!(CopysignSwapImmediate) => (op, b, a),
        (BinaryOp::F64Sub | BinaryOp::CanonF64Sub, Acc, Imm(_)) if mutant!(FloatSubSwapImmediate) => (op, b, a),
        (BinaryOp::F32Div | BinaryOp::CanonF32Div, Slot(_), Acc) if mutant!(FloatDivSwapAccumulator) => (op, b, a),
        (BinaryOp::I32Add, Slot(_), Imm(imm)) if mutant!(AddImmediate16) => (op, a, Imm(imm & 0xffff)),
        (BinaryOp::I64ShrS, _, Imm(32..)) if mutant!(ShrImmediateLogical) => (BinaryOp::I64ShrU, a, b),
        (BinaryOp::I32Rotr, Slot(_), Acc) if mutant!(RotrAccumulatorLeft) => (BinaryOp::I32Rotl, a, b),
        (BinaryOp::I32LeU, _, Imm(_)) if mutant!(LeImmediateStrict) => (BinaryOp::I32LtU, a, b),
        (BinaryOp::I64GeS, Acc, Imm(_)) if mutant!(GeImmediateUnsigned) => (BinaryOp::I64GeU, a, b),
        (BinaryOp::I32RemS, Slot(_), Imm(_)) if mutant!(RemImmediateUnsigned) => (BinaryOp::I32RemU, a, b),
        (BinaryOp::I32DivS, _, Imm(imm @ 2..0x8000_0000)) if mutant!(DivImmediateShift) && imm.is_power_of_two() => {
            (BinaryOp::I32ShrS, a, Imm(imm.trailing_zeros()))
        }
        (BinaryOp::I64RemS, _, Imm(imm @ 1..0x8000_0000)) if mutant!(RemImmediateMask) && imm.is_power_of_two() => {
            (BinaryOp::I64And, a, Imm(imm - 1))
        }
        (BinaryOp::I64Eq, Slot(_), Imm(1..)) if mutant!(EqImmediateLow) => (BinaryOp::I32Eq, a, b),
        (BinaryOp::I64And, _, Imm(0x8000_0000..)) if mutant!(AndImmediateLow) => (BinaryOp::I32And, a, b),
        _ => (op, a, b),
    }
}

/// A unary operation, likewise.
#[inline(always)]
pub(crate) fn unary(op: UnaryOp) -> UnaryOp {
    match op {
        UnaryOp::I32Extend8S if mutant!(ExtendDirty) => UnaryOp::I64Extend8S,
        UnaryOp::I32Extend16S if mutant!(ExtendShort) => UnaryOp::I32Extend8S,
        _ => op,
    }
}

/// A load's kind and offset, likewise.
#[inline(always)]
pub(crate) fn load(kind: LoadKind, offset: u32) -> (LoadKind, u32) {
    match kind {
        LoadKind::I8To64 if mutant!(LoadOffsetUnsigned) && offset != 0 => (LoadKind::U8, offset),
        LoadKind::I16To32 if mutant!(LoadDirty) => (LoadKind::I16To64, offset),
        LoadKind::U64 if mutant!(LoadOffset16) => (kind, offset & 0xffff),
        _ => (kind, offset),
    }
}

/// A store's kind and offset, likewise.
#[inline(always)]
pub(crate) fn store(kind: StoreKind, offset: u32) -> (StoreKind, u32) {
    match kind {
        StoreKind::W16 if mutant!(StoreWide) => (StoreKind::W32, offset),
        StoreKind::W8 if mutant!(StoreOffset8) => (kind, offset & 0xff),
        _ => (kind, offset),
    }
}

/// The bytes of an access that the bounds check counts, likewise.
#[inline(always)]
pub(crate) fn reached(len: usize) -> usize {
    match len {
        1 if mutant!(BoundsByteTight) => 2,
        2 if mutant!(BoundsShortTight) => 4,
        4 if mutant!(BoundsWordLax) => 3,
        8 if mutant!(BoundsLongFirst) => 1,
        16 if mutant!(BoundsVectorHalf) => 8,
        _ => len,
    }
}
