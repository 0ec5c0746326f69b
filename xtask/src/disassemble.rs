//! `cargo xtask disassemble`: what the compiler made of the handlers (x86-64).
//!
//! 1. In the release binary every dispatching handler ends in an indirect jump: tail calls are jumps, and none is a call. Handlers that
//!    ask their probe first jump to their reports, and call nothing themselves: a report that was inlined has them save registers.
//! 2. Handlers without hooks are the same, instruction for instruction, as those of a twin: the engine built from the same sources
//!    with every `if P::TRACED { … }` taken out of the handlers' files.
//!
//! ```text
//! engine/ ─┬─► as it is ─────────► example `plain_only` ─► symbols ─► instructions ─┐
//!          └─► without the seam ─► example `plain_only` ─► symbols ─► instructions ─┴─► compared by function
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use elf::ElfBytes;
use elf::endian::LittleEndian;
use iced_x86::{Code, Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter, OpKind};

use crate::sh;

/// Handlers of whole groups, by file: the op table makes many of each.
const GROUPS: &[(&str, &[&str])] = &[
    ("alu", &["binary", "branch", "branch_charging", "unary"]),
    ("memory", &["load", "store"]),
    ("vector", &["binary", "unary", "shift", "test", "replace", "extract", "splat", "ternary"]),
];
/// Handlers that leave the run and never go on.
const LEAVING: &[&str] = &["unreachable", "translate_first"];
/// Functions that have a handler's name and are none.
const HELPERS: &[(&str, &str)] = &[("vector_memory", "load_other"), ("vector_memory", "store_other")];
/// Functions that call through pointers for other reasons: a choice of extensions, fused multiply-add of the C library, lists that
/// grow, a hook in a loop.
const CALLING: &[(&str, &str)] =
    &[("exception", "unwind"), ("memory", "load_other"), ("vector_memory", "load_other"), ("vector", "ternary"), ("alu", "push_handlers")];

/// Handlers whose reports are functions of their own besides those that have a `report` inside of them.
const REPORTING: &[(&str, &str)] = &[("memory", "load"), ("memory", "store")];

/// One function of the engine in a binary.
struct Function {
    file: String,
    name: String,
    address: u64,
    code: Vec<u8>,
}

impl Function {
    /// Whether it is a handler that goes on; `singles` are the names of those that stand alone.
    fn is_handler(&self, singles: &[String]) -> bool {
        let in_group = GROUPS.iter().any(|(file, names)| *file == self.file && names.contains(&&*self.name));
        (in_group || singles.contains(&self.name)) && !HELPERS.contains(&(&*self.file, &*self.name))
    }

    /// The handler whose report this is.
    fn reported_by(&self) -> Option<String> {
        self.name.strip_suffix("::report").map(str::to_owned)
    }
}

/// Runs both checks.
///
/// # Errors
/// When a handler does not end in a jump, or one differs from its twin.
pub fn run(build: bool) -> Result<()> {
    ensure!(cfg!(target_arch = "x86_64"), "this reads x86-64 code");
    let release = std::env::current_exe().context("cannot tell where xtask lies")?.with_file_name("worksp");
    if build {
        sh::loud(Command::new("cargo").args(["build", "--release", "--quiet", "--workspace", "--bins"]))?;
    }
    let count = check_jumps(&release)?;
    eprintln!("{count} handlers of {} end in indirect jumps", release.display());
    let (same, instructions) = check_twins()?;
    eprintln!("{same} handlers without hooks are their twins without the seam, {instructions} instructions in all");
    Ok(())
}

