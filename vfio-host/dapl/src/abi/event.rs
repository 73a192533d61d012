//! `DAT_EVENT`: 120 bytes.

use core::ffi::c_void;

use dat_core::{AnyHandle, AsyncEvent, DtoEvent, Event, Extra, IbDtoEvent, IbOperation, LookUp};

use super::attr::count;
use super::pointer::{DatHandle, In};
use super::sockaddr::SockAddr;
use super::structs::DatIbAddrHandle;
use super::{Boolean, Count};

layouts! {
    /// A DTO completed.
    DtoData = "DAT_DTO_COMPLETION_EVENT_DATA" [32] {
        0 ep_handle: DatHandle,
        8 user_cookie: u64,
        16 status: u32,
        20 transfered_length: u32,
        24 operation: u32,
        28 rmr_context: u32,
    }

    /// A bind completed.
    RmrData = "DAT_RMR_BIND_COMPLETION_EVENT_DATA" [24] {
        0 rmr_handle: DatHandle,
        8 user_cookie: u64,
        16 status: u32,
    }

    /// A peer asks for a connection.
    CrArrivalData = "DAT_CR_ARRIVAL_EVENT_DATA" [40] {
        0 sp_handle: DatHandle,
        8 local_ia_address_ptr: *const SockAddr,
        16 conn_qual: u64,
        24 cr_handle: DatHandle,
        32 truncate_flag: Boolean,
    }

    /// A connection began or ended.
    ConnectionData = "DAT_CONNECTION_EVENT_DATA" [24] {
        0 ep_handle: DatHandle,
        8 private_data_size: Count,
        16 private_data: *const u8,
    }

    /// Something besides the streams.
    AsyncData = "DAT_ASYNCH_ERROR_EVENT_DATA" [16] {
        0 dat_handle: DatHandle,
        8 reason: Count,
    }

    /// An event that the consumer posted.
    SoftwareData = "DAT_SOFTWARE_EVENT_DATA" [8] {
        0 pointer: *mut c_void,
    }

    /// An event.
    DatEvent = "DAT_EVENT" [120] {
        0 event_number: u32,
        8 evd_handle: DatHandle,
        16 event_data: EventData,
        56 event_extension_data: IbExtension,
    }

    /// The contents of `event_extension_data`. The immediate is the only value.
    IbExtension = "DAT_IB_EXTENSION_EVENT_DATA" [64] {
        0 r#type: u32,
        4 status: u32,
        8 val: u32,
        16 remote_ah: DatIbAddrHandle,
        56 context: u64,
    }
}

/// The event of an ordinary completion: the beginning of a [`DatEvent`].
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct DtoHead {
    event_number: u32,
    evd_handle: DatHandle,
    dto: DtoData,
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(DtoHead, event_number) == offset_of!(DatEvent, event_number));
    assert!(offset_of!(DtoHead, evd_handle) == offset_of!(DatEvent, evd_handle));
    assert!(offset_of!(DtoHead, dto) == offset_of!(DatEvent, event_data));
};

/// `DAT_DTO_COMPLETION_EVENT`.
const DTO_COMPLETION: u32 = 0x00001;

/// `DAT_EVENT_DATA`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union EventData {
    /// By `DTO_COMPLETION` and `IB_DTO`.
    pub(crate) dto: DtoData,
    /// By `RMR_BIND_COMPLETION`.
    pub(crate) rmr: RmrData,
    /// By `CONNECTION_REQUEST`.
    pub(crate) cr: CrArrivalData,
    /// By those of connections.
    pub(crate) connect: ConnectionData,
    /// By those of the adapter.
    pub(crate) asynch: AsyncData,
    /// By `SOFTWARE`.
    pub(crate) software: SoftwareData,
}

const _: () = assert!(size_of::<EventData>() == 40);

/// `DAT_IB_EXT_TYPE`, as far as it occurs.
mod ext {
    pub(super) const FETCH_AND_ADD: u32 = 0;
    pub(super) const CMP_AND_SWAP: u32 = 1;
    pub(super) const RDMA_WRITE_IMMED: u32 = 2;
    pub(super) const RDMA_WRITE_IMMED_DATA: u32 = 3;
    pub(super) const RECV_IMMED_DATA: u32 = 4;
    pub(super) const UD_CONNECT_REQUEST: u32 = 5;
    pub(super) const UD_REMOTE_AH: u32 = 6;
    pub(super) const UD_PASSIVE_REMOTE_AH: u32 = 7;
    pub(super) const UD_SEND: u32 = 8;
    pub(super) const UD_RECV: u32 = 9;
    pub(super) const UD_CONNECT_REJECT: u32 = 10;
    pub(super) const UD_CONNECT_ERROR: u32 = 11;
}

/// `DAT_IB_OP_ERR`.
const IB_OP_ERR: u32 = 1;

/// Converts what events refer to for C consumers. Memory returned here is valid as long as DAT
/// requires: data of a request until it is answered, data of an Endpoint until it is reset or
/// freed.
pub(crate) trait Surroundings {
    /// Returns the handle of an object. Makes one for a request, or for an Endpoint that came with
    /// a request, if it has none yet.
    fn handle(&mut self, of: AnyHandle) -> DatHandle;

