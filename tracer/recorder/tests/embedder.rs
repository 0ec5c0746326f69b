//! Host functions of an embedder: memory, growth, globals, tables, re-entry, traps, start functions, imported objects.

mod common;

use common::{case, command, invoke, replay};
use worksp_recorder::{Exit, HostError, HostMemory, HostTable, RecordOptions, Stub, Value, ValueType};
use worksp_tracer::recording::{End, Event, Recording, Target, TrapCode};

const I32: ValueType = ValueType::I32;

#[test]
fn start_functions_may_call_imports() {
    let text = r#"(module (import "env" "next" (func $next (result i32))) (memory 1)
        (func $s (i32.store (i32.const 4) (call $next))) (start $s)
        (func (export "get") (result i32) (i32.load (i32.const 4))))"#;
    let done = invoke(text, "get", &[]).func("next", &[], &[I32], |_, _| Ok(vec![Value::I32(77)])).run();
    assert_eq!(done.summary.results, [Value::I32(77)]);
    assert_eq!(done.events()[0], Event::Enter { target: Target::Func(1), args: vec![] });
    // A start function that traps ends the request.
    let text = r#"(module (func $s unreachable) (start $s) (func (export "f")))"#;
    let done = invoke(text, "f", &[]).run();
    assert!(matches!(done.summary.exit, Exit::Trapped { code: TrapCode::Unreachable, .. }));
    assert_eq!(done.summary.entries, 1);
}

#[test]
fn hosts_read_write_and_grow() {
    let text = r#"(module (import "env" "work" (func $work (param i32))) (memory (export "m") 1 4)
        (global (export "g") (mut i64) (i64.const 5)) (table (export "t") 1 4 funcref) (elem (i32.const 0) $f)
        (func $f (result i32) (i32.const 9))
        (data (i32.const 16) "abc")
        (func (export "run") (result i32)
            (call $work (i32.const 16))
            (i32.add (i32.mul (memory.size) (i32.const 1000))
              (i32.add (i32.mul (table.size) (i32.const 100))
                (i32.add (i32.wrap_i64 (global.get 0)) (i32.load8_u (i32.const 65536)))))))"#;
    let done = invoke(text, "run", &[])
        .func("work", &[I32], &[], |guest, args| {
            let Value::I32(at) = args[0] else { panic!("checked") };
            let memory = guest.memory_index("m").unwrap();
            assert_eq!(guest.read(memory, at as u64, 3)?, b"abc");
            assert!(guest.read(memory, 65535, 2).is_err());
            assert_eq!(guest.memory_grow(memory, 1)?, Some(1));
            assert_eq!(guest.memory_grow(memory, 100)?, None);
            guest.write(memory, 65536, &[7])?;
            assert!(guest.write(memory, 131071, &[1, 2]).is_err());
            assert_eq!(guest.global("g")?, Value::I64(5));
            guest.set_global("g", Value::I64(30))?;
            assert!(guest.set_global("g", Value::I32(1)).is_err());
            assert_eq!(guest.table_grow("t", 2)?, Some(1));
            assert_eq!(guest.table_grow("t", 20)?, None);
            assert_eq!(guest.call_element("t", 0, &[])?, [Value::I32(9)]);
            guest.table_clear("t", 0)?;
            assert!(guest.call_element("t", 0, &[]).is_err());
            assert_eq!(guest.table_elements("t")?, 3);
            Ok(vec![])
        })
        .run();
    assert_eq!(done.summary.results, [Value::I32(2337)]);
    assert!(done.events().contains(&Event::MemoryGrow { memory: 0, delta: 100, previous: None }));
}

