//! This engine as a [`Runner`], in every mode.

use std::sync::{Arc, Mutex};

use worksp_engine::probe::NoProbe;
use worksp_engine::{
    CallError, Config, Engine, FuncId, FuncType, HostError, InstanceId, Limits, Linker, MemoryId, Module, Store, TrapKind, Val, ValType,
};

use super::pieces::Pieces;
use super::{End, HOST_CALLS_MAX, HostCall, Runner, host_answer};
use crate::program::{DRIVER, Host, Input, Needs, RESET, RESULTS_MAX, TABLES, globals};
use crate::witness::{Watcher, Witness};

/// A way in which this engine runs programs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// As fast as it goes; nothing observes and nothing counts.
    Plain,
    /// Counting work.
    Counting,
    /// Under a probe that checks every event.
    Traced,
    /// Stopped again and again, at any block; saved, restored, forked, and continued under other probes.
    Pieces,
    /// The same, where every operator is a block.
    Stepped,
    /// All functions translated before the first call.
    Eager,
}

impl Mode {
    /// All of them. The first counts, so that a program that never ends is found out.
    pub const ALL: [Mode; 6] = [Mode::Counting, Mode::Plain, Mode::Traced, Mode::Pieces, Mode::Stepped, Mode::Eager];

    /// How the engine is set up.
    pub fn config(self, canonicalize_nans: bool) -> Config {
        let limits = Limits { stack_bytes_max: 16 << 20, call_depth_max: 20_000, ..Limits::default() };
        Config {
            canonicalize_nans,
            limits,
            fuel: matches!(self, Mode::Counting | Mode::Pieces | Mode::Stepped),
            single_step: self == Mode::Stepped,
            eager_threads: usize::from(self == Mode::Eager),
            ..Config::default()
        }
    }

