//! A program that did something else: whose fault it is, how little of it is enough, and the files that show it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use wasm_shrink::WasmShrink;
use worksp_engine::TrapKind;

use super::{CaseId, Error};
use crate::compare::{Batch, Divergence, Outcome, What, on};
use crate::generate::Case;
use crate::generate::smith::may_wait;
use crate::program::shrink::shrink;
use crate::program::{Code, Input, Needs, Program, Tail, encode, encode_alone, program_text, script};
use crate::run::modules::{self, ModuleOracle};
use crate::run::oracle::{Compiler, Oracle};
use crate::run::ours::Mode;
use crate::run::{End, Runner};

/// Whose fault a difference is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// This engine's: Wasmtime at full optimisation says the same as the oracle that answered.
    Engine,
    /// The oracle's: Wasmtime at full optimisation agrees with this engine.
    Oracle,
    /// The program alone does what it should: something of the programs before it was left.
    Together,
    /// Somebody's: the process ended in a batch, again and again.
    Crash,
}

impl Finding {
    /// A batch, from one case to another, in which the process ended so often.
    pub fn crash(first: CaseId, last: CaseId, times: u32, modes: &[Mode]) -> Finding {
        let detail = format!("the process ended {times} times between {first} and {last}; `worksp fuzz replay` runs one alone");
        let (id, signature) = (first.to_string(), format!("the process ends: {first}"));
        Finding { id, kind: Kind::Crash, modes: modes.to_vec(), what: What::End, detail, signature, operators: 0, kept: Kept::Nothing }
    }
}

/// A program that did something else.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Its name, see [`CaseId`].
    pub id: String,
    /// Whose fault it is.
    pub kind: Kind,
    /// In which modes; it was shrunk in the first.
    pub modes: Vec<Mode>,
    /// What differs.
    pub what: What,
    /// Both, in words.
    pub detail: String,
    /// Findings with the same one have the same cause, as far as can be told: modes, what differs, and the operators that are left.
    pub signature: String,
    /// Operators that are left.
    pub operators: usize,
    /// What the kept module needs, and the inputs of its calls in hexadecimal: with them it can be replayed when generators have changed.
    pub kept: Kept,
}

/// See [`Finding::kept`].
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, tag = "form", rename_all = "lowercase")]
pub enum Kept {
    /// A module with a driver and one program.
    Program {
        /// What the environment must provide for.
        needs: Needs,
        /// Bits of the arguments of each call.
        inputs: Vec<Vec<String>>,
    },
    /// A module whose exports are called.
    Module {
        /// Whether engines make its NaNs canonical.
        canonicalize_nans: bool,
    },
    /// There is none.
    Nothing,
}

impl Kept {
    /// What a program needs and is called with.
    pub fn of(program: &Program) -> Kept {
        let inputs = program.inputs.iter().map(|input| input.iter().map(|bits| format!("{bits:x}")).collect()).collect();
        Kept::Program { needs: program.needs(), inputs }
    }

    /// Runs the kept module again, on Wasmtime at full optimisation.
    ///
    /// # Errors
    ///
    /// When the kept inputs are none, or Wasmtime refuses the module.
    pub fn replay(&self, bytes: Vec<u8>, modes: &[Mode]) -> Result<Outcome, String> {
        match self {
            Kept::Nothing => Err("no module was kept".to_owned()),
            Kept::Module { canonicalize_nans } => Ok(modules::compare(&bytes, *canonicalize_nans, modes, &ModuleOracle::new(Compiler::Full))),
            Kept::Program { needs, inputs } => {
                let inputs = inputs.iter().map(|words| input(words)).collect::<Result<_, _>>()?;
                let batch = Batch { bytes, calls: vec![(*needs, inputs)] };
                let mut modes: Vec<_> = modes.iter().map(|mode| (*mode, mode.runner(true))).collect();
                on(&mut Oracle::patient(Compiler::Full), &batch, &mut modes)
            }
        }
    }
}

