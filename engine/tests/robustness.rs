//! Broken modules give errors or traps, never a panic: every byte of small programs is flipped, many times over, and what still
//! validates is run for a while.

use std::sync::Arc;

use worksp_engine::probe::{NoProbe, Probe, TracePlan};
use worksp_engine::{Config, Engine, ExportItem, Extern, ExternType, InstanceId, Limits, Module, Step, Store, Val};

/// Programs that between them use every section and most families of operators.
const PROGRAMS: &[&str] = &[
    r#"(module
        (import "env" "f" (func $f (param i32 i64) (result f32)))
        (import "env" "g" (global $g (mut i32)))
        (memory (export "memory") 1 4)
        (global $sp (mut i32) (i32.const 1024))
        (data (i32.const 16) "hello, world")
        (data $passive "passive")
        (func $fib (export "fib") (param i32) (result i32)
            (if (result i32) (i32.lt_u (local.get 0) (i32.const 2))
                (then (local.get 0))
                (else (i32.add
                    (call $fib (i32.sub (local.get 0) (i32.const 1)))
                    (call $fib (i32.sub (local.get 0) (i32.const 2)))))))
        (func (export "sum") (param i32 i32) (result i32) (local i32)
            (block $done (loop $next
                (br_if $done (i32.eqz (local.get 1)))
                (local.set 2 (i32.add (local.get 2) (i32.load8_u offset=3 (local.get 0))))
                (i32.store16 offset=7 align=1 (local.get 0) (local.get 2))
                (i64.store32 (i32.const 64) (i64.load (i32.const 56)))
                (local.set 0 (i32.add (local.get 0) (i32.const 1)))
                (local.set 1 (i32.sub (local.get 1) (i32.const 1)))
                (br $next)))
            (local.get 2))
        (func (export "bulk") (param i32)
            (memory.copy (local.get 0) (i32.const 3) (i32.const 700))
            (memory.fill (i32.const 9) (local.get 0) (i32.const 99))
            (memory.init $passive (local.get 0) (i32.const 1) (i32.const 5))
            (data.drop $passive)
            (drop (memory.grow (i32.const 1))) (drop (memory.size)))
        (func (export "host") (param i32) (result f32)
            (global.set $sp (i32.sub (global.get $sp) (i32.const 16)))
            (f32.mul (call $f (local.get 0) (i64.const -1)) (f32.const 1.5))))"#,
    r#"(module
        (type $unary (func (param i64) (result i64)))
        (table $t (export "table") 8 16 funcref)
        (table $x 2 externref)
        (elem (table $t) (i32.const 1) func $neg $twice)
        (elem $more func $neg $twice $neg)
        (func $neg (type $unary) (i64.sub (i64.const 0) (local.get 0)))
        (func $twice (type $unary) (i64.mul (local.get 0) (i64.const 2)))
        (func (export "call") (param i32 i64) (result i64)
            (call_indirect $t (type $unary) (local.get 1) (local.get 0)))
        (func (export "tail") (param i32 i64) (result i64)
            (if (i64.eqz (local.get 1)) (then (return (i64.const 3))))
            (return_call_indirect $t (type $unary) (i64.sub (local.get 1) (i64.const 1)) (local.get 0)))
        (func $loop (export "loop") (param i64) (result i64)
            (if (i64.eqz (local.get 0)) (then (return (i64.const 0))))
            (return_call $loop (i64.sub (local.get 0) (i64.const 1))))
        (func (export "tables") (param i32)
            (table.set $t (local.get 0) (ref.func $neg))
            (drop (table.get $t (local.get 0)))
            (drop (table.grow $t (ref.null func) (i32.const 2)))
            (table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 3))
            (table.init $t $more (i32.const 2) (i32.const 0) (i32.const 2))
            (elem.drop $more)
            (table.fill $x (i32.const 0) (ref.null extern) (table.size $x))))"#,
    r#"(module
        (memory $a 1) (memory $b 1)
        (global (export "z") f64 (f64.const 0.25))
        (start $init)
        (func $init (i32.store $b (i32.const 4) (i32.const 77)))
        (func (export "floats") (param f32 f64) (result f64)
            (f64.add (f64.promote_f32 (f32.sqrt (local.get 0)))
                (f64.min (f64.copysign (local.get 1) (f64.const -2)) (f64.nearest (local.get 1)))))
        (func (export "convert") (param f64) (result i32 i64)
            (i32.trunc_sat_f64_s (local.get 0)) (i64.trunc_f64_u (local.get 0)))
        (func (export "divide") (param i32 i32) (result i32)
            (i32.rem_s (i32.div_s (local.get 0) (local.get 1)) (i32.rotl (local.get 1) (i32.const 3))))
        (func (export "pick") (param i32 i32) (result i32) (local i64 i64)
            (block $b0 (block $b1 (block $b2
                (br_table $b0 $b1 $b2 (local.get 0)))
                (return (select (i32.const 1) (i32.const 2) (local.get 1))))
                (drop (block (result i32 i64) (i32.const 5) (i64.const 6)) (i32.wrap_i64))
                (return (i32.clz (local.get 1))))
            (memory.copy $a $b (i32.const 0) (i32.const 4) (i32.const 4))
            (i32.extend8_s (i32.load $a (i32.const 0)))))"#,
    r#"(module
        (import "env" "v" (func $v (param i32 v128) (result v128 i64)))
        (memory $a 1) (memory $b 1)
        (global $g (mut v128) (v128.const f64x2 1 2))
        (func $add (export "add") (param v128 i32 v128) (result v128 v128) (local i32 v128)
            (local.set 4 (i16x8.add_sat_u (local.get 0) (local.get 2)))
            (f32x4.relaxed_madd (local.get 4) (local.get 0) (local.get 2))
            (i8x16.shuffle 0 31 2 29 4 27 6 25 8 23 10 21 12 19 14 17 (local.get 4) (local.get 0)))
        (func (export "memory") (param i32) (result v128)
            (v128.store offset=4 (local.get 0) (v128.load8x8_s $b (local.get 0)))
            (v128.store16_lane $b 3 (i32.const 9) (global.get $g))
            (v128.load64_lane 1 (local.get 0) (v128.load32_splat offset=77 (i32.const 1))))
        (func (export "lanes") (param i64 v128) (result i32)
            (global.set $g (i64x2.replace_lane 1 (i8x16.shl (local.get 1) (i32.wrap_i64 (local.get 0))) (local.get 0)))
            (i32.add (i8x16.bitmask (global.get $g)) (i16x8.extract_lane_s 5 (local.get 1))))
        (func (export "control") (param i32 v128) (result v128)
            (block $b (result v128)
                (br_if $b (local.get 1) (local.get 0)) (drop)
                (br_table $b $b (f32x4.splat (f32.const 2)) (local.get 0))))
        (func (export "host") (param i32) (result i64)
            (call $v (local.get 0) (select (global.get $g) (v128.const i32x4 1 2 3 4) (local.get 0))) (i64.add (i64.const 1))
            (global.set $g (i64x2.splat)) (i64x2.extract_lane 1))
        (func (export "tail") (param i32) (result v128 v128)
            (return_call $add (i32x4.splat (local.get 0)) (i32.const 1) (v128.const i32x4 1 2 3 4))))"#,
    r#"(module
        (import "env" "f" (func $f (param i32) (result i32)))
        (import "env" "e" (tag $e (param i32 v128)))
        (tag $t (export "t")) (tag $x (param exnref i64))
        (memory 1) (global $g (mut exnref) (ref.null exn)) (table $k 3 exnref)
        (func $throw (export "throw") (param i32) (result i32) (local v128)
            (if (i32.eqz (local.get 0)) (then (throw $t)))
            (if (i32.and (local.get 0) (i32.const 1)) (then (throw $e (local.get 0) (local.get 1))))
            (throw $x (global.get $g) (i64.extend_i32_s (local.get 0))))
        (func (export "newer") (param i32) (result i32) (local exnref i32)
            (block $done (result i32)
                (block $h0 (result exnref i64)
                    (block $h1 (result i32 v128 exnref)
                        (loop $l
                            (block $h2 (result exnref)
                                (try_table (catch_ref $e $h1) (catch $x $h0) (catch_all_ref $h2)
                                    (br $done (call $throw (call $f (local.get 2)))))
                                (unreachable))
                            (local.set 1) (table.set $k (i32.const 1) (local.get 1))
                            (local.set 2 (i32.add (local.get 2) (i32.const 1)))
                            (br_if $l (i32.lt_u (local.get 2) (local.get 0))))
                        (return (i32.const 3)))
                    (global.set $g) (drop) (drop)
                    (block $again (result exnref) (try_table (catch_all_ref $again) (throw_ref (global.get $g))) (ref.null exn))
                    (i64.const 4))
                (i32.wrap_i64) (local.set 2) (drop) (local.get 2)))
        (func (export "tail") (param i32) (result i32)
            (block $h (try_table (catch_all $h) (return_call $throw (local.get 0)))) (i32.const 1))
        (func (export "older") (param i32) (result i32)
            try $o (result i32)
                try (result i32)
                    try (result i32) (call $throw (local.get 0)) delegate $o
                catch_all (i32.const 1) end
            catch $e (drop) (if (local.get 0) (then (rethrow $o)))
            catch $x (drop) (global.set $g) (i32.const 5)
            catch_all (i32.const 2)
            end))"#,
    r#"(module
        (memory $a i64 1 3) (memory $b 1 2 shared) (memory $c 100 (pagesize 1)) (table $t i64 3 9 funcref)
        (data $d "data") (elem (table $t) (i64.const 1) func $sum)
        (func $sum (export "sum") (param i64 i64) (result i64 i64)
            (i64.add128 (local.get 0) (local.get 1) (i64.const -1) (i64.load offset=0x1_0000_0000 (local.get 0)))
            (i64.mul_wide_u (i64.const 3)) (i64.sub128 (i64.const 5) (local.get 0)) (local.set 0))
        (func (export "wide") (param i64) (result i64)
            (i64.store16 offset=7 (local.get 0) (i64.load32_s (i64.const 16)))
            (v128.store (local.get 0) (v128.load8_splat (i64.const 3)))
            (memory.copy $a $b (local.get 0) (i32.const 1) (i32.const 3))
            (memory.init $a $d (local.get 0) (i32.const 1) (i32.const 2))
            (memory.fill $c (i32.const 90) (i32.const 7) (i32.wrap_i64 (local.get 0)))
            (drop (memory.grow $c (i32.const 77)))
            (table.set $t (local.get 0) (table.get $t (i64.const 1)))
            (i64.add (memory.grow $a (i64.const 1)) (table.grow $t (ref.func $sum) (local.get 0))))
        (func (export "atomics") (param i32 i64) (result i32)
            (i64.atomic.store (local.get 1) (i64.atomic.load32_u $b (local.get 0)))
            (drop (i64.atomic.rmw8.cmpxchg_u $b offset=3 (local.get 0) (i64.const 0) (i64.const 9)))
            (drop (memory.atomic.notify (local.get 1) (i32.const 1)))
            (if (i32.atomic.rmw.add $b (i32.const 8) (i32.const 1)) (then (atomic.fence)))
            (memory.atomic.wait32 $b (local.get 0) (i32.const 1) (i64.const 0))))"#,
    r#"(module
        (type $unary (func (param i32) (result i32))) (type $chooser (func (param (ref null $unary)) (result (ref $unary))))
        (import "env" "f" (func $f (type $unary)))
        (table $t 4 9 (ref $unary) (ref.func $f)) (global $g (mut (ref null $unary)) (ref.null $unary))
        (elem (table $t) (i32.const 1) (ref $unary) (ref.func $twice)) (elem declare func $choose)
        (func $twice (export "twice") (type $unary) (i32.mul (local.get 0) (i32.const 2)))
        (func $choose (type $chooser) (local (ref $unary))
            (local.set 1 (ref.func $twice))
            (block $null (return (br_on_null $null (local.get 0))))
            (local.get 1))
        (func (export "call") (param i32) (result i32)
            (call_ref $unary (local.get 0) (table.get $t (local.get 0))))
        (func (export "tail") (param i32) (result i32)
            (if (i32.and (local.get 0) (i32.const 1)) (then (global.set $g (ref.func $twice))))
            (return_call_ref $unary (local.get 0) (call_ref $chooser (global.get $g) (ref.func $choose))))
        (func (export "branch") (param i32) (result i32) (local (ref $unary))
            (block $some (result (ref $unary)) (br_on_non_null $some (global.get $g)) (return (i32.const 7)))
            (local.set 1) (table.set $t (local.get 0) (local.get 1))
            (drop (table.grow $t (ref.as_non_null (global.get $g)) (i32.const 2)))
            (call_indirect $t (type $unary) (local.get 0) (local.get 0))))"#,
];

