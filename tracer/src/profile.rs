//! The profile that chooses units when none are given: how often each function and loop runs, and how much work it holds.

use rustc_hash::FxHashMap;
use worksp_engine::Module;
use worksp_engine::probe::{LoopRef, Probe, SiteId, TracePlan};

use crate::replay::HostObserver;
use crate::trace::Boundary;
use crate::units::{UnitSpec, Units, operators};

/// Operators that a unit must hold on average to be chosen.
pub const UNIT_OPS_MIN: u64 = 2500;
/// The share of all work that a boundary's units must hold together: one part in this many.
pub const UNIT_SHARE_MIN: u64 = 100;
/// Instances that a boundary must have.
pub const UNIT_INSTANCES_MIN: u64 = 2;

/// How often a boundary was passed and what its instances held.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Invocations, or iterations.
    pub instances: u64,
    /// Operators in all of them with everything they call. Under recursion only outermost instances count.
    pub work: u64,
    /// Instances that are open.
    depth: u32,
}

impl Stat {
    fn begin(&mut self) -> bool {
        self.depth += 1;
        self.depth == 1
    }

    fn end(&mut self, instances: u64, outermost: bool, work: u64) {
        self.instances += instances;
        self.depth -= 1;
        if outermost {
            self.work += work;
        }
    }
}

#[derive(Debug)]
struct OpenLoop {
    this: LoopRef,
    stat: usize,
    /// Iterations, one after the other; all but the last have ended.
    iterations: u64,
    since: u64,
    outermost: bool,
    /// Open activations: it belongs to the last one.
    depth: usize,
}

#[derive(Debug)]
struct Activation {
    func: u32,
    since: u64,
    outermost: bool,
    /// Where this activation's loops begin in the list of open loops.
    loops: usize,
}

/// A boundary that was chosen to be a unit, and why.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// How it is written on the command line.
    pub spec: String,
    /// Its instances.
    pub instances: u64,
    /// Operators in all of them.
    pub work: u64,
    /// `work` as a share of the run.
    pub share: f64,
}

/// Measures functions and loops. Run it with [`Profile::plan`].
///
/// What is too short to be chosen on any input is not measured: loops that the plan leaves out, and functions without loops
/// that call only such functions.
#[derive(Default, Debug)]
pub struct Profile {
    brief: Brief,
    /// Open calls of brief functions.
    brief_calls: u32,
    funcs: Vec<Stat>,
    loops: Vec<(LoopRef, Stat)>,
    loop_index: FxHashMap<LoopRef, usize>,
    activations: Vec<Activation>,
    open_loops: Vec<OpenLoop>,
    entries: Vec<usize>,
    work: u64,
}

impl Profile {
    /// A profile of a run of this module.
    pub fn new(module: &Module) -> Profile {
        Profile { brief: Brief { module: Some(module.clone()), operators: Vec::new() }, ..Profile::default() }
    }

    /// What traced code must report to it.
    pub fn plan() -> TracePlan {
        TracePlan { every_loop_of: Some(UNIT_OPS_MIN as u32), ..TracePlan::default() }
    }

