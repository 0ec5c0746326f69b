//! The instruction set: one table that operators, handlers and numbering follow.
//!
//! An instruction is a header word (the address of its handler once linked) followed by 32-bit fields, padded to whole
//! 8-byte words. Field 0 of an instruction with a result is its destination slot. Every such instruction exists twice, one
//! opcode apart: the even one leaves its result in the accumulator only, the odd one also writes the destination slot. So a
//! producer can be told later, by adding one to its opcode, to store its result: `local.set` and spills cost no dispatch.
//!
//! Operand shapes name where operands come from: `A` the accumulator, `S` a slot (a byte offset from the frame's base), `I`
//! an immediate of 32 bits (sign-extended for i64, widened exactly for f64).
//!
//! What works on 128-bit vectors is in [`vector`].
//!
//! ```text
//! opcode = group base + (index in group × shapes + shape) × 2 + destination
//! ```

pub(crate) mod vector;

use crate::mutants::mutant;

/// Where a binary operation's operands come from, in numbering order: left, right.
pub(crate) const BINARY_SHAPES: [&str; 7] = ["SS", "SI", "IS", "AS", "SA", "AI", "IA"];
/// Operand shapes of stores: address, value.
pub(crate) const STORE_SHAPES: [&str; 8] = ["SS", "SI", "SA", "AS", "AI", "IS", "IA", "II"];
/// Operand shapes of stores to 64-bit memories: address, value.
pub(crate) const STORE64_SHAPES: [&str; 5] = ["SS", "SI", "SA", "AS", "AI"];
/// Operand shapes of operations with one free operand.
pub(crate) const UNARY_SHAPES: [&str; 2] = ["A", "S"];
/// Operand shapes where an immediate is allowed as well: load addresses, `global.set`, one-result returns.
pub(crate) const UNARY_IMM_SHAPES: [&str; 3] = ["A", "S", "I"];

