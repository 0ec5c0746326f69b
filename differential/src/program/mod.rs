//! Programs as campaigns make them, run them and shrink them: trees of operators over an environment that all programs share.
//!
//! ```text
//! generate ─► Program ─► encode (many in one module behind a driver) ─► run on every engine and in every mode ─► compare
//!                ▲                                                                                                 │
//!                └───────────────────────────────────── shrink ◄───────────────────────────────────────────────────┘
//! ```

mod encode;
pub mod script;
pub mod shrink;

use wasm_encoder::{Instruction, ValType};

use crate::operators::{OperatorId, TYPES};

pub use encode::{DRIVER, RESET, encode, encode_alone};

/// What the memory of every program is: pages at the start and at most.
pub const PAGES: (u64, u64) = (1, 3);
/// The bytes of the first data segment stand here at the start of every program.
pub const DATA_AT: u32 = 256;
/// Length of the first data segment, bytes. The second is as long.
pub const DATA_BYTES: u32 = 512;
/// Elements of every table: at the start, and at most.
pub const ELEMENTS: (u64, u64) = (16, 24);
/// Tables.
pub const TABLES: u32 = 2;
/// Values that a call of a program's first function takes and gives at most.
pub const PARAMS_MAX: usize = 4;
/// See [`PARAMS_MAX`].
pub const RESULTS_MAX: usize = 3;

/// Types of the mutable globals; two of each type.
pub fn globals() -> impl Iterator<Item = ValType> {
    TYPES.into_iter().chain(TYPES)
}

/// What a global has at the start of every program.
pub fn global_start(index: usize) -> u128 {
    (index as u128 + 1).wrapping_mul(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210) & mask(globals().nth(index).expect("a global"))
}

/// The types of the values that an exception of each tag carries.
pub const TAGS: [&[ValType]; 4] = [&[], &[ValType::I32], &[ValType::I64, ValType::F32], &[ValType::F64, ValType::V128, ValType::I32]];

/// A function of the host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Host {
    /// Takes note of a number.
    Note,
    /// Answers with a number that depends on its argument.
    Ask,
    /// The same for other types.
    Blend,
    /// Writes eight bytes into memory, at an address below the last eight bytes of its first page; answers with the address.
    Poke,
    /// Reads eight bytes from there.
    Peek,
    /// Traps when its argument is odd.
    Check,
}

impl Host {
    /// All of them; the module imports them in this order.
    pub const ALL: [Host; 6] = [Host::Note, Host::Ask, Host::Blend, Host::Poke, Host::Peek, Host::Check];

    /// Its name in module `env`.
    pub fn name(self) -> &'static str {
        match self {
            Host::Note => "note",
            Host::Ask => "ask",
            Host::Blend => "blend",
            Host::Poke => "poke",
            Host::Peek => "peek",
            Host::Check => "check",
        }
    }

    /// What it takes and gives.
    pub fn signature(self) -> (&'static [ValType], &'static [ValType]) {
        use ValType::{F32, F64, I32, I64, V128};
        match self {
            Host::Note => (&[I64], &[]),
            Host::Ask => (&[I32], &[I64]),
            Host::Blend => (&[F32, F64, V128], &[V128, F64]),
            Host::Poke => (&[I32, I64], &[I32]),
            Host::Peek => (&[I32], &[I64]),
            Host::Check => (&[I32], &[]),
        }
    }
}

/// The bits that values of a type have.
pub fn mask(ty: ValType) -> u128 {
    match ty {
        ValType::I32 | ValType::F32 => u128::from(u32::MAX),
        ValType::I64 | ValType::F64 => u128::from(u64::MAX),
        _ => u128::MAX,
    }
}

/// Where a branch may go: the blocks of a program have different labels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Label(pub u32);

/// An operator with the operands that come from other operators.
#[derive(Clone, Debug)]
pub struct Node {
    /// The operator.
    pub code: Code,
    /// What makes its operands, in this order. Some may make several of them, or none.
    pub args: Vec<Node>,
}

/// Immediates of an operator of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Immediate {
    /// Which lanes.
    pub lanes: u128,
    /// Added to the address.
    pub offset: u32,
    /// The alignment that is claimed, as a logarithm.
    pub align: u8,
    /// Which memory.
    pub memory: u8,
}

