//! One linear memory: reserved address space that never moves, of which a prefix is accessible.

use std::ffi::c_void;
use std::ptr::NonNull;

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::pwrite;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

use crate::config::Limits;
use crate::error::Error;
use crate::mutants::{MUTANTS, mutant};
use crate::value::MemoryType;

/// Bytes of one WebAssembly page, unless a memory's type has another size.
pub const PAGE_BYTES: u64 = 1 << 16;

/// Access rights change in multiples of this many bytes, which every system's pages divide.
const GRAIN: usize = 1 << 16;

/// Accessible bytes behind a memory: mutants that look there find something.
const BEHIND: usize = if MUTANTS { GRAIN } else { 0 };

/// Pages of the largest memory of a type.
fn pages_max(ty: &MemoryType) -> u64 {
    let bytes = if ty.index64 { 1u128 << 64 } else { 1 << 32 };
    let most = if ty.index64 { u64::MAX } else { u64::from(u32::MAX) };
    u64::try_from(bytes >> ty.page_bytes_log2).map_or(most, |pages| pages.min(most))
}

/// A linear memory. `base..base + reserved` is address space of ours; `base..base + len` can be read and written.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Where the memory starts; fixed for its lifetime.
    pub(crate) base: NonNull<u8>,
    /// Accessible bytes: `pages` times the bytes of a page.
    pub(crate) len: usize,
    /// Current size.
    pub(crate) pages: u64,
    /// Size beyond which growth fails: the smaller of the type's maximum and the limit.
    pub(crate) max_pages: u64,
    /// Bytes of address space.
    pub(crate) reserved: usize,
    /// The type that it was made with; imports are checked against it.
    pub(crate) ty: MemoryType,
}

// SAFETY: the address space belongs to this value alone; access goes through `&self`/`&mut self` or through the store's own
// execution, which holds `&mut Store`.
unsafe impl Send for Memory {}
// SAFETY: as above; `&self` gives only reads.
unsafe impl Sync for Memory {}

impl Memory {
    /// A zeroed memory of `ty.min` pages.
    ///
    /// # Errors
    /// When the minimum exceeds the limit, or the system gives no address space.
    pub(crate) fn new(ty: MemoryType, limits: &Limits) -> Result<Memory, Error> {
        let page_bytes = ty.page_bytes();
        let limit_pages = (limits.memory_bytes_max / page_bytes).min(pages_max(&ty));
        if ty.min > limit_pages {
            return Err(Error::Limit {
                what: "a linear memory's initial size".into(),
                wanted: ty.min.saturating_mul(page_bytes),
                limit: limit_pages * page_bytes,
                knob: "the memory limit",
            });
        }
        let max_pages = ty.max.unwrap_or(u64::MAX).min(limit_pages);
        let bytes = max_pages * page_bytes;
        let failed = |cause: String| Error::AddressSpace { bytes, cause };
        let reserved = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_next_multiple_of(GRAIN)?.checked_add(BEHIND));
        let reserved = reserved.ok_or_else(|| failed("it is more than there is".into()))?;
        let base = reserve(reserved).map_err(|e| failed(e.to_string()))?;
        let mut memory = Memory { base, len: 0, pages: 0, max_pages, reserved, ty };
        match memory.grow(ty.min) {
            Some(_) => Ok(memory),
            None => Err(failed("the initial pages could not be made accessible".into())),
        }
    }

    /// Grows by `delta` pages and returns the former size in pages, or `None` when that exceeds a maximum or the system refuses.
    pub(crate) fn grow(&mut self, delta: u64) -> Option<u64> {
        let previous = self.pages;
        let pages = previous.checked_add(delta).filter(|&pages| pages + u64::from(mutant!(GrowMaxTight) && previous > 0 && delta > 0) <= self.max_pages)?;
        let len = (pages * self.ty.page_bytes()) as usize;
        let (open, needed) = (self.len.next_multiple_of(GRAIN), len.next_multiple_of(GRAIN) + BEHIND);
        if needed > open {
            let flags = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: `open..needed` lies in the reservation, which has as much behind such a multiple, because `pages <= max_pages`, and
            // nothing refers to it yet.
            unsafe { mprotect(self.base.as_ptr().add(open).cast::<c_void>(), needed - open, flags).ok()? };
        }
        self.pages = pages;
        self.len = len;
        Some(previous)
    }

    /// A copy of the contents that any number of memories can share.
    ///
    /// # Errors
    /// When the system gives no file in memory.
    pub(crate) fn copy(&self) -> Result<SharedCopy, Error> {
        let failed = |cause: rustix::io::Errno| Error::AddressSpace { bytes: self.len as u64, cause: cause.to_string() };
        let file = memfd_create("worksp-memory", MemfdFlags::CLOEXEC).map_err(failed)?;
        ftruncate(&file, self.len as u64).map_err(failed)?;
        for (at, mut run) in self.runs() {
            let mut at = at as u64;
            while !run.is_empty() {
                let written = pwrite(&file, run, at).map_err(failed)?;
                (run, at) = (&run[written..], at + written as u64);
            }
        }
        Ok(SharedCopy { file, len: self.len, pages: self.pages, max_pages: self.max_pages, reserved: self.reserved, ty: self.ty })
    }

    /// The accessible bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `base..base + len` is mapped readable, and `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// The accessible bytes, for writing.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `base..base + len` is mapped writable, and `&mut self` excludes everybody else.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

