//! The table against reality: every function runs on a memory, and exactly the declared ranges change.

use std::collections::BTreeSet;

use worksp_host::wasi::{self, FUNCTIONS, Ty, WasiFunction};
use worksp_host::{Dir, HostEnd, Stdin, Stdout, WasiHost};

const ROOT: u64 = 3;
const RIGHTS_ALL: u64 = u64::MAX >> 34;

/// A function, its arguments, and what it reads where.
type Call<'a> = (&'a str, &'a [u64], &'a [(usize, &'a [u8])]);

/// A host, a memory, and which functions were seen to succeed.
struct Bench {
    host: WasiHost,
    memory: Vec<u8>,
    seen: BTreeSet<&'static str>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("hello.txt"), "hello, world\n").unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        let host = WasiHost::builder()
            .arg("prog")
            .arg("-v")
            .env("KEY", "value")
            .dir(Dir { host: dir.path().to_path_buf(), guest: "/work".to_string() })
            .stdin(Stdin::Bytes(b"input line\n".to_vec()))
            .stdout(Stdout::Capture)
            .stderr(Stdout::Capture)
            .build()
            .unwrap();
        Bench { host, memory: vec![0; 65536], seen: BTreeSet::new(), _dir: dir }
    }

    /// Runs a function and compares what changed with what the table says.
    fn call(&mut self, name: &str, args: &[u64]) -> u64 {
        let function = wasi::function(name).unwrap();
        let before = self.memory.clone();
        let buffers = function.buffers(&self.memory, args);
        let reads = function.reads(&self.memory, args);
        let facts = self.host.facts(function, args);
        for range in &reads {
            assert!(range.end <= before.len() as u64, "{name} reads beyond the memory: {range:?}");
        }
        let HostEnd::Returned(Some(errno)) = self.host.call(function, &mut self.memory, args) else {
            panic!("{name} did not return");
        };
        if errno == 0 {
            self.seen.insert(function.name);
        }
        let writes = function.writes(&self.memory, args, errno, &facts, &buffers);
        let declared: BTreeSet<u64> = writes.iter().cloned().flatten().collect();
        let changed: BTreeSet<u64> = (0..before.len()).filter(|i| before[*i] != self.memory[*i]).map(|i| i as u64).collect();
        let undeclared: Vec<_> = changed.difference(&declared).collect();
        assert!(undeclared.is_empty(), "{name}{args:?}: wrote {undeclared:?}, declared {writes:?}");
        // Where 0xAA stood and was declared written, it changed. A clock, a hash or randomness may hold such a byte by chance;
        // over another filling it does not hold that one's byte as well.
        let stayed = |before: &[u8], after: &[u8], at: &u64| before[*at as usize] == after[*at as usize];
        let suspects: Vec<u64> = declared.iter().copied().filter(|at| before[*at as usize] == 0xAA && stayed(&before, &self.memory, at)).collect();
        if !suspects.is_empty() {
            let refilled: Vec<u8> = before.iter().map(|byte| if *byte == 0xAA { 0x55 } else { *byte }).collect();
            let mut memory = refilled.clone();
            self.host.call(function, &mut memory, args);
            let kept: Vec<_> = suspects.iter().filter(|at| stayed(&refilled, &memory, at)).collect();
            assert!(kept.is_empty(), "{name}{args:?}: declared {writes:?}, but {kept:?} stayed");
        }
        errno
    }

    fn ok(&mut self, name: &str, args: &[u64]) {
        let errno = self.call(name, args);
        assert_eq!(errno, 0, "{name}{args:?} failed with errno {errno}");
    }

    /// Fills the memory with a byte that outputs do not contain.
    fn fill(&mut self) {
        self.memory.fill(0xAA);
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn put_u32s(&mut self, at: usize, words: &[u32]) {
        for (index, word) in words.iter().enumerate() {
            self.put(at + 4 * index, &word.to_le_bytes());
        }
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.memory[at..at + 4].try_into().unwrap())
    }

    fn open(&mut self, path: &str, oflags: u64) -> u64 {
        self.fill();
        self.put(100, path.as_bytes());
        self.ok("path_open", &[ROOT, 0, 100, path.len() as u64, oflags, RIGHTS_ALL & 0x1fff_ffff, 0, 0, 200]);
        u64::from(self.u32_at(200))
    }
}

#[test]
fn exactly_the_declared_ranges_change() {
    let mut b = Bench::new();
    strings_and_clocks(&mut b);
    files(&mut b);
    paths(&mut b);
    polls_and_sockets(&mut b);
    let unseen: Vec<_> = FUNCTIONS.iter().map(|f| f.name).filter(|name| !b.seen.contains(name)).collect();
    // What wasmtime-wasi never lets succeed, and what does not return.
    assert_eq!(
        unseen,
        ["fd_allocate", "fd_fdstat_set_rights", "proc_exit", "proc_raise", "sock_accept", "sock_recv", "sock_send", "sock_shutdown"]
    );
}

fn strings_and_clocks(b: &mut Bench) {
    for name in ["args_sizes_get", "environ_sizes_get", "args_get", "environ_get"] {
        b.fill();
        b.ok(name, &[1000, 2000]);
    }
    b.fill();
    b.ok("clock_res_get", &[1, 1000]);
    b.fill();
    b.ok("clock_time_get", &[0, 0, 1000]);
    assert_ne!(b.call("clock_time_get", &[2, 0, 1000]), 0);
    b.fill();
    b.ok("random_get", &[1000, 50]);
    b.ok("sched_yield", &[]);
}

fn files(b: &mut Bench) {
    b.fill();
    b.ok("fd_prestat_get", &[ROOT, 1000]);
    b.fill();
    b.ok("fd_prestat_dir_name", &[ROOT, 1000, 5]);
    b.fill();
    b.ok("fd_prestat_dir_name", &[ROOT, 1000, 100]);
    assert_ne!(b.call("fd_prestat_dir_name", &[ROOT, 1000, 2]), 0);
    for fd in [0, 1, ROOT] {
        b.fill();
        b.ok("fd_fdstat_get", &[fd, 1000]);
        b.fill();
        b.ok("fd_filestat_get", &[fd, 1000]);
    }
    let fd = b.open("hello.txt", 0);
    b.fill();
    b.put_u32s(1000, &[3000, 0, 4000, 5, 5000, 100]);
    b.ok("fd_read", &[fd, 1000, 3, 1100]);
    assert_eq!((b.u32_at(1100), &b.memory[4000..4005]), (5, b"hello".as_slice()));
    b.fill();
    b.put_u32s(1000, &[4000, 100]);
    b.ok("fd_pread", &[fd, 1000, 1, 7, 1100]);
    assert_eq!(b.u32_at(1100), 6);
    // The vector that names the buffer is itself overwritten.
    b.fill();
    b.put_u32s(1000, &[1000, 8]);
    b.ok("fd_pread", &[fd, 1000, 1, 0, 1100]);
    assert_eq!(&b.memory[1000..1008], b"hello, w");
    for (name, args) in [("fd_tell", vec![fd, 1000]), ("fd_seek", vec![fd, 3, 0, 1000]), ("fd_fdstat_get", vec![fd, 1000])] {
        b.fill();
        b.ok(name, &args);
    }
    b.ok("fd_advise", &[fd, 0, 10, 0]);
    b.ok("fd_fdstat_set_flags", &[fd, 1]);
    assert_ne!(b.call("fd_allocate", &[fd, 0, 10]), 0);
    assert_ne!(b.call("fd_fdstat_set_rights", &[fd, 0, 0]), 0);
    let out = b.open("new.txt", 1);
    b.fill();
    b.put_u32s(1000, &[0, 0, 4000, 3, 5000, 3]);
    b.ok("fd_write", &[out, 1000, 3, 1100]);
    assert_eq!(b.u32_at(1100), 3);
    b.fill();
    b.put_u32s(1000, &[4000, 3]);
    b.ok("fd_pwrite", &[out, 1000, 1, 1, 1100]);
    b.ok("fd_filestat_set_size", &[out, 100]);
    b.ok("fd_filestat_set_times", &[out, 1, 1, 5]);
    b.ok("fd_sync", &[out]);
    b.ok("fd_datasync", &[out]);
    b.ok("fd_renumber", &[out, fd]);
    b.ok("fd_close", &[fd]);
    assert_ne!(b.call("fd_close", &[99]), 0);
    b.fill();
    b.put_u32s(1000, &[4000, 3]);
    b.put(4000, b"out");
    b.ok("fd_write", &[1, 1000, 1, 1100]);
    assert_eq!((b.host.stdout(), b.host.written()), (b"out".to_vec(), [3, 0]));
    b.fill();
    b.put_u32s(1000, &[4000, 300]);
    b.ok("fd_read", &[0, 1000, 1, 1100]);
    assert_eq!(b.u32_at(1100), 11);
    for size in [1000, 30] {
        b.fill();
        b.ok("fd_readdir", &[ROOT, 2000, size, 0, 1100]);
    }
}

fn paths(b: &mut Bench) {
    b.fill();
    b.put(100, b"hello.txt");
    b.put(300, b"link.txt");
    b.ok("path_filestat_get", &[ROOT, 0, 100, 9, 1000]);
    b.ok("path_filestat_set_times", &[ROOT, 0, 100, 9, 1, 1, 5]);
    b.ok("path_link", &[ROOT, 0, 100, 9, ROOT, 300, 8]);
    b.ok("path_unlink_file", &[ROOT, 300, 8]);
    b.ok("path_symlink", &[100, 9, ROOT, 300, 8]);
    for size in [100, 4] {
        b.ok("path_readlink", &[ROOT, 300, 8, 2000, size, 1100]);
        b.memory[2000..2100].fill(0xAA);
        b.memory[1100..1104].fill(0xAA);
    }
    b.put(400, b"newdir");
    b.put(500, b"moved");
    b.ok("path_create_directory", &[ROOT, 400, 6]);
    b.ok("path_rename", &[ROOT, 400, 6, ROOT, 500, 5]);
    b.ok("path_remove_directory", &[ROOT, 500, 5]);
    assert_ne!(b.call("path_open", &[ROOT, 0, 500, 5, 0, 0, 0, 0, 200]), 0);
}

fn polls_and_sockets(b: &mut Bench) {
    let clock = |b: &mut Bench, at: usize, nanos: u64| {
        b.memory[at..at + 48].fill(0);
        b.put(at, &0x1122_3344_5566_7788_u64.to_le_bytes());
        b.put(at + 16, &1u32.to_le_bytes());
        b.put(at + 24, &nanos.to_le_bytes());
    };
    b.fill();
    clock(b, 1000, 1000);
    b.ok("poll_oneoff", &[1000, 2000, 1, 1100]);
    b.fill();
    clock(b, 1000, 1_000_000);
    clock(b, 1048, 60_000_000_000);
    b.ok("poll_oneoff", &[1000, 2000, 2, 1200]);
    assert_eq!(b.u32_at(1200), 1);
    assert_ne!(b.call("poll_oneoff", &[1000, 2000, 0, 1200]), 0);
    assert_ne!(b.call("proc_raise", &[1]), 0);
    assert_ne!(b.call("sock_accept", &[1, 0, 1000]), 0);
    b.put_u32s(1000, &[4000, 3]);
    assert_ne!(b.call("sock_recv", &[1, 1000, 1, 0, 1100, 1104]), 0);
    assert_ne!(b.call("sock_send", &[1, 1000, 1, 0, 1100]), 0);
    assert_ne!(b.call("sock_shutdown", &[1, 1]), 0);
}

#[test]
fn declared_reads_are_all_that_matters() {
    // Changing every byte outside the declared ranges changes neither the result nor the effect.
    let run = |noise: u8| {
        let mut b = Bench::new();
        let mut results = Vec::new();
        let fd = {
            b.memory.fill(noise);
            b.put(100, b"hello.txt");
            b.ok("path_open", &[ROOT, 0, 100, 9, 0, 2, 0, 0, 200]);
            u64::from(b.u32_at(200))
        };
        let calls: &[Call] = &[
            ("fd_write", &[1, 1000, 2, 1100], &[(1000, &[0, 0, 0, 0, 0, 0, 0, 0, 0xa0, 0x0f, 0, 0, 2, 0, 0, 0]), (4000, b"ab")]),
            ("fd_read", &[fd, 1000, 1, 1100], &[(1000, &[0xa0, 0x0f, 0, 0, 4, 0, 0, 0])]),
            ("path_filestat_get", &[ROOT, 0, 100, 9, 2000], &[(100, b"hello.txt")]),
        ];
        for (name, args, inputs) in calls {
            b.memory.fill(noise);
            for (at, bytes) in *inputs {
                b.put(*at, bytes);
            }
            let function = wasi::function(name).unwrap();
            let declared: BTreeSet<u64> = function.reads(&b.memory, args).into_iter().flatten().collect();
            let given: BTreeSet<u64> = inputs.iter().flat_map(|(at, bytes)| *at as u64..(*at + bytes.len()) as u64).collect();
            assert_eq!(declared, given, "{name}");
            results.push(b.call(name, args));
        }
        (results, b.host.stdout())
    };
    assert_eq!(run(0x00), run(0xAA));
}

#[test]
fn rows_are_sorted_and_every_one_is_dispatched() {
    assert!(FUNCTIONS.windows(2).all(|pair| pair[0].name < pair[1].name));
    let mut host = WasiHost::builder().stdout(Stdout::Capture).build().unwrap();
    for function in FUNCTIONS {
        let end = host.call(function, &mut vec![0; 65536], &vec![0; function.params.len()]);
        assert!(!matches!(&end, HostEnd::Trap(message) if message.contains("no such function")), "{}: {end:?}", function.name);
        assert_eq!(matches!(end, HostEnd::Exit(0)), function.result.is_none(), "{}", function.name);
    }
    assert!(wasi::function("no_such_function").is_none());
}

#[test]
fn bad_pointers_trap_and_never_panic() {
    let mut host = WasiHost::builder().arg("x").env("K", "V").stdout(Stdout::Capture).build().unwrap();
    let try_all = |host: &mut WasiHost, function: &WasiFunction, value: u64| {
        // Sleeping for 2^64 ns is what the function is for.
        if matches!(function.name, "poll_oneoff") {
            return;
        }
        let mut memory = vec![0xff; 65536];
        let args: Vec<u64> = function.params.iter().map(|ty| if *ty == Ty::I32 { value & 0xffff_ffff } else { value }).collect();
        let buffers = function.buffers(&memory, &args);
        function.reads(&memory, &args);
        let facts = host.facts(function, &args);
        if let HostEnd::Returned(Some(errno)) = host.call(function, &mut memory, &args) {
            for range in function.writes(&memory, &args, errno, &facts, &buffers) {
                assert!(range.start < range.end && range.end <= 65536);
            }
        }
    };
    for function in FUNCTIONS {
        for value in [0, 1, 4, 65530, 65536, 0x7fff_ffff, 0xffff_fff8, u64::MAX] {
            try_all(&mut host, function, value);
        }
    }
    let write = wasi::function("fd_write").unwrap();
    assert!(matches!(host.call(write, &mut [0; 8], &[1, 100, 1, 0]), HostEnd::Trap(_)));
}

#[test]
fn exit_statuses_are_wasmtimes() {
    let mut host = WasiHost::builder().build().unwrap();
    let exit = wasi::function("proc_exit").unwrap();
    assert_eq!(host.call(exit, &mut [], &[7]), HostEnd::Exit(7));
    assert!(matches!(host.call(exit, &mut [], &[200]), HostEnd::Trap(message) if message.contains("[0..126)")));
}

#[test]
fn folders_and_strings_are_checked() {
    assert_eq!(Dir::parse("a::/b").unwrap(), Dir { host: "a".into(), guest: "/b".to_string() });
    assert_eq!(Dir::parse(".").unwrap(), Dir { host: ".".into(), guest: ".".to_string() });
    assert!(Dir::parse("::/").unwrap_err().to_string().contains("HOST::GUEST"));
    let missing = Dir { host: "/no/such/folder".into(), guest: "/".to_string() };
    assert!(WasiHost::builder().dir(missing).build().unwrap_err().to_string().contains("/no/such/folder"));
    assert!(WasiHost::builder().arg("a\0b").build().unwrap_err().to_string().contains("zero byte"));
}
