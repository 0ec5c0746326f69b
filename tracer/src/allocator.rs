//! Allocator entry points by name, and the blocks that live between them.
//!
//! ```text
//!        alloc returns                  free is called
//! freed ───────────────► live block ───────────────────► freed
//!                         │      ▲
//!                         └──────┘ realloc in place; elsewhere, the old block is freed and a new one lives
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use worksp_engine::Module;

/// What an entry point does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// Hands out a block.
    Alloc,
    /// Hands out a block that it cleared: its accesses to the block are the program's.
    AllocZeroed,
    /// Gives up a block.
    Free,
    /// Moves a block or changes its size: its accesses to the block are the program's.
    Realloc,
    /// Hands out a block through a pointer to memory (`posix_memalign`): known when it calls another entry point for it.
    AllocIndirect,
    /// Looks at the allocator's own state, or tidies it up (`malloc_usable_size`, `malloc_trim`).
    Inspect,
}

/// An allocator entry point: what it does and which parameters say how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryPoint {
    /// What it does.
    pub kind: EntryKind,
    /// The parameter that holds the block, for `Free` and `Realloc`.
    pub block: usize,
    /// The parameters whose product is the size.
    pub size: &'static [usize],
}

const fn entry(kind: EntryKind, block: usize, size: &'static [usize]) -> EntryPoint {
    EntryPoint { kind, block, size }
}

/// The C names, each also with the prefixes of [`PREFIXES`].
const C_NAMES: &[(&str, EntryPoint)] = &[
    ("malloc", entry(EntryKind::Alloc, 0, &[0])),
    ("calloc", entry(EntryKind::AllocZeroed, 0, &[0, 1])),
    ("realloc", entry(EntryKind::Realloc, 0, &[1])),
    ("free", entry(EntryKind::Free, 0, &[])),
    ("aligned_alloc", entry(EntryKind::Alloc, 0, &[1])),
    ("memalign", entry(EntryKind::Alloc, 0, &[1])),
    ("posix_memalign", entry(EntryKind::AllocIndirect, 0, &[2])),
    ("malloc_usable_size", entry(EntryKind::Inspect, 0, &[])),
    ("malloc_trim", entry(EntryKind::Inspect, 0, &[])),
];
const PREFIXES: &[&str] = &["", "dl", "__libc_", "__", "emmalloc_"];

/// Rust's names, which stand in mangled ones too.
const RUST_NAMES: &[(&str, EntryPoint)] = &[
    ("__rust_alloc_zeroed", entry(EntryKind::AllocZeroed, 0, &[0])),
    ("__rust_alloc", entry(EntryKind::Alloc, 0, &[0])),
    ("__rust_dealloc", entry(EntryKind::Free, 0, &[])),
    ("__rust_realloc", entry(EntryKind::Realloc, 0, &[3])),
];

impl EntryPoint {
    /// The entry point that a function's name stands for.
    pub fn of_name(name: &str) -> Option<EntryPoint> {
        for prefix in PREFIXES {
            let Some(rest) = name.strip_prefix(prefix) else { continue };
            if let Some((_, entry)) = C_NAMES.iter().find(|(n, _)| *n == rest) {
                return Some(*entry);
            }
        }
        let found = RUST_NAMES.iter().find(|(rust, _)| {
            let Some(at) = name.find(rust) else { return false };
            let after = name[at + rust.len()..].chars().next();
            // A longer word, such as `__rust_alloc_error_handler`, is another function; a hash may follow.
            !after.is_some_and(|c| c == '_' || (c.is_ascii_alphabetic() && c != 'E'))
        });
        found.map(|(_, entry)| *entry)
    }

    fn size_of(&self, args: &[u64]) -> u64 {
        self.size.iter().map(|&i| args.get(i).copied().unwrap_or(0)).fold(1, u64::saturating_mul)
    }
}

/// The entry points of a module, by function index.
#[derive(Clone, Default, Debug)]
pub struct EntryPoints {
    by_func: FxHashMap<u32, EntryPoint>,
    names: Vec<String>,
}

impl EntryPoints {
    /// Finds them by name. `overrides` adds functions of other names: (what it does, its name), such as `malloc`, `my_alloc`.
    pub fn of_module(module: &Module, overrides: &[(String, String)]) -> EntryPoints {
        let mut found = EntryPoints::default();
        for func in module.imported_func_count()..module.func_count() {
            let name = module.func_name(func);
            let known = overrides.iter().find(|(_, theirs)| *theirs == name).map_or(name.as_str(), |(does, _)| does);
            found.insert(func, &name, EntryPoint::of_name(known));
        }
        for export in module.exports() {
            if let worksp_engine::ExportItem::Func(func) = export.item {
                found.insert(func, &export.name, EntryPoint::of_name(&export.name));
            }
        }
        found
    }

    /// Adds one by hand.
    pub fn insert(&mut self, func: u32, name: &str, entry: Option<EntryPoint>) {
        if let Some(entry) = entry
            && self.by_func.insert(func, entry).is_none()
        {
            self.names.push(name.to_owned());
        }
    }

