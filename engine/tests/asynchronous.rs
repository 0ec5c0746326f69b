//! Asynchronous host functions, polled by hand.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use worksp_engine::probe::NoProbe;
use worksp_engine::{CallError, Config, Engine, Error, FuncType, InstanceId, Linker, Module, Step, Store, Suspension, Trap, Val, ValType};

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Is ready at the third poll; asks for each of them.
#[derive(Default)]
struct Slow(u32);

impl Future for Slow {
    type Output = u32;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
        self.0 += 1;
        context.waker().wake_by_ref();
        if self.0 < 3 { Poll::Pending } else { Poll::Ready(self.0) }
    }
}

/// `run(n)` adds what `slow` makes of it to what `again` gives, which calls `double` with what it got.
const PROGRAM: &str = r#"(module (import "env" "slow" (func $slow (param i32) (result i32))) (import "env" "again" (func $again (param i32) (result i32)))
    (import "env" "fail" (func $fail))
    (func (export "double") (param i32) (result i32) (i32.add (call $slow (local.get 0)) (call $slow (local.get 0))))
    (func (export "run") (param i32) (result i32) (i32.add (call $slow (local.get 0)) (call $again (local.get 0))))
    (func (export "fail") (call $fail)))"#;

struct Setup {
    store: Store,
    linker: Linker,
    instance: InstanceId,
    log: Rc<RefCell<Vec<i32>>>,
}

fn setup() -> Setup {
    let engine = Engine::new(Config { fuel: true, ..Config::default() });
    let module = Module::from_text(&engine, PROGRAM).expect("valid");
    let (mut store, mut linker) = (Store::new(&engine), Linker::new());
    let log = Rc::new(RefCell::new(Vec::new()));
    let unary = FuncType::new([ValType::I32], [ValType::I32]);
    let arg = |args: &[Val]| if let [Val::I32(arg)] = args { *arg } else { panic!("one i32") };
    let written = log.clone();
    linker.func_async("env", "slow", unary.clone(), move |_, args| {
        let (arg, written) = (arg(args), written.clone());
        Box::pin(async move {
            assert_eq!(Slow::default().await, 3);
            written.borrow_mut().push(arg);
            Ok(vec![Val::I32(arg + 1)])
        })
    });
    linker.func_async("env", "again", unary, |caller, args| {
        Box::pin(async move {
            let instance = caller.instance().expect("an instance calls");
            let double = caller.store().exported_func(instance, "double")?;
            caller.call_async(double, args).await
        })
    });
    linker.func_async("env", "fail", FuncType::new([], []), |_, _| {
        Box::pin(async {
            Slow::default().await;
            Err(Trap::host("no such luck").into())
        })
    });
    let instance = linker.instantiate(&mut store, &mut NoProbe, &module).expect("all is defined");
    Setup { store, linker, instance, log }
}

#[test]
fn a_future_waits_for_each_host_function() {
    let Setup { mut store, linker, instance, log } = setup();
    let run = store.exported_func(instance, "run").expect("exported");
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let mut polls = 0;
    let mut probe = NoProbe;
    let mut call = pin!(linker.call_async(&mut store, &mut probe, run, &[Val::I32(5)]));
    let results = loop {
        polls += 1;
        if let Poll::Ready(results) = call.as_mut().poll(&mut context) {
            break results;
        }
    };
    // Three calls of `slow`, each pending twice: seven polls.
    assert_eq!((results, polls, woken.0.load(Ordering::Relaxed)), (Ok(vec![Val::I32(6 + 12)]), 7, 9));
    assert_eq!(*log.borrow(), [5, 5, 5]);
}

#[test]
fn many_runs_share_a_thread() {
    let mut setups: Vec<Setup> = (0..4).map(|_| setup()).collect();
    let done = Cell::new(0);
    let mut calls: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
    for (i, setup) in setups.iter_mut().enumerate() {
        let run = setup.store.exported_func(setup.instance, "run").expect("exported");
        let done = &done;
        calls.push(Box::pin(async move {
            let results = setup.linker.call_async(&mut setup.store, &mut NoProbe, run, &[Val::I32(i as i32)]).await;
            assert_eq!(results, Ok(vec![Val::I32(3 * i as i32 + 3)]));
            done.set(done.get() + 1);
        }));
    }
    let mut context = Context::from_waker(Waker::noop());
    for round in 1..=7 {
        for call in &mut calls {
            assert_eq!(call.as_mut().poll(&mut context).is_ready(), round == 7);
        }
    }
    assert_eq!(done.get(), 4);
}

#[test]
fn what_is_dropped_stays_suspended() {
    let Setup { mut store, linker, instance, log } = setup();
    let run = store.exported_func(instance, "run").expect("exported");
    {
        let mut probe = NoProbe;
        let mut call = pin!(linker.call_async(&mut store, &mut probe, run, &[Val::I32(5)]));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let pending = store.pending().expect("the run is suspended");
    assert!(matches!(&pending, Step::HostCall(call) if call.args == [Val::I32(5)]));
    assert!(log.borrow().is_empty());
    // The host function may be asked again.
    let step = pollster::block_on(linker.advance_async(&mut store, &mut NoProbe, pending));
    assert_eq!(step, Ok(Step::Returned(vec![Val::I32(18)])));
    assert_eq!(store.pending(), None);
}

#[test]
fn failures_end_the_run() {
    let Setup { mut store, linker, instance, .. } = setup();
    let [run, fail] = ["run", "fail"].map(|name| store.exported_func(instance, name).expect("exported"));
    let error = pollster::block_on(linker.call_async(&mut store, &mut NoProbe, fail, &[])).expect_err("it fails");
    assert!(matches!(&error, CallError::Trap(trap) if trap.message() == Some("no such luck")), "{error}");
    let error = linker.call(&mut store, &mut NoProbe, run, &[Val::I32(1)]).expect_err("nobody waits");
    assert!(matches!(&error, CallError::Error(Error::OutOfTurn(why)) if why.contains("call_async")), "{error}");
    assert_eq!(store.pending(), None);
}

#[test]
fn fuel_and_futures_go_together() {
    let Setup { mut store, linker, instance, .. } = setup();
    let run = store.exported_func(instance, "run").expect("exported");
    store.set_fuel(0);
    let mut step = store.start(&mut NoProbe, run, &[Val::I32(5)]).expect("runs");
    let mut pauses = 0;
    let results = loop {
        step = match pollster::block_on(linker.advance_async(&mut store, &mut NoProbe, step)) {
            Ok(Step::Suspended(Suspension::OutOfFuel { missing })) => {
                pauses += 1;
                // The nested call has what is left: enough for it.
                store.set_fuel(missing + 10);
                store.proceed(&mut NoProbe).expect("it was suspended")
            }
            Ok(Step::Returned(results)) => break results,
            other => panic!("{other:?}"),
        };
    };
    assert_eq!((results, pauses), (vec![Val::I32(18)], 1));
}
