//! From a recording to a trace: choose units, replay under the tracer, name everything.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use worksp_engine::{Config, Limits, Module};
use worksp_tracer::allocator::EntryPoints;
use worksp_tracer::profile::{Choice, Profile};
use worksp_tracer::recording::{Exit, Recording};
use worksp_tracer::replay::{Meter, Replay, ReplayError};
use worksp_tracer::tracer::MEMORY_MAX_DEFAULT;
use worksp_tracer::units::{UnitError, UnitSpec, Units};
use worksp_tracer::trace::TraceInfo;
use worksp_tracer::{Granule, Offload, TooLarge, Trace, TraceFileError, TraceWriter, TracerOptions};

use crate::ladder::{Sources, TraceAndSources};

/// Tell the meter about this often, in operators.
const METER_EVERY_OPS: u64 = 1 << 22;

/// How to trace.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// The units; none: every function and loop that is worth it, found by a replay of its own.
    pub units: Vec<UnitSpec>,
    /// How far accesses meet.
    pub granule: Granule,
    /// Allocator entry points that names do not tell: (what it does, function).
    pub allocator: Vec<(String, String)>,
    /// Bytes of memory that the trace may take.
    pub memory_max: u64,
    /// Where the trace's file goes, written while the run goes on.
    pub output: Option<PathBuf>,
    /// Limits on the guest's call stack while replaying.
    pub limits: Limits,
}

impl Default for TraceOptions {
    fn default() -> TraceOptions {
        TraceOptions {
            units: Vec::new(),
            granule: Granule::Eight,
            allocator: Vec::new(),
            memory_max: MEMORY_MAX_DEFAULT,
            output: None,
            limits: Limits::default(),
        }
    }
}

/// What tracing does at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// A first replay that looks for units.
    Profile,
    /// The replay under the tracer; the operators to be done, if they are known.
    Trace {
        /// Operators in the run, or 0.
        work: u64,
    },
}

/// A trace and how it came about.
#[derive(Debug)]
pub struct Traced {
    /// The trace.
    pub trace: Trace,
    /// What its ladder is climbed with.
    pub sources: Sources,
    /// The units that were chosen, when none were given.
    pub choices: Vec<Choice>,
    /// How the program ended, in the recording and in the replay alike.
    pub exit: Exit,
    /// Host calls that were replayed and checked.
    pub host_calls: u64,
    /// Time for finding units.
    pub profiling: Duration,
    /// Time for the replay under the tracer.
    pub tracing: Duration,
}

/// Why a recording could not be traced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The replay failed or disagreed with the recording.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A memory may have addresses that traces cannot hold.
    #[error(
        "memory {memory} has 64-bit addresses and may grow beyond 4 GiB, but a trace holds addresses of 32 bits; record again with a \
         limit of 4096 MiB (--memory-max 4096)"
    )]
    LargeMemory {
        /// The memory, by index.
        memory: u32,
    },
    /// A unit specification names nothing.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// The trace would take more memory than it may.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The trace's file cannot be written.
    #[error(transparent)]
    File(#[from] TraceFileError),
}

/// Replays a recording and traces it. `meter` is asked for somebody to tell how far each phase is.
///
/// # Errors
/// When replay and recording disagree, a unit names nothing, the trace becomes too large, or its file cannot be
/// written.
pub fn trace(
    recording: &Recording,
    options: &TraceOptions,
    mut meter: impl FnMut(Phase) -> Option<Meter>,
) -> Result<Traced, TraceError> {
    let config = Config { limits: options.limits.clone(), ..Config::default() };
    let mut replay = Replay::new(recording, config)?;
    let module = replay.module().clone();
    if let Some(memory) = large_memory(&module, recording.header().memory_bytes_max) {
        return Err(TraceError::LargeMemory { memory });
    }
    let mut arm = |replay: &mut Replay<'_>, phase| {
        if let Some(tell) = meter(phase) {
            replay.on_work(METER_EVERY_OPS, tell);
        }
    };
    let started = Instant::now();
    let (units, choices, work) = if options.units.is_empty() {
        arm(&mut replay, Phase::Profile);
        let mut profile = Profile::new(&module);
        replay.run(Profile::plan(), &mut profile, |_| {})?;
        let (units, choices) = profile.choose(&module);
        (units, choices, profile.work())
    } else {
        (Units::resolve(&module, &options.units)?, Vec::new(), 0)
    };
    let profiling = started.elapsed();

    let started = Instant::now();
    arm(&mut replay, Phase::Trace { work });
    let plan = units.plan();
    let mut head = TraceInfo { granule: options.granule.bytes(), unit_specs: units.specs().to_vec(), ..TraceInfo::default() };
    describe(&mut head, &module, recording);
    let file = options.output.as_ref().map(|path| TraceWriter::create(path, &head)).transpose()?;
    let mut tracer = Offload::new(units, tracer_options(&module, recording, options), TraceAndSources::new(file));
    let replayed = replay.run(plan, &mut tracer, |_| {})?;
    let (sink, info) = tracer.finish()?;
    let (mut trace, sources, file) = sink.finish();
    let TraceInfo { module, sha256, functions, globals, imports, entry, .. } = head;
    trace.info = TraceInfo { module, sha256, functions, globals, imports, entry, ..info };
    if let Some(file) = file {
        file.finish(&trace.info)?;
    }
    let host_calls = recording.outcome().map_err(ReplayError::from)?.host_calls;
    Ok(Traced { trace, sources, choices, exit: replayed.exit, host_calls, profiling, tracing: started.elapsed() })
}

/// The first memory that may grow beyond 4 GiB under this limit.
fn large_memory(module: &Module, memory_bytes_max: u64) -> Option<u32> {
    let is_large = |memory: &u32| {
        let ty = module.memory_type(*memory);
        let pages = ty.max.filter(|_| ty.index64).unwrap_or(if ty.index64 { u64::MAX } else { 0 });
        pages.saturating_mul(ty.page_bytes()).min(memory_bytes_max) > 4 << 30
    };
    (0..module.memory_count()).find(is_large)
}

fn tracer_options(module: &Module, recording: &Recording, options: &TraceOptions) -> TracerOptions {
    let mut tracer = TracerOptions::of_module(module).with_effects(recording.effects());
    tracer.granule = options.granule;
    tracer.memory_max = options.memory_max;
    if !options.allocator.is_empty() {
        tracer.entry_points = EntryPoints::of_module(module, &options.allocator);
    }
    tracer
}

/// Adds names and origin to a trace. It is called by its file's name, as its user calls it.
fn describe(info: &mut TraceInfo, module: &Module, recording: &Recording) {
    let header = recording.header();
    let path = std::path::Path::new(&header.module_name);
    let name = path.file_name().map_or_else(|| header.module_name.clone(), |name| name.to_string_lossy().into_owned());
    info.describe(module, &name, header.module_sha256);
    info.entry = header.command.entry.clone();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_beyond_32_bits_are_found() {
        let check = |memories: &str, limit: u64, expected: Option<u32>| {
            let module = Module::from_text(&worksp_engine::Engine::default(), &format!("(module {memories})")).expect("valid");
            assert_eq!(large_memory(&module, limit), expected, "{memories} {limit}");
        };
        check("(memory 1)", u64::MAX, None);
        check("(memory 1) (memory i64 1)", 4 << 30, None);
        check("(memory 1) (memory i64 1)", 5 << 30, Some(1));
        check("(memory i64 1 65536)", u64::MAX, None);
        check("(memory i64 1 65537)", u64::MAX, Some(0));
        check("(memory i64 1 65537 (pagesize 1))", u64::MAX, None);
    }
}
