//! Operators on 128-bit vectors; loads and stores are in `vector_memory.rs`.
//!
//! A vector is two adjacent slots, lower half first, which on this little-endian layout is the order of its bytes in memory: a
//! lane is found at its own byte offset in the frame. Handlers with a vector result write field 0's slots and keep the
//! accumulator.
//!
//! Fields: unary `dest a`; binary `dest a b`; ternary `dest a b c`; shift `dest a amount`; test `dest a`; splat `dest value`;
//! extract `dest lane`; replace `dest a value lane` (lane as its byte offset in the vector).

use wasmi_core::V128;

use super::cx::{A, Cx, Dest, Handler, I, Ip, Raw, S, Source, Sp, ToAcc, ToSlot, field, next, slot, vector};
use super::memory::{InMemory, handlers, probe};
use crate::isa::vector::{
    for_each_vector_binary, for_each_vector_extract, for_each_vector_replace, for_each_vector_shift, for_each_vector_splat,
    for_each_vector_ternary, for_each_vector_test, for_each_vector_unary,
};
use crate::probe::{Probe, SiteId};
use crate::state::StateView;

/// What the tables name.
pub(super) mod kernel {
    use wasmi_core::V128;
    #[cfg(feature = "mutants")]
    pub(in crate::execute) use crate::mutants::kernels::vector::*;
    #[cfg(not(feature = "mutants"))]
    pub(in crate::execute) use wasmi_core::simd::*;

    /// The vector with these bits.
    #[inline(always)]
    pub(in crate::execute) fn v128(bits: u128) -> V128 {
        V128::from(bits)
    }

    /// Each lane of the result is the exact sum of four products: in the deterministic meaning no intermediate sum wraps.
    #[inline(always)]
    pub(in crate::execute) fn i32x4_relaxed_dot_i8x16_i7x16_add_s(a: V128, b: V128, c: V128) -> V128 {
        let (a, b) = (a.as_u128().to_le_bytes(), b.as_u128().to_le_bytes());
        let product = |lane: usize| i32::from(a[lane] as i8) * i32::from(b[lane] as i8);
        let sum = |lane: usize| product(lane) + product(lane + 1) + product(lane + 2) + product(lane + 3);
        let bits = |lane: usize| u128::from(sum(4 * lane) as u32) << (32 * lane);
        i32x4_add(V128::from(bits(0) | bits(1) | bits(2) | bits(3)), c)
    }
}

/// An operation on one vector.
pub(crate) trait Unary {
    fn eval(a: V128) -> V128;
}
/// An operation on two vectors.
pub(crate) trait Binary {
    fn eval(a: V128, b: V128) -> V128;
}
/// An operation on three vectors.
pub(crate) trait Ternary {
    fn eval(a: V128, b: V128, c: V128) -> V128;
}
/// An operation on a vector and an i32.
pub(crate) trait Shift {
    fn eval(a: V128, amount: u32) -> V128;
}
/// An operation that makes an i32 of a vector.
pub(crate) trait Test {
    fn eval(a: V128) -> u64;
}
/// An operation that makes a vector of a number.
pub(crate) trait Splat {
    type T: Raw;
    fn eval(value: Self::T) -> V128;
}
/// Every NaN replaced by the canonical one, in lanes of 32 bits.
#[inline(always)]
fn canonical32(v: V128) -> V128 {
    let is_number = kernel::f32x4_eq(v, v);
    kernel::v128_bitselect(v, kernel::i32x4_splat(0x7fc0_0000), is_number)
}

/// Likewise in lanes of 64 bits.
#[inline(always)]
fn canonical64(v: V128) -> V128 {
    let is_number = kernel::f64x2_eq(v, v);
    kernel::v128_bitselect(v, kernel::i64x2_splat(0x7ff8_0000_0000_0000), is_number)
}

