//! The second seam: where the state of a running program lives.

/// Decides where linear memory's bytes are read from and written to. [`Committed`] is the plain case; a speculative region's
/// overlay and the base shared with workers are further views of the same handlers.
pub trait StateView {
    /// Reads `N` bytes at address `at` of the memory at `base`.
    ///
    /// # Safety
    /// `at + N` must not exceed the memory's length.
    unsafe fn load<const N: usize>(base: *mut u8, at: usize) -> [u8; N];

    /// Writes `bytes` at address `at` of the memory at `base`.
    ///
    /// # Safety
    /// `at + N` must not exceed the memory's length.
    unsafe fn store<const N: usize>(base: *mut u8, at: usize, bytes: [u8; N]);
}

/// The committed state, owned by one thread: plain accesses.
#[derive(Clone, Copy, Debug)]
pub struct Committed;

impl StateView for Committed {
    #[inline(always)]
    unsafe fn load<const N: usize>(base: *mut u8, at: usize) -> [u8; N] {
        // SAFETY: in bounds by the caller's promise; byte arrays have no alignment.
        unsafe { base.add(at).cast::<[u8; N]>().read() }
    }

    #[inline(always)]
    unsafe fn store<const N: usize>(base: *mut u8, at: usize, bytes: [u8; N]) {
        // SAFETY: as above.
        unsafe { base.add(at).cast::<[u8; N]>().write(bytes) }
    }
}
