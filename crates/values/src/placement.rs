//! Which values are placed outside of the tree: a pure function of sizes.

/// The size of a record, by the share of its key: *p* of Parallax (section 2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The value is in place.
    Small,
    /// The value may be in a transient segment.
    Medium,
    /// The value is in a value segment.
    Large,
}

/// The thresholds of a keyspace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// Records with a greater share of the key are small (`T_SM`).
    pub small_above: f64,
    /// Records with at most this share of the key are large (`T_ML`).
    pub large_up_to: f64,
}

impl Placement {
    /// The size of a record.
    #[inline]
    pub fn size(&self, key_len: usize, value_len: usize) -> Size {
        // Multiplied, so that an empty record needs no case: it is small.
        let (key, record) = (key_len as f64, (key_len + value_len) as f64);
        if key > self.small_above * record || value_len == 0 {
            Size::Small
        } else if key > self.large_up_to * record {
            Size::Medium
        } else {
            Size::Large
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_key_decides() {
        let placement = Placement { small_above: 0.2, large_up_to: 0.02 };
        let sizes = [(20, 79), (20, 80), (20, 979), (20, 980), (0, 1), (0, 0), (1 << 16, 1 << 30)];
        let sizes = sizes.map(|(key, value)| placement.size(key, value));
        use Size::{Large, Medium, Small};
        assert_eq!(sizes, [Small, Medium, Medium, Large, Large, Small, Large]);
        let never = Placement { small_above: 0.0, large_up_to: 0.0 };
        assert_eq!(never.size(16, 1 << 30), Small);
    }
}
