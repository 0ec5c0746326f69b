//! `worksp fuzz`: differential campaigns.

mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use worksp::report::grouped;
use worksp_differential::campaign::{self, BATCH, Campaign, CaseId, Finding, Golden, Kept, Limits, Mismatch, Plan, Progress, Shard, examine};
use worksp_differential::compare::{Bench, Outcome};
use worksp_differential::generate::corpus::{Corpus, MODULE_BYTES_MAX, read_module};
use worksp_differential::generate::{Case, Generator};
use worksp_differential::program::{encode, encode_alone, program_text};
use worksp_differential::run::oracle::Compiler;
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
  worksp fuzz run --cases 256 --seed 7              a campaign in the folder worksp-fuzz, seed 7
  worksp fuzz run --time 2 --dir night --jobs 2     two threads, two seconds, another folder
  worksp fuzz resume --cases 128                    the next 128 programs of that campaign
  worksp fuzz status                                how far it is
  worksp fuzz report                                totals, coverage, findings
  worksp fuzz replay single-1-7-300                 one program, in every mode
  worksp fuzz golden answers.jsonl --write --cases 640   keep what Wasmtime says
  worksp fuzz golden answers.jsonl                  hold the engine against it
  worksp fuzz shrink single-1-7-300                 as little of it as still goes wrong

Exit status: 0 when everything agreed; 1 when something differed or over 1 % of the programs were poisoned; 2 on bad usage or input.";

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
    /// Hold the engine against answers of Wasmtime that were kept; much faster than asking it
    Golden(GoldenArgs),
    /// The mutants of this build, for machines
    #[cfg(feature = "mutants")]
    Mutants,
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
    /// What makes programs, separated by commas; of 10 batches, `single` makes 6, `region` 3, `smith` and `corpus` 1
    #[arg(long, value_delimiter = ',', default_values_t = Generator::OWN)]
    generators: Vec<Generator>,
    /// Also change modules of this folder: its .wasm and .wat files, those of folders in it too
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Modes to hold against Wasmtime, separated by commas
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
    #[arg(long, value_parser = some_duration)]
    time: Option<Duration>,
    /// Stop after this many programs, rounded up to whole batches of 64
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    cases: Option<u64>,
    /// Threads; each finishes the batch that it has begun
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// Stop at the first difference
    #[arg(long)]
    first: bool,
    /// Shrink each program that goes wrong for at most this time; 0 for not at all
    #[arg(long, value_parser = duration, default_value = "10")]
    shrink: Duration,
    /// Make the engine behave as this mutant
    #[cfg(feature = "mutants")]
    #[arg(long)]
    mutant: Option<String>,
    /// Keep a number for each batch that says what its programs did, so that later runs can be compared with it
    #[arg(long)]
    digests: bool,
}

#[derive(clap::Args, Debug)]
struct Replay {
    /// A case, such as single-1-7-300; or the .json file of a finding; or a module, whose exports are called
    case: String,
    /// Modes to hold against Wasmtime, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = Mode::ALL)]
    modes: Vec<Mode>,
    /// Print the program as text
    #[arg(long)]
    text: bool,
    /// Where a case of `corpus` comes from
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
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
    /// Where a case of `corpus` comes from
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
struct GoldenArgs {
    /// The file of answers
    file: PathBuf,
    /// Ask Wasmtime, and write the file
    #[arg(long)]
    write: bool,
    /// With --write: what all random numbers come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// With --write: generators of programs
    #[arg(long, value_delimiter = ',', default_values_t = Generator::PROGRAMS)]
    generators: Vec<Generator>,
    /// With --write: so many programs, rounded up to whole batches of 64
    #[arg(long, default_value_t = 6400)]
    cases: u64,
    /// Modes to hold against the answers
    #[arg(long, value_delimiter = ',', default_values_t = [Mode::Plain])]
    modes: Vec<Mode>,
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
        #[cfg(feature = "mutants")]
        Task::Mutants => {
            for mutant in worksp_engine::mutants::list() {
                println!("{}", serde_json::json!({ "name": mutant.name, "kind": mutant.kind, "bug": mutant.bug }));
            }
            Ok(ExitCode::SUCCESS)
        }
        Task::Golden(args) => golden(args),
        Task::Status(args) => report::print(&args.dirs, args.json, false),
        Task::Report(args) => report::print(&args.dirs, args.json, true),
    }
}

