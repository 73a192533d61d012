/*
 * The verbs of libmlx5: ibv_post_send with ibv_poll_cq, and ibv_wr_* with ibv_start_poll. Arguments that do not change
 * are prepared once. The cookie is set for each request, and compared, with the status, for each completion.
 */
#include "rig.h"

#define SENT(rig) (&(rig)->sent.verbs_cq.cq)
#define GOT(rig) (&(rig)->got.verbs_cq.cq)
#define EX(cq) ((struct ibv_cq_ex *)(cq))

static inline uint64_t send_one(struct rig *rig, struct ibv_send_wr *wr, uint64_t cookie)
{
	struct ibv_send_wr *bad;

	wr->wr_id = cookie;
	return ibv_post_send(rig->qp.ibv_qp, wr, &bad);
}

static inline uint64_t libmlx5_write8(struct rig *rig, uint64_t cookie)
{
	return send_one(rig, &rig->write8, cookie);
}

static inline uint64_t libmlx5_write256(struct rig *rig, uint64_t cookie)
{
	return send_one(rig, &rig->write256, cookie);
}

static inline uint64_t libmlx5_send256(struct rig *rig, uint64_t cookie)
{
	return send_one(rig, &rig->send256, cookie);
}

static inline uint64_t libmlx5_receive(struct rig *rig, uint64_t cookie)
{
	struct ibv_recv_wr *bad;

	rig->receive.wr_id = cookie;
	return ibv_post_recv(rig->qp.ibv_qp, &rig->receive, &bad);
}

static inline uint64_t poll_one(struct ibv_cq *cq, uint64_t cookie)
{
	struct ibv_wc wc;

	return ibv_poll_cq(cq, 1, &wc) == 1 ? (wc.wr_id ^ cookie) | wc.status : 1;
}

static inline uint64_t libmlx5_sent(struct rig *rig, uint64_t cookie)
{
	return poll_one(SENT(rig), cookie);
}

static inline uint64_t libmlx5_received(struct rig *rig, uint64_t cookie)
{
	return poll_one(GOT(rig), cookie);
}

static inline uint64_t libmlx5_empty(struct rig *rig, uint64_t cookie)
{
	struct ibv_wc wc;

	(void)cookie;
	return ibv_poll_cq(SENT(rig), 1, &wc);
}

static inline uint64_t poll_burst(struct ibv_cq *cq)
{
	struct ibv_wc wc[BURST];
	uint64_t wrong = ibv_poll_cq(cq, BURST, wc) ^ BURST;
	unsigned n;

	for (n = 0; n < BURST; n++)
		wrong |= (wc[n].wr_id ^ (COOKIE + n)) | wc[n].status;
	return wrong;
}

MEASURED uint64_t libmlx5_wr8_b32(struct rig *rig, unsigned ops)
{
	struct ibv_send_wr *bad;
	uint64_t wrong = 0;

	for (; ops; ops -= BURST)
		wrong |= ibv_post_send(rig->qp.ibv_qp, rig->list, &bad) | poll_burst(SENT(rig));
	return wrong;
}

MEASURED uint64_t libmlx5_recv_b32(struct rig *rig, unsigned ops)
{
	struct ibv_recv_wr *bad;
	uint64_t wrong = 0;

	for (; ops; ops -= BURST)
		wrong |= ibv_post_recv(rig->qp.ibv_qp, rig->receives_list, &bad) | poll_burst(GOT(rig));
	return wrong;
}

/* One request between wr_start and wr_complete. */
static inline void put_write8(struct ibv_qp_ex *qp, struct rig *rig, uint64_t cookie)
{
	qp->wr_id = cookie;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, rig->write8.wr.rdma.rkey, rig->write8.wr.rdma.remote_addr);
	ibv_wr_set_inline_data(qp, &rig->word, 8);
}

static inline uint64_t ibv_wr_write8(struct rig *rig, uint64_t cookie)
{
	struct ibv_qp_ex *qp = &rig->qp.verbs_qp.qp_ex;

	ibv_wr_start(qp);
	put_write8(qp, rig, cookie);
	return ibv_wr_complete(qp);
}

