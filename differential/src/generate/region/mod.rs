//! `region`: structured programs with much to lose: loops and calls whose iterations read what others wrote, at a rate that is known.
//!
//! ```text
//! index ─► batch ─► what its programs may use ─┐
//! random ─► Plan ◄─────────────────────────────┘
//!            └─► functions: statements ─► control, accesses, calls, traps ─► expressions of any type
//!                └─► the first: a kernel (a loop whose conflicts are graded), or none, and statements
//!                    └─► a bound of its work ─► the depth of calls
//! ```
//!
//! Every program ends: loops count in locals that nothing else writes, and calls pass on a depth that becomes smaller.

mod access;
mod control;
mod effect;
mod expression;
mod kernel;
#[cfg(test)]
mod tests;

use wasm_encoder::ValType;

use super::{Random, single};
use crate::operators::TYPES;
use crate::program::{Block, Code, Func, Input, Kind, Label, Node, PARAMS_MAX, Program, RESULTS_MAX, Signature, mask};

/// How the iterations of a kernel depend on each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Conflict {
    /// The share of iterations that read what an earlier one wrote; of those that have one so far before them.
    pub rate_percent: u32,
    /// How many iterations before.
    pub distance: u32,
}

impl Conflict {
    /// The rates that there are.
    pub const RATES: [u32; 7] = [0, 3, 6, 12, 25, 50, 100];
    /// The distances that there are.
    pub const DISTANCES: [u32; 4] = [1, 2, 6, 20];
}

/// What a program is to be like.
#[derive(Clone, Debug)]
pub struct Plan {
    /// It begins with a kernel, whose iterations conflict like this.
    pub conflict: Option<Conflict>,
    /// Nothing else in the kernel writes to memory.
    pub clean: bool,
    /// Which loop of the first function the kernel is, in the order of its code.
    pub kernel: u32,
    /// It may use what Winch lacks: atomic and relaxed operators too.
    pub rich: bool,
    /// It throws exceptions.
    pub exceptions: bool,
    /// Some calls take the place of their callers.
    pub tails: bool,
    /// It has a second memory.
    pub second_memory: bool,
    /// Memory and tables grow, and segments are dropped.
    pub grows: bool,
    /// It writes to tables.
    pub tables: bool,
    /// How often it traps: not at all, now and then, or as soon as may be.
    pub traps: u32,
    /// Addresses that are not affine are below the next power of two.
    mask: u32,
    /// Where accesses meet.
    hot: u32,
}

impl Plan {
    fn new(index: u64, random: &mut Random) -> Plan {
        // All programs of a batch are compiled together: what needs a slower compiler is kept to some batches.
        let rich = (index / 64) % 4 == 3;
        let conflict = Conflict { rate_percent: *random.pick(&Conflict::RATES), distance: *random.pick(&Conflict::DISTANCES) };
        Plan {
            conflict: random.one_in(2).then_some(conflict),
            clean: random.one_in(2),
            kernel: 0,
            rich,
            exceptions: rich && random.one_in(2),
            tails: rich && random.one_in(2),
            second_memory: rich && random.one_in(4),
            grows: random.one_in(12),
            tables: random.one_in(if rich { 3 } else { 5 }),
            traps: [0, 0, 0, 0, 0, 0, 0, 1, 1, 2][random.below(10) as usize],
            mask: *random.pick(&[63, 255, 1023, 4095, 16_383]),
            hot: *random.pick(&[260, 1021, 2048, 0xff00]),
        }
    }
}

/// Work of one call, at most: operators, as [`Profile`] counts them.
const WORK_MAX: u64 = 16_000;

/// One program. Those with the same `index / 64` make a batch.
pub fn program(index: u64, random: &mut Random) -> Program {
    planned(index, random).0
}

/// One program and what it is meant to be.
pub fn planned(index: u64, random: &mut Random) -> (Program, Plan) {
    let mut plan = Plan::new(index, random);
    let signatures = signatures(random);
    let mut repeats_max = *random.pick(&[12, 48, 192]);
    loop {
        let mut trips = Vec::new();
        let mut funcs: Vec<Func> = Vec::new();
        plan.kernel = 0;
        for func in 0..signatures.len() {
            let mut build = Build::new(&plan, random, &signatures, func, repeats_max);
            let body = if func == 0 { build.entry() } else { build.helper() };
            let (locals, kernel) = (build.types.split_off(signatures[func].params.len()), build.kernel);
            trips.push(build.trips);
            funcs.push(Func { ty: signatures[func].clone(), locals, body });
            plan.kernel = plan.kernel.max(kernel);
        }
        if let Some(depth) = depth(&funcs, &trips, 2 + random.below(5) as usize) {
            // The entry begins with the depth.
            funcs[0].body[0].args[0] = Node::i32(depth as i32);
            let inputs = (0..4 + random.below(3)).map(|_| input(&signatures[0].params, random)).collect();
            return (Program { funcs, inputs }, plan);
        }
        repeats_max /= 2;
    }
}

