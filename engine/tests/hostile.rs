//! Modules that are made to be expensive: translation takes time and memory that are in proportion to their size, and no module aborts.

use std::fmt::Write;
use std::time::Instant;

use worksp_engine::probe::{NoProbe, Probe};
use worksp_engine::{Config, Engine, Linker, Module, Store, TrapKind, Val};

/// Is told of everything.
struct Traced;
impl Probe for Traced {}

fn leb(mut value: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(byte);
            return bytes;
        }
        bytes.push(byte | 0x80);
    }
}

fn section(id: u8, contents: &[u8]) -> Vec<u8> {
    [&[id][..], &leb(contents.len() as u32), contents].concat()
}

/// A module with one function `[] -> [i32]`, exported as `run`, of this body (local declarations and operators).
fn module(body: &[u8]) -> Vec<u8> {
    let code = [&[1][..], &leb(body.len() as u32), body].concat();
    let parts = [section(1, &[1, 0x60, 0, 1, 0x7f]), section(3, &[1, 0]), section(7, b"\x01\x03run\0\0"), section(10, &code)];
    [b"\0asm\x01\0\0\0".to_vec(), parts.concat()].concat()
}

/// Runs `run` plain, counting and traced; all give the same, each in good time.
fn check(bytes: &[u8], expected: Result<i32, TrapKind>) {
    for (fuel, traced) in [(false, false), (true, false), (false, true)] {
        let began = Instant::now();
        let engine = Engine::new(Config { fuel, ..Config::default() });
        let module = Module::new(&engine, bytes).expect("valid");
        let (mut store, linker) = (Store::new(&engine), Linker::new());
        let instance = linker.instantiate(&mut store, &mut NoProbe, &module).expect("no imports");
        let run = store.exported_func(instance, "run").expect("exported");
        let found = if traced { linker.call(&mut store, &mut Traced, run, &[]) } else { linker.call(&mut store, &mut NoProbe, run, &[]) };
        match (expected, found) {
            (Ok(value), Ok(results)) => assert_eq!(results, [Val::I32(value)]),
            (Err(kind), Err(worksp_engine::CallError::Trap(trap))) => assert_eq!(trap.kind(), kind),
            (expected, found) => panic!("{found:?}, not {expected:?}"),
        }
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }
}

#[test]
fn a_huge_body() {
    // A million additions.
    let mut body = vec![0, 0x41, 0];
    for _ in 0..1_000_000 {
        body.extend([0x41, 1, 0x6a]);
    }
    body.push(0x0b);
    check(&module(&body), Ok(1_000_000));
}

#[test]
fn more_locals_than_there_may_be() {
    // The validator allows 50 000 locals; a million are refused before anything is allocated for them.
    let body = |count: u32| [&[1][..], &leb(count), &[0x7f, 0x20], &leb(count - 1), &[0x0b]].concat();
    check(&module(&body(50_000)), Ok(0));
    for count in [50_001, 1_000_000, u32::MAX] {
        let error = Module::new(&Engine::default(), &module(&body(count))).expect_err("too many");
        assert!(error.to_string().contains("too many locals"), "{error}");
    }
    // Calls of such functions exhaust the stack, and nothing else.
    let text = format!("(module (func $f (export \"run\") (result i32) (local{}) (call $f)))", " i64".repeat(40_000));
    check(&wat::parse_str(&text).expect("valid text"), Err(TrapKind::StackOverflow));
}

#[test]
fn a_bomb_of_branch_tables() {
    // Blocks nested 300 deep, with results, and 200 tables of 5000 targets each that lead to all of them.
    let (depth, tables, targets) = (300, 200, 5000_u32);
    let mut body = vec![0];
    for _ in 0..depth {
        body.extend([0x02, 0x7f]);
    }
    for table in 0..tables {
        // if (0) { 7; br_table … (0) }
        body.extend([0x41, 0, 0x04, 0x40, 0x41, 7, 0x41, 0, 0x0e]);
        body.extend(leb(targets));
        for target in 0..targets {
            body.extend(leb(1 + (target * 7 + table) % depth));
        }
        body.extend(leb(depth));
        body.push(0x0b);
    }
    body.extend([0x41, 5]);
    body.extend(std::iter::repeat_n(0x0b, depth as usize + 1));
    check(&module(&body), Ok(5));
}

#[test]
fn a_table_that_leads_out_of_a_deep_nest() {
    // Work per target must not grow with the depth.
    let depth = 60_000_u32;
    for result in [0x40, 0x7f] {
        let mut body = vec![0];
        body.extend(std::iter::repeat_n([0x02, result], depth as usize).flatten());
        if result == 0x7f {
            body.extend([0x41, 9]);
        }
        body.extend([0x41, 3, 0x0e]);
        body.extend(leb(depth - 1));
        for target in 0..depth {
            body.extend(leb(target));
        }
        body.extend(std::iter::repeat_n(0x0b, depth as usize));
        if result == 0x40 {
            body.extend([0x41, 9]);
        }
        body.push(0x0b);
        check(&module(&body), Ok(9));
    }
}

#[test]
fn blocks_nested_deep() {
    let depth = 100_000;
    let mut body = vec![0];
    body.extend(std::iter::repeat_n([0x02, 0x40], depth).flatten());
    body.extend(std::iter::repeat_n(0x0b, depth));
    body.extend([0x41, 3, 0x0b]);
    check(&module(&body), Ok(3));
}

#[test]
fn many_values_and_many_merges() {
    // 5000 values on the stack, and 2000 branches that carry them all would move ten million: only what a block declares moves.
    let mut text = String::from("(module (func (export \"run\") (result i32)");
    for i in 0..5000 {
        write!(text, "(i32.const {i})").expect("a string can be written");
    }
    for _ in 0..2000 {
        text.push_str("(block (result i32) (br_if 0 (i32.const 1) (i32.const 0))) drop ");
    }
    for _ in 0..4999 {
        text.push_str("drop ");
    }
    text.push_str("))");
    check(&wat::parse_str(&text).expect("valid text"), Ok(0));
}

#[test]
fn eager_translation_gives_the_same_code() {
    let mut text = String::from("(module (func $f0 (param i32) (result i32) (local.get 0))");
    for i in 1..500 {
        write!(text, "(func $f{i} (param i32) (result i32) (i32.add (call $f{} (local.get 0)) (i32.const {i})))", i - 1).expect("a string can be written");
    }
    text.push_str("(func (export \"run\") (result i32) (call $f499 (i32.const 0))))");
    let bytes = wat::parse_str(&text).expect("valid text");
    for eager_threads in [0, 1, 2, 7] {
        let engine = Engine::new(Config { eager_threads, fuel: true, ..Config::default() });
        let module = Module::new(&engine, &bytes).expect("valid");
        let mut store = Store::new(&engine);
        let instance = Linker::new().instantiate(&mut store, &mut NoProbe, &module).expect("no imports");
        let run = store.exported_func(instance, "run").expect("exported");
        assert_eq!(Linker::new().call(&mut store, &mut NoProbe, run, &[]), Ok(vec![Val::I32(499 * 250)]));
        assert_eq!(store.work(), 2 + 499 * 4 + 1);
        store.translate(&mut Traced, instance, 3).expect("small functions");
        assert_eq!(Linker::new().call(&mut store, &mut Traced, run, &[]), Ok(vec![Val::I32(499 * 250)]));
    }
}
