//! model: the figures of the equations, and arguments that are refused.

use crate::common::Cairn;
use serde_json::Value;

#[test]
fn the_model_prints_what_the_equations_say() {
    let cairn = Cairn::new();
    let text = cairn.ok("model", &["--sizes", "24:9", "24:104", "24:1004", "--large-up-to", "0.0235"]);
    // l - 1 + f l = 35 for 4 levels and a growth of 8.
    for (sizes, class) in
        [("24:9*1", "small"), ("24:104*1", "medium"), ("24:1004*1", "large"), ("all", "35.0")]
    {
        let line =
            text.lines().find(|line| line.starts_with(sizes)).unwrap_or_else(|| panic!("{sizes}: {text}"));
        assert!(line.contains(class) && line.contains("35.0"), "{line}");
    }
    assert!(text.contains("up to 12.5 % of them"), "{text}");

    let args = ["--sizes", "24:1000*3", "--levels", "3", "--transient-merge", "last_but_one", "--json"];
    let json: Value = serde_json::from_str(&cairn.ok("model", &args)).unwrap();
    let row = &json["rows"][0];
    assert_eq!(row["leveled"]["in_place"]["io"], 26.0);
    let separated = row["leveled"]["separated"]["io"].as_f64().unwrap();
    assert!((separated - (26.0 * 24.0 / 1024.0 + 1.0)).abs() < 1e-9, "{separated}");
    assert_eq!(json["rows"][1]["sizes"], "all");
    assert!(!cairn.db().exists(), "it needs no database");
}

#[test]
fn wrong_arguments_are_refused() {
    let cairn = Cairn::new();
    for (args, word) in [
        (&["--sizes", "24"][..], "KEY:VALUE"),
        (&[], "--sizes"),
        (&["--sizes", "24:9", "--growth", "1"], "--growth"),
        (&["--sizes", "24:9", "--levels", "0"], "--levels"),
        (&["--sizes", "24:9", "--small-above", "2"], "from 0 to 1"),
    ] {
        let refused = cairn.run("model", args);
        assert!(refused.code == 2 && refused.err.contains(word), "{args:?}: {}", refused.err);
    }
    cairn
        .run("model", &["--sizes", "24:9", "--small-above", "0.1", "--large-up-to", "0.2"])
        .fails(2, &["--large-up-to"]);
}
