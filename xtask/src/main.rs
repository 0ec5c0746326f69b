//! Project tasks: `cargo xtask TASK`.
//!
//! ```text
//! setup ──► fetch ──► e2e, bench ──► results/SUITE/raw ──► summarize
//! ```
#![forbid(unsafe_code)]

mod fetch;
mod setup;
mod sh;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use std::process::ExitCode;
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
    }
}
