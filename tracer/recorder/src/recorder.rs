//! Puts it together: from a module and options to a recording and a summary.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::{AsContextMut, Instance, Module, Store};
use worksp_host::WasiHost;
use worksp_tracer::recording::{
    Effect, End, Exit, Header, MemoryState, Outcome, OutputState, RecordingWriter, TrapCode, ValueType, module_sha256,
};

use crate::caller::{HostCaller, HostError};
use crate::error::Error;
use crate::expose::{Exposed, expose, imports_only, memory_export};
use crate::imports::{self, HostMemory, HostTable, Imports, Provided};
use crate::log::{Limits, Log, State};
use crate::options::RecordOptions;
use crate::session::{Finished, Plan, run};
use crate::value::Value;

/// Records one request of a module (binary or text) into the file `out`.
///
/// # Errors
/// When the request cannot be run or the recording cannot be written. What the program does, a trap or an exit status, is no
/// error.
pub fn record(module: &[u8], options: &RecordOptions, out: &Path) -> Result<RecordSummary, Error> {
    Recorder::new(module, options.clone())?.record(out)
}

/// What a request came to.
#[derive(Clone, Debug)]
pub struct RecordSummary {
    /// The recording; nothing for an unrecorded run.
    pub path: Option<PathBuf>,
    /// How the program ended.
    pub exit: Exit,
    /// Results of the last call.
    pub results: Vec<Value>,
    /// Wasmtime's account of a trap, with its backtrace.
    pub trap: Option<String>,
    /// Calls from guest to host.
    pub host_calls: u64,
    /// Calls from host to guest.
    pub entries: u64,
    /// Events in the recording.
    pub events: u64,
    /// Running time, without compilation and without hashing the final memories.
    pub duration: Duration,
    /// Compilation time.
    pub compile: Duration,
    /// The first bytes of standard output.
    pub stdout: Vec<u8>,
    /// The first bytes of standard error.
    pub stderr: Vec<u8>,
    /// What the script printed.
    pub printed: Vec<u8>,
}

