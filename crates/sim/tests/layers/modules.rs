//! No circles between the modules of one crate, nor between its folders.
//!
//! A module is a file. It imports another one when it names a path into it (`crate::a::B`, `super::a::B`, or `a::B` for a child
//! `a`), in a `use` or in code; a re-exported name leads to the module that defines it. Re-exporting its children does not make a
//! parent import them. Tests are left out. Not seen: a method of a type that another module implements.

use super::{code, crates, is_test_gate, sources};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

/// The names of a module and of its parents, from the root of the crate down.
type Module = Vec<String>;

/// Which modules or folders import which.
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// A file of a crate, without comments and tests.
struct Source {
    text: String,
    /// Child modules that the file declares, and those of them that are tests.
    children: Vec<String>,
    tests: Vec<String>,
}

impl Source {
    /// Relies on rustfmt: an item ends on a line with the indentation of its first one.
    fn new(source: &str) -> Source {
        let (mut text, mut children, mut tests) = (String::new(), Vec::new(), Vec::new());
        let indent = |line: &str| line.len() - line.trim_start().len();
        let mut inline = None;
        let mut lines = source.lines().map(code);
        while let Some(line) = lines.next() {
            let test = is_test_gate(line);
            let end = |l: &&str| {
                indent(l) == indent(line)
                    && l.trim_end().ends_with([';', '}', ','])
                    && !l.trim_start().starts_with('#')
            };
            let item = if test { lines.by_ref().take_while_inclusive(end) } else { vec![line] };
            let declared = item
                .iter()
                .find_map(|l| l.trim().strip_suffix(';')?.split_once("mod "))
                .map(|(_, name)| name.to_owned());
            if test {
                tests.extend(declared);
            } else {
                children.extend(declared);
                // In a module that lies in the file, `super` is the file.
                let trimmed = line.trim_start();
                if inline.is_none() && trimmed.contains("mod ") && trimmed.ends_with('{') {
                    inline = Some(indent(line));
                } else if trimmed == "}" && inline == Some(indent(line)) {
                    inline = None;
                }
                text.push_str(&if inline.is_some() {
                    line.replace("super::", "self::")
                } else {
                    line.to_owned()
                });
                text.push('\n');
            }
        }
        Source { text, children, tests }
    }

    /// All paths that the file names from the root of the crate, as `module` sees them: with the name each is known by, and whether a
    /// `pub use` names it.
    fn paths(&self, module: &[String]) -> Vec<(Module, String, bool)> {
        let parent = module.split_last().map_or(&[][..], |(_, parent)| parent);
        let child = |name: &String| ([module, std::slice::from_ref(name)].concat(), name.clone());
        let mut roots = vec![
            (vec![], "crate".to_owned()),
            (module.to_vec(), "self".to_owned()),
            (parent.to_vec(), "super".to_owned()),
        ];
        roots.extend(self.children.iter().map(child));
        let mut found = Vec::new();
        for (base, word) in &roots {
            for (at, _) in self.text.match_indices(&format!("{word}::")) {
                let before = self.text[..at].chars().next_back();
                if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                let statement = self.text[..at].rsplit([';', '}']).next().unwrap_or("").trim();
                // Of a `use` only its own words stand before the path.
                let statement = statement.rsplit('\n').next().unwrap_or("").trim();
                let exported = statement.starts_with("pub") && statement.ends_with("use");
                let mut paths = Vec::new();
                tree(&self.text[at + word.len() + 2..], base, &mut paths);
                found.extend(paths.into_iter().map(|(path, name)| (path, name, exported)));
            }
        }
        found
    }
}

/// Collects a vector up to and with the first element that `last` accepts.
trait TakeWhileInclusive: Iterator + Sized {
    fn take_while_inclusive(self, last: impl Fn(&Self::Item) -> bool) -> Vec<Self::Item> {
        let mut taken = Vec::new();
        for item in self {
            let ends = last(&item);
            taken.push(item);
            if ends {
                break;
            }
        }
        taken
    }
}

impl<I: Iterator> TakeWhileInclusive for I {}

