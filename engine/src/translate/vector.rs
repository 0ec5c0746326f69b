//! Operators on 128-bit vectors.
//!
//! Their operands and results are in slots, and no chain of a read-modify-write goes through them.

use wasmparser::{MemArg, Operator};

use super::Translator;
use super::operator::halves;
use super::stack::Width;
use crate::isa::vector::{
    self as isa, Extract, FrameStore, LaneLoad, Replace, VectorBinary, VectorLoad, VectorShift, VectorSplat, VectorTernary, VectorTest,
    VectorUnary, for_each_vector_binary, for_each_vector_load, for_each_vector_shift, for_each_vector_ternary, for_each_vector_test,
    for_each_vector_unary,
};
use crate::isa::{Opcode, Operand, Single};
use crate::mutants::mutant;

macro_rules! find {
    ($op:ident, $result:expr, $v:ident, plain) => {
        if matches!($op, Operator::$v) {
            return Some($result);
        }
    };
    // `F32x4Add` comes as plain, `CanonF32x4Add` is no operator.
    ($op:ident, $result:expr, $v:ident, $kind:ident) => {};
}

/// The operation on one vector behind an operator.
fn unary_of(op: &Operator<'_>) -> Option<VectorUnary> {
    macro_rules! arms { ($($v:ident $k:ident $kind:ident;)*) => { $( find!(op, VectorUnary::$v, $v, $kind); )* }; }
    for_each_vector_unary!(arms);
    Some(match op {
        Operator::I32x4RelaxedTruncF32x4S => VectorUnary::I32x4TruncSatF32x4S,
        Operator::I32x4RelaxedTruncF32x4U => VectorUnary::I32x4TruncSatF32x4U,
        Operator::I32x4RelaxedTruncF64x2SZero => VectorUnary::I32x4TruncSatF64x2SZero,
        Operator::I32x4RelaxedTruncF64x2UZero => VectorUnary::I32x4TruncSatF64x2UZero,
        _ => return None,
    })
}

/// The operation on two vectors behind an operator.
fn binary_of(op: &Operator<'_>) -> Option<VectorBinary> {
    macro_rules! arms { ($($v:ident $k:ident $kind:ident;)*) => { $( find!(op, VectorBinary::$v, $v, $kind); )* }; }
    for_each_vector_binary!(arms);
    Some(match op {
        Operator::I8x16RelaxedSwizzle => VectorBinary::I8x16Swizzle,
        Operator::F32x4RelaxedMin => VectorBinary::F32x4Min,
        Operator::F32x4RelaxedMax => VectorBinary::F32x4Max,
        Operator::F64x2RelaxedMin => VectorBinary::F64x2Min,
        Operator::F64x2RelaxedMax => VectorBinary::F64x2Max,
        Operator::I16x8RelaxedQ15mulrS => VectorBinary::I16x8Q15MulrSatS,
        _ => return None,
    })
}

/// The operation on three vectors behind an operator.
fn ternary_of(op: &Operator<'_>) -> Option<VectorTernary> {
    macro_rules! arms { ($($v:ident $k:ident $kind:ident;)*) => { $( find!(op, VectorTernary::$v, $v, $kind); )* }; }
    for_each_vector_ternary!(arms);
    Some(match op {
        Operator::I8x16RelaxedLaneselect
        | Operator::I16x8RelaxedLaneselect
        | Operator::I32x4RelaxedLaneselect
        | Operator::I64x2RelaxedLaneselect => VectorTernary::V128Bitselect,
        _ => return None,
    })
}

fn shift_of(op: &Operator<'_>) -> Option<VectorShift> {
    macro_rules! arms { ($($v:ident $k:ident;)*) => { $( find!(op, VectorShift::$v, $v, plain); )* }; }
    for_each_vector_shift!(arms);
    None
}

fn test_of(op: &Operator<'_>) -> Option<VectorTest> {
    macro_rules! arms { ($($v:ident $k:ident;)*) => { $( find!(op, VectorTest::$v, $v, plain); )* }; }
    for_each_vector_test!(arms);
    None
}

/// The load of a whole vector behind an operator.
fn load_of<'o>(op: &'o Operator<'_>) -> Option<(VectorLoad, &'o MemArg)> {
    macro_rules! arms {
        ($($v:ident $k:ident ($t:ident);)*) => {
            match op {
                $( Operator::$v { memarg } => Some((VectorLoad::$v, memarg)), )*
                _ => None,
            }
        };
    }
    for_each_vector_load!(arms)
}

