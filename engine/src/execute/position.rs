//! Suspended runs without code: where they wait is an operator of a function, by its offset in the module.
//!
//! ```text
//! code of one probe type ◄── bind ── Level: callers, stop ── save, restore ──► file
//!            └───── level ────────────►
//! ```
//!
//! Code is a function of the module, the configuration and the shape of the probe, so that offsets lead back to it in any process that
//! runs the same version. At calls, and where a block begins with nothing in the accumulator, all shapes agree on what is in
//! which slot: there a run may also change to a probe of another shape.

use rustc_hash::FxHashMap;
use wasmparser::{BinaryReader, Operator, OperatorsReader};

use super::cx::{BARRIER, Frame, Handler, HostExit};
use super::suspend::{Pause, Pending, Placed, Stop};
use super::{Bounds, HostEntry, Shape, Stack, State, Suspension};
use crate::error::Error;
use crate::isa::{Opcode, Single, single};
use crate::module::Module;
use crate::probe::{Probe, SiteTable};
use crate::store::{DedupTypeId, Func, Store};
use crate::translate::{Code, translate};
use crate::value::{FuncType, InstanceId, slots_of};

/// One entry by the host that is suspended.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Level {
    /// The type of the function that was entered.
    pub(crate) ty: DedupTypeId,
    /// The shape of the code that ran.
    pub(crate) shape: Shape,
    /// Activations that wait for what they called, the outermost first.
    pub(crate) callers: Vec<Waiting>,
    pub(crate) stop: Halt,
    /// The instance that stopped.
    pub(crate) instance: u32,
    /// The frame that stopped, in bytes from the stack's base.
    pub(crate) sp: usize,
}

/// An activation that waits for a call.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Waiting {
    pub(crate) instance: u32,
    pub(crate) func: u32,
    /// The call.
    pub(crate) offset: u32,
    /// Distance of the callee's frame.
    pub(crate) delta: u32,
}

/// Where the innermost activation of a level is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Halt {
    /// No activation: the host called its own function.
    Direct { import: u32, ty: DedupTypeId },
    /// At a call of a host function.
    Host { func: u32, offset: u32, args: u32, callee: u32, import: u32, ty: DedupTypeId },
    /// Before an operator, or (`nth` of its instructions) in the midst of it.
    Pause { func: u32, offset: u32, nth: Option<u32>, acc: u64, amount: i64, frame_bytes: u32, why: Suspension },
}

/// Calls that return to their caller.
const CALLS: &[Single] = &[Single::Call, Single::CallImport, Single::CallIndirect, Single::CallRef];
/// Calls that may lead to the host.
const HOST_CALLS: &[Single] = &[
    Single::CallImport,
    Single::CallIndirect,
    Single::CallRef,
    Single::ReturnCallImport,
    Single::ReturnCallIndirect,
    Single::ReturnCallRef,
];
/// Those of them that are tail calls.
const TAIL_CALLS: &[Single] = &[Single::ReturnCallImport, Single::ReturnCallIndirect, Single::ReturnCallRef];

impl Level {
    /// The functions that have an activation.
    fn places(&self) -> Vec<(u32, u32)> {
        let stopped = match self.stop {
            Halt::Direct { .. } => None,
            Halt::Host { func, .. } | Halt::Pause { func, .. } => Some((self.instance, func)),
        };
        self.callers.iter().map(|caller| (caller.instance, caller.func)).chain(stopped).collect()
    }
}

/// Code with its maps, made when it is asked for.
struct Maps<'a> {
    store: &'a Store,
    shape: Shape,
    known: FxHashMap<(u32, u32), Code>,
}

fn broken(what: &'static str) -> Error {
    Error::Suspended(what)
}

impl Maps<'_> {
    fn of(&mut self, instance: u32, func: u32) -> Result<&Code, Error> {
        if !self.known.contains_key(&(instance, func)) {
            let owner = self.store.instances.get(instance as usize).ok_or(broken("an activation is of an instance that does not exist"))?;
            owner.module.func_body(func).ok_or(broken("an activation is of a function that does not exist"))?;
            let mut scratch = SiteTable::default();
            let code = translate(self.store.request(instance, func, self.shape, true, &mut scratch))?;
            self.known.insert((instance, func), code);
        }
        Ok(&self.known[&(instance, func)])
    }
}

impl Code {
    fn opcode(&self, at: u32) -> Opcode {
        self.words[at as usize] as Opcode
    }

    fn field(&self, at: u32, n: usize) -> u32 {
        (self.words[at as usize + 1 + n / 2] >> (32 * (n % 2))) as u32
    }

    /// The operator behind which a call returns to this byte offset.
    fn offset_of_return(&self, ret: u32) -> Option<u32> {
        let before = self.places.partition_point(|place| place.at < ret / 8);
        Some(self.places.get(before.checked_sub(1)?)?.offset)
    }

