//! Random programs on this engine, plain, counting and traced, against Wasmtime: results, traps, globals and memories must agree;
//! and in pieces, which must change nothing.
//!
//! `WORKSP_PROGRAMS=N` runs N programs instead of the default, `WORKSP_SEED=S` starts at seed S; a failure names its seed.

#[path = "common/theirs.rs"]
mod theirs;

use std::cell::RefCell;
use std::panic::{catch_unwind, resume_unwind};

use arbitrary::Unstructured;
use worksp_differential::witness::{Watcher, Witness};
use worksp_engine::probe::{NoProbe, Probe, TracePlan};
use worksp_engine::{
    CallError, Config, Engine, Error, ExportItem, Extern, ExternType, FuncId, HostError, InstanceId, Linker, Module, Step, Store,
    Suspension, TrapKind, Val, ValType,
};

/// What a host function of these programs answers: a value that depends on its arguments only.
fn answer(ty: ValType, args: u64) -> Val {
    match ty {
        ValType::F32 => Val::F32((args as u32 as f32).to_bits()),
        ValType::F64 => Val::F64((args as f64).to_bits()),
        ty if ty.is_ref() => Val::zero(ty),
        _ => argument(ty, args ^ 0x5555),
    }
}

/// The value of this type that stands for 64 bits: vectors have them twice, the second time turned around.
fn argument(ty: ValType, bits: u64) -> Val {
    match ty {
        ty if ty.is_ref() => Val::zero(ty),
        ValType::V128 => Val::V128(u128::from(bits.rotate_left(20)) << 64 | u128::from(bits)),
        _ => Val::from_raw(ty, bits),
    }
}

/// How both engines run a program.
#[derive(Clone, Copy)]
struct Setting {
    /// Engines make NaNs canonical, as recorder and replay have it; otherwise the program does.
    canonicalize_nans: bool,
}

/// Everything that can be seen of a run.
#[derive(PartialEq, Debug)]
struct Outcome {
    /// How instantiation and each call of an exported function ended.
    ends: Vec<End>,
    /// Exported globals, then a hash and the length of every exported memory.
    state: Vec<Seen>,
}

#[derive(PartialEq, Clone, Debug)]
enum End {
    Returned(Vec<Seen>),
    Trapped(TrapKind),
    /// With an exception that carries these values.
    Threw(Vec<Seen>),
}

/// A value that engines can agree on: references are null or not.
#[derive(PartialEq, Clone, Debug)]
enum Seen {
    Number(ValType, u128),
    Null(bool),
    Bytes(usize, u64),
}

fn see(value: Val) -> Seen {
    match value.ty() {
        ty if ty.is_ref() => Seen::Null(value.raw() == 0),
        ty => Seen::Number(ty, value.bits()),
    }
}

/// 64 bits that depend on all bits of a value.
fn folded(bits: u128) -> u64 {
    bits as u64 ^ (bits >> 64) as u64
}

/// FNV-1a over the bytes.
fn see_bytes(bytes: &[u8]) -> Seen {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    Seen::Bytes(bytes.len(), hash)
}

/// Raw arguments for the calls of one exported function.
const ARGS: [u64; 3] = [0, 0x4008_0000_0000_0003, 0xffff_fffe_ffff_fffe];

// --- this engine ---------------------------------------------------------------------------------------------------------

struct Ours {
    outcome: Outcome,
    work: u64,
}

/// Runs a program with a probe and as much fuel as given. `None` when the engine refuses the program for a limit.
fn ours<P: Watcher>(bytes: &[u8], setting: Setting, counting: bool, fuel: Option<u64>) -> Option<Ours> {
    let Setting { canonicalize_nans } = setting;
    let config = Config { fuel: counting, canonicalize_nans, ..Config::default() };
    let mut probe = P::default();
    let call = |linker: &Linker, store: &mut Store, func: FuncId, args: &[Val]| linker.call(store, &mut probe, func, args);
    let ours = ours_by(bytes, config, P::plan, fuel, call);
    assert_eq!(probe.complaints(), Vec::<String>::new(), "events out of order");
    ours
}

