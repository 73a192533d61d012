//! A stack of the application's own: firmware's may have no more than 128 KiB (UEFI 2.3.2), and the
//! opening of an adapter takes more.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::program::Failed;

/// Bytes of the stack.
pub(super) const LEN: usize = 1 << 20;

#[repr(C, align(4096))]
struct Stack(UnsafeCell<[u8; LEN]>);

// SAFETY: `run` hands it out once.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(UnsafeCell::new([0; LEN]));
static TAKEN: AtomicBool = AtomicBool::new(false);

type Body<'b> = &'b dyn Fn() -> Result<(), Failed>;

/// What runs on the stack, and its result.
struct Task<'b> {
    body: Body<'b>,
    done: Result<(), Failed>,
}

static TASK: AtomicPtr<Task<'static>> = AtomicPtr::new(core::ptr::null_mut());

/// Runs `body` on the stack; returns its result and the bytes of the stack that it used. `None` if
/// the stack is taken.
pub(super) fn run(body: Body<'_>) -> Option<(Result<(), Failed>, usize)> {
    if TAKEN.swap(true, Ordering::Relaxed) {
        return None;
    }
    let mut task = Task { body, done: Ok(()) };
    TASK.store((&raw mut task).cast(), Ordering::Relaxed);
    let top = STACK.0.get().expose_provenance() + LEN;
    // SAFETY: nothing else has this stack. `entered` returns, and the old stack is whole: nothing
    // used it meanwhile but firmware's interrupts, which use the current one.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        // 32 bytes for the callee, as this calling convention has it.
        asm!("mov r12, rsp", "lea rsp, [{top} - 32]", "call {entered}", "mov rsp, r12",
            top = in(reg) top, entered = sym entered, out("r12") _, clobber_abi("C"));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("mov x20, sp", "mov sp, {top}", "bl {entered}", "mov sp, x20",
            top = in(reg) top, entered = sym entered, out("x20") _, clobber_abi("C"));
    }
    let bottom = STACK.0.get().cast::<u8>();
    // SAFETY: inside the stack, which nobody uses any more.
    let unused = (0..LEN).take_while(|at| unsafe { bottom.add(*at).read_volatile() } == 0).count();
    Some((task.done, LEN - unused))
}

extern "C" fn entered() {
    // SAFETY: the task is on the stack of `run`, which waits for this function's end.
    let task = unsafe { TASK.load(Ordering::Relaxed).as_mut() };
    if let Some(task) = task {
        task.done = (task.body)();
    }
}
