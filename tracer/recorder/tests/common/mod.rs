//! Records a module natively, replays it on the engine, and hands both results out.
#![allow(dead_code)] // Each test file uses its own part.

use std::path::PathBuf;

use worksp_engine::Config;
use worksp_engine::probe::{NoProbe, TracePlan};
use worksp_recorder::{Effect, Entry, HostCaller, HostError, RecordOptions, RecordSummary, Recorder, Stdout, Value, ValueType};
use worksp_tracer::recording::{Event, Outcome, Recording};
use worksp_tracer::replay::{Replay, ReplayError, Replayed};

pub struct Case {
    pub recorder: Recorder,
    pub dir: tempfile::TempDir,
}

pub struct Done {
    pub summary: RecordSummary,
    pub recording: Recording,
    pub replayed: Replayed,
    _dir: tempfile::TempDir,
}

impl Done {
    pub fn events(&self) -> Vec<Event> {
        self.recording.events().map(Result::unwrap).collect()
    }

    pub fn outcome(&self) -> &Outcome {
        self.recording.outcome().unwrap()
    }
}

pub fn quiet(options: RecordOptions) -> RecordOptions {
    RecordOptions { stdout: Stdout::Capture, stderr: Stdout::Capture, ..options }
}

pub fn case(text: &str, options: RecordOptions) -> Case {
    let recorder = Recorder::new(text.as_bytes(), quiet(options)).unwrap_or_else(|error| panic!("{error}"));
    Case { recorder, dir: tempfile::tempdir().unwrap() }
}

pub fn command(text: &str) -> Case {
    case(text, RecordOptions::default())
}

pub fn invoke(text: &str, export: &str, args: &[&str]) -> Case {
    case(text, RecordOptions { entry: Entry::Invoke(export.to_string()), ..RecordOptions::command(args.iter().copied()) })
}

impl Case {
    pub fn func(
        mut self,
        name: &str,
        params: &[ValueType],
        results: &[ValueType],
        func: impl Fn(&mut HostCaller<'_>, &[Value]) -> Result<Vec<Value>, HostError> + Send + Sync + 'static,
    ) -> Case {
        self.recorder.host_func("env", name, params, results, Effect::Other, func);
        self
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("case.wspr")
    }

    /// Records and replays; both must succeed and agree.
    pub fn run(self) -> Done {
        let summary = self.recorder.record(&self.path()).unwrap_or_else(|error| panic!("{error}"));
        let recording = Recording::open(self.path()).unwrap();
        let replayed = replay(&recording).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(replayed.exit, summary.exit);
        assert_eq!(replayed.stdout.kept, summary.stdout);
        assert_eq!(replayed.stderr.kept, summary.stderr);
        assert_eq!(replayed.events, summary.events);
        assert!(!self.path().with_extension("wspr.partial").exists());
        // Unrecorded, the program does the same.
        let unrecorded = self.recorder.run_unrecorded().unwrap();
        assert_eq!((unrecorded.exit, unrecorded.host_calls), (summary.exit.clone(), summary.host_calls));
        Done { summary, recording, replayed, _dir: self.dir }
    }

    pub fn error(self) -> String {
        let error = self.recorder.record(&self.path()).expect_err("it must fail").to_string();
        let left: Vec<_> = std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{left:?} stayed behind");
        error
    }
}

pub fn replay(recording: &Recording) -> Result<Replayed, ReplayError> {
    Replay::new(recording, Config::default())?.run(TracePlan::default(), &mut NoProbe, |_| ())
}