/// The contents of a memory at one time, in a file that has no name. What is zero takes no space.
#[derive(Debug)]
pub(crate) struct SharedCopy {
    file: OwnedFd,
    len: usize,
    pages: u64,
    max_pages: u64,
    reserved: usize,
    ty: MemoryType,
}

impl SharedCopy {
    /// A memory with these contents: a page of it becomes its own with the first write there.
    ///
    /// # Errors
    /// When the system gives no address space.
    pub(crate) fn memory(&self) -> Result<Memory, Error> {
        let failed = |cause: rustix::io::Errno| Error::AddressSpace { bytes: self.reserved as u64, cause: cause.to_string() };
        let SharedCopy { len, pages, max_pages, reserved, ty, .. } = *self;
        let base = reserve(reserved).map_err(failed)?;
        let memory = Memory { base, len, pages, max_pages, reserved, ty };
        let open = len.next_multiple_of(GRAIN) + BEHIND;
        if open > 0 {
            // As after growth: up to the next multiple, not only where the file is.
            // SAFETY: `0..open` lies in the reservation, and nothing refers to it yet.
            unsafe { mprotect(base.as_ptr().cast::<c_void>(), open, MprotectFlags::READ | MprotectFlags::WRITE).map_err(failed)? };
        }
        if len > 0 {
            let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE);
            // SAFETY: `len` bytes of our own fresh reservation are replaced; nobody else has the file, so that nothing ever writes to it.
            unsafe { mmap(base.as_ptr().cast::<c_void>(), len, access, flags, &self.file, 0).map_err(failed)? };
        }
        Ok(memory)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.reserved > 0 {
            // SAFETY: the mapping is ours, made in `reserve` with this size; nobody can refer to it any more.
            let unmapped = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.reserved) };
            debug_assert!(unmapped.is_ok(), "unmapping a whole mapping of ours cannot fail");
        }
    }
}

/// Address space without access rights; a dangling, aligned pointer for 0 bytes.
fn reserve(bytes: usize) -> rustix::io::Result<NonNull<u8>> {
    if bytes == 0 {
        return Ok(NonNull::<u64>::dangling().cast());
    }
    // SAFETY: a fresh anonymous mapping at an address that the system chooses disturbs nothing.
    let base = unsafe {
        mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)?
    };
    Ok(NonNull::new(base.cast::<u8>()).expect("the system never maps anonymous memory at address 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(min: u64, max: Option<u64>, limit: u64) -> Result<Memory, Error> {
        Memory::new(MemoryType::new(min, max), &Limits { memory_bytes_max: limit, ..Limits::default() })
    }

    #[test]
    fn growth_keeps_contents_and_place() {
        let mut memory = memory(1, Some(3), u64::MAX).unwrap();
        let base = memory.base;
        memory.bytes_mut()[65535] = 7;
        assert_eq!(memory.grow(2), Some(1));
        assert_eq!((memory.bytes()[65535], memory.bytes()[65536], memory.bytes().len()), (7, 0, 3 << 16));
        assert_eq!(memory.base, base);
        assert_eq!(memory.grow(1), None);
        assert_eq!(memory.grow(u64::MAX), None);
        assert_eq!(memory.grow(0), Some(3));
    }

    #[test]
    fn copies_grow_by_bytes() {
        // Found by a campaign: smith-1-2026-9051, in pieces. Whatever is accessible in a memory must be so in a copy.
        let of_bytes = MemoryType { page_bytes_log2: 0, ..MemoryType::new(15_093, Some(46_076)) };
        let mut memory = Memory::new(of_bytes, &Limits::default()).unwrap();
        for by in [13_446, 1, 17_536] {
            let mut copy = memory.copy().unwrap().memory().unwrap();
            assert_eq!(copy.grow(by), memory.grow(by));
            copy.bytes_mut().fill(1);
            memory.bytes_mut().fill(1);
            assert_eq!(copy.bytes(), memory.bytes());
        }
    }

    #[test]
    fn limits_bind_before_anything_is_reserved() {
        assert!(matches!(memory(2, None, 1 << 16), Err(Error::Limit { wanted: 131_072, limit: 65_536, .. })));
        assert!(matches!(memory(u64::MAX, None, u64::MAX), Err(Error::Limit { .. })));
        let mut small = memory(0, None, (2 << 16) + 5).unwrap();
        assert_eq!((small.grow(2), small.grow(1)), (Some(0), None));
        let of_bytes = MemoryType { page_bytes_log2: 0, ..MemoryType::new(65_535, None) };
        let mut bytes = Memory::new(of_bytes, &Limits { memory_bytes_max: 65_537, ..Limits::default() }).unwrap();
        assert_eq!((bytes.bytes().len(), bytes.grow(1), bytes.grow(1), bytes.grow(1)), (65_535, Some(65_535), Some(65_536), None));
        bytes.bytes_mut()[65_536] = 1;
        let mut empty = memory(0, Some(0), 1 << 20).unwrap();
        assert_eq!((empty.bytes().len(), empty.grow(0), empty.grow(1)), (0, Some(0), None));
    }
}
