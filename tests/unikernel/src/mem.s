# The functions that a hosted core expects of its C library.
# They are written here so that the images need none; `rep` keeps a compiler from turning them into calls to themselves.
    .section .text.mem, "ax"
    .globl memcpy
memcpy:
    mov %rdi, %rax
    mov %rdx, %rcx
    rep movsb
    ret

    .globl memmove
memmove:
    mov %rdi, %rax
    mov %rdx, %rcx
    mov %rdi, %r8
    sub %rsi, %r8
    cmp %rdx, %r8
    jb 1f
    rep movsb
    ret
1:  lea -1(%rdi,%rdx), %rdi
    lea -1(%rsi,%rdx), %rsi
    std
    rep movsb
    cld
    ret

    .globl memset
memset:
    mov %rdi, %r8
    mov %esi, %eax
    mov %rdx, %rcx
    rep stosb
    mov %r8, %rax
    ret

    .globl memcmp
    .globl bcmp
memcmp:
bcmp:
    xor %eax, %eax
    mov %rdx, %rcx
    test %rcx, %rcx
    jz 1f
    repe cmpsb
    je 1f
    movzbl -1(%rdi), %eax
    movzbl -1(%rsi), %ecx
    sub %ecx, %eax
1:  ret

    .globl strlen
strlen:
    mov %rdi, %rdx
    xor %eax, %eax
    mov $-1, %rcx
    repne scasb
    not %rcx
    lea -1(%rcx), %rax
    ret
