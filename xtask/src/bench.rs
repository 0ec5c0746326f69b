//! `cargo xtask bench SUITE`: the one benchmark harness.
//!
//! ```text
//! suite (cases × subjects) ─► rounds: every subject once, in a process of its own, the order turned from round to round
//!        │                        │ validate: exit, digest, work        │ any failure: no ratio at all
//!        └─ identity ─────────────┴─► results/SUITE/raw/RUN.jsonl ─► summary.json, summary.md (a pure function of raw)
//! ```
//!
//! A ratio is taken pair by pair: both sides ran in the same round. Beside each stands an A/A control: the denominator's
//! twin, the same command once more in the same round, against the denominator.

mod identity;
mod raw;
mod run;
mod suite;
mod summary;
mod text;

pub use run::{run, spin};
pub use suite::names;
pub use summary::summarize;