/// A module that is about to be run, with what the embedder provides to it.
///
/// ```
/// use worksp_recorder::{Effect, RecordOptions, Recorder, Value, ValueType};
/// let module = r#"(module (import "env" "twice" (func $twice (param i32) (result i32)))
///     (func (export "run") (result i32) (call $twice (i32.const 21))))"#;
/// let mut recorder = Recorder::new(module.as_bytes(), RecordOptions::invoke("run", [""; 0]))?;
/// recorder.host_func("env", "twice", &[ValueType::I32], &[ValueType::I32], Effect::Other, |_, args| match args {
///     [Value::I32(n)] => Ok(vec![Value::I32(2 * n)]),
///     _ => unreachable!("the types were checked"),
/// });
/// let dir = tempfile::tempdir()?;
/// assert_eq!(recorder.record(&dir.path().join("run.wspr"))?.results, [Value::I32(42)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Recorder {
    bytes: Vec<u8>,
    options: RecordOptions,
    provided: HashMap<(String, String), Provided>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Takes a module, binary or text.
    ///
    /// # Errors
    /// When the text cannot be parsed, or worksp's engine does not run such a module (see [`RecordOptions::check_engine`]).
    pub fn new(module: &[u8], options: RecordOptions) -> Result<Recorder, Error> {
        let wrong = |reason: String| Error::Module { module: options.module_name.clone(), reason };
        let bytes = wat::parse_bytes(module).map_err(|error| wrong(error.to_string()))?.into_owned();
        if options.check_engine {
            // Wasmtime has only the one form of exceptions.
            let config = worksp_engine::Config { legacy_exceptions: false, ..worksp_engine::Config::default() };
            let engine = worksp_engine::Engine::new(config);
            worksp_engine::Module::new(&engine, &bytes).map_err(|error| wrong(refusal(&error)))?;
        }
        Ok(Recorder { bytes, options, provided: HashMap::new() })
    }

    /// Provides a function. What it does to the guest through [`HostCaller`] is recorded.
    pub fn host_func(
        &mut self,
        module: impl Into<String>,
        name: impl Into<String>,
        params: &[ValueType],
        results: &[ValueType],
        effect: Effect,
        func: impl Fn(&mut HostCaller<'_>, &[Value]) -> Result<Vec<Value>, HostError> + Send + Sync + 'static,
    ) -> &mut Self {
        let (params, results) = (params.to_vec(), results.to_vec());
        self.provide(module, name, Provided::Func { params, results, effect, func: Arc::new(func) })
    }

    /// Provides a memory.
    pub fn memory(&mut self, module: impl Into<String>, name: impl Into<String>, memory: HostMemory) -> &mut Self {
        self.provide(module, name, Provided::Memory(memory))
    }

    /// Provides a table.
    pub fn table(&mut self, module: impl Into<String>, name: impl Into<String>, table: HostTable) -> &mut Self {
        self.provide(module, name, Provided::Table(table))
    }

    /// Provides a global.
    pub fn global(&mut self, module: impl Into<String>, name: impl Into<String>, value: Value, mutable: bool) -> &mut Self {
        self.provide(module, name, Provided::Global { value, mutable })
    }

    fn provide(&mut self, module: impl Into<String>, name: impl Into<String>, provided: Provided) -> &mut Self {
        self.provided.insert((module.into(), name.into()), provided);
        self
    }

    /// Runs the request and records it into the file `out`.
    ///
    /// # Errors
    /// As [`record`].
    pub fn record(&self, out: &Path) -> Result<RecordSummary, Error> {
        self.run(Some(out))
    }

    /// Runs the request in the same way without recording, to see what recording costs.
    ///
    /// # Errors
    /// As [`record`].
    pub fn run_unrecorded(&self) -> Result<RecordSummary, Error> {
        self.run(None)
    }

    fn run(&self, out: Option<&Path>) -> Result<RecordSummary, Error> {
        let name = &self.options.module_name;
        let wrong = |reason: String| Error::Module { module: name.clone(), reason };
        let exposed = Arc::new(expose(&self.bytes).map_err(|error| wrong(error.to_string()))?);
        let engine = imports::engine()?;
        // All that can be wrong with the request shows before the compilation, which can take minutes.
        let shape = Shape::of(&self.bytes).map_err(wrong)?;
        let load = |bytes: &[u8]| Module::new(&engine, bytes).map_err(|error| wrong(format!("{error:#}")));
        let imports_alone = load(&imports_only(&self.bytes).map_err(|error| wrong(error.to_string()))?)?;
        let imports = imports::resolve(name, &imports_alone, &self.provided, &self.options.stubs)?;
        let plan = Plan::new(name, &shape, &self.options)?;
        let wasi = self.wasi()?;
        let writer = out.map(|out| RecordingWriter::create(out, &self.header(&imports), &self.bytes, &imports.initial)).transpose()?;
        let compiling = Instant::now();
        let module = load(&exposed.bytes)?;
        let compile = compiling.elapsed();
        let state = State {
            wasi,
            log: Log::new(writer, exposed.unshared),
            limits: Limits {
                memory_bytes_max: self.options.memory_bytes_max,
                table_elements_max: self.options.table_elements_max,
                growing_to: None,
            },
            instance: None,
            memories: Vec::new(),
            thrown: None,
            host_calls: 0,
            entries: 0,
        };
        let mut store = Store::new(&engine, state);
        store.limiter(|state| &mut state.limits);
        let running = Instant::now();
        let externs = imports.make(&mut store, &module, &exposed)?;
        let finished = match Instance::new(&mut store, &module, &externs) {
            Ok(instance) => {
                attach(&mut store, instance, &exposed);
                run(&mut store, instance, &exposed, &plan)?
            }
            Err(error) => instantiation_failed(&error)?,
        };
        store.data_mut().log.failure()?;
        let duration = running.elapsed();
        let _ = std::io::stdout().flush();
        finish(store, finished, duration, compile)
    }

    fn wasi(&self) -> Result<WasiHost, Error> {
        let options = &self.options;
        let mut host = WasiHost::builder().arg(options.program_name());
        host = host.stdin(options.stdin.clone()).stdout(options.stdout).stderr(options.stderr);
        if matches!(options.entry, crate::options::Entry::Start) {
            host = options.args.iter().fold(host, |host, arg| host.arg(arg));
        }
        host = options.env.iter().fold(host, |host, (name, value)| host.env(name, value));
        host = options.dirs.iter().fold(host, |host, dir| host.dir(dir.clone()));
        Ok(host.build()?)
    }

    fn header(&self, imports: &Imports) -> Header {
        Header {
            module_sha256: module_sha256(&self.bytes),
            module_name: self.options.module_name.clone(),
            features: imports::FEATURES.iter().map(ToString::to_string).collect(),
            nan_canonical: true,
            relaxed_simd_deterministic: true,
            memory_bytes_max: self.options.memory_bytes_max,
            table_elements_max: self.options.table_elements_max,
            recorder: concat!("worksp ", env!("CARGO_PKG_VERSION"), ", Wasmtime 48").to_string(),
            command: self.options.to_command(),
            imports: imports.rows.clone(),
        }
    }
}

/// Keeps the instance and its memories where host functions find them.
fn attach(store: &mut Store<State>, instance: Instance, exposed: &Exposed) {
    let memories = (0..exposed.memory_count)
        .map(|index| instance.get_memory(&mut *store, &memory_export(index)).expect("`expose` exported every memory"))
        .collect();
    let state = store.data_mut();
    state.memories = memories;
    state.instance = Some(instance);
}

