/*
 * Threads that make and free Endpoints and LMRs of one adapter, each its own, as many as the environment says in THREADS. Their stacks
 * are small. The consumer has asked for a provider that is thread safe.
 *
 *     makers LIBRARY PARAMETERS PARAMETERS          built with -DALONE -rdynamic
 *
 * Lines and exit code are those of lists.c.
 */
#include <dat2/udat.h>
#undef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_TRUE
#include "alone.h"
#include "side.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 12, MOST = 32, STACK = 65536 };

static struct side side;
static struct end streams;
static pthread_barrier_t start;
static atomic_int refused, accepted, twins;
static _Atomic(DAT_EP_HANDLE) eps[MOST];

static void *maker(void *number)
{
	size_t own = (size_t) number, other;
	DAT_REGION_DESCRIPTION region;
	DAT_LMR_HANDLE lmr;
	DAT_LMR_CONTEXT context;
	DAT_RMR_CONTEXT key;
	DAT_VLEN length;
	DAT_VADDR address;
	DAT_EP_HANDLE ep, none;
	DAT_LMR_HANDLE nothing;
	int round;

	pthread_barrier_wait(&start);
	for (round = 0; round < ROUNDS; round++) {
		ep = DAT_HANDLE_NULL;
		refused += dat_ep_create(side.ia, side.pz, streams.recv, streams.request, streams.conn, NULL, &ep) != DAT_SUCCESS;
		eps[own] = ep;
		for (other = 0; other < MOST; other++)
			twins += other != own && ep && eps[other] == ep;
		region.for_va = side.memory + 64 * own;
		refused += dat_lmr_create(side.ia, DAT_MEM_TYPE_VIRTUAL, region, 64, side.pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA,
					  &lmr, &context, &key, &length, &address) != DAT_SUCCESS;
		refused += address != (DAT_VADDR) (uintptr_t) region.for_va || length != 64;
		eps[own] = NULL;
		refused += dat_ep_free(ep) != DAT_SUCCESS;
		refused += dat_lmr_free(lmr) != DAT_SUCCESS;
	}
	/* What is wrong is refused, whatever others do meanwhile. */
	for (round = 0; round < ROUNDS; round++) {
		accepted += DAT_GET_TYPE(dat_ep_create(side.ia, side.pz, side.pz, streams.request, streams.conn, NULL, &none)) != DAT_INVALID_HANDLE;
		accepted += DAT_GET_TYPE(dat_lmr_create(side.ia, DAT_MEM_TYPE_VIRTUAL, region, 0, side.pz, DAT_MEM_PRIV_ALL_FLAG,
							DAT_VA_TYPE_VA, &nothing, &context, &key, &length, &address)) != DAT_LENGTH_ERROR;
		accepted += DAT_GET_TYPE(dat_ep_free(ep)) != DAT_INVALID_HANDLE;
		accepted += DAT_GET_TYPE(dat_lmr_free(lmr)) != DAT_INVALID_HANDLE;
	}
	return NULL;
}

/* Two threads free the same Endpoint: one of them does. */
static void *freer(void *ep)
{
	pthread_barrier_wait(&start);
	return (void *) (size_t) (dat_ep_free(ep) == DAT_SUCCESS);
}

int main(int argc, char **argv)
{
	size_t count = atoi(getenv("THREADS")), nth, round, freed;
	pthread_t threads[MOST];
	pthread_attr_t attr;
	DAT_EP_HANDLE ep;
	void *result;

	if (!begin_alone(argc, argv) || count > MOST)
		return 2;
	side_open(&side, argv[1]);
	end_open(&streams, &side);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	pthread_barrier_init(&start, NULL, count);
	for (nth = 0; nth < count; nth++)
		if (pthread_create(threads + nth, &attr, maker, (void *) nth))
			return 2;
	for (nth = 0; nth < count; nth++)
		pthread_join(threads[nth], NULL);
	report(refused == 0, "no call of any thread is refused", "%d are", refused);
	report(accepted == 0, "what is wrong is refused", "%d are not", accepted);
	report(twins == 0, "no two threads get the same Endpoint", "%d do", twins);
	pthread_barrier_destroy(&start);
	pthread_barrier_init(&start, NULL, 2);
	for (round = freed = 0; round < ROUNDS; round++) {
		MUST(dat_ep_create(side.ia, side.pz, streams.recv, streams.request, streams.conn, NULL, &ep));
		for (nth = 0; nth < 2; nth++)
			if (pthread_create(threads + nth, &attr, freer, ep))
				return 2;
		for (nth = 0; nth < 2; nth++) {
			pthread_join(threads[nth], &result);
			freed += (size_t) result;
		}
	}
	report(freed == ROUNDS, "an Endpoint is freed once", "%d times of %d", (int) freed, (int) ROUNDS);
	end_close(&streams);
	side_close(&side);
	return failures != 0;
}
