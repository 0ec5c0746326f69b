//! Loads and stores of 128-bit vectors and of their lanes.
//!
//! Fields: load `dest addr offset site`; lane load `dest addr offset site a lane` (lane as its byte offset in the vector); frame store
//! `addr bytes offset site`, where `bytes` is the byte offset in the frame of a vector or of a lane.

use wasmi_core::V128;

use super::cx::{A, Cx, Handler, I, Ip, S, Source, Sp, field, next, slot, trap, vector};
use super::memory::{handlers, in_bounds, memory_id, probe, rmw, the_store};
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

unsafe extern "C" fn load<V: StateView, P: Probe, O: Load<N>, const N: usize, X: Source>(
    cx: &mut Cx,
    ip: Ip,
    sp: Sp,
    mem: *mut u8,
    acc: u64,
) -> u64 {
    // SAFETY: code comes from the translator, which gives this opcode the fields named in the module's text; both slots of a
    // vector are inside the frame, and the bounds check precedes the access.
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
    // SAFETY: as for `load`; a lane is inside its vector.
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

/// Adds the handlers of the groups that touch memory, in the order of their opcodes.
pub(crate) fn push_handlers<V: StateView, P: Probe>(table: &mut Vec<Handler>) {
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
    for_each_vector_load!(loads);
    for_each_lane_width!(lane_loads);
    for_each_frame_store!(frame_stores);
}

handlers! {
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
