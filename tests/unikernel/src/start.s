# The entry: a stack, and the image.
    .section .text.start, "ax"
    .globl _start
_start:
    lea stack_top(%rip), %rsp
    xor %ebp, %ebp
    call image_main
1:  hlt
    jmp 1b

    .section .bss.stack, "aw", @nobits
    .balign 16
    .space 262144
stack_top:
