//! Operators on 128-bit vectors.
//!
//! A vector is two adjacent slots, lower half first, which on this little-endian layout is the order of its bytes in memory: a
//! lane is found at its own byte offset in the frame. Handlers with a vector result write field 0's slots and keep the
//! accumulator.
//!
//! Fields: unary `dest a`; binary `dest a b`; ternary `dest a b c`; shift `dest a amount`; test `dest a`; splat `dest value`;
//! extract `dest lane`; replace `dest a value lane` (lane as its byte offset in the vector); load `dest addr offset site`; lane
//! load `dest addr offset site a lane`; frame store `addr bytes offset site`.

use wasmi_core::V128;

use super::cx::{A, Cx, Dest, Handler, I, Ip, Raw, S, Source, Sp, ToAcc, ToSlot, field, next, slot, trap, vector};
use super::memory::{InMemory, handlers, in_bounds, memory_id, probe, rmw, the_store};
use crate::isa::vector::{
    for_each_frame_store, for_each_lane_width, for_each_vector_binary, for_each_vector_extract, for_each_vector_load,
    for_each_vector_replace, for_each_vector_shift, for_each_vector_splat, for_each_vector_ternary, for_each_vector_test,
    for_each_vector_unary, VectorLoad,
};
use crate::probe::{Probe, Rmw, SiteId};
use crate::state::StateView;
use crate::trap::TrapKind;

/// What the tables name.
mod kernel {
    use wasmi_core::V128;
    pub(super) use wasmi_core::simd::*;

    /// The vector with these bits.
    #[inline(always)]
    pub(super) fn v128(bits: u128) -> V128 {
        V128::from(bits)
    }

    /// Each lane of the result is the exact sum of four products: in the deterministic meaning no intermediate sum wraps.
    #[inline(always)]
    pub(super) fn i32x4_relaxed_dot_i8x16_i7x16_add_s(a: V128, b: V128, c: V128) -> V128 {
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
/// How a vector comes of bytes in memory.
pub(crate) trait Load<const N: usize> {
    fn eval(bytes: [u8; N]) -> V128;
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
macro_rules! impl_load {
    ($($v:ident $k:ident ($t:ident);)*) => {$(
        pub(crate) struct $v;
        impl Load<{ size_of::<$t>() }> for $v {
            #[inline(always)]
            fn eval(bytes: [u8; size_of::<$t>()]) -> V128 { kernel::$k($t::from_le_bytes(bytes)) }
        }
    )*};
}
for_each_vector_unary!(impl_unary);
for_each_vector_binary!(impl_binary);
for_each_vector_ternary!(impl_ternary);
for_each_vector_shift!(impl_shift);
for_each_vector_test!(impl_test);
for_each_vector_splat!(impl_splat);
for_each_vector_load!(impl_load);

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
fn lane<const N: usize>(sp: Sp, offset: u32) -> *mut [u8; N] {
    sp.wrapping_add(offset as usize).cast()
}

unsafe extern "C" fn load<V: StateView, P: Probe, O: Load<N>, const N: usize, X: Source>(
    cx: &mut Cx,
    ip: Ip,
    sp: Sp,
    mem: *mut u8,
    acc: u64,
) -> u64 {
    // SAFETY: as for `unary`; the bounds check precedes the access.
    unsafe {
        let addr = X::get::<u32, 1>(ip, sp, acc) as usize + field!(ip, 2) as usize;
        if addr + N > cx.mem_len {
            trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds)
        }
        if P::TRACED {
            let site = field!(ip, 3);
            probe::<P>(cx).load(SiteId(site >> 3), 0, addr as u64, N as u32, rmw(site));
        }
        vector!(sp, field!(ip, 0)) = O::eval(V::load::<N>(mem, addr));
        next!(cx, ip.add(24), sp, mem, acc)
    }
}

unsafe extern "C" fn lane_load<V: StateView, P: Probe, const N: usize, X: Source>(
    cx: &mut Cx,
    ip: Ip,
    sp: Sp,
    mem: *mut u8,
    acc: u64,
) -> u64 {
    // SAFETY: as for `load` and `replace`.
    unsafe {
        let addr = X::get::<u32, 1>(ip, sp, acc) as usize + field!(ip, 2) as usize;
        if addr + N > cx.mem_len {
            trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds)
        }
        if P::TRACED {
            let site = field!(ip, 3);
            probe::<P>(cx).load(SiteId(site >> 3), 0, addr as u64, N as u32, rmw(site));
        }
        let dest = field!(ip, 0);
        vector!(sp, dest) = vector!(sp, field!(ip, 4));
        *lane(sp, dest + field!(ip, 5)) = V::load::<N>(mem, addr);
        next!(cx, ip.add(32), sp, mem, acc)
    }
}

unsafe extern "C" fn frame_store<V: StateView, P: Probe, const N: usize, X: Source>(
    cx: &mut Cx,
    ip: Ip,
    sp: Sp,
    mem: *mut u8,
    acc: u64,
) -> u64 {
    // SAFETY: as for `load`; the bytes are inside a vector.
    unsafe {
        let addr = X::get::<u32, 0>(ip, sp, acc) as usize + field!(ip, 2) as usize;
        if addr + N > cx.mem_len {
            trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds)
        }
        if P::TRACED {
            let site = field!(ip, 3);
            probe::<P>(cx).store(SiteId(site >> 3), 0, addr as u64, N as u32, rmw(site));
        }
        V::store::<N>(mem, addr, *lane(sp, field!(ip, 1)));
        next!(cx, ip.add(24), sp, mem, acc)
    }
}

