//! What traced translation adds: sites, loop and local events, moves and uses of results, and the static half of classes.
//!
//! *Chains* follow one loaded value or one carried local through additions (or one bitwise family) to the store or the
//! `local.set` that ends a read-modify-write. A value that is used in any other way breaks its chain. Roles start as plain and
//! are patched into the events once a chain, or a whole loop, is known to qualify.

use rustc_hash::FxHashSet;

use super::code::Pos;
use super::Translator;
use super::stack::{Home, Value};
use super::survey::Survey;
use crate::isa::{BinaryOp, Single};
use crate::probe::{LocalRole, Rmw, Site, SiteTable};
use crate::value::{ValType, slots_of};

/// The state of tracing one function.
pub(super) struct Tracing<'a> {
    sites: &'a mut SiteTable,
    /// The current operator's site, once it has one.
    current: u32,
    survey: &'a Survey,
    holders: &'a mut Holders,
    chains: Vec<Chain>,
    reads: Vec<LocalAccess>,
    writes: Vec<LocalAccess>,
    pairs: Vec<Pair>,
}

/// Where units' results may be: found by translating again until no new place turns up.
#[derive(Default, Debug)]
pub(super) struct Holders {
    locals: FxHashSet<u32>,
    /// Values that branches carry: the control's number, and the value's.
    labels: FxHashSet<(u32, u32)>,
    /// Whether a place was added that code may have been emitted without.
    grew: bool,
    /// Nobody knows: every place may.
    everywhere: bool,
}

impl Holders {
    /// None yet, or all at once.
    pub(super) fn new(everywhere: bool) -> Holders {
        Holders { everywhere, ..Holders::default() }
    }

    fn local_holds(&self, local: u32) -> bool {
        self.everywhere || self.locals.contains(&local)
    }

    fn label_holds(&self, label: u32, i: u32) -> bool {
        self.everywhere || self.labels.contains(&(label, i))
    }

    fn add_local(&mut self, local: u32) {
        self.grew |= !self.everywhere && self.locals.insert(local);
    }

    fn add_label(&mut self, label: u32, i: u32) {
        self.grew |= !self.everywhere && self.labels.insert((label, i));
    }

    /// Whether a place was added since the last time that this was asked.
    pub(super) fn grew(&mut self) -> bool {
        std::mem::take(&mut self.grew)
    }

    /// Takes every place for one that may hold a result.
    pub(super) fn give_up(&mut self) {
        self.everywhere = true;
    }
}

/// A `local.get`, `local.set` or `local.tee` of a carried local.
#[derive(Clone, Copy, Debug)]
struct LocalAccess {
    local: u32,
    at: Pos,
    /// Whether there is an event at that place.
    reported: bool,
}

/// A value on its way from a load or a carried local to the write that ends a read-modify-write.
#[derive(Clone, Copy, Debug)]
struct Chain {
    source: Source,
    family: Rmw,
    /// What was added or combined: an immediate, a local, or anything.
    step: Step,
    /// The store that ended a load's chain.
    store: Option<Pos>,
    broken: bool,
    /// Another chain that goes on in the same value, or 0: in `*p + *q` either load may be the one that is written back.
    next: u32,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Load { at: Pos, bytes: u32 },
    Local(LocalAccess),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    None,
    Constant,
    Local(u32),
    Other,
}

/// `x = x op e`
#[derive(Clone, Copy, Debug)]
struct Pair {
    read: LocalAccess,
    write: LocalAccess,
    family: Rmw,
    step: Step,
    tee: bool,
    /// Control nesting at the write.
    depth: usize,
}

/// A planned loop that ends, as far as roles need it.
pub(super) struct EndedLoop {
    pub(super) header: Pos,
    /// Control nesting directly inside the loop.
    pub(super) depth: usize,
    pub(super) first_back_edge: Option<Pos>,
}

