//! Tests `tourbillond` as a process of its own, which is started, called, signalled and killed.
#![cfg(unix)]

mod acknowledged;
mod audit;
mod backup;
mod border;
mod check;
mod clients;
mod clock;
mod configuration;
mod demo;
mod disk;
mod exposure;
mod files;
mod half;
mod kill;
mod logs;
mod manager;
mod moves;
mod owner;
mod packaging;
mod pages;
mod places;
mod postgres;
mod process;
mod proxies;
mod receiver;
mod redis;
mod slow;
mod sqlite;
mod stays;
mod stop;
mod tls;
mod tokens;
mod workers;
