//! `worksp report`: the ladder of a trace file.

use std::path::PathBuf;

use super::common::Failure;
use super::trace::{View, show_file};

/// Print the ladder of a trace that was kept
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The trace
    trace: PathBuf,
    #[command(flatten)]
    view: View,
}

const EXAMPLES: &str = "\
Examples:
  worksp report run.wspt          verdict and ladder
  worksp report run.wspt --json   for machines

Exit status: 0 once the result is written; 2 on bad usage or bad input.";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    show_file(&args.trace, &args.view)
}
