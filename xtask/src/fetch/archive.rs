//! Third-party archives: downloaded by package name with the registry's ordinary client, checked, unpacked.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use worksp_fixtures::{Client, Source, cache_dir, sha256_of};

/// Where an archive's files are after [`obtain`].
pub fn unpacked(name: &str) -> PathBuf {
    cache_dir().join("unpacked").join(slug(name))
}

/// Downloads and unpacks an archive, unless that was done.
///
/// # Errors
/// When the client fails or serves an archive whose hash is not the pinned one.
pub fn obtain(name: &str, source: &Source) -> Result<()> {
    let marker = unpacked(name).join(".sha256");
    if std::fs::read_to_string(&marker).is_ok_and(|hash| hash == source.sha256) {
        return Ok(());
    }
    let kept = cache_dir().join("archives").join(&source.sha256);
    if !sha256_of(&kept).is_ok_and(|hash| hash == source.sha256) {
        eprintln!("fetching {name} {}", source.version);
        std::fs::create_dir_all(cache_dir().join("archives"))?;
        let work = tempfile::tempdir_in(cache_dir())?;
        download(name, source, work.path())?;
        let found = find_by_hash(work.path(), source)?;
        std::fs::rename(&found, &kept)?;
    }
    let fresh = tempfile::tempdir_in(cache_dir())?;
    unpack(&kept, source.from, fresh.path())?;
    std::fs::write(fresh.path().join(".sha256"), &source.sha256)?;
    let target = unpacked(name);
    std::fs::create_dir_all(cache_dir().join("unpacked"))?;
    if target.exists() {
        std::fs::remove_dir_all(&target)?;
    }
    std::fs::rename(fresh.keep(), &target).with_context(|| format!("cannot write {}", target.display()))
}

/// A package's name as one part of a path.
fn slug(name: &str) -> String {
    name.trim_start_matches('@').replace('/', "-")
}

