//! Every mutant is real: for each one there is a small program that gives the right result on the engine as it should be, and
//! something else on the mutant.
#![cfg(feature = "mutants")]

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;

use worksp_engine::mutants::{choose, list};
use worksp_engine::probe::{LoopRef, NoProbe, Probe, Rmw, SiteId, TracePlan};
use worksp_engine::{Config, Engine, Extern, FuncId, Module, Step, Store, Suspension, Val};

/// How a program runs.
#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    Plain,
    /// NaNs are made canonical.
    Canonical,
    /// Work is counted, and part of the outcome.
    Work,
    /// Whenever fuel is used up, which is soon, the store is saved, and another one goes on.
    Pieces,
    /// Events are the outcome.
    Traced,
}
use How::{Canonical, Pieces, Plain, Traced, Work};

/// A process has one chosen mutant.
static ALONE: Mutex<()> = Mutex::new(());

const OUT_OF_BOUNDS: &str = "out of bounds memory access";

/// Mutant, program, how it runs, what `f`, and `g` if there is one, give. A program is the fields of a module, or what [`module`] makes
/// the module of.
#[rustfmt::skip]
const CASES: &[(&str, &str, How, &str)] = &[
    ("SubSwapImmediate", "i32: (local.set $a (i32.const 2)) (i32.sub (i32.const 7) (local.get $a))", Plain, "5"),
    ("SubSwapAccumulator", "i64: (local.set $x (i64.const 2)) (i64.sub (i64.mul (local.get $x) (i64.const 5)) (local.get $x))", Plain, "8"),
    ("DivSwapSlots", "i32: (local.set $a (i32.const 12)) (local.set $b (i32.const 4)) (i32.div_u (local.get $a) (local.get $b))", Plain, "3"),
    ("ShlSwapAccumulator", "i64: (local.set $x (i64.const 1)) (i64.shl (local.get $x) (i64.add (local.get $y) (i64.const 3)))", Plain, "8"),
    ("LtSwapImmediate", "i32: (local.set $a (i32.const 5)) (i32.lt_u (i32.const 3) (local.get $a))", Plain, "1"),
    ("RotlSwapImmediate", "i64: (local.set $x (i64.const 4)) (i64.rotl (i64.const 1) (local.get $x))", Plain, "16"),
    ("CopysignSwapImmediate", "f32: (local.set $p (f32.const 1.5)) (f32.copysign (local.get $p) (f32.const -2))", Plain, "0xbfc00000"),
    ("FloatSubSwapImmediate", "f64: (local.set $d (f64.const 3)) (f64.sub (f64.mul (local.get $d) (local.get $d)) (f64.const 1))", Plain, "0x4020000000000000"),
    ("FloatDivSwapAccumulator", "f32: (local.set $p (f32.const 8)) (f32.div (local.get $p) (f32.add (local.get $p) (local.get $p)))", Plain, "0x3f000000"),
    ("AddImmediate16", "i32: (i32.add (local.get $a) (i32.const 65536))", Plain, "65536"),
    ("ShrImmediateLogical", "i64: (local.set $x (i64.const -1)) (i64.shr_s (local.get $x) (i64.const 40))", Plain, "-1"),
    ("RotrAccumulatorLeft", "i32: (local.set $a (i32.const 2)) (i32.rotr (local.get $a) (i32.add (local.get $b) (i32.const 1)))", Plain, "1"),
    ("LeImmediateStrict", "i32: (local.set $a (i32.const 5)) (i32.le_u (local.get $a) (i32.const 5))", Plain, "1"),
    ("GeImmediateUnsigned", "i32: (i64.ge_s (i64.sub (local.get $x) (i64.const 1)) (i64.const 0))", Plain, "0"),
    ("RemImmediateUnsigned", "i32: (local.set $a (i32.const -7)) (i32.rem_s (local.get $a) (i32.const 4))", Plain, "-3"),
    ("DivImmediateShift", "i32: (local.set $a (i32.const -7)) (i32.div_s (local.get $a) (i32.const 4))", Plain, "-1"),
    ("RemImmediateMask", "i64: (local.set $x (i64.const -7)) (i64.rem_s (local.get $x) (i64.const 4))", Plain, "-3"),
    ("EqImmediateLow", "i32: (local.set $x (i64.const 0x100000005)) (i64.eq (local.get $x) (i64.const 5))", Plain, "0"),
    ("AndImmediateLow", "i64: (local.set $x (i64.const 0x100000005)) (i64.and (local.get $x) (i64.const -2))", Plain, "4294967300"),

    ("ImmediateUnsigned", "i64: (i64.add (local.get $x) (i64.const 0x80000000))", Plain, "2147483648"),
    ("ImmediateRounded", "f64: (f64.add (local.get $d) (f64.const 0.1))", Plain, "0x3fb999999999999a"),
    ("ConstantHighLost", "i64: (local.set $x (i64.const 0x100000000)) (local.get $x)", Plain, "4294967296"),
    ("ConstantSignLost", "i32: (i32.reinterpret_f32 (f32.const -0))", Plain, "-2147483648"),
    ("ConstantNanPayload", "i64: (i64.reinterpret_f64 (f64.const nan:0x1))", Plain, "9218868437227405313"),
    ("GlobalConstantTruncated", r#"(global $g (mut i64) (i64.const 0))
        (func (export "f") (result i64) (global.set $g (i64.const 0x100000001)) (global.get $g))"#, Plain, "4294967297"),
    ("ReturnConstantTruncated", "i64: (i64.const 0x100000001)", Plain, "4294967297"),
    ("StoreConstantTruncated", "i64: (i64.store (i32.const 0) (i64.const 0x100000001)) (i64.load (i32.const 0))", Plain, "4294967297"),
    ("ConstantSubSwapped", r#"(global i32 (i32.sub (i32.const 1) (i32.const 3))) (func (export "f") (result i32) (global.get 0))"#, Plain, "-2"),

    ("PreserveOne", "i32: (local.get $a) (local.get $a) (local.set $a (i32.const 5)) (i32.add)", Plain, "0"),
    ("PreserveLostTee", "i32: (local.get $a) (local.tee $a (i32.add (local.get $b) (i32.const 4))) (i32.sub)", Plain, "-4"),
    ("PreserveLostConstant", "i32: (local.get $a) (local.set $a (i32.const 5))", Plain, "0"),
    ("PreserveLostWide", "v128: (local.get $v) (local.set $v (v128.const i64x2 1 2))", Plain, "0x0"),
    ("RetargetEarlier", "i32: (local.get $a) (local.set $a (i32.add (local.get $a) (i32.const 1)))", Plain, "0"),
    ("RetargetVector", "v128: (local.get $v) (local.set $v (v128.not (local.get $v)))", Plain, "0x0"),
    ("FlushSkipsLocal", "i32: (local.get $a) (block (local.set $a (i32.const 5)))", Plain, "0"),
    ("MirrorStaleConstant", "i32: (local.set $a (i32.add (local.get $b) (i32.const 1))) (local.set $a (i32.const 5)) (i32.add (local.get $a) (local.get $b))", Plain, "5"),
    ("MirrorStaleCopy", "i32: (local.set $a (i32.add (local.get $b) (i32.const 1))) (local.set $a (local.get $b)) (i32.add (local.get $a) (local.get $b))", Plain, "0"),
    ("LocalLastDirty", r#"(func $a (local i32) (local.set 0 (i32.const 7))) (func $b (result i32) (local i32) (local.get 0))
        (func (export "f") (result i32) (call $a) (call $b))"#, Plain, "0"),
    ("LocalFar", r#"(func (export "f") (result i32) (local i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32
        i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32
        i32 i32 i32 i32 i32 i32 i32) (local.set 63 (i32.const 1)) (local.get 64))"#, Plain, "0"),
    ("VectorCopyHalf", "v128: (local.set $w (v128.const i64x2 1 2)) (local.set $v (local.get $w)) (local.get $v)", Plain, "0x20000000000000001"),

    ("SpillLostDeep", "i32: (local.get $a) (local.get $a) (local.get $a) (local.get $a) (i32.add (local.get $a) (i32.const 3)) (i32.mul (local.get $a) (i32.const 3))
        (i32.add) (i32.add) (i32.add) (i32.add) (i32.add)", Plain, "3"),
    ("AccLostAtBlock", "i32: (i32.add (i32.add (local.get $a) (i32.const 3)) (block (result i32) (i32.const 1)))", Plain, "4"),
    ("AccLostAtCall", r#"(func $one (result i32) (i32.const 1))
        (func (export "f") (result i32) (local i32) (i32.add (i32.add (local.get 0) (i32.const 3)) (call $one)))"#, Plain, "4"),
    ("ArgumentNinth", r#"(func $last (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (local.get 8))
        (func (export "f") (result i32) (call $last (i32.const 1) (i32.const 2) (i32.const 3) (i32.const 4) (i32.const 5) (i32.const 6)
            (i32.const 7) (i32.const 8) (i32.const 9)))"#, Plain, "9"),
    ("PauseLosesAcc", "i32: (block (result i32) (i32.add (local.get $a) (i32.const 1)) (br_if 0 (local.get $b)) (i32.add (i32.const 2)))", Pieces, "3"),

    ("ConditionOne", "i32: (local.set $a (i32.const 2)) (block (br_if 0 (local.get $a)) (return (i32.const 1))) (i32.const 0)", Plain, "0"),
    ("BranchInverseStrict", "i32: (if (result i32) (i32.lt_u (local.get $a) (local.get $b)) (then (i32.const 1)) (else (i32.const 0)))", Plain, "0"),
    ("BranchInvertsFloat", "i32: (local.set $d (f64.const nan)) (if (result i32) (f64.lt (local.get $d) (f64.const 1)) (then (i32.const 1)) (else (i32.const 0)))", Plain, "0"),
    ("EqzInvertsFloat", "i32: (i32.eqz (f32.ge (local.get $p) (f32.const nan)))", Plain, "1"),
    ("BranchMisplaced", r#"(func $id (param i32) (result i32) (local.get 0))
        (func (export "f") (result i32) (block (result i32) (call $id (i32.const 1)) (call $id (i32.const 2)) (br_if 0 (i32.const 1)) (drop)))"#, Plain, "2"),
    ("BranchCopiesDescend", r#"(func $id (param i32) (result i32) (local.get 0))
        (func (export "f") (result i32 i32) (block (result i32 i32) (call $id (i32.const 9)) (call $id (i32.const 1)) (call $id (i32.const 2)) (br 0)))"#, Plain, "1 2"),
    ("TableDefaultLast", "i32: (block $d (block $x (block $y (br_table $x $y $d (i32.const 9))) (return (i32.const 1))) (return (i32.const 2))) (i32.const 3)", Plain, "3"),
    ("TableSharedMoves", "i32: (block $o (result i32) (i32.const 10) (block $i (result i32) (br_table $i $o (i32.const 3) (i32.const 1))) (i32.add))", Plain, "3"),
    ("TableIndex16", "i32: (local.set $a (i32.const 65536)) (block $d (block $x (br_table $x $d (local.get $a))) (return (i32.const 1))) (i32.const 2)", Plain, "2"),
    ("LoopConstantParameter", "i32: (local.set $a (i32.const 3)) (i32.const 0) (loop (param i32) (result i32) (i32.add (i32.const 2))
        (br_if 0 (local.tee $a (i32.sub (local.get $a) (i32.const 1)))))", Plain, "6"),
    ("ResultUnsettled", "i32 i32: (local.set $a (i32.const 1)) (block (result i32 i32) (local.get $a) (local.get $b))", Plain, "1 0"),
    ("ReturnInPlace", r#"(func $swap (param i32 i32) (result i32 i32) (local.get 1) (local.get 0))
        (func (export "f") (result i32 i32) (call $swap (i32.const 1) (i32.const 2)))"#, Plain, "2 1"),
    ("SelectSwapSlot", "i32: (select (i32.const 5) (i32.const 6) (local.get $a))", Plain, "6"),
    ("SelectSwapWide", "v128: (select (local.get $v) (v128.const i64x2 1 2) (local.get $a))", Plain, "0x20000000000000001"),
    ("SelectLowBit", "i32: (select (i32.const 5) (i32.const 6) (i32.add (local.get $a) (i32.const 2)))", Plain, "5"),
    ("OnNullInverted", "i32: (block (result i32) (i32.const 4) (br_on_null 0 (ref.null func)) (drop) (drop) (i32.const 5))", Plain, "4"),
    ("StartIgnored", r#"(global $g (mut i32) (i32.const 0)) (func $s (global.set $g (i32.const 1))) (start $s)
        (func (export "f") (result i32) (global.get $g))"#, Plain, "1"),

    ("TailCopiesDescend", r#"(func $second (param i32 i32) (result i32) (local.get 0))
        (func (export "f") (result i32) (local i32) (return_call $second (i32.const 1) (i32.const 2)))"#, Plain, "1"),
    ("TailWideHalf", r#"(type $t (func (param v128) (result v128))) (table funcref (elem $id)) (func $id (type $t) (local.get 0))
        (func (export "f") (result v128) (local i64) (return_call_indirect (type $t) (v128.const i64x2 1 2) (i32.const 0)))"#, Plain, "0x20000000000000001"),
    ("TailIndexLate", r#"(type $t (func (param i32) (result i32))) (table funcref (elem $i $j))
        (func $i (type $t) (i32.const 10)) (func $j (type $t) (i32.const 20)) (func $h (type $t) (return_call_indirect (type $t) (i32.const 0) (local.get 0)))
        (func (export "f") (result i32) (call $h (i32.const 1)))"#, Plain, "20"),
    ("CallFirstTable", r#"(table funcref (elem $i)) (table $t funcref (elem $j)) (func $i (result i32) (i32.const 1)) (func $j (result i32) (i32.const 2))
        (func (export "f") (result i32) (call_indirect $t (result i32) (i32.const 0)))"#, Plain, "2"),
    ("UndefinedKind", r#"(table 1 funcref) (func (export "f") (call_indirect (i32.const 1)))"#, Plain, "undefined element"),
    ("NullCallsFirst", r#"(table 1 funcref) (func) (func (export "f") (call_indirect (i32.const 0)))"#, Plain, "uninitialized element"),
    ("SignatureParametersOnly", r#"(table funcref (elem $i)) (func $i (result i64) (i64.const 3))
        (func (export "f") (result i32) (call_indirect (result i32) (i32.const 0)))"#, Plain, "indirect call type mismatch"),
    ("TailRefShort", r#"(type $t (func (param i32 i32) (result i32))) (elem declare func $second) (func $second (type $t) (local.get 1))
        (func (export "f") (result i32) (local i32 i32) (return_call_ref $t (i32.const 1) (i32.const 2) (ref.func $second)))"#, Plain, "2"),

    ("RegionStartMissed", r#"(tag $e) (func (export "f") (block (try_table (catch $e 0) (throw $e))))"#, Plain, ""),
    ("ReturnPosition", r#"(tag $e) (func $t (throw $e)) (func (export "f") (block (try_table (catch $e 0) (call $t))))"#, Plain, ""),
    ("ClausesLastFirst", r#"(tag $e) (func (export "f") (result i32)
        (block $a (block $b (try_table (catch $e $a) (catch_all $b) (throw $e))) (return (i32.const 2))) (i32.const 1))"#, Plain, "1"),
    ("OuterRegionLost", r#"(tag $e) (func (export "f") (block (try_table (catch $e 0) (try_table (throw $e)))))"#, Plain, ""),
    ("TagByType", r#"(tag $d) (tag $e) (func (export "f") (result i32)
        (block $a (block $b (try_table (catch $d $a) (catch $e $b) (throw $e))) (return (i32.const 2))) (i32.const 1))"#, Plain, "2"),
    ("PayloadReversed", r#"(tag $e (param i32 i32)) (func (export "f") (result i32 i32)
        (block (result i32 i32) (try_table (catch $e 0) (throw $e (i32.const 1) (i32.const 2))) (unreachable)))"#, Plain, "1 2"),
    ("ReferenceLost", r#"(tag $e (param i32)) (func (export "f")
        (throw_ref (block (result i32 exnref) (try_table (catch_ref $e 0) (throw $e (i32.const 1))) (unreachable))))"#, Plain, "uncaught exception"),
    ("DelegateNear", r#"(tag $e) (func (export "f") (result i32) try (result i32) try (result i32)
        try throw $e delegate 1 i32.const 0 catch_all i32.const 1 end catch_all i32.const 2 end)"#, Plain, "2"),
    ("RethrowInnermost", r#"(tag $d) (tag $e) (func (export "f") (result i32) try (result i32) try (result i32) throw $d
        catch $d try (result i32) throw $e catch $e rethrow 1 end end catch $d i32.const 1 catch $e i32.const 2 end)"#, Plain, "1"),

    ("BoundsByteTight", "i32: (i32.load8_u (i32.const 65535))", Plain, "0"),
    ("BoundsShortTight", ": (i32.store16 (i32.const 65534) (i32.const 1))", Plain, ""),
    ("BoundsWordLax", "i32: (i32.load (i32.const 65533))", Plain, OUT_OF_BOUNDS),
    ("BoundsLongFirst", ": (i64.store (i32.const 65535) (i64.const 1))", Plain, OUT_OF_BOUNDS),
    ("BoundsVectorHalf", "v128: (v128.load (i32.const 65528))", Plain, OUT_OF_BOUNDS),
    ("BulkEndTight", ": (memory.fill (i32.const 65534) (i32.const 0) (i32.const 2))", Plain, ""),
    ("OffsetWraps", "i32: (i32.load offset=8 (i32.const -8))", Plain, OUT_OF_BOUNDS),
    ("OffsetWraps64", r#"(memory i64 1) (func (export "f") (result i32) (i32.load offset=8 (i64.const -8)))"#, Plain, OUT_OF_BOUNDS),
    ("OffsetHighLost", r#"(memory i64 1) (func (export "f") (result i32) (i32.load offset=0x100000000 (i64.const 0)))"#, Plain, OUT_OF_BOUNDS),
    ("AddressTruncated", r#"(memory i64 1) (func (export "f") (result i32) (i32.load (i64.const 0x100000000)))"#, Plain, OUT_OF_BOUNDS),
    ("LoadOffset16", "i64: (i64.load offset=65536 (i32.const 0))", Plain, OUT_OF_BOUNDS),
    ("StoreOffset8", "i32: (i32.store8 offset=256 (i32.const 0) (i32.const 1)) (i32.load8_u (i32.const 0))", Plain, "0"),
    ("CopyZeroUnchecked", ": (memory.copy (i32.const 65537) (i32.const 0) (i32.const 0))", Plain, OUT_OF_BOUNDS),
    ("FillZeroUnchecked", ": (memory.fill (i32.const 65537) (i32.const 0) (i32.const 0))", Plain, OUT_OF_BOUNDS),
    ("InitZeroUnchecked", r#"(memory 1) (data $d "a") (func (export "f") (memory.init $d (i32.const 65537) (i32.const 0) (i32.const 0)))"#, Plain, OUT_OF_BOUNDS),
    ("FillPartial", r#"(memory 1) (func (export "f") (memory.fill (i32.const 65535) (i32.const 7) (i32.const 2)))
        (func (export "g") (result i32) (i32.load8_u (i32.const 65535)))"#, Plain, "out of bounds memory access, 0"),

    ("GrowStaleLength", "i32: (drop (memory.grow (i32.const 1))) (i32.load (i32.const 65536))", Plain, "0"),
    ("GrowReturnsNew", "i32: (memory.grow (i32.const 1))", Plain, "1"),
    ("GrowMaxTight", r#"(memory 1 2) (func (export "f") (result i32) (memory.grow (i32.const 1)))"#, Plain, "1"),
    ("GrowFailure32", r#"(memory i64 1 1) (func (export "f") (result i64) (memory.grow (i64.const 1)))"#, Plain, "-1"),
    ("LoadFirstMemory", r#"(memory 1) (memory $m 1) (data (memory $m) (i32.const 0) "a") (func (export "f") (result i32) (i32.load8_u $m (i32.const 0)))"#, Plain, "97"),
    ("StoreFirstMemory", r#"(memory 1) (memory $m 1) (func (export "f") (result i32) (i32.store8 $m (i32.const 0) (i32.const 7)) (i32.load8_u (i32.const 0)))"#, Plain, "0"),
    ("SizeFirstMemory", r#"(memory 1) (memory $m 2) (func (export "f") (result i32) (memory.size $m))"#, Plain, "2"),
    ("CopyMemoriesSwapped", r#"(memory $m 1) (memory $n 1) (data (memory $n) (i32.const 0) "a")
        (func (export "f") (result i32) (memory.copy $m $n (i32.const 0) (i32.const 0) (i32.const 1)) (i32.load8_u (i32.const 0)))"#, Plain, "97"),
    ("CopyForward", r#"(memory 1) (data (i32.const 0) "abc")
        (func (export "f") (result i32) (memory.copy (i32.const 1) (i32.const 0) (i32.const 2)) (i32.load8_u (i32.const 2)))"#, Plain, "98"),
    ("CopyForwardNear", "i32: (i32.store8 (i32.const 0) (i32.const 1)) (memory.copy (i32.const 7) (i32.const 0) (i32.const 17)) (i32.load8_u (i32.const 14))", Plain, "0"),
    ("DataDropIgnored", r#"(memory 1) (data $d "a") (func (export "f") (data.drop $d) (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1)))"#, Plain, OUT_OF_BOUNDS),
    ("InitFromStart", r#"(memory 1) (data $d "ab") (func (export "f") (result i32)
        (memory.init $d (i32.const 0) (i32.const 1) (i32.const 1)) (i32.load8_u (i32.const 0)))"#, Plain, "98"),
    ("ActiveSegmentKept", r#"(memory 1) (data $d (i32.const 0) "a") (func (export "f") (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1)))"#, Plain, OUT_OF_BOUNDS),
    ("LoadOffsetUnsigned", "i64: (i32.store8 (i32.const 1) (i32.const 255)) (i64.load8_s offset=1 (i32.const 0))", Plain, "-1"),
    ("StoreWide", "i32: (i32.store16 (i32.const 0) (i32.const -1)) (i32.load16_u offset=2 (i32.const 0))", Plain, "0"),

    ("LoadDirty", "i64: (i32.store16 (i32.const 0) (i32.const -1)) (i64.extend_i32_u (i32.load16_s (i32.const 0)))", Plain, "4294967295"),
    ("WrapDirty", "i64: (local.set $x (i64.const -1)) (i64.extend_i32_u (i32.wrap_i64 (local.get $x)))", Plain, "4294967295"),
    ("ExtendDirty", "i64: (i64.extend_i32_u (i32.extend8_s (i32.const 255)))", Plain, "4294967295"),

    ("ExtendShort", "i32: (i32.extend16_s (i32.const 384))", Plain, "384"),
    ("ExtendZero", "i64: (i64.extend32_s (i64.const -1))", Plain, "-1"),
    ("ShlCountSaturates", "i32: (i32.shl (i32.const 1) (i32.const 33))", Plain, "2"),
    ("ShrCount31", "i64: (i64.shr_u (i64.const -1) (i64.const 40))", Plain, "16777215"),
    ("RotrCount31", "i64: (i64.rotr (i64.const 1) (i64.const 40))", Plain, "16777216"),
    ("DivOverflow", "i32: (i32.div_s (i32.const 0x80000000) (i32.const -1))", Plain, "integer overflow"),
    ("RemOverflow", "i64: (i64.rem_s (i64.const 0x8000000000000000) (i64.const -1))", Plain, "0"),
    ("DivLargeDivisor", "i32: (i32.div_u (i32.const -1) (i32.const 0x80000000))", Plain, "1"),
    ("RemByZero", "i64: (i64.rem_u (i64.const 1) (i64.const 0))", Plain, "integer divide by zero"),
    ("ClzZero", "i32: (i32.clz (i32.const 0))", Plain, "32"),
    ("CtzZero", "i64: (i64.ctz (i64.const 0))", Plain, "64"),
    ("PopcntLow", "i64: (i64.popcnt (i64.const -1))", Plain, "64"),
    ("GtHalves", "i32: (i64.gt_u (i64.const 0x80000000) (i64.const 1))", Plain, "1"),
    ("AddCarry", "i64 i64: (i64.add128 (i64.const 1) (i64.const 0) (i64.const -1) (i64.const 0))", Plain, "0 1"),
    ("SubBorrow", "i64 i64: (i64.sub128 (i64.const 0) (i64.const 0) (i64.const 1) (i64.const 0))", Plain, "-1 -1"),
    ("MulWideSign", "i64 i64: (i64.mul_wide_s (i64.const -1) (i64.const 1))", Plain, "-1 -1"),

    ("MinZeros", "f32: (f32.min (f32.const -0) (f32.const 0))", Plain, "0x80000000"),
    ("MaxNan", "i32: (f64.eq (f64.max (f64.const nan) (f64.const 1)) (f64.const 1))", Plain, "0"),
    ("NearestAway", "f64: (f64.nearest (f64.const 2.5))", Plain, "0x4000000000000000"),
    ("NearestSign", "f32: (f32.nearest (f32.const -0.3))", Plain, "0x80000000"),
    ("TruncLarge", "f64: (f64.trunc (f64.const 1e300))", Plain, "0x7e37e43c8800759c"),
    ("CeilSign", "f32: (f32.ceil (f32.const -0.5))", Plain, "0x80000000"),
    ("SqrtSign", "f64: (f64.sqrt (f64.const -0))", Plain, "0x8000000000000000"),
    ("CopysignNan", "f64: (f64.copysign (f64.const 1) (f64.const -nan))", Plain, "0xbff0000000000000"),
    ("EqBits", "i32: (f32.eq (f32.const 0) (f32.const -0))", Plain, "1"),
    ("NeNan", "i32: (f64.ne (f64.const nan) (f64.const 1))", Plain, "1"),
    ("LeNan", "i32: (f64.le (f64.const nan) (f64.const 1))", Plain, "0"),
    ("GeNan", "i32: (f32.ge (f32.const 1) (f32.const nan))", Plain, "0"),
    ("NanSign", "f64: (f64.div (f64.const 0) (f64.const 0))", Canonical, "0x7ff8000000000000"),

    ("ConvertTwice", "f32: (f32.convert_i64_s (i64.const 9007199791611905))", Plain, "0x5a000001"),
    ("ConvertSigned", "f64: (f64.convert_i64_u (i64.const -1))", Plain, "0x43f0000000000000"),
    ("DemoteDenormal", "f32: (f32.demote_f64 (f64.const 1e-40))", Plain, "0x000116c2"),
    ("TruncEdge", "i32: (i32.trunc_f64_s (f64.const -2147483648.9))", Plain, "-2147483648"),
    ("TruncNegative", "i32: (i32.trunc_f32_u (f32.const -0.5))", Plain, "0"),
    ("TruncNanKind", "i64: (i64.trunc_f32_s (f32.const nan))", Plain, "invalid conversion to integer"),
    ("SaturateNan", "i32: (i32.trunc_sat_f64_s (f64.const nan))", Plain, "0"),
    ("SaturateSigned", "i64: (i64.trunc_sat_f64_u (f64.const 1e19))", Plain, "-8446744073709551616"),

    ("SwizzleWraps", "i32: (i8x16.extract_lane_u 0 (i8x16.swizzle (i8x16.splat (i32.const 5)) (i8x16.splat (i32.const 16))))", Plain, "0"),
    ("ShuffleLane16", "i32: (i8x16.extract_lane_u 0 (i8x16.shuffle 16 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 (local.get $v) (i8x16.splat (i32.const 5))))", Plain, "5"),
    ("NarrowUnsigned", "i32: (i8x16.extract_lane_u 0 (i8x16.narrow_i16x8_u (i16x8.splat (i32.const -1)) (local.get $v)))", Plain, "0"),
    ("Q15Wraps", "i32: (local.set $v (i16x8.splat (i32.const -32768))) (i16x8.extract_lane_s 0 (i16x8.q15mulr_sat_s (local.get $v) (local.get $v)))", Plain, "32767"),
    ("DotSaturates", "i32: (local.set $v (i16x8.splat (i32.const -32768))) (i32x4.extract_lane 0 (i32x4.dot_i16x8_s (local.get $v) (local.get $v)))", Plain, "-2147483648"),
    ("PminSwapped", "f32: (f32x4.extract_lane 0 (f32x4.pmin (local.get $v) (f32x4.splat (f32.const -0))))", Plain, "0x00000000"),
    ("PmaxSwapped", "f64: (f64x2.extract_lane 0 (f64x2.pmax (local.get $v) (f64x2.splat (f64.const -0))))", Plain, "0x0000000000000000"),
    ("LanesMinZeros", "f64: (f64x2.extract_lane 0 (f64x2.min (local.get $v) (f64x2.splat (f64.const -0))))", Plain, "0x8000000000000000"),
    ("AvgrTruncates", "i32: (i8x16.extract_lane_u 0 (i8x16.avgr_u (i8x16.splat (i32.const 1)) (i8x16.splat (i32.const 2))))", Plain, "2"),
    ("LanesShlSaturates", "i32: (i8x16.extract_lane_u 0 (i8x16.shl (i8x16.splat (i32.const 1)) (i32.const 9)))", Plain, "2"),
    ("LanesShrLogical", "i64: (i64x2.extract_lane 0 (i64x2.shr_s (i64x2.splat (i64.const -1)) (i32.const 1)))", Plain, "-1"),
    ("ExtaddSigned", "i32: (i16x8.extract_lane_s 0 (i16x8.extadd_pairwise_i8x16_u (i8x16.splat (i32.const 255))))", Plain, "510"),
    ("BitmaskLast", "i32: (i8x16.bitmask (i8x16.splat (i32.const -1)))", Plain, "65535"),
    ("AllTrueLow", "i32: (i64x2.all_true (i64x2.splat (i64.const 0x100000000)))", Plain, "1"),
    ("AddSaturatedWraps", "i32: (i8x16.extract_lane_u 0 (i8x16.add_sat_u (i8x16.splat (i32.const 255)) (i8x16.splat (i32.const 1))))", Plain, "255"),
    ("AndnotSwapped", "i32: (i32x4.extract_lane 0 (v128.andnot (i32x4.splat (i32.const 1)) (local.get $v)))", Plain, "1"),
    ("TruncUpper", "i32: (i32x4.extract_lane 2 (i32x4.trunc_sat_f64x2_u_zero (f64x2.splat (f64.const 1))))", Plain, "0"),
    ("ExtmulLow", "i32: (local.set $v (v128.const i16x8 2 2 2 2 3 3 3 3)) (i32x4.extract_lane 0 (i32x4.extmul_high_i16x8_u (local.get $v) (local.get $v)))", Plain, "9"),
    ("LanesMinUnsigned", "i32: (i16x8.extract_lane_s 0 (i16x8.min_s (i16x8.splat (i32.const -1)) (i16x8.splat (i32.const 1))))", Plain, "-1"),
    ("LanesConvertSigned", "f32: (f32x4.extract_lane 0 (f32x4.convert_i32x4_u (i32x4.splat (i32.const -1))))", Plain, "0x4f800000"),
    ("LanesMulLow", "i64: (i64x2.extract_lane 0 (i64x2.mul (i64x2.splat (i64.const 0x100000000)) (i64x2.splat (i64.const 3))))", Plain, "12884901888"),
    ("LanesNeNan", "i32: (i32x4.extract_lane 0 (f32x4.ne (f32x4.splat (f32.const nan)) (local.get $v)))", Plain, "-1"),
    ("ExtractUnsigned", "i32: (i8x16.extract_lane_s 8 (i8x16.splat (i32.const -1)))", Plain, "-1"),
    ("ReplaceLastLane", "i32: (i16x8.extract_lane_u 7 (i16x8.replace_lane 7 (local.get $v) (i32.const 5)))", Plain, "5"),
    ("LoadWidensUnsigned", "i64: (i32.store (i32.const 0) (i32.const -1)) (i64x2.extract_lane 0 (v128.load32x2_s (i32.const 0)))", Plain, "-1"),
    ("LoadLaneLow", "i32: (i32.store8 (i32.const 0) (i32.const 5)) (i8x16.extract_lane_u 9 (v128.load8_lane 9 (i32.const 0) (local.get $v)))", Plain, "5"),
    ("StoreLaneFirst", "i64: (v128.store64_lane 1 (i32.const 0) (v128.const i64x2 1 2)) (i64.load (i32.const 0))", Plain, "2"),
    ("GlobalSetHalf", r#"(global $g (mut v128) (v128.const i64x2 0 0))
        (func (export "f") (result v128) (global.set $g (v128.const i64x2 1 2)) (global.get $g))"#, Plain, "0x20000000000000001"),

    ("TableGetKind", r#"(table 1 funcref) (func (export "f") (drop (table.get (i32.const 1))))"#, Plain, "out of bounds table access"),
    ("TableGrowNull", r#"(table 0 funcref) (elem declare func $g) (func $g)
        (func (export "f") (result i32) (drop (table.grow (ref.func $g) (i32.const 1))) (ref.is_null (table.get (i32.const 0))))"#, Plain, "0"),
    ("TableFillShort", r#"(table 2 funcref) (elem declare func $g) (func $g)
        (func (export "f") (result i32) (table.fill (i32.const 0) (ref.func $g) (i32.const 2)) (ref.is_null (table.get (i32.const 1))))"#, Plain, "0"),
    ("TableCopyForward", r#"(table funcref (elem $i $j $i)) (func $i (result i32) (i32.const 1)) (func $j (result i32) (i32.const 2))
        (func (export "f") (result i32) (table.copy (i32.const 1) (i32.const 0) (i32.const 2)) (call_indirect (result i32) (i32.const 2)))"#, Plain, "2"),
    ("TableCopyOne", r#"(table 1 funcref) (table $t funcref (elem $g)) (func $g)
        (func (export "f") (result i32) (table.copy 0 $t (i32.const 0) (i32.const 0) (i32.const 1)) (ref.is_null (table.get (i32.const 0))))"#, Plain, "0"),
    ("ElemDropIgnored", r#"(table 1 funcref) (elem $e func $g) (func $g)
        (func (export "f") (elem.drop $e) (table.init $e (i32.const 0) (i32.const 0) (i32.const 1)))"#, Plain, "out of bounds table access"),
    ("TableInitFromStart", r#"(table 1 funcref) (elem $e func $i $j) (func $i (result i32) (i32.const 1)) (func $j (result i32) (i32.const 2))
        (func (export "f") (result i32) (table.init $e (i32.const 0) (i32.const 1) (i32.const 1)) (call_indirect (result i32) (i32.const 0)))"#, Plain, "2"),
    ("AsNonNullUnchecked", ": (drop (ref.as_non_null (ref.null func)))", Plain, "null reference"),
    ("NullFirst", r#"(elem declare func $g) (func $g) (func (export "f") (result i32) (ref.is_null (ref.func $g)))"#, Plain, "0"),

    ("AlignmentHalf", "i64: (i64.atomic.load (i32.const 4))", Plain, "unaligned atomic"),
    ("AlignmentOfAddress", "i32: (i32.atomic.load offset=2 (i32.const 0))", Plain, "unaligned atomic"),
    ("RmwReturnsNew", "i32: (i32.atomic.rmw16.add_u (i32.const 0) (i32.const 1))", Plain, "0"),
    ("RmwSubSwapped", "i32: (drop (i32.atomic.rmw.sub (i32.const 0) (i32.const 1))) (i32.load (i32.const 0))", Plain, "-1"),
    ("CmpxchgWide", "i32: (i32.store8 (i32.const 0) (i32.const 1))
        (drop (i32.atomic.rmw8.cmpxchg_u (i32.const 0) (i32.const 257) (i32.const 9))) (i32.load8_u (i32.const 0))", Plain, "9"),
    ("WaitNotEqual", r#"(memory 1 1 shared) (func (export "f") (result i32) (memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const 0)))"#, Plain, "2"),
    ("NotifyUnchecked", "i32: (memory.atomic.notify (i32.const 65536) (i32.const 0))", Plain, OUT_OF_BOUNDS),

    ("FuelBranchTogether", ": (block (br_if 0 (i32.const 1)) (drop (i32.const 1)))", Work, " after 2"),
    ("FuelBulkDown", ": (memory.fill (i32.const 0) (i32.const 0) (i32.const 1))", Work, " after 5"),
    ("FuelTrapKept", ": (drop (i32.load (i32.const 65536))) (drop (i32.const 1))", Work, "out of bounds memory access after 2"),
    ("SavedGlobalHalf", r#"(global v128 (v128.const i64x2 1 2)) (func (export "f") (result v128) (global.get 0))"#, Pieces, "0x20000000000000001"),

    ("EventLoopExitLost", ": (block (loop (br 1)))", Traced, "iteration exit"),
    ("EventUnwindLost", r#"(tag $e) (func $t (throw $e)) (func (export "f") (block (try_table (catch $e 0) (call $t))))"#, Traced, "unwind caught"),
    ("EventOfNothing", ": (memory.fill (i32.const 0) (i32.const 0) (i32.const 0))", Traced, ""),
    ("EventStoreLost", r#"(memory 1) (memory $m 1) (func (export "f") (i32.store $m (i32.const 4) (i32.const 1)))"#, Traced, "store 1:4"),
];

/// The module of a program: its fields; or types of results, a colon, and the body of `f`, which has a memory and the
/// locals `$a $b` (i32), `$x $y` (i64), `$p` (f32), `$d` (f64), `$v $w` (v128).
fn module(program: &str) -> String {
    if program.starts_with('(') {
        return format!("(module {program})");
    }
    let (results, body) = program.split_once(':').expect("types of results come first");
    format!(
        r#"(module (memory 1) (func (export "f") (result {results})
            (local $a i32) (local $b i32) (local $x i64) (local $y i64) (local $p f32) (local $d f64) (local $v v128) (local $w v128) {body}))"#
    )
}

/// Writes events down.
#[derive(Default)]
struct Log(Vec<String>);

impl Probe for Log {
    fn store(&mut self, _: SiteId, mem: u32, addr: u64, _: u32, _: Rmw) {
        self.0.push(format!("store {mem}:{addr}"));
    }
    fn bulk_write(&mut self, _: SiteId, _: u32, range: Range<u64>) {
        self.0.push(format!("write {range:?}"));
    }
    fn loop_iter(&mut self, _: LoopRef, _: u64) {
        self.0.push("iteration".into());
    }
    fn loop_exit(&mut self, _: LoopRef, _: u64) {
        self.0.push("exit".into());
    }
    fn unwind(&mut self, _: SiteId, _: u64) {
        self.0.push("unwind".into());
    }
    fn caught(&mut self, _: SiteId, _: Option<LoopRef>, _: u64) {
        self.0.push("caught".into());
    }
}

fn value(value: &Val) -> String {
    match value {
        Val::I32(v) => v.to_string(),
        Val::I64(v) => v.to_string(),
        Val::F32(bits) => format!("{bits:#010x}"),
        Val::F64(bits) => format!("{bits:#018x}"),
        Val::V128(bits) => format!("{bits:#x}"),
        other => other.to_string(),
    }
}

fn text(step: &Step) -> String {
    match step {
        Step::Returned(values) => values.iter().map(value).collect::<Vec<_>>().join(" "),
        Step::Trapped(trap) => trap.kind().to_string(),
        other => format!("{other:?}"),
    }
}

/// Calls a function without arguments until it has ended, and says what came of it.
fn call(store: &mut Store, module: &Module, func: FuncId, how: How) -> String {
    if how == Traced {
        let mut log = Log::default();
        store.start(&mut log, func, &[]).expect("no arguments");
        return log.0.join(" ");
    }
    if how == Pieces {
        store.set_fuel(0);
    }
    let mut step = store.start(&mut NoProbe, func, &[]).expect("no arguments");
    while let Step::Suspended(Suspension::OutOfFuel { missing }) = step {
        let mut bytes = Vec::new();
        store.save(&mut bytes).expect("there is room");
        *store = Store::restore(module.engine(), std::slice::from_ref(module), &bytes).expect("it was saved");
        store.set_fuel(missing);
        step = store.proceed(&mut NoProbe).expect("it was suspended");
    }
    if how == Work { format!("{} after {}", text(&step), store.work()) } else { text(&step) }
}

/// What comes of a program: the start function, then `f`, then `g`.
fn outcome(program: &str, how: How) -> String {
    let engine = Engine::new(Config { fuel: matches!(how, Work | Pieces), canonicalize_nans: how == Canonical, ..Config::default() });
    let module = Module::from_text(&engine, &module(program)).unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut store = Store::new(&engine);
    let instance = store.instantiate(&module, &[]).expect("no imports");
    store.set_trace_plan(instance, TracePlan { every_loop_of: Some(0), ..TracePlan::default() });
    if let Some(start) = module.start() {
        store.start(&mut NoProbe, store.func(instance, start), &[]).expect("no arguments");
    }
    let mut outcomes = Vec::new();
    for name in ["f", "g"] {
        if let Some(Extern::Func(func)) = store.export(instance, name) {
            outcomes.push(call(&mut store, &module, func, how));
        }
    }
    outcomes.join(", ")
}

#[test]
fn every_mutant_is_seen_by_its_program() {
    let _alone = ALONE.lock();
    let named: Vec<&str> = list().iter().map(|mutant| mutant.name).collect();
    let cases: Vec<&str> = CASES.iter().map(|case| case.0).collect();
    let mut problems: Vec<String> = named.iter().filter(|name| !cases.contains(name)).map(|name| format!("{name}: no program")).collect();
    for (mutant, program, how, expected) in CASES {
        choose(None).unwrap();
        let right = outcome(program, *how);
        if right != *expected {
            problems.push(format!("{mutant}: {program}\n  gives {right}, expected {expected}"));
        }
        choose(Some(mutant)).unwrap();
        let wrong = std::panic::catch_unwind(|| outcome(program, *how)).unwrap_or_else(|_| "panic".into());
        if wrong == *expected || wrong == "panic" {
            problems.push(format!("{mutant}: {program}\n  is not seen: {wrong}"));
        }
        println!("{mutant}: {wrong} instead of {expected}");
    }
    choose(None).unwrap();
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), CASES.len(), problems.join("\n"));
}

/// A campaign goes on in the process in which a mutant runs.
#[test]
fn no_mutant_does_harm() {
    let _alone = ALONE.lock();
    for mutant in list() {
        choose(Some(mutant.name)).unwrap();
        for (_, program, how, _) in CASES {
            let ended = std::panic::catch_unwind(|| outcome(program, *how));
            assert!(ended.is_ok(), "{} panics: {program}", mutant.name);
        }
    }
    choose(None).unwrap();
}

#[test]
fn there_are_enough_of_every_kind() {
    let (names, kinds): (BTreeSet<&str>, BTreeSet<&str>) = list().iter().map(|mutant| (mutant.name, mutant.kind)).unzip();
    assert_eq!(names.len(), list().len(), "a name is one mutant's");
    assert!(names.len() >= 96 && kinds.len() >= 12, "{} mutants of {} kinds", names.len(), kinds.len());
    assert_eq!(choose(Some("Nobody")).unwrap_err().to_string(), "there is no mutant called Nobody");
}
