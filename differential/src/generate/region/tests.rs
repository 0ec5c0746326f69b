//! What the generator promises, checked on many of its programs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use rustc_hash::FxHashSet;
use worksp_engine::probe::{LoopRef, Probe, Rmw, SiteId, TracePlan};
use worksp_engine::{Config, Engine, Linker, Module, Store, Val};

use super::*;
use crate::compare::{Batch, Bench};
use crate::program::{Tail, encode_alone};
use crate::run::End;
use crate::run::ours::{Mode, define_hosts};

fn one(seed: u64, index: u64) -> (Program, Plan) {
    planned(index, &mut Random::of(seed, index))
}

fn batch(seed: u64, batch: u64) -> Vec<Program> {
    (64 * batch..64 * (batch + 1)).map(|index| one(seed, index).0).collect()
}

/// The number of a variable of the environment; `REGION_SEED`, `REGION_BATCHES` and `REGION_MODES` make other tests.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn regions_agree_with_wasmtime_in_every_mode() {
    let (seed, batches) = (number("REGION_SEED", 1), number("REGION_BATCHES", 8));
    println!("seed {seed}, {batches} batches");
    let modes = number("REGION_MODES", Mode::ALL.len() as u64) as usize;
    let mut bench = Bench::new(&Mode::ALL[..modes]);
    let (mut calls, mut comparisons, mut poisoned, mut wrong) = (0, 0, 0, 0);
    let mut compilers = BTreeMap::<String, (u64, f64)>::new();
    let started = Instant::now();
    for index in 0..batches {
        let programs = batch(seed, index);
        let begun = Instant::now();
        let outcome = bench.run(&Batch::of(&programs));
        let entry = compilers.entry(outcome.compiler.expect("one of them").to_string()).or_default();
        *entry = (entry.0 + outcome.programs, entry.1 + begun.elapsed().as_secs_f64());
        for divergence in &outcome.divergences {
            wrong += 1;
            eprintln!("program {}: {divergence:?}", 64 * index + u64::from(divergence.program));
        }
        calls += outcome.calls;
        comparisons += outcome.comparisons;
        poisoned += outcome.poisoned;
    }
    println!("{calls} calls, {comparisons} comparisons, {poisoned} poisoned, {:?}", started.elapsed());
    compilers.iter().for_each(|(compiler, (programs, seconds))| println!("{compiler}: {programs} programs, {:.0}/s", *programs as f64 / seconds));
    assert_eq!((wrong, poisoned * 100 / (64 * batches)), (0, 0));
}

/// Writes a program out and runs it alone: `REGION_SHOW=index`.
#[test]
fn regions_can_be_shown() {
    let (program, plan) = one(number("REGION_SEED", 1), number("REGION_SHOW", 0));
    let text = wasmprinter::print_bytes(encode_alone(&program)).expect("a module");
    println!("{plan:?}\n{:x?}\n{text}", program.inputs);
    let outcome = Bench::new(&Mode::ALL).run(&Batch::of([&program]));
    assert!(outcome.divergences.is_empty(), "{:?}", outcome.divergences);
}

#[test]
fn regions_end_and_trap_at_the_rates_they_should() {
    let mut runner = Mode::Counting.runner(true);
    let (mut calls, mut traps, mut plain, mut work, mut most) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let mut kinds = BTreeMap::<String, u64>::new();
    for index in 0..number("REGION_BATCHES", 24) {
        let programs = batch(2, index);
        let plans: Vec<Plan> = (64 * index..64 * (index + 1)).map(|index| one(2, index).1).collect();
        let needs = programs.iter().fold(Default::default(), |needs: crate::program::Needs, program| needs.or(program.needs()));
        runner.load(&Batch::of(&programs).bytes, needs).expect("a module");
        for (place, (program, plan)) in (0..).zip(programs.iter().zip(&plans)) {
            runner.reset(place);
            for input in &program.inputs {
                let before = runner.work().expect("it counts");
                let end = runner.call(place, input);
                let worked = runner.work().expect("it counts") - before;
                (calls, work, most) = (calls + 1, work + worked, most.max(worked));
                let kind = match end {
                    End::Returned(_) => continue,
                    End::Trapped(kind) => kind.to_string(),
                    End::Threw(_) => "exception".into(),
                    End::Failed(what) => panic!("program {}: {what}", 64 * index + u64::from(place)),
                };
                traps += 1;
                if plan.traps == 0 {
                    plain += 1;
                    println!("program {} is not to trap: {kind}", 64 * index + u64::from(place));
                }
                *kinds.entry(kind).or_default() += 1;
            }
            if program.needs().fresh {
                runner.renew().expect("there was memory before");
            }
        }
    }
    let share = traps as f64 * 100.0 / calls as f64;
    println!("{calls} calls, {share:.1} % do not return, {plain} by accident; work {} on average, {most} at most; {kinds:#?}", work / calls);
    assert!((3..=35).contains(&(traps * 100 / calls)) && plain * 500 < calls);
    assert!((200..=5000).contains(&(work / calls)) && most <= 20_000);
    assert!(kinds.len() >= 11, "{kinds:?}");
}

