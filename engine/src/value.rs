//! Values and types of the WebAssembly language, and the ids by which a store names what it owns.

use std::fmt;
use std::sync::Arc;

use crate::interned::FuncTypeRef;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index into the store's vectors.
            #[inline(always)]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// One instantiated module of a store.
    InstanceId,
    /// One function of a store, of an instance or of the host.
    FuncId,
    /// One linear memory of a store.
    MemoryId,
    /// One table of a store.
    TableId,
    /// One global of a store.
    GlobalId,
    /// One exception tag of a store.
    TagId,
}

/// One exception of a store. Numbers are never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub struct ExnId(pub u64);

/// The upper bits of every raw reference to an exception: whoever looks for references in slots of unknown types then takes hardly
/// any number for one.
const EXN_MARK: u64 = 0xa5e7 << 48;

impl ExnId {
    /// The raw reference to this exception.
    pub(crate) fn raw(self) -> u64 {
        EXN_MARK | self.0
    }

    /// The exception behind a raw reference; `None` for null and for what is no such reference.
    pub(crate) fn from_raw(raw: u64) -> Option<ExnId> {
        (raw >> 48 == EXN_MARK >> 48).then_some(ExnId(raw ^ EXN_MARK))
    }
}

/// The type of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ValType {
    /// 32-bit integer.
    I32,
    /// 64-bit integer.
    I64,
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// 128-bit vector.
    V128,
    /// Nullable reference to a function.
    FuncRef,
    /// Reference to a function that is never null (`(ref func)`).
    SomeFuncRef,
    /// Nullable reference to a function of this type (`(ref null $t)`).
    TypedFuncRef(FuncTypeRef),
    /// Reference to a function of this type that is never null (`(ref $t)`).
    SomeTypedFuncRef(FuncTypeRef),
    /// Nullable reference to something of the host's.
    ExternRef,
    /// Reference to something of the host's that is never null (`(ref extern)`).
    SomeExternRef,
    /// Nullable reference to an exception.
    ExnRef,
    /// Reference to an exception that is never null (`(ref exn)`).
    SomeExnRef,
    /// The null reference among those to exceptions (`(ref null noexn)`).
    NullExnRef,
    /// No reference at all: neither null nor to any exception (`(ref noexn)`).
    NoExnRef,
}

/// What a reference refers to, unless it is null.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Heap {
    Func,
    Typed(FuncTypeRef),
    Extern,
    Exn,
    NoExn,
}

impl ValType {
    /// Whether this is a reference type.
    pub fn is_ref(self) -> bool {
        self.reference().is_some()
    }

    /// Whether this is one of the types of references to exceptions.
    pub(crate) fn is_exn(self) -> bool {
        matches!(self.reference(), Some((_, Heap::Exn | Heap::NoExn)))
    }

    /// Of a reference type, whether it has null, and what else its values refer to.
    fn reference(self) -> Option<(bool, Heap)> {
        Some(match self {
            ValType::FuncRef => (true, Heap::Func),
            ValType::SomeFuncRef => (false, Heap::Func),
            ValType::TypedFuncRef(of) => (true, Heap::Typed(of)),
            ValType::SomeTypedFuncRef(of) => (false, Heap::Typed(of)),
            ValType::ExternRef => (true, Heap::Extern),
            ValType::SomeExternRef => (false, Heap::Extern),
            ValType::ExnRef => (true, Heap::Exn),
            ValType::SomeExnRef => (false, Heap::Exn),
            ValType::NullExnRef => (true, Heap::NoExn),
            ValType::NoExnRef => (false, Heap::NoExn),
            ValType::I32 | ValType::I64 | ValType::F32 | ValType::F64 | ValType::V128 => return None,
        })
    }

    /// Whether every value of this type is one of type `other` as well.
    pub(crate) fn is_subtype_of(self, other: ValType) -> bool {
        let (Some((null, heap)), Some((other_null, other_heap))) = (self.reference(), other.reference()) else {
            return self == other;
        };
        let is_below = heap == other_heap || matches!((heap, other_heap), (Heap::Typed(_), Heap::Func) | (Heap::NoExn, Heap::Exn));
        is_below && (other_null || !null)
    }

