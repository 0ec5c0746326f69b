//! The slow twin of `ladder`: a plain graph of a trace in petgraph, and its longest path for one model.

use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;
use petgraph::{Direction, algo};
use worksp_tracer::edge::EdgeKind;
use worksp_tracer::trace::{Edge, Node, Trace};

use crate::ladder::Lane;

/// The kept part of a trace as a graph.
#[derive(Clone, Debug)]
pub struct Dag {
    graph: DiGraph<Node, Edge>,
}

impl Dag {
    /// The nodes, and the edges that a lane keeps.
    ///
    /// # Errors
    /// As [`crate::ladder::Ladder::of`].
    pub fn of(trace: &Trace, lane: &Lane) -> std::io::Result<Dag> {
        let mut graph = DiGraph::new();
        let nodes: Vec<NodeIndex> = trace.nodes().iter().map(|node| graph.add_node(*node)).collect();
        for (to, (_, edges)) in trace.to_vec()?.iter().enumerate() {
            for edge in edges.iter().filter(|e| lane.keep.keeps(e.kind, e.class)) {
                graph.add_edge(nodes[edge.from as usize], nodes[to], *edge);
            }
        }
        Ok(Dag { graph })
    }

    /// The latest finish of any node, or `None` when the graph has a cycle and is no trace.
    pub fn span(&self, lane: &Lane) -> Option<u64> {
        let order = algo::toposort(&self.graph, None).ok()?;
        let mut finish = vec![0u64; self.graph.node_count()];
        for at in order {
            let node = self.graph[at];
            let (mut start, mut writer) = (0, 0);
            for edge in self.graph.edges_directed(at, Direction::Incoming) {
                let from = self.graph[edge.source()];
                let done = finish[edge.source().index()];
                match edge.weight().kind {
                    EdgeKind::Spawn => start = start.max(done + lane.burden),
                    EdgeKind::Order if from.unit == node.unit => start = start.max(done + lane.burden),
                    EdgeKind::Order | EdgeKind::Join | EdgeKind::Result => start = start.max(done),
                    EdgeKind::Raw | EdgeKind::War | EdgeKind::Waw if lane.keep.replays() => writer = writer.max(done),
                    EdgeKind::Raw | EdgeKind::War | EdgeKind::Waw => start = start.max(done),
                }
            }
            let once = start + node.weight;
            finish[at.index()] = if writer > start { once.max(writer) + node.weight } else { once };
        }
        Some(finish.into_iter().max().unwrap_or(0))
    }
}
