//! The observing seam: what an execution shows to whoever watches it.
//!
//! `execute` is generic over a [`Probe`]; every hook is an empty inline method by default, so a probe pays only for what it
//! overrides and [`NoProbe`] pays nothing. The engine knows no analysis: it reports what happens, in program order, and the
//! probe decides what that means.
//!
//! Raw bits of several values come as slots hold them: one word for each, two for a vector, the lower half first.
//!
//! Three conventions hold for every hook.
//!
//! * **Work comes first.** The `work` argument is the total work so far *including* the operator that causes the event, so a
//!   probe that cuts segments takes the difference of two of them.
//! * **A hook runs only when its operator succeeds**, after its traps were ruled out and, for loads and stores, in the order
//!   in which the operator touches memory (a read-modify operator reads first). An operator that traps reports no access.
//! * **Operands come first.** Everything an operator's operands did was reported before the operator's own event.

use std::ops::Range;

/// A static place in the module: one operator of one function. Resolved by [`SiteTable::get`]; 0 means "no site" and is what
/// code that was not translated for tracing reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[repr(transparent)]
pub struct SiteId(pub u32);

/// Where a [`SiteId`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// The function's index in its module's function index space (imports first).
    pub func: u32,
    /// Byte offset of the operator in the module, as tools such as `wasm-objdump` print it.
    pub offset: u32,
}

/// All sites that traced translation has handed out, in the order of translation.
#[derive(Clone, Default, Debug)]
pub struct SiteTable {
    sites: Vec<Site>,
}

impl SiteTable {
    /// Adds a place and returns its id (ids start at 1).
    pub fn push(&mut self, site: Site) -> SiteId {
        self.sites.push(site);
        SiteId(u32::try_from(self.sites.len()).expect("fewer than 2^32 sites: a module is smaller than 4 GiB"))
    }

    /// The place behind an id, or `None` for 0 and for ids that this table has not handed out.
    pub fn get(&self, id: SiteId) -> Option<Site> {
        self.sites.get((id.0 as usize).checked_sub(1)?).copied()
    }

    /// Every place with its id, in order.
    pub fn iter(&self) -> impl Iterator<Item = (SiteId, Site)> + '_ {
        self.since(0)
    }

    /// The places that were added after the first `known` ones.
    pub fn since(&self, known: usize) -> impl Iterator<Item = (SiteId, Site)> + '_ {
        let new = self.sites.get(known..).unwrap_or(&[]);
        new.iter().zip(known as u32 + 1..).map(|(site, id)| (SiteId(id), *site))
    }

    /// Takes back all places but the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.sites.truncate(len);
    }

    /// The number of places.
    pub fn len(&self) -> usize {
        self.sites.len()
    }

    /// Whether no place was handed out yet.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }
}

/// One `loop` of one function: the N-th in binary order, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LoopRef {
    /// The function's index in its module.
    pub func: u32,
    /// The loop's ordinal in the function, in binary order, from 0.
    pub ordinal: u32,
}

/// How a load or a store takes part in a read-modify-write that commutes (design: *delta*). Decided by dataflow in the traced
/// translation; `Plain` is always a sound answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum Rmw {
    /// An ordinary access.
    #[default]
    Plain = 0,
    /// The load or the store of an integer `+`/`-` read-modify-write.
    Add = 1,
    /// Likewise for `and`.
    And = 2,
    /// Likewise for `or`.
    Or = 3,
    /// Likewise for `xor`.
    Xor = 4,
}

/// How an access to a carried local takes part in its loops (design: *carried locals*).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum LocalRole {
    /// An ordinary access: its edges are `scalar`.
    #[default]
    Plain = 0,
    /// The one write (or a read) of an induction variable of a unit loop.
    Induction = 1,
    /// A read or a write of an integer `+`/`-` reduction inside its loop.
    ReduceAdd = 2,
    /// Likewise for `and`.
    ReduceAnd = 3,
    /// Likewise for `or`.
    ReduceOr = 4,
    /// Likewise for `xor`.
    ReduceXor = 5,
}

/// What a traced translation must instrument beyond loads, stores, calls, returns, globals, tables and host calls.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct TracePlan {
    /// Report [`Probe::loop_iter`]/[`Probe::loop_exit`] for these loops, and local reads and writes in their functions.
    pub loops: Vec<LoopRef>,
    /// Report `loop_iter`/`loop_exit`, but no local accesses, for every loop an iteration of which may hold at least so many
    /// operators (a profile): all but those without calls, inner loops and bulk operators that are shorter.
    pub every_loop_of: Option<u32>,
    /// Report also what can say nothing new about carried locals and units' results: the slow twin of the analyses that leave it
    /// out.
    pub everything: bool,
    /// Functions whose calls are units: callers' uses of their results are reported.
    pub funcs: Vec<u32>,
    /// Call sites (function, module offset of the call operator) that are units, likewise.
    pub sites: Vec<Site>,
}

