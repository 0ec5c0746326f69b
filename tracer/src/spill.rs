//! A list within a bound of memory: what does not fit goes to a temporary file without a name.
//!
//! ```text
//! file [0 ─────────── spilled)   held [spilled ─── len)      what is pushed together is never torn
//! ```

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::hints::large_list;

/// Records that a reader fetches at a time.
const BLOCK: u64 = 1 << 16;

/// Room for what is pushed when a list is almost full.
const SLACK: usize = 1 << 12;

/// What can be in such a list: it has a form of `N` bytes.
pub trait Record<const N: usize>: Copy {
    /// Its bytes.
    fn to_bytes(&self) -> [u8; N];
    /// The record with these bytes, if there is one.
    fn from_bytes(bytes: &[u8; N]) -> Option<Self>;
}

impl<const N: usize> Record<N> for [u8; N] {
    #[inline(always)]
    fn to_bytes(&self) -> [u8; N] {
        *self
    }

    #[inline(always)]
    fn from_bytes(bytes: &[u8; N]) -> Option<[u8; N]> {
        Some(*bytes)
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Spill<R, const N: usize> {
    held: Vec<R>,
    spilled: u64,
    file: Option<File>,
    held_max: usize,
}

impl<R: Record<N>, const N: usize> Spill<R, N> {
    /// Holds about this many records in memory.
    pub fn new(held_max: usize) -> Spill<R, N> {
        Spill { held: large_list(held_max.saturating_add(SLACK)), spilled: 0, file: None, held_max }
    }

    /// All records.
    pub fn len(&self) -> u64 {
        self.spilled + self.held.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held in memory.
    pub fn memory(&self) -> u64 {
        size_of_val(&self.held[..]) as u64
    }

    /// Appends records that will be read together.
    #[inline]
    pub fn push(&mut self, records: &[R]) {
        self.held.extend_from_slice(records);
        if self.held.len() >= self.held_max && self.spill().is_err() {
            // No room on the disk: memory it is, from now on.
            self.held_max = usize::MAX;
        }
    }

    #[cold]
    fn spill(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(tempfile::tempfile()?);
        }
        let Some(file) = &self.file else { return Ok(()) };
        let mut bytes = Vec::with_capacity(N * BLOCK as usize);
        for (i, block) in self.held.chunks(BLOCK as usize).enumerate() {
            bytes.clear();
            bytes.extend(block.iter().flat_map(R::to_bytes));
            file.write_all_at(&bytes, (self.spilled + i as u64 * BLOCK) * N as u64)?;
        }
        self.spilled += self.held.len() as u64;
        self.held.clear();
        Ok(())
    }

    /// Reads records, forwards or backwards.
    pub fn reader(&self) -> SpillReader<'_, R, N> {
        SpillReader { list: self, buffer: Vec::new(), start: 0, bytes: Vec::new() }
    }
}

/// Reads ranges of records; fast when they follow each other, in either direction.
#[derive(Debug)]
pub struct SpillReader<'a, R, const N: usize> {
    list: &'a Spill<R, N>,
    buffer: Vec<R>,
    /// The number of the buffer's first record.
    start: u64,
    bytes: Vec<u8>,
}

impl<R: Record<N>, const N: usize> SpillReader<'_, R, N> {
    /// The records with these numbers, which were pushed together.
    ///
    /// # Errors
    /// When the temporary file cannot be read, or somebody changed it.
    #[inline(always)]
    pub fn get(&mut self, range: Range<u64>) -> io::Result<&[R]> {
        let spilled = self.list.spilled;
        if range.start >= spilled {
            return Ok(&self.list.held[(range.start - spilled) as usize..(range.end - spilled) as usize]);
        }
        if range.start < self.start || range.end > self.start + self.buffer.len() as u64 {
            self.fetch(&range)?;
        }
        Ok(&self.buffer[(range.start - self.start) as usize..(range.end - self.start) as usize])
    }

    /// Fetches a block on that side of the range where reading goes on.
    #[cold]
    fn fetch(&mut self, range: &Range<u64>) -> io::Result<()> {
        let Some(file) = &self.list.file else { return Err(io::Error::other("records were spilled to no file")) };
        let block = if range.start < self.start {
            range.end.saturating_sub(BLOCK).min(range.start)..range.end
        } else {
            range.start..range.end.max((range.start + BLOCK).min(self.list.spilled))
        };
        self.bytes.resize((block.end - block.start) as usize * N, 0);
        file.read_exact_at(&mut self.bytes, block.start * N as u64)?;
        self.buffer.clear();
        for bytes in self.bytes.as_chunks::<N>().0 {
            self.buffer.push(R::from_bytes(bytes).ok_or_else(|| io::Error::other("a temporary file was changed"))?);
        }
        self.start = block.start;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::{CLASSES, KINDS};
    use crate::trace::Edge;

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
        let (mut all, mut list, mut ends) = (Vec::new(), Spill::new(held_max), vec![0]);
        for i in 0..nodes {
            let theirs: Vec<Edge> = (0..i % 7).map(|k| edge(i * 7 + k)).collect();
            list.push(&theirs);
            all.extend(theirs);
            ends.push(all.len() as u64);
        }
        assert_eq!(list.len(), all.len() as u64);
        let ranges: Vec<Range<u64>> = ends.windows(2).map(|w| w[0]..w[1]).collect();
        let mut reader = list.reader();
        let back_and_forth = ranges.iter().chain(ranges.iter().rev()).chain(ranges.iter().step_by(1013));
        for range in back_and_forth {
            let got = reader.get(range.clone()).expect("the file can be read");
            assert_eq!(got, &all[range.start as usize..range.end as usize], "{range:?} of {nodes} nodes, {held_max} held");
        }
    }

    #[test]
    fn what_was_pushed_is_read_in_both_directions() {
        for held_max in [1, 2, 10, 1000, 1 << 20] {
            check(held_max, 3000);
        }
        check(50_000, 60_000);
    }
}
