//! A connection that listens for notifications. This connection does not belong to the pool of the store, because the
//! pool's connections may go through a pooler in transaction mode, which passes no notifications on.

use super::connect::Connect;
use crate::layout::SchemaName;
use core::future::poll_fn;
use core::pin::pin;
use core::time::Duration;
use futures_util::future::select;
use tokio::time::sleep;
use tokio_postgres::AsyncMessage;

/// The pause before the next attempt to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// Listens for the notifications of a deployment until `ring` returns `false`. The channel has the name of the schema.
/// Calls `ring` for each notification, before each attempt to connect, and after each new connection. Replaces a lost
/// connection.
pub(crate) async fn listen(connect: Connect, schema: &SchemaName, ring: impl Fn() -> bool) {
    let listen = format!("LISTEN {}", schema.quoted());
    while ring() {
        let Ok((client, mut connection)) = connect.dial().await else {
            sleep(PAUSE).await;
            continue;
        };
        let listening = async {
            let listens = client.batch_execute(&listen).await.is_ok();
            if listens && ring() {
                // The client must stay alive, because the connection ends when the client is dropped.
                core::future::pending::<()>().await;
            }
        };
        let hearing = async {
            loop {
                match poll_fn(|context| connection.poll_message(context)).await {
                    Some(Ok(AsyncMessage::Notification(_))) if !ring() => return,
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                }
            }
        };
        // If one of the two futures ends, the other is dropped, and the connection is closed.
        let _ended = select(pin!(listening), pin!(hearing)).await;
        sleep(PAUSE).await;
    }
}