/// A frame slot of the current activation: locals first (parameters, then declared locals), then operand stack slots. A vector
/// takes two slots and goes by the first of them.
pub type Slot = u32;

/// Observes one execution. See the module's text for the three conventions.
#[allow(unused_variables)]
pub trait Probe {
    /// Whether code for this probe is the traced translation. `false` compiles every hook away.
    const TRACED: bool = true;
    /// Whether it wants to be told of accesses: to memories, globals and tables. `false` compiles those hooks away.
    const ACCESSES: bool = true;
    /// Whether it wants to be told of every operator. `false` leaves code as it is; `true` adds one instruction to each operator.
    const OPERATORS: bool = false;

    /// Translation handed out a site. Reported before any event that names it.
    fn site_made(&mut self, id: SiteId, site: Site) {}

    // --- linear memory -----------------------------------------------------------------------------------------------

    /// Whether a load of memory 0 need not be reported. This is asked first and compiled into handlers: keep it to a few loads and
    /// compares, which need no stack.
    #[inline(always)]
    fn knows_load(&self, addr: u64, len: u32, rmw: Rmw) -> bool {
        false
    }

    /// Likewise for a store.
    #[inline(always)]
    fn knows_store(&self, addr: u64, len: u32, rmw: Rmw) -> bool {
        false
    }

    /// `len` bytes (1, 2, 4, 8, or 16) at `addr` of memory `mem` are read.
    #[inline(always)]
    fn load(&mut self, site: SiteId, mem: u32, addr: u64, len: u32, rmw: Rmw) {}

    /// `len` bytes at `addr` of memory `mem` are written.
    #[inline(always)]
    fn store(&mut self, site: SiteId, mem: u32, addr: u64, len: u32, rmw: Rmw) {}

    /// A bulk operator (`memory.copy`) reads a range. Empty ranges are not reported.
    fn bulk_read(&mut self, site: SiteId, mem: u32, range: Range<u64>) {}

    /// A bulk operator (`memory.copy/fill/init`) writes a range. Empty ranges are not reported.
    fn bulk_write(&mut self, site: SiteId, mem: u32, range: Range<u64>) {}

    /// `memory.size`.
    fn memory_size(&mut self, site: SiteId, mem: u32) {}

    /// `memory.grow` by `delta` pages; `previous` is the former size in pages, or `None` when it failed.
    fn memory_grow(&mut self, site: SiteId, mem: u32, delta: u64, previous: Option<u64>) {}

    /// `data.drop` or `elem.drop`; also every `memory.init`/`table.init`, as a read (`drop == false`).
    fn segment_use(&mut self, site: SiteId, is_elem: bool, index: u32, drop: bool) {}

    // --- globals and tables ------------------------------------------------------------------------------------------

    /// `global.get` of a mutable global (index in the module).
    #[inline(always)]
    fn global_get(&mut self, site: SiteId, global: u32) {}

    /// `global.set`; `value` holds the raw bits, of a vector the lower half.
    #[inline(always)]
    fn global_set(&mut self, site: SiteId, global: u32, value: u64) {}

    /// Table elements in `range` are read (`table.get`, `table.copy`, `call_indirect`).
    #[inline(always)]
    fn table_read(&mut self, site: SiteId, table: u32, range: Range<u64>) {}

    /// Table elements in `range` are written (`table.set/fill/copy/init`).
    fn table_write(&mut self, site: SiteId, table: u32, range: Range<u64>) {}

    /// `table.size` (`delta` is `None`) or `table.grow`.
    fn table_grow(&mut self, site: SiteId, table: u32, delta: Option<u64>, previous: Option<u64>) {}

    // --- every operator ----------------------------------------------------------------------------------------------

    /// An operator with weight begins, if [`Probe::OPERATORS`] asks for it; unlike other events this one comes before the operator's
    /// outcome is known.
    #[inline(always)]
    fn operator(&mut self, site: SiteId) {}

    // --- control -----------------------------------------------------------------------------------------------------

    /// The host enters the guest: `func` starts as a root, or inside a host call (re-entry) when the last event that was not
    /// closed is [`Probe::host_call`]. `args` are the raw parameter bits.
    fn enter(&mut self, func: u32, args: &[u64], work: u64) {}

