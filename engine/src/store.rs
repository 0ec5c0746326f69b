//! All state of running programs: instances and the functions, memories, tables and globals that they share.

mod access;
mod exceptions;
mod image;
mod instantiate;
mod snapshot;

use std::ptr::NonNull;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::config::Engine;
use crate::memory::Memory;
use exceptions::Exceptions;
pub use image::SnapshotError;
pub use snapshot::Snapshot;
use crate::module::Module;
use crate::table::Table;
use crate::value::{FuncId, FuncType, GlobalId, GlobalType, InstanceId, MemoryId, TableId, TagId};

/// Owns everything that programs run on. Things are never removed: ids stay valid as long as the store.
pub struct Store {
    pub(crate) engine: Engine,
    pub(crate) types: TypeTable,
    pub(crate) funcs: Vec<Func>,
    /// Boxed, so that handlers may point to a memory while others are added.
    #[allow(clippy::vec_box, reason = "as said")]
    pub(crate) memories: Vec<Box<Memory>>,
    /// Boxed for the same reason.
    #[allow(clippy::vec_box, reason = "as said")]
    pub(crate) tables: Vec<Box<Table>>,
    pub(crate) globals: Vec<GlobalCell>,
    /// The type of every exception tag.
    pub(crate) tags: Vec<DedupTypeId>,
    pub(crate) exceptions: Exceptions,
    pub(crate) instances: Vec<Instance>,
    /// What of a run lives between two exits.
    pub(crate) exec: crate::execute::State,
}

/// The number of a function type within a store: equal types have equal numbers, so that `call_indirect` compares numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub(crate) struct DedupTypeId(pub(crate) u32);

/// The function types of a store, each once.
#[derive(Clone, Default, Debug)]
pub(crate) struct TypeTable {
    types: Vec<FuncType>,
    ids: FxHashMap<FuncType, DedupTypeId>,
}

/// A function of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Func {
    /// A module's own function; `index` is in its module's index space.
    Wasm { instance: InstanceId, index: u32, ty: DedupTypeId },
    /// A function of the host; `import` is the number that the host chose for it.
    Host { ty: DedupTypeId, import: u32 },
}

/// A global. Code reaches it through a pointer to `value`, whose second half only vectors use.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Global {
    pub(crate) value: [u64; 2],
    pub(crate) ty: GlobalType,
}

/// Owns a [`Global`] at a fixed address.
#[derive(Debug)]
pub(crate) struct GlobalCell(NonNull<Global>);

/// An instantiated module.
#[derive(Clone)]
pub(crate) struct Instance {
    pub(crate) module: Module,
    pub(crate) funcs: Vec<FuncId>,
    pub(crate) memories: Vec<MemoryId>,
    pub(crate) tables: Vec<TableId>,
    pub(crate) globals: Vec<GlobalId>,
    pub(crate) tags: Vec<TagId>,
    /// The values of `globals`, in the same order.
    pub(crate) global_ptrs: Vec<NonNull<u64>>,
    /// Raw references of each element segment; `None` once dropped.
    pub(crate) elem_segments: Vec<Option<Arc<[u64]>>>,
    /// Whether each data segment was dropped.
    pub(crate) data_dropped: Vec<bool>,
    /// Type index of the module → number of the type in the store.
    pub(crate) type_ids: Vec<DedupTypeId>,
}

// SAFETY: the pointers lead to globals that the same store owns at fixed addresses; nobody else has them, and whoever moves the
// store to another thread moves both.
unsafe impl Send for Instance {}
// SAFETY: `&Instance` and `&Store` never write through the pointers.
unsafe impl Sync for Instance {}
// SAFETY: a cell owns its global alone, like a box.
unsafe impl Send for GlobalCell {}
// SAFETY: `&GlobalCell` gives only reads of plain data.
unsafe impl Sync for GlobalCell {}

impl Store {
    /// A store without anything in it.
    pub fn new(engine: &Engine) -> Store {
        Store {
            engine: engine.clone(),
            types: TypeTable::default(),
            funcs: Vec::new(),
            memories: Vec::new(),
            tables: Vec::new(),
            globals: Vec::new(),
            tags: Vec::new(),
            exceptions: Exceptions::default(),
            instances: Vec::new(),
            exec: crate::execute::State::default(),
        }
    }

    /// The engine that the store was made for.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

impl TypeTable {
    /// The number of a type.
    pub(crate) fn id(&mut self, ty: &FuncType) -> DedupTypeId {
        if let Some(id) = self.ids.get(ty) {
            return *id;
        }
        let id = DedupTypeId(self.types.len() as u32);
        self.types.push(ty.clone());
        self.ids.insert(ty.clone(), id);
        id
    }

    /// All types, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &FuncType> {
        self.types.iter()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.types.len()
    }

    /// The type behind a number.
    pub(crate) fn get(&self, id: DedupTypeId) -> &FuncType {
        &self.types[id.0 as usize]
    }
}

impl Func {
    /// The number of the function's type.
    #[inline(always)]
    pub(crate) fn ty(self) -> DedupTypeId {
        match self {
            Func::Wasm { ty, .. } | Func::Host { ty, .. } => ty,
        }
    }
}

impl GlobalCell {
    pub(crate) fn new(ty: GlobalType, bits: u128) -> GlobalCell {
        GlobalCell(NonNull::from(Box::leak(Box::new(Global { value: halves(bits), ty }))))
    }

    /// Where the value is, for as long as the cell lives.
    pub(crate) fn ptr(&self) -> NonNull<u64> {
        // `value` is the first field of a `repr(C)` struct.
        self.0.cast()
    }

    fn get(&self) -> &Global {
        // SAFETY: the cell owns the global; writers hold `&mut Store`.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn ty(&self) -> GlobalType {
        self.get().ty
    }

    /// The value's bits.
    pub(crate) fn bits(&self) -> u128 {
        let [low, high] = self.get().value;
        u128::from(low) | u128::from(high) << 64
    }

    pub(crate) fn set(&mut self, bits: u128) {
        // SAFETY: the cell owns the global, and `&mut self` excludes everybody else.
        unsafe { self.0.as_mut().value = halves(bits) }
    }
}

/// The lower half of a value's bits and the upper one, which is 0 for all types but vectors.
fn halves(bits: u128) -> [u64; 2] {
    [bits as u64, (bits >> 64) as u64]
}

impl Drop for GlobalCell {
    fn drop(&mut self) {
        // SAFETY: made from a box in `new`, and freed only here.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
