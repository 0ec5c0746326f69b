//! For every class of dependence, a small program whose tasks hang together by nothing else: it must bind, and its tasks must come
//! apart at exactly the rung that removes it.

mod common;

use worksp::ladder::{BURDEN_DEFAULT, Ladder, Rung};
use worksp_tracer::Granule;

const SPIN: &str = "(local.set $n (i32.const 100)) (loop (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))";

fn trace(fields: &str, units: &[&str]) -> (worksp_tracer::Trace, Ladder) {
    trace_in("2", fields, units)
}

/// `memory`: the type of memory 0.
fn trace_in(memory: &str, fields: &str, units: &[&str]) -> (worksp_tracer::Trace, Ladder) {
    let text = format!(
        r#"(module
            (import "host" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
            (import "host" "yield" (func $yield))
            (memory (export "memory") {memory})
            (global $__stack_pointer (mut i32) (i32.const 1024))
            (global (export "__data_end") i32 (i32.const 2048))
            (global $g (mut i32) (i32.const 0))
            (table $t 4 funcref)
            {fields})"#
    );
    let run = common::Run { text: &text, calls: &[("run", &[])], units, granule: Granule::Eight };
    let trace = common::trace(&run);
    let ladder = Ladder::of(&trace, BURDEN_DEFAULT).expect("held in memory");
    (trace, ladder)
}

/// `apart`: the first rung at which the spin loops of the tasks overlap; `None` when no rung parts them.
fn check(what: &str, fields: &str, units: &[&str], binding: &str, apart: Option<&str>) {
    check_ladder(what, trace(fields, units).1, binding, apart);
}

fn check_ladder(what: &str, ladder: Ladder, binding: &str, apart: Option<&str>) {
    let is_apart = |rung: &Rung| ladder.parallelism(rung.span) > 2.0;
    let first = ladder.rungs[1..].iter().find(|r| is_apart(r)).map(|r| r.name);
    let spans: Vec<_> = ladder.rungs.iter().map(|r| (r.name, r.span, &r.binding)).collect();
    assert_eq!(first, apart, "{what}: {spans:?}");
    assert!(is_apart(&ladder.rungs[0]), "{what}: {spans:?}");
    let bound: Vec<&str> = ladder.rungs[1].binding.iter().map(|c| c.name()).collect();
    let expect: Vec<&str> = if apart == Some("M1") { vec![] } else { binding.split(' ').collect() };
    assert_eq!(bound, expect, "{what}");
}

/// Six calls of a task of which `link` is all that could chain them.
fn check_task(what: &str, link: &str, more: &str, binding: &str, apart: Option<&str>) {
    check(what, &six_tasks(link, more), &["func:task"], binding, apart);
}

fn six_tasks(link: &str, more: &str) -> String {
    let calls = "(call $task)".repeat(6);
    format!("{more} (func $task (local $n i32) {SPIN} {link}) (func $run (export \"run\") {calls})")
}

/// Six iterations of a loop in `run` that has locals `$x $y` and a float `$f`; `after` follows the loop.
fn check_loop(what: &str, body: &str, after: &str, binding: &str, apart: Option<&str>) {
    let fields = format!(
        r#"(func $spin (local $n i32) {SPIN})
           (func $id (param i32) (result i32) (local.get 0))
           (tag $e) (func $throw (throw $e))
           (func $run (export "run") (local $i i32) (local $x i32) (local $y i32) (local $f f32) (local $n i32)
             (loop $l (call $spin) {body}
               (local.set $i (i32.add (local.get $i) (i32.const 1)))
               (br_if $l (i32.lt_u (local.get $i) (i32.const 6))))
             {after})"#
    );
    check(what, &fields, &["loop:run#0"], binding, apart);
}

