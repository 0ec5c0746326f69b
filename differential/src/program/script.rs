//! A program as a script of the specification's format, with what an oracle says of every call.

use wasm_encoder::ValType;

use super::{Program, encode};
use crate::run::oracle::{Compiler, Oracle};
use crate::run::{End, Runner};

/// The program's text, and an assertion for each of its calls.
pub fn script(program: &Program, text: &str, title: &str) -> String {
    let mut script = format!(";; {title}\n{text}");
    let mut oracle = Oracle::patient(Compiler::Full);
    if let Err(error) = oracle.load(&encode(&[program]), program.needs()) {
        return script + &format!(";; {error}\n");
    }
    oracle.reset(0);
    let ty = &program.funcs[0].ty;
    for input in &program.inputs {
        let args: Vec<String> = ty.params.iter().zip(input).map(|(ty, bits)| value(*ty, *bits)).collect();
        let invoke = format!("(invoke \"main\" {})", args.join(" "));
        script += &match oracle.call(0, input) {
            End::Returned(bits) => {
                let results: Vec<String> = ty.results.iter().zip(bits).map(|(ty, bits)| value(*ty, bits)).collect();
                format!("(assert_return {invoke} {})\n", results.join(" "))
            }
            End::Trapped(kind) => format!("(assert_trap {invoke} \"{kind}\")\n"),
            End::Threw(_) => format!("(assert_exception {invoke})\n"),
            End::Failed(what) => format!(";; {invoke}: {what}\n"),
        };
    }
    script
}

/// A constant, by its bits.
fn value(ty: ValType, bits: u128) -> String {
    match ty {
        ValType::I32 => format!("(i32.const {})", bits as i32),
        ValType::I64 => format!("(i64.const {})", bits as i64),
        ValType::F32 => format!("(f32.const {})", float(bits, 23, 8)),
        ValType::F64 => format!("(f64.const {})", float(bits, 52, 11)),
        _ => {
            let words: Vec<String> = (0..4).map(|word| format!("{:#x}", (bits >> (32 * word)) as u32)).collect();
            format!("(v128.const i32x4 {})", words.join(" "))
        }
    }
}

/// A float as hexadecimal text that means exactly these bits.
fn float(bits: u128, fraction_bits: u32, exponent_bits: u32) -> String {
    let sign = if bits >> (fraction_bits + exponent_bits) & 1 == 1 { "-" } else { "" };
    let fraction = bits & ((1 << fraction_bits) - 1);
    let (exponent, exponent_max) = (bits >> fraction_bits & ((1 << exponent_bits) - 1), (1 << exponent_bits) - 1);
    let bias = (exponent_max / 2) as i32;
    match (exponent, fraction) {
        (e, 0) if e == exponent_max => format!("{sign}inf"),
        (e, _) if e == exponent_max => format!("{sign}nan:{fraction:#x}"),
        (0, 0) => format!("{sign}0"),
        // The point stands before all bits of the fraction.
        (0, _) => format!("{sign}{fraction:#x}p{}", 1 - bias - fraction_bits as i32),
        (e, _) => format!("{sign}{:#x}p{}", 1 << fraction_bits | fraction, e as i32 - bias - fraction_bits as i32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_pass() {
        use crate::generate::{Random, single};
        let mut assertions = 0;
        for index in (0..20_000).step_by(97) {
            let program = single::program(index, &mut Random::of(3, index));
            let text = crate::program::program_text(&crate::program::encode_alone(&program));
            let script = script(&program, &text, "one operator");
            let report = crate::wast::run_finding("single.wast", &script, crate::wast::Mode::Plain);
            assert!(report.failures.is_empty(), "{:?}\n{script}", report.failures);
            assertions += report.passed;
        }
        assert!(assertions > 2000);
    }

    #[test]
    fn floats_mean_their_bits() {
        for bits in [0, 1, 0x8000_0000, 0x3f80_0000, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0xffa0_0001, 0x0080_0000, 0x7f7f_ffff, 0x4049_0fdb, 0x8000_0007_u32] {
            let text = format!("(module (func (export \"f\") (result i32) (i32.reinterpret_f32 {})))", value(ValType::F32, bits.into()));
            let script = format!("{text}(assert_return (invoke \"f\") (i32.const {bits}))");
            let report = crate::wast::run_file("float.wast", &script, crate::wast::Mode::Plain);
            assert_eq!((report.passed, report.failures.len()), (1, 0), "{text} {:?}", report.failures);
        }
    }
}
