//! One pass over the nodes: when each finishes in up to eight lanes, and so the span of every lane.

use std::io;
use std::ops::Add;

use worksp_engine::parallel;
use worksp_tracer::edge::EdgeKind;
use worksp_tracer::hints::large_list;
use worksp_tracer::trace::Node;

use super::sources::{EdgeSet, Sources, parts};
use super::{Keep, Lane};

/// Lanes that one pass looks at together: at most a cache line of finish times.
pub(super) const LANES: usize = 8;
/// Sources below which one thread is faster than several.
const SMALL: u64 = 100_000;

/// A finish time. Passes wait for memory, so the narrowest type that fits is the fastest; `f64` is exact up to 2^53, and processors
/// have the maximum of two of them as one instruction, unlike that of `u64`.
pub(super) trait Time: Copy + Default + PartialOrd + Add<Output = Self> + Send + Sync {
    /// What [`Time::keep`] lets pass.
    const ALL: Self;

    fn of(ops: u64) -> Self;
    fn ops(self) -> u64;
    /// The time itself for `ALL`, 0 for 0.
    fn keep(self, mask: Self) -> Self;

    #[inline(always)]
    fn later(self, other: Self) -> Self {
        if self > other { self } else { other }
    }
}

macro_rules! time {
    ($time:ty, $all:expr, $keep:expr) => {
        impl Time for $time {
            const ALL: $time = $all;

            #[inline(always)]
            fn of(ops: u64) -> $time {
                ops as $time
            }

            #[inline(always)]
            fn ops(self) -> u64 {
                self as u64
            }

            #[inline(always)]
            fn keep(self, mask: $time) -> $time {
                $keep(self, mask)
            }
        }
    };
}
time!(i32, -1, |time: i32, mask: i32| time & mask);
time!(f64, 1.0, |time: f64, mask: f64| time * mask);
time!(u64, u64::MAX, |time: u64, mask: u64| time & mask);

/// The type that finish times fit into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fit {
    I32,
    F64,
    U64,
}

impl Fit {
    /// Even if every segment ran twice and every node were charged for a spawn.
    pub(super) fn of(nodes: &[Node], burden: u64) -> Fit {
        let of_node = |node: &Node| 2 * u128::from(node.weight) + u128::from(burden);
        match nodes.iter().map(of_node).sum::<u128>() {
            ..0x8000_0000 => Fit::I32,
            0x8000_0000..=0x20_0000_0000_0000 => Fit::F64,
            _ => Fit::U64,
        }
    }
}

/// Finish times of one node in all lanes of a group, or the latest of several.
pub(super) type Times<T> = [T; LANES];

/// Whether a node waits for the source of such an edge; otherwise it runs again when the source is late.
pub(super) fn waits(keep: &Keep, kind: EdgeKind) -> bool {
    !keep.replays || kind.is_structural() || kind == EdgeKind::Result
}

/// What a set of edges does in every lane of a group: [`Time::ALL`] where an edge is kept, and 0 where none is.
struct Kept<T> {
    /// The node waits for the source.
    start: Times<T>,
    /// The node runs again when the source is late.
    late: Times<T>,
    burden: Times<T>,
}

impl<T: Time> Kept<T> {
    fn of(set: EdgeSet, lanes: &[Lane]) -> Kept<T> {
        let mut kept = Kept { start: [T::default(); LANES], late: [T::default(); LANES], burden: [T::default(); LANES] };
        for (i, Lane { keep, burden }) in lanes.iter().enumerate() {
            for (kind, _) in set.edges().filter(|&(kind, class)| keep.keeps(kind, class)) {
                let side = if waits(keep, kind) { &mut kept.start } else { &mut kept.late };
                side[i] = T::ALL;
            }
            kept.burden[i] = T::of(if set.is_charged() { *burden } else { 0 });
        }
        kept
    }
}

