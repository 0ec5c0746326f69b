//! The control programs: eight equal tasks whose only link is one class of dependence. Every number follows from the definitions
//! by hand (`fixtures/controls/gen.py`).

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use worksp::ladder::{BURDEN_DEFAULT, Ladder, Validity};
use worksp_tracer::Granule;

#[derive(serde::Deserialize)]
struct Expected {
    work: u64,
    span: BTreeMap<String, u64>,
}

#[test]
fn every_control_gives_exactly_its_numbers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/controls");
    let expected = std::fs::read(folder.join("expected.json")).expect("expected.json is there");
    let expected: BTreeMap<String, Expected> = serde_json::from_slice(&expected).expect("it is JSON");
    assert_eq!(expected.len(), 8);
    for (name, expect) in expected {
        let text = std::fs::read_to_string(folder.join(format!("{name}.wat"))).expect("the control is there");
        let run =
            common::Run { text: &text, calls: &[("run", &[])], units: &["func:task"], granule: Granule::Eight };
        let trace = common::trace(&run);
        let ladder = Ladder::of(&trace, BURDEN_DEFAULT).expect("held in memory");
        assert_eq!(ladder.work, expect.work, "work of {name}");
        let got: BTreeMap<String, u64> = ladder.rungs.iter().map(|r| (r.name.to_owned(), r.span)).collect();
        assert_eq!(got, expect.span, "spans of {name}: {:#?}", trace.to_vec());
        assert_eq!(trace.units().len(), 9, "units of {name}");
        assert_eq!(trace.info.segments, 17, "segments of {name}");
        assert_eq!(ladder.rungs[1].validity, Validity::Valid);
    }
}
