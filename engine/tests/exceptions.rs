//! Exceptions in both forms: plain, counted and traced runs catch the same in the same place, and a probe sees what they end.

use std::cell::RefCell;
use std::rc::Rc;

use worksp_engine::probe::{LoopRef, NoProbe, Probe, SiteId, TracePlan};
use worksp_engine::{CallError, Config, Engine, FuncType, InstanceId, Limits, Linker, Module, Store, TrapKind, Val, ValType};

/// Notes what exceptions, calls and loops do.
#[derive(Default)]
struct Events(Vec<String>);

impl Events {
    fn note(&mut self, event: String) {
        self.0.push(event);
    }

    fn text(&self) -> String {
        self.0.join(" ")
    }
}

impl Probe for Events {
    fn enter(&mut self, func: u32, _: &[u64], _: u64) {
        self.note(format!("enter{func}"));
    }
    fn leave(&mut self, _: u64, unwound: bool) {
        self.note(if unwound { "dead" } else { "left" }.into());
    }
    fn call(&mut self, _: SiteId, func: u32, _: &[u64], _: u64) {
        self.note(format!("call{func}"));
    }
    fn tail_call(&mut self, _: SiteId, func: u32, _: &[u64], _: u64) {
        self.note(format!("tail{func}"));
    }
    fn ret(&mut self, _: &[u64], _: u64) {
        self.note("ret".into());
    }
    fn host_call(&mut self, _: SiteId, _: u32, _: &[u64], _: u64) {
        self.note("host".into());
    }
    fn host_throw(&mut self, _: u32, _: u64) {
        self.note("hostthrow".into());
    }
    fn unwind(&mut self, site: SiteId, work: u64) {
        self.note(format!("{}unwind@{work}", if site == SiteId(0) { "host" } else { "" }));
    }
    fn caught(&mut self, _: SiteId, in_loop: Option<LoopRef>, work: u64) {
        self.note(format!("caught{}@{work}", in_loop.map_or("".into(), |l| format!("-in{}", l.ordinal))));
    }
    fn loop_iter(&mut self, this: LoopRef, _: u64) {
        self.note(format!("iter{}", this.ordinal));
    }
    fn loop_exit(&mut self, this: LoopRef, _: u64) {
        self.note(format!("exit{}", this.ordinal));
    }
}

