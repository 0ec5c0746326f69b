//! Random programs on this engine, plain, counting and traced, against Wasmi: results, traps, globals and memories must agree.
//!
//! `WORKSP_PROGRAMS=N` runs N programs instead of the default, `WORKSP_SEED=S` starts at seed S; a failure names its seed.

use arbitrary::Unstructured;
use worksp_engine::probe::{NoProbe, Probe, TracePlan};
use worksp_engine::{
    CallError, Config, Engine, ExportItem, Extern, ExternType, HostError, InstanceId, Linker, Module, Store, TrapKind, Val,
    ValType,
};

/// Asks for every event and ignores it.
#[derive(Default)]
struct Ignore;
impl Probe for Ignore {}

/// What a host function of these programs answers: a value that depends on its arguments only.
fn answer(ty: ValType, args: u64) -> Val {
    match ty {
        ValType::F32 => Val::F32((args as u32 as f32).to_bits()),
        ValType::F64 => Val::F64((args as f64).to_bits()),
        ValType::FuncRef | ValType::ExternRef => Val::zero(ty),
        _ => Val::from_raw(ty, args ^ 0x5555),
    }
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
}

/// A value that engines can agree on: references are null or not.
#[derive(PartialEq, Clone, Debug)]
enum Seen {
    Number(ValType, u64),
    Null(bool),
    Bytes(usize, u64),
}

fn see(value: Val) -> Seen {
    match value.ty() {
        ty if ty.is_ref() => Seen::Null(value.raw() == 0),
        ty => Seen::Number(ty, value.raw()),
    }
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
fn ours<P: Probe + Default>(bytes: &[u8], counting: bool, fuel: Option<u64>) -> Option<Ours> {
    let engine = Engine::new(Config { fuel: counting, ..Config::default() });
    let module = Module::new(&engine, bytes).unwrap_or_else(|e| panic!("a valid program was refused: {e}"));
    let mut store = Store::new(&engine);
    let mut linker = Linker::new();
    for import in module.imports() {
        let ExternType::Func(ty) = import.ty.clone() else { panic!("only functions are imported") };
        let results = ty.results().to_vec();
        linker.func(&import.module, &import.name, ty, move |_, args| {
            let sum = args.iter().fold(0, |sum: u64, arg| if arg.ty().is_ref() { sum } else { sum.wrapping_add(arg.raw()) });
            Ok(results.iter().map(|ty| answer(*ty, sum)).collect())
        });
    }
    if let Some(fuel) = fuel {
        store.set_fuel(fuel);
    }
    let mut probe = P::default();
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
    store.set_trace_plan(instance, TracePlan { every_loop: true, ..TracePlan::default() });
    let mut call = |store: &mut Store, func, args: &[Val]| match linker.call(store, &mut probe, func, args) {
        Ok(values) => End::Returned(values.into_iter().map(see).collect()),
        Err(CallError::Trap(trap)) => End::Trapped(same(trap.kind())),
        Err(HostError::Error(e)) => panic!("{e}"),
        Err(HostError::Exit(_)) => panic!("nobody exits"),
    };
    if let Some(start) = module.start() {
        let start = store.func(instance, start);
        let end = call(&mut store, start, &[]);
        let trapped = matches!(end, End::Trapped(_));
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
                let args: Vec<Val> =
                    params.iter().map(|ty| if ty.is_ref() { Val::zero(*ty) } else { Val::from_raw(*ty, raw) }).collect();
                let end = call(&mut store, func, &args);
                outcome.ends.push(end);
            }
        }
    }
    outcome.state = state(&store, &module, instance);
    Some(Ours { outcome, work: store.work() })
}

fn state(store: &Store, module: &Module, instance: InstanceId) -> Vec<Seen> {
    let items = module.exports().iter().map(|export| store.item(instance, export.item));
    items
        .filter_map(|item| match item {
            Extern::Global(id) => Some(see(store.global(id))),
            Extern::Memory(id) => Some(see_bytes(store.memory(id))),
            Extern::Table(id) => Some(Seen::Bytes(store.table_size(id) as usize, 0)),
            Extern::Func(_) => None,
        })
        .collect()
}

/// Wasmi does not tell these two apart.
fn same(kind: TrapKind) -> TrapKind {
    if kind == TrapKind::UndefinedElement { TrapKind::TableOutOfBounds } else { kind }
}

// --- Wasmi ---------------------------------------------------------------------------------------------------------------

