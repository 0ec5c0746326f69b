//! Values as embedders, the command line and scripts give them.

use std::fmt;

use wasmtime::{Val, ValType};
use worksp_tracer::recording::{Bits, ValueType};

use crate::error::Error;

/// A value that crosses the boundary between host and guest. Floats are kept as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// 32-bit integer.
    I32(i32),
    /// 64-bit integer.
    I64(i64),
    /// Bits of a 32-bit float.
    F32(u32),
    /// Bits of a 64-bit float.
    F64(u64),
    /// A vector.
    V128(u128),
    /// The null function reference.
    NullFunc,
    /// The null external reference.
    NullExtern,
}

impl Value {
    /// The value's type.
    pub fn ty(self) -> ValueType {
        match self {
            Value::I32(_) => ValueType::I32,
            Value::I64(_) => ValueType::I64,
            Value::F32(_) => ValueType::F32,
            Value::F64(_) => ValueType::F64,
            Value::V128(_) => ValueType::V128,
            Value::NullFunc => ValueType::FuncRef,
            Value::NullExtern => ValueType::ExternRef,
        }
    }

    /// The raw bits.
    pub fn bits(self) -> Bits {
        match self {
            Value::I32(value) => Bits::from(value as u32),
            Value::I64(value) => Bits::from(value as u64),
            Value::F32(bits) => Bits::from(bits),
            Value::F64(bits) => Bits::from(bits),
            Value::V128(bits) => bits,
            Value::NullFunc | Value::NullExtern => 0,
        }
    }

    /// The value of type `ty` with these raw bits; references are null.
    pub fn from_bits(ty: ValueType, bits: Bits) -> Value {
        match ty {
            ValueType::I32 => Value::I32(bits as i32),
            ValueType::I64 => Value::I64(bits as i64),
            ValueType::F32 => Value::F32(bits as u32),
            ValueType::F64 => Value::F64(bits as u64),
            ValueType::V128 => Value::V128(bits),
            ValueType::FuncRef => Value::NullFunc,
            ValueType::ExternRef => Value::NullExtern,
        }
    }

    /// Parses an argument: integers in decimal (signed or unsigned) or `0x…`, floats as Rust writes them (also `nan`, `inf`),
    /// vectors as one integer, references as `null`.
    pub fn parse(ty: ValueType, text: &str) -> Result<Value, String> {
        let wrong = || format!("`{text}` is no {ty}");
        let integer = |bits: u32| parse_integer(text, bits).ok_or_else(wrong);
        match ty {
            ValueType::I32 => Ok(Value::I32(integer(32)? as i32)),
            ValueType::I64 => Ok(Value::I64(integer(64)? as i64)),
            ValueType::V128 => Ok(Value::V128(integer(128)?)),
            ValueType::F32 => Ok(Value::F32(text.parse::<f32>().map_err(|_| wrong())?.to_bits())),
            ValueType::F64 => Ok(Value::F64(text.parse::<f64>().map_err(|_| wrong())?.to_bits())),
            ValueType::FuncRef | ValueType::ExternRef if text == "null" => Ok(Value::from_bits(ty, 0)),
            ValueType::FuncRef | ValueType::ExternRef => Err(format!("{}; the only {ty} that can be written is `null`", wrong())),
        }
    }

    pub(crate) fn to_wasmtime(self) -> Val {
        match self {
            Value::I32(value) => Val::I32(value),
            Value::I64(value) => Val::I64(value),
            Value::F32(bits) => Val::F32(bits),
            Value::F64(bits) => Val::F64(bits),
            Value::V128(bits) => Val::V128(bits.into()),
            Value::NullFunc => Val::FuncRef(None),
            Value::NullExtern => Val::ExternRef(None),
        }
    }

    pub(crate) fn from_wasmtime(value: &Val) -> Result<Value, Error> {
        Ok(match value {
            Val::I32(value) => Value::I32(*value),
            Val::I64(value) => Value::I64(*value),
            Val::F32(bits) => Value::F32(*bits),
            Val::F64(bits) => Value::F64(*bits),
            Val::V128(bits) => Value::V128(bits.as_u128()),
            Val::FuncRef(None) => Value::NullFunc,
            Val::ExternRef(None) => Value::NullExtern,
            other => {
                let reason = "only null references can cross the boundary while recording".to_string();
                return Err(Error::Unsupported { what: format!("the value {other:?}"), reason });
            }
        })
    }
}

