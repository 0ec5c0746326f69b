//! Prepares a module for recording: what is inside becomes reachable from outside.
//!
//! Wasmtime reaches only what is exported, but a recording needs the hash of every memory, and the start function must run
//! where it can be logged. So every memory is exported once more under a name that no program has, and the start section
//! becomes an export. Code, indices and behaviour stay as they are; recordings hold the original module, and that is what a
//! replay runs.
//!
//! Wasmtime gives no host safe access to a shared memory, so that shared memories become ordinary ones. One agent can tell only by
//! waiting, which traps there: such a run is no recording (see `log.rs`).

use std::collections::HashMap;

use wasm_encoder::{ExportKind, ExportSection, Module, RawSection, SectionId};
use wasmparser::{BinaryReader, ExternalKind, Parser, Payload, TypeRef};

/// No toolchain writes names that begin with a zero byte.
const PREFIX: &str = "\0worksp ";

/// The export that stands for the start section.
pub(crate) fn start_export() -> String {
    format!("{PREFIX}start")
}

/// The export of the memory with this index.
pub(crate) fn memory_export(index: u32) -> String {
    format!("{PREFIX}memory {index}")
}

/// A module that was prepared, and what Wasmtime does not tell about it.
#[derive(Debug, Default)]
pub(crate) struct Exposed {
    /// The module to run.
    pub bytes: Vec<u8>,
    /// The index of every exported function.
    pub funcs: HashMap<String, u32>,
    /// The index of every exported memory.
    pub memories: HashMap<String, u32>,
    /// The index of every exported table.
    pub tables: HashMap<String, u32>,
    /// The index of every exported global.
    pub globals: HashMap<String, u32>,
    /// The number of memories.
    pub memory_count: u32,
    /// The start function.
    pub start: Option<u32>,
    /// Whether a shared memory became an ordinary one.
    pub unshared: bool,
}

/// Prepares a module.
pub(crate) fn expose(module: &[u8]) -> Result<Exposed, wasmparser::BinaryReaderError> {
    let unshared = unshare(module)?;
    let mut exposed = scan(module)?;
    exposed.unshared = unshared != module;
    let module = &unshared;
    let mut out = Module::new();
    let mut exports = ExportSection::new();
    let mut exports_written = false;
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        if let Payload::ExportSection(section) = &payload {
            for export in section.clone() {
                let export = export?;
                exports.export(export.name, export_kind(export.kind), export.index);
            }
        }
        // Exports go where the order of sections wants them: before start, elements, data count and code.
        let later = matches!(
            payload,
            Payload::ExportSection(_)
                | Payload::StartSection { .. }
                | Payload::ElementSection(_)
                | Payload::DataCountSection { .. }
                | Payload::CodeSectionStart { .. }
                | Payload::DataSection(_)
                | Payload::End(_)
        );
        if later && !exports_written {
            exports_written = true;
            for index in 0..exposed.memory_count {
                exports.export(&memory_export(index), ExportKind::Memory, index);
            }
            if let Some(start) = exposed.start {
                exports.export(&start_export(), ExportKind::Func, start);
            }
            out.section(&exports);
        }
        match payload.as_section() {
            Some((id, _)) if id == SectionId::Export as u8 || id == SectionId::Start as u8 => {}
            Some((id, range)) => {
                out.section(&RawSection { id, data: &module[range] });
            }
            None => {}
        }
    }
    exposed.bytes = out.finish();
    Ok(exposed)
}

/// The module's types and imports and nothing else: Wasmtime compiles that at once and tells what is imported.
pub(crate) fn imports_only(module: &[u8]) -> Result<Vec<u8>, wasmparser::BinaryReaderError> {
    let module = &unshare(module)?;
    let mut out = Module::new();
    for payload in Parser::new(0).parse_all(module) {
        if let Some((id, range)) = payload?.as_section()
            && (id == SectionId::Type as u8 || id == SectionId::Import as u8)
        {
            out.section(&RawSection { id, data: &module[range] });
        }
    }
    Ok(out.finish())
}

