//! One batch of programs on an oracle and in every mode: what they say must be the same after every call.

use worksp_engine::TrapKind;
use xxhash_rust::xxh3::Xxh3;

use crate::generate::Case;
use crate::program::{Input, Needs, Program, encode};
use crate::run::modules::{self, ModuleOracle};
use crate::run::oracle::{Compiler, Oracle};
use crate::run::ours::Mode;
use crate::run::{End, HostCall, Runner};

/// What can be seen after a call.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    end: End,
    globals: Vec<u128>,
    tables: Vec<u64>,
    host_calls: Vec<HostCall>,
}

impl Seen {
    fn of(runner: &mut dyn Runner, end: End, needs: Needs) -> Seen {
        let (mut globals, mut tables) = (Vec::new(), Vec::new());
        runner.globals(&mut globals);
        if needs.tables {
            runner.tables(&mut tables);
        }
        Seen { end, globals, tables, host_calls: runner.host_calls() }
    }

    /// What differs first, theirs last.
    fn difference(&self, theirs: &Seen) -> Option<Difference> {
        let first = |ours: &[u128], theirs: &[u128]| ours.iter().zip(theirs).position(|(a, b)| a != b).unwrap_or(0);
        if self.end != theirs.end {
            return Some(Difference { what: What::End, detail: format!("{}; expected: {}", self.end, theirs.end) });
        }
        if self.globals != theirs.globals {
            let index = first(&self.globals, &theirs.globals);
            return Some(Difference { what: What::Global, detail: format!("global {index} is {:#x}; expected {:#x}", self.globals[index], theirs.globals[index]) });
        }
        if self.tables != theirs.tables {
            return Some(Difference { what: What::Table, detail: format!("tables are {:?}; expected {:?}", self.tables, theirs.tables) });
        }
        if self.host_calls != theirs.host_calls {
            let index = self.host_calls.iter().zip(&theirs.host_calls).position(|(a, b)| a != b).unwrap_or(self.host_calls.len().min(theirs.host_calls.len()));
            let detail = format!("host call {index} is {:x?}; expected {:x?}", self.host_calls.get(index), theirs.host_calls.get(index));
            return Some(Difference { what: What::HostCall, detail });
        }
        None
    }
}

/// What differs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// How a call ended.
    End,
    /// A global.
    Global,
    /// A table.
    Table,
    /// Calls of the host.
    HostCall,
    /// Bytes of memory, or how many there are.
    Memory,
    /// Work.
    Work,
    /// The module was refused.
    Load,
}

/// A difference between a mode and the oracle, or between two modes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// What differs.
    pub what: What,
    /// Both, in words.
    pub detail: String,
}

/// A program that did not do what it should.
#[derive(Clone, Debug)]
pub struct Divergence {
    /// Which of the batch.
    pub program: u32,
    /// Which call of it; `None` when it could not even begin.
    pub call: Option<u32>,
    /// In which mode.
    pub mode: Mode,
    /// What differs.
    pub difference: Difference,
}

/// What came of a batch.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Programs.
    pub programs: u64,
    /// Programs that cannot be run: they need more than is allowed, or something that nobody provides.
    pub skipped: u64,
    /// Calls of them.
    pub calls: u64,
    /// Calls in a mode that were compared with the oracle's.
    pub comparisons: u64,
    /// Programs that exhausted the stack or memory, where engines may differ.
    pub poisoned: u64,
    /// What each program did, as one number: equal for equal behaviour.
    pub digests: Vec<u64>,
    /// Programs that did something else; the first difference of each.
    pub divergences: Vec<Divergence>,
    /// Which compiler answered.
    pub compiler: Option<Compiler>,
}

/// Programs as they run: one module, and what to call in it.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The module, with its driver.
    pub bytes: Vec<u8>,
    /// What each program needs, and the inputs of its calls.
    pub calls: Vec<(Needs, Vec<Input>)>,
}

