//! Random streams of events, shown to the tracer and to the definition at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use proptest::prelude::*;
use worksp_engine::probe::{LocalRole, LoopRef, Probe, Rmw, Site, SiteId};
use worksp_tracer::allocator::{EntryPoint, EntryPoints};
use worksp_tracer::edge::EdgeClass;
use worksp_tracer::layout::{Layout, LayoutFacts};
use worksp_tracer::replay::HostObserver;
use worksp_tracer::tracer::MEMORY_MAX_DEFAULT;
use worksp_tracer::trace::{Boundary, TraceInfo};
use worksp_tracer::units::Units;
use worksp_tracer::{Granule, Trace, Tracer, TracerOptions};

use crate::definition::{Access, Definition, Edge, Role, Space, What};

const ROOT: u32 = 0;
const UNIT: u32 = 1;
const PLAIN: u32 = 2;
const MALLOC: u32 = 3;
const FREE: u32 = 4;
const CALLOC: u32 = 5;
const REALLOC: u32 = 6;
/// The call operator that is a unit.
const SITE: SiteId = SiteId(7);

/// The stack is below, static data up to `DATA_END`.
const SP: u64 = 64;
const DATA_END: u64 = 128;
/// Blocks of the allocator are at most this long, each behind eight bytes of header.
const BLOCK: u64 = 16;
const BLOCKS: u64 = 3;
/// Heap that is in no block.
const WILD: u64 = 208;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Work(u8),
    Unit,
    SiteUnit,
    Call,
    TailCall(bool),
    Ret,
    LoopIter(u8),
    LoopExit(u8),
    NextRoot(bool),
    /// An exception goes up so many activations, and then out of the loops inside of this one, or of all.
    Throw(u8, Option<u8>),
    /// An exception goes up to the entry, and ends it; another one begins.
    Uncaught,
    /// A host function calls a function, which may be a unit, that throws through the host function up so many activations.
    HostThrow(bool, u8),
    Load(u64, u32),
    Store(u64, u32),
    /// A load and a store that may be a delta: address, length, family; and what happens between them.
    TaggedLoad(u64, u32, u8),
    TaggedStore(u64, u32, u8),
    Delta(u64, u32, u8),
    Copy(u64, u64, u64),
    GlobalGet(u32),
    GlobalSet(u32),
    Sp(u64),
    Size(bool),
    Drop(bool),
    Table(u64, bool),
    TableSize(bool),
    Output(u64, u64),
    Host(u64),
    Reentry(bool),
    LocalRead(u32, u8),
    LocalWrite(u32, u8),
    SlotUse(u32),
    SlotMove(u32, u32),
    SlotClear(u32),
    Malloc(u64, u64, bool),
    Calloc(u64, u64, bool),
    Free(u64),
    Realloc(u64, u64, u64),
    BlockLoad(u64, u64, u32),
    BlockStore(u64, u64, u32),
    BlockDelta(u64, u64, u32, u8),
}

fn address() -> impl Strategy<Value = u64> {
    // Few places, so that accesses meet; some cross granules.
    prop_oneof![3 => 32..56u64, 3 => 64..84u64, 3 => WILD..WILD + 20]
}

fn len() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1u32), Just(2), Just(4), Just(4), Just(8)]
}

fn common_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (1..40u8).prop_map(Op::Work),
        5 => Just(Op::Unit),
        1 => Just(Op::Call),
        7 => Just(Op::Ret),
        4 => (address(), len()).prop_map(|(a, n)| Op::Load(a, n)),
        4 => (address(), len()).prop_map(|(a, n)| Op::Store(a, n)),
        3 => (address(), len(), 1..3u8).prop_map(|(a, n, f)| Op::Delta(a, n, f)),
        1 => (address(), len(), 1..3u8).prop_map(|(a, n, f)| Op::TaggedLoad(a, n, f)),
        1 => (address(), len(), 1..3u8).prop_map(|(a, n, f)| Op::TaggedStore(a, n, f)),
        1 => (address(), address(), 0..20u64).prop_map(|(a, b, n)| Op::Copy(a, b, n)),
        1 => (3..=8u64).prop_map(|n| Op::Sp(n * 8)),
    ]
}

