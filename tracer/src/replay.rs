//! Replays a recording on the engine and checks every step against it.
//!
//! ```text
//!            ┌── host has control ──┐   Enter / HostReturn(results)   ┌─ guest runs ─┐
//!  events ──►│ Read Write Grow Set… │ ───── start / resume ─────────► │   engine     │
//!            └──────────▲───────────┘                                 └──────┬───────┘
//!                       └── HostCall / Leave must match the next event ◄─────┘
//! ```
//!
//! The host is not asked again: its results, writes and growth come from the recording. So a replay needs no files and no
//! clock, and everything that the guest computes (arguments, bytes handed to the host, results, traps, final memories) is
//! compared. The first difference ends the replay with a [`Divergence`].

use std::ops::Range;
use std::sync::Arc;

use worksp_engine::probe::{NoProbe, Probe, TracePlan};
use worksp_engine::{
    Config, Engine, ExternType, FuncId, InstanceId, InstantiateError, Module, Step, Store, Trap, Val, ValType,
};

use crate::recording::{Bits, End, Event, Events, Exit, MemoryState, OutputState, Recording, Target, TrapCode, read_hash};

mod compare;
mod divergence;
mod imports;

pub use divergence::{Divergence, ReplayError};

use compare::{describe_event, describe_step, exit_of, grown, same_exit, trap_code, value_of};
use imports::make_imports;

/// Watches what the host does to guest state. Inside a host call these events come between [`Probe::host_call`] and
/// [`Probe::host_return`]; outside of any, they are what an embedder does between entries.
#[allow(unused_variables)]
pub trait HostObserver {
    /// The host reads a range of a memory.
    fn host_read(&mut self, memory: u32, range: Range<u64>) {}

    /// The host writes a range of a memory.
    fn host_write(&mut self, memory: u32, range: Range<u64>) {}

    /// The host grew a memory of `previous` pages by `delta` pages.
    fn host_grow(&mut self, memory: u32, previous: u64, delta: u64) {}

    /// The host changes elements of a table (also by growing it).
    fn host_table_write(&mut self, table: u32, range: Range<u64>) {}

    /// The host sets a global; of a vector, `value` is the lower half.
    fn host_global_set(&mut self, global: u32, value: u64) {}
}

impl HostObserver for NoProbe {}

/// A recording that is ready to be replayed, any number of times.
pub struct Replay<'a> {
    recording: &'a Recording,
    module: Module,
    meter: Option<(u64, Meter)>,
}

/// Is told the work done so far.
pub type Meter = Arc<dyn Fn(u64) + Send + Sync>;

impl std::fmt::Debug for Replay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("recording", &self.recording).finish_non_exhaustive()
    }
}

/// What a replay that agreed with its recording came to.
pub struct Replayed {
    /// The store as it is at the end, with its site table.
    pub store: Store,
    /// The instance that ran, unless instantiation trapped as recorded.
    pub instance: Option<InstanceId>,
    /// How the program ended, equal to the recording's.
    pub exit: Exit,
    /// Work done.
    pub work: u64,
    /// Events replayed.
    pub events: u64,
    /// What the guest handed to standard output; hashes are equal to the recording's.
    pub stdout: OutputState,
    /// What the guest handed to standard error.
    pub stderr: OutputState,
}

impl std::fmt::Debug for Replayed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replayed").field("exit", &self.exit).field("work", &self.work).finish_non_exhaustive()
    }
}

/// How far a replay has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Work done so far.
    pub work: u64,
    /// Events replayed so far.
    pub events: u64,
    /// All events of the recording.
    pub events_total: u64,
}

