//! Commands: output, arguments, environment, files, clocks, randomness, exit statuses.

mod common;

use common::{case, command};
use worksp_recorder::{Dir, Exit, RecordOptions, Stdin};
use worksp_tracer::recording::{Event, TrapCode};

/// A program with helpers: `$print ptr len`, and a body.
fn program(imports: &str, body: &str) -> String {
    format!(
        r#"(module
            (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
            {imports}
            (memory (export "memory") 2)
            (func $print (param $ptr i32) (param $len i32)
                (i32.store (i32.const 8) (local.get $ptr))
                (i32.store (i32.const 12) (local.get $len))
                (drop (call $fd_write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 16))))
            (data (i32.const 100) "hello\n")
            (func (export "_start") {body}))"#
    )
}

#[test]
fn output_and_exit_status() {
    let body = "(call $print (i32.const 100) (i32.const 6)) (call $proc_exit (i32.const 7)) unreachable";
    let done = command(&program("", body)).run();
    assert_eq!(done.summary.exit, Exit::Status(7));
    assert_eq!(done.summary.exit.status(), 7);
    assert_eq!(done.replayed.stdout.kept, b"hello\n");
    assert_eq!((done.summary.host_calls, done.summary.entries), (2, 1));
    let output = done.events().into_iter().find(|event| matches!(event, Event::Output { .. }));
    assert_eq!(output, Some(Event::Output { stream: 1, len: 6 }));
}

#[test]
fn arguments_environment_stdin_and_files() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("in.txt"), "from a file").unwrap();
    let imports = r#"
        (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "environ_get" (func $environ_get (param i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "path_open"
            (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
        (data (i32.const 120) "in.txt")"#;
    let body = r#"
        (drop (call $args_sizes_get (i32.const 200) (i32.const 204)))
        (drop (call $args_get (i32.const 300) (i32.const 1000)))
        (call $print (i32.const 1000) (i32.load (i32.const 204)))
        (drop (call $environ_get (i32.const 300) (i32.const 2000)))
        (call $print (i32.const 2000) (i32.const 6))
        (i32.store (i32.const 400) (i32.const 3000))
        (i32.store (i32.const 404) (i32.const 100))
        (drop (call $fd_read (i32.const 0) (i32.const 400) (i32.const 1) (i32.const 408)))
        (call $print (i32.const 3000) (i32.load (i32.const 408)))
        (drop (call $path_open (i32.const 3) (i32.const 0) (i32.const 120) (i32.const 6) (i32.const 0)
            (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 500)))
        (drop (call $fd_read (i32.load (i32.const 500)) (i32.const 400) (i32.const 1) (i32.const 408)))
        (call $print (i32.const 3000) (i32.load (i32.const 408)))"#;
    let options = RecordOptions {
        module_name: "some/dir/app.wasm".to_string(),
        env: vec![("K".to_string(), "vvv".to_string())],
        stdin: Stdin::Bytes(b"typed".to_vec()),
        dirs: vec![Dir { host: dir.path().to_path_buf(), guest: "/".to_string() }],
        ..RecordOptions::command(["-1", "two"])
    };
    let case = case(&program(imports, body), options);
    std::fs::write(case.dir.path().join("unrelated"), "").unwrap();
    let done = case.run();
    assert_eq!(done.replayed.stdout.kept, b"app.wasm\0-1\0two\0K=vvv\0typedfrom a file");
    assert_eq!(done.summary.exit, Exit::Returned(vec![]));
    let command = &done.recording.header().command;
    assert_eq!((command.entry.as_str(), command.args.len(), command.env.as_slice()), ("_start", 2, &["K=vvv".to_string()][..]));
}

#[test]
fn clocks_and_randomness_come_from_the_recording() {
    let imports = r#"
        (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))"#;
    let body = r#"
        (drop (call $random_get (i32.const 1000) (i32.const 64)))
        (drop (call $clock (i32.const 0) (i64.const 0) (i32.const 1064)))
        (call $print (i32.const 1000) (i32.const 72))"#;
    let done = command(&program(imports, body)).run();
    assert_eq!(done.replayed.stdout.kept.len(), 72);
}

#[test]
fn errors_of_calls_are_results() {
    let imports = r#"(import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))"#;
    let body = "(call $proc_exit (call $fd_close (i32.const 99)))";
    assert_eq!(command(&program(imports, body)).run().summary.exit, Exit::Status(8));
}

#[test]
fn bad_pointers_and_bad_statuses_trap() {
    let check = |body: &str, text: &str| {
        let done = command(&program("", body)).run();
        let Exit::Trapped { code: TrapCode::Host, message } = &done.summary.exit else { panic!("{:?}", done.summary.exit) };
        assert!(message.contains(text), "{message}");
        assert!(done.summary.trap.is_some());
        assert_eq!(done.summary.exit.status(), 1);
    };
    check("(call $print (i32.const 100000000) (i32.const 6))", "fd_write: ");
    check("(drop (call $fd_write (i32.const 1) (i32.const -4) (i32.const 1) (i32.const 16)))", "fd_write: ");
    check("(call $proc_exit (i32.const 1000))", "[0..126)");
}

#[test]
fn output_that_reports_into_its_own_buffer() {
    // The result pointer lies inside the buffer that is written.
    let body = "(i32.store (i32.const 8) (i32.const 100)) (i32.store (i32.const 12) (i32.const 6))
        (drop (call $fd_write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 100)))
        (drop (call $fd_write (i32.const 2) (i32.const 8) (i32.const 1) (i32.const 8)))";
    let done = command(&program("", body)).run();
    assert_eq!(done.replayed.stdout.kept, b"hello\n");
    assert_eq!(done.replayed.stderr.kept, b"\x06\0\0\0o\n");
}

#[test]
fn modules_without_memory_may_exit() {
    let text = r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (func (export "_start") (call $exit (i32.const 3))))"#;
    let done = command(text).run();
    assert_eq!((done.summary.exit.status(), done.outcome().memories.len()), (3, 0));
}