    /// Where the operator at this offset has one of these instructions.
    fn find(&self, offset: u32, ops: &[Single]) -> Option<u32> {
        let is_wanted = |at: u32| ops.iter().any(|op| single(*op) == self.opcode(at));
        self.places.iter().find(|place| place.offset == offset && is_wanted(place.at)).map(|place| place.at)
    }

    /// The instructions of the operator at this offset.
    fn of_operator(&self, offset: u32) -> impl Iterator<Item = u32> + '_ {
        self.places.iter().filter(move |place| place.offset == offset).map(|place| place.at)
    }
}

impl Module {
    /// The type that the call at this offset calls; `None` when there is no call.
    fn called_type(&self, func: u32, offset: u32) -> Option<&FuncType> {
        let body = self.func_body(func).filter(|body| body.contains(&(offset as usize)))?;
        let bytes = &self.bytes()[offset as usize..body.end];
        match OperatorsReader::new(BinaryReader::new(bytes, offset as usize)).read().ok()? {
            Operator::Call { function_index } | Operator::ReturnCall { function_index } => Some(self.func_type(function_index)),
            Operator::CallIndirect { type_index, .. } | Operator::ReturnCallIndirect { type_index, .. } => Some(self.type_at(type_index)),
            Operator::CallRef { type_index } | Operator::ReturnCallRef { type_index } => Some(self.type_at(type_index)),
            _ => None,
        }
    }
}

impl Store {
    /// All suspended levels, the outermost first.
    pub(crate) fn levels(&self) -> Result<Vec<Level>, Error> {
        (0..self.exec.pending.len()).map(|index| self.level(index)).collect()
    }

    /// The frame records of a level's callers.
    fn callers_of(&self, index: usize) -> std::ops::Range<usize> {
        let end = self.exec.entries.get(index + 1).map_or(self.exec.depth, |next| next.barrier);
        let has_barrier = self.exec.entries[index].reported;
        self.exec.entries[index].barrier + usize::from(has_barrier)..end
    }

    fn level(&self, index: usize) -> Result<Level, Error> {
        let (pending, entry) = (&self.exec.pending[index], &self.exec.entries[index]);
        let (shape, in_code) = match pending.placed {
            Placed::InCode { shape, .. } => (shape, true),
            Placed::InModule { shape } => (shape, false),
        };
        let mut maps = Maps { store: self, shape, known: FxHashMap::default() };
        let mut offset = |instance: u32, func: u32, ret: u32| match in_code {
            true => maps.of(instance, func)?.offset_of_return(ret).ok_or(broken("a place of no instruction")),
            false => Ok(ret),
        };
        let mut callers = Vec::new();
        for frame in &self.exec.frames[self.callers_of(index)] {
            let offset = offset(frame.instance, frame.func, frame.ret)?;
            callers.push(Waiting { instance: frame.instance, func: frame.func, offset, delta: frame.sp_delta });
        }
        let stop = match pending.stop {
            Stop::Direct { import, ty } => Halt::Direct { import, ty },
            Stop::Host { exit: HostExit { func, ret, callee, args }, import, ty } => {
                Halt::Host { func, offset: offset(pending.instance, func, ret)?, args, callee, import, ty }
            }
            Stop::Paused(Pause { func, at, nth, acc, amount, frame_bytes, why }) => {
                let (offset, nth) = if in_code {
                    let code = maps.of(pending.instance, func)?;
                    let place = code.places.iter().find(|place| place.at == at / 8).ok_or(broken("a place of no instruction"))?;
                    let nth = code.of_operator(place.offset).position(|other| other == place.at).map(|nth| nth as u32);
                    (place.offset, nth.filter(|_| code.opcode(place.at) != single(Single::Charge)))
                } else {
                    (at, nth)
                };
                Halt::Pause { func, offset, nth, acc, amount, frame_bytes, why }
            }
        };
        Ok(Level { ty: entry.ty, shape, callers, stop, instance: pending.instance, sp: pending.sp })
    }

    /// Makes the innermost level go on in the code for probe type `P`.
    ///
    /// # Errors
    /// When it waits at a place where only code of its own shape can go on, or what was restored is no state that a run can be in.
    #[cold]
    #[inline(never)]
    pub(super) fn bind<P: Probe>(&mut self, probe: &mut P) -> Result<(), Error> {
        let index = self.exec.pending.len() - 1;
        let level = self.level(index)?;
        let handlers = self.select_code::<P>();
        for (instance, func) in level.places() {
            self.make_code(probe, instance, func, &handlers)?;
        }
        let shape = Shape::of::<P>();
        let (frames, stop) = self.bound(&level, index, shape)?;
        let range = self.callers_of(index);
        self.exec.frames[range].copy_from_slice(&frames);
        let placed = Placed::InCode { key: typeid::of::<P>(), shape };
        self.exec.pending[index] = Pending { stop, placed, instance: level.instance, sp: level.sp };
        Ok(())
    }