/// What functions take and give. All but the first take a depth, so that none of them can be taken for the first.
fn signatures(random: &mut Random) -> Vec<Signature> {
    let types = |random: &mut Random, max: usize| -> Vec<ValType> { (0..random.below(max as u64 + 1)).map(|_| *random.pick(&TYPES)).collect() };
    let entry = Signature { params: types(random, PARAMS_MAX), results: types(random, RESULTS_MAX) };
    let other = types(random, 5);
    let mut all = vec![entry];
    for func in 1..2 + random.below(4) {
        // The second of them is like the first, mostly, so that a call may go to either.
        if func == 2 && !random.one_in(4) {
            all.push(all[1].clone());
            continue;
        }
        let params_max = if random.one_in(3) { 9 } else { 3 };
        let params = [vec![ValType::I32], types(random, params_max)].concat();
        let results = match random.below(4) {
            0 => all[0].results.clone(),
            1 => other.clone(),
            _ => vec![*random.pick(&TYPES)],
        };
        let mut signature = Signature { params, results };
        if signature == all[0] {
            signature.params.push(ValType::V128);
        }
        all.push(signature);
    }
    all
}

fn input(params: &[ValType], random: &mut Random) -> Input {
    let mut input = [0; PARAMS_MAX];
    for (bits, ty) in input.iter_mut().zip(params) {
        *bits = if random.one_in(3) { u128::from(random.below(64)) & mask(*ty) } else { single::edge(*ty, random) };
    }
    input
}

/// A place where branches may go, with what they take along.
struct Scope {
    label: Label,
    types: Vec<ValType>,
}

/// A function under construction.
struct Build<'a> {
    plan: &'a Plan,
    random: &'a mut Random,
    signatures: &'a [Signature],
    func: usize,
    /// Types of parameters and locals.
    types: Vec<ValType>,
    /// Locals that statements write, by the place of their type in [`TYPES`].
    vars: [Vec<u32>; 5],
    /// The local that has the depth.
    depth: u32,
    scopes: Vec<Scope>,
    /// Counters of the loops around, the innermost last.
    counters: Vec<u32>,
    /// How often loops are repeated at most.
    trips: Vec<(Label, u32)>,
    labels: u32,
    /// Which loop the kernel is.
    kernel: u32,
    /// Operators that may still be made, more or less.
    room: i32,
    /// How often this place is reached in one activation, at most.
    repeats: u32,
    repeats_max: u32,
    /// Within so many `try_table`s.
    tries: u32,
    /// No accesses to memory, no calls.
    pure: bool,
}

