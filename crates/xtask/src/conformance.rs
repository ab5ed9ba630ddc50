//! `cargo xtask conformance`: writes docs/conformance.md.
//!
//! The runs are a test's, which needs the executable that cargo builds for it; that test writes the document when it
//! is told to. What the document says is the test crate's matter.

use std::process::Command;

use anyhow::{Context, ensure};

/// Runs the test that writes the document.
pub(crate) fn run() -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "test",
            "--package",
            "peerage",
            "--test",
            "conformance",
            "--",
        ])
        .arg("the_document_says_what_the_runs_show")
        .env("PEERAGE_WRITE", "1")
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the runs failed: {status}");
    println!("docs/conformance.md is written");
    Ok(())
}