/// An operator.
#[derive(Clone, Debug)]
pub enum Code {
    /// One of [`crate::operators`].
    Operator(OperatorId, Immediate),
    /// A constant, by its bits.
    Const(ValType, u128),
    /// `local.get` of a parameter or local.
    LocalGet(u32),
    /// `local.set`.
    LocalSet(u32),
    /// `local.tee`.
    LocalTee(u32),
    /// `global.get`.
    GlobalGet(u32),
    /// `global.set`.
    GlobalSet(u32),
    /// `drop`.
    Drop,
    /// `select`; with or without a type.
    Select(Option<ValType>),
    /// `call` of a function of the program; a tail call or not.
    Call(u32, Tail),
    /// `call_indirect` through a table.
    CallIndirect(Signature, u32, Tail),
    /// `call` of a function of the host.
    CallHost(Host),
    /// `br`.
    Br(Label),
    /// `br_if`; the operands are those of the label, then the condition.
    BrIf(Label),
    /// `br_table`; the last label is the default.
    BrTable(Vec<Label>),
    /// `return`.
    Return,
    /// `unreachable`.
    Unreachable,
    /// A block of any kind.
    Block(Box<Block>),
    /// `throw`.
    Throw(u32),
    /// Whatever needs none of the above: bulk operators, tables, references. With what it gives.
    Other(Instruction<'static>, Vec<ValType>),
}

/// Whether a call takes the place of its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tail {
    /// It does.
    Yes,
    /// It does not.
    No,
}

/// What a function takes and gives.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Signature {
    /// Parameters.
    pub params: Vec<ValType>,
    /// Results.
    pub results: Vec<ValType>,
}

/// A block: its node's arguments are its parameters, and then the condition of an `if`.
#[derive(Clone, Debug)]
pub struct Block {
    /// Which block.
    pub kind: Kind,
    /// Its label, which branches inside may name.
    pub label: Label,
    /// What is on the stack at its start, and at its end.
    pub ty: Signature,
    /// What it does. In an `if`, when the condition holds.
    pub body: Vec<Node>,
    /// What an `if` does otherwise.
    pub otherwise: Vec<Node>,
}

/// The kinds of blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `block`.
    Block,
    /// `loop`.
    Loop,
    /// `if`; with an `else` or without.
    If,
    /// `try_table` with its clauses.
    Try(Vec<Catch>),
}

/// A clause of `try_table`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Catch {
    /// The tag; all of them when there is none.
    pub tag: Option<u32>,
    /// Where it goes.
    pub label: Label,
}

/// A function.
#[derive(Clone, Debug, Default)]
pub struct Func {
    /// What it takes and gives.
    pub ty: Signature,
    /// Types of the locals after the parameters.
    pub locals: Vec<ValType>,
    /// What it does; at its end, its results are on the stack.
    pub body: Vec<Node>,
}

impl Func {
    /// The type of a parameter or local.
    pub fn local(&self, index: u32) -> ValType {
        let index = index as usize;
        self.ty.params.get(index).or_else(|| self.locals.get(index - self.ty.params.len())).copied().expect("a local of the function")
    }
}

/// Values of the parameters of one call; bits.
pub type Input = [u128; PARAMS_MAX];

/// A program: the first function is called with each of the inputs in turn, on the state that the call before left.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The functions; the tables have them in this order at the start.
    pub funcs: Vec<Func>,
    /// The calls.
    pub inputs: Vec<Input>,
}

impl Node {
    /// An operator and its operands.
    pub fn new(code: Code, args: impl Into<Vec<Node>>) -> Node {
        Node { code, args: args.into() }
    }

    /// A constant.
    pub fn constant(ty: ValType, bits: u128) -> Node {
        Node::new(Code::Const(ty, bits & mask(ty)), [])
    }

    /// An i32.
    pub fn i32(value: i32) -> Node {
        Node::constant(ValType::I32, u128::from(value as u32))
    }

    /// `local.get`.
    pub fn local(index: u32) -> Node {
        Node::new(Code::LocalGet(index), [])
    }

    /// An operator of the list by its name, its immediates zero.
    ///
    /// # Panics
    ///
    /// Unless there is one of this name.
    pub fn op(name: &str, args: impl Into<Vec<Node>>) -> Node {
        Node::new(Code::Operator(crate::operators::named(name), Immediate::default()), args)
    }