/// Instantiation runs no code (`expose` took the start section away), so it fails by an active segment or not at all.
fn instantiation_failed(error: &wasmtime::Error) -> Result<Finished, Error> {
    let exit = match crate::log::end_of(error)? {
        End::Trapped { code, message } => Exit::Trapped { code, message },
        other => Exit::Trapped { code: TrapCode::Other, message: format!("{other:?}") },
    };
    Ok(Finished { exit, results: Vec::new(), trap: Some(format!("{error:?}")), printed: Vec::new() })
}

fn finish(mut store: Store<State>, finished: Finished, duration: Duration, compile: Duration) -> Result<RecordSummary, Error> {
    let handles = store.data().memories.clone();
    let recorded = store.data().log.on();
    let memories = if recorded { handles.iter().map(|memory| MemoryState::of(memory.data(&store))).collect() } else { Vec::new() };
    let mut context = store.as_context_mut();
    let state = context.data_mut();
    let ([out_len, err_len], [out_hash, err_hash]) = (state.wasi.written(), state.wasi.blake3());
    let (stdout, stderr) = (state.wasi.stdout(), state.wasi.stderr());
    let (host_calls, entries) = (state.host_calls, state.entries);
    let mut summary = RecordSummary {
        path: None,
        exit: finished.exit.clone(),
        results: finished.results,
        trap: finished.trap,
        host_calls,
        entries,
        events: 0,
        duration,
        compile,
        stdout: stdout.clone(),
        stderr: stderr.clone(),
        printed: finished.printed,
    };
    if let Some(writer) = store.into_data().log.into_writer() {
        summary.events = writer.events();
        let outcome = Outcome {
            exit: finished.exit,
            memories,
            stdout: OutputState { len: out_len, blake3: out_hash, kept: stdout },
            stderr: OutputState { len: err_len, blake3: err_hash, kept: stderr },
            host_calls,
            entries,
            events: 0,
        };
        summary.path = Some(writer.finish(outcome)?);
    }
    Ok(summary)
}

/// Why a module cannot be recorded.
fn refusal(error: &worksp_engine::Error) -> String {
    match error {
        worksp_engine::Error::SwitchedOff { features, detail, offset } if features == "legacy exceptions" => format!(
            "it uses {features} ({detail} at offset {offset:#x}), and Wasmtime, which runs programs that are recorded, has only the \
             form with `try_table`; rebuild it with that form (clang: -mllvm -wasm-use-legacy-eh=false) or convert it with \
             `wasm-opt --translate-to-exnref`"
        ),
        other => other.to_string(),
    }
}

/// The types of a module's exported functions, known before it is compiled.
#[derive(Debug)]
pub(crate) struct Shape {
    /// In the module's order.
    pub funcs: Vec<(String, FuncShape)>,
}

/// The type of one function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FuncShape {
    pub params: Vec<ValueType>,
    pub results: Vec<ValueType>,
}

impl Shape {
    fn of(bytes: &[u8]) -> Result<Shape, String> {
        let mut validator = wasmparser::Validator::new_with_features(wasmparser::WasmFeatures::all());
        let types = validator.validate_all(bytes).map_err(|error| error.to_string())?;
        let types = types.as_ref();
        let mut funcs = Vec::new();
        for payload in wasmparser::Parser::new(0).parse_all(bytes) {
            if let wasmparser::Payload::ExportSection(section) = payload.map_err(|error| error.to_string())? {
                for export in section {
                    let export = export.map_err(|error| error.to_string())?;
                    if export.kind == wasmparser::ExternalKind::Func {
                        let ty = types.get(types.core_function_at(export.index)).map(|ty| ty.unwrap_func().clone());
                        let ty = ty.ok_or("a function without a type")?;
                        if let (Some(params), Some(results)) = (shape_types(ty.params()), shape_types(ty.results())) {
                            funcs.push((export.name.to_string(), FuncShape { params, results }));
                        }
                    }
                }
            }
        }
        Ok(Shape { funcs })
    }
}

/// `None` for types that no recording holds.
fn shape_types(types: &[wasmparser::ValType]) -> Option<Vec<ValueType>> {
    let one = |ty: &wasmparser::ValType| {
        Some(match ty {
            wasmparser::ValType::I32 => ValueType::I32,
            wasmparser::ValType::I64 => ValueType::I64,
            wasmparser::ValType::F32 => ValueType::F32,
            wasmparser::ValType::F64 => ValueType::F64,
            wasmparser::ValType::V128 => ValueType::V128,
            wasmparser::ValType::Ref(wasmparser::RefType::FUNCREF) => ValueType::FuncRef,
            wasmparser::ValType::Ref(wasmparser::RefType::EXTERNREF) => ValueType::ExternRef,
            wasmparser::ValType::Ref(_) => return None,
        })
    };
    types.iter().map(one).collect()
}
