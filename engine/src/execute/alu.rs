//! Arithmetic, comparisons, fused branches and moves: everything that touches frame slots only.
//!
//! Fields: binary `dest a b`; fused branch `target a b`; unary `dest a`; moves `dest source`.

use wasmi_core::TrapCode;
#[cfg(not(feature = "mutants"))]
use wasmi_core::wasm;

use super::cx::{A, Cx, Dest, Handler, I, Ip, Raw, S, Source, Sp, ToAcc, ToSlot, field, next, slot, target, trap};
use crate::isa::{for_each_binary, for_each_unary};
use crate::mutants::mutant;
#[cfg(feature = "mutants")]
use crate::mutants::kernels::scalar as wasm;
use crate::trap::TrapKind;

/// A binary operation on two values.
pub(crate) trait Binary {
    type L: Raw;
    type R: Raw;
    fn eval(l: Self::L, r: Self::R) -> Result<u64, TrapKind>;
}
/// An operation on one value.
pub(crate) trait Unary {
    type T: Raw;
    fn eval(t: Self::T) -> Result<u64, TrapKind>;
}

/// A float's raw bits with every NaN replaced by the canonical one.
trait Canon: Raw {
    fn canonical(self) -> u64;
}
impl Canon for f32 {
    #[inline(always)]
    fn canonical(self) -> u64 {
        if self.is_nan() { 0x7fc0_0000 } else { self.into_raw() }
    }
}
impl Canon for f64 {
    #[inline(always)]
    fn canonical(self) -> u64 {
        if self.is_nan() { 0x7ff8_0000_0000_0000 | u64::from(mutant!(NanSign)) << 63 } else { self.into_raw() }
    }
}

fn kind_of(code: TrapCode) -> TrapKind {
    match code {
        TrapCode::IntegerDivisionByZero => TrapKind::IntegerDivisionByZero,
        TrapCode::IntegerOverflow => TrapKind::IntegerOverflow,
        TrapCode::BadConversionToInteger => TrapKind::BadConversionToInteger,
        other => unreachable!("arithmetic does not trap with {other:?}"),
    }
}

macro_rules! finish {
    (plain, $value:expr) => { Ok($value.into_raw()) };
    (canon, $value:expr) => { Ok(Canon::canonical($value)) };
    (traps, $value:expr) => { match $value { Ok(value) => Ok(value.into_raw()), Err(code) => Err(kind_of(code)) } };
}
macro_rules! impl_binary {
    ($($v:ident $k:ident ($l:ident, $r:ident) $kind:ident;)*) => {$(
        pub(crate) struct $v;
        impl Binary for $v {
            type L = $l;
            type R = $r;
            #[inline(always)]
            fn eval(l: $l, r: $r) -> Result<u64, TrapKind> { finish!($kind, wasm::$k(l, r)) }
        }
    )*};
}
macro_rules! impl_unary {
    ($($v:ident $k:ident ($t:ident) $kind:ident;)*) => {$(
        pub(crate) struct $v;
        impl Unary for $v {
            type T = $t;
            #[inline(always)]
            fn eval(t: $t) -> Result<u64, TrapKind> { finish!($kind, wasm::$k(t)) }
        }
    )*};
}
for_each_binary!(impl_binary);
for_each_unary!(impl_unary);

unsafe extern "C" fn binary<O: Binary, L: Source, R: Source, D: Dest>(cx: &mut Cx, ip: Ip, sp: Sp, mem: *mut u8, acc: u64) -> u64 {
    // SAFETY: code comes from the translator, which gives this opcode fields `dest a b` of these sources.
    unsafe {
        match O::eval(L::get::<O::L, 1>(ip, sp, acc), R::get::<O::R, 2>(ip, sp, acc)) {
            Ok(raw) => {
                D::put(ip, sp, raw);
                next!(cx, ip.add(24), sp, mem, raw)
            }
            Err(kind) => trap!(cx, ip, sp, kind),
        }
    }
}

