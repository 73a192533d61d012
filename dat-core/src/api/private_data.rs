//! Extension: values of the program as private data of connection messages.

use crate::api::cr::accept::MAX_ACCEPT_PRIVATE;
use crate::api::cr::reject::MAX_REJECT_PRIVATE;
use crate::engine::establish::MAX_CONNECT_PRIVATE;

/// A value that travels in `LEN` bytes of private data.
///
/// Each message has room for another number of bytes. A value that is too long for the message it
/// is meant for is refused when the program is built. The format is the program's own: both
/// methods are usually a few calls of `to_be_bytes`, or of a crate like `zerocopy`.
///
/// ```
/// use dat_core::PrivateData;
///
/// #[derive(Debug, PartialEq)]
/// struct Hello {
///     version: u16,
///     depth: u16,
/// }
///
/// impl PrivateData<4> for Hello {
///     fn to_bytes(&self) -> [u8; 4] {
///         let ([a, b], [c, d]) = (self.version.to_be_bytes(), self.depth.to_be_bytes());
///         [a, b, c, d]
///     }
///
///     fn from_bytes(&[a, b, c, d]: &[u8; 4]) -> Option<Self> {
///         let version = u16::from_be_bytes([a, b]);
///         (version == 1).then_some(Self { version, depth: u16::from_be_bytes([c, d]) })
///     }
/// }
///
/// let hello = Hello { version: 1, depth: 16 };
/// // `ep_connect(..., &hello.for_connect(), ...)` sends it; the peer gets a padded field.
/// let mut field = [0; 56];
/// field[..4].copy_from_slice(&hello.for_connect());
/// assert_eq!(Hello::from_private_data(&field), Some(hello));
/// assert_eq!(Hello::from_private_data(&[0; 56]), None); // another version
/// assert_eq!(Hello::from_private_data(&[]), None);
/// ```
///
/// A REQ has no room for 57 bytes:
///
/// ```compile_fail,E0080
/// # use dat_core::PrivateData;
/// struct Long;
/// impl PrivateData<57> for Long {
///     fn to_bytes(&self) -> [u8; 57] {
///         [0; 57]
///     }
///     fn from_bytes(_: &[u8; 57]) -> Option<Self> {
///         Some(Self)
///     }
/// }
/// let _ = Long.for_accept();
/// let _ = Long.for_connect();
/// ```
pub trait PrivateData<const LEN: usize>: Sized {
    /// Encodes the value.
    fn to_bytes(&self) -> [u8; LEN];

    /// Decodes a value; `None` if the bytes are none. They come from a peer: nothing about them is
    /// certain.
    fn from_bytes(bytes: &[u8; LEN]) -> Option<Self>;

    /// The private data of [`Ia::ep_connect`](crate::Ia::ep_connect): a REQ has 56 bytes for it.
    #[must_use]
    fn for_connect(&self) -> [u8; LEN] {
        const { assert!(LEN <= MAX_CONNECT_PRIVATE, "longer than the private data of a REQ") };
        self.to_bytes()
    }

    /// The private data of [`Ia::cr_accept`](crate::Ia::cr_accept): a REP has 196 bytes for it.
    #[must_use]
    fn for_accept(&self) -> [u8; LEN] {
        const { assert!(LEN <= MAX_ACCEPT_PRIVATE, "longer than the private data of a REP") };
        self.to_bytes()
    }

    /// The private data of [`Ia::cr_reject`](crate::Ia::cr_reject): a REJ has 148 bytes for it.
    #[must_use]
    fn for_reject(&self) -> [u8; LEN] {
        const { assert!(LEN <= MAX_REJECT_PRIVATE, "longer than the private data of a REJ") };
        self.to_bytes()
    }

    /// Decodes the value at the start of the field of a message, which is padded with zeros:
    /// [`CrParam::private_data`](crate::CrParam::private_data) or
    /// [`Ia::ep_private_data`](crate::Ia::ep_private_data).
    #[must_use]
    fn from_private_data(field: &[u8]) -> Option<Self> {
        Self::from_bytes(field.first_chunk()?)
    }
}
