//! The exceptions of a store: kept while something refers to them, freed by a sweep when they have become many.
//!
//! A sweep is made by a throw only, when no reference is in an accumulator: all are in slots of frames, globals, tables, payloads of
//! other exceptions, and in traps that the host keeps. Slots have no types, so that a frame's dead slot keeps an exception, too.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Store;
use crate::error::Error;
use crate::trap::Pinned;
use crate::value::{ExnId, TagId, Val};

/// Bytes from which on a sweep is worth its while.
const SWEEP_MIN: usize = 1 << 20;

/// All that are kept.
#[derive(Debug)]
pub(crate) struct Exceptions {
    kept: FxHashMap<ExnId, Exception>,
    next: u64,
    bytes: usize,
    /// Bytes at which the next sweep is made.
    sweep_at: usize,
}

/// One exception.
#[derive(Debug)]
pub(crate) struct Exception {
    pub(crate) tag: TagId,
    /// The slots of the values that it carries.
    pub(crate) payload: Box<[u64]>,
    /// Set once a trap told the host about it; others share it as long as they may come back to it.
    pin: Option<Arc<()>>,
}

impl Exception {
    fn bytes(&self) -> usize {
        size_of::<(ExnId, Exception)>() + size_of_val(&*self.payload)
    }

    fn is_pinned(&self) -> bool {
        self.pin.as_ref().is_some_and(|pin| Arc::strong_count(pin) > 1)
    }
}

impl Default for Exceptions {
    fn default() -> Exceptions {
        Exceptions { kept: FxHashMap::default(), next: 0, bytes: 0, sweep_at: SWEEP_MIN }
    }
}

impl Exceptions {
    /// The exception behind a raw reference; `None` for null.
    pub(crate) fn get(&self, raw: u64) -> Option<&Exception> {
        self.kept.get(&ExnId::from_raw(raw)?)
    }

    /// All that are kept, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ExnId, &Exception)> {
        self.kept.iter().map(|(id, exception)| (*id, exception))
    }

    /// The same exceptions, which no trap keeps.
    pub(super) fn copy(&self) -> Exceptions {
        let copy = |(id, e): (&ExnId, &Exception)| (*id, Exception { tag: e.tag, payload: e.payload.clone(), pin: None });
        Exceptions { kept: self.kept.iter().map(copy).collect(), ..*self }
    }

    /// The number of the next one.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Puts an exception back; `false` when its number is taken.
    pub(super) fn insert(&mut self, id: u64, tag: TagId, payload: Box<[u64]>) -> bool {
        let exception = Exception { tag, payload, pin: None };
        self.bytes += exception.bytes();
        self.kept.insert(ExnId(id), exception).is_none()
    }

    /// Sets the number of the next one; `false` when one that is kept has it or a later one.
    pub(super) fn set_next(&mut self, next: u64) -> bool {
        self.next = next;
        next < 1 << 48 && self.kept.keys().all(|id| id.0 < next)
    }

    /// Keeps an exception for as long as the result lives.
    pub(crate) fn pin(&mut self, raw: u64) -> Option<Pinned> {
        let id = ExnId::from_raw(raw)?;
        let pin = self.kept.get_mut(&id)?.pin.get_or_insert_default().clone();
        Some(Pinned { id, pin })
    }
}

impl Store {
    /// The tag of an exception and the values that it carries; `None` when it was freed.
    pub fn exception(&self, id: ExnId) -> Option<(TagId, Vec<Val>)> {
        let exception = self.exceptions.kept.get(&id)?;
        Some((exception.tag, Val::from_slots(self.tag_type(exception.tag).params(), &exception.payload)))
    }

    /// How many exceptions are kept.
    pub fn exceptions_count(&self) -> usize {
        self.exceptions.kept.len()
    }

    /// Makes an exception and gives a raw reference to it; `stack` is the part of the value stack that is in use. `None` at the limit.
    pub(crate) fn make_exception(&mut self, tag: TagId, payload: Box<[u64]>, stack: &[u64]) -> Option<u64> {
        let exception = Exception { tag, payload, pin: None };
        let limit = self.engine.config().limits.exception_bytes_max;
        let needed = self.exceptions.bytes + exception.bytes();
        if needed > self.exceptions.sweep_at.min(limit) {
            self.sweep(stack.iter().chain(&exception.payload).copied());
            if self.exceptions.bytes + exception.bytes() > limit {
                return None;
            }
            // As much again may be made before the next one.
            self.exceptions.sweep_at = (2 * (self.exceptions.bytes + exception.bytes())).max(SWEEP_MIN);
        }
        let exceptions = &mut self.exceptions;
        let id = ExnId(exceptions.next);
        assert!(id.0 < 1 << 48, "nobody lives long enough to throw so often");
        exceptions.next += 1;
        exceptions.bytes += exception.bytes();
        exceptions.kept.insert(id, exception);
        Some(id.raw())
    }