#[test]
fn guests_are_reentered_to_any_depth() {
    let text = r#"(module (import "env" "down" (func $down (param i32) (result i32))) (memory (export "m") 1)
        (func (export "fact") (param $n i32) (result i32)
            (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
            (if (result i32) (i32.le_s (local.get $n) (i32.const 1)) (then (i32.const 1))
                (else (i32.mul (local.get $n) (call $down (i32.sub (local.get $n) (i32.const 1))))))))"#;
    let done = invoke(text, "fact", &["10"])
        .func("down", &[I32], &[I32], |guest, args| {
            guest.write(0, 8, &[1])?;
            let result = guest.call("fact", args)?;
            guest.write(0, 9, &[2])?;
            Ok(result)
        })
        .run();
    assert_eq!(done.summary.results, [Value::I32(3628800)]);
    assert_eq!((done.summary.entries, done.summary.host_calls), (10, 9));
}

#[test]
fn traps_and_exits_inside_reentry() {
    let text = r#"(module (import "env" "call" (func $call (param i32) (result i32)))
        (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32))) (memory (export "memory") 1)
        (func (export "bad") (i32.store (i32.const 0) (i32.const 1)) (drop (i32.div_u (i32.const 1) (i32.const 0))))
        (func (export "leave") (i32.store (i32.const 4) (i32.const 1)) (call $exit (i32.const 5)))
        (func (export "run") (param i32) (result i32) (i32.add (call $call (local.get 0)) (i32.const 100))))"#;
    let run = |mode: &str| {
        invoke(text, "run", &[mode])
            .func("call", &[I32], &[I32], |guest, args| match args[0] {
                // Caught: the host goes on.
                Value::I32(0) => Ok(vec![Value::I32(guest.call("bad", &[]).is_err().into())]),
                Value::I32(1) => guest.call("bad", &[]),
                Value::I32(2) => guest.call("leave", &[]),
                Value::I32(3) => Err(HostError::Trap("the host is unhappy".to_string())),
                Value::I32(4) => Err(HostError::Exit(9)),
                // A trap that the host turns into another end.
                Value::I32(5) => guest.call("bad", &[]).map_err(|_| HostError::Exit(6)),
                _ => Ok(vec![]),
            })
            .run()
    };
    assert_eq!(run("0").summary.results, [Value::I32(101)]);
    assert!(matches!(run("1").summary.exit, Exit::Trapped { code: TrapCode::IntegerDivisionByZero, .. }));
    assert_eq!(run("2").summary.exit, Exit::Status(5));
    let done = run("3");
    assert!(matches!(&done.summary.exit, Exit::Trapped { code: TrapCode::Host, message } if message == "the host is unhappy"));
    assert_eq!(run("4").summary.exit, Exit::Status(9));
    assert_eq!(run("5").summary.exit, Exit::Status(6));
    assert!(matches!(&run("6").summary.exit, Exit::Trapped { message, .. } if message.contains("returned []")));
}

#[test]
fn every_trap_is_replayed() {
    let check = |body: &str, code: TrapCode| {
        let text = format!(
            r#"(module (memory 1) (table 2 funcref) (elem (i32.const 0) $g) (type $t (func (result i32))) (func $g)
                (tag $e (param i64)) (func $deep (call $deep) (call $deep)) (func (export "_start") {body}))"#
        );
        let done = command(&text).run();
        let Exit::Trapped { code: found, .. } = done.summary.exit else { panic!("{body}: {:?}", done.summary.exit) };
        assert_eq!(found, code, "{body}");
    };
    check("unreachable", TrapCode::Unreachable);
    check("(drop (i32.load (i32.const 65533)))", TrapCode::MemoryOutOfBounds);
    check("(memory.fill (i32.const 65533) (i32.const 0) (i32.const 9))", TrapCode::MemoryOutOfBounds);
    check("(drop (table.get (i32.const 9)))", TrapCode::TableOutOfBounds);
    check("(drop (call_indirect (type $t) (i32.const 9)))", TrapCode::TableOutOfBounds);
    check("(drop (call_indirect (type $t) (i32.const 1)))", TrapCode::IndirectCallToNull);
    check("(drop (call_indirect (type $t) (i32.const 0)))", TrapCode::BadSignature);
    check("(drop (i32.div_s (i32.const 1) (i32.const 0)))", TrapCode::IntegerDivisionByZero);
    check("(drop (i32.div_s (i32.const 0x80000000) (i32.const -1)))", TrapCode::IntegerOverflow);
    check("(drop (i32.trunc_f32_s (f32.const nan)))", TrapCode::BadConversionToInteger);
    check("(drop (i32.trunc_f32_s (f32.const 1e30)))", TrapCode::IntegerOverflow);
    check("(call $deep)", TrapCode::StackOverflow);
    check("(throw $e (i64.const 3))", TrapCode::Exception);
    check("(throw_ref (ref.null exn))", TrapCode::Other);
    check("(call_ref $t (ref.null $t)) (drop)", TrapCode::Other);
    check("(drop (ref.as_non_null (ref.null func)))", TrapCode::Other);
    check("(drop (i32.atomic.load (i32.const 2)))", TrapCode::Other);
    check("(drop (memory.atomic.wait32 (i32.const 0) (i32.const 1) (i64.const 0)))", TrapCode::Other);
}