    /// Returns length and address of the private data of an Endpoint's reply or rejection.
    fn private_data(&mut self, ep: dat_core::Ep) -> (Count, *const u8);

    /// Returns the address of the adapter's own socket address.
    fn local_address(&mut self) -> *const SockAddr;

    /// Returns the Connection Qualifier that the service point of a port was made with.
    fn qualifier(&mut self, port: u64) -> u64;

    /// Takes the answer to a look-up by an Endpoint for datagrams: private data and destination
    /// (see `DAT_IB_UD_REMOTE_AH`).
    fn answer(&mut self, ep: dat_core::Ep, of: LookUp) -> (Count, *const u8, DatIbAddrHandle);

    /// Returns who looks up a service point: address and queue pair, and no destination yet.
    fn asker(&mut self, cr: dat_core::Cr) -> DatIbAddrHandle;

    /// Takes the oldest look-up that this Endpoint was given for: its private data, and the
    /// destination that asked (see `DAT_IB_UD_PASSIVE_REMOTE_AH`).
    fn accepted(&mut self, ep: dat_core::Ep) -> (Count, *const u8, DatIbAddrHandle);
}

impl DtoHead {
    /// Makes the event of an ordinary completion, for the fast path.
    #[inline(always)]
    pub(crate) fn new(evd: DatHandle, ep: DatHandle, dto: &DtoEvent) -> Self {
        Self {
            event_number: DTO_COMPLETION,
            evd_handle: evd,
            dto: DtoData {
                ep_handle: ep,
                user_cookie: dto.cookie,
                status: dto.status.number(),
                transfered_length: dto.len,
                operation: dto.operation as u32,
                rmr_context: 0,
            },
        }
    }
}

/// Returns the `rmr_context` of a receive: the window that the peer's message invalidated.
pub(crate) fn closed_window(extra: &Extra) -> u32 {
    extra.immediate
}

impl IbExtension {
    /// No extension.
    pub(crate) const NONE: Self = Self::of(0);

