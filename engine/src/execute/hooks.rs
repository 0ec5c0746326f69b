//! The probe as handlers call it: every hook in a function of its own.
//!
//! A handler ends in a tail call. That is a jump only while nothing of the handler's own lives on the native stack, and a probe's
//! hook, once inlined, may well put something there. So hooks are never inlined into handlers; plain code has no hooks at all, and
//! code for a probe that is not interested in accesses has none of theirs.

use std::ops::Range;

use crate::probe::{LocalRole, LoopRef, Probe, Rmw, SiteId, Slot};

/// A probe, for one event.
pub(super) struct Hooks<'a, P>(pub(super) &'a mut P);

macro_rules! hooks {
    ($($if:ident: $name:ident($($arg:ident: $ty:ty),*);)*) => {
        impl<P: Probe> Hooks<'_, P> {$(
            #[inline(always)]
            pub(super) fn $name(self, $($arg: $ty),*) {
                if P::$if {
                    #[inline(never)]
                    fn hook<P: Probe>(probe: &mut P, $($arg: $ty),*) { probe.$name($($arg),*) }
                    hook(self.0, $($arg),*)
                }
            }
        )*}
    };
}
hooks! {
    ACCESSES: load(site: SiteId, mem: u32, addr: u64, len: u32, rmw: Rmw);
    ACCESSES: store(site: SiteId, mem: u32, addr: u64, len: u32, rmw: Rmw);
    ACCESSES: bulk_read(site: SiteId, mem: u32, range: Range<u64>);
    ACCESSES: bulk_write(site: SiteId, mem: u32, range: Range<u64>);
    ACCESSES: memory_size(site: SiteId, mem: u32);
    ACCESSES: memory_grow(site: SiteId, mem: u32, delta: u64, previous: Option<u64>);
    ACCESSES: segment_use(site: SiteId, is_elem: bool, index: u32, drop: bool);
    ACCESSES: global_get(site: SiteId, global: u32);
    ACCESSES: global_set(site: SiteId, global: u32, value: u64);
    ACCESSES: table_read(site: SiteId, table: u32, range: Range<u64>);
    ACCESSES: table_write(site: SiteId, table: u32, range: Range<u64>);
    ACCESSES: table_grow(site: SiteId, table: u32, delta: Option<u64>, previous: Option<u64>);
    OPERATORS: operator(site: SiteId);
    TRACED: call(site: SiteId, func: u32, args: &[u64], work: u64);
    TRACED: tail_call(site: SiteId, func: u32, args: &[u64], work: u64);
    TRACED: ret(results: &[u64], work: u64);
    TRACED: host_call(site: SiteId, func: u32, args: &[u64], work: u64);
    TRACED: unwind(site: SiteId, work: u64);
    TRACED: caught(site: SiteId, in_loop: Option<LoopRef>, work: u64);
    TRACED: loop_iter(this: LoopRef, work: u64);
    TRACED: loop_exit(this: LoopRef, work: u64);
    TRACED: local_read(site: SiteId, local: u32, role: LocalRole);
    TRACED: local_write(site: SiteId, local: u32, role: LocalRole);
    TRACED: result_in(site: SiteId, first: Slot, count: u32);
    TRACED: slot_move(from: Slot, to: Slot);
    TRACED: slot_clear(slot: Slot);
    TRACED: slot_use(site: SiteId, slot: Slot);
}