fn family(op: BinaryOp) -> Option<(Rmw, bool)> {
    Some(match op {
        BinaryOp::I32Add | BinaryOp::I64Add => (Rmw::Add, true),
        BinaryOp::I32Sub | BinaryOp::I64Sub => (Rmw::Add, false),
        BinaryOp::I32And | BinaryOp::I64And => (Rmw::And, true),
        BinaryOp::I32Or | BinaryOp::I64Or => (Rmw::Or, true),
        BinaryOp::I32Xor | BinaryOp::I64Xor => (Rmw::Xor, true),
        _ => return None,
    })
}

fn role_of(family: Rmw) -> LocalRole {
    match family {
        Rmw::Plain => LocalRole::Plain,
        Rmw::Add => LocalRole::ReduceAdd,
        Rmw::And => LocalRole::ReduceAnd,
        Rmw::Or => LocalRole::ReduceOr,
        Rmw::Xor => LocalRole::ReduceXor,
    }
}

impl<'a> Tracing<'a> {
    /// Begins a pass over a surveyed function.
    pub(super) fn new(survey: &'a Survey, sites: &'a mut SiteTable, holders: &'a mut Holders) -> Tracing<'a> {
        let (chains, reads, writes, pairs) = Default::default();
        Tracing { survey, sites, current: 0, holders, chains, reads, writes, pairs }
    }

    fn chain(&mut self, number: u32) -> &mut Chain {
        &mut self.chains[number as usize - 1]
    }

    fn open_chain(&mut self, source: Source) -> u32 {
        self.chains.push(Chain { source, family: Rmw::Plain, step: Step::None, store: None, broken: false, next: 0 });
        self.chains.len() as u32
    }
}

impl Translator<'_> {
    /// Starts an operator: it has no site yet.
    pub(super) fn begin_site(&mut self) {
        if let Some(tracing) = &mut self.tracing {
            tracing.current = 0;
        }
    }

    /// The current operator's site, or 0 in code that is not traced.
    pub(super) fn site(&mut self) -> u32 {
        let offset = self.code.offset;
        let func = self.func;
        match &mut self.tracing {
            Some(tracing) => {
                if tracing.current == 0 {
                    tracing.current = tracing.sites.push(Site { func, offset }).0;
                }
                tracing.current
            }
            None => 0,
        }
    }

    /// Whether events tell where results of units are.
    pub(super) fn follows_results(&self) -> bool {
        self.tracing.as_ref().is_some_and(|t| t.survey.follows_results)
    }

    /// Whether loop `ordinal` reports its iterations, and whether it is a planned unit.
    pub(super) fn loop_events(&self, ordinal: u32) -> (bool, bool) {
        self.tracing.as_ref().map_or((false, false), |t| {
            let planned = t.survey.planned.contains(&ordinal);
            (planned || t.survey.watched.contains(&ordinal), planned)
        })
    }

    /// An operator uses a value that it popped just now.
    pub(super) fn used(&mut self, value: &Value) {
        self.broke(value.chain);
        self.report_use(value, self.values.len());
    }

    /// An operator (a call, a return) uses the value at this stack height, which stays there.
    pub(super) fn used_at(&mut self, index: usize) {
        let value = self.values[index];
        self.broke(value.chain);
        self.report_use(&value, index);
    }

    /// Reports a use of the value of stack height `index`, if it may be a unit's result; its chain goes on.
    pub(super) fn report_use(&mut self, value: &Value, index: usize) {
        if value.maybe_result {
            let slot = match value.home {
                Home::Local(local) => self.local_slot(local),
                Home::Canonical => self.canonical(index),
                Home::Const(_) | Home::Acc => return,
            };
            let site = self.site();
            self.code.single(Single::SlotUse, &[site, slot]);
        }
    }

