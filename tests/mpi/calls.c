/*
 * calls: every collective and one-sided call of MPI-3, each over a sweep of sizes, in the manner of
 * the Intel MPI Benchmarks: the result is compared with what it has to be, and timed. Each call
 * prints "ok NAME", then microseconds of the slowest rank for the smallest and the largest size. A
 * wrong value prints where, and aborts.
 *
 * calls [MOST [NAME ...]]: sizes up to MOST bytes of each rank; only calls whose name begins so.
 * "bandwidth" runs only when named: MB/s of 1 MiB messages.
 */
#include "check.h"

#define ROOT ((int) (seq % size))
#define LOOK_AT 7 /* compare every so many bytes of large results */

/* Bytes that each rank gives, and what is received; numbers for reductions. */
static unsigned char *from, *to;
static int *numbers, *results;
/* Of v-variants. */
static int *counts, *places, *from_counts, *from_places, *lengths;
static MPI_Datatype *types;
static MPI_Comm neighbours; /* a ring */
static int left, right, most;
static unsigned seq;

/* A call, and its nonblocking form if `q` is given. */
#define BOTH(name, lower, ...) (q ? MPI_I##lower(__VA_ARGS__, q) : MPI_##name(__VA_ARGS__))
#define OP(name) static void name(int n, MPI_Request *q)

OP(barrier)
{
	(void) n;
	q ? MPI_Ibarrier(MPI_COMM_WORLD, q) : MPI_Barrier(MPI_COMM_WORLD);
}

OP(bcast)
{
	BOTH(Bcast, bcast, to, n, MPI_BYTE, ROOT, MPI_COMM_WORLD);
}

OP(gather)
{
	BOTH(Gather, gather, from, n, MPI_BYTE, to, n, MPI_BYTE, ROOT, MPI_COMM_WORLD);
}

OP(gatherv)
{
	BOTH(Gatherv, gatherv, from, n, MPI_BYTE, to, lengths, places, MPI_BYTE, ROOT, MPI_COMM_WORLD);
}

OP(scatter)
{
	BOTH(Scatter, scatter, from, n, MPI_BYTE, to, n, MPI_BYTE, ROOT, MPI_COMM_WORLD);
}

OP(scatterv)
{
	BOTH(Scatterv, scatterv, from, lengths, places, MPI_BYTE, to, n, MPI_BYTE, ROOT, MPI_COMM_WORLD);
}

OP(allgather)
{
	BOTH(Allgather, allgather, from, n, MPI_BYTE, to, n, MPI_BYTE, MPI_COMM_WORLD);
}

OP(allgatherv)
{
	BOTH(Allgatherv, allgatherv, from, n, MPI_BYTE, to, lengths, places, MPI_BYTE, MPI_COMM_WORLD);
}

OP(alltoall)
{
	BOTH(Alltoall, alltoall, from, n, MPI_BYTE, to, n, MPI_BYTE, MPI_COMM_WORLD);
}

OP(alltoallv)
{
	(void) n;
	BOTH(Alltoallv, alltoallv, from, counts, places, MPI_BYTE, to, from_counts, from_places, MPI_BYTE,
	     MPI_COMM_WORLD);
}

OP(alltoallw)
{
	(void) n;
	BOTH(Alltoallw, alltoallw, from, counts, places, types, to, from_counts, from_places, types,
	     MPI_COMM_WORLD);
}

OP(reduce)
{
	BOTH(Reduce, reduce, numbers, results, n / 4, MPI_INT, MPI_SUM, ROOT, MPI_COMM_WORLD);
}