    /// Frees what cannot be reached from these slots, nor from anything else.
    fn sweep(&mut self, slots: impl Iterator<Item = u64>) {
        let tables = self.tables.iter().filter(|table| table.ty.element.is_exn()).flat_map(|table| table.elems.iter().copied());
        let globals = self.globals.iter().filter(|global| global.ty().content.is_exn()).map(|global| global.bits() as u64);
        let kept = &self.exceptions.kept;
        let mut reached: FxHashSet<ExnId> = FxHashSet::default();
        let mut open: Vec<ExnId> = slots.chain(tables).chain(globals).filter_map(ExnId::from_raw).collect();
        open.extend(kept.iter().filter(|(_, exception)| exception.is_pinned()).map(|(id, _)| *id));
        while let Some(id) = open.pop() {
            if let Some(exception) = kept.get(&id)
                && reached.insert(id)
            {
                open.extend(exception.payload.iter().copied().filter_map(ExnId::from_raw));
            }
        }
        let exceptions = &mut self.exceptions;
        exceptions.kept.retain(|id, _| reached.contains(id));
        exceptions.bytes = exceptions.kept.values().map(Exception::bytes).sum();
    }

    /// Checks that values that the host hands over refer to functions that there are, and to no exception that was freed.
    pub(crate) fn check_references(&self, values: &[Val]) -> Result<(), Error> {
        let is_gone = |value: &Val| match value {
            Val::ExnRef(Some(id)) => !self.exceptions.kept.contains_key(id),
            Val::FuncRef(Some(id)) => id.index() >= self.funcs.len(),
            _ => false,
        };
        match values.iter().find(|value| is_gone(value)) {
            Some(value @ Val::FuncRef(_)) => Err(Error::BadWrite(format!("{value} is no function of this store"))),
            Some(value) => Err(Error::BadWrite(format!("{value} is no exception of this store, or it was freed"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Engine, Limits};
    use crate::value::{FuncType, GlobalType, TableType, ValType};

    #[test]
    fn a_sweep_keeps_what_is_referred_to() {
        let limits = Limits { exception_bytes_max: 6000, ..Limits::default() };
        let mut store = Store::new(&Engine::new(Config { limits, ..Config::default() }));
        let tag = store.new_tag(FuncType::new([ValType::I64, ValType::ExnRef], []));
        let value = |raw| Val::ExnRef(ExnId::from_raw(raw));
        let make = |store: &mut Store, of: u64, stack: &[u64]| store.make_exception(tag, [7, of].into(), stack);
        let [in_payload, in_slot] = [0, 0].map(|of| make(&mut store, of, &[]).unwrap());
        let in_global = make(&mut store, in_payload, &[]).unwrap();
        let in_table = make(&mut store, 0, &[]).unwrap();
        let pinned = make(&mut store, 0, &[]).unwrap();
        let pin = store.exceptions.pin(pinned).unwrap();
        let global = store.new_global(GlobalType { content: ValType::ExnRef, mutable: true }, value(in_global)).unwrap();
        let table = store.new_table(TableType::new(ValType::ExnRef, 2, None), Val::ExnRef(None)).unwrap();
        store.table_set(table, 1, value(in_table)).unwrap();
        for _ in 0..10_000 {
            make(&mut store, 0, &[3, in_slot]).expect("what nothing refers to is freed");
        }
        let kept = |store: &Store, raw| store.exception(ExnId::from_raw(raw).unwrap()).is_some();
        assert!([in_payload, in_slot, in_global, in_table, pinned].iter().all(|raw| kept(&store, *raw)));
        assert_eq!(store.exception(pin.id), Some((tag, vec![Val::I64(7), Val::ExnRef(None)])));
        drop(pin);
        store.set_global(global, Val::ExnRef(None)).unwrap();
        let chain = (0..10_000).try_fold(0, |last, _| make(&mut store, last, &[]));
        assert_eq!(chain, None, "a chain that is referred to cannot be freed");
        assert!([in_payload, in_slot, in_global, pinned].iter().all(|raw| !kept(&store, *raw)));
        assert!(kept(&store, in_table) && store.exceptions_count() > 20);
        assert!(matches!(store.set_global(global, value(pinned)), Err(Error::BadWrite(_))));
        assert!(store.set_global(global, value(in_table)).is_ok());
    }
}
