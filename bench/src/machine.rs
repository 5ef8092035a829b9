//! Describes the machine of a run, and measures the processor time of other processes.
//!
//! All data comes from kernel files (`/proc`, `/sys`) and from `uname`, `date` and `git`. Unavailable data is
//! `unknown` or missing; nothing here fails.

use crate::record::RunInfo;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Describes this machine, and the file system of `dir`.
pub fn describe(dir: &Path) -> RunInfo {
    let file_system = FileSystem::of(dir);
    let mut warnings = Vec::new();
    if file_system.as_ref().is_some_and(FileSystem::in_memory) {
        warnings.push(format!("{} is in memory: nothing reaches a disk", dir.display()));
    }
    if cfg!(debug_assertions) {
        warnings.push("the program was built with assertions: this is no release build".to_string());
    }
    RunInfo {
        started: output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
        cpu: cpu_model(),
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        memory_bytes: memory_bytes().unwrap_or(0),
        kernel: output("uname", &["-sr"]),
        file_system: file_system.map_or(UNKNOWN.to_string(), |found| found.to_string()),
        commit: commit(Path::new(env!("CARGO_MANIFEST_DIR"))),
        warnings,
        ..RunInfo::default()
    }
}

const UNKNOWN: &str = "unknown";

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The first line of a command's output.
fn output(program: &str, args: &[&str]) -> String {
    let run = Command::new(program).args(args).output().ok().filter(|run| run.status.success());
    let line = run.and_then(|run| String::from_utf8_lossy(&run.stdout).lines().next().map(str::to_string));
    line.unwrap_or(UNKNOWN.to_string())
}

/// The processor name: the first `model name` of `/proc/cpuinfo`.
fn cpu_model() -> String {
    let text = read("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_string());
    name.unwrap_or_else(|| output("uname", &["-m"]))
}

fn memory_bytes() -> Option<u64> {
    let text = read("/proc/meminfo")?;
    let kib: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    Some(kib * 1024)
}

/// The commit checked out in `dir`, and whether files differ from it.
fn commit(dir: &Path) -> String {
    let git = |args: &[&str]| {
        let run = Command::new("git").arg("-C").arg(dir).args(args).output().ok()?;
        run.status.success().then(|| String::from_utf8_lossy(&run.stdout).trim().to_string())
    };
    let Some(id) = git(&["rev-parse", "--short=12", "HEAD"]) else { return UNKNOWN.to_string() };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => id,
        _ => format!("{id} with changes"),
    }
}

/// A mounted file system.
struct FileSystem {
    kind: String,
    source: String,
    /// The device according to the kernel: its model, and whether it is a rotating disk.
    device: Option<String>,
}

impl FileSystem {
    /// The file system that contains `dir`, or would contain it.
    fn of(dir: &Path) -> Option<FileSystem> {
        let there = dir
            .ancestors()
            .find_map(|dir| fs::canonicalize(if dir == Path::new("") { Path::new(".") } else { dir }).ok())?;
        FileSystem::parse(&read("/proc/self/mountinfo")?, &there)
    }

    /// Parses lines of `mountinfo`: `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [FIELDS] - TYPE SOURCE OPTIONS`.
    fn parse(mounts: &str, dir: &Path) -> Option<FileSystem> {
        let mounted = |line: &str| {
            let (left, right) = line.split_once(" - ")?;
            let left: Vec<&str> = left.split(' ').collect();
            let mut right = right.split(' ');
            let point = PathBuf::from(left.get(4)?.replace("\\040", " "));
            let found = FileSystem {
                kind: right.next()?.to_string(),
                source: right.next()?.to_string(),
                device: device(left.get(2)?),
            };
            dir.starts_with(&point).then(|| (point.components().count(), found))
        };
        // Of several mounts on one point, the last one is visible.
        mounts.lines().filter_map(mounted).max_by_key(|(depth, _)| *depth).map(|(_, found)| found)
    }

    fn in_memory(&self) -> bool {
        matches!(self.kind.as_str(), "tmpfs" | "ramfs")
    }
}

impl std::fmt::Display for FileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.kind, self.source)?;
        self.device.as_ref().map_or(Ok(()), |device| write!(f, " ({device})"))
    }
}