#[test]
fn instantiation_may_trap() {
    let done = command(r#"(module (memory 1) (data (i32.const 65536) "x") (func (export "_start")))"#).run();
    assert!(matches!(done.summary.exit, Exit::Trapped { code: TrapCode::MemoryOutOfBounds, .. }));
    assert_eq!((done.summary.events, done.outcome().memories.len()), (0, 0));
}

#[test]
fn imported_objects_begin_as_the_embedder_made_them() {
    let text = r#"(module (import "env" "m" (memory 1 3)) (import "env" "t" (table 2 funcref))
        (import "env" "k" (global i64)) (import "env" "v" (global (mut f64))) (import "env" "f" (func $f (result i32)))
        (memory $own 1)
        (elem (i32.const 1) func $one) (func $one (result i32) (i32.const 1))
        (func (export "run") (result i32)
            (global.set 1 (f64.const 2.5))
            (drop (memory.grow 0 (i32.const 1)))
            (i32.add (i32.load8_u (i32.const 3)) (i32.add (call_indirect (result i32) (i32.const 1))
                (i32.add (call $f) (i32.wrap_i64 (global.get 0)))))))"#;
    let mut case = invoke(text, "run", &[]).func("f", &[], &[I32], |guest, _| {
        guest.write(1, 0, b"own")?;
        assert_eq!(guest.memory_bytes(0), 3 * 65536);
        Ok(vec![Value::I32(100)])
    });
    let memory = HostMemory { pages: 2, pages_max: Some(3), contents: vec![0, 0, 0, 42, 0, 0] };
    case.recorder.memory("env", "m", memory);
    case.recorder.table("env", "t", HostTable { element: ValueType::FuncRef, elements: 5, elements_max: None });
    case.recorder.global("env", "k", Value::I64(1000), false).global("env", "v", Value::F64(0), true);
    let done = case.run();
    assert_eq!(done.summary.results, [Value::I32(1143)]);
    assert_eq!(done.outcome().memories.iter().map(|m| m.bytes).collect::<Vec<_>>(), [3 * 65536, 65536]);
}

#[test]
fn growth_stops_at_the_limit_here_and_there() {
    let text = r#"(module (memory 1) (table 1 funcref) (func (export "run") (result i32 i32 i32)
        (memory.grow (i32.const 2)) (memory.grow (i32.const 1)) (table.grow (ref.null func) (i32.const 100))))"#;
    let options = RecordOptions { memory_bytes_max: 3 * 65536, table_elements_max: 50, ..RecordOptions::invoke("run", [""; 0]) };
    assert_eq!(case(text, options).run().summary.results, [Value::I32(1), Value::I32(-1), Value::I32(-1)]);
}

