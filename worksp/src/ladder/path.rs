//! The heaviest path of every rung: what binds it, and which edge delays it most.

use std::io;
use std::ops::Range;

use worksp_tracer::edge::{CLASSES, EdgeClass};
use worksp_tracer::trace::{Node, NodeIdx, Trace};

use super::passes::{LANES, Time, Times, both, waits};
use super::sources::{EdgeSet, Source, Sources, parts};
use super::{Bottleneck, Keep, Lane};

/// A set of reported classes.
type Classes = u32;
const _: () = assert!(CLASSES.len() <= Classes::BITS as usize);

/// The heaviest path, summed up.
#[derive(Clone, Default)]
pub(super) struct Path {
    /// By reported class: the delay that its edges cause along the path.
    delays: [u64; CLASSES.len()],
    /// The node with the longest delay, the classes that cause as much of it each, and the delay.
    worst: Option<(NodeIdx, Classes, u64)>,
    /// The classes without which the path would break.
    needs: Classes,
    /// Where the walk stands.
    at: Option<NodeIdx>,
}

impl Path {
    /// The classes that delay the path most; none when nothing does.
    pub(super) fn binding(&self) -> Vec<EdgeClass> {
        let most = self.delays.iter().copied().max().unwrap_or(0);
        if most == 0 {
            return Vec::new();
        }
        CLASSES.into_iter().filter(|c| self.delays[*c as usize] == most).collect()
    }

    /// Whether the path still stands when a class (as reports name it) is left out, so that the span stays what it is.
    pub(super) fn stands_without(&self, class: EdgeClass) -> bool {
        self.needs & bit(class) == 0
    }

    /// Of the class that comes first among the worst, the edge from the source that finishes last; of several, from the earliest.
    fn bottleneck<T: Time>(&self, trace: &Trace, keep: &Keep, finish: impl Fn(NodeIdx) -> T) -> io::Result<Option<Bottleneck>> {
        let Some((to, classes, delay)) = self.worst else { return Ok(None) };
        let mut cursor = trace.cursor();
        let edges = cursor.edges_into(to)?;
        let mut kept = edges.iter().filter(|e| !e.kind.is_structural() && keep.keeps(e.kind, e.class));
        let Some(class) = kept.clone().map(|e| e.class.reported()).find(|class| classes & bit(*class) != 0) else {
            return Ok(None);
        };
        let Some(mut late) = kept.find(|e| e.class.reported() == class) else { return Ok(None) };
        for edge in kept.filter(|e| e.class.reported() == class) {
            if finish(edge.from) > finish(late.from) {
                late = edge;
            }
        }
        Ok(Some(Bottleneck { edge: *late, to, delay }))
    }
}

fn bit(class: EdgeClass) -> Classes {
    1 << class as u32
}

/// What a set of edges does in a model.
#[derive(Default)]
struct Kept {
    structural: bool,
    /// The node waits for the source.
    start: bool,
    /// The node runs again when the source is late.
    late: bool,
    classes: Classes,
}

impl Kept {
    fn of(set: EdgeSet, keep: &Keep) -> Kept {
        let mut kept = Kept::default();
        for (kind, class) in set.edges().filter(|&(kind, class)| keep.keeps(kind, class)) {
            if waits(keep, kind) {
                kept.start = true;
            } else {
                kept.late = true;
            }
            if kind.is_structural() {
                kept.structural = true;
            } else {
                kept.classes |= bit(class.reported());
            }
        }
        kept
    }
}

/// A source of the node that the walk is at.
struct Arrival<T> {
    from: NodeIdx,
    time: T,
    structural: bool,
    start: bool,
    late: bool,
    classes: Classes,
}

/// When a node finishes, and because of which source.
struct Finish<T> {
    time: T,
    /// The source, and the classes that bind the node to it.
    critical: Option<(NodeIdx, Classes)>,
    /// The only classes without which the node could finish at another time.
    bound: Classes,
}

