//! Instantiation: imports are matched, everything is allocated, then active segments are written in the specification's order.

use std::sync::Arc;

use super::{Func, Instance, Store};
use crate::error::{Error, InstantiateError};
use crate::module::{ConstExpr, ConstOp, ElemItems, ElemMode, Import, Module};
use crate::mutants::mutant;
use crate::table::Table;
use crate::trap::{Trap, TrapKind};
use crate::value::{Extern, ExternType, FuncId, InstanceId, MemoryType, TableId, TableType, TagId, Val};

impl Store {
    /// Makes an instance of a module; `imports` are in the module's order. The start function is *not* run: the caller runs
    /// [`Module::start`], because it may call the host.
    ///
    /// # Errors
    /// When imports are missing or do not match, when a limit is exceeded, and as a trap when an active segment does not fit.
    /// After a trap, segments before that one stay written, and so does everything that they refer to.
    ///
    /// # Example
    /// ```
    /// use worksp_engine::{Config, Engine, Extern, Module, Store};
    /// let engine = Engine::new(Config::default());
    /// let text = r#"(module (memory (export "m") 1) (data (i32.const 2) "hi"))"#;
    /// let mut store = Store::new(&engine);
    /// let instance = store.instantiate(&Module::from_text(&engine, text).unwrap(), &[]).unwrap();
    /// let Some(Extern::Memory(memory)) = store.export(instance, "m") else { unreachable!() };
    /// assert_eq!(&store.memory(memory)[..4], b"\0\0hi");
    /// ```
    pub fn instantiate(&mut self, module: &Module, imports: &[Extern]) -> Result<InstanceId, InstantiateError> {
        self.check_imports(module.imports(), imports)?;
        let mut instance = self.with_imports(module, imports);
        let id = InstanceId(self.instances.len() as u32);
        self.add_funcs(&mut instance, id);
        self.add_memories_and_tables(&mut instance)?;
        self.add_globals(&mut instance)?;
        self.add_tags(&mut instance);
        self.fill_tables(&instance);
        let elems = module.inner().elems.iter();
        instance.elem_segments = elems.map(|elem| Some(self.elem_refs(&instance, &elem.items))).collect();
        instance.data_dropped = vec![false; module.inner().data.len()];
        // From here on the instance exists even if a segment traps: tables of others may refer to its functions.
        self.instances.push(instance);
        self.write_elems(id)?;
        self.write_data(id)?;
        Ok(id)
    }

    fn check_imports(&self, expected: &[Import], given: &[Extern]) -> Result<(), Error> {
        if expected.len() != given.len() {
            return Err(Error::ImportCount { expected: expected.len(), given: given.len() });
        }
        for (import, item) in expected.iter().zip(given) {
            let found = self.extern_type(*item);
            if !matches(&import.ty, &found) {
                return Err(Error::ImportType {
                    module: import.module.clone(),
                    name: import.name.clone(),
                    expected: import.ty.to_string(),
                    found: found.to_string(),
                });
            }
        }
        Ok(())
    }

    /// An instance that has its imports and nothing of its own yet.
    fn with_imports(&mut self, module: &Module, imports: &[Extern]) -> Instance {
        let mut instance = Instance {
            module: module.clone(),
            funcs: Vec::with_capacity(module.inner().func_types.len()),
            memories: Vec::new(),
            tables: Vec::new(),
            globals: Vec::with_capacity(module.inner().globals.len()),
            tags: Vec::with_capacity(module.inner().tags.len()),
            global_ptrs: Vec::with_capacity(module.inner().globals.len()),
            elem_segments: Vec::new(),
            data_dropped: Vec::new(),
            type_ids: module.inner().types.iter().map(|ty| self.types.id(ty)).collect(),
        };
        for item in imports {
            match *item {
                Extern::Func(id) => instance.funcs.push(id),
                Extern::Table(id) => instance.tables.push(id),
                Extern::Memory(id) => instance.memories.push(id),
                Extern::Tag(id) => instance.tags.push(id),
                Extern::Global(id) => {
                    instance.globals.push(id);
                    instance.global_ptrs.push(self.globals[id.index()].ptr());
                }
            }
        }
        instance
    }

    fn add_funcs(&mut self, instance: &mut Instance, id: InstanceId) {
        let module = instance.module.clone();
        for index in module.imported_func_count()..module.func_count() {
            let ty = instance.type_ids[module.func_type_index(index) as usize];
            instance.funcs.push(self.add_func(Func::Wasm { instance: id, index, ty }));
        }
    }