    /// Whether values of this type take two slots.
    pub(crate) fn is_wide(self) -> bool {
        self == ValType::V128
    }
}

/// The slots that values of these types take, one after the other.
pub(crate) fn slots_of(types: &[ValType]) -> u32 {
    types.iter().map(|ty| 1 + u32::from(ty.is_wide())).sum()
}

impl fmt::Display for ValType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValType::TypedFuncRef(of) => return write!(f, "(ref null func {})", of.get()),
            ValType::SomeTypedFuncRef(of) => return write!(f, "(ref func {})", of.get()),
            ValType::SomeFuncRef => "(ref func)",
            ValType::SomeExternRef => "(ref extern)",
            ValType::I32 => "i32",
            ValType::I64 => "i64",
            ValType::F32 => "f32",
            ValType::F64 => "f64",
            ValType::V128 => "v128",
            ValType::FuncRef => "funcref",
            ValType::ExternRef => "externref",
            ValType::ExnRef => "exnref",
            ValType::SomeExnRef => "(ref exn)",
            ValType::NullExnRef => "nullexnref",
            ValType::NoExnRef => "(ref noexn)",
        })
    }
}

/// A value. Floats are kept as bits, so that equality is equality of bits and NaNs survive a round trip.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Val {
    /// 32-bit integer.
    I32(i32),
    /// 64-bit integer.
    I64(i64),
    /// Bits of a 32-bit float.
    F32(u32),
    /// Bits of a 64-bit float.
    F64(u64),
    /// A vector; its first byte in memory is the lowest of the number.
    V128(u128),
    /// A function, or null.
    FuncRef(Option<FuncId>),
    /// A number that stands for something of the host's, or null.
    ExternRef(Option<u32>),
    /// An exception, or null. A host that keeps one must know that a store frees exceptions that it alone refers to (see
    /// [`Limits::exception_bytes_max`](crate::Limits::exception_bytes_max)).
    ExnRef(Option<ExnId>),
}

impl Val {
    /// The value's type.
    pub fn ty(self) -> ValType {
        match self {
            Val::I32(_) => ValType::I32,
            Val::I64(_) => ValType::I64,
            Val::F32(_) => ValType::F32,
            Val::F64(_) => ValType::F64,
            Val::V128(_) => ValType::V128,
            Val::FuncRef(_) => ValType::FuncRef,
            Val::ExternRef(_) => ValType::ExternRef,
            Val::ExnRef(_) => ValType::ExnRef,
        }
    }

    /// Whether the value has this type; references have more precise ones beside that of [`Val::ty`]. What type a function has only its
    /// store knows: see [`Store::is_of`](crate::Store::is_of).
    pub fn is_of(self, ty: ValType) -> bool {
        let Some((null, heap)) = ty.reference() else { return self.ty() == ty };
        match (self, heap) {
            (Val::FuncRef(func), Heap::Func) => null || func.is_some(),
            (Val::ExternRef(host), Heap::Extern) => null || host.is_some(),
            (Val::ExnRef(exn), Heap::Exn) => null || exn.is_some(),
            (Val::FuncRef(None), Heap::Typed(_)) | (Val::ExnRef(None), Heap::NoExn) => null,
            _ => false,
        }
    }

    /// The value as a frame slot, a global and a table element hold it: 32-bit values are zero-extended, a null reference is
    /// 0 and any other reference is its number plus 1, or, to an exception, its number under a mark. Of a vector, which takes two slots, this is the lower half.
    pub fn raw(self) -> u64 {
        self.bits() as u64
    }

    /// The value of type `ty` behind raw bits; the inverse of [`Val::raw`] for all types but vectors.
    pub fn from_raw(ty: ValType, raw: u64) -> Val {
        Val::from_bits(ty, u128::from(raw))
    }