/// Walks the heaviest path of one model backwards.
struct Walk<'a, T> {
    keep: &'a Keep,
    lane: usize,
    kept: Vec<Kept>,
    /// By set, the classes that bind a node to its source: none where the edges are structural; `None` where none is kept.
    classes_of_set: Vec<Option<Classes>>,
    /// Whether the latest source decides: there are no replays, and no source stands twice.
    is_plain: bool,
    path: Path,
    arrivals: Vec<Arrival<T>>,
}

/// The heaviest paths of up to eight lanes without burden, whose finish times are given.
///
/// Along a path the delay that each class causes is summed up: how much earlier a node would finish but for the predecessors that
/// it has an edge of the class from. A predecessor of two classes counts for both, so that both bind; a structural one counts for
/// none. Where two predecessors finish at the same time, the path goes through the earlier.
pub(super) fn heaviest_paths<T: Time>(
    trace: &Trace,
    sources: &Sources,
    lanes: &[Lane],
    finish: &[Times<T>],
) -> io::Result<Vec<(Path, Option<Bottleneck>)>> {
    assert!(lanes.len() <= LANES, "at most {LANES} lanes in one pass");
    let half = lanes.len().div_ceil(2);
    let (one, other) = both(
        sources,
        || walk_back(trace, sources, lanes, 0..half, finish),
        || walk_back(trace, sources, lanes, half..lanes.len(), finish),
    );
    Ok([one?, other?].concat())
}

/// One walk from the last node to the first, along the paths of these lanes.
fn walk_back<T: Time>(
    trace: &Trace,
    sources: &Sources,
    lanes: &[Lane],
    of: Range<usize>,
    finish: &[Times<T>],
) -> io::Result<Vec<(Path, Option<Bottleneck>)>> {
    let nodes = trace.nodes();
    let mut walks: Vec<Walk<'_, T>> = of.map(|i| Walk::new(sources, &lanes[i].keep, i, finish)).collect();
    let wants = |walks: &Vec<Walk<'_, T>>, node: usize| walks.iter().any(|w| w.path.at == Some(node as NodeIdx));
    sources.for_each_back(&mut walks, wants, |walks, node, sources| {
        for walk in walks.iter_mut().filter(|w| w.path.at == Some(node as NodeIdx)) {
            walk.step(&nodes[node], sources, finish);
        }
    })?;
    let ended = walks.into_iter().map(|walk| {
        let bottleneck = walk.path.bottleneck(trace, walk.keep, |node| finish[node as usize][walk.lane])?;
        Ok((walk.path, bottleneck))
    });
    ended.collect()
}