/// Lists every binary operation: `Variant kernel (left, right) -> kind`. Integer comparisons come first, in pairs of inverses:
/// a fused branch-if-not uses the neighbour (index ^ 1).
macro_rules! for_each_binary {
    ($m:ident) => {
        $m! {
            I32Eq i32_eq (i32, i32) plain; I32Ne i32_ne (i32, i32) plain;
            I32LtS i32_lt_s (i32, i32) plain; I32GeS i32_ge_s (i32, i32) plain;
            I32GtS i32_gt_s (i32, i32) plain; I32LeS i32_le_s (i32, i32) plain;
            I32LtU i32_lt_u (u32, u32) plain; I32GeU i32_ge_u (u32, u32) plain;
            I32GtU i32_gt_u (u32, u32) plain; I32LeU i32_le_u (u32, u32) plain;
            I64Eq i64_eq (i64, i64) plain; I64Ne i64_ne (i64, i64) plain;
            I64LtS i64_lt_s (i64, i64) plain; I64GeS i64_ge_s (i64, i64) plain;
            I64GtS i64_gt_s (i64, i64) plain; I64LeS i64_le_s (i64, i64) plain;
            I64LtU i64_lt_u (u64, u64) plain; I64GeU i64_ge_u (u64, u64) plain;
            I64GtU i64_gt_u (u64, u64) plain; I64LeU i64_le_u (u64, u64) plain;
            I32Add i32_add (i32, i32) plain; I32Sub i32_sub (i32, i32) plain; I32Mul i32_mul (i32, i32) plain;
            I32And i32_bitand (i32, i32) plain; I32Or i32_bitor (i32, i32) plain; I32Xor i32_bitxor (i32, i32) plain;
            I32Shl i32_shl (i32, i32) plain; I32ShrS i32_shr_s (i32, i32) plain; I32ShrU i32_shr_u (u32, u32) plain;
            I32Rotl i32_rotl (i32, i32) plain; I32Rotr i32_rotr (i32, i32) plain;
            I32DivS i32_div_s (i32, i32) traps; I32DivU i32_div_u (u32, u32) traps;
            I32RemS i32_rem_s (i32, i32) traps; I32RemU i32_rem_u (u32, u32) traps;
            I64Add i64_add (i64, i64) plain; I64Sub i64_sub (i64, i64) plain; I64Mul i64_mul (i64, i64) plain;
            I64And i64_bitand (i64, i64) plain; I64Or i64_bitor (i64, i64) plain; I64Xor i64_bitxor (i64, i64) plain;
            I64Shl i64_shl (i64, i64) plain; I64ShrS i64_shr_s (i64, i64) plain; I64ShrU i64_shr_u (u64, u64) plain;
            I64Rotl i64_rotl (i64, i64) plain; I64Rotr i64_rotr (i64, i64) plain;
            I64DivS i64_div_s (i64, i64) traps; I64DivU i64_div_u (u64, u64) traps;
            I64RemS i64_rem_s (i64, i64) traps; I64RemU i64_rem_u (u64, u64) traps;
            F32Eq f32_eq (f32, f32) plain; F32Ne f32_ne (f32, f32) plain; F32Lt f32_lt (f32, f32) plain;
            F32Gt f32_gt (f32, f32) plain; F32Le f32_le (f32, f32) plain; F32Ge f32_ge (f32, f32) plain;
            F64Eq f64_eq (f64, f64) plain; F64Ne f64_ne (f64, f64) plain; F64Lt f64_lt (f64, f64) plain;
            F64Gt f64_gt (f64, f64) plain; F64Le f64_le (f64, f64) plain; F64Ge f64_ge (f64, f64) plain;
            F32Copysign f32_copysign (f32, f32) plain; F64Copysign f64_copysign (f64, f64) plain;
            F32Add f32_add (f32, f32) plain; F32Sub f32_sub (f32, f32) plain; F32Mul f32_mul (f32, f32) plain;
            F32Div f32_div (f32, f32) plain; F32Min f32_min (f32, f32) plain; F32Max f32_max (f32, f32) plain;
            F64Add f64_add (f64, f64) plain; F64Sub f64_sub (f64, f64) plain; F64Mul f64_mul (f64, f64) plain;
            F64Div f64_div (f64, f64) plain; F64Min f64_min (f64, f64) plain; F64Max f64_max (f64, f64) plain;
            CanonF32Add f32_add (f32, f32) canon; CanonF32Sub f32_sub (f32, f32) canon; CanonF32Mul f32_mul (f32, f32) canon;
            CanonF32Div f32_div (f32, f32) canon; CanonF32Min f32_min (f32, f32) canon; CanonF32Max f32_max (f32, f32) canon;
            CanonF64Add f64_add (f64, f64) canon; CanonF64Sub f64_sub (f64, f64) canon; CanonF64Mul f64_mul (f64, f64) canon;
            CanonF64Div f64_div (f64, f64) canon; CanonF64Min f64_min (f64, f64) canon; CanonF64Max f64_max (f64, f64) canon;
        }
    };
}
pub(crate) use for_each_binary;

