//! Writes the results of a run as a page with pictures, and as tables.
//!
//! ```text
//!   write        lines of a run -> index.html, tables.md, a file for each picture
//!     |                            write_brief -> README.md, tables.md, a few pictures: brief
//!     |                            write_papers -> README.md, a picture for each paper: papers
//!     |-- page          the HTML page from top to bottom;  style.css
//!     |   |-- tables        HTML and Markdown;  contents: did the engines do the same work?
//!     |   |-- words         descriptions of groups and workloads, from the suite
//!     |   \-- figures       the pictures;  course: those over time;  growth;  overview;  predicted;  section: what they share
//!     |       \-- bars, lines       panels;  chart: texts, scales, files;  palette: colours
//!     |-- data          the lines in order: groups, workloads, engines, rounds
//!     \-- metric, stats, format     what a metric is, its median, and how it is written
//! ```
//!
//! This folder reads records ([`crate::record`]), the comparison of contents ([`crate::agreement`]) and the descriptions of the
//! suite. It must not run or measure anything.
//!
//! The page is self-contained: no network, no script, no font. It addresses readers who do not know the code:
//! before any figure, it says what was measured on which machine, what disturbed the measurement, and what each
//! metric means.

mod bars;
mod brief;
mod chart;
mod course;
mod data;
mod figures;
mod format;
mod growth;
mod lines;
mod metric;
mod overview;
mod page;
mod palette;
mod papers;
#[cfg(feature = "png")]
mod png;
mod predicted;
mod section;
mod stats;
mod tables;
mod words;

use crate::agreement;
use crate::engine::{Error, Result};
use crate::record::{Line, Record};
use chart::Figure;
use data::Data;
use std::fs;
use std::path::{Path, PathBuf};

/// The files of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The page: `index.html`.
    pub page: PathBuf,
    /// The tables in Markdown: `tables.md`, if there are more than on the page.
    pub tables: Option<PathBuf>,
    /// The pictures: `main.svg`, `overview.svg`, and those of each section; with the feature `png` also as PNG.
    pub pictures: Vec<PathBuf>,
}

/// Number of panels side by side in the main picture, which is shown in the width of a text, and in the others.
const COLUMNS_MAIN: usize = 2;
const COLUMNS: usize = 3;

/// Writes the report of a run into a directory, which is created if it is missing. Files of earlier reports with
/// the same names are replaced. Fails if there are no results.
pub fn write(lines: &[Line], out: &Path) -> Result<Written> {
    let data = begin(lines, out)?;
    let verdict = agreement::compare(lines.iter().filter_map(record));
    let page = page::Page::of(&data, &verdict);
    let tables_file = out.join("tables.md");
    let mut written =
        Written { page: out.join("index.html"), tables: Some(tables_file.clone()), pictures: Vec::new() };
    save(&written.page, &page.html())?;
    save(&tables_file, &(tables::markdown(&data, &verdict) + &predicted::markdown(&data)))?;
    let mut pictures = Pictures::new(out);
    for figure in page.figures() {
        pictures.save(figure)?;
    }
    written.pictures = pictures.written;
    Ok(written)
}

/// Writes the short report that a repository keeps: `README.md`, `tables.md` and a few pictures. Replaces an
/// earlier one; other files of the directory stay.
pub fn write_brief(lines: &[Line], out: &Path) -> Result<Written> {
    let data = begin(lines, out)?;
    let verdict = agreement::compare(lines.iter().filter_map(record));
    let figures = brief::pictures(&data);
    let tables_file = out.join("tables.md");
    let mut written =
        Written { page: out.join(brief::NAME), tables: Some(tables_file.clone()), pictures: Vec::new() };
    save(&written.page, &brief::markdown(&data, &verdict, &figures))?;
    save(&tables_file, &(tables::markdown(&data, &verdict) + &predicted::markdown(&data)))?;
    for name in brief::PICTURES.iter().filter(|name| !figures.iter().any(|figure| figure.file == **name)) {
        let file = out.join(format!("{name}.svg"));
        match fs::remove_file(&file) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::from(e).context(format!("removing {}", file.display())));
            }
            _ => {}
        }
    }
    for figure in &figures {
        let file = out.join(format!("{}.svg", figure.file));
        save(&file, &figure.document(columns(figure)))?;
        written.pictures.push(file);
    }
    Ok(written)
}

/// Writes the page of the papers' experiments: `README.md` and a picture for each paper. Replaces an earlier one; other files of the directory
/// stay.
pub fn write_papers(lines: &[Line], out: &Path) -> Result<Written> {
    let data = begin(lines, out)?;
    let verdict = agreement::compare(lines.iter().filter_map(record));
    let figures = papers::pictures(&data);
    let mut written = Written { page: out.join(papers::NAME), tables: None, pictures: Vec::new() };
    save(&written.page, &papers::markdown(&data, &verdict, &figures))?;
    for figure in &figures {
        let file = out.join(format!("{}.svg", figure.file));
        save(&file, &figure.document(COLUMNS_MAIN))?;
        written.pictures.push(file);
    }
    Ok(written)
}

/// Arranges the lines, and creates the directory.
fn begin<'a>(lines: &'a [Line], out: &Path) -> Result<Data<'a>> {
    let data = Data::of(lines);
    if data.engines.is_empty() {
        return Err(Error::new("there is nothing to report: no line is a result or a failure"));
    }
    fs::create_dir_all(out).map_err(|e| Error::from(e).context(format!("creating {}", out.display())))?;
    Ok(data)
}

fn record(line: &Line) -> Option<&Record> {
    if let Line::Result(record) = line { Some(record) } else { None }
}

/// Number of panels side by side.
fn columns(figure: &Figure) -> usize {
    if figure.file == figures::MAIN_FILE { COLUMNS_MAIN } else { COLUMNS }
}

fn save(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).map_err(|e| Error::from(e).context(format!("writing {}", file.display())))
}

/// Writes pictures into a directory.
struct Pictures<'a> {
    out: &'a Path,
    written: Vec<PathBuf>,
    #[cfg(feature = "png")]
    painter: png::Painter,
}

impl Pictures<'_> {
    fn new(out: &Path) -> Pictures<'_> {
        Pictures {
            out,
            written: Vec::new(),
            #[cfg(feature = "png")]
            painter: png::Painter::new(),
        }
    }

    fn save(&mut self, figure: &Figure) -> Result<()> {
        let svg = figure.document(columns(figure));
        let file = self.out.join(format!("{}.svg", figure.file));
        save(&file, &svg)?;
        self.written.push(file);
        #[cfg(feature = "png")]
        {
            let file = self.out.join(format!("{}.png", figure.file));
            self.painter.paint(&svg, &file)?;
            self.written.push(file);
        }
        Ok(())
    }
}
