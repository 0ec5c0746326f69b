//! worksp-recorder: runs a program natively on Wasmtime and writes down all that a replay needs.
//!
//! ```text
//! module ─► expose (extra exports, so that the host reaches every memory) ─► Wasmtime
//!    │                                                                          │
//!    └─► imports: WASI (worksp-host) │ the embedder's functions │ stubs ◄───────┤
//!                     │                                                         │
//!                     └────────► log: one stream of events ─► .wspr ◄── session: _start, --invoke or script
//! ```
//!
//! [`record`] does it all for a program; [`Recorder`] lets an embedder add host functions of its own.
//!
//! ```
//! use worksp_recorder::{RecordOptions, record};
//! let dir = tempfile::tempdir()?;
//! let module = br#"(module (func (export "add") (param i32 i32) (result i32)
//!     (i32.add (local.get 0) (local.get 1))))"#;
//! let options = RecordOptions::invoke("add", ["40", "2"]);
//! let summary = record(module, &options, &dir.path().join("add.wspr"))?;
//! assert_eq!(summary.results, [worksp_recorder::Value::I32(42)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod caller;
mod error;
mod expose;
mod hostcall;
mod imports;
mod log;
mod options;
mod recorder;
mod script;
mod session;
mod value;

pub use caller::{HostCaller, HostError};
pub use error::Error;
pub use imports::{HostMemory, HostTable};
pub use options::{Entry, RecordOptions, Stub, parse_env};
pub use recorder::{RecordSummary, Recorder, record};
pub use script::Script;
pub use value::Value;
pub use worksp_host::{Dir, Stdin, Stdout};
pub use worksp_tracer::recording::{Effect, Exit, ValueType};
