//! The tracer on a thread of its own, behind a filter, and its sink on another.
//!
//! ```text
//! engine ─► filter ─► messages, in batches ─►│ channel │─► Tracer ─► nodes, in batches ─►│ channel │─► distinct edges ─► sink
//!           drops what the open segment         bounded     the same calls in the same order
//!           is known to have done already
//! ```
//!
//! Most accesses of a run repeat what their segment has done before, and most of what is left can wait. So the thread that
//! interprets keeps a small cache of what is known ([`Filter`]) and sends the rest as it comes; the trace is the one that a [`Tracer`]
//! makes by itself, byte for byte.

use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use worksp_engine::probe::{LocalRole, LoopRef, Probe, Rmw, Site, SiteId, Slot};

mod filter;
mod message;
mod sink;

use filter::Filter;
use message::{Message, Operands, optional};
use sink::SinkThread;

use crate::layout::Layout;
use crate::replay::HostObserver;
use crate::trace::{Sink, TraceInfo};
use crate::tracer::{TooLarge, Tracer, TracerOptions};
use crate::units::Units;

/// Messages of a batch: 256 KiB.
const BATCH: usize = 1 << 14;
/// Batches that wait at most: 24 MiB, enough for both threads to be busy when phases that cost one of them more take turns.
const WAITING: usize = 96;

/// A function whose calls are units.
const UNIT: u8 = 1;
/// An allocator entry point.
const ENTRY: u8 = 2;

#[derive(Clone, Copy, Debug)]
struct Activation {
    locals: filter::Locals,
    /// Slots that may hold a unit's result: a bit for each, the last one for all from 63 on.
    results: u64,
    /// Whether units may end with it.
    cuts: bool,
    /// Whether it is an allocator entry point's.
    entry: bool,
    /// Whether the tracer knows of it. Most activations do nothing that depends on which one they are, and never get known.
    sent: bool,
    func: u32,
}

/// What is below the outermost activation.
const NO_ACTIVATION: Activation =
    Activation { locals: filter::Locals::UNKNOWN, results: 0, cuts: false, entry: false, sent: true, func: 0 };

/// A load of memory 0 that begins a delta.
#[derive(Clone, Copy, Debug)]
struct DeltaLoad {
    site: SiteId,
    addr: u64,
    len: u32,
    family: Rmw,
    /// What was known of its cell before it.
    before: filter::Cell,
}

impl DeltaLoad {
    fn message(&self) -> Message {
        Message::Load { site: self.site.0, mem: 0, len: self.len as u8, rmw: self.family, addr: self.addr }
    }

    fn is_of(&self, addr: u64, len: u32, family: Rmw) -> bool {
        (self.addr, self.len, self.family) == (addr, len, family)
    }
}

/// The stack pointer as the tracer knows it, and what it need not know yet: who owns which part of the stack matters to reads of the
/// stack and to cuts only, and depends on the highest value and on the last one.
#[derive(Clone, Copy, Debug)]
struct StackPointer {
    global: Option<u32>,
    /// The value that was sent last.
    sent: u64,
    /// The values so far, and so what can be owned.
    lowest: u64,
    highest: u64,
    /// Values that were not sent.
    pending: Option<PendingValues>,
}

#[derive(Clone, Copy, Debug)]
struct PendingValues {
    site: SiteId,
    highest: u64,
    last: u64,
}

impl StackPointer {
    fn new(layout: &Layout) -> StackPointer {
        let sp = layout.sp_initial().unwrap_or(0);
        StackPointer { global: layout.sp_global(), sent: sp, lowest: sp, highest: sp, pending: None }
    }

    /// Whether a read of this range, which is not empty, must come after the values that are pending.
    #[inline(always)]
    fn concerns(&self, range: &Range<u64>) -> bool {
        self.pending.is_some() && range.start < self.highest && self.lowest < range.end
    }

    /// The value that it has.
    fn last(&self) -> u64 {
        self.pending.map_or(self.sent, |pending| pending.last)
    }

    /// Whether this value is nothing new, so that it may wait. (The first one in an epoch never waits, so that what the host sets, which
    /// begins one, need not be known here.)
    fn may_wait(&self, value: u64) -> bool {
        (self.lowest..=self.highest).contains(&value)
    }

    /// The tracer learns this value at once.
    fn is_sent(&mut self, value: u64) {
        (self.sent, self.lowest, self.highest) = (value, self.lowest.min(value), self.highest.max(value));
    }

