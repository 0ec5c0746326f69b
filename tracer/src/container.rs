//! The chunked container file under recordings and traces: streamed out, read in place, checked everywhere.
//!
//! ```text
//! magic[8] version:u32 0:u32 │ chunk │ chunk │ … │ INDX chunk │ trailer
//! chunk   = tag[4] "chnk" length:u64 checksum[16] │ payload, zero-padded to 16 bytes
//! INDX    = one {tag[4] 0:u32 offset:u64 length:u64} per chunk before it
//! trailer = index_offset:u64 count:u64 file_length:u64 "wsp.end\n"
//! ```
//!
//! All integers are little-endian and every payload starts at a multiple of 16, so that `rkyv` archives and raw arrays can be
//! read in place from the mapped file. A file is written as `NAME.partial` and gets its name only when it is whole. A file
//! that ends early is readable up to its last whole chunk ([`Reader::complete`] says so); a file that was changed is an error.
//!
//! ```
//! use worksp_tracer::container::{Kind, Reader, Writer};
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("a.wspt");
//! let mut writer = Writer::create(&path, Kind::TRACE)?;
//! writer.chunk(*b"HELO", b"hello")?;
//! writer.finish()?;
//! let reader = Reader::open(&path, Kind::TRACE)?;
//! assert_eq!(reader.payload(0)?, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use rkyv::api::high::{HighSerializer, HighValidator};
use rkyv::bytecheck::CheckBytes;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;

/// Four bytes that name what a chunk holds.
pub type Tag = [u8; 4];

/// Payloads start at multiples of this many bytes in the file.
pub const ALIGNMENT: usize = 16;

const HEADER_LEN: usize = 16;
const CHUNK_HEADER_LEN: usize = 32;
const TRAILER_LEN: usize = 32;
const INDEX_ENTRY_LEN: usize = 24;
const CHUNK_MARK: [u8; 4] = *b"chnk";
const INDEX_TAG: Tag = *b"INDX";
const END_MARK: [u8; 8] = *b"wsp.end\n";

/// A kind of file: its magic number, name and the versions that this build reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// The first eight bytes of the file.
    pub magic: [u8; 8],
    /// The version that is written, and the newest that is read.
    pub version: u32,
    /// The oldest version that is still read.
    pub version_min: u32,
    /// What messages call such a file.
    pub name: &'static str,
}

impl Kind {
    /// A recorded request, `.wspr`.
    pub const RECORDING: Kind = Kind { magic: *b"wspr\r\n\x1a\n", version: 1, version_min: 1, name: "recording (.wspr)" };
    /// A trace, `.wspt`.
    pub const TRACE: Kind = Kind { magic: *b"wspt\r\n\x1a\n", version: 1, version_min: 1, name: "trace (.wspt)" };
    /// Bytes that are enough for [`Kind::sniff`].
    pub const SNIFF_BYTES: u64 = 8;
    const ALL: [Kind; 2] = [Kind::RECORDING, Kind::TRACE];

    /// The kind that a file beginning with `bytes` claims to be, so that a command can tell `.wspr` from `.wasm` by content.
    pub fn sniff(bytes: &[u8]) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| bytes.starts_with(&kind.magic))
    }
}

/// Why a container could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}{hint}", path = path.display(), hint = io_hint(source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is something else.
    #[error("{path} is not a {wanted}: {found}", path = path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The kind that was expected.
        wanted: &'static str,
        /// What it seems to be.
        found: String,
    },
    /// The file's version is outside what this build reads.
    #[error("{path} is a {kind} of version {version}, but this worksp reads versions {min} to {max}: use the worksp that wrote it, or make the file again", path = path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its kind.
        kind: &'static str,
        /// Its version.
        version: u32,
        /// The oldest version that is read.
        min: u32,
        /// The newest version that is read.
        max: u32,
    },
    /// The file's bytes contradict themselves.
    #[error("{path} is damaged at offset {offset}: {what}; make the file again", path = path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// A part that must be there is not, usually since the file ends early.
    #[error("{path} has no `{tag}` chunk: {why}", path = path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The chunk's tag.
        tag: String,
        /// Why that may be.
        why: &'static str,
    },
    /// A value could not be turned into an archive.
    #[error("cannot encode a chunk of {path}: {what}", path = path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// The archiver's reason.
        what: String,
    },
}

fn io_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => " (does the folder exist?)",
        io::ErrorKind::PermissionDenied => " (choose a place that you may write to, with -o)",
        io::ErrorKind::StorageFull => " (free some space, or choose another place with -o)",
        _ => "",
    }
}

