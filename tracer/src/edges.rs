//! An edge as it lies in the temporary file of a trace that does not fit into memory (see `spill.rs`).

use crate::edge::{EdgeClass, EdgeKind};
use crate::spill::{Record, Spill, SpillReader};
use crate::trace::Edge;

/// Edges that are held in memory at most, unless the file cannot be written: 5 MiB.
pub(crate) const HELD_MAX: usize = 1 << 18;
/// Bytes of an edge in the file.
const BYTES: usize = 20;

/// All edges of a trace, in node order; a node's are never torn.
pub(crate) type Edges = Spill<Edge, BYTES>;
/// Reads the edges of nodes.
pub(crate) type EdgeReader<'a> = SpillReader<'a, Edge, BYTES>;

impl Record<BYTES> for Edge {
    fn to_bytes(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        for (i, word) in [self.from, self.from_site, self.to_site, self.object].into_iter().enumerate() {
            bytes[4 * i..4 * i + 4].copy_from_slice(&word.to_le_bytes());
        }
        (bytes[16], bytes[17]) = (self.kind as u8, self.class as u8);
        bytes[18..].copy_from_slice(&self.place.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; BYTES]) -> Option<Edge> {
        let word = |i: usize| u32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]);
        Some(Edge {
            from: word(0),
            from_site: word(1),
            to_site: word(2),
            object: word(3),
            kind: EdgeKind::from_number(bytes[16])?,
            class: EdgeClass::from_number(bytes[17])?,
            place: u16::from_le_bytes([bytes[18], bytes[19]]),
        })
    }
}
