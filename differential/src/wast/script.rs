//! The state of a running script, and what each directive does to it.

use std::collections::HashMap;

use wast::lexer::Lexer;
use wast::parser::{ParseBuffer, parse};
use wast::token::Id;
use wast::{QuoteWat, Wast, WastDirective, WastExecute, WastInvoke, WastRet, Wat};
use worksp_engine::{CallError, Engine, Error, Extern, InstanceId, Linker, Module, Store, TrapKind, Val};

use super::values::{all_match, argument, show, show_patterns};
use super::{Failure, Report, spectest};
use crate::witness::Watcher;

/// A running script.
pub(super) struct Script<P> {
    engine: Engine,
    store: Store,
    linker: Linker,
    probe: P,
    /// Modules by name, and the latest.
    modules: HashMap<String, Module>,
    last_module: Option<Module>,
    /// Instances by name, and the latest.
    instances: HashMap<String, InstanceId>,
    last_instance: Option<InstanceId>,
    modules_refused: usize,
}

/// How an action ended: with values or as [`CallError`] has it. Anything else that went wrong is the outer error.
type Outcome = Result<Result<Vec<Val>, CallError>, String>;

impl<P: Watcher> Script<P> {
    /// Runs a script to its end; one failing directive does not stop the others.
    pub(super) fn run(engine: &Engine, file: &str, text: &str) -> Report {
        let mut report = Report { file: file.to_owned(), ..Report::default() };
        let failure = |line, what| Failure { file: file.to_owned(), line, what };
        let buffer = lexed(text);
        let wast = match buffer.as_ref().map_err(|e| (e.span(), e.message())).and_then(|buffer| {
            parse::<Wast<'_>>(buffer).map_err(|e| (e.span(), e.message()))
        }) {
            Ok(wast) => wast,
            Err((span, message)) => {
                report.failures.push(failure(span.linecol_in(text).0 + 1, format!("no script: {message}")));
                return report;
            }
        };
        let mut script = match Script::<P>::new(engine) {
            Ok(script) => script,
            Err(e) => {
                report.failures.push(failure(0, format!("spectest: {e}")));
                return report;
            }
        };
        for directive in wast.directives {
            let line = directive.span().linecol_in(text).0 + 1;
            let counts = !matches!(
                directive,
                WastDirective::Module(_)
                    | WastDirective::ModuleDefinition(_)
                    | WastDirective::ModuleInstance { .. }
                    | WastDirective::Register { .. }
            );
            match script.directive(directive) {
                Ok(()) => report.passed += usize::from(counts),
                Err(what) => report.failures.push(failure(line, what)),
            }
            let complaints = script.probe.complaints();
            report.failures.extend(complaints.into_iter().map(|what| failure(line, format!("event out of order: {what}"))));
        }
        report.modules_refused = script.modules_refused;
        report.work = script.store.work();
        report
    }

    fn new(engine: &Engine) -> Result<Script<P>, Error> {
        let mut store = Store::new(engine);
        let mut linker = Linker::new();
        spectest::define(&mut linker, &mut store)?;
        // Findings of campaigns import these.
        crate::run::ours::define_hosts(&mut linker);
        Ok(Script {
            engine: engine.clone(),
            store,
            linker,
            probe: P::default(),
            modules: HashMap::new(),
            last_module: None,
            instances: HashMap::new(),
            last_instance: None,
            modules_refused: 0,
        })
    }

