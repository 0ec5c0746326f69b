//! Why a request could not be recorded. What the program itself does (exit, trap) is no error.

use std::path::PathBuf;

use worksp_tracer::container::ContainerError;
use worksp_tracer::recording::RecordingError;

/// Why a request could not be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are no module, or one that cannot be run.
    #[error("cannot load {module}: {reason}")]
    Module {
        /// The module's name.
        module: String,
        /// What is wrong.
        reason: String,
    },
    /// Imports without a provider.
    #[error(
        "{module} imports what nobody provides:\n{list}\nMake them constant with --stub MODULE.NAME[=VALUE], or record it through the library with host functions of your own"
    )]
    Imports {
        /// The module's name.
        module: String,
        /// One import with its type per line.
        list: String,
    },
    /// The interface before preview 1.
    #[error(
        "{module} imports `wasi_unstable`, the interface before WASI preview 1 (function {function}), which worksp does not provide: build it with a newer SDK"
    )]
    UnstableWasi {
        /// The module's name.
        module: String,
        /// One of the imported functions.
        function: String,
    },
    /// A `--stub` argument that means nothing.
    #[error("cannot use --stub {stub}: {reason}")]
    Stub {
        /// The argument.
        stub: String,
        /// What is wrong.
        reason: String,
    },
    /// An environment variable without a name.
    #[error("`{text}` names no environment variable: write NAME=VALUE")]
    Environment {
        /// The argument.
        text: String,
    },
    /// No such export.
    #[error("{module} exports no function `{name}`{hint}")]
    UnknownExport {
        /// The module's name.
        module: String,
        /// The name that was asked for.
        name: String,
        /// Close names, or all of them.
        hint: String,
    },
    /// Arguments that do not fit the function.
    #[error("cannot call `{name}`, whose type is {ty}: {reason}")]
    Arguments {
        /// The function.
        name: String,
        /// Its type.
        ty: String,
        /// What does not fit.
        reason: String,
    },
    /// A script that cannot be read or run.
    #[error("script {path}{place}: {reason}", path = path.display())]
    Script {
        /// The file.
        path: PathBuf,
        /// Which step, or nothing.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The WASI host cannot be set up.
    #[error(transparent)]
    Host(#[from] worksp_host::Error),
    /// The recording cannot be written.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// Something that a recording cannot hold.
    #[error("cannot record {what}: {reason}")]
    Unsupported {
        /// What it was.
        what: String,
        /// Why.
        reason: String,
    },
    /// The system gave no memory where the program was entitled to it; a replay could not know.
    #[error("the system refused to grow a memory to {bytes} bytes ({reason}): free some memory and record again")]
    OutOfMemory {
        /// The size.
        bytes: usize,
        /// The system's reason.
        reason: String,
    },
    /// Wasmtime failed in a way that is no trap.
    #[error("Wasmtime failed: {0}")]
    Wasmtime(String),
}

impl From<ContainerError> for Error {
    fn from(error: ContainerError) -> Self {
        Error::Recording(error.into())
    }
}
