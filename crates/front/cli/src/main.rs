//! The `arbor` command.
#![forbid(unsafe_code)]

/// A cache is buffers of many lengths that come and go for as long as the mount is there. How it is
/// set up stands in `.cargo/config.toml`, why in `docs/decisions/0008`.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    arbor_cli::main(std::env::args_os())
}
