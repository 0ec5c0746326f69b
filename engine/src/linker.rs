//! A convenience above [`Step`]s: host functions as closures, imports found by name, calls that run to their end.

mod later;

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::error::{Error, InstantiateError, check_values};
use crate::execute::{HostCall, Step};
use crate::module::{ExportItem, Module};
use crate::probe::Probe;
use crate::store::Store;
use crate::trap::{Trap, TrapKind};
use crate::value::{Extern, FuncId, FuncType, InstanceId, MemoryId, Val};
pub use later::HostFuture;
use later::AsyncHostFn;

/// Names for what modules may import, and the host's functions behind them. A linker serves one store: it numbers the host
/// functions that the store asks for.
///
/// # Example
/// ```
/// use worksp_engine::probe::NoProbe;
/// use worksp_engine::{Config, Engine, FuncType, Linker, Module, Store, Val, ValType};
/// let engine = Engine::new(Config::default());
/// let module = Module::from_text(
///     &engine,
///     r#"(module (import "env" "twice" (func $twice (param i32) (result i32)))
///         (func (export "f") (param i32) (result i32) (i32.add (call $twice (local.get 0)) (i32.const 1))))"#,
/// )?;
/// let mut store = Store::new(&engine);
/// let mut linker = Linker::new();
/// let ty = FuncType::new([ValType::I32], [ValType::I32]);
/// linker.func("env", "twice", ty, |_, args| match args {
///     [Val::I32(x)] => Ok(vec![Val::I32(x * 2)]),
///     _ => unreachable!("arguments have the declared types"),
/// });
/// let instance = linker.instantiate(&mut store, &mut NoProbe, &module)?;
/// let f = store.exported_func(instance, "f")?;
/// assert_eq!(linker.call(&mut store, &mut NoProbe, f, &[Val::I32(20)])?, [Val::I32(41)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Linker {
    names: HashMap<(String, String), Definition>,
    hosts: Vec<Host>,
    /// Host functions that run right now, one inside the other.
    nesting: Cell<u32>,
}

/// How deep host functions may nest: each takes native stack, of which a test's thread has 2 MiB.
const NESTING_MAX: u32 = 200;

#[derive(Clone, Copy)]
enum Definition {
    Item(Extern),
    /// Index into `Linker::hosts`.
    Host(u32),
}

struct Host {
    name: String,
    ty: FuncType,
    serve: Serve,
}

/// How a host function does its work.
enum Serve {
    Now(Rc<HostFn>),
    Later(Rc<AsyncHostFn>),
}

type HostFn = dyn Fn(&mut Caller<'_>, &[Val]) -> Result<Vec<Val>, HostError>;

/// How a host function ends other than by returning.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HostError {
    /// The program trapped in it.
    #[error(transparent)]
    Trap(#[from] Trap),
    /// The program asked to exit with this status.
    #[error("the program exited with status {0}")]
    Exit(i32),
    /// The host did something wrong.
    #[error(transparent)]
    Error(#[from] Error),
}

/// How a call ends other than by returning.
pub type CallError = HostError;

impl From<InstantiateError> for HostError {
    fn from(error: InstantiateError) -> HostError {
        match error {
            InstantiateError::Error(error) => HostError::Error(error),
            InstantiateError::Trap(trap) => HostError::Trap(trap),
        }
    }
}

/// What a host function sees of the program that called it.
pub struct Caller<'a> {
    run: &'a mut dyn Reenter,
}

impl Caller<'_> {
    /// The store.
    pub fn store(&mut self) -> &mut Store {
        self.run.store()
    }

    /// Calls back into the program.
    ///
    /// # Errors
    /// When the call traps, exits or does not fit the function's type. A host function usually passes that on; an exception that it
    /// passes on may be caught by the program again.
    pub fn call(&mut self, func: FuncId, args: &[Val]) -> Result<Vec<Val>, CallError> {
        self.run.call(func, args)
    }

    /// The instance that made the call; `None` when the host did.
    pub fn instance(&mut self) -> Option<InstanceId> {
        self.store().caller()
    }

    /// What the instance that made the call exports under this name.
    pub fn export(&mut self, name: &str) -> Option<Extern> {
        let instance = self.instance()?;
        self.store().export(instance, name)
    }

    /// The memory that the instance that made the call exports under this name.
    ///
    /// # Errors
    /// [`Error::UnknownExport`], or when the host made the call.
    pub fn exported_memory(&mut self, name: &str) -> Result<MemoryId, Error> {
        let instance = self.instance().ok_or(Error::OutOfTurn("the host made this call: no instance did"))?;
        self.store().exported_memory(instance, name)
    }
}

