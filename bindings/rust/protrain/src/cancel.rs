use std::ptr::{null_mut, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protrain_sys as sys;

/// Stops a [`Session`](crate::Session) from any thread. All clones stop the same session. Once the session is dropped,
/// they do nothing.
///
/// ```
/// # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/fixtures")).unwrap();
/// # let mut options = protrain::Options::new()?;
/// # let mut session = options.dim("batch", 1)?.dim("sequence", 8)?.open("gpt2-dynamic-opset18.onnx")?;
/// # session.set_input("input_ids", &[1, 8], &[1i64; 8])?;
/// # session.set_input("labels", &[1, 8], &[1i64; 8])?;
/// let cancel = session.cancel_handle();
/// let waiting = std::thread::spawn(move || cancel.cancel()); // when the user presses a key, say
/// let error = loop {
///     if let Err(error) = session.step() {
///         break error;
///     }
/// };
/// assert_eq!(error.code(), protrain::Code::Cancelled);
/// session.step()?; // the session goes on
/// # waiting.join().unwrap();
/// # Ok::<(), protrain::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CancelHandle(Arc<Mutex<Target>>);

/// The session, or NULL once it is dropped. A mutex guards this, because a session must not be destroyed while another
/// thread cancels it.
#[derive(Debug)]
struct Target(*mut sys::protrain_session);

// SAFETY: the pointer is only passed to protrain_session_cancel, which any thread may call.
unsafe impl Send for Target {}

impl CancelHandle {
    pub(crate) fn new(session: NonNull<sys::protrain_session>) -> Self {
        CancelHandle(Arc::new(Mutex::new(Target(session.as_ptr()))))
    }

    /// Asks the step, evaluation, prediction or check of gradients that is inside the session, or else the next one, to
    /// stop. A step that has updated no parameter yet stops and changes nothing. Any other step runs to its end. Either
    /// way the call returns [`Code::Cancelled`](crate::Code::Cancelled), once, and the session stays usable.
    ///
    /// Any thread may call this, but no signal handler, because it takes a lock. A handler may set an atomic flag that
    /// another thread looks at.
    #[doc(alias = "protrain_session_cancel")]
    pub fn cancel(&self) {
        // SAFETY: while the lock is held the session is not destroyed; NULL is allowed.
        unsafe { sys::protrain_session_cancel(self.target().0) }
    }

    /// Makes all clones do nothing. Called before the session is destroyed.
    pub(crate) fn forget(&self) {
        self.target().0 = null_mut();
    }

    fn target(&self) -> MutexGuard<'_, Target> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
