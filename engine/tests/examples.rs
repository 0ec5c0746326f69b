//! The examples' probes, on a program whose counts follow by hand.

#[path = "../examples/call_graph.rs"]
mod call_graph;
#[path = "../examples/operator_histogram.rs"]
mod operator_histogram;

use worksp_engine::Val;

/// `fib(n)` makes `2 F(n + 1) - 1` calls: 177 for 10, of which 88 add.
const FIB: &[u8] = br#"(module (func $fib (export "fib") (param i32) (result i32)
    (if (i32.lt_s (local.get 0) (i32.const 2)) (then (return (local.get 0))))
    (i32.add (call $fib (i32.sub (local.get 0) (i32.const 1))) (call $fib (i32.sub (local.get 0) (i32.const 2)))))
    (func (export "twice") (param i32) (result i32) (drop (call $fib (local.get 0))) (return_call $fib (local.get 0))))"#;

#[test]
fn the_histogram_counts_every_operator() {
    let table = operator_histogram::report(FIB, "fib", &[Val::I32(10)]).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let count = |name: &str| rows.iter().find(|row| row.last() == Some(&name)).map_or(0, |row| row[0].parse().unwrap());
    let expected = [
        ("local.get", 177 + 89 + 2 * 88), ("i32.const", 177 + 2 * 88), ("i32.lt_s", 177), ("if", 177), ("return", 89),
        ("i32.sub", 2 * 88), ("call", 2 * 88), ("i32.add", 88), ("operators", 442 + 353 + 177 + 177 + 89 + 176 + 176 + 88),
    ];
    for (name, expected) in expected {
        assert_eq!(count(name), expected, "{name}\n{table}");
    }
    assert_eq!(rows.len(), expected.len(), "{table}");
}

#[test]
fn the_call_graph_has_every_call_once() {
    let graph = call_graph::report(FIB, "twice", &[Val::I32(10)]).unwrap();
    let expected = "digraph calls {\n  0 [label=\"fib\\n3356\"];\n  1 [label=\"twice\\n5\"];\n  0 -> 0 [label=\"352\"];\n  1 -> 0 [label=\"2\"];\n}\n";
    assert_eq!(graph, expected);
}
