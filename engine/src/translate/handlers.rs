//! Where a function's exceptions are caught: a table beside its code, which costs nothing while nobody throws.

use std::ops::Range;

use super::code::Pos;
use crate::mutants::mutant;

/// What catches exceptions in one function. Positions are word indices of its code.
#[derive(Default, Debug)]
pub(crate) struct Handlers {
    /// Bodies of `try` and `try_table`, in the order in which they begin.
    pub(super) regions: Vec<Region>,
    /// Tail calls in them: a host function that is called so is outside of the frame.
    pub(super) outside: Vec<Range<Pos>>,
    /// Whether slots here may hold results of units.
    pub(super) follows_results: bool,
}

/// The code of one body. Two are apart, or one is inside the other.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) code: Range<Pos>,
    /// The region that has its turn when no clause of this one fits.
    pub(super) outer: Option<u32>,
    pub(super) clauses: Vec<Clause>,
    /// The innermost loop around it that reports its iterations, by ordinal.
    pub(super) in_loop: Option<u32>,
}

/// One clause that catches.
#[derive(Clone, Debug)]
pub(crate) struct Clause {
    /// The module's tag; `None` for all.
    pub(crate) tag: Option<u32>,
    /// First slot of the values that the exception carries, if its tag is known.
    pub(crate) payload: u32,
    /// Slot of a reference to the exception.
    pub(crate) reference: Option<u32>,
    /// Where the code goes on.
    pub(crate) target: Pos,
    /// Loops that are left by the branch there and report it, innermost first, by ordinal.
    pub(crate) exits: Vec<u32>,
}

/// The clause that catches, and what a probe wants to know.
#[derive(Clone, Debug)]
pub(crate) struct Catch {
    pub(crate) clause: Clause,
    /// The innermost loop that reports its iterations and is not left by the exception itself.
    pub(crate) in_loop: Option<u32>,
    pub(crate) follows_results: bool,
}

impl Handlers {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// The clause that catches what is thrown at this position, if `fits` says so of its tag.
    pub(crate) fn find(&self, at: Pos, fits: impl Fn(u32) -> bool) -> Option<Catch> {
        if self.outside.iter().any(|code| code.contains(&at)) {
            return None;
        }
        // Regions nest, and begin in order: of those that hold a place the last one is the innermost.
        let begun = self.regions.partition_point(|region| region.code.start + u32::from(mutant!(RegionStartMissed)) <= at);
        let innermost = self.regions[..begun].iter().rposition(|region| region.code.contains(&at));
        let mut next = innermost.map(|index| index as u32);
        while let Some(index) = next {
            let region = &self.regions[index as usize];
            mutant! { ClausesLastFirst: if let Some(clause) = region.clauses.iter().rfind(|clause| clause.tag.is_none_or(&fits)) {
                return Some(Catch { clause: clause.clone(), in_loop: region.in_loop, follows_results: self.follows_results });
            } }
            if let Some(clause) = region.clauses.iter().find(|clause| clause.tag.is_none_or(&fits)) {
                return Some(Catch { clause: clause.clone(), in_loop: region.in_loop, follows_results: self.follows_results });
            }
            next = region.outer.filter(|_| !mutant!(OuterRegionLost));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_clause_that_fits_catches() {
        let clause = |tag, target| Clause { tag, payload: 0, reference: None, target, exits: Vec::new() };
        let region = |code, outer, clauses| Region { code, outer, clauses, in_loop: None };
        let handlers = Handlers {
            regions: vec![
                region(10..90, None, vec![clause(Some(1), 100), clause(None, 101)]),
                region(20..40, Some(0), vec![clause(Some(2), 102)]),
                // A `try` that delegates to the function's caller.
                region(50..60, None, Vec::new()),
                region(60..60, Some(0), vec![clause(None, 103)]),
            ],
            outside: Vec::from([Range { start: 30, end: 33 }]),
            follows_results: false,
        };
        let check = |at, tag, target| assert_eq!(handlers.find(at, |t| t == tag).map(|c| c.clause.target), target, "{at} {tag}");
        check(9, 1, None);
        check(10, 1, Some(100));
        check(10, 2, Some(101));
        check(20, 2, Some(102));
        check(29, 1, Some(100));
        check(30, 2, None);
        check(33, 2, Some(102));
        check(40, 2, Some(101));
        check(50, 1, None);
        check(60, 1, Some(100));
        check(89, 7, Some(101));
        check(90, 1, None);
    }
}
