//! Renames keyspaces and changes their options. Each is one edit of the manifest, independent of the size of the keyspace: logs and tables know
//! keyspaces by their numbers. (Tables and hint files also have the name under which they were written, for salvage without a manifest.)

use super::keyspaces::missing;
use crate::events;
use crate::state::{DbInner, KeyspaceInner, Settings, check_name};
use crate::types::KeyspaceOptions;
use base::planted::{Bug, planted};
use base::{Error, Result};
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
        let settings = Settings { name: new.to_owned(), options: keyspace.options() };
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
        let changed = before.options.changed(&options);
        if let Some((name, has, wanted)) = changed.iter().find(|(name, ..)| KeyspaceOptions::is_fixed(name)) {
            return Err(Error::invalid(format!(
                "keyspace {:?}: its option {name} is {has} and cannot be changed to {wanted}: copy the entries to a new keyspace",
                before.name
            )));
        }
        if !changed.is_empty() {
            let settings = Settings { name: before.name.clone(), options };
            self.change_settings(&mut manifest, keyspace, settings)?;
            let changes: Vec<String> = changed.iter().map(|(name, _, now)| format!("{name}={now}")).collect();
            events::info!(keyspace = keyspace.name(), changes = changes.join(" "), "keyspace altered");
        }
        Ok(true)
    }

    /// Gives a keyspace other settings, and the one with its older versions those that follow from them.
    fn change_settings(
        &self,
        manifest: &mut Manifest,
        keyspace: &KeyspaceInner,
        settings: Settings,
    ) -> Result<()> {
        let of_historical = |historical: &Arc<KeyspaceInner>| {
            (historical.clone(), Settings { options: settings.options.historical(), ..settings.clone() })
        };
        let historical = keyspace.historical().map(of_historical);
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
