//! Values of any type.

use std::sync::LazyLock;

use wasm_encoder::{Instruction, ValType};

use super::{Build, single};
use crate::operators::{self, Immediates, OperatorId, TYPES, giving, giving_nothing, index};
use crate::program::{Code, Host, Immediate, Kind, Node, Signature, globals};

/// Operators by the type that they give; none of them traps where its address is good.
pub(super) struct Pools {
    /// On values alone.
    pub values: [Vec<OperatorId>; 5],
    /// Those that read memory.
    pub loads: [Vec<OperatorId>; 5],
    /// Those that only write to it.
    pub stores: Vec<OperatorId>,
}

impl Pools {
    /// With atomic and relaxed operators or without.
    pub fn get(rich: bool) -> &'static Pools {
        static PLAIN: LazyLock<Pools> = LazyLock::new(|| Pools::new(false));
        static RICH: LazyLock<Pools> = LazyLock::new(|| Pools::new(true));
        if rich { &RICH } else { &PLAIN }
    }

    fn new(rich: bool) -> Pools {
        let fits = |id: &OperatorId| {
            let name = id.get().name;
            (rich || !(name.contains("atomic") || name.contains("relaxed"))) && !name.starts_with("memory_atomic_wait")
        };
        let access = |id: &OperatorId| matches!(id.get().immediates, Immediates::Access(_) | Immediates::AccessLane(..));
        let of = |wanted: &dyn Fn(&OperatorId) -> bool| TYPES.map(|ty| giving(ty).iter().copied().filter(|id| fits(id) && wanted(id)).collect());
        Pools {
            values: of(&|id| !access(id) && !may_trap(id.get().name)),
            loads: of(&access),
            stores: giving_nothing().iter().copied().filter(|id| fits(id) && access(id)).collect(),
        }
    }
}

/// Whether a number may be one that an operator does not have an answer for.
fn may_trap(name: &str) -> bool {
    let integer = name.starts_with("i32_") || name.starts_with("i64_");
    integer && ["div_", "rem_", "trunc_f"].iter().any(|part| name[4..].starts_with(part))
}

