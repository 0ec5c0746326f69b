//! Loads, stores and the other operators of linear memory.
//!
//! Fields: load `dest addr offset site`; store `addr value offset site`. The low three bits of a site field hold the access's
//! [`Rmw`] role, the rest the [`SiteId`].
//!
//! A memory's index type is known when code is translated: memory 0 with 64-bit addresses has loads and stores of its own ([`Address`]).
//! What takes addresses and lengths from slots reads all 64 bits, which are right for both index types because i32 values are kept
//! zero-extended.

use std::marker::PhantomData;

use super::cx::{A, Cx, Dest, Handler, I, Ip, Raw, S, Source, Sp, ToAcc, ToSlot, field, next, slot, trap};
use super::hooks::Hooks;
use crate::isa::{for_each_load, for_each_store};
use crate::mutants::{self, mutant};
use crate::probe::{Probe, Rmw, SiteId};
use crate::state::StateView;
use crate::store::Store;
use crate::trap::TrapKind;
use crate::value::MemoryId;

/// A type as it lies in memory.
pub(crate) trait InMemory<const N: usize>: Copy {
    fn from_bytes(bytes: [u8; N]) -> Self;
    fn to_bytes(self) -> [u8; N];
}
macro_rules! in_memory {
    ($($ty:ident),*) => {$(
        impl InMemory<{ size_of::<$ty>() }> for $ty {
            #[inline(always)]
            fn from_bytes(bytes: [u8; size_of::<$ty>()]) -> $ty { $ty::from_le_bytes(bytes) }
            #[inline(always)]
            fn to_bytes(self) -> [u8; size_of::<$ty>()] { self.to_le_bytes() }
        }
    )*};
}
in_memory!(u8, i8, u16, i16, u32, i32, u64, i64, u128);

/// The role that a site field's low bits name.
pub(super) fn rmw(bits: u32) -> Rmw {
    match bits & 7 {
        1 => Rmw::Add,
        2 => Rmw::And,
        3 => Rmw::Or,
        4 => Rmw::Xor,
        _ => Rmw::Plain,
    }
}

/// The probe behind a context.
///
/// # Safety
/// `P` must be the probe type with which the run began.
#[inline(always)]
pub(super) unsafe fn probe<'a, P: Probe>(cx: &Cx) -> Hooks<'a, P> {
    // SAFETY: the driver put a `&mut P` there that nobody else uses while handlers run.
    Hooks(unsafe { &mut *cx.probe.cast::<P>() })
}

/// An address operand of memory 0, as wide as the memory's index type.
pub(super) trait Address: Raw {
    /// Where an access of `len` bytes at this address and `offset` begins, unless it leaves a memory of `size` bytes.
    fn reach(self, offset: u32, len: usize, size: usize) -> Option<usize>;
}

impl Address for u32 {
    #[inline(always)]
    fn reach(self, offset: u32, len: usize, size: usize) -> Option<usize> {
        let at = if mutant!(OffsetWraps) { self.wrapping_add(offset) as usize } else { self as usize + offset as usize };
        (at + mutants::reached(len) <= size).then_some(at)
    }
}

impl Address for u64 {
    #[inline(always)]
    fn reach(self, offset: u32, len: usize, size: usize) -> Option<usize> {
        let sum = self.checked_add(u64::from(offset));
        let at = if mutant!(OffsetWraps64) { self.wrapping_add(u64::from(offset)) } else { sum? };
        (at <= (size as u64).checked_sub(len as u64)?).then_some(at as usize)
    }
}

/// What a load does with its bytes.
pub(super) trait Loaded<const N: usize> {
    /// Bytes of the instruction.
    const LENGTH: usize;

    /// Puts the bytes where they belong and gives what is then in the accumulator.
    ///
    /// # Safety
    /// `ip` must point at such a load, `sp` at its frame.
    unsafe fn put(ip: Ip, sp: Sp, acc: u64, bytes: [u8; N]) -> u64;
}

/// Where a store has its bytes.
pub(super) trait Stored<const N: usize> {
    /// # Safety
    /// As for [`Loaded::put`].
    unsafe fn get(ip: Ip, sp: Sp, acc: u64) -> [u8; N];
}