fn call<P: Probe>(text: &str, args: &[Val], config: Config, probe: &mut P) -> (Result<Vec<Val>, CallError>, u64) {
    let engine = Engine::new(config);
    let module = Module::from_text(&engine, text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let mut store = Store::new(&engine);
    let mut linker = Linker::new();
    let table = Rc::new(RefCell::new(None));
    let run: Rc<RefCell<Option<InstanceId>>> = table.clone();
    linker.func("env", "reenter", FuncType::new([ValType::I32], [ValType::I32]), move |caller, args| {
        let instance = run.borrow().expect("it runs");
        let inner = caller.store().exported_func(instance, "inner")?;
        caller.call(inner, args)
    });
    let instance = linker.instantiate(&mut store, probe, &module).expect("it links");
    *table.borrow_mut() = Some(instance);
    store.set_trace_plan(instance, TracePlan { every_loop_of: Some(0), ..TracePlan::default() });
    let func = store.exported_func(instance, "run").expect("exported");
    let result = linker.call(&mut store, probe, func, args);
    (result, store.work())
}

/// In every mode: these results after so much work, and these events.
fn check(text: &str, args: &[Val], expected: &[Val], work: u64, events: &str) {
    let config = |fuel| Config { fuel, ..Config::default() };
    assert_eq!(call(text, args, config(false), &mut NoProbe), (Ok(expected.to_vec()), 0), "plain: {text}");
    assert_eq!(call(text, args, config(true), &mut NoProbe), (Ok(expected.to_vec()), work), "counted: {text}");
    let mut probe = Events::default();
    assert_eq!(call(text, args, config(false), &mut probe), (Ok(expected.to_vec()), work), "traced: {text}");
    assert_eq!(probe.text(), events, "{text}");
}

fn check_trap(text: &str, args: &[Val], kind: TrapKind, work: u64, events: &str) -> worksp_engine::Trap {
    let trap = |result: Result<Vec<Val>, CallError>| match result {
        Err(CallError::Trap(trap)) => trap,
        other => panic!("{other:?} is no trap: {text}"),
    };
    let config = |fuel| Config { fuel, ..Config::default() };
    assert_eq!(trap(call(text, args, config(false), &mut NoProbe).0).kind(), kind, "plain: {text}");
    let (counted, done) = call(text, args, config(true), &mut NoProbe);
    assert_eq!((trap(counted).kind(), done), (kind, work), "counted: {text}");
    let mut probe = Events::default();
    let (traced, done) = call(text, args, config(false), &mut probe);
    let traced = trap(traced);
    assert_eq!((traced.kind(), done), (kind, work), "traced: {text}");
    assert_eq!(probe.text(), events, "{text}");
    traced
}

#[test]
fn a_payload_comes_through_several_frames() {
    let text = r#"(module (tag $e (param i32 v128 f64)) (tag $other)
        (func $c (param i32) (throw $e (local.get 0) (v128.const i64x2 5 6) (f64.const 2.5)))
        (func $b (param i32) (result i32) (block (try_table (catch $other 0) (call $c (local.get 0)))) (i32.const 1))
        (func $a (param i32) (result i32) (i32.add (i32.const 7) (call $b (local.get 0))))
        (func (export "run") (param i32) (result i32 v128 f64) (local i64)
            (local.set 1 (i64.const 9))
            (i32.const 100)
            (block $h (result i32 v128 f64)
                (drop (i32.const 3))
                (try_table (result i32) (catch $e $h) (i32.const 55) (i32.add (call $a (local.get 0))))
                (v128.const i64x2 0 0) (f64.const 0))
            (return)))"#;
    // 2 2 1, 1, then const 55 get call, const get call, get call, get const const throw, return.
    let work = 2 + 1 + 2 + 1 + 2 + 1 + 1 + 2 + 4 + 2;
    check(
        text,
        &[Val::I32(42)],
        &[Val::I32(42), Val::V128(6 << 64 | 5), Val::F64(2.5f64.to_bits())],
        work,
        &format!("enter3 call2 call1 call0 unwind@{0} unwind@{0} unwind@{0} caught@{0} ret left", work - 1),
    );
}

#[test]
fn loops_end_with_exceptions() {
    // The inner loop is left by the exception, the outer one by the branch to the label.
    let text = r#"(module (tag $e (param i32))
        (func (export "run") (result i32) (local $i i32)
            (block $h (result i32)
                (loop $outer
                    (try_table (catch $e $h)
                        (loop $inner
                            (if (i32.eq (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 3)) (then (throw $e (local.get $i))))
                            (br $inner))))
                (i32.const 0))))"#;
    check(text, &[], &[Val::I32(3)], 2 * 8 + 9, "enter0 iter0 iter1 iter1 iter1 caught-in0@25 exit0 ret left");
    // A label that is a loop: the exception is caught within its iteration, and the next one begins.
    let text = r#"(module (tag $e (param i32))
        (func $f (param i32) (if (i32.lt_u (local.get 0) (i32.const 3)) (then (throw $e (i32.add (local.get 0) (i32.const 1))))))
        (func (export "run") (result i32) (local $i i32) (local $n i32)
            (i32.const 0)
            (loop $again (param i32)
                (local.set $i)
                (local.set $n (i32.add (local.get $n) (i32.const 1)))
                (try_table (catch $e $again) (loop (call $f (local.get $i)))))
            (local.get $n)))"#;
    check(
        text,
        &[],
        &[Val::I32(4)],
        1 + 4 * (1 + 4 + 2 + 4) + 3 * 4 + 1,
        "enter1 iter0 iter1 call0 unwind@16 caught-in0@16 iter0 iter1 call0 unwind@31 caught-in0@31 \
         iter0 iter1 call0 unwind@46 caught-in0@46 iter0 iter1 call0 ret exit1 exit0 ret left",
    );
    // To the function's own label.
    let text = r#"(module (tag $e (param i64 i32))
        (func (export "run") (result i64 i32)
            (i32.const 1) (i32.const 2)
            (loop $l (loop $m (try_table (catch $e 2) (throw $e (i64.const -5) (i32.const 9))) (br $m)))
            (unreachable)))"#;
    check(text, &[], &[Val::I64(-5), Val::I32(9)], 5, "enter0 iter0 iter1 caught-in1@5 ret left");
}

