//! Snapshots: a store as it is at one time, from which others are forked.
//!
//! The bytes of memories are copied once, into files without names; every fork maps them and copies a page where it writes to it.
//! Tables, globals and the value stack are small, and copied. Code is shared.

use super::{GlobalCell, Instance, Store};
use crate::error::Error;
use crate::memory::SharedCopy;

/// A store at one time, with every run that was suspended then.
pub struct Snapshot {
    /// Without memories.
    store: Store,
    memories: Vec<SharedCopy>,
}

impl Store {
    /// Keeps the store as it is now. Nothing runs at this time: what was started has ended, or is suspended.
    ///
    /// # Errors
    /// When the system has no memory for the copy.
    ///
    /// # Example
    /// ```
    /// use worksp_engine::probe::NoProbe;
    /// use worksp_engine::{Config, Engine, FuncType, Linker, Module, Step, Store, Val, ValType};
    /// let engine = Engine::new(Config::default());
    /// let text = r#"(module (import "env" "which" (func $which (result i32))) (memory 1)
    ///     (func (export "run") (result i32) (i32.store (i32.const 8) (i32.const 40))
    ///         (i32.store (i32.const 8) (i32.add (call $which) (i32.load (i32.const 8)))) (i32.load (i32.const 8))))"#;
    /// let module = Module::from_text(&engine, text)?;
    /// let mut store = Store::new(&engine);
    /// let which = store.host_func(FuncType::new([], [ValType::I32]), 0);
    /// let instance = store.instantiate(&module, &[worksp_engine::Extern::Func(which)])?;
    /// let run = store.exported_func(instance, "run")?;
    /// assert!(matches!(store.start(&mut NoProbe, run, &[])?, Step::HostCall(_)));
    /// // The call has two answers, one in each world.
    /// let mut fork = store.snapshot()?.fork()?;
    /// assert_eq!(store.resume(&mut NoProbe, &[Val::I32(1)])?, Step::Returned(vec![Val::I32(41)]));
    /// assert_eq!(fork.resume(&mut NoProbe, &[Val::I32(2)])?, Step::Returned(vec![Val::I32(42)]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let memories = self.memories.iter().map(|memory| memory.copy()).collect::<Result<_, _>>()?;
        Ok(Snapshot { store: self.without_memories()?, memories })
    }

    fn without_memories(&self) -> Result<Store, Error> {
        let copy = |global: &GlobalCell| GlobalCell::new(global.ty(), global.bits());
        let globals: Vec<GlobalCell> = self.globals.iter().map(copy).collect();
        let instance = |instance: &Instance| Instance {
            global_ptrs: instance.globals.iter().map(|id| globals[id.index()].ptr()).collect(),
            ..instance.clone()
        };
        let instances = self.instances.iter().map(instance).collect();
        Ok(Store {
            engine: self.engine.clone(),
            types: self.types.clone(),
            funcs: self.funcs.clone(),
            memories: Vec::new(),
            tables: self.tables.clone(),
            tags: self.tags.clone(),
            exceptions: self.exceptions.copy(),
            exec: self.copy_exec()?,
            instances,
            globals,
        })
    }
}

impl Snapshot {
    /// A store that is as the other was. It goes its own way: nothing that happens in one is seen in another. Not taken along are the
    /// store's meter, its deadline and its [`Interrupt`](crate::Interrupt), and exceptions that only [`Trap`](crate::Trap)s refer to may
    /// be freed.
    ///
    /// # Errors
    /// When the system gives no address space.
    pub fn fork(&self) -> Result<Store, Error> {
        let mut store = self.store.without_memories()?;
        for memory in &self.memories {
            store.memories.push(Box::new(memory.memory()?));
        }
        Ok(store)
    }
}
