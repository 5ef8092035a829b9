//! Statistics over the rounds of a measurement: the median and the range.

/// Median, minimum and maximum over several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median; the mean of the two middle values of an even number.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
    /// Number of rounds.
    pub rounds: usize,
}

impl Spread {
    /// The spread of these values; `None` if there are none. Ignores values that are not numbers.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let sorted = sorted(values);
        Some(Spread {
            median: middle(&sorted)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
            rounds: sorted.len(),
        })
    }

    /// The range as a fraction of the median.
    pub fn width(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / self.median }
    }
}

/// Only the median.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    middle(&sorted(values))
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let (below, above) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some((sorted[below] + sorted[above]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers_of_rounds() {
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median([4.0, 1.0, 2.0, 100.0]), Some(3.0));
        assert_eq!(median([]), None);
    }

    #[test]
    fn a_spread_has_the_extremes() {
        let spread = Spread::of([5.0, 1.0, 9.0]).unwrap();
        assert_eq!(spread, Spread { median: 5.0, min: 1.0, max: 9.0, rounds: 3 });
        assert_eq!(spread.width(), 1.6);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn what_is_no_number_does_not_count() {
        let spread = Spread::of([f64::NAN, 2.0, f64::INFINITY, 4.0]).unwrap();
        assert_eq!((spread.median, spread.rounds), (3.0, 2));
    }
}
