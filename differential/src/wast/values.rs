//! Values of scripts: arguments, and the patterns that results must match.

use std::fmt::Write;

use wast::core::{AbstractHeapType, HeapType, NanPattern, V128Pattern, WastArgCore, WastRetCore};
use wast::token::{F32, F64};
use wast::{WastArg, WastRet};
use worksp_engine::Val;

/// An argument's value, or what cannot be passed.
pub(super) fn argument(arg: &WastArg<'_>) -> Result<Val, String> {
    let WastArg::Core(arg) = arg else {
        return Err(format!("{arg:?} is no argument of core WebAssembly"));
    };
    match arg {
        WastArgCore::I32(v) => Ok(Val::I32(*v)),
        WastArgCore::I64(v) => Ok(Val::I64(*v)),
        WastArgCore::F32(v) => Ok(Val::F32(v.bits)),
        WastArgCore::F64(v) => Ok(Val::F64(v.bits)),
        WastArgCore::V128(v) => Ok(Val::V128(u128::from_le_bytes(v.to_le_bytes()))),
        WastArgCore::RefExtern(number) => Ok(Val::ExternRef(Some(*number))),
        WastArgCore::RefNull(HeapType::Abstract { ty: AbstractHeapType::Func | AbstractHeapType::NoFunc, .. }) => Ok(Val::FuncRef(None)),
        WastArgCore::RefNull(HeapType::Concrete(_)) => Ok(Val::FuncRef(None)),
        WastArgCore::RefNull(HeapType::Abstract { ty: AbstractHeapType::Extern | AbstractHeapType::NoExtern, .. }) => {
            Ok(Val::ExternRef(None))
        }
        WastArgCore::RefNull(HeapType::Abstract { ty: AbstractHeapType::Exn | AbstractHeapType::NoExn, .. }) => Ok(Val::ExnRef(None)),
        WastArgCore::RefNull(_) | WastArgCore::RefHost(_) => {
            Err(format!("{arg:?} has a type that the engine does not have"))
        }
    }
}

