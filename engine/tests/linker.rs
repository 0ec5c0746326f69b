//! Host functions as closures: re-entry, traps and exits at any depth, and what the host changes while it runs.

use std::cell::Cell;
use std::rc::Rc;

use worksp_engine::probe::NoProbe;
use worksp_engine::{
    CallError, Engine, Extern, FuncType, HostError, InstanceId, Linker, Module, Store, Trap, TrapKind, Val, ValType,
};

struct Setup {
    store: Store,
    linker: Linker,
}

impl Setup {
    fn new() -> Setup {
        Setup { store: Store::new(&Engine::default()), linker: Linker::new() }
    }

    fn load(&mut self, text: &str) -> InstanceId {
        let module = Module::from_text(self.store.engine(), text).expect("valid text");
        self.linker.instantiate(&mut self.store, &mut NoProbe, &module).expect("imports are there")
    }

    fn call(&mut self, instance: InstanceId, name: &str, args: &[Val]) -> Result<Vec<Val>, CallError> {
        let func = self.store.exported_func(instance, name).expect("exported");
        self.linker.call(&mut self.store, &mut NoProbe, func, args)
    }
}

fn unary() -> FuncType {
    FuncType::new([ValType::I32], [ValType::I32])
}

fn int(args: &[Val]) -> i32 {
    match args {
        [Val::I32(v)] => *v,
        other => panic!("{other:?} are not the declared arguments"),
    }
}

/// `down(n)` calls the host with n - 1, which calls `down` again; the sum counts the way back.
const DOWN: &str = r#"(module (import "env" "again" (func $again (param i32) (result i32)))
    (func (export "down") (param i32) (result i32)
        (if (result i32) (i32.eqz (local.get 0))
            (then (i32.const 0))
            (else (i32.add (local.get 0) (call $again (i32.sub (local.get 0) (i32.const 1))))))))"#;

fn reentrant() -> (Setup, InstanceId) {
    let mut setup = Setup::new();
    let entry: Rc<Cell<Option<worksp_engine::FuncId>>> = Rc::default();
    let target = entry.clone();
    setup.linker.func("env", "again", unary(), move |caller, args| match int(args) {
        1000 => Err(HostError::Exit(7)),
        _ => caller.call(target.get().expect("set below"), args),
    });
    let instance = setup.load(DOWN);
    entry.set(Some(setup.store.exported_func(instance, "down").unwrap()));
    (setup, instance)
}

#[test]
fn calls_nest_through_the_host() {
    let (mut setup, instance) = reentrant();
    assert_eq!(setup.call(instance, "down", &[Val::I32(50)]), Ok(vec![Val::I32(50 * 51 / 2)]));
    let error = setup.call(instance, "down", &[Val::I32(900)]).unwrap_err();
    assert!(matches!(&error, CallError::Trap(trap) if trap.kind() == TrapKind::StackOverflow), "{error}");
    assert_eq!(setup.call(instance, "down", &[Val::I32(3)]), Ok(vec![Val::I32(6)]), "the store is usable afterwards");
}

#[test]
fn an_exit_passes_through_every_level() {
    let (mut setup, instance) = reentrant();
    assert_eq!(setup.call(instance, "down", &[Val::I32(1001)]), Err(CallError::Exit(7)));
    let mut setup = Setup::new();
    setup.linker.func("env", "exit", FuncType::new([], []), |_, _| Err(HostError::Exit(3)));
    let instance = setup.load(
        r#"(module (import "env" "exit" (func $exit)) (global $g (export "g") (mut i32) (i32.const 0))
            (func $deep (global.set $g (i32.const 1)) (call $exit) (global.set $g (i32.const 2)))
            (func (export "run") (call $deep) (global.set $g (i32.const 3))))"#,
    );
    assert_eq!(setup.call(instance, "run", &[]), Err(CallError::Exit(3)));
    assert_eq!(setup.store.global(setup.store.global_id(instance, 0)), Val::I32(1));
}

#[test]
fn traps_carry_kind_names_and_message() {
    let mut setup = Setup::new();
    setup.linker.func("env", "fail", unary(), |_, args| match int(args) {
        0 => Ok(vec![Val::I32(0)]),
        1 => Err(Trap::host("no such file").into()),
        _ => Ok(vec![Val::I64(0)]),
    });
    let instance = setup.load(
        r#"(module (import "env" "fail" (func $fail (param i32) (result i32)))
            (func $inner (param i32) (result i32) (i32.div_s (i32.const 8) (call $fail (local.get 0))))
            (func $outer (export "outer") (param i32) (result i32) (i32.add (call $inner (local.get 0)) (i32.const 1))))"#,
    );
    let Err(CallError::Trap(trap)) = setup.call(instance, "outer", &[Val::I32(0)]) else { panic!("divides by zero") };
    assert_eq!(trap.kind(), TrapKind::IntegerDivisionByZero);
    let names: Vec<&str> = trap.backtrace().iter().map(|frame| frame.name.as_str()).collect();
    assert_eq!(names, ["inner", "outer"]);
    let module = setup.store.module(instance).clone();
    for frame in trap.backtrace() {
        assert_eq!(module.func_at(frame.offset), Some(frame.func), "the offset lies in the function");
    }
    let message = |result: Result<Vec<Val>, CallError>| result.unwrap_err().to_string();
    assert_eq!(message(setup.call(instance, "outer", &[Val::I32(1)])), "trap: host function trapped: no such file");
    let wrong = message(setup.call(instance, "outer", &[Val::I32(2)]));
    assert!(wrong.contains("env.fail") && wrong.contains("[i32]") && wrong.contains("[i64]"), "{wrong}");
    let wrong = message(setup.call(instance, "outer", &[]));
    assert_eq!(wrong, "outer takes [i32] here, but was given []");
}

