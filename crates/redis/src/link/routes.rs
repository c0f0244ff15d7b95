//! Chooses the connection for each call, with or without a cluster.

use super::cluster::Cluster;
use super::dial::Dial;
use super::reconnector::{Reconnector, Task};
use super::roles::Roles;
use super::route::Route;
use super::sentinel::follow;
use super::settings::Servers;
use super::slots::{Address, Slots};
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::sync::Arc;

/// Provides connections to the servers of the settings.
pub(crate) enum Routes {
    /// The only server, or the primary that the Sentinels name. For each Sentinel, `_followers` has a task that listens
    /// to the events of this Sentinel. Without Sentinels, `_followers` is empty.
    Server {
        reconnector: Reconnector,
        roles: Arc<Roles>,
        _followers: Vec<Task>,
    },
    Cluster(Cluster),
}

/// The server of a cluster to which a call goes. Without a cluster, every call goes to the only server.
#[derive(Clone, Debug)]
pub(crate) enum Place<'a> {
    /// The primary that has this key, or any primary for `None`.
    Key(Option<&'a [u8]>),
    /// The server at this address. A redirection (the error `ASK`) has named this server, or the call goes to each
    /// primary.
    Address(Address),
}

impl Routes {
    /// Starts to connect to the servers, on the caller's runtime.
    pub(crate) fn start(dial: Arc<Dial>) -> Self {
        match dial.servers() {
            Servers::Single(_) => {
                let roles = Arc::clone(dial.roles());
                Self::Server { reconnector: Reconnector::start(dial), roles, _followers: Vec::new() }
            }
            Servers::Sentinel { sentinels, service, .. } => {
                let (reconnector, roles) = (Reconnector::start(Arc::clone(&dial)), Arc::clone(dial.roles()));
                let followers = (0..sentinels.len()).map(|place| {
                    let (dial, roles, reconnector) =
                        (Arc::clone(&dial), Arc::clone(&roles), reconnector.clone());
                    Task::of(&tokio::spawn(follow(dial, place, service.clone(), roles, reconnector)))
                });
                let _followers = followers.collect();
                Self::Server { reconnector, roles, _followers }
            }
            Servers::Cluster(_) => Self::Cluster(Cluster::start(dial)),
        }
    }

    /// Waits for a connection to the server that `place` describes. Returns `None` if the runtime ends, or if the
    /// server at a [`Place::Address`] cannot be reached in time.
    pub(crate) async fn to(&self, place: &Place<'_>) -> Option<Route> {
        match (self, place) {
            (Self::Server { reconnector, roles, .. }, _) => {
                // The connection is taken after this wait, because a failover replaces the connection before it lets
                // calls go on.
                roles.settled().await;
                let mut reconnector = reconnector.clone();
                let (attempt, connection) = reconnector.connection().await?;
                Some(Route { reconnector, attempt, connection, address: None })
            }
            (Self::Cluster(cluster), Place::Key(key)) => cluster.to(*key).await,
            (Self::Cluster(cluster), Place::Address(address)) => cluster.to_address(address).await,
        }
    }

    /// After a failed call on this route, requests another read of the map of the slots, because the key may have moved
    /// to another primary. After the error `MOVED`, also changes the map at once. Does nothing without a cluster.
    pub(crate) fn learn(&self, error: Option<&RedisError>, route: &Route) {
        let Self::Cluster(cluster) = self else { return };
        // The error `ASK` names a server, too. But the slot still belongs to the old server, so `ASK` must not change
        // the map.
        let moved = error.filter(|error| is_moved(error));
        match moved.and_then(|error| Some((route.redirection(error)?, error.redirect_node()?.1))) {
            Some((owner, slot)) => cluster.moved(slot.into(), &owner),
            None => cluster.look_again(),
        }
    }

    /// Waits for the map of a cluster's slots. Returns `None` without a cluster or if the runtime ends.
    pub(crate) async fn slots(&self) -> Option<Arc<Slots>> {
        match self {
            Self::Server { .. } => None,
            Self::Cluster(cluster) => cluster.slots().await,
        }
    }

    /// Returns the address of the cluster's primary that has the key, or `None` without a connection to that primary or
    /// without a cluster.
    pub(crate) fn connected_owner(&self, key: &[u8]) -> Option<Address> {
        match self {
            Self::Server { .. } => None,
            Self::Cluster(cluster) => cluster.connected_owner(key),
        }
    }

    /// Returns the number of the attempt to connect that made the present connection. Without a connection, returns the
    /// number of the attempt that is under way. In a cluster, returns 0.
    pub(crate) fn attempt(&self) -> u64 {
        match self {
            Self::Server { reconnector, .. } => reconnector.state().attempt,
            Self::Cluster(_) => 0,
        }
    }

    /// Returns the reason why there is no connection to the server that `place` describes, or `None` if no attempt has
    /// failed.
    pub(crate) fn trouble(&self, place: &Place<'_>) -> Option<RedisError> {
        match (self, place) {
            (Self::Server { reconnector, .. }, _) => reconnector.state().trouble,
            (Self::Cluster(cluster), Place::Key(key)) => cluster.trouble(*key),
            (Self::Cluster(cluster), Place::Address(_)) => cluster.trouble(None),
        }
    }
}

fn is_moved(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::Moved)
}
