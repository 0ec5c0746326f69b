//! `single`: every operator, with operands at the edges of their types, in every shape that an operand can have.
//!
//! A program is one operator whose operands come from constants, locals, the stack or globals, and whose result goes to the caller, to a
//! local, to a branch or to memory. Nothing is left to chance but the values: the shapes of an operator are counted through.

use wasm_encoder::ValType;

use super::Random;
use crate::operators::{self, Immediates, Operator, OperatorId};
use crate::program::{Block, Code, Func, Immediate, Input, Kind, Label, Node, Program, Signature, mask};

/// Where an operand comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Shape {
    /// A constant.
    Const,
    /// `local.get`.
    Local,
    /// Any other operator.
    Stack,
    /// `global.get`.
    Global,
}

impl Shape {
    /// All of them.
    pub const ALL: [Shape; 4] = [Shape::Const, Shape::Local, Shape::Stack, Shape::Global];

    /// The shape of an operand.
    pub fn of(node: &Node) -> Shape {
        match node.code {
            Code::Const(..) => Shape::Const,
            Code::LocalGet(_) => Shape::Local,
            Code::GlobalGet(_) => Shape::Global,
            _ => Shape::Stack,
        }
    }
}

/// Where a result goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// To the end of the function.
    Result,
    /// To a local that an operand came from, and then to the end.
    Local,
    /// It decides on a branch, if it is an i32.
    Branch,
    /// To a global.
    Global,
    /// To an operator on the same type.
    Operand,
    /// Along with a branch that may be taken, and to an operator when it is not.
    Carried,
    /// To a parameter of a loop, which was constant at first.
    Loop,
    /// To `i32.eqz`, if it is an i32, and that to a branch.
    Negated,
}

const USES: [Use; 8] = [Use::Result, Use::Local, Use::Branch, Use::Global, Use::Operand, Use::Carried, Use::Loop, Use::Negated];

/// One program: the cell of this number. Cells of one operator are neighbours, those of one round of all operators too.
pub fn program(index: u64, random: &mut Random) -> Program {
    let all = operators::all();
    let (round, place) = (index / all.len() as u64, index % all.len() as u64);
    let id = OperatorId(place as u16);
    let operator = id.get();
    // Shapes are counted through: four digits, then where the result goes.
    let count = operator.params.len() as u32;
    let shapes: Vec<Shape> = (0..count).map(|param| Shape::ALL[(round / 4u64.pow(param)) as usize % 4]).collect();
    let goes = USES[(round / 4u64.pow(count)) as usize % USES.len()];
    build(id, &shapes, goes, random)
}