impl Batch {
    /// These programs together.
    pub fn of<'a>(programs: impl IntoIterator<Item = &'a Program>) -> Batch {
        let programs: Vec<&Program> = programs.into_iter().collect();
        Batch { bytes: encode(&programs), calls: programs.iter().map(|program| (program.needs(), program.inputs.clone())).collect() }
    }

    /// What all of them need.
    fn needs(&self) -> Needs {
        self.calls.iter().fold(Needs::default(), |all, (needs, _)| all.or(*needs))
    }
}

impl Outcome {
    /// With those of another program of the batch, the one of this number.
    pub fn add(&mut self, program: u32, other: Outcome) {
        self.programs += other.programs;
        self.skipped += other.skipped;
        self.calls += other.calls;
        self.comparisons += other.comparisons;
        self.poisoned += other.poisoned;
        self.digests.extend(other.digests);
        self.divergences.extend(other.divergences.into_iter().map(|divergence| Divergence { program, ..divergence }));
    }
}

/// Engines that are kept from batch to batch.
pub struct Bench {
    winch: Oracle,
    fast: Oracle,
    /// Made when it is needed.
    modules: Option<ModuleOracle>,
    modes: Vec<(Mode, Box<dyn Runner>)>,
    /// Whether digests are made.
    pub digests: bool,
    /// Asks only Cranelift: Winch 48 crashes on some programs.
    pub careful: bool,
}

impl Bench {
    /// With these modes.
    pub fn new(modes: &[Mode]) -> Bench {
        let modes = modes.iter().map(|mode| (*mode, mode.runner(true))).collect();
        Bench { winch: Oracle::new(Compiler::Winch, true), fast: Oracle::new(Compiler::Fast, true), modules: None, modes, digests: false, careful: false }
    }

    /// Runs the cases of one batch of a campaign: programs together, modules one by one. There is nothing where a generator made none.
    pub fn cases(&mut self, cases: &[Option<Case>]) -> Outcome {
        let mut programs: Vec<&Program> = Vec::new();
        let mut outcome = Outcome::default();
        for (index, case) in (0..).zip(cases) {
            match case {
                None => outcome.skipped += 1,
                Some(Case::Program(program)) => programs.push(program),
                Some(Case::Module(bytes, canonicalize_nans)) => {
                    let modes: Vec<Mode> = self.modes.iter().map(|(mode, _)| *mode).collect();
                    let oracle = self.modules.get_or_insert_with(|| ModuleOracle::new(Compiler::Fast));
                    outcome.add(index, modules::compare(bytes, *canonicalize_nans, &modes, oracle));
                    outcome.compiler = Some(Compiler::Fast);
                }
            }
        }
        if programs.is_empty() { outcome } else { self.run(&Batch::of(programs)) }
    }

    /// Runs a batch.
    ///
    /// # Panics
    ///
    /// When Wasmtime refuses the module, which generators do not make.
    pub fn run(&mut self, batch: &Batch) -> Outcome {
        let winch = if self.careful { None } else { self.winch.load(&batch.bytes, batch.needs()).ok() };
        let (oracle, compiler): (&mut dyn Runner, _) = match winch {
            Some(()) => (&mut self.winch, Compiler::Winch),
            None => match self.fast.load(&batch.bytes, batch.needs()) {
                Ok(()) => (&mut self.fast, Compiler::Fast),
                Err(error) => panic!("a generator made a module that Wasmtime refuses: {error}"),
            },
        };
        let outcome = together(batch, oracle, &mut self.modes, self.digests);
        Outcome { compiler: Some(compiler), ..outcome }
    }
}

/// Runs a batch on an oracle of the caller's choice.
///
/// # Errors
///
/// When the oracle refuses it.
pub fn on(oracle: &mut dyn Runner, batch: &Batch, modes: &mut [(Mode, Box<dyn Runner>)]) -> Result<Outcome, String> {
    oracle.load(&batch.bytes, batch.needs())?;
    Ok(together(batch, oracle, modes, true))
}

