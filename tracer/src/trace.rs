//! A trace in memory: the weighted graph of one run, in an order in which every edge points forward.
//!
//! ```text
//! nodes   0      1      2      3 …      serial order; nodes that join many sources stand before the first segment that uses them
//! edges  [into 0][into 1][into 2]…      sorted by (from, kind, class) within a node, each (from, to, kind, class) once
//! ```

use std::io;

use worksp_engine::probe::Site;
use worksp_engine::{ExternType, Module};

use crate::edge::{EdgeClass, EdgeKind};
use crate::edges::{EdgeReader, Edges, HELD_MAX};
use crate::hints::push_large;

/// A node's number: edges go from lower to higher ones.
pub type NodeIdx = u32;

/// The unit number of a node that joins many sources and belongs to no unit.
pub const NO_UNIT: u32 = u32::MAX;

/// One segment, or one join of weight 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// Operators executed in it.
    pub weight: u64,
    /// The unit that it belongs to, or [`NO_UNIT`].
    pub unit: u32,
}

impl Node {
    /// Whether this is a join of many sources and no segment.
    pub fn is_join(&self) -> bool {
        self.unit == NO_UNIT
    }
}

/// An edge into the node under which it is listed: 20 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The earlier node.
    pub from: NodeIdx,
    /// Where the earlier access was made (an index of [`TraceInfo::sites`] plus 1), or 0 when that is not known.
    pub from_site: u32,
    /// Where the later access was made, likewise.
    pub to_site: u32,
    /// What carried it: an address (its low 32 bits), or the index of a global, table, local, data or element segment, or import.
    pub object: u32,
    /// How the two hang together.
    pub kind: EdgeKind,
    /// What carries the dependence.
    pub class: EdgeClass,
    /// The memory that the address is in, or 0.
    pub place: u16,
}

/// A place where units begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Boundary {
    /// The traced entry call itself: the root unit.
    Root(u32),
    /// Every invocation of a function.
    Func(u32),
    /// Every invocation from one call operator.
    Site(Site),
    /// Every iteration of a loop.
    Loop {
        /// The function's index.
        func: u32,
        /// The loop's ordinal in it.
        ordinal: u32,
    },
}

/// One dynamic instance at a boundary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Index of [`TraceInfo::boundaries`].
    pub boundary: u32,
    /// The unit that this one is nested in; a root is its own parent.
    pub parent: u32,
}

/// Two accesses that show why a rung's precondition does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Witness {
    /// The earlier segment.
    pub from: NodeIdx,
    /// The later segment.
    pub to: NodeIdx,
    /// Where the earlier access was made (as in [`Edge::from_site`]).
    pub from_site: u32,
    /// Where the later access was made.
    pub to_site: u32,
    /// The address.
    pub address: u64,
}

/// What is known about the precondition of a rung.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Check {
    /// Nobody looked.
    #[default]
    Unchecked,
    /// It holds throughout the run.
    Holds,
    /// It does not; the first witness.
    Violated(Witness),
}

/// The preconditions that a run was checked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checks {
    /// M2: the same activation owned the address of every stack raw edge at the write and at the read.
    pub stack: Check,
    /// M3: no read of a freed byte outside the allocator.
    pub freed: Check,
    /// M4: what a delta or a reduction loaded reached only its own store.
    pub delta: Check,
}

/// Everything about a trace but its nodes and edges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TraceInfo {
    /// The module's name.
    pub module: String,
    /// SHA-256 of its bytes.
    pub sha256: [u8; 32],
    /// The entry call or calls.
    pub entry: String,
    /// Bytes per granule.
    pub granule: u32,
    /// The unit specifications that were given or chosen.
    pub unit_specs: Vec<String>,
    /// How the layout of linear memory was found, for the footer.
    pub layout: String,
    /// Which allocator entry points were found, for the footer.
    pub allocator: Vec<String>,
    /// Operators executed.
    pub work: u64,
    /// Segments (joins are not counted).
    pub segments: u64,
    /// Preconditions.
    pub checks: Checks,
    /// Where units begin.
    pub boundaries: Vec<Boundary>,
    /// Places in the code.
    pub sites: Vec<Site>,
    /// Function names, by index.
    pub functions: Vec<String>,
    /// Names of globals that have one, by index.
    pub globals: Vec<(u32, String)>,
    /// Imports (module and name), by index among imported functions.
    pub imports: Vec<String>,
}

impl TraceInfo {
    /// Adds what a module says about itself, and its hash. `name` is what it is called.
    pub fn describe(&mut self, module: &Module, name: &str, sha256: [u8; 32]) {
        name.clone_into(&mut self.module);
        self.sha256 = sha256;
        self.functions = (0..module.func_count()).map(|func| module.func_name(func)).collect();
        let globals = (0..module.global_count()).filter_map(|g| module.global_name(g).map(|name| (g, name.to_owned())));
        self.globals = globals.collect();
        let funcs = module.imports().iter().filter(|i| matches!(i.ty, ExternType::Func(_)));
        self.imports = funcs.map(|i| format!("{}.{}", i.module, i.name)).collect();
    }

    /// `function+0xoffset` of a site number, or `None` for 0.
    pub fn site_name(&self, site: u32) -> Option<String> {
        let site = self.sites.get((site as usize).checked_sub(1)?)?;
        Some(format!("{}+{:#x}", self.function_name(site.func), site.offset))
    }

    /// A function's name, or `func[N]`.
    pub fn function_name(&self, func: u32) -> String {
        match self.functions.get(func as usize) {
            Some(name) => name.clone(),
            None => format!("func[{func}]"),
        }
    }

