//! The supervisor against a scripted runner: no process, a real state folder, a real log.

mod admission;
mod ends;
mod restore;
mod sessions;
mod world;
