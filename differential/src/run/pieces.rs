//! Calls in pieces: whenever a run stops, it may be saved and restored, and it may go on under another probe.

use worksp_engine::probe::{NoProbe, Probe};
use worksp_engine::{CallError, Error, FuncId, Linker, Module, Step, Store, Suspension, Trap, Val};

use crate::generate::Random;

/// Runs calls in pieces of random length. Needs an engine that takes fuel.
pub struct Pieces {
    random: Random,
    probe: u64,
    /// After so many pieces, pieces become twice as long.
    pub doubling: u64,
    /// Work after which the store's runs are ended.
    pub work_max: u64,
    /// Times that a run was out of fuel.
    pub pauses: u64,
    /// Stores that were saved and restored.
    pub saves: u64,
    /// Times that a run went on under another probe.
    pub switches: u64,
}

/// Is told of everything.
struct Ignore;
impl Probe for Ignore {}

/// Is told of every operator, too.
struct Every;
impl Probe for Every {
    const OPERATORS: bool = true;
}

impl Pieces {
    /// With this seed.
    pub fn new(seed: u64) -> Pieces {
        Pieces { random: Random::new(seed), probe: 0, doubling: 16, work_max: u64::MAX, pauses: 0, saves: 0, switches: 0 }
    }

    /// Calls a function.
    ///
    /// # Errors
    ///
    /// How the call ends when it does not return.
    pub fn call(&mut self, module: &Module, linker: &Linker, store: &mut Store, func: FuncId, args: &[Val]) -> Result<Vec<Val>, CallError> {
        self.probe = self.random.below(3);
        let pauses_before = self.pauses;
        let mut step = match self.probe {
            0 => store.start(&mut NoProbe, func, args)?,
            1 => store.start(&mut Ignore, func, args)?,
            _ => store.start(&mut Every, func, args)?,
        };
        loop {
            step = match step {
                Step::Returned(values) => return Ok(values),
                Step::Trapped(trap) => return Err(trap.into()),
                Step::Suspended(Suspension::OutOfFuel { missing }) => {
                    self.pauses += 1;
                    if store.work() > self.work_max {
                        let ended = store.abandon(&mut NoProbe);
                        return Err(ended.unwrap_or_else(|| Trap::host("it does not end")).into());
                    }
                    self.save(module, store);
                    let fuel = store.fuel().expect("there is a limit");
                    // Pieces of a long run become longer, so that their number stays small.
                    let length_max = 1 << (self.random.below(7) + ((self.pauses - pauses_before) / self.doubling).min(30));
                    store.set_fuel(fuel + missing + self.random.below(length_max));
                    self.proceed(store)?
                }
                Step::Suspended(other) => panic!("nobody asked for {other:?}"),
                Step::HostCall(_) => {
                    self.save(module, store);
                    assert_eq!(store.pending().as_ref(), Some(&step));
                    self.switches += 1;
                    self.probe = self.random.below(3);
                    match self.probe {
                        0 => linker.advance(store, &mut NoProbe, step)?,
                        1 => linker.advance(store, &mut Ignore, step)?,
                        _ => linker.advance(store, &mut Every, step)?,
                    }
                }
            };
        }
    }

    /// Goes on under any probe or, where that cannot be, under the one before.
    fn proceed(&mut self, store: &mut Store) -> Result<Step, Error> {
        let mut go = |probe: u64| match probe {
            0 => store.proceed(&mut NoProbe),
            1 => store.proceed(&mut Ignore),
            _ => store.proceed(&mut Every),
        };
        let other = self.random.below(3);
        match go(other) {
            Err(Error::Suspended(_)) => go(self.probe),
            step => {
                self.switches += u64::from(other != self.probe);
                self.probe = other;
                step
            }
        }
    }

    fn save(&mut self, module: &Module, store: &mut Store) {
        if self.random.one_in(32) {
            *store = store.snapshot().and_then(|snapshot| snapshot.fork()).expect("there is memory");
        }
        if self.random.one_in(16) {
            self.saves += 1;
            let mut bytes = Vec::new();
            store.save(&mut bytes).expect("a vector can be written");
            *store = Store::restore(store.engine(), std::slice::from_ref(module), &bytes).expect("it was saved just now");
        }
    }
}
