//! Which WebAssembly the engine runs, and how it names what it does not.

use wasmparser::{
    FuncToValidate, FunctionBody, Operator, Parser, Payload, TypeRef, ValidPayload, Validator, ValidatorResources, WasmFeatures,
};

use crate::config::Config;
use crate::error::Error;
use crate::parallel::both;

/// Bytes of code from which a second thread is worth its start.
const LARGE_CODE: usize = 256 << 10;

/// WebAssembly 2.0 with relaxed SIMD, tail calls, extended constants, multiple memories, exceptions in both forms, wide arithmetic,
/// custom page sizes, memory64, threads and typed function references.
const SUPPORTED: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::RELAXED_SIMD)
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::MULTI_MEMORY)
    .union(WasmFeatures::EXCEPTIONS)
    .union(WasmFeatures::LEGACY_EXCEPTIONS)
    .union(WasmFeatures::WIDE_ARITHMETIC)
    .union(WasmFeatures::CUSTOM_PAGE_SIZES)
    .union(WasmFeatures::MEMORY64)
    .union(WasmFeatures::THREADS)
    .union(WasmFeatures::FUNCTION_REFERENCES);

/// What of that a configuration switches off.
fn switched_off(config: &Config) -> WasmFeatures {
    let switches = [
        (config.simd, WasmFeatures::SIMD),
        (config.relaxed_simd, WasmFeatures::RELAXED_SIMD),
        (config.exceptions, WasmFeatures::EXCEPTIONS),
        (config.legacy_exceptions, WasmFeatures::LEGACY_EXCEPTIONS),
        (config.wide_arithmetic, WasmFeatures::WIDE_ARITHMETIC),
        (config.custom_page_sizes, WasmFeatures::CUSTOM_PAGE_SIZES),
        (config.memory64, WasmFeatures::MEMORY64),
        (config.threads, WasmFeatures::THREADS),
        (config.function_references, WasmFeatures::FUNCTION_REFERENCES),
    ];
    switches.iter().filter(|(on, _)| !on).fold(WasmFeatures::empty(), |off, (_, feature)| off | *feature)
}

/// What is refused by name where it is not supported or switched off, in the order in which it is tried.
const REFUSED: &[(WasmFeatures, &str)] = &[
    (WasmFeatures::SIMD, "SIMD"),
    (WasmFeatures::RELAXED_SIMD, "relaxed SIMD"),
    (WasmFeatures::THREADS, "threads (shared memories and atomics)"),
    (WasmFeatures::EXCEPTIONS, "exceptions"),
    (WasmFeatures::LEGACY_EXCEPTIONS, "legacy exceptions"),
    (WasmFeatures::MEMORY64, "64-bit memories and tables (memory64)"),
    (WasmFeatures::FUNCTION_REFERENCES, "typed function references"),
    (WasmFeatures::GC, "garbage-collected types (gc)"),
    (WasmFeatures::CUSTOM_PAGE_SIZES, "custom page sizes"),
    (WasmFeatures::WIDE_ARITHMETIC, "wide arithmetic"),
    (WasmFeatures::STACK_SWITCHING, "stack switching"),
    (WasmFeatures::MEMORY_CONTROL, "memory control"),
    (WasmFeatures::CUSTOM_DESCRIPTORS, "custom descriptors"),
    (WasmFeatures::COMPACT_IMPORTS, "compact import sections"),
    (WasmFeatures::COMPONENT_MODEL, "the component model (this is a component, not a core module)"),
];

/// Validates a module whole, functions included.
///
/// # Errors
/// [`Error::Unsupported`], naming the features, when the module is valid with more features than there are,
/// [`Error::SwitchedOff`] when it is valid with more than the configuration has on; otherwise [`Error::Invalid`].
pub(super) fn validate(bytes: &[u8], config: &Config) -> Result<(), Error> {
    let allowed = SUPPORTED.difference(switched_off(config));
    validate_with(bytes, allowed).map_err(|error| explain(bytes, allowed, error))
}

fn validate_with(bytes: &[u8], features: WasmFeatures) -> Result<(), wasmparser::Error> {
    let mut validator = Validator::new_with_features(features);
    let mut parser = Parser::new(0);
    parser.set_features(features);
    let mut bodies: Vec<Body<'_>> = Vec::new();
    let sections = || {
        for payload in parser.parse_all(bytes) {
            if let ValidPayload::Func(func, body) = validator.payload(&payload?)? {
                bodies.push((func, body));
            }
        }
        Ok(())
    };
    // An error in a body comes before one in a section that follows.
    let after = sections();
    validate_bodies(bodies)?;
    after
}

type Body<'a> = (FuncToValidate<ValidatorResources>, FunctionBody<'a>);

/// Validates functions; those of large modules on two threads.
fn validate_bodies(mut bodies: Vec<Body<'_>>) -> Result<(), wasmparser::Error> {
    let validate = |bodies: Vec<Body<'_>>| {
        let mut allocations = Default::default();
        for (func, body) in bodies {
            let mut func = func.into_validator(allocations);
            func.validate(&body)?;
            allocations = func.into_allocations();
        }
        Ok(())
    };
    let (Some((_, first)), Some((_, last))) = (bodies.first(), bodies.last()) else { return Ok(()) };
    let (start, end) = (first.range().start, last.range().end);
    if end - start < LARGE_CODE {
        return validate(bodies);
    }
    let middle = bodies.partition_point(|(_, body)| body.range().start < start + (end - start) / 2);
    let second = bodies.split_off(middle);
    let (first, second) = both(|| validate(bodies), || validate(second));
    first.and(second)
}

