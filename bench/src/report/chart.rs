//! Common parts of all pictures: panels of one width, texts, scales, and the conversion of panels to a picture.
//!
//! The pictures are SVG, written without a chart library: the available ones support no style sheets (a picture
//! must be readable on white and on dark pages), no tooltips and no patterns, and they lay out texts for one font.
//! Panels are narrow, so that a page shows as many side by side as fit: one on a phone, four on a desktop.

use super::palette;
use maud::{Markup, PreEscaped, html};

/// Width of a panel, in units that are pixels at scale 1.
pub const WIDTH: f64 = 400.0;
/// Default font size.
pub const FONT: f64 = 11.5;
/// Average width of a letter relative to the font size: slightly too large, so that texts do not overlap in any
/// font.
const LETTER: f64 = 0.58;
const GAP: f64 = 28.0;
const CAPTION_PITCH: f64 = 17.0;

/// A drawing of width [`WIDTH`].
pub struct Panel {
    /// Its height.
    pub height: f64,
    /// A description, for screen readers.
    pub label: String,
    /// Its elements.
    pub body: Markup,
}

/// A picture: panels that belong together.
pub struct Figure {
    /// File name without extension.
    pub file: String,
    /// Title.
    pub title: String,
    /// The groups that it shows; empty for all.
    pub of: String,
    /// How to read it.
    pub caption: String,
    /// Its panels.
    pub panels: Vec<Panel>,
}

/// The point at which a text is positioned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Its start.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// Formats a number of pixels.
pub fn n(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_string).unwrap_or(text)
}

/// A text in one of the inks.
pub fn text(x: f64, y: f64, anchor: Anchor, ink: &str, size: f64, bold: bool, words: &str) -> Markup {
    let anchor = match anchor {
        Anchor::Start => None,
        Anchor::Middle => Some("middle"),
        Anchor::End => Some("end"),
    };
    html! {
        text x=(n(x)) y=(n(y)) text-anchor=[anchor] font-size=(n(size)) font-weight=[bold.then_some("600")]
            fill=(palette::ink(ink)) class={ "f-" (ink) } { (words) }
    }
}

/// A straight line in one of the inks.
pub fn stroke(from: (f64, f64), to: (f64, f64), ink: &str, width: f64) -> Markup {
    html! {
        line x1=(n(from.0)) y1=(n(from.1)) x2=(n(to.0)) y2=(n(to.1)) stroke-width=(n(width))
            stroke=(palette::ink(ink)) class={ "s-" (ink) } {}
    }
}

/// Cuts a text to a width, with an ellipsis.
pub fn fit(words: &str, width: f64, size: f64) -> String {
    let room = (width / (size * LETTER)) as usize;
    if words.chars().count() <= room {
        return words.to_string();
    }
    words.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// Breaks a text into lines of a width.
pub fn wrap(words: &str, width: f64, size: f64) -> Vec<String> {
    let room = (width / (size * LETTER)) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// Multiples of 1, 2 or 5 times a power of ten, from 0 to the first one at or above `max`; about `wanted` of them.
pub fn ticks(max: f64, wanted: usize) -> Vec<f64> {
    let max = if max > 0.0 { max } else { 1.0 };
    let rough = max / wanted.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(rough);
    let steps = (max / step * 0.9999).ceil() as usize;
    (0..=steps).map(|i| i as f64 * step).collect()
}

impl Panel {
    /// The picture as an element of a page.
    pub fn inline(&self) -> Markup {
        html! {
            svg viewBox={ "0 0 " (n(WIDTH)) " " (n(self.height)) } role="img" aria-label=(self.label) { (self.body) }
        }
    }
}

impl Figure {
    /// The picture as a file of its own, with a background that follows the reader's light or dark mode.
    pub fn document(&self, columns: usize) -> String {
        let columns = columns.clamp(1, self.panels.len().max(1));
        let width = columns as f64 * (WIDTH + GAP) + GAP;
        let title =
            if self.of.is_empty() { self.title.clone() } else { format!("{}: {}", self.title, self.of) };
        let caption = wrap(&self.caption, width - 2.0 * GAP, FONT);
        let rows: Vec<&[Panel]> = self.panels.chunks(columns).collect();
        let mut tops = vec![GAP + 20.0 + caption.len() as f64 * CAPTION_PITCH + GAP];
        for row in &rows {
            let tallest = row.iter().map(|panel| panel.height).fold(0.0, f64::max);
            tops.push(tops[tops.len() - 1] + tallest + GAP);
        }
        let height = tops[tops.len() - 1];
        let left = |column: usize| GAP + column as f64 * (WIDTH + GAP);
        let body = html! {
            (text(GAP, GAP + 14.0, Anchor::Start, "ink", 18.0, true, &title))
            @for (number, line) in caption.iter().enumerate() {
                (text(GAP, GAP + 36.0 + number as f64 * CAPTION_PITCH, Anchor::Start, "muted", FONT, false, line))
            }
            @for (row, top) in rows.iter().zip(&tops) {
                @for (column, panel) in row.iter().enumerate() {
                    g transform={ "translate(" (n(left(column))) " " (n(*top)) ")" } { (panel.body) }
                }
            }
        };
        let night = format!("@media (prefers-color-scheme:dark){{{}}}", palette::rules(true));
        html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (n(width)) " " (n(height)) } width=(n(width)) height=(n(height))
                font-family="system-ui, 'DejaVu Sans', 'Helvetica Neue', Arial, sans-serif" {
                title { (title) }
                style { (PreEscaped(night)) }
                (palette::hatchings())
                rect width=(n(width)) height=(n(height)) rx="10" fill=(palette::ink("surface")) class="f-surface" {}
                (body)
            }
        }
        .into_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_maximum() {
        assert_eq!(ticks(10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(412_000.0, 4), [0.0, 200_000.0, 400_000.0, 600_000.0]);
        assert_eq!(ticks(0.0, 2), [0.0, 0.5, 1.0]);
    }

    #[test]
    fn long_texts_are_cut_or_wrapped() {
        assert_eq!(fit("readwhilewriting", 58.0, 10.0), "readwhile…");
        assert_eq!(fit("short", 58.0, 10.0), "short");
        assert_eq!(wrap("one two three four", 52.0, 10.0), ["one two", "three", "four"]);
    }
}
