/*
 * What MPI programs do beside their traffic: fork, system, popen, and signals at a thousand a second. Heap and stack of the program are
 * registered at odd addresses, and a thread of it writes from one adapter to the other meanwhile and compares every byte.
 *
 *     child LIBRARY PARAMETERS PARAMETERS           built with -DALONE -rdynamic
 *
 * Lines and exit code are those of lists.c.
 */
#define _GNU_SOURCE
#include <dat2/udat.h>
#undef DAT_THREADSAFE
#define DAT_THREADSAFE DAT_TRUE
#include "alone.h"
#include "side.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { SIZE = 50001, SOME = 6000, ROUNDS = 24, SIGNALLED = 20, WAIT = 50000, FAR = 65536 };

static struct side near_side, far_side;
static struct end a, b;

/* A piece of this program's memory, registered at either adapter. */
struct piece {
	unsigned char *at;
	size_t size;
	DAT_LMR_HANDLE lmr;
	DAT_LMR_CONTEXT context;
	DAT_RMR_CONTEXT key;
};

static void enrol(struct piece *piece, struct side *side, void *at, size_t size)
{
	DAT_REGION_DESCRIPTION region;
	DAT_VLEN length;
	DAT_VADDR start;

	piece->at = at;
	piece->size = size;
	region.for_va = at;
	MUST(dat_lmr_create(side->ia, DAT_MEM_TYPE_VIRTUAL, region, size, side->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &piece->lmr,
			    &piece->context, &piece->key, &length, &start));
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

/* ---- traffic ------------------------------------------------------------------------------------------------------------- */

enum { PIECES = 3 };

static struct piece from, to[PIECES];
static atomic_int stop, written, wrong;

/* Waits for one event, however often a signal interrupts. */
static DAT_RETURN patient(DAT_EVD_HANDLE evd, DAT_EVENT *event)
{
	DAT_COUNT more;
	DAT_RETURN got;

	do
		got = dat_evd_wait(evd, LIMIT, 1, event, &more);
	while (DAT_GET_TYPE(got) == DAT_INTERRUPTED_CALL);
	return got;
}

/* Writes all of `from` over as much of the piece as it covers, again and again with other contents, and compares. */
static int once(const struct piece *piece, unsigned seed)
{
	size_t length = piece->size < from.size ? piece->size : from.size, nth;
	DAT_LMR_TRIPLET local = { .lmr_context = from.context, .virtual_address = (DAT_VADDR) (uintptr_t) from.at };
	DAT_RMR_TRIPLET remote = { .rmr_context = piece->key, .virtual_address = (DAT_VADDR) (uintptr_t) piece->at };
	DAT_EVENT event;

	local.segment_length = remote.segment_length = (DAT_SEG_LENGTH) length;
	for (nth = 0; nth < length; nth++)
		from.at[nth] = (unsigned char) (seed + nth * 7);
	if (dat_ep_post_rdma_write(a.ep, 1, &local, cookie(seed), &remote, DAT_COMPLETION_DEFAULT_FLAG) != DAT_SUCCESS ||
	    patient(a.request, &event) != DAT_SUCCESS || event.event_number != DAT_DTO_COMPLETION_EVENT ||
	    event.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS ||
	    event.event_data.dto_completion_event_data.user_cookie.as_64 != seed)
		return 0;
	return memcmp(piece->at, from.at, length) == 0;
}

static void *writer(void *unused)
{
	unsigned seed = 0;

	while (!stop) {
		wrong += !once(&to[seed % PIECES], seed);
		seed++;
		written++;
	}
	return unused;
}

/* ---- children ------------------------------------------------------------------------------------------------------------ */

/* Waits for so many more writes: what a child did has had time to reach this process by then. */
static void writes(int more)
{
	int until = written + more;

	while (written < until && !wrong)
		usleep(100);
}

static int filled(const unsigned char *at, size_t size, int with)
{
	size_t nth;

	for (nth = 0; nth < size; nth++)
		if (at[nth] != (unsigned char) with)
			return 0;
	return 1;
}

static int descriptors_stay_behind(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	char path[300], target[300];
	ssize_t length;
	int good = dir != NULL;

	while (dir && (entry = readdir(dir)) != NULL) {
		snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
		length = readlink(path, target, sizeof target - 1);
		target[length > 0 ? length : 0] = 0;
		if (strstr(target, "socket:") || strstr(target, "dat-") || strstr(target, "eventfd") || strstr(target, "eventpoll"))
			good &= (fcntl(atoi(entry->d_name), F_GETFD) & FD_CLOEXEC) != 0;
	}
	if (dir)
		closedir(dir);
	return good;
}

/* The child: what it has is as at the fork, and what it does to it is its own affair. */
static void child(int round, struct piece *still, int pieces)
{
	int nth;

	/* One that waits for what only its parent has would hold what its parent has open. */
	alarm(20);
	for (nth = 0; nth < pieces; nth++)
		if (!filled(still[nth].at, still[nth].size, round))
			_exit(10 + nth);
	for (nth = 0; nth < pieces; nth++) {
		memset(still[nth].at, 0xcc, still[nth].size);
		if (!filled(still[nth].at, still[nth].size, 0xcc))
			_exit(20 + nth);
	}
	memset(from.at, 0xcc, from.size);
	for (nth = 0; nth < PIECES; nth++)
		memset(to[nth].at, 0xcc, to[nth].size);
	memset(near_side.memory, 0xcc, BUFFER);
	switch (round % 3) {
	case 0:
		_exit(0);
	case 1:
		execl("/bin/true", "true", (char *) NULL);
		_exit(30);
	default:
		exit(0);
	}
}

static void children(struct piece *still, int pieces, const char *name)
{
	int round, nth, status, good = 0, kept = 0;
	char line[200];
	pid_t pid;

	for (round = 0; round < ROUNDS; round++) {
		for (nth = 0; nth < pieces; nth++)
			memset(still[nth].at, round, still[nth].size);
		pid = fork();
		if (pid == 0)
			child(round, still, pieces);
		good += waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			printf("# child %d: status %#x\n", round, (unsigned) status);
		for (nth = status = 0; nth < pieces; nth++)
			status += filled(still[nth].at, still[nth].size, round);
		kept += status == pieces;
		writes(3);
	}
	snprintf(line, sizeof line, "%s: a child has all memory as it was, and ends well", name);
	report(good == ROUNDS, line, "%d of %d", good, ROUNDS);
	snprintf(line, sizeof line, "%s: nothing that it stores reaches its parent", name);
	report(kept == ROUNDS && !wrong, line, "%d of %d, %d writes wrong", kept, ROUNDS, wrong);
}

/* Everything of a thread: frames of this function are among what is registered. */
static void *forker(void *name)
{
	unsigned char on_stack[SOME];
	unsigned char *on_heap = malloc(SIZE + 3);
	struct piece still[2];

	enrol(&still[0], &near_side, on_stack + 1, SOME - 2);
	enrol(&still[1], &far_side, on_heap + 3, SIZE);
	children(still, 2, name);
	MUST(dat_lmr_free(still[0].lmr));
	MUST(dat_lmr_free(still[1].lmr));
	free(on_heap);
	return NULL;
}

/* ---- other programs ------------------------------------------------------------------------------------------------------ */

static void commands(void)
{
	int round, good = 0;
	char word[16];
	FILE *pipe;

	for (round = 0; round < ROUNDS; round++) {
		good += system("true") == 0 && WEXITSTATUS(system("exit 3")) == 3;
		pipe = popen("echo here", "r");
		good += pipe && fgets(word, sizeof word, pipe) && strcmp(word, "here\n") == 0 && pclose(pipe) == 0;
		writes(1);
	}
	CHECK("system and popen work beside traffic", good == 2 * ROUNDS);
	CHECK("descriptors are closed where another program begins", descriptors_stay_behind());
}

/* ---- signals ------------------------------------------------------------------------------------------------------------- */

static atomic_int signals;

static void noted(int unused)
{
	(void) unused;
	signals++;
}

static void begin_signals(int number, int flags)
{
	struct sigaction action;

	memset(&action, 0, sizeof action);
	action.sa_handler = noted;
	action.sa_flags = flags;
	sigaction(number, &action, NULL);
}

static void every(long microseconds)
{
	struct itimerval each = { { 0, microseconds }, { 0, microseconds } };

	setitimer(ITIMER_REAL, &each, NULL);
}

static void signalled(int flags, const char *name)
{
	DAT_EVD_HANDLE idle = evd_of(&near_side, DAT_EVD_DTO_FLAG, DEPTH);
	DAT_EVENT event;
	DAT_COUNT more;
	DAT_RETURN got = DAT_SUCCESS;
	double start, left, late = 0;
	int round, other = 0, early = 0, bad = 0, interrupted = 0;
	char line[200];
	pid_t pid;

	begin_signals(SIGALRM, flags);
	begin_signals(SIGCHLD, flags);
	signals = 0;
	every(1000);
	for (round = 0; round < SIGNALLED; round++) {
		/* A wait that is resumed with the time that is left ends when the first would have. */
		start = seconds();
		do {
			left = start + WAIT / 1e6 - seconds();
			got = dat_evd_wait(idle, left > 0 ? (DAT_TIMEOUT) (left * 1e6) + 1 : 1, 1, &event, &more);
			interrupted += DAT_GET_TYPE(got) == DAT_INTERRUPTED_CALL;
		} while (DAT_GET_TYPE(got) == DAT_INTERRUPTED_CALL);
		other += DAT_GET_TYPE(got) != DAT_TIMEOUT_EXPIRED;
		early += seconds() < start + WAIT / 1e6;
		if (seconds() - start - WAIT / 1e6 > late)
			late = seconds() - start - WAIT / 1e6;
		pid = fork();
		if (pid == 0)
			_exit(0);
		bad += !once(&to[round % PIECES], 1000u + round);
		while (waitpid(pid, NULL, 0) == -1 && errno == EINTR)
			;
	}
	every(0);
	snprintf(line, sizeof line, flags ? "%s: a wait ends by its time alone" : "%s: a wait ends by its time or a signal, by nothing else", name);
	report(other == 0 && signals > SIGNALLED * 5 && (flags ? interrupted == 0 : interrupted > SIGNALLED), line, "%d others, the last %#x; %d signals, %d ended a wait",
	       other, (unsigned) got, signals, interrupted);
	snprintf(line, sizeof line, "%s: and at its time", name);
	report(early == 0 && late < 2, line, "%d early, %f s late", early, late);
	snprintf(line, sizeof line, "%s: requests complete", name);
	report(bad == 0, line, "%d do not", bad);
	MUST(dat_evd_free(idle));
}

/* A child outlives its parent's adapter, which can be opened anew. */
static void outlived(const char *name)
{
	DAT_IA_HANDLE ia;
	DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
	int gate[2], status;
	char byte;
	pid_t pid;

	if (pipe(gate))
		exit(2);
	pid = fork();
	if (pid == 0) {
		close(gate[1]);
		_exit(read(gate[0], &byte, 1) != 0);
	}
	close(gate[0]);
	side_close(&near_side);
	EXPECT("an adapter opens again while a child of its last user is still running", dat_ia_open((char *) name, 16, &async, &ia), DAT_SUCCESS);
	close(gate[1]);
	waitpid(pid, &status, 0);
	MUST(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
}

int main(int argc, char **argv)
{
	/* Its end is far from the frames of a fork, whose pages the device does not share with the process meanwhile. */
	unsigned char on_stack[FAR + SOME];
	unsigned char *heap[2] = { malloc(SIZE + 1), malloc(SIZE + 2) };
	pthread_t thread, other;
	pthread_attr_t attr;

	alarm(100);
	if (!begin_alone(argc, argv))
		return 2;
	side_open(&near_side, argv[1]);
	side_open(&far_side, argv[2]);
	end_open(&a, &near_side);
	end_open(&b, &far_side);
	if (!CHECK("two Endpoints connect", link_up(&a, &b)))
		return 1;
	enrol(&from, &near_side, heap[0] + 1, SIZE);
	enrol(&to[0], &far_side, heap[1] + 2, SIZE);
	enrol(&to[1], &far_side, on_stack + FAR + 1, SOME - 1);
	enrol(&to[2], &far_side, far_side.memory, BUFFER);
	if (pthread_create(&thread, NULL, writer, NULL))
		return 2;
	writes(1);
	forker("main");
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	if (pthread_create(&other, &attr, forker, "thread"))
		return 2;
	pthread_join(other, NULL);
	commands();
	stop = 1;
	pthread_join(thread, NULL);
	report(wrong == 0 && written > 3 * ROUNDS, "all that was written is right", "%d of %d are not", wrong, written);
	alarm(0);
	signalled(0, "without SA_RESTART");
	signalled(SA_RESTART, "with SA_RESTART");
	signal(SIGALRM, SIG_DFL);
	alarm(60);
	CHECK("the connection ends", link_down(&a, &b));
	end_close(&a);
	end_close(&b);
	MUST(dat_lmr_free(from.lmr));
	MUST(dat_lmr_free(to[0].lmr));
	MUST(dat_lmr_free(to[1].lmr));
	MUST(dat_lmr_free(to[2].lmr));
	outlived(argv[1]);
	side_close(&far_side);
	return failures != 0;
}
