//! `cargo xtask setup`: the programs that fetching and building the fixtures needs.

use crate::sh;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

/// A Debian package and a file that shows that it (or something as good) is there.
const DEBIAN: &[(&str, &[&str])] = &[
    ("clang-14", &["/usr/bin/clang-14"]),
    ("lld-14", &["/usr/bin/wasm-ld-14"]),
    ("wasi-libc", &["/usr/lib/wasm32-wasi/libc.a"]),
    ("libclang-rt-14-dev-wasm32", &["/usr/lib/llvm-14/lib/clang/14.0.6/lib/wasi/libclang_rt.builtins-wasm32.a"]),
    ("dpkg-dev", &["/usr/bin/dpkg-source"]),
    ("xz-utils", &["/usr/bin/xz"]),
    ("gcc", &["/usr/bin/gcc"]),
    ("libc6-dev", &["/usr/include/stdio.h"]),
];

/// Installs what is missing.
///
/// # Errors
/// When a package cannot be installed, or pip or npm is missing and cannot be installed either.
pub fn run() -> Result<()> {
    let mut missing: Vec<&str> = DEBIAN.iter().filter(|(_, files)| !files.iter().any(|file| Path::new(file).exists())).map(|(name, _)| *name).collect();
    if !sh::succeeds(Command::new("python3").args(["-m", "pip", "--version"])) {
        missing.extend(["python3", "python3-pip", "python3-venv"]);
    }
    if !sh::succeeds(Command::new("npm").arg("--version")) {
        missing.push("npm");
    }
    if missing.is_empty() {
        return Ok(());
    }
    if !sh::succeeds(Command::new("apt-get").arg("--version")) {
        bail!("these are missing and this system has no apt-get: {}; install their equivalents (clang 14 or newer with lld and wasi-libc)", missing.join(", "));
    }
    eprintln!("installing {}", missing.join(" "));
    let as_root = |arguments: &[&str]| {
        let root = sh::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
        let mut command = if root { Command::new("apt-get") } else { Command::new("sudo") };
        if !root {
            command.arg("apt-get");
        }
        sh::output(command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments))
    };
    as_root(&["-qq", "update"])?;
    as_root(&[&["-qq", "install", "-y", "--no-install-recommends"], missing.as_slice()].concat())?;
    Ok(())
}
