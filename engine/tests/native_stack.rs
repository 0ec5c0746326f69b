//! A handler that does not end in a jump grows the native stack with every instruction. Every family of operators runs many times
//! in a thread with a small stack here; in optimised builds, where handlers call one another, a handler that returns late dies.

use std::ops::Range;

use worksp_engine::probe::{LoopRef, NoProbe, Probe, Rmw, SiteId, TracePlan};
use worksp_engine::{Engine, Linker, Module, Store, Val};

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
    fn loop_iter(&mut self, _: LoopRef, _: u64) {
        clutter();
    }
}

const ROUNDS: i32 = 100_000;

/// Statements that leave nothing on the stack; `$i` is the round.
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
    "(drop (i32.trunc_f64_s (f64.sqrt (f64.convert_i32_u (local.get $i)))))",
    "(drop (i64.rem_s (i64.div_u (i64.const -9) (i64.extend_i32_u (i32.or (local.get $i) (i32.const 1)))) (i64.const 7)))",
    "(drop (f32.min (f32.nearest (f32.const 2.5)) (f32.copysign (f32.const 1) (f32.const -2))))",
    "(drop (select (i32.const 3) (local.get $i) (i32.and (local.get $i) (i32.const 1))))",
    "(block $a (block $b (block $c (br_table $a $b $c (i32.rem_u (local.get $i) (i32.const 4))))))",
    "(if (i32.eqz (local.get $i)) (then (nop)) (else (local.set $j (local.get $i))))",
    "(call $host (local.get $i))",
];

fn module(body: &str) -> String {
    format!(
        r#"(module (type $unary (func (param i32) (result i32)))
            (import "env" "host" (func $host (param i32)))
            (memory $m 1) (memory $n 1) (table $t 10 funcref) (global $g (mut i32) (i32.const 0))
            (data $passive "data") (data $gone "x") (elem $funcs func $id $id) (elem $dropped func $id) (elem (i32.const 9) $id)
            (func $id (type $unary) (local.get 0))
            (func $tail (type $unary) (return_call $id (local.get 0)))
            (func $tail_indirect (type $unary) (return_call_indirect (type $unary) (local.get 0) (i32.const 9)))
            (func $pair (param i32) (result i32 i64) (local.get 0) (i64.const 3))
            (func (export "run") (param i32) (result i32) (local $i i32) (local $j i32)
                (loop $next {body}
                    (local.set $i (i32.add (local.get $i) (i32.const 1)))
                    (br_if $next (i32.lt_u (local.get $i) (local.get 0))))
                (local.get $i)))"#
    )
}

fn run<P: Probe>(mut probe: P) {
    let engine = Engine::default();
    for body in BODIES {
        let module = Module::from_text(&engine, &module(body)).unwrap_or_else(|e| panic!("{body}: {e}"));
        let mut store = Store::new(&engine);
        let mut linker = Linker::new();
        let ty = worksp_engine::FuncType::new([worksp_engine::ValType::I32], []);
        linker.func("env", "host", ty, |_, _| Ok(Vec::new()));
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