/// Adds the handlers of the groups of vectors, in the order of their opcodes.
pub(crate) fn push_handlers<V: StateView, P: Probe>(table: &mut Vec<Handler>) {
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
    macro_rules! loads {
        ($($v:ident $k:ident ($m:ident);)*) => {$( loads!(@ $v $m: A, S, I); )*};
        (@ $v:ident $m:ident: $($x:ident),*) => { table.extend([$( load::<V, P, $v, { size_of::<$m>() }, $x> as Handler ),*]) };
    }
    macro_rules! lane_loads {
        ($($v:ident $n:literal;)*) => {$(
            table.extend([lane_load::<V, P, $n, A> as Handler, lane_load::<V, P, $n, S>, lane_load::<V, P, $n, I>]);
        )*};
    }
    macro_rules! frame_stores {
        ($($v:ident $n:literal;)*) => {$(
            table.extend([frame_store::<V, P, $n, A> as Handler, frame_store::<V, P, $n, S>, frame_store::<V, P, $n, I>]);
        )*};
    }
    for_each_vector_unary!(unaries);
    for_each_vector_binary!(binaries);
    for_each_vector_ternary!(ternaries);
    for_each_vector_shift!(shifts);
    for_each_vector_test!(tests);
    for_each_vector_splat!(splats);
    for_each_vector_extract!(extracts);
    for_each_vector_replace!(replaces);
    for_each_vector_load!(loads);
    for_each_lane_width!(lane_loads);
    for_each_frame_store!(frame_stores);
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
    /// `dest addr offset site kind memory`: a load from a memory other than the first.
    vector_load_other(cx, ip, sp, mem, acc) {
        if !load_other::<P>(cx, ip, sp) { trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds) }
        next!(cx, ip.add(32), sp, mem, acc)
    }
    /// `dest addr offset site a lane bytes memory`: a load of a lane from a memory other than the first.
    lane_load_other(cx, ip, sp, mem, acc) {
        if !load_lane_other::<P>(cx, ip, sp) { trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds) }
        next!(cx, ip.add(40), sp, mem, acc)
    }
    /// `addr bytes offset site count memory`: a store of `count` bytes to a memory other than the first.
    frame_store_other(cx, ip, sp, mem, acc) {
        if !store_other::<P>(cx, ip, sp) { trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds) }
        next!(cx, ip.add(32), sp, mem, acc)
    }
}

