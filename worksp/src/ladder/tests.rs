//! The fast ladder against the slow one: petgraph for spans, and a walk over the edges themselves for the heaviest path.

use proptest::prelude::*;
use worksp_tracer::trace::{NO_UNIT, Node, Sink, TraceInfo};

use super::*;
use crate::dag::Dag;

const BURDEN: u64 = 7;

/// A node as it is drawn: weight, unit, and edges as (how far back, kind, class).
type Drawn = (u64, u32, Vec<(u32, usize, usize)>);

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let edge = (1..12u32, 0..KINDS.len(), 2..CLASSES.len());
    prop::collection::vec((0..6u64, 0..4u32, prop::collection::vec(edge, 0..8)), 0..40)
}

/// Weights are multiplied by `scale`, so that finish times need wider types.
fn trace_of(drawn: &[Drawn], scale: u64) -> Trace {
    let mut trace = Trace::default();
    let mut work = 0;
    for (number, (weight, unit, edges)) in drawn.iter().enumerate() {
        let mut into: Vec<Edge> = Vec::new();
        for (at, &(back, kind, class)) in edges.iter().enumerate() {
            let Some(from) = (number as u32).checked_sub(back) else { continue };
            let (kind, class) = match KINDS[kind] {
                kind if kind.is_structural() => (kind, EdgeClass::None),
                Result => (Result, EdgeClass::Result),
                kind => (kind, CLASSES[class]),
            };
            into.push(Edge { from, from_site: at as u32, to_site: 0, object: 0, kind, class, place: 0 });
        }
        into.sort_by_key(|e| (e.from, e.kind, e.class));
        into.dedup_by_key(|e| (e.from, e.kind, e.class));
        let unit = if *unit == 0 { NO_UNIT } else { *unit };
        let node = Node { weight: if unit == NO_UNIT { 0 } else { weight * scale }, unit };
        work += node.weight;
        trace.node(node, &into);
    }
    trace.info = TraceInfo { work, ..TraceInfo::default() };
    trace
}

fn span(trace: &Trace, keep: &Keep, burden: u64) -> u64 {
    let lane = Lane { keep: keep.clone(), burden };
    Dag::of(trace, &lane).expect("held in memory").span(&lane).expect("no cycle")
}

fn check(trace: &Trace, ladder: &Ladder) {
    let nodes = trace.to_vec().expect("held in memory");
    for (number, rung) in ladder.rungs.iter().enumerate() {
        let keep = Keep::rung(number);
        assert_eq!(rung.span, span(trace, &keep, 0), "span of {}: {nodes:?}", rung.name);
        assert_eq!(rung.burdened_span, span(trace, &keep, BURDEN), "burdened span of {}: {nodes:?}", rung.name);
        for (class, without) in &rung.leave_one_out {
            assert_eq!(*without, span(trace, &keep.without(*class), 0), "{} without {class:?}: {nodes:?}", rung.name);
        }
        let kept = nodes.iter().flat_map(|(_, edges)| edges).filter(|e| !e.kind.is_structural() && keep.keeps(e.kind, e.class));
        let mut classes: Vec<EdgeClass> = kept.map(|e| e.class.reported()).collect();
        classes.sort_unstable();
        classes.dedup();
        assert_eq!(rung.leave_one_out.iter().map(|(class, _)| *class).collect::<Vec<_>>(), classes, "classes of {}", rung.name);
        let (delays, bottleneck) = slow_path(&nodes, &keep);
        let most = delays.iter().copied().max().unwrap_or(0);
        let binding: Vec<EdgeClass> = CLASSES.into_iter().filter(|c| most > 0 && delays[*c as usize] == most).collect();
        assert_eq!(rung.binding, binding, "what binds {}: {nodes:?}", rung.name);
        assert_eq!(rung.bottleneck, bottleneck, "bottleneck of {}: {nodes:?}", rung.name);
    }
}

