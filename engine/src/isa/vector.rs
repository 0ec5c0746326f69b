//! The part of the instruction set that works on 128-bit vectors.
//!
//! A vector takes two adjacent slots and is never in the accumulator: its operands are slots, and an instruction with a vector
//! result always writes field 0's slot and leaves the accumulator alone. So such an instruction exists once, not twice. Scalar
//! operands may be in the accumulator, a slot or an immediate, scalar results go where those of other instructions go.
//!
//! Relaxed operators have their deterministic meaning, which for most of them is that of another operator; those are not listed.

use super::{Opcode, Operand, UNARY_IMM_SHAPES, define_enum, shape1};

/// Lists operations on one vector: `Variant kernel kind`. `canon32` and `canon64` replace NaNs in lanes of that width.
macro_rules! for_each_vector_unary {
    ($m:ident) => {
        $m! {
            V128Not v128_not plain; I8x16Abs i8x16_abs plain; I8x16Neg i8x16_neg plain; I8x16Popcnt i8x16_popcnt plain;
            I16x8ExtAddPairwiseI8x16S i16x8_extadd_pairwise_i8x16_s plain;
            I16x8ExtAddPairwiseI8x16U i16x8_extadd_pairwise_i8x16_u plain; I16x8Abs i16x8_abs plain; I16x8Neg i16x8_neg plain;
            I16x8ExtendLowI8x16S i16x8_extend_low_i8x16_s plain; I16x8ExtendHighI8x16S i16x8_extend_high_i8x16_s plain;
            I16x8ExtendLowI8x16U i16x8_extend_low_i8x16_u plain; I16x8ExtendHighI8x16U i16x8_extend_high_i8x16_u plain;
            I32x4ExtAddPairwiseI16x8S i32x4_extadd_pairwise_i16x8_s plain;
            I32x4ExtAddPairwiseI16x8U i32x4_extadd_pairwise_i16x8_u plain; I32x4Abs i32x4_abs plain; I32x4Neg i32x4_neg plain;
            I32x4ExtendLowI16x8S i32x4_extend_low_i16x8_s plain; I32x4ExtendHighI16x8S i32x4_extend_high_i16x8_s plain;
            I32x4ExtendLowI16x8U i32x4_extend_low_i16x8_u plain; I32x4ExtendHighI16x8U i32x4_extend_high_i16x8_u plain;
            I64x2Abs i64x2_abs plain; I64x2Neg i64x2_neg plain; I64x2ExtendLowI32x4S i64x2_extend_low_i32x4_s plain;
            I64x2ExtendHighI32x4S i64x2_extend_high_i32x4_s plain; I64x2ExtendLowI32x4U i64x2_extend_low_i32x4_u plain;
            I64x2ExtendHighI32x4U i64x2_extend_high_i32x4_u plain; F32x4Abs f32x4_abs plain; F32x4Neg f32x4_neg plain;
            F64x2Abs f64x2_abs plain; F64x2Neg f64x2_neg plain; I32x4TruncSatF32x4S i32x4_trunc_sat_f32x4_s plain;
            I32x4TruncSatF32x4U i32x4_trunc_sat_f32x4_u plain; F32x4ConvertI32x4S f32x4_convert_i32x4_s plain;
            F32x4ConvertI32x4U f32x4_convert_i32x4_u plain; I32x4TruncSatF64x2SZero i32x4_trunc_sat_f64x2_s_zero plain;
            I32x4TruncSatF64x2UZero i32x4_trunc_sat_f64x2_u_zero plain; F64x2ConvertLowI32x4S f64x2_convert_low_i32x4_s plain;
            F64x2ConvertLowI32x4U f64x2_convert_low_i32x4_u plain; F32x4Ceil f32x4_ceil plain; F32x4Floor f32x4_floor plain;
            F32x4Trunc f32x4_trunc plain; F32x4Nearest f32x4_nearest plain; F32x4Sqrt f32x4_sqrt plain;
            F64x2Ceil f64x2_ceil plain; F64x2Floor f64x2_floor plain; F64x2Trunc f64x2_trunc plain;
            F64x2Nearest f64x2_nearest plain; F64x2Sqrt f64x2_sqrt plain; F32x4DemoteF64x2Zero f32x4_demote_f64x2_zero plain;
            F64x2PromoteLowF32x4 f64x2_promote_low_f32x4 plain; CanonF32x4Ceil f32x4_ceil canon32;
            CanonF32x4Floor f32x4_floor canon32; CanonF32x4Trunc f32x4_trunc canon32; CanonF32x4Nearest f32x4_nearest canon32;
            CanonF32x4Sqrt f32x4_sqrt canon32; CanonF64x2Ceil f64x2_ceil canon64; CanonF64x2Floor f64x2_floor canon64;
            CanonF64x2Trunc f64x2_trunc canon64; CanonF64x2Nearest f64x2_nearest canon64; CanonF64x2Sqrt f64x2_sqrt canon64;
            CanonF32x4DemoteF64x2Zero f32x4_demote_f64x2_zero canon32;
            CanonF64x2PromoteLowF32x4 f64x2_promote_low_f32x4 canon64;
        }
    };
}
pub(crate) use for_each_vector_unary;

