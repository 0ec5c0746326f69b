//! Programs in text, run in every mode: plain, counted and traced give the same results.

use worksp_engine::probe::{LocalRole, LoopRef, NoProbe, Probe, SiteId, Slot, TracePlan};
use worksp_engine::{Config, Engine, Extern, Module, Step, Store, Suspension, TrapKind, Val};

/// A probe that observes nothing, so that traced translation runs.
struct Traced;
impl Probe for Traced {}

fn run<P: Probe>(text: &str, export: &str, args: &[Val], fuel: bool, probe: &mut P) -> (Step, u64) {
    let engine = Engine::new(Config { fuel, ..Config::default() });
    let module = Module::from_text(&engine, text).expect("valid");
    let mut store = Store::new(&engine);
    let instance = store.instantiate(&module, &[]).expect("no imports");
    store.set_trace_plan(instance, TracePlan { every_loop_of: Some(0), ..TracePlan::default() });
    let Some(Extern::Func(func)) = store.export(instance, export) else { panic!("no export {export}") };
    let step = store.start(probe, func, args).expect("right arguments");
    (step, store.work())
}

fn check(text: &str, args: &[Val], expected: &[Val], work: u64) {
    let returned = Step::Returned(expected.to_vec());
    assert_eq!(run(text, "run", args, false, &mut NoProbe), (returned.clone(), 0), "plain: {text}");
    assert_eq!(run(text, "run", args, true, &mut NoProbe), (returned.clone(), work), "counted: {text}");
    assert_eq!(run(text, "run", args, false, &mut Traced), (returned, work), "traced: {text}");
}

fn check_trap(text: &str, kind: TrapKind, work: u64) {
    for (fuel, traced) in [(false, false), (true, false), (true, true)] {
        let (step, done) = if traced { run(text, "run", &[], fuel, &mut Traced) } else { run(text, "run", &[], fuel, &mut NoProbe) };
        let Step::Trapped(trap) = step else { panic!("expected a trap: {text}") };
        assert_eq!(trap.kind(), kind, "{text}");
        assert_eq!(done, if fuel { work } else { 0 }, "work of {text}");
    }
}

#[test]
fn recursion() {
    let fib = r#"(module (func $fib (export "run") (param i32) (result i32)
        (if (result i32) (i32.lt_s (local.get 0) (i32.const 2))
            (then (local.get 0))
            (else (i32.add (call $fib (i32.sub (local.get 0) (i32.const 1))) (call $fib (i32.sub (local.get 0) (i32.const 2))))))))"#;
    // 5 per leaf (get const lt if get), 13 per inner node: get const lt if, 2 × (get const sub call), add.
    let (leaves, inner) = (89, 88);
    check(fib, &[Val::I32(10)], &[Val::I32(55)], leaves * 5 + inner * 13);
}

#[test]
fn loops_and_memory() {
    let sum = r#"(module (memory 1) (func (export "run") (param $n i32) (result i32) (local $i i32) (local $s i32)
        (loop $fill
            (i32.store (i32.mul (local.get $i) (i32.const 4)) (local.get $i))
            (br_if $fill (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $n))))
        (local.set $i (i32.const 0))
        (block $out (loop $again
            (br_if $out (i32.ge_u (local.get $i) (local.get $n)))
            (local.set $s (i32.add (local.get $s) (i32.load (i32.shl (local.get $i) (i32.const 2)))))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br $again)))
        (local.get $s)))"#;
    check(sum, &[Val::I32(100)], &[Val::I32(4950)], 100 * 12 + 2 + 100 * (4 + 7 + 4 + 1) + 4 + 1);
}

