//! Recordings round-trip, and damaged ones are errors.

use super::*;

const MODULE_BYTES: &[u8] = b"\0asm\x01\0\0\0";

fn header() -> Header {
    Header {
        module_sha256: module_sha256(MODULE_BYTES),
        module_name: "tiny.wasm".to_string(),
        features: vec!["bulk-memory".to_string()],
        nan_canonical: true,
        relaxed_simd_deterministic: true,
        memory_bytes_max: 1 << 32,
        table_elements_max: 10_000_000,
        recorder: "test".to_string(),
        command: Command { entry: "_start".to_string(), args: vec!["-1".to_string()], ..Command::default() },
        imports: vec![Import {
            module: "env".to_string(),
            name: "print".to_string(),
            ty: ImportType::Func { params: vec![ValueType::I64, ValueType::V128], results: vec![] },
            effect: Effect::Append,
        }],
    }
}

fn events() -> Vec<Event> {
    vec![
        Event::Write { memory: 0, address: 8, bytes: b"in".to_vec() },
        Event::Enter { target: Target::Func(3), args: vec![1, u128::MAX] },
        Event::HostCall { import: 0, args: vec![u64::MAX.into(), 1 << 100] },
        Event::Read { memory: 0, address: 8, len: 2, hash: read_hash(b"in") },
        Event::Output { stream: 1, len: 2 },
        Event::MemoryGrow { memory: 0, delta: 1, previous: Some(1) },
        Event::TableGrow { table: 0, delta: 9, previous: None },
        Event::TableSet { table: 0, index: 0, value: 7 },
        Event::GlobalSet { global: 1, value: 5 },
        Event::Enter { target: Target::Element { table: 0, index: 4 }, args: vec![] },
        Event::Leave { end: End::Trapped { code: TrapCode::Unreachable, message: "unreachable".to_string() } },
        Event::HostReturn { end: End::Returned(vec![]) },
        Event::Leave { end: End::Exit(3) },
    ]
}

fn outcome() -> Outcome {
    Outcome {
        exit: Exit::Status(3),
        memories: vec![MemoryState::of(&[1, 2, 3])],
        stdout: OutputState { len: 2, blake3: *blake3::hash(b"in").as_bytes(), kept: b"in".to_vec() },
        stderr: OutputState::default(),
        host_calls: 1,
        entries: 2,
        events: 0,
    }
}

fn write(path: &Path, events: impl IntoIterator<Item = Event>) -> PathBuf {
    let initial = [Initial { import: 0, contents: Contents::Memory(vec![1, 2, 3]) }];
    let mut writer = RecordingWriter::create(path, &header(), MODULE_BYTES, &initial).unwrap();
    for event in events {
        writer.event(event).unwrap();
    }
    writer.finish(outcome()).unwrap()
}

#[test]
fn round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let recording = Recording::open(write(&dir.path().join("a.wspr"), events())).unwrap();
    assert_eq!(recording.header(), &header());
    assert_eq!(recording.module().unwrap(), MODULE_BYTES);
    assert_eq!(recording.initial(), [Initial { import: 0, contents: Contents::Memory(vec![1, 2, 3]) }]);
    assert_eq!(recording.events().collect::<Result<Vec<_>, _>>().unwrap(), events());
    assert_eq!(recording.outcome().unwrap(), &Outcome { events: 13, ..outcome() });
    assert_eq!(recording.effects(), [Effect::Append]);
    assert!(recording.complete());
    recording.check_module("tiny.wasm", MODULE_BYTES).unwrap();
    let other = recording.check_module("other.wasm", b"other").unwrap_err().to_string();
    assert!(other.contains("another module") && other.contains("other.wasm"), "{other}");
}

#[test]
fn long_streams_are_written_in_batches() {
    let dir = tempfile::tempdir().unwrap();
    let events = (0..100_000).map(|i| Event::GlobalSet { global: i, value: i.into() });
    let recording = Recording::open(write(&dir.path().join("a.wspr"), events.clone())).unwrap();
    assert!(recording.batches.len() > 3, "{} batches", recording.batches.len());
    assert!(recording.events().map(Result::unwrap).eq(events));
}

#[test]
fn unfinished_recordings_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(write(&dir.path().join("a.wspr"), events())).unwrap();
    let whole = Recording::from_bytes("whole", &bytes).unwrap();
    let done = whole.reader.chunks()[whole.reader.only(DONE).unwrap()].offset as usize;
    let cut = Recording::from_bytes("cut", &bytes[..done]).unwrap();
    assert!(!cut.complete());
    assert_eq!(cut.events().count(), 13);
    assert!(cut.outcome().unwrap_err().to_string().contains("never finished: it holds 13 events"));
}

#[test]
fn flipped_bytes_never_panic_and_never_pass() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(write(&dir.path().join("a.wspr"), events())).unwrap();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    println!("seed {seed:#x}");
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    for round in 0..10_000 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + random(3) {
            damaged[random(bytes.len())] ^= 1 + random(255) as u8;
        }
        if damaged == bytes {
            continue;
        }
        let sound = Recording::from_bytes("damaged", &damaged)
            .is_ok_and(|recording| recording.complete() && recording.events().all(|event| event.is_ok()));
        assert!(!sound, "round {round}: damage went unnoticed");
    }
}

#[test]
fn archives_of_any_bytes_never_panic() {
    // Checksums normally catch damage first; here each archive is damaged and given a matching checksum.
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir.path().join("a.wspr"), events());
    let whole = Reader::open(&path, Kind::RECORDING).unwrap();
    let mut seed = 12345_u64;
    for round in 0..2_000_usize {
        let mut writer = Writer::create(dir.path().join("b.wspr"), Kind::RECORDING).unwrap();
        for (index, chunk) in whole.chunks().iter().enumerate() {
            let mut payload = whole.payload(index).unwrap().to_vec();
            if index == round % whole.chunks().len() {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = (seed >> 33) as usize % payload.len();
                payload[at] ^= 1 << ((seed >> 20) % 8);
            }
            writer.chunk(chunk.tag, &payload).unwrap();
        }
        let path = writer.finish().unwrap();
        if let Ok(recording) = Recording::open(path) {
            for event in recording.events() {
                let _ = std::hint::black_box(event);
            }
            let _ = std::hint::black_box(recording.outcome());
        }
    }
}
