//! The `peerage` executable: it hands its arguments to the library of the same name and turns the outcome into an
//! exit code. Everything else is in `lib.rs` and below, where tests can reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    peerage::main(std::env::args_os())
}
