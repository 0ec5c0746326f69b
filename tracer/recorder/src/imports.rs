//! Finds a provider for every import.

use std::collections::HashMap;
use std::sync::Arc;

use wasmtime::{Engine, ExternType, Func, Global, Memory, MemoryType, MemoryTypeBuilder, Module, Ref, Store, Table, ValType};
use worksp_host::wasi::{self, Ty, WasiFunction};
use worksp_tracer::recording::{Contents, Effect, Import, ImportType, Initial, ValueType};

use crate::caller::{HostCaller, HostError};
use crate::error::Error;
use crate::expose::Exposed;
use crate::hostcall::make_func;
use crate::log::State;
use crate::options::Stub;
use crate::value::{Value, type_text, value_type, value_types};

/// An embedder's host function.
pub(crate) type HostFn = Arc<dyn Fn(&mut HostCaller<'_>, &[Value]) -> Result<Vec<Value>, HostError> + Send + Sync>;

/// What an embedder provides under one name.
#[derive(Clone)]
pub(crate) enum Provided {
    Func { params: Vec<ValueType>, results: Vec<ValueType>, effect: Effect, func: HostFn },
    Memory(HostMemory),
    Table(HostTable),
    Global { value: Value, mutable: bool },
}

/// A memory that the embedder provides.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostMemory {
    /// Pages at the start.
    pub pages: u64,
    /// The most pages it may have.
    pub pages_max: Option<u64>,
    /// The bytes that it begins with; zeros follow.
    pub contents: Vec<u8>,
}

/// A table of nulls that the embedder provides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostTable {
    /// Element type: `FuncRef` or `ExternRef`.
    pub element: ValueType,
    /// Elements at the start.
    pub elements: u64,
    /// The most elements it may have.
    pub elements_max: Option<u64>,
}

/// How one import is satisfied.
#[derive(Clone)]
pub(crate) enum Provider {
    Wasi(&'static WasiFunction),
    Constant(Vec<Value>),
    Provided(Provided),
}

/// All imports of a module with their providers.
pub(crate) struct Imports {
    pub rows: Vec<Import>,
    pub initial: Vec<Initial>,
    pub providers: Vec<Provider>,
}

/// Finds a provider for every import of `module`, which is called `name` in messages.
pub(crate) fn resolve(
    name: &str,
    module: &Module,
    provided: &HashMap<(String, String), Provided>,
    stubs: &[Stub],
) -> Result<Imports, Error> {
    let mut imports = Imports { rows: Vec::new(), initial: Vec::new(), providers: Vec::new() };
    let mut missing = Vec::new();
    for import in module.imports() {
        let key = (import.module().to_string(), import.name().to_string());
        let ty = import.ty();
        let stub = stubs.iter().find(|stub| (stub.module.as_str(), stub.name.as_str()) == (import.module(), import.name()));
        let provider = match (provided.get(&key), stub) {
            (Some(provided), _) => Some(Provider::Provided(provided.clone())),
            (None, Some(stub)) => Some(stub_provider(stub, &ty)?),
            (None, None) if key.0 == wasi::MODULE_UNSTABLE => {
                return Err(Error::UnstableWasi { module: name.to_string(), function: key.1 });
            }
            (None, None) if key.0 == wasi::MODULE => wasi::function(&key.1).map(Provider::Wasi),
            (None, None) => None,
        };
        match provider {
            Some(provider) => match check(&provider, &ty)? {
                None => imports.push(key, provider, &ty)?,
                Some(has) => missing.push(format!("  {}.{}: {} (there is one of another type: {has})", key.0, key.1, describe(&ty)?)),
            },
            None => missing.push(format!("  {}.{}: {}", key.0, key.1, describe(&ty)?)),
        }
    }
    if !missing.is_empty() {
        return Err(Error::Imports { module: name.to_string(), list: missing.join("\n") });
    }
    match stubs.iter().find(|stub| !imports.rows.iter().any(|row| (&row.module, &row.name) == (&stub.module, &stub.name))) {
        Some(unused) => Err(Error::Stub { stub: unused.to_string(), reason: format!("{name} has no such import") }),
        None => Ok(imports),
    }
}

impl Imports {
    fn push(&mut self, (module, name): (String, String), provider: Provider, ty: &ExternType) -> Result<(), Error> {
        let effect = match &provider {
            Provider::Wasi(function) => match function.effect {
                wasi::Effect::Pure => Effect::Pure,
                wasi::Effect::Append => Effect::Append,
                wasi::Effect::Other => Effect::Other,
            },
            Provider::Constant(_) if matches!(ty, ExternType::Func(_)) => Effect::Pure,
            Provider::Provided(Provided::Func { effect, .. }) => *effect,
            _ => Effect::Other,
        };
        let import = self.rows.len() as u32;
        let (ty, contents) = row(ty, &provider)?;
        self.rows.push(Import { module, name, ty, effect });
        self.initial.extend(contents.map(|contents| Initial { import, contents }));
        self.providers.push(provider);
        Ok(())
    }

