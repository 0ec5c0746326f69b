//! A program with something of everything that a suspended run must keep.

/// Values stay in the accumulator across a block's begin, one operator costs more than a block, calls and exceptions nest.
pub const PROGRAM: &str = r#"(module (memory 1) (tag $odd (param i32)) (table 2 funcref) (elem (i32.const 0) $double $throws)
    (type $unary (func (param i32) (result i32)))
    (func $double (param i32) (result i32) (i32.mul (local.get 0) (i32.const 2)))
    (func $throws (param i32) (result i32)
        (if (i32.and (local.get 0) (i32.const 1)) (then (throw $odd (i32.add (local.get 0) (i32.const 100)))))
        (return_call $double (local.get 0)))
    (func (export "run") (param $n i32) (result i32) (local $s i32) (local $v v128) (local $f f64)
        (loop $again
            (local.set $s (i32.add (i32.mul (local.get $n) (local.get $n))
                (block (result i32) (br_if 0 (local.get $s) (i32.and (local.get $n) (i32.const 1))) (drop) (i32.const 3))))
            (memory.fill (i32.const 0) (local.get $n) (i32.const 60000))
            (local.set $v (i32x4.add (local.get $v) (i32x4.splat (local.get $s))))
            (local.set $f (f64.add (local.get $f) (f64.convert_i32_s (local.get $n))))
            (local.set $s (i32.xor (local.get $s)
                (block $caught (result i32)
                    (try_table (result i32) (catch $odd $caught)
                        (call_indirect (type $unary) (local.get $n) (i32.and (local.get $s) (i32.const 1)))))))
            (br_if $again (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
        (i32.add (i32.add (local.get $s) (i32.load8_u (i32.const 59999)))
            (i32.add (i32x4.extract_lane 2 (local.get $v)) (i32.trunc_f64_s (local.get $f))))))"#;