/// What is counted: variants of operators, shapes of blocks.
fn features(program: &Program) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    program.walk(|node| {
        let first = |text: String| text.split([' ', '(', '{']).next().unwrap_or("").to_string();
        match &node.code {
            Code::Operator(id, immediate) => {
                let name = id.get().name;
                let parts = ["load", "store", "atomic", "relaxed", "div_s", "trunc_f", "128", "lane"];
                all.extend(parts.into_iter().filter(|part| name.contains(part)).map(String::from));
                id.get().results.iter().for_each(|ty| _ = all.insert(format!("gives {ty:?}")));
                if immediate.memory > 0 {
                    all.insert("second memory".into());
                }
            }
            Code::Block(block) => {
                let name = first(format!("{:?}", block.kind));
                all.insert(format!("{name} params {}", block.ty.params.len().min(2)));
                all.insert(format!("{name} results {}", block.ty.results.len().min(2)));
                if let Kind::Try(clauses) = &block.kind {
                    clauses.iter().for_each(|clause| _ = all.insert(format!("catch all {}", clause.tag.is_none())));
                }
            }
            Code::BrTable(labels) => _ = all.insert(format!("BrTable {}", if labels.len() > 8 { "long" } else { "short" })),
            Code::Call(func, tail) => {
                all.insert(format!("Call tail {}", *tail == Tail::Yes));
                let ty = &program.funcs[*func as usize].ty;
                ty.results.get(1).iter().for_each(|_| _ = all.insert("Call with several results".into()));
                ty.params.get(6).iter().for_each(|_| _ = all.insert("Call with many params".into()));
            }
            Code::CallIndirect(_, table, tail) => _ = all.insert(format!("CallIndirect table {table} tail {}", *tail == Tail::Yes)),
            Code::CallHost(host) => _ = all.insert(format!("host {}", host.name())),
            Code::Select(ty) => _ = all.insert(format!("Select typed {}", ty.is_some())),
            Code::Other(instruction, _) => _ = all.insert(first(format!("{instruction:?}"))),
            code => _ = all.insert(first(format!("{code:?}"))),
        }
    });
    all
}

#[test]
fn regions_have_every_feature_often() {
    const PROGRAMS: u64 = 4096;
    let mut counts = BTreeMap::<String, u64>::new();
    let (mut size, mut funcs) = (0, 0);
    for program in (0..PROGRAMS).map(|index| one(3, index).0) {
        size += program.size();
        funcs += program.funcs.len();
        features(&program).into_iter().for_each(|feature| *counts.entry(feature).or_default() += 1);
    }
    println!("{} operators and {:.1} functions each; {counts:#?}", size as u64 / PROGRAMS, funcs as f64 / PROGRAMS as f64);
    let rare: Vec<_> = counts.iter().filter(|(_, count)| **count < 20).collect();
    assert!(funcs as u64 >= 2 * PROGRAMS);
    assert!(counts.len() >= 80 && rare.is_empty(), "{} features, rare: {rare:?}", counts.len());
}

/// Which iterations of the kernel read what an earlier one wrote.
#[derive(Default)]
struct Conflicts {
    kernel: Option<LoopRef>,
    inside: bool,
    iteration: u32,
    /// Which iteration wrote each byte.
    written: rustc_hash::FxHashMap<u64, u32>,
    /// By iteration: how far away the writer was.
    found: BTreeMap<u32, FxHashSet<u32>>,
}

impl Probe for Conflicts {
    fn load(&mut self, _: SiteId, _: u32, addr: u64, len: u32, _: Rmw) {
        for byte in addr..addr + u64::from(len) {
            if let Some(writer) = self.written.get(&byte).filter(|writer| self.inside && **writer != self.iteration) {
                self.found.entry(self.iteration).or_default().insert(self.iteration - writer);
            }
        }
    }

    fn store(&mut self, _: SiteId, _: u32, addr: u64, len: u32, _: Rmw) {
        if self.inside {
            (addr..addr + u64::from(len)).for_each(|byte| _ = self.written.insert(byte, self.iteration));
        }
    }

