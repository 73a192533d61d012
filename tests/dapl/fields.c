/*
 * Every field of every query, through the dispatch table of the provider: which fields a mask has filled, that their values are
 * those the object was made with, and what is refused. This program is its own registry, so calls of DAT 2.0 are within reach.
 *
 *     fields LIBRARY PARAMETERS PARAMETERS      the provider, and what dat.conf would say of two adapters
 *
 * A line "ok NAME" or "FAIL NAME: why" for each check; ends with 0 if all are ok, with 1 if some are not, with 2 if what they rest
 * on fails. Wants nothing but the headers. Built with -rdynamic.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <dat2/dat_ib_extensions.h>

#include "registry.h"

enum { BUFFER = 65536, LIMIT = 5000000, MOST = 1024, LATER = 0x5a, OTHER = 0xa5 };

/* ---- the report ---------------------------------------------------------------------------------------------------------- */

static int failures;

static int report(int good, const char *name, const char *format, ...)
{
	va_list list;

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

/* A code of an error without the bit of its class is wrong, whatever its type. */
#define EXPECT(name, call, type, sub)                                                                                \
	do {                                                                                                             \
		DAT_RETURN expect_got = (call);                                                                              \
		report(expect_got == (0x80000000u | (type) | (sub)), name, "line %d: %#x, not %s with %s", __LINE__,         \
		       (unsigned) expect_got, #type, #sub);                                                                  \
	} while (0)

static void must(DAT_RETURN got, const char *what, int line)
{
	if (got == DAT_SUCCESS)
		return;
	printf("FAIL %s, line %d: %#x\n", what, line, (unsigned) got);
	fflush(stdout);
	exit(2);
}

#define MUST(call) must((call), #call, __LINE__)

/* The redirection of this call is the registry's own. */
#define IA_CLOSE(ia, how) (DAT_HANDLE_TO_PROVIDER(ia)->ia_close_func((ia), (how)))

/* ---- one side ------------------------------------------------------------------------------------------------------------ */

struct side {
	const char *name;
	DAT_IA_HANDLE ia;
	DAT_EVD_HANDLE async;
	DAT_PZ_HANDLE pz;
	DAT_IA_ATTR attr;
	DAT_PROVIDER_ATTR provider;
	DAT_EP_ATTR usual; /* of an Endpoint that was made without attributes */
	unsigned char *memory;
};

static struct side a, b;

static DAT_EVD_HANDLE evd_of(struct side *side, int flags, int length)
{
	DAT_EVD_HANDLE evd = DAT_HANDLE_NULL;

	MUST(DAT_EVD_CREATE(side->ia, length, DAT_HANDLE_NULL, (DAT_EVD_FLAGS) flags, &evd));
	return evd;
}

static void side_open(struct side *side, const char *name)
{
	DAT_PROVIDER_INFO info = info_of(name, 2, 0);
	const DAT_PROVIDER *table = find(&info);
	DAT_EVD_HANDLE dto, conn;
	DAT_EP_HANDLE ep;
	DAT_EP_PARAM param;

	if (table == NULL) {
		printf("FAIL %s is not registered\n", name);
		exit(2);
	}
	side->name = name;
	side->async = DAT_HANDLE_NULL;
	MUST(table->ia_open_func((char *) name, 16, &side->async, &side->ia));
	MUST(DAT_IA_QUERY(side->ia, NULL, DAT_IA_FIELD_ALL, &side->attr, DAT_PROVIDER_FIELD_ALL, &side->provider));
	MUST(DAT_PZ_CREATE(side->ia, &side->pz));
	side->memory = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (side->memory == MAP_FAILED)
		exit(2);
	memset(side->memory, 0, BUFFER);
	dto = evd_of(side, DAT_EVD_DTO_FLAG, 64);
	conn = evd_of(side, DAT_EVD_CONNECTION_FLAG, 8);
	MUST(DAT_EP_CREATE(side->ia, side->pz, dto, dto, conn, NULL, &ep));
	MUST(DAT_EP_QUERY(ep, DAT_EP_FIELD_ALL, &param));
	side->usual = param.ep_attr;
	MUST(DAT_EP_FREE(ep));
	MUST(DAT_EVD_FREE(dto));
	MUST(DAT_EVD_FREE(conn));
}

static unsigned next(DAT_EVD_HANDLE evd, DAT_EVENT *event)
{
	DAT_COUNT more;

	memset(event, LATER, sizeof *event);
	if (DAT_EVD_WAIT(evd, LIMIT, 1, event, &more) != DAT_SUCCESS)
		return 0;
	return event->event_number;
}

static DAT_DTO_COOKIE cookie(uint64_t word)
{
	DAT_DTO_COOKIE it;

	it.as_64 = word;
	return it;
}

/* ---- masks --------------------------------------------------------------------------------------------------------------- */

struct place { size_t at, length; };

#define PLACE(type, field) {offsetof(type, field), sizeof(((type *) 0)->field)}
#define COUNT(list) (sizeof(list) / sizeof *(list))

typedef DAT_RETURN (*ask)(DAT_HANDLE, uint64_t, void *);

/* Whether all bytes are as they were, but for the places that the mask names, which are as in `truth`. */
static int as_named(const unsigned char *got, const unsigned char *truth, size_t size, const struct place *places,
		    size_t count, uint64_t mask, unsigned char before)
{
	unsigned char wanted[MOST];

	memset(wanted, before, size);
	for (size_t bit = 0; bit < count; bit++)
		if (mask >> bit & 1)
			memcpy(wanted + places[bit].at, truth + places[bit].at, places[bit].length);
	return memcmp(got, wanted, size) == 0;
}

/* A list comes with the number of its elements, the field before it: stock dtest asks for the list alone, and reads both. */
static uint64_t with_numbers(uint64_t mask, uint64_t lists)
{
	return mask | (mask & lists) >> 1;
}

static void walk(const char *name, DAT_HANDLE handle, ask query, const struct place *places, size_t count, size_t size,
		 uint64_t all, uint64_t lists)
{
	unsigned char truth[MOST], got[MOST];
	char line[128];
	uint64_t mask;

	snprintf(line, sizeof line, "%s: the mask of all has a bit for each field", name);
	CHECK(line, all == (UINT64_C(1) << count) - 1);
	memset(truth, OTHER, size);
	MUST(query(handle, all, truth));
	memset(got, LATER, size);
	MUST(query(handle, all, got));
	snprintf(line, sizeof line, "%s: all fields are filled, and nothing between them", name);
	CHECK(line, as_named(got, truth, size, places, count, all, LATER));
	for (size_t bit = 0; bit <= count; bit++) {
		/* The last is a mask of none. */
		mask = bit < count ? UINT64_C(1) << bit : 0;
		memset(got, LATER, size);
		MUST(query(handle, mask, got));
		snprintf(line, sizeof line, "%s: mask %#llx fills what it names", name, (unsigned long long) mask);
		CHECK(line, as_named(got, truth, size, places, count, with_numbers(mask, lists), LATER));
		if (bit == count)
			break;
		memset(got, LATER, size);
		MUST(query(handle, all & ~mask, got));
		snprintf(line, sizeof line, "%s: a mask without %#llx fills the others", name, (unsigned long long) mask);
		CHECK(line, as_named(got, truth, size, places, count, with_numbers(all & ~mask, lists), LATER));
	}
	memset(got, LATER, size);
	snprintf(line, sizeof line, "%s: a mask with an unknown bit is refused", name);
	mask = all | UINT64_C(1) << count;
	report((query(handle, mask, got) & 0xffff0000u) == (0x80000000u | DAT_INVALID_PARAMETER), line, "%#x",
	       (unsigned) query(handle, mask, got));
	snprintf(line, sizeof line, "%s: the refused mask fills nothing", name);
	CHECK(line, as_named(got, truth, size, places, count, 0, LATER));
	snprintf(line, sizeof line, "%s: nowhere to put it is refused", name);
	report((query(handle, all, NULL) & 0xffff0000u) == (0x80000000u | DAT_INVALID_PARAMETER), line, "%#x",
	       (unsigned) query(handle, all, NULL));
}

#define ASK(name, call)                                                                                              \
	static DAT_RETURN name(DAT_HANDLE handle, uint64_t mask, void *param)                                            \
	{                                                                                                                \
		return call;                                                                                                 \
	}

ASK(ask_ia, DAT_IA_QUERY(handle, NULL, mask, param, 0, NULL))
ASK(ask_provider, DAT_IA_QUERY(handle, NULL, 0, NULL, mask, param))
ASK(ask_pz, DAT_PZ_QUERY(handle, (DAT_PZ_PARAM_MASK) mask, param))
ASK(ask_evd, DAT_EVD_QUERY(handle, (DAT_EVD_PARAM_MASK) mask, param))
ASK(ask_ep, DAT_EP_QUERY(handle, mask, param))
ASK(ask_lmr, DAT_LMR_QUERY(handle, (DAT_LMR_PARAM_MASK) mask, param))
ASK(ask_rmr, DAT_RMR_QUERY(handle, (DAT_RMR_PARAM_MASK) mask, param))
ASK(ask_psp, DAT_PSP_QUERY(handle, (DAT_PSP_PARAM_MASK) mask, param))
ASK(ask_rsp, DAT_RSP_QUERY(handle, (DAT_RSP_PARAM_MASK) mask, param))
ASK(ask_csp, DAT_CSP_QUERY(handle, (DAT_CSP_PARAM_MASK) mask, param))
ASK(ask_cr, DAT_CR_QUERY(handle, (DAT_CR_PARAM_MASK) mask, param))
ASK(ask_srq, DAT_SRQ_QUERY(handle, (DAT_SRQ_PARAM_MASK) mask, param))

static const struct place ia_places[] = {
	PLACE(DAT_IA_ATTR, adapter_name), PLACE(DAT_IA_ATTR, vendor_name), PLACE(DAT_IA_ATTR, hardware_version_major),
	PLACE(DAT_IA_ATTR, hardware_version_minor), PLACE(DAT_IA_ATTR, firmware_version_major),
	PLACE(DAT_IA_ATTR, firmware_version_minor), PLACE(DAT_IA_ATTR, ia_address_ptr), PLACE(DAT_IA_ATTR, max_eps),
	PLACE(DAT_IA_ATTR, max_dto_per_ep), PLACE(DAT_IA_ATTR, max_rdma_read_per_ep_in),
	PLACE(DAT_IA_ATTR, max_rdma_read_per_ep_out), PLACE(DAT_IA_ATTR, max_evds), PLACE(DAT_IA_ATTR, max_evd_qlen),
	PLACE(DAT_IA_ATTR, max_iov_segments_per_dto), PLACE(DAT_IA_ATTR, max_lmrs), PLACE(DAT_IA_ATTR, max_lmr_block_size),
	PLACE(DAT_IA_ATTR, max_lmr_virtual_address), PLACE(DAT_IA_ATTR, max_pzs), PLACE(DAT_IA_ATTR, max_message_size),
	PLACE(DAT_IA_ATTR, max_rdma_size), PLACE(DAT_IA_ATTR, max_rmrs), PLACE(DAT_IA_ATTR, max_rmr_target_address),
	PLACE(DAT_IA_ATTR, max_srqs), PLACE(DAT_IA_ATTR, max_ep_per_srq), PLACE(DAT_IA_ATTR, max_recv_per_srq),
	PLACE(DAT_IA_ATTR, max_iov_segments_per_rdma_read), PLACE(DAT_IA_ATTR, max_iov_segments_per_rdma_write),
	PLACE(DAT_IA_ATTR, max_rdma_read_in), PLACE(DAT_IA_ATTR, max_rdma_read_out),
	PLACE(DAT_IA_ATTR, max_rdma_read_per_ep_in_guaranteed), PLACE(DAT_IA_ATTR, max_rdma_read_per_ep_out_guaranteed),
	PLACE(DAT_IA_ATTR, zb_supported), PLACE(DAT_IA_ATTR, extension_supported), PLACE(DAT_IA_ATTR, extension_version),
	PLACE(DAT_IA_ATTR, num_transport_attr), PLACE(DAT_IA_ATTR, transport_attr), PLACE(DAT_IA_ATTR, num_vendor_attr),
	PLACE(DAT_IA_ATTR, vendor_attr),
};

static const struct place provider_places[] = {
	PLACE(DAT_PROVIDER_ATTR, provider_name), PLACE(DAT_PROVIDER_ATTR, provider_version_major),
	PLACE(DAT_PROVIDER_ATTR, provider_version_minor), PLACE(DAT_PROVIDER_ATTR, dapl_version_major),
	PLACE(DAT_PROVIDER_ATTR, dapl_version_minor), PLACE(DAT_PROVIDER_ATTR, lmr_mem_types_supported),
	PLACE(DAT_PROVIDER_ATTR, iov_ownership_on_return), PLACE(DAT_PROVIDER_ATTR, dat_qos_supported),
	PLACE(DAT_PROVIDER_ATTR, completion_flags_supported), PLACE(DAT_PROVIDER_ATTR, is_thread_safe),
	PLACE(DAT_PROVIDER_ATTR, max_private_data_size), PLACE(DAT_PROVIDER_ATTR, supports_multipath),
	PLACE(DAT_PROVIDER_ATTR, ep_creator), PLACE(DAT_PROVIDER_ATTR, pz_support),
	PLACE(DAT_PROVIDER_ATTR, optimal_buffer_alignment), PLACE(DAT_PROVIDER_ATTR, evd_stream_merging_supported),
	PLACE(DAT_PROVIDER_ATTR, srq_supported), PLACE(DAT_PROVIDER_ATTR, srq_watermarks_supported),
	PLACE(DAT_PROVIDER_ATTR, srq_ep_pz_difference_supported), PLACE(DAT_PROVIDER_ATTR, srq_info_supported),
	PLACE(DAT_PROVIDER_ATTR, ep_recv_info_supported), PLACE(DAT_PROVIDER_ATTR, lmr_sync_req),
	PLACE(DAT_PROVIDER_ATTR, dto_async_return_guaranteed), PLACE(DAT_PROVIDER_ATTR, rdma_write_for_rdma_read_req),
	PLACE(DAT_PROVIDER_ATTR, rdma_read_lmr_rmr_context_exposure), PLACE(DAT_PROVIDER_ATTR, rmr_scope_supported),
	PLACE(DAT_PROVIDER_ATTR, is_signal_safe), PLACE(DAT_PROVIDER_ATTR, ha_supported),
	PLACE(DAT_PROVIDER_ATTR, ha_loadbalancing), PLACE(DAT_PROVIDER_ATTR, num_provider_specific_attr),
	PLACE(DAT_PROVIDER_ATTR, provider_specific_attr),
};

static const struct place pz_places[] = {PLACE(DAT_PZ_PARAM, ia_handle)};

static const struct place evd_places[] = {
	PLACE(DAT_EVD_PARAM, ia_handle), PLACE(DAT_EVD_PARAM, evd_qlen), PLACE(DAT_EVD_PARAM, evd_state),
	PLACE(DAT_EVD_PARAM, cno_handle), PLACE(DAT_EVD_PARAM, evd_flags),
};

static const struct place ep_places[] = {
	PLACE(DAT_EP_PARAM, ia_handle), PLACE(DAT_EP_PARAM, ep_state), PLACE(DAT_EP_PARAM, comm),
	PLACE(DAT_EP_PARAM, local_ia_address_ptr), PLACE(DAT_EP_PARAM, local_port_qual),
	PLACE(DAT_EP_PARAM, remote_ia_address_ptr), PLACE(DAT_EP_PARAM, remote_port_qual), PLACE(DAT_EP_PARAM, pz_handle),
	PLACE(DAT_EP_PARAM, recv_evd_handle), PLACE(DAT_EP_PARAM, request_evd_handle),
	PLACE(DAT_EP_PARAM, connect_evd_handle), PLACE(DAT_EP_PARAM, srq_handle), PLACE(DAT_EP_PARAM, ep_attr.service_type),
	PLACE(DAT_EP_PARAM, ep_attr.max_message_size), PLACE(DAT_EP_PARAM, ep_attr.max_rdma_size),
	PLACE(DAT_EP_PARAM, ep_attr.qos), PLACE(DAT_EP_PARAM, ep_attr.recv_completion_flags),
	PLACE(DAT_EP_PARAM, ep_attr.request_completion_flags), PLACE(DAT_EP_PARAM, ep_attr.max_recv_dtos),
	PLACE(DAT_EP_PARAM, ep_attr.max_request_dtos), PLACE(DAT_EP_PARAM, ep_attr.max_recv_iov),
	PLACE(DAT_EP_PARAM, ep_attr.max_request_iov), PLACE(DAT_EP_PARAM, ep_attr.max_rdma_read_in),
	PLACE(DAT_EP_PARAM, ep_attr.max_rdma_read_out), PLACE(DAT_EP_PARAM, ep_attr.srq_soft_hw),
	PLACE(DAT_EP_PARAM, ep_attr.max_rdma_read_iov), PLACE(DAT_EP_PARAM, ep_attr.max_rdma_write_iov),
	PLACE(DAT_EP_PARAM, ep_attr.ep_transport_specific_count), PLACE(DAT_EP_PARAM, ep_attr.ep_transport_specific),
	PLACE(DAT_EP_PARAM, ep_attr.ep_provider_specific_count), PLACE(DAT_EP_PARAM, ep_attr.ep_provider_specific),
};

static const struct place lmr_places[] = {
	PLACE(DAT_LMR_PARAM, ia_handle), PLACE(DAT_LMR_PARAM, mem_type), PLACE(DAT_LMR_PARAM, region_desc),
	PLACE(DAT_LMR_PARAM, length), PLACE(DAT_LMR_PARAM, pz_handle), PLACE(DAT_LMR_PARAM, mem_priv),
	PLACE(DAT_LMR_PARAM, va_type), PLACE(DAT_LMR_PARAM, lmr_context), PLACE(DAT_LMR_PARAM, rmr_context),
	PLACE(DAT_LMR_PARAM, registered_size), PLACE(DAT_LMR_PARAM, registered_address),
};

static const struct place rmr_places[] = {
	PLACE(DAT_RMR_PARAM, ia_handle), PLACE(DAT_RMR_PARAM, pz_handle), PLACE(DAT_RMR_PARAM, lmr_triplet),
	PLACE(DAT_RMR_PARAM, mem_priv), PLACE(DAT_RMR_PARAM, rmr_context), PLACE(DAT_RMR_PARAM, rmr_scope),
	PLACE(DAT_RMR_PARAM, va_type),
};

static const struct place psp_places[] = {
	PLACE(DAT_PSP_PARAM, ia_handle), PLACE(DAT_PSP_PARAM, conn_qual), PLACE(DAT_PSP_PARAM, evd_handle),
	PLACE(DAT_PSP_PARAM, psp_flags),
};

static const struct place rsp_places[] = {
	PLACE(DAT_RSP_PARAM, ia_handle), PLACE(DAT_RSP_PARAM, conn_qual), PLACE(DAT_RSP_PARAM, evd_handle),
	PLACE(DAT_RSP_PARAM, ep_handle),
};

static const struct place csp_places[] = {
	PLACE(DAT_CSP_PARAM, ia_handle), PLACE(DAT_CSP_PARAM, comm), PLACE(DAT_CSP_PARAM, address_ptr),
	PLACE(DAT_CSP_PARAM, evd_handle),
};

static const struct place cr_places[] = {
	PLACE(DAT_CR_PARAM, remote_ia_address_ptr), PLACE(DAT_CR_PARAM, remote_port_qual),
	PLACE(DAT_CR_PARAM, private_data_size), PLACE(DAT_CR_PARAM, private_data), PLACE(DAT_CR_PARAM, local_ep_handle),
};

static const struct place srq_places[] = {
	PLACE(DAT_SRQ_PARAM, ia_handle), PLACE(DAT_SRQ_PARAM, srq_state), PLACE(DAT_SRQ_PARAM, pz_handle),
	PLACE(DAT_SRQ_PARAM, max_recv_dtos), PLACE(DAT_SRQ_PARAM, max_recv_iov), PLACE(DAT_SRQ_PARAM, low_watermark),
	PLACE(DAT_SRQ_PARAM, available_dto_count), PLACE(DAT_SRQ_PARAM, outstanding_dto_count),
};

enum {
	pz_lists = 0, evd_lists = 0, lmr_lists = 0, rmr_lists = 0, psp_lists = 0, rsp_lists = 0, csp_lists = 0, cr_lists = 0,
	srq_lists = 0, provider_lists = DAT_PROVIDER_FIELD_PROVIDER_SPECIFIC_ATTR,
	ep_lists = DAT_EP_FIELD_EP_ATTR_TRANSPORT_SPECIFIC_ATTR | DAT_EP_FIELD_EP_ATTR_PROVIDER_SPECIFIC_ATTR,
};
static const uint64_t ia_lists = DAT_IA_FIELD_IA_TRANSPORT_ATTR | DAT_IA_FIELD_IA_VENDOR_ATTR;

#define WALK(name, handle, of, type, all)                                                                            \
	walk(name, handle, ask_##of, of##_places, COUNT(of##_places), sizeof(type), all, of##_lists)

#include "fields_objects.h"

int main(int count, char **words)
{
	DAT_PROVIDER_INFO info;

	if (count != 4 || !load(words[1])) {
		printf("FAIL %s\n", count == 4 ? dlerror() : "fields LIBRARY PARAMETERS PARAMETERS");
		return 2;
	}
	info = info_of("left", 2, 0);
	begin(&info, words[2]);
	info = info_of("right", 2, 0);
	begin(&info, words[3]);
	side_open(&a, "left");
	side_open(&b, "right");
	adapters(words[2]);
	plain_objects();
	endpoints();
	memory();
	windows();
	requests();
	qualifiers();
	qualities();
	modifications();
	versions(words[2]);
	MUST(IA_CLOSE(a.ia, DAT_CLOSE_ABRUPT_FLAG));
	MUST(IA_CLOSE(b.ia, DAT_CLOSE_ABRUPT_FLAG));
	unregister();
	return failures != 0;
}
