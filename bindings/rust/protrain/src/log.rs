//! Closures as listeners of the library. A panic must not cross C: it is kept, and goes on where the call returns.

use std::any::Any;
use std::cell::Cell;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

use protrain_sys as sys;

use crate::error::text;

thread_local! {
    // The library calls a listener on the thread that is inside the call, so that this is where the call returns, too.
    static PANIC: Cell<Option<Box<dyn Any + Send>>> = Cell::new(None);
}

/// A closure that the library calls with each line of a log, until it is dropped.
pub(crate) struct Listener {
    closure: *mut (dyn Send),
    function: sys::protrain_log_fn,
}

// SAFETY: all it owns is the closure, which is Send.
unsafe impl Send for Listener {}

impl Listener {
    /// One that is never called by two threads at once, nor from within itself.
    pub(crate) fn exclusive<F: FnMut(&str) + Send + 'static>(closure: F) -> Self {
        unsafe extern "C" fn call<F: FnMut(&str)>(line: *const c_char, closure: *mut c_void) {
            // SAFETY: `closure` is an F that lives as long as its listener, and nobody else uses it now.
            unsafe { hear(line, &mut *closure.cast::<F>()) }
        }
        Listener { closure: Box::into_raw(Box::new(closure)), function: Some(call::<F>) }
    }

    /// One that may be called by several threads.
    pub(crate) fn shared<F: Fn(&str) + Send + Sync + 'static>(closure: F) -> Self {
        unsafe extern "C" fn call<F: Fn(&str)>(line: *const c_char, closure: *mut c_void) {
            // SAFETY: `closure` is an F that lives as long as its listener, and is only shared.
            unsafe { hear(line, &*closure.cast::<F>()) }
        }
        Listener { closure: Box::into_raw(Box::new(closure)), function: Some(call::<F>) }
    }

    /// The function and its argument, as the library takes them.
    pub(crate) fn c_parts(listener: Option<&Listener>) -> (sys::protrain_log_fn, *mut c_void) {
        listener.map_or((None, std::ptr::null_mut()), |listener| (listener.function, listener.closure.cast()))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // SAFETY: it came from Box::into_raw, and the library calls it no more.
        drop(unsafe { Box::from_raw(self.closure) });
    }
}

/// Hands a line to a closure, unless one has panicked in this call before.
///
/// # Safety
/// `line` is the library's, lent for the time of this call.
unsafe fn hear(line: *const c_char, mut closure: impl FnMut(&str)) {
    // Where the thread ends and its storage is gone, there is nobody to panic in front of.
    let _ = PANIC.try_with(|panic| {
        let before = panic.take();
        // SAFETY: as above.
        panic.set(before.or_else(|| catch_unwind(AssertUnwindSafe(|| closure(unsafe { text(line) }))).err()));
    });
}

/// Goes on with the panic of a listener, if there was one in the call that has just returned.
pub(crate) fn resume_panic() {
    if let Some(panic) = PANIC.try_with(Cell::take).ok().flatten() {
        resume_unwind(panic);
    }
}
