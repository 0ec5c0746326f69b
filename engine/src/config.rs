//! What an engine is allowed to do: limits and modes, fixed before the first module is loaded.

use std::sync::Arc;

/// Bounds on what one store may use. Exceeding one is a failed growth, a trap or an [`Error`](crate::Error), never an abort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of each linear memory. A memory reserves the smaller of this and its own maximum as address space.
    pub memory_bytes_max: u64,
    /// Elements of each table.
    pub table_elements_max: u64,
    /// Activations at one time, over all nested entries.
    pub call_depth_max: u32,
    /// Bytes of all frames at one time, over all nested entries.
    pub stack_bytes_max: usize,
    /// Bytes of all exceptions that are kept at one time. When they get this far, the store first frees those that nothing in it
    /// refers to any more: no frame, global, table or other exception, and no [`Trap`](crate::Trap) that tells of one. A throw that
    /// does not fit even then traps.
    pub exception_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory_bytes_max: 4 << 30,
            table_elements_max: 10_000_000,
            call_depth_max: 200_000,
            stack_bytes_max: 64 << 20,
            exception_bytes_max: 64 << 20,
        }
    }
}

/// How an [`Engine`] runs modules, and which features they may use. A module that needs a feature that is off is refused with an
/// error that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Count work while running, and suspend when a limit of fuel is reached, on request of an [`Interrupt`](crate::Interrupt), or past a
    /// deadline. Traced runs always count.
    pub fuel: bool,
    /// Make every operator a block of its own, so that a run that counts work can stop before any of them (see
    /// [`Store::set_stepping`](crate::Store::set_stepping)). Code becomes several times slower.
    pub single_step: bool,
    /// Translate all functions of an instance, on so many threads, before its first run that is not traced. 0, the default, translates each
    /// function when it is called first.
    pub eager_threads: usize,
    /// Bounds on memories, tables, the stack and exceptions.
    pub limits: Limits,
    /// Replace every NaN that an operator computes by the canonical one, as recording and replay need.
    pub canonicalize_nans: bool,
    /// 128-bit vectors. On by default.
    pub simd: bool,
    /// Relaxed operators on vectors; they have their deterministic meaning. On by default.
    pub relaxed_simd: bool,
    /// Exceptions as WebAssembly 3.0 has them: tags, `throw`, `throw_ref`, `try_table`, `exnref`. On by default.
    pub exceptions: bool,
    /// The form of exceptions that came before: `try`, `catch`, `catch_all`, `delegate`, `rethrow`. Needs
    /// [`exceptions`](Config::exceptions) for tags and `throw`. On by default.
    pub legacy_exceptions: bool,
    /// 128-bit arithmetic on pairs of i64: `i64.add128`, `i64.sub128`, `i64.mul_wide_s`, `i64.mul_wide_u`. On by default.
    pub wide_arithmetic: bool,
    /// Memories whose pages are single bytes instead of 64 KiB. On by default.
    pub custom_page_sizes: bool,
    /// Memories and tables with 64-bit indices. On by default.
    pub memory64: bool,
    /// Shared memories and atomic operators, for a single agent: a wait without timeout traps instead of never ending. On by default.
    pub threads: bool,
    /// Typed function references: reference types that name a function type or exclude null, `call_ref`, `br_on_null` and their like.
    /// On by default.
    pub function_references: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            fuel: false,
            single_step: false,
            eager_threads: 0,
            limits: Limits::default(),
            canonicalize_nans: false,
            simd: true,
            relaxed_simd: true,
            exceptions: true,
            legacy_exceptions: true,
            wide_arithmetic: true,
            custom_page_sizes: true,
            memory64: true,
            threads: true,
            function_references: true,
        }
    }
}

/// A configuration that modules and stores share. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    config: Arc<Config>,
}

impl Engine {
    /// An engine with this configuration.
    pub fn new(config: Config) -> Engine {
        Engine { config: Arc::new(config) }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
