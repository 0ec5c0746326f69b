//! Which accesses to carried locals are worth an event.
//!
//! Locals carry dependences between segments of one activation, and a segment ends only at a *cut*: a call, or the start or end of an
//! iteration of a planned loop. Two sets of locals are carried through the code, each true on all paths that lead to a place:
//! *written*, plainly, since the last cut (another access depends on nothing that other segments did, and a write says nothing
//! new), and *accessed* (a read depends on nothing new). Loops are entered with what holds before them, or with nothing when there
//! is a cut in them; so one pass is enough.

use rustc_hash::FxHashSet;
use wasmparser::{FunctionBody, Operator};

/// Sets of locals times blocks beyond which every access is reported.
const SIZE_MAX: usize = 1 << 22;

/// What the survey of a function found.
#[derive(Default, Debug)]
pub(super) struct Carried {
    /// By local: whether a planned loop writes it.
    pub(super) written_in_loop: Vec<bool>,
    /// By local: whether any read of it may depend on another segment.
    needed: Vec<bool>,
    /// Offsets of accesses that say nothing new.
    silent: FxHashSet<u32>,
}

impl Carried {
    /// Surveys a function in which these loops, by ordinal, are planned. `every`: every access is worth an event.
    pub(super) fn survey(
        body: &FunctionBody<'_>,
        locals: u32,
        planned: &FxHashSet<u32>,
        every: bool,
    ) -> wasmparser::Result<Carried> {
        let mut carried = Carried { written_in_loop: vec![false; locals as usize], ..Carried::default() };
        if planned.is_empty() {
            return Ok(carried);
        }
        let loops = carried.find_loops(body, planned)?;
        let numbers = Numbers::of(&carried.written_in_loop);
        carried.needed = carried.written_in_loop.clone();
        if !every && loops.blocks.saturating_mul(numbers.words) <= SIZE_MAX {
            carried.flow(body, planned, &loops, &numbers)?;
        }
        Ok(carried)
    }

    /// Whether an access at this offset is reported.
    pub(super) fn is_reported(&self, local: u32, offset: u32) -> bool {
        self.needed[local as usize] && !self.silent.contains(&offset)
    }

    fn find_loops(&mut self, body: &FunctionBody<'_>, planned: &FxHashSet<u32>) -> wasmparser::Result<Loops> {
        // Of every open block: the loop that it is, and whether it is in a planned one.
        let mut open: Vec<(Option<u32>, bool)> = vec![(None, false)];
        let mut loops = Loops::default();
        for item in body.get_operators_reader()? {
            let inside = open.last().is_some_and(|(_, inside)| *inside);
            match item? {
                Operator::Loop { .. } => {
                    let ordinal = loops.has_cut.len() as u32;
                    let is_planned = planned.contains(&ordinal);
                    loops.has_cut.push(is_planned);
                    if is_planned {
                        loops.note_cut(&open);
                    }
                    loops.blocks += 1;
                    open.push((Some(ordinal), inside || is_planned));
                }
                Operator::Block { .. } | Operator::If { .. } | Operator::Try { .. } | Operator::TryTable { .. } => {
                    loops.blocks += 1;
                    open.push((None, inside));
                }
                Operator::End | Operator::Delegate { .. } => drop(open.pop()),
                Operator::LocalSet { local_index } | Operator::LocalTee { local_index } => {
                    self.written_in_loop[local_index as usize] |= inside;
                }
                operator if is_call(&operator) => loops.note_cut(&open),
                _ => {}
            }
        }
        Ok(loops)
    }

