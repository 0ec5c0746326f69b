//! A probe that believes nothing: it checks that events come as `worksp_engine::probe` promises them.

use std::ops::Range;

use worksp_engine::Module;
use worksp_engine::probe::{LocalRole, LoopRef, NoProbe, Probe, Rmw, Site, SiteId, Slot, TracePlan};

/// A probe that programs run under in this crate.
pub trait Watcher: Probe + Default {
    /// What traced code reports of a module.
    fn plan(module: &Module) -> TracePlan;

    /// What was wrong since the last call.
    fn complaints(&mut self) -> Vec<String>;
}

impl Watcher for NoProbe {
    fn plan(_: &Module) -> TracePlan {
        TracePlan::default()
    }

    fn complaints(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Follows calls, loops and host calls, and notes every event that cannot be.
#[derive(Default)]
pub struct Witness {
    work: u64,
    activations: Vec<Activation>,
    /// For each entry of the guest by the host, the activations below it.
    entries: Vec<usize>,
    /// For each pending host call, the number of entries when it was made.
    hosts: Vec<usize>,
    /// Functions of the sites, by id; ids start at 1.
    sites: Vec<u32>,
    /// An exception ends activations: nothing else happens before it is caught or leaves the entry.
    unwinding: bool,
    complaints: Vec<String>,
}

#[derive(Debug)]
struct Activation {
    func: u32,
    loops: Vec<LoopRef>,
}

/// Loops per function that the plan names; functions of the suites have fewer.
const LOOPS_MAX: u32 = 24;

impl Watcher for Witness {
    /// Everything is a unit.
    fn plan(module: &Module) -> TracePlan {
        let funcs: Vec<u32> = (0..module.func_count()).collect();
        let loops = |func: &u32| (0..LOOPS_MAX).map(move |ordinal| (*func, ordinal)).collect::<Vec<_>>();
        let loops = funcs.iter().flat_map(loops).map(|(func, ordinal)| LoopRef { func, ordinal }).collect();
        TracePlan { loops, every_loop_of: Some(0), funcs, ..TracePlan::default() }
    }

    fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }
}

impl Witness {
    fn check(&mut self, holds: bool, what: impl FnOnce(&Witness) -> String) {
        if !holds && self.complaints.len() < 10 {
            let what = what(self);
            self.complaints.push(what);
        }
    }

    /// Work never shrinks.
    fn at(&mut self, work: u64, event: &str) {
        self.check(work >= self.work, |w| format!("{event}: work fell from {} to {work}", w.work));
        self.work = work;
    }

    /// An event of the running activation at a known site of its function.
    fn running(&mut self, site: SiteId, event: &str) {
        self.inside(event);
        let func = self.activations.last().map(|a| a.func);
        let at = (site.0 as usize).checked_sub(1).and_then(|i| self.sites.get(i)).copied();
        self.check(at.is_some() && at == func, |_| format!("{event}: {site:?} is in function {at:?}, but {func:?} runs"));
    }

    /// An event that needs a running activation.
    fn inside(&mut self, event: &str) {
        self.check(!self.unwinding || matches!(event, "unwind" | "caught"), |_| format!("{event} while an exception is under way"));
        let level = self.entries.len();
        self.check(self.hosts.last() != Some(&level), |_| format!("{event} while a host call is pending"));
        let floor = self.entries.last().copied();
        self.check(floor.is_some_and(|floor| self.activations.len() > floor), |_| format!("{event} without an activation"));
    }
}

impl Probe for Witness {
    fn site_made(&mut self, id: SiteId, site: Site) {
        self.check(id.0 as usize == self.sites.len() + 1, |w| format!("{id:?} was made after {} others", w.sites.len()));
        self.sites.push(site.func);
    }

    fn load(&mut self, site: SiteId, _: u32, addr: u64, len: u32, _: Rmw) {
        self.running(site, "load");
        self.check(addr < 1 << 33 && matches!(len, 1 | 2 | 4 | 8 | 16), |_| format!("load of {len} bytes at {addr}"));
    }

    fn store(&mut self, site: SiteId, _: u32, addr: u64, len: u32, _: Rmw) {
        self.running(site, "store");
        self.check(addr < 1 << 33 && matches!(len, 1 | 2 | 4 | 8 | 16), |_| format!("store of {len} bytes at {addr}"));
    }

    fn bulk_read(&mut self, site: SiteId, _: u32, range: Range<u64>) {
        self.running(site, "bulk_read");
        self.check(!range.is_empty(), |_| "bulk_read of nothing".into());
    }

    fn bulk_write(&mut self, site: SiteId, _: u32, range: Range<u64>) {
        self.running(site, "bulk_write");
        self.check(!range.is_empty(), |_| "bulk_write of nothing".into());
    }

    fn memory_size(&mut self, site: SiteId, _: u32) {
        self.running(site, "memory_size");
    }

    fn memory_grow(&mut self, site: SiteId, _: u32, _: u64, _: Option<u64>) {
        self.running(site, "memory_grow");
    }

    fn segment_use(&mut self, site: SiteId, _: bool, _: u32, _: bool) {
        self.running(site, "segment_use");
    }

