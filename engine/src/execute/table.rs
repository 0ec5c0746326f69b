//! Tables, references and globals.

use super::cx::{Cx, Ip, Sp, field, next, slot, trap};
use super::memory::{copy_forward, handlers, in_bounds, probe, take_fuel};
use crate::mutants::mutant;
use crate::probe::{Probe, SiteId};
use crate::state::StateView;
use crate::store::Store;
use crate::table::Table;
use crate::trap::TrapKind;

/// The table with index `index` of the running instance.
///
/// # Safety
/// The caller must not hold another reference into the running store.
pub(super) unsafe fn table<'a>(cx: &Cx, index: u32) -> &'a mut Table {
    // SAFETY: the driver holds `&mut Store` and lends it to the handlers, one reference at a time.
    unsafe {
        let store: &mut Store = &mut *cx.store;
        let id = store.instances[cx.instance as usize].tables[index as usize];
        &mut store.tables[id.index()]
    }
}

/// `table.init`. Apart from its handler, because a handler must own nothing that is dropped after its tail call.
///
/// # Safety
/// As for the handler: `ip` and `sp` point at the instruction and its frame, and no reference into the store is held.
#[inline(never)]
unsafe fn init<P: Probe>(cx: &mut Cx, ip: Ip, sp: Sp, acc: u64) -> Result<(), TrapKind> {
    // SAFETY: the caller's promise.
    unsafe {
        let [to, from, len] = [0, 1, 2].map(|n| slot!(sp, field!(ip, n)));
        let (table_index, segment, site) = (field!(ip, 3), field!(ip, 4), SiteId(field!(ip, 5)));
        let items = (&(*cx.store).instances)[cx.instance as usize].elem_segments[segment as usize].clone();
        let items = items.as_deref().unwrap_or(&[]);
        let elems = &mut table(cx, table_index).elems;
        if !in_bounds(from, len, items.len()) || !in_bounds(to, len, elems.len()) {
            return Err(TrapKind::TableOutOfBounds);
        }
        if !take_fuel(cx, len as i64, acc) {
            return Err(TrapKind::OutOfFuel);
        }
        if P::TRACED {
            probe::<P>(cx).segment_use(site, true, segment, false);
            if len > 0 {
                probe::<P>(cx).table_write(site, table_index, to..to + len);
            }
        }
        let from = if mutant!(TableInitFromStart) { 0 } else { from };
        elems[to as usize..(to + len) as usize].copy_from_slice(&items[from as usize..(from + len) as usize]);
        Ok(())
    }
}