#[test]
fn references_are_thrown_again() {
    let text = r#"(module (tag $e (param i32)) (global $g (mut exnref) (ref.null exn)) (table $t 2 exnref)
        (func $thrower (throw $e (i32.const 11)))
        (func $keeper (result exnref)
            (block $h (result i32 exnref) (try_table (catch_ref $e $h) (call $thrower)) (unreachable))
            (global.set $g) (drop)
            (table.set $t (i32.const 1) (global.get $g))
            (table.get $t (i32.const 1)))
        (func (export "run") (result i32) (local $x exnref) (local $n (ref null noexn))
            (block $h (result exnref)
                (try_table (catch_all_ref $h) (throw_ref (call $keeper)))
                (unreachable))
            (local.set $x)
            (if (ref.is_null (local.get $x)) (then (unreachable)))
            (block $k (result i32) (try_table (catch $e $k) (throw_ref (local.get $x))) (unreachable))
            (i32.add (ref.is_null (table.get $t (i32.const 0))))
            (i32.add (ref.is_null (local.get $n)))))"#;
    check(text, &[], &[Val::I32(13)], 25, "enter2 call1 call0 unwind@4 caught@4 ret caught@12 caught@18 ret left");
    // References that are never null, also as parameters and results.
    let text = r#"(module (tag $e (param i32))
        (func $id (param (ref exn)) (result (ref exn)) (local.get 0))
        (func $never (param (ref noexn)) (result exnref) (local.get 0))
        (func (export "run") (result i32)
            (block $h (result i32 (ref exn)) (try_table (catch_ref $e $h) (throw $e (i32.const 6))) (unreachable))
            (block $k (param i32 (ref exn)) (result i32) (call $id) (drop))))"#;
    check(text, &[], &[Val::I32(6)], 5, "enter2 caught@2 call0 ret ret left");
    let text = r#"(module (func (export "run") (drop (block (result exnref) (try_table (catch_all_ref 0) (throw_ref (ref.null exn))) (ref.null exn)))))"#;
    check_trap(text, &[], TrapKind::NullException, 2, "enter0 dead");
}

#[test]
fn what_nobody_catches_ends_the_call() {
    let text = r#"(module (tag $e (param i32)) (tag $f)
        (func $inner (param i32) (throw $e (local.get 0)))
        (func $middle (try_table (catch $f 0) (call $inner (i32.const 5))))
        (func (export "run") (loop (call $middle)) (nop)))"#;
    let trap = check_trap(text, &[], TrapKind::UncaughtException, 5, "enter2 iter0 call1 call0 unwind@5 unwind@5 unwind@5 dead");
    let frames: Vec<&str> = trap.backtrace().iter().map(|frame| frame.name.as_str()).collect();
    assert_eq!(frames, ["inner", "middle", "run"]);
    assert!(trap.backtrace().iter().all(|frame| frame.offset > 0));
    assert!(trap.to_string().starts_with("trap: uncaught exception\n  0: inner"), "{trap}");
    // Traps are not caught.
    let text = r#"(module (func (export "run") (block (try_table (catch_all 0) (unreachable)))))"#;
    check_trap(text, &[], TrapKind::Unreachable, 1, "enter0 dead");
    let text = r#"(module (func $f (export "run") (block (try_table (catch_all 0) (call $f)))))"#;
    let engine = Engine::new(Config { limits: Limits { call_depth_max: 3, ..Limits::default() }, ..Config::default() });
    let module = Module::from_text(&engine, text).expect("valid");
    let mut store = Store::new(&engine);
    let instance = store.instantiate(&module, &[]).expect("no imports");
    let func = store.exported_func(instance, "run").expect("exported");
    let error = Linker::new().call(&mut store, &mut NoProbe, func, &[]).expect_err("endless");
    assert!(matches!(error, CallError::Trap(trap) if trap.kind() == TrapKind::StackOverflow));
}