fn input(words: &[String]) -> Result<Input, String> {
    let mut input = Input::default();
    if words.len() != input.len() {
        return Err(format!("a call has {} inputs", input.len()));
    }
    for (bits, word) in input.iter_mut().zip(words) {
        *bits = u128::from_str_radix(word, 16).map_err(|_| format!("{word} is no hexadecimal number"))?;
    }
    Ok(input)
}

/// Tells whether a program differs, alone.
struct Judge {
    oracle: Oracle,
    /// The first of them counts work, with which others are compared, and which tells what does not end.
    modes: Vec<(Mode, Box<dyn Runner>)>,
}

impl Judge {
    fn new(mode: Mode, compiler: Compiler) -> Judge {
        let mut modes = vec![Mode::Counting, mode];
        modes.dedup();
        let modes = modes.into_iter().map(|mode| (mode, mode.runner(true))).collect();
        Judge { oracle: Oracle::patient(compiler), modes }
    }

    /// The first difference in a mode. `None` also for programs that do not end.
    fn divergence(&mut self, program: &Program, mode: Mode) -> Option<Divergence> {
        let batch = Batch::of([program]);
        let counting = &mut self.modes[0].1;
        let endless = |end| matches!(end, End::Trapped(TrapKind::OutOfFuel));
        if counting.load(&batch.bytes, program.needs()).is_ok() {
            counting.reset(0);
            if program.inputs.iter().any(|input| endless(counting.call(0, input))) {
                return None;
            }
        }
        let outcome = on(&mut self.oracle, &batch, &mut self.modes).ok()?;
        outcome.divergences.into_iter().find(|divergence| divergence.mode == mode)
    }
}

/// What shows a finding, as files.
pub struct Shown {
    /// What it is.
    pub finding: Finding,
    /// The whole module.
    pub module: Vec<u8>,
    /// What is left of it, as text.
    pub text: String,
    /// The same with what should come out, as a script of the specification's format; programs have one.
    pub script: Option<String>,
}

impl Shown {
    /// Writes `ID.wasm`, `ID.wat`, `ID.wast` and `ID.json`.
    ///
    /// # Errors
    ///
    /// When they cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), Error> {
        std::fs::create_dir_all(dir).map_err(Error::file(dir))?;
        let write = |extension: &str, bytes: &[u8]| {
            let path = dir.join(format!("{}.{extension}", self.finding.id));
            std::fs::write(&path, bytes).map_err(Error::file(&path))
        };
        write("wasm", &self.module)?;
        write("wat", self.text.as_bytes())?;
        if let Some(script) = &self.script {
            write("wast", script.as_bytes())?;
        }
        write("json", (serde_json::to_string_pretty(&self.finding).expect("a finding has no other keys") + "\n").as_bytes())
    }
}

/// Finds out what the differences of a case are about, and shrinks it for as long as `time_max`.
///
/// # Panics
///
/// When there are none.
pub fn examine(id: CaseId, case: &Case, divergences: &[&Divergence], compiler: Compiler, time_max: Duration) -> Shown {
    // The plain mode is the simplest, if it is among them.
    let divergence = divergences.iter().find(|divergence| divergence.mode == Mode::Plain).unwrap_or(&divergences[0]);
    let others = divergences.iter().map(|divergence| divergence.mode).filter(|other| *other != divergence.mode);
    let modes: Vec<Mode> = std::iter::once(divergence.mode).chain(others).collect();
    match case {
        Case::Program(program) => examine_program(id, program, divergence, modes, compiler, time_max),
        Case::Module(bytes, canonicalize_nans) => examine_module(id, bytes, *canonicalize_nans, divergence, modes, time_max),
    }
}

