//! Saved stores: they go on where they were, and what is damaged is refused.

#[path = "common/suspended.rs"]
mod suspended;

use worksp_engine::probe::{NoProbe, Probe};
use worksp_engine::{Config, Engine, Extern, FuncType, GlobalType, Limits, MemoryType, Module, SnapshotError, Step, Store, Suspension, Val, ValType};

use suspended::PROGRAM;

fn engine() -> Engine {
    Engine::new(Config { fuel: true, ..Config::default() })
}

fn save(store: &Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.save(&mut bytes).expect("a vector can be written");
    bytes
}

/// `run(30)`, and what it gives, suspended after some work.
fn suspended(engine: &Engine, module: &Module, fuel: u64) -> Store {
    let mut store = Store::new(engine);
    let instance = store.instantiate(module, &[]).expect("no imports");
    let run = store.exported_func(instance, "run").expect("exported");
    store.set_fuel(fuel);
    assert!(matches!(store.start(&mut NoProbe, run, &[Val::I32(30)]), Ok(Step::Suspended(Suspension::OutOfFuel { .. }))));
    store
}

/// `run(30)`, saved and restored at every pause; what it gives, and how often it was saved.
fn saved_at_every_pause(text: &str) -> (Step, u32) {
    let engine = engine();
    let module = Module::from_text(&engine, text).expect("valid");
    let mut whole = suspended(&engine, &module, 20);
    whole.set_fuel(1 << 40);
    let expected = (whole.proceed(&mut NoProbe), whole.work());
    let mut store = suspended(&engine, &module, 20);
    let mut saves = 0;
    let step = loop {
        // Another engine: nothing is shared but the module's bytes.
        let engine = Engine::new(engine.config().clone());
        let module = Module::new(&engine, module.bytes()).expect("valid");
        store = Store::restore(&engine, &[module], &save(&store)).expect("it was saved just now");
        let Some(Step::Suspended(Suspension::OutOfFuel { missing })) = store.pending() else { panic!("it waits for fuel") };
        store.set_fuel(store.fuel().expect("there is a limit") + missing.max(97));
        saves += 1;
        match store.proceed(&mut NoProbe) {
            Ok(Step::Suspended(_)) => {}
            step => break step,
        }
    };
    assert_eq!((&step, store.work()), (&expected.0, expected.1));
    (step.expect("it goes on"), saves)
}

#[test]
fn a_store_may_be_saved_at_every_pause() {
    let (_, saves) = saved_at_every_pause(PROGRAM);
    assert!(saves > 60, "{saves}");
}

#[test]
fn memories_tables_and_references_of_every_kind_are_kept() {
    let text = r#"(module
        (type $leaf (func (param i32) (result i32)))
        (type $outer (func (param (ref $leaf) i32) (result i32)))
        (memory $m i64 1 4) (memory $s 1 2 shared) (memory $p 3 9 (pagesize 1))
        (table $t i64 2 9 (ref null $leaf))
        (global $g (mut (ref null $outer)) (ref.null $outer))
        (elem declare func $add $apply)
        (func $add (type $leaf) (i32.add (local.get 0) (i32.const 3)))
        (func $apply (type $outer) (call_ref $leaf (local.get 1) (local.get 0)))
        (func (export "run") (param i32) (result i32) (local $sum i32)
            (global.set $g (ref.func $apply))
            (table.set $t (i64.const 1) (ref.func $add))
            (loop $again
                (local.set $sum (i32.add (local.get $sum)
                    (call_ref $outer (ref.as_non_null (table.get $t (i64.const 1))) (local.get 0) (ref.as_non_null (global.get $g)))))
                (i64.store $m (i64.const 65528) (i64.extend_i32_u (local.get $sum)))
                (drop (i32.atomic.rmw.add $s (i32.const 8) (i32.const 1)))
                (i32.store8 $p (i32.const 2) (local.get $sum))
                (br_if $again (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))
            (i32.add
                (i32.add (local.get $sum) (i32.atomic.load $s (i32.const 8)))
                (i32.add (i32.wrap_i64 (i64.load $m (i64.const 65528))) (i32.load8_u $p (i32.const 2))))))"#;
    let (step, saves) = saved_at_every_pause(text);
    let sum: i32 = (1..=30).map(|i| i + 3).sum();
    assert_eq!(step, Step::Returned(vec![Val::I32(sum + 30 + sum + sum % 256)]));
    assert!(saves > 5, "{saves}");
}

