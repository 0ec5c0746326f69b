//! Running code: entering functions, leaving for the host, traps, and the state that lives between two exits.
//!
//! ```text
//!  start ──► dispatch ──► DONE ──────► Step::Returned
//!              ▲  │ ├───► TRAP ──────► Step::Trapped, or out of fuel: more of it, or Step::Suspended ── proceed ──► dispatch
//!              │  │ └───► HOST ──────► Step::HostCall ── resume ──► dispatch
//!              │  └─────► TRANSLATE ─┐                └─ start (re-entry), throw, unwind
//!              └─────────────────────┘
//! ```
//!
//! A host function runs while no handler is on the native stack: the run has left with everything in the store, so that it can
//! wait, be saved, or enter the guest again.

mod alu;
mod atomic;
mod control;
pub(crate) mod cx;
mod eager;
mod event;
mod exception;
mod fuel;
mod hooks;
mod memory;
mod position;
mod suspend;
mod table;
mod vector;
mod vector_memory;

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::error::{Error, check_values};
use crate::isa::{OPCODES, Single, single};
use crate::mutants::mutant;
use crate::probe::{Probe, SiteId, SiteTable, TracePlan};
use crate::state::{Committed, StateView};
use crate::store::{DedupTypeId, Func, Store};
use crate::translate::{Code, Handlers, Place, Request, translate};
use crate::trap::{FrameInfo, Trap, TrapKind};
use crate::value::{FuncId, InstanceId, Val, slots_of};
use cx::{BARRIER, Cx, DONE, Entry, Frame, HOST, Handler, HostExit, Ip, Regs, Sp, TRANSLATE, TRAP};
use fuel::{Bounds, UNLIMITED};
pub use fuel::{Interrupt, Suspension};
pub(crate) use position::{Halt, Level, Waiting};
use suspend::{Pause, Pending, Placed, Stop};

/// How far a run got.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// The function that was started returned these results.
    Returned(Vec<Val>),
    /// It calls the host: complete the call with [`Store::resume`] or [`Store::throw`], give it up with [`Store::unwind`], or enter the guest again
    /// with [`Store::start`].
    HostCall(HostCall),
    /// It is suspended between two operators: go on with [`Store::proceed`], or give it up with [`Store::abandon`].
    Suspended(Suspension),
    /// It trapped; its activations are gone.
    Trapped(Trap),
}

/// A call of a host function.
#[derive(Clone, PartialEq, Debug)]
pub struct HostCall {
    /// The number under which the host function was made.
    pub import: u32,
    /// Its arguments.
    pub args: Vec<Val>,
}

/// Names a probe type, borrowed contents or not. The address of a generic function would not do: one type may have several, and
/// two types one.
type ProbeKey = std::any::TypeId;

/// What of a run lives between two exits.
pub(crate) struct State {
    stack: Option<Stack>,
    frames: Vec<Frame>,
    depth: usize,
    entries: Vec<HostEntry>,
    pending: Vec<Pending>,
    fuel: i64,
    fuel_base: i64,
    /// The probe type that code was last linked for.
    current: ProbeKey,
    codes: Vec<CodeSet>,
    tables: Vec<ProbeTable>,
    plans: FxHashMap<u32, Arc<TracePlan>>,
    sites: SiteTable,
    bounds: Bounds,
    /// Who lets time pass.
    pause: Option<Wait>,
}

/// Lets time pass.
type Wait = Arc<dyn Fn(Duration) + Send + Sync>;

/// The value stack: reserved once, never moves.
struct Stack {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Stack {}
// SAFETY: `&Stack` gives no access to the mapping.
unsafe impl Sync for Stack {}

/// An entry of the guest by the host.
#[derive(Clone, Copy)]
struct HostEntry {
    /// Index of the barrier frame.
    barrier: usize,
    ty: DedupTypeId,
    /// Whether a wasm function was started (a host function called by the host has no activation).
    reported: bool,
}

/// One instance's code for one probe type.
#[derive(Clone)]
struct CodeSet {
    instance: u32,
    key: ProbeKey,
    shape: Shape,
    entries: Box<[Entry]>,
    /// Shared with forks, like all code.
    bodies: Vec<Option<Arc<[u64]>>>,
    /// What catches exceptions, by function.
    handlers: FxHashMap<u32, Arc<Handlers>>,
    /// For each function: a `Translate` header and the function's index.
    stubs: Arc<[[u64; 2]]>,
}

/// The handlers for one probe type.
#[derive(Clone)]
struct ProbeTable {
    key: ProbeKey,
    shape: Shape,
    handlers: Arc<[Handler]>,
}

/// What a probe type asks of its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) traced: bool,
    pub(crate) operators: bool,
}