#[test]
fn values_cross_whole() {
    let text = r#"(module (import "env" "f" (func $f (param i64 f32 f64 externref) (result f64 i64)))
        (func (export "run") (param i64 f32 f64 externref) (result f64 i64)
            (call $f (local.get 0) (local.get 1) (local.get 2) (local.get 3))))"#;
    let types = [ValueType::I64, ValueType::F32, ValueType::F64, ValueType::ExternRef];
    let done = invoke(text, "run", &["-9223372036854775808", "-0.0", "nan", "null"])
        .func("f", &types, &[ValueType::F64, ValueType::I64], |_, args| {
            assert_eq!((args[1], args[3]), (Value::F32(0x8000_0000), Value::NullExtern));
            Ok(vec![Value::F64(0x7ff0_0000_0000_0001), args[0]])
        })
        .run();
    assert_eq!(done.summary.results, [Value::F64(0x7ff0_0000_0000_0001), Value::I64(i64::MIN)]);
}

#[test]
fn vectors_cross_whole() {
    let text = r#"(module (import "env" "f" (func $f (param i32 v128 i64) (result v128 i32)))
        (global (export "g") (mut v128) (v128.const i64x2 1 2)) (memory 1) (func (export "back") (param v128) (result v128)
            (i64x2.add (local.get 0) (global.get 0)))
        (func (export "run") (param v128) (result i32 v128)
            (local i32) (call $f (i32.const 3) (i64x2.add (local.get 0) (global.get 0)) (i64.const 4))
            (local.set 1) (local.set 0) (v128.store (i32.const 8) (local.get 0))
            (local.get 1) (i64x2.add (local.get 0) (global.get 0))))"#;
    let (types, results) = ([I32, ValueType::V128, ValueType::I64], [ValueType::V128, I32]);
    let done = invoke(text, "run", &["0x50000000000000006"])
        .func("f", &types, &results, |guest, args| {
            assert_eq!(args, [Value::I32(3), Value::V128(7 << 64 | 7), Value::I64(4)]);
            assert_eq!(guest.global("g")?, Value::V128(2 << 64 | 1));
            guest.set_global("g", Value::V128(1 << 127 | 9))?;
            assert_eq!(guest.call("back", &args[1..2])?, [Value::V128((1 << 127) + (7 << 64) + 16)]);
            Ok(vec![Value::V128(u128::MAX), Value::I32(-5)])
        })
        .run();
    assert_eq!(done.summary.results, [Value::I32(-5), Value::V128(((1 << 63) - 1) << 64 | 8)]);
    assert!(done.events().contains(&Event::GlobalSet { global: 0, value: 1 << 127 | 9 }));
    // A global of the embedder's, and an argument on the command line.
    let text = r#"(module (import "env" "k" (global $k v128)) (func (export "run") (result v128) (global.get $k)))"#;
    let stubs = vec![Stub::parse("env.k=0x123456789abcdef0123456789abcdef").unwrap()];
    let done = case(text, RecordOptions { stubs, ..RecordOptions::invoke("run", [""; 0]) }).run();
    assert_eq!(done.summary.results, [Value::V128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef)]);
}

