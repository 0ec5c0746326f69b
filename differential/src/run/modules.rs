//! Whole modules, as `smith` and `corpus` make them: each exported function is called with a few arguments, in every mode and on Wasmtime.

use worksp_engine::probe::NoProbe;
use worksp_engine::{
    CallError, Config, Engine, ExportItem, Extern, ExternType, FuncId, HostError, InstanceId, InstantiateError, Linker, Module, Store,
    Trap, TrapKind, Val, ValType,
};

use super::oracle::{self, Compiler};
use super::ours::{Mode, same};
use super::pieces::Pieces;
use crate::compare::{Difference, Divergence, Outcome, What};
use crate::witness::{Watcher, Witness};

/// Everything that can be seen of a run.
#[derive(PartialEq, Clone, Debug, Default)]
pub struct Seen {
    /// How instantiation, the start function and each call of an exported function ended.
    pub ends: Vec<ModuleEnd>,
    /// Exported globals, then length and hash of every exported memory, and lengths of tables.
    pub state: Vec<Value>,
}

/// How a call ended.
#[derive(PartialEq, Clone, Debug)]
pub enum ModuleEnd {
    /// With these values.
    Returned(Vec<Value>),
    /// With a trap.
    Trapped(TrapKind),
    /// With an exception that carries these values.
    Threw(Vec<Value>),
    /// With something that no engine may do.
    Failed(String),
}

/// A value that engines can agree on: references are null or not.
#[derive(PartialEq, Clone, Debug)]
pub enum Value {
    /// Bits of a number or vector.
    Number(ValType, u128),
    /// Whether a reference is null.
    Null(bool),
    /// Length and hash of bytes.
    Bytes(usize, u64),
}

/// How this engine ran a module.
#[derive(Clone, Debug)]
pub struct Ours {
    /// What can be seen.
    pub seen: Seen,
    /// Work, where it is counted.
    pub work: u64,
}

/// Why a module says nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// It needs more than the engine is allowed.
    Limit(String),
    /// It imports something that nobody provides.
    Import(String),
    /// The engine does not take it.
    Refused(String),
}

/// Raw arguments for the calls of one exported function.
const ARGS: [u64; 3] = [0, 0x4008_0000_0000_0003, 0xffff_fffe_ffff_fffe];
/// Work after which a module is taken for one that never ends.
const WORK_MAX: u64 = 2_000_000;

/// What a host function answers: a value that depends on its arguments only.
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

fn see(value: Val) -> Value {
    match value.ty() {
        ty if ty.is_ref() => Value::Null(value.raw() == 0),
        ty => Value::Number(ty, value.bits()),
    }
}

/// 64 bits that depend on all bits of a value.
fn folded(bits: u128) -> u64 {
    bits as u64 ^ (bits >> 64) as u64
}

fn see_bytes(bytes: &[u8]) -> Value {
    Value::Bytes(bytes.len(), xxhash_rust::xxh3::xxh3_64(bytes))
}

// --- this engine ---------------------------------------------------------------------------------------------------------

/// Runs a module in a mode, with as much fuel as given.
///
/// # Errors
///
/// When the module cannot be run at all.
pub fn ours(bytes: &[u8], mode: Mode, canonicalize_nans: bool, fuel: Option<u64>) -> Result<Ours, Unusable> {
    let config = mode.config(canonicalize_nans);
    match mode {
        Mode::Plain | Mode::Eager => by::<NoProbe>(bytes, config, fuel),
        Mode::Counting => by::<NoProbe>(bytes, config, Some(fuel.unwrap_or(WORK_MAX))),
        Mode::Traced => by::<Witness>(bytes, config, fuel),
        Mode::Pieces | Mode::Stepped => in_pieces(bytes, config, &mut Pieces::new(bytes.len() as u64)),
    }
}

/// Runs a module under a probe.
fn by<P: Watcher>(bytes: &[u8], config: Config, fuel: Option<u64>) -> Result<Ours, Unusable> {
    let mut probe = P::default();
    let mut ours = run(bytes, config, P::plan, fuel, |_, linker, store, func, args| linker.call(store, &mut probe, func, args))?;
    let complaints = probe.complaints();
    if !complaints.is_empty() {
        ours.seen.ends.push(ModuleEnd::Failed(format!("events that cannot be: {}", complaints.join("; "))));
    }
    Ok(ours)
}

/// Runs a module in pieces.
///
/// # Errors
///
/// When the module cannot be run at all.
pub fn in_pieces(bytes: &[u8], config: Config, pieces: &mut Pieces) -> Result<Ours, Unusable> {
    pieces.work_max = 2 * WORK_MAX;
    run(bytes, config, NoProbe::plan, Some(0), |module, linker, store, func, args| pieces.call(module, linker, store, func, args))
}