    /// Makes the imports in the store, in order.
    pub(crate) fn make(&self, store: &mut Store<State>, module: &Module, exposed: &Arc<Exposed>) -> Result<Vec<wasmtime::Extern>, Error> {
        let failed = |error: wasmtime::Error| Error::Wasmtime(format!("{error:#}"));
        let mut funcs = 0;
        let mut externs = Vec::new();
        for ((import, provider), row) in module.imports().zip(&self.providers).zip(&self.rows) {
            externs.push(match (import.ty(), &row.ty) {
                (ExternType::Func(ty), _) => {
                    funcs += 1;
                    let make = make_func(provider.clone(), funcs - 1, value_types(ty.results())?, exposed.clone());
                    Func::new(&mut *store, ty, make).into()
                }
                (ExternType::Memory(ty), ImportType::Memory { pages, pages_max }) => {
                    let ty = memory_type(&ty, *pages, *pages_max).map_err(failed)?;
                    let memory = Memory::new(&mut *store, ty).map_err(failed)?;
                    if let Provider::Provided(Provided::Memory(HostMemory { contents, .. })) = provider {
                        memory.write(&mut *store, 0, contents).map_err(|error| failed(error.into()))?;
                    }
                    memory.into()
                }
                (ExternType::Table(ty), ImportType::Table { elements, elements_max, .. }) => {
                    let null = Ref::null(ty.element().heap_type());
                    let size = |elements: u64| u32::try_from(elements).unwrap_or(u32::MAX);
                    let element = ty.element().clone();
                    let ty = match ty.is_64() {
                        true => wasmtime::TableType::new64(element, *elements, *elements_max),
                        false => wasmtime::TableType::new(element, size(*elements), elements_max.map(size)),
                    };
                    Table::new(&mut *store, ty, null).map_err(failed)?.into()
                }
                (ExternType::Global(ty), _) => {
                    let value = match provider {
                        Provider::Constant(values) => values.first().copied(),
                        Provider::Provided(Provided::Global { value, .. }) => Some(*value),
                        _ => None,
                    };
                    let value = value.unwrap_or(Value::from_bits(value_type(ty.content())?, 0));
                    Global::new(&mut *store, ty, value.to_wasmtime()).map_err(failed)?.into()
                }
                (other, _) => return Err(unsupported(&other)),
            });
        }
        Ok(externs)
    }
}

/// What the type of a provider is, when it does not fit.
fn check(provider: &Provider, wanted: &ExternType) -> Result<Option<String>, Error> {
    let has = match (provider, wanted) {
        (Provider::Wasi(function), ExternType::Func(ty)) => {
            let of = |ty: &Ty| if *ty == Ty::I32 { ValueType::I32 } else { ValueType::I64 };
            let params: Vec<_> = function.params.iter().map(of).collect();
            let results: Vec<_> = function.result.iter().map(of).collect();
            let fits = params == value_types(ty.params())? && results == value_types(ty.results())?;
            (!fits).then(|| format!("function {}", type_text(&params, &results)))
        }
        (Provider::Provided(Provided::Func { params, results, .. }), ExternType::Func(ty)) => {
            let fits = *params == value_types(ty.params())? && *results == value_types(ty.results())?;
            (!fits).then(|| format!("function {}", type_text(params, results)))
        }
        (Provider::Provided(Provided::Memory(memory)), ExternType::Memory(ty)) => {
            let fits = memory.pages >= ty.minimum() && ty.maximum().is_none_or(|max| memory.pages_max.is_some_and(|has| has <= max));
            let fits = fits && memory.contents.len() as u64 <= memory.pages.saturating_mul(ty.page_size());
            (!fits).then(|| format!("memory of {} pages, at most {:?}", memory.pages, memory.pages_max))
        }
        (Provider::Provided(Provided::Table(table)), ExternType::Table(ty)) => {
            let element = value_type(&ValType::Ref(ty.element().clone()))?;
            let fits = table.element == element
                && table.elements >= ty.minimum()
                && ty.maximum().is_none_or(|max| table.elements_max.is_some_and(|has| has <= max));
            (!fits).then(|| format!("table of {} {}, at most {:?}", table.elements, table.element, table.elements_max))
        }
        (Provider::Provided(Provided::Global { value, mutable }), ExternType::Global(ty)) => {
            let fits = value.ty() == value_type(ty.content())? && *mutable == (ty.mutability() == wasmtime::Mutability::Var);
            (!fits).then(|| format!("{} global {}", if *mutable { "mutable" } else { "constant" }, value.ty()))
        }
        (Provider::Constant(_), _) => None,
        (Provider::Wasi(_), _) => Some("function".to_string()),
        (Provider::Provided(_), _) => Some("something of another kind".to_string()),
    };
    Ok(has)
}

/// The row of the recording for an import, and what it holds at the start.
fn row(ty: &ExternType, provider: &Provider) -> Result<(ImportType, Option<Contents>), Error> {
    Ok(match (ty, provider) {
        (ExternType::Func(ty), _) => {
            (ImportType::Func { params: value_types(ty.params())?, results: value_types(ty.results())? }, None)
        }
        (ExternType::Memory(_), Provider::Provided(Provided::Memory(memory))) => {
            let mut contents = memory.contents.clone();
            contents.truncate(contents.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
            (ImportType::Memory { pages: memory.pages, pages_max: memory.pages_max }, Some(Contents::Memory(contents)))
        }
        (ExternType::Memory(ty), _) => {
            (ImportType::Memory { pages: ty.minimum(), pages_max: ty.maximum() }, Some(Contents::Memory(Vec::new())))
        }
        (ExternType::Table(ty), provider) => {
            let (elements, elements_max) = match provider {
                Provider::Provided(Provided::Table(table)) => (table.elements, table.elements_max),
                _ => (ty.minimum(), ty.maximum()),
            };
            let element = value_type(&ValType::Ref(ty.element().clone()))?;
            (ImportType::Table { element, elements, elements_max }, Some(Contents::Table(Vec::new())))
        }
        (ExternType::Global(ty), provider) => {
            let content = value_type(ty.content())?;
            let value = match provider {
                Provider::Constant(values) => values.first().copied(),
                Provider::Provided(Provided::Global { value, .. }) => Some(*value),
                _ => None,
            };
            let mutable = ty.mutability() == wasmtime::Mutability::Var;
            let bits = value.map_or(0, Value::bits);
            (ImportType::Global { value: content, mutable }, Some(Contents::Global(bits)))
        }
        (other, _) => return Err(unsupported(other)),
    })
}

fn stub_provider(stub: &Stub, ty: &ExternType) -> Result<Provider, Error> {
    let wrong = |reason: String| Error::Stub { stub: stub.to_string(), reason };
    let types = match ty {
        ExternType::Func(ty) => value_types(ty.results())?,
        ExternType::Global(ty) => vec![value_type(ty.content())?],
        _ => Vec::new(),
    };
    match &stub.value {
        None => Ok(Provider::Constant(types.iter().map(|ty| Value::from_bits(*ty, 0)).collect())),
        Some(_) if types.is_empty() => Err(wrong("it has no value; leave out `=VALUE`".to_string())),
        Some(text) => {
            let texts: Vec<&str> = text.split(',').collect();
            if texts.len() != types.len() {
                return Err(wrong(format!("it has {} values: separate them by commas", types.len())));
            }
            let values = types.iter().zip(texts).map(|(ty, text)| Value::parse(*ty, text.trim())).collect::<Result<_, _>>();
            Ok(Provider::Constant(values.map_err(wrong)?))
        }
    }
}

/// A memory of this size that can be imported as one of type `ty`.
fn memory_type(ty: &MemoryType, pages: u64, pages_max: Option<u64>) -> wasmtime::Result<MemoryType> {
    let mut builder = MemoryTypeBuilder::default();
    builder.memory64(ty.is_64()).page_size_log2(ty.page_size_log2()).min(pages).max(pages_max).build()
}

fn unsupported(ty: &ExternType) -> Error {
    let reason = "only functions, memories, tables and globals can be imported".to_string();
    Error::Unsupported { what: format!("an import of type {ty:?}"), reason }
}

fn describe(ty: &ExternType) -> Result<String, Error> {
    Ok(match ty {
        ExternType::Func(ty) => format!("function {}", type_text(&value_types(ty.params())?, &value_types(ty.results())?)),
        ExternType::Memory(ty) => format!("memory of {} pages", ty.minimum()),
        ExternType::Table(ty) => format!("table of {} elements", ty.minimum()),
        ExternType::Global(ty) => format!("global {}", value_type(ty.content())?),
        other => return Err(unsupported(other)),
    })
}

/// Wasmtime's configuration for recording: NaNs canonical, relaxed SIMD deterministic.
pub(crate) fn engine() -> Result<Engine, Error> {
    let mut config = wasmtime::Config::new();
    config.cranelift_nan_canonicalization(true).relaxed_simd_deterministic(true);
    config.wasm_simd(true).wasm_relaxed_simd(true);
    config.wasm_tail_call(true).wasm_multi_memory(true).wasm_extended_const(true).wasm_exceptions(true);
    config.wasm_wide_arithmetic(true).wasm_custom_page_sizes(true).wasm_memory64(true);
    config.wasm_threads(true).wasm_function_references(true);
    Engine::new(&config).map_err(|error| Error::Wasmtime(format!("{error:#}")))
}

/// The proposals beyond WebAssembly 1.0 that [`engine`] switches on and programs use.
pub(crate) const FEATURES: &[&str] = &[
    "mutable-globals", "sign-extension", "saturating-float-to-int", "bulk-memory", "multi-value", "reference-types", "simd",
    "relaxed-simd", "tail-call", "extended-const", "multi-memory", "exceptions", "wide-arithmetic", "custom-page-sizes",
    "memory64", "threads", "function-references",
];
