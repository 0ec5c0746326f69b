//! Project tasks: `cargo xtask TASK`.
//!
//! ```text
//! setup ──► fetch ──► e2e, bench ──► results/SUITE/raw ──► summarize
//! ```
#![forbid(unsafe_code)]

mod bench;
mod disassemble;
mod e2e;
mod fetch;
mod mutants;
mod setup;
mod sh;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use std::process::{Command, ExitCode};
use worksp_fixtures::{Program, Size};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Project tasks", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what building the fixtures needs (a C compiler for WebAssembly, pip, npm); quiet when all is there
    Setup,
    /// Obtain and build the real programs: pinned versions, checked hashes, cached
    Fetch(FetchArgs),
    /// Record and trace every request of the programs, compare the results, print a table
    E2e {
        #[command(flatten)]
        which: Which,
        /// Use the worksp binary beside this one as it is
        #[arg(long)]
        no_build: bool,
    },
    /// Run a benchmark suite: alternating rounds, checked results, raw samples and a summary under results/
    Bench {
        /// The suite
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(bench::names()))]
        suite: String,
        /// Only these cases (repeatable)
        #[arg(long = "case")]
        cases: Vec<String>,
        /// Rounds, instead of the suite's own number
        #[arg(long)]
        rounds: Option<usize>,
        /// Use the binaries beside this one as they are
        #[arg(long)]
        no_build: bool,
    },
    /// Rewrite the summaries under results/ from the raw samples
    Summarize {
        /// Write nothing; fail when a summary is not what its raw samples give
        #[arg(long)]
        check: bool,
    },
    /// Check what the compiler made of the handlers: jumps where they go on, nothing of hooks that are off (x86-64)
    Disassemble {
        /// Use the worksp binary beside this one as it is
        #[arg(long)]
        no_build: bool,
    },
    /// Plant bugs in the engine, one after the other, and see whether the differential campaign finds them (an hour at most)
    Mutants {
        /// Only these
        names: Vec<String>,
        /// The campaign's seed
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Seconds for each
        #[arg(long, default_value_t = 60)]
        time: u64,
    },
    /// Run files of the specification suite's format (.wast) on the engine
    Wast {
        /// The files
        #[arg(required = true)]
        files: Vec<std::path::PathBuf>,
    },
    /// Everything that must pass before a change lands: set-up, fetch, tests, the small programs, summaries
    Ci,
    /// Rewrite golden files and expected texts by running the tests; look at the difference before committing it
    Bless,
    /// A subject of known cost, for the suite `harness`
    #[command(hide = true)]
    Spin {
        /// Steps
        count: u64,
    },
}

#[derive(Args)]
struct FetchArgs {
    #[command(flatten)]
    which: Which,
    /// Accept modules that this machine's compiler builds to other bytes than the pinned ones
    #[arg(long)]
    other_compiler: bool,
    /// Write the hashes of what was built into fixtures/programs.toml
    #[arg(long)]
    bless: bool,
    /// Also build every kernel natively and compare its results with those that the manifest expects
    #[arg(long)]
    check_native: bool,
}

/// A choice of programs: by name, all, or the small ones (the default).
#[derive(Args)]
struct Which {
    /// Programs of fixtures/programs.toml
    names: Vec<String>,
    /// Every program, the large ones too
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// The small programs (the default)
    #[arg(long, conflicts_with_all = ["names", "all"])]
    small: bool,
}

impl Which {
    fn programs(&self) -> Result<Vec<&'static Program>> {
        if !self.names.is_empty() {
            return self.names.iter().map(|name| Ok(worksp_fixtures::program(name)?)).collect();
        }
        Ok(worksp_fixtures::programs().iter().filter(|program| self.all || program.size == Size::Small).collect())
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error.chain().map(ToString::to_string).collect::<Vec<_>>().join("\n  because "));
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Setup => setup::run(),
        Task::Fetch(args) => fetch::run(
            &args.which.programs()?,
            &fetch::Options { other_compiler: args.other_compiler, bless: args.bless, check_native: args.check_native },
        ),
        Task::E2e { which, no_build } => e2e::run(&which.programs()?, !no_build),
        Task::Bench { suite, cases, rounds, no_build } => bench::run(&suite, &cases, rounds, !no_build),
        Task::Summarize { check } => bench::summarize(check),
        Task::Disassemble { no_build } => disassemble::run(!no_build),
        Task::Mutants { names, seed, time } => mutants::run(&names, seed, time),
        Task::Wast { files } => sh::loud(cargo(&["run", "--release", "--quiet", "-p", "worksp-differential", "--bin", "wast", "--"]).args(files)),
        Task::Ci => ci(),
        Task::Bless => sh::loud(cargo(&["test", "--release", "--workspace"]).env("UPDATE_EXPECT", "1")),
        Task::Spin { count } => bench::spin(count),
    }
}

/// One profile for everything, so that the heavy dependencies are built once.
fn ci() -> Result<()> {
    let small: Vec<&Program> = worksp_fixtures::programs().iter().filter(|program| program.size == Size::Small).collect();
    fetch::run(&small, &fetch::Options { other_compiler: false, bless: false, check_native: true })?;
    sh::loud(&mut cargo(&["test", "--release", "--workspace"]))?;
    // What is shipped has no mutants, as `worksp/tests/shipped.rs` says; here every one of them is seen by its program.
    sh::loud(&mut cargo(&["test", "--release", "-p", "worksp-engine", "--features", "mutants", "--test", "mutants"]))?;
    // The tests have built the binary; building it by itself would build its dependencies again, with other features.
    e2e::run(&small, false)?;
    campaign()?;
    if cfg!(target_arch = "x86_64") {
        disassemble::run(false)?;
    }
    bench::summarize(true)
}

/// A minute of the differential campaign, always the same programs first; and answers of the oracle that were kept.
fn campaign() -> Result<()> {
    let worksp = std::env::current_exe()?.with_file_name("worksp");
    let dir = tempfile::tempdir()?;
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let golden = root.join("fixtures/golden/programs.jsonl");
    sh::loud(Command::new(&worksp).args(["fuzz", "golden"]).arg(golden).args(["--modes", "plain,counting,traced,eager"]))?;
    sh::loud(Command::new(&worksp).args(["fuzz", "run", "--seed", "1", "--time", "60", "--jobs", "2", "--dir"]).arg(dir.path().join("campaign")))
}

fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(args);
    command
}