    /// An engine in this mode.
    pub fn runner(self, canonicalize_nans: bool) -> Box<dyn Runner> {
        let config = self.config(canonicalize_nans);
        match self {
            Mode::Plain | Mode::Counting | Mode::Eager => Box::new(Ours::<NoProbe>::new(config)),
            Mode::Traced => Box::new(Ours::<Witness>::new(config)),
            Mode::Pieces | Mode::Stepped => Box::new(Ours::<NoProbe>::in_pieces(config)),
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// Work of one call, at most, where it is counted. What generators make ends long before.
const WORK_MAX: u64 = 20_000_000;

struct Ours<P> {
    engine: Engine,
    pieces: Option<Pieces>,
    probe: P,
    linker: Linker,
    calls: Arc<Mutex<Vec<HostCall>>>,
    loaded: Option<Loaded>,
}

struct Loaded {
    module: Module,
    needs: Needs,
    store: Store,
    instance: InstanceId,
    driver: FuncId,
    reset: FuncId,
    /// The module's first function of the program that was reset last.
    base: u32,
}

impl<P: Watcher> Ours<P> {
    fn new(config: Config) -> Ours<P> {
        let mut linker = Linker::new();
        let calls = define_hosts(&mut linker);
        Ours { engine: Engine::new(config), pieces: None, probe: P::default(), linker, calls, loaded: None }
    }

    fn in_pieces(config: Config) -> Ours<P> {
        Ours { pieces: Some(Pieces::new(1)), ..Ours::new(config) }
    }

    fn loaded(&mut self) -> &mut Loaded {
        self.loaded.as_mut().expect("a module was loaded")
    }

    fn instantiate(&mut self, module: Module, needs: Needs) -> Result<(), String> {
        self.probe = P::default();
        let mut store = Store::new(&self.engine);
        if self.engine.config().fuel {
            store.set_fuel(WORK_MAX);
        }
        let instance = self.linker.instantiate(&mut store, &mut self.probe, &module).map_err(|e| e.to_string())?;
        store.set_trace_plan(instance, P::plan(&module));
        let func = |name| store.exported_func(instance, name).map_err(|e| e.to_string());
        let (driver, reset) = (func(DRIVER)?, func(RESET)?);
        self.loaded = Some(Loaded { module, needs, store, instance, driver, reset, base: 0 });
        Ok(())
    }

    fn run(&mut self, func: impl Fn(&Loaded) -> FuncId, args: &[Val]) -> Result<Vec<Val>, CallError> {
        self.calls.lock().expect("no host function panics").clear();
        let loaded = self.loaded.as_mut().expect("a module was loaded");
        let func = func(loaded);
        match &mut self.pieces {
            Some(pieces) => {
                pieces.work_max = loaded.store.work() + WORK_MAX;
                pieces.call(&loaded.module, &self.linker, &mut loaded.store, func, args)
            }
            None => {
                if self.engine.config().fuel {
                    loaded.store.set_fuel(WORK_MAX);
                }
                self.linker.call(&mut loaded.store, &mut self.probe, func, args)
            }
        }
    }

    fn end(&mut self, end: Result<Vec<Val>, CallError>) -> End {
        let complaints = self.probe.complaints();
        if !complaints.is_empty() {
            return End::Failed(format!("events that cannot be: {}", complaints.join("; ")));
        }
        match end {
            Ok(values) => {
                let mut bits = [0; RESULTS_MAX];
                bits.iter_mut().zip(values).for_each(|(bits, value)| *bits = value.bits());
                End::Returned(bits)
            }
            Err(CallError::Trap(trap)) => match trap.exception().and_then(|id| self.loaded().store.exception(id)) {
                Some((_, values)) => End::Threw(values.into_iter().map(Val::bits).collect()),
                None => End::Trapped(same(trap.kind())),
            },
            Err(other) => End::Failed(other.to_string()),
        }
    }

    fn memory_id(&mut self, index: u32) -> MemoryId {
        let Loaded { store, instance, .. } = self.loaded();
        store.memory_id(*instance, index)
    }
}

impl<P: Watcher> Runner for Ours<P> {
    fn load(&mut self, module: &[u8], needs: Needs) -> Result<(), String> {
        self.loaded = None;
        let module = Module::new(&self.engine, module).map_err(|e| e.to_string())?;
        self.instantiate(module, needs)
    }

    fn renew(&mut self) -> Result<(), String> {
        let Loaded { module, needs, .. } = self.loaded.take().expect("a module was loaded");
        self.instantiate(module, needs)
    }

    fn reset(&mut self, program: u32) -> End {
        let end = self.run(|loaded| loaded.reset, &[Val::I32(program as i32)]);
        let end = self.end(end);
        if self.loaded().needs.tables {
            let Loaded { store, instance, base, .. } = self.loaded();
            let table = store.table_id(*instance, 0);
            *base = store.table_get(table, 0).and_then(|value| origin(store, value)).unwrap_or(0);
        }
        end
    }

    fn call(&mut self, program: u32, input: &Input) -> End {
        let mut args = [Val::I32(program as i32); 5];
        args[1..].iter_mut().zip(input).for_each(|(arg, bits)| *arg = Val::V128(*bits));
        let end = self.run(|loaded| loaded.driver, &args);
        self.end(end)
    }

    fn memory(&mut self, index: u32) -> &[u8] {
        let id = self.memory_id(index);
        self.loaded().store.memory(id)
    }

    fn globals(&mut self, into: &mut Vec<u128>) {
        let Loaded { store, instance, .. } = self.loaded();
        into.extend((0..globals().count() as u32).map(|index| store.global(store.global_id(*instance, index)).bits()));
    }

    fn tables(&mut self, into: &mut Vec<u64>) {
        let Loaded { store, instance, base, .. } = self.loaded();
        for table in 0..TABLES {
            let id = store.table_id(*instance, table);
            let size = store.table_size(id);
            into.extend((0..size).map(|index| {
                let func = store.table_get(id, index).and_then(|value| origin(store, value));
                func.map_or(0, |func| u64::from(func.wrapping_sub(*base)) + 1)
            }));
            into.push(size);
        }
    }

    fn host_calls(&mut self) -> Vec<HostCall> {
        std::mem::take(&mut self.calls.lock().expect("no host function panics"))
    }

    fn work(&self) -> Option<u64> {
        let counts = self.engine.config().fuel || P::TRACED;
        self.loaded.as_ref().filter(|_| counts).map(|loaded| loaded.store.work())
    }
}

/// Defines the functions of the host that programs import; gives the calls of them.
pub fn define_hosts(linker: &mut Linker) -> Arc<Mutex<Vec<HostCall>>> {
    let calls: Arc<Mutex<Vec<HostCall>>> = Arc::default();
    for host in Host::ALL {
        let calls = calls.clone();
        let (params, results) = host.signature();
        let result_types: Vec<ValType> = results.iter().map(|ty| ours(*ty)).collect();
        let ty = FuncType::new(params.iter().map(|ty| ours(*ty)), result_types.clone());
        linker.func("env", host.name(), ty, move |caller, args| {
            let mut bits = [0; 3];
            bits.iter_mut().zip(args).for_each(|(bits, arg)| *bits = arg.bits());
            let mut calls = calls.lock().expect("no host function panics");
            if calls.len() < HOST_CALLS_MAX {
                calls.push(HostCall { host, args: bits });
            }
            let answer = match host {
                Host::Poke | Host::Peek => {
                    let memory = caller.exported_memory("memory")?;
                    host_answer(host, bits, caller.store().memory_mut(memory))
                }
                _ => host_answer(host, bits, &mut []),
            };
            let answer = answer.map_err(|trap| HostError::Trap(worksp_engine::Trap::host(trap.to_string())))?;
            Ok(answer.into_iter().zip(&result_types).map(|(bits, ty)| Val::from_bits(*ty, bits)).collect())
        });
    }
    calls
}

/// The number of the function that a reference refers to in its module.
fn origin(store: &Store, value: Val) -> Option<u32> {
    match value {
        Val::FuncRef(Some(func)) => store.func_origin(func).map(|(_, index)| index),
        _ => None,
    }
}

/// Wasmtime does not tell these two apart.
pub fn same(kind: TrapKind) -> TrapKind {
    if kind == TrapKind::UndefinedElement { TrapKind::TableOutOfBounds } else { kind }
}

/// A type in this engine's words.
pub(super) fn ours(ty: wasm_encoder::ValType) -> ValType {
    match ty {
        wasm_encoder::ValType::I32 => ValType::I32,
        wasm_encoder::ValType::I64 => ValType::I64,
        wasm_encoder::ValType::F32 => ValType::F32,
        wasm_encoder::ValType::F64 => ValType::F64,
        wasm_encoder::ValType::V128 => ValType::V128,
        wasm_encoder::ValType::Ref(_) => ValType::FuncRef,
    }
}

