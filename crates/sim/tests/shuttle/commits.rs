//! The commit pipeline: passing the writer on, failing, publishing, closing.

use crate::stage::{Stage, check, text, tiny, wide};
use cairn::{Durability, ErrorKind, Merge, Snapshot, Time};
use shuttle::future::block_on;
use shuttle::thread;
use std::sync::Arc;

/// Writers of all durabilities queue for the writer. A forgotten writer would wait forever.
#[test]
fn the_writer_is_handed_over_and_nobody_is_left_waiting() {
    check(hand_over, 4800);
}

pub fn hand_over() {
    let stage = Arc::new(Stage::new(1));
    let durabilities = [Durability::Sync, Durability::Os, Durability::Sync, Durability::Buffered];
    let writers = durabilities.map(|durability| {
        let stage = stage.clone();
        thread::spawn(move || {
            let name = format!("{durability}{:?}", thread::current().id());
            stage.spaces[0].put_with(&name, "1", durability).unwrap();
            assert_eq!(stage.spaces[0].get(&name).unwrap().unwrap(), "1", "an acknowledged write");
            stage.write_all(&[&name], "2", durability).unwrap();
            assert_eq!(stage.spaces[1].get(&name).unwrap().unwrap(), "2", "an acknowledged batch");
        })
    });
    stage.db.sync().unwrap();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    stage.db.clone().close().unwrap();
    assert_eq!(stage.after_power_cut().map(|entries| entries.len()), [4, 4]);
}

/// Tasks and threads write beside each other, and the database is closed: a task that has queued its write before closing began gets a success, one of
/// those after it an error, and none waits forever.
#[test]
fn tasks_are_woken_and_what_they_queued_survives_closing() {
    check(tasks, 2400);
}

pub fn tasks() {
    let stage = Arc::new(Stage::new(1));
    let batch = |stage: &Stage, key: &str| {
        let mut batch = stage.db.batch();
        stage.spaces.iter().for_each(|space| batch.put(space, key, "1"));
        batch
    };
    let before = stage.db.write_async(batch(&stage, "before"), Durability::Sync);
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let stage = stage.clone();
            thread::spawn(move || {
                let (key, durability) = (number.to_string(), [Durability::Sync, Durability::Os][number % 2]);
                let written = match number {
                    2 => stage.write_all(&[&key], "1", durability),
                    _ => block_on(stage.db.write_async(batch(&stage, &key), durability)),
                };
                match written {
                    Ok(()) => Some(key),
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
                        None
                    }
                }
            })
        })
        .collect();
    thread::yield_now();
    let last = stage.db.write_async(batch(&stage, "last"), Durability::Buffered);
    stage.db.clone().close().unwrap();
    block_on(before).unwrap();
    block_on(last).unwrap();
    let mut written = vec!["before".to_owned(), "last".to_owned()];
    written.extend(threads.into_iter().filter_map(|thread| thread.join().unwrap()));
    for entries in stage.after_power_cut() {
        let found = |key: &String| entries.iter().any(|entry| entry.0 == *key);
        assert!(written.iter().all(found), "{written:?} were acknowledged, there are {entries:?}");
        assert_eq!(entries.len(), written.len(), "{entries:?}");
    }
}

/// A merge beside the first put that expires, alone and in a group: it is joined to the value and expires with it, or comes before. Merges of another
/// key all count.
#[test]
fn no_operand_outlives_the_value_to_which_it_was_joined() {
    check(merges, 2400);
}

