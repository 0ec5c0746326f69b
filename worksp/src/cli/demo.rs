//! `worksp demo`: the main job on a request that ships, explained.

use worksp::request::TraceOptions;
use worksp_tracer::recording::Recording;

use super::common::Failure;
use super::trace::{View, show, trace};

/// Trace a request that ships with worksp, and explain the output
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    view: View,
}

/// Our own program (`fixtures/demo/mandelbrot.c`), recorded natively.
const RECORDING: &[u8] = include_bytes!("../../../fixtures/demo/mandelbrot.wspr");

const EXPLANATION: &str = "
How to read it
  The program draws 32 rows one after another; a *unit* is one call of render_row. *Work* is all operators that ran, *span* the
  longest chain of them that must run one after another, *parallelism* work / span.
  M0  keeps nesting only: the rows could all run at once, and the longest row is the span.
  M1  keeps every dependence of this run: the rows form one chain, held together by everything in the last column.
  M2  forgets the stack pointer and reuse of the C stack, M3 the allocator's own chain and reuse of its block,
  M4  lets `rows_done++` commute, M5 orders the written lines at commit instead of letting them conflict.
  Down the ladder the last column loses one name after the other. The order of output is the last: a program that kept
  its lines and printed them at the end, and cleared the other four, could draw its rows apart.
Next: worksp trace YOUR.wasm -- ARGS
";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let recording = Recording::from_bytes("mandelbrot.wspr", RECORDING)?;
    let units = vec!["func:render_row".parse()?];
    let traced = trace(&recording, &TraceOptions { units, ..TraceOptions::default() })?;
    show(&traced, &args.view)?;
    if !args.view.json {
        print!("{EXPLANATION}");
    }
    Ok(())
}