#[test]
fn arithmetic_nans_of_vectors_are_canonical_on_both_sides() {
    let text = r#"(module (memory 1) (func (export "run") (param f64 f32) (local v128 v128)
        (local.set 2 (f64x2.replace_lane 1 (f64x2.splat (local.get 0)) (f64.const 1)))
        (local.set 3 (f32x4.replace_lane 2 (f32x4.splat (f32.neg (local.get 1))) (f32.const 1)))
        (v128.store (i32.const 0) (f64x2.add (local.get 2) (local.get 2)))
        (v128.store (i32.const 16) (f32x4.min (local.get 3) (f32x4.neg (local.get 3))))
        (v128.store (i32.const 32) (f32x4.pmin (local.get 3) (f32x4.neg (local.get 3))))
        (v128.store (i32.const 48) (f64x2.relaxed_max (local.get 2) (f64x2.neg (local.get 2))))
        (v128.store (i32.const 64) (f32x4.relaxed_nmadd (local.get 3) (local.get 3) (local.get 3)))
        (v128.store (i32.const 80) (f32x4.demote_f64x2_zero (f64x2.neg (local.get 2))))
        (v128.store (i32.const 96) (f64x2.promote_low_f32x4 (local.get 3)))
        (v128.store (i32.const 112) (f64x2.sqrt (f64x2.neg (local.get 2))))
        (v128.store (i32.const 128) (f32x4.nearest (local.get 3)))
        (v128.store (i32.const 144) (i32x4.relaxed_dot_i8x16_i7x16_add_s (local.get 2) (local.get 3) (local.get 3)))))"#;
    invoke(text, "run", &["nan", "nan"]).run();
}

#[test]
fn arithmetic_nans_are_canonical_on_both_sides() {
    let text = r#"(module (memory 1) (func (export "run") (param f64 f32)
        (f64.store (i32.const 0) (f64.add (local.get 0) (f64.const 1)))
        (f64.store (i32.const 8) (f64.sqrt (f64.const -1)))
        (f32.store (i32.const 16) (f32.div (f32.const 0) (f32.const 0)))
        (f64.store (i32.const 24) (f64.promote_f32 (local.get 1)))
        (f32.store (i32.const 32) (f32.demote_f64 (f64.neg (local.get 0))))
        (f64.store (i32.const 40) (f64.min (local.get 0) (f64.neg (local.get 0))))
        (f64.store (i32.const 48) (f64.copysign (local.get 0) (f64.const -1)))
        (f64.store (i32.const 56) (f64.nearest (f64.neg (local.get 0))))))"#;
    invoke(text, "run", &["nan", "nan"]).run();
}

#[test]
fn missing_imports_are_all_listed_and_stubs_help() {
    let text = r#"(module (import "env" "now" (func $now (param i32) (result i64 i32))) (import "js" "a.b" (global $k f32))
        (import "env" "mem" (memory 1)) (import "env" "tab" (table 3 externref))
        (func (export "run") (result i64 i32 f32) (call $now (i32.const 1)) (global.get $k)))"#;
    let error = invoke(text, "run", &[]).error();
    for line in ["env.now: function [i32] -> [i64 i32]", "js.a.b: global f32", "env.mem: memory of 1 pages", "env.tab: table of 3", "--stub"] {
        assert!(error.contains(line), "{error}");
    }
    let stubs = |list: &[&str]| RecordOptions {
        stubs: list.iter().map(|text| Stub::parse(text).unwrap()).collect(),
        ..RecordOptions::invoke("run", [""; 0])
    };
    let done = case(text, stubs(&["env.now=-5,6", "js.a.b=1.5", "env.mem", "env.tab"])).run();
    assert_eq!(done.summary.results, [Value::I64(-5), Value::I32(6), Value::F32(1.5f32.to_bits())]);
    let check = |list: &[&str], part: &str| {
        let error = case(text, stubs(list)).error();
        assert!(error.contains(part), "{error}");
    };
    check(&["env.now=1", "js.a.b", "env.mem", "env.tab"], "it has 2 values");
    check(&["env.now=1,x", "js.a.b", "env.mem", "env.tab"], "`x` is no i32");
    check(&["env.now", "js.a.b", "env.mem=3", "env.tab"], "it has no value");
    check(&["env.now", "js.a.b", "env.mem", "env.tab", "env.other"], "no such import");
}

