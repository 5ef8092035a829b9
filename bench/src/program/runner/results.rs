//! The results file: one JSON object per line, written at once, so that an interrupted run keeps its results.

use bench::record::Line;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Name of the file in the directory for results.
pub const NAME: &str = "results.jsonl";

/// An open results file.
pub struct Results {
    file: File,
    path: PathBuf,
}

impl Results {
    /// Creates the directory and the file. With `append`, the file may exist.
    pub fn create(dir: &Path, append: bool) -> Result<Results, String> {
        fs::create_dir_all(dir).map_err(|e| format!("make {}: {e}", dir.display()))?;
        let path = dir.join(NAME);
        let file = match append {
            true => File::options().append(true).create(true).open(&path),
            false => File::options().write(true).create_new(true).open(&path),
        };
        match file {
            Ok(file) => Ok(Results { file, path }),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(format!(
                "{} is there from an earlier run: name another --out, or add to it with --append",
                path.display()
            )),
            Err(e) => Err(format!("make {}: {e}", path.display())),
        }
    }

    /// Adds a line.
    pub fn add(&mut self, line: &Line) -> Result<(), String> {
        let mut text = serde_json::to_vec(line).map_err(|e| e.to_string())?;
        text.push(b'\n');
        self.file.write_all(&text).map_err(|e| format!("write {}: {e}", self.path.display()))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// All lines of a file. The last line may be incomplete, if a run was killed while writing it.
pub fn read(path: &Path) -> Result<Vec<Line>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("read {}: {e}", path.display()))?;
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |(i, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|e| format!("{}, line {}: {e}", path.display(), i + 1))
    };
    complete.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::record::RunInfo;

    #[test]
    fn a_file_is_kept_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("a/b");
        let mut results = Results::create(&out, false).unwrap();
        results.add(&Line::Run(RunInfo::default())).unwrap();
        assert!(Results::create(&out, false).err().unwrap().contains("earlier run"));
        let mut results = Results::create(&out, true).unwrap();
        results.add(&Line::Run(RunInfo { rounds: 3, ..RunInfo::default() })).unwrap();
        results.file.write_all(b"{\"resu").unwrap();
        let lines = read(results.path()).unwrap();
        assert!(matches!(&lines[..], [Line::Run(_), Line::Run(info)] if info.rounds == 3), "{lines:?}");
        results.file.write_all(b"\n").unwrap();
        assert!(read(results.path()).unwrap_err().contains("line 3"));
    }
}
