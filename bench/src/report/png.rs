//! Renders pictures as PNG with the fonts of the system, at twice the size of the SVG.

use crate::engine::{Error, Result};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};
use std::path::Path;
use std::sync::Arc;

const SCALE: f32 = 2.0;

/// Renders pictures. Searches for the system's fonts once.
pub struct Painter {
    options: Options<'static>,
}

impl Painter {
    /// Finds the fonts.
    pub fn new() -> Painter {
        let mut fonts = fontdb::Database::new();
        fonts.load_system_fonts();
        // The preferred font may be missing: any sans-serif font will do.
        for family in ["DejaVu Sans", "Liberation Sans", "Noto Sans", "Arial"] {
            let known = fonts.faces().any(|face| face.families.iter().any(|(name, _)| name == family));
            if known {
                fonts.set_sans_serif_family(family);
                break;
            }
        }
        let options =
            Options { fontdb: Arc::new(fonts), font_family: "sans-serif".into(), ..Options::default() };
        Painter { options }
    }

    /// Renders an SVG into a file.
    pub fn paint(&self, svg: &str, file: &Path) -> Result<()> {
        let failed = |e: &dyn std::fmt::Display| Error::new(format!("drawing {}: {e}", file.display()));
        let tree = Tree::from_str(svg, &self.options).map_err(|e| failed(&e))?;
        let size = tree.size();
        let (width, height) = ((size.width() * SCALE).ceil() as u32, (size.height() * SCALE).ceil() as u32);
        let mut image = Pixmap::new(width, height).ok_or_else(|| failed(&"it has no size"))?;
        resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut image.as_mut());
        image.save_png(file).map_err(|e| failed(&e))
    }
}