#[test]
fn exceptions_pass_through_deep_stacks_and_the_depth_comes_back() {
    // Throws from the deepest frame that there may be, again and again.
    let text = r#"(module (tag $e)
        (func $down (param i32) (if (local.get 0) (then (call $down (i32.sub (local.get 0) (i32.const 1))))) (throw $e))
        (func (export "run") (param i32) (result i32) (local $i i32)
            (loop $next
                (block $h (try_table (catch $e $h) (call $down (local.get 0))))
                (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 5))))
            (local.get $i)))"#;
    let limits = Limits { call_depth_max: 1000, ..Limits::default() };
    for depth in [10, 997] {
        let config = Config { limits: limits.clone(), ..Config::default() };
        assert_eq!(call(text, &[Val::I32(depth)], config, &mut NoProbe).0, Ok(vec![Val::I32(5)]));
    }
    let config = Config { limits, ..Config::default() };
    let error = call(text, &[Val::I32(1000)], config, &mut NoProbe).0.expect_err("too deep");
    assert!(matches!(error, CallError::Trap(trap) if trap.kind() == TrapKind::StackOverflow));
}

#[test]
fn exceptions_pass_through_host_functions() {
    let text = r#"(module (import "env" "reenter" (func $reenter (param i32) (result i32)))
        (tag $e (param i32))
        (func (export "inner") (param i32) (result i32)
            (if (local.get 0) (then (throw $e (i32.mul (local.get 0) (i32.const 2)))))
            (i32.const 77))
        (func $outer (param i32) (result i32) (i32.add (i32.const 1) (call $reenter (local.get 0))))
        (func (export "run") (param i32) (result i32)
            (block $h (result i32) (try_table (result i32) (catch $e $h) (call $outer (local.get 0))))))"#;
    let entered = "enter3 call2 host enter1";
    check(text, &[Val::I32(0)], &[Val::I32(78)], 8 + 1, &format!("{entered} ret left ret ret left"));
    check(
        text,
        &[Val::I32(21)],
        &[Val::I32(42)],
        5 + 6,
        &format!("{entered} unwind@11 dead hostthrow hostunwind@11 caught@11 ret left"),
    );
    // A host function that is tail-called is not inside of its caller's clauses any more.
    let tail = r#"(module (import "env" "reenter" (func $reenter (param i32) (result i32)))
        (tag $e) (func (export "inner") (param i32) (result i32) (throw $e))
        (func $tail (param i32) (result i32)
            (block $h (try_table (catch $e $h) (return_call $reenter (local.get 0)))) (i32.const 1))
        (func (export "run") (param i32) (result i32)
            (block $h (try_table (catch $e $h) (return (call $tail (local.get 0))))) (i32.const 2)))"#;
    check(tail, &[Val::I32(0)], &[Val::I32(2)], 2 + 2 + 1 + 1, "enter3 call2 host enter1 unwind@5 dead hostthrow hostunwind@5 caught@5 ret left");
    // Nobody catches it further out either.
    let uncaught = r#"(module (import "env" "reenter" (func $reenter (param i32) (result i32)))
        (tag $e) (func (export "inner") (param i32) (result i32) (throw $e))
        (func (export "run") (result i32) (call $reenter (i32.const 1)) (nop)))"#;
    let events = "enter2 host enter1 unwind@3 dead hostthrow hostunwind@3 dead";
    let trap = check_trap(uncaught, &[], TrapKind::UncaughtException, 3, events);
    assert_eq!(trap.backtrace().iter().map(|frame| frame.name.as_str()).collect::<Vec<_>>(), ["run"]);
    assert!(trap.backtrace()[0].offset > 0 && trap.exception().is_some());
}

#[test]
fn exceptions_cross_instances() {
    let engine = Engine::default();
    let mut store = Store::new(&engine);
    let mut linker = Linker::new();
    let mut load = |name: &str, text: &str| {
        let module = Module::from_text(&engine, text).expect("valid");
        let instance = linker.instantiate(&mut store, &mut NoProbe, &module).expect("it links");
        linker.instance(&store, name, instance);
        instance
    };
    load(
        "a",
        r#"(module (tag $e (export "e") (param i32)) (tag $mine (param i32)) (memory 1) (global $g (mut i32) (i32.const 1))
            (func (export "throw") (param i32) (global.set $g (i32.const 5))
                (block $h (result i32) (try_table (catch $mine $h) (throw $e (local.get 0))) (return)) (drop)))"#,
    );
    let b = load(
        "b",
        r#"(module (import "a" "throw" (func $throw (param i32))) (tag $own (param i32)) (import "a" "e" (tag $e (param i32)))
            (global $g (mut i32) (i32.const 100)) (memory 1) (data (i32.const 8) "\2a")
            (func (export "run") (result i32)
                (block $h (result i32)
                    (block $o (result i32) (try_table (catch $own $o) (catch $e $h) (call $throw (i32.const 7))) (unreachable))
                    (unreachable))
                (i32.add (global.get $g)) (i32.add (i32.load8_u (i32.const 8)))))"#
            .replace("(tag $own (param i32)) (import \"a\" \"e\" (tag $e (param i32)))", "(import \"a\" \"e\" (tag $e (param i32))) (tag $own (param i32))")
            .as_str(),
    );
    let run = store.exported_func(b, "run").expect("exported");
    assert_eq!(linker.call(&mut store, &mut NoProbe, run, &[]), Ok(vec![Val::I32(7 + 100 + 42)]));
}