/// Lists operations on two vectors, likewise.
macro_rules! for_each_vector_binary {
    ($m:ident) => {
        $m! {
            I8x16Swizzle i8x16_swizzle plain; I8x16Eq i8x16_eq plain; I8x16Ne i8x16_ne plain; I8x16LtS i8x16_lt_s plain;
            I8x16LtU i8x16_lt_u plain; I8x16GtS i8x16_gt_s plain; I8x16GtU i8x16_gt_u plain; I8x16LeS i8x16_le_s plain;
            I8x16LeU i8x16_le_u plain; I8x16GeS i8x16_ge_s plain; I8x16GeU i8x16_ge_u plain; I16x8Eq i16x8_eq plain;
            I16x8Ne i16x8_ne plain; I16x8LtS i16x8_lt_s plain; I16x8LtU i16x8_lt_u plain; I16x8GtS i16x8_gt_s plain;
            I16x8GtU i16x8_gt_u plain; I16x8LeS i16x8_le_s plain; I16x8LeU i16x8_le_u plain; I16x8GeS i16x8_ge_s plain;
            I16x8GeU i16x8_ge_u plain; I32x4Eq i32x4_eq plain; I32x4Ne i32x4_ne plain; I32x4LtS i32x4_lt_s plain;
            I32x4LtU i32x4_lt_u plain; I32x4GtS i32x4_gt_s plain; I32x4GtU i32x4_gt_u plain; I32x4LeS i32x4_le_s plain;
            I32x4LeU i32x4_le_u plain; I32x4GeS i32x4_ge_s plain; I32x4GeU i32x4_ge_u plain; I64x2Eq i64x2_eq plain;
            I64x2Ne i64x2_ne plain; I64x2LtS i64x2_lt_s plain; I64x2GtS i64x2_gt_s plain; I64x2LeS i64x2_le_s plain;
            I64x2GeS i64x2_ge_s plain; F32x4Eq f32x4_eq plain; F32x4Ne f32x4_ne plain; F32x4Lt f32x4_lt plain;
            F32x4Gt f32x4_gt plain; F32x4Le f32x4_le plain; F32x4Ge f32x4_ge plain; F64x2Eq f64x2_eq plain;
            F64x2Ne f64x2_ne plain; F64x2Lt f64x2_lt plain; F64x2Gt f64x2_gt plain; F64x2Le f64x2_le plain;
            F64x2Ge f64x2_ge plain; V128And v128_and plain; V128AndNot v128_andnot plain; V128Or v128_or plain;
            V128Xor v128_xor plain; I8x16NarrowI16x8S i8x16_narrow_i16x8_s plain; I8x16NarrowI16x8U i8x16_narrow_i16x8_u plain;
            I8x16Add i8x16_add plain; I8x16AddSatS i8x16_add_sat_s plain; I8x16AddSatU i8x16_add_sat_u plain;
            I8x16Sub i8x16_sub plain; I8x16SubSatS i8x16_sub_sat_s plain; I8x16SubSatU i8x16_sub_sat_u plain;
            I8x16MinS i8x16_min_s plain; I8x16MinU i8x16_min_u plain; I8x16MaxS i8x16_max_s plain; I8x16MaxU i8x16_max_u plain;
            I8x16AvgrU i8x16_avgr_u plain; I16x8Q15MulrSatS i16x8_q15mulr_sat_s plain;
            I16x8NarrowI32x4S i16x8_narrow_i32x4_s plain; I16x8NarrowI32x4U i16x8_narrow_i32x4_u plain;
            I16x8Add i16x8_add plain; I16x8AddSatS i16x8_add_sat_s plain; I16x8AddSatU i16x8_add_sat_u plain;
            I16x8Sub i16x8_sub plain; I16x8SubSatS i16x8_sub_sat_s plain; I16x8SubSatU i16x8_sub_sat_u plain;
            I16x8Mul i16x8_mul plain; I16x8MinS i16x8_min_s plain; I16x8MinU i16x8_min_u plain; I16x8MaxS i16x8_max_s plain;
            I16x8MaxU i16x8_max_u plain; I16x8AvgrU i16x8_avgr_u plain; I16x8ExtMulLowI8x16S i16x8_extmul_low_i8x16_s plain;
            I16x8ExtMulHighI8x16S i16x8_extmul_high_i8x16_s plain; I16x8ExtMulLowI8x16U i16x8_extmul_low_i8x16_u plain;
            I16x8ExtMulHighI8x16U i16x8_extmul_high_i8x16_u plain; I32x4Add i32x4_add plain; I32x4Sub i32x4_sub plain;
            I32x4Mul i32x4_mul plain; I32x4MinS i32x4_min_s plain; I32x4MinU i32x4_min_u plain; I32x4MaxS i32x4_max_s plain;
            I32x4MaxU i32x4_max_u plain; I32x4DotI16x8S i32x4_dot_i16x8_s plain;
            I32x4ExtMulLowI16x8S i32x4_extmul_low_i16x8_s plain; I32x4ExtMulHighI16x8S i32x4_extmul_high_i16x8_s plain;
            I32x4ExtMulLowI16x8U i32x4_extmul_low_i16x8_u plain; I32x4ExtMulHighI16x8U i32x4_extmul_high_i16x8_u plain;
            I64x2Add i64x2_add plain; I64x2Sub i64x2_sub plain; I64x2Mul i64x2_mul plain;
            I64x2ExtMulLowI32x4S i64x2_extmul_low_i32x4_s plain; I64x2ExtMulHighI32x4S i64x2_extmul_high_i32x4_s plain;
            I64x2ExtMulLowI32x4U i64x2_extmul_low_i32x4_u plain; I64x2ExtMulHighI32x4U i64x2_extmul_high_i32x4_u plain;
            F32x4PMin f32x4_pmin plain; F32x4PMax f32x4_pmax plain; F64x2PMin f64x2_pmin plain; F64x2PMax f64x2_pmax plain;
            I16x8RelaxedDotI8x16I7x16S i16x8_relaxed_dot_i8x16_i7x16_s plain; F32x4Add f32x4_add plain;
            F32x4Sub f32x4_sub plain; F32x4Mul f32x4_mul plain; F32x4Div f32x4_div plain; F32x4Min f32x4_min plain;
            F32x4Max f32x4_max plain; F64x2Add f64x2_add plain; F64x2Sub f64x2_sub plain; F64x2Mul f64x2_mul plain;
            F64x2Div f64x2_div plain; F64x2Min f64x2_min plain; F64x2Max f64x2_max plain; CanonF32x4Add f32x4_add canon32;
            CanonF32x4Sub f32x4_sub canon32; CanonF32x4Mul f32x4_mul canon32; CanonF32x4Div f32x4_div canon32;
            CanonF32x4Min f32x4_min canon32; CanonF32x4Max f32x4_max canon32; CanonF64x2Add f64x2_add canon64;
            CanonF64x2Sub f64x2_sub canon64; CanonF64x2Mul f64x2_mul canon64; CanonF64x2Div f64x2_div canon64;
            CanonF64x2Min f64x2_min canon64; CanonF64x2Max f64x2_max canon64;
        }
    };
}
pub(crate) use for_each_vector_binary;