/// Deltas and stack pointers in one corner of the stack, so that what waits for something else meets everything else.
pub fn stack_ops(max: usize) -> impl Strategy<Value = Vec<Op>> {
    let address = || prop_oneof![4 => Just(40u64), 2 => Just(44), 1 => 38..48u64];
    let len = || prop_oneof![4 => Just(4u32), 1 => Just(1), 1 => Just(2), 1 => Just(8)];
    let op = prop_oneof![
        1 => (1..40u8).prop_map(Op::Work),
        4 => Just(Op::Unit),
        2 => Just(Op::Call),
        5 => Just(Op::Ret),
        3 => (address(), len()).prop_map(|(a, n)| Op::Load(a, n)),
        3 => (address(), len()).prop_map(|(a, n)| Op::Store(a, n)),
        6 => (address(), len(), 1..3u8).prop_map(|(a, n, f)| Op::Delta(a, n, f)),
        3 => (address(), len(), 1..3u8).prop_map(|(a, n, f)| Op::TaggedLoad(a, n, f)),
        3 => (address(), len(), 1..3u8).prop_map(|(a, n, f)| Op::TaggedStore(a, n, f)),
        5 => (3..=8u64).prop_map(|n| Op::Sp(n * 8)),
    ];
    proptest::collection::vec(op, 1..max)
}

pub fn memory_ops(max: usize) -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(common_op(), 1..max)
}

pub fn all_ops(max: usize) -> impl Strategy<Value = Vec<Op>> {
    let block = 0..BLOCKS;
    let rare = prop_oneof![
        2 => Just(Op::SiteUnit),
        1 => any::<bool>().prop_map(Op::TailCall),
        4 => (0..2u8).prop_map(Op::LoopIter),
        2 => (0..2u8).prop_map(Op::LoopExit),
        1 => any::<bool>().prop_map(Op::NextRoot),
        3 => (0..3u8, proptest::option::of(0..2u8)).prop_map(|(n, l)| Op::Throw(n, l)),
        1 => Just(Op::Uncaught),
        1 => (any::<bool>(), 1..3u8).prop_map(|(unit, n)| Op::HostThrow(unit, n)),
        2 => (0..2u32).prop_map(Op::GlobalGet),
        2 => (0..2u32).prop_map(Op::GlobalSet),
        1 => any::<bool>().prop_map(Op::Size),
        1 => any::<bool>().prop_map(Op::Drop),
        2 => (0..3u64, any::<bool>()).prop_map(|(e, w)| Op::Table(e, w)),
        1 => any::<bool>().prop_map(Op::TableSize),
        2 => (address(), address()).prop_map(|(a, b)| Op::Output(a, b)),
        2 => address().prop_map(Op::Host),
        1 => any::<bool>().prop_map(Op::Reentry),
        4 => (0..2u32, 0..4u8).prop_map(|(l, r)| Op::LocalRead(l, r)),
        4 => (0..2u32, 0..4u8).prop_map(|(l, r)| Op::LocalWrite(l, r)),
        3 => (0..3u32).prop_map(Op::SlotUse),
        1 => (0..3u32, 0..3u32).prop_map(|(a, b)| Op::SlotMove(a, b)),
        1 => (0..3u32).prop_map(Op::SlotClear),
        3 => (block.clone(), 1..=BLOCK, any::<bool>()).prop_map(|(b, n, l)| Op::Malloc(b, n, l)),
        1 => (block.clone(), 1..=BLOCK, any::<bool>()).prop_map(|(b, n, l)| Op::Calloc(b, n, l)),
        3 => block.clone().prop_map(Op::Free),
        1 => (block.clone(), block.clone(), 1..=BLOCK).prop_map(|(a, b, n)| Op::Realloc(a, b, n)),
        3 => (block.clone(), 0..BLOCK, len()).prop_map(|(b, o, n)| Op::BlockLoad(b, o, n)),
        3 => (block.clone(), 0..BLOCK, len()).prop_map(|(b, o, n)| Op::BlockStore(b, o, n)),
        2 => (block, 0..BLOCK, len(), 1..3u8).prop_map(|(b, o, n, f)| Op::BlockDelta(b, o, n, f)),
    ];
    proptest::collection::vec(prop_oneof![3 => common_op(), 2 => rare], 1..max)
}