/// Mutants of each program. Ten thousand and more in all, each run plain and traced when it is valid.
const MUTANTS: u64 = 5_000;

struct Ignore;
impl Probe for Ignore {}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

fn engine() -> Engine {
    let limits = Limits { memory_bytes_max: 1 << 20, table_elements_max: 1000, call_depth_max: 500, stack_bytes_max: 1 << 18, exception_bytes_max: 1 << 16 };
    Engine::new(Config { fuel: true, limits, ..Config::default() })
}

/// Whatever the module imports, made on the spot.
fn imports(store: &mut Store, module: &Module) -> Option<Vec<Extern>> {
    let make = |(number, import): (usize, &worksp_engine::Import)| match import.ty.clone() {
        ExternType::Func(ty) => Some(Extern::Func(store.host_func(ty, number as u32))),
        ExternType::Memory(ty) => store.new_memory(ty).ok().map(Extern::Memory),
        ExternType::Table(ty) => store.new_table(ty, Val::zero(ty.element)).ok().map(Extern::Table),
        ExternType::Global(ty) => store.new_global(ty, Val::zero(ty.content)).ok().map(Extern::Global),
        ExternType::Tag(ty) => Some(Extern::Tag(store.new_tag(ty))),
    };
    module.imports().iter().enumerate().map(make).collect()
}