    fn add_memories_and_tables(&mut self, instance: &mut Instance) -> Result<(), Error> {
        let module = instance.module.clone();
        let inner = module.inner();
        for ty in &inner.memories[inner.imported.memories as usize..] {
            instance.memories.push(self.new_memory(*ty)?);
        }
        for ty in &inner.tables[inner.imported.tables as usize..] {
            // Elements that are never null get their values once there are globals.
            let table = Table::filled(*ty, 0, &self.engine.config().limits)?;
            self.tables.push(Box::new(table));
            instance.tables.push(TableId(self.tables.len() as u32 - 1));
        }
        Ok(())
    }

    fn add_globals(&mut self, instance: &mut Instance) -> Result<(), Error> {
        let module = instance.module.clone();
        let inner = module.inner();
        let own = &inner.globals[inner.imported.globals as usize..];
        for (ty, init) in own.iter().zip(&inner.global_inits) {
            let value = self.eval(instance, init);
            let id = self.add_global(*ty, value);
            instance.globals.push(id);
            instance.global_ptrs.push(self.globals[id.index()].ptr());
        }
        Ok(())
    }

    fn add_tags(&mut self, instance: &mut Instance) {
        let module = instance.module.clone();
        let inner = module.inner();
        for ty in &inner.tags[inner.imported.tags as usize..] {
            self.tags.push(instance.type_ids[*ty as usize]);
            instance.tags.push(TagId(self.tags.len() as u32 - 1));
        }
    }

    /// Tables whose elements start as something else than null.
    fn fill_tables(&mut self, instance: &Instance) {
        let inner = instance.module.inner();
        for (defined, init) in inner.table_inits.iter().enumerate() {
            if let Some(init) = init {
                let value = self.eval(instance, init) as u64;
                let id = instance.tables[inner.imported.tables as usize + defined];
                self.tables[id.index()].elems.fill(value);
            }
        }
    }

    pub(super) fn elem_refs(&self, instance: &Instance, items: &ElemItems) -> Arc<[u64]> {
        match items {
            ElemItems::Funcs(funcs) => funcs.iter().map(|func| raw_func(instance.funcs[*func as usize])).collect(),
            ElemItems::Exprs(exprs) => exprs.iter().map(|expr| self.eval(instance, expr) as u64).collect(),
        }
    }

    /// Writes the active element segments, in order; each is dropped afterwards, and so are declared ones.
    fn write_elems(&mut self, id: InstanceId) -> Result<(), Trap> {
        let module = self.module(id).clone();
        for (index, elem) in module.inner().elems.iter().enumerate() {
            if let ElemMode::Active(table, offset) = &elem.mode {
                let instance = &self.instances[id.index()];
                let offset = self.eval(instance, offset) as u64;
                let table = instance.tables[*table as usize];
                let refs = instance.elem_segments[index].clone().expect("a segment is dropped after it was written");
                let elems = &mut self.tables[table.index()].elems;
                let place = range(offset, refs.len(), elems.len());
                let place = place.ok_or_else(|| Trap::new(TrapKind::TableOutOfBounds, Vec::new()))?;
                elems[place].copy_from_slice(&refs);
            }
            if !matches!(elem.mode, ElemMode::Passive) {
                self.instances[id.index()].elem_segments[index] = None;
            }
        }
        Ok(())
    }

    /// Writes the active data segments, in order; each is dropped afterwards.
    fn write_data(&mut self, id: InstanceId) -> Result<(), Trap> {
        let module = self.module(id).clone();
        for (index, data) in module.inner().data.iter().enumerate() {
            if let Some((memory, offset)) = &data.active {
                let instance = &self.instances[id.index()];
                let offset = self.eval(instance, offset) as u64;
                let memory = instance.memories[*memory as usize];
                let bytes = self.memories[memory.index()].bytes_mut();
                let place = range(offset, data.range.len(), bytes.len());
                let place = place.ok_or_else(|| Trap::new(TrapKind::MemoryOutOfBounds, Vec::new()))?;
                bytes[place].copy_from_slice(&module.bytes()[data.range.clone()]);
                self.instances[id.index()].data_dropped[index] = !mutant!(ActiveSegmentKept);
            }
        }
        Ok(())
    }

