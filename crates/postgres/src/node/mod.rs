//! This process among the nodes that share a deployment.

mod mark;
mod open;
mod registry;
mod this_node;

pub(crate) use mark::Head;
pub(crate) use registry::nodes;
pub(crate) use this_node::{Node, VERSION};
