//! The grid of every state and event, and random sequences against a model.