/// The module with its shared memories made ordinary ones.
fn unshare(module: &[u8]) -> Result<Vec<u8>, wasmparser::BinaryReaderError> {
    /// In the byte that a memory's type begins with.
    const SHARED: u8 = 2;
    let mut out = module.to_vec();
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(section) => {
                for item in section.into_imports_with_offsets() {
                    let (offset, import) = item?;
                    if let TypeRef::Memory(ty) = import.ty
                        && ty.shared
                    {
                        // Behind two names and the kind.
                        let mut names = BinaryReader::new(&module[offset..], offset);
                        names.skip_string()?;
                        names.skip_string()?;
                        out[names.original_position() + 1] &= !SHARED;
                    }
                }
            }
            Payload::MemorySection(section) => {
                for item in section.into_iter_with_offsets() {
                    let (offset, ty) = item?;
                    if ty.shared {
                        out[offset] &= !SHARED;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(out)
}

fn scan(module: &[u8]) -> Result<Exposed, wasmparser::BinaryReaderError> {
    let mut exposed = Exposed::default();
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    if let TypeRef::Memory(_) = import?.ty {
                        exposed.memory_count += 1;
                    }
                }
            }
            Payload::MemorySection(section) => exposed.memory_count += section.count(),
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export?;
                    let names = match export.kind {
                        ExternalKind::Func | ExternalKind::FuncExact => &mut exposed.funcs,
                        ExternalKind::Memory => &mut exposed.memories,
                        ExternalKind::Table => &mut exposed.tables,
                        ExternalKind::Global => &mut exposed.globals,
                        ExternalKind::Tag => continue,
                    };
                    names.insert(export.name.to_string(), export.index);
                }
            }
            Payload::StartSection { func, .. } => exposed.start = Some(func),
            _ => {}
        }
    }
    Ok(exposed)
}

fn export_kind(kind: ExternalKind) -> ExportKind {
    match kind {
        ExternalKind::Func | ExternalKind::FuncExact => ExportKind::Func,
        ExternalKind::Table => ExportKind::Table,
        ExternalKind::Memory => ExportKind::Memory,
        ExternalKind::Global => ExportKind::Global,
        ExternalKind::Tag => ExportKind::Tag,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memories_become_ordinary_ones() {
        let text = |shared: &str| {
            format!(
                r#"(module (import "a" "m" (memory 1 200 {shared})) (import "" "" (memory i64 1 2 {shared})) (import "a" "f" (func))
                    (memory 300 300 {shared}) (memory 3) (func (export "g")))"#
            )
        };
        let bytes = |shared| wat::parse_str(text(shared)).unwrap();
        assert_eq!(unshare(&bytes("shared")).unwrap(), bytes(""));
        assert_eq!(unshare(&bytes("")).unwrap(), bytes(""));
        assert_eq!(imports_only(&bytes("shared")).unwrap(), imports_only(&bytes("")).unwrap());
        let (shared, ordinary) = (expose(&bytes("shared")).unwrap(), expose(&bytes("")).unwrap());
        assert_eq!((&shared.bytes, shared.unshared, ordinary.unshared), (&ordinary.bytes, true, false));
    }

    fn exports(module: &[u8]) -> Vec<String> {
        let mut names = Vec::new();
        for payload in Parser::new(0).parse_all(module) {
            if let Payload::ExportSection(section) = payload.unwrap() {
                names.extend(section.into_iter().map(|export| export.unwrap().name.replace('\0', "~")));
            }
        }
        names
    }

    fn check(text: &str, expect: &[&str]) {
        let exposed = expose(&wat::parse_str(text).unwrap()).unwrap();
        wasmparser::Validator::new_with_features(wasmparser::WasmFeatures::all()).validate_all(&exposed.bytes).unwrap();
        assert_eq!(exports(&exposed.bytes), expect, "{text}");
    }

    #[test]
    fn memories_and_start_functions_become_exports() {
        check("(module)", &[]);
        check("(module (memory 1))", &["~worksp memory 0"]);
        check(
            r#"(module (import "e" "m" (memory 1)) (memory 2) (func $s) (start $s) (export "s" (func $s)) (data "x")
                (table 1 funcref) (elem (i32.const 0) $s))"#,
            &["s", "~worksp memory 0", "~worksp memory 1", "~worksp start"],
        );
        check(r#"(module (func $s) (start $s))"#, &["~worksp start"]);
        check(r#"(module (memory 1) (data (i32.const 0) "x"))"#, &["~worksp memory 0"]);
    }

    #[test]
    fn indices_are_those_of_the_original() {
        let text = r#"(module (import "e" "f" (func)) (import "e" "m" (memory 1)) (func $g (export "g")) (memory (export "own") 1)
            (global (export "k") i32 (i32.const 0)) (table (export "t") 1 funcref) (start $g))"#;
        let exposed = expose(&wat::parse_str(text).unwrap()).unwrap();
        assert_eq!((exposed.funcs["g"], exposed.memories["own"], exposed.globals["k"], exposed.tables["t"]), (1, 1, 0, 0));
        assert_eq!((exposed.memory_count, exposed.start), (2, Some(1)));
    }
}
