//! The one binary: reads the command line, runs a command, turns errors into messages and exit statuses.

#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

use clap::Parser;

// What is shipped has no bugs that were planted, whatever turned the engine's feature on.
const _: () = assert!(worksp_engine::MUTANTS == cfg!(feature = "mutants"), "the engine has mutants, but `worksp` was not asked for them");

fn main() -> ExitCode {
    cli::stop_on_interrupt();
    match cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            anstream::eprintln!("{failure}");
            ExitCode::from(2)
        }
    }
}
