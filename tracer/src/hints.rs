//! Hints to the processor and to the kernel, which change how long something takes and nothing else.

#![allow(unsafe_code)]

use std::ffi::c_void;

use rustix::mm::{Advice, madvise};

/// Lists of fewer bytes are not worth large pages.
const LARGE_MIN: usize = 2 << 20;
const PAGE: usize = 4096;

/// Begins to fetch the cache line of a value, and does not wait for it.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program can see, and the address is a reference's.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// Appends a value to a list that may become large.
#[inline(always)]
pub fn push_large<T>(list: &mut Vec<T>, value: T) {
    if list.len() == list.capacity() {
        grow(list);
    }
    list.push(value);
}

#[cold]
#[inline(never)]
fn grow<T>(list: &mut Vec<T>) {
    list.reserve(list.len().max(16));
    ask_for_large_pages(list);
}

/// A list with room for this many values that is filled from the start. Room that is never used takes no memory.
pub fn large_list<T>(capacity: usize) -> Vec<T> {
    let mut list = Vec::with_capacity(capacity);
    ask_for_large_pages(&mut list);
    list
}

/// Has the kernel back a list with large pages, if it likes: that takes one fault where small ones take 512, which is what filling a
/// list mostly costs.
fn ask_for_large_pages<T>(list: &mut Vec<T>) {
    let start = list.as_mut_ptr().cast::<u8>();
    let bytes = list.capacity() * size_of::<T>();
    let before = start.align_offset(PAGE);
    if bytes >= LARGE_MIN + PAGE {
        let len = (bytes - before) / PAGE * PAGE;
        // A kernel without large pages says so; then there are small ones.
        // SAFETY: this advice changes no byte of the range, which is whole pages of the list's own.
        let _ = unsafe { madvise(start.add(before).cast::<c_void>(), len, Advice::LinuxHugepage) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_lists_hold_what_was_pushed() {
        for mut list in [Vec::new(), large_list(1 << 20)] {
            (0..1u64 << 20).for_each(|n| push_large(&mut list, n));
            assert!(list.iter().copied().eq(0..1 << 20));
        }
    }
}