/// Has the registry's client put the archive somewhere into `work`.
fn download(name: &str, source: &Source, work: &Path) -> Result<()> {
    let pip = |kind: [&str; 2]| {
        let spec = format!("{name}=={}", source.version);
        sh::output(Command::new("python3").args(["-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]).args(kind).arg("-d").arg(work).arg(spec))
    };
    match source.from {
        Client::PipWheel => pip(["--only-binary", ":all:"]).map(drop),
        Client::PipSdist => pip(["--no-binary", name]).map(drop),
        Client::Npm => {
            let spec = format!("{name}@{}", source.version);
            sh::output(Command::new("npm").args(["pack", "--silent", "--pack-destination"]).arg(work).arg(spec)).map(drop)
        }
        Client::Deb => {
            let spec = format!("{name}={}", source.version);
            sh::output(Command::new("apt-get").args(["-qq", "download", &spec]).current_dir(work)).map(drop)
        }
        Client::DebSource => download_debian_source(name, source, work),
        Client::Crate => download_crate(name, source, work),
    }
}

/// A package of its own that depends on the crate makes `cargo fetch` download (and itself check) it.
fn download_crate(name: &str, source: &Source, work: &Path) -> Result<()> {
    let plain = source.version.split('+').next().unwrap_or_default();
    std::fs::create_dir(work.join("src"))?;
    std::fs::write(work.join("src/lib.rs"), "")?;
    let manifest = format!("[package]\nname = \"fetch\"\nedition = \"2024\"\n[dependencies]\n{name} = \"={plain}\"\n[workspace]\n");
    std::fs::write(work.join("Cargo.toml"), manifest)?;
    sh::output(Command::new("cargo").args(["fetch", "--quiet", "--manifest-path"]).arg(work.join("Cargo.toml")))?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let cache = home.context("neither CARGO_HOME nor HOME is set")?.join("registry/cache");
    let file = format!("{name}-{}.crate", source.version);
    for registry in std::fs::read_dir(&cache).with_context(|| format!("cannot read {}", cache.display()))? {
        let path = registry?.path().join(&file);
        if path.exists() {
            std::fs::copy(path, work.join(&file))?;
        }
    }
    Ok(())
}

/// Source packages need a source list, which ordinary machines don't have: a private one, beside the system's lists.
fn download_debian_source(name: &str, source: &Source, work: &Path) -> Result<()> {
    for dir in ["parts", "lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(work.join("apt").join(dir))?;
    }
    let mut entries = 0;
    for file in std::fs::read_dir("/etc/apt/sources.list.d")?.chain(std::fs::read_dir("/etc/apt")?) {
        let path = file?.path();
        let text = match path.extension().and_then(|ext| ext.to_str()) {
            Some("sources") => std::fs::read_to_string(&path)?.lines().map(|line| if line.starts_with("Types:") { "Types: deb-src" } else { line }).collect::<Vec<_>>().join("\n"),
            Some("list") => std::fs::read_to_string(&path)?.lines().filter(|line| line.starts_with("deb ")).map(|line| line.replacen("deb ", "deb-src ", 1)).collect::<Vec<_>>().join("\n"),
            _ => continue,
        };
        entries += 1;
        let target = work.join("apt/parts").join(path.file_name().context("a file has a name")?);
        std::fs::write(target, text + "\n")?;
    }
    if entries == 0 {
        bail!("no list of Debian package sources below /etc/apt: {name} is taken from Debian's source packages");
    }
    let apt = |arguments: &[&str]| {
        let option = |key: &str, value: &Path| format!("{key}={}", value.display());
        let mut command = Command::new("apt-get");
        command.current_dir(work).arg("-qq");
        command.arg("-o").arg("Dir::Etc::sourcelist=/dev/null");
        command.arg("-o").arg(option("Dir::Etc::sourceparts", &work.join("apt/parts")));
        command.arg("-o").arg(option("Dir::State::lists", &work.join("apt/lists")));
        command.arg("-o").arg(option("Dir::Cache", &work.join("apt/cache")));
        sh::output(command.args(arguments))
    };
    apt(&["update"])?;
    // The original sources alone: the registry may no longer have Debian's own patches of that revision.
    apt(&["source", "--download-only", "--tar-only", &format!("{name}={}", source.version)]).map(drop)
}

/// The one downloaded file that has the pinned hash.
fn find_by_hash(work: &Path, source: &Source) -> Result<PathBuf> {
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(work)? {
        let path = entry?.path();
        if !path.is_file() {
            continue;
        }
        let hash = sha256_of(&path)?;
        if hash == source.sha256 {
            return Ok(path);
        }
        seen.push(format!("{hash}  {}", path.file_name().unwrap_or_default().to_string_lossy()));
    }
    bail!("no downloaded file has the pinned SHA-256 {}; there are:\n{}", source.sha256, seen.join("\n"))
}

fn unpack(archive: &Path, client: Client, into: &Path) -> Result<()> {
    match client {
        Client::Crate | Client::PipSdist | Client::DebSource => sh::output(Command::new("tar").arg("xf").arg(archive).args(["--strip-components=1", "-C"]).arg(into)),
        Client::Npm => sh::output(Command::new("tar").arg("xf").arg(archive).arg("-C").arg(into)),
        Client::PipWheel => sh::output(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(archive).arg(into)),
        Client::Deb => sh::output(Command::new("dpkg-deb").arg("-x").arg(archive).arg(into)),
    }
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_with_another_hash_is_refused() {
        let work = tempfile::tempdir().unwrap();
        std::fs::write(work.path().join("package.tgz"), "abc").unwrap();
        let source = |sha256: &str| Source { from: Client::Npm, version: "1".to_owned(), file: None, sha256: sha256.to_owned() };
        let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(find_by_hash(work.path(), &source(right)).unwrap(), work.path().join("package.tgz"));
        let wrong = right.replace('b', "c");
        let message = find_by_hash(work.path(), &source(&wrong)).unwrap_err().to_string();
        assert!(message.contains(right) && message.contains(&wrong) && message.contains("package.tgz"), "{message}");
    }

    #[test]
    fn names_become_one_part_of_a_path() {
        for (name, expect) in [("lz4-sys", "lz4-sys"), ("@yowasp/yosys", "yowasp-yosys")] {
            assert_eq!(slug(name), expect);
        }
    }
}
