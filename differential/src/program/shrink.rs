//! Smaller programs that still do what a larger one did.
