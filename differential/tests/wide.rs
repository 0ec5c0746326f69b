//! Wide arithmetic on values at the edges, with operands in every place, on this engine and on Wasmtime.

use common::{I64_EDGES, IDENTITIES, Shape, Trio};
use worksp_differential::generate::Random;
use worksp_engine::Val;

mod common;

#[test]
fn wide_arithmetic_gives_what_wasmtime_gives() {
    let mut numbers = Random::new(1);
    let mut text = String::new();
    let mut funcs = Vec::new();
    for (op, operands) in [("i64.add128", 4), ("i64.sub128", 4), ("i64.mul_wide_s", 2), ("i64.mul_wide_u", 2)] {
        for shapes in Shape::combinations(operands) {
            for _ in 0..3 {
                let name = format!("{op} {}", funcs.len());
                let values: Vec<Val> = (0..operands).map(|_| Val::I64(*numbers.pick(&I64_EDGES))).collect();
                let body: String = shapes.iter().zip(&values).enumerate().map(|(i, (shape, value))| shape.operand(i, *value)).collect();
                let params = "i64 ".repeat(operands);
                // The results are used in the accumulator's absence, and with something below them.
                text += &format!(r#"(func (export "{name}") (param {params}) (result i64 i64 i64) (local i64)
                    (i64.add (local.get 0) (i64.const 5)) ({op} {body}) (local.set {operands}) (local.get {operands}))"#);
                funcs.push((name, operands));
            }
        }
    }
    let mut trio = Trio::new(&format!("(module {IDENTITIES} {text})"));
    for (name, operands) in &funcs {
        for _ in 0..24 {
            let args: Vec<Val> = (0..*operands).map(|_| Val::I64(*numbers.pick(&I64_EDGES))).collect();
            trio.call(name, &args);
        }
    }
    println!("{} functions, {} calls", funcs.len(), trio.calls);
}