/// The same with another way to call functions.
fn ours_by(
    bytes: &[u8],
    config: Config,
    plan: impl Fn(&Module) -> TracePlan,
    fuel: Option<u64>,
    mut call: impl FnMut(&Linker, &mut Store, FuncId, &[Val]) -> Result<Vec<Val>, CallError>,
) -> Option<Ours> {
    let engine = Engine::new(config);
    let module = Module::new(&engine, bytes).unwrap_or_else(|e| panic!("a valid program was refused: {e}"));
    let mut store = Store::new(&engine);
    let mut linker = Linker::new();
    for import in module.imports() {
        let ExternType::Func(ty) = import.ty.clone() else { panic!("only functions are imported") };
        let results = ty.results().to_vec();
        linker.func(&import.module, &import.name, ty, move |_, args| {
            let sum = args.iter().fold(0, |sum: u64, arg| if arg.ty().is_ref() { sum } else { sum.wrapping_add(folded(arg.bits())) });
            Ok(results.iter().map(|ty| answer(*ty, sum)).collect())
        });
    }
    if let Some(fuel) = fuel {
        store.set_fuel(fuel);
    }
    let mut outcome = Outcome { ends: Vec::new(), state: Vec::new() };
    let imports = linker.resolve(&mut store, &module).expect("all imports are defined");
    let instance = match store.instantiate(&module, &imports) {
        Ok(instance) => instance,
        Err(worksp_engine::InstantiateError::Trap(trap)) => {
            outcome.ends.push(End::Trapped(trap.kind()));
            return Some(Ours { outcome, work: store.work() });
        }
        Err(worksp_engine::InstantiateError::Error(_)) => return None,
    };
    store.set_trace_plan(instance, plan(&module));
    let mut call = |store: &mut Store, func, args: &[Val]| match call(&linker, store, func, args) {
        Ok(values) => End::Returned(values.into_iter().map(see).collect()),
        Err(CallError::Trap(trap)) => match trap.exception().map(|id| store.exception(id).expect("the trap keeps it")) {
            Some((_, values)) => End::Threw(values.into_iter().map(see).collect()),
            None => End::Trapped(same(trap.kind())),
        },
        Err(HostError::Error(e)) => panic!("{e}"),
        Err(HostError::Exit(_)) => panic!("nobody exits"),
    };
    if let Some(start) = module.start() {
        let start = store.func(instance, start);
        let end = call(&mut store, start, &[]);
        let trapped = !matches!(end, End::Returned(_));
        outcome.ends.push(end);
        if trapped {
            return Some(Ours { outcome, work: store.work() });
        }
    }
    for export in module.exports() {
        if let ExportItem::Func(index) = export.item {
            let func = store.func(instance, index);
            let params = store.func_type(func).params().to_vec();
            for raw in ARGS {
                let args: Vec<Val> = params.iter().map(|ty| argument(*ty, raw)).collect();
                let end = call(&mut store, func, &args);
                outcome.ends.push(end);
            }
        }
    }
    outcome.state = state(&store, &module, instance);
    Some(Ours { outcome, work: store.work() })
}

/// Runs programs in pieces: whenever a run stops, it may be saved and restored, and it may go on under another probe.
struct Pieces {
    random: u64,
    single_step: bool,
    probe: u64,
    pauses: u64,
    saves: u64,
    switches: u64,
}

/// Is told of everything.
struct Ignore;
impl Probe for Ignore {}

/// Is told of every operator, too.
struct Every;
impl Probe for Every {
    const OPERATORS: bool = true;
}

impl Pieces {
    fn run(&mut self, bytes: &[u8], setting: Setting) -> Option<Ours> {
        let config = Config { fuel: true, single_step: self.single_step, canonicalize_nans: setting.canonicalize_nans, ..Config::default() };
        let engine = Engine::new(config.clone());
        let module = Module::new(&engine, bytes).expect("it was valid before");
        let call = |linker: &Linker, store: &mut Store, func: FuncId, args: &[Val]| self.call(&module, linker, store, func, args);
        ours_by(bytes, config, |_| TracePlan::default(), Some(0), call)
    }