#[test]
fn exceptions_are_results() {
    let task = |body: &str, call: &str| {
        let calls = call.repeat(6);
        format!(
            r#"(tag $e (param i32))
               (func $task (local $n i32) {SPIN} {body})
               (func $plain (if (i32.const 1) (then (throw $e (i32.const 1)))))
               (func $run (export "run") (local $n i32) {calls})"#
        )
    };
    let caught = "(drop (block $h (result i32) (try_table (catch $e $h) (call $task)) (i32.const 0)))";
    check("returned from", &task("", caught), &["func:task"], "", Some("M1"));
    check("left by an exception", &task("(throw $e (i32.const 1))", caught), &["func:task"], "result", None);
    check("through other functions", &task("(call $plain)", caught), &["func:task"], "result", None);
    let within = "(drop (block $h (result i32) (try_table (catch $e $h) (call $plain)) (i32.const 0)))";
    check("caught within", &task(within, "(call $task)"), &["func:task"], "", Some("M1"));
    // The iterations of six loops.
    let iteration = |inner: &str| {
        format!("(drop (block $h (result i32) (try_table (catch $e $h) (loop $l (call $task) {inner})) (i32.const 0)))")
    };
    check("an iteration that ends", &task("", &iteration("")), &["loop:run#*"], "", Some("M1"));
    check("an iteration that throws", &task("", &iteration("(throw $e (i32.const 1))")), &["loop:run#*"], "result", None);
    check("an iteration whose callee throws", &task("(call $plain)", &iteration("")), &["loop:run#*"], "result", None);
    let branch = "(drop (block $h (result i32) (loop $l (try_table (catch $e $h) (call $task))) (i32.const 0)))";
    check("an iteration that catches and leaves", &task("(call $plain)", branch), &["loop:run#*"], "", Some("M1"));
}

#[test]
fn tasks() {
    check_task("nothing", "", "", "", Some("M1"));
    let set = "(global.set $g (i32.mul (i32.add (global.get $g) (i32.const 1)) (i32.const 3)))";
    check_task("global", set, "", "global", None);
    check_task("global, written only", "(global.set $g (i32.const 1))", "", "global", Some("M7"));
    let sp = "(global.set $__stack_pointer (i32.sub (global.get $__stack_pointer) (i32.const 16)))
              (global.set $__stack_pointer (i32.add (global.get $__stack_pointer) (i32.const 16)))";
    check_task("stack pointer", sp, "", "sp", Some("M2"));
    check_task("static", "(i32.store (i32.const 1028) (i32.mul (i32.load (i32.const 1028)) (i32.const 3)))", "", "static", None);
    check_task("stack above", "(i32.store (i32.const 1000) (i32.const 1))", "", "stack", Some("M2"));
    let copy = "(memory.copy (i32.const 70000) (i32.const 70064) (i32.const 32))";
    check_task("heap by bulk operators", copy, "", "heap", Some("M7"));
    check_task("delta", "(i32.store (i32.const 70000) (i32.sub (i32.load (i32.const 70000)) (i32.const 3)))", "", "delta", Some("M4"));
    check_task("xor", "(i64.store (i32.const 70000) (i64.xor (i64.load (i32.const 70000)) (i64.const 3)))", "", "delta", Some("M4"));
    let other = "(i32.store (i32.const 70000) (i32.add (i32.load (i32.const 70000)) (i32.load (i32.const 70008))))";
    check_task("delta by a loaded value", other, "", "delta", Some("M4"));
    let other = "(i32.store (i32.const 70000) (i32.add (i32.load (i32.const 70008)) (i32.load (i32.const 70000))))";
    check_task("delta by a loaded value, the other way", other, "", "delta", Some("M4"));
    let twice = "(i32.store (i32.const 70000) (i32.add (i32.load (i32.const 70000)) (i32.load (i32.const 70000))))";
    check_task("doubling is no delta", twice, "", "heap", None);
    let minus = "(i32.store (i32.const 70000) (i32.sub (i32.const 1) (i32.load (i32.const 70000))))";
    check_task("negation is no delta", minus, "", "heap", None);
    let tested = "(if (i32.load (i32.const 70000)) (then (nop)))
                  (i32.store (i32.const 70000) (i32.add (i32.load (i32.const 70000)) (i32.const 3)))";
    check_task("delta beside a plain read", tested, "", "heap", None);
    let table = "(table.set $t (i32.const 1) (table.get $t (i32.const 1)))";
    check_task("table", table, "", "table", None);
    check_task("growth", "(drop (memory.grow (i32.const 1)))", "", "growth", None);
    check_task("size", "(drop (memory.size))", "", "growth", Some("M1"));
    check_task("output", "(drop (call $fd_write (i32.const 1) (i32.const 1100) (i32.const 1) (i32.const 1200)))", "", "output", Some("M5"));
    check_task("host", "(call $yield)", "", "host", Some("M6"));
}

