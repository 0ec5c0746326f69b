//! Calls and returns.
//!
//! Fields: call `callee args ret caller site`: the callee's index, the first argument's slot, where the caller goes on (byte
//! offset in its code) and the caller's own index, so that a frame record needs nothing that is computed. Results lie where the
//! arguments lay.

use super::cx::{BARRIER, Cx, DONE, Entry, Frame, HOST, HostExit, Ip, Sp, field, next, slot, trap};
use super::memory::{handlers, probe};
use super::table::table;
use crate::mutants::{MUTANTS, mutant};
use crate::probe::{Probe, SiteId};
use crate::state::StateView;
use crate::store::{DedupTypeId, Func, Store};
use crate::trap::TrapKind;
use crate::value::slots_of;

/// The raw values in `count` slots from `first`.
///
/// # Safety
/// The slots must be inside the stack and not written while the slice lives.
#[inline(always)]
pub(super) unsafe fn values<'a>(first: Sp, count: u32) -> &'a [u64] {
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(first.cast::<u64>(), count as usize) }
}

/// Whether a callee's frame at `sp` fits.
#[inline(always)]
fn fits(cx: &Cx, entry: &Entry, sp: Sp) -> bool {
    (sp as usize) + entry.frame_bytes as usize <= cx.stack_end as usize
}

/// Zeroes the declared locals of a frame that begins.
#[inline(always)]
pub(super) unsafe fn zero_locals(entry: &Entry, sp: Sp) {
    // SAFETY: the frame was checked to fit, and locals are inside it.
    unsafe { core::ptr::write_bytes(sp.cast::<u64>().add(entry.params as usize), 0, entry.zeroed as usize) }
}

/// As [`fits`], for the driver.
pub(super) fn frame_fits(cx: &Cx, entry: &Entry, sp: Sp) -> bool {
    fits(cx, entry, sp)
}

/// Zeroes a frame's declared locals if the frame fits.
///
/// # Safety
/// `sp` must point into the value stack.
pub(super) unsafe fn zero_locals_if(cx: &Cx, entry: &Entry, sp: Sp) {
    if fits(cx, entry, sp) {
        // SAFETY: it fits.
        unsafe { zero_locals(entry, sp) }
    }
}

/// Makes `instance` the running one and gives its memory's base.
#[inline(never)]
unsafe fn switch(cx: &mut Cx, instance: u32) -> *mut u8 {
    // SAFETY: the driver holds `&mut Store`; the pointers that are taken stay valid for the run.
    unsafe { (*cx.store).enter_instance(cx, instance) }
}

/// Calls function `index` of `instance` with its frame at `callee_sp`; `frame` is the caller's record, or `None` for a tail call.
macro_rules! enter {
    ($cx:ident, $ip:ident, $sp:ident, $mem:ident, $site:expr, $instance:expr, $index:expr, $callee_sp:expr, $frame:expr, $event:ident) => {{
        let (instance, index, callee_sp): (u32, u32, Sp) = ($instance, $index, $callee_sp);
        let frame: Option<Frame> = $frame;
        let mut mem = $mem;
        if instance != $cx.instance {
            mem = switch($cx, instance);
        }
        let entry = &*$cx.entries.add(index as usize);
        if !fits($cx, entry, callee_sp) || (frame.is_some() && $cx.frames == $cx.frames_end) {
            // A trap names the caller: its instance must be the running one again.
            if let Some(frame) = frame && frame.instance != instance { switch($cx, frame.instance); }
            trap!($cx, $ip, $sp, TrapKind::StackOverflow)
        }
        if let Some(frame) = frame {
            *$cx.frames = frame;
            $cx.frames = $cx.frames.add(1);
        }
        if P::TRACED {
            probe::<P>($cx).$event(SiteId($site), index, values(callee_sp, entry.params), $cx.work());
        }
        zero_locals(entry, callee_sp);
        next!($cx, entry.code, callee_sp, mem, 0)
    }};
}

/// Leaves the run for a host function whose arguments are at `$args`.
macro_rules! leave_to_host {
    ($cx:ident, $sp:ident, $site:expr, $callee:expr, $import:expr, $ty:expr, $args:expr, $ret:expr, $func:expr) => {{
        if P::TRACED {
            let params = slots_of((&(*$cx.store).types).get($ty).params());
            probe::<P>($cx).host_call(SiteId($site), $import, values($sp.add($args as usize), params), $cx.work());
        }
        $cx.host = HostExit { func: $func, ret: $ret, callee: $callee, args: $args };
        $cx.exit_sp = $sp;
        return HOST;
    }};
}

/// Whether a reference leads nowhere: mutants may take anything for one.
///
/// # Safety
/// The caller must not hold a reference into the running store.
#[inline(always)]
unsafe fn is_made_up(cx: &Cx, raw: u64) -> bool {
    // SAFETY: the driver holds `&mut Store`; this only reads.
    let store: &Store = unsafe { &*cx.store };
    MUTANTS && raw > store.funcs.len() as u64
}