impl Shape {
    fn of<P: Probe>() -> Shape {
        Shape { traced: P::TRACED, operators: P::TRACED && P::OPERATORS }
    }
}

// SAFETY: entries point into the bodies and stubs beside them, which move with the set and do not change while it lives.
unsafe impl Send for CodeSet {}
// SAFETY: as above; `&CodeSet` only reads.
unsafe impl Sync for CodeSet {}

impl Default for State {
    fn default() -> State {
        State {
            stack: None,
            frames: Vec::new(),
            depth: 0,
            entries: Vec::new(),
            pending: Vec::new(),
            fuel: UNLIMITED,
            fuel_base: UNLIMITED,
            current: typeid::of::<()>(),
            codes: Vec::new(),
            tables: Vec::new(),
            plans: FxHashMap::default(),
            sites: SiteTable::default(),
            bounds: Bounds::default(),
            pause: None,
        }
    }
}

impl State {
    /// Lets time pass for a wait that ends by its timeout.
    fn pause(&self, time: Duration) {
        match &self.pause {
            Some(pause) => pause(time),
            None => std::thread::sleep(time),
        }
    }
}

impl Stack {
    fn reserve(bytes: usize) -> Result<Stack, Error> {
        let bytes = bytes.max(4096).next_multiple_of(4096);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address that the system chooses disturbs nothing.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let base = base.map_err(|e| Error::AddressSpace { bytes: bytes as u64, cause: e.to_string() })?;
        Ok(Stack { base: NonNull::new(base.cast::<u8>()).expect("the system never maps anonymous memory at address 0"), bytes })
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, made in `reserve` with this size; nobody can refer to it any more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "unmapping a whole mapping of ours cannot fail");
    }
}

/// All handlers for one pair of state view and probe, by opcode.
fn handler_table<S: StateView, P: Probe>() -> Arc<[Handler]> {
    use alu::*;
    use atomic::*;
    use control::*;
    use event::*;
    use exception::*;
    use memory::*;
    use table::*;
    use vector::*;
    use vector_memory::*;
    let mut handlers: Vec<Handler> = Vec::with_capacity(usize::from(OPCODES));
    alu::push_handlers(&mut handlers);
    memory::push_handlers::<S, P>(&mut handlers);
    vector::push_handlers(&mut handlers);
    vector_memory::push_handlers::<S, P>(&mut handlers);
    memory::push_handlers64::<S, P>(&mut handlers);
    macro_rules! singles {
        ($($v:ident $h:ident $(::<$($g:ident),*>)?;)*) => { handlers.extend([$($h $(::<$($g),*>)? as Handler),*]) };
    }
    crate::isa::for_each_single!(singles);
    assert_eq!(handlers.len(), usize::from(OPCODES), "one handler for each opcode");
    handlers.into()
}

/// Where a run begins or goes on.
enum From {
    /// At a function's first instruction.
    Entry { index: u32 },
    /// After a call.
    Return { func: u32, offset: u32 },
    /// Where the exception is caught that this call ended with.
    Throw { func: u32, offset: u32, exception: u64 },
    /// Between two operators.
    Pause(Pause),
}

impl Store {
    /// Says what traced runs of an instance report. Call it before the first traced run: code that was translated stays as it is.
    pub fn set_trace_plan(&mut self, instance: InstanceId, plan: TracePlan) {
        self.exec.plans.insert(instance.0, Arc::new(plan));
    }

    /// The sites that traced runs have reported so far.
    pub fn sites(&self) -> &SiteTable {
        &self.exec.sites
    }

