//! Where the C stack, static data and the heap lie in linear memory.
//!
//! If the initial stack pointer is at most `__data_end`, the stack lies below it and static data between it and `__data_end`;
//! otherwise static data lies below `__data_end` and the stack from there to it. Everything else is heap. Without `__data_end`
//! the data segments stand in for it, and where bss might follow them, the lowest stack pointer seen so far does.

use std::ops::Range;

use wasmparser::{DataKind, ExternalKind, Operator, Parser, Payload};
use worksp_engine::{MemoryType, Module};

use crate::edge::EdgeClass;

/// Leaf functions may use this much below the stack pointer without moving it (LLVM's red zone).
const RED_ZONE: u64 = 128;

/// The regions of memory 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The stack-pointer global and its initial value.
    sp: Option<(u32, u64)>,
    stack: Range<u64>,
    statics: Range<u64>,
    /// Whether the stack's lower end follows the lowest stack pointer seen.
    learns: bool,
    note: String,
}

/// What a module says about its own layout.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct LayoutFacts {
    /// The stack-pointer global and its initial value.
    pub sp: Option<(u32, u64)>,
    /// `__data_end`.
    pub data_end: Option<u64>,
    /// `__heap_base`.
    pub heap_base: Option<u64>,
    /// From the first to the last byte of active data segments.
    pub data: Option<Range<u64>>,
}

impl LayoutFacts {
    /// Reads them from a module's exports, names, globals and data segments.
    pub fn of_module(module: &Module) -> LayoutFacts {
        let mut facts = LayoutFacts::default();
        let mut globals: Vec<Option<(u64, bool)>> = vec![None; module.global_count() as usize];
        let imported = module.imports().iter().filter(|i| matches!(i.ty, worksp_engine::ExternType::Global(_))).count();
        let mut exported: Vec<(String, u32)> = Vec::new();
        // The module is valid: what cannot be read here is only left out.
        for payload in Parser::new(0).parse_all(module.bytes()).map_while(Result::ok) {
            match payload {
                Payload::GlobalSection(section) => {
                    for (i, global) in section.into_iter().flatten().enumerate() {
                        let value = const_value(&global.init_expr);
                        if let Some(slot) = globals.get_mut(imported + i) {
                            *slot = value.map(|value| (value, global.ty.mutable));
                        }
                    }
                }
                Payload::ExportSection(section) => {
                    let found = section.into_iter().flatten().filter(|e| e.kind == ExternalKind::Global);
                    exported.extend(found.map(|e| (e.name.to_owned(), e.index)));
                }
                Payload::DataSection(section) => {
                    for data in section.into_iter().flatten() {
                        let DataKind::Active { memory_index: 0, offset_expr } = data.kind else { continue };
                        let Some(start) = const_value(&offset_expr) else { continue };
                        let end = start + data.data.len() as u64;
                        let all = facts.data.get_or_insert(start..end);
                        *all = all.start.min(start)..all.end.max(end);
                    }
                }
                _ => {}
            }
        }
        let index_named = |name: &str| {
            let by_export = exported.iter().find(|(n, _)| n == name).map(|(_, i)| *i);
            by_export.or_else(|| (0..module.global_count()).find(|i| module.global_name(*i) == Some(name)))
        };
        let value_of = |i: u32| globals.get(i as usize).copied().flatten();
        facts.data_end = index_named("__data_end").and_then(value_of).map(|(value, _)| value);
        facts.heap_base = index_named("__heap_base").and_then(value_of).map(|(value, _)| value);
        let named_sp = index_named("__stack_pointer").and_then(|i| value_of(i).map(|(value, _)| (i, value)));
        facts.sp = named_sp.or_else(|| {
            // A linker puts the stack pointer first among the globals; it starts aligned, and inside the memory.
            let first = globals.iter().position(|g| g.is_some_and(|(_, mutable)| mutable))?;
            let value = globals[first]?.0;
            let bytes = |memory: MemoryType| memory.min.saturating_mul(memory.page_bytes());
            let memory = if module.memory_count() > 0 { bytes(module.memory_type(0)) } else { 0 };
            (first == imported && value > 0 && value % 16 == 0 && value <= memory).then_some((first as u32, value))
        });
        facts
    }
}

/// The value of a constant expression that is one constant.
fn const_value(expr: &wasmparser::ConstExpr<'_>) -> Option<u64> {
    let mut operators = expr.get_operators_reader();
    let value = match operators.read().ok()? {
        Operator::I32Const { value } => u64::from(value as u32),
        Operator::I64Const { value } => value as u64,
        _ => return None,
    };
    matches!(operators.read(), Ok(Operator::End)).then_some(value)
}

