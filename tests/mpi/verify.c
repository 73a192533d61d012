/*
 * verify: moves data between the ranks of an MPI library in many ways and compares every byte with
 * what it has to be. Each part prints "ok NAME SECONDS"; a wrong byte prints where, and aborts.
 *
 * verify [SCALE [PART ...]]: SCALE 0 is short, 1 the usual, n > 1 repeats n times; only the named
 * parts. Two parts run only when named: "threads", four of them in each rank; "endless", traffic until
 * the process is killed.
 */
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#define MOST (4 << 20)

static int scale = 1;

static void check(const char *part, const unsigned char *got, size_t len, int from, unsigned seq)
{
	for (size_t i = 0; i < len; i++)
		if (got[i] != byte_of(from, seq, i))
			wrong(part, from, seq, len, i, got[i], byte_of(from, seq, i));
}

/* The next size of a sweep: each power of two, and one less and more. */
static int next_size(int n)
{
	int p = 1;
	if (n < 4)
		return n + 1;
	while (p <= n)
		p *= 2; /* p is the first power above n */
	return n == p / 2 ? n + 1 : n == p - 1 ? p : n < p - 1 && n > p / 2 ? p - 1 : p;
}

static void ring(void)
{
	int right = (rank + 1) % size, left = (rank + size - 1) % size;
	for (int n = 0; n <= MOST; n = n ? n * 2 + 1 : 1) {
		unsigned char *a = buffer(n, 0), *b = buffer(n, 0);
		for (unsigned i = 0; i < 3; i++) {
			fill(a, n, rank, i + n);
			MPI_Sendrecv(a, n, MPI_BYTE, right, 1, b, n, MPI_BYTE, left, 1, MPI_COMM_WORLD,
				     MPI_STATUS_IGNORE);
			check("ring", b, n, left, i + n);
			guarded("ring", b, n, 0);
		}
		free(a);
		free(b);
	}
}