/// Whether all results match their patterns.
pub(super) fn all_match(patterns: &[WastRet<'_>], values: &[Val]) -> bool {
    patterns.len() == values.len() && patterns.iter().zip(values).all(|(pattern, value)| ret_matches(pattern, *value))
}

fn ret_matches(pattern: &WastRet<'_>, value: Val) -> bool {
    matches!(pattern, WastRet::Core(pattern) if core_matches(pattern, value))
}

fn core_matches(pattern: &WastRetCore<'_>, value: Val) -> bool {
    match (pattern, value) {
        (WastRetCore::I32(expected), Val::I32(v)) => *expected == v,
        (WastRetCore::I64(expected), Val::I64(v)) => *expected == v,
        (WastRetCore::F32(expected), Val::F32(bits)) => matches32(expected, bits),
        (WastRetCore::F64(expected), Val::F64(bits)) => matches64(expected, bits),
        (WastRetCore::V128(expected), Val::V128(bits)) => lanes_match(expected, bits),
        (WastRetCore::RefNull(None), Val::FuncRef(None) | Val::ExternRef(None) | Val::ExnRef(None)) => true,
        (WastRetCore::RefNull(Some(HeapType::Concrete(_))), Val::FuncRef(None)) => true,
        (WastRetCore::RefNull(Some(HeapType::Abstract { ty, .. })), Val::FuncRef(None)) => {
            matches!(ty, AbstractHeapType::Func | AbstractHeapType::NoFunc)
        }
        (WastRetCore::RefNull(Some(HeapType::Abstract { ty, .. })), Val::ExternRef(None)) => {
            matches!(ty, AbstractHeapType::Extern | AbstractHeapType::NoExtern)
        }
        (WastRetCore::RefNull(Some(HeapType::Abstract { ty, .. })), Val::ExnRef(None)) => {
            matches!(ty, AbstractHeapType::Exn | AbstractHeapType::NoExn)
        }
        (WastRetCore::RefExtern(expected), Val::ExternRef(Some(number))) => expected.is_none_or(|e| e == number),
        (WastRetCore::RefFunc(_), Val::FuncRef(Some(_))) => true,
        (WastRetCore::Either(patterns), value) => patterns.iter().any(|pattern| core_matches(pattern, value)),
        _ => false,
    }
}

fn matches32(pattern: &NanPattern<F32>, bits: u32) -> bool {
    match pattern {
        NanPattern::Value(F32 { bits: expected }) => *expected == bits,
        NanPattern::CanonicalNan => bits & 0x7fff_ffff == 0x7fc0_0000,
        NanPattern::ArithmeticNan => bits & 0x7fc0_0000 == 0x7fc0_0000,
    }
}

fn matches64(pattern: &NanPattern<F64>, bits: u64) -> bool {
    match pattern {
        NanPattern::Value(F64 { bits: expected }) => *expected == bits,
        NanPattern::CanonicalNan => bits & (u64::MAX >> 1) == 0x7ff8 << 48,
        NanPattern::ArithmeticNan => bits & (0x7ff8 << 48) == 0x7ff8 << 48,
    }
}

/// Whether each lane of a vector matches its pattern.
fn lanes_match(pattern: &V128Pattern, bits: u128) -> bool {
    let lane = |width: u32, index: usize| bits >> (width * index as u32);
    match pattern {
        V128Pattern::I8x16(lanes) => lanes.iter().enumerate().all(|(i, expected)| lane(8, i) as i8 == *expected),
        V128Pattern::I16x8(lanes) => lanes.iter().enumerate().all(|(i, expected)| lane(16, i) as i16 == *expected),
        V128Pattern::I32x4(lanes) => lanes.iter().enumerate().all(|(i, expected)| lane(32, i) as i32 == *expected),
        V128Pattern::I64x2(lanes) => lanes.iter().enumerate().all(|(i, expected)| lane(64, i) as i64 == *expected),
        V128Pattern::F32x4(lanes) => lanes.iter().enumerate().all(|(i, expected)| matches32(expected, lane(32, i) as u32)),
        V128Pattern::F64x2(lanes) => lanes.iter().enumerate().all(|(i, expected)| matches64(expected, lane(64, i) as u64)),
    }
}

/// Results for messages.
pub(super) fn show(values: &[Val]) -> String {
    format!("[{}]", values.iter().map(Val::to_string).collect::<Vec<_>>().join(", "))
}

/// Patterns for messages.
pub(super) fn show_patterns(patterns: &[WastRet<'_>]) -> String {
    let mut text = String::from("[");
    for (i, pattern) in patterns.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        // Writing to a string cannot fail.
        let _ = match pattern {
            WastRet::Core(WastRetCore::I32(v)) => write!(text, "{comma}{}", Val::I32(*v)),
            WastRet::Core(WastRetCore::I64(v)) => write!(text, "{comma}{}", Val::I64(*v)),
            WastRet::Core(WastRetCore::F32(NanPattern::Value(v))) => write!(text, "{comma}{}", Val::F32(v.bits)),
            WastRet::Core(WastRetCore::F64(NanPattern::Value(v))) => write!(text, "{comma}{}", Val::F64(v.bits)),
            other => write!(text, "{comma}{other:?}"),
        };
    }
    text + "]"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_patterns() {
        let check32 = |pattern, bits, answer| {
            assert_eq!(core_matches(&WastRetCore::F32(pattern), Val::F32(bits)), answer, "{pattern:?} on {bits:x}");
        };
        check32(NanPattern::CanonicalNan, 0x7fc0_0000, true);
        check32(NanPattern::CanonicalNan, 0xffc0_0000, true);
        check32(NanPattern::CanonicalNan, 0x7fc0_0001, false);
        check32(NanPattern::ArithmeticNan, 0x7fc0_0001, true);
        check32(NanPattern::ArithmeticNan, 0x7fa0_0000, false);
        check32(NanPattern::ArithmeticNan, 0x7f80_0000, false);
        check32(NanPattern::Value(F32 { bits: 0 }), 0x8000_0000, false);
        let check64 = |pattern, bits, answer| {
            assert_eq!(core_matches(&WastRetCore::F64(pattern), Val::F64(bits)), answer, "{pattern:?} on {bits:x}");
        };
        check64(NanPattern::CanonicalNan, 0xfff8 << 48, true);
        check64(NanPattern::CanonicalNan, (0x7ff8 << 48) | 1, false);
        check64(NanPattern::ArithmeticNan, (0x7ff8 << 48) | 1, true);
        check64(NanPattern::ArithmeticNan, (0x7ff4 << 48) | 1, false);
        check64(NanPattern::ArithmeticNan, 0x7ff0 << 48, false);
    }

    #[test]
    fn lanes_of_vectors() {
        let check = |pattern, bits, answer| {
            assert_eq!(core_matches(&WastRetCore::V128(pattern), Val::V128(bits)), answer, "{bits:x}");
        };
        let bytes = std::array::from_fn(|i| i as i8 - 1);
        check(V128Pattern::I8x16(bytes), 0x0e0d_0c0b_0a09_0807_0605_0403_0201_00ff, true);
        check(V128Pattern::I16x8([-2, 0, 0, 0, 0, 0, 0, 7]), 7 << 112 | 0xfffe, true);
        check(V128Pattern::I32x4([0, 1, 0, -1]), 0xffff_ffff << 96 | 1 << 32, true);
        check(V128Pattern::I64x2([3, 4]), 4 << 64 | 3, true);
        check(V128Pattern::I64x2([3, 4]), 3 << 64 | 4, false);
        check(V128Pattern::F64x2([NanPattern::CanonicalNan, NanPattern::Value(F64 { bits: 1 })]), 1 << 64 | 0xfff8 << 48, true);
        check(V128Pattern::F64x2([NanPattern::CanonicalNan, NanPattern::Value(F64 { bits: 1 })]), 1 << 64 | 0xfff0 << 48, false);
        let lanes = [NanPattern::CanonicalNan, NanPattern::ArithmeticNan, NanPattern::ArithmeticNan, NanPattern::Value(F32 { bits: 0 })];
        check(V128Pattern::F32x4(lanes), 0x7fc0_0000_7fc0_0001_ffc0_0000, true);
    }
}
