//! Atomic operators at addresses and values at the edges, with operands in every place, on shared, unshared and 64-bit memories. On
//! this engine and on Wasmtime, where one thread runs.

use common::{End, I64_EDGES, IDENTITIES, Shape, Trio};
use worksp_differential::generate::Random;
use worksp_engine::{TrapKind, Val};

mod common;

/// Types with the widths that operators have for them: suffixes, and bytes.
const WIDTHS: [(&str, &[(&str, u64)]); 2] =
    [("i32", &[("", 4), ("8", 1), ("16", 2)]), ("i64", &[("", 8), ("8", 1), ("16", 2), ("32", 4)])];

/// Name, operands behind the address, whether it has a result, and bytes.
fn operators() -> Vec<(String, Vec<&'static str>, Option<&'static str>, u64)> {
    let mut all = Vec::new();
    for (ty, widths) in WIDTHS {
        for (width, bytes) in widths {
            let unsigned = if width.is_empty() { "" } else { "_u" };
            all.push((format!("{ty}.atomic.load{width}{unsigned}"), vec![], Some(ty), *bytes));
            all.push((format!("{ty}.atomic.store{width}"), vec![ty], None, *bytes));
            for op in ["add", "sub", "and", "or", "xor", "xchg"] {
                all.push((format!("{ty}.atomic.rmw{width}.{op}{unsigned}"), vec![ty], Some(ty), *bytes));
            }
            all.push((format!("{ty}.atomic.rmw{width}.cmpxchg{unsigned}"), vec![ty, ty], Some(ty), *bytes));
        }
    }
    all
}

/// Memories by name, type of addresses, and whether they are shared.
const MEMORIES: [(&str, &str, bool); 3] = [("$m", "i32", true), ("$n", "i64", false), ("$o", "i32", false)];

const MODULE: &str = r#"(memory $m 1 1 shared) (memory $n (export "n") i64 1) (memory $o (export "o") 1)
    (data (memory $m) (i32.const 0) "\01\00\00\00\00\00\00\80\ff\ff\ff\ff\ff\ff\ff\ff") (data (memory $n) (i64.const 8) "\ff\7f\00\80")
    (func (export "byte") (param i32) (result i32) (i32.load8_u $m (local.get 0)))"#;

fn number(ty: &str, value: i64) -> Val {
    if ty == "i32" { Val::I32(value as i32) } else { Val::I64(value) }
}

fn address(numbers: &mut Random, bytes: u64) -> i64 {
    let last = 65_536 - bytes as i64;
    // Mostly aligned and inside.
    match numbers.word() % 8 {
        0 => *numbers.pick(&[1, 3, last + 1, 65_536, -1, -8, i64::MIN, 0x1_0000_0000]),
        1 => last,
        _ => 8 * (numbers.word() % 4) as i64,
    }
}

#[test]
fn atomic_operators_give_what_wasmtime_gives() {
    let mut numbers = Random::new(4);
    let mut text = String::new();
    let mut funcs = Vec::new();
    for (op, operands, result, bytes) in operators() {
        for (memory, index, _) in MEMORIES {
            for shapes in Shape::combinations(1 + operands.len()) {
                let name = format!("{op} {}", funcs.len());
                let types: Vec<&str> = std::iter::once(index).chain(operands.iter().copied()).collect();
                let mut body = String::new();
                for (i, (shape, ty)) in shapes.iter().zip(&types).enumerate() {
                    let value = if i == 0 { address(&mut numbers, bytes) } else { *numbers.pick(&I64_EDGES) };
                    body += &shape.operand(i, number(ty, value));
                }
                let offset = *numbers.pick(&[0, 0, 0, 8, 4, 1, 0xffff_fff8u64]);
                let result = result.map_or(String::new(), |ty| format!("(result {ty})"));
                text += &format!(r#"(func (export "{name}") (param {}) {result} ({op} {memory} offset={offset} {body}))"#, types.join(" "));
                funcs.push((name, types, bytes));
            }
        }
    }
    let mut trio = Trio::new(&format!("(module {MODULE} {IDENTITIES} {text})"));
    for _ in 0..8 {
        for (name, types, bytes) in &funcs {
            let mut args = vec![number(types[0], address(&mut numbers, *bytes))];
            args.extend(types[1..].iter().map(|ty| number(ty, *numbers.pick(&I64_EDGES))));
            trio.call(name, &args);
        }
    }
    (0..64).chain(65_500..65_536).for_each(|at| drop(trio.call("byte", &[Val::I32(at)])));
    trio.check_memory("n");
    trio.check_memory("o");
    println!("{} functions, {} calls, {} traps", funcs.len(), trio.calls, trio.traps);
    assert!(trio.traps * 20 > trio.calls && trio.traps * 3 < trio.calls * 2, "some accesses are good and some are not");
}

#[test]
fn waits_and_notifications_give_what_wasmtime_gives() {
    let mut text = String::new();
    for (memory, index, _) in MEMORIES {
        for (op, ty) in [("wait32", "i32"), ("wait64", "i64")] {
            text += &format!(
                r#"(func (export "{op} {memory}") (param {index} {ty} i64) (result i32)
                    (memory.atomic.{op} {memory} offset=8 (local.get 0) (local.get 1) (local.get 2)))"#
            );
        }
        text += &format!(
            r#"(func (export "notify {memory}") (param {index} i32) (result i32)
                (memory.atomic.notify {memory} offset=4 (local.get 0) (local.get 1)))"#
        );
    }
    let mut trio = Trio::new(&format!(r#"(module {MODULE} {text} (func (export "fence") (atomic.fence)))"#));
    trio.call("fence", &[]);
    for (memory, index, shared) in MEMORIES {
        for at in [0, 8, 4, 1, 65_520, 65_524, 65_528, -8, i64::MIN, 0x1_0000_0000] {
            for count in [0, 1, -1] {
                trio.call(&format!("notify {memory}"), &[number(index, at), Val::I32(count)]);
            }
            for expected in [0, -1, 1] {
                for timeout in [0, 1, 50_000] {
                    for (op, ty) in [("wait32", "i32"), ("wait64", "i64")] {
                        let end = trio.call(&format!("{op} {memory}"), &[number(index, at), number(ty, expected), Val::I64(timeout)]);
                        assert!(shared || matches!(end, End::Trapped(_)));
                    }
                }
            }
            // Without a timeout only what does not wait: nobody would end it.
            trio.call(&format!("wait32 {memory}"), &[number(index, at), Val::I32(77), Val::I64(-1)]);
        }
    }
    println!("{} calls, {} traps", trio.calls, trio.traps);
    // A wait that nobody can end is a trap here, and no end at all there.
    assert_eq!(trio.call_ours("wait32 $m", &[Val::I32(0), Val::I32(-1), Val::I64(-1)]), End::Trapped(TrapKind::EndlessWait));
}