/// Hides the type of the probe from host functions.
trait Reenter {
    fn store(&mut self) -> &mut Store;
    fn call(&mut self, func: FuncId, args: &[Val]) -> Result<Vec<Val>, CallError>;
    fn call_async<'b>(&'b mut self, func: FuncId, args: &'b [Val]) -> HostFuture<'b>;
}

struct Run<'a, P> {
    linker: &'a Linker,
    store: &'a mut Store,
    probe: &'a mut P,
}

impl<P: Probe> Reenter for Run<'_, P> {
    fn store(&mut self) -> &mut Store {
        self.store
    }

    fn call(&mut self, func: FuncId, args: &[Val]) -> Result<Vec<Val>, CallError> {
        self.linker.call(self.store, self.probe, func, args)
    }

    fn call_async<'b>(&'b mut self, func: FuncId, args: &'b [Val]) -> HostFuture<'b> {
        Box::pin(self.linker.call_async(self.store, self.probe, func, args))
    }
}

impl Linker {
    /// A linker that knows no names.
    pub fn new() -> Linker {
        Linker::default()
    }

    /// Defines a function of the host. It may call back into the program and so be called again while it runs: state of its own
    /// goes into a cell. A later definition of the same name wins.
    pub fn func(
        &mut self,
        module: &str,
        name: &str,
        ty: FuncType,
        run: impl Fn(&mut Caller<'_>, &[Val]) -> Result<Vec<Val>, HostError> + 'static,
    ) {
        self.add(module, name, ty, Serve::Now(Rc::new(run)));
    }

    /// Defines something that the store has.
    pub fn define(&mut self, module: &str, name: &str, item: Extern) {
        self.names.insert((module.into(), name.into()), Definition::Item(item));
    }

    /// Defines all exports of an instance under `module`.
    pub fn instance(&mut self, store: &Store, module: &str, instance: InstanceId) {
        for export in store.module(instance).exports() {
            self.define(module, &export.name, store.item(instance, export.item));
        }
    }

    /// What the linker gives for each import of a module, in order.
    ///
    /// # Errors
    /// [`Error::UnknownImports`], which lists all imports that nobody defines.
    pub fn resolve(&self, store: &mut Store, module: &Module) -> Result<Vec<Extern>, Error> {
        let key = |import: &crate::Import| (import.module.clone(), import.name.clone());
        let found: Vec<Option<Definition>> =
            module.imports().iter().map(|import| self.names.get(&key(import)).copied()).collect();
        if found.iter().any(Option::is_none) {
            let unknown = module.imports().iter().zip(&found).filter(|(_, definition)| definition.is_none());
            let names = unknown.map(|(import, _)| format!("{}.{} ({})", import.module, import.name, import.ty));
            return Err(Error::UnknownImports(names.collect()));
        }
        let mut item = |definition| match definition {
            Definition::Item(item) => item,
            Definition::Host(number) => Extern::Func(store.host_func(self.hosts[number as usize].ty.clone(), number)),
        };
        Ok(found.into_iter().flatten().map(&mut item).collect())
    }

    /// Makes an instance and runs its start function.
    ///
    /// # Errors
    /// Those of [`Linker::resolve`], [`Store::instantiate`] and of the start function.
    pub fn instantiate<P: Probe>(&self, store: &mut Store, probe: &mut P, module: &Module) -> Result<InstanceId, CallError> {
        let imports = self.resolve(store, module)?;
        let instance = store.instantiate(module, &imports)?;
        if let Some(start) = module.start() {
            let Extern::Func(start) = store.item(instance, ExportItem::Func(start)) else {
                unreachable!("an index of a function stands for a function");
            };
            self.call(store, probe, start, &[])?;
        }
        Ok(instance)
    }

    /// Calls a function and runs to the end, serving the host calls that it makes.
    ///
    /// # Errors
    /// When the program traps or exits, or the arguments do not fit the function's type. A run that is suspended between two operators
    /// ends here with a trap; use [`Linker::advance`] to let it go on.
    pub fn call<P: Probe>(
        &self,
        store: &mut Store,
        probe: &mut P,
        func: FuncId,
        args: &[Val],
    ) -> Result<Vec<Val>, CallError> {
        let step = store.start(probe, func, args)?;
        let step = self.advance(store, probe, step)?;
        ended(store, probe, step)
    }

    /// Serves the host calls of a run from this step on, until it returns, traps or is suspended between two operators: that step.
    ///
    /// # Errors
    /// When a host function fails; the run has ended then.
    pub fn advance<P: Probe>(&self, store: &mut Store, probe: &mut P, mut step: Step) -> Result<Step, CallError> {
        while let Step::HostCall(call) = &step {
            let results = self.serve(store, probe, call);
            step = answer(store, probe, results)?;
        }
        Ok(step)
    }

    /// Counts a host function that begins, until the result is dropped.
    fn nest(&self) -> Result<Nested<'_>, HostError> {
        if self.nesting.get() == NESTING_MAX {
            return Err(Trap::new(TrapKind::StackOverflow, Vec::new()).into());
        }
        self.nesting.update(|depth| depth + 1);
        Ok(Nested(&self.nesting))
    }

