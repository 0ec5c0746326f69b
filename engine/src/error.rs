//! What can be wrong with what the engine is given. Traps are not here: they are outcomes of programs.

use crate::trap::Trap;

/// Bad input, or a wrong use of the engine.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are no WebAssembly module, or one that does not validate.
    #[error("not a valid WebAssembly module: {message} (at offset 0x{offset:x}); check that the file is complete")]
    Invalid {
        /// What the decoder or the validator found.
        message: String,
        /// Byte offset in the module.
        offset: usize,
    },
    /// The text is no module in the text format.
    #[error("not a WebAssembly module in the text format: {0}")]
    Text(String),
    /// The module is valid WebAssembly but uses features that this engine does not have yet.
    #[error(
        "this module uses {features} ({detail} at offset 0x{offset:x}), which worksp does not run yet; \
         rebuild it without that feature"
    )]
    Unsupported {
        /// The features, by name.
        features: String,
        /// The first use that was met.
        detail: String,
        /// Byte offset in the module of that use.
        offset: usize,
    },
    /// The module is valid WebAssembly but uses features that the engine's configuration switches off.
    #[error("this module uses {features} ({detail} at offset 0x{offset:x}), which is switched off here; switch it on, or rebuild the module without that feature")]
    SwitchedOff {
        /// The features, by name.
        features: String,
        /// The first use that was met.
        detail: String,
        /// Byte offset in the module of that use.
        offset: usize,
    },
    /// The module needs more than a limit of the configuration allows.
    #[error("{what} needs {wanted}, but the limit is {limit}; raise {knob}")]
    Limit {
        /// What exceeds the limit.
        what: String,
        /// How much it needs.
        wanted: u64,
        /// How much is allowed.
        limit: u64,
        /// The setting to change.
        knob: &'static str,
    },
    /// The operating system gave no memory or address space.
    #[error("cannot reserve {bytes} bytes of address space for a memory: {cause}; lower its maximum or the memory limit")]
    AddressSpace {
        /// How much was asked for.
        bytes: u64,
        /// The system's error.
        cause: String,
    },
    /// Not as many imports were given as the module has.
    #[error("the module has {expected} imports but {given} were given")]
    ImportCount {
        /// How many the module has.
        expected: usize,
        /// How many were given.
        given: usize,
    },
    /// Nothing was provided for some imports.
    #[error("unknown import: nobody provides {}; define each of them or stub it", .0.join(", "))]
    UnknownImports(Vec<String>),
    /// What was given for an import has another type.
    #[error("incompatible import type: {module}.{name} is imported as {expected}, but {found} was given")]
    ImportType {
        /// The import's module name.
        module: String,
        /// The import's name.
        name: String,
        /// The type that the module asks for.
        expected: String,
        /// The type of what was given.
        found: String,
    },
    /// A name is not exported, or not as what is asked for.
    #[error("the module exports no {kind} named `{name}`; it exports {available}")]
    UnknownExport {
        /// What was looked for: function, memory, …
        kind: &'static str,
        /// The name.
        name: String,
        /// What is there instead.
        available: String,
    },
    /// Values do not have the types that a function takes or gives.
    #[error("{func} takes [{expected}] here, but was given [{given}]")]
    ValueTypes {
        /// The function.
        func: String,
        /// The types that are needed.
        expected: String,
        /// The types of the values.
        given: String,
    },
    /// A function has another type than the caller knows it by.
    #[error("{func} is a function {found}, not {wanted}")]
    FuncType {
        /// The function.
        func: String,
        /// Its type.
        found: String,
        /// The type that it was asked for with.
        wanted: String,
    },
    /// The host reads or writes beyond a memory's end.
    #[error("{len} bytes at 0x{at:x} are not inside a memory of {size} bytes")]
    OutOfBounds {
        /// The first byte.
        at: u64,
        /// How many.
        len: usize,
        /// The memory's size in bytes.
        size: usize,
    },
    /// `resume` or `unwind` without a pending host call, or another call out of turn.
    #[error("{0}")]
    OutOfTurn(&'static str),
    /// A suspended run cannot go on as asked: it waits where only its own kind of probe can go on, or it was restored and is no state
    /// that a run can be in.
    #[error("the suspended run cannot go on: {0}")]
    Suspended(&'static str),
    /// A write to a constant global, or of a value of another type into a global or a table.
    #[error("{0}")]
    BadWrite(String),
}

/// Why a module could not be instantiated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InstantiateError {
    /// The imports do not fit, or a limit was exceeded.
    #[error(transparent)]
    Error(#[from] Error),
    /// An active segment does not fit. Segments before it have been written, as the specification has it.
    #[error(transparent)]
    Trap(#[from] Trap),
}

/// Checks that values of a store have these types.
pub(crate) fn check_values(
    store: &crate::store::Store,
    func: impl FnOnce() -> String,
    expected: &[crate::value::ValType],
    given: &[crate::value::Val],
) -> Result<(), Error> {
    if expected.len() == given.len() && expected.iter().zip(given).all(|(ty, val)| store.is_of(*val, *ty)) {
        return Ok(());
    }
    let list = |types: Vec<String>| types.join(" ");
    Err(Error::ValueTypes {
        func: func(),
        expected: list(expected.iter().map(ToString::to_string).collect()),
        given: list(given.iter().map(|v| v.ty().to_string()).collect()),
    })
}
