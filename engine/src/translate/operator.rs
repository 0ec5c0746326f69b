//! What each operator of the language becomes.

use wasmparser::{MemArg, Operator};

use super::Translator;
use super::stack::{Holder, Home, Value, Width};
use crate::isa::{self, BinaryOp, LoadKind, Operand, Single, StoreKind, UnaryOp, for_each_binary, for_each_unary};
use crate::mutants::{self, mutant};

macro_rules! width {
    (i64) => { Width::I64 };
    (u64) => { Width::I64 };
    (f64) => { Width::F64 };
    ($other:ident) => { Width::W32 };
}
macro_rules! find {
    ($op:ident, $result:expr, $v:ident, canon) => {};
    ($op:ident, $result:expr, $v:ident, $kind:ident) => {
        if matches!($op, Operator::$v) {
            return Some($result);
        }
    };
}

/// The binary operation behind an operator, with its operands' width.
fn binary_of(op: &Operator<'_>) -> Option<(BinaryOp, Width)> {
    macro_rules! arms {
        ($($v:ident $k:ident ($l:ident, $r:ident) $kind:ident;)*) => { $( find!(op, (BinaryOp::$v, width!($l)), $v, $kind); )* };
    }
    for_each_binary!(arms);
    None
}

/// The unary operation behind an operator.
fn unary_of(op: &Operator<'_>) -> Option<UnaryOp> {
    macro_rules! arms {
        ($($v:ident $k:ident ($t:ident) $kind:ident;)*) => { $( find!(op, UnaryOp::$v, $v, $kind); )* };
    }
    for_each_unary!(arms);
    None
}

/// The variant that replaces NaNs by the canonical one, for operations whose result can be a new NaN.
fn canonical_binary(op: BinaryOp) -> BinaryOp {
    let (first, last, canon) = (BinaryOp::F32Add as usize, BinaryOp::F64Max as usize, BinaryOp::CanonF32Add as usize);
    let index = op as usize;
    if (first..=last).contains(&index) { BinaryOp::ALL[index - first + canon] } else { op }
}

/// Likewise for unary operations.
fn canonical_unary(op: UnaryOp) -> UnaryOp {
    let (first, last, canon) = (UnaryOp::F32Ceil as usize, UnaryOp::F64PromoteF32 as usize, UnaryOp::CanonF32Ceil as usize);
    let index = op as usize;
    if (first..=last).contains(&index) { UnaryOp::ALL[index - first + canon] } else { op }
}

/// The load behind an operator: kind, bytes, whether its result is an integer.
fn load_of<'o>(op: &'o Operator<'_>) -> Option<(LoadKind, u32, bool, &'o MemArg)> {
    Some(match op {
        Operator::I32Load { memarg } => (LoadKind::U32, 4, true, memarg),
        Operator::F32Load { memarg } => (LoadKind::U32, 4, false, memarg),
        Operator::I64Load { memarg } => (LoadKind::U64, 8, true, memarg),
        Operator::F64Load { memarg } => (LoadKind::U64, 8, false, memarg),
        Operator::I32Load8U { memarg } | Operator::I64Load8U { memarg } => (LoadKind::U8, 1, true, memarg),
        Operator::I32Load16U { memarg } | Operator::I64Load16U { memarg } => (LoadKind::U16, 2, true, memarg),
        Operator::I64Load32U { memarg } => (LoadKind::U32, 4, true, memarg),
        Operator::I32Load8S { memarg } => (LoadKind::I8To32, 1, true, memarg),
        Operator::I32Load16S { memarg } => (LoadKind::I16To32, 2, true, memarg),
        Operator::I64Load8S { memarg } => (LoadKind::I8To64, 1, true, memarg),
        Operator::I64Load16S { memarg } => (LoadKind::I16To64, 2, true, memarg),
        Operator::I64Load32S { memarg } => (LoadKind::I32To64, 4, true, memarg),
        _ => return None,
    })
}