fn run(
    bytes: &[u8],
    config: Config,
    plan: impl Fn(&Module) -> worksp_engine::probe::TracePlan,
    fuel: Option<u64>,
    mut call: impl FnMut(&Module, &Linker, &mut Store, FuncId, &[Val]) -> Result<Vec<Val>, CallError>,
) -> Result<Ours, Unusable> {
    let engine = Engine::new(config);
    let module = Module::new(&engine, bytes).map_err(|e| Unusable::Refused(e.to_string()))?;
    let mut store = Store::new(&engine);
    let mut linker = Linker::new();
    for import in module.imports() {
        let ExternType::Func(ty) = import.ty.clone() else { return Err(Unusable::Import(format!("{}.{}", import.module, import.name))) };
        let results = ty.results().to_vec();
        linker.func(&import.module, &import.name, ty, move |_, args| {
            let sum = args.iter().fold(0, |sum: u64, arg| if arg.ty().is_ref() { sum } else { sum.wrapping_add(folded(arg.bits())) });
            Ok(results.iter().map(|ty| answer(*ty, sum)).collect())
        });
    }
    if let Some(fuel) = fuel {
        store.set_fuel(fuel);
    }
    let mut seen = Seen::default();
    let imports = linker.resolve(&mut store, &module).map_err(|e| Unusable::Import(e.to_string()))?;
    let instance = match store.instantiate(&module, &imports) {
        Ok(instance) => instance,
        Err(InstantiateError::Trap(trap)) => {
            seen.ends.push(ModuleEnd::Trapped(trap.kind()));
            return Ok(Ours { seen, work: store.work() });
        }
        Err(InstantiateError::Error(error)) => return Err(Unusable::Limit(error.to_string())),
    };
    store.set_trace_plan(instance, plan(&module));
    let mut call = |store: &mut Store, func, args: &[Val]| match call(&module, &linker, store, func, args) {
        Ok(values) => ModuleEnd::Returned(values.into_iter().map(see).collect()),
        Err(CallError::Trap(trap)) => trapped(store, &trap),
        Err(HostError::Error(e)) => ModuleEnd::Failed(e.to_string()),
        Err(HostError::Exit(status)) => ModuleEnd::Failed(format!("exit {status}")),
    };
    if let Some(start) = module.start() {
        let start = store.func(instance, start);
        let end = call(&mut store, start, &[]);
        let returned = matches!(end, ModuleEnd::Returned(_));
        seen.ends.push(end);
        if !returned {
            return Ok(Ours { seen, work: store.work() });
        }
    }
    for export in module.exports() {
        if let ExportItem::Func(index) = export.item {
            let func = store.func(instance, index);
            let params = store.func_type(func).params().to_vec();
            for raw in ARGS {
                let args: Vec<Val> = params.iter().map(|ty| argument(*ty, raw)).collect();
                let end = call(&mut store, func, &args);
                seen.ends.push(end);
            }
        }
    }
    seen.state = state(&store, &module, instance);
    Ok(Ours { seen, work: store.work() })
}

fn trapped(store: &Store, trap: &Trap) -> ModuleEnd {
    match trap.exception().and_then(|id| store.exception(id)) {
        Some((_, values)) => ModuleEnd::Threw(values.into_iter().map(see).collect()),
        None => ModuleEnd::Trapped(same(trap.kind())),
    }
}

fn state(store: &Store, module: &Module, instance: InstanceId) -> Vec<Value> {
    let items = module.exports().iter().map(|export| store.item(instance, export.item));
    items
        .filter_map(|item| match item {
            Extern::Global(id) => Some(see(store.global(id))),
            // The bytes of shared memories cannot be read from Wasmtime in safe code.
            Extern::Memory(id) if matches!(store.extern_type(item), ExternType::Memory(ty) if ty.shared) => {
                Some(Value::Bytes(store.memory(id).len(), 0))
            }
            Extern::Memory(id) => Some(see_bytes(store.memory(id))),
            Extern::Table(id) => Some(Value::Bytes(store.table_size(id) as usize, 0)),
            Extern::Func(_) | Extern::Tag(_) => None,
        })
        .collect()
}

// --- Wasmtime ------------------------------------------------------------------------------------------------------------

/// Wasmtime for whole modules: one engine for those whose NaNs it makes canonical, one for the others.
pub struct ModuleOracle {
    engines: [wasmtime::Engine; 2],
}

impl ModuleOracle {
    /// With this compiler. Runs are given up after some time.
    pub fn new(compiler: Compiler) -> ModuleOracle {
        ModuleOracle { engines: [false, true].map(|canonicalize| oracle::patient_engine(compiler, canonicalize)) }
    }

