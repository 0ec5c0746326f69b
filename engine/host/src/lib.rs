//! worksp-host: one WASI preview 1 host for recording, replay and live runs, without a Wasmtime store.
//!
//! ```text
//! import name ─► wasi::function ─► WasiFunction ── reads(memory, args) ─► ranges the host reads
//!                                      │
//!                   WasiHost::call(function, memory, args) ─► HostEnd: result │ exit │ trap
//!                                      │
//!                                      └─ writes(memory, …) ─► ranges the host wrote
//! ```
//!
//! [`wasi`] is the one table that says what every function reads and writes and which effect class it has. [`WasiHost`] runs
//! `wasmtime_wasi`'s implementation on any byte slice.
//!
//! ```
//! use worksp_host::{HostEnd, WasiHost, wasi};
//! let mut host = WasiHost::builder().arg("prog").arg("x").build()?;
//! let mut memory = vec![0; 65536];
//! let sizes = wasi::function("args_sizes_get").unwrap();
//! assert_eq!(host.call(sizes, &mut memory, &[0, 4]), HostEnd::Returned(Some(0)));
//! assert_eq!(memory[..8], [2, 0, 0, 0, 7, 0, 0, 0]);
//! assert_eq!(sizes.writes(&memory, &[0, 4], 0, &host.facts(sizes, &[0, 4]), &[]), [0..4, 4..8]);
//! # Ok::<(), worksp_host::Error>(())
//! ```
#![forbid(unsafe_code)]

pub mod wasi;

mod call;
mod host;
mod stdio;

pub use host::{Dir, Error, HostEnd, Stdin, Stdout, WasiHost, WasiHostBuilder};
