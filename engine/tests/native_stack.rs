//! A handler that does not end in a jump grows the native stack with every instruction. Every family of operators runs many times
//! in a thread with a small stack here; in optimised builds, where handlers call one another, a handler that returns late dies.

use std::ops::Range;

use worksp_engine::probe::{LoopRef, NoProbe, Probe, Rmw, SiteId, TracePlan};
use worksp_engine::{Engine, FuncType, Linker, Module, Store, Val, ValType};

#[path = "common/vectors.rs"]
mod vectors;

/// Uses the native stack in the hooks of every family of operators.
struct Clumsy;

/// Something that lives on the native stack.
#[inline(always)]
fn clutter() {
    std::hint::black_box(&mut [0u64; 4]);
}

impl Probe for Clumsy {
    #[inline(always)]
    fn load(&mut self, _: SiteId, _: u32, _: u64, _: u32, _: Rmw) {
        clutter();
    }
    #[inline(always)]
    fn store(&mut self, _: SiteId, _: u32, _: u64, _: u32, _: Rmw) {
        clutter();
    }
    #[inline(always)]
    fn bulk_write(&mut self, _: SiteId, _: u32, _: Range<u64>) {
        clutter();
    }
    #[inline(always)]
    fn table_write(&mut self, _: SiteId, _: u32, _: Range<u64>) {
        clutter();
    }
    #[inline(always)]
    fn global_set(&mut self, _: SiteId, _: u32, _: u64) {
        clutter();
    }
    #[inline(always)]
    fn call(&mut self, _: SiteId, _: u32, _: &[u64], _: u64) {
        clutter();
    }
    #[inline(always)]
    fn tail_call(&mut self, _: SiteId, _: u32, _: &[u64], _: u64) {
        clutter();
    }
    #[inline(always)]
    fn ret(&mut self, _: &[u64], _: u64) {
        clutter();
    }
    #[inline(always)]
    fn unwind(&mut self, _: SiteId, _: u64) {
        clutter();
    }
    #[inline(always)]
    fn caught(&mut self, _: SiteId, _: Option<LoopRef>, _: u64) {
        clutter();
    }
    #[inline(always)]
    fn loop_iter(&mut self, _: LoopRef, _: u64) {
        clutter();
    }
}

const ROUNDS: i32 = 100_000;

