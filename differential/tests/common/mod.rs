//! One module on this engine, plain and traced, and on Wasmtime, called in step: results, traps and memories must agree.

use worksp_differential::run::oracle;
use worksp_differential::witness::{Watcher, Witness};
use worksp_engine::probe::NoProbe;
use worksp_engine::{CallError, Engine, Extern, InstanceId, Linker, Module, Store, TrapKind, Val};

/// How a call ended.
#[derive(PartialEq, Clone, Debug)]
pub enum End {
    Returned(Vec<u128>),
    Trapped(TrapKind),
}

struct Ours<P> {
    store: Store,
    linker: Linker,
    instance: InstanceId,
    probe: P,
}

impl<P: Watcher> Ours<P> {
    fn new(module: &Module) -> Ours<P> {
        let (mut store, linker, mut probe) = (Store::new(module.engine()), Linker::new(), P::default());
        let instance = linker.instantiate(&mut store, &mut probe, module).expect("no imports and no start function");
        store.set_trace_plan(instance, P::plan(module));
        Ours { store, linker, instance, probe }
    }

    fn call(&mut self, name: &str, args: &[Val]) -> End {
        let func = self.store.exported_func(self.instance, name).expect("exported");
        match self.linker.call(&mut self.store, &mut self.probe, func, args) {
            Ok(results) => End::Returned(results.iter().map(|value| value.bits()).collect()),
            // Wasmtime does not tell these two apart.
            Err(CallError::Trap(trap)) if trap.kind() == TrapKind::UndefinedElement => End::Trapped(TrapKind::TableOutOfBounds),
            Err(CallError::Trap(trap)) => End::Trapped(trap.kind()),
            Err(other) => panic!("{name}: {other}"),
        }
    }

    fn memory(&self, name: &str) -> &[u8] {
        let Some(Extern::Memory(memory)) = self.store.export(self.instance, name) else { panic!("no memory {name}") };
        self.store.memory(memory)
    }
}

/// The three of them.
pub struct Trio {
    plain: Ours<NoProbe>,
    traced: Ours<Witness>,
    their_store: wasmtime::Store<()>,
    theirs: wasmtime::Instance,
    /// Calls so far.
    pub calls: usize,
    pub traps: usize,
}

impl Trio {
    pub fn new(text: &str) -> Trio {
        let bytes = wat::parse_str(text).unwrap_or_else(|e| panic!("{e}"));
        let module = Module::new(&Engine::default(), &bytes).unwrap_or_else(|e| panic!("{e}"));
        let mut config = wasmtime::Config::new();
        config.wasm_wide_arithmetic(true).wasm_memory64(true).wasm_multi_memory(true).wasm_threads(true).shared_memory(true);
        config.cranelift_opt_level(wasmtime::OptLevel::None);
        let engine = wasmtime::Engine::new(&config).expect("a valid configuration");
        let their_module = wasmtime::Module::new(&engine, &bytes).expect("Wasmtime takes what this engine takes");
        let mut their_store = wasmtime::Store::new(&engine, ());
        let theirs = wasmtime::Instance::new(&mut their_store, &their_module, &[]).expect("no imports");
        Trio { plain: Ours::new(&module), traced: Ours::new(&module), their_store, theirs, calls: 0, traps: 0 }
    }

    /// Calls an exported function with the same arguments on all three.
    pub fn call(&mut self, name: &str, args: &[Val]) -> End {
        let func = self.theirs.get_func(&mut self.their_store, name).expect("exported");
        let mut results: Vec<_> = func.ty(&self.their_store).results().map(|_| wasmtime::Val::I32(0)).collect();
        let their_args: Vec<_> = args.iter().map(|value| oracle::val(*value)).collect();
        let expected = match func.call(&mut self.their_store, &their_args, &mut results) {
            Ok(()) => End::Returned(results.iter().map(oracle::bits).collect()),
            Err(error) => End::Trapped(oracle::trap_kind(&error).unwrap_or_else(|| panic!("Wasmtime failed otherwise: {error:?}"))),
        };
        assert_eq!(self.plain.call(name, args), expected, "{name} {args:x?}: Wasmtime (right) disagrees");
        assert_eq!(self.traced.call(name, args), expected, "{name} {args:x?}: traced, Wasmtime (right) disagrees");
        let complaints = self.traced.probe.complaints();
        assert!(complaints.is_empty(), "{name} {args:x?}: {complaints:?}");
        self.calls += 1;
        self.traps += usize::from(matches!(expected, End::Trapped(_)));
        expected
    }

    /// Calls it on this engine only.
    #[allow(dead_code, reason = "not every test has something that Wasmtime would not return from")]
    pub fn call_ours(&mut self, name: &str, args: &[Val]) -> End {
        let end = self.plain.call(name, args);
        assert_eq!(self.traced.call(name, args), end, "{name} {args:x?}: traced");
        end
    }

    /// Compares the bytes of an exported memory.
    #[allow(dead_code, reason = "not every test has memories")]
    pub fn check_memory(&mut self, name: &str) {
        let expected: Vec<u8> = match self.theirs.get_export(&mut self.their_store, name) {
            Some(wasmtime::Extern::Memory(memory)) => memory.data(&self.their_store).to_vec(),
            _ => panic!("no memory {name}"),
        };
        assert!(self.plain.memory(name) == expected, "memory {name} differs");
        assert!(self.traced.memory(name) == expected, "traced, memory {name} differs");
    }
}

/// Where an operand is when its operator comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    Const,
    Local,
    /// The slot of its height.
    Slot,
    /// The accumulator, if it is the last one.
    Acc,
}

impl Shape {
    const ALL: [Shape; 4] = [Shape::Const, Shape::Local, Shape::Slot, Shape::Acc];

    /// The shapes of `count` operands: all combinations.
    pub fn combinations(count: usize) -> Vec<Vec<Shape>> {
        (0..4usize.pow(count as u32)).map(|n| (0..count).map(|i| Shape::ALL[n >> (2 * i) & 3]).collect()).collect()
    }

    /// An operand that is parameter `index`, or this value where it is a constant. Modules have `$id_i32` and `$id_i64`.
    pub fn operand(self, index: usize, value: Val) -> String {
        let ty = value.ty();
        match (self, value) {
            (Shape::Const, Val::I32(v)) => format!("(i32.const {v})"),
            (Shape::Const, Val::I64(v)) => format!("(i64.const {v})"),
            (Shape::Const, other) => panic!("no {other} is an operand"),
            (Shape::Local, _) => format!("(local.get {index})"),
            (Shape::Slot, _) => format!("(call $id_{ty} (local.get {index}))"),
            (Shape::Acc, _) => format!("({ty}.xor (local.get {index}) ({ty}.const 0))"),
        }
    }
}

/// Functions that [`Shape::operand`] needs.
pub const IDENTITIES: &str = "(func $id_i32 (param i32) (result i32) (local.get 0)) (func $id_i64 (param i64) (result i64) (local.get 0))";

/// Values at the edges of an i64.
pub const I64_EDGES: [i64; 12] = [
    0, 1, -1, 2, i64::MIN, i64::MAX, i64::MIN + 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, -0x8000_0001, 0x0123_4567_89ab_cdef,
];
