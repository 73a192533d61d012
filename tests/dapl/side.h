/* One side of a probe: an Interface Adapter with what a program makes on it, and checks that say one line each. */
#ifndef SIDE_H
#define SIDE_H

#include <netinet/in.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <dat2/dat_ib_extensions.h>

/* Exported by the registry, in no header: the provider's handle of an adapter, which is an index for the consumer. */
extern DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE ia, DAT_IA_HANDLE *real);

enum { BUFFER = 65536, LIMIT = 5000000, DEPTH = 64 };

struct side {
	const char *name;
	DAT_IA_HANDLE ia;
	DAT_EVD_HANDLE async;
	DAT_PZ_HANDLE pz;
	struct sockaddr_in6 address; /* of either family */
	unsigned char *memory;
	DAT_LMR_HANDLE lmr;
	DAT_LMR_CONTEXT context;
	DAT_RMR_CONTEXT key;
};

/* An Endpoint with Event Dispatchers of its own. */
struct end {
	struct side *side;
	DAT_EVD_HANDLE recv, request, conn;
	DAT_EP_HANDLE ep;
};

static int failures, checks;

/* One line of the report. */
__attribute__((unused)) static int report(int good, const char *name, const char *format, ...)
{
	va_list list;

	checks++;
	if (good) {
		printf("ok %s\n", name);
	} else {
		failures++;
		printf("FAIL %s: ", name);
		va_start(list, format);
		vprintf(format, list);
		va_end(list);
		printf("\n");
	}
	fflush(stdout);
	return good;
}

#define CHECK(name, condition) report(!!(condition), name, "line %d: not so: %s", __LINE__, #condition)

/* Type and class of a return code. A code of an error without the bit of its class is wrong, whatever its type. */
__attribute__((unused)) static int is(DAT_RETURN got, DAT_RETURN type)
{
	if (type == DAT_SUCCESS)
		return got == DAT_SUCCESS;
	return (got & 0xc0000000u) == 0x80000000u && DAT_GET_TYPE(got) == (DAT_UINT32) type;
}

