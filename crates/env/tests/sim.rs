//! What the simulated disk loses, keeps and reports.

use base::{ErrorKind, Time};
use env::{Env, Fault, OpKind, Phase, Repeat, Rng, SimEnv, Survival, WriteFile};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DIR: &str = "/db";
const FILE: &str = "/db/a";

fn disk() -> Arc<SimEnv> {
    let sim = SimEnv::new(1);
    sim.create_dir(Path::new(DIR)).unwrap();
    sim
}

fn create(sim: &SimEnv, path: &str) -> Box<dyn WriteFile> {
    sim.create(Path::new(path)).unwrap()
}

/// A durable file.
fn durable(sim: &SimEnv, data: &[u8]) -> Box<dyn WriteFile> {
    let mut file = create(sim, FILE);
    file.append(data).unwrap();
    file.sync().unwrap();
    sim.sync_dir(Path::new(DIR)).unwrap();
    file
}

/// The distinct contents of [`FILE`] after many crashes.
fn outcomes(sim: &SimEnv, kind: Survival) -> BTreeSet<Vec<u8>> {
    (0..300).map(|seed| sim.crash_clone(kind, seed).read_file(FILE)).collect()
}

#[test]
fn data_and_entry_are_durable_apart() {
    let sim = disk();
    let mut file = create(&sim, FILE);
    file.append(b"data").unwrap();
    file.sync().unwrap();
    assert!(sim.crash_clone(Survival::Nothing, 0).list_files().is_empty(), "the entry was not synced");
    sim.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(sim.crash_clone(Survival::Nothing, 0).read_file(FILE), b"data");
    file.append(b" more").unwrap();
    let nothing = sim.crash_clone(Survival::Nothing, 0);
    assert_eq!(nothing.read_file(FILE), b"data");
    assert_eq!(sim.crash_clone(Survival::Everything, 0).read_file(FILE), b"data more");
    assert_eq!(sim.process_clone().read_file(FILE), b"data more");
    assert_eq!(sim.process_clone().crash_clone(Survival::Nothing, 0).read_file(FILE), b"data");
    // The content of a clone is durable, and the clone is independent.
    assert_eq!(nothing.crash_clone(Survival::Nothing, 1).read_file(FILE), b"data");
    nothing.write_file(FILE, b"other");
    assert_eq!(sim.read_file(FILE), b"data more");
}

#[test]
fn sync_file_makes_durable_what_another_process_wrote() {
    let sim = disk();
    let mut file = durable(&sim, b"");
    file.append(b"data").unwrap();
    let next = sim.process_clone();
    assert_eq!(next.crash_clone(Survival::Nothing, 0).read_file(FILE), b"");
    next.sync_file(Path::new(FILE)).unwrap();
    assert_eq!(next.crash_clone(Survival::Nothing, 0).read_file(FILE), b"data");
    assert_eq!(sim.crash_clone(Survival::Nothing, 0).read_file(FILE), b"", "the first disk is another one");
}

#[test]
fn a_removed_file_may_come_back_and_a_rename_is_atomic() {
    let sim = disk();
    durable(&sim, b"old");
    let mut file = create(&sim, "/db/tmp");
    file.append(b"new").unwrap();
    file.sync().unwrap();
    sim.rename(Path::new("/db/tmp"), Path::new(FILE)).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        for kind in Survival::ALL {
            let crashed = sim.crash_clone(kind, seed);
            let content = crashed.read_file(FILE);
            assert!(content == b"old" || content == b"new", "never neither");
            let files = crashed.list_files().len();
            assert!(content == b"old" || files == 1, "one file, one name");
            seen.insert((content, files));
        }
    }
    assert_eq!(seen.len(), 3, "old; old with tmp; new");
    sim.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(sim.crash_clone(Survival::Nothing, 0).read_file(FILE), b"new");
    sim.remove(Path::new(FILE)).unwrap();
    assert!(sim.list_files().is_empty());
    assert_eq!(sim.crash_clone(Survival::Nothing, 0).read_file(FILE), b"new");
    assert!(sim.crash_clone(Survival::Everything, 0).list_files().is_empty());
}

