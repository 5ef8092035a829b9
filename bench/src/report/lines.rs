//! A panel of lines, one per engine, with the name at the right end.

use super::chart::{Anchor, FONT, Panel, WIDTH, fit, n, stroke, text, ticks};
use super::format;
use super::palette::Style;
use maud::{Markup, html};

const LEFT: f64 = 50.0;
const RIGHT: f64 = 112.0;
const TOP: f64 = 38.0;
const PLOT: f64 = 190.0;
/// Minimum distance of the names.
const LABEL_PITCH: f64 = 12.5;
/// Right end of the scale of nines: beyond 99.999 %, at the maximum.
const NINES: f64 = 5.6;

/// One line.
pub struct Series {
    /// The engine.
    pub label: String,
    /// Its style.
    pub style: Style,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// The scale of an axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic, with powers of ten; values must be positive.
    Log,
    /// For fractions: 90 %, 99 % and 99.9 % are equally far apart.
    Nines,
    /// Whole numbers from 1.
    Steps,
    /// Logarithmic: each mark is twice the one before, from the smallest value.
    Doubling,
}

/// An axis.
#[derive(Clone, Copy)]
pub struct Axis {
    /// Its title.
    pub title: &'static str,
    /// Its scale.
    pub scale: Scale,
    /// Formats a value.
    pub show: fn(f64) -> String,
}

/// An axis with its range and its length.
struct Ruler {
    scale: Scale,
    from: f64,
    to: f64,
    ticks: Vec<(f64, String)>,
}

/// Draws lines below a title.
pub fn lines(title: &str, x: Axis, y: Axis, all: &[Series]) -> Panel {
    let width = WIDTH - LEFT - RIGHT;
    let across = Ruler::of(x, all.iter().flat_map(|series| &series.points).map(|point| point.0), 4);
    let up = Ruler::of(y, all.iter().flat_map(|series| &series.points).map(|point| point.1), 4);
    let place = |point: &(f64, f64)| (LEFT + across.at(point.0) * width, TOP + PLOT - up.at(point.1) * PLOT);
    let drawn: Vec<(&Series, Vec<(f64, f64)>)> =
        all.iter().map(|series| (series, series.points.iter().map(place).collect())).collect();
    let floor = TOP + PLOT;
    let body = html! {
        (text(0.0, 14.0, Anchor::Start, "ink", 13.5, true, &fit(title, WIDTH, 13.5)))
        (text(0.0, 30.0, Anchor::Start, "muted", 10.0, false, y.title))
        @for (value, words) in &up.ticks {
            @let y = floor - up.at(*value) * PLOT;
            (stroke((LEFT, y), (LEFT + width, y), "grid", 1.0))
            (text(LEFT - 6.0, y + 3.5, Anchor::End, "muted", 10.0, false, words))
        }
        @for (value, words) in &across.ticks {
            @let x = LEFT + across.at(*value) * width;
            (stroke((x, floor), (x, floor + 4.0), "grid", 1.0))
            (text(x, floor + 15.0, Anchor::Middle, "muted", 9.5, false, words))
        }
        (text(LEFT + width / 2.0, floor + 31.0, Anchor::Middle, "muted", 10.0, false, x.title))
        @for (series, points) in drawn.iter().rev() { (draw(series, points)) }
        (labels(&drawn))
    };
    Panel { height: floor + 38.0, label: format!("{title}: {}", y.title), body }
}

fn draw(series: &Series, points: &[(f64, f64)]) -> Markup {
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", n(*x), n(*y))).collect();
    let width = if series.style == Style::of("cairn") { 2.4 } else { 1.6 };
    let dashes = Some(series.style.dashes()).filter(|dashes| !dashes.is_empty());
    html! {
        g fill="none" stroke=(series.style.light()) class={ "s" (series.style.colour) } {
            title { (series.label) }
            @if let [(x, y)] = points {
                circle cx=(n(*x)) cy=(n(*y)) r="2" {}
            } @else {
                polyline points=(path.join(" ")) stroke-width=(n(width)) stroke-linejoin="round" stroke-dasharray=[dashes] {}
            }
        }
    }
}

/// The names beside the ends of their lines. Overlapping names are moved apart and connected to their line.
fn labels(drawn: &[(&Series, Vec<(f64, f64)>)]) -> Markup {
    let mut ends: Vec<(&Series, (f64, f64))> =
        drawn.iter().filter_map(|(series, points)| Some((*series, *points.last()?))).collect();
    ends.sort_by(|a, b| a.1.1.total_cmp(&b.1.1));
    let heights = spread_out(&ends.iter().map(|end| end.1.1).collect::<Vec<_>>());
    let margin = WIDTH - RIGHT;
    html! {
        @for ((series, (x, y)), height) in ends.iter().zip(heights) {
            @let colour = series.style.colour;
            polyline points={ (n(*x)) "," (n(*y)) " " (n(margin + 3.0)) "," (n(*y)) " " (n(margin + 11.0)) "," (n(height)) }
                fill="none" stroke-width="0.7" stroke-opacity="0.6" stroke-dasharray="1.5 1.5" stroke=(series.style.light())
                class={ "s" (colour) } {}
            text x=(n(margin + 13.0)) y=(n(height + 4.0)) font-size=(n(FONT - 0.5)) fill=(series.style.light())
                class={ "f" (colour) } font-weight=[(series.style.colour == 0).then_some("600")] {
                (fit(&series.label, RIGHT - 13.0, FONT - 0.5))
            }
        }
    }
}

