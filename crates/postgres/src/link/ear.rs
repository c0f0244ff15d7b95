//! A connection that listens for notifications. It does not belong to the pool, since a pooler in transaction mode
//! would lose them.

use super::connect::Connect;
use core::future::poll_fn;
use core::pin::pin;
use core::time::Duration;
use futures_util::future::select;
use tokio::time::sleep;
use tokio_postgres::AsyncMessage;

/// The pause after a connection was lost.
const PAUSE: Duration = Duration::from_secs(1);

/// Listens to a deployment until `ring` returns `false`. The name of the schema is also that of the channel. Calls
/// `ring` for each notification, and after each new connection. A lost connection is replaced.
pub(crate) async fn listen(connect: Connect, schema: &str, ring: impl Fn() -> bool) {
    let listen = format!("LISTEN {schema}");
    while ring() {
        let Ok((client, mut connection)) = connect.dial().await else {
            sleep(PAUSE).await;
            continue;
        };
        let listening = async {
            let listens = client.batch_execute(&listen).await.is_ok();
            if listens && ring() {
                // The connection would end with its client.
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
        // The two end together with their connection.
        let _ended = select(pin!(listening), pin!(hearing)).await;
        sleep(PAUSE).await;
    }
}
