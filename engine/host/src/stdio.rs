//! The guest's standard output streams: passed on, kept, counted.

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

/// What wasmtime-wasi asks for at most in one write.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// The stream of this process behind a guest's stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behind {
    Stdout,
    Stderr,
}

/// A guest's stdout or stderr. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    passed_to: Option<Behind>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    kept: Vec<u8>,
    kept_bytes_max: usize,
    written: u64,
    hasher: blake3::Hasher,
}

impl Sink {
    pub(crate) fn new(passed_to: Option<Behind>, kept_bytes_max: usize) -> Sink {
        let state = State { kept: Vec::new(), kept_bytes_max, written: 0, hasher: blake3::Hasher::new() };
        Sink { passed_to, state: Arc::new(Mutex::new(state)) }
    }

    /// Bytes that the guest has written so far.
    pub(crate) fn written(&self) -> u64 {
        self.lock().written
    }

    /// The bytes that were kept: the first `kept_bytes_max` that the guest wrote.
    pub(crate) fn kept(&self) -> Vec<u8> {
        self.lock().kept.clone()
    }

    /// BLAKE3 of all bytes that the guest wrote.
    pub(crate) fn blake3(&self) -> [u8; 32] {
        *self.lock().hasher.finalize().as_bytes()
    }

    fn put(&self, bytes: &[u8]) -> io::Result<()> {
        match self.passed_to {
            Some(Behind::Stdout) => io::stdout().write_all(bytes)?,
            Some(Behind::Stderr) => io::stderr().write_all(bytes)?,
            None => {}
        }
        let mut state = self.lock();
        state.written += bytes.len() as u64;
        state.hasher.update(bytes);
        let room = state.kept_bytes_max.saturating_sub(state.kept.len());
        state.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(())
    }

    fn pass_on(&self) -> io::Result<()> {
        match self.passed_to {
            Some(Behind::Stdout) => io::stdout().flush(),
            Some(Behind::Stderr) => io::stderr().flush(),
            None => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As wasmtime-wasi's own streams: a closed pipe is told apart, so that the guest sees `EPIPE`.
fn stream_error(error: io::Error) -> StreamError {
    if error.kind() == io::ErrorKind::BrokenPipe { StreamError::Closed } else { StreamError::LastOperationFailed(error.into()) }
}

impl IsTerminal for Sink {
    fn is_terminal(&self) -> bool {
        match self.passed_to {
            Some(Behind::Stdout) => io::IsTerminal::is_terminal(&io::stdout()),
            Some(Behind::Stderr) => io::IsTerminal::is_terminal(&io::stderr()),
            None => false,
        }
    }
}

impl StdoutStream for Sink {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl OutputStream for Sink {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.put(&bytes).map_err(stream_error)
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.pass_on().map_err(stream_error)
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Sink {
    async fn ready(&mut self) {}
}

impl AsyncWrite for Sink {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.put(bytes).map(|()| bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.pass_on())
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
