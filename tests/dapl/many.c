/*
 * Eight threads of an MPI program that asked for MPI_THREAD_MULTIPLE: each writes on an Endpoint of its own and polls the last byte at
 * the far end, as MPI libraries do. Four have an Event Dispatcher of their own and wait there; four share one, where each takes what
 * comes for any of them. Each registers memory anew now and then.
 *
 *     many LIBRARY PARAMETERS PARAMETERS            built with -DALONE -rdynamic
 *
 * Lines and exit code are those of lists.c.
 */
#include <dat2/udat.h>
#undef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_TRUE
#include "alone.h"
#include "side.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS = 8, EACH = 400, PLACE = BUFFER / THREADS, LONGEST = PLACE - 8 };

static struct side near_side, far_side;
static struct end a[THREADS], b[THREADS];
static DAT_EVD_HANDLE shared;
static atomic_int completed[THREADS], failed, twice, early, different;

/* Notes a completion: of which thread, and the how manieth. */
static void note(const DAT_EVENT *event)
{
	const DAT_DTO_COMPLETION_EVENT_DATA *data = &event->event_data.dto_completion_event_data;
	size_t of = data->user_cookie.as_64 >> 32;

	if (event->event_number != DAT_DTO_COMPLETION_EVENT || data->status != DAT_DTO_SUCCESS || of >= THREADS)
		failed++;
	else if ((DAT_UINT32) data->user_cookie.as_64 != (DAT_UINT32) completed[of]++)
		twice++;
}

static void complete(size_t own, int nth)
{
	DAT_EVENT event;
	DAT_COUNT more;
	DAT_RETURN got;

	while (completed[own] <= nth && !failed) {
		if (own % 2)
			got = dat_evd_dequeue(shared, &event);
		else
			got = dat_evd_wait(a[own].request, LIMIT, 1, &event, &more);
		if (got == DAT_SUCCESS)
			note(&event);
		else if (own % 2 && DAT_GET_TYPE(got) == DAT_QUEUE_EMPTY)
			sched_yield();
		else
			failed++;
	}
}

static void *writer(void *number)
{
	size_t own = (size_t) number, at = own * PLACE, length, byte;
	unsigned char *from = near_side.memory + at, *to = far_side.memory + at;
	DAT_REGION_DESCRIPTION region;
	DAT_LMR_HANDLE lmr = DAT_HANDLE_NULL;
	DAT_LMR_CONTEXT context;
	DAT_RMR_CONTEXT key;
	DAT_VLEN whole;
	DAT_VADDR start;
	DAT_LMR_TRIPLET local;
	DAT_RMR_TRIPLET remote;
	int nth;

	for (nth = 0; nth < EACH && !failed; nth++) {
		/* Any length, at odd addresses. */
		length = 1 + (own * 977 + (size_t) nth * 397) % LONGEST;
		local = part(&near_side, at, length);
		remote = far_part(&far_side, at + nth % 8, length);
		if (nth % 16 == own) {
			region.for_va = to;
			failed += dat_lmr_create(far_side.ia, DAT_MEM_TYPE_VIRTUAL, region, PLACE, far_side.pz, DAT_MEM_PRIV_ALL_FLAG,
						 DAT_VA_TYPE_VA, &lmr, &context, &key, &whole, &start) != DAT_SUCCESS;
			remote.rmr_context = key;
		}
		for (byte = 0; byte < length; byte++) {
			from[byte] = (unsigned char) ((byte * 7 + nth) & 0x7f);
			to[nth % 8 + byte] = 0xff;
		}
		if (dat_ep_post_rdma_write(a[own].ep, 1, &local, cookie((DAT_UINT64) own << 32 | (DAT_UINT64) nth), &remote,
					   DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS) {
			failed++;
			break;
		}
		while (__atomic_load_n(to + nth % 8 + length - 1, __ATOMIC_ACQUIRE) == 0xff && !failed)
			sched_yield();
		early += memcmp(from, to + nth % 8, length) != 0;
		complete(own, nth);
		different += memcmp(from, to + nth % 8, length) != 0;
		if (lmr != DAT_HANDLE_NULL)
			failed += dat_lmr_free(lmr) != DAT_SUCCESS;
		lmr = DAT_HANDLE_NULL;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	size_t nth;
	int good = 1;

	alarm(100);
	if (!begin_alone(argc, argv))
		return 2;
	side_open(&near_side, argv[1]);
	side_open(&far_side, argv[2]);
	shared = evd_of(&near_side, DAT_EVD_DTO_FLAG, 4 * DEPTH);
	for (nth = 0; nth < THREADS; nth++) {
		end_open(&a[nth], &near_side);
		end_open(&b[nth], &far_side);
		if (nth % 2) {
			MUST(dat_ep_free(a[nth].ep));
			MUST(dat_ep_create(near_side.ia, near_side.pz, a[nth].recv, shared, a[nth].conn, NULL, &a[nth].ep));
		}
		good &= link_up(&a[nth], &b[nth]);
	}
	CHECK("eight Endpoints connect", good);
	for (nth = 0; nth < THREADS; nth++)
		if (pthread_create(threads + nth, NULL, writer, (void *) nth))
			return 2;
	for (nth = 0; nth < THREADS; nth++)
		pthread_join(threads[nth], NULL);
	report(failed == 0, "no call of any thread fails", "%d do", failed);
	report(twice == 0, "each request completes once and in order", "%d do not", twice);
	report(early == 0, "whoever sees the last byte sees all others", "%d times not", early);
	report(different == 0, "every byte is right", "%d times not", different);
	for (nth = 0; nth < THREADS; nth++) {
		good &= completed[nth] == EACH && link_down(&a[nth], &b[nth]);
		end_close(&a[nth]);
		end_close(&b[nth]);
	}
	CHECK("and all complete", good);
	MUST(dat_evd_free(shared));
	side_close(&near_side);
	side_close(&far_side);
	return failures != 0;
}
