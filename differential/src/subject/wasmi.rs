//! A replay on wasmi: the host's answers come from the recording, and everything that the guest hands to the host is compared.
//!
//! Only what the benchmarked requests need: one memory at most, function imports, no re-entry.

use std::collections::VecDeque;

use wasmi::{Caller, Engine, Error, ExternType, Func, Linker, Memory, Module, Store, Val, ValType};
use worksp_tracer::recording::{Bits, End, Event, Exit, MemoryState, Recording, Target, read_hash};

/// A request that is compiled and linked.
pub struct Prepared {
    store: Store<State>,
    instance: wasmi::Instance,
    exports: Vec<(u32, String)>,
    exit: Exit,
    memories: Vec<MemoryState>,
}

/// What is left of the recording.
struct State {
    events: VecDeque<Event>,
}

/// Loads the recording's own module.
pub fn prepare(recording: &Recording) -> Result<Prepared, String> {
    prepare_module(recording, recording.module().map_err(|error| error.to_string())?)
}

/// Loads a module that should be the recording's.
pub fn prepare_module(recording: &Recording, bytes: &[u8]) -> Result<Prepared, String> {
    let text = |error: Error| error.to_string();
    let mut config = wasmi::Config::default();
    // As deep as our own engine goes by default.
    config.set_max_recursion_depth(200_000).set_max_stack_height(64 << 20);
    let engine = Engine::new(&config);
    let module = Module::new(&engine, bytes).map_err(text)?;
    let events = recording.events().collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let mut store = Store::new(&engine, State { events });
    let mut linker = Linker::new(&engine);
    for (index, import) in module.imports().enumerate() {
        let ExternType::Func(ty) = import.ty() else { return Err(format!("{}.{} is no function", import.module(), import.name())) };
        let index = u32::try_from(index).map_err(|error| error.to_string())?;
        let call = move |mut caller: Caller<'_, State>, args: &[Val], results: &mut [Val]| host_call(&mut caller, index, args, results);
        linker.func_new(import.module(), import.name(), ty.clone(), call).map_err(|error| error.to_string())?;
    }
    let instance = linker.instantiate_and_start(&mut store, &module).map_err(text)?;
    let outcome = recording.outcome().map_err(|error| error.to_string())?;
    Ok(Prepared { store, instance, exports: exported_functions(bytes)?, exit: outcome.exit.clone(), memories: outcome.memories.clone() })
}

/// Index and name of every exported function.
fn exported_functions(bytes: &[u8]) -> Result<Vec<(u32, String)>, String> {
    let engine = worksp_engine::Engine::new(worksp_engine::Config::default());
    let module = worksp_engine::Module::new(&engine, bytes).map_err(|error| error.to_string())?;
    let functions = module.exports().iter().filter_map(|export| match export.item {
        worksp_engine::ExportItem::Func(index) => Some((index, export.name.to_string())),
        _ => None,
    });
    Ok(functions.collect())
}

impl Prepared {
    /// Runs the whole request; an error says where it left the recording.
    pub fn run(mut self) -> Result<(), String> {
        while let Some(event) = self.store.data_mut().events.pop_front() {
            match event {
                Event::Enter { target, args } => self.enter(target, &args)?,
                event => {
                    let memory = self.memory();
                    host_event(&mut self.store, memory, event)?;
                }
            }
        }
        let found: Vec<MemoryState> = self.memory().iter().map(|memory| MemoryState::of(memory.data(&self.store))).collect();
        if found != self.memories {
            return Err("the memory at the end differs from the recording's".to_owned());
        }
        Ok(())
    }

    fn memory(&self) -> Option<Memory> {
        memory_of(self.instance.exports(&self.store))
    }

    fn enter(&mut self, target: Target, args: &[Bits]) -> Result<(), String> {
        let Target::Func(index) = target else { return Err("the host calls through a table".to_owned()) };
        let name = self.exports.iter().find(|(func, _)| *func == index).map(|(_, name)| name);
        let func = name.and_then(|name| self.instance.get_func(&self.store, name)).ok_or("the host calls a function that is not exported")?;
        let ty = func.ty(&self.store);
        let args = values(ty.params(), args)?;
        let mut results: Vec<Val> = ty.results().iter().map(|ty| Val::default_for_ty(*ty)).collect();
        let ended = self.call(func, &args, &mut results);
        let Some(Event::Leave { end }) = self.store.data_mut().events.pop_front() else { return Err(format!("the call ended early: {ended:?}")) };
        let agrees = match (&ended, &end) {
            (Ok(()), End::Returned(recorded)) => values(ty.results(), recorded)?.iter().map(raw).eq(results.iter().map(raw)),
            (Err(error), End::Exit(status)) => error.i32_exit_status() == Some(*status),
            (Err(error), End::Trapped { .. }) => error.as_trap_code().is_some(),
            _ => false,
        };
        if agrees { Ok(()) } else { Err(format!("the call ended with {ended:?}, recorded: {end:?} ({:?} at the end)", self.exit)) }
    }

