//! A decoded and validated module: everything about it that does not depend on a run.

mod decode;
mod features;
mod names;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use wasmparser::{BinaryReader, FunctionBody};

use crate::config::Engine;
use crate::error::Error;
use crate::interned::FuncTypeRef;
use crate::mutants::mutant;
use crate::value::{ExternType, FuncType, GlobalType, MemoryType, TableType, ValType};
use names::Names;

/// A module, validated and ready to be instantiated any number of times. Cloning is cheap.
#[derive(Clone)]
pub struct Module {
    inner: Arc<ModuleInner>,
}

/// Something that a module imports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Import {
    /// The first of its two names.
    pub module: String,
    /// The second of its two names.
    pub name: String,
    /// What the module asks for.
    pub ty: ExternType,
}

/// Something that a module exports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// What it is.
    pub item: ExportItem,
}

/// An index into one of a module's index spaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExportItem {
    /// A function.
    Func(u32),
    /// A table.
    Table(u32),
    /// A linear memory.
    Memory(u32),
    /// A global.
    Global(u32),
    /// An exception tag.
    Tag(u32),
}

/// All that a [`Module`] holds. Index spaces have imports first.
pub(crate) struct ModuleInner {
    pub(crate) engine: Engine,
    pub(crate) bytes: Box<[u8]>,
    pub(crate) types: Vec<FuncType>,
    /// Type index of every function.
    pub(crate) func_types: Vec<u32>,
    pub(crate) imports: Vec<Import>,
    pub(crate) exports: Vec<Export>,
    pub(crate) tables: Vec<TableType>,
    pub(crate) memories: Vec<MemoryType>,
    pub(crate) globals: Vec<GlobalType>,
    /// Type index of every exception tag.
    pub(crate) tags: Vec<u32>,
    /// How many of each kind are imported.
    pub(crate) imported: Imported,
    /// Initial values of the tables that are not imported.
    pub(crate) table_inits: Vec<Option<ConstExpr>>,
    /// Initial values of the globals that are not imported.
    pub(crate) global_inits: Vec<ConstExpr>,
    pub(crate) data: Vec<DataSegment>,
    pub(crate) elems: Vec<ElemSegment>,
    pub(crate) start: Option<u32>,
    /// Module offsets of the bodies (local declarations and operators) of the functions that are not imported.
    pub(crate) bodies: Vec<Range<usize>>,
    pub(crate) custom_sections: Vec<(String, Range<usize>)>,
    names: OnceLock<Names>,
    hash: OnceLock<[u8; 32]>,
}

/// How many functions, tables, memories, globals and tags are imported.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Imported {
    pub(crate) funcs: u32,
    pub(crate) tables: u32,
    pub(crate) memories: u32,
    pub(crate) globals: u32,
    pub(crate) tags: u32,
}

/// A constant expression in postfix order, valid by construction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConstExpr(pub(crate) SmallVec<[ConstOp; 1]>);

/// One operator of a [`ConstExpr`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConstOp {
    /// The bits of a number or a vector, or the null reference.
    Const(u128),
    /// A global's value.
    GlobalGet(u32),
    /// A reference to a function.
    RefFunc(u32),
    /// 32-bit addition, and so on.
    I32Add,
    I32Sub,
    I32Mul,
    I64Add,
    I64Sub,
    I64Mul,
}

/// A data segment.
#[derive(Clone, Debug)]
pub(crate) struct DataSegment {
    /// Memory and offset of an active segment; `None` for a passive one.
    pub(crate) active: Option<(u32, ConstExpr)>,
    /// Module offsets of its bytes.
    pub(crate) range: Range<usize>,
}

/// An element segment.
#[derive(Clone, Debug)]
pub(crate) struct ElemSegment {
    pub(crate) mode: ElemMode,
    pub(crate) items: ElemItems,
}

/// What becomes of an element segment.
#[derive(Clone, Debug)]
pub(crate) enum ElemMode {
    Passive,
    /// Written to this table at this offset by instantiation.
    Active(u32, ConstExpr),
    /// Only declares that its functions are referred to.
    Declared,
}

/// The elements of a segment.
#[derive(Clone, Debug)]
pub(crate) enum ElemItems {
    Funcs(Vec<u32>),
    Exprs(Vec<ConstExpr>),
}