#[test]
fn a_link_is_durable_with_its_directory_and_its_file_survives_once() {
    let sim = disk();
    sim.create_dir(Path::new("/copy")).unwrap();
    let mut file = durable(&sim, b"synced");
    file.append(b", and not").unwrap();
    let link = "/copy/linked";
    assert!(sim.link(Path::new(FILE), Path::new(link)).unwrap());
    let used = sim.used();
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        for kind in Survival::ALL {
            let crashed = sim.crash_clone(kind, seed);
            let both = crashed.list_files().len() == 2;
            if both {
                assert_eq!(crashed.read_file(FILE), crashed.read_file(link), "one file");
                assert_eq!(crashed.name_count(Path::new(FILE)).unwrap(), 2);
            }
            assert!(crashed.used() <= used, "counted once");
            seen.insert(both);
        }
    }
    assert_eq!(seen.len(), 2);
    sim.sync_dir(Path::new("/copy")).unwrap();
    assert_eq!(sim.crash_clone(Survival::Nothing, 0).read_file(link), b"synced");
    sim.set_has_links(false);
    assert!(!sim.link(Path::new(FILE), Path::new("/copy/other")).unwrap());
}

#[test]
fn sectors_survive_one_by_one() {
    let sim = disk();
    let mut file = durable(&sim, &[b'a'; 700]);
    file.append(&[b'b'; 1500]).unwrap();
    file.append(&[b'c'; 1000]).unwrap();
    let outcomes = outcomes(&sim, Survival::RandomSectors);
    assert!(outcomes.len() > 50, "{}", outcomes.len());
    let mut holes = 0;
    for content in outcomes {
        assert!(content.len() <= 3200 && content[..700] == [b'a'; 700], "synced data stays");
        for sector in content.chunks(512).skip(2) {
            // A sector holds the state after either append or before both. Bytes past the old end are zeros or
            // absent.
            let zeros = sector.iter().filter(|&&b| b == 0).count();
            holes += usize::from(zeros == sector.len());
            assert!(sector.iter().all(|b| [0, b'b', b'c'].contains(b)));
        }
    }
    assert!(holes > 0);
}

#[test]
fn late_writes_survive_early_ones() {
    let sim = disk();
    let mut file = durable(&sim, b"0");
    [b"1", b"2", b"3"].iter().for_each(|data| file.append(*data).unwrap());
    let outcomes = outcomes(&sim, Survival::Reordered);
    let expected: BTreeSet<Vec<u8>> = (0..8u8)
        .flat_map(|mask| {
            let bytes = |i: usize| if mask >> (i - 1) & 1 == 1 { b'0' + i as u8 } else { 0 };
            let full = vec![b'0', bytes(1), bytes(2), bytes(3)];
            let end = full.iter().rposition(|&b| b != 0).unwrap() + 1;
            [full[..end].to_vec(), full]
        })
        .collect();
    assert_eq!(outcomes, expected);
}

#[test]
fn a_torn_write_has_a_prefix_and_garbage_zeros_or_nothing() {
    let sim = disk();
    let mut file = durable(&sim, b"000");
    file.append(b"111").unwrap();
    file.append(&[b'2'; 20]).unwrap();
    let outcomes = outcomes(&sim, Survival::Torn);
    let full = [&b"000111"[..], &[b'2'; 20]].concat();
    let mut kinds = BTreeSet::new();
    for content in outcomes {
        assert!(content.len() >= 3 && content.len() <= full.len());
        let good = content.iter().zip(&full).take_while(|(a, b)| a == b).count();
        assert!(good >= 3);
        let rest = &content[good..];
        kinds.insert(match rest {
            [] => "nothing",
            _ if rest.iter().all(|&b| b == 0) => "zeros",
            _ => "garbage",
        });
    }
    assert_eq!(kinds.len(), 3);
}

