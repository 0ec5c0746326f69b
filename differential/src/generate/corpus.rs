//! `corpus`: modules from a folder, changed a little by wasm-mutate.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wasm_mutate::WasmMutate;

use super::Random;
use super::smith::may_wait;

/// Bytes of a module of a corpus, at most: larger ones are left out, since each change of them takes as long as thousands of programs.
pub const MODULE_BYTES_MAX: u64 = 1 << 20;

/// Modules that others are made of, in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct Corpus {
    modules: Vec<(PathBuf, Vec<u8>)>,
    /// Files that are no modules, or too large.
    pub left_out: Vec<PathBuf>,
}

impl Corpus {
    /// Reads all `.wasm` and `.wat` files of a folder and of those in it.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or has no module that can be used.
    pub fn read(dir: &Path) -> Result<Corpus, String> {
        let mut corpus = Corpus::default();
        let mut folders = vec![dir.to_owned()];
        while let Some(folder) = folders.pop() {
            let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
            for entry in std::fs::read_dir(&folder).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if matches!(path.extension().and_then(|name| name.to_str()), Some("wasm" | "wat")) {
                    match read_module(&path) {
                        Ok(bytes) => corpus.modules.push((path, bytes)),
                        Err(_) => corpus.left_out.push(path),
                    }
                }
            }
        }
        corpus.modules.sort();
        if corpus.modules.is_empty() {
            return Err(format!("{}: no .wasm or .wat file there is a valid module of at most {MODULE_BYTES_MAX} bytes", dir.display()));
        }
        Ok(corpus)
    }

    /// One number for all that is in it.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        self.modules.iter().for_each(|(_, bytes)| hash.update(Sha256::digest(bytes)));
        format!("{:x}", hash.finalize())
    }

    /// Number of modules.
    pub fn count(&self) -> usize {
        self.modules.len()
    }

    /// A module with some changes, or as it is; `None` when no change could be made.
    pub fn module(&self, index: u64, random: &mut Random) -> Option<Vec<u8>> {
        let (_, original) = self.modules.get((index % (self.modules.len() as u64).max(1)) as usize)?;
        let mut bytes = original.clone();
        // Each module is first seen as it is.
        let changes = if index < self.modules.len() as u64 { 0 } else { 1 + random.below(4) };
        for _ in 0..changes {
            let mut mutate = WasmMutate::default();
            mutate.seed(random.word()).fuel(1000).preserve_semantics(false);
            let changed = mutate.run(&bytes).ok().and_then(|mut changed| changed.next()).and_then(Result::ok);
            bytes = changed?;
        }
        let valid = wasmparser::Validator::new_with_features(features()).validate_all(&bytes).is_ok();
        (valid && !may_wait(&bytes)).then_some(bytes)
    }
}

/// What engines share: wasm-mutate also makes what they do not.
fn features() -> wasmparser::WasmFeatures {
    let mut features = wasmparser::WasmFeatures::default() | wasmparser::WasmFeatures::WIDE_ARITHMETIC | wasmparser::WasmFeatures::CUSTOM_PAGE_SIZES;
    features.remove(wasmparser::WasmFeatures::GC);
    features.remove(wasmparser::WasmFeatures::COMPONENT_MODEL);
    features
}

/// A valid module from a file, binary or text.
///
/// # Errors
///
/// When it cannot be read, is larger than [`MODULE_BYTES_MAX`], or is no module that engines share.
pub fn read_module(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    if std::fs::metadata(path).map_err(|e| failed(&e))?.len() > MODULE_BYTES_MAX {
        return Err(failed(&format!("larger than {MODULE_BYTES_MAX} bytes")));
    }
    let bytes = std::fs::read(path).map_err(|e| failed(&e))?;
    let bytes = wat::parse_bytes(&bytes).map_err(|e| failed(&e))?.into_owned();
    wasmparser::Validator::new_with_features(features()).validate_all(&bytes).map_err(|e| failed(&e))?;
    Ok(bytes)
}
