//! What a module imports, made anew for a replay.

use worksp_engine::{Extern, ExternType, GlobalType, MemoryType, Module, Store, TableType, Val};

use super::ReplayError;
use super::compare::{val_type, value_of};
use crate::recording::{Contents, ImportType, Recording};

/// Creates what the module imports, with the contents that it had when the request was recorded.
pub(super) fn make_imports(store: &mut Store, module: &Module, recording: &Recording) -> Result<Vec<Extern>, ReplayError> {
    let recorded = &recording.header().imports;
    let malformed = |what: String| ReplayError::Malformed { path: recording.path().to_path_buf(), event: 0, what };
    if recorded.len() != module.imports().len() {
        let what = format!("the header lists {} imports, but the module has {}", recorded.len(), module.imports().len());
        return Err(malformed(what));
    }
    let contents = |import: usize| recording.initial().iter().find(|i| i.import as usize == import).map(|i| &i.contents);
    let (mut externs, mut funcs) = (Vec::new(), 0);
    for (index, (import, wanted)) in recorded.iter().zip(module.imports()).enumerate() {
        let mismatch = || malformed(format!("import {}.{} does not match the module's", import.module, import.name));
        let made = match (&import.ty, contents(index)) {
            (ImportType::Func { .. }, None) => {
                let ExternType::Func(ty) = &wanted.ty else { return Err(mismatch()) };
                funcs += 1;
                Extern::Func(store.host_func(ty.clone(), funcs - 1))
            }
            (ImportType::Memory { pages, pages_max }, Some(Contents::Memory(bytes))) => {
                // A recording says how large it was; the rest of its type is the module's.
                let ExternType::Memory(ty) = wanted.ty else { return Err(mismatch()) };
                let memory = store.new_memory(MemoryType { min: *pages, max: *pages_max, ..ty })?;
                store.memory_mut(memory).get_mut(..bytes.len()).ok_or_else(mismatch)?.copy_from_slice(bytes);
                Extern::Memory(memory)
            }
            (ImportType::Table { element, elements, elements_max }, Some(Contents::Table(values))) => {
                let element = val_type(*element);
                let ExternType::Table(ty) = wanted.ty else { return Err(mismatch()) };
                let ty = TableType { element, min: *elements, max: *elements_max, ..ty };
                let table = store.new_table(ty, Val::zero(element))?;
                for (index, value) in values.iter().enumerate() {
                    store.table_set(table, index as u64, value_of(element, *value))?;
                }
                Extern::Table(table)
            }
            (ImportType::Global { value, mutable }, Some(Contents::Global(bits))) => {
                let content = val_type(*value);
                Extern::Global(store.new_global(GlobalType { content, mutable: *mutable }, value_of(content, *bits))?)
            }
            _ => return Err(mismatch()),
        };
        externs.push(made);
    }
    Ok(externs)
}
