//! The ladder: spans of a trace under models that each remove one more class of dependence.
//!
//! ```text
//! rung → which edges it keeps (data) → one pass over the nodes: finish[i] = weight[i] + max(finish[p]) → span, heaviest path
//!
//! Trace ─► Sources ─► pass of M0 to M7 ─► their paths ─► passes without a class, where the path needs it
//!                 └─► pass of M0 to M7, burdened (at the same time)
//! ```
//!
//! All questions of one kind are lanes of one pass: a lane is a table "is an edge of this kind and class kept", and eight lanes
//! are looked at together.

mod passes;
mod path;
mod sources;
#[cfg(test)]
mod tests;

use std::io;

use worksp_tracer::edge::{CLASSES, EdgeClass, EdgeKind, KINDS};
use worksp_tracer::trace::{Check, Checks, Edge, NodeIdx, Trace, Witness};

use passes::{Fit, LANES, Time};
use path::Path;

pub use sources::{Sources, TraceAndSources};

use EdgeClass::{Allocator, Delta, Host, Induction, Output, Reduction, Sp, Stack, StackDead};
use EdgeKind::{Result, War, Waw};

/// Operators charged at each spawn to the child and to the continuation unless told otherwise: Cilkscale's figure.
pub const BURDEN_DEFAULT: u64 = 6250;

/// One rung of the ladder, in terms of the rung above it.
#[derive(Clone, Copy, Debug)]
pub struct RungSpec {
    /// Its name.
    pub name: &'static str,
    /// What it removes, in words.
    pub removes: &'static str,
    /// Which edges it removes from the rung above it.
    removes_edge: fn(EdgeKind, EdgeClass) -> bool,
    /// What must hold for the rung to be valid.
    check: Option<fn(&Checks) -> &Check>,
    /// Whether a late writer makes its reader run again instead of waiting.
    pub replays: bool,
}

/// The rungs from M1 to M7. M0 keeps the structure only and stands apart.
pub const RUNGS: [RungSpec; 7] = [
    RungSpec { name: "M1", removes: "nothing", removes_edge: |_, _| false, check: None, replays: false },
    RungSpec {
        name: "M2",
        removes: "stack pointer, induction, reuse of the stack",
        removes_edge: |kind, class| {
            matches!(class, Sp | Induction | StackDead) || (class == Stack && matches!(kind, War | Waw))
        },
        check: Some(|checks| &checks.stack),
        replays: false,
    },
    RungSpec {
        name: "M3",
        removes: "allocator",
        removes_edge: |_, class| class == Allocator,
        check: Some(|checks| &checks.freed),
        replays: false,
    },
    RungSpec {
        name: "M4",
        removes: "deltas and reductions",
        removes_edge: |_, class| matches!(class, Delta | Reduction),
        check: Some(|checks| &checks.delta),
        replays: false,
    },
    RungSpec { name: "M5", removes: "order of output", removes_edge: |_, class| class == Output, check: None, replays: false },
    RungSpec { name: "M6", removes: "order of host calls", removes_edge: |_, class| class == Host, check: None, replays: false },
    RungSpec {
        name: "M7",
        removes: "all reuse, by ordered speculation",
        removes_edge: |kind, _| matches!(kind, War | Waw),
        check: None,
        replays: true,
    },
];

/// Which edges a model keeps, by kind and class.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Keep {
    kept: [[bool; CLASSES.len()]; KINDS.len()],
    replays: bool,
}

impl Keep {
    /// Only what nests.
    pub fn structure() -> Keep {
        Keep::new(false, |_, _| false)
    }

    /// Everything.
    pub fn everything() -> Keep {
        Keep::new(false, |_, _| true)
    }

    fn new(replays: bool, keeps: impl Fn(EdgeKind, EdgeClass) -> bool) -> Keep {
        let mut kept = [[false; CLASSES.len()]; KINDS.len()];
        for kind in KINDS {
            for class in CLASSES {
                kept[kind as usize][class as usize] = kind.is_structural() || keeps(kind, class);
            }
        }
        Keep { kept, replays }
    }

    /// The model of a rung by its number, M0 to M7.
    pub fn rung(number: usize) -> Keep {
        if number == 0 {
            return Keep::structure();
        }
        let above = &RUNGS[..number];
        let removed = |kind, class| above.iter().any(|r| (r.removes_edge)(kind, class));
        Keep::new(RUNGS[number - 1].replays, |kind, class| kind == Result || !removed(kind, class))
    }