handlers! {
    /// `dest global site`
    global_get(cx, ip, sp, mem, _acc) {
        let global = field!(ip, 1);
        if P::TRACED && field!(ip, 2) != 0 { probe::<P>(cx).global_get(SiteId(field!(ip, 2)), global); }
        let raw = **cx.globals.add(global as usize);
        slot!(sp, field!(ip, 0)) = raw;
        next!(cx, ip.add(24), sp, mem, raw)
    }
    /// `global - site`: from the accumulator.
    global_set_acc(cx, ip, sp, mem, acc) {
        if P::TRACED { probe::<P>(cx).global_set(SiteId(field!(ip, 2)), field!(ip, 0), acc); }
        **cx.globals.add(field!(ip, 0) as usize) = acc;
        next!(cx, ip.add(24), sp, mem, acc)
    }
    /// `global source site`: from a slot.
    global_set_slot(cx, ip, sp, mem, acc) {
        let raw = slot!(sp, field!(ip, 1));
        if P::TRACED { probe::<P>(cx).global_set(SiteId(field!(ip, 2)), field!(ip, 0), raw); }
        **cx.globals.add(field!(ip, 0) as usize) = raw;
        next!(cx, ip.add(24), sp, mem, acc)
    }
    /// `global imm site`: a zero-extended 32-bit value.
    global_set_imm(cx, ip, sp, mem, acc) {
        let raw = u64::from(field!(ip, 1));
        if P::TRACED { probe::<P>(cx).global_set(SiteId(field!(ip, 2)), field!(ip, 0), raw); }
        **cx.globals.add(field!(ip, 0) as usize) = raw;
        next!(cx, ip.add(24), sp, mem, acc)
    }
    /// `dest func`
    ref_func(cx, ip, sp, mem, _acc) {
        let id = (&(*cx.store).instances)[cx.instance as usize].funcs[field!(ip, 1) as usize];
        let raw = u64::from(id.0) + 1;
        slot!(sp, field!(ip, 0)) = raw;
        next!(cx, ip.add(16), sp, mem, raw)
    }
    /// `dest index table site`
    table_get(cx, ip, sp, mem, _acc) {
        let index = slot!(sp, field!(ip, 1));
        let Some(&raw) = table(cx, field!(ip, 2)).elems.get(index as usize) else {
            trap!(cx, ip, sp, if mutant!(TableGetKind) { TrapKind::UndefinedElement } else { TrapKind::TableOutOfBounds })
        };
        if P::TRACED { probe::<P>(cx).table_read(SiteId(field!(ip, 3)), field!(ip, 2), index..index + 1); }
        slot!(sp, field!(ip, 0)) = raw;
        next!(cx, ip.add(24), sp, mem, raw)
    }
    /// `index value table site`
    table_set(cx, ip, sp, mem, acc) {
        let index = slot!(sp, field!(ip, 0));
        let value = slot!(sp, field!(ip, 1));
        let Some(place) = table(cx, field!(ip, 2)).elems.get_mut(index as usize) else { trap!(cx, ip, sp, TrapKind::TableOutOfBounds) };
        *place = value;
        if P::TRACED { probe::<P>(cx).table_write(SiteId(field!(ip, 3)), field!(ip, 2), index..index + 1); }
        next!(cx, ip.add(24), sp, mem, acc)
    }
    /// `dest table site`
    table_size(cx, ip, sp, mem, _acc) {
        let raw = table(cx, field!(ip, 1)).elems.len() as u64;
        if P::TRACED { probe::<P>(cx).table_grow(SiteId(field!(ip, 2)), field!(ip, 1), None, None); }
        slot!(sp, field!(ip, 0)) = raw;
        next!(cx, ip.add(24), sp, mem, raw)
    }
    /// `dest init delta table site failure-high`
    table_grow(cx, ip, sp, mem, _acc) {
        let delta = slot!(sp, field!(ip, 2));
        let init = if mutant!(TableGrowNull) { 0 } else { slot!(sp, field!(ip, 1)) };
        let previous = table(cx, field!(ip, 3)).grow(delta, init);
        if P::TRACED { probe::<P>(cx).table_grow(SiteId(field!(ip, 4)), field!(ip, 3), Some(delta), previous); }
        let raw = previous.unwrap_or(u64::from(u32::MAX) | u64::from(field!(ip, 5)) << 32);
        slot!(sp, field!(ip, 0)) = raw;
        next!(cx, ip.add(32), sp, mem, raw)
    }
    /// `at value len table site`
    table_fill(cx, ip, sp, mem, acc) {
        let [at, len] = [0, 2].map(|n| slot!(sp, field!(ip, n)));
        let elems = &mut table(cx, field!(ip, 3)).elems;
        if !in_bounds(at, len, elems.len()) { trap!(cx, ip, sp, TrapKind::TableOutOfBounds) }
        if !take_fuel(cx, len as i64, acc) { trap!(cx, ip, sp, TrapKind::OutOfFuel) }
        if P::TRACED && len > 0 { probe::<P>(cx).table_write(SiteId(field!(ip, 4)), field!(ip, 3), at..at + len); }
        let len = if mutant!(TableFillShort) { len.max(1) - 1 } else { len };
        elems[at as usize..(at + len) as usize].fill(slot!(sp, field!(ip, 1)));
        next!(cx, ip.add(32), sp, mem, acc)
    }
    /// `to from len table-to table-from site`
    table_copy(cx, ip, sp, mem, acc) {
        let [to, from, len] = [0, 1, 2].map(|n| slot!(sp, field!(ip, n)));
        let (to_index, from_index) = (field!(ip, 3), field!(ip, 4));
        if !in_bounds(from, len, table(cx, from_index).elems.len()) || !in_bounds(to, len, table(cx, to_index).elems.len()) {
            trap!(cx, ip, sp, TrapKind::TableOutOfBounds)
        }
        if !take_fuel(cx, len as i64, acc) { trap!(cx, ip, sp, TrapKind::OutOfFuel) }
        if P::TRACED && len > 0 {
            probe::<P>(cx).table_read(SiteId(field!(ip, 5)), from_index, from..from + len);
            probe::<P>(cx).table_write(SiteId(field!(ip, 5)), to_index, to..to + len);
        }
        // The two may be one table: copy through raw pointers, as `memory.copy` does.
        let source = table(cx, from_index).elems.as_ptr().add(from as usize);
        let target = table(cx, to_index).elems.as_mut_ptr().add(to as usize);
        let copy = if mutant!(TableCopyForward) { copy_forward } else { core::ptr::copy };
        copy(source, target, len as usize);
        next!(cx, ip.add(32), sp, mem, acc)
    }
    /// `to from len table segment site`
    table_init(cx, ip, sp, mem, acc) {
        if let Err(kind) = init::<P>(cx, ip, sp, acc) { trap!(cx, ip, sp, kind) }
        next!(cx, ip.add(32), sp, mem, acc)
    }
    /// `segment site`
    elem_drop(cx, ip, sp, mem, acc) {
        let segment = field!(ip, 0);
        if !mutant!(ElemDropIgnored) { (&mut (*cx.store).instances)[cx.instance as usize].elem_segments[segment as usize] = None; }
        if P::TRACED { probe::<P>(cx).segment_use(SiteId(field!(ip, 1)), true, segment, true); }
        next!(cx, ip.add(16), sp, mem, acc)
    }
}