#[test]
fn atomic_operators_are_loads_and_stores() {
    for memory in ["2", "2 2 shared"] {
        let check = |what: &str, link: &str, binding: &str, apart: Option<&str>| {
            let (_, ladder) = trace_in(memory, &six_tasks(link, ""), &["func:task"]);
            check_ladder(what, ladder, binding, apart);
        };
        check("a counter", "(drop (i32.atomic.rmw.add (i32.const 70000) (i32.const 3)))", "delta", Some("M4"));
        check("a counter down", "(drop (i64.atomic.rmw16.sub_u (i32.const 70000) (i64.const 3)))", "delta", Some("M4"));
        check("bits", "(drop (i64.atomic.rmw.or (i32.const 70000) (i64.const 3)))", "delta", Some("M4"));
        let used = "(if (i32.atomic.rmw.add (i32.const 70000) (i32.const 3)) (then (nop)))";
        check("a counter whose value is used", used, "heap", None);
        let stored = "(i32.store (i32.const 70008) (i32.atomic.rmw.add (i32.const 70000) (i32.const 3)))";
        check("a counter whose value is stored", stored, "heap", None);
        check("an exchange", "(drop (i32.atomic.rmw.xchg (i32.const 70000) (i32.const 3)))", "heap", None);
        let load = "(i32.atomic.load (i32.const 70000))";
        let swap = format!("(drop (i32.atomic.rmw.cmpxchg (i32.const 70000) {load} (i32.const 3)))");
        check("a compare-and-swap", &swap, "heap", None);
        let fails = "(drop (i32.atomic.rmw.cmpxchg (i32.const 70000) (i32.const 5) (i32.const 3)))";
        check("a compare-and-swap that fails", fails, "", Some("M1"));
        check("loads", &format!("(drop {load})"), "", Some("M1"));
        check("stores", "(i32.atomic.store (i32.const 70000) (i32.const 3))", "heap", Some("M7"));
        let bits = "(i64.atomic.store8 (i32.const 70000) (i64.mul (i64.atomic.load8_u (i32.const 70000)) (i64.const 3)))";
        check("a load and a store", bits, "heap", None);
        let nothing = "(drop (memory.atomic.notify (i32.const 70000) (i32.const 1))) (atomic.fence)";
        check("a notification", nothing, "", Some("M1"));
    }
    let wait = "(drop (memory.atomic.wait32 (i32.const 70000) (i32.const 1) (i64.const -1)))";
    let wait = six_tasks(&format!("{wait} (i32.atomic.store (i32.const 70000) (i32.const 2))"), "");
    check_ladder("a wait that does not", trace_in("2 2 shared", &wait, &["func:task"]).1, "heap", None);
}

