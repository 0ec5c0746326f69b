//! The recording probe: turns an execution's events into segments and edges, online.
//!
//! ```text
//! load/store ─► delta pairs ─► shadow ─► cell ─┐
//! global, table, growth ───────────────► cell ─┤
//! local, slot ─────────────► activation values ┼─► edges into the open segment ─► sink
//! host call ─────────────────► output and host ┘
//! call, ret, loop ─► units ─► cuts ─► spawn and order edges
//! ```

use std::ops::Range;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use worksp_engine::Module;
use worksp_engine::probe::{LocalRole, LoopRef, Probe, Rmw, Site, SiteId, Slot};

mod pairs;
mod view;

use pairs::PendingLoad;
use view::View;

use crate::activation::{Activation, Values};
use crate::allocator::{Allocator, EntryPoints, LifeChange};
use crate::cell::{Cell, Granule, IN_ALLOCATOR, OUTPUT};
use crate::edge::{EdgeClass, EdgeKind};
use crate::layout::{Layout, LayoutFacts};
use crate::recording::Effect;
use crate::replay::HostObserver;
use crate::segments::{Access, Segments};
use crate::shadow::{CELL, Shadow, read_single, write_single};
use crate::stack::Frames;
use crate::trace::{Boundary, Check, Checks, HOST_CHAIN, Sink, TraceInfo, Witness};
use crate::units::Units;

/// How to trace.
#[derive(Clone, Debug)]
pub struct TracerOptions {
    /// How far accesses meet.
    pub granule: Granule,
    /// Where the stack, static data and the heap lie.
    pub layout: Layout,
    /// Allocator entry points.
    pub entry_points: EntryPoints,
    /// For every imported function, whether it is an output call, whose effect is an append.
    pub outputs: Vec<bool>,
    /// Bytes of memory that the trace and what it is made with may take.
    pub memory_max: u64,
}

/// [`TracerOptions::memory_max`] unless told otherwise: 2 GiB.
pub const MEMORY_MAX_DEFAULT: u64 = 2 << 30;
/// Bytes of one access beyond which its shadow is taken into account before it is made.
const BULK: u64 = 1 << 20;

impl TracerOptions {
    /// What follows from a module: its layout and its entry points by name. No import is an output call.
    pub fn of_module(module: &Module) -> TracerOptions {
        TracerOptions {
            granule: Granule::Eight,
            layout: Layout::new(&LayoutFacts::of_module(module)),
            entry_points: EntryPoints::of_module(module, &[]),
            outputs: vec![false; module.imported_func_count() as usize],
            memory_max: MEMORY_MAX_DEFAULT,
        }
    }

    /// The same with the effects of the imported functions, in order.
    pub fn with_effects(mut self, effects: impl IntoIterator<Item = Effect>) -> TracerOptions {
        self.outputs = effects.into_iter().map(|effect| effect == Effect::Append).collect();
        self
    }
}

/// A trace would take more memory than it may, or has more parts than there are numbers for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the trace needs more than {} MiB of memory: after {work} operators it has {segments} segments; \
     choose fewer or larger units (--unit), or allow more (--memory)",
    memory_max >> 20
)]
pub struct TooLarge {
    /// What it may take, in bytes.
    pub memory_max: u64,
    /// Segments that it had then.
    pub segments: u64,
    /// Operators that were traced until then.
    pub work: u64,
}

#[derive(Clone, Copy, Debug)]
struct OpenHostCall {
    import: u32,
    site: u32,
}

/// One entry of the host that has not left yet.
#[derive(Clone, Copy, Debug)]
struct OpenEntry {
    activations: usize,
    host_calls: usize,
    is_root: bool,
}

/// One of the two chains of host calls.
#[derive(Clone, Copy, Default, Debug)]
struct Chain {
    last: Option<(u32, u32)>,
}

/// Builds a trace while it watches a run. See the module's text.
#[derive(Debug)]
pub struct Tracer<S> {
    graph: Segments<S>,
    granule: Granule,
    units: Units,
    roots: FxHashMap<u32, u32>,
    /// By function: whether its calls are units or entry points at all.
    is_marked: Vec<bool>,
    layout: Layout,
    entry_points: EntryPoints,
    outputs: Vec<bool>,