/// Lists every unary operation: `Variant kernel (operand) kind`. Operations that leave the 64 bits of a slot as they are
/// (`reinterpret`, `i64.extend_i32_u`) are no operations here: i32 values are kept zero-extended.
macro_rules! for_each_unary {
    ($m:ident) => {
        $m! {
            I32Clz i32_clz (i32) plain; I32Ctz i32_ctz (i32) plain; I32Popcnt i32_popcnt (i32) plain;
            I64Clz i64_clz (i64) plain; I64Ctz i64_ctz (i64) plain; I64Popcnt i64_popcnt (i64) plain;
            I32WrapI64 i32_wrap_i64 (i64) plain; I64ExtendI32S i64_extend_i32_s (i32) plain;
            I32Extend8S i32_extend8_s (i32) plain; I32Extend16S i32_extend16_s (i32) plain;
            I64Extend8S i64_extend8_s (i64) plain; I64Extend16S i64_extend16_s (i64) plain; I64Extend32S i64_extend32_s (i64) plain;
            I32TruncF32S i32_trunc_f32_s (f32) traps; I32TruncF32U i32_trunc_f32_u (f32) traps;
            I32TruncF64S i32_trunc_f64_s (f64) traps; I32TruncF64U i32_trunc_f64_u (f64) traps;
            I64TruncF32S i64_trunc_f32_s (f32) traps; I64TruncF32U i64_trunc_f32_u (f32) traps;
            I64TruncF64S i64_trunc_f64_s (f64) traps; I64TruncF64U i64_trunc_f64_u (f64) traps;
            I32TruncSatF32S i32_trunc_sat_f32_s (f32) plain; I32TruncSatF32U i32_trunc_sat_f32_u (f32) plain;
            I32TruncSatF64S i32_trunc_sat_f64_s (f64) plain; I32TruncSatF64U i32_trunc_sat_f64_u (f64) plain;
            I64TruncSatF32S i64_trunc_sat_f32_s (f32) plain; I64TruncSatF32U i64_trunc_sat_f32_u (f32) plain;
            I64TruncSatF64S i64_trunc_sat_f64_s (f64) plain; I64TruncSatF64U i64_trunc_sat_f64_u (f64) plain;
            F32ConvertI32S f32_convert_i32_s (i32) plain; F32ConvertI32U f32_convert_i32_u (u32) plain;
            F32ConvertI64S f32_convert_i64_s (i64) plain; F32ConvertI64U f32_convert_i64_u (u64) plain;
            F64ConvertI32S f64_convert_i32_s (i32) plain; F64ConvertI32U f64_convert_i32_u (u32) plain;
            F64ConvertI64S f64_convert_i64_s (i64) plain; F64ConvertI64U f64_convert_i64_u (u64) plain;
            F32Abs f32_abs (f32) plain; F32Neg f32_neg (f32) plain; F64Abs f64_abs (f64) plain; F64Neg f64_neg (f64) plain;
            F32Ceil f32_ceil (f32) plain; F32Floor f32_floor (f32) plain; F32Trunc f32_trunc (f32) plain;
            F32Nearest f32_nearest (f32) plain; F32Sqrt f32_sqrt (f32) plain;
            F64Ceil f64_ceil (f64) plain; F64Floor f64_floor (f64) plain; F64Trunc f64_trunc (f64) plain;
            F64Nearest f64_nearest (f64) plain; F64Sqrt f64_sqrt (f64) plain;
            F32DemoteF64 f32_demote_f64 (f64) plain; F64PromoteF32 f64_promote_f32 (f32) plain;
            CanonF32Ceil f32_ceil (f32) canon; CanonF32Floor f32_floor (f32) canon; CanonF32Trunc f32_trunc (f32) canon;
            CanonF32Nearest f32_nearest (f32) canon; CanonF32Sqrt f32_sqrt (f32) canon;
            CanonF64Ceil f64_ceil (f64) canon; CanonF64Floor f64_floor (f64) canon; CanonF64Trunc f64_trunc (f64) canon;
            CanonF64Nearest f64_nearest (f64) canon; CanonF64Sqrt f64_sqrt (f64) canon;
            CanonF32DemoteF64 f32_demote_f64 (f64) canon; CanonF64PromoteF32 f64_promote_f32 (f32) canon;
        }
    };
}
pub(crate) use for_each_unary;

/// Lists load kinds: `Variant (type in memory => type in the slot)`.
macro_rules! for_each_load {
    ($m:ident) => {
        $m! {
            U8 (u8 => u32); U16 (u16 => u32); U32 (u32 => u32); U64 (u64 => u64);
            I8To32 (i8 => i32); I16To32 (i16 => i32); I8To64 (i8 => i64); I16To64 (i16 => i64); I32To64 (i32 => i64);
        }
    };
}
pub(crate) use for_each_load;