    fn call(&mut self, module: &Module, linker: &Linker, store: &mut Store, func: FuncId, args: &[Val]) -> Result<Vec<Val>, CallError> {
        self.probe = mix(&mut self.random) % 3;
        let mut step = match self.probe {
            0 => store.start(&mut NoProbe, func, args)?,
            1 => store.start(&mut Ignore, func, args)?,
            _ => store.start(&mut Every, func, args)?,
        };
        loop {
            step = match step {
                Step::Returned(values) => return Ok(values),
                Step::Trapped(trap) => return Err(trap.into()),
                Step::Suspended(Suspension::OutOfFuel { missing }) => {
                    self.pauses += 1;
                    self.save(module, store);
                    let fuel = store.fuel().expect("there is a limit");
                    store.set_fuel(fuel + missing + mix(&mut self.random) % 60);
                    self.proceed(store)?
                }
                Step::Suspended(other) => panic!("nobody asked for {other:?}"),
                Step::HostCall(_) => {
                    self.save(module, store);
                    assert_eq!(store.pending().as_ref(), Some(&step));
                    self.switches += 1;
                    self.probe = mix(&mut self.random) % 3;
                    match self.probe {
                        0 => linker.advance(store, &mut NoProbe, step)?,
                        1 => linker.advance(store, &mut Ignore, step)?,
                        _ => linker.advance(store, &mut Every, step)?,
                    }
                }
            };
        }
    }

    /// Goes on under any probe or, where that cannot be, under the one before.
    fn proceed(&mut self, store: &mut Store) -> Result<Step, Error> {
        let mut go = |probe: u64| match probe {
            0 => store.proceed(&mut NoProbe),
            1 => store.proceed(&mut Ignore),
            _ => store.proceed(&mut Every),
        };
        let other = mix(&mut self.random) % 3;
        match go(other) {
            Err(Error::Suspended(_)) => go(self.probe),
            step => {
                self.switches += u64::from(other != self.probe);
                self.probe = other;
                step
            }
        }
    }

    fn save(&mut self, module: &Module, store: &mut Store) {
        if mix(&mut self.random).is_multiple_of(32) {
            *store = store.snapshot().and_then(|snapshot| snapshot.fork()).expect("there is memory");
        }
        if mix(&mut self.random).is_multiple_of(16) {
            self.saves += 1;
            let mut bytes = Vec::new();
            store.save(&mut bytes).expect("a vector can be written");
            *store = Store::restore(store.engine(), std::slice::from_ref(module), &bytes).expect("it was saved just now");
        }
    }
}

fn state(store: &Store, module: &Module, instance: InstanceId) -> Vec<Seen> {
    let items = module.exports().iter().map(|export| store.item(instance, export.item));
    items
        .filter_map(|item| match item {
            Extern::Global(id) => Some(see(store.global(id))),
            // The bytes of shared memories cannot be read from Wasmtime in safe code.
            Extern::Memory(id) if matches!(store.extern_type(item), ExternType::Memory(ty) if ty.shared) => {
                Some(Seen::Bytes(store.memory(id).len(), 0))
            }
            Extern::Memory(id) => Some(see_bytes(store.memory(id))),
            Extern::Table(id) => Some(Seen::Bytes(store.table_size(id) as usize, 0)),
            Extern::Func(_) | Extern::Tag(_) => None,
        })
        .collect()
}

/// Wasmtime does not tell these two apart.
fn same(kind: TrapKind) -> TrapKind {
    if kind == TrapKind::UndefinedElement { TrapKind::TableOutOfBounds } else { kind }
}

// --- Wasmtime ------------------------------------------------------------------------------------------------------------

