//! The probe as handlers call it: every hook in a function of its own.
//!
//! A handler ends in a tail call. That is a jump only while nothing of the handler's own lives on the native stack, and a probe's
//! hook, once inlined, may well put something there. So hooks are never inlined into handlers; plain code has no hooks at all.

use std::ops::Range;

use crate::probe::{LocalRole, LoopRef, Probe, Rmw, SiteId, Slot};

/// A probe, for one event.
pub(super) struct Hooks<'a, P>(pub(super) &'a mut P);

macro_rules! hooks {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        impl<P: Probe> Hooks<'_, P> {$(
            #[inline(never)]
            pub(super) fn $name(self, $($arg: $ty),*) { self.0.$name($($arg),*) }
        )*}
    };
}
hooks! {
    load(site: SiteId, mem: u32, addr: u64, len: u32, rmw: Rmw);
    store(site: SiteId, mem: u32, addr: u64, len: u32, rmw: Rmw);
    bulk_read(site: SiteId, mem: u32, range: Range<u64>);
    bulk_write(site: SiteId, mem: u32, range: Range<u64>);
    memory_size(site: SiteId, mem: u32);
    memory_grow(site: SiteId, mem: u32, delta: u64, previous: Option<u64>);
    segment_use(site: SiteId, is_elem: bool, index: u32, drop: bool);
    global_get(site: SiteId, global: u32);
    global_set(site: SiteId, global: u32, value: u64);
    table_read(site: SiteId, table: u32, range: Range<u64>);
    table_write(site: SiteId, table: u32, range: Range<u64>);
    table_grow(site: SiteId, table: u32, delta: Option<u64>, previous: Option<u64>);
    call(site: SiteId, func: u32, args: &[u64], work: u64);
    tail_call(site: SiteId, func: u32, args: &[u64], work: u64);
    ret(results: &[u64], work: u64);
    host_call(site: SiteId, func: u32, args: &[u64], work: u64);
    loop_iter(this: LoopRef, work: u64);
    loop_exit(this: LoopRef, work: u64);
    local_read(site: SiteId, local: Slot, role: LocalRole);
    local_write(site: SiteId, local: Slot, role: LocalRole);
    result_in(site: SiteId, first: Slot, count: u32);
    slot_move(from: Slot, to: Slot);
    slot_clear(slot: Slot);
    slot_use(site: SiteId, slot: Slot);
}