    memories: Vec<Shadow>,
    tables: Vec<Shadow>,
    globals: Vec<Cell>,
    memory_sizes: Vec<Cell>,
    table_sizes: Vec<Cell>,
    segments_used: FxHashMap<(bool, u32), Cell>,

    activations: Vec<Activation>,
    entries: Vec<OpenEntry>,
    host_calls: Vec<OpenHostCall>,
    output_chain: Chain,
    host_chain: Chain,

    allocator: Allocator,
    pending: SmallVec<[PendingLoad; 2]>,
    /// A bit for every cell that a waiting load may touch, by its number modulo 64.
    pending_cells: u64,
    /// Counts activations, so that each has its own number.
    activations_count: u64,
    /// The numbers of the open activations.
    activation_ids: Vec<u64>,
    /// The segment that made the last return, if that ended a unit.
    returned_in: Option<u32>,

    sp: u64,
    /// The stack pointer with which the open segment started.
    sp_at_start: u64,
    frames: Frames,
    freed_violation: Option<Witness>,
    sites: Vec<Site>,
    work: u64,
    memory_max: u64,
    is_full: bool,
}

impl<S: Sink> Tracer<S> {
    /// A tracer for one instance, whose nodes go to `sink`.
    pub fn new(units: Units, options: TracerOptions, sink: S) -> Tracer<S> {
        let sp = options.layout.sp_initial().unwrap_or(0);
        let marked: Vec<u32> = units.funcs().chain(options.entry_points.funcs()).collect();
        let mut is_marked = vec![false; marked.iter().max().map_or(0, |f| *f as usize + 1)];
        for func in marked {
            is_marked[func as usize] = true;
        }
        Tracer {
            graph: Segments::new(sink),
            granule: options.granule,
            units,
            roots: FxHashMap::default(),
            is_marked,
            layout: options.layout,
            entry_points: options.entry_points,
            outputs: options.outputs,
            memories: Vec::new(),
            tables: Vec::new(),
            globals: Vec::new(),
            memory_sizes: Vec::new(),
            table_sizes: Vec::new(),
            segments_used: FxHashMap::default(),
            activations: Vec::new(),
            entries: Vec::new(),
            host_calls: Vec::new(),
            output_chain: Chain::default(),
            host_chain: Chain::default(),
            allocator: Allocator::default(),
            pending: SmallVec::new(),
            pending_cells: 0,
            activations_count: 0,
            activation_ids: Vec::new(),
            returned_in: None,
            sp,
            sp_at_start: sp,
            frames: Frames::new(sp),
            freed_violation: None,
            sites: Vec::new(),
            work: 0,
            memory_max: options.memory_max,
            is_full: false,
        }
    }

    /// Whether the trace is too large to go on.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Looks whether the trace is, or would be with `more` bytes.
    pub(crate) fn weigh(&mut self, more: u64) {
        let shadows = self.memories.iter().chain(&self.tables).map(Shadow::memory).sum::<u64>();
        let memory = self.graph.memory().saturating_add(shadows).saturating_add(more);
        self.is_full |= memory > self.memory_max || !self.graph.has_numbers();
    }

    /// How large it is, if that is too large.
    pub(crate) fn too_large(&self) -> Option<TooLarge> {
        let (memory_max, segments, work) = (self.memory_max, self.graph.segments_count(), self.work);
        self.is_full.then_some(TooLarge { memory_max, segments, work })
    }

    /// Ends the trace: the sink, and what is known besides nodes and edges (the caller adds names and the entry, see
    /// [`TraceInfo::describe`]).
    pub fn finish(mut self) -> (S, TraceInfo) {
        self.flush_pending();
        let mut graph = self.graph;
        while graph.depth() > 0 {
            graph.close_unit(self.work);
        }
        let check = |violation: Option<Witness>| violation.map_or(Check::Holds, Check::Violated);
        let stack_known = self.layout.sp_global().is_some();
        let info = TraceInfo {
            granule: self.granule.bytes(),
            unit_specs: self.units.specs().to_vec(),
            layout: self.layout.note().to_owned(),
            allocator: self.entry_points.names().to_vec(),
            work: self.work,
            segments: graph.segments_count(),
            checks: Checks {
                stack: if stack_known { check(graph.unsound_stack_edge()) } else { Check::Unchecked },
                freed: check(self.freed_violation.map(|w| graph.resolve(&w))),
                delta: Check::Unchecked,
            },
            boundaries: self.units.boundaries().to_vec(),
            sites: self.sites,
            ..TraceInfo::default()
        };
        (graph.finish(self.work), info)
    }