    /// The same without a class (as reports name it).
    pub fn without(&self, class: EdgeClass) -> Keep {
        Keep::new(self.replays, |kind, c| self.keeps(kind, c) && c.reported() != class.reported())
    }

    /// Whether an edge is kept.
    pub fn keeps(&self, kind: EdgeKind, class: EdgeClass) -> bool {
        self.kept[kind as usize][class as usize]
    }

    /// Whether late writers make their readers run again instead of waiting.
    pub fn replays(&self) -> bool {
        self.replays
    }
}

/// One question: a model, and what a spawn costs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lane {
    /// The model.
    pub keep: Keep,
    /// Operators charged at each spawn to the child and to the continuation.
    pub burden: u64,
}

/// What the ladder says about one rung.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rung {
    /// M0 to M7.
    pub name: &'static str,
    /// The heaviest path.
    pub span: u64,
    /// The heaviest path when each spawn is charged.
    pub burdened_span: u64,
    /// Whether its preconditions hold.
    pub validity: Validity,
    /// The classes that delay the heaviest path most; none when nothing does.
    pub binding: Vec<EdgeClass>,
    /// The edge that delays the heaviest path most, with the node that it goes into.
    pub bottleneck: Option<Bottleneck>,
    /// The span without each class that the rung keeps an edge of.
    pub leave_one_out: Vec<(EdgeClass, u64)>,
}

/// The edge on the heaviest path that causes the longest delay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bottleneck {
    /// The edge.
    pub edge: Edge,
    /// The node that it goes into.
    pub to: NodeIdx,
    /// How many operators later the node finishes for it.
    pub delay: u64,
}

/// Whether a rung's preconditions and those of the rungs above it hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Validity {
    /// They do.
    Valid,
    /// At least one was not checked, and none is known not to hold.
    Unchecked,
    /// One does not.
    Invalid(Witness),
}

impl Validity {
    /// The word for it in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Validity::Valid => "valid",
            Validity::Unchecked => "unchecked",
            Validity::Invalid(_) => "invalid",
        }
    }
}

/// The whole ladder of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ladder {
    /// Operators executed.
    pub work: u64,
    /// M0 to M7.
    pub rungs: Vec<Rung>,
}

impl Ladder {
    /// Climbs it.
    ///
    /// # Errors
    /// When edges that did not fit into memory cannot be read back.
    pub fn of(trace: &Trace, burden: u64) -> io::Result<Ladder> {
        Ladder::with(trace, &Sources::of(trace)?, burden)
    }

    /// Climbs it with the trace's sources, which are there already.
    ///
    /// # Errors
    /// As [`Ladder::of`].
    pub fn with(trace: &Trace, sources: &Sources, burden: u64) -> io::Result<Ladder> {
        climb(trace, sources, burden)
    }

    /// Work over span. A run of no work has parallelism 1.
    pub fn parallelism(&self, span: u64) -> f64 {
        if span == 0 { 1.0 } else { self.work as f64 / span as f64 }
    }
}

/// M0 to M7 first, plain and burdened at the same time; then without each class that a heaviest path needs.
fn climb(trace: &Trace, sources: &Sources, burden: u64) -> io::Result<Ladder> {
    let (nodes, present) = (trace.nodes(), Present::of(sources));
    let keeps: Vec<Keep> = (0..=RUNGS.len()).map(|number| present.restrict(&Keep::rung(number))).collect();
    let mut plain = Lanes::default();
    let lane_of: Vec<usize> = keeps.iter().map(|keep| plain.add(keep.clone())).collect();
    let burdened: Vec<Lane> = plain.0.iter().map(|lane| Lane { burden, ..lane.clone() }).collect();
    let (climbs, burdened) = passes::both(
        sources,
        || plain.0.chunks(LANES).map(|group| climb_group(trace, sources, group)).collect::<io::Result<Vec<_>>>(),
        || passes::spans_in_turn(sources, nodes, &burdened),
    );
    let (climbs, burdened) = (climbs?.concat(), burdened?);

    let mut others = Lanes::default();
    let left_out: Vec<Vec<(EdgeClass, Option<usize>)>> = keeps
        .iter()
        .zip(&lane_of)
        .map(|(keep, lane)| {
            let path = &climbs[*lane].path;
            // Where fewer edges mean no later finish, a path that still stands is still the heaviest.
            let is_same = |class| !keep.replays && path.stands_without(class);
            let classes = present.classes_of(keep).into_iter();
            classes.map(|class| (class, (!is_same(class)).then(|| others.add(present.restrict(&keep.without(class)))))).collect()
        })
        .collect();
    let spans = passes::spans(sources, nodes, &others.0)?;

    let validities = validities(&keeps, &trace.info.checks);
    let rungs = lane_of.iter().zip(left_out).zip(validities).enumerate().map(|(number, ((&lane, left_out), validity))| {
        let Climb { span, path, bottleneck } = &climbs[lane];
        Rung {
            name: if number == 0 { "M0" } else { RUNGS[number - 1].name },
            span: *span,
            burdened_span: burdened[lane],
            validity,
            binding: path.binding(),
            bottleneck: bottleneck.clone(),
            leave_one_out: left_out.into_iter().map(|(class, other)| (class, other.map_or(*span, |other| spans[other]))).collect(),
        }
    });
    Ok(Ladder { work: trace.info.work, rungs: rungs.collect() })
}