/// Lists store kinds: `Variant (type in memory)`.
macro_rules! for_each_store {
    ($m:ident) => {
        $m! { W8 (u8); W16 (u16); W32 (u32); W64 (u64); }
    };
}
pub(crate) use for_each_store;

/// Lists the remaining opcodes, one handler each: `Variant handler`. The handlers' files say what the fields are.
macro_rules! for_each_single {
    ($m:ident) => {
        $m! {
            // moves
            Copy copy; CopyAcc copy_acc; CopyImm copy_imm; CopyImm64 copy_imm64;
            ImmToAcc imm_to_acc; Imm64ToAcc imm64_to_acc; SlotToAcc slot_to_acc;
            SelectS select_slot; SelectA select_acc;
            // vectors
            VectorCopy vector_copy; VectorConst vector_const; VectorShuffle vector_shuffle;
            VectorSelectS vector_select_slot; VectorSelectA vector_select_acc;
            VectorGlobalGet vector_global_get::<S, P>; VectorGlobalSet vector_global_set::<S, P>;
            VectorLoadOther vector_load_other::<S, P>; LaneLoadOther lane_load_other::<S, P>; FrameStoreOther frame_store_other::<S, P>;
            // wide arithmetic
            Add128 add128; Sub128 sub128; MulWideS mul_wide_s; MulWideU mul_wide_u;
            // control
            Charge charge; Jump jump; JumpCharging jump_charging; BrTableS br_table_slot; BrTableA br_table_acc; Unreachable unreachable;
            Call call::<S, P>; CallImport call_import::<S, P>; CallIndirect call_indirect::<S, P>;
            ReturnCall return_call::<S, P>; ReturnCallImport return_call_import::<S, P>; ReturnCallIndirect return_call_indirect::<S, P>;
            CallRef call_ref::<S, P>; ReturnCallRef return_call_ref::<S, P>;
            Throw throw::<S, P>; ThrowRef throw_ref::<S, P>;
            Ret ret::<S, P>; RetA ret_acc::<S, P>; RetS ret_slot::<S, P>; RetI ret_imm::<S, P>;
            // globals
            GlobalGet global_get::<S, P>; GlobalSetA global_set_acc::<S, P>; GlobalSetS global_set_slot::<S, P>;
            GlobalSetI global_set_imm::<S, P>;
            // rare memory operators
            LoadOther load_other::<S, P>; StoreOther store_other::<S, P>;
            MemorySize memory_size::<S, P>; MemoryGrow memory_grow::<S, P>;
            MemoryCopy memory_copy::<S, P>; MemoryFill memory_fill::<S, P>; MemoryInit memory_init::<S, P>; DataDrop data_drop::<S, P>;
            // atomic operators
            AtomicLoad atomic_load::<S, P>; AtomicStore atomic_store::<S, P>; AtomicRmw atomic_rmw::<S, P>;
            AtomicCmpxchg atomic_cmpxchg::<S, P>; AtomicWait atomic_wait::<S, P>; AtomicNotify atomic_notify::<S, P>;
            // references and tables
            RefFunc ref_func::<S, P>; RefIsNull ref_is_null; RefAsNonNull ref_as_non_null;
            TableGet table_get::<S, P>; TableSet table_set::<S, P>; TableSize table_size::<S, P>; TableGrow table_grow::<S, P>;
            TableFill table_fill::<S, P>; TableCopy table_copy::<S, P>; TableInit table_init::<S, P>; ElemDrop elem_drop::<S, P>;
            // events of traced code
            Operator operator::<P>;
            LoopIter loop_iter::<P>; LoopExit loop_exit::<P>; LocalRead local_read::<P>; LocalWrite local_write::<P>;
            LocalReplace local_replace::<P>;
            ResultIn result_in::<P>; SlotMove slot_move::<P>; SlotClear slot_clear::<P>; SlotUse slot_use::<P>;
            // entry
            Translate translate_first;
        }
    };
}
pub(crate) use for_each_single;