#[test]
fn the_limit_holds_for_what_is_kept_only() {
    let text = |keep: &str| {
        format!(
            r#"(module (tag $e (param i64 i64)) (tag $chain (param exnref)) (global $g (mut exnref) (ref.null exn))
                (func (export "run") (param i32) (result i32)
                    (loop $next
                        (block $h (result exnref)
                            (try_table (catch_all_ref $h) {keep})
                            (unreachable))
                        (global.set $g)
                        (br_if $next (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))
                    (local.get 0)))"#
        )
    };
    let config = || Config { limits: Limits { exception_bytes_max: 10_000, ..Limits::default() }, ..Config::default() };
    let run = |keep: &str| call(&text(keep), &[Val::I32(20_000)], config(), &mut NoProbe).0;
    assert_eq!(run("(throw $e (i64.const 1) (i64.const 2))"), Ok(vec![Val::I32(0)]));
    let error = run("(throw $chain (global.get $g))").expect_err("each keeps the one before");
    assert!(matches!(error, CallError::Trap(trap) if trap.kind() == TrapKind::ExceptionLimit));
}

// --- the legacy form -----------------------------------------------------------------------------------------------------

/// A module of the legacy form.
fn legacy(body: &str) -> String {
    format!(
        r#"(module (tag $e (param i32)) (tag $f) (tag $g (param i64 i32))
            (func $throw (param i32)
                (if (i32.eq (local.get 0) (i32.const 1)) (then (throw $e (i32.const 10))))
                (if (i32.eq (local.get 0) (i32.const 2)) (then (throw $f)))
                (if (i32.eq (local.get 0) (i32.const 3)) (then (throw $g (i64.const 1) (i32.const 30)))))
            {body})"#
    )
}

/// Results for arguments 0, 1, … in every mode; `None` for an uncaught exception.
fn check_legacy(body: &str, expected: &[Option<i32>]) {
    let text = legacy(body);
    for (arg, expected) in expected.iter().enumerate() {
        let args = [Val::I32(arg as i32)];
        let mut works = Vec::new();
        for (fuel, traced) in [(false, false), (true, false), (true, true)] {
            let config = Config { fuel, ..Config::default() };
            let (result, work) = match traced {
                true => call(&text, &args, config, &mut Events::default()),
                false => call(&text, &args, config, &mut NoProbe),
            };
            match (&result, expected) {
                (Ok(values), Some(expected)) => assert_eq!(values, &[Val::I32(*expected)], "{arg}: {body}"),
                (Err(CallError::Trap(trap)), None) => assert_eq!(trap.kind(), TrapKind::UncaughtException, "{arg}: {body}"),
                _ => panic!("{arg}: {result:?} is not {expected:?}: {body}"),
            }
            works.push(work);
        }
        assert_eq!(works[1], works[2], "{arg}: {body}");
    }
}

#[test]
fn try_and_catch() {
    let body = r#"(func (export "run") (param i32) (result i32)
        (i32.const 1000)
        try (result i32) (call $throw (local.get 0)) (i32.const 1) catch $e (i32.add (i32.const 2)) catch $g (local.set 0) (i32.wrap_i64) (i32.add (local.get 0)) catch_all (i32.const 4) end
        (i32.add))"#;
    check_legacy(body, &[Some(1001), Some(1012), Some(1004), Some(1031)]);
    let nested = r#"(func (export "run") (param i32) (result i32)
        try (result i32) try (result i32) (call $throw (local.get 0)) (i32.const 1) catch $e (call $throw (i32.const 2)) end catch $f (i32.const 5) catch $e (drop) (i32.const 6) end)"#;
    check_legacy(nested, &[Some(1), Some(5), Some(5), None]);
    let branches = r#"(func (export "run") (param i32) (result i32)
        (block $out (result i32)
            try $t (result i32) (call $throw (local.get 0)) (br $out (i32.const 1)) catch $e (br_if $t (i32.const 1)) (drop) (i32.const 99) catch $f (br_table $out $t (i32.const 8) (local.get 0)) catch_all (return (i32.const 9)) end
            (i32.add (i32.const 100))))"#
        .replace("(br_if $t (i32.const 1))", "(br_if $t (local.get 0))");
    check_legacy(&branches, &[Some(1), Some(110), Some(108), Some(9)]);
}