    pub(super) fn make_code<P: Probe>(&mut self, probe: &mut P, instance: u32, func: u32, handlers: &[Handler]) -> Result<(), Error> {
        let owner = self.instances.get(instance as usize).ok_or(broken("an activation is of an instance that does not exist"))?;
        owner.module.func_body(func).ok_or(broken("an activation is of a function that does not exist"))?;
        let set = self.code_set(instance);
        if self.exec.codes[set].bodies[func as usize].is_some() {
            return Ok(());
        }
        let known = self.exec.sites.len();
        if !self.compile::<P>(instance, func, handlers) {
            return Err(broken("a function is too large to be run"));
        }
        for (id, site) in self.exec.sites.since(known) {
            probe.site_made(id, site);
        }
        Ok(())
    }

    /// A level's frame records and stop for code of this shape, which is current. Everything is checked, so that a level that was made up
    /// does no harm.
    fn bound(&self, level: &Level, index: usize, shape: Shape) -> Result<(Vec<Frame>, Stop), Error> {
        let mut maps = Maps { store: self, shape, known: FxHashMap::default() };
        let mut sp = self.stack_top_below(index);
        let mut frames = Vec::with_capacity(level.callers.len());
        let places = level.places();
        for (caller, (instance, func)) in level.callers.iter().zip(places.iter().skip(1)) {
            let code = maps.of(caller.instance, caller.func)?;
            let at = code.find(caller.offset, CALLS).ok_or(broken("an activation waits where there is no call"))?;
            let (args, ret) = (code.field(at, 1), code.field(at, 2));
            let called = self.instances[caller.instance as usize].module.called_type(caller.func, caller.offset);
            let callee = self.instances[*instance as usize].module.func_type(*func);
            if args != caller.delta || called.is_none_or(|called| called.results() != callee.results()) {
                return Err(broken("an activation does not fit the call that made it"));
            }
            self.check_fits(sp, code.frame_bytes)?;
            frames.push(Frame { ret, func: caller.func, sp_delta: args, instance: caller.instance });
            sp += args as usize;
        }
        let results = self.types.get(level.ty).results();
        if places.first().is_some_and(|(instance, func)| self.instances[*instance as usize].module.func_type(*func).results() != results) {
            return Err(broken("the outermost activation does not fit the call by the host"));
        }
        if sp != level.sp {
            return Err(broken("frames are not where calls put them"));
        }
        let stop = match level.stop {
            Halt::Direct { import, ty } => Stop::Direct { import, ty },
            Halt::Host { func, offset, args, callee, import, ty } => {
                let code = maps.of(level.instance, func)?;
                let at = code.find(offset, HOST_CALLS).ok_or(broken("a host call waits where there is no call"))?;
                let is_tail = TAIL_CALLS.iter().any(|op| single(*op) == code.opcode(at));
                let fits = args == if is_tail { 0 } else { code.field(at, 1) };
                let called = self.instances[level.instance as usize].module.called_type(func, offset);
                if !fits || self.funcs.get(callee as usize) != Some(&Func::Host { ty, import }) || called != Some(self.types.get(ty)) {
                    return Err(broken("a host call does not fit the operator that made it"));
                }
                self.check_fits(sp, code.frame_bytes)?;
                Stop::Host { exit: HostExit { func, ret: code.field(at, 2), callee, args }, import, ty }
            }
            Halt::Pause { func, offset, nth, acc, amount, why, .. } => {
                let code = maps.of(level.instance, func)?;
                let at = match nth {
                    None => code.find(offset, &[Single::Charge]),
                    Some(nth) => code.of_operator(offset).nth(nth as usize).filter(|_| shape == level.shape),
                };
                let at = at.ok_or(broken("the run waits where only code of the shape that it had can go on"))?;
                let is_safe = code.places.iter().any(|place| place.at == at && place.is_safe);
                if shape != level.shape && !is_safe {
                    return Err(broken("the run waits with a value in the accumulator: only code of the shape that it had can go on"));
                }
                self.check_fits(sp, code.frame_bytes)?;
                Stop::Paused(Pause { func, at: at * 8, nth, acc, amount, frame_bytes: code.frame_bytes, why })
            }
        };
        Ok((frames, stop))
    }

    fn check_fits(&self, sp: usize, frame_bytes: u32) -> Result<(), Error> {
        let bytes = self.exec.stack.as_ref().map_or(0, |stack| stack.bytes);
        match sp + frame_bytes as usize <= bytes {
            true => Ok(()),
            false => Err(broken("frames do not fit the stack")),
        }
    }