/// Calls a function and answers its host calls with zeros. Returns whether it ended in time.
fn call<P: Probe>(store: &mut Store, probe: &mut P, instance: InstanceId, func: u32, arg: u64) -> bool {
    store.set_fuel(3_000);
    let func = store.func(instance, func);
    let params = store.func_type(func).params().to_vec();
    let args: Vec<Val> = params.iter().map(|ty| if ty.is_ref() { Val::zero(*ty) } else { Val::from_raw(*ty, arg) }).collect();
    let mut step = store.start(probe, func, &args).expect("arguments of the right types");
    for _ in 0..1000 {
        match step {
            Step::Returned(_) => return true,
            Step::Suspended(_) => {
                let trap = store.abandon(probe).expect("a suspended run");
                assert!(trap.kind() == worksp_engine::TrapKind::OutOfFuel && !trap.backtrace().is_empty());
                return true;
            }
            Step::Trapped(trap) => {
                assert!(!trap.to_string().is_empty());
                return true;
            }
            Step::HostCall(call) => {
                let ExternType::Func(ty) = &store.module(instance).imports()[call.import as usize].ty else {
                    panic!("a host call of an import that is no function");
                };
                let results: Vec<Val> = ty.results().iter().map(|ty| Val::zero(*ty)).collect();
                step = store.resume(probe, &results).expect("results of the right types");
            }
        }
    }
    store.unwind(probe);
    false
}

