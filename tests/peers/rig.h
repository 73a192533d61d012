/*
 * A queue pair of libmlx5 over ordinary memory, and the device behind it: it writes completions ahead, with the right owner bit,
 * and compares afterwards what was posted with the expected bytes.
 *
 * `cargo xtask bench --peers` compiles this folder against the source of rdma-core and dapl, whose own objects do the measured
 * work. Queues have 1024 entries, completions have version 1, BlueFlame is on, and a page of memory stands for the UAR: the rules
 * of tests/src/bench.
 */
#pragma once

#include <config.h>
#include <stdbool.h>
#include <stdint.h>

#include "mlx5.h"

#define ENTRIES 1024
#define BURST 32
/* The first cookie of a block. */
#define COOKIE 0x5eed000000000000ull
#define FAR_ADDRESS 0x7f1234560000ull
#define FAR_KEY 0xabcd01u
#define LOCAL_KEY 0x123402u

/* Keeps a function whole: callgrind counts from its entry to its return. */
#define MEASURED __attribute__((noinline, noclone))

/* Kinds of requests. */
enum request { NOTHING, WRITE8, WRITE256, SEND256, RECEIVE256 };

struct rig {
	struct mlx5_context context;
	struct mlx5_resource *users[1 << MLX5_UIDX_TABLE_SHIFT];
	struct mlx5_qp qp;
	struct mlx5_cq sent, got;
	struct mlx5_bf bf;
	/* Doorbell records of the QP and of both CQs. */
	__be32 records[3][16];
	uint64_t word;
	char piece[256];
	/* Requests posted and completions taken so far, by queue. */
	unsigned sends, receives, sends_taken, receives_taken;
	/* Arguments that do not change from one post to the next. */
	struct ibv_sge word_sge, piece_sge;
	struct ibv_send_wr write8, write256, send256, list[BURST];
	struct ibv_recv_wr receive, receives_list[BURST];
	/* Objects of a layer above libmlx5. */
	void *above;
};

struct row {
	const char *name;
	/* Operations of one block. */
	unsigned ops;
	enum request request;
	/* Requests share a doorbell. */
	bool list;
	/* Each returns 0 if all calls succeeded and all completions were the expected ones. */
	uint64_t (*before)(struct rig *, unsigned);
	uint64_t (*block)(struct rig *, unsigned);
	uint64_t (*after)(struct rig *, unsigned);
};

/* An interface to the same queue pair. */
struct peer {
	const char *name;
	void (*open)(struct rig *);
	const struct row *rows;
};

extern const struct peer libmlx5_peer, ibv_wr_peer, udapl_peer;

struct rig *rig_open(bool single_threaded);
void rig_close(struct rig *rig);
/* Writes the completions of the next n requests. */
void rig_complete(struct rig *rig, enum request request, unsigned n);
/* Ends the program unless the last n requests have the expected bytes and their completions were taken. */
void rig_check(struct rig *rig, const struct row *row, unsigned n);

/*
 * Rows of an interface that has the functions PEER_write8, _write256, _send256 and _receive to post, _sent and _received to take a
 * completion, and _empty to find none.
 */
#define ROUND_TRIP(peer, name, post, reap)                                                                                         \
	MEASURED uint64_t peer##_##name(struct rig *rig, unsigned ops)                                                             \
	{                                                                                                                          \
		uint64_t wrong = 0, cookie;                                                                                        \
		for (cookie = COOKIE; cookie < COOKIE + ops; cookie++)                                                             \
			wrong |= post(rig, cookie) | reap(rig, cookie);                                                            \
		return wrong;                                                                                                      \
	}
#define ONE_WAY(peer, name, step)                                                                                                  \
	MEASURED uint64_t peer##_##name(struct rig *rig, unsigned ops)                                                             \
	{                                                                                                                          \
		uint64_t wrong = 0, cookie;                                                                                        \
		for (cookie = COOKIE; cookie < COOKIE + ops; cookie++)                                                             \
			wrong |= step(rig, cookie);                                                                                \
		return wrong;                                                                                                      \
	}
#define BLOCKS(peer)                                                                                                               \
	ROUND_TRIP(peer, wr8_rt1, peer##_write8, peer##_sent)                                                                      \
	ROUND_TRIP(peer, wr256_rt1, peer##_write256, peer##_sent)                                                                  \
	ROUND_TRIP(peer, send256_rt1, peer##_send256, peer##_sent)                                                                 \
	ROUND_TRIP(peer, recv_rt1, peer##_receive, peer##_received)                                                                \
	ONE_WAY(peer, post_wr8, peer##_write8)                                                                                     \
	ONE_WAY(peer, deq_wr8, peer##_sent)                                                                                        \
	ONE_WAY(peer, post_recv, peer##_receive)                                                                                   \
	ONE_WAY(peer, deq_recv, peer##_received)                                                                                   \
	ONE_WAY(peer, deq_empty, peer##_empty)
#define ROWS(peer)                                                                                                                 \
	{"wr8_rt1", 512, WRITE8, false, NULL, peer##_wr8_rt1, NULL},                                                               \
	{"wr256_rt1", 512, WRITE256, false, NULL, peer##_wr256_rt1, NULL},                                                         \
	{"send256_rt1", 512, SEND256, false, NULL, peer##_send256_rt1, NULL},                                                      \
	{"recv_rt1", 512, RECEIVE256, false, NULL, peer##_recv_rt1, NULL},                                                         \
	{"post_wr8", 64, WRITE8, false, NULL, peer##_post_wr8, peer##_deq_wr8},                                                    \
	{"deq_wr8", 64, WRITE8, false, peer##_post_wr8, peer##_deq_wr8, NULL},                                                     \
	{"post_recv", 64, RECEIVE256, false, NULL, peer##_post_recv, peer##_deq_recv},                                             \
	{"deq_recv", 64, RECEIVE256, false, peer##_post_recv, peer##_deq_recv, NULL},                                              \
	{"deq_empty", 512, NOTHING, false, NULL, peer##_deq_empty, NULL}