/// Lists operations on three vectors, likewise.
macro_rules! for_each_vector_ternary {
    ($m:ident) => {
        $m! {
            V128Bitselect v128_bitselect plain; I32x4RelaxedDotI8x16I7x16AddS i32x4_relaxed_dot_i8x16_i7x16_add_s plain;
            F32x4RelaxedMadd f32x4_relaxed_madd plain; F32x4RelaxedNmadd f32x4_relaxed_nmadd plain;
            F64x2RelaxedMadd f64x2_relaxed_madd plain; F64x2RelaxedNmadd f64x2_relaxed_nmadd plain;
            CanonF32x4RelaxedMadd f32x4_relaxed_madd canon32; CanonF32x4RelaxedNmadd f32x4_relaxed_nmadd canon32;
            CanonF64x2RelaxedMadd f64x2_relaxed_madd canon64; CanonF64x2RelaxedNmadd f64x2_relaxed_nmadd canon64;
        }
    };
}
pub(crate) use for_each_vector_ternary;

/// Lists operations on a vector and an i32: `Variant kernel`.
macro_rules! for_each_vector_shift {
    ($m:ident) => {
        $m! {
            I8x16Shl i8x16_shl; I8x16ShrS i8x16_shr_s; I8x16ShrU i8x16_shr_u; I16x8Shl i16x8_shl; I16x8ShrS i16x8_shr_s;
            I16x8ShrU i16x8_shr_u; I32x4Shl i32x4_shl; I32x4ShrS i32x4_shr_s; I32x4ShrU i32x4_shr_u; I64x2Shl i64x2_shl;
            I64x2ShrS i64x2_shr_s; I64x2ShrU i64x2_shr_u;
        }
    };
}
pub(crate) use for_each_vector_shift;

