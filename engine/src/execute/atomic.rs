//! Atomic operators, for a single agent (`docs/decisions/0010-features.md`): nobody else touches memory between a read and the write
//! that belongs to it, and nobody ever wakes a waiter.
//!
//! Fields of all: `dest addr offset site bytes memory offset-high`, then the operands' slots. The low three bits of a site field hold
//! the role of both accesses of a read-modify-write.

use std::time::Duration;

use super::cx::{Cx, Ip, Sp, field, next, slot, trap};
use super::memory::{effective, handlers, in_bounds, memory_id, probe, rmw, the_store};
use crate::isa::AtomicRmw;
use crate::mutants::mutant;
use crate::probe::{Probe, SiteId};
use crate::state::StateView;
use crate::trap::TrapKind;

handlers! {
    /// No operands.
    atomic_load(cx, ip, sp, mem, _acc) {
        if let Err(kind) = load::<P>(cx, ip, sp) { trap!(cx, ip, sp, kind) }
        next!(cx, ip.add(40), sp, mem, slot!(sp, field!(ip, 0)))
    }
    /// `value`; there is no destination.
    atomic_store(cx, ip, sp, mem, acc) {
        if let Err(kind) = store::<P>(cx, ip, sp) { trap!(cx, ip, sp, kind) }
        next!(cx, ip.add(40), sp, mem, acc)
    }
    /// `value`, then an [`AtomicRmw`].
    atomic_rmw(cx, ip, sp, mem, _acc) {
        if let Err(kind) = modify::<P>(cx, ip, sp) { trap!(cx, ip, sp, kind) }
        next!(cx, ip.add(48), sp, mem, slot!(sp, field!(ip, 0)))
    }
    /// `expected replacement`
    atomic_cmpxchg(cx, ip, sp, mem, _acc) {
        if let Err(kind) = compare_exchange::<P>(cx, ip, sp) { trap!(cx, ip, sp, kind) }
        next!(cx, ip.add(48), sp, mem, slot!(sp, field!(ip, 0)))
    }
    /// `expected timeout`
    atomic_wait(cx, ip, sp, mem, _acc) {
        if let Err(kind) = wait::<P>(cx, ip, sp) { trap!(cx, ip, sp, kind) }
        next!(cx, ip.add(48), sp, mem, slot!(sp, field!(ip, 0)))
    }
    /// No operands: it touches nothing, but an address that is no good traps.
    atomic_notify(cx, ip, sp, mem, _acc) {
        if let Err(kind) = notify(cx, ip, sp) { trap!(cx, ip, sp, kind) }
        next!(cx, ip.add(40), sp, mem, 0)
    }
}

/// The bytes of an atomic access.
#[derive(Clone, Copy)]
struct Place {
    /// The address.
    at: u64,
    first: *mut u8,
    bytes: u32,
}

impl Place {
    /// Where an instruction's access goes. Alignment is checked first, as Wasmtime does.
    ///
    /// # Safety
    /// `ip` must point at an atomic instruction, `sp` at its frame, and no reference into the store is held.
    unsafe fn of(cx: &Cx, ip: Ip, sp: Sp) -> Result<Place, TrapKind> {
        // SAFETY: the caller's promise.
        unsafe {
            let (bytes, id) = (field!(ip, 4), memory_id(cx, field!(ip, 5)));
            let at = effective(ip, sp, 1, 2, 6);
            // The sum's lower bits; offsets are added modulo 2^64.
            let lower = slot!(sp, field!(ip, 1)).wrapping_add(if mutant!(AlignmentOfAddress) { 0 } else { u64::from(field!(ip, 2)) });
            let alignment = if mutant!(AlignmentHalf) { bytes.min(4) } else { bytes };
            if !lower.is_multiple_of(u64::from(alignment)) {
                return Err(TrapKind::UnalignedAtomic);
            }
            let memory = &mut the_store(cx).memories[id.index()];
            if !in_bounds(at, u64::from(bytes), memory.len) {
                return Err(TrapKind::MemoryOutOfBounds);
            }
            Ok(Place { at, first: memory.base.as_ptr().add(at as usize), bytes })
        }
    }

    /// # Safety
    /// The memory must not have been given up since [`Place::of`].
    unsafe fn read(self) -> u64 {
        let mut raw = [0; 8];
        // SAFETY: in bounds, as `of` checked, and a memory never moves; at most 8 bytes.
        unsafe { core::ptr::copy_nonoverlapping(self.first, raw.as_mut_ptr(), self.bytes as usize) };
        u64::from_le_bytes(raw)
    }

