//! The host itself: arguments, environment, files and streams of one guest, and the calls that it makes.

use std::path::PathBuf;

use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p1::wasi_snapshot_preview1::WasiSnapshotPreview1 as _;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{FsPerms, I32Exit, WasiCtxBuilder};
use wiggle::GuestMemory;

use crate::call::call;
use crate::stdio::{Behind, Sink};
use crate::wasi::{Facts, WasiFunction};

/// Bytes that one call may make the host copy: Wasmtime's own default, so that programs meet the same limit.
const CALL_BYTES_MAX: usize = 128 << 20;

/// A host folder that the guest sees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dir {
    /// Where it is.
    pub host: PathBuf,
    /// What the guest calls it.
    pub guest: String,
}

impl Dir {
    /// Parses `HOST::GUEST`, or `HOST` for a folder of the same name on both sides.
    ///
    /// # Errors
    /// When either side is empty.
    pub fn parse(text: &str) -> Result<Dir, Error> {
        let (host, guest) = text.split_once("::").unwrap_or((text, text));
        if host.is_empty() || guest.is_empty() {
            return Err(Error::DirSyntax { text: text.to_string() });
        }
        Ok(Dir { host: PathBuf::from(host), guest: guest.to_string() })
    }
}

/// Where the guest's standard input comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Stdin {
    /// Nothing to read.
    #[default]
    Empty,
    /// This process's standard input.
    Inherit,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// Where a standard output stream of the guest goes. The first bytes are kept in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stdout {
    /// To this process's stream of the same name.
    #[default]
    Inherit,
    /// Nowhere.
    Capture,
}

/// Why a host could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A folder argument has the wrong form.
    #[error("`{text}` names no folder: write HOST::GUEST, for example .::/ or data::/data")]
    DirSyntax {
        /// The argument.
        text: String,
    },
    /// A folder cannot be opened.
    #[error("cannot open the folder {path} for the program: {reason}", path = path.display())]
    Dir {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// A string would end early inside the guest.
    #[error("the {what} {text:?} contains a zero byte, which no program could read past: remove it")]
    ZeroByte {
        /// `argument` or `environment variable`.
        what: &'static str,
        /// The string.
        text: String,
    },
}

/// How a host call ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostEnd {
    /// It returned, with the raw bits of its result.
    Returned(Option<u64>),
    /// The program asked to end with this status.
    Exit(i32),
    /// The program must trap, for example since it passed a pointer outside its memory.
    Trap(String),
}

/// Configures a [`WasiHost`].
#[derive(Clone, Debug)]
pub struct WasiHostBuilder {
    args: Vec<String>,
    env: Vec<(String, String)>,
    dirs: Vec<Dir>,
    stdin: Stdin,
    stdout: Stdout,
    stderr: Stdout,
    kept_bytes_max: usize,
}

impl Default for WasiHostBuilder {
    fn default() -> Self {
        WasiHostBuilder {
            args: Vec::new(),
            env: Vec::new(),
            dirs: Vec::new(),
            stdin: Stdin::default(),
            stdout: Stdout::default(),
            stderr: Stdout::default(),
            kept_bytes_max: 1 << 20,
        }
    }
}

impl WasiHostBuilder {
    /// Appends an argument; the first is the program's name.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Appends an environment variable. Nothing is inherited.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Lets the guest use a folder.
    pub fn dir(mut self, dir: Dir) -> Self {
        self.dirs.push(dir);
        self
    }

    /// Sets standard input.
    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.stdin = stdin;
        self
    }

    /// Sets standard output.
    pub fn stdout(mut self, stdout: Stdout) -> Self {
        self.stdout = stdout;
        self
    }

    /// Sets standard error.
    pub fn stderr(mut self, stderr: Stdout) -> Self {
        self.stderr = stderr;
        self
    }

    /// How many bytes of each output stream are kept for [`WasiHost::stdout`] and [`WasiHost::stderr`] (1 MiB by default).
    pub fn kept_bytes_max(mut self, bytes: usize) -> Self {
        self.kept_bytes_max = bytes;
        self
    }

    /// Opens the folders and builds the host.
    ///
    /// # Errors
    /// When a folder cannot be opened, or an argument or variable holds a zero byte.
    pub fn build(self) -> Result<WasiHost, Error> {
        for text in &self.args {
            no_zero_byte("argument", text)?;
        }
        for text in self.env.iter().flat_map(|(name, value)| [name, value]) {
            no_zero_byte("environment variable", text)?;
        }
        let sink = |stdout: Stdout, behind| match stdout {
            Stdout::Inherit => Sink::new(Some(behind), self.kept_bytes_max),
            Stdout::Capture => Sink::new(None, self.kept_bytes_max),
        };
        let (stdout, stderr) = (sink(self.stdout, Behind::Stdout), sink(self.stderr, Behind::Stderr));
        let mut builder = WasiCtxBuilder::new();
        builder.args(&self.args).envs(&self.env).allow_blocking_current_thread(true);
        builder.stdout(stdout.clone()).stderr(stderr.clone());
        match self.stdin {
            Stdin::Empty => {}
            Stdin::Inherit => drop(builder.inherit_stdin()),
            Stdin::Bytes(bytes) => drop(builder.stdin(MemoryInputPipe::new(bytes))),
        }
        for dir in &self.dirs {
            builder
                .preopened_dir(&dir.host, &dir.guest, FsPerms::ReadWrite)
                .map_err(|error| Error::Dir { path: dir.host.clone(), reason: error.root_cause().to_string() })?;
        }
        let (args, env) = (strings(self.args.iter().map(String::len)), strings(self.env.iter().map(|(k, v)| k.len() + 1 + v.len())));
        Ok(WasiHost { ctx: builder.build_p1(), stdout, stderr, args, env })
    }
}