impl<'a> Replay<'a> {
    /// Loads the recorded module. `config` gives the limits on the stack and whether to count work; memory and table limits
    /// and the treatment of NaNs are the recording's. Relaxed SIMD is off when it had another meaning there.
    ///
    /// # Errors
    /// When the recording is unfinished or damaged, or the engine does not run such a module.
    pub fn new(recording: &'a Recording, config: Config) -> Result<Replay<'a>, ReplayError> {
        recording.outcome()?;
        let header = recording.header();
        let mut config = Config { canonicalize_nans: header.nan_canonical, ..config };
        config.relaxed_simd &= header.relaxed_simd_deterministic;
        config.limits.memory_bytes_max = header.memory_bytes_max;
        config.limits.table_elements_max = header.table_elements_max;
        let module = Module::new(&Engine::new(config), recording.module()?).map_err(ReplayError::Engine)?;
        Ok(Replay { recording, module, meter: None })
    }

    /// Has `tell` called about every `every` units of work, in runs that count it.
    pub fn on_work(&mut self, every: u64, tell: Meter) {
        self.meter = Some((every, tell));
    }

    /// The recorded module.
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Replays the request under a probe. `plan` says what traced code reports; `progress` is called now and then.
    ///
    /// # Errors
    /// A [`Divergence`] when engine and recording disagree; other errors when the recording makes no sense.
    pub fn run<P: Probe + HostObserver>(
        &self,
        plan: TracePlan,
        probe: &mut P,
        mut progress: impl FnMut(Progress),
    ) -> Result<Replayed, ReplayError> {
        let outcome = self.recording.outcome()?;
        let mut store = Store::new(self.module.engine());
        let imports = make_imports(&mut store, &self.module, self.recording)?;
        let instance = match store.instantiate(&self.module, &imports) {
            Ok(instance) => instance,
            Err(InstantiateError::Error(error)) => return Err(ReplayError::Engine(error)),
            Err(InstantiateError::Trap(trap)) => {
                let found = exit_of(&End::Trapped { code: trap_code(trap.kind()), message: trap.to_string() });
                if !same_exit(&outcome.exit, &found) {
                    return Err(Divergence::new(0, "how instantiation ended", &outcome.exit, &found).with_trap(&trap).into());
                }
                let (stdout, stderr) = (outcome.stdout.clone(), outcome.stderr.clone());
                return Ok(Replayed { store, instance: None, exit: outcome.exit.clone(), work: 0, events: 0, stdout, stderr });
            }
        };
        store.set_trace_plan(instance, plan);
        // The time that passes is the recording's.
        store.on_wait(Arc::new(|_| {}));
        if let Some((every, tell)) = &self.meter {
            store.on_work(*every, tell.clone());
        }
        let mut driver = Driver {
            recording: self.recording,
            events: self.recording.events(),
            store,
            instance,
            probe,
            open: Vec::new(),
            number: 0,
            exit: Exit::Returned(Vec::new()),
            thrown: None,
            last_read: Vec::new(),
            outputs: Default::default(),
        };
        while driver.step()? {
            if driver.number.is_multiple_of(64) {
                let (work, events) = (driver.store.work(), driver.number);
                progress(Progress { work, events, events_total: outcome.events });
            }
        }
        driver.finish()
    }
}

/// A call that has begun and not ended.
#[derive(Clone, Copy, Debug)]
enum Open {
    Entry(FuncId),
    Host(u32),
}

struct Driver<'a, P> {
    recording: &'a Recording,
    events: Events<'a>,
    store: Store,
    instance: InstanceId,
    probe: &'a mut P,
    open: Vec<Open>,
    /// Number of the event at hand, from 1.
    number: u64,
    /// How the last entry ended.
    exit: Exit,
    /// The last exception that nobody caught; a host function may throw it on.
    thrown: Option<Trap>,
    /// The bytes of the last `Read`, for the `Output` that may follow.
    last_read: Vec<u8>,
    outputs: [Output; 2],
}

#[derive(Default)]
struct Output {
    hasher: blake3::Hasher,
    len: u64,
    kept: Vec<u8>,
}

/// What is kept of each output stream for display.
const KEPT_BYTES_MAX: usize = 1 << 20;

