//! Campaigns from the command line: what is killed goes on, shards make the whole, and what is broken is said and lost by nobody.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_worksp"));
    command.current_dir(dir).arg("fuzz").args(args).stdin(Stdio::null());
    command
}

fn fuzz(dir: &Path, args: &[&str]) -> Output {
    command(dir, args).output().expect("the binary starts")
}

fn report(dir: &Path, args: &[&str]) -> Value {
    let output = fuzz(dir, &[&["report", "--json"], args].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output)))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Without what depends on the machine.
fn totals(report: &Value) -> Value {
    let mut totals = report["totals"].clone();
    totals.as_object_mut().expect("an object").remove("cpu_s");
    totals
}

fn must(output: Output, status: i32, says: &[&str]) {
    let text = text(&output);
    assert_eq!(output.status.code(), Some(status), "{text}");
    for words in says {
        assert!(text.contains(words), "it does not say {words}: {text}");
    }
    assert!(!text.contains("panicked"), "{text}");
}

const MODES: [&str; 2] = ["--modes", "counting,plain,traced"];
const PROGRAMS: [&str; 2] = ["--generators", "single"];

#[test]
fn a_campaign_that_is_killed_again_and_again_comes_to_the_same() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path();
    must(fuzz(dir, &[&["run", "--dir", "whole", "--cases", "1280", "--digests"], &MODES[..], &PROGRAMS].concat()), 0, &["1,280 programs (20 batches)"]);
    let whole = report(dir, &["--dir", "whole"]);
    // Killed at any instant, until all batches are there.
    must(fuzz(dir, &[&["run", "--dir", "killed", "--cases", "1"], &MODES[..], &PROGRAMS].concat()), 0, &[]);
    let mut kills = 0;
    loop {
        let done = report(dir, &["--dir", "killed"])["totals"]["batches"].as_u64().expect("a number");
        if done >= 20 {
            break;
        }
        let left = ((20 - done) * 64).to_string();
        let mut child = command(dir, &["resume", "--dir", "killed", "--digests", "--cases", &left]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(20 + 37 * kills % 200));
        kills += 1;
        if kills < 12 {
            child.kill().expect("it can be killed");
        }
        child.wait().expect("it ends");
    }
    assert!(kills > 2, "it was killed {kills} times");
    let killed = report(dir, &["--dir", "killed"]);
    assert_eq!(totals(&killed), totals(&whole));
    assert_eq!(killed["coverage"], whole["coverage"]);
    assert!(whole["totals"]["comparisons"].as_u64() > Some(20_000) && whole["good"] == true);
}

#[test]
fn shards_make_the_whole_and_can_be_on_several_machines() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path();
    let run = |name: &str, shard: &str, cases: &str| {
        must(fuzz(dir, &[&["run", "--dir", name, "--shard", shard, "--cases", cases], &MODES[..], &PROGRAMS].concat()), 0, &[]);
    };
    run("whole", "0/1", "512");
    run("here", "0/2", "256");
    run("there", "1/2", "256");
    let whole = report(dir, &["--dir", "whole"]);
    let both = report(dir, &["--dir", "here", "--dir", "there"]);
    assert_eq!(totals(&both), totals(&whole));
    // What two machines did both counts once.
    assert_eq!(totals(&report(dir, &["--dir", "here", "--dir", "here"])), totals(&report(dir, &["--dir", "here"])));
    must(fuzz(dir, &["report", "--dir", "whole", "--dir", "here"]), 2, &["different campaigns"]);
}

