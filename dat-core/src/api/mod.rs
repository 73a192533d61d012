//! The calls of DAT: a folder for each kind of object, a file for each manual page.

pub(crate) mod cno;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod cr;
pub(crate) mod csp;
pub(crate) mod ep;
pub(crate) mod evd;
pub(crate) mod ia;
pub(crate) mod lmr;
pub(crate) mod post;
pub(crate) mod private_data;
pub(crate) mod psp;
pub(crate) mod pz;
pub(crate) mod registry;
pub(crate) mod rmr;
pub(crate) mod rsp;
pub(crate) mod srq;
