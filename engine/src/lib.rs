//! worksp-engine: a WebAssembly interpreter that can be observed everywhere and stopped anywhere.
//!
//! ```text
//! bytes ─► module ─► translate ─► isa ─► execute<S: StateView, P: Probe>
//!           (validated)  (register IR)         store: memories, tables, globals, frames on the heap
//! ```

pub mod probe;
