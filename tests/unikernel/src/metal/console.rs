//! Lines of output, on the console of the machine.

/// Prints a line.
macro_rules! say {
    ($($words:tt)*) => {{
        use core::fmt::Write as _;
        // Cannot fail: `write_str` drops what the console does not take.
        let _ = writeln!($crate::machine::Console, $($words)*);
    }};
}
pub(crate) use say;