#[test]
fn references_call_units_too() {
    let with = |call: &str, link: &str, result: &str, value: &str| {
        let calls = call.repeat(6);
        format!(
            r#"(type $f (func {result})) (elem declare func $task)
               (func $task (type $f) (local $n i32) {SPIN} {link} {value})
               (func $tail (type $f) (return_call_ref $f (ref.func $task)))
               (func $run (export "run") (local $r (ref null $f)) (local.set $r (ref.func $task)) {calls})"#
        )
    };
    let link = "(i32.store (i32.const 1028) (i32.mul (i32.load (i32.const 1028)) (i32.const 3)))";
    let call = "(call_ref $f (local.get $r))";
    check("called", &with(call, "", "", ""), &["func:task"], "", Some("M1"));
    check("called, and linked", &with(call, link, "", ""), &["func:task"], "static", None);
    check("called by a tail call", &with("(call $tail)", link, "", ""), &["func:task"], "static", None);
    let result = |use_it: &str| with(&format!("{use_it} {call})"), "", "(result i32)", "(i32.const 1)");
    check("dropped", &result("(drop"), &["func:task"], "result", Some("M1"));
    check("used", &result("(global.set $g"), &["func:task"], "result", None);
    let branch = "(block $null (call_ref $f (br_on_null $null (local.get $r))))";
    check("behind a branch", &with(branch, link, "", ""), &["func:task"], "static", None);
}

#[test]
fn memories_with_64_bit_addresses() {
    let check = |what: &str, link: &str, binding: &str, apart: Option<&str>| {
        let (_, ladder) = trace_in("i64 2", &six_tasks(link, ""), &["func:task"]);
        check_ladder(what, ladder, binding, apart);
    };
    check("delta", "(i32.store (i64.const 70000) (i32.sub (i32.load (i64.const 70000)) (i32.const 3)))", "delta", Some("M4"));
    check("static", "(i32.store (i64.const 1028) (i32.mul (i32.load (i64.const 1028)) (i32.const 3)))", "static", None);
    let negative = "(i32.store offset=70008 (i64.const -8) (i32.const 1))";
    check("no sum wraps", &format!("(drop (i32.load (i64.const 8))) (if (i32.const 0) (then {negative}))"), "", Some("M1"));
    check("bulk operators", "(memory.copy (i64.const 70000) (i64.const 70064) (i64.const 32))", "heap", Some("M7"));
    check("vectors", "(v128.store (i64.const 70000) (v128.not (v128.load (i64.const 70000))))", "heap", None);
    check("growth", "(drop (memory.grow (i64.const 1)))", "growth", None);
    check("an atomic counter", "(drop (i32.atomic.rmw.add (i64.const 70000) (i32.const 3)))", "delta", Some("M4"));
}

#[test]
fn loops() {
    check_loop("induction", "", "", "induction", Some("M2"));
    check_loop("scalar", "(local.set $x (i32.mul (i32.add (local.get $x) (i32.const 1)) (i32.const 3)))", "", "scalar induction", None);
    check_loop("reduction", "(local.set $x (i32.add (local.get $x) (local.get $i)))", "", "induction reduction", Some("M4"));
    let load = "(local.set $x (i32.add (local.get $x) (i32.load (i32.const 70000))))";
    check_loop("reduction over loads", load, "", "induction reduction", Some("M4"));
    check_loop("doubling", "(local.set $x (i32.add (local.get $x) (local.get $x)))", "", "scalar induction", None);
    let float = "(local.set $f (f32.add (local.get $f) (f32.const 1)))";
    check_loop("float sums stay", float, "", "scalar induction", None);
    let used = "(local.set $x (i32.add (local.get $x) (i32.const 3))) (local.set $x (i32.xor (local.get $x) (i32.const 3)))";
    check_loop("two families", used, "", "scalar induction", None);
    let caught = "(block $h (try_table (catch $e $h) (call $throw)))";
    check_loop("caught in an iteration", caught, "", "induction", Some("M2"));
    let step = "(local.set $x (i32.mul (i32.add (local.get $x) (i32.const 1)) (i32.const 3)))";
    let before = format!("(block $h (try_table (catch $e $h) {step} (call $throw)))");
    check_loop("scalar before an exception", &before, "", "scalar induction", None);
    check_loop("scalar behind a handler", &format!("{caught} {step}"), "", "scalar induction", None);
    let sum = "(local.set $x (i32.add (local.get $x) (local.get $i)))";
    let before = format!("(block $h (try_table (catch $e $h) {sum} (call $throw)))");
    check_loop("reduction before an exception", &before, "", "induction reduction", Some("M4"));
}