/// Every handler dispatches by a jump. Returns how many there are.
fn check_jumps(binary: &Path) -> Result<usize> {
    let singles = singles()?;
    let mut wrong = Vec::new();
    let (mut count, mut seen) = (0, std::collections::BTreeSet::new());
    let functions = functions(binary)?;
    let reports: BTreeMap<u64, String> = functions.iter().filter_map(|f| Some((f.address, f.reported_by()?))).collect();
    for function in &functions {
        let may_call = CALLING.contains(&(&*function.file, &*function.name));
        let asks = reports.values().any(|name| *name == function.name) || REPORTING.contains(&(&*function.file, &*function.name));
        let mut jumps = 0;
        for instruction in decoded(function) {
            let goes_on = instruction.code() == Code::Jmp_rm64;
            // A probe that is always told needs no question.
            let reports = instruction.code() == Code::Jmp_rel32_64 && reports.contains_key(&instruction.near_branch64());
            jumps += usize::from(goes_on || reports);
            if asks && instruction.code() == Code::Call_rel32_64 {
                wrong.push(format!("{}::{} has its report inside, at {:#x}", function.file, function.name, instruction.ip()));
            }
            // Calls through the table of imports are no dispatches.
            if instruction.code() == Code::Call_rm64 && !instruction.is_ip_rel_memory_operand() && !may_call {
                wrong.push(format!("{}::{} calls what it should jump to, at {:#x}", function.file, function.name, instruction.ip()));
            }
        }
        if function.is_handler(&singles) || function.reported_by().is_some() {
            count += 1;
            seen.insert(function.name.clone());
            if jumps == 0 {
                wrong.push(format!("{}::{} has no indirect jump", function.file, function.name));
            }
        }
    }
    let missing: Vec<&String> = singles.iter().filter(|name| !seen.contains(*name)).collect();
    // The linker folds functions of equal code into one symbol; more than a few missing ones mean that names have changed.
    ensure!(missing.len() * 4 < singles.len() && count > 1000, "only {count} handlers were found in {}; missing: {missing:?}", binary.display());
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(count)
}

/// The names of handlers that stand alone in the op table, except those that never go on.
fn singles() -> Result<Vec<String>> {
    let table = std::fs::read_to_string(engine_dir().join("src/isa.rs"))?;
    let (_, list) = table.split_once("macro_rules! for_each_single").context("isa.rs has no table of single handlers")?;
    let (list, _) = list.split_once("pub(crate) use").context("the table has no end")?;
    let lines = list.lines().map(|line| line.split("//").next().unwrap_or_default());
    let entries = lines.flat_map(|line| line.split(';')).filter_map(|entry| entry.split_whitespace().nth(1));
    let names = entries.map(|name| name.split("::").next().unwrap_or_default().to_owned());
    Ok(names.filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit()) && !name.is_empty() && !LEAVING.contains(&&**name)).collect())
}

/// The files whose functions are handlers or called by them.
fn files() -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(engine_dir().join("src/execute"))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // Their common part only has their type.
        if name != "cx" && (text.contains("extern \"C\" fn") || text.contains("handlers! {")) {
            files.push(name);
        }
    }
    ensure!(files.len() >= 8, "handlers are in {files:?} only");
    Ok(files)
}

fn engine_dir() -> PathBuf {
    worksp_fixtures::fixtures_dir().with_file_name("engine")
}

/// The functions of the handlers' files, in the order of their addresses.
fn functions(binary: &Path) -> Result<Vec<Function>> {
    let files = files()?;
    let bytes = std::fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    let file = ElfBytes::<LittleEndian>::minimal_parse(&bytes).with_context(|| format!("{} is no ELF file", binary.display()))?;
    let (symbols, names) = file.symbol_table()?.with_context(|| format!("{} was stripped", binary.display()))?;
    let headers = file.section_headers().context("the binary has no sections")?;
    let mut found = Vec::new();
    for symbol in symbols.iter().filter(|symbol| symbol.st_symtype() == elf::abi::STT_FUNC && symbol.st_size > 0) {
        let Some((file_name, name)) = place_of(&files, names.get(symbol.st_name as usize)?) else { continue };
        let section = headers.get(usize::from(symbol.st_shndx))?;
        let start = (symbol.st_value - section.sh_addr + section.sh_offset) as usize;
        let code = bytes.get(start..start + symbol.st_size as usize).context("a symbol lies outside of its section")?;
        found.push(Function { file: file_name, name, address: symbol.st_value, code: code.to_vec() });
    }
    found.sort_by_key(|function| function.address);
    Ok(found)
}

