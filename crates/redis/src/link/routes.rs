//! The ways to the servers.

use super::cluster::Cluster;
use super::dial::Dial;
use super::keeper::{Keeper, Task};
use super::roles::Roles;
use super::route::Route;
use super::sentinel::follow;
use super::settings::Servers;
use super::slots::{Address, Slots};
use super::witness::Witness;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::sync::Arc;

/// The ways to the servers.
pub(crate) enum Routes {
    /// To one server, or to the primary that Sentinel names. The tasks listen to the Sentinels.
    Server {
        keeper: Keeper,
        roles: Arc<Roles>,
        _followers: Vec<Task>,
    },
    Cluster(Cluster),
}

/// Where a call goes in a cluster. Without a cluster, all calls go to one server.
#[derive(Clone, Debug)]
pub(crate) enum Place<'a> {
    /// The primary that has this key, or any primary.
    Key(Option<&'a [u8]>),
    /// The server at this address.
    Address(Address),
}

impl Routes {
    /// Starts to connect, on the runtime of the caller.
    pub(crate) fn start(dial: Arc<Dial>) -> Self {
        match dial.servers() {
            Servers::Single(_) => {
                let roles = Arc::clone(dial.roles());
                Self::Server { keeper: Keeper::start(dial), roles, _followers: Vec::new() }
            }
            Servers::Sentinel { sentinels, service, .. } => {
                let (keeper, roles) = (Keeper::start(Arc::clone(&dial)), Arc::clone(dial.roles()));
                let followers = (0..sentinels.len()).map(|place| {
                    let (dial, roles, keeper) = (Arc::clone(&dial), Arc::clone(&roles), keeper.clone());
                    Task::of(&tokio::spawn(follow(dial, place, service.clone(), roles, keeper)))
                });
                let _followers = followers.collect();
                Self::Server { keeper, roles, _followers }
            }
            Servers::Cluster(_) => Self::Cluster(Cluster::start(dial)),
        }
    }

    /// A connection to a place, once there is one; `None` if the runtime ends, or if a server that a redirection names
    /// has no connection in time.
    pub(crate) async fn to(&self, place: &Place<'_>) -> Option<Route> {
        match (self, place) {
            (Self::Server { keeper, roles, .. }, _) => {
                roles.settled().await;
                let mut keeper = keeper.clone();
                let (attempt, connection) = keeper.connection().await?;
                Some(Route { keeper, attempt, connection, address: None })
            }
            (Self::Cluster(cluster), Place::Key(key)) => cluster.to(*key).await,
            (Self::Cluster(cluster), Place::Address(address)) => cluster.to_address(address).await,
        }
    }

    /// Asks for a look after a call on this route failed or had no reply, since the key may have another primary now.
    /// After `MOVED`, changes the map as well. Without a cluster, does nothing.
    pub(crate) fn learn(&self, error: Option<&RedisError>, route: &Route) {
        let Self::Cluster(cluster) = self else { return };
        let moved = error.filter(|error| is_moved(error));
        match moved.and_then(|error| Some((route.redirection(error)?, error.redirect_node()?.1))) {
            Some((owner, slot)) => cluster.moved(slot.into(), &owner),
            None => cluster.look_again(),
        }
    }

    /// Which primary of a cluster has which slot, once that is known; `None` without a cluster.
    pub(crate) async fn slots(&self) -> Option<Arc<Slots>> {
        match self {
            Self::Server { .. } => None,
            Self::Cluster(cluster) => cluster.slots().await,
        }
    }

    /// The primary of a cluster that has the key, if there is a connection to it; `None` without a cluster.
    pub(crate) fn connected_owner(&self, key: &[u8]) -> Option<Address> {
        match self {
            Self::Server { .. } => None,
            Self::Cluster(cluster) => cluster.connected_owner(key),
        }
    }

    /// The number of the attempt whose connection is in use, or that is under way; 0 in a cluster.
    pub(crate) fn attempt(&self) -> u64 {
        match self {
            Self::Server { keeper, .. } => keeper.state().attempt,
            Self::Cluster(_) => 0,
        }
    }

    /// The witnesses of all servers to which there are connections.
    pub(crate) fn witnesses(&self) -> Vec<Arc<Witness>> {
        match self {
            Self::Server { keeper, .. } => {
                keeper.state().connection.into_iter().filter_map(|wire| wire.witness).collect()
            }
            Self::Cluster(cluster) => cluster.witnesses(),
        }
    }

    /// Why there is no connection to a place, if that is known.
    pub(crate) fn trouble(&self, place: &Place<'_>) -> Option<RedisError> {
        match (self, place) {
            (Self::Server { keeper, .. }, _) => keeper.state().trouble,
            (Self::Cluster(cluster), Place::Key(key)) => cluster.trouble(*key),
            (Self::Cluster(cluster), Place::Address(_)) => cluster.trouble(None),
        }
    }
}

fn is_moved(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::Moved)
}
