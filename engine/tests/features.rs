//! What newer features do that the specification's suite does not ask for: limits, the host's side of references, waiting.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use worksp_engine::probe::{NoProbe, Probe, Rmw, SiteId};
use worksp_engine::{
    CallError, Config, Engine, Error, Extern, FuncType, FuncTypeRef, InstanceId, Limits, Linker, MemoryType, Module, Store, TableType,
    TrapKind, Val, ValType,
};

struct Setup {
    store: Store,
    linker: Linker,
    instance: InstanceId,
}

impl Setup {
    fn new(engine: &Engine, text: &str) -> Setup {
        let module = Module::from_text(engine, text).unwrap_or_else(|e| panic!("{e}"));
        let (mut store, linker) = (Store::new(engine), Linker::new());
        let instance = linker.instantiate(&mut store, &mut NoProbe, &module).unwrap_or_else(|e| panic!("{e}"));
        Setup { store, linker, instance }
    }

    fn call<P: Probe>(&mut self, probe: &mut P, name: &str, args: &[Val]) -> Result<Vec<Val>, CallError> {
        let func = self.store.exported_func(self.instance, name).expect("exported");
        self.linker.call(&mut self.store, probe, func, args)
    }

    fn traps(&mut self, name: &str, args: &[Val]) -> TrapKind {
        match self.call(&mut NoProbe, name, args) {
            Err(CallError::Trap(trap)) => trap.kind(),
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// Notes the addresses of loads and stores.
#[derive(Default)]
struct Addresses(Vec<u64>);

impl Probe for Addresses {
    fn load(&mut self, _: SiteId, _: u32, addr: u64, _: u32, _: Rmw) {
        self.0.push(addr);
    }

    fn store(&mut self, _: SiteId, _: u32, addr: u64, _: u32, _: Rmw) {
        self.0.push(addr);
    }
}

#[test]
fn a_memory_may_be_larger_than_32_bits() {
    let limits = Limits { memory_bytes_max: 6 << 30, ..Limits::default() };
    let engine = Engine::new(Config { limits, ..Config::default() });
    let text = r#"(module (memory i64 0 1000000)
        (func (export "grow") (param i64) (result i64) (memory.grow (local.get 0)))
        (func (export "touch") (param i64) (result i64)
            (i64.store offset=0x1_0000_0000 (local.get 0) (i64.const 7))
            (i32.store offset=8 (i64.add (local.get 0) (i64.const 0x1_0000_0000)) (i32.const 1))
            (v128.store offset=0x1_0000_0010 (local.get 0) (v128.load offset=0x1_0000_0000 (local.get 0)))
            (drop (i64.atomic.rmw.add offset=0x1_0000_0018 (local.get 0) (i64.const 5)))
            (memory.copy (i64.const 3) (i64.add (local.get 0) (i64.const 0x1_0000_0010)) (i64.const 16))
            (i64.add (i64.load (i64.const 3)) (i64.load offset=3 (i64.const 8)))))"#;
    let mut setup = Setup::new(&engine, text);
    assert_eq!(setup.call(&mut NoProbe, "grow", &[Val::I64(6 << 14)]), Ok(vec![Val::I64(0)]));
    assert_eq!(setup.call(&mut NoProbe, "grow", &[Val::I64(1)]), Ok(vec![Val::I64(-1)]), "the limit");
    let at = (1 << 30) + 1;
    assert_eq!(setup.traps("touch", &[Val::I64(at)]), TrapKind::UnalignedAtomic);
    let (at, far) = (1 << 30, 5u64 << 30);
    assert_eq!(setup.call(&mut NoProbe, "touch", &[Val::I64(at)]), Ok(vec![Val::I64(13)]));
    let mut probe = Addresses::default();
    assert_eq!(setup.call(&mut probe, "touch", &[Val::I64(at)]), Ok(vec![Val::I64(13)]));
    assert_eq!(probe.0, [far, far + 8, far, far + 16, far + 24, far + 24, 3, 11]);
    assert_eq!(setup.traps("touch", &[Val::I64((2 << 30) - 8)]), TrapKind::MemoryOutOfBounds);
    assert_eq!(setup.traps("touch", &[Val::I64(-0x1_0000_0000)]), TrapKind::MemoryOutOfBounds, "addresses do not wrap");
}

#[test]
fn pages_of_a_byte_have_exact_bounds() {
    let text = r#"(module (memory 5 9 (pagesize 1))
        (func (export "load") (param i32) (result i32) (i32.load16_u (local.get 0)))
        (func (export "grow") (param i32) (result i32 i32) (memory.grow (local.get 0)) (memory.size)))"#;
    let mut setup = Setup::new(&Engine::default(), text);
    assert_eq!(setup.call(&mut NoProbe, "load", &[Val::I32(3)]), Ok(vec![Val::I32(0)]));
    assert_eq!(setup.traps("load", &[Val::I32(4)]), TrapKind::MemoryOutOfBounds);
    assert_eq!(setup.call(&mut NoProbe, "grow", &[Val::I32(4)]), Ok(vec![Val::I32(5), Val::I32(9)]));
    assert_eq!(setup.call(&mut NoProbe, "load", &[Val::I32(7)]), Ok(vec![Val::I32(0)]));
    assert_eq!(setup.call(&mut NoProbe, "grow", &[Val::I32(1)]), Ok(vec![Val::I32(-1), Val::I32(9)]));
    let memory = setup.store.memory_id(setup.instance, 0);
    assert_eq!((setup.store.memory(memory).len(), setup.store.memory_pages(memory)), (9, 9));
}

#[test]
fn who_waits_asks_the_host_to_let_time_pass() {
    let text = r#"(module (memory 1 1 shared)
        (func (export "wait") (param i32 i64) (result i32) (memory.atomic.wait32 (i32.const 8) (local.get 0) (local.get 1))))"#;
    let mut setup = Setup::new(&Engine::default(), text);
    let waits = Arc::new(Mutex::new(Vec::new()));
    let noted = waits.clone();
    setup.store.on_wait(Arc::new(move |time| noted.lock().unwrap().push(time)));
    let mut wait = |expected, timeout| setup.call(&mut NoProbe, "wait", &[Val::I32(expected), Val::I64(timeout)]);
    assert_eq!(wait(1, i64::MAX), Ok(vec![Val::I32(1)]), "another value is there");
    assert_eq!(wait(0, i64::MAX), Ok(vec![Val::I32(2)]));
    assert_eq!(wait(0, 0), Ok(vec![Val::I32(2)]));
    let Err(CallError::Trap(trap)) = wait(0, -1) else { panic!("it cannot end") };
    assert_eq!((trap.kind(), trap.backtrace().len()), (TrapKind::EndlessWait, 1));
    assert_eq!(*waits.lock().unwrap(), [Duration::from_nanos(i64::MAX as u64), Duration::ZERO]);
}