pub fn merges() {
    let stage = Arc::new(Stage::new(0));
    let lists = stage.db.create_keyspace("lists", tiny().merge(Merge::Append)).unwrap();
    let expiry = Time::from_micros(1 << 60);
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let (stage, lists) = (stage.clone(), lists.clone());
            thread::spawn(move || {
                if number == 0 {
                    lists.put_until("expires", "0", expiry).unwrap();
                }
                lists.merge("stays", number.to_string()).unwrap();
                match number {
                    1 => lists.merge("expires", "1").unwrap(),
                    2 => stage.db.transaction(|tx| tx.merge(&lists, "expires", "2")).unwrap(),
                    _ => {}
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let text = |key: &str| lists.get(key).unwrap().map(|value| text(&value)).unwrap_or_default();
    let sorted = |text: String| {
        let mut all: Vec<char> = text.chars().collect();
        all.sort_unstable();
        all.into_iter().collect::<String>()
    };
    assert_eq!(sorted(text("stays")), "012");
    let joined = text("expires");
    assert!(["0", "01", "02", "012", "021"].contains(&&joined[..]), "{joined}");
    stage.disk.set_wall_clock(Time::from_micros(1 << 61));
    assert_eq!(text("expires"), "", "what was joined to {joined} stays");
    stage.db.clone().close().unwrap();
}

/// Trap 6: if the sync of a group fails, no member gets a success, and none waits forever.
#[test]
fn a_leaders_failed_sync_fails_every_follower() {
    check(failing_leader, 4800);
}

pub fn failing_leader() {
    let stage = Arc::new(Stage::new(1));
    stage.fail_log_sync(1);
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let stage = stage.clone();
            thread::spawn(move || {
                let mut acknowledged = Vec::new();
                for i in 0..2 {
                    let key = format!("{writer}/{i}");
                    match stage.write_all(&[&key], "1", Durability::Sync) {
                        Ok(()) => acknowledged.push(key),
                        Err(e) => assert_eq!(e.kind(), ErrorKind::ReadOnly, "{e}"),
                    }
                }
                acknowledged
            })
        })
        .collect();
    let acknowledged: Vec<String> = writers.into_iter().flat_map(|w| w.join().unwrap()).collect();
    let recovered = stage.after_power_cut();
    for key in &acknowledged {
        let found = recovered.iter().all(|entries| entries.iter().any(|entry| entry.0 == *key));
        assert!(found, "{key} was acknowledged, and is lost: {recovered:?}");
    }
    assert_eq!(recovered[0], recovered[1], "half a batch");
    let _ = stage.db.clone().close();
}

/// Trap 4: after a caller that waits for a flush learned of a failed sync, none of its writes or syncs succeeds.
#[test]
fn a_failed_sync_of_a_table_ends_writing_before_it_is_told() {
    check(told_of_a_failed_sync, 2400);
}

pub fn told_of_a_failed_sync() {
    let stage = Arc::new(Stage::new(1));
    stage.spaces[0].put("a", "1").unwrap();
    stage.fail_table_sync();
    let other = stage.clone();
    let waiter = thread::spawn(move || other.spaces[0].flush().map(drop).unwrap_err());
    let error = stage.spaces[0].flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    let after = [
        stage.db.sync(),
        stage.spaces[1].put_with("b", "1", Durability::Sync),
        stage.spaces[1].put_with("b", "1", Durability::Buffered),
        stage.db.create_keyspace("new", tiny()).map(drop),
    ];
    for result in after {
        assert_eq!(result.expect_err("a write after a failed sync").kind(), ErrorKind::ReadOnly);
    }
    assert_eq!(waiter.join().unwrap().kind(), ErrorKind::ReadOnly);
    let _ = stage.db.clone().close();
}

/// A memtable is switched and flushed only after all inserts with reserved space are complete: no late insert is
/// lost.
#[test]
fn a_memtable_is_switched_when_everything_is_inserted() {
    check(switches, 4000);
}

pub fn switches() {
    let stage = Arc::new(Stage::new(1));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let stage = stage.clone();
            thread::spawn(move || {
                for i in 0..2 {
                    let keys = [format!("{writer}/{i}/a"), format!("{writer}/{i}/b")];
                    let mut batch = stage.db.batch();
                    batch.put(&stage.spaces[0], &keys[0], wide("1"));
                    batch.put(&stage.spaces[i], &keys[1], "1");
                    stage.db.write(batch, Durability::Buffered).unwrap();
                    assert!(
                        stage.spaces[0].contains(&keys[0]).unwrap()
                            && stage.spaces[i].contains(&keys[1]).unwrap()
                    );
                }
            })
        })
        .collect();
    stage.spaces[0].flush().unwrap();
    stage.db.flush().unwrap();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    stage.db.flush().unwrap();
    assert_eq!(stage.spaces.each_ref().map(|space| space.iter().count()), [9, 3]);
    stage.db.clone().close().unwrap();
    assert_eq!(stage.after_power_cut().map(|entries| entries.len()), [9, 3]);
}

/// Trap 28: a commit becomes visible as a whole, after all older ones, and stays visible.
#[test]
fn a_snapshot_between_insert_and_publish_shows_whole_commits_in_order() {
    check(snapshots, 4000);
}