fn theirs(bytes: &[u8], setting: Setting) -> Outcome {
    let mut config = wasmtime::Config::new();
    config.cranelift_nan_canonicalization(setting.canonicalize_nans).relaxed_simd_deterministic(true);
    config.wasm_wide_arithmetic(true).wasm_custom_page_sizes(true).wasm_memory64(true).wasm_threads(true).shared_memory(true);
    config.wasm_exceptions(true).wasm_tail_call(true).wasm_multi_memory(true).wasm_extended_const(true).cranelift_opt_level(wasmtime::OptLevel::None);
    let engine = wasmtime::Engine::new(&config).expect("a valid configuration");
    let module = wasmtime::Module::new(&engine, bytes).expect("Wasmtime takes what this engine takes");
    let mut store = wasmtime::Store::new(&engine, ());
    let imports: Vec<wasmtime::Extern> = module
        .imports()
        .map(|import| {
            let wasmtime::ExternType::Func(ty) = import.ty() else { panic!("only functions are imported") };
            let types: Vec<ValType> = ty.results().map(|ty| val_type(&ty)).collect();
            let func = wasmtime::Func::new(&mut store, ty, move |_, args, results| {
                let sum = args.iter().fold(0, |sum: u64, arg| sum.wrapping_add(raw(arg).map_or(0, |(_, bits)| folded(bits))));
                for (result, ty) in results.iter_mut().zip(&types) {
                    *result = their_val(answer(*ty, sum));
                }
                Ok(())
            });
            func.into()
        })
        .collect();
    let mut outcome = Outcome { ends: Vec::new(), state: Vec::new() };
    let instance = match wasmtime::Instance::new(&mut store, &module, &imports) {
        Ok(instance) => instance,
        Err(e) => {
            outcome.ends.push(failed(&mut store, &e));
            return outcome;
        }
    };
    // The start function has run within that.
    for export in module.exports() {
        if let wasmtime::ExternType::Func(ty) = export.ty() {
            let func = instance.get_func(&mut store, export.name()).expect("exported");
            for bits in ARGS {
                let args: Vec<wasmtime::Val> = ty.params().map(|ty| their_val(argument(val_type(&ty), bits))).collect();
                let mut results: Vec<wasmtime::Val> = ty.results().map(|ty| their_val(Val::zero(val_type(&ty)))).collect();
                outcome.ends.push(match func.call(&mut store, &args, &mut results) {
                    Ok(()) => End::Returned(results.iter().map(see_theirs).collect()),
                    Err(e) => failed(&mut store, &e),
                });
            }
        }
    }
    for export in module.exports() {
        match instance.get_export(&mut store, export.name()) {
            Some(wasmtime::Extern::Global(global)) => {
                let value = global.get(&mut store);
                outcome.state.push(see_theirs(&value));
            }
            Some(wasmtime::Extern::Memory(memory)) => outcome.state.push(see_bytes(memory.data(&store))),
            Some(wasmtime::Extern::SharedMemory(memory)) => outcome.state.push(Seen::Bytes(memory.data_size(), 0)),
            Some(wasmtime::Extern::Table(table)) => outcome.state.push(Seen::Bytes(table.size(&store) as usize, 0)),
            _ => {}
        }
    }
    outcome
}

fn val_type(ty: &wasmtime::ValType) -> ValType {
    match ty {
        wasmtime::ValType::I32 => ValType::I32,
        wasmtime::ValType::I64 => ValType::I64,
        wasmtime::ValType::F32 => ValType::F32,
        wasmtime::ValType::F64 => ValType::F64,
        wasmtime::ValType::V128 => ValType::V128,
        ty if ty.is_funcref() => ValType::FuncRef,
        ty if ty.is_externref() => ValType::ExternRef,
        ty if ty.matches(&wasmtime::ValType::NULLEXNREF) => ValType::NullExnRef,
        ty if ty.matches(&wasmtime::ValType::EXNREF) => ValType::ExnRef,
        other => panic!("the programs have no {other}"),
    }
}

fn their_val(value: Val) -> wasmtime::Val {
    match value {
        Val::I32(v) => wasmtime::Val::I32(v),
        Val::I64(v) => wasmtime::Val::I64(v),
        Val::F32(bits) => wasmtime::Val::F32(bits),
        Val::F64(bits) => wasmtime::Val::F64(bits),
        Val::V128(bits) => wasmtime::Val::V128(bits.into()),
        Val::FuncRef(_) => wasmtime::Val::FuncRef(None),
        Val::ExternRef(_) => wasmtime::Val::ExternRef(None),
        Val::ExnRef(_) => wasmtime::Val::ExnRef(None),
    }
}

fn raw(value: &wasmtime::Val) -> Option<(ValType, u128)> {
    match value {
        wasmtime::Val::I32(v) => Some((ValType::I32, u128::from(*v as u32))),
        wasmtime::Val::I64(v) => Some((ValType::I64, u128::from(*v as u64))),
        wasmtime::Val::F32(bits) => Some((ValType::F32, u128::from(*bits))),
        wasmtime::Val::F64(bits) => Some((ValType::F64, u128::from(*bits))),
        wasmtime::Val::V128(bits) => Some((ValType::V128, bits.as_u128())),
        _ => None,
    }
}