    /// The words of the value stack that are in use.
    pub(crate) fn stack_in_use(&self) -> &[u64] {
        match &self.exec.stack {
            // SAFETY: what is below the top is in the mapping, and `&self` excludes writers.
            Some(stack) => unsafe { core::slice::from_raw_parts(stack.base.as_ptr().cast::<u64>(), self.stack_top() / 8) },
            None => &[],
        }
    }

    /// What of runs lives between two exits, with code that is shared.
    pub(crate) fn copy_exec(&self) -> Result<State, Error> {
        let exec = &self.exec;
        let stack = exec.stack.as_ref().map(|stack| Stack::reserve(stack.bytes)).transpose()?;
        if let Some(stack) = &stack {
            let used = self.stack_in_use();
            // SAFETY: the new stack is as large as the old one, and nobody else has it.
            unsafe { core::ptr::copy_nonoverlapping(used.as_ptr(), stack.base.as_ptr().cast::<u64>(), used.len()) };
        }
        let mut frames = Frame::unused(exec.frames.len());
        frames[..exec.depth].copy_from_slice(&exec.frames[..exec.depth]);
        Ok(State {
            stack,
            frames,
            depth: exec.depth,
            entries: exec.entries.clone(),
            pending: exec.pending.clone(),
            fuel: exec.fuel,
            fuel_base: exec.fuel_base,
            current: exec.current,
            codes: exec.codes.clone(),
            tables: exec.tables.clone(),
            plans: exec.plans.clone(),
            sites: exec.sites.clone(),
            bounds: Bounds::default(),
            pause: exec.pause.clone(),
        })
    }

    /// Makes a fresh store wait at these levels.
    ///
    /// # Errors
    /// When they do not fit the store's limits or each other.
    pub(crate) fn set_levels(&mut self, levels: &[Level], stack: &[u64]) -> Result<(), Error> {
        if levels.is_empty() {
            return Ok(());
        }
        self.prepare()?;
        for level in levels {
            let exec = &mut self.exec;
            let is_direct = matches!(level.stop, Halt::Direct { .. });
            let needed = exec.depth + usize::from(!is_direct) + level.callers.len();
            if needed > exec.frames.len() || (is_direct && !level.callers.is_empty()) {
                return Err(broken("there are more activations than the limit on call depth allows"));
            }
            exec.entries.push(HostEntry { barrier: exec.depth, ty: level.ty, reported: !is_direct });
            if !is_direct {
                exec.frames[exec.depth] = Frame { ret: 0, func: 0, sp_delta: 0, instance: BARRIER };
                exec.depth += 1;
            }
            for caller in &level.callers {
                exec.frames[exec.depth] = Frame { ret: caller.offset, func: caller.func, sp_delta: caller.delta, instance: caller.instance };
                exec.depth += 1;
            }
            let (stop, sp) = (level.stop.in_module(), level.sp);
            exec.pending.push(Pending { stop, placed: Placed::InModule { shape: level.shape }, instance: level.instance, sp });
            let reserved = self.exec.stack.as_ref().map_or(0, |stack| stack.bytes);
            if sp > reserved || self.stack_top() > reserved || !sp.is_multiple_of(8) {
                return Err(broken("frames do not fit the stack"));
            }
        }
        if stack.len() * 8 != self.stack_top() {
            return Err(broken("the value stack has another size than its frames"));
        }
        self.put_args(0, stack);
        Ok(())
    }
}

impl Halt {
    /// A stop whose places are offsets in the module.
    fn in_module(self) -> Stop {
        match self {
            Halt::Direct { import, ty } => Stop::Direct { import, ty },
            Halt::Host { func, offset, args, callee, import, ty } => Stop::Host { exit: HostExit { func, ret: offset, callee, args }, import, ty },
            Halt::Pause { func, offset, nth, acc, amount, frame_bytes, why } => {
                Stop::Paused(Pause { func, at: offset, nth, acc, amount, frame_bytes, why })
            }
        }
    }
}

impl State {
    /// The instance that made the innermost host call.
    pub(crate) fn caller(&self) -> Option<InstanceId> {
        let pending = self.pending.last()?;
        matches!(pending.stop, Stop::Host { .. }).then_some(InstanceId(pending.instance))
    }

    /// Work and fuel, to be kept and put back.
    pub(crate) fn counts(&self) -> (i64, i64) {
        (self.work(), self.fuel)
    }

    /// Puts back what [`State::counts`] gave.
    pub(crate) fn set_counts(&mut self, work: i64, fuel: i64) {
        self.fuel = fuel.clamp(0, super::UNLIMITED);
        self.fuel_base = self.fuel + work.clamp(0, super::UNLIMITED);
    }
}

/// Slots of a host call's arguments or results, whichever are more.
pub(super) fn call_slots(ty: &FuncType) -> u32 {
    slots_of(ty.params()).max(slots_of(ty.results()))
}