    fn call(&mut self, func: Func, args: &[Val], results: &mut [Val]) -> Result<(), Error> {
        func.call(&mut self.store, args, results)
    }
}

fn memory_of<'a>(exports: impl Iterator<Item = wasmi::Export<'a>>) -> Option<Memory> {
    exports.filter_map(wasmi::Export::into_memory).next()
}

/// One call from guest to host: compare, do what the host did, answer as it did.
fn host_call(caller: &mut Caller<'_, State>, import: u32, args: &[Val], results: &mut [Val]) -> Result<(), Error> {
    let found: Vec<Option<Bits>> = args.iter().map(raw).collect();
    match caller.data_mut().events.pop_front() {
        Some(Event::HostCall { import: recorded, args }) if recorded == import && args.iter().copied().map(Some).eq(found.iter().copied()) => {}
        other => return Err(Error::new(format!("import {import} is called with {found:x?}, recorded: {other:x?}"))),
    }
    let memory = caller.get_export("memory").and_then(wasmi::Extern::into_memory);
    loop {
        match caller.data_mut().events.pop_front() {
            Some(Event::HostReturn { end: End::Returned(bits) }) => {
                for (result, bits) in results.iter_mut().zip(bits) {
                    *result = value(result.ty(), bits).map_err(Error::new)?;
                }
                return Ok(());
            }
            Some(Event::HostReturn { end: End::Exit(status) }) => return Err(Error::i32_exit(status)),
            Some(Event::HostReturn { end: End::Trapped { message, .. } }) => return Err(Error::new(message)),
            Some(event) => host_event(&mut *caller, memory, event).map_err(Error::new)?,
            None => return Err(Error::new("the recording ends inside a host call")),
        }
    }
}

/// What the host does to the guest while it has control.
fn host_event(mut store: impl wasmi::AsContextMut<Data = State>, memory: Option<Memory>, event: Event) -> Result<(), String> {
    let Some(memory) = memory else { return Err(format!("the guest exports no memory: {event:?}")) };
    let range = |address: u64, len: u64| usize::try_from(address).ok().zip(usize::try_from(len).ok()).and_then(|(at, len)| Some(at..at.checked_add(len)?));
    match event {
        Event::Read { memory: 0, address, len, hash } => {
            let bytes = range(address, len).and_then(|range| memory.data(&store).get(range)).ok_or("the host reads outside the memory")?;
            if read_hash(bytes) == hash { Ok(()) } else { Err(format!("the {len} bytes at {address:#x}, which the host reads, differ")) }
        }
        Event::Write { memory: 0, address, bytes } => {
            let target = range(address, bytes.len() as u64).and_then(|range| memory.data_mut(&mut store).get_mut(range));
            target.ok_or("the host writes outside the memory")?.copy_from_slice(&bytes);
            Ok(())
        }
        Event::MemoryGrow { memory: 0, delta, previous: Some(previous) } => match memory.grow(&mut store, delta) {
            Ok(found) if found == previous => Ok(()),
            other => Err(format!("growth by the host gave {other:?}, recorded: {previous}")),
        },
        Event::Output { .. } | Event::MemoryGrow { previous: None, .. } => Ok(()),
        other => Err(format!("this event is not supported here: {other:?}")),
    }
}

fn values(types: &[ValType], bits: &[Bits]) -> Result<Vec<Val>, String> {
    types.iter().zip(bits).map(|(ty, bits)| value(*ty, *bits)).collect()
}

fn value(ty: ValType, bits: Bits) -> Result<Val, String> {
    match ty {
        ValType::I32 => Ok(Val::I32(bits as u32 as i32)),
        ValType::I64 => Ok(Val::I64(bits as u64 as i64)),
        ValType::F32 => Ok(Val::F32(wasmi::F32::from_bits(bits as u32))),
        ValType::F64 => Ok(Val::F64(wasmi::F64::from_bits(bits as u64))),
        other => Err(format!("a value of type {other:?} is not supported here")),
    }
}

/// The bits of a number; nothing for references, which never agree with a recording here.
fn raw(value: &Val) -> Option<Bits> {
    match value {
        Val::I32(value) => Some(Bits::from(*value as u32)),
        Val::I64(value) => Some(Bits::from(*value as u64)),
        Val::F32(value) => Some(Bits::from(value.to_bits())),
        Val::F64(value) => Some(Bits::from(value.to_bits())),
        _ => None,
    }
}
