//! Every error code of the library becomes a `Code` of its own, with the error's text and subject, and every error is
//! destroyed once. Tests cannot provoke all codes, so this file defines the C functions itself. The linker takes the
//! program's symbols before those of libprotrain.

use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_uint};
use std::sync::atomic::{AtomicUsize, Ordering};

use protrain::{Code, Options};

static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// An error with this code. `protrain_options_set` below makes one whose code is the length of the option's value.
struct Fake(c_uint);

#[no_mangle]
unsafe extern "C" fn protrain_options_set(_: *mut u8, _: *const c_char, value: *const c_char) -> *mut Fake {
    ALIVE.fetch_add(1, Ordering::Relaxed);
    Box::into_raw(Box::new(Fake(CStr::from_ptr(value).to_bytes().len() as c_uint)))
}

#[no_mangle]
unsafe extern "C" fn protrain_error_code(error: *const Fake) -> c_uint {
    (*error).0
}

#[no_mangle]
extern "C" fn protrain_error_text(_: *const Fake) -> *const c_char {
    "what happened, é\0".as_ptr().cast()
}

#[no_mangle]
extern "C" fn protrain_error_subject(_: *const Fake) -> *const c_char {
    "what it is about\0".as_ptr().cast()
}

#[no_mangle]
unsafe extern "C" fn protrain_error_usable(error: *const Fake) -> c_int {
    ((*error).0 % 2) as c_int
}

#[no_mangle]
unsafe extern "C" fn protrain_error_destroy(error: *mut Fake) {
    ALIVE.fetch_sub(1, Ordering::Relaxed);
    drop(Box::from_raw(error));
}

const CODES: [Code; 24] = [
    Code::Arg,
    Code::State,
    Code::Busy,
    Code::Forked,
    Code::Version,
    Code::Path,
    Code::Io,
    Code::NoSpace,
    Code::Format,
    Code::Limit,
    Code::Shape,
    Code::Type,
    Code::Graph,
    Code::Unsupported,
    Code::Corrupt,
    Code::Mismatch,
    Code::Budget,
    Code::NoMemory,
    Code::NonFinite,
    Code::Peer,
    Code::Timeout,
    Code::Device,
    Code::Internal,
    Code::Cancelled,
];

#[test]
fn every_code_is_its_own() {
    let mut options = Options::new().unwrap();
    for (number, code) in (1..).zip(CODES) {
        let error = options.set("key", "x".repeat(number)).unwrap_err();
        assert_eq!((error.code(), code as usize), (code, number));
        assert_eq!(error.usable(), number % 2 == 1);
        assert_eq!((error.text(), error.subject()), ("what happened, é", "what it is about"));
        assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
    }
    assert_eq!(options.set("key", "x").unwrap_err().to_string(), "what happened, é");
    let error = options.set("key", "x".repeat(CODES.len() + 1)).unwrap_err();
    assert_eq!(error.code(), Code::Unknown);
}
