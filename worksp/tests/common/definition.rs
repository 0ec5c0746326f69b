//! The numbers by definition: a log of every access, byte by byte, and edges by looking back through all of it. Quadratic, and
//! sharing nothing with the tracer but the words.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub type Class = &'static str;

/// A place that accesses meet in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Space {
    Memory(u32),
    Global(u32),
    Table(u32),
    MemorySize(u32),
    TableSize(u32),
    Segment(bool, u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    Read,
    Write,
    /// May be halves of a delta: family and activation.
    TaggedLoad(u8, usize),
    TaggedStore(u8, usize),
    /// A confirmed pair, at the time of its store.
    Delta(u8),
    /// The load of a confirmed pair.
    Nothing,
}

#[derive(Clone, Debug)]
pub struct Access {
    pub segment: usize,
    pub space: Space,
    pub bytes: Range<u64>,
    pub what: What,
    pub region: Class,
    pub output: bool,
    pub allocator: bool,
    /// The stack pointer with which the segment started.
    pub sp: u64,
}

/// A block's life begins or ends between two accesses.
#[derive(Clone, Debug)]
struct Life {
    at: usize,
    bytes: Range<u64>,
    /// For a beginning: the first access of the entry point's call, and whether its writes count as the program's.
    begins: Option<(usize, bool)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Plain,
    Induction,
    Reduce(u8),
}

