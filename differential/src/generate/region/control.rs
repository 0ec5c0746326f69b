//! Blocks, loops, branches out of them with values, calls, exceptions.

use wasm_encoder::ValType;

use super::{Build, Scope};
use crate::program::{Block, Catch, Code, Kind, Label, Node, Signature, TAGS, Tail};

impl Build<'_> {
    /// Takes the values of these types off the stack, the last first.
    pub(super) fn consume(&mut self, types: &[ValType], out: &mut Vec<Node>) {
        for ty in types.iter().rev() {
            self.room -= 1;
            out.push(match self.random.below(8) {
                0..3 => Node::new(Code::LocalSet(self.var(*ty)), []),
                3 => Node::new(Code::GlobalSet(self.global(*ty)), []),
                4 => Node::new(Code::Drop, []),
                // The value is the accumulator.
                _ => {
                    let (var, value) = (self.var(*ty), self.leaf(*ty));
                    Node::new(Code::LocalSet(var), [self.mixed(*ty, None, value)])
                }
            });
        }
    }

    /// Statements, one to so many.
    fn body(&mut self, nest: u32, max: u64, out: &mut Vec<Node>) {
        for _ in 0..1 + self.random.below(max) {
            self.statement(nest + 1, out);
        }
    }

    /// Statements inside a block with a label.
    fn scoped(&mut self, label: Label, types: Vec<ValType>, nest: u32, out: &mut Vec<Node>) {
        self.scopes.push(Scope { label, types });
        self.body(nest, 3, out);
        self.scopes.pop();
    }

    /// Values stay on the stack while a block or loop runs, which may branch away over them.
    pub(super) fn carried(&mut self, nest: u32, out: &mut Vec<Node>) {
        let mut types = self.some_types(2);
        types.push(*self.random.pick(&crate::operators::TYPES));
        self.exprs(&types, 1, out);
        match self.random.below(3) {
            0 => self.repeat(nest, out),
            1 => self.plain_block(nest, out),
            _ => self.body(nest, 2, out),
        }
        self.consume(&types, out);
    }

    /// A block with parameters and results, out of which something may branch.
    pub(super) fn plain_block(&mut self, nest: u32, out: &mut Vec<Node>) {
        let (params, results) = (self.some_types(2), self.some_types(3));
        let (mut args, mut body, label) = (Vec::new(), Vec::new(), self.label());
        self.exprs(&params, 1, &mut args);
        self.scopes.push(Scope { label, types: results.clone() });
        // What it was given may stay beneath to its end.
        let stays = params == results && self.random.one_in(2);
        if !stays {
            self.consume(&params, &mut body);
        }
        self.body(nest, 2, &mut body);
        if self.random.one_in(2) {
            self.branch(&mut body);
            self.body(nest, 1, &mut body);
        }
        self.scopes.pop();
        if !stays {
            self.exprs(&results, 1, &mut body);
        }
        let ty = Signature { params, results: results.clone() };
        out.push(Node::new(Code::Block(Box::new(Block { kind: Kind::Block, label, ty, body, otherwise: vec![] })), args));
        self.consume(&results, out);
    }

    /// A block that gives a value, as an operand; it may give it early.
    pub(super) fn valued_block(&mut self, ty: ValType) -> Node {
        let (mut body, label) = (Vec::new(), self.label());
        self.scopes.push(Scope { label, types: vec![ty] });
        let (value, condition) = (self.expr(ty, 1), self.chance(30));
        let early = Node::new(Code::BrIf(label), [value, condition]);
        if self.random.one_in(2) {
            body.extend([early, Node::new(Code::Drop, [])]);
            self.body(2, 1, &mut body);
            body.push(self.expr(ty, 1));
        } else {
            let value = self.leaf(ty);
            body.extend([early, self.mixed(ty, None, value)]);
        }
        self.scopes.pop();
        let ty = Signature { params: vec![], results: vec![ty] };
        Node::new(Code::Block(Box::new(Block { kind: Kind::Block, label, ty, body, otherwise: vec![] })), [])
    }

    /// `if` with parameters and results.
    pub(super) fn choice(&mut self, nest: u32, out: &mut Vec<Node>) {
        let (params, mut results) = (self.some_types(1), self.some_types(2));
        if self.random.one_in(3) {
            results.clone_from(&params);
        }
        let (mut args, label, percent) = (Vec::new(), self.label(), *self.random.pick(&[5, 30, 50, 80]));
        self.exprs(&params, 1, &mut args);
        args.push(self.chance(percent));
        let arm = |build: &mut Self| {
            let mut body = Vec::new();
            build.consume(&params, &mut body);
            build.scoped(label, results.clone(), nest, &mut body);
            build.exprs(&results, 1, &mut body);
            body
        };
        let body = arm(self);
        let otherwise = if params == results && self.random.one_in(2) { vec![] } else { arm(self) };
        let ty = Signature { params: params.clone(), results: results.clone() };
        out.push(Node::new(Code::Block(Box::new(Block { kind: Kind::If, label, ty, body, otherwise })), args));
        self.consume(&results, out);
    }

    /// A loop that carries values on the stack. Its counter is its own.
    pub(super) fn repeat(&mut self, nest: u32, out: &mut Vec<Node>) {
        let room = (self.repeats_max / self.repeats).min(64);
        if room < 2 {
            return self.assign(out);
        }
        let trips_max = (2 + self.random.below(u64::from(room - 1)) as u32).min([8, 64][self.random.below(2) as usize]);
        let (counter, trips) = (self.local(ValType::I32), if self.random.one_in(2) { self.local(ValType::I32) } else { 0 });
        let count = if trips > 0 {
            // As many as some number says: a power of two at most.
            let mask = (trips_max + 1).next_power_of_two() / 2 - 1;
            let value = Node::op("i32_and", [self.expr(ValType::I32, 1), Node::i32(mask as i32)]);
            out.push(Node::new(Code::LocalSet(trips), [Node::op("i32_add", [value, Node::i32(1)])]));
            Node::local(trips)
        } else {
            Node::i32(trips_max as i32)
        };
        out.push(Node::new(Code::LocalSet(counter), [Node::i32(0)]));
        let types = self.some_types(2);
        let (mut args, mut body) = (Vec::new(), Vec::new());
        self.exprs(&types, 1, &mut args);
        let (exit, head) = (self.label(), self.label());
        let next = Node::new(Code::LocalSet(counter), [Node::op("i32_add", [Node::local(counter), Node::i32(1)])]);
        let tests_first = self.random.one_in(2);
        if tests_first {
            body.push(Node::new(Code::BrIf(exit), [Node::op("i32_ge_u", [Node::local(counter), count.clone()])]));
            body.push(next.clone());
        }
        self.scopes.push(Scope { label: exit, types: types.clone() });
        // A branch to its start is no way around the test.
        if tests_first {
            self.scopes.push(Scope { label: head, types: types.clone() });
        }
        let repeats = self.repeats;
        self.repeats *= trips_max;
        self.counters.push(counter);
        let stays = self.random.one_in(2);
        if !stays {
            self.consume(&types, &mut body);
        }
        self.body(nest, 4, &mut body);
        match types.last() {
            _ if !stays => self.exprs(&types, 1, &mut body),
            Some(ty) => {
                let value = self.leaf(*ty);
                body.push(self.mixed(*ty, None, value));
            }
            None => {}
        }
        self.counters.pop();
        self.repeats = repeats;
        self.scopes.truncate(self.scopes.len() - 1 - usize::from(tests_first));
        body.extend(if tests_first {
            vec![Node::new(Code::Br(head), [])]
        } else {
            vec![next, Node::new(Code::BrIf(head), [Node::op("i32_lt_u", [Node::local(counter), count])])]
        });
        self.trips.push((head, trips_max + 1));
        let ty = Signature { params: types.clone(), results: types.clone() };
        let inner = Node::new(Code::Block(Box::new(Block { kind: Kind::Loop, label: head, ty: ty.clone(), body, otherwise: vec![] })), []);
        out.push(Node::new(Code::Block(Box::new(Block { kind: Kind::Block, label: exit, ty, body: vec![inner], otherwise: vec![] })), args));
        self.consume(&types, out);
    }

    /// A branch that may be taken, to any of the labels around.
    pub(super) fn branch(&mut self, out: &mut Vec<Node>) {
        if self.scopes.is_empty() {
            return self.assign(out);
        }
        let scope = self.random.below(self.scopes.len() as u64) as usize;
        let (label, types) = (self.scopes[scope].label, self.scopes[scope].types.clone());
        let mut args = Vec::new();
        self.exprs(&types, 1, &mut args);
        let percent = *self.random.pick(&[3, 10, 30]);
        if self.random.below(3) > 0 {
            args.push(self.chance(percent));
            out.push(Node::new(Code::BrIf(label), args));
            return self.consume(&types, out);
        }
        // One that is always taken, if it is reached; mostly to one of several labels.
        let alike: Vec<Label> = self.scopes.iter().filter(|scope| scope.types == types).map(|scope| scope.label).collect();
        let code = if self.random.one_in(5) {
            Code::Br(label)
        } else {
            let count = if self.random.one_in(4) { 6 + self.random.below(24) } else { 1 + self.random.below(5) };
            let mut selector = self.expr(ValType::I32, 1);
            if self.random.one_in(2) {
                selector = Node::op("i32_and", [selector, Node::i32(7)]);
            }
            args.push(selector);
            Code::BrTable((0..count).map(|_| *self.random.pick(&alike)).collect())
        };
        self.perhaps(percent * 2, vec![Node::new(code, args)], out);
    }

    /// Something that nothing follows, now and then; in a block that is left by it.
    pub(super) fn perhaps(&mut self, percent: u32, mut nodes: Vec<Node>, out: &mut Vec<Node>) {
        if self.random.one_in(6) {
            // Never reached.
            let var = self.var(ValType::I64);
            let value = self.expr(ValType::I64, 1);
            nodes.push(Node::new(Code::LocalSet(var), [value]));
        }
        let condition = self.chance(percent);
        out.push(self.block(Kind::If, Signature::default(), vec![condition], nodes, vec![]));
    }

    /// The function ends early: it returns, or another one takes its place.
    pub(super) fn leave(&mut self, out: &mut Vec<Node>) {
        let results = self.signatures[self.func].results.clone();
        let percent = *self.random.pick(&[2, 8, if self.plan.tails { 60 } else { 20 }]);
        let mut nodes = Vec::new();
        let after = if self.plan.tails && self.tries == 0 && !self.random.one_in(8) { self.callee(|ty| ty.results == results) } else { None };
        if let Some(func) = after {
            nodes.push(self.call(func, Tail::Yes));
        } else {
            let mut args = Vec::new();
            self.exprs(&results, 1, &mut args);
            nodes.push(Node::new(Code::Return, args));
        }
        self.perhaps(percent, nodes, out);
    }

    /// A function to call here.
    pub(super) fn callee(&mut self, wanted: impl Fn(&Signature) -> bool) -> Option<usize> {
        let thrower = self.thrower().filter(|_| self.tries == 0);
        let fits = |func: &usize| wanted(&self.signatures[*func]) && Some(*func) != thrower;
        let count = (1..self.signatures.len()).filter(fits).count() as u64;
        (count > 0).then(|| (1..self.signatures.len()).filter(fits).nth(self.random.below(count) as usize)).flatten()
    }

    /// A call of a function, one way or another.
    pub(super) fn call(&mut self, func: usize, tail: Tail) -> Node {
        self.room -= 2;
        let ty = self.signatures[func].clone();
        let mut args = vec![Node::op("i32_sub", [Node::local(self.depth), Node::i32(1)])];
        self.exprs(&ty.params[1..], u32::from(self.room > 0), &mut args);
        if self.random.one_in(2) {
            return Node::new(Code::Call(func as u32, tail), args);
        }
        let table = self.random.below(2) as u32;
        // Functions 1 and 2 are alike, if they are.
        let alike = func <= 2 && self.signatures.get(1) == self.signatures.get(2) && self.thrower().is_none_or(|thrower| thrower > 2);
        args.push(if alike {
            let which = Node::op("i32_and", [self.expr(ValType::I32, 1), Node::i32(1)]);
            Node::op("i32_add", [which, Node::i32(1 + table as i32)])
        } else {
            Node::i32(func as i32 + table as i32)
        });
        Node::new(Code::CallIndirect(ty, table, tail), args)
    }

    /// A call that gives one value of this type.
    pub(super) fn call_giving(&mut self, ty: ValType) -> Option<Node> {
        let func = self.callee(|signature| signature.results == [ty])?;
        Some(self.call(func, Tail::No))
    }

    /// A call of any function.
    pub(super) fn call_any(&mut self, out: &mut Vec<Node>) {
        let Some(func) = self.callee(|_| true) else { return self.assign(out) };
        self.call_of(func, out);
    }

    fn call_of(&mut self, func: usize, out: &mut Vec<Node>) {
        let call = self.call(func, Tail::No);
        out.push(call);
        self.consume(&self.signatures[func].results.clone(), out);
    }

    /// `try_table`: statements and calls that may throw, a clause for one tag, one for the others, and something that throws again.
    pub(super) fn caught(&mut self, nest: u32, out: &mut Vec<Node>) {
        let tag = self.random.below(TAGS.len() as u64) as u32;
        let [done, caught, any, inner] = [(); 4].map(|()| self.label());
        let block = |kind, label, results: Vec<ValType>, body| {
            let ty = Signature { params: vec![], results };
            Node::new(Code::Block(Box::new(Block { kind, label, ty, body, otherwise: vec![] })), [])
        };
        let mut clauses = vec![Catch { tag: Some(tag), label: caught }];
        let all = !self.random.one_in(3);
        if all {
            clauses.insert(self.random.below(8) as usize / 7, Catch { tag: None, label: any });
        }
        let mut tried = Vec::new();
        self.tries += u32::from(all);
        self.scopes.push(Scope { label: done, types: vec![] });
        self.body(nest, 2, &mut tried);
        if self.random.one_in(2) {
            self.throw(tag, &mut tried);
        }
        match self.thrower() {
            Some(thrower) if all => self.call_of(thrower, &mut tried),
            _ => self.call_any(&mut tried),
        }
        self.tries -= u32::from(all);
        let tried = vec![block(Kind::Try(clauses), inner, vec![], tried), Node::new(Code::Br(done), [])];
        let mut otherwise = vec![block(Kind::Block, any, vec![], tried)];
        self.body(nest, 1, &mut otherwise);
        otherwise.push(Node::new(Code::Br(done), []));
        self.scopes.pop();
        let mut body = vec![block(Kind::Block, caught, TAGS[tag as usize].to_vec(), otherwise)];
        if self.tries > 0 && self.random.one_in(2) {
            // The values are on the stack still.
            body.push(Node::new(Code::Throw(tag), []));
        } else {
            self.consume(TAGS[tag as usize], &mut body);
        }
        out.push(block(Kind::Block, done, vec![], body));
    }

    /// Throws now and then.
    pub(super) fn throw(&mut self, tag: u32, out: &mut Vec<Node>) {
        let (mut args, percent) = (Vec::new(), *self.random.pick(&[3, 20, 60]));
        self.exprs(TAGS[tag as usize], 1, &mut args);
        self.perhaps(percent, vec![Node::new(Code::Throw(tag), args)], out);
    }
}
