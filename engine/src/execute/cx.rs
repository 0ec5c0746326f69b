//! What every handler sees: registers, the context behind them, frames, and how one handler goes on to the next.
//!
//! ```text
//! handler(cx, ip, sp, mem, acc)      ip  the instruction: header word, then 32-bit fields
//!                                    sp  the frame's first slot (parameters, locals, operand stack)
//!                                    mem base of memory 0; its length is in the context
//!                                    acc the accumulator, raw bits
//! ```
//!
//! In optimised builds a handler ends in a tail call of the next one (the prototype's finding: stable Rust turns it into a
//! jump). With `debug_assertions` it does not, so there, and with the feature `loop-dispatch`, a handler stores its registers
//! and returns to a loop.

use crate::store::{Func, Store};
use crate::trap::TrapKind;

/// A pointer to an instruction.
pub(crate) type Ip = *const u8;
/// A pointer to a frame's first slot.
pub(crate) type Sp = *mut u8;
/// A handler, as the header word of a linked instruction holds it.
pub(crate) type Handler = unsafe extern "C" fn(&mut Cx, Ip, Sp, *mut u8, u64) -> u64;

/// Go on with the registers in [`Cx::regs`] (loop dispatch only).
#[cfg(any(debug_assertions, feature = "loop-dispatch"))]
pub(crate) const CONTINUE: u64 = 0;
/// The innermost entry returned; its results are at [`Cx::exit_sp`].
pub(crate) const DONE: u64 = 1;
/// The operator at [`Cx::exit_ip`] trapped with [`Cx::trap`].
pub(crate) const TRAP: u64 = 2;
/// A host function is called: [`Cx::host`] says which.
pub(crate) const HOST: u64 = 3;
/// The function whose stub is at [`Cx::exit_ip`] must be translated first.
pub(crate) const TRANSLATE: u64 = 4;

/// [`Frame::instance`] of a frame that the host entered through.
pub(crate) const BARRIER: u32 = u32::MAX;

/// A suspended activation, as its callee finds it. Holds indices only, so that frames can be copied, moved and saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Frame {
    /// Where the caller goes on: byte offset in its code.
    pub(crate) ret: u32,
    /// The caller's function index in its module.
    pub(crate) func: u32,
    /// Distance of the callee's frame from the caller's, in bytes.
    pub(crate) sp_delta: u32,
    /// The caller's instance, or [`BARRIER`].
    pub(crate) instance: u32,
}

impl Frame {
    /// Room for so many frames, none of which is in use. It takes memory as it is used.
    pub(crate) fn unused(count: usize) -> Vec<Frame> {
        // SAFETY: a frame is four numbers, and zero is one.
        unsafe { Box::<[Frame]>::new_zeroed_slice(count).assume_init() }.into_vec()
    }
}

/// What a call needs to know of a function, by function index.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Entry {
    /// First instruction; the stub that asks for translation until the function was called once.
    pub(crate) code: Ip,
    /// Bytes of frame: locals and operand stack.
    pub(crate) frame_bytes: u32,
    /// Parameter slots.
    pub(crate) params: u32,
    /// Slots of declared locals, zeroed at entry.
    pub(crate) zeroed: u32,
}

/// A pending call of a host function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostExit {
    /// The caller's function index.
    pub(crate) func: u32,
    /// Where the caller goes on: byte offset in its code.
    pub(crate) ret: u32,
    /// The host function, as an index into [`Store::funcs`].
    pub(crate) callee: u32,
    /// First argument slot, in bytes from the caller's frame.
    pub(crate) args: u32,
}

/// The registers between two instructions: in loop dispatch, and where an exception was caught.
#[derive(Clone, Copy)]
pub(crate) struct Regs {
    pub(crate) ip: Ip,
    pub(crate) sp: Sp,
    pub(crate) mem: *mut u8,
    pub(crate) acc: u64,
}

/// The context of one run between two exits. Built from the store's state on entry and written back on exit.
#[repr(C)]
pub(crate) struct Cx {
    /// Next free frame record.
    pub(crate) frames: *mut Frame,
    pub(crate) frames_end: *mut Frame,
    pub(crate) stack_end: Sp,
    /// Bytes of memory 0 that are accessible.
    pub(crate) mem_len: usize,
    /// Fuel left; work is what was taken from [`Cx::fuel_base`].
    pub(crate) fuel: i64,
    /// The running instance's functions.
    pub(crate) entries: *const Entry,
    /// The running instance's globals.
    pub(crate) globals: *const *mut u64,
    pub(crate) instance: u32,
    /// Whether code charges fuel; bulk operators ask.
    pub(crate) counted: bool,
    pub(crate) trap: Option<TrapKind>,
    pub(crate) probe: *mut (),
    /// All functions of the store, for indirect calls.
    pub(crate) funcs: *const Func,
    pub(crate) store: *mut Store,
    pub(crate) fuel_base: i64,
    pub(crate) exit_ip: Ip,
    pub(crate) exit_sp: Sp,
    /// The accumulator where fuel ran out.
    pub(crate) exit_acc: u64,
    /// The fuel that a bulk operator takes, where it was too much.
    pub(crate) amount: i64,
    pub(crate) host: HostExit,
    pub(crate) regs: Regs,
    /// The exception that nobody caught, as a raw reference.
    pub(crate) thrown: u64,
}

impl Cx {
    /// Work so far, the current operator included.
    #[inline(always)]
    pub(crate) fn work(&self) -> u64 {
        (self.fuel_base - self.fuel) as u64
    }
}