/// Runs a batch on an oracle that has loaded it, and in all modes.
fn together(batch: &Batch, oracle: &mut dyn Runner, modes: &mut [(Mode, Box<dyn Runner>)], digests: bool) -> Outcome {
    let mut outcome = Outcome { programs: batch.calls.len() as u64, ..Outcome::default() };
    let all = batch.needs();
    let mut running: Vec<(Mode, &mut dyn Runner)> = Vec::new();
    for (mode, runner) in modes {
        match runner.load(&batch.bytes, all) {
            Ok(()) => running.push((*mode, &mut **runner)),
            Err(detail) => {
                outcome.divergences.push(Divergence { program: 0, call: None, mode: *mode, difference: Difference { what: What::Load, detail } });
            }
        }
    }
    for (index, (needs, inputs)) in (0..).zip(&batch.calls) {
        let digest = one(index, inputs, Needs { fresh: needs.fresh, ..all }, oracle, &mut running, digests, &mut outcome);
        outcome.digests.extend(digest);
    }
    outcome
}

/// Runs one program of a batch.
fn one(
    index: u32,
    inputs: &[Input],
    needs: Needs,
    oracle: &mut dyn Runner,
    modes: &mut [(Mode, &mut dyn Runner)],
    digest: bool,
    outcome: &mut Outcome,
) -> Option<u64> {
    let mut hash = Xxh3::new();
    // A mode that went another way is not followed any further in this program.
    let mut following: Vec<bool> = modes.iter().map(|_| true).collect();
    let expected = oracle.reset(index);
    for ((mode, runner), following) in modes.iter_mut().zip(&mut following) {
        let end = runner.reset(index);
        if end != expected {
            let difference = Difference { what: What::End, detail: format!("at the start: {end}; expected: {expected}") };
            outcome.divergences.push(Divergence { program: index, call: None, mode: *mode, difference });
            *following = false;
        }
    }
    let mut spoilt = needs.fresh;
    for (call, input) in (0..).zip(inputs) {
        let end = oracle.call(index, input);
        let expected = Seen::of(oracle, end, needs);
        outcome.calls += 1;
        let mut poisoned = exhausted(&expected.end);
        let mut work = None;
        for ((mode, runner), following) in modes.iter_mut().zip(&mut following) {
            if !*following {
                continue;
            }
            let before = runner.work();
            let end = runner.call(index, input);
            poisoned |= exhausted(&end);
            if poisoned {
                break;
            }
            let worked = runner.work().zip(before).map(|(after, before)| after - before);
            let seen = Seen::of(*runner, end, needs);
            outcome.comparisons += 1;
            let difference = seen.difference(&expected).or_else(|| memories(*runner, oracle, needs)).or_else(|| same_work(&mut work, worked));
            if let Some(difference) = difference {
                outcome.divergences.push(Divergence { program: index, call: Some(call), mode: *mode, difference });
                *following = false;
                // What it did to its state is nobody's business any more.
                spoilt = true;
            }
        }
        if poisoned {
            outcome.poisoned += 1;
            spoilt = true;
            break;
        }
        if digest {
            add(&mut hash, &expected);
        }
    }
    if digest {
        add_memories(&mut hash, oracle, needs);
    }
    if spoilt {
        oracle.renew().expect("there was memory before");
        modes.iter_mut().for_each(|(_, runner)| runner.renew().expect("there was memory before"));
    }
    digest.then(|| hash.digest())
}