#[test]
fn exports_and_arguments_are_checked() {
    let text = r#"(module (func (export "format") (param i32 f64)) (func (export "register")))"#;
    let check = |export: &str, args: &[&str], part: &str| {
        let error = invoke(text, export, args).error();
        assert!(error.contains(part), "{error}");
    };
    check("fromat", &[], "did you mean `format`?");
    check("zzz", &[], "it exports format, register");
    check("format", &["1"], "[i32 f64] -> []: it takes 2 arguments, and 1 were given");
    check("format", &["1", "x"], "argument 2: `x` is no f64");
    assert!(command(text).error().contains("choose one with --invoke"));
    let start = r#"(module (func (export "_start") (param i32)))"#;
    assert!(command(start).error().contains("it takes 1 arguments"));
}

#[test]
fn reactors_are_initialized_first() {
    let text = r#"(module (global $g (mut i32) (i32.const 0)) (func (export "_initialize") (global.set $g (i32.const 8)))
        (func (export "get") (result i32) (global.get $g)))"#;
    let done = invoke(text, "get", &[]).run();
    assert_eq!((done.summary.results.as_slice(), done.summary.entries), (&[Value::I32(8)][..], 2));
}

#[test]
fn tail_calls_and_several_memories() {
    let text = r#"(module (memory $a 1) (memory $b 1) (func $loop (param $n i32) (result i32)
            (i32.store $b (i32.const 0) (local.get $n))
            (if (result i32) (local.get $n) (then (return_call $loop (i32.sub (local.get $n) (i32.const 1))))
                (else (i32.const 55))))
        (func (export "run") (result i32) (i32.store $a (i32.const 4) (i32.const 1)) (call $loop (i32.const 100000))))"#;
    let done = invoke(text, "run", &[]).run();
    assert_eq!((done.summary.results[0], done.outcome().memories.len()), (Value::I32(55), 2));
}

#[test]
fn damage_to_what_the_guest_must_do_is_a_divergence() {
    use worksp_tracer::recording::RecordingWriter;
    let text = r#"(module (import "env" "f" (func $f (param i32) (result i32))) (memory (export "m") 1)
        (func (export "run") (result i32) (i32.store (i32.const 0) (i32.const 3)) (call $f (i32.const 8))))"#;
    let done = invoke(text, "run", &[])
        .func("f", &[I32], &[I32], |guest, _| {
            guest.read(0, 0, 4)?;
            guest.write(0, 4, &[1])?;
            Ok(vec![Value::I32(1)])
        })
        .run();
    let dir = tempfile::tempdir().unwrap();
    let tampered = |change: &dyn Fn(&mut Vec<Event>)| {
        let mut events = done.events();
        change(&mut events);
        let path = dir.path().join("t.wspr");
        let module = done.recording.module().unwrap();
        let mut writer = RecordingWriter::create(&path, done.recording.header(), module, &[]).unwrap();
        events.into_iter().for_each(|event| writer.event(event).unwrap());
        writer.finish(done.outcome().clone()).unwrap();
        replay(&Recording::open(&path).unwrap()).expect_err("it must be noticed").to_string()
    };
    let check = |change: &dyn Fn(&mut Vec<Event>), parts: &[&str]| {
        let error = tampered(change);
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    };
    check(&|e| e[1] = Event::HostCall { import: 0, args: vec![9] }, &["event 2", "arguments of host call env.f", "[9]", "[8]", "in run"]);
    check(&|e| e[2] = Event::Read { memory: 0, address: 0, len: 4, hash: 1 }, &["event 3", "which the host reads", "in env.f", "from run"]);
    check(&|e| e[3] = Event::Write { memory: 0, address: 4, bytes: vec![2] }, &["memory 0 at the end", "BLAKE3"]);
    check(&|e| e[3] = Event::Write { memory: 0, address: 65536, bytes: vec![2] }, &["the size of memory 0"]);
    check(&|e| e[3] = Event::Write { memory: 7, address: 0, bytes: vec![2] }, &["a memory that the module does not have"]);
    check(&|e| *e.last_mut().unwrap() = Event::Leave { end: End::Returned(vec![7]) }, &["how the call ended", "[7]", "[1]"]);
    check(&|e| drop(e.pop()), &["the end of the recording"]);
    check(&|e| e.truncate(3), &["ends inside a call"]);
    check(&|e| drop(e.remove(0)), &["the guest acts while the host has control"]);
    check(&|e| drop(e.remove(1)), &["what the guest did next", "a call of host function 0"]);
    check(&|e| e[0] = Event::Enter { target: Target::Func(99), args: vec![] }, &["a function that the module does not have"]);
    check(&|e| e[0] = Event::Enter { target: Target::Func(1), args: vec![1] }, &["wrong number of arguments"]);
    check(&|e| e[4] = Event::HostReturn { end: End::Returned(vec![]) }, &["wrong number of arguments or results"]);
    check(&|e| e.push(Event::Output { stream: 3, len: 0 }), &["unknown stream"]);
    check(&|e| e.push(Event::GlobalSet { global: 0, value: 0 }), &["a global that the module does not have"]);
}

