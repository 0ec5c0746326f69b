//! Running a suite: rounds of processes, validated, written as they come.

use super::raw::{Line, REPORT_SCHEMA, Report, Sample};
use super::suite::{self, Binary, Kind, Subject, Suite};
use super::{identity, summary};
use crate::sh;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use wait4::Wait4;
use worksp_fixtures::{Program, Request};

/// One process to run in every round.
struct Entry {
    subject: &'static Subject,
    twin: bool,
}

/// A case with what its subjects need.
struct Case {
    name: &'static str,
    request: Option<(&'static Program, &'static Request)>,
    recording: PathBuf,
}

/// Runs a suite and rewrites its summaries. `cases` restricts it (all when empty), `rounds` overrides the suite's own number, `build`
/// builds the binaries first.
///
/// # Errors
/// When a subject fails or gives another result than the others of its case: then nothing is summarised.
pub fn run(name: &str, cases: &[String], rounds: Option<usize>, build: bool) -> Result<()> {
    let suite = suite::find(name)?;
    let rounds = rounds.unwrap_or(suite.rounds);
    ensure!(rounds > 0, "a run needs at least one round");
    if let Some(unknown) = cases.iter().find(|case| !suite.cases.contains(&case.as_str())) {
        bail!("{name} has no case {unknown:?}; it has: {}", suite.cases.join(", "));
    }
    if build {
        build_binaries(suite)?;
    }
    let work = tempfile::tempdir().context("cannot create a temporary directory")?;
    let chosen = suite.cases.iter().filter(|case| cases.is_empty() || cases.iter().any(|c| c == *case));
    let cases = chosen.map(|case| prepare(suite, case, work.path())).collect::<Result<Vec<_>>>()?;
    let files = files(suite, &cases)?;
    let identity = identity::of(suite, rounds, &files)?;

    let dir = summary::results_dir().join(suite.name).join("raw");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let dirty = if identity.dirty { "-dirty" } else { "" };
    let stamp = identity.began.replace([':', '-'], "");
    let target = dir.join(format!("{stamp}-{}{dirty}.jsonl", &identity.revision[..8]));
    let partial = target.with_extension("jsonl.partial");
    let mut out = std::fs::File::create(&partial).with_context(|| format!("cannot write {}", partial.display()))?;
    let mut put = |line: &Line| -> Result<()> { Ok(writeln!(out, "{}", serde_json::to_string(line)?)?) };

    let began = Instant::now();
    put(&Line::Run(identity.clone()))?;
    for case in &cases {
        run_case(suite, case, rounds, work.path(), &mut put)?;
    }
    ensure!(identity::hashes(&files)? == identity.sha256, "a module or binary changed while the suite ran: run it again");
    put(&Line::End { wall_s: began.elapsed().as_secs_f64(), load: identity::load() })?;
    std::fs::rename(&partial, &target).with_context(|| format!("cannot write {}", target.display()))?;
    eprintln!("raw samples: {}", target.display());
    summary::write(suite.name)
}

/// All rounds of one case. Every subject runs once a round, a denominator twice; the order turns, and every second round
/// goes backwards, so that neither side of a ratio always runs first.
fn run_case(suite: &Suite, case: &Case, rounds: usize, work: &Path, put: &mut impl FnMut(&Line) -> Result<()>) -> Result<()> {
    let entries = entries(suite, case.name);
    let mut first: Option<Sample> = None;
    for round in 0..rounds {
        for (place, index) in order(entries.len(), round).into_iter().enumerate() {
            let entry = &entries[index];
            let sample = run_process(case, entry, round, place, work).with_context(|| format!("{}, subject {}, round {round}", case.name, entry.subject.name))?;
            eprintln!("{:<12} {:<10} round {round}  {:>9.3} s  {:>9} KiB", case.name, entry.subject.name, median(&sample.seconds), sample.peak_kib);
            check_against(first.as_ref(), &sample)?;
            put(&Line::Sample(sample.clone()))?;
            let merged = first.get_or_insert_with(|| sample.clone());
            merged.work = merged.work.or(sample.work);
            merged.digest = merged.digest.take().or(sample.digest);
        }
    }
    Ok(())
}