#[test]
fn a_host_keeps_to_the_types_of_references() {
    let text = r#"(module
        (type $unary (func (param i32) (result i32))) (type $taker (func (param (ref $unary))))
        (table (export "t") 2 (ref null $unary)) (global (export "g") (mut (ref null $taker)) (ref.null $taker))
        (func $id (export "id") (type $unary) (local.get 0)) (func (export "take") (type $taker))
        (func (export "pick") (param (ref null $unary)) (result (ref $unary)) (ref.as_non_null (local.get 0))))"#;
    let mut setup = Setup::new(&Engine::default(), text);
    let func = |setup: &Setup, name| Val::FuncRef(Some(setup.store.exported_func(setup.instance, name).unwrap()));
    let (id, take, null) = (func(&setup, "id"), func(&setup, "take"), Val::FuncRef(None));
    let Some((Extern::Table(table), Extern::Global(global))) =
        setup.store.export(setup.instance, "t").zip(setup.store.export(setup.instance, "g"))
    else {
        panic!("they are exported")
    };
    assert!(setup.store.table_set(table, 0, id).is_ok() && setup.store.table_set(table, 1, null).is_ok());
    assert!(matches!(setup.store.table_set(table, 0, take), Err(Error::BadWrite(_))));
    assert_eq!((setup.store.table_grow(table, 1, take), setup.store.table_grow(table, 1, id)), (None, Some(2)));
    assert!(setup.store.set_global(global, take).is_ok() && setup.store.set_global(global, id).is_err());
    assert_eq!(setup.call(&mut NoProbe, "take", &[id]), Ok(vec![]));
    for wrong in [take, null, Val::I32(1)] {
        assert!(matches!(setup.call(&mut NoProbe, "take", &[wrong]), Err(CallError::Error(Error::ValueTypes { .. }))), "{wrong}");
    }
    assert_eq!(setup.call(&mut NoProbe, "pick", &[id]), Ok(vec![id]));
    assert_eq!(setup.traps("pick", &[null]), TrapKind::NullReference);
    // A table of the host's, by the same type made anew.
    let unary = FuncTypeRef::new(&FuncType::new([ValType::I32], [ValType::I32]));
    let ty = TableType::new(ValType::SomeTypedFuncRef(unary), 3, None);
    assert!(matches!(setup.store.new_table(ty, null), Err(Error::BadWrite(_))));
    let table = setup.store.new_table(ty, id).unwrap();
    assert_eq!(setup.store.table_get(table, 2), Some(id));
}