static inline uint64_t ibv_wr_write256(struct rig *rig, uint64_t cookie)
{
	struct ibv_qp_ex *qp = &rig->qp.verbs_qp.qp_ex;

	ibv_wr_start(qp);
	qp->wr_id = cookie;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, rig->write256.wr.rdma.rkey, rig->write256.wr.rdma.remote_addr);
	ibv_wr_set_sge(qp, rig->piece_sge.lkey, rig->piece_sge.addr, rig->piece_sge.length);
	return ibv_wr_complete(qp);
}

static inline uint64_t ibv_wr_send256(struct rig *rig, uint64_t cookie)
{
	struct ibv_qp_ex *qp = &rig->qp.verbs_qp.qp_ex;

	ibv_wr_start(qp);
	qp->wr_id = cookie;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, rig->piece_sge.lkey, rig->piece_sge.addr, rig->piece_sge.length);
	return ibv_wr_complete(qp);
}

/* Receives are posted by ibv_post_recv here too. */
#define ibv_wr_receive libmlx5_receive

static inline uint64_t start_one(struct ibv_cq_ex *cq, uint64_t cookie)
{
	struct ibv_poll_cq_attr attributes = {};
	uint64_t wrong;

	if (ibv_start_poll(cq, &attributes))
		return 1;
	wrong = (cq->wr_id ^ cookie) | cq->status;
	ibv_end_poll(cq);
	return wrong;
}

static inline uint64_t ibv_wr_sent(struct rig *rig, uint64_t cookie)
{
	return start_one(EX(SENT(rig)), cookie);
}

static inline uint64_t ibv_wr_received(struct rig *rig, uint64_t cookie)
{
	return start_one(EX(GOT(rig)), cookie);
}

static inline uint64_t ibv_wr_empty(struct rig *rig, uint64_t cookie)
{
	struct ibv_poll_cq_attr attributes = {};

	(void)cookie;
	return ibv_start_poll(EX(SENT(rig)), &attributes) != ENOENT;
}

static inline uint64_t start_burst(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attributes = {};
	uint64_t wrong = ibv_start_poll(cq, &attributes);
	unsigned n = 0;

	do
		wrong |= (cq->wr_id ^ (COOKIE + n)) | cq->status;
	while (++n < BURST && !ibv_next_poll(cq));
	ibv_end_poll(cq);
	return wrong | (n ^ BURST);
}

MEASURED uint64_t ibv_wr_wr8_b32(struct rig *rig, unsigned ops)
{
	struct ibv_qp_ex *qp = &rig->qp.verbs_qp.qp_ex;
	uint64_t wrong = 0;
	unsigned n;

	for (; ops; ops -= BURST) {
		ibv_wr_start(qp);
		for (n = 0; n < BURST; n++)
			put_write8(qp, rig, COOKIE + n);
		wrong |= ibv_wr_complete(qp) | start_burst(EX(SENT(rig)));
	}
	return wrong;
}

MEASURED uint64_t ibv_wr_recv_b32(struct rig *rig, unsigned ops)
{
	struct ibv_recv_wr *bad;
	uint64_t wrong = 0;

	for (; ops; ops -= BURST)
		wrong |= ibv_post_recv(rig->qp.ibv_qp, rig->receives_list, &bad) | start_burst(EX(GOT(rig)));
	return wrong;
}

BLOCKS(libmlx5)
BLOCKS(ibv_wr)

#define LISTS(peer)                                                                                                                \
	{"wr8_b32", 512, WRITE8, true, NULL, peer##_wr8_b32, NULL}, {"recv_b32", 512, RECEIVE256, true, NULL, peer##_recv_b32, NULL}

static const struct row LIBMLX5[] = {ROWS(libmlx5), LISTS(libmlx5), {}};
static const struct row IBV_WR[] = {ROWS(ibv_wr), LISTS(ibv_wr), {}};

static void open_nothing(struct rig *rig)
{
	(void)rig;
}

const struct peer libmlx5_peer = {"libmlx5", open_nothing, LIBMLX5};
const struct peer ibv_wr_peer = {"ibv_wr", open_nothing, IBV_WR};
