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
pub mod layout;
pub mod trace;

mod activation;
pub mod allocator;
mod cell;
mod segments;
mod sets;
mod shadow;
mod stack;
pub mod tracer;
pub mod units;

pub mod profile;

pub use cell::Granule;
pub use trace::{Sink, Trace};
pub use tracer::{Tracer, TracerOptions};
