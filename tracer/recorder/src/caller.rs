//! What an embedder's host function sees of the guest. Everything that it does through here is logged.

use wasmtime::{AsContext, AsContextMut, Extern, Func, Memory, Ref, StoreContextMut, Table};
use worksp_tracer::recording::{End, Event, Target, TrapCode, read_hash};

use crate::error::Error;
use crate::expose::Exposed;
use crate::log::{State, Stop, enter};
use crate::value::Value;

/// Why a host function does not return to the guest.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostError {
    /// The program ends with this status.
    Exit(i32),
    /// The program traps with this message.
    Trap(String),
    /// A call back into the guest ended this way; hand it on.
    Guest(GuestEnd),
}

/// How a call back into the guest failed.
#[derive(Debug)]
pub struct GuestEnd(pub(crate) Stop);

impl std::fmt::Display for HostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HostError::Exit(status) => write!(f, "exit with status {status}"),
            HostError::Trap(message) => f.write_str(message),
            HostError::Guest(GuestEnd(stop)) => write!(f, "{stop}"),
        }
    }
}

impl std::error::Error for HostError {}

impl HostError {
    pub(crate) fn stop(self) -> Stop {
        match self {
            HostError::Exit(status) => Stop::Exit(status),
            HostError::Trap(message) => Stop::Trap { code: TrapCode::Host, message },
            HostError::Guest(GuestEnd(stop)) => stop,
        }
    }
}

impl From<Stop> for HostError {
    fn from(stop: Stop) -> Self {
        HostError::Guest(GuestEnd(stop))
    }
}

/// The guest, as a host function reaches it while it is called.
pub struct HostCaller<'a> {
    context: StoreContextMut<'a, State>,
    exposed: &'a Exposed,
}

impl std::fmt::Debug for HostCaller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostCaller").finish_non_exhaustive()
    }
}

impl<'a> HostCaller<'a> {
    pub(crate) fn new(context: StoreContextMut<'a, State>, exposed: &'a Exposed) -> HostCaller<'a> {
        HostCaller { context, exposed }
    }

    /// The index of an exported memory.
    pub fn memory_index(&self, export: &str) -> Option<u32> {
        self.exposed.memories.get(export).copied()
    }

    /// The size of a memory in bytes; 0 when there is no such memory.
    pub fn memory_bytes(&self, memory: u32) -> u64 {
        self.context.data().memories.get(memory as usize).map_or(0, |memory| memory.data_size(&self.context) as u64)
    }

    /// Reads guest memory.
    ///
    /// # Errors
    /// As a trap, when the range is outside.
    pub fn read(&mut self, memory: u32, address: u64, len: u64) -> Result<Vec<u8>, HostError> {
        let handle = self.memory(memory)?;
        let bytes = read(self.context.as_context_mut(), handle, memory, address, len)?;
        bytes.ok_or_else(|| outside("reads", memory, address, len))
    }

    /// Reads a little-endian `u32`.
    ///
    /// # Errors
    /// As [`HostCaller::read`].
    pub fn read_u32(&mut self, memory: u32, address: u64) -> Result<u32, HostError> {
        let bytes = self.read(memory, address, 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes were asked for")))
    }

    /// Writes guest memory.
    ///
    /// # Errors
    /// As a trap, when the range is outside.
    pub fn write(&mut self, memory: u32, address: u64, bytes: &[u8]) -> Result<(), HostError> {
        let handle = self.memory(memory)?;
        if write(self.context.as_context_mut(), handle, memory, address, bytes)? {
            return Ok(());
        }
        Err(outside("writes", memory, address, bytes.len() as u64))
    }

    /// Grows a memory by `delta` pages; the former number of pages, or `None` when that is not possible.
    ///
    /// # Errors
    /// When there is no such memory, or the system refuses.
    pub fn memory_grow(&mut self, memory: u32, delta: u64) -> Result<Option<u64>, HostError> {
        let handle = self.memory(memory)?;
        let previous = match handle.grow(&mut self.context, delta) {
            Ok(previous) => Some(previous),
            Err(error) => match crate::log::end_of(&error) {
                Err(refused @ Error::OutOfMemory { .. }) => return Err(self.context.data_mut().log.fail(refused).into()),
                _ => None,
            },
        };
        self.context.data_mut().log.event(Event::MemoryGrow { memory, delta, previous })?;
        Ok(previous)
    }

    /// The value of an exported global.
    ///
    /// # Errors
    /// As a trap, when there is no such export.
    pub fn global(&mut self, export: &str) -> Result<Value, HostError> {
        let Some(Extern::Global(global)) = self.export(export) else { return Err(no_export("global", export)) };
        let value = global.get(&mut self.context);
        Value::from_wasmtime(&value).map_err(|error| self.context.data_mut().log.fail(error).into())
    }

    /// Sets an exported global.
    ///
    /// # Errors
    /// As a trap, when there is no such export, it is constant, or of another type.
    pub fn set_global(&mut self, export: &str, value: Value) -> Result<(), HostError> {
        let Some(Extern::Global(global)) = self.export(export) else { return Err(no_export("global", export)) };
        global.set(&mut self.context, value.to_wasmtime()).map_err(|error| HostError::Trap(error.to_string()))?;
        let event = Event::GlobalSet { global: self.exposed.globals[export], value: value.bits() };
        Ok(self.context.data_mut().log.event(event)?)
    }

    /// The number of elements of an exported table.
    ///
    /// # Errors
    /// As a trap, when there is no such export.
    pub fn table_elements(&mut self, export: &str) -> Result<u64, HostError> {
        let table = self.table(export)?;
        Ok(table.size(&self.context))
    }

    /// Grows an exported table by `delta` null elements; the former number, or `None` when that is not possible.
    ///
    /// # Errors
    /// As a trap, when there is no such export.
    pub fn table_grow(&mut self, export: &str, delta: u64) -> Result<Option<u64>, HostError> {
        let table = self.table(export)?;
        let null = null_of(&table, &self.context);
        let previous = table.grow(&mut self.context, delta, null).ok();
        let event = Event::TableGrow { table: self.exposed.tables[export], delta, previous };
        self.context.data_mut().log.event(event)?;
        Ok(previous)
    }

    /// Sets an element of an exported table to null.
    ///
    /// # Errors
    /// As a trap, when there is no such export or element.
    pub fn table_clear(&mut self, export: &str, index: u64) -> Result<(), HostError> {
        let table = self.table(export)?;
        let null = null_of(&table, &self.context);
        table.set(&mut self.context, index, null).map_err(|error| HostError::Trap(error.to_string()))?;
        let event = Event::TableSet { table: self.exposed.tables[export], index, value: 0 };
        Ok(self.context.data_mut().log.event(event)?)
    }

    /// Calls an exported function: the guest runs again, inside this host call.
    ///
    /// # Errors
    /// When there is no such export, the arguments do not fit, or the guest traps or exits: hand that on with `?`.
    pub fn call(&mut self, export: &str, args: &[Value]) -> Result<Vec<Value>, HostError> {
        let Some(Extern::Func(func)) = self.export(export) else { return Err(no_export("function", export)) };
        self.reenter(Target::Func(self.exposed.funcs[export]), func, args)
    }

    /// Calls the function that an element of an exported table refers to, as callbacks are called.
    ///
    /// # Errors
    /// As [`HostCaller::call`].
    pub fn call_element(&mut self, table: &str, index: u64, args: &[Value]) -> Result<Vec<Value>, HostError> {
        let handle = self.table(table)?;
        match handle.get(&mut self.context, index) {
            Some(Ref::Func(Some(func))) => {
                self.reenter(Target::Element { table: self.exposed.tables[table], index }, func, args)
            }
            _ => Err(HostError::Trap(format!("element {index} of table `{table}` is no function"))),
        }
    }

    fn reenter(&mut self, target: Target, func: Func, args: &[Value]) -> Result<Vec<Value>, HostError> {
        let ty = func.ty(&self.context);
        let fits = ty.params().len() == args.len()
            && ty.params().zip(args).all(|(ty, value)| crate::value::value_type(&ty).is_ok_and(|ty| ty == value.ty()));
        if !fits {
            return Err(HostError::Trap(format!("{args:?} are no arguments for a function of type {ty}")));
        }
        let results = crate::value::value_types(ty.results()).map_err(|error| self.context.data_mut().log.fail(error))?;
        match enter(self.context.as_context_mut(), target, &func, args)?.0 {
            End::Returned(bits) => Ok(results.iter().zip(bits).map(|(ty, bits)| Value::from_bits(*ty, bits)).collect()),
            End::Trapped { code, message } => Err(Stop::Trap { code, message }.into()),
            End::Exit(status) => Err(Stop::Exit(status).into()),
        }
    }

    fn export(&mut self, name: &str) -> Option<Extern> {
        let instance = self.context.data().instance?;
        instance.get_export(&mut self.context, name)
    }

    fn memory(&self, memory: u32) -> Result<Memory, HostError> {
        let memories = &self.context.data().memories;
        memories.get(memory as usize).copied().ok_or_else(|| HostError::Trap(format!("the module has no memory {memory}")))
    }

    fn table(&mut self, export: &str) -> Result<Table, HostError> {
        match self.export(export) {
            Some(Extern::Table(table)) => Ok(table),
            _ => Err(no_export("table", export)),
        }
    }
}

