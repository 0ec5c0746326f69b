//! Summaries: a pure function of the raw files, written byte for byte the same from the same samples.

use super::raw::{Line, RUN_SCHEMA, Run, Sample};
use super::run::median;
use super::{suite, text};
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use std::path::PathBuf;

/// `results/` of this checkout.
pub fn results_dir() -> PathBuf {
    worksp_fixtures::fixtures_dir().with_file_name("results")
}

/// Smallest, middle and largest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The smallest value.
    pub min: f64,
    /// The median.
    pub median: f64,
    /// The largest value.
    pub max: f64,
}

/// One subject of one case: over its processes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SubjectSummary {
    /// Its name.
    pub subject: String,
    /// Processes, twins not counted.
    pub processes: usize,
    /// Medians of the processes' own times.
    pub seconds: Spread,
    /// User and system time of the whole processes.
    pub cpu_s: Spread,
    /// The largest peak of resident memory.
    pub peak_kib: u64,
    /// Operators executed.
    pub work: Option<u64>,
}

/// One ratio of one case, taken round by round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RatioSummary {
    /// The numerator's name.
    pub numerator: String,
    /// The denominator's name.
    pub denominator: String,
    /// Pairs.
    pub pairs: usize,
    /// The ratio.
    pub ratio: Spread,
    /// The A/A control: the denominator's twin against it.
    pub control: Spread,
}

/// One case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseSummary {
    /// Its name.
    pub case: String,
    /// Its subjects.
    pub subjects: Vec<SubjectSummary>,
    /// Its ratios.
    pub ratios: Vec<RatioSummary>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    /// The raw file's name.
    pub raw: String,
    /// What ran where.
    pub run: Run,
    /// Wall time of the whole run.
    pub wall_s: f64,
    /// The load averages after it.
    pub load_after: [f64; 3],
    /// Its cases.
    pub cases: Vec<CaseSummary>,
}

/// Reads all raw files of a suite, the newest run first, and renders (summary.json, summary.md).
fn render(suite: &str) -> Result<(String, String)> {
    let dir = results_dir().join(suite).join("raw");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".jsonl") {
            names.push(name);
        }
    }
    names.sort_by(|a, b| b.cmp(a));
    let mut runs = Vec::new();
    for name in names {
        let text = std::fs::read_to_string(dir.join(&name))?;
        runs.push(summarize_run(&name, &text).with_context(|| format!("{}", dir.join(&name).display()))?);
    }
    let json = serde_json::to_string_pretty(&serde_json::json!({ "schema": "worksp.bench-summary.v1", "suite": suite, "runs": runs }))? + "\n";
    Ok((json, text::markdown(suite, &runs)))
}

/// The summary of one raw file.
pub fn summarize_run(name: &str, text: &str) -> Result<RunSummary> {
    let lines = text.lines().enumerate().map(|(at, line)| serde_json::from_str::<Line>(line).with_context(|| format!("line {}", at + 1)));
    let lines = lines.collect::<Result<Vec<_>>>()?;
    let Some((Line::Run(run), rest)) = lines.split_first() else { bail!("the first line does not describe a run") };
    let Some((Line::End { wall_s, load }, samples)) = rest.split_last() else { bail!("the run was not completed: its last line is missing") };
    ensure!(run.schema == RUN_SCHEMA, "its format is {:?}, this version reads {RUN_SCHEMA:?}", run.schema);
    let samples = samples.iter().map(|line| if let Line::Sample(sample) = line { Ok(sample) } else { bail!("a line between the first and the last is no sample") });
    let samples: Vec<&Sample> = samples.collect::<Result<_>>()?;
    let mut cases: Vec<&str> = samples.iter().map(|sample| sample.case.as_str()).collect();
    cases.dedup();
    let cases = cases.into_iter().map(|case| summarize_case(case, run, &samples)).collect::<Result<_>>()?;
    Ok(RunSummary { raw: name.to_owned(), run: run.clone(), wall_s: *wall_s, load_after: *load, cases })
}

fn summarize_case(case: &str, run: &Run, samples: &[&Sample]) -> Result<CaseSummary> {
    let of = |subject: &str, twin: bool| -> Vec<&Sample> {
        let mut found: Vec<&Sample> = samples.iter().copied().filter(|s| s.case == case && s.subject == subject && s.twin == twin).collect();
        found.sort_by_key(|sample| sample.round);
        found
    };
    let mut names: Vec<&str> = Vec::new();
    for sample in samples.iter().filter(|sample| sample.case == case && sample.round == 0 && !sample.twin) {
        names.push(&sample.subject);
    }
    let subjects = names.iter().map(|name| {
        let all = of(name, false);
        let spread = |f: &dyn Fn(&Sample) -> f64| spread(&all.iter().map(|sample| f(sample)).collect::<Vec<_>>());
        SubjectSummary {
            subject: (*name).to_owned(),
            processes: all.len(),
            seconds: spread(&|sample| median(&sample.seconds)),
            cpu_s: spread(&|sample| sample.user_s + sample.system_s),
            peak_kib: all.iter().map(|sample| sample.peak_kib).max().unwrap_or(0),
            work: all.iter().find_map(|sample| sample.work),
        }
    });
    let subjects = subjects.collect();
    // A subject that is known to fail in a case has no sample there at all.
    let has_samples = |name: &String| samples.iter().any(|sample| sample.case == case && sample.subject == *name);
    let ratios = run.ratios.iter().filter(|(numerator, denominator)| has_samples(numerator) || !has_samples(denominator)).map(|(numerator, denominator)| {
        let (above, below, twin) = (of(numerator, false), of(denominator, false), of(denominator, true));
        for side in [&above, &below, &twin] {
            ensure!(side.iter().map(|sample| sample.round).eq(0..run.rounds), "{case}: {numerator}/{denominator} has not one sample in each of {} rounds", run.rounds);
        }
        let pairwise = |above: &[&Sample]| spread(&above.iter().zip(&below).map(|(a, b)| median(&a.seconds) / median(&b.seconds)).collect::<Vec<_>>());
        Ok(RatioSummary { numerator: numerator.clone(), denominator: denominator.clone(), pairs: below.len(), ratio: pairwise(&above), control: pairwise(&twin) })
    });
    Ok(CaseSummary { case: case.to_owned(), subjects, ratios: ratios.collect::<Result<_>>()? })
}