/// The delays along the heaviest path by class, and the worst edge, with no set, no lane and no shortcut.
fn slow_path(nodes: &[(Node, Vec<Edge>)], keep: &Keep) -> ([u64; CLASSES.len()], Option<Bottleneck>) {
    let mut finish: Vec<u64> = Vec::new();
    for (node, edges) in nodes {
        finish.push(arrive(keep, node, edges, &finish, |_| true).0);
    }
    let (mut delays, mut bottleneck) = ([0; CLASSES.len()], None::<Bottleneck>);
    let mut next = (0..nodes.len()).max_by_key(|&i| (finish[i], std::cmp::Reverse(i)));
    while let Some(at) = next {
        let (node, edges) = &nodes[at];
        let (all, critical) = arrive(keep, node, edges, &finish, |_| true);
        let kept = || edges.iter().filter(|e| !e.kind.is_structural() && keep.keeps(e.kind, e.class));
        let mut seen = Vec::new();
        for class in kept().map(|e| e.class.reported()) {
            if seen.contains(&class) {
                continue;
            }
            seen.push(class);
            let is_from = |e: &Edge| kept().any(|k| k.from == e.from && k.class.reported() == class);
            let delay = all.saturating_sub(arrive(keep, node, edges, &finish, |e| !is_from(e)).0);
            delays[class as usize] += delay;
            if delay > bottleneck.as_ref().map_or(0, |b| b.delay) {
                let late = kept().filter(|e| e.class.reported() == class).rev().max_by_key(|e| finish[e.from as usize]);
                bottleneck = late.map(|edge| Bottleneck { edge: *edge, to: at as NodeIdx, delay });
            }
        }
        next = critical.map(|edge| edge.from as usize);
    }
    (delays, bottleneck)
}

/// When a node finishes, and because of which edge.
fn arrive(keep: &Keep, node: &Node, edges: &[Edge], finish: &[u64], counts: impl Fn(&Edge) -> bool) -> (u64, Option<Edge>) {
    let (mut start, mut latest) = ((0, None), (0, None));
    for edge in edges {
        let structural = edge.kind.is_structural();
        let counted = structural || (keep.keeps(edge.kind, edge.class) && counts(edge));
        if !counted {
            continue;
        }
        let time = finish[edge.from as usize];
        let side = if keep.replays && !structural && edge.kind != Result { &mut latest } else { &mut start };
        if side.1.is_none() || time > side.0 {
            *side = (time, Some(*edge));
        }
    }
    let early = start.0 + node.weight;
    if latest.0 <= start.0 {
        return (early, start.1);
    }
    (early.max(latest.0) + node.weight, if latest.0 > early { latest.1 } else { start.1 })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(500),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Finish times as `i32`, `f64` and `u64`; sources held and spilled; sets told apart and torn.
    #[test]
    fn the_fast_ladder_is_the_slow_one(drawn in drawn()) {
        for scale in [1, 1 << 30, 1 << 52] {
            let trace = trace_of(&drawn, scale);
            for (held_max, sets_max) in [(usize::MAX, usize::MAX), (1, usize::MAX), (10, 3), (usize::MAX, 1)] {
                let sources = Sources::within(&trace, held_max, sets_max).expect("the file can be written");
                check(&trace, &climb(&trace, &sources, BURDEN).expect("the file can be read"));
            }
        }
    }
}

#[test]
fn times_take_the_narrowest_type_that_fits() {
    let node = |weight| [Node { weight, unit: 1 }];
    let check = |weight, burden, fit| assert_eq!(Fit::of(&node(weight), burden), fit, "{weight} {burden}");
    check(0x3fff_ffff, 1, Fit::I32);
    check(0x3fff_ffff, 2, Fit::F64);
    check(1 << 52, 0, Fit::F64);
    check(1 << 52, 1, Fit::U64);
    check(u64::MAX, u64::MAX, Fit::U64);
}

/// Enough sources for two threads and for a reader to fetch block after block.
#[test]
fn a_long_trace_is_read_by_two_threads() {
    let mut state = 1u32;
    let mut draw = |n: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % n
    };
    let node = |_| {
        let edges = (0..5).map(|_| (1 + draw(1000), draw(7) as usize, 2 + draw(15) as usize)).collect();
        (u64::from(draw(100)), draw(50), edges)
    };
    let drawn: Vec<Drawn> = (0..40_000).map(node).collect();
    let trace = trace_of(&drawn, 1);
    let sources = Sources::within(&trace, 60_000, usize::MAX).expect("the file can be written");
    let ladder = climb(&trace, &sources, BURDEN).expect("the file can be read");
    assert_eq!(ladder, Ladder::of(&trace, BURDEN).expect("held in memory"));
    for number in [1, 7] {
        let keep = Keep::rung(number);
        assert_eq!(ladder.rungs[number].span, span(&trace, &keep, 0), "M{number}");
        assert_eq!(ladder.rungs[number].burdened_span, span(&trace, &keep, BURDEN), "M{number}, burdened");
        let lane = Lane { keep, burden: BURDEN };
        assert_eq!(spans_of(&trace, &[lane]).expect("held in memory"), [ladder.rungs[number].burdened_span]);
    }
}