impl Module {
    /// Decodes and validates a module in the binary format.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is no valid module, [`Error::Unsupported`] and [`Error::SwitchedOff`] for a valid one that needs
    /// what this engine lacks.
    ///
    /// # Example
    /// ```
    /// use worksp_engine::{Config, Engine, Module};
    /// let engine = Engine::new(Config::default());
    /// let module = Module::from_text(&engine, r#"(module (func (export "f") (result i32) i32.const 7))"#).unwrap();
    /// assert_eq!(module.func_name(0), "f");
    /// let error = Module::new(&engine, b"\0asm").err().unwrap();
    /// assert!(error.to_string().starts_with("not a valid WebAssembly module"));
    /// ```
    pub fn new(engine: &Engine, bytes: &[u8]) -> Result<Module, Error> {
        // What is checked is the copy: the caller's bytes may be a file that somebody changes meanwhile.
        let bytes: Box<[u8]> = bytes.into();
        features::validate(&bytes, engine.config())?;
        let inner = decode::decode(engine, bytes)?;
        Ok(Module { inner: Arc::new(inner) })
    }

    /// Assembles a module in the text format. Offsets refer to the assembled bytes, see [`Module::bytes`].
    ///
    /// # Errors
    /// [`Error::Text`], and those of [`Module::new`].
    pub fn from_text(engine: &Engine, text: &str) -> Result<Module, Error> {
        let bytes = wat::parse_str(text).map_err(|e| Error::Text(e.to_string()))?;
        Module::new(engine, &bytes)
    }

    /// What a file holds: the binary format, or else the text format.
    ///
    /// # Errors
    /// Those of [`Module::new`] and [`Module::from_text`].
    pub fn from_file_contents(engine: &Engine, contents: &[u8]) -> Result<Module, Error> {
        let is_text = !contents.contains(&0) && contents.iter().any(|b| !b.is_ascii_whitespace());
        match std::str::from_utf8(contents) {
            Ok(text) if is_text => Module::from_text(engine, text),
            _ => Module::new(engine, contents),
        }
    }

    /// BLAKE3 of the module's bytes.
    pub(crate) fn hash(&self) -> [u8; 32] {
        *self.inner.hash.get_or_init(|| *blake3::hash(&self.inner.bytes).as_bytes())
    }

    /// The engine that the module was made for.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// The module's bytes in the binary format.
    pub fn bytes(&self) -> &[u8] {
        &self.inner.bytes
    }

    /// The imports, in order.
    pub fn imports(&self) -> &[Import] {
        &self.inner.imports
    }

    /// The exports, in order.
    pub fn exports(&self) -> &[Export] {
        &self.inner.exports
    }

    /// What is exported under this name.
    pub fn export(&self, name: &str) -> Option<ExportItem> {
        self.inner.exports.iter().find(|export| export.name == name).map(|export| export.item)
    }

    /// The type of what is exported.
    ///
    /// # Panics
    /// When `item` is none of this module's.
    pub fn export_type(&self, item: ExportItem) -> ExternType {
        match item {
            ExportItem::Func(i) => ExternType::Func(self.func_type(i).clone()),
            ExportItem::Table(i) => ExternType::Table(self.table_type(i)),
            ExportItem::Memory(i) => ExternType::Memory(self.memory_type(i)),
            ExportItem::Global(i) => ExternType::Global(self.global_type(i)),
            ExportItem::Tag(i) => ExternType::Tag(self.tag_type(i).clone()),
        }
    }

    /// The number of functions, imported ones included.
    pub fn func_count(&self) -> u32 {
        self.inner.func_types.len() as u32
    }

    /// The number of imported functions; they come first.
    pub fn imported_func_count(&self) -> u32 {
        self.inner.imported.funcs
    }

    /// The number of tables, imported ones included.
    pub fn table_count(&self) -> u32 {
        self.inner.tables.len() as u32
    }

    /// The number of linear memories, imported ones included.
    pub fn memory_count(&self) -> u32 {
        self.inner.memories.len() as u32
    }

    /// The number of globals, imported ones included.
    pub fn global_count(&self) -> u32 {
        self.inner.globals.len() as u32
    }

    /// The type of a function.
    ///
    /// # Panics
    /// When there is no such function; the same holds for the other accessors by index.
    pub fn func_type(&self, func: u32) -> &FuncType {
        self.type_at(self.func_type_index(func))
    }

    /// The type of a table.
    pub fn table_type(&self, table: u32) -> TableType {
        self.inner.tables[table as usize]
    }

    /// The type of a linear memory.
    pub fn memory_type(&self, memory: u32) -> MemoryType {
        self.inner.memories[memory as usize]
    }

    /// The type of a global.
    pub fn global_type(&self, global: u32) -> GlobalType {
        self.inner.globals[global as usize]
    }