/// A number that lies in memory as an `M` and is loaded as a `T`.
struct Number<M, T, D>(PhantomData<(M, T, D)>);

impl<M: InMemory<N>, T: Raw + From<M>, D: Dest, const N: usize> Loaded<N> for Number<M, T, D> {
    const LENGTH: usize = 24;

    #[inline(always)]
    unsafe fn put(ip: Ip, sp: Sp, _: u64, bytes: [u8; N]) -> u64 {
        let raw = T::from(M::from_bytes(bytes)).into_raw();
        // SAFETY: the caller's promise.
        unsafe { D::put(ip, sp, raw) }
        raw
    }
}

/// A number that lies in memory as an `M`, from operand `Y`.
struct Operand<M, Y>(PhantomData<(M, Y)>);

impl<M: InMemory<N> + Raw, Y: Source, const N: usize> Stored<N> for Operand<M, Y> {
    #[inline(always)]
    unsafe fn get(ip: Ip, sp: Sp, acc: u64) -> [u8; N] {
        // SAFETY: the caller's promise.
        unsafe { Y::get::<M, 1>(ip, sp, acc) }.to_bytes()
    }
}

pub(super) unsafe extern "C" fn load<V: StateView, P: Probe, L: Loaded<N>, const N: usize, T: Address, X: Source>(
    cx: &mut Cx,
    ip: Ip,
    sp: Sp,
    mem: *mut u8,
    acc: u64,
) -> u64 {
    // SAFETY: as for `load_with`.
    unsafe { load_with::<V, P, L, N, T, X, false>(cx, ip, sp, mem, acc) }
}

/// What `load` goes on with when the probe wants to know: nothing of `load` itself lives across the report. Inlined, it would have
/// every load save registers for it.
#[inline(never)]
unsafe extern "C" fn report_load<V: StateView, P: Probe, L: Loaded<N>, const N: usize, T: Address, X: Source>(
    cx: &mut Cx,
    ip: Ip,
    sp: Sp,
    mem: *mut u8,
    acc: u64,
) -> u64 {
    // SAFETY: as for `load_with`.
    unsafe { load_with::<V, P, L, N, T, X, true>(cx, ip, sp, mem, acc) }
}

#[inline(always)]
unsafe fn load_with<V: StateView, P: Probe, L: Loaded<N>, const N: usize, T: Address, X: Source, const REPORT: bool>(
    cx: &mut Cx,
    ip: Ip,
    sp: Sp,
    mem: *mut u8,
    acc: u64,
) -> u64 {
    // SAFETY: code comes from the translator, which gives this opcode the fields named in the module's text; the bounds check
    // precedes the access.
    unsafe {
        let Some(addr) = X::get::<T, 1>(ip, sp, acc).reach(field!(ip, 2), N, cx.mem_len) else {
            trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds)
        };
        if P::TRACED && P::ACCESSES {
            let site = field!(ip, 3);
            if REPORT {
                probe::<P>(cx).load(SiteId(site >> 3), 0, addr as u64, N as u32, rmw(site));
            } else if !probe::<P>(cx).0.knows_load(addr as u64, N as u32, rmw(site)) {
                return report_load::<V, P, L, N, T, X>(cx, ip, sp, mem, acc);
            }
        }
        let acc = L::put(ip, sp, acc, V::load::<N>(mem, addr));
        next!(cx, ip.add(L::LENGTH), sp, mem, acc)
    }
}

pub(super) unsafe extern "C" fn store<V: StateView, P: Probe, G: Stored<N>, const N: usize, T: Address, X: Source>(
    cx: &mut Cx,
    ip: Ip,
    sp: Sp,
    mem: *mut u8,
    acc: u64,
) -> u64 {
    // SAFETY: as for `store_with`.
    unsafe { store_with::<V, P, G, N, T, X, false>(cx, ip, sp, mem, acc) }
}