fn begin(run: &Run) -> Result<ExitCode, Failure> {
    let distinct = |list: &[String]| list.iter().collect::<std::collections::BTreeSet<_>>().len() == list.len();
    if !distinct(&run.generators.iter().map(ToString::to_string).collect::<Vec<_>>()) || !distinct(&run.modes.iter().map(ToString::to_string).collect::<Vec<_>>()) {
        return Err(Failure::new("--generators and --modes name each thing once"));
    }
    let mut generators = run.generators.clone();
    let uses_corpus = generators.contains(&Generator::Corpus);
    if run.corpus.is_some() && !uses_corpus {
        generators.push(Generator::Corpus);
    }
    let mut plan = Plan::new(run.seed, generators, run.modes.clone());
    plan.corpus = match &run.corpus {
        None if uses_corpus => return Err(Failure::new("--generators corpus needs --corpus DIR: the folder whose modules it changes")),
        None => None,
        Some(dir) => Some(folder(dir)?),
    };
    plan.shards = run.work.shard.count;
    let campaign = Campaign::begin(&run.work.dir, plan, run.work.shard)?;
    go_on(&campaign, &run.work)
}

/// The modules of a folder, for good.
fn folder(dir: &Path) -> Result<campaign::Folder, Failure> {
    let corpus = Corpus::read(dir).map_err(Failure::new)?;
    eprintln!("{}: {} modules{}", dir.display(), corpus.count(), match corpus.left_out.len() {
        0 => String::new(),
        count => format!("; {count} files are left out: invalid, or larger than {} KiB", MODULE_BYTES_MAX >> 10),
    });
    let path = std::path::absolute(dir).map_err(|e| Failure::new(format!("{}: {e}", dir.display())))?;
    Ok(campaign::Folder { path, sha256: corpus.fingerprint() })
}

fn go_on(campaign: &Campaign, work: &Work) -> Result<ExitCode, Failure> {
    #[cfg(feature = "mutants")]
    worksp_engine::mutants::choose(work.mutant.as_deref())?;
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
        shrink_max: work.shrink,
        ..Limits::default()
    };
    let Plan { seed, generators, .. } = &campaign.plan;
    let list: Vec<String> = generators.iter().map(ToString::to_string).collect();
    eprintln!("seed {seed}, shard {}/{}, programs of {}", work.shard.index, work.shard.count, list.join(", "));
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
    let (bytes, kept) = if args.case.ends_with(".json") {
        let path = Path::new(&args.case);
        let finding: Finding = serde_json::from_slice(&read(path)?).map_err(|e| Failure::new(format!("{}: not a finding: {e}", path.display())))?;
        (read(&path.with_extension("wasm"))?, finding.kept)
    } else if args.case.ends_with(".wasm") || args.case.ends_with(".wat") {
        let bytes = read_module(Path::new(&args.case)).map_err(Failure::new)?;
        (bytes, Kept::Module { canonicalize_nans: true })
    } else {
        let case: CaseId = args.case.parse().map_err(Failure::new)?;
        match made(case, args.corpus.as_deref())? {
            Case::Program(program) => {
                if args.text {
                    println!("{}", program_text(&encode_alone(&program)));
                }
                (encode(&[&program]), Kept::of(&program))
            }
            Case::Module(bytes, canonicalize_nans) => {
                if args.text {
                    println!("{}", program_text(&bytes));
                }
                (bytes, Kept::Module { canonicalize_nans })
            }
        }
    };
    let outcome = kept.replay(bytes, &args.modes).map_err(|e| Failure::new(format!("{}: {e}", args.case)))?;
    Ok(tell(&args.case, &outcome, &args.modes))
}

