//! What an access to memory brings: its class, its flags, and who owns the stack there.

use worksp_engine::probe::SiteId;

use crate::allocator::Allocator;
use crate::cell::{Granule, IN_ALLOCATOR};
use crate::edge::EdgeClass;
use crate::layout::Layout;
use crate::segments::Access;
use crate::stack::Frames;

/// What an access to memory looks up.
pub(super) struct View<'a> {
    pub(super) site: SiteId,
    pub(super) mem: u32,
    /// Flags of all of its cells; `None` for the guest's own code, whose flags depend on the address.
    pub(super) flags: Option<u8>,
    pub(super) granule: Granule,
    /// The stack pointer with which the segment started.
    pub(super) sp: u64,
    pub(super) allocator: &'a Allocator,
    pub(super) layout: &'a Layout,
    pub(super) frames: &'a Frames,
    /// Who owned the first and the last cell of a load that starts here, if it was made earlier.
    pub(super) owners: Option<(u64, [u32; 2])>,
}

impl View<'_> {
    #[inline]
    pub(super) fn access(&self, cell: u64, mask: u8) -> Access {
        let first = cell + u64::from(mask.trailing_zeros());
        let flags = match self.flags {
            Some(flags) => flags,
            None if self.allocator.is_inside() && self.allocator.is_allocators(first) => IN_ALLOCATOR,
            None => 0,
        };
        let region = self.layout.region(self.mem, cell);
        let (object, place) = (cell as u32, self.mem as u16);
        Access { flags, site: self.site.0, region, object, place, dead: false, owned_since: 0 }
    }

    #[inline]
    pub(super) fn read_access(&self, cell: u64, mask: u8) -> Access {
        let mut to = self.access(cell, mask);
        if to.region == EdgeClass::Stack {
            let last = cell + u64::from(7 - mask.leading_zeros());
            to.dead = (last | u64::from(self.granule.bytes() - 1)) < self.sp;
            to.owned_since = match self.owners {
                Some((start, owners)) => owners[usize::from(cell > start)],
                None => self.frames.owned_since(cell + u64::from(mask.trailing_zeros())),
            };
        }
        to
    }

    /// Whether a read outside of the allocator touches a byte that was freed.
    pub(super) fn is_freed_read(&self, to: &Access, cell: u64, mask: u8) -> bool {
        let bytes = cell + u64::from(mask.trailing_zeros())..cell + u64::from(8 - mask.leading_zeros());
        self.mem == 0 && to.region == EdgeClass::Heap && to.flags & IN_ALLOCATOR == 0 && self.allocator.is_freed(&bytes)
    }
}
