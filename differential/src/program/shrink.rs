//! Smaller programs that still do what a larger one did, found on the tree itself: by leaving out calls, functions, statements and operators.
//!
//! After Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002), for lists, and greedily for trees.

use std::time::{Duration, Instant};

use super::{Block, Code, Func, Kind, Label, Node, Program, Tail, mask};
use rustc_hash::{FxHashMap, FxHashSet};
use wasm_encoder::{Instruction, ValType};

/// A smaller program of which `fails` still holds. It is asked of valid programs only, and of no more than there is time for.
pub fn shrink(program: &Program, time_max: Duration, fails: &mut dyn FnMut(&Program) -> bool) -> Program {
    let mut search = Search { best: program.clone(), fails, deadline: Instant::now() + time_max, tried: 0 };
    loop {
        let before = cost(&search.best);
        search.inputs();
        search.funcs();
        search.lists();
        search.nodes();
        search.constants();
        search.locals();
        if cost(&search.best) >= before || search.over() {
            return search.best;
        }
    }
}

/// What is to become less.
fn cost(program: &Program) -> u128 {
    let mut cost = 0;
    program.walk(|node| {
        cost += 1 << 40;
        match node.code {
            Code::Const(_, bits) => cost += u128::from(128 - bits.leading_zeros()),
            Code::Operator(_, immediate) => cost += u128::from(immediate.offset.min(1) + u32::from(immediate.memory)),
            _ => {}
        }
    });
    let locals: usize = program.funcs.iter().map(|func| func.locals.len()).sum();
    cost + (((program.inputs.len() + program.funcs.len() + locals) as u128) << 8)
}

struct Search<'a> {
    best: Program,
    fails: &'a mut dyn FnMut(&Program) -> bool,
    deadline: Instant,
    tried: u64,
}

