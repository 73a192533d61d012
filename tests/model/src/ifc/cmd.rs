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
    /// One entry of the command queue.
    cmd_entry[64] {
        transport: 8, reserved_at_8: 24,
        input_length: 32,
        input_mailbox: 64,
        input: 128,
        output: 128,
        output_mailbox: 64,
        output_length: 32,
        token: 8, signature: 8, reserved_at_1f0: 8, delivery_status: 7, ownership: 1,
    }
    /// One mailbox block.
    cmd_mailbox[576] {
        data: 4096,
        reserved_at_1000: 384,
        next: 64,
        block_number: 32,
        reserved_at_11e0: 8, token: 8, ctrl_signature: 8, signature: 8,
    }
}