    fn wait(&mut self, site: SiteId, value: u64) {
        let before = self.pending.map_or(self.sent, |pending| pending.highest);
        self.pending = Some(PendingValues { site, highest: before.max(value), last: value });
    }
}

/// The tracer that takes the messages.
type Behind<S> = Tracer<SinkThread<S>>;

/// Where messages go.
enum Consumer<S> {
    Thread { sender: SyncSender<Vec<Message>>, spare: Receiver<Vec<Message>>, thread: JoinHandle<Behind<S>> },
    /// There is no thread to be had: at once.
    Inline(Box<Behind<S>>, Operands),
}

/// Traces a run as [`Tracer`] does, on another thread. See the module's text.
pub struct Offload<S> {
    filter: Filter,
    messages: Vec<Message>,
    consumer: Consumer<S>,
    units: Units,
    /// By function: [`UNIT`], [`ENTRY`].
    marks: Vec<u8>,
    has_unit_sites: bool,
    sp: StackPointer,
    /// The innermost activation.
    innermost: Activation,
    /// Those below it.
    activations: Vec<Activation>,
    /// The open activations below each entry of the host.
    entries: Vec<usize>,
    /// Whether the tracer saw the last return.
    return_sent: bool,
    /// A load of a known delta: if its store comes next, neither is sent.
    held: Option<DeltaLoad>,
    /// The load of another delta, when it was the last message.
    sent: Option<DeltaLoad>,
}

impl<S> std::fmt::Debug for Offload<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offload").field("units", &self.units).finish_non_exhaustive()
    }
}

impl<S: Sink + Send + 'static> Offload<S> {
    /// A tracer as [`Tracer::new`] makes it, on a thread of its own, and its sink on another; on the calling thread if there is no second
    /// processor.
    pub fn new(units: Units, options: TracerOptions, sink: S) -> Offload<S> {
        if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
            return Offload::inline(units, options, sink);
        }
        let sink = SinkThread::inline(sink).start();
        Offload::with_consumer(units, options, sink, |tracer| match on_thread(tracer) {
            Ok(consumer) => consumer,
            Err(tracer) => Consumer::Inline(tracer, Operands::default()),
        })
    }

    /// The same on the calling thread: what is left is the filter.
    pub fn inline(units: Units, options: TracerOptions, sink: S) -> Offload<S> {
        let sink = SinkThread::inline(sink);
        Offload::with_consumer(units, options, sink, |tracer| Consumer::Inline(tracer, Operands::default()))
    }

    fn with_consumer(
        units: Units,
        options: TracerOptions,
        sink: SinkThread<S>,
        start: impl FnOnce(Box<Behind<S>>) -> Consumer<S>,
    ) -> Offload<S> {
        let mut marks = Vec::new();
        let of_units = units.funcs().map(|func| (func, UNIT));
        for (func, mark) in of_units.chain(options.entry_points.funcs().map(|func| (func, ENTRY))) {
            let func = func as usize;
            if func >= marks.len() {
                marks.resize(func + 1, 0);
            }
            marks[func] |= mark;
        }
        Offload {
            filter: Filter::new(),
            messages: Vec::with_capacity(BATCH),
            marks,
            has_unit_sites: !units.plan().sites.is_empty(),
            sp: StackPointer::new(&options.layout),
            innermost: NO_ACTIVATION,
            activations: Vec::new(),
            entries: Vec::new(),
            return_sent: false,
            held: None,
            sent: None,
            consumer: start(Box::new(Tracer::new(units.clone(), options, sink))),
            units,
        }
    }

    /// Ends the trace, as [`Tracer::finish`] does.
    ///
    /// # Errors
    /// When the trace became too large; what came after that was not traced.
    ///
    /// # Panics
    /// When the tracer's thread did.
    pub fn finish(mut self) -> Result<(S, TraceInfo), TooLarge> {
        self.release();
        self.flush();
        let tracer = match self.consumer {
            Consumer::Thread { sender, thread, .. } => {
                drop(sender);
                match thread.join() {
                    Ok(tracer) => Box::new(tracer),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Consumer::Inline(tracer, _) => tracer,
        };
        if let Some(too_large) = tracer.too_large() {
            return Err(too_large);
        }
        let (sink, info) = tracer.finish();
        Ok((sink.finish(), info))
    }
}

/// Starts the thread; hands the tracer back when there is none to be had.
fn on_thread<S: Sink + Send + 'static>(tracer: Box<Behind<S>>) -> Result<Consumer<S>, Box<Behind<S>>> {
    let (sender, receiver) = sync_channel::<Vec<Message>>(WAITING);
    let (recycle, spare) = channel();
    let (hand_over, take) = channel::<Box<Behind<S>>>();
    let spawned = std::thread::Builder::new().name("tracer".into()).spawn(move || {
        let mut tracer = take.recv().expect("the tracer is handed over before anything else");
        let mut operands = Operands::default();
        for mut batch in receiver {
            tracer.receive(&batch, &mut operands);
            if tracer.is_full() {
                break;
            }
            batch.clear();
            // Nobody takes empty batches once the run is over.
            let _ = recycle.send(batch);
        }
        *tracer
    });
    match spawned {
        Ok(thread) => {
            hand_over.send(tracer).map_err(|unsent| unsent.0)?;
            Ok(Consumer::Thread { sender, spare, thread })
        }
        Err(_) => Err(tracer),
    }
}