    /// Has `pause` called where the program waits for a time (`memory.atomic.wait32` and `wait64`), instead of sleeping so long: what a
    /// program sees of time comes from its host.
    pub fn on_wait(&mut self, pause: Arc<dyn Fn(Duration) + Send + Sync>) {
        self.exec.pause = Some(pause);
    }

    /// Calls a function. While a run is suspended this enters the guest again, inside that run.
    ///
    /// # Errors
    /// Wrong argument types, or no address space for the stack.
    pub fn start<P: Probe>(&mut self, probe: &mut P, func: FuncId, args: &[Val]) -> Result<Step, Error> {
        let callee = *self.funcs.get(func.index()).ok_or(Error::OutOfTurn("this function does not belong to the store"))?;
        let ty = self.types.get(callee.ty()).clone();
        check_values(self, || self.describe(callee), ty.params(), args)?;
        self.check_references(args)?;
        self.prepare()?;
        let base = self.stack_top();
        match callee {
            Func::Host { ty, import } => {
                let raw = Val::to_slots(args);
                if !self.put_args(base, &raw) {
                    return Ok(Step::Trapped(Trap::new(TrapKind::StackOverflow, Vec::new())));
                }
                self.exec.entries.push(HostEntry { barrier: self.exec.depth, ty, reported: false });
                self.exec.pending.push(suspend::direct::<P>(import, ty, base));
                Ok(Step::HostCall(HostCall { import, args: args.to_vec() }))
            }
            Func::Wasm { instance, index, ty } => Ok(self.start_wasm(probe, instance.0, index, ty, base, args)),
        }
    }

    fn describe(&self, func: Func) -> String {
        match func {
            Func::Wasm { instance, index, .. } => self.instances[instance.index()].module.func_name(index),
            Func::Host { import, .. } => format!("host function {import}"),
        }
    }

    fn prepare(&mut self) -> Result<(), Error> {
        if self.exec.stack.is_none() {
            let limits = &self.engine.config().limits;
            let (bytes, depth) = (limits.stack_bytes_max, limits.call_depth_max as usize);
            self.exec.stack = Some(Stack::reserve(bytes)?);
            self.exec.frames = Frame::unused(depth.max(1));
        }
        Ok(())
    }

    fn start_wasm<P: Probe>(&mut self, probe: &mut P, instance: u32, index: u32, ty: DedupTypeId, base: usize, args: &[Val]) -> Step {
        let raw = Val::to_slots(args);
        if self.exec.depth == self.exec.frames.len() || !self.put_args(base, &raw) {
            return Step::Trapped(Trap::new(TrapKind::StackOverflow, Vec::new()));
        }
        self.exec.frames[self.exec.depth] = Frame { ret: 0, func: index, sp_delta: 0, instance: BARRIER };
        self.exec.entries.push(HostEntry { barrier: self.exec.depth, ty, reported: true });
        self.exec.depth += 1;
        probe.enter(index, &raw, self.work());
        self.run(probe, instance, From::Entry { index }, base)
    }

    /// Writes arguments or results to the stack; `false` when they do not fit.
    fn put_args(&mut self, base: usize, raw: &[u64]) -> bool {
        let stack = self.exec.stack.as_ref().expect("prepared");
        let fits = base + 8 * raw.len() <= stack.bytes;
        if fits {
            // SAFETY: checked to fit just now.
            unsafe { core::ptr::copy_nonoverlapping(raw.as_ptr(), stack.base.as_ptr().add(base).cast::<u64>(), raw.len()) };
        }
        fits
    }