/// Exports are taken in the order given: Wasmi sorts them.
fn theirs(bytes: &[u8], exports: &[String]) -> Outcome {
    let mut config = wasmi::Config::default();
    config.set_max_recursion_depth(100_000).set_max_stack_height(1 << 26);
    let engine = wasmi::Engine::new(&config);
    let module = wasmi::Module::new(&engine, bytes).expect("Wasmi takes what this engine takes");
    let mut store = wasmi::Store::new(&engine, ());
    let mut linker = wasmi::Linker::new(&engine);
    for import in module.imports() {
        let wasmi::ExternType::Func(ty) = import.ty() else { panic!("only functions are imported") };
        let defined = linker.func_new(import.module(), import.name(), ty.clone(), |_, args, results| {
            let sum = args.iter().fold(0, |sum: u64, arg| sum.wrapping_add(raw(arg).unwrap_or(0)));
            for result in results {
                *result = wasmi_val(answer(val_type(result.ty()), sum));
            }
            Ok(())
        });
        // An import may occur more than once.
        let _ = defined;
    }
    let mut outcome = Outcome { ends: Vec::new(), state: Vec::new() };
    let instance = match linker.instantiate_and_start(&mut store, &module) {
        Ok(instance) => instance,
        Err(e) => {
            outcome.ends.push(End::Trapped(trap_kind(&e)));
            return outcome;
        }
    };
    // The start function's return is an end of its own here; Wasmi runs it within instantiation.
    for name in exports {
        if let Some(func) = instance.get_func(&store, name) {
            let ty = func.ty(&store);
            for raw in ARGS {
                let args: Vec<wasmi::Val> = ty.params().iter().map(|ty| wasmi_val(argument(val_type(*ty), raw))).collect();
                let mut results: Vec<wasmi::Val> = ty.results().iter().map(|ty| wasmi::Val::default(*ty)).collect();
                outcome.ends.push(match func.call(&mut store, &args, &mut results) {
                    Ok(()) => End::Returned(results.iter().map(see_wasmi).collect()),
                    Err(e) => End::Trapped(trap_kind(&e)),
                });
            }
        }
    }
    for name in exports {
        match instance.get_export(&store, name) {
            Some(wasmi::Extern::Global(global)) => outcome.state.push(see_wasmi(&global.get(&store))),
            Some(wasmi::Extern::Memory(memory)) => outcome.state.push(see_bytes(memory.data(&store))),
            Some(wasmi::Extern::Table(table)) => outcome.state.push(Seen::Bytes(table.size(&store) as usize, 0)),
            _ => {}
        }
    }
    outcome
}

fn argument(ty: ValType, raw: u64) -> Val {
    if ty.is_ref() { Val::zero(ty) } else { Val::from_raw(ty, raw) }
}

fn val_type(ty: wasmi::ValType) -> ValType {
    match ty {
        wasmi::ValType::I32 => ValType::I32,
        wasmi::ValType::I64 => ValType::I64,
        wasmi::ValType::F32 => ValType::F32,
        wasmi::ValType::F64 => ValType::F64,
        wasmi::ValType::FuncRef => ValType::FuncRef,
        wasmi::ValType::ExternRef => ValType::ExternRef,
        wasmi::ValType::V128 => panic!("the programs have no vectors"),
    }
}

fn wasmi_val(value: Val) -> wasmi::Val {
    match value {
        Val::I32(v) => wasmi::Val::I32(v),
        Val::I64(v) => wasmi::Val::I64(v),
        Val::F32(bits) => wasmi::Val::F32(wasmi::F32::from_bits(bits)),
        Val::F64(bits) => wasmi::Val::F64(wasmi::F64::from_bits(bits)),
        Val::FuncRef(_) => wasmi::Val::default(wasmi::ValType::FuncRef),
        Val::ExternRef(_) => wasmi::Val::default(wasmi::ValType::ExternRef),
    }
}

fn raw(value: &wasmi::Val) -> Option<u64> {
    match value {
        wasmi::Val::I32(v) => Some(u64::from(*v as u32)),
        wasmi::Val::I64(v) => Some(*v as u64),
        wasmi::Val::F32(v) => Some(u64::from(v.to_bits())),
        wasmi::Val::F64(v) => Some(v.to_bits()),
        _ => None,
    }
}

fn see_wasmi(value: &wasmi::Val) -> Seen {
    match (raw(value), value) {
        (Some(raw), value) => Seen::Number(val_type(value.ty()), raw),
        (None, wasmi::Val::FuncRef(func)) => Seen::Null(func.is_null()),
        (None, wasmi::Val::ExternRef(host)) => Seen::Null(host.is_null()),
        (None, other) => panic!("the programs have no {other:?}"),
    }
}