    /// Breaks the chains of a value: their loads and stores, if they were tagged, are plain.
    pub(super) fn broke(&mut self, number: u32) {
        let mut at = number;
        while at != 0 {
            let Some(tracing) = &mut self.tracing else { return };
            let next = std::mem::take(&mut tracing.chain(at).next);
            self.broke_one(at);
            at = next;
        }
    }

    fn broke_one(&mut self, number: u32) {
        let Some(tracing) = &mut self.tracing else { return };
        let chain = tracing.chain(number);
        chain.broken = true;
        if let (Source::Load { at, .. }, Some(store)) = (chain.source, chain.store.take()) {
            for at in [at, store] {
                let site = self.code.field(at, 3) & !7;
                self.code.set_field(at, 3, site);
            }
        }
    }

    /// A label or a branch: chains do not cross it.
    pub(super) fn break_all(&mut self, first: usize) {
        if self.tracing.is_some() {
            for index in first..self.values.len() {
                let number = std::mem::take(&mut self.values[index].chain);
                self.broke(number);
            }
        }
    }

    /// The chains of a binary operation's result; breaks what does not go on.
    pub(super) fn combine(&mut self, op: BinaryOp, left: &Value, right: &Value) -> u32 {
        if self.tracing.is_none() || (left.chain == 0 && right.chain == 0) {
            return 0;
        }
        let Some((family, commutes)) = family(op) else {
            self.broke(left.chain);
            self.broke(right.chain);
            return 0;
        };
        let mut kept = 0;
        for (first, other, can) in [(left.chain, right, true), (right.chain, left, commutes)] {
            let mut at = first;
            while at != 0 {
                let Some(tracing) = &mut self.tracing else { return 0 };
                let chain = tracing.chain(at);
                let next = std::mem::take(&mut chain.next);
                let goes_on = can && !chain.broken && chain.store.is_none();
                if goes_on && (chain.family == Rmw::Plain || chain.family == family) {
                    chain.family = family;
                    chain.step = match (chain.step, other.home) {
                        (Step::None, Home::Const(_)) => Step::Constant,
                        (Step::None, Home::Local(local)) => Step::Local(local),
                        _ => Step::Other,
                    };
                    chain.next = std::mem::replace(&mut kept, at);
                } else {
                    self.broke_one(at);
                }
                at = next;
            }
        }
        kept
    }

    /// An integer load at `at` begins a chain.
    pub(super) fn chain_from_load(&mut self, at: Pos, bytes: u32) -> u32 {
        self.tracing.as_mut().map_or(0, |t| t.open_chain(Source::Load { at, bytes }))
    }

    /// A chain of the value that the read-modify-write at `at` read, which has written already: it holds as long as nobody uses the value.
    pub(super) fn ended_chain(&mut self, at: Pos, bytes: u32, family: Rmw) -> u32 {
        let Some(tracing) = &mut self.tracing else { return 0 };
        let number = tracing.open_chain(Source::Load { at, bytes });
        let chain = tracing.chain(number);
        (chain.family, chain.store) = (family, Some(at));
        let site = self.code.field(at, 3) & !7;
        self.code.set_field(at, 3, site | family as u32);
        number
    }

    /// A store of this value: its role, if the value's chain can end here.
    pub(super) fn chain_to_store(&mut self, value: &Value, store: Pos, bytes: u32) {
        let mut number = value.chain;
        while number != 0 {
            let Some(tracing) = &mut self.tracing else { return };
            let chain = tracing.chain(number);
            let next = std::mem::take(&mut chain.next);
            let whole = matches!(chain.source, Source::Load { bytes: loaded, .. } if loaded == bytes);
            if chain.broken || chain.store.is_some() || chain.family == Rmw::Plain || !whole {
                self.broke_one(number);
            } else {
                chain.store = Some(store);
                let (Source::Load { at, .. }, family) = (chain.source, chain.family as u32) else { return };
                for at in [at, store] {
                    let site = self.code.field(at, 3) & !7;
                    self.code.set_field(at, 3, site | family);
                }
            }
            number = next;
        }
    }

