//! Handmade histories, some without a valid order.

use super::operation::{ABSENT, Action, KeyIndex, Operation, Value};
use super::order::{Recovered, explain};
use cairn::Durability::{self, Buffered, Os, Sync};

type Pairs<'a> = &'a [(KeyIndex, Value)];

fn write(
    called: u64,
    returned: impl Into<Option<u64>>,
    sets: Pairs<'_>,
    durability: Durability,
) -> Operation {
    let action = Action::Write { seen: Vec::new(), sets: sets.to_vec(), durability };
    Operation { thread: called as usize, name: "write", called, returned: returned.into(), action }
}

fn put(called: u64, returned: impl Into<Option<u64>>, sets: Pairs<'_>) -> Operation {
    write(called, returned, sets, Os)
}

fn see(called: u64, returned: u64, seen: Pairs<'_>) -> Operation {
    let action = Action::Read(seen.to_vec());
    Operation { thread: called as usize, name: "see", called, returned: Some(returned), action }
}

fn holds(operations: &[Operation]) -> bool {
    explain(&[ABSENT, ABSENT].into(), operations, None).is_ok()
}

fn survives(operations: &[Operation], state: [Value; 2], survives: Durability) -> bool {
    let recovered = Recovered { state: state.into(), survives };
    explain(&[ABSENT, ABSENT].into(), operations, Some(&recovered)).is_ok()
}

#[test]
fn reads_see_the_newest_write_that_returned() {
    assert!(holds(&[put(1, 2, &[(0, 1)]), see(3, 4, &[(0, 1)])]));
    assert!(!holds(&[put(1, 2, &[(0, 1)]), see(3, 4, &[(0, ABSENT)])]), "a write is lost");
    assert!(!holds(&[see(1, 2, &[(0, 1)]), put(3, 4, &[(0, 1)])]), "a value from the future");
    assert!(!holds(&[see(1, 2, &[(0, 9)])]), "a value that was never written");
}

#[test]
fn a_write_that_also_reads_does_both_at_once() {
    let swap = |called, returned, seen: Pairs<'_>, sets: Pairs<'_>| {
        let action = Action::Write { seen: seen.to_vec(), sets: sets.to_vec(), durability: Os };
        Operation { thread: 0, name: "swap", called, returned: Some(returned), action }
    };
    let beside = |seen: Value| [put(1, 4, &[(0, 1)]), swap(2, 5, &[(0, seen)], &[(0, 2)])];
    let then = |seen: Value, last: Value| holds(&[&beside(seen)[..], &[see(6, 7, &[(0, last)])]].concat());
    assert!(then(ABSENT, 1) && then(1, 2));
    assert!(!then(ABSENT, 2), "the put came between its read and its write");
    assert!(!then(1, 1));
}

#[test]
fn during_a_write_both_answers_are_right_but_the_old_one_does_not_come_back() {
    let write = || put(1, 10, &[(0, 1)]);
    assert!(holds(&[write(), see(2, 3, &[(0, ABSENT)]), see(4, 5, &[(0, 1)])]));
    assert!(!holds(&[write(), see(2, 3, &[(0, 1)]), see(4, 5, &[(0, ABSENT)])]));
    // Two concurrent reads may be in either order.
    assert!(holds(&[write(), see(2, 5, &[(0, 1)]), see(3, 4, &[(0, ABSENT)])]));
}

#[test]
fn all_readers_agree_on_the_order_of_two_writes() {
    let writes = || vec![put(1, 20, &[(0, 1)]), put(2, 21, &[(0, 2)])];
    let mut one = writes();
    one.extend([see(3, 4, &[(0, 1)]), see(5, 6, &[(0, 2)]), see(22, 23, &[(0, 2)])]);
    assert!(holds(&one));
    let mut two = writes();
    two.extend([see(3, 4, &[(0, 1)]), see(5, 6, &[(0, 2)]), see(7, 8, &[(0, 1)])]);
    assert!(!holds(&two));
    let mut three = writes();
    three.extend([see(3, 4, &[(0, 1)]), see(5, 6, &[(0, 2)]), see(22, 23, &[(0, 1)])]);
    assert!(!holds(&three));
}

#[test]
fn a_deleted_key_is_absent_until_it_is_written_again() {
    let history = |seen| [put(1, 2, &[(0, 1)]), put(3, 4, &[(0, ABSENT)]), see(5, 6, &[(0, seen)])];
    assert!(holds(&history(ABSENT)));
    assert!(!holds(&history(1)));
}

