//! The one binary: reads the command line, runs a command, turns errors into messages and exit statuses.

#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

use clap::Parser;

// What is shipped has no bugs that were planted, whatever turned the engine's feature on.
const _: () = assert!(worksp_engine::MUTANTS == cfg!(feature = "mutants"), "the engine has mutants, but `worksp` was not asked for them");

fn main() -> ExitCode {
    cli::stop_on_interrupt();
    end_when_nobody_listens();
    match cli::Cli::parse().run() {
        Ok(status) => status,
        Err(failure) => {
            anstream::eprintln!("{failure}");
            ExitCode::from(2)
        }
    }
}

/// Output that cannot be written ends the process: quietly when its reader has gone (`worksp report … | head`), otherwise with a message.
fn end_when_nobody_listens() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // What `println!` panics with; there is no other way to know.
        match panic.payload_as_str().and_then(|message| message.strip_prefix("failed printing to stdout: ")) {
            Some(reason) if reason.contains("Broken pipe") => std::process::exit(0),
            Some(reason) => {
                anstream::eprintln!("{}", cli::Failure::new(format!("the output cannot be written: {reason}")));
                std::process::exit(2)
            }
            None => others(panic),
        }
    }));
}
