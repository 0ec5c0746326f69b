//! Loads and stores of 128-bit vectors and of their lanes.
//!
//! Fields: load `dest addr offset site`; lane load `dest addr offset site a lane` (lane as its byte offset in the vector); frame store
//! `addr bytes offset site`, where `bytes` is the byte offset in the frame of a vector or of a lane.

use std::marker::PhantomData;

use wasmi_core::V128;

use super::cx::{A, Cx, Handler, I, Ip, S, Sp, field, next, trap, vector};
use super::memory::{Loaded, Stored, effective, handlers, in_bounds, load, memory_id, probe, store, the_store};
use super::vector::{kernel, lane};
use crate::isa::vector::{VectorLoad, for_each_frame_store, for_each_lane_width, for_each_vector_load};
use crate::probe::{Probe, Rmw, SiteId};
use crate::state::StateView;
use crate::trap::TrapKind;

/// How a vector comes of bytes in memory.
pub(crate) trait Load<const N: usize> {
    fn eval(bytes: [u8; N]) -> V128;
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
for_each_vector_load!(impl_load);

/// A vector that comes of bytes as `O` says.
struct Vector<O>(PhantomData<O>);

impl<O: Load<N>, const N: usize> Loaded<N> for Vector<O> {
    const LENGTH: usize = 24;

    #[inline(always)]
    unsafe fn put(ip: Ip, sp: Sp, acc: u64, bytes: [u8; N]) -> u64 {
        // SAFETY: the caller's promise; both slots of a vector are inside the frame.
        unsafe { vector!(sp, field!(ip, 0)) = O::eval(bytes) }
        acc
    }
}

/// A vector of which one lane is loaded.
struct Lane;

impl<const N: usize> Loaded<N> for Lane {
    const LENGTH: usize = 32;

    #[inline(always)]
    unsafe fn put(ip: Ip, sp: Sp, acc: u64, bytes: [u8; N]) -> u64 {
        // SAFETY: as for [`Vector`]; a lane is inside its vector.
        unsafe {
            let dest = field!(ip, 0);
            vector!(sp, dest) = vector!(sp, field!(ip, 4));
            *lane(sp, dest + field!(ip, 5)) = bytes;
        }
        acc
    }
}

/// Bytes of the frame: of a vector, or of a lane.
struct InFrame;

impl<const N: usize> Stored<N> for InFrame {
    #[inline(always)]
    unsafe fn get(ip: Ip, sp: Sp, _: u64) -> [u8; N] {
        // SAFETY: as for [`Lane`].
        unsafe { *lane(sp, field!(ip, 1)) }
    }
}

/// Adds the handlers of the groups that touch memory, in the order of their opcodes.
pub(crate) fn push_handlers<V: StateView, P: Probe>(table: &mut Vec<Handler>) {
    macro_rules! loads {
        ($($v:ident $k:ident ($m:ident);)*) => {$( loads!(@ $v $m: A, S, I); )*};
        (@ $v:ident $m:ident: $($x:ident),*) => { table.extend([$( load::<V, P, Vector<$v>, { size_of::<$m>() }, u32, $x> as Handler ),*]) };
    }
    macro_rules! lane_loads {
        ($($v:ident $n:literal;)*) => {$(
            table.extend([load::<V, P, Lane, $n, u32, A> as Handler, load::<V, P, Lane, $n, u32, S>, load::<V, P, Lane, $n, u32, I>]);
        )*};
    }
    macro_rules! frame_stores {
        ($($v:ident $n:literal;)*) => {$(
            table.extend([store::<V, P, InFrame, $n, u32, A> as Handler, store::<V, P, InFrame, $n, u32, S>, store::<V, P, InFrame, $n, u32, I>]);
        )*};
    }
    for_each_vector_load!(loads);
    for_each_lane_width!(lane_loads);
    for_each_frame_store!(frame_stores);
}

handlers! {
    /// `dest addr offset site kind memory offset-high`: a load from a memory other than the first, or one with 64-bit addresses.
    vector_load_other(cx, ip, sp, mem, acc) {
        if !load_other::<P>(cx, ip, sp) { trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds) }
        next!(cx, ip.add(40), sp, mem, acc)
    }
    /// `dest addr offset site a lane bytes memory offset-high`: a load of a lane, likewise.
    lane_load_other(cx, ip, sp, mem, acc) {
        if !load_lane_other::<P>(cx, ip, sp) { trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds) }
        next!(cx, ip.add(48), sp, mem, acc)
    }
    /// `addr bytes offset site count memory offset-high`: a store of `count` bytes, likewise.
    frame_store_other(cx, ip, sp, mem, acc) {
        if !store_other::<P>(cx, ip, sp) { trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds) }
        next!(cx, ip.add(40), sp, mem, acc)
    }
}

/// Where the fields `addr`, 2 and `high` (the offset's halves) lead in a memory, if `len` bytes are there.
///
/// # Safety
/// As for a handler: `ip` and `sp` point at the instruction and its frame, and no reference into the store is held.
unsafe fn place(cx: &Cx, ip: Ip, sp: Sp, addr: usize, high: usize, memory: u32, len: u32) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe {
        let at = effective(ip, sp, addr, 2, high);
        let id = memory_id(cx, memory);
        in_bounds(at, u64::from(len), the_store(cx).memories[id.index()].len).then_some(at)
    }
}

/// Reports a load from a memory other than the first and gives its bytes, the others being 0.
///
/// # Safety
/// As for [`place`], with the fields `- addr offset site`.
unsafe fn loaded<P: Probe>(cx: &Cx, ip: Ip, sp: Sp, high: usize, memory: u32, len: u32) -> Option<[u8; 16]> {
    // SAFETY: the caller's promise.
    unsafe {
        let at = place(cx, ip, sp, 1, high, memory, len)?;
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
        let Some(bytes) = loaded::<P>(cx, ip, sp, 6, field!(ip, 5), len) else { return false };
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
        let Some(bytes) = loaded::<P>(cx, ip, sp, 8, field!(ip, 7), len) else { return false };
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
        let Some(at) = place(cx, ip, sp, 0, 6, memory, len) else { return false };
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
/// Makes a vector of the bytes that were loaded.
type Make = fn(u128) -> V128;
/// How many bytes each kind of load takes, and what it makes of them.
const LOADS: [(u32, Make); VectorLoad::COUNT as usize] = for_each_vector_load!(load_table);