/// The low `width` bits of a number that fits them, signed or unsigned.
fn parse_integer(text: &str, width: u32) -> Option<u128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) if hex.starts_with(|first: char| first.is_ascii_hexdigit()) => u128::from_str_radix(hex, 16).ok()?,
        Some(_) => return None,
        None => digits.parse().ok()?,
    };
    let mask = u128::MAX >> (128 - width);
    let limit = if negative { 1u128 << (width - 1) } else { mask };
    let bits = if negative { magnitude.wrapping_neg() } else { magnitude };
    (magnitude <= limit).then_some(bits & mask)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::I32(value) => write!(f, "{value}"),
            Value::I64(value) => write!(f, "{value}"),
            Value::F32(bits) => write!(f, "{}", f32::from_bits(*bits)),
            Value::F64(bits) => write!(f, "{}", f64::from_bits(*bits)),
            Value::V128(bits) => write!(f, "{bits:#034x}"),
            Value::NullFunc | Value::NullExtern => f.write_str("null"),
        }
    }
}

/// The type as recordings name it.
pub(crate) fn value_type(ty: &ValType) -> Result<ValueType, Error> {
    Ok(match ty {
        ValType::I32 => ValueType::I32,
        ValType::I64 => ValueType::I64,
        ValType::F32 => ValueType::F32,
        ValType::F64 => ValueType::F64,
        ValType::V128 => ValueType::V128,
        ty if ty.is_funcref() => ValueType::FuncRef,
        ty if ty.is_externref() => ValueType::ExternRef,
        other => {
            let reason = "recordings hold numbers, vectors and plain references".to_string();
            return Err(Error::Unsupported { what: format!("values of type {other}"), reason });
        }
    })
}

pub(crate) fn value_types<'a>(types: impl IntoIterator<Item = ValType> + 'a) -> Result<Vec<ValueType>, Error> {
    types.into_iter().map(|ty| value_type(&ty)).collect()
}

/// A function type as messages print it.
pub(crate) fn type_text(params: &[ValueType], results: &[ValueType]) -> String {
    let list = |types: &[ValueType]| types.iter().map(ValueType::to_string).collect::<Vec<_>>().join(" ");
    format!("[{}] -> [{}]", list(params), list(results))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parsed_by_type() {
        let check = |ty, text: &str, expect: Option<Value>| assert_eq!(Value::parse(ty, text).ok(), expect, "{ty} {text}");
        check(ValueType::I32, "-1", Some(Value::I32(-1)));
        check(ValueType::I32, "4294967295", Some(Value::I32(-1)));
        check(ValueType::I32, "4294967296", None);
        check(ValueType::I32, "-2147483648", Some(Value::I32(i32::MIN)));
        check(ValueType::I32, "-2147483649", None);
        check(ValueType::I32, "0xff", Some(Value::I32(255)));
        check(ValueType::I32, "0x", None);
        check(ValueType::I32, "-0x10", Some(Value::I32(-16)));
        check(ValueType::I32, "--1", None);
        check(ValueType::I32, "+-1", None);
        check(ValueType::I32, "", None);
        check(ValueType::I32, "1.5", None);
        check(ValueType::I64, "18446744073709551615", Some(Value::I64(-1)));
        check(ValueType::I64, "-9223372036854775808", Some(Value::I64(i64::MIN)));
        check(ValueType::V128, "0xffffffffffffffffffffffffffffffff", Some(Value::V128(u128::MAX)));
        check(ValueType::F32, "1.5", Some(Value::F32(1.5f32.to_bits())));
        check(ValueType::F64, "-inf", Some(Value::F64(f64::NEG_INFINITY.to_bits())));
        check(ValueType::F64, "one", None);
        check(ValueType::ExternRef, "null", Some(Value::NullExtern));
        check(ValueType::FuncRef, "0", None);
    }

    #[test]
    fn bits_round_trip() {
        let values = [Value::I32(-1), Value::I64(i64::MIN), Value::F32(0x7fc0_0001), Value::F64(1), Value::V128(1 << 100)];
        for value in values {
            assert_eq!(Value::from_bits(value.ty(), value.bits()), value);
            assert_eq!(Value::from_wasmtime(&value.to_wasmtime()).unwrap(), value);
        }
    }
}