    fn global_get(&mut self, site: SiteId, _: u32) {
        self.running(site, "global_get");
    }

    fn global_set(&mut self, site: SiteId, _: u32, _: u64) {
        self.running(site, "global_set");
    }

    fn table_read(&mut self, site: SiteId, _: u32, range: Range<u64>) {
        self.running(site, "table_read");
        self.check(!range.is_empty(), |_| "table_read of nothing".into());
    }

    fn table_write(&mut self, site: SiteId, _: u32, range: Range<u64>) {
        self.running(site, "table_write");
        self.check(!range.is_empty(), |_| "table_write of nothing".into());
    }

    fn table_grow(&mut self, site: SiteId, _: u32, _: Option<u64>, _: Option<u64>) {
        self.running(site, "table_grow");
    }

    fn enter(&mut self, func: u32, _: &[u64], work: u64) {
        self.at(work, "enter");
        let level = self.entries.len();
        self.check(level == 0 || self.hosts.last() == Some(&level), |_| "enter outside a host call".into());
        self.entries.push(self.activations.len());
        self.activations.push(Activation { func, loops: Vec::new() });
    }

    fn leave(&mut self, work: u64, unwound: bool) {
        self.at(work, "leave");
        self.check(unwound || !self.unwinding, |_| "leave as after a return while an exception is under way".into());
        self.unwinding = false;
        let floor = self.entries.pop();
        self.check(floor.is_some(), |_| "leave without enter".into());
        let floor = floor.unwrap_or(0);
        let level = self.entries.len();
        self.check(unwound || self.activations.len() == floor, |w| format!("leave in the middle: {:?}", w.activations));
        self.activations.truncate(floor);
        while self.hosts.last().is_some_and(|made| *made > level) {
            self.check(unwound, |_| "leave while a host call is pending".into());
            self.hosts.pop();
        }
    }

    fn call(&mut self, site: SiteId, func: u32, _: &[u64], work: u64) {
        self.running(site, "call");
        self.at(work, "call");
        self.activations.push(Activation { func, loops: Vec::new() });
    }

    fn tail_call(&mut self, site: SiteId, func: u32, _: &[u64], work: u64) {
        self.running(site, "tail_call");
        self.at(work, "tail_call");
        self.activations.pop();
        self.activations.push(Activation { func, loops: Vec::new() });
    }

    fn ret(&mut self, _: &[u64], work: u64) {
        self.inside("ret");
        self.at(work, "ret");
        self.activations.pop();
    }

    fn host_call(&mut self, site: SiteId, _: u32, _: &[u64], work: u64) {
        self.running(site, "host_call");
        self.at(work, "host_call");
        self.hosts.push(self.entries.len());
    }

    fn host_return(&mut self, _: u32, _: &[u64], work: u64) {
        self.at(work, "host_return");
        let made = self.hosts.pop();
        self.check(made == Some(self.entries.len()), |w| format!("host_return to {made:?} in entry {}", w.entries.len()));
    }

    fn host_throw(&mut self, _: u32, work: u64) {
        self.at(work, "host_throw");
        let made = self.hosts.pop();
        self.check(made == Some(self.entries.len()), |w| format!("host_throw to {made:?} in entry {}", w.entries.len()));
    }

    fn unwind(&mut self, site: SiteId, work: u64) {
        self.inside("unwind");
        self.at(work, "unwind");
        self.check(site.0 as usize <= self.sites.len(), |_| format!("unwind: {site:?} was never made"));
        self.activations.pop();
        self.unwinding = true;
    }

    fn caught(&mut self, site: SiteId, in_loop: Option<LoopRef>, work: u64) {
        self.inside("caught");
        self.at(work, "caught");
        self.check(site.0 as usize <= self.sites.len(), |_| format!("caught: {site:?} was never made"));
        self.unwinding = false;
        let mut problem = None;
        if let Some(activation) = self.activations.last_mut() {
            let kept = in_loop.map_or(Some(0), |this| activation.loops.iter().rposition(|open| *open == this).map(|at| at + 1));
            if kept.is_none() {
                problem = Some(format!("caught in {in_loop:?}, but open are {:?}", activation.loops));
            }
            activation.loops.truncate(kept.unwrap_or(0));
        }
        self.complaints.extend(problem);
    }

    fn loop_iter(&mut self, this: LoopRef, work: u64) {
        self.inside("loop_iter");
        self.at(work, "loop_iter");
        let mut problem = None;
        if let Some(activation) = self.activations.last_mut() {
            match activation.loops.iter().position(|open| *open == this) {
                None => activation.loops.push(this),
                Some(at) if at + 1 == activation.loops.len() => {}
                Some(_) => problem = Some(format!("loop_iter of {this:?} inside {:?}", activation.loops)),
            }
            if this.func != activation.func {
                problem = Some(format!("loop_iter of {this:?} in function {}", activation.func));
            }
        }
        self.complaints.extend(problem);
    }