/// Where `addr offset` (the fields from `first`) lead in a memory, if `len` bytes are there.
///
/// # Safety
/// As for a handler: `ip` and `sp` point at the instruction and its frame, and no reference into the store is held.
unsafe fn place(cx: &Cx, ip: Ip, sp: Sp, addr: usize, memory: u32, len: u32) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe {
        let at = u64::from(slot!(sp, field!(ip, addr)) as u32) + u64::from(field!(ip, 2));
        let id = memory_id(cx, memory);
        in_bounds(at, u64::from(len), the_store(cx).memories[id.index()].len).then_some(at)
    }
}

/// Reports a load from a memory other than the first and gives its bytes, the others being 0.
///
/// # Safety
/// As for [`place`], with the fields `- addr offset site`.
unsafe fn loaded<P: Probe>(cx: &Cx, ip: Ip, sp: Sp, memory: u32, len: u32) -> Option<[u8; 16]> {
    // SAFETY: the caller's promise.
    unsafe {
        let at = place(cx, ip, sp, 1, memory, len)?;
        if P::TRACED {
            probe::<P>(cx).load(SiteId(field!(ip, 3) >> 3), memory, at, len, Rmw::Plain);
        }
        let id = memory_id(cx, memory);
        let mut bytes = [0; 16];
        bytes[..len as usize].copy_from_slice(&the_store(cx).memories[id.index()].bytes()[at as usize..][..len as usize]);
        Some(bytes)
    }
}

/// The rare loads and stores are apart from their handlers, which must not lend out what is on the native stack. `false` is a trap.
///
/// # Safety
/// As for [`place`].
#[inline(never)]
unsafe fn load_other<P: Probe>(cx: &Cx, ip: Ip, sp: Sp) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let (len, make) = LOADS[field!(ip, 4) as usize];
        let Some(bytes) = loaded::<P>(cx, ip, sp, field!(ip, 5), len) else { return false };
        vector!(sp, field!(ip, 0)) = make(u128::from_le_bytes(bytes));
        true
    }
}

/// # Safety
/// As for [`place`].
#[inline(never)]
unsafe fn load_lane_other<P: Probe>(cx: &Cx, ip: Ip, sp: Sp) -> bool {
    // SAFETY: the caller's promise; the lane is inside the vector.
    unsafe {
        let (dest, len) = (field!(ip, 0), field!(ip, 6));
        let Some(bytes) = loaded::<P>(cx, ip, sp, field!(ip, 7), len) else { return false };
        vector!(sp, dest) = vector!(sp, field!(ip, 4));
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), sp.add((dest + field!(ip, 5)) as usize), len as usize);
        true
    }
}

/// # Safety
/// As for [`place`].
#[inline(never)]
unsafe fn store_other<P: Probe>(cx: &Cx, ip: Ip, sp: Sp) -> bool {
    // SAFETY: the caller's promise; the bytes are inside a vector.
    unsafe {
        let (len, memory) = (field!(ip, 4), field!(ip, 5));
        let Some(at) = place(cx, ip, sp, 0, memory, len) else { return false };
        if P::TRACED {
            probe::<P>(cx).store(SiteId(field!(ip, 3) >> 3), memory, at, len, Rmw::Plain);
        }
        let bytes = core::slice::from_raw_parts(sp.add(field!(ip, 1) as usize), len as usize);
        let id = memory_id(cx, memory);
        the_store(cx).memories[id.index()].bytes_mut()[at as usize..][..len as usize].copy_from_slice(bytes);
        true
    }
}

macro_rules! load_table {
    ($($v:ident $k:ident ($t:ident);)*) => { [$( (size_of::<$t>() as u32, |bits| kernel::$k(bits as $t)) ),*] };
}
/// How many bytes each kind of load takes, and what it makes of them.
const LOADS: [(u32, fn(u128) -> V128); VectorLoad::COUNT as usize] = for_each_vector_load!(load_table);
