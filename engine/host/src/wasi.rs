//! The table: for every preview-1 function its signature, its effect class, and the guest bytes that it reads and writes.
//!
//! Ranges are exact for the host in this crate (`wasmtime_wasi`), which serves only the first non-empty buffer of a vector and
//! leaves the padding of structures alone. A function that fails (errno other than 0) writes nothing.

use std::ops::Range;

/// The module name that programs import these functions from.
pub const MODULE: &str = "wasi_snapshot_preview1";

/// The module name of the interface before it, which is refused by name.
pub const MODULE_UNSTABLE: &str = "wasi_unstable";

/// What a call does to the world outside the guest's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Nothing, and its result depends on nothing that calls can change.
    Pure,
    /// It appends output; such calls need to keep only their order among themselves.
    Append,
    /// Anything else.
    Other,
}

/// The type of a parameter or result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ty {
    /// A 32-bit integer, a size or a pointer.
    I32,
    /// A 64-bit integer.
    I64,
}

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct WasiFunction {
    /// The import's name.
    pub name: &'static str,
    /// Its parameters.
    pub params: &'static [Ty],
    /// Its result: an errno, or nothing for `proc_exit`.
    pub result: Option<Ty>,
    /// Its effect class.
    pub effect: Effect,
    accesses: &'static [Access],
}

/// What the host knows and neither arguments nor memory say: how many bytes `args_get`, `environ_get` and
/// `fd_prestat_dir_name` write. [`crate::WasiHost::facts`] fills it in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// Number of strings.
    pub entries: u32,
    /// Bytes of all strings, with their terminators where the function writes them.
    pub bytes: u32,
}

/// Field lists are (offset, length) pairs.
type Fields = &'static [(u32, u32)];

/// How one argument group refers to memory; numbers are argument positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// The host reads `len` bytes at `ptr`.
    Read { ptr: usize, len: usize },
    /// The host reads `count` structures of `size` bytes at `ptr`.
    ReadArray { ptr: usize, count: usize, size: u32 },
    /// The host reads a vector of buffers up to the first non-empty one, and that buffer.
    Gather { iovs: usize, count: usize },
    /// The host reads such a vector and fills the first non-empty buffer with as many bytes as it reports at `used`.
    Scatter { iovs: usize, count: usize, used: usize },
    /// The host writes these fields at `ptr`.
    Write { ptr: usize, fields: Fields },
    /// The host writes as many bytes at `ptr` as argument `len` says.
    WriteLen { ptr: usize, len: usize },
    /// The host writes as many bytes at `ptr` as it reports at `used`.
    WriteUsed { ptr: usize, used: usize },
    /// The host writes these fields of as many structures of `size` bytes at `ptr` as it reports at `used`.
    WriteArray { ptr: usize, used: usize, size: u32, fields: Fields },
    /// The host writes one pointer per string at `table` and the strings at `ptr`; [`Facts`] has the sizes.
    WriteStrings { table: usize, ptr: usize },
    /// The host writes [`Facts::bytes`] bytes at `ptr`.
    WriteName { ptr: usize },
}

use Access::*;
use Effect::{Append, Other, Pure};
use Ty::{I32, I64};

const U32: Fields = &[(0, 4)];
const U16: Fields = &[(0, 2)];
const U64: Fields = &[(0, 8)];
const FDSTAT: Fields = &[(0, 1), (2, 2), (8, 16)];
const FILESTAT: Fields = &[(0, 17), (24, 40)];
const PRESTAT: Fields = &[(0, 1), (4, 4)];
const SUBSCRIPTION_SIZE: u32 = 48;
const EVENT_SIZE: u32 = 32;
const EVENT: Fields = &[(0, 11), (16, 10)];

