//! The C functions of libprotrain, as `protrain.h` declares them, with its comments.
//!
//! They are generated from the same interface as the project's other bindings. Most programs want the crate `protrain`
//! instead. `build.rs` finds the library through pkg-config. The build script of a crate that depends on this one finds
//! the library's folders in `DEP_PROTRAIN_INCLUDE` and `DEP_PROTRAIN_LIBDIR`.
#![allow(non_camel_case_types)]
#![deny(missing_docs)]

mod bindings;

pub use bindings::*;