#[test]
fn values_that_stand_for_locals_survive_writes() {
    let swap = r#"(module (func (export "run") (param i32 i32) (result i32 i32)
        (local.get 0) (local.get 1) (local.set 0) (local.set 1) (local.get 0) (local.get 1)))"#;
    check(swap, &[Val::I32(1), Val::I32(2)], &[Val::I32(2), Val::I32(1)], 6);
    let kept = r#"(module (func (export "run") (param i32) (result i32)
        (local.get 0) (if (local.get 0) (then (local.set 0 (i32.const 7)))) (local.get 0) (i32.add)))"#;
    check(kept, &[Val::I32(3)], &[Val::I32(10)], 3 + 2 + 2);
    let tee = r#"(module (func (export "run") (param i32) (result i32)
        (i32.add (local.tee 0 (i32.add (local.get 0) (i32.const 1))) (i32.mul (local.get 0) (local.get 0)))))"#;
    check(tee, &[Val::I32(3)], &[Val::I32(20)], 8);
    let returned = r#"(module (func (export "run") (param i32 i32 i32) (result i32 i32 i32)
        (br_if 0 (local.get 2) (local.get 1) (local.get 0) (local.get 0)) (drop) (drop) (drop) (i32.const 9) (i32.const 8) (i32.const 7)))"#;
    check(returned, &[Val::I32(1), Val::I32(2), Val::I32(3)], &[Val::I32(3), Val::I32(2), Val::I32(1)], 5);
    check(returned, &[Val::I32(0), Val::I32(2), Val::I32(3)], &[Val::I32(9), Val::I32(8), Val::I32(7)], 11);
}

#[test]
fn branch_tables_carry_values() {
    let table = r#"(module (func (export "run") (param i32) (result i32)
        (block $a (result i32) (block $b (result i32) (block $c (result i32)
            (br_table $a $b $c 0 (i32.const 5) (local.get 0))) (return (i32.add (i32.const 100)))) (i32.add (i32.const 10)))))"#;
    check(table, &[Val::I32(0)], &[Val::I32(5)], 3);
    check(table, &[Val::I32(1)], &[Val::I32(15)], 5);
    check(table, &[Val::I32(2)], &[Val::I32(105)], 6);
    check(table, &[Val::I32(77)], &[Val::I32(105)], 6);
}

#[test]
fn tail_calls_keep_the_stack_flat() {
    let even = r#"(module (type $t (func (param i32) (result i32))) (table funcref (elem $even $odd))
        (func $even (export "run") (param i32) (result i32)
            (if (i32.eqz (local.get 0)) (then (return (i32.const 1))))
            (return_call $odd (i32.sub (local.get 0) (i32.const 1))))
        (func $odd (param i32) (result i32)
            (if (i32.eqz (local.get 0)) (then (return (i32.const 0))))
            (return_call_indirect (type $t) (i32.sub (local.get 0) (i32.const 1)) (i32.const 0))))"#;
    check(even, &[Val::I32(1_000_000)], &[Val::I32(1)], 500_000 * 7 + 500_000 * 8 + 5);
}

