//! What a host makes in a store and how it reaches what is there.
//!
//! Ids are made by a store and are good for that store only; a foreign id names something else there, or panics when there is
//! nothing of that number.

use super::{Func, GlobalCell, Store};
use crate::error::Error;
use crate::memory::Memory;
use crate::module::{ExportItem, Module};
use crate::table::Table;
use crate::value::{
    Extern, ExternType, FuncId, FuncType, GlobalId, GlobalType, InstanceId, MemoryId, MemoryType, TableId, TableType, TagId, Val,
    ValType,
};

impl Store {
    /// A function of the host. It has no behaviour of its own: a call of it surfaces as
    /// [`Step::HostCall`](crate::Step) with this `import` number.
    pub fn host_func(&mut self, ty: FuncType, import: u32) -> FuncId {
        let ty = self.types.id(&ty);
        self.add_func(Func::Host { ty, import })
    }

    /// A memory that belongs to no instance yet.
    ///
    /// # Errors
    /// When it exceeds the limits or the system gives no address space.
    pub fn new_memory(&mut self, ty: MemoryType) -> Result<MemoryId, Error> {
        let memory = Memory::new(ty, &self.engine.config().limits)?;
        self.memories.push(Box::new(memory));
        Ok(MemoryId(self.memories.len() as u32 - 1))
    }

    /// A table that belongs to no instance yet; all of its elements hold `init`.
    ///
    /// # Errors
    /// When it exceeds the limits or `init` has another type.
    pub fn new_table(&mut self, ty: TableType, init: Val) -> Result<TableId, Error> {
        if !self.is_of(init, ty.element) {
            return Err(Error::BadWrite(format!("a table of {} cannot hold {init}", ty.element)));
        }
        self.check_references(&[init])?;
        let table = Table::filled(ty, init.raw(), &self.engine.config().limits)?;
        self.tables.push(Box::new(table));
        Ok(TableId(self.tables.len() as u32 - 1))
    }

    /// A global that belongs to no instance yet.
    ///
    /// # Errors
    /// When `init` has another type.
    pub fn new_global(&mut self, ty: GlobalType, init: Val) -> Result<GlobalId, Error> {
        if !self.is_of(init, ty.content) {
            return Err(Error::BadWrite(format!("a global of type {} cannot hold {init}", ty.content)));
        }
        self.check_references(&[init])?;
        Ok(self.add_global(ty, init.bits()))
    }

    /// An exception tag that belongs to no instance yet; `ty` has no results.
    pub fn new_tag(&mut self, ty: FuncType) -> TagId {
        let ty = self.types.id(&ty);
        self.tags.push(ty);
        TagId(self.tags.len() as u32 - 1)
    }

    /// The module that an instance was made from.
    pub fn module(&self, instance: InstanceId) -> &Module {
        &self.instances[instance.index()].module
    }

    /// A function of an instance, by its index in the module.
    pub fn func(&self, instance: InstanceId, index: u32) -> FuncId {
        self.instances[instance.index()].funcs[index as usize]
    }

    /// A memory of an instance, by its index in the module.
    pub fn memory_id(&self, instance: InstanceId, index: u32) -> MemoryId {
        self.instances[instance.index()].memories[index as usize]
    }

    /// A table of an instance, by its index in the module.
    pub fn table_id(&self, instance: InstanceId, index: u32) -> TableId {
        self.instances[instance.index()].tables[index as usize]
    }

    /// A global of an instance, by its index in the module.
    pub fn global_id(&self, instance: InstanceId, index: u32) -> GlobalId {
        self.instances[instance.index()].globals[index as usize]
    }

    /// An exception tag of an instance, by its index in the module.
    pub fn tag_id(&self, instance: InstanceId, index: u32) -> TagId {
        self.instances[instance.index()].tags[index as usize]
    }

    /// The type of an exception tag: its parameters are the types of what its exceptions carry.
    pub fn tag_type(&self, tag: TagId) -> &FuncType {
        self.types.get(self.tags[tag.index()])
    }

    /// What an instance exports under this name.
    pub fn export(&self, instance: InstanceId, name: &str) -> Option<Extern> {
        self.module(instance).export(name).map(|item| self.item(instance, item))
    }

    /// The function that an instance exports under this name.
    ///
    /// # Errors
    /// [`Error::UnknownExport`], which lists the functions that there are.
    pub fn exported_func(&self, instance: InstanceId, name: &str) -> Result<FuncId, Error> {
        if let Some(Extern::Func(func)) = self.export(instance, name) {
            return Ok(func);
        }
        Err(self.unknown_export(instance, "function", name, |item| matches!(item, ExportItem::Func(_))))
    }

