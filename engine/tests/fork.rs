//! Forks go their own way, and where they came from does not notice.

#[path = "common/suspended.rs"]
mod suspended;

use worksp_engine::probe::{NoProbe, Probe};
use worksp_engine::{Config, Engine, Extern, InstanceId, Module, Step, Store, Suspension, Val};

use suspended::PROGRAM;

/// A memory of 40 pages with a word in each, a table and a global; `step` adds its argument to all of them.
const COUNTERS: &str = r#"(module (memory (export "m") 40 50) (table (export "t") 1 9 funcref) (global (export "g") (mut i32) (i32.const 0))
    (func (export "step") (param i32) (result i32) (local i32)
        (global.set 0 (i32.add (global.get 0) (local.get 0)))
        (loop
            (i32.store (i32.shl (local.get 1) (i32.const 16)) (i32.add (local.get 0) (i32.load (i32.shl (local.get 1) (i32.const 16)))))
            (br_if 0 (i32.lt_u (local.tee 1 (i32.add (local.get 1) (i32.const 1))) (memory.size))))
        (i32.add (global.get 0) (i32.load (i32.const 0x50000))))
    (func (export "grow") (result i32) (drop (table.grow (ref.null func) (i32.const 1))) (memory.grow (i32.const 1))))"#;

/// Is told of everything.
struct Traced;
impl Probe for Traced {}

fn call(store: &mut Store, name: &str, args: &[Val]) -> Vec<Val> {
    let func = store.exported_func(InstanceId(0), name).expect("exported");
    match store.start(&mut NoProbe, func, args) {
        Ok(Step::Returned(results)) => results,
        step => panic!("{step:?}"),
    }
}

fn counters() -> Store {
    let engine = Engine::default();
    let mut store = Store::new(&engine);
    store.instantiate(&Module::from_text(&engine, COUNTERS).expect("valid"), &[]).expect("no imports");
    store
}

#[test]
fn parent_and_forks_diverge() {
    let mut parent = counters();
    assert_eq!(call(&mut parent, "step", &[Val::I32(1)]), [Val::I32(2)]);
    let snapshot = parent.snapshot().expect("there is memory");
    let mut forks: Vec<Store> = (0..5).map(|_| snapshot.fork().expect("there is address space")).collect();
    assert_eq!(call(&mut parent, "step", &[Val::I32(1000)]), [Val::I32(2002)]);
    for (i, fork) in forks.iter_mut().enumerate() {
        assert_eq!(call(fork, "step", &[Val::I32(10 * i as i32)]), [Val::I32(2 + 20 * i as i32)]);
    }
    // Whoever grows grows alone, and a fork of a fork begins where that one is.
    assert_eq!(call(&mut forks[2], "grow", &[]), [Val::I32(40)]);
    let mut inner = forks[2].snapshot().expect("there is memory").fork().expect("there is address space");
    assert_eq!(call(&mut inner, "step", &[Val::I32(7)]), [Val::I32(2 + 40 + 14)]);
    drop(snapshot);
    let sizes = |store: &Store| {
        let [Some(Extern::Memory(m)), Some(Extern::Table(t))] = ["m", "t"].map(|name| store.export(InstanceId(0), name)) else { panic!() };
        (store.memory_pages(m), store.table_size(t))
    };
    assert_eq!((sizes(&parent), sizes(&forks[1]), sizes(&forks[2]), sizes(&inner)), ((40, 1), (40, 1), (41, 2), (41, 2)));
    drop(parent);
    let word = |store: &Store, page: usize| {
        let Some(Extern::Memory(m)) = store.export(InstanceId(0), "m") else { panic!("exported") };
        i32::from_le_bytes(store.memory(m)[page << 16..][..4].try_into().expect("four bytes"))
    };
    assert_eq!([word(&forks[0], 39), word(&forks[4], 39), word(&inner, 39), word(&inner, 40)], [1, 41, 28, 7]);
}

#[test]
fn a_suspended_run_goes_on_in_each_fork() {
    let engine = Engine::new(Config { fuel: true, ..Config::default() });
    let module = Module::from_text(&engine, PROGRAM).expect("valid");
    let mut store = Store::new(&engine);
    let instance = store.instantiate(&module, &[]).expect("no imports");
    let run = store.exported_func(instance, "run").expect("exported");
    store.set_fuel(7_600);
    let mut step = store.start(&mut NoProbe, run, &[Val::I32(30)]).expect("runs");
    let mut ends = Vec::new();
    while let Step::Suspended(Suspension::OutOfFuel { missing }) = step {
        let mut fork = store.snapshot().expect("there is memory").fork().expect("there is address space");
        assert_eq!(fork.pending(), Some(step));
        // On a thread of its own, to the end.
        let end = std::thread::spawn(move || {
            fork.set_fuel(1 << 40);
            let end = fork.proceed(&mut Traced).or_else(|_| fork.proceed(&mut NoProbe));
            (end, fork.work())
        });
        ends.push(end.join().expect("it runs"));
        store.set_fuel(store.fuel().expect("there is a limit") + missing + 5_000);
        step = store.proceed(&mut NoProbe).expect("it was suspended");
    }
    assert!(ends.len() > 20 && matches!(step, Step::Returned(_)));
    let expected = (Ok(step), store.work());
    assert!(ends.iter().all(|end| *end == expected), "{ends:?}, not {expected:?}");
}

#[test]
fn forks_survive_the_store_whose_code_they_share() {
    let mut parent = counters();
    call(&mut parent, "step", &[Val::I32(1)]);
    let snapshot = parent.snapshot().expect("there is memory");
    drop(parent);
    let mut fork = snapshot.fork().expect("there is address space");
    drop(snapshot);
    assert_eq!(call(&mut fork, "step", &[Val::I32(1)]), [Val::I32(4)]);
    assert_eq!(call(&mut fork, "grow", &[]), [Val::I32(40)]);
}