macro_rules! define_enum {
    ($(#[$doc:meta])* $name:ident: $($variant:ident),*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(clippy::enum_variant_names, reason = "variants are called as the language calls its operators")]
        #[repr(u16)]
        pub(crate) enum $name { $($variant),* }
        impl $name {
            /// All of them, in numbering order.
            pub(crate) const ALL: &'static [$name] = &[$($name::$variant),*];
            /// How many there are.
            pub(crate) const COUNT: u16 = $name::ALL.len() as u16;
        }
    };
}
macro_rules! define_binary {
    ($($v:ident $k:ident ($l:ident, $r:ident) $kind:ident;)*) => { define_enum! {
        /// A binary operation.
        BinaryOp: $($v),*
    } };
}
macro_rules! define_unary {
    ($($v:ident $k:ident ($t:ident) $kind:ident;)*) => { define_enum! {
        /// A unary operation.
        UnaryOp: $($v),*
    } };
}
macro_rules! define_load {
    ($($v:ident ($m:ident => $s:ident);)*) => { define_enum! {
        /// A load of one width and extension.
        LoadKind: $($v),*
    } };
}
macro_rules! define_store {
    ($($v:ident ($m:ident);)*) => { define_enum! {
        /// A store of one width.
        StoreKind: $($v),*
    } };
}
macro_rules! define_single {
    ($($v:ident $h:ident $(::<$($g:ident),*>)?;)*) => { define_enum! {
        /// An opcode with one handler.
        Single: $($v),*
    } };
}
use define_enum;

/// What an atomic read-modify-write makes of the old value and its operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum AtomicRmw {
    Add,
    Sub,
    And,
    Or,
    Xor,
    Xchg,
}

impl AtomicRmw {
    /// All of them, in numbering order.
    pub(crate) const ALL: [AtomicRmw; 6] =
        [AtomicRmw::Add, AtomicRmw::Sub, AtomicRmw::And, AtomicRmw::Or, AtomicRmw::Xor, AtomicRmw::Xchg];
}

for_each_binary!(define_binary);
for_each_unary!(define_unary);
for_each_load!(define_load);
for_each_store!(define_store);
for_each_single!(define_single);

/// An operation code, before linking turns it into a handler's address.
pub(crate) type Opcode = u16;

const BINARY: u16 = 0;
/// Fused compare-and-branch: the integer comparisons in every binary shape.
const BRANCH: u16 = BINARY + BinaryOp::COUNT * 7 * 2;
/// How many binary operations, from the first, can be fused with a branch.
pub(crate) const BRANCH_OPS: u16 = BinaryOp::I64LeU as u16 + 1;
/// The same, charging what follows; and charging what is at the target as well. See [`charging`].
const BRANCH_CHARGING: u16 = BRANCH + BRANCH_OPS * 7;
const BRANCH_CHARGING_BOTH: u16 = BRANCH_CHARGING + BRANCH_OPS * 7;
const UNARY: u16 = BRANCH_CHARGING_BOTH + BRANCH_OPS * 7;
const LOAD: u16 = UNARY + UnaryOp::COUNT * 2 * 2;
const STORE: u16 = LOAD + LoadKind::COUNT * 3 * 2;
const VECTOR: u16 = STORE + StoreKind::COUNT * 8;
/// Loads from a 64-bit memory 0, with addresses in the unary shapes.
const LOAD64: u16 = vector::END;
const STORE64: u16 = LOAD64 + LoadKind::COUNT * 2 * 2;
const SINGLE: u16 = STORE64 + StoreKind::COUNT * 5;
/// The number of opcodes.
pub(crate) const OPCODES: u16 = SINGLE + Single::COUNT;

