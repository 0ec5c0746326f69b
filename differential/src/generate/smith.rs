//! `smith`: modules of wasm-smith, with every feature that engines share.

use arbitrary::Unstructured;

use super::Random;

/// Whether engines make NaNs canonical when they run the module of this seed, as recorder and replay have it; otherwise the module does.
pub fn canonicalize_nans(index: u64) -> bool {
    index % 4 < 2
}

/// A valid module that ends, or `None` when these random numbers make none.
pub fn module(index: u64, random: &mut Random) -> Option<Vec<u8>> {
    // Some programs are scalar: vectors would dilute everything else.
    let vectors = !index.is_multiple_of(3);
    let wide = if vectors { r#"(import "env" "d" (func (param i32 v128 i64) (result v128 i32 v128)))"# } else { "" };
    let imports = format!(
        r#"(module (import "env" "a" (func)) (import "env" "b" (func (param i32) (result i32)))
        (import "env" "c" (func (param i64 f64 funcref) (result f32 i64 externref))) {wide})"#
    );
    let config = wasm_smith::Config {
        available_imports: Some(wat::parse_str(imports).expect("valid text")),
        canonicalize_nans: !canonicalize_nans(index),
        custom_page_sizes_enabled: index % 5 < 2,
        // Half of the programs avoid traps, which would end most calls early.
        disallow_traps: index.is_multiple_of(2),
        // Exceptions in half of the programs, whatever else is in them.
        exceptions_enabled: index % 4 < 2,
        export_everything: true,
        gc_enabled: false,
        max_imports: 4,
        max_instructions: 200,
        max_memories: 2,
        max_memory32_bytes: 8 << 16,
        max_tables: 3,
        max_table_elements: 50,
        max_memory64_bytes: 8 << 16,
        memory64_enabled: index % 5 > 2,
        memory_max_size_required: true,
        memory_offset_choices: wasm_smith::MemoryOffsetChoices(90, 9, 1),
        min_funcs: 2,
        relaxed_simd_enabled: vectors,
        simd_enabled: vectors,
        table_max_size_required: true,
        tail_call_enabled: true,
        threads_enabled: index % 7 < 3,
        wide_arithmetic_enabled: index % 2 == 1,
        ..wasm_smith::Config::default()
    };
    let length = 500 + random.below(6000) as usize;
    let bytes: Vec<u8> = std::iter::repeat_with(|| random.word().to_le_bytes()).flatten().take(length).collect();
    let mut module = wasm_smith::Module::new(config, &mut Unstructured::new(&bytes)).ok()?;
    module.ensure_termination(1000).ok()?;
    let bytes = module.to_bytes();
    (!may_wait(&bytes)).then_some(bytes)
}

/// Whether a program may wait for others, which would take any time on Wasmtime: these bytes begin `memory.atomic.wait32` and `wait64`.
pub fn may_wait(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| matches!(pair, [0xfe, 1 | 2]))
}