#[test]
fn everything_is_kept() {
    let engine = engine();
    let text = r#"(module (import "env" "g" (global $g (mut v128))) (import "env" "m" (memory 2 9)) (import "env" "h" (func $h (param i64 v128) (result i32)))
        (table $t 3 20 funcref) (elem $e func $run $h $inner) (data $d "abc") (global $own (mut i32) (i32.const 4)) (tag $tag (param i32))
        (func $inner (param i32) (result i32) (call $h (i64.const 7) (global.get $g)) (i32.add (local.get 0)))
        (func $run (export "run") (param i32) (result i32)
            (elem.drop $e) (table.set $t (i32.const 2) (ref.func $inner))
            (drop (table.grow $t (ref.func $h) (i32.const 2))) (drop (memory.grow (i32.const 3)))
            (memory.init $d (i32.const 300000) (i32.const 0) (i32.const 3)) (data.drop $d)
            (global.set $own (i32.const 5))
            (block $b (result i32) (try_table (result i32) (catch $tag $b)
                (i32.add (call $inner (local.get 0)) (throw $tag (i32.add (global.get $own) (table.size $t))))))
            (i32.add (i32.load8_u (i32.const 300001)))))"#;
    let module = Module::from_text(&engine, text).expect("valid");
    let mut store = Store::new(&engine);
    let g = store.new_global(GlobalType { content: ValType::V128, mutable: true }, Val::V128(9 << 90)).expect("it fits");
    let m = store.new_memory(MemoryType::new(2, Some(9))).expect("it fits");
    let h = store.host_func(FuncType::new([ValType::I64, ValType::V128], [ValType::I32]), 12);
    let instance = store.instantiate(&module, &[Extern::Global(g), Extern::Memory(m), Extern::Func(h)]).expect("they fit");
    let run = store.exported_func(instance, "run").expect("exported");
    let step = store.start(&mut NoProbe, run, &[Val::I32(1)]).expect("runs");
    let Step::HostCall(call) = &step else { panic!("{step:?}") };
    assert_eq!((call.import, &*call.args), (12, &[Val::I64(7), Val::V128(9 << 90)][..]));

    let mut restored = Store::restore(&engine, std::slice::from_ref(&module), &save(&store)).expect("it was saved just now");
    assert_eq!(restored.pending(), Some(step));
    for store in [&mut store, &mut restored] {
        let table = store.table_id(instance, 0);
        assert_eq!((store.memory_pages(m), &store.memory(m)[299_999..300_004]), (5, &b"\0abc\0"[..]));
        assert_eq!(store.table_get(table, 2), Some(Val::FuncRef(Some(store.func(instance, 1)))));
        assert_eq!((store.table_get(table, 4), store.table_get(table, 5)), (Some(Val::FuncRef(Some(h))), None));
        assert_eq!(store.resume(&mut NoProbe, &[Val::I32(6)]), Ok(Step::Returned(vec![Val::I32(5 + 5 + 98)])));
        store.set_fuel(1000);
    }
    assert_eq!(store.work(), restored.work());
    assert_eq!(save(&store), save(&restored));
}

/// Is told of everything.
struct Traced;
impl Probe for Traced {}

