//! The recording of one request, `.wspr`: all that a replay needs and the module itself.
//!
//! ```text
//! HEAD  header: module hash, features, imports, how it was recorded
//! MODL  the module's bytes
//! INIT  contents of one imported memory, table or global at instantiation (any number)
//! EVNT  a batch of events in the order in which they happened (any number)
//! DONE  how it ended: exit, final memories, output
//! ```
//!
//! Events form one stream. While a guest call runs nothing is written; whenever the host has control (before and after calls,
//! and inside host calls) it may read and write guest state, and each such action is an event of its own:
//!
//! ```text
//!   host ── Enter ─────────────────────────► guest
//!    ▲  Read Write Grow GlobalSet Table…       │
//!    │  Enter … Leave (re-entry, any depth)    │
//!    ├───────────── HostCall ◄─────────────────┤
//!    ├───────────── HostReturn ───────────────►│
//!    └───────────── Leave ◄────────────────────┘
//! ```

use std::path::{Path, PathBuf};

use rkyv::{Archive, Deserialize};
use sha2::Digest;
use worksp_engine::parallel::both;

use crate::container::{ContainerError, Kind, Reader, Tag, Writer};

mod model;

pub use model::*;

const HEAD: Tag = *b"HEAD";
const MODULE: Tag = *b"MODL";
const INITIAL: Tag = *b"INIT";
const EVENTS: Tag = *b"EVNT";
const DONE: Tag = *b"DONE";

/// A batch of events is written once it holds about this many bytes, so that memory stays bounded.
const BATCH_BYTES: usize = 1 << 20;

/// Why a recording could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file under it.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// The module in the file is not the one that the header describes.
    #[error("{path} holds a module whose SHA-256 is {found}, but its header says {expected}: the file was put together by hand; record again", path = path.display())]
    ModuleHash {
        /// The file.
        path: PathBuf,
        /// The header's hash.
        expected: String,
        /// The module's hash.
        found: String,
    },
    /// The file ends before the request does.
    #[error("{path} was never finished: it holds {events} events and no end; record the request again", path = path.display())]
    Unfinished {
        /// The file.
        path: PathBuf,
        /// Events that it holds.
        events: u64,
    },
    /// The recording is of another module.
    #[error("{path} is a recording of another module: it was made with SHA-256 {recorded}, and {module} has {found}; record again", path = path.display())]
    OtherModule {
        /// The recording.
        path: PathBuf,
        /// The hash in the recording.
        recorded: String,
        /// The module at hand.
        module: String,
        /// Its hash.
        found: String,
    },
}

/// SHA-256 of a module's bytes.
pub fn module_sha256(module: &[u8]) -> [u8; 32] {
    sha2::Sha256::digest(module).into()
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first eight bytes of BLAKE3, which is enough to notice that a replay went astray.
pub fn read_hash(bytes: &[u8]) -> u64 {
    let hash = blake3::hash(bytes);
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight of 32 bytes"))
}

// --- writing ---------------------------------------------------------------------------------------------------------

/// Writes a recording while the request runs.
#[derive(Debug)]
pub struct RecordingWriter {
    out: Writer,
    batch: Vec<Event>,
    batch_bytes: usize,
    events: u64,
}

impl RecordingWriter {
    /// Begins the file that is to become `path`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(path: impl AsRef<Path>, header: &Header, module: &[u8], initial: &[Initial]) -> Result<Self, RecordingError> {
        let mut out = Writer::create(path, Kind::RECORDING)?;
        out.archive(HEAD, header)?;
        out.chunk(MODULE, module)?;
        for contents in initial {
            out.archive(INITIAL, contents)?;
        }
        Ok(RecordingWriter { out, batch: Vec::new(), batch_bytes: 0, events: 0 })
    }

    /// Appends an event.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn event(&mut self, event: Event) -> Result<(), RecordingError> {
        self.batch_bytes += event.size_hint();
        self.batch.push(event);
        self.events += 1;
        if self.batch_bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Writes the end and gives the file its name. `outcome.events` is filled in.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self, outcome: Outcome) -> Result<PathBuf, RecordingError> {
        self.flush()?;
        self.out.archive(DONE, &Outcome { events: self.events, ..outcome })?;
        Ok(self.out.finish()?)
    }

    fn flush(&mut self) -> Result<(), RecordingError> {
        if !self.batch.is_empty() {
            self.out.archive(EVENTS, &self.batch)?;
            self.batch.clear();
            self.batch_bytes = 0;
        }
        Ok(())
    }
}

impl Event {
    /// About how many bytes the event takes.
    fn size_hint(&self) -> usize {
        let payload = match self {
            Event::Write { bytes, .. } => bytes.len(),
            Event::Enter { args, .. } | Event::HostCall { args, .. } => args.len() * size_of::<Bits>(),
            Event::Leave { end: End::Returned(results) } | Event::HostReturn { end: End::Returned(results) } => {
                results.len() * size_of::<Bits>()
            }
            _ => 0,
        };
        size_of::<Event>() + payload
    }
}

// --- reading ---------------------------------------------------------------------------------------------------------

