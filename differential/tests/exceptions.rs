//! Random programs that throw and catch all the time, written in both forms: the legacy form, the newer form, and Wasmtime (which has
//! the newer one only) must end alike, in every mode of this engine.
//!
//! `WORKSP_PROGRAMS=N` runs N programs instead of the default, `WORKSP_SEED=S` starts at seed S; a failure names its seed.

use std::fmt::Write;

use worksp_differential::witness::{Watcher, Witness};
use worksp_engine::probe::NoProbe;
use worksp_engine::{CallError, Config, Engine, Linker, Module, Store, TrapKind, Val};

/// What a statement of a program does. Everything that is done changes the global `$a`, so that its value tells the whole story.
enum Node {
    Note(u32),
    /// Throws with this tag, if the story so far wants it.
    Throw(usize),
    Call(usize),
    /// So many rounds, of which the story may leave the loop early.
    Loop(u32, Vec<Node>),
    If(Vec<Node>),
    Return,
    Try(Vec<Node>, Vec<Handler>),
    /// Exceptions go to the clauses of a `try` further out, counted from the innermost, or to the caller.
    Delegate(usize, Vec<Node>),
}

struct Handler {
    /// `None` for all.
    tag: Option<usize>,
    body: Vec<Node>,
    /// Throws on what it caught, if the story wants it.
    rethrows: bool,
}

const FUNCS: usize = 5;
/// Parameters of the tags.
const TAGS: [&[&str]; 3] = [&[], &["i64"], &["v128", "i32", "f64"]];

struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn nodes(&mut self, func: usize, depth: u32) -> Vec<Node> {
        (0..1 + self.next(3)).map(|_| self.node(func, depth)).collect()
    }

    fn node(&mut self, func: usize, depth: u32) -> Node {
        let inner = |random: &mut Random| random.nodes(func, depth + 1);
        match self.next(if depth < 4 { 14 } else { 6 }) {
            0 => Node::Note(self.next(1000) as u32),
            1..=3 => Node::Throw(self.next(3) as usize),
            4 if func + 1 < FUNCS => Node::Call(func + 1 + self.next((FUNCS - func - 1) as u64) as usize),
            5 => match self.next(6) {
                0 => Node::Return,
                _ => Node::Note(1),
            },
            6 | 7 => Node::Loop(1 + self.next(3) as u32, inner(self)),
            8 => Node::If(inner(self)),
            9 => Node::Delegate(self.next(3) as usize, inner(self)),
            _ => {
                let body = inner(self);
                let mut handlers: Vec<Handler> = (0..self.next(3))
                    .map(|_| Handler { tag: Some(self.next(3) as usize), body: inner(self), rethrows: self.next(3) == 0 })
                    .collect();
                if self.next(3) == 0 {
                    handlers.push(Handler { tag: None, body: inner(self), rethrows: self.next(2) == 0 });
                }
                Node::Try(body, handlers)
            }
        }
    }
}

/// Writes one function in one of the forms.
struct Writer {
    legacy: bool,
    text: String,
    labels: u32,
    /// Labels of the `try`s whose bodies are open.
    tries: Vec<u32>,
    locals: u32,
}

