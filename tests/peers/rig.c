/*
 * The queue pair, the device behind it, and the clock.
 *
 *     peers list                                 records: interface, case
 *     peers time BLOCKS                          records: interface, case, threaded or single, nanoseconds of an operation
 *     peers count PEER CASE HOW BLOCKS           runs one case for callgrind: the operations that ran
 */
#include "rig.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QP_NUMBER 0x4d
#define USER 5
#define INVALID 0xf1
#define OWNER(index) ((index) / ENTRIES & 1)
#define MUST(condition)                                                                                                            \
	do {                                                                                                                       \
		if (!(condition)) {                                                                                                \
			fprintf(stderr, "%s: line %d: %s does not hold\n", row->name, __LINE__, #condition);                       \
			exit(1);                                                                                                   \
		}                                                                                                                  \
	} while (0)

/* The library defines these in files that are not compiled. */
int mlx5_freeze_on_error_cqe;
int mlx5_single_threaded;

static const struct peer *const PEERS[] = {&libmlx5_peer, &ibv_wr_peer, &udapl_peer};
static const char *const HOW[] = {"threaded", "single"};

static void *memory(size_t length)
{
	void *at = aligned_alloc(4096, (length + 4095) & ~4095ul);

	if (!at)
		abort();
	return memset(at, 0, length);
}

static void lock_open(struct mlx5_spinlock *lock, bool single_threaded)
{
	lock->need_lock = !single_threaded;
	pthread_spin_init(&lock->lock, PTHREAD_PROCESS_PRIVATE);
}

static void queue_open(struct mlx5_wq *queue, void *start, int shift, bool single_threaded)
{
	lock_open(&queue->lock, single_threaded);
	queue->wqe_cnt = queue->max_post = ENTRIES;
	queue->max_gs = queue->qp_state_max_gs = 1;
	queue->wqe_shift = shift;
	queue->qend = (char *)start + ((size_t)ENTRIES << shift);
	queue->wrid = memory(ENTRIES * sizeof *queue->wrid);
	queue->wqe_head = memory(ENTRIES * sizeof *queue->wqe_head);
	queue->wr_data = memory(ENTRIES * sizeof *queue->wr_data);
}

static void cq_open(struct rig *rig, struct mlx5_cq *cq, __be32 *record, bool single_threaded)
{
	struct ibv_cq_init_attr_ex attributes = {.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM};
	struct mlx5_cqe64 *cqe = memory(ENTRIES * sizeof *cqe);
	unsigned n;

	lock_open(&cq->lock, single_threaded);
	cq->verbs_cq.cq.context = &rig->context.ibv_ctx.context;
	cq->verbs_cq.cq.cqe = ENTRIES - 1;
	cq->buf_a.buf = cqe;
	cq->active_buf = &cq->buf_a;
	cq->cqe_sz = sizeof *cqe;
	cq->dbrec = record;
	cq->flags = single_threaded ? MLX5_CQ_FLAGS_SINGLE_THREADED : 0;
	mlx5_cq_fill_pfns(cq, &attributes, &rig->context);
	for (n = 0; n < ENTRIES; n++)
		cqe[n].op_own = INVALID;
}

static struct ibv_send_wr write_of(struct rig *rig, struct ibv_sge *sge, unsigned flags)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = sge, .num_sge = 1, .send_flags = flags};

	wr.wr.rdma.remote_addr = FAR_ADDRESS;
	wr.wr.rdma.rkey = FAR_KEY;
	return wr;
}

struct rig *rig_open(bool single_threaded)
{
	struct rig *rig = memory(sizeof *rig);
	struct mlx5_context *context = &rig->context;
	struct mlx5_qp *qp = &rig->qp;
	struct ibv_qp_init_attr_ex attributes = {.qp_type = IBV_QPT_RC};
	unsigned n;

	mlx5_single_threaded = single_threaded;
	context->cqe_version = 1;
	context->prefer_bf = 1;
	context->ibv_ctx.context.ops.post_send = mlx5_post_send;
	context->ibv_ctx.context.ops.post_recv = mlx5_post_recv;
	context->ibv_ctx.context.ops.poll_cq = mlx5_poll_cq_v1;
	rig->users[USER] = &qp->rsc;
	context->uidx_table[0].table = rig->users;
	context->uidx_table[0].refcnt = 1;
	cq_open(rig, &rig->sent, rig->records[1], single_threaded);
	cq_open(rig, &rig->got, rig->records[2], single_threaded);

	rig->bf.reg = memory(4096);
	rig->bf.offset = 0x800;
	rig->bf.buf_size = 256;
	rig->bf.uuarn = 1;

