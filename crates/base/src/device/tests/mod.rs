//! Every device against one model, and each by itself.

mod fault;
mod file;
mod mem;
mod model;
mod overlay;
mod patient;
mod record;
mod view;