/// The variant that replaces NaNs by the canonical one, for operations whose result can have a new NaN.
fn canonical_unary(op: VectorUnary) -> VectorUnary {
    let (first, last) = (VectorUnary::F32x4Ceil as usize, VectorUnary::F64x2PromoteLowF32x4 as usize);
    let (index, canon) = (op as usize, VectorUnary::CanonF32x4Ceil as usize);
    if (first..=last).contains(&index) { VectorUnary::ALL[index - first + canon] } else { op }
}

/// Likewise for operations on two vectors.
fn canonical_binary(op: VectorBinary) -> VectorBinary {
    let (first, last) = (VectorBinary::F32x4Add as usize, VectorBinary::F64x2Max as usize);
    let (index, canon) = (op as usize, VectorBinary::CanonF32x4Add as usize);
    if (first..=last).contains(&index) { VectorBinary::ALL[index - first + canon] } else { op }
}

/// Likewise for operations on three vectors.
fn canonical_ternary(op: VectorTernary) -> VectorTernary {
    let (first, last) = (VectorTernary::F32x4RelaxedMadd as usize, VectorTernary::F64x2RelaxedNmadd as usize);
    let (index, canon) = (op as usize, VectorTernary::CanonF32x4RelaxedMadd as usize);
    if (first..=last).contains(&index) { VectorTernary::ALL[index - first + canon] } else { op }
}