impl<P: Probe + HostObserver> Driver<'_, P> {
    /// Takes one event while the host has control; `false` at the end of the recording.
    fn step(&mut self) -> Result<bool, ReplayError> {
        let Some(event) = self.events.next() else { return Ok(false) };
        self.number += 1;
        match event? {
            Event::Enter { target, args } => self.enter(target, &args)?,
            Event::HostReturn { end } => self.host_return(end)?,
            Event::HostCall { .. } | Event::Leave { .. } => {
                return Err(self.malformed("the guest acts while the host has control"));
            }
            Event::Read { memory, address, len, hash } => self.read(memory, address, len, hash)?,
            Event::Output { stream, len } => self.output(stream, len)?,
            Event::Write { memory, address, bytes } => self.write(memory, address, &bytes)?,
            Event::MemoryGrow { memory, delta, previous } => self.memory_grow(memory, delta, previous)?,
            Event::TableGrow { table, delta, previous } => self.table_grow(table, delta, previous)?,
            Event::TableSet { table, index, value } => self.table_set(table, index, value)?,
            Event::GlobalSet { global, value } => self.global_set(global, value)?,
        }
        Ok(true)
    }

    fn enter(&mut self, target: Target, args: &[Bits]) -> Result<(), ReplayError> {
        if let Some(Open::Entry(_)) = self.open.last() {
            return Err(self.malformed("the host enters while the guest runs"));
        }
        let func = self.target(target)?;
        let ty = self.store.func_type(func).clone();
        let args = self.values(ty.params(), args)?;
        self.open.push(Open::Entry(func));
        let step = self.store.start(self.probe, func, &args)?;
        self.after(step)
    }

    fn target(&self, target: Target) -> Result<FuncId, ReplayError> {
        match target {
            Target::Func(index) if index < self.module().func_count() => Ok(self.store.func(self.instance, index)),
            Target::Func(_) => Err(self.malformed("it enters a function that the module does not have")),
            Target::Element { table, index } if table < self.module().table_count() => {
                match self.store.table_get(self.store.table_id(self.instance, table), index) {
                    Some(Val::FuncRef(Some(func))) => Ok(func),
                    other => {
                        let found = other.map_or("nothing".to_string(), |value| value.to_string());
                        let what = format!("element {index} of table {table}, which the host calls");
                        Err(self.diverged(what, &"a function", &found))
                    }
                }
            }
            Target::Element { .. } => Err(self.malformed("it enters through a table that the module does not have")),
        }
    }

    fn host_return(&mut self, end: End) -> Result<(), ReplayError> {
        let Some(Open::Host(import)) = self.open.pop() else {
            return Err(self.malformed("a host call ends that did not begin"));
        };
        match &end {
            End::Returned(results) => {
                let ty = self.store.func_type(self.store.func(self.instance, import)).clone();
                let results = self.values(ty.results(), results)?;
                let step = self.store.resume(self.probe, &results)?;
                self.after(step)
            }
            End::Trapped { code: TrapCode::Exception, .. } => {
                let Some(exception) = self.thrown.as_ref().and_then(Trap::exception) else {
                    return Err(self.malformed("the host throws an exception on that no call of its own ended with"));
                };
                let step = self.store.throw(self.probe, exception)?;
                self.after(step)
            }
            End::Trapped { .. } | End::Exit(_) => {
                self.store.unwind(self.probe);
                let event = self.next("the end of the call that the host ended")?;
                let Event::Leave { end: recorded } = event else {
                    return Err(self.malformed("the host ended a call, but the call did not end"));
                };
                if !same_exit(&exit_of(&recorded), &exit_of(&end)) {
                    return Err(self.malformed("a call did not end as the host ended it"));
                }
                self.leave(&recorded)
            }
        }
    }

    /// The guest stopped; the next event must be what it did.
    fn after(&mut self, step: Step) -> Result<(), ReplayError> {
        let event = self.next(&describe_step(&step))?;
        match (step, event) {
            (Step::HostCall(call), Event::HostCall { import, args }) => {
                if call.import != import {
                    let (expected, found) = (self.import_name(import), self.import_name(call.import));
                    return Err(self.diverged("which host function was called".to_string(), &expected, &found));
                }
                let found: Vec<Bits> = call.args.iter().map(|value| value.bits()).collect();
                if found != args {
                    let what = format!("arguments of host call {}", self.import_name(import));
                    return Err(self.diverged(what, &format!("{args:x?}"), &format!("{found:x?}")));
                }
                self.open.push(Open::Host(import));
                Ok(())
            }
            (Step::Returned(values), Event::Leave { end }) => {
                let found = End::Returned(values.iter().map(|value| value.bits()).collect());
                if found != end {
                    return Err(self.diverged("how the call ended".to_string(), &exit_of(&end), &exit_of(&found)));
                }
                self.leave(&end)
            }
            (Step::Trapped(trap), Event::Leave { end }) => {
                let found = End::Trapped { code: trap_code(trap.kind()), message: trap.kind().to_string() };
                if !same_exit(&exit_of(&end), &exit_of(&found)) {
                    let divergence = self.divergence("how the call ended".to_string(), &exit_of(&end), &exit_of(&found));
                    return Err(divergence.with_trap(&trap).into());
                }
                if trap.exception().is_some() {
                    self.thrown = Some(trap);
                }
                self.leave(&end)
            }
            (step, event) => {
                let divergence = self.divergence("what the guest did next".to_string(), &describe_event(&event), &describe_step(&step));
                Err(match &step {
                    Step::Trapped(trap) => divergence.with_trap(trap).into(),
                    _ => divergence.into(),
                })
            }
        }
    }

    fn leave(&mut self, end: &End) -> Result<(), ReplayError> {
        let Some(Open::Entry(_)) = self.open.pop() else {
            return Err(self.malformed("a call ends that did not begin"));
        };
        self.exit = exit_of(end);
        Ok(())
    }

    fn read(&mut self, memory: u32, address: u64, len: u64, hash: u64) -> Result<(), ReplayError> {
        let range = self.range(memory, address, len)?;
        let bytes = &self.store.memory(self.store.memory_id(self.instance, memory))[range];
        let found = read_hash(bytes);
        if found != hash {
            let what = format!("the {len} bytes at {address:#x} of memory {memory}, which the host reads");
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
            let found = format!("bytes with hash {found:016x}, beginning {shown:?}");
            return Err(self.diverged(what, &format!("bytes with hash {hash:016x}"), &found));
        }
        self.last_read.clear();
        self.last_read.extend_from_slice(bytes);
        self.probe.host_read(memory, address..address + len);
        Ok(())
    }

    fn output(&mut self, stream: u8, len: u64) -> Result<(), ReplayError> {
        let taken = usize::try_from(len).ok().and_then(|len| self.last_read.get(..len));
        let (Some(output), Some(bytes)) = (self.outputs.get_mut(usize::from(stream).wrapping_sub(1)), taken) else {
            return Err(self.malformed("output that was not read, or to an unknown stream"));
        };
        output.hasher.update(bytes);
        output.len += len;
        output.kept.extend_from_slice(&bytes[..bytes.len().min(KEPT_BYTES_MAX - output.kept.len().min(KEPT_BYTES_MAX))]);
        Ok(())
    }

    fn write(&mut self, memory: u32, address: u64, bytes: &[u8]) -> Result<(), ReplayError> {
        let range = self.range(memory, address, bytes.len() as u64)?;
        let id = self.store.memory_id(self.instance, memory);
        self.store.memory_mut(id)[range].copy_from_slice(bytes);
        self.probe.host_write(memory, address..address + bytes.len() as u64);
        Ok(())
    }

    fn memory_grow(&mut self, memory: u32, delta: u64, previous: Option<u64>) -> Result<(), ReplayError> {
        self.range(memory, 0, 0)?;
        let Some(previous) = previous else { return Ok(()) };
        let found = self.store.memory_grow(self.store.memory_id(self.instance, memory), delta);
        if found != Some(previous) {
            let what = format!("growth of memory {memory} by {delta} pages by the host");
            return Err(self.diverged(what, &format!("from {previous} pages"), &grown(found)));
        }
        self.probe.host_grow(memory, previous, delta);
        Ok(())
    }

    fn table_grow(&mut self, table: u32, delta: u64, previous: Option<u64>) -> Result<(), ReplayError> {
        let element = self.table_type(table)?;
        let Some(previous) = previous else { return Ok(()) };
        let found = self.store.table_grow(self.store.table_id(self.instance, table), delta, Val::zero(element));
        if found != Some(previous) {
            let what = format!("growth of table {table} by {delta} elements by the host");
            return Err(self.diverged(what, &format!("from {previous} elements"), &grown(found)));
        }
        self.probe.host_table_write(table, previous..previous + delta);
        Ok(())
    }

    fn table_set(&mut self, table: u32, index: u64, value: Bits) -> Result<(), ReplayError> {
        let element = self.table_type(table)?;
        let id = self.store.table_id(self.instance, table);
        self.store.table_set(id, index, value_of(element, value))?;
        self.probe.host_table_write(table, index..index + 1);
        Ok(())
    }

    fn global_set(&mut self, global: u32, value: Bits) -> Result<(), ReplayError> {
        if global >= self.module().global_count() {
            return Err(self.malformed("it sets a global that the module does not have"));
        }
        let id = self.store.global_id(self.instance, global);
        let value = value_of(self.store.global_type(id).content, value);
        self.store.set_global(id, value)?;
        self.probe.host_global_set(global, value.raw());
        Ok(())
    }

    fn finish(mut self) -> Result<Replayed, ReplayError> {
        let recording = self.recording;
        let outcome = recording.outcome()?;
        if !self.open.is_empty() {
            return Err(self.malformed("the recording ends inside a call"));
        }
        if !same_exit(&outcome.exit, &self.exit) && self.number > 0 {
            return Err(self.malformed("the recorded end is not how the last call ended"));
        }
        let [stdout, stderr] = std::mem::take(&mut self.outputs).map(Output::state);
        for (name, recorded, found) in [("output", &outcome.stdout, &stdout), ("error output", &outcome.stderr, &stderr)] {
            if (recorded.len, recorded.blake3) != (found.len, found.blake3) {
                let show = |state: &OutputState| format!("{} bytes", state.len);
                return Err(self.diverged(format!("the program's {name}"), &show(recorded), &show(found)));
            }
        }
        let count = self.module().memory_count();
        if outcome.memories.len() != count as usize {
            return Err(self.malformed("the number of final memories is not the module's"));
        }
        for index in 0..count {
            let found = MemoryState::of(self.store.memory(self.store.memory_id(self.instance, index)));
            let recorded = outcome.memories[index as usize];
            if found != recorded {
                let show = |state: MemoryState| format!("{} bytes with BLAKE3 {}", state.bytes, crate::recording::hex(&state.blake3));
                return Err(self.diverged(format!("memory {index} at the end"), &show(recorded), &show(found)));
            }
        }
        let (work, instance) = (self.store.work(), Some(self.instance));
        Ok(Replayed { store: self.store, instance, exit: outcome.exit.clone(), work, events: self.number, stdout, stderr })
    }

    // --- helpers ----------------------------------------------------------------------------------------------------

    fn next(&mut self, found: &str) -> Result<Event, ReplayError> {
        self.number += 1;
        match self.events.next() {
            Some(event) => Ok(event?),
            None => Err(self.diverged("what the guest did next".to_string(), &"the end of the recording", &found)),
        }
    }

    fn module(&self) -> &Module {
        self.store.module(self.instance)
    }

    /// The byte range, when the memory has it.
    fn range(&self, memory: u32, address: u64, len: u64) -> Result<Range<usize>, ReplayError> {
        if memory >= self.module().memory_count() {
            return Err(self.malformed("it names a memory that the module does not have"));
        }
        let size = self.store.memory(self.store.memory_id(self.instance, memory)).len() as u64;
        match address.checked_add(len) {
            Some(end) if end <= size => Ok(address as usize..end as usize),
            _ => {
                let what = format!("the size of memory {memory}");
                Err(self.diverged(what, &format!("at least {} bytes", address.saturating_add(len)), &format!("{size} bytes")))
            }
        }
    }

    fn table_type(&self, table: u32) -> Result<ValType, ReplayError> {
        if table >= self.module().table_count() {
            return Err(self.malformed("it names a table that the module does not have"));
        }
        Ok(self.module().table_type(table).element)
    }

    fn values(&self, types: &[ValType], bits: &[Bits]) -> Result<Vec<Val>, ReplayError> {
        if types.len() != bits.len() {
            return Err(self.malformed("a call has the wrong number of arguments or results"));
        }
        Ok(types.iter().zip(bits).map(|(ty, bits)| value_of(*ty, *bits)).collect())
    }

    fn import_name(&self, import: u32) -> String {
        let funcs = self.module().imports().iter().filter(|import| matches!(import.ty, ExternType::Func(_)));
        match funcs.into_iter().nth(import as usize) {
            Some(import) => format!("{}.{}", import.module, import.name),
            None => format!("number {import}"),
        }
    }

    fn malformed(&self, what: &str) -> ReplayError {
        ReplayError::Malformed { path: self.recording.path().to_path_buf(), event: self.number, what: what.to_string() }
    }

    fn diverged(&self, what: String, expected: &dyn std::fmt::Display, found: &dyn std::fmt::Display) -> ReplayError {
        self.divergence(what, expected, found).into()
    }

    fn divergence(&self, what: String, expected: &dyn std::fmt::Display, found: &dyn std::fmt::Display) -> Divergence {
        let calls = self.open.iter().rev().map(|open| match open {
            Open::Entry(func) => format!("{} (called by the host)", self.store.func_name(*func)),
            Open::Host(import) => format!("{} (host function)", self.import_name(*import)),
        });
        Divergence::new(self.number, what, expected, found).with_calls(calls)
    }
}

impl Output {
    fn state(self) -> OutputState {
        OutputState { len: self.len, blake3: *self.hasher.finalize().as_bytes(), kept: self.kept }
    }
}
