//! The Interface Adapter: dat_ia_*(3).

pub(crate) mod ha_related;
pub(crate) mod open_query;
pub(crate) mod query;
