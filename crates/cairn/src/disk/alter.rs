//! Renames keyspaces and changes their options. Each is one edit of the manifest, independent of the size of the keyspace: logs and tables know
//! keyspaces by their numbers. (Tables and hint files also have the name under which they were written, for salvage without a manifest.)

use super::keyspaces::missing;
use crate::events;
use crate::state::{AppliedRetention, DbInner, KeyspaceInner, Settings, check_name};
use crate::types::KeyspaceOptions;
use base::planted::{Bug, planted};
use base::{Error, Result, Time};
use history::Retention;
use std::sync::Arc;
use tree::{DatabaseEdit, Manifest};

impl DbInner {
    pub(crate) fn rename_keyspace(&self, name: &str, new: &str) -> Result<()> {
        check_name(new)?;
        let _call = self.begin_call()?;
        let mut manifest = self.manifest.lock();
        self.status.check_running()?;
        let keyspace = {
            let state = self.state.lock();
            let keyspace = state.by_name(name).ok_or_else(|| missing(name))?.inner.clone();
            if name == new {
                return Ok(());
            }
            state.check_free(new)?;
            keyspace
        };
        if let Some(name) = [name, new].into_iter().find(|name| self.filters.get(name).is_some()) {
            let what = "has a compaction filter, which goes by the name";
            return Err(Error::invalid(format!(
                "keyspace {name:?} {what}: rename it in a database that is opened without the filter"
            )));
        }
        let settings = Settings { name: new.to_owned(), ..(*keyspace.settings.load_full()).clone() };
        self.change_settings(&mut manifest, &keyspace, settings)?;
        events::info!(keyspace = name, new_name = new, "keyspace renamed");
        Ok(())
    }

    /// Changes the options of a keyspace that has the settings `before`. Returns whether it has: otherwise nothing was changed.
    pub(crate) fn alter_keyspace(
        &self,
        keyspace: &KeyspaceInner,
        before: &Arc<Settings>,
        options: KeyspaceOptions,
    ) -> Result<bool> {
        options.validate()?;
        options.check_together()?;
        let _call = self.begin_call()?;
        let mut manifest = self.manifest.lock();
        self.status.check_running()?;
        keyspace.check_open()?;
        if !Arc::ptr_eq(before, &keyspace.settings.load_full()) {
            return Ok(false);
        }
        if let Some((name, has, wanted)) = before.options.refused_change(&options) {
            return Err(Error::invalid(format!(
                "keyspace {:?}: its option {name} is {has} and cannot be changed to {wanted}: copy the entries to a new keyspace",
                before.name
            )));
        }
        let changed = before.options.changed(&options);
        if !changed.is_empty() {
            let kept_since = match before.options.history == options.history {
                true => before.kept_since,
                false => self.stop_retention(keyspace, before),
            };
            let retention = options.history;
            let settings = Settings { name: before.name.clone(), options, kept_since };
            let altered = self.change_settings(&mut manifest, keyspace, settings);
            if before.options.history != retention {
                // Writers refuse by now what jobs may remove from now on.
                let retention = if altered.is_ok() { retention } else { before.options.history };
                self.set_retention(keyspace, retention);
            }
            altered?;
            let changes: Vec<String> = changed.iter().map(|(name, _, now)| format!("{name}={now}")).collect();
            events::info!(keyspace = keyspace.name(), changes = changes.join(" "), "keyspace altered");
        }
        Ok(true)
    }

    /// Has a new keyspace with history refuse late writes from before this time.
    pub(crate) fn keep_since(&self, keyspace: &KeyspaceInner, kept_since: Time) -> Result<()> {
        let _call = self.begin_call()?;
        let mut manifest = self.manifest.lock();
        self.status.check_running()?;
        let settings = Settings { kept_since, ..(*keyspace.settings.load_full()).clone() };
        self.change_settings(&mut manifest, keyspace, settings)
    }

    /// Before a keyspace gets another retention: no job begins to remove versions of it until then. Returns the time from which on late writes are
    /// taken: those that the retention before would refuse now, by the clock and by what jobs have noted, stay refused.
    fn stop_retention(&self, keyspace: &KeyspaceInner, before: &Settings) -> Time {
        self.set_retention(keyspace, Retention::All);
        let age = before.options.history.age().filter(|_| !planted(Bug::ForgetEarlierRetention));
        let now = self.env.wall_clock().max(self.retention_time());
        let since = age.map(|age| now.saturating_sub(age));
        before.kept_since.max(since.unwrap_or(Time::MIN))
    }

    /// Sets the retention that jobs of a keyspace, and of the one with its older versions, apply.
    fn set_retention(&self, keyspace: &KeyspaceInner, retention: Retention) {
        let historical = keyspace.historical().map(|historical| &**historical);
        for keyspace in historical.into_iter().chain([keyspace]) {
            let mut applied = keyspace.retention.lock();
            // Readers that have begun have a number up to the newest visible one.
            *applied = AppliedRetention { retention, since: self.visible.newest() + 1 };
        }
    }

    /// Gives a keyspace other settings, and the one with its older versions those that follow from them.
    fn change_settings(
        &self,
        manifest: &mut Manifest,
        keyspace: &KeyspaceInner,
        settings: Settings,
    ) -> Result<()> {
        let historical = keyspace.historical().map(|historical| (historical.clone(), settings.historical()));
        let described =
            |(historical, settings): &(Arc<KeyspaceInner>, Settings)| historical.description_with(settings);
        let altered =
            [keyspace.description_with(&settings)].into_iter().chain(historical.as_ref().map(described));
        let mut edit = DatabaseEdit { altered: altered.collect(), ..Default::default() };
        if !planted(Bug::ForgetAlteration) {
            self.log_edit(manifest, &mut edit)?;
        }
        let mut state = self.state.lock();
        state.alter(&self.options, keyspace, settings);
        if let Some((historical, settings)) = historical {
            state.alter(&self.options, &historical, settings);
        }
        // Other compactions may be due now.
        self.signals.compact_work.notify_one();
        drop(state);
        self.renew_manifest(manifest);
        Ok(())
    }
}
