//! worksp-tracer (being built).
#![deny(unsafe_code)]

pub mod container;
pub mod recording;
pub mod replay;
