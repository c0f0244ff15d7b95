//! Restores a backup into PostgreSQL in one transaction, so the timers and namespaces of the backup exist together or
//! not at all.

use super::{RestoreError, Restored, file_error, is_empty, merge, refuse_beside_nodes, verified};
use crate::service::deployment::open_postgres;
use crate::settings::PostgresSettings;
use crate::state::{DEFAULT, NAMESPACES, StoredNamespaces};
use pollster::block_on;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use tourbillon_durable::UtcMillis;
use tourbillon_durable::backup::{BackupError, Restore};
use tourbillon_durable::store::{StoreError, StoreErrorKind, TimerStore as _};
use tourbillon_durable::timer::Timer;
use tourbillon_postgres::{PostgresStore, Restoration};

/// Begins the transaction of a restore. Fails if a timer was created in the schema after the restore found it empty.
fn begin(store: &PostgresStore) -> Result<Restoration, StoreError> {
    let message = "a timer was created while the backup was read; a restore needs an empty store";
    block_on(store.begin_restore())?.ok_or_else(|| StoreError::new(StoreErrorKind::Limit, message))
}

/// Restores a backup into a schema of PostgreSQL. Fails if the schema already has timers or running nodes. `how` gets
/// the present time of the store's clock. It returns the [`Restore`], which says when the restored timers become due.
/// After a failure, no timers and no namespaces of the backup are in the schema.
pub(crate) fn restore_in_postgres(
    postgres: &PostgresSettings,
    from: &Path,
    how: impl FnOnce(UtcMillis) -> Restore,
) -> Result<Restored, RestoreError> {
    let name: Box<str> = format!("the schema {}", postgres.schema).into();
    let of_backup = |error: BackupError| match error {
        BackupError::Store(_) => RestoreError::Deployment(name.clone(), error),
        error => RestoreError::Backup(from.to_owned(), error),
    };
    let of_store = |error: StoreError| RestoreError::Deployment(name.clone(), error.into());
    let (at, attached) = verified(from)?;
    let store = open_postgres(postgres, postgres.migrates).map_err(of_store)?;
    refuse_beside_nodes(&store, &name)?;
    // `begin` repeats this check under a lock. The check here refuses a used schema before the long check of the file.
    if !is_empty(&store).map_err(of_store)? {
        return Err(RestoreError::Deployment(name.clone(), BackupError::NotEmpty));
    }
    // The transaction begins with the first import. The file is checked before, for minutes perhaps, without an open
    // transaction.
    let (mut begun, mut used) = (None, BTreeSet::new());
    let import = |timers: Vec<Timer>| {
        used.extend(timers.iter().map(|timer| timer.namespace.clone()));
        if begun.is_none() {
            begun = Some(begin(&store)?);
        }
        // The fallback is never used, because `begun` is set above.
        begun.as_ref().map_or(Ok(()), |begun| block_on(begun.import(timers)))
    };
    let open = || File::open(from).map(BufReader::new);
    let timers = how(store.now()).read_into(open, import).map_err(of_backup)?;
    // `read_into` imports at least once, even if the backup has no timers, but this function does not rely on it.
    let begun = begun.map_or_else(|| begin(&store), Ok).map_err(of_store)?;
    // The namespaces are read within the transaction, whose lock keeps other writers away until the commit. After an
    // error, the drop of `begun` undoes the whole restore.
    let there = block_on(begun.document(NAMESPACES)).map_err(of_store)?;
    let of_notes = |error: serde_json::Error| file_error(Path::new(NAMESPACES))(io::Error::from(error));
    let there = there.map_or(Ok(StoredNamespaces::default()), |there| serde_json::from_slice(&there));
    let mut there = there.map_err(of_notes)?;
    there.namespaces.entry(DEFAULT.into()).or_default();
    let used = used.iter().map(|name| &**name).collect();
    let before = there.clone();
    there.begin(store.now().as_millis());
    let (kept, bare) = merge(&mut there, &attached, &used);
    there.note(&before);
    let value = serde_json::to_vec(&there).map_err(of_notes)?;
    block_on(begun.set_document(NAMESPACES, value)).map_err(of_store)?;
    block_on(begun.commit()).map_err(of_store)?;
    Ok(Restored { at, timers, kept, bare })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::backup::Attached;
    use crate::state::{Namespace, NamespaceStorage, Namespaces};
    use core::time::Duration;
    use std::sync::Arc;
    use tourbillon_durable::backup;
    use tourbillon_durable::store::MemoryStore;
    use tourbillon_fault::Postgres;
    use tourbillon_postgres::Connect;

    /// A suspended machine has a node of the deployment that was there before the restore. A start has made `default`.
    #[test]
    fn a_restore_in_postgres_counts_more_than_a_mere_start_and_the_copies_of_earlier_nodes() {
        let Some(server) = Postgres::start(&[]) else { return };
        let settings = PostgresSettings::new(Connect::to(&server.url()).unwrap(), "s");
        let store = Arc::new(open_postgres(&settings, true).unwrap());
        let open = || Namespaces::open(NamespaceStorage::Shared(Arc::clone(&store) as _)).unwrap();
        let limited = |most| {
            let mut limited = Namespace::default();
            limited.limits.max_timers = Some(most);
            limited
        };
        let stale = open();
        let former = [("default".into(), limited(1)), ("former".into(), limited(2))];
        stale.change(|stored| stored.namespaces.extend(former.clone())).unwrap();
        let _lost = server.sql("DELETE FROM s.document");
        open().make_document().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backup");
        let attached = Attached { namespaces: [("default".into(), limited(7))].into() };
        let file = File::create(&path).unwrap();
        backup::write_with(&MemoryStore::default(), &attached, file).unwrap();
        let restored = restore_in_postgres(&settings, &path, |_| Restore::default()).unwrap();
        assert!(restored.kept.is_empty(), "{restored:?}");
        block_on(stale.renew()).unwrap();
        for node in [stale, open()] {
            assert_eq!(node.get("default").unwrap().limits.max_timers, Some(7));
            assert!(node.get("former").is_none());
        }
    }
}
