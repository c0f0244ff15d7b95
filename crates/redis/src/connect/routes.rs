//! The ways to the servers.

use super::cluster::Cluster;
use super::dial::Dial;
use super::keeper::Keeper;
use super::route::Route;
use super::settings::Servers;
use super::slots::{Address, Slots};
use super::witness::Witness;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use std::sync::Arc;

/// The ways to the servers.
pub(crate) enum Routes {
    /// To one server, or to the primary that Sentinel names.
    Server(Keeper),
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
            Servers::Single(_) | Servers::Sentinel { .. } => Self::Server(Keeper::start(dial)),
            Servers::Cluster(_) => Self::Cluster(Cluster::start(dial)),
        }
    }

    /// A connection to a place, once there is one; `None` if the runtime ends, or if a server that a redirection names
    /// has no connection in time.
    pub(crate) async fn to(&self, place: &Place<'_>) -> Option<Route> {
        match (self, place) {
            (Self::Server(keeper), _) => {
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
            Self::Server(_) => None,
            Self::Cluster(cluster) => cluster.slots().await,
        }
    }

    /// The witnesses of all servers to which there are connections.
    pub(crate) fn witnesses(&self) -> Vec<Arc<Witness>> {
        match self {
            Self::Server(keeper) => {
                keeper.state().connection.into_iter().filter_map(|wire| wire.witness).collect()
            }
            Self::Cluster(cluster) => cluster.witnesses(),
        }
    }

    /// Why there is no connection to a place, if that is known.
    pub(crate) fn trouble(&self, place: &Place<'_>) -> Option<RedisError> {
        match (self, place) {
            (Self::Server(keeper), _) => keeper.state().trouble,
            (Self::Cluster(cluster), Place::Key(key)) => cluster.trouble(*key),
            (Self::Cluster(cluster), Place::Address(_)) => cluster.trouble(None),
        }
    }
}

fn is_moved(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::Moved)
}