/// Statements that leave nothing on the stack; `$i` is the round, `$v` and `$w` are vectors.
const BODIES: &[&str] = &[
    "(memory.init $passive (i32.const 8) (i32.const 0) (i32.const 4))",
    "(memory.copy (i32.const 8) (i32.const 9) (i32.const 40)) (memory.fill (i32.const 8) (local.get $i) (i32.const 9))",
    "(memory.copy $m $n (i32.const 8) (i32.const 9) (i32.const 40))",
    "(i64.store8 $n (i32.const 3) (i64.load16_s $n (i32.const 77)))",
    "(f64.store (i32.const 8) (f64.promote_f32 (f32.load (i32.const 4))))",
    "(drop (memory.grow (i32.const 0))) (drop (memory.size $n))",
    "(table.init $t $funcs (i32.const 0) (i32.const 0) (i32.const 2))",
    "(table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 2)) (table.fill $t (i32.const 3) (ref.func $id) (i32.const 2))",
    "(table.set $t (i32.const 5) (table.get $t (i32.const 1))) (drop (table.grow $t (ref.null func) (i32.const 0)))",
    "(drop (ref.is_null (ref.func $id))) (drop (table.size $t)) (data.drop $gone) (elem.drop $dropped)",
    "(global.set $g (i32.add (global.get $g) (local.get $i)))",
    "(drop (call $id (local.get $i))) (drop (call_indirect (type $unary) (local.get $i) (i32.const 9)))",
    "(drop (call $tail (local.get $i))) (drop (call $tail_indirect (local.get $i)))",
    "(drop (call $pair (local.get $i))) (drop)",
    "(drop (call_ref $unary (local.get $i) (ref.func $id))) (drop (call $tail_ref (local.get $i)))",
    "(drop (block $h (result (ref func)) (br_on_non_null $h (table.get $t (i32.const 9))) (ref.as_non_null (ref.func $id))))",
    "(block $h (drop (br_on_null $h (table.get $t (i32.const 1)))))",
    "(i64.add128 (i64.const 1) (i64.extend_i32_u (local.get $i)) (i64.const -1) (i64.const 2)) (drop) (drop)",
    "(i64.mul_wide_s (i64.const -5) (i64.extend_i32_u (local.get $i))) (drop) (drop)",
    "(i64.store $wide offset=4 (i64.const 8) (i64.load32_s $wide (i64.const 0x10))) (drop (memory.grow $wide (i64.const 0)))",
    "(v128.store $wide (i64.const 8) (v128.load $wide offset=3 (i64.const 0)))",
    "(memory.copy $wide $m (i64.const 8) (i32.const 9) (i32.const 40)) (memory.fill $wide (i64.const 8) (local.get $i) (i64.const 9))",
    "(drop (i32.atomic.load8_u $n (i32.const 3))) (i64.atomic.store $m (i32.const 8) (i64.extend_i32_u (local.get $i)))",
    "(drop (i32.atomic.rmw.add $m (i32.const 8) (local.get $i))) (drop (i64.atomic.rmw16.xchg_u $n (i32.const 6) (i64.const 7)))",
    "(drop (i32.atomic.rmw.cmpxchg $shared (i32.const 8) (i32.const 0) (local.get $i))) (atomic.fence)",
    "(drop (memory.atomic.wait32 $shared (i32.const 0) (i32.const 1) (i64.const 0)))",
    "(drop (memory.atomic.wait64 $shared (i32.const 0) (i64.const 0) (i64.const 0))) (drop (memory.atomic.notify $n (i32.const 4) (i32.const 1)))",
    "(drop (i32.trunc_f64_s (f64.sqrt (f64.convert_i32_u (local.get $i)))))",
    "(drop (i64.rem_s (i64.div_u (i64.const -9) (i64.extend_i32_u (i32.or (local.get $i) (i32.const 1)))) (i64.const 7)))",
    "(drop (f32.min (f32.nearest (f32.const 2.5)) (f32.copysign (f32.const 1) (f32.const -2))))",
    "(drop (select (i32.const 3) (local.get $i) (i32.and (local.get $i) (i32.const 1))))",
    "(block $a (block $b (block $c (br_table $a $b $c (i32.rem_u (local.get $i) (i32.const 4))))))",
    "(if (i32.eqz (local.get $i)) (then (nop)) (else (local.set $j (local.get $i))))",
    "(call $host (local.get $i))",
    "(drop (block $h (result i32) (try_table (catch $e $h) (throw $e (local.get $i))) (i32.const 0)))",
    "(drop (block $h (result i32) (try_table (catch $e $h) (loop $l (call $thrower (local.get $i)) (br $l))) (i32.const 0)))",
    "(block $h (result exnref) (try_table (catch_all_ref $h) (call $thrower (local.get $i))) (ref.null exn)) (local.set $x)
        (block $h (try_table (catch_all $h) (throw_ref (local.get $x))))",
    "try (call $thrower (local.get $i)) catch $e (drop) end",
    "try try try (throw $e (local.get $i)) delegate 0 catch $e (drop) (rethrow 0) end catch_all end",
    "(local.set $v (v128.const i32x4 1 2 3 4)) (local.set $w (local.get $v)) (drop (v128.const i64x2 -1 5))",
    "(global.set $u (i8x16.shuffle 3 1 2 0 4 31 5 6 7 8 9 10 11 12 13 14 (global.get $u) (local.get $v)))",
    "(local.set $v (select (local.get $v) (local.get $w) (i32.and (local.get $i) (i32.const 1))))",
    "(local.set $v (call $wide (local.get $i) (local.get $w))) (local.set $w (call $wide_tail (local.get $i) (local.get $v)))",
    "(local.set $v (call $wide_host (local.get $i) (local.get $v)))",
    "(local.set $w (block $a (result v128) (br_if $a (local.get $v) (local.get $i)) (drop) (local.get $w)))",
];

/// Likewise where memory `$m` has 64-bit addresses.
const BODIES64: &[&str] = &[
    "(i64.store (i64.const 8) (i64.load (i64.extend_i32_u (i32.and (local.get $i) (i32.const 1023)))))",
    "(i32.store8 (i64.extend_i32_u (i32.and (local.get $i) (i32.const 1023))) (i32.load16_u offset=0x100 (i64.const 8)))",
    "(f32.store offset=7 (i64.const 9) (f32.load (i64.const 3))) (f64.store (i64.const 9) (f64.const 3))",
    "(memory.init $passive (i64.const 8) (i32.const 0) (i32.const 4)) (drop (memory.grow (i64.const 0)))",
];