fn trap_kind(error: &wasmi::Error) -> TrapKind {
    use wasmi::TrapCode;
    match error.as_trap_code() {
        Some(TrapCode::UnreachableCodeReached) => TrapKind::Unreachable,
        Some(TrapCode::MemoryOutOfBounds) => TrapKind::MemoryOutOfBounds,
        Some(TrapCode::TableOutOfBounds) => TrapKind::TableOutOfBounds,
        Some(TrapCode::IndirectCallToNull) => TrapKind::IndirectCallToNull,
        Some(TrapCode::IntegerDivisionByZero) => TrapKind::IntegerDivisionByZero,
        Some(TrapCode::IntegerOverflow) => TrapKind::IntegerOverflow,
        Some(TrapCode::BadConversionToInteger) => TrapKind::BadConversionToInteger,
        Some(TrapCode::StackOverflow) => TrapKind::StackOverflow,
        Some(TrapCode::BadSignature) => TrapKind::BadSignature,
        _ => match error.kind() {
            wasmi::errors::ErrorKind::Instantiation(_) | wasmi::errors::ErrorKind::Table(_) => TrapKind::TableOutOfBounds,
            wasmi::errors::ErrorKind::Memory(_) => TrapKind::MemoryOutOfBounds,
            other => panic!("Wasmi failed otherwise: {other:?}"),
        },
    }
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

/// A valid program that ends, or `None` when these random bytes make none.
fn program(seed: u64) -> Option<Vec<u8>> {
    let imports = r#"(module (import "env" "a" (func)) (import "env" "b" (func (param i32) (result i32)))
        (import "env" "c" (func (param i64 f64 funcref) (result f32 i64 externref))))"#;
    let config = wasm_smith::Config {
        available_imports: Some(wat::parse_str(imports).expect("valid text")),
        canonicalize_nans: true,
        custom_page_sizes_enabled: false,
        exceptions_enabled: false,
        export_everything: true,
        gc_enabled: false,
        max_imports: 3,
        max_instructions: 200,
        max_memories: 2,
        max_memory32_bytes: 8 << 16,
        max_tables: 3,
        max_table_elements: 50,
        memory64_enabled: false,
        memory_max_size_required: true,
        memory_offset_choices: wasm_smith::MemoryOffsetChoices(90, 9, 1),
        min_funcs: 2,
        relaxed_simd_enabled: false,
        simd_enabled: false,
        table_max_size_required: true,
        tail_call_enabled: true,
        threads_enabled: false,
        wide_arithmetic_enabled: false,
        ..wasm_smith::Config::default()
    };
    let mut state = seed;
    let length = 500 + mix(&mut state) as usize % 6000;
    let bytes: Vec<u8> = std::iter::repeat_with(|| mix(&mut state).to_le_bytes()).flatten().take(length).collect();
    let mut module = wasm_smith::Module::new(config, &mut Unstructured::new(&bytes)).ok()?;
    module.ensure_termination(500).expect("all bodies are made by the generator");
    Some(module.to_bytes())
}

fn compare(seed: u64, bytes: &[u8]) {
    let Some(plain) = ours::<NoProbe>(bytes, false, None) else { return };
    let counted = ours::<NoProbe>(bytes, true, None).expect("as in the plain run");
    let traced = ours::<Ignore>(bytes, false, None).expect("as in the plain run");
    assert_eq!(plain.outcome, counted.outcome, "seed {seed}: counting changes the outcome");
    assert_eq!(plain.outcome, traced.outcome, "seed {seed}: tracing changes the outcome");
    assert_eq!(counted.work, traced.work, "seed {seed}: work differs");
    let module = Module::new(&Engine::default(), bytes).expect("it ran just now");
    let exports: Vec<String> = module.exports().iter().map(|export| export.name.clone()).collect();
    let mut expected = theirs(bytes, &exports);
    // Wasmi reports no end for a start function that returns.
    if plain.outcome.ends.len() == expected.ends.len() + 1 && plain.outcome.ends[0] == End::Returned(Vec::new()) {
        expected.ends.insert(0, End::Returned(Vec::new()));
    }
    assert_eq!(plain.outcome, expected, "seed {seed}: Wasmi (right) disagrees");
    // Wherever the fuel ends, counting and traced code stop at the same operator.
    for part in [3, 7, 11] {
        let fuel = counted.work * part / 13;
        let counted = ours::<NoProbe>(bytes, true, Some(fuel)).expect("as before");
        let traced = ours::<Ignore>(bytes, false, Some(fuel)).expect("as before");
        assert_eq!((counted.outcome, counted.work), (traced.outcome, traced.work), "seed {seed}, fuel {fuel}");
    }
}

#[test]
fn random_programs_run_as_on_wasmi() {
    let setting = |name: &str, default| std::env::var(name).map_or(default, |v| v.parse().expect("a number"));
    let (first, count) = (setting("WORKSP_SEED", 1), setting("WORKSP_PROGRAMS", 400));
    println!("seeds {first}..{}", first + count);
    let mut ran = 0;
    for seed in first..first + count {
        if let Some(bytes) = program(seed) {
            let compared = std::panic::catch_unwind(|| compare(seed, &bytes));
            if let Err(panic) = compared {
                let path = std::env::temp_dir().join(format!("worksp-random-{seed}.wasm"));
                std::fs::write(&path, &bytes).expect("the temporary directory can be written");
                println!("seed {seed}: the program is in {}", path.display());
                std::panic::resume_unwind(panic);
            }
            ran += 1;
        }
    }
    println!("{ran} programs");
    assert!(ran * 2 >= count, "most random bytes make a program");
}
