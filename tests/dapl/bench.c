/*
 * What one RDMA write costs a C program: dat_ep_post_rdma_write and the dat_evd_dequeue that takes its completion, through the stock
 * registry; or the same for a list of writes and a burst of events, by dat_dapldat.h.
 *
 *     bench SERVER_IA CLIENT_IA ROUNDS NAP BYTES LIST
 *
 * Two names of dat.conf; both adapters are opened in this process. A LIST of 0 posts one by one. Run it twice, with two numbers of
 * rounds:
 *
 *     valgrind --tool=callgrind --toggle-collect='measured_*' bench hca0 hca1 20 1 64 0
 *     valgrind --tool=callgrind --toggle-collect='measured_*' bench hca0 hca1 120 1 64 0
 *
 * The difference of what is collected, divided by that of the rounds, is one round; all that is once per run cancels out. The two
 * calls count and nothing else, so the sleep of NAP milliseconds that lets the device work does not. A look that comes too early
 * would: it prints how many looks there were, and a longer NAP has as many as rounds. Not part of it is the doorbell of a device
 * behind a socket, a message, where a mapped register has one store: take what the profile has of vfio_host::user::VfioUser::write
 * away. Build the library with --profile provider.
 *
 * The recipe for memory, of the same kind: `valgrind --leak-check=full --errors-for-leak-kinds=definite --error-exitcode=9
 * dtestcm -P hca -c 100 -b 20`, on either side.
 */
#include "side.h"

#include <dat_dapldat.h>

enum { MOST = 32 };

static struct side server, client;
static struct end a, b;
static unsigned long looks;

/* One post and one dequeue: nothing else is counted, not even what it takes a program to have the arguments at hand. */
__attribute__((noinline)) static DAT_RETURN measured_post(DAT_EP_HANDLE ep, DAT_COUNT count, DAT_LMR_TRIPLET *here,
							  DAT_DTO_COOKIE word, DAT_RMR_TRIPLET *far, DAT_COMPLETION_FLAGS how)
{
	return dat_ep_post_rdma_write(ep, count, here, word, far, how);
}

__attribute__((noinline)) static DAT_RETURN measured_dequeue(DAT_EVD_HANDLE evd, DAT_EVENT *event)
{
	return dat_evd_dequeue(evd, event);
}

__attribute__((noinline)) static DAT_RETURN measured_list(DAT_EP_HANDLE ep, DAT_COUNT count, const DAT_DAPLDAT_RDMA *list,
							  DAT_COUNT *posted)
{
	return dat_dapldat_post_rdma_writes(ep, count, list, posted);
}

__attribute__((noinline)) static DAT_RETURN measured_burst(DAT_EVD_HANDLE evd, DAT_COUNT most, DAT_EVENT *events,
							   DAT_COUNT *dequeued)
{
	return dat_dapldat_evd_dequeue(evd, most, events, dequeued);
}

static int is_done(const DAT_EVENT *event, DAT_UINT64 cookie)
{
	return event->event_number == DAT_DTO_COMPLETION_EVENT &&
	       event->event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS &&
	       event->event_data.dto_completion_event_data.user_cookie.as_64 == cookie;
}

/* A look that comes too early shows as one more. */
static int one(DAT_LMR_TRIPLET *here, DAT_RMR_TRIPLET *far, const struct timespec *nap)
{
	DAT_EVENT event;

	memset(&event, 0, sizeof event);
	MUST(measured_post(a.ep, 1, here, cookie(1), far, DAT_COMPLETION_DEFAULT_FLAG));
	nanosleep(nap, NULL);
	while (looks++, measured_dequeue(a.request, &event) != DAT_SUCCESS)
		nanosleep(nap, NULL);
	return is_done(&event, 1);
}

/*
 * A write that does not count. The first post of an Endpoint takes the adapter's lock and advances the driver, whose work depends on
 * the clock; the first dequeue of a dispatcher takes the lock. Later ones take none.
 */
static int first(DAT_LMR_TRIPLET *here, DAT_RMR_TRIPLET *far, const struct timespec *nap)
{
	DAT_EVENT event;

	memset(&event, 0, sizeof event);
	MUST(dat_ep_post_rdma_write(a.ep, 1, here, cookie(1), far, DAT_COMPLETION_DEFAULT_FLAG));
	while (dat_evd_dequeue(a.request, &event) != DAT_SUCCESS)
		nanosleep(nap, NULL);
	return is_done(&event, 1);
}

static int several(const DAT_DAPLDAT_RDMA *list, DAT_COUNT count, const struct timespec *nap)
{
	DAT_EVENT events[MOST];
	DAT_COUNT nth, posted, some, dequeued = 0;

	memset(events, 0, sizeof events);
	MUST(measured_list(a.ep, count, list, &posted));
	nanosleep(nap, NULL);
	while (looks++, measured_burst(a.request, count - dequeued, events + dequeued, &some), (dequeued += some) < count)
		nanosleep(nap, NULL);
	for (nth = 0; nth < count; nth++)
		if (!is_done(events + nth, nth))
			return 0;
	return posted == count;
}

int main(int argc, char **argv)
{
	DAT_DAPLDAT_RDMA list[MOST];
	DAT_COUNT nth, count;
	size_t bytes;
	DAT_LMR_TRIPLET here;
	DAT_RMR_TRIPLET far;
	unsigned long rounds, round;
	struct timespec nap = {0, 0};

	if (argc != 7) {
		fprintf(stderr, "usage: %s SERVER_IA CLIENT_IA ROUNDS NAP BYTES LIST\n", argv[0]);
		return 2;
	}
	rounds = strtoul(argv[3], NULL, 10);
	nap.tv_nsec = strtoul(argv[4], NULL, 10) % 1000 * 1000000;
	bytes = strtoul(argv[5], NULL, 10);
	count = (DAT_COUNT) strtoul(argv[6], NULL, 10);
	if (count > MOST || bytes > BUFFER)
		return 2;
	side_open(&server, argv[1]);
	side_open(&client, argv[2]);
	end_open(&a, &client);
	end_open(&b, &server);
	if (!link_up(&a, &b)) {
		fprintf(stderr, "no connection\n");
		return 2;
	}
	here = part(&client, 0, bytes);
	far = far_part(&server, 0, bytes);
	for (nth = 0; nth < count; nth++)
		list[nth] = (DAT_DAPLDAT_RDMA) {cookie(nth), here, far, DAT_COMPLETION_DEFAULT_FLAG};
	if (!first(&here, &far, &nap)) {
		fprintf(stderr, "the first write: a wrong event\n");
		return 2;
	}
	for (round = 0; round < rounds; round++)
		if (!(count ? several(list, count, &nap) : one(&here, &far, &nap))) {
			fprintf(stderr, "round %lu: a wrong event\n", round);
			return 2;
		}
	if (!link_down(&a, &b))
		fprintf(stderr, "no disconnect\n");
	end_close(&a);
	end_close(&b);
	side_close(&server);
	side_close(&client);
	printf("%lu rounds, %lu looks\n", rounds, looks);
	return 0;
}