    /// Runs a module.
    ///
    /// # Errors
    ///
    /// When Wasmtime does not take it.
    pub fn run(&self, bytes: &[u8], canonicalize_nans: bool) -> Result<Seen, String> {
        let engine = &self.engines[usize::from(canonicalize_nans)];
        let module = wasmtime::Module::new(engine, bytes).map_err(|e| format!("{e:?}"))?;
        let mut store = wasmtime::Store::new(engine, ());
        store.set_epoch_deadline(oracle::TICKS_MAX);
        let mut imports: Vec<wasmtime::Extern> = Vec::new();
        for import in module.imports() {
            let wasmtime::ExternType::Func(ty) = import.ty() else { return Err(format!("{}.{}", import.module(), import.name())) };
            let types = ty.results().map(|ty| val_type(&ty)).collect::<Result<Vec<ValType>, String>>()?;
            let func = wasmtime::Func::new(&mut store, ty, move |_, args, results| {
                let sum = args.iter().fold(0, |sum: u64, arg| sum.wrapping_add(raw(arg).map_or(0, |(_, bits)| folded(bits))));
                for (result, ty) in results.iter_mut().zip(&types) {
                    *result = oracle::val(answer(*ty, sum));
                }
                Ok(())
            });
            imports.push(func.into());
        }
        let mut seen = Seen::default();
        let instance = match wasmtime::Instance::new(&mut store, &module, &imports) {
            Ok(instance) => instance,
            Err(e) => {
                seen.ends.push(failed(&mut store, &e));
                return Ok(seen);
            }
        };
        // The start function has run within that.
        for export in module.exports() {
            if let wasmtime::ExternType::Func(ty) = export.ty() {
                let func = instance.get_func(&mut store, export.name()).expect("exported");
                let types = ty.params().map(|ty| val_type(&ty)).collect::<Result<Vec<_>, _>>()?;
                for bits in ARGS {
                    let args: Vec<wasmtime::Val> = types.iter().map(|ty| oracle::val(argument(*ty, bits))).collect();
                    let mut results: Vec<wasmtime::Val> = ty.results().map(|_| wasmtime::Val::I32(0)).collect();
                    store.set_epoch_deadline(oracle::TICKS_MAX);
                    seen.ends.push(match func.call(&mut store, &args, &mut results) {
                        Ok(()) => ModuleEnd::Returned(results.iter().map(see_theirs).collect()),
                        Err(e) => failed(&mut store, &e),
                    });
                }
            }
        }
        for export in module.exports() {
            match instance.get_export(&mut store, export.name()) {
                Some(wasmtime::Extern::Global(global)) => {
                    let value = global.get(&mut store);
                    seen.state.push(see_theirs(&value));
                }
                Some(wasmtime::Extern::Memory(memory)) => seen.state.push(see_bytes(memory.data(&store))),
                Some(wasmtime::Extern::SharedMemory(memory)) => seen.state.push(Value::Bytes(memory.data_size(), 0)),
                Some(wasmtime::Extern::Table(table)) => seen.state.push(Value::Bytes(table.size(&store) as usize, 0)),
                _ => {}
            }
        }
        Ok(seen)
    }
}

fn val_type(ty: &wasmtime::ValType) -> Result<ValType, String> {
    Ok(match ty {
        wasmtime::ValType::I32 => ValType::I32,
        wasmtime::ValType::I64 => ValType::I64,
        wasmtime::ValType::F32 => ValType::F32,
        wasmtime::ValType::F64 => ValType::F64,
        wasmtime::ValType::V128 => ValType::V128,
        ty if ty.is_funcref() => ValType::FuncRef,
        ty if ty.is_externref() => ValType::ExternRef,
        ty if ty.matches(&wasmtime::ValType::NULLEXNREF) => ValType::NullExnRef,
        ty if ty.matches(&wasmtime::ValType::EXNREF) => ValType::ExnRef,
        other => return Err(format!("a value of type {other}")),
    })
}

fn raw(value: &wasmtime::Val) -> Option<(ValType, u128)> {
    let ty = match value {
        wasmtime::Val::I32(_) => ValType::I32,
        wasmtime::Val::I64(_) => ValType::I64,
        wasmtime::Val::F32(_) => ValType::F32,
        wasmtime::Val::F64(_) => ValType::F64,
        wasmtime::Val::V128(_) => ValType::V128,
        _ => return None,
    };
    Some((ty, oracle::bits(value)))
}

fn see_theirs(value: &wasmtime::Val) -> Value {
    match (raw(value), value) {
        (Some((ty, bits)), _) => Value::Number(ty, bits),
        (None, wasmtime::Val::FuncRef(func)) => Value::Null(func.is_none()),
        (None, wasmtime::Val::ExternRef(host)) => Value::Null(host.is_none()),
        (None, wasmtime::Val::ExnRef(exn)) => Value::Null(exn.is_none()),
        (None, _) => Value::Null(false),
    }
}