/// An opened recording. Events are read batch by batch.
#[derive(Debug)]
pub struct Recording {
    reader: Reader,
    header: Header,
    module: usize,
    initial: Vec<Initial>,
    batches: Vec<usize>,
    outcome: Option<Outcome>,
}

impl Recording {
    /// Opens a recording and checks everything but the batches of events, which are checked when they are read.
    ///
    /// # Errors
    /// When the file cannot be read, is no recording, is damaged, or ends before its module does.
    pub fn open(path: impl AsRef<Path>) -> Result<Recording, RecordingError> {
        Recording::from_reader(Reader::open(path, Kind::RECORDING)?)
    }

    /// Reads a recording from memory; `name` stands in messages.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn from_bytes(name: impl AsRef<Path>, bytes: &[u8]) -> Result<Recording, RecordingError> {
        Recording::from_reader(Reader::from_bytes(name, bytes, Kind::RECORDING)?)
    }

    fn from_reader(reader: Reader) -> Result<Recording, RecordingError> {
        let header: Header = read(&reader, reader.only(HEAD)?)?;
        let module = reader.only(MODULE)?;
        let bytes = reader.unchecked_payload(module)?;
        let (found, checked) = both(|| module_sha256(bytes), || reader.payload(module).map(drop));
        checked?;
        if found != header.module_sha256 {
            let (expected, found) = (hex(&header.module_sha256), hex(&found));
            return Err(RecordingError::ModuleHash { path: reader.path().to_path_buf(), expected, found });
        }
        let initial = reader.with_tag(INITIAL).map(|chunk| read(&reader, chunk)).collect::<Result<_, _>>()?;
        let batches = reader.with_tag(EVENTS).collect();
        let outcome = match reader.only(DONE) {
            Ok(chunk) => Some(read(&reader, chunk)?),
            Err(ContainerError::Missing { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Recording { reader, header, module, initial, batches, outcome })
    }

    /// The name of the file.
    pub fn path(&self) -> &Path {
        self.reader.path()
    }

    /// What was recorded, and how.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The module's bytes, which were checked when the file was opened.
    ///
    /// # Errors
    /// None since then.
    pub fn module(&self) -> Result<&[u8], RecordingError> {
        Ok(self.reader.unchecked_payload(self.module)?)
    }

    /// Fails unless `module`, called `name` in the message, is the module that was recorded.
    ///
    /// # Errors
    /// When it is another.
    pub fn check_module(&self, name: &str, module: &[u8]) -> Result<(), RecordingError> {
        let found = module_sha256(module);
        if found == self.header.module_sha256 {
            return Ok(());
        }
        Err(RecordingError::OtherModule {
            path: self.path().to_path_buf(),
            recorded: hex(&self.header.module_sha256),
            module: name.to_string(),
            found: hex(&found),
        })
    }

    /// The effect class of every imported function, by its index.
    pub fn effects(&self) -> Vec<Effect> {
        let funcs = self.header.imports.iter().filter(|import| matches!(import.ty, ImportType::Func { .. }));
        funcs.map(|import| import.effect).collect()
    }

    /// What imported objects held at instantiation.
    pub fn initial(&self) -> &[Initial] {
        &self.initial
    }

    /// Whether the recording holds the whole request.
    pub fn complete(&self) -> bool {
        self.outcome.is_some() && self.reader.complete()
    }

    /// How the request ended.
    ///
    /// # Errors
    /// When the recording was never finished.
    pub fn outcome(&self) -> Result<&Outcome, RecordingError> {
        match &self.outcome {
            Some(outcome) => Ok(outcome),
            None => {
                let events = self.events().take_while(Result::is_ok).count() as u64;
                Err(RecordingError::Unfinished { path: self.path().to_path_buf(), events })
            }
        }
    }

    /// All events in order. After an error the iterator ends.
    pub fn events(&self) -> Events<'_> {
        Events { recording: self, next_batch: 0, batch: Vec::new().into_iter() }
    }
}

/// Iterates over a recording's events and holds one batch at a time.
#[derive(Debug)]
pub struct Events<'a> {
    recording: &'a Recording,
    next_batch: usize,
    batch: std::vec::IntoIter<Event>,
}

impl Iterator for Events<'_> {
    type Item = Result<Event, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.batch.next() {
                return Some(Ok(event));
            }
            let chunk = *self.recording.batches.get(self.next_batch)?;
            self.next_batch += 1;
            match read::<Vec<Event>>(&self.recording.reader, chunk) {
                Ok(batch) => self.batch = batch.into_iter(),
                Err(error) => {
                    self.next_batch = usize::MAX;
                    return Some(Err(error.into()));
                }
            }
        }
    }
}

fn read<T>(reader: &Reader, chunk: usize) -> Result<T, ContainerError>
where
    T: Archive,
    T::Archived: for<'a> rkyv::bytecheck::CheckBytes<rkyv::api::high::HighValidator<'a, rkyv::rancor::Error>>
        + Deserialize<T, rkyv::api::high::HighDeserializer<rkyv::rancor::Error>>,
{
    let archived = reader.archived::<T::Archived>(chunk)?;
    rkyv::deserialize::<T, rkyv::rancor::Error>(archived).map_err(|error| reader.corrupt_chunk(chunk, error.to_string()))
}

#[cfg(test)]
#[path = "recording/tests.rs"]
mod tests;