fn build(id: OperatorId, shapes: &[Shape], goes: Use, random: &mut Random) -> Program {
    let operator = id.get();
    let params: Vec<ValType> = operator.params.to_vec();
    let results: Vec<ValType> = operator.results.to_vec();
    let mut func = Func { ty: Signature { params: params.clone(), results: results.clone() }, ..Func::default() };
    for (index, ty) in (0..).zip(&params).filter(|(index, _)| shapes[*index as usize] == Shape::Global) {
        func.body.push(Node::new(Code::GlobalSet(global(*ty, index)), [Node::local(index)]));
    }
    // What is constant in a program is varied in it, or a cell would see one constant only.
    if let ([ty], true) = (results.as_slice(), shapes.contains(&Shape::Const) || operator.immediates != Immediates::None) {
        for variant in 0..VARIANTS {
            let node = Node::new(Code::Operator(id, harmless(operator, immediate(operator, random))), args(operator, shapes, true, random));
            func.body.push(Node::new(Code::GlobalSet(global(*ty, 1 - variant % 2)), [combined(*ty, node, Node::new(Code::GlobalGet(global(*ty, 1 - variant % 2)), []))]));
        }
        // Operands are what they were.
        for (index, ty) in (0..).zip(&params).filter(|(index, _)| shapes[*index as usize] == Shape::Global) {
            func.body.push(Node::new(Code::GlobalSet(global(*ty, index)), [Node::local(index)]));
        }
    }
    let args = args(operator, shapes, false, random);
    let constants: Vec<(ValType, u128)> = args.iter().filter_map(|arg| if let Code::Const(ty, bits) = arg.code { Some((ty, bits)) } else { None }).collect();
    let node = Node::new(Code::Operator(id, immediate(operator, random)), args);
    match (goes, results.as_slice()) {
        (Use::Local, [ty]) => {
            let local = match params.iter().position(|param| param == ty) {
                Some(param) => param as u32,
                None => {
                    // Sometimes far from the others.
                    if random.one_in(4) {
                        func.locals.extend(std::iter::repeat_n(ValType::I64, 58 + random.below(10) as usize));
                    }
                    func.locals.push(*ty);
                    (params.len() + func.locals.len() - 1) as u32
                }
            };
            func.body.extend([Node::new(Code::LocalSet(local), [node]), Node::local(local)]);
        }
        (Use::Branch | Use::Negated, [ValType::I32]) => {
            let node = if goes == Use::Negated { Node::op("i32_eqz", [node]) } else { node };
            let branch = Node::new(Code::BrIf(LABEL), [Node::i32(7), node]);
            let otherwise = Node::new(Code::Drop, [branch]);
            func.body.push(block(Kind::Block, &[], ValType::I32, vec![otherwise, Node::i32(8)], vec![]));
        }
        (Use::Carried, [ty]) => {
            // It is taken in every other call.
            let counter = global(ValType::I32, 1);
            let count = Node::op("i32_add", [Node::new(Code::GlobalGet(counter), []), Node::i32(1)]);
            func.body.push(Node::new(Code::GlobalSet(counter), [count]));
            let taken = Node::op("i32_and", [Node::new(Code::GlobalGet(counter), []), Node::i32(1)]);
            let branch = Node::new(Code::BrIf(LABEL), [node, taken]);
            let other = Node::constant(*ty, edge(*ty, random));
            func.body.push(block(Kind::Block, &[], *ty, vec![combined(*ty, branch, other)], vec![]));
        }
        (Use::Loop, [ty]) => {
            let counter = (params.len() + func.locals.len()) as u32;
            func.locals.push(ValType::I32);
            let again = Node::op("i32_lt_u", [Node::new(Code::LocalTee(counter), [Node::op("i32_add", [Node::local(counter), Node::i32(1)])]), Node::i32(3)]);
            // What the parameter of the loop is combined with comes after it on the stack.
            let Node { code, .. } = combined(*ty, node.clone(), node.clone());
            let body = vec![node, Node::new(code, []), again, Node::new(Code::BrIf(LABEL), [])];
            func.body.push(block(Kind::Loop, &[*ty], *ty, body, vec![Node::constant(*ty, edge(*ty, random))]));
        }
        (Use::Global, [ty]) => {
            let global = global(*ty, 0);
            func.body.extend([Node::new(Code::GlobalSet(global), [node]), Node::new(Code::GlobalGet(global), [])]);
        }
        (Use::Operand, [ty]) => {
            let other = Node::constant(*ty, edge(*ty, random));
            func.body.push(combined(*ty, node, other));
        }
        _ => func.body.push(node),
    }
    let inputs = (0..INPUTS).map(|_| input(operator, &constants, random)).collect();
    Program { funcs: vec![func], inputs }
}

/// Calls of each program.
const INPUTS: usize = 12;
/// Other constants and immediates that a program tries before its own.
const VARIANTS: u32 = 4;

/// One of the two globals of a type.
fn global(ty: ValType, which: u32) -> u32 {
    operators::index(ty) as u32 + 5 * (which % 2)
}

/// Operands in these shapes; `harmless` constants are none that an operator would trap on, which would hide what follows.
fn args(operator: &Operator, shapes: &[Shape], harmless: bool, random: &mut Random) -> Vec<Node> {
    let arg = |(index, (shape, ty)): (u32, (&Shape, &ValType))| match shape {
        Shape::Const => {
            let mut bits = operand(operator, index, random);
            let divides = operator.name.contains("_div_") || operator.name.contains("_rem_");
            let converts = operator.name.contains("_trunc_f");
            let access = matches!(operator.immediates, Immediates::Access(_) | Immediates::AccessLane(..));
            while harmless && ((divides && (bits == 0 || bits == mask(*ty))) || (access && index == 0 && bits > 0x8000)) {
                bits = operand(operator, index, random);
            }
            Node::constant(*ty, if harmless && converts { 0 } else { bits })
        }
        Shape::Local => Node::local(index),
        Shape::Stack => stack(*ty, index, random),
        Shape::Global => Node::new(Code::GlobalGet(global(*ty, index)), []),
    };
    (0..).zip(shapes.iter().zip(&operator.params)).map(arg).collect()
}