/// An operand's source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operand {
    /// The accumulator.
    Acc,
    /// A frame slot (index, not yet scaled).
    Slot(u32),
    /// A 32-bit immediate.
    Imm(u32),
}

impl Operand {
    /// The field that holds this operand: a byte offset, the immediate, or nothing of interest.
    pub(crate) fn field(self) -> u32 {
        match self {
            Operand::Acc => 0,
            Operand::Slot(slot) => slot * 8,
            Operand::Imm(imm) => imm,
        }
    }

    fn letter(self) -> u8 {
        match self {
            Operand::Acc => b'A',
            Operand::Slot(_) => b'S',
            Operand::Imm(_) => b'I',
        }
    }
}

fn shape2(shapes: &[&str], a: Operand, b: Operand) -> Option<u16> {
    shapes.iter().position(|s| s.as_bytes() == [a.letter(), b.letter()]).map(|i| i as u16)
}

fn shape1(shapes: &[&str], a: Operand) -> Option<u16> {
    shapes.iter().position(|s| s.as_bytes() == [a.letter()]).map(|i| i as u16)
}

/// The opcode of `op` for these operands, accumulator destination; `None` for a shape that has no handler.
pub(crate) fn binary(op: BinaryOp, a: Operand, b: Operand) -> Option<Opcode> {
    Some(BINARY + (op as u16 * 7 + shape2(&BINARY_SHAPES, a, b)?) * 2)
}

/// The fused branch that is taken when the comparison behind opcode `code` (or, with `negate`, its inverse) holds.
/// `None` when `code` is no integer comparison.
pub(crate) fn branch_of(code: Opcode, negate: bool) -> Option<Opcode> {
    let index = (code - BINARY) / 2;
    let (op, shape) = (index / 7, index % 7);
    if code >= BRANCH || op >= BRANCH_OPS {
        return None;
    }
    mutant! { BranchInverseStrict: if negate && op == BinaryOp::I32LtU as u16 {
        return Some(BRANCH + BinaryOp::I32GtU as u16 * 7 + shape);
    } }
    Some(BRANCH + (op ^ u16::from(negate)) * 7 + shape)
}

/// Whether this opcode asks if the accumulator is not 0.
#[cfg(feature = "mutants")]
pub(crate) fn is_on_acc(code: Opcode) -> bool {
    binary(BinaryOp::I32Ne, Operand::Acc, Operand::Imm(0)) == Some(code)
}

/// The comparison of floats that holds where this one does not, unless there is a NaN.
#[cfg(feature = "mutants")]
pub(crate) fn opposite_float(code: Opcode) -> Option<Opcode> {
    use BinaryOp::{F32Ge, F32Gt, F32Le, F32Lt, F64Ge, F64Gt, F64Le, F64Lt};
    let op = *BinaryOp::ALL.get(usize::from((code - BINARY) / 14))?;
    let pairs = [(F32Lt, F32Ge), (F32Gt, F32Le), (F64Lt, F64Ge), (F64Gt, F64Le)];
    let opposite = pairs.iter().find_map(|&(a, b)| if op == a { Some(b) } else if op == b { Some(a) } else { None })?;
    Some(BINARY + opposite as u16 * 14 + (code - BINARY) % 14)
}

/// The instruction that does what `code`, a fused branch or a jump, does and also what charges do that are where it leads: at its
/// target, and behind a branch that is not taken. `None` where there is none. The charges stay: they are for others who come there,
/// and for when there is not enough fuel.
pub(crate) fn charging(code: Opcode, behind: bool, target: bool) -> Option<Opcode> {
    match code {
        BRANCH..BRANCH_CHARGING if behind => Some(code - BRANCH + if target { BRANCH_CHARGING_BOTH } else { BRANCH_CHARGING }),
        code if code == single(Single::Jump) && target => Some(single(Single::JumpCharging)),
        _ => None,
    }
}