    /// The stack-pointer global.
    pub(crate) fn sp_global(&self) -> Option<u32> {
        self.layout.sp_global()
    }

    /// Operators seen so far.
    pub fn work(&self) -> u64 {
        self.work
    }

    // --- units -------------------------------------------------------------------------------------------------------

    fn open_unit(&mut self, boundary: u32, work: u64) {
        self.flush_pending();
        self.graph.open_unit(boundary, work);
        self.segment_begins();
    }

    fn close_unit(&mut self, work: u64) {
        self.flush_pending();
        self.graph.close_unit(work);
        self.segment_begins();
    }

    fn segment_begins(&mut self) {
        self.sp_at_start = self.sp;
        self.weigh(0);
    }

    fn open_root(&mut self, func: u32, work: u64) {
        let units = &mut self.units;
        let boundary = *self.roots.entry(func).or_insert_with(|| units.push_boundary(Boundary::Root(func)));
        self.open_unit(boundary, work);
    }

    /// Begins an activation of `func`, and the units that begin with it.
    fn begin_activation(&mut self, site: Option<SiteId>, func: u32, args: &[u64], work: u64, entry_points: u8) {
        self.activations_count += 1;
        self.activation_ids.push(self.activations_count);
        let mut activation = Activation { entry_points, ..Activation::default() };
        let is_marked = self.is_marked.get(func as usize).copied().unwrap_or(false);
        if let Some(boundary) = site.and_then(|site| self.units.of_site(site)) {
            self.open_unit(boundary, work);
            activation.call_units += 1;
        }
        if is_marked && let Some(boundary) = self.units.of_func(func) {
            self.open_unit(boundary, work);
            activation.call_units += 1;
        }
        if is_marked && let Some(entry) = self.entry_points.get(func) {
            self.flush_pending();
            activation.entry_points += 1;
            let changes = self.allocator.called(entry, args);
            self.change_lives(&changes);
        }
        self.activations.push(activation);
    }

    /// Ends the innermost activation's units, and takes it off.
    fn end_activation(&mut self, work: u64) -> Option<Activation> {
        let activation = self.activations.pop()?;
        self.activation_ids.pop();
        for _ in 0..activation.loops.len() + usize::from(activation.call_units) {
            self.close_unit(work);
        }
        Some(activation)
    }

    fn values(&mut self) -> Option<(&mut Values, &mut Segments<S>)> {
        let activation = self.activations.last_mut()?;
        Some((activation.values.get_or_insert_default(), &mut self.graph))
    }

    // --- accesses ----------------------------------------------------------------------------------------------------

    /// Flags of accesses to `address` made now.
    #[inline(always)]
    fn flags_at(&self, address: u64) -> u8 {
        if self.allocator.is_inside() && self.allocator.is_allocators(address) { IN_ALLOCATOR } else { 0 }
    }

    /// An access to something that is not memory.
    fn access(&self, site: SiteId, region: EdgeClass, object: u32) -> Access {
        let flags = if self.allocator.is_inside() { IN_ALLOCATOR } else { 0 };
        Access { flags, site: site.0, region, object, place: 0, dead: false, owned_since: 0 }
    }

    /// Whether the shadow of a range would be too large; then the trace is.
    #[cold]
    fn is_too_large(&mut self, range: &Range<u64>) -> bool {
        self.weigh((range.end - range.start).saturating_mul(2));
        self.is_full()
    }

    fn read_memory(&mut self, site: SiteId, mem: u32, range: Range<u64>, flags: Option<u8>) {
        self.read_owned(site, mem, range, flags, None);
    }

    /// A read; of at most two cells, which these segments owned, if it was made earlier.
    fn read_owned(&mut self, site: SiteId, mem: u32, range: Range<u64>, flags: Option<u8>, owners: Option<[u32; 2]>) {
        if range.end - range.start > BULK && self.is_too_large(&range) {
            return;
        }
        let current = self.graph.current();
        let (shadow, graph, view, freed) = self.view(site, mem, flags);
        let view = View { owners: owners.map(|owners| (range.start, owners)), ..view };
        shadow.read(graph, view.granule, range, |cell, mask| {
            let to = view.read_access(cell, mask);
            if freed.is_none() && view.is_freed_read(&to, cell, mask) {
                let address = cell + u64::from(mask.trailing_zeros());
                *freed = Some(Witness { from: current, to: current, from_site: 0, to_site: site.0, address });
            }
            to
        });
    }

