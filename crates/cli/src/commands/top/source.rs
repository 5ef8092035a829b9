//! Where the metrics come from: a program, or a database.

use crate::args::DbArgs;
use crate::failure::{Failure, Result};
use crate::store::open_to_read;
use cairn::Database;
use std::time::Duration;

/// How long a program may take for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// An answer is not longer: a thousand empty keyspaces take 4.4 MiB.
const MAX_BYTES: u64 = 64 << 20;

/// A source of metrics.
pub enum Source {
    /// A program that answers at a URL.
    Url(String, ureq::Agent),
    /// A database, read beside the process that writes to it.
    Database(Box<Database>),
}

impl Source {
    /// `url` may lack `http://`.
    pub fn of_url(url: String) -> Result<Source> {
        let url = match url.split_once("://") {
            Some(("http", _)) => url,
            None => format!("http://{url}"),
            Some((scheme, _)) => {
                return Err(Failure::usage(format!("{url}: only http is understood, not {scheme}")));
            }
        };
        let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build();
        Ok(Source::Url(url, config.into()))
    }

    pub fn of_database(args: &DbArgs) -> Result<Source> {
        Ok(Source::Database(Box::new(open_to_read(args)?)))
    }

    /// What is shown.
    pub fn name(&self) -> String {
        match self {
            Source::Url(url, _) => url.clone(),
            Source::Database(db) => db.path().display().to_string(),
        }
    }

    /// Whether it is a database that is only read: what a process counts is then that of this one.
    pub fn is_database(&self) -> bool {
        matches!(self, Source::Database(_))
    }

    /// The present metrics.
    pub fn text(&mut self) -> Result<String> {
        match self {
            Source::Url(url, agent) => {
                let get = || {
                    let mut response = agent.get(&*url).call()?;
                    response.body_mut().with_config().limit(MAX_BYTES).read_to_string()
                };
                get().map_err(|error: ureq::Error| Failure::bad_input(format!("{url}: {error}")))
            }
            Source::Database(db) => {
                **db = db.refresh()?;
                Ok(db.metrics())
            }
        }
    }
}