#[test]
fn traps_count_the_operator_that_trapped() {
    check_trap(r#"(module (func (export "run") (drop (i32.div_s (i32.const 1) (i32.const 0))) (drop (i32.const 1))))"#, TrapKind::IntegerDivisionByZero, 3);
    check_trap(r#"(module (memory 1) (func (export "run") (drop (i32.load (i32.const 65533))) (drop (i32.const 1))))"#, TrapKind::MemoryOutOfBounds, 2);
    check_trap(r#"(module (func (export "run") (if (i32.const 1) (then (unreachable))) (drop (i32.const 1))))"#, TrapKind::Unreachable, 3);
    check_trap(r#"(module (func $f (export "run") (call $f)))"#, TrapKind::StackOverflow, 200_000);
    check_trap(r#"(module (memory 1) (func (export "run") (memory.fill (i32.const 65530) (i32.const 0) (i32.const 9)) (nop) (drop (i32.const 0))))"#, TrapKind::MemoryOutOfBounds, 4);
}

#[test]
fn bulk_operators_weigh_their_bytes() {
    let fill = r#"(module (memory 1) (func (export "run") (memory.fill (i32.const 8) (i32.const 1) (i32.const 17))))"#;
    check(fill, &[], &[], 4 + 3);
}

#[test]
fn backtraces_name_functions_and_offsets() {
    let text = r#"(module (func $inner (unreachable)) (func $outer (export "run") (nop) (call $inner) (nop)))"#;
    let (Step::Trapped(trap), _) = run(text, "run", &[], false, &mut NoProbe) else { panic!("expected a trap") };
    let frames: Vec<(&str, bool)> = trap.backtrace().iter().map(|f| (f.name.as_str(), f.offset > 0)).collect();
    assert_eq!(frames, [("inner", true), ("outer", true)]);
}

#[test]
fn fuel_stops_a_program() {
    let engine = Engine::new(Config { fuel: true, ..Config::default() });
    let module = Module::from_text(&engine, r#"(module (func (export "run") (loop (br 0))))"#).expect("valid");
    let mut store = Store::new(&engine);
    let instance = store.instantiate(&module, &[]).expect("no imports");
    store.set_fuel(1000);
    let Some(Extern::Func(func)) = store.export(instance, "run") else { panic!("no export") };
    let suspended = Step::Suspended(Suspension::OutOfFuel { missing: 1 });
    assert_eq!(store.start(&mut NoProbe, func, &[]), Ok(suspended));
    let trap = store.abandon(&mut NoProbe).expect("it was suspended");
    assert_eq!((trap.kind(), store.work(), store.fuel()), (TrapKind::OutOfFuel, 1000, Some(0)));
}

#[test]
fn the_meter_changes_nothing() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    // Values stay in the accumulator across a charge, and one operator costs more than a slice.
    let text = r#"(module (memory 1) (func (export "run") (param $n i32) (result i32) (local $s i32)
        (loop $again
            (local.set $s (i32.add (i32.mul (local.get $n) (local.get $n))
                (block (result i32) (br_if 0 (local.get $s) (i32.and (local.get $n) (i32.const 1))) (drop) (i32.const 3))))
            (memory.fill (i32.const 0) (local.get $n) (i32.const 60000))
            (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
        (i32.add (local.get $s) (i32.load8_u (i32.const 59999)))))"#;
    let engine = Engine::new(Config { fuel: true, ..Config::default() });
    let module = Module::from_text(&engine, text).expect("valid");
    let run = |every: Option<u64>| {
        let mut store = Store::new(&engine);
        let instance = store.instantiate(&module, &[]).expect("no imports");
        let told = Arc::new(AtomicU64::new(0));
        if let Some(every) = every {
            let told = told.clone();
            store.on_work(every, Arc::new(move |work| { assert!(told.fetch_max(work, Ordering::Relaxed) <= work); }));
        }
        let Some(Extern::Func(func)) = store.export(instance, "run") else { panic!("no export") };
        let step = store.start(&mut NoProbe, func, &[Val::I32(50)]).expect("runs");
        (step, store.work(), told.load(Ordering::Relaxed))
    };
    let (step, work, _) = run(None);
    for every in [1, 2, 3, 5, 17, 1000, 1_000_000] {
        let (with_meter, with_work, told) = run(Some(every));
        assert_eq!((&with_meter, with_work), (&step, work), "every {every}");
        assert!(told <= work && (every > work || told > 0), "told {told} of {work} every {every}");
    }
}

const V: Val = Val::V128(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);
const W: Val = Val::V128(7);

#[test]
fn vectors_take_two_slots_everywhere() {
    // Between scalars, as parameters, declared locals (zero at first) and results.
    let mixed = r#"(module (func (export "run") (param i32 v128 i64 v128) (result i64 v128 i32 v128 v128) (local i32 v128 i32 v128)
        (local.set 6 (i32.add (local.get 0) (i32.const 1))) (local.set 4 (i32.const 9))
        (local.get 2) (local.get 1) (local.get 6) (local.get 5) (v128.or (local.get 7) (local.get 3))))"#;
    let args = [Val::I32(1), V, Val::I64(2), W];
    check(mixed, &args, &[Val::I64(2), V, Val::I32(2), Val::V128(0), W], 4 + 2 + 7);
    // Swaps need every value that stands for a local to move away before the local is written.
    let swap = r#"(module (func (export "run") (param v128 i32 v128) (result v128 i32 v128)
        (local.get 0) (local.get 2) (local.set 0) (local.set 2) (local.get 0) (local.get 1) (local.get 2)))"#;
    check(swap, &[V, Val::I32(5), W], &[W, Val::I32(5), V], 7);
    let kept = r#"(module (func (export "run") (param v128 i32) (result v128)
        (local.get 0) (if (local.get 1) (then (local.set 0 (v128.const i64x2 7 0)))) (v128.xor (local.get 0))))"#;
    check(kept, &[V, Val::I32(0)], &[Val::V128(0)], 3 + 2);
    check(kept, &[W, Val::I32(1)], &[Val::V128(0)], 3 + 2 + 2);
    let tee = r#"(module (func (export "run") (param v128 v128) (result v128)
        (i32x4.add (local.tee 0 (v128.or (local.get 0) (local.get 1))) (i32x4.neg (local.get 0)))))"#;
    check(tee, &[V, W], &[Val::V128(0)], 7);
    // The accumulator keeps a scalar while vectors are made.
    let acc = r#"(module (func (export "run") (param i32 v128) (result i32)
        (i32.add (i32.mul (local.get 0) (i32.const 3)) (i32x4.extract_lane 0 (i32x4.add (local.get 1) (i32x4.splat (i32.const 4)))))))"#;
    check(acc, &[Val::I32(5), W], &[Val::I32(26)], 9);
    let select = r#"(module (func (export "run") (param i32 v128 v128) (result v128 i32 v128)
        (select (local.get 1) (local.get 2) (local.get 0)) (i32.const 3)
        (select (result v128) (v128.const i64x2 1 0) (v128.not (local.get 2)) (i32.eqz (local.get 0)))))"#;
    check(select, &[Val::I32(0), V, W], &[W, Val::I32(3), Val::V128(1)], 4 + 1 + 6);
    check(select, &[Val::I32(8), V, W], &[V, Val::I32(3), Val::V128(!7)], 4 + 1 + 6);
}