#[test]
fn a_live_out_waits_for_its_iterations() {
    // After the loop, work that needs the sum, and as much that does not.
    let with = |after: &str| {
        let body = "(local.set $x (i32.add (local.get $x) (local.get $i)))";
        let fields = format!(
            r#"(func $spin (local $n i32) {SPIN})
               (func $run (export "run") (local $i i32) (local $x i32) (local $n i32)
                 (loop $l (call $spin) {body}
                   (local.set $i (i32.add (local.get $i) (i32.const 1)))
                   (br_if $l (i32.lt_u (local.get $i) (i32.const 6))))
                 {after} {SPIN})"#
        );
        let (_, ladder) = trace(&fields, &["loop:run#0"]);
        ladder.rungs[4].span
    };
    let (needs, ignores) = (with("(i32.store (i32.const 70000) (local.get $x))"), with("(i32.store (i32.const 70000) (i32.const 1))"));
    assert!(needs > ignores + 300, "{needs} {ignores}");
}

#[test]
fn results() {
    let program = |use_it: &str| {
        format!(
            r#"(func $task (param i32) (result i32) (local $n i32) {SPIN} (local.get 0))
               (func $run (export "run") (local $x i32) (local $n i32)
                 (local.set $x (call $task (i32.const 1))) {use_it}
                 (local.set $x (call $task (i32.const 2))) {use_it}
                 (local.set $x (call $task (i32.const 3))) {use_it})"#
        )
    };
    check("dropped", &program("(drop (local.get $x))"), &["func:task"], "result", Some("M1"));
    check("moved", &program("(drop (block (result i32) (local.get $x)))"), &["func:task"], "result", Some("M1"));
    check("stored", &program("(i32.store (i32.const 70000) (local.get $x))"), &["func:task"], "result", None);
    check("compared", &program("(if (local.get $x) (then (nop)))"), &["func:task"], "result", None);
}

/// Paths meet in a slot in which some of them have a unit's result: on the others the slot holds none, whatever was there before.
#[test]
fn only_paths_that_carry_a_result_use_it() {
    // Each call of a unit leaves its result in the lowest slot of the stack, where the block's value will be.
    let program = |value: &str| {
        let task = "(drop (call $task))";
        let meet = format!("(global.set $g {value})");
        format!(
            r#"(func $task (result i32) (local $n i32) {SPIN} (i32.const 1))
               (func $run (export "run") (local $zero i32) {})"#,
            format!("{task} {meet}").repeat(4)
        )
    };
    let if_zero = "(if (result i32) (local.get $zero) (then (call $task)) (else (i32.const 2)))";
    check("a constant in the other arm", &program(if_zero), &["func:task"], "", Some("M1"));
    let sum = "(if (result i32) (local.get $zero) (then (call $task)) (else (i32.add (local.get $zero) (i32.const 2))))";
    check("a sum in the other arm", &program(sum), &["func:task"], "", Some("M1"));
    let branch = "(block (result i32) (br_if 0 (i32.const 2) (i32.eqz (local.get $zero))) (drop) (call $task))";
    check("a branch that brings a constant", &program(branch), &["func:task"], "", Some("M1"));
    let taken = "(if (result i32) (i32.eqz (local.get $zero)) (then (call $task)) (else (i32.const 2)))";
    check("the arm with the result", &program(taken), &["func:task"], "result", None);
}

