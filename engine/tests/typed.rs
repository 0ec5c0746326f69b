//! The embedding interface with Rust's types.

use worksp_engine::probe::NoProbe;
use worksp_engine::{CallError, Caller, Engine, Error, FuncId, HostError, InstanceId, Linker, Module, Store, Trap, TypedFunc, Val};

fn instantiate(linker: &Linker, text: &str) -> (Store, InstanceId) {
    let engine = Engine::default();
    let mut store = Store::new(&engine);
    let module = Module::from_text(&engine, text).expect("valid");
    let instance = linker.instantiate(&mut store, &mut NoProbe, &module).expect("all is defined");
    (store, instance)
}

#[test]
fn every_type_makes_the_round() {
    let mut linker = Linker::new();
    linker.func_wrap("e", "all", |a: i32, b: u32, c: i64, d: u64, e: f32, f: f64, g: u128, h: Option<FuncId>| (h, g, f, e, d, c, b, a));
    let (mut store, instance) = instantiate(
        &linker,
        r#"(module (type $all (func (param i32 i32 i64 i64 f32 f64 v128 funcref) (result funcref v128 f64 f32 i64 i64 i32 i32)))
            (import "e" "all" (func $all (type $all))) (func (export "all") (type $all)
                local.get 0 local.get 1 local.get 2 local.get 3 local.get 4 local.get 5 local.get 6 local.get 7 call $all))"#,
    );
    type Eight = (i32, u32, i64, u64, f32, f64, u128, Option<FuncId>);
    type Turned = (Option<FuncId>, u128, f64, f32, u64, i64, u32, i32);
    let all: TypedFunc<Eight, Turned> = store.typed_func(instance, "all").expect("it has this type");
    let func = Some(all.func());
    let found = all.call(&linker, &mut store, &mut NoProbe, (-1, u32::MAX, i64::MIN, u64::MAX, -0.5, 1e300, 7 << 100, func));
    assert_eq!(found, Ok((func, 7 << 100, 1e300, -0.5, u64::MAX, i64::MIN, u32::MAX, -1)));
}

#[test]
fn host_functions_call_back_and_fail() {
    let mut linker = Linker::new();
    linker.func_wrap("e", "back", |caller: &mut Caller<'_>, n: i32| -> Result<i32, HostError> {
        let instance = caller.instance().expect("an instance calls");
        let inc: TypedFunc<i32, i32> = caller.store().typed_func(instance, "inc")?;
        Ok(10 * inc.call_back(caller, n)?)
    });
    linker.func_wrap("e", "fail", || -> Result<(), HostError> { Err(Trap::host("no").into()) });
    linker.func_wrap("e", "exit", |status: i32| -> Result<(), HostError> { Err(HostError::Exit(status)) });
    let (mut store, instance) = instantiate(
        &linker,
        r#"(module (import "e" "back" (func $back (param i32) (result i32))) (import "e" "fail" (func $fail)) (import "e" "exit" (func $exit (param i32)))
            (memory (export "m") 1) (table (export "t") 2 funcref) (global (export "g") (mut i32) (i32.const 4))
            (func (export "inc") (param i32) (result i32) (i32.add (local.get 0) (i32.const 1)))
            (func (export "run") (param i32) (result i32) (call $back (local.get 0)))
            (func (export "fail") (call $fail)) (func (export "exit") (call $exit (i32.const 3))))"#,
    );
    let run: TypedFunc<i32, i32> = store.typed_func(instance, "run").expect("it has this type");
    assert_eq!(run.call(&linker, &mut store, &mut NoProbe, 4), Ok(50));
    let [fail, exit] = ["fail", "exit"].map(|name| store.typed_func::<(), ()>(instance, name).expect("it has this type"));
    assert!(matches!(fail.call(&linker, &mut store, &mut NoProbe, ()), Err(CallError::Trap(_))));
    assert_eq!(exit.call(&linker, &mut store, &mut NoProbe, ()), Err(HostError::Exit(3)));
}

#[test]
fn memories_tables_and_globals_are_reached_by_name() {
    let (mut store, instance) = instantiate(
        &Linker::new(),
        r#"(module (memory (export "m") 1) (table (export "t") 2 funcref) (global (export "g") (mut i32) (i32.const 4)))"#,
    );
    let memory = store.exported_memory(instance, "m").expect("exported");
    assert_eq!(store.write(memory, 65_534, b"ab"), Ok(()));
    let mut bytes = [0; 2];
    assert_eq!((store.read(memory, 65_534, &mut bytes), &bytes), (Ok(()), b"ab"));
    for at in [65_535, 65_537, u64::MAX] {
        assert_eq!(store.read(memory, at, &mut bytes), Err(Error::OutOfBounds { at, len: 2, size: 65_536 }));
        assert_eq!(store.write(memory, at, b"xy"), Err(Error::OutOfBounds { at, len: 2, size: 65_536 }));
    }
    let global = store.exported_global(instance, "g").expect("exported");
    assert_eq!(store.global(global), Val::I32(4));
    let table = store.exported_table(instance, "t").expect("exported");
    assert_eq!(store.table_size(table), 2);
    assert!(matches!(store.table_set(table, 0, Val::FuncRef(Some(FuncId(7)))), Err(Error::BadWrite(_))), "there is no such function");
    let message = store.exported_memory(instance, "g").expect_err("that is a global").to_string();
    assert_eq!(message, "the module exports no memory named `g`; it exports m");
    let message = store.exported_func(instance, "g").expect_err("that is a global").to_string();
    assert_eq!(message, "the module exports no function named `g`; it exports no functions");
}
