//! Wasmtime as a [`Runner`].

use std::time::Duration;

use rustc_hash::FxHashMap;
use wasmtime::{AsContextMut, Caller, Engine, Extern, Func, FuncType, Global, Instance, Memory, Module, OptLevel, RegallocAlgorithm, Store, Strategy, Table, Val, ValType};
use worksp_engine::TrapKind;

use super::ours::{ours, same};
use super::{End, HOST_CALLS_MAX, HostCall, HostTrap, Runner, host_answer};
use crate::program::{DRIVER, Host, Input, Needs, RESET, RESULTS_MAX, TABLES, globals};

/// One of Wasmtime's compilers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compiler {
    /// The one that compiles fastest; it lacks tail calls, exceptions and some others.
    Winch,
    /// Cranelift without optimisation, with its fastest register allocator.
    Fast,
    /// Cranelift at full optimisation: what confirms a difference.
    Full,
}

impl std::fmt::Display for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Compiler::Winch => "Winch",
            Compiler::Fast => "Cranelift, single pass",
            Compiler::Full => "Cranelift, full optimisation",
        })
    }
}

impl Compiler {
    /// A configuration with it, and with all features that this engine has too.
    pub fn config(self, canonicalize_nans: bool) -> wasmtime::Config {
        let mut config = wasmtime::Config::new();
        config.cranelift_nan_canonicalization(canonicalize_nans);
        match self {
            Compiler::Winch => {
                config.strategy(Strategy::Winch);
            }
            Compiler::Fast => {
                config.cranelift_opt_level(OptLevel::None).cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass);
            }
            Compiler::Full => {
                config.cranelift_opt_level(OptLevel::Speed);
            }
        }
        config.parallel_compilation(false).wasm_backtrace_max_frames(None).wasm_multi_memory(true).wasm_extended_const(true).wasm_wide_arithmetic(true);
        config.wasm_threads(self != Compiler::Winch).wasm_memory64(true).wasm_custom_page_sizes(true);
        if self != Compiler::Winch {
            config.wasm_exceptions(true).wasm_tail_call(true).wasm_relaxed_simd(true).relaxed_simd_deterministic(true).shared_memory(true);
            config.wasm_function_references(true);
        } else {
            config.wasm_relaxed_simd(false).wasm_tail_call(false);
        }
        config
    }
}

/// Wasmtime with one of its compilers.
pub struct Oracle {
    engine: Engine,
    /// Runs end after about so many ticks of a clock, if at all.
    ticks_max: Option<u64>,
    loaded: Option<Loaded>,
}

struct Loaded {
    module: Module,
    needs: Needs,
    store: Store<Shared>,
    driver: Func,
    reset: Func,
    memories: Vec<Memory>,
    globals: Vec<Global>,
    tables: Vec<Table>,
    /// Functions of the program that was reset last, by where Wasmtime has them.
    funcs: FxHashMap<usize, u64>,
}

/// Ticks after which a call of a patient engine is given up.
pub(super) const TICKS_MAX: u64 = 10;