    fn loop_iter(&mut self, this: LoopRef, _: u64) {
        if self.kernel == Some(this) {
            (self.inside, self.iteration) = (true, self.iteration + 1);
        }
    }

    fn loop_exit(&mut self, this: LoopRef, _: u64) {
        self.inside &= self.kernel != Some(this);
    }
}

/// The iterations of the first call's kernel, and which of them conflict.
fn conflicts(program: &Program, plan: &Plan) -> Conflicts {
    // The functions of the host that it calls come before its own.
    let mut hosts = FxHashSet::default();
    program.walk(|node| if let Code::CallHost(host) = node.code { _ = hosts.insert(host) });
    let kernel = LoopRef { func: hosts.len() as u32, ordinal: plan.kernel };
    let mut probe = Conflicts { kernel: Some(kernel), ..Conflicts::default() };
    watch(program, TracePlan { loops: vec![kernel], ..TracePlan::default() }, &mut probe);
    probe
}

/// Shows a program's first call to a probe.
fn watch(program: &Program, plan: TracePlan, probe: &mut impl Probe) {
    let engine = Engine::new(Config::default());
    let mut linker = Linker::new();
    define_hosts(&mut linker);
    let module = Module::new(&engine, &encode_alone(program)).expect("a module");
    let mut store = Store::new(&engine);
    let instance = linker.instantiate(&mut store, probe, &module).expect("an instance");
    store.set_trace_plan(instance, plan);
    let main = store.exported_func(instance, "main").expect("a program");
    let types = store.func_type(main).params().to_vec();
    let args: Vec<Val> = types.into_iter().zip(program.inputs[0]).map(|(ty, bits)| Val::from_bits(ty, bits)).collect();
    _ = linker.call(&mut store, probe, main, &args);
}

/// Exceptions: activations that they ended, and how often they were caught.
#[derive(Default)]
struct Thrown {
    unwound: u64,
    caught: u64,
    calls: u64,
    tail_calls: u64,
}

impl Probe for Thrown {
    fn unwind(&mut self, _: SiteId, _: u64) {
        self.unwound += 1;
    }

    fn caught(&mut self, _: SiteId, _: Option<LoopRef>, _: u64) {
        self.caught += 1;
    }

    fn call(&mut self, _: SiteId, _: u32, _: &[u64], _: u64) {
        self.calls += 1;
    }

    fn tail_call(&mut self, _: SiteId, _: u32, _: &[u64], _: u64) {
        self.tail_calls += 1;
    }
}

#[test]
fn region_exceptions_cross_frames_and_calls_are_made() {
    let (mut unwound, mut caught, mut called, mut tails) = (0, 0, 0, 0);
    for index in (192..256).chain(448..512) {
        let mut thrown = Thrown::default();
        watch(&one(5, index).0, TracePlan::default(), &mut thrown);
        unwound += u64::from(thrown.unwound > 0);
        caught += u64::from(thrown.caught > 0);
        called += u64::from(thrown.calls > 0);
        tails += u64::from(thrown.tail_calls > 0);
    }
    println!("of 128 programs {unwound} leave a frame by an exception, {caught} catch one, {called} call, {tails} make tail calls");
    assert!(unwound >= 3 && caught >= 3 && called >= 32 && tails >= 3);
}

#[test]
fn region_kernels_conflict_at_their_rate_and_distance() {
    let mut buckets = BTreeMap::<Conflict, (u64, u64, u64)>::new();
    for index in 0..2048 {
        let (program, plan) = one(4, index);
        let Some(conflict) = plan.conflict.filter(|_| plan.clean) else { continue };
        let probe = conflicts(&program, &plan);
        assert!(probe.iteration > 0, "program {index} has its kernel elsewhere: {plan:?}");
        let (programs, able, found) = buckets.entry(conflict).or_default();
        *programs += 1;
        *able += u64::from(probe.iteration.saturating_sub(conflict.distance));
        *found += probe.found.len() as u64;
        let wrong = probe.found.values().flatten().find(|distance| **distance != conflict.distance);
        assert!(wrong.is_none(), "program {index}: an iteration reads what the one {wrong:?} before wrote: {conflict:?}");
    }
    assert_eq!(buckets.len(), Conflict::RATES.len() * Conflict::DISTANCES.len());
    for (conflict, (programs, able, found)) in buckets {
        let rate = found as f64 * 100.0 / able as f64;
        println!("{conflict:?}: {rate:.1} % of {able} iterations of {programs} programs");
        let wanted = f64::from(conflict.rate_percent);
        assert!((rate - wanted).abs() <= 0.5 + wanted * 0.2, "{conflict:?}: {rate}");
    }
}
