//! Statements: they leave the stack as they find it.

use wasm_encoder::{HeapType, Instruction, ValType};

use super::Build;
use super::access::{at, size};
use super::expression::Pools;
use crate::operators::{TYPES, named};
use crate::program::{Code, Host, Node, Signature, TAGS, Tail};

impl Build<'_> {
    /// Any statement, within so many blocks.
    pub(super) fn statement(&mut self, nest: u32, out: &mut Vec<Node>) {
        self.room -= 1;
        if self.room < 0 || nest > 4 {
            return self.assign(out);
        }
        if self.random.one_in(7) && self.special(nest, out) {
            return;
        }
        match self.random.below(100) {
            0..14 => self.assign(out),
            14..20 => {
                let ty = *self.random.pick(&TYPES);
                let (global, value) = (self.global(ty), self.expr(ty, 2));
                out.push(Node::new(Code::GlobalSet(global), [value]));
            }
            20..32 => self.store(out),
            32..41 => self.update(out),
            41..49 => self.accumulate(out),
            49..56 => self.choice(nest, out),
            56..61 => self.plain_block(nest, out),
            61..71 => self.repeat(nest, out),
            71..75 => self.carried(nest, out),
            75..80 => self.branch(out),
            80..87 => self.call_any(out),
            87..91 => self.host(out),
            91..96 => self.bulk(out),
            96 | 97 => self.leave(out),
            _ => self.wide(out),
        }
    }

    /// One of the statements that only some programs have; false when this one has none.
    fn special(&mut self, nest: u32, out: &mut Vec<Node>) -> bool {
        let plan = self.plan;
        let throws = plan.exceptions && self.tries > 0;
        let all = [plan.tables, plan.grows, plan.traps > 0, plan.traps > 1, plan.exceptions, throws, plan.tails, plan.rich];
        let chosen = self.random.below(all.len() as u64) as usize;
        let some = (0..all.len()).map(|place| (chosen + place) % all.len()).find(|place| all[*place]);
        match some {
            None => return false,
            Some(0) => self.tables(out),
            Some(1) => self.grow(out),
            Some(2 | 3) => self.trap(out),
            Some(4) => self.caught(nest, out),
            Some(5) => {
                let tag = self.random.below(TAGS.len() as u64) as u32;
                self.throw(tag, out);
            }
            Some(6) => self.leave(out),
            Some(_) => out.push(Node::new(Code::Other(Instruction::AtomicFence, vec![]), [])),
        }
        true
    }

    /// A local gets a value.
    pub(super) fn assign(&mut self, out: &mut Vec<Node>) {
        let ty = *self.random.pick(&TYPES);
        let (var, value) = (self.var(ty), self.expr(ty, 3));
        out.push(Node::new(Code::LocalSet(var), [value]));
    }

    /// A local or a global becomes another value that depends on what it had.
    pub(super) fn accumulate(&mut self, out: &mut Vec<Node>) {
        let ty = *self.random.pick(&TYPES);
        let value = self.expr(ty, 2);
        let (set, last) = if self.random.one_in(2) {
            let var = self.var(ty);
            (Code::LocalSet(var), Node::local(var))
        } else {
            let global = self.global(ty);
            (Code::GlobalSet(global), Node::new(Code::GlobalGet(global), []))
        };
        out.push(Node::new(set, [self.mixed(ty, Some(last), value)]));
    }

    /// A call of the host that it takes note of.
    pub(super) fn host(&mut self, out: &mut Vec<Node>) {
        let host = *self.random.pick(&[Host::Note, Host::Note, Host::Ask, Host::Blend, Host::Peek, Host::Check]);
        let mut args = Vec::new();
        self.exprs(host.signature().0, 1, &mut args);
        if host == Host::Check {
            // It lets even numbers pass.
            args = vec![Node::op("i32_and", [args.remove(0), Node::i32(-2)])];
        }
        out.push(Node::new(Code::CallHost(host), args));
        self.consume(host.signature().1, out);
    }

    /// An operator with two results.
    fn wide(&mut self, out: &mut Vec<Node>) {
        let name = *self.random.pick(&["i64_add128", "i64_sub128", "i64_mul_wide_s", "i64_mul_wide_u"]);
        let node = self.operator(named(name), 1);
        out.push(node);
        self.consume(&[ValType::I64; 2], out);
    }

    /// A function of the program or none.
    fn reference(&mut self) -> Node {
        let func = self.random.below(self.signatures.len() as u64 + 1) as u32;
        let null = func as usize == self.signatures.len();
        let instruction = if null { Instruction::RefNull(HeapType::FUNC) } else { Instruction::RefFunc(func) };
        Node::new(Code::Other(instruction, vec![ValType::FUNCREF]), [])
    }

    /// Table operators, on elements that only programs that trap use otherwise.
    fn tables(&mut self, out: &mut Vec<Node>) {
        let table = self.random.below(2) as u32;
        let low = if self.plan.traps > 0 && self.random.one_in(3) { 0 } else { 8 };
        let element = |build: &mut Self| Node::op("i32_add", [Node::op("i32_and", [build.leaf(ValType::I32), Node::i32(3)]), Node::i32(low)]);
        let few = |build: &mut Self| Node::op("i32_and", [build.leaf(ValType::I32), Node::i32(3)]);
        let other = |instruction, args: Vec<Node>| Node::new(Code::Other(instruction, vec![]), args);
        let (to, count) = (element(self), few(self));
        let node = match self.random.below(if self.plan.rich { 13 } else { 7 }) {
            0 => other(Instruction::TableSet(table), vec![to, self.reference()]),
            1 => other(Instruction::TableFill(table), vec![to, self.reference(), count]),
            // Winch 48 loses count of its stack in `table.copy` when an operand of something later is in a register: batches that it
            // compiles have none.
            2 | 7..10 if self.plan.rich => {
                let from = few(self);
                other(Instruction::TableCopy { src_table: self.random.below(2) as u32, dst_table: table }, vec![to, from, count])
            }
            3 | 10.. if self.plan.rich => {
                // Overlapping.
                let from = element(self);
                other(Instruction::TableCopy { src_table: table, dst_table: table }, vec![to, from, count])
            }
            4 if !self.plan.grows || self.plan.traps > 0 => {
                let funcs = self.signatures.len() as i32;
                let from = Node::i32(self.random.below(2) as i32);
                let count = Node::op("i32_and", [count, Node::i32(if funcs > 3 { 1 } else { 0 })]);
                other(Instruction::TableInit { table, elem_index: 0 }, vec![to, from, count])
            }
            5 => {
                // An element is set, and then called.
                let Some(func) = self.callee(|_| true) else { return };
                let place = Node::i32(12 + self.random.below(4) as i32);
                let reference = Node::new(Code::Other(Instruction::RefFunc(func as u32), vec![ValType::FUNCREF]), []);
                let mut call = self.call(func, Tail::No);
                if let Code::Call(..) = call.code {
                    call.args.push(place.clone());
                } else {
                    *call.args.last_mut().expect("an index") = place.clone();
                }
                call.code = Code::CallIndirect(self.signatures[func].clone(), table, Tail::No);
                // Its operands may call what sets the same element to another function.
                call.args[1..].iter_mut().zip(&self.signatures[func].params[1..]).for_each(|(arg, ty)| {
                    let mut calls = false;
                    arg.walk(&mut |node| calls |= matches!(node.code, Code::Call(..) | Code::CallIndirect(..) | Code::Block(_)));
                    if calls {
                        *arg = Node::constant(*ty, 1);
                    }
                });
                out.extend([other(Instruction::TableSet(table), vec![place, reference]), call]);
                return self.consume(&self.signatures[func].results.clone(), out);
            }
            _ => {
                let get = Node::new(Code::Other(Instruction::TableGet(table), vec![ValType::FUNCREF]), [to]);
                let var = self.var(ValType::I32);
                Node::new(Code::LocalSet(var), [Node::new(Code::Other(Instruction::RefIsNull, vec![ValType::I32]), [get])])
            }
        };
        out.push(node);
    }

    /// Memory or a table grows, or a segment is dropped.
    fn grow(&mut self, out: &mut Vec<Node>) {
        let other = |instruction, results: &[ValType], args: Vec<Node>| Node::new(Code::Other(instruction, results.to_vec()), args);
        let few = Node::op("i32_and", [self.leaf(ValType::I32), Node::i32(1)]);
        let grown = match self.random.below(5) {
            0 => return out.push(other(Instruction::DataDrop(1), &[], vec![])),
            1 => return out.push(other(Instruction::ElemDrop(0), &[], vec![])),
            2 => other(Instruction::TableGrow(self.random.below(2) as u32), &[ValType::I32], vec![self.reference(), few]),
            _ => other(Instruction::MemoryGrow(u32::from(self.plan.second_memory && self.random.one_in(2))), &[ValType::I32], vec![few]),
        };
        let var = self.var(ValType::I32);
        out.push(Node::new(Code::LocalSet(var), [grown]));
    }

    /// Something that traps, now and then.
    pub(super) fn trap(&mut self, out: &mut Vec<Node>) {
        let (mut nodes, percent) = (Vec::new(), if self.plan.traps > 1 { 30 } else { *self.random.pick(&[2, 5, 20]) });
        let table = self.random.below(2) as u32;
        let zero = |build: &mut Self, ty| match ty {
            ValType::I32 => Node::op("i32_and", [build.leaf(ty), Node::i32(0)]),
            _ => Node::op("i64_and", [build.leaf(ty), Node::constant(ty, 0)]),
        };
        let drop = |node| vec![Node::new(Code::Drop, [node])];
        nodes.extend(match self.random.below(15) {
            0 => {
                let divisor = zero(self, ValType::I32);
                let name = *self.random.pick(&["i32_div_s", "i32_div_u", "i32_rem_s", "i32_rem_u"]);
                drop(Node::op(name, [self.leaf(ValType::I32), divisor]))
            }
            1 => {
                let divisor = zero(self, ValType::I64);
                let name = *self.random.pick(&["i64_div_s", "i64_div_u", "i64_rem_s", "i64_rem_u"]);
                drop(Node::op(name, [self.leaf(ValType::I64), divisor]))
            }
            2 => {
                let ones = Node::op("i32_or", [self.leaf(ValType::I32), Node::i32(-1)]);
                drop(Node::op("i32_div_s", [Node::i32(i32::MIN), ones]))
            }
            3 => {
                let name = *self.random.pick(&["i32_trunc_f32_s", "i32_trunc_f32_u", "i64_trunc_f32_s", "i64_trunc_f32_u"]);
                let (value, bits) = (self.leaf(ValType::F32), *self.random.pick(&[0x7fc0_0000, 0x7f80_0000, 0xff00_0000_u128]));
                drop(Node::op(name, [Node::op("f32_min", [value, Node::constant(ValType::F32, bits)])]))
            }
            4 => {
                let name = *self.random.pick(&["i32_trunc_f64_s", "i32_trunc_f64_u", "i64_trunc_f64_s", "i64_trunc_f64_u"]);
                let bits = self.random.pick(&[0x7ff8_0000_0000_0000_u128, 0x7ff0_0000_0000_0000, 0xffe0_0000_0000_0000, 0x43f0_0000_0000_0000]);
                drop(Node::op(name, [Node::op("f64_max", [self.leaf(ValType::F64), Node::constant(ValType::F64, *bits)])]))
            }
            5 | 6 => {
                let id = if self.random.one_in(2) {
                    *self.random.pick(&Pools::get(false).stores)
                } else {
                    let place = self.random.below(5) as usize;
                    *self.random.pick(&Pools::get(false).loads[place])
                };
                let mut args = vec![Node::op("i32_or", [self.leaf(ValType::I32), Node::i32(0xffff_0000_u32 as i32)])];
                self.exprs(&id.get().params[1..], 1, &mut args);
                // Just beyond the end: some of its bytes would be in bounds.
                if self.random.one_in(2) && !self.plan.grows {
                    args[0] = Node::i32(0x1_0001 - size(id) as i32);
                }
                let node = at(id, self.random.below(4) as u32, 0, args);
                if id.get().results.is_empty() { vec![node] } else { drop(node) }
            }
            7 => vec![Node::new(
                Code::Other(
                    match self.random.below(3) {
                        0 => Instruction::MemoryFill(0),
                        1 => Instruction::MemoryCopy { src_mem: 0, dst_mem: 0 },
                        _ => Instruction::MemoryInit { mem: 0, data_index: 0 },
                    },
                    vec![],
                ),
                [Node::i32(300), self.leaf(ValType::I32), Node::op("i32_or", [self.leaf(ValType::I32), Node::i32(0x4_0000)])],
            )],
            8 => vec![Node::new(Code::Unreachable, [])],
            9 | 10 => {
                let odd = Node::op("i32_or", [self.leaf(ValType::I32), Node::i32(1)]);
                vec![Node::new(Code::CallHost(Host::Check), [odd])]
            }
            11 if self.plan.rich => {
                let odd = Node::op("i32_or", [self.place(8, true).0, Node::i32(1)]);
                drop(at(named("i32_atomic_load16_u"), 0, 0, vec![odd]))
            }
            11 => {
                let index = Node::op("i32_or", [self.leaf(ValType::I32), Node::i32(32)]);
                drop(Node::new(Code::Other(Instruction::TableGet(table), vec![ValType::FUNCREF]), [index]))
            }
            12 if self.plan.exceptions => {
                let tag = self.random.below(TAGS.len() as u64) as u32;
                let mut args = Vec::new();
                self.exprs(TAGS[tag as usize], 1, &mut args);
                vec![Node::new(Code::Throw(tag), args)]
            }
            // A null element, no element, or another function.
            _ => {
                let func = 1 + self.random.below(self.signatures.len() as u64 - 1) as usize;
                let ty: Signature = self.signatures[func].clone();
                let mut args = vec![Node::i32(0)];
                self.exprs(&ty.params[1..], 0, &mut args);
                let index = *self.random.pick(&[15, 99, -1, table as i32]);
                args.push(Node::op("i32_or", [zero(self, ValType::I32), Node::i32(index)]));
                let mut nodes = vec![Node::new(Code::CallIndirect(ty.clone(), table, Tail::No), args)];
                self.consume(&ty.results, &mut nodes);
                nodes
            }
        });
        self.perhaps(percent, nodes, out);
    }
}
