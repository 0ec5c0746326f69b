//! A program that did something else: whose fault it is, how little of it is enough, and the files that show it.

use std::path::Path;
use std::time::Duration;

use super::{CaseId, Error};
use crate::compare::{Batch, Divergence, What, on};
use crate::program::shrink::shrink;
use crate::program::{Code, Input, Needs, Program, Tail, encode, encode_alone, program_text, script};
use crate::run::oracle::{Compiler, Oracle};
use crate::run::ours::Mode;
use crate::run::{End, Runner};
use worksp_engine::TrapKind;

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
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// What the environment must provide for.
    pub needs: Needs,
    /// Bits of the arguments.
    pub inputs: Vec<Vec<String>>,
}

impl Kept {
    fn of(program: &Program) -> Kept {
        let inputs = program.inputs.iter().map(|input| input.iter().map(|bits| format!("{bits:x}")).collect()).collect();
        Kept { needs: program.needs(), inputs }
    }

    /// The kept module with its calls.
    ///
    /// # Errors
    ///
    /// When an input is none.
    pub fn batch(&self, bytes: Vec<u8>) -> Result<Batch, String> {
        let input = |words: &Vec<String>| {
            let mut input = Input::default();
            if words.len() != input.len() {
                return Err(format!("a call has {} inputs", input.len()));
            }
            for (bits, word) in input.iter_mut().zip(words) {
                *bits = u128::from_str_radix(word, 16).map_err(|_| format!("{word} is no hexadecimal number"))?;
            }
            Ok(input)
        };
        Ok(Batch { bytes, calls: vec![(self.needs, self.inputs.iter().map(input).collect::<Result<_, _>>()?)] })
    }
}

/// Tells whether a program differs, alone.
struct Judge {
    oracle: Oracle,
    guard: Box<dyn Runner>,
    modes: Vec<(Mode, Box<dyn Runner>)>,
}

impl Judge {
    fn new(mode: Mode, compiler: Compiler) -> Judge {
        // Work is compared with what another mode counts.
        let mut modes = vec![Mode::Counting, mode];
        modes.dedup();
        let modes = modes.into_iter().map(|mode| (mode, mode.runner(true))).collect();
        Judge { oracle: Oracle::patient(compiler), guard: Mode::Counting.runner(true), modes }
    }

    /// The first difference in a mode. `None` also for programs that do not end.
    fn divergence(&mut self, program: &Program, mode: Mode) -> Option<Divergence> {
        self.guard.load(&encode(std::slice::from_ref(program)), program.needs()).ok();
        self.guard.reset(0);
        let endless = |end| matches!(end, End::Trapped(TrapKind::OutOfFuel));
        if program.inputs.iter().any(|input| endless(self.guard.call(0, input))) {
            return None;
        }
        let outcome = on(&mut self.oracle, &Batch::of(std::slice::from_ref(program)), &mut self.modes).ok()?;
        outcome.divergences.into_iter().find(|divergence| divergence.mode == mode)
    }
}

/// Finds out what the differences of a program are about, and shrinks it for as long as `time_max`.
///
/// # Panics
///
/// When there are none.
pub fn examine(id: CaseId, program: &Program, divergences: &[&Divergence], compiler: Compiler, time_max: Duration) -> (Finding, Program) {
    // The plain mode is the simplest, if it is among them.
    let divergence = divergences.iter().find(|divergence| divergence.mode == Mode::Plain).unwrap_or(&divergences[0]);
    let (mode, what) = (divergence.mode, divergence.difference.what);
    let others = divergences.iter().map(|divergence| divergence.mode).filter(|other| *other != mode);
    let modes: Vec<Mode> = std::iter::once(mode).chain(others).collect();
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
    let mut names: Vec<String> = Vec::new();
    small.walk(|node| names.extend(name(&node.code)));
    names.sort();
    names.dedup();
    let left = if kind == Kind::Together { format!("{} alone it does not", id) } else { names.join(" ") };
    let all = modes.iter().map(Mode::to_string).collect::<Vec<_>>().join(",");
    let signature = format!("{what:?} in {all}: {left}").to_lowercase();
    let finding = Finding { id: id.to_string(), kind, modes, what, detail, signature, operators: small.size(), kept: Kept::of(program) };
    (finding, small)
}

/// Writes what shows a finding: the whole program's module, the shrunk one as text, and a script with what should come out.
///
/// # Errors
///
/// When they cannot be written.
pub fn shrink_to_files(dir: &Path, finding: &Finding, program: &Program, small: &Program) -> Result<(), Error> {
    std::fs::create_dir_all(dir).map_err(Error::file(dir))?;
    let write = |extension: &str, bytes: &[u8]| {
        let path = dir.join(format!("{}.{extension}", finding.id));
        std::fs::write(&path, bytes).map_err(Error::file(&path))
    };
    write("wasm", &encode(std::slice::from_ref(program)))?;
    let text = program_text(&encode_alone(small));
    write("wat", text.as_bytes())?;
    write("wast", script::script(small, &text, &finding.signature).as_bytes())?;
    write("json", (serde_json::to_string_pretty(finding).expect("a finding has no other keys") + "\n").as_bytes())
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