struct Activation {
    id: usize,
    units: usize,
    loops: Vec<u8>,
    /// By slot: the segment whose result it holds.
    results: BTreeMap<u32, usize>,
}

pub struct Streams<T> {
    tracer: T,
    definition: Definition,
    activations: Vec<Activation>,
    activations_count: usize,
    work: u64,
    /// Accesses so far: each has a site of its own.
    accesses: u32,
    sp: u64,
    sp_at_start: u64,
    /// Sizes of live blocks.
    blocks: BTreeMap<u64, u64>,
    /// While an entry point is open: ranges that are no allocator's business.
    inside: Option<Vec<Range<u64>>>,
}

fn block_address(block: u64) -> u64 {
    DATA_END + 8 + block * (BLOCK + 8)
}

fn region(address: u64) -> &'static str {
    match address {
        0..SP => "stack",
        SP..DATA_END => "static",
        _ => "heap",
    }
}

const FAMILIES: [Rmw; 3] = [Rmw::Plain, Rmw::Add, Rmw::Xor];
const ROLES: [(LocalRole, Role); 4] = [
    (LocalRole::Plain, Role::Plain),
    (LocalRole::Induction, Role::Induction),
    (LocalRole::ReduceAdd, Role::Reduce(1)),
    (LocalRole::ReduceXor, Role::Reduce(2)),
];

/// Shows the stream to the tracer and to the definition.
pub fn run(ops: &[Op], granule: Granule) -> (Trace, Definition) {
    run_with(ops, granule, |units, options| Tracer::new(units, options, Trace::default()), Tracer::finish)
}

/// The same with a tracer that somebody makes and ends.
pub fn run_with<T: Probe + HostObserver>(
    ops: &[Op],
    granule: Granule,
    make: impl FnOnce(Units, TracerOptions) -> T,
    finish: impl FnOnce(T) -> (Trace, TraceInfo),
) -> (Trace, Definition) {
    let (tracer, definition) = Streams::run(ops, granule, make);
    let (mut trace, info) = finish(tracer);
    trace.info = info;
    (trace, definition)
}

impl<T: Probe + HostObserver> Streams<T> {
    fn run(ops: &[Op], granule: Granule, make: impl FnOnce(Units, TracerOptions) -> T) -> (T, Definition) {
        let mut units = Units::default();
        units.add(Boundary::Func(UNIT));
        units.add(Boundary::Site(Site { func: ROOT, offset: 7 }));
        units.add(Boundary::Loop { func: ROOT, ordinal: 0 });
        units.add(Boundary::Loop { func: ROOT, ordinal: 1 });
        let facts = LayoutFacts { sp: Some((0, SP)), data_end: Some(DATA_END), ..LayoutFacts::default() };
        let mut entry_points = EntryPoints::default();
        for (func, name) in [(MALLOC, "malloc"), (FREE, "free"), (CALLOC, "calloc"), (REALLOC, "realloc")] {
            entry_points.insert(func, name, EntryPoint::of_name(name));
        }
        let options =
            TracerOptions { granule, layout: Layout::new(&facts), entry_points, outputs: vec![true, false], memory_max: MEMORY_MAX_DEFAULT };
        let mut streams = Streams {
            tracer: make(units, options),
            definition: Definition::new(u64::from(granule.bytes())),
            activations: Vec::new(),
            activations_count: 0,
            work: 0,
            accesses: 0,
            sp: SP,
            sp_at_start: SP,
            blocks: BTreeMap::new(),
            inside: None,
        };
        streams.tracer.site_made(SITE, Site { func: ROOT, offset: 7 });
        streams.begin_root();
        for op in ops {
            streams.step(op);
        }
        streams.end_root(true);
        let Streams { tracer, mut definition, work, .. } = streams;
        definition.work = work;
        (tracer, definition)
    }