/// Lists operations that make an i32 from a vector: `Variant kernel`.
macro_rules! for_each_vector_test {
    ($m:ident) => {
        $m! {
            V128AnyTrue v128_any_true; I8x16AllTrue i8x16_all_true; I8x16Bitmask i8x16_bitmask; I16x8AllTrue i16x8_all_true;
            I16x8Bitmask i16x8_bitmask; I32x4AllTrue i32x4_all_true; I32x4Bitmask i32x4_bitmask; I64x2AllTrue i64x2_all_true;
            I64x2Bitmask i64x2_bitmask;
        }
    };
}
pub(crate) use for_each_vector_test;

/// Lists operations that make a vector from a number: `Variant kernel (type of a lane)`. Floats go by their bits.
macro_rules! for_each_vector_splat {
    ($m:ident) => {
        $m! {
            I8x16Splat i8x16_splat (u8); I16x8Splat i16x8_splat (u16); I32x4Splat i32x4_splat (u32); I64x2Splat i64x2_splat (u64);
        }
    };
}
pub(crate) use for_each_vector_splat;

/// Lists reads of one lane: `Variant (type of the lane => type in the slot)`.
macro_rules! for_each_vector_extract {
    ($m:ident) => {
        $m! {
            I8S (i8 => i32); I8U (u8 => u32); I16S (i16 => i32); I16U (u16 => u32); L32 (u32 => u32); L64 (u64 => u64);
        }
    };
}
pub(crate) use for_each_vector_extract;

/// Lists writes of one lane: `Variant (type of the lane)`.
macro_rules! for_each_vector_replace {
    ($m:ident) => {
        $m! {
            R8 (u8); R16 (u16); R32 (u32); R64 (u64);
        }
    };
}
pub(crate) use for_each_vector_replace;

/// Lists loads that make a whole vector: `Variant kernel (type in memory)`.
macro_rules! for_each_vector_load {
    ($m:ident) => {
        $m! {
            V128Load v128 (u128);
            V128Load8x8S v128_widen8x8_s (u64); V128Load8x8U v128_widen8x8_u (u64); V128Load16x4S v128_widen16x4_s (u64);
            V128Load16x4U v128_widen16x4_u (u64); V128Load32x2S v128_widen32x2_s (u64); V128Load32x2U v128_widen32x2_u (u64);
            V128Load8Splat i8x16_splat (i8); V128Load16Splat i16x8_splat (i16); V128Load32Splat i32x4_splat (i32);
            V128Load64Splat i64x2_splat (i64); V128Load32Zero v128_low32_zero (u32); V128Load64Zero v128_low64_zero (u64);
        }
    };
}
pub(crate) use for_each_vector_load;

/// Lists loads and stores of lanes: `Variant bytes`.
macro_rules! for_each_lane_width {
    ($m:ident) => {
        $m! {
            W1 1; W2 2; W4 4; W8 8;
        }
    };
}
pub(crate) use for_each_lane_width;

/// Lists stores of bytes that lie in the frame, a lane or a whole vector: `Variant bytes`.
macro_rules! for_each_frame_store {
    ($m:ident) => {
        $m! {
            B1 1; B2 2; B4 4; B8 8; B16 16;
        }
    };
}
pub(crate) use for_each_frame_store;

