//! The C functions of libprotrain, as `protrain.h` declares them, with its comments.
//!
//! Generated from the same interface as the project's other bindings. The crate `protrain` is what most programs want.
//! `build.rs` finds the library through pkg-config and hands on its folders: a build script of a crate that depends on
//! this one reads `DEP_PROTRAIN_INCLUDE` and `DEP_PROTRAIN_LIBDIR`.
#![allow(non_camel_case_types)]
#![deny(missing_docs)]

mod bindings;

pub use bindings::*;
