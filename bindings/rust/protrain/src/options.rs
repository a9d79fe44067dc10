use std::ffi::CString;
use std::fmt;
use std::os::raw::c_char;
use std::path::Path;
use std::ptr::{null, null_mut, NonNull};

use protrain_sys as sys;

use crate::error::{c_path, c_text, check, text};
use crate::log::Listener;
use crate::{Result, Session};

/// What a [`Session`] will be made from. Each option is checked when it is set; the others have their defaults.
///
/// A builder like [`std::fs::OpenOptions`]: calls can be chained, and one object serves any number of sessions.
///
/// ```
/// # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/fixtures")).unwrap();
/// # let directory = std::env::temp_dir();
/// use protrain::Options;
///
/// let mut session = Options::new()?
///     .dim("batch", 8)?
///     .dim("sequence", 64)?
///     .set("learning_rate", 3e-4)?
///     .set("memory", "4MiB")?
///     .set_path("offload_dir", &directory)?
///     .open("gpt2-dynamic-opset18.onnx")?;
/// assert_eq!(session.step_count()?, 0);
/// # Ok::<(), protrain::Error>(())
/// ```
pub struct Options {
    raw: NonNull<sys::protrain_options>,
    log: Option<Listener>,
}

// SAFETY: the library ties options to no thread.
unsafe impl Send for Options {}
// SAFETY: all that a shared reference can do is `open`, which only reads them, and may be called by several threads.
unsafe impl Sync for Options {}

