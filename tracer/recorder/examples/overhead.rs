//! What recording costs: alternates recorded and unrecorded runs of one request and prints every time and the ratio of the
//! medians; with `--replay` it replays the recording as well.
//!
//! `cargo run --release -p worksp-recorder --example overhead -- [--dir H::G] [--invoke NAME] [--script CALLS.json] [--runs N]
//! [--replay] APP.wasm [-- ARGS…]`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use worksp_engine::probe::{NoProbe, TracePlan};
use worksp_recorder::{Dir, Entry, RecordOptions, Recorder, Script, Stdout};
use worksp_tracer::recording::Recording;
use worksp_tracer::replay::Replay;

struct Request {
    module: PathBuf,
    options: RecordOptions,
    runs: usize,
    replay: bool,
}

fn parse() -> Result<Request, Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let options = RecordOptions { stdout: Stdout::Capture, stderr: Stdout::Capture, ..RecordOptions::default() };
    let mut request = Request { module: PathBuf::new(), options, runs: 5, replay: false };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--dir" => request.options.dirs.push(Dir::parse(&value()?)?),
            "--invoke" => request.options.entry = Entry::Invoke(value()?),
            "--script" => request.options.entry = Entry::Script(Script::read(value()?.as_ref())?),
            "--runs" => request.runs = value()?.parse()?,
            "--replay" => request.replay = true,
            "--" => request.options.args = args.by_ref().collect(),
            _ => {
                request.options.module_name.clone_from(&arg);
                request.module = PathBuf::from(arg);
            }
        }
    }
    Ok(request)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let request = parse()?;
    let recorder = Recorder::new(&std::fs::read(&request.module)?, request.options)?;
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("request.wspr");
    let (mut recorded, mut unrecorded): (Vec<Duration>, Vec<Duration>) = (Vec::new(), Vec::new());
    for run in 0..request.runs.max(1) {
        let summary = recorder.record(&path)?;
        recorded.push(summary.duration);
        let plain = recorder.run_unrecorded()?;
        unrecorded.push(plain.duration);
        println!(
            "run {run}: recorded {:.4} s, unrecorded {:.4} s; {} host calls, {} events, exit status {}, {} bytes of output, compiled in {:.2} s",
            summary.duration.as_secs_f64(),
            plain.duration.as_secs_f64(),
            summary.host_calls,
            summary.events,
            summary.exit.status(),
            summary.stdout.len(),
            summary.compile.as_secs_f64(),
        );
        if run == 0 && !summary.stderr.is_empty() {
            println!("standard error: {}", String::from_utf8_lossy(&summary.stderr));
        }
    }
    let ratio = median(&mut recorded).as_secs_f64() / median(&mut unrecorded).as_secs_f64();
    println!("ratio of medians {ratio:.3}; the recording has {} bytes", std::fs::metadata(&path)?.len());
    if request.replay {
        let recording = Recording::open(&path)?;
        let config = worksp_engine::Config { fuel: true, ..Default::default() };
        let replay = Replay::new(&recording, config)?;
        let start = Instant::now();
        let replayed = replay.run(TracePlan::default(), &mut NoProbe, |_| ())?;
        println!("replayed {} operators in {:.3} s", replayed.work, start.elapsed().as_secs_f64());
    }
    Ok(())
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}
