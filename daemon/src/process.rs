//! To be replaced by the module's own header.
