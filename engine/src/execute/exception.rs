//! Throwing: the frames are searched for a clause that catches, and the code goes on there.
//!
//! The search changes nothing. If nobody catches, the run ends as with any other trap, with all frames in the backtrace; otherwise
//! the activations above the one that catches end.

use super::control::values;
use super::cx::{BARRIER, Cx, Ip, Regs, Sp, TRAP, field, next, slot};
use super::memory::{handlers, probe};
use crate::mutants::mutant;
use crate::probe::{LoopRef, Probe, SiteId};
use crate::state::StateView;
use crate::store::Store;
use crate::translate::Catch;
use crate::trap::TrapKind;
use crate::value::{TagId, slots_of};

handlers! {
    /// `tag args site caller`: a new exception with the values from slot `args` up.
    throw(cx, ip, sp, mem, _acc) {
        if throw_new::<P>(cx, ip, sp) {
            let Regs { ip, sp, mem, acc } = cx.regs;
            next!(cx, ip, sp, mem, acc)
        }
        return TRAP;
    }
    /// `slot site caller`: the exception in a slot.
    throw_ref(cx, ip, sp, mem, _acc) {
        if unwind::<P>(cx, ip, sp, field!(ip, 2), slot!(sp, field!(ip, 0)), SiteId(field!(ip, 1))) {
            let Regs { ip, sp, mem, acc } = cx.regs;
            next!(cx, ip, sp, mem, acc)
        }
        return TRAP;
    }
}

/// As [`unwind`], for a new exception.
///
/// # Safety
/// `ip` must point at a `throw`, `sp` at its frame; nobody may hold a reference into the store.
#[cold]
#[inline(never)]
unsafe fn throw_new<P: Probe>(cx: &mut Cx, ip: Ip, sp: Sp) -> bool {
    // SAFETY: the fields are those of `throw`; the stack is in use from its base to the end of the running frame.
    unsafe {
        let (tag, args, site, func) = (field!(ip, 0), field!(ip, 1), field!(ip, 2), field!(ip, 3));
        let store: &mut Store = &mut *cx.store;
        let tag = store.instances[cx.instance as usize].tags[tag as usize];
        let payload = values(sp.add(args as usize), slots_of(store.tag_type(tag).params())).into();
        let base = store.stack_base();
        let used = sp as usize - base as usize + (*cx.entries.add(func as usize)).frame_bytes as usize;
        let Some(exception) = store.make_exception(tag, payload, values(base, used as u32 / 8)) else {
            return failed(cx, ip, sp, TrapKind::ExceptionLimit);
        };
        unwind::<P>(cx, ip, sp, func, exception, SiteId(site))
    }
}

fn failed(cx: &mut Cx, ip: Ip, sp: Sp, kind: TrapKind) -> bool {
    (cx.trap, cx.exit_ip, cx.exit_sp) = (Some(kind), ip, sp);
    false
}

/// Throws an exception at the instruction `ip` of function `func` of the running instance. When it is caught, [`Cx::regs`] says where
/// to go on; otherwise (`false`) [`Cx::trap`] is set.
///
/// # Safety
/// `ip` must point into the function's code, `sp` at its frame; nobody may hold a reference into the store.
#[cold]
#[inline(never)]
pub(super) unsafe fn unwind<P: Probe>(cx: &mut Cx, ip: Ip, sp: Sp, func: u32, exception: u64, site: SiteId) -> bool {
    // SAFETY: frame records up to the barrier are those of this run; payloads and references have slots in the frames that catch.
    unsafe {
        let store: &mut Store = &mut *cx.store;
        let Some(tag) = store.exceptions.get(exception).map(|exception| exception.tag) else {
            return failed(cx, ip, sp, TrapKind::NullException);
        };
        let start = (*cx.entries.add(func as usize)).code;
        let mut place = Place { instance: cx.instance, func, at: ((ip as usize - start as usize) / 8) as u32 };
        let (mut frames, mut frame_sp, mut ended) = (cx.frames, sp, 0);
        let catch = loop {
            if let Some(catch) = store.catch_at(&place, tag) {
                break Some(catch);
            }
            ended += 1;
            frames = frames.sub(1);
            let frame = *frames;
            if frame.instance == BARRIER {
                break None;
            }
            frame_sp = frame_sp.sub(frame.sp_delta as usize);
            // The return position lies behind its call.
            place = Place { instance: frame.instance, func: frame.func, at: frame.ret / 8 - u32::from(!mutant!(ReturnPosition)) };
        };
        if P::TRACED {
            for _ in u32::from(mutant!(EventUnwindLost))..ended {
                probe::<P>(cx).unwind(site, cx.work());
            }
        }
        let Some(catch) = catch else {
            cx.thrown = exception;
            return failed(cx, ip, sp, TrapKind::UncaughtException);
        };
        cx.frames = frames;
        let mem = store.enter_instance(cx, place.instance);
        if P::TRACED {
            report_catch::<P>(cx, &catch, place.func, slots_of(store.tag_type(tag).params()), site);
        }
        let clause = &catch.clause;
        if clause.tag.is_some() {
            let payload = &store.exceptions.get(exception).expect("it was there").payload;
            core::ptr::copy_nonoverlapping(payload.as_ptr(), frame_sp.cast::<u64>().add(clause.payload as usize), payload.len());
            mutant! { PayloadReversed: if payload.len() == 2 {
                *frame_sp.cast::<[u64; 2]>().byte_add(clause.payload as usize * 8) = [payload[1], payload[0]];
            } }
        }
        if let Some(slot) = clause.reference {
            slot!(frame_sp, slot * 8) = exception;
        }
        let code = (*cx.entries.add(place.func as usize)).code;
        cx.regs = Regs { ip: code.add(clause.target as usize * 8), sp: frame_sp, mem, acc: 0 };
        true
    }
}

/// What happens in the activation that catches, in order: iterations end, the label's slots are written, loops are left.
///
/// # Safety
/// As for [`probe`].
unsafe fn report_catch<P: Probe>(cx: &Cx, catch: &Catch, func: u32, payload: u32, site: SiteId) {
    let this = |ordinal| LoopRef { func, ordinal };
    // SAFETY: the caller's promise.
    unsafe {
        probe::<P>(cx).caught(site, catch.in_loop.map(this), cx.work());
        if catch.follows_results {
            let first = catch.clause.payload;
            let slots = if catch.clause.tag.is_some() { first..first + payload } else { 0..0 };
            for slot in slots.chain(catch.clause.reference) {
                probe::<P>(cx).slot_clear(slot);
            }
        }
        for ordinal in &catch.clause.exits {
            probe::<P>(cx).loop_exit(this(*ordinal), cx.work());
        }
    }
}

/// A position in code: a word index.
pub(super) struct Place {
    instance: u32,
    func: u32,
    at: u32,
}

impl Store {
    /// What catches an exception with this tag that is thrown there.
    fn catch_at(&self, place: &Place, tag: TagId) -> Option<Catch> {
        let handlers = self.handlers_of(place.instance, place.func)?;
        let tags = &self.instances[place.instance as usize].tags;
        let is_like = |other: TagId| mutant!(TagByType) && self.tag_type(other) == self.tag_type(tag);
        handlers.find(place.at, |index| tags[index as usize] == tag || is_like(tags[index as usize]))
    }
}
