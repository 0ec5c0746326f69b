//! The suites, as data.

use std::path::PathBuf;

use anyhow::{Result, bail};

/// One way to do a case's work; a command of its own.
pub struct Subject {
    /// Its name in tables.
    pub name: &'static str,
    /// The binary, built in release by the harness.
    pub binary: Binary,
    /// Its arguments: `{request}` is the case's recording, `{module}` its module, `{kernel}` the kernel of its name, `{case}` its name,
    /// `{scratch}` an empty directory.
    pub args: &'static [&'static str],
    /// Whether the case's options of `worksp record` follow (`--dir`, `--invoke`, … and arguments).
    pub record_options: bool,
    /// Cases that it is known to fail in; it does not run there.
    pub fails: &'static [&'static str],
}

/// What a suite's cases are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Requests of fixtures/programs.toml, each recorded once before the first round.
    Requests,
    /// Kernels of fixtures/peers.
    Kernels,
    /// Plain words for `{case}`.
    Words,
}

/// A binary of this workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    /// `worksp-differential`'s `subject`.
    Subject,
    /// `worksp` itself, as a user runs it: the whole process is the time, its JSON has the work.
    Worksp,
    /// `worksp-peers`: engines that are built apart.
    Peers,
    /// `xtask` itself, for the harness's own check.
    Xtask,
}

/// Named cases, the subjects that each of them runs under, and the ratios that are asked for.
pub struct Suite {
    /// Its name and its directory's below `results/`.
    pub name: &'static str,
    /// What it answers.
    pub about: &'static str,
    /// The cases.
    pub cases: &'static [&'static str],
    /// What their names mean.
    pub kind: Kind,
    /// The subjects.
    pub subjects: &'static [Subject],
    /// Numerator and denominator, by name.
    pub ratios: &'static [(&'static str, &'static str)],
    /// How often every subject runs.
    pub rounds: usize,
}