#[test]
fn exceptions_pass_through_host_functions() {
    let text = r#"(module (import "env" "call" (func $call (param i32) (result i32))) (tag $e (param i32)) (tag $f (export "f"))
        (memory (export "m") 1) (global $kept (mut exnref) (ref.null exn))
        (func (export "throw") (param i32) (result i32)
            (block $h (try_table (catch $f $h) (throw $e (local.get 0)))) (i32.const 1))
        (func (export "quiet") (block $h (try_table (catch $f $h) (throw $f))))
        (func (export "run") (param i32) (result i32)
            (block $h (result i32 exnref)
                (try_table (result i32) (catch_ref $e $h) (i32.add (i32.const 1000) (call $call (local.get 0))))
                (return))
            (global.set $kept)
            (i32.add (i32.const 100))
            (if (i32.eq (local.get 0) (i32.const 3)) (then (throw_ref (global.get $kept))))))"#;
    let run = |mode: &str| {
        invoke(text, "run", &[mode])
            .func("call", &[I32], &[I32], |guest, args| match args[0] {
                // The guest catches what it threw itself.
                Value::I32(0 | 3) => guest.call("throw", &[Value::I32(5)]),
                // The host keeps it to itself.
                Value::I32(1) => Ok(vec![Value::I32(guest.call("throw", &[Value::I32(6)]).is_err().into())]),
                // It throws on what it kept for a while.
                _ => {
                    let thrown = guest.call("throw", &[Value::I32(7)]);
                    guest.call("quiet", &[])?;
                    guest.write(0, 8, &[1])?;
                    thrown
                }
            })
            .run()
    };
    assert_eq!(run("0").summary.results, [Value::I32(105)]);
    assert_eq!(run("1").summary.results, [Value::I32(1001)]);
    let done = run("2");
    assert_eq!(done.summary.results, [Value::I32(107)]);
    let thrown = |event: &Event| matches!(event, Event::HostReturn { end: End::Trapped { code: TrapCode::Exception, .. } });
    assert_eq!(done.events().iter().filter(|event| thrown(event)).count(), 1);
    let done = run("3");
    assert!(matches!(&done.summary.exit, Exit::Trapped { code: TrapCode::Exception, message } if message == "uncaught exception"));
}

