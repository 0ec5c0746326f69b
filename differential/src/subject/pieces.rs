//! A replay in pieces: so much work, then the store is written to a file and the process may end; the next one goes on from there.
//!
//! ```text
//! request.wspr ─┐        ┌─► STATE: number of the next event, saved store ─┐
//!               └─ piece ┤                                                  └─ piece …
//!                        └─► the end: everything agreed with the recording
//! ```
//!
//! Only what the benchmarked requests need: one instance, function imports, no re-entry.

use std::path::Path;

use worksp_engine::probe::NoProbe;
use worksp_engine::{Config, Engine, InstanceId, MemoryId, Module, Step, Store, Suspension, Val, ValType};
use worksp_tracer::recording::{Bits, End, Event, Events, MemoryState, Recording, Target, read_hash};

use super::{host_funcs, text};

/// How far a piece got.
pub enum Piece {
    /// The file holds where the next one begins.
    Saved,
    /// The request has ended as it was recorded, after so much work.
    Ended(u64),
}

struct Guest<'a> {
    store: Store,
    instance: InstanceId,
    events: Events<'a>,
    number: u64,
}

/// Replays the next `work` operators of a request. `state` is where the piece before left off, if it exists, and where this one does.
pub fn piece(recording: &Recording, state: &Path, work: u64) -> Result<Piece, String> {
    let header = recording.header();
    let mut config = Config { fuel: true, canonicalize_nans: header.nan_canonical, ..Config::default() };
    config.relaxed_simd &= header.relaxed_simd_deterministic;
    config.limits.memory_bytes_max = header.memory_bytes_max;
    config.limits.table_elements_max = header.table_elements_max;
    let engine = Engine::new(config);
    let module = Module::new(&engine, recording.module().map_err(text)?).map_err(text)?;
    let mut guest = if state.exists() {
        let bytes = std::fs::read(state).map_err(text)?;
        let (number, saved) = bytes.split_first_chunk().ok_or("the state is too short")?;
        let store = Store::restore(&engine, &[module], saved).map_err(text)?;
        Guest::at(recording, store, InstanceId(0), u64::from_le_bytes(*number))?
    } else {
        let mut store = Store::new(&engine);
        let imports = host_funcs(&mut store, &module)?;
        let instance = store.instantiate(&module, &imports).map_err(text)?;
        Guest::at(recording, store, instance, 0)?
    };
    // At least what the next block needs, so that every piece gets further.
    let needed = match guest.store.pending() {
        Some(Step::Suspended(Suspension::OutOfFuel { missing })) => guest.store.fuel().unwrap_or(0) + missing,
        _ => 0,
    };
    guest.store.set_fuel(work.max(needed));
    if guest.run()? {
        let found: Vec<MemoryState> = guest.memory().iter().map(|id| MemoryState::of(guest.store.memory(*id))).collect();
        return match found == recording.outcome().map_err(text)?.memories {
            true => Ok(Piece::Ended(guest.store.work())),
            false => Err("the memory at the end differs from the recording's".to_owned()),
        };
    }
    let mut bytes = guest.number.to_le_bytes().to_vec();
    guest.store.save(&mut bytes).map_err(text)?;
    std::fs::write(state, &bytes).map_err(text)?;
    Ok(Piece::Saved)
}

impl<'a> Guest<'a> {
    /// A store that has seen so many events.
    fn at(recording: &'a Recording, store: Store, instance: InstanceId, number: u64) -> Result<Guest<'a>, String> {
        let mut events = recording.events();
        for _ in 0..number {
            events.next().ok_or("the state is of a longer recording")?.map_err(text)?;
        }
        Ok(Guest { store, instance, events, number })
    }

    fn next(&mut self) -> Result<Option<Event>, String> {
        self.number += 1;
        self.events.next().transpose().map_err(text)
    }

    fn memory(&self) -> Option<MemoryId> {
        (self.store.module(self.instance).memory_count() > 0).then(|| self.store.memory_id(self.instance, 0))
    }

    /// Goes on until the recording ends (`true`) or the fuel does.
    fn run(&mut self) -> Result<bool, String> {
        if let Some(Step::Suspended(_)) = self.store.pending() {
            let step = self.store.proceed(&mut NoProbe).map_err(text)?;
            if !self.after(step)? {
                return Ok(false);
            }
        }
        while let Some(event) = self.next()? {
            let step = match event {
                Event::Enter { target: Target::Func(index), args } => {
                    let func = self.store.func(self.instance, index);
                    let args = values(self.store.func_type(func).params(), &args);
                    self.store.start(&mut NoProbe, func, &args).map_err(text)?
                }
                Event::HostReturn { end: End::Returned(bits) } => {
                    let Some(Step::HostCall(call)) = self.store.pending() else { return Err("a host call returns that was not made".to_owned()) };
                    let func = self.store.func(self.instance, call.import);
                    let results = values(self.store.func_type(func).results(), &bits);
                    self.store.resume(&mut NoProbe, &results).map_err(text)?
                }
                Event::HostReturn { .. } => {
                    self.store.unwind(&mut NoProbe);
                    match self.next()? {
                        Some(Event::Leave { .. }) => continue,
                        other => return Err(format!("the host ended a call, and then: {other:?}")),
                    }
                }
                event => {
                    self.host_event(event)?;
                    continue;
                }
            };
            if !self.after(step)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The guest has stopped: as recorded, or (`false`) for want of fuel.
    fn after(&mut self, step: Step) -> Result<bool, String> {
        if let Step::Suspended(Suspension::OutOfFuel { .. }) = step {
            return Ok(false);
        }
        let bits = |values: &[Val]| values.iter().map(|value| value.bits()).collect::<Vec<Bits>>();
        let event = self.next()?;
        let agrees = match (&step, &event) {
            (Step::HostCall(call), Some(Event::HostCall { import, args })) => call.import == *import && bits(&call.args) == *args,
            (Step::Returned(found), Some(Event::Leave { end: End::Returned(recorded) })) => bits(found) == *recorded,
            (Step::Trapped(_), Some(Event::Leave { end: End::Trapped { .. } })) => true,
            _ => false,
        };
        if agrees { Ok(true) } else { Err(format!("event {}: the guest did {step:?}, recorded: {event:?}", self.number)) }
    }

    /// What the host does to the guest while it has control.
    fn host_event(&mut self, event: Event) -> Result<(), String> {
        let memory = self.memory().ok_or("the guest has no memory")?;
        let range = |address: u64, len: u64| address as usize..(address + len) as usize;
        match event {
            Event::Read { memory: 0, address, len, hash } => {
                let bytes = self.store.memory(memory).get(range(address, len)).ok_or("the host reads outside of the memory")?;
                if read_hash(bytes) == hash { Ok(()) } else { Err(format!("the {len} bytes at {address:#x}, which the host reads, differ")) }
            }
            Event::Write { memory: 0, address, bytes } => {
                let target = self.store.memory_mut(memory).get_mut(range(address, bytes.len() as u64));
                target.ok_or("the host writes outside of the memory")?.copy_from_slice(&bytes);
                Ok(())
            }
            Event::MemoryGrow { memory: 0, delta, previous } if self.store.memory_grow(memory, delta) == previous => Ok(()),
            Event::Output { .. } => Ok(()),
            other => Err(format!("this event is not supported here: {other:?}")),
        }
    }
}

fn values(types: &[ValType], bits: &[Bits]) -> Vec<Val> {
    types.iter().zip(bits).map(|(ty, bits)| Val::from_bits(*ty, *bits)).collect()
}
