//! Every operator on numbers, vectors and memory, found by asking the validator: what it takes, what it gives, which immediates it may have.
//!
//! No list is kept here, so none can be incomplete: all opcodes are decoded, and what validates in a module with one memory is an
//! operator. Control, variables, references and tables are not among them; generators make those themselves.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use wasm_encoder::ValType;
use wasmparser::{BinaryReader, FuncToValidate, FuncValidatorAllocations, Operator as Decoded, OperatorsReader, ValidPayload, Validator, ValidatorResources};

/// Numbers and vectors.
pub const TYPES: [ValType; 5] = [ValType::I32, ValType::I64, ValType::F32, ValType::F64, ValType::V128];

/// Which immediates an operator has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Immediates {
    /// None.
    None,
    /// A lane below this.
    Lane(u8),
    /// Sixteen lanes of two vectors.
    Shuffle,
    /// An alignment, as a logarithm, and an offset.
    Access(Alignment),
    /// An alignment and an offset, and a lane below this.
    AccessLane(Alignment, u8),
}

/// The alignments that an access may state, as logarithms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Alignment {
    /// The least: atomic accesses state their size.
    pub min: u8,
    /// The greatest: the size of the access.
    pub max: u8,
}

/// An operator.
#[derive(Debug)]
pub struct Operator {
    /// As in the text format, with `_` for `.`.
    pub name: &'static str,
    /// The opcode's bytes.
    pub opcode: SmallVec<[u8; 4]>,
    /// The immediates after them.
    pub immediates: Immediates,
    /// What it takes, the deepest first.
    pub params: SmallVec<[ValType; 4]>,
    /// What it gives.
    pub results: SmallVec<[ValType; 2]>,
}

/// An operator: a place in [`all`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OperatorId(pub u16);

impl OperatorId {
    /// What there is to know of it.
    pub fn get(self) -> &'static Operator {
        &all()[usize::from(self.0)]
    }
}

/// All of them, in the order of their opcodes.
pub fn all() -> &'static [Operator] {
    static ALL: LazyLock<Vec<Operator>> = LazyLock::new(discover);
    &ALL
}

/// The operators that give this type alone.
pub fn giving(ty: ValType) -> &'static [OperatorId] {
    static BY_TYPE: LazyLock<[Vec<OperatorId>; 5]> = LazyLock::new(|| TYPES.map(|ty| ids(|operator| operator.results.as_slice() == [ty])));
    &BY_TYPE[index(ty)]
}

/// The operators that give nothing: stores.
pub fn giving_nothing() -> &'static [OperatorId] {
    static NONE: LazyLock<Vec<OperatorId>> = LazyLock::new(|| ids(|operator| operator.results.is_empty() && !operator.params.is_empty()));
    &NONE
}

/// The operator of this name.
///
/// # Panics
///
/// Unless there is one.
pub fn named(name: &str) -> OperatorId {
    static BY_NAME: LazyLock<FxHashMap<&str, OperatorId>> = LazyLock::new(|| (0..).zip(all()).map(|(id, operator)| (operator.name, OperatorId(id))).collect());
    *BY_NAME.get(name).unwrap_or_else(|| panic!("there is no operator {name}"))
}

/// Place of a type in [`TYPES`].
///
/// # Panics
///
/// For references.
pub fn index(ty: ValType) -> usize {
    TYPES.iter().position(|other| *other == ty).expect("a number or a vector")
}

fn ids(wanted: impl Fn(&Operator) -> bool) -> Vec<OperatorId> {
    (0..).zip(all()).filter(|(_, operator)| wanted(operator)).map(|(id, _)| OperatorId(id)).collect()
}

/// Where operators are tried: the only function of a module with one memory of one page.
struct Bench {
    resources: ValidatorResources,
    index: u32,
    ty: u32,
    features: wasmparser::WasmFeatures,
}

fn discover() -> Vec<Operator> {
    let bench = Bench::new();
    let opcode = |prefix: u8, code: u32| {
        let mut bytes = SmallVec::<[u8; 4]>::from_slice(&[prefix]);
        bytes.extend((code < 128).then_some(code as u8).into_iter().chain((code >= 128).then_some([code as u8 | 128, (code >> 7) as u8]).into_iter().flatten()));
        bytes
    };
    let short = (0..=0xfau8).map(|code| SmallVec::from_slice(&[code]));
    let long = (0xfc..=0xfe).flat_map(|prefix| (0..0x200).map(move |code| (prefix, code))).map(|(prefix, code)| opcode(prefix, code));
    short.chain(long).filter_map(|opcode| bench.operator(opcode)).collect()
}

