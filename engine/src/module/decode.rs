//! Reads the sections of a module that was validated before: counts and indices can be trusted, and an error here means that
//! the decoder and the validator disagree.

use smallvec::SmallVec;
use wasmparser::{
    DataKind, ElementItems, ElementKind, ExternalKind, Operator, Parser, Payload, TableInit, TypeRef,
};

use super::{ConstExpr, ConstOp, DataSegment, ElemItems, ElemMode, ElemSegment, Export, ExportItem, Import, ModuleInner, val_type};
use crate::config::Engine;
use crate::error::Error;
use crate::value::{ExternType, FuncType, GlobalType, MemoryType, TableType, ValType};

/// Reads a valid module.
pub(super) fn decode(engine: &Engine, bytes: Box<[u8]>) -> Result<ModuleInner, Error> {
    let mut inner = ModuleInner {
        engine: engine.clone(),
        bytes: Box::default(),
        types: Vec::new(),
        func_types: Vec::new(),
        imports: Vec::new(),
        exports: Vec::new(),
        tables: Vec::new(),
        memories: Vec::new(),
        globals: Vec::new(),
        tags: Vec::new(),
        imported: Default::default(),
        table_inits: Vec::new(),
        global_inits: Vec::new(),
        data: Vec::new(),
        elems: Vec::new(),
        start: None,
        bodies: Vec::new(),
        custom_sections: Vec::new(),
        names: Default::default(),
        hash: Default::default(),
    };
    for payload in Parser::new(0).parse_all(&bytes) {
        inner.read(payload?, &bytes)?;
    }
    Ok(ModuleInner { bytes, ..inner })
}

impl From<wasmparser::Error> for Error {
    fn from(error: wasmparser::Error) -> Error {
        Error::Invalid { message: error.message().to_owned(), offset: error.offset() }
    }
}

/// The error for what validation should have refused.
fn surprise(what: &str, offset: usize) -> Error {
    Error::Invalid { message: format!("{what} got past validation"), offset }
}

impl ModuleInner {
    fn read(&mut self, payload: Payload<'_>, bytes: &[u8]) -> Result<(), Error> {
        match payload {
            Payload::TypeSection(section) => {
                for ty in section.into_iter_err_on_gc_types() {
                    let ty = self.func_type(&ty?)?;
                    self.types.push(ty);
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    self.import(import?)?;
                }
            }
            Payload::FunctionSection(section) => {
                for index in section {
                    self.func_types.push(index?);
                }
            }
            Payload::TableSection(section) => {
                for table in section {
                    let table = table?;
                    let ty = self.table_type(table.ty)?;
                    self.tables.push(ty);
                    self.table_inits.push(match table.init {
                        TableInit::RefNull => None,
                        TableInit::Expr(expr) => Some(const_expr(&expr)?),
                    });
                }
            }
            Payload::MemorySection(section) => {
                for ty in section {
                    self.memories.push(memory_type(ty?));
                }
            }
            Payload::TagSection(section) => {
                for ty in section {
                    self.tags.push(ty?.func_type_idx);
                }
            }
            Payload::GlobalSection(section) => {
                for global in section {
                    let global = global?;
                    let ty = self.global_type(global.ty)?;
                    self.globals.push(ty);
                    self.global_inits.push(const_expr(&global.init_expr)?);
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    self.export(export?)?;
                }
            }
            Payload::StartSection { func, .. } => self.start = Some(func),
            Payload::ElementSection(section) => {
                for elem in section {
                    self.elems.push(elem_segment(elem?)?);
                }
            }
            Payload::DataSection(section) => {
                for data in section {
                    self.data.push(data_segment(data?)?);
                }
            }
            Payload::CodeSectionEntry(body) => self.bodies.push(body.range()),
            Payload::CustomSection(section) => {
                let start = section.data_offset();
                let range = start..start + section.data().len();
                debug_assert_eq!(&bytes[range.clone()], section.data(), "offsets count from the start of the module");
                self.custom_sections.push((section.name().to_owned(), range));
            }
            _ => {}
        }
        Ok(())
    }

    fn import(&mut self, import: wasmparser::Import<'_>) -> Result<(), Error> {
        let ty = match import.ty {
            TypeRef::Func(index) => {
                self.imported.funcs += 1;
                self.func_types.push(index);
                ExternType::Func(self.types[index as usize].clone())
            }
            TypeRef::Table(ty) => {
                self.imported.tables += 1;
                let ty = self.table_type(ty)?;
                self.tables.push(ty);
                ExternType::Table(ty)
            }
            TypeRef::Memory(ty) => {
                self.imported.memories += 1;
                self.memories.push(memory_type(ty));
                ExternType::Memory(memory_type(ty))
            }
            TypeRef::Global(ty) => {
                self.imported.globals += 1;
                let ty = self.global_type(ty)?;
                self.globals.push(ty);
                ExternType::Global(ty)
            }
            TypeRef::Tag(ty) => {
                self.imported.tags += 1;
                self.tags.push(ty.func_type_idx);
                ExternType::Tag(self.types[ty.func_type_idx as usize].clone())
            }
            TypeRef::FuncExact(_) => return Err(surprise("an import of a refused feature", 0)),
        };
        self.imports.push(Import { module: import.module.to_owned(), name: import.name.to_owned(), ty });
        Ok(())
    }

