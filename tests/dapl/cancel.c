/*
 * Threads that are cancelled while they wait for an Event Dispatcher or a CNO. Both are free of them afterwards: they can be freed, and
 * waited for anew.
 *
 *     cancel LIBRARY PARAMETERS PARAMETERS         built with -DALONE -rdynamic
 *
 * Lines and exit code are those of lists.c.
 */
#define _GNU_SOURCE
#include <dat2/udat.h>
#include "alone.h"
#include "side.h"

#include <pthread.h>

#define dat_cno_create DAT_CNO_CREATE
#define dat_cno_free DAT_CNO_FREE
#define dat_cno_wait DAT_CNO_WAIT

static DAT_EVD_HANDLE evd;
static DAT_CNO_HANDLE cno;
static DAT_TIMEOUT limit;

static void *waits_for_events(void *unused)
{
	DAT_EVENT event;
	DAT_COUNT more;

	(void) unused;
	dat_evd_wait(evd, limit, 1, &event, &more);
	return NULL;
}

static void *waits_for_the_cno(void *unused)
{
	DAT_EVD_HANDLE found;

	(void) unused;
	dat_cno_wait(cno, limit, &found);
	return NULL;
}

/* Whether a thread that was cancelled in its wait ends soon, by that. */
static int ends(void *(*waits)(void *))
{
	pthread_t thread;
	struct timespec soon;
	void *how = NULL;

	if (pthread_create(&thread, NULL, waits, NULL))
		return 0;
	usleep(50000);
	pthread_cancel(thread);
	clock_gettime(CLOCK_REALTIME, &soon);
	soon.tv_sec += 10;
	return pthread_timedjoin_np(thread, &how, &soon) == 0 && how == PTHREAD_CANCELED;
}

int main(int count, char **words)
{
	struct side side;
	DAT_TIMEOUT limits[] = { DAT_TIMEOUT_INFINITE, 60000000 };
	DAT_EVENT event;
	DAT_COUNT more;
	DAT_EVD_HANDLE found;
	DAT_OS_WAIT_PROXY_AGENT agent = DAT_OS_WAIT_PROXY_AGENT_NULL;
	size_t nth;

	if (!begin_alone(count, words))
		return 2;
	side_open(&side, words[1]);
	for (nth = 0; nth < 2; nth++) {
		limit = limits[nth];
		MUST(dat_cno_create(side.ia, agent, &cno));
		evd = evd_of(&side, DAT_EVD_SOFTWARE_FLAG, 8);
		CHECK("a cancelled wait for events ends", ends(waits_for_events));
		EXPECT("the next wait is the only one", dat_evd_wait(evd, 1000, 1, &event, &more), DAT_TIMEOUT_EXPIRED);
		CHECK("so does the next", ends(waits_for_events));
		EXPECT("its Event Dispatcher has no waiter", dat_evd_free(evd), DAT_SUCCESS);
		CHECK("a cancelled wait for a CNO ends", ends(waits_for_the_cno));
		EXPECT("the next wait of it is the only one", dat_cno_wait(cno, 1000, &found), DAT_QUEUE_EMPTY);
		EXPECT("its CNO can be freed", dat_cno_free(cno), DAT_SUCCESS);
	}
	side_close(&side);
	return failures != 0;
}