/// An engine whose calls can be given up; a clock of its own ticks as long as it is there.
pub(super) fn patient_engine(compiler: Compiler, canonicalize_nans: bool) -> Engine {
    let mut config = compiler.config(canonicalize_nans);
    config.epoch_interruption(true);
    let engine = Engine::new(&config).expect("a valid configuration");
    let clock = engine.weak();
    std::thread::spawn(move || {
        while let Some(engine) = clock.upgrade() {
            engine.increment_epoch();
            drop(engine);
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    engine
}

/// What host functions share.
#[derive(Default)]
struct Shared {
    calls: Vec<HostCall>,
    memory: Option<Memory>,
}

impl Oracle {
    /// With this compiler.
    pub fn new(compiler: Compiler, canonicalize_nans: bool) -> Oracle {
        let engine = Engine::new(&compiler.config(canonicalize_nans)).expect("a valid configuration");
        Oracle { engine, ticks_max: None, loaded: None }
    }

    /// One that gives up a call after about a second: for programs that may not end.
    pub fn patient(compiler: Compiler) -> Oracle {
        let engine = patient_engine(compiler, true);
        Oracle { engine, ticks_max: Some(TICKS_MAX), loaded: None }
    }

    fn loaded(&mut self) -> &mut Loaded {
        self.loaded.as_mut().expect("a module was loaded")
    }

    fn instantiate(&mut self, module: Module, needs: Needs) -> wasmtime::Result<()> {
        let mut store = Store::new(&self.engine, Shared::default());
        store.set_epoch_deadline(self.ticks_max.unwrap_or(1));
        let imports: Vec<Extern> = Host::ALL.into_iter().map(|host| host_func(&mut store, host).into()).collect();
        let instance = Instance::new(&mut store, &module, &imports)?;
        let export = |store: &mut Store<Shared>, name: &str| instance.get_export(store, name);
        let func = |store: &mut Store<Shared>, name: &str| instance.get_func(store, name).ok_or_else(|| wasmtime::Error::msg("no driver"));
        let (driver, reset) = (func(&mut store, DRIVER)?, func(&mut store, RESET)?);
        let memories: Vec<Memory> = ["memory", "memory1"].iter().filter_map(|name| instance.get_memory(&mut store, name)).collect();
        store.data_mut().memory = memories.first().copied();
        let globals = (0..globals().count()).filter_map(|index| export(&mut store, &format!("global{index}"))?.into_global()).collect();
        let tables = (0..TABLES).filter_map(|index| export(&mut store, &format!("table{index}"))?.into_table()).collect();
        self.loaded = Some(Loaded { module, needs, store, driver, reset, memories, globals, tables, funcs: FxHashMap::default() });
        Ok(())
    }

    fn run(&mut self, func: impl Fn(&Loaded) -> Func, args: &[Val], results: &mut [Val]) -> Option<End> {
        let ticks_max = self.ticks_max;
        let loaded = self.loaded();
        loaded.store.data_mut().calls.clear();
        if let Some(ticks) = ticks_max {
            loaded.store.set_epoch_deadline(ticks);
        }
        func(loaded).call(&mut loaded.store, args, results).err().map(|error| failed(&mut loaded.store, &error))
    }
}

impl Runner for Oracle {
    fn load(&mut self, module: &[u8], needs: Needs) -> Result<(), String> {
        self.loaded = None;
        Module::new(&self.engine, module).and_then(|module| self.instantiate(module, needs)).map_err(|e| format!("{e:?}"))
    }

    fn renew(&mut self) -> Result<(), String> {
        let Loaded { module, needs, .. } = self.loaded.take().expect("a module was loaded");
        self.instantiate(module, needs).map_err(|e| format!("{e:?}"))
    }

    fn reset(&mut self, program: u32) -> End {
        let end = self.run(|loaded| loaded.reset, &[Val::I32(program as i32)], &mut []);
        let Loaded { needs, store, tables, funcs, .. } = self.loaded();
        if needs.tables {
            funcs.clear();
            for index in 0..tables[0].size(&store) {
                if let Some(place) = place(store, tables[0], index) {
                    funcs.entry(place).or_insert(index + 1);
                }
            }
        }
        end.unwrap_or(End::Returned([0; RESULTS_MAX]))
    }

    fn call(&mut self, program: u32, input: &Input) -> End {
        let mut args = [const { Val::I32(0) }; 5];
        args[0] = Val::I32(program as i32);
        args[1..].iter_mut().zip(input).for_each(|(arg, bits)| *arg = Val::V128((*bits).into()));
        let mut results = [const { Val::I32(0) }; RESULTS_MAX];
        let end = self.run(|loaded| loaded.driver, &args, &mut results);
        end.unwrap_or_else(|| End::Returned(results.each_ref().map(bits)))
    }

    fn memory(&mut self, index: u32) -> &[u8] {
        let Loaded { store, memories, .. } = self.loaded();
        memories[index as usize].data(store)
    }

    fn globals(&mut self, into: &mut Vec<u128>) {
        let Loaded { store, globals, .. } = self.loaded();
        into.extend(globals.iter().map(|global| bits(&global.get(&mut *store))));
    }

    fn tables(&mut self, into: &mut Vec<u64>) {
        let Loaded { store, tables, funcs, .. } = self.loaded();
        for table in tables {
            let size = table.size(&*store);
            into.extend((0..size).map(|index| place(store, *table, index).map_or(0, |place| funcs.get(&place).copied().unwrap_or(u64::MAX))));
            into.push(size);
        }
    }

    fn host_calls(&mut self) -> Vec<HostCall> {
        std::mem::take(&mut self.loaded().store.data_mut().calls)
    }
}

/// Where the function of a table's element is.
fn place(store: &mut Store<Shared>, table: Table, index: u64) -> Option<usize> {
    let func = *table.get(&mut *store, index)?.as_func()??;
    Some(func.to_raw(&mut *store) as usize)
}

fn host_func(store: &mut Store<Shared>, host: Host) -> Func {
    let (params, results) = host.signature();
    let types: Vec<worksp_engine::ValType> = results.iter().map(|ty| ours(*ty)).collect();
    let ty = FuncType::new(store.engine(), params.iter().map(|ty| theirs(*ty)), results.iter().map(|ty| theirs(*ty)));
    Func::new(store, ty, move |mut caller: Caller<Shared>, args, results| {
        let mut arg_bits = [0; 3];
        arg_bits.iter_mut().zip(args).for_each(|(to, arg)| *to = bits(arg));
        let memory = caller.data().memory.expect("there is a memory");
        let (memory, shared) = memory.data_and_store_mut(caller.as_context_mut());
        if shared.calls.len() < HOST_CALLS_MAX {
            shared.calls.push(HostCall { host, args: arg_bits });
        }
        let answer = host_answer(host, arg_bits, memory).map_err(wasmtime::Error::new)?;
        for ((result, ty), bits) in results.iter_mut().zip(&types).zip(answer) {
            *result = val(worksp_engine::Val::from_bits(*ty, bits));
        }
        Ok(())
    })
}

fn theirs(ty: wasm_encoder::ValType) -> ValType {
    match ty {
        wasm_encoder::ValType::I32 => ValType::I32,
        wasm_encoder::ValType::I64 => ValType::I64,
        wasm_encoder::ValType::F32 => ValType::F32,
        wasm_encoder::ValType::F64 => ValType::F64,
        wasm_encoder::ValType::V128 => ValType::V128,
        wasm_encoder::ValType::Ref(_) => ValType::FUNCREF,
    }
}

/// A value in Wasmtime's words; references are null.
pub fn val(value: worksp_engine::Val) -> Val {
    match value {
        worksp_engine::Val::I32(v) => Val::I32(v),
        worksp_engine::Val::I64(v) => Val::I64(v),
        worksp_engine::Val::F32(bits) => Val::F32(bits),
        worksp_engine::Val::F64(bits) => Val::F64(bits),
        worksp_engine::Val::V128(bits) => Val::V128(bits.into()),
        worksp_engine::Val::FuncRef(_) => Val::FuncRef(None),
        worksp_engine::Val::ExternRef(_) => Val::ExternRef(None),
        worksp_engine::Val::ExnRef(_) => Val::ExnRef(None),
    }
}

/// The bits of a number or a vector; references have none.
pub fn bits(value: &Val) -> u128 {
    match value {
        Val::I32(v) => u128::from(*v as u32),
        Val::I64(v) => u128::from(*v as u64),
        Val::F32(bits) => u128::from(*bits),
        Val::F64(bits) => u128::from(*bits),
        Val::V128(bits) => bits.as_u128(),
        _ => 0,
    }
}

fn failed(store: &mut Store<Shared>, error: &wasmtime::Error) -> End {
    if error.is::<wasmtime::ThrownException>() {
        let exception = store.take_pending_exception().expect("it was thrown");
        return match exception.fields(&mut *store) {
            Ok(fields) => End::Threw(fields.map(|field| bits(&field)).collect()),
            Err(error) => End::Failed(error.to_string()),
        };
    }
    if error.is::<HostTrap>() {
        return End::Trapped(TrapKind::Host);
    }
    match trap_kind(error) {
        Some(kind) => End::Trapped(same(kind)),
        None => End::Failed(format!("{error:?}")),
    }
}

/// The kind of a trap, in this engine's words.
pub fn trap_kind(error: &wasmtime::Error) -> Option<TrapKind> {
    use wasmtime::Trap;
    Some(match error.downcast_ref::<Trap>()? {
        Trap::UnreachableCodeReached => TrapKind::Unreachable,
        Trap::MemoryOutOfBounds => TrapKind::MemoryOutOfBounds,
        Trap::TableOutOfBounds => TrapKind::TableOutOfBounds,
        Trap::IndirectCallToNull => TrapKind::IndirectCallToNull,
        Trap::IntegerDivisionByZero => TrapKind::IntegerDivisionByZero,
        Trap::IntegerOverflow => TrapKind::IntegerOverflow,
        Trap::BadConversionToInteger => TrapKind::BadConversionToInteger,
        Trap::StackOverflow => TrapKind::StackOverflow,
        Trap::BadSignature => TrapKind::BadSignature,
        Trap::NullReference => TrapKind::NullException,
        Trap::HeapMisaligned => TrapKind::UnalignedAtomic,
        Trap::AtomicWaitNonSharedMemory => TrapKind::WaitOnUnshared,
        _ => return None,
    })
}
