//! A server that sends back the data of each stream, and a client that compares them.

use crate::peers::BoxError;
use quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream};
use std::io;

/// Serves one connection until it ends. Returns the reason of the end.
pub(crate) async fn serve_one(server: Endpoint) -> Result<ConnectionError, BoxError> {
    let incoming = server.accept().await.ok_or_else(|| io::Error::other("the endpoint was closed"))?;
    let connection = incoming.await?;
    loop {
        match connection.accept_bi().await {
            Ok((answer, request)) => {
                tokio::spawn(async move {
                    if let Err(error) = send_back(request, answer).await {
                        eprintln!("server: {error}");
                    }
                });
            }
            Err(end) => return Ok(end),
        }
    }
}

async fn send_back(mut request: RecvStream, mut answer: SendStream) -> Result<(), BoxError> {
    while let Some(chunk) = request.read_chunk(usize::MAX, true).await? {
        answer.write_chunk(chunk.bytes).await?;
    }
    answer.finish()?;
    Ok(())
}

/// Sends `data` in a stream, and reads until the server ends the stream. Returns the data that were read.
pub(crate) async fn echo(connection: &Connection, data: &[u8]) -> Result<Vec<u8>, BoxError> {
    let (mut request, mut answer) = connection.open_bi().await?;
    let sending = async {
        request.write_all(data).await?;
        request.finish()?;
        Ok(())
    };
    let reading = async { answer.read_to_end(data.len() + 1).await.map_err(BoxError::from) };
    let ((), received) = tokio::try_join!(sending, reading)?;
    Ok(received)
}

/// Returns `count` bytes in which no part looks like another part.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}
