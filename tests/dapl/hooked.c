/*
 * A cache of registrations, as those of MPI libraries: `malloc` and `free` of the process are replaced, and the replacement frees
 * LMRs of memory that goes. A provider that allocates or frees memory with a lock of its own held waits for itself there.
 *
 *     hooked LIBRARY PARAMETERS PARAMETERS
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "alone.h"

enum { LMRS = 400, SIZE = 20000, ROUNDS = 40, LIMIT = 60 };

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void __libc_free(void *);

static DAT_LMR_HANDLE kept[LMRS];
static volatile int left, failed, calls;
/* Whether this thread is in a call of the provider, and in the replacement. */
static __thread volatile int armed, inside;

static void hook(void)
{
	if (!armed || inside)
		return;
	inside = 1;
	calls++;
	if (left > 0) {
		left--;
		if (DAT_LMR_FREE(kept[left]) != DAT_SUCCESS)
			failed++;
	}
	inside = 0;
}

void *malloc(size_t size)
{
	hook();
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	hook();
	return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
	hook();
	return __libc_realloc(old, size);
}

void free(void *old)
{
	hook();
	__libc_free(old);
}

static char memory[SIZE + LMRS], other[ROUNDS][2 * SIZE];

static DAT_RETURN create(DAT_IA_HANDLE ia, DAT_PZ_HANDLE pz, void *addr, DAT_VLEN size, DAT_LMR_HANDLE *lmr)
{
	DAT_REGION_DESCRIPTION region;

	memset(&region, 0, sizeof region);
	region.for_va = addr;
	return DAT_LMR_CREATE(ia, DAT_MEM_TYPE_VIRTUAL, region, size, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, lmr, NULL, NULL, NULL,
			      NULL);
}

static void check(const char *what, int good)
{
	printf("%s %s\n", good ? "ok" : "FAIL", what);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	DAT_EVD_HANDLE async = DAT_HANDLE_NULL, evd;
	DAT_IA_HANDLE ia;
	DAT_PZ_HANDLE pz, zone;
	DAT_EP_HANDLE ep;
	DAT_LMR_HANDLE lmr = DAT_HANDLE_NULL;
	char *volatile pages;
	int at, good = 1;

	/* A provider that waits for itself is ended. */
	alarm(LIMIT);
	if (!begin_alone(argc, argv))
		return 2;
	if (dat_ia_openv(argv[1], 8, &async, &ia, 2, 0, DAT_THREADSAFE) != DAT_SUCCESS || dat_pz_create(ia, &pz) != DAT_SUCCESS)
		return 2;
	for (; left < LMRS; left++)
		if (create(ia, pz, memory + left, SIZE, &kept[left]) != DAT_SUCCESS)
			return 2;
	armed = 1;
	pages = malloc(SIZE);
	armed = 0;
	check("the replacement frees LMRs", pages && left == LMRS - 1 && calls == 1 && failed == 0);
	free(pages);
	for (at = 0; at < ROUNDS; at++) {
		pages = malloc(1 << 20);
		armed = 1;
		good &= create(ia, pz, other[at] + at, SIZE, &lmr) == DAT_SUCCESS && dat_lmr_free(lmr) == DAT_SUCCESS;
		good &= create(ia, pz, pages + at, (1 << 20) - at, &lmr) == DAT_SUCCESS && dat_lmr_free(lmr) == DAT_SUCCESS;
		armed = 0;
		free(pages);
	}
	check("LMRs are created and freed", good);
	for (at = 0; at < ROUNDS; at++) {
		armed = 1;
		good &= dat_pz_create(ia, &zone) == DAT_SUCCESS;
		good &= dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG, &evd) == DAT_SUCCESS;
		good &= dat_ep_create(ia, zone, evd, evd, evd, NULL, &ep) == DAT_SUCCESS;
		good &= dat_ep_free(ep) == DAT_SUCCESS && dat_evd_free(evd) == DAT_SUCCESS && dat_pz_free(zone) == DAT_SUCCESS;
		armed = 0;
	}
	check("so are other objects", good);
	check("none of these calls allocates or frees memory of the process", calls == 1);
	while (left > 0) {
		left--;
		good &= dat_lmr_free(kept[left]) == DAT_SUCCESS;
	}
	check("every LMR is freed once", good && failed == 0);
	good = dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) == DAT_SUCCESS;
	check("the adapter is closed", good);
	return !good;
}
