//! `cargo xtask e2e`: every real program, recorded natively, then replayed and traced on the engine.
//!
//! `worksp trace` itself compares exit status, output, results, host calls and final memories with the recording and fails
//! when they differ; here the answers are also compared with what fixtures/programs.toml expects.

use crate::sh;
use anyhow::{Context, Result, ensure};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use worksp_fixtures::{Expect, Program, Request};

/// What one request showed.
struct Row {
    request: &'static str,
    outcome: Result<Traced>,
}

/// A request that was recorded and traced with equal results.
struct Traced {
    native: Duration,
    trace: Duration,
    report: Value,
}

/// Runs all requests of `programs` and prints the table; `build` builds the binary first.
///
/// # Errors
/// When any request fails; the table says which ones.
pub fn run(programs: &[&'static Program], build: bool) -> Result<()> {
    if build {
        sh::loud(Command::new("cargo").args(["build", "--release", "--quiet", "--workspace", "--bins"]))?;
    }
    let mut rows = Vec::new();
    for program in programs {
        for request in &program.requests {
            eprint!("{:<22}\r", request.name);
            let outcome = trace(program, request);
            if let Err(error) = &outcome {
                eprintln!("{}: {error:#}", request.name);
            }
            rows.push(Row { request: &request.name, outcome });
        }
    }
    println!("{}", table(&rows));
    let failed: Vec<&str> = rows.iter().filter(|row| row.outcome.is_err()).map(|row| row.request).collect();
    println!("{} passed, {} failed", rows.len() - failed.len(), failed.len());
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn trace(program: &Program, request: &Request) -> Result<Traced> {
    let work = tempfile::tempdir()?;
    let recording = work.path().join("request.wspr");
    let native = record(program, request, &recording, work.path())?;
    let began = Instant::now();
    let traced = run_worksp(&["trace".to_owned(), recording.display().to_string(), "--json".to_owned(), "-o".to_owned(), work.path().join("run.wspt").display().to_string()])?;
    let trace = began.elapsed();
    let report = serde_json::from_slice(&traced.stdout).context("`worksp trace --json` printed no JSON")?;
    Ok(Traced { native, trace, report })
}

/// Records a request and checks what it answered; returns how long that took, compilation included.
///
/// # Errors
/// When the module is not fetched, the recorder fails or the program answers something else than expected.
pub fn record(program: &Program, request: &Request, to: &Path, scratch: &Path) -> Result<Duration> {
    let module = worksp_fixtures::path(&program.name)?;
    let mut args = vec!["record".to_owned(), module.display().to_string(), "-o".to_owned(), to.display().to_string()];
    args.extend(request.record_options(scratch));
    let began = Instant::now();
    let output = run_worksp(&args)?;
    let took = began.elapsed();
    check(&request.expect, &String::from_utf8_lossy(&output.stdout))?;
    Ok(took)
}

/// Standard output holds what the program printed, and the results of an invoked export.
fn check(expect: &Expect, stdout: &str) -> Result<()> {
    if let Some(whole) = &expect.stdout {
        ensure!(stdout == whole, "standard output is {stdout:?}, expected {whole:?}");
    }
    if let Some(start) = &expect.stdout_starts {
        ensure!(stdout.starts_with(start), "standard output is {stdout:?}, expected to begin with {start:?}");
    }
    if let Some(part) = &expect.stdout_contains {
        ensure!(stdout.contains(part), "standard output lacks {part:?}");
    }
    if let Some(results) = &expect.results {
        let found: Vec<&str> = stdout.split_whitespace().collect();
        ensure!(found == results.iter().map(String::as_str).collect::<Vec<_>>(), "results are {found:?}, expected {results:?}");
    }
    Ok(())
}

fn run_worksp(args: &[String]) -> Result<Output> {
    let mut command = Command::new(worksp_path()?);
    command.args(args).stdin(Stdio::null());
    let line = sh::line_of(&command);
    let output = command.output().with_context(|| format!("cannot start `{line}`"))?;
    ensure!(output.status.success(), "`{line}` failed ({}):\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(output)
}

/// The binary beside this one.
fn worksp_path() -> Result<PathBuf> {
    Ok(std::env::current_exe().context("cannot tell where xtask lies")?.with_file_name("worksp"))
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["request", "operators", "segments", "record ms", "trace ms", "M1 parallelism", "M1 binds", "M7 parallelism", "result"]);
    for row in rows {
        let Ok(traced) = &row.outcome else {
            table.add_row([row.request, "", "", "", "", "", "", "", "FAILED"]);
            continue;
        };
        let number = |key: &str| traced.report[key].as_u64().map_or_else(|| "?".to_owned(), |n| n.to_string());
        let rung = |name: &str| traced.report["rungs"].as_array().and_then(|rungs| rungs.iter().find(|rung| rung["rung"] == name)).unwrap_or(&Value::Null);
        let parallelism = |name: &str| rung(name)["parallelism"].as_f64().map_or_else(|| "?".to_owned(), |p| format!("{p:.2}"));
        let binding = rung("M1")["binding"].as_array().map(|classes| classes.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "));
        let millis = |duration: Duration| format!("{:.0}", duration.as_secs_f64() * 1e3);
        table.add_row([
            row.request.to_owned(),
            number("work"),
            number("segments"),
            millis(traced.native),
            millis(traced.trace),
            parallelism("M1"),
            binding.unwrap_or_default(),
            parallelism("M7"),
            "ok".to_owned(),
        ]);
    }
    for column in 1..=5 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_compared() {
        let expect = |stdout: Option<&str>, results: Option<&[&str]>| Expect {
            stdout: stdout.map(str::to_owned),
            results: results.map(|list| list.iter().map(|text| (*text).to_owned()).collect()),
            ..Expect::default()
        };
        assert!(check(&expect(Some("a\n"), None), "a\n").is_ok());
        assert!(check(&expect(Some("a\n"), None), "a").is_err());
        assert!(check(&expect(None, Some(&["-1"])), "-1\n").is_ok());
        assert!(check(&expect(None, Some(&["-1"])), "1\n").is_err());
        let start = Expect { stdout_starts: Some("ab".to_owned()), stdout_contains: Some("c".to_owned()), ..Expect::default() };
        assert!(check(&start, "abc").is_ok());
        assert!(check(&start, "ab").is_err() && check(&start, "cab").is_err());
    }
}