/// Likewise for every operator on vectors, with operands in the places that its handlers distinguish.
fn vector_bodies() -> Vec<String> {
    let mut bodies = Vec::new();
    for (names, count) in [(vectors::UNARY, 1), (vectors::BINARY, 2), (vectors::TERNARY, 3)] {
        let vectors = ["(local.get $v)", "(local.get $w)", "(local.get $v)"][..count].concat();
        bodies.extend(names.iter().map(|name| format!("(local.set $v ({name} {vectors}))")));
    }
    bodies.extend(vectors::TEST.iter().map(|name| format!("(local.set $j ({name} (local.get $v))) (drop ({name} (local.get $w)))")));
    // An i32 in a local, in the accumulator, and as an immediate.
    let numbers = ["(local.get $j)", "(i32.add (local.get $j) (i32.const 1))", "(i32.const 5)"];
    for i in numbers {
        bodies.extend(vectors::SHIFT.iter().map(|name| format!("(local.set $v ({name} (local.get $v) {i}))")));
        for (shape, number, lanes, _, extracts) in vectors::SHAPES {
            let value = match *number {
                "i32" => i.to_string(),
                "i64" => format!("(i64.extend_i32_u {i})"),
                _ => format!("({number}.convert_i32_s {i})"),
            };
            bodies.push(format!("(local.set $v ({shape}.splat {value}))"));
            bodies.push(format!("(local.set $v ({shape}.replace_lane {} (local.get $w) {value}))", lanes - 1));
            bodies.extend(extracts.iter().map(|suffix| format!("(drop ({shape}.extract_lane{suffix} 1 (local.get $v)))")));
        }
        for memory in ["$m", "$n"] {
            bodies.extend(vectors::LOAD.iter().map(|name| format!("(local.set $v ({name} {memory} (i32.and {i} (i32.const 1023))))")));
            bodies.push(format!("(v128.store {memory} (i32.and {i} (i32.const 1023)) (local.get $v))"));
            for bits in vectors::LANE_BITS {
                bodies.push(format!("(local.set $v (v128.load{bits}_lane {memory} 1 (i32.and {i} (i32.const 1023)) (local.get $w)))"));
                bodies.push(format!("(v128.store{bits}_lane {memory} 1 (i32.and {i} (i32.const 1023)) (local.get $w))"));
            }
        }
    }
    bodies
}

fn module(body: &str, index: &str) -> String {
    format!(
        r#"(module (type $unary (func (param i32) (result i32)))
            (import "env" "host" (func $host (param i32)))
            (import "env" "wide" (func $wide_host (param i32 v128) (result v128)))
            (memory $m {index} 1) (memory $n 1) (memory $wide i64 1) (memory $shared 1 1 shared) (table $t 10 funcref) (global $g (mut i32) (i32.const 0))
            (global $u (mut v128) (v128.const i32x4 4 3 2 1))
            (data $passive "data") (data $gone "x") (elem $funcs func $id $id) (elem $dropped func $id) (elem (i32.const 9) $id)
            (tag $e (param i32))
            (func $thrower (param i32) (throw $e (local.get 0)))
            (func $id (type $unary) (local.get 0))
            (func $tail (type $unary) (return_call $id (local.get 0)))
            (func $tail_indirect (type $unary) (return_call_indirect (type $unary) (local.get 0) (i32.const 9)))
            (func $tail_ref (type $unary) (return_call_ref $unary (local.get 0) (ref.func $id)))
            (func $pair (param i32) (result i32 i64) (local.get 0) (i64.const 3))
            (func $wide (param i32 v128) (result v128) (local.get 1))
            (func $wide_tail (param i32 v128) (result v128) (return_call $wide (local.get 0) (local.get 1)))
            (func (export "run") (param i32) (result i32) (local $i i32) (local $v v128) (local $j i32) (local $w v128) (local $x exnref)
                (loop $next {body}
                    (local.set $i (i32.add (local.get $i) (i32.const 1)))
                    (br_if $next (i32.lt_u (local.get $i) (local.get 0))))
                (local.get $i)))"#
    )
}

fn run<P: Probe>(mut probe: P) {
    let engine = Engine::default();
    let narrow = BODIES.iter().map(|body| body.to_string()).chain(vector_bodies()).map(|body| (body, "i32"));
    for (body, index) in narrow.chain(BODIES64.iter().map(|body| (body.to_string(), "i64"))) {
        let module = Module::from_text(&engine, &module(&body, index)).unwrap_or_else(|e| panic!("{body}: {e}"));
        let mut store = Store::new(&engine);
        let mut linker = Linker::new();
        let ty = FuncType::new([ValType::I32], []);
        linker.func("env", "host", ty, |_, _| Ok(Vec::new()));
        let ty = FuncType::new([ValType::I32, ValType::V128], [ValType::V128]);
        linker.func("env", "wide", ty, |_, args| Ok(vec![args[1]]));
        let instance = linker.instantiate(&mut store, &mut probe, &module).expect("no start function");
        store.set_trace_plan(instance, TracePlan { every_loop_of: Some(0), ..TracePlan::default() });
        let func = store.exported_func(instance, "run").expect("exported");
        let results = linker.call(&mut store, &mut probe, func, &[Val::I32(ROUNDS)]);
        assert_eq!(results, Ok(vec![Val::I32(ROUNDS)]), "{body}");
    }
}

fn in_a_small_thread(work: fn()) {
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(work).expect("a thread can be started");
    thread.join().expect("no panic");
}

#[test]
fn plain_code_keeps_the_native_stack_flat() {
    in_a_small_thread(|| run(NoProbe));
}

#[test]
fn traced_code_keeps_the_native_stack_flat() {
    in_a_small_thread(|| run(Clumsy));
}