/// Whether two types have the same parameters, and no references among their results.
///
/// # Safety
/// The caller must not hold a reference into the running store.
#[cold]
#[inline(never)]
unsafe fn same_params(cx: &Cx, a: u32, b: u32) -> bool {
    // SAFETY: the driver holds `&mut Store`; this only reads.
    let types = unsafe { &(*cx.store).types };
    let [a, b] = [a, b].map(|id| types.get(DedupTypeId(id)));
    a.params() == b.params() && [a, b].iter().all(|ty| ty.results().iter().all(|result| !result.is_ref()))
}

/// Resolves an indirect call's callee: `table index type` in the fields named.
macro_rules! resolve {
    ($cx:ident, $ip:ident, $sp:ident, $site:expr, $table:expr, $index:expr, $ty:expr) => {{
        let index = slot!($sp, $index);
        let Some(&raw) = table($cx, $table).elems.get(index as usize) else {
            trap!($cx, $ip, $sp, if mutant!(UndefinedKind) { TrapKind::IndirectCallToNull } else { TrapKind::UndefinedElement })
        };
        let raw = if mutant!(NullCallsFirst) { raw.max(1) } else { raw };
        if raw == 0 || is_made_up($cx, raw) { trap!($cx, $ip, $sp, TrapKind::IndirectCallToNull) }
        let id = (raw - 1) as u32;
        let func = *$cx.funcs.add(id as usize);
        let fits = func.ty().0 == $ty || (mutant!(SignatureParametersOnly) && same_params($cx, func.ty().0, $ty));
        if !fits { trap!($cx, $ip, $sp, TrapKind::BadSignature) }
        if P::TRACED { probe::<P>($cx).table_read(SiteId($site), $table, index..index + 1); }
        (id, func)
    }};
}

/// The callee behind the reference in a slot, whose type validation knows.
macro_rules! referred {
    ($cx:ident, $ip:ident, $sp:ident, $slot:expr) => {{
        let raw = slot!($sp, $slot);
        if raw == 0 || is_made_up($cx, raw) { trap!($cx, $ip, $sp, TrapKind::NullFunction) }
        let id = (raw - 1) as u32;
        (id, *$cx.funcs.add(id as usize))
    }};
}

macro_rules! caller_frame {
    ($cx:ident, $ip:ident, $ret:expr, $func:expr, $args:expr) => {
        Some(Frame { ret: $ret, func: $func, sp_delta: $args, instance: $cx.instance })
    };
}

/// Goes on in the caller: results are in the first slots of the frame at `$sp`.
macro_rules! go_back {
    ($cx:ident, $sp:ident, $mem:ident, $results:expr) => {{
        if P::TRACED { probe::<P>($cx).ret(values($sp, $results), $cx.work()); }
        let frame = *$cx.frames.sub(1);
        $cx.frames = $cx.frames.sub(1);
        let mut mem = $mem;
        if frame.instance != $cx.instance {
            if frame.instance == BARRIER {
                $cx.exit_sp = $sp;
                return DONE;
            }
            mem = switch($cx, frame.instance);
        }
        let entry = &*$cx.entries.add(frame.func as usize);
        next!($cx, entry.code.add(frame.ret as usize), $sp.sub(frame.sp_delta as usize), mem, 0)
    }};
}

