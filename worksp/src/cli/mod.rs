//! The command line. Every command is a file here; what they share stands in `common`.

mod common;
mod demo;
mod fuzz;
mod record;
mod report;
mod trace;

pub(crate) use common::{Failure, stop_on_interrupt};

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// How parallel is one real request of a WebAssembly program, and what binds it?
#[derive(Parser, Debug)]
#[command(name = "worksp", version, max_term_width = 120, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  worksp demo                                         trace a request that ships with worksp, explained
  worksp trace app.wasm --dir .::/ -- in.svg out.png  record a command natively, then trace it
  worksp trace lib.wasm --invoke run -- 1000          one export of a library
  worksp record app.wasm -o req.wspr -- --version     only record; `worksp trace req.wspr` traces it later

Exit status: 0 once the result is written, whatever the program did; 2 on bad usage or bad input.";

#[derive(Subcommand, Debug)]
enum Command {
    Record(record::Args),
    Trace(trace::Args),
    Report(report::Args),
    Demo(demo::Args),
    Fuzz(fuzz::Args),
}

impl Cli {
    /// Runs the command. The status is 0, or 1 where a comparison failed.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let done = match self.command {
            Command::Fuzz(args) => return fuzz::run(&args),
            Command::Record(args) => record::run(&args),
            Command::Trace(args) => trace::run(&args),
            Command::Report(args) => report::run(&args),
            Command::Demo(args) => demo::run(&args),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}