static void pingpong(void)
{
	int peer = rank ^ 1;
	if (peer >= size)
		return;
	for (int n = 0; n <= MOST; n = next_size(n)) {
		/* Large messages at a few addresses only: the time goes into filling them. */
		for (int odd = 0; odd < 8; odd += n > 65536 ? 7 : scale ? 1 : 3) {
			unsigned char *a = buffer(n, odd), *b = buffer(n, 7 - odd);
			fill(a, n, rank, n + odd);
			if (rank < peer) {
				MPI_Send(a, n, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
				MPI_Recv(b, n, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			} else {
				MPI_Recv(b, n, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
				MPI_Send(a, n, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
			}
			check("pingpong", b, n, peer, n + odd);
			guarded("pingpong", b, n, 7 - odd);
			free(a - odd);
			free(b - (7 - odd));
		}
	}
}

static void nonblocking(void)
{
	int sizes[] = { 1, 13, 1024, 8191, 16384, 16385, 70001, 300000 };
	int rounds = scale ? 4 : 1;
	unsigned char **in = must(calloc(size, sizeof *in)), **out = must(calloc(size, sizeof *out));
	MPI_Request *requests = must(calloc(2 * size, sizeof *requests));
	for (int k = 0; k < (int) (sizeof sizes / sizeof *sizes); k++) {
		int n = sizes[k];
		for (int r = 0; r < rounds; r++) {
			unsigned seq = k * 100 + r;
			for (int i = 0; i < size; i++) {
				in[i] = buffer(n, 0);
				MPI_Irecv(in[i], n, MPI_BYTE, i, 3, MPI_COMM_WORLD, &requests[i]);
			}
			for (int i = 0; i < size; i++) {
				int to = (rank + i) % size;
				out[to] = buffer(n, 0);
				fill(out[to], n, rank, seq + 7 * to);
				MPI_Isend(out[to], n, MPI_BYTE, to, 3, MPI_COMM_WORLD, &requests[size + i]);
			}
			MPI_Waitall(2 * size, requests, MPI_STATUSES_IGNORE);
			for (int i = 0; i < size; i++) {
				check("nonblocking", in[i], n, i, seq + 7 * rank);
				guarded("nonblocking", in[i], n, 0);
				free(in[i]);
				free(out[i]);
			}
		}
	}
	free(in);
	free(out);
	free(requests);
}

static void collectives_of(int n)
{
	unsigned char *a = buffer((size_t) n * size, 0), *b = buffer((size_t) n * size, 0);
	int *x = must(malloc(n * sizeof *x)), *y = must(malloc(n * sizeof *y));
	int *counts = must(malloc(size * sizeof *counts)), *at = must(malloc(size * sizeof *at));
	int *from_counts = must(malloc(size * sizeof *counts)), *from_at = must(malloc(size * sizeof *at));
	long ranks = (long) size * (size - 1) / 2, below = (long) rank * (rank + 1) / 2;

	for (int root = 0; root < size; root++) {
		if (rank == root)
			fill(a, n, root, n);
		else
			memset(a, 0, n);
		MPI_Bcast(a, n, MPI_BYTE, root, MPI_COMM_WORLD);
		check("bcast", a, n, root, n);

		for (int i = 0; i < n; i++)
			x[i] = rank + i % 1000;
		memset(y, 0, n * sizeof *y);
		MPI_Reduce(x, y, n, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
		for (int i = 0; rank == root && i < n; i++)
			is("reduce", y[i], ranks + (long) size * (i % 1000), i);

		fill(a, n, rank, n + 1);
		memset(b, 0, (size_t) n * size);
		MPI_Gather(a, n, MPI_BYTE, b, n, MPI_BYTE, root, MPI_COMM_WORLD);
		for (int i = 0; rank == root && i < size; i++)
			check("gather", b + (size_t) i * n, n, i, n + 1);

		for (int i = 0; rank == root && i < size; i++)
			fill(a + (size_t) i * n, n, i, n + 2);
		memset(b, 0, n);
		MPI_Scatter(a, n, MPI_BYTE, b, n, MPI_BYTE, root, MPI_COMM_WORLD);
		check("scatter", b, n, rank, n + 2);
	}
	for (int i = 0; i < n; i++)
		x[i] = rank + i % 1000;
	memset(y, 0, n * sizeof *y);
	MPI_Allreduce(x, y, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		is("allreduce", y[i], ranks + (long) size * (i % 1000), i);
	memset(y, 0, n * sizeof *y);
	MPI_Scan(x, y, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		is("scan", y[i], below + (long) (rank + 1) * (i % 1000), i);

	fill(a, n, rank, n + 3);
	memset(b, 0, (size_t) n * size);
	MPI_Allgather(a, n, MPI_BYTE, b, n, MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < size; i++)
		check("allgather", b + (size_t) i * n, n, i, n + 3);

	for (int i = 0; i < size; i++)
		fill(a + (size_t) i * n, n, rank, n + 4 + i);
	memset(b, 0, (size_t) n * size);
	MPI_Alltoall(a, n, MPI_BYTE, b, n, MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < size; i++)
		check("alltoall", b + (size_t) i * n, n, i, n + 4 + rank);

	/* Rank r sends n / (1 + (r + i) % 3) bytes to rank i. */
	for (int i = 0; i < size; i++) {
		from_counts[i] = counts[i] = n / (1 + (rank + i) % 3);
		at[i] = from_at[i] = i * n;
		fill(a + at[i], counts[i], rank, n + 5 + i);
	}
	memset(b, 0, (size_t) n * size);
	MPI_Alltoallv(a, counts, at, MPI_BYTE, b, from_counts, from_at, MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < size; i++) {
		check("alltoallv", b + from_at[i], from_counts[i], i, n + 5 + rank);
		for (int k = from_counts[i]; k < n; k++)
			is("alltoallv", b[from_at[i] + k], 0, k);
	}
	guarded("collectives", b, (size_t) n * size, 0);
	MPI_Barrier(MPI_COMM_WORLD);
	free(a), free(b), free(x), free(y), free(counts), free(at), free(from_counts), free(from_at);
}

static void collectives(void)
{
	int sizes[] = { 1, 100, 1023, 16384, 65537, 262144 };
	for (int k = 0; k < (scale ? 6 : 4); k++)
		collectives_of(sizes[k]);
}

static void onesided(void)
{
	int sizes[] = { 1, 57, 4096, 20001, 262144, 1048577 };
	for (int k = 0; k < (scale ? 6 : 4); k++) {
		int n = sizes[k], right = (rank + 1) % size, left = (rank + size - 1) % size;
		size_t whole = (size_t) n * 2;
		unsigned char *shared = buffer(whole, 0), *own = buffer(n, 0);
		long *sums = must(calloc(size + 1, sizeof *sums)), one = rank + 1;
		MPI_Win win, counters;
		MPI_Win_create(shared, whole, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
		MPI_Win_create(sums, (size + 1) * sizeof *sums, sizeof *sums, MPI_INFO_NULL, MPI_COMM_WORLD,
			       &counters);

		MPI_Win_fence(0, win);
		fill(own, n, rank, n);
		MPI_Put(own, n, MPI_BYTE, right, 0, n, MPI_BYTE, win);
		MPI_Win_fence(0, win);
		check("put", shared, n, left, n);
		fill(shared + n, n, rank, n + 1);
		MPI_Win_fence(0, win);
		MPI_Get(own, n, MPI_BYTE, right, n, n, MPI_BYTE, win);
		MPI_Win_fence(0, win);
		check("get", own, n, right, n + 1);

		MPI_Win_fence(0, counters);
		for (int i = 0; i < size; i++)
			MPI_Accumulate(&one, 1, MPI_LONG, i, rank, 1, MPI_LONG, MPI_SUM, counters);
		for (int i = 0; i < size; i++)
			MPI_Accumulate(&one, 1, MPI_LONG, i, size, 1, MPI_LONG, MPI_SUM, counters);
		MPI_Win_fence(0, counters);
		for (int i = 0; i < size; i++)
			is("accumulate", sums[i], i + 1, i);
		is("accumulate", sums[size], (long) size * (size + 1) / 2, size);

		/* The same without the target's part. */
		fill(own, n, rank, n + 2);
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, win);
		MPI_Put(own, n, MPI_BYTE, right, 0, n, MPI_BYTE, win);
		MPI_Win_unlock(right, win);
		MPI_Barrier(MPI_COMM_WORLD);
		memset(own, 0, n);
		MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win);
		MPI_Get(own, n, MPI_BYTE, right, 0, n, MPI_BYTE, win);
		MPI_Win_unlock(right, win);
		check("lock", own, n, rank, n + 2);
		MPI_Barrier(MPI_COMM_WORLD);
		for (int i = 0; i < 5; i++) {
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, counters);
			MPI_Accumulate(&one, 1, MPI_LONG, 0, size, 1, MPI_LONG, MPI_SUM, counters);
			MPI_Win_unlock(0, counters);
		}
		MPI_Barrier(MPI_COMM_WORLD);
		long sum;
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, counters);
		MPI_Get(&sum, 1, MPI_LONG, 0, size, 1, MPI_LONG, counters);
		MPI_Win_unlock(0, counters);
		is("lock and accumulate", sum, 6L * size * (size + 1) / 2, n);
		MPI_Win_free(&win);
		MPI_Win_free(&counters);
		guarded("onesided", shared, whole, 0);
		free(shared), free(own), free(sums);
	}
}

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

/* Sizes that the receiver learns from a probe. Everybody sends to everybody. */
static void probed(void)
{
	int count = scale ? 40 : 8;
	uint32_t seed = 77 + rank;
	for (int i = 0; i < count; i++) {
		MPI_Request *requests = must(calloc(size, sizeof *requests));
		unsigned char **out = must(calloc(size, sizeof *out));
		for (int to = 0; to < size; to++) {
			int n = 1 << next_random(&seed) % 18;
			n += next_random(&seed) % n;
			out[to] = buffer(n, 0);
			fill(out[to], n, rank, i);
			MPI_Isend(out[to], n, MPI_BYTE, to, 100 + i, MPI_COMM_WORLD, &requests[to]);
		}
		for (int k = 0; k < size; k++) {
			MPI_Status status;
			int n;
			MPI_Probe(MPI_ANY_SOURCE, 100 + i, MPI_COMM_WORLD, &status);
			MPI_Get_count(&status, MPI_BYTE, &n);
			unsigned char *in = buffer(n, k % 8);
			MPI_Recv(in, n, MPI_BYTE, status.MPI_SOURCE, 100 + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			check("probed", in, n, status.MPI_SOURCE, i);
			guarded("probed", in, n, k % 8);
			free(in - k % 8);
		}
		MPI_Waitall(size, requests, MPI_STATUSES_IGNORE);
		for (int to = 0; to < size; to++)
			free(out[to]);
		free(out);
		free(requests);
	}
}

/* Memory that is new to the library each time, and often at an address that it has seen before. */
static void fresh(void)
{
	int count = scale ? 60 : 10, right = (rank + 1) % size, left = (rank + size - 1) % size;
	uint32_t seed = 5; /* the same sizes everywhere */
	for (int i = 0; i < count; i++) {
		int n = 20000 + next_random(&seed) % (i % 4 ? 200000 : 2000000);
		unsigned char *a = buffer(n, i % 8), *b = buffer(n, 7 - i % 8), *other = must(malloc(n / 2 + 1));
		fill(a, n, rank, i);
		MPI_Sendrecv(a, n, MPI_BYTE, right, 5, b, n, MPI_BYTE, left, 5, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		check("fresh", b, n, left, i);
		guarded("fresh", b, n, 7 - i % 8);
		free(a - i % 8);
		free(other);
		free(b - (7 - i % 8));
	}
}

static volatile sig_atomic_t alarms;

static void alarmed(int number)
{
	(void) number;
	alarms++;
}

/* A child that writes to memory in which data is under way, and ends. */
static void child(unsigned char *in, unsigned char *out, size_t n)
{
	int status = 0;
	pid_t pid = fork();
	if (!pid) {
		memset(in, 0x55, n);
		memset(out, 0xaa, n);
		_exit(7);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	is("forks", pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1, 7, 0);
}

/* What a program does besides: children, commands, and signals, while messages are under way. The
 * buffers are of the heap, and of the stack. */
static void forks(void)
{
	int sizes[] = { 1000, 20001, 262144, 1 << 20 }, right = (rank + 1) % size, left = (rank + size - 1) % size;
	struct sigaction action = { .sa_handler = alarmed, .sa_flags = SA_RESTART }, before;
	struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, off = { { 0, 0 }, { 0, 0 } };
	unsigned char near[20001], far[20001];
	sigaction(SIGALRM, &action, &before);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int k = 0; k < (scale ? 16 : 8); k++) {
		int n = sizes[k / 2 % 4], stack = n <= (int) sizeof near && k % 2;
		unsigned char *a = stack ? near : buffer(n, 3), *b = stack ? far : buffer(n, 5);
		MPI_Request requests[2];
		fill(a, n, rank, k);
		memset(b, 0, n);
		MPI_Irecv(b, n, MPI_BYTE, left, 6, MPI_COMM_WORLD, &requests[0]);
		if (k % 4 == 1)
			MPI_Barrier(MPI_COMM_WORLD);
		MPI_Isend(a, n, MPI_BYTE, right, 6, MPI_COMM_WORLD, &requests[1]);
		child(b, a, n);
		if (k % 4 == 0)
			is("forks", system("true"), 0, k);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
		check("forks", b, n, left, k);
		check("forks", a, n, rank, k);
		/* The same memory again, with nothing under way while the child lives. */
		child(b, a, n);
		fill(a, n, rank, k + 100);
		MPI_Sendrecv(a, n, MPI_BYTE, right, 7, b, n, MPI_BYTE, left, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		check("forks", b, n, left, k + 100);
		if (!stack) {
			free(a - 3);
			free(b - 5);
		}
	}
	setitimer(ITIMER_REAL, &off, NULL);
	sigaction(SIGALRM, &before, NULL);
	is("signals", alarms > 0, 1, 0);
}

enum { THREADS = 4 };

/* Messages of one thread, of both sides of the ring, under a communicator of its own. */
static void *thread(void *own)
{
	MPI_Comm comm = *(MPI_Comm *) own;
	int sizes[] = { 1, 1000, 16385, 70001, 300000 }, count = scale ? 40 : 10;
	int right = (rank + 1) % size, left = (rank + size - 1) % size;
	for (int k = 0; k < count; k++) {
		int n = sizes[k % 5];
		unsigned char *a = buffer(n, k % 8), *b = buffer(n, 7 - k % 8);
		fill(a, n, rank, k);
		MPI_Sendrecv(a, n, MPI_BYTE, right, 8, b, n, MPI_BYTE, left, 8, comm, MPI_STATUS_IGNORE);
		check("threads", b, n, left, k);
		guarded("threads", b, n, 7 - k % 8);
		free(a - k % 8);
		free(b - (7 - k % 8));
	}
	return NULL;
}

/* MPI_THREAD_MULTIPLE. */
static void threads(void)
{
	pthread_t ids[THREADS];
	MPI_Comm comms[THREADS];
	int level;
	MPI_Query_thread(&level);
	is("threads", level, MPI_THREAD_MULTIPLE, 0);
	for (int t = 0; t < THREADS; t++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]);
	for (int t = 0; t < THREADS; t++)
		is("threads", pthread_create(&ids[t], NULL, thread, &comms[t]), 0, t);
	for (int t = 0; t < THREADS; t++)
		pthread_join(ids[t], NULL);
	for (int t = 0; t < THREADS; t++)
		MPI_Comm_free(&comms[t]);
}

static void endless(void)
{
	if (!rank) {
		puts("endless traffic");
		fflush(stdout);
	}
	for (;;) {
		scale = 0;
		nonblocking();
		fresh();
	}
}

static const struct part {
	const char *name;
	void (*run)(void);
} parts[] = {
	{ "ring", ring },	  { "pingpong", pingpong },	  { "nonblocking", nonblocking },
	{ "collectives", collectives }, { "onesided", onesided }, { "probed", probed },
	{ "fresh", fresh },	  { "forks", forks },		  { "threads", threads },
	{ "endless", endless },
};

int main(int argc, char **argv)
{
	int level = MPI_THREAD_SINGLE;
	for (int i = 2; i < argc; i++)
		if (!strcmp(argv[i], "threads"))
			level = MPI_THREAD_MULTIPLE;
	MPI_Init_thread(&argc, &argv, level, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (argc > 1)
		scale = atoi(argv[1]);
	for (int round = 0; round < (scale > 1 ? scale : 1); round++) {
		for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
			int chosen = argc <= 2 && parts[k].run != endless && parts[k].run != threads;
			for (int i = 2; i < argc; i++)
				chosen |= !strcmp(argv[i], parts[k].name);
			if (!chosen)
				continue;
			MPI_Barrier(MPI_COMM_WORLD);
			double start = MPI_Wtime();
			parts[k].run();
			MPI_Barrier(MPI_COMM_WORLD);
			if (!rank) {
				printf("ok %s %.2f\n", parts[k].name, MPI_Wtime() - start);
				fflush(stdout);
			}
		}
	}
	MPI_Finalize();
	if (!rank)
		puts("done");
	return 0;
}
