//! The deployments that nodes share in the tests.

use crate::rig::Rig;
use std::time::Duration;
use tourbillon_fault::{Postgres, Server};
use tourbillon_server::{PostgresSettings, RedisSettings, Settings, StorePlace};

/// The server of a deployment.
pub(super) enum Deployment {
    Redis(Server),
    Postgres(Postgres),
}

impl Deployment {
    /// Lets a service share this deployment.
    pub(super) fn share(&self, settings: &mut Settings) {
        let time = Duration::from_secs(2);
        match self {
            Self::Redis(server) => {
                let connect = tourbillon_redis::Connect::single(&server.url()).unwrap();
                let connect = connect.response_timeout(time).patience(time);
                settings.store = StorePlace::Redis(RedisSettings::new(connect, "d"));
            }
            Self::Postgres(server) => {
                let connect = tourbillon_postgres::Connect::to(&server.url()).unwrap();
                let connect = connect.response_timeout(time).patience(time);
                settings.store = StorePlace::Postgres(PostgresSettings::new(connect, "d"));
            }
        }
    }

    /// Starts a node of a service. The node has its own data folder.
    pub(super) async fn node(&self) -> Rig {
        Rig::start_with(|settings| {
            settings.lease = Duration::from_secs(3);
            self.share(settings);
        })
        .await
    }

    /// Returns the number of shards, the parts of the timers.
    pub(super) fn shards(&self) -> u64 {
        match self {
            Self::Redis(_) => 64,
            Self::Postgres(_) => 16,
        }
    }

    /// Makes the server give no answer.
    pub(super) fn take_away(&mut self) {
        match self {
            Self::Redis(server) => server.stop(),
            Self::Postgres(server) => server.stop(),
        }
    }

    /// Makes the server answer again, with all of its data.
    pub(super) fn bring_back(&mut self) {
        match self {
            Self::Redis(server) => server.go_on(),
            Self::Postgres(server) => server.run(),
        }
    }
}