impl Search<'_> {
    fn over(&self) -> bool {
        Instant::now() > self.deadline
    }

    /// Keeps a candidate that still fails.
    fn attempt(&mut self, candidate: Program) -> bool {
        if self.over() || !valid(&candidate) {
            return false;
        }
        self.tried += 1;
        let fails = (self.fails)(&candidate);
        if fails {
            self.best = candidate;
        }
        fails
    }

    /// One call if one is enough, otherwise as few as can be.
    fn inputs(&mut self) {
        for index in 0..self.best.inputs.len() {
            if self.best.inputs.len() > 1 && self.attempt(Program { inputs: vec![self.best.inputs[index]], ..self.best.clone() }) {
                break;
            }
        }
        let mut index = 0;
        while index < self.best.inputs.len() && self.best.inputs.len() > 1 {
            let mut candidate = self.best.clone();
            candidate.inputs.remove(index);
            index += usize::from(!self.attempt(candidate));
        }
    }

    /// Functions that nobody calls go; the others are tried without what they do.
    fn funcs(&mut self) {
        for index in (1..self.best.funcs.len()).rev() {
            let mut candidate = self.best.clone();
            remove_func(&mut candidate, index as u32);
            if self.attempt(candidate) {
                continue;
            }
            let mut candidate = self.best.clone();
            let func = &mut candidate.funcs[index];
            func.body = func.ty.results.iter().filter_map(|ty| zero(*ty)).collect();
            if func.body.len() < self.best.funcs[index].body.len() {
                self.attempt(candidate);
            }
        }
    }

    /// Leaves out stretches of statements, long ones first.
    fn lists(&mut self) {
        let mut list = 0;
        while let Some(length) = list_length(&self.best, list) {
            let mut size = length.div_ceil(2);
            while size > 0 {
                let mut start = 0;
                while let Some(length) = list_length(&self.best, list).filter(|length| start < *length) {
                    let mut candidate = self.best.clone();
                    with_list(&mut candidate, list, |nodes| _ = nodes.drain(start..(start + size).min(length)));
                    start += if self.attempt(candidate) { 0 } else { size };
                }
                size /= 2;
            }
            list += 1;
            if self.over() {
                return;
            }
        }
    }

    /// Puts less in the place of single operators.
    fn nodes(&mut self) {
        let mut index = 0;
        while index < self.best.size() && !self.over() {
            let mut offers = Vec::new();
            at(&self.best, index, |node, func| offers = replacements(node, &self.best, func));
            let mut took = false;
            for offer in offers {
                let mut candidate = self.best.clone();
                replace(&mut candidate, index, offer);
                if candidate.size() <= self.best.size() && self.attempt(candidate) {
                    took = true;
                    break;
                }
            }
            index += usize::from(!took);
        }
    }

    /// Makes constants, offsets and arguments small.
    fn constants(&mut self) {
        for index in 0..self.best.size() {
            let mut offers: Vec<Code> = Vec::new();
            at(&self.best, index, |node, _| match node.code {
                Code::Const(ty, bits) if bits > 1 => {
                    let signed = if ty == ValType::I32 { bits as i32 as i128 } else { bits as i64 as i128 };
                    offers.extend([0, 1, bits & 0xff, (signed / 2) as u128 & mask(ty), bits / 2].map(|bits| Code::Const(ty, bits)));
                }
                Code::Operator(id, immediate) if immediate.offset > 0 => {
                    offers.extend([0, immediate.offset / 2].map(|offset| Code::Operator(id, super::Immediate { offset, ..immediate })));
                }
                _ => {}
            });
            for code in offers {
                let mut candidate = self.best.clone();
                with_node(&mut candidate, index, |node| node.code = code);
                if self.attempt(candidate) {
                    break;
                }
            }
        }
        for call in 0..self.best.inputs.len() {
            for param in 0..self.best.inputs[call].len() {
                for bits in [0, 1] {
                    let mut candidate = self.best.clone();
                    if candidate.inputs[call][param] > bits {
                        candidate.inputs[call][param] = bits;
                        if self.attempt(candidate) {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Locals that nothing names go.
    fn locals(&mut self) {
        let mut candidate = self.best.clone();
        for func in &mut candidate.funcs {
            let mut used = FxHashSet::default();
            let mut note = |node: &Node| {
                if let Code::LocalGet(index) | Code::LocalSet(index) | Code::LocalTee(index) = node.code {
                    used.insert(index);
                }
            };
            func.body.iter().for_each(|node| node.walk(&mut note));
            let params = func.ty.params.len() as u32;
            let mut places = FxHashMap::default();
            let mut locals = Vec::new();
            for (index, ty) in (params..).zip(&func.locals) {
                if used.contains(&index) {
                    places.insert(index, params + locals.len() as u32);
                    locals.push(*ty);
                }
            }
            func.locals = locals;
            func.body.iter_mut().for_each(|node| {
                walk_mut(node, &mut |node| {
                    if let Code::LocalGet(index) | Code::LocalSet(index) | Code::LocalTee(index) = &mut node.code {
                        *index = places.get(index).copied().unwrap_or(*index);
                    }
                });
            });
        }
        self.attempt(candidate);
    }
}

/// Whether it makes a module that any engine should take.
fn valid(program: &Program) -> bool {
    let features = wasmparser::WasmFeatures::default() | wasmparser::WasmFeatures::WIDE_ARITHMETIC;
    let bound = labels_bound(program) && program.funcs.first().is_some_and(|func| func.ty.params.len() <= 4 && func.ty.results.len() <= 3);
    bound && wasmparser::Validator::new_with_features(features).validate_all(&super::encode(&[program])).is_ok()
}

/// Whether all branches name blocks around them, all calls functions that exist.
fn labels_bound(program: &Program) -> bool {
    fn bound(node: &Node, around: &mut Vec<Label>, funcs: u32) -> bool {
        let known = |label: &Label, around: &[Label]| around.contains(label);
        let own = match &node.code {
            Code::Br(label) | Code::BrIf(label) => known(label, around),
            Code::BrTable(labels) => labels.iter().all(|label| known(label, around)),
            Code::Call(func, _) => *func < funcs,
            Code::Other(Instruction::RefFunc(func), _) => *func < funcs,
            Code::Block(block) => {
                let clauses = match &block.kind {
                    Kind::Try(clauses) => clauses.iter().all(|clause| known(&clause.label, around)),
                    _ => true,
                };
                around.push(block.label);
                let inner = block.body.iter().chain(&block.otherwise).all(|node| bound(node, around, funcs));
                around.pop();
                clauses && inner
            }
            _ => true,
        };
        own && node.args.iter().all(|arg| bound(arg, around, funcs))
    }
    let funcs = program.funcs.len() as u32;
    program.funcs.iter().flat_map(|func| &func.body).all(|node| bound(node, &mut Vec::new(), funcs))
}

fn zero(ty: ValType) -> Option<Node> {
    match ty {
        ValType::Ref(ty) => Some(Node::new(Code::Other(Instruction::RefNull(ty.heap_type), vec![ValType::Ref(ty)]), [])),
        ty => Some(Node::constant(ty, 0)),
    }
}

/// What could stand in the place of a node: less of it, that gives the same types.
fn replacements(node: &Node, program: &Program, func: &Func) -> Vec<Vec<Node>> {
    let mut offers = Vec::new();
    let Some(results) = node.results(program, func) else {
        // What never goes on: nothing in its place, or the plainest of its kind.
        offers.push(vec![]);
        offers.push(vec![Node::new(Code::Unreachable, [])]);
        return offers;
    };
    let zeros: Vec<Node> = results.iter().filter_map(|ty| zero(*ty)).collect();
    let plain = matches!(node.code, Code::Const(..)) || (node.args.is_empty() && matches!(node.code, Code::Other(Instruction::RefNull(_), _)));
    if !plain {
        offers.push(zeros);
    }
    if matches!(node.code, Code::LocalGet(_) | Code::GlobalGet(_) | Code::Const(..)) {
        return offers;
    }
    // One of what it is made of.
    for arg in &node.args {
        if arg.results(program, func).as_ref() == Some(&results) {
            offers.push(vec![arg.clone()]);
        }
    }
    match &node.code {
        Code::Block(block) => {
            let Block { kind, label, body, otherwise, .. } = &**block;
            let aims = |nodes: &[Node]| {
                let mut aims = false;
                let mut note = |node: &Node| match &node.code {
                    Code::Br(other) | Code::BrIf(other) => aims |= other == label,
                    Code::BrTable(labels) => aims |= labels.contains(label),
                    Code::Block(inner) => {
                        if let Kind::Try(clauses) = &inner.kind {
                            aims |= clauses.iter().any(|clause| clause.label == *label);
                        }
                    }
                    _ => {}
                };
                nodes.iter().for_each(|node| node.walk(&mut note));
                aims
            };
            let inside = |nodes: &[Node], args: &[Node]| args.iter().chain(nodes).cloned().collect::<Vec<Node>>();
            let condition = usize::from(*kind == Kind::If);
            let params = &node.args[..node.args.len().saturating_sub(condition)];
            for nodes in [body, otherwise] {
                if !nodes.is_empty() && !aims(nodes) {
                    offers.push(inside(nodes, params));
                }
            }
            if *kind == Kind::If && block.ty.params.is_empty() {
                for nodes in [body, otherwise] {
                    let block = Block { kind: Kind::Block, body: nodes.clone(), otherwise: vec![], ..(**block).clone() };
                    offers.push(vec![Node::new(Code::Block(Box::new(block)), [])]);
                }
            }
            if matches!(kind, Kind::Loop | Kind::Try(_)) {
                let block = Block { kind: Kind::Block, ..(**block).clone() };
                offers.push(vec![Node::new(Code::Block(Box::new(block)), node.args.clone())]);
            }
        }
        // A call in place: what the function does, if it needs nothing of its own.
        Code::Call(index, Tail::No) => {
            let callee = &program.funcs[*index as usize];
            let mut own = false;
            let mut note = |node: &Node| own |= matches!(node.code, Code::LocalGet(_) | Code::LocalSet(_) | Code::LocalTee(_) | Code::Return);
            callee.body.iter().for_each(|node| node.walk(&mut note));
            if !own && node.args.is_empty() {
                offers.push(callee.body.clone());
            }
        }
        Code::LocalTee(_) => offers.push(node.args.clone()),
        _ => {}
    }
    // What it is made of, without itself: its operands are dropped.
    let dropped = |arg: &Node| {
        let count = arg.results(program, func).map_or(0, |results| results.len());
        (0..count).fold(vec![arg.clone()], |nodes, _| vec![Node::new(Code::Drop, nodes)])
    };
    let worth = |arg: &&Node| !matches!(arg.code, Code::Const(..) | Code::LocalGet(_) | Code::GlobalGet(_));
    if results.is_empty() && !matches!(node.code, Code::Drop) {
        offers.push(node.args.iter().filter(worth).flat_map(dropped).collect());
    }
    offers
}

/// Number of nodes of a list of statements: of a body, or of what an `if` does otherwise.
fn list_length(program: &Program, index: usize) -> Option<usize> {
    let mut program = program.clone();
    let mut length = None;
    with_list(&mut program, index, |nodes| length = Some(nodes.len()));
    length
}

fn with_list(program: &mut Program, index: usize, change: impl FnOnce(&mut Vec<Node>)) {
    fn visit<F: FnOnce(&mut Vec<Node>)>(nodes: &mut Vec<Node>, left: &mut usize, change: &mut Option<F>) {
        if *left == 0 {
            if let Some(change) = change.take() {
                change(nodes);
            }
            return;
        }
        *left -= 1;
        nodes.iter_mut().for_each(|node| lists_of(node, left, change));
    }
    fn lists_of<F: FnOnce(&mut Vec<Node>)>(node: &mut Node, left: &mut usize, change: &mut Option<F>) {
        node.args.iter_mut().for_each(|arg| lists_of(arg, left, change));
        if let Code::Block(block) = &mut node.code {
            for nodes in [&mut block.body, &mut block.otherwise] {
                if change.is_some() {
                    visit(nodes, left, change);
                }
            }
        }
    }
    let (mut left, mut change) = (index, Some(change));
    for func in &mut program.funcs {
        if change.is_some() {
            visit(&mut func.body, &mut left, &mut change);
        }
    }
}

/// Shows the node of this number, in the order of [`Program::walk`], with its function.
fn at(program: &Program, index: usize, see: impl FnOnce(&Node, &Func)) {
    let mut see = Some(see);
    let mut count = 0;
    for func in &program.funcs {
        let mut found = None;
        let mut note = |node| {
            if count == index {
                found = Some(node);
            }
            count += 1;
        };
        func.body.iter().for_each(|node| node.walk(&mut note));
        if let (Some(node), Some(see)) = (found, see.take_if(|_| found.is_some())) {
            see(node, func);
        }
    }
}

fn walk_mut(node: &mut Node, change: &mut impl FnMut(&mut Node)) {
    change(node);
    node.args.iter_mut().for_each(|arg| walk_mut(arg, change));
    if let Code::Block(block) = &mut node.code {
        block.body.iter_mut().chain(&mut block.otherwise).for_each(|node| walk_mut(node, change));
    }
}

fn with_node(program: &mut Program, index: usize, change: impl FnOnce(&mut Node)) {
    let (mut count, mut change) = (0, Some(change));
    for node in program.funcs.iter_mut().flat_map(|func| &mut func.body) {
        walk_mut(node, &mut |node| {
            if count == index && let Some(change) = change.take() {
                change(node);
            }
            count += 1;
        });
    }
}

/// Puts these nodes in the place of the one of this number.
fn replace(program: &mut Program, index: usize, with: Vec<Node>) {
    fn visit(nodes: &mut Vec<Node>, left: &mut usize, with: &mut Option<Vec<Node>>) {
        let mut place = 0;
        while place < nodes.len() && with.is_some() {
            if *left == 0 {
                nodes.splice(place..=place, with.take().into_iter().flatten());
                return;
            }
            *left -= 1;
            let node = &mut nodes[place];
            visit(&mut node.args, left, with);
            if let Code::Block(block) = &mut node.code {
                visit(&mut block.body, left, with);
                visit(&mut block.otherwise, left, with);
            }
            place += 1;
        }
    }
    let (mut left, mut with) = (index, Some(with));
    program.funcs.iter_mut().for_each(|func| visit(&mut func.body, &mut left, &mut with));
}

/// Without a function; calls of it become its results. Others keep their order.
fn remove_func(program: &mut Program, index: u32) {
    let ty = program.funcs[index as usize].ty.clone();
    program.funcs.remove(index as usize);
    let change = &mut |node: &mut Node| match &mut node.code {
        Code::Call(func, tail) if *func == index => {
            let body = ty.results.iter().filter_map(|ty| zero(*ty)).chain((*tail == Tail::Yes).then(|| Node::new(Code::Return, []))).collect();
            // The operands are made and then left inside the block.
            let block = Block { kind: Kind::Block, label: Label(u32::MAX), ty: super::Signature { params: vec![], results: ty.results.clone() }, body, otherwise: vec![] };
            node.code = Code::Block(Box::new(block));
            node.args.clear();
        }
        Code::Call(func, _) | Code::Other(Instruction::RefFunc(func), _) if *func > index => *func -= 1,
        _ => {}
    };
    program.funcs.iter_mut().flat_map(|func| &mut func.body).for_each(|node| walk_mut(node, change));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Random, single};

    #[test]
    fn what_does_not_matter_goes() {
        let has_division = |program: &Program| {
            let mut found = false;
            program.walk(|node| found |= matches!(node.code, Code::Operator(id, _) if id.get().name == "i32_div_s"));
            found
        };
        let mut calls = 0;
        for index in 0..crate::operators::all().len() as u64 * 8 {
            let mut program = single::program(index, &mut Random::of(1, index));
            if !has_division(&program) {
                continue;
            }
            calls += 1;
            // Around it: a loop, another function, statements.
            let label = Label(50);
            let store = Node::op("i32_store", [Node::i32(64), Node::i32(5)]);
            let body = vec![store.clone(), Node::new(Code::Call(1, Tail::No), [Node::i32(1)]), store];
            let block = Block { kind: Kind::Loop, label, ty: super::super::Signature::default(), body, otherwise: vec![] };
            program.funcs[0].body.insert(0, Node::new(Code::Block(Box::new(block)), []));
            let ty = super::super::Signature { params: vec![ValType::I32], results: vec![] };
            program.funcs.push(Func { ty, locals: vec![ValType::F64; 3], body: vec![] });
            assert!(valid(&program));
            let small = shrink(&program, Duration::from_secs(10), &mut |program| has_division(program));
            assert!(has_division(&small) && valid(&small));
            assert!(small.size() <= 4, "{} operators are left: {small:?}", small.size());
            assert_eq!((small.inputs.len(), small.funcs.len(), small.funcs[0].locals.len()), (1, 1, 0));
        }
        assert_eq!(calls, 8);
    }
}
