//! The one binary: reads the command line, runs a command, turns errors into messages and exit statuses.

#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    cli::stop_on_interrupt();
    match cli::Cli::parse().run() {
        Ok(status) => status,
        Err(failure) => {
            anstream::eprintln!("{failure}");
            ExitCode::from(2)
        }
    }
}
