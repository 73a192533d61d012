//! The image proper: entry, panic handler, and a driver over static memory.
#![expect(
    unsafe_code,
    reason = "the entry of a freestanding image is called from assembly"
)]

core::arch::global_asm!(include_str!("start.s"), options(att_syntax));

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Called by the assembly with a stack and nothing else.
// SAFETY: no other symbol of the image has this name.
#[unsafe(no_mangle)]
extern "C" fn image_main() {}
