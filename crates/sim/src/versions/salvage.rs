//! Jobs that salvage a database.

use super::model::Model;
use super::queries::{Reads, compare};
use super::rounds::load;
use super::stage::{Open, open};
use super::writes::write;
use crate::random::Rng;
use cairn::env::SimEnv;
use cairn::{Database, Options, Result, Time};

/// Salvage of an intact database, and of one whose manifest is lost: all versions, with their times.
pub(super) fn salvage(seed: u64, shape: u64, loses_manifest: bool) -> Result<u64> {
    let mut rng = Rng::new(seed);
    let open = self::open(SimEnv::new(1), shape, 0)?;
    let mut clock = Time::from_micros(1_700_000_000_000_000);
    let mut model = Model { expires: seed / 10 % 2 == 1, ..Model::default() };
    open.env.set_wall_clock(clock);
    model.set_clock(clock);
    for i in 0..600 {
        clock = Time::from_micros(clock.micros() + rng.below(100));
        open.env.set_wall_clock(clock);
        model.set_clock(clock);
        write(&open, &mut model, &mut rng, clock)?;
        if i % 100 == 80 {
            load(&open, &mut model, &mut rng, clock)?;
        }
        if i % 200 == 150 {
            open.keyspace.compact()?;
        }
    }
    if loses_manifest {
        // What is in memory is in tables then, and range tombstones hide nothing more.
        open.keyspace.compact()?;
    }
    let Open { env, db, .. } = open;
    db.close()?;
    if loses_manifest {
        let manifests =
            env.list_files().into_iter().filter(|path| path.to_string_lossy().contains("manifest"));
        manifests.for_each(|path| env.remove_file(path));
    }
    clock = clock.max(model.now);
    env.set_wall_clock(clock);
    let report = cairn::salvage_in(env.clone(), "/db", "/new", Options::default().background_threads(0))?;
    assert_eq!(report.losses.is_empty(), !loses_manifest, "{report:?}");
    let db = Database::open_in(env, "/new", Options::default().background_threads(0))?;
    let keyspace = db.open_keyspace("k")?;
    compare(&Reads::Now(&keyspace), &model, &mut rng)?;
    Ok(1)
}
