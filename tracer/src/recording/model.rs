//! What a recording says: the types of its chunks.
// The archived twins that the derive macros generate carry no text.
#![allow(missing_docs)]

use rkyv::{Archive, Deserialize, Serialize};

/// The raw bits of a value. Floats keep their bits, `v128` is whole, a null reference is 0 and an external reference is the
/// number that the embedder chose + 1.
pub type Bits = u128;

/// What an import does to the world outside the guest (design: the one table of host functions).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Archive, Serialize, Deserialize)]
pub enum Effect {
    /// Nothing, and its result depends on nothing that calls can change.
    Pure,
    /// It appends output: such calls make the `output` chain.
    Append,
    /// Anything else: such calls make the `host` chain.
    Other,
}

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Archive, Serialize, Deserialize)]
pub enum ValueType {
    I32,
    I64,
    F32,
    F64,
    V128,
    FuncRef,
    ExternRef,
}

impl std::fmt::Display for ValueType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ValueType::I32 => "i32",
            ValueType::I64 => "i64",
            ValueType::F32 => "f32",
            ValueType::F64 => "f64",
            ValueType::V128 => "v128",
            ValueType::FuncRef => "funcref",
            ValueType::ExternRef => "externref",
        })
    }
}

/// The type of an import.
#[derive(Clone, PartialEq, Eq, Debug, Archive, Serialize, Deserialize)]
pub enum ImportType {
    /// A function.
    Func {
        /// Its parameters.
        params: Vec<ValueType>,
        /// Its results.
        results: Vec<ValueType>,
    },
    /// A memory as the embedder provided it; sizes are in pages.
    Memory {
        /// Pages at instantiation.
        pages: u64,
        /// The most pages it may have.
        pages_max: Option<u64>,
    },
    /// A table as the embedder provided it.
    Table {
        /// Element type.
        element: ValueType,
        /// Elements at instantiation.
        elements: u64,
        /// The most elements it may have.
        elements_max: Option<u64>,
    },
    /// A global.
    Global {
        /// Its type.
        value: ValueType,
        /// Whether it may change.
        mutable: bool,
    },
}

/// One import of the module, in the module's order.
#[derive(Clone, PartialEq, Eq, Debug, Archive, Serialize, Deserialize)]
pub struct Import {
    /// The module that it is imported from.
    pub module: String,
    /// Its name there.
    pub name: String,
    /// Its type.
    pub ty: ImportType,
    /// What it does to the world (`Other` for everything but functions).
    pub effect: Effect,
}

/// What an imported memory, table or global held at instantiation.
#[derive(Clone, PartialEq, Debug, Archive, Serialize, Deserialize)]
pub struct Initial {
    /// The import's position.
    pub import: u32,
    /// What it held.
    pub contents: Contents,
}

/// The contents of an imported object.
#[derive(Clone, PartialEq, Debug, Archive, Serialize, Deserialize)]
pub enum Contents {
    /// A memory's bytes; zeros at the end are left out.
    Memory(Vec<u8>),
    /// A table's elements; nulls at the end are left out. Only null and external references can be kept.
    Table(Vec<Bits>),
    /// A global's value.
    Global(Bits),
}

/// How a request was made, for display.
#[derive(Clone, PartialEq, Eq, Debug, Default, Archive, Serialize, Deserialize)]
pub struct Command {
    /// What ran: `_start`, `invoke NAME`, or `script NAME`.
    pub entry: String,
    /// Arguments, without the program's name.
    pub args: Vec<String>,
    /// Environment, `NAME=VALUE`.
    pub env: Vec<String>,
    /// Folders, `HOST::GUEST`.
    pub dirs: Vec<String>,
    /// Constant imports, `MODULE.NAME=VALUE`.
    pub stubs: Vec<String>,
}

/// The first chunk.
#[derive(Clone, PartialEq, Eq, Debug, Archive, Serialize, Deserialize)]
pub struct Header {
    /// SHA-256 of the module's bytes.
    pub module_sha256: [u8; 32],
    /// What to call the module: its file name.
    pub module_name: String,
    /// The proposals that the recording engine had switched on.
    pub features: Vec<String>,
    /// Whether arithmetic NaNs were made canonical; a replay must do likewise.
    pub nan_canonical: bool,
    /// Whether relaxed SIMD had its deterministic meaning.
    pub relaxed_simd_deterministic: bool,
    /// No memory could grow beyond this many bytes.
    pub memory_bytes_max: u64,
    /// No table could grow beyond this many elements.
    pub table_elements_max: u64,
    /// Who recorded, with versions.
    pub recorder: String,
    /// How the request was made.
    pub command: Command,
    /// All imports in order.
    pub imports: Vec<Import>,
}

/// The function that the host calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Archive, Serialize, Deserialize)]
pub enum Target {
    /// By its index in the module.
    Func(u32),
    /// Whatever a table holds.
    Element {
        /// The table's index in the module.
        table: u32,
        /// The element.
        index: u64,
    },
}

