//! The ladder as one JSON object, schema `worksp.ladder.v1`.

use serde::Serialize;
use worksp_tracer::Trace;
use worksp_tracer::recording::hex;

use crate::ladder::{Ladder, Rung, Validity};

/// The name of the schema; it changes when the meaning of a field does.
pub const SCHEMA: &str = "worksp.ladder.v1";

/// The object.
#[derive(Clone, Serialize, PartialEq, Debug)]
pub struct LadderJson {
    schema: &'static str,
    module: ModuleJson,
    entry: String,
    work: u64,
    units: u64,
    segments: u64,
    edges: u64,
    granule: u32,
    semantics: &'static str,
    rungs: Vec<RungJson>,
}

#[derive(Clone, Serialize, PartialEq, Debug)]
struct ModuleJson {
    name: String,
    sha256: String,
}

#[derive(Clone, Serialize, PartialEq, Debug)]
struct RungJson {
    rung: &'static str,
    span: u64,
    parallelism: f64,
    burdened: f64,
    valid: &'static str,
    witness: Option<WitnessJson>,
    binding: Vec<&'static str>,
    leave_one_out: Vec<LeaveOneOutJson>,
}

#[derive(Clone, Serialize, PartialEq, Debug)]
struct WitnessJson {
    /// The number of the earlier access's segment.
    from: u64,
    to: u64,
    from_unit: Option<String>,
    to_unit: Option<String>,
    from_site: Option<String>,
    to_site: Option<String>,
    address: u64,
}

#[derive(Clone, Serialize, PartialEq, Debug)]
struct LeaveOneOutJson {
    class: &'static str,
    span: u64,
    parallelism: f64,
}

impl LadderJson {
    /// The object of a trace and its ladder.
    pub fn new(trace: &Trace, ladder: &Ladder) -> LadderJson {
        let info = &trace.info;
        LadderJson {
            schema: SCHEMA,
            module: ModuleJson { name: info.module.clone(), sha256: hex(&info.sha256) },
            entry: info.entry.clone(),
            work: ladder.work,
            units: trace.units().len() as u64,
            segments: info.segments,
            edges: trace.edges_count(),
            granule: info.granule,
            semantics: "atomic",
            rungs: ladder.rungs.iter().map(|rung| rung_json(trace, ladder, rung)).collect(),
        }
    }

    /// One line of JSON.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings can always be written")
    }
}

fn rung_json(trace: &Trace, ladder: &Ladder, rung: &Rung) -> RungJson {
    let witness = match &rung.validity {
        Validity::Invalid(w) => Some(WitnessJson {
            from: trace.segment_number(w.from),
            to: trace.segment_number(w.to),
            from_unit: crate::report::unit_name(trace, w.from),
            to_unit: crate::report::unit_name(trace, w.to),
            from_site: trace.info.site_name(w.from_site),
            to_site: trace.info.site_name(w.to_site),
            address: w.address,
        }),
        Validity::Valid | Validity::Unchecked => None,
    };
    let left_out = rung.leave_one_out.iter().map(|(class, span)| LeaveOneOutJson {
        class: class.name(),
        span: *span,
        parallelism: ladder.parallelism(*span),
    });
    RungJson {
        rung: rung.name,
        span: rung.span,
        parallelism: ladder.parallelism(rung.span),
        burdened: ladder.parallelism(rung.burdened_span),
        valid: rung.validity.name(),
        witness,
        binding: rung.binding.iter().map(|class| class.name()).collect(),
        leave_one_out: left_out.collect(),
    }
}
