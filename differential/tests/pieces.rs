//! Real programs that are saved again and again, each time restored by a new process, end as if they had run in one go.

use std::path::Path;
use std::process::Command;

use worksp_differential::subject;

/// Replays a recording in pieces and compares with the whole.
fn check(recording: &Path, work: u64, pieces_min: u64) {
    let whole = subject::engine(recording, true).expect("it replays");
    let mut command = Command::new(env!("CARGO_BIN_EXE_subject"));
    let done = command.arg("pieces").arg(recording).args(["--work", &work.to_string()]).output().expect("the subject starts");
    let talk = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{talk}");
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("one report");
    assert_eq!((report["digest"].as_str(), report["work"].as_u64()), (Some(&*whole.digest), whole.work));
    let processes: u64 = talk.split(' ').next().and_then(|word| word.parse().ok()).expect("it says how many");
    println!("{talk}");
    assert!(processes >= pieces_min, "{talk}");
}

#[test]
fn the_demonstration_in_pieces() {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/demo/mandelbrot.wspr");
    let whole = subject::engine(Path::new(demo), true).expect("it replays").work.expect("it counts");
    check(Path::new(demo), whole / 20, 20);
}

#[test]
#[ignore = "long, and needs `cargo xtask fetch cpython`; run with --ignored"]
fn cpython_every_ten_million_operators() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let recording = dir.path().join("cpython.wspr");
    let mut command = Command::new(env!("CARGO_BIN_EXE_subject"));
    command.arg("record").arg(format!("{fixtures}/cache/modules/cpython.wasm")).arg("-o").arg(&recording);
    let done = command.args(["--dir", &format!("{fixtures}/requests::/in"), "--", "/in/report.py"]).output().expect("the subject starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    check(&recording, 10_000_000, 50);
}
