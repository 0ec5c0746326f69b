//! One table of references.

use crate::config::Limits;
use crate::error::Error;
use crate::value::TableType;

/// A table. Elements are raw references: 0 is null, anything else is a number plus 1 (see [`Val::raw`](crate::Val::raw)).
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The elements.
    pub(crate) elems: Vec<u64>,
    /// The type that it was made with; imports are checked against it.
    pub(crate) ty: TableType,
    /// Size beyond which growth fails: the smaller of the type's maximum and the limit.
    pub(crate) max: u64,
}

impl Table {
    /// A table of `ty.min` elements that all hold the raw reference `init`, which is of the right type or will be replaced before anybody
    /// looks.
    ///
    /// # Errors
    /// When the minimum exceeds the limit or there is no memory.
    pub(crate) fn filled(ty: TableType, init: u64, limits: &Limits) -> Result<Table, Error> {
        let limit = limits.table_elements_max.min(u64::from(u32::MAX));
        let too_large = || Error::Limit {
            what: "a table's initial size in elements".into(),
            wanted: ty.min,
            limit,
            knob: "the table limit",
        };
        let mut table = Table { elems: Vec::new(), ty, max: ty.max.unwrap_or(u64::MAX).min(limit) };
        table.grow(ty.min, init).ok_or_else(too_large)?;
        Ok(table)
    }

    /// Grows by `delta` elements that hold `init`, and returns the former size, or `None` when that exceeds a maximum or there
    /// is no memory.
    pub(crate) fn grow(&mut self, delta: u64, init: u64) -> Option<u64> {
        let previous = self.elems.len() as u64;
        let size = previous.checked_add(delta).filter(|&size| size <= self.max)? as usize;
        self.elems.try_reserve(size - self.elems.len()).ok()?;
        self.elems.resize(size, init);
        Some(previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::ValType;

    #[test]
    fn growth_stops_at_the_smaller_maximum() {
        let limits = Limits { table_elements_max: 10, ..Limits::default() };
        let make = |min, max| Table::filled(TableType::new(ValType::FuncRef, min, max), 0, &limits);
        let mut table = make(1, Some(3)).unwrap();
        assert_eq!((table.grow(2, 5), table.grow(1, 5)), (Some(1), None));
        assert_eq!(table.elems, [0, 5, 5]);
        let mut table = make(1, None).unwrap();
        assert_eq!((table.grow(9, 0), table.grow(1, 0), table.grow(u64::MAX, 0)), (Some(1), None, None));
        assert!(matches!(make(11, None), Err(Error::Limit { wanted: 11, limit: 10, .. })));
    }
}
