//! Blocks, labels, branches, calls.

use wasmparser::{BlockType, BrTable};

use super::Translator;
use super::code::{Pos, Taken};
use super::stack::{Home, Holder, Value};
use super::trace::EndedLoop;
use crate::isa::{self, BinaryOp, Operand, Single};
use crate::mutants::mutant;
use crate::value::{FuncType, ValType, slots_of};

/// An open block.
pub(super) struct Control {
    pub(super) kind: Kind,
    ty: BlockType,
    /// Stack height below the block's parameters.
    pub(super) height: usize,
    params: usize,
    results: usize,
    /// Branches to the block's end, whose targets are not known yet.
    pub(super) fixups: Vec<Pos>,
    /// Clauses that lead to the block's end, likewise: region and clause.
    pub(super) catch_fixups: Vec<(u32, usize)>,
    /// Whether the code before the block could be reached.
    pub(super) entered: bool,
    /// Its number in the function, in binary order.
    number: u32,
    /// How many loops that report their iterations are around its contents, itself included.
    reporting: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Function,
    Block,
    Loop { header: Pos, ordinal: u32, reports: bool, planned: bool, first_back_edge: Option<Pos> },
    If { otherwise: Option<Pos> },
    Else,
    /// The body of a `try` or a `try_table`, and its region, unless it cannot be reached.
    Try { region: Option<u32> },
    /// A handler of a `try`: a reference to the exception lies below its values.
    Catch { region: Option<u32> },
}

/// The condition of a branch: the comparison that decides, taken out of the code or made up.
#[derive(Clone, Copy)]
struct Condition(Taken);

impl Control {
    /// The label of the values that the block ends with.
    fn end_label(&self) -> u32 {
        2 * self.number
    }

    /// The label of the values that a loop's iteration or an `else` begins with.
    fn start_label(&self) -> u32 {
        2 * self.number + 1
    }

    /// The label that branches to the block lead to.
    fn branch_label(&self) -> u32 {
        match self.kind {
            Kind::Loop { .. } => self.start_label(),
            _ => self.end_label(),
        }
    }
}

impl<'t> Translator<'t> {
    pub(super) fn push_function(&mut self) {
        let ty = BlockType::FuncType(self.module.func_type_index(self.func));
        let (_, results) = self.arity(ty);
        self.controls.push(Control {
            kind: Kind::Function,
            ty,
            height: 0,
            params: 0,
            results,
            fixups: Vec::new(),
            catch_fixups: Vec::new(),
            entered: true,
            number: 0,
            reporting: 0,
        });
    }

    fn arity(&self, ty: BlockType) -> (usize, usize) {
        match ty {
            BlockType::Empty => (0, 0),
            BlockType::Type(_) => (0, 1),
            BlockType::FuncType(index) => {
                let ty = self.module.type_at(index);
                (ty.params().len(), ty.results().len())
            }
        }
    }

