//! Traced code leaves out accesses to carried locals that say nothing new: the trace must be the one with all of them.

mod common;

use common::{Run, trace_with};
use proptest::prelude::*;
use worksp_tracer::trace::{Edge, Node};
use worksp_tracer::{Granule, Trace};

/// Locals that statements read and write; each loop has a counter of its own besides.
const LOCALS: u32 = 4;

#[derive(Clone, Debug)]
enum Statement {
    Copy(u32, u32),
    Constant(u32, i32),
    /// `x = y op z`
    Combine(u32, &'static str, u32, u32),
    Tee(u32, u32),
    /// A call that begins a unit, or does not.
    Call(bool),
    /// What a unit returns.
    Result(u32),
    If(u32, Vec<Statement>, Vec<Statement>),
    /// A block that is left early when a local is odd.
    Block(u32, Vec<Statement>, Vec<Statement>),
    Loop(Vec<Statement>),
    /// Leaves the function when a local is 7.
    Return(u32),
}

fn statements() -> impl Strategy<Value = Vec<Statement>> {
    let local = || 0..LOCALS;
    let simple = prop_oneof![
        3 => (local(), local()).prop_map(|(a, b)| Statement::Copy(a, b)),
        1 => (local(), 0..5).prop_map(|(a, n)| Statement::Constant(a, n)),
        5 => (local(), prop_oneof![Just("add"), Just("sub"), Just("xor"), Just("mul")], local(), local())
            .prop_map(|(a, op, b, c)| Statement::Combine(a, op, b, c)),
        1 => (local(), local()).prop_map(|(a, b)| Statement::Tee(a, b)),
        2 => any::<bool>().prop_map(Statement::Call),
        1 => local().prop_map(Statement::Result),
        1 => local().prop_map(Statement::Return),
    ];
    let list = |element| proptest::collection::vec(element, 0..5);
    let nested = simple.prop_recursive(3, 40, 5, move |inner| {
        prop_oneof![
            (0..LOCALS, list(inner.clone().boxed()), list(inner.clone().boxed())).prop_map(|(a, x, y)| Statement::If(a, x, y)),
            (0..LOCALS, list(inner.clone().boxed()), list(inner.clone().boxed())).prop_map(|(a, x, y)| Statement::Block(a, x, y)),
            list(inner.boxed()).prop_map(Statement::Loop),
        ]
    });
    proptest::collection::vec(nested, 1..7)
}

/// Writes statements as text; `counter` is the next loop's.
fn write(statements: &[Statement], counter: &mut u32, text: &mut String) {
    let body = |list: &[Statement], counter: &mut u32| {
        let mut text = String::new();
        write(list, counter, &mut text);
        text
    };
    for statement in statements {
        text.push_str(&match statement {
            Statement::Copy(a, b) => format!("(local.set {a} (local.get {b}))"),
            Statement::Constant(a, n) => format!("(local.set {a} (i32.const {n}))"),
            Statement::Combine(a, op, b, c) => format!("(local.set {a} (i32.{op} (local.get {b}) (local.get {c})))"),
            Statement::Tee(a, b) => format!("(drop (i32.add (local.tee {a} (local.get {b})) (local.get {a})))"),
            Statement::Call(unit) => format!("(drop (call ${}))", if *unit { "unit" } else { "plain" }),
            Statement::Result(a) => format!("(local.set {a} (call $unit))"),
            Statement::If(a, x, y) => {
                let (x, y) = (body(x, counter), body(y, counter));
                format!("(if (i32.and (local.get {a}) (i32.const 1)) (then {x}) (else {y}))")
            }
            Statement::Block(a, x, y) => {
                let (x, y) = (body(x, counter), body(y, counter));
                format!("(block {x} (br_if 0 (i32.and (local.get {a}) (i32.const 1))) {y})")
            }
            Statement::Loop(x) => {
                let this = *counter;
                *counter += 1;
                let x = body(x, counter);
                format!(
                    "(local.set {this} (i32.const 3)) (loop {x}
                     (br_if 0 (local.tee {this} (i32.sub (local.get {this}) (i32.const 1)))))"
                )
            }
            Statement::Return(a) => format!("(if (i32.eq (local.get {a}) (i32.const 7)) (then (return)))"),
        });
    }
}

fn program(statements: &[Statement]) -> String {
    let (mut counter, mut text) = (LOCALS, String::new());
    write(statements, &mut counter, &mut text);
    let locals = "i32 ".repeat(counter as usize);
    format!(
        "(module (global $g (mut i32) (i32.const 1))
         (func $unit (result i32) (global.set $g (i32.add (global.get $g) (i32.const 2))) (global.get $g))
         (func $plain (result i32) (global.get $g))
         (func $main (export \"main\") (local {locals}) {text}))"
    )
}

/// Nodes with their edges, sites by place: how many sites there are depends on what is reported.
fn shown(trace: &Trace) -> Vec<(Node, Vec<Edge>)> {
    let place = |site: u32| site.checked_sub(1).map_or(0, |site| trace.info.sites[site as usize].offset);
    let mut nodes = trace.to_vec().expect("held in memory");
    for edge in nodes.iter_mut().flat_map(|(_, edges)| edges) {
        (edge.from_site, edge.to_site) = (place(edge.from_site), place(edge.to_site));
    }
    nodes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000.max(ProptestConfig::default().cases), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_left_out_changes_nothing(statements in statements(), loops in 0..4u32) {
        let text = program(&statements);
        // Some loops are units: all of them, the even ones, or the first.
        let counted = text.matches("(loop").count() as u32;
        let chosen = (0..counted).filter(|n| match loops { 0 => true, 1 => n % 2 == 0, 2 => *n == 0, _ => n % 2 == 1 });
        let units: Vec<String> = chosen.map(|n| format!("loop:main#{n}")).chain(["func:unit".to_owned()]).collect();
        let units: Vec<&str> = units.iter().map(String::as_str).collect();
        let run = Run { text: &text, calls: &[("main", &[])], units: &units, granule: Granule::Eight };
        let [short, whole] = [false, true].map(|every| trace_with(&run, |plan| plan.everything = every));
        prop_assert_eq!(shown(&short), shown(&whole), "{}", text);
    }
}