    /// `local.get`: the event, and the chain of a carried local.
    pub(super) fn trace_local_get(&mut self, local: u32, value: &mut Value) {
        let Some(tracing) = &self.tracing else { return };
        value.maybe_result = tracing.survey.follows_results && tracing.holders.local_holds(local);
        if !tracing.survey.carried.written_in_loop[local as usize] {
            return;
        }
        // All reads between two cuts have the same role in the end: they are in the same planned loops.
        let at = self.local_event(Single::LocalRead, local);
        let Some(tracing) = &mut self.tracing else { return };
        tracing.reads.push(at);
        value.chain = tracing.open_chain(Source::Local(at));
    }

    /// Emits the event of an access to a carried local, if it is to be reported.
    fn local_event(&mut self, event: Single, local: u32) -> LocalAccess {
        let at = if self.reports(local) {
            let site = self.site();
            self.code.single(event, &[site, local, 0])
        } else {
            self.code.here()
        };
        LocalAccess { local, at, reported: self.reports(local) }
    }

    /// The same of a write by which the local's slot ceases to hold a result: one event for both, since they mostly come together.
    fn local_replaced(&mut self, local: u32, slot: u32) -> LocalAccess {
        if !self.reports(local) {
            self.code.single(Single::SlotClear, &[slot]);
            return self.local_event(Single::LocalWrite, local);
        }
        let site = self.site();
        LocalAccess { local, at: self.code.single(Single::LocalReplace, &[site, local, 0, slot]), reported: true }
    }

    /// Whether this operator's access to a carried local is reported.
    fn reports(&self, local: u32) -> bool {
        self.tracing.as_ref().is_some_and(|t| t.survey.carried.is_reported(local, self.code.offset))
    }

    /// `local.set`/`local.tee` of a value that was at stack height `index`.
    pub(super) fn trace_local_set(&mut self, local: u32, value: &Value, index: usize, tee: bool) {
        let Some(tracing) = &mut self.tracing else { return };
        let to = self.local_slots[local as usize];
        if value.maybe_result {
            tracing.holders.add_local(local);
            let from = match value.home {
                Home::Local(from) => self.local_slot(from),
                _ => self.canonical(index),
            };
            if from != to {
                self.code.single(Single::SlotMove, &[from, to]);
            }
        }
        let Some(tracing) = &self.tracing else { return };
        let clears = !value.maybe_result && tracing.survey.follows_results && tracing.holders.local_holds(local);
        if !tracing.survey.carried.written_in_loop[local as usize] {
            if clears {
                self.code.single(Single::SlotClear, &[to]);
            }
            return self.broke(value.chain);
        }
        let write = if clears { self.local_replaced(local, to) } else { self.local_event(Single::LocalWrite, local) };
        let depth = self.controls.len();
        let Some(tracing) = &mut self.tracing else { return };
        tracing.writes.push(write);
        let mut number = value.chain;
        while number != 0 {
            let chain = *tracing.chain(number);
            match chain.source {
                Source::Local(read) if read.local == local && !chain.broken && chain.family != Rmw::Plain => {
                    let Chain { family, step, .. } = chain;
                    tracing.pairs.push(Pair { read, write, family, step, tee, depth });
                }
                _ => {}
            }
            number = chain.next;
        }
        self.broke(value.chain);
    }

    /// A value was copied to another slot.
    pub(super) fn note_slot_move(&mut self, from: u32, to: u32, value: &Value) {
        if value.maybe_result {
            self.code.single(Single::SlotMove, &[from, to]);
        }
    }

    /// The values from `first` up flow into a label: notes which of them may be results, so that code behind the label knows.
    pub(super) fn note_flow(&mut self, label: u32, first: usize, count: usize) {
        let Some(tracing) = &mut self.tracing else { return };
        for (i, value) in self.values[first..first + count].iter().enumerate() {
            if value.maybe_result {
                tracing.holders.add_label(label, i as u32);
            }
        }
    }

