//! Traps: the outcome of a program that did something it must not. Not an error of the engine's or of its user's.

use std::fmt;
use std::sync::Arc;

use crate::value::ExnId;

/// What a program did to trap. The texts are the specification's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[repr(u8)]
#[non_exhaustive]
pub enum TrapKind {
    /// `unreachable` was executed.
    #[error("unreachable")]
    Unreachable,
    /// A load, store or bulk operator left its linear memory or its data segment.
    #[error("out of bounds memory access")]
    MemoryOutOfBounds,
    /// A table operator left its table or its element segment.
    #[error("out of bounds table access")]
    TableOutOfBounds,
    /// `call_indirect` through an index that its table does not have.
    #[error("undefined element")]
    UndefinedElement,
    /// `call_indirect` through a null element.
    #[error("uninitialized element")]
    IndirectCallToNull,
    /// `call_indirect` of a function of another type.
    #[error("indirect call type mismatch")]
    BadSignature,
    /// Integer division or remainder by zero.
    #[error("integer divide by zero")]
    IntegerDivisionByZero,
    /// The result of an integer division or of a float-to-integer conversion does not fit.
    #[error("integer overflow")]
    IntegerOverflow,
    /// A NaN was converted to an integer.
    #[error("invalid conversion to integer")]
    BadConversionToInteger,
    /// The address of an atomic access is no multiple of its size.
    #[error("unaligned atomic")]
    UnalignedAtomic,
    /// `memory.atomic.wait32` or `wait64` on a memory that is not shared.
    #[error("expected shared memory")]
    WaitOnUnshared,
    /// `memory.atomic.wait32` or `wait64` without a timeout, which would never end: there is no other agent.
    #[error("wait that nobody can end")]
    EndlessWait,
    /// The limit on call depth or on the bytes of all frames was reached.
    #[error("call stack exhausted")]
    StackOverflow,
    /// The fuel limit was reached.
    #[error("all fuel consumed")]
    OutOfFuel,
    /// `call_ref` of a null reference.
    #[error("null function reference")]
    NullFunction,
    /// `ref.as_non_null` of a null reference.
    #[error("null reference")]
    NullReference,
    /// Somebody outside ended the run.
    #[error("interrupted")]
    Interrupted,
    /// `throw_ref` of a null reference.
    #[error("null exception reference")]
    NullException,
    /// An exception that nobody caught left the innermost entry; the trap says which, see [`Trap::exception`].
    #[error("uncaught exception")]
    UncaughtException,
    /// The limit on the bytes of exceptions was reached, and all of them are still referred to.
    #[error("exception limit reached")]
    ExceptionLimit,
    /// A host function trapped; the trap carries its message.
    #[error("host function trapped")]
    Host,
}

/// One activation of a backtrace, innermost first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameInfo {
    /// The function's index in its module.
    pub func: u32,
    /// The function's name, as [`Module::func_name`](crate::Module::func_name) gives it.
    pub name: String,
    /// Byte offset in the module of the operator that trapped or called.
    pub offset: usize,
}

/// A trap with the place where it happened. One word wide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trap {
    inner: Box<Inner>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Inner {
    kind: TrapKind,
    message: Option<String>,
    backtrace: Vec<FrameInfo>,
    exception: Option<Pinned>,
}

/// An exception that its store keeps as long as this value, or a copy of it, lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Pinned {
    pub(crate) id: ExnId,
    /// Shared with the store.
    pub(crate) pin: Arc<()>,
}

impl Trap {
    /// A trap of this kind; `backtrace` starts with the innermost activation.
    pub fn new(kind: TrapKind, backtrace: Vec<FrameInfo>) -> Trap {
        Trap { inner: Box::new(Inner { kind, message: None, backtrace, exception: None }) }
    }

    /// A trap that a host function raises.
    pub fn host(message: impl Into<String>) -> Trap {
        let (kind, message) = (TrapKind::Host, Some(message.into()));
        Trap { inner: Box::new(Inner { kind, message, backtrace: Vec::new(), exception: None }) }
    }

    /// An exception that nobody caught.
    pub(crate) fn uncaught(exception: Pinned, backtrace: Vec<FrameInfo>) -> Trap {
        let kind = TrapKind::UncaughtException;
        Trap { inner: Box::new(Inner { kind, message: None, backtrace, exception: Some(exception) }) }
    }

    /// What happened.
    pub fn kind(&self) -> TrapKind {
        self.inner.kind
    }

    /// The host's message, for traps that a host function raised.
    pub fn message(&self) -> Option<&str> {
        self.inner.message.as_deref()
    }

    /// The exception, if that is what nobody caught. Its store keeps it as long as the trap lives; [`Store::exception`](crate::Store::exception)
    /// tells what is in it, and [`Store::throw`](crate::Store::throw) throws it on.
    pub fn exception(&self) -> Option<ExnId> {
        self.inner.exception.as_ref().map(|pinned| pinned.id)
    }

    /// Where it happened, innermost activation first. Empty for a trap of the host or of an instantiation.
    pub fn backtrace(&self) -> &[FrameInfo] {
        &self.inner.backtrace
    }
}

/// Frames of a printed backtrace at each end, when it is too long to print whole.
const FRAMES_SHOWN: usize = 20;

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trap: {}", self.inner.kind)?;
        if let Some(message) = &self.inner.message {
            write!(f, ": {message}")?;
        }
        let frames = &self.inner.backtrace;
        for (i, frame) in frames.iter().enumerate() {
            if frames.len() > 2 * FRAMES_SHOWN + 1 && i == FRAMES_SHOWN {
                write!(f, "\n  … {} more activations", frames.len() - 2 * FRAMES_SHOWN)?;
            }
            if i < FRAMES_SHOWN || i + FRAMES_SHOWN >= frames.len() || frames.len() <= 2 * FRAMES_SHOWN + 1 {
                write!(f, "\n  {i}: {} (function {}, offset 0x{:x})", frame.name, frame.func, frame.offset)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Trap {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trap_is_one_word() {
        assert_eq!(size_of::<Trap>(), size_of::<usize>());
        assert_eq!(size_of::<TrapKind>(), 1);
    }

    #[test]
    fn long_backtraces_are_cut_in_the_middle() {
        let frame = |i: u32| FrameInfo { func: i, name: format!("f{i}"), offset: i as usize };
        let trap = Trap::new(TrapKind::StackOverflow, (0..1000).map(frame).collect());
        let text = trap.to_string();
        assert_eq!(text.lines().count(), 2 + 2 * FRAMES_SHOWN);
        assert!(text.contains("… 960 more activations") && text.contains("999: f999"), "{text}");
        let short = Trap::new(TrapKind::Unreachable, (0..2).map(frame).collect());
        assert_eq!(short.to_string(), "trap: unreachable\n  0: f0 (function 0, offset 0x0)\n  1: f1 (function 1, offset 0x1)");
        assert_eq!(Trap::host("no such file").to_string(), "trap: host function trapped: no such file");
    }
}