    /// The type of an exception tag: its parameters are the types of what its exceptions carry.
    pub fn tag_type(&self, tag: u32) -> &FuncType {
        self.type_at(self.inner.tags[tag as usize])
    }

    /// Module offsets of a function's body (local declarations and operators), or `None` for an imported one.
    pub fn func_body(&self, func: u32) -> Option<Range<usize>> {
        let defined = func.checked_sub(self.inner.imported.funcs)?;
        self.inner.bodies.get(defined as usize).cloned()
    }

    /// The function whose body holds this module offset.
    pub fn func_at(&self, offset: usize) -> Option<u32> {
        let after = self.inner.bodies.partition_point(|body| body.end <= offset);
        let found = self.inner.bodies.get(after).is_some_and(|body| body.contains(&offset));
        found.then(|| self.inner.imported.funcs + after as u32)
    }

    /// The operators of a function in order, each with its module offset and its name in the text format, `i32.add` for example;
    /// none for an imported function.
    pub fn operators(&self, func: u32) -> impl Iterator<Item = (usize, String)> + '_ {
        let body = self.func_body(func).map(|body| FunctionBody::new(BinaryReader::new(&self.inner.bytes[body.clone()], body.start)));
        let operators = body.and_then(|body| body.get_operators_reader().ok());
        let operators = operators.into_iter().flat_map(|operators| operators.into_iter_with_offsets().map_while(Result::ok));
        operators.map(|(operator, offset)| (offset, features::operator_name(&operator)))
    }

    /// A function's name: from the name section, else its import's or first export's, else `func[N]`.
    pub fn func_name(&self, func: u32) -> String {
        let named = self.names().func(&self.inner.bytes, func);
        named.map_or_else(|| self.names().fallback(func), str::to_owned)
    }

    /// A global's name from the name section.
    pub fn global_name(&self, global: u32) -> Option<&str> {
        self.names().global(&self.inner.bytes, global)
    }

    /// The module's own name from the name section.
    pub fn name(&self) -> Option<&str> {
        self.names().module(&self.inner.bytes)
    }

    /// The function that instantiation should end by calling (see [`Store::instantiate`](crate::Store::instantiate)).
    pub fn start(&self) -> Option<u32> {
        self.inner.start.filter(|_| !mutant!(StartIgnored))
    }

    /// Names and contents of the custom sections, in order; debug information is in them.
    pub fn custom_sections(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.inner.custom_sections.iter().map(|(name, range)| (name.as_str(), &self.inner.bytes[range.clone()]))
    }

    /// Module offset of the code section's contents, to which debug information counts its addresses.
    pub fn code_section_offset(&self) -> Option<usize> {
        self.inner.code_offset()
    }

    /// Type index of a function.
    pub(crate) fn func_type_index(&self, func: u32) -> u32 {
        self.inner.func_types[func as usize]
    }

    /// The function type at a type index.
    pub(crate) fn type_at(&self, type_index: u32) -> &FuncType {
        &self.inner.types[type_index as usize]
    }

    /// All that the module holds.
    #[inline(always)]
    pub(crate) fn inner(&self) -> &ModuleInner {
        &self.inner
    }

    fn names(&self) -> &Names {
        self.inner.names.get_or_init(|| Names::read(&self.inner))
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Module({}, {} functions)", self.name().unwrap_or("unnamed"), self.func_count())
    }
}