#[test]
fn the_old_interface_and_wrong_types_are_refused() {
    let unstable = r#"(module (import "wasi_unstable" "fd_write" (func (param i32 i32 i32 i32) (result i32))) (func (export "_start")))"#;
    assert!(command(unstable).error().contains("wasi_unstable"));
    let wrong = r#"(module (import "wasi_snapshot_preview1" "fd_close" (func (param i64) (result i32)))
        (import "wasi_snapshot_preview1" "fd_clsoe" (func (param i32) (result i32))) (func (export "_start")))"#;
    let error = command(wrong).error();
    assert!(error.contains("fd_close: function [i64] -> [i32] (there is one of another type: function [i32] -> [i32])"), "{error}");
    assert!(error.contains("fd_clsoe: function [i32] -> [i32]"), "{error}");
}

/// Reads standard input and writes it to standard output and error.
const ECHO: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "_start")
        (loop $more
            (i32.store (i32.const 0) (i32.const 100)) (i32.store (i32.const 4) (i32.const 5))
            (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 4)))
            (if (i32.load (i32.const 4)) (then
                (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
                (drop (call $write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
                (br $more))))))"#;

/// Runs only as the child of the next test, whose streams it uses.
#[test]
#[ignore = "the next test runs it as a child process"]
fn child_with_inherited_streams() {
    let options = RecordOptions { stdin: Stdin::Inherit, ..RecordOptions::default() };
    let path = std::env::temp_dir().join(format!("worksp-inherit-{}.wspr", std::process::id()));
    let summary = worksp_recorder::record(ECHO.as_bytes(), &options, &path).unwrap();
    let recording = worksp_tracer::recording::Recording::open(&path).unwrap();
    let replayed = common::replay(&recording).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((summary.stdout.as_slice(), replayed.stdout.kept.as_slice()), (&b"typed input\n"[..], &b"typed input\n"[..]));
}

#[test]
fn streams_are_inherited() {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_with_inherited_streams", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // In two parts, so that the program waits for the second.
    stdin.write_all(b"typed ").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    stdin.write_all(b"input\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("typed input") && stderr.contains("typed input"), "{stdout}\n{stderr}");
}
