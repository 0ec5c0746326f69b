//! Runs that are suspended between operators go on as if nothing had happened.

#[path = "common/suspended.rs"]
mod suspended;

use std::time::{Duration, Instant};

use worksp_engine::probe::{NoProbe, Probe, SiteId};
use worksp_engine::{Config, Engine, FuncType, Module, Step, Store, Suspension, TrapKind, Val, ValType};

use suspended::PROGRAM;

/// Watches everything, and counts operators.
#[derive(Default)]
struct Watch {
    operators: u64,
    events: u64,
}

impl Probe for Watch {
    const OPERATORS: bool = true;

    fn operator(&mut self, _: SiteId) {
        self.operators += 1;
    }

    fn load(&mut self, _: SiteId, _: u32, _: u64, _: u32, _: worksp_engine::probe::Rmw) {
        self.events += 1;
    }
}

fn engine(single_step: bool) -> Engine {
    Engine::new(Config { fuel: true, single_step, ..Config::default() })
}

/// Starts `run(30)` and gives it `portion` of fuel as often as it needs, or what it says that it needs.
fn portions<P: Probe>(engine: &Engine, probe: &mut P, portion: u64) -> (Step, u64, u64) {
    let module = Module::from_text(engine, PROGRAM).expect("valid");
    let mut store = Store::new(engine);
    let instance = store.instantiate(&module, &[]).expect("no imports");
    let run = store.exported_func(instance, "run").expect("exported");
    let (mut pauses, mut given) = (0, portion);
    store.set_fuel(portion);
    let mut step = store.start(probe, run, &[Val::I32(30)]).expect("runs");
    while let Step::Suspended(Suspension::OutOfFuel { missing }) = step {
        assert_eq!(Some(given - store.work()), store.fuel());
        let more = portion.max(missing);
        given += more;
        store.set_fuel(store.fuel().expect("there is a limit") + more);
        step = store.proceed(probe).expect("it was suspended");
        pauses += 1;
    }
    (step, store.work(), pauses)
}

#[test]
fn portions_of_fuel_change_nothing() {
    for single_step in [false, true] {
        let engine = engine(single_step);
        let (step, work, pauses) = portions(&engine, &mut NoProbe, 1 << 40);
        assert_eq!((pauses, work > 30 * 7500), (0, true));
        assert!(matches!(step, Step::Returned(_)), "{step:?}");
        for portion in [1, 2, 3, 7, 50, 1001, 10_000] {
            let (found, counted, pauses) = portions(&engine, &mut NoProbe, portion);
            assert_eq!((&found, counted), (&step, work), "{portion}");
            assert!(pauses > 10 && pauses < work / portion.min(7500) + 2, "{portion}: {pauses}");
            let (found, counted, _) = portions(&engine, &mut Watch::default(), portion);
            assert_eq!((&found, counted), (&step, work), "{portion}, traced");
        }
    }
}

#[test]
fn every_operator_is_a_step() {
    let engine = engine(true);
    let mut watch = Watch::default();
    let (expected, work, _) = portions(&engine, &mut watch, 1 << 40);
    let mut store = Store::new(&engine);
    let instance = store.instantiate(&Module::from_text(&engine, PROGRAM).expect("valid"), &[]).expect("no imports");
    let run = store.exported_func(instance, "run").expect("exported");
    store.set_stepping(true);
    let mut steps = 0;
    let mut step = store.start(&mut NoProbe, run, &[Val::I32(30)]).expect("runs");
    assert_eq!(store.work(), 0, "it stops before the first operator");
    while let Step::Suspended(why) = step {
        assert_eq!(why, Suspension::Stepped);
        let before = store.work();
        step = store.proceed(&mut NoProbe).expect("it was suspended");
        assert!([1, 7501].contains(&(store.work() - before)), "one operator, or `memory.fill`");
        steps += 1;
    }
    assert_eq!((step, store.work(), steps), (expected, work, watch.operators));
}

#[test]
fn steps_may_begin_and_end_anywhere() {
    let engine = engine(true);
    let (expected, work, _) = portions(&engine, &mut NoProbe, 1 << 40);
    let mut store = Store::new(&engine);
    let instance = store.instantiate(&Module::from_text(&engine, PROGRAM).expect("valid"), &[]).expect("no imports");
    let run = store.exported_func(instance, "run").expect("exported");
    store.set_fuel(5000);
    let mut step = store.start(&mut NoProbe, run, &[Val::I32(30)]).expect("runs");
    for turn in 0_u64.. {
        let Step::Suspended(_) = step else { break };
        store.set_stepping(turn % 100 != 0);
        store.set_fuel(if turn % 100 == 0 { 9000 } else { 1 << 40 });
        step = store.proceed(&mut NoProbe).expect("it was suspended");
    }
    assert_eq!((step, store.work()), (expected, work));
}