fn examine_program(id: CaseId, program: &Program, divergence: &Divergence, modes: Vec<Mode>, compiler: Compiler, time_max: Duration) -> Shown {
    let (mode, what) = (divergence.mode, divergence.difference.what);
    let same = |found: Option<Divergence>| found.is_some_and(|found| found.difference.what == what);
    let mut judge = Judge::new(mode, compiler);
    let (kind, small) = if !same(judge.divergence(program, mode)) {
        (Kind::Together, program.clone())
    } else {
        let small = shrink(program, time_max, &mut |program| same(judge.divergence(program, mode)));
        let confirmed = same(Judge::new(mode, Compiler::Full).divergence(&small, mode));
        (if confirmed { Kind::Engine } else { Kind::Oracle }, small)
    };
    let detail = match judge.divergence(&small, mode) {
        Some(found) if kind != Kind::Together => found.difference.detail,
        _ => divergence.difference.detail.clone(),
    };
    let mut names: BTreeSet<String> = BTreeSet::new();
    small.walk(|node| names.extend(name(&node.code)));
    let signature = signature(&modes, what, kind, names);
    let text = program_text(&encode_alone(&small));
    let script = Some(script::script(&small, &text, &signature));
    let finding = Finding { id: id.to_string(), kind, modes, what, detail, signature, operators: small.size(), kept: Kept::of(program) };
    Shown { finding, module: encode(&[program]), text, script }
}

/// How often wasm-shrink may try in a row without success.
const ATTEMPTS: u32 = 400;

fn examine_module(id: CaseId, bytes: &[u8], canonicalize_nans: bool, divergence: &Divergence, modes: Vec<Mode>, time_max: Duration) -> Shown {
    let what = divergence.difference.what;
    let mode = [divergence.mode];
    let oracle = ModuleOracle::new(Compiler::Full);
    let differs = |bytes: &[u8]| modules::compare(bytes, canonicalize_nans, &mode, &oracle).divergences.into_iter().find(|found| found.difference.what == what);
    let deadline = Instant::now() + time_max;
    let kind = if differs(bytes).is_some() { Kind::Engine } else { Kind::Oracle };
    let small = match kind {
        Kind::Engine if !time_max.is_zero() => {
            let predicate = |bytes: &[u8]| Ok(Instant::now() < deadline && !may_wait(bytes) && differs(bytes).is_some());
            let info = WasmShrink::default().attempts(ATTEMPTS).run(bytes.to_vec(), predicate);
            info.map_or_else(|_| bytes.to_vec(), |info| info.output)
        }
        _ => bytes.to_vec(),
    };
    let detail = differs(&small).map_or_else(|| divergence.difference.detail.clone(), |found| found.difference.detail);
    let names = operator_names(&small);
    let finding = Finding {
        id: id.to_string(),
        kind,
        what,
        detail,
        signature: signature(&modes, what, kind, names.iter().cloned().collect()),
        modes,
        operators: names.len(),
        kept: Kept::Module { canonicalize_nans },
    };
    Shown { finding, module: bytes.to_vec(), text: program_text(&small), script: None }
}

fn signature(modes: &[Mode], what: What, kind: Kind, names: BTreeSet<String>) -> String {
    let all = modes.iter().map(Mode::to_string).collect::<Vec<_>>().join(",");
    let mut names = names.into_iter().take(12).collect::<Vec<_>>().join(" ");
    if kind == Kind::Together {
        names = "only after other programs".to_owned();
    }
    format!("{what:?} in {all}: {names}").to_lowercase()
}

/// The names of all operators of a module's functions, in their order; `end` is none.
fn operator_names(bytes: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    for payload in wasmparser::Parser::new(0).parse_all(bytes).flatten() {
        if let wasmparser::Payload::CodeSectionEntry(body) = payload {
            let operators = body.get_operators_reader().into_iter().flatten().flatten();
            names.extend(operators.map(|operator| format!("{operator:?}").split([' ', '{', '(']).next().unwrap_or("").to_owned()).filter(|name| name != "End"));
        }
    }
    names
}

/// What a signature says of an operator; nothing of those that are everywhere.
fn name(code: &Code) -> Option<String> {
    Some(match code {
        Code::Operator(id, _) => id.get().name.to_owned(),
        Code::Const(..) | Code::LocalGet(_) | Code::Drop => return None,
        Code::Call(_, Tail::Yes) => "return_call".to_owned(),
        Code::Other(instruction, _) => format!("{instruction:?}").split(['(', ' ']).next()?.to_owned(),
        code => format!("{code:?}").split(['(', ' ']).next()?.to_lowercase(),
    })
}