/// Every function of `wasi_snapshot_preview1`, sorted by name.
#[rustfmt::skip]
pub static FUNCTIONS: &[WasiFunction] = &[
    row("args_get", &[I32, I32], Pure, &[WriteStrings { table: 0, ptr: 1 }]),
    row("args_sizes_get", &[I32, I32], Pure, &[Write { ptr: 0, fields: U32 }, Write { ptr: 1, fields: U32 }]),
    row("clock_res_get", &[I32, I32], Pure, &[Write { ptr: 1, fields: U64 }]),
    row("clock_time_get", &[I32, I64, I32], Other, &[Write { ptr: 2, fields: U64 }]),
    row("environ_get", &[I32, I32], Pure, &[WriteStrings { table: 0, ptr: 1 }]),
    row("environ_sizes_get", &[I32, I32], Pure, &[Write { ptr: 0, fields: U32 }, Write { ptr: 1, fields: U32 }]),
    row("fd_advise", &[I32, I64, I64, I32], Other, &[]),
    row("fd_allocate", &[I32, I64, I64], Other, &[]),
    row("fd_close", &[I32], Other, &[]),
    row("fd_datasync", &[I32], Other, &[]),
    row("fd_fdstat_get", &[I32, I32], Other, &[Write { ptr: 1, fields: FDSTAT }]),
    row("fd_fdstat_set_flags", &[I32, I32], Other, &[]),
    row("fd_fdstat_set_rights", &[I32, I64, I64], Other, &[]),
    row("fd_filestat_get", &[I32, I32], Other, &[Write { ptr: 1, fields: FILESTAT }]),
    row("fd_filestat_set_size", &[I32, I64], Other, &[]),
    row("fd_filestat_set_times", &[I32, I64, I64, I32], Other, &[]),
    row("fd_pread", &[I32, I32, I32, I64, I32], Other, &[Scatter { iovs: 1, count: 2, used: 4 }, Write { ptr: 4, fields: U32 }]),
    row("fd_prestat_dir_name", &[I32, I32, I32], Other, &[WriteName { ptr: 1 }]),
    row("fd_prestat_get", &[I32, I32], Other, &[Write { ptr: 1, fields: PRESTAT }]),
    row("fd_pwrite", &[I32, I32, I32, I64, I32], Append, &[Gather { iovs: 1, count: 2 }, Write { ptr: 4, fields: U32 }]),
    row("fd_read", &[I32, I32, I32, I32], Other, &[Scatter { iovs: 1, count: 2, used: 3 }, Write { ptr: 3, fields: U32 }]),
    row("fd_readdir", &[I32, I32, I32, I64, I32], Other, &[WriteUsed { ptr: 1, used: 4 }, Write { ptr: 4, fields: U32 }]),
    row("fd_renumber", &[I32, I32], Other, &[]),
    row("fd_seek", &[I32, I64, I32, I32], Other, &[Write { ptr: 3, fields: U64 }]),
    row("fd_sync", &[I32], Other, &[]),
    row("fd_tell", &[I32, I32], Other, &[Write { ptr: 1, fields: U64 }]),
    row("fd_write", &[I32, I32, I32, I32], Append, &[Gather { iovs: 1, count: 2 }, Write { ptr: 3, fields: U32 }]),
    row("path_create_directory", &[I32, I32, I32], Other, &[Read { ptr: 1, len: 2 }]),
    row("path_filestat_get", &[I32, I32, I32, I32, I32], Other, &[Read { ptr: 2, len: 3 }, Write { ptr: 4, fields: FILESTAT }]),
    row("path_filestat_set_times", &[I32, I32, I32, I32, I64, I64, I32], Other, &[Read { ptr: 2, len: 3 }]),
    row("path_link", &[I32, I32, I32, I32, I32, I32, I32], Other, &[Read { ptr: 2, len: 3 }, Read { ptr: 5, len: 6 }]),
    row("path_open", &[I32, I32, I32, I32, I32, I64, I64, I32, I32], Other, &[Read { ptr: 2, len: 3 }, Write { ptr: 8, fields: U32 }]),
    row("path_readlink", &[I32, I32, I32, I32, I32, I32], Other,
        &[Read { ptr: 1, len: 2 }, WriteUsed { ptr: 3, used: 5 }, Write { ptr: 5, fields: U32 }]),
    row("path_remove_directory", &[I32, I32, I32], Other, &[Read { ptr: 1, len: 2 }]),
    row("path_rename", &[I32, I32, I32, I32, I32, I32], Other, &[Read { ptr: 1, len: 2 }, Read { ptr: 4, len: 5 }]),
    row("path_symlink", &[I32, I32, I32, I32, I32], Other, &[Read { ptr: 0, len: 1 }, Read { ptr: 3, len: 4 }]),
    row("path_unlink_file", &[I32, I32, I32], Other, &[Read { ptr: 1, len: 2 }]),
    row("poll_oneoff", &[I32, I32, I32, I32], Other, &[ReadArray { ptr: 0, count: 2, size: SUBSCRIPTION_SIZE },
        WriteArray { ptr: 1, used: 3, size: EVENT_SIZE, fields: EVENT }, Write { ptr: 3, fields: U32 }]),
    WasiFunction { name: "proc_exit", params: &[I32], result: None, effect: Other, accesses: &[] },
    row("proc_raise", &[I32], Other, &[]),
    row("random_get", &[I32, I32], Other, &[WriteLen { ptr: 0, len: 1 }]),
    row("sched_yield", &[], Pure, &[]),
    row("sock_accept", &[I32, I32, I32], Other, &[Write { ptr: 2, fields: U32 }]),
    row("sock_recv", &[I32, I32, I32, I32, I32, I32], Other,
        &[Scatter { iovs: 1, count: 2, used: 4 }, Write { ptr: 4, fields: U32 }, Write { ptr: 5, fields: U16 }]),
    row("sock_send", &[I32, I32, I32, I32, I32], Append, &[Gather { iovs: 1, count: 2 }, Write { ptr: 4, fields: U32 }]),
    row("sock_shutdown", &[I32, I32], Other, &[]),
];

