//! The style of an engine, which is the same in all pictures.
//!
//! The engines of a family (`rocksdb` and `rocksdb-blob`) share a colour and differ by hatching or line dashes. The
//! colours are distinguishable with the common kinds of colour blindness, and each has a variant for dark
//! backgrounds. No information depends on colour alone: bars and lines carry their engine's name.

use maud::{Markup, html};

/// Colours on white and on a dark background; the first six belong to known engines.
const COLOURS: [(&str, &str); 8] = [
    ("#0072b2", "#4db2f0"),
    ("#d55e00", "#ff8b3d"),
    ("#009e73", "#2fd0a0"),
    ("#b8578a", "#e79ac4"),
    ("#a67c00", "#e8bd3c"),
    ("#5c6670", "#b4bec8"),
    ("#6b4bbf", "#b09bff"),
    ("#2f8fc4", "#8fd0ff"),
];
/// In the order of their colours and their bars.
const FAMILIES: [&str; 6] = ["cairn", "rocksdb", "leveldb", "fjall", "redb", "lmdb"];
const VARIANTS: [(&str, usize); 3] = [("leveled", 1), ("pebblesdb", 2), ("blob", 1)];
const DASHES: [&str; 4] = ["", "6 3", "2 2.5", "8 2.5 2 2.5"];

/// The ink of texts and axes, on white and on a dark background, by class.
const INKS: [(&str, &str, &str); 4] = [
    ("ink", "#1b1f24", "#e8ebee"),
    ("muted", "#57606a", "#a3adb8"),
    ("grid", "#dde2e7", "#363d45"),
    ("surface", "#ffffff", "#171b20"),
];

/// Colour and pattern of one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Number of its colour: elements of class `f<n>` are filled with it, those of class `s<n>` are drawn with it.
    pub colour: usize,
    /// Its pattern: 0 is plain.
    pub variant: usize,
}

impl Style {
    /// The style of the engine with this name.
    pub fn of(engine: &str) -> Style {
        let (family, variant) = engine.split_once('-').unwrap_or((engine, ""));
        let known = FAMILIES.iter().position(|name| *name == family);
        let colour = known.unwrap_or_else(|| FAMILIES.len() + pick(family, COLOURS.len() - FAMILIES.len()));
        let named = VARIANTS.iter().find(|(name, _)| *name == variant).map(|(_, number)| *number);
        let variant = if variant.is_empty() { 0 } else { named.unwrap_or_else(|| 1 + pick(variant, 3)) };
        Style { colour, variant }
    }

    /// The colour on white, for programs without support for style sheets.
    pub fn light(&self) -> &'static str {
        COLOURS[self.colour].0
    }

    /// The dash pattern of its lines.
    pub fn dashes(&self) -> &'static str {
        DASHES[self.variant]
    }

    /// The pattern drawn over its bars.
    pub fn hatching(&self) -> Option<String> {
        (self.variant > 0).then(|| format!("url(#hatch{})", self.variant))
    }
}

/// The order of engines in pictures and tables: Cairn first, then the known peers, then others by name.
pub fn rank(engine: &str) -> (usize, &str) {
    let family = engine.split('-').next().unwrap_or(engine);
    (FAMILIES.iter().position(|name| *name == family).unwrap_or(FAMILIES.len()), engine)
}

/// A number below `below` that depends only on the name.
fn pick(name: &str, below: usize) -> usize {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    (hash >> 32) as usize % below
}

/// The colour on white of a class of [`INKS`].
pub fn ink(class: &str) -> &'static str {
    INKS.iter().find(|(name, ..)| *name == class).map_or("#000000", |(_, light, _)| light)
}

/// Style rules for the classes of pictures.
pub fn rules(dark: bool) -> String {
    let of = |light: &'static str, night: &'static str| if dark { night } else { light };
    let series = COLOURS.iter().enumerate().map(|(n, (light, night))| {
        let colour = of(light, night);
        format!(".f{n}{{fill:{colour}}}.s{n}{{stroke:{colour}}}")
    });
    let inks = INKS.iter().map(|(name, light, night)| {
        let colour = of(light, night);
        format!(".f-{name}{{fill:{colour}}}.s-{name}{{stroke:{colour}}}")
    });
    series.chain(inks).collect()
}

/// The hatching patterns, needed once in a document with bars. Light stripes, which are visible on every colour.
pub fn hatchings() -> Markup {
    let stripes = ["M-2 2L2 -2M0 8L8 0M6 10L10 6", "M0 2H8M0 6H8", "M-2 6L2 10M0 0L8 8M6 -2L10 2"];
    html! {
        defs {
            @for (n, path) in (1..).zip(stripes) {
                pattern id={ "hatch" (n) } width="8" height="8" patternUnits="userSpaceOnUse" {
                    path d=(path) fill="none" stroke=(ink("surface")) class="s-surface" stroke-width="1.8" stroke-opacity="0.75" {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_keep_their_colours() {
        assert_eq!(Style::of("cairn"), Style { colour: 0, variant: 0 });
        assert_eq!(Style::of("rocksdb-blob"), Style { colour: 1, variant: 1 });
        assert_ne!(Style::of("cairn-leveled"), Style::of("cairn-pebblesdb"));
        let other = Style::of("sled");
        assert!(other.colour >= FAMILIES.len() && other == Style::of("sled"));
    }

    #[test]
    fn cairn_comes_first() {
        let mut names = ["lmdb", "sled", "rocksdb-blob", "cairn-leveled", "rocksdb", "cairn", "agatedb"];
        names.sort_by_key(|name| rank(name));
        let sorted = ["cairn", "cairn-leveled", "rocksdb", "rocksdb-blob", "lmdb", "agatedb", "sled"];
        assert_eq!(names, sorted);
    }
}
