//! What tracing costs: one export of a module that calls no import, run plainly, profiled and traced.
//!
//! ```text
//! cargo run --release -p worksp-tracer --example trace_cost -- APP.wasm EXPORT [UNIT…] [-- ARGS…]
//! ```

use std::time::Instant;

use worksp_engine::probe::{NoProbe, Probe, TracePlan};
use worksp_engine::{Config, Engine, Extern, ExternType, Module, Step, Store, Val};
use worksp_tracer::edge::{CLASSES, KINDS};
use worksp_tracer::profile::Profile;
use worksp_tracer::units::Units;
use worksp_tracer::{Offload, Trace, TracerOptions};

type Failure = Box<dyn std::error::Error>;

fn run<P: Probe>(module: &Module, export: &str, args: &[Val], plan: TracePlan, probe: &mut P) -> Result<(f64, u64), Failure> {
    let mut store = Store::new(module.engine());
    let imports = module.imports().iter().enumerate().map(|(i, import)| match &import.ty {
        ExternType::Func(ty) => Ok(Extern::Func(store.host_func(ty.clone(), i as u32))),
        other => Err(format!("{}.{} is no function but {other:?}", import.module, import.name)),
    });
    let imports: Vec<Extern> = imports.collect::<Result<_, _>>()?;
    let instance = store.instantiate(module, &imports).map_err(|e| format!("{e:?}"))?;
    store.set_trace_plan(instance, plan);
    let Some(Extern::Func(func)) = store.export(instance, export) else { return Err(format!("no export {export}").into()) };
    let start = Instant::now();
    match store.start(probe, func, args)? {
        Step::Returned(_) => Ok((start.elapsed().as_secs_f64(), store.work())),
        other => Err(format!("it did not return: {other:?}").into()),
    }
}

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let (Some(path), Some(export)) = (words.next(), words.next()) else {
        return Err("give a module and an export".into());
    };
    let units: Vec<String> = words.by_ref().take_while(|w| w != "--").collect();
    let args: Vec<Val> = words.map(|w| w.parse().map(Val::I32)).collect::<Result<_, _>>()?;
    let module = Module::from_file_contents(&Engine::new(Config::default()), &std::fs::read(path)?)?;

    let (plain, _) = run(&module, &export, &args, TracePlan::default(), &mut NoProbe)?;
    let mut profile = Profile::new(&module);
    let (profiled, work) = run(&module, &export, &args, Profile::plan(), &mut profile)?;
    let units = if units.is_empty() {
        profile.choose(&module).0
    } else {
        let specs = units.iter().map(|u| u.parse()).collect::<Result<Vec<_>, _>>()?;
        Units::resolve(&module, &specs)?
    };
    println!("units: {}", units.specs().join(" "));
    let plan = units.plan();
    let mut tracer = Offload::new(units, TracerOptions::of_module(&module), Trace::default());
    let (traced, _) = run(&module, &export, &args, plan, &mut tracer)?;
    let (trace, info) = tracer.finish()?;
    let (nodes, edges) = (trace.nodes().len(), trace.edges_count());
    println!("{work} operators, {} segments, {nodes} nodes, {edges} edges", info.segments);
    for kind in KINDS {
        for class in CLASSES {
            let mut count = 0;
            trace.for_each(|_, edges| count += edges.iter().filter(|e| e.kind == kind && e.class == class).count())?;
            if count > 0 {
                println!("  {:10} {:10} {count}", kind.name(), class.name());
            }
        }
    }
    for (what, seconds) in [("plain", plain), ("profiled", profiled), ("traced", traced)] {
        println!("{what:9} {seconds:8.3} s  {:6.2} ns/op  {:5.2}x", seconds * 1e9 / work as f64, seconds / plain);
    }
    Ok(())
}
