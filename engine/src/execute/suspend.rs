//! Suspended runs: what waits, why, and how it goes on or ends.
//!
//! ```text
//! run ──► Stop::Host ──── resume, throw ──► run          (a host function is called)
//!   │ └─► Stop::Paused ── proceed ────────► run          (out of fuel, interrupted, past the deadline, stepped)
//!   ▼
//! start (another run, inside of the one that waits); unwind, abandon (the one that waits ends)
//! ```

use super::cx::{BARRIER, Cx, Handler, HostExit, Ip};
use super::position::call_slots;
use super::{From, HostCall, ProbeKey, Shape, Step, Suspension};
use crate::error::{Error, check_values};
use crate::isa::{Single, single};
use crate::probe::Probe;
use crate::store::{DedupTypeId, Store};
use crate::trap::{Trap, TrapKind};
use crate::value::{ExnId, Val, slots_of};

/// A run that waits.
#[derive(Clone)]
pub(super) struct Pending {
    pub(super) stop: Stop,
    /// The running instance; [`BARRIER`] when the host called its own function.
    pub(super) instance: u32,
    /// The running frame, in bytes from the stack's base.
    pub(super) sp: usize,
    /// What its places refer to.
    pub(super) placed: Placed,
}

/// What the places of a suspended run refer to: return addresses, and where it stopped.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Placed {
    /// The code for a probe type.
    InCode { key: ProbeKey, shape: Shape },
    /// The module: they are offsets of operators. The run comes from a file.
    InModule { shape: Shape },
}

impl Placed {
    pub(super) fn in_code<P: Probe>() -> Placed {
        Placed::InCode { key: typeid::of::<P>(), shape: Shape::of::<P>() }
    }
}

/// Where a run waits.
#[derive(Clone)]
pub(super) enum Stop {
    /// A host function is called.
    Host { exit: HostExit, import: u32, ty: DedupTypeId },
    /// The host called its own function: results go back at once.
    Direct { import: u32, ty: DedupTypeId },
    /// Between two operators.
    Paused(Pause),
}

/// A place between two operators, and what is needed to go on there.
#[derive(Clone, Copy)]
pub(super) struct Pause {
    pub(super) func: u32,
    /// Byte offset in the function's code: of a charge, or of a bulk operator that could not pay.
    pub(super) at: u32,
    /// Where `at` is an offset in the module: which of its instructions, if not the charge.
    pub(super) nth: Option<u32>,
    pub(super) acc: u64,
    /// Fuel that the instruction there takes.
    pub(super) amount: i64,
    /// Bytes of the running frame.
    pub(super) frame_bytes: u32,
    pub(super) why: Suspension,
}

impl Store {
    /// What the innermost suspended run waits for: the step that it was suspended with. `None` when nothing is suspended.
    pub fn pending(&self) -> Option<Step> {
        let pending = self.exec.pending.last()?;
        Some(match &pending.stop {
            Stop::Paused(pause) => Step::Suspended(pause.why),
            Stop::Direct { import, ty } => Step::HostCall(HostCall { import: *import, args: self.args_at(pending.sp, *ty) }),
            Stop::Host { exit, import, ty } => Step::HostCall(HostCall { import: *import, args: self.args_at(pending.sp + exit.args as usize, *ty) }),
        })
    }

    /// The arguments of a host call that lie so many bytes from the stack's base.
    pub(super) fn args_at(&self, first: usize, ty: DedupTypeId) -> Vec<Val> {
        let types = self.types.get(ty).params();
        let stack = self.exec.stack.as_ref().expect("prepared");
        // SAFETY: the caller's frame, or where a direct call's arguments were put, has room for them.
        let raw = unsafe { core::slice::from_raw_parts(stack.base.as_ptr().add(first).cast::<u64>(), slots_of(types) as usize) };
        Val::from_slots(types, raw)
    }

    /// Completes the innermost pending host call with its results.
    ///
    /// # Errors
    /// No host call is pending, or the results have the wrong types (the call stays pending). After [`Store::restore`] also when what was
    /// restored is no state that a run can be in.
    pub fn resume<P: Probe>(&mut self, probe: &mut P, results: &[Val]) -> Result<Step, Error> {
        let (ty, import) = self.pending_call(probe)?;
        check_values(self, || format!("the result of host function {import}"), self.types.get(ty).results(), results)?;
        self.check_references(results)?;
        let pending = self.exec.pending.pop().expect("checked above");
        let Stop::Host { exit, import, .. } = pending.stop else {
            self.exec.entries.pop();
            return Ok(Step::Returned(results.to_vec()));
        };
        let raw = Val::to_slots(results);
        probe.host_return(import, &raw, self.work());
        let fits = self.put_args(pending.sp + exit.args as usize, &raw);
        debug_assert!(fits, "the caller's frame has room for the results where the arguments lay");
        let from = From::Return { func: exit.func, offset: exit.ret };
        Ok(self.run(probe, pending.instance, from, pending.sp))
    }

