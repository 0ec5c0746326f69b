//! Every operator on vectors, on values at the edges of its lanes, on this engine and on Wasmtime set up as the recorder has it:
//! all bits must agree, those of NaNs too.

use worksp_engine::probe::NoProbe;
use worksp_engine::{Config, Engine, Linker, Module, Store, Val};


#[path = "../../engine/tests/common/vectors.rs"]
mod vectors;

/// What operands are made of: lanes of 64 bits that are edges of one width or another.
const LANES: [u64; 18] = [
    0,
    u64::MAX,
    1,
    0x8000_0000_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8080_8080_8080_8080,
    0x7f7f_7f7f_7f7f_7f7f,
    0x8000_7fff_8001_fffe,
    0x8000_0000_7fff_ffff,
    0x0011_2233_4455_6677,
    0x0f1f_0010_801f_0e03,
    // Two floats: NaNs with a payload, quiet and signalling, infinities, zeros, halves.
    0x7fc0_1234_ff80_0001,
    0x7f80_0000_ff80_0000,
    0x8000_0000_3f00_0000,
    0xc020_0000_4f00_0000,
    // Doubles.
    0x7ff4_0000_0000_0005,
    0xfff0_0000_0000_0000,
    0x3fe0_0000_0000_0000,
];

/// Vectors of two lanes that differ, each lane in both places.
fn operands() -> Vec<u128> {
    let vector = |i: usize| u128::from(LANES[i]) | u128::from(LANES[(i * 7 + 5) % LANES.len()]) << 64;
    (0..LANES.len()).map(vector).collect()
}

/// A function, the operands that it takes before vectors, and how many vectors.
struct Case {
    name: String,
    text: String,
    vectors: usize,
    /// Whether a last operand is an i32.
    number: bool,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &str, result: &str, vectors: usize, number: bool, body: String| {
        let params = "v128 ".repeat(vectors) + if number { "i32" } else { "" };
        let text = format!(r#"(func (export "{name}") (param {params}) (result {result}) {body})"#);
        cases.push(Case { name: name.to_string(), text, vectors, number });
    };
    let gets = |count: usize| (0..count).map(|i| format!("(local.get {i})")).collect::<String>();
    for (names, count) in [(vectors::UNARY, 1), (vectors::BINARY, 2), (vectors::TERNARY, 3)] {
        names.iter().for_each(|name| add(name, "v128", count, false, format!("({name} {})", gets(count))));
    }
    vectors::SHIFT.iter().for_each(|name| add(name, "v128", 1, true, format!("({name} {})", gets(2))));
    vectors::TEST.iter().for_each(|name| add(name, "i32", 1, false, format!("({name} {})", gets(1))));
    for (shape, number, lanes, _, extracts) in vectors::SHAPES {
        for lane in 0..*lanes {
            for suffix in *extracts {
                let body = format!("({shape}.extract_lane{suffix} {lane} (local.get 0))");
                add(&format!("{shape}.extract_lane{suffix} {lane}"), number, 1, false, body);
            }
            let from = format!("({shape}.extract_lane{} {} (local.get 0))", extracts[0], lanes - 1 - lane);
            let body = format!("({shape}.replace_lane {lane} (local.get 1) {from})");
            add(&format!("{shape}.replace_lane {lane}"), "v128", 2, false, body);
            let body = format!("({shape}.splat ({shape}.extract_lane{} {lane} (local.get 0)))", extracts[0]);
            add(&format!("{shape}.splat {lane}"), "v128", 1, false, body);
        }
    }
    // Through memory: the operand lies at 64.
    let put = "(v128.store (i32.const 64) (local.get 0))";
    for name in vectors::LOAD {
        for offset in [0, 1, 8] {
            add(&format!("{name} {offset}"), "v128", 1, false, format!("{put} ({name} offset={offset} (i32.const 64))"));
        }
    }
    for bits in vectors::LANE_BITS {
        for lane in 0..128 / bits {
            let load = format!("(v128.load{bits}_lane offset=3 {lane} (i32.const 64) (local.get 1))");
            add(&format!("load{bits}_lane {lane}"), "v128", 2, false, format!("{put} {load}"));
            let store = format!("(v128.store{bits}_lane offset=5 {lane} (i32.const 64) (local.get 1))");
            add(&format!("store{bits}_lane {lane}"), "v128", 2, false, format!("{put} {store} (v128.load (i32.const 64))"));
        }
    }
    let lanes = (0..16).map(|i| ((i * 11 + 3) % 32).to_string()).collect::<Vec<_>>().join(" ");
    add("i8x16.shuffle", "v128", 2, false, format!("(i8x16.shuffle {lanes} (local.get 0) (local.get 1))"));
    cases
}

/// All lists of `count` operands.
fn tuples(operands: &[u128], count: usize) -> Vec<Vec<u128>> {
    let mut all = vec![Vec::new()];
    for _ in 0..count {
        all = all.iter().flat_map(|t| operands.iter().map(|v| t.iter().copied().chain([*v]).collect())).collect();
    }
    all
}

fn wasmtime() -> wasmtime::Engine {
    let mut config = wasmtime::Config::new();
    config.cranelift_nan_canonicalization(true).relaxed_simd_deterministic(true).wasm_relaxed_simd(true);
    wasmtime::Engine::new(&config).expect("a valid configuration")
}

#[test]
fn every_operator_gives_the_bits_that_wasmtime_gives() {
    let cases = cases();
    let funcs: String = cases.iter().map(|case| case.text.as_str()).collect();
    let bytes = wat::parse_str(format!("(module (memory 1) {funcs})")).expect("valid text");
    let engine = Engine::new(Config { canonicalize_nans: true, ..Config::default() });
    let module = Module::new(&engine, &bytes).expect("valid");
    let (mut store, linker) = (Store::new(&engine), Linker::new());
    let instance = linker.instantiate(&mut store, &mut NoProbe, &module).expect("no imports");
    let theirs = wasmtime();
    let mut their_store = wasmtime::Store::new(&theirs, ());
    let their_module = wasmtime::Module::new(&theirs, &bytes).expect("valid");
    let their_instance = wasmtime::Instance::new(&mut their_store, &their_module, &[]).expect("no imports");
    let operands = operands();
    let mut compared = 0;
    for case in &cases {
        let func = store.exported_func(instance, &case.name).expect("exported");
        let their_func = their_instance.get_func(&mut their_store, &case.name).expect("exported");
        let numbers: &[i32] = if case.number { &[0, 1, 7, 8, 31, 33, 64, -1] } else { &[0] };
        for vectors in tuples(&operands, case.vectors) {
            for number in numbers {
                let mut args: Vec<Val> = vectors.iter().map(|v| Val::V128(*v)).collect();
                let mut their_args: Vec<wasmtime::Val> = vectors.iter().map(|v| wasmtime::Val::V128((*v).into())).collect();
                if case.number {
                    args.push(Val::I32(*number));
                    their_args.push(wasmtime::Val::I32(*number));
                }
                let ours = linker.call(&mut store, &mut NoProbe, func, &args).expect("no traps")[0].bits();
                let mut result = [wasmtime::Val::I32(0)];
                their_func.call(&mut their_store, &their_args, &mut result).expect("no traps");
                let expected = worksp_differential::run::oracle::bits(&result[0]);
                assert_eq!(ours, expected, "{} {vectors:x?} {number}: {ours:032x}, Wasmtime {expected:032x}", case.name);
                compared += 1;
            }
        }
    }
    println!("{} functions, {compared} calls compared", cases.len());
    assert!(compared > 80_000, "the list of operators is complete");
}
