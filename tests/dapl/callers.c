/*
 * Threads that share an Endpoint and its Event Dispatcher, by the operations of dat_dapldat.h: some post lists, some take bursts,
 * one rings, asks and resizes meanwhile. The consumer has asked for a provider that is thread safe.
 *
 *     callers LIBRARY PARAMETERS PARAMETERS         built with -DALONE -rdynamic
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

#include <dat_dapldat.h>

enum { POSTERS = 4, REAPERS = 2, EACH = 2000, SOME = 8, QUEUE = 4096 };

static struct side near_side, far_side;
static struct end a, b;
/* How often each write has completed; what is wrong. */
static atomic_uchar completed[POSTERS][EACH];
static atomic_int events, unknown_events, refused, unordered, over;

static void *poster(void *number)
{
	size_t own = (size_t) number;
	DAT_DAPLDAT_RDMA list[SOME];
	DAT_COUNT done = 0, nth, posted;
	DAT_RETURN got;

	while (done < EACH && !over) {
		for (nth = 0; nth < SOME; nth++) {
			list[nth].cookie = cookie((DAT_UINT64) own << 32 | (DAT_UINT64) (done + nth));
			list[nth].local = part(&near_side, 64 * own, 64);
			list[nth].remote = far_part(&far_side, 64 * own, 64);
			list[nth].flags = done % 3 ? DAT_COMPLETION_DEFAULT_FLAG : DAT_DAPLDAT_DEFER_FLAG;
		}
		nth = EACH - done < SOME ? EACH - done : SOME;
		posted = -1;
		got = dat_dapldat_post_rdma_writes(a.ep, nth, list, &posted);
		if (posted < 0 || posted > nth || (got == DAT_SUCCESS) != (posted == nth) ||
		    (got != DAT_SUCCESS && DAT_GET_TYPE(got) != DAT_INSUFFICIENT_RESOURCES)) {
			refused++;
			return NULL;
		}
		done += posted;
	}
	return NULL;
}

static void *reaper(void *unused)
{
	DAT_EVENT come[SOME];
	const DAT_DTO_COMPLETION_EVENT_DATA *data;
	DAT_UINT64 last[POSTERS], own, nth;
	DAT_COUNT some, at;

	(void) unused;
	memset(last, 0, sizeof last);
	while (!over) {
		if (dat_dapldat_evd_dequeue(a.request, SOME, come, &some) != DAT_SUCCESS)
			continue;
		for (at = 0; at < some; at++) {
			data = &come[at].event_data.dto_completion_event_data;
			own = data->user_cookie.as_64 >> 32;
			nth = data->user_cookie.as_64 & 0xffffffff;
			if (come[at].event_number != DAT_DTO_COMPLETION_EVENT || data->ep_handle != a.ep ||
			    data->status != DAT_DTO_SUCCESS || own >= POSTERS || nth >= EACH) {
				unknown_events++;
				continue;
			}
			/* What one thread takes of one thread's posts is in order. */
			unordered += nth < last[own];
			last[own] = nth;
			completed[own][nth]++;
			events++;
		}
	}
	return NULL;
}

/* Each of these takes poster or reaper away from the others for a while. */
static void *meddler(void *unused)
{
	DAT_EP_PARAM ep;
	DAT_EVD_PARAM evd;
	DAT_EVENT event;
	int turn = 0;

	(void) unused;
	while (!over) {
		refused += dat_evd_resize(a.request, QUEUE + QUEUE * (++turn & 1)) != DAT_SUCCESS;
		refused += dat_dapldat_ring(a.ep) != DAT_SUCCESS;
		refused += dat_ep_query(a.ep, DAT_EP_FIELD_ALL, &ep) != DAT_SUCCESS;
		refused += dat_evd_query(a.request, DAT_EVD_FIELD_ALL, &evd) != DAT_SUCCESS;
		refused += DAT_GET_TYPE(dat_dapldat_evd_dequeue(a.ep, 1, &event, NULL)) != DAT_INVALID_HANDLE;
		refused += DAT_GET_TYPE(dat_dapldat_post_sends(a.request, 0, NULL, NULL)) != DAT_INVALID_HANDLE;
		usleep(50);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[POSTERS + REAPERS + 1];
	size_t nth, twice = 0, never = 0, at;

	if (!begin_alone(argc, argv))
		return 2;
	side_open(&far_side, argv[1]);
	side_open(&near_side, argv[2]);
	end_open(&b, &far_side);
	a.side = &near_side;
	a.recv = evd_of(&near_side, DAT_EVD_DTO_FLAG, DEPTH);
	a.request = evd_of(&near_side, DAT_EVD_DTO_FLAG, QUEUE);
	a.conn = evd_of(&near_side, DAT_EVD_CONNECTION_FLAG, 16);
	MUST(dat_ep_create(near_side.ia, near_side.pz, a.recv, a.request, a.conn, NULL, &a.ep));
	if (!link_up(&a, &b))
		return 2;
	for (nth = 0; nth < POSTERS; nth++)
		pthread_create(threads + nth, NULL, poster, (void *) nth);
	for (; nth < POSTERS + REAPERS; nth++)
		pthread_create(threads + nth, NULL, reaper, NULL);
	pthread_create(threads + nth, NULL, meddler, NULL);
	for (nth = 0; nth < LIMIT / 1000 * 4 && events < POSTERS * EACH && !refused; nth++)
		usleep(1000);
	/* What comes twice comes soon. */
	usleep(SOME * 1000);
	over = 1;
	for (nth = 0; nth < POSTERS + REAPERS + 1; nth++)
		pthread_join(threads[nth], NULL);
	for (nth = 0; nth < POSTERS; nth++)
		for (at = 0; at < EACH; at++) {
			twice += completed[nth][at] > 1;
			never += completed[nth][at] == 0;
		}
	report(refused == 0, "no call of any thread is refused", "%d", refused);
	report(unknown_events == 0, "each event is of a write", "%d are not", unknown_events);
	report(unordered == 0, "each thread sees the writes of another in order", "%d are not", unordered);
	report(never == 0, "each write completes", "%d do not", (int) never);
	report(twice == 0, "and once", "%d twice", (int) twice);
	CHECK("the connection ends", link_down(&a, &b));
	end_close(&a);
	end_close(&b);
	side_close(&near_side);
	side_close(&far_side);
	return failures != 0;
}