    /// Runs until something happens that this store cannot settle by itself.
    fn run<P: Probe>(&mut self, probe: &mut P, instance: u32, from: From, sp: usize) -> Step {
        let handlers = self.select_code::<P>();
        let threads = self.engine.config().eager_threads;
        if threads > 0 && !P::TRACED && !self.has_code(instance) {
            // What is too large is noticed when it is called.
            let _ = self.translate(probe, InstanceId(instance), threads);
        }
        let counted = P::TRACED || self.engine.config().fuel;
        let exec = &mut self.exec;
        let work = exec.work();
        // Fuel is handed out in slices, so that between two of them others have a say.
        let next = if let From::Pause(pause) = &from { pause.amount } else { 0 };
        let slice = if counted { exec.first_slice(next) } else { exec.fuel };
        let mut reserve = exec.fuel - slice;
        let stack = exec.stack.as_ref().expect("prepared");
        let (stack_base, stack_bytes) = (stack.base.as_ptr(), stack.bytes);
        let frames = exec.frames.as_mut_ptr();
        // SAFETY: depths and sizes are those of the allocations.
        let (next_frame, frames_end, stack_end, mut sp) =
            unsafe { (frames.add(exec.depth), frames.add(exec.frames.len()), stack_base.add(stack_bytes), stack_base.add(sp)) };
        let mut cx = Cx {
            frames: next_frame,
            frames_end,
            stack_end,
            mem_len: 0,
            fuel: slice,
            entries: std::ptr::null(),
            globals: std::ptr::null(),
            instance,
            counted,
            trap: None,
            probe: std::ptr::from_mut(probe).cast(),
            funcs: self.funcs.as_ptr(),
            store: std::ptr::from_mut(self),
            fuel_base: slice + work,
            exit_acc: 0,
            exit_ip: std::ptr::null(),
            exit_sp: sp,
            amount: 0,
            host: HostExit::default(),
            regs: Regs { ip: std::ptr::null(), sp, mem: std::ptr::null_mut(), acc: 0 },
            thrown: 0,
        };
        // SAFETY: `cx` was built for this store, and code is linked for this probe. No reference into the store is held while
        // handlers run.
        unsafe {
            let mut mem = (*cx.store).enter_instance(&mut cx, instance);
            let entry_of = |cx: &Cx, func: u32| *cx.entries.add(func as usize);
            let mut exit;
            let mut acc = 0;
            let mut ip = match from {
                From::Return { func, offset } => entry_of(&cx, func).code.add(offset as usize),
                From::Pause(pause) => {
                    acc = if mutant!(PauseLosesAcc) { 0 } else { pause.acc };
                    entry_of(&cx, pause.func).code.add(pause.at as usize)
                }
                From::Throw { func, offset, exception } => {
                    // The last word of the call.
                    let call = entry_of(&cx, func).code.add(offset as usize - 8);
                    if !exception::unwind::<P>(&mut cx, call, sp, func, exception, SiteId(0)) {
                        return (*cx.store).finish(probe, &cx, TRAP);
                    }
                    (sp, mem) = (cx.regs.sp, cx.regs.mem);
                    cx.regs.ip
                }
                From::Entry { index } => {
                    let entry = entry_of(&cx, index);
                    control::zero_locals_if(&cx, &entry, sp);
                    entry.code
                }
            };
            if let From::Entry { index } = from
                && !control::frame_fits(&cx, &entry_of(&cx, index), sp)
            {
                cx.trap = Some(TrapKind::StackOverflow);
                cx.exit_ip = ip;
                return (*cx.store).finish(probe, &cx, TRAP);
            }
            let charge = suspend::charge_of(&handlers);
            loop {
                exit = dispatch(&mut cx, ip, sp, mem, acc);
                if exit == TRAP && cx.trap == Some(TrapKind::OutOfFuel) {
                    cx.trap = None;
                    let amount = suspend::amount_at(&cx, charge);
                    let whole = suspend::is_charge(cx.exit_ip, charge);
                    match (*cx.store).exec.next_slice(cx.work() as i64, amount - cx.fuel, reserve, whole) {
                        Ok(more) => {
                            reserve -= more;
                            (cx.fuel, cx.fuel_base) = (cx.fuel + more, cx.fuel_base + more);
                            (ip, sp, acc) = (cx.exit_ip, cx.exit_sp, cx.exit_acc);
                            let running = cx.instance;
                            mem = (*cx.store).enter_instance(&mut cx, running);
                            continue;
                        }
                        Err(why) => return (*cx.store).pause::<P>(&cx, charge, amount, why),
                    }
                }
                acc = 0;
                if exit != TRANSLATE {
                    break;
                }
                // The stub's second word is the function; its frame was made before its size was known.
                let func = *cx.exit_ip.add(8).cast::<u64>() as u32;
                sp = cx.exit_sp;
                let known = (*cx.store).sites().len();
                if !(*cx.store).compile::<P>(cx.instance, func, &handlers) {
                    cx.trap = Some(TrapKind::StackOverflow);
                    exit = TRAP;
                    break;
                }
                for (id, site) in (*cx.store).sites().since(known) {
                    (*cx.probe.cast::<P>()).site_made(id, site);
                }
                let running = cx.instance;
                mem = (*cx.store).enter_instance(&mut cx, running);
                let entry = entry_of(&cx, func);
                ip = entry.code;
                if !control::frame_fits(&cx, &entry, sp) {
                    cx.trap = Some(TrapKind::StackOverflow);
                    cx.exit_ip = ip;
                    exit = TRAP;
                    break;
                }
                control::zero_locals_if(&cx, &entry, sp);
            }
            (*cx.store).finish(probe, &cx, exit)
        }
    }

