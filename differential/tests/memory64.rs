//! 64-bit memories and tables: every load and store at addresses and offsets at the edges, with operands in every place; growth and
//! bulk operators between index types. On this engine and on Wasmtime.

use common::{I64_EDGES, IDENTITIES, Shape, Trio};
use worksp_differential::generate::Random;
use worksp_engine::Val;

mod common;

const LOADS: [(&str, &str); 20] = [
    ("i32.load", "i32"), ("i32.load8_s", "i32"), ("i32.load8_u", "i32"), ("i32.load16_s", "i32"), ("i32.load16_u", "i32"),
    ("i64.load", "i64"), ("i64.load8_s", "i64"), ("i64.load8_u", "i64"), ("i64.load16_s", "i64"), ("i64.load16_u", "i64"),
    ("i64.load32_s", "i64"), ("i64.load32_u", "i64"), ("f32.load", "f32"), ("f64.load", "f64"), ("v128.load", "v128"),
    ("v128.load8x8_s", "v128"), ("v128.load32x2_u", "v128"), ("v128.load16_splat", "v128"), ("v128.load64_zero", "v128"),
    ("v128.load32_lane", "v128"),
];

const STORES: [(&str, &str); 12] = [
    ("i32.store", "i32"), ("i32.store8", "i32"), ("i32.store16", "i32"), ("i64.store", "i64"), ("i64.store8", "i64"),
    ("i64.store16", "i64"), ("i64.store32", "i64"), ("f32.store", "f32"), ("f64.store", "f64"), ("v128.store", "v128"),
    ("v128.store8_lane", "v128"), ("v128.store64_lane", "v128"),
];

const ADDRESSES: [i64; 16] = [
    0, 1, 8, 4096, 65_520, 65_528, 65_532, 65_535, 65_536, 0xffff_ffff, 0x1_0000_0000, 0x1_0000_0008, i64::MIN, -1, -8, -65_536,
];

const OFFSETS: [u64; 9] = [0, 0, 0, 3, 65_529, 0xffff_ffff, 0x1_0000_0000, u64::MAX, u64::MAX - 7];

/// What a function's text has behind an operator's name, and the operand that comes after the others.
fn immediates(op: &str, memory: &str, offset: u64) -> (String, &'static str) {
    let (lane, vector) = if op.ends_with("_lane") { ("1", "(v128.const i64x2 -2 0x1122334455667788)") } else { ("", "") };
    (format!("{memory} offset={offset} {lane}"), vector)
}

