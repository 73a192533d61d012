//! Local identifiers.

/// What a LID may name (IBTA volume 1, 4.1.3; `IB_LID_*` of opensm's `ib_types.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 0: no LID.
    Reserved,
    /// 0x0001 to 0xbfff: one port.
    Unicast,
    /// 0xc000 to 0xfffe: a multicast group.
    Multicast,
    /// 0xffff: the port at the other end of the link.
    Permissive,
}

/// The permissive LID.
pub const PERMISSIVE: u16 = 0xffff;
/// The first multicast LID.
pub const FIRST_MULTICAST: u16 = 0xc000;

/// What `lid` may name.
#[must_use]
pub fn kind(lid: u16) -> Kind {
    match lid {
        0 => Kind::Reserved,
        PERMISSIVE => Kind::Permissive,
        FIRST_MULTICAST.. => Kind::Multicast,
        _ => Kind::Unicast,
    }
}