const fn row(name: &'static str, params: &'static [Ty], effect: Effect, accesses: &'static [Access]) -> WasiFunction {
    WasiFunction { name, params, result: Some(I32), effect, accesses }
}

/// The row of a function, if preview 1 has it.
pub fn function(name: &str) -> Option<&'static WasiFunction> {
    FUNCTIONS.binary_search_by(|row| row.name.cmp(name)).ok().map(|index| &FUNCTIONS[index])
}

impl WasiFunction {
    /// The ranges that the host is going to read, to be asked for before the call. The payload of an output call is the last.
    /// Ranges that leave the memory are left out: the call will trap.
    pub fn reads(&self, memory: &[u8], args: &[u64]) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for access in self.accesses {
            match *access {
                Read { ptr, len } => push(&mut ranges, memory, pointer(args, ptr), pointer(args, len)),
                ReadArray { ptr, count, size } => {
                    push(&mut ranges, memory, pointer(args, ptr), pointer(args, count) * u64::from(size));
                }
                Gather { iovs, count } => {
                    let (entries, buffer) = first_buffer(memory, pointer(args, iovs), pointer(args, count));
                    push(&mut ranges, memory, entries.start, entries.end - entries.start);
                    push(&mut ranges, memory, buffer.start, buffer.end - buffer.start);
                }
                Scatter { iovs, count, .. } => {
                    let (entries, _) = first_buffer(memory, pointer(args, iovs), pointer(args, count));
                    push(&mut ranges, memory, entries.start, entries.end - entries.start);
                }
                Write { .. } | WriteLen { .. } | WriteUsed { .. } | WriteArray { .. } | WriteStrings { .. } | WriteName { .. } => {}
            }
        }
        ranges
    }

    /// The buffers that the call may fill, to be asked for before the call (which may overwrite the vector that names them) and
    /// handed to [`WasiFunction::writes`] after it.
    pub fn buffers(&self, memory: &[u8], args: &[u64]) -> Vec<Range<u64>> {
        let mut buffers = Vec::new();
        for access in self.accesses {
            if let Scatter { iovs, count, .. } = *access {
                buffers.push(first_buffer(memory, pointer(args, iovs), pointer(args, count)).1);
            }
        }
        buffers
    }

    /// The ranges that the host wrote, from memory as it is after a call that returned `errno`.
    pub fn writes(&self, memory: &[u8], args: &[u64], errno: u64, facts: &Facts, buffers: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        if errno != 0 {
            return ranges;
        }
        for access in self.accesses {
            match *access {
                Read { .. } | ReadArray { .. } | Gather { .. } => {}
                Scatter { used, .. } => {
                    for buffer in buffers {
                        let len = reported(memory, args, used).min(buffer.end - buffer.start);
                        push(&mut ranges, memory, buffer.start, len);
                    }
                }
                Write { ptr, fields } => push_fields(&mut ranges, memory, pointer(args, ptr), fields),
                WriteLen { ptr, len } => push(&mut ranges, memory, pointer(args, ptr), pointer(args, len)),
                WriteUsed { ptr, used } => push(&mut ranges, memory, pointer(args, ptr), reported(memory, args, used)),
                WriteArray { ptr, used, size, fields } => {
                    for index in 0..reported(memory, args, used).min(memory.len() as u64 / u64::from(size)) {
                        push_fields(&mut ranges, memory, pointer(args, ptr) + index * u64::from(size), fields);
                    }
                }
                WriteStrings { table, ptr } => {
                    push(&mut ranges, memory, pointer(args, table), u64::from(facts.entries) * 4);
                    push(&mut ranges, memory, pointer(args, ptr), u64::from(facts.bytes));
                }
                WriteName { ptr } => push(&mut ranges, memory, pointer(args, ptr), u64::from(facts.bytes)),
            }
        }
        ranges
    }

    /// Where an output call reports how many bytes it took, as an argument position; `None` for other calls.
    pub fn taken_pointer(&self) -> Option<usize> {
        let gathers = self.accesses.iter().any(|access| matches!(access, Gather { .. }));
        self.accesses.iter().find_map(|access| match access {
            Write { ptr, .. } if gathers => Some(*ptr),
            _ => None,
        })
    }
}

