//! Reference model, operation generator and crash explorer for any engine.
