//! Calls from guest to host: each is logged, handed to its provider, and its end is logged.

use std::sync::Arc;

use wasmtime::{AsContextMut, Caller, Val};
use worksp_host::HostEnd;
use worksp_host::wasi::WasiFunction;
use worksp_tracer::recording::{End, Event, TrapCode, ValueType, read_hash};

use crate::caller::{HostCaller, HostError};
use crate::expose::Exposed;
use crate::imports::{Provided, Provider};
use crate::log::{State, Stop, bits, raise};
use crate::value::Value;

/// The function that the guest calls: it logs the call, hands it to its provider, and logs the end.
pub(crate) fn make_func(
    provider: Provider,
    import: u32,
    results_types: Vec<ValueType>,
    exposed: Arc<Exposed>,
) -> impl Fn(Caller<'_, State>, &[Val], &mut [Val]) -> wasmtime::Result<()> + Send + Sync + 'static {
    move |mut caller, args, results| {
        let state = caller.data_mut();
        state.host_calls += 1;
        let args = args.iter().map(Value::from_wasmtime).collect::<Result<Vec<_>, _>>();
        let args = args.map_err(|error| state.log.fail(error))?;
        if state.log.on() {
            state.log.event(Event::HostCall { import, args: bits(&args) })?;
        }
        let returned = match &provider {
            Provider::Wasi(function) => call_wasi(&mut caller, function, &args)?,
            Provider::Constant(values) => Ok(values.clone()),
            Provider::Provided(Provided::Func { func, .. }) => {
                let returned = func(&mut HostCaller::new(caller.as_context_mut(), &exposed), &args);
                returned.map_err(HostError::stop).and_then(|values| fit(values, &results_types))
            }
            Provider::Provided(_) => unreachable!("only functions are called: `check` compared the kinds"),
        };
        let log = &mut caller.data_mut().log;
        let end = match &returned {
            Ok(values) => End::Returned(bits(values)),
            Err(stop) => stop.end(),
        };
        if returned != Err(Stop::Failed) && log.on() {
            log.event(Event::HostReturn { end })?;
        }
        let returned = returned.map_err(|stop| raise(caller.as_context_mut(), stop))?;
        for (slot, value) in results.iter_mut().zip(returned) {
            *slot = value.to_wasmtime();
        }
        Ok(())
    }
}

/// Results of the types that the guest expects.
fn fit(values: Vec<Value>, types: &[ValueType]) -> Result<Vec<Value>, Stop> {
    if values.iter().map(|value| value.ty()).eq(types.iter().copied()) {
        return Ok(values);
    }
    let message = format!("a host function returned {values:?}, but its results are {types:?}");
    Err(Stop::Trap { code: TrapCode::Host, message })
}

/// Runs a WASI function and logs what it read and wrote. The outer error ends the recording.
fn call_wasi(caller: &mut Caller<'_, State>, function: &'static WasiFunction, args: &[Value]) -> Result<Result<Vec<Value>, Stop>, Stop> {
    let raw: Vec<u64> = args.iter().map(|value| value.bits() as u64).collect();
    let memory = caller.data().memories.first().copied();
    let (data, state) = match memory {
        Some(memory) => memory.data_and_store_mut(&mut *caller),
        None => (&mut [][..], caller.data_mut()),
    };
    if !state.log.on() {
        return Ok(returned(state.wasi.call(function, data, &raw)));
    }
    for range in function.reads(data, &raw) {
        let bytes = &data[range.start as usize..range.end as usize];
        let (address, len) = (range.start, bytes.len() as u64);
        state.log.event(Event::Read { memory: 0, address, len, hash: read_hash(bytes) })?;
    }
    let buffers = function.buffers(data, &raw);
    let facts = state.wasi.facts(function, &raw);
    let before = state.wasi.written();
    let end = state.wasi.call(function, data, &raw);
    for (stream, (before, after)) in (1..).zip(before.into_iter().zip(state.wasi.written())) {
        if after > before {
            state.log.event(Event::Output { stream, len: after - before })?;
        }
    }
    if let HostEnd::Returned(Some(errno)) = end {
        for range in function.writes(data, &raw, errno, &facts, &buffers) {
            let bytes = data[range.start as usize..range.end as usize].to_vec();
            state.log.event(Event::Write { memory: 0, address: range.start, bytes })?;
        }
    }
    Ok(returned(end))
}

fn returned(end: HostEnd) -> Result<Vec<Value>, Stop> {
    match end {
        HostEnd::Returned(result) => Ok(result.map(|errno| Value::I32(errno as i32)).into_iter().collect()),
        HostEnd::Exit(status) => Err(Stop::Exit(status)),
        HostEnd::Trap(message) => Err(Stop::Trap { code: TrapCode::Host, message }),
    }
}