/// The store behind an operator: kind, bytes, the value's width, whether the value is an integer.
fn store_of<'o>(op: &'o Operator<'_>) -> Option<(StoreKind, u32, Width, bool, &'o MemArg)> {
    Some(match op {
        Operator::I32Store { memarg } => (StoreKind::W32, 4, Width::W32, true, memarg),
        Operator::F32Store { memarg } => (StoreKind::W32, 4, Width::W32, false, memarg),
        Operator::I64Store { memarg } => (StoreKind::W64, 8, Width::I64, true, memarg),
        // The field of a store is sign-extended, whatever the type: a float's bits qualify as an integer's would.
        Operator::F64Store { memarg } => (StoreKind::W64, 8, Width::I64, false, memarg),
        Operator::I32Store8 { memarg } => (StoreKind::W8, 1, Width::W32, true, memarg),
        Operator::I32Store16 { memarg } => (StoreKind::W16, 2, Width::W32, true, memarg),
        Operator::I64Store8 { memarg } => (StoreKind::W8, 1, Width::W32, true, memarg),
        Operator::I64Store16 { memarg } => (StoreKind::W16, 2, Width::W32, true, memarg),
        Operator::I64Store32 { memarg } => (StoreKind::W32, 4, Width::W32, true, memarg),
        _ => return None,
    })
}

/// Operators that do nothing when they are executed: they weigh nothing.
fn is_marker(op: &Operator<'_>) -> bool {
    use Operator::{Block, Catch, CatchAll, Delegate, Else, End, Loop, Nop, Try, TryTable};
    matches!(op, Block { .. } | Loop { .. } | Else | End | Nop | Try { .. } | TryTable { .. } | Catch { .. } | CatchAll | Delegate { .. })
}