    /// An `if` ends without an `else`: what it began with is what it ends with.
    pub(super) fn note_pass_through(&mut self, from: u32, to: u32, count: usize) {
        let Some(tracing) = &mut self.tracing else { return };
        for i in 0..count as u32 {
            if tracing.survey.follows_results && tracing.holders.label_holds(from, i) {
                tracing.holders.add_label(to, i);
            }
        }
    }

    /// Whether a value that is no result flows to where one may be.
    pub(super) fn flow_clears(&self, label: u32, i: usize, value: &Value) -> bool {
        !value.maybe_result && self.label_holds(label, i)
    }

    /// Clears the slots of a label, from `slot` up, into which the values from `first` up flow and are no results.
    pub(super) fn clear_flow(&mut self, label: u32, first: usize, count: usize, slot: u32) {
        let mut slot = slot;
        for i in 0..count {
            let value = self.values[first + i];
            if self.flow_clears(label, i, &value) {
                self.code.single(Single::SlotClear, &[slot]);
            }
            slot += value.slots();
        }
    }

    /// Whether a value behind a label may be a result.
    pub(super) fn label_holds(&self, label: u32, i: usize) -> bool {
        self.tracing.as_ref().is_some_and(|t| t.survey.follows_results && t.holders.label_holds(label, i as u32))
    }

    /// After a call: reports where a unit's results are; says whether they may be results at all.
    pub(super) fn results_arrived(&mut self, callee: Option<u32>, first: u32, results: &[ValType]) -> bool {
        let Some(tracing) = &self.tracing else { return false };
        if !tracing.survey.follows_results || results.is_empty() || !tracing.survey.is_unit_call(callee, self.code.offset) {
            return false;
        }
        let site = self.site();
        // One event for all, unless there are vectors: those count as their first slots, which are no row then.
        let mut slot = first;
        for run in results.split_inclusive(|ty| ty.is_wide()) {
            self.code.single(Single::ResultIn, &[site, slot, run.len() as u32]);
            slot += slots_of(run);
        }
        true
    }

    /// A planned loop ends: its induction and reduction variables get their roles.
    pub(super) fn assign_roles(&mut self, ended: &EndedLoop) {
        let Some(tracing) = &self.tracing else { return };
        let inside = |at: Pos| at >= ended.header;
        let mut roles: Vec<(LocalAccess, LocalRole)> = Vec::new();
        let mut done: FxHashSet<u32> = FxHashSet::default();
        for pair in tracing.pairs.iter().filter(|p| inside(p.write.at)) {
            let this = pair.write.local;
            if !done.insert(this) {
                continue;
            }
            let count = |list: &[LocalAccess]| list.iter().filter(|a| a.local == this && inside(a.at)).count();
            let (reads, writes) = (count(&tracing.reads), count(&tracing.writes));
            let pairs: Vec<&Pair> = tracing.pairs.iter().filter(|p| p.write.local == this && inside(p.write.at)).collect();
            let invariant = match pair.step {
                Step::Constant => true,
                Step::Local(local) => !tracing.writes.iter().any(|w| w.local == local && inside(w.at)),
                Step::None | Step::Other => false,
            };
            let every_trip = pair.depth == ended.depth && ended.first_back_edge.is_none_or(|edge| edge > pair.write.at);
            if writes == 1 && pair.family == Rmw::Add && invariant && every_trip {
                roles.push((pair.write, LocalRole::Induction));
            } else if pairs.len() == reads && reads == writes && pairs.iter().all(|p| !p.tee && p.family == pair.family) {
                for pair in pairs {
                    roles.extend([(pair.read, role_of(pair.family)), (pair.write, role_of(pair.family))]);
                }
            }
        }
        for (access, role) in roles.iter().filter(|(access, _)| access.reported) {
            self.code.set_field(access.at, 2, *role as u32);
        }
    }
}
