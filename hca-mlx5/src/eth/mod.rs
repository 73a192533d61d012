//! Raw Ethernet.