	qp->rsc.type = MLX5_RSC_TYPE_QP;
	qp->rsc.rsn = USER;
	qp->ibv_qp = &qp->verbs_qp.qp;
	qp->ibv_qp->context = &context->ibv_ctx.context;
	qp->ibv_qp->qp_num = QP_NUMBER;
	qp->ibv_qp->qp_type = IBV_QPT_RC;
	qp->ibv_qp->state = IBV_QPS_RTS;
	qp->ibv_qp->send_cq = &rig->sent.verbs_cq.cq;
	qp->ibv_qp->recv_cq = &rig->got.verbs_cq.cq;
	qp->max_inline_data = 64;
	qp->bf = &rig->bf;
	qp->db = rig->records[0];
	/* Receives first, as the library lays a queue pair out. */
	qp->buf.buf = memory(ENTRIES * 16 + ENTRIES * 64);
	qp->sq_start = (char *)qp->buf.buf + ENTRIES * 16;
	qp->sq.offset = ENTRIES * 16;
	queue_open(&qp->rq, qp->buf.buf, 4, single_threaded);
	queue_open(&qp->sq, qp->sq_start, 6, single_threaded);
	if (mlx5_qp_fill_wr_pfns(qp, &attributes, NULL))
		abort();

	rig->word = 0x1122334455667788;
	rig->word_sge = (struct ibv_sge){(uintptr_t)&rig->word, 8, LOCAL_KEY};
	rig->piece_sge = (struct ibv_sge){(uintptr_t)rig->piece, 256, LOCAL_KEY};
	rig->write8 = write_of(rig, &rig->word_sge, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
	rig->write256 = write_of(rig, &rig->piece_sge, IBV_SEND_SIGNALED);
	rig->send256 = rig->write256;
	rig->send256.opcode = IBV_WR_SEND;
	rig->receive = (struct ibv_recv_wr){.sg_list = &rig->piece_sge, .num_sge = 1};
	for (n = 0; n < BURST; n++) {
		rig->list[n] = rig->write8;
		rig->list[n].wr_id = COOKIE + n;
		rig->list[n].next = n + 1 < BURST ? &rig->list[n + 1] : NULL;
		rig->receives_list[n] = rig->receive;
		rig->receives_list[n].wr_id = COOKIE + n;
		rig->receives_list[n].next = n + 1 < BURST ? &rig->receives_list[n + 1] : NULL;
	}
	return rig;
}

void rig_close(struct rig *rig)
{
	struct mlx5_wq *queues[] = {&rig->qp.sq, &rig->qp.rq};
	int n;

	for (n = 0; n < 2; n++) {
		free(queues[n]->wrid);
		free(queues[n]->wqe_head);
		free(queues[n]->wr_data);
	}
	free(rig->sent.buf_a.buf);
	free(rig->got.buf_a.buf);
	free(rig->bf.reg);
	free(rig->qp.buf.buf);
	free(rig);
}

void rig_complete(struct rig *rig, enum request request, unsigned n)
{
	bool receive = request == RECEIVE256;
	struct mlx5_cqe64 *ring = (receive ? &rig->got : &rig->sent)->buf_a.buf;
	unsigned first = receive ? rig->receives_taken : rig->sends_taken;
	unsigned posted = receive ? rig->receives : rig->sends;
	unsigned i;

	for (i = 0; i < n; i++) {
		struct mlx5_cqe64 *cqe = &ring[(first + i) % ENTRIES];
		uint8_t opcode = request == SEND256 ? MLX5_OPCODE_SEND : MLX5_OPCODE_RDMA_WRITE;

		memset(cqe, 0, sizeof *cqe);
		cqe->srqn_uidx = htobe32(USER);
		cqe->byte_cnt = htobe32(64);
		cqe->sop_drop_qpn = htobe32((receive ? 0 : opcode) << 24 | QP_NUMBER);
		cqe->wqe_counter = htobe16(posted + i);
		cqe->op_own = (receive ? MLX5_CQE_RESP_SEND : MLX5_CQE_REQ) << 4 | OWNER(first + i);
	}
}

/* The bytes of a request, written out from the published layout; returns how many. */
static unsigned expected(struct rig *rig, enum request request, unsigned index, uint32_t *to)
{
	unsigned at = 0;
	bool write = request != SEND256;

	if (request != RECEIVE256) {
		to[at++] = htobe32((index & 0xffff) << 8 | (write ? 0x08 : 0x0a));
		to[at++] = htobe32(QP_NUMBER << 8 | (write ? 3 : 2));
		to[at++] = htobe32(0x08);
		to[at++] = 0;
		if (write) {
			to[at++] = htobe32(FAR_ADDRESS >> 32);
			to[at++] = htobe32((uint32_t)FAR_ADDRESS);
			to[at++] = htobe32(FAR_KEY);
			to[at++] = 0;
		}
	}
	if (request == WRITE8) {
		to[at++] = htobe32(0x80000008);
		memcpy(to + at, &rig->word, 8);
		to[at + 2] = 0;
		return (at + 3) * 4;
	}
	to[at++] = htobe32(256);
	to[at++] = htobe32(LOCAL_KEY);
	to[at++] = htobe32((uintptr_t)rig->piece >> 32);
	to[at++] = htobe32((uintptr_t)rig->piece);
	return at * 4;
}

void rig_check(struct rig *rig, const struct row *row, unsigned n)
{
	bool receive = row->request == RECEIVE256;
	struct mlx5_wq *queue = receive ? &rig->qp.rq : &rig->qp.sq;
	unsigned *posted = receive ? &rig->receives : &rig->sends;
	unsigned *taken = receive ? &rig->receives_taken : &rig->sends_taken;
	struct mlx5_cq *cq = receive ? &rig->got : &rig->sent;
	char *start = receive ? rig->qp.buf.buf : rig->qp.sq_start;
	uint32_t want[16];
	unsigned i, length = 0;

	if (row->request == NOTHING) {
		MUST(rig->sent.cons_index == rig->sends_taken && rig->sends == rig->qp.sq.head);
		return;
	}
	for (i = 0; i < n; i++) {
		unsigned index = *posted + i;

		length = expected(rig, row->request, index, want);
		MUST(!memcmp(start + ((size_t)(index % ENTRIES) << queue->wqe_shift), want, length));
	}
	*posted += n;
	*taken += n;
	MUST(queue->head == *posted && queue->tail == *posted);
	MUST(cq->cons_index == *taken);
	MUST(be32toh(cq->dbrec[0]) == (*taken & 0xffffff));
	MUST(be32toh(rig->qp.db[receive ? 0 : 1]) == (*posted & 0xffff));
	/* The buffers of BlueFlame alternate. */
	if (!receive)
		MUST(!memcmp((char *)rig->bf.reg + (rig->bf.offset ^ rig->bf.buf_size), want, row->list ? 8 : length));
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

static int smaller_first(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Runs blocks of a case, and a tenth before that; returns the nanoseconds of an operation in the median block. */
static double run(const struct peer *peer, const struct row *row, bool single_threaded, unsigned blocks, unsigned long *ran)
{
	struct rig *rig = rig_open(single_threaded);
	double *spans = memory(blocks * sizeof *spans), median;
	unsigned block, warm = blocks / 10;

	peer->open(rig);
	for (block = 0; block < warm + blocks; block++) {
		uint64_t wrong = 0;
		double start;

		if (row->request != NOTHING)
			rig_complete(rig, row->request, row->ops);
		if (row->before)
			wrong |= row->before(rig, row->ops);
		start = now();
		wrong |= row->block(rig, row->ops);
		if (block >= warm)
			spans[block - warm] = (now() - start) / row->ops;
		if (row->after)
			wrong |= row->after(rig, row->ops);
		MUST(!wrong);
		rig_check(rig, row, row->ops);
		*ran += row->ops;
	}
	qsort(spans, blocks, sizeof *spans, smaller_first);
	median = spans[(blocks - 1) / 2];
	free(spans);
	rig_close(rig);
	return median;
}

int main(int argc, char **argv)
{
	unsigned long blocks = argc > 2 ? strtoul(argv[argc - 1], NULL, 10) : 0, ran = 0;
	bool list = argc == 2 && !strcmp(argv[1], "list");
	bool clock = argc == 3 && !strcmp(argv[1], "time") && blocks;
	bool count = argc == 6 && !strcmp(argv[1], "count") && blocks;
	cpu_set_t first;
	unsigned p, how;
	const struct row *row;

	if (!list && !clock && !count) {
		fprintf(stderr, "usage: %s list | time BLOCKS | count PEER CASE threaded|single BLOCKS\n", argv[0]);
		return 2;
	}
	CPU_ZERO(&first);
	CPU_SET(0, &first);
	if (clock)
		sched_setaffinity(0, sizeof first, &first);
	for (p = 0; p < sizeof PEERS / sizeof *PEERS; p++)
		for (row = PEERS[p]->rows; row->name; row++)
			for (how = 0; how < 2; how++) {
				if (list && !how)
					printf("case\t%s\t%s\n", PEERS[p]->name, row->name);
				else if (clock)
					printf("time\t%s\t%s\t%s\t%.3f\n", PEERS[p]->name, row->name, HOW[how],
					       run(PEERS[p], row, how, blocks, &ran));
				else if (count && !strcmp(argv[2], PEERS[p]->name) && !strcmp(argv[3], row->name) &&
					 !strcmp(argv[4], HOW[how]))
					run(PEERS[p], row, how, blocks, &ran);
			}
	if (count)
		printf("ran\t%s\t%lu\n", argv[3], ran);
	return count && !ran;
}
