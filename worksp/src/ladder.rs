//! The ladder: spans of a trace under models that each remove one more class of dependence.
//!
//! ```text
//! rung → which edges it keeps (data) → one pass over the nodes: finish[i] = weight[i] + max(finish[p]) → span, heaviest path
//! ```
//!
//! All questions of one kind are lanes of one pass: a lane is a table "is an edge of this kind and class kept", and eight lanes
//! are looked at together.

use std::io;

use worksp_tracer::edge::{CLASSES, EdgeClass, EdgeKind, KINDS};
use worksp_tracer::trace::{Check, Checks, Edge, Node, NodeIdx, Trace, Witness};

use EdgeClass::{Allocator, Delta, Host, Induction, Output, Reduction, Sp, Stack, StackDead};
use EdgeKind::{Order, Result, Spawn, War, Waw};

/// Operators charged at each spawn to the child and to the continuation unless told otherwise: Cilkscale's figure.
pub const BURDEN_DEFAULT: u64 = 6250;
/// Edges below which one thread is faster than several.
const SMALL: u64 = 100_000;
/// Lanes that one pass looks at together.
const LANES: usize = 8;

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
        let present = Present::of(trace)?;
        let keeps: Vec<Keep> = (0..=RUNGS.len()).map(Keep::rung).collect();
        let mut lanes = Lanes::default();
        let plain: Vec<usize> = keeps.iter().map(|k| lanes.add(&present, k.clone(), 0)).collect();
        let burdened: Vec<usize> = keeps.iter().map(|k| lanes.add(&present, k.clone(), burden)).collect();
        let left_out: Vec<Vec<(EdgeClass, usize)>> = keeps
            .iter()
            .map(|keep| {
                let classes = present.classes_of(keep);
                classes.into_iter().map(|class| (class, lanes.add(&present, keep.without(class), 0))).collect()
            })
            .collect();
        let spans = lanes.spans(trace)?;
        let validities = validities(&present, &keeps, &trace.info.checks);
        let paths = heaviest_paths(trace, &keeps)?;
        let rungs = keeps.iter().zip(paths).enumerate().map(|(number, (_, path))| {
            Rung {
                name: if number == 0 { "M0" } else { RUNGS[number - 1].name },
                span: spans[plain[number]],
                burdened_span: spans[burdened[number]],
                validity: validities[number].clone(),
                binding: path.binding(),
                bottleneck: path.bottleneck,
                leave_one_out: left_out[number].iter().map(|&(class, lane)| (class, spans[lane])).collect(),
            }
        });
        Ok(Ladder { work: trace.info.work, rungs: rungs.collect() })
    }

    /// Work over span. A run of no work has parallelism 1.
    pub fn parallelism(&self, span: u64) -> f64 {
        if span == 0 { 1.0 } else { self.work as f64 / span as f64 }
    }
}

/// Which kinds and classes a trace has at all: models that differ in nothing else are one lane.
struct Present([[bool; CLASSES.len()]; KINDS.len()]);