/// The paths that `text` begins with, which may be a tree in braces, below `base`; and the name that a `use` gives each. Returns what
/// follows.
fn tree<'a>(text: &'a str, base: &[String], out: &mut Vec<(Module, String)>) -> &'a str {
    let mut text = text.trim_start();
    if let Some(inner) = text.strip_prefix('{') {
        text = inner;
        loop {
            text = text.trim_start().trim_start_matches(',').trim_start();
            if let Some(rest) = text.strip_prefix('}') {
                return rest;
            }
            if text.is_empty() {
                return text;
            }
            let rest = tree(text, base, out);
            // What is no path ends the tree.
            if rest.len() == text.len() {
                return "";
            }
            text = rest;
        }
    }
    let len = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '*').unwrap_or(text.len());
    let (word, rest) = text.split_at(len);
    let mut path = base.to_vec();
    match word {
        "super" => drop(path.pop()),
        "self" | "" | "*" => {}
        _ => path.push(word.to_owned()),
    }
    if let Some(rest) = rest.strip_prefix("::") {
        return tree(rest, &path, out);
    }
    let alias = rest.strip_prefix(" as ").map(|rest| rest.split([',', ';', '}']).next().unwrap_or("").trim());
    let rest = rest.find([',', '}', ';']).filter(|_| alias.is_some()).map_or(rest, |end| &rest[end..]);
    let name = alias.map_or_else(|| path.last().cloned().unwrap_or_default(), str::to_owned);
    out.push((path, name));
    rest
}

/// The module that `path` leads into: names that a module re-exports are followed to where they are defined.
fn resolve(path: &[String], exports: &BTreeMap<Module, Vec<(Module, String, bool)>>, depth: usize) -> Module {
    let modules = (0..=path.len()).rev().find(|&n| exports.contains_key(&path[..n])).unwrap_or(0);
    let (module, rest) = path.split_at(modules);
    let known = rest.first().and_then(|name| exports.get(module)?.iter().find(|(_, known, _)| known == name));
    match known {
        Some((target, _, _)) if depth < 10 && target != path => resolve(target, exports, depth + 1),
        _ => module.to_vec(),
    }
}

/// Which module of a crate imports which; `files` are its sources by their paths below `src`.
fn imports(files: &[(String, String)]) -> Graph {
    let mut parsed: BTreeMap<Module, Source> = files
        .iter()
        .filter(|(name, _)| name != "main.rs" || !files.iter().any(|(other, _)| other == "lib.rs"))
        .filter(|(name, _)| !name.starts_with("bin/"))
        .map(|(name, source)| {
            let mut module: Module = name.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
            if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
                module.pop();
            }
            (module, Source::new(source))
        })
        .collect();
    let tests: Vec<Module> = (parsed.iter())
        .flat_map(|(module, source)| {
            source.tests.iter().map(|test| [&module[..], std::slice::from_ref(test)].concat())
        })
        .collect();
    parsed.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
    let paths: BTreeMap<Module, _> = parsed.iter().map(|(m, source)| (m.clone(), source.paths(m))).collect();
    let mut graph = Graph::new();
    for (module, named) in &paths {
        let own_child = |path: &Module| path.len() > module.len() && path.starts_with(module);
        let counts = named.iter().filter(|(path, _, exported)| !(*exported && own_child(path)));
        let mut targets: BTreeSet<Module> = counts.map(|(path, _, _)| resolve(path, &paths, 0)).collect();
        targets.remove(module);
        graph.insert(module.clone(), targets);
    }
    graph
}

/// The imports between the folders and files that lie side by side in folder `dir`.
fn beside(graph: &Graph, dir: &[String]) -> Graph {
    let entry = |m: &Module| (m.len() > dir.len() && m.starts_with(dir)).then(|| m[..=dir.len()].to_vec());
    let mut found = Graph::new();
    for (module, targets) in graph {
        let Some(from) = entry(module) else { continue };
        let targets = targets.iter().filter_map(entry).filter(|to| *to != from);
        found.entry(from.clone()).or_default().extend(targets);
    }
    found
}

/// The shortest circle through `start`, which it begins with.
fn circle(graph: &Graph, start: &Module) -> Option<Vec<Module>> {
    let mut came_from: BTreeMap<&Module, &Module> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for next in graph.get(at).into_iter().flatten() {
            if next == start {
                let mut way = vec![at.clone()];
                while way[way.len() - 1] != *start {
                    way.push(came_from[&way[way.len() - 1]].clone());
                }
                way.reverse();
                return Some(way);
            }
            came_from.entry(next).or_insert_with(|| {
                queue.push_back(next);
                at
            });
        }
    }
    None
}

/// A circle through each module and folder that lies on one.
fn circles(graph: &Graph) -> BTreeMap<String, String> {
    let dirs: BTreeSet<Module> = graph.keys().filter_map(|m| Some(m.split_last()?.1.to_vec())).collect();
    let folders = dirs.iter().map(|dir| (beside(graph, dir), "/"));
    let mut found = BTreeMap::new();
    for (graph, mark) in [(graph.clone(), "")].into_iter().chain(folders) {
        for start in graph.keys().filter(|start| mark.is_empty() || dirs.contains(*start)) {
            if let Some(way) = circle(&graph, start) {
                let names: Vec<String> = way.iter().chain([start]).map(name).collect();
                found.insert(format!("{}{mark}", name(start)), names.join(" -> "));
            }
        }
    }
    found
}

