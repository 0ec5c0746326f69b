//! Every bug that was found, as a script: `fixtures/regressions/*.wast`, written by `worksp fuzz` or by hand, in every mode of scripts.

use std::path::Path;

use worksp_differential::wast::{Mode, run_finding};

#[test]
fn what_was_found_stays_found() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/regressions");
    let mut files: Vec<_> = std::fs::read_dir(&dir).expect("a folder").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "wast"));
    assert!(!files.is_empty());
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a script");
        for mode in [Mode::Plain, Mode::Counting, Mode::Traced] {
            let report = run_finding(&path.display().to_string(), &text, mode);
            assert!(report.failures.is_empty() && report.passed > 0, "{}, {mode:?}: {:?}", path.display(), report.failures);
        }
    }
}