/// Reads and logs; `None` when the range is outside the memory.
pub(crate) fn read(
    mut context: impl AsContextMut<Data = State>,
    handle: Memory,
    memory: u32,
    address: u64,
    len: u64,
) -> Result<Option<Vec<u8>>, Stop> {
    let (data, state) = handle.data_and_store_mut(&mut context);
    let Some(range) = range(address, len, data.len()) else { return Ok(None) };
    let bytes = data[range].to_vec();
    if state.log.on() {
        state.log.event(Event::Read { memory, address, len, hash: read_hash(&bytes) })?;
    }
    Ok(Some(bytes))
}

/// Writes and logs; `false` when the range is outside the memory.
pub(crate) fn write(
    mut context: impl AsContextMut<Data = State>,
    handle: Memory,
    memory: u32,
    address: u64,
    bytes: &[u8],
) -> Result<bool, Stop> {
    let (data, state) = handle.data_and_store_mut(&mut context);
    let Some(range) = range(address, bytes.len() as u64, data.len()) else { return Ok(false) };
    data[range].copy_from_slice(bytes);
    if state.log.on() {
        state.log.event(Event::Write { memory, address, bytes: bytes.to_vec() })?;
    }
    Ok(true)
}

fn range(address: u64, len: u64, size: usize) -> Option<std::ops::Range<usize>> {
    let end = address.checked_add(len).filter(|end| *end <= size as u64)?;
    Some(address as usize..end as usize)
}

fn null_of(table: &Table, context: impl AsContext) -> Ref {
    Ref::null(table.ty(context).element().heap_type())
}

fn outside(verb: &str, memory: u32, address: u64, len: u64) -> HostError {
    HostError::Trap(format!("the host {verb} {len} bytes at {address:#x}, outside memory {memory}"))
}

fn no_export(kind: &str, export: &str) -> HostError {
    HostError::Trap(format!("the module exports no {kind} `{export}`"))
}