    /// Writes the lower bytes of a value.
    ///
    /// # Safety
    /// As for [`Place::read`].
    unsafe fn write(self, value: u64) {
        // SAFETY: as for `read`.
        unsafe { core::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), self.first, self.bytes as usize) };
    }

    /// The lower bytes of a value.
    fn narrowed(self, value: u64) -> u64 {
        value & (u64::MAX >> (64 - 8 * self.bytes))
    }

    /// # Safety
    /// As for [`Place::of`].
    unsafe fn report_load<P: Probe>(self, cx: &Cx, ip: Ip) {
        // SAFETY: the caller's promise.
        unsafe {
            let site = field!(ip, 3);
            if P::TRACED {
                probe::<P>(cx).load(SiteId(site >> 3), field!(ip, 5), self.at, self.bytes, rmw(site));
            }
        }
    }

    /// # Safety
    /// As for [`Place::of`].
    unsafe fn report_store<P: Probe>(self, cx: &Cx, ip: Ip) {
        // SAFETY: the caller's promise.
        unsafe {
            let site = field!(ip, 3);
            if P::TRACED {
                probe::<P>(cx).store(SiteId(site >> 3), field!(ip, 5), self.at, self.bytes, rmw(site));
            }
        }
    }
}

// What follows is apart from the handlers, which must lend out nothing that is on the native stack.

/// # Safety
/// As for [`Place::of`]; the same holds for the others.
#[inline(never)]
unsafe fn load<P: Probe>(cx: &Cx, ip: Ip, sp: Sp) -> Result<(), TrapKind> {
    // SAFETY: the caller's promise.
    unsafe {
        let place = Place::of(cx, ip, sp)?;
        place.report_load::<P>(cx, ip);
        slot!(sp, field!(ip, 0)) = place.read();
        Ok(())
    }
}

/// # Safety
/// As for [`load`].
#[inline(never)]
unsafe fn store<P: Probe>(cx: &Cx, ip: Ip, sp: Sp) -> Result<(), TrapKind> {
    // SAFETY: the caller's promise.
    unsafe {
        let place = Place::of(cx, ip, sp)?;
        place.report_store::<P>(cx, ip);
        place.write(slot!(sp, field!(ip, 7)));
        Ok(())
    }
}

/// # Safety
/// As for [`load`].
#[inline(never)]
unsafe fn modify<P: Probe>(cx: &Cx, ip: Ip, sp: Sp) -> Result<(), TrapKind> {
    // SAFETY: the caller's promise.
    unsafe {
        let place = Place::of(cx, ip, sp)?;
        place.report_load::<P>(cx, ip);
        place.report_store::<P>(cx, ip);
        let (old, value) = (place.read(), slot!(sp, field!(ip, 7)));
        let new = match AtomicRmw::ALL[field!(ip, 8) as usize] {
            AtomicRmw::Add => old.wrapping_add(value),
            AtomicRmw::Sub if mutant!(RmwSubSwapped) => value.wrapping_sub(old),
            AtomicRmw::Sub => old.wrapping_sub(value),
            AtomicRmw::And => old & value,
            AtomicRmw::Or => old | value,
            AtomicRmw::Xor => old ^ value,
            AtomicRmw::Xchg => value,
        };
        place.write(new);
        slot!(sp, field!(ip, 0)) = if mutant!(RmwReturnsNew) && place.bytes == 2 { place.narrowed(new) } else { old };
        Ok(())
    }
}

/// # Safety
/// As for [`load`].
#[inline(never)]
unsafe fn compare_exchange<P: Probe>(cx: &Cx, ip: Ip, sp: Sp) -> Result<(), TrapKind> {
    // SAFETY: the caller's promise.
    unsafe {
        let place = Place::of(cx, ip, sp)?;
        place.report_load::<P>(cx, ip);
        let old = place.read();
        let expected = slot!(sp, field!(ip, 7));
        if old == if mutant!(CmpxchgWide) { expected } else { place.narrowed(expected) } {
            place.report_store::<P>(cx, ip);
            place.write(slot!(sp, field!(ip, 8)));
        }
        slot!(sp, field!(ip, 0)) = old;
        Ok(())
    }
}

/// # Safety
/// As for [`load`].
#[inline(never)]
unsafe fn wait<P: Probe>(cx: &Cx, ip: Ip, sp: Sp) -> Result<(), TrapKind> {
    const NOT_EQUAL: u64 = 1;
    const TIMED_OUT: u64 = 2;
    // SAFETY: the caller's promise.
    unsafe {
        let place = Place::of(cx, ip, sp)?;
        let id = memory_id(cx, field!(ip, 5));
        if !the_store(cx).memories[id.index()].ty.shared {
            return Err(TrapKind::WaitOnUnshared);
        }
        let (expected, timeout) = (slot!(sp, field!(ip, 7)), slot!(sp, field!(ip, 8)) as i64);
        let is_equal = place.read() == expected;
        if is_equal && timeout < 0 {
            return Err(TrapKind::EndlessWait);
        }
        place.report_load::<P>(cx, ip);
        if is_equal {
            the_store(cx).exec.pause(Duration::from_nanos(timeout as u64));
        }
        slot!(sp, field!(ip, 0)) = if is_equal && !mutant!(WaitNotEqual) { TIMED_OUT } else { NOT_EQUAL };
        Ok(())
    }
}

/// # Safety
/// As for [`load`].
#[inline(never)]
unsafe fn notify(cx: &Cx, ip: Ip, sp: Sp) -> Result<(), TrapKind> {
    // SAFETY: the caller's promise.
    unsafe {
        if !mutant!(NotifyUnchecked) {
            Place::of(cx, ip, sp)?;
        }
        slot!(sp, field!(ip, 0)) = 0;
        Ok(())
    }
}
