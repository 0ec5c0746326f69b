//! The calls that make up a request: `_start`, one export, or a script.

use wasmtime::{AsContextMut, Func, Instance, Store};
use worksp_tracer::recording::{End, Exit, Target, ValueType};

use crate::error::Error;
use crate::expose::{Exposed, start_export};
use crate::log::{State, enter};
use crate::options::{Entry, RecordOptions};
use crate::recorder::{FuncShape, Shape};
use crate::script::{Runner, Script};
use crate::value::{Value, type_text};

/// The request with everything checked that can be checked before it runs.
#[derive(Debug)]
pub(crate) enum Plan {
    /// Calls in order; only the last has arguments.
    Calls(Vec<Call>),
    /// A script with the types of all exports, and whether `_initialize` comes first.
    Script { script: Script, types: FuncShapes, initialize: bool },
}

/// Exported functions by name, for scripts.
pub(crate) type FuncShapes = std::collections::HashMap<String, FuncShape>;

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    pub export: String,
    pub args: Vec<Value>,
}

/// How the request went.
#[derive(Debug)]
pub(crate) struct Finished {
    pub exit: Exit,
    pub results: Vec<Value>,
    pub trap: Option<String>,
    pub printed: Vec<u8>,
}

impl Plan {
    pub(crate) fn new(module: &str, shape: &Shape, options: &RecordOptions) -> Result<Plan, Error> {
        let initialize = shape.funcs.iter().any(|(name, _)| name == "_initialize");
        let initialize = initialize.then(|| Call { export: "_initialize".to_string(), args: Vec::new() });
        match &options.entry {
            Entry::Start => {
                let ty = find(module, shape, "_start")?;
                parse_args("_start", ty, &[])?;
                Ok(Plan::Calls(vec![Call { export: "_start".to_string(), args: Vec::new() }]))
            }
            Entry::Invoke(export) => {
                let args = parse_args(export, find(module, shape, export)?, &options.args)?;
                let initialize = initialize.filter(|_| export != "_initialize");
                Ok(Plan::Calls(initialize.into_iter().chain([Call { export: export.clone(), args }]).collect()))
            }
            Entry::Script(script) => {
                for name in script.invoked() {
                    find(module, shape, name)?;
                }
                let initialize = initialize.is_some() && script.invoked().all(|export| export != "_initialize");
                Ok(Plan::Script { script: script.clone(), types: shape.funcs.iter().cloned().collect(), initialize })
            }
        }
    }
}

/// The type of an export, or an error that helps.
fn find<'a>(module: &str, shape: &'a Shape, name: &str) -> Result<&'a FuncShape, Error> {
    if let Some((_, ty)) = shape.funcs.iter().find(|(export, _)| export == name) {
        return Ok(ty);
    }
    let names: Vec<&str> = shape.funcs.iter().map(|(name, _)| name.as_str()).collect();
    let hint = match closest(name, &names) {
        Some(close) => format!(": did you mean `{close}`?"),
        None if names.is_empty() => ": it exports no functions at all".to_string(),
        None => {
            let more = if names.len() > 30 { format!(" and {} more", names.len() - 30) } else { String::new() };
            let advice = if name == "_start" { "; it is no command, so choose one with --invoke NAME" } else { "" };
            format!(": it exports {}{more}{advice}", names[..names.len().min(30)].join(", "))
        }
    };
    Err(Error::UnknownExport { module: module.to_string(), name: name.to_string(), hint })
}

/// The name that is most like `name`, if one is close enough to be a slip.
pub(crate) fn closest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let distance = |other: &&str| strsim::damerau_levenshtein(name, other);
    let best = names.iter().min_by_key(|other| distance(other))?;
    (distance(best) * 3 <= name.len().max(3)).then_some(best)
}

fn parse_args(export: &str, ty: &FuncShape, args: &[String]) -> Result<Vec<Value>, Error> {
    let wrong = |reason: String| Error::Arguments { name: export.to_string(), ty: type_text(&ty.params, &ty.results), reason };
    if ty.params.len() != args.len() {
        return Err(wrong(format!("it takes {} arguments, and {} were given after `--`", ty.params.len(), args.len())));
    }
    let parse = |(index, (ty, text)): (usize, (&ValueType, &String))| {
        Value::parse(*ty, text).map_err(|reason| wrong(format!("argument {}: {reason}", index + 1)))
    };
    ty.params.iter().zip(args).enumerate().map(parse).collect()
}

/// Runs the request: the start function first, then the plan, until something traps or exits.
pub(crate) fn run(store: &mut Store<State>, instance: Instance, exposed: &Exposed, plan: &Plan) -> Result<Finished, Error> {
    let mut guest = Guest { store, instance, exposed };
    if let Some(start) = exposed.start {
        let finished = guest.call(&start_export(), Target::Func(start), &[], &[])?;
        if !matches!(finished.exit, Exit::Returned(_)) {
            return Ok(finished);
        }
    }
    match plan {
        Plan::Calls(calls) => {
            let mut finished = Finished { exit: Exit::Returned(Vec::new()), results: Vec::new(), trap: None, printed: Vec::new() };
            for call in calls {
                finished = guest.invoke(&call.export, &call.args)?;
                if !matches!(finished.exit, Exit::Returned(_)) {
                    break;
                }
            }
            Ok(finished)
        }
        Plan::Script { script, types, initialize } => {
            if *initialize {
                let finished = guest.invoke("_initialize", &[])?;
                if !matches!(finished.exit, Exit::Returned(_)) {
                    return Ok(finished);
                }
            }
            Runner::new(script, types).run(&mut guest)
        }
    }
}

/// The instance that is being driven.
pub(crate) struct Guest<'a> {
    pub store: &'a mut Store<State>,
    pub instance: Instance,
    pub exposed: &'a Exposed,
}

impl Guest<'_> {
    /// Calls an export that exists with arguments that fit.
    pub(crate) fn invoke(&mut self, export: &str, args: &[Value]) -> Result<Finished, Error> {
        let index = self.exposed.funcs[export];
        let func = self.func(export)?;
        let results = crate::value::value_types(func.ty(&*self.store).results())?;
        self.call(export, Target::Func(index), args, &results)
    }

    fn call(&mut self, export: &str, target: Target, args: &[Value], results: &[ValueType]) -> Result<Finished, Error> {
        let func = self.func(export)?;
        let Ok((end, trap)) = enter(self.store.as_context_mut(), target, &func, args) else {
            self.store.data_mut().log.failure()?;
            return Err(Error::Wasmtime("the recording failed for an unknown reason".to_string()));
        };
        let printed = Vec::new();
        Ok(match end {
            End::Returned(bits) => {
                let results = results.iter().zip(&bits).map(|(ty, bits)| Value::from_bits(*ty, *bits)).collect();
                Finished { exit: Exit::Returned(bits), results, trap: None, printed }
            }
            End::Trapped { code, message } => {
                Finished { exit: Exit::Trapped { code, message }, results: Vec::new(), trap, printed }
            }
            End::Exit(status) => Finished { exit: Exit::Status(status), results: Vec::new(), trap: None, printed },
        })
    }

    fn func(&mut self, export: &str) -> Result<Func, Error> {
        let func = self.instance.get_func(&mut *self.store, export);
        func.ok_or_else(|| Error::Wasmtime(format!("the export `{}` vanished", export.escape_debug())))
    }
}