/// The N-th 32-bit field of the instruction.
macro_rules! field {
    ($ip:ident, $n:expr) => {
        *($ip.add(8 + 4 * $n) as *const u32)
    };
}
/// The slot at a byte offset, as a place of 64 raw bits.
macro_rules! slot {
    ($sp:ident, $offset:expr) => {
        *($sp.add($offset as usize) as *mut u64)
    };
}
/// The two slots at a byte offset, as a place of one vector.
macro_rules! vector {
    ($sp:ident, $offset:expr) => {
        *($sp.add($offset as usize) as *mut wasmi_core::V128)
    };
}
/// Goes on at `$ip`.
macro_rules! next {
    ($cx:ident, $ip:expr, $sp:expr, $mem:expr, $acc:expr) => {{
        let ip: $crate::execute::cx::Ip = $ip;
        #[cfg(not(any(debug_assertions, feature = "loop-dispatch")))]
        {
            let handler: $crate::execute::cx::Handler = core::mem::transmute(*(ip as *const usize));
            return handler($cx, ip, $sp, $mem, $acc);
        }
        #[cfg(any(debug_assertions, feature = "loop-dispatch"))]
        {
            $cx.regs = $crate::execute::cx::Regs { ip, sp: $sp, mem: $mem, acc: $acc };
            return $crate::execute::cx::CONTINUE;
        }
    }};
}
/// Ends the run: the operator at `$ip` trapped.
macro_rules! trap {
    ($cx:ident, $ip:ident, $sp:ident, $kind:expr) => {{
        return $crate::execute::cx::leave_with_trap($cx, $ip, $sp, $kind);
    }};
}
/// The instruction that a relative field points to.
macro_rules! target {
    ($ip:ident, $n:expr) => {
        $ip.offset(field!($ip, $n) as i32 as isize)
    };
}
pub(crate) use {field, next, slot, target, trap, vector};

/// Notes a trap and leaves the run.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn leave_with_trap(cx: &mut Cx, ip: Ip, sp: Sp, kind: TrapKind) -> u64 {
    cx.trap = Some(kind);
    cx.exit_ip = ip;
    cx.exit_sp = sp;
    TRAP
}

/// A type whose values live in slots.
pub(crate) trait Raw: Copy {
    fn from_raw(raw: u64) -> Self;
    fn into_raw(self) -> u64;
    /// The value that an immediate field stands for.
    fn from_imm(imm: u32) -> Self;
}

macro_rules! raw {
    ($($ty:ident: $from:expr, $into:expr, $imm:expr;)*) => {$(
        impl Raw for $ty {
            #[inline(always)]
            fn from_raw(raw: u64) -> $ty { let f: fn(u64) -> $ty = $from; f(raw) }
            #[inline(always)]
            fn into_raw(self) -> u64 { let f: fn($ty) -> u64 = $into; f(self) }
            #[inline(always)]
            fn from_imm(imm: u32) -> $ty { let f: fn(u32) -> $ty = $imm; f(imm) }
        }
    )*};
}
raw! {
    u8: |r| r as u8, |v| u64::from(v), |i| i as u8;
    u16: |r| r as u16, |v| u64::from(v), |i| i as u16;
    i32: |r| r as i32, |v| u64::from(v as u32), |i| i as i32;
    u32: |r| r as u32, |v| u64::from(v), |i| i;
    i64: |r| r as i64, |v| v as u64, |i| i64::from(i as i32);
    u64: |r| r, |v| v, |i| i64::from(i as i32) as u64;
    f32: |r| f32::from_bits(r as u32), |v| u64::from(v.to_bits()), f32::from_bits;
    f64: f64::from_bits, f64::to_bits, |i| f64::from(f32::from_bits(i));
    bool: |r| r != 0, u64::from, |i| i != 0;
}

/// Where an operand comes from (see `isa`).
pub(crate) trait Source {
    /// Reads field `N`'s operand.
    ///
    /// # Safety
    /// `ip` must point at an instruction whose field `N` is an operand of this source, `sp` at its frame.
    unsafe fn get<T: Raw, const N: usize>(ip: Ip, sp: Sp, acc: u64) -> T;
}
/// The accumulator.
pub(crate) struct A;
/// A slot.
pub(crate) struct S;
/// An immediate.
pub(crate) struct I;

impl Source for A {
    #[inline(always)]
    unsafe fn get<T: Raw, const N: usize>(_: Ip, _: Sp, acc: u64) -> T {
        T::from_raw(acc)
    }
}
impl Source for S {
    #[inline(always)]
    unsafe fn get<T: Raw, const N: usize>(ip: Ip, sp: Sp, _: u64) -> T {
        // SAFETY: the caller's promise; slots are inside the frame, which the call checked against the stack's end.
        unsafe { T::from_raw(slot!(sp, field!(ip, N))) }
    }
}
impl Source for I {
    #[inline(always)]
    unsafe fn get<T: Raw, const N: usize>(ip: Ip, _: Sp, _: u64) -> T {
        // SAFETY: the caller's promise.
        unsafe { T::from_imm(field!(ip, N)) }
    }
}

/// Where a result goes besides the accumulator.
pub(crate) trait Dest {
    /// Writes `raw` to field 0's slot, or nowhere.
    ///
    /// # Safety
    /// As for [`Source::get`], for field 0.
    unsafe fn put(ip: Ip, sp: Sp, raw: u64);
}
/// Nowhere else.
pub(crate) struct ToAcc;
/// The slot in field 0.
pub(crate) struct ToSlot;

impl Dest for ToAcc {
    #[inline(always)]
    unsafe fn put(_: Ip, _: Sp, _: u64) {}
}
impl Dest for ToSlot {
    #[inline(always)]
    unsafe fn put(ip: Ip, sp: Sp, raw: u64) {
        // SAFETY: the caller's promise.
        unsafe { slot!(sp, field!(ip, 0)) = raw }
    }
}