fn see_theirs(value: &wasmtime::Val) -> Seen {
    match (raw(value), value) {
        (Some((ty, bits)), _) => Seen::Number(ty, bits),
        (None, wasmtime::Val::FuncRef(func)) => Seen::Null(func.is_none()),
        (None, wasmtime::Val::ExternRef(host)) => Seen::Null(host.is_none()),
        (None, wasmtime::Val::ExnRef(exn)) => Seen::Null(exn.is_none()),
        (None, other) => panic!("the programs have no {other:?}"),
    }
}

fn failed(store: &mut wasmtime::Store<()>, error: &wasmtime::Error) -> End {
    if !error.is::<wasmtime::ThrownException>() {
        return End::Trapped(theirs::trap_kind(error));
    }
    let exception = store.take_pending_exception().expect("it was thrown");
    let fields: Vec<wasmtime::Val> = exception.fields(&mut *store).expect("it is kept").collect();
    End::Threw(fields.iter().map(see_theirs).collect())
}

// --- the comparison ------------------------------------------------------------------------------------------------------

/// SplitMix64.
fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Which settings a seed has.
fn setting(seed: u64) -> Setting {
    Setting { canonicalize_nans: seed % 4 < 2 }
}

/// A valid program that ends, or `None` when these random bytes make none.
fn program(seed: u64) -> Option<Vec<u8>> {
    // Some programs are scalar: vectors would dilute everything else.
    let vectors = !seed.is_multiple_of(3);
    let wide = if vectors { r#"(import "env" "d" (func (param i32 v128 i64) (result v128 i32 v128)))"# } else { "" };
    let imports = format!(
        r#"(module (import "env" "a" (func)) (import "env" "b" (func (param i32) (result i32)))
        (import "env" "c" (func (param i64 f64 funcref) (result f32 i64 externref))) {wide})"#
    );
    let config = wasm_smith::Config {
        available_imports: Some(wat::parse_str(imports).expect("valid text")),
        canonicalize_nans: !setting(seed).canonicalize_nans,
        custom_page_sizes_enabled: seed % 5 < 2,
        // Half of the programs avoid traps, which would end most calls early.
        disallow_traps: seed.is_multiple_of(2),
        // Exceptions in half of the programs, whatever else is in them.
        exceptions_enabled: seed % 4 < 2,
        export_everything: true,
        gc_enabled: false,
        max_imports: 4,
        max_instructions: 200,
        max_memories: 2,
        max_memory32_bytes: 8 << 16,
        max_tables: 3,
        max_table_elements: 50,
        max_memory64_bytes: 8 << 16,
        memory64_enabled: seed % 5 > 2,
        memory_max_size_required: true,
        memory_offset_choices: wasm_smith::MemoryOffsetChoices(90, 9, 1),
        min_funcs: 2,
        relaxed_simd_enabled: vectors,
        simd_enabled: vectors,
        table_max_size_required: true,
        tail_call_enabled: true,
        threads_enabled: seed % 7 < 3,
        wide_arithmetic_enabled: seed % 2 == 1,
        ..wasm_smith::Config::default()
    };
    let mut state = seed;
    let length = 500 + mix(&mut state) as usize % 6000;
    let bytes: Vec<u8> = std::iter::repeat_with(|| mix(&mut state).to_le_bytes()).flatten().take(length).collect();
    let mut module = wasm_smith::Module::new(config, &mut Unstructured::new(&bytes)).ok()?;
    module.ensure_termination(1000).expect("all bodies are made by the generator");
    let bytes = module.to_bytes();
    (!may_wait(&bytes)).then_some(bytes)
}

/// Whether a program may wait for others, which would take any time on Wasmtime: these bytes begin `memory.atomic.wait32` and `wait64`.
fn may_wait(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| matches!(pair, [0xfe, 1 | 2]))
}

thread_local! {
    /// Pauses, saves and changes of probe so far.
    static PIECES: RefCell<[u64; 3]> = const { RefCell::new([0; 3]) };
}