#[test]
fn a_batch_is_seen_whole_or_not_at_all() {
    let batch = || put(1, 10, &[(0, 1), (1, 2)]);
    assert!(holds(&[batch(), see(2, 3, &[(0, ABSENT), (1, ABSENT)]), see(4, 5, &[(0, 1), (1, 2)])]));
    assert!(!holds(&[batch(), see(2, 3, &[(0, 1), (1, ABSENT)])]));
    // Each key alone is consistent.
    for index in 0..2 {
        let part: Vec<_> =
            [batch(), see(2, 3, &[(0, 1), (1, ABSENT)])].iter().filter_map(|o| o.at(index)).collect();
        assert!(holds(&part));
    }
}

/// Each key alone is linearizable, but no single order exists: this distinguishes snapshot isolation from weaker
/// guarantees.
#[test]
fn two_views_agree_on_the_order_of_writes_to_two_keys() {
    let writes = || vec![put(1, 20, &[(0, 1)]), put(2, 21, &[(1, 2)])];
    let mut agree = writes();
    agree.extend([see(3, 6, &[(0, 1), (1, ABSENT)]), see(4, 7, &[(0, 1), (1, 2)])]);
    assert!(holds(&agree));
    let mut differ = writes();
    differ.extend([see(3, 6, &[(0, 1), (1, ABSENT)]), see(4, 7, &[(0, ABSENT), (1, 2)])]);
    assert!(!holds(&differ));
}

#[test]
fn what_never_returned_may_have_happened_or_not_and_not_both() {
    let lost = || put(1, None, &[(0, 1)]);
    assert!(holds(&[lost(), see(2, 3, &[(0, ABSENT)])]));
    assert!(holds(&[lost(), see(2, 3, &[(0, ABSENT)]), see(4, 5, &[(0, 1)])]));
    assert!(!holds(&[lost(), see(2, 3, &[(0, 1)]), see(4, 5, &[(0, ABSENT)])]));
}

#[test]
fn recovery_yields_a_prefix_with_what_was_acknowledged() {
    let three = [put(1, 2, &[(0, 1)]), write(3, 4, &[(1, 2)], Sync), put(5, 6, &[(0, 3)])];
    for (state, power, kill) in [
        ([3, 2], true, true),
        ([1, 2], true, false),
        ([1, ABSENT], false, false),
        ([ABSENT, 2], false, false),
        ([3, ABSENT], false, false),
    ] {
        assert_eq!(survives(&three, state, Sync), power, "{state:?} after a power cut");
        assert_eq!(survives(&three, state, Os), kill, "{state:?} after a kill");
    }
    // A kill may lose a buffered write; a close must not.
    let buffered = [write(1, 2, &[(0, 1)], Buffered)];
    assert!(survives(&buffered, [ABSENT; 2], Os) && !survives(&buffered, [ABSENT; 2], Buffered));
}

#[test]
fn a_write_in_flight_may_be_recovered_whole() {
    let flight = [put(1, 2, &[(0, 1)]), write(3, None, &[(0, 2), (1, 3)], Sync)];
    assert!(survives(&flight, [1, ABSENT], Sync) && survives(&flight, [2, 3], Sync));
    assert!(!survives(&flight, [2, ABSENT], Sync) && !survives(&flight, [1, 3], Sync));
}

#[test]
fn a_sync_keeps_all_that_returned_before_it() {
    let synced = |sync: Operation| [put(1, 2, &[(0, 1)]), sync, put(5, 6, &[(0, 2)])];
    assert!(!survives(&synced(write(3, 4, &[], Sync)), [ABSENT; 2], Sync));
    assert!(survives(&synced(write(3, 4, &[], Sync)), [1, ABSENT], Sync));
    assert!(survives(&synced(write(3, None, &[], Sync)), [ABSENT; 2], Sync), "it never returned");
}

/// Without the memory of tried configurations, this would take as many steps as there are orders of twelve writes.
#[test]
fn many_at_once_are_no_trouble() {
    let mut operations: Vec<_> = (0..12).map(|i| put(i + 1, 100 + i, &[(0, i as Value + 1)])).collect();
    operations.push(see(200, 201, &[(0, 5)]));
    assert!(holds(&operations));
    operations.push(see(202, 203, &[(0, 6)]));
    assert!(!holds(&operations));
}

#[test]
fn a_finding_names_the_operation() {
    let operations = [put(1, 2, &[(0, 1)]), put(3, None, &[(1, 5)]), see(4, 6, &[(0, ABSENT)])];
    let words = explain(&[ABSENT; 2].into(), &operations, None).unwrap_err();
    assert!(words.contains("thread 4, 4 to 6: see sees 0=0"), "{words}");
    assert!(words.contains("[1, 0]") && words.contains("thread 3, 3 to ?: write (os) writes 1=5"), "{words}");
}