    fn export(&mut self, export: wasmparser::Export<'_>) -> Result<(), Error> {
        let item = match export.kind {
            ExternalKind::Func => ExportItem::Func(export.index),
            ExternalKind::Table => ExportItem::Table(export.index),
            ExternalKind::Memory => ExportItem::Memory(export.index),
            ExternalKind::Global => ExportItem::Global(export.index),
            ExternalKind::Tag => ExportItem::Tag(export.index),
            ExternalKind::FuncExact => return Err(surprise("an export of a refused feature", 0)),
        };
        self.exports.push(Export { name: export.name.to_owned(), item });
        Ok(())
    }

    fn value_type(&self, ty: wasmparser::ValType) -> Result<ValType, Error> {
        val_type(&self.types, ty).ok_or_else(|| surprise("a value type of a refused feature", 0))
    }

    fn func_type(&self, ty: &wasmparser::FuncType) -> Result<FuncType, Error> {
        let list = |types: &[wasmparser::ValType]| types.iter().map(|ty| self.value_type(*ty)).collect::<Result<Vec<_>, _>>();
        Ok(FuncType::new(list(ty.params())?, list(ty.results())?))
    }

    fn global_type(&self, ty: wasmparser::GlobalType) -> Result<GlobalType, Error> {
        Ok(GlobalType { content: self.value_type(ty.content_type)?, mutable: ty.mutable })
    }

    fn table_type(&self, ty: wasmparser::TableType) -> Result<TableType, Error> {
        let element = self.value_type(wasmparser::ValType::Ref(ty.element_type))?;
        Ok(TableType { element, min: ty.initial, max: ty.maximum, index64: ty.table64 })
    }

    /// Module offset of the code section's contents (its count), just before which its header ends.
    pub(super) fn code_offset(&self) -> Option<usize> {
        if self.bodies.is_empty() {
            return None;
        }
        Parser::new(0).parse_all(&self.bytes).find_map(|payload| match payload {
            Ok(Payload::CodeSectionStart { range, .. }) => Some(range.start),
            _ => None,
        })
    }
}

fn memory_type(ty: wasmparser::MemoryType) -> MemoryType {
    let page_bytes_log2 = ty.page_size_log2.map_or(16, |log2| log2 as u8);
    MemoryType { min: ty.initial, max: ty.maximum, page_bytes_log2, index64: ty.memory64, shared: ty.shared }
}

fn data_segment(data: wasmparser::Data<'_>) -> Result<DataSegment, Error> {
    let active = match data.kind {
        DataKind::Passive => None,
        DataKind::Active { memory_index, offset_expr } => Some((memory_index, const_expr(&offset_expr)?)),
    };
    // The segment's range ends with its bytes.
    Ok(DataSegment { active, range: data.range.end - data.data.len()..data.range.end })
}

fn elem_segment(elem: wasmparser::Element<'_>) -> Result<ElemSegment, Error> {
    let mode = match elem.kind {
        ElementKind::Passive => ElemMode::Passive,
        ElementKind::Declared => ElemMode::Declared,
        ElementKind::Active { table_index, offset_expr } => {
            ElemMode::Active(table_index.unwrap_or(0), const_expr(&offset_expr)?)
        }
    };
    let items = match elem.items {
        ElementItems::Functions(funcs) => ElemItems::Funcs(funcs.into_iter().collect::<Result<_, _>>()?),
        ElementItems::Expressions(_, exprs) => {
            ElemItems::Exprs(exprs.into_iter().map(|expr| const_expr(&expr?)).collect::<Result<_, _>>()?)
        }
    };
    Ok(ElemSegment { mode, items })
}

fn const_expr(expr: &wasmparser::ConstExpr<'_>) -> Result<ConstExpr, Error> {
    let mut ops = SmallVec::new();
    let mut reader = expr.get_operators_reader();
    while !reader.eof() {
        let (op, offset) = reader.read_with_offset()?;
        ops.push(match op {
            Operator::I32Const { value } => ConstOp::Const(u128::from(value as u32)),
            Operator::I64Const { value } => ConstOp::Const(u128::from(value as u64)),
            Operator::F32Const { value } => ConstOp::Const(u128::from(value.bits())),
            Operator::F64Const { value } => ConstOp::Const(u128::from(value.bits())),
            Operator::V128Const { value } => ConstOp::Const(u128::from_le_bytes(*value.bytes())),
            Operator::RefNull { .. } => ConstOp::Const(0),
            Operator::RefFunc { function_index } => ConstOp::RefFunc(function_index),
            Operator::GlobalGet { global_index } => ConstOp::GlobalGet(global_index),
            Operator::I32Add => ConstOp::I32Add,
            Operator::I32Sub => ConstOp::I32Sub,
            Operator::I32Mul => ConstOp::I32Mul,
            Operator::I64Add => ConstOp::I64Add,
            Operator::I64Sub => ConstOp::I64Sub,
            Operator::I64Mul => ConstOp::I64Mul,
            Operator::End => break,
            _ => return Err(surprise("a constant operator of a refused feature", offset)),
        });
    }
    Ok(ConstExpr(ops))
}