// --- writing ---------------------------------------------------------------------------------------------------------

/// Writes a container chunk by chunk.
///
/// ```text
///        create            chunk*           finish
///  (nothing) ──► NAME.partial ──► NAME.partial ──► NAME
///                     │ drop, or an error: removed, unless keep_partial(true)
/// ```
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    partial: PathBuf,
    out: BufWriter<File>,
    offset: u64,
    chunks: Vec<Chunk>,
    keep_partial: bool,
    finished: bool,
}

impl Writer {
    /// Begins the file that is to become `path`; until [`Writer::finish`] it is called `path` + `.partial`.
    ///
    /// # Errors
    /// When the partial file cannot be created or written, or `path` is a folder.
    pub fn create(path: impl AsRef<Path>, kind: Kind) -> Result<Writer, ContainerError> {
        let path = path.as_ref().to_path_buf();
        if path.is_dir() {
            let source = io::Error::from(io::ErrorKind::IsADirectory);
            return Err(ContainerError::Io { action: "write", path, source });
        }
        let mut partial = path.clone().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = File::create(&partial)
            .map_err(|source| ContainerError::Io { action: "create", path: partial.clone(), source })?;
        let out = BufWriter::with_capacity(1 << 18, file);
        let mut writer = Writer { path, partial, out, offset: 0, chunks: Vec::new(), keep_partial: false, finished: false };
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(&kind.magic);
        header[8..12].copy_from_slice(&kind.version.to_le_bytes());
        writer.put(&header)?;
        Ok(writer)
    }

    /// Appends a chunk of raw bytes.
    ///
    /// # Errors
    /// When the file cannot be written, for example on a full disk.
    pub fn chunk(&mut self, tag: Tag, payload: &[u8]) -> Result<(), ContainerError> {
        let length = payload.len() as u64;
        let mut header = [0; CHUNK_HEADER_LEN];
        header[..4].copy_from_slice(&tag);
        header[4..8].copy_from_slice(&CHUNK_MARK);
        header[8..16].copy_from_slice(&length.to_le_bytes());
        header[16..].copy_from_slice(&checksum(tag, payload));
        self.put(&header)?;
        self.chunks.push(Chunk { tag, offset: self.offset, length });
        self.put(payload)?;
        self.put(&[0; ALIGNMENT][..padding(length) as usize])
    }

    /// Appends a chunk that is the `rkyv` archive of `value`, to be read with [`Reader::archived`].
    ///
    /// # Errors
    /// When the value cannot be archived or the file cannot be written.
    pub fn archive<T>(&mut self, tag: Tag, value: &T) -> Result<(), ContainerError>
    where
        T: for<'a> rkyv::Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, rkyv::rancor::Error>>,
    {
        let bytes = rkyv::to_bytes::<rkyv::rancor::Error>(value)
            .map_err(|error| ContainerError::Encode { path: self.path.clone(), what: error.to_string() })?;
        self.chunk(tag, &bytes)
    }

    /// Writes the index and gives the file its name.
    ///
    /// # Errors
    /// When the file cannot be written or renamed; the partial file is then removed.
    pub fn finish(mut self) -> Result<PathBuf, ContainerError> {
        let index_offset = self.offset;
        let count = self.chunks.len() as u64;
        let mut index = Vec::with_capacity(self.chunks.len() * INDEX_ENTRY_LEN);
        for chunk in &self.chunks {
            index.extend_from_slice(&chunk.tag);
            index.extend_from_slice(&[0; 4]);
            index.extend_from_slice(&chunk.offset.to_le_bytes());
            index.extend_from_slice(&chunk.length.to_le_bytes());
        }
        self.chunk(INDEX_TAG, &index)?;
        let mut trailer = [0; TRAILER_LEN];
        trailer[..8].copy_from_slice(&index_offset.to_le_bytes());
        trailer[8..16].copy_from_slice(&count.to_le_bytes());
        trailer[16..24].copy_from_slice(&(self.offset + TRAILER_LEN as u64).to_le_bytes());
        trailer[24..].copy_from_slice(&END_MARK);
        self.put(&trailer)?;
        self.out.flush().map_err(|source| self.io("write", source))?;
        std::fs::rename(&self.partial, &self.path)
            .map_err(|source| ContainerError::Io { action: "rename the finished file to", path: self.path.clone(), source })?;
        self.finished = true;
        Ok(self.path.clone())
    }