macro_rules! finish {
    (plain, $value:expr) => { $value };
    (canon32, $value:expr) => { canonical32($value) };
    (canon64, $value:expr) => { canonical64($value) };
}
macro_rules! impl_unary {
    ($($v:ident $k:ident $kind:ident;)*) => {$(
        pub(crate) struct $v;
        impl Unary for $v {
            #[inline(always)]
            fn eval(a: V128) -> V128 { finish!($kind, kernel::$k(a)) }
        }
    )*};
}
macro_rules! impl_binary {
    ($($v:ident $k:ident $kind:ident;)*) => {$(
        pub(crate) struct $v;
        impl Binary for $v {
            #[inline(always)]
            fn eval(a: V128, b: V128) -> V128 { finish!($kind, kernel::$k(a, b)) }
        }
    )*};
}
macro_rules! impl_ternary {
    ($($v:ident $k:ident $kind:ident;)*) => {$(
        pub(crate) struct $v;
        impl Ternary for $v {
            #[inline(always)]
            fn eval(a: V128, b: V128, c: V128) -> V128 { finish!($kind, kernel::$k(a, b, c)) }
        }
    )*};
}
macro_rules! impl_shift {
    ($($v:ident $k:ident;)*) => {$(
        pub(crate) struct $v;
        impl Shift for $v {
            #[inline(always)]
            fn eval(a: V128, amount: u32) -> V128 { kernel::$k(a, amount) }
        }
    )*};
}
macro_rules! impl_test {
    ($($v:ident $k:ident;)*) => {$(
        pub(crate) struct $v;
        impl Test for $v {
            #[inline(always)]
            fn eval(a: V128) -> u64 { kernel::$k(a).into_raw() }
        }
    )*};
}
macro_rules! impl_splat {
    ($($v:ident $k:ident ($t:ident);)*) => {$(
        pub(crate) struct $v;
        impl Splat for $v {
            type T = $t;
            #[inline(always)]
            fn eval(value: $t) -> V128 { kernel::$k(value as _) }
        }
    )*};
}
for_each_vector_unary!(impl_unary);
for_each_vector_binary!(impl_binary);
for_each_vector_ternary!(impl_ternary);
for_each_vector_shift!(impl_shift);
for_each_vector_test!(impl_test);
for_each_vector_splat!(impl_splat);

unsafe extern "C" fn unary<O: Unary>(cx: &mut Cx, ip: Ip, sp: Sp, mem: *mut u8, acc: u64) -> u64 {
    // SAFETY: code comes from the translator, which gives this opcode the fields named in the module's text; both slots of a
    // vector are inside the frame.
    unsafe {
        vector!(sp, field!(ip, 0)) = O::eval(vector!(sp, field!(ip, 1)));
        next!(cx, ip.add(16), sp, mem, acc)
    }
}

unsafe extern "C" fn binary<O: Binary>(cx: &mut Cx, ip: Ip, sp: Sp, mem: *mut u8, acc: u64) -> u64 {
    // SAFETY: as for `unary`.
    unsafe {
        vector!(sp, field!(ip, 0)) = O::eval(vector!(sp, field!(ip, 1)), vector!(sp, field!(ip, 2)));
        next!(cx, ip.add(24), sp, mem, acc)
    }
}

unsafe extern "C" fn ternary<O: Ternary>(cx: &mut Cx, ip: Ip, sp: Sp, mem: *mut u8, acc: u64) -> u64 {
    // SAFETY: as for `unary`.
    unsafe {
        let (a, b, c) = (vector!(sp, field!(ip, 1)), vector!(sp, field!(ip, 2)), vector!(sp, field!(ip, 3)));
        vector!(sp, field!(ip, 0)) = O::eval(a, b, c);
        next!(cx, ip.add(24), sp, mem, acc)
    }
}

unsafe extern "C" fn shift<O: Shift, X: Source>(cx: &mut Cx, ip: Ip, sp: Sp, mem: *mut u8, acc: u64) -> u64 {
    // SAFETY: as for `unary`.
    unsafe {
        vector!(sp, field!(ip, 0)) = O::eval(vector!(sp, field!(ip, 1)), X::get::<u32, 2>(ip, sp, acc));
        next!(cx, ip.add(24), sp, mem, acc)
    }
}

