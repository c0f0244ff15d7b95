//! A deployment that this process has open. Runs scripts on the deployment, estimates the server's time, and detects
//! lost data.

mod call;
mod confirmations;
mod gather;
mod handle;
mod losses;
mod marks;
mod parkings;
mod promise;
mod time;
mod topology;

pub(crate) use call::{Answered, run};
pub(crate) use gather::join_or_fail;
pub(crate) use handle::Deployment;
pub(crate) use marks::{Marks, REMEDY, listed, marks_of};
pub(crate) use promise::{Witnesses, kept};
pub(crate) use time::{millis, time_text};
pub(crate) use topology::Topology;