/// File and name of a function of the handlers' files: `_ZN13worksp_engine7execute3alu4copy17h…E`.
fn place_of(files: &[String], symbol: &str) -> Option<(String, String)> {
    let mut rest = symbol.strip_prefix("_ZN13worksp_engine7execute")?;
    let mut parts = Vec::new();
    while let Some(digits) = rest.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0) {
        let len: usize = rest[..digits].parse().ok()?;
        parts.push(rest.get(digits..digits + len)?);
        rest = &rest[digits + len..];
    }
    // The last part is a hash.
    let [file, names @ .., _] = parts.as_slice() else { return None };
    (files.iter().any(|known| known == file) && !names.is_empty()).then(|| ((*file).to_owned(), names.join("::")))
}

fn decoded(function: &Function) -> impl Iterator<Item = Instruction> + '_ {
    let mut decoder = Decoder::with_ip(64, &function.code, function.address, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
}

/// Builds the engine twice and compares. Returns how many functions and instructions are the same.
fn check_twins() -> Result<(usize, usize)> {
    let target = std::env::current_exe()?.ancestors().nth(2).context("xtask lies in no target directory")?.join("seam");
    let [with, without] = [false, true].map(|strip| build_copy(&target, strip).and_then(|binary| by_function(&binary)));
    let (with, without) = (with?, without?);
    let mut wrong = Vec::new();
    for (name, code) in &with {
        match without.get(name) {
            Some(twin) if twin == code => {}
            Some(twin) => wrong.push(format!("{name}: {}", first_difference(code, twin))),
            None => wrong.push(format!("{name} has no twin")),
        }
    }
    if !wrong.is_empty() {
        bail!("{} of {} functions differ from their twins without the seam:\n{}", wrong.len(), with.len(), wrong.join("\n"));
    }
    let bodies = || with.values().flatten();
    Ok((bodies().count(), bodies().map(|body| body.lines().count()).sum()))
}

fn first_difference(code: &[String], twin: &[String]) -> String {
    if code.len() != twin.len() {
        return format!("{} instances, {} in the twin", code.len(), twin.len());
    }
    let (ours, theirs) = code.iter().zip(twin).find(|(a, b)| a != b).expect("they differ");
    let line = ours.lines().zip(theirs.lines()).find(|(a, b)| a != b);
    line.map_or_else(|| "one is longer".to_owned(), |(a, b)| format!("`{a}`, in the twin `{b}`"))
}

/// A copy of the engine as a workspace of its own, perhaps without the seam, built with one example that has no probe but `NoProbe`.
fn build_copy(target: &Path, strip: bool) -> Result<PathBuf> {
    let name = if strip { "without" } else { "with" };
    let root = target.join(name);
    if root.exists() {
        std::fs::remove_dir_all(&root)?;
    }
    let repository = engine_dir().parent().context("the engine lies in a repository")?.to_owned();
    copy_dir(&engine_dir().join("src"), &root.join("engine/src"))?;
    std::fs::create_dir_all(root.join("engine/examples"))?;
    std::fs::write(root.join("engine/examples/plain_only.rs"), PLAIN_ONLY)?;
    std::fs::copy(engine_dir().join("Cargo.toml"), root.join("engine/Cargo.toml"))?;
    std::fs::copy(repository.join("Cargo.lock"), root.join("Cargo.lock"))?;
    let manifest = std::fs::read_to_string(repository.join("Cargo.toml"))?;
    let lines = manifest.lines().filter(|line| !["exclude =", "default-members ="].iter().any(|start| line.starts_with(start)));
    let lines = lines.map(|line| if line.starts_with("members =") { "members = [\"engine\"]" } else { line });
    let lines: Vec<&str> = lines.filter(|line| !line.contains("path = \"")).collect();
    // Settings of packages that are not here are only warned of.
    std::fs::write(root.join("Cargo.toml"), lines.join("\n") + "\n")?;
    if strip {
        for file in files()? {
            let path = root.join("engine/src/execute").join(&file).with_extension("rs");
            let text = std::fs::read_to_string(&path)?;
            std::fs::write(&path, without_seam(&text).with_context(|| format!("in {file}.rs"))?)?;
        }
    }
    let mut command = Command::new("cargo");
    command.args(["build", "--release", "--quiet", "--example", "plain_only", "--target-dir"]).arg(target.join("target"));
    sh::loud(command.current_dir(&root).env("RUSTFLAGS", "-Awarnings"))?;
    let built = root.join("plain_only");
    std::fs::copy(target.join("target/release/examples/plain_only"), &built)?;
    Ok(built)
}