/// Writes to `finish` when every node finishes in up to eight lanes.
pub(super) fn finish_into<T: Time>(
    finish: &mut Vec<Times<T>>,
    sources: &Sources,
    nodes: &[Node],
    lanes: &[Lane],
) -> io::Result<()> {
    assert!(lanes.len() <= LANES, "at most {LANES} lanes in one pass");
    match (lanes.iter().any(|l| l.burden > 0), lanes.iter().any(|l| l.keep.replays)) {
        (false, false) => pass::<T, false, false>(finish, sources, nodes, lanes),
        (false, true) => pass::<T, false, true>(finish, sources, nodes, lanes),
        (true, false) => pass::<T, true, false>(finish, sources, nodes, lanes),
        (true, true) => pass::<T, true, true>(finish, sources, nodes, lanes),
    }
}

fn pass<T: Time, const BURDENED: bool, const REPLAYS: bool>(
    finish: &mut Vec<Times<T>>,
    sources: &Sources,
    nodes: &[Node],
    lanes: &[Lane],
) -> io::Result<()> {
    let kept: Vec<Kept<T>> = sources.sets.iter().map(|set| Kept::of(*set, lanes)).collect();
    finish.clear();
    if finish.capacity() < nodes.len() {
        *finish = large_list(nodes.len());
    }
    sources.for_each(|node, sources| {
        let (mut start, mut latest) = ([T::default(); LANES], [T::default(); LANES]);
        for source in sources {
            let (from, set) = parts(source);
            let (done, kept) = (&finish[from as usize], &kept[set as usize]);
            for i in 0..LANES {
                let mut time = done[i].keep(kept.start[i]);
                if BURDENED {
                    time = time + kept.burden[i];
                }
                start[i] = start[i].later(time);
                if REPLAYS {
                    latest[i] = latest[i].later(done[i].keep(kept.late[i]));
                }
            }
        }
        let weight = T::of(nodes[node].weight);
        let mut time = start.map(|start| start + weight);
        for i in 0..LANES {
            if REPLAYS && latest[i] > start[i] {
                time[i] = time[i].later(latest[i]) + weight;
            }
        }
        finish.push(time);
    })
}

/// The latest finish in each lane.
pub(super) fn latest<T: Time>(finish: &[Times<T>], lanes: usize) -> Vec<u64> {
    let mut span = [T::default(); LANES];
    for times in finish {
        for i in 0..LANES {
            span[i] = span[i].later(times[i]);
        }
    }
    span[..lanes].iter().map(|time| time.ops()).collect()
}

/// The spans of any number of lanes, one group after the other.
pub(super) fn spans_in_turn(sources: &Sources, nodes: &[Node], lanes: &[Lane]) -> io::Result<Vec<u64>> {
    let burden = lanes.iter().map(|lane| lane.burden).max().unwrap_or(0);
    match Fit::of(nodes, burden) {
        Fit::I32 => spans_in::<i32>(sources, nodes, lanes),
        Fit::F64 => spans_in::<f64>(sources, nodes, lanes),
        Fit::U64 => spans_in::<u64>(sources, nodes, lanes),
    }
}

fn spans_in<T: Time>(sources: &Sources, nodes: &[Node], lanes: &[Lane]) -> io::Result<Vec<u64>> {
    let (mut finish, mut spans) = (Vec::new(), Vec::new());
    for group in lanes.chunks(LANES) {
        finish_into::<T>(&mut finish, sources, nodes, group)?;
        spans.extend(latest(&finish, group.len()));
    }
    Ok(spans)
}

/// The spans of any number of lanes.
pub(super) fn spans(sources: &Sources, nodes: &[Node], lanes: &[Lane]) -> io::Result<Vec<u64>> {
    let half = (lanes.len().div_ceil(LANES).div_ceil(2) * LANES).min(lanes.len());
    let (one, other) = lanes.split_at(half);
    let (one, other) = both(sources, || spans_in_turn(sources, nodes, one), || spans_in_turn(sources, nodes, other));
    Ok([one?, other?].concat())
}

/// Two questions at the same time, unless they are answered faster than a thread is started. More than two would be faster still,
/// but each holds the finish times of all nodes.
pub(super) fn both<A: Send, B: Send>(sources: &Sources, one: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
    if sources.len() < SMALL {
        return (one(), other());
    }
    parallel::both(one, other)
}