    /// Whether dropping an unfinished writer leaves `NAME.partial` behind (for a look at what was written) or removes it.
    pub fn keep_partial(&mut self, keep: bool) {
        self.keep_partial = keep;
    }

    /// Bytes written so far.
    pub fn len(&self) -> u64 {
        self.offset
    }

    /// Whether no chunk was written yet.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The name that the file gets when it is finished.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), ContainerError> {
        self.out.write_all(bytes).map_err(|source| self.io("write", source))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn io(&self, action: &'static str, source: io::Error) -> ContainerError {
        ContainerError::Io { action, path: self.partial.clone(), source }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished && !self.keep_partial {
            // Nothing can be done when this fails: the partial name says that the file is not whole.
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}

// --- reading ---------------------------------------------------------------------------------------------------------

/// Where one chunk's payload lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// What the chunk holds.
    pub tag: Tag,
    /// Byte offset of the payload in the file.
    pub offset: u64,
    /// Bytes of payload.
    pub length: u64,
}

#[derive(Debug)]
enum Backing {
    Mapped(memmap2::Mmap),
    Owned(AlignedVec<ALIGNMENT>),
}

/// An opened container. Payloads are checked against their checksums whenever they are asked for.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    data: Backing,
    chunks: Vec<Chunk>,
    version: u32,
    complete: bool,
}

impl Reader {
    /// Maps a file and reads its index; without one, finds the chunks that were written before the file ended.
    ///
    /// # Errors
    /// When the file cannot be read, is of another kind or version, or is damaged.
    pub fn open(path: impl AsRef<Path>, kind: Kind) -> Result<Reader, ContainerError> {
        let path = path.as_ref();
        let io = |source| ContainerError::Io { action: "read", path: path.to_path_buf(), source };
        let file = File::open(path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(io(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        let map = map_file(&file).map_err(io)?;
        Reader::new(path.to_path_buf(), Backing::Mapped(map), kind)
    }

    /// Reads a container from memory; `name` stands in messages.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn from_bytes(name: impl AsRef<Path>, bytes: &[u8], kind: Kind) -> Result<Reader, ContainerError> {
        let mut owned = AlignedVec::with_capacity(bytes.len());
        owned.extend_from_slice(bytes);
        Reader::new(name.as_ref().to_path_buf(), Backing::Owned(owned), kind)
    }

    fn new(path: PathBuf, data: Backing, kind: Kind) -> Result<Reader, ContainerError> {
        let mut reader = Reader { path, data, chunks: Vec::new(), version: 0, complete: true };
        reader.version = reader.check_header(kind)?;
        match reader.trailer() {
            Some(trailer) => reader.chunks = reader.read_index(trailer)?,
            None => {
                reader.chunks = reader.scan()?;
                reader.complete = false;
            }
        }
        Ok(reader)
    }

    /// The name of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The format version that the file was written with.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Whether the file was finished; if not, it holds only the chunks before the place where it ends.
    pub fn complete(&self) -> bool {
        self.complete
    }

    /// All chunks in the order of writing, without the index.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// The bytes of chunk number `index`, after their checksum was verified.
    ///
    /// # Errors
    /// When the chunk is damaged or `index` is out of range.
    pub fn payload(&self, index: usize) -> Result<&[u8], ContainerError> {
        self.checked_payload(self.chunk(index)?)
    }

    /// The bytes of chunk number `index` as they are.
    ///
    /// # Errors
    /// When `index` is out of range.
    pub fn unchecked_payload(&self, index: usize) -> Result<&[u8], ContainerError> {
        let chunk = self.chunk(index)?;
        let start = chunk.offset as usize;
        Ok(&self.bytes()[start..start + chunk.length as usize])
    }

    fn chunk(&self, index: usize) -> Result<Chunk, ContainerError> {
        self.chunks.get(index).copied().ok_or_else(|| {
            let what = format!("there is no chunk {index}: the file has {}", self.chunks.len());
            self.corrupt(self.bytes().len() as u64, what)
        })
    }

    /// The `rkyv` archive in chunk number `index`, after its checksum and its structure were verified.
    ///
    /// # Errors
    /// When the chunk is damaged or holds no valid `T`.
    pub fn archived<T>(&self, index: usize) -> Result<&T, ContainerError>
    where
        T: rkyv::Portable + for<'a> CheckBytes<HighValidator<'a, rkyv::rancor::Error>>,
    {
        let payload = self.payload(index)?;
        rkyv::access::<T, rkyv::rancor::Error>(payload).map_err(|error| self.corrupt_chunk(index, error.to_string()))
    }

    /// The numbers of all chunks with this tag.
    pub fn with_tag(&self, tag: Tag) -> impl Iterator<Item = usize> + '_ {
        self.chunks.iter().enumerate().filter(move |(_, chunk)| chunk.tag == tag).map(|(i, _)| i)
    }

    /// The number of the one chunk with this tag.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub fn only(&self, tag: Tag) -> Result<usize, ContainerError> {
        let mut found = self.with_tag(tag);
        match (found.next(), found.next()) {
            (Some(index), None) => Ok(index),
            (Some(_), Some(second)) => Err(self.corrupt_chunk(second, format!("a second `{}` chunk", tag_text(tag)))),
            (None, _) => {
                let why = if self.complete {
                    "it was written by another program, or by a version that did not have it"
                } else {
                    "the file was never finished; make it again"
                };
                Err(ContainerError::Missing { path: self.path.clone(), tag: tag_text(tag), why })
            }
        }
    }

