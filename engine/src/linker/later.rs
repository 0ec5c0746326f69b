//! Calls as futures: a host function may take its time, and no thread waits for it.
//!
//! While a host function's future is pending, the run is suspended in the store, and the caller's future is pending too. Nothing here
//! knows of an executor.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use super::{CallError, Caller, Definition, Host, HostError, Linker, Run, Serve};
use crate::error::{Error, check_values};
use crate::execute::{HostCall, Step};
use crate::probe::Probe;
use crate::store::Store;
use crate::value::{FuncId, FuncType, Val};

/// What an asynchronous host function gives.
pub type HostFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<Val>, HostError>> + 'a>>;

/// An asynchronous host function.
pub(super) type AsyncHostFn = dyn for<'a> Fn(&'a mut Caller<'_>, &'a [Val]) -> HostFuture<'a>;

impl Linker {
    /// Defines an asynchronous function of the host, which calls made by [`Linker::call_async`] wait for. Its future may use the caller, and
    /// may call the program again with [`Caller::call_async`].
    ///
    /// # Example
    /// ```
    /// use worksp_engine::probe::NoProbe;
    /// use worksp_engine::{Config, Engine, FuncType, Linker, Module, Store, Val, ValType};
    /// async fn fetch(page: i32) -> i32 {
    ///     std::future::ready(()).await; // something that takes its time
    ///     page * 10
    /// }
    /// let engine = Engine::default();
    /// let text = r#"(module (import "env" "fetch" (func $fetch (param i32) (result i32)))
    ///     (func (export "both") (result i32) (i32.add (call $fetch (i32.const 1)) (call $fetch (i32.const 2)))))"#;
    /// let module = Module::from_text(&engine, text)?;
    /// let (mut store, mut linker) = (Store::new(&engine), Linker::new());
    /// linker.func_async("env", "fetch", FuncType::new([ValType::I32], [ValType::I32]), |_, args| {
    ///     let Val::I32(page) = args[0] else { unreachable!("arguments have the declared types") };
    ///     Box::pin(async move { Ok(vec![Val::I32(fetch(page).await)]) })
    /// });
    /// let instance = linker.instantiate(&mut store, &mut NoProbe, &module)?;
    /// let both = store.exported_func(instance, "both")?;
    /// let results = pollster::block_on(linker.call_async(&mut store, &mut NoProbe, both, &[]))?;
    /// assert_eq!(results, [Val::I32(30)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn func_async(
        &mut self,
        module: &str,
        name: &str,
        ty: FuncType,
        run: impl for<'a> Fn(&'a mut Caller<'_>, &'a [Val]) -> HostFuture<'a> + 'static,
    ) {
        self.add(module, name, ty, Serve::Later(Rc::new(run)));
    }

    /// As [`Linker::call`], waiting for asynchronous host functions. When the future is dropped before it is done, the run stays suspended at
    /// its host call: [`Store::pending`] says so, and [`Store::unwind`] gives it up.
    ///
    /// # Errors
    /// Those of [`Linker::call`].
    pub async fn call_async<P: Probe>(&self, store: &mut Store, probe: &mut P, func: FuncId, args: &[Val]) -> Result<Vec<Val>, CallError> {
        let step = store.start(probe, func, args)?;
        let step = self.advance_async(store, probe, step).await?;
        super::ended(store, probe, step)
    }

    /// As [`Linker::advance`], waiting for asynchronous host functions.
    ///
    /// # Errors
    /// When a host function fails; the run has ended then.
    pub async fn advance_async<P: Probe>(&self, store: &mut Store, probe: &mut P, mut step: Step) -> Result<Step, CallError> {
        while let Step::HostCall(call) = &step {
            let results = self.serve_async(store, probe, call).await;
            step = super::answer(store, probe, results)?;
        }
        Ok(step)
    }

    async fn serve_async<P: Probe>(&self, store: &mut Store, probe: &mut P, call: &HostCall) -> Result<Vec<Val>, HostError> {
        let host = self.host(call)?;
        let Serve::Later(run) = &host.serve else { return self.serve(store, probe, call) };
        let _depth = self.nest()?;
        let mut run_of = Run { linker: self, store, probe };
        let mut caller = Caller { run: &mut run_of };
        let results = run(&mut caller, &call.args).await?;
        check_values(store, || format!("the caller of {}", host.name), host.ty.results(), &results)?;
        Ok(results)
    }

    /// Adds a host function.
    pub(super) fn add(&mut self, module: &str, name: &str, ty: FuncType, serve: Serve) {
        let number = self.hosts.len() as u32;
        self.hosts.push(Host { name: format!("{module}.{name}"), ty, serve });
        self.names.insert((module.into(), name.into()), Definition::Host(number));
    }
}

impl Caller<'_> {
    /// As [`Caller::call`], waiting for asynchronous host functions.
    ///
    /// # Errors
    /// Those of [`Caller::call`].
    pub async fn call_async(&mut self, func: FuncId, args: &[Val]) -> Result<Vec<Val>, CallError> {
        self.run.call_async(func, args).await
    }
}

/// An asynchronous host function was called by who cannot wait.
pub(super) fn cannot_wait() -> Error {
    Error::OutOfTurn("the host function is asynchronous: make the call with `call_async`")
}