    /// Operators seen.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// What was measured, functions first, each in the order of the module.
    pub fn stats(&self) -> impl Iterator<Item = (Boundary, Stat)> + '_ {
        let mut loops: Vec<&(LoopRef, Stat)> = self.loops.iter().collect();
        loops.sort_by_key(|(this, _)| *this);
        let funcs = self.funcs.iter().enumerate().map(|(func, stat)| (Boundary::Func(func as u32), *stat));
        let loops = loops.into_iter().map(|(l, stat)| (Boundary::Loop { func: l.func, ordinal: l.ordinal }, *stat));
        funcs.chain(loops).filter(|(_, stat)| stat.instances > 0)
    }

    /// The default choice of units: every function and loop with at least [`UNIT_INSTANCES_MIN`] instances that hold
    /// [`UNIT_OPS_MIN`] operators on average, and together one part in [`UNIT_SHARE_MIN`] of the work. Most work comes first.
    pub fn choose(&self, module: &Module) -> (Units, Vec<Choice>) {
        let enough = |stat: &Stat| {
            stat.instances >= UNIT_INSTANCES_MIN
                && stat.work >= stat.instances.saturating_mul(UNIT_OPS_MIN)
                && stat.work.saturating_mul(UNIT_SHARE_MIN) >= self.work
        };
        let mut chosen: Vec<(Boundary, Stat)> = self.stats().filter(|(_, stat)| enough(stat)).collect();
        chosen.sort_by_key(|(_, stat)| std::cmp::Reverse(stat.work));
        let mut units = Units::default();
        let mut choices = Vec::new();
        for (boundary, stat) in chosen {
            let spec = match boundary {
                Boundary::Loop { func, ordinal } => UnitSpec::Loop(module.func_name(func), Some(ordinal)),
                Boundary::Func(func) | Boundary::Root(func) => UnitSpec::Func(module.func_name(func)),
                Boundary::Site(site) => UnitSpec::Site(module.func_name(site.func), site.offset),
            };
            units.add(boundary);
            units.add_spec(spec.to_string());
            let share = if self.work == 0 { 0.0 } else { stat.work as f64 / self.work as f64 };
            choices.push(Choice { spec: spec.to_string(), instances: stat.instances, work: stat.work, share });
        }
        (units, choices)
    }

    fn begin(&mut self, func: u32, work: u64) {
        self.work = work;
        let index = func as usize;
        if index >= self.funcs.len() {
            self.funcs.resize(index + 1, Stat::default());
        }
        let outermost = self.funcs[index].begin();
        self.activations.push(Activation { func, since: work, outermost, loops: self.open_loops.len() });
    }

    fn end(&mut self, work: u64) {
        self.work = work;
        let Some(activation) = self.activations.pop() else { return };
        self.end_down_to(activation.loops, work);
        self.funcs[activation.func as usize].end(1, activation.outermost, work - activation.since);
    }

    /// Ends the innermost open loop's iterations.
    fn end_iterations(&mut self, work: u64) {
        if let Some(open) = self.open_loops.pop() {
            self.loops[open.stat].1.end(open.iterations, open.outermost, work - open.since);
        }
    }

    /// Where an open loop of this activation is.
    fn find_open(&self, this: LoopRef) -> Option<usize> {
        let floor = self.activations.last().map_or(0, |a| a.loops);
        Some(floor + self.open_loops[floor..].iter().rposition(|open| open.this == this)?)
    }

    /// Ends the iterations of the innermost open loops, until so many are left.
    fn end_down_to(&mut self, left: usize, work: u64) {
        while self.open_loops.len() > left {
            self.end_iterations(work);
        }
    }

    fn stat_of_loop(&mut self, this: LoopRef) -> usize {
        let loops = &mut self.loops;
        *self.loop_index.entry(this).or_insert_with(|| {
            loops.push((this, Stat::default()));
            loops.len() - 1
        })
    }
}

/// Not asked about yet.
const UNKNOWN: u32 = u32::MAX;
/// Any number, or being looked at.
const ANY: u32 = u32::MAX - 1;
/// Calls that are followed when operators are counted.
const DEPTH_MAX: u32 = 16;

/// Which functions are too short to be chosen on any input, found out when they are first called.
#[derive(Default, Debug)]
struct Brief {
    module: Option<Module>,
    /// By function: the operators that one invocation executes at most.
    operators: Vec<u32>,
}

impl Brief {
    #[inline(always)]
    fn is_brief(&mut self, func: u32) -> bool {
        let known = self.operators.get(func as usize).copied().unwrap_or(UNKNOWN);
        let most = if known == UNKNOWN { self.find_out(func) } else { known };
        u64::from(most) < UNIT_OPS_MIN
    }

    #[cold]
    fn find_out(&mut self, func: u32) -> u32 {
        let Some(module) = self.module.clone() else { return ANY };
        self.operators.resize(module.func_count() as usize, UNKNOWN);
        self.most(&module, func, 0)
    }

