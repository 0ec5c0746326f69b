//! The edges of a trace, in node order, within a bound of memory: what does not fit goes to a temporary file without a name.
//!
//! ```text
//! file [0 ─────────── spilled)   held [spilled ─── len)      a node's edges are never torn: spilling happens between nodes
//! ```

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::edge::{EdgeClass, EdgeKind};
use crate::trace::Edge;

/// Edges that are held in memory at most, unless the file cannot be written: 60 MiB.
const HELD_MAX: usize = 3 << 20;
/// Bytes of an edge in the file.
const BYTES: usize = 20;
/// Edges that a reader fetches at a time: 1.25 MiB.
const BLOCK: u64 = 1 << 16;

/// All edges of a trace.
#[derive(Debug)]
pub(crate) struct Edges {
    held: Vec<Edge>,
    spilled: u64,
    file: Option<File>,
    held_max: usize,
}

impl Default for Edges {
    fn default() -> Edges {
        Edges::with_bound(HELD_MAX)
    }
}

impl Edges {
    /// Holds about this many edges in memory.
    pub(crate) fn with_bound(held_max: usize) -> Edges {
        Edges { held: Vec::new(), spilled: 0, file: None, held_max }
    }

    pub(crate) fn len(&self) -> u64 {
        self.spilled + self.held.len() as u64
    }

    /// Appends the edges into one node.
    pub(crate) fn push(&mut self, edges: &[Edge]) {
        self.held.extend_from_slice(edges);
        if self.held.len() >= self.held_max && self.spill().is_err() {
            // No room on the disk: memory it is, from now on.
            self.held_max = usize::MAX;
        }
    }

    fn spill(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(tempfile::tempfile()?);
        }
        let Some(file) = &self.file else { return Ok(()) };
        let mut bytes = Vec::with_capacity(BYTES * BLOCK as usize);
        for (i, block) in self.held.chunks(BLOCK as usize).enumerate() {
            bytes.clear();
            bytes.extend(block.iter().flat_map(to_bytes));
            file.write_all_at(&bytes, (self.spilled + i as u64 * BLOCK) * BYTES as u64)?;
        }
        self.spilled += self.held.len() as u64;
        self.held.clear();
        Ok(())
    }

    /// Reads edges, forwards or backwards.
    pub(crate) fn reader(&self) -> EdgeReader<'_> {
        EdgeReader { edges: self, buffer: Vec::new(), start: 0, bytes: Vec::new() }
    }
}

/// Reads ranges of edges; fast when they follow each other, in either direction.
pub(crate) struct EdgeReader<'a> {
    edges: &'a Edges,
    buffer: Vec<Edge>,
    /// The number of the buffer's first edge.
    start: u64,
    bytes: Vec<u8>,
}

impl EdgeReader<'_> {
    /// The edges with these numbers, all of one node.
    ///
    /// # Errors
    /// When the temporary file cannot be read.
    pub(crate) fn get(&mut self, range: Range<u64>) -> io::Result<&[Edge]> {
        let spilled = self.edges.spilled;
        if range.start >= spilled {
            return Ok(&self.edges.held[(range.start - spilled) as usize..(range.end - spilled) as usize]);
        }
        let have = self.start..self.start + self.buffer.len() as u64;
        if range.start < have.start || range.end > have.end {
            let block = if range.start < have.start {
                range.end.saturating_sub(BLOCK).min(range.start)..range.end
            } else {
                range.start..range.end.max((range.start + BLOCK).min(spilled))
            };
            self.fetch(block)?;
        }
        Ok(&self.buffer[(range.start - self.start) as usize..(range.end - self.start) as usize])
    }

    fn fetch(&mut self, block: Range<u64>) -> io::Result<()> {
        let Some(file) = &self.edges.file else { return Err(io::Error::other("edges were spilled to no file")) };
        self.bytes.resize((block.end - block.start) as usize * BYTES, 0);
        file.read_exact_at(&mut self.bytes, block.start * BYTES as u64)?;
        self.buffer.clear();
        for bytes in self.bytes.as_chunks::<BYTES>().0 {
            self.buffer.push(from_bytes(bytes).ok_or_else(|| io::Error::other("the temporary file of edges was changed"))?);
        }
        self.start = block.start;
        Ok(())
    }
}

fn to_bytes(edge: &Edge) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (i, word) in [edge.from, edge.from_site, edge.to_site, edge.object].into_iter().enumerate() {
        bytes[4 * i..4 * i + 4].copy_from_slice(&word.to_le_bytes());
    }
    (bytes[16], bytes[17]) = (edge.kind as u8, edge.class as u8);
    bytes[18..].copy_from_slice(&edge.place.to_le_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::{CLASSES, KINDS};

    fn edge(n: u32) -> Edge {
        Edge {
            from: n,
            from_site: n ^ 0xffff_0000,
            to_site: n.wrapping_mul(77),
            object: !n,
            kind: KINDS[n as usize % KINDS.len()],
            class: CLASSES[n as usize % CLASSES.len()],
            place: n as u16,
        }
    }

    /// Node `i` has `i % 7` edges.
    fn check(held_max: usize, nodes: u32) {
        let (mut all, mut edges, mut ends) = (Vec::new(), Edges::with_bound(held_max), vec![0]);
        for i in 0..nodes {
            let theirs: Vec<Edge> = (0..i % 7).map(|k| edge(i * 7 + k)).collect();
            edges.push(&theirs);
            all.extend(theirs);
            ends.push(all.len() as u64);
        }
        assert_eq!(edges.len(), all.len() as u64);
        let ranges: Vec<Range<u64>> = ends.windows(2).map(|w| w[0]..w[1]).collect();
        let mut reader = edges.reader();
        let back_and_forth = ranges.iter().chain(ranges.iter().rev()).chain(ranges.iter().step_by(1013));
        for range in back_and_forth {
            let got = reader.get(range.clone()).expect("the file can be read");
            assert_eq!(got, &all[range.start as usize..range.end as usize], "{range:?} of {nodes} nodes, {held_max} held");
        }
    }

    #[test]
    fn what_was_pushed_is_read_in_both_directions() {
        for held_max in [1, 2, 10, 1000, HELD_MAX] {
            check(held_max, 3000);
        }
        check(50_000, 60_000);
    }
}