impl Bench {
    fn new() -> Bench {
        use wasm_encoder::{CodeSection, Function, FunctionSection, MemorySection, MemoryType, Module, TypeSection};
        let mut module = Module::new();
        let mut types = TypeSection::new();
        types.ty().function([], []);
        let memory = MemoryType { minimum: 1, maximum: None, memory64: false, shared: false, page_size_log2: None };
        let mut code = CodeSection::new();
        let mut body = Function::new([]);
        body.instructions().end();
        code.function(&body);
        module.section(&types).section(FunctionSection::new().function(0)).section(MemorySection::new().memory(memory)).section(&code);
        let bytes = module.finish();
        let features = wasmparser::WasmFeatures::default() | wasmparser::WasmFeatures::WIDE_ARITHMETIC;
        let mut validator = Validator::new_with_features(features);
        for payload in wasmparser::Parser::new(0).parse_all(&bytes) {
            if let ValidPayload::Func(func, _) = validator.payload(&payload.expect("a module")).expect("a valid module") {
                return Bench { resources: func.resources, index: func.index, ty: func.ty, features };
            }
        }
        unreachable!("the module has a function")
    }

    /// The operator of this opcode, if there is one of the kinds that are collected.
    fn operator(&self, opcode: SmallVec<[u8; 4]>) -> Option<Operator> {
        let ((name, fields), zeros) = decode(&opcode, &[0; 20], name)?;
        // Those of any type, and those that are about control or variables.
        if matches!(name, "unreachable" | "nop" | "else" | "end" | "return" | "drop" | "select" | "catch_all" | "throw_ref" | "atomic_fence") {
            return None;
        }
        type Bytes = fn(u8, u8) -> Vec<u8>;
        let (kinds, lanes): (Bytes, u8) = match fields {
            [] => (|_, _| vec![], 0),
            ["lane"] => (|_, lane| vec![lane], 16),
            ["lanes"] => (|_, _| vec![0; 16], 0),
            ["memarg"] => (|align, _| vec![align, 0], 0),
            ["memarg", "lane"] => (|align, lane| vec![align, 0, lane], 16),
            _ => return None,
        };
        debug_assert_eq!(kinds(0, 0).len(), zeros);
        let takes = |params: &[ValType], align, lane| self.results(&opcode, &kinds(align, lane), params).is_some();
        let aligns = if fields.first() == Some(&"memarg") { 0..=4 } else { 0..=0 };
        let params = aligns.clone().find_map(|align| self.params(&opcode, &kinds(align, 0)))?;
        let valid: Vec<u8> = aligns.filter(|align| takes(&params, *align, 0)).collect();
        let (min, max) = (*valid.first()?, *valid.last()?);
        let alignment = Alignment { min, max };
        let lanes = (1..lanes).take_while(|lane| takes(&params, min, *lane)).count() as u8 + 1;
        let results = self.results(&opcode, &kinds(min, 0), &params)?;
        let immediates = match fields {
            [] => Immediates::None,
            ["lane"] => Immediates::Lane(lanes),
            ["lanes"] => Immediates::Shuffle,
            ["memarg"] => Immediates::Access(alignment),
            _ => Immediates::AccessLane(alignment, lanes),
        };
        Some(Operator { name, opcode, immediates, params, results })
    }

    /// What an operator takes. From the last: in code that is never reached, whatever lies deeper may have any type.
    fn params(&self, opcode: &[u8], immediates: &[u8]) -> Option<SmallVec<[ValType; 4]>> {
        let mut known = SmallVec::<[ValType; 4]>::new();
        while self.results(opcode, immediates, &known).is_none() {
            let deeper = TYPES.into_iter().find(|ty| {
                let operands = [&[*ty][..], &known].concat();
                self.valid(opcode, immediates, &operands, true).is_some()
            })?;
            known.insert(0, deeper);
            if known.len() > 4 {
                return None;
            }
        }
        Some(known)
    }

    /// What an operator gives when it has these operands, if they are the right ones.
    fn results(&self, opcode: &[u8], immediates: &[u8], operands: &[ValType]) -> Option<SmallVec<[ValType; 2]>> {
        self.valid(opcode, immediates, operands, false)
    }

