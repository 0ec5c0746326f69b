//! What operators compute, with bugs: each list is the kernels' of `wasmi_core`, with some of them in the way.

/// Kernels with one bug each: `Mutant kernel(operands) -> result: bug, if it shows`.
macro_rules! kernels {
    ($($name:ident $kernel:ident($($arg:ident: $ty:ty),*) -> $result:ty: $bug:expr, if $shows:expr;)*) => {$(
        #[inline(always)]
        pub(crate) fn $kernel($($arg: $ty),*) -> $result {
            if mutant!($name) && $shows { $bug } else { correct::$kernel($($arg),*) }
        }
    )*};
}

/// Numbers.
pub(crate) mod scalar {
    use wasmi_core::{TrapCode, wasm as correct};

    use crate::mutants::mutant;
    pub(crate) use wasmi_core::wasm::*;

    kernels! {
        ShlCountSaturates i32_shl(l: i32, r: i32) -> i32: 0, if r as u32 >= 32;
        ShrCount31 i64_shr_u(l: u64, r: u64) -> u64: l >> (r & 31), if r & 32 != 0;
        RotrCount31 i64_rotr(l: i64, r: i64) -> i64: l.rotate_right(r as u32 & 31), if true;
        DivOverflow i32_div_s(l: i32, r: i32) -> Result<i32, TrapCode>: Ok(l), if (l, r) == (i32::MIN, -1);
        RemOverflow i64_rem_s(l: i64, r: i64) -> Result<i64, TrapCode>: Err(TrapCode::IntegerOverflow), if (l, r) == (i64::MIN, -1);
        DivLargeDivisor i32_div_u(l: u32, r: u32) -> Result<u32, TrapCode>: Ok(0), if r >> 31 == 1 && l >= r;
        RemByZero i64_rem_u(l: u64, r: u64) -> Result<u64, TrapCode>: Err(TrapCode::IntegerOverflow), if r == 0;
        ClzZero i32_clz(v: i32) -> i32: 31, if v == 0;
        CtzZero i64_ctz(v: i64) -> i64: 32, if v == 0;
        PopcntLow i64_popcnt(v: i64) -> i64: i64::from((v as u32).count_ones()), if true;
        ExtendZero i64_extend32_s(v: i64) -> i64: i64::from(v as u32), if true;
        GtHalves i64_gt_u(l: u64, r: u64) -> bool: l as i32 > r as i32, if l >> 32 == r >> 32;
        MinZeros f32_min(l: f32, r: f32) -> f32: r, if l == 0.0 && r == 0.0;
        MaxNan f64_max(l: f64, r: f64) -> f64: l.max(r), if l.is_nan() != r.is_nan();
        NearestAway f64_nearest(v: f64) -> f64: v.round(), if v.fract().abs() == 0.5;
        NearestSign f32_nearest(v: f32) -> f32: 0.0, if (-0.5..0.0).contains(&v);
        TruncLarge f64_trunc(v: f64) -> f64: v as i64 as f64, if v.abs() >= 9.3e18;
        CeilSign f32_ceil(v: f32) -> f32: 0.0, if v > -1.0 && v < 0.0;
        SqrtSign f64_sqrt(v: f64) -> f64: 0.0, if v == 0.0;
        CopysignNan f64_copysign(l: f64, r: f64) -> f64: l, if r.is_nan();
        ConvertTwice f32_convert_i64_s(v: i64) -> f32: v as f64 as f32, if true;
        ConvertSigned f64_convert_i64_u(v: u64) -> f64: v as i64 as f64, if true;
        DemoteDenormal f32_demote_f64(v: f64) -> f32: 0.0f32.copysign(v as f32), if (v as f32).is_subnormal();
        TruncEdge i32_trunc_f64_s(v: f64) -> Result<i32, TrapCode>: Err(TrapCode::IntegerOverflow), if v < -2_147_483_648.0;
        TruncNegative i32_trunc_f32_u(v: f32) -> Result<u32, TrapCode>: Err(TrapCode::IntegerOverflow), if v < 0.0;
        TruncNanKind i64_trunc_f32_s(v: f32) -> Result<i64, TrapCode>: Err(TrapCode::IntegerOverflow), if v.is_nan();
        SaturateNan i32_trunc_sat_f64_s(v: f64) -> i32: i32::MIN, if v.is_nan();
        SaturateSigned i64_trunc_sat_f64_u(v: f64) -> u64: i64::MAX as u64, if v >= 9.3e18;
        EqBits f32_eq(l: f32, r: f32) -> bool: l.to_bits() == r.to_bits(), if true;
        NeNan f64_ne(l: f64, r: f64) -> bool: false, if l.is_nan();
        LeNan f64_le(l: f64, r: f64) -> bool: true, if l.is_nan() || r.is_nan();
        GeNan f32_ge(l: f32, r: f32) -> bool: true, if r.is_nan();
        AddCarry i64_add128(l: i64, lh: i64, r: i64, rh: i64) -> (i64, i64): (l.wrapping_add(r), lh.wrapping_add(rh)), if r == -1;
        SubBorrow i64_sub128(l: i64, lh: i64, r: i64, rh: i64) -> (i64, i64): (l.wrapping_sub(r), lh.wrapping_sub(rh)), if l == 0;
        MulWideSign i64_mul_wide_s(l: i64, r: i64) -> (i64, i64): correct::i64_mul_wide_u(l, r), if l < 0 && r >= 0;
    }
}

