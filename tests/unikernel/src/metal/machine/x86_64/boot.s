# From the loader's 32-bit protected mode to Rust in long mode, and the entries of interrupts.
#
# The loader finds the entry in a PVH note (name "Xen", type 18) and jumps there with paging off, flat segments and
# the physical address of its start information in EBX. What is loaded lies where it is linked, and .bss is clear.

    .section .note.Xen, "a", @note
    .balign 4
    .long 4                      # bytes of the name
    .long 8                      # bytes of the descriptor: a loader may read it as one 64-bit word
    .long 18                     # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad pvh_entry

    .section .text.start, "ax"
    .globl _start
_start:                          # only for tools that look for an entry; a loader uses the note
    .code32
pvh_entry:
    cli
    cld
    movl $stack_top, %esp
    movl %ebx, %esi

    # The first 4 GiB where they are, in pages of 2 MiB. Device registers among them are set uncached by the firmware's
    # MTRRs, and once more by the page tables when they are used.
    movl $first_pointers + 3, level4
    movl $level2 + 3, %eax
    movl $first_pointers, %edi
    movl $4, %ecx
1:  movl %eax, (%edi)
    addl $4096, %eax
    addl $8, %edi
    loop 1b
    movl $0x83, %eax             # present, writable, 2 MiB
    movl $level2, %edi
    movl $2048, %ecx
2:  movl %eax, (%edi)
    addl $0x200000, %eax
    addl $8, %edi
    loop 2b
    movl $level4, %eax
    movl %eax, %cr3

    # The place of the task state segment, in its descriptor.
    movl $task_state, %eax
    movw %ax, gdt + 26
    shrl $16, %eax
    movb %al, gdt + 28
    movb %ah, gdt + 31

    movl $0x620, %eax            # PAE, OSFXSR, OSXMMEXCPT: Rust's core uses SSE from its first line
    movl %eax, %cr4
    movl $0xc0000080, %ecx       # EFER.LME
    rdmsr
    orl $0x100, %eax
    wrmsr
    movl %cr0, %eax
    andl $~0x0c, %eax            # neither EM nor TS
    orl $0x80000022, %eax        # PG, NE, MP
    movl %eax, %cr0
    lgdt gdt_pointer
    ljmp $8, $long_mode

    .code64
long_mode:
    movl $16, %eax
    movl %eax, %ds
    movl %eax, %es
    movl %eax, %ss
    xorl %eax, %eax
    movl %eax, %fs
    movl %eax, %gs
    leaq stack_top(%rip), %rsp
    movl $24, %eax
    ltr %ax
    movl %esi, %edi
    xorl %ebp, %ebp
    call metal_main
3:  cli
    hlt
    jmp 3b

    # Exceptions: all end the image, in words. Those that push no error code get one.
    .altmacro
    .macro exception_entry number
exception_\number:
    .if \number == 8 || (\number >= 10 && \number <= 14) || \number == 17 || \number == 21 || \number == 29 || \number == 30
    .else
    pushq $0
    .endif
    pushq $\number
    jmp exception
    .endm
    .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    exception_entry \n
    .endr
exception:
    movq %rsp, %rdi
    andq $-16, %rsp
    cld
    call metal_exception
4:  cli
    hlt
    jmp 4b

    # Interrupts: count and acknowledge, nothing else. No Rust runs here, so nothing but RAX needs saving; and the gate
    # switches stacks, so the red zone below the interrupted code's stack pointer stays whole.
    .macro interrupt_entry number
interrupt_\number:
    lock incl ARRIVALS + 4 * \number(%rip)
    pushq %rax
    movl $0xfee000b0, %eax       # end of interrupt
    movl $0, (%rax)
    popq %rax
    iretq
    .endm
    .irp n,0,1,2,3
    interrupt_entry \n
    .endr
spurious:
    iretq

    .section .rodata.entries, "a"
    .balign 8
    .globl exception_entries
exception_entries:
    .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    .quad exception_\n
    .endr
    .globl interrupt_entries
interrupt_entries:
    .irp n,0,1,2,3
    .quad interrupt_\n
    .endr
    .quad spurious

    .section .data.gdt, "aw"
    .balign 8
gdt:
    .quad 0
    .quad 0x00af9b000000ffff     # 8: code, 64 bits
    .quad 0x00cf93000000ffff     # 16: data
    .quad 0x0000890000000067     # 24: task state; the address is put in at the start
    .quad 0
gdt_pointer:
    .word 39
    .long gdt
    .balign 8
task_state:                      # 104 bytes, of which one stack is used: the first of the interrupt stack table
    .space 36
    .quad interrupt_stack_top
    .space 58
    .word 104

    .section .bss.stack, "aw", @nobits
    .balign 4096
    .globl level4
level4:
    .space 4096
first_pointers:
    .space 4096
level2:
    .space 16384
    .space 16384
interrupt_stack_top:
    .space 1048576
stack_top:
