//! The kernel: a loop over slots of memory. Each iteration writes its own slot and reads one, its own or, when it is to conflict, the one
//! that an iteration at a known distance before it wrote. Slots are narrow or wide, at the iteration's number, in a hashed order or in
//! one that is read from memory; accesses of one slot have different sizes and overlap in parts.

use wasm_encoder::ValType;

use super::access::{at, size};
use super::expression::Pools;
use super::{Build, Conflict, Scope};
use crate::operators::{OperatorId, TYPES, index, named};
use crate::program::{Block, Code, Host, Kind, Node, Signature};

/// Where the order of slots is that is read from memory.
const ORDER_AT: u32 = 0x2000;

/// Where an iteration's slot is.
#[derive(Clone, Copy)]
enum Order {
    Affine,
    Hashed,
    Loaded,
}

impl Build<'_> {
    pub(super) fn kernel(&mut self, conflict: Conflict, out: &mut Vec<Node>) {
        self.pure = self.plan.clean;
        let order = *self.random.pick(&[Order::Affine, Order::Hashed, Order::Loaded]);
        let (odd, shift) = (self.random.below(32) as i32 * 2 + 1, self.random.below(64) as i32);
        let trips = 32 + self.random.below(33) as u32;
        let stride = *self.random.pick(&[4, 8, 8, 12, 16, 20, 24, 32]);
        let base = 0x1000 + self.random.below(16) as u32;
        let (counter, other) = (self.local(ValType::I32), self.local(ValType::I32));
        let permuted = |i: Node| {
            let scaled = Node::op("i32_mul", [i, Node::i32(odd)]);
            Node::op("i32_and", [Node::op("i32_add", [scaled, Node::i32(shift)]), Node::i32(63)])
        };
        if let Order::Loaded = order {
            let place = Node::op("i32_shl", [Node::local(counter), Node::i32(2)]);
            let store = at(named("i32_store"), ORDER_AT, 0, vec![place, permuted(Node::local(counter))]);
            self.counted(counter, 64, vec![store], out);
            self.kernel += 1;
        }
        let slot = |i: Node| {
            let number = match order {
                Order::Affine => i,
                Order::Hashed => permuted(i),
                // Something else may have written there.
                Order::Loaded => {
                    let place = Node::op("i32_shl", [i, Node::i32(2)]);
                    Node::op("i32_and", [at(named("i32_load"), ORDER_AT, 0, vec![place]), Node::i32(63)])
                }
            };
            Node::op("i32_mul", [number, Node::i32(stride as i32)])
        };
        // What is read of a slot overlaps with what was written there.
        let (store, load) = (self.fitting(true, stride), self.fitting(false, stride));
        let (store_size, load_size) = (size(store), size(load));
        let store_at = self.random.below(u64::from(stride - store_size) + 1) as u32;
        let (low, high) = (store_at.saturating_sub(load_size - 1), (stride - load_size).min(store_at + store_size - 1));
        let load_at = low + self.random.below(u64::from(high.saturating_sub(low)) + 1) as u32;
        let (from, to) = (load.get().results[0], store.get().params[1]);
        let mut body = vec![self.whose(conflict, counter, other)];
        self.counters.push(counter);
        let repeats = std::mem::replace(&mut self.repeats, trips);
        let exit = self.label();
        self.scopes.push(Scope { label: exit, types: vec![] });
        // Read, fold, write.
        let mut args = vec![slot(Node::local(other))];
        self.exprs(&load.get().params[1..], 0, &mut args);
        let lanes = self.random.wide();
        let value = at(load, base + load_at, lanes, args);
        let acc = self.vars[index(from)][0];
        body.push(Node::new(Code::LocalSet(acc), [self.mixed(from, Some(Node::local(acc)), value)]));
        self.aside(exit, &mut body);
        let kept = self.cast(Node::local(acc), from, to);
        let more = self.expr(to, 1);
        let written = if self.random.one_in(3) { kept } else { self.mixed(to, Some(kept), more) };
        body.push(at(store, base + store_at, lanes, vec![slot(Node::local(counter)), written]));
        if self.random.one_in(2) {
            // Part of the slot once more.
            let narrow = self.fitting(true, stride.min(4));
            let value = self.expr(narrow.get().params[1], 1);
            let at_most = u64::from(stride - size(narrow)) + 1;
            body.push(at(narrow, base + self.random.below(at_most) as u32, lanes, vec![slot(Node::local(counter)), value]));
        }
        self.aside(exit, &mut body);
        self.scopes.pop();
        self.repeats = repeats;
        self.counters.pop();
        self.pure = false;
        let mut looped = Vec::new();
        self.counted(counter, trips, body, &mut looped);
        let block = Block { kind: Kind::Block, label: exit, ty: Signature::default(), body: looped, otherwise: vec![] };
        out.push(Node::new(Code::Block(Box::new(block)), []));
    }

    /// Decides whose slot an iteration reads.
    fn whose(&mut self, Conflict { rate_percent, distance }: Conflict, counter: u32, other: u32) -> Node {
        let seed = self.random.word() as i32;
        let hash = Node::op("i32_mul", [Node::op("i32_add", [Node::local(counter), Node::i32(seed)]), Node::i32(0x9e37_79b1_u32 as i32)]);
        let chosen = Node::op("i32_lt_u", [Node::op("i32_shr_u", [hash, Node::i32(16)]), Node::i32((rate_percent * 65_536 / 100) as i32)]);
        let condition = Node::op("i32_and", [chosen, Node::op("i32_ge_u", [Node::local(counter), Node::i32(distance as i32)])]);
        let before = Node::op("i32_sub", [Node::local(counter), Node::i32(distance as i32)]);
        let value = if self.random.one_in(2) {
            Node::new(Code::Select(None), [before, Node::local(counter), condition])
        } else {
            let ty = Signature { params: vec![], results: vec![ValType::I32] };
            self.block(Kind::If, ty, vec![condition], vec![before], vec![Node::local(counter)])
        };
        Node::new(Code::LocalSet(other), [value])
    }

    /// Statements on the side; they leave memory alone if they are to.
    fn aside(&mut self, exit: crate::program::Label, out: &mut Vec<Node>) {
        for _ in 0..self.random.below(3) {
            match self.random.below(6) {
                _ if !self.plan.clean && self.random.one_in(2) => self.statement(2, out),
                _ if self.plan.traps > 0 && self.random.one_in(4) => self.trap(out),
                0 | 1 => self.assign(out),
                2 | 3 => self.accumulate(out),
                4 => {
                    let value = self.expr(ValType::I64, 1);
                    out.push(Node::new(Code::CallHost(Host::Note), [value]));
                }
                _ => {
                    let condition = self.chance(1);
                    out.push(Node::new(Code::BrIf(exit), [condition]));
                }
            }
        }
    }

    /// A load or a store of at most so many bytes.
    fn fitting(&mut self, stores: bool, bytes: u32) -> OperatorId {
        loop {
            let place = self.random.below(TYPES.len() as u64) as usize;
            let pools = Pools::get(false);
            let id = *self.random.pick(if stores { &pools.stores } else { &pools.loads[place] });
            if size(id) <= bytes {
                return id;
            }
        }
    }

    /// A loop that does this so many times.
    fn counted(&mut self, counter: u32, trips: u32, mut body: Vec<Node>, out: &mut Vec<Node>) {
        let label = self.label();
        let next = Node::new(Code::LocalTee(counter), [Node::op("i32_add", [Node::local(counter), Node::i32(1)])]);
        body.push(Node::new(Code::BrIf(label), [Node::op("i32_lt_u", [next, Node::i32(trips as i32)])]));
        self.trips.push((label, trips));
        out.push(Node::new(Code::LocalSet(counter), [Node::i32(0)]));
        out.push(Node::new(Code::Block(Box::new(Block { kind: Kind::Loop, label, ty: Signature::default(), body, otherwise: vec![] })), []));
    }
}