impl<S: Sink> Offload<S> {
    #[inline(always)]
    fn send(&mut self, message: Message) {
        self.release();
        self.sent = None;
        self.push_message(message);
    }

    /// Sends the load that is held, because something else comes before its store.
    #[inline(always)]
    fn release(&mut self) {
        if let Some(load) = self.held.take() {
            self.send_delta_load(load);
        }
    }

    #[inline(never)]
    fn send_delta_load(&mut self, load: DeltaLoad) {
        self.before_read(&(load.addr..load.addr + u64::from(load.len)));
        self.filter.load(load.addr, load.len, false);
        self.announce();
        self.push_message(load.message());
        self.sent = Some(load);
    }

    /// Sends what reads of this range depend on.
    #[inline(always)]
    fn before_read(&mut self, range: &Range<u64>) {
        if self.sp.concerns(range) {
            self.send_stack_pointer();
        }
    }

    /// Sends the stack pointer's pending values, as few as do.
    #[inline(never)]
    fn send_stack_pointer(&mut self) {
        let Some(PendingValues { site, highest, last }) = self.sp.pending.take() else { return };
        for value in [highest, last] {
            if std::mem::replace(&mut self.sp.sent, value) != value {
                self.send(Message::StackPointerSet { site: site.0, value });
            }
        }
    }

    fn stack_pointer_set(&mut self, site: SiteId, value: u64, is_known: bool) {
        self.release();
        // Who owns these bytes changes, and reads of theirs are checked for it.
        let before = self.sp.last();
        if before != value {
            self.filter.forget_reads(before.min(value)..before.max(value));
        }
        if is_known && self.sp.may_wait(value) {
            return self.sp.wait(site, value);
        }
        self.send_stack_pointer();
        self.sp.is_sent(value);
        self.send(Message::StackPointerSet { site: site.0, value });
    }

    #[inline(always)]
    fn push_message(&mut self, message: Message) {
        self.messages.push(message);
        if self.messages.len() >= BATCH {
            self.flush();
        }
    }

