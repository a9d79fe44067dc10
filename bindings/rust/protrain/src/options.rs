use std::ffi::CString;
use std::fmt;
use std::os::raw::c_char;
use std::path::Path;
use std::ptr::{null, null_mut, NonNull};

use protrain_sys as sys;

use crate::error::{c_path, c_text, check, text};
use crate::log::Listener;
use crate::{Result, Session};

/// The settings of a [`Session`]. Each option is checked when it is set; the others have their defaults.
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

// SAFETY: any thread may use options; the library does not tie them to one.
unsafe impl Send for Options {}
// SAFETY: a shared reference allows only `open`, which reads the options. Several threads may call it at once.
unsafe impl Sync for Options {}

impl Options {
    /// Options in which everything has its default.
    #[doc(alias = "protrain_options_create")]
    pub fn new() -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: the pointer is valid during the call.
        unsafe { check(sys::protrain_options_create(&mut raw))? };
        Ok(Options { raw: NonNull::new(raw).expect("options were made"), log: None })
    }

    /// Sets one option to a number or a text. [`Options::help`] lists the keys. `protrain.h` explains the common ones:
    /// `memory`, `learning_rate`, `optimizer`, `threads`, `accumulation`, `frozen` and others.
    ///
    /// For a list (`dim`, `shapes`, `constant`, `also_loss`, `group`, `no_decay`, `trainable`, `frozen`, `tie`, `lora`,
    /// `keep_gradients`, `keep_outputs`), each call adds one item. For any other option, a call replaces the value.
    ///
    /// # Errors
    /// `Arg` for a key that does not exist (the text names the nearest key) or a value of the wrong type or out of
    /// range.
    #[doc(alias = "protrain_options_set")]
    pub fn set(&mut self, key: &str, value: impl ToString) -> Result<&mut Self> {
        self.set_text(key, &c_text(key, value.to_string())?)
    }

    /// Sets an option that is a path, such as `offload_dir`, `resume`, `plan`, `adapter` or `rendezvous`.
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

    /// The value of an option: the one that was set, or the default, or an empty text if there is neither. The items of
    /// a list are separated by newlines.
    ///
    /// # Errors
    /// `Arg` for a key that does not exist.
    #[doc(alias = "protrain_options_get")]
    pub fn get(&mut self, key: &str) -> Result<&str> {
        let key = c_text("key", key)?;
        // SAFETY: the text ends in NUL.
        self.lend(|options, out| unsafe { sys::protrain_options_get(options, key.as_ptr(), out) })
    }

    /// All options, as a JSON array of objects with `key`, `type`, `default`, `range` and `sentence`.
    #[doc(alias = "protrain_options_help")]
    pub fn help(&mut self) -> Result<&str> {
        // SAFETY: see lend.
        self.lend(|options, out| unsafe { sys::protrain_options_help(options, out) })
    }

    /// Checks whether a model can be trained, without training it or reading its weights. The answer is a JSON object
    /// with everything that is missing and everything that was found in the model; `protrain.h` lists its members.
    ///
    /// # Errors
    /// `Io`, `Path`, `Format`, `Limit`, `Version` or `Graph` for a file that is no model; `Arg` for options that
    /// contradict each other or the model. Missing operators and gradients are no errors: the answer lists them in
    /// `problems`.
    #[doc(alias = "protrain_model_check")]
    pub fn check(&mut self, model: impl AsRef<Path>) -> Result<&str> {
        let model = c_path("model", model.as_ref())?;
        // SAFETY: see lend.
        self.lend(|options, out| unsafe { sys::protrain_model_check(options, model.as_ptr(), out) })
    }

    /// Writes `model` to `path` with an adapter merged into its weights, without training it. `adapter` is a directory,
    /// as for the option `adapter`.
    ///
    /// # Errors
    /// As [`Options::open`] for the model and the adapter, and as [`Session::export`] for the file.
    #[doc(alias = "protrain_model_merge")]
    pub fn merge(&self, model: impl AsRef<Path>, adapter: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let model = c_path("model", model.as_ref())?;
        let (adapter, path) = (c_path("adapter", adapter.as_ref())?, c_path("path", path.as_ref())?);
        // SAFETY: the options are only read; the paths end in NUL.
        unsafe { check(sys::protrain_model_merge(self.raw.as_ptr(), model.as_ptr(), adapter.as_ptr(), path.as_ptr())) }
    }

    /// Predicts how a model would train, without training it. The answer is a JSON object with the plan that would be
    /// chosen, the time and memory of a step, and the reasons; `protrain.h` lists its members. The option `hardware`
    /// names or describes the machine. Without it, this machine is measured.
    ///
    /// # Errors
    /// As [`Options::open`], except that a budget that is too small is no error: the answer reports it.
    #[doc(alias = "protrain_model_plan")]
    pub fn plan(&mut self, model: impl AsRef<Path>) -> Result<&str> {
        let model = c_path("model", model.as_ref())?;
        // SAFETY: see lend.
        self.lend(|options, out| unsafe { sys::protrain_model_plan(options, model.as_ptr(), out) })
    }

    /// Measures this machine on the kernels that a model needs. Earlier measurements are made again. The answer is a
    /// JSON object; the option `hardware` takes a file with it, on any machine.
    ///
    /// # Errors
    /// As [`Options::plan`]; `Arg` if the option `hardware` is set.
    #[doc(alias = "protrain_model_profile")]
    pub fn profile(&mut self, model: impl AsRef<Path>) -> Result<&str> {
        let model = c_path("model", model.as_ref())?;
        // SAFETY: see lend.
        self.lend(|options, out| unsafe { sys::protrain_model_profile(options, model.as_ptr(), out) })
    }

    /// Sets the closure that receives the progress of long calls with these options. It gets one line for each kernel
    /// that [`Options::open`], [`Options::plan`] or [`Options::profile`] measures, such as
    /// `{"event":"profiling","done":3,"of":41}`. If the closure panics, that call panics when its work is done. If the
    /// call fails, it returns its error instead, whose text ends in the panic's message.
    #[doc(alias = "protrain_options_set_log")]
    pub fn set_log(&mut self, log: impl Fn(&str) + Send + Sync + 'static) -> Result<&mut Self> {
        self.listen(Some(Listener::shared(log)))
    }

    /// Removes the closure that [`Options::set_log`] set.
    #[doc(alias = "protrain_options_set_log")]
    pub fn clear_log(&mut self) -> Result<&mut Self> {
        self.listen(None)
    }

    fn listen(&mut self, log: Option<Listener>) -> Result<&mut Self> {
        let (function, closure) = Listener::c_parts(log.as_ref());
        // SAFETY: the closure lives until another one replaces it, or the options are destroyed.
        unsafe { check(sys::protrain_options_set_log(self.raw.as_ptr(), function, closure))? };
        self.log = log;
        Ok(self)
    }

    /// Reads a model and makes it ready to train: builds the gradient graph, chooses a plan, lays out and allocates all
    /// memory, reads the weights, starts the threads. A step does none of this. The session does not need the options
    /// afterwards.
    ///
    /// # Errors
    /// `Io`, `Path`, `Format`, `Limit` or `Version` for files; `Graph`, `Shape` or `Type` for graphs that are not
    /// legal, have no loss, or do not fit the bound dimensions; `Unsupported` lists every operator and gradient that is
    /// missing; `Arg` for options that do not fit the model; `Budget` if no plan fits: the text names the smallest
    /// budget that works, and other changes that would help. With the option `resume`: `Format`, `Corrupt`, `Version`,
    /// `Path` or `Mismatch` for the checkpoint.
    #[doc(alias = "protrain_session_create")]
    pub fn open(&self, model: impl AsRef<Path>) -> Result<Session> {
        let model = c_path("model", model.as_ref())?;
        // SAFETY: the path ends in NUL.
        self.make(|options, session| unsafe { sys::protrain_session_create(options, model.as_ptr(), session) })
    }

    /// [`Options::open`] for a model in memory: the bytes of an ONNX file, which are copied. External data is read from
    /// `directory`, and nothing outside of it is opened. `None` is for a model without external data.
    ///
    /// # Errors
    /// As [`Options::open`]; `Path` for external data without a `directory`, or outside of it.
    #[doc(alias = "protrain_session_create_from_bytes")]
    pub fn open_bytes(&self, model: &[u8], directory: Option<&Path>) -> Result<Session> {
        let directory = c_path("directory", directory.unwrap_or_else(|| Path::new("")))?;
        let (bytes, len) = (model.as_ptr().cast(), model.len());
        // SAFETY: pointer and length come from a slice; the path ends in NUL.
        self.make(|options, session| unsafe {
            sys::protrain_session_create_from_bytes(options, bytes, len, directory.as_ptr(), session)
        })
    }

    fn make(
        &self,
        create: impl FnOnce(*const sys::protrain_options, *mut *mut sys::protrain_session) -> *mut sys::protrain_error,
    ) -> Result<Session> {
        let mut raw = null_mut();
        // SAFETY: the options are only read; the pointers are valid during the call.
        unsafe {
            let error = create(self.raw.as_ptr(), &mut raw);
            // check() may resume a listener's panic. The session is owned before that, so the panic destroys it.
            let session = NonNull::new(raw).map(Session::from_raw);
            check(error)?;
            Ok(session.expect("a session was made"))
        }
    }

    /// Calls a function of the library that lends a text until the next call on the options. The text borrows `self`,
    /// so there can be no next call while the text is in use.
    fn lend(
        &mut self,
        call: impl FnOnce(*mut sys::protrain_options, *mut *const c_char) -> *mut sys::protrain_error,
    ) -> Result<&str> {
        let mut lent = null();
        // SAFETY: the pointers are valid during the call, and the text lives as long as it borrows `self`.
        unsafe {
            check(call(self.raw.as_ptr(), &mut lent))?;
            Ok(text(lent))
        }
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: the options were created once, and drop() runs once.
        unsafe { sys::protrain_options_destroy(self.raw.as_ptr()) }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Options").finish_non_exhaustive()
    }
}
