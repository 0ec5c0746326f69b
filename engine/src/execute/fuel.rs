//! What bounds a run from outside: fuel, interrupts, a deadline, single steps; and who is told how far it is.
//!
//! Code that counts work takes fuel where a block begins, and leaves when there is not enough. Everything here is a matter of how
//! much it gets at a time: handlers know of fuel only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::State;
use crate::store::Store;

/// Work without a limit: far more than a machine can do.
pub(super) const UNLIMITED: i64 = i64::MAX / 4;

/// Work between two looks at an interrupt or a deadline: well under a millisecond.
const SLICE: i64 = 100_000;

/// Why a run is suspended between two operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suspension {
    /// The next block of operators needs this much more fuel than there is.
    OutOfFuel {
        /// The least amount that gets it further, beyond what is left.
        missing: u64,
    },
    /// Somebody called [`Interrupt::interrupt`].
    Interrupted,
    /// The store's deadline has passed.
    DeadlinePassed,
    /// The store is single-stepped.
    Stepped,
}

/// Suspends runs of one store, from any thread.
#[derive(Clone, Debug)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
}

impl Interrupt {
    /// Has the store's run, or its next one, suspend with [`Suspension::Interrupted`] at the start of a block of operators, after at most
    /// a fraction of a millisecond or one bulk operator. Only runs that count work look.
    pub fn interrupt(&self) {
        // Only a flag: it publishes nothing else.
        self.flag.store(true, Ordering::Relaxed);
    }
}

/// What [`Store`] holds of all that.
#[derive(Default)]
pub(super) struct Bounds {
    meter: Option<Meter>,
    interrupt: Option<Interrupt>,
    deadline: Option<Instant>,
    stepping: bool,
}

/// Who is told how far counted runs have come.
struct Meter {
    every: i64,
    tell: Arc<dyn Fn(u64) + Send + Sync>,
    told: i64,
}

impl Bounds {
    /// How much fuel a run gets at a time.
    fn slice(&self) -> i64 {
        let looks = self.interrupt.is_some() || self.deadline.is_some();
        let every = if looks { SLICE } else { UNLIMITED };
        self.meter.as_ref().map_or(every, |meter| every.min(meter.every))
    }

    /// Why a run that has had its slice must stop here.
    fn suspension(&self) -> Option<Suspension> {
        if self.stepping {
            return Some(Suspension::Stepped);
        }
        if self.interrupt.as_ref().is_some_and(|interrupt| interrupt.flag.swap(false, Ordering::Relaxed)) {
            return Some(Suspension::Interrupted);
        }
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline).then_some(Suspension::DeadlinePassed)
    }

    fn tell(&mut self, work: i64) {
        if let Some(meter) = &mut self.meter
            && work - meter.told >= meter.every
        {
            meter.told = work;
            (meter.tell)(work as u64);
        }
    }
}

impl State {
    /// Work so far.
    pub(super) fn work(&self) -> i64 {
        self.fuel_base - self.fuel
    }

    /// The fuel that a run begins with; it goes on with an operator that needs `next`.
    pub(super) fn first_slice(&self, next: i64) -> i64 {
        let slice = if self.bounds.stepping { next } else { self.bounds.slice().max(next) };
        self.fuel.min(slice)
    }

    /// A run of so much work lacks `missing` for what comes next, a block or (not `whole`) the rest of one operator: what it gets of the
    /// `reserve`, or why it must stop.
    pub(super) fn next_slice(&mut self, work: i64, missing: i64, reserve: i64, whole: bool) -> Result<i64, Suspension> {
        self.bounds.tell(work);
        if missing > reserve {
            return Err(Suspension::OutOfFuel { missing: (missing - reserve) as u64 });
        }
        if whole && let Some(suspension) = self.bounds.suspension() {
            return Err(suspension);
        }
        let slice = if self.bounds.stepping { missing } else { self.bounds.slice().max(missing) };
        Ok(slice.min(reserve))
    }
}

impl Store {
    /// Has `tell` called with the work so far about every `every` units of work, in runs that count it.
    pub fn on_work(&mut self, every: u64, tell: Arc<dyn Fn(u64) + Send + Sync>) {
        let every = i64::try_from(every.max(1)).unwrap_or(UNLIMITED);
        self.exec.bounds.meter = Some(Meter { every, tell, told: self.exec.work() });
    }

    /// Operators executed so far, weighted; counted in traced runs and where the engine's `fuel` is on, else 0.
    pub fn work(&self) -> u64 {
        self.exec.work() as u64
    }

    /// Allows `amount` more work from now on. A run that needs more suspends, see [`Suspension::OutOfFuel`].
    pub fn set_fuel(&mut self, amount: u64) {
        let work = self.exec.work();
        self.exec.fuel = i64::try_from(amount).unwrap_or(UNLIMITED).min(UNLIMITED);
        self.exec.fuel_base = self.exec.fuel + work;
    }

    /// The work that is still allowed, or `None` when there is no limit.
    pub fn fuel(&self) -> Option<u64> {
        (self.exec.fuel < UNLIMITED / 2).then_some(self.exec.fuel as u64)
    }

    /// What suspends this store's runs from another thread. From the first call on, runs that count work (the engine's
    /// [`fuel`](crate::Config::fuel) is on, or a probe traces) look for it now and then; others run on.
    ///
    /// # Example
    /// ```
    /// use worksp_engine::probe::NoProbe;
    /// use worksp_engine::{Config, Engine, Module, Step, Store, Suspension};
    /// let engine = Engine::new(Config { fuel: true, ..Config::default() });
    /// let module = Module::from_text(&engine, r#"(module (func (export "spin") (loop (br 0))))"#)?;
    /// let mut store = Store::new(&engine);
    /// let instance = store.instantiate(&module, &[])?;
    /// let spin = store.exported_func(instance, "spin")?;
    /// let interrupt = store.interrupt();
    /// let other = std::thread::spawn(move || interrupt.interrupt());
    /// assert_eq!(store.start(&mut NoProbe, spin, &[])?, Step::Suspended(Suspension::Interrupted));
    /// assert_eq!(store.abandon(&mut NoProbe).unwrap().to_string(), "trap: interrupted\n  0: spin (function 0, offset 0x23)");
    /// other.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn interrupt(&mut self) -> Interrupt {
        self.exec.bounds.interrupt.get_or_insert_with(|| Interrupt { flag: Arc::default() }).clone()
    }

    /// Has runs that count work suspend with [`Suspension::DeadlinePassed`] once this time has passed, within a fraction of a
    /// millisecond or one bulk operator; `None` lifts it. A run that goes on after its deadline suspends again soon.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.exec.bounds.deadline = deadline;
    }

    /// While on, runs that count work suspend with [`Suspension::Stepped`] where every block of operators begins, and
    /// [`Store::proceed`] executes one block. Where the engine's [`single_step`](crate::Config::single_step) is on, every operator is
    /// a block of its own.
    pub fn set_stepping(&mut self, on: bool) {
        self.exec.bounds.stepping = on;
    }
}