/// As [`report_load`].
#[inline(never)]
unsafe extern "C" fn report_store<V: StateView, P: Probe, G: Stored<N>, const N: usize, T: Address, X: Source>(
    cx: &mut Cx,
    ip: Ip,
    sp: Sp,
    mem: *mut u8,
    acc: u64,
) -> u64 {
    // SAFETY: as for `store_with`.
    unsafe { store_with::<V, P, G, N, T, X, true>(cx, ip, sp, mem, acc) }
}

#[inline(always)]
unsafe fn store_with<V: StateView, P: Probe, G: Stored<N>, const N: usize, T: Address, X: Source, const REPORT: bool>(
    cx: &mut Cx,
    ip: Ip,
    sp: Sp,
    mem: *mut u8,
    acc: u64,
) -> u64 {
    // SAFETY: as for `load_with`.
    unsafe {
        let Some(addr) = X::get::<T, 0>(ip, sp, acc).reach(field!(ip, 2), N, cx.mem_len) else {
            trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds)
        };
        if P::TRACED && P::ACCESSES {
            let site = field!(ip, 3);
            if REPORT {
                probe::<P>(cx).store(SiteId(site >> 3), 0, addr as u64, N as u32, rmw(site));
            } else if !probe::<P>(cx).0.knows_store(addr as u64, N as u32, rmw(site)) {
                return report_store::<V, P, G, N, T, X>(cx, ip, sp, mem, acc);
            }
        }
        // Fetched last: bytes that lived across the report would have a place on the native stack.
        V::store::<N>(mem, addr, G::get(ip, sp, acc));
        next!(cx, ip.add(24), sp, mem, acc)
    }
}

/// Adds the handlers of the groups load and store, in the order of their opcodes.
pub(crate) fn push_handlers<V: StateView, P: Probe>(table: &mut Vec<Handler>) {
    macro_rules! loads {
        ($($v:ident ($m:ident => $t:ident);)*) => {$( loads!(@ u32 $m $t: A, S, I); )*};
        (@ $a:ident $m:ident $t:ident: $($x:ident),*) => { table.extend([$(
            load::<V, P, Number<$m, $t, ToAcc>, { size_of::<$m>() }, $a, $x> as Handler,
            load::<V, P, Number<$m, $t, ToSlot>, { size_of::<$m>() }, $a, $x>
        ),*]) };
    }
    macro_rules! stores {
        ($($v:ident ($m:ident);)*) => {$( stores!(@ u32 $m: S S, S I, S A, A S, A I, I S, I A, I I); )*};
        (@ $a:ident $m:ident: $($x:ident $y:ident),*) => { table.extend([$(
            store::<V, P, Operand<$m, $y>, { size_of::<$m>() }, $a, $x> as Handler
        ),*]) };
    }
    for_each_load!(loads);
    for_each_store!(stores);
}

/// Likewise for the groups of 64-bit memories.
pub(crate) fn push_handlers64<V: StateView, P: Probe>(table: &mut Vec<Handler>) {
    macro_rules! loads {
        ($($v:ident ($m:ident => $t:ident);)*) => {$( table.extend([
            load::<V, P, Number<$m, $t, ToAcc>, { size_of::<$m>() }, u64, A> as Handler,
            load::<V, P, Number<$m, $t, ToSlot>, { size_of::<$m>() }, u64, A>,
            load::<V, P, Number<$m, $t, ToAcc>, { size_of::<$m>() }, u64, S>,
            load::<V, P, Number<$m, $t, ToSlot>, { size_of::<$m>() }, u64, S>,
        ]); )*};
    }
    macro_rules! stores {
        ($($v:ident ($m:ident);)*) => {$( stores!(@ $m: S S, S I, S A, A S, A I); )*};
        (@ $m:ident: $($x:ident $y:ident),*) => { table.extend([$(
            store::<V, P, Operand<$m, $y>, { size_of::<$m>() }, u64, $x> as Handler
        ),*]) };
    }
    for_each_load!(loads);
    for_each_store!(stores);
}

/// The memory with index `index` of the running instance.
///
/// # Safety
/// `cx.store` must be the running store; the caller holds no other reference into its memories.
pub(super) unsafe fn memory_id(cx: &Cx, index: u32) -> MemoryId {
    // SAFETY: the caller's promise.
    unsafe { (&(*cx.store).instances)[cx.instance as usize].memories[index as usize] }
}

