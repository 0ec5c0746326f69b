//! What programs cover: cells of an operator and where each of its operands comes from.

use rustc_hash::FxHashSet;

use crate::generate::single::Shape;
use crate::operators;
use crate::program::{Code, Node, Program, Tail};

/// Cells that were seen, by name: an operator, then a letter for each operand, such as `i32_add:cl` for a constant and a local.
#[derive(Default, Debug)]
pub struct Cells {
    seen: FxHashSet<u64>,
}

impl Cells {
    /// Cells of these programs that were not there before.
    pub fn new_in<'a>(&mut self, programs: impl Iterator<Item = &'a Program>) -> Vec<String> {
        let mut new = Vec::new();
        for program in programs {
            program.walk(|node| {
                let Some(name) = name(node) else { return };
                let key = node.args.iter().fold(fingerprint(name), |key, arg| key.wrapping_mul(31).wrapping_add(1 + letter(arg) as u64));
                if self.seen.insert(key) {
                    new.push(node.args.iter().fold(format!("{name}:"), |cell, arg| cell + letter(arg).encode_utf8(&mut [0; 4])));
                }
            });
        }
        new
    }

    /// Takes note of cells that a file names.
    pub fn know<'a>(&mut self, cells: impl IntoIterator<Item = &'a String>) {
        for cell in cells {
            if let Some((name, shapes)) = cell.split_once(':') {
                self.seen.insert(shapes.chars().fold(fingerprint(name), |key, letter| key.wrapping_mul(31).wrapping_add(1 + letter as u64)));
            }
        }
    }
}

/// Cells of the operators of [`operators::all`] that can be.
pub fn possible_cells() -> impl Iterator<Item = (&'static str, u64)> {
    operators::all().iter().map(|operator| (operator.name, 4u64.pow(operator.params.len() as u32)))
}

fn fingerprint(name: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(name.as_bytes())
}

fn letter(arg: &Node) -> char {
    match Shape::of(arg) {
        Shape::Const => 'c',
        Shape::Local => 'l',
        Shape::Stack => 's',
        Shape::Global => 'g',
    }
}

fn name(node: &Node) -> Option<&'static str> {
    Some(match &node.code {
        Code::Operator(id, _) => id.get().name,
        Code::LocalSet(_) => "local_set",
        Code::LocalTee(_) => "local_tee",
        Code::GlobalSet(_) => "global_set",
        Code::Drop => "drop",
        Code::Select(None) => "select",
        Code::Select(Some(_)) => "select_typed",
        Code::Call(_, Tail::No) => "call",
        Code::Call(_, Tail::Yes) => "return_call",
        Code::CallIndirect(_, _, Tail::No) => "call_indirect",
        Code::CallIndirect(_, _, Tail::Yes) => "return_call_indirect",
        Code::CallHost(_) => "call_host",
        Code::Br(_) => "br",
        Code::BrIf(_) => "br_if",
        Code::BrTable(_) => "br_table",
        Code::Return => "return",
        Code::Throw(_) => "throw",
        // What has operands but no name of its own here is named by what it is.
        Code::Other(instruction, _) => other(instruction)?,
        Code::Const(..) | Code::LocalGet(_) | Code::GlobalGet(_) | Code::Unreachable | Code::Block(_) => return None,
    })
}

fn other(instruction: &wasm_encoder::Instruction) -> Option<&'static str> {
    use wasm_encoder::Instruction as I;
    Some(match instruction {
        I::MemoryGrow(_) => "memory_grow",
        I::MemoryFill(_) => "memory_fill",
        I::MemoryCopy { .. } => "memory_copy",
        I::MemoryInit { .. } => "memory_init",
        I::TableGet(_) => "table_get",
        I::TableSet(_) => "table_set",
        I::TableGrow(_) => "table_grow",
        I::TableFill(_) => "table_fill",
        I::TableCopy { .. } => "table_copy",
        I::TableInit { .. } => "table_init",
        I::RefIsNull => "ref_is_null",
        _ => return None,
    })
}
