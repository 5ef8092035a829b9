//! Jobs that end with a power cut.

use super::model::Model;
use super::queries::{Reads, compare};
use super::stage::open;
use super::writes::{after, batch, tick};
use crate::random::Rng;
use cairn::env::{SimEnv, Survival};
use cairn::{Durability, Result, Time};

/// Returns whether the power cut came before the end.
pub(super) fn power_cut(seed: u64, shape: u64, at: u64) -> Result<bool> {
    let mut rng = Rng::new(seed);
    let env = SimEnv::new(3);
    env.crash_at(at);
    // The model after each batch that was begun, and how many of these were acknowledged.
    let mut clock = Time::from_micros(1_800_000_000_000_000);
    env.set_wall_clock(clock);
    let mut model = Model { expires: seed % 2 == 1, ..Model::default() };
    model.set_clock(clock);
    let (mut models, mut acknowledged) = (vec![model], 0);
    let mut script = || -> Result<()> {
        let open = self::open(env.clone(), shape, 0)?;
        for n in 1..=160 {
            clock = Time::from_micros(clock.micros() + rng.below(400));
            env.set_wall_clock(clock);
            let mut model = models[models.len() - 1].clone();
            model.set_clock(clock);
            clock = tick(&open, &mut model, clock);
            let (batch, writes, range) = batch(&open, &model, &mut rng, n);
            models.push(after(&model, (writes, range), clock));
            open.db.write(batch, Durability::Sync)?;
            acknowledged = n;
            match n % 40 {
                0 => open.keyspace.compact()?,
                20 => open.keyspace.flush()?,
                _ => {}
            }
        }
        open.db.close()
    };
    let ended = script().is_ok();
    let survival = [Survival::Nothing, Survival::Everything, Survival::Torn][(at % 3) as usize];
    let left = env.crash_clone(survival, at);
    // What had expired stays so.
    let now = models[models.len() - 1].now;
    left.set_wall_clock(now);
    let open = self::open(left, shape, 0)?;
    let count = open
        .plain
        .get("batches")?
        .map_or(0, |count| std::str::from_utf8(&count).expect("a number").parse::<u64>().expect("a number"));
    assert!(count == acknowledged || count == acknowledged + 1, "{count} batches of {acknowledged}");
    let mut model = models[count as usize].clone();
    model.set_clock(now);
    let mut rng = Rng::new(at);
    compare(&Reads::Now(&open.keyspace), &model, &mut rng)?;
    // The clock of the new disk is behind: later versions still get later times.
    open.keyspace.put("k0", "after")?;
    let newest = open.keyspace.get_at("k0", Time::MAX)?.expect("it was just put");
    assert!(newest.time > model.last);
    model.write(b"k0", newest.time, Some(b"after".to_vec()));
    open.keyspace.compact()?;
    compare(&Reads::Now(&open.keyspace), &model, &mut rng)?;
    let report = open.db.check(&mut |_| ())?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    Ok(!ended)
}