impl Translator<'_> {
    /// Translates an operator on vectors; `false` when it is none.
    pub(super) fn vector(&mut self, op: &Operator<'_>) -> bool {
        if let Some(op) = binary_of(op) {
            let op = if self.canonicalize { canonical_binary(op) } else { op };
            let b = self.slot_field();
            let a = self.slot_field();
            self.vector_result(isa::binary(op), &[a, b]);
        } else if let Some((kind, memarg)) = load_of(op) {
            self.vector_load(kind, memarg);
        } else if let Some(op) = unary_of(op) {
            let op = if self.canonicalize { canonical_unary(op) } else { op };
            let a = self.slot_field();
            self.vector_result(isa::unary(op), &[a]);
        } else if let Some(op) = ternary_of(op) {
            let op = if self.canonicalize { canonical_ternary(op) } else { op };
            let operands = self.three_slots();
            self.vector_result(isa::ternary(op), &operands);
        } else if let Some(op) = shift_of(op) {
            let amount = self.scalar(Width::W32);
            let a = self.slot_field();
            self.vector_result(isa::shift(op, amount), &[a, amount.field()]);
        } else if let Some(op) = test_of(op) {
            let a = self.slot_field();
            self.scalar_result(isa::test(op), a);
        } else {
            return self.lanes(op) || self.lane_access(op);
        }
        true
    }

    /// Operators that name lanes or make a vector of a number.
    fn lanes(&mut self, op: &Operator<'_>) -> bool {
        match *op {
            Operator::V128Const { value } => {
                let words = words(value.bytes());
                let fields = [self.result_field(), words[0], words[1], words[2], words[3]];
                let at = self.code.single(Single::VectorConst, &fields);
                self.push_vector(at);
            }
            Operator::I8x16Shuffle { lanes } => {
                let lanes = if mutant!(ShuffleLane16) { lanes.map(|lane| if lane == 16 { 0 } else { lane }) } else { lanes };
                let words = words(&lanes);
                let b = self.slot_field();
                let a = self.slot_field();
                let fields = [self.result_field(), a, b, words[0], words[1], words[2], words[3]];
                let at = self.code.single(Single::VectorShuffle, &fields);
                self.push_vector(at);
            }
            Operator::I8x16Splat => self.splat(VectorSplat::I8x16Splat, Width::W32),
            Operator::I16x8Splat => self.splat(VectorSplat::I16x8Splat, Width::W32),
            Operator::I32x4Splat | Operator::F32x4Splat => self.splat(VectorSplat::I32x4Splat, Width::W32),
            // An immediate is sign-extended, whatever the type: a float's bits qualify as an integer's would.
            Operator::I64x2Splat | Operator::F64x2Splat => self.splat(VectorSplat::I64x2Splat, Width::I64),
            Operator::I8x16ExtractLaneS { lane } => self.extract(Extract::I8S, lane, 1),
            Operator::I8x16ExtractLaneU { lane } => self.extract(Extract::I8U, lane, 1),
            Operator::I16x8ExtractLaneS { lane } => self.extract(Extract::I16S, lane, 2),
            Operator::I16x8ExtractLaneU { lane } => self.extract(Extract::I16U, lane, 2),
            Operator::I32x4ExtractLane { lane } | Operator::F32x4ExtractLane { lane } => self.extract(Extract::L32, lane, 4),
            Operator::I64x2ExtractLane { lane } | Operator::F64x2ExtractLane { lane } => self.extract(Extract::L64, lane, 8),
            Operator::I8x16ReplaceLane { lane } => self.replace(Replace::R8, Width::W32, lane, 1),
            Operator::I16x8ReplaceLane { lane } => self.replace(Replace::R16, Width::W32, lane, 2),
            Operator::I32x4ReplaceLane { lane } | Operator::F32x4ReplaceLane { lane } => self.replace(Replace::R32, Width::W32, lane, 4),
            Operator::I64x2ReplaceLane { lane } | Operator::F64x2ReplaceLane { lane } => self.replace(Replace::R64, Width::I64, lane, 8),
            _ => return false,
        }
        true
    }

    /// Loads and stores of lanes, and the store of a whole vector.
    fn lane_access(&mut self, op: &Operator<'_>) -> bool {
        match *op {
            Operator::V128Load8Lane { ref memarg, lane } => self.lane_load(LaneLoad::W1, lane, 1, memarg),
            Operator::V128Load16Lane { ref memarg, lane } => self.lane_load(LaneLoad::W2, lane, 2, memarg),
            Operator::V128Load32Lane { ref memarg, lane } => self.lane_load(LaneLoad::W4, lane, 4, memarg),
            Operator::V128Load64Lane { ref memarg, lane } => self.lane_load(LaneLoad::W8, lane, 8, memarg),
            Operator::V128Store8Lane { ref memarg, lane } => self.frame_store(FrameStore::B1, lane, 1, memarg),
            Operator::V128Store16Lane { ref memarg, lane } => self.frame_store(FrameStore::B2, lane, 2, memarg),
            Operator::V128Store32Lane { ref memarg, lane } => self.frame_store(FrameStore::B4, lane, 4, memarg),
            Operator::V128Store64Lane { ref memarg, lane } => self.frame_store(FrameStore::B8, lane, 8, memarg),
            Operator::V128Store { ref memarg } => self.frame_store(FrameStore::B16, 0, 16, memarg),
            _ => return false,
        }
        true
    }

    /// Emits an instruction that writes a vector to the slots of the next height, and pushes it.
    fn vector_result(&mut self, opcode: Opcode, operands: &[u32]) {
        let mut fields = [self.result_field(), 0, 0, 0, 0, 0];
        fields[1..=operands.len()].copy_from_slice(operands);
        let at = self.code.emit(opcode, &fields[..=operands.len()]);
        self.push_vector(at);
    }

    /// Emits an instruction with a scalar result, and pushes that.
    fn scalar_result(&mut self, opcode: Opcode, operand: u32) {
        self.free_acc();
        let at = self.code.emit(opcode, &[self.result_field(), operand]);
        self.push_result(at, false);
    }

    /// Pops a scalar operand.
    fn scalar(&mut self, width: Width) -> Operand {
        let (value, operand) = self.pop_operand(width);
        self.used(&value);
        operand
    }

    fn splat(&mut self, op: VectorSplat, width: Width) {
        let value = self.scalar(width);
        self.vector_result(isa::splat(op, value), &[value.field()]);
    }

    fn extract(&mut self, op: Extract, lane: u8, lane_bytes: u32) {
        let op = if mutant!(ExtractUnsigned) && op == Extract::I8S && lane >= 8 { Extract::I8U } else { op };
        let lane = self.slot_field() + u32::from(lane) * lane_bytes;
        self.scalar_result(isa::extract(op), lane);
    }

    fn replace(&mut self, op: Replace, width: Width, lane: u8, lane_bytes: u32) {
        let lane = if mutant!(ReplaceLastLane) && op == Replace::R16 { lane.min(6) } else { lane };
        let value = self.scalar(width);
        let a = self.slot_field();
        self.vector_result(isa::replace(op, value), &[a, value.field(), u32::from(lane) * lane_bytes]);
    }

    /// Whether an access goes to another memory than the first, or to one with 64-bit addresses.
    fn is_other(&self, memarg: &MemArg) -> bool {
        memarg.memory != 0 || self.module.memory_type(0).index64
    }

    fn vector_load(&mut self, kind: VectorLoad, memarg: &MemArg) {
        let [offset, high] = halves(memarg.offset);
        if self.is_other(memarg) {
            let addr = self.slot_field();
            let site = self.site() << 3;
            let fields = [self.result_field(), addr, offset, site, kind as u32, memarg.memory, high];
            let at = self.code.single(Single::VectorLoadOther, &fields);
            return self.push_vector(at);
        }
        let addr = self.scalar(Width::W32);
        let site = self.site() << 3;
        let kind = if mutant!(LoadWidensUnsigned) && kind == VectorLoad::V128Load32x2S { VectorLoad::V128Load32x2U } else { kind };
        self.vector_result(isa::load(kind, addr), &[addr.field(), offset, site]);
    }

    fn lane_load(&mut self, kind: LaneLoad, lane: u8, bytes: u32, memarg: &MemArg) {
        let lane = if mutant!(LoadLaneLow) && bytes == 1 { lane % 8 } else { lane };
        let ([offset, high], lane) = (halves(memarg.offset), u32::from(lane) * bytes);
        let a = self.slot_field();
        if self.is_other(memarg) {
            let addr = self.slot_field();
            let site = self.site() << 3;
            let fields = [self.result_field(), addr, offset, site, a, lane, bytes, memarg.memory, high];
            let at = self.code.single(Single::LaneLoadOther, &fields);
            return self.push_vector(at);
        }
        let addr = self.scalar(Width::W32);
        let site = self.site() << 3;
        self.vector_result(isa::lane_load(kind, addr), &[addr.field(), offset, site, a, lane]);
    }

    fn frame_store(&mut self, kind: FrameStore, lane: u8, bytes: u32, memarg: &MemArg) {
        let [offset, high] = halves(memarg.offset);
        let from = self.slot_field() + if mutant!(StoreLaneFirst) && bytes == 8 { 0 } else { u32::from(lane) * bytes };
        if self.is_other(memarg) {
            let addr = self.slot_field();
            let site = self.site() << 3;
            self.code.single(Single::FrameStoreOther, &[addr, from, offset, site, bytes, memarg.memory, high]);
            return;
        }
        let addr = self.scalar(Width::W32);
        let site = self.site() << 3;
        self.code.emit(isa::frame_store(kind, addr), &[addr.field(), from, offset, site]);
    }
}

