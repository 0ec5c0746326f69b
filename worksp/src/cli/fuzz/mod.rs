//! `worksp fuzz`: differential campaigns.

mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use worksp::report::grouped;
use worksp_differential::campaign::{self, BATCH, Campaign, CaseId, Finding, Limits, Plan, Progress, Shard, examine, shrink_to_files};
use worksp_differential::compare::{Batch, Bench, Outcome, on};
use worksp_differential::generate::Generator;
use worksp_differential::program::{encode_alone, program_text};
use worksp_differential::run::oracle::{Compiler, Oracle};
use worksp_differential::run::ours::Mode;

use super::common::{Failure, INTERRUPTED, read};

/// Hold the engine, in all of its modes, against Wasmtime on generated programs
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

const EXAMPLES: &str = "\
Examples:
  worksp fuzz run --cases 2000 --seed 7             a campaign in the folder worksp-fuzz, seed 7
  worksp fuzz run --time 2 --dir night --jobs 2     two threads, two seconds, another folder
  worksp fuzz resume --cases 1000                   the next 1,000 programs of the campaign in worksp-fuzz
  worksp fuzz status                                how far it is
  worksp fuzz report                                totals, coverage, findings
  worksp fuzz replay single-1-7-300                 one program, in every mode
  worksp fuzz shrink single-1-7-300                 as little of it as still goes wrong

Exit status: 0 when everything agreed; 1 when something differed, or more than 1 % of the programs were poisoned; 2 on bad usage
or bad input.";

#[derive(Subcommand, Debug)]
enum Task {
    /// Begin a campaign
    Run(Run),
    /// Go on with a campaign, after a kill too: nothing is lost, nothing is counted twice
    Resume(Resume),
    /// Run one program again, on Wasmtime and in every mode
    Replay(Replay),
    /// Make a program that goes wrong as small as can be
    Shrink(Shrink),
    /// How far campaigns are
    Status(Reports),
    /// Totals, coverage and findings of campaigns, shards of several machines taken together
    Report(Reports),
}

#[derive(clap::Args, Debug)]
struct Run {
    /// What all random numbers come from: the same seed makes the same programs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What makes programs; batches are dealt to them in turn
    #[arg(long, value_delimiter = ',', default_values_t = Generator::ALL)]
    generators: Vec<Generator>,
    /// Modes to hold against Wasmtime
    #[arg(long, value_delimiter = ',', default_values_t = Mode::ALL)]
    modes: Vec<Mode>,
    #[command(flatten)]
    work: Work,
}

#[derive(clap::Args, Debug)]
struct Resume {
    #[command(flatten)]
    work: Work,
}

#[derive(clap::Args, Debug)]
struct Work {
    /// Where the campaign is kept
    #[arg(long, default_value = "worksp-fuzz")]
    dir: PathBuf,
    /// Do only this part, I of N from 0: each process or machine takes another
    #[arg(long, value_name = "I/N", default_value = "0/1")]
    shard: Shard,
    /// Stop after this time: seconds, or with a unit (90, 15m, 2h)
    #[arg(long, value_parser = duration)]
    time: Option<Duration>,
    /// Stop after this many programs, rounded up to whole batches of 64
    #[arg(long)]
    cases: Option<u64>,
    /// Threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
    /// Stop at the first difference
    #[arg(long)]
    first: bool,
    /// Keep a number for each batch that says what its programs did, so that later runs can be compared with it
    #[arg(long)]
    digests: bool,
}

#[derive(clap::Args, Debug)]
struct Replay {
    /// A case, such as single-1-7-300, or the .json file of a finding
    case: String,
    /// Modes to hold against Wasmtime
    #[arg(long, value_delimiter = ',', default_values_t = Mode::ALL)]
    modes: Vec<Mode>,
    /// Print the program as text
    #[arg(long)]
    text: bool,
}

#[derive(clap::Args, Debug)]
struct Shrink {
    /// A case, such as single-1-7-300
    case: CaseId,
    /// Where to write the files
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Stop after this time: seconds, or with a unit
    #[arg(long, value_parser = duration, default_value = "10")]
    time: Duration,
}

