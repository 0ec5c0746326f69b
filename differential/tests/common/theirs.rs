//! What Wasmtime says, in our words.
#![allow(dead_code, reason = "not every test needs both")]

use worksp_engine::TrapKind;

/// The bits of a number or a vector.
pub fn bits(value: &wasmtime::Val) -> u128 {
    match value {
        wasmtime::Val::I32(v) => u128::from(*v as u32),
        wasmtime::Val::I64(v) => u128::from(*v as u64),
        wasmtime::Val::F32(bits) => u128::from(*bits),
        wasmtime::Val::F64(bits) => u128::from(*bits),
        wasmtime::Val::V128(bits) => bits.as_u128(),
        other => panic!("the functions return no {other:?}"),
    }
}

/// The kind of a trap.
pub fn trap_kind(error: &wasmtime::Error) -> TrapKind {
    use wasmtime::Trap;
    match error.downcast_ref::<Trap>() {
        Some(Trap::UnreachableCodeReached) => TrapKind::Unreachable,
        Some(Trap::MemoryOutOfBounds) => TrapKind::MemoryOutOfBounds,
        Some(Trap::TableOutOfBounds) => TrapKind::TableOutOfBounds,
        Some(Trap::IndirectCallToNull) => TrapKind::IndirectCallToNull,
        Some(Trap::IntegerDivisionByZero) => TrapKind::IntegerDivisionByZero,
        Some(Trap::IntegerOverflow) => TrapKind::IntegerOverflow,
        Some(Trap::BadConversionToInteger) => TrapKind::BadConversionToInteger,
        Some(Trap::StackOverflow) => TrapKind::StackOverflow,
        Some(Trap::BadSignature) => TrapKind::BadSignature,
        Some(Trap::NullReference) => TrapKind::NullException,
        Some(Trap::HeapMisaligned) => TrapKind::UnalignedAtomic,
        Some(Trap::AtomicWaitNonSharedMemory) => TrapKind::WaitOnUnshared,
        other => panic!("Wasmtime failed otherwise: {other:?}, {error:?}"),
    }
}