impl Translator<'_> {
    /// Translates one operator at this module offset.
    pub(super) fn operator(&mut self, op: &Operator<'_>, offset: u32) {
        self.code.offset = offset;
        self.begin_site();
        if self.reachable && !is_marker(op) {
            if self.single_step {
                self.flush();
                self.code.close_block();
            }
            self.code.count_operator(self.holder != Holder::Nothing);
            if self.operators {
                let site = self.site();
                self.code.single(Single::Operator, &[site]);
            }
        }
        match op {
            Operator::Block { blockty } => self.block(*blockty),
            Operator::Loop { blockty } => self.loop_(*blockty),
            Operator::If { blockty } => self.if_(*blockty),
            Operator::Else => self.else_(),
            Operator::End => self.end(),
            Operator::TryTable { try_table } => self.try_table(try_table),
            Operator::Try { blockty } => self.try_(*blockty),
            Operator::Catch { tag_index } => self.catch(Some(*tag_index)),
            Operator::CatchAll => self.catch(None),
            Operator::Delegate { relative_depth } => self.delegate(*relative_depth),
            _ if self.reachable => self.plain(op),
            _ => {}
        }
    }

    fn plain(&mut self, op: &Operator<'_>) {
        match *op {
            Operator::Nop => {}
            Operator::Unreachable => {
                self.code.single(Single::Unreachable, &[]);
                self.code.close_block();
                self.reachable = false;
            }
            Operator::Br { relative_depth } => self.br(relative_depth),
            Operator::BrIf { relative_depth } => self.br_if(relative_depth),
            Operator::BrTable { ref targets } => self.br_table(targets),
            Operator::BrOnNull { relative_depth } => self.br_on_null(relative_depth),
            Operator::BrOnNonNull { relative_depth } => self.br_on_non_null(relative_depth),
            Operator::Return => self.return_(self.result_count()),
            Operator::Call { function_index } => self.call(function_index),
            Operator::CallIndirect { type_index, table_index } => self.call_indirect(type_index, table_index),
            Operator::ReturnCall { function_index } => self.return_call(function_index),
            Operator::ReturnCallIndirect { type_index, table_index } => self.return_call_indirect(type_index, table_index),
            Operator::CallRef { type_index } => self.call_ref(type_index),
            Operator::ReturnCallRef { type_index } => self.return_call_ref(type_index),
            Operator::Throw { tag_index } => self.throw(tag_index),
            Operator::ThrowRef => self.throw_ref(),
            Operator::Rethrow { relative_depth } => self.rethrow(relative_depth),
            Operator::Drop => self.drop_(),
            Operator::Select | Operator::TypedSelect { .. } => self.select(),
            Operator::LocalGet { local_index } => self.local_get(local_index),
            Operator::LocalSet { local_index } => self.local_set(local_index, false),
            Operator::LocalTee { local_index } => self.local_set(local_index, true),
            Operator::GlobalGet { global_index } => self.global_get(global_index),
            Operator::GlobalSet { global_index } => self.global_set(global_index),
            Operator::I32Const { value } => self.push(Value::new(Home::Const(u64::from(value as u32)))),
            Operator::I64Const { value } => self.push(Value::new(Home::Const(value as u64))),
            Operator::F32Const { value } if mutant!(ConstantSignLost) && value.bits() == 1 << 31 => self.push(Value::new(Home::Const(0))),
            Operator::F32Const { value } => self.push(Value::new(Home::Const(u64::from(value.bits())))),
            Operator::F64Const { value } if mutant!(ConstantNanPayload) && f64::from_bits(value.bits()).is_nan() => {
                self.push(Value::new(Home::Const(f64::NAN.to_bits())));
            }
            Operator::F64Const { value } => self.push(Value::new(Home::Const(value.bits()))),
            Operator::RefNull { .. } => self.push(Value::new(Home::Const(0))),
            Operator::I32Eqz => self.eqz(BinaryOp::I32Eq, Width::W32),
            Operator::I64Eqz => self.eqz(BinaryOp::I64Eq, Width::I64),
            Operator::I32ReinterpretF32
            | Operator::I64ReinterpretF64
            | Operator::F32ReinterpretI32
            | Operator::F64ReinterpretI64
            | Operator::I64ExtendI32U => self.same_bits(),
            Operator::I64Add128 => self.wide(Single::Add128, 4),
            Operator::I64Sub128 => self.wide(Single::Sub128, 4),
            Operator::I64MulWideS => self.wide(Single::MulWideS, 2),
            Operator::I64MulWideU => self.wide(Single::MulWideU, 2),
            _ => self.computed(op),
        }
    }

    fn computed(&mut self, op: &Operator<'_>) {
        if let Some((op, width)) = binary_of(op) {
            return self.binary(op, width);
        }
        if let Some((kind, bytes, integer, memarg)) = load_of(op) {
            return self.load(kind, bytes, integer, memarg);
        }
        if let Some((kind, bytes, width, integer, memarg)) = store_of(op) {
            return self.store(kind, bytes, width, integer, memarg);
        }
        if let Some(op) = unary_of(op) {
            return self.unary(op);
        }
        if !self.vector(op) && !self.atomic(op) {
            self.rare(op);
        }
    }

    /// Emits an instruction with a result whose slot is in field 0 and that writes the slot always.
    fn stored_result(&mut self, op: Single, operands: &[u32]) {
        self.free_acc();
        let mut fields = vec![self.result_field()];
        fields.extend_from_slice(operands);
        let at = self.code.single(op, &fields);
        self.push_result(at, true);
    }

    /// Pops an operand of a rare operator and gives its slot's byte offset.
    pub(super) fn slot_field(&mut self) -> u32 {
        let (value, slot) = self.pop_slot();
        self.used(&value);
        slot * 8
    }

    /// Pops three operands and gives their slots' byte offsets in the order in which they were pushed.
    pub(super) fn three_slots(&mut self) -> [u32; 3] {
        let third = self.slot_field();
        let second = self.slot_field();
        [self.slot_field(), second, third]
    }

    fn binary(&mut self, op: BinaryOp, width: Width) {
        let op = if self.canonicalize { canonical_binary(op) } else { op };
        let (right, b) = self.pop_operand(width);
        self.report_use(&right, self.values.len());
        let (left, a) = self.pop_operand(width);
        self.report_use(&left, self.values.len());
        let a = self.distinct((left, a), b);
        let chain = self.combine(op, &left, &right);
        self.free_acc();
        let (op, a, b) = mutants::binary(op, a, b);
        let opcode = isa::binary(op, a, b).expect("distinct operands have a shape");
        let at = self.code.emit(opcode, &[self.result_field(), a.field(), b.field()]);
        self.push_result(at, false);
        if let Some(value) = self.values.last_mut() {
            value.chain = chain;
        }
    }

    fn eqz(&mut self, op: BinaryOp, width: Width) {
        mutant! { EqzInvertsFloat: if matches!(self.values.last(), Some(Value { home: Home::Acc, .. })) && self.code.invert_float() {
            return;
        } }
        self.push(Value::new(Home::Const(0)));
        self.binary(op, width);
    }

    fn unary(&mut self, op: UnaryOp) {
        let op = mutants::unary(if self.canonicalize { canonical_unary(op) } else { op });
        mutant! { WrapDirty: if op == UnaryOp::I32WrapI64 { return; } }
        let (value, place) = self.pop_place();
        self.used(&value);
        self.free_acc();
        let opcode = isa::unary(op, place).expect("a place has a shape");
        let at = self.code.emit(opcode, &[self.result_field(), place.field()]);
        self.push_result(at, false);
    }

    /// An operator on slots whose two results go to the slots of their heights; it leaves the accumulator alone.
    fn wide(&mut self, op: Single, operands: usize) {
        let mut fields = [0; 5];
        for field in fields[1..=operands].iter_mut().rev() {
            *field = self.slot_field();
        }
        fields[0] = self.result_field();
        self.code.single(op, &fields[..=operands]);
        self.push(Value::new(Home::Canonical));
        self.push(Value::new(Home::Canonical));
    }

    /// An operator that leaves the slot's bits as they are. It is a use all the same, and its result is no local any more.
    fn same_bits(&mut self) {
        let Some(value) = self.values.last_mut() else { return };
        let before = *value;
        (value.maybe_result, value.chain) = (false, 0);
        if before.maybe_result || before.chain != 0 {
            let top = self.values.len() - 1;
            self.broke(before.chain);
            self.report_use(&before, top);
        }
    }

    fn global_get(&mut self, global: u32) {
        let ty = self.module.global_type(global);
        let site = if ty.mutable { self.site() } else { 0 };
        if ty.content.is_wide() {
            let at = self.code.single(Single::VectorGlobalGet, &[self.result_field(), global, site]);
            return self.push_vector(at);
        }
        self.stored_result(Single::GlobalGet, &[global, site]);
    }

    fn global_set(&mut self, global: u32) {
        let constant = match self.values.last() {
            Some(Value { home: Home::Const(raw), .. }) if raw >> 32 == 0 || mutant!(GlobalConstantTruncated) => Some(*raw as u32),
            _ => None,
        };
        if let Some(imm) = constant {
            self.pop();
            let site = self.site();
            self.code.single(Single::GlobalSetI, &[global, imm, site]);
            return;
        }
        let (value, place) = self.pop_place();
        self.used(&value);
        let site = self.site();
        let op = match place {
            Operand::Acc => Single::GlobalSetA,
            _ if value.wide && !mutant!(GlobalSetHalf) => Single::VectorGlobalSet,
            _ => Single::GlobalSetS,
        };
        self.code.single(op, &[global, place.field(), site]);
    }

    fn load(&mut self, kind: LoadKind, bytes: u32, integer: bool, memarg: &MemArg) {
        let [offset, high] = halves(memarg.offset);
        let (kind, offset) = mutants::load(kind, offset);
        if (memarg.memory != 0 && !mutant!(LoadFirstMemory)) || (high != 0 && !mutant!(OffsetHighLost)) {
            let addr = self.slot_field();
            let site = self.site() << 3;
            return self.stored_result(Single::LoadOther, &[addr, offset, site, kind as u32, memarg.memory, high]);
        }
        let wide = self.module.memory_type(0).index64;
        let (value, addr) = self.pop_address(wide);
        self.used(&value);
        self.free_acc();
        let site = self.site() << 3;
        let opcode = if wide && !mutant!(AddressTruncated) { isa::load64(kind, addr) } else { isa::load(kind, addr) };
        let opcode = opcode.expect("every operand is an address shape");
        let at = self.code.emit(opcode, &[self.result_field(), addr.field(), offset, site]);
        let chain = if integer { self.chain_from_load(at, bytes) } else { 0 };
        self.push_result(at, false);
        if let Some(value) = self.values.last_mut() {
            value.chain = chain;
        }
    }

    fn store(&mut self, kind: StoreKind, bytes: u32, width: Width, integer: bool, memarg: &MemArg) {
        let [offset, high] = halves(memarg.offset);
        let (kind, offset) = mutants::store(kind, offset);
        if (memarg.memory != 0 && !(mutant!(StoreFirstMemory) && bytes == 1)) || high != 0 {
            let value = self.slot_field();
            let addr = self.slot_field();
            let site = self.site() << 3;
            self.code.single(Single::StoreOther, &[addr, value, offset, site, bytes, memarg.memory, high]);
            return;
        }
        let wide = self.module.memory_type(0).index64;
        let (value, b) = self.pop_operand(if mutant!(StoreConstantTruncated) { Width::W32 } else { width });
        self.report_use(&value, self.values.len());
        let (addr, a) = self.pop_address(wide);
        self.used(&addr);
        let a = match (a, b) {
            (Operand::Imm(_), Operand::Imm(_)) => a,
            _ => self.distinct((addr, a), b),
        };
        let site = self.site() << 3;
        let opcode = if wide { isa::store64(kind, a, b) } else { isa::store(kind, a, b) };
        let opcode = opcode.expect("every pair but two accumulators has a shape");
        let at = self.code.emit(opcode, &[a.field(), b.field(), offset, site]);
        if integer {
            self.chain_to_store(&value, at, bytes);
        } else {
            self.broke(value.chain);
        }
    }

    /// Pops an address operand of memory 0; those of 64 bits are never immediates.
    fn pop_address(&mut self, wide: bool) -> (Value, Operand) {
        if wide { self.pop_place() } else { self.pop_operand(Width::W32) }
    }

    fn rare(&mut self, op: &Operator<'_>) {
        let site = self.site();
        match *op {
            Operator::RefIsNull => {
                let value = self.slot_field();
                self.stored_result(Single::RefIsNull, &[value]);
            }
            Operator::RefAsNonNull => {
                let value = self.slot_field();
                self.stored_result(Single::RefAsNonNull, &[value]);
            }
            Operator::RefFunc { function_index } => self.stored_result(Single::RefFunc, &[function_index]),
            Operator::MemorySize { mem } => {
                let mem = if mutant!(SizeFirstMemory) { 0 } else { mem };
                self.stored_result(Single::MemorySize, &[mem, site]);
            }
            Operator::MemoryGrow { mem } => {
                let delta = self.slot_field();
                let failure = failure_high(self.module.memory_type(mem).index64 && !mutant!(GrowFailure32));
                self.stored_result(Single::MemoryGrow, &[delta, mem, site, failure]);
            }
            Operator::TableGet { table } => {
                let index = self.slot_field();
                self.stored_result(Single::TableGet, &[index, table, site]);
            }
            Operator::TableSize { table } => self.stored_result(Single::TableSize, &[table, site]),
            Operator::TableGrow { table } => {
                let delta = self.slot_field();
                let init = self.slot_field();
                let failure = failure_high(self.module.table_type(table).index64);
                self.stored_result(Single::TableGrow, &[init, delta, table, site, failure]);
            }
            Operator::TableSet { table } => {
                let value = self.slot_field();
                let index = self.slot_field();
                self.code.single(Single::TableSet, &[index, value, table, site]);
            }
            Operator::DataDrop { data_index } => {
                self.code.single(Single::DataDrop, &[data_index, site]);
            }
            Operator::ElemDrop { elem_index } => {
                self.code.single(Single::ElemDrop, &[elem_index, site]);
            }
            _ => self.bulk(op, site),
        }
    }

    fn bulk(&mut self, op: &Operator<'_>, site: u32) {
        let [a, b, c] = self.three_slots();
        let (op, rest): (Single, [u32; 3]) = match *op {
            Operator::MemoryFill { mem } => (Single::MemoryFill, [mem, site, 0]),
            Operator::MemoryCopy { dst_mem, src_mem } if mutant!(CopyMemoriesSwapped) => (Single::MemoryCopy, [src_mem, dst_mem, site]),
            Operator::MemoryCopy { dst_mem, src_mem } => (Single::MemoryCopy, [dst_mem, src_mem, site]),
            Operator::MemoryInit { data_index, mem } => (Single::MemoryInit, [mem, data_index, site]),
            Operator::TableFill { table } => (Single::TableFill, [table, site, 0]),
            Operator::TableCopy { dst_table, .. } if mutant!(TableCopyOne) => (Single::TableCopy, [dst_table, dst_table, site]),
            Operator::TableCopy { dst_table, src_table } => (Single::TableCopy, [dst_table, src_table, site]),
            Operator::TableInit { elem_index, table } => (Single::TableInit, [table, elem_index, site]),
            ref other => unreachable!("validation refuses operators that are not translated: {other:?}"),
        };
        self.code.single(op, &[a, b, c, rest[0], rest[1], rest[2]]);
    }
}

/// A 64-bit offset as two fields, the lower half first.
pub(super) fn halves(offset: u64) -> [u32; 2] {
    [offset as u32, (offset >> 32) as u32]
}

/// The upper half of the -1 that tells of a failed growth.
fn failure_high(index64: bool) -> u32 {
    if index64 { u32::MAX } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_variants_line_up() {
        let name = |op: BinaryOp| format!("{op:?}");
        for op in &BinaryOp::ALL[BinaryOp::F32Add as usize..=BinaryOp::F64Max as usize] {
            assert_eq!(name(canonical_binary(*op)), format!("Canon{op:?}"));
        }
        for op in &UnaryOp::ALL[UnaryOp::F32Ceil as usize..=UnaryOp::F64PromoteF32 as usize] {
            assert_eq!(format!("{:?}", canonical_unary(*op)), format!("Canon{op:?}"));
        }
        assert_eq!(canonical_binary(BinaryOp::F32Copysign), BinaryOp::F32Copysign);
        assert_eq!(canonical_unary(UnaryOp::F64Abs), UnaryOp::F64Abs);
    }
}