    /// Splits the tracer into what an access changes and what it looks up.
    #[allow(clippy::type_complexity, reason = "one private place")]
    fn view(
        &mut self,
        site: SiteId,
        mem: u32,
        flags: Option<u8>,
    ) -> (&mut Shadow, &mut Segments<S>, View<'_>, &mut Option<Witness>) {
        let view = View {
            site,
            mem,
            flags,
            granule: self.granule,
            sp: self.sp_at_start,
            allocator: &self.allocator,
            layout: &self.layout,
            frames: &self.frames,
            owners: None,
        };
        (shadow_of(&mut self.memories, mem), &mut self.graph, view, &mut self.freed_violation)
    }

    fn write_memory(&mut self, site: SiteId, mem: u32, range: Range<u64>, flags: Option<u8>) {
        if range.end - range.start > BULK && self.is_too_large(&range) {
            return;
        }
        if flags.is_none() && self.allocator.is_inside() && mem == 0 {
            self.allocator.wrote(range.clone());
        }
        let (shadow, graph, view, _) = self.view(site, mem, flags);
        shadow.write(graph, view.granule, range, |cell, mask| view.access(cell, mask));
    }

    fn change_lives(&mut self, changes: &[LifeChange]) {
        for change in changes {
            let shadow = shadow_of(&mut self.memories, 0);
            match change {
                LifeChange::Ends(range) => shadow.end_life(&mut self.graph, range.clone(), 0, |_| 0),
                LifeChange::Begins { block, programs_own } => {
                    let flags = if *programs_own { IN_ALLOCATOR } else { 0 };
                    let allocator = &self.allocator;
                    shadow.end_life(&mut self.graph, block.clone(), flags, |cell| allocator.written_in(cell));
                }
            }
        }
    }

    // --- host calls --------------------------------------------------------------------------------------------------

    fn is_output(&self, import: u32) -> bool {
        self.outputs.get(import as usize).copied().unwrap_or(false)
    }

    /// The site and flags of accesses that the pending host call makes, or `None` between entries.
    fn host_access(&self) -> Option<(SiteId, u8)> {
        let call = self.host_calls.last()?;
        let flags = if self.is_output(call.import) { OUTPUT } else { 0 };
        self.graph.is_open().then_some((SiteId(call.site), flags))
    }
}

#[inline]
fn shadow_of(shadows: &mut Vec<Shadow>, index: u32) -> &mut Shadow {
    let index = index as usize;
    if index >= shadows.len() {
        shadows.resize_with(index + 1, Shadow::default);
    }
    &mut shadows[index]
}

fn cell_of(cells: &mut Vec<Cell>, index: u32) -> &mut Cell {
    let index = index as usize;
    if index >= cells.len() {
        cells.resize_with(index + 1, Cell::default);
    }
    &mut cells[index]
}

/// The shadow of a table has eight bytes for an element.
fn element_range(range: Range<u64>) -> Range<u64> {
    range.start.saturating_mul(CELL)..range.end.saturating_mul(CELL)
}

impl<S: Sink> HostObserver for Tracer<S> {
    fn host_read(&mut self, mem: u32, range: Range<u64>) {
        if let Some((site, flags)) = self.host_access() {
            self.read_memory(site, mem, range, Some(flags));
        }
    }

    fn host_write(&mut self, mem: u32, range: Range<u64>) {
        match self.host_access() {
            Some((site, flags)) => {
                self.flush_written(mem, &range, true);
                self.write_memory(site, mem, range, Some(flags));
            }
            // Between entries the embedder writes, and it belongs to no segment.
            None => shadow_of(&mut self.memories, mem).forget(&mut self.graph, range),
        }
    }

    fn host_grow(&mut self, mem: u32, _previous: u64, _delta: u64) {
        if let Some((site, flags)) = self.host_access() {
            let to = Access { flags, ..self.access(site, EdgeClass::Growth, mem) };
            let cell = cell_of(&mut self.memory_sizes, mem);
            read_single(cell, &mut self.graph, &to);
            write_single(cell, &mut self.graph, &to);
        }
    }