    /// All bits of the value: [`Val::raw`], and whole vectors.
    pub fn bits(self) -> u128 {
        match self {
            Val::I32(v) => u128::from(v as u32),
            Val::I64(v) => u128::from(v as u64),
            Val::F32(bits) => u128::from(bits),
            Val::F64(bits) => u128::from(bits),
            Val::V128(bits) => bits,
            Val::FuncRef(func) => func.map_or(0, |id| u128::from(id.0) + 1),
            Val::ExternRef(host) => host.map_or(0, |number| u128::from(number) + 1),
            Val::ExnRef(exn) => exn.map_or(0, |id| u128::from(id.raw())),
        }
    }

    /// The value of type `ty` behind its bits; the inverse of [`Val::bits`].
    pub fn from_bits(ty: ValType, bits: u128) -> Val {
        let reference = || bits.checked_sub(1).map(|number| number as u32);
        match ty {
            ValType::I32 => Val::I32(bits as i32),
            ValType::I64 => Val::I64(bits as i64),
            ValType::F32 => Val::F32(bits as u32),
            ValType::F64 => Val::F64(bits as u64),
            ValType::V128 => Val::V128(bits),
            ValType::FuncRef | ValType::SomeFuncRef | ValType::TypedFuncRef(_) | ValType::SomeTypedFuncRef(_) => {
                Val::FuncRef(reference().map(FuncId))
            }
            ValType::ExternRef | ValType::SomeExternRef => Val::ExternRef(reference()),
            ValType::ExnRef | ValType::SomeExnRef | ValType::NullExnRef | ValType::NoExnRef => Val::ExnRef(ExnId::from_raw(bits as u64)),
        }
    }

    /// The slots that these values fill, one after the other; a vector's lower half comes first.
    pub(crate) fn to_slots(values: &[Val]) -> Vec<u64> {
        let mut slots = Vec::with_capacity(values.len());
        for value in values {
            slots.push(value.raw());
            if value.ty().is_wide() {
                slots.push((value.bits() >> 64) as u64);
            }
        }
        slots
    }

    /// The values of these types in as many slots as they take; the inverse of [`Val::to_slots`].
    pub(crate) fn from_slots(types: &[ValType], slots: &[u64]) -> Vec<Val> {
        let mut slots = slots.iter().map(|slot| u128::from(*slot));
        let mut next = || slots.next().expect("as many slots as the types take");
        let value = |ty: &ValType| {
            let low = next();
            Val::from_bits(*ty, if ty.is_wide() { low | next() << 64 } else { low })
        };
        types.iter().map(value).collect()
    }

    /// Zero, or the null reference, of type `ty` (a null reference all the same for a type that has none).
    pub fn zero(ty: ValType) -> Val {
        Val::from_raw(ty, 0)
    }
}

impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Val::I32(v) => write!(f, "{v}:i32"),
            Val::I64(v) => write!(f, "{v}:i64"),
            Val::F32(bits) => write!(f, "{:?}:f32 (0x{bits:08x})", f32::from_bits(bits)),
            Val::F64(bits) => write!(f, "{:?}:f64 (0x{bits:016x})", f64::from_bits(bits)),
            Val::V128(bits) => write!(f, "0x{bits:032x}:v128"),
            Val::FuncRef(None) => f.write_str("null:funcref"),
            Val::FuncRef(Some(id)) => write!(f, "{}:funcref", id.0),
            Val::ExternRef(None) => f.write_str("null:externref"),
            Val::ExternRef(Some(number)) => write!(f, "{number}:externref"),
            Val::ExnRef(None) => f.write_str("null:exnref"),
            Val::ExnRef(Some(id)) => write!(f, "{}:exnref", id.0),
        }
    }
}

/// The type of a function. Cloning is cheap; equality is structural.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FuncType {
    types: Arc<[ValType]>,
    params: u32,
}

impl FuncType {
    /// A function type with these parameters and results.
    pub fn new(params: impl IntoIterator<Item = ValType>, results: impl IntoIterator<Item = ValType>) -> FuncType {
        let mut types: Vec<ValType> = params.into_iter().collect();
        let params = types.len() as u32;
        types.extend(results);
        FuncType { types: types.into(), params }
    }

    /// The parameters' types.
    pub fn params(&self) -> &[ValType] {
        &self.types[..self.params as usize]
    }