const SPIN: &str = r#"(module (import "env" "host" (func $host)) (func $spin (export "spin") (loop (br 0)))
    (func (export "calls") (call $host) (call $spin)) (func (export "add") (param i32) (result i32) (i32.add (local.get 0) (i32.const 1))))"#;

fn spinning(engine: &Engine) -> (Store, worksp_engine::InstanceId) {
    let mut store = Store::new(engine);
    let host = store.host_func(FuncType::new([], []), 7);
    let module = Module::from_text(engine, SPIN).expect("valid");
    let instance = store.instantiate(&module, &[worksp_engine::Extern::Func(host)]).expect("the import fits");
    (store, instance)
}

#[test]
fn another_thread_interrupts() {
    let (mut store, instance) = spinning(&engine(false));
    let spin = store.exported_func(instance, "spin").expect("exported");
    let interrupt = store.interrupt();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        interrupt.interrupt();
        interrupt
    });
    assert_eq!(store.start(&mut NoProbe, spin, &[]), Ok(Step::Suspended(Suspension::Interrupted)));
    let work = store.work();
    other.join().expect("it only interrupts").interrupt();
    assert_eq!(store.proceed(&mut NoProbe), Ok(Step::Suspended(Suspension::Interrupted)));
    assert!(work > 0 && store.work() > work);
    let trap = store.abandon(&mut NoProbe).expect("it was suspended");
    assert_eq!((trap.kind(), trap.backtrace()[0].name.as_str()), (TrapKind::Interrupted, "spin"));
    assert_eq!((store.pending(), store.abandon(&mut NoProbe)), (None, None));
}

#[test]
fn a_deadline_ends_what_spins() {
    let (mut store, instance) = spinning(&engine(false));
    let calls = store.exported_func(instance, "calls").expect("exported");
    let began = Instant::now();
    store.set_deadline(Some(began + Duration::from_millis(30)));
    assert!(matches!(store.start(&mut NoProbe, calls, &[]), Ok(Step::HostCall(_))));
    assert_eq!(store.resume(&mut NoProbe, &[]), Ok(Step::Suspended(Suspension::DeadlinePassed)));
    assert!(began.elapsed() >= Duration::from_millis(30));
    let names: Vec<String> = store.abandon(&mut NoProbe).expect("suspended").backtrace().iter().map(|frame| frame.name.clone()).collect();
    assert_eq!(names, ["spin", "calls"]);
}

#[test]
fn other_calls_run_inside_of_a_suspended_run() {
    let (mut store, instance) = spinning(&engine(false));
    let [calls, add] = ["calls", "add"].map(|name| store.exported_func(instance, name).expect("exported"));
    assert!(matches!(store.start(&mut NoProbe, calls, &[]), Ok(Step::HostCall(_))));
    assert!(store.proceed(&mut NoProbe).is_err(), "a host call is no pause");
    store.set_fuel(1000);
    let paused = store.resume(&mut NoProbe, &[]).expect("a host call was pending");
    assert_eq!(paused, Step::Suspended(Suspension::OutOfFuel { missing: 1 }));
    assert!(store.resume(&mut NoProbe, &[]).is_err() && store.pending() == Some(paused.clone()));
    store.set_fuel(2);
    assert_eq!(store.start(&mut NoProbe, add, &[Val::I32(4)]), Ok(Step::Suspended(Suspension::OutOfFuel { missing: 1 })));
    store.set_fuel(10_000);
    assert_eq!(store.proceed(&mut NoProbe), Ok(Step::Returned(vec![Val::I32(5)])));
    assert_eq!(store.proceed(&mut NoProbe), Ok(paused));
    assert_eq!((store.unwind(&mut NoProbe), store.pending()), (0, None));
}

#[test]
fn a_direct_call_of_the_host_waits_with_its_arguments() {
    let mut store = Store::new(&engine(false));
    let host = store.host_func(FuncType::new([ValType::V128, ValType::I32], []), 9);
    let args = [Val::V128(5 << 70), Val::I32(-1)];
    let step = store.start(&mut NoProbe, host, &args).expect("the arguments fit");
    assert_eq!((store.pending().as_ref(), store.resume(&mut NoProbe, &[])), (Some(&step), Ok(Step::Returned(vec![]))));
}
