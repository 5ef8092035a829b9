//! Versions of the engines' crates, from `Cargo.lock` at build time: most crates do not expose their version.

const LOCK: &str = include_str!("../../../Cargo.lock");

/// The version of this package.
pub fn version(package: &str) -> &'static str {
    let name = format!("name = \"{package}\"");
    let mut lines = LOCK.lines().skip_while(|line| *line != name);
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    version.expect("what was built in is locked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_found_by_its_whole_name() {
        assert_eq!(version("cairn-bench"), env!("CARGO_PKG_VERSION"));
    }

    #[test]
    #[should_panic(expected = "is locked")]
    fn a_package_that_is_not_there_has_no_version() {
        version("cairn-benc");
    }
}
