//! The architecture as a test: which crate may import which, and what each crate must not do.
//!
//! The compiler ensures that a crate uses only crates in its manifest. This test checks the manifests, and bans some
//! calls that would bypass the layers. Each ban names what to use instead.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "layers/modules.rs"]
mod modules;

/// The layer of each crate, for all crates there are: a crate may import crates of lower layers only.
const LAYERS: &[(&str, u32)] = &[
    ("base", 0),
    ("env", 1),
    ("record", 2),
    ("memtable", 2),
    ("table", 3),
    ("values", 3),
    ("backup", 3),
    ("hashlog", 4),
    ("tree", 5),
    ("history", 6),
    ("cairn", 7),
    ("bench", 8),
    ("sim", 8),
    ("cli", 9),
    ("fuzz-targets", 10),
];

/// Words that the source of a crate must not contain.
struct Ban {
    /// The banned words.
    words: &'static [&'static str],
    /// Where they are banned: a directory relative to the root of the repository, or everywhere if it is empty.
    within: &'static str,
    /// What is exempt: crates by name; files by path, relative to the root of the repository; directories by path with a
    /// trailing `/`.
    except: &'static [&'static str],
    /// What to use instead.
    instead: &'static str,
}

impl Ban {
    /// Whether a file of crate `name` is exempt.
    fn spares(&self, name: &str, file: &str) -> bool {
        let directory = |spared: &str| spared.ends_with('/') && file.starts_with(spared);
        let elsewhere = !file.starts_with(self.within);
        elsewhere || self.except.iter().any(|spared| *spared == name || *spared == file || directory(spared))
    }
}

const BANS: &[Ban] = &[
    Ban {
        words: &["std::fs", "fs::File", "fs::read", "fs::write", "fs::rename", "OpenOptions"],
        within: "",
        except: &["env", "cli", "bench", "sim"],
        instead: "go through env::Env, so that the simulated disk sees it",
    },
    Ban {
        words: &["SystemTime::now", "Instant::now"],
        within: "",
        except: &["env", "cli", "bench", "sim"],
        instead: "use env::Env::monotonic or env::Env::wall_clock",
    },
    Ban {
        words: &["thread::sleep"],
        within: "",
        except: &["env", "cli", "bench", "sim"],
        instead: "use env::Env::sleep",
    },
    Ban {
        words: &["thread::spawn", "thread::Builder", "thread::scope"],
        within: "",
        except: &["cairn", "cli", "bench", "sim"],
        instead: "offer a plan and a way to run it; the scheduler of crate cairn has the threads",
    },
    Ban {
        words: &["unsafe"],
        within: "",
        // Engines for comparison are called through their C interfaces.
        except: &[
            "crates/memtable/src/memory.rs",
            "crates/memtable/src/arena.rs",
            "crates/memtable/src/node.rs",
            "crates/env/src/mapped.rs",
            "bench/src/engines/",
        ],
        instead: "write it safely, or move it to one of the files that may have it, with its proof",
    },
    Ban {
        words: &["println!", "print!", "eprintln!", "eprint!", "dbg!"],
        within: "",
        except: &["cli", "bench", "sim"],
        instead: "return an error, count it in the statistics, or use tracing",
    },
    Ban {
        words: &["DbInner", "Writer", "State", "Signals"],
        within: "crates/cairn/src/read/",
        except: &[],
        instead: "reads only read: what a read may do with the database are the methods of state::Reader",
    },
];

/// Number of lines above which a file should be split; a guideline, not a rule.
const MAX_LINES: usize = 500;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate lies in `crates`").to_owned()
}

/// The directories of all crates, by crate name: those in `crates`, and `bench`.
fn crates() -> Vec<(String, PathBuf)> {
    let mut crates: Vec<_> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .chain([root().join("bench")])
        .filter(|path| path.join("Cargo.toml").exists())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path))
        .collect();
    crates.sort();
    crates
}