unsafe extern "C" fn test<O: Test, D: Dest>(cx: &mut Cx, ip: Ip, sp: Sp, mem: *mut u8, _acc: u64) -> u64 {
    // SAFETY: as for `unary`.
    unsafe {
        let raw = O::eval(vector!(sp, field!(ip, 1)));
        D::put(ip, sp, raw);
        next!(cx, ip.add(16), sp, mem, raw)
    }
}

unsafe extern "C" fn splat<O: Splat, X: Source>(cx: &mut Cx, ip: Ip, sp: Sp, mem: *mut u8, acc: u64) -> u64 {
    // SAFETY: as for `unary`.
    unsafe {
        vector!(sp, field!(ip, 0)) = O::eval(X::get::<O::T, 1>(ip, sp, acc));
        next!(cx, ip.add(16), sp, mem, acc)
    }
}

unsafe extern "C" fn extract<M: InMemory<N>, T: Raw + From<M>, const N: usize, D: Dest>(
    cx: &mut Cx,
    ip: Ip,
    sp: Sp,
    mem: *mut u8,
    _acc: u64,
) -> u64 {
    // SAFETY: as for `unary`; a lane is inside its vector.
    unsafe {
        let raw = T::from(M::from_bytes(*lane(sp, field!(ip, 1)))).into_raw();
        D::put(ip, sp, raw);
        next!(cx, ip.add(16), sp, mem, raw)
    }
}

unsafe extern "C" fn replace<M: InMemory<N> + Raw, const N: usize, X: Source>(
    cx: &mut Cx,
    ip: Ip,
    sp: Sp,
    mem: *mut u8,
    acc: u64,
) -> u64 {
    // SAFETY: as for `extract`.
    unsafe {
        let bytes = X::get::<M, 2>(ip, sp, acc).to_bytes();
        let dest = field!(ip, 0);
        vector!(sp, dest) = vector!(sp, field!(ip, 1));
        *lane(sp, dest + field!(ip, 3)) = bytes;
        next!(cx, ip.add(24), sp, mem, acc)
    }
}

/// The bytes of a lane at a byte offset in the frame.
#[inline(always)]
pub(super) fn lane<const N: usize>(sp: Sp, offset: u32) -> *mut [u8; N] {
    sp.wrapping_add(offset as usize).cast()
}

/// Adds the handlers of the groups that do not touch memory, in the order of their opcodes.
pub(crate) fn push_handlers(table: &mut Vec<Handler>) {
    macro_rules! unaries { ($($v:ident $k:ident $kind:ident;)*) => { table.extend([$( unary::<$v> as Handler ),*]) }; }
    macro_rules! binaries { ($($v:ident $k:ident $kind:ident;)*) => { table.extend([$( binary::<$v> as Handler ),*]) }; }
    macro_rules! ternaries { ($($v:ident $k:ident $kind:ident;)*) => { table.extend([$( ternary::<$v> as Handler ),*]) }; }
    macro_rules! shifts {
        ($($v:ident $k:ident;)*) => {$( table.extend([shift::<$v, A> as Handler, shift::<$v, S>, shift::<$v, I>]); )*};
    }
    macro_rules! tests {
        ($($v:ident $k:ident;)*) => {$( table.extend([test::<$v, ToAcc> as Handler, test::<$v, ToSlot>]); )*};
    }
    macro_rules! splats {
        ($($v:ident $k:ident ($t:ident);)*) => {$( table.extend([splat::<$v, A> as Handler, splat::<$v, S>, splat::<$v, I>]); )*};
    }
    macro_rules! extracts {
        ($($v:ident ($m:ident => $t:ident);)*) => {$(
            table.extend([extract::<$m, $t, { size_of::<$m>() }, ToAcc> as Handler, extract::<$m, $t, { size_of::<$m>() }, ToSlot>]);
        )*};
    }
    macro_rules! replaces {
        ($($v:ident ($m:ident);)*) => {$( replaces!(@ $m: A, S, I); )*};
        (@ $m:ident: $($x:ident),*) => { table.extend([$( replace::<$m, { size_of::<$m>() }, $x> as Handler ),*]) };
    }
    for_each_vector_unary!(unaries);
    for_each_vector_binary!(binaries);
    for_each_vector_ternary!(ternaries);
    for_each_vector_shift!(shifts);
    for_each_vector_test!(tests);
    for_each_vector_splat!(splats);
    for_each_vector_extract!(extracts);
    for_each_vector_replace!(replaces);
}

