//! The contract of [`Env`], tested on the operating system and on the simulated disk.

use base::{ErrorKind, Time};
use env::{Env, LOG_END, RealEnv, SimEnv};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Runs `test` in an empty directory of each environment.
fn with_each(test: impl Fn(&dyn Env, &Path)) {
    let temp = tempfile::tempdir().unwrap();
    test(&*RealEnv::new(), temp.path());
    let sim: Arc<dyn Env> = SimEnv::new(1);
    sim.create_dir(Path::new("/disk")).unwrap();
    test(&*sim, Path::new("/disk"));
}

fn put(env: &dyn Env, path: &Path, data: &[u8]) {
    let mut file = env.create(path).unwrap();
    file.append(data).unwrap();
    file.sync().unwrap();
}

fn read(env: &dyn Env, path: &Path) -> Vec<u8> {
    let file = env.open(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn appends_are_read_back() {
    with_each(|env, dir| {
        let path = dir.join("a");
        let mut file = env.create(&path).unwrap();
        file.append(b"one").unwrap();
        file.append(b"").unwrap();
        file.append(b"two").unwrap();
        assert_eq!(env.len(&path).unwrap(), 6);
        assert_eq!(read(env, &path), b"onetwo");
        let reader = env.open(&path).unwrap();
        file.append(&[7; 100_000]).unwrap();
        file.sync().unwrap();
        let mut middle = [0; 4];
        reader.read_exact_at(&mut middle, 2).unwrap();
        assert_eq!(&middle, b"etwo"[..].first_chunk::<4>().unwrap());
        assert_eq!((reader.len().unwrap(), reader.path()), (100_006, &path));
        reader.will_need(0, 1 << 30);
        reader.wont_need(0, 0);
        env.sync_file(&path).unwrap();
    });
}

#[test]
fn what_is_written_back_in_portions_stays_and_appends_follow() {
    with_each(|env, dir| {
        let path = dir.join("log");
        let mut file = env.create_log(&path).unwrap();
        file.write_back().unwrap();
        let mut expected = Vec::new();
        for i in 0..40u8 {
            file.append(&[i; 50_000]).unwrap();
            expected.extend_from_slice(&[i; 50_000]);
            if i % 16 == 5 {
                file.write_back().unwrap();
            }
        }
        file.write_back().unwrap();
        file.sync().unwrap();
        file.truncate(1_500_000).unwrap();
        file.write_back().unwrap();
        drop(file);
        assert!(read(env, &path) == expected[..1_500_000]);
    });
}

#[test]
fn reading_past_the_end_names_file_and_offset() {
    with_each(|env, dir| {
        let path = dir.join("short");
        put(env, &path, b"12345");
        let file = env.open(&path).unwrap();
        for offset in [3, 5, 6, 1 << 40] {
            let error = file.read_exact_at(&mut [0; 4], offset).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
            assert!(error.to_string().contains(&format!("short, offset {offset}")), "{error}");
        }
        file.read_exact_at(&mut [], 5).unwrap();
        file.read_exact_at(&mut [0; 2], 3).unwrap();
    });
}

#[test]
fn what_is_read_without_waiting_is_whole_and_right() {
    with_each(|env, dir| {
        let path = dir.join("a");
        let content: Vec<u8> = (0..100_000u32).map(|i| (i * 7 % 251) as u8).collect();
        put(env, &path, &content);
        let file = env.open(&path).unwrap();
        for offset in (0..90_000).step_by(4999) {
            // Data that was just written need not be in memory.
            file.wont_need(0, content.len() as u64);
            let mut bytes = vec![0; 10_000];
            let there = (0..10_000).any(|_| {
                file.will_need(offset, 10_000);
                file.try_read_cached(&mut bytes, offset).unwrap() || {
                    bytes.fill(1);
                    env.sleep(Duration::from_millis(1));
                    false
                }
            });
            assert!(there, "a prefetched read arrives");
            assert_eq!(bytes, content[offset as usize..][..10_000]);
        }
        // The end of the file is detected here too, and a short read is no success.
        for offset in [99_990, 100_000, 200_000] {
            for _ in 0..20 {
                match file.try_read_cached(&mut [0; 100], offset) {
                    Ok(there) => assert!(!there),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption),
                }
            }
            assert_eq!(file.read_exact_at(&mut [0; 100], offset).unwrap_err().kind(), ErrorKind::Corruption);
        }
    });
}

#[test]
fn create_never_overwrites() {
    with_each(|env, dir| {
        let path = dir.join("a");
        put(env, &path, b"kept");
        assert_eq!(env.create(&path).err().unwrap().kind(), ErrorKind::AlreadyExists);
        assert_eq!(env.create(dir).err().unwrap().kind(), ErrorKind::AlreadyExists);
        assert_eq!(read(env, &path), b"kept");
        assert_eq!(env.create(&dir.join("no/such")).err().unwrap().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn what_is_missing_is_not_found() {
    with_each(|env, dir| {
        let path = dir.join("missing");
        assert!(!env.exists(&path).unwrap() && env.exists(dir).unwrap());
        let errors = [
            env.open(&path).err(),
            env.len(&path).err(),
            env.remove(&path).err(),
            env.rename(&path, &dir.join("b")).err(),
            env.list(&path).err(),
            env.sync_dir(&path).err(),
            env.sync_file(&path).err(),
        ];
        for (i, error) in errors.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("{i}"));
            assert_eq!(error.kind(), ErrorKind::NotFound, "{i}");
            assert!(error.to_string().contains("missing"), "{error}");
        }
    });
}

#[test]
fn truncating_cuts_and_appending_goes_on_there() {
    with_each(|env, dir| {
        let path = dir.join("a");
        let mut file = env.create(&path).unwrap();
        file.append(b"0123456789").unwrap();
        file.truncate(4).unwrap();
        assert_eq!(env.len(&path).unwrap(), 4);
        assert_eq!(file.truncate(5).unwrap_err().kind(), ErrorKind::InvalidArgument);
        file.append(b"ab").unwrap();
        file.sync().unwrap();
        file.truncate(6).unwrap();
        assert_eq!(read(env, &path), b"0123ab");
    });
}

#[test]
fn a_log_may_have_zeros_behind_its_end_until_it_is_trimmed() {
    with_each(|env, dir| {
        let path = dir.join("log");
        let mut log = env.create_log(&path).unwrap();
        assert_eq!(env.create_log(&path).err().unwrap().kind(), ErrorKind::AlreadyExists);
        let mut expected = Vec::new();
        for i in 0..400_u32 {
            let data = vec![i as u8 | 1; 1 + (i * 37 % 2000) as usize];
            log.append(&data).unwrap();
            expected.extend_from_slice(&data);
            match i % 100 {
                50 => log.sync().unwrap(),
                70 => log.trim(),
                90 => {
                    expected.truncate(expected.len() - 5);
                    log.truncate(expected.len() as u64).unwrap();
                }
                _ => {}
            }
            let found = read(env, &path);
            assert!(found.starts_with(&expected) && found[expected.len()..].iter().all(|&b| b == 0), "{i}");
        }
        log.trim();
        assert_eq!(env.len(&path).unwrap(), expected.len() as u64);
        assert_eq!(read(env, &path), expected);
    });
}

#[test]
fn a_log_over_an_older_one_has_zeros_behind_its_end() {
    with_each(|env, dir| {
        let (old, path) = (dir.join("old"), dir.join("log"));
        let old_len = 700_000;
        put(env, &old, &vec![0xee; old_len]);
        let Some(mut log) = env.reuse_log(&old, &path).unwrap() else { return };
        assert_eq!(read(env, &old).len(), old_len);
        env.rename(&old, &path).unwrap();
        let mut expected = Vec::new();
        for i in 0..1000_u32 {
            let data = vec![i as u8 | 1; 1 + (i * 37 % 2000) as usize];
            log.append(&data).unwrap();
            expected.extend_from_slice(&data);
            if i % 100 == 50 {
                log.sync().unwrap();
            }
            let found = read(env, &path);
            assert!(found.len() >= old_len.max(expected.len()) && found.starts_with(&expected), "{i}");
            let behind = &found[expected.len()..];
            let zeros = behind.iter().position(|&b| b != 0).unwrap_or(behind.len());
            assert!(zeros >= LOG_END.min(behind.len()), "{i}: {zeros} zeros");
            assert!(
                expected.len() + zeros >= old_len
                    || behind[zeros..old_len - expected.len()].iter().all(|&b| b == 0xee)
            );
        }
        assert!(expected.len() > old_len);
        log.trim();
        assert_eq!(read(env, &path), expected);
        // Nothing follows data appended after a cut.
        let mut log = env.reuse_log(&path, &path).unwrap().unwrap();
        log.append(b"0123456789").unwrap();
        log.truncate(4).unwrap();
        log.append(b"ab").unwrap();
        log.sync().unwrap();
        log.trim();
        assert!(read(env, &path) == b"0123ab");
        assert!(env.reuse_log(&dir.join("none"), &path).is_err());
    });
}

#[test]
fn directories_list_files_only() {
    with_each(|env, dir| {
        assert!(env.list(dir).unwrap().is_empty());
        let deep = dir.join("x/y/z");
        env.create_dir(&deep).unwrap();
        env.create_dir(&deep).unwrap();
        for name in ["1", "2", "3"] {
            put(env, &dir.join(name), b"");
        }
        put(env, &deep.join("4"), b"");
        let mut names = env.list(dir).unwrap();
        names.sort();
        assert_eq!(names, ["1", "2", "3"]);
        assert_eq!(env.list(&deep).unwrap(), ["4"]);
        assert!(env.create_dir(&dir.join("1")).is_err(), "a file has that name");
        assert!(env.create_dir(&dir.join("1/below")).is_err(), "a file has that name");
    });
}

#[test]
fn renaming_replaces() {
    with_each(|env, dir| {
        let [a, b, c] = ["a", "b", "c"].map(|name| dir.join(name));
        put(env, &a, b"new");
        put(env, &b, b"old");
        let open = env.open(&b).unwrap();
        env.rename(&a, &b).unwrap();
        env.sync_dir(dir).unwrap();
        assert!(!env.exists(&a).unwrap());
        assert_eq!(read(env, &b), b"new");
        env.rename(&b, &b).unwrap();
        env.rename(&b, &c).unwrap();
        assert_eq!(env.list(dir).unwrap(), ["c"]);
        let mut old = [0; 3];
        open.read_exact_at(&mut old, 0).unwrap();
        assert_eq!(&old, b"old", "an open file outlives its name");
        env.create_dir(&dir.join("sub")).unwrap();
        let error = env.rename(&c, &dir.join("sub/c")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    });
}

#[test]
fn a_linked_file_has_two_names_and_stays_until_both_are_removed() {
    with_each(|env, dir| {
        let other = dir.join("sub");
        env.create_dir(&other).unwrap();
        let (a, b) = (dir.join("a"), other.join("b"));
        let mut file = env.create(&a).unwrap();
        file.append(b"one").unwrap();
        assert_eq!(env.name_count(&a).unwrap(), 1);
        assert!(env.link(&a, &b).unwrap());
        env.sync_dir(&other).unwrap();
        assert_eq!((env.name_count(&a).unwrap(), env.name_count(&b).unwrap()), (2, 2));
        assert_eq!(env.stamp(&a).unwrap(), env.stamp(&b).unwrap());
        file.append(b"two").unwrap();
        assert_eq!(read(env, &b), b"onetwo", "one file");
        assert_eq!(env.link(&a, &b).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(env.link(&a, &dir.join("c")).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(env.link(&dir.join("no"), &other.join("c")).unwrap_err().kind(), ErrorKind::NotFound);
        env.remove(&a).unwrap();
        assert_eq!((env.name_count(&b).unwrap(), read(env, &b)), (1, b"onetwo".to_vec()));
    });
}

#[test]
fn the_first_shared_lock_of_a_file_is_found_until_its_last_holder_ends() {
    with_each(|env, dir| {
        let (path, other) = (dir.join("a"), dir.join("b"));
        let first = |path: &Path| env.first_shared_lock(path).unwrap();
        assert_eq!(env.lock_shared(&path, 0).err().unwrap().kind(), ErrorKind::NotFound);
        assert_eq!(first(&path), None);
        put(env, &path, b"abc");
        put(env, &other, b"abc");
        assert_eq!(first(&path), None);
        let mut locks: Vec<_> = [700, 5, 1 << 40, 5].map(|at| env.lock_shared(&path, at).unwrap()).into();
        assert_eq!((first(&path), first(&other)), (Some(5), None));
        drop(locks.remove(1));
        assert_eq!(first(&path), Some(5));
        drop(locks.remove(2));
        assert_eq!(first(&path), Some(700));
        let zero = env.lock_shared(&path, 0).unwrap();
        drop(locks.remove(0));
        assert_eq!(first(&path), Some(0));
        // Reads, appends and other opens of the file change nothing.
        assert_eq!(read(env, &path), b"abc");
        env.sync_file(&path).unwrap();
        drop(zero);
        assert_eq!(first(&path), Some(1 << 40));
        env.remove(&path).unwrap();
        assert_eq!(first(&path), None);
        put(env, &path, b"another");
        drop(locks);
        assert_eq!(first(&path), None);
    });
}

#[test]
fn a_stamp_changes_with_the_content_and_with_the_file() {
    with_each(|env, dir| {
        let path = dir.join("a");
        let mut file = env.create(&path).unwrap();
        file.append(b"one").unwrap();
        file.sync().unwrap();
        let first = env.stamp(&path).unwrap().unwrap();
        assert_eq!((env.stamp(&path).unwrap(), first.len), (Some(first), 3));
        // The clock of a file system advances in steps: two changes within one have one time.
        let begun = std::time::Instant::now();
        let second = loop {
            file.truncate(0).unwrap();
            file.append(b"two").unwrap();
            match env.stamp(&path).unwrap().unwrap() {
                same if same == first => {
                    assert!(begun.elapsed() < Duration::from_secs(10), "the clock stands")
                }
                second => break second,
            }
        };
        assert_eq!(second.file, first.file);
        put(env, &dir.join("b"), b"two");
        env.rename(&dir.join("b"), &path).unwrap();
        assert_ne!(env.stamp(&path).unwrap().unwrap().file, first.file);
    });
}

#[test]
fn a_removed_file_can_be_read_and_its_name_used_anew() {
    with_each(|env, dir| {
        let path = dir.join("a");
        put(env, &path, b"old");
        let open = env.open(&path).unwrap();
        env.remove(&path).unwrap();
        put(env, &path, b"newer");
        let mut old = [0; 3];
        open.read_exact_at(&mut old, 0).unwrap();
        assert_eq!(&old, b"old");
        assert_eq!(read(env, &path), b"newer");
    });
}

#[test]
fn a_lock_is_held_once() {
    with_each(|env, dir| {
        let path = dir.join("LOCK");
        let lock = env.lock(&path).unwrap();
        for _ in 0..2 {
            let error = env.lock(&path).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Locked);
            assert!(error.to_string().contains("LOCK"), "{error}");
        }
        let other = env.lock(&dir.join("OTHER")).unwrap();
        drop(lock);
        let _again = env.lock(&path).unwrap();
        drop(other);
        assert_eq!(env.lock(&dir.join("no/LOCK")).err().unwrap().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn the_rest_of_the_world_answers() {
    with_each(|env, dir| {
        assert!(env.free_space(dir).unwrap() > 0);
        assert!(env.max_open_files() > 10);
        let start = env.monotonic();
        env.sleep(Duration::from_millis(2));
        assert!(env.monotonic() - start >= Duration::from_millis(2));
        let in_2023 = Time::from_micros(1_672_531_200_000_000);
        assert!(
            in_2023 < env.wall_clock()
                && env.wall_clock() < in_2023.saturating_add(Duration::from_secs(1 << 32))
        );
    });
}

#[test]
fn relative_paths_work() {
    let sim: Arc<dyn Env> = SimEnv::new(1);
    sim.create_dir(Path::new("db")).unwrap();
    put(&*sim, Path::new("./db//a"), b"x");
    assert_eq!(read(&*sim, &PathBuf::from("db/a")), b"x");
    assert_eq!(sim.list(Path::new("db/")).unwrap(), ["a"]);
    sim.sync_dir(Path::new("")).unwrap();
    RealEnv::new().sync_dir(Path::new("")).unwrap();
}

#[test]
fn space_is_set_aside_under_a_new_name_and_free_when_it_is_removed() {
    with_each(|env, dir| {
        let path = dir.join("aside");
        env.allocate(&path, 3 << 20).unwrap();
        assert_eq!(env.len(&path).unwrap(), 3 << 20);
        let error = env.allocate(&path, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        assert_eq!(env.len(&path).unwrap(), 3 << 20);
        env.remove(&path).unwrap();
        // More than any disk has: an error, and no file.
        let error = env.allocate(&path, 1 << 60).unwrap_err();
        assert!(error.to_string().contains("aside"), "{error}");
        if env.free_space(dir).unwrap() < 1 << 50 {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        }
        assert!(!env.exists(&path).unwrap());
    });
}
