//! The state of a run, and the log that it writes.

use wasmtime::{AsContextMut, ExnRef, Func, Instance, Memory, OwnedRooted, ResourceLimiter, StoreContextMut, ThrownException, Trap, Val};
use worksp_host::WasiHost;
use worksp_tracer::recording::{Bits, End, Event, RecordingWriter, Target, TrapCode};

use crate::error::Error;
use crate::value::Value;

/// What Wasmtime's store carries.
#[derive(Debug)]
pub(crate) struct State {
    pub wasi: WasiHost,
    pub log: Log,
    pub limits: Limits,
    /// The instance, once there is one; no guest code runs before.
    pub instance: Option<Instance>,
    /// Every memory of the instance, by index.
    pub memories: Vec<Memory>,
    /// The last exception that a call into the guest ended with; a host function may throw it on.
    pub thrown: Option<OwnedRooted<ExnRef>>,
    pub host_calls: u64,
    pub entries: u64,
}

/// Where events go. Without a writer the run is not recorded.
#[derive(Debug)]
pub(crate) struct Log {
    writer: Option<RecordingWriter>,
    /// The first failure of the recorder itself; everything stops then.
    failure: Option<Error>,
    /// Whether the program has shared memories that are none here, so that waiting is another thing.
    unshared: bool,
}

impl Log {
    pub(crate) fn new(writer: Option<RecordingWriter>, unshared: bool) -> Log {
        Log { writer, failure: None, unshared }
    }

    /// Whether events are kept; nobody needs to make one otherwise.
    pub(crate) fn on(&self) -> bool {
        self.writer.is_some()
    }

    pub(crate) fn event(&mut self, event: Event) -> Result<(), Stop> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if self.failure.is_some() {
            return Err(Stop::Failed);
        }
        writer.event(event).map_err(|error| self.fail(error.into()))
    }

    /// Notes a failure of the recorder; the run ends with it.
    pub(crate) fn fail(&mut self, error: Error) -> Stop {
        self.failure.get_or_insert(error);
        Stop::Failed
    }

    pub(crate) fn failure(&mut self) -> Result<(), Error> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// What an error that ended a call means, unless it only means that the program waits.
    fn end_of(&self, error: &wasmtime::Error) -> Result<End, Error> {
        if self.unshared && error.downcast_ref::<Trap>() == Some(&Trap::AtomicWaitNonSharedMemory) {
            return Err(Error::Unsupported {
                what: "memory.atomic.wait32 and wait64".to_string(),
                reason: "a program that waits for another thread cannot be recorded: one thread runs".to_string(),
            });
        }
        end_of(error)
    }

    pub(crate) fn into_writer(self) -> Option<RecordingWriter> {
        self.writer
    }
}

/// Why a host function does not return. Travels through Wasmtime as an error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Stop {
    #[error("exit with status {0}")]
    Exit(i32),
    #[error("{message}")]
    Trap { code: TrapCode, message: String },
    /// The recorder itself failed; [`Log`] knows why.
    #[error("the recording failed")]
    Failed,
}

impl Stop {
    pub(crate) fn end(&self) -> End {
        match self {
            Stop::Exit(status) => End::Exit(*status),
            Stop::Trap { code, message } => End::Trapped { code: *code, message: message.clone() },
            Stop::Failed => End::Trapped { code: TrapCode::Other, message: self.to_string() },
        }
    }
}

/// Bounds that the recording's header states, so that a replay has the same.
#[derive(Debug)]
pub(crate) struct Limits {
    pub memory_bytes_max: u64,
    pub table_elements_max: u64,
    /// The size that a memory was allowed to grow to and has not reached yet.
    pub growing_to: Option<usize>,
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, _: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let allowed = desired as u64 <= self.memory_bytes_max && maximum.is_none_or(|maximum| desired <= maximum);
        self.growing_to = allowed.then_some(desired);
        Ok(allowed)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        // Growth beyond a maximum fails the same way in a replay; growth that the system refuses does not.
        match self.growing_to.take() {
            Some(bytes) => Err(OutOfMemory { bytes, reason: error.to_string() }.into()),
            None => Ok(()),
        }
    }

    fn table_growing(&mut self, _: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired as u64 <= self.table_elements_max && maximum.is_none_or(|maximum| desired <= maximum))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the system refused to grow a memory to {bytes} bytes: {reason}")]