    /// Their names, in the order in which they were found.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Their functions.
    pub fn funcs(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_func.keys().copied()
    }

    /// The entry point that a function is.
    pub fn get(&self, func: u32) -> Option<EntryPoint> {
        self.by_func.get(&func).copied()
    }
}

/// What becomes of the shadow when an entry point is called or returns, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LifeChange {
    /// A block was given up: what is known about its bytes belongs to an earlier life.
    Ends(Range<u64>),
    /// A block begins: likewise, but what the entry point wrote into it begins its life. `programs_own`: those writes count as
    /// made outside of the allocator.
    Begins {
        /// The block.
        block: Range<u64>,
        /// See above.
        programs_own: bool,
    },
}

#[derive(Clone, Debug)]
struct Call {
    entry: EntryPoint,
    block: u64,
    size: u64,
}

/// Blocks, and the calls of entry points that are open.
#[derive(Default, Debug)]
pub(crate) struct Allocator {
    calls: Vec<Call>,
    sizes: FxHashMap<u64, u64>,
    freed: BTreeMap<u64, u64>,
    /// What the outermost open call wrote.
    log: Vec<Range<u64>>,
    /// Ranges whose accesses count as the program's while a `calloc` or `realloc` is outermost.
    payload: SmallVec<[Range<u64>; 2]>,
    /// The block that a nested entry point handed out last, for `AllocIndirect`.
    nested: Option<(u64, u64)>,
}

impl Allocator {
    /// Whether an entry point is open.
    #[inline(always)]
    pub fn is_inside(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Whether an access to `address`, made while an entry point is open, counts as the allocator's own.
    pub fn is_allocators(&self, address: u64) -> bool {
        !self.payload.iter().any(|p| p.contains(&address))
    }

    /// An entry point was called.
    pub fn called(&mut self, entry: EntryPoint, args: &[u64]) -> SmallVec<[LifeChange; 2]> {
        let mut changes = SmallVec::new();
        let has_block = matches!(entry.kind, EntryKind::Free | EntryKind::Realloc);
        let block = if has_block { args.get(entry.block).copied().unwrap_or(0) } else { 0 };
        if self.calls.is_empty() {
            self.log.clear();
            self.payload.clear();
            self.nested = None;
        }
        match entry.kind {
            EntryKind::Free => changes.extend(self.give_up(block)),
            EntryKind::Realloc if self.calls.is_empty() => {
                if let Some(size) = self.sizes.get(&block) {
                    self.payload.push(block..block + size);
                }
            }
            _ => {}
        }
        self.calls.push(Call { entry, block, size: entry.size_of(args) });
        changes
    }

    /// The innermost open entry point returned.
    pub fn returned(&mut self, results: &[u64]) -> SmallVec<[LifeChange; 2]> {
        let mut changes = SmallVec::new();
        let Some(call) = self.calls.pop() else { return changes };
        let outermost = self.calls.is_empty();
        let result = results.first().copied().unwrap_or(0);
        let outer_kind = self.calls.first().map_or(call.entry.kind, |outer| outer.entry.kind);
        let programs_own = matches!(outer_kind, EntryKind::AllocZeroed | EntryKind::Realloc);
        let (block, size) = match call.entry.kind {
            EntryKind::Free | EntryKind::Inspect => return changes,
            EntryKind::AllocIndirect => match self.nested {
                Some((block, _)) if result == 0 => (block, call.size),
                _ => return changes,
            },
            EntryKind::Realloc if result == call.block && result != 0 && outermost => {
                return self.resized(result, call.size, programs_own);
            }
            // The outer entry point decides whether the block stays where it is.
            EntryKind::Realloc if result == call.block => return changes,
            EntryKind::Realloc if outermost && (result != 0 || call.size == 0) => {
                changes.extend(self.give_up(call.block));
                (result, call.size)
            }
            _ => (result, call.size),
        };
        if block == 0 {
            return changes;
        }
        let range = block..block.saturating_add(size);
        if outermost {
            self.sizes.insert(block, size);
            self.unfree(&range);
        } else {
            self.nested = Some((block, size));
            if programs_own {
                self.payload.push(range.clone());
            }
        }
        changes.push(LifeChange::Begins { block: range, programs_own: outermost && programs_own });
        changes
    }

    /// The innermost open entry point was unwound: nothing is known about what it did.
    pub fn unwound(&mut self) {
        self.calls.pop();
    }

    /// Notes a write made while an entry point is open.
    pub fn wrote(&mut self, range: Range<u64>) {
        match self.log.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.log.push(range),
        }
    }

    /// The bytes of an eight-byte cell that the outermost open call has written.
    pub fn written_in(&self, cell: u64) -> u8 {
        let mut mask = 0u8;
        for range in &self.log {
            for byte in range.start.max(cell)..range.end.min(cell + 8) {
                mask |= 1 << (byte - cell);
            }
        }
        mask
    }

