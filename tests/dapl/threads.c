/*
 * Many connections, many threads and signals, over a provider that was asked to be safe for threads.
 *
 *     threads SERVER_IA CLIENT_IA CONNECTIONS THREADS      two names of dat.conf, both opened in this process
 *
 * First so many connections one after another, each of Endpoints of its own: what the process holds is printed after the first hundred
 * and from then on at every ten times as many, and must not grow. Then as many threads at once, each of which connects, writes and
 * disconnects again and again, while all completions of all of them come to one Event Dispatcher that all of them dequeue from.
 * Then waits that a signal interrupts. Lines and result as those of `probe`.
 */
#define _GNU_SOURCE

#include <dat2/udat.h>
/* Which registration dat_ia_open asks for. */
#undef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_TRUE

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>

#include "side.h"

enum { ROUNDS = 20, WRITES = 40, MOST = 64, WARM = 1000 };

static struct side server, client;

/* ---- what a process holds ------------------------------------------------------------------------------------------------ */

struct held {
	long resident, heap, mappings, files, threads;
};

static long entries(const char *folder)
{
	DIR *dir = opendir(folder);
	long count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

static struct held held(void)
{
	struct held it;
	struct mallinfo2 heap = mallinfo2();
	FILE *file = fopen("/proc/self/statm", "r");
	int letter;

	memset(&it, 0, sizeof it);
	if (!file || fscanf(file, "%*d %ld", &it.resident) != 1)
		exit(2);
	fclose(file);
	it.resident *= sysconf(_SC_PAGESIZE);
	it.heap = (long) (heap.uordblks + heap.hblkhd);
	file = fopen("/proc/self/maps", "r");
	while (file && (letter = getc(file)) != EOF)
		it.mappings += letter == '\n';
	if (file)
		fclose(file);
	it.files = entries("/proc/self/fd");
	it.threads = entries("/proc/self/task");
	return it;
}

/* ---- one after another --------------------------------------------------------------------------------------------------- */

/* One connection of two new Endpoints that uses what is there: the peer's service point, and Event Dispatchers. */
static int one_connection(struct end *here, struct end *there, DAT_EVD_HANDLE requests, unsigned at)
{
	DAT_EVENT event;
	DAT_RMR_TRIPLET to = far_part(there->side, 0, 64);
	DAT_LMR_TRIPLET from = part(here->side, 0, 64);

	MUST(dat_ep_create(here->side->ia, here->side->pz, here->recv, here->request, here->conn, NULL, &here->ep));
	MUST(dat_ep_create(there->side->ia, there->side->pz, there->recv, there->request, there->conn, NULL, &there->ep));
	MUST(dat_ep_connect(here->ep, (DAT_IA_ADDRESS_PTR) &there->side->address, at, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	if (next(requests, &event, LIMIT) != DAT_CONNECTION_REQUEST_EVENT)
		return 0;
	MUST(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, there->ep, 0, NULL));
	if (next(there->conn, &event, LIMIT) != DAT_CONNECTION_EVENT_ESTABLISHED ||
	    next(here->conn, &event, LIMIT) != DAT_CONNECTION_EVENT_ESTABLISHED)
		return 0;
	MUST(dat_ep_post_rdma_write(here->ep, 1, &from, cookie(1), &to, DAT_COMPLETION_DEFAULT_FLAG));
	if (next(here->request, &event, LIMIT) != DAT_DTO_COMPLETION_EVENT ||
	    event.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS || !link_down(here, there))
		return 0;
	MUST(dat_ep_free(here->ep));
	MUST(dat_ep_free(there->ep));
	here->ep = there->ep = DAT_HANDLE_NULL;
	return 1;
}

static void one_after_another(long connections)
{
	struct end here, there;
	DAT_EVD_HANDLE requests = evd_of(&server, DAT_EVD_CR_FLAG, 8);
	DAT_PSP_HANDLE psp;
	unsigned at = port++;
	struct held before, now;
	long made, look = 100;
	char name[64];

	memset(&before, 0, sizeof before);
	end_open(&here, &client);
	end_open(&there, &server);
	MUST(dat_ep_free(here.ep));
	MUST(dat_ep_free(there.ep));
	here.ep = there.ep = DAT_HANDLE_NULL;
	MUST(dat_psp_create(server.ia, at, requests, DAT_PSP_CONSUMER_FLAG, &psp));
	for (made = 1; made <= connections; made++) {
		if (!one_connection(&here, &there, requests, at)) {
			snprintf(name, sizeof name, "connection %ld", made);
			report(0, name, "it does not come about, or does not end");
			exit(1);
		}
		if (made != look)
			continue;
		look *= 10;
		now = held();
		printf("after %ld: %ld KiB resident, %ld bytes of heap, %ld mappings, %ld files, %ld threads\n", made,
		       now.resident >> 10, now.heap, now.mappings, now.files, now.threads);
		/* A place of an object that was freed rests until a thousand others were: up to then the heap grows. */
		if (before.files) {
			snprintf(name, sizeof name, "nothing is left of %ld connections", made);
			report(now.files == before.files && now.threads == before.threads &&
				       (made <= WARM || (now.heap - before.heap < 4096 && now.mappings <= before.mappings &&
							 now.resident - before.resident < 1 << 20)),
			       name, "it holds more than before");
		}
		before = now;
	}
	MUST(dat_psp_free(psp));
	MUST(dat_evd_free(requests));
	end_close(&here);
	end_close(&there);
}

/* ---- threads ------------------------------------------------------------------------------------------------------------- */

struct worker {
	pthread_t thread;
	unsigned number, at;
	DAT_EVD_HANDLE requests;
	DAT_PSP_HANDLE psp;
	struct end here, there;
	long posted;
	const char *trouble;
};

static DAT_EVD_HANDLE common;
static long completed, good, of_worker[MOST];

/* Takes one completion, of whosever write it is, if there is one. */
static int take(void)
{
	DAT_EVENT event;

	if (dat_evd_dequeue(common, &event) != DAT_SUCCESS)
		return 0;
	__atomic_add_fetch(&completed, 1, __ATOMIC_RELAXED);
	if (event.event_number == DAT_DTO_COMPLETION_EVENT &&
	    event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS &&
	    event.event_data.dto_completion_event_data.transfered_length == 8)
		__atomic_add_fetch(&good, 1, __ATOMIC_RELAXED);
	if (event.event_data.dto_completion_event_data.user_cookie.as_64 < MOST)
		__atomic_add_fetch(of_worker + event.event_data.dto_completion_event_data.user_cookie.as_64, 1, __ATOMIC_RELAXED);
	return 1;
}

/* Waits until so many are taken. */
static int all_taken(long many)
{
	time_t until = time(NULL) + 60;

	while (__atomic_load_n(&completed, __ATOMIC_RELAXED) < many)
		if (!take() && time(NULL) > until)
			return 0;
	return 1;
}

static const char *round_of(struct worker *own)
{
	struct end *here = &own->here, *there = &own->there;
	DAT_EVENT event;
	uint64_t *from = (uint64_t *) (client.memory + 64 * own->number), word = *from + 1;
	volatile uint64_t *to = (uint64_t *) (server.memory + 64 * own->number);
	DAT_LMR_TRIPLET source = part(&client, 64 * own->number, 8);
	DAT_RMR_TRIPLET sink = far_part(&server, 64 * own->number, 8);
	DAT_EP_STATE state;
	DAT_BOOLEAN idle, done = DAT_FALSE;
	time_t until = time(NULL) + 60;
	int write;

	MUST(dat_ep_create(client.ia, client.pz, here->recv, common, here->conn, NULL, &here->ep));
	MUST(dat_ep_create(server.ia, server.pz, there->recv, there->request, there->conn, NULL, &there->ep));
	MUST(dat_ep_connect(here->ep, (DAT_IA_ADDRESS_PTR) &server.address, own->at, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	if (next(own->requests, &event, LIMIT) != DAT_CONNECTION_REQUEST_EVENT)
		return "no request";
	MUST(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, there->ep, 0, NULL));
	if (next(there->conn, &event, LIMIT) != DAT_CONNECTION_EVENT_ESTABLISHED ||
	    event.event_data.connect_event_data.ep_handle != there->ep)
		return "the server is not established";
	if (next(here->conn, &event, LIMIT) != DAT_CONNECTION_EVENT_ESTABLISHED ||
	    event.event_data.connect_event_data.ep_handle != here->ep)
		return "the client is not established";
	*from = word;
	for (write = 0; write < WRITES; write++)
		MUST(dat_ep_post_rdma_write(here->ep, 1, &source, cookie(own->number), &sink, DAT_COMPLETION_DEFAULT_FLAG));
	own->posted += WRITES;
	/* Its own may be taken by any of the others. What is not taken when the Endpoint is freed is lost. */
	while (__atomic_load_n(of_worker + own->number, __ATOMIC_RELAXED) < own->posted)
		if (!take() && time(NULL) > until)
			return "completions are missing";
	MUST(dat_ep_get_status(here->ep, &state, &idle, &done));
	if (!done)
		return "all is completed, and the status does not say so";
	if (*to != word)
		return "what was written is not there";
	if (!link_down(here, there))
		return "no end";
	MUST(dat_ep_free(here->ep));
	MUST(dat_ep_free(there->ep));
	return NULL;
}

static void *work(void *argument)
{
	struct worker *own = argument;
	int round;

	for (round = 0; round < ROUNDS && !own->trouble; round++)
		own->trouble = round_of(own);
	return NULL;
}

static void at_once(unsigned threads)
{
	static struct worker workers[MOST];
	struct worker *own;
	long all = (long) threads * ROUNDS * WRITES;

	common = evd_of(&client, DAT_EVD_DTO_FLAG, (int) threads * WRITES);
	for (own = workers; own < workers + threads; own++) {
		own->number = (unsigned) (own - workers);
		own->at = port++;
		own->requests = evd_of(&server, DAT_EVD_CR_FLAG, 8);
		MUST(dat_psp_create(server.ia, own->at, own->requests, DAT_PSP_CONSUMER_FLAG, &own->psp));
		end_open(&own->here, &client);
		end_open(&own->there, &server);
		MUST(dat_ep_free(own->here.ep));
		MUST(dat_ep_free(own->there.ep));
	}
	for (own = workers; own < workers + threads; own++)
		if (pthread_create(&own->thread, NULL, work, own))
			exit(2);
	for (own = workers; own < workers + threads; own++) {
		pthread_join(own->thread, NULL);
		if (own->trouble)
			report(0, "a thread", "thread %u: %s", own->number, own->trouble);
	}
	CHECK("every completion of every thread is taken once", all_taken(all) && completed == all && good == all && !take());
	for (own = workers; own < workers + threads; own++) {
		own->here.ep = own->there.ep = DAT_HANDLE_NULL;
		MUST(dat_psp_free(own->psp));
		MUST(dat_evd_free(own->requests));
		end_close(&own->here);
		end_close(&own->there);
	}
	MUST(dat_evd_free(common));
}

/* ---- signals ------------------------------------------------------------------------------------------------------------- */

struct waiter {
	pthread_t thread;
	pid_t number;
	DAT_EVD_HANDLE evd;
	DAT_CNO_HANDLE cno;
	DAT_RETURN got;
	DAT_EVENT event;
	int over;
};

static volatile sig_atomic_t signals;

static void noted(int signal)
{
	(void) signal;
	signals++;
}

static void *waits(void *argument)
{
	struct waiter *own = argument;
	DAT_EVD_HANDLE from;
	DAT_COUNT more;

	__atomic_store_n(&own->number, gettid(), __ATOMIC_RELEASE);
	own->got = own->cno ? dat_cno_wait(own->cno, DAT_TIMEOUT_INFINITE, &from)
			    : dat_evd_wait(own->evd, DAT_TIMEOUT_INFINITE, 1, &own->event, &more);
	__atomic_store_n(&own->over, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Begins a wait, and lets it fall asleep. */
static void begin(struct waiter *own, DAT_EVD_HANDLE evd, DAT_CNO_HANDLE cno)
{
	char path[64], state = 0;
	int tries;

	memset(own, 0, sizeof *own);
	own->evd = evd;
	own->cno = cno;
	if (pthread_create(&own->thread, NULL, waits, own))
		exit(2);
	for (tries = 0; tries < 5000 && state != 'S'; tries++) {
		FILE *file = NULL;
		pid_t number = __atomic_load_n(&own->number, __ATOMIC_ACQUIRE);

		usleep(1000);
		snprintf(path, sizeof path, "/proc/self/task/%d/stat", number);
		if (number && (file = fopen(path, "r")) != NULL) {
			if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
				state = 0;
			fclose(file);
		}
	}
	/* Asleep for a lock of the provider's it would have been for a moment only. */
	usleep(20000);
}

static int over(struct waiter *own)
{
	int tries;

	for (tries = 0; tries < 5000 && !__atomic_load_n(&own->over, __ATOMIC_ACQUIRE); tries++)
		usleep(1000);
	if (!own->over)
		return 0;
	pthread_join(own->thread, NULL);
	return 1;
}

static void *idles(void *argument)
{
	while (!__atomic_load_n((int *) argument, __ATOMIC_ACQUIRE))
		usleep(1000);
	return NULL;
}

static DAT_EVENT software(DAT_EVD_HANDLE evd)
{
	DAT_EVENT event;

	memset(&event, 0, sizeof event);
	event.event_number = DAT_SOFTWARE_EVENT;
	event.evd_handle = evd;
	event.event_data.software_event_data.pointer = &server;
	return event;
}

static void interrupted(void)
{
	struct sigaction action;
	struct waiter waiter;
	DAT_EVD_HANDLE evd, attached;
	DAT_CNO_HANDLE cno;
	DAT_EVENT event;
	pthread_t other;
	int flags, end = 0;

	evd = evd_of(&server, DAT_EVD_SOFTWARE_FLAG, 8);
	MUST(dat_cno_create(server.ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
	MUST(dat_evd_create(server.ia, 8, cno, DAT_EVD_SOFTWARE_FLAG, &attached));
	event = software(evd);
	for (flags = 0; flags < 2; flags++) {
		memset(&action, 0, sizeof action);
		action.sa_handler = noted;
		action.sa_flags = flags ? SA_RESTART : 0;
		sigaction(SIGUSR1, &action, NULL);
		signals = 0;
		begin(&waiter, evd, DAT_HANDLE_NULL);
		pthread_kill(waiter.thread, SIGUSR1);
		if (flags) {
			usleep(50000);
			CHECK("a signal with SA_RESTART ends no wait for events",
			      signals == 1 && !__atomic_load_n(&waiter.over, __ATOMIC_ACQUIRE));
			MUST(dat_evd_post_se(evd, &event));
			CHECK("which goes on to its event", over(&waiter) && waiter.got == DAT_SUCCESS);
		} else {
			CHECK("a signal ends a wait for events", over(&waiter) && signals == 1);
			CHECK("and it says so", is(waiter.got, DAT_INTERRUPTED_CALL));
		}
		begin(&waiter, DAT_HANDLE_NULL, cno);
		pthread_kill(waiter.thread, SIGUSR1);
		if (flags) {
			usleep(50000);
			CHECK("nor a wait for a trigger", signals == 2 && !__atomic_load_n(&waiter.over, __ATOMIC_ACQUIRE));
			event = software(attached);
			MUST(dat_evd_post_se(attached, &event));
			CHECK("which goes on to that", over(&waiter) && waiter.got == DAT_SUCCESS);
			MUST(dat_evd_dequeue(attached, &event));
			event = software(evd);
		} else {
			CHECK("a signal ends a wait for a trigger", over(&waiter) && signals == 2);
			CHECK("and that says so", is(waiter.got, DAT_INTERRUPTED_CALL));
		}
	}
	if (pthread_create(&other, NULL, idles, &end))
		exit(2);
	begin(&waiter, evd, DAT_HANDLE_NULL);
	pthread_kill(other, SIGUSR1);
	usleep(50000);
	CHECK("a signal for another thread ends no wait", signals == 3 && !__atomic_load_n(&waiter.over, __ATOMIC_ACQUIRE));
	MUST(dat_evd_post_se(evd, &event));
	CHECK("after all of them a wait ends by its event", over(&waiter) && waiter.got == DAT_SUCCESS &&
								     waiter.event.event_number == DAT_SOFTWARE_EVENT);
	__atomic_store_n(&end, 1, __ATOMIC_RELEASE);
	pthread_join(other, NULL);
	begin(&waiter, DAT_HANDLE_NULL, cno);
	event = software(attached);
	MUST(dat_evd_post_se(attached, &event));
	CHECK("and one for a trigger by that", over(&waiter) && waiter.got == DAT_SUCCESS);
	MUST(dat_evd_dequeue(attached, &event));
	MUST(dat_evd_free(attached));
	MUST(dat_cno_free(cno));
	MUST(dat_evd_free(evd));
}

int main(int argc, char **argv)
{
	long connections, threads;

	if (argc != 5 || (connections = strtol(argv[3], NULL, 10)) < 100 || (threads = strtol(argv[4], NULL, 10)) < 1 ||
	    threads > MOST) {
		fprintf(stderr, "usage: %s SERVER_IA CLIENT_IA CONNECTIONS THREADS, 100 and 1 to %d\n", argv[0], MOST);
		return 2;
	}
	side_open(&server, argv[1]);
	side_open(&client, argv[2]);
	interrupted();
	at_once((unsigned) threads);
	one_after_another(connections);
	side_close(&client);
	side_close(&server);
	printf("%d of %d are ok\n", checks - failures, checks);
	return failures != 0;
}