    /// Every operator without a loop around it is executed at most once.
    fn most(&mut self, module: &Module, func: u32, depth: u32) -> u32 {
        use wasmparser::Operator::*;
        let Some(known) = self.operators.get(func as usize).copied() else { return ANY };
        if known != UNKNOWN || depth > DEPTH_MAX {
            return known.min(ANY);
        }
        self.operators[func as usize] = ANY;
        if module.func_body(func).is_none() {
            return ANY;
        }
        let mut most = 0u32;
        operators(module, func, |operator, _| {
            let operators = match operator {
                Call { function_index } | ReturnCall { function_index } if u64::from(most) < UNIT_OPS_MIN => {
                    self.most(module, function_index, depth + 1).saturating_add(1)
                }
                Loop { .. } | Call { .. } | ReturnCall { .. } | CallIndirect { .. } | ReturnCallIndirect { .. } => ANY,
                CallRef { .. } | ReturnCallRef { .. } => ANY,
                MemoryCopy { .. } | MemoryFill { .. } | MemoryInit { .. } => ANY,
                TableCopy { .. } | TableFill { .. } | TableInit { .. } => ANY,
                _ => 1,
            };
            most = most.saturating_add(operators).min(ANY);
        });
        self.operators[func as usize] = most;
        most
    }
}

impl HostObserver for Profile {}

impl Probe for Profile {
    const ACCESSES: bool = false;

    fn enter(&mut self, func: u32, _args: &[u64], work: u64) {
        self.entries.push(self.activations.len());
        self.begin(func, work);
    }

    fn leave(&mut self, work: u64, _unwound: bool) {
        self.work = work;
        self.brief_calls = 0;
        let floor = self.entries.pop().unwrap_or(0);
        while self.activations.len() > floor {
            self.end(work);
        }
    }

    fn call(&mut self, _site: SiteId, func: u32, _args: &[u64], work: u64) {
        if self.brief_calls > 0 || self.brief.is_brief(func) {
            self.brief_calls += 1;
            return;
        }
        self.begin(func, work);
    }

    fn tail_call(&mut self, _site: SiteId, func: u32, _args: &[u64], work: u64) {
        if self.brief_calls > 0 {
            return;
        }
        self.end(work);
        self.begin(func, work);
    }

    fn ret(&mut self, _results: &[u64], work: u64) {
        if self.brief_calls > 0 {
            self.brief_calls -= 1;
            return;
        }
        self.end(work);
    }

    fn unwind(&mut self, _site: SiteId, work: u64) {
        self.ret(&[], work);
    }

    fn caught(&mut self, _site: SiteId, in_loop: Option<LoopRef>, work: u64) {
        // Brief functions have no loops; what goes on in them is none of those that are open here.
        if self.brief_calls > 0 {
            return;
        }
        let floor = self.activations.last().map_or(0, |a| a.loops);
        while self.open_loops.len() > floor && self.open_loops.last().map(|open| open.this) != in_loop {
            self.end_iterations(work);
        }
    }

    fn repeats_loop(&mut self, this: LoopRef) -> bool {
        let depth = self.activations.len();
        match self.open_loops.last_mut() {
            // Iterations of one loop that follow each other hold together what lies between the first and the end of the last.
            Some(open) if open.this == this && open.depth == depth => {
                open.iterations += 1;
                true
            }
            _ => false,
        }
    }

    fn loop_iter(&mut self, this: LoopRef, work: u64) {
        if let Some(at) = self.find_open(this) {
            self.end_down_to(at + 1, work);
            self.open_loops[at].iterations += 1;
            return;
        }
        let stat = self.stat_of_loop(this);
        let outermost = self.loops[stat].1.begin();
        let depth = self.activations.len();
        self.open_loops.push(OpenLoop { this, stat, iterations: 1, since: work, outermost, depth });
    }