    /// An error that places `what` at chunk number `index`, for the layers that give chunks their meaning.
    pub fn corrupt_chunk(&self, index: usize, what: impl Into<String>) -> ContainerError {
        match self.chunks.get(index) {
            Some(chunk) => self.corrupt(chunk.offset, format!("chunk `{}`: {}", tag_text(chunk.tag), what.into())),
            None => self.corrupt(self.bytes().len() as u64, what),
        }
    }

    fn corrupt(&self, offset: u64, what: impl Into<String>) -> ContainerError {
        ContainerError::Corrupt { path: self.path.clone(), offset, what: what.into() }
    }

    fn bytes(&self) -> &[u8] {
        match &self.data {
            Backing::Mapped(map) => map,
            Backing::Owned(bytes) => bytes,
        }
    }

    fn check_header(&self, kind: Kind) -> Result<u32, ContainerError> {
        let bytes = self.bytes();
        if !bytes.starts_with(&kind.magic) {
            let found = match Kind::sniff(bytes) {
                Some(other) => format!("it is a {}", other.name),
                None if bytes.starts_with(b"\0asm") => "it is a WebAssembly module".to_string(),
                None if bytes.is_empty() => "it is empty".to_string(),
                None => format!("it begins with {:02x?}", &bytes[..bytes.len().min(8)]),
            };
            return Err(ContainerError::Foreign { path: self.path.clone(), wanted: kind.name, found });
        }
        if bytes.len() < HEADER_LEN {
            return Err(self.corrupt(bytes.len() as u64, "the file ends inside its header"));
        }
        let version = u32_at(bytes, 8);
        if version < kind.version_min || version > kind.version {
            let (min, max) = (kind.version_min, kind.version);
            return Err(ContainerError::Version { path: self.path.clone(), kind: kind.name, version, min, max });
        }
        match u32_at(bytes, 12) {
            0 => Ok(version),
            other => Err(self.corrupt(12, format!("the header's last four bytes are {other:#x} instead of 0"))),
        }
    }

    /// The trailer, when the file ends in a plausible one.
    fn trailer(&self) -> Option<Trailer> {
        let bytes = self.bytes();
        let at = bytes.len().checked_sub(TRAILER_LEN).filter(|at| *at >= HEADER_LEN + CHUNK_HEADER_LEN)?;
        let trailer = Trailer { index_offset: u64_at(bytes, at), count: u64_at(bytes, at + 8) };
        (bytes[at + 24..] == END_MARK && u64_at(bytes, at + 16) == bytes.len() as u64).then_some(trailer)
    }

    fn read_index(&self, trailer: Trailer) -> Result<Vec<Chunk>, ContainerError> {
        let end = (self.bytes().len() - TRAILER_LEN) as u64;
        let index = self.chunk_at(trailer.index_offset, end).map_err(|what| self.corrupt(end, format!("index: {what}")))?;
        if index.tag != INDEX_TAG || index.end() != end {
            return Err(self.corrupt(end, "the trailer does not point to the index"));
        }
        let entries = self.checked_payload(index)?;
        if Some(index.length) != trailer.count.checked_mul(INDEX_ENTRY_LEN as u64) {
            return Err(self.corrupt(index.offset, "the index and the trailer disagree on the number of chunks"));
        }
        let mut chunks = Vec::with_capacity(trailer.count as usize);
        let mut next = HEADER_LEN as u64;
        for entry in entries.chunks_exact(INDEX_ENTRY_LEN) {
            let chunk = self.chunk_at(next, trailer.index_offset).map_err(|what| self.corrupt(next, what))?;
            if chunk.tag != entry[..4] || chunk.offset != u64_at(entry, 8) || chunk.length != u64_at(entry, 16) {
                return Err(self.corrupt(next, "the chunk differs from its entry in the index"));
            }
            next = chunk.end();
            chunks.push(chunk);
        }
        if next != trailer.index_offset {
            return Err(self.corrupt(next, "bytes between the last chunk and the index"));
        }
        Ok(chunks)
    }