/// Sixteen bytes as fields of an instruction.
fn words(bytes: &[u8; 16]) -> [u32; 4] {
    let all = u128::from_le_bytes(*bytes);
    [0, 32, 64, 96].map(|shift| (all >> shift) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_variants_line_up() {
        for op in &VectorUnary::ALL[VectorUnary::F32x4Ceil as usize..=VectorUnary::F64x2PromoteLowF32x4 as usize] {
            assert_eq!(format!("{:?}", canonical_unary(*op)), format!("Canon{op:?}"));
        }
        for op in &VectorBinary::ALL[VectorBinary::F32x4Add as usize..=VectorBinary::F64x2Max as usize] {
            assert_eq!(format!("{:?}", canonical_binary(*op)), format!("Canon{op:?}"));
        }
        for op in &VectorTernary::ALL[VectorTernary::F32x4RelaxedMadd as usize..=VectorTernary::F64x2RelaxedNmadd as usize] {
            assert_eq!(format!("{:?}", canonical_ternary(*op)), format!("Canon{op:?}"));
        }
        assert_eq!(canonical_unary(VectorUnary::F64x2Neg), VectorUnary::F64x2Neg);
        assert_eq!(canonical_binary(VectorBinary::F32x4PMin), VectorBinary::F32x4PMin);
        assert_eq!(canonical_ternary(VectorTernary::V128Bitselect), VectorTernary::V128Bitselect);
    }

    #[test]
    fn bytes_keep_their_order() {
        assert_eq!(words(&std::array::from_fn(|i| i as u8)), [0x0302_0100, 0x0706_0504, 0x0b0a_0908, 0x0f0e_0d0c]);
    }
}
