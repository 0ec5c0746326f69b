//! Who called whom, how often, and how much work was done there:
//! `cargo run --release -p worksp-engine --example call_graph -- MODULE EXPORT [I32…]`.
//!
//! Prints a graph in Graphviz's language (`| dot -Tsvg`): functions with the work that they did themselves, edges with the number
//! of calls. The module must import nothing.

use std::collections::BTreeMap;
use std::fmt::Write;

use worksp_engine::probe::{Probe, SiteId};
use worksp_engine::{Config, Engine, Linker, Module, Store, Val};

/// Counts calls and work.
#[derive(Default)]
struct CallGraph {
    calls: BTreeMap<(u32, u32), u64>,
    work: BTreeMap<u32, u64>,
    active: Vec<u32>,
    since: u64,
}

impl CallGraph {
    /// What was done up to here is the running function's.
    fn settle(&mut self, work: u64) {
        if let Some(running) = self.active.last() {
            *self.work.entry(*running).or_default() += work - self.since;
        }
        self.since = work;
    }
}

impl Probe for CallGraph {
    const ACCESSES: bool = false;

    fn enter(&mut self, func: u32, _: &[u64], work: u64) {
        self.settle(work);
        self.active.push(func);
    }

    fn call(&mut self, _: SiteId, func: u32, _: &[u64], work: u64) {
        self.settle(work);
        if let Some(caller) = self.active.last() {
            *self.calls.entry((*caller, func)).or_default() += 1;
        }
        self.active.push(func);
    }

    fn tail_call(&mut self, site: SiteId, func: u32, args: &[u64], work: u64) {
        self.call(site, func, args, work);
        let callee = self.active.pop();
        self.active.pop();
        self.active.extend(callee);
    }

    fn ret(&mut self, _: &[u64], work: u64) {
        self.settle(work);
        self.active.pop();
    }

    fn unwind(&mut self, _: SiteId, work: u64) {
        self.ret(&[], work);
    }
}

/// Calls an export and gives the graph.
pub fn report(module: &[u8], export: &str, args: &[Val]) -> Result<String, Box<dyn std::error::Error>> {
    let engine = Engine::new(Config::default());
    let module = Module::from_file_contents(&engine, module)?;
    let (mut store, mut probe, linker) = (Store::new(&engine), CallGraph::default(), Linker::new());
    let instance = linker.instantiate(&mut store, &mut probe, &module)?;
    let func = store.exported_func(instance, export)?;
    linker.call(&mut store, &mut probe, func, args)?;

    let mut graph = String::from("digraph calls {\n");
    for (func, work) in &probe.work {
        writeln!(graph, "  {func} [label=\"{}\\n{work}\"];", module.func_name(*func))?;
    }
    for ((caller, callee), count) in &probe.calls {
        writeln!(graph, "  {caller} -> {callee} [label=\"{count}\"];")?;
    }
    Ok(graph + "}\n")
}

#[allow(dead_code, reason = "the test takes `report` only")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, export, args @ ..] = words.as_slice() else { return Err("usage: call_graph MODULE EXPORT [I32…]".into()) };
    let args = args.iter().map(|arg| arg.parse().map(Val::I32)).collect::<Result<Vec<_>, _>>()?;
    print!("{}", report(&std::fs::read(path)?, export, &args)?);
    Ok(())
}