unsafe extern "C" fn branch<O: Binary, L: Source, R: Source>(cx: &mut Cx, ip: Ip, sp: Sp, mem: *mut u8, acc: u64) -> u64 {
    // SAFETY: as for `binary`, fields `target a b`.
    unsafe {
        // Two dispatch sites on purpose: merged into a conditional move they predict worse.
        if O::eval(L::get::<O::L, 1>(ip, sp, acc), R::get::<O::R, 2>(ip, sp, acc)) == Ok(1) {
            next!(cx, target!(ip, 0), sp, mem, acc)
        }
        next!(cx, ip.add(24), sp, mem, acc)
    }
}

/// Goes on at `$ip`, where a charge is, with what is behind it.
macro_rules! next_block {
    ($cx:ident, $ip:expr, $sp:expr, $mem:expr, $acc:expr) => {{
        let charge: Ip = $ip;
        let left = $cx.fuel - i64::from(field!(charge, 0));
        // Only the charge itself knows what to do without fuel.
        if left < 0 { next!($cx, charge, $sp, $mem, $acc) }
        $cx.fuel = left;
        next!($cx, charge.add(16), $sp, $mem, $acc)
    }};
}

/// `branch` before a charge; `BOTH`: there is one at its target, too.
unsafe extern "C" fn branch_charging<O: Binary, L: Source, R: Source, const BOTH: bool>(
    cx: &mut Cx,
    ip: Ip,
    sp: Sp,
    mem: *mut u8,
    acc: u64,
) -> u64 {
    // SAFETY: as for `branch`; the translator saw the charges.
    unsafe {
        if O::eval(L::get::<O::L, 1>(ip, sp, acc), R::get::<O::R, 2>(ip, sp, acc)) == Ok(1) {
            if BOTH { next_block!(cx, target!(ip, 0), sp, mem, acc) }
            next!(cx, target!(ip, 0), sp, mem, acc)
        }
        next_block!(cx, ip.add(24), sp, mem, acc)
    }
}

unsafe extern "C" fn unary<O: Unary, T: Source, D: Dest>(cx: &mut Cx, ip: Ip, sp: Sp, mem: *mut u8, acc: u64) -> u64 {
    // SAFETY: as for `binary`, fields `dest a`.
    unsafe {
        match O::eval(T::get::<O::T, 1>(ip, sp, acc)) {
            Ok(raw) => {
                D::put(ip, sp, raw);
                next!(cx, ip.add(16), sp, mem, raw)
            }
            Err(kind) => trap!(cx, ip, sp, kind),
        }
    }
}

/// Adds the handlers of the groups binary, branch and unary, in the order of their opcodes.
pub(crate) fn push_handlers(table: &mut Vec<Handler>) {
    macro_rules! binaries {
        ($($v:ident $k:ident ($l:ident, $r:ident) $kind:ident;)*) => {$(
            binaries!(@ $v: S S, S I, I S, A S, S A, A I, I A);
        )*};
        (@ $v:ident: $($a:ident $b:ident),*) => { table.extend([$(binary::<$v, $a, $b, ToAcc> as Handler, binary::<$v, $a, $b, ToSlot>),*]) };
    }
    let (mut branches, mut charging, mut charging_both) = (Vec::new(), Vec::new(), Vec::new());
    macro_rules! branches {
        ($($v:ident $k:ident ($l:ident, $r:ident) $kind:ident;)*) => {$(
            branches!(@ $v: S S, S I, I S, A S, S A, A I, I A);
        )*};
        (@ $v:ident: $($a:ident $b:ident),*) => {
            if (crate::isa::BinaryOp::$v as u16) < crate::isa::BRANCH_OPS {
                branches.extend([$(branch::<$v, $a, $b> as Handler),*]);
                charging.extend([$(branch_charging::<$v, $a, $b, false> as Handler),*]);
                charging_both.extend([$(branch_charging::<$v, $a, $b, true> as Handler),*]);
            }
        };
    }
    macro_rules! unaries {
        ($($v:ident $k:ident ($t:ident) $kind:ident;)*) => {$(
            table.extend([unary::<$v, A, ToAcc> as Handler, unary::<$v, A, ToSlot>, unary::<$v, S, ToAcc>, unary::<$v, S, ToSlot>]);
        )*};
    }
    for_each_binary!(binaries);
    for_each_binary!(branches);
    for group in [branches, charging, charging_both] {
        table.extend(group);
    }
    for_each_unary!(unaries);
}

