//! Runs files of the specification suite's format on the engine: `cargo xtask wast FILE…`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use worksp_differential::wast::{Mode, run_file};

fn main() -> ExitCode {
    let (mut passed, mut failed) = (0, 0);
    for file in std::env::args().skip(1) {
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("error: cannot read {file}: {error}");
                return ExitCode::from(2);
            }
        };
        for mode in [Mode::Plain, Mode::Counting, Mode::Traced] {
            let report = run_file(&file, &text, mode);
            report.failures.iter().for_each(|failure| println!("{mode:?}: {failure}"));
            passed += report.passed;
            failed += report.failures.len();
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
