//! `--script CALLS.json`: calls and memory accesses in order, with names for results (docs/SCRIPT.md).

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use worksp_tracer::recording::Exit;

use crate::caller::{read, write};
use crate::error::Error;
use crate::session::{Finished, FuncShapes, Guest};
use crate::value::{Value, type_text};

mod expr;
mod parse;

use expr::{Expr, Var};

/// A script that was read and checked as far as that goes without running it.
#[derive(Clone, PartialEq, Debug)]
pub struct Script {
    path: PathBuf,
    steps: Vec<Step>,
}

#[derive(Clone, PartialEq, Debug)]
enum Step {
    Let { name: String, bytes: Bytes },
    Invoke { export: String, args: Vec<Arg>, save: Vec<String>, expect: Option<Vec<Arg>> },
    Write { memory: Option<String>, address: Expr, bytes: Bytes },
    Read { memory: Option<String>, address: Expr, len: Expr, save: Option<String>, print: bool, expect: Option<Bytes> },
}

/// Bytes to write or to compare with.
#[derive(Clone, PartialEq, Debug)]
enum Bytes {
    Given(Vec<u8>),
    Named(String),
    Words(Vec<Expr>),
}

/// A value whose type the function decides.
#[derive(Clone, PartialEq, Debug)]
enum Arg {
    Literal(String),
    Computed(Expr),
}

impl Script {
    /// Reads a script; the files that it names are looked for beside it and read now.
    ///
    /// # Errors
    /// When a file cannot be read or the script makes no sense; the message names the step.
    pub fn read(path: &Path) -> Result<Script, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_path_buf(), source })?;
        Script::parse(path, &text)
    }

    /// Parses a script's text as if it stood in the file `path`.
    ///
    /// # Errors
    /// As [`Script::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Script, Error> {
        Ok(Script { path: path.to_path_buf(), steps: parse::steps(path, text)? })
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The exports that are called.
    pub(crate) fn invoked(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match step {
            Step::Invoke { export, .. } => Some(export.as_str()),
            _ => None,
        })
    }
}

/// Runs a script on a guest.
pub(crate) struct Runner<'a> {
    script: &'a Script,
    types: &'a FuncShapes,
    vars: HashMap<String, Var>,
    printed: Vec<u8>,
}