impl Present {
    fn of(trace: &Trace) -> io::Result<Present> {
        let mut present = [[false; CLASSES.len()]; KINDS.len()];
        trace.for_each(|_, edges| {
            for edge in edges {
                present[edge.kind as usize][edge.class as usize] = true;
            }
        })?;
        Ok(Present(present))
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

/// Valid: nothing was removed, or what was removed was checked; and so were the rungs above.
fn validities(present: &Present, keeps: &[Keep], checks: &Checks) -> Vec<Validity> {
    let mut so_far = Validity::Valid;
    let mut all = vec![Validity::Valid];
    for (spec, pair) in RUNGS.iter().zip(keeps.windows(2)) {
        let removes = pair[0] != Keep::structure() && present.restrict(&pair[0]) != present.restrict(&pair[1]);
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

/// Distinct questions.
#[derive(Default)]
struct Lanes {
    lanes: Vec<Lane>,
}

impl Lanes {
    fn add(&mut self, present: &Present, keep: Keep, burden: u64) -> usize {
        let lane = Lane { keep: present.restrict(&keep), burden };
        match self.lanes.iter().position(|l| *l == lane) {
            Some(at) => at,
            None => {
                self.lanes.push(lane);
                self.lanes.len() - 1
            }
        }
    }

    fn spans(&self, trace: &Trace) -> io::Result<Vec<u64>> {
        let groups: Vec<&[Lane]> = self.lanes.chunks(LANES).collect();
        if trace.edges_count() < SMALL {
            let spans: io::Result<Vec<Vec<u64>>> = groups.iter().map(|group| spans_of(trace, group)).collect();
            return Ok(spans?.concat());
        }
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(groups.len().max(1));
        let mut spans: Vec<io::Result<Vec<u64>>> = groups.iter().map(|_| Ok(Vec::new())).collect();
        std::thread::scope(|scope| {
            let per_worker = groups.len().div_ceil(workers).max(1);
            for (groups, spans) in groups.chunks(per_worker).zip(spans.chunks_mut(per_worker)) {
                scope.spawn(move || {
                    for (group, span) in groups.iter().zip(spans) {
                        *span = spans_of(trace, group);
                    }
                });
            }
        });
        Ok(spans.into_iter().collect::<io::Result<Vec<_>>>()?.concat())
    }
}

/// Finish times of one node in all lanes of a group, or the latest of several.
type Times = [u64; LANES];

/// For every kind and class, all ones in the lanes that keep such an edge.
struct Masks {
    kept: Vec<Times>,
    burden: Times,
    replays: [bool; LANES],
}

impl Masks {
    fn of(lanes: &[Lane]) -> Masks {
        let mut masks =
            Masks { kept: vec![[0; LANES]; KINDS.len() * CLASSES.len()], burden: [0; LANES], replays: [false; LANES] };
        for (i, lane) in lanes.iter().enumerate() {
            masks.burden[i] = lane.burden;
            masks.replays[i] = lane.keep.replays;
            for kind in KINDS {
                for class in CLASSES {
                    let kept = lane.keep.keeps(kind, class);
                    masks.kept[kind as usize * CLASSES.len() + class as usize][i] = if kept { u64::MAX } else { 0 };
                }
            }
        }
        masks
    }

    #[inline(always)]
    fn of_edge(&self, edge: &Edge) -> &Times {
        &self.kept[edge.kind as usize * CLASSES.len() + edge.class as usize]
    }
}

/// The spans of a trace in up to eight lanes, in one pass.
///
/// # Errors
/// As [`Ladder::of`].
pub fn spans_of(trace: &Trace, lanes: &[Lane]) -> io::Result<Vec<u64>> {
    let mut span: Times = [0; LANES];
    for times in finish_of(trace, lanes)? {
        for i in 0..LANES {
            span[i] = span[i].max(times[i]);
        }
    }
    Ok(span[..lanes.len()].to_vec())
}

/// When every node finishes in up to eight lanes.
fn finish_of(trace: &Trace, lanes: &[Lane]) -> io::Result<Vec<Times>> {
    assert!(lanes.len() <= LANES, "at most {LANES} lanes in one pass");
    let masks = Masks::of(lanes);
    let any_replays = masks.replays.contains(&true);
    let nodes = trace.nodes();
    let mut finish: Vec<Times> = Vec::with_capacity(nodes.len());
    trace.for_each(|node, edges| {
        let mut start: Times = [0; LANES];
        let mut latest_writer: Times = [0; LANES];
        for edge in edges {
            let from = &finish[edge.from as usize];
            if edge.kind.is_structural() {
                let charged = is_charged(edge, &node, nodes);
                for i in 0..LANES {
                    start[i] = start[i].max(from[i] + if charged { masks.burden[i] } else { 0 });
                }
                continue;
            }
            let kept = masks.of_edge(edge);
            if any_replays && edge.kind != Result {
                for i in 0..LANES {
                    let time = from[i] & kept[i];
                    latest_writer[i] = latest_writer[i].max(time);
                    start[i] = start[i].max(if masks.replays[i] { 0 } else { time });
                }
            } else {
                for i in 0..LANES {
                    start[i] = start[i].max(from[i] & kept[i]);
                }
            }
        }
        let mut time: Times = [0; LANES];
        for i in 0..LANES {
            time[i] = start[i] + node.weight;
            if masks.replays[i] && latest_writer[i] > start[i] {
                time[i] = time[i].max(latest_writer[i]) + node.weight;
            }
        }
        finish.push(time);
    })?;
    Ok(finish)
}

/// Whether a spawn is charged on this edge: from parent to child, and from parent to its own continuation.
#[inline(always)]
fn is_charged(edge: &Edge, to: &Node, nodes: &[Node]) -> bool {
    match edge.kind {
        Spawn => true,
        Order => nodes[edge.from as usize].unit == to.unit,
        _ => false,
    }
}

/// The heaviest path, summed up.
#[derive(Default)]
struct Path {
    /// By reported class: the delay that its edges cause along the path.
    delays: [u64; CLASSES.len()],
    bottleneck: Option<Bottleneck>,
}

impl Path {
    fn binding(&self) -> Vec<EdgeClass> {
        let most = self.delays.iter().copied().max().unwrap_or(0);
        if most == 0 {
            return Vec::new();
        }
        CLASSES.into_iter().filter(|c| self.delays[*c as usize] == most).collect()
    }
}

/// The heaviest path of every rung. As many rungs share a pass as there are lanes.
fn heaviest_paths(trace: &Trace, keeps: &[Keep]) -> io::Result<Vec<Path>> {
    let lanes: Vec<Lane> = keeps.iter().map(|keep| Lane { keep: keep.clone(), burden: 0 }).collect();
    let mut paths = Vec::new();
    for group in lanes.chunks(LANES) {
        let finish = finish_of(trace, group)?;
        for (i, lane) in group.iter().enumerate() {
            paths.push(heaviest_path(trace, lane, &|node: NodeIdx| finish[node as usize][i])?);
        }
    }
    Ok(paths)
}

/// Walks the heaviest path of a lane backwards and sums the delay that each class causes along it: how much earlier a node would
/// finish but for the predecessors that it has an edge of the class from. A predecessor of two classes counts for both, so that
/// both bind; a structural one counts for none. Where two predecessors finish at the same time, the path goes through the earlier.
fn heaviest_path(trace: &Trace, lane: &Lane, finish: &impl Fn(NodeIdx) -> u64) -> io::Result<Path> {
    let mut path = Path::default();
    let mut cursor = trace.cursor();
    let nodes = 0..trace.nodes().len();
    let Some(mut at) = nodes.max_by_key(|&i| (finish(i as NodeIdx), std::cmp::Reverse(i))) else { return Ok(path) };
    loop {
        let edges = cursor.edges_into(at as NodeIdx)?;
        let node = trace.nodes()[at];
        let all = arrive(trace, lane, &node, edges, finish, |_| true);
        for (class, sources) in sources_by_class(lane, edges) {
            let other = arrive(trace, lane, &node, edges, finish, |e| sources.binary_search(&e.from).is_err());
            // A replay may be caused by an early start, so at M7 an edge can also be a gain.
            let delay = all.finish.saturating_sub(other.finish);
            path.delays[class as usize] += delay;
            if delay > path.bottleneck.as_ref().map_or(0, |b| b.delay) {
                let is_late = |e: &&Edge| e.class.reported() == class && lane.keep.keeps(e.kind, e.class);
                let late = edges.iter().filter(is_late).rev().max_by_key(|e| finish(e.from));
                path.bottleneck = late.map(|edge| Bottleneck { edge: *edge, to: at as NodeIdx, delay });
            }
        }
        match all.critical {
            Some(edge) => at = edge.from as usize,
            None => return Ok(path),
        }
    }
}

/// The classes of the kept edges into a node, as reports name them, each with the nodes that its edges come from, in order.
fn sources_by_class(lane: &Lane, edges: &[Edge]) -> Vec<(EdgeClass, Vec<NodeIdx>)> {
    let mut sources: Vec<(EdgeClass, Vec<NodeIdx>)> = Vec::new();
    for edge in edges.iter().filter(|e| !e.kind.is_structural() && lane.keep.keeps(e.kind, e.class)) {
        let class = edge.class.reported();
        match sources.iter_mut().find(|(c, _)| *c == class) {
            Some((_, from)) if from.last() == Some(&edge.from) => {}
            Some((_, from)) => from.push(edge.from),
            None => sources.push((class, vec![edge.from])),
        }
    }
    sources
}

/// When a node finishes, and because of which edge.
struct Arrival {
    finish: u64,
    critical: Option<Edge>,
}

/// The rule of a model for one node, over the edges that `counts` lets through; structural ones always count.
fn arrive(
    trace: &Trace,
    lane: &Lane,
    node: &Node,
    edges: &[Edge],
    finish: &impl Fn(NodeIdx) -> u64,
    counts: impl Fn(&Edge) -> bool,
) -> Arrival {
    let (mut start, mut latest) = ((0, None), (0, None));
    for edge in edges {
        let structural = edge.kind.is_structural();
        if !structural && !(lane.keep.keeps(edge.kind, edge.class) && counts(edge)) {
            continue;
        }
        let charge = if is_charged(edge, node, trace.nodes()) { lane.burden } else { 0 };
        let time = finish(edge.from) + charge;
        let side = if lane.keep.replays && !structural && edge.kind != Result { &mut latest } else { &mut start };
        // Edges come in the order of their sources, so the earlier of two equal ones stays.
        if side.1.is_none() || time > side.0 {
            *side = (time, Some(*edge));
        }
    }
    let early = start.0 + node.weight;
    if latest.0 <= start.0 {
        return Arrival { finish: early, critical: start.1 };
    }
    let critical = if latest.0 > early { latest.1 } else { start.1 };
    Arrival { finish: early.max(latest.0) + node.weight, critical }
}
