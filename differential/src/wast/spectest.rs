//! The host module `spectest` that scripts import from.

use worksp_engine::{
    Error, Extern, FuncType, GlobalType, Linker, MemoryType, Store, TableType, Val,
    ValType::{self, F32, F64, FuncRef, I32, I64},
};

/// Functions that print; here they do nothing.
const PRINTS: &[(&str, &[ValType])] = &[
    ("print", &[]),
    ("print_i32", &[I32]),
    ("print_i64", &[I64]),
    ("print_f32", &[F32]),
    ("print_f64", &[F64]),
    ("print_i32_f32", &[I32, F32]),
    ("print_f64_f64", &[F64, F64]),
];

/// Defines the module.
pub(super) fn define(linker: &mut Linker, store: &mut Store) -> Result<(), Error> {
    for (name, params) in PRINTS {
        let ty = FuncType::new(params.iter().copied(), []);
        linker.func("spectest", name, ty, |_, _| Ok(Vec::new()));
    }
    let globals = [
        ("global_i32", Val::I32(666)),
        ("global_i64", Val::I64(666)),
        ("global_f32", Val::F32(666.6_f32.to_bits())),
        ("global_f64", Val::F64(666.6_f64.to_bits())),
    ];
    for (name, value) in globals {
        let global = store.new_global(GlobalType { content: value.ty(), mutable: false }, value)?;
        linker.define("spectest", name, Extern::Global(global));
    }
    let memory = store.new_memory(MemoryType::new(1, Some(2)))?;
    linker.define("spectest", "memory", Extern::Memory(memory));
    let shared = store.new_memory(MemoryType { shared: true, ..MemoryType::new(1, Some(2)) })?;
    linker.define("spectest", "shared_memory", Extern::Memory(shared));
    let table64 = TableType { index64: true, ..TableType::new(FuncRef, 10, Some(20)) };
    let table64 = store.new_table(table64, Val::FuncRef(None))?;
    linker.define("spectest", "table64", Extern::Table(table64));
    let table = TableType::new(FuncRef, 10, Some(20));
    let table = store.new_table(table, Val::FuncRef(None))?;
    linker.define("spectest", "table", Extern::Table(table));
    Ok(())
}