handlers! {
    /// `callee args ret caller site`: a function of this instance.
    call(cx, ip, sp, mem, _acc) {
        let args = field!(ip, 1);
        let entry = &*cx.entries.add(field!(ip, 0) as usize);
        let callee_sp = sp.add(args as usize);
        if !fits(cx, entry, callee_sp) || cx.frames == cx.frames_end { trap!(cx, ip, sp, TrapKind::StackOverflow) }
        *cx.frames = Frame { ret: field!(ip, 2), func: field!(ip, 3), sp_delta: args, instance: cx.instance };
        cx.frames = cx.frames.add(1);
        if P::TRACED { probe::<P>(cx).call(SiteId(field!(ip, 4)), field!(ip, 0), values(callee_sp, entry.params), cx.work()); }
        zero_locals(entry, callee_sp);
        next!(cx, entry.code, callee_sp, mem, 0)
    }
    /// `import args ret caller site`: an imported function, of another instance or the host.
    call_import(cx, ip, sp, mem, _acc) {
        let id = (&(*cx.store).instances)[cx.instance as usize].funcs[field!(ip, 0) as usize].0;
        let (args, ret, func, site) = (field!(ip, 1), field!(ip, 2), field!(ip, 3), field!(ip, 4));
        match *cx.funcs.add(id as usize) {
            Func::Wasm { instance, index, .. } =>
                enter!(cx, ip, sp, mem, site, instance.0, index, sp.add(args as usize), caller_frame!(cx, ip, ret, func, args), call),
            Func::Host { import, ty } => leave_to_host!(cx, sp, site, id, import, ty, args, ret, func),
        }
    }
    /// `table args ret caller site index type`: through a table.
    call_indirect(cx, ip, sp, mem, _acc) {
        let (args, ret, func, site) = (field!(ip, 1), field!(ip, 2), field!(ip, 3), field!(ip, 4));
        let (id, callee) = resolve!(cx, ip, sp, site, field!(ip, 0), field!(ip, 5), field!(ip, 6));
        match callee {
            Func::Wasm { instance, index, .. } =>
                enter!(cx, ip, sp, mem, site, instance.0, index, sp.add(args as usize), caller_frame!(cx, ip, ret, func, args), call),
            Func::Host { import, ty } => leave_to_host!(cx, sp, site, id, import, ty, args, ret, func),
        }
    }
    /// `callee args ret caller site`: through the reference in slot `callee`.
    call_ref(cx, ip, sp, mem, _acc) {
        let (args, ret, func, site) = (field!(ip, 1), field!(ip, 2), field!(ip, 3), field!(ip, 4));
        let (id, callee) = referred!(cx, ip, sp, field!(ip, 0));
        match callee {
            Func::Wasm { instance, index, .. } =>
                enter!(cx, ip, sp, mem, site, instance.0, index, sp.add(args as usize), caller_frame!(cx, ip, ret, func, args), call),
            Func::Host { import, ty } => leave_to_host!(cx, sp, site, id, import, ty, args, ret, func),
        }
    }
    /// `callee - ret caller site`: the arguments are already in the first slots of the frame that ends.
    return_call(cx, ip, sp, mem, _acc) {
        enter!(cx, ip, sp, mem, field!(ip, 4), cx.instance, field!(ip, 0), sp, None, tail_call)
    }
    /// `import - ret caller site`: a host function is called and returned from by the `ret` that follows.
    return_call_import(cx, ip, sp, mem, _acc) {
        let id = (&(*cx.store).instances)[cx.instance as usize].funcs[field!(ip, 0) as usize].0;
        match *cx.funcs.add(id as usize) {
            Func::Wasm { instance, index, .. } => enter!(cx, ip, sp, mem, field!(ip, 4), instance.0, index, sp, None, tail_call),
            Func::Host { import, ty } => leave_to_host!(cx, sp, field!(ip, 4), id, import, ty, 0, field!(ip, 2), field!(ip, 3)),
        }
    }
    /// `table args ret caller site index type count`: through a table; the arguments move down once the callee is known.
    return_call_indirect(cx, ip, sp, mem, _acc) {
        let site = field!(ip, 4);
        mutant! { TailIndexLate: slot!(sp, 0) = slot!(sp, field!(ip, 1)); }
        let (id, callee) = resolve!(cx, ip, sp, site, field!(ip, 0), field!(ip, 5), field!(ip, 6));
        core::ptr::copy(sp.add(field!(ip, 1) as usize).cast::<u64>(), sp.cast::<u64>(), field!(ip, 7) as usize);
        match callee {
            Func::Wasm { instance, index, .. } => enter!(cx, ip, sp, mem, site, instance.0, index, sp, None, tail_call),
            Func::Host { import, ty } => leave_to_host!(cx, sp, site, id, import, ty, 0, field!(ip, 2), field!(ip, 3)),
        }
    }
    /// `callee args ret caller site count`: through a reference; the arguments move down once the callee is known.
    return_call_ref(cx, ip, sp, mem, _acc) {
        let site = field!(ip, 4);
        let (id, callee) = referred!(cx, ip, sp, field!(ip, 0));
        core::ptr::copy(sp.add(field!(ip, 1) as usize).cast::<u64>(), sp.cast::<u64>(), field!(ip, 5) as usize - usize::from(mutant!(TailRefShort) && field!(ip, 5) > 1));
        match callee {
            Func::Wasm { instance, index, .. } => enter!(cx, ip, sp, mem, site, instance.0, index, sp, None, tail_call),
            Func::Host { import, ty } => leave_to_host!(cx, sp, site, id, import, ty, 0, field!(ip, 2), field!(ip, 3)),
        }
    }
    /// `count`: the results are in the frame's first slots.
    ret(cx, ip, sp, mem, _acc) { go_back!(cx, sp, mem, field!(ip, 0)) }
    /// No fields: one result, in the accumulator.
    ret_acc(cx, ip, sp, mem, acc) {
        slot!(sp, 0) = acc;
        go_back!(cx, sp, mem, 1)
    }
    /// `source`: one result, in a slot.
    ret_slot(cx, ip, sp, mem, _acc) {
        slot!(sp, 0) = slot!(sp, field!(ip, 0));
        go_back!(cx, sp, mem, 1)
    }
    /// `imm`: one result, a zero-extended 32-bit value.
    ret_imm(cx, ip, sp, mem, _acc) {
        slot!(sp, 0) = u64::from(field!(ip, 0));
        go_back!(cx, sp, mem, 1)
    }
}