pub type Edge = (usize, usize, &'static str, Class);

#[derive(Default, Debug)]
pub struct Definition {
    pub granule: u64,
    pub work: u64,
    segments: Vec<(u64, usize)>,
    started_at: u64,
    units: Vec<(usize, Option<usize>)>,
    units_count: usize,
    last_root: Option<usize>,
    log: Vec<Access>,
    lives: Vec<Life>,
    /// Structural, result, local and chain edges, which need no looking back.
    direct: BTreeSet<Edge>,
    /// Writes by activation and local: the segment, and the role.
    locals: BTreeMap<(usize, u32), Vec<(usize, Role)>>,
    chains: BTreeMap<bool, usize>,
}

impl Definition {
    pub fn new(granule: u64) -> Definition {
        Definition { granule, ..Definition::default() }
    }

    pub fn segment(&self) -> usize {
        self.segments.len()
    }

    fn cut(&mut self) -> usize {
        let unit = self.units.last().expect("a unit is open").0;
        self.segments.push((self.work - self.started_at, unit));
        self.started_at = self.work;
        self.segments.len() - 1
    }

    pub fn begin_unit(&mut self) {
        if self.units.is_empty() {
            self.started_at = self.work;
            if let Some(last) = self.last_root {
                self.direct.insert((last, self.segment(), "order", "none"));
            }
        } else {
            let before = self.cut();
            self.units.last_mut().expect("it is not empty").1 = Some(before);
            self.direct.insert((before, self.segment(), "spawn", "none"));
        }
        self.units.push((self.units_count, None));
        self.units_count += 1;
    }

    pub fn end_unit(&mut self) {
        let last = self.cut();
        self.units.pop();
        match self.units.last() {
            Some((_, before)) => {
                let before = before.expect("it was cut when its child began");
                self.direct.insert((before, self.segment(), "order", "none"));
            }
            None => self.last_root = Some(last),
        }
    }

    pub fn access(&mut self, access: Access) {
        assert_eq!(access.segment, self.segment());
        self.log.push(access);
    }

    pub fn log_len(&self) -> usize {
        self.log.len()
    }

    pub fn life_ends(&mut self, bytes: Range<u64>) {
        self.lives.push(Life { at: self.log.len(), bytes, begins: None });
    }

    pub fn life_begins(&mut self, bytes: Range<u64>, since: usize, programs_own: bool) {
        self.lives.push(Life { at: self.log.len(), bytes, begins: Some((since, programs_own)) });
    }

    pub fn host_call(&mut self, output: bool) {
        let segment = self.segment();
        if let Some(last) = self.chains.insert(output, segment) {
            self.edge(last, segment, "raw", if output { "output" } else { "host" });
        }
    }

    pub fn result_used(&mut self, from: usize) {
        self.edge(from, self.segment(), "result", "result");
    }

    /// An exception leaves the innermost unit: that is a use of it.
    pub fn leave_unit(&mut self) {
        let last = self.segment();
        self.end_unit();
        if !self.units.is_empty() {
            self.result_used(last);
        }
    }

    fn edge(&mut self, from: usize, to: usize, kind: &'static str, class: Class) {
        if from != to {
            self.direct.insert((from, to, kind, class));
        }
    }

    pub fn local_write(&mut self, activation: usize, local: u32, role: Role) {
        let segment = self.segment();
        let log = self.locals.entry((activation, local)).or_default();
        let plain = log.iter().rev().find(|w| w.1 == Role::Plain).map(|w| w.0);
        if role == Role::Plain || plain != Some(segment) {
            log.push((segment, role));
        }
    }

    pub fn local_read(&mut self, activation: usize, local: u32, role: Role) {
        let segment = self.segment();
        let log = self.locals.entry((activation, local)).or_default().clone();
        let since = log.iter().rposition(|w| w.1 == Role::Plain);
        let plain = since.map(|i| log[i].0);
        let after = &log[since.map_or(0, |i| i + 1)..];
        let induction = after.iter().rev().find(|w| w.1 == Role::Induction).map(|w| w.0);
        let reductions: Vec<_> = after.iter().filter(|w| matches!(w.1, Role::Reduce(_))).collect();
        if plain == Some(segment) || (induction == Some(segment) && reductions.is_empty()) {
            return;
        }
        if let Some(from) = plain {
            self.edge(from, segment, "raw", "scalar");
        }
        if let Some(from) = induction {
            self.edge(from, segment, "raw", "induction");
        }
        for (from, its) in reductions {
            self.edge(*from, segment, "raw", if *its == role { "reduction" } else { "scalar" });
        }
    }

    // --- looking back ------------------------------------------------------------------------------------------------

    /// Which loads and stores were pairs.
    fn resolve_pairs(&mut self) {
        let overlap = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        for i in 0..self.log.len() {
            let at = self.log[i].clone();
            let earlier: Vec<usize> =
                (0..i).filter(|&j| self.log[j].segment == at.segment && self.log[j].space == at.space).collect();
            if let What::TaggedLoad(..) = at.what {
                let own = earlier.iter().any(|&j| self.log[j].what == What::Write && overlap(&self.log[j].bytes, &at.bytes));
                if own {
                    self.log[i].what = What::Read;
                }
            }
            if let What::TaggedStore(family, activation) = at.what {
                let load = earlier.iter().rev().copied().find(|&j| {
                    let l = &self.log[j];
                    l.what == What::TaggedLoad(family, activation) && l.bytes == at.bytes && l.allocator == at.allocator
                });
                match load {
                    Some(j) => {
                        self.log[j].what = What::Nothing;
                        self.log[i].what = What::Delta(family);
                    }
                    None => self.log[i].what = What::Write,
                }
            }
            if let What::Write | What::Delta(_) = self.log[i].what {
                // A write to its bytes ends the wait of a load.
                for j in earlier {
                    if matches!(self.log[j].what, What::TaggedLoad(..)) && overlap(&self.log[j].bytes, &at.bytes) {
                        self.log[j].what = What::Read;
                    }
                }
            }
        }
        for access in &mut self.log {
            if let What::TaggedLoad(..) = access.what {
                access.what = What::Read;
            }
        }
    }

    fn is_stale(&self, from: usize, byte: u64, to: usize) -> bool {
        if !matches!(self.log[from].space, Space::Memory(0)) {
            return false;
        }
        self.lives.iter().any(|life| {
            let kept = life.begins.is_some_and(|(since, _)| since <= from) && self.log[from].what == What::Write;
            life.at > from && life.at <= to && life.bytes.contains(&byte) && !kept
        })
    }

    fn in_allocator(&self, from: usize, byte: u64, to: usize) -> bool {
        let given_away = self.lives.iter().any(|life| {
            let own = life.begins.is_some_and(|(since, own)| own && since <= from);
            own && life.at > from && life.at <= to && life.bytes.contains(&byte)
        });
        self.log[from].allocator && !(given_away && self.log[from].what == What::Write)
    }

    fn class(&self, kind: &'static str, from: usize, byte: u64, to: usize, piece: &Range<u64>, granule: u64) -> Class {
        let (f, t) = (&self.log[from], &self.log[to]);
        let stale = self.is_stale(from, byte, to);
        if f.output || t.output {
            return "output";
        }
        if let (What::Delta(a), What::Delta(b)) = (f.what, t.what) {
            let apart = f.bytes.end <= t.bytes.start || t.bytes.end <= f.bytes.start;
            if a == b && (apart || f.bytes == t.bytes) && !stale {
                return "delta";
            }
        }
        match t.region {
            "sp" => "sp",
            "stack" => {
                let dead = ((piece.end - 1) | (granule - 1)) < t.sp;
                if kind == "raw" && dead { "stackdead" } else { "stack" }
            }
            _ if stale || (t.allocator && self.in_allocator(from, byte, to)) => "allocator",
            region => region,
        }
    }

    /// All edges of the run, by looking back from every access through the whole log.
    pub fn edges(&mut self) -> BTreeSet<Edge> {
        self.resolve_pairs();
        let mut edges = self.direct.clone();
        // Pieces of reads that were exposed.
        let mut exposed: Vec<Vec<Range<u64>>> = vec![Vec::new(); self.log.len()];
        for i in 0..self.log.len() {
            let access = &self.log[i];
            let granule = if matches!(access.space, Space::Memory(_)) { self.granule } else { 8 };
            let mut start = access.bytes.start;
            while start < access.bytes.end {
                let low = start / granule * granule;
                let piece = start..access.bytes.end.min(low + granule);
                start = piece.end;
                self.edges_of_piece(i, &piece, low..low + granule, &mut exposed, &mut edges);
            }
        }
        edges
    }

    fn edges_of_piece(
        &self,
        i: usize,
        piece: &Range<u64>,
        granule: Range<u64>,
        exposed: &mut [Vec<Range<u64>>],
        edges: &mut BTreeSet<Edge>,
    ) {
        let at = &self.log[i];
        let earlier = |byte: u64| {
            let covers = move |j: &usize| self.log[*j].space == at.space && self.log[*j].bytes.contains(&byte);
            (0..i).rev().filter(covers)
        };
        if at.what == What::Read {
            let own = |byte| earlier(byte).any(|j| self.log[j].segment == at.segment && self.log[j].what == What::Write);
            if piece.clone().all(own) {
                return;
            }
            exposed[i].push(piece.clone());
        }
        let mut add = |kind, j: usize, byte| {
            if self.log[j].segment != at.segment {
                let class = self.class(kind, j, byte, i, piece, granule.end - granule.start);
                edges.insert((self.log[j].segment, at.segment, kind, class));
            }
        };
        for byte in granule.clone() {
            for j in earlier(byte) {
                let is_write = matches!(self.log[j].what, What::Write | What::Delta(_));
                let is_read = self.log[j].what == What::Read && exposed[j].iter().any(|p| p.contains(&byte));
                match at.what {
                    What::Read if is_write => add("raw", j, byte),
                    What::Write if is_write => add("waw", j, byte),
                    What::Write if is_read => add("war", j, byte),
                    What::Delta(_) if is_write => {
                        add("raw", j, byte);
                        add("waw", j, byte);
                    }
                    What::Delta(_) if is_read => add("war", j, byte),
                    _ => {}
                }
                if self.log[j].what == What::Write {
                    break;
                }
            }
        }
    }

    pub fn segments(&self) -> &[(u64, usize)] {
        &self.segments
    }

    /// The span of a rung, by its definition.
    pub fn span(&self, edges: &BTreeSet<Edge>, rung: usize, without: Option<Class>, burden: u64) -> u64 {
        let mut finish = vec![0u64; self.segments.len()];
        let mut into: Vec<Vec<&Edge>> = vec![Vec::new(); self.segments.len()];
        for edge in edges {
            into[edge.1].push(edge);
        }
        for i in 0..self.segments.len() {
            let (weight, unit) = self.segments[i];
            let (mut start, mut writer) = (0, 0);
            for &&(from, _, kind, class) in &into[i] {
                let reported = if class == "stackdead" { "stack" } else { class };
                let structural = kind == "spawn" || kind == "order";
                if !structural && (!keeps(rung, kind, class) || without == Some(reported)) {
                    continue;
                }
                let charged = kind == "spawn" || (kind == "order" && self.segments[from].1 == unit);
                let time = finish[from] + if charged { burden } else { 0 };
                if rung == 7 && kind == "raw" { writer = writer.max(time) } else { start = start.max(time) }
            }
            finish[i] = if writer > start { (start + weight).max(writer) + weight } else { start + weight };
        }
        finish.into_iter().max().unwrap_or(0)
    }
}

fn keeps(rung: usize, kind: &str, class: &str) -> bool {
    if rung == 0 {
        return false;
    }
    if kind == "result" {
        return true;
    }
    let reuse = kind == "war" || kind == "waw";
    let leaves_at = match class {
        "sp" | "induction" | "stackdead" => 2,
        "stack" if reuse => 2,
        "allocator" => 3,
        "delta" | "reduction" => 4,
        "output" => 5,
        "host" => 6,
        _ if reuse => 7,
        _ => 8,
    };
    rung < leaves_at && !(reuse && rung == 7)
}
