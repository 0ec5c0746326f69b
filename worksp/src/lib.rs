//! worksp: how parallel was that run, and what binds it?
//!
//! ```text
//! recording ─► request ─► Trace ─► ladder (M0 to M7, in one pass) ─► report (text) │ json
//!           (replay, tracer)  └─► dag (the same by petgraph, for tests and doubt)
//! ```

#![forbid(unsafe_code)]

pub mod dag;
pub mod json;
pub mod ladder;
pub mod report;
pub mod request;
