//! Compresses the version files and the rules, and lists them for the crate to embed.
//!
//! Invariant: the order of the generated list is that of the versions, oldest first.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=data");
    println!("cargo:rustc-env=PEERAGE_RUSTC={}", compiler()?);
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    let out = Path::new(&out);
    let mut versions = Vec::new();
    for entry in fs::read_dir("data")? {
        let path = entry?.path();
        println!("cargo:rerun-if-changed={}", path.display());
        let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or("");
        let Some((major, minor)) = stem.split_once('.') else {
            continue;
        };
        if let (Ok(major), Ok(minor)) = (major.parse::<u32>(), minor.parse::<u32>()) {
            versions.push(((major, minor), stem.to_owned()));
            compress(&path, &out.join(format!("{stem}.gz")))?;
        }
    }
    versions.sort();
    compress(Path::new("data/protobuf.txt"), &out.join("protobuf.gz"))?;
    let mut list = String::from("&[\n");
    for (_, name) in &versions {
        list.push_str(&format!(
            "(\"{name}\", include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}.gz\"))),\n"
        ));
    }
    list.push_str("]\n");
    fs::write(out.join("versions.in"), list)
}

/// Such as `rustc 1.95.0`.
fn compiler() -> io::Result<String> {
    let rustc = env::var("RUSTC").map_err(io::Error::other)?;
    let said = Command::new(rustc).arg("--version").output()?.stdout;
    let said = String::from_utf8_lossy(&said);
    Ok(said.split(' ').take(2).collect::<Vec<_>>().join(" "))
}

fn compress(from: &Path, to: &Path) -> io::Result<()> {
    let mut gz = GzEncoder::new(fs::File::create(to)?, Compression::best());
    gz.write_all(&fs::read(from)?)?;
    gz.finish()?;
    Ok(())
}
