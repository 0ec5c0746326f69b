//! `worksp fuzz status` and `report`: what campaigns came to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;
use comfy_table::CellAlignment;
use worksp::report::{grouped, headed};
use worksp_differential::campaign::{Campaign, Finding, Kind, Totals, possible_cells};

use crate::cli::common::{Failure, output_style};

/// All that the lines of campaigns say.
#[derive(Default)]
struct Sums {
    totals: Totals,
    by_generator: BTreeMap<String, Totals>,
    by_compiler: BTreeMap<String, u64>,
    cells: BTreeSet<String>,
    /// By signature: the first, and how many there are.
    findings: BTreeMap<String, (Finding, u64)>,
}

/// Prints totals and, with `whole`, coverage and findings.
pub(super) fn print(dirs: &[PathBuf], json: bool, whole: bool) -> Result<ExitCode, Failure> {
    let mut sums = Sums::default();
    let mut plans: Vec<Campaign> = Vec::new();
    for dir in dirs {
        let campaign = Campaign::open(dir)?;
        if let Some(first) = plans.first().filter(|first| first.plan != campaign.plan) {
            let (a, b) = (first.dir.display(), dir.display());
            return Err(Failure::new(format!("{a} and {b} are parts of different campaigns; report them one by one")));
        }
        plans.push(campaign);
    }
    // Parts of one campaign: a batch counts once, wherever it was done.
    let mut batches = BTreeSet::new();
    for campaign in &plans {
        campaign.lines(|line| {
            if !batches.insert(line.batch) {
                return;
            }
            sums.totals.add(&line);
            sums.by_generator.entry(line.generator.to_string()).or_default().add(&line);
            *sums.by_compiler.entry(line.compiler.map_or("none".to_owned(), |compiler| compiler.to_string())).or_default() += line.programs;
            sums.cells.extend(line.cells);
            for finding in line.findings {
                sums.findings.entry(finding.signature.clone()).or_insert((finding, 0)).1 += 1;
            }
        })?;
    }
    let unexplained = sums.findings.values().filter(|(finding, _)| finding.kind != Kind::Oracle).count();
    let good = unexplained == 0 && !sums.totals.too_poisoned();
    if json {
        println!("{}", machine(&sums, &plans[0], good));
    } else {
        people(&sums, &plans[0], whole, unexplained);
    }
    Ok(ExitCode::from(u8::from(!good)))
}

fn rate(count: u64, seconds: f64) -> String {
    if seconds > 0.0 { grouped((count as f64 / seconds) as u64) } else { "–".to_owned() }
}

fn people(sums: &Sums, campaign: &Campaign, whole: bool, unexplained: usize) {
    let Totals { batches, programs, skipped, calls, comparisons, poisoned, cpu_s, .. } = &sums.totals;
    let modes: Vec<String> = campaign.plan.modes.iter().map(ToString::to_string).collect();
    println!("{}: seed {}, modes {}", campaign.dir.display(), campaign.plan.seed, modes.join(", "));
    println!(
        "{} programs ({} batches), {} calls, {} comparisons; {} poisoned, {} skipped",
        grouped(*programs),
        grouped(*batches),
        grouped(*calls),
        grouped(*comparisons),
        grouped(*poisoned),
        grouped(*skipped)
    );
    println!("{cpu_s:.1} s of processor time: {} programs/s, {} comparisons/s", rate(*programs, *cpu_s), rate(*comparisons, *cpu_s));
    if whole {
        println!();
        let mut table = headed(&["generator", "programs", "comparisons", "poisoned", "skipped", "programs/s"], output_style());
        for (name, totals) in &sums.by_generator {
            let numbers = [totals.programs, totals.comparisons, totals.poisoned, totals.skipped].map(grouped);
            table.add_row(std::iter::once(name.clone()).chain(numbers).chain([rate(totals.programs, totals.cpu_s)]));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{}\n", table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n"));
        let answered: Vec<String> = sums.by_compiler.iter().map(|(name, programs)| format!("{name} {}", grouped(*programs))).collect();
        println!("answered by: {}", answered.join("; "));
        let (seen, possible, never) = coverage(&sums.cells);
        let share = 100.0 * seen as f64 / possible as f64;
        println!("coverage: {} of {} cells of operator and operand shapes ({share:.1} %)", grouped(seen), grouped(possible));
        if !never.is_empty() {
            let some: Vec<&str> = never.iter().take(12).copied().collect();
            println!("never seen: {} operators: {}{}", never.len(), some.join(" "), if never.len() > some.len() { " …" } else { "" });
        }
        for (signature, (finding, count)) in &sums.findings {
            let whose = match finding.kind {
                Kind::Engine => "this engine, confirmed at full optimisation",
                Kind::Oracle => "the oracle's: full optimisation agrees with this engine",
                Kind::Crash => "nobody knows whose",
                Kind::Together => "only after other programs of its batch",
            };
            println!("\n{signature}\n  {count} times, first {}; {whose}; {} operators are left\n  {}", finding.id, finding.operators, finding.detail);
        }
        println!();
    }
    match (unexplained, sums.totals.too_poisoned()) {
        (0, false) if *programs == 0 => println!("no program has run yet"),
        (0, false) if sums.totals.findings > 0 => println!("every difference is the oracle's"),
        (0, false) => println!("no difference"),
        (0, true) => println!("more than 1 % of the programs were poisoned: this campaign says too little"),
        (count, _) => println!("{count} different findings; {}", campaign.findings_dir().display()),
    }
}

/// Cells that were seen and that there are, of the operators that the validator knows; and operators without any.
fn coverage(cells: &BTreeSet<String>) -> (u64, u64, Vec<&'static str>) {
    let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
    for cell in cells {
        *by_name.entry(cell.split(':').next().unwrap_or(cell)).or_default() += 1;
    }
    let (mut seen, mut possible, mut never) = (0, 0, Vec::new());
    for (name, count) in possible_cells() {
        let found = by_name.get(name).copied().unwrap_or(0);
        (seen, possible) = (seen + found.min(count), possible + count);
        if found == 0 {
            never.push(name);
        }
    }
    (seen, possible, never)
}

fn machine(sums: &Sums, campaign: &Campaign, good: bool) -> serde_json::Value {
    let (seen, possible, never) = coverage(&sums.cells);
    let findings: Vec<_> = sums.findings.values().map(|(finding, count)| json!({ "count": count, "first": finding })).collect();
    json!({
        "schema": "worksp.fuzz.v1",
        "plan": campaign.plan,
        "totals": sums.totals,
        "generators": sums.by_generator,
        "compilers": sums.by_compiler,
        "coverage": { "seen": seen, "possible": possible, "never": never },
        "findings": findings,
        "good": good,
    })
}
