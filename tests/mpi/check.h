/*
 * What the programs of this folder share: bytes that say who wrote them, and an end for a wrong one.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

/* The byte at `at` of message `seq` from rank `from`. */
static unsigned char byte_of(int from, unsigned seq, size_t at)
{
	uint32_t x = (uint32_t) at * 2654435761u ^ ((uint32_t) from + 1) * 40503u ^ seq * 97u;
	return (unsigned char) (x >> 24 ^ x >> 11 ^ x);
}

static void fill(unsigned char *to, size_t len, int from, unsigned seq)
{
	for (size_t i = 0; i < len; i++)
		to[i] = byte_of(from, seq, i);
}

static void wrong(const char *part, int from, unsigned seq, size_t len, size_t at, int is, int should)
{
	printf("WRONG %s: rank %d, from %d, message %u of %zu bytes, offset %zu: %d instead of %d\n", part, rank,
	       from, seq, len, at, is, should);
	fflush(stdout);
	sleep(1); /* the launcher passes on what was said before it ends all */
	MPI_Abort(MPI_COMM_WORLD, 3);
}

static void is(const char *part, long got, long should, int at)
{
	if (got != should)
		wrong(part, -1, 0, 0, (size_t) at, (int) got, (int) should);
}

static void *must(void *memory)
{
	if (!memory) {
		printf("WRONG no memory\n");
		MPI_Abort(MPI_COMM_WORLD, 4);
	}
	return memory;
}

/* A buffer whose last byte is followed by a guard, and `odd` bytes off alignment. */
static unsigned char *buffer(size_t len, int odd)
{
	unsigned char *base = must(malloc(len + 64 + 8));
	memset(base, 0xee, len + 64 + 8);
	return base + odd;
}

static void guarded(const char *part, const unsigned char *at, size_t len, int odd)
{
	for (int i = 0; i < odd; i++)
		is(part, at[i - odd], 0xee, i - odd);
	for (int i = 0; i < 8; i++)
		is(part, at[len + i], 0xee, i);
}