/// Without an offset that takes an access out of bounds.
fn harmless(operator: &Operator, immediate: Immediate) -> Immediate {
    let aligned = operator.name.contains("atomic");
    Immediate { offset: if aligned { 0 } else { immediate.offset % 64 }, ..immediate }
}

/// The only label of a program's own block.
const LABEL: Label = Label(0);

fn block(kind: Kind, params: &[ValType], result: ValType, body: Vec<Node>, args: Vec<Node>) -> Node {
    let ty = Signature { params: params.to_vec(), results: vec![result] };
    Node::new(Code::Block(Box::new(Block { kind, label: LABEL, ty, body, otherwise: vec![] })), args)
}

/// An operator on two values of a type.
fn combined(ty: ValType, a: Node, b: Node) -> Node {
    let name = match ty {
        ValType::I32 => "i32_sub",
        ValType::I64 => "i64_xor",
        ValType::F32 => "f32_copysign",
        ValType::F64 => "f64_add",
        _ => "v128_xor",
    };
    Node::op(name, [a, b])
}

/// An operand that is parameter `index`, on the stack.
fn stack(ty: ValType, index: u32, random: &mut Random) -> Node {
    let local = Node::local(index);
    match random.below(3) {
        // The value of an operator.
        0 => match ty {
            ValType::I32 => Node::op("i32_add", [local, Node::i32(0)]),
            ValType::I64 => Node::op("i64_or", [local, Node::constant(ty, 0)]),
            ValType::F32 => Node::op("f32_reinterpret_i32", [Node::op("i32_reinterpret_f32", [local])]),
            ValType::F64 => Node::op("f64_neg", [Node::op("f64_neg", [local])]),
            _ => Node::op("v128_not", [Node::op("v128_not", [local])]),
        },
        // The value of a block.
        1 => {
            let ty = Signature { params: vec![], results: vec![ty] };
            let block = Block { kind: Kind::Block, label: Label(100 + index), ty, body: vec![local], otherwise: vec![] };
            Node::new(Code::Block(Box::new(block)), [])
        }
        // Of `select`.
        _ => Node::new(Code::Select(Some(ty)), [local.clone(), local, Node::i32(random.below(2) as i32)]),
    }
}

/// Immediates: mostly what compilers write, sometimes the ends of what may be.
pub fn immediate(operator: &Operator, random: &mut Random) -> Immediate {
    // An address that is both unaligned and out of bounds is a trap of either kind, as its engine likes it.
    let waits = operator.name.starts_with("memory_atomic");
    let offset = |random: &mut Random| match random.below(if waits { 4 } else { 8 }) {
        0..4 => 0,
        4 | 5 => random.below(64) as u32,
        6 => 0xfff0 + random.below(32) as u32,
        _ => *random.pick(&[u32::MAX, u32::MAX - 7, 0x8000_0000, 0x1_0000]),
    };
    let lanes = random.wide();
    match operator.immediates {
        Immediates::None => Immediate::default(),
        Immediates::Lane(_) | Immediates::Shuffle => Immediate { lanes, ..Immediate::default() },
        Immediates::Access(align) | Immediates::AccessLane(align, _) => {
            let align = align.min + random.below(u64::from(align.max - align.min) + 1) as u8;
            Immediate { lanes, offset: offset(random), align, memory: 0 }
        }
    }
}

/// Values for the parameters; some are those of a constant of the program, or differ from it in one bit.
fn input(operator: &Operator, constants: &[(ValType, u128)], random: &mut Random) -> Input {
    let mut input = [0; 4];
    for ((index, ty), bits) in (0..).zip(&operator.params).zip(&mut input) {
        let near = constants.iter().find(|(other, _)| other == ty);
        *bits = match near {
            Some((_, constant)) if random.one_in(4) => (constant ^ u128::from(random.below(2)) << random.below(128)) & mask(*ty),
            _ => operand(operator, index, random),
        };
    }
    input
}

