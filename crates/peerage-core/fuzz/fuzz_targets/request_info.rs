//! Any bytes as a method and a target: parsing must not panic, must keep the target, and must agree with the slow
//! reference wherever that speaks (its selectors cover only what the property tests generate).
//!
//! `cargo +nightly fuzz run request_info` from `crates/peerage-core`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peerage_core::RequestInfo;

#[path = "../../tests/reference/mod.rs"]
mod reference;

fuzz_target!(|input: (&str, &str)| {
    let (method, target) = input;
    let parsed = RequestInfo::parse(method, target);
    if let Ok(info) = &parsed {
        assert_eq!(info.raw_target(), target);
        assert_eq!(
            reference::said(info),
            reference::said(&info.clone().into_owned())
        );
    }
    if !target.contains('?') && !target.bytes().any(|byte| byte.is_ascii_control()) {
        match reference::parse(method, target) {
            None | Some(Err(())) => assert!(parsed.is_err()),
            Some(Ok(expected)) => {
                assert_eq!(parsed.ok().as_ref().map(reference::said), Some(expected))
            }
        }
    }
});