impl<'a> Build<'a> {
    fn new(plan: &'a Plan, random: &'a mut Random, signatures: &'a [Signature], func: usize, repeats_max: u32) -> Build<'a> {
        let room = if func == 0 { 14 + random.below(46) } else { 5 + random.below(18) } as i32;
        let types = signatures[func].params.clone();
        let repeats_max = if func == 0 { repeats_max } else { repeats_max / 8 };
        let mut build = Build {
            plan, random, signatures, func, types, vars: Default::default(), depth: 0, scopes: vec![], counters: vec![], trips: vec![], labels: 0,
            kernel: 0, room, repeats: 1, repeats_max, tries: 0, pure: false,
        };
        for index in u32::from(func > 0)..build.types.len() as u32 {
            let ty = build.types[index as usize];
            build.vars[crate::operators::index(ty)].push(index);
        }
        for (place, ty) in TYPES.into_iter().enumerate() {
            for _ in build.vars[place].len()..1 + build.random.below(2) as usize {
                let local = build.local(ty);
                build.vars[place].push(local);
            }
        }
        if func == 0 {
            build.depth = build.local(ValType::I32);
        }
        // Whoever calls it catches what it throws.
        build.tries = u32::from(build.thrower() == Some(func));
        build
    }

    /// A new local.
    fn local(&mut self, ty: ValType) -> u32 {
        self.types.push(ty);
        self.types.len() as u32 - 1
    }

    /// A new label.
    fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// The function that may throw what it does not catch; it is called where that is caught.
    fn thrower(&self) -> Option<usize> {
        self.plan.exceptions.then(|| self.signatures.len() - 1)
    }

    /// A few types.
    fn some_types(&mut self, max: u64) -> Vec<ValType> {
        (0..self.random.below(max + 1)).map(|_| *self.random.pick(&TYPES)).collect()
    }

    /// The first function.
    fn entry(&mut self) -> Vec<Node> {
        let mut body = vec![Node::new(Code::LocalSet(self.depth), [Node::i32(0)])];
        if self.plan.grows {
            // From here on there is a second page.
            let pages = Node::i32(1);
            body.push(Node::new(Code::Drop, [Node::new(Code::Other(wasm_encoder::Instruction::MemoryGrow(0), vec![ValType::I32]), [pages])]));
        }
        for ty in TYPES {
            let (var, value) = (self.var(ty), self.leaf(ty));
            body.push(Node::new(Code::LocalSet(var), [value]));
        }
        if let Some(conflict) = self.plan.conflict {
            self.kernel(conflict, &mut body);
            self.room = self.room.max(10);
        }
        // What is seldom among so many statements is made sure of.
        if self.plan.exceptions {
            self.caught(0, &mut body);
        }
        if self.random.one_in(2) {
            self.call_any(&mut body);
        }
        while self.room > 0 {
            self.statement(0, &mut body);
            if self.plan.traps > 0 && self.random.one_in(2) {
                self.trap(&mut body);
            }
        }
        // What it knows lives on.
        for ty in TYPES.into_iter().filter(|_| self.random.one_in(2)).collect::<Vec<_>>() {
            let (global, var) = (self.global(ty), self.var(ty));
            let value = self.mixed(ty, Some(Node::new(Code::GlobalGet(global), [])), Node::local(var));
            body.push(Node::new(Code::GlobalSet(global), [value]));
        }
        self.exprs(&self.signatures[0].results.clone(), 2, &mut body);
        body
    }

    /// Any other function: at depth 0 it returns at once.
    fn helper(&mut self) -> Vec<Node> {
        let results = self.signatures[self.func].results.clone();
        let mut at_once = Vec::new();
        results.iter().for_each(|ty| at_once.push(self.leaf(*ty)));
        let done = Node::new(Code::Return, at_once);
        let deep = Node::op("i32_le_s", [Node::local(self.depth), Node::i32(0)]);
        let mut body = vec![self.block(Kind::If, Signature::default(), vec![deep], vec![done], vec![])];
        if self.thrower() == Some(self.func) {
            let tag = self.random.below(crate::program::TAGS.len() as u64) as u32;
            self.statement(0, &mut body);
            self.throw(tag, &mut body);
        } else if self.plan.tails {
            self.statement(0, &mut body);
            self.leave(&mut body);
        }
        while self.room > 0 {
            self.statement(0, &mut body);
        }
        self.exprs(&results, 2, &mut body);
        body
    }

    /// A block that nothing branches to.
    fn block(&mut self, kind: Kind, ty: Signature, args: Vec<Node>, body: Vec<Node>, otherwise: Vec<Node>) -> Node {
        let label = self.label();
        Node::new(Code::Block(Box::new(Block { kind, label, ty, body, otherwise })), args)
    }
}

/// What a function does itself, and how often it calls which: a bit for each function that a call may reach.
#[derive(Default)]
struct Profile {
    own: u64,
    calls: Vec<(u64, u32)>,
}

/// The greatest depth up to this one with which a call of the first function stays within the bound of work.
fn depth(funcs: &[Func], trips: &[Vec<(Label, u32)>], depth_max: usize) -> Option<usize> {
    let profiles: Vec<Profile> = funcs
        .iter()
        .zip(trips)
        .map(|(func, trips)| {
            let mut profile = Profile::default();
            func.body.iter().for_each(|node| profile.add(node, 1, trips, funcs));
            profile
        })
        .collect();
    let total = |profile: &Profile, below: &[u64]| {
        let most = |targets: u32| below.iter().enumerate().filter(|(func, _)| targets >> func & 1 == 1).map(|(_, work)| *work).max().unwrap_or(0);
        profile.calls.iter().fold(profile.own, |sum, (times, targets)| sum.saturating_add(times.saturating_mul(most(*targets))))
    };
    let mut below: Vec<u64> = funcs.iter().map(|func| 4 + func.ty.results.len() as u64).collect();
    let mut found = None;
    for depth in 0..=depth_max {
        if depth > 1 {
            below = profiles.iter().map(|profile| total(profile, &below)).collect();
        }
        if total(&profiles[0], &below) > WORK_MAX {
            break;
        }
        found = Some(depth);
    }
    found
}

impl Profile {
    fn add(&mut self, node: &Node, times: u64, trips: &[(Label, u32)], funcs: &[Func]) {
        self.own += times;
        node.args.iter().for_each(|arg| self.add(arg, times, trips, funcs));
        match &node.code {
            Code::Call(func, _) => self.calls.push((times, 1 << func)),
            Code::CallIndirect(ty, ..) => {
                let targets = (0..).zip(funcs).filter(|(_, func)| func.ty == *ty).fold(0, |targets, (index, _)| targets | 1u32 << index);
                self.calls.push((times, targets));
            }
            Code::Block(block) => {
                let repeats = trips.iter().find(|(label, _)| *label == block.label).map_or(1, |(_, trips)| u64::from(*trips));
                block.body.iter().chain(&block.otherwise).for_each(|node| self.add(node, times * repeats, trips, funcs));
            }
            _ => {}
        }
    }
}
