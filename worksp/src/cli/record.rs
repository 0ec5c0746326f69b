//! `worksp record`: run natively, write down the request.

use std::path::{Path, PathBuf};

use worksp::report::grouped;
use worksp_recorder::{RecordSummary, record};

use super::common::{Failure, Request, ended, read, seconds};

/// Run a program natively on Wasmtime and write down all that a replay needs
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The program: .wasm or .wat
    app: PathBuf,
    /// Where to write the recording
    #[arg(short, long, value_name = "REQ.wspr")]
    output: PathBuf,
    #[command(flatten)]
    request: Request,
}

const EXAMPLES: &str = "\
Examples:
  worksp record app.wasm -o req.wspr -- --version         a command
  worksp record app.wasm --dir .::/ -o req.wspr -- in.c   ... that sees this folder as /
  worksp record lib.wasm --invoke run -o req.wspr -- 5    one export
  worksp record lib.wasm --script calls.json -o req.wspr  several calls and memory writes

Exit status: 0 once the recording is written, whatever the program did; 2 on bad usage or bad input.";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let summary = record_to(&args.app, &args.request, &args.output)?;
    describe(&summary, &args.output);
    Ok(())
}

/// Records a program into a file.
pub(crate) fn record_to(app: &Path, request: &Request, output: &Path) -> Result<RecordSummary, Failure> {
    let module = read(app)?;
    let options = request.to_options(app)?;
    Ok(record(&module, &options, output)?)
}

/// Tells on stderr what was recorded.
fn describe(summary: &RecordSummary, output: &Path) {
    if let Some(trap) = &summary.trap {
        eprintln!("{trap}");
    }
    let results: Vec<String> = summary.results.iter().map(|value| value.to_string()).collect();
    if !results.is_empty() {
        println!("{}", results.join(" "));
    }
    eprintln!(
        "recorded {}: the program {} after {} ({} to compile), {} host calls",
        output.display(),
        ended(&summary.exit),
        seconds(summary.duration),
        seconds(summary.compile),
        grouped(summary.host_calls),
    );
}
