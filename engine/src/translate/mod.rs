//! From validated operators to linked-ready code, one pass, one function at a time.
//!
//! ```text
//! operators ─► operator.rs (what each one does) ─► stack.rs (where values are) ─► code.rs (instructions)
//!                    │ control.rs (labels, branches)      trace.rs (events, roles) ◄─ survey.rs, carried.rs (which)
//!                    │ vector.rs (operators on vectors), atomic.rs (atomic ones)
//!                    │ exception.rs (what throws and catches) ─► handlers.rs (the table beside the code)
//! ```
//!
//! A value on the operand stack is one of: a local that was not written since, a constant, the accumulator, or the *canonical*
//! slot of its height. Labels see canonical slots only: at function entry, loop headers and after calls the accumulator is empty
//! and every live value is in a slot, which is what snapshots, mode switches and backtraces rely on.

mod atomic;
mod carried;
mod code;
mod control;
mod exception;
mod handlers;
mod operator;
mod stack;
mod survey;
mod trace;
mod vector;

use std::sync::Arc;

use wasmparser::{BinaryReader, FunctionBody};

pub(crate) use code::{Code, Place};
use control::Control;
pub(crate) use handlers::{Catch, Handlers};
use stack::{Holder, Value};
use survey::Survey;
use trace::{Holders, Tracing};

use crate::error::Error;
use crate::module::Module;
use crate::mutants::mutant;
use crate::probe::{SiteTable, TracePlan};
use crate::store::DedupTypeId;

/// What a translation is for.
pub(crate) struct Request<'a> {
    pub(crate) module: &'a Module,
    /// The function, by index; not an import.
    pub(crate) func: u32,
    /// The instance's deduplicated types by module type index, for signature checks.
    pub(crate) type_ids: &'a [DedupTypeId],
    /// Charge fuel.
    pub(crate) counted: bool,
    /// Emit events: the plan, and where sites are handed out.
    pub(crate) traced: Option<(Arc<TracePlan>, &'a mut SiteTable)>,
    /// Emit an event for every operator of traced code.
    pub(crate) operators: bool,
    /// Also return the map from code to operators.
    pub(crate) mapped: bool,
}

/// The state of one translation.
struct Translator<'a> {
    module: &'a Module,
    func: u32,
    type_ids: &'a [DedupTypeId],
    canonicalize: bool,
    code: code::Emitter,
    /// The first slot of each parameter and declared local, and one past the last: the first slot of the operand stack.
    local_slots: &'a [u32],
    values: Vec<Value>,
    /// Values below this height are neither locals nor in the accumulator.
    flushed: usize,
    /// Per local, how many values on the stack stand for it.
    pending: Vec<u32>,
    holder: Holder,
    /// The slots that the frame needs.
    slots_max: u32,
    controls: Vec<Control>,
    /// Blocks, loops and ifs seen so far.
    controls_count: u32,
    reachable: bool,
    /// Loops seen so far.
    loops: u32,
    handlers: Handlers,
    /// An event for every operator.
    operators: bool,
    /// Every operator is a block of its own, before which all values are in slots.
    single_step: bool,
    tracing: Option<Tracing<'a>>,
}

/// Translations of a function that look for places of units' results; then every place may hold one.
const PASSES_MAX: usize = 8;

/// Translates one function.
///
/// # Errors
/// Only on input that validation would have refused, or that outgrows the code's 32-bit fields.
pub(crate) fn translate(request: Request<'_>) -> Result<Code, Error> {
    let Request { module, func, type_ids, counted, traced, operators, mapped } = request;
    let range = module.func_body(func).expect("only functions with a body are translated");
    let bytes = &module.bytes()[range.clone()];
    let body = FunctionBody::new(BinaryReader::new(bytes, range.start));
    let mut local_slots = vec![0];
    for ty in module.func_type(func).params() {
        add_locals(&mut local_slots, ty.is_wide(), 1);
    }
    let params = end_of(&local_slots);
    for group in body.get_locals_reader().map_err(invalid)? {
        let (count, ty) = group.map_err(invalid)?;
        add_locals(&mut local_slots, ty == wasmparser::ValType::V128, count);
    }
    let locals = local_slots.len() as u32 - 1;
    let given = Given { module, func, type_ids, params, local_slots: &local_slots, operators, mapped };
    let Some((plan, sites)) = traced else { return pass(&given, &body, counted, None) };
    let survey = Survey::of(module, func, locals, &plan, &body).map_err(invalid)?;
    let (mut holders, before) = (Holders::new(plan.everything), sites.len());
    for number in 1.. {
        let code = pass(&given, &body, true, Some(Tracing::new(&survey, sites, &mut holders)))?;
        if !holders.grew() {
            return Ok(code);
        }
        sites.truncate(before);
        if number == PASSES_MAX {
            holders.give_up();
        }
    }
    unreachable!("places that may hold a result only grow, and then are all of them")
}

/// What all passes over a function share.
struct Given<'a> {
    module: &'a Module,
    func: u32,
    type_ids: &'a [DedupTypeId],
    /// Slots of parameters.
    params: u32,
    local_slots: &'a [u32],
    operators: bool,
    mapped: bool,
}

/// One pass over a function's operators.
fn pass(given: &Given<'_>, body: &FunctionBody<'_>, counted: bool, tracing: Option<Tracing<'_>>) -> Result<Code, Error> {
    let Given { module, func, type_ids, params, local_slots, operators, mapped } = *given;
    let slots = end_of(local_slots);
    let mut translator = Translator {
        module,
        func,
        type_ids,
        canonicalize: module.engine().config().canonicalize_nans,
        code: code::Emitter::new(func, counted, mapped),
        local_slots,
        values: Vec::new(),
        flushed: 0,
        pending: vec![0; local_slots.len() - 1],
        holder: Holder::Nothing,
        slots_max: slots,
        controls: Vec::new(),
        controls_count: 0,
        reachable: true,
        loops: 0,
        handlers: Handlers::default(),
        operators,
        single_step: module.engine().config().single_step,
        tracing,
    };
    translator.handlers.follows_results = translator.follows_results();
    translator.push_function();
    let mut reader = body.get_operators_reader().map_err(invalid)?;
    while !reader.eof() {
        let (operator, offset) = reader.read_with_offset().map_err(invalid)?;
        translator.operator(&operator, offset as u32);
    }
    let frame_bytes = u32::try_from((translator.slots_max as usize + 1) * 8).map_err(|_| too_large(func))?;
    let handlers = std::mem::take(&mut translator.handlers);
    let linkable = translator.code.finish().ok_or_else(|| too_large(func))?;
    let zeroed = slots - params - u32::from(mutant!(LocalLastDirty) && slots > params);
    Ok(Code { words: linkable.0, headers: linkable.1, places: linkable.2, handlers, frame_bytes, params, zeroed })
}

/// Adds the slots of `count` locals.
fn add_locals(slots: &mut Vec<u32>, wide: bool, count: u32) {
    for _ in 0..count {
        slots.push(end_of(slots) + 1 + u32::from(wide));
    }
}

/// One past the slots of all locals so far.
fn end_of(slots: &[u32]) -> u32 {
    slots.last().copied().unwrap_or(0)
}

fn invalid(error: wasmparser::BinaryReaderError) -> Error {
    Error::Invalid { message: error.message().to_string(), offset: error.offset() }
}

fn too_large(func: u32) -> Error {
    Error::Limit { what: format!("the translated code of function {func}"), wanted: 1 << 31, limit: (1 << 31) - 1, knob: "nothing: split the function" }
}
