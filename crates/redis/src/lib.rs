#![doc = include_str!("../README.md")]

mod connect;
mod script;