impl<'a, T: Time> Walk<'a, T> {
    fn new(sources: &Sources, keep: &'a Keep, lane: usize, finish: &[Times<T>]) -> Walk<'a, T> {
        let kept: Vec<Kept> = sources.sets.iter().map(|set| Kept::of(*set, keep)).collect();
        let classes_of = |kept: &Kept| (kept.start || kept.late).then_some(if kept.structural { 0 } else { kept.classes });
        let classes_of_set = kept.iter().map(classes_of).collect();
        let mut last: Option<(T, usize)> = None;
        for (node, times) in finish.iter().enumerate() {
            if last.is_none_or(|(time, _)| times[lane] > time) {
                last = Some((times[lane], node));
            }
        }
        let path = Path { at: last.map(|(_, node)| node as NodeIdx), ..Path::default() };
        let is_plain = !keep.replays && !sources.has_torn;
        Walk { keep, lane, kept, classes_of_set, is_plain, path, arrivals: Vec::new() }
    }

    fn step(&mut self, node: &Node, sources: &[Source], finish: &[Times<T>]) {
        let at = self.path.at.expect("the walk goes on");
        if !self.is_plain {
            self.arrive(sources, finish);
        }
        let all = self.finish(node, sources, finish, 0);
        let (mut most, mut worst) = (0, 0);
        for class in CLASSES.into_iter().filter(|class| all.bound & bit(*class) != 0) {
            // A replay may be caused by an early start, so at M7 an edge can also be a gain.
            let delay = all.time.ops().saturating_sub(self.finish(node, sources, finish, bit(class)).time.ops());
            self.path.delays[class as usize] += delay;
            if delay > most {
                (most, worst) = (delay, 0);
            }
            if delay == most {
                worst |= bit(class);
            }
        }
        if most > self.path.worst.map_or(0, |(_, _, delay)| delay) {
            self.path.worst = Some((at, worst, most));
        }
        if let Some((_, classes)) = all.critical
            && classes.count_ones() == 1
        {
            self.path.needs |= classes;
        }
        self.path.at = all.critical.map(|(from, _)| from);
    }

    /// The rule of the model for one node, without the sources that it has an edge of a class in `without` from; structural edges
    /// always count.
    fn finish(&self, node: &Node, sources: &[Source], finish: &[Times<T>], without: Classes) -> Finish<T> {
        if self.is_plain { self.finish_plain(node, sources, finish, without) } else { self.finish_any(node, without) }
    }

    /// The plain rule, straight from the sources.
    fn finish_plain(&self, node: &Node, sources: &[Source], finish: &[Times<T>], without: Classes) -> Finish<T> {
        let mut start = Last::default();
        for source in sources {
            let (from, set) = parts(source);
            match self.classes_of_set[set as usize] {
                Some(classes) if classes & without == 0 => start.add(finish[from as usize][self.lane], from, classes),
                _ => {}
            }
        }
        Finish { time: start.time + T::of(node.weight), critical: start.first, bound: start.shared }
    }

    /// Looks up what the model keeps, for [`Walk::finish_any`].
    fn arrive(&mut self, sources: &[Source], finish: &[Times<T>]) {
        self.arrivals.clear();
        for source in sources {
            let (from, set) = parts(source);
            let kept = &self.kept[set as usize];
            if !(kept.start || kept.late) {
                continue;
            }
            let &Kept { structural, start, late, classes } = kept;
            match self.arrivals.last_mut() {
                // A source of too many kinds for one set.
                Some(last) if last.from == from => {
                    last.structural |= structural;
                    last.start |= start;
                    last.late |= late;
                    last.classes |= classes;
                }
                _ => {
                    let time = finish[from as usize][self.lane];
                    self.arrivals.push(Arrival { from, time, structural, start, late, classes });
                }
            }
        }
    }

    /// The whole rule, from what [`Walk::arrive`] has looked up.
    fn finish_any(&self, node: &Node, without: Classes) -> Finish<T> {
        let weight = T::of(node.weight);
        let (mut start, mut latest) = (Last::default(), Last::default());
        for arrival in &self.arrivals {
            let counts = arrival.classes & without == 0;
            if arrival.structural || (counts && arrival.start) {
                start.add(arrival.time, arrival.from, if arrival.structural { 0 } else { arrival.classes });
            }
            if counts && arrival.late {
                latest.add(arrival.time, arrival.from, arrival.classes);
            }
        }
        let (early, bound) = (start.time + weight, start.shared | latest.shared);
        if latest.time <= start.time {
            return Finish { time: early, critical: start.first, bound };
        }
        let critical = if latest.time > early { latest.first } else { start.first };
        Finish { time: early.later(latest.time) + weight, critical, bound }
    }
}

/// The last of several arrivals.
#[derive(Default)]
struct Last<T> {
    time: T,
    /// The first of those that are equally late, and the classes that bind the node to it.
    first: Option<(NodeIdx, Classes)>,
    /// The classes that they all have.
    shared: Classes,
}

impl<T: Time> Last<T> {
    #[inline(always)]
    fn add(&mut self, time: T, from: NodeIdx, classes: Classes) {
        if self.first.is_none() || time > self.time {
            *self = Last { time, first: Some((from, classes)), shared: classes };
        } else if time == self.time {
            self.shared &= classes;
        }
    }
}