#[test]
fn rethrow_finds_its_handler() {
    let body = r#"(func (export "run") (param i32) (result i32)
        try (result i32) try $outer (result i32) (call $throw (local.get 0)) (i32.const 1) catch $e
 (drop)
                    try $inner (result i32) (throw $f) catch $f (if (i32.const 1) (then (rethrow $outer))) (i32.const 0) end catch_all (rethrow 0) end catch $e (i32.add (i32.const 5)) catch $f (i32.const 6) end)"#;
    check_legacy(body, &[Some(1), Some(15), Some(6), None]);
}

#[test]
fn delegate_skips_handlers() {
    // To the outer `try`, past the inner one.
    let body = r#"(func (export "run") (param i32) (result i32)
        try $outer (result i32) try $inner (result i32) try (result i32) (call $throw (local.get 0)) (i32.const 1) delegate $outer catch_all (i32.const 2) end catch $e (drop) (i32.const 3) end)"#;
    check_legacy(body, &[Some(1), Some(3), None, None]);
    // To a block inside of a `try`: that `try` has its turn.
    let block = r#"(func (export "run") (param i32) (result i32)
        try (result i32) (block $b (result i32)
                try (result i32) try (result i32) (call $throw (local.get 0)) (i32.const 1) delegate $b catch_all (i32.const 2) end) catch_all (i32.const 3) end)"#;
    check_legacy(block, &[Some(1), Some(3), Some(3), Some(3)]);
    // To the caller.
    let caller = r#"(func $in (param i32) (result i32)
            try (result i32) try (result i32) (call $throw (local.get 0)) (i32.const 1) delegate 1 catch_all (i32.const 2) end)
        (func (export "run") (param i32) (result i32)
            try (result i32) (call $in (local.get 0)) catch $e  catch $f (i32.const 7) end)"#;
    check_legacy(caller, &[Some(1), Some(10), Some(7), None]);
    // To a `try` whose handler runs: past it.
    let handler = r#"(func (export "run") (param i32) (result i32)
        try (result i32) try $t (result i32) (throw $f) catch $f try (result i32) (call $throw (local.get 0)) (i32.const 1) delegate $t catch_all (i32.const 2) end catch_all (i32.const 3) end)"#;
    check_legacy(handler, &[Some(1), Some(3), Some(3), Some(3)]);
}

#[test]
fn both_forms_work_together() {
    let body = r#"(func $legacy (param i32) (result i32)
            try (result i32) (call $throw (local.get 0)) (i32.const 1) catch $f (i32.const 2) catch $e (drop) (rethrow 0) end)
        (func (export "run") (param i32) (result i32)
            (block $h (result i32) (try_table (result i32) (catch $e $h) (call $legacy (local.get 0)))))"#;
    check_legacy(body, &[Some(1), Some(10), Some(2), None]);
}

#[test]
fn unreachable_code_catches_nothing() {
    let body = r#"(func (export "run") (param i32) (result i32)
        (return (i32.const 4))
        (block $h (result i32) (try_table (result i32) (catch $e $h) (throw $f)))
        try (throw $f) catch $e (drop) (rethrow 0) catch_all (rethrow 0) end
        try (unreachable) delegate 0)"#;
    check_legacy(body, &[Some(4)]);
    let dead = r#"(func (export "run") (param i32) (result i32)
        try (result i32) (unreachable) (throw $f) catch $e (i32.const 1) (br 0) (drop) catch_all (i32.const 3) end)"#;
    let text = legacy(&dead.replace("(unreachable)", "(br 0 (i32.const 8))"));
    assert_eq!(call(&text, &[Val::I32(0)], Config::default(), &mut NoProbe).0, Ok(vec![Val::I32(8)]));
}