/// The running store.
///
/// # Safety
/// The caller must not hold another reference into it.
#[inline(always)]
pub(super) unsafe fn the_store<'a>(cx: &Cx) -> &'a mut Store {
    // SAFETY: the driver holds `&mut Store` and lends it to the handlers.
    unsafe { &mut *cx.store }
}

/// The address in the slot that field `addr` names, with the 64-bit offset in the fields `low` and `high`; one past all memories when
/// the sum has no 64 bits.
///
/// # Safety
/// `ip` must point at an instruction with these fields, `sp` at its frame.
#[inline(always)]
pub(super) unsafe fn effective(ip: Ip, sp: Sp, addr: usize, low: usize, high: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { slot!(sp, field!(ip, addr)).saturating_add(u64::from(field!(ip, low)) | u64::from(field!(ip, high)) << 32) }
}

/// Checks a range of a memory; the trap is the same for all operators.
pub(super) fn in_bounds(at: u64, len: u64, size: usize) -> bool {
    let size = if mutant!(BulkEndTight) && len > 1 { size.saturating_sub(1) } else { size };
    at.checked_add(len).is_some_and(|end| end <= size as u64)
}

/// Copies items one after the other, the first one first, as only mutants do.
///
/// # Safety
/// Both places must hold so many.
pub(super) unsafe fn copy_forward<T: Copy>(source: *const T, target: *mut T, len: usize) {
    for i in 0..len {
        // SAFETY: the caller's promise.
        unsafe { target.add(i).write_volatile(*source.add(i)) };
    }
}

/// What a bulk operator costs beyond its own operator: one unit for each 8 bytes begun.
fn bulk_fuel(bytes: u64) -> i64 {
    if mutant!(FuelBulkDown) { (bytes / 8) as i64 } else { bytes.div_ceil(8) as i64 }
}

/// Takes a bulk operator's extra fuel; `false` when there is not enough.
pub(super) fn take_fuel(cx: &mut Cx, amount: i64, acc: u64) -> bool {
    if !cx.counted {
        return true;
    }
    if cx.fuel < amount {
        (cx.exit_acc, cx.amount) = (acc, amount);
        return false;
    }
    cx.fuel -= amount;
    true
}

/// `memory.init`. Apart from its handler, because a handler must own nothing that is dropped after its tail call.
///
/// # Safety
/// As for the handler: `ip` and `sp` point at the instruction and its frame, and no reference into the store is held.
#[inline(never)]
unsafe fn init<P: Probe>(cx: &mut Cx, ip: Ip, sp: Sp, acc: u64) -> Result<(), TrapKind> {
    // SAFETY: the caller's promise.
    unsafe {
        let [to, from, len] = [0, 1, 2].map(|n| slot!(sp, field!(ip, n)));
        let (memory, segment, site) = (field!(ip, 3), field!(ip, 4), SiteId(field!(ip, 5)));
        let id = memory_id(cx, memory);
        let (module, dropped) = {
            let instance = &the_store(cx).instances[cx.instance as usize];
            (instance.module.clone(), instance.data_dropped[segment as usize])
        };
        let range = module.inner().data[segment as usize].range.clone();
        mutant! { InitZeroUnchecked: if len == 0 { return Ok(()); } }
        let data = if dropped && !mutant!(DataDropIgnored) { &[][..] } else { &module.bytes()[range] };
        let bytes = the_store(cx).memories[id.index()].bytes_mut();
        if !in_bounds(from, len, data.len()) || !in_bounds(to, len, bytes.len()) {
            return Err(TrapKind::MemoryOutOfBounds);
        }
        if !take_fuel(cx, bulk_fuel(len), acc) {
            return Err(TrapKind::OutOfFuel);
        }
        if P::TRACED {
            probe::<P>(cx).segment_use(site, false, segment, false);
            if len > 0 {
                probe::<P>(cx).bulk_write(site, memory, to..to + len);
            }
        }
        let from = if mutant!(InitFromStart) { 0 } else { from };
        bytes[to as usize..(to + len) as usize].copy_from_slice(&data[from as usize..(from + len) as usize]);
        Ok(())
    }
}

