//! What is shipped: the features that this build, and with it the binary's, has.

#[test]
fn no_mutants() {
    let has_mutants = std::hint::black_box(worksp_engine::MUTANTS);
    assert!(!has_mutants, "a feature that is on by default, or of another package in this build, plants bugs in the engine");
}