    /// The results' types.
    pub fn results(&self) -> &[ValType] {
        &self.types[self.params as usize..]
    }
}

impl fmt::Display for FuncType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |types: &[ValType]| types.iter().map(ValType::to_string).collect::<Vec<_>>().join(" ");
        write!(f, "[{}] -> [{}]", list(self.params()), list(self.results()))
    }
}

/// The type of a global.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GlobalType {
    /// The type of the value that it holds.
    pub content: ValType,
    /// Whether it can be set.
    pub mutable: bool,
}

/// The type of a linear memory; sizes are in its own pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemoryType {
    /// Pages at the start.
    pub min: u64,
    /// Pages at most, if the module says so.
    pub max: Option<u64>,
    /// The binary logarithm of a page's bytes: 16, or 0 with custom page sizes.
    pub page_bytes_log2: u8,
    /// Whether addresses and sizes are 64-bit.
    pub index64: bool,
    /// Whether agents could share it; it has a maximum then.
    pub shared: bool,
}

impl MemoryType {
    /// An ordinary memory: 32-bit addresses, pages of 64 KiB.
    pub fn new(min: u64, max: Option<u64>) -> MemoryType {
        MemoryType { min, max, page_bytes_log2: 16, index64: false, shared: false }
    }

    /// Bytes of one page.
    pub fn page_bytes(&self) -> u64 {
        1 << self.page_bytes_log2
    }
}

/// The type of a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TableType {
    /// The type of its elements, a reference type.
    pub element: ValType,
    /// Elements at the start.
    pub min: u64,
    /// Elements at most, if the module says so.
    pub max: Option<u64>,
    /// Whether indices and sizes are 64-bit.
    pub index64: bool,
}

impl TableType {
    /// A table with 32-bit indices.
    pub fn new(element: ValType, min: u64, max: Option<u64>) -> TableType {
        TableType { element, min, max, index64: false }
    }
}

/// The type of anything that can be imported or exported.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ExternType {
    /// A function.
    Func(FuncType),
    /// A table.
    Table(TableType),
    /// A linear memory.
    Memory(MemoryType),
    /// A global.
    Global(GlobalType),
    /// An exception tag; the parameters are the types of what its exceptions carry.
    Tag(FuncType),
}

impl fmt::Display for ExternType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = |min: u64, max: Option<u64>| match max {
            Some(max) => format!("{min}..={max}"),
            None => format!("{min}.."),
        };
        let wide = |index64: bool| if index64 { "64-bit " } else { "" };
        match self {
            ExternType::Func(ty) => write!(f, "function {ty}"),
            ExternType::Table(ty) => write!(f, "{}table of {} {}", wide(ty.index64), limits(ty.min, ty.max), ty.element),
            ExternType::Memory(ty) => {
                let shared = if ty.shared { "shared " } else { "" };
                write!(f, "{shared}{}memory of {} pages", wide(ty.index64), limits(ty.min, ty.max))?;
                if ty.page_bytes_log2 == 16 { Ok(()) } else { write!(f, " of {} bytes", ty.page_bytes()) }
            }
            ExternType::Tag(ty) => write!(f, "tag {ty}"),
            ExternType::Global(ty) => write!(f, "{} global {}", if ty.mutable { "mutable" } else { "constant" }, ty.content),
        }
    }
}