    /// The memory that an instance exports under this name.
    ///
    /// # Errors
    /// [`Error::UnknownExport`], which lists the memories that there are.
    pub fn exported_memory(&self, instance: InstanceId, name: &str) -> Result<MemoryId, Error> {
        match self.export(instance, name) {
            Some(Extern::Memory(memory)) => Ok(memory),
            _ => Err(self.unknown_export(instance, "memory", name, |item| matches!(item, ExportItem::Memory(_)))),
        }
    }

    /// The table that an instance exports under this name.
    ///
    /// # Errors
    /// [`Error::UnknownExport`], which lists the tables that there are.
    pub fn exported_table(&self, instance: InstanceId, name: &str) -> Result<TableId, Error> {
        match self.export(instance, name) {
            Some(Extern::Table(table)) => Ok(table),
            _ => Err(self.unknown_export(instance, "table", name, |item| matches!(item, ExportItem::Table(_)))),
        }
    }

    /// The global that an instance exports under this name.
    ///
    /// # Errors
    /// [`Error::UnknownExport`], which lists the globals that there are.
    pub fn exported_global(&self, instance: InstanceId, name: &str) -> Result<GlobalId, Error> {
        match self.export(instance, name) {
            Some(Extern::Global(global)) => Ok(global),
            _ => Err(self.unknown_export(instance, "global", name, |item| matches!(item, ExportItem::Global(_)))),
        }
    }

    fn unknown_export(&self, instance: InstanceId, kind: &'static str, name: &str, is_of_kind: impl Fn(ExportItem) -> bool) -> Error {
        let exports = self.module(instance).exports().iter();
        let names: Vec<&str> = exports.filter(|e| is_of_kind(e.item)).map(|e| e.name.as_str()).take(40).collect();
        let plural = match kind {
            "memory" => "no memories".to_owned(),
            kind => format!("no {kind}s"),
        };
        let available = if names.is_empty() { plural } else { names.join(", ") };
        Error::UnknownExport { kind, name: name.into(), available }
    }

    /// The instance that made the innermost host call that is pending; `None` when the host did, or nothing is.
    pub fn caller(&self) -> Option<InstanceId> {
        self.exec.caller()
    }

    /// Copies bytes out of a memory.
    ///
    /// # Errors
    /// When they are not all inside.
    pub fn read(&self, memory: MemoryId, at: u64, into: &mut [u8]) -> Result<(), Error> {
        let bytes = self.memory(memory);
        let outside = || Error::OutOfBounds { at, len: into.len(), size: bytes.len() };
        let place = usize::try_from(at).ok().and_then(|at| bytes.get(at..at.checked_add(into.len())?));
        into.copy_from_slice(place.ok_or_else(outside)?);
        Ok(())
    }

    /// Copies bytes into a memory.
    ///
    /// # Errors
    /// When they would not all be inside; then none is written.
    pub fn write(&mut self, memory: MemoryId, at: u64, from: &[u8]) -> Result<(), Error> {
        let bytes = self.memory_mut(memory);
        let size = bytes.len();
        let place = usize::try_from(at).ok().and_then(|at| bytes.get_mut(at..at.checked_add(from.len())?));
        place.ok_or(Error::OutOfBounds { at, len: from.len(), size })?.copy_from_slice(from);
        Ok(())
    }

    /// What an index of an instance's module stands for.
    pub fn item(&self, instance: InstanceId, item: ExportItem) -> Extern {
        match item {
            ExportItem::Func(i) => Extern::Func(self.func(instance, i)),
            ExportItem::Table(i) => Extern::Table(self.table_id(instance, i)),
            ExportItem::Memory(i) => Extern::Memory(self.memory_id(instance, i)),
            ExportItem::Global(i) => Extern::Global(self.global_id(instance, i)),
            ExportItem::Tag(i) => Extern::Tag(self.tag_id(instance, i)),
        }
    }

    /// The type of a function.
    pub fn func_type(&self, func: FuncId) -> &FuncType {
        self.types.get(self.funcs[func.index()].ty())
    }

    /// Whether a value has this type, which may say what type a function has.
    pub fn is_of(&self, value: Val, ty: ValType) -> bool {
        match (value, ty) {
            (Val::FuncRef(Some(func)), ValType::TypedFuncRef(of) | ValType::SomeTypedFuncRef(of)) => {
                self.funcs.get(func.index()).is_some_and(|func| self.types.get(func.ty()) == of.get())
            }
            _ => value.is_of(ty),
        }
    }

    /// The instance that a function belongs to and its index there; `None` for a function of the host.
    pub fn func_origin(&self, func: FuncId) -> Option<(InstanceId, u32)> {
        match self.funcs[func.index()] {
            Func::Wasm { instance, index, .. } => Some((instance, index)),
            Func::Host { .. } => None,
        }
    }

    /// A function's name for messages.
    pub fn func_name(&self, func: FuncId) -> String {
        match self.funcs[func.index()] {
            Func::Wasm { instance, index, .. } => self.module(instance).func_name(index),
            Func::Host { import, .. } => format!("host function {import}"),
        }
    }