#[test]
fn vectors_pass_labels_and_calls() {
    // A branch takes (i64, v128) down past a vector and a scalar; the table has a stub for each label.
    let branches = r#"(module (func (export "run") (param i32 v128) (result i64 v128 i32)
        (block $out (result i64 v128)
            (block $in (result i64 v128)
                (v128.const i64x2 -1 -1) (i32.const 77) (i64.const 5) (local.get 1) (br_table $in $out $in (local.get 0)))
            (i64x2.splat (i64.const 1)) (i64x2.add))
        (i32.const 6)))"#;
    check(branches, &[Val::I32(1), W], &[Val::I64(5), W, Val::I32(6)], 6 + 1);
    check(branches, &[Val::I32(0), W], &[Val::I64(5), Val::V128(1 << 64 | 8), Val::I32(6)], 6 + 3 + 1);
    // A loop carries a vector; what made it must not be redirected by what is inside the loop.
    let carried = r#"(module (func (export "run") (param i32 v128) (result v128) (local v128)
        (i32x4.add (local.get 1) (local.get 1))
        (loop $next (param v128) (result v128)
            (local.set 2)
            (i32x4.add (local.get 2) (i32x4.splat (i32.const 1)))
            (br_if $next (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))))"#;
    check(carried, &[Val::I32(3), W], &[Val::V128(3 << 96 | 3 << 64 | 3 << 32 | 17)], 3 + 3 * 10);
    let merged = r#"(module (func (export "run") (param i32 v128) (result v128) (local v128)
        (local.set 2 (block $b (result v128) (br_if $b (local.get 1) (local.get 0)) (drop) (v128.not (local.get 1))))
        (local.get 2)))"#;
    check(merged, &[Val::I32(0), W], &[Val::V128(!7)], 3 + 3 + 2);
    check(merged, &[Val::I32(1), W], &[W], 3 + 2);
    // Calls, through a table too, and tail calls whose arguments outgrow the caller's locals.
    let calls = r#"(module (type $t (func (param i32 v128 v128) (result v128 i32 v128)))
        (table funcref (elem $f $deep))
        (func $f (type $t) (local v128) (local.get 2) (i32.add (local.get 0) (i32.const 1)) (v128.or (local.get 1) (local.get 3)))
        (func $deep (type $t) (if (i32.eqz (local.get 0)) (then (return_call_indirect (type $t) (local.get 0) (local.get 1) (local.get 2) (i32.const 0))))
            (return_call $deep (i32.sub (local.get 0) (i32.const 1)) (local.get 2) (i32x4.add (local.get 1) (local.get 2))))
        (func (export "run") (param v128) (result v128 i32 v128 v128)
            (call $f (i32.const 4) (local.get 0) (v128.const i64x2 3 3))
            (call_indirect (type $t) (i32.const 2) (v128.const i64x2 1 0) (local.get 0) (i32.const 1)) (drop) (drop)))"#;
    check(calls, &[W], &[Val::V128(3 << 64 | 3), Val::I32(5), W, Val::V128(15)], 4 + 7 + 5 + (3 + 8) * 2 + 8 + 7 + 2);
}