/// Vectors.
pub(crate) mod vector {
    use wasmi_core::{V128, simd as correct};

    use crate::mutants::mutant;
    pub(crate) use wasmi_core::simd::*;

    /// Lanes where both are the smallest number.
    #[inline(always)]
    fn smallest(a: V128, b: V128) -> V128 {
        let min = i16x8_splat(i16::MIN);
        v128_and(i16x8_eq(a, min), i16x8_eq(b, min))
    }

    /// The lower word of each 64-bit lane.
    #[inline(always)]
    fn low(v: V128) -> [u64; 2] {
        [u64::from(v.as_u128() as u32), u64::from((v.as_u128() >> 64) as u32)]
    }

    /// A vector of two lanes.
    #[inline(always)]
    fn pair(lanes: [u64; 2]) -> V128 {
        V128::from(u128::from(lanes[0]) | u128::from(lanes[1]) << 64)
    }

    kernels! {
        SwizzleWraps i8x16_swizzle(a: V128, b: V128) -> V128: correct::i8x16_swizzle(a, v128_and(b, i8x16_splat(0x8f_u8 as i8))), if true;
        NarrowUnsigned i8x16_narrow_i16x8_u(a: V128, b: V128) -> V128:
            correct::i8x16_narrow_i16x8_u(i16x8_min_u(a, i16x8_splat(255)), i16x8_min_u(b, i16x8_splat(255))), if true;
        Q15Wraps i16x8_q15mulr_sat_s(a: V128, b: V128) -> V128:
            v128_bitselect(i16x8_splat(i16::MIN), correct::i16x8_q15mulr_sat_s(a, b), smallest(a, b)), if true;
        DotSaturates i32x4_dot_i16x8_s(a: V128, b: V128) -> V128: {
            let dot = correct::i32x4_dot_i16x8_s(a, b);
            v128_xor(dot, i32x4_eq(dot, i32x4_splat(i32::MIN)))
        }, if true;
        PminSwapped f32x4_pmin(a: V128, b: V128) -> V128: correct::f32x4_pmin(b, a), if true;
        PmaxSwapped f64x2_pmax(a: V128, b: V128) -> V128: correct::f64x2_pmax(b, a), if true;
        LanesMinZeros f64x2_min(a: V128, b: V128) -> V128: f64x2_pmin(a, b), if true;
        AvgrTruncates i8x16_avgr_u(a: V128, b: V128) -> V128: i8x16_add(v128_and(a, b), i8x16_shr_u(v128_xor(a, b), 1)), if true;
        LanesShlSaturates i8x16_shl(a: V128, n: u32) -> V128: V128::from(0), if n >= 8;
        LanesShrLogical i64x2_shr_s(a: V128, n: u32) -> V128: i64x2_shr_u(a, n), if true;
        ExtaddSigned i16x8_extadd_pairwise_i8x16_u(a: V128) -> V128: i16x8_extadd_pairwise_i8x16_s(a), if true;
        BitmaskLast i8x16_bitmask(a: V128) -> u32: correct::i8x16_bitmask(a) & 0x7fff, if true;
        AllTrueLow i64x2_all_true(a: V128) -> bool: low(a)[0] != 0 && low(a)[1] != 0, if true;
        AddSaturatedWraps i8x16_add_sat_u(a: V128, b: V128) -> V128: i8x16_add(a, b), if true;
        AndnotSwapped v128_andnot(a: V128, b: V128) -> V128: correct::v128_andnot(b, a), if true;
        TruncUpper i32x4_trunc_sat_f64x2_u_zero(a: V128) -> V128: {
            let lanes = correct::i32x4_trunc_sat_f64x2_u_zero(a).as_u128();
            V128::from(lanes | lanes << 64)
        }, if true;
        ExtmulLow i32x4_extmul_high_i16x8_u(a: V128, b: V128) -> V128: i32x4_extmul_low_i16x8_u(a, b), if true;
        LanesMinUnsigned i16x8_min_s(a: V128, b: V128) -> V128: i16x8_min_u(a, b), if true;
        LanesConvertSigned f32x4_convert_i32x4_u(a: V128) -> V128: f32x4_convert_i32x4_s(a), if true;
        LanesMulLow i64x2_mul(a: V128, b: V128) -> V128: {
            let (a, b) = (low(a), low(b));
            pair([a[0] * b[0], a[1] * b[1]])
        }, if true;
        LanesNeNan f32x4_ne(a: V128, b: V128) -> V128: v128_not(v128_or(f32x4_eq(a, b), v128_not(f32x4_eq(a, a)))), if true;
    }
}