/// Something that a store owns and that an instance imports or exports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Extern {
    /// A function.
    Func(FuncId),
    /// A table.
    Table(TableId),
    /// A linear memory.
    Memory(MemoryId),
    /// A global.
    Global(GlobalId),
    /// An exception tag.
    Tag(TagId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_bits_round_trip() {
        let values = [
            Val::I32(-1),
            Val::I32(i32::MIN),
            Val::I64(i64::MIN),
            Val::F32(0x7fa0_0001),
            Val::F64(0xfff0_0000_0000_0001),
            Val::FuncRef(None),
            Val::FuncRef(Some(FuncId(0))),
            Val::FuncRef(Some(FuncId(u32::MAX - 1))),
            Val::ExternRef(None),
            Val::ExternRef(Some(u32::MAX)),
            Val::ExnRef(None),
            Val::ExnRef(Some(ExnId(0))),
            Val::ExnRef(Some(ExnId((1 << 48) - 1))),
        ];
        for value in values {
            assert_eq!(Val::from_raw(value.ty(), value.raw()), value);
            assert_eq!(Val::from_bits(value.ty(), value.bits()), value);
        }
        assert_eq!(Val::I32(-1).raw(), 0xffff_ffff, "32-bit values are zero-extended");
    }

    #[test]
    fn references_to_exceptions_have_precise_types() {
        let types = [ValType::ExnRef, ValType::SomeExnRef, ValType::NullExnRef, ValType::NoExnRef];
        let of = |value: Val| types.map(|ty| value.is_of(ty));
        assert_eq!(of(Val::ExnRef(None)), [true, false, true, false]);
        assert_eq!(of(Val::ExnRef(Some(ExnId(3)))), [true, true, false, false]);
        let below = |ty: ValType| types.map(|other| other.is_subtype_of(ty));
        assert_eq!(below(ValType::ExnRef), [true; 4]);
        assert_eq!(below(ValType::SomeExnRef), [false, true, false, true]);
        assert_eq!(below(ValType::NullExnRef), [false, false, true, true]);
        assert!(!ValType::FuncRef.is_subtype_of(ValType::ExnRef) && !ValType::NoExnRef.is_subtype_of(ValType::FuncRef));
    }

    #[test]
    fn references_to_functions_have_precise_types() {
        let of = |params: &[ValType]| FuncTypeRef::new(&FuncType::new(params.iter().copied(), []));
        let (a, b) = (of(&[]), of(&[ValType::I32]));
        let types = [
            ValType::FuncRef, ValType::SomeFuncRef, ValType::TypedFuncRef(a), ValType::SomeTypedFuncRef(a), ValType::TypedFuncRef(b),
            ValType::ExternRef, ValType::SomeExternRef,
        ];
        let below = |ty: ValType| types.map(|other| u8::from(other.is_subtype_of(ty)));
        assert_eq!(below(types[0]), [1, 1, 1, 1, 1, 0, 0]);
        assert_eq!(below(types[1]), [0, 1, 0, 1, 0, 0, 0]);
        assert_eq!(below(types[2]), [0, 0, 1, 1, 0, 0, 0]);
        assert_eq!(below(types[3]), [0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(below(types[5]), [0, 0, 0, 0, 0, 1, 1]);
        let is_of = |value: Val| types.map(|ty| u8::from(value.is_of(ty)));
        assert_eq!(is_of(Val::FuncRef(None)), [1, 0, 1, 0, 1, 0, 0]);
        assert_eq!(is_of(Val::FuncRef(Some(FuncId(0)))), [1, 1, 0, 0, 0, 0, 0], "its type is the store's to know");
        assert_eq!(is_of(Val::ExternRef(None)), [0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(is_of(Val::ExternRef(Some(7))), [0, 0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn vectors_take_two_slots() {
        let values = [Val::I32(-1), Val::V128(7 << 100 | 5), Val::V128(u128::MAX), Val::I64(3)];
        let types = values.map(Val::ty);
        let slots = Val::to_slots(&values);
        assert_eq!(slots, [0xffff_ffff, 5, 7 << 36, u64::MAX, u64::MAX, 3]);
        assert_eq!((slots_of(&types) as usize, Val::from_slots(&types, &slots)), (slots.len(), values.to_vec()));
        assert_eq!(Val::V128(1 << 64 | 2).raw(), 2, "the lower half");
    }

    #[test]
    fn function_types_compare_by_structure() {
        let ty = |p: &[ValType], r: &[ValType]| FuncType::new(p.iter().copied(), r.iter().copied());
        assert_eq!(ty(&[ValType::I32], &[]), ty(&[ValType::I32], &[]));
        assert_ne!(ty(&[ValType::I32], &[]), ty(&[], &[ValType::I32]));
        assert_eq!(ty(&[ValType::I32, ValType::F64], &[ValType::FuncRef]).to_string(), "[i32 f64] -> [funcref]");
    }
}