/// How the list of layers differs from the crates there are, `names`.
fn list_problems(names: &[&str]) -> Vec<String> {
    let missing = names.iter().filter(|name| layer(name).is_none());
    let missing = missing.map(|name| format!("crate {name} has no layer: give it one in LAYERS"));
    let gone = LAYERS.iter().filter(|(listed, _)| !names.contains(listed));
    missing
        .chain(gone.map(|(listed, _)| format!("there is no crate {listed}: remove it from LAYERS")))
        .collect()
}

fn layer(name: &str) -> Option<u32> {
    LAYERS.iter().find(|l| l.0 == name).map(|l| l.1)
}

/// The crates of this workspace that a manifest depends on, in any section, including dev-dependencies.
fn imports(manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_dependencies = false;
    let mut add = |name: &str| {
        let name = name.trim().trim_matches('"');
        let name = if name == "cairn-kv" { "cairn" } else { name.strip_prefix("cairn-").unwrap_or(name) };
        if layer(name).is_some() {
            found.push(name.to_owned());
        }
    };
    for line in manifest.lines().map(|l| l.split('#').next().unwrap_or("").trim()) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            in_dependencies = section.ends_with("dependencies");
            if let Some((_, name)) = section.rsplit_once("dependencies.") {
                add(name);
            }
        } else if in_dependencies && let Some((name, value)) = line.split_once('=') {
            add(name.split('.').next().unwrap_or(""));
            // A renamed import has its real name in `package` or `path`.
            value.split(['"', '/']).filter(|part| part.starts_with("cairn")).for_each(&mut add);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The problems of the manifest of crate `name`.
fn manifest_problems(name: &str, manifest: &str) -> Vec<String> {
    let Some(own) = layer(name) else {
        // Reported by `list_problems`.
        return Vec::new();
    };
    let mut problems: Vec<String> = imports(manifest)
        .iter()
        .filter(|import| layer(import).is_some_and(|l| l >= own))
        .map(|import| {
            format!(
                "crate {name} (layer {own}) imports {import} (layer {}): a crate imports lower layers only; move what \
                 both need down, or let {name} define a trait that the layer above implements",
                layer(import).unwrap_or_default()
            )
        })
        .collect();
    let lints = manifest.lines().map(str::trim).skip_while(|l| *l != "[lints]").nth(1);
    if lints != Some("workspace = true") {
        problems.push(format!("crate {name} does without the lints: add `[lints]` with `workspace = true`"));
    }
    problems
}

/// A line of source without its comment. Sufficient for bans: no banned word follows a `//` inside a string.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

/// Whether the item that follows this line is compiled in tests only.
fn is_test_gate(line: &str) -> bool {
    line.trim() == "#[cfg(test)]" || line.trim().starts_with("#[cfg(all(test,")
}

fn mentions(line: &str, word: &str) -> bool {
    let identifier = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(identifier) && !after.is_some_and(identifier)
    })
}