    fn loop_exit(&mut self, this: LoopRef, work: u64) {
        if let Some(at) = self.find_open(this) {
            self.end_down_to(at, work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(profile: &Profile) -> Vec<(Boundary, u64, u64)> {
        profile.stats().map(|(b, s)| (b, s.instances, s.work)).collect()
    }

    #[test]
    fn recursion_counts_outermost_work_once() {
        let mut p = Profile::default();
        p.enter(0, &[], 0);
        p.call(SiteId(1), 1, &[], 10);
        p.call(SiteId(2), 1, &[], 20);
        p.ret(&[], 30);
        p.ret(&[], 50);
        p.ret(&[], 60);
        p.leave(60, false);
        assert_eq!(stats(&p), [(Boundary::Func(0), 1, 60), (Boundary::Func(1), 2, 40)]);
    }

    #[test]
    fn iterations_end_with_the_next_the_exit_the_return_and_the_trap() {
        let (outer, inner) = (LoopRef { func: 0, ordinal: 0 }, LoopRef { func: 0, ordinal: 1 });
        let mut p = Profile::default();
        p.enter(0, &[], 0);
        p.loop_iter(outer, 1);
        p.loop_iter(inner, 2);
        p.loop_iter(inner, 5);
        p.loop_iter(outer, 7);
        p.loop_iter(inner, 8);
        p.loop_exit(inner, 10);
        p.leave(20, true);
        let of = |ordinal| Boundary::Loop { func: 0, ordinal };
        assert_eq!(stats(&p), [(Boundary::Func(0), 1, 20), (of(0), 2, 19), (of(1), 3, 7)]);
    }

    /// Asking first, as the engine does, comes to the same as being told of every iteration.
    #[test]
    fn iterations_that_repeat_need_no_report() {
        let (outer, inner) = (LoopRef { func: 1, ordinal: 0 }, LoopRef { func: 1, ordinal: 1 });
        // Who calls whom, and when: 0 is a return, 1 a call of function 1, others are iterations and exits.
        let events = [1, 2, 2, 3, 3, 3, 2, 3, 5, 3, 2, 1, 2, 2, 1, 3, 3, 0, 2, 0, 2, 4, 2, 1, 3, 0, 3, 3, 0];
        let measured = |asks: bool| {
            let mut p = Profile::default();
            p.enter(0, &[], 0);
            for (event, work) in events.iter().zip((7..).step_by(11)) {
                let mut iterate = |this| {
                    if !(asks && p.repeats_loop(this)) {
                        p.loop_iter(this, work);
                    }
                };
                match event {
                    0 => p.ret(&[], work),
                    1 => p.call(SiteId(1), 1, &[], work),
                    2 => iterate(outer),
                    3 => iterate(inner),
                    4 => p.loop_exit(outer, work),
                    _ => p.loop_exit(inner, work),
                }
            }
            p.leave(1000, true);
            stats(&p)
        };
        assert_eq!(measured(true), measured(false));
        assert_eq!(measured(true).iter().map(|(_, instances, _)| *instances).collect::<Vec<_>>(), [1, 4, 9, 10]);
    }

    #[test]
    fn iterations_and_calls_end_with_exceptions() {
        let (outer, inner) = (LoopRef { func: 0, ordinal: 0 }, LoopRef { func: 0, ordinal: 1 });
        let mut p = Profile::default();
        p.enter(0, &[], 0);
        p.loop_iter(outer, 1);
        p.loop_iter(inner, 2);
        p.call(SiteId(1), 1, &[], 3);
        p.loop_iter(LoopRef { func: 1, ordinal: 0 }, 4);
        p.unwind(SiteId(2), 10);
        p.caught(SiteId(2), Some(outer), 10);
        p.loop_iter(outer, 12);
        p.caught(SiteId(1), None, 15);
        p.unwind(SiteId(1), 20);
        p.leave(20, true);
        let of = |func, ordinal| Boundary::Loop { func, ordinal };
        let expected = [(Boundary::Func(0), 1, 20), (Boundary::Func(1), 1, 7), (of(0, 0), 2, 14), (of(0, 1), 1, 8), (of(1, 0), 1, 6)];
        assert_eq!(stats(&p), expected);
    }

    #[test]
    fn the_choice_follows_the_thresholds() {
        let text = r#"(module (func $main) (func $big) (func $rare) (func $small))"#;
        let module = Module::from_text(&worksp_engine::Engine::new(worksp_engine::Config::default()), text).expect("valid");
        let mut p = Profile::default();
        p.enter(0, &[], 0);
        let mut work = 0;
        for (func, ops, times) in [(1, 30_000, 3), (2, 50_000, 1), (3, 10, 500)] {
            for _ in 0..times {
                p.call(SiteId(1), func, &[], work);
                work += ops;
                p.ret(&[], work);
            }
        }
        p.ret(&[], work);
        p.leave(work, false);
        let (units, choices) = p.choose(&module);
        assert_eq!(units.specs(), ["func:big"]);
        assert_eq!((choices[0].instances, choices[0].work), (3, 90_000));
    }
}
