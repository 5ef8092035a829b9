//! Cairn compared with the best peer: one row per workload, with a bar from 1 to the ratio on a logarithmic scale.

use super::chart::{Anchor, FONT, Panel, WIDTH, fit, n, stroke, text};
use super::format;
use super::palette::Style;
use maud::{Markup, html};

const LABELS: f64 = 198.0;
const VALUES: f64 = 120.0;
const TOP: f64 = 34.0;
const PITCH: f64 = 17.0;
/// Maximum number of rows of a panel.
const ROWS: usize = 24;

/// A workload.
pub struct Row {
    /// Its name.
    pub name: String,
    /// Cairn relative to the best peer: above 1, Cairn is better.
    pub ratio: f64,
    /// The best peer.
    pub peer: String,
    /// The style of the peer.
    pub style: Style,
}

/// Draws the rows, in as many panels as needed.
pub fn panels(rows: &[Row]) -> Vec<Panel> {
    let furthest = rows.iter().map(|row| row.ratio.ln().abs()).fold(0.0, f64::max);
    let reach = furthest.max(2f64.ln());
    let each = rows.len().div_ceil(rows.len().div_ceil(ROWS).max(1)).max(1);
    rows.chunks(each).map(|rows| panel(rows, reach)).collect()
}

fn panel(rows: &[Row], reach: f64) -> Panel {
    let height = TOP + rows.len() as f64 * PITCH + 4.0;
    let body = html! {
        (text(at(1.0, reach) - 5.0, 12.0, Anchor::End, "muted", 10.0, false, "peer better"))
        (text(at(1.0, reach) + 5.0, 12.0, Anchor::Start, "muted", 10.0, false, "Cairn better"))
        @for ratio in marks(reach) {
            @let (x, ink) = (at(ratio, reach), if ratio == 1.0 { "muted" } else { "grid" });
            (stroke((x, TOP - 4.0), (x, height - 2.0), ink, 1.0))
            (text(x, TOP - 8.0, Anchor::Middle, "muted", 9.5, false, &format!("{}×", format::short(ratio))))
        }
        @for (number, row) in rows.iter().enumerate() { (draw(row, TOP + number as f64 * PITCH, reach)) }
    };
    Panel { height, label: "Cairn beside the best peer, by workload".into(), body }
}

fn at(ratio: f64, reach: f64) -> f64 {
    let width = WIDTH - LABELS - VALUES;
    LABELS + width / 2.0 * (1.0 + ratio.ln() / reach)
}

/// Ratios to mark: 1, and a round one within the range on each side.
fn marks(reach: f64) -> Vec<f64> {
    let round = [2.0f64, 5.0, 10.0, 100.0, 1000.0];
    let side = round.into_iter().rev().find(|ratio| ratio.ln() <= reach + 1e-9).unwrap_or(2.0);
    vec![1.0 / side, 1.0, side]
}

fn draw(Row { name, ratio, peer, style }: &Row, top: f64, reach: f64) -> Markup {
    let (one, end) = (at(1.0, reach), at(*ratio, reach));
    let baseline = top + PITCH / 2.0 + 4.0;
    // Cairn's colour if Cairn is better, otherwise the colour of the peer.
    let style = if *ratio < 1.0 { *style } else { Style::of("cairn") };
    html! {
        g {
            title { (name) ": " (format::times(*ratio)) " of " (peer) }
            (text(LABELS - 6.0, baseline, Anchor::End, "ink", FONT - 0.5, false, &fit(name, LABELS - 6.0, FONT - 0.5)))
            rect x=(n(one.min(end))) y=(n(top + 3.5)) width=(n((end - one).abs().max(1.0))) height=(n(PITCH - 7.0))
                fill=(style.light()) class={ "f" (style.colour) } {}
            (text(WIDTH - VALUES + 46.0, baseline, Anchor::End, "ink", FONT - 0.5, *ratio < 1.0, &format::times(*ratio)))
            (text(WIDTH - VALUES + 50.0, baseline, Anchor::Start, "muted", 10.0, false, &fit(peer, VALUES - 50.0, 10.0)))
        }
    }
}