#[test]
fn newer_features_run_here_and_there() {
    let text = r#"(module (import "env" "m" (memory i64 1 3)) (import "env" "t" (table $t i64 2 funcref))
        (import "env" "bytes" (memory 10 20 (pagesize 1)))
        (import "env" "work" (func $work (param i64) (result i64)))
        (type $f (func (param i64) (result i64))) (elem declare func $work $twice)
        (table $typed 2 (ref $f) (ref.func $twice))
        (func $twice (type $f) (i64.mul (local.get 0) (i64.const 2)))
        (func (export "run") (result i64 i64) (local $f (ref $f))
            (local.set $f (ref.func $work))
            (table.set $t (i64.const 1) (ref.func $twice))
            (i64.store (memory.grow (i64.const 1)) (call_ref $f (i64.const 70000) (local.get $f)))
            (drop (i64.atomic.rmw.add (i64.const 8) (i64.const 5)))
            (i64.store 1 (i32.const 1) (i64.extend_i32_u (memory.grow 1 (i32.const 1))))
            (i64.add128 (i64.load (i64.const 1)) (i64.atomic.load (i64.const 8)) (i64.const -1)
                (call_indirect $t (type $f) (i64.load 1 (i32.const 1)) (i64.const 1)))))"#;
    let mut case = invoke(text, "run", &[]).func("work", &[ValueType::I64], &[ValueType::I64], |guest, args| {
        let Value::I64(at) = args[0] else { panic!("checked") };
        assert_eq!((guest.memory_bytes(0), guest.memory_bytes(1)), (2 * 65536, 10));
        guest.write(0, at as u64, b"abc")?;
        guest.write(1, 9, b"x")?;
        assert_eq!(guest.memory_grow(1, 3)?, Some(10));
        Ok(vec![Value::I64(1 << 40)])
    });
    case.recorder.memory("env", "m", HostMemory { pages: 1, pages_max: Some(3), contents: vec![7, 0, 1] });
    case.recorder.memory("env", "bytes", HostMemory { pages: 10, pages_max: Some(20), contents: vec![1; 10] });
    case.recorder.table("env", "t", HostTable { element: ValueType::FuncRef, elements: 2, elements_max: None });
    let done = case.run();
    assert_eq!(done.outcome().memories.iter().map(|m| m.bytes).collect::<Vec<_>>(), [2 * 65536, 14]);
    let Value::I64(low) = done.summary.results[0] else { panic!("{:?}", done.summary.results) };
    assert_eq!(low as u64, (1u64 << 40 | 5 << 56) - 1, "{:?}", done.summary.results);
}

#[test]
fn shared_memories_are_recorded_unless_the_program_waits() {
    let text = |body: &str| {
        format!(
            r#"(module (import "env" "work" (func $work)) (import "env" "m" (memory 1 3 shared)) (memory (export "own") 1 1 shared)
                (func (export "run") (result i32)
                    (drop (i32.atomic.rmw.add (i32.const 8) (i32.const 5))) (call $work)
                    (drop (memory.grow (i32.const 1))) (drop (memory.atomic.notify (i32.const 8) (i32.const 1)))
                    {body} (i32.atomic.load 1 (i32.const 4))))"#
        )
    };
    let make = |body: &str| {
        let mut case = invoke(&text(body), "run", &[]).func("work", &[], &[], |guest, _| {
            assert_eq!(guest.read(0, 8, 1)?, [5]);
            guest.write(1, 4, &[77]).map(|()| vec![])
        });
        case.recorder.memory("env", "m", HostMemory { pages: 1, pages_max: Some(3), contents: vec![] });
        case
    };
    let done = make("").run();
    assert_eq!(done.summary.results, [Value::I32(77)]);
    assert_eq!(done.outcome().memories.iter().map(|m| m.bytes).collect::<Vec<_>>(), [2 * 65536, 65536]);
    // Even where it would not have waited: there it traps.
    let case = make("(drop (memory.atomic.wait32 (i32.const 8) (i32.const 1) (i64.const 0)))");
    let error = case.recorder.record(&case.dir.path().join("x.wspr")).unwrap_err().to_string();
    assert!(error.contains("memory.atomic.wait32") && error.contains("cannot be recorded"), "{error}");
}

#[test]
fn the_legacy_form_of_exceptions_is_refused_by_name() {
    let text = r#"(module (tag $e) (func (export "run") try (throw $e) catch $e end))"#;
    let error = worksp_recorder::Recorder::new(text.as_bytes(), RecordOptions::invoke("run", [""; 0])).unwrap_err().to_string();
    assert!(error.contains("uses legacy exceptions (try at offset 0x") && error.contains("try_table"), "{error}");
}