/// The span of a model, and its heaviest path.
#[derive(Clone)]
struct Climb {
    span: u64,
    path: Path,
    bottleneck: Option<Bottleneck>,
}

/// Up to eight models without burden.
fn climb_group(trace: &Trace, sources: &Sources, lanes: &[Lane]) -> io::Result<Vec<Climb>> {
    match Fit::of(trace.nodes(), 0) {
        Fit::I32 => climb_group_in::<i32>(trace, sources, lanes),
        Fit::F64 => climb_group_in::<f64>(trace, sources, lanes),
        Fit::U64 => climb_group_in::<u64>(trace, sources, lanes),
    }
}

fn climb_group_in<T: Time>(trace: &Trace, sources: &Sources, lanes: &[Lane]) -> io::Result<Vec<Climb>> {
    let mut finish = Vec::new();
    passes::finish_into::<T>(&mut finish, sources, trace.nodes(), lanes)?;
    let paths = path::heaviest_paths(trace, sources, lanes, &finish)?;
    let spans = passes::latest(&finish, lanes.len());
    Ok(spans.into_iter().zip(paths).map(|(span, (path, bottleneck))| Climb { span, path, bottleneck }).collect())
}

/// The spans of a trace in any number of lanes.
///
/// # Errors
/// As [`Ladder::of`].
pub fn spans_of(trace: &Trace, lanes: &[Lane]) -> io::Result<Vec<u64>> {
    passes::spans(&Sources::of(trace)?, trace.nodes(), lanes)
}

/// Which kinds and classes a trace has at all: models that differ in nothing else are one lane.
struct Present([[bool; CLASSES.len()]; KINDS.len()]);

impl Present {
    fn of(sources: &Sources) -> Present {
        let mut present = [[false; CLASSES.len()]; KINDS.len()];
        for (kind, class) in sources.sets.iter().flat_map(|set| set.edges()) {
            present[kind as usize][class as usize] = true;
        }
        Present(present)
    }

    fn restrict(&self, keep: &Keep) -> Keep {
        Keep::new(keep.replays, |kind, class| keep.keeps(kind, class) && self.0[kind as usize][class as usize])
    }

    /// The classes of which the model keeps an edge.
    fn classes_of(&self, keep: &Keep) -> Vec<EdgeClass> {
        let kept = |class: EdgeClass| {
            KINDS.iter().any(|&kind| !kind.is_structural() && keep.keeps(kind, class) && self.0[kind as usize][class as usize])
        };
        let mut classes: Vec<EdgeClass> = CLASSES.into_iter().filter(|c| kept(*c)).map(EdgeClass::reported).collect();
        classes.dedup();
        classes
    }
}

/// Distinct models.
#[derive(Default)]
struct Lanes(Vec<Lane>);

impl Lanes {
    fn add(&mut self, keep: Keep) -> usize {
        match self.0.iter().position(|lane| lane.keep == keep) {
            Some(at) => at,
            None => {
                self.0.push(Lane { keep, burden: 0 });
                self.0.len() - 1
            }
        }
    }
}

/// Valid: nothing was removed, or what was removed was checked; and so were the rungs above.
fn validities(keeps: &[Keep], checks: &Checks) -> Vec<Validity> {
    let mut so_far = Validity::Valid;
    let mut all = vec![Validity::Valid];
    for (spec, pair) in RUNGS.iter().zip(keeps.windows(2)) {
        let removes = pair[0] != Keep::structure() && pair[0] != pair[1];
        if let (true, Some(check), true) = (removes, spec.check, !matches!(so_far, Validity::Invalid(_))) {
            so_far = match check(checks) {
                Check::Holds => so_far,
                Check::Unchecked => Validity::Unchecked,
                Check::Violated(witness) => Validity::Invalid(witness.clone()),
            };
        }
        all.push(so_far.clone());
    }
    all
}