    #[inline(never)]
    fn flush(&mut self) {
        match &mut self.consumer {
            Consumer::Thread { sender, spare, .. } => {
                let next = spare.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH));
                // A send fails after the thread has panicked, or the trace is too large; `finish` passes that on.
                let _ = sender.send(std::mem::replace(&mut self.messages, next));
            }
            Consumer::Inline(tracer, operands) => tracer.receive(&self.messages, operands),
        }
        self.messages.clear();
    }

    fn send_with(&mut self, operands: &[u64], rest: &[u64], message: Message) {
        for operand in operands.iter().chain(rest) {
            self.send(Message::Operand(*operand));
        }
        self.send(message);
    }

    /// Sends what may cut a segment, or changes what is known about addresses in another way.
    fn send_cut(&mut self, operands: &[u64], rest: &[u64], message: Message) {
        self.release();
        self.send_stack_pointer();
        self.filter.next_epoch();
        self.send_with(operands, rest, message);
    }

    fn mark(&self, func: u32) -> u8 {
        self.marks.get(func as usize).copied().unwrap_or(0)
    }

    /// An activation that begins. It is sent at once if a unit or an entry point begins with it.
    fn begin(&mut self, site: SiteId, func: u32) -> Activation {
        let mark = self.mark(func);
        let cuts = mark & UNIT != 0 || (self.has_unit_sites && self.units.of_site(site).is_some());
        let entry = mark & ENTRY != 0;
        Activation { cuts, entry, sent: cuts || entry, func, ..NO_ACTIVATION }
    }

    fn delta_load(&mut self, site: SiteId, addr: u64, len: u32, family: Rmw) {
        self.release();
        let load = DeltaLoad { site, addr, len, family, before: self.filter.cell(addr) };
        if self.filter.knows_delta(addr, len, family) {
            self.held = Some(load);
        } else {
            self.send_delta_load(load);
        }
    }

    fn delta_store(&mut self, site: SiteId, addr: u64, len: u32, family: Rmw) {
        if self.held.is_some_and(|load| load.is_of(addr, len, family)) {
            self.held = None;
            return;
        }
        let load = self.sent.filter(|load| load.is_of(addr, len, family));
        self.before_read(&(addr..addr + u64::from(len)));
        self.filter.store(addr, len, false);
        self.announce();
        self.send(Message::Store { site: site.0, mem: 0, len: len as u8, rmw: family, addr });
        if let Some(load) = load {
            self.filter.delta(addr, len, family, load.before);
        }
    }

    /// Makes the innermost activation known to the tracer.
    fn announce(&mut self) {
        if !std::mem::replace(&mut self.innermost.sent, true) {
            self.send(Message::Call { site: 0, func: self.innermost.func });
        }
    }

    /// Another activation becomes the innermost. What is held belongs to the one before.
    #[inline(always)]
    fn push(&mut self, activation: Activation) {
        self.release();
        self.activations.push(std::mem::replace(&mut self.innermost, activation));
    }

    #[inline(always)]
    fn pop(&mut self) -> Activation {
        self.release();
        let below = self.activations.pop().unwrap_or(NO_ACTIVATION);
        std::mem::replace(&mut self.innermost, below)
    }
}

/// The bit of a slot in [`Activation::results`].
#[inline(always)]
fn bit(slot: Slot) -> u64 {
    1 << slot.min(63)
}

/// The bit of a slot, unless others share it.
#[inline(always)]
fn own_bit(slot: Slot) -> u64 {
    if slot < 63 { bit(slot) } else { 0 }
}

impl<S: Sink> HostObserver for Offload<S> {
    fn host_read(&mut self, mem: u32, range: Range<u64>) {
        self.send_cut(&[range.start, range.end], &[], Message::HostRead { mem });
    }

    fn host_write(&mut self, mem: u32, range: Range<u64>) {
        self.send_cut(&[range.start, range.end], &[], Message::HostWrite { mem });
    }

    fn host_grow(&mut self, mem: u32, previous: u64, delta: u64) {
        self.send_cut(&[previous, delta], &[], Message::HostGrow { mem });
    }

    fn host_table_write(&mut self, table: u32, range: Range<u64>) {
        self.send_cut(&[range.start, range.end], &[], Message::HostTableWrite { table });
    }

    fn host_global_set(&mut self, global: u32, value: u64) {
        self.send_cut(&[value], &[], Message::HostGlobalSet { global });
    }
}

// Hooks run out of line in the engine, so what is short may be inlined into them.
impl<S: Sink> Probe for Offload<S> {
    fn site_made(&mut self, id: SiteId, site: Site) {
        self.units.learn_site(id, site);
        self.send_with(&[site.func.into(), site.offset.into()], &[], Message::SiteMade { id: id.0 });
    }

    #[inline(always)]
    fn knows_load(&self, addr: u64, len: u32, rmw: Rmw) -> bool {
        self.filter.knows_load(addr, len, rmw == Rmw::Plain)
    }

    #[inline(always)]
    fn knows_store(&self, addr: u64, len: u32, _rmw: Rmw) -> bool {
        self.filter.knows_store(addr, len)
    }

    #[inline(always)]
    fn load(&mut self, site: SiteId, mem: u32, addr: u64, len: u32, rmw: Rmw) {
        if mem == 0 {
            if self.knows_load(addr, len, rmw) {
                return;
            }
            if rmw != Rmw::Plain {
                return self.delta_load(site, addr, len, rmw);
            }
            self.filter.load(addr, len, true);
            self.before_read(&(addr..addr + u64::from(len)));
        }
        if rmw != Rmw::Plain {
            self.announce();
        }
        self.send(Message::Load { site: site.0, mem: mem as u8, len: len as u8, rmw, addr });
    }

