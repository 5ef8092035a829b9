//! A bank: threads of the child move money between accounts by transactions. Its sum must never change, for the threads and after a kill.
//!
//! Two accounts out of three are in a keyspace with the options of the others, the rest is in one without order. Each teller counts its transfers, in the
//! same transaction: a transfer that was acknowledged is there after a kill.

use super::record::Record;
use super::script::durability;
use crate::finding::{Finding, Outcome, ensure, show};
use crate::random::{Rng, derive};
use cairn::{
    Database, Durability, Keyspace, KeyspaceOptions, Preset, Slice, Transaction, TransactionOptions,
};

/// The keyspaces of the bank.
pub const BANK: [&str; 2] = ["bank", "bank-hashed"];

/// The numbers of the threads that transfer.
pub const TELLERS: std::ops::Range<u32> = 10..12;

const ACCOUNTS: u64 = 12;
const MONEY: u64 = 1_000_000;

/// An open bank.
pub struct Bank([Keyspace; 2]);

fn account_key(account: u64) -> Vec<u8> {
    format!("account/{account:02}").into_bytes()
}

fn count_key(teller: u32) -> Vec<u8> {
    format!("transfers/{teller}").into_bytes()
}

fn number(value: Option<Slice>) -> Outcome<u64> {
    let Some(value) = value else { return Ok(0) };
    let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Finding::new(format!("{} is no number", show(&value))))
}

impl Bank {
    /// Opens the bank, and pays in at the first time.
    pub fn open(db: &Database, options: &KeyspaceOptions) -> Outcome<Bank> {
        let [plain, hashed] = BANK;
        let hash_log = KeyspaceOptions::preset(Preset::HashLog).memtable_bytes(32 << 10);
        let bank = Bank([db.keyspace(plain, options.clone())?, db.keyspace(hashed, hash_log)?]);
        db.transaction(|tx| {
            if tx.get(bank.of(0), account_key(0))?.is_none() {
                for account in 0..ACCOUNTS {
                    tx.put(bank.of(account), account_key(account), (MONEY / ACCOUNTS).to_string())?;
                }
                tx.put(bank.of(0), account_key(0), (MONEY / ACCOUNTS + MONEY % ACCOUNTS).to_string())?;
            }
            cairn::Result::Ok(())
        })?;
        Ok(bank)
    }

    fn of(&self, account: u64) -> &Keyspace {
        &self.0[usize::from(account % 3 == 2)]
    }

    fn sum(&self, tx: &Transaction) -> Outcome<u64> {
        let mut sum = 0;
        for account in 0..ACCOUNTS {
            sum += number(tx.get(self.of(account), account_key(account))?)?;
        }
        Ok(sum)
    }

    /// Transfers until the process is killed, and reports each transfer.
    pub fn transfer(&self, db: &Database, teller: u32) -> Outcome {
        let mut done = number(self.of(0).get(count_key(teller))?)?;
        let mut rng = Rng::new(derive(u64::from(teller), done));
        loop {
            done += 1;
            let durability = durability(teller % 4, done);
            let options = TransactionOptions::default().durability(durability).retries(u32::MAX);
            let (from, to, most) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS), rng.below(1_000));
            let audits = rng.chance(1, 16);
            db.transaction_with(&options, |tx| {
                let sum = if audits { self.sum(tx)? } else { MONEY };
                ensure!(sum == MONEY, "a transaction sees {sum} in all accounts");
                let has = number(tx.get(self.of(from), account_key(from))?)?;
                let amount = most.min(has);
                tx.put(self.of(from), account_key(from), (has - amount).to_string())?;
                let had = number(tx.get(self.of(to), account_key(to))?)?;
                tx.put(self.of(to), account_key(to), (had + amount).to_string())?;
                tx.put(self.of(0), count_key(teller), done.to_string())?;
                Outcome::Ok(())
            })?;
            let promised = durability != Durability::Buffered;
            let record = Record { thread: teller, promised, number: done };
            record.report().map_err(|e| Finding::new(format!("the parent does not listen: {e}")))?;
        }
    }

    /// Verifies the bank after a kill. Returns the number of transfers of each teller; `None` if the bank was not opened.
    pub fn verify(db: &Database) -> Outcome<Option<Vec<(u32, u64)>>> {
        if !BANK.iter().all(|name| db.keyspaces().iter().any(|other| other == name)) {
            return Ok(None);
        }
        let bank = Bank([db.open_keyspace(BANK[0])?, db.open_keyspace(BANK[1])?]);
        let sum = bank.sum(&db.begin_read_only())?;
        let of_tellers = TELLERS.map(|teller| Ok((teller, number(bank.of(0).get(count_key(teller))?)?)));
        let transfers = of_tellers.collect::<Outcome<Vec<_>>>()?;
        let is_new = sum == 0 && transfers.iter().all(|(_, count)| *count == 0);
        ensure!(sum == MONEY || is_new, "P2: the accounts of the bank have {sum}, not {MONEY}");
        Ok(Some(transfers))
    }
}