/// A value for a parameter of an operator: an address where it takes one, otherwise one at the edges of its type.
fn operand(operator: &Operator, index: u32, random: &mut Random) -> u128 {
    let ty = operator.params[index as usize];
    let access = matches!(operator.immediates, Immediates::Access(_) | Immediates::AccessLane(..));
    match index {
        0 if access => u128::from(match random.below(8) {
            0..3 => random.below(1024) as u32 & !15,
            3..5 => random.below(1024) as u32,
            5 | 6 => 0xffe0 + random.below(48) as u32,
            _ => edge(ValType::I32, random) as u32,
        }),
        _ => edge(ty, random),
    }
}

/// A value of a type; mostly at its edges.
pub fn edge(ty: ValType, random: &mut Random) -> u128 {
    const INTEGERS: [u64; 20] = [
        0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x7fff_ffff_ffff_ffff,
        0x8000_0000_0000_0000,
    ];
    const F32: [u32; 24] = [
        0, 0x8000_0000, 1, 0x8000_0001, 0x007f_ffff, 0x0080_0000, 0x3f80_0000, 0xbf80_0000, 0x3f00_0000, 0xbf00_0000, 0x3fc0_0000, 0x4020_0000,
        0x4b00_0000, 0x4f00_0000, 0xcf00_0000, 0x4f80_0000, 0x5f00_0000, 0xdf00_0000, 0x5f80_0000, 0x7f7f_ffff, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000,
        0xffa0_0001,
    ];
    const F64: [u64; 24] = [
        0, 0x8000_0000_0000_0000, 1, 0x8000_0000_0000_0001, 0x000f_ffff_ffff_ffff, 0x0010_0000_0000_0000, 0x3ff0_0000_0000_0000,
        0xbff0_0000_0000_0000, 0x3fe0_0000_0000_0000, 0xbfe0_0000_0000_0000, 0x3ff8_0000_0000_0000, 0x4004_0000_0000_0000, 0x4330_0000_0000_0000,
        0x41df_ffff_ffff_ffff, 0x41e0_0000_0000_0000, 0xc1e0_0000_0020_0000, 0x41f0_0000_0000_0000, 0x43e0_0000_0000_0000, 0xc3e0_0000_0000_0000,
        0x43f0_0000_0000_0000, 0x7ff0_0000_0000_0000, 0xfff0_0000_0000_0000, 0x7ff8_0000_0000_0000, 0xfff4_0000_0000_0001,
    ];
    let integer = |random: &mut Random| {
        let value = *random.pick(&INTEGERS);
        match random.below(4) {
            0 => value.wrapping_neg(),
            1 => value.wrapping_add(random.below(5)).wrapping_sub(2),
            2 if random.one_in(2) => random.word() >> random.below(64),
            _ => value,
        }
    };
    let bits = match ty {
        ValType::I32 | ValType::I64 => u128::from(integer(random)),
        ValType::F32 if random.one_in(4) => u128::from(((random.word() >> 44) as f32 / 16.0 - 32_768.0).to_bits()),
        ValType::F32 => u128::from(*random.pick(&F32)),
        ValType::F64 if random.one_in(4) => u128::from(((random.word() >> 20) as f64 / 1024.0 - 8e9).to_bits()),
        ValType::F64 => u128::from(*random.pick(&F64)),
        // Lanes of one of the widths, most of them at edges.
        _ => match random.below(6) {
            0 => random.wide(),
            1 => lanes(8, || random.word() as u8 as u128 & [0xff, 0x80, 0x7f, 0x81][random.below(4) as usize]),
            2 => lanes(16, || u128::from(integer(random) as u16)),
            3 => lanes(32, || u128::from(integer(random) as u32)),
            4 => lanes(32, || u128::from(*random.pick(&F32))),
            _ => lanes(64, || u128::from(if random.one_in(2) { *random.pick(&F64) } else { integer(random) })),
        },
    };
    bits & mask(ty)
}

fn lanes(width: u32, mut lane: impl FnMut() -> u128) -> u128 {
    (0..128 / width).fold(0, |bits, _| bits << (width % 128) | lane())
}