    fn host_table_write(&mut self, table: u32, range: Range<u64>) {
        match self.host_access() {
            Some((site, flags)) => self.write_table(site, table, range, Some(flags)),
            None => shadow_of(&mut self.tables, table).forget(&mut self.graph, element_range(range)),
        }
    }

    fn host_global_set(&mut self, global: u32, value: u64) {
        if let Some((site, flags)) = self.host_access() {
            return self.write_global(site, global, value, Some(flags));
        }
        cell_of(&mut self.globals, global).forget(u8::MAX);
        if self.layout.sp_global() == Some(global) {
            self.set_sp(value);
        }
    }
}

impl<S: Sink> Probe for Tracer<S> {
    fn site_made(&mut self, id: SiteId, site: Site) {
        let index = (id.0 as usize).saturating_sub(1);
        if self.sites.len() <= index {
            self.sites.resize(index + 1, Site { func: 0, offset: 0 });
        }
        self.sites[index] = site;
        self.units.learn_site(id, site);
    }

    fn load(&mut self, site: SiteId, mem: u32, addr: u64, len: u32, rmw: Rmw) {
        let range = addr..addr + u64::from(len);
        if rmw == Rmw::Plain {
            self.read_memory(site, mem, range, None);
        } else {
            self.pend(site, mem, range, rmw);
        }
    }

    fn store(&mut self, site: SiteId, mem: u32, addr: u64, len: u32, rmw: Rmw) {
        let range = addr..addr + u64::from(len);
        if rmw != Rmw::Plain && self.take_pair(mem, &range, rmw) {
            return self.delta(site, mem, range, rmw);
        }
        self.flush_written(mem, &range, true);
        self.write_memory(site, mem, range, None);
    }

    fn bulk_read(&mut self, site: SiteId, mem: u32, range: Range<u64>) {
        self.read_memory(site, mem, range, None);
    }

    fn bulk_write(&mut self, site: SiteId, mem: u32, range: Range<u64>) {
        self.flush_written(mem, &range, true);
        self.write_memory(site, mem, range, None);
    }

    fn memory_size(&mut self, site: SiteId, mem: u32) {
        let to = self.access(site, EdgeClass::Growth, mem);
        read_single(cell_of(&mut self.memory_sizes, mem), &mut self.graph, &to);
    }

    fn memory_grow(&mut self, site: SiteId, mem: u32, delta: u64, previous: Option<u64>) {
        let to = self.access(site, EdgeClass::Growth, mem);
        let cell = cell_of(&mut self.memory_sizes, mem);
        read_single(cell, &mut self.graph, &to);
        if previous.is_some() && delta > 0 {
            write_single(cell, &mut self.graph, &to);
        }
    }

    fn segment_use(&mut self, site: SiteId, is_elem: bool, index: u32, drop: bool) {
        let to = self.access(site, EdgeClass::Growth, index);
        let cell = self.segments_used.entry((is_elem, index)).or_default();
        if drop {
            write_single(cell, &mut self.graph, &to);
        } else {
            read_single(cell, &mut self.graph, &to);
        }
    }

    fn global_get(&mut self, site: SiteId, global: u32) {
        let is_sp = self.layout.sp_global() == Some(global);
        let to = self.access(site, if is_sp { EdgeClass::Sp } else { EdgeClass::Global }, global);
        read_single(cell_of(&mut self.globals, global), &mut self.graph, &to);
    }

    fn global_set(&mut self, site: SiteId, global: u32, value: u64) {
        self.write_global(site, global, value, None);
    }

    fn table_read(&mut self, site: SiteId, table: u32, range: Range<u64>) {
        let to = self.access(site, EdgeClass::Table, 0);
        let shadow = shadow_of(&mut self.tables, table);
        shadow.read(&mut self.graph, Granule::Eight, element_range(range), |cell, _| Access {
            object: (cell / CELL) as u32,
            place: table as u16,
            ..to
        });
    }

    fn table_write(&mut self, site: SiteId, table: u32, range: Range<u64>) {
        self.write_table(site, table, range, None);
    }

