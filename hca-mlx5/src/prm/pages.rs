//! The page protocol: QUERY_PAGES, MANAGE_PAGES, and the page request event.
//!
//! PRM chapter "Memory"; Linux `mlx5_ifc_manage_pages_in_bits`.

use super::layout;

layout! {
    /// QUERY_PAGES output.
    QueryPagesOut, 16;
    0x08[31] embedded_cpu_function, set_embedded_cpu_function: bool;
    0x08[15:0] function_id, set_function_id: u16;
    /// Two's complement: a negative number offers pages back.
    0x0c(32) num_pages, set_num_pages: u32;
}

layout! {
    /// MANAGE_PAGES input; the list of 64-bit page addresses follows.
    ManagePagesIn, 16;
    0x08[31] embedded_cpu_function, set_embedded_cpu_function: bool;
    0x08[15:0] function_id, set_function_id: u16;
    0x0c(32) input_num_entries, set_input_num_entries: u32;
}

layout! {
    /// MANAGE_PAGES output; for op_mod take, the list of 64-bit page addresses follows.
    ManagePagesOut, 16;
    0x08(32) output_num_entries, set_output_num_entries: u32;
}

/// `op_mod` of QUERY_PAGES: which need is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Need {
    /// Before the capabilities can be read.
    Boot = 1,
    /// Before INIT_HCA; depends on the capabilities set.
    Init = 2,
    /// While running.
    Regular = 3,
}

/// `op_mod` of MANAGE_PAGES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum PageOp {
    /// Tells the firmware that what it asked for cannot be given.
    CannotGive = 0,
    /// Gives pages.
    Give = 1,
    /// Takes pages back.
    Take = 2,
}

bitfield::bitfield! {
    /// First data word of a page request event.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct PageRequestWord(pub u32);
    impl Debug;
    /// The request concerns the embedded CPU's function.
    pub embedded_cpu, set_embedded_cpu: 31;
    /// All pages of the function are free; none needs to be taken by command.
    pub release_all, set_release_all: 30;
    /// The function.
    pub u16, function_id, set_function_id: 15, 0;
}
