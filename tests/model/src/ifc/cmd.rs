//! Frames every command shares, and the command queue's own entry and mailbox.

layouts! {
    /// Head of every command's input.
    head_in[16] {
        opcode: 16, uid: 16,
        reserved_at_20: 16, op_mod: 16,
        number: 32,
        word_c: 32,
    }
    /// Head of every command's output.
    head_out[16] {
        status: 8, reserved_at_8: 24,
        syndrome: 32,
        number: 32,
        word_c: 32,
    }
}