    fn table_grow(&mut self, site: SiteId, table: u32, delta: Option<u64>, previous: Option<u64>) {
        let to = Access { place: table as u16, ..self.access(site, EdgeClass::Table, 0) };
        let cell = cell_of(&mut self.table_sizes, table);
        read_single(cell, &mut self.graph, &to);
        if let (Some(delta @ 1..), Some(previous)) = (delta, previous) {
            write_single(cell, &mut self.graph, &to);
            self.table_write(site, table, previous..previous.saturating_add(delta));
        }
    }

    fn enter(&mut self, func: u32, args: &[u64], work: u64) {
        self.work = work;
        let hosts_below = self.entries.last().map_or(0, |e| e.host_calls);
        let is_root = self.host_calls.len() <= hosts_below;
        let entry = OpenEntry { activations: self.activations.len(), host_calls: self.host_calls.len(), is_root };
        self.entries.push(entry);
        if is_root {
            self.open_root(func, work);
        }
        self.begin_activation(None, func, args, work, 0);
    }

    fn leave(&mut self, work: u64, _unwound: bool) {
        self.work = work;
        let Some(entry) = self.entries.pop() else { return };
        while self.activations.len() > entry.activations {
            if let Some(activation) = self.end_activation(work) {
                for _ in 0..activation.entry_points {
                    self.allocator.unwound();
                }
            }
        }
        self.host_calls.truncate(entry.host_calls);
        if entry.is_root {
            self.close_unit(work);
        }
    }

    fn call(&mut self, site: SiteId, func: u32, args: &[u64], work: u64) {
        self.work = work;
        self.begin_activation(Some(site), func, args, work, 0);
    }

    fn tail_call(&mut self, site: SiteId, func: u32, args: &[u64], work: u64) {
        self.work = work;
        // Entry points that the activation began are left when its successor returns.
        let entry_points = self.end_activation(work).map_or(0, |a| a.entry_points);
        self.begin_activation(Some(site), func, args, work, entry_points);
    }

    fn ret(&mut self, results: &[u64], work: u64) {
        self.work = work;
        self.returned_in = self.activations.last().filter(|a| a.call_units > 0).map(|_| self.graph.current());
        if let Some(activation) = self.activations.last()
            && activation.entry_points > 0
        {
            self.flush_pending();
            for _ in 0..activation_entry_points(&self.activations) {
                let changes = self.allocator.returned(results);
                self.change_lives(&changes);
            }
        }
        self.end_activation(work);
    }

    fn host_call(&mut self, site: SiteId, func: u32, _args: &[u64], work: u64) {
        self.work = work;
        let is_output = self.is_output(func);
        let (chain, class) = if is_output {
            (&mut self.output_chain, EdgeClass::Output)
        } else {
            (&mut self.host_chain, EdgeClass::Host)
        };
        let current = self.graph.current();
        if let Some((last, last_site)) = chain.last.replace((current, site.0)) {
            let to = Access {
                flags: 0,
                site: site.0,
                region: class,
                object: func,
                place: HOST_CHAIN,
                dead: false,
                owned_since: 0,
            };
            self.graph.edge(last, EdgeKind::Raw, class, last_site, &to);
        }
        self.host_calls.push(OpenHostCall { import: func, site: site.0 });
    }

    fn host_return(&mut self, _func: u32, _results: &[u64], work: u64) {
        self.work = work;
        self.host_calls.pop();
    }

    fn host_throw(&mut self, _func: u32, work: u64) {
        self.work = work;
        self.host_calls.pop();
    }

    fn unwind(&mut self, site: SiteId, work: u64) {
        self.work = work;
        let entry_points = activation_entry_points(&self.activations);
        if entry_points > 0 {
            self.flush_pending();
            for _ in 0..entry_points {
                self.allocator.unwound();
            }
        }
        let Some(activation) = self.activations.pop() else { return };
        self.activation_ids.pop();
        self.leave_units(activation.loops.len() + usize::from(activation.call_units), site, work);
    }

    fn caught(&mut self, site: SiteId, in_loop: Option<LoopRef>, work: u64) {
        self.work = work;
        let Some(activation) = self.activations.last_mut() else { return };
        let kept = activation.loops.iter().rposition(|open| Some(*open) == in_loop).map_or(0, |at| at + 1);
        let left = activation.loops.len() - kept;
        activation.loops.truncate(kept);
        self.leave_units(left, site, work);
    }