/// The low half of an argument, as pointers and sizes are passed.
fn pointer(args: &[u64], index: usize) -> u64 {
    args.get(index).map_or(0, |arg| u64::from(*arg as u32))
}

/// The `u32` at the address that argument `index` holds.
fn reported(memory: &[u8], args: &[u64], index: usize) -> u64 {
    read_u32(memory, pointer(args, index)).unwrap_or(0)
}

fn read_u32(memory: &[u8], at: u64) -> Option<u64> {
    let start = usize::try_from(at).ok()?;
    let bytes = memory.get(start..start.checked_add(4)?)?;
    Some(u64::from(u32::from_le_bytes(bytes.try_into().ok()?)))
}

/// The entries of a vector of (pointer, length) pairs up to its first non-empty buffer, and that buffer.
fn first_buffer(memory: &[u8], iovs: u64, count: u64) -> (Range<u64>, Range<u64>) {
    for index in 0..count {
        let at = iovs + index * 8;
        let (Some(start), Some(len)) = (read_u32(memory, at), read_u32(memory, at + 4)) else { break };
        if len > 0 {
            return (iovs..at + 8, start..start + len);
        }
    }
    (iovs..iovs + count * 8, 0..0)
}

fn push(ranges: &mut Vec<Range<u64>>, memory: &[u8], start: u64, len: u64) {
    if len > 0 && start.checked_add(len).is_some_and(|end| end <= memory.len() as u64) {
        ranges.push(start..start + len);
    }
}

fn push_fields(ranges: &mut Vec<Range<u64>>, memory: &[u8], at: u64, fields: Fields) {
    for (offset, len) in fields {
        push(ranges, memory, at + u64::from(*offset), u64::from(*len));
    }
}