impl<'a> Runner<'a> {
    pub(crate) fn new(script: &'a Script, types: &'a FuncShapes) -> Runner<'a> {
        Runner { script, types, vars: HashMap::new(), printed: Vec::new() }
    }

    pub(crate) fn run(mut self, guest: &mut Guest<'_>) -> Result<Finished, Error> {
        let mut last = Finished { exit: Exit::Returned(Vec::new()), results: Vec::new(), trap: None, printed: Vec::new() };
        for (index, step) in self.script.steps.iter().enumerate() {
            let finished = self.step(guest, step).map_err(|failure| match failure {
                Failure::Script(reason) => parse::error(&self.script.path, Some(index), reason),
                Failure::Other(error) => error,
            })?;
            if let Some(finished) = finished {
                last = finished;
                if !matches!(last.exit, Exit::Returned(_)) {
                    break;
                }
            }
        }
        Ok(Finished { printed: self.printed, ..last })
    }

    /// Runs one step; the result of a call, if it was one.
    fn step(&mut self, guest: &mut Guest<'_>, step: &Step) -> Result<Option<Finished>, Failure> {
        match step {
            Step::Let { name, bytes } => {
                let bytes = self.bytes(bytes)?;
                self.vars.insert(name.clone(), Var::Bytes(bytes));
                Ok(None)
            }
            Step::Invoke { export, args, save, expect } => self.invoke(guest, export, args, save, expect.as_deref()).map(Some),
            Step::Write { memory, address, bytes } => {
                let (index, address, bytes) = (memory_index(guest, memory)?, self.number(address)?, self.bytes(bytes)?);
                let handle = guest.store.data().memories[index as usize];
                match write(&mut *guest.store, handle, index, address, &bytes) {
                    Ok(true) => Ok(None),
                    Ok(false) => Err(outside(guest, index, address, bytes.len() as u64)),
                    Err(_) => Err(failed(guest)),
                }
            }
            Step::Read { memory, address, len, save, print, expect } => {
                let (index, address, len) = (memory_index(guest, memory)?, self.number(address)?, self.number(len)?);
                let handle = guest.store.data().memories[index as usize];
                let bytes = match read(&mut *guest.store, handle, index, address, len) {
                    Ok(Some(bytes)) => bytes,
                    Ok(None) => return Err(outside(guest, index, address, len)),
                    Err(_) => return Err(failed(guest)),
                };
                self.use_bytes(bytes, save.as_deref(), *print, expect.as_ref())?;
                Ok(None)
            }
        }
    }

    fn invoke(
        &mut self,
        guest: &mut Guest<'_>,
        export: &str,
        args: &[Arg],
        save: &[String],
        expect: Option<&[Arg]>,
    ) -> Result<Finished, Failure> {
        let ty = &self.types[export];
        if ty.params.len() != args.len() {
            let text = type_text(&ty.params, &ty.results);
            return Err(Failure::Script(format!("`{export}` has type {text}, and {} arguments are given", args.len())));
        }
        let args = ty.params.iter().zip(args).map(|(ty, arg)| self.value(*ty, arg)).collect::<Result<Vec<_>, _>>()?;
        let finished = guest.invoke(export, &args)?;
        if !matches!(finished.exit, Exit::Returned(_)) {
            return Ok(finished);
        }
        if save.len() > finished.results.len() {
            let reason = format!("`{export}` has {} results, and {} names are given", finished.results.len(), save.len());
            return Err(Failure::Script(reason));
        }
        for (name, value) in save.iter().zip(&finished.results) {
            self.vars.insert(name.clone(), Var::Value(*value));
        }
        if let Some(expect) = expect {
            let types = ty.results.iter();
            let expect = types.zip(expect).map(|(ty, arg)| self.value(*ty, arg)).collect::<Result<Vec<_>, _>>()?;
            if expect != finished.results {
                return Err(Failure::Script(format!("`{export}` returned {}, not {}", list(&finished.results), list(&expect))));
            }
        }
        Ok(finished)
    }

    fn use_bytes(&mut self, bytes: Vec<u8>, save: Option<&str>, print: bool, expect: Option<&Bytes>) -> Result<(), Failure> {
        if let Some(expect) = expect {
            let expect = self.bytes(expect)?;
            if expect != bytes {
                let show = |bytes: &[u8]| format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)]));
                return Err(Failure::Script(format!("memory holds {}, not {}", show(&bytes), show(&expect))));
            }
        }
        if print {
            // Someone who closed our output does not want to see it; that is no reason to lose the recording.
            let _ = std::io::stdout().write_all(&bytes);
            self.printed.extend_from_slice(&bytes);
        }
        if let Some(name) = save {
            let word = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
            let var = match bytes.len() {
                1 | 2 | 4 => Var::Value(Value::I32(word(&bytes) as i32)),
                8 => Var::Value(Value::I64(word(&bytes) as i64)),
                _ => Var::Bytes(bytes),
            };
            self.vars.insert(name.to_string(), var);
        }
        Ok(())
    }

    fn value(&self, ty: worksp_tracer::recording::ValueType, arg: &Arg) -> Result<Value, Failure> {
        match arg {
            Arg::Literal(text) => Value::parse(ty, text).map_err(Failure::Script),
            Arg::Computed(expr) => expr.value(ty, &self.vars).map_err(Failure::Script),
        }
    }

    fn number(&self, expr: &Expr) -> Result<u64, Failure> {
        expr.address(&self.vars).map_err(Failure::Script)
    }

    fn bytes(&self, bytes: &Bytes) -> Result<Vec<u8>, Failure> {
        match bytes {
            Bytes::Given(bytes) => Ok(bytes.clone()),
            Bytes::Named(name) => match self.vars.get(name) {
                Some(Var::Bytes(bytes)) => Ok(bytes.clone()),
                Some(Var::Value(_)) => Err(Failure::Script(format!("`{name}` is a number, not bytes"))),
                None => Err(Failure::Script(format!("nothing was saved as `{name}`"))),
            },
            Bytes::Words(words) => {
                let mut bytes = Vec::with_capacity(4 * words.len());
                for word in words {
                    bytes.extend_from_slice(&word.word(&self.vars).map_err(Failure::Script)?.to_le_bytes());
                }
                Ok(bytes)
            }
        }
    }
}

/// Why a step failed: a reason to report with its number, or something of its own.
enum Failure {
    Script(String),
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Other(error)
    }
}

fn memory_index(guest: &Guest<'_>, name: &Option<String>) -> Result<u32, Failure> {
    match name {
        None if guest.exposed.memory_count == 0 => Err(Failure::Script("the module has no memory".to_string())),
        None => Ok(0),
        Some(name) => {
            let index = guest.exposed.memories.get(name).copied();
            index.ok_or_else(|| Failure::Script(format!("the module exports no memory `{name}`")))
        }
    }
}

fn outside(guest: &Guest<'_>, index: u32, address: u64, len: u64) -> Failure {
    let size = guest.store.data().memories[index as usize].data_size(&*guest.store);
    Failure::Script(format!("{len} bytes at {address:#x} are outside memory {index}, which has {size:#x} bytes"))
}

/// The log noted why.
fn failed(guest: &mut Guest<'_>) -> Failure {
    let failure = guest.store.data_mut().log.failure();
    Failure::Other(failure.err().unwrap_or_else(|| Error::Wasmtime("the recording failed for an unknown reason".to_string())))
}

fn list(values: &[Value]) -> String {
    let texts: Vec<String> = values.iter().map(Value::to_string).collect();
    format!("[{}]", texts.join(", "))
}
