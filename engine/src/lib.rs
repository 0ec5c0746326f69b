//! worksp-engine: a WebAssembly interpreter that can be observed everywhere and stopped anywhere.
//!
//! ```text
//! bytes ─► module ─► translate ─► isa ─► execute<S: StateView, P: Probe>
//!           (validated)  (register IR)         store: memories, tables, globals, frames on the heap
//! ```

mod config;
mod error;
mod execute;
mod interned;
mod isa;
mod linker;
mod memory;
mod module;
pub mod parallel;
#[cfg(feature = "mutants")]
pub mod mutants;
#[cfg(not(feature = "mutants"))]
mod mutants;
pub mod probe;
pub mod state;
mod store;
mod table;
mod translate;
mod trap;
mod typed;
mod value;

pub use config::{Config, Engine, Limits};
pub use error::{Error, InstantiateError};
pub use execute::{HostCall, Interrupt, Step, Suspension};
pub use interned::FuncTypeRef;
pub use linker::{CallError, Caller, HostError, HostFuture, Linker};
pub use memory::PAGE_BYTES;
pub use module::{Export, ExportItem, Import, Module};
pub use mutants::MUTANTS;
pub use store::{Snapshot, SnapshotError, Store};
pub use trap::{FrameInfo, Trap, TrapKind};
pub use typed::{HostResult, IntoHostFunc, TypedFunc, WasmTy, WasmTypes, WithCaller};
pub use value::{
    ExnId, Extern, ExternType, FuncId, FuncType, GlobalId, GlobalType, InstanceId, MemoryId, MemoryType, TableId, TableType, TagId,
    Val, ValType,
};
