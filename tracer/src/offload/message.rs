//! Events on their way to the tracer's thread.

use worksp_engine::probe::{LocalRole, LoopRef, Probe, Rmw, Site, SiteId};

use crate::replay::HostObserver;
use crate::trace::Sink;
use crate::tracer::Tracer;

/// One event of [`Probe`] or [`HostObserver`], or an operand of the next one. Fields are named as there; a memory's index fits
/// into a byte, since a module has at most 100.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    /// What does not fit into the message that follows, in the order in which [`Operands`] takes it.
    Operand(u64),
    Load { site: u32, mem: u8, len: u8, rmw: Rmw, addr: u64 },
    Store { site: u32, mem: u8, len: u8, rmw: Rmw, addr: u64 },
    /// Operands: start, end.
    BulkRead { site: u32, mem: u32 },
    BulkWrite { site: u32, mem: u32 },
    MemorySize { site: u32, mem: u32 },
    /// Operands: delta, previous plus one or 0.
    MemoryGrow { site: u32, mem: u32 },
    SegmentUse { site: u32, index: u32, is_elem: bool, drop: bool },
    GlobalGet { site: u32, global: u32 },
    /// Operands: value.
    GlobalSet { site: u32, global: u32 },
    StackPointerSet { site: u32, value: u64 },
    /// Operands: start, end.
    TableRead { site: u32, table: u32 },
    TableWrite { site: u32, table: u32 },
    /// Operands: delta plus one or 0, previous plus one or 0.
    TableGrow { site: u32, table: u32 },
    /// Operands: work, arguments.
    Enter { func: u32 },
    /// Operands: work.
    Leave { unwound: bool },
    /// Operands: work, arguments; none when the call begins nothing but an activation.
    Call { site: u32, func: u32 },
    TailCall { site: u32, func: u32 },
    /// Operands: work, results; none when the return ends nothing but an activation.
    Ret,
    /// Operands: work, arguments.
    HostCall { site: u32, func: u32 },
    /// Operands: work, results.
    HostReturn { func: u32 },
    /// Operands: work.
    HostThrow { func: u32 },
    /// Operands: work; none when the exception ends nothing but an activation.
    Unwind { site: u32 },
    /// Operands: work, and where the handler is: function and loop, or nothing outside of all loops.
    Caught { site: u32 },
    /// Operands: work.
    LoopIter(LoopRef),
    LoopExit(LoopRef),
    LocalRead { site: u32, local: u32, role: LocalRole },
    LocalWrite { site: u32, local: u32, role: LocalRole },
    ResultIn { first: u32, count: u32 },
    SlotMove { from: u32, to: u32 },
    SlotClear { slot: u32 },
    SlotUse { site: u32, slot: u32 },
    /// Operands: start, end.
    HostRead { mem: u32 },
    HostWrite { mem: u32 },
    /// Operands: previous, delta.
    HostGrow { mem: u32 },
    /// Operands: start, end.
    HostTableWrite { table: u32 },
    /// Operands: value.
    HostGlobalSet { global: u32 },
    /// Operands: the function, the offset.
    SiteMade { id: u32 },
}

/// How many messages before its turn an access begins to fetch what the tracer knows of its address.
const AHEAD: usize = 10;

/// Operands that wait for their message.
#[derive(Default, Debug)]
pub(super) struct Operands {
    values: Vec<u64>,
}

impl Operands {
    fn at(&self, index: usize) -> u64 {
        self.values.get(index).copied().unwrap_or(0)
    }

    fn range(&self) -> std::ops::Range<u64> {
        self.at(0)..self.at(1)
    }

    /// The work, or `before` when nothing happened that needs it; and what follows it.
    fn work(&self, before: u64) -> (u64, &[u64]) {
        match &self.values[..] {
            [work, rest @ ..] => (*work, rest),
            [] => (before, &[]),
        }
    }
}

/// A number that may be missing, plus one.
pub(super) fn optional(value: Option<u64>) -> u64 {
    value.map_or(0, |value| value.wrapping_add(1))
}

fn from_optional(value: u64) -> Option<u64> {
    value.checked_sub(1)
}

impl<S: Sink> Tracer<S> {
    /// Takes what was sent, in order, until the trace is too large.
    pub(super) fn receive(&mut self, messages: &[Message], operands: &mut Operands) {
        self.weigh(0);
        let mut rest = messages;
        while let [message, after @ ..] = rest {
            rest = after;
            if let Some(Message::Load { mem, addr, .. } | Message::Store { mem, addr, .. }) = after.get(2 * AHEAD)
                && let Some(shadow) = self.shadow((*mem).into())
            {
                shadow.look_ahead(*addr);
            }
            if let Some(Message::Load { mem, addr, .. } | Message::Store { mem, addr, .. }) = after.get(AHEAD)
                && let Some(shadow) = self.shadow((*mem).into())
            {
                shadow.look_behind(*addr);
            }
            match *message {
                // What is large, and what cuts, has operands.
                Message::Operand(_) if self.is_full() => return,
                Message::Operand(value) => {
                    operands.values.push(value);
                    continue;
                }
                Message::Load { site, mem, len, rmw, addr } if rmw != Rmw::Plain => match *after {
                    // Most pairs come together.
                    [Message::Store { site: store, mem: m, len: l, rmw: r, addr: a }, ref after @ ..]
                        if (m, l, r, a) == (mem, len, rmw, addr) =>
                    {
                        rest = after;
                        self.pair(SiteId(site), SiteId(store), mem.into(), addr, len.into(), rmw);
                    }
                    _ => self.load(SiteId(site), mem.into(), addr, len.into(), rmw),
                },
                message => self.receive_one(message, operands),
            }
            operands.values.clear();
        }
    }

