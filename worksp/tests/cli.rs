//! The command line as its user meets it: every example of every `--help` runs, and every way to use it wrongly ends with a
//! message and status 2.

use std::path::Path;
use std::process::{Command, Output, Stdio};

const DEMO: &[u8] = include_bytes!("../../fixtures/demo/mandelbrot.wasm");
const LIBRARY: &str = r#"(module (memory (export "memory") 1)
    (func $step (param $i i32) (local $n i32)
        (local.set $n (i32.const 900))
        (loop $spin (br_if $spin (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
        (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (local.get $i))))
    (func (export "run") (param $n i32) (result i32)
        (loop $again
            (call $step (local.get $n))
            (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
        (i32.load (i32.const 64))))"#;

/// A folder with the files that examples name.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).expect("it can be written");
    write("app.wasm", DEMO);
    write("lib.wasm", &wat::parse_str(LIBRARY).expect("the text is valid"));
    write("calls.json", br#"[{"invoke": "run", "args": [3], "expect": [6]}]"#);
    write("in.svg", b"<svg/>");
    folder
}

fn worksp(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_worksp"));
    command.current_dir(folder).args(args).stdin(Stdio::null());
    command.output().expect("the binary starts")
}

/// Splits a command line as a shell does, as far as our examples need.
fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(|word| word.trim_matches('\'').to_owned()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_example_of_every_help_runs() {
    let folder = folder();
    // What the examples expect to be there already; each of them finds it fresh.
    let prepare = || {
        for args in [["record", "app.wasm", "-o", "req.wspr"], ["trace", "app.wasm", "-o", "run.wspt"]] {
            assert!(worksp(folder.path(), &args).status.success());
        }
    };
    let mut seen = 0;
    for command in ["", "record", "trace", "report", "demo", "fuzz"] {
        let args: Vec<&str> = if command.is_empty() { vec!["--help"] } else { vec![command, "--help"] };
        let help = worksp(folder.path(), &args);
        assert!(help.status.success());
        let help = text(&help.stdout);
        let examples = help.lines().skip_while(|line| *line != "Examples:").skip(1);
        for line in examples.take_while(|line| !line.is_empty()).filter(|line| line.trim_start().starts_with("worksp ")) {
            // The comment stands behind at least two blanks.
            let command = line.trim_start().split("  ").next().expect("not empty");
            let arguments = words(command.strip_prefix("worksp ").expect("it begins so"));
            // The demo's program has one function of that shape, and no loop in its entry.
            let arguments: Vec<&str> = arguments.iter().map(|w| if w == "loop:main#0" { "loop:render_row#0" } else { w.as_str() }).collect();
            prepare();
            let output = worksp(folder.path(), &arguments);
            assert!(output.status.success(), "`{command}` failed: {}", text(&output.stderr));
            seen += 1;
        }
    }
    assert!(seen >= 12, "only {seen} examples were found");
}

#[test]
fn output_that_nobody_reads_or_that_does_not_fit() {
    let folder = folder();
    assert!(worksp(folder.path(), &["trace", "app.wasm", "-o", "run.wspt"]).status.success());
    for args in [&["report", "run.wspt"][..], &["report", "run.wspt", "--json"], &["demo"], &["fuzz", "replay", "single-1-7-300", "--text"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let start = |to: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_worksp"));
            command.current_dir(folder.path()).args(args).stdin(Stdio::null()).stdout(to).output().expect("the binary starts")
        };
        let gone = start(writer.into());
        assert!(gone.status.success() && !text(&gone.stderr).contains("panicked"), "{args:?}: {}", text(&gone.stderr));
        let full = start(std::fs::File::create("/dev/full").expect("a device").into());
        assert_eq!(full.status.code(), Some(2), "{args:?}");
        assert!(text(&full.stderr).contains("the output cannot be written: No space left"), "{args:?}: {}", text(&full.stderr));
    }
}

#[test]
fn wrong_use_and_bad_input_end_with_a_message_and_status_2() {
    let folder = folder();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).expect("it can be written");
    assert!(worksp(folder.path(), &["record", "app.wasm", "-o", "req.wspr"]).status.success());
    assert!(worksp(folder.path(), &["trace", "req.wspr", "-o", "run.wspt"]).status.success());
    let recording = std::fs::read(folder.path().join("req.wspr")).expect("written");
    let trace = std::fs::read(folder.path().join("run.wspt")).expect("written");
    write("garbage.wasm", b"\0asm\x01\0\0\0garbage");
    write("empty.wasm", b"");
    write("short.wspr", &recording[..recording.len() / 2]);
    write("flipped.wspr", &{ let mut bytes = recording.clone(); bytes[recording.len() / 3] ^= 4; bytes });
    write("later.wspr", &{ let mut bytes = recording.clone(); bytes[8] = 99; bytes });
    write("flipped.wspt", &{ let mut bytes = trace.clone(); bytes[trace.len() / 3] ^= 4; bytes });
    write("gc.wat", br#"(module (type (struct)) (func (export "run")))"#);
    let wait = "(drop (memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const -1)))";
    write("waits.wat", format!(r#"(module (memory 1 1 shared) (func (export "run") {wait}))"#).as_bytes());
    write("wide.wat", br#"(module (memory i64 1) (func (export "run")))"#);
    write("fill.wat", br#"(module (memory 256) (func (export "run") (memory.fill (i32.const 8) (i32.const 1) (i32.const 0xf00000))))"#);
    write("needs.wat", br#"(module (import "env" "now" (func)) (import "env" "then" (func)) (func (export "run")))"#);
    let cases: &[(&str, &[&str])] = &[
        // command line, what the message must say
        ("trace nothing.wasm", &["nothing.wasm", "No such file"]),
        ("trace garbage.wasm", &["garbage.wasm", "offset"]),
        ("trace empty.wasm", &["empty.wasm"]),
        ("trace short.wspr", &["short.wspr"]),
        ("trace flipped.wspr", &["flipped.wspr"]),
        ("trace later.wspr", &["later.wspr", "version"]),
        ("trace run.wspt", &["run.wspt"]),
        ("report req.wspr", &["req.wspr"]),
        ("report flipped.wspt", &["flipped.wspt"]),
        ("report app.wasm", &["app.wasm"]),
        ("trace gc.wat --invoke run", &["garbage-collected types"]),
        ("trace waits.wat --invoke run", &["memory.atomic.wait32", "cannot be recorded"]),
        ("trace wide.wat --invoke run --memory-max 4097", &["beyond 4 GiB", "--memory-max 4096"]),
        ("trace needs.wat --invoke run", &["env.now", "env.then", "--stub"]),
        ("trace needs.wat --invoke run --stub env", &["MODULE.NAME"]),
        ("trace lib.wasm --invoke rum -- 1", &["rum", "run"]),
        ("trace lib.wasm --invoke run -- one", &["one", "i32"]),
        ("trace lib.wasm --invoke run", &["run"]),
        ("trace lib.wasm", &["_start"]),
        ("trace lib.wasm --script nothing.json", &["nothing.json"]),
        ("trace lib.wasm --script in.svg", &["in.svg"]),
        ("trace req.wspr --unit func:nothing", &["nothing"]),
        ("trace req.wspr --unit whatever", &["whatever"]),
        ("trace req.wspr --unit loop:render_row#9", &["render_row"]),
        ("trace req.wspr --granule 3", &["1, 4 or 8"]),
        ("trace req.wspr --invoke run", &["recording holds its request"]),
        ("trace req.wspr -o no/such/folder/run.wspt", &["no/such/folder"]),
        ("record app.wasm -o no/such/folder/req.wspr", &["no/such/folder"]),
        ("record app.wasm --dir nothing::/ -o x.wspr", &["nothing"]),
        ("record app.wasm --env UNSET_HERE -o x.wspr", &["UNSET_HERE"]),
        ("record app.wasm", &["--output"]),
        ("trace", &["INPUT"]),
        ("dance", &["dance"]),
        ("trace req.wspr --memory lots", &["MiB"]),
        ("trace fill.wat --invoke run --memory 8MiB", &["more than 8 MiB", "--memory"]),
        ("trace lib.wasm --invoke run --unit loop:run#0 --memory 2MiB -- 20000", &["more than 2 MiB", "segments", "--unit"]),
        ("trace fill.wat --invoke run --memory 0", &["more than 0 MiB"]),
    ];
    for (line, wanted) in cases {
        let arguments = words(line);
        let output = worksp(folder.path(), &arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "`worksp {line}`: {message}{}", text(&output.stdout));
        assert!(!message.contains("panicked"), "`worksp {line}`: {message}");
        for part in *wanted {
            assert!(message.contains(part), "`worksp {line}` does not say {part:?}: {message}");
        }
    }
    let left: Vec<String> = std::fs::read_dir(folder.path())
        .expect("it is there")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".partial") || name.starts_with("x."))
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn the_demo_explains_itself() {
    let folder = folder();
    let output = worksp(folder.path(), &["demo"]);
    let shown = text(&output.stdout);
    assert!(output.status.success());
    for part in ["func:render_row", "M0", "M7", "How to read it", "32 host calls agree"] {
        assert!(shown.contains(part), "the demo does not say {part:?}:\n{shown}");
    }
    assert!(!shown.contains('\x1b'), "no colours in a pipe");
}

#[test]
fn a_request_that_is_traced_twice_gives_the_same_bytes() {
    let folder = folder();
    assert!(worksp(folder.path(), &["record", "app.wasm", "-o", "req.wspr"]).status.success());
    let trace = |name: &str| {
        let output = worksp(folder.path(), &["trace", "req.wspr", "-o", name, "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        (output.stdout, std::fs::read(folder.path().join(name)).expect("written"))
    };
    let (first, second) = (trace("a.wspt"), trace("b.wspt"));
    assert_eq!(first.0, second.0);
    assert!(first.1 == second.1, "the trace files differ");
    let report = worksp(folder.path(), &["report", "a.wspt", "--json"]);
    assert_eq!(report.stdout, first.0, "the report of the file is the report of the run");
}

#[test]
fn traps_and_exit_statuses_are_the_programs_own_affair() {
    let folder = folder();
    let trapping = r#"(module (memory 1) (func $f (i32.store (i32.const 0) (i32.const 7)) (unreachable)) (func (export "run") (call $f)))"#;
    std::fs::write(folder.path().join("trap.wat"), trapping).expect("it can be written");
    let output = worksp(folder.path(), &["trace", "trap.wat", "--invoke", "run", "--unit", "func:f"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("trapped"), "{}", text(&output.stdout));
}

/// Options that take the schema's object apart, as a script would.
#[test]
fn the_json_has_the_fields_that_it_promises() {
    let folder = folder();
    let output = worksp(folder.path(), &["trace", "lib.wasm", "--invoke", "run", "--unit", "func:step", "--json", "--", "10"]);
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object and nothing else");
    assert_eq!(object["schema"], "worksp.ladder.v1");
    // Each of ten calls: 2 operators, 900 trips of 5, 6 for the sum; their caller: 7 around each call, 2 at the end.
    assert_eq!(object["work"], 10 * (2 + 900 * 5 + 6) + 10 * 7 + 2);
    assert_eq!((object["units"].as_u64(), object["segments"].as_u64()), (Some(11), Some(21)));
    let rungs = object["rungs"].as_array().expect("rungs");
    let names: Vec<&str> = rungs.iter().map(|r| r["rung"].as_str().expect("a name")).collect();
    assert_eq!(names, ["M0", "M1", "M2", "M3", "M4", "M5", "M6", "M7"]);
    assert_eq!((rungs[1]["valid"].as_str(), rungs[1]["binding"][0].as_str()), (Some("valid"), Some("delta")));
    assert!(rungs[4]["span"].as_u64() < rungs[3]["span"].as_u64(), "the sum commutes at M4");
}

/// The file is written while the run goes on, and the report from it is the one that the run ends with.
#[test]
fn a_trace_file_holds_what_the_run_showed() {
    let folder = folder();
    for request in [&["app.wasm"][..], &["lib.wasm", "--invoke", "run", "--unit", "func:step"]] {
        let arguments = if request.len() > 1 { &["--", "3000"][..] } else { &[] };
        let traced = worksp(folder.path(), &[&["trace"], request, &["-o", "run.wspt", "--json"], arguments].concat());
        assert!(traced.status.success(), "{}", text(&traced.stderr));
        let reported = worksp(folder.path(), &["report", "run.wspt", "--json"]);
        assert_eq!(text(&reported.stdout), text(&traced.stdout));
    }
}

/// ^C ends a recording and a trace with status 2, and nothing is left under the final name.
#[cfg(unix)]
#[test]
fn interrupted_commands_leave_nothing_under_the_final_name() {
    use std::time::{Duration, Instant};

    let folder = folder();
    let endless = wat::parse_str(r#"(module (func (export "_start") (loop $l (br $l))))"#).expect("the text is valid");
    std::fs::write(folder.path().join("endless.wasm"), endless).expect("it can be written");
    // Long enough that a replay is certainly under way.
    let long = worksp(folder.path(), &["record", "lib.wasm", "--invoke", "run", "-o", "long.wspr", "--", "200000"]);
    assert!(long.status.success(), "{}", text(&long.stderr));
    for (args, output) in [
        (["record", "endless.wasm", "-o", "out.wspr"], "out.wspr"),
        (["trace", "long.wspr", "-o", "out.wspt"], "out.wspt"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worksp"));
        command.current_dir(folder.path()).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().expect("the binary starts");
        std::thread::sleep(Duration::from_millis(700));
        let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill starts");
        assert!(interrupt.success(), "{args:?} had ended before it was interrupted");
        let since = Instant::now();
        let ended = child.wait_with_output().expect("it ends");
        assert!(since.elapsed() < Duration::from_secs(20), "{args:?} took its time");
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {}", text(&ended.stderr));
        assert!(text(&ended.stderr).contains("interrupted"), "{args:?}: {}", text(&ended.stderr));
        assert!(!folder.path().join(output).exists(), "{args:?} left a file under its final name");
    }
}