    /// Which parameters of a block are vectors.
    fn params_of(&self, ty: BlockType) -> impl Iterator<Item = bool> + use<'t> {
        let params = match ty {
            BlockType::FuncType(index) => self.module.type_at(index).params(),
            _ => &[],
        };
        params.iter().map(|ty| ty.is_wide())
    }

    /// Which results of a block are vectors.
    fn results_of(&self, ty: BlockType) -> impl Iterator<Item = bool> + use<'t> {
        let (one, results) = match ty {
            BlockType::Empty => (None, &[][..]),
            BlockType::Type(ty) => (Some(ty == wasmparser::ValType::V128), &[][..]),
            BlockType::FuncType(index) => (None, self.module.type_at(index).results()),
        };
        one.into_iter().chain(results.iter().map(|ty| ty.is_wide()))
    }

    pub(super) fn open(&mut self, kind: Kind, ty: BlockType) {
        let (params, results) = self.arity(ty);
        // In unreachable code nothing is on the stack for the parameters.
        let height = if self.reachable { self.values.len() - params } else { self.values.len() };
        self.controls_count += 1;
        let number = self.controls_count;
        let around = self.controls.last().map_or(0, |outer| outer.reporting);
        let reporting = around + u32::from(matches!(kind, Kind::Loop { reports: true, .. }));
        let (fixups, catch_fixups, entered) = (Vec::new(), Vec::new(), self.reachable);
        self.controls.push(Control { kind, ty, height, params, results, fixups, catch_fixups, entered, number, reporting });
    }

    pub(super) fn block(&mut self, ty: BlockType) {
        if self.reachable {
            self.flush();
            self.settle_params(ty);
        }
        self.open(Kind::Block, ty);
    }

    pub(super) fn settle_params(&mut self, ty: BlockType) {
        let (params, _) = self.arity(ty);
        let first = self.values.len() - params;
        self.settle(first);
        self.break_all(0);
    }

    pub(super) fn loop_(&mut self, ty: BlockType) {
        let ordinal = self.loops;
        self.loops += 1;
        let (reports, planned) = self.loop_events(ordinal);
        let (params, _) = self.arity(ty);
        let label = 2 * (self.controls_count + 1) + 1;
        if self.reachable {
            self.flush();
            if !mutant!(LoopConstantParameter) {
                self.settle_params(ty);
            }
            self.flow_into(label, params);
            self.code.close_block();
        }
        let header = self.code.here();
        if self.reachable {
            if reports {
                self.code.single(Single::LoopIter, &[self.func, ordinal]);
            }
            let first = self.values.len() - params;
            for i in 0..params {
                self.values[first + i].maybe_result = self.label_holds(label, i);
            }
        }
        self.open(Kind::Loop { header, ordinal, reports, planned, first_back_edge: None }, ty);
        debug_assert_eq!(self.controls.last().map(Control::start_label), Some(label));
    }

    /// The top `count` values are in their slots and go on to a label that expects them there.
    fn flow_into(&mut self, label: u32, count: usize) {
        let first = self.values.len() - count;
        self.note_flow(label, first, count);
        self.clear_flow(label, first, count, self.canonical(first));
    }

    pub(super) fn if_(&mut self, ty: BlockType) {
        if !self.reachable {
            return self.open(Kind::If { otherwise: None }, ty);
        }
        let condition = self.condition();
        self.flush();
        self.settle_params(ty);
        let (params, _) = self.arity(ty);
        let first = self.values.len() - params;
        let number = self.controls_count + 1;
        self.note_flow(2 * number + 1, first, params);
        // Without an `else` they go on to the end.
        self.clear_flow(2 * number, first, params, self.canonical(first));
        let otherwise = self.branch_on(condition, true);
        self.code.close_block();
        self.open(Kind::If { otherwise: Some(otherwise) }, ty);
    }

    pub(super) fn else_(&mut self) {
        let mut control = self.controls.pop().expect("validated: `else` ends an `if`");
        if self.reachable {
            self.settle_results(&control);
            let jump = self.code.single(Single::Jump, &[0]);
            control.fixups.push(jump);
        }
        self.code.close_block();
        if let Kind::If { otherwise: Some(at) } = control.kind {
            self.code.set_target(at, self.code.here());
        }
        self.reset_to(control.height);
        self.push_merged(control.start_label(), self.params_of(control.ty));
        self.reachable = control.entered;
        control.kind = Kind::Else;
        self.controls.push(control);
    }

    /// The values above `height` are gone.
    pub(super) fn reset_to(&mut self, height: usize) {
        while self.values.len() > height {
            let value = self.values.pop().expect("not empty");
            if let Home::Local(local) = value.home {
                self.pending[local as usize] -= 1;
            }
        }
        self.flushed = self.flushed.min(height);
        self.holder = Holder::Nothing;
    }

    /// The values of a label, of these types, are in their canonical slots.
    fn push_merged(&mut self, label: u32, wide: impl Iterator<Item = bool>) {
        for (i, wide) in wide.enumerate() {
            self.push(Value { wide, maybe_result: self.label_holds(label, i), ..Value::new(Home::Canonical) });
        }
    }

    /// The results of a block that ends go into their canonical slots, and nothing else is in the accumulator.
    pub(super) fn settle_results(&mut self, control: &Control) {
        let first = self.values.len() - control.results;
        self.break_all(first);
        self.settle(first + usize::from(mutant!(ResultUnsettled) && control.results > 1));
        self.holder = Holder::Nothing;
        self.flow_into(control.end_label(), control.results);
    }

    pub(super) fn end(&mut self) {
        self.leave_handler();
        let control = self.controls.pop().expect("validated: `end` ends a block");
        if control.kind == Kind::Function {
            if self.reachable {
                self.return_(control.results);
            }
            return self.return_caught(&control);
        }
        if self.reachable {
            self.settle_results(&control);
        }
        let mut reached = self.reachable;
        match control.kind {
            Kind::Loop { header, ordinal, reports, planned, first_back_edge } => {
                if self.reachable && reports {
                    self.code.close_block();
                    self.code.single(Single::LoopExit, &[self.func, ordinal]);
                }
                if planned {
                    self.assign_roles(&EndedLoop { header, depth: self.controls.len() + 1, first_back_edge });
                }
            }
            Kind::Try { region } => self.close_region(region),
            Kind::If { otherwise: Some(at) } => {
                // No `else`: parameters pass through as results.
                self.code.set_target(at, self.code.here());
                self.note_pass_through(control.start_label(), control.end_label(), control.results);
                reached = true;
            }
            _ => {}
        }
        reached |= !control.fixups.is_empty() || !control.catch_fixups.is_empty();
        self.code.close_block();
        for at in &control.fixups {
            self.code.set_target(*at, self.code.here());
        }
        self.link_caught(&control);
        self.reset_to(control.height);
        self.push_merged(control.end_label(), self.results_of(control.ty));
        self.reachable = reached;
    }

    /// Pops a condition. A comparison that was emitted just now is taken back, to be fused with the branch.
    fn condition(&mut self) -> Condition {
        let top = self.values.len() - 1;
        let fusible = match self.holder {
            Holder::Stack { index, producer, stored: false } if index == top && self.code.last() == Some(producer) => {
                isa::branch_of(self.code.opcode(producer), false).is_some()
            }
            _ => false,
        };
        let (value, place) = self.pop_place();
        self.used(&value);
        let (op, imm) = if mutant!(ConditionOne) { (BinaryOp::I32Eq, 1) } else { (BinaryOp::I32Ne, 0) };
        let opcode = isa::binary(op, place, Operand::Imm(imm)).expect("the shapes AI and SI exist");
        let made_up = Taken { opcode, fields: [place.field(), imm] };
        Condition(if fusible { self.code.take_last().unwrap_or(made_up) } else { made_up })
    }

    /// Emits a branch that is taken when the condition holds (or, with `negate`, does not); its target is patched later.
    fn branch_on(&mut self, condition: Condition, negate: bool) -> Pos {
        let Taken { opcode, fields: [a, b] } = condition.0;
        mutant! { BranchInvertsFloat: if negate && isa::is_on_acc(opcode) && self.code.invert_float() {
            return self.branch_on(condition, false);
        } }
        let opcode = isa::branch_of(opcode, negate).expect("a condition is an integer comparison");
        self.code.emit(opcode, &[0, a, b])
    }

    /// The control that is `depth` labels out.
    pub(super) fn target_index(&self, depth: u32) -> usize {
        self.controls.len() - 1 - depth as usize
    }

    /// How many values a branch to this control carries.
    fn label_arity(&self, index: usize) -> usize {
        let control = &self.controls[index];
        match control.kind {
            Kind::Loop { .. } => control.params,
            _ => control.results,
        }
    }

    /// Whether a branch to this control can be one jump: nothing to move, nothing to report, no return.
    fn is_plain_jump(&self, index: usize) -> bool {
        let arity = self.label_arity(index);
        let first = self.values.len() - arity;
        let label = self.controls[index].branch_label();
        let in_place = (first == self.controls[index].height || mutant!(BranchMisplaced))
            && self.values[first..].iter().enumerate().all(|(i, v)| v.home == Home::Canonical && !self.flow_clears(label, i, v));
        index > 0 && (arity == 0 || in_place) && self.reporting_count(index) == 0
    }

    /// How many loops inside of a control, around this place, report their iterations.
    fn reporting_count(&self, index: usize) -> u32 {
        self.controls.last().map_or(0, |innermost| innermost.reporting) - self.controls[index].reporting
    }

    /// The loops inside of a control that report their iterations, innermost first, by ordinal.
    pub(super) fn reporting_inside(&self, index: usize) -> impl Iterator<Item = u32> {
        // Nobody looks through deep nests in vain.
        let count = self.reporting_count(index);
        let loops = self.controls[index + 1..].iter().rev().filter_map(|control| match control.kind {
            Kind::Loop { ordinal, reports: true, .. } => Some(ordinal),
            _ => None,
        });
        loops.take(count as usize)
    }

    /// Points the branch at `at` to a control's label, now or when it is known.
    fn link(&mut self, at: Pos, index: usize) {
        let arity = self.label_arity(index);
        self.note_flow(self.controls[index].branch_label(), self.values.len() - arity, arity);
        if let Kind::Loop { header, .. } = self.controls[index].kind {
            self.code.set_target(at, header);
        } else {
            self.controls[index].fixups.push(at);
        }
        let here = self.code.here();
        if let Kind::Loop { first_back_edge, .. } = &mut self.controls[index].kind {
            first_back_edge.get_or_insert(here);
        }
    }

    /// The whole of a taken branch: moves the values, reports the loops that are left, jumps or returns. The stack stays.
    pub(super) fn take_branch(&mut self, index: usize) {
        let arity = self.label_arity(index);
        if index == 0 {
            return self.return_keeping_stack(arity);
        }
        let first = self.values.len() - arity;
        // Targets are not above their sources, and both ascend: no source is overwritten before it is read.
        let base = self.canonical(self.controls[index].height);
        let mut to = base;
        mutant! { BranchCopiesDescend: for i in (first..self.values.len()).rev() {
            self.copy_to(i, base + self.canonical(i) - self.canonical(first));
        } }
        for i in first..self.values.len() {
            self.copy_to(i, to);
            to += self.values[i].slots();
        }
        self.clear_flow(self.controls[index].branch_label(), first, arity, base);
        let left: Vec<u32> = self.reporting_inside(index).skip(usize::from(mutant!(EventLoopExitLost))).collect();
        for ordinal in left {
            self.code.single(Single::LoopExit, &[self.func, ordinal]);
        }
        let jump = self.code.single(Single::Jump, &[0]);
        self.link(jump, index);
    }

    pub(super) fn br(&mut self, depth: u32) {
        let index = self.target_index(depth);
        let arity = self.label_arity(index);
        self.break_all(self.values.len() - arity);
        self.code.close_block();
        self.take_branch(index);
        self.reachable = false;
    }

    pub(super) fn br_if(&mut self, depth: u32) {
        let index = self.target_index(depth);
        let condition = self.condition();
        self.branch_if(condition, index);
    }

    /// Branches to a control when the condition holds.
    fn branch_if(&mut self, condition: Condition, index: usize) {
        let arity = self.label_arity(index);
        self.break_all(self.values.len() - arity);
        if !(mutant!(FuelBranchTogether) && self.tracing.is_none()) {
            self.code.close_block();
        }
        if self.is_plain_jump(index) {
            let at = self.branch_on(condition, false);
            return self.link(at, index);
        }
        let over = self.branch_on(condition, true);
        self.take_branch(index);
        self.code.set_target(over, self.code.here());
    }

    /// `br_on_null`: the reference is dropped where the branch is taken, and stays where it is not.
    pub(super) fn br_on_null(&mut self, depth: u32) {
        let index = self.target_index(depth);
        let (value, slot) = self.pop_reference();
        let op = if mutant!(OnNullInverted) && self.label_arity(index) > 0 { BinaryOp::I64Ne } else { BinaryOp::I64Eq };
        self.branch_on_reference(index, op, slot);
        self.push(value);
    }

    /// `br_on_non_null`: the reference goes to the label where the branch is taken, and is dropped where it is not.
    pub(super) fn br_on_non_null(&mut self, depth: u32) {
        let index = self.target_index(depth);
        let (value, slot) = self.pop_reference();
        self.push(value);
        self.branch_on_reference(index, BinaryOp::I64Ne, slot);
        self.drop_();
    }

    /// Pops a reference for an operator that looks at it, and may leave it: the value to push again, and its slot.
    fn pop_reference(&mut self) -> (Value, u32) {
        let (value, slot) = self.pop_slot();
        self.used(&value);
        let home = if let Home::Local(_) = value.home { value.home } else { Home::Canonical };
        (Value { home, producer: None, chain: 0, ..value }, slot)
    }

    /// Branches when the reference in a slot is null or, with `I64Ne`, is not.
    fn branch_on_reference(&mut self, index: usize, op: BinaryOp, slot: u32) {
        let operand = Operand::Slot(slot);
        let opcode = isa::binary(op, operand, Operand::Imm(0)).expect("the shape SI exists");
        let condition = Condition(Taken { opcode, fields: [operand.field(), 0] });
        self.branch_if(condition, index);
    }

    pub(super) fn br_table(&mut self, table: &BrTable<'_>) {
        let (value, place) = self.pop_place();
        self.used(&value);
        let mut depths: Vec<u32> = table.targets().map(|t| t.expect("validated")).collect();
        depths.push(table.default());
        let arity = self.label_arity(self.target_index(table.default()));
        self.break_all(self.values.len() - arity);
        let op = if place == Operand::Acc { Single::BrTableA } else { Single::BrTableS };
        let last = depths.len() as u32 - 1 - u32::from(mutant!(TableDefaultLast) && depths.len() > 1);
        self.code.single(op, &[last, place.field()]);
        self.code.close_block();
        let jumps: Vec<(Pos, u32)> = depths.iter().map(|d| (self.code.single(Single::Jump, &[0]), *d)).collect();
        let mut stubs: Vec<(u32, Pos)> = Vec::new();
        for (jump, depth) in jumps {
            let index = self.target_index(depth);
            if self.is_plain_jump(index) {
                self.link(jump, index);
                continue;
            }
            let wanted = if mutant!(TableSharedMoves) { stubs.first().map_or(depth, |s| s.0) } else { depth };
            let stub = match stubs.binary_search_by_key(&wanted, |s| s.0) {
                Ok(known) => stubs[known].1,
                Err(place) => {
                    let here = self.code.here();
                    self.take_branch(index);
                    stubs.insert(place, (depth, here));
                    here
                }
            };
            self.code.set_target(jump, stub);
        }
        self.reachable = false;
    }

    /// `return`, or falling out of the function: the top `count` values are the results.
    pub(super) fn return_(&mut self, count: usize) {
        self.code.close_block();
        self.return_keeping_stack(count);
        self.reachable = false;
    }

    /// The results of the function that is being translated.
    pub(super) fn result_count(&self) -> usize {
        self.controls[0].results
    }

    pub(super) fn return_keeping_stack(&mut self, count: usize) {
        let first = self.values.len() - count;
        for index in first..self.values.len() {
            self.used_at(index);
        }
        if count != 1 {
            // Canonical slots lie above all locals, and targets ascend: no source is overwritten before it is read.
            let (from, end) = (self.canonical(first), self.canonical(self.values.len()));
            let to = if mutant!(ReturnInPlace) { 0 } else { from };
            for index in first..self.values.len() {
                self.copy_to(index, to + self.canonical(index) - from);
            }
            self.copy_down(to, end - from);
            self.code.single(Single::Ret, &[end - from]);
            return;
        }
        if self.values[first].wide {
            let from = match self.values[first].home {
                Home::Local(local) => self.local_slot(local),
                _ => self.canonical(first),
            };
            self.copy(0, from, true);
            self.code.single(Single::Ret, &[2]);
            return;
        }
        match self.values[first].home {
            Home::Acc => self.code.single(Single::RetA, &[0]),
            Home::Local(local) => self.code.single(Single::RetS, &[self.local_slot(local) * 8]),
            Home::Canonical => self.code.single(Single::RetS, &[self.canonical(first) * 8]),
            Home::Const(raw) if raw >> 32 == 0 || mutant!(ReturnConstantTruncated) => self.code.single(Single::RetI, &[raw as u32]),
            Home::Const(raw) => {
                self.constant_to(0, raw);
                self.code.single(Single::Ret, &[1])
            }
        };
    }

    /// Copies `count` slots from `from` up to the frame's first slots.
    fn copy_down(&mut self, from: u32, count: u32) {
        for i in 0..count {
            let i = if mutant!(TailCopiesDescend) { count - 1 - i } else { i };
            self.copy(i, from + i, false);
        }
    }

    /// Pops a call's arguments into their slots and gives the first one's height.
    pub(super) fn arguments(&mut self, count: usize) -> usize {
        let first = self.values.len() - count;
        for index in first..self.values.len() {
            self.used_at(index);
            self.values[index].maybe_result = false;
        }
        mutant! { ArgumentNinth: if count > 8 { self.values[first + 8].home = Home::Canonical; } }
        mutant! { AccLostAtCall: self.lose_acc(); }
        self.settle(first);
        self.free_acc();
        self.values.truncate(first);
        self.flushed = self.flushed.min(first);
        first
    }

    /// After a call: its results are in the slots of the heights that follow.
    fn arrived(&mut self, callee: Option<u32>, results: &[ValType]) {
        self.code.close_block();
        let maybe_result = self.results_arrived(callee, self.canonical(self.values.len()), results);
        for ty in results {
            self.push(Value { maybe_result, wide: ty.is_wide(), ..Value::new(Home::Canonical) });
        }
    }

    /// Makes room for a call's arguments, and then its results, from slot `first` up.
    fn reserve_call(&mut self, first: u32, ty: &FuncType) {
        self.reserve(first + slots_of(ty.params()).max(slots_of(ty.results())));
    }

    /// Where the caller goes on, as the field of a call of `words` words says it.
    fn return_offset(&self, words: u32) -> u32 {
        (self.code.here() + words) * 8
    }

    pub(super) fn call(&mut self, callee: u32) {
        let module = self.module;
        let ty = module.func_type(callee);
        let first = self.arguments(ty.params().len());
        let first = self.canonical(first);
        let site = self.site();
        let op = if callee < self.module.imported_func_count() { Single::CallImport } else { Single::Call };
        let fields = [callee, first * 8, self.return_offset(4), self.func, site];
        self.reserve_call(first, ty);
        self.code.single(op, &fields);
        self.arrived(Some(callee), ty.results());
    }

    pub(super) fn call_indirect(&mut self, type_index: u32, table: u32) {
        let module = self.module;
        let ty = module.type_at(type_index);
        let (value, index) = self.pop_slot();
        self.used(&value);
        // The index may be in the slot above the arguments, or a local: both stay as they are.
        let first = self.arguments(ty.params().len());
        let first = self.canonical(first);
        let site = self.site();
        let ty_id = self.type_ids[type_index as usize].0;
        let is_like = |other: u32| module.table_type(other).element == module.table_type(table).element;
        let table = if mutant!(CallFirstTable) && is_like(0) { 0 } else { table };
        let fields = [table, first * 8, self.return_offset(5), self.func, site, index * 8, ty_id];
        self.reserve_call(first, ty);
        self.code.single(Single::CallIndirect, &fields);
        self.arrived(None, ty.results());
    }

    pub(super) fn call_ref(&mut self, type_index: u32) {
        let module = self.module;
        let ty = module.type_at(type_index);
        let callee = self.slot_field();
        // The reference may be in the slot above the arguments, or in a local: both stay as they are.
        let first = self.arguments(ty.params().len());
        let first = self.canonical(first);
        let site = self.site();
        let fields = [callee, first * 8, self.return_offset(4), self.func, site];
        self.reserve_call(first, ty);
        self.code.single(Single::CallRef, &fields);
        self.arrived(None, ty.results());
    }

    pub(super) fn return_call(&mut self, callee: u32) {
        let module = self.module;
        let params = module.func_type(callee).params();
        let first = self.arguments(params.len());
        let site = self.site();
        self.code.close_block();
        self.copy_down(self.canonical(first), slots_of(params));
        let op = if callee < self.module.imported_func_count() { Single::ReturnCallImport } else { Single::ReturnCall };
        let fields = [callee, 0, self.return_offset(4), self.func, site];
        let at = self.code.single(op, &fields);
        self.finish_tail_call(at, params);
    }

    pub(super) fn return_call_indirect(&mut self, type_index: u32, table: u32) {
        let module = self.module;
        let params = module.type_at(type_index).params();
        let (value, index) = self.pop_slot();
        self.used(&value);
        let first = self.arguments(params.len());
        let site = self.site();
        self.code.close_block();
        let ty = self.type_ids[type_index as usize].0;
        let args = self.canonical(first) * 8;
        let count = if mutant!(TailWideHalf) { params.len() as u32 } else { slots_of(params) };
        let fields = [table, args, self.return_offset(5), self.func, site, index * 8, ty, count];
        let at = self.code.single(Single::ReturnCallIndirect, &fields);
        self.finish_tail_call(at, params);
    }

    pub(super) fn return_call_ref(&mut self, type_index: u32) {
        let module = self.module;
        let params = module.type_at(type_index).params();
        let callee = self.slot_field();
        let first = self.arguments(params.len());
        let site = self.site();
        self.code.close_block();
        let args = self.canonical(first) * 8;
        let fields = [callee, args, self.return_offset(4), self.func, site, slots_of(params)];
        let at = self.code.single(Single::ReturnCallRef, &fields);
        self.finish_tail_call(at, params);
    }

    /// A host function that was tail-called comes back to this `ret`. The callee's parameters may outgrow the locals here.
    fn finish_tail_call(&mut self, at: Pos, params: &[ValType]) {
        self.leaves_regions(at);
        let results = slots_of(self.module.func_type(self.func).results());
        self.code.single(Single::Ret, &[results]);
        self.reserve(slots_of(params).max(results));
        self.reachable = false;
    }

    pub(super) fn select(&mut self) {
        let (condition, place) = self.pop_place();
        self.used(&condition);
        let (right, b) = self.pop_slot();
        self.used(&right);
        let (left, a) = self.pop_slot();
        self.used(&left);
        let dest = self.result_field();
        let swap = mutant!(SelectSwapSlot) && place != Operand::Acc || mutant!(SelectSwapWide) && left.wide;
        let (a, b) = if swap { (b, a) } else { (a, b) };
        if left.wide {
            let (op, fields) = match place {
                Operand::Acc => (Single::VectorSelectA, [dest, a * 8, b * 8, 0]),
                place => (Single::VectorSelectS, [dest, a * 8, b * 8, place.field()]),
            };
            let at = self.code.single(op, &fields);
            return self.push_vector(at);
        }
        let at = match place {
            Operand::Acc => {
                self.holder = Holder::Nothing;
                self.code.single(Single::SelectA, &[dest, a * 8, b * 8])
            }
            place => {
                self.free_acc();
                self.code.single(Single::SelectS, &[dest, a * 8, b * 8, place.field()])
            }
        };
        self.push_result(at, true);
    }

    /// `drop`: no use of the value.
    pub(super) fn drop_(&mut self) {
        self.pop();
    }
}
