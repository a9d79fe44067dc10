//! Trains ONNX models inside your own program, within a memory budget that you name.
//!
//! The model is an ONNX file whose graph ends in a scalar float32 loss; you prepare nothing else. You give a session a
//! memory budget. When the session is opened, it chooses the fastest plan that fits the budget, and lays out all
//! memory. A step allocates nothing.
//!
//! ```
//! # std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/fixtures")).unwrap();
//! # let model = "gpt2-dynamic-opset18.onnx";
//! use protrain::Options;
//!
//! fn train(model: &str, text: &[u8]) -> protrain::Result<f32> {
//!     let mut session = Options::new()?
//!         .dim("batch", 8)?
//!         .dim("sequence", 64)?
//!         .set("learning_rate", 1e-3)?
//!         .set("memory", "4MiB")?
//!         .set_path("offload_dir", std::env::temp_dir())?
//!         .open(model)?;
//!     let mut loss = 0.0;
//!     let mut tokens = text.iter().cycle().map(|&byte| i64::from(byte));
//!     for _ in 0..20 {
//!         let batch: Vec<i64> = tokens.by_ref().take(8 * 64).collect();
//!         session.set_input("input_ids", &[8, 64], &batch)?;
//!         session.set_input("labels", &[8, 64], &batch)?;
//!         loss = session.step()?;
//!     }
//!     Ok(loss)
//! }
//!
//! assert!(train(model, b"the quick brown fox jumps over the lazy dog; ")? < 5.0);
//! # Ok::<(), protrain::Error>(())
//! ```
//!
//! # Errors
//! Every call that can fail returns a [`Result`]. An [`Error`] has a [`Code`], one sentence, the node, tensor, file or
//! option it is about, and says whether the object can still be used. Any call may also fail with `NoMemory` or
//! `Internal`, and with `Forked` if a forked process calls its parent's session. This is not repeated below.
//!
//! # Numbers
//! The same model, options, inputs and number of threads give the same loss, gradients and weights, bit for bit. The
//! memory plan never changes a bit.
//!
//! # Linking
//! The build finds libprotrain through pkg-config. Set `PKG_CONFIG_PATH` if the library is not in the system's folders,
//! and `PROTRAIN_STATIC` to link it statically. The C header, `protrain.h`, is the complete manual; these pages
//! summarize it.
#![deny(missing_docs, unsafe_op_in_unsafe_fn)]

mod cancel;
mod element;
mod error;
mod log;
mod numbered;
mod options;
mod session;

use protrain_sys as sys;

pub use cancel::CancelHandle;
pub use element::{Bf16, DType, Element, F16};
pub use error::{Code, Error, Result};
pub use options::Options;
pub use session::{Input, Output, Parameter, Session};

/// The version of the running library, such as `0.1.0`.
#[doc(alias = "protrain_version")]
pub fn version() -> &'static str {
    // SAFETY: the text is static.
    unsafe { error::text(sys::protrain_version()) }
}
