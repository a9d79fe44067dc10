use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::c_char;
use std::path::Path;

use protrain_sys as sys;

use crate::log;
use crate::numbered::numbered;

/// The result of every call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

numbered! {
    /// The kind of failure, for programs; the text of an [`Error`] describes it for people.
    Code {
        /// An argument or option is wrong.
        Arg = PROTRAIN_ERROR_ARG,
        /// The call does not fit the present state of the object.
        State = PROTRAIN_ERROR_STATE,
        /// Another thread is inside the session, or another session is saving into the directory.
        Busy = PROTRAIN_ERROR_BUSY,
        /// The session belongs to the parent process.
        Forked = PROTRAIN_ERROR_FORKED,
        /// A file has an unknown version.
        Version = PROTRAIN_ERROR_VERSION,
        /// A path that may not be followed.
        Path = PROTRAIN_ERROR_PATH,
        /// The system refused a file operation.
        Io = PROTRAIN_ERROR_IO,
        /// No space is left for a file.
        NoSpace = PROTRAIN_ERROR_NOSPC,
        /// The bytes of a file are malformed.
        Format = PROTRAIN_ERROR_FORMAT,
        /// Something exceeds a stated limit.
        Limit = PROTRAIN_ERROR_LIMIT,
        /// Shapes or lengths do not fit together.
        Shape = PROTRAIN_ERROR_SHAPE,
        /// Element types do not fit together.
        Type = PROTRAIN_ERROR_TYPE,
        /// The graph is not legal, or has no loss.
        Graph = PROTRAIN_ERROR_GRAPH,
        /// Legal, but not supported by the library (yet).
        Unsupported = PROTRAIN_ERROR_UNSUPPORTED,
        /// A checksum does not match.
        Corrupt = PROTRAIN_ERROR_CORRUPT,
        /// Two things do not belong together, such as a checkpoint and a model.
        Mismatch = PROTRAIN_ERROR_MISMATCH,
        /// Nothing fits the stated memory; the text says what would.
        Budget = PROTRAIN_ERROR_BUDGET,
        /// The system refused memory.
        NoMemory = PROTRAIN_ERROR_NOMEM,
        /// NaN or infinity where numbers must be finite.
        NonFinite = PROTRAIN_ERROR_NONFINITE,
        /// Another rank failed.
        Peer = PROTRAIN_ERROR_PEER,
        /// Another rank did not answer in time.
        Timeout = PROTRAIN_ERROR_TIMEOUT,
        /// The device or its driver failed.
        Device = PROTRAIN_ERROR_DEVICE,
        /// A bug of the library; please report it.
        Internal = PROTRAIN_ERROR_INTERNAL,
        /// A [`CancelHandle`](crate::CancelHandle) was used.
        Cancelled = PROTRAIN_ERROR_CANCELLED,
    }
}

/// Why a call failed. Unless a method says otherwise, a call that failed has changed nothing.
///
/// ```
/// use protrain::{Code, Options};
///
/// let error = Options::new()?.set("learning_rte", 3e-4).unwrap_err();
/// assert_eq!(error.code(), Code::Arg);
/// assert_eq!(error.subject(), "learning_rte");
/// assert!(error.to_string().contains("learning_rate")); // the text names the nearest option
/// # Ok::<(), protrain::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    code: Code,
    text: String,
    subject: String,
    usable: bool,
}

impl Error {
    /// The kind of failure.
    #[doc(alias = "protrain_error_code")]
    pub fn code(&self) -> Code {
        self.code
    }

    /// One sentence: what was found, what was expected, what to do.
    #[doc(alias = "protrain_error_text")]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The node, tensor, file, argument or option that the error is about; empty if there is none.
    #[doc(alias = "protrain_error_subject")]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Whether the object of the failed call can still be used. If not, you can only drop it.
    #[doc(alias = "protrain_error_usable")]
    pub fn usable(&self) -> bool {
        self.usable
    }
}

/// Prints the text, which names the subject.
impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// Prints the text too: `unwrap` prints errors in this form, and so does a program whose `main` returns one.
impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl std::error::Error for Error {}

/// Converts what a library call returned to a [`Result`]. If a listener panicked during that call, resumes the panic
/// here, where no C frame is on the stack. But if the call failed, returns its error, with the panic's message.
///
/// # Safety
/// A function of the library must have just returned `error` on this thread.
pub(crate) unsafe fn check(error: *mut sys::protrain_error) -> Result<()> {
    if error.is_null() {
        log::resume_panic();
        return Ok(());
    }
    // SAFETY: the caller owns the error, and nothing uses it after take().
    let mut error = unsafe { take(error) };
    if let Some(message) = log::take_panic_message() {
        error.text = format!("{}; the log's closure panicked too: {message}", error.text);
    }
    Err(error)
}

/// Copies an error of the library and destroys the original.
///
/// # Safety
/// `error` must be an error of the library that has not been destroyed.
unsafe fn take(error: *mut sys::protrain_error) -> Error {
    // SAFETY: the caller guarantees a live error; its texts are copied before it is destroyed.
    unsafe {
        let taken = Error {
            code: Code::from_number(sys::protrain_error_code(error)),
            text: text(sys::protrain_error_text(error)).to_owned(),
            subject: text(sys::protrain_error_subject(error)).to_owned(),
            usable: sys::protrain_error_usable(error) != 0,
        };
        sys::protrain_error_destroy(error);
        taken
    }
}

/// Borrows a text of the library. The library's texts are always UTF-8.
///
/// # Safety
/// `text` must end in NUL, and must not change or be freed during `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> &'a str {
    // SAFETY: the caller guarantees that the text ends in NUL and lives for 'a.
    unsafe { CStr::from_ptr(text) }.to_str().expect("libprotrain's text is UTF-8")
}

/// Converts text for the library: UTF-8 that ends in NUL. Text with a NUL inside is an error about the argument `name`.
pub(crate) fn c_text(name: &str, text: impl Into<Vec<u8>>) -> Result<CString> {
    CString::new(text)
        .map_err(|nul| wrong(name, format!("has a NUL at byte {}; text cannot hold one", nul.nul_position())))
}

/// Converts a path for the library.
pub(crate) fn c_path(name: &str, path: &Path) -> Result<CString> {
    c_text(name, path.to_str().ok_or_else(|| wrong(name, format!("is {path:?}, which is not UTF-8; paths have to be")))?)
}

fn wrong(name: &str, found: String) -> Error {
    Error { code: Code::Arg, text: format!("{name} {found}"), subject: name.to_owned(), usable: true }
}