    fn directive(&mut self, directive: WastDirective<'_>) -> Result<(), String> {
        match directive {
            WastDirective::Module(module) => {
                let name = module.name();
                let loaded = self.load_or_count(module)?;
                self.define(name, &loaded);
                self.instantiate_or_count(name, &loaded)
            }
            WastDirective::ModuleDefinition(module) => {
                let name = module.name();
                let loaded = self.load_or_count(module)?;
                self.define(name, &loaded);
                Ok(())
            }
            WastDirective::ModuleInstance { instance, module, .. } => {
                let module = self.module(module)?;
                self.instantiate_or_count(instance, &module)
            }
            WastDirective::Register { name, module, .. } => {
                let instance = self.instance(module)?;
                self.linker.instance(&self.store, name, instance);
                Ok(())
            }
            WastDirective::Invoke(invoke) => match self.invoke(&invoke)? {
                Ok(_) => Ok(()),
                Err(e) => Err(format!("{}: {e}", invoke.name)),
            },
            WastDirective::AssertReturn { exec, results, .. } => self.assert_return(exec, &results),
            WastDirective::AssertTrap { exec, message, .. } => self.assert_trap(exec, message),
            WastDirective::AssertExhaustion { call, message, .. } => match self.invoke(&call)? {
                Err(CallError::Trap(trap)) if trap.kind() == TrapKind::StackOverflow => same_text(trap.kind(), message),
                other => Err(format!("{} {}, which exhausts nothing", call.name, ended(&other))),
            },
            WastDirective::AssertInvalid { module, message, .. } => self.assert_refused(module, message, false),
            WastDirective::AssertMalformed { module, message, .. }
            | WastDirective::AssertInvalidCustom { module, message, .. }
            | WastDirective::AssertMalformedCustom { module, message, .. } => self.assert_refused(module, message, true),
            WastDirective::AssertUnlinkable { module, message, .. } => self.assert_unlinkable(module, message),
            WastDirective::AssertException { exec, .. } => self.assert_exception(exec),
            WastDirective::AssertSuspension { .. } => Err("the engine has no stack switching".into()),
            WastDirective::Thread(_) | WastDirective::Wait { .. } => Err("the engine has no threads".into()),
        }
    }

    // --- modules and instances ---------------------------------------------------------------------------------------

    fn load_or_count(&mut self, module: QuoteWat<'_>) -> Result<Module, String> {
        self.load(module).inspect_err(|_| {
            self.modules_refused += 1;
            self.last_module = None;
            self.last_instance = None;
        })
    }

    fn load(&self, mut module: QuoteWat<'_>) -> Result<Module, String> {
        let bytes = module.encode().map_err(|e| format!("the module cannot be assembled: {}", e.message()))?;
        Module::new(&self.engine, &bytes).map_err(|e| e.to_string())
    }

    fn define(&mut self, name: Option<Id<'_>>, module: &Module) {
        self.last_module = Some(module.clone());
        if let Some(name) = name {
            self.modules.insert(name.name().to_owned(), module.clone());
        }
    }

    fn instantiate_or_count(&mut self, name: Option<Id<'_>>, module: &Module) -> Result<(), String> {
        self.last_instance = None;
        match self.instantiate(module) {
            Ok(instance) => {
                self.last_instance = Some(instance);
                if let Some(name) = name {
                    self.instances.insert(name.name().to_owned(), instance);
                }
                Ok(())
            }
            Err(e) => {
                self.modules_refused += 1;
                Err(format!("instantiation failed: {e}"))
            }
        }
    }

    /// As [`Linker::instantiate`], but with a trace plan before anything runs.
    fn instantiate(&mut self, module: &Module) -> Result<InstanceId, CallError> {
        let imports = self.linker.resolve(&mut self.store, module)?;
        let instance = self.store.instantiate(module, &imports)?;
        if P::TRACED {
            self.store.set_trace_plan(instance, P::plan(module));
        }
        if let Some(start) = module.start() {
            let start = self.store.func(instance, start);
            self.linker.call(&mut self.store, &mut self.probe, start, &[])?;
        }
        Ok(instance)
    }

    fn module(&self, name: Option<Id<'_>>) -> Result<Module, String> {
        match name {
            Some(name) => self.modules.get(name.name()).cloned().ok_or(format!("no module ${} was defined", name.name())),
            None => self.last_module.clone().ok_or("no module was defined, or the last one was refused".into()),
        }
    }

    fn instance(&self, name: Option<Id<'_>>) -> Result<InstanceId, String> {
        match name {
            Some(name) => self.instances.get(name.name()).copied().ok_or(format!("there is no instance ${}", name.name())),
            None => self.last_instance.ok_or("there is no instance, or the last module was refused".into()),
        }
    }

    // --- actions -----------------------------------------------------------------------------------------------------

    fn execute(&mut self, exec: WastExecute<'_>) -> Outcome {
        match exec {
            WastExecute::Invoke(invoke) => self.invoke(&invoke),
            WastExecute::Get { module, global, .. } => {
                let instance = self.instance(module)?;
                match self.store.export(instance, global) {
                    Some(Extern::Global(id)) => Ok(Ok(vec![self.store.global(id)])),
                    _ => Err(format!("no global {global} is exported")),
                }
            }
            WastExecute::Wat(module) => {
                let module = self.load(QuoteWat::Wat(module))?;
                Ok(self.instantiate(&module).map(|_| Vec::new()))
            }
        }
    }

