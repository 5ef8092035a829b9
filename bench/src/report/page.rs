//! The HTML page, from top to bottom.

use super::chart::Figure;
use super::data::Data;
use super::figures;
use super::format;
use super::metric::EXPLAINED;
use super::palette;
use super::section::{Section, file_name, sections};
use super::tables;
use super::words::Words;
use crate::agreement::Agreement;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// A page with its pictures.
pub struct Page<'d, 'a> {
    data: &'d Data<'a>,
    verdict: &'d Agreement<'a>,
    words: Words,
    main: Figure,
    overview: Option<Figure>,
    sections: Vec<(Section<'d, 'a>, Vec<Figure>)>,
}

impl<'d, 'a> Page<'d, 'a> {
    /// The page of these results.
    pub fn of(data: &'d Data<'a>, verdict: &'d Agreement<'a>) -> Page<'d, 'a> {
        let of_section = |section| {
            let figures = figures::of_section(data, &section);
            (section, figures)
        };
        Page {
            data,
            verdict,
            words: Words::of(&data.info),
            main: figures::main_figure(data),
            overview: figures::overview_figure(data),
            sections: sections(data).into_iter().map(of_section).collect(),
        }
    }

    /// All pictures, the main one first.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        [&self.main]
            .into_iter()
            .chain(&self.overview)
            .chain(self.sections.iter().flat_map(|section| &section.1))
    }

    /// The whole page.
    pub fn html(&self) -> String {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { "Cairn and its peers" }
                    style { (PreEscaped(style())) }
                }
                body {
                    // Once in the page instead of once per picture, because ids must be unique in a document.
                    svg.defs width="0" height="0" aria-hidden="true" { (palette::hatchings()) }
                    (self.head())
                    (self.contents())
                    main {
                        (self.troubles())
                        (self.method())
                        (self.summary())
                        @for (section, figures) in &self.sections { (self.section(section, figures)) }
                        (self.settings())
                        (self.checksums())
                    }
                    footer {
                        p {
                            "Beside this page: each picture as a file of its own (" code { "main.svg" } " and others), and all "
                            "tables in " code { "tables.md" } "."
                        }
                    }
                }
            }
        }
        .into_string()
    }

    fn head(&self) -> Markup {
        let info = &self.data.info;
        let limit = info.memory_limit_bytes.map_or("none".to_string(), |limit| {
            format!("{} for each engine, its page cache included", format::bytes(limit as f64))
        });
        let memory =
            Some(info.memory_bytes).filter(|bytes| *bytes > 0).map(|bytes| format::bytes(bytes as f64));
        let processors = if info.cpus > 0 {
            format!(" ({})", format::plural(info.cpus, "processor"))
        } else {
            String::new()
        };
        let facts: [(&str, String); 9] = [
            ("Measured", info.started.clone()),
            ("Processor", format!("{}{processors}", info.cpu)),
            ("Memory", memory.unwrap_or_default()),
            ("Memory limit", limit),
            ("Files on", info.file_system.clone()),
            ("Kernel", info.kernel.clone()),
            ("Commit", info.commit.clone()),
            ("Sizes", info.scale.clone()),
            ("Rounds", self.rounds()),
        ];
        html! {
            header {
                h1 { "Cairn and its peers, side by side" }
                p.lead {
                    "Embedded key-value stores, all given the same work on the same machine: "
                    (self.data.workloads().count()) " workloads in " (format::plural(self.data.groups.len(), "group")) "."
                }
                ul.engines {
                    @for engine in &self.data.engines {
                        li {
                            svg.swatch viewBox="0 0 20 12" width="20" height="12" aria-hidden="true" {
                                rect width="20" height="12" fill=(engine.style.light()) class={ "f" (engine.style.colour) } {}
                                @if let Some(hatching) = engine.style.hatching() {
                                    rect width="20" height="12" fill=(hatching) {}
                                }
                            }
                            (engine.title)
                            @if engine.title != engine.name { " " code { (engine.name) } }
                            @if !engine.version.is_empty() { " " span.muted { (engine.version) } }
                        }
                    }
                }
                dl.facts {
                    @for (name, value) in facts.iter().filter(|fact| !fact.1.is_empty()) {
                        div { dt { (name) } dd { (value) } }
                    }
                }
            }
        }
    }

    fn rounds(&self) -> String {
        let (planned, there) = (self.data.info.rounds as usize, self.data.rounds());
        if planned > there { format!("{there} of {planned}") } else { there.to_string() }
    }

    fn contents(&self) -> Markup {
        html! {
            nav aria-label="Contents" {
                a href="#method" { "Method" }
                a href="#summary" { "Summary" }
                @for (section, _) in &self.sections { a href={ "#" (anchor(section)) } { (name(section)) } }
                a href="#settings" { "Settings" }
                a href="#contents" { "Contents" }
            }
        }
    }

    /// Warnings that a reader must know before the figures.
    fn troubles(&self) -> Markup {
        let warnings = self.data.warnings();
        let failures = &self.data.failures;
        let wrong = !self.verdict.differ.is_empty();
        html! {
            @if wrong || !failures.is_empty() {
                section.trouble.bad {
                    h2 { "Failures" }
                    ul {
                        @if wrong { li { (self.verdict) " " a href="#contents" { "Which ones" } "." } }
                        @for failure in failures {
                            li {
                                strong { (self.data.label(failure.engine)) } " did not finish "
                                strong { (if failure.group.is_empty() { "a workload" } else { failure.group }) }
                                ", round " (failure.round) ": " (failure.message)
                            }
                        }
                    }
                }
            }
            @if !warnings.is_empty() {
                section.trouble {
                    h2 { "Warnings" }
                    ul { @for warning in &warnings { li { (warning) } } }
                }
            }
        }
    }

    fn method(&self) -> Markup {
        html! {
            section #method {
                h2 { "Method, and the meaning of the metrics" }
                p {
                    "Every engine runs in its own process, in an empty directory of the same file system, and is called "
                    "through the same small interface; compression is off. The engines take turns within a round, so "
                    "disturbances of the machine affect all of them. Values are medians over the rounds, with the range "
                    "from the " em { "lowest to the highest" } " round. All engines get the same settings as far as they "
                    "support them: see " a href="#settings" { "Settings" } "."
                }
                dl.means {
                    @for metric in &EXPLAINED {
                        @let better = match (metric.is_compared(), metric.more_is_better) {
                            (false, _) => "",
                            (true, true) => "More is better.",
                            (true, false) => "Less is better.",
                        };
                        div { dt { (metric.name) } dd { (metric.means) " " (better) } }
                    }
                }
            }
        }
    }

    fn summary(&self) -> Markup {
        html! {
            section #summary {
                h2 { "Summary" }
                (picture(&self.main, "main"))
                @if let Some(overview) = &self.overview { (picture(overview, "overview")) }
                h3 { "All workloads" }
                p {
                    "Size of the data relative to the memory limit. Median throughput in operations per second; below it the range "
                    "over the rounds, the ratio to Cairn (above 1× is better than Cairn), and disk requests per operation. The "
                    "last column compares Cairn with the best other engine. ★ best of the row. † stopped by the time limit: the "
                    "rate is that of the completed operations. Histories, whose operations come at a fixed rate, show p99 "
                    "latency instead; there too, above 1× is better than Cairn."
                }
                div.summary { (tables::summary(self.data, false).html()) }
            }
        }
    }

    fn section(&self, section: &Section<'d, 'a>, figures: &[Figure]) -> Markup {
        html! {
            section id=(anchor(section)) {
                h2 { (name(section)) }
                @for (title, about) in self.groups(section) {
                    p { strong { (title) } @if !about.is_empty() { ". " (about) } }
                }
                (self.workloads(section))
                @for figure in figures { (picture(figure, "")) }
                h3 { "All metrics" }
                p.caption { "Medians over the rounds; for max the maximum. ★ best of the column." }
                @for (group, workload) in section.workloads() {
                    h4 { (section.name_of(group, workload)) }
                    (tables::figures(self.data, group, workload).html())
                    @if let Some(kinds) = tables::by_kind(self.data, workload) { (kinds.html()) }
                }
            }
        }
    }

    /// Titles and descriptions of groups; groups with the same description share an entry.
    fn groups(&self, section: &Section<'d, 'a>) -> Vec<(String, &str)> {
        let mut all: Vec<(String, &str)> = Vec::new();
        for group in &section.groups {
            let (title, about) = (self.words.title(group.name), self.words.about(group.name));
            match all.iter_mut().find(|other| other.1 == about) {
                Some((titles, _)) => *titles += &format!("; {title}"),
                None => all.push((title.to_string(), about)),
            }
        }
        all
    }

    /// Descriptions of the workloads that the suite knows.
    fn workloads(&self, section: &Section<'d, 'a>) -> Markup {
        let mut known: Vec<(&str, Vec<&str>)> = Vec::new();
        for (group, workload) in section.workloads() {
            let (name, about) = (workload.name.as_str(), self.words.workload(group, &workload.name));
            match known.iter_mut().find(|other| other.0 == about) {
                Some((_, names)) if !names.contains(&name) => names.push(name),
                Some(_) => {}
                None => known.push((about, vec![name])),
            }
        }
        known.retain(|(about, _)| !about.is_empty());
        let together = |names: &[&str]| match names {
            [first, _, .., last] => format!("{first} to {last}"),
            _ => names.join(", "),
        };
        html! {
            @if !known.is_empty() {
                dl.means { @for (about, names) in &known { div { dt { (together(names)) } dd { (about) } } } }
            }
        }
    }

    fn settings(&self) -> Markup {
        html! {
            section #settings {
                h2 { "Settings" }
                p { "Settings requested of all engines:" }
                (tables::settings(self.data).html())
                @for engine in &self.data.engines {
                    @let table = tables::engine_settings(self.data, engine.name);
                    @if !table.rows.is_empty() {
                        h4 { (engine.title) " " span.muted { (engine.version) } ": its own settings, and restrictions" }
                        div.own { (table.html()) }
                    }
                }
            }
        }
    }

    fn checksums(&self) -> Markup {
        let class = if !self.verdict.differ.is_empty() { "trouble bad" } else { "verdict" };
        html! {
            section #contents {
                h2 { "Did the engines do the same work?" }
                p {
                    "After the workloads that write, all entries of each database are read, counted and hashed."
                }
                p class=(class) { (self.verdict) }
                @if !self.verdict.differ.is_empty() { (tables::differences(self.data, self.verdict).html()) }
            }
        }
    }
}

fn name<'s>(section: &'s Section<'_, '_>) -> &'s str {
    if section.name.is_empty() { "alone" } else { section.name }
}

fn anchor(section: &Section<'_, '_>) -> String {
    format!("group-{}", file_name(name(section)))
}

fn picture(figure: &Figure, class: &str) -> Markup {
    html! {
        figure class=(class) {
            h3 { (figure.title) }
            figcaption.caption { (figure.caption) }
            div.panels { @for panel in &figure.panels { (panel.inline()) } }
        }
    }
}

fn style() -> String {
    format!(
        "{}{}@media screen and (prefers-color-scheme:dark){{{}}}",
        include_str!("style.css"),
        palette::rules(false),
        palette::rules(true)
    )
}