    /// The call that [`Probe::enter`] began returned (its last [`Probe::ret`] was reported), or was unwound by a trap or exit
    /// (`unwound`; no `ret` was reported for the activations that died, the operator that trapped is in `work`; those that an
    /// exception ended are gone already, see [`Probe::unwind`]).
    fn leave(&mut self, work: u64, unwound: bool) {}

    /// A call of a wasm function; the callee's activation begins. `args` are the raw parameter bits.
    #[inline(always)]
    fn call(&mut self, site: SiteId, func: u32, args: &[u64], work: u64) {}

    /// A tail call: the current activation ends (no [`Probe::ret`] follows for it) and the callee's takes its place.
    #[inline(always)]
    fn tail_call(&mut self, site: SiteId, func: u32, args: &[u64], work: u64) {}

    /// The current activation returns `results`; all its open loops end with it.
    #[inline(always)]
    fn ret(&mut self, results: &[u64], work: u64) {}

    /// A call of a host function (index of the import). [`Probe::host_return`] or [`Probe::host_throw`] follows unless the host traps or
    /// exits.
    fn host_call(&mut self, site: SiteId, func: u32, args: &[u64], work: u64) {}

    /// The host function returned `results`; it wrote the ranges that the driver reports between the two events.
    fn host_return(&mut self, func: u32, results: &[u64], work: u64) {}

    /// The host function ended by throwing an exception, likewise.
    fn host_throw(&mut self, func: u32, work: u64) {}

    /// The current activation ends by an exception that was thrown at `site` (0: by the host); all its open loops end with it. Reported
    /// for each activation that dies so, innermost first; then either [`Probe::caught`] follows or, when nobody catches it in this
    /// entry, [`Probe::leave`].
    fn unwind(&mut self, site: SiteId, work: u64) {}

    /// The exception is caught in the current activation, by a clause around which `in_loop` is the innermost loop that reports its
    /// iterations: those of loops inside of it end. Loops that the branch to the clause's label leaves follow with
    /// [`Probe::loop_exit`].
    fn caught(&mut self, site: SiteId, in_loop: Option<LoopRef>, work: u64) {}

    /// Whether the iteration that begins follows one of the same loop, and the probe has noted that already, so that it need not be
    /// reported; see [`Probe::knows_load`].
    #[inline(always)]
    fn repeats_loop(&mut self, this: LoopRef) -> bool {
        false
    }

    /// An iteration of a loop begins (the first as well): the previous iteration of this loop in this activation, if one is
    /// open, ends.
    #[inline(always)]
    fn loop_iter(&mut self, this: LoopRef, work: u64) {}

    /// The loop is left by a branch or by falling out of its end; inner loops' exits are reported first. Returns, tail calls,
    /// traps and exceptions close loops without this event.
    #[inline(always)]
    fn loop_exit(&mut self, this: LoopRef, work: u64) {}

    /// Whether a read of a carried local need not be reported; see [`Probe::knows_load`].
    #[inline(always)]
    fn knows_local_read(&self, local: Slot, role: LocalRole) -> bool {
        false
    }

    /// Likewise for a write.
    #[inline(always)]
    fn knows_local_write(&self, local: Slot) -> bool {
        false
    }

    /// Whether a slot of this activation is known to hold no unit's result, so that nothing about it need be reported.
    #[inline(always)]
    fn knows_no_result(&self, slot: Slot) -> bool {
        false
    }

    // --- values that move through frame slots (traced code of functions that hold unit boundaries only) ------------------

    /// A `local.get` of a local that some unit loop of this function writes. `local` is its index, whatever slots it has.
    #[inline(always)]
    fn local_read(&mut self, site: SiteId, local: u32, role: LocalRole) {}

    /// A `local.set`/`local.tee` of such a local.
    #[inline(always)]
    fn local_write(&mut self, site: SiteId, local: u32, role: LocalRole) {}

    /// The unit call that just returned left its results in slots `first..first + count` of this activation.
    #[inline(always)]
    fn result_in(&mut self, site: SiteId, first: Slot, count: u32) {}

    /// The value of slot `from` moved to slot `to` (whose former value is gone). Reported for slots that may hold a unit's result.
    #[inline(always)]
    fn slot_move(&mut self, from: Slot, to: Slot) {}

    /// Slot `slot` now holds a value that is no unit's result.
    #[inline(always)]
    fn slot_clear(&mut self, slot: Slot) {}

    /// An operator uses the value of `slot`, more than moving it: if it is a unit's result, this makes a `result` edge.
    #[inline(always)]
    fn slot_use(&mut self, site: SiteId, slot: Slot) {}
}

/// The probe of plain runs: nothing is compiled in.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoProbe;

impl Probe for NoProbe {
    const TRACED: bool = false;
}