    fn invoke(&mut self, invoke: &WastInvoke<'_>) -> Outcome {
        let instance = self.instance(invoke.module)?;
        let func = self.store.exported_func(instance, invoke.name).map_err(|e| e.to_string())?;
        let args = invoke.args.iter().map(argument).collect::<Result<Vec<_>, _>>()?;
        Ok(self.linker.call(&mut self.store, &mut self.probe, func, &args))
    }

    // --- assertions --------------------------------------------------------------------------------------------------

    fn assert_return(&mut self, exec: WastExecute<'_>, expected: &[WastRet<'_>]) -> Result<(), String> {
        let name = name_of(&exec);
        match self.execute(exec)? {
            Ok(values) if all_match(expected, &values) => Ok(()),
            other => Err(format!("{name} {}, not {}", ended(&other), show_patterns(expected))),
        }
    }

    fn assert_trap(&mut self, exec: WastExecute<'_>, message: &str) -> Result<(), String> {
        let name = name_of(&exec);
        match self.execute(exec)? {
            Err(CallError::Trap(trap)) => same_text(trap.kind(), message),
            other => Err(format!("{name} {}, which is no trap with `{message}`", ended(&other))),
        }
    }

    fn assert_exception(&mut self, exec: WastExecute<'_>) -> Result<(), String> {
        let name = name_of(&exec);
        match self.execute(exec)? {
            Err(CallError::Trap(trap)) if trap.exception().is_some_and(|id| self.store.exception(id).is_some()) => Ok(()),
            other => Err(format!("{name} {}, which is no exception", ended(&other))),
        }
    }

    /// Both kinds of refusal are [`Error::Invalid`] here, because decoding and validation go in step; malformed text does not
    /// even reach the engine.
    fn assert_refused(&self, mut module: QuoteWat<'_>, message: &str, malformed: bool) -> Result<(), String> {
        let bytes = match module.encode() {
            Ok(bytes) => bytes,
            Err(_) if malformed || matches!(module, QuoteWat::QuoteModule(..)) => return Ok(()),
            Err(e) => return Err(format!("the invalid module cannot be assembled: {}", e.message())),
        };
        match Module::new(&self.engine, &bytes) {
            Err(Error::Invalid { .. }) => Ok(()),
            Err(e) => Err(format!("refused with `{e}` instead of `{message}`")),
            Ok(_) => Err(format!("loaded a module that should be refused with `{message}`")),
        }
    }

    fn assert_unlinkable(&mut self, module: Wat<'_>, message: &str) -> Result<(), String> {
        let module = self.load(QuoteWat::Wat(module))?;
        match self.instantiate(&module) {
            Err(CallError::Error(e)) if e.to_string().contains(message) => Ok(()),
            other => Err(format!("linking {}, not `{message}`", ended(&other.map(|_| Vec::new())))),
        }
    }
}

fn lexed(text: &str) -> Result<ParseBuffer<'_>, wast::Error> {
    let mut lexer = Lexer::new(text);
    // Some scripts test that confusing characters are allowed in strings and comments.
    lexer.allow_confusing_unicode(true);
    ParseBuffer::new_with_lexer(lexer)
}

fn name_of(exec: &WastExecute<'_>) -> String {
    match exec {
        WastExecute::Invoke(invoke) => invoke.name.to_owned(),
        WastExecute::Get { global, .. } => format!("global {global}"),
        WastExecute::Wat(_) => "the module".to_owned(),
    }
}

fn ended(outcome: &Result<Vec<Val>, CallError>) -> String {
    match outcome {
        Ok(values) => format!("returned {}", show(values)),
        Err(e) => format!("ended with `{e}`"),
    }
}

/// Scripts shorten messages, and add an index to some.
fn same_text(kind: TrapKind, message: &str) -> Result<(), String> {
    let text = kind.to_string();
    if text.starts_with(message) || message.starts_with(&text) {
        return Ok(());
    }
    Err(format!("trapped with `{text}`, not `{message}`"))
}