    /// Writes the context's state back.
    fn write_back(&mut self, cx: &Cx) {
        self.exec.fuel = self.exec.fuel_base - cx.work() as i64;
        // SAFETY: both point into the frame buffer.
        self.exec.depth = unsafe { cx.frames.offset_from(self.exec.frames.as_ptr()) } as usize;
    }

    /// Turns an exit into a step.
    fn finish<P: Probe>(&mut self, probe: &mut P, cx: &Cx, exit: u64) -> Step {
        self.write_back(cx);
        match exit {
            DONE => {
                let entry = self.exec.entries.pop().expect("what returns was entered");
                let types = self.types.get(entry.ty).results();
                // SAFETY: results lie in the first slots of the frame that returned.
                let raw = unsafe { core::slice::from_raw_parts(cx.exit_sp.cast::<u64>(), slots_of(types) as usize) };
                let results = Val::from_slots(types, raw);
                debug_assert_eq!((entry.barrier, entry.reported), (self.exec.depth, true));
                probe.leave(self.work(), false);
                Step::Returned(results)
            }
            HOST => {
                // SAFETY: both point into the stack.
                let sp = unsafe { cx.exit_sp.offset_from(self.stack_base()) } as usize;
                let Func::Host { ty, import } = self.funcs[cx.host.callee as usize] else { unreachable!("only host functions leave") };
                let args = self.args_at(sp + cx.host.args as usize, ty);
                let stop = Stop::Host { exit: cx.host, import, ty };
                self.exec.pending.push(Pending { stop, instance: cx.instance, sp, placed: Placed::in_code::<P>() });
                Step::HostCall(HostCall { import, args })
            }
            _ => self.trapped(probe, cx),
        }
    }

    fn trapped<P: Probe>(&mut self, probe: &mut P, cx: &Cx) -> Step {
        let kind = cx.trap.expect("a trap exit has a kind");
        let entry = self.exec.entries.pop().expect("what traps was entered");
        let place = self.locate(cx.instance, cx.exit_ip);
        let (backtrace, unspent) = self.backtrace(cx.instance, place, entry.barrier);
        // A block's work is charged when it begins; what comes after the operator that trapped was not done.
        self.exec.fuel += if mutant!(FuelTrapKept) { 0 } else { i64::from(unspent) };
        self.exec.depth = entry.barrier;
        probe.leave(self.work(), true);
        match self.exceptions.pin(cx.thrown) {
            Some(pinned) if kind == TrapKind::UncaughtException => Step::Trapped(Trap::uncaught(pinned, backtrace)),
            _ => Step::Trapped(Trap::new(kind, backtrace)),
        }
    }