/// The engine's own type for a validated one of a module with these types. `None` for types of features that are refused at load.
fn val_type(types: &[FuncType], ty: wasmparser::ValType) -> Option<ValType> {
    use wasmparser::AbstractHeapType::{Exn, Extern, Func, NoExn};
    use wasmparser::{HeapType, UnpackedIndex};
    let ty = match ty {
        wasmparser::ValType::I32 => return Some(ValType::I32),
        wasmparser::ValType::I64 => return Some(ValType::I64),
        wasmparser::ValType::F32 => return Some(ValType::F32),
        wasmparser::ValType::F64 => return Some(ValType::F64),
        wasmparser::ValType::V128 => return Some(ValType::V128),
        wasmparser::ValType::Ref(ty) => ty,
    };
    let (nullable, never_null) = match ty.heap_type() {
        HeapType::Concrete(UnpackedIndex::Module(index)) => {
            let of = FuncTypeRef::new(types.get(index as usize)?);
            (ValType::TypedFuncRef(of), ValType::SomeTypedFuncRef(of))
        }
        HeapType::Abstract { shared: false, ty: Func } => (ValType::FuncRef, ValType::SomeFuncRef),
        HeapType::Abstract { shared: false, ty: Extern } => (ValType::ExternRef, ValType::SomeExternRef),
        HeapType::Abstract { shared: false, ty: Exn } => (ValType::ExnRef, ValType::SomeExnRef),
        HeapType::Abstract { shared: false, ty: NoExn } => (ValType::NullExnRef, ValType::NoExnRef),
        _ => return None,
    };
    Some(if ty.is_nullable() { nullable } else { never_null })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn load(text: &str) -> Result<Module, Error> {
        Module::from_text(&Engine::default(), text)
    }

    #[test]
    fn what_is_missing_is_named() {
        let check = |text: &str, expect: &str| match load(text) {
            Err(error @ Error::Unsupported { .. }) => {
                let message = error.to_string();
                assert!(message.contains(expect), "{message}\n  lacks: {expect}");
            }
            other => panic!("{text}: {other:?}"),
        };
        check("(module (type (struct)))", "garbage-collected types");
        check("(component)", "component");
        check("(module (rec (type (func)) (type (func))))", "garbage-collected types");
        check("(module (func (param anyref)))", "garbage-collected types");
    }

    #[test]
    fn what_is_switched_off_is_named() {
        let check = |config: Config, text: &str, expect: &str| match Module::from_text(&Engine::new(config), text) {
            Err(error @ Error::SwitchedOff { .. }) => {
                let message = error.to_string();
                assert!(message.contains(expect) && message.contains("switched off"), "{message}\n  lacks: {expect}");
            }
            other => panic!("{text}: {other:?}"),
        };
        let no_simd = || Config { simd: false, ..Config::default() };
        let no_relaxed = || Config { relaxed_simd: false, ..Config::default() };
        let load = "(module (memory 1) (func (drop (v128.load (i32.const 0)))))";
        let relaxed = "(module (func (param v128) (result v128) (i8x16.relaxed_swizzle (local.get 0) (local.get 0))))";
        check(no_simd(), load, "uses SIMD (v128.load at offset 0x");
        check(no_simd(), "(module (func (drop (i32x4.extract_lane 0 (v128.const i64x2 0 0)))))", "uses SIMD (v128.const");
        check(no_simd(), "(module (func (param v128)))", "uses SIMD");
        check(no_relaxed(), relaxed, "uses relaxed SIMD (i8x16.relaxed_swizzle");
        check(Config { simd: false, ..no_relaxed() }, relaxed, "uses SIMD, relaxed SIMD");
        let no_exceptions = || Config { exceptions: false, ..Config::default() };
        let no_legacy = || Config { legacy_exceptions: false, ..Config::default() };
        let (throws, legacy) = ("(module (tag) (func (throw 0)))", "(module (tag) (func try (throw 0) catch 0 end))");
        check(no_exceptions(), throws, "uses exceptions");
        check(no_exceptions(), "(module (func (param exnref)))", "uses exceptions");
        check(no_legacy(), legacy, "uses legacy exceptions (try at offset 0x");
        check(Config { legacy_exceptions: false, ..no_exceptions() }, legacy, "uses exceptions, legacy exceptions");
        assert!(Module::from_text(&Engine::new(no_legacy()), throws).is_ok());
        assert!(Module::from_text(&Engine::default(), legacy).is_ok());
        assert!(Module::from_text(&Engine::new(no_relaxed()), load).is_ok());
        assert!(Module::from_text(&Engine::default(), relaxed).is_ok());
        let off = |off: fn(&mut Config)| {
            let mut config = Config::default();
            off(&mut config);
            config
        };
        let add = "(module (func (drop (drop (i64.mul_wide_u (i64.const 1) (i64.const 2))))))";
        check(off(|c| c.wide_arithmetic = false), add, "uses wide arithmetic (i64.mul_wide_u at offset 0x");
        check(off(|c| c.custom_page_sizes = false), "(module (memory 1 (pagesize 1)))", "uses custom page sizes");
        check(off(|c| c.memory64 = false), "(module (memory i64 1))", "uses 64-bit memories and tables (memory64)");
        check(off(|c| c.memory64 = false), "(module (table i64 1 funcref))", "uses 64-bit memories and tables (memory64)");
        check(off(|c| c.threads = false), "(module (memory 1 2 shared))", "uses threads (shared memories and atomics)");
        check(off(|c| c.threads = false), "(module (func (atomic.fence)))", "(atomic.fence at offset 0x");
        let add = "(module (memory 1) (func (drop (i32.atomic.rmw8.add_u (i32.const 0) (i32.const 1)))))";
        check(off(|c| c.threads = false), add, "(i32.atomic.rmw8.add_u at offset 0x");
        check(off(|c| c.function_references = false), "(module (func (param (ref func))))", "uses typed function references");
        let call = "(module (type $t (func)) (func (param funcref) (call_ref $t (ref.null $t))))";
        check(off(|c| c.function_references = false), call, "uses typed function references");
        let both = |c: &mut Config| (c.threads, c.memory64) = (false, false);
        check(off(both), "(module (memory i64 1 2 shared))", "uses threads (shared memories and atomics), 64-bit memories");
        // What is too long for 32 bits is broken as long as there is nothing of 64.
        let long = b"\0asm\x01\0\0\0\x05\x08\x01\0\x82\x80\x80\x80\x80\0";
        assert!(matches!(Module::new(&Engine::new(off(|c| c.memory64 = false)), long), Err(Error::Invalid { .. })));
        assert!(Module::new(&Engine::default(), long).is_ok());
        // With something that is missing altogether, switching on would not help.
        let both = "(module (type (struct)) (memory 1) (func (drop (v128.load (i32.const 0)))))";
        let error = Module::from_text(&Engine::new(no_simd()), both).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("uses SIMD, garbage-collected"), "{error}");
    }

    #[test]
    fn what_is_broken_is_located() {
        let check = |bytes: &[u8], expect: &str| {
            let message = Module::new(&Engine::default(), bytes).expect_err("broken").to_string();
            assert!(message.contains(expect), "{message}\n  lacks: {expect}");
        };
        check(b"", "unexpected end");
        check(b"hello, world", "magic header not detected: bad magic number");
        check(b"\0asm\x01\0\0\0\x01\xff\xff\xff\xff\x0f", "unexpected end-of-file (at offset 0xe)");
        check(b"\0asm\x01\0\0\0\x03\x06\xff\xff\xff\xff\x0f\0", "functions count exceeds limit");
        check(&wat::parse_str("(module (func (result i32) i64.const 1))").unwrap(), "type mismatch: expected i32, found i64 (at offset 0x");
        let text = load("(module (func $f (call $g)))").expect_err("broken").to_string();
        assert!(text.contains("unknown func"), "{text}");
    }

    #[test]
    fn everything_is_found_by_name_and_index() {
        let module = load(
            r#"(module $m (import "env" "log" (func $log (param i32))) (import "env" "raw" (func (param i32)))
                (memory (export "memory") 1) (global $sp (mut i32) (i32.const 8)) (global i32 (i32.const 0)) (func $main (export "run"))
                (func (export "plain")) (func) (start $main) (@custom "note" "abc"))"#,
        )
        .unwrap();
        let names: Vec<String> = (0..module.func_count()).map(|f| module.func_name(f)).collect();
        assert_eq!(names, ["log", "env.raw", "main", "plain", "func[4]"]);
        assert_eq!((module.name(), module.global_name(0), module.global_name(1)), (Some("m"), Some("sp"), None));
        assert_eq!((module.start(), module.func_body(1)), (Some(2), None));
        let body = module.func_body(3).unwrap();
        assert_eq!(module.bytes()[body.clone()], [0, 0x0b]);
        assert_eq!((module.func_at(body.start), module.func_at(body.end), module.func_at(0)), (Some(3), None, None));
        assert_eq!(module.export("memory"), Some(ExportItem::Memory(0)));
        assert!(module.custom_sections().any(|(name, bytes)| name == "note" && bytes == b"abc"));
        let start = module.code_section_offset().unwrap();
        assert!(start < module.func_body(2).unwrap().start && module.bytes()[start] == 3, "the code section has 3 bodies");
    }

    #[test]
    fn a_file_may_hold_either_format() {
        let engine = Engine::default();
        let text = b"(module (func))";
        let bytes = wat::parse_bytes(text).unwrap();
        assert_eq!(Module::from_file_contents(&engine, text).unwrap().bytes(), &*bytes);
        assert_eq!(Module::from_file_contents(&engine, &bytes).unwrap().bytes(), &*bytes);
        let error = |contents: &[u8]| Module::from_file_contents(&engine, contents).expect_err("broken");
        assert!(matches!(error(b"#!/bin/sh"), Error::Text(_)));
        assert!(matches!(error(b""), Error::Invalid { .. }));
        assert!(matches!(error(b"\x7fELF\0\0"), Error::Invalid { .. }));
    }
}
