//! Function types that reference types name, each once, so that types of values stay small and compare by address.
//!
//! They live as long as the process: programs have few, and equal ones of different modules are one.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{LazyLock, Mutex, PoisonError};

use rustc_hash::FxHashSet;

use crate::value::FuncType;

/// A function type that a reference type names. Two are equal when their types are, whatever modules and stores they come from.
#[derive(Clone, Copy)]
pub struct FuncTypeRef(&'static FuncType);

static KNOWN: LazyLock<Mutex<FxHashSet<&'static FuncType>>> = LazyLock::new(Mutex::default);

impl FuncTypeRef {
    /// The one for this type.
    pub fn new(ty: &FuncType) -> FuncTypeRef {
        // A set is whole after every single change.
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(ty) {
            return FuncTypeRef(known);
        }
        let kept: &'static FuncType = Box::leak(Box::new(ty.clone()));
        known.insert(kept);
        FuncTypeRef(kept)
    }

    /// The type.
    pub fn get(self) -> &'static FuncType {
        self.0
    }
}

impl PartialEq for FuncTypeRef {
    fn eq(&self, other: &FuncTypeRef) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for FuncTypeRef {}

impl Hash for FuncTypeRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self.0, state);
    }
}

impl fmt::Debug for FuncTypeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FuncTypeRef({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::ValType;

    #[test]
    fn equal_types_are_one() {
        let ty = |results: &[ValType]| FuncTypeRef::new(&FuncType::new([ValType::I32], results.iter().copied()));
        assert_eq!(ty(&[]), ty(&[]));
        assert_ne!(ty(&[]), ty(&[ValType::I32]));
        let of = |inner| FuncTypeRef::new(&FuncType::new([ValType::TypedFuncRef(inner)], []));
        assert_eq!(of(ty(&[])), of(ty(&[])));
        assert_ne!(of(ty(&[])), of(ty(&[ValType::I32])));
        assert_eq!(of(ty(&[])).get().to_string(), "[(ref null func [i32] -> [])] -> []");
    }
}