    /// Finds the whole chunks of a file that ends early.
    fn scan(&self) -> Result<Vec<Chunk>, ContainerError> {
        let len = self.bytes().len() as u64;
        let mut chunks = Vec::new();
        let mut next = HEADER_LEN as u64;
        while next + CHUNK_HEADER_LEN as u64 <= len {
            if self.bytes()[next as usize + 4..next as usize + 8] != CHUNK_MARK {
                return Err(self.corrupt(next, "this is no chunk, and the file has no valid trailer"));
            }
            // A chunk that reaches beyond the end is where the writer was stopped.
            let Ok(chunk) = self.chunk_at(next, len) else { break };
            self.checked_payload(chunk)?;
            next = chunk.end();
            if chunk.tag == INDEX_TAG {
                if len - next >= TRAILER_LEN as u64 {
                    return Err(self.corrupt(next, "the trailer after the index is not valid"));
                }
                break;
            }
            chunks.push(chunk);
        }
        Ok(chunks)
    }

    /// The chunk whose header is at `at` and that must end at `end` or before.
    fn chunk_at(&self, at: u64, end: u64) -> Result<Chunk, &'static str> {
        let offset = at.checked_add(CHUNK_HEADER_LEN as u64).filter(|o| *o <= end).ok_or("no room for a chunk's header")?;
        if !at.is_multiple_of(ALIGNMENT as u64) {
            return Err("a chunk must start at a multiple of 16");
        }
        let header = &self.bytes()[at as usize..offset as usize];
        if header[4..8] != CHUNK_MARK {
            return Err("this is no chunk");
        }
        let length = u64_at(header, 8);
        let chunk = Chunk { tag: [header[0], header[1], header[2], header[3]], offset, length };
        let fits = length <= end - offset && chunk.end() <= end;
        if fits { Ok(chunk) } else { Err("the chunk is longer than the rest of the file") }
    }

    fn checked_payload(&self, chunk: Chunk) -> Result<&[u8], ContainerError> {
        let start = chunk.offset as usize;
        let payload = &self.bytes()[start..start + chunk.length as usize];
        if self.bytes()[start - 16..start] != checksum(chunk.tag, payload) {
            let what = format!("chunk `{}` does not match its checksum", tag_text(chunk.tag));
            return Err(self.corrupt(chunk.offset, what));
        }
        let pad = &self.bytes()[start + chunk.length as usize..chunk.end() as usize];
        if pad.iter().any(|byte| *byte != 0) {
            return Err(self.corrupt(chunk.offset + chunk.length, "padding that is not zero"));
        }
        Ok(payload)
    }
}

#[derive(Clone, Copy)]
struct Trailer {
    index_offset: u64,
    count: u64,
}

impl Chunk {
    /// Where the next chunk's header begins. The length was checked against the file's before.
    fn end(&self) -> u64 {
        self.offset + self.length + padding(self.length)
    }
}

#[allow(unsafe_code)]
fn map_file(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: the mapping is read-only and private. `Writer` never changes a file under its final name (it renames a new one
    // over it, which leaves the mapped inode alone); that no other program overwrites or truncates the file while it is open
    // is up to the user, as for every tool that maps its input.
    unsafe { memmap2::MmapOptions::new().map_copy_read_only(file) }
}

fn checksum(tag: Tag, payload: &[u8]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&tag);
    hasher.update(&(payload.len() as u64).to_le_bytes());
    hasher.update(payload);
    let mut sum = [0; 16];
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    sum
}

fn padding(length: u64) -> u64 {
    (ALIGNMENT as u64 - length % ALIGNMENT as u64) % ALIGNMENT as u64
}

fn tag_text(tag: Tag) -> String {
    tag.escape_ascii().to_string()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
#[path = "container/tests.rs"]
mod tests;