/// Loads, instantiates and runs what may be no module at all. Returns whether it was one.
fn exercise<P: Probe>(engine: &Engine, bytes: &[u8], mut probe: P) -> bool {
    let Ok(module) = Module::new(engine, bytes) else {
        return false;
    };
    let mut store = Store::new(engine);
    let Some(imports) = imports(&mut store, &module) else {
        return true;
    };
    let Ok(instance) = store.instantiate(&module, &imports) else {
        return true;
    };
    // A flipped byte can make a timeout of years.
    store.on_wait(Arc::new(|_| {}));
    store.set_trace_plan(instance, TracePlan { every_loop_of: Some(0), ..TracePlan::default() });
    let exported = module.exports().iter().filter_map(|export| match export.item {
        ExportItem::Func(func) => Some(func),
        _ => None,
    });
    for func in module.start().into_iter().chain(exported) {
        for arg in [0, 3, 0xffff_fff0_ffff_fff0] {
            call(&mut store, &mut probe, instance, func, arg);
        }
    }
    true
}

#[test]
fn flipped_bytes_never_panic() {
    let seed = 0x5eed;
    println!("seed {seed:#x}");
    let engine = engine();
    let mut random = Random(seed);
    let (mut mutants, mut valid) = (0, 0);
    for text in PROGRAMS {
        let original = wat::parse_str(text).expect("the program is valid");
        assert!(exercise(&engine, &original, NoProbe), "the program loads");
        for _ in 0..MUTANTS {
            let mut bytes = original.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] ^= match random.below(3) {
                    0 => random.next() as u8,
                    _ => 1 << random.below(8),
                };
            }
            mutants += 1;
            valid += u32::from(exercise(&engine, &bytes, NoProbe));
            exercise(&engine, &bytes, Ignore);
        }
    }
    println!("{mutants} mutants, {valid} of them valid");
    assert!(mutants >= 10_000 && valid >= 1_000, "mutation makes too few programs that run: {valid} of {mutants}");
}

#[test]
fn truncated_modules_never_panic() {
    let engine = engine();
    for text in PROGRAMS {
        let original = wat::parse_str(text).expect("the program is valid");
        for len in 0..original.len() {
            exercise(&engine, &original[..len], NoProbe);
        }
    }
}
