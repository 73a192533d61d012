/*
 * The corner cases of the manual pages, through the stock registry: what idle means, which streams share an Event Dispatcher, posts
 * on an Endpoint that is disconnected, private data, uninitialized attributes, stale handles, handles of another kind.
 *
 *     probe SERVER_IA CLIENT_IA      two names of dat.conf; both adapters are opened in this process
 *
 * A line "ok NAME" or "FAIL NAME: why" for each case; ends with 0 if all are ok, with 1 if some are not, with 2 if what they rest
 * on fails. Wants nothing but libdat2.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>

#include "side.h"

static struct side server, client;

/* ---- handles ------------------------------------------------------------------------------------------------------------- */

static void dead_handles(void)
{
	struct side *s = &server;
	DAT_PZ_HANDLE pz, other;
	DAT_PZ_PARAM pz_param;
	DAT_EVD_HANDLE evd = evd_of(s, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG, 8);
	DAT_EP_HANDLE ep;
	DAT_LMR_HANDLE lmr;
	DAT_RMR_HANDLE rmr;
	DAT_PSP_HANDLE psp;
	DAT_EVD_HANDLE cr_evd = evd_of(s, DAT_EVD_CR_FLAG, 8);
	DAT_REGION_DESCRIPTION region;
	DAT_HANDLE_TYPE type;
	DAT_CONTEXT context;
	DAT_SRQ_ATTR srq_attr = {8, 1, 0};
	DAT_SRQ_HANDLE srq;
	DAT_EP_STATE state;

	MUST(dat_pz_create(s->ia, &pz));
	MUST(dat_pz_free(pz));
	EXPECT_SUB("free a zone twice", dat_pz_free(pz), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
	EXPECT("query a freed zone", dat_pz_query(pz, DAT_PZ_FIELD_ALL, &pz_param), DAT_INVALID_HANDLE);
	EXPECT_SUB("an Endpoint in a freed zone", dat_ep_create(s->ia, pz, evd, evd, evd, NULL, &ep), DAT_INVALID_HANDLE,
		   DAT_INVALID_HANDLE_PZ);
	region.for_va = s->memory;
	EXPECT_SUB("an LMR in a freed zone",
		   dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, 64, pz, DAT_MEM_PRIV_LOCAL_READ_FLAG,
				  DAT_VA_TYPE_VA, &lmr, NULL, NULL, NULL, NULL),
		   DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ);
	EXPECT("an RMR in a freed zone", dat_rmr_create(pz, &rmr), DAT_INVALID_HANDLE);
	EXPECT("an SRQ in a freed zone", dat_srq_create(s->ia, pz, &srq_attr, &srq), DAT_INVALID_HANDLE);
	EXPECT("the type of a freed handle", dat_get_handle_type(pz, &type), DAT_INVALID_HANDLE);
	EXPECT("the context of a freed handle", dat_get_consumer_context(pz, &context), DAT_INVALID_HANDLE);
	MUST(dat_pz_create(s->ia, &other));
	CHECK("a freed handle is not given out again at once", other != pz);
	MUST(dat_pz_free(other));

	MUST(dat_ep_create(s->ia, s->pz, evd, evd, evd, NULL, &ep));
	EXPECT_SUB("an Event Dispatcher in use", dat_evd_free(evd), DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE);
	EXPECT_SUB("a zone in use", dat_pz_free(s->pz), DAT_INVALID_STATE, DAT_INVALID_STATE_PZ_IN_USE);
	MUST(dat_ep_free(ep));
	EXPECT_SUB("free an Endpoint twice", dat_ep_free(ep), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
	EXPECT("the status of a freed Endpoint", dat_ep_get_status(ep, &state, NULL, NULL), DAT_INVALID_HANDLE);
	EXPECT("a receive on a freed Endpoint", dat_ep_post_recv(ep, 0, NULL, cookie(0), DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_INVALID_HANDLE);
	EXPECT("a reset of a freed Endpoint", dat_ep_reset(ep), DAT_INVALID_HANDLE);
	EXPECT("a disconnect of a freed Endpoint", dat_ep_disconnect(ep, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_HANDLE);

	MUST(dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, 64, s->pz, DAT_MEM_PRIV_LOCAL_READ_FLAG, DAT_VA_TYPE_VA,
			    &lmr, NULL, NULL, NULL, NULL));
	MUST(dat_lmr_free(lmr));
	EXPECT_SUB("free an LMR twice", dat_lmr_free(lmr), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_LMR);
	MUST(dat_rmr_create(s->pz, &rmr));
	MUST(dat_rmr_free(rmr));
	EXPECT_SUB("free an RMR twice", dat_rmr_free(rmr), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RMR);
	MUST(dat_psp_create(s->ia, 1111, cr_evd, DAT_PSP_CONSUMER_FLAG, &psp));
	EXPECT("a qualifier in use", dat_psp_create(s->ia, 1111, cr_evd, DAT_PSP_CONSUMER_FLAG, &psp), DAT_CONN_QUAL_IN_USE);
	MUST(dat_psp_free(psp));
	EXPECT_SUB("free a service point twice", dat_psp_free(psp), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PSP);
	MUST(dat_evd_free(evd));
	EXPECT("free an Event Dispatcher twice", dat_evd_free(evd), DAT_INVALID_HANDLE);
	EXPECT("dequeue from a freed Event Dispatcher", dat_evd_dequeue(evd, &(DAT_EVENT){0}), DAT_INVALID_HANDLE);
	MUST(dat_evd_free(cr_evd));
}

static void foreign_handles(void)
{
	struct side *s = &server;
	DAT_EVD_HANDLE evd = evd_of(s, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG, 8);
	DAT_EVD_HANDLE cr_evd = evd_of(s, DAT_EVD_CR_FLAG, 8);
	DAT_EVD_HANDLE far = evd_of(&client, DAT_EVD_DTO_FLAG, 8);
	DAT_EP_HANDLE ep;
	DAT_PSP_HANDLE psp;
	DAT_PSP_PARAM psp_param;
	DAT_EP_PARAM ep_param;
	DAT_LMR_PARAM lmr_param;
	DAT_EVENT event;
	DAT_HANDLE_TYPE type;
	char text[64] = "not a handle";
	DAT_COUNT more;

	EXPECT_SUB("an Event Dispatcher as a service point", dat_psp_query(evd, DAT_PSP_FIELD_ALL, &psp_param),
		   DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PSP);
	EXPECT("a zone as an Endpoint", dat_ep_query(s->pz, DAT_EP_FIELD_ALL, &ep_param), DAT_INVALID_HANDLE);
	EXPECT("a zone as an Endpoint to free", dat_ep_free(s->pz), DAT_INVALID_HANDLE);
	EXPECT("an Event Dispatcher as an LMR", dat_lmr_query(evd, DAT_LMR_FIELD_ALL, &lmr_param), DAT_INVALID_HANDLE);
	EXPECT("an LMR as an Event Dispatcher", dat_evd_dequeue(s->lmr, &event), DAT_INVALID_HANDLE);
	EXPECT("an LMR as an Event Dispatcher to wait for", dat_evd_wait(s->lmr, 0, 1, &event, &more), DAT_INVALID_HANDLE);
	EXPECT("an LMR as an Endpoint to post to",
	       dat_ep_post_send(s->lmr, 0, NULL, cookie(0), DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_HANDLE);
	EXPECT("a zone as an SRQ", dat_srq_post_recv(s->pz, 0, NULL, cookie(0)), DAT_INVALID_HANDLE);
	EXPECT_SUB("receives to where requests arrive", dat_ep_create(s->ia, s->pz, cr_evd, evd, evd, NULL, &ep),
		   DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_RECV);
	EXPECT_SUB("requests to where requests for connections arrive",
		   dat_ep_create(s->ia, s->pz, evd, cr_evd, evd, NULL, &ep), DAT_INVALID_HANDLE,
		   DAT_INVALID_HANDLE_EVD_REQUEST);
	EXPECT_SUB("connection events to where requests arrive", dat_ep_create(s->ia, s->pz, evd, evd, cr_evd, NULL, &ep),
		   DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_CONN);
	EXPECT_SUB("a service point without a stream of requests",
		   dat_psp_create(s->ia, 1112, evd, DAT_PSP_CONSUMER_FLAG, &psp), DAT_INVALID_HANDLE,
		   DAT_INVALID_HANDLE_EVD_CR);
	EXPECT("the Event Dispatcher of another adapter", dat_ep_create(s->ia, s->pz, far, evd, evd, NULL, &ep),
	       DAT_INVALID_HANDLE);
	EXPECT("memory that is no object, as an Event Dispatcher",
	       dat_ep_create(s->ia, s->pz, (DAT_EVD_HANDLE) text, evd, evd, NULL, &ep), DAT_INVALID_HANDLE);
	EXPECT("an address inside an object", dat_ep_create(s->ia, s->pz, (char *) evd + 8, evd, evd, NULL, &ep),
	       DAT_INVALID_HANDLE);
	EXPECT("an address that is none", dat_ep_create(s->ia, (DAT_PZ_HANDLE) 16, evd, evd, evd, NULL, &ep), DAT_INVALID_HANDLE);
	CHECK("the type of an Event Dispatcher", dat_get_handle_type(evd, &type) == DAT_SUCCESS && type == DAT_HANDLE_TYPE_EVD);
	CHECK("the type of an adapter", dat_get_handle_type(s->ia, &type) == DAT_SUCCESS && type == DAT_HANDLE_TYPE_IA);
	CHECK("the type of an LMR", dat_get_handle_type(s->lmr, &type) == DAT_SUCCESS && type == DAT_HANDLE_TYPE_LMR);
	MUST(dat_evd_free(far));
	MUST(dat_evd_free(cr_evd));
	MUST(dat_evd_free(evd));
}

static void contexts(void)
{
	DAT_CONTEXT in, out;
	DAT_HANDLE all[] = {server.ia, server.pz, server.lmr};
	int at, good = 1;

	for (at = 0; at < 3; at++) {
		out.as_64 = 1;
		good = good && dat_get_consumer_context(all[at], &out) == DAT_SUCCESS && out.as_64 == 0;
		in.as_64 = 0x1234567800000000ull + (unsigned) at;
		good = good && dat_set_consumer_context(all[at], in) == DAT_SUCCESS;
	}
	for (at = 0; at < 3; at++)
		good = good && dat_get_consumer_context(all[at], &out) == DAT_SUCCESS &&
		       out.as_64 == 0x1234567800000000ull + (unsigned) at;
	CHECK("contexts of several objects", good);
	EXPECT("a context to nowhere", dat_get_consumer_context(server.pz, NULL), DAT_INVALID_PARAMETER);
}

/* ---- attributes ---------------------------------------------------------------------------------------------------------- */

static int all_filled(const void *memory, size_t from, size_t to)
{
	const unsigned char *at = memory;

	for (; from + 4 <= to; from += 4)
		if (at[from] == 0xa5 && at[from + 1] == 0xa5 && at[from + 2] == 0xa5 && at[from + 3] == 0xa5)
			return 0;
	return 1;
}

static void attributes(void)
{
	struct side *s = &server;
	DAT_IA_ATTR ia;
	DAT_PROVIDER_ATTR it;
	DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
	int row, column, merged = 1, at, rdma_read = 0;

	memset(&ia, 0xa5, sizeof ia);
	memset(&it, 0xa5, sizeof it);
	MUST(dat_ia_query(s->ia, &async, DAT_IA_FIELD_ALL, &ia, DAT_PROVIDER_FIELD_ALL, &it));
	CHECK("a query returns the async Event Dispatcher", async == s->async);
	/* But for the gaps between them, which nobody has to fill. */
	CHECK("every attribute of the adapter is set",
	      all_filled(&ia, 512, 572) && all_filled(&ia, 576, 660) && all_filled(&ia, 672, 676));
	CHECK("every attribute of the provider is set", all_filled(&it, 256, 512));
	CHECK("the adapter has a name", ia.adapter_name[0] && ia.adapter_name[0] != (char) 0xa5);
	CHECK("the adapter has an address", ((struct sockaddr *) ia.ia_address_ptr)->sa_family == AF_INET ||
						   ((struct sockaddr *) ia.ia_address_ptr)->sa_family == AF_INET6);
	CHECK("SRQs are counted", ia.max_srqs > 0 && ia.max_ep_per_srq > 0 && ia.max_recv_per_srq > 0);
	CHECK("RMRs are counted", ia.max_rmrs > 0);
	CHECK("zero-based memory", ia.zb_supported == DAT_TRUE);
	CHECK("extensions of InfiniBand", ia.extension_supported == DAT_EXTENSION_IB && ia.extension_version >= 209);
	for (row = 0; row < 6; row++)
		for (column = 0; column < 6; column++)
			merged = merged && it.evd_stream_merging_supported[row][column] == DAT_TRUE;
	CHECK("all streams may share an Event Dispatcher", merged);
	CHECK("all types of memory", it.lmr_mem_types_supported ==
					     (DAT_MEM_TYPE_VIRTUAL | DAT_MEM_TYPE_LMR | DAT_MEM_TYPE_SHARED_VIRTUAL));
	CHECK("an alignment that divides 256", it.optimal_buffer_alignment && 256 % it.optimal_buffer_alignment == 0);
	CHECK("version 2.0", it.dapl_version_major == 2 && it.dapl_version_minor == 0);
	CHECK("room for the private data of the stock programs", it.max_private_data_size >= 48);
	for (at = 0; at < it.num_provider_specific_attr; at++)
		if (!strcmp(it.provider_specific_attr[at].name, "DAT_IB_RDMA_READ"))
			rdma_read = !strcmp(it.provider_specific_attr[at].value, "TRUE");
	CHECK("DAT_IB_RDMA_READ is TRUE", rdma_read);
	EXPECT("attributes to nowhere", dat_ia_query(s->ia, NULL, DAT_IA_FIELD_ALL, NULL, 0, NULL), DAT_INVALID_PARAMETER);
	EXPECT("provider attributes to nowhere", dat_ia_query(s->ia, NULL, 0, NULL, DAT_PROVIDER_FIELD_ALL, NULL),
	       DAT_INVALID_PARAMETER);
	EXPECT("a query of nothing", dat_ia_query(s->ia, NULL, 0, NULL, 0, NULL), DAT_SUCCESS);
}

/* Whatever memory holds: refused or taken, but never a crash, and what is taken can be freed. */
static void unfilled_attributes(void)
{
	struct side *s = &server;
	DAT_EVD_HANDLE evd = evd_of(s, DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG, 64);
	DAT_EP_ATTR attr;
	DAT_EP_HANDLE ep;
	DAT_SRQ_ATTR srq_attr;
	DAT_SRQ_HANDLE srq;
	DAT_EP_PARAM param;
	unsigned seed = 1, round, taken = 0, wrong = 0;
	size_t at;
	DAT_RETURN got;

	memset(&attr, 0xa5, sizeof attr);
	EXPECT("an Endpoint of attributes that nobody filled", dat_ep_create(s->ia, s->pz, evd, evd, evd, &attr, &ep),
	       DAT_INVALID_PARAMETER);
	memset(&attr, 0xff, sizeof attr);
	EXPECT("an Endpoint of attributes below 0", dat_ep_create(s->ia, s->pz, evd, evd, evd, &attr, &ep), DAT_INVALID_PARAMETER);
	memset(&srq_attr, 0xa5, sizeof srq_attr);
	EXPECT("an SRQ of attributes that nobody filled", dat_srq_create(s->ia, s->pz, &srq_attr, &srq), DAT_INVALID_PARAMETER);
	EXPECT("an SRQ without attributes", dat_srq_create(s->ia, s->pz, NULL, &srq), DAT_INVALID_PARAMETER);
	for (round = 0; round < 2000; round++) {
		memset(&attr, 0, sizeof attr);
		attr.max_recv_dtos = attr.max_request_dtos = 4;
		attr.max_recv_iov = attr.max_request_iov = 1;
		for (at = 0; at < sizeof attr; at++) {
			seed = seed * 1103515245 + 12345;
			if ((seed >> 16) % 16 == 0)
				((unsigned char *) &attr)[at] = (unsigned char) (seed >> 24);
		}
		got = dat_ep_create(s->ia, s->pz, evd, evd, evd, &attr, &ep);
		if (got == DAT_SUCCESS) {
			taken++;
			wrong += dat_ep_free(ep) != DAT_SUCCESS;
		} else {
			wrong += (got & 0xc0000000u) != 0x80000000u;
		}
	}
	CHECK("attributes with random bytes", !wrong && taken < 2000);
	MUST(dat_ep_create(s->ia, s->pz, evd, evd, evd, NULL, &ep));
	memset(&param, 0xa5, sizeof param);
	EXPECT("a change that nobody filled", dat_ep_modify(ep, DAT_EP_FIELD_EP_ATTR_ALL, &param), DAT_INVALID_PARAMETER);
	EXPECT("a change of the adapter", dat_ep_modify(ep, DAT_EP_FIELD_IA_HANDLE, &param), DAT_INVALID_PARAMETER);
	EXPECT("a change to nowhere", dat_ep_modify(ep, DAT_EP_FIELD_PZ_HANDLE, NULL), DAT_INVALID_PARAMETER);
	EXPECT("parameters to nowhere", dat_ep_query(ep, DAT_EP_FIELD_ALL, NULL), DAT_INVALID_PARAMETER);
	memset(&param, 0xa5, sizeof param);
	MUST(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param));
	CHECK("parameters of an Endpoint", param.ia_handle == s->ia && param.ep_state == DAT_EP_STATE_UNCONNECTED &&
						  param.pz_handle == s->pz && param.recv_evd_handle == evd &&
						  param.request_evd_handle == evd && param.connect_evd_handle == evd &&
						  param.srq_handle == DAT_HANDLE_NULL && param.ep_attr.max_recv_dtos > 0 &&
						  param.ep_attr.service_type == DAT_SERVICE_TYPE_RC);
	MUST(dat_ep_free(ep));
	MUST(dat_evd_free(evd));
}

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

static void memory(void)
{
	struct side *s = &server;
	DAT_REGION_DESCRIPTION region, over;
	DAT_LMR_HANDLE lmr, second;
	DAT_LMR_CONTEXT context;
	DAT_RMR_CONTEXT key;
	DAT_VLEN length;
	DAT_VADDR start;
	DAT_LMR_PARAM param;
	DAT_LMR_TRIPLET range;
	char name[DAT_LMR_COOKIE_SIZE] = "shared", *shared;
	int file;

	region.for_va = s->memory;
#define CREATE(type, of, bytes, zone, rights, va)                                                                         \
	dat_lmr_create(s->ia, type, of, bytes, zone, rights, va, &lmr, &context, &key, &length, &start)
	EXPECT("memory without length", CREATE(DAT_MEM_TYPE_VIRTUAL, region, 0, s->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA),
	       DAT_LENGTH_ERROR);
	EXPECT("remote writes without local ones",
	       CREATE(DAT_MEM_TYPE_VIRTUAL, region, 64, s->pz, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA),
	       DAT_PRIVILEGES_VIOLATION);
	EXPECT("unknown privileges", CREATE(DAT_MEM_TYPE_VIRTUAL, region, 64, s->pz, (DAT_MEM_PRIV_FLAGS) 0x1000, DAT_VA_TYPE_VA),
	       DAT_INVALID_PARAMETER);
	EXPECT("an unknown type", CREATE((DAT_MEM_TYPE) 77, region, 64, s->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA),
	       DAT_INVALID_PARAMETER);
	EXPECT("addresses of an unknown kind", CREATE(DAT_MEM_TYPE_VIRTUAL, region, 64, s->pz, DAT_MEM_PRIV_ALL_FLAG, (DAT_VA_TYPE) 9),
	       DAT_INVALID_PARAMETER);
	over.for_va = NULL;
	EXPECT("no address", CREATE(DAT_MEM_TYPE_VIRTUAL, over, 64, s->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA),
	       DAT_INVALID_PARAMETER);
	over.for_va = (void *) 0x1000;
	EXPECT("memory that is not there", CREATE(DAT_MEM_TYPE_VIRTUAL, over, 64, s->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA),
	       DAT_INVALID_PARAMETER);
	EXPECT("memory that wraps", CREATE(DAT_MEM_TYPE_VIRTUAL, region, ~0ull, s->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA),
	       DAT_INVALID_PARAMETER);
	EXPECT("nowhere to put the handle",
	       dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, 64, s->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, NULL,
			      &context, &key, &length, &start),
	       DAT_INVALID_PARAMETER);
	MUST(CREATE(DAT_MEM_TYPE_VIRTUAL, region, 100, s->pz, DAT_MEM_PRIV_LOCAL_READ_FLAG, DAT_VA_TYPE_VA));
	CHECK("no key without remote privileges", key == 0);
	MUST(dat_lmr_query(lmr, DAT_LMR_FIELD_ALL, &param));
	CHECK("parameters of an LMR",
	      param.ia_handle == s->ia && param.mem_type == DAT_MEM_TYPE_VIRTUAL && param.region_desc.for_va == s->memory &&
		      param.length == 100 && param.pz_handle == s->pz && param.mem_priv == DAT_MEM_PRIV_LOCAL_READ_FLAG &&
		      param.lmr_context == context && param.registered_address <= (DAT_VADDR) (uintptr_t) s->memory &&
		      param.registered_size >= 100);
	EXPECT("parameters of an LMR to nowhere", dat_lmr_query(lmr, DAT_LMR_FIELD_ALL, NULL), DAT_INVALID_PARAMETER);
	over.for_lmr_handle = lmr;
	second = lmr;
	MUST(CREATE(DAT_MEM_TYPE_LMR, over, 0, s->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA));
	CHECK("an LMR over an LMR", length >= 100 && key != 0);
	MUST(dat_lmr_query(lmr, DAT_LMR_FIELD_ALL, &param));
	CHECK("parameters of an LMR over an LMR", param.mem_type == DAT_MEM_TYPE_LMR && param.region_desc.for_lmr_handle == second);
	EXPECT("an LMR below another goes first", dat_lmr_free(second), DAT_SUCCESS);
	EXPECT("the one above it goes", dat_lmr_free(lmr), DAT_SUCCESS);
	over.for_lmr_handle = lmr;
	EXPECT("an LMR over a freed one", CREATE(DAT_MEM_TYPE_LMR, over, 64, s->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA),
	       DAT_INVALID_HANDLE);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		exit(2);
	over.for_shared_memory.virtual_address = shared;
	over.for_shared_memory.shared_memory_id = &name;
	EXPECT("memory of the process alone is not shared",
	       CREATE(DAT_MEM_TYPE_SHARED_VIRTUAL, over, 64, s->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA), DAT_INVALID_STATE);
	munmap(shared, 4096);
	file = memfd_create("shared", 0);
	if (file < 0 || ftruncate(file, 4096) != 0)
		exit(2);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (shared == MAP_FAILED)
		exit(2);
	over.for_shared_memory.virtual_address = shared;
	EXPECT("shared memory", CREATE(DAT_MEM_TYPE_SHARED_VIRTUAL, over, 64, s->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA),
	       DAT_SUCCESS);
	MUST(dat_lmr_free(lmr));
	munmap(shared, 4096);
	close(file);
	over.for_shared_memory.shared_memory_id = NULL;
	EXPECT("shared memory without a name",
	       CREATE(DAT_MEM_TYPE_SHARED_VIRTUAL, over, 64, s->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA), DAT_INVALID_PARAMETER);
	MUST(CREATE(DAT_MEM_TYPE_VIRTUAL, region, 4096, s->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_ZB));
	CHECK("zero-based memory begins at 0", start == 0 && length == 4096);
	range.virtual_address = 0;
	range.segment_length = 64;
	range.lmr_context = context;
	EXPECT("a sync of what there is", dat_lmr_sync_rdma_read(s->ia, &range, 1), DAT_SUCCESS);
	EXPECT("a sync in the other direction", dat_lmr_sync_rdma_write(s->ia, &range, 1), DAT_SUCCESS);
	range.segment_length = 8192;
	EXPECT("a sync of more than there is", dat_lmr_sync_rdma_read(s->ia, &range, 1), DAT_INVALID_PARAMETER);
	EXPECT("a sync of nothing", dat_lmr_sync_rdma_write(s->ia, NULL, 0), DAT_SUCCESS);
	EXPECT("a sync of no list", dat_lmr_sync_rdma_write(s->ia, NULL, 1), DAT_INVALID_PARAMETER);
	MUST(dat_lmr_free(lmr));
#undef CREATE
}

/* ---- Event Dispatchers --------------------------------------------------------------------------------------------------- */

/* Whether a descriptor can be read, now or within that many milliseconds. */
static int readable(int fd, int limit)
{
	struct pollfd one = {fd, POLLIN, 0};

	return poll(&one, 1, limit) == 1 && (one.revents & POLLIN);
}

/* A CNO with a descriptor; the registry exports neither of the two calls. */
static void described(void)
{
	struct side *s = &client;
	DAT_IA_HANDLE real;
	DAT_CNO_HANDLE cno, other;
	DAT_CNO_PARAM param;
	DAT_EVD_HANDLE evd, hint;
	DAT_EVENT event;
	DAT_FD fd = -1;

	memset(&event, 0, sizeof event);
	event.event_number = DAT_SOFTWARE_EVENT;
	MUST(dats_get_ia_handle(s->ia, &real));
	EXPECT("a CNO with a descriptor to nowhere", DAT_CNO_FD_CREATE(real, NULL, &cno), DAT_INVALID_PARAMETER);
	EXPECT("a descriptor with a CNO to nowhere", DAT_CNO_FD_CREATE(real, &fd, NULL), DAT_INVALID_PARAMETER);
	EXPECT("a CNO with a descriptor", DAT_CNO_FD_CREATE(real, &fd, &cno), DAT_SUCCESS);
	CHECK("which cannot be read", fd >= 0 && !readable(fd, 0));
	EXPECT("its parameters", dat_cno_query(cno, DAT_CNO_FIELD_ALL, &param), DAT_SUCCESS);
	CHECK("name the descriptor", param.proxy_type == DAT_PROXY_TYPE_FD && param.proxy.fd == fd);
	MUST(dat_evd_create(s->ia, 8, cno, DAT_EVD_SOFTWARE_FLAG, &evd));
	EXPECT("a CNO that nothing has triggered", DAT_CNO_TRIGGER(cno, &hint), DAT_QUEUE_EMPTY);
	MUST(dat_evd_post_se(evd, &event));
	CHECK("the descriptor of a CNO that is triggered", readable(fd, 5000));
	CHECK("stays as it is", readable(fd, 0));
	EXPECT("a trigger to nowhere", DAT_CNO_TRIGGER(cno, NULL), DAT_INVALID_PARAMETER);
	hint = DAT_HANDLE_NULL;
	EXPECT("the trigger is taken", DAT_CNO_TRIGGER(cno, &hint), DAT_SUCCESS);
	CHECK("and returns the Event Dispatcher that did", hint == evd && !readable(fd, 0));
	MUST(dat_evd_post_se(evd, &event));
	CHECK("it is triggered again", readable(fd, 5000));
	EXPECT("a wait takes it as well", dat_cno_wait(cno, LIMIT, &hint), DAT_SUCCESS);
	CHECK("and the descriptor shows it", hint == evd && !readable(fd, 0));
	EXPECT_SUB("a CNO with a descriptor in use", dat_cno_free(cno), DAT_INVALID_STATE, DAT_INVALID_STATE_CNO_IN_USE);
	MUST(dat_evd_free(evd));
	MUST(DAT_CNO_FD_CREATE(real, &fd, &other));
	MUST(dat_cno_free(other));
	CHECK("a descriptor goes with its CNO", fcntl(fd, F_GETFD) == -1);
	MUST(dat_cno_free(cno));
	EXPECT("a trigger of a CNO that is freed", DAT_CNO_TRIGGER(cno, &hint), DAT_INVALID_HANDLE);
}

/* Waits for the completion of a write by the descriptor. */
static void described_completions(void)
{
	DAT_IA_HANDLE real;
	DAT_CNO_HANDLE cno;
	DAT_EVD_HANDLE hint = DAT_HANDLE_NULL;
	DAT_LMR_TRIPLET here = part(&client, 0, 64);
	DAT_RMR_TRIPLET far = far_part(&server, 0, 64);
	DAT_EVENT event;
	DAT_FD fd = -1;
	struct end a, b;

	MUST(dats_get_ia_handle(client.ia, &real));
	MUST(DAT_CNO_FD_CREATE(real, &fd, &cno));
	end_open(&a, &client);
	end_open(&b, &server);
	MUST(dat_evd_modify_cno(a.request, cno));
	if (CHECK("a connection for it", link_up(&a, &b))) {
		MUST(dat_ep_post_rdma_write(a.ep, 1, &here, cookie(7), &far, DAT_COMPLETION_DEFAULT_FLAG));
		CHECK("a completion makes a descriptor readable", readable(fd, 5000));
		EXPECT("the trigger of a completion", DAT_CNO_TRIGGER(cno, &hint), DAT_SUCCESS);
		CHECK("tells its Event Dispatcher", hint == a.request);
		CHECK("where it is found", dat_evd_dequeue(a.request, &event) == DAT_SUCCESS &&
						   event.event_data.dto_completion_event_data.user_cookie.as_64 == 7);
		CHECK("and ends", link_down(&a, &b));
	}
	end_close(&a);
	end_close(&b);
	MUST(dat_cno_free(cno));
}

static void dispatchers(void)
{
	struct side *s = &server;
	DAT_EVD_HANDLE evd;
	DAT_EVD_PARAM param;
	DAT_EVENT event;
	DAT_COUNT more, at;
	int flags, refused = 0;
	DAT_RETURN got;
	DAT_CNO_HANDLE cno;
	DAT_CNO_PARAM cno_param;
	DAT_EVD_HANDLE hint;

	for (flags = 1; flags < 0x200; flags++) {
		if (flags & 0xe)
			continue;
		got = dat_evd_create(s->ia, 8, DAT_HANDLE_NULL, (DAT_EVD_FLAGS) flags, &evd);
		if (got == DAT_SUCCESS)
			MUST(dat_evd_free(evd));
		else
			refused++;
	}
	CHECK("streams of all kinds together", refused == 0);
	EXPECT("no stream", dat_evd_create(s->ia, 8, DAT_HANDLE_NULL, (DAT_EVD_FLAGS) 0, &evd), DAT_INVALID_PARAMETER);
	EXPECT("an unknown stream", dat_evd_create(s->ia, 8, DAT_HANDLE_NULL, (DAT_EVD_FLAGS) 0x8000, &evd), DAT_INVALID_PARAMETER);
	EXPECT("no events", dat_evd_create(s->ia, 0, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &evd), DAT_INVALID_PARAMETER);
	EXPECT("fewer than no events", dat_evd_create(s->ia, -1, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &evd), DAT_INVALID_PARAMETER);
	EXPECT("nowhere to put the handle of an Event Dispatcher",
	       dat_evd_create(s->ia, 8, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, NULL), DAT_INVALID_PARAMETER);

	evd = evd_of(s, DAT_EVD_SOFTWARE_FLAG, 4);
	MUST(dat_evd_query(evd, DAT_EVD_FIELD_ALL, &param));
	CHECK("parameters of an Event Dispatcher", param.ia_handle == s->ia && param.evd_qlen >= 4 &&
							  param.cno_handle == DAT_HANDLE_NULL &&
							  param.evd_flags == DAT_EVD_SOFTWARE_FLAG &&
							  (param.evd_state & DAT_EVD_STATE_ENABLED) &&
							  (param.evd_state & DAT_EVD_STATE_WAITABLE));
	EXPECT("parameters of an Event Dispatcher to nowhere", dat_evd_query(evd, DAT_EVD_FIELD_ALL, NULL), DAT_INVALID_PARAMETER);
	EXPECT("nothing to dequeue", dat_evd_dequeue(evd, &event), DAT_QUEUE_EMPTY);
	EXPECT("a look without patience", dat_evd_wait(evd, 0, 1, &event, &more), DAT_TIMEOUT_EXPIRED);
	EXPECT("a wait of 10 ms", dat_evd_wait(evd, 10000, 1, &event, &more), DAT_TIMEOUT_EXPIRED);
	EXPECT("a threshold of 0", dat_evd_wait(evd, 0, 0, &event, &more), DAT_INVALID_PARAMETER);
	EXPECT("a threshold beyond the queue", dat_evd_wait(evd, 0, param.evd_qlen + 1, &event, &more), DAT_INVALID_PARAMETER);
	memset(&event, 0xa5, sizeof event);
	EXPECT("a software event of another number", dat_evd_post_se(evd, &event), DAT_INVALID_PARAMETER);
	EXPECT("no software event", dat_evd_post_se(evd, NULL), DAT_INVALID_PARAMETER);
	event.event_number = DAT_SOFTWARE_EVENT;
	for (at = 0; at < param.evd_qlen; at++) {
		event.event_data.software_event_data.pointer = (void *) (uintptr_t) (at + 1);
		MUST(dat_evd_post_se(evd, &event));
	}
	EXPECT("one software event too many", dat_evd_post_se(evd, &event), DAT_QUEUE_FULL);
	CHECK("which is no overflow", next(s->async, &event, 0) == 0);
	EXPECT("a queue shorter than what is in it", dat_evd_resize(evd, 1), DAT_INVALID_STATE);
	got = dat_evd_wait(evd, 0, 2, &event, &more);
	CHECK("a threshold of 2", got == DAT_SUCCESS && more == param.evd_qlen - 1 && event.evd_handle == evd &&
					  event.event_data.software_event_data.pointer == (void *) 1);
	got = dat_evd_dequeue(evd, &event);
	CHECK("in order", got == DAT_SUCCESS && event.event_number == DAT_SOFTWARE_EVENT &&
				  event.event_data.software_event_data.pointer == (void *) 2);
	EXPECT("a longer queue", dat_evd_resize(evd, 100), DAT_SUCCESS);
	CHECK("loses nothing", dat_evd_dequeue(evd, &event) == DAT_SUCCESS &&
				       event.event_data.software_event_data.pointer == (void *) 3);
	MUST(dat_evd_set_unwaitable(evd));
	EXPECT_SUB("a wait for what is unwaitable", dat_evd_wait(evd, 0, 1, &event, &more), DAT_INVALID_STATE,
		   DAT_INVALID_STATE_EVD_UNWAITABLE);
	EXPECT("which can be dequeued", dat_evd_dequeue(evd, &event), DAT_SUCCESS);
	MUST(dat_evd_clear_unwaitable(evd));
	EXPECT("events to nowhere", dat_evd_dequeue(evd, NULL), DAT_INVALID_PARAMETER);
	MUST(dat_evd_free(evd));
	evd = evd_of(s, DAT_EVD_DTO_FLAG, 4);
	event.event_number = DAT_SOFTWARE_EVENT;
	EXPECT("a software event where none belong", dat_evd_post_se(evd, &event), DAT_INVALID_PARAMETER);
	MUST(dat_evd_free(evd));

	MUST(dat_cno_create(s->ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno));
	MUST(dat_evd_create(s->ia, 8, cno, DAT_EVD_SOFTWARE_FLAG, &evd));
	EXPECT("parameters of a CNO", dat_cno_query(cno, DAT_CNO_FIELD_ALL, &cno_param), DAT_SUCCESS);
	CHECK("a CNO without agent", cno_param.ia_handle == s->ia && cno_param.proxy_type == DAT_PROXY_TYPE_NONE);
	EXPECT("parameters of a CNO to nowhere", dat_cno_query(cno, DAT_CNO_FIELD_ALL, NULL), DAT_INVALID_PARAMETER);
	hint = evd;
	EXPECT("a CNO that nothing triggers", dat_cno_wait(cno, 10000, &hint), DAT_QUEUE_EMPTY);
	CHECK("which has no hint", hint == DAT_HANDLE_NULL);
	EXPECT_SUB("a CNO in use", dat_cno_free(cno), DAT_INVALID_STATE, DAT_INVALID_STATE_CNO_IN_USE);
	MUST(dat_evd_post_se(evd, &event));
	EXPECT("a CNO that is triggered", dat_cno_wait(cno, LIMIT, &hint), DAT_SUCCESS);
	CHECK("and returns the Event Dispatcher", hint == evd);
	MUST(dat_evd_free(evd));
	MUST(dat_cno_free(cno));
	described();
}

/* ---- Endpoints ----------------------------------------------------------------------------------------------------------- */

static int status_is(struct end *end, DAT_EP_STATE state, DAT_BOOLEAN recv_idle, DAT_BOOLEAN request_idle)
{
	DAT_EP_STATE got;
	DAT_BOOLEAN recv, request;

	return dat_ep_get_status(end->ep, &got, &recv, &request) == DAT_SUCCESS && got == state && !recv == !recv_idle &&
	       !request == !request_idle;
}

static void idle(void)
{
	struct end a, b;
	DAT_LMR_TRIPLET there = part(&server, 0, 256), here = part(&client, 0, 16);
	DAT_EVENT event;
	DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
	unsigned look;

	end_open(&a, &client);
	end_open(&b, &server);
	CHECK("a fresh Endpoint is idle", status_is(&b, DAT_EP_STATE_UNCONNECTED, DAT_TRUE, DAT_TRUE));
	MUST(dat_ep_post_recv(b.ep, 1, &there, cookie(7), DAT_COMPLETION_DEFAULT_FLAG));
	CHECK("one with a receive is not", status_is(&b, DAT_EP_STATE_UNCONNECTED, DAT_FALSE, DAT_TRUE));
	EXPECT("a status to nowhere", dat_ep_get_status(b.ep, NULL, NULL, NULL), DAT_SUCCESS);
	CHECK("connected", link_up(&a, &b));
	CHECK("connected and idle", status_is(&a, DAT_EP_STATE_CONNECTED, DAT_TRUE, DAT_TRUE));
	memcpy(client.memory, "sixteen letters", 16);
	MUST(dat_ep_post_send(a.ep, 1, &here, cookie(8), DAT_COMPLETION_DEFAULT_FLAG));
	CHECK("the message arrives", next(b.recv, &event, LIMIT) == DAT_DTO_COMPLETION_EVENT && dto->ep_handle == b.ep &&
					     dto->user_cookie.as_64 == 7 && dto->status == DAT_DTO_SUCCESS &&
					     dto->transfered_length == 16 && dto->operation == DAT_DTO_RECEIVE &&
					     event.evd_handle == b.recv && !memcmp(server.memory, "sixteen letters", 16));
	/* The acknowledgement comes a moment after the message. */
	for (look = 0; look < 1000 && !status_is(&a, DAT_EP_STATE_CONNECTED, DAT_TRUE, DAT_TRUE); look++)
		poll(NULL, 0, 1);
	CHECK("it is idle with the completion not taken", status_is(&a, DAT_EP_STATE_CONNECTED, DAT_TRUE, DAT_TRUE));
	CHECK("the send completes", next(a.request, &event, LIMIT) == DAT_DTO_COMPLETION_EVENT &&
					    dto->user_cookie.as_64 == 8 && dto->status == DAT_DTO_SUCCESS &&
					    dto->transfered_length == 16 && dto->operation == DAT_DTO_SEND);
	CHECK("and stays so", status_is(&a, DAT_EP_STATE_CONNECTED, DAT_TRUE, DAT_TRUE));
	CHECK("and the other as well", status_is(&b, DAT_EP_STATE_CONNECTED, DAT_TRUE, DAT_TRUE));
	CHECK("disconnected", link_down(&a, &b));
	end_close(&a);
	end_close(&b);
}

static void bad_posts(void)
{
	struct end a, b;
	DAT_LMR_TRIPLET list[100], one = part(&client, 0, 64);
	DAT_RMR_TRIPLET far = far_part(&server, 0, 32);
	int at;

	end_open(&a, &client);
	end_open(&b, &server);
	EXPECT_SUB("a send before there is a connection", dat_ep_post_send(a.ep, 1, &one, cookie(1), DAT_COMPLETION_DEFAULT_FLAG),
		   DAT_INVALID_STATE, DAT_INVALID_STATE_EP_UNCONNECTED);
	CHECK("connected for bad posts", link_up(&a, &b));
	for (at = 0; at < 100; at++)
		list[at] = part(&client, 0, 1);
	EXPECT("100 segments", dat_ep_post_send(a.ep, 100, list, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_INVALID_PARAMETER);
	EXPECT("100 segments to receive", dat_ep_post_recv(a.ep, 100, list, cookie(1), DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_INVALID_PARAMETER);
	EXPECT("fewer segments than none", dat_ep_post_send(a.ep, -1, list, cookie(1), DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_INVALID_PARAMETER);
	EXPECT("no list of one segment", dat_ep_post_send(a.ep, 1, NULL, cookie(1), DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_INVALID_PARAMETER);
	EXPECT("an unknown flag", dat_ep_post_recv(a.ep, 1, &one, cookie(1), (DAT_COMPLETION_FLAGS) 0x40), DAT_INVALID_PARAMETER);
	EXPECT("a receive in silence", dat_ep_post_recv(a.ep, 1, &one, cookie(1), DAT_COMPLETION_SUPPRESS_FLAG),
	       DAT_INVALID_PARAMETER);
	EXPECT("a write to no place", dat_ep_post_rdma_write(a.ep, 1, &one, cookie(1), NULL, DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_INVALID_PARAMETER);
	EXPECT("a write that is longer than its place",
	       dat_ep_post_rdma_write(a.ep, 1, &one, cookie(1), &far, DAT_COMPLETION_DEFAULT_FLAG), DAT_LENGTH_ERROR);
	one.segment_length = BUFFER + 1;
	EXPECT("a segment that leaves its LMR", dat_ep_post_send(a.ep, 1, &one, cookie(1), DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_INVALID_PARAMETER);
	one = part(&client, 0, 64);
	one.lmr_context ^= 0x5a5a5a5a;
	EXPECT("an unknown context", dat_ep_post_send(a.ep, 1, &one, cookie(1), DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_PRIVILEGES_VIOLATION);
	CHECK("refused posts leave the connection", status_is(&a, DAT_EP_STATE_CONNECTED, DAT_TRUE, DAT_TRUE));
	CHECK("disconnected after bad posts", link_down(&a, &b));
	end_close(&a);
	end_close(&b);
}

static void posts_when_disconnected(void)
{
	struct end a, b;
	DAT_LMR_TRIPLET one = part(&client, 0, 64);
	DAT_RMR_TRIPLET far = far_part(&server, 0, 64);
	DAT_EVENT event;
	DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
	int at, good = 1;

	end_open(&a, &client);
	end_open(&b, &server);
	for (at = 0; at < 3; at++)
		MUST(dat_ep_post_recv(a.ep, 1, &one, cookie((uint64_t) at), DAT_COMPLETION_DEFAULT_FLAG));
	CHECK("connected to be disconnected", link_up(&a, &b) && link_down(&a, &b));
	for (at = 0; at < 3; at++)
		good = good && next(a.recv, &event, LIMIT) == DAT_DTO_COMPLETION_EVENT && dto->status == DAT_DTO_ERR_FLUSHED &&
		       dto->user_cookie.as_64 == (uint64_t) at && dto->operation == DAT_DTO_RECEIVE && dto->ep_handle == a.ep;
	CHECK("posted receives come back in order", good);
	EXPECT("a send when disconnected", dat_ep_post_send(a.ep, 1, &one, cookie(11), DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
	EXPECT("a write when disconnected", dat_ep_post_rdma_write(a.ep, 1, &one, cookie(12), &far, DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_SUCCESS);
	EXPECT("a read when disconnected", dat_ep_post_rdma_read(a.ep, 1, &one, cookie(13), &far, DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_SUCCESS);
	EXPECT("a receive when disconnected", dat_ep_post_recv(a.ep, 1, &one, cookie(14), DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
	good = 1;
	for (at = 11; at < 14; at++)
		good = good && next(a.request, &event, LIMIT) == DAT_DTO_COMPLETION_EVENT &&
		       dto->status == DAT_DTO_ERR_FLUSHED && dto->user_cookie.as_64 == (uint64_t) at;
	CHECK("requests come back in order", good);
	CHECK("the receive as well", next(a.recv, &event, LIMIT) == DAT_DTO_COMPLETION_EVENT &&
					     dto->status == DAT_DTO_ERR_FLUSHED && dto->user_cookie.as_64 == 14);
	EXPECT("a disconnect when disconnected", dat_ep_disconnect(a.ep, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
	CHECK("which is no event", next(a.conn, &event, 100000) == 0);
	EXPECT_SUB("a connect when disconnected",
		   dat_ep_connect(a.ep, (DAT_IA_ADDRESS_PTR) &server.address, 1, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT,
				  DAT_CONNECT_DEFAULT_FLAG),
		   DAT_INVALID_STATE, DAT_INVALID_STATE_EP_DISCONNECTED);
	EXPECT("a reset", dat_ep_reset(a.ep), DAT_SUCCESS);
	EXPECT("another reset", dat_ep_reset(a.ep), DAT_SUCCESS);
	EXPECT("a reset of the other", dat_ep_reset(b.ep), DAT_SUCCESS);
	CHECK("connected again after a reset", link_up(&a, &b));
	EXPECT_SUB("a reset when connected", dat_ep_reset(a.ep), DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED);
	/* Its peer gets an event. */
	MUST(dat_ep_free(a.ep));
	a.ep = DAT_HANDLE_NULL;
	CHECK("a free disconnects", next(b.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_DISCONNECTED);
	end_close(&a);
	end_close(&b);
}

/* Completions of all kinds and the end of the connection on one Event Dispatcher. */
static void merged(void)
{
	struct end b;
	struct side *s = &client;
	DAT_EVD_HANDLE all = evd_of(s, DAT_EVD_DEFAULT_FLAG, 256);
	struct end a = {s, all, all, all, DAT_HANDLE_NULL};
	DAT_LMR_TRIPLET one = part(s, 0, 64);
	DAT_RMR_TRIPLET far = far_part(&server, 0, 64);
	DAT_EVENT event;
	int at, writes = 0, flushed = 0, ended = 0, after = 0;

	end_open(&b, &server);
	MUST(dat_ep_create(s->ia, s->pz, all, all, all, NULL, &a.ep));
	for (at = 0; at < 4; at++)
		MUST(dat_ep_post_recv(a.ep, 1, &one, cookie(100), DAT_COMPLETION_DEFAULT_FLAG));
	CHECK("connected on one Event Dispatcher", link_up(&a, &b));
	for (at = 0; at < 8; at++)
		MUST(dat_ep_post_rdma_write(a.ep, 1, &one, cookie(200), &far, DAT_COMPLETION_DEFAULT_FLAG));
	EXPECT("a disconnect that waits for requests", dat_ep_disconnect(a.ep, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
	EXPECT("the same again", dat_ep_disconnect(a.ep, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
	while (!ended) {
		unsigned number = next(all, &event, LIMIT);

		if (number == DAT_DTO_COMPLETION_EVENT) {
			if (event.event_data.dto_completion_event_data.user_cookie.as_64 == 200)
				writes += event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS;
			else
				flushed += event.event_data.dto_completion_event_data.status == DAT_DTO_ERR_FLUSHED;
		} else {
			ended = number == DAT_CONNECTION_EVENT_DISCONNECTED ? 1 : 2;
		}
	}
	after = next(all, &event, 50000) != 0;
	CHECK("the disconnect comes", ended == 1);
	CHECK("requests finish before it", writes == 8);
	CHECK("receives come back before it", flushed == 4);
	CHECK("nothing comes after it", !after);
	CHECK("the peer gets the disconnect", next(b.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_DISCONNECTED);
	MUST(dat_ep_free(a.ep));
	MUST(dat_evd_free(all));
	end_close(&b);
}

/* ---- connections --------------------------------------------------------------------------------------------------------- */

static void private_data(void)
{
	struct end a, b;
	DAT_EVD_HANDLE requests = evd_of(&server, DAT_EVD_CR_FLAG, 8);
	DAT_PROVIDER_ATTR limits;
	DAT_PSP_HANDLE psp;
	DAT_PSP_PARAM psp_param;
	DAT_EVENT event;
	DAT_CR_ARRIVAL_EVENT_DATA *arrival = &event.event_data.cr_arrival_event_data;
	DAT_CONNECTION_EVENT_DATA *made = &event.event_data.connect_event_data;
	DAT_CR_PARAM param, again;
	DAT_CR_HANDLE cr;
	DAT_HANDLE_TYPE type;
	unsigned char sent[512], back[64];
	DAT_COUNT most, at;
	void *kept;
	DAT_IA_ADDRESS_PTR to = (DAT_IA_ADDRESS_PTR) &server.address;
	DAT_CONN_QUAL qual = 0;

	MUST(dat_ia_query(client.ia, NULL, 0, NULL, DAT_PROVIDER_FIELD_ALL, &limits));
	most = limits.max_private_data_size;
	for (at = 0; at < (DAT_COUNT) sizeof sent; at++)
		sent[at] = (unsigned char) (at * 7 + 1);
	memset(back, 'b', sizeof back);
	end_open(&a, &client);
	end_open(&b, &server);
	MUST(dat_psp_create_any(server.ia, &qual, requests, DAT_PSP_CONSUMER_FLAG, &psp));
	MUST(dat_psp_query(psp, DAT_PSP_FIELD_ALL, &psp_param));
	CHECK("a service point on any qualifier", qual > 0 && qual < 65536 && psp_param.conn_qual == qual &&
							 psp_param.evd_handle == requests && psp_param.ia_handle == server.ia);
#define CONNECT(address, on, limit, size, data, qos, flags) \
	dat_ep_connect(a.ep, address, on, limit, size, (void *) (data), qos, (DAT_CONNECT_FLAGS) (flags))
	EXPECT("private data beyond the maximum", CONNECT(to, qual, LIMIT, most + 1, sent, DAT_QOS_BEST_EFFORT, 0),
	       DAT_INVALID_PARAMETER);
	EXPECT("private data of a length below 0", CONNECT(to, qual, LIMIT, -1, sent, DAT_QOS_BEST_EFFORT, 0), DAT_INVALID_PARAMETER);
	EXPECT("private data that is nowhere", CONNECT(to, qual, LIMIT, 4, NULL, DAT_QOS_BEST_EFFORT, 0), DAT_INVALID_PARAMETER);
	EXPECT("a timeout of 0", CONNECT(to, qual, 0, 0, NULL, DAT_QOS_BEST_EFFORT, 0), DAT_INVALID_PARAMETER);
	EXPECT("a quality that is not there", CONNECT(to, qual, LIMIT, 0, NULL, DAT_QOS_PREMIUM, 0), DAT_MODEL_NOT_SUPPORTED);
	EXPECT("several paths", CONNECT(to, qual, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_MULTIPATH_REQUIRED_FLAG),
	       DAT_MODEL_NOT_SUPPORTED);
	EXPECT("no address to connect to", CONNECT(NULL, qual, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT, 0), DAT_INVALID_ADDRESS);
	MUST(CONNECT(to, qual, LIMIT, most, sent, DAT_QOS_BEST_EFFORT, 0));
	EXPECT_SUB("a second connect", CONNECT(to, qual, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT, 0), DAT_INVALID_STATE,
		   DAT_INVALID_STATE_EP_ACTCONNPENDING);
	CHECK("a request arrives", next(requests, &event, LIMIT) == DAT_CONNECTION_REQUEST_EVENT &&
					   arrival->sp_handle.psp_handle == psp && arrival->conn_qual == qual);
	cr = arrival->cr_handle;
	CHECK("a request is a handle of its kind", dat_get_handle_type(cr, &type) == DAT_SUCCESS && type == DAT_HANDLE_TYPE_CR);
	MUST(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
	CHECK("its private data", param.private_data_size >= most && !memcmp(param.private_data, sent, (size_t) most));
	CHECK("the address of the requesting peer", param.remote_ia_address_ptr->sa_family == ((struct sockaddr *) &client.address)->sa_family &&
				  param.local_ep_handle == DAT_HANDLE_NULL);
	kept = param.private_data;
	MUST(dat_cr_query(cr, DAT_CR_FIELD_ALL, &again));
	CHECK("the same at the second look", again.private_data == kept && !memcmp(kept, sent, (size_t) most));
	EXPECT("parameters of a request to nowhere", dat_cr_query(cr, DAT_CR_FIELD_ALL, NULL), DAT_INVALID_PARAMETER);
	EXPECT("an answer beyond the maximum", dat_cr_accept(cr, b.ep, 512, sent), DAT_INVALID_PARAMETER);
	EXPECT_SUB("an answer without an Endpoint", dat_cr_accept(cr, DAT_HANDLE_NULL, 0, NULL), DAT_INVALID_HANDLE,
		   DAT_INVALID_HANDLE_EP);
	EXPECT("an answer with what is no Endpoint", dat_cr_accept(cr, server.pz, 0, NULL), DAT_INVALID_HANDLE);
	EXPECT("the answer", dat_cr_accept(cr, b.ep, sizeof back, back), DAT_SUCCESS);
	EXPECT_SUB("a second answer", dat_cr_accept(cr, b.ep, 0, NULL), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR);
	EXPECT("a look at an answered request", dat_cr_query(cr, DAT_CR_FIELD_ALL, &param), DAT_INVALID_HANDLE);
	CHECK("the accepting side gets ESTABLISHED", next(b.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_ESTABLISHED &&
						   made->ep_handle == b.ep && made->private_data_size == 0);
	CHECK("the asking side gets the answer", next(a.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_ESTABLISHED &&
							made->private_data_size >= (DAT_COUNT) sizeof back &&
							!memcmp(made->private_data, back, sizeof back));
	kept = made->private_data;
	CHECK("disconnected with private data", link_down(&b, &a));
	CHECK("the answer stays until a reset", !memcmp(kept, back, sizeof back));
	MUST(dat_ep_reset(a.ep));
	MUST(dat_ep_reset(b.ep));

	MUST(CONNECT(to, qual, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT, 0));
	CHECK("a request to refuse", next(requests, &event, LIMIT) == DAT_CONNECTION_REQUEST_EVENT);
	cr = arrival->cr_handle;
	EXPECT("a refusal beyond the maximum", dat_cr_reject(cr, 512, sent), DAT_INVALID_PARAMETER);
	EXPECT("the refusal", dat_cr_reject(cr, sizeof back, back), DAT_SUCCESS);
	EXPECT("a second refusal", dat_cr_reject(cr, 0, NULL), DAT_INVALID_HANDLE);
	CHECK("the peer is rejected by its peer", next(a.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_PEER_REJECTED &&
							 made->ep_handle == a.ep);
	CHECK("with what was said", made->private_data_size >= (DAT_COUNT) sizeof back &&
					    !memcmp(made->private_data, back, sizeof back));
	MUST(dat_ep_reset(a.ep));
	MUST(dat_psp_free(psp));
	MUST(CONNECT(to, qual, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT, 0));
	CHECK("where nobody listens nobody's consumer rejects",
	      next(a.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
#undef CONNECT
	end_close(&a);
	end_close(&b);
	MUST(dat_evd_free(requests));
}

static void nobody_there(void)
{
	struct end a;
	struct sockaddr_in6 nowhere = client.address;
	DAT_LMR_TRIPLET one = part(&client, 0, 64);
	DAT_EVENT event;
	unsigned number;
	time_t before;

	if (nowhere.sin6_family == AF_INET)
		((struct sockaddr_in *) &nowhere)->sin_addr.s_addr ^= htonl(0x37);
	else
		nowhere.sin6_addr.s6_addr[15] ^= 0x37;
	end_open(&a, &client);
	MUST(dat_ep_post_recv(a.ep, 1, &one, cookie(5), DAT_COMPLETION_DEFAULT_FLAG));
	MUST(dat_ep_connect(a.ep, (DAT_IA_ADDRESS_PTR) &nowhere, 1, 1500000, 0, NULL, DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	number = next(a.conn, &event, 3 * LIMIT);
	CHECK("an address without a host",
	      number == DAT_CONNECTION_EVENT_TIMED_OUT || number == DAT_CONNECTION_EVENT_UNREACHABLE);
	CHECK("the receive comes back as a receive",
	      next(a.recv, &event, LIMIT) == DAT_DTO_COMPLETION_EVENT &&
		      event.event_data.dto_completion_event_data.status == DAT_DTO_ERR_FLUSHED &&
		      event.event_data.dto_completion_event_data.user_cookie.as_64 == 5);
	MUST(dat_ep_reset(a.ep));
	MUST(dat_ep_connect(a.ep, (DAT_IA_ADDRESS_PTR) &nowhere, 1, DAT_TIMEOUT_INFINITE, 0, NULL, DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	EXPECT("a disconnect before there is an answer", dat_ep_disconnect(a.ep, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
	CHECK("ends the attempt", next(a.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_DISCONNECTED);
	MUST(dat_ep_reset(a.ep));
	MUST(dat_ep_connect(a.ep, (DAT_IA_ADDRESS_PTR) &nowhere, 1, DAT_TIMEOUT_INFINITE, 0, NULL, DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	before = time(NULL);
	EXPECT("a free before there is an answer", dat_ep_free(a.ep), DAT_SUCCESS);
	CHECK("takes no time", time(NULL) - before < 5);
	a.ep = DAT_HANDLE_NULL;
	end_close(&a);
}

/* Service points of the other kinds. */
static void service_points(void)
{
	struct end a, b;
	struct side *s = &server;
	DAT_EVD_HANDLE requests = evd_of(s, DAT_EVD_CR_FLAG, 8), second = evd_of(s, DAT_EVD_CR_FLAG, 8);
	DAT_RSP_HANDLE rsp;
	DAT_RSP_PARAM rsp_param;
	DAT_PSP_HANDLE psp, other;
	DAT_EVENT event;
	DAT_CR_ARRIVAL_EVENT_DATA *arrival = &event.event_data.cr_arrival_event_data;
	DAT_CR_PARAM param;
	DAT_EP_PARAM ep_param;
	DAT_CR_HANDLE cr;
	DAT_EP_STATE state;
	DAT_IA_ADDRESS_PTR to = (DAT_IA_ADDRESS_PTR) &s->address;
	DAT_IA_HANDLE real;
	DAT_CSP_HANDLE csp;
	DAT_CSP_PARAM csp_param;
	DAT_COMM comm = {AF_INET, SOCK_STREAM, 0};
	struct sockaddr_in6 place = s->address;

	end_open(&a, &client);
	end_open(&b, s);
	EXPECT_SUB("a qualifier beyond a port", dat_psp_create(s->ia, 65536, requests, DAT_PSP_CONSUMER_FLAG, &psp),
		   DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
	EXPECT("unknown flags of a service point", dat_psp_create(s->ia, 3000, requests, (DAT_PSP_FLAGS) 7, &psp),
	       DAT_INVALID_PARAMETER);
	MUST(dat_rsp_create(s->ia, 3000, b.ep, requests, &rsp));
	EXPECT("a reserved qualifier", dat_psp_create(s->ia, 3000, requests, DAT_PSP_CONSUMER_FLAG, &psp), DAT_CONN_QUAL_IN_USE);
	CHECK("its Endpoint is reserved", status_is(&b, DAT_EP_STATE_RESERVED, DAT_TRUE, DAT_TRUE));
	EXPECT_SUB("a free of a reserved Endpoint", dat_ep_free(b.ep), DAT_INVALID_STATE, DAT_INVALID_STATE_EP_RESERVED);
	EXPECT("parameters of a reserved service point", dat_rsp_query(rsp, DAT_RSP_FIELD_ALL, &rsp_param), DAT_SUCCESS);
	CHECK("which are its own", rsp_param.ia_handle == s->ia && rsp_param.conn_qual == 3000 && rsp_param.ep_handle == b.ep &&
					   rsp_param.evd_handle == requests);
	MUST(dat_ep_connect(a.ep, to, 3000, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
	CHECK("a request at a reserved service point", next(requests, &event, LIMIT) == DAT_CONNECTION_REQUEST_EVENT &&
							       arrival->sp_handle.rsp_handle == rsp);
	cr = arrival->cr_handle;
	MUST(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
	CHECK("is for its Endpoint", param.local_ep_handle == b.ep);
	EXPECT_SUB("naming it all the same", dat_cr_accept(cr, b.ep, 0, NULL), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP);
	EXPECT("is accepted without naming it", dat_cr_accept(cr, DAT_HANDLE_NULL, 0, NULL), DAT_SUCCESS);
	CHECK("is connected", next(b.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_ESTABLISHED &&
				      next(a.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_ESTABLISHED);
	EXPECT("a reserved service point that was used", dat_rsp_free(rsp), DAT_SUCCESS);
	EXPECT("and freed again", dat_rsp_free(rsp), DAT_INVALID_HANDLE);
	CHECK("disconnected from a reserved service point", link_down(&a, &b));
	MUST(dat_ep_reset(a.ep));
	MUST(dat_ep_reset(b.ep));

	MUST(dat_psp_create(s->ia, 3001, requests, DAT_PSP_PROVIDER_FLAG, &psp));
	MUST(dat_ep_connect(a.ep, to, 3001, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
	CHECK("a request with an Endpoint", next(requests, &event, LIMIT) == DAT_CONNECTION_REQUEST_EVENT);
	cr = arrival->cr_handle;
	MUST(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
	CHECK("which the provider has made", param.local_ep_handle != DAT_HANDLE_NULL &&
						    dat_ep_get_status(param.local_ep_handle, &state, NULL, NULL) == DAT_SUCCESS &&
						    state == DAT_EP_STATE_UNCONFIGURED_TENTATIVE);
	memset(&ep_param, 0, sizeof ep_param);
	ep_param.pz_handle = s->pz;
	ep_param.recv_evd_handle = b.recv;
	ep_param.request_evd_handle = b.request;
	ep_param.connect_evd_handle = b.conn;
	EXPECT("is configured",
	       dat_ep_modify(param.local_ep_handle,
			     DAT_EP_FIELD_PZ_HANDLE | DAT_EP_FIELD_RECV_EVD_HANDLE | DAT_EP_FIELD_REQUEST_EVD_HANDLE |
				     DAT_EP_FIELD_CONNECT_EVD_HANDLE,
			     &ep_param),
	       DAT_SUCCESS);
	EXPECT("and accepted", dat_cr_accept(cr, DAT_HANDLE_NULL, 0, NULL), DAT_SUCCESS);
	CHECK("and connected", next(b.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_ESTABLISHED &&
				       event.event_data.connect_event_data.ep_handle == param.local_ep_handle &&
				       next(a.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_ESTABLISHED);
	EXPECT("an Endpoint of the provider's is freed", dat_ep_free(param.local_ep_handle), DAT_SUCCESS);
	CHECK("its peer gets a disconnect", next(a.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_DISCONNECTED);
	MUST(dat_ep_reset(a.ep));
	MUST(dat_ep_connect(a.ep, to, 3001, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
	CHECK("another with an Endpoint", next(requests, &event, LIMIT) == DAT_CONNECTION_REQUEST_EVENT);
	cr = arrival->cr_handle;
	MUST(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
	MUST(dat_cr_reject(cr, 0, NULL));
	EXPECT("an Endpoint of a rejected request is no more", dat_ep_get_status(param.local_ep_handle, &state, NULL, NULL),
	       DAT_INVALID_HANDLE);
	CHECK("rejected", next(a.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_PEER_REJECTED);
	MUST(dat_ep_reset(a.ep));
	MUST(dat_psp_free(psp));

	MUST(dat_psp_create(s->ia, 3002, requests, DAT_PSP_CONSUMER_FLAG, &psp));
	MUST(dat_psp_create(s->ia, 3003, second, DAT_PSP_CONSUMER_FLAG, &other));
	MUST(dat_ep_connect(a.ep, to, 3002, LIMIT, 5, "hand\0", DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
	CHECK("a request to hand off", next(requests, &event, LIMIT) == DAT_CONNECTION_REQUEST_EVENT);
	cr = arrival->cr_handle;
	EXPECT("handed to where nobody listens", dat_cr_handoff(cr, 3999), DAT_INVALID_PARAMETER);
	EXPECT("handed off", dat_cr_handoff(cr, 3003), DAT_SUCCESS);
	EXPECT("the old handle is dead", dat_cr_query(cr, DAT_CR_FIELD_ALL, &param), DAT_INVALID_HANDLE);
	CHECK("it arrives again", next(second, &event, LIMIT) == DAT_CONNECTION_REQUEST_EVENT &&
					  arrival->sp_handle.psp_handle == other && arrival->conn_qual == 3003);
	MUST(dat_cr_query(arrival->cr_handle, DAT_CR_FIELD_ALL, &param));
	CHECK("with what came with it", !strcmp(param.private_data, "hand"));
	MUST(dat_cr_accept(arrival->cr_handle, b.ep, 0, NULL));
	CHECK("connected after a handoff", next(b.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_ESTABLISHED &&
						  next(a.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_ESTABLISHED);
	CHECK("disconnected after a handoff", link_down(&a, &b));
	MUST(dat_psp_free(psp));
	MUST(dat_psp_free(other));

	/* The registry does not export those of 2.0: through the table. */
	MUST(dats_get_ia_handle(s->ia, &real));
	comm.domain = place.sin6_family;
	place.sin6_port = htons(3004);
	EXPECT("a common service point",
	       DAT_HANDLE_TO_PROVIDER(real)->csp_create_func(real, &comm, (DAT_IA_ADDRESS_PTR) &place, requests, &csp), DAT_SUCCESS);
	EXPECT("its parameters", DAT_HANDLE_TO_PROVIDER(csp)->csp_query_func(csp, DAT_CSP_FIELD_ALL, &csp_param), DAT_SUCCESS);
	CHECK("are what it was made with", csp_param.ia_handle == s->ia && csp_param.evd_handle == requests &&
						  csp_param.comm->domain == comm.domain &&
						  csp_param.address_ptr->sa_family == place.sin6_family);
	EXPECT("its port is taken",
	       DAT_HANDLE_TO_PROVIDER(real)->csp_create_func(real, &comm, (DAT_IA_ADDRESS_PTR) &place, requests, &csp),
	       DAT_PORT_IN_USE);
	comm.type = SOCK_DGRAM;
	EXPECT("an unsupported kind of communication",
	       DAT_HANDLE_TO_PROVIDER(real)->csp_create_func(real, &comm, (DAT_IA_ADDRESS_PTR) &place, requests, &csp),
	       DAT_COMM_NOT_SUPPORTED);
	EXPECT("high availability",
	       DAT_HANDLE_TO_PROVIDER(real)->ia_ha_related_func(real, (char *) client.name, &(DAT_BOOLEAN){DAT_FALSE}),
	       DAT_MODEL_NOT_SUPPORTED);
	EXPECT("a common service point is freed", DAT_HANDLE_TO_PROVIDER(csp)->csp_free_func(csp), DAT_SUCCESS);
	EXPECT("and freed twice", DAT_HANDLE_TO_PROVIDER(csp)->csp_free_func(csp), DAT_INVALID_HANDLE);
	end_close(&a);
	end_close(&b);
	MUST(dat_evd_free(requests));
	MUST(dat_evd_free(second));
}

/* ---- windows, shared receives, extensions -------------------------------------------------------------------------------- */

static void windows(void)
{
	struct end a, b;
	struct side *s = &server;
	DAT_RMR_HANDLE rmr;
	DAT_RMR_PARAM param;
	DAT_RMR_CONTEXT first = 0, again = 0;
	DAT_LMR_TRIPLET range = part(s, 0, 128), here = part(&client, 0, 64);
	DAT_RMR_TRIPLET far = far_part(s, 0, 64);
	DAT_EVENT event;
	DAT_RMR_BIND_COMPLETION_EVENT_DATA *bound = &event.event_data.rmr_completion_event_data;
	unsigned number;
	DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;

	end_open(&a, &client);
	end_open(&b, s);
	MUST(dat_rmr_create(s->pz, &rmr));
	EXPECT("parameters of an RMR", dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, &param), DAT_SUCCESS);
	CHECK("which is bound to nothing", param.ia_handle == s->ia && param.pz_handle == s->pz &&
						  param.lmr_triplet.segment_length == 0);
#define BIND(lmr, what, rights, out)                                                                             \
	dat_rmr_bind(rmr, lmr, what, rights, DAT_VA_TYPE_VA, b.ep, cookie(9), DAT_COMPLETION_DEFAULT_FLAG, out)
	EXPECT("a bind before there is a connection", BIND(s->lmr, &range, DAT_MEM_PRIV_REMOTE_READ_FLAG, &first), DAT_INVALID_STATE);
	CHECK("connected for windows", link_up(&a, &b));
	range.segment_length = BUFFER + 1;
	EXPECT("a window over more than there is", BIND(s->lmr, &range, DAT_MEM_PRIV_REMOTE_READ_FLAG, &first),
	       DAT_INVALID_PARAMETER);
	range = part(s, 0, 128);
	EXPECT("a window over what is no LMR", BIND(s->pz, &range, DAT_MEM_PRIV_REMOTE_READ_FLAG, &first), DAT_INVALID_HANDLE);
	EXPECT("a bind", BIND(s->lmr, &range, DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG, &first), DAT_SUCCESS);
	CHECK("completes", next(b.request, &event, LIMIT) == DAT_RMR_BIND_COMPLETION_EVENT && bound->rmr_handle == rmr &&
				   bound->user_cookie.as_64 == 9 && bound->status == DAT_RMR_BIND_SUCCESS);
	EXPECT_SUB("an LMR that is bound", dat_lmr_free(s->lmr), DAT_INVALID_STATE, DAT_INVALID_STATE_LMR_IN_USE);
	far.rmr_context = first;
	memcpy(client.memory, "through the window", 19);
	MUST(dat_ep_post_rdma_write(a.ep, 1, &here, cookie(1), &far, DAT_COMPLETION_DEFAULT_FLAG));
	CHECK("a write through it", next(a.request, &event, LIMIT) == DAT_DTO_COMPLETION_EVENT &&
					    dto->status == DAT_DTO_SUCCESS && !strcmp((char *) s->memory, "through the window"));
	MUST(BIND(s->lmr, &range, DAT_MEM_PRIV_REMOTE_READ_FLAG, &again));
	CHECK("another bind, another context", again != first && next(b.request, &event, LIMIT) == DAT_RMR_BIND_COMPLETION_EVENT);
	MUST(dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, &param));
	CHECK("what it is bound to", param.rmr_context == again && param.lmr_triplet.segment_length == 128 &&
					     param.mem_priv == DAT_MEM_PRIV_REMOTE_READ_FLAG);
	range.segment_length = 0;
	EXPECT("an unbind", BIND(DAT_HANDLE_NULL, &range, DAT_MEM_PRIV_NONE_FLAG, &again), DAT_SUCCESS);
	CHECK("completes as well", next(b.request, &event, LIMIT) == DAT_RMR_BIND_COMPLETION_EVENT);
	range = part(s, 0, 128);
	MUST(BIND(s->lmr, &range, DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG, &first));
	CHECK("bound to be freed", next(b.request, &event, LIMIT) == DAT_RMR_BIND_COMPLETION_EVENT);
	EXPECT("a bound RMR is freed", dat_rmr_free(rmr), DAT_SUCCESS);
	far.rmr_context = first;
	MUST(dat_ep_post_rdma_write(a.ep, 1, &here, cookie(2), &far, DAT_COMPLETION_DEFAULT_FLAG));
	CHECK("a write through what is closed fails", next(a.request, &event, LIMIT) == DAT_DTO_COMPLETION_EVENT &&
							     dto->status == DAT_DTO_ERR_REMOTE_ACCESS);
	/* The peer, which refused, ends the connection too: either may be first to say so. */
	number = next(a.conn, &event, LIMIT);
	CHECK("and ends the connection", number == DAT_CONNECTION_EVENT_BROKEN || number == DAT_CONNECTION_EVENT_DISCONNECTED);
	CHECK("once", next(a.conn, &event, 50000) == 0);
#undef BIND
	end_close(&a);
	end_close(&b);
}

static void shared_receives(void)
{
	struct side *s = &server;
	struct end a, b = {s, evd_of(s, DAT_EVD_DTO_FLAG, 64), evd_of(s, DAT_EVD_DTO_FLAG, 64),
			   evd_of(s, DAT_EVD_CONNECTION_FLAG, 8), DAT_HANDLE_NULL};
	DAT_SRQ_ATTR attr = {16, 2, 0};
	DAT_SRQ_HANDLE srq;
	DAT_SRQ_PARAM param;
	DAT_EP_ATTR ep_attr;
	DAT_LMR_TRIPLET there = part(s, 4096, 64), here = part(&client, 0, 32);
	DAT_EVENT event;
	DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
	int at, good = 1;

	end_open(&a, &client);
	MUST(dat_srq_create(s->ia, s->pz, &attr, &srq));
	EXPECT("no receives", dat_srq_resize(srq, 0), DAT_INVALID_PARAMETER);
	EXPECT("fewer receives than none", dat_srq_resize(srq, -1), DAT_INVALID_PARAMETER);
	for (at = 0; at < 4; at++)
		MUST(dat_srq_post_recv(srq, 1, &there, cookie((uint64_t) at)));
	EXPECT("no list of a receive", dat_srq_post_recv(srq, 1, NULL, cookie(0)), DAT_INVALID_PARAMETER);
	EXPECT("a receive of too many segments", dat_srq_post_recv(srq, 3, (DAT_LMR_TRIPLET[]){there, there, there}, cookie(0)),
	       DAT_INVALID_PARAMETER);
	MUST(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &param));
	CHECK("parameters of an SRQ", param.ia_handle == s->ia && param.pz_handle == s->pz &&
					     param.srq_state == DAT_SRQ_STATE_OPERATIONAL && param.max_recv_dtos == 16 &&
					     param.max_recv_iov == 2 && param.outstanding_dto_count == 4 &&
					     (param.available_dto_count == 4 || param.available_dto_count == DAT_VALUE_UNKNOWN));
	EXPECT("shorter than what is posted", dat_srq_resize(srq, 2), DAT_INVALID_STATE);
	EXPECT("longer", dat_srq_resize(srq, 32), DAT_SUCCESS);
	MUST(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &param));
	CHECK("which a query tells", param.max_recv_dtos == 32);
	EXPECT("a low watermark above the queue", dat_srq_set_lw(srq, 100), DAT_INVALID_PARAMETER);
	memset(&ep_attr, 0, sizeof ep_attr);
	ep_attr.max_recv_dtos = ep_attr.max_request_dtos = 8;
	ep_attr.max_recv_iov = ep_attr.max_request_iov = 2;
	MUST(dat_ep_create_with_srq(s->ia, s->pz, b.recv, b.request, b.conn, srq, &ep_attr, &b.ep));
	EXPECT_SUB("an SRQ in use", dat_srq_free(srq), DAT_INVALID_STATE, DAT_INVALID_STATE_SRQ_IN_USE);
	EXPECT("a receive of its own", dat_ep_post_recv(b.ep, 1, &there, cookie(0), DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_MODEL_NOT_SUPPORTED);
	CHECK("connected over an SRQ", link_up(&a, &b));
	for (at = 0; at < 3; at++)
		MUST(dat_ep_post_send(a.ep, 1, &here, cookie(0), DAT_COMPLETION_DEFAULT_FLAG));
	for (at = 0; at < 3; at++)
		good = good && next(b.recv, &event, LIMIT) == DAT_DTO_COMPLETION_EVENT && dto->ep_handle == b.ep &&
		       dto->user_cookie.as_64 == (uint64_t) at && dto->transfered_length == 32;
	CHECK("receives name the Endpoint that took them", good);
	CHECK("disconnected from an SRQ", link_down(&a, &b));
	CHECK("and nothing more is taken from it", next(s->async, &event, LIMIT) == DAT_ASYNC_ERROR_EP_BROKEN &&
							  event.event_data.asynch_error_event_data.dat_handle == b.ep);
	MUST(dat_ep_free(b.ep));
	b.ep = DAT_HANDLE_NULL;
	EXPECT("an SRQ is freed with what is posted", dat_srq_free(srq), DAT_SUCCESS);
	EXPECT("and freed twice", dat_srq_free(srq), DAT_INVALID_HANDLE);
	end_close(&a);
	end_close(&b);
}

static void extensions(void)
{
	struct end a, b;
	struct side *s = &server;
	DAT_REGION_DESCRIPTION region;
	DAT_LMR_HANDLE lmr;
	DAT_LMR_CONTEXT context;
	DAT_RMR_CONTEXT key;
	DAT_LMR_TRIPLET here = part(&client, 64, 8), buffer = part(s, 8192, 64);
	DAT_RMR_TRIPLET far;
	DAT_EVENT event;
	DAT_IB_EXTENSION_EVENT_DATA *extra = (DAT_IB_EXTENSION_EVENT_DATA *) &event.event_extension_data[0];
	DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
	uint64_t *word = (uint64_t *) (s->memory + 16384), *old = (uint64_t *) (client.memory + 64);
	DAT_UINT64 counts[DCNT_IA_ALL_COUNTERS];
	DAT_IA_HANDLE asked = DAT_HANDLE_NULL;
	DAT_IA_ATTR ia_attr;
	DAT_PROVIDER_ATTR provider_attr;

	end_open(&a, &client);
	end_open(&b, s);
	region.for_va = word;
	MUST(dat_lmr_create(s->ia, DAT_MEM_TYPE_VIRTUAL, region, 8, s->pz,
			    (DAT_MEM_PRIV_FLAGS) (DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC), DAT_VA_TYPE_VA, &lmr,
			    &context, &key, NULL, NULL));
	far.virtual_address = (DAT_VADDR) (uintptr_t) word;
	far.segment_length = 8;
	far.rmr_context = key;
	*word = 40;
	EXPECT("an atomic before there is a connection",
	       dat_ib_post_fetch_and_add(a.ep, (DAT_UINT64) 2, &here, cookie(1), &far, DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_INVALID_STATE);
	MUST(dat_ep_post_recv(b.ep, 1, &buffer, cookie(77), DAT_COMPLETION_DEFAULT_FLAG));
	CHECK("connected for extensions", link_up(&a, &b));
	EXPECT("a fetch and add", dat_ib_post_fetch_and_add(a.ep, (DAT_UINT64) 2, &here, cookie(1), &far, DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_SUCCESS);
	CHECK("its completion", next(a.request, &event, LIMIT) == (unsigned) DAT_IB_DTO_EVENT && extra->type == DAT_IB_FETCH_AND_ADD &&
				       dto->status == DAT_DTO_SUCCESS && dto->user_cookie.as_64 == 1 &&
				       (DAT_IB_DTOS) dto->operation == DAT_IB_DTO_FETCH_ADD);
	CHECK("what it did", *word == 42 && *old == 40);
	EXPECT("a compare and swap",
	       dat_ib_post_cmp_and_swap(a.ep, (DAT_UINT64) 42, (DAT_UINT64) 7, &here, cookie(2), &far, DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_SUCCESS);
	CHECK("completes too", next(a.request, &event, LIMIT) == (unsigned) DAT_IB_DTO_EVENT && extra->type == DAT_IB_CMP_AND_SWAP &&
				       *word == 7 && *old == 42);
	EXPECT("an atomic of no segment",
	       dat_ib_post_fetch_and_add(a.ep, (DAT_UINT64) 2, NULL, cookie(1), &far, DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_INVALID_PARAMETER);
	far = far_part(s, 12288, 8);
	EXPECT("a write with an immediate",
	       dat_ib_post_rdma_write_immed(a.ep, 1, &here, cookie(3), &far, 0xabcd1234, DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
	CHECK("completes at home", next(a.request, &event, LIMIT) == (unsigned) DAT_IB_DTO_EVENT &&
					  extra->type == DAT_IB_RDMA_WRITE_IMMED);
	CHECK("and there", next(b.recv, &event, LIMIT) == (unsigned) DAT_IB_DTO_EVENT &&
				   extra->type == DAT_IB_RDMA_WRITE_IMMED_DATA && extra->val.immed.data == 0xabcd1234 &&
				   dto->user_cookie.as_64 == 77 && dto->transfered_length == 8);
	EXPECT("an unknown operation", dat_extension_op(a.ep, 999), DAT_NOT_IMPLEMENTED);
	EXPECT("a collective", dat_extension_op(a.ep, DAT_IB_COLLECTIVE_BARRIER_OP), DAT_NOT_IMPLEMENTED);
	EXPECT("an atomic on what is no Endpoint",
	       dat_ib_post_fetch_and_add(client.pz, (DAT_UINT64) 2, &here, cookie(1), &far, DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_INVALID_HANDLE);
	memset(counts, 0xa5, sizeof counts);
	EXPECT("counters of an Endpoint", dat_ib_query_counters(a.ep, DCNT_EP_ALL_COUNTERS, counts, 0), DAT_SUCCESS);
	CHECK("count", counts[DCNT_EP_POST_FETCH_ADD] == 1 && counts[DCNT_EP_POST_CMP_SWAP] == 1 &&
			       counts[DCNT_EP_POST_WRITE_IMM] == 1 && counts[DCNT_EP_ALL_COUNTERS] == 0xa5a5a5a5a5a5a5a5ull);
	EXPECT("one counter", dat_ib_query_counters(a.ep, DCNT_EP_POST_FETCH_ADD, counts, 1), DAT_SUCCESS);
	CHECK("is one number", counts[0] == 1);
	EXPECT("and reset", dat_ib_query_counters(a.ep, DCNT_EP_POST_FETCH_ADD, counts, 0), DAT_SUCCESS);
	CHECK("starts over", counts[0] == 0);
	EXPECT("counters of an adapter", dat_ib_query_counters(client.ia, DCNT_IA_ALL_COUNTERS, counts, 0), DAT_SUCCESS);
	EXPECT("counters of an Event Dispatcher", dat_ib_query_counters(a.request, DCNT_EVD_ALL_COUNTERS, counts, 0), DAT_SUCCESS);
	EXPECT("a counter that is not there", dat_ib_query_counters(a.ep, DCNT_EP_ALL_COUNTERS + 1, counts, 0), DAT_INVALID_PARAMETER);
	EXPECT("counters to nowhere", dat_ib_query_counters(a.ep, DCNT_EP_ALL_COUNTERS, NULL, 0), DAT_INVALID_PARAMETER);
	EXPECT("counters of a zone", dat_ib_query_counters(s->pz, 0, counts, 0), DAT_INVALID_HANDLE);
	CHECK("disconnected after extensions", link_down(&a, &b));
	end_close(&a);
	end_close(&b);
	MUST(dat_lmr_free(lmr));

	memset(&ia_attr, 0xa5, sizeof ia_attr);
	EXPECT("attributes without an open adapter",
	       dat_ib_open_query((char *) s->name, &asked, DAT_IA_FIELD_ALL, &ia_attr, DAT_PROVIDER_FIELD_ALL, &provider_attr),
	       DAT_SUCCESS);
	CHECK("are those of the adapter", ia_attr.max_eps > 0 && provider_attr.dapl_version_major == 2);
	if (asked != DAT_HANDLE_NULL)
		EXPECT("and closed", dat_ib_close_query(asked), DAT_SUCCESS);
	EXPECT("attributes of an adapter that nobody knows",
	       dat_ib_open_query("nobody knows it", &asked, DAT_IA_FIELD_ALL, &ia_attr, DAT_PROVIDER_FIELD_ALL, &provider_attr),
	       DAT_PROVIDER_NOT_FOUND);
}

static void datagrams(void)
{
	struct end a = {&client, evd_of(&client, DAT_EVD_DTO_FLAG, 8), evd_of(&client, DAT_EVD_DTO_FLAG, 8),
			evd_of(&client, DAT_EVD_CONNECTION_FLAG, 8), DAT_HANDLE_NULL};
	struct end b = {&server, evd_of(&server, DAT_EVD_DTO_FLAG, 8), evd_of(&server, DAT_EVD_DTO_FLAG, 8),
			evd_of(&server, DAT_EVD_CONNECTION_FLAG, 8), DAT_HANDLE_NULL};
	struct end *both[] = {&a, &b};
	DAT_EVD_HANDLE requests = evd_of(&server, DAT_EVD_CR_FLAG, 8);
	DAT_PSP_HANDLE psp;
	DAT_EP_ATTR attr;
	DAT_EVENT event;
	DAT_IB_EXTENSION_EVENT_DATA *extra = (DAT_IB_EXTENSION_EVENT_DATA *) &event.event_extension_data[0];
	DAT_DTO_COMPLETION_EVENT_DATA *dto = &event.event_data.dto_completion_event_data;
	DAT_IB_ADDR_HANDLE to, wrong;
	DAT_LMR_TRIPLET here = part(&client, 0, 32), there = part(&server, 0, 256);
	DAT_EP_PARAM param;
	int at;

	memset(&attr, 0, sizeof attr);
	attr.service_type = (DAT_SERVICE_TYPE) DAT_IB_SERVICE_TYPE_UD;
	attr.max_message_size = 1024;
	attr.max_recv_dtos = attr.max_request_dtos = 4;
	attr.max_recv_iov = attr.max_request_iov = 1;
	for (at = 0; at < 2; at++)
		MUST(dat_ep_create(both[at]->side->ia, both[at]->side->pz, both[at]->recv, both[at]->request, both[at]->conn, &attr,
				   &both[at]->ep));
	MUST(dat_ep_query(a.ep, DAT_EP_FIELD_ALL, &param));
	CHECK("an Endpoint for datagrams says so", (unsigned) param.ep_attr.service_type == DAT_IB_SERVICE_TYPE_UD);
	MUST(dat_ep_post_recv(b.ep, 1, &there, cookie(21), DAT_COMPLETION_DEFAULT_FLAG));
	MUST(dat_psp_create(server.ia, 4000, requests, DAT_PSP_CONSUMER_FLAG, &psp));
	MUST(dat_ep_connect(a.ep, (DAT_IA_ADDRESS_PTR) &server.address, 4000, LIMIT, 4, "who", DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	CHECK("a request for datagrams arrives", next(requests, &event, LIMIT) == (unsigned) DAT_IB_UD_CONNECTION_REQUEST_EVENT &&
							       extra->type == DAT_IB_UD_CONNECT_REQUEST);
	MUST(dat_cr_accept(event.event_data.cr_arrival_event_data.cr_handle, b.ep, 5, "here"));
	CHECK("the answering side gets an event", next(b.conn, &event, LIMIT) == (unsigned) DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED &&
					     extra->type == DAT_IB_UD_PASSIVE_REMOTE_AH &&
					     event.event_data.connect_event_data.ep_handle == b.ep);
	CHECK("the requesting side gets an address", next(a.conn, &event, LIMIT) == (unsigned) DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED &&
						  extra->type == DAT_IB_UD_REMOTE_AH && extra->remote_ah.ah != NULL &&
						  extra->remote_ah.qpn != 0 &&
						  !strcmp(event.event_data.connect_event_data.private_data, "here"));
	to = extra->remote_ah;
	memset(server.memory, 0, 256);
	strcpy((char *) client.memory, "a datagram");
	EXPECT("a datagram", dat_ib_post_send_ud(a.ep, 1, &here, &to, cookie(20), DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
	CHECK("is sent", next(a.request, &event, LIMIT) == (unsigned) DAT_IB_DTO_EVENT && extra->type == DAT_IB_UD_SEND &&
				 dto->status == DAT_DTO_SUCCESS && dto->user_cookie.as_64 == 20);
	CHECK("arrives", next(b.recv, &event, LIMIT) == (unsigned) DAT_IB_DTO_EVENT && extra->type == DAT_IB_UD_RECV &&
				 dto->user_cookie.as_64 == 21 && dto->transfered_length == 40 + 32 &&
				 !strcmp((char *) server.memory + 40, "a datagram"));
	memset(&wrong, 0xa5, sizeof wrong);
	EXPECT("a datagram to what is no address", dat_ib_post_send_ud(a.ep, 1, &here, &wrong, cookie(20), DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_INVALID_PARAMETER);
	EXPECT("a datagram to nowhere", dat_ib_post_send_ud(a.ep, 1, &here, NULL, cookie(20), DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_INVALID_PARAMETER);
	EXPECT("the look-up is forgotten", dat_ib_ud_cm_free(a.ep, NULL), DAT_SUCCESS);
	EXPECT("the address is freed", dat_ib_ud_ah_free(a.ep, &to), DAT_SUCCESS);
	EXPECT("and freed twice", dat_ib_ud_ah_free(a.ep, &to), DAT_INVALID_PARAMETER);
	EXPECT("a datagram to a freed address", dat_ib_post_send_ud(a.ep, 1, &here, &to, cookie(20), DAT_COMPLETION_DEFAULT_FLAG),
	       DAT_INVALID_PARAMETER);
	MUST(dat_psp_free(psp));
	MUST(dat_ep_connect(a.ep, (DAT_IA_ADDRESS_PTR) &server.address, 4000, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	CHECK("nobody there to ask", next(a.conn, &event, LIMIT) == (unsigned) DAT_IB_UD_CONNECTION_REJECT_EVENT &&
					     extra->type == DAT_IB_UD_CONNECT_REJECT);
	end_close(&a);
	end_close(&b);
	MUST(dat_evd_free(requests));
}

/* ---- adapters ------------------------------------------------------------------------------------------------------------ */

static void adapters(void)
{
	DAT_IA_HANDLE ia;
	DAT_EVD_HANDLE async = DAT_HANDLE_NULL, evd;
	DAT_PZ_HANDLE pz;
	DAT_EP_HANDLE ep;

	EXPECT("a name that nobody has", dat_ia_open("nobody knows it", 8, &async, &ia), DAT_PROVIDER_NOT_FOUND);
	MUST(dat_ia_open((char *) server.name, 8, &async, &ia));
	MUST(dat_pz_create(ia, &pz));
	EXPECT_SUB("a graceful close with an object left", dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_INVALID_STATE,
		   DAT_INVALID_STATE_IA_IN_USE);
	EXPECT("an object of another open", dat_evd_create(ia, 8, (DAT_CNO_HANDLE) server.pz, DAT_EVD_DTO_FLAG, &evd),
	       DAT_INVALID_HANDLE);
	MUST(dat_evd_create(ia, 8, DAT_HANDLE_NULL, (DAT_EVD_FLAGS) (DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG), &evd));
	MUST(dat_ep_create(ia, pz, evd, evd, evd, NULL, &ep));
	EXPECT("an abrupt close with objects left", dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
	EXPECT("an Endpoint of a closed adapter", dat_ep_free(ep), DAT_INVALID_HANDLE);
	EXPECT("a zone of a closed adapter", dat_pz_free(pz), DAT_INVALID_HANDLE);
	EXPECT("an Event Dispatcher of a closed adapter", dat_evd_dequeue(evd, &(DAT_EVENT){0}), DAT_INVALID_HANDLE);
	EXPECT("a second close", dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_HANDLE);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} groups[] = {
		{"attributes", attributes},
		{"unfilled attributes", unfilled_attributes},
		{"dead handles", dead_handles},
		{"foreign handles", foreign_handles},
		{"contexts", contexts},
		{"adapters", adapters},
		{"memory", memory},
		{"Event Dispatchers", dispatchers},
		{"described completions", described_completions},
		{"idle", idle},
		{"bad posts", bad_posts},
		{"posts when disconnected", posts_when_disconnected},
		{"merged streams", merged},
		{"private data", private_data},
		{"nobody there", nobody_there},
		{"service points", service_points},
		{"windows", windows},
		{"shared receives", shared_receives},
		{"extensions", extensions},
		{"datagrams", datagrams},
	};
	size_t at;

	if (argc < 3) {
		fprintf(stderr, "usage: %s SERVER_IA CLIENT_IA [GROUP]\ngroups:", argv[0]);
		for (at = 0; at < sizeof groups / sizeof *groups; at++)
			fprintf(stderr, "%s %s", at ? "," : "", groups[at].name);
		fprintf(stderr, "\n");
		return 2;
	}
	side_open(&server, argv[1]);
	side_open(&client, argv[2]);
	for (at = 0; at < sizeof groups / sizeof *groups; at++) {
		if (argc > 3 && strcmp(argv[3], groups[at].name))
			continue;
		printf("# %s\n", groups[at].name);
		fflush(stdout);
		groups[at].run();
	}
	side_close(&server);
	side_close(&client);
	printf("%d of %d ok\n", checks - failures, checks);
	return failures || !checks;
}
