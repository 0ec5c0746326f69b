//! The specification's own tests, in every mode of the engine.

use std::panic::{AssertUnwindSafe, catch_unwind};

use worksp_differential::suites;
use worksp_differential::wast::{Mode, Report};

/// Every file of every suite in one mode; fails with all failures, not with the first.
fn check(mode: Mode) -> Vec<Report> {
    let mut reports = Vec::new();
    let mut broken = Vec::new();
    let mut skipped = 0;
    for file in suites::all() {
        match catch_unwind(AssertUnwindSafe(|| suites::run(&file, mode))) {
            Ok((report, skips)) => {
                skipped += skips.len();
                broken.extend(report.failures.iter().map(ToString::to_string));
                reports.push(report);
            }
            Err(_) => broken.push(format!("{}: the engine panicked", suites::name(&file))),
        }
    }
    let passed: usize = reports.iter().map(|report| report.passed).sum();
    println!("{mode:?}: {} files, {passed} assertions passed, {} failed, {skipped} skipped", reports.len(), broken.len());
    assert!(broken.is_empty(), "{} failures in mode {mode:?}:\n{}", broken.len(), broken.join("\n"));
    assert!(passed > 40_000, "the suites were not there: only {passed} assertions");
    reports
}

#[test]
fn plain() {
    check(Mode::Plain);
}

#[test]
fn counting_and_traced_runs_do_the_same_work() {
    let counted = check(Mode::Counting);
    let traced = check(Mode::Traced);
    let differ: Vec<String> = counted
        .iter()
        .zip(&traced)
        .filter(|(counted, traced)| counted.work != traced.work)
        .map(|(counted, traced)| format!("{}: {} counted, {} traced", counted.file, counted.work, traced.work))
        .collect();
    assert!(differ.is_empty(), "work differs between modes:\n{}", differ.join("\n"));
    assert!(counted.iter().map(|report| report.work).sum::<u64>() > 1_000_000, "the suites execute operators");
}
