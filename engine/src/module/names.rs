//! Names of functions and globals, from the name section and, where that is silent, from imports and exports.

use std::ops::Range;

use rustc_hash::FxHashMap;
use wasmparser::{BinaryReader, Name, NameMap, NameSectionReader};

use super::{ExportItem, ModuleInner};
use crate::value::ExternType;

/// Where in the module's bytes each name is. Read once, when the first name is asked for.
#[derive(Default)]
pub(super) struct Names {
    module: Option<Range<u32>>,
    funcs: FxHashMap<u32, Range<u32>>,
    globals: FxHashMap<u32, Range<u32>>,
    /// Names that imports and exports give to functions that the name section does not name.
    fallbacks: FxHashMap<u32, String>,
}

impl Names {
    /// Reads what can be read; a broken name section is no error, it names less.
    pub(super) fn read(inner: &ModuleInner) -> Names {
        let mut names = Names::default();
        for (name, range) in &inner.custom_sections {
            if name == "name" {
                names.read_section(&inner.bytes, range.clone());
            }
        }
        let imported = inner.imports.iter().filter(|import| matches!(import.ty, ExternType::Func(_)));
        for (index, import) in imported.enumerate() {
            names.fallbacks.insert(index as u32, format!("{}.{}", import.module, import.name));
        }
        for export in &inner.exports {
            if let ExportItem::Func(index) = export.item {
                names.fallbacks.entry(index).or_insert_with(|| export.name.clone());
            }
        }
        names
    }

    pub(super) fn func<'a>(&self, bytes: &'a [u8], func: u32) -> Option<&'a str> {
        text(bytes, self.funcs.get(&func)?)
    }

    pub(super) fn global<'a>(&self, bytes: &'a [u8], global: u32) -> Option<&'a str> {
        text(bytes, self.globals.get(&global)?)
    }

    pub(super) fn module<'a>(&self, bytes: &'a [u8]) -> Option<&'a str> {
        text(bytes, self.module.as_ref()?)
    }

    /// The name of a function that the name section does not name.
    pub(super) fn fallback(&self, func: u32) -> String {
        self.fallbacks.get(&func).cloned().unwrap_or_else(|| format!("func[{func}]"))
    }

    fn read_section(&mut self, bytes: &[u8], range: Range<usize>) {
        let reader = NameSectionReader::new(BinaryReader::new(&bytes[range.clone()], range.start));
        for subsection in reader.into_iter().map_while(Result::ok) {
            match subsection {
                Name::Module { name, .. } => self.module = Some(place(bytes, name)),
                Name::Function(map) => collect(bytes, map, &mut self.funcs),
                Name::Global(map) => collect(bytes, map, &mut self.globals),
                _ => {}
            }
        }
    }
}

fn collect(bytes: &[u8], map: NameMap<'_>, into: &mut FxHashMap<u32, Range<u32>>) {
    for naming in map.into_iter().map_while(Result::ok).filter(|naming| !naming.name.is_empty()) {
        into.insert(naming.index, place(bytes, naming.name));
    }
}

/// Where in `bytes` a string is that was read from them. Modules are smaller than 4 GiB: their sizes are 32-bit numbers.
fn place(bytes: &[u8], name: &str) -> Range<u32> {
    let start = (name.as_ptr() as usize - bytes.as_ptr() as usize) as u32;
    start..start + name.len() as u32
}

fn text<'a>(bytes: &'a [u8], range: &Range<u32>) -> Option<&'a str> {
    std::str::from_utf8(&bytes[range.start as usize..range.end as usize]).ok()
}
