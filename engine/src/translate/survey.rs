//! What traced translation needs to know of a function before its first pass.

use rustc_hash::FxHashSet;
use wasmparser::{FunctionBody, Operator};

use super::carried::{Carried, is_call};
use crate::module::Module;
use crate::probe::TracePlan;

/// What a plan asks for in one function.
pub(super) struct Survey {
    /// Loops that are units, by ordinal.
    pub(super) planned: FxHashSet<u32>,
    /// Loops that report their iterations, but not what locals carry.
    pub(super) watched: FxHashSet<u32>,
    /// Which accesses to locals are reported.
    pub(super) carried: Carried,
    /// Whether a unit is called whose results are followed.
    pub(super) follows_results: bool,
    /// Calls that are units: by callee and by the call's offset.
    unit_funcs: FxHashSet<u32>,
    unit_sites: FxHashSet<u32>,
}

impl Survey {
    /// Surveys a function of so many locals.
    pub(super) fn of(
        module: &Module,
        func: u32,
        locals: u32,
        plan: &TracePlan,
        body: &FunctionBody<'_>,
    ) -> wasmparser::Result<Survey> {
        let planned = plan.loops.iter().filter(|l| l.func == func).map(|l| l.ordinal).collect();
        let mut survey = Survey {
            watched: match plan.every_loop_of {
                Some(operators) => long_loops(body, operators)?,
                None => FxHashSet::default(),
            },
            carried: Carried::survey(body, locals, &planned, plan.everything)?,
            planned,
            follows_results: false,
            unit_funcs: plan.funcs.iter().copied().collect(),
            unit_sites: plan.sites.iter().filter(|s| s.func == func).map(|s| s.offset).collect(),
        };
        if !survey.unit_funcs.is_empty() || !survey.unit_sites.is_empty() {
            survey.follows_results = survey.calls_unit_with_results(module, body)?;
        }
        Ok(survey)
    }

    fn calls_unit_with_results(&self, module: &Module, body: &FunctionBody<'_>) -> wasmparser::Result<bool> {
        for item in body.get_operators_reader()?.into_iter_with_offsets() {
            let (operator, offset) = item?;
            let (ty, callee) = match &operator {
                Operator::Call { function_index } => (module.func_type(*function_index), Some(*function_index)),
                Operator::CallIndirect { type_index, .. } | Operator::CallRef { type_index } => (module.type_at(*type_index), None),
                _ => continue,
            };
            if !ty.results().is_empty() && self.is_unit_call(callee, offset as u32) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a call of `callee` (`None`: not known) at this offset may be a unit.
    pub(super) fn is_unit_call(&self, callee: Option<u32>, offset: u32) -> bool {
        let by_func = match callee {
            Some(func) => self.unit_funcs.contains(&func),
            None => !self.unit_funcs.is_empty(),
        };
        by_func || self.unit_sites.contains(&offset)
    }
}

/// The loops of a function, by ordinal, an iteration of which may hold at least so many operators.
fn long_loops(body: &FunctionBody<'_>, operators: u32) -> wasmparser::Result<FxHashSet<u32>> {
    let mut long = FxHashSet::default();
    // Of every open block: the loop that it is, and the number of the operator that opened it.
    let mut open: Vec<Option<(u32, u32)>> = vec![None];
    let mut ordinal = 0;
    for (at, item) in (0..).zip(body.get_operators_reader()?) {
        let has_any_length = match item? {
            Operator::Loop { .. } => {
                // What is around it has any length.
                long.extend(open.iter().flatten().map(|(ordinal, _)| ordinal));
                open.push(Some((ordinal, at)));
                ordinal += 1;
                false
            }
            Operator::Block { .. } | Operator::If { .. } | Operator::Try { .. } | Operator::TryTable { .. } => {
                open.push(None);
                false
            }
            Operator::End | Operator::Delegate { .. } => {
                if let Some(Some((ordinal, start))) = open.pop()
                    && at - start >= operators
                {
                    long.insert(ordinal);
                }
                false
            }
            operator => has_any_length(&operator),
        };
        if has_any_length {
            long.extend(open.iter().flatten().map(|(ordinal, _)| ordinal));
        }
    }
    Ok(long)
}

/// Calls and bulk operators hold any number of operators.
fn has_any_length(operator: &Operator<'_>) -> bool {
    use Operator::*;
    is_call(operator)
        || matches!(
            operator,
            MemoryCopy { .. }
                | MemoryFill { .. }
                | MemoryInit { .. }
                | TableCopy { .. }
                | TableFill { .. }
                | TableInit { .. }
        )
}
