//! Random modules on this engine in every mode, against Wasmtime: results, traps, globals and memories must agree; and in very small
//! pieces, and wherever fuel ends, which must change nothing.
//!
//! `WORKSP_PROGRAMS=N` runs N programs instead of the default, `WORKSP_SEED=S` takes other ones; a failure names its module's file.

use worksp_differential::generate::{Random, smith};
use worksp_differential::run::modules::{ModuleOracle, Unusable, compare, in_pieces, ours};
use worksp_differential::run::oracle::Compiler;
use worksp_differential::run::ours::Mode;
use worksp_differential::run::pieces::Pieces;
use worksp_engine::{Config, Engine, Module};

/// What the pieces of all programs came to: pauses, stores saved and restored, changes of probe.
type Sums = [u64; 3];

/// Returns whether there was something to compare with.
fn check(index: u64, bytes: &[u8], oracle: &ModuleOracle, sums: &mut Sums) -> Result<bool, String> {
    let canonicalize_nans = smith::canonicalize_nans(index);
    let outcome = compare(bytes, canonicalize_nans, &Mode::ALL, oracle);
    if let Some(divergence) = outcome.divergences.first() {
        return Err(format!("{divergence:?}"));
    }
    let counted = match ours(bytes, Mode::Counting, canonicalize_nans, None) {
        Ok(counted) if outcome.programs == 1 => counted,
        Ok(_) | Err(Unusable::Limit(_)) => return Ok(false),
        Err(other) => return Err(format!("{other:?}")),
    };
    // Wherever the fuel ends, counting and traced code stop at the same operator.
    for part in [3, 7, 11] {
        let fuel = counted.work * part / 13;
        let run = |mode| ours(bytes, mode, canonicalize_nans, Some(fuel)).map_err(|e| format!("{e:?}"));
        let (counted, traced) = (run(Mode::Counting)?, run(Mode::Traced)?);
        if (&counted.seen, counted.work) != (&traced.seen, traced.work) {
            return Err(format!("fuel {fuel}: {counted:?}, but traced {traced:?}"));
        }
    }
    for mode in [Mode::Pieces, Mode::Stepped] {
        let mut pieces = Pieces::new(index);
        pieces.doubling = u64::MAX;
        let found = in_pieces(bytes, mode.config(canonicalize_nans), &mut pieces).map_err(|e| format!("{e:?}"))?;
        if (&found.seen, found.work) != (&counted.seen, counted.work) {
            return Err(format!("in pieces, {mode}: {found:?}, expected {counted:?}"));
        }
        sums.iter_mut().zip([pieces.pauses, pieces.saves, pieces.switches]).for_each(|(sum, count)| *sum += count);
    }
    Ok(outcome.poisoned == 0)
}

#[test]
fn random_programs_run_as_on_wasmtime() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |v| v.parse().expect("a number"));
    let (seed, count) = (number("WORKSP_SEED", 1), number("WORKSP_PROGRAMS", 400));
    println!("seed {seed}, {count} programs");
    // Of each of these, how many programs use it.
    type Switch = fn(&mut Config);
    let without: [(&str, Switch); 6] = [
        ("vectors", |config| config.simd = false),
        ("exceptions", |config| config.exceptions = false),
        ("wide arithmetic", |config| config.wide_arithmetic = false),
        ("custom page sizes", |config| config.custom_page_sizes = false),
        ("memory64", |config| config.memory64 = false),
        ("threads", |config| config.threads = false),
    ];
    let without = without.map(|(name, switch)| {
        let mut config = Config::default();
        switch(&mut config);
        (name, Engine::new(config))
    });
    let (mut ran, mut compared, mut using, mut sums) = (0, 0, [0; 6], Sums::default());
    let oracle = ModuleOracle::new(Compiler::Fast);
    for index in 0..count {
        let Some(bytes) = smith::module(index, &mut Random::of(seed, index)) else { continue };
        ran += 1;
        for (count, (_, engine)) in using.iter_mut().zip(&without) {
            *count += u64::from(Module::new(engine, &bytes).is_err());
        }
        match check(index, &bytes, &oracle, &mut sums) {
            Ok(answered) => compared += u64::from(answered),
            Err(what) => {
                let path = std::env::temp_dir().join(format!("worksp-random-{seed}-{index}.wasm"));
                std::fs::write(&path, &bytes).expect("the temporary directory can be written");
                panic!("seed {seed}, program {index}, in {}: {what}", path.display());
            }
        }
    }
    let [pauses, saves, switches] = sums;
    println!("{pauses} pauses, {saves} stores saved and restored, {switches} changes of probe");
    assert!(compared == 0 || pauses.min(saves).min(switches) > compared, "runs are suspended");
    println!("{ran} programs, {compared} of them compared");
    without.iter().zip(using).for_each(|((name, _), count)| println!("{count} with {name}"));
    assert!(using.iter().all(|count| count * 40 >= ran) && using[0] * 2 >= ran && using[1] * 4 >= ran, "all features are generated");
    assert!(ran * 2 >= count && compared * 10 >= ran * 9, "most random numbers make a program that both engines run");
}