#[test]
fn what_is_broken_is_said() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path();
    let run: Vec<&str> = [&["run", "--dir", "c", "--cases", "128"], &MODES[..], &PROGRAMS].concat();
    must(fuzz(dir, &run), 0, &["128 programs"]);
    must(fuzz(dir, &run), 2, &["there is a campaign already", "resume"]);
    must(fuzz(dir, &["resume", "--dir", "none"]), 2, &["none: no campaign here", "fuzz run"]);
    must(fuzz(dir, &["resume", "--dir", "c", "--shard", "0/3"]), 2, &["this campaign has 1 shards"]);
    must(fuzz(dir, &["replay", "single-9-1-1"]), 2, &["version 9 of single is not in this build"]);
    must(fuzz(dir, &["replay", "nobody-1-1-1"]), 2, &["no generator nobody"]);
    must(fuzz(dir, &["replay", "missing.json"]), 2, &["missing.json"]);
    must(fuzz(dir, &["run", "--generators", "corpus"]), 2, &["--corpus DIR"]);
    must(fuzz(dir, &["run", "--corpus", "nowhere"]), 2, &["nowhere"]);
    must(fuzz(dir, &["run", "--shard", "3/3"]), 2, &["0/4"]);
    must(fuzz(dir, &["run", "--modes", "w9"]), 2, &["w9"]);
    must(fuzz(dir, &["run", "--time", "soon"]), 2, &["soon is no time"]);
    must(fuzz(dir, &["run", "--time", "0"]), 2, &["no time at all"]);
    must(fuzz(dir, &["run", "--cases", "0"]), 2, &["--cases"]);
    must(fuzz(dir, &["replay", "single-1-1-99999999999999999999"]), 2, &["at most 18446744073709551615"]);
    std::fs::write(dir.join("file"), "").expect("it can be written");
    must(fuzz(dir, &["run", "--dir", "file"]), 2, &["file: not a folder"]);
    must(fuzz(dir, &["status", "--dir", "file"]), 2, &["file: not a folder"]);
    std::fs::write(dir.join("endless.wat"), "(module (func (export \"f\") (loop (br 0))))").expect("it can be written");
    must(fuzz(dir, &["replay", "endless.wat"]), 0, &["not compared: it never ends"]);
    std::fs::write(dir.join("garbage.wasm"), "garbage").expect("it can be written");
    must(fuzz(dir, &["replay", "garbage.wasm"]), 2, &["garbage.wasm"]);
    let lines = dir.join("c/shard-0-of-1.jsonl");
    let good = std::fs::read_to_string(&lines).expect("lines");
    // A line that was not finished counts for nothing, and is made again.
    std::fs::write(&lines, &good[..good.len() - 9]).expect("it can be written");
    assert_eq!(report(dir, &["--dir", "c"])["totals"]["batches"], 1);
    must(fuzz(dir, &["resume", "--dir", "c", "--cases", "64"]), 0, &["128 programs (2 batches)"]);
    // One that is broken is an error, and stays as it is.
    let broken = good.replacen("\"batch\":0", "\"batch\":x", 1);
    std::fs::write(&lines, &broken).expect("it can be written");
    must(fuzz(dir, &["resume", "--dir", "c"]), 2, &["shard-0-of-1.jsonl: line 1"]);
    must(fuzz(dir, &["status", "--dir", "c"]), 2, &["line 1"]);
    assert_eq!(std::fs::read_to_string(&lines).expect("lines"), broken);
    let first = good.lines().next().expect("a line");
    std::fs::write(&lines, format!("{first}\n{first}\n")).expect("it can be written");
    must(fuzz(dir, &["status", "--dir", "c"]), 2, &["line 2: batch 0 is there twice"]);
    std::fs::write(&lines, &good).expect("it can be written");
    let plan = std::fs::read_to_string(dir.join("c/campaign.json")).expect("a plan");
    for (change, into, says) in [("campaign.v1", "campaign.v9", "layout worksp.campaign.v9"), ("versions", "version", "unknown field"), ("{", "", "not the plan")] {
        std::fs::write(dir.join("c/campaign.json"), plan.replacen(change, into, 1)).expect("it can be written");
        must(fuzz(dir, &["resume", "--dir", "c"]), 2, &["campaign.json", says]);
    }
    let other = plan.replacen("\"versions\": [\n    1", "\"versions\": [\n    77", 1);
    assert_ne!(other, plan);
    std::fs::write(dir.join("c/campaign.json"), other).expect("it can be written");
    must(fuzz(dir, &["resume", "--dir", "c"]), 2, &["version 77 of single"]);
}

#[test]
fn two_at_one_shard_and_a_full_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path();
    let mut first = command(dir, &["run", "--dir", "c", "--time", "30"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let lines = dir.join("c/shard-0-of-1.jsonl");
    for _ in 0..600 {
        if std::fs::metadata(&lines).is_ok_and(|data| data.len() > 0) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    must(fuzz(dir, &["resume", "--dir", "c", "--cases", "64"]), 2, &["another process is at work"]);
    first.kill().expect("it can be killed");
    first.wait().expect("it ends");
    // No file may become longer than 16 KiB: as a disk that is full.
    let script = format!("ulimit -f 16; trap '' XFSZ; exec {} fuzz run --dir small --generators single --cases 6400", env!("CARGO_BIN_EXE_worksp"));
    let output = Command::new("bash").args(["-c", &script]).current_dir(dir).output().expect("bash starts");
    must(output, 2, &["small/shard-0-of-1.jsonl: "]);
    // What was there is whole, and the campaign goes on.
    let before = report(dir, &["--dir", "small"])["totals"]["batches"].as_u64().expect("a number");
    must(fuzz(dir, &["resume", "--dir", "small", "--cases", "64"]), 0, &[&format!("({} batches)", before + 1)]);
}

#[test]
fn a_batch_in_which_the_process_ends_again_and_again_is_left_and_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path();
    must(fuzz(dir, &[&["run", "--dir", "c", "--cases", "64"], &MODES[..], &PROGRAMS].concat()), 0, &[]);
    // As processes left it that ended in batch 1, once and too often; the last line was cut short.
    std::fs::write(dir.join("c/shard-0-of-1.busy"), "1 1\n2 5\n3").expect("it can be written");
    must(fuzz(dir, &["resume", "--dir", "c", "--cases", "64"]), 0, &["128 programs", "Cranelift, single pass 64"]);
    must(fuzz(dir, &["resume", "--dir", "c", "--first"]), 1, &["the process ended 5 times between single-1-1-128 and single-1-1-191"]);
    must(fuzz(dir, &["resume", "--dir", "c", "--cases", "64"]), 1, &["192 programs (4 batches)"]);
}

#[test]
fn answers_that_are_kept_need_no_oracle() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path();
    must(fuzz(dir, &["golden", "a.jsonl", "--write", "--cases", "256"]), 0, &["256 programs"]);
    must(fuzz(dir, &["golden", "a.jsonl", "--modes", "plain,counting,traced,eager"]), 0, &["0 batches differ"]);
    let good = std::fs::read_to_string(dir.join("a.jsonl")).expect("answers");
    let (head, rest) = good.split_once('\n').expect("a header");
    let changed = if rest.starts_with('0') { rest.replacen('0', "1", 1) } else { "0".to_owned() + &rest[1..] };
    std::fs::write(dir.join("b.jsonl"), format!("{head}\n{changed}")).expect("it can be written");
    must(fuzz(dir, &["golden", "b.jsonl"]), 1, &["1 batches differ", "0 to 63"]);
    std::fs::write(dir.join("b.jsonl"), good.replacen("[1", "[7", 1)).expect("it can be written");
    must(fuzz(dir, &["golden", "b.jsonl"]), 2, &["other versions now"]);
    std::fs::write(dir.join("b.jsonl"), "rubbish").expect("it can be written");
    must(fuzz(dir, &["golden", "b.jsonl"]), 2, &["b.jsonl: line 1"]);
}