    /// Whether a byte in the range was given up and not handed out again.
    pub fn is_freed(&self, range: &Range<u64>) -> bool {
        self.freed.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }

    fn resized(&mut self, block: u64, size: u64, programs_own: bool) -> SmallVec<[LifeChange; 2]> {
        let mut changes = SmallVec::new();
        let old = self.sizes.insert(block, size).unwrap_or(0);
        if old < size {
            let grown = block + old..block + size;
            self.unfree(&grown);
            changes.push(LifeChange::Begins { block: grown, programs_own });
        } else if old > size {
            let cut = block + size..block + old;
            self.free(&cut);
            changes.push(LifeChange::Ends(cut));
        }
        changes
    }

    fn give_up(&mut self, block: u64) -> Option<LifeChange> {
        let size = self.sizes.remove(&block)?;
        let range = block..block + size;
        self.free(&range);
        self.payload.retain(|p| *p != range);
        Some(LifeChange::Ends(range))
    }

    fn free(&mut self, range: &Range<u64>) {
        if !range.is_empty() {
            self.unfree(range);
            self.freed.insert(range.start, range.end);
        }
    }

    fn unfree(&mut self, range: &Range<u64>) {
        while let Some((&start, &end)) = self.freed.range(..range.end).next_back() {
            if end <= range.start {
                return;
            }
            self.freed.remove(&start);
            if start < range.start {
                self.freed.insert(start, range.start);
            }
            if end > range.end {
                self.freed.insert(range.end, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_entry_points() {
        let kind = |name| EntryPoint::of_name(name).map(|e| e.kind);
        for (name, expect) in [
            ("malloc", Some(EntryKind::Alloc)),
            ("dlmalloc", Some(EntryKind::Alloc)),
            ("__libc_free", Some(EntryKind::Free)),
            ("calloc", Some(EntryKind::AllocZeroed)),
            ("malloc_usable_size", Some(EntryKind::Inspect)),
            ("__rust_alloc", Some(EntryKind::Alloc)),
            ("__rust_alloc_zeroed", Some(EntryKind::AllocZeroed)),
            ("_RNvCs1_7___rustc12___rust_alloc", Some(EntryKind::Alloc)),
            ("_ZN5alloc12__rust_realloc17h0123456789abcdefE", Some(EntryKind::Realloc)),
            ("__rustc::__rust_dealloc", Some(EntryKind::Free)),
            ("__rust_alloc_error_handler", None),
            ("mymalloc", None),
            ("free_list", None),
        ] {
            assert_eq!(kind(name), expect, "{name}");
        }
    }

    fn entry(name: &str) -> EntryPoint {
        EntryPoint::of_name(name).expect("a known name")
    }

    #[test]
    fn a_block_lives_from_malloc_to_free() {
        let mut a = Allocator::default();
        assert!(a.called(entry("malloc"), &[24]).is_empty());
        let begins = LifeChange::Begins { block: 64..88, programs_own: false };
        assert_eq!(a.returned(&[64]).to_vec(), [begins]);
        assert!(!a.is_freed(&(64..65)));
        assert_eq!(a.called(entry("free"), &[64]).to_vec(), [LifeChange::Ends(64..88)]);
        assert!(a.returned(&[]).is_empty());
        assert!(a.is_freed(&(80..81)) && !a.is_freed(&(88..96)) && !a.is_freed(&(0..64)));
        a.called(entry("malloc"), &[8]);
        a.returned(&[72]);
        assert!(a.is_freed(&(64..72)) && !a.is_freed(&(72..80)) && a.is_freed(&(80..81)));
    }

    #[test]
    fn realloc_in_place_keeps_the_identity() {
        let mut a = Allocator::default();
        a.called(entry("malloc"), &[16]);
        a.returned(&[64]);
        a.called(entry("realloc"), &[64, 32]);
        assert!(!a.is_allocators(64) && a.is_allocators(80));
        assert_eq!(a.returned(&[64]).to_vec(), [LifeChange::Begins { block: 80..96, programs_own: true }]);
        a.called(entry("realloc"), &[64, 8]);
        assert_eq!(a.returned(&[64]).to_vec(), [LifeChange::Ends(72..96)]);
    }

    #[test]
    fn realloc_elsewhere_ends_the_old_block() {
        let mut a = Allocator::default();
        a.called(entry("malloc"), &[16]);
        a.returned(&[64]);
        a.called(entry("realloc"), &[64, 32]);
        let changes = a.returned(&[128]).to_vec();
        assert_eq!(changes, [LifeChange::Ends(64..80), LifeChange::Begins { block: 128..160, programs_own: true }]);
    }

    #[test]
    fn what_the_entry_point_wrote_is_logged() {
        let mut a = Allocator::default();
        a.called(entry("calloc"), &[2, 8]);
        a.wrote(60..64);
        a.wrote(64..70);
        assert_eq!(a.written_in(56), 0b1111_0000);
        assert_eq!(a.written_in(64), 0b0011_1111);
    }
}
