//! The analysis library.