    fn valid(&self, opcode: &[u8], immediates: &[u8], operands: &[ValType], unreachable: bool) -> Option<SmallVec<[ValType; 2]>> {
        let func = FuncToValidate { resources: self.resources.clone(), index: self.index, ty: self.ty, features: self.features };
        let mut validator = func.into_validator(FuncValidatorAllocations::default());
        if unreachable {
            validator.op(0, &Decoded::Unreachable).ok()?;
        }
        for ty in operands {
            let (opcode, length): (&[u8], _) = zero(*ty);
            decode(opcode, &[0; 16][..length], |decoded| validator.op(0, decoded))?.0.expect("a constant");
        }
        decode(opcode, immediates, |decoded| validator.op(0, decoded))?.0.ok()?;
        let height = validator.operand_stack_height();
        (0..height).rev().map(|depth| validator.get_operand_type(depth as usize).flatten().and_then(encoded)).collect()
    }
}

/// Decodes one operator and shows it; then the number of bytes that its immediates have.
fn decode<T>(opcode: &[u8], immediates: &[u8], see: impl FnOnce(&Decoded) -> T) -> Option<(T, usize)> {
    let bytes = [opcode, immediates].concat();
    let mut reader = OperatorsReader::new(BinaryReader::new_features(&bytes, 0, wasmparser::WasmFeatures::all()));
    let seen = see(&reader.read().ok()?);
    Some((seen, reader.original_position().checked_sub(opcode.len())?))
}

/// The opcode of a constant, and how many zeros follow it.
fn zero(ty: ValType) -> (&'static [u8], usize) {
    match ty {
        ValType::I32 => (&[0x41], 1),
        ValType::I64 => (&[0x42], 1),
        ValType::F32 => (&[0x43], 4),
        ValType::F64 => (&[0x44], 8),
        _ => (&[0xfd, 0x0c], 16),
    }
}

fn encoded(ty: wasmparser::ValType) -> Option<ValType> {
    match ty {
        wasmparser::ValType::I32 => Some(ValType::I32),
        wasmparser::ValType::I64 => Some(ValType::I64),
        wasmparser::ValType::F32 => Some(ValType::F32),
        wasmparser::ValType::F64 => Some(ValType::F64),
        wasmparser::ValType::V128 => Some(ValType::V128),
        wasmparser::ValType::Ref(_) => None,
    }
}

/// An operator's name and the names of its immediates.
fn name(decoded: &Decoded) -> (&'static str, &'static [&'static str]) {
    macro_rules! table {
        ($(@$proposal:ident $op:ident $({ $($arg:ident: $argty:ty),* })? => $visit:ident ($($ann:tt)*))*) => {
            match decoded {
                $(Decoded::$op { .. } => (&stringify!($visit)["visit_".len()..], &[$($(stringify!($arg)),*)?]),)*
                _ => ("", &["unknown"]),
            }
        };
    }
    wasmparser::for_each_operator!(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_validator_says_is_what_the_specification_says() {
        let find = |name: &str| all().iter().find(|operator| operator.name == name).unwrap_or_else(|| panic!("no {name}"));
        let check = |name: &str, params: &[ValType], results: &[ValType], immediates| {
            let operator = find(name);
            assert_eq!((&*operator.params, &*operator.results, operator.immediates), (params, results, immediates), "{name}");
        };
        use ValType::{F64, I32, I64, V128};
        check("i32_add", &[I32, I32], &[I32], Immediates::None);
        check("f64_lt", &[F64, F64], &[I32], Immediates::None);
        check("i64_store16", &[I32, I64], &[], Immediates::Access(Alignment { min: 0, max: 1 }));
        check("i8x16_shuffle", &[V128, V128], &[V128], Immediates::Shuffle);
        check("i16x8_replace_lane", &[V128, I32], &[V128], Immediates::Lane(8));
        check("v128_load32_lane", &[I32, V128], &[V128], Immediates::AccessLane(Alignment { min: 0, max: 2 }, 4));
        check("i64_atomic_rmw_cmpxchg", &[I32, I64, I64], &[I64], Immediates::Access(Alignment { min: 3, max: 3 }));
        check("i64_add128", &[I64; 4], &[I64; 2], Immediates::None);
        // 172 of WebAssembly 1.0 and its sign extensions and saturating conversions, 236 on vectors, 20 relaxed, 66 atomic, 4 wide.
        println!("{} operators", all().len());
        assert!(all().len() > 450);
        assert!(TYPES.iter().all(|ty| giving(*ty).len() > 20) && giving_nothing().len() > 10);
    }
}
