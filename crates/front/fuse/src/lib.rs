//! Mounts any Arboretum file system by FUSE.