#[test]
fn accesses_give_what_wasmtime_gives() {
    let mut numbers = Random::new(2);
    let mut text = String::new();
    let (mut loads, mut stores) = (Vec::new(), Vec::new());
    for memory in ["$m", "$n"] {
        for offset in OFFSETS {
            for shape in Shape::combinations(1).concat() {
                for (op, result) in LOADS {
                    let name = format!("{op} {}", loads.len());
                    let (immediates, vector) = immediates(op, memory, offset);
                    let addr = shape.operand(0, Val::I64(*numbers.pick(&ADDRESSES)));
                    text += &format!(r#"(func (export "{name}") (param i64) (result {result}) ({op} {immediates} {addr} {vector}))"#);
                    loads.push(name);
                }
            }
            for shapes in Shape::combinations(2) {
                for (op, ty) in STORES {
                    let name = format!("{op} {}", stores.len());
                    let (immediates, _) = immediates(op, memory, offset);
                    let addr = shapes[0].operand(0, Val::I64(*numbers.pick(&ADDRESSES)));
                    let number = shapes[1].operand(1, Val::I64(*numbers.pick(&I64_EDGES)));
                    let value = match ty {
                        "i32" => format!("(i32.wrap_i64 {number})"),
                        "f32" => format!("(f32.reinterpret_i32 (i32.wrap_i64 {number}))"),
                        "f64" => format!("(f64.reinterpret_i64 {number})"),
                        "v128" => format!("(i64x2.splat {number})"),
                        _ => number,
                    };
                    text += &format!(r#"(func (export "{name}") (param i64 i64) ({op} {immediates} {addr} {value}))"#);
                    stores.push(name);
                }
            }
        }
    }
    let mut trio = Trio::new(&format!(
        r#"(module (memory $m (export "m") i64 1) (memory $n (export "n") i64 1) {IDENTITIES}
            (data (memory $m) (i64.const 4090) "0123456789abcdef") (data (memory $n) (i64.const 65520) "fedcba9876543210") {text})"#
    ));
    for address in ADDRESSES {
        for name in &stores {
            if numbers.word().is_multiple_of(4) {
                trio.call(name, &[Val::I64(address), Val::I64(*numbers.pick(&I64_EDGES))]);
            }
        }
        loads.iter().for_each(|name| drop(trio.call(name, &[Val::I64(address)])));
    }
    trio.check_memory("m");
    trio.check_memory("n");
    println!("{} functions, {} calls, {} traps", loads.len() + stores.len(), trio.calls, trio.traps);
    assert!(trio.traps * 5 > trio.calls && trio.traps * 10 < trio.calls * 9, "some accesses are inside and some are not");
}

#[test]
fn sizes_growth_and_bulk_operators_give_what_wasmtime_gives() {
    let mut trio = Trio::new(
        r#"(module
            (memory $m (export "m") i64 1 3) (memory $n (export "n") 1 3)
            (table $t i64 3 9 funcref) (table $u 3 9 funcref)
            (data $d "passive") (elem $e func $f $g) (elem (table $t) (i64.const 1) func $f $g)
            (func $f (result i32) (i32.const 7)) (func $g (result i32) (i32.const 8))
            (func (export "size") (result i64 i32 i64 i32) (memory.size $m) (memory.size $n) (table.size $t) (table.size $u))
            (func (export "grow m") (param i64) (result i64) (memory.grow $m (local.get 0)))
            (func (export "grow n") (param i32) (result i32) (memory.grow $n (local.get 0)))
            (func (export "grow t") (param i64) (result i64) (table.grow $t (ref.func $g) (local.get 0)))
            (func (export "grow u") (param i32) (result i32) (table.grow $u (ref.null func) (local.get 0)))
            (func (export "fill") (param i64 i32 i64) (memory.fill $m (local.get 0) (local.get 1) (local.get 2)))
            (func (export "copy mm") (param i64 i64 i64) (memory.copy $m $m (local.get 0) (local.get 1) (local.get 2)))
            (func (export "copy mn") (param i64 i32 i32) (memory.copy $m $n (local.get 0) (local.get 1) (local.get 2)))
            (func (export "copy nm") (param i32 i64 i32) (memory.copy $n $m (local.get 0) (local.get 1) (local.get 2)))
            (func (export "init") (param i64 i32 i32) (memory.init $m $d (local.get 0) (local.get 1) (local.get 2)))
            (func (export "fill t") (param i64 i64) (table.fill $t (local.get 0) (ref.func $f) (local.get 1)))
            (func (export "copy tt") (param i64 i64 i64) (table.copy $t $t (local.get 0) (local.get 1) (local.get 2)))
            (func (export "copy tu") (param i64 i32 i32) (table.copy $t $u (local.get 0) (local.get 1) (local.get 2)))
            (func (export "copy ut") (param i32 i64 i32) (table.copy $u $t (local.get 0) (local.get 1) (local.get 2)))
            (func (export "init t") (param i64 i32 i32) (table.init $t $e (local.get 0) (local.get 1) (local.get 2)))
            (func (export "get t") (param i64) (result i32) (ref.is_null (table.get $t (local.get 0))))
            (func (export "set t") (param i64) (table.set $t (local.get 0) (ref.func $f)))
            (func (export "call t") (param i64) (result i32) (call_indirect $t (result i32) (local.get 0))))"#,
    );
    let (wide, narrow) = ([0, 1, 2, 3, 7, 65_530, 65_536, 0x1_0000_0000, 0x1_0000_0002, i64::MIN, -1, -8], [0, 1, 2, 3, 7, 65_535, -1, -8]);
    let mut numbers = Random::new(3);
    let shapes = [
        ("size", ""), ("grow m", "w"), ("grow n", "n"), ("grow t", "w"), ("grow u", "n"), ("fill", "wnw"), ("copy mm", "www"),
        ("copy mn", "wnn"), ("copy nm", "nwn"), ("init", "wnn"), ("fill t", "ww"), ("copy tt", "www"), ("copy tu", "wnn"),
        ("copy ut", "nwn"), ("init t", "wnn"), ("get t", "w"), ("set t", "w"), ("call t", "w"),
    ];
    for _ in 0..20_000 {
        let (name, params) = *numbers.pick(&shapes);
        let mut number = |kind| if kind == 'w' { Val::I64(*numbers.pick(&wide)) } else { Val::I32(*numbers.pick(&narrow)) };
        let args: Vec<Val> = params.chars().map(&mut number).collect();
        // Growth is rare, or all memories would be at their maximum at once.
        if !name.starts_with("grow") || numbers.word().is_multiple_of(20) {
            trio.call(name, &args);
        }
    }
    trio.check_memory("m");
    trio.check_memory("n");
    println!("{} calls, {} traps", trio.calls, trio.traps);
}
