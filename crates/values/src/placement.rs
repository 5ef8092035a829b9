//! Which values are placed outside of the tree.

/// Whether a value is large: its key has at most the share `large_up_to` of the record (`T_ML` of Parallax, section 2.1.2). An empty value
/// never is.
#[inline]
pub fn is_large(key_len: usize, value_len: usize, large_up_to: f64) -> bool {
    // Multiplied, so that an empty record needs no case.
    value_len > 0 && key_len as f64 <= large_up_to * (key_len + value_len) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_the_key_decides() {
        let sizes = [(20, 979), (20, 980), (0, 1), (0, 0), (1 << 16, 1 << 30)];
        assert_eq!(sizes.map(|(key, value)| is_large(key, value, 0.02)), [false, true, true, false, true]);
        assert!(!is_large(16, 1 << 30, 0.0) && is_large(16, 1, 1.0) && !is_large(16, 0, 1.0));
    }
}
