//! Stores as bytes: everything that programs run on, suspended runs included, without code.
//!
//! ```text
//! magic[8] version:u32 0:u32 layout[32] length:u64 checksum[32] │ rkyv archive of an `Image`
//! ```
//!
//! Integers are little-endian; `layout` names what code was translated by, since slots are where the translator put them; the
//! checksum (BLAKE3) covers the rest of the header and the archive. Modules are not inside: they are named by their hash.

use std::io::{self, Write};

use rkyv::rancor;
use rkyv::util::AlignedVec;
use rustc_hash::FxHashMap;

use super::{DedupTypeId, Func, Instance, Store};
use crate::config::Engine;
use crate::error::Error;
use crate::execute::{Halt, Level, Shape, Suspension, Waiting};
use crate::interned::FuncTypeRef;
use crate::memory::Memory;
use crate::module::Module;
use crate::mutants::mutant;
use crate::table::Table;
use crate::value::{
    ExternType, FuncId, FuncType, GlobalId, GlobalType, InstanceId, MemoryId, MemoryType, TableId, TableType, TagId, Val, ValType,
};

const MAGIC: [u8; 8] = *b"wsps\r\n\x1a\n";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 88;

/// What places values in slots. Change it when the translator puts a value elsewhere or emits other instructions for an operator.
const LAYOUT: &str = concat!("worksp-engine ", env!("CARGO_PKG_VERSION"), " layout 1");

/// Bytes of memory that are left out together when they are all zero.
const BLOCK_BYTES: usize = 4096;