const PLAIN_ONLY: &str = r#"//! A program that observes nothing.
use worksp_engine::probe::NoProbe;
use worksp_engine::{Engine, Linker, Module, Store};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: plain_only MODULE")?;
    let engine = Engine::default();
    let module = Module::from_file_contents(&engine, &std::fs::read(path)?)?;
    Linker::new().instantiate(&mut Store::new(&engine), &mut NoProbe, &module)?;
    Ok(())
}
"#;

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Takes out every `if P::TRACED … { … }` that has no `else`.
fn without_seam(text: &str) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("if P::TRACED") {
        out.push_str(&rest[..at]);
        let open = rest[at..].find('{').context("an `if` without a block")? + at;
        let mut depth = 0;
        let end = rest[open..].char_indices().find_map(|(i, c)| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            (depth == 0).then_some(open + i + 1)
        });
        rest = &rest[end.context("a block without an end")?..];
        ensure!(!rest.trim_start().starts_with("else"), "`if P::TRACED` has an `else`: the check cannot take it out");
    }
    out.push_str(rest);
    Ok(out)
}

/// The instructions of every handler, its instances in a fixed order. Addresses of other things are left out.
fn by_function(binary: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let functions = functions(binary)?;
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let singles = singles()?;
    for function in functions.iter().filter(|function| function.is_handler(&singles)) {
        let mut formatter = IntelFormatter::new();
        let mut text = String::new();
        let end = function.address + function.code.len() as u64;
        for mut instruction in decoded(function) {
            if instruction.is_ip_rel_memory_operand() {
                instruction.set_memory_displacement64(0);
            }
            if instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64 {
                let to = instruction.near_branch64();
                let inside = (function.address..end).contains(&to);
                instruction.set_near_branch64(if inside { to - function.address } else { 0 });
            }
            formatter.format(&instruction, &mut text);
            text.push('\n');
        }
        all.entry(format!("{}::{}", function.file, function.name)).or_default().push(text);
    }
    all.values_mut().for_each(|instances| instances.sort());
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_name_their_place() {
        let files = ["alu".to_owned(), "vector".to_owned()];
        let place = |symbol| place_of(&files, symbol).map(|(file, name)| format!("{file}::{name}"));
        assert_eq!(place("_ZN13worksp_engine7execute3alu4copy17h0123456789abcdefE").as_deref(), Some("alu::copy"));
        assert_eq!(place("_ZN13worksp_engine7execute8dispatch17h0123456789abcdefE"), None);
        assert_eq!(place("_ZN4core3fmt5write17h0123456789abcdefE"), None);
    }

    #[test]
    fn the_seam_is_taken_out() {
        let text = "a; if P::TRACED && len > 0 { x({ y }); } b; if P::TRACED { z }\nc";
        assert_eq!(without_seam(text).unwrap(), "a;  b; \nc");
        assert!(without_seam("if P::TRACED { a } else { b }").is_err());
    }

    #[test]
    fn the_op_table_is_read() {
        let singles = singles().unwrap();
        for name in ["copy", "charge", "call_indirect", "memory_fill", "slot_use"] {
            assert!(singles.iter().any(|single| single == name), "{name}: {singles:?}");
        }
        assert!(singles.len() > 60 && !singles.iter().any(|name| LEAVING.contains(&&**name)), "{singles:?}");
    }
}
