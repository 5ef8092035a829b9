//! Replays the corpora of the fuzz targets as ordinary tests: all inputs that a fuzzer kept, and all that once
//! revealed a bug, run through the body of their target. Needs only stable Rust.

use fuzz_targets::{TARGETS, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this crate lies in `crates`")
        .join("fuzz")
}

/// The files of a directory, sorted; none when it does not exist.
fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|p| p.is_file()).collect();
    files.sort();
    files
}

/// Runs a file through a target. Returns whether it was accepted; `None` after a panic, which has printed its
/// message.
fn replay(target: &Target, file: &Path) -> Option<bool> {
    let bytes = fs::read(file).unwrap();
    catch_unwind(AssertUnwindSafe(|| target.check(&bytes))).ok()
}

/// Prints one line on standard error, and appends one to the file named by `CAIRN_COUNTS`.
fn count(what: &str, many: usize) {
    let _ = writeln!(std::io::stderr(), "{what}: {many}");
    if let Some(path) = std::env::var_os("CAIRN_COUNTS") {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(format!("{what}\t{many}\n").as_bytes()).unwrap();
    }
}

/// All in one test: memory is counted for the whole process, so only one target may run at a time.
#[test]
fn every_corpus_passes_its_target() {
    let mut replayed = 0;
    let mut failures = Vec::new();
    // The numbers of accepted and rejected inputs of each target.
    let mut verdicts: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for target in TARGETS {
        for dir in ["corpus", "regressions"] {
            for file in files(&fuzz_dir().join(dir).join(target.name)) {
                replayed += 1;
                match replay(target, &file) {
                    Some(accepted) => {
                        verdicts.entry(target.name).or_default()[usize::from(!accepted)] += 1;
                    }
                    None => failures.push(format!("{} fails on {}", target.name, file.display())),
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    for target in TARGETS {
        let [accepted, refused] = verdicts.get(target.name).copied().unwrap_or_default();
        assert!(accepted > 0, "no input of {} is accepted, {refused} are rejected", target.name);
    }
    count("corpus files replayed", replayed);
}

#[test]
fn each_target_has_its_binary_and_no_corpus_is_left_over() {
    let names = |dir: &str| -> BTreeSet<String> {
        let Ok(entries) = fs::read_dir(fuzz_dir().join(dir)) else { return BTreeSet::new() };
        let name = |p: PathBuf| p.file_stem().unwrap().to_string_lossy().into_owned();
        entries.map(|entry| name(entry.unwrap().path())).collect()
    };
    let targets: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(names("fuzz_targets"), targets);
    assert_eq!(names("corpus"), targets);
    assert!(names("regressions").is_subset(&targets));
    let manifest = fs::read_to_string(fuzz_dir().join("Cargo.toml")).unwrap();
    for name in &targets {
        assert!(
            manifest.contains(&format!("\nname = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n")),
            "{name}"
        );
        let source = fs::read_to_string(fuzz_dir().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(source.contains(&format!("fuzz_targets::{}.check(data)", name.to_uppercase())), "{name}");
    }
}

#[test]
fn the_corpora_stay_small() {
    let bytes: u64 = ["corpus", "regressions"]
        .iter()
        .flat_map(|dir| TARGETS.iter().map(move |target| fuzz_dir().join(dir).join(target.name)))
        .flat_map(|dir| files(&dir))
        .map(|file| file.metadata().unwrap().len())
        .sum();
    assert!(bytes < 1 << 20, "the corpora have {bytes} bytes: minimise them");
}
