//! Receives the reports of deliveries, and writes each report to a file before it answers. The receiver listens at a
//! local socket, which no network fault cuts.

use super::moment;
use crate::history::Record;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The file to which the receiver, the process that records the run's deliveries, appends its records, one a line.
#[derive(Debug)]
pub struct Journal(Mutex<File>);

impl Journal {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be opened.
    pub fn open(file: &Path) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self(Mutex::new(File::options().create(true).append(true).open(file)?))))
    }

    /// Appends a record.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        let text = format!("{record}\n");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(text.as_bytes())
    }
}

/// Accepts records at `listener`, one a line. Writes each record to the journal before answering its sender. Never
/// returns.
pub fn receive(listener: &UnixListener, journal: &Arc<Journal>) {
    for stream in listener.incoming() {
        let (Ok(stream), journal) = (stream, Arc::clone(journal)) else { continue };
        // The thread ends with the connection.
        drop(thread::spawn(move || serve(&stream, &journal)));
    }
}

fn serve(stream: &UnixStream, journal: &Journal) -> io::Result<()> {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    while lines.read_line(&mut line)? > 0 {
        let mut record: Record = line.trim_end().parse().map_err(io::Error::other)?;
        if let Record::Delivered(delivery) = &mut record {
            delivery.arrived = moment();
        }
        journal.write(&record)?;
        (&mut &*stream).write_all(b"\n")?;
        line.clear();
    }
    Ok(())
}

/// A connection over which a node sends its records to the receiver, the process that writes them to a file.
#[derive(Debug)]
pub struct Post {
    to: PathBuf,
    open: Option<BufReader<UnixStream>>,
}

impl Post {
    /// Makes a connection to the receiver at `socket`. The first call of [`send`](Self::send) opens the connection.
    #[must_use]
    pub fn to(socket: impl Into<PathBuf>) -> Self {
        Self { to: socket.into(), open: None }
    }

    /// Sends a record to the receiver, again and again until the receiver answers.
    pub fn send(&mut self, record: &Record) {
        while self.try_send(record).is_err() {
            self.open = None;
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn try_send(&mut self, record: &Record) -> io::Result<()> {
        let connection = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(BufReader::new(UnixStream::connect(&self.to)?)),
        };
        connection.get_mut().write_all(format!("{record}\n").as_bytes())?;
        let mut answer = String::new();
        match connection.read_line(&mut answer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
