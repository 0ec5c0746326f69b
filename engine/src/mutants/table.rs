//! All mutants, each once. A name leads to the site of its bug; `engine/tests/mutants.rs` has the smallest program that sees it.

use super::chooser::Mutant;

/// `kind { Name "the bug" "what program sees it"; … }`
macro_rules! mutants {
    ($($kind:literal { $($name:ident $bug:literal $seen:literal;)* })*) => {
        /// A mutant, by number.
        #[derive(Clone, Copy)]
        pub(crate) enum Bug { $($($name),*),* }

        /// All of them, in numbering order.
        pub(super) const TABLE: &[Mutant] = &[
            $($(Mutant { name: stringify!($name), kind: $kind, bug: $bug, seen: $seen }),*),*
        ];
    };
}
mutants! {
    "operands" {
        SubSwapImmediate "i32.sub swaps its operands where the left one is a constant" "a constant minus a variable";
        SubSwapAccumulator "i64.sub swaps a computed value and a local" "an expression minus a local";
        DivSwapSlots "i32.div_u swaps two locals" "one local divided by another";
        ShlSwapAccumulator "i64.shl swaps a local and a computed count" "a local shifted by an expression";
        LtSwapImmediate "i32.lt_u swaps its operands where the left one is a constant" "a constant compared with a variable";
        RotlSwapImmediate "i64.rotl swaps its operands where the left one is a constant" "a constant rotated by a variable";
        CopysignSwapImmediate "f32.copysign swaps a local and a constant" "a local with the sign of a constant";
        FloatSubSwapImmediate "f64.sub swaps a computed value and a constant" "an expression minus a constant that fits an f32";
        FloatDivSwapAccumulator "f32.div swaps a local and a computed value" "a local divided by an expression";
        AddImmediate16 "i32.add keeps 16 bits of a constant that is added to a local" "a local plus a constant beyond 16 bits, or below 0";
        ShrImmediateLogical "i64.shr_s by a constant of at least 32 shifts zeros in" "a negative number shifted far";
        RotrAccumulatorLeft "i32.rotr of a local by a computed count rotates to the left" "such a rotation by no multiple of 16";
        LeImmediateStrict "i32.le_u with a constant on the right is i32.lt_u" "a comparison of equal numbers, one of them constant";
        GeImmediateUnsigned "i64.ge_s of a computed value and a constant is unsigned" "a negative expression compared with a constant";
        RemImmediateUnsigned "i32.rem_s of a local by a constant is unsigned" "the remainder of a negative local";
        DivImmediateShift "i32.div_s by a constant power of two is a shift" "a negative number that such a constant does not divide";
        RemImmediateMask "i64.rem_s by a constant power of two is a mask" "such a remainder of a negative number";
        EqImmediateLow "i64.eq of a local and a constant compares lower halves" "numbers that differ in their upper halves only";
        AndImmediateLow "i64.and with a negative constant clears the upper half" "such a mask on a large number";
    }
    "constants" {
        ImmediateUnsigned "an i64 constant of 32 bits with the highest one set becomes a sign-extended immediate" "an i64 operation on such a constant";
        ImmediateRounded "an f64 constant becomes an f32 immediate, rounded" "an f64 operation on 0.1";
        ConstantHighLost "an i64 constant whose lower half is 0 loses its upper half on its way to a slot" "a local set to 1 << 32";
        ConstantSignLost "f32.const -0 is shared with 0" "the bits of an f32.const -0";
        ConstantNanPayload "f64.const of a NaN has no payload" "the bits of an f64.const nan:0x1";
        GlobalConstantTruncated "global.set of a constant keeps 32 bits" "an i64 global set to a large constant";
        ReturnConstantTruncated "return of a constant keeps 32 bits" "a function that returns a large constant";
        StoreConstantTruncated "i64.store of a constant keeps 32 bits" "a large constant that is stored and loaded";
        ConstantSubSwapped "i32.sub in a constant expression swaps its operands" "a global's initial value by i32.sub";
    }
    "locals" {
        PreserveOne "local.set saves one of several old values on the stack" "two values of a local on the stack when it is written";
        PreserveLostTee "local.tee saves no old value" "a local's old value on the stack below a local.tee";
        PreserveLostConstant "local.set of a constant saves no old value" "a local's old value on the stack when it is set to a constant";
        PreserveLostWide "no old value of a v128 local is saved" "a v128 local's old value on the stack when it is written";
        RetargetEarlier "local.set goes into the instruction that computed its value, past the old value's copy" "old value on the stack, local set to an expression";
        RetargetVector "likewise for vectors" "a v128 local's old value on the stack, local set to an expression";
        FlushSkipsLocal "the lowest value on the stack is not saved before a block" "a local's value on the stack, the local written in a block";
        MirrorStaleConstant "a local set to a constant is still read from the accumulator" "a local set to an expression, then to a constant, then read";
        MirrorStaleCopy "a local set to another local is still read from the accumulator" "a local set to an expression, then to a local, then read";
        LocalLastDirty "the last slot of the declared locals is not zeroed" "a function with a local where another one left values";
        LocalFar "local 64 is local 63" "a function with 65 locals";
        VectorCopyHalf "a copied vector keeps its lower half only" "a v128 local set to another one";
    }
    "accumulator" {
        SpillLostDeep "a value five deep in an expression is not stored when the next one is computed" "an expression five deep";
        AccLostAtBlock "a computed value is lost where a block begins" "an expression with a block as its right operand";
        AccLostAtCall "a computed value is lost where a function is called" "an expression with a call as its right operand";
        ArgumentNinth "the ninth argument is not put into its slot" "a call with nine arguments";
        PauseLosesAcc "a run that goes on between two operators has lost the accumulator" "fuel that runs out before a branch in an expression";
    }
    "control" {
        ConditionOne "a condition that is no comparison holds if it is 1" "a br_if on 2";
        BranchInverseStrict "the opposite of i32.lt_u is i32.gt_u" "an if on i32.lt_u of equal numbers";
        BranchInvertsFloat "an if on a comparison of floats takes the other branch when the opposite comparison holds" "an if on f64.lt with a NaN";
        EqzInvertsFloat "i32.eqz of a comparison of floats is the opposite comparison" "the i32.eqz of an f32.ge with a NaN";
        BranchMisplaced "a branch leaves its values where they are although others lie below" "a br out of a block with a value too much";
        BranchCopiesDescend "a branch copies its values from the last one down" "a br with two values over one that is dropped";
        TableDefaultLast "an index behind a br_table's targets leads to the last target" "a br_table with an index out of range";
        TableSharedMoves "all targets of a br_table that move values share the first one's moves" "a br_table with a value to blocks at two heights";
        TableIndex16 "br_table keeps 16 bits of an index in a local" "a br_table on 65536";
        LoopConstantParameter "a constant parameter of a loop stays that constant in every iteration" "a loop with a constant parameter that it changes";
        ResultUnsettled "the first of several results of a block stays where it is" "a block that ends with two locals";
        ReturnInPlace "several results are copied over the parameters that they come from" "a function that returns its two parameters swapped";
        SelectSwapSlot "select swaps its operands when the condition is in a slot" "a select on a local";
        SelectSwapWide "select of vectors swaps its operands" "a select of two vectors";
        SelectLowBit "select looks at the lowest bit of a computed condition" "a select on an expression that is 2";
        OnNullInverted "br_on_null to a label with values branches when the reference is not null" "a br_on_null that carries a value";
        StartIgnored "the start function is not called" "a module whose start function sets a global";
    }
    "calls" {
        TailCopiesDescend "values that move to the frame's begin are copied from the last one down" "two arguments of a tail call in a function with one local";
        TailWideHalf "return_call_indirect counts a vector among the arguments as one slot" "a tail call through a table with a v128 argument";
        TailIndexLate "return_call_indirect reads its index after it has moved the arguments" "an index that is a parameter";
        CallFirstTable "call_indirect always uses the first table" "a call through the second table";
        UndefinedKind "call_indirect behind the table's end traps as for null" "a call with an index out of range";
        NullCallsFirst "call_indirect of a null element calls the first function" "a call through an element that is null";
        SignatureParametersOnly "call_indirect compares only the types of parameters" "a call of a function with another result type";
        TailRefShort "return_call_ref moves one of several arguments too few" "a return_call_ref with two arguments";
    }
    "exceptions" {
        RegionStartMissed "the first instruction in a try is not part of it" "a try_table that begins with a throw";
        ReturnPosition "a call counts as the instruction behind it" "a try_table that ends with a call";
        ClausesLastFirst "the last clause that fits catches" "a catch_all behind a catch of the same exception";
        OuterRegionLost "an exception that the innermost try does not catch leaves the function" "two try_tables, the outer one catches";
        TagByType "tags of one type are one tag" "two tags of the same type";
        PayloadReversed "two values of an exception come out swapped" "a caught exception with two values";
        ReferenceLost "catch_ref does not write the reference behind values" "a catch_ref of a tag with a value, thrown again";
        DelegateNear "delegate always hands to the try around it" "a delegate 1";
        RethrowInnermost "rethrow throws what the innermost handler caught" "a rethrow 1 in two handlers";
    }
    "memory bounds" {
        BoundsByteTight "an access of the last byte traps" "an i32.load8_u of the last byte";
        BoundsShortTight "an access of the last two bytes traps" "an i32.store16 of the last two bytes";
        BoundsWordLax "an access of four bytes may reach one byte too far" "an i32.load three bytes before the end";
        BoundsLongFirst "only the first of eight bytes is checked" "an i64.store at the last byte";
        BoundsVectorHalf "only the first eight bytes of a vector are checked" "a v128.load eight bytes before the end";
        BulkEndTight "bulk operators and accesses by slots that end where the memory or table ends trap" "a memory.fill of the last two bytes";
        OffsetWraps "address and offset are added in 32 bits" "a load at -8 with an offset of 8";
        OffsetWraps64 "address and offset of a 64-bit memory are added without a check" "a load at -8 with an offset of 8";
        OffsetHighLost "an offset keeps 32 bits" "a load from a 64-bit memory with an offset of 1 << 32";
        AddressTruncated "a load from a 64-bit memory keeps 32 bits of its address" "a load at 1 << 32";
        LoadOffset16 "loads of eight bytes keep 16 bits of their offset" "an i64.load with an offset of 65536";
        StoreOffset8 "stores of one byte keep 8 bits of their offset" "an i32.store8 with an offset of 256";
        CopyZeroUnchecked "memory.copy of nothing is not checked" "a memory.copy of no bytes behind the end";
        FillZeroUnchecked "memory.fill of nothing is not checked" "a memory.fill of no bytes behind the end";
        InitZeroUnchecked "memory.init of nothing is not checked" "a memory.init of no bytes behind the end";
        FillPartial "memory.fill writes up to the end before it traps" "a memory.fill that traps, then a load";
    }
    "memory" {
        GrowStaleLength "what memory.grow makes accessible stays out of bounds" "a store to a page that was just made";
        GrowReturnsNew "memory.grow gives the new size" "the result of memory.grow 1";
        GrowMaxTight "memory.grow to the maximum fails" "a memory.grow to the maximum";
        GrowFailure32 "a failed memory.grow of a 64-bit memory gives 32 ones" "such a memory.grow";
        LoadFirstMemory "loads go to the first memory" "a load from the second memory";
        StoreFirstMemory "stores of one byte go to the first memory" "an i32.store8 to the second memory";
        SizeFirstMemory "memory.size tells of the first memory" "the memory.size of a second memory of another size";
        CopyMemoriesSwapped "memory.copy between two memories goes the other way" "a memory.copy from the second memory to the first";
        CopyForward "memory.copy always begins with the first byte" "a memory.copy to an overlapping higher place";
        CopyForwardNear "memory.copy of more than 16 bytes to fewer than eight bytes further up begins with the first byte" "such a memory.copy";
        DataDropIgnored "a dropped data segment keeps its bytes" "a memory.init after data.drop";
        InitFromStart "memory.init always takes the segment's first bytes" "a memory.init from 1";
        ActiveSegmentKept "an active data segment is not dropped" "a memory.init of an active segment";
        LoadOffsetUnsigned "i64.load8_s with an offset extends with zeros" "such a load of a negative byte";
        StoreWide "i32.store16 writes four bytes" "a load of the bytes behind a store16";
    }
    "dirty i32" {
        LoadDirty "i32.load16_s extends to 64 bits" "an i64.extend_i32_u of such a load";
        WrapDirty "i32.wrap_i64 keeps the upper half" "an i64.extend_i32_u of an i32.wrap_i64";
        ExtendDirty "i32.extend8_s extends to 64 bits" "an i64.extend_i32_u of an i32.extend8_s";
    }
    "integers" {
        ExtendShort "i32.extend16_s extends from 8 bits" "an i32.extend16_s of 384";
        ExtendZero "i64.extend32_s extends with zeros" "an i64.extend32_s of a negative number";
        ShlCountSaturates "i32.shl by 32 or more gives 0" "an i32.shl by 33";
        ShrCount31 "i64.shr_u keeps 5 bits of its count" "an i64.shr_u by 40";
        RotrCount31 "i64.rotr keeps 5 bits of its count" "an i64.rotr by 40";
        DivOverflow "i32.div_s of the smallest number by -1 does not trap" "such a division";
        RemOverflow "i64.rem_s of the smallest number by -1 traps" "such a remainder";
        DivLargeDivisor "i32.div_u by at least 1 << 31 gives 0" "-1 divided by 1 << 31";
        RemByZero "i64.rem_u by 0 traps with integer overflow" "such a remainder";
        ClzZero "i32.clz of 0 is 31" "i32.clz of 0";
        CtzZero "i64.ctz of 0 is 32" "i64.ctz of 0";
        PopcntLow "i64.popcnt counts the lower half" "i64.popcnt of a negative number";
        GtHalves "i64.gt_u compares lower halves as signed" "numbers that differ in bit 31 of the lower half";
        AddCarry "i64.add128 has no carry when the second number ends in -1" "1 + -1 in the lower halves";
        SubBorrow "i64.sub128 has no borrow from a lower half of 0" "0 - 1 in the lower halves";
        MulWideSign "i64.mul_wide_s of a negative and a positive number is unsigned" "such a product's upper half";
    }
    "floats" {
        MinZeros "f32.min of two zeros gives the second one" "f32.min of -0 and 0";
        MaxNan "f64.max ignores a single NaN" "f64.max of a NaN and 1";
        NearestAway "f64.nearest rounds halves away from 0" "f64.nearest of 2.5";
        NearestSign "f32.nearest of small negative numbers gives 0" "the bits of f32.nearest of -0.3";
        TruncLarge "f64.trunc goes through an i64" "f64.trunc of 1e300";
        CeilSign "f32.ceil of small negative numbers gives 0" "the bits of f32.ceil of -0.5";
        SqrtSign "f64.sqrt of -0 gives 0" "the bits of f64.sqrt of -0";
        CopysignNan "f64.copysign ignores a NaN's sign" "f64.copysign of 1 and a negative NaN";
        EqBits "f32.eq compares bits" "f32.eq of 0 and -0, or of one NaN with itself";
        NeNan "f64.ne of a NaN gives 0" "f64.ne with a NaN on the left";
        LeNan "f64.le of a NaN gives 1" "f64.le with a NaN";
        GeNan "f32.ge of a NaN on the right gives 1" "f32.ge with a NaN on the right";
        NanSign "the canonical f64 NaN is negative" "0 / 0 while NaNs are made canonical";
    }
    "conversions" {
        ConvertTwice "f32.convert_i64_s rounds to an f64 first" "a number just above the middle of two f32 that a rounding to 53 bits puts there";
        ConvertSigned "f64.convert_i64_u takes its operand as signed" "f64.convert_i64_u of -1";
        DemoteDenormal "f32.demote_f64 makes denormals zero" "f32.demote_f64 of 1e-40";
        TruncEdge "i32.trunc_f64_s traps between the smallest number and the one below" "i32.trunc_f64_s of -2147483648.9";
        TruncNegative "i32.trunc_f32_u traps between -1 and 0" "i32.trunc_f32_u of -0.5";
        TruncNanKind "i64.trunc_f32_s of a NaN traps with integer overflow" "such a conversion";
        SaturateNan "i32.trunc_sat_f64_s of a NaN gives the smallest number" "such a conversion";
        SaturateSigned "i64.trunc_sat_f64_u saturates at the largest signed number" "i64.trunc_sat_f64_u of 1e19";
    }
    "vectors" {
        SwizzleWraps "i8x16.swizzle keeps 4 bits of numbers below 128" "an i8x16.swizzle by 16";
        ShuffleLane16 "i8x16.shuffle takes lane 0 for lane 16" "an i8x16.shuffle with lane 16";
        NarrowUnsigned "i8x16.narrow_i16x8_u takes its operands as unsigned" "a negative lane";
        Q15Wraps "i16x8.q15mulr_sat_s does not saturate" "the smallest number squared";
        DotSaturates "i32x4.dot_i16x8_s saturates" "four times the smallest number";
        PminSwapped "f32x4.pmin swaps its operands" "f32x4.pmin with a NaN, or of 0 and -0";
        PmaxSwapped "f64x2.pmax swaps its operands" "f64x2.pmax with a NaN, or of 0 and -0";
        LanesMinZeros "f64x2.min is f64x2.pmin" "f64x2.min of 0 and -0";
        AvgrTruncates "i8x16.avgr_u rounds down" "the average of 1 and 2";
        LanesShlSaturates "i8x16.shl by 8 or more gives 0" "an i8x16.shl by 9";
        LanesShrLogical "i64x2.shr_s shifts zeros in" "a negative lane";
        ExtaddSigned "i16x8.extadd_pairwise_i8x16_u is signed" "a lane of 255";
        BitmaskLast "i8x16.bitmask leaves the last lane out" "a negative last lane";
        AllTrueLow "i64x2.all_true looks at lower halves" "a lane of 1 << 32";
        AddSaturatedWraps "i8x16.add_sat_u wraps" "255 + 1";
        AndnotSwapped "v128.andnot swaps its operands" "v128.andnot of different vectors";
        TruncUpper "i32x4.trunc_sat_f64x2_u_zero repeats its lanes" "the upper lanes of the result";
        ExtmulLow "i32x4.extmul_high_i16x8_u multiplies lower lanes" "vectors whose halves differ";
        LanesMinUnsigned "i16x8.min_s is unsigned" "i16x8.min_s of -1 and 1";
        LanesConvertSigned "f32x4.convert_i32x4_u is signed" "a lane of -1";
        LanesMulLow "i64x2.mul multiplies lower halves" "factors beyond 32 bits";
        LanesNeNan "f32x4.ne of a NaN on the left is false" "a NaN lane on the left";
        ExtractUnsigned "i8x16.extract_lane_s of the upper eight lanes extends with zeros" "a negative lane 8";
        ReplaceLastLane "i16x8.replace_lane of lane 7 writes lane 6" "an i16x8.replace_lane 7";
        LoadWidensUnsigned "v128.load32x2_s extends with zeros" "a negative number in memory";
        LoadLaneLow "v128.load8_lane of the upper eight lanes writes lower ones" "a v128.load8_lane 9";
        StoreLaneFirst "v128.store64_lane stores lane 0" "a v128.store64_lane 1";
        GlobalSetHalf "global.set of a vector writes its lower half" "a v128 global";
    }
    "tables and references" {
        TableGetKind "table.get behind the end traps as an undefined element" "a table.get out of range";
        TableGrowNull "table.grow makes elements null" "a table.grow with a function";
        TableFillShort "table.fill leaves the last element out" "the last element after a table.fill";
        TableCopyForward "table.copy always begins with the first element" "a table.copy to an overlapping higher place";
        TableCopyOne "table.copy between two tables copies within one" "a table.copy between two tables";
        ElemDropIgnored "a dropped element segment keeps its elements" "a table.init after elem.drop";
        TableInitFromStart "table.init always takes the segment's first elements" "a table.init from 1";
        AsNonNullUnchecked "ref.as_non_null lets null through" "ref.as_non_null of null";
        NullFirst "a reference to the first function is null" "ref.is_null of the first function";
    }
    "atomics" {
        AlignmentHalf "atomic accesses of eight bytes may be aligned to four" "an i64.atomic.load at 4";
        AlignmentOfAddress "atomic accesses look at the alignment of the address without its offset" "an i32.atomic.load at 0 with an offset of 2";
        RmwReturnsNew "read-modify-writes of two bytes give the new value" "an i32.atomic.rmw16.add_u";
        RmwSubSwapped "atomic subtractions swap their operands" "memory after an i32.atomic.rmw.sub";
        CmpxchgWide "narrow compare-exchanges compare all bits of what is expected" "an i32.atomic.rmw8.cmpxchg_u that expects 257";
        WaitNotEqual "a wait that times out says that the value is not the expected one" "a memory.atomic.wait32 with a timeout of 0";
        NotifyUnchecked "memory.atomic.notify checks no address" "a memory.atomic.notify out of bounds";
    }
    "work and suspension" {
        FuelBranchTogether "code that is not traced charges a block together with what follows its br_if" "the work of a program that takes a br_if";
        FuelBulkDown "bulk operators charge whole eights of bytes only" "the work of a memory.fill of one byte";
        FuelTrapKept "a trap gives back nothing" "the work of a program that traps in the midst of a block";
        SavedGlobalHalf "a saved store has the lower half of a global only" "a v128 global, saved and restored";
    }
    "events" {
        EventLoopExitLost "a branch out of loops does not report the innermost one's exit" "a br out of a loop";
        EventUnwindLost "an exception that ends activations reports one of them too few" "an exception through a call";
        EventOfNothing "memory.fill of nothing reports a range" "a memory.fill of no bytes";
        EventStoreLost "stores to other memories are not reported" "a store to the second memory";
    }
}
