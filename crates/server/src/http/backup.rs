//! Answers requests for a backup. The service works on while it makes one.

use super::answer::{Answer, Refused};
use super::scope::{Admin, Everywhere};
use crate::audit::{Deed, End, PendingEntry};
use crate::service::Backup;
use crate::state::Stop;
use axum::body::{Body, Bytes};
use futures_util::stream;
use http::HeaderName;
use http::header::CONTENT_TYPE;
use std::io::{self, BufWriter};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tourbillon_api::{AuditAction, Problem, ProblemKind};

/// The size of a full piece of a backup, in bytes. A backup is sent piece by piece.
const PIECE: usize = 64 << 10;
/// The greatest number of a backup's pieces that wait until the client reads them.
const WAITING: usize = 4;

/// A writer that sends its bytes to the client of a backup. A write fails once the client has disconnected.
struct ToReader(mpsc::Sender<io::Result<Bytes>>);

impl io::Write for ToReader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a backup to the client piece by piece. Blocks the calling thread.
///
/// On an error, the connection is cut, so the client can tell that the copy is incomplete. The audit trail records the
/// backup as done once the client has taken the last piece.
fn write(backup: &Backup, sender: &mpsc::Sender<io::Result<Bytes>>, entry: PendingEntry, runtime: &Handle) {
    let to = BufWriter::with_capacity(PIECE, ToReader(sender.clone()));
    match backup.write(to) {
        // All places of the channel are free only once the client has taken the last piece.
        Ok(timers) if runtime.block_on(sender.reserve_many(WAITING)).is_ok() => {
            backup.succeeded();
            entry.end_blocking(End::done().count(timers));
        }
        Ok(_) => entry.end_blocking(End::failed("its reader has gone")),
        Err(error) => {
            entry.end_blocking(End::failed(error.to_string()));
            let _reader_may_have_gone = sender.blocking_send(Err(io::Error::other(error.to_string())));
        }
    }
}

/// A backup as a stream of pieces for the client. The stream ends early if the service stops.
struct Pieces {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    stop: Stop,
    has_ended: bool,
}

impl Pieces {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.has_ended {
            return None;
        }
        let piece = tokio::select! {
            biased;
            () = self.stop.begun() => Some(Err(io::Error::other("the service is stopping"))),
            piece = self.receiver.recv() => piece,
        };
        self.has_ended = !matches!(piece, Some(Ok(_)));
        piece
    }
}

/// Copies all timers, schedules and namespaces as of one moment, while the service works on.
///
/// The copy consists of lines of JSON. Its last line has the number of timers and the CRC-32 of all bytes before that
/// line: a copy without this line is incomplete. `tourbillond restore` verifies a copy and stores its contents. The
/// copy contains the bodies of callbacks and the signing secrets of the namespaces, so only administrators may make
/// one. It contains no tokens, no unfinished operations and no history.
#[utoipa::path(
    post, path = "/v1/backup", tag = "service",
    responses(
        (status = 200, description = "The copy.", body = String, content_type = "application/x-ndjson"),
        (status = 429, description = "As many backups are under way as there may be.", body = Problem),
    )
)]
pub(super) async fn back_up(
    Everywhere { service, .. }: Everywhere<Admin>,
) -> Answer<([(HeaderName, &'static str); 1], Body)> {
    let Some(backup) = service.begin_backup() else {
        let problem =
            Problem::new(ProblemKind::LimitReached, "as many backups are under way as there may be");
        return Err(Refused(problem.with_retry_after_ms(10_000)));
    };
    let entry = service.audit().begin(Deed::new(AuditAction::BackUp));
    let (sender, receiver) = mpsc::channel(WAITING);
    let runtime = Handle::current();
    drop(tokio::task::spawn_blocking(move || write(&backup, &sender, entry, &runtime)));
    let pieces = Pieces { receiver, stop: service.stop().clone(), has_ended: false };
    let pieces = stream::unfold(pieces, async |mut pieces| Some((pieces.next().await?, pieces)));
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(pieces)))
}