impl Options {
    /// Options in which everything has its default.
    #[doc(alias = "protrain_options_create")]
    pub fn new() -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: the pointer is good for the time of the call.
        unsafe { check(sys::protrain_options_create(&mut raw))? };
        Ok(Options { raw: NonNull::new(raw).expect("options were made"), log: None })
    }

    /// Sets one option, to a number or a text. [`Options::help`] lists the keys; `protrain.h` has those most used:
    /// `memory`, `learning_rate`, `optimizer`, `threads`, `accumulation`, `frozen` and so on.
    ///
    /// A list (`dim`, `shapes`, `trainable`, `frozen`, `tie`, `keep_gradients`) gains one item with each call; any other
    /// option is replaced.
    ///
    /// # Errors
    /// `Arg` for a key that does not exist (the text names the nearest), a value of another type or out of range;
    /// `Unsupported` for what is known but not available yet.
    #[doc(alias = "protrain_options_set")]
    pub fn set(&mut self, key: &str, value: impl ToString) -> Result<&mut Self> {
        self.set_text(key, &c_text(key, value.to_string())?)
    }

    /// Sets an option that is a path: `offload_dir`, `resume`, `plan`, `hardware` or `profile_dir`.
    ///
    /// # Errors
    /// As [`Options::set`].
    #[doc(alias = "protrain_options_set")]
    pub fn set_path(&mut self, key: &str, path: impl AsRef<Path>) -> Result<&mut Self> {
        self.set_text(key, &c_path(key, path.as_ref())?)
    }

    /// Binds a symbolic dimension of the model's inputs: the option `dim`.
    ///
    /// # Errors
    /// As [`Options::set`].
    pub fn dim(&mut self, name: &str, size: usize) -> Result<&mut Self> {
        self.set("dim", format_args!("{name}={size}"))
    }

    fn set_text(&mut self, key: &str, value: &CString) -> Result<&mut Self> {
        let key = c_text("key", key)?;
        // SAFETY: both texts end in NUL and are copied.
        unsafe { check(sys::protrain_options_set(self.raw.as_ptr(), key.as_ptr(), value.as_ptr()))? };
        Ok(self)
    }

    /// What holds for an option: what was set, or the default; empty where there is neither. The items of a list are
    /// separated by newlines.
    ///
    /// # Errors
    /// `Arg` for a key that does not exist.
    #[doc(alias = "protrain_options_get")]
    pub fn get(&mut self, key: &str) -> Result<&str> {
        let key = c_text("key", key)?;
        // SAFETY: the text ends in NUL.
        self.lend(|options, out| unsafe { sys::protrain_options_get(options, key.as_ptr(), out) })
    }

    /// All options, as a JSON array of objects with `key`, `type`, `default`, `range`, `sentence` and `available`.
    #[doc(alias = "protrain_options_help")]
    pub fn help(&mut self) -> Result<&str> {
        // SAFETY: see lend.
        self.lend(|options, out| unsafe { sys::protrain_options_help(options, out) })
    }

    /// Says whether a model can be trained, without training it: everything it lacks at once, and what was found in it,
    /// as a JSON object; `protrain.h` lists its members. No weights are read.
    ///
    /// # Errors
    /// `Io`, `Path`, `Format`, `Limit`, `Version` or `Graph` for a file that is no model at all; `Arg` for options that
    /// cannot be. Operators and gradients that are missing are no errors: they are in `problems`.
    #[doc(alias = "protrain_model_check")]
    pub fn check(&mut self, model: impl AsRef<Path>) -> Result<&str> {
        let model = c_path("model", model.as_ref())?;
        // SAFETY: see lend.
        self.lend(|options, out| unsafe { sys::protrain_model_check(options, model.as_ptr(), out) })
    }

    /// Says how a model would train, without training it: the plan that would be chosen, what a step would take and
    /// hold, and why, as a JSON object; `protrain.h` lists its members. For the machine that the option `hardware`
    /// names or describes, or for this one, which is then measured.
    ///
    /// # Errors
    /// As [`Options::open`], but that a budget that is too small is none: it is in the answer.
    #[doc(alias = "protrain_model_plan")]
    pub fn plan(&mut self, model: impl AsRef<Path>) -> Result<&str> {
        let model = c_path("model", model.as_ref())?;
        // SAFETY: see lend.
        self.lend(|options, out| unsafe { sys::protrain_model_plan(options, model.as_ptr(), out) })
    }

    /// Measures this machine on what a model needs, again where it was measured before. A file of the answer, a JSON
    /// object, is what the option `hardware` takes, on any machine.
    ///
    /// # Errors
    /// As [`Options::plan`]; `Arg` where the option `hardware` is set.
    #[doc(alias = "protrain_model_profile")]
    pub fn profile(&mut self, model: impl AsRef<Path>) -> Result<&str> {
        let model = c_path("model", model.as_ref())?;
        // SAFETY: see lend.
        self.lend(|options, out| unsafe { sys::protrain_model_profile(options, model.as_ptr(), out) })
    }

    /// Listens to how far a long call with these options is: `{"event":"profiling","done":3,"of":41}`, a line for each
    /// kernel that [`Options::open`], [`Options::plan`] or [`Options::profile`] measures. A panic of the closure goes
    /// on in that call, when it returns.
    #[doc(alias = "protrain_options_set_log")]
    pub fn set_log(&mut self, log: impl Fn(&str) + Send + Sync + 'static) -> Result<&mut Self> {
        self.listen(Some(Listener::shared(log)))
    }

    /// Listens no more.
    #[doc(alias = "protrain_options_set_log")]
    pub fn clear_log(&mut self) -> Result<&mut Self> {
        self.listen(None)
    }

    fn listen(&mut self, log: Option<Listener>) -> Result<&mut Self> {
        let (function, closure) = Listener::c_parts(log.as_ref());
        // SAFETY: the closure lives until another takes its place, or the options are destroyed.
        unsafe { check(sys::protrain_options_set_log(self.raw.as_ptr(), function, closure))? };
        self.log = log;
        Ok(self)
    }

    /// Reads a model and makes it ready to train: builds the gradient graph, chooses a plan, lays out all memory and
    /// allocates it, reads the weights, starts the threads. Nothing of this is left for a step. The session needs the
    /// options no more.
    ///
    /// # Errors
    /// `Io`, `Path`, `Format`, `Limit` or `Version` for files; `Graph`, `Shape` or `Type` for graphs that are not
    /// legal, have no loss, or do not fit the bound dimensions; `Unsupported` lists every operator and gradient that is
    /// missing; `Arg` for options that do not fit the model; `Budget` where no plan fits: the text names the smallest
    /// budget that works and what else would do. With the option `resume`: `Format`, `Corrupt`, `Version`, `Path` or
    /// `Mismatch` for the checkpoint.
    #[doc(alias = "protrain_session_create")]
    pub fn open(&self, model: impl AsRef<Path>) -> Result<Session> {
        let model = c_path("model", model.as_ref())?;
        // SAFETY: the path ends in NUL.
        self.make(|options, session| unsafe { sys::protrain_session_create(options, model.as_ptr(), session) })
    }

    /// [`Options::open`] for a model in memory: the bytes of an ONNX file, which are copied. Its external data lie in
    /// `directory`, and nothing outside of it is opened; `None` for a model that has none.
    ///
    /// # Errors
    /// As [`Options::open`]; `Path` for external data without a `directory`, or outside of it.
    #[doc(alias = "protrain_session_create_from_bytes")]
    pub fn open_bytes(&self, model: &[u8], directory: Option<&Path>) -> Result<Session> {
        let directory = c_path("directory", directory.unwrap_or_else(|| Path::new("")))?;
        let (bytes, len) = (model.as_ptr().cast(), model.len());
        // SAFETY: pointer and length are those of a slice; the path ends in NUL.
        self.make(|options, session| unsafe {
            sys::protrain_session_create_from_bytes(options, bytes, len, directory.as_ptr(), session)
        })
    }

    fn make(
        &self,
        create: impl FnOnce(*const sys::protrain_options, *mut *mut sys::protrain_session) -> *mut sys::protrain_error,
    ) -> Result<Session> {
        let mut raw = null_mut();
        // SAFETY: the options are only read; the pointers are good for the time of the call.
        unsafe {
            let error = create(self.raw.as_ptr(), &mut raw);
            // Owned before it is checked: a listener's panic may go on from there.
            let session = NonNull::new(raw).map(Session::from_raw);
            check(error)?;
            Ok(session.expect("a session was made"))
        }
    }

    /// `call` is a function of the library that lends a text until the next call on the options, which the borrow of
    /// `self` keeps away.
    fn lend(
        &mut self,
        call: impl FnOnce(*mut sys::protrain_options, *mut *const c_char) -> *mut sys::protrain_error,
    ) -> Result<&str> {
        let mut lent = null();
        // SAFETY: as above.
        unsafe {
            check(call(self.raw.as_ptr(), &mut lent))?;
            Ok(text(lent))
        }
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: they were made once, and are destroyed once.
        unsafe { sys::protrain_options_destroy(self.raw.as_ptr()) }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Options").finish_non_exhaustive()
    }
}