/// The i64 in the slot that a field names.
macro_rules! half {
    ($ip:ident, $sp:ident, $n:expr) => { slot!($sp, field!($ip, $n)) as i64 };
}
/// Writes a lower and an upper half to field 0's slot and the one after it. Both were computed from operands that may lie there.
macro_rules! put_halves {
    ($ip:ident, $sp:ident, $halves:expr) => {{
        let (low, high) = $halves;
        let dest = field!($ip, 0);
        slot!($sp, dest) = low as u64;
        slot!($sp, dest + 8) = high as u64;
    }};
}
macro_rules! handlers {
    ($($(#[$doc:meta])* $name:ident($cx:ident, $ip:ident, $sp:ident, $mem:ident, $acc:ident) $body:block)*) => {$(
        $(#[$doc])*
        #[allow(unused_unsafe, reason = "with loop dispatch some bodies are safe")]
        pub(super) unsafe extern "C" fn $name($cx: &mut Cx, $ip: Ip, $sp: Sp, $mem: *mut u8, $acc: u64) -> u64 {
            // SAFETY: code comes from the translator, which gives this opcode the fields named in its comment.
            unsafe { $body }
        }
    )*};
}
handlers! {
    /// `dest source`: slot to slot.
    copy(cx, ip, sp, mem, acc) {
        slot!(sp, field!(ip, 0)) = slot!(sp, field!(ip, 1));
        next!(cx, ip.add(16), sp, mem, acc)
    }
    /// `dest`: the accumulator to a slot.
    copy_acc(cx, ip, sp, mem, acc) {
        slot!(sp, field!(ip, 0)) = acc;
        next!(cx, ip.add(16), sp, mem, acc)
    }
    /// `dest imm`: a zero-extended 32-bit value to a slot.
    copy_imm(cx, ip, sp, mem, acc) {
        slot!(sp, field!(ip, 0)) = u64::from(field!(ip, 1));
        next!(cx, ip.add(16), sp, mem, acc)
    }
    /// `dest low high`: a 64-bit value to a slot.
    copy_imm64(cx, ip, sp, mem, acc) {
        slot!(sp, field!(ip, 0)) = u64::from(field!(ip, 1)) | u64::from(field!(ip, 2)) << 32;
        next!(cx, ip.add(24), sp, mem, acc)
    }
    /// `- imm`: a zero-extended 32-bit value to the accumulator.
    imm_to_acc(cx, ip, sp, mem, _acc) { next!(cx, ip.add(16), sp, mem, u64::from(field!(ip, 1))) }
    /// `- low high`: a 64-bit value to the accumulator.
    imm64_to_acc(cx, ip, sp, mem, _acc) {
        let value = u64::from(field!(ip, 1)) | u64::from(field!(ip, 2)) << 32;
        next!(cx, ip.add(24), sp, mem, value)
    }
    /// `- source`: a slot to the accumulator.
    slot_to_acc(cx, ip, sp, mem, _acc) { next!(cx, ip.add(16), sp, mem, slot!(sp, field!(ip, 1))) }
    /// `dest a b condition`: slot `a` if the condition's slot is not 0, else slot `b`, to `dest` and the accumulator.
    select_slot(cx, ip, sp, mem, _acc) {
        let raw = if slot!(sp, field!(ip, 3)) as u32 != 0 { slot!(sp, field!(ip, 1)) } else { slot!(sp, field!(ip, 2)) };
        slot!(sp, field!(ip, 0)) = raw;
        next!(cx, ip.add(24), sp, mem, raw)
    }
    /// `dest a b`: likewise with the condition in the accumulator.
    select_acc(cx, ip, sp, mem, acc) {
        let condition = if mutant!(SelectLowBit) { acc & 1 } else { acc };
        let raw = if condition as u32 != 0 { slot!(sp, field!(ip, 1)) } else { slot!(sp, field!(ip, 2)) };
        slot!(sp, field!(ip, 0)) = raw;
        next!(cx, ip.add(24), sp, mem, raw)
    }
    /// `dest a`: whether the reference in slot `a` is null.
    ref_is_null(cx, ip, sp, mem, _acc) {
        let reference = slot!(sp, field!(ip, 1));
        let raw = u64::from(reference == 0 || (mutant!(NullFirst) && reference == 1));
        slot!(sp, field!(ip, 0)) = raw;
        next!(cx, ip.add(16), sp, mem, raw)
    }
    /// `dest a`: the reference in slot `a`, which must not be null.
    ref_as_non_null(cx, ip, sp, mem, _acc) {
        let raw = slot!(sp, field!(ip, 1));
        if raw == 0 && !mutant!(AsNonNullUnchecked) { trap!(cx, ip, sp, TrapKind::NullReference) }
        slot!(sp, field!(ip, 0)) = raw;
        next!(cx, ip.add(16), sp, mem, raw)
    }
    /// `dest a-low a-high b-low b-high`; the sum's halves go to `dest` and the slot after it.
    add128(cx, ip, sp, mem, acc) {
        put_halves!(ip, sp, wasm::i64_add128(half!(ip, sp, 1), half!(ip, sp, 2), half!(ip, sp, 3), half!(ip, sp, 4)));
        next!(cx, ip.add(32), sp, mem, acc)
    }
    /// Likewise.
    sub128(cx, ip, sp, mem, acc) {
        put_halves!(ip, sp, wasm::i64_sub128(half!(ip, sp, 1), half!(ip, sp, 2), half!(ip, sp, 3), half!(ip, sp, 4)));
        next!(cx, ip.add(32), sp, mem, acc)
    }
    /// `dest a b`
    mul_wide_s(cx, ip, sp, mem, acc) {
        put_halves!(ip, sp, wasm::i64_mul_wide_s(half!(ip, sp, 1), half!(ip, sp, 2)));
        next!(cx, ip.add(24), sp, mem, acc)
    }
    /// `dest a b`
    mul_wide_u(cx, ip, sp, mem, acc) {
        put_halves!(ip, sp, wasm::i64_mul_wide_u(half!(ip, sp, 1), half!(ip, sp, 2)));
        next!(cx, ip.add(24), sp, mem, acc)
    }
    /// `amount caller`: takes the fuel of the operators up to the next charge.
    charge(cx, ip, sp, mem, acc) {
        let left = cx.fuel - i64::from(field!(ip, 0));
        if left < 0 {
            cx.exit_acc = acc;
            trap!(cx, ip, sp, TrapKind::OutOfFuel)
        }
        cx.fuel = left;
        next!(cx, ip.add(16), sp, mem, acc)
    }
    /// `target`
    jump(cx, ip, sp, mem, acc) { next!(cx, target!(ip, 0), sp, mem, acc) }
    /// `target`, where a charge is.
    jump_charging(cx, ip, sp, mem, acc) { next_block!(cx, target!(ip, 0), sp, mem, acc) }
    /// `count index`, then `count + 1` jumps of 16 bytes each, the last one the default.
    br_table_slot(cx, ip, sp, mem, acc) {
        let index = slot!(sp, field!(ip, 1)) as u32;
        let index = if mutant!(TableIndex16) { index & 0xffff } else { index }.min(field!(ip, 0));
        next!(cx, ip.add(16 + 16 * index as usize), sp, mem, acc)
    }
    /// `count -`, likewise with the index in the accumulator.
    br_table_acc(cx, ip, sp, mem, acc) {
        let index = (acc as u32).min(field!(ip, 0));
        next!(cx, ip.add(16 + 16 * index as usize), sp, mem, acc)
    }
    /// No fields.
    unreachable(cx, ip, sp, _mem, _acc) { trap!(cx, ip, sp, TrapKind::Unreachable) }
    /// The stub of a function that was never called: its index follows the header word.
    translate_first(cx, ip, sp, _mem, _acc) {
        cx.exit_ip = ip;
        cx.exit_sp = sp;
        super::cx::TRANSLATE
    }
}