#[test]
fn allocator() {
    let malloc = r#"(func $malloc (export "malloc") (param $size i32) (result i32) (local $at i32)
            (local.set $at (i32.load (i32.const 1024)))
            (i32.store (i32.const 1024) (i32.add (local.get $at) (local.get $size)))
            (i32.store (local.get $at) (local.get $size))
            (i32.add (local.get $at) (i32.const 8)))
        (func $free (export "free") (param i32) (i32.store (i32.const 1028) (local.get 0)) (i32.store (local.get 0) (i32.const 0)))
        (data (i32.const 1024) "\00\00\01\00")"#;
    let link = "(i32.store (local.tee $n (call $malloc (i32.const 24))) (i32.const 7)) (call $free (local.get $n))";
    check_task("allocator", link, malloc, "allocator", Some("M3"));
    // A free list of one: every block is the same address, and its next life has nothing to do with the last.
    let reuse = r#"(func $malloc (export "malloc") (param $size i32) (result i32)
            (i32.store (i32.const 1024) (i32.mul (i32.load (i32.const 1024)) (i32.const 5))) (i32.const 70000))
        (func $free (export "free") (param i32) (i32.store (i32.const 1028) (i32.mul (i32.load (i32.const 1028)) (i32.const 3))))"#;
    let link = "(i32.store (local.tee $n (call $malloc (i32.const 24))) (i32.const 7))
                (i32.store (local.get $n) (i32.mul (i32.load (local.get $n)) (i32.const 3))) (call $free (local.get $n))";
    check_task("reuse of an address", link, reuse, "allocator", Some("M3"));
}

#[test]
fn stack_reads_of_an_earlier_owner_make_m2_invalid() {
    use worksp::ladder::Validity;
    // The parent claims a frame and does not fill it; what its second task reads there is what an earlier call left.
    let fields = r#"
        (func $leave (local $n i32) (global.set $__stack_pointer (i32.sub (global.get $__stack_pointer) (i32.const 16)))
            (i32.store (global.get $__stack_pointer) (i32.const 7))
            (global.set $__stack_pointer (i32.add (global.get $__stack_pointer) (i32.const 16))))
        (func $look (drop (i32.load (global.get $__stack_pointer))))
        (func $run (export "run") (call $leave)
            (global.set $__stack_pointer (i32.sub (global.get $__stack_pointer) (i32.const 16)))
            (call $look))"#;
    let (_, ladder) = trace(fields, &["func:leave", "func:look"]);
    assert!(matches!(&ladder.rungs[2].validity, Validity::Invalid(w) if w.address == 1008), "{:?}", ladder.rungs[2].validity);
    assert!(matches!(ladder.rungs[7].validity, Validity::Invalid(_)));
    // The same with a frame that the parent fills.
    let sound = fields.replace("(call $look))", "(i32.store (global.get $__stack_pointer) (i32.const 1)) (call $look))");
    let (_, ladder) = trace(&sound, &["func:leave", "func:look"]);
    assert_eq!(ladder.rungs[2].validity, Validity::Valid);
    // A neighbour in the granule that an earlier owner left is nobody's read.
    let neighbour = fields.replace("(i32.store (global.get $__stack_pointer) (i32.const 7))", "(i64.store (global.get $__stack_pointer) (i64.const 7))");
    let neighbour = neighbour.replace("(call $look))", "(i32.store (global.get $__stack_pointer) (i32.const 1)) (call $look))");
    let (_, ladder) = trace(&neighbour, &["func:leave", "func:look"]);
    assert_eq!(ladder.rungs[2].validity, Validity::Valid);
}

#[test]
fn reads_of_freed_bytes_make_m3_invalid() {
    use worksp::ladder::Validity;
    let program = |late: &str| {
        format!(
            r#"(func $malloc (export "malloc") (param i32) (result i32)
                 (i32.store (i32.const 1024) (i32.add (i32.load (i32.const 1024)) (i32.const 1))) (i32.const 70000))
               (func $free (export "free") (param i32) (i32.store (i32.const 1024) (i32.const 0)))
               (func $task (local $p i32) (local.set $p (call $malloc (i32.const 8))) (i32.store (local.get $p) (i32.const 1))
                 (call $free (local.get $p)) {late})
               (func $run (export "run") (call $task) (call $task))"#
        )
    };
    let (_, ladder) = trace(&program(""), &["func:task"]);
    assert_eq!(ladder.rungs[3].validity, Validity::Valid);
    let (_, ladder) = trace(&program("(drop (i32.load (local.get $p)))"), &["func:task"]);
    assert!(matches!(&ladder.rungs[3].validity, Validity::Invalid(w) if w.address == 70000), "{:?}", ladder.rungs[3].validity);
}
