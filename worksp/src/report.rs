//! What a person reads: the verdict, the ladder, what binds each rung, and what the numbers do not say.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use worksp_tracer::Trace;
use worksp_tracer::recording::hex;
use worksp_tracer::trace::NodeIdx;

use crate::ladder::{Bottleneck, Ladder, RUNGS, Rung, Validity};

/// How the report is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// For a terminal.
    Terminal,
    /// For a pipe: no lines but the text's own.
    Plain,
}

/// The whole report.
pub fn render(trace: &Trace, ladder: &Ladder, style: Style) -> String {
    let mut text = verdict(trace, ladder);
    text.push_str("\n\n");
    text.push_str(&table(ladder, style));
    text.push('\n');
    for line in details(trace, ladder) {
        text.push_str(&line);
        text.push('\n');
    }
    text.push('\n');
    for line in footer(trace) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The name of the boundary of the unit that a node belongs to.
pub fn unit_name(trace: &Trace, node: NodeIdx) -> Option<String> {
    let unit = trace.nodes().get(node as usize)?.unit;
    let boundary = trace.units().get(unit as usize)?.boundary;
    Some(trace.info.boundary_name(trace.info.boundaries.get(boundary as usize)?))
}

/// Two or three sentences: how parallel, what binds, what would help most.
pub fn verdict(trace: &Trace, ladder: &Ladder) -> String {
    let Some(recorded) = ladder.rungs.get(1) else { return String::new() };
    let as_is = ladder.parallelism(recorded.span);
    let (units, work) = (trace.units().len(), grouped(ladder.work));
    let mut text = format!("This run of {work} operators in {units} units has parallelism {as_is:.2} as recorded (M1)");
    match recorded.binding[..] {
        [] if units <= 1 => text.push_str(": it was not cut into units, so nothing could run apart. Name some with --unit."),
        [] => text.push_str(", and no dependence delays it: only its own structure does."),
        _ => text.push_str(&format!(", bound by {}.", binding_words(recorded))),
    }
    if let Some(bottleneck) = &recorded.bottleneck {
        text.push_str(&format!(" The longest single delay: {}.", bottleneck_words(trace, bottleneck)));
    }
    let best = ladder.rungs.iter().skip(2).filter(|r| matches!(r.validity, Validity::Valid)).min_by_key(|r| r.span);
    if let Some(best) = best
        && best.span < recorded.span
    {
        let parallelism = ladder.parallelism(best.span);
        text.push_str(&format!(" The last rung known to be valid is {} with {parallelism:.2}.", best.name));
    }
    let bound = ladder.rungs.iter().skip(1).map(|r| (r.span, r.name)).min();
    if let Some((span, name)) = bound
        && span < recorded.span
    {
        text.push_str(&format!(" At most {:.2} ({name}) could be had.", ladder.parallelism(span)));
    }
    text
}

fn binding_words(rung: &Rung) -> String {
    let names: Vec<&str> = rung.binding.iter().map(|c| c.name()).collect();
    if names.is_empty() { "–".to_owned() } else { names.join(", ") }
}

/// A table without rows.
pub fn headed(header: &[&str], style: Style) -> Table {
    let mut table = Table::new();
    match style {
        Style::Terminal => table.load_preset(presets::UTF8_HORIZONTAL_ONLY),
        Style::Plain => table.load_preset(presets::NOTHING),
    };
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    table
}

/// The ladder, one line a rung.
pub fn table(ladder: &Ladder, style: Style) -> String {
    let mut table = headed(&["rung", "without", "work", "span", "parallelism", "burdened", "validity", "bound by"], style);
    for (number, rung) in ladder.rungs.iter().enumerate() {
        let removes = match number {
            0 => "everything but nesting",
            n => RUNGS[n - 1].removes,
        };
        table.add_row([
            rung.name.to_owned(),
            removes.to_owned(),
            grouped(ladder.work),
            grouped(rung.span),
            format!("{:.2}", ladder.parallelism(rung.span)),
            format!("{:.2}", ladder.parallelism(rung.burdened_span)),
            rung.validity.name().to_owned(),
            binding_words(rung),
        ]);
    }
    for column in 2..=5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string();
    text.lines().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n") + "\n"
}

/// Below the table: the worst single edge of every rung where it changes, the best class to remove, and witnesses.
fn details(trace: &Trace, ladder: &Ladder) -> Vec<String> {
    let mut lines = Vec::new();
    let mut last: Option<&Bottleneck> = None;
    for rung in &ladder.rungs {
        if let Validity::Invalid(w) = &rung.validity
            && !lines.iter().any(|l: &String| l.contains("is invalid"))
        {
            let site = |s| trace.info.site_name(s).unwrap_or_else(|| "an unknown place".to_owned());
            let unit = |n| unit_name(trace, n).unwrap_or_else(|| "no unit".to_owned());
            lines.push(format!(
                "{} is invalid: address {:#x} was accessed at {} (segment {}, {}) and at {} (segment {}, {}).",
                rung.name,
                w.address,
                site(w.from_site),
                trace.segment_number(w.from),
                unit(w.from),
                site(w.to_site),
                trace.segment_number(w.to),
                unit(w.to),
            ));
        }
        if rung.bottleneck.as_ref() == last {
            continue;
        }
        last = rung.bottleneck.as_ref();
        if let Some(bottleneck) = &rung.bottleneck {
            let gain = rung.leave_one_out.iter().min_by_key(|(_, span)| *span).filter(|(_, span)| *span < rung.span);
            let gain = gain.map_or_else(
                || "no single class would help".to_owned(),
                |(class, span)| format!("without {} alone: {:.2}", class.name(), ladder.parallelism(*span)),
            );
            lines.push(format!("{}: {}; {gain}.", rung.name, bottleneck_words(trace, bottleneck)));
        }
    }
    lines
}

fn bottleneck_words(trace: &Trace, bottleneck: &Bottleneck) -> String {
    let Bottleneck { edge, to, delay } = bottleneck;
    let info = &trace.info;
    let site = |site| info.site_name(site).unwrap_or_else(|| "?".to_owned());
    let unit = |node| unit_name(trace, node).unwrap_or_else(|| "many segments".to_owned());
    let object = info.object_name(edge);
    let carrier = if object.is_empty() { String::new() } else { format!(" by {object}") };
    format!(
        "{} {} from {} ({}) to {} ({}){carrier}, {} operators",
        edge.class.name(),
        edge.kind.name(),
        unit(edge.from),
        site(edge.from_site),
        unit(*to),
        site(edge.to_site),
        grouped(*delay),
    )
}

/// What the numbers do not say.
pub fn footer(trace: &Trace) -> Vec<String> {
    let info = &trace.info;
    let allocator = match info.allocator.len() {
        0 => "no allocator entry points were found: M3 removes nothing".to_owned(),
        n if n <= 6 => format!("allocator: {}", info.allocator.join(", ")),
        n => format!("allocator: {} and {} more", info.allocator[..5].join(", "), n - 5),
    };
    let units = if info.unit_specs.is_empty() { "none".to_owned() } else { info.unit_specs.join(" ") };
    vec![
        format!("Units: {units}."),
        format!(
            "Holds for this input only (module {}…, entry {}). Semantics: atomic, a segment starts when all it depends on has \
             finished. Control is perfectly predicted.",
            &hex(&info.sha256)[..16],
            info.entry,
        ),
        format!(
            "Granule {} bytes{}. Memory: {}; {allocator}.",
            info.granule,
            if info.granule > 1 { ": neighbours count as conflicting, which overstates dependences" } else { "" },
            if info.layout.is_empty() { "layout unknown" } else { &info.layout },
        ),
        "M1 holds for the recorded run; M2 to M7 are upper bounds, and `unchecked` ones rest on something nobody checked."
            .to_owned(),
    ]
}

/// Digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn digits_are_grouped() {
        for (number, expect) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(grouped(number), expect);
        }
    }

    #[test]
    fn numbers_are_grouped() {
        let check = |n, expected: &str| assert_eq!(super::grouped(n), expected);
        check(0, "0");
        check(999, "999");
        check(1000, "1,000");
        check(1_234_567, "1,234,567");
    }
}