/// The processes of a round: each subject, and the twin of each denominator.
fn entries(suite: &Suite, case: &str) -> Vec<Entry> {
    let runs = |subject: &&'static Subject| !subject.fails.contains(&case);
    let twins = suite.subjects.iter().filter(runs).filter(|subject| suite.ratios.iter().any(|(_, d)| *d == subject.name));
    let twins = twins.map(|subject| Entry { subject, twin: true });
    suite.subjects.iter().filter(runs).map(|subject| Entry { subject, twin: false }).chain(twins).collect()
}

/// A turned order of `0..count`, backwards in odd rounds.
fn order(count: usize, round: usize) -> Vec<usize> {
    let turned = (0..count).map(|i| (i + round / 2) % count);
    if round.is_multiple_of(2) { turned.collect() } else { turned.rev().collect() }
}

/// Equal digests and equal work, wherever both sides have them.
fn check_against(first: Option<&Sample>, sample: &Sample) -> Result<()> {
    let Some(first) = first else { return Ok(()) };
    if let (Some(expected), Some(found)) = (&first.digest, &sample.digest) {
        ensure!(expected == found, "{} produced {found}, {} produced {expected}: no ratio of different results", sample.subject, first.subject);
    }
    if let (Some(expected), Some(found)) = (first.work, sample.work) {
        ensure!(expected == found, "{} executed {found} operators, the others {expected}", sample.subject);
    }
    Ok(())
}

