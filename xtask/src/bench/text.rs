//! Summaries as Markdown.

use super::summary::{CaseSummary, RunSummary};
use std::fmt::Write;

/// The text of summary.md: every run, the newest first.
pub fn markdown(suite: &str, runs: &[RunSummary]) -> String {
    let mut out = format!("# Results: {suite}\n\nWritten by `cargo xtask summarize` from `raw/`; do not edit.\n");
    for summary in runs {
        let run = &summary.run;
        let dirty = if run.dirty { " (work tree changed)" } else { "" };
        let load = |load: [f64; 3]| load.map(|value| format!("{value:.2}")).join(" ");
        line(&mut out, format_args!("\n## {}\n", run.began));
        line(&mut out, format_args!("{}\n", run.about));
        line(&mut out, format_args!("- revision {}{dirty}, {}, {} profile", run.revision, run.rustc, run.profile));
        line(&mut out, format_args!("- {} ({}), {} cores, {}; load before {}, after {}", run.cpu, run.arch, run.cores, run.os, load(run.load), load(summary.load_after)));
        line(&mut out, format_args!("- {} rounds in {:.0} s; raw samples: `raw/{}`", run.rounds, summary.wall_s, summary.raw));
        for (label, hash) in &run.sha256 {
            line(&mut out, format_args!("- {label}: {hash}"));
        }
        summary.cases.iter().for_each(|case| add_case(&mut out, case));
    }
    out
}

fn add_case(out: &mut String, case: &CaseSummary) {
    line(out, format_args!("\n### {}\n", case.case));
    line(out, format_args!("| subject | processes | min s | median s | max s | CPU s, whole process | peak MiB | operators |\n|---|--:|--:|--:|--:|--:|--:|--:|"));
    for subject in &case.subjects {
        let (time, peak) = (subject.seconds, subject.peak_kib as f64 / 1024.0);
        let work = subject.work.map_or_else(String::new, |work| work.to_string());
        line(out, format_args!("| {} | {} | {:.4} | {:.4} | {:.4} | {:.3} | {peak:.1} | {work} |", subject.subject, subject.processes, time.min, time.median, time.max, subject.cpu_s.median));
    }
    line(out, format_args!("\n| ratio | pairs | min | median | max | A/A min | A/A median | A/A max |\n|---|--:|--:|--:|--:|--:|--:|--:|"));
    for ratio in &case.ratios {
        let (r, c) = (ratio.ratio, ratio.control);
        line(out, format_args!("| {} / {} | {} | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} |", ratio.numerator, ratio.denominator, ratio.pairs, r.min, r.median, r.max, c.min, c.median, c.max));
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}