struct OutOfMemory {
    bytes: usize,
    reason: String,
}

/// Calls a guest function and logs the call and its end. The second result is Wasmtime's account of a trap.
pub(crate) fn enter(
    mut context: impl AsContextMut<Data = State>,
    target: Target,
    func: &Func,
    args: &[Value],
) -> Result<(End, Option<String>), Stop> {
    let ty = func.ty(&context);
    let vals: Vec<Val> = args.iter().map(|value| value.to_wasmtime()).collect();
    let mut results = vec![Val::I32(0); ty.results().len()];
    {
        let mut context = context.as_context_mut();
        let state = context.data_mut();
        state.entries += 1;
        if state.log.on() {
            state.log.event(Event::Enter { target, args: bits(args) })?;
        }
    }
    let called = func.call(&mut context, &vals, &mut results);
    let mut context = context.as_context_mut();
    if called.as_ref().is_err_and(|error| error.is::<ThrownException>()) {
        keep_exception(&mut context)?;
    }
    let log = &mut context.data_mut().log;
    let (end, account) = match called {
        Ok(()) => {
            let values = results.iter().map(Value::from_wasmtime).collect::<Result<Vec<_>, _>>();
            (End::Returned(bits(&values.map_err(|error| log.fail(error))?)), None)
        }
        Err(error) => (log.end_of(&error).map_err(|error| log.fail(error))?, Some(format!("{error:?}"))),
    };
    if log.failure.is_some() {
        return Err(Stop::Failed);
    }
    if log.on() {
        log.event(Event::Leave { end: end.clone() })?;
    }
    Ok((end, account))
}

/// Takes what was thrown and nobody caught out of Wasmtime's hands, so that it is thrown on only by who says so.
fn keep_exception(context: &mut StoreContextMut<'_, State>) -> Result<(), Stop> {
    let thrown = context.take_pending_exception().map(|exception| exception.to_owned_rooted(&mut *context));
    let state = context.data_mut();
    state.thrown = thrown.transpose().map_err(|error| state.log.fail(Error::Wasmtime(format!("{error:#}"))))?;
    Ok(())
}

/// The error with which a host function ends that does not return.
pub(crate) fn raise(mut context: StoreContextMut<'_, State>, stop: Stop) -> wasmtime::Error {
    if let Stop::Trap { code: TrapCode::Exception, .. } = &stop
        && let Some(thrown) = context.data().thrown.clone()
    {
        let exception = thrown.to_rooted(&mut context);
        return context.throw::<()>(exception).expect_err("throwing is an error");
    }
    stop.into()
}

pub(crate) fn bits(values: &[Value]) -> Vec<Bits> {
    values.iter().map(|value| value.bits()).collect()
}

/// What an error that came out of Wasmtime means for the program.
pub(crate) fn end_of(error: &wasmtime::Error) -> Result<End, Error> {
    if let Some(stop) = error.downcast_ref::<Stop>() {
        return Ok(stop.end());
    }
    if let Some(refused) = error.downcast_ref::<OutOfMemory>() {
        return Err(Error::OutOfMemory { bytes: refused.bytes, reason: refused.reason.clone() });
    }
    if error.is::<ThrownException>() {
        return Ok(End::Trapped { code: TrapCode::Exception, message: "uncaught exception".to_string() });
    }
    match error.downcast_ref::<Trap>() {
        Some(trap) => Ok(End::Trapped { code: trap_code(*trap), message: trap.to_string() }),
        None => Err(Error::Wasmtime(format!("{error:#}"))),
    }
}

fn trap_code(trap: Trap) -> TrapCode {
    match trap {
        Trap::UnreachableCodeReached => TrapCode::Unreachable,
        Trap::MemoryOutOfBounds => TrapCode::MemoryOutOfBounds,
        Trap::TableOutOfBounds => TrapCode::TableOutOfBounds,
        Trap::IndirectCallToNull => TrapCode::IndirectCallToNull,
        Trap::BadSignature => TrapCode::BadSignature,
        Trap::IntegerOverflow => TrapCode::IntegerOverflow,
        Trap::IntegerDivisionByZero => TrapCode::IntegerDivisionByZero,
        Trap::BadConversionToInteger => TrapCode::BadConversionToInteger,
        Trap::StackOverflow => TrapCode::StackOverflow,
        _ => TrapCode::Other,
    }
}