    #[inline(always)]
    fn receive_one(&mut self, message: Message, operands: &Operands) {
        let before = self.work();
        match message {
            Message::Operand(_) => {}
            Message::Load { site, mem, len, rmw, addr } => self.load(SiteId(site), mem.into(), addr, len.into(), rmw),
            Message::Store { site, mem, len, rmw, addr } => self.store(SiteId(site), mem.into(), addr, len.into(), rmw),
            Message::BulkRead { site, mem } => self.bulk_read(SiteId(site), mem, operands.range()),
            Message::BulkWrite { site, mem } => self.bulk_write(SiteId(site), mem, operands.range()),
            Message::MemorySize { site, mem } => self.memory_size(SiteId(site), mem),
            Message::MemoryGrow { site, mem } => {
                self.memory_grow(SiteId(site), mem, operands.at(0), from_optional(operands.at(1)));
            }
            Message::SegmentUse { site, index, is_elem, drop } => self.segment_use(SiteId(site), is_elem, index, drop),
            Message::GlobalGet { site, global } => self.global_get(SiteId(site), global),
            Message::GlobalSet { site, global } => self.global_set(SiteId(site), global, operands.at(0)),
            Message::StackPointerSet { site, value } => {
                if let Some(global) = self.sp_global() {
                    self.global_set(SiteId(site), global, value);
                }
            }
            Message::TableRead { site, table } => self.table_read(SiteId(site), table, operands.range()),
            Message::TableWrite { site, table } => self.table_write(SiteId(site), table, operands.range()),
            Message::TableGrow { site, table } => {
                let [delta, previous] = [0, 1].map(|i| from_optional(operands.at(i)));
                self.table_grow(SiteId(site), table, delta, previous);
            }
            Message::Enter { func } => {
                let (work, args) = operands.work(before);
                self.enter(func, args, work);
            }
            Message::Leave { unwound } => self.leave(operands.at(0), unwound),
            Message::Call { site, func } => {
                let (work, args) = operands.work(before);
                self.call(SiteId(site), func, args, work);
            }
            Message::TailCall { site, func } => {
                let (work, args) = operands.work(before);
                self.tail_call(SiteId(site), func, args, work);
            }
            Message::Ret => {
                let (work, results) = operands.work(before);
                self.ret(results, work);
            }
            Message::HostCall { site, func } => {
                let (work, args) = operands.work(before);
                self.host_call(SiteId(site), func, args, work);
            }
            Message::HostReturn { func } => {
                let (work, results) = operands.work(before);
                self.host_return(func, results, work);
            }
            Message::HostThrow { func } => self.host_throw(func, operands.at(0)),
            Message::Unwind { site } => {
                let (work, _) = operands.work(before);
                self.unwind(SiteId(site), work);
            }
            Message::Caught { site } => {
                let (work, place) = operands.work(before);
                let in_loop = match *place {
                    [func, ordinal] => Some(LoopRef { func: func as u32, ordinal: ordinal as u32 }),
                    _ => None,
                };
                self.caught(SiteId(site), in_loop, work);
            }
            Message::LoopIter(this) => self.loop_iter(this, operands.at(0)),
            Message::LoopExit(this) => self.loop_exit(this, operands.at(0)),
            Message::LocalRead { site, local, role } => self.local_read(SiteId(site), local, role),
            Message::LocalWrite { site, local, role } => self.local_write(SiteId(site), local, role),
            Message::ResultIn { first, count } => self.result_in(SiteId(0), first, count),
            Message::SlotMove { from, to } => self.slot_move(from, to),
            Message::SlotClear { slot } => self.slot_clear(slot),
            Message::SlotUse { site, slot } => self.slot_use(SiteId(site), slot),
            Message::HostRead { mem } => self.host_read(mem, operands.range()),
            Message::HostWrite { mem } => self.host_write(mem, operands.range()),
            Message::HostGrow { mem } => self.host_grow(mem, operands.at(0), operands.at(1)),
            Message::HostTableWrite { table } => self.host_table_write(table, operands.range()),
            Message::HostGlobalSet { global } => self.host_global_set(global, operands.at(0)),
            Message::SiteMade { id } => {
                self.site_made(SiteId(id), Site { func: operands.at(0) as u32, offset: operands.at(1) as u32 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_sixteen_bytes() {
        assert_eq!(size_of::<Message>(), 16);
    }
}
