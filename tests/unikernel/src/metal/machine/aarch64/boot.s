// From the loader to Rust: vectors, floating point, page tables, stack.
//
// QEMU starts the image at EL1 with caches and translation off, and clears what is not in the file. Device registers and
// memory are mapped where they are, in blocks of 1 GiB: the first GiB and everything from 256 GiB on is registers, which
// is how the machine `virt` is laid out; ordinary memory is between.

    .section .text.start, "ax"
    .globl _start
_start:
    msr daifset, #15
    mov x19, x0                  // the device tree, if the loader passes it on
    adrp x1, vectors
    add x1, x1, :lo12:vectors
    msr vbar_el1, x1
    mov x1, #(3 << 20)           // CPACR_EL1.FPEN: Rust's core uses SIMD registers
    msr cpacr_el1, x1
    isb
    adrp x1, level0
    msr ttbr0_el1, x1
    mov x1, #0xff04              // attribute 0: Device-nGnRE; 1: ordinary memory, write-back
    msr mair_el1, x1
    mrs x2, id_aa64mmfr0_el1
    and x2, x2, #15              // bits of a physical address; 52 need other tables
    mov x3, #5
    cmp x2, x3
    csel x2, x2, x3, lo
    ldr x1, =0x803510            // T0SZ: 48 bits; inner shareable, cached walks; no second half (EPD1)
    orr x1, x1, x2, lsl #32
    msr tcr_el1, x1
    tlbi vmalle1
    dsb sy
    isb
    mrs x1, sctlr_el1
    mov x2, #0x1005              // instruction cache, data cache, translation
    orr x1, x1, x2
    bic x1, x1, #(1 << 19)       // WXN: blocks are writable and executable
    msr sctlr_el1, x1
    isb
    adrp x1, stack_top
    mov sp, x1
    mov x29, xzr
    mov x30, xzr
    mov x0, x19
    bl metal_main
1:  wfi
    b 1b

    // Interrupts stay masked, so what comes here is an error, which ends the image in words.
    .section .text.vectors, "ax"
    .balign 2048
vectors:
    .rept 16
    .balign 128
    mrs x0, esr_el1
    mrs x1, elr_el1
    mrs x2, far_el1
    adrp x3, exception_stack_top
    mov sp, x3
    bl metal_exception
    b .
    .endr

    .section .data.tables, "aw"
    .balign 4096
level0:
    .quad low + 3
    .quad high + 3
    .space 4096 - 16
low:
    .set at, 0
    .rept 512
    .if at > 0 && at < 256
    .quad (at << 30) + 0x705             // attribute 1, inner shareable, accessed
    .else
    .quad (at << 30) + 0x401 + (3 << 53) // attribute 0, accessed, never executed
    .endif
    .set at, at + 1
    .endr
high:
    .rept 512
    .quad (at << 30) + 0x401 + (3 << 53)
    .set at, at + 1
    .endr

    .section .bss.stack, "aw", @nobits
    .balign 4096
    .space 1048576
stack_top:
    .space 16384
exception_stack_top:
