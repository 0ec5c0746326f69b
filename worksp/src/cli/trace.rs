//! `worksp trace`: replay under the tracer, print verdict and ladder.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytesize::ByteSize;
use worksp::json::LadderJson;
use worksp::ladder::{BURDEN_DEFAULT, Ladder};
use worksp::report::{self, grouped};
use worksp::request::{self, Phase, TraceOptions, Traced};
use worksp_recorder::Stdout;
use worksp_tracer::recording::Recording;
use worksp_tracer::tracer::MEMORY_MAX_DEFAULT;
use worksp_tracer::units::UnitSpec;
use worksp_tracer::{Granule, trace_file};

use super::common::{Failure, Meter, Request, ended, output_style, read, seconds, sniff};

/// Trace a request: how parallel it is, under the ladder of models, and what binds it
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The program (.wasm or .wat: it is recorded first) or a recording (.wspr)
    input: PathBuf,
    /// Cut the run at this boundary: func:NAME, site:NAME+OFFSET or loop:NAME#N; NAME may hold * and ?
    #[arg(long = "unit", value_name = "SPEC")]
    units: Vec<UnitSpec>,
    /// Keep the trace in a file
    #[arg(short, long, value_name = "RUN.wspt")]
    output: Option<PathBuf>,
    /// Keep the recording of a program that is recorded first
    #[arg(long, value_name = "REQ.wspr")]
    keep_recording: Option<PathBuf>,
    #[command(flatten)]
    view: View,
    /// Accesses meet in aligned blocks of this many bytes
    #[arg(long, value_name = "BYTES", default_value = "8", value_parser = granule)]
    granule: Granule,
    /// Allocator entry points that their names do not tell, as malloc=NAME,free=NAME,…
    #[arg(long, value_name = "ROLE=NAME,…", value_delimiter = ',', value_parser = role)]
    allocator: Vec<(String, String)>,
    /// Memory that the trace may take, such as 512MiB or 4GB (2GiB unless given)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory: Option<u64>,
    #[command(flatten)]
    request: Request,
}

/// How results are shown.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct View {
    /// Print one JSON object (schema worksp.ladder.v1) instead of the report
    #[arg(long)]
    pub(crate) json: bool,
    /// Operators charged at each spawn to the child and to the continuation
    #[arg(long, value_name = "OPERATORS", default_value_t = BURDEN_DEFAULT)]
    pub(crate) burden: u64,
}

const EXAMPLES: &str = "\
Examples:
  worksp trace app.wasm --dir .::/ -- in.svg out.png    record a command natively, then trace it
  worksp trace req.wspr --unit 'func:render_*'          trace a recording, each call of render_* a unit
  worksp trace req.wspr --unit loop:main#0 -o run.wspt  iterations of main's first loop; keep the trace
  worksp trace lib.wasm --invoke run --json -- 1000     for machines

Exit status: 0 once the result is written, whatever the program did; 2 on bad usage or bad input.";

fn granule(text: &str) -> Result<Granule, String> {
    let bytes = text.parse().map_err(|_| "write 1, 4 or 8".to_owned())?;
    Granule::from_bytes(bytes).ok_or_else(|| "write 1, 4 or 8".to_owned())
}

fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<ByteSize>().map(|size| size.as_u64()).map_err(|_| "write a number of bytes, or one with KiB, MiB, GiB, kB, MB or GB".to_owned())
}

fn role(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((role, name)) => Ok((role.to_owned(), name.to_owned())),
        None => Err("write ROLE=NAME, for example malloc=my_alloc".to_owned()),
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (recording, _temporary) = open_or_record(args)?;
    let options = TraceOptions {
        units: args.units.clone(),
        granule: args.granule,
        allocator: args.allocator.clone(),
        memory_max: args.memory.unwrap_or(MEMORY_MAX_DEFAULT),
        output: args.output.clone(),
        ..TraceOptions::default()
    };
    let traced = trace(&recording, &options)?;
    show(&traced, &args.view)?;
    if let Some(path) = &args.output {
        eprintln!("trace kept in {}", path.display());
    }
    Ok(())
}

