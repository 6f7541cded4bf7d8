//! File systems in one file, used as a library.