#[derive(clap::Args, Debug)]
struct Reports {
    /// Where campaigns are kept (repeatable: parts of one campaign from several machines)
    #[arg(long = "dir", default_value = "worksp-fuzz")]
    dirs: Vec<PathBuf>,
    /// One object for machines
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.task {
        Task::Run(run) => begin(run),
        Task::Resume(resume) => {
            let campaign = Campaign::open(&resume.work.dir)?;
            if campaign.plan.shards != resume.work.shard.count {
                let count = campaign.plan.shards;
                return Err(Failure::new(format!("this campaign has {count} shards; say which with --shard I/{count}")));
            }
            go_on(&campaign, &resume.work)
        }
        Task::Replay(args) => replay(args),
        Task::Shrink(args) => shrink(args),
        Task::Status(args) => report::print(&args.dirs, args.json, false),
        Task::Report(args) => report::print(&args.dirs, args.json, true),
    }
}

fn begin(run: &Run) -> Result<ExitCode, Failure> {
    let distinct = |list: &[String]| list.iter().collect::<std::collections::BTreeSet<_>>().len() == list.len();
    if !distinct(&run.generators.iter().map(ToString::to_string).collect::<Vec<_>>()) || !distinct(&run.modes.iter().map(ToString::to_string).collect::<Vec<_>>()) {
        return Err(Failure::new("--generators and --modes name each thing once"));
    }
    let mut plan = Plan::new(run.seed, run.generators.clone(), run.modes.clone());
    plan.shards = run.work.shard.count;
    let campaign = Campaign::begin(&run.work.dir, plan, run.work.shard)?;
    go_on(&campaign, &run.work)
}

fn go_on(campaign: &Campaign, work: &Work) -> Result<ExitCode, Failure> {
    if let Ok(mut advice) = INTERRUPTED.lock() {
        *advice = "nothing is lost: `worksp fuzz resume` goes on";
    }
    // Without any limit, a minute.
    let time_max = work.time.or((work.cases.is_none() && !work.first).then_some(Duration::from_secs(60)));
    let limits = Limits {
        time_max,
        programs_max: work.cases,
        jobs: work.jobs.into(),
        first: work.first,
        digests: work.digests,
        ..Limits::default()
    };
    let Plan { seed, generators, .. } = &campaign.plan;
    let list: Vec<String> = generators.iter().map(ToString::to_string).collect();
    eprintln!("{}: seed {seed}, shard {}/{}, {}, {} modes", campaign.dir.display(), work.shard.index, work.shard.count, list.join(" and "), campaign.plan.modes.len());
    let bar = Mutex::new(Bar::new(time_max, work.cases));
    let totals = campaign::run(campaign, work.shard, limits, &|progress| {
        if let Ok(mut bar) = bar.lock() {
            bar.tell(progress);
        }
    });
    if let Ok(bar) = bar.into_inner() {
        bar.bar.finish_and_clear();
    }
    totals?;
    report::print(std::slice::from_ref(&campaign.dir), false, true)
}

/// The line that tells how it goes.
struct Bar {
    bar: ProgressBar,
    time_max: Option<Duration>,
    started: std::time::Instant,
}

