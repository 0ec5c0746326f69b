//! Kernels: one export, no imports, the same work on every engine; and what the engine itself does around runs.
//!
//! A kernel exports `run(n) -> u32`; `sizes.txt` beside it says what `n` is. Compilation and set-up are not timed.

use std::path::Path;
use std::time::Instant;

use worksp_engine::probe::{NoProbe, Probe, Rmw, SiteId};
use worksp_engine::{Config, Engine, FuncId, Module, Step, Store, Suspension, Val};

use super::{Report, host_funcs, text};

/// How a kernel runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Way {
    /// Nothing is counted or observed.
    Plain,
    /// The engine counts work, without a limit.
    Fuel,
    /// A probe counts work by function.
    Counting,
    /// A probe appends every access to a buffer that nobody reads.
    Appending,
    /// wasmi.
    Wasmi,
}

/// Counts work where activations begin and end.
#[derive(Default)]
struct Counting {
    work: u64,
    calls: u64,
}

impl Probe for Counting {
    const ACCESSES: bool = false;

    #[inline(always)]
    fn call(&mut self, _: SiteId, _: u32, _: &[u64], work: u64) {
        self.calls += 1;
        self.work = work;
    }

    #[inline(always)]
    fn ret(&mut self, _: &[u64], work: u64) {
        self.work = work;
    }
}

/// Appends accesses; the buffer begins again when it is full.
struct Appending {
    buffer: Box<[(u64, u32, u32)]>,
    next: usize,
}

impl Appending {
    fn new() -> Appending {
        Appending { buffer: vec![(0, 0, 0); 1 << 14].into(), next: 0 }
    }

    #[inline(always)]
    fn append(&mut self, site: SiteId, addr: u64, len: u32) {
        let at = self.next & (self.buffer.len() - 1);
        self.buffer[at] = (addr, len, site.0);
        self.next = at + 1;
    }
}

impl Probe for Appending {
    #[inline(always)]
    fn load(&mut self, site: SiteId, _: u32, addr: u64, len: u32, _: Rmw) {
        self.append(site, addr, len);
    }

    #[inline(always)]
    fn store(&mut self, site: SiteId, _: u32, addr: u64, len: u32, _: Rmw) {
        self.append(site, addr, len | 1 << 31);
    }
}

/// The kernel's argument: its line in `sizes.txt`.
fn size(module: &Path) -> Result<i32, String> {
    let sizes = std::fs::read_to_string(module.with_file_name("sizes.txt")).map_err(text)?;
    let name = module.file_stem().and_then(|name| name.to_str()).ok_or("the module has no name")?;
    let line = sizes.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.ok_or_else(|| format!("sizes.txt has no line for {name}"))?.parse().map_err(text)
}

fn report(result: Val, seconds: f64, work: Option<u64>) -> Result<Report, String> {
    let Val::I32(result) = result else { return Err(format!("the kernel gave {result}")) };
    Ok(Report { seconds, digest: format!("{result:08x}"), work })
}

/// Runs a kernel.
pub fn run(path: &Path, way: Way) -> Result<Report, String> {
    let (bytes, n) = (std::fs::read(path).map_err(text)?, size(path)?);
    match way {
        Way::Plain => ours(&bytes, n, false, &mut NoProbe),
        Way::Fuel => ours(&bytes, n, true, &mut NoProbe),
        Way::Counting => ours(&bytes, n, false, &mut Counting::default()),
        Way::Appending => ours(&bytes, n, false, &mut Appending::new()),
        Way::Wasmi => wasmi(&bytes, n),
    }
}

fn prepare(bytes: &[u8], config: Config) -> Result<(Store, FuncId), String> {
    let engine = Engine::new(config);
    let module = Module::new(&engine, bytes).map_err(text)?;
    let mut store = Store::new(&engine);
    let instance = store.instantiate(&module, &[]).map_err(text)?;
    let run = store.exported_func(instance, "run").map_err(text)?;
    Ok((store, run))
}