macro_rules! moves {
    ($($(#[$doc:meta])* $name:ident($cx:ident, $ip:ident, $sp:ident, $mem:ident, $acc:ident) $body:block)*) => {$(
        $(#[$doc])*
        pub(super) unsafe extern "C" fn $name($cx: &mut Cx, $ip: Ip, $sp: Sp, $mem: *mut u8, $acc: u64) -> u64 {
            // SAFETY: code comes from the translator, which gives this opcode the fields named in its comment.
            unsafe { $body }
        }
    )*};
}
moves! {
    /// `dest source`
    vector_copy(cx, ip, sp, mem, acc) {
        vector!(sp, field!(ip, 0)) = vector!(sp, field!(ip, 1));
        next!(cx, ip.add(16), sp, mem, acc)
    }
    /// `dest` and four words, the lowest first.
    vector_const(cx, ip, sp, mem, acc) {
        vector!(sp, field!(ip, 0)) = *ip.add(12).cast::<V128>();
        next!(cx, ip.add(32), sp, mem, acc)
    }
    /// `dest a b` and the numbers of sixteen lanes.
    vector_shuffle(cx, ip, sp, mem, acc) {
        let mut both = [0; 32];
        both[..16].copy_from_slice(&*lane::<16>(sp, field!(ip, 1)));
        both[16..].copy_from_slice(&*lane::<16>(sp, field!(ip, 2)));
        let lanes: [u8; 16] = *ip.add(20).cast();
        *lane(sp, field!(ip, 0)) = lanes.map(|lane| both[usize::from(lane) % 32]);
        next!(cx, ip.add(40), sp, mem, acc)
    }
    /// `dest a b condition`: `a` if the condition's slot is not 0, else `b`.
    vector_select_slot(cx, ip, sp, mem, acc) {
        let from = if slot!(sp, field!(ip, 3)) as u32 != 0 { field!(ip, 1) } else { field!(ip, 2) };
        vector!(sp, field!(ip, 0)) = vector!(sp, from);
        next!(cx, ip.add(24), sp, mem, acc)
    }
    /// `dest a b`: likewise with the condition in the accumulator.
    vector_select_acc(cx, ip, sp, mem, acc) {
        let from = if acc as u32 != 0 { field!(ip, 1) } else { field!(ip, 2) };
        vector!(sp, field!(ip, 0)) = vector!(sp, from);
        next!(cx, ip.add(24), sp, mem, acc)
    }
}

handlers! {
    /// `dest global site`
    vector_global_get(cx, ip, sp, mem, acc) {
        let global = field!(ip, 1);
        if P::TRACED && field!(ip, 2) != 0 { probe::<P>(cx).global_get(SiteId(field!(ip, 2)), global); }
        vector!(sp, field!(ip, 0)) = *(*cx.globals.add(global as usize)).cast::<V128>();
        next!(cx, ip.add(24), sp, mem, acc)
    }
    /// `global source site`
    vector_global_set(cx, ip, sp, mem, acc) {
        if P::TRACED { probe::<P>(cx).global_set(SiteId(field!(ip, 2)), field!(ip, 0), slot!(sp, field!(ip, 1))); }
        *(*cx.globals.add(field!(ip, 0) as usize)).cast::<V128>() = vector!(sp, field!(ip, 1));
        next!(cx, ip.add(24), sp, mem, acc)
    }
}
