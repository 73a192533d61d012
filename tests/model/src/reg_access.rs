//! Registers reached by ACCESS_REG.