fn ours<P: Probe>(bytes: &[u8], n: i32, fuel: bool, probe: &mut P) -> Result<Report, String> {
    let (mut store, run) = prepare(bytes, Config { fuel, ..Config::default() })?;
    let began = Instant::now();
    let step = store.start(probe, run, &[Val::I32(n)]).map_err(text)?;
    let seconds = began.elapsed().as_secs_f64();
    let Step::Returned(results) = step else { return Err(format!("the kernel did not return: {step:?}")) };
    report(results[0], seconds, (fuel || P::TRACED).then(|| store.work()))
}

fn wasmi(bytes: &[u8], n: i32) -> Result<Report, String> {
    let engine = ::wasmi::Engine::default();
    let module = ::wasmi::Module::new(&engine, bytes).map_err(text)?;
    let mut store = ::wasmi::Store::new(&engine, ());
    let instance = ::wasmi::Linker::new(&engine).instantiate_and_start(&mut store, &module).map_err(text)?;
    let run = instance.get_typed_func::<i32, i32>(&store, "run").map_err(text)?;
    let began = Instant::now();
    let result = run.call(&mut store, n).map_err(text)?;
    report(Val::I32(result), began.elapsed().as_secs_f64(), None)
}

/// Loads a module and translates all of it on so many threads, if any.
pub fn translate(path: &Path, threads: Option<usize>) -> Result<Report, String> {
    let bytes = std::fs::read(path).map_err(text)?;
    let engine = Engine::new(Config::default());
    let began = Instant::now();
    let module = Module::new(&engine, &bytes).map_err(text)?;
    if let Some(threads) = threads {
        let mut store = Store::new(&engine);
        let imports = host_funcs(&mut store, &module)?;
        let instance = store.instantiate(&module, &imports).map_err(text)?;
        store.translate(&mut NoProbe, instance, threads).map_err(text)?;
    }
    Ok(Report { seconds: began.elapsed().as_secs_f64(), digest: bytes.len().to_string(), work: None })
}

/// A loop that stops `pauses` times, at each block out of fuel or at each host call: the time in all.
pub fn suspend(pauses: u32, host: bool) -> Result<Report, String> {
    const LOOP: &str = r#"(module (import "e" "h" (func $h)) (func (export "run") (param i32) (result i32)
        (loop (br_if 0 (local.tee 0 (i32.sub (local.get 0) (i32.const 1))))) (i32.const 7))
        (func (export "calls") (param i32) (result i32)
        (loop (call $h) (br_if 0 (local.tee 0 (i32.sub (local.get 0) (i32.const 1))))) (i32.const 7)))"#;
    let engine = Engine::new(Config { fuel: !host, ..Config::default() });
    let mut store = Store::new(&engine);
    let h = store.host_func(worksp_engine::FuncType::new([], []), 0);
    let module = Module::from_text(&engine, LOOP).map_err(text)?;
    let instance = store.instantiate(&module, &[worksp_engine::Extern::Func(h)]).map_err(text)?;
    let run = store.exported_func(instance, if host { "calls" } else { "run" }).map_err(text)?;
    let began = Instant::now();
    store.set_fuel(5);
    let mut step = store.start(&mut NoProbe, run, &[Val::I32(pauses as i32)]).map_err(text)?;
    let mut count = 0_u32;
    let result = loop {
        step = match step {
            Step::Suspended(Suspension::OutOfFuel { .. }) => {
                store.set_fuel(5);
                store.proceed(&mut NoProbe).map_err(text)?
            }
            Step::HostCall(_) => store.resume(&mut NoProbe, &[]).map_err(text)?,
            Step::Returned(results) => break results[0],
            other => return Err(format!("{other:?}")),
        };
        count += 1;
    };
    if count.abs_diff(pauses) > 1 {
        return Err(format!("it stopped {count} times, not {pauses}"));
    }
    report(result, began.elapsed().as_secs_f64(), None)
}
