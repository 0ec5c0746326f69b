//! Calls an export that takes and returns an i32, and says how long it took:
//! `cargo run --release --example run_export -- MODULE EXPORT N [plain|fuel|traced]`.

use std::time::Instant;

use worksp_engine::probe::{NoProbe, Probe};
use worksp_engine::{Config, Engine, Extern, Module, Step, Store, Val};

struct Traced;
impl Probe for Traced {}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, export, n, rest @ ..] = args.as_slice() else { return Err("usage: run_export MODULE EXPORT N [plain|fuel|traced]".into()) };
    let mode = rest.first().map_or("plain", String::as_str);
    let engine = Engine::new(Config { fuel: mode == "fuel", ..Config::default() });
    let module = Module::from_file_contents(&engine, &std::fs::read(path)?)?;
    let mut store = Store::new(&engine);
    let instance = store.instantiate(&module, &[])?;
    let Some(Extern::Func(func)) = store.export(instance, export) else { return Err(format!("no function {export}").into()) };
    let args = [Val::I32(n.parse()?)];
    let started = Instant::now();
    let step = if mode == "traced" { store.start(&mut Traced, func, &args)? } else { store.start(&mut NoProbe, func, &args)? };
    let elapsed = started.elapsed();
    match step {
        Step::Returned(results) => println!("{results:?} {:.1} ms, {} operators", elapsed.as_secs_f64() * 1e3, store.work()),
        Step::Trapped(trap) => println!("{trap}"),
        Step::Suspended(why) => println!("suspended: {why:?}"),
        Step::HostCall(call) => println!("calls host function {}", call.import),
    }
    Ok(())
}
