//! What one activation of a function carries from segment to segment outside of memory: its open loops, its carried locals, and
//! the results of unit calls that wait in its slots.

use smallvec::SmallVec;
use worksp_engine::probe::{LocalRole, LoopRef, Slot};

use crate::edge::{EdgeClass, EdgeKind};
use crate::segments::{Access, Segments};
use crate::sets::{EMPTY, SetIdx};
use crate::trace::Sink;

/// One activation.
#[derive(Default, Debug)]
pub(crate) struct Activation {
    /// Units that began with this activation (its call site, its function) and end with it.
    pub call_units: u8,
    /// Allocator entry points that began with it.
    pub entry_points: u8,
    /// Its open loop units, outermost first.
    pub loops: Vec<LoopRef>,
    /// Its values, when it has any to follow.
    pub values: Option<Box<Values>>,
}

/// Locals and slots of one activation.
#[derive(Default, Debug)]
pub(crate) struct Values {
    locals: Vec<Local>,
    /// By slot: the segment that returned the value in it, plus 1.
    results: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct LocalWriter {
    segment: u32,
    site: u32,
}

#[derive(Clone, Copy, Debug)]
struct Reductions {
    role: LocalRole,
    set: SetIdx,
    newest: LocalWriter,
    /// The newest writer of another segment than that one's.
    before: Option<LocalWriter>,
}

/// A carried local: the last plain write, and on top of it what does not hide it.
#[derive(Default, Debug)]
struct Local {
    plain: Option<LocalWriter>,
    induction: Option<LocalWriter>,
    reductions: SmallVec<[Reductions; 1]>,
}

impl Local {
    fn read<S: Sink>(&self, graph: &mut Segments<S>, to: &Access, role: LocalRole) {
        let current = graph.current();
        let is_own = |w: &LocalWriter| w.segment == current;
        if self.plain.as_ref().is_some_and(is_own) {
            return;
        }
        // After its own step a segment reads what it wrote.
        if self.induction.as_ref().is_some_and(is_own) && self.reductions.is_empty() {
            return;
        }
        if let Some(w) = &self.plain {
            graph.edge(w.segment, EdgeKind::Raw, EdgeClass::Scalar, w.site, to);
        }
        if let Some(w) = &self.induction {
            graph.edge(w.segment, EdgeKind::Raw, EdgeClass::Induction, w.site, to);
        }
        for r in &self.reductions {
            if r.role == role {
                if let Some(w) = if is_own(&r.newest) { r.before.as_ref() } else { Some(&r.newest) } {
                    graph.edge(w.segment, EdgeKind::Raw, EdgeClass::Reduction, w.site, to);
                }
            } else {
                graph.edges_from_set(r.set, &[EdgeKind::Raw], r.newest.site, to, |_, _, _| EdgeClass::Scalar);
            }
        }
    }

    fn write<S: Sink>(&mut self, graph: &mut Segments<S>, site: u32, role: LocalRole) {
        let writer = LocalWriter { segment: graph.current(), site };
        match role {
            // What a segment wrote plainly, it may change again without anybody noticing.
            _ if self.plain.is_some_and(|w| w.segment == graph.current()) => {}
            LocalRole::Plain => *self = Local { plain: Some(writer), ..Local::default() },
            LocalRole::Induction => self.induction = Some(writer),
            role => {
                let open = self.reductions.iter_mut().find(|r| r.role == role);
                let set_before = open.as_ref().map_or(EMPTY, |r| r.set);
                let set = graph.sets_mut().push(set_before, writer.segment, 0);
                let before = open.as_ref().and_then(|r| if r.newest.segment == writer.segment { r.before } else { Some(r.newest) });
                let new = Reductions { role, set, newest: writer, before };
                match open {
                    Some(r) => *r = new,
                    None => self.reductions.push(new),
                }
            }
        }
    }
}

fn at<T: Default + Clone>(list: &mut Vec<T>, index: Slot) -> &mut T {
    let index = index as usize;
    if index >= list.len() {
        list.resize(index + 1, T::default());
    }
    &mut list[index]
}

impl Values {
    fn local(&mut self, local: Slot) -> &mut Local {
        let local = local as usize;
        if local >= self.locals.len() {
            self.locals.resize_with(local + 1, Local::default);
        }
        &mut self.locals[local]
    }

    /// `local.get` of a carried local.
    pub fn local_read<S: Sink>(&mut self, graph: &mut Segments<S>, local: Slot, to: &Access, role: LocalRole) {
        self.local(local).read(graph, to, role);
    }

    /// `local.set` or `local.tee` of a carried local.
    pub fn local_write<S: Sink>(&mut self, graph: &mut Segments<S>, local: Slot, site: u32, role: LocalRole) {
        self.local(local).write(graph, site, role);
    }

    /// Slots now hold what `segment` returned.
    pub fn result_in(&mut self, first: Slot, count: u32, segment: u32) {
        for slot in first..first.saturating_add(count) {
            *at(&mut self.results, slot) = segment + 1;
        }
    }

    /// A value moved.
    pub fn slot_move(&mut self, from: Slot, to: Slot) {
        let value = self.results.get(from as usize).copied().unwrap_or(0);
        self.set_result(to, value);
    }

    /// A slot no longer holds a unit's result.
    pub fn slot_clear(&mut self, slot: Slot) {
        self.set_result(slot, 0);
    }

    fn set_result(&mut self, slot: Slot, value: u32) {
        if value != 0 || (slot as usize) < self.results.len() {
            *at(&mut self.results, slot) = value;
        }
    }

    /// A slot's value is used: an edge when a unit returned it.
    pub fn slot_use<S: Sink>(&self, graph: &mut Segments<S>, slot: Slot, to: &Access) {
        if let Some(segment) = self.results.get(slot as usize).and_then(|s| s.checked_sub(1)) {
            graph.edge(segment, EdgeKind::Result, EdgeClass::Result, 0, to);
        }
    }
}