/// The kinds of traps, as the specification's tests tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Archive, Serialize, Deserialize)]
pub enum TrapCode {
    Unreachable,
    MemoryOutOfBounds,
    TableOutOfBounds,
    IndirectCallToNull,
    BadSignature,
    IntegerOverflow,
    IntegerDivisionByZero,
    BadConversionToInteger,
    StackOverflow,
    /// Raised by a host function.
    Host,
    /// Some other kind; the message tells.
    Other,
    /// An exception that nobody caught in that call. A host function that ends so throws on what the last such call into the guest
    /// ended with.
    Exception,
}

/// How a call ended, in either direction.
#[derive(Clone, PartialEq, Eq, Debug, Archive, Serialize, Deserialize)]
pub enum End {
    /// With these results.
    Returned(Vec<Bits>),
    /// With a trap.
    Trapped {
        /// Its kind.
        code: TrapCode,
        /// What the recording engine or the host said.
        message: String,
    },
    /// With the program's wish to end with this status.
    Exit(i32),
}

/// One thing that happened. Memories, tables and globals go by their index in the module.
#[derive(Clone, PartialEq, Eq, Debug, Archive, Serialize, Deserialize)]
pub enum Event {
    /// The host calls the guest.
    Enter {
        /// What it calls.
        target: Target,
        /// The arguments.
        args: Vec<Bits>,
    },
    /// The guest call that the matching `Enter` began has ended.
    Leave {
        /// How.
        end: End,
    },
    /// The guest calls the host.
    HostCall {
        /// The imported function's index (functions only, from 0).
        import: u32,
        /// The arguments.
        args: Vec<Bits>,
    },
    /// The host call that the matching `HostCall` began has ended.
    HostReturn {
        /// How.
        end: End,
    },
    /// The host reads guest memory; a replay must find the same bytes there.
    Read {
        /// The memory.
        memory: u32,
        /// The first byte.
        address: u64,
        /// The number of bytes.
        len: u64,
        /// [`read_hash`] of the bytes.
        hash: u64,
    },
    /// The bytes that the `Read` just before hands to an output stream.
    Output {
        /// 1 for standard output, 2 for standard error.
        stream: u8,
        /// How many of them, from the first, the stream took.
        len: u64,
    },
    /// The host writes guest memory.
    Write {
        /// The memory.
        memory: u32,
        /// The first byte.
        address: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The host grows a memory.
    MemoryGrow {
        /// The memory.
        memory: u32,
        /// By how many pages.
        delta: u64,
        /// The former number of pages, or nothing when it failed.
        previous: Option<u64>,
    },
    /// The host grows a table with null.
    TableGrow {
        /// The table.
        table: u32,
        /// By how many elements.
        delta: u64,
        /// The former number of elements, or nothing when it failed.
        previous: Option<u64>,
    },
    /// The host sets a table's element to null or an external reference.
    TableSet {
        /// The table.
        table: u32,
        /// The element.
        index: u64,
        /// The reference.
        value: Bits,
    },
    /// The host sets a global.
    GlobalSet {
        /// The global.
        global: u32,
        /// The value.
        value: Bits,
    },
}

/// A memory at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Archive, Serialize, Deserialize)]
pub struct MemoryState {
    /// Its size.
    pub bytes: u64,
    /// BLAKE3 of its bytes.
    pub blake3: [u8; 32],
}

impl MemoryState {
    /// Describes a memory.
    pub fn of(memory: &[u8]) -> MemoryState {
        MemoryState { bytes: memory.len() as u64, blake3: *blake3::hash(memory).as_bytes() }
    }
}

/// What the program wrote to one output stream.
#[derive(Clone, PartialEq, Eq, Debug, Default, Archive, Serialize, Deserialize)]
pub struct OutputState {
    /// All bytes.
    pub len: u64,
    /// BLAKE3 of all bytes.
    pub blake3: [u8; 32],
    /// The first bytes, for display.
    pub kept: Vec<u8>,
}

/// How the program ended.
#[derive(Clone, PartialEq, Eq, Debug, Archive, Serialize, Deserialize)]
pub enum Exit {
    /// Its last entry returned these results (none for `_start`).
    Returned(Vec<Bits>),
    /// It exited with this status.
    Status(i32),
    /// It trapped.
    Trapped {
        /// The kind.
        code: TrapCode,
        /// The message.
        message: String,
    },
}

impl Exit {
    /// The status that a shell would see, as Wasmtime's command line spells it: 134 for a trap of the program, 1 when a host
    /// function refused to go on.
    pub fn status(&self) -> i32 {
        match self {
            Exit::Returned(_) => 0,
            Exit::Status(status) => *status,
            Exit::Trapped { code: TrapCode::Host, .. } => 1,
            Exit::Trapped { .. } => 134,
        }
    }
}

/// The last chunk.
#[derive(Clone, PartialEq, Eq, Debug, Archive, Serialize, Deserialize)]
pub struct Outcome {
    /// How the program ended.
    pub exit: Exit,
    /// Every memory of the instance in index order; empty when instantiation itself failed.
    pub memories: Vec<MemoryState>,
    /// Standard output.
    pub stdout: OutputState,
    /// Standard error.
    pub stderr: OutputState,
    /// Calls from guest to host.
    pub host_calls: u64,
    /// Calls from host to guest.
    pub entries: u64,
    /// All events.
    pub events: u64,
}