/// Why a store could not be saved or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The bytes are no saved store.
    #[error("this is no saved store (it does not begin as one)")]
    Foreign,
    /// Another version of the engine saved it.
    #[error("the saved store is of {0}; restore it with the version that saved it")]
    Version(String),
    /// The bytes are damaged or cut.
    #[error("the saved store is damaged: {0}; save it again")]
    Damaged(&'static str),
    /// A module of a saved instance was not given.
    #[error("the saved store needs a module whose BLAKE3 hash is {0}, which was not given")]
    UnknownModule(String),
    /// The engine is configured otherwise.
    #[error("the store was saved with `{0}` set otherwise; restore it with the configuration that it had")]
    Config(&'static str),
    /// A limit, or a state that cannot be.
    #[error(transparent)]
    Engine(#[from] Error),
    /// The bytes could not be written.
    #[error("cannot write the saved store: {0}")]
    Io(#[from] io::Error),
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct Image {
    fuel_on: bool,
    single_step: bool,
    canonicalize_nans: bool,
    work: i64,
    fuel: i64,
    /// Function types that types of references name, each after those that it names itself.
    named: Vec<TypeImage>,
    types: Vec<TypeImage>,
    funcs: Vec<FuncImage>,
    memories: Vec<MemoryImage>,
    tables: Vec<TableImage>,
    globals: Vec<GlobalImage>,
    tags: Vec<u32>,
    exceptions: Vec<ExceptionImage>,
    next_exception: u64,
    instances: Vec<InstanceImage>,
    levels: Vec<LevelImage>,
    stack: Vec<u64>,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct TypeImage {
    params: Vec<u32>,
    results: Vec<u32>,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct FuncImage {
    ty: u32,
    /// The import's number of a host function.
    host: Option<u32>,
    instance: u32,
    index: u32,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct MemoryImage {
    min: u64,
    max: Option<u64>,
    page_bytes_log2: u8,
    index64: bool,
    shared: bool,
    pages: u64,
    /// Where blocks that are not zero begin, and what is in them.
    runs: Vec<(u64, Vec<u8>)>,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct TableImage {
    element: u32,
    min: u64,
    max: Option<u64>,
    index64: bool,
    elems: Vec<u64>,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct GlobalImage {
    content: u32,
    mutable: bool,
    bits: [u64; 2],
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct ExceptionImage {
    id: u64,
    tag: u32,
    payload: Vec<u64>,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct InstanceImage {
    module: [u8; 32],
    funcs: Vec<u32>,
    memories: Vec<u32>,
    tables: Vec<u32>,
    globals: Vec<u32>,
    tags: Vec<u32>,
    elem_dropped: Vec<bool>,
    data_dropped: Vec<bool>,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
struct LevelImage {
    ty: u32,
    traced: bool,
    operators: bool,
    /// Instance, function, offset, distance.
    callers: Vec<[u32; 4]>,
    stop: HaltImage,
    instance: u32,
    sp: u64,
}

#[derive(rkyv::Archive, rkyv::Serialize, rkyv::Deserialize)]
enum HaltImage {
    Direct { import: u32, ty: u32 },
    Host { func: u32, offset: u32, args: u32, callee: u32, import: u32, ty: u32 },
    Pause { func: u32, offset: u32, nth: Option<u32>, acc: u64, amount: i64, frame_bytes: u32, why: u8, missing: u64 },
}

/// Types of values that name no function type, by their number in files. After them come nullable and other references to the named
/// function types, in turn.
const VAL_TYPES: [ValType; 13] = [
    ValType::I32,
    ValType::I64,
    ValType::F32,
    ValType::F64,
    ValType::V128,
    ValType::FuncRef,
    ValType::SomeFuncRef,
    ValType::ExternRef,
    ValType::SomeExternRef,
    ValType::ExnRef,
    ValType::SomeExnRef,
    ValType::NullExnRef,
    ValType::NoExnRef,
];

/// Types of values as numbers.
#[derive(Default)]
struct TypeCodes {
    named: Vec<FuncTypeRef>,
    numbers: FxHashMap<FuncTypeRef, u32>,
    images: Vec<TypeImage>,
}

/// The function type that a type of references names, and whether null is among them.
fn named_by(ty: ValType) -> Option<(FuncTypeRef, bool)> {
    match ty {
        ValType::TypedFuncRef(of) => Some((of, true)),
        ValType::SomeTypedFuncRef(of) => Some((of, false)),
        _ => None,
    }
}

impl TypeCodes {
    fn code(&mut self, ty: ValType) -> u32 {
        let Some((of, is_nullable)) = named_by(ty) else {
            return VAL_TYPES.iter().position(|known| *known == ty).expect("all are listed") as u32;
        };
        self.add(of);
        VAL_TYPES.len() as u32 + 2 * self.numbers[&of] + u32::from(!is_nullable)
    }

    /// Adds a function type after those that it names. Types may be nested deeply, so this does not recur.
    fn add(&mut self, of: FuncTypeRef) {
        let mut open = vec![of];
        while let Some(&of) = open.last() {
            let (params, results) = (of.get().params(), of.get().results());
            let unknown = |(inner, _): &(FuncTypeRef, bool)| !self.numbers.contains_key(inner);
            match params.iter().chain(results).copied().filter_map(named_by).find(unknown) {
                Some((inner, _)) => open.push(inner),
                None => {
                    open.pop();
                    if !self.numbers.contains_key(&of) {
                        let image = self.image(of.get());
                        self.images.push(image);
                        self.numbers.insert(of, self.numbers.len() as u32);
                    }
                }
            }
        }
    }

    fn image(&mut self, ty: &FuncType) -> TypeImage {
        let mut codes = |types: &[ValType]| types.iter().map(|ty| self.code(*ty)).collect();
        TypeImage { params: codes(ty.params()), results: codes(ty.results()) }
    }

    fn read(images: &[TypeImage]) -> Result<TypeCodes, SnapshotError> {
        let mut codes = TypeCodes::default();
        for image in images {
            let of = FuncTypeRef::new(&codes.func_type(image)?);
            codes.named.push(of);
        }
        Ok(codes)
    }

    fn func_type(&self, image: &TypeImage) -> Result<FuncType, SnapshotError> {
        let types = |codes: &[u32]| codes.iter().map(|code| self.val_type(*code)).collect::<Result<Vec<_>, _>>();
        Ok(FuncType::new(types(&image.params)?, types(&image.results)?))
    }

    fn val_type(&self, code: u32) -> Result<ValType, SnapshotError> {
        let code = code as usize;
        let named = |code: usize| {
            let of = *self.named.get(code / 2)?;
            Some(if code.is_multiple_of(2) { ValType::TypedFuncRef(of) } else { ValType::SomeTypedFuncRef(of) })
        };
        let found = VAL_TYPES.get(code).copied().or_else(|| named(code.checked_sub(VAL_TYPES.len())?));
        found.ok_or(SnapshotError::Damaged("a type of values that there is not"))
    }
}

impl Store {
    /// Writes the store down: instances, memories (all but what is zero), tables, globals, exceptions, and every run that is suspended, at a
    /// host call or between two operators. Not written: modules, trace plans, sites, what on [`Trap`](crate::Trap)s the host
    /// holds, and whatever host functions keep for themselves.
    ///
    /// # Errors
    /// When the writer fails.
    ///
    /// # Example
    /// ```
    /// use worksp_engine::probe::NoProbe;
    /// use worksp_engine::{Config, Engine, Module, Step, Store, Val};
    /// let engine = Engine::new(Config { fuel: true, ..Config::default() });
    /// let text = r#"(module (func (export "sum") (param i32) (result i32) (local i32)
    ///     (loop (local.set 1 (i32.add (local.get 1) (local.get 0)))
    ///         (br_if 0 (local.tee 0 (i32.sub (local.get 0) (i32.const 1))))) (local.get 1)))"#;
    /// let module = Module::from_text(&engine, text)?;
    /// let mut store = Store::new(&engine);
    /// let instance = store.instantiate(&module, &[])?;
    /// let sum = store.exported_func(instance, "sum")?;
    /// store.set_fuel(500);
    /// assert!(matches!(store.start(&mut NoProbe, sum, &[Val::I32(100)])?, Step::Suspended(_)));
    /// let mut file = Vec::new();
    /// store.save(&mut file)?;
    /// // In another process:
    /// let mut store = Store::restore(&engine, &[module], &file)?;
    /// store.set_fuel(1000);
    /// assert_eq!(store.proceed(&mut NoProbe)?, Step::Returned(vec![Val::I32(5050)]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn save(&self, to: &mut impl Write) -> Result<(), SnapshotError> {
        let image = self.image()?;
        let archive = rkyv::to_bytes::<rancor::Error>(&image).map_err(|error| io::Error::other(error.to_string()))?;
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        header[16..48].copy_from_slice(blake3::hash(LAYOUT.as_bytes()).as_bytes());
        header[48..56].copy_from_slice(&(archive.len() as u64).to_le_bytes());
        let sum = checksum(&header, &archive);
        header[56..88].copy_from_slice(&sum);
        to.write_all(&header)?;
        Ok(to.write_all(&archive)?)
    }

    /// Makes the store again that was saved as these bytes. `modules` has the modules of its instances, in any order, loaded with `engine`,
    /// which is configured as it was. Host functions have the numbers that they had: a [`Linker`](crate::Linker) that defines the same
    /// ones in the same order serves them. Suspended runs are what [`Store::pending`] says.
    ///
    /// The checksum guards against damage, not against forgery: whoever can write such bytes can make values of any kind.
    ///
    /// # Errors
    /// When the bytes are damaged, of another version or no saved store, a module is missing, or limits do not suffice.
    pub fn restore(engine: &Engine, modules: &[Module], bytes: &[u8]) -> Result<Store, SnapshotError> {
        let image = read(bytes)?;
        let config = engine.config();
        for (name, is, was) in [
            ("fuel", config.fuel, image.fuel_on),
            ("single_step", config.single_step, image.single_step),
            ("canonicalize_nans", config.canonicalize_nans, image.canonicalize_nans),
        ] {
            if is != was {
                return Err(SnapshotError::Config(name));
            }
        }
        let mut store = Store::new(engine);
        store.restore_items(&image)?;
        store.restore_instances(&image, modules)?;
        let funcs = store.funcs.iter().zip(&image.funcs);
        for (func, image) in funcs {
            let Func::Wasm { instance, index, ty } = *func else { continue };
            let owner = store.instances.get(instance.index()).ok_or(SnapshotError::Damaged("a function of no instance"))?;
            let is_own = owner.module.func_body(index).is_some() && owner.type_ids[owner.module.func_type_index(index) as usize] == ty;
            if !is_own || image.ty != ty.0 {
                return Err(SnapshotError::Damaged("a function that its module does not have"));
            }
        }
        store.restore_exceptions(&image)?;
        store.check_all_references()?;
        let levels = image.levels.iter().map(|level| store.level_of(level)).collect::<Result<Vec<_>, _>>()?;
        store.set_levels(&levels, &image.stack)?;
        store.exec.set_counts(image.work, image.fuel);
        Ok(store)
    }

    fn image(&self) -> Result<Image, SnapshotError> {
        let config = self.engine.config();
        let (work, fuel) = self.exec.counts();
        let mut codes = TypeCodes::default();
        let types = self.types.iter().map(|ty| codes.image(ty)).collect();
        let func = |func: &Func| match *func {
            Func::Wasm { instance, index, ty } => FuncImage { ty: ty.0, host: None, instance: instance.0, index },
            Func::Host { ty, import } => FuncImage { ty: ty.0, host: Some(import), instance: 0, index: 0 },
        };
        let mut tables = Vec::new();
        for table in &self.tables {
            let TableType { element, min, max, index64 } = table.ty;
            tables.push(TableImage { element: codes.code(element), min, max, index64, elems: table.elems.clone() });
        }
        let mut globals = Vec::new();
        for global in &self.globals {
            let (ty, bits) = (global.ty(), global.bits());
            let content = codes.code(ty.content);
            globals.push(GlobalImage { content, mutable: ty.mutable, bits: [bits as u64, if mutant!(SavedGlobalHalf) { 0 } else { (bits >> 64) as u64 }] });
        }
        let mut exceptions: Vec<ExceptionImage> = Vec::new();
        for (id, exception) in self.exceptions.iter() {
            exceptions.push(ExceptionImage { id: id.0, tag: exception.tag.0, payload: exception.payload.to_vec() });
        }
        exceptions.sort_by_key(|exception| exception.id);
        Ok(Image {
            fuel_on: config.fuel,
            single_step: config.single_step,
            canonicalize_nans: config.canonicalize_nans,
            work,
            fuel,
            types,
            named: codes.images,
            funcs: self.funcs.iter().map(func).collect(),
            memories: self.memories.iter().map(|memory| memory_image(memory)).collect(),
            tables,
            globals,
            tags: self.tags.iter().map(|ty| ty.0).collect(),
            exceptions,
            next_exception: self.exceptions.next(),
            instances: self.instances.iter().map(instance_image).collect(),
            levels: self.levels()?.iter().map(level_image).collect(),
            stack: self.stack_in_use().to_vec(),
        })
    }

    /// Everything that belongs to no instance.
    fn restore_items(&mut self, image: &Image) -> Result<(), SnapshotError> {
        let codes = TypeCodes::read(&image.named)?;
        for ty in &image.types {
            let id = self.types.id(&codes.func_type(ty)?);
            if id.0 as usize + 1 != self.types.len() {
                return Err(SnapshotError::Damaged("a type that is there twice"));
            }
        }
        let type_id = |store: &Store, ty: u32| match (ty as usize) < store.types.len() {
            true => Ok(DedupTypeId(ty)),
            false => Err(SnapshotError::Damaged("a type that is not there")),
        };
        for func in &image.funcs {
            let ty = type_id(self, func.ty)?;
            let func = match func.host {
                Some(import) => Func::Host { ty, import },
                None => Func::Wasm { instance: InstanceId(func.instance), index: func.index, ty },
            };
            self.add_func(func);
        }
        for memory in &image.memories {
            self.restore_memory(memory)?;
        }
        let limits = self.engine.config().limits.clone();
        for table in &image.tables {
            let ty = TableType { element: codes.val_type(table.element)?, min: table.min, max: table.max, index64: table.index64 };
            let size = TableType { min: table.elems.len() as u64, ..ty };
            let mut restored = Table::filled(size, 0, &limits)?;
            restored.elems.copy_from_slice(&table.elems);
            restored.ty = ty;
            self.tables.push(Box::new(restored));
        }
        for global in &image.globals {
            let ty = GlobalType { content: codes.val_type(global.content)?, mutable: global.mutable };
            self.add_global(ty, u128::from(global.bits[0]) | u128::from(global.bits[1]) << 64);
        }
        for tag in &image.tags {
            let tag = type_id(self, *tag)?;
            self.tags.push(tag);
        }
        Ok(())
    }

    fn restore_memory(&mut self, image: &MemoryImage) -> Result<(), SnapshotError> {
        let MemoryImage { min, max, page_bytes_log2, index64, shared, .. } = *image;
        if page_bytes_log2 != 0 && page_bytes_log2 != 16 {
            return Err(SnapshotError::Damaged("a memory with pages of a size that there is not"));
        }
        let ty = MemoryType { min, max, page_bytes_log2, index64, shared };
        let id = self.new_memory(ty)?;
        let grown = image.pages.checked_sub(image.min).and_then(|delta| self.memory_grow(id, delta));
        let limit = self.engine.config().limits.memory_bytes_max;
        let (what, wanted) = ("a restored memory's size in pages".to_owned(), image.pages);
        grown.ok_or(Error::Limit { what, wanted, limit, knob: "the memory limit" })?;
        let bytes = self.memory_mut(id);
        for (at, run) in &image.runs {
            let at = usize::try_from(*at).ok();
            let place = at.and_then(|at| bytes.get_mut(at..at.checked_add(run.len())?));
            place.ok_or(SnapshotError::Damaged("contents beyond a memory's end"))?.copy_from_slice(run);
        }
        Ok(())
    }

    fn restore_instances(&mut self, image: &Image, modules: &[Module]) -> Result<(), SnapshotError> {
        for instance in &image.instances {
            let module = modules.iter().find(|module| module.hash() == instance.module);
            let unknown = || SnapshotError::UnknownModule(blake3::Hash::from_bytes(instance.module).to_hex().to_string());
            let module = module.ok_or_else(unknown)?.clone();
            let restored = self.restore_instance(instance, module)?;
            self.instances.push(restored);
        }
        Ok(())
    }

    fn restore_instance(&mut self, image: &InstanceImage, module: Module) -> Result<Instance, SnapshotError> {
        let inner = module.inner();
        let counts = [
            (image.funcs.len(), inner.func_types.len(), &image.funcs, self.funcs.len()),
            (image.memories.len(), inner.memories.len(), &image.memories, self.memories.len()),
            (image.tables.len(), inner.tables.len(), &image.tables, self.tables.len()),
            (image.globals.len(), inner.globals.len(), &image.globals, self.globals.len()),
            (image.tags.len(), inner.tags.len(), &image.tags, self.tags.len()),
            (image.elem_dropped.len(), inner.elems.len(), &Vec::new(), 0),
            (image.data_dropped.len(), inner.data.len(), &Vec::new(), 0),
        ];
        if counts.iter().any(|(given, expected, ids, end)| given != expected || ids.iter().any(|id| *id as usize >= *end)) {
            return Err(SnapshotError::Damaged("an instance that does not fit its module"));
        }
        let globals: Vec<GlobalId> = image.globals.iter().copied().map(GlobalId).collect();
        let mut instance = Instance {
            module: module.clone(),
            funcs: image.funcs.iter().copied().map(FuncId).collect(),
            memories: image.memories.iter().copied().map(MemoryId).collect(),
            tables: image.tables.iter().copied().map(TableId).collect(),
            global_ptrs: globals.iter().map(|id| self.globals[id.index()].ptr()).collect(),
            globals,
            tags: image.tags.iter().copied().map(TagId).collect(),
            elem_segments: Vec::new(),
            data_dropped: image.data_dropped.clone(),
            type_ids: inner.types.iter().map(|ty| self.types.id(ty)).collect(),
        };
        self.check_types(&instance)?;
        let segments = inner.elems.iter().zip(&image.elem_dropped);
        instance.elem_segments = segments.map(|(elem, dropped)| (!dropped).then(|| self.elem_refs(&instance, &elem.items))).collect();
        Ok(instance)
    }

    /// What an instance has is of the types that its module declares.
    fn check_types(&self, instance: &Instance) -> Result<(), SnapshotError> {
        let module = &instance.module;
        let inner = module.inner();
        let funcs = instance.funcs.iter().enumerate().all(|(i, id)| {
            let own = i >= inner.imported.funcs as usize;
            let is_here = !own || matches!(self.funcs[id.index()], Func::Wasm { instance, index, .. } if instance.index() == self.instances.len() && index as usize == i);
            is_here && self.func_type(*id) == module.func_type(i as u32)
        });
        let globals = instance.globals.iter().zip(&inner.globals).all(|(id, ty)| {
            let found = self.global_type(*id);
            found == *ty || (!ty.mutable && !found.mutable && found.content.is_subtype_of(ty.content))
        });
        let tables = instance.tables.iter().zip(&inner.tables).all(|(id, ty)| self.tables[id.index()].ty.element == ty.element);
        let tags = instance.tags.iter().enumerate().all(|(i, id)| self.tag_type(*id) == module.tag_type(i as u32));
        let memories = instance.memories.iter().zip(&inner.memories).all(|(id, ty)| {
            matches!(self.extern_type(crate::Extern::Memory(*id)), ExternType::Memory(found) if found.min >= ty.min)
        });
        match funcs && globals && tables && tags && memories {
            true => Ok(()),
            false => Err(SnapshotError::Damaged("an instance that does not fit its module")),
        }
    }

    fn restore_exceptions(&mut self, image: &Image) -> Result<(), SnapshotError> {
        for exception in &image.exceptions {
            let tag = TagId(exception.tag);
            let known = (tag.index() < self.tags.len()).then(|| crate::value::slots_of(self.tag_type(tag).params()) as usize);
            if known != Some(exception.payload.len()) || !self.exceptions.insert(exception.id, tag, exception.payload.clone().into()) {
                return Err(SnapshotError::Damaged("an exception that cannot be"));
            }
        }
        match self.exceptions.set_next(image.next_exception) {
            true => Ok(()),
            false => Err(SnapshotError::Damaged("exceptions out of order")),
        }
    }

    /// References in tables, globals and exceptions lead somewhere, and to what their types say.
    fn check_all_references(&self) -> Result<(), SnapshotError> {
        let tables = self.tables.iter().flat_map(|table| {
            let ty = table.ty.element;
            table.elems.iter().map(move |raw| (Val::from_raw(ty, *raw), ty))
        });
        let globals = self.globals.iter().map(|global| (Val::from_bits(global.ty().content, global.bits()), global.ty().content));
        let payloads = self.exceptions.iter().flat_map(|(_, exception)| {
            let types = self.tag_type(exception.tag).params();
            Val::from_slots(types, &exception.payload).into_iter().zip(types.iter().copied())
        });
        let is_lost = |(value, ty): (Val, ValType)| match value {
            Val::FuncRef(Some(id)) => id.index() >= self.funcs.len() || !self.is_of(value, ty),
            _ => !self.is_of(value, ty),
        };
        match tables.chain(globals).chain(payloads).any(is_lost) {
            true => Err(SnapshotError::Damaged("a reference to no function, or one of another type")),
            false => Ok(()),
        }
    }

    fn level_of(&self, image: &LevelImage) -> Result<Level, SnapshotError> {
        let ty = |ty: u32| match (ty as usize) < self.types.len() {
            true => Ok(DedupTypeId(ty)),
            false => Err(SnapshotError::Damaged("a type that is not there")),
        };
        let stop = match image.stop {
            HaltImage::Direct { import, ty: of } => Halt::Direct { import, ty: ty(of)? },
            HaltImage::Host { func, offset, args, callee, import, ty: of } => Halt::Host { func, offset, args, callee, import, ty: ty(of)? },
            HaltImage::Pause { func, offset, nth, acc, amount, frame_bytes, why, missing } => {
                let why = match why {
                    0 => Suspension::OutOfFuel { missing },
                    1 => Suspension::Interrupted,
                    2 => Suspension::DeadlinePassed,
                    _ => Suspension::Stepped,
                };
                Halt::Pause { func, offset, nth, acc, amount, frame_bytes, why }
            }
        };
        let caller = |[instance, func, offset, delta]: &[u32; 4]| Waiting { instance: *instance, func: *func, offset: *offset, delta: *delta };
        Ok(Level {
            ty: ty(image.ty)?,
            shape: Shape { traced: image.traced, operators: image.operators },
            callers: image.callers.iter().map(caller).collect(),
            stop,
            instance: image.instance,
            sp: usize::try_from(image.sp).map_err(|_| SnapshotError::Damaged("a frame beyond all memory"))?,
        })
    }
}

fn memory_image(memory: &Memory) -> MemoryImage {
    let runs = memory.runs().map(|(at, bytes)| (at as u64, bytes.to_vec())).collect();
    let MemoryType { min, max, page_bytes_log2, index64, shared } = memory.ty;
    MemoryImage { min, max, page_bytes_log2, index64, shared, pages: memory.pages, runs }
}

fn instance_image(instance: &Instance) -> InstanceImage {
    InstanceImage {
        module: instance.module.hash(),
        funcs: instance.funcs.iter().map(|id| id.0).collect(),
        memories: instance.memories.iter().map(|id| id.0).collect(),
        tables: instance.tables.iter().map(|id| id.0).collect(),
        globals: instance.globals.iter().map(|id| id.0).collect(),
        tags: instance.tags.iter().map(|id| id.0).collect(),
        elem_dropped: instance.elem_segments.iter().map(Option::is_none).collect(),
        data_dropped: instance.data_dropped.clone(),
    }
}

fn level_image(level: &Level) -> LevelImage {
    let stop = match level.stop {
        Halt::Direct { import, ty } => HaltImage::Direct { import, ty: ty.0 },
        Halt::Host { func, offset, args, callee, import, ty } => HaltImage::Host { func, offset, args, callee, import, ty: ty.0 },
        Halt::Pause { func, offset, nth, acc, amount, frame_bytes, why } => {
            let (why, missing) = match why {
                Suspension::OutOfFuel { missing } => (0, missing),
                Suspension::Interrupted => (1, 0),
                Suspension::DeadlinePassed => (2, 0),
                Suspension::Stepped => (3, 0),
            };
            HaltImage::Pause { func, offset, nth, acc, amount, frame_bytes, why, missing }
        }
    };
    let caller = |caller: &Waiting| [caller.instance, caller.func, caller.offset, caller.delta];
    LevelImage {
        ty: level.ty.0,
        traced: level.shape.traced,
        operators: level.shape.operators,
        callers: level.callers.iter().map(caller).collect(),
        stop,
        instance: level.instance,
        sp: level.sp as u64,
    }
}

fn checksum(header: &[u8; HEADER_BYTES], archive: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header[..56]).update(archive);
    *hasher.finalize().as_bytes()
}

fn read(bytes: &[u8]) -> Result<Image, SnapshotError> {
    if !bytes.starts_with(&MAGIC) {
        return Err(SnapshotError::Foreign);
    }
    let cut = SnapshotError::Damaged("it ends too early");
    let Some((header, archive)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Err(cut) };
    let version = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
    if version != VERSION {
        return Err(SnapshotError::Version(format!("format {version}, not {VERSION}")));
    }
    if header[16..48] != *blake3::hash(LAYOUT.as_bytes()).as_bytes() {
        return Err(SnapshotError::Version(format!("another version of the engine than {LAYOUT}")));
    }
    if header[48..56] != (archive.len() as u64).to_le_bytes() {
        return Err(SnapshotError::Damaged("it has another length than it had"));
    }
    if header[56..] != checksum(header, archive) {
        return Err(SnapshotError::Damaged("its checksum is wrong"));
    }
    let mut aligned: AlignedVec = AlignedVec::with_capacity(archive.len());
    aligned.extend_from_slice(archive);
    rkyv::from_bytes::<Image, rancor::Error>(&aligned).map_err(|_| SnapshotError::Damaged("its contents are no store"))
}

/// Whether a block holds nothing but zeros.
fn is_zero(block: &[u8]) -> bool {
    let (words, rest) = block.as_chunks::<8>();
    words.iter().all(|word| *word == [0; 8]) && rest.iter().all(|byte| *byte == 0)
}

impl Memory {
    /// The parts that are not zero, each as long as it can be.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let bytes = self.bytes();
        let mut at = 0;
        std::iter::from_fn(move || {
            let block = |at: usize| &bytes[at..bytes.len().min(at + BLOCK_BYTES)];
            while at < bytes.len() && is_zero(block(at)) {
                at += BLOCK_BYTES;
            }
            let start = at;
            while at < bytes.len() && !is_zero(block(at)) {
                at += BLOCK_BYTES;
            }
            at = at.min(bytes.len());
            (start < bytes.len()).then(|| (start, &bytes[start..at]))
        })
    }
}