    fn flow(&mut self, body: &FunctionBody<'_>, planned: &FxHashSet<u32>, loops: &Loops, numbers: &Numbers) -> wasmparser::Result<()> {
        self.needed.fill(false);
        let mut flow = Flow::new(numbers);
        let (mut ordinal, mut last_family, mut last_label) = (0, 0, 0);
        let mut last_get = vec![0; numbers.of_local.len()];
        for (at, item) in (1u32..).zip(body.get_operators_reader()?.into_iter_with_offsets()) {
            let (operator, offset) = item?;
            match &operator {
                Operator::Block { .. } | Operator::Try { .. } => flow.open(Kind::Block),
                Operator::TryTable { try_table } => {
                    // Whatever is called or thrown in it may lead to its labels.
                    for catch in &try_table.catches {
                        flow.caught(label_of(catch));
                    }
                    flow.open(Kind::Block);
                }
                Operator::Catch { .. } | Operator::CatchAll => flow.catch(),
                Operator::If { .. } => {
                    let otherwise = flow.state.clone();
                    flow.open(Kind::If { otherwise });
                }
                Operator::Loop { .. } => {
                    if loops.has_cut[ordinal as usize] {
                        flow.cut();
                    }
                    flow.open(Kind::Loop { planned: planned.contains(&ordinal) });
                    ordinal += 1;
                }
                Operator::Else => flow.otherwise(),
                Operator::End | Operator::Delegate { .. } => flow.end(),
                Operator::Br { relative_depth } => {
                    flow.branch(*relative_depth);
                    flow.state = None;
                }
                Operator::BrIf { relative_depth }
                | Operator::BrOnNull { relative_depth }
                | Operator::BrOnNonNull { relative_depth } => flow.branch(*relative_depth),
                Operator::BrTable { targets } => {
                    for depth in targets.targets() {
                        flow.branch(depth?);
                    }
                    flow.branch(targets.default());
                    flow.state = None;
                }
                Operator::Unreachable
                | Operator::Return
                | Operator::ReturnCall { .. }
                | Operator::ReturnCallIndirect { .. }
                | Operator::ReturnCallRef { .. }
                | Operator::Throw { .. }
                | Operator::ThrowRef
                | Operator::Rethrow { .. } => {
                    flow.state = None;
                }
                Operator::LocalGet { local_index } => {
                    last_get[*local_index as usize] = at;
                    if let (Some(state), Some(number)) = (&mut flow.state, numbers.get(*local_index)) {
                        if insert(&mut state.accessed, number) {
                            self.needed[*local_index as usize] = true;
                        } else {
                            self.silent.insert(offset as u32);
                        }
                    }
                }
                Operator::LocalSet { local_index } | Operator::LocalTee { local_index } => {
                    let read = last_get[*local_index as usize];
                    // It may turn out to be an induction or a reduction, which hides nothing.
                    let may_have_role = read > last_label && last_family > read;
                    if let (Some(state), Some(number)) = (&mut flow.state, numbers.get(*local_index)) {
                        if contains(&state.written, number) {
                            self.silent.insert(offset as u32);
                        } else if !may_have_role {
                            insert(&mut state.written, number);
                            insert(&mut state.accessed, number);
                        }
                    }
                }
                operator if is_call(operator) => flow.cut(),
                operator if is_family(operator) => last_family = at,
                _ => {}
            }
            // Labels break chains.
            use Operator::{Block, Catch, CatchAll, Delegate, Else, End, If, Loop, Try, TryTable};
            if matches!(
                operator,
                Block { .. } | If { .. } | Loop { .. } | Else | End | Try { .. } | TryTable { .. } | Catch { .. } | CatchAll | Delegate { .. }
            ) {
                last_label = at;
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Loops {
    /// By ordinal: whether there is a cut in it.
    has_cut: Vec<bool>,
    /// All blocks, loops and ifs.
    blocks: usize,
}

impl Loops {
    /// There is a cut inside of these open blocks.
    fn note_cut(&mut self, open: &[(Option<u32>, bool)]) {
        // What is around a loop with a cut has one as well.
        for ordinal in open.iter().rev().filter_map(|(ordinal, _)| *ordinal) {
            if std::mem::replace(&mut self.has_cut[ordinal as usize], true) {
                break;
            }
        }
    }
}

pub(super) fn is_call(operator: &Operator<'_>) -> bool {
    matches!(operator, Operator::Call { .. } | Operator::CallIndirect { .. } | Operator::CallRef { .. })
}

/// The label of a clause of a `try_table`.
pub(super) fn label_of(catch: &wasmparser::Catch) -> u32 {
    use wasmparser::Catch::{All, AllRef, One, OneRef};
    match *catch {
        One { label, .. } | OneRef { label, .. } | All { label } | AllRef { label } => label,
    }
}

/// Whether a read-modify-write may end with it (see `trace.rs`).
fn is_family(operator: &Operator<'_>) -> bool {
    use Operator::*;
    matches!(operator, I32Add | I32Sub | I32And | I32Or | I32Xor | I64Add | I64Sub | I64And | I64Or | I64Xor)
}

/// Carried locals, counted.
struct Numbers {
    of_local: Vec<Option<u32>>,
    words: usize,
}

impl Numbers {
    fn of(written_in_loop: &[bool]) -> Numbers {
        let mut numbers = 0..;
        let of_local = written_in_loop.iter().map(|is| is.then(|| numbers.next()).flatten()).collect();
        Numbers { of_local, words: (numbers.start as usize).div_ceil(64) }
    }

    fn get(&self, local: u32) -> Option<u32> {
        self.of_local[local as usize]
    }
}

/// What holds on all paths to a place; see the module's text.
#[derive(Clone)]
struct State {
    written: Vec<u64>,
    accessed: Vec<u64>,
}

fn contains(set: &[u64], number: u32) -> bool {
    set[number as usize / 64] >> (number % 64) & 1 != 0
}

/// Adds a number; says whether it was not there.
fn insert(set: &mut [u64], number: u32) -> bool {
    let is_new = !contains(set, number);
    set[number as usize / 64] |= 1 << (number % 64);
    is_new
}

enum Kind {
    Block,
    If { otherwise: Option<State> },
    Loop { planned: bool },
}

struct Block {
    kind: Kind,
    /// What holds at the end on the paths seen so far; `None` when there is none.
    at_end: Option<State>,
}

struct Flow {
    /// Here; `None` in unreachable code.
    state: Option<State>,
    blocks: Vec<Block>,
    nothing: State,
}

fn meet(into: &mut Option<State>, other: Option<State>) {
    match (into.as_mut(), other) {
        (_, None) => {}
        (None, other) => *into = other,
        (Some(into), Some(other)) => {
            for (a, b) in into.written.iter_mut().zip(&other.written).chain(into.accessed.iter_mut().zip(&other.accessed)) {
                *a &= b;
            }
        }
    }
}

impl Flow {
    fn new(numbers: &Numbers) -> Flow {
        let nothing = State { written: vec![0; numbers.words], accessed: vec![0; numbers.words] };
        // Nobody has written a local before its function begins.
        let state = State { accessed: vec![u64::MAX; numbers.words], ..nothing.clone() };
        Flow { state: Some(state), blocks: vec![Block { kind: Kind::Block, at_end: None }], nothing }
    }

    fn cut(&mut self) {
        if self.state.is_some() {
            self.state = Some(self.nothing.clone());
        }
    }

    fn open(&mut self, kind: Kind) {
        self.blocks.push(Block { kind, at_end: None });
    }

    fn otherwise(&mut self) {
        let state = self.state.take();
        if let Some(block) = self.blocks.last_mut() {
            meet(&mut block.at_end, state);
            if let Kind::If { otherwise } = &mut block.kind {
                self.state = otherwise.take();
            }
        }
    }

    fn end(&mut self) {
        let Some(block) = self.blocks.pop() else { return };
        match block.kind {
            Kind::Loop { planned: true } => self.cut(),
            Kind::If { otherwise } => meet(&mut self.state, otherwise),
            _ => {}
        }
        meet(&mut self.state, block.at_end);
    }

    /// An exception leads to the label `depth` blocks out, from a place of which nothing is known.
    fn caught(&mut self, depth: u32) {
        let before = self.state.clone();
        self.cut();
        self.branch(depth);
        self.state = before;
    }

    /// A `try` goes on where its exceptions are caught.
    fn catch(&mut self) {
        let state = self.state.take();
        if let Some(block) = self.blocks.last_mut() {
            meet(&mut block.at_end, state);
        }
        self.state = Some(self.nothing.clone());
    }

    /// A branch to the label `depth` blocks out. What holds at a loop's start does not depend on it.
    fn branch(&mut self, depth: u32) {
        let Some(index) = self.blocks.len().checked_sub(1 + depth as usize) else { return };
        let leaves_loop = self.blocks[index + 1..].iter().any(|b| matches!(b.kind, Kind::Loop { planned: true }));
        let state = if leaves_loop { self.state.as_ref().map(|_| self.nothing.clone()) } else { self.state.clone() };
        let block = &mut self.blocks[index];
        if !matches!(block.kind, Kind::Loop { .. }) {
            meet(&mut block.at_end, state);
        }
    }
}