    const fn of(r#type: u32) -> Self {
        Self { r#type, status: 0, val: 0, remote_ah: DatIbAddrHandle::NONE, context: 0 }
    }
}

/// Converts an event of the Event Dispatcher `evd` to C. `extra` is additional data of a
/// completion: see `Ia::evd_extension`.
pub(crate) fn event(
    event: &Event,
    evd: DatHandle,
    extra: &Extra,
    around: &mut impl Surroundings,
) -> DatEvent {
    let (event_data, extension) = match event {
        Event::Dto(dto) => (of_dto(dto, extra, around), None),
        Event::IbDto(dto) => of_ib_dto(dto, extra, around),
        Event::RmrBind { rmr, cookie, status } => {
            let data = RmrData {
                rmr_handle: around.handle((*rmr).into()),
                user_cookie: *cookie,
                status: status.number(),
            };
            (EventData { rmr: data }, None)
        }
        Event::ConnectionRequest { psp, cr, conn_qual } => {
            (arrival((*psp).into(), *cr, *conn_qual, around), None)
        }
        Event::ReservedRequest { rsp, cr, conn_qual } => {
            (arrival((*rsp).into(), *cr, *conn_qual, around), None)
        }
        Event::CommonRequest { csp, cr, conn_qual } => {
            (arrival((*csp).into(), *cr, *conn_qual, around), None)
        }
        Event::UdConnectionRequest { psp, cr, conn_qual } => (
            arrival((*psp).into(), *cr, *conn_qual, around),
            Some(IbExtension {
                remote_ah: around.asker(*cr),
                ..IbExtension::of(ext::UD_CONNECT_REQUEST)
            }),
        ),
        Event::Established(ep) | Event::PeerRejected(ep) => (connection(*ep, around), None),
        Event::Disconnected(ep)
        | Event::Broken(ep)
        | Event::NonPeerRejected(ep)
        | Event::AcceptCompletionError(ep)
        | Event::TimedOut(ep)
        | Event::Unreachable(ep) => (bare(*ep, around), None),
        Event::UdEstablished(ep, of) => {
            answered(*ep, of.raw(), ext::UD_REMOTE_AH, around.answer(*ep, *of), around)
        }
        Event::UdReject(ep, of) => {
            answered(*ep, of.raw(), ext::UD_CONNECT_REJECT, around.answer(*ep, *of), around)
        }
        Event::UdAccepted(ep) => {
            answered(*ep, 0, ext::UD_PASSIVE_REMOTE_AH, around.accepted(*ep), around)
        }
        Event::UdError(ep) => (bare(*ep, around), Some(IbExtension::of(ext::UD_CONNECT_ERROR))),
        Event::Async(what) => (of_async(what, around), None),
        Event::Software(pointer) => {
            #[expect(clippy::cast_possible_truncation, reason = "an address is a word")]
            let pointer = core::ptr::with_exposed_provenance_mut(*pointer as usize);
            (EventData { software: SoftwareData { pointer } }, None)
        }
    };
    DatEvent {
        event_number: event.number(),
        evd_handle: evd,
        event_data,
        event_extension_data: extension.unwrap_or(IbExtension::NONE),
    }
}

fn of_dto(dto: &DtoEvent, extra: &Extra, around: &mut impl Surroundings) -> EventData {
    let closed = dto.operation == dat_core::DtoOperation::ReceiveWithInvalidate;
    let data = DtoData {
        ep_handle: around.handle(dto.ep.into()),
        user_cookie: dto.cookie,
        status: dto.status.number(),
        transfered_length: dto.len,
        operation: dto.operation as u32,
        rmr_context: if closed { closed_window(extra) } else { 0 },
    };
    EventData { dto: data }
}

fn of_ib_dto(
    dto: &IbDtoEvent,
    extra: &Extra,
    around: &mut impl Surroundings,
) -> (EventData, Option<IbExtension>) {
    let status = dto.status().number();
    let data = DtoData {
        ep_handle: around.handle(dto.ep.into()),
        user_cookie: dto.cookie,
        status,
        transfered_length: dto.len,
        operation: u32::from(dto.operation as u8),
        rmr_context: 0,
    };
    // The four bytes of the wire, in memory order.
    let received = u32::from_be(extra.immediate);
    let (r#type, immediate, qpn) = match dto.operation {
        IbOperation::RdmaWriteImmed => (ext::RDMA_WRITE_IMMED, 0, 0),
        IbOperation::FetchAdd => (ext::FETCH_AND_ADD, 0, 0),
        IbOperation::CmpSwap => (ext::CMP_AND_SWAP, 0, 0),
        IbOperation::SendUd => (ext::UD_SEND, 0, 0),
        IbOperation::RecvRdmaWriteImmed => (ext::RDMA_WRITE_IMMED_DATA, received, 0),
        IbOperation::RecvMsgImmed => (ext::RECV_IMMED_DATA, received, 0),
        IbOperation::RecvMsgUd => (ext::UD_RECV, 0, extra.source_qpn),
        IbOperation::RecvMsgUdImmed => (ext::UD_RECV, received, extra.source_qpn),
    };
    let extension = IbExtension {
        status: if status == 0 { 0 } else { IB_OP_ERR },
        val: immediate,
        remote_ah: DatIbAddrHandle { qpn, ..DatIbAddrHandle::NONE },
        ..IbExtension::of(r#type)
    };
    (EventData { dto: data }, Some(extension))
}

fn arrival(
    sp: AnyHandle,
    cr: dat_core::Cr,
    conn_qual: u64,
    around: &mut impl Surroundings,
) -> EventData {
    let data = CrArrivalData {
        sp_handle: around.handle(sp),
        local_ia_address_ptr: around.local_address(),
        conn_qual: around.qualifier(conn_qual),
        cr_handle: around.handle(cr.into()),
        truncate_flag: 0,
    };
    EventData { cr: data }
}

fn connection(ep: dat_core::Ep, around: &mut impl Surroundings) -> EventData {
    let (private_data_size, private_data) = around.private_data(ep);
    let data =
        ConnectionData { ep_handle: around.handle(ep.into()), private_data_size, private_data };
    EventData { connect: data }
}

/// Converts what an Endpoint for datagrams learned of a peer: private data and destination.
fn answered(
    ep: dat_core::Ep,
    context: u64,
    what: u32,
    (private_data_size, private_data, remote_ah): (Count, *const u8, DatIbAddrHandle),
    around: &mut impl Surroundings,
) -> (EventData, Option<IbExtension>) {
    let connect =
        ConnectionData { ep_handle: around.handle(ep.into()), private_data_size, private_data };
    let extension = IbExtension { remote_ah, context, ..IbExtension::of(what) };
    (EventData { connect }, Some(extension))
}

/// Converts a connection event without private data.
fn bare(ep: dat_core::Ep, around: &mut impl Surroundings) -> EventData {
    let data = ConnectionData {
        ep_handle: around.handle(ep.into()),
        private_data_size: 0,
        private_data: core::ptr::null(),
    };
    EventData { connect: data }
}

fn of_async(what: &AsyncEvent, around: &mut impl Surroundings) -> EventData {
    let data = AsyncData { dat_handle: around.handle(what.handle()), reason: count(what.reason()) };
    EventData { asynch: data }
}

/// `DAT_SOFTWARE_EVENT`.
const SOFTWARE: u32 = 0x10001;

/// Returns the pointer of a software event that a consumer posts; `None` for another event number.
pub(crate) fn software(event: In<DatEvent>) -> Option<u64> {
    let head = event.head::<SoftwareHead>()?;
    (head.event_number == SOFTWARE).then_some(head.pointer)
}

/// The beginning of a [`DatEvent`] that a consumer posts.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct SoftwareHead {
    event_number: u32,
    evd_handle: DatHandle,
    pointer: u64,
}

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(SoftwareHead, event_number) == offset_of!(DatEvent, event_number));
    assert!(offset_of!(SoftwareHead, pointer) == offset_of!(DatEvent, event_data));
};
