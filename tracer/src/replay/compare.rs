//! The recording's words and the engine's, side by side.

use worksp_engine::{Step, TrapKind, Val, ValType};

use crate::recording::{Bits, End, Event, Exit, TrapCode, ValueType};

pub(super) fn grown(found: Option<u64>) -> String {
    found.map_or("that it failed".to_string(), |previous| format!("from {previous}"))
}

pub(super) fn describe_step(step: &Step) -> String {
    match step {
        Step::Returned(_) => "a return".to_string(),
        Step::HostCall(call) => format!("a call of host function {}", call.import),
        Step::Suspended(why) => format!("a suspension ({why:?})"),
        Step::Trapped(trap) => format!("a trap: {}", trap.kind()),
    }
}

pub(super) fn describe_event(event: &Event) -> String {
    match event {
        Event::HostCall { import, .. } => format!("a call of host function {import}"),
        Event::Leave { end } => exit_of(end).to_string(),
        other => format!("{other:?}"),
    }
}

pub(super) fn exit_of(end: &End) -> Exit {
    match end {
        End::Returned(results) => Exit::Returned(results.clone()),
        End::Trapped { code, message } => Exit::Trapped { code: *code, message: message.clone() },
        End::Exit(status) => Exit::Status(*status),
    }
}

/// Whether two ends agree; the texts of traps may differ.
pub(super) fn same_exit(left: &Exit, right: &Exit) -> bool {
    match (left, right) {
        (Exit::Trapped { code: left, .. }, Exit::Trapped { code: right, .. }) => left == right,
        (left, right) => left == right,
    }
}

pub(super) fn trap_code(kind: TrapKind) -> TrapCode {
    match kind {
        TrapKind::Unreachable => TrapCode::Unreachable,
        TrapKind::MemoryOutOfBounds => TrapCode::MemoryOutOfBounds,
        TrapKind::TableOutOfBounds | TrapKind::UndefinedElement => TrapCode::TableOutOfBounds,
        TrapKind::IndirectCallToNull => TrapCode::IndirectCallToNull,
        TrapKind::BadSignature => TrapCode::BadSignature,
        TrapKind::IntegerDivisionByZero => TrapCode::IntegerDivisionByZero,
        TrapKind::IntegerOverflow => TrapCode::IntegerOverflow,
        TrapKind::BadConversionToInteger => TrapCode::BadConversionToInteger,
        TrapKind::StackOverflow => TrapCode::StackOverflow,
        TrapKind::Host => TrapCode::Host,
        TrapKind::UncaughtException => TrapCode::Exception,
        _ => TrapCode::Other,
    }
}

pub(super) fn val_type(ty: ValueType) -> ValType {
    match ty {
        ValueType::I32 => ValType::I32,
        ValueType::I64 => ValType::I64,
        ValueType::F32 => ValType::F32,
        ValueType::F64 => ValType::F64,
        ValueType::V128 => ValType::V128,
        ValueType::FuncRef => ValType::FuncRef,
        ValueType::ExternRef => ValType::ExternRef,
    }
}

pub(super) fn value_of(ty: ValType, bits: Bits) -> Val {
    Val::from_bits(ty, bits)
}