pub fn snapshots() {
    let stage = Arc::new(Stage::new(1));
    stage.write_all(&["a", "z"], "0", Durability::Os).unwrap();
    let writers: Vec<_> = (1..3)
        .map(|writer| {
            let stage = stage.clone();
            thread::spawn(move || {
                for i in 0..3 {
                    let value = format!("{writer}.{i}");
                    stage.write_all(&["a", "z"], &value, Durability::Buffered).unwrap();
                    let first = format!("first/{writer}");
                    stage.spaces[0].put_with(first, i.to_string(), Durability::Os).unwrap();
                    let second = format!("second/{writer}");
                    stage.spaces[1].put_with(second, i.to_string(), Durability::Os).unwrap();
                }
            })
        })
        .collect();
    let look = |snapshot: &Snapshot| {
        let get = |space: usize, key: &str| snapshot.get(&stage.spaces[space], key).unwrap();
        let mut seen = vec![get(0, "a"), get(0, "z"), get(1, "a"), get(1, "z")];
        assert!(seen.iter().all(|value| *value == seen[0]), "half a batch: {seen:?}");
        for writer in 1..3 {
            let (first, second) = (get(0, &format!("first/{writer}")), get(1, &format!("second/{writer}")));
            assert!(first >= second, "{second:?} before {first:?}");
            seen.extend([first, second]);
        }
        seen
    };
    let mut last = 0;
    let mut taken = Vec::new();
    for _ in 0..4 {
        let snapshot = stage.db.snapshot();
        assert!(snapshot.seq() >= last, "a snapshot is older than one before it");
        last = snapshot.seq();
        let seen = look(&snapshot);
        taken.push((snapshot, seen));
    }
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    // Later inserts are invisible in old snapshots.
    for (snapshot, seen) in taken {
        assert_eq!(look(&snapshot), seen, "a snapshot changes");
    }
}

/// Trap 35: closing during writes, flushes and waits. No call hangs, late calls get an error, and acknowledged writes
/// exist, whatever their durability.
#[test]
fn closing_during_writes_and_waits_hangs_nobody_and_loses_nothing() {
    check(closing, 4000);
}

pub fn closing() {
    let stage = Arc::new(Stage::new(1));
    let durabilities = [Durability::Sync, Durability::Buffered, Durability::Sync];
    let writers = durabilities.map(|durability| {
        let stage = stage.clone();
        thread::spawn(move || {
            let mut acknowledged = Vec::new();
            for i in 0..3 {
                let key = format!("{durability}{:?}/{i}", thread::current().id());
                match stage.spaces[0].put_with(&key, wide("1"), durability) {
                    Ok(()) => acknowledged.push(key),
                    Err(e) => assert_eq!(e.kind(), ErrorKind::Closed, "{e}"),
                }
            }
            acknowledged
        })
    });
    let waiters = [|s: &Stage| s.db.wait_idle(), |s: &Stage| s.spaces[0].flush()].map(|wait| {
        let stage = stage.clone();
        thread::spawn(move || {
            if let Err(e) = wait(&stage) {
                assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
            }
        })
    });
    stage.db.clone().close().unwrap();
    let acknowledged: Vec<String> = writers.into_iter().flat_map(|w| w.join().unwrap()).collect();
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    let [recovered, _] = stage.after_power_cut();
    for key in &acknowledged {
        assert!(recovered.iter().any(|entry| entry.0 == *key), "{key} is lost: {recovered:?}");
    }
}

/// A keyspace is dropped while batches that write to it are inserted: each batch is complete or gets an error.
#[test]
fn a_keyspace_is_dropped_under_batches() {
    check(drops, 4000);
}

pub fn drops() {
    let stage = Arc::new(Stage::new(1));
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let stage = stage.clone();
            thread::spawn(move || {
                for i in 0..2 {
                    let key = format!("{writer}/{i}");
                    match stage.write_all(&[&key], "1", Durability::Os) {
                        Ok(()) => assert!(stage.spaces[0].contains(&key).unwrap()),
                        Err(e) => {
                            assert_eq!(e.kind(), ErrorKind::Closed, "{e}");
                            assert!(!stage.spaces[0].contains(&key).unwrap(), "half a batch");
                        }
                    }
                }
            })
        })
        .collect();
    stage.db.drop_keyspace("right").unwrap();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    stage.spaces[0].put("after", "1").unwrap();
    stage.db.clone().close().unwrap();
}