    fn site(&mut self) -> SiteId {
        self.accesses += 1;
        SiteId(100 + self.accesses)
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Work(n) => self.work += u64::from(n),
            Op::Unit => self.call(SiteId(1), UNIT, &[]),
            Op::SiteUnit => self.call(SITE, PLAIN, &[]),
            Op::Call => self.call(SiteId(1), PLAIN, &[]),
            Op::TailCall(unit) => self.tail_call(if unit { UNIT } else { PLAIN }),
            Op::Ret => self.ret(),
            Op::LoopIter(n) => self.loop_iter(n),
            Op::LoopExit(n) => self.loop_exit(n),
            Op::NextRoot(unwound) => {
                self.end_root(unwound);
                self.begin_root();
            }
            Op::Throw(levels, in_loop) => {
                self.work += 1;
                self.throw(SiteId(9), levels, in_loop);
            }
            Op::Uncaught => {
                self.work += 1;
                while !self.activations.is_empty() {
                    self.unwind(SiteId(9));
                }
                self.end_root(true);
                self.begin_root();
            }
            Op::HostThrow(unit, levels) => self.host_throw(if unit { UNIT } else { PLAIN }, levels),
            Op::Load(a, n) => self.load(a, n),
            Op::Store(a, n) => self.store(a, n),
            Op::TaggedLoad(a, n, f) => self.tagged(a, n, f, false),
            Op::TaggedStore(a, n, f) => self.tagged(a, n, f, true),
            Op::Delta(a, n, f) => {
                self.tagged(a, n, f, false);
                self.work += 1;
                self.tagged(a, n, f, true);
            }
            Op::Copy(from, to, n) if n > 0 => {
                self.tracer.bulk_read(SiteId(2), 0, from..from + n);
                self.log_memory(from..from + n, What::Read, false);
                self.tracer.bulk_write(SiteId(2), 0, to..to + n);
                self.log_memory(to..to + n, What::Write, false);
            }
            Op::Copy(..) => {}
            Op::GlobalGet(g) => {
                let site = self.site();
                self.tracer.global_get(site, g);
                self.log(Space::Global(g), 0..1, What::Read, if g == 0 { "sp" } else { "global" });
            }
            Op::GlobalSet(g) => {
                let value = if g == 0 { self.sp } else { 1 };
                self.global_set(g, value);
            }
            Op::Sp(sp) => self.global_set(0, sp),
            _ => self.rare_step(op),
        }
    }

    fn rare_step(&mut self, op: &Op) {
        match *op {
            Op::Size(grow) => {
                if grow {
                    self.tracer.memory_grow(SiteId(4), 0, 1, Some(1));
                } else {
                    self.tracer.memory_size(SiteId(4), 0);
                }
                self.log_both(Space::MemorySize(0), 0..1, grow, "growth");
            }
            Op::Drop(drop) => {
                self.tracer.segment_use(SiteId(4), false, 0, drop);
                self.log(Space::Segment(false, 0), 0..1, if drop { What::Write } else { What::Read }, "growth");
            }
            Op::Table(e, write) => {
                let what = if write { What::Write } else { What::Read };
                if write {
                    self.tracer.table_write(SiteId(4), 0, e..e + 1);
                } else {
                    let site = self.site();
                    self.tracer.table_read(site, 0, e..e + 1);
                }
                self.log(Space::Table(0), e * 8..e * 8 + 8, what, "table");
            }
            Op::TableSize(grow) => {
                self.tracer.table_grow(SiteId(4), 0, grow.then_some(1), grow.then_some(2));
                self.log_both(Space::TableSize(0), 0..1, grow, "table");
                if grow {
                    self.log(Space::Table(0), 16..24, What::Write, "table");
                }
            }
            Op::Output(read, write) => {
                self.host_call(0);
                self.tracer.host_read(0, read..read + 5);
                self.log_host(read..read + 5, What::Read, true);
                self.tracer.host_write(0, write..write + 4);
                self.log_host(write..write + 4, What::Write, true);
                self.tracer.host_return(0, &[], self.work);
            }
            Op::Host(write) => {
                self.host_call(1);
                self.tracer.host_write(0, write..write + 3);
                self.log_host(write..write + 3, What::Write, false);
                self.tracer.host_return(1, &[], self.work);
            }
            Op::Reentry(unit) => self.reentry(if unit { UNIT } else { PLAIN }),
            Op::LocalRead(local, role) => {
                let (role, theirs) = ROLES[role as usize];
                let site = self.site();
                self.tracer.local_read(site, local, role);
                self.definition.local_read(self.activation().id, local, theirs);
            }
            Op::LocalWrite(local, role) => {
                let (role, theirs) = ROLES[role as usize];
                let site = self.site();
                self.tracer.local_write(site, local, role);
                self.definition.local_write(self.activation().id, local, theirs);
            }
            Op::SlotUse(slot) => {
                let site = self.site();
                self.tracer.slot_use(site, slot);
                if let Some(from) = self.activation().results.get(&slot).copied() {
                    self.definition.result_used(from);
                }
            }
            Op::SlotMove(from, to) => {
                self.tracer.slot_move(from, to);
                let results = &mut self.activations.last_mut().expect("the root's").results;
                match results.get(&from).copied() {
                    Some(value) => results.insert(to, value),
                    None => results.remove(&to),
                };
            }
            Op::SlotClear(slot) => {
                self.tracer.slot_clear(slot);
                self.activations.last_mut().expect("the root's").results.remove(&slot);
            }
            Op::Malloc(block, size, link) => self.malloc(block, size, link),
            Op::Calloc(block, size, nested) => self.calloc(block, size, nested),
            Op::Free(block) => self.free(block),
            Op::Realloc(from, to, size) => self.realloc(from, to, size),
            Op::BlockLoad(block, at, n) => {
                if self.blocks.get(&block).is_some_and(|size| at + u64::from(n) <= *size) {
                    self.load(block_address(block) + at, n);
                }
            }
            Op::BlockStore(block, at, n) => {
                if self.blocks.get(&block).is_some_and(|size| at + u64::from(n) <= *size) {
                    self.store(block_address(block) + at, n);
                }
            }
            Op::BlockDelta(block, at, n, family) => {
                if self.blocks.get(&block).is_some_and(|size| at + u64::from(n) <= *size) {
                    self.step(&Op::Delta(block_address(block) + at, n, family));
                }
            }
            _ => unreachable!("the other operations are common"),
        }
    }

    // --- control -----------------------------------------------------------------------------------------------------

    fn activation(&self) -> &Activation {
        self.activations.last().expect("the root's")
    }

    fn begin_activation(&mut self, units: usize) {
        for _ in 0..units {
            self.begin_unit();
        }
        self.activations_count += 1;
        let id = self.activations_count;
        self.activations.push(Activation { id, units, loops: Vec::new(), results: BTreeMap::new() });
    }

    fn begin_unit(&mut self) {
        self.definition.work = self.work;
        self.definition.begin_unit();
        self.sp_at_start = self.sp;
    }

    fn end_unit(&mut self) {
        self.definition.work = self.work;
        self.definition.end_unit();
        self.sp_at_start = self.sp;
    }

    fn end_activation(&mut self) {
        let activation = self.activations.pop().expect("the root's");
        for _ in 0..activation.units + activation.loops.len() {
            self.end_unit();
        }
    }

    fn begin_root(&mut self) {
        self.tracer.enter(ROOT, &[], self.work);
        self.begin_unit();
        self.begin_activation(0);
    }

    fn end_root(&mut self, unwound: bool) {
        if !unwound {
            while self.activations.len() > 1 {
                self.ret();
            }
            self.tracer.ret(&[], self.work);
        }
        self.tracer.leave(self.work, unwound);
        while !self.activations.is_empty() {
            self.end_activation();
        }
        self.end_unit();
        self.inside = None;
    }

    fn call(&mut self, site: SiteId, func: u32, args: &[u64]) {
        self.work += 1;
        self.tracer.call(site, func, args, self.work);
        self.begin_activation(usize::from(site == SITE) + usize::from(func == UNIT));
    }

    fn tail_call(&mut self, func: u32) {
        self.work += 1;
        self.tracer.tail_call(SiteId(1), func, &[], self.work);
        self.end_activation();
        self.begin_activation(usize::from(func == UNIT));
    }

    fn ret(&mut self) {
        if self.activations.len() > 1 {
            self.ret_with(&[]);
        }
    }

    /// Returns, and leaves the results of a unit in a slot of the caller.
    fn ret_with(&mut self, results: &[u64]) {
        let from = self.definition.segment();
        let is_unit = self.activation().units > 0;
        self.tracer.ret(results, self.work);
        self.end_activation();
        if is_unit {
            self.tracer.result_in(SiteId(6), 0, 1);
            self.activations.last_mut().expect("the root's").results.insert(0, from);
        }
    }

    fn loop_iter(&mut self, n: u8) {
        self.tracer.loop_iter(LoopRef { func: ROOT, ordinal: u32::from(n) }, self.work);
        self.end_loops(n);
        self.begin_unit();
        self.activations.last_mut().expect("the root's").loops.push(n);
    }

    fn loop_exit(&mut self, n: u8) {
        self.tracer.loop_exit(LoopRef { func: ROOT, ordinal: u32::from(n) }, self.work);
        self.end_loops(n);
    }

    /// The innermost activation dies by an exception.
    fn unwind(&mut self, site: SiteId) {
        self.tracer.unwind(site, self.work);
        let activation = self.activations.pop().expect("somebody runs");
        self.leave_units(activation.units + activation.loops.len());
    }

    fn leave_units(&mut self, count: usize) {
        for _ in 0..count {
            self.definition.work = self.work;
            self.definition.leave_unit();
            self.sp_at_start = self.sp;
        }
    }

    /// An exception is thrown, and caught further out in a loop that is open there, or else outside of all loops.
    fn throw(&mut self, site: SiteId, levels: u8, in_loop: Option<u8>) {
        for _ in 0..levels {
            if self.activations.len() > 1 {
                self.unwind(site);
            }
        }
        let open = &mut self.activations.last_mut().expect("the root's").loops;
        let in_loop = in_loop.filter(|n| open.contains(n));
        let kept = open.iter().rposition(|n| Some(*n) == in_loop).map_or(0, |at| at + 1);
        let left = open.len() - kept;
        open.truncate(kept);
        self.tracer.caught(site, in_loop.map(|n| LoopRef { func: ROOT, ordinal: u32::from(n) }), self.work);
        self.leave_units(left);
    }

    /// What a host function calls throws, and the host function throws it on.
    fn host_throw(&mut self, func: u32, levels: u8) {
        self.host_call(1);
        self.tracer.enter(func, &[], self.work);
        self.begin_activation(usize::from(func == UNIT));
        self.work += 3;
        self.load(72, 4);
        self.store(72, 4);
        self.unwind(SiteId(9));
        self.tracer.leave(self.work, true);
        self.tracer.host_write(0, 80..83);
        self.log_host(80..83, What::Write, false);
        self.tracer.host_throw(1, self.work);
        self.throw(SiteId(0), levels, None);
    }

    fn end_loops(&mut self, n: u8) {
        if self.activation().loops.contains(&n) {
            while self.activations.last_mut().expect("the root's").loops.pop().is_some_and(|open| {
                self.end_unit();
                open != n
            }) {}
        }
    }

    fn host_call(&mut self, import: u32) {
        self.work += 1;
        self.tracer.host_call(SiteId(8), import, &[], self.work);
        self.definition.host_call(import == 0);
    }

    fn reentry(&mut self, func: u32) {
        self.host_call(1);
        self.tracer.enter(func, &[], self.work);
        self.begin_activation(usize::from(func == UNIT));
        self.work += 3;
        self.load(72, 4);
        self.store(72, 4);
        self.tracer.ret(&[], self.work);
        self.end_activation();
        self.tracer.leave(self.work, false);
        self.tracer.host_write(0, 80..83);
        self.log_host(80..83, What::Write, false);
        self.tracer.host_return(1, &[], self.work);
    }

    // --- accesses ----------------------------------------------------------------------------------------------------

    fn push(&mut self, space: Space, bytes: Range<u64>, what: What, region: &'static str, output: bool, allocator: bool) {
        let (segment, sp) = (self.definition.segment(), self.sp_at_start);
        self.definition.access(Access { segment, space, bytes, what, region, output, allocator, sp });
    }

    fn log(&mut self, space: Space, bytes: Range<u64>, what: What, region: &'static str) {
        self.push(space, bytes, what, region, false, self.inside.is_some());
    }

    fn log_both(&mut self, space: Space, bytes: Range<u64>, write: bool, region: &'static str) {
        self.log(space, bytes.clone(), What::Read, region);
        if write {
            self.log(space, bytes, What::Write, region);
        }
    }

    /// An access to memory, cut where eight bytes end: its parts may lie in different regions.
    fn log_memory(&mut self, bytes: Range<u64>, what: What, output: bool) {
        let is_delta = matches!(what, What::TaggedLoad(..) | What::TaggedStore(..));
        let mut start = bytes.start;
        while start < bytes.end {
            let end = if is_delta { bytes.end } else { bytes.end.min((start / 8 + 1) * 8) };
            let allocator = self.inside.as_ref().is_some_and(|own| !own.iter().any(|r| r.contains(&start)));
            self.push(Space::Memory(0), start..end, what, region(start), output, allocator && !output);
            start = end;
        }
    }

    fn log_host(&mut self, bytes: Range<u64>, what: What, output: bool) {
        let inside = self.inside.take();
        self.log_memory(bytes, what, output);
        self.inside = inside;
    }

    fn load(&mut self, a: u64, n: u32) {
        let site = self.site();
        self.tracer.load(site, 0, a, n, Rmw::Plain);
        self.log_memory(a..a + u64::from(n), What::Read, false);
    }

    fn store(&mut self, a: u64, n: u32) {
        let site = self.site();
        self.tracer.store(site, 0, a, n, Rmw::Plain);
        self.log_memory(a..a + u64::from(n), What::Write, false);
    }

    fn tagged(&mut self, a: u64, n: u32, family: u8, store: bool) {
        let bytes = a..a + u64::from(n);
        // One region, so that the definition need not cut it.
        if region(a) != region(bytes.end - 1) {
            return;
        }
        let activation = self.activation().id;
        if store {
            let site = self.site();
            self.tracer.store(site, 0, a, n, FAMILIES[family as usize]);
            self.log_memory(bytes, What::TaggedStore(family, activation), false);
        } else {
            let site = self.site();
            self.tracer.load(site, 0, a, n, FAMILIES[family as usize]);
            self.log_memory(bytes, What::TaggedLoad(family, activation), false);
        }
    }

    fn global_set(&mut self, g: u32, value: u64) {
        let site = self.site();
        self.tracer.global_set(site, g, value);
        self.log(Space::Global(g), 0..1, What::Write, if g == 0 { "sp" } else { "global" });
        if g == 0 {
            self.sp = value;
        }
    }

    // --- an allocator ------------------------------------------------------------------------------------------------

    fn enter_allocator(&mut self, func: u32, args: &[u64], own: Vec<Range<u64>>) -> usize {
        self.call(SiteId(11), func, args);
        self.inside = Some(own);
        // Its state is in static data.
        self.load(96, 4);
        self.store(96, 4);
        self.definition.log_len() - 2
    }

    fn leave_allocator(&mut self, result: u64) {
        self.tracer.ret(&[result], self.work);
        self.inside = None;
        self.end_activation();
    }

    fn malloc(&mut self, block: u64, size: u64, link: bool) {
        if self.blocks.contains_key(&block) {
            return;
        }
        let at = block_address(block);
        let since = self.enter_allocator(MALLOC, &[size], Vec::new());
        self.store(at - 8, 4);
        if link {
            self.load(at, 1);
            self.store(at, 1);
        }
        self.leave_allocator(at);
        self.definition.life_begins(at..at + size, since, false);
        self.blocks.insert(block, size);
    }

    fn calloc(&mut self, block: u64, size: u64, nested: bool) {
        if self.blocks.contains_key(&block) {
            return;
        }
        let at = block_address(block);
        let since = self.enter_allocator(CALLOC, &[1, size], Vec::new());
        if nested {
            self.call(SiteId(11), MALLOC, &[size]);
            self.store(at - 8, 4);
            self.tracer.ret(&[at], self.work);
            self.end_activation();
            self.definition.life_begins(at..at + size, since, false);
            self.inside = Some(std::iter::once(at..at + size).collect());
        }
        self.tracer.bulk_write(SiteId(2), 0, at..at + size);
        self.log_memory(at..at + size, What::Write, false);
        self.leave_allocator(at);
        self.definition.life_begins(at..at + size, since, true);
        self.blocks.insert(block, size);
    }

    fn free(&mut self, block: u64) {
        let Some(size) = self.blocks.remove(&block) else { return };
        let at = block_address(block);
        self.definition.life_ends(at..at + size);
        self.enter_allocator(FREE, &[at], Vec::new());
        self.load(at - 8, 4);
        self.store(at, 1);
        self.leave_allocator(0);
    }

    fn realloc(&mut self, from: u64, to: u64, size: u64) {
        let Some(old) = self.blocks.get(&from).copied() else { return };
        if from != to && self.blocks.contains_key(&to) {
            return;
        }
        let (a, b) = (block_address(from), block_address(to));
        let since = self.enter_allocator(REALLOC, &[a, size], std::iter::once(a..a + old).collect());
        self.load(a - 8, 4);
        if from != to {
            let n = old.min(size);
            self.tracer.bulk_read(SiteId(2), 0, a..a + n);
            self.log_memory(a..a + n, What::Read, false);
            self.tracer.bulk_write(SiteId(2), 0, b..b + n);
            self.log_memory(b..b + n, What::Write, false);
        }
        self.leave_allocator(b);
        self.blocks.remove(&from);
        self.blocks.insert(to, size);
        if from != to {
            self.definition.life_ends(a..a + old);
            self.definition.life_begins(b..b + size, since, true);
        } else if size > old {
            self.definition.life_begins(a + old..a + size, since, true);
        } else if size < old {
            self.definition.life_ends(a + size..a + old);
        }
    }
}

