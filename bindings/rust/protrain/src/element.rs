use protrain_sys as sys;

use crate::numbered::numbered;

numbered! {
    /// The type of an input's or an output's elements.
    DType {
        /// [`f32`].
        Float32 = PROTRAIN_FLOAT32,
        /// [`f64`].
        Float64 = PROTRAIN_FLOAT64,
        /// [`F16`].
        Float16 = PROTRAIN_FLOAT16,
        /// [`Bf16`].
        BFloat16 = PROTRAIN_BFLOAT16,
        /// [`i8`].
        Int8 = PROTRAIN_INT8,
        /// [`i16`].
        Int16 = PROTRAIN_INT16,
        /// [`i32`].
        Int32 = PROTRAIN_INT32,
        /// [`i64`].
        Int64 = PROTRAIN_INT64,
        /// [`u8`].
        UInt8 = PROTRAIN_UINT8,
        /// [`u16`].
        UInt16 = PROTRAIN_UINT16,
        /// [`u32`].
        UInt32 = PROTRAIN_UINT32,
        /// [`u64`].
        UInt64 = PROTRAIN_UINT64,
        /// [`bool`].
        Bool = PROTRAIN_BOOL,
    }
}

/// The bits of an IEEE 754 float16. Rust itself has no type for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct F16(pub u16);

/// The bits of a bfloat16: the upper half of an [`f32`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// A type that the elements of an input can have. [`Session::set_input`](crate::Session::set_input) takes slices of it.
///
/// # Safety
/// The type must have the memory layout of [`Element::DTYPE`], without padding or uninitialised bytes.
pub unsafe trait Element: Copy {
    /// The library's name of the type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ident: $dtype:ident,)*) => {
        $(
            // SAFETY: the type has the layout that protrain.h gives for the dtype.
            unsafe impl Element for $type {
                const DTYPE: DType = DType::$dtype;
            }
        )*
    };
}

elements! {
    f32: Float32,
    f64: Float64,
    F16: Float16,
    Bf16: BFloat16,
    i8: Int8,
    i16: Int16,
    i32: Int32,
    i64: Int64,
    u8: UInt8,
    u16: UInt16,
    u32: UInt32,
    u64: UInt64,
    bool: Bool,
}