/// The banned words in a source file of crate `name`. Tests are exempt: a module under `#[cfg(test)]` ends the file.
fn source_problems(name: &str, file: &str, source: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in source.lines().enumerate() {
        if is_test_gate(line) && source.lines().nth(number + 1).is_some_and(|l| l.contains("mod ")) {
            break;
        }
        for ban in BANS.iter().filter(|ban| !ban.spares(name, file)) {
            for word in ban.words.iter().filter(|word| mentions(code(line), word)) {
                problems.push(format!("{file}:{}: {word} is banned here: {}", number + 1, ban.instead));
            }
        }
    }
    problems
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_crate_has_a_layer_and_every_layer_its_crates() {
    let crates = crates();
    let mut names: Vec<&str> = crates.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(list_problems(&names), Vec::<String>::new());
    names.retain(|name| *name != "tree");
    names.push("attic");
    let problems = list_problems(&names).join("\n");
    assert!(
        problems.contains("crate attic has no layer") && problems.contains("no crate tree"),
        "{problems}"
    );
}

#[test]
fn every_crate_imports_lower_layers_only() {
    let problems: Vec<String> = crates()
        .iter()
        .flat_map(|(name, path)| {
            manifest_problems(name, &fs::read_to_string(path.join("Cargo.toml")).unwrap())
        })
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn no_crate_does_what_it_must_do_without() {
    let mut problems = Vec::new();
    for (name, path) in crates() {
        let mut files = Vec::new();
        sources(&path.join("src"), &mut files);
        for file in files {
            let source = fs::read_to_string(&file).unwrap();
            let shown = file.strip_prefix(root()).unwrap().display().to_string();
            problems.extend(source_problems(&name, &shown, &source));
            let lines = source.lines().count();
            if lines > MAX_LINES {
                println!("note: {shown} has {lines} lines; the guideline is at most {MAX_LINES}");
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn upward_and_sideward_imports_are_found() {
    let manifest = |dependency: &str| format!("[dependencies]\n{dependency}\n\n[lints]\nworkspace = true\n");
    for (name, dependency) in [
        ("env", "tree.workspace = true"),
        ("record", "memtable = { workspace = true }"),
        ("table", "storage = { path = \"../tree\", package = \"cairn-tree\" }"),
        ("tree", "cairn-tree = \"1\""),
        ("base", "[target.'cfg(unix)'.dependencies]\nenv.workspace = true"),
        ("base", "[dev-dependencies.env]\nworkspace = true"),
        ("memtable", "[dev-dependencies]\ncairn.workspace = true"),
        ("memtable", "[dependencies]\nstore = { path = \"..\", package = \"cairn-kv\" }"),
        ("bench", "cli = { path = \"../crates/cli\", package = \"cairn-cli\" }"),
    ] {
        let problems = manifest_problems(name, &manifest(dependency));
        assert!(problems.len() == 1 && problems[0].contains("imports"), "{name} {dependency}: {problems:?}");
    }
    assert_eq!(
        manifest_problems("tree", &manifest("base.workspace = true\nbytes = \"1\"")),
        Vec::<String>::new()
    );
    assert!(manifest_problems("tree", "[dependencies]")[0].contains("lints"));
}

#[test]
fn banned_words_are_found() {
    let found = |name, source| source_problems(name, "f.rs", source).len();
    assert_eq!(found("tree", "use std::fs;\nlet now = Instant::now();\n"), 2);
    assert_eq!(found("tree", "// Instant::now is banned\nlet unsafe_code = 1;\n"), 0);
    assert_eq!(found("tree", "fn f() {}\n#[cfg(test)]\nmod tests { use std::fs; }\n"), 0);
    assert_eq!(found("tree", "#[cfg(all(test, not(loom)))]\nmod tests { use std::fs; }\n"), 0);
    assert_eq!(found("tree", "#[cfg(test)]\nfn f() {}\nunsafe impl Send for X {}\n"), 1);
    assert_eq!(found("memtable", "std::thread::spawn(f)"), 1);
    let read = |source| source_problems("cairn", "crates/cairn/src/read/get.rs", source).len();
    assert_eq!((read("db: &DbInner"), read("db: &Reader"), found("cairn", "db: &DbInner")), (1, 0, 0));
    let unsafe_in = |name, file| source_problems(name, file, "unsafe {}").len();
    assert_eq!(
        (unsafe_in("bench", "bench/src/engines/leveldb.rs"), unsafe_in("bench", "bench/src/drive.rs")),
        (0, 1)
    );
    assert_eq!(
        (
            unsafe_in("memtable", "crates/memtable/src/node.rs"),
            unsafe_in("memtable", "crates/memtable/src/lib.rs")
        ),
        (0, 1)
    );
    assert_eq!(
        (unsafe_in("env", "crates/env/src/mapped.rs"), unsafe_in("env", "crates/env/src/real/log.rs")),
        (0, 1)
    );
    assert_eq!((found("env", "std::fs::read(p)"), found("cairn", "std::thread::spawn(f)")), (0, 0));
}
