/*
 * uDAPL over libmlx5: the calls of libdat2, through the provider of dapl. The objects of a connected Endpoint are
 * filled by hand: dapl's own functions would need a kernel driver and a peer.
 */
#include "rig.h"

#include "dapl.h"
#include "dapl_cookie.h"
#include "dapl_ring_buffer_util.h"

/* Pending requests of an Endpoint, and events of an EVD. */
#define PENDING 1024

struct udapl {
	DAT_PROVIDER provider;
	DAPL_HCA hca;
	DAPL_IA ia;
	DAPL_EP ep;
	DAPL_EVD requests, receives;
	struct _ib_hca_transport transport;
	struct dcm_ib_qp qp;
	struct dcm_ib_cq sent, got;
	DAT_LMR_TRIPLET word, piece;
	DAT_RMR_TRIPLET far8, far256;
};

static void must(DAT_RETURN status)
{
	if (status != DAT_SUCCESS)
		abort();
}

static void evd_open(struct udapl *udapl, DAPL_EVD *evd, struct dcm_ib_cq *handle, struct mlx5_cq *cq)
{
	handle->tp = &udapl->transport;
	handle->evd = evd;
	handle->cq = &cq->verbs_cq.cq;
	evd->header.provider = &udapl->provider;
	evd->header.magic = DAPL_MAGIC_EVD;
	evd->header.handle_type = DAT_HANDLE_TYPE_EVD;
	evd->header.owner_ia = &udapl->ia;
	must(dapl_os_lock_init(&evd->header.lock));
	evd->evd_state = DAPL_EVD_STATE_OPEN;
	evd->evd_flags = DAT_EVD_DTO_FLAG;
	evd->evd_enabled = evd->evd_waitable = DAT_TRUE;
	evd->ib_cq_handle = handle;
	evd->qlen = PENDING;
	must(dapls_rbuf_alloc(&evd->pending_event_queue, PENDING));
	must(dapls_rbuf_alloc(&evd->free_event_queue, PENDING));
}

static void udapl_open(struct rig *rig)
{
	static struct udapl kept;
	struct udapl *udapl = &kept;
	DAPL_EP *ep = &udapl->ep;

	/* Rings of an earlier case are not freed: the program is short. */
	memset(udapl, 0, sizeof *udapl);
	rig->above = udapl;
	udapl->provider.ep_post_rdma_write_func = dapl_ep_post_rdma_write;
	udapl->provider.ep_post_send_func = dapl_ep_post_send;
	udapl->provider.ep_post_recv_func = dapl_ep_post_recv;
	udapl->provider.evd_dequeue_func = dapl_evd_dequeue;
	udapl->ia.header.provider = &udapl->provider;
	udapl->ia.header.magic = DAPL_MAGIC_IA;
	udapl->ia.hca_ptr = &udapl->hca;
	/* The default of dapl. */
	udapl->transport.ib_cm.max_inline = 64;
	udapl->qp.tp = &udapl->transport;
	udapl->qp.qp = rig->qp.ibv_qp;
	evd_open(udapl, &udapl->requests, &udapl->sent, &rig->sent);
	evd_open(udapl, &udapl->receives, &udapl->got, &rig->got);

	ep->header.provider = &udapl->provider;
	ep->header.magic = DAPL_MAGIC_EP;
	ep->header.handle_type = DAT_HANDLE_TYPE_EP;
	ep->header.owner_ia = &udapl->ia;
	must(dapl_os_lock_init(&ep->header.lock));
	ep->param.ep_state = DAT_EP_STATE_CONNECTED;
	ep->param.ep_attr.service_type = DAT_SERVICE_TYPE_RC;
	ep->param.ep_attr.max_request_dtos = ep->param.ep_attr.max_recv_dtos = PENDING;
	ep->param.request_evd_handle = &udapl->requests;
	ep->param.recv_evd_handle = &udapl->receives;
	ep->qp_handle = &udapl->qp;
	ep->qpn = rig->qp.ibv_qp->qp_num;
	must(dapls_cb_create(&ep->req_buffer, ep, PENDING));
	must(dapls_cb_create(&ep->recv_buffer, ep, PENDING));

	udapl->word = (DAT_LMR_TRIPLET){.virtual_address = (uintptr_t)&rig->word, .segment_length = 8, .lmr_context = LOCAL_KEY};
	udapl->piece = (DAT_LMR_TRIPLET){.virtual_address = (uintptr_t)rig->piece, .segment_length = 256, .lmr_context = LOCAL_KEY};
	udapl->far8 = (DAT_RMR_TRIPLET){.virtual_address = FAR_ADDRESS, .segment_length = 8, .rmr_context = FAR_KEY};
	udapl->far256 = (DAT_RMR_TRIPLET){.virtual_address = FAR_ADDRESS, .segment_length = 256, .rmr_context = FAR_KEY};
}

static inline uint64_t write_one(struct udapl *udapl, DAT_LMR_TRIPLET *local, DAT_RMR_TRIPLET *far, uint64_t cookie)
{
	DAT_DTO_COOKIE word = {.as_64 = cookie};

	return dat_ep_post_rdma_write(&udapl->ep, 1, local, word, far, DAT_COMPLETION_DEFAULT_FLAG);
}

static inline uint64_t udapl_write8(struct rig *rig, uint64_t cookie)
{
	struct udapl *udapl = rig->above;

	return write_one(udapl, &udapl->word, &udapl->far8, cookie);
}

static inline uint64_t udapl_write256(struct rig *rig, uint64_t cookie)
{
	struct udapl *udapl = rig->above;

	return write_one(udapl, &udapl->piece, &udapl->far256, cookie);
}

static inline uint64_t udapl_send256(struct rig *rig, uint64_t cookie)
{
	struct udapl *udapl = rig->above;
	DAT_DTO_COOKIE word = {.as_64 = cookie};

	return dat_ep_post_send(&udapl->ep, 1, &udapl->piece, word, DAT_COMPLETION_DEFAULT_FLAG);
}

static inline uint64_t udapl_receive(struct rig *rig, uint64_t cookie)
{
	struct udapl *udapl = rig->above;
	DAT_DTO_COOKIE word = {.as_64 = cookie};

	return dat_ep_post_recv(&udapl->ep, 1, &udapl->piece, word, DAT_COMPLETION_DEFAULT_FLAG);
}

static inline uint64_t dequeue_one(DAPL_EVD *evd, uint64_t cookie)
{
	DAT_EVENT event;
	DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;

	if (dat_evd_dequeue(evd, &event) != DAT_SUCCESS || event.event_number != DAT_DTO_COMPLETION_EVENT)
		return 1;
	return (dto->user_cookie.as_64 ^ cookie) | dto->status;
}

static inline uint64_t udapl_sent(struct rig *rig, uint64_t cookie)
{
	return dequeue_one(&((struct udapl *)rig->above)->requests, cookie);
}

static inline uint64_t udapl_received(struct rig *rig, uint64_t cookie)
{
	return dequeue_one(&((struct udapl *)rig->above)->receives, cookie);
}

static inline uint64_t udapl_empty(struct rig *rig, uint64_t cookie)
{
	DAT_EVENT event;

	(void)cookie;
	return DAT_GET_TYPE(dat_evd_dequeue(&((struct udapl *)rig->above)->requests, &event)) != DAT_QUEUE_EMPTY;
}

BLOCKS(udapl)

static const struct row ROWS_OF_UDAPL[] = {ROWS(udapl), {}};

const struct peer udapl_peer = {"udapl", udapl_open, ROWS_OF_UDAPL};