/// The description of a block device in `/sys`, by `MAJOR:MINOR`.
fn device(number: &str) -> Option<String> {
    let dir = Path::new("/sys/dev/block").join(number);
    // For a partition, these files are in the directory of its disk.
    let file = |name: &str| read(dir.join(name)).or_else(|| read(dir.join("..").join(name)));
    let model = file("device/model").map(|model| model.trim().to_string()).filter(|model| !model.is_empty());
    // Disks of virtual machines have no model and claim to be rotating.
    match (model, file("queue/rotational")?.trim()) {
        (Some(model), "0") => Some(format!("{model}, solid state")),
        (Some(model), _) => Some(format!("{model}, rotating")),
        (None, "0") => Some("solid state".to_string()),
        (None, _) => None,
    }
}

/// Processor time of the machine since it was started, in ticks of 10 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    all: u64,
}

impl Ticks {
    fn now() -> Option<Ticks> {
        Ticks::parse(&read("/proc/stat")?)
    }

    /// Parses the first line of `/proc/stat`: `cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ...`. STEAL
    /// counts as busy, since other virtual machines used the time. The later fields are included in the first two.
    fn parse(text: &str) -> Option<Ticks> {
        let fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let all = ticks.iter().sum();
        Some(Ticks { busy: all - ticks.get(3)? - ticks.get(4)?, all })
    }

    /// The fraction of the time from `before` to `self` that was busy, minus the time of this process.
    fn others_since(self, before: Ticks, own: Duration) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let own_ticks = own.as_secs_f64() * 100.0;
        let busy = self.busy.saturating_sub(before.busy) as f64;
        Some(((busy - own_ticks) / all as f64).clamp(0.0, 1.0))
    }
}

/// Measures how busy the machine was with other processes.
///
/// Kernel threads that write back pages of this process or serve its disk count as others, so a process that writes
/// much sees a few per cent of other load on an idle machine.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    before: Option<Ticks>,
}

impl Busy {
    /// Starts a measurement.
    pub fn start() -> Busy {
        Busy { before: Ticks::now() }
    }

    /// The fraction of the machine's processor time, 0 to 1, that other processes used since the start, if this
    /// process used `own`. `None` if the kernel does not report it, or if less than a tick has passed.
    pub fn others(&self, own: Duration) -> Option<f64> {
        Ticks::now()?.others_since(self.before?, own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_holds_a_directory() {
        let mounts = "\
            22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            23 22 0:5 / /tmp rw - tmpfs tmpfs rw\n\
            24 22 0:6 / /data\\040disk rw - xfs /dev/sdb1 rw\n";
        let on = |dir: &str| {
            let found = FileSystem::parse(mounts, Path::new(dir)).unwrap();
            (format!("{} on {}", found.kind, found.source), found.in_memory())
        };
        assert_eq!(on("/home/x"), ("ext4 on /dev/vda".to_string(), false));
        assert_eq!(on("/tmp/x"), ("tmpfs on tmpfs".to_string(), true));
        assert_eq!(on("/tmpfile"), ("ext4 on /dev/vda".to_string(), false));
        assert_eq!(on("/data disk/db").0, "xfs on /dev/sdb1");
    }

    #[test]
    fn others_are_what_is_busy_but_not_ours() {
        let before = Ticks::parse("cpu  100 0 100 500 100 0 0 0 7 0\ncpu0 1\n").unwrap();
        assert_eq!(before, Ticks { busy: 200, all: 800 });
        let after = Ticks::parse("cpu  150 10 120 580 110 5 5 20 7 0\n").unwrap();
        assert_eq!(after, Ticks { busy: 310, all: 1000 });
        // 110 of 200 ticks were busy; 70 of these belong to this process.
        let others = after.others_since(before, Duration::from_millis(700)).unwrap();
        assert!((others - 0.2).abs() < 1e-9, "{others}");
        assert_eq!(after.others_since(before, Duration::from_secs(9)), Some(0.0));
        assert_eq!(before.others_since(before, Duration::ZERO), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_can_be_described() {
        let info = describe(Path::new("."));
        assert!(info.cpus > 0 && info.memory_bytes > 1 << 20, "{info:?}");
        for known in [&info.started, &info.cpu, &info.kernel, &info.file_system] {
            assert!(!known.is_empty() && known != UNKNOWN, "{info:?}");
        }
        let busy = Busy::start();
        std::thread::sleep(Duration::from_millis(60));
        assert!(busy.others(Duration::ZERO).is_some_and(|share| (0.0..=1.0).contains(&share)));
    }
}
