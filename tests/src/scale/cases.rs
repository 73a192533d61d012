//! The cases and their gates.

/// Every case, with the ratio of 10,000 objects to 1 that its instructions are allowed for now; 0
/// where the goal of `cargo xtask scale` is met.
pub const CASES: &[(&str, f64)] = &[];

/// Cases that make one thing a program does: its name, the nanoseconds that it shall take beside
/// 10,000 objects, the ratio as for a case, and its parts, on the host of one side.
pub const SUMS: &[(&str, f64, f64, &[&str])] = &[
    (
        "reconnect, active side",
        20_000.0,
        0.0,
        &[
            "ep_connect",
            "send_req",
            "rep",
            "established_event",
            "ep_disconnect",
            "send_dreq",
            "drep",
            "disconnected_event",
            "ep_reset",
        ],
    ),
    (
        "reconnect, passive side",
        20_000.0,
        0.0,
        &[
            "req",
            "request_event",
            "cr_accept",
            "send_rep",
            "rtu",
            "established_event",
            "dreq",
            "disconnected_event",
            "ep_reset",
        ],
    ),
    ("create and free", 10_000.0, 0.0, &["ep_create", "ep_free"]),
    ("idle advance, 16 listened", 1000.0, 0.0, &["idle_16"]),
    ("idle advance, 157 listened", 1000.0, 0.0, &["idle_157"]),
];