impl Layout {
    /// The regions that follow from what a module says.
    pub fn new(facts: &LayoutFacts) -> Layout {
        let data_end = facts.data_end.or(facts.heap_base).or(facts.data.as_ref().map(|d| d.end)).unwrap_or(0);
        let Some((_, sp)) = facts.sp else {
            let note = "stack unknown: no stack-pointer global was found".to_owned();
            return Layout { sp: None, stack: 0..0, statics: 0..data_end, learns: false, note };
        };
        let known_end = facts.data_end;
        let stack_first = match (known_end, &facts.data) {
            (Some(end), _) => sp <= end,
            (None, Some(data)) => sp <= data.start,
            (None, None) => true,
        };
        let source = if known_end.is_some() { "from __data_end" } else { "from the data segments" };
        if stack_first {
            let note = format!("stack below {sp:#x}, static data to {:#x} ({source})", data_end.max(sp));
            return Layout { sp: facts.sp, stack: 0..sp, statics: sp..data_end.max(sp), learns: false, note };
        }
        match known_end {
            Some(end) => {
                let note = format!("static data below {end:#x}, stack from there to {sp:#x} ({source})");
                Layout { sp: facts.sp, stack: end..sp, statics: 0..end, learns: false, note }
            }
            None => {
                let note = format!("stack from its lowest use to {sp:#x}, static data below (no __data_end: learned from the run)");
                Layout { sp: facts.sp, stack: sp..sp, statics: 0..sp, learns: true, note }
            }
        }
    }

    /// The stack-pointer global.
    pub fn sp_global(&self) -> Option<u32> {
        self.sp.map(|(global, _)| global)
    }

    /// Its initial value.
    pub fn sp_initial(&self) -> Option<u64> {
        self.sp.map(|(_, value)| value)
    }

    /// How the layout was found, for the report's footer.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// The stack pointer was set to `sp`.
    pub fn sp_set(&mut self, sp: u64) {
        let low = sp.saturating_sub(RED_ZONE);
        if self.learns && low < self.stack.start {
            let floor = self.statics.start;
            self.stack.start = low.max(floor);
            self.statics.end = self.stack.start;
        }
    }

    /// The class of an address of a memory.
    #[inline]
    pub fn region(&self, memory: u32, address: u64) -> EdgeClass {
        if memory != 0 {
            EdgeClass::Heap
        } else if self.stack.contains(&address) {
            EdgeClass::Stack
        } else if self.statics.contains(&address) {
            EdgeClass::Static
        } else {
            EdgeClass::Heap
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(facts: LayoutFacts, expect: &[(u64, EdgeClass)]) {
        let layout = Layout::new(&facts);
        for (address, class) in expect {
            assert_eq!(layout.region(0, *address), *class, "{address} in {layout:?}");
        }
        assert_eq!(layout.region(1, 0), EdgeClass::Heap);
    }

    #[test]
    fn regions_follow_from_the_facts() {
        use EdgeClass::{Heap, Stack, Static};
        let facts = |sp, data_end, data| LayoutFacts { sp, data_end, heap_base: None, data };
        check(facts(Some((0, 1024)), Some(2048), None), &[(0, Stack), (1023, Stack), (1024, Static), (2047, Static), (2048, Heap)]);
        check(facts(Some((0, 9000)), Some(2048), None), &[(0, Static), (2047, Static), (2048, Stack), (8999, Stack), (9000, Heap)]);
        check(facts(Some((0, 1024)), None, Some(1024..1500)), &[(1023, Stack), (1024, Static), (1500, Heap)]);
        check(facts(None, None, Some(1024..1500)), &[(0, Static), (1499, Static), (1500, Heap)]);
    }

    #[test]
    fn without_data_end_the_stack_is_learned() {
        let mut layout = Layout::new(&LayoutFacts { sp: Some((0, 66000)), data: Some(1024..1500), ..LayoutFacts::default() });
        assert_eq!(layout.region(0, 65800), EdgeClass::Static);
        layout.sp_set(65900);
        assert_eq!(layout.region(0, 65800), EdgeClass::Stack);
        assert_eq!(layout.region(0, 65000), EdgeClass::Static);
        assert_eq!(layout.region(0, 66000), EdgeClass::Heap);
    }
}
