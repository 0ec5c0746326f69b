//! Translation ahead of the first call: all functions of an instance, on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Shape;
use crate::error::Error;
use crate::parallel::on_each;
use crate::probe::{Probe, SiteTable};
use crate::store::Store;
use crate::translate::{Code, translate};
use crate::value::InstanceId;

/// Functions that a thread takes at a time.
const BATCH: usize = 32;

impl Store {
    /// Translates all functions of an instance for this type of probe; otherwise each is translated when it is called first. Plain code
    /// is made by so many threads; sites are numbered in order, so that one thread makes traced code.
    ///
    /// # Errors
    /// When a function's code outgrows its fields.
    ///
    /// # Example
    /// ```
    /// use worksp_engine::probe::NoProbe;
    /// use worksp_engine::{Engine, Module, Store};
    /// let engine = Engine::default();
    /// let module = Module::from_text(&engine, r#"(module (func) (func (result i32) i32.const 1))"#)?;
    /// let mut store = Store::new(&engine);
    /// let instance = store.instantiate(&module, &[])?;
    /// store.translate(&mut NoProbe, instance, 2)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn translate<P: Probe>(&mut self, probe: &mut P, instance: InstanceId, threads: usize) -> Result<(), Error> {
        let handlers = self.select_code::<P>();
        let module = self.module(instance).clone();
        let set = self.code_set(instance.0);
        let missing = (module.imported_func_count()..module.func_count()).filter(|func| self.exec.codes[set].bodies[*func as usize].is_none());
        let missing: Vec<u32> = missing.collect();
        if P::TRACED {
            return missing.iter().try_for_each(|func| self.make_code(probe, instance.0, *func, &handlers));
        }
        let made = self.translate_plain(instance.0, Shape::of::<P>(), &missing, threads.clamp(1, 256))?;
        for (func, code) in made {
            self.link(instance.0, func, code, &handlers);
        }
        Ok(())
    }

    fn translate_plain(&self, instance: u32, shape: Shape, funcs: &[u32], threads: usize) -> Result<Vec<(u32, Code)>, Error> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut made = Vec::new();
            loop {
                // Only a counter: what is translated is not written by anybody.
                let first = next.fetch_add(BATCH, Ordering::Relaxed);
                let Some(batch) = funcs.get(first..).filter(|rest| !rest.is_empty()) else { return Ok::<_, Error>(made) };
                for func in &batch[..batch.len().min(BATCH)] {
                    let mut no_sites = SiteTable::default();
                    made.push((*func, translate(self.request(instance, *func, shape, false, &mut no_sites))?));
                }
            }
        };
        let mut all = Vec::with_capacity(funcs.len());
        for made in on_each(threads, work) {
            all.append(&mut made?);
        }
        Ok(all)
    }
}
