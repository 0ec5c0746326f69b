//! One run of a kernel on another engine: `worksp-peers ENGINE MODULE` prints one report (see `cargo xtask bench kernels`).
//!
//! A kernel exports `run(n) -> u32` and imports nothing; `sizes.txt` beside it says what `n` is. Compilation is not timed.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<serde_json::Value, Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [engine, path] = words.as_slice() else { return Err("usage: worksp-peers cranelift|winch|pulley|stitch MODULE".into()) };
    let path = Path::new(path);
    let (module, n) = (std::fs::read(path)?, size(path)?);
    let (result, seconds) = match engine.as_str() {
        "stitch" => stitch(&module, n)?,
        name => wasmtime(name, &module, n)?,
    };
    Ok(serde_json::json!({ "schema": "worksp.subject.v1", "seconds": [seconds], "digest": format!("{:08x}", result as u32), "work": null }))
}

/// The kernel's argument: its line in `sizes.txt`.
fn size(module: &Path) -> Result<i32, Failure> {
    let sizes = std::fs::read_to_string(module.with_file_name("sizes.txt"))?;
    let name = module.file_stem().and_then(|name| name.to_str()).ok_or("the module has no name")?;
    let line = sizes.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.ok_or_else(|| format!("sizes.txt has no line for {name}"))?.parse()?)
}

fn wasmtime(name: &str, module: &[u8], n: i32) -> Result<(i32, f64), Failure> {
    let mut config = wasmtime::Config::new();
    match name {
        "cranelift" => config.strategy(wasmtime::Strategy::Cranelift),
        "winch" => config.strategy(wasmtime::Strategy::Winch),
        "pulley" => config.target("pulley64")?,
        other => return Err(format!("no engine is called {other:?}").into()),
    };
    let engine = wasmtime::Engine::new(&config)?;
    let module = wasmtime::Module::new(&engine, module)?;
    let mut store = wasmtime::Store::new(&engine, ());
    let instance = wasmtime::Instance::new(&mut store, &module, &[])?;
    let run = instance.get_typed_func::<i32, i32>(&mut store, "run")?;
    let began = Instant::now();
    let result = run.call(&mut store, n)?;
    Ok((result, began.elapsed().as_secs_f64()))
}

fn stitch(module: &[u8], n: i32) -> Result<(i32, f64), Failure> {
    use makepad_stitch::{Engine, Linker, Module, Store, Val};
    let text = |error: &dyn std::fmt::Debug| format!("stitch: {error:?}");
    let engine = Engine::new();
    let mut store = Store::new(engine);
    let module = Module::new(store.engine(), module).map_err(|error| text(&error))?;
    let instance = Linker::new().instantiate(&mut store, &module).map_err(|error| text(&error))?;
    let run = instance.exported_func("run").ok_or("no export `run`")?;
    let mut results = [Val::I32(0)];
    let began = Instant::now();
    run.call(&mut store, &[Val::I32(n)], &mut results).map_err(|error| text(&error))?;
    let seconds = began.elapsed().as_secs_f64();
    let [Val::I32(result)] = results else { return Err("stitch: the result is no i32".into()) };
    Ok((result, seconds))
}