    /// The type that something has now: minima of memories and tables are current sizes.
    pub fn extern_type(&self, item: Extern) -> ExternType {
        match item {
            Extern::Func(id) => ExternType::Func(self.func_type(id).clone()),
            Extern::Table(id) => {
                let table = &self.tables[id.index()];
                ExternType::Table(TableType { min: table.elems.len() as u64, ..table.ty })
            }
            Extern::Memory(id) => {
                let memory = &self.memories[id.index()];
                ExternType::Memory(MemoryType { min: memory.pages, ..memory.ty })
            }
            Extern::Global(id) => ExternType::Global(self.global_type(id)),
            Extern::Tag(id) => ExternType::Tag(self.tag_type(id).clone()),
        }
    }

    /// The bytes of a memory.
    pub fn memory(&self, memory: MemoryId) -> &[u8] {
        self.memories[memory.index()].bytes()
    }

    /// The bytes of a memory, for the host to write.
    pub fn memory_mut(&mut self, memory: MemoryId) -> &mut [u8] {
        self.memories[memory.index()].bytes_mut()
    }

    /// The size of a memory in pages.
    pub fn memory_pages(&self, memory: MemoryId) -> u64 {
        self.memories[memory.index()].pages
    }

    /// Grows a memory by `delta` pages; the former size in pages, or `None` when a maximum or the system forbids it.
    pub fn memory_grow(&mut self, memory: MemoryId, delta: u64) -> Option<u64> {
        self.memories[memory.index()].grow(delta)
    }

    /// The value of a global.
    pub fn global(&self, global: GlobalId) -> Val {
        let global = &self.globals[global.index()];
        Val::from_bits(global.ty().content, global.bits())
    }

    /// The type of a global.
    pub fn global_type(&self, global: GlobalId) -> GlobalType {
        self.globals[global.index()].ty()
    }

    /// Sets a mutable global.
    ///
    /// # Errors
    /// When the global is constant or of another type.
    pub fn set_global(&mut self, global: GlobalId, value: Val) -> Result<(), Error> {
        let ty = self.global_type(global);
        if !ty.mutable || !self.is_of(value, ty.content) {
            return Err(Error::BadWrite(format!("a {} cannot be set to {value}", ExternType::Global(ty))));
        }
        self.check_references(&[value])?;
        self.globals[global.index()].set(value.bits());
        Ok(())
    }

    /// An element of a table, or `None` beyond its end.
    pub fn table_get(&self, table: TableId, index: u64) -> Option<Val> {
        let table = &self.tables[table.index()];
        let raw = *table.elems.get(usize::try_from(index).ok()?)?;
        Some(Val::from_raw(table.ty.element, raw))
    }

    /// Sets an element of a table.
    ///
    /// # Errors
    /// Beyond the table's end, or for a value of another type.
    pub fn table_set(&mut self, table: TableId, index: u64, value: Val) -> Result<(), Error> {
        self.check_references(&[value])?;
        let element = self.tables[table.index()].ty.element;
        if !self.is_of(value, element) {
            return Err(Error::BadWrite(format!("a table of {element} cannot hold {value}")));
        }
        let table = &mut self.tables[table.index()];
        let size = table.elems.len();
        match usize::try_from(index).ok().and_then(|i| table.elems.get_mut(i)) {
            Some(element) => *element = value.raw(),
            None => return Err(Error::BadWrite(format!("element {index} is beyond the end of a table of {size} elements"))),
        }
        Ok(())
    }

    /// The number of elements of a table.
    pub fn table_size(&self, table: TableId) -> u64 {
        self.tables[table.index()].elems.len() as u64
    }

    /// Grows a table by `delta` elements that hold `init`; the former size, or `None` when a maximum or the type forbids it.
    pub fn table_grow(&mut self, table: TableId, delta: u64, init: Val) -> Option<u64> {
        self.check_references(&[init]).ok()?;
        let fits = self.is_of(init, self.tables[table.index()].ty.element);
        fits.then(|| self.tables[table.index()].grow(delta, init.raw()))?
    }

    pub(super) fn add_func(&mut self, func: Func) -> FuncId {
        // Ids stay below u32::MAX, because a raw reference is the id plus 1 and must not wrap in 32 bits.
        assert!(self.funcs.len() < u32::MAX as usize, "a store holds fewer than 2^32 - 1 functions");
        self.funcs.push(func);
        FuncId(self.funcs.len() as u32 - 1)
    }

    pub(super) fn add_global(&mut self, ty: GlobalType, bits: u128) -> GlobalId {
        self.globals.push(GlobalCell::new(ty, bits));
        GlobalId(self.globals.len() as u32 - 1)
    }
}
