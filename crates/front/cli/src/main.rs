//! The `arbor` command.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    arbor_cli::main(std::env::args_os())
}
