//! Histories of versions: the experiments of the Mneme thesis, and reads of newest versions.

use super::group::{Group, Step};
use super::plan::Plan;
use super::scale::{Scale, Size};
use crate::workload::{Rates, Workload};

/// Puts a second of a history: more than any engine does.
const FULL_SPEED: f64 = 1e6;

/// The histories, then the newest versions.
pub fn groups(plan: &Plan<'_>) -> Vec<Group> {
    let size = &plan.size;
    let mut groups = Vec::new();
    groups.extend(histories(size).into_iter().map(|history| Group {
        key_size: history.key_size,
        on_request: history.on_request,
        // All of the schedule, whatever the time limit of other workloads.
        seconds_max: Some(plan.seconds_max(size.seconds_max).max(1.2 * history.seconds)),
        steps: vec![Step {
            rates: Some(history.rates),
            ..Step::new(
                history.workload,
                size.history_keys,
                ((history.rates.queries * history.seconds) as u64).max(1),
            )
            .summed_up()
        }],
        ..plan.decimal((size.history_keys, 1000), history.name, history.title, &history.about)
    }));
    let keys = size.history_keys * 2;
    groups.push(Group {
        steps: newest(keys, size.reads.min(keys), size.seeks.min(keys / 10)),
        ..plan.decimal(
            (keys, 1000),
            "history-newest",
            "Newest versions with and without older ones",
            "Gets, scans of 100 entries, and scans of 100 entries as of an earlier time, when each key has one version, and when it has ten on \
             average. A scan as of a time is a plain one where an engine keeps no versions.",
        )
    });
    groups
}

/// A group of the Mneme thesis, chapter 6.
struct History {
    name: &'static str,
    title: &'static str,
    about: String,
    workload: Workload,
    rates: Rates,
    key_size: usize,
    seconds: f64,
    on_request: bool,
}

/// Puts a second at which the time of insertion is measured, beside full speed (section 6.3).
const PUT_RATES: [(&str, f64); 4] = [
    ("history-rate-25", 25_000.0),
    ("history-rate-50", 50_000.0),
    ("history-rate-100", 100_000.0),
    ("history-rate-200", 200_000.0),
];

fn histories(size: &Size) -> Vec<History> {
    let history = |name, title, workload| History {
        name,
        title,
        about: String::new(),
        workload,
        rates: size.history_rates,
        key_size: 16,
        seconds: size.history_seconds,
        on_request: false,
    };
    let uniform = |name, title| history(name, title, Workload::HistoryUniform);
    let new =
        |new_percent, history: History| History { rates: Rates { new_percent, ..history.rates }, ..history };
    let named = |history: History| History { on_request: true, ..history };
    let zipf = |exponent, name, title| {
        let history = history(name, title, Workload::HistoryZipf);
        named(History { rates: Rates { exponent, ..history.rates }, ..history })
    };
    let keys = |key_size, name, title| named(History { key_size, ..uniform(name, title) });
    let twice =
        |history: History| History { seconds: 2.0 * history.seconds, key_size: 100, ..named(history) };
    // The rates of the thesis (section 6.2), with a quarter of its puts.
    let thesis_rates = Rates::new(2_500.0, 20.0);
    let thesis_seconds = 1000.0 * size.history_seconds / Scale::Full.size().history_seconds;
    let thesis = |history: History| History {
        rates: thesis_rates,
        seconds: thesis_seconds,
        on_request: true,
        ..history
    };
    let full_speed = |puts: f64, history: History| History {
        rates: Rates::new(FULL_SPEED, 200.0),
        seconds: puts / FULL_SPEED,
        ..history
    };
    let rate = |(name, puts): (&'static str, f64)| {
        let all = size.history_rates.puts * size.history_seconds;
        let history = uniform(name, "History of versions, uniform, at another rate");
        named(History { rates: Rates { puts, ..history.rates }, seconds: all / puts, ..history })
    };
    let mut histories = vec![
        history("history-zipf", "History of versions, zipfian", Workload::HistoryZipf),
        uniform("history-uniform", "History of versions, uniform, half of the puts of new keys"),
        new(20, uniform("history-new-20", "History of versions, uniform, a fifth of the puts of new keys")),
        new(
            80,
            uniform("history-new-80", "History of versions, uniform, four fifths of the puts of new keys"),
        ),
        History {
            key_size: 100,
            ..uniform("history-long-keys", "History of versions, uniform, keys of 100 bytes")
        },
        full_speed(
            size.history_rates.puts * size.history_seconds,
            uniform("history-full-speed", "History of versions, uniform, as fast as the engine puts them"),
        ),
        thesis(history("history-thesis-zipf", "The history of the thesis, zipfian", Workload::HistoryZipf)),
        thesis(uniform("history-thesis-uniform", "The history of the thesis, uniform")),
        History {
            on_request: true,
            ..full_speed(
                thesis_rates.puts * thesis_seconds,
                uniform(
                    "history-thesis-full-speed",
                    "The history of the thesis, uniform, as fast as the engine puts it",
                ),
            )
        },
    ];
    histories.extend([
        zipf(0.0, "history-zipf-0", "History of versions, zipfian with an exponent of 0"),
        zipf(0.4, "history-zipf-0.4", "History of versions, zipfian with an exponent of 0.4"),
        zipf(1.1, "history-zipf-1.1", "History of versions, zipfian with an exponent of 1.1"),
        keys(25, "history-keys-25", "History of versions, uniform, keys of 25 bytes"),
        keys(50, "history-keys-50", "History of versions, uniform, keys of 50 bytes"),
        twice(new(
            20,
            uniform(
                "history-twice-20",
                "Twice the history, uniform, a fifth of the puts of new keys, keys of 100 bytes",
            ),
        )),
        twice(new(
            80,
            uniform(
                "history-twice-80",
                "Twice the history, uniform, four fifths of the puts of new keys, keys of 100 bytes",
            ),
        )),
    ]);
    histories.extend(PUT_RATES.map(rate));
    let about = |history: History| {
        let Rates { puts, queries, .. } = history.rates;
        let named = if history.on_request { " Runs only when it or its family is named." } else { "" };
        if puts == FULL_SPEED {
            let about = format!(
                "Mneme, chapter 6: {:.0} puts of versions, as fast as the engine takes them. The few queries beside them follow a timetable that \
                 no engine keeps, so most of them find nothing: what counts is the time of the puts.{named}",
                puts * history.seconds
            );
            return History { about, ..history };
        }
        let about = format!(
            "After Mneme, chapter 6: {puts} puts a second and {queries} queries a second, each for the versions of a key in a third of \
             the time so far (in the thesis, in three seconds). Where an engine keeps no versions, the key in it is key and time. Latencies count from \
             the moment at which the operation was due.{named}"
        );
        History { about, ..history }
    };
    histories.into_iter().map(about).collect()
}

/// Reads when each key has one version, then when it has ten.
fn newest(num: u64, gets: u64, scans: u64) -> Vec<Step> {
    let get = |label: &str| Step::new(Workload::ReadRandom, num, gets).label(label);
    let scan = |workload: Workload, label: &str| {
        Step { seek_nexts: 99, ..Step::new(workload, num, scans) }.label(label)
    };
    vec![
        Step::new(Workload::FillRandom, num, num),
        get("get-of-1"),
        scan(Workload::SeekRandom, "scan-of-1"),
        Step::new(Workload::Overwrite, num, 9 * num),
        get("get-of-10"),
        scan(Workload::SeekRandom, "scan-of-10"),
        scan(Workload::SeekAsOf, "as-of-10"),
    ]
}
