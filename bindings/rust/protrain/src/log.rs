//! Closures as log callbacks of the library. A panic must not unwind through C. So it is caught in the callback. When
//! the library call has returned, it is resumed, or its message becomes a part of the call's error.

use std::any::Any;
use std::cell::Cell;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

use protrain_sys as sys;

use crate::error::text;

thread_local! {
    // The payload of a caught panic. The library calls a listener on the thread of the call that logs, so the thread on
    // which the call returns finds the payload here.
    static PANIC: Cell<Option<Box<dyn Any + Send>>> = Cell::new(None);
}

/// A closure that the library calls with each line of a log, until it is dropped.
pub(crate) struct Listener {
    closure: *mut dyn Send,
    function: sys::protrain_log_fn,
}

// SAFETY: a Listener owns only the closure, which is Send.
unsafe impl Send for Listener {}

impl Listener {
    /// Wraps a closure that is never called by two threads at once, nor from within itself.
    pub(crate) fn exclusive<F: FnMut(&str) + Send + 'static>(closure: F) -> Self {
        unsafe extern "C" fn call<F: FnMut(&str)>(line: *const c_char, closure: *mut c_void) {
            // SAFETY: `closure` points to an F that lives as long as its listener, and nothing else uses it now.
            unsafe { hear(line, &mut *closure.cast::<F>()) }
        }
        Listener { closure: Box::into_raw(Box::new(closure)), function: Some(call::<F>) }
    }

    /// Wraps a closure that several threads may call at once.
    pub(crate) fn shared<F: Fn(&str) + Send + Sync + 'static>(closure: F) -> Self {
        unsafe extern "C" fn call<F: Fn(&str)>(line: *const c_char, closure: *mut c_void) {
            // SAFETY: `closure` points to an F that lives as long as its listener, and is only read.
            unsafe { hear(line, &*closure.cast::<F>()) }
        }
        Listener { closure: Box::into_raw(Box::new(closure)), function: Some(call::<F>) }
    }

    /// The C function and its user pointer, or NULL for both.
    pub(crate) fn c_parts(listener: Option<&Listener>) -> (sys::protrain_log_fn, *mut c_void) {
        listener.map_or((None, std::ptr::null_mut()), |listener| (listener.function, listener.closure.cast()))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // SAFETY: the closure came from Box::into_raw, and the library no longer calls it.
        drop(unsafe { Box::from_raw(self.closure) });
    }
}

/// Passes a line to a closure, unless a listener has panicked before in the same library call.
///
/// # Safety
/// `line` must be a text of the library that stays valid during this call.
unsafe fn hear(line: *const c_char, mut closure: impl FnMut(&str)) {
    // try_with() fails if the thread is ending and its thread-local storage is gone. The line is then dropped.
    let _ = PANIC.try_with(|panic| {
        let before = panic.take();
        // SAFETY: the caller guarantees that `line` is valid.
        panic.set(before.or_else(|| catch_unwind(AssertUnwindSafe(|| closure(unsafe { text(line) }))).err()));
    });
}

/// Resumes the panic of a listener, if there was one in the library call that has just returned.
pub(crate) fn resume_panic() {
    if let Some(panic) = take_panic() {
        resume_unwind(panic);
    }
}

/// Ends the panic of a listener, if there was one in the library call that has just returned. Returns its message.
pub(crate) fn take_panic_message() -> Option<String> {
    let panic = take_panic()?;
    let message = match panic.downcast_ref::<&str>() {
        Some(&text) => text,
        None => panic.downcast_ref::<String>().map_or("a value that is no text", String::as_str),
    };
    Some(message.to_owned())
}

fn take_panic() -> Option<Box<dyn Any + Send>> {
    PANIC.try_with(Cell::take).ok().flatten()
}
