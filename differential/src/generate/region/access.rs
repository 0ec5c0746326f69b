//! Addresses: affine, hashed, loaded; accesses to memory there.

use wasm_encoder::{Instruction, ValType};

use super::Build;
use super::expression::Pools;
use crate::operators::{Immediates, OperatorId};
use crate::program::{Code, DATA_AT, Host, Immediate, Node};

/// Bytes that an operator reads or writes.
pub(super) fn size(id: OperatorId) -> u32 {
    match id.get().immediates {
        Immediates::Access(align) | Immediates::AccessLane(align, _) => 1 << align.max,
        _ => 0,
    }
}

/// An operator of memory with immediates of its own.
pub(super) fn at(id: OperatorId, offset: u32, lanes: u128, args: Vec<Node>) -> Node {
    let align = match id.get().immediates {
        Immediates::Access(align) | Immediates::AccessLane(align, _) => align.min,
        _ => 0,
    };
    Node::new(Code::Operator(id, Immediate { lanes, offset, align, memory: 0 }), args)
}

impl Build<'_> {
    /// An access in bounds; its other operands are as deep as this.
    pub(super) fn access(&mut self, id: OperatorId, depth: u32) -> Node {
        self.room -= 1;
        let atomic = id.get().name.contains("atomic");
        let (address, offset) = self.place(size(id), atomic);
        let mut args = vec![address];
        self.exprs(&id.get().params[1..], depth, &mut args);
        let lanes = self.random.wide();
        let mut node = at(id, offset, lanes, args);
        if let (Code::Operator(id, immediate), Immediates::Access(align) | Immediates::AccessLane(align, _)) = (&mut node.code, id.get().immediates) {
            immediate.align = align.min + self.random.below(u64::from(align.max - align.min) + 1) as u8;
            immediate.memory = u8::from(self.plan.second_memory && !id.get().name.starts_with("memory") && self.random.one_in(3));
        }
        node
    }

    /// An address and an offset for so many bytes.
    pub(super) fn place(&mut self, size: u32, aligned: bool) -> (Node, u32) {
        self.room -= 2;
        let near = self.random.below(40) as u32;
        let offset = if aligned { size * self.random.below(3) as u32 } else { *self.random.pick(&[0, 0, 0, 1, 4, 8, near]) };
        let counter = self.counters.last().copied();
        let address = match (self.random.below(12), counter) {
            (0..4, Some(counter)) => {
                let stride = *self.random.pick(&[1, 2, 3, 4, 8, 8, 12, 16, 17, 40]);
                let base = self.plan.hot & 0xfff | [0, 0, 1, 5][self.random.below(4) as usize];
                let (scale, by) = if stride == 8 { ("i32_shl", 3) } else { ("i32_mul", stride) };
                let step = Node::op(scale, [Node::local(counter), Node::i32(by)]);
                Node::op("i32_add", [step, Node::i32(base as i32)])
            }
            (4, Some(counter)) => {
                let hash = Node::op("i32_mul", [Node::local(counter), Node::i32(self.random.word() as i32 | 1)]);
                self.below_mask(Node::op("i32_shr_u", [hash, Node::i32(13)]))
            }
            (5, Some(counter)) => {
                let index = Node::op("i32_and", [Node::op("i32_shl", [Node::local(counter), Node::i32(2)]), Node::i32(0x1fc)]);
                let load = crate::operators::named("i32_load");
                self.below_mask(at(load, DATA_AT, 0, vec![index]))
            }
            (6 | 7, _) => Node::i32(self.plan.hot as i32 + self.random.below(12) as i32),
            (8, _) => {
                // At the end of the first page, and across it where there surely is a second.
                let across = self.plan.grows && !self.plan.second_memory;
                let value = self.leaf(ValType::I32);
                let end = Node::op("i32_and", [value, Node::i32(if aligned { 31 & !(size as i32 - 1) } else { 31 })]);
                return (end, if aligned { 0xffc0 } else if across { 0xffe8 } else { 0xffe0 - size + 1 });
            }
            _ => {
                let value = self.leaf(ValType::I32);
                self.below_mask(value)
            }
        };
        if aligned { (Node::op("i32_and", [address, Node::i32(!(size as i32 - 1))]), offset) } else { (address, offset) }
    }

    fn below_mask(&mut self, value: Node) -> Node {
        Node::op("i32_and", [value, Node::i32(self.plan.mask as i32)])
    }

    /// A store of any kind.
    pub(super) fn store(&mut self, out: &mut Vec<Node>) {
        let id = *self.random.pick(&Pools::get(self.plan.rich).stores);
        let node = self.access(id, 2);
        out.push(node);
    }

    /// A cell becomes another value that depends on what it had.
    pub(super) fn update(&mut self, out: &mut Vec<Node>) {
        let (load, store, ty) = *self.random.pick(&[
            ("i32_load", "i32_store", ValType::I32),
            ("i32_load8_u", "i32_store8", ValType::I32),
            ("i64_load", "i64_store", ValType::I64),
            ("i64_load32_s", "i64_store16", ValType::I64),
            ("f64_load", "f64_store", ValType::F64),
            ("v128_load", "v128_store", ValType::V128),
        ]);
        let (address, offset) = self.place(16, false);
        let old = at(crate::operators::named(load), offset, 0, vec![address.clone()]);
        let with = self.expr(ty, 1);
        let value = self.mixed(ty, Some(old), with);
        out.push(at(crate::operators::named(store), offset, 0, vec![address, value]));
    }

    /// `memory.copy`, `memory.fill`, `memory.init`; also what the host writes.
    pub(super) fn bulk(&mut self, out: &mut Vec<Node>) {
        let to = self.place(64, false).0;
        let to = match to.code {
            // The end of the page is too near for so many bytes.
            Code::Operator(..) => self.below_mask(to),
            _ => Node::op("i32_and", [to, Node::i32(0xfff)]),
        };
        let length = Node::op("i32_and", [self.leaf(ValType::I32), Node::i32(*self.random.pick(&[7, 15, 31, 63]))]);
        let second = self.plan.second_memory;
        let memory = |build: &mut Self| u32::from(second && build.random.one_in(2));
        let mem = memory(self);
        out.push(match self.random.below(8) {
            0..2 => {
                let value = self.expr(ValType::I32, 1);
                Node::new(Code::Other(Instruction::MemoryFill(mem), vec![]), [to, value, length])
            }
            2..5 => {
                // Near by, before or after; the address is computed once for each of them, which may give two.
                let near = Node::op("i32_add", [to.clone(), Node::i32(self.random.below(24) as i32)]);
                let (from, to) = if self.random.one_in(2) { (near, to) } else { (to, near) };
                Node::new(Code::Other(Instruction::MemoryCopy { src_mem: memory(self), dst_mem: mem }, vec![]), [to, from, length])
            }
            5 | 6 => {
                let from = Node::op("i32_and", [self.leaf(ValType::I32), Node::i32(255)]);
                let data_index = if self.plan.grows && self.plan.traps == 0 { 0 } else { self.random.below(2) as u32 };
                Node::new(Code::Other(Instruction::MemoryInit { mem, data_index }, vec![]), [to, from, length])
            }
            _ => {
                let value = self.expr(ValType::I64, 1);
                Node::new(Code::Drop, [Node::new(Code::CallHost(Host::Poke), [to, value])])
            }
        });
    }
}
