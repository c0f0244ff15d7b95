//! The Lua scripts that the servers run, their arguments and their answers.

mod scripts;
mod source;
mod values;
mod words;

pub(crate) use scripts::{BY_CALLER, BY_SERVER, Scripts};
pub(crate) use source::Script;
pub(crate) use values::{Values, bytes, damaged, decimal, filled, maybe_number, number};
pub(crate) use words::{Arguments, Words};
