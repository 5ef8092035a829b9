//! The model test: a random session of calls on a database and on the [`Model`], which must give the same answers.
//!
//! All calls of the library are used. Readers (snapshots, cursors, iterators, returned slices) are held across
//! flushes, compactions and later writes, and are compared with the model at the version of their creation. The calls
//! follow from the seed alone; background threads of the library may interleave differently.

mod expiry;
mod held;
mod held_calls;
mod reads;
mod state;
mod writes;

use crate::data::Keys;
use crate::finding::{Finding, Outcome, ensure};
use crate::jobs::Job;
use crate::model::Model;
use crate::random::{Draw, Rng, derive};
use crate::sets::OptionSet;
use cairn::Database;
use cairn::env::{Env, RealEnv, SimEnv};
use held::Held;
use state::Session;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// Number of operations after which a session must have seen background work.
const BUSY_OPERATIONS: u64 = 10_000;

/// Runs `operations` calls on option set `set` from `seed`. A finding lists the call and the previous ones.
pub fn run(set: &OptionSet, seed: u64, operations: u64) -> Outcome {
    let scratch: Option<TempDir>;
    let mut simulated = None;
    let (env, path): (Arc<dyn Env>, PathBuf) = if set.real {
        let dir = TempDir::new().map_err(|e| Finding::new(format!("no temporary directory: {e}")))?;
        let path = dir.path().join("db");
        scratch = Some(dir);
        (RealEnv::new(), path)
    } else {
        scratch = None;
        let sim = SimEnv::new(derive(seed, 1));
        // Non-blocking reads find all, some or none of the blocks in memory.
        sim.set_cached_percent([100, 75, 30, 0][(derive(seed, 2) % 4) as usize]);
        simulated = Some(sim.clone());
        (sim, PathBuf::from("/db"))
    };
    let mut rng = Rng::new(seed);
    let keys = Keys::new(&mut rng, set.sizes);
    let db = Database::open_in(env.clone(), &path, set.options.clone())?;
    let now = env.wall_clock();
    let mut session = Session {
        set: set.clone(),
        env,
        path,
        rng,
        keys,
        db: Some(db),
        open: BTreeMap::new(),
        model: Model::default(),
        held: Held::default(),
        created: 0,
        options: BTreeMap::new(),
        flushes: 0,
        compactions: 0,
        sim: simulated,
        now,
        expiries: BTreeMap::new(),
        trace: VecDeque::new(),
    };
    for name in ["a", "b", "c"] {
        session.create(name)?;
    }
    for i in 0..operations {
        session.step().map_err(|f| {
            let trace: Vec<_> = session.trace.iter().map(String::as_str).collect();
            f.context(format_args!("operation {i} of {operations}, after\n    {}\n  ", trace.join("\n    ")))
        })?;
    }
    session.finish().map_err(|f| f.context("at the end"))?;
    // A session without flushes and compactions tests little.
    ensure!(
        operations < BUSY_OPERATIONS || session.flushes > 10 && session.compactions > 1,
        "only {} flushes and {} compactions happened",
        session.flushes,
        session.compactions
    );
    drop(scratch);
    Ok(())
}

/// [`run`] as a job, which counts operations.
pub fn job(set: OptionSet, seed: u64, operations: u64) -> Job {
    let replay = format!(
        "cargo run --release -p sim -- model --set {} --seed {seed} --operations {operations}",
        set.name
    );
    let name = format!("model, option set {}, seed {seed}", set.name);
    Job { name, replay, run: Box::new(move || run(&set, seed, operations).map(|()| operations)) }
}

impl Session {
    /// Makes one call, selected by weight.
    fn step(&mut self) -> Outcome {
        type Step = fn(&mut Session) -> Outcome;
        const STEPS: &[(u32, Step)] = &[
            (3000, Session::put),
            (900, Session::delete),
            (900, Session::merge),
            (700, Session::put_with_ttl),
            (300, Session::pass_time),
            (60, Session::look_at_expiry),
            (20, Session::outlive_entry),
            (90, Session::delete_range),
            (700, Session::batch),
            (15, Session::ingest),
            (1500, Session::get),
            (300, Session::contains),
            (300, Session::multi_get),
            (700, Session::range),
            (300, Session::prefix),
            (60, Session::whole),
            (500, Session::cursor),
            (120, Session::take_snapshot),
            (115, Session::release_snapshot),
            (80, Session::hold_cursor),
            (80, Session::hold_range),
            (900, Session::use_held),
            (130, Session::release_held),
            (50, Session::check_slices),
            (40, Session::flush),
            (6, Session::compact),
            (25, Session::compact_range),
            (30, Session::sync),
            (10, Session::statistics),
            (10, Session::refused),
            (12, Session::recreate),
            (4, Session::alter),
            (3, Session::rename),
            (4, Session::clone_keyspace),
            (2, Session::rewrite),
            (7, Session::reopen),
            (2, Session::check),
        ];
        let weights: Vec<u32> = STEPS.iter().map(|s| s.0).collect();
        let step = STEPS[self.rng.weighted(&weights)].1;
        step(self)
    }

    /// Compares all keyspaces with the model, at present and at each snapshot.
    fn compare_all(&mut self) -> Outcome {
        let mut listed = self.db().keyspaces();
        listed.sort();
        let wanted: Vec<String> = self.model.names().keys().cloned().collect();
        ensure!(listed == wanted, "the keyspaces are {listed:?} instead of {wanted:?}");
        let now = [(None, self.model.version())];
        let views = now.into_iter().chain(self.held.snapshots.iter().map(|(s, at)| (Some(s), *at)));
        for (snapshot, at) in views {
            for open in self.open.values() {
                self.compare_entries(open, snapshot, at)?;
            }
        }
        Ok(())
    }

    /// Runs the library's check on the open database.
    fn check(&mut self) -> Outcome {
        self.note(|| "check".into());
        self.compare_all()?;
        let report = self.db().check(&mut |_| {})?;
        ensure!(
            report.problems.is_empty(),
            "check finds problems in a sound database: {:?}",
            report.problems
        );
        Ok(())
    }

    /// Compares all data, waits for background work, compares again, and checks the closed database.
    fn finish(&mut self) -> Outcome {
        self.check()?;
        self.db().flush()?;
        self.db().wait_idle()?;
        self.check()?;
        self.close()?;
        let report = cairn::check_in(self.env.clone(), &self.path, &mut |_| {})?;
        ensure!(report.problems.is_empty(), "check of the closed database finds {:?}", report.problems);
        self.open_again()?;
        self.db().compact()?;
        self.check()
    }
}