#[test]
fn what_the_host_changes_is_seen_on_return() {
    let mut setup = Setup::new();
    let memory = setup.store.new_memory(worksp_engine::MemoryType::new(1, None)).unwrap();
    setup.linker.define("env", "memory", Extern::Memory(memory));
    setup.linker.func("env", "grow", unary(), move |caller, args| {
        let at = caller.store().memory(memory).len();
        let previous = caller.store().memory_grow(memory, int(args) as u64).map_or(-1, |pages| pages as i32);
        caller.store().memory_mut(memory)[at..at + 4].copy_from_slice(&77_i32.to_le_bytes());
        Ok(vec![Val::I32(previous)])
    });
    let instance = setup.load(
        r#"(module (import "env" "memory" (memory 1)) (import "env" "grow" (func $grow (param i32) (result i32)))
            (func (export "run") (result i32 i32 i32)
                (call $grow (i32.const 2)) (memory.size) (i32.load (i32.const 65536))))"#,
    );
    assert_eq!(setup.call(instance, "run", &[]), Ok(vec![Val::I32(1), Val::I32(3), Val::I32(77)]));
}

#[test]
fn start_functions_may_call_imports() {
    let mut setup = Setup::new();
    let calls = Rc::new(Cell::new(0));
    let counter = calls.clone();
    setup.linker.func("env", "note", FuncType::new([ValType::I32], []), move |_, args| {
        counter.set(counter.get() + int(args));
        Ok(vec![])
    });
    setup.load(r#"(module (import "env" "note" (func $note (param i32))) (start $s) (func $s (call $note (i32.const 5))))"#);
    assert_eq!(calls.get(), 5);
    setup.load(r#"(module (import "env" "note" (func (param i32))) (export "f" (func 0)))"#);
}

#[test]
fn missing_imports_are_all_listed() {
    let mut setup = Setup::new();
    let text = r#"(module (import "env" "f" (func (param i32))) (import "wasi_snapshot_preview1" "fd_write" (func)))"#;
    let module = Module::from_text(setup.store.engine(), text).unwrap();
    let error = setup.linker.instantiate(&mut setup.store, &mut NoProbe, &module).unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown import: nobody provides env.f (function [i32] -> []), wasi_snapshot_preview1.fd_write (function [] -> []); \
         define each of them or stub it"
    );
}

#[test]
fn instances_share_what_they_export() {
    let mut setup = Setup::new();
    let first = setup.load(
        r#"(module (global (export "g") (mut i32) (i32.const 1)) (memory (export "m") 1) (table (export "t") 2 funcref)
            (func $f (result i32) (global.get 0)) (elem (i32.const 0) $f)
            (func (export "add") (param i32) (global.set 0 (i32.add (global.get 0) (local.get 0)))))"#,
    );
    setup.linker.instance(&setup.store, "first", first);
    let second = setup.load(
        r#"(module (import "first" "g" (global (mut i32))) (import "first" "add" (func $add (param i32)))
            (import "first" "t" (table 2 funcref)) (import "first" "m" (memory 1)) (type $t (func (result i32)))
            (func (export "run") (result i32 i32)
                (call $add (i32.const 41)) (i32.store (i32.const 8) (global.get 0))
                (call_indirect (type $t) (i32.const 0)) (i32.load (i32.const 8))))"#,
    );
    assert_eq!(setup.call(second, "run", &[]), Ok(vec![Val::I32(42), Val::I32(42)]));
    assert_eq!(setup.store.memory(setup.store.memory_id(first, 0))[8], 42);
}

#[test]
fn one_memory_may_have_two_indices() {
    let mut setup = Setup::new();
    let memory = setup.store.new_memory(worksp_engine::MemoryType::new(1, None)).unwrap();
    setup.linker.define("env", "memory", Extern::Memory(memory));
    let instance = setup.load(
        r#"(module (import "env" "memory" (memory $a 1)) (import "env" "memory" (memory $b 1))
            (func (export "run") (result i32)
                (drop (memory.grow $b (i32.const 1)))
                (i32.store $b (i32.const 65536) (i32.const 5))
                (i32.load $a (i32.const 65536))))"#,
    );
    assert_eq!(setup.call(instance, "run", &[]), Ok(vec![Val::I32(5)]));
}

#[test]
fn a_pending_call_goes_on_under_any_probe() {
    /// Counts returns.
    #[derive(Default)]
    struct Other(u32);
    impl worksp_engine::probe::Probe for Other {
        fn ret(&mut self, _: &[u64], _: u64) {
            self.0 += 1;
        }
    }
    let mut setup = Setup::new();
    let host = setup.store.host_func(FuncType::new([], []), 0);
    let text = r#"(module (import "env" "f" (func $f)) (func $inner (result i32) (call $f) (i32.const 4))
        (func (export "run") (param i32) (result i32) (i32.add (local.get 0) (call $inner))))"#;
    let module = Module::from_text(setup.store.engine(), text).unwrap();
    let instance = setup.store.instantiate(&module, &[Extern::Func(host)]).unwrap();
    let run = setup.store.exported_func(instance, "run").unwrap();
    assert!(setup.store.resume(&mut NoProbe, &[]).is_err(), "nothing is pending");
    assert!(matches!(setup.store.start(&mut NoProbe, run, &[Val::I32(3)]), Ok(worksp_engine::Step::HostCall(_))));
    assert!(setup.store.resume(&mut NoProbe, &[Val::I32(1)]).is_err(), "the host function has no results");
    let mut other = Other::default();
    assert_eq!(setup.store.resume(&mut other, &[]), Ok(worksp_engine::Step::Returned(vec![Val::I32(7)])));
    assert_eq!(other.0, 2, "both activations return in traced code");
}