    /// The bits that a constant expression computes. It may use the globals that the instance has so far.
    fn eval(&self, instance: &Instance, expr: &ConstExpr) -> u128 {
        let mut stack: Vec<u128> = Vec::new();
        for op in &expr.0 {
            let value = match *op {
                ConstOp::Const(bits) => bits,
                ConstOp::GlobalGet(index) => self.globals[instance.globals[index as usize].index()].bits(),
                ConstOp::RefFunc(index) => u128::from(raw_func(instance.funcs[index as usize])),
                arithmetic => {
                    let (right, left) = (stack.pop(), stack.pop());
                    let operand = |bits: Option<u128>| bits.expect("valid expression") as u64;
                    u128::from(binary(arithmetic, operand(left), operand(right)))
                }
            };
            stack.push(value);
        }
        stack.pop().expect("a valid constant expression leaves one value")
    }
}

fn binary(op: ConstOp, left: u64, right: u64) -> u64 {
    let narrow = |value: u32| u64::from(value);
    match op {
        ConstOp::I32Add => narrow((left as u32).wrapping_add(right as u32)),
        ConstOp::I32Sub if mutant!(ConstantSubSwapped) => narrow((right as u32).wrapping_sub(left as u32)),
        ConstOp::I32Sub => narrow((left as u32).wrapping_sub(right as u32)),
        ConstOp::I32Mul => narrow((left as u32).wrapping_mul(right as u32)),
        ConstOp::I64Add => left.wrapping_add(right),
        ConstOp::I64Sub => left.wrapping_sub(right),
        ConstOp::I64Mul => left.wrapping_mul(right),
        ConstOp::Const(_) | ConstOp::GlobalGet(_) | ConstOp::RefFunc(_) => unreachable!("no arithmetic operator"),
    }
}

fn raw_func(id: FuncId) -> u64 {
    Val::FuncRef(Some(id)).raw()
}

/// `offset..offset + len` if it ends within `size`.
fn range(offset: u64, len: usize, size: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(len).filter(|&end| end <= size)?;
    Some(start..end)
}

