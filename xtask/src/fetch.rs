//! `cargo xtask fetch`: archives, then modules, each checked against its pinned hash, kept under fixtures/cache.

mod archive;
mod build;

use crate::setup;
use anyhow::{Context, Result, anyhow, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use worksp_fixtures::{Obtain, Program, cache_dir, fixtures_dir, sha256_of, sources};

/// What to do beyond obtaining modules.
pub struct Options {
    /// Accept built modules whose bytes differ from the pinned ones.
    pub other_compiler: bool,
    /// Write the hashes of built modules into the manifest.
    pub bless: bool,
    /// Build kernels natively too, and compare.
    pub check_native: bool,
}

/// Obtains the modules of `programs`.
///
/// # Errors
/// When a client or a compiler fails, or a hash is not the pinned one.
pub fn run(programs: &[&Program], options: &Options) -> Result<()> {
    std::fs::create_dir_all(cache_dir().join("modules")).with_context(|| format!("cannot create {}", cache_dir().display()))?;
    let missing: Vec<&Program> = programs.iter().copied().filter(|program| options.bless || !is_there(program)).collect();
    let needed = if options.check_native { programs } else { &missing };
    if !needed.is_empty() {
        setup::run()?;
        for name in needed.iter().flat_map(|program| program.archives()).collect::<BTreeSet<_>>() {
            archive::obtain(name, &sources()[name]).with_context(|| format!("cannot obtain {name}"))?;
        }
    }
    on_every_core(&missing, |program| {
        let hash = make(program, options).with_context(|| format!("cannot make the module of {}", program.name))?;
        eprintln!("{:<18} {hash}", program.name);
        Ok(())
    })?;
    if options.check_native {
        on_every_core(programs, |program| build::check_native(program).with_context(|| format!("{}, built natively", program.name)))?;
    }
    eprintln!("{} programs are in {}", programs.len(), cache_dir().join("modules").display());
    Ok(())
}

fn module_path(program: &Program) -> PathBuf {
    cache_dir().join("modules").join(format!("{}.wasm", program.name))
}

fn is_there(program: &Program) -> bool {
    sha256_of(&module_path(program)).is_ok_and(|hash| hash == program.sha256)
}

/// Makes one module, checks it, and puts it in its place; returns its hash.
fn make(program: &Program, options: &Options) -> Result<String> {
    let target = module_path(program);
    let fresh = target.with_extension("new");
    match &program.obtain {
        Obtain::File { source, path } => {
            let from = archive::unpacked(source).join(path);
            std::fs::copy(&from, &fresh).with_context(|| format!("cannot copy {}", from.display()))?;
        }
        Obtain::Build(recipe) => build::wasm(program, recipe, &fresh)?,
    }
    let hash = sha256_of(&fresh)?;
    let built = matches!(program.obtain, Obtain::Build(_));
    if hash != program.sha256 {
        if options.bless && built {
            bless(program, &hash)?;
        } else if !(options.other_compiler && built) {
            let hint = if built { "\nit was built by another compiler or C library than the pinned one (Debian 12's clang 14): pass --other-compiler to accept it" } else { "" };
            bail!("SHA-256 {hash}, pinned {}{hint}", program.sha256);
        }
    }
    validate(&fresh)?;
    std::fs::rename(&fresh, &target).with_context(|| format!("cannot write {}", target.display()))?;
    Ok(hash)
}

/// The features that every program may use: WebAssembly 2.0 and the extensions that the engine runs.
fn validate(module: &Path) -> Result<()> {
    use wasmparser::{Validator, WasmFeatures};
    let mut features = WasmFeatures::WASM2;
    features.insert(WasmFeatures::RELAXED_SIMD | WasmFeatures::TAIL_CALL | WasmFeatures::EXTENDED_CONST | WasmFeatures::MULTI_MEMORY);
    // Not the legacy form: Wasmtime, which records, lacks it.
    features.insert(WasmFeatures::EXCEPTIONS);
    let bytes = std::fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
    Validator::new_with_features(features).validate_all(&bytes).context("the module uses a feature that the fixtures leave out")?;
    Ok(())
}

/// Replaces the program's hash in programs.toml.
fn bless(program: &Program, hash: &str) -> Result<()> {
    static WRITING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = WRITING.lock().map_err(|_| anyhow!("another program's hash could not be written"))?;
    let path = fixtures_dir().join("programs.toml");
    let text = std::fs::read_to_string(&path)?;
    let start = text.find(&format!("name = \"{}\"\n", program.name)).context("the program's entry is gone")?;
    let key = "sha256 = \"";
    let at = start + text[start..].find(key).context("the entry has no sha256")? + key.len();
    let end = at + text[at..].find('"').context("the hash has no end")?;
    std::fs::write(&path, format!("{}{hash}{}", &text[..at], &text[end..]))?;
    Ok(())
}

/// Runs `job` for every item on all cores; the first error in the items' order wins.
fn on_every_core<T: Sync>(items: &[T], job: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let results: Vec<Mutex<Result<()>>> = items.iter().map(|_| Mutex::new(Ok(()))).collect();
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                // A counter of its own: nothing else is published through it.
                while let Some((item, slot)) = Some(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).and_then(|i| items.get(i).zip(results.get(i))) {
                    let result = job(item);
                    *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = result;
                }
            });
        }
    });
    results.into_iter().try_for_each(|slot| slot.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}
