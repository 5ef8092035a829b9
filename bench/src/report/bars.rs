//! A panel of horizontal bars, one row per engine, with its name before and its value after the bar. No legend is
//! needed, and no colours must be distinguished.

use super::chart::{Anchor, FONT, Panel, WIDTH, fit, n, stroke, text, ticks, wrap};
use super::format;
use super::palette::Style;
use super::stats::Spread;
use maud::{Markup, html};

const LABELS: f64 = 116.0;
const VALUES: f64 = 72.0;
const TOP: f64 = 30.0;
const PITCH: f64 = 19.0;
const BAR: f64 = 12.0;

/// One row.
pub struct Bar {
    /// The engine.
    pub label: String,
    /// Its style.
    pub style: Style,
    /// The length of the bar, and its whisker; `None` leaves a gap.
    pub value: Option<Spread>,
    /// A shorter value inside the bar; beyond it the bar is pale.
    pub inner: Option<f64>,
    /// The text after the bar: the value, or why there is none.
    pub words: String,
    /// The tooltip.
    pub tip: String,
    /// Whether it is the best.
    pub best: bool,
}

/// Draws rows below a title, with notes under them.
pub fn bars(title: &str, what: &str, rows: &[Bar], show: fn(f64) -> String, notes: &[String]) -> Panel {
    let max = rows.iter().filter_map(|row| row.value).map(|value| value.max).fold(0.0, f64::max);
    let ticks = ticks(max, 3);
    let scale = Scale { max: ticks.last().copied().unwrap_or(1.0) };
    let floor = TOP + rows.len() as f64 * PITCH;
    let notes: Vec<String> = notes.iter().flat_map(|note| wrap(note, WIDTH - 8.0, 10.0)).collect();
    let body = html! {
        (text(0.0, 14.0, Anchor::Start, "ink", 13.5, true, &fit(title, WIDTH, 13.5)))
        @for tick in &ticks {
            (stroke((scale.x(*tick), TOP - 3.0), (scale.x(*tick), floor + 3.0), "grid", 1.0))
            (text(scale.x(*tick), floor + 15.0, Anchor::Middle, "muted", 10.0, false, &format::trimmed(&show(*tick))))
        }
        @for (number, row) in rows.iter().enumerate() {
            (draw(row, TOP + number as f64 * PITCH, &scale))
        }
        @for (number, note) in notes.iter().enumerate() {
            (text(0.0, floor + 31.0 + number as f64 * 13.0, Anchor::Start, "muted", 10.0, false, note))
        }
    };
    let label = format!("{title}: {what}");
    Panel { height: floor + 24.0 + notes.len() as f64 * 13.0, label, body }
}

struct Scale {
    max: f64,
}

impl Scale {
    fn x(&self, value: f64) -> f64 {
        LABELS + value / self.max * (WIDTH - LABELS - VALUES)
    }
}

fn draw(row: &Bar, top: f64, scale: &Scale) -> Markup {
    let middle = top + PITCH / 2.0;
    let baseline = middle + 4.0;
    let words = if row.best { format!("★ {}", row.words) } else { row.words.clone() };
    let ink = if row.value.is_some() { "ink" } else { "muted" };
    html! {
        g {
            title { (row.tip) }
            (text(LABELS - 7.0, baseline, Anchor::End, ink, FONT, row.best, &fit(&row.label, LABELS - 7.0, FONT)))
            @if let Some(value) = row.value {
                (rect(row, middle - BAR / 2.0, scale.x(0.0), scale.x(value.median), row.inner.is_some()))
                @if let Some(inner) = row.inner {
                    (rect(row, middle - BAR / 2.0, scale.x(0.0), scale.x(inner), false))
                    (stroke((scale.x(inner), middle - BAR / 2.0), (scale.x(inner), middle + BAR / 2.0), "ink", 1.5))
                }
                @if value.max > value.min {
                    (whisker(scale.x(value.min), scale.x(value.max), middle))
                }
            }
            (text(WIDTH, baseline, Anchor::End, ink, FONT, row.best, &words))
        }
    }
}

fn rect(row: &Bar, y: f64, from: f64, to: f64, pale: bool) -> Markup {
    // A minimum width, so that a bar thousands of times shorter than another is visible.
    let (x, y, width, height) = (n(from), n(y), n((to - from).max(1.0)), n(BAR));
    html! {
        rect x=(x) y=(y) width=(width) height=(height) fill=(row.style.light()) class={ "f" (row.style.colour) }
            fill-opacity=[pale.then_some("0.45")] {}
        @if let Some(hatching) = row.style.hatching() {
            rect x=(x) y=(y) width=(width) height=(height) fill=(hatching) {}
        }
    }
}

/// A line from the lowest to the highest round, on a broader line in the colour of the background, so that it is
/// visible on the bar.
fn whisker(from: f64, to: f64, y: f64) -> Markup {
    let parts = [((from, y), (to, y)), ((from, y - 3.0), (from, y + 3.0)), ((to, y - 3.0), (to, y + 3.0))];
    html! {
        @for (from, to) in parts { (stroke(from, to, "surface", 3.0)) }
        @for (from, to) in parts { (stroke(from, to, "ink", 1.2)) }
    }
}