    fn host(&self, call: &HostCall) -> Result<&Host, HostError> {
        let unknown = Error::OutOfTurn("a host function was called that another linker defined; use one linker per store");
        Ok(self.hosts.get(call.import as usize).ok_or(unknown)?)
    }

    fn serve<P: Probe>(&self, store: &mut Store, probe: &mut P, call: &HostCall) -> Result<Vec<Val>, HostError> {
        let host = self.host(call)?;
        let Serve::Now(serve) = &host.serve else { return Err(later::cannot_wait().into()) };
        let _depth = self.nest()?;
        let mut run = Run { linker: self, store, probe };
        let results = serve(&mut Caller { run: &mut run }, &call.args)?;
        check_values(store, || format!("the caller of {}", host.name), host.ty.results(), &results)?;
        Ok(results)
    }
}

/// A host function that runs.
struct Nested<'a>(&'a Cell<u32>);

impl Drop for Nested<'_> {
    fn drop(&mut self) {
        self.0.update(|depth| depth - 1);
    }
}

/// Goes on with what a host function gave.
fn answer<P: Probe>(store: &mut Store, probe: &mut P, results: Result<Vec<Val>, HostError>) -> Result<Step, CallError> {
    match results {
        Ok(results) => Ok(store.resume(probe, &results)?),
        // An exception passes through the host function, and may be caught further out.
        Err(HostError::Trap(trap)) if let Some(exception) = trap.exception() => Ok(store.throw(probe, exception)?),
        Err(error) => {
            store.unwind(probe);
            Err(error)
        }
    }
}

/// What a call gives that stopped so, and not at a host call.
fn ended<P: Probe>(store: &mut Store, probe: &mut P, step: Step) -> Result<Vec<Val>, CallError> {
    match step {
        Step::Returned(results) => Ok(results),
        Step::Trapped(trap) => Err(trap.into()),
        Step::Suspended(_) => Err(store.abandon(probe).expect("it was suspended just now").into()),
        Step::HostCall(_) => unreachable!("host calls were served"),
    }
}