/// Positions in the same order, at least `LABEL_PITCH` apart, as close to the wanted ones as possible, inside the
/// plot.
fn spread_out(wanted: &[f64]) -> Vec<f64> {
    // Labels that touch move together: their number, and the sum of the positions that they want for the first.
    let mut heaps: Vec<(usize, f64)> = Vec::new();
    let first = |heap: (usize, f64)| heap.1 / heap.0 as f64;
    for (number, want) in wanted.iter().enumerate() {
        let mut heap = (1, want - number as f64 * LABEL_PITCH);
        while let Some(above) = heaps.pop_if(|above| first(*above) > first(heap)) {
            heap = (heap.0 + above.0, heap.1 + above.1);
        }
        heaps.push(heap);
    }
    let lowest = (TOP + PLOT - wanted.len().saturating_sub(1) as f64 * LABEL_PITCH).max(TOP);
    let firsts =
        heaps.into_iter().flat_map(|heap| std::iter::repeat_n(first(heap).clamp(TOP, lowest), heap.0));
    firsts.enumerate().map(|(number, first)| first + number as f64 * LABEL_PITCH).collect()
}

impl Ruler {
    fn of(axis: Axis, values: impl Iterator<Item = f64> + Clone, wanted: usize) -> Ruler {
        let max = values.clone().fold(f64::NEG_INFINITY, f64::max);
        let min = values.fold(f64::INFINITY, f64::min);
        let (from, to, ticks) = match axis.scale {
            Scale::Linear => {
                let ticks = ticks(max, wanted);
                (0.0, *ticks.last().unwrap_or(&1.0), ticks)
            }
            Scale::Log => log_range(min, max),
            Scale::Doubling => {
                let marks = std::iter::successors(Some(min), |mark| Some(mark * 2.0));
                (min, max.max(min * 1.01), marks.take_while(|mark| *mark <= max * 1.01).collect())
            }
            Scale::Nines => (0.0, NINES, vec![0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0]),
            Scale::Steps => {
                let step = (max / 8.0).ceil().max(1.0);
                let numbers = (0..).map(|i| 1.0 + f64::from(i) * step).take_while(|number| *number <= max);
                (1.0, max.max(2.0), numbers.collect())
            }
        };
        let ticks = ticks.into_iter().map(|tick| (tick, format::trimmed(&(axis.show)(tick)))).collect();
        Ruler { scale: axis.scale, from, to, ticks }
    }

    /// The position of a value, from 0 to 1.
    fn at(&self, value: f64) -> f64 {
        let along = match self.scale {
            Scale::Linear | Scale::Steps => (value - self.from) / (self.to - self.from),
            Scale::Log | Scale::Doubling => {
                (value.max(self.from) / self.from).log10() / (self.to / self.from).log10()
            }
            Scale::Nines => nines(value) / NINES,
        };
        along.clamp(0.0, 1.0)
    }
}

fn log_range(min: f64, max: f64) -> (f64, f64, Vec<f64>) {
    let (min, max) = if min.is_finite() && min > 0.0 { (min, max) } else { (1.0, 10.0) };
    let first = min.log10().floor() as i32;
    let last = (max.log10().ceil() as i32).max(first + 1);
    let ticks = (first..=last).map(|power| 10f64.powi(power)).collect();
    (10f64.powi(first), 10f64.powi(last), ticks)
}

fn nines(fraction: f64) -> f64 {
    if fraction >= 1.0 { NINES } else { (-(1.0 - fraction).log10()).min(NINES) }
}

/// A fraction as a percentile: `99.9`.
pub fn percentile(fraction: f64) -> String {
    if fraction >= 1.0 { "max".into() } else { format!("{}", (fraction * 1e8).round() / 1e6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_overlap() {
        for wanted in
            [vec![100.0; 9], (0..15).map(f64::from).collect(), vec![TOP + PLOT; 12], vec![60.0, 200.0]]
        {
            let heights = spread_out(&wanted);
            assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= LABEL_PITCH - 1e-9), "{heights:?}");
            assert!(
                heights.iter().all(|height| (TOP - 1e-9..=TOP + PLOT + 1e-9).contains(height)),
                "{heights:?}"
            );
        }
        assert_eq!(spread_out(&[60.0, 200.0]), [60.0, 200.0]);
    }

    #[test]
    fn nines_are_equally_far_apart() {
        let at = [0.0, 0.9, 0.99, 0.999].map(nines);
        at.iter().enumerate().for_each(|(i, nines)| assert!((nines - i as f64).abs() < 1e-9, "{at:?}"));
        assert_eq!(nines(1.0), NINES);
        assert_eq!([0.0, 0.5, 0.999, 0.9999, 1.0].map(percentile), ["0", "50", "99.9", "99.99", "max"]);
    }

    #[test]
    fn doublings_are_equally_far_apart() {
        let axis = Axis { title: "", scale: Scale::Doubling, show: format::count };
        let ruler = Ruler::of(axis, [2.5e6, 8e7, 1e7].into_iter(), 4);
        let marks: Vec<f64> = ruler.ticks.iter().map(|tick| tick.0).collect();
        assert_eq!(marks, [2.5e6, 5e6, 1e7, 2e7, 4e7, 8e7]);
        for (i, &mark) in marks.iter().enumerate() {
            assert!((ruler.at(mark) - i as f64 / 5.0).abs() < 1e-9, "{mark}");
        }
        // A single size makes no axis, but must not divide by zero.
        assert!(Ruler::of(axis, [1e6].into_iter(), 4).at(1e6).is_finite());
    }

    #[test]
    fn logarithmic_axes_begin_and_end_at_powers_of_ten() {
        assert_eq!(log_range(2.0, 450.0), (1.0, 1000.0, vec![1.0, 10.0, 100.0, 1000.0]));
        assert_eq!(log_range(f64::INFINITY, f64::NEG_INFINITY).0, 1.0);
    }
}