#[test]
fn a_run_changes_its_probe_where_nothing_is_in_the_accumulator() {
    let engine = engine();
    let module = Module::from_text(&engine, PROGRAM).expect("valid");
    let mut whole = suspended(&engine, &module, 20);
    whole.set_fuel(1 << 40);
    let expected = (whole.proceed(&mut NoProbe), whole.work());
    let mut refused = 0;
    for fuel in 10..200 {
        let mut store = suspended(&engine, &module, fuel);
        store.set_fuel(1 << 40);
        let work = store.work();
        let (step, work) = match store.proceed(&mut Traced) {
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("accumulator") || error.to_string().contains("of the shape"), "{error}");
                assert_eq!(store.work(), work);
                (store.proceed(&mut NoProbe), store.work())
            }
            step => (step, store.work()),
        };
        assert_eq!((step, work), expected, "{fuel}");
    }
    assert!((1..180).contains(&refused), "{refused} of 190");
}

#[test]
fn what_is_damaged_is_refused() {
    let engine = engine();
    let module = Module::from_text(&engine, PROGRAM).expect("valid");
    let good = save(&suspended(&engine, &module, 5000));
    let restore = |bytes: &[u8]| Store::restore(&engine, std::slice::from_ref(&module), bytes);
    assert!(restore(&good).is_ok());
    for len in (0..good.len()).step_by(7) {
        assert!(restore(&good[..len]).is_err(), "cut at {len}");
    }
    for bit in (0..8 * good.len()).step_by(if good.len() > 20_000 { 101 } else { 1 }) {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        // Eight bits of the header mean nothing as yet.
        assert!((96..128).contains(&bit) || restore(&bytes).is_err(), "bit {bit}");
    }
    assert!(matches!(restore(b"\0asm"), Err(SnapshotError::Foreign)));
    let mut other = good.clone();
    other[8] = 9;
    assert!(matches!(restore(&other), Err(SnapshotError::Version(_))));
}

#[test]
fn what_is_made_up_does_no_harm() {
    let engine = engine();
    let module = Module::from_text(&engine, PROGRAM).expect("valid");
    let good = save(&suspended(&engine, &module, 5000));
    let (mut random, mut restored) = (0x5eed_u64, 0);
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        // Most of what matters is at the end, behind the memory's contents.
        for _ in 0..1 + next(3) {
            let at = if next(4) == 0 { 88 + next(good.len() - 88) } else { good.len() - 1 - next(1500.min(good.len() - 88)) };
            bytes[at] = if next(2) == 0 { next(256) as u8 } else { bytes[at] ^ (1 << next(8)) };
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&bytes[..56]).update(&bytes[88..]);
        bytes[56..88].copy_from_slice(hasher.finalize().as_bytes());
        if let Ok(mut store) = Store::restore(&engine, std::slice::from_ref(&module), &bytes) {
            restored += 1;
            let _ = store.pending();
            store.set_fuel(0);
            let _ = store.proceed(&mut NoProbe);
        }
    }
    println!("{restored} of 20000 can be restored");
}

#[test]
fn what_does_not_fit_is_named() {
    let engine = engine();
    let module = Module::from_text(&engine, PROGRAM).expect("valid");
    let good = save(&suspended(&engine, &module, 5000));
    let message = |engine: &Engine, modules: &[Module]| match Store::restore(engine, modules, &good) {
        Ok(_) => panic!("it was restored"),
        Err(error) => error.to_string(),
    };
    assert!(message(&engine, &[]).contains("needs a module whose BLAKE3 hash is"));
    let plain = Engine::new(Config::default());
    let again = Module::new(&plain, module.bytes()).expect("valid");
    assert!(message(&plain, &[again]).contains("`fuel` set otherwise"));
    let small = Engine::new(Config { limits: Limits { memory_bytes_max: 0, ..Limits::default() }, ..engine.config().clone() });
    assert!(message(&small, &[Module::new(&small, module.bytes()).expect("valid")]).contains("raise the memory limit"));
    let shallow = Engine::new(Config { limits: Limits { stack_bytes_max: 0, call_depth_max: 1, ..Limits::default() }, ..engine.config().clone() });
    let module = Module::new(&shallow, module.bytes()).expect("valid");
    let found = Store::restore(&shallow, &[module], &good).map(|mut store| store.proceed(&mut NoProbe));
    assert!(!matches!(found, Ok(Ok(Step::Returned(_)))));
}