    #[inline(always)]
    fn store(&mut self, site: SiteId, mem: u32, addr: u64, len: u32, rmw: Rmw) {
        if mem == 0 {
            if self.knows_store(addr, len, rmw) {
                return;
            }
            if rmw != Rmw::Plain {
                return self.delta_store(site, addr, len, rmw);
            }
            self.filter.store(addr, len, true);
        }
        if rmw != Rmw::Plain {
            self.announce();
        }
        self.send(Message::Store { site: site.0, mem: mem as u8, len: len as u8, rmw, addr });
    }

    fn bulk_read(&mut self, site: SiteId, mem: u32, range: Range<u64>) {
        if mem == 0 {
            self.filter.forget(range.clone());
            self.before_read(&range);
        }
        self.send_with(&[range.start, range.end], &[], Message::BulkRead { site: site.0, mem });
    }

    fn bulk_write(&mut self, site: SiteId, mem: u32, range: Range<u64>) {
        if mem == 0 {
            self.filter.forget(range.clone());
        }
        self.send_with(&[range.start, range.end], &[], Message::BulkWrite { site: site.0, mem });
    }

    fn memory_size(&mut self, site: SiteId, mem: u32) {
        self.send(Message::MemorySize { site: site.0, mem });
    }

    fn memory_grow(&mut self, site: SiteId, mem: u32, delta: u64, previous: Option<u64>) {
        self.send_with(&[delta, optional(previous)], &[], Message::MemoryGrow { site: site.0, mem });
    }

    fn segment_use(&mut self, site: SiteId, is_elem: bool, index: u32, drop: bool) {
        self.send(Message::SegmentUse { site: site.0, index, is_elem, drop });
    }

    fn global_get(&mut self, site: SiteId, global: u32) {
        if !self.filter.global_get(global) {
            self.send(Message::GlobalGet { site: site.0, global });
        }
    }

    fn global_set(&mut self, site: SiteId, global: u32, value: u64) {
        let known = self.filter.global_set(global);
        if self.sp.global == Some(global) {
            self.stack_pointer_set(site, value, known);
        } else if !known {
            self.send_with(&[value], &[], Message::GlobalSet { site: site.0, global });
        }
    }

    fn table_read(&mut self, site: SiteId, table: u32, range: Range<u64>) {
        let is_one = range.end - range.start == 1;
        if !(is_one && self.filter.element(table, range.start)) {
            self.send_with(&[range.start, range.end], &[], Message::TableRead { site: site.0, table });
        }
    }

    fn table_write(&mut self, site: SiteId, table: u32, range: Range<u64>) {
        self.send_with(&[range.start, range.end], &[], Message::TableWrite { site: site.0, table });
    }

    fn table_grow(&mut self, site: SiteId, table: u32, delta: Option<u64>, previous: Option<u64>) {
        self.send_with(&[optional(delta), optional(previous)], &[], Message::TableGrow { site: site.0, table });
    }

    fn enter(&mut self, func: u32, args: &[u64], work: u64) {
        self.entries.push(self.activations.len());
        let activation = Activation { cuts: true, sent: true, ..self.begin(SiteId(0), func) };
        self.push(activation);
        self.send_cut(&[work], args, Message::Enter { func });
    }

    fn leave(&mut self, work: u64, unwound: bool) {
        let below = self.entries.pop().unwrap_or(0);
        while self.activations.len() > below {
            self.pop();
        }
        self.send_cut(&[work], &[], Message::Leave { unwound });
    }

    fn call(&mut self, site: SiteId, func: u32, args: &[u64], work: u64) {
        let activation = self.begin(site, func);
        self.push(activation);
        if activation.sent {
            self.send_cut(&[work], args, Message::Call { site: site.0, func });
        }
    }

    fn tail_call(&mut self, site: SiteId, func: u32, args: &[u64], work: u64) {
        self.release();
        let ended = self.innermost;
        let mut activation = self.begin(site, func);
        activation.entry |= ended.entry;
        let begins = activation.sent;
        activation.sent |= ended.sent;
        self.innermost = activation;
        match (ended.sent, begins) {
            (false, false) => {}
            (false, true) => self.send_cut(&[work], args, Message::Call { site: site.0, func }),
            (true, _) => self.send_cut(&[work], args, Message::TailCall { site: site.0, func }),
        }
    }