/// What each program of a batch does on one engine that has loaded it, as numbers: those of [`Outcome::digests`] when it does the same.
///
/// # Errors
///
/// When the engine refuses the module.
pub fn digests(batch: &Batch, runner: &mut dyn Runner) -> Result<Vec<u64>, String> {
    let all = batch.needs();
    runner.load(&batch.bytes, all)?;
    let mut digests = Vec::new();
    for (index, (needs, inputs)) in (0..).zip(&batch.calls) {
        let mut hash = Xxh3::new();
        let mut spoilt = needs.fresh;
        runner.reset(index);
        for input in inputs {
            let end = runner.call(index, input);
            if exhausted(&end) {
                spoilt = true;
                break;
            }
            let seen = Seen::of(runner, end, Needs { fresh: needs.fresh, ..all });
            add(&mut hash, &seen);
        }
        add_memories(&mut hash, runner, all);
        if spoilt {
            runner.renew()?;
        }
        digests.push(hash.digest());
    }
    Ok(digests)
}

/// Whether a call ended for want of something that engines have different amounts of.
fn exhausted(end: &End) -> bool {
    matches!(end, End::Trapped(TrapKind::StackOverflow | TrapKind::ExceptionLimit))
}

fn memories(ours: &mut dyn Runner, theirs: &mut dyn Runner, needs: Needs) -> Option<Difference> {
    (0..=u32::from(needs.second_memory)).find_map(|index| {
        let (ours, theirs) = (ours.memory(index), theirs.memory(index));
        if ours == theirs {
            return None;
        }
        let detail = match ours.iter().zip(theirs).position(|(a, b)| a != b) {
            Some(at) => format!("byte {at:#x} of memory {index} is {:#04x}; expected {:#04x}", ours[at], theirs[at]),
            None => format!("memory {index} has {} bytes; expected {}", ours.len(), theirs.len()),
        };
        Some(Difference { what: What::Memory, detail })
    })
}

/// All modes that count work count the same.
fn same_work(known: &mut Option<u64>, worked: Option<u64>) -> Option<Difference> {
    match (*known, worked) {
        (Some(known), Some(worked)) if known != worked => {
            Some(Difference { what: What::Work, detail: format!("work is {worked}; another mode counted {known}") })
        }
        _ => {
            *known = known.or(worked);
            None
        }
    }
}

fn add(hash: &mut Xxh3, seen: &Seen) {
    match &seen.end {
        End::Returned(bits) => bits.iter().for_each(|bits| hash.update(&bits.to_le_bytes())),
        other => hash.update(other.to_string().as_bytes()),
    }
    seen.globals.iter().for_each(|bits| hash.update(&bits.to_le_bytes()));
    seen.tables.iter().for_each(|element| hash.update(&element.to_le_bytes()));
    for call in &seen.host_calls {
        hash.update(call.host.name().as_bytes());
        call.args.iter().for_each(|bits| hash.update(&bits.to_le_bytes()));
    }
}

/// What a program left in memory. Once is enough here: hashing it after each call would cost more than the calls.
fn add_memories(hash: &mut Xxh3, runner: &mut dyn Runner, needs: Needs) {
    (0..=u32::from(needs.second_memory)).for_each(|index| hash.update(runner.memory(index)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Random, single};

    #[test]
    fn one_operator_at_a_time() {
        let mut bench = Bench::new(&Mode::ALL);
        let count = crate::operators::all().len() as u64;
        let started = std::time::Instant::now();
        let (mut calls, mut comparisons, mut winch) = (0, 0, 0);
        for batch in 0..count.div_ceil(64) {
            let programs: Vec<Program> = (0..64).map(|i| single::program(batch * 64 + i, &mut Random::of(1, batch * 64 + i))).collect();
            let outcome = bench.run(&Batch::of(&programs));
            if let Some(divergence) = outcome.divergences.first() {
                panic!("{divergence:?} {:?}", programs[divergence.program as usize]);
            }
            calls += outcome.calls;
            comparisons += outcome.comparisons;
            winch += u64::from(outcome.compiler == Some(Compiler::Winch));
        }
        println!("{calls} calls, {comparisons} comparisons, {winch} batches on Winch, {:?}", started.elapsed());
        assert!(comparisons == calls * Mode::ALL.len() as u64);
    }
}