/// Tells a module that needs a feature from an invalid one.
fn explain(bytes: &[u8], allowed: WasmFeatures, error: wasmparser::Error) -> Error {
    let Some(missing) = missing_features(bytes, allowed, &error) else {
        return error.into();
    };
    let detail = operator_at(bytes, error.offset()).unwrap_or_else(|| error.message().to_owned());
    let names: Vec<&str> = REFUSED.iter().filter(|(feature, _)| missing.intersects(*feature)).map(|(_, name)| *name).collect();
    let (features, offset) = (names.join(", "), error.offset());
    match SUPPORTED.contains(missing) {
        true => Error::SwitchedOff { features, detail, offset },
        false => Error::Unsupported { features, detail, offset },
    }
}

/// The refused features that the module cannot do without, or `None` when it is invalid with all of them.
fn missing_features(bytes: &[u8], allowed: WasmFeatures, first: &wasmparser::Error) -> Option<WasmFeatures> {
    // Quick way: the validator often says what is missing.
    let mut needed = WasmFeatures::empty();
    let mut error = Some(first.clone());
    while let Some(missing) = error.as_ref().and_then(wasmparser::Error::missing_wasm_feature) {
        let known = REFUSED.iter().any(|(feature, _)| feature.contains(missing));
        if !known || needed.contains(missing) {
            break;
        }
        needed |= missing;
        error = validate_with(bytes, allowed | needed).err();
    }
    if error.is_some() {
        // Slow way: with everything on, switch off one at a time what validation does not miss.
        needed = REFUSED.iter().fold(WasmFeatures::empty(), |all, (feature, _)| all | *feature);
        validate_with(bytes, allowed | needed).ok()?;
        for (feature, _) in REFUSED {
            let fewer = needed.difference(*feature);
            if validate_with(bytes, allowed | fewer).is_ok() {
                needed = fewer;
            }
        }
    }
    // With this feature the decoder takes longer numbers everywhere, so it makes some broken modules look whole.
    if needed.contains(WasmFeatures::MEMORY64) && !has_64_bit_indices(bytes) {
        return None;
    }
    Some(needed)
}

/// Whether a memory or a table has 64-bit indices.
fn has_64_bit_indices(bytes: &[u8]) -> bool {
    let import = |import: wasmparser::Import<'_>| match import.ty {
        TypeRef::Memory(ty) => ty.memory64,
        TypeRef::Table(ty) => ty.table64,
        _ => false,
    };
    Parser::new(0).parse_all(bytes).map_while(Result::ok).any(|payload| match payload {
        Payload::ImportSection(section) => section.into_imports().map_while(Result::ok).any(import),
        Payload::MemorySection(section) => section.into_iter().map_while(Result::ok).any(|ty| ty.memory64),
        Payload::TableSection(section) => section.into_iter().map_while(Result::ok).any(|table| table.ty.table64),
        _ => false,
    })
}

/// The name of the operator at a module offset, if that lies in a function's body.
fn operator_at(bytes: &[u8], offset: usize) -> Option<String> {
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.ok()? {
            Payload::CodeSectionEntry(body) if body.range().contains(&offset) => {
                let starts = body.get_operators_reader().ok()?.into_iter_with_offsets();
                let mut starts = starts.map_while(Result::ok).skip_while(|(_, at)| *at < offset);
                let (operator, at) = starts.next()?;
                return (at == offset).then(|| operator_name(&operator));
            }
            _ => {}
        }
    }
    None
}

/// `V128Load8Lane { .. }` → `v128.load8_lane`.
pub(super) fn operator_name(operator: &Operator<'_>) -> String {
    let debug = format!("{operator:?}");
    let camel = debug.split([' ', '{', '(']).next().unwrap_or(&debug);
    let shape = camel.char_indices().skip(1).find(|(_, c)| c.is_ascii_uppercase()).map_or(camel.len(), |(i, _)| i);
    let (first, rest) = camel.split_at(shape);
    let mut name = first.to_ascii_lowercase();
    let typed = name.len() > 1 && name.starts_with(['i', 'f', 'v']) && name.as_bytes()[1].is_ascii_digit();
    let dotted = typed
        || matches!(first, "Memory" | "Ref" | "Struct" | "Array" | "Table" | "Atomic" | "Local" | "Global" | "Data" | "Elem");
    for (i, c) in rest.char_indices() {
        if c.is_ascii_uppercase() {
            name.push(if i == 0 && dotted { '.' } else { '_' });
        }
        name.push(c.to_ascii_lowercase());
    }
    // Some words are followed by a dot wherever they stand.
    ["atomic", "rmw", "rmw8", "rmw16", "rmw32"].iter().fold(name, |name, word| name.replace(&format!(".{word}_"), &format!(".{word}.")))
}