    fn ret(&mut self, results: &[u64], work: u64) {
        let ended = self.pop();
        self.return_sent = ended.sent;
        if ended.cuts || ended.entry {
            self.send_cut(&[work], results, Message::Ret);
        } else if ended.sent {
            self.send(Message::Ret);
        }
    }

    fn host_call(&mut self, site: SiteId, func: u32, args: &[u64], work: u64) {
        self.send_cut(&[work], args, Message::HostCall { site: site.0, func });
    }

    fn host_return(&mut self, func: u32, results: &[u64], work: u64) {
        self.send_cut(&[work], results, Message::HostReturn { func });
    }

    fn host_throw(&mut self, func: u32, work: u64) {
        self.send_cut(&[work], &[], Message::HostThrow { func });
    }

    fn unwind(&mut self, site: SiteId, work: u64) {
        let ended = self.pop();
        if ended.cuts || ended.entry {
            self.send_cut(&[work], &[], Message::Unwind { site: site.0 });
        } else if ended.sent {
            self.send(Message::Unwind { site: site.0 });
        }
    }

    fn caught(&mut self, site: SiteId, in_loop: Option<LoopRef>, work: u64) {
        // Only an activation that is known has open loops.
        if self.innermost.sent {
            match in_loop {
                Some(LoopRef { func, ordinal }) => {
                    self.send_cut(&[work], &[func.into(), ordinal.into()], Message::Caught { site: site.0 });
                }
                None => self.send_cut(&[work], &[], Message::Caught { site: site.0 }),
            }
        }
    }

    fn loop_iter(&mut self, this: LoopRef, work: u64) {
        self.announce();
        self.innermost.cuts = true;
        self.send_cut(&[work], &[], Message::LoopIter(this));
    }

    fn loop_exit(&mut self, this: LoopRef, work: u64) {
        self.announce();
        self.send_cut(&[work], &[], Message::LoopExit(this));
    }

    fn local_read(&mut self, site: SiteId, local: Slot, role: LocalRole) {
        if !self.knows_local_read(local, role) {
            self.filter.local_read(&mut self.innermost.locals, local, role);
            self.announce();
            self.send(Message::LocalRead { site: site.0, local, role });
        }
    }

    #[inline(always)]
    fn knows_local_read(&self, local: Slot, role: LocalRole) -> bool {
        self.filter.knows_local_read(&self.innermost.locals, local, role)
    }

    #[inline(always)]
    fn knows_local_write(&self, local: Slot) -> bool {
        self.filter.knows_local_write(&self.innermost.locals, local)
    }

    #[inline(always)]
    fn knows_no_result(&self, slot: Slot) -> bool {
        self.innermost.results & bit(slot) == 0
    }

    fn local_write(&mut self, site: SiteId, local: Slot, role: LocalRole) {
        if !self.knows_local_write(local) {
            self.filter.local_write(&mut self.innermost.locals, local, role);
            self.announce();
            self.send(Message::LocalWrite { site: site.0, local, role });
        }
    }

    fn result_in(&mut self, _site: SiteId, first: Slot, count: u32) {
        // What no unit returned is not followed, and an activation that was not sent was no unit.
        if !self.return_sent {
            return (first..first.saturating_add(count)).for_each(|slot| self.slot_clear(slot));
        }
        self.announce();
        for slot in first..first.saturating_add(count) {
            self.innermost.results |= bit(slot);
        }
        self.send(Message::ResultIn { first, count });
    }

    fn slot_move(&mut self, from: Slot, to: Slot) {
        let activation = &mut self.innermost;
        let before = activation.results;
        if before & bit(from) != 0 {
            activation.results |= bit(to);
        } else {
            activation.results &= !own_bit(to);
        }
        if before & (bit(from) | bit(to)) != 0 {
            self.send(Message::SlotMove { from, to });
        }
    }

    fn slot_clear(&mut self, slot: Slot) {
        let activation = &mut self.innermost;
        let before = activation.results;
        activation.results &= !own_bit(slot);
        if before & bit(slot) != 0 {
            self.send(Message::SlotClear { slot });
        }
    }

    fn slot_use(&mut self, site: SiteId, slot: Slot) {
        if self.innermost.results & bit(slot) != 0 {
            self.send(Message::SlotUse { site: site.0, slot });
        }
    }
}