fn run_process(case: &Case, entry: &Entry, round: usize, place: usize, work: &Path) -> Result<Sample> {
    let scratch = tempfile::tempdir_in(work)?;
    let mut command = Command::new(binary_path(entry.subject.binary)?);
    for arg in entry.subject.args {
        let module = case.request.map(|(program, _)| worksp_fixtures::path(&program.name)).transpose()?.unwrap_or_default();
        let arg = arg.replace("{request}", &case.recording.to_string_lossy()).replace("{module}", &module.to_string_lossy());
        let arg = arg.replace("{kernel}", &suite::kernel(case.name).to_string_lossy());
        command.arg(arg.replace("{case}", case.name).replace("{scratch}", &scratch.path().to_string_lossy()));
    }
    if let Some((_, request)) = case.request.filter(|_| entry.subject.record_options) {
        command.args(request.record_options(scratch.path()));
    }
    let line = sh::line_of(&command);
    let began = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{line}`"))?;
    let mut printed = String::new();
    child.stdout.take().context("the subject's output was piped")?.read_to_string(&mut printed)?;
    let ended = child.wait4()?;
    let wall_s = began.elapsed().as_secs_f64();
    ensure!(ended.status.success(), "`{line}` failed ({})", ended.status);
    let report = read_report(entry.subject.binary, &printed, wall_s).with_context(|| format!("`{line}` printed no report"))?;
    ensure!(report.schema == REPORT_SCHEMA, "`{line}` printed a {:?}, not a {REPORT_SCHEMA:?}", report.schema);
    ensure!(!report.seconds.is_empty() && report.seconds.iter().all(|s| s.is_finite() && *s > 0.0), "`{line}` printed no positive times: {:?}", report.seconds);
    Ok(Sample {
        case: case.name.to_owned(),
        subject: entry.subject.name.to_owned(),
        twin: entry.twin,
        round,
        place,
        seconds: report.seconds,
        wall_s,
        user_s: ended.rusage.utime.as_secs_f64(),
        system_s: ended.rusage.stime.as_secs_f64(),
        peak_kib: ended.rusage.maxrss / 1024,
        digest: report.digest,
        work: report.work,
    })
}

/// A subject's own report is its last line; `worksp trace --json` prints a ladder.
fn read_report(binary: Binary, printed: &str, wall_s: f64) -> Result<Report> {
    if binary != Binary::Worksp {
        return Ok(serde_json::from_str(printed.lines().last().unwrap_or_default())?);
    }
    let ladder: serde_json::Value = serde_json::from_str(printed)?;
    let work = ladder["work"].as_u64().context("its JSON has no `work`")?;
    Ok(Report { schema: REPORT_SCHEMA.to_owned(), seconds: vec![wall_s], digest: None, work: Some(work) })
}

/// Records a case's request once, and checks what it answers.
fn prepare(suite: &Suite, name: &'static str, work: &Path) -> Result<Case> {
    if suite.kind != Kind::Requests {
        return Ok(Case { name, request: None, recording: PathBuf::new() });
    }
    let found = worksp_fixtures::programs().iter().find_map(|p| Some((p, p.requests.iter().find(|r| r.name == name)?)));
    let (program, request) = found.with_context(|| format!("{name} is no request of fixtures/programs.toml"))?;
    let recording = work.join(format!("{name}.wspr"));
    let scratch = tempfile::tempdir_in(work)?;
    crate::e2e::record(program, request, &recording, scratch.path())?;
    Ok(Case { name, request: Some((program, request)), recording })
}

fn files(suite: &Suite, cases: &[Case]) -> Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    for (program, _) in cases.iter().filter_map(|case| case.request) {
        files.insert(format!("{}.wasm", program.name), worksp_fixtures::path(&program.name)?);
    }
    for case in cases.iter().filter(|_| suite.kind == Kind::Kernels) {
        files.insert(format!("{}.wasm", case.name), suite::kernel(case.name));
    }
    for subject in suite.subjects {
        let path = binary_path(subject.binary)?;
        files.insert(path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path);
    }
    Ok(files)
}

/// Binaries are taken from beside this one, so that one target directory serves all.
fn binary_path(binary: Binary) -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot tell where xtask lies")?;
    Ok(match binary {
        Binary::Xtask => this,
        Binary::Subject => this.with_file_name("subject"),
        Binary::Worksp => this.with_file_name("worksp"),
        Binary::Peers => peers_target(&this)?.join("release/worksp-peers"),
    })
}

fn build_binaries(suite: &Suite) -> Result<()> {
    if suite.subjects.iter().all(|subject| subject.binary == Binary::Xtask) {
        return Ok(());
    }
    sh::loud(Command::new("cargo").args(["build", "--release", "--quiet", "--workspace", "--bins"]))?;
    if suite.subjects.iter().any(|subject| subject.binary == Binary::Peers) {
        let target = peers_target(&std::env::current_exe().context("cannot tell where xtask lies")?)?;
        let manifest = worksp_fixtures::fixtures_dir().with_file_name("differential").join("peers/Cargo.toml");
        sh::loud(Command::new("cargo").args(["build", "--release", "--quiet", "--locked", "--manifest-path"]).arg(manifest).arg("--target-dir").arg(target))?;
    }
    Ok(())
}

/// Peers are a workspace of their own: its target directory is beside the profile's.
fn peers_target(this: &Path) -> Result<PathBuf> {
    let target = this.ancestors().nth(2).context("xtask lies in no target directory")?;
    Ok(target.join("peers"))
}

/// The middle value; the mean of the two middle ones when their number is even.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// `xtask spin N`: a subject whose cost is known, for the suite `harness`.
pub fn spin(count: u64) -> Result<()> {
    let began = Instant::now();
    let mut state = 1_u64;
    for _ in 0..count {
        state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    let seconds = vec![began.elapsed().as_secs_f64()];
    let report = Report { schema: REPORT_SCHEMA.to_owned(), seconds, digest: None, work: None };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_permutations_and_every_pair_runs_both_ways_round() {
        for count in 1..8 {
            let mut before = vec![vec![false; count]; count];
            for round in 0..2 * count {
                let order = order(count, round);
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..count).collect::<Vec<_>>());
                for (at, a) in order.iter().enumerate() {
                    order[at + 1..].iter().for_each(|b| before[*a][*b] = true);
                }
            }
            assert!((0..count).all(|a| (0..count).all(|b| a == b || before[a][b])), "{count}");
        }
    }

    #[test]
    fn medians() {
        for (values, expect) in [(&[3.0][..], 3.0), (&[9.0, 1.0, 2.0], 2.0), (&[4.0, 1.0, 2.0, 3.0], 2.5)] {
            assert_eq!(median(values), expect);
        }
    }

    #[test]
    fn different_results_are_never_compared() {
        let sample = |subject: &str, digest: Option<&str>, work| Sample {
            case: "c".to_owned(),
            subject: subject.to_owned(),
            twin: false,
            round: 0,
            place: 0,
            seconds: vec![1.0],
            wall_s: 1.0,
            user_s: 1.0,
            system_s: 0.0,
            peak_kib: 1,
            digest: digest.map(str::to_owned),
            work,
        };
        let first = sample("a", Some("x"), Some(1));
        assert!(check_against(Some(&first), &sample("b", Some("x"), None)).is_ok());
        assert!(check_against(Some(&first), &sample("b", None, Some(1))).is_ok());
        assert!(check_against(Some(&first), &sample("b", Some("y"), None)).is_err());
        assert!(check_against(Some(&first), &sample("b", None, Some(2))).is_err());
    }
}
