//! Recordings of every version of the format stay readable and replayable.

use std::path::Path;

use worksp_engine::Config;
use worksp_engine::probe::{NoProbe, TracePlan};
use worksp_tracer::recording::{Exit, Recording};
use worksp_tracer::replay::Replay;

fn check(file: &str, exit: Exit, events: u64) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(file);
    let recording = Recording::open(path).unwrap_or_else(|error| panic!("{error}"));
    let replay = Replay::new(&recording, Config::default()).unwrap_or_else(|error| panic!("{error}"));
    let replayed = replay.run(TracePlan::default(), &mut NoProbe, |_| ()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((replayed.exit, replayed.events), (exit, events), "{file}");
}

#[test]
fn old_recordings_are_replayed() {
    check("version-1.wspr", Exit::Returned(vec![27]), 20);
}