impl Build<'_> {
    /// A local that may be written.
    pub(super) fn var(&mut self, ty: ValType) -> u32 {
        *self.random.pick(&self.vars[index(ty)])
    }

    /// A global of a type.
    pub(super) fn global(&mut self, ty: ValType) -> u32 {
        debug_assert_eq!(globals().count(), 10);
        index(ty) as u32 + 5 * self.random.below(2) as u32
    }

    /// A value that takes one operator.
    pub(super) fn leaf(&mut self, ty: ValType) -> Node {
        self.room -= 1;
        match self.random.below(10) {
            0..3 if ty == ValType::I32 && !self.counters.is_empty() => Node::local(*self.random.pick(&self.counters)),
            0..6 => Node::local(self.var(ty)),
            6 => Node::new(Code::GlobalGet(self.global(ty)), []),
            7 => Node::constant(ty, self.random.below(16).into()),
            _ => Node::constant(ty, single::edge(ty, self.random)),
        }
    }

    /// Values of these types.
    pub(super) fn exprs(&mut self, types: &[ValType], depth: u32, out: &mut Vec<Node>) {
        types.iter().for_each(|ty| out.push(self.expr(*ty, depth)));
    }

    /// A value; at most so many operators deep, apart from what blocks in it do.
    pub(super) fn expr(&mut self, ty: ValType, depth: u32) -> Node {
        if depth == 0 || self.room < -20 {
            return self.leaf(ty);
        }
        let deeper = depth - 1;
        match self.random.below(32) {
            0..8 => self.leaf(ty),
            8..13 if !self.pure => {
                let id = *self.random.pick(&Pools::get(self.plan.rich).loads[index(ty)]);
                self.access(id, deeper)
            }
            13 => {
                let (value, var) = (self.expr(ty, deeper), self.var(ty));
                Node::new(Code::LocalTee(var), [value])
            }
            14 | 15 => {
                let typed = self.random.one_in(2).then_some(ty);
                let args = [self.expr(ty, deeper), self.expr(ty, deeper), self.chance(50)];
                Node::new(Code::Select(typed), args)
            }
            16 => {
                let (condition, one, other) = (self.chance(40), vec![self.expr(ty, deeper)], vec![self.expr(ty, deeper)]);
                self.block(Kind::If, Signature { params: vec![], results: vec![ty] }, vec![condition], one, other)
            }
            17 if !self.pure && self.room > 0 => self.valued_block(ty),
            18 if !self.pure => self.call_giving(ty).unwrap_or_else(|| self.leaf(ty)),
            19 if !self.pure => self.asked(ty, deeper),
            20 => self.guarded(ty, deeper),
            _ => {
                let id = *self.random.pick(&Pools::get(self.plan.rich).values[index(ty)]);
                self.operator(id, deeper)
            }
        }
    }

    /// An operator on values.
    pub(super) fn operator(&mut self, id: OperatorId, depth: u32) -> Node {
        self.room -= 1;
        let mut args = Vec::new();
        self.exprs(&id.get().params, depth, &mut args);
        let lanes = if id.get().immediates == Immediates::None { 0 } else { self.random.wide() };
        Node::new(Code::Operator(id, Immediate { lanes, ..Immediate::default() }), args)
    }

    /// An operator that might trap, on values for which it does not.
    fn guarded(&mut self, ty: ValType, depth: u32) -> Node {
        self.room -= 4;
        match ty {
            ValType::I32 | ValType::I64 => {
                let (bits, prefix) = if ty == ValType::I32 { (32, "i32") } else { (64, "i64") };
                if self.random.one_in(2) {
                    let name = *self.random.pick(&["div_s", "div_u", "rem_s", "rem_u"]);
                    let small = Node::op(&format!("{prefix}_and"), [self.expr(ty, depth), Node::constant(ty, 0xff)]);
                    let divisor = Node::op(&format!("{prefix}_or"), [small, Node::constant(ty, 1)]);
                    return Node::op(&format!("{prefix}_{name}"), [self.expr(ty, depth), divisor]);
                }
                let (float, sign) = (*self.random.pick(&["f32", "f64"]), *self.random.pick(&["s", "u"]));
                let small = Node::op(&format!("{prefix}_shr_u"), [self.expr(ty, depth), Node::constant(ty, bits / 2)]);
                let number = Node::op(&format!("{float}_convert_{prefix}_u"), [small]);
                Node::op(&format!("{prefix}_trunc_{float}_{sign}"), [number])
            }
            _ => self.leaf(ty),
        }
    }

    /// A number that the host or the environment knows.
    fn asked(&mut self, ty: ValType, depth: u32) -> Node {
        self.room -= 2;
        let host = |host, args: Vec<Node>| Node::new(Code::CallHost(host), args);
        match ty {
            ValType::I64 if self.random.one_in(2) => host(Host::Ask, vec![self.expr(ValType::I32, depth)]),
            ValType::I64 => host(Host::Peek, vec![self.place(8, false).0]),
            ValType::I32 => {
                let table = self.random.below(2) as u32;
                let instruction = if self.random.one_in(2) { Instruction::MemorySize(0) } else { Instruction::TableSize(table) };
                Node::new(Code::Other(instruction, vec![ValType::I32]), [])
            }
            ValType::V128 => {
                // Two results; the upper is dropped.
                let mut args = Vec::new();
                self.exprs(Host::Blend.signature().0, depth.min(1), &mut args);
                let results = Signature { params: vec![], results: vec![ValType::V128] };
                self.block(Kind::Block, results, vec![], vec![host(Host::Blend, args), Node::new(Code::Drop, [])], vec![])
            }
            _ => self.leaf(ty),
        }
    }

    /// An i32 that is not 0 about so often; always another in another iteration or after other inputs.
    pub(super) fn chance(&mut self, percent: u32) -> Node {
        if percent == 50 && self.random.one_in(2) {
            return self.expr(ValType::I32, 1);
        }
        self.room -= 5;
        let value = match self.counters.last() {
            Some(counter) if self.random.one_in(2) => Node::local(*counter),
            Some(counter) => Node::op("i32_xor", [Node::local(*counter), Node::local(self.var(ValType::I32))]),
            None if self.random.one_in(2) => Node::op("i32_wrap_i64", [Node::local(self.var(ValType::I64))]),
            None => Node::local(self.var(ValType::I32)),
        };
        let seed = self.random.word() as i32;
        let hash = Node::op("i32_mul", [Node::op("i32_xor", [value, Node::i32(seed)]), Node::i32(0x9e37_79b1_u32 as i32)]);
        Node::op("i32_lt_u", [Node::op("i32_shr_u", [hash, Node::i32(22)]), Node::i32((percent * 1024 / 100) as i32)])
    }

    /// What an accumulator becomes with one more value; both of this type. Its last value may be on the stack already.
    pub(super) fn mixed(&mut self, ty: ValType, last: Option<Node>, value: Node) -> Node {
        self.room -= 3;
        let choice = self.random.below(2) as usize;
        let (spread, by, join) = match ty {
            ValType::I32 => ("i32_rotl", Node::i32(5), ["i32_add", "i32_xor"][choice]),
            ValType::I64 => ("i64_mul", Node::constant(ty, 0x9e37_79b9_7f4a_7c15), ["i64_add", "i64_xor"][choice]),
            ValType::F32 => ("f32_mul", Node::constant(ty, 0x3f40_0000), ["f32_add", "f32_sub"][choice]),
            ValType::F64 => ("f64_mul", Node::constant(ty, 0x3fe8_0000_0000_0000), ["f64_add", "f64_sub"][choice]),
            _ => ("i16x8_mul", Node::constant(ty, 0x6487_1351_9e37_79b9_7f4a_7c15_f39c_c061), ["v128_xor", "i64x2_add"][choice]),
        };
        let mut args: Vec<Node> = last.into_iter().collect();
        args.push(by);
        let spread = Node::op(spread, args);
        Node::op(join, [spread, value])
    }

    /// A value as one of another type, by its bits.
    pub(super) fn cast(&mut self, value: Node, from: ValType, to: ValType) -> Node {
        if from == to {
            return value;
        }
        let lane = |name: &str, args: Vec<Node>| Node::new(Code::Operator(operators::named(name), Immediate::default()), args);
        let wide = match from {
            ValType::I32 => Node::op("i64_extend_i32_s", [value]),
            ValType::F32 => Node::op("i64_extend_i32_u", [Node::op("i32_reinterpret_f32", [value])]),
            ValType::F64 => Node::op("i64_reinterpret_f64", [value]),
            ValType::V128 => lane("i64x2_extract_lane", vec![value]),
            _ => value,
        };
        match to {
            ValType::I32 => Node::op("i32_wrap_i64", [wide]),
            ValType::F32 => Node::op("f32_reinterpret_i32", [Node::op("i32_wrap_i64", [wide])]),
            ValType::F64 => Node::op("f64_convert_i64_s", [wide]),
            ValType::V128 => Node::op("i64x2_splat", [wide]),
            _ => wide,
        }
    }
}