impl Writer {
    fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    fn put(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn note(&mut self, number: u64) {
        self.put(&format!("(call $note (i64.const {number}))"));
    }

    /// A condition that holds in one of `n` cases.
    fn wanted(n: u32) -> String {
        format!("(i64.eqz (i64.rem_u (i64.shr_u (global.get $a) (i64.const 7)) (i64.const {n})))")
    }

    fn all(&mut self, nodes: &[Node]) {
        nodes.iter().for_each(|node| self.node(node));
    }

    fn node(&mut self, node: &Node) {
        match node {
            Node::Note(number) => self.note(u64::from(*number)),
            Node::Throw(tag) => {
                self.note(3);
                let values = TAGS[*tag].iter().map(|ty| match *ty {
                    "i64" => "(global.get $a)",
                    "i32" => "(i32.wrap_i64 (global.get $a))",
                    "f64" => "(f64.convert_i32_s (i32.wrap_i64 (global.get $a)))",
                    _ => "(i64x2.splat (global.get $a))",
                });
                let values: String = values.collect();
                self.put(&format!("(if {} (then (throw $t{tag} {values})))", Writer::wanted(3)));
            }
            // Operands that are under way when the callee throws.
            Node::Call(func) => self.put(&format!("(global.set $a (i64.xor (global.get $a) (call $f{func} (i64.add (local.get 0) (global.get $a)))))")),
            Node::Loop(rounds, body) => {
                let (label, counter) = (self.label(), self.locals);
                self.locals += 1;
                self.put(&format!("(local.set $n{counter} (i32.const 0)) (block $out{label} (loop $l{label}"));
                self.note(5);
                self.all(body);
                self.put(&format!("(br_if $out{label} {})", Writer::wanted(5)));
                self.put(&format!(
                    "(br_if $l{label} (i32.lt_u (local.tee $n{counter} (i32.add (local.get $n{counter}) (i32.const 1))) (i32.const {rounds})))))"
                ));
            }
            Node::If(body) => {
                self.put(&format!("(if {} (then", Writer::wanted(2)));
                self.all(body);
                self.put("))");
            }
            Node::Return => self.put(&format!("(if {} (then (return (local.get 0))))", Writer::wanted(4))),
            Node::Delegate(levels, body) => {
                let target = self.tries.iter().rev().nth(*levels).copied();
                if self.legacy {
                    let label = self.label();
                    self.put(&format!("try $q{label}"));
                    self.all(body);
                    // Past the last label is the function's own.
                    let target = target.map_or("$all".to_owned(), |label| format!("$try{label}"));
                    self.put(&format!("delegate {target}"));
                } else {
                    let label = self.label();
                    self.put(&format!("(block $q{label} (block $w{label} (result exnref) (try_table (catch_all_ref $w{label})"));
                    self.all(body);
                    self.put(&format!(") (br $q{label}))"));
                    let target = target.map_or("$all".to_owned(), |label| format!("$dl{label}"));
                    self.put(&format!("(br {target}))"));
                }
            }
            Node::Try(body, handlers) if self.legacy => self.legacy_try(body, handlers),
            Node::Try(body, handlers) => self.try_table(body, handlers),
        }
    }

    fn legacy_try(&mut self, body: &[Node], handlers: &[Handler]) {
        let label = self.label();
        self.put(&format!("try $try{label}"));
        self.tries.push(label);
        self.all(body);
        self.tries.pop();
        for handler in handlers {
            match handler.tag {
                Some(tag) => self.put(&format!("catch $t{tag}")),
                None => self.put("catch_all"),
            }
            self.handler(handler);
            if handler.rethrows {
                self.put(&format!("(if {} (then (rethrow $try{label})))", Writer::wanted(2)));
            }
        }
        self.put("end");
    }

    /// What a handler does with the values of its exception, which are on the stack.
    fn handler(&mut self, handler: &Handler) {
        for ty in handler.tag.map_or(&[][..], |tag| TAGS[tag]).iter().rev() {
            self.put(match *ty {
                "i64" => "(call $note)",
                "i32" => "(call $note (i64.extend_i32_u))",
                "f64" => "(call $note (i64.reinterpret_f64))",
                _ => "(call $note (i64x2.extract_lane 1))",
            });
        }
        self.note(17);
        self.all(&handler.body);
    }

    fn try_table(&mut self, body: &[Node], handlers: &[Handler]) {
        let label = self.label();
        self.put(&format!("(block $done{label}"));
        for (i, handler) in handlers.iter().enumerate().rev() {
            let types = handler.tag.map_or(String::new(), |tag| TAGS[tag].join(" "));
            self.put(&format!("(block $h{label}_{i} (result {types} exnref)"));
        }
        self.put("(try_table");
        for (i, handler) in handlers.iter().enumerate() {
            match handler.tag {
                Some(tag) => self.put(&format!("(catch_ref $t{tag} $h{label}_{i})")),
                None => self.put(&format!("(catch_all_ref $h{label}_{i})")),
            }
        }
        self.put(&format!("(block $be{label} (block $dl{label} (result exnref)"));
        self.tries.push(label);
        self.all(body);
        self.tries.pop();
        self.put(&format!("(br $be{label})) (throw_ref)))"));
        if !handlers.is_empty() {
            self.put(&format!("(br $done{label})"));
        }
        for handler in handlers {
            let exn = self.locals;
            self.locals += 1;
            self.put(&format!(") (local.set $x{exn})"));
            self.handler(handler);
            if handler.rethrows {
                self.put(&format!("(if {} (then (throw_ref (local.get $x{exn}))))", Writer::wanted(2)));
            }
            self.put(&format!("(br $done{label})"));
        }
        self.put(")");
    }
}

fn text(funcs: &[Vec<Node>], legacy: bool) -> String {
    let mut module = String::from(
        r#"(module (tag $t0) (tag $t1 (param i64)) (tag $t2 (param v128 i32 f64))
        (global $a (export "a") (mut i64) (i64.const 0))
        (global $left (mut i32) (i32.const 20000))
        (func $note (param i64)
            (if (i32.eqz (global.get $left)) (then (unreachable)))
            (global.set $left (i32.sub (global.get $left) (i32.const 1)))
            (global.set $a (i64.add (i64.mul (global.get $a) (i64.const 6364136223846793005)) (local.get 0))))
        (func (export "run") (param i64) (result i64) (global.set $a (local.get 0)) (call $f0 (local.get 0)))"#,
    );
    for (number, body) in funcs.iter().enumerate() {
        let mut writer = Writer { legacy, text: String::new(), labels: 0, tries: Vec::new(), locals: 0 };
        writer.all(body);
        let locals: String = (0..writer.locals).map(|n| format!("(local $n{n} i32) (local $x{n} exnref) ")).collect();
        let body = match legacy {
            true => format!("(block $all {}) (global.get $a)", writer.text),
            false => format!("(block $all (result exnref) {} (return (global.get $a))) (throw_ref)", writer.text),
        };
        writeln!(module, "(func $f{number} (param i64) (result i64) {locals} {body})").expect("a string takes everything");
    }
    module + ")"
}

/// How a call ended, and the story.
#[derive(PartialEq, Debug)]
struct Outcome {
    end: End,
    story: i64,
}

#[derive(PartialEq, Debug)]
enum End {
    Returned(i64),
    /// The values that the exception carries, as bits.
    Threw(Vec<u128>),
    /// The story got too long.
    Stopped,
}

fn ours<P: Watcher>(bytes: &[u8], arg: i64, fuel: bool) -> (Outcome, u64) {
    let engine = Engine::new(Config { fuel, ..Config::default() });
    let module = Module::new(&engine, bytes).expect("valid");
    let (mut store, mut probe) = (Store::new(&engine), P::default());
    let linker = Linker::new();
    let instance = linker.instantiate(&mut store, &mut probe, &module).expect("no imports");
    store.set_trace_plan(instance, P::plan(&module));
    let run = store.exported_func(instance, "run").expect("exported");
    let end = match linker.call(&mut store, &mut probe, run, &[Val::I64(arg)]) {
        Ok(values) => End::Returned(values[0].raw() as i64),
        Err(CallError::Trap(trap)) if trap.kind() == TrapKind::UncaughtException => {
            let (_, values) = store.exception(trap.exception().expect("it says which")).expect("it is kept");
            End::Threw(values.iter().map(|value| value.bits()).collect())
        }
        Err(CallError::Trap(trap)) if trap.kind() == TrapKind::Unreachable => End::Stopped,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(probe.complaints(), Vec::<String>::new(), "events out of order");
    let story = store.global(store.global_id(instance, 0)).raw() as i64;
    (Outcome { end, story }, store.work())
}

fn theirs(engine: &wasmtime::Engine, bytes: &[u8], args: &[i64]) -> Vec<Outcome> {
    let module = wasmtime::Module::new(engine, bytes).expect("valid");
    let mut outcomes = Vec::new();
    for arg in args {
        let mut store = wasmtime::Store::new(engine, ());
        let instance = wasmtime::Instance::new(&mut store, &module, &[]).expect("no imports");
        let run = instance.get_typed_func::<i64, i64>(&mut store, "run").expect("exported");
        let end = match run.call(&mut store, *arg) {
            Ok(value) => End::Returned(value),
            Err(error) if error.downcast_ref() == Some(&wasmtime::Trap::UnreachableCodeReached) => End::Stopped,
            Err(error) => {
                assert!(error.is::<wasmtime::ThrownException>(), "{error:?}");
                let exception = store.take_pending_exception().expect("it was thrown");
                let fields: Vec<wasmtime::Val> = exception.fields(&mut store).expect("it is kept").collect();
                let bits = |value: &wasmtime::Val| match value {
                    wasmtime::Val::I32(v) => u128::from(*v as u32),
                    wasmtime::Val::I64(v) => u128::from(*v as u64),
                    wasmtime::Val::F64(bits) => u128::from(*bits),
                    wasmtime::Val::V128(v) => v.as_u128(),
                    other => panic!("no tag has {other:?}"),
                };
                End::Threw(fields.iter().map(bits).collect())
            }
        };
        let wasmtime::Val::I64(story) = instance.get_global(&mut store, "a").expect("exported").get(&mut store) else {
            panic!("the story is a number")
        };
        outcomes.push(Outcome { end, story });
    }
    outcomes
}

#[test]
fn both_forms_and_wasmtime_tell_the_same_story() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |v| v.parse().expect("a number"));
    let (first, count) = (number("WORKSP_SEED", 1), number("WORKSP_PROGRAMS", 150));
    println!("seeds {first}..{}", first + count);
    let mut config = wasmtime::Config::new();
    config.wasm_exceptions(true).cranelift_opt_level(wasmtime::OptLevel::None);
    let engine = wasmtime::Engine::new(&config).expect("a valid configuration");
    let args: Vec<i64> = (0..8).map(|i| 0x1234_5678_9abc * i + i).collect();
    let (mut returned, mut threw) = (0, 0);
    for seed in first..first + count {
        let mut random = Random(seed);
        random.next(2);
        let funcs: Vec<Vec<Node>> = (0..FUNCS).map(|func| random.nodes(func, 0)).collect();
        let [newer, legacy] = [false, true].map(|legacy| {
            let text = text(&funcs, legacy);
            wat::parse_str(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"))
        });
        let expected = theirs(&engine, &newer, &args);
        for (arg, expected) in args.iter().zip(expected) {
            for (bytes, form) in [(&newer, "newer"), (&legacy, "legacy")] {
                let plain = ours::<NoProbe>(bytes, *arg, false).0;
                assert_eq!(plain, expected, "seed {seed}, argument {arg}, {form} form: Wasmtime (right) disagrees");
                let (counted, work) = ours::<NoProbe>(bytes, *arg, true);
                let (traced, traced_work) = ours::<Witness>(bytes, *arg, false);
                assert_eq!((&counted, &traced), (&expected, &expected), "seed {seed}, argument {arg}, {form} form: modes differ");
                assert_eq!(work, traced_work, "seed {seed}, argument {arg}, {form} form: work differs");
            }
            *if matches!(expected.end, End::Threw(_)) { &mut threw } else { &mut returned } += 1;
        }
    }
    println!("{returned} calls returned, {threw} threw");
    assert!(returned * 10 >= count && threw * 10 >= count, "programs end in both ways");
}
