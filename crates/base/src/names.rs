//! Values with names, as options have them.

/// Implements [`Display`](std::fmt::Display) and [`FromStr`](std::str::FromStr) for an enum whose values have these names:
/// `named_enum!(Colour, "colour", "red" => Colour::Red, "blue" => Colour::Blue)`.
#[macro_export]
macro_rules! named_enum {
    ($type:ty, $what:literal, $($name:literal => $value:path),+) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($value => $name),+ })
            }
        }
        impl std::str::FromStr for $type {
            type Err = $crate::Error;
            fn from_str(text: &str) -> $crate::Result<Self> {
                match text {
                    $($name => Ok($value),)+
                    _ => Err($crate::Error::invalid(format!(
                        concat!("{:?} is no ", $what, ": choose one of {}"), text, [$($name),+].join(", ")
                    ))),
                }
            }
        }
    };
}
