//! The daemon's executable: arguments, logging, exit code, and the order of the start.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[path = "main/arguments.rs"]
mod arguments;
#[path = "main/descriptors.rs"]
mod descriptors;
#[path = "main/limited.rs"]
mod limited;
#[path = "main/logging.rs"]
mod logging;
#[path = "main/private.rs"]
mod private;
#[path = "main/start.rs"]
mod start;

use arguments::Arguments;
use private::Announcement;

/// For the shims, which are this executable too.
#[global_allocator]
static HEAP: procd_sys::scratch::Heap = procd_sys::scratch::Heap;

fn main() -> ExitCode {
    let given: Vec<_> = std::env::args_os().collect();
    // The guardian is this executable in another mode, before anything else.
    if let Some(code) = procd_sys::guardian::run_if_asked(&given) {
        return ExitCode::from(code);
    }
    procd_sys::signals::hold_hang_up();
    procd_sys::memory::share_heaps();
    procd_sys::files::survive_the_size_limit();
    let arguments = match Arguments::read(given) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let announcement = Announcement::new(arguments.ready_fd);
    match start::run(arguments, &announcement) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let sentence = logging::chain(error.as_ref());
            announcement.failed(&sentence);
            logging::say(&format!("procd: {sentence}"));
            ExitCode::FAILURE
        }
    }
}