    /// A boundary as it is written on the command line.
    pub fn boundary_name(&self, boundary: &Boundary) -> String {
        match *boundary {
            Boundary::Root(func) => format!("entry {}", self.function_name(func)),
            Boundary::Func(func) => format!("func:{}", self.function_name(func)),
            Boundary::Site(site) => format!("site:{}+{:#x}", self.function_name(site.func), site.offset),
            Boundary::Loop { func, ordinal } => format!("loop:{}#{ordinal}", self.function_name(func)),
        }
    }

    /// What an edge's object is, in words.
    pub fn object_name(&self, edge: &Edge) -> String {
        let n = edge.object;
        match edge.class {
            EdgeClass::None | EdgeClass::Result => String::new(),
            EdgeClass::Scalar | EdgeClass::Induction | EdgeClass::Reduction => format!("local {n}"),
            EdgeClass::Sp | EdgeClass::Global => match self.globals.iter().find(|(i, _)| *i == n) {
                Some((_, name)) => format!("global {name}"),
                None => format!("global {n}"),
            },
            EdgeClass::Table => format!("table element {n}"),
            EdgeClass::Growth => format!("growth of memory or segment {n}"),
            EdgeClass::Output | EdgeClass::Host => match self.imports.get(n as usize) {
                Some(name) if edge.place == HOST_CHAIN => format!("order of {name}"),
                _ => format!("address {n:#x}"),
            },
            _ => format!("address {n:#x}"),
        }
    }
}

/// [`Edge::place`] of an edge whose object is an import and not an address.
pub const HOST_CHAIN: u16 = u16::MAX;

/// Takes a run's units and nodes as they are finished, in order.
pub trait Sink {
    /// Whether it takes a node's edges as they come: in any order, some of them several times.
    const RAW: bool = false;

    /// A unit begins; units are numbered in this order.
    fn unit(&mut self, unit: Unit);
    /// A node with its edges, each once and sorted by (from, kind, class) unless [`Sink::RAW`]; nodes are numbered in this order.
    fn node(&mut self, node: Node, edges: &[Edge]);
    /// Bytes held, and those that it will take to use what is there.
    fn memory(&self) -> u64;
}

/// Bytes that questions about a trace take for each of its nodes, at most: finish times of sixteen models.
const QUESTION_BYTES: usize = 128;

/// A whole trace. Its edges are held within a bound of memory (see `edges.rs`), so reading them can fail.
#[derive(Debug)]
pub struct Trace {
    /// Everything else.
    pub info: TraceInfo,
    units: Vec<Unit>,
    nodes: Vec<Node>,
    edges: Edges,
    /// `ends[i]` is the end of node i's edges.
    ends: Vec<u64>,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace { info: TraceInfo::default(), units: Vec::new(), nodes: Vec::new(), edges: Edges::new(HELD_MAX), ends: Vec::new() }
    }
}

impl Trace {
    /// All units.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The number of a node's segment, in serial order from 0; of a join, the number that the next segment has.
    pub fn segment_number(&self, node: NodeIdx) -> u64 {
        let before = &self.nodes[..(node as usize).min(self.nodes.len())];
        before.iter().filter(|node| !node.is_join()).count() as u64
    }

    /// The number of edges.
    pub fn edges_count(&self) -> u64 {
        self.edges.len()
    }

    /// Calls `f` with every node and the edges into it, in order.
    ///
    /// # Errors
    /// When edges that did not fit into memory cannot be read back.
    pub fn for_each(&self, mut f: impl FnMut(Node, &[Edge])) -> io::Result<()> {
        let mut cursor = self.cursor();
        for (at, node) in self.nodes.iter().enumerate() {
            f(*node, cursor.edges_into(at as NodeIdx)?);
        }
        Ok(())
    }

    /// Reads the edges into one node after another; fast in order and against it.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { trace: self, reader: self.edges.reader() }
    }

    /// All nodes with their edges; for traces that are known to be small.
    ///
    /// # Errors
    /// As [`Trace::for_each`].
    pub fn to_vec(&self) -> io::Result<Vec<(Node, Vec<Edge>)>> {
        let mut all = Vec::new();
        self.for_each(|node, edges| all.push((node, edges.to_vec())))?;
        Ok(all)
    }
}

/// Reads edges of a trace.
pub struct Cursor<'a> {
    trace: &'a Trace,
    reader: EdgeReader<'a>,
}

impl Cursor<'_> {
    /// The edges into a node.
    ///
    /// # Errors
    /// As [`Trace::for_each`].
    pub fn edges_into(&mut self, node: NodeIdx) -> io::Result<&[Edge]> {
        let ends = &self.trace.ends;
        let start = (node as usize).checked_sub(1).map_or(0, |before| ends[before]);
        self.reader.get(start..ends[node as usize])
    }
}

impl Sink for Trace {
    fn unit(&mut self, unit: Unit) {
        push_large(&mut self.units, unit);
    }

    fn node(&mut self, node: Node, edges: &[Edge]) {
        debug_assert!(edges.iter().all(|e| (e.from as usize) < self.nodes.len()), "edges go from lower to higher numbers");
        push_large(&mut self.nodes, node);
        self.edges.push(edges);
        push_large(&mut self.ends, self.edges.len());
    }

    fn memory(&self) -> u64 {
        let held = size_of_val(&self.units[..]) + size_of_val(&self.nodes[..]) + size_of_val(&self.ends[..]);
        (held + self.nodes.len() * QUESTION_BYTES) as u64 + self.edges.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_counted_without_joins() {
        let mut trace = Trace::default();
        for unit in [0, 0, NO_UNIT, 0, NO_UNIT, NO_UNIT, 0] {
            trace.node(Node { weight: 1, unit }, &[]);
        }
        let numbers: Vec<u64> = (0..8).map(|node| trace.segment_number(node)).collect();
        assert_eq!(numbers, [0, 1, 2, 2, 3, 3, 3, 4]);
    }
}