/// Opens a recording, or records a program into a temporary folder (which lives as long as the second value).
fn open_or_record(args: &Args) -> Result<(Recording, Option<tempfile::TempDir>), Failure> {
    if sniff(&args.input)?.is_some() || args.input.extension().is_some_and(|e| e == "wspr") {
        if args.request.is_given() {
            return Err(Failure::new("a recording holds its request: leave out --dir, --env, --invoke, --script, --stub and arguments"));
        }
        return Ok((Recording::open(&args.input)?, None));
    }
    let module = read(&args.input)?;
    let folder = tempfile::tempdir()?;
    let path = args.keep_recording.clone().unwrap_or_else(|| folder.path().join("request.wspr"));
    let mut options = args.request.to_options(&args.input)?;
    // What the program prints is talk here: the report is the result.
    options.stdout = Stdout::Capture;
    let meter = Meter::new("record", 0, false);
    let summary = worksp_recorder::record(&module, &options, &path)?;
    meter.finish();
    eprint!("{}", String::from_utf8_lossy(&summary.stdout));
    eprintln!(
        "recorded natively in {} (and {} to compile): the program {}, {} host calls",
        seconds(summary.duration),
        seconds(summary.compile),
        ended(&summary.exit),
        grouped(summary.host_calls),
    );
    Ok((Recording::open(&path)?, Some(folder)))
}

/// Traces with a bar for each phase.
pub(crate) fn trace(recording: &Recording, options: &TraceOptions) -> Result<Traced, Failure> {
    let current: Arc<Mutex<Option<Meter>>> = Arc::default();
    let traced = request::trace(recording, options, |phase| {
        let (what, work) = match phase {
            Phase::Profile => ("find units", 0),
            Phase::Trace { work } => ("trace", work),
        };
        let mut slot = current.lock().ok()?;
        if let Some(done) = slot.replace(Meter::new(what, work, false)) {
            done.finish();
        }
        let current = current.clone();
        Some(Arc::new(move |work| {
            if let Ok(mut slot) = current.lock()
                && let Some(meter) = slot.as_mut()
            {
                meter.set(work);
            }
        }))
    });
    if let Ok(mut slot) = current.lock()
        && let Some(meter) = slot.take()
    {
        meter.finish();
    }
    Ok(traced?)
}

/// Prints a trace's ladder and how long it took.
pub(crate) fn show(traced: &Traced, view: &View) -> Result<(), Failure> {
    let ladder = Ladder::with(&traced.trace, &traced.sources, view.burden)?;
    if view.json {
        println!("{}", LadderJson::new(&traced.trace, &ladder).to_line());
        return Ok(());
    }
    let style = output_style();
    print!("{}", chosen(traced));
    print!("{}", report::render(&traced.trace, &ladder, style));
    let work = traced.trace.info.work;
    let rate = |time: std::time::Duration| work as f64 / time.as_secs_f64().max(1e-9) / 1e6;
    println!(
        "Replayed and checked: the program {}, {} host calls agree. Tracing took {} ({:.0} M operators/s){}.",
        ended(&traced.exit),
        grouped(traced.host_calls),
        seconds(traced.tracing),
        rate(traced.tracing),
        if traced.choices.is_empty() { String::new() } else { format!(", finding units {}", seconds(traced.profiling)) },
    );
    Ok(())
}

/// Which units were chosen, and how to choose others.
fn chosen(traced: &Traced) -> String {
    const SHOWN: usize = 6;
    let choices = &traced.choices;
    if choices.is_empty() {
        return String::new();
    }
    let mut text = format!("Units: {} functions and loops that are worth it (choose others with --unit)\n", choices.len());
    for choice in choices.iter().take(SHOWN) {
        let (instances, average) = (grouped(choice.instances), grouped(choice.work / choice.instances.max(1)));
        text.push_str(&format!("  {:<44} {instances:>9} × {average:>12} operators, {:>5.1} % of the work\n", choice.spec, choice.share * 100.0));
    }
    if choices.len() > SHOWN {
        text.push_str(&format!("  … and {} more\n", choices.len() - SHOWN));
    }
    text.push('\n');
    text
}

/// The report of a trace file.
pub(crate) fn show_file(path: &Path, view: &View) -> Result<(), Failure> {
    let file = trace_file::read(path)?;
    if !file.complete {
        eprintln!("warning: {} ends early: the report covers what is there", path.display());
    }
    let ladder = Ladder::of(&file.trace, view.burden)?;
    if view.json {
        println!("{}", LadderJson::new(&file.trace, &ladder).to_line());
    } else {
        let style = output_style();
        print!("{}", report::render(&file.trace, &ladder, style));
    }
    Ok(())
}