    /// What is on the stack after it that was not there before, in a function of a program. `None` when what follows is never reached.
    pub fn results(&self, program: &Program, func: &Func) -> Option<Vec<ValType>> {
        Some(match &self.code {
            Code::Operator(id, _) => id.get().results.to_vec(),
            Code::Const(ty, _) => vec![*ty],
            Code::LocalGet(index) | Code::LocalTee(index) => vec![func.local(*index)],
            Code::GlobalGet(index) => vec![globals().nth(*index as usize).expect("a global")],
            Code::LocalSet(_) | Code::GlobalSet(_) | Code::Drop => vec![],
            Code::Select(Some(ty)) => vec![*ty],
            Code::Select(None) => self.args.iter().filter_map(|arg| arg.results(program, func)).flatten().next().into_iter().collect(),
            Code::Call(_, Tail::Yes) | Code::CallIndirect(_, _, Tail::Yes) => return None,
            Code::Call(index, Tail::No) => program.funcs[*index as usize].ty.results.clone(),
            Code::CallIndirect(ty, _, Tail::No) => ty.results.clone(),
            Code::CallHost(host) => host.signature().1.to_vec(),
            Code::Br(_) | Code::BrTable(_) | Code::Return | Code::Unreachable | Code::Throw(_) => return None,
            // What it would have taken along stays.
            Code::BrIf(_) => {
                let mut all: Vec<ValType> = self.args.iter().filter_map(|arg| arg.results(program, func)).flatten().collect();
                all.pop();
                all
            }
            Code::Block(block) => block.ty.results.clone(),
            Code::Other(_, results) => results.clone(),
        })
    }

    /// Every operator in it, inner ones too.
    pub fn walk<'a>(&'a self, see: &mut impl FnMut(&'a Node)) {
        see(self);
        self.args.iter().for_each(|arg| arg.walk(see));
        if let Code::Block(block) = &self.code {
            block.body.iter().chain(&block.otherwise).for_each(|node| node.walk(see));
        }
    }
}

impl Program {
    /// Every operator of its functions.
    pub fn walk<'a>(&'a self, mut see: impl FnMut(&'a Node)) {
        self.funcs.iter().flat_map(|func| &func.body).for_each(|node| node.walk(&mut see));
    }

    /// Number of operators; blocks count one.
    pub fn size(&self) -> usize {
        let mut size = 0;
        self.walk(|_| size += 1);
        size
    }

    /// What it does that the environment must provide for.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        self.walk(|node| match &node.code {
            Code::Other(instruction, _) => {
                use Instruction::{DataDrop, ElemDrop, MemoryCopy, MemoryFill, MemoryGrow, MemoryInit, MemorySize, RefFunc};
                use Instruction::{TableCopy, TableFill, TableGet, TableGrow, TableInit, TableSet, TableSize};
                needs.fresh |= matches!(instruction, MemoryGrow(_) | TableGrow(_) | DataDrop(_) | ElemDrop(_));
                needs.tables |= matches!(
                    instruction,
                    ElemDrop(_) | RefFunc(_) | TableCopy { .. } | TableFill(_) | TableGet(_) | TableGrow(_) | TableInit { .. } | TableSet(_) | TableSize(_)
                );
                needs.second_memory |= match instruction {
                    MemoryCopy { src_mem, dst_mem } => src_mem.max(dst_mem) > &0,
                    MemoryFill(mem) | MemoryGrow(mem) | MemorySize(mem) | MemoryInit { mem, .. } => *mem > 0,
                    _ => false,
                };
            }
            Code::Operator(_, immediate) => needs.second_memory |= immediate.memory > 0,
            Code::CallIndirect(..) => needs.tables = true,
            Code::Throw(_) => needs.exceptions = true,
            Code::Block(block) => needs.exceptions |= matches!(block.kind, Kind::Try(_)),
            _ => {}
        });
        needs
    }
}

/// A module as text.
pub fn program_text(bytes: &[u8]) -> String {
    wasmprinter::print_bytes(bytes).unwrap_or_else(|e| format!(";; {e}\n"))
}

/// See [`Program::needs`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Needs {
    /// It changes what only a new instance can set right for the next program.
    pub fresh: bool,
    /// It has to do with tables.
    pub tables: bool,
    /// A second memory.
    pub second_memory: bool,
    /// Exceptions.
    pub exceptions: bool,
}

impl Needs {
    /// What either needs.
    pub fn or(self, other: Needs) -> Needs {
        Needs {
            fresh: self.fresh || other.fresh,
            tables: self.tables || other.tables,
            second_memory: self.second_memory || other.second_memory,
            exceptions: self.exceptions || other.exceptions,
        }
    }
}