fn no_zero_byte(what: &'static str, text: &str) -> Result<(), Error> {
    if text.contains('\0') { Err(Error::ZeroByte { what, text: text.to_string() }) } else { Ok(()) }
}

/// The size of strings as the guest gets them, each with a terminator.
fn strings(lens: impl ExactSizeIterator<Item = usize>) -> Facts {
    Facts { entries: lens.len() as u32, bytes: lens.map(|len| len as u32 + 1).sum() }
}

/// WASI preview 1 for one guest. It holds no guest memory: each call is handed the slice to work on.
pub struct WasiHost {
    ctx: WasiP1Ctx,
    stdout: Sink,
    stderr: Sink,
    args: Facts,
    env: Facts,
}

impl std::fmt::Debug for WasiHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WasiHost").field("stdout", &self.stdout).field("stderr", &self.stderr).finish_non_exhaustive()
    }
}

impl WasiHost {
    /// A host without arguments, environment and folders, that inherits the output streams.
    pub fn builder() -> WasiHostBuilder {
        WasiHostBuilder::default()
    }

    /// Runs one function on the guest's memory. Missing arguments are zero; superfluous ones are ignored.
    pub fn call(&mut self, function: &WasiFunction, memory: &mut [u8], args: &[u64]) -> HostEnd {
        self.ctx.set_hostcall_fuel(CALL_BYTES_MAX);
        match call(&mut self.ctx, &mut GuestMemory::Unshared(memory), function.name, args) {
            Some(Ok(result)) => HostEnd::Returned(result.map(|errno| u64::from(errno as u32))),
            Some(Err(error)) => match error.downcast_ref::<I32Exit>() {
                Some(I32Exit(code)) => HostEnd::Exit(*code),
                None => HostEnd::Trap(format!("{}: {}", function.name, error.root_cause())),
            },
            None => HostEnd::Trap(format!("{}: preview 1 has no such function", function.name)),
        }
    }

    /// What [`WasiFunction::writes`] needs to know beside arguments and memory; to be asked for before the call.
    pub fn facts(&mut self, function: &WasiFunction, args: &[u64]) -> Facts {
        match function.name {
            "args_get" => self.args,
            "environ_get" => self.env,
            "fd_prestat_dir_name" => self.preopen_name(args.first().copied().unwrap_or_default()),
            _ => Facts::default(),
        }
    }

    /// Bytes that the guest has written to standard output and to standard error.
    pub fn written(&self) -> [u64; 2] {
        [self.stdout.written(), self.stderr.written()]
    }

    /// BLAKE3 of all bytes that the guest wrote to standard output and to standard error.
    pub fn blake3(&self) -> [[u8; 32]; 2] {
        [self.stdout.blake3(), self.stderr.blake3()]
    }

    /// The first bytes that the guest wrote to standard output.
    pub fn stdout(&self) -> Vec<u8> {
        self.stdout.kept()
    }

    /// The first bytes that the guest wrote to standard error.
    pub fn stderr(&self) -> Vec<u8> {
        self.stderr.kept()
    }

    /// The name's length, asked of the same implementation on a memory of its own.
    fn preopen_name(&mut self, fd: u64) -> Facts {
        let mut scratch = [0; 8];
        let end = call(&mut self.ctx, &mut GuestMemory::Unshared(&mut scratch), "fd_prestat_get", &[fd, 0]);
        let len = u32::from_le_bytes([scratch[4], scratch[5], scratch[6], scratch[7]]);
        if matches!(end, Some(Ok(Some(0)))) { Facts { entries: 1, bytes: len } } else { Facts::default() }
    }
}