    fn loop_iter(&mut self, this: LoopRef, work: u64) {
        self.work = work;
        let Some(boundary) = self.units.of_loop(this) else { return };
        self.close_loops_from(this, work);
        self.open_unit(boundary, work);
        if let Some(activation) = self.activations.last_mut() {
            activation.loops.push(this);
        }
    }

    fn loop_exit(&mut self, this: LoopRef, work: u64) {
        self.work = work;
        self.close_loops_from(this, work);
    }

    fn local_read(&mut self, site: SiteId, local: Slot, role: LocalRole) {
        let to = self.access(site, EdgeClass::Scalar, local);
        if let Some((values, graph)) = self.values() {
            values.local_read(graph, local, &to, role);
        }
    }

    fn local_write(&mut self, site: SiteId, local: Slot, role: LocalRole) {
        if let Some((values, graph)) = self.values() {
            values.local_write(graph, local, site.0, role);
        }
    }

    fn result_in(&mut self, _site: SiteId, first: Slot, count: u32) {
        let segment = self.returned_in;
        if let Some((values, _)) = self.values() {
            match segment {
                Some(segment) => values.result_in(first, count, segment),
                None => (first..first.saturating_add(count)).for_each(|slot| values.slot_clear(slot)),
            }
        }
    }

    fn slot_move(&mut self, from: Slot, to: Slot) {
        if let Some((values, _)) = self.values() {
            values.slot_move(from, to);
        }
    }

    fn slot_clear(&mut self, slot: Slot) {
        if let Some((values, _)) = self.values() {
            values.slot_clear(slot);
        }
    }

    fn slot_use(&mut self, site: SiteId, slot: Slot) {
        let to = self.access(site, EdgeClass::Result, slot);
        if let Some((values, graph)) = self.values() {
            values.slot_use(graph, slot, &to);
        }
    }
}

fn activation_entry_points(activations: &[Activation]) -> u8 {
    activations.last().map_or(0, |a| a.entry_points)
}

impl<S: Sink> Tracer<S> {
    /// The shadow of a memory that was accessed before.
    #[inline(always)]
    pub(crate) fn shadow(&self, mem: u32) -> Option<&Shadow> {
        self.memories.get(mem as usize)
    }

    /// An exception leaves the innermost units: what their parents do next depends on it.
    fn leave_units(&mut self, count: usize, site: SiteId, work: u64) {
        for _ in 0..count {
            let last = self.graph.current();
            self.close_unit(work);
            let to = self.access(site, EdgeClass::Result, 0);
            self.graph.edge(last, EdgeKind::Result, EdgeClass::Result, 0, &to);
        }
    }

    fn write_global(&mut self, site: SiteId, global: u32, value: u64, flags: Option<u8>) {
        let is_sp = self.layout.sp_global() == Some(global);
        let to = self.access(site, if is_sp { EdgeClass::Sp } else { EdgeClass::Global }, global);
        let to = Access { flags: flags.unwrap_or(to.flags), ..to };
        write_single(cell_of(&mut self.globals, global), &mut self.graph, &to);
        if is_sp {
            self.set_sp(value);
        }
    }

    fn set_sp(&mut self, value: u64) {
        self.sp = value;
        self.layout.sp_set(value);
        self.frames.sp_set(value, self.graph.current());
    }

    fn write_table(&mut self, site: SiteId, table: u32, range: Range<u64>, flags: Option<u8>) {
        let to = self.access(site, EdgeClass::Table, 0);
        let to = Access { flags: flags.unwrap_or(to.flags), place: table as u16, ..to };
        let shadow = shadow_of(&mut self.tables, table);
        shadow.write(&mut self.graph, Granule::Eight, element_range(range), |cell, _| Access {
            object: (cell / CELL) as u32,
            ..to
        });
    }

    /// Closes this activation's loop units from the innermost up to `this`, if it is open.
    fn close_loops_from(&mut self, this: LoopRef, work: u64) {
        let Some(at) = self.activations.last().and_then(|a| a.loops.iter().rposition(|l| *l == this)) else { return };
        let open = self.activations.last().map_or(0, |a| a.loops.len());
        for _ in at..open {
            self.close_unit(work);
        }
        if let Some(activation) = self.activations.last_mut() {
            activation.loops.truncate(at);
        }
    }
}