fn failed(store: &mut wasmtime::Store<()>, error: &wasmtime::Error) -> ModuleEnd {
    if let Some(kind) = oracle::trap_kind(error) {
        return ModuleEnd::Trapped(same(kind));
    }
    if error.is::<wasmtime::ThrownException>() {
        let exception = store.take_pending_exception().expect("it was thrown");
        if let Ok(fields) = exception.fields(&mut *store) {
            let fields: Vec<wasmtime::Val> = fields.collect();
            return ModuleEnd::Threw(fields.iter().map(see_theirs).collect());
        }
    }
    ModuleEnd::Failed(format!("{error:?}"))
}

// --- the comparison ------------------------------------------------------------------------------------------------------

/// Whether stack or memory were exhausted.
fn exhausted(seen: &Seen) -> bool {
    seen.ends.iter().any(|end| matches!(end, ModuleEnd::Trapped(TrapKind::StackOverflow | TrapKind::ExceptionLimit)))
}

fn difference(ours: &Seen, theirs: &Seen) -> Option<Difference> {
    if ours.ends != theirs.ends {
        let at = ours.ends.iter().zip(&theirs.ends).position(|(a, b)| a != b).unwrap_or(ours.ends.len().min(theirs.ends.len()));
        let (a, b) = (ours.ends.get(at), theirs.ends.get(at));
        return Some(Difference { what: What::End, detail: format!("end {at} is {a:x?}; expected {b:x?}") });
    }
    let at = ours.state.iter().zip(&theirs.state).position(|(a, b)| a != b)?;
    let (a, b) = (&ours.state[at], &theirs.state[at]);
    let what = if matches!(a, Value::Bytes(..)) { What::Memory } else { What::Global };
    Some(Difference { what, detail: format!("export {at} of the state is {a:x?}; expected {b:x?}") })
}

/// Runs a module in these modes and on Wasmtime, and compares everything at the end.
pub fn compare(bytes: &[u8], canonicalize_nans: bool, modes: &[Mode], oracle: &ModuleOracle) -> Outcome {
    let mut outcome = Outcome { programs: 1, ..Outcome::default() };
    // Counted first: what does not end, or cannot be run at all, goes nowhere else.
    let counted = match ours(bytes, Mode::Counting, canonicalize_nans, None) {
        Ok(counted) => counted,
        Err(Unusable::Refused(detail)) => {
            outcome.divergences.push(Divergence { program: 0, call: None, mode: Mode::Counting, difference: Difference { what: What::Load, detail } });
            return outcome;
        }
        Err(_) => return Outcome { skipped: 1, programs: 0, ..outcome },
    };
    // Not worth the time: a changed module may well never end.
    if counted.seen.ends.contains(&ModuleEnd::Trapped(TrapKind::OutOfFuel)) {
        return Outcome { skipped: 1, programs: 0, ..outcome };
    }
    if exhausted(&counted.seen) {
        return Outcome { poisoned: 1, ..outcome };
    }
    let mut expected = match oracle.run(bytes, canonicalize_nans) {
        Ok(seen) => seen,
        Err(detail) => {
            outcome.divergences.push(Divergence { program: 0, call: None, mode: Mode::Counting, difference: Difference { what: What::Load, detail } });
            return outcome;
        }
    };
    if exhausted(&expected) {
        return Outcome { poisoned: 1, ..outcome };
    }
    // Wasmtime reports no end for a start function that returns.
    if counted.seen.ends.len() == expected.ends.len() + 1 && counted.seen.ends[0] == ModuleEnd::Returned(Vec::new()) {
        expected.ends.insert(0, ModuleEnd::Returned(Vec::new()));
    }
    outcome.calls = expected.ends.len() as u64;
    for mode in modes {
        let found = match (mode, ours(bytes, *mode, canonicalize_nans, None)) {
            (Mode::Counting, _) => difference(&counted.seen, &expected),
            (_, Ok(found)) => difference(&found.seen, &expected).or_else(|| {
                let counts = matches!(mode, Mode::Traced | Mode::Pieces | Mode::Stepped);
                let same = !counts || found.work == counted.work;
                (!same).then(|| Difference { what: What::Work, detail: format!("work is {}; expected {}", found.work, counted.work) })
            }),
            (_, Err(unusable)) => Some(Difference { what: What::Load, detail: format!("{unusable:?}") }),
        };
        outcome.comparisons += outcome.calls;
        outcome.divergences.extend(found.map(|difference| Divergence { program: 0, call: None, mode: *mode, difference }));
    }
    outcome.digests.push(digest(&expected));
    outcome
}

/// What a module does, as a number.
pub fn digest(seen: &Seen) -> u64 {
    xxhash_rust::xxh3::xxh3_64(format!("{seen:?}").as_bytes())
}