impl Bar {
    fn new(time_max: Option<Duration>, cases: Option<u64>) -> Bar {
        use std::io::IsTerminal;
        let length = time_max.map_or(cases.unwrap_or(0), |time| time.as_millis() as u64);
        let style = ProgressStyle::with_template("      fuzz [{bar:30}] {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = if std::io::stderr().is_terminal() { ProgressBar::new(length).with_style(style) } else { ProgressBar::hidden() };
        Bar { bar, time_max, started: std::time::Instant::now() }
    }

    fn tell(&mut self, progress: &Progress) {
        let run = progress.run;
        self.bar.set_position(self.time_max.map_or(run.programs, |_| self.started.elapsed().as_millis() as u64));
        let rate = |count: u64| grouped((count as f64 / self.started.elapsed().as_secs_f64().max(1e-3)) as u64);
        let found = if progress.totals.findings > 0 { format!(", {} findings", progress.totals.findings) } else { String::new() };
        self.bar.set_message(format!("{} programs, {}/s, {} comparisons/s{found}", grouped(run.programs), rate(run.programs), rate(run.comparisons)));
        for finding in progress.findings {
            let line = format!("{}: {}: {}", finding.id, finding.signature, finding.detail);
            if self.bar.is_hidden() { eprintln!("{line}") } else { self.bar.println(line) }
        }
    }
}

fn replay(args: &Replay) -> Result<ExitCode, Failure> {
    let outcome = if args.case.ends_with(".json") {
        let path = Path::new(&args.case);
        let finding: Finding = serde_json::from_slice(&read(path)?).map_err(|e| Failure::new(format!("{}: not a finding: {e}", path.display())))?;
        let bytes = read(&path.with_extension("wasm"))?;
        let batch = finding.kept.batch(bytes).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
        let mut modes: Vec<_> = args.modes.iter().map(|mode| (*mode, mode.runner(true))).collect();
        on(&mut Oracle::new(Compiler::Full, true), &batch, &mut modes).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?
    } else {
        let case: CaseId = args.case.parse().map_err(Failure::new)?;
        let program = case.generator.program(case.seed, case.index);
        if args.text {
            println!("{}", program_text(&encode_alone(&program)));
        }
        let mut modes: Vec<_> = args.modes.iter().map(|mode| (*mode, mode.runner(true))).collect();
        on(&mut Oracle::new(Compiler::Full, true), &Batch::of(&[program]), &mut modes).map_err(Failure::new)?
    };
    Ok(tell(&args.case, &outcome, &args.modes))
}

/// What a replay showed.
fn tell(case: &str, outcome: &Outcome, modes: &[Mode]) -> ExitCode {
    println!("{case}: {} calls, {} comparisons, digest {:016x}", outcome.calls, outcome.comparisons, outcome.digests.first().copied().unwrap_or(0));
    for mode in modes {
        match outcome.divergences.iter().find(|divergence| divergence.mode == *mode) {
            None => println!("  {mode:10} agrees"),
            Some(found) => {
                let call = found.call.map_or("at the start".to_owned(), |call| format!("call {call}"));
                println!("  {mode:10} differs, {call}: {}", found.difference.detail);
            }
        }
    }
    if outcome.poisoned > 0 {
        println!("  poisoned: the stack or memory was exhausted");
    }
    ExitCode::from(u8::from(!outcome.divergences.is_empty()))
}

fn shrink(args: &Shrink) -> Result<ExitCode, Failure> {
    let CaseId { generator, seed, index, .. } = args.case;
    let program = generator.program(seed, index);
    let mut bench = Bench::new(&Mode::ALL);
    // As it was found: among the others of its batch.
    let first = index / BATCH * BATCH;
    let programs: Vec<_> = (first..first + BATCH).map(|index| generator.program(seed, index)).collect();
    let outcome = bench.run(&Batch::of(&programs));
    let own: Vec<_> = outcome.divergences.iter().filter(|divergence| u64::from(divergence.program) == index - first).collect();
    if own.is_empty() {
        println!("{}: agrees in every mode; nothing to shrink", args.case);
        return Ok(ExitCode::SUCCESS);
    }
    let (finding, small) = examine(args.case, &program, &own, outcome.compiler.unwrap_or(Compiler::Full), args.time);
    shrink_to_files(&args.dir, &finding, &program, &small)?;
    println!("{} {}: {} operators are left of {}\n  {}", finding.id, finding.signature, finding.operators, program.size(), finding.detail);
    println!("  {}", args.dir.join(format!("{}.wast", finding.id)).display());
    Ok(ExitCode::from(1))
}

/// Seconds, or a number with a unit.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, factor) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1.0),
        Some((at, 'm')) => (&text[..at], 60.0),
        Some((at, 'h')) => (&text[..at], 3600.0),
        _ => (text, 1.0),
    };
    let seconds: f64 = number.parse().map_err(|_| format!("{text} is no time; write 90, 15m or 2h"))?;
    Duration::try_from_secs_f64(seconds * factor).map_err(|_| format!("{text} is no time that can pass"))
}
