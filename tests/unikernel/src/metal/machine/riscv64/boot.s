# From the reset vector to Rust, in machine mode: traps, floating point, stack.
#
# QEMU starts the image without firmware at the start of memory, with the number of the hart in a0 and the address of the
# device tree in a1, and clears what is not in the file. Addresses are physical; the machine knows which are registers.

    .section .text.start, "ax"
    .globl _start
_start:
    bnez a0, 2f                  # one hart runs the image
    la t0, trap
    csrw mtvec, t0
    csrw mie, zero
    li t0, 0x2000                # mstatus.FS: compiled code uses floating point registers
    csrs mstatus, t0
    la sp, stack_top
    mv a0, a1
    call metal_main
1:  wfi
    j 1b
2:  csrw mie, zero
    j 1b

    # Interrupts stay off, so what comes here is an error, which ends the image in words.
    .balign 4
trap:
    csrr a0, mcause
    csrr a1, mepc
    csrr a2, mtval
    la sp, exception_stack_top
    call metal_exception
3:  j 3b

    .section .bss.stack, "aw", @nobits
    .balign 16
    .space 1048576
stack_top:
    .space 16384
exception_stack_top:
