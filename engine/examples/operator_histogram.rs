//! How often each operator was executed:
//! `cargo run --release -p worksp-engine --example operator_histogram -- MODULE EXPORT [I32…]`.
//!
//! Prints one line for each operator, the most frequent first: how often, its share, its name; then the total, which is the run's
//! work unless there are bulk operators. The module must import nothing.

use std::collections::BTreeMap;

use worksp_engine::probe::{Probe, SiteId};
use worksp_engine::{Config, Engine, Linker, Module, Store, Val};

/// Counts executions by site.
#[derive(Default)]
struct Histogram(Vec<u64>);

impl Probe for Histogram {
    const ACCESSES: bool = false;
    const OPERATORS: bool = true;

    fn operator(&mut self, site: SiteId) {
        let at = site.0 as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, 0);
        }
        self.0[at] += 1;
    }
}

/// Calls an export and gives the table.
pub fn report(module: &[u8], export: &str, args: &[Val]) -> Result<String, Box<dyn std::error::Error>> {
    let engine = Engine::new(Config::default());
    let module = Module::from_file_contents(&engine, module)?;
    let (mut store, mut probe, linker) = (Store::new(&engine), Histogram::default(), Linker::new());
    let instance = linker.instantiate(&mut store, &mut probe, &module)?;
    let func = store.exported_func(instance, export)?;
    linker.call(&mut store, &mut probe, func, args)?;

    let executed = store.sites().iter().map(|(id, site)| (site.offset as usize, probe.0.get(id.0 as usize).copied().unwrap_or(0)));
    let executed: BTreeMap<usize, u64> = executed.collect();
    let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
    for (offset, name) in (0..module.func_count()).flat_map(|func| module.operators(func)) {
        if let Some(count) = executed.get(&offset) {
            *by_name.entry(name).or_default() += count;
        }
    }
    let mut rows: Vec<(String, u64)> = by_name.into_iter().filter(|row| row.1 > 0).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.1));
    let total: u64 = rows.iter().map(|row| row.1).sum();
    let line = |(name, count): &(String, u64)| format!("{count:>14} {:>6.2} %  {name}\n", 100.0 * *count as f64 / total as f64);
    Ok(rows.iter().map(line).chain([format!("{total:>14}  operators\n")]).collect())
}

#[allow(dead_code, reason = "the test takes `report` only")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, export, args @ ..] = words.as_slice() else { return Err("usage: operator_histogram MODULE EXPORT [I32…]".into()) };
    let args = args.iter().map(|arg| arg.parse().map(Val::I32)).collect::<Result<Vec<_>, _>>()?;
    print!("{}", report(&std::fs::read(path)?, export, &args)?);
    Ok(())
}
