//! worksp-tracer: turns what an execution does into a graph of segments and edges.
//!
//! ```text
//! recording (.wspr) ─► replay ─► engine ─► Tracer: shadow ► cells ► edges ─► Trace or trace file (.wspt)
//!                                  └─────► Profile: which functions and loops are worth being units
//! ```

#![deny(unsafe_code)]

pub mod container;
pub mod recording;
pub mod replay;

pub mod edge;
mod edges;
pub mod hints;
pub mod spill;
pub mod trace;
pub mod trace_file;

pub mod allocator;
pub mod layout;
pub mod offload;
pub mod profile;
pub mod tracer;
pub mod units;

mod activation;
mod cell;
mod segments;
mod sets;
mod shadow;
mod stack;

pub use cell::Granule;
pub use offload::Offload;
pub use trace::{Sink, Trace};
pub use trace_file::{TraceFileError, TraceWriter};
pub use tracer::{TooLarge, Tracer, TracerOptions};