    /// The activations of the innermost entry, innermost first, and the work charged but not done in the one that trapped.
    fn backtrace(&mut self, instance: u32, place: Option<(u32, u32)>, barrier: usize) -> (Vec<FrameInfo>, u32) {
        let mut frames = Vec::new();
        let mut unspent = 0;
        let mut maps: FxHashMap<(u32, u32), Vec<Place>> = FxHashMap::default();
        let mut push = |store: &mut Store, instance: u32, func: u32, at: u32, is_return: bool| {
            let places = maps.entry((instance, func)).or_insert_with(|| store.map(instance, func));
            // A return address lies behind its call: the call is the last instruction before it.
            let found = places.partition_point(|p| if is_return { p.at < at } else { p.at <= at });
            let place = places.get(found.wrapping_sub(1)).copied();
            let name = store.instances[instance as usize].module.func_name(func);
            frames.push(FrameInfo { func, name, offset: place.map_or(0, |p| p.offset as usize) });
            place.map_or(0, |p| p.unspent)
        };
        if let Some((func, at)) = place {
            unspent = push(self, instance, func, at, false);
        }
        for depth in (barrier + 1..self.exec.depth).rev() {
            let frame = self.exec.frames[depth];
            push(self, frame.instance, frame.func, frame.ret / 8, true);
        }
        (frames, unspent)
    }

    /// The function whose code holds an instruction, and the word index there.
    fn locate(&self, instance: u32, ip: Ip) -> Option<(u32, u32)> {
        let set = self.exec.codes.iter().find(|s| s.instance == instance && s.key == self.exec.current)?;
        let bodies = set.bodies.iter().enumerate();
        bodies.filter_map(|(func, body)| Some((func, body.as_ref()?))).find_map(|(func, body)| {
            let start = body.as_ptr() as usize;
            let offset = (ip as usize).checked_sub(start)? / 8;
            (offset < body.len()).then_some((func as u32, offset as u32))
        })
    }

    /// What catches exceptions in the code that a function has for the current probe type.
    fn handlers_of(&self, instance: u32, func: u32) -> Option<&Handlers> {
        let set = self.exec.codes.iter().find(|s| s.instance == instance && s.key == self.exec.current)?;
        set.handlers.get(&func).map(|handlers| &**handlers)
    }

    /// Where the value stack begins.
    fn stack_base(&self) -> Sp {
        self.exec.stack.as_ref().expect("prepared").base.as_ptr()
    }

    /// The map from a function's code to its operators, made again: traps are rare, and the map is large.
    fn map(&self, instance: u32, func: u32) -> Vec<Place> {
        let set = self.exec.codes.iter().find(|s| s.instance == instance && s.key == self.exec.current);
        let mut scratch = SiteTable::default();
        let Some(set) = set else { return Vec::new() };
        let request = self.request(instance, func, set.shape, true, &mut scratch);
        translate(request).map_or_else(|_| Vec::new(), |code| code.places)
    }

    fn request<'a>(&'a self, instance: u32, func: u32, shape: Shape, mapped: bool, sites: &'a mut SiteTable) -> Request<'a> {
        let owner = &self.instances[instance as usize];
        let plan = self.exec.plans.get(&instance).cloned().unwrap_or_default();
        Request {
            module: &owner.module,
            func,
            type_ids: &owner.type_ids,
            counted: self.engine.config().fuel,
            traced: shape.traced.then_some((plan, sites)),
            operators: shape.operators,
            mapped,
        }
    }

    /// Makes the code for probe type `P` current and gives its handlers.
    fn select_code<P: Probe>(&mut self) -> Arc<[Handler]> {
        let key = typeid::of::<P>();
        self.exec.current = key;
        if let Some(known) = self.exec.tables.iter().find(|t| t.key == key) {
            return known.handlers.clone();
        }
        let handlers = handler_table::<Committed, P>();
        self.exec.tables.push(ProbeTable { key, shape: Shape::of::<P>(), handlers: handlers.clone() });
        handlers
    }

    /// Makes `instance` the running one: points the context at its functions, globals and memory; gives the memory's base.
    pub(crate) fn enter_instance(&mut self, cx: &mut Cx, instance: u32) -> *mut u8 {
        let set = self.code_set(instance);
        cx.entries = self.exec.codes[set].entries.as_ptr();
        let owner = &self.instances[instance as usize];
        cx.globals = owner.global_ptrs.as_ptr().cast();
        cx.instance = instance;
        match owner.memories.first() {
            Some(id) => {
                let memory = &self.memories[id.index()];
                cx.mem_len = memory.len;
                memory.base.as_ptr()
            }
            None => {
                cx.mem_len = 0;
                NonNull::<u64>::dangling().as_ptr().cast()
            }
        }
    }