/// Whether something of type `found` can be imported as `expected`.
fn matches(expected: &ExternType, found: &ExternType) -> bool {
    let limits = |min: u64, max: Option<u64>, found_min: u64, found_max: Option<u64>| {
        found_min >= min && max.is_none_or(|max| found_max.is_some_and(|found| found <= max))
    };
    match (expected, found) {
        (ExternType::Func(expected), ExternType::Func(found)) => expected == found,
        (ExternType::Global(expected), ExternType::Global(found)) => {
            expected == found || (!expected.mutable && !found.mutable && found.content.is_subtype_of(expected.content))
        }
        (ExternType::Tag(expected), ExternType::Tag(found)) => expected == found,
        (ExternType::Memory(expected), ExternType::Memory(found)) => {
            let alike = |ty: &MemoryType| (ty.page_bytes_log2, ty.index64, ty.shared);
            alike(expected) == alike(found) && limits(expected.min, expected.max, found.min, found.max)
        }
        (ExternType::Table(expected), ExternType::Table(found)) => {
            let alike = |ty: &TableType| (ty.element, ty.index64);
            alike(expected) == alike(found) && limits(expected.min, expected.max, found.min, found.max)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Engine};
    use crate::value::{FuncType, GlobalType, ValType};

    fn module(text: &str) -> Module {
        Module::from_text(&Engine::default(), text).unwrap()
    }

    #[test]
    fn imports_match_by_the_rules_of_subtyping() {
        let memory = |min, max| ExternType::Memory(MemoryType::new(min, max));
        let table = |element, min, max| ExternType::Table(TableType::new(element, min, max));
        let global = |mutable| ExternType::Global(GlobalType { content: ValType::I32, mutable });
        let check = |expected: ExternType, found: ExternType, answer: bool| {
            assert_eq!(matches(&expected, &found), answer, "{found} given for {expected}");
        };
        check(memory(1, None), memory(2, Some(3)), true);
        check(memory(1, Some(3)), memory(2, None), false);
        check(memory(1, Some(3)), memory(2, Some(3)), true);
        check(memory(1, Some(3)), memory(2, Some(4)), false);
        check(memory(3, None), memory(2, None), false);
        let of_bytes = ExternType::Memory(MemoryType { page_bytes_log2: 0, ..MemoryType::new(1, None) });
        check(of_bytes.clone(), of_bytes.clone(), true);
        check(of_bytes.clone(), memory(1, None), false);
        check(memory(0, None), of_bytes, false);
        let shared = ExternType::Memory(MemoryType { shared: true, ..MemoryType::new(1, Some(2)) });
        check(shared.clone(), shared.clone(), true);
        check(shared.clone(), memory(1, Some(2)), false);
        check(memory(1, Some(2)), shared, false);
        let wide = ExternType::Memory(MemoryType { index64: true, ..MemoryType::new(1, None) });
        check(wide.clone(), wide.clone(), true);
        check(wide, memory(1, None), false);
        let wide = ExternType::Table(TableType { index64: true, ..TableType::new(ValType::FuncRef, 1, None) });
        check(table(ValType::FuncRef, 0, None), wide, false);
        check(table(ValType::FuncRef, 0, None), table(ValType::ExternRef, 0, None), false);
        check(table(ValType::FuncRef, 0, Some(9)), table(ValType::FuncRef, 5, Some(8)), true);
        check(global(true), global(false), false);
        check(global(false), global(true), false);
        check(global(true), global(true), true);
        check(memory(0, None), global(true), false);
        let constant = |content| ExternType::Global(GlobalType { content, mutable: false });
        check(constant(ValType::ExnRef), constant(ValType::NullExnRef), true);
        check(constant(ValType::NullExnRef), constant(ValType::ExnRef), false);
        let tag = |params: &[ValType]| ExternType::Tag(FuncType::new(params.iter().copied(), []));
        check(tag(&[ValType::I32]), tag(&[ValType::I32]), true);
        check(tag(&[ValType::I32]), tag(&[]), false);
    }

    #[test]
    fn constants_are_computed_in_order() {
        let mut store = Store::new(&Engine::default());
        let base = store.new_global(GlobalType { content: ValType::I32, mutable: false }, Val::I32(-3)).unwrap();
        let text = r#"(module (import "e" "base" (global i32))
            (global i32 (i32.mul (i32.add (global.get 0) (i32.const 1)) (i32.const 5)))
            (global i64 (i64.sub (i64.const 1) (i64.const 2)))
            (global funcref (ref.func 0)) (global externref (ref.null extern)) (func))"#;
        let instance = store.instantiate(&module(text), &[Extern::Global(base)]).unwrap();
        let value = |index| store.global(store.global_id(instance, index));
        assert_eq!([value(1), value(2)], [Val::I32(-10), Val::I64(-1)]);
        assert_eq!([value(3), value(4)], [Val::FuncRef(Some(store.func(instance, 0))), Val::ExternRef(None)]);
    }

    #[test]
    fn segments_before_a_trap_stay_written() {
        let mut store = Store::new(&Engine::default());
        let memory = store.new_memory(MemoryType::new(1, None)).unwrap();
        let table = store.new_table(TableType::new(ValType::FuncRef, 2, None), Val::FuncRef(None)).unwrap();
        let text = r#"(module (import "e" "m" (memory 1)) (import "e" "t" (table 2 funcref)) (func $f)
            (elem (i32.const 1) $f) (data (i32.const 0) "a") (data (i32.const 65536) "b") (data (i32.const 1) "c"))"#;
        let error = store.instantiate(&module(text), &[Extern::Memory(memory), Extern::Table(table)]).unwrap_err();
        let InstantiateError::Trap(trap) = error else { panic!("{error}") };
        assert_eq!(trap.kind(), TrapKind::MemoryOutOfBounds);
        assert_eq!(&store.memory(memory)[..2], b"a\0");
        let Some(Val::FuncRef(Some(func))) = store.table_get(table, 1) else { panic!("the element was written") };
        assert_eq!(store.func_type(func), &FuncType::new([], []));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let mut store = Store::new(&Engine::default());
        let func = store.host_func(FuncType::new([ValType::I32], []), 0);
        let wants = module(r#"(module (import "env" "f" (func (param i64))))"#);
        let message = |result: Result<InstanceId, InstantiateError>| result.unwrap_err().to_string();
        assert_eq!(
            message(store.instantiate(&wants, &[Extern::Func(func)])),
            "incompatible import type: env.f is imported as function [i64] -> [], but function [i32] -> [] was given"
        );
        assert_eq!(message(store.instantiate(&wants, &[])), "the module has 1 imports but 0 were given");
        let engine = Engine::new(Config { limits: crate::Limits { memory_bytes_max: 65536, ..Default::default() }, ..Default::default() });
        let large = Module::from_text(&engine, "(module (memory 2))").unwrap();
        assert_eq!(
            message(Store::new(&engine).instantiate(&large, &[])),
            "a linear memory's initial size needs 131072, but the limit is 65536; raise the memory limit"
        );
    }
}
