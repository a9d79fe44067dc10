//! Measures how much longer a call through the Rust crate takes than the same call in C.
//!
//! ```text
//! cargo run --release --manifest-path bench/bindings/rust/Cargo.toml -- MODEL.onnx
//! ```
//!
//! MODEL.onnx has inputs `input_ids` and `labels`. The C functions are called as in a C program, on a session with the
//! same options. Rounds of both take turns, and the fastest round of each counts. Prints nanoseconds per call, as JSON.

use std::error::Error;
use std::ffi::CString;
use std::os::raw::c_char;
use std::ptr::{null, null_mut};
use std::time::Instant;

use protrain::{Options, Session};
use protrain_sys::*;

const ROUNDS: usize = 200;
const CALLS: usize = 500;
const SHAPE: [usize; 2] = [8, 64];

type Raw = *mut protrain_session;

struct Row {
    name: &'static str,
    c: fn(Raw, &[i64]),
    rust: fn(&mut Session, &[i64]),
}

const ROWS: [Row; 5] = [
    Row {
        name: "step_count",
        c: |session, _| {
            let mut count = 0;
            check(unsafe { protrain_session_step_count(session, &mut count) });
        },
        rust: |session, _| {
            session.step_count().unwrap();
        },
    },
    Row {
        name: "set_learning_rate",
        c: |session, _| check(unsafe { protrain_session_set_learning_rate(session, 1e-3) }),
        rust: |session, _| session.set_learning_rate(1e-3).unwrap(),
    },
    Row {
        name: "set_input, 4 KiB",
        c: |session, tokens| {
            let (name, dims, data) = (c_str(b"input_ids\0"), [8, 64], tokens.as_ptr().cast());
            let dtype = PROTRAIN_INT64 as i32;
            check(unsafe { protrain_session_set_input(session, name, dtype, dims.as_ptr(), 2, data, 4096) });
        },
        rust: |session, tokens| session.set_input("input_ids", &SHAPE, tokens).unwrap(),
    },
    Row {
        name: "an error",
        c: |session, _| unsafe {
            let error = protrain_session_set_learning_rate(session, -1.0);
            protrain_error_text(error);
            protrain_error_subject(error);
            protrain_error_destroy(error);
        },
        rust: |session, _| {
            session.set_learning_rate(-1.0).unwrap_err();
        },
    },
    Row {
        name: "plan, a text",
        c: |session, _| {
            let mut json = null();
            check(unsafe { protrain_session_plan(session, &mut json) });
        },
        rust: |session, _| {
            session.plan().unwrap();
        },
    },
];

fn c_str(text: &'static [u8]) -> *const c_char {
    text.as_ptr().cast()
}

fn check(error: *mut protrain_error) {
    assert!(error.is_null());
}

/// A session created through the C functions. It is never destroyed.
fn c_session(model: &str) -> Raw {
    let model = CString::new(model).unwrap();
    let (mut options, mut session) = (null_mut(), null_mut());
    unsafe {
        check(protrain_options_create(&mut options));
        check(protrain_options_set(options, c_str(b"dim\0"), c_str(b"batch=8\0")));
        check(protrain_options_set(options, c_str(b"dim\0"), c_str(b"sequence=64\0")));
        check(protrain_session_create(options, model.as_ptr(), &mut session));
    }
    session
}

/// Calls `call` many times and returns the nanoseconds per call.
fn time(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..CALLS).for_each(|_| call());
    start.elapsed().as_nanos() as f64 / CALLS as f64
}

fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).ok_or("usage: calls MODEL.onnx")?;
    let raw = c_session(&model);
    let mut session = Options::new()?.dim("batch", SHAPE[0])?.dim("sequence", SHAPE[1])?.open(&model)?;
    let tokens = vec![1i64; SHAPE[0] * SHAPE[1]];
    let mut calls = Vec::new();
    for row in ROWS {
        let (mut c, mut rust) = (f64::MAX, f64::MAX);
        for _ in 0..ROUNDS {
            c = c.min(time(|| (row.c)(raw, &tokens)));
            rust = rust.min(time(|| (row.rust)(&mut session, &tokens)));
        }
        calls.push(format!("\"{}\":{{\"c\":{c:.1},\"rust\":{rust:.1},\"over\":{:.1}}}", row.name, rust - c));
    }
    println!("{{{}}}", calls.join(","));
    Ok(())
}