    /// Ends the innermost pending host call by throwing an exception, which the program may catch: what a host function does with one
    /// that a call of its own into the guest ended with (see [`Trap::exception`]).
    ///
    /// # Errors
    /// No host call is pending, or the exception was freed (the call stays pending); and as for [`Store::resume`].
    pub fn throw<P: Probe>(&mut self, probe: &mut P, exception: ExnId) -> Result<Step, Error> {
        self.pending_call(probe)?;
        self.check_references(&[Val::ExnRef(Some(exception))])?;
        let pending = self.exec.pending.pop().expect("checked above");
        let Stop::Host { exit, import, .. } = pending.stop else {
            self.exec.entries.pop();
            let pinned = self.exceptions.pin(exception.raw()).expect("checked above");
            return Ok(Step::Trapped(Trap::uncaught(pinned, Vec::new())));
        };
        probe.host_throw(import, self.work());
        let from = From::Throw { func: exit.func, offset: exit.ret, exception: exception.raw() };
        Ok(self.run(probe, pending.instance, from, pending.sp))
    }

    /// Lets the innermost run go on that was suspended between two operators.
    ///
    /// # Errors
    /// No run is suspended so. Under another type of probe also when it waits in the midst of an expression, where code for other probes
    /// may have values elsewhere; and as for [`Store::resume`].
    ///
    /// # Example
    /// ```
    /// use worksp_engine::probe::NoProbe;
    /// use worksp_engine::{Config, Engine, Module, Step, Store, Suspension, Val};
    /// let engine = Engine::new(Config { fuel: true, ..Config::default() });
    /// let text = r#"(module (func (export "count") (param i32) (result i32) (local i32)
    ///     (loop (local.set 1 (i32.add (local.get 1) (i32.const 1)))
    ///         (br_if 0 (i32.lt_u (local.get 1) (local.get 0)))) (local.get 1)))"#;
    /// let mut store = Store::new(&engine);
    /// let instance = store.instantiate(&Module::from_text(&engine, text)?, &[])?;
    /// let count = store.exported_func(instance, "count")?;
    /// store.set_fuel(100);
    /// let mut step = store.start(&mut NoProbe, count, &[Val::I32(1000)])?;
    /// let mut pauses = 0;
    /// while let Step::Suspended(Suspension::OutOfFuel { .. }) = step {
    ///     pauses += 1;
    ///     store.set_fuel(100);
    ///     step = store.proceed(&mut NoProbe)?;
    /// }
    /// assert_eq!((step, store.work()), (Step::Returned(vec![Val::I32(1000)]), 8001));
    /// assert_eq!(pauses, 83);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn proceed<P: Probe>(&mut self, probe: &mut P) -> Result<Step, Error> {
        if !matches!(self.exec.pending.last(), Some(Pending { stop: Stop::Paused(_), .. })) {
            return Err(Error::OutOfTurn("no run is suspended between two operators: there is nothing to proceed with"));
        }
        self.bind_innermost(probe)?;
        let Some(Pending { stop: Stop::Paused(pause), instance, sp, .. }) = self.exec.pending.pop() else { unreachable!("checked above") };
        Ok(self.run(probe, instance, From::Pause(pause), sp))
    }

    /// Makes sure that the innermost suspended run can go on in the code for this type of probe.
    fn bind_innermost<P: Probe>(&mut self, probe: &mut P) -> Result<(), Error> {
        let pending = self.exec.pending.last().expect("something is suspended");
        match pending.placed {
            Placed::InCode { key, .. } if key == typeid::of::<P>() => Ok(()),
            _ => self.bind(probe),
        }
    }

    /// The type and number of the host function whose call is to go on under this type of probe.
    fn pending_call<P: Probe>(&mut self, probe: &mut P) -> Result<(DedupTypeId, u32), Error> {
        let nothing = Error::OutOfTurn("no host call is pending: there is nothing to resume");
        let pending = self.exec.pending.last().ok_or(nothing)?;
        let (ty, import) = match pending.stop {
            Stop::Host { ty, import, .. } | Stop::Direct { ty, import } => (ty, import),
            Stop::Paused(_) => return Err(Error::OutOfTurn("the run is suspended between two operators, not in a host call: proceed with it")),
        };
        self.bind_innermost(probe)?;
        Ok((ty, import))
    }

    /// Gives up the innermost suspended run (its host call trapped, the program exits, nobody wants it any more) and with it the entry
    /// that began it. Returns how many are still suspended further out.
    pub fn unwind<P: Probe>(&mut self, probe: &mut P) -> u32 {
        if let Some(pending) = self.exec.pending.pop() {
            self.end_entry(probe, &pending.stop);
        }
        self.exec.pending.len() as u32
    }

    /// Gives up the innermost run that was suspended between two operators, and says where it was as a trap does. `None` when there is no
    /// such run.
    pub fn abandon<P: Probe>(&mut self, probe: &mut P) -> Option<Trap> {
        let Some(Pending { stop: Stop::Paused(pause), .. }) = self.exec.pending.last() else { return None };
        let why = pause.why;
        let mut backtrace = Vec::new();
        // What was restored and cannot go on has no trace either.
        if self.bind_innermost(probe).is_ok() {
            let pending = self.exec.pending.last().expect("checked above");
            let Stop::Paused(pause) = pending.stop else { unreachable!("checked above") };
            let entry = self.exec.entries.last().expect("what waits was entered").barrier;
            let place = (pause.func, pause.at / 8);
            let instance = pending.instance;
            self.exec.current = typeid::of::<P>();
            let (frames, unspent) = self.backtrace(instance, Some(place), entry);
            backtrace = frames;
            self.exec.fuel += i64::from(unspent);
        }
        let pending = self.exec.pending.pop().expect("checked above");
        self.end_entry(probe, &pending.stop);
        let kind = match why {
            Suspension::OutOfFuel { .. } => TrapKind::OutOfFuel,
            Suspension::Interrupted | Suspension::DeadlinePassed | Suspension::Stepped => TrapKind::Interrupted,
        };
        Some(Trap::new(kind, backtrace))
    }

    fn end_entry<P: Probe>(&mut self, probe: &mut P, stop: &Stop) {
        let entry = self.exec.entries.pop().expect("what waits was entered");
        self.exec.depth = entry.barrier;
        if !matches!(stop, Stop::Direct { .. }) {
            probe.leave(self.work(), true);
        }
    }

    /// The first free byte of the value stack.
    pub(super) fn stack_top(&self) -> usize {
        self.stack_top_below(self.exec.pending.len())
    }

    /// The first byte above the suspended runs before number `index`.
    pub(super) fn stack_top_below(&self, index: usize) -> usize {
        let Some(pending) = index.checked_sub(1).map(|last| &self.exec.pending[last]) else { return 0 };
        let bytes = |ty: DedupTypeId| 8 * call_slots(self.types.get(ty)) as usize;
        pending.sp
            + match &pending.stop {
                Stop::Host { exit, ty, .. } => exit.args as usize + bytes(*ty),
                Stop::Direct { ty, .. } => bytes(*ty),
                Stop::Paused(pause) => pause.frame_bytes as usize,
            }
    }

    /// A run stops at an instruction that takes `amount` of fuel.
    pub(super) fn pause<P: Probe>(&mut self, cx: &Cx, charge: Handler, amount: i64, why: Suspension) -> Step {
        self.write_back(cx);
        let ip = cx.exit_ip;
        // SAFETY: it points at an instruction; a charge's second field is its function.
        let func = unsafe { is_charge(ip, charge).then(|| *ip.add(12).cast::<u32>()) };
        let (func, at) = match func {
            // SAFETY: the function's code is what runs.
            Some(func) => unsafe { (func, ip.offset_from((*cx.entries.add(func as usize)).code) as u32) },
            None => {
                let (func, word) = self.locate(cx.instance, ip).expect("code that runs is known");
                (func, word * 8)
            }
        };
        // SAFETY: both point into the stack.
        let sp = unsafe { cx.exit_sp.offset_from(self.stack_base()) } as usize;
        // SAFETY: the function's entry is among those of the running instance.
        let frame_bytes = unsafe { (*cx.entries.add(func as usize)).frame_bytes };
        let pause = Pause { func, at, nth: None, acc: cx.exit_acc, amount, frame_bytes, why };
        self.exec.pending.push(Pending { stop: Stop::Paused(pause), instance: cx.instance, sp, placed: Placed::in_code::<P>() });
        Step::Suspended(why)
    }
}

/// Whether an instruction is a charge, given the handler of those.
///
/// # Safety
/// It must point at an instruction.
pub(super) unsafe fn is_charge(ip: Ip, charge: Handler) -> bool {
    // SAFETY: the first word of an instruction is its handler's address.
    unsafe { *ip.cast::<usize>() == charge as usize }
}

/// The handler of charges among those of one probe type.
pub(super) fn charge_of(handlers: &[Handler]) -> Handler {
    handlers[usize::from(single(Single::Charge))]
}

/// The fuel that the instruction takes at which a run ran out of it.
///
/// # Safety
/// [`Cx::exit_ip`] must point at that instruction.
pub(super) unsafe fn amount_at(cx: &Cx, charge: Handler) -> i64 {
    // SAFETY: a charge's first field is its amount; others leave theirs in the context.
    unsafe { if is_charge(cx.exit_ip, charge) { i64::from(*cx.exit_ip.add(8).cast::<u32>()) } else { cx.amount } }
}

/// A host call that waits, made under a probe type.
pub(super) fn direct<P: Probe>(import: u32, ty: DedupTypeId, sp: usize) -> Pending {
    Pending { stop: Stop::Direct { import, ty }, instance: BARRIER, sp, placed: Placed::in_code::<P>() }
}