fn name(module: &Module) -> String {
    if module.is_empty() { "lib".to_owned() } else { module.join("::") }
}

/// The sources of a crate, by their paths below `src`.
fn files(dir: &Path) -> Vec<(String, String)> {
    let src = dir.join("src");
    let mut paths = Vec::new();
    sources(&src, &mut paths);
    let named = |path: &std::path::PathBuf| {
        let name = path.strip_prefix(&src).unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    paths.iter().map(named).collect()
}

#[test]
fn no_circles_between_the_modules_of_a_crate() {
    let mut problems = Vec::new();
    for (crate_name, dir) in crates() {
        let graph = imports(&files(&dir));
        let circles = circles(&graph);
        if !circles.is_empty() {
            let ways: BTreeSet<&String> = circles.values().collect();
            problems.push(format!(
                "crate {crate_name}: {} modules and folders lie on circles: move what both sides need down, or a method of the lower \
                 type into an `impl` in the upper module:",
                circles.len()
            ));
            problems.extend(ways.into_iter().map(|way| format!("  {way}")));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_way_to_name_a_module_is_found() {
    let graph = |lower: &str| {
        let files = [
            ("lib.rs", "mod low;\nmod top;\npub use low::{Low, nested::Deep};\n\npub use top::Top;\n"),
            ("low/mod.rs", "mod nested;\npub(crate) use nested::Deep;\npub struct Low;\n"),
            ("low/nested.rs", lower),
            ("top.rs", "use crate::{\n    Deep,\n    low::Low,\n};\n"),
        ];
        imports(&files.map(|(name, source)| (name.to_owned(), source.to_owned())))
    };
    let module = |name: &str| name.split("::").map(str::to_owned).collect::<Module>();
    let acyclic = graph(
        "use base::Result; // crate::top\n#[cfg(test)]\nuse crate::top;\n#[cfg(test)]\nmod tests {\n    use crate::Top;\n}\n",
    );
    assert_eq!(acyclic[&module("top")], BTreeSet::from([module("low"), module("low::nested")]));
    assert_eq!(circles(&acyclic), BTreeMap::new());
    for upward in [
        "use crate::Top;",
        "use crate::top::Top;",
        "use crate::{low::Low, Top as T};",
        "use crate::top::{self, Top};",
        "use super::super::top::Top;",
        "fn f() -> crate::top::Top {}",
        "#[cfg(test)]\nfn f() {\n    g();\n}\n\nuse crate::top::Top;",
    ] {
        let circles = circles(&graph(upward));
        assert_eq!(circles["low::nested"], "low::nested -> top -> low::nested", "{upward}");
        assert_eq!(circles["low/"], "low -> top -> low", "{upward}");
    }
    // A parent that uses its child, and is used by it.
    let files = [
        ("lib.rs", "mod a;\n"),
        ("a.rs", "mod b;\nfn f() {\n    b::g();\n}\n"),
        ("a/b.rs", "use super::f;\n"),
    ];
    let circles = circles(&imports(&files.map(|(name, source)| (name.to_owned(), source.to_owned()))));
    assert_eq!(circles.keys().collect::<Vec<_>>(), ["a", "a::b"]);
}

#[test]
fn the_table_of_rooms_has_their_imports() {
    let (_, dir) = crates().into_iter().find(|(name, _)| name == "cairn").unwrap();
    let graph = imports(&files(&dir));
    let is_folder = |entry: &Module| graph.keys().any(|module| module.len() > 1 && module.starts_with(entry));
    let rooms = |modules: &BTreeSet<Module>| -> BTreeSet<String> {
        modules.iter().filter(|module| is_folder(module)).map(name).collect()
    };
    let found: BTreeMap<String, BTreeSet<String>> = beside(&graph, &[])
        .iter()
        .filter(|(module, _)| is_folder(module))
        .map(|(module, targets)| (name(module), rooms(targets)))
        .collect();
    let text = fs::read_to_string(dir.join("../../ARCHITECTURE.md")).unwrap();
    let rows: Vec<Vec<BTreeSet<String>>> = text
        .lines()
        .skip_while(|line| !line.starts_with("| room |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|row| {
            row.split('|').skip(1).map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect())
        })
        .map(Iterator::collect)
        .collect();
    let table = rows.iter().map(|row| (row[0].first().unwrap().clone(), row[2].clone())).collect();
    assert_eq!(found, table, "the imports, and those in ARCHITECTURE.md");
    for (i, row) in rows.iter().enumerate() {
        let below: BTreeSet<&String> = rows[i + 1..].iter().flat_map(|row| &row[0]).collect();
        let others = row[2].union(&row[3]);
        assert!(others.clone().all(|room| below.contains(room)), "{:?}: all others are below it", row[0]);
    }
}
