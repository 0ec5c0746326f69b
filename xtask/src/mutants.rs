//! `cargo xtask mutants`: whether the differential campaign finds bugs that were planted, and how long it takes.
//!
//! ```text
//! worksp with the feature `mutants` ─► for each mutant: `worksp fuzz run --mutant NAME --first` ─► results/fuzz/mutants.{jsonl,md}
//! ```

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::sh;

/// Seconds after which a process that is still there is taken for one whose mutant never ends.
const WALL_MAX_S: u64 = 240;

/// Runs the campaign on each mutant, or on those that are named.
///
/// # Errors
/// When the build fails, or fewer than 95 % of all mutants are found.
pub fn run(only: &[String], seed: u64, time_max_s: u64) -> Result<()> {
    sh::loud(Command::new("cargo").args(["build", "--release", "--quiet", "-p", "xtask", "-p", "worksp", "--features", "worksp/mutants"]))?;
    // Kept under another name: the next build without the feature takes its place.
    let dir = tempfile::tempdir()?;
    let worksp = dir.path().join("worksp-mutants");
    std::fs::copy(std::env::current_exe()?.with_file_name("worksp"), &worksp).context("cannot copy worksp")?;
    let list = Command::new(&worksp).args(["fuzz", "mutants"]).output().context("worksp does not start")?;
    let mutants: Vec<Value> = String::from_utf8(list.stdout)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let chosen: Vec<&Value> = mutants.iter().filter(|mutant| only.is_empty() || only.iter().any(|name| mutant["name"] == name.as_str())).collect();
    ensure!(!chosen.is_empty(), "there is no such mutant; `worksp fuzz mutants` lists them");
    let mut rows = Vec::new();
    // The engine as it should be: a campaign that finds something there finds nothing at all.
    let control = one(&worksp, None, seed, time_max_s)?;
    ensure!(control["killed"] == false, "the campaign differs without any mutant: {control}");
    for mutant in &chosen {
        let name = mutant["name"].as_str().context("a mutant has a name")?;
        let mut row = one(&worksp, Some(name), seed, time_max_s)?;
        row["name"] = mutant["name"].clone();
        row["kind"] = mutant["kind"].clone();
        row["bug"] = mutant["bug"].clone();
        println!("{name:34} {}", words(&row));
        rows.push(row);
    }
    let killed = rows.iter().filter(|row| row["killed"] == true).count();
    println!("{killed} of {} mutants are found", rows.len());
    if only.is_empty() {
        let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../results/fuzz");
        std::fs::create_dir_all(&dir)?;
        let lines: String = rows.iter().map(|row| row.to_string() + "\n").collect();
        std::fs::write(dir.join("mutants.jsonl"), lines)?;
        std::fs::write(dir.join("mutants.md"), table(&rows, killed, seed, time_max_s))?;
        ensure!(killed * 100 >= rows.len() * 95, "fewer than 95 %");
    }
    Ok(())
}

/// One campaign, until it finds something or its time is over.
fn one(worksp: &std::path::Path, mutant: Option<&str>, seed: u64, time_max_s: u64) -> Result<Value> {
    let dir = tempfile::tempdir()?;
    let campaign = dir.path().join("campaign");
    // Batches of modules come last: one of them takes as long as many of programs.
    let mut command = Command::new(worksp);
    command.args(["fuzz", "run", "--first", "--shrink", "0", "--generators", "single,region,smith", "--seed", &seed.to_string()]);
    command.args(["--time", &time_max_s.to_string(), "--dir"]).arg(&campaign);
    if let Some(mutant) = mutant {
        command.args(["--mutant", mutant]);
    } else {
        command.args(["--cases", "1920"]);
    }
    let started = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("worksp does not start")?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if started.elapsed() > Duration::from_secs(WALL_MAX_S) {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let report = Command::new(worksp).args(["fuzz", "report", "--json", "--dir"]).arg(&campaign).output()?;
    let report: Value = serde_json::from_slice(&report.stdout).unwrap_or(Value::Null);
    let finding = &report["findings"][0]["first"];
    let cpu_s = report["totals"]["cpu_s"].as_f64().unwrap_or(0.0);
    let how = match status.map(|status| status.code()) {
        None => "never ends",
        Some(Some(0)) => "not found",
        Some(Some(1)) if finding.is_object() => "differs",
        Some(Some(1)) => "never ends",
        Some(_) => "crashes",
    };
    // A process that ended in its first batch has no line; its own time is what there is.
    let cpu_s = if cpu_s == 0.0 { started.elapsed().as_secs_f64() } else { cpu_s };
    Ok(json!({
        "killed": how != "not found", "how": how, "cpu_s": (cpu_s * 100.0).round() / 100.0, "programs": report["totals"]["programs"],
        "case": finding["id"], "modes": finding["modes"], "what": finding["what"], "seed": seed,
    }))
}

fn words(row: &Value) -> String {
    let text = |key: &str| row[key].as_str().unwrap_or("").to_owned();
    format!("{:10} {:>6.2} s  {} {}", text("how"), row["cpu_s"].as_f64().unwrap_or(0.0), text("case"), text("what"))
}

fn table(rows: &[Value], killed: usize, seed: u64, time_max_s: u64) -> String {
    let mut text = format!(
        "# Mutants\n\nBugs planted in the engine, one at a time (`cargo xtask mutants`, seed {seed}): the campaign found {killed} of {}.\nProcessor \
         time until the batch that found it was done, all six modes and the oracle included; at most {time_max_s} s on the clock.\n\n| mutant | kind | bug | \
         found | s | by |\n|---|---|---|---|--:|---|\n",
        rows.len()
    );
    for row in rows {
        let cell = |key: &str| row[key].as_str().unwrap_or("").replace('|', "\\|");
        let by = cell("case").split('-').next().unwrap_or("").to_owned();
        text += &format!("| {} | {} | {} | {} | {:.2} | {by} |\n", cell("name"), cell("kind"), cell("bug"), cell("how"), row["cpu_s"].as_f64().unwrap_or(0.0));
    }
    text
}