    fn loop_exit(&mut self, this: LoopRef, work: u64) {
        self.inside("loop_exit");
        self.at(work, "loop_exit");
        let innermost = self.activations.last_mut().and_then(|activation| activation.loops.pop());
        self.check(innermost == Some(this), |_| format!("loop_exit of {this:?}, but {innermost:?} is innermost"));
    }

    fn local_read(&mut self, site: SiteId, _: Slot, _: LocalRole) {
        self.running(site, "local_read");
    }

    fn local_write(&mut self, site: SiteId, _: Slot, _: LocalRole) {
        self.running(site, "local_write");
    }

    fn result_in(&mut self, site: SiteId, _: Slot, count: u32) {
        self.running(site, "result_in");
        self.check(count > 0, |_| "result_in of no results".into());
    }

    fn slot_move(&mut self, _: Slot, _: Slot) {
        self.inside("slot_move");
    }

    fn slot_clear(&mut self, _: Slot) {
        self.inside("slot_clear");
    }

    fn slot_use(&mut self, site: SiteId, _: Slot) {
        self.running(site, "slot_use");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(events: impl FnOnce(&mut Witness), complaint: &str) {
        let mut witness = Witness::default();
        witness.site_made(SiteId(1), Site { func: 0, offset: 10 });
        witness.site_made(SiteId(2), Site { func: 1, offset: 20 });
        witness.enter(0, &[], 0);
        events(&mut witness);
        let complaints = witness.complaints();
        match complaint {
            "" => assert!(complaints.is_empty(), "{complaints:?}"),
            expected => assert!(complaints.iter().any(|c| c.contains(expected)), "{complaints:?} lack: {expected}"),
        }
    }

    fn inner(ordinal: u32) -> LoopRef {
        LoopRef { func: 0, ordinal }
    }

    #[test]
    fn events_in_order_pass() {
        check(
            |w| {
                w.loop_iter(inner(0), 1);
                w.loop_iter(inner(1), 2);
                w.load(SiteId(1), 0, 8, 4, Rmw::Plain);
                w.loop_exit(inner(1), 3);
                w.loop_iter(inner(0), 3);
                w.call(SiteId(1), 1, &[], 4);
                w.host_call(SiteId(2), 5, &[], 5);
                w.enter(0, &[], 5);
                w.ret(&[], 6);
                w.leave(6, false);
                w.host_return(5, &[], 6);
                w.ret(&[], 7);
                w.ret(&[], 8);
                w.leave(8, false);
            },
            "",
        );
        check(
            |w| {
                w.call(SiteId(1), 1, &[], 4);
                w.host_call(SiteId(2), 5, &[], 5);
                w.leave(5, true);
            },
            "",
        );
    }

    #[test]
    fn exceptions_end_what_they_leave() {
        check(
            |w| {
                w.loop_iter(inner(0), 1);
                w.call(SiteId(1), 1, &[], 2);
                w.host_call(SiteId(2), 5, &[], 5);
                w.enter(0, &[], 5);
                w.loop_iter(inner(0), 5);
                w.unwind(SiteId(1), 6);
                w.leave(6, true);
                w.host_throw(5, 6);
                w.unwind(SiteId(0), 6);
                w.loop_iter(inner(1), 6);
            },
            "loop_iter while an exception is under way",
        );
        check(
            |w| {
                w.loop_iter(inner(0), 1);
                w.loop_iter(inner(1), 2);
                w.caught(SiteId(1), Some(inner(0)), 3);
                w.loop_exit(inner(0), 3);
                w.caught(SiteId(1), None, 3);
                w.ret(&[], 4);
                w.leave(4, false);
            },
            "",
        );
        check(|w| w.caught(SiteId(1), Some(inner(0)), 3), "but open are []");
        check(|w| w.caught(SiteId(3), None, 3), "was never made");
        check(
            |w| {
                w.unwind(SiteId(1), 1);
                w.leave(1, false);
            },
            "leave as after a return",
        );
    }

    #[test]
    fn events_out_of_order_are_told() {
        check(|w| w.load(SiteId(2), 0, 8, 4, Rmw::Plain), "in function Some(1), but Some(0) runs");
        check(|w| w.load(SiteId(0), 0, 8, 4, Rmw::Plain), "in function None");
        check(|w| w.load(SiteId(1), 0, 8, 3, Rmw::Plain), "load of 3 bytes");
        check(|w| w.loop_exit(inner(0), 1), "None is innermost");
        check(
            |w| {
                w.loop_iter(inner(0), 1);
                w.loop_iter(inner(1), 2);
                w.loop_iter(inner(0), 3);
            },
            "loop_iter of LoopRef { func: 0, ordinal: 0 } inside",
        );
        check(
            |w| {
                w.ret(&[], 1);
                w.ret(&[], 1);
            },
            "ret without an activation",
        );
        check(
            |w| {
                w.host_call(SiteId(1), 5, &[], 5);
                w.global_get(SiteId(1), 0);
            },
            "while a host call is pending",
        );
        check(|w| w.leave(1, false), "leave in the middle");
        check(
            |w| {
                w.loop_iter(inner(0), 9);
                w.loop_iter(inner(0), 8);
            },
            "work fell from 9 to 8",
        );
    }
}