    /// Whether an instance has code for the current probe type, or stubs.
    fn has_code(&self, instance: u32) -> bool {
        self.exec.codes.iter().any(|s| s.instance == instance && s.key == self.exec.current)
    }

    /// The index of an instance's code for the current probe type; makes it, all stubs, if there is none.
    fn code_set(&mut self, instance: u32) -> usize {
        let key = self.exec.current;
        if let Some(found) = self.exec.codes.iter().position(|s| s.instance == instance && s.key == key) {
            return found;
        }
        let selected = self.exec.tables.iter().find(|t| t.key == key).expect("selected");
        let (translate_stub, shape) = (selected.handlers[usize::from(single(Single::Translate))], selected.shape);
        let module = &self.instances[instance as usize].module;
        let stubs: Arc<[[u64; 2]]> = (0..module.func_count()).map(|f| [translate_stub as usize as u64, u64::from(f)]).collect();
        let entry = |(func, stub): (usize, &[u64; 2])| {
            let params = slots_of(module.func_type(func as u32).params());
            Entry { code: stub.as_ptr().cast(), frame_bytes: params * 8, params, zeroed: 0 }
        };
        let entries = stubs.iter().enumerate().map(entry).collect();
        let bodies = (0..module.func_count()).map(|_| None).collect();
        let handlers = FxHashMap::default();
        self.exec.codes.push(CodeSet { instance, key, shape, entries, bodies, handlers, stubs });
        self.exec.codes.len() - 1
    }

    /// Translates and links a function for the current probe type. `false` when its code is too large to be run.
    fn compile<P: Probe>(&mut self, instance: u32, func: u32, handlers: &[Handler]) -> bool {
        let mut sites = std::mem::take(&mut self.exec.sites);
        let translated = translate(self.request(instance, func, Shape::of::<P>(), false, &mut sites));
        self.exec.sites = sites;
        let Ok(code) = translated else { return false };
        self.link(instance, func, code, handlers);
        true
    }

    /// Gives a function its code for the current probe type.
    fn link(&mut self, instance: u32, func: u32, code: Code, handlers: &[Handler]) {
        let set = self.code_set(instance);
        let set = &mut self.exec.codes[set];
        let mut words = code.words.into_boxed_slice();
        for at in code.headers {
            let word = &mut words[at as usize];
            *word = handlers[*word as usize] as usize as u64;
        }
        let words: Arc<[u64]> = words.into();
        let entry = Entry { code: words.as_ptr().cast(), frame_bytes: code.frame_bytes, params: code.params, zeroed: code.zeroed };
        set.entries[func as usize] = entry;
        set.bodies[func as usize] = Some(words);
        if !code.handlers.is_empty() {
            set.handlers.insert(func, Arc::new(code.handlers));
        }
        debug_assert_eq!(set.stubs[func as usize][1], u64::from(func));
    }
}

/// Runs handlers until one leaves.
#[inline(never)]
unsafe fn dispatch(cx: &mut Cx, ip: Ip, sp: Sp, mem: *mut u8, acc: u64) -> u64 {
    // SAFETY: the caller gives linked code and a frame that fits; handlers go on as their instructions say.
    unsafe {
        #[cfg(not(any(debug_assertions, feature = "loop-dispatch")))]
        {
            let handler: Handler = core::mem::transmute(*(ip as *const usize));
            handler(cx, ip, sp, mem, acc)
        }
        #[cfg(any(debug_assertions, feature = "loop-dispatch"))]
        {
            cx.regs = Regs { ip, sp, mem, acc };
            loop {
                let Regs { ip, sp, mem, acc } = cx.regs;
                let handler: Handler = core::mem::transmute(*(ip as *const usize));
                let exit = handler(cx, ip, sp, mem, acc);
                if exit != cx::CONTINUE {
                    return exit;
                }
            }
        }
    }
}