/// Values are kept to nine decimal places: more is noise, and text must come out the same everywhere.
fn spread(values: &[f64]) -> Spread {
    let round = |value: f64| (value * 1e9).round() / 1e9;
    Spread {
        min: round(values.iter().copied().fold(f64::INFINITY, f64::min)),
        median: round(median(values)),
        max: round(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
    }
}

/// Rewrites a suite's summaries.
///
/// # Errors
/// When a raw file is not a completed run.
pub fn write(suite: &str) -> Result<()> {
    let (json, markdown) = render(suite)?;
    let dir = results_dir().join(suite);
    std::fs::write(dir.join("summary.json"), json)?;
    std::fs::write(dir.join("summary.md"), &markdown)?;
    print!("{markdown}");
    Ok(())
}

/// `cargo xtask summarize [--check]`: rewrites all summaries, or says which ones are not what their raw samples give.
///
/// # Errors
/// When a raw file is broken or, with `check`, a summary differs.
pub fn summarize(check: bool) -> Result<()> {
    let mut stale = Vec::new();
    for name in suite::names() {
        if !results_dir().join(name).join("raw").exists() {
            continue;
        }
        if !check {
            write(name)?;
            continue;
        }
        let (json, markdown) = render(name)?;
        for (file, expected) in [("summary.json", json), ("summary.md", markdown)] {
            let path = results_dir().join(name).join(file);
            if std::fs::read_to_string(&path).unwrap_or_default() != expected {
                stale.push(path.display().to_string());
            }
        }
    }
    ensure!(stale.is_empty(), "not what the raw samples give: {}; run `cargo xtask summarize` and look at the difference", stale.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(twin_rounds: usize) -> String {
        let run = r#"{"kind":"run","schema":"worksp.bench.v1","suite":"s","about":"a","began":"2026-01-01T00:00:00Z","revision":"0123456789","dirty":false,"rustc":"r","profile":"release","os":"o","arch":"x","cpu":"c","cores":2,"load":[0.0,0.0,0.0],"sha256":{},"ratios":[["b","a"]],"rounds":2}"#;
        let sample = |subject: &str, twin: bool, round: usize, seconds: &str| {
            format!(r#"{{"kind":"sample","case":"c","subject":"{subject}","twin":{twin},"round":{round},"place":0,"seconds":{seconds},"wall_s":1.0,"user_s":0.5,"system_s":0.25,"peak_kib":7,"digest":null,"work":null}}"#)
        };
        let mut lines = vec![run.to_owned()];
        for round in 0..2 {
            lines.push(sample("a", false, round, ["[1.0, 9.0, 2.0]", "[4.0]"][round]));
            lines.push(sample("b", false, round, ["[6.0]", "[8.0]"][round]));
            if round < twin_rounds {
                lines.push(sample("a", true, round, "[2.0]"));
            }
        }
        lines.push(r#"{"kind":"end","wall_s":5.0,"load":[0.0,0.0,0.0]}"#.to_owned());
        lines.join("\n")
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let summary = summarize_run("x.jsonl", &raw(2)).unwrap();
        let case = &summary.cases[0];
        assert_eq!(case.subjects[0].seconds, Spread { min: 2.0, median: 3.0, max: 4.0 });
        assert_eq!(case.ratios[0].ratio, Spread { min: 2.0, median: 2.5, max: 3.0 });
        assert_eq!(case.ratios[0].control, Spread { min: 0.5, median: 0.75, max: 1.0 });
    }

    #[test]
    fn incomplete_runs_give_no_numbers() {
        let whole = raw(2);
        let cut = whole.rsplit_once('\n').unwrap().0;
        for broken in [raw(1), cut.to_owned(), String::new(), "{}".to_owned(), whole.replace("v1", "v9")] {
            assert!(summarize_run("x.jsonl", &broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn the_same_samples_give_the_same_text() {
        let render = || text::markdown("s", &[summarize_run("x.jsonl", &raw(2)).unwrap()]);
        assert_eq!(render(), render());
        assert!(render().contains("| b / a | 2 | 2.000 | 2.500 | 3.000 | 0.500 | 0.750 | 1.000 |"), "{}", render());
    }
}