OP(allreduce)
{
	BOTH(Allreduce, allreduce, numbers, results, n / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

OP(reduce_scatter)
{
	for (int i = 0; i < size; i++)
		counts[i] = n / 4;
	BOTH(Reduce_scatter, reduce_scatter, numbers, results, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

OP(reduce_scatter_block)
{
	BOTH(Reduce_scatter_block, reduce_scatter_block, numbers, results, n / 4, MPI_INT, MPI_SUM,
	     MPI_COMM_WORLD);
}

OP(scan)
{
	BOTH(Scan, scan, numbers, results, n / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

OP(exscan)
{
	BOTH(Exscan, exscan, numbers, results, n / 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

OP(neighbor_allgather)
{
	BOTH(Neighbor_allgather, neighbor_allgather, from, n, MPI_BYTE, to, n, MPI_BYTE, neighbours);
}

OP(neighbor_alltoall)
{
	BOTH(Neighbor_alltoall, neighbor_alltoall, from, n, MPI_BYTE, to, n, MPI_BYTE, neighbours);
}

OP(sendrecv)
{
	(void) q;
	MPI_Sendrecv(from, n, MPI_BYTE, right, 1, to, n, MPI_BYTE, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* One piece of a result: all of a small one, else some bytes, among them the last. */
static void piece(const char *name, const unsigned char *at, int n, int by, unsigned which)
{
	for (int i = 0; i < n; i += n - i > 64 ? LOOK_AT : 1)
		if (at[i] != byte_of(by, which, i))
			wrong(name, by, which, n, i, at[i], byte_of(by, which, i));
}

static int number(int by, int at)
{
	return by * 3 + at % 1000 + (int) (seq % 50);
}

/* Sums of ranks `first` to `last` exclusively. */
static void sums(const char *name, int n, int first, int last, int offset)
{
	for (int i = 0; i < n; i++) {
		int sum = 0;
		for (int by = first; by < last; by++)
			sum += number(by, i + offset);
		is(name, results[i], sum, i);
	}
}

static void see_nothing(const char *name, int n)
{
	(void) name, (void) n;
}

static void see_root(const char *name, int n)
{
	piece(name, to, n, ROOT, seq);
}

static void see_own(const char *name, int n)
{
	piece(name, to, n, ROOT, seq + rank);
}

static void see_all(const char *name, int n)
{
	for (int i = 0; i < size; i++)
		piece(name, to + (size_t) i * most, n, i, seq);
}

static void see_packed(const char *name, int n)
{
	for (int i = 0; i < size; i++)
		piece(name, to + (size_t) i * n, n, i, seq);
}

static void see_at_root(const char *name, int n)
{
	if (rank == ROOT)
		see_packed(name, n);
}

static void see_places_at_root(const char *name, int n)
{
	if (rank == ROOT)
		see_all(name, n);
}

static void see_mine(const char *name, int n)
{
	for (int i = 0; i < size; i++)
		piece(name, to + (size_t) i * n, n, i, seq + rank);
}

static void see_counted(const char *name, int n)
{
	(void) n;
	for (int i = 0; i < size; i++)
		piece(name, to + from_places[i], from_counts[i], i, seq + rank);
}

static void see_left(const char *name, int n)
{
	piece(name, to, n, left, seq);
}

static void see_sum(const char *name, int n)
{
	sums(name, n / 4, 0, size, 0);
}

static void see_sum_at_root(const char *name, int n)
{
	if (rank == ROOT)
		see_sum(name, n);
}

static void see_share(const char *name, int n)
{
	sums(name, n / 4, 0, size, rank * (n / 4));
}

static void see_below(const char *name, int n)
{
	sums(name, n / 4, 0, rank + 1, 0);
}

static void see_before(const char *name, int n)
{
	if (rank)
		sums(name, n / 4, 0, rank, 0);
}

/* What a call needs before it: one piece at the beginning, one for each rank, or numbers. */
static void give_nothing(int n)
{
	(void) n;
}

static void give_at_root(int n)
{
	if (rank == ROOT)
		fill(to, n, rank, seq);
}

static void give_one(int n)
{
	fill(from, n, rank, seq);
}

static void give_packed(int n)
{
	for (int i = 0; i < size; i++)
		fill(from + (size_t) i * n, n, rank, seq + i);
}

static void give_places(int n)
{
	for (int i = 0; i < size; i++) {
		lengths[i] = n;
		places[i] = i * most;
		fill(from + (size_t) i * most, n, rank, seq + i);
	}
}

/* Rank r has n / (1 + (r + i) % 3) bytes for rank i. */
static void give_counted(int n)
{
	for (int i = 0; i < size; i++) {
		from_counts[i] = counts[i] = n / (1 + (rank + i) % 3);
		from_places[i] = places[i] = i * most;
		fill(from + (size_t) i * most, counts[i], rank, seq + i);
	}
}

static void give_numbers(int n)
{
	for (int i = 0; i < n / 4; i++)
		numbers[i] = number(rank, i);
}

static void give_share(int n)
{
	for (int i = 0; i < n / 4 * size; i++)
		numbers[i] = number(rank, i);
}

static const struct call {
	const char *name;
	void (*give)(int n);
	void (*op)(int n, MPI_Request *q);
	void (*see)(const char *name, int n);
	int only_blocking;
} calls[] = {
	{ "Barrier", give_nothing, barrier, see_nothing, 0 },
	{ "Sendrecv", give_one, sendrecv, see_left, 1 },
	{ "Bcast", give_at_root, bcast, see_root, 0 },
	{ "Gather", give_one, gather, see_at_root, 0 },
	{ "Gatherv", give_places, gatherv, see_places_at_root, 0 },
	{ "Scatter", give_packed, scatter, see_own, 0 },
	{ "Scatterv", give_places, scatterv, see_own, 0 },
	{ "Allgather", give_one, allgather, see_packed, 0 },
	{ "Allgatherv", give_places, allgatherv, see_all, 0 },
	{ "Alltoall", give_packed, alltoall, see_mine, 0 },
	{ "Alltoallv", give_counted, alltoallv, see_counted, 0 },
	{ "Alltoallw", give_counted, alltoallw, see_counted, 0 },
	{ "Reduce", give_numbers, reduce, see_sum_at_root, 0 },
	{ "Allreduce", give_numbers, allreduce, see_sum, 0 },
	{ "Reduce_scatter", give_share, reduce_scatter, see_share, 0 },
	{ "Reduce_scatter_block", give_share, reduce_scatter_block, see_share, 0 },
	{ "Scan", give_numbers, scan, see_below, 0 },
	{ "Exscan", give_numbers, exscan, see_before, 0 },
	{ "Neighbor_allgather", give_one, neighbor_allgather, see_left, 0 },
	{ "Neighbor_alltoall", give_one, neighbor_alltoall, see_left, 0 },
};

/* One-sided: each rank has a window of `most` bytes twice, and numbers. */
static MPI_Win window, cells;
static unsigned char *shared;
static long *shared_cells;

/* How an access of the neighbour's window begins and ends. */
static void fence_begins(MPI_Win win)
{
	MPI_Win_fence(0, win);
}

static void fence_ends(MPI_Win win)
{
	MPI_Win_fence(0, win);
}

static void group_of(int one, int other, MPI_Group *group)
{
	MPI_Group all;
	int both[] = { one, other };
	MPI_Comm_group(MPI_COMM_WORLD, &all);
	MPI_Group_incl(all, one == other ? 1 : 2, both, group);
	MPI_Group_free(&all);
}

static void post_begins(MPI_Win win)
{
	MPI_Group near;
	group_of(left, right, &near);
	MPI_Win_post(near, 0, win);
	MPI_Win_start(near, 0, win);
	MPI_Group_free(&near);
}

static void post_ends(MPI_Win win)
{
	MPI_Win_complete(win);
	MPI_Win_wait(win);
}

static void lock_begins(MPI_Win win)
{
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win);
}

static void lock_ends(MPI_Win win)
{
	MPI_Win_unlock(right, win);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void lock_all_begins(MPI_Win win)
{
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
}

static void lock_all_ends(MPI_Win win)
{
	MPI_Win_flush(right, win);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
}

static const struct access {
	const char *name;
	void (*begins)(MPI_Win win);
	void (*ends)(MPI_Win win);
	int passive;
} accesses[] = {
	{ "fence", fence_begins, fence_ends, 0 },
	{ "post", post_begins, post_ends, 0 },
	{ "lock", lock_begins, lock_ends, 1 },
	{ "lock_all", lock_all_begins, lock_all_ends, 1 },
};

OP(put)
{
	(void) q;
	MPI_Put(from, n, MPI_BYTE, right, 0, n, MPI_BYTE, window);
}

OP(get)
{
	(void) q;
	MPI_Get(to, n, MPI_BYTE, right, most, n, MPI_BYTE, window);
}

OP(rput)
{
	MPI_Rput(from, n, MPI_BYTE, right, 0, n, MPI_BYTE, window, q);
	MPI_Wait(q, MPI_STATUS_IGNORE);
}

OP(rget)
{
	MPI_Rget(to, n, MPI_BYTE, right, most, n, MPI_BYTE, window, q);
	MPI_Wait(q, MPI_STATUS_IGNORE);
}

OP(accumulate)
{
	(void) q;
	MPI_Accumulate(numbers, n / 4, MPI_INT, right, 0, n / 4, MPI_INT, MPI_SUM, window);
}

OP(raccumulate)
{
	MPI_Raccumulate(numbers, n / 4, MPI_INT, right, 0, n / 4, MPI_INT, MPI_SUM, window, q);
	MPI_Wait(q, MPI_STATUS_IGNORE);
}

OP(get_accumulate)
{
	(void) q;
	MPI_Get_accumulate(numbers, n / 4, MPI_INT, results, n / 4, MPI_INT, right, 0, n / 4, MPI_INT, MPI_SUM,
			   window);
}

OP(rget_accumulate)
{
	MPI_Rget_accumulate(numbers, n / 4, MPI_INT, results, n / 4, MPI_INT, right, 0, n / 4, MPI_INT, MPI_SUM,
			    window, q);
	MPI_Wait(q, MPI_STATUS_IGNORE);
}

static void see_put(const char *name, int n)
{
	piece(name, shared, n, left, seq);
}

static void see_got(const char *name, int n)
{
	piece(name, to, n, right, seq + 1);
}

/* There was this rank's own number, and the left one's has been added. */
static void see_added(const char *name, int n)
{
	for (int i = 0; i < n / 4; i++)
		is(name, ((int *) shared)[i], number(rank, i) + number(left, i), i);
}

static void see_exchanged(const char *name, int n)
{
	see_added(name, n);
	for (int i = 0; i < n / 4; i++)
		is(name, results[i], number(right, i), i);
}

static void give_window(int n)
{
	fill(from, n, rank, seq);
	memset(shared, 0, n);
	fill(shared + most, n, rank, seq + 1);
}

static void give_sum(int n)
{
	give_numbers(n);
	memcpy(shared, numbers, n / 4 * 4);
}

static const struct side {
	const char *name;
	void (*give)(int n);
	void (*op)(int n, MPI_Request *q);
	void (*see)(const char *name, int n);
	int passive; /* its request may be waited for in a passive access only */
} sides[] = {
	{ "Put", give_window, put, see_put, 0 },
	{ "Get", give_window, get, see_got, 0 },
	{ "Rput", give_window, rput, see_put, 1 },
	{ "Rget", give_window, rget, see_got, 1 },
	{ "Accumulate", give_sum, accumulate, see_added, 0 },
	{ "Raccumulate", give_sum, raccumulate, see_added, 1 },
	{ "Get_accumulate", give_sum, get_accumulate, see_exchanged, 0 },
	{ "Rget_accumulate", give_sum, rget_accumulate, see_exchanged, 1 },
};

static int chosen(int argc, char **argv, const char *name)
{
	for (int i = 2; i < argc; i++)
		if (!strncmp(name, argv[i], strlen(argv[i])))
			return 1;
	return argc <= 2;
}

/* The slowest rank's time. */
static double slowest(double time)
{
	double all;
	MPI_Allreduce(&time, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return all * 1e6;
}

static void said(const char *name, double first, double last)
{
	if (!rank) {
		printf("ok %s %.1f %.1f\n", name, first, last);
		fflush(stdout);
	}
}

/* Does it for each size; `begins` and `ends` stand around the call. */
static void sweep(const char *name, void (*give)(int), void (*op)(int, MPI_Request *),
		  void (*see)(const char *, int), int nonblocking, const struct access *access)
{
	double first = 0, last = 0;
	for (int n = 0; n <= most; n = n ? n * 4 : 4) {
		int times = n <= 1024 ? 8 : 3;
		double best = 1e9;
		for (int i = 0; i < times; i++) {
			MPI_Request request = MPI_REQUEST_NULL;
			seq++;
			give(n);
			MPI_Barrier(MPI_COMM_WORLD);
			double start = MPI_Wtime();
			if (access)
				access->begins(window);
			op(n, nonblocking || access ? &request : NULL);
			if (nonblocking)
				MPI_Wait(&request, MPI_STATUS_IGNORE);
			if (access)
				access->ends(window);
			double time = slowest(MPI_Wtime() - start);
			best = time < best ? time : best;
			see(name, n);
		}
		if (!n)
			first = best;
		last = best;
	}
	said(name, first, last);
}

static void collectives(int argc, char **argv)
{
	for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
		const struct call *call = &calls[k];
		char name[64];
		if (chosen(argc, argv, call->name))
			sweep(call->name, call->give, call->op, call->see, 0, NULL);
		snprintf(name, sizeof name, "I%s", call->name);
		if (!call->only_blocking && chosen(argc, argv, name))
			sweep(name, call->give, call->op, call->see, 1, NULL);
	}
}

static void *window_memory(size_t bytes, MPI_Win *win, int kind)
{
	unsigned char *memory;
	if (kind == 1) {
		MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, win);
		return memory;
	}
	memory = must(malloc(bytes));
	MPI_Win_create(memory, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, win);
	return memory;
}

static void onesided(int argc, char **argv)
{
	for (int kind = 0; kind < 2; kind++) {
		shared = window_memory(2 * (size_t) most, &window, kind);
		for (size_t k = 0; k < sizeof sides / sizeof *sides; k++)
			for (size_t a = 0; a < sizeof accesses / sizeof *accesses; a++) {
				char name[64];
				snprintf(name, sizeof name, "%s/%s%s", sides[k].name, accesses[a].name,
					 kind ? "/allocated" : "");
				if (chosen(argc, argv, name) && (accesses[a].passive || !sides[k].passive))
					sweep(name, sides[k].give, sides[k].op, sides[k].see, 0, &accesses[a]);
			}
		MPI_Win_free(&window);
		if (!kind)
			free(shared);
	}
}

/* Single numbers at rank 0: each rank adds, and takes the next one of a row. */
static void atomics(int argc, char **argv)
{
	enum { ROUNDS = 50 };
	double start;
	shared_cells = must(calloc(2, sizeof *shared_cells));
	MPI_Win_create(shared_cells, 2 * sizeof *shared_cells, sizeof *shared_cells, MPI_INFO_NULL, MPI_COMM_WORLD,
		       &cells);
	if (chosen(argc, argv, "Fetch_and_op")) {
		long one = 1, before = -1, last = -1;
		start = MPI_Wtime();
		MPI_Win_lock_all(0, cells);
		for (int i = 0; i < ROUNDS; i++) {
			MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 0, MPI_SUM, cells);
			MPI_Win_flush(0, cells);
			if (before <= last || before >= (long) ROUNDS * size)
				wrong("Fetch_and_op", 0, i, 8, 0, (int) before, (int) last);
			last = before;
		}
		MPI_Win_unlock_all(cells);
		MPI_Barrier(MPI_COMM_WORLD);
		if (!rank) {
			MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, cells);
			is("Fetch_and_op", shared_cells[0], (long) ROUNDS * size, 0);
			MPI_Win_unlock(0, cells);
		}
		double time = slowest(MPI_Wtime() - start) / ROUNDS;
		said("Fetch_and_op", time, time);
	}
	if (chosen(argc, argv, "Compare_and_swap")) {
		/* Rank r raises the number from r modulo the ranks to the next one. */
		start = MPI_Wtime();
		MPI_Win_lock_all(0, cells);
		for (int i = 0; i < ROUNDS; i++) {
			long should = (long) i * size + rank, next = should + 1, was = -1;
			while (was != should) {
				MPI_Compare_and_swap(&next, &should, &was, MPI_LONG, 0, 1, cells);
				MPI_Win_flush(0, cells);
				if (was > should)
					wrong("Compare_and_swap", 0, i, 8, 0, (int) was, (int) should);
			}
		}
		MPI_Win_unlock_all(cells);
		MPI_Barrier(MPI_COMM_WORLD);
		double time = slowest(MPI_Wtime() - start) / ROUNDS;
		said("Compare_and_swap", time, time);
	}
	MPI_Win_free(&cells);
	free(shared_cells);
}

/* MB/s of 1 MiB messages from rank 0 to rank 1, several under way. */
static void bandwidth(void)
{
	enum { LEN = 1 << 20, WINDOW = 8, ROUNDS = 20 };
	unsigned char *memory = buffer((size_t) LEN * WINDOW, 0);
	MPI_Request requests[WINDOW];
	double best = 0;
	int ack = 0;
	for (int r = 0; r < ROUNDS && rank < 2; r++) {
		double start = MPI_Wtime();
		for (int w = 0; w < WINDOW; w++) {
			unsigned char *at = memory + (size_t) w * LEN;
			if (!rank) {
				at[0] = at[LEN - 1] = (unsigned char) (r + w);
				MPI_Isend(at, LEN, MPI_BYTE, 1, 9, MPI_COMM_WORLD, &requests[w]);
			} else {
				MPI_Irecv(at, LEN, MPI_BYTE, 0, 9, MPI_COMM_WORLD, &requests[w]);
			}
		}
		MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
		for (int w = 0; rank && w < WINDOW; w++) {
			is("bandwidth", memory[(size_t) w * LEN], (unsigned char) (r + w), w);
			is("bandwidth", memory[(size_t) (w + 1) * LEN - 1], (unsigned char) (r + w), w);
		}
		if (rank)
			MPI_Send(&ack, 1, MPI_INT, 0, 10, MPI_COMM_WORLD);
		else
			MPI_Recv(&ack, 1, MPI_INT, 1, 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		double rate = (double) LEN * WINDOW / (MPI_Wtime() - start) / 1e6;
		best = rate > best ? rate : best;
	}
	free(memory);
	if (!rank)
		printf("bandwidth %.0f\n", best);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	most = argc > 1 ? atoi(argv[1]) : 1 << 16;
	left = (rank + size - 1) % size, right = (rank + 1) % size;
	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, MPI_UNWEIGHTED, 1, &right, MPI_UNWEIGHTED,
				       MPI_INFO_NULL, 0, &neighbours);
	size_t all = (size_t) most * size;
	from = buffer(all, 0), to = buffer(all, 0);
	numbers = must(malloc(all + 64)), results = must(malloc(all + 64));
	int **lists[] = { &counts, &places, &from_counts, &from_places, &lengths };
	for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
		*lists[k] = must(calloc(size, sizeof **lists));
	types = must(calloc(size, sizeof *types));
	for (int i = 0; i < size; i++)
		types[i] = MPI_BYTE;
	collectives(argc, argv);
	onesided(argc, argv);
	atomics(argc, argv);
	if (argc > 2 && chosen(argc, argv, "bandwidth"))
		bandwidth();
	guarded("calls", to, all, 0);
	MPI_Finalize();
	if (!rank)
		puts("done");
	return 0;
}
