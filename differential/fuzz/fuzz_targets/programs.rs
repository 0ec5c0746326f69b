//! Programs of the campaign's generators, made of libFuzzer's bytes, on this engine in every mode and on Wasmtime.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use worksp_differential::compare::{Batch, Bench};
use worksp_differential::generate::{Random, any_program};
use worksp_differential::program::{encode_alone, program_text};
use worksp_differential::run::ours::Mode;

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench::new(&Mode::ALL));
}

fuzz_target!(|bytes: &[u8]| {
    let program = any_program(&mut Random::from_bytes(bytes));
    let outcome = BENCH.with_borrow_mut(|bench| bench.run(&Batch::of([&program])));
    if let Some(divergence) = outcome.divergences.first() {
        panic!("{divergence:?}\n{}", program_text(&encode_alone(&program)));
    }
});
