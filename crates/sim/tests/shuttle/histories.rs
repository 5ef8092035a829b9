//! The recorded histories of `sim::history`, under schedules that replay.

use crate::stage::check;
use cairn::env::SimEnv;
use shuttle::rand::{Rng as _, thread_rng};
use shuttle::sync::atomic::AtomicUsize;
use shuttle::thread;
use sim::history::actor::Actor;
use sim::history::check::{Cut, Epoch, check as explain};
use sim::history::operation::Clock;
use sim::history::world::{ALL_COUNT, Site};
use sim::random::Rng;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// P6: three threads write and read, another flushes and compacts. Some order of the commits explains all results,
/// and the content after the close.
#[test]
fn every_schedule_has_an_order_that_explains_it() {
    check(scenario, 3200);
}

pub fn scenario() {
    let seed = thread_rng().r#gen::<u64>();
    let mut rng = Rng::new(seed);
    let disk = SimEnv::new(seed);
    let site = Site::draw(disk.clone(), Path::new("/db"), &mut rng);
    let (clock, values) = (Arc::new(Clock::default()), Arc::new(AtomicU32::new(0)));
    let world = Arc::new(site.open(&clock, &values).unwrap());
    let switch = AtomicUsize::new(0);
    disk.set_hook(Some(Box::new(move |_| {
        switch.load(Ordering::SeqCst);
        None
    })));
    let actors: Vec<_> = (0..3)
        .map(|number| {
            let (world, rng) = (world.clone(), Rng::new(rng.next_u64()));
            thread::spawn(move || Actor::new(&world, number, rng, &[]).run(12).unwrap())
        })
        .collect();
    world.db.flush().unwrap();
    world.spaces[0].compact().unwrap();
    let mut epoch = Epoch { start: vec![0; ALL_COUNT].into(), record: Vec::new(), snapshots: Vec::new() };
    let mut open = Vec::new();
    for actor in actors {
        let ended = actor.join().unwrap();
        epoch.record.extend(ended.record);
        epoch.snapshots.extend(ended.snapshots);
        open.extend(ended.open);
    }
    world.db.clone().close().unwrap();
    open.into_iter().for_each(|held| held.refuse().unwrap());
    drop(world);
    let world = site.open(&clock, &values).unwrap();
    let cut = Cut {
        before: u64::MAX,
        after: u64::MAX,
        recovered: world.state().unwrap(),
        survives: cairn::Durability::Buffered,
    };
    if let Err(what) = explain(&epoch, &cut) {
        panic!("{what}");
    }
}
