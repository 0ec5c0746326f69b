//! Whole, truncated, foreign, damaged and unwritable containers.

use super::*;

fn sample(dir: &Path) -> PathBuf {
    let path = dir.join("sample.wspt");
    let mut writer = Writer::create(&path, Kind::TRACE).unwrap();
    writer.chunk(*b"AAAA", b"first").unwrap();
    writer.archive(*b"BBBB", &vec![1u64, 2, 3]).unwrap();
    writer.chunk(*b"EMPT", b"").unwrap();
    writer.chunk(*b"AAAA", &[7; 1000]).unwrap();
    writer.finish().unwrap()
}

#[test]
fn round_trip_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    assert!(!dir.path().join("sample.wspt.partial").exists());
    let reader = Reader::open(&path, Kind::TRACE).unwrap();
    assert!(reader.complete());
    assert_eq!(reader.chunks().iter().map(|c| &c.tag).collect::<Vec<_>>(), [b"AAAA", b"BBBB", b"EMPT", b"AAAA"]);
    assert_eq!(reader.payload(0).unwrap(), b"first");
    let list: &rkyv::vec::ArchivedVec<rkyv::rend::u64_le> = reader.archived(reader.only(*b"BBBB").unwrap()).unwrap();
    assert_eq!(list.iter().map(|v| v.to_native()).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(reader.payload(2).unwrap(), b"");
    assert_eq!(reader.with_tag(*b"AAAA").collect::<Vec<_>>(), [0, 3]);
    for index in 0..4 {
        assert_eq!(reader.payload(index).unwrap().as_ptr() as usize % ALIGNMENT, 0);
    }
    assert!(reader.payload(4).is_err());
    assert!(reader.only(*b"AAAA").unwrap_err().to_string().contains("second `AAAA`"));
    assert!(matches!(reader.only(*b"NOPE"), Err(ContainerError::Missing { .. })));
}

#[test]
fn every_truncation_keeps_the_whole_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(sample(dir.path())).unwrap();
    let whole = Reader::from_bytes("whole", &bytes, Kind::TRACE).unwrap();
    for len in 0..bytes.len() {
        match Reader::from_bytes("cut", &bytes[..len], Kind::TRACE) {
            Ok(cut) => {
                assert!(len >= HEADER_LEN && !cut.complete());
                let expect: Vec<_> = whole.chunks().iter().filter(|c| c.end() <= len as u64).collect();
                assert_eq!(cut.chunks().iter().collect::<Vec<_>>(), expect, "cut at {len}");
            }
            Err(error) => assert!(len < HEADER_LEN, "cut at {len}: {error}"),
        }
    }
}

#[test]
fn every_bit_flip_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(sample(dir.path())).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let read = Reader::from_bytes("flipped", &flipped, Kind::TRACE)
            .and_then(|reader| (0..reader.chunks().len()).try_for_each(|i| reader.payload(i).map(drop)).map(|()| reader));
        // A flipped length can make the last chunks look cut off; then the file says that it is not complete.
        assert!(read.is_err() || !read.unwrap().complete(), "bit {bit} went unnoticed");
    }
}

#[test]
fn foreign_and_future_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    let mut bytes = std::fs::read(&path).unwrap();
    let message = |bytes: &[u8], kind| Reader::from_bytes("f", bytes, kind).unwrap_err().to_string();
    assert_eq!(message(&bytes, Kind::RECORDING), "f is not a recording (.wspr): it is a trace (.wspt)");
    assert_eq!(message(b"\0asm\x01\0\0\0", Kind::TRACE), "f is not a trace (.wspt): it is a WebAssembly module");
    assert_eq!(message(b"", Kind::TRACE), "f is not a trace (.wspt): it is empty");
    assert!(message(b"hello", Kind::TRACE).contains("begins with [68, 65"));
    bytes[8] = 99;
    assert!(message(&bytes, Kind::TRACE).contains("of version 99, but this worksp reads versions 1 to 1"));
    assert!(matches!(Reader::open(dir.path(), Kind::TRACE), Err(ContainerError::Io { .. })));
    assert!(Reader::open(dir.path().join("none"), Kind::TRACE).unwrap_err().to_string().contains("does the folder exist"));
}

#[test]
fn unfinished_files_vanish_unless_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (path, partial) = (dir.path().join("x.wspr"), dir.path().join("x.wspr.partial"));
    drop(Writer::create(&path, Kind::RECORDING).unwrap());
    assert!(!partial.exists() && !path.exists());
    let mut writer = Writer::create(&path, Kind::RECORDING).unwrap();
    writer.chunk(*b"AAAA", b"kept").unwrap();
    writer.keep_partial(true);
    drop(writer);
    let reader = Reader::open(&partial, Kind::RECORDING).unwrap();
    assert!(!reader.complete());
    assert_eq!(reader.payload(0).unwrap(), b"kept");
}

#[test]
fn unwritable_places_and_full_disks() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Writer::create(dir.path(), Kind::TRACE).is_err());
    let missing = dir.path().join("no/such/x.wspt");
    assert!(Writer::create(missing, Kind::TRACE).unwrap_err().to_string().starts_with("cannot create "));
    #[cfg(target_os = "linux")]
    {
        std::os::unix::fs::symlink("/dev/full", dir.path().join("full.wspt.partial")).unwrap();
        let mut writer = Writer::create(dir.path().join("full.wspt"), Kind::TRACE).unwrap();
        let error = writer.chunk(*b"AAAA", &vec![1; 1 << 20]).unwrap_err().to_string();
        assert!(error.contains("free some space"), "{error}");
        drop(writer);
        assert!(!dir.path().join("full.wspt").exists());
    }
}