#define EXPECT(name, call, type)                                                                                  \
	do {                                                                                                          \
		DAT_RETURN expect_got = (call);                                                                           \
		report(is(expect_got, type), name, "line %d: %#x, not %s", __LINE__, (unsigned) expect_got, #type);       \
	} while (0)

#define EXPECT_SUB(name, call, type, sub)                                                                         \
	do {                                                                                                          \
		DAT_RETURN expect_got = (call);                                                                           \
		report(is(expect_got, type) && (expect_got & 0xffff) == (sub), name, "line %d: %#x, not %s with %s",      \
		       __LINE__, (unsigned) expect_got, #type, #sub);                                                     \
	} while (0)

/* What the rest of a program rests on. */
static void must(DAT_RETURN got, const char *what, int line)
{
	const char *major = "?", *minor = "?";

	if (got == DAT_SUCCESS)
		return;
	dat_strerror(got, &major, &minor);
	printf("FAIL %s, line %d: %#x %s %s\n", what, line, (unsigned) got, major, minor);
	fflush(stdout);
	exit(2);
}

#define MUST(call) must((call), #call, __LINE__)

static DAT_EVD_HANDLE evd_of(struct side *side, int flags, int length)
{
	DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;

	MUST(dat_evd_create(side->ia, length, DAT_HANDLE_NULL, (DAT_EVD_FLAGS) flags, &evd));
	return evd;
}

static void side_open(struct side *side, const char *name)
{
	DAT_IA_ATTR attr;
	DAT_REGION_DESCRIPTION region;
	DAT_VLEN length;
	DAT_VADDR start;
	struct sockaddr *own;

	memset(side, 0, sizeof *side);
	side->name = name;
	side->async = DAT_HANDLE_NULL;
	MUST(dat_ia_open((char *) name, 16, &side->async, &side->ia));
	MUST(dat_ia_query(side->ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
	own = (struct sockaddr *) attr.ia_address_ptr;
	memcpy(&side->address, own,
	       own->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
	MUST(dat_pz_create(side->ia, &side->pz));
	/* Not of the heap: valgrind has that executable, and code is not lent to a device. */
	side->memory = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (side->memory == MAP_FAILED)
		exit(2);
	memset(side->memory, 0, BUFFER);
	region.for_va = side->memory;
	MUST(dat_lmr_create(side->ia, DAT_MEM_TYPE_VIRTUAL, region, BUFFER, side->pz, DAT_MEM_PRIV_ALL_FLAG,
			    DAT_VA_TYPE_VA, &side->lmr, &side->context, &side->key, &length, &start));
}

static void side_close(struct side *side)
{
	MUST(dat_lmr_free(side->lmr));
	MUST(dat_pz_free(side->pz));
	MUST(dat_ia_close(side->ia, DAT_CLOSE_GRACEFUL_FLAG));
	munmap(side->memory, BUFFER);
}

__attribute__((unused)) static DAT_LMR_TRIPLET part(struct side *side, size_t at, size_t length)
{
	DAT_LMR_TRIPLET it;

	it.virtual_address = (DAT_VADDR) (uintptr_t) (side->memory + at);
	it.segment_length = (DAT_SEG_LENGTH) length;
	it.lmr_context = side->context;
	return it;
}

__attribute__((unused)) static DAT_RMR_TRIPLET far_part(struct side *side, size_t at, size_t length)
{
	DAT_RMR_TRIPLET it;

	it.virtual_address = (DAT_VADDR) (uintptr_t) (side->memory + at);
	it.segment_length = (DAT_SEG_LENGTH) length;
	it.rmr_context = side->key;
	return it;
}

__attribute__((unused)) static DAT_DTO_COOKIE cookie(uint64_t word)
{
	DAT_DTO_COOKIE it;

	it.as_64 = word;
	return it;
}

__attribute__((unused)) static void end_open(struct end *end, struct side *side)
{
	end->side = side;
	end->recv = evd_of(side, DAT_EVD_DTO_FLAG, DEPTH);
	end->request = evd_of(side, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, DEPTH);
	end->conn = evd_of(side, DAT_EVD_CONNECTION_FLAG, 16);
	MUST(dat_ep_create(side->ia, side->pz, end->recv, end->request, end->conn, NULL, &end->ep));
}

__attribute__((unused)) static void end_close(struct end *end)
{
	if (end->ep)
		MUST(dat_ep_free(end->ep));
	MUST(dat_evd_free(end->recv));
	MUST(dat_evd_free(end->request));
	MUST(dat_evd_free(end->conn));
}

/* The next event; its number, or 0 if none comes in time. */
static unsigned next(DAT_EVD_HANDLE evd, DAT_EVENT *event, DAT_TIMEOUT limit)
{
	DAT_COUNT more;

	memset(event, 0xa5, sizeof *event);
	if (dat_evd_wait(evd, limit, 1, event, &more) != DAT_SUCCESS)
		return 0;
	return event->event_number;
}

static unsigned port = 20000;

/* Connects two Endpoints, client to server, and takes both events. 0 if it does not come about. */
__attribute__((unused)) static int link_up(struct end *client, struct end *server)
{
	struct side *side = server->side;
	DAT_EVD_HANDLE requests = evd_of(side, DAT_EVD_CR_FLAG, 8);
	DAT_PSP_HANDLE psp;
	DAT_EVENT event;
	unsigned here = port++;
	int good = 0;

	MUST(dat_psp_create(side->ia, here, requests, DAT_PSP_CONSUMER_FLAG, &psp));
	MUST(dat_ep_connect(client->ep, (DAT_IA_ADDRESS_PTR) &side->address, here, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	if (next(requests, &event, LIMIT) == DAT_CONNECTION_REQUEST_EVENT) {
		MUST(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, server->ep, 0, NULL));
		good = next(server->conn, &event, LIMIT) == DAT_CONNECTION_EVENT_ESTABLISHED;
		good = good && next(client->conn, &event, LIMIT) == DAT_CONNECTION_EVENT_ESTABLISHED;
	}
	MUST(dat_psp_free(psp));
	MUST(dat_evd_free(requests));
	return good;
}

/* Ends the connection of two Endpoints, and takes both events. */
__attribute__((unused)) static int link_down(struct end *one, struct end *other)
{
	DAT_EVENT event;

	MUST(dat_ep_disconnect(one->ep, DAT_CLOSE_ABRUPT_FLAG));
	return next(one->conn, &event, LIMIT) == DAT_CONNECTION_EVENT_DISCONNECTED &&
	       next(other->conn, &event, LIMIT) == DAT_CONNECTION_EVENT_DISCONNECTED;
}

#endif
