/*
 * What one RDMA write costs a C program: dat_ep_post_rdma_write and the dat_evd_dequeue that takes its completion, through the stock
 * registry.
 *
 *     bench SERVER_IA CLIENT_IA ROUNDS NAP      two names of dat.conf; both adapters are opened in this process
 *
 * Run it twice, with two numbers of rounds:
 *
 *     valgrind --tool=callgrind --toggle-collect='measured_*' bench hca0 hca1 20 1
 *     valgrind --tool=callgrind --toggle-collect='measured_*' bench hca0 hca1 120 1
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

int main(int argc, char **argv)
{
	DAT_LMR_TRIPLET here;
	DAT_RMR_TRIPLET far;
	DAT_DTO_COOKIE word = {.as_64 = 1};
	DAT_EVENT event;
	unsigned long rounds, round;
	struct timespec nap = {0, 0};

	if (argc != 5) {
		fprintf(stderr, "usage: %s SERVER_IA CLIENT_IA ROUNDS NAP\n", argv[0]);
		return 2;
	}
	rounds = strtoul(argv[3], NULL, 10);
	nap.tv_nsec = strtoul(argv[4], NULL, 10) % 1000 * 1000000;
	side_open(&server, argv[1]);
	side_open(&client, argv[2]);
	end_open(&a, &client);
	end_open(&b, &server);
	if (!link_up(&a, &b)) {
		fprintf(stderr, "no connection\n");
		return 2;
	}
	here = part(&client, 0, 64);
	far = far_part(&server, 0, 64);
	for (round = 0; round < rounds; round++) {
		memset(&event, 0, sizeof event);
		MUST(measured_post(a.ep, 1, &here, word, &far, DAT_COMPLETION_DEFAULT_FLAG));
		nanosleep(&nap, NULL);
		while (looks++, measured_dequeue(a.request, &event) != DAT_SUCCESS)
			nanosleep(&nap, NULL);
		if (event.event_number != DAT_DTO_COMPLETION_EVENT ||
		    event.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS) {
			fprintf(stderr, "round %lu: event %#x\n", round, event.event_number);
			return 2;
		}
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