macro_rules! handlers {
    ($($(#[$doc:meta])* $name:ident($cx:ident, $ip:ident, $sp:ident, $mem:ident, $acc:ident) $body:block)*) => {$(
        $(#[$doc])*
        #[allow(unused_variables, reason = "not every body needs every register")]
        #[allow(clippy::extra_unused_type_parameters, reason = "nor every seam")]
        pub(super) unsafe extern "C" fn $name<V: StateView, P: Probe>($cx: &mut Cx, $ip: Ip, $sp: Sp, $mem: *mut u8, $acc: u64) -> u64 {
            // SAFETY: code comes from the translator, which gives this opcode the fields named in its comment; the store is
            // reached through the context only, one reference at a time.
            unsafe { $body }
        }
    )*};
}
pub(super) use handlers;

handlers! {
    /// `dest addr offset site kind memory offset-high`: a load from a memory other than the first, or with an offset beyond 32 bits.
    load_other(cx, ip, sp, mem, _acc) {
        let memory = field!(ip, 5);
        let (width, extend): (usize, fn(u64) -> u64) = match field!(ip, 4) {
            0 => (1, |v| v), 1 => (2, |v| v), 2 => (4, |v| v), 3 => (8, |v| v),
            4 => (1, |v| u64::from(v as i8 as u32)), 5 => (2, |v| u64::from(v as i16 as u32)),
            6 => (1, |v| v as i8 as u64), 7 => (2, |v| v as i16 as u64), _ => (4, |v| v as i32 as u64),
        };
        let addr = effective(ip, sp, 1, 2, 6);
        let id = memory_id(cx, memory);
        let bytes = the_store(cx).memories[id.index()].bytes();
        if !in_bounds(addr, width as u64, bytes.len()) { trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds) }
        if P::TRACED { probe::<P>(cx).load(SiteId(field!(ip, 3) >> 3), memory, addr, width as u32, Rmw::Plain); }
        let mut raw = [0; 8];
        raw[..width].copy_from_slice(&bytes[addr as usize..addr as usize + width]);
        let raw = extend(u64::from_le_bytes(raw));
        slot!(sp, field!(ip, 0)) = raw;
        next!(cx, ip.add(40), sp, mem, raw)
    }
    /// `addr value offset site width memory offset-high`: a store, likewise.
    store_other(cx, ip, sp, mem, acc) {
        let memory = field!(ip, 5);
        let width = field!(ip, 4) as usize;
        let addr = effective(ip, sp, 0, 2, 6);
        let value = slot!(sp, field!(ip, 1)).to_le_bytes();
        let id = memory_id(cx, memory);
        let bytes = the_store(cx).memories[id.index()].bytes_mut();
        if !in_bounds(addr, width as u64, bytes.len()) { trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds) }
        let reports = P::TRACED && !mutant!(EventStoreLost);
        if reports { probe::<P>(cx).store(SiteId(field!(ip, 3) >> 3), memory, addr, width as u32, Rmw::Plain); }
        bytes[addr as usize..addr as usize + width].copy_from_slice(&value[..width]);
        next!(cx, ip.add(40), sp, mem, acc)
    }
    /// `dest memory site`
    memory_size(cx, ip, sp, mem, _acc) {
        let memory = field!(ip, 1);
        let pages = the_store(cx).memories[memory_id(cx, memory).index()].pages;
        if P::TRACED { probe::<P>(cx).memory_size(SiteId(field!(ip, 2)), memory); }
        slot!(sp, field!(ip, 0)) = pages;
        next!(cx, ip.add(24), sp, mem, pages)
    }
    /// `dest delta memory site failure-high`
    memory_grow(cx, ip, sp, mem, _acc) {
        let memory = field!(ip, 2);
        let delta = slot!(sp, field!(ip, 1));
        let id = memory_id(cx, memory);
        let inst = &mut the_store(cx).memories[id.index()];
        let previous = inst.grow(delta);
        // The base never moves; only the length that handlers check against changes. Two indices may name one memory.
        let len = inst.len;
        if id == memory_id(cx, 0) && !mutant!(GrowStaleLength) { cx.mem_len = len; }
        if P::TRACED { probe::<P>(cx).memory_grow(SiteId(field!(ip, 3)), memory, delta, previous); }
        let previous = if mutant!(GrowReturnsNew) { previous.map(|pages| pages + delta) } else { previous };
        // -1, as wide as the memory's index type.
        let raw = previous.unwrap_or(u64::from(u32::MAX) | u64::from(field!(ip, 4)) << 32);
        slot!(sp, field!(ip, 0)) = raw;
        next!(cx, ip.add(32), sp, mem, raw)
    }
    /// `to from len memory-to memory-from site` (slots, then indices)
    memory_copy(cx, ip, sp, mem, acc) {
        let [to, from, len] = [0, 1, 2].map(|n| slot!(sp, field!(ip, n)));
        let (to_index, from_index) = (field!(ip, 3), field!(ip, 4));
        let (to_id, from_id) = (memory_id(cx, to_index), memory_id(cx, from_index));
        let memories = &mut the_store(cx).memories;
        mutant! { CopyZeroUnchecked: if len == 0 { next!(cx, ip.add(32), sp, mem, acc) } }
        if !in_bounds(from, len, memories[from_id.index()].len) || !in_bounds(to, len, memories[to_id.index()].len) {
            trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds)
        }
        if !take_fuel(cx, bulk_fuel(len), acc) { trap!(cx, ip, sp, TrapKind::OutOfFuel) }
        if P::TRACED && len > 0 {
            probe::<P>(cx).bulk_read(SiteId(field!(ip, 5)), from_index, from..from + len);
            probe::<P>(cx).bulk_write(SiteId(field!(ip, 5)), to_index, to..to + len);
        }
        let source = memories[from_id.index()].base.as_ptr().add(from as usize);
        let target = memories[to_id.index()].base.as_ptr().add(to as usize);
        let forward = mutant!(CopyForward) || (mutant!(CopyForwardNear) && len > 16 && (1..8).contains(&to.wrapping_sub(from)));
        let copy = if forward { copy_forward } else { core::ptr::copy };
        copy(source, target, len as usize);
        next!(cx, ip.add(32), sp, mem, acc)
    }
    /// `to value len memory site`
    memory_fill(cx, ip, sp, mem, acc) {
        let [to, value, len] = [0, 1, 2].map(|n| slot!(sp, field!(ip, n)));
        let memory = field!(ip, 3);
        let bytes = the_store(cx).memories[memory_id(cx, memory).index()].bytes_mut();
        mutant! { FillZeroUnchecked: if len == 0 { next!(cx, ip.add(32), sp, mem, acc) } }
        mutant! { FillPartial: if to.saturating_add(len) > bytes.len() as u64 && let Some(rest) = bytes.get_mut(to as usize..) { rest.fill(value as u8); } }
        if !in_bounds(to, len, bytes.len()) { trap!(cx, ip, sp, TrapKind::MemoryOutOfBounds) }
        if !take_fuel(cx, bulk_fuel(len), acc) { trap!(cx, ip, sp, TrapKind::OutOfFuel) }
        let reports = P::TRACED && (len > 0 || mutant!(EventOfNothing));
        if reports { probe::<P>(cx).bulk_write(SiteId(field!(ip, 4)), memory, to..to + len); }
        bytes[to as usize..(to + len) as usize].fill(value as u8);
        next!(cx, ip.add(32), sp, mem, acc)
    }
    /// `to from len memory segment site`
    memory_init(cx, ip, sp, mem, acc) {
        if let Err(kind) = init::<P>(cx, ip, sp, acc) { trap!(cx, ip, sp, kind) }
        next!(cx, ip.add(32), sp, mem, acc)
    }
    /// `segment site`
    data_drop(cx, ip, sp, mem, acc) {
        let segment = field!(ip, 0);
        the_store(cx).instances[cx.instance as usize].data_dropped[segment as usize] = true;
        if P::TRACED { probe::<P>(cx).segment_use(SiteId(field!(ip, 1)), false, segment, true); }
        next!(cx, ip.add(16), sp, mem, acc)
    }
}