macro_rules! define_unary {
    ($($v:ident $k:ident $kind:ident;)*) => { define_enum! {
        /// An operation on one vector.
        VectorUnary: $($v),*
    } };
}
for_each_vector_unary!(define_unary);
macro_rules! define_binary {
    ($($v:ident $k:ident $kind:ident;)*) => { define_enum! {
        /// An operation on two vectors.
        VectorBinary: $($v),*
    } };
}
for_each_vector_binary!(define_binary);
macro_rules! define_ternary {
    ($($v:ident $k:ident $kind:ident;)*) => { define_enum! {
        /// An operation on three vectors.
        VectorTernary: $($v),*
    } };
}
for_each_vector_ternary!(define_ternary);
macro_rules! define_shift {
    ($($v:ident $k:ident;)*) => { define_enum! {
        /// An operation on a vector and an i32.
        VectorShift: $($v),*
    } };
}
for_each_vector_shift!(define_shift);
macro_rules! define_test {
    ($($v:ident $k:ident;)*) => { define_enum! {
        /// An operation that makes an i32 from a vector.
        VectorTest: $($v),*
    } };
}
for_each_vector_test!(define_test);
macro_rules! define_splat {
    ($($v:ident $k:ident ($t:ident);)*) => { define_enum! {
        /// An operation that makes a vector from a number.
        VectorSplat: $($v),*
    } };
}
for_each_vector_splat!(define_splat);
macro_rules! define_extract {
    ($($v:ident ($m:ident => $t:ident);)*) => { define_enum! {
        /// A read of one lane.
        Extract: $($v),*
    } };
}
for_each_vector_extract!(define_extract);
macro_rules! define_replace {
    ($($v:ident ($t:ident);)*) => { define_enum! {
        /// A write of one lane.
        Replace: $($v),*
    } };
}
for_each_vector_replace!(define_replace);
macro_rules! define_load {
    ($($v:ident $k:ident ($t:ident);)*) => { define_enum! {
        /// A load of a whole vector.
        VectorLoad: $($v),*
    } };
}
for_each_vector_load!(define_load);
macro_rules! define_lane {
    ($($v:ident $n:literal;)*) => { define_enum! {
        /// A load of one lane.
        LaneLoad: $($v),*
    } };
}
for_each_lane_width!(define_lane);
macro_rules! define_store {
    ($($v:ident $n:literal;)*) => { define_enum! {
        /// A store of bytes that lie in the frame.
        FrameStore: $($v),*
    } };
}
for_each_frame_store!(define_store);

const UNARY: u16 = super::VECTOR;
const BINARY: u16 = UNARY + VectorUnary::COUNT;
const TERNARY: u16 = BINARY + VectorBinary::COUNT;
const SHIFT: u16 = TERNARY + VectorTernary::COUNT;
const TEST: u16 = SHIFT + VectorShift::COUNT * 3;
const SPLAT: u16 = TEST + VectorTest::COUNT * 2;
const EXTRACT: u16 = SPLAT + VectorSplat::COUNT * 3;
const REPLACE: u16 = EXTRACT + Extract::COUNT * 2;
const LOAD: u16 = REPLACE + Replace::COUNT * 3;
const LANE_LOAD: u16 = LOAD + VectorLoad::COUNT * 3;
const FRAME_STORE: u16 = LANE_LOAD + LaneLoad::COUNT * 3;
/// One past the last opcode of these groups.
pub(super) const END: u16 = FRAME_STORE + FrameStore::COUNT * 3;

/// The opcode of an operation on one vector.
pub(crate) fn unary(op: VectorUnary) -> Opcode {
    UNARY + op as u16
}

/// The opcode of an operation on two vectors.
pub(crate) fn binary(op: VectorBinary) -> Opcode {
    BINARY + op as u16
}

/// The opcode of an operation on three vectors.
pub(crate) fn ternary(op: VectorTernary) -> Opcode {
    TERNARY + op as u16
}

/// The opcode of a shift by this operand.
pub(crate) fn shift(op: VectorShift, amount: Operand) -> Opcode {
    SHIFT + op as u16 * 3 + shape(amount)
}

/// The opcode of a test, accumulator destination.
pub(crate) fn test(op: VectorTest) -> Opcode {
    TEST + op as u16 * 2
}

/// The opcode of a splat of this operand.
pub(crate) fn splat(op: VectorSplat, value: Operand) -> Opcode {
    SPLAT + op as u16 * 3 + shape(value)
}

/// The opcode of a read of a lane, accumulator destination.
pub(crate) fn extract(op: Extract) -> Opcode {
    EXTRACT + op as u16 * 2
}

/// The opcode of a write of this operand to a lane.
pub(crate) fn replace(op: Replace, value: Operand) -> Opcode {
    REPLACE + op as u16 * 3 + shape(value)
}

/// The opcode of a load from this address operand.
pub(crate) fn load(kind: VectorLoad, addr: Operand) -> Opcode {
    LOAD + kind as u16 * 3 + shape(addr)
}

/// The opcode of a load of a lane from this address operand.
pub(crate) fn lane_load(kind: LaneLoad, addr: Operand) -> Opcode {
    LANE_LOAD + kind as u16 * 3 + shape(addr)
}

/// The opcode of a store to this address operand.
pub(crate) fn frame_store(kind: FrameStore, addr: Operand) -> Opcode {
    FRAME_STORE + kind as u16 * 3 + shape(addr)
}

fn shape(operand: Operand) -> u16 {
    shape1(&UNARY_IMM_SHAPES, operand).expect("every operand has one of these shapes")
}
