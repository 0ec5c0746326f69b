//! Modules of programs on engines: this one in all of its modes, and Wasmtime.
//!
//! All are driven alike, call by call, and everything that a program can change is looked at after every call.

pub mod modules;
pub mod oracle;
pub mod ours;
pub mod pieces;

use worksp_engine::TrapKind;

use crate::program::{Host, Input, Needs, RESULTS_MAX};

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// With these bits.
    Returned([u128; RESULTS_MAX]),
    /// With a trap; those that Wasmtime does not tell apart are the same.
    Trapped(TrapKind),
    /// With an exception that carries these values' bits.
    Threw(Vec<u128>),
    /// With something that no engine may do.
    Failed(String),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            End::Returned(bits) => write!(f, "returned {bits:x?}"),
            End::Trapped(kind) => write!(f, "trapped: {kind}"),
            End::Threw(bits) => write!(f, "threw an exception with {bits:x?}"),
            End::Failed(what) => write!(f, "failed: {what}"),
        }
    }
}

/// A call of a host function with its arguments' bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostCall {
    /// Which function.
    pub host: Host,
    /// Bits.
    pub args: [u128; 3],
}

/// Calls of the host that are kept for one call of a program, at most. A program that makes more does not end as it should.
pub const HOST_CALLS_MAX: usize = 100_000;

/// An engine in a mode.
pub trait Runner {
    /// Loads a module and makes an instance of it.
    ///
    /// # Errors
    ///
    /// When it is refused.
    fn load(&mut self, module: &[u8], needs: Needs) -> Result<(), String>;

    /// Makes a new instance of it.
    ///
    /// # Errors
    ///
    /// When there is no memory for it.
    fn renew(&mut self) -> Result<(), String>;

    /// Sets the state to what this program starts with.
    fn reset(&mut self, program: u32) -> End;

    /// Calls a program.
    fn call(&mut self, program: u32, input: &Input) -> End;

    /// The bytes of a memory.
    fn memory(&mut self, index: u32) -> &[u8];

    /// The bits of all globals.
    fn globals(&mut self, into: &mut Vec<u128>);

    /// The elements of all tables: 0 for null, otherwise the number of the function in its program and 1; then their lengths.
    fn tables(&mut self, into: &mut Vec<u64>);

    /// The calls of the host since the last reset or call of a program.
    fn host_calls(&mut self) -> Vec<HostCall>;

    /// Work so far, where it is counted.
    fn work(&self) -> Option<u64> {
        None
    }
}

/// What host functions do, for every engine: what they answer, and whether they trap. Bytes of memory come from the engine.
pub fn host_answer(host: Host, args: [u128; 3], memory: &mut [u8]) -> Result<[u128; 2], HostTrap> {
    let place = |address: u128| address as usize % (0x1_0000 - 8);
    let mixed = |value: u64| value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ 0x5bd1_e995;
    match host {
        Host::Note => Ok([0; 2]),
        Host::Ask => Ok([u128::from(mixed(args[0] as u64)), 0]),
        Host::Blend => Ok([args[2].rotate_left(9) ^ args[0], u128::from(((mixed(args[1] as u64) >> 40) as f64).to_bits())]),
        Host::Poke => {
            let at = place(args[0]);
            memory[at..at + 8].copy_from_slice(&(args[1] as u64).to_le_bytes());
            Ok([at as u128, 0])
        }
        Host::Peek => {
            let at = place(args[0]);
            Ok([u128::from(u64::from_le_bytes(memory[at..at + 8].try_into().expect("eight bytes"))), 0])
        }
        Host::Check if args[0] & 1 == 1 => Err(HostTrap),
        Host::Check => Ok([0; 2]),
    }
}

/// The trap of [`Host::Check`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the host trapped")]
pub struct HostTrap;