/// What a probe is told about values in slots.
#[derive(Default)]
struct Slots(Vec<String>);
impl Probe for Slots {
    fn local_read(&mut self, _: SiteId, local: u32, _: LocalRole) {
        self.0.push(format!("read {local}"));
    }
    fn local_write(&mut self, _: SiteId, local: u32, _: LocalRole) {
        self.0.push(format!("write {local}"));
    }
    fn result_in(&mut self, _: SiteId, first: Slot, count: u32) {
        self.0.push(format!("results {first}+{count}"));
    }
    fn slot_move(&mut self, from: Slot, to: Slot) {
        self.0.push(format!("move {from} {to}"));
    }
    fn slot_clear(&mut self, slot: Slot) {
        self.0.push(format!("clear {slot}"));
    }
    fn slot_use(&mut self, _: SiteId, slot: Slot) {
        self.0.push(format!("use {slot}"));
    }
    fn call(&mut self, _: SiteId, _: u32, args: &[u64], _: u64) {
        self.0.push(format!("call {args:?}"));
    }
    fn ret(&mut self, results: &[u64], _: u64) {
        self.0.push(format!("return {results:?}"));
    }
}

#[test]
fn slots_of_events_are_those_of_first_halves_and_locals_are_counted() {
    // Slots: local 0 at 0, local 1 at 1 and 2, local 2 at 3, local 3 at 4 and 5; the operand stack from 6 up.
    let text = r#"(module
        (func $unit (param i32 v128) (result i64 v128 i32) (i64.const 8) (local.get 1) (i32.const 9))
        (func (export "run") (param i32 v128) (result v128) (local i32 v128)
            (call $unit (i32.const 2) (local.get 1))
            (local.set 2) (local.set 3) (drop)
            (loop $once (local.set 2 (i32.add (local.get 2) (i32.const 1))))
            (v128.not (local.get 3))))"#;
    let engine = Engine::default();
    let module = Module::from_text(&engine, text).expect("valid");
    let mut store = Store::new(&engine);
    let instance = store.instantiate(&module, &[]).expect("no imports");
    let loops = vec![LoopRef { func: 1, ordinal: 0 }];
    store.set_trace_plan(instance, TracePlan { loops, funcs: vec![0], ..TracePlan::default() });
    let mut probe = Slots::default();
    let run = store.exported_func(instance, "run").expect("exported");
    let step = store.start(&mut probe, run, &[Val::I32(1), W]);
    assert_eq!(step, Ok(Step::Returned(vec![Val::V128(!7)])));
    let expected = [
        "call [2, 7, 0]",
        "return [8, 7, 0, 9]",
        // An i64 in 6, a vector in 7 and 8, an i32 in 9.
        "results 6+2",
        "results 9+1",
        "move 9 3",
        "write 2",
        "move 7 4",
        "read 2",
        "use 3",
        "clear 3",
        "write 2",
        "use 4",
        "return [18446744073709551608, 18446744073709551615]",
    ];
    assert_eq!(probe.0, expected);
}