/// A case by its name.
fn made(case: CaseId, corpus: Option<&Path>) -> Result<Case, Failure> {
    let made = case.generator.case(case.seed, case.index, &corpus_for(case, corpus)?);
    made.ok_or_else(|| Failure::new(format!("{case}: the generator makes nothing of this number")))
}

/// The modules that a case is made of.
fn corpus_for(case: CaseId, corpus: Option<&Path>) -> Result<Corpus, Failure> {
    match corpus {
        Some(dir) => Corpus::read(dir).map_err(Failure::new),
        None if case.generator == Generator::Corpus => {
            Err(Failure::new(format!("{case} needs --corpus DIR, or replay the .json file of the finding")))
        }
        None => Ok(Corpus::default()),
    }
}

fn golden(args: &GoldenArgs) -> Result<ExitCode, Failure> {
    if args.write {
        let answers = Golden::ask(args.seed, &args.generators, args.cases.div_ceil(BATCH)).map_err(Failure::new)?;
        answers.write(&args.file)?;
        println!("{}: answers for {} programs", args.file.display(), grouped(answers.programs()));
        return Ok(ExitCode::SUCCESS);
    }
    let answers = Golden::read(&args.file)?;
    let before = campaign::cpu_us();
    let mismatches = answers.check(&args.modes, |_| {});
    let seconds = (campaign::cpu_us() - before) as f64 / 1e6;
    let rate = grouped((answers.programs() as f64 * args.modes.len() as f64 / seconds.max(1e-9)) as u64);
    println!("{}: {} programs in {} modes, {rate} a second of processor time; {} batches differ", args.file.display(), grouped(answers.programs()), args.modes.len(), mismatches.len());
    for Mismatch { generator, first, mode } in &mismatches {
        println!("  {mode}: {generator} {first} to {}", first + BATCH - 1);
    }
    Ok(ExitCode::from(u8::from(!mismatches.is_empty())))
}

/// What a replay showed.
fn tell(case: &str, outcome: &Outcome, modes: &[Mode]) -> ExitCode {
    println!("{case}: {} calls, {} comparisons, digest {:016x}", outcome.calls, outcome.comparisons, outcome.digests.first().copied().unwrap_or(0));
    if outcome.skipped > 0 {
        println!("  not compared: it never ends, needs more than is allowed, or imports what nobody provides");
    }
    for mode in modes.iter().filter(|_| outcome.skipped == 0) {
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
    let corpus = corpus_for(args.case, args.corpus.as_deref())?;
    // As it was found: among the others of its batch.
    let first = index / BATCH * BATCH;
    let cases: Vec<Option<Case>> = (first..first + BATCH).map(|index| generator.case(seed, index, &corpus)).collect();
    let outcome = Bench::new(&Mode::ALL).cases(&cases);
    let own: Vec<_> = outcome.divergences.iter().filter(|divergence| u64::from(divergence.program) == index - first).collect();
    let (Some(case), false) = (&cases[(index - first) as usize], own.is_empty()) else {
        println!("{}: agrees in every mode; nothing to shrink", args.case);
        return Ok(ExitCode::SUCCESS);
    };
    let shown = examine(args.case, case, &own, outcome.compiler.unwrap_or(Compiler::Full), args.time);
    shown.write(&args.dir)?;
    let finding = &shown.finding;
    println!("{} {}: {} operators are left\n  {}", finding.id, finding.signature, finding.operators, finding.detail);
    println!("  {}", args.dir.join(format!("{}.wat", finding.id)).display());
    Ok(ExitCode::from(1))
}

/// The same, of some length.
fn some_duration(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|time| if time.is_zero() { Err("no time at all; write 90, 15m or 2h".to_owned()) } else { Ok(time) })
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
    Duration::try_from_secs_f64(seconds * factor).map_err(|_| format!("{text} is no time that can pass; write 90, 15m or 2h"))
}