/// The opcode of `op` for this operand, accumulator destination.
pub(crate) fn unary(op: UnaryOp, a: Operand) -> Option<Opcode> {
    Some(UNARY + (op as u16 * 2 + shape1(&UNARY_SHAPES, a)?) * 2)
}

/// The opcode of a load from this address operand, accumulator destination.
pub(crate) fn load(kind: LoadKind, addr: Operand) -> Option<Opcode> {
    Some(LOAD + (kind as u16 * 3 + shape1(&UNARY_IMM_SHAPES, addr)?) * 2)
}

/// The opcode of a store of this value operand to this address operand.
pub(crate) fn store(kind: StoreKind, addr: Operand, value: Operand) -> Option<Opcode> {
    Some(STORE + kind as u16 * 8 + shape2(&STORE_SHAPES, addr, value)?)
}

/// The opcode of a load from this address operand of a 64-bit memory, accumulator destination; `None` for an immediate.
pub(crate) fn load64(kind: LoadKind, addr: Operand) -> Option<Opcode> {
    Some(LOAD64 + (kind as u16 * 2 + shape1(&UNARY_SHAPES, addr)?) * 2)
}

/// The opcode of a store of this value operand to this address operand of a 64-bit memory; `None` for an immediate address.
pub(crate) fn store64(kind: StoreKind, addr: Operand, value: Operand) -> Option<Opcode> {
    Some(STORE64 + kind as u16 * 5 + shape2(&STORE64_SHAPES, addr, value)?)
}

/// The opcode of a single-handler operation.
pub(crate) fn single(op: Single) -> Opcode {
    SINGLE + op as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_come_in_inverse_pairs() {
        let name = |i: u16| BINARY_NAMES[i as usize];
        macro_rules! names { ($($v:ident $k:ident ($l:ident, $r:ident) $kind:ident;)*) => { &[$(stringify!($v)),*] }; }
        const BINARY_NAMES: &[&str] = for_each_binary!(names);
        for (a, b) in [("Eq", "Ne"), ("LtS", "GeS"), ("GtS", "LeS"), ("LtU", "GeU"), ("GtU", "LeU")] {
            for ty in ["I32", "I64"] {
                let index = (0..BRANCH_OPS).find(|i| name(*i) == format!("{ty}{a}")).expect("listed");
                assert_eq!(name(index ^ 1), format!("{ty}{b}"));
            }
        }
    }

    #[test]
    fn opcodes_of_groups_do_not_overlap() {
        let imm = Operand::Imm(1);
        let slot = Operand::Slot(3);
        assert!(binary(BinaryOp::CanonF64Max, imm, Operand::Acc).unwrap() + 1 < BRANCH);
        assert_eq!(branch_of(binary(BinaryOp::I64LeU, slot, slot).unwrap(), false).unwrap(), BRANCH_CHARGING - 7);
        assert_eq!(charging(BRANCH_CHARGING - 1, true, true).unwrap(), UNARY - 1);
        assert_eq!(branch_of(binary(BinaryOp::I32Add, slot, slot).unwrap(), false), None);
        assert_eq!(binary(BinaryOp::I32Add, imm, imm), None);
        assert_eq!(vector::unary(vector::VectorUnary::ALL[0]), store(StoreKind::W64, imm, imm).unwrap() + 1);
        assert!(load64(LoadKind::U8, Operand::Acc).unwrap() > vector::frame_store(vector::FrameStore::B16, imm));
        assert_eq!(store64(StoreKind::W8, slot, slot).unwrap(), load64(LoadKind::I32To64, slot).unwrap() + 2);
        assert_eq!(single(Single::ALL[0]), store64(StoreKind::W64, Operand::Acc, imm).unwrap() + 1);
        assert_eq!((load64(LoadKind::U8, imm), store64(StoreKind::W8, imm, slot)), (None, None));
        assert!(single(Single::Translate) == OPCODES - 1);
    }
}