const fn run(binary: Binary, name: &'static str, args: &'static [&'static str]) -> Subject {
    Subject { name, binary, args, record_options: false, fails: &[] }
}

const fn subject(name: &'static str, args: &'static [&'static str]) -> Subject {
    run(Binary::Subject, name, args)
}

const fn native(name: &'static str, args: &'static [&'static str]) -> Subject {
    Subject { record_options: true, ..subject(name, args) }
}

const fn peer(name: &'static str, args: &'static [&'static str]) -> Subject {
    run(Binary::Peers, name, args)
}

/// The kernels of fixtures/peers.
const KERNELS: &[&str] = &["fib", "sieve", "matmul", "sha256", "lz", "vm6502", "qsort", "hash", "crc32", "indirect", "nbody"];

const SUITES: &[Suite] = &[
    Suite {
        name: "request",
        about: "What observing a request costs: native Wasmtime, recording, and the engine plain, counting and tracing; wasmi replays the same recording. `trace` is the whole command, from reading the recording to the printed ladder; the others are timed without compilation and set-up.",
        cases: &["cpython", "resvg", "quickjs"],
        kind: Kind::Requests,
        subjects: &[
            native("native", &["native", "{module}"]),
            native("record", &["record", "{module}", "-o", "{scratch}/again.wspr"]),
            subject("plain", &["plain", "{request}"]),
            subject("counting", &["counting", "{request}"]),
            run(Binary::Worksp, "trace", &["trace", "{request}", "-o", "{scratch}/run.wspt", "--json"]),
            subject("wasmi", &["wasmi", "{request}"]),
        ],
        ratios: &[("record", "native"), ("plain", "native"), ("counting", "native"), ("trace", "native"), ("wasmi", "native"), ("plain", "wasmi")],
        rounds: 5,
    },
    Suite {
        name: "kernels",
        about: "Kernels that import nothing, each engine's time for the same call, without compilation: this engine plain, counting fuel, under a probe that counts work and under one that appends every access to a buffer; wasmi, stitch, and Wasmtime's Cranelift, Winch and Pulley.",
        cases: KERNELS,
        kind: Kind::Kernels,
        subjects: &[
            subject("plain", &["kernel", "plain", "{kernel}"]),
            subject("fuel", &["kernel", "fuel", "{kernel}"]),
            subject("counting", &["kernel", "counting", "{kernel}"]),
            subject("appending", &["kernel", "appending", "{kernel}"]),
            subject("wasmi", &["kernel", "wasmi", "{kernel}"]),
            // It panics there.
            Subject { fails: &["lz"], ..peer("stitch", &["stitch", "{kernel}"]) },
            peer("cranelift", &["cranelift", "{kernel}"]),
            peer("winch", &["winch", "{kernel}"]),
            peer("pulley", &["pulley", "{kernel}"]),
        ],
        ratios: &[("plain", "wasmi"), ("fuel", "plain"), ("counting", "plain"), ("appending", "plain"), ("plain", "cranelift"), ("stitch", "wasmi"), ("winch", "wasmi"), ("pulley", "wasmi")],
        rounds: 7,
    },
    Suite {
        name: "translation",
        about: "Loading CPython's module (25 MB): validation only, as before a lazy start, and with all functions translated, by one thread and by two.",
        cases: &["cpython"],
        kind: Kind::Requests,
        subjects: &[
            subject("lazy", &["translate", "{module}"]),
            subject("eager", &["translate", "{module}", "--threads", "1"]),
            subject("eager2", &["translate", "{module}", "--threads", "2"]),
        ],
        ratios: &[("eager", "lazy"), ("eager2", "eager")],
        rounds: 5,
    },
    Suite {
        name: "suspension",
        about: "A run that stops and goes on a million times, out of fuel and at host calls: microseconds for one are seconds here.",
        cases: &["million"],
        kind: Kind::Words,
        subjects: &[
            subject("fuel", &["suspend"]),
            subject("host", &["suspend", "--host"]),
        ],
        ratios: &[("host", "fuel")],
        rounds: 5,
    },
    Suite {
        name: "harness",
        about: "The harness's own check: twice the work must cost twice the time, and the same work once.",
        cases: &["spin"],
        kind: Kind::Words,
        subjects: &[
            run(Binary::Xtask, "once", &["spin", "200000000"]),
            run(Binary::Xtask, "twice", &["spin", "400000000"]),
        ],
        ratios: &[("twice", "once")],
        rounds: 5,
    },
];

/// Where a kernel's module is.
pub fn kernel(name: &str) -> PathBuf {
    worksp_fixtures::fixtures_dir().join("peers").join(format!("{name}.wasm"))
}

/// The suites' names.
pub fn names() -> Vec<&'static str> {
    SUITES.iter().map(|suite| suite.name).collect()
}

/// The suite called `name`.
///
/// # Errors
/// When there is none.
pub fn find(name: &str) -> Result<&'static Suite> {
    match SUITES.iter().find(|suite| suite.name == name) {
        Some(suite) => Ok(suite),
        None => bail!("no suite is called {name:?}; there are: {}", names().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_name_subjects_and_cases_name_requests() {
        for suite in SUITES {
            for (numerator, denominator) in suite.ratios {
                for name in [numerator, denominator] {
                    assert!(suite.subjects.iter().any(|subject| subject.name == *name), "{}: {name}", suite.name);
                }
            }
            for case in suite.cases.iter().filter(|_| suite.kind == Kind::Kernels) {
                assert!(kernel(case).is_file(), "{case}");
            }
            for case in suite.cases.iter().filter(|_| suite.kind == Kind::Requests) {
                assert!(worksp_fixtures::programs().iter().any(|p| p.requests.iter().any(|r| r.name == *case)), "{case}");
            }
        }
        assert!(find("no-such-suite").is_err_and(|error| error.to_string().contains("request")));
    }
}