/// The edges of a trace between segments, as if there were no joins.
pub fn direct_edges(trace: &Trace) -> BTreeSet<Edge> {
    let mut segments_count = 0;
    let mut members: Vec<BTreeSet<usize>> = Vec::new();
    let mut direct = BTreeSet::new();
    for (node, edges) in trace.to_vec().expect("held in memory") {
        if node.is_join() {
            members.push(edges.iter().flat_map(|e| members[e.from as usize].clone()).collect());
            continue;
        }
        for edge in &edges {
            let class = if edge.class == EdgeClass::StackDead { "stackdead" } else { edge.class.name() };
            direct.extend(members[edge.from as usize].iter().map(|from| (*from, segments_count, edge.kind.name(), class)));
        }
        members.push([segments_count].into());
        segments_count += 1;
    }
    direct
}

/// The edges of a trace, for messages.
pub fn show(trace: &Trace) -> String {
    let mut text = String::new();
    for (to, (node, edges)) in trace.to_vec().expect("held in memory").into_iter().enumerate() {
        text.push_str(&format!("{to}: weight {} unit {:?}", node.weight, (!node.is_join()).then_some(node.unit)));
        for e in edges {
            text.push_str(&format!("  {}-{}-{:?}", e.from, e.kind.name(), e.class));
        }
        text.push('\n');
    }
    text
}
