//! The supervisor against a scripted runner: no process, a real state folder, a real log.

mod admission;
mod ends;
mod journal;
mod keys;
mod queue;
mod restore;
mod retention;
mod sessions;
mod world;
