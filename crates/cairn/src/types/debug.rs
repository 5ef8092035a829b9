//! `Debug` for handles whose content is not for people.

/// Implements `Debug` for types: their name, and fields as given.
macro_rules! debug_of {
    ($([$($generic:tt)*] $type:ty, $name:literal $(, $field:ident: $value:expr)*;)+) => {$(
        impl<$($generic)*> std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut debug = f.debug_struct($name);
                $(
                    let value: fn(&$type) -> _ = $value;
                    debug.field(stringify!($field), &value(self));
                )*
                debug.finish_non_exhaustive()
            }
        }
    )+};
}

pub(crate) use debug_of;
