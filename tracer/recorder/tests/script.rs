//! Scripts: several calls, memory writes and reads, names.

mod common;

use std::path::Path;

use common::case;
use worksp_recorder::{Error, Exit, RecordOptions, Script, Value};

/// A library with an allocator and a function that upper-cases a text and joins a list of texts.
const LIBRARY: &str = r#"(module (memory (export "memory") 1) (memory (export "aux") 1)
    (global $next (mut i32) (i32.const 1024))
    (func (export "_initialize"))
    (func (export "malloc") (param $n i32) (result i32)
        (global.get $next) (global.set $next (i32.add (global.get $next) (local.get $n))))
    (func (export "upper") (param $p i32) (param $n i32) (result i32 i32)
        (local $i i32)
        (loop $l (if (i32.lt_u (local.get $i) (local.get $n)) (then
            (i32.store8 (i32.add (local.get $p) (local.get $i))
                (i32.and (i32.load8_u (i32.add (local.get $p) (local.get $i))) (i32.const 0xdf)))
            (local.set $i (i32.add (local.get $i) (i32.const 1))) (br $l))))
        (local.get $p) (local.get $n))
    (func (export "first") (param $argc i32) (param $argv i32) (result i32)
        (i32.load8_u (i32.load (i32.add (local.get $argv) (i32.mul (i32.const 4) (i32.sub (local.get $argc) (i32.const 1)))))))
    (func (export "half") (param f64) (result f64) (f64.div (local.get 0) (f64.const 2)))
    (func (export "fail") unreachable))"#;

fn options(text: &str) -> RecordOptions {
    RecordOptions::script(Script::parse(Path::new("calls.json"), text).unwrap_or_else(|error| panic!("{error}")))
}

#[test]
fn calls_writes_and_reads_in_order() {
    let text = r#"{"steps": [
        {"invoke": "_initialize"},
        {"let": "text", "utf8": "hello"},
        {"invoke": "malloc", "args": ["$text.len"], "save": "p", "expect": [1024]},
        {"write_memory": "$p", "data": "text"},
        {"write_memory": 8, "memory": "aux", "bytes": [1, 2]},
        {"invoke": "upper", "args": ["$p", "$text.len"], "save": ["q", "n"]},
        {"read_memory": "$q", "len": "$n", "print": true, "expect": "HELLO"},
        {"read_memory": "$q + 1", "len": 4, "save": "word", "expect": {"hex": "454c4c4f"}},
        {"invoke": "half", "args": [3], "save": "h"},
        {"invoke": "half", "args": ["$h"], "expect": [0.75]}]}"#;
    let done = case(LIBRARY, options(text)).run();
    assert_eq!(done.summary.printed, b"HELLO");
    assert_eq!((done.summary.results.as_slice(), done.summary.entries), (&[Value::F64(0.75f64.to_bits())][..], 5));
    assert_eq!(done.recording.header().command.entry, "script calls.json");
}

#[test]
fn argument_vectors_are_built_from_names() {
    let text = r#"[
        {"invoke": "malloc", "args": [6], "save": "a"}, {"write_memory": "$a", "utf8": "qjs\u0000"},
        {"invoke": "malloc", "args": [6], "save": "b"}, {"write_memory": "$b", "utf8": "run\u0000"},
        {"invoke": "malloc", "args": [12], "save": "argv"}, {"write_memory": "$argv", "u32": ["$a", "$b", 0]},
        {"read_memory": "$argv", "len": 4, "save": "again"}, {"read_memory": "$again", "len": 3, "expect": "qjs"},
        {"invoke": "first", "args": [2, "$argv"], "expect": [114]}]"#;
    assert_eq!(case(LIBRARY, options(text)).run().summary.exit, Exit::Returned(vec![114]));
}

#[test]
fn files_are_found_beside_the_script() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("data.bin"), b"file!").unwrap();
    let path = dir.path().join("calls.json");
    std::fs::write(&path, r#"[{"write_memory": 0, "file": "data.bin"}, {"read_memory": 0, "len": 5, "expect": "file!"}]"#).unwrap();
    case(LIBRARY, RecordOptions::script(Script::read(&path).unwrap())).run();
    assert!(matches!(Script::read(&dir.path().join("none.json")), Err(Error::Read { .. })));
}

#[test]
fn a_trap_ends_the_script_and_is_recorded() {
    let done = case(LIBRARY, options(r#"[{"invoke": "fail"}, {"invoke": "malloc", "args": [1]}]"#)).run();
    assert_eq!((done.summary.exit.status(), done.summary.entries), (134, 2), "`_initialize` came first by itself");
}

#[test]
fn what_goes_wrong_names_the_step() {
    let check = |text: &str, part: &str| {
        let error = case(LIBRARY, options(text)).error();
        assert!(error.contains(part), "{error}");
    };
    check(r#"[{"invoke": "mallok", "args": [1]}]"#, "did you mean `malloc`?");
    check(r#"[{"invoke": "malloc"}]"#, "step 1: `malloc` has type [i32] -> [i32], and 0 arguments are given");
    check(r#"[{"invoke": "malloc", "args": ["$p"]}]"#, "step 1: nothing was saved as `p`");
    check(r#"[{"invoke": "malloc", "args": [1.5]}]"#, "step 1: `1.5` is no i32");
    check(r#"[{"invoke": "malloc", "args": [1], "expect": [7]}]"#, "step 1: `malloc` returned [1024], not [7]");
    check(r#"[{"invoke": "malloc", "args": [1], "save": ["a", "b"]}]"#, "has 1 results, and 2 names");
    check(r#"[{"let": "x", "utf8": ""}, {"write_memory": 65536, "bytes": [1]}]"#, "step 2: 1 bytes at 0x10000 are outside memory 0");
    check(r#"[{"read_memory": -1, "len": 1}]"#, "-1 is no address");
    check(r#"[{"write_memory": 0, "memory": "none", "bytes": []}]"#, "exports no memory `none`");
    check(r#"[{"write_memory": 0, "utf8": "abc"}, {"read_memory": 0, "len": 3, "expect": "abd"}]"#, r#"memory holds "abc", not "abd""#);
}
