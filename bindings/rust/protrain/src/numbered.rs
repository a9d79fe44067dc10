//! Enums whose variants are constants of protrain.h.

/// Defines an enum whose discriminants are C constants. One more variant stands for constants of later library
/// versions.
macro_rules! numbered {
    (
        $(#[$of_enum:meta])*
        $name:ident {
            $($(#[$of_variant:meta])* $variant:ident = $constant:ident,)*
        }
    ) => {
        $(#[$of_enum])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(
                $(#[$of_variant])*
                #[doc = concat!("In C: `", stringify!($constant), "`.")]
                $variant = sys::$constant as isize,
            )*
            /// A number that only a later version of the library knows.
            Unknown = -1,
        }

        impl $name {
            pub(crate) fn from_number(number: u32) -> Self {
                match number {
                    $(sys::$constant => Self::$variant,)*
                    _ => Self::Unknown,
                }
            }
        }
    };
}

pub(crate) use numbered;