#[test]
fn types_of_references_match_by_structure_across_modules() {
    let engine = Engine::default();
    let provider = r#"(module (type (func)) (type $f (func (param i64) (result i64))) (type $g (func (param (ref $f)) (result i64)))
        (func $twice (type $f) (i64.add (local.get 0) (local.get 0)))
        (global (export "twice") (ref $f) (ref.func $twice))
        (func (export "apply") (type $g) (call_ref $f (i64.const 21) (local.get 0))))"#;
    let mut setup = Setup::new(&engine, provider);
    setup.linker.instance(&setup.store, "p", setup.instance);
    let with = |setup: &mut Setup, types: &str| {
        let text = format!(
            r#"(module {types}
                (import "p" "twice" (global $twice (ref $f))) (import "p" "apply" (func $apply (type $g)))
                (func (export "run") (result i64) (return_call_ref $g (global.get $twice) (ref.func $apply))) (elem declare func $apply))"#
        );
        let module = Module::from_text(&engine, &text).unwrap_or_else(|e| panic!("{e}"));
        setup.instance = setup.linker.instantiate(&mut setup.store, &mut NoProbe, &module)?;
        setup.call(&mut NoProbe, "run", &[])
    };
    let same = "(type $f (func (param i64) (result i64))) (type (func (param f32))) (type $g (func (param (ref $f)) (result i64)))";
    assert_eq!(with(&mut setup, same), Ok(vec![Val::I64(42)]));
    let other = "(type $f (func (param i64) (result i64))) (type $g (func (param (ref null $f)) (result i64)))";
    let message = with(&mut setup, other).unwrap_err().to_string();
    assert!(message.contains("p.apply is imported as function [(ref null func [i64] -> [i64])] -> [i64], but function [(ref func"), "{message}");
}

#[test]
fn shared_memories_are_types_of_their_own() {
    let engine = Engine::default();
    let mut store = Store::new(&engine);
    let shared = store.new_memory(MemoryType { shared: true, ..MemoryType::new(1, Some(2)) }).unwrap();
    let module = Module::from_text(&engine, r#"(module (import "e" "m" (memory 1 2)))"#).unwrap();
    let message = store.instantiate(&module, &[Extern::Memory(shared)]).unwrap_err().to_string();
    assert!(message.contains("imported as memory of 1..=2 pages, but shared memory of 1..=2 pages was given"), "{message}");
}