#[test]
fn an_unsynced_cut_may_be_undone() {
    let sim = disk();
    let mut file = durable(&sim, b"0123456789");
    file.truncate(4).unwrap();
    file.append(b"ab").unwrap();
    assert_eq!(sim.crash_clone(Survival::Nothing, 0).read_file(FILE), b"0123456789");
    assert_eq!(sim.crash_clone(Survival::Everything, 0).read_file(FILE), b"0123ab");
    let reordered = outcomes(&sim, Survival::Reordered);
    assert!(reordered.contains(&b"0123ab6789"[..]), "the append without the cut");
    assert!(reordered.contains(&b"0123"[..]));
    file.sync().unwrap();
    for kind in Survival::ALL {
        assert_eq!(outcomes(&sim, kind).into_iter().collect::<Vec<_>>(), [b"0123ab"]);
    }
}

#[test]
fn a_failed_sync_loses_the_pages_and_poisons() {
    let sim = disk();
    let mut file = durable(&sim, b"kept");
    file.append(b" lost").unwrap();
    sim.fail_op(sim.op_count(), Fault::EIO, Repeat::Once);
    assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(file.append(b"x").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(sim.read_file(FILE), b"kept lost", "the cache has data that the disk lacks");
    let next = sim.process_clone();
    next.sync_file(Path::new(FILE)).unwrap();
    assert_eq!(next.read_file(FILE), b"kept lost");
    for kind in Survival::ALL {
        assert_eq!(next.crash_clone(kind, 0).read_file(FILE), b"kept", "a later sync brings nothing back");
    }
}

#[test]
fn the_front_of_a_file_is_synced_alone_and_shares_its_poison() {
    let sim = disk();
    let mut file = create(&sim, FILE);
    file.append(b"front").unwrap();
    let front = file.front(5);
    file.append(b" behind").unwrap();
    front().unwrap();
    sim.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(sim.crash_clone(Survival::Nothing, 0).read_file(FILE), b"front");
    sim.fail_op(sim.op_count(), Fault::EIO, Repeat::Once);
    assert_eq!(front().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(file.append(b"x").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(front().unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn a_failed_directory_sync_loses_the_entries() {
    let sim = disk();
    create(&sim, FILE);
    sim.fail_op(sim.op_count(), Fault::EIO, Repeat::Once);
    assert!(sim.sync_dir(Path::new(DIR)).is_err());
    sim.sync_dir(Path::new(DIR)).unwrap();
    assert!(sim.exists(Path::new(FILE)).unwrap());
    assert!(sim.crash_clone(Survival::Everything, 0).list_files().is_empty());
}

#[test]
fn short_writes_leave_a_prefix_that_the_next_append_overwrites() {
    let sim = disk();
    let mut file = durable(&sim, b"0");
    sim.fail_op(sim.op_count(), Fault::ShortWrite(3), Repeat::Once);
    assert_eq!(file.append(b"12345").unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(sim.read_file(FILE), b"0123");
    file.append(b"ab").unwrap();
    assert_eq!(sim.read_file(FILE), b"0ab3");
    file.truncate(3).unwrap();
    assert_eq!(sim.read_file(FILE), b"0ab");
}

#[test]
fn a_full_disk_takes_what_fits_and_goes_on_when_space_returns() {
    let sim = disk();
    let mut file = durable(&sim, &[0; 90]);
    sim.set_capacity(Some(100));
    assert_eq!(sim.free_space(Path::new(DIR)), Some(10));
    assert_eq!(file.append(&[1; 20]).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(sim.used(), 100);
    assert_eq!(
        file.append(&[2; 11]).unwrap_err().kind(),
        ErrorKind::NoSpace,
        "10 bytes are reused, 1 is missing"
    );
    file.append(&[3; 10]).unwrap();
    file.sync().unwrap();
    assert_eq!(create(&sim, "/db/b").append(b"x").unwrap_err().kind(), ErrorKind::NoSpace);
    sim.remove(Path::new(FILE)).unwrap();
    sim.remove(Path::new("/db/b")).unwrap();
    create(&sim, "/db/c").append(&[4; 100]).unwrap();
    sim.set_capacity(None);
    create(&sim, "/db/d").append(&[4; 1000]).unwrap();
}

#[test]
fn the_hook_sees_every_operation_and_may_clone_fail_and_look() {
    let sim = disk();
    let log = Arc::new(Mutex::new(Vec::new()));
    let start = sim.op_count();
    let (seen, disk) = (log.clone(), Arc::downgrade(&sim));
    sim.set_hook(Some(Box::new(move |op| {
        let sim = disk.upgrade().unwrap();
        let lens = [Survival::Nothing, Survival::Everything]
            .map(|kind| sim.crash_clone(kind, op.index).list_files().len());
        seen.lock().unwrap().push((op.index - start, op.kind, op.phase, lens));
        match op.kind {
            OpKind::Remove => Some(Fault::Kind(std::io::ErrorKind::PermissionDenied)),
            OpKind::Append => Some(Fault::ShortWrite(2)),
            _ => None,
        }
    })));
    let mut file = create(&sim, FILE);
    assert!(file.append(b"1234").is_err());
    sim.sync_dir(Path::new(DIR)).unwrap();
    assert!(sim.remove(Path::new(FILE)).is_err());
    sim.set_hook(None);
    assert_eq!(sim.len(Path::new(FILE)).unwrap(), 2);
    let after = |ok| Phase::After { ok };
    assert_eq!(
        *log.lock().unwrap(),
        [
            (0, OpKind::Create, Phase::Before, [0, 0]),
            (0, OpKind::Create, after(true), [0, 1]),
            (1, OpKind::Append, Phase::Before, [0, 1]),
            (1, OpKind::Append, after(false), [0, 1]),
            (2, OpKind::SyncDir, Phase::Before, [0, 1]),
            (2, OpKind::SyncDir, after(true), [1, 1]),
            (3, OpKind::Remove, Phase::Before, [1, 1]),
            (3, OpKind::Remove, after(false), [1, 1]),
        ]
    );
}

/// Runs operations of all kinds; stops at the first error.
fn script(sim: &SimEnv) -> base::Result<()> {
    let path = Path::new(FILE);
    sim.create_dir(Path::new(DIR))?;
    let _lock = sim.lock(Path::new("/db/LOCK"))?;
    let mut file = sim.create(path)?;
    file.append(b"one")?;
    file.sync()?;
    file.append(b"two")?;
    file.truncate(3)?;
    sim.rename(path, Path::new("/db/b"))?;
    sim.sync_dir(Path::new(DIR))?;
    sim.sync_file(Path::new("/db/b"))?;
    sim.link(Path::new("/db/b"), Path::new("/c"))?;
    sim.name_count(Path::new("/c"))?;
    sim.stamp(Path::new("/c"))?;
    sim.open(Path::new("/db/b"))?.read_exact_at(&mut [0; 3], 0)?;
    sim.list(Path::new(DIR))?;
    sim.exists(path)?;
    sim.remove(Path::new("/db/b"))
}

#[test]
fn each_operation_can_fail() {
    let clean = SimEnv::new(1);
    script(&clean).unwrap();
    let ops = clean.op_count();
    assert_eq!(ops, 18);
    for k in 0..ops {
        let sim = SimEnv::new(1);
        sim.fail_op(k, Fault::EMFILE, Repeat::Once);
        let error = script(&sim).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "operation {k}");
        assert_eq!(sim.op_count(), k + 1, "the script stops there");
        sim.exists(Path::new(FILE)).expect("once only");

        let sim = SimEnv::new(1);
        sim.crash_at(k);
        assert!(script(&sim).unwrap_err().to_string().contains("simulated crash"));
        assert!(sim.exists(Path::new(FILE)).is_err(), "for good");
        sim.clear_faults();
        sim.exists(Path::new(FILE)).unwrap();
    }
}

#[test]
fn repeats_reach_as_far_as_they_say() {
    let appends_and_stats = |repeat| {
        let sim = disk();
        let mut file = create(&sim, FILE);
        sim.fail_op(sim.op_count() + 1, Fault::ENOSPC, repeat);
        let appends = [(); 4].map(|()| file.append(b"x").is_ok());
        (appends, sim.exists(Path::new(FILE)).is_ok())
    };
    assert_eq!(appends_and_stats(Repeat::Once), ([true, false, true, true], true));
    assert_eq!(appends_and_stats(Repeat::SameKind), ([true, false, false, false], true));
    assert_eq!(appends_and_stats(Repeat::Forever), ([true, false, false, false], false));
}

#[test]
fn damage_helpers_reach_open_files_and_are_durable() {
    let sim = disk();
    durable(&sim, b"abc");
    let open = sim.open(Path::new(FILE)).unwrap();
    sim.flip_bit(FILE, 1, 0);
    let mut byte = [0];
    open.read_exact_at(&mut byte, 1).unwrap();
    assert_eq!(byte[0], b'c');
    sim.truncate_file(FILE, 5);
    assert_eq!(sim.crash_clone(Survival::Nothing, 0).read_file(FILE), b"acc\0\0");
    sim.write_file("/new/file", b"x");
    assert_eq!(sim.list(Path::new("/new")).unwrap(), ["file"]);
}

#[test]
fn clones_hold_no_lock_and_share_no_rule() {
    let sim = disk();
    let _lock = sim.lock(Path::new("/db/LOCK")).unwrap();
    sim.set_capacity(Some(0));
    sim.crash_at(0);
    for clone in [sim.crash_clone(Survival::Everything, 0), sim.process_clone()] {
        let _lock = clone.lock(Path::new("/db/LOCK")).unwrap();
        create(&clone, FILE).append(b"x").unwrap();
    }
}

#[test]
fn the_same_seed_gives_the_same_disk() {
    let build = || {
        let sim = disk();
        let mut file = durable(&sim, b"start");
        let mut rng = Rng::new(9);
        for _ in 0..20 {
            let mut data = vec![0; rng.below(2000) as usize];
            rng.fill(&mut data);
            file.append(&data).unwrap();
        }
        create(&sim, "/db/other");
        sim
    };
    let contents = |sim: &SimEnv, kind, seed| {
        let crashed = sim.crash_clone(kind, seed);
        crashed.list_files().into_iter().map(|p| (p.clone(), crashed.read_file(&p))).collect::<Vec<_>>()
    };
    let (a, b) = (build(), build());
    for kind in Survival::ALL {
        for seed in 0..20 {
            assert_eq!(contents(&a, kind, seed), contents(&b, kind, seed));
        }
    }
    assert_eq!((a.monotonic(), b.monotonic()), (Duration::ZERO, Duration::ZERO));
    let (before, time) = (a.wall_clock(), Time::from_micros(5));
    a.set_wall_clock(time);
    a.sleep(Duration::from_secs(1));
    assert_eq!((a.wall_clock(), a.wall_clock(), b.wall_clock()), (time, time, before));
    assert_eq!(a.crash_clone(Survival::Everything, 1).wall_clock(), before);
}

/// A thread extends two files in turn, the second only after the first is durable. No clone may show the second
/// extended and the first not.
#[test]
fn a_clone_is_of_one_moment() {
    let sim = disk();
    let files = [FILE, "/db/b"].map(|path| create(&sim, path));
    sim.sync_dir(Path::new(DIR)).unwrap();
    let done = AtomicU64::new(0);
    std::thread::scope(|s| {
        s.spawn(|| {
            let [mut a, mut b] = files;
            for _ in 0..2000 {
                for file in [&mut b, &mut a] {
                    file.append(b"x").unwrap();
                    file.sync().unwrap();
                }
            }
            done.store(1, Ordering::SeqCst);
        });
        while done.load(Ordering::SeqCst) == 0 {
            let clone = sim.crash_clone(Survival::Nothing, 0);
            let (a, b) = (clone.read_file(FILE).len(), clone.read_file("/db/b").len());
            assert!(a == b || a + 1 == b, "{a} {b}");
        }
    });
}

#[test]
fn what_is_set_aside_takes_space_and_a_crash_may_lose_it() {
    let sim = disk();
    let path = Path::new("/db/aside");
    sim.set_capacity(Some(1000));
    let before = sim.op_count();
    sim.allocate(path, 700).unwrap();
    assert_eq!(sim.op_count(), before + 1);
    assert_eq!((sim.used(), sim.free_space(Path::new("/"))), (700, Some(300)));
    let mut file = sim.create(Path::new(FILE)).unwrap();
    assert_eq!(file.append(&[1; 301]).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(sim.allocate(Path::new("/db/more"), 1).unwrap_err().kind(), ErrorKind::NoSpace);
    let lens = |kind: Survival| -> BTreeSet<Option<u64>> {
        (0..50).map(|seed| sim.crash_clone(kind, seed).len(path).ok()).collect()
    };
    assert_eq!(lens(Survival::Nothing), BTreeSet::from([None]));
    assert_eq!(lens(Survival::Everything), BTreeSet::from([Some(700)]));
    let some = lens(Survival::Reordered);
    assert!(some.contains(&None) && some.contains(&Some(700)) && some.len() > 5, "{some:?}");
    sim.remove(path).unwrap();
    file.append(&[1; 1000]).unwrap();
}

#[test]
fn limits_on_open_files_and_on_their_length_are_enforced() {
    let sim = SimEnv::new(1);
    sim.write_file(FILE, *b"data");
    sim.set_max_open_files(2);
    let open = || sim.open(Path::new(FILE));
    let (first, _second) = (open().unwrap(), open().unwrap());
    let error = open().map(drop).unwrap_err();
    assert!(error.is_too_many_open_files() && error.to_string().contains(FILE), "{error}");
    assert!(sim.create(Path::new("/db/new")).is_err());
    assert!(!sim.exists(Path::new("/db/new")).unwrap());
    drop(first);
    let mut file = sim.create(Path::new("/db/new")).unwrap();
    assert_eq!(sim.open_files(), (2, 2));
    sim.set_max_file_len(10);
    file.append(&[0; 10]).unwrap();
    let error = file.append(&[0; 1]).unwrap_err();
    assert!(error.is_file_too_large() && error.to_string().contains("/new"), "{error}");
    assert_eq!(sim.read_file("/db/new").len(), 10);
}

#[test]
fn a_directory_sync_that_had_no_handle_loses_nothing() {
    let sim = disk();
    create(&sim, FILE);
    sim.fail_op(sim.op_count(), Fault::EMFILE, Repeat::Once);
    let error = sim.sync_dir(Path::new(DIR)).unwrap_err();
    assert_eq!(error.sync_failed().kind(), ErrorKind::Io, "{error}");
    sim.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(sim.crash_clone(Survival::Nothing, 0).list_files().len(), 1);
}

/// A sync of a recycled log makes its own bytes durable, and no bytes of the old log that were not durable before.
#[test]
fn a_sync_of_a_log_over_an_older_one_is_of_its_own_bytes() {
    let sim = disk();
    let mut old = durable(&sim, &[b'o'; 5000]);
    old.truncate(20).unwrap();
    old.append(&[b'n'; 6000]).unwrap();
    drop(old);
    let (from, to) = (Path::new(FILE), Path::new("/db/log"));
    let mut log = sim.reuse_log(from, to).unwrap().unwrap();
    log.append(&[b'h'; 100]).unwrap();
    log.sync().unwrap();
    let mut kept = BTreeSet::new();
    for kind in Survival::ALL {
        for seed in 0..50 {
            let found = sim.crash_clone(kind, seed).read_file(FILE);
            assert!(found[..100] == [b'h'; 100] && found[100..132] == [0; 32], "{kind:?}");
            kept.insert((found.len(), found[132..].contains(&b'n'), found[132..].contains(&b'o')));
        }
    }
    assert!(
        kept.contains(&(5000, false, true)) && kept.contains(&(6020, true, false)) && kept.len() > 3,
        "{kept:?}"
    );
    log.append(b"more").unwrap();
    sim.fail_op(sim.op_count(), Fault::EIO, Repeat::Once);
    log.sync().unwrap_err();
    assert_eq!(log.append(b"more").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(
        sim.crash_clone(Survival::Everything, 1).read_file(FILE)[..104],
        *[&[b'h'; 100][..], &[0; 4]].concat()
    );
}