/// Returns whether there was something to compare with.
fn compare(seed: u64, bytes: &[u8]) -> bool {
    let setting = setting(seed);
    let Some(plain) = ours::<NoProbe>(bytes, setting, false, None) else { return false };
    let counted = ours::<NoProbe>(bytes, setting, true, None).expect("as in the plain run");
    let traced = ours::<Witness>(bytes, setting, false, None).expect("as in the plain run");
    assert_eq!(plain.outcome, counted.outcome, "seed {seed}: counting changes the outcome");
    assert_eq!(plain.outcome, traced.outcome, "seed {seed}: tracing changes the outcome");
    assert_eq!(counted.work, traced.work, "seed {seed}: work differs");
    let mut expected = theirs(bytes, setting);
    // Wasmtime reports no end for a start function that returns.
    if plain.outcome.ends.len() == expected.ends.len() + 1 && plain.outcome.ends[0] == End::Returned(Vec::new()) {
        expected.ends.insert(0, End::Returned(Vec::new()));
    }
    assert_eq!(plain.outcome, expected, "seed {seed}: Wasmtime (right) disagrees");
    // Wherever the fuel ends, counting and traced code stop at the same operator.
    for part in [3, 7, 11] {
        let fuel = counted.work * part / 13;
        let counted = ours::<NoProbe>(bytes, setting, true, Some(fuel)).expect("as before");
        let traced = ours::<Witness>(bytes, setting, false, Some(fuel)).expect("as before");
        assert_eq!((counted.outcome, counted.work), (traced.outcome, traced.work), "seed {seed}, fuel {fuel}");
    }
    for single_step in [false, true] {
        let mut pieces = Pieces { random: seed, single_step, probe: 0, pauses: 0, saves: 0, switches: 0 };
        let found = pieces.run(bytes, setting).expect("as before");
        assert_eq!((&found.outcome, found.work), (&plain.outcome, counted.work), "seed {seed}, in pieces, single step {single_step}");
        PIECES.with_borrow_mut(|sum| *sum = [sum[0] + pieces.pauses, sum[1] + pieces.saves, sum[2] + pieces.switches]);
    }
    true
}

#[test]
fn random_programs_run_as_on_wasmtime() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |v| v.parse().expect("a number"));
    let (first, count) = (number("WORKSP_SEED", 1), number("WORKSP_PROGRAMS", 400));
    println!("seeds {first}..{}", first + count);
    let scalar = Engine::new(Config { simd: false, ..Config::default() });
    let (mut ran, mut compared, mut vectors, mut throwing) = (0, 0, 0, 0);
    let no_exceptions = Engine::new(Config { exceptions: false, ..Config::default() });
    // Of each of the others, how many programs use it.
    type Switch = fn(&mut Config);
    let without: [(&str, Switch); 4] = [
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
    let mut using = [0; 4];
    for seed in first..first + count {
        if let Some(bytes) = program(seed) {
            ran += 1;
            vectors += u64::from(Module::new(&scalar, &bytes).is_err());
            throwing += u64::from(Module::new(&no_exceptions, &bytes).is_err());
            for (count, (_, engine)) in using.iter_mut().zip(&without) {
                *count += u64::from(Module::new(engine, &bytes).is_err());
            }
            match catch_unwind(|| compare(seed, &bytes)) {
                Ok(answered) => compared += u64::from(answered),
                Err(panic) => {
                    let path = std::env::temp_dir().join(format!("worksp-random-{seed}.wasm"));
                    std::fs::write(&path, &bytes).expect("the temporary directory can be written");
                    println!("seed {seed}: the program is in {}", path.display());
                    resume_unwind(panic);
                }
            }
        }
    }
    let [pauses, saves, switches] = PIECES.take();
    println!("{pauses} pauses, {saves} stores saved and restored, {switches} changes of probe");
    assert!(compared == 0 || pauses.min(saves).min(switches) > compared, "runs are suspended");
    println!("{ran} programs, {compared} of them compared, {vectors} with vectors, {throwing} with exceptions");
    without.iter().zip(using).for_each(|((name, _), count)| println!("{count} with {name}"));
    assert!(using.iter().all(|count| count * 40 >= ran), "all features are generated");
    assert!(ran * 2 >= count && compared * 10 >= ran * 9, "most random bytes make a program that both engines run");
    assert!(vectors * 2 >= ran && throwing * 4 >= ran, "vectors and exceptions are generated");
}
