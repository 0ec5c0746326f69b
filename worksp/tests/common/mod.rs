//! Runs small modules under the tracer with a host made for tests.

#![allow(dead_code, reason = "each test file uses its part")]

use worksp_engine::probe::TracePlan;
use worksp_engine::{Config, Engine, Extern, ExternType, Module, Step, Store, Val};
use worksp_tracer::recording::module_sha256;
use worksp_tracer::replay::HostObserver;
use worksp_tracer::units::{UnitSpec, Units};
use worksp_tracer::{Granule, Trace, Tracer, TracerOptions};

/// What to trace and how.
pub struct Run<'a> {
    pub text: &'a str,
    pub calls: &'a [(&'a str, &'a [i32])],
    pub units: &'a [&'a str],
    pub granule: Granule,
}

/// Traces calls of exports. `fd_write` is the output call that reads one iovec, its bytes, and reports at its fourth argument; any
/// other import returns zeros.
pub fn trace(run: &Run<'_>) -> Trace {
    trace_with(run, |_| {})
}

/// The same with another plan.
pub fn trace_with(run: &Run<'_>, change: impl FnOnce(&mut TracePlan)) -> Trace {
    let engine = Engine::new(Config::default());
    let module = Module::from_text(&engine, run.text).expect("the module is valid");
    let mut store = Store::new(&engine);
    let imports: Vec<Extern> = module
        .imports()
        .iter()
        .enumerate()
        .map(|(i, import)| match &import.ty {
            ExternType::Func(ty) => Extern::Func(store.host_func(ty.clone(), i as u32)),
            other => panic!("tests import functions only, not {other:?}"),
        })
        .collect();
    let instance = store.instantiate(&module, &imports).expect("it can be instantiated");
    let specs: Vec<UnitSpec> = run.units.iter().map(|u| u.parse().expect("a unit")).collect();
    let units = Units::resolve(&module, &specs).expect("the units exist");
    let mut plan = units.plan();
    change(&mut plan);
    store.set_trace_plan(instance, plan);
    let mut options = TracerOptions::of_module(&module);
    options.granule = run.granule;
    options.outputs = module.imports().iter().map(|i| i.name == "fd_write").collect();
    let mut tracer = Tracer::new(units, options, Trace::default());
    for (name, args) in run.calls {
        let Some(Extern::Func(func)) = store.export(instance, name) else { panic!("no export {name}") };
        let args: Vec<Val> = args.iter().map(|a| Val::I32(*a)).collect();
        let mut step = store.start(&mut tracer, func, &args).expect("the arguments fit");
        while let Step::HostCall(call) = &step {
            let import = &module.imports()[call.import as usize];
            let ExternType::Func(ty) = &import.ty else { unreachable!("only functions are called") };
            if import.name == "fd_write" {
                let arg = |i: usize| call.args[i].raw();
                let iovec = arg(1);
                let memory = store.memory(store.memory_id(instance, 0));
                let word = |at: u64| u64::from(u32::from_le_bytes(memory[at as usize..][..4].try_into().unwrap()));
                let (bytes, len) = (word(iovec), word(iovec + 4));
                tracer.host_read(0, iovec..iovec + 8);
                tracer.host_read(0, bytes..bytes + len);
                tracer.host_write(0, arg(3)..arg(3) + 4);
            }
            let results: Vec<Val> = ty.results().iter().map(|ty| Val::zero(*ty)).collect();
            step = store.resume(&mut tracer, &results).expect("the results fit");
        }
    }
    let work = store.work();
    let (mut trace, info) = tracer.finish();
    assert_eq!(info.work, work, "the tracer saw all work");
    let made: Vec<_> = store.sites().iter().map(|(_, site)| site).collect();
    assert_eq!(info.sites, made, "the tracer saw all sites");
    trace.info = info;
    trace.info.describe(&module, "test", module_sha256(module.bytes()));
    trace
}
