/* The objects of fields.c: each is made with values of the program's choice, and asked for them. */

/* ---- names and versions -------------------------------------------------------------------------------------------------- */

/* A line of another version of DAT is not of this provider: it is not registered, and takes nothing from a line of its name. */
static void versions(const char *parameters)
{
	static const unsigned others[][2] = {{1, 2}, {2, 1}, {3, 0}};
	DAT_PROVIDER_INFO info, own = info_of("left", 2, 0);
	const DAT_PROVIDER *table = find(&own);
	DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
	DAT_IA_HANDLE ia;
	int before = removed;

	for (size_t at = 0; at < COUNT(others); at++) {
		info = info_of("left", others[at][0], others[at][1]);
		begin(&info, parameters);
		CHECK("a line of another version is not registered", find(&info) == NULL);
		end(&info);
	}
	CHECK("a line of another version removes nothing", removed == before && find(&own) == table);
	if (CHECK("the line of the same name is still opened", table->ia_open_func("left", 4, &async, &ia) == DAT_SUCCESS))
		MUST(IA_CLOSE(ia, DAT_CLOSE_GRACEFUL_FLAG));
}

static void adapters(const char *parameters)
{
	DAT_PROVIDER_INFO info = info_of("left too", 2, 0);
	DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
	DAT_IA_HANDLE ia;
	DAT_IA_ATTR attr;

	WALK("dat_ia_query", a.ia, ia, DAT_IA_ATTR, DAT_IA_FIELD_ALL);
	WALK("dat_ia_query, provider", a.ia, provider, DAT_PROVIDER_ATTR, DAT_PROVIDER_FIELD_ALL);
	CHECK("the adapter's name is the one it was opened by", strcmp(a.attr.adapter_name, "left") == 0);
	CHECK("another adapter's is another", strcmp(b.attr.adapter_name, "right") == 0);
	begin(&info, parameters);
	MUST(find(&info)->ia_open_func("left too", 4, &async, &ia));
	MUST(DAT_IA_QUERY(ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
	CHECK("so it is where two names are of one device", strcmp(attr.adapter_name, "left too") == 0);
	MUST(DAT_IA_QUERY(a.ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
	CHECK("and the other keeps its own", strcmp(attr.adapter_name, "left") == 0);
	MUST(IA_CLOSE(ia, DAT_CLOSE_GRACEFUL_FLAG));
	end(&info);
}

/* ---- zones, Event Dispatchers, CNOs, queues ------------------------------------------------------------------------------ */

static void agent(DAT_PVOID instance, DAT_EVD_HANDLE evd)
{
	(void) instance;
	(void) evd;
}

static void cnos(void)
{
	DAT_OS_WAIT_PROXY_AGENT proxy = {&a, agent};
	DAT_CNO_HANDLE cno;
	DAT_CNO_PARAM param;
	unsigned char before[sizeof param];
	char line[64];

	MUST(DAT_CNO_CREATE(a.ia, proxy, &cno));
	/* The header's masks are no bits: any of them asks for all. */
	for (int mask = 1; mask <= 7; mask++) {
		memset(&param, LATER, sizeof param);
		MUST(DAT_CNO_QUERY(cno, (DAT_CNO_PARAM_MASK) mask, &param));
		snprintf(line, sizeof line, "dat_cno_query: mask %d", mask);
		CHECK(line, param.ia_handle == a.ia && param.proxy_type == DAT_PROXY_TYPE_AGENT &&
				    param.proxy.agent.instance_data == &a && param.proxy.agent.proxy_agent_func == agent);
	}
	memset(&param, LATER, sizeof param);
	memcpy(before, &param, sizeof param);
	MUST(DAT_CNO_QUERY(cno, (DAT_CNO_PARAM_MASK) 0, &param));
	CHECK("dat_cno_query: a mask of none fills nothing", memcmp(before, &param, sizeof param) == 0);
	EXPECT("dat_cno_query: an unknown mask", DAT_CNO_QUERY(cno, (DAT_CNO_PARAM_MASK) 8, &param), DAT_INVALID_PARAMETER,
	       DAT_INVALID_ARG2);
	CHECK("dat_cno_query: an unknown mask fills nothing", memcmp(before, &param, sizeof param) == 0);
	MUST(DAT_CNO_FREE(cno));
}

static void plain_objects(void)
{
	DAT_OS_WAIT_PROXY_AGENT none = DAT_OS_WAIT_PROXY_AGENT_NULL;
	DAT_CNO_HANDLE cno;
	DAT_EVD_HANDLE evd;
	DAT_EVD_PARAM evd_param;
	DAT_PZ_PARAM pz_param;
	DAT_SRQ_ATTR srq_attr = {24, 3, 5};
	DAT_SRQ_PARAM srq_param;
	DAT_SRQ_HANDLE srq;
	int flags = DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG | DAT_IB_EVD_EXTENSION_FLAG;

	WALK("dat_pz_query", a.pz, pz, DAT_PZ_PARAM, DAT_PZ_FIELD_ALL);
	MUST(DAT_PZ_QUERY(a.pz, DAT_PZ_FIELD_ALL, &pz_param));
	CHECK("a zone's adapter", pz_param.ia_handle == a.ia);

	cnos();
	MUST(DAT_CNO_CREATE(a.ia, none, &cno));
	MUST(DAT_EVD_CREATE(a.ia, 37, cno, (DAT_EVD_FLAGS) flags, &evd));
	MUST(DAT_EVD_DISABLE(evd));
	WALK("dat_evd_query", evd, evd, DAT_EVD_PARAM, DAT_EVD_FIELD_ALL);
	MUST(DAT_EVD_QUERY(evd, DAT_EVD_FIELD_ALL, &evd_param));
	CHECK("an Event Dispatcher's adapter and CNO", evd_param.ia_handle == a.ia && evd_param.cno_handle == cno);
	CHECK("an Event Dispatcher's length", evd_param.evd_qlen >= 37);
	CHECK("an Event Dispatcher's flags, with that of the extensions", evd_param.evd_flags == (DAT_EVD_FLAGS) flags);
	CHECK("an Event Dispatcher that is disabled", (evd_param.evd_state & DAT_EVD_STATE_DISABLED) != 0);
	EXPECT("flags that there are not", DAT_EVD_CREATE(a.ia, 4, cno, (DAT_EVD_FLAGS) 0x400, &evd), DAT_INVALID_PARAMETER,
	       DAT_INVALID_ARG4);
	MUST(DAT_EVD_FREE(evd));
	MUST(DAT_CNO_FREE(cno));

	MUST(DAT_SRQ_CREATE(a.ia, a.pz, &srq_attr, &srq));
	WALK("dat_srq_query", srq, srq, DAT_SRQ_PARAM, DAT_SRQ_FIELD_ALL);
	MUST(DAT_SRQ_QUERY(srq, DAT_SRQ_FIELD_ALL, &srq_param));
	CHECK("a queue's adapter and zone", srq_param.ia_handle == a.ia && srq_param.pz_handle == a.pz);
	CHECK("a queue's state", srq_param.srq_state == DAT_SRQ_STATE_OPERATIONAL);
	CHECK("a queue's sizes", srq_param.max_recv_dtos >= 24 && srq_param.max_recv_iov >= 3);
	CHECK("a queue's low watermark", srq_param.low_watermark == 5);
	CHECK("a queue's receives", srq_param.available_dto_count == 0 && srq_param.outstanding_dto_count == 0);
	MUST(DAT_SRQ_FREE(srq));
}

/* ---- Endpoints ----------------------------------------------------------------------------------------------------------- */

static DAT_EVD_HANDLE recv_evd, request_evd, connect_evd;

/* Attributes of which each is legal and none is the usual one. */
static DAT_EP_ATTR unusual(void)
{
	DAT_EP_ATTR attr;

	memset(&attr, 0, sizeof attr);
	attr.service_type = DAT_SERVICE_TYPE_RC;
	attr.max_message_size = 12345;
	attr.max_rdma_size = a.usual.max_rdma_size;
	attr.qos = DAT_QOS_BEST_EFFORT;
	attr.recv_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
	attr.request_completion_flags = DAT_COMPLETION_UNSIGNALLED_FLAG;
	attr.max_recv_dtos = a.usual.max_recv_dtos + 3;
	attr.max_request_dtos = a.usual.max_request_dtos + 5;
	attr.max_recv_iov = 2;
	attr.max_request_iov = 3;
	attr.max_rdma_read_in = 2;
	attr.max_rdma_read_out = 3;
	attr.srq_soft_hw = 7;
	attr.max_rdma_read_iov = 1;
	attr.max_rdma_write_iov = 2;
	return attr;
}

static DAT_EP_ATTR attr_of(DAT_EP_HANDLE ep)
{
	DAT_EP_PARAM param;

	MUST(DAT_EP_QUERY(ep, DAT_EP_FIELD_ALL, &param));
	return param.ep_attr;
}

/* Each attribute by itself, so that a line of the report says which. */
static void same(const char *name, DAT_EP_ATTR got, DAT_EP_ATTR wanted)
{
	char line[128];

#define SAME(field)                                                                                                  \
	do {                                                                                                             \
		snprintf(line, sizeof line, "%s: " #field, name);                                                            \
		report(got.field == wanted.field, line, "%lld, not %lld", (long long) (intptr_t) got.field,                  \
		       (long long) (intptr_t) wanted.field);                                                                 \
	} while (0)
	SAME(service_type);
	SAME(max_message_size);
	SAME(max_rdma_size);
	SAME(qos);
	SAME(recv_completion_flags);
	SAME(request_completion_flags);
	SAME(max_recv_dtos);
	SAME(max_request_dtos);
	SAME(max_recv_iov);
	SAME(max_request_iov);
	SAME(max_rdma_read_in);
	SAME(max_rdma_read_out);
	SAME(srq_soft_hw);
	SAME(max_rdma_read_iov);
	SAME(max_rdma_write_iov);
	SAME(ep_transport_specific_count);
	SAME(ep_transport_specific);
	SAME(ep_provider_specific_count);
	SAME(ep_provider_specific);
}

static DAT_RETURN create(DAT_EP_ATTR *attr, DAT_EP_HANDLE *ep)
{
	return DAT_EP_CREATE(a.ia, a.pz, recv_evd, request_evd, connect_evd, attr, ep);
}

static void refused(const char *name, DAT_EP_ATTR attr)
{
	DAT_EP_HANDLE ep;

	EXPECT(name, create(&attr, &ep), DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
}

/* The soft watermark that came with the attributes works like one that was set. */
static void soft_watermark(void)
{
	DAT_EVD_HANDLE recv = evd_of(&a, DAT_EVD_DTO_FLAG, 64), request = evd_of(&a, DAT_EVD_DTO_FLAG, 64);
	DAT_EP_ATTR attr = a.usual;
	DAT_EP_HANDLE ep;
	DAT_EVENT event;

	attr.srq_soft_hw = 1;
	MUST(DAT_EP_CREATE(a.ia, a.pz, recv, request, connect_evd, &attr, &ep));
	for (int at = 0; at < 2; at++)
		MUST(DAT_EP_POST_RECV(ep, 0, NULL, cookie(at), DAT_COMPLETION_DEFAULT_FLAG));
	CHECK("more receives than the soft watermark of the attributes are reported",
	      next(a.async, &event) == DAT_ASYNC_ERROR_EP_BROKEN);
	CHECK("the report names the Endpoint", event.event_data.asynch_error_event_data.dat_handle == ep);
	CHECK("the report says it is the watermark",
	      event.event_data.asynch_error_event_data.reason == DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT);
	MUST(DAT_EP_SET_WATERMARK(ep, 9, DAT_WATERMARK_INFINITE));
	CHECK("a query returns a watermark that was set", attr_of(ep).srq_soft_hw == 9);
	MUST(DAT_EP_RESET(ep));
	CHECK("it stays over a reset", attr_of(ep).srq_soft_hw == 9);
	MUST(DAT_EP_SET_WATERMARK(ep, DAT_WATERMARK_INFINITE, DAT_WATERMARK_INFINITE));
	CHECK("a query returns no watermark as infinite", attr_of(ep).srq_soft_hw == DAT_WATERMARK_INFINITE);
	MUST(DAT_EP_FREE(ep));
	MUST(DAT_EVD_FREE(recv));
	MUST(DAT_EVD_FREE(request));
}

static void endpoints(void)
{
	DAT_NAMED_ATTR named = {"name", "value"};
	DAT_SRQ_ATTR srq_attr = {64, 2, 0};
	DAT_EP_ATTR wanted = unusual(), attr;
	DAT_EP_PARAM param;
	DAT_SRQ_HANDLE srq;
	DAT_EP_HANDLE ep;
	DAT_COMM comm = {AF_INET, SOCK_STREAM, IPPROTO_TCP};

	recv_evd = evd_of(&a, DAT_EVD_DTO_FLAG, 512);
	request_evd = evd_of(&a, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, 512);
	connect_evd = evd_of(&a, DAT_EVD_CONNECTION_FLAG, 16);
	MUST(create(&wanted, &ep));
	WALK("dat_ep_query", ep, ep, DAT_EP_PARAM, DAT_EP_FIELD_ALL);
	same("attributes of an Endpoint", attr_of(ep), wanted);
	MUST(DAT_EP_QUERY(ep, DAT_EP_FIELD_ALL, &param));
	CHECK("an Endpoint's adapter", param.ia_handle == a.ia);
	CHECK("an Endpoint's state", param.ep_state == DAT_EP_STATE_UNCONNECTED);
	CHECK("communication parameters of an Endpoint", memcmp(&param.comm, &comm, sizeof comm) == 0);
	CHECK("an Endpoint's address", param.local_ia_address_ptr == a.attr.ia_address_ptr);
	CHECK("an Endpoint's zone", param.pz_handle == a.pz);
	CHECK("an Endpoint's Event Dispatchers", param.recv_evd_handle == recv_evd &&
						param.request_evd_handle == request_evd &&
						param.connect_evd_handle == connect_evd);
	CHECK("an Endpoint without a queue", param.srq_handle == DAT_HANDLE_NULL);
	CHECK("an Endpoint without a peer", param.remote_ia_address_ptr == NULL);
	MUST(DAT_EP_FREE(ep));

	/* An RDMA size below the adapter's is raised, as stock programs need it; a query returns the raised size. */
	attr = wanted;
	attr.max_rdma_size = 4096;
	MUST(create(&attr, &ep));
	CHECK("a query returns the adapter's size for a smaller size of RDMA", attr_of(ep).max_rdma_size == a.usual.max_rdma_size);
	MUST(DAT_EP_FREE(ep));
	/* 0 leaves the choice to the provider, which tells it. */
	attr.max_message_size = 0;
	attr.max_rdma_size = 0;
	attr.srq_soft_hw = 0;
	attr.max_rdma_read_iov = 0;
	attr.max_rdma_write_iov = 0;
	MUST(create(&attr, &ep));
	attr = attr_of(ep);
	CHECK("no size of messages is the adapter's", attr.max_message_size == a.usual.max_message_size);
	CHECK("no size of RDMA is the adapter's", attr.max_rdma_size == a.usual.max_rdma_size);
	CHECK("no soft watermark is none", attr.srq_soft_hw == DAT_WATERMARK_INFINITE);
	CHECK("no segments of RDMA are those of requests", attr.max_rdma_read_iov == 3 && attr.max_rdma_write_iov == 3);
	MUST(DAT_EP_FREE(ep));

#define REFUSED(field, value)                                                                                        \
	do {                                                                                                             \
		attr = wanted;                                                                                               \
		attr.field = value;                                                                                          \
		refused(#field " = " #value, attr);                                                                          \
	} while (0)
	REFUSED(service_type, 77);
	REFUSED(max_message_size, a.attr.max_message_size + 1);
	REFUSED(max_rdma_size, a.attr.max_rdma_size + 1);
	REFUSED(qos, 3);
	REFUSED(recv_completion_flags, DAT_COMPLETION_SUPPRESS_FLAG);
	REFUSED(recv_completion_flags, 0x4000);
	REFUSED(request_completion_flags, 0x4000);
	REFUSED(max_recv_dtos, -1);
	REFUSED(max_recv_dtos, 0x10001);
	REFUSED(max_request_dtos, a.attr.max_dto_per_ep + 1);
	REFUSED(max_recv_iov, 0x101);
	REFUSED(max_request_iov, a.attr.max_iov_segments_per_dto + 1);
	REFUSED(max_rdma_read_in, a.attr.max_rdma_read_per_ep_in + 1);
	REFUSED(max_rdma_read_out, -1);
	REFUSED(srq_soft_hw, -2);
	REFUSED(max_rdma_read_iov, a.attr.max_iov_segments_per_rdma_read + 1);
	REFUSED(max_rdma_write_iov, -1);
	REFUSED(ep_transport_specific_count, 1);
	REFUSED(ep_provider_specific_count, 1);
	REFUSED(ep_provider_specific_count, -1);
	attr = wanted;
	attr.ep_provider_specific_count = 1;
	attr.ep_provider_specific = &named;
	refused("an attribute of the provider's that it has not", attr);

	/* With a queue, sizes are what was asked for. */
	MUST(DAT_SRQ_CREATE(a.ia, a.pz, &srq_attr, &srq));
	attr = wanted;
	attr.max_rdma_size = 54321;
	MUST(DAT_EP_CREATE_WITH_SRQ(a.ia, a.pz, recv_evd, request_evd, connect_evd, srq, &attr, &ep));
	WALK("dat_ep_query, with a queue", ep, ep, DAT_EP_PARAM, DAT_EP_FIELD_ALL);
	same("attributes of an Endpoint with a queue", attr_of(ep), attr);
	MUST(DAT_EP_QUERY(ep, DAT_EP_FIELD_SRQ_HANDLE, &param));
	CHECK("an Endpoint's queue", param.srq_handle == srq);
	MUST(DAT_EP_FREE(ep));
	attr.ep_transport_specific_count = 1;
	EXPECT("attributes of the transport with a queue",
	       DAT_EP_CREATE_WITH_SRQ(a.ia, a.pz, recv_evd, request_evd, connect_evd, srq, &attr, &ep), DAT_INVALID_PARAMETER,
	       DAT_INVALID_ARG7);
	MUST(DAT_SRQ_FREE(srq));
	soft_watermark();
}

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

static DAT_RETURN lmr_of(int type, DAT_REGION_DESCRIPTION region, DAT_VLEN length, int privileges, DAT_LMR_HANDLE *lmr,
			 DAT_LMR_PARAM *out)
{
	return DAT_LMR_CREATE(a.ia, (DAT_MEM_TYPE) type, region, length, a.pz, (DAT_MEM_PRIV_FLAGS) privileges,
			      DAT_VA_TYPE_VA, lmr, &out->lmr_context, &out->rmr_context, &out->registered_size,
			      &out->registered_address);
}

static void shared_memory(void)
{
	char name[DAT_LMR_COOKIE_SIZE], kept[DAT_LMR_COOKIE_SIZE];
	int all = DAT_MEM_PRIV_ALL_FLAG;
	DAT_REGION_DESCRIPTION region;
	DAT_LMR_HANDLE lmr, other;
	DAT_LMR_PARAM out, param;
	int file = memfd_create("shared", 0);
	char *shared;

	if (file < 0 || ftruncate(file, BUFFER) != 0)
		exit(2);
	shared = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (shared == MAP_FAILED)
		exit(2);
	memset(name, 'n', sizeof name);
	memcpy(kept, name, sizeof name);
	memset(&region, 0, sizeof region);
	region.for_shared_memory.virtual_address = a.memory;
	region.for_shared_memory.shared_memory_id = &name;
	EXPECT("memory that is the process's alone is not shared",
	       lmr_of(DAT_MEM_TYPE_SHARED_VIRTUAL, region, 4096, all, &lmr, &out), DAT_INVALID_STATE, 0);
	region.for_shared_memory.virtual_address = shared;
	MUST(lmr_of(DAT_MEM_TYPE_SHARED_VIRTUAL, region, 8192, all, &lmr, &out));
	MUST(lmr_of(DAT_MEM_TYPE_SHARED_VIRTUAL, region, 4096, all, &other, &out));
	CHECK("two registrations of one name", DAT_LMR_FREE(other) == DAT_SUCCESS);
	/* The name is the consumer's for the time of the call. */
	memset(name, 'x', sizeof name);
	WALK("dat_lmr_query, shared", lmr, lmr, DAT_LMR_PARAM, DAT_LMR_FIELD_ALL);
	MUST(DAT_LMR_QUERY(lmr, DAT_LMR_FIELD_ALL, &param));
	CHECK("shared memory's type and length", param.mem_type == DAT_MEM_TYPE_SHARED_VIRTUAL && param.length == 8192);
	CHECK("shared memory's address", param.region_desc.for_shared_memory.virtual_address == shared);
	CHECK("shared memory's name", memcmp(*param.region_desc.for_shared_memory.shared_memory_id, kept, sizeof kept) == 0);
	MUST(DAT_LMR_FREE(lmr));
	region.for_shared_memory.shared_memory_id = NULL;
	EXPECT("shared memory without a name", lmr_of(DAT_MEM_TYPE_SHARED_VIRTUAL, region, 4096, all, &lmr, &out),
	       DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
	munmap(shared, BUFFER);
	close(file);
}

static void memory(void)
{
	/* Requested and resulting privileges: every registration includes local read, and a query returns it. */
	static const int privileges[] = {
		DAT_MEM_PRIV_LOCAL_READ_FLAG, DAT_MEM_PRIV_LOCAL_WRITE_FLAG, DAT_MEM_PRIV_REMOTE_READ_FLAG,
		DAT_MEM_PRIV_LOCAL_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_MEM_PRIV_ALL_FLAG,
	};
	int remote = DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG;
	DAT_REGION_DESCRIPTION region;
	DAT_LMR_HANDLE lmr, over;
	DAT_LMR_PARAM out, param;

	memset(&region, 0, sizeof region);
	region.for_va = a.memory + 100;
	for (size_t at = 0; at < COUNT(privileges); at++) {
		MUST(lmr_of(DAT_MEM_TYPE_VIRTUAL, region, 3000, privileges[at], &lmr, &out));
		MUST(DAT_LMR_QUERY(lmr, DAT_LMR_FIELD_ALL, &param));
		CHECK("a query returns the resulting privileges",
		      param.mem_priv == (DAT_MEM_PRIV_FLAGS) (privileges[at] | DAT_MEM_PRIV_LOCAL_READ_FLAG));
		CHECK("without remote privileges there is no context for peers",
		      (param.rmr_context != 0) == ((privileges[at] & remote) != 0));
		CHECK("contexts and range are those of the registration",
		      param.lmr_context == out.lmr_context && param.rmr_context == out.rmr_context &&
			      param.registered_size == out.registered_size &&
			      param.registered_address == out.registered_address);
		MUST(DAT_LMR_FREE(lmr));
	}
	EXPECT("privileges that there are not", lmr_of(DAT_MEM_TYPE_VIRTUAL, region, 3000, 0x100, &lmr, &out),
	       DAT_INVALID_PARAMETER, DAT_INVALID_ARG6);
	EXPECT("remote write without local write",
	       lmr_of(DAT_MEM_TYPE_VIRTUAL, region, 3000, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, &lmr, &out),
	       DAT_PRIVILEGES_VIOLATION, DAT_PRIVILEGES_WRITE);
	MUST(lmr_of(DAT_MEM_TYPE_VIRTUAL, region, 3000, DAT_MEM_PRIV_ALL_FLAG, &lmr, &out));
	WALK("dat_lmr_query", lmr, lmr, DAT_LMR_PARAM, DAT_LMR_FIELD_ALL);
	MUST(DAT_LMR_QUERY(lmr, DAT_LMR_FIELD_ALL, &param));
	CHECK("an LMR's adapter and zone", param.ia_handle == a.ia && param.pz_handle == a.pz);
	CHECK("an LMR's memory", param.mem_type == DAT_MEM_TYPE_VIRTUAL && param.region_desc.for_va == a.memory + 100 &&
				 param.length == 3000 && param.va_type == DAT_VA_TYPE_VA);
	region.for_lmr_handle = lmr;
	MUST(lmr_of(DAT_MEM_TYPE_LMR, region, 1, DAT_MEM_PRIV_LOCAL_READ_FLAG, &over, &out));
	WALK("dat_lmr_query, over another", over, lmr, DAT_LMR_PARAM, DAT_LMR_FIELD_ALL);
	MUST(DAT_LMR_QUERY(over, DAT_LMR_FIELD_ALL, &param));
	CHECK("an LMR over another", param.mem_type == DAT_MEM_TYPE_LMR && param.region_desc.for_lmr_handle == lmr &&
				     param.registered_size >= 3000);
	MUST(DAT_LMR_FREE(over));
	MUST(DAT_LMR_FREE(lmr));
	shared_memory();
}

/* ---- RMRs, requests, service points -------------------------------------------------------------------------------------- */

struct end {
	DAT_EVD_HANDLE dto, conn;
	DAT_EP_HANDLE ep;
};

static struct end near, far;

static void open_end(struct end *it, struct side *side)
{
	it->dto = evd_of(side, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, 128);
	it->conn = evd_of(side, DAT_EVD_CONNECTION_FLAG, 8);
	MUST(DAT_EP_CREATE(side->ia, side->pz, it->dto, it->dto, it->conn, NULL, &it->ep));
}

static void windows(void)
{
	DAT_REGION_DESCRIPTION region;
	DAT_LMR_TRIPLET triplet;
	DAT_RMR_CONTEXT context;
	DAT_RMR_PARAM param;
	DAT_LMR_PARAM out;
	DAT_LMR_HANDLE lmr;
	DAT_RMR_HANDLE rmr;
	DAT_EVD_HANDLE requests = evd_of(&b, DAT_EVD_CR_FLAG, 8);
	DAT_PSP_HANDLE psp;
	DAT_EVENT event;
	DAT_EP_PARAM ep;

	open_end(&near, &a);
	open_end(&far, &b);
	MUST(DAT_PSP_CREATE(b.ia, 7001, requests, DAT_PSP_CONSUMER_FLAG, &psp));
	MUST(DAT_EP_CONNECT(near.ep, b.attr.ia_address_ptr, 7001, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	if (next(requests, &event) != DAT_CONNECTION_REQUEST_EVENT)
		exit(2);
	MUST(DAT_CR_ACCEPT(event.event_data.cr_arrival_event_data.cr_handle, far.ep, 0, NULL));
	if (next(far.conn, &event) != DAT_CONNECTION_EVENT_ESTABLISHED ||
	    next(near.conn, &event) != DAT_CONNECTION_EVENT_ESTABLISHED)
		exit(2);
	WALK("dat_ep_query, connected", near.ep, ep, DAT_EP_PARAM, DAT_EP_FIELD_ALL);
	MUST(DAT_EP_QUERY(near.ep, DAT_EP_FIELD_ALL, &ep));
	CHECK("a connected Endpoint's state and peer", ep.ep_state == DAT_EP_STATE_CONNECTED && ep.remote_port_qual == 7001 &&
						       ep.remote_ia_address_ptr != NULL);

	memset(&region, 0, sizeof region);
	region.for_va = a.memory;
	MUST(lmr_of(DAT_MEM_TYPE_VIRTUAL, region, BUFFER, DAT_MEM_PRIV_ALL_FLAG, &lmr, &out));
	MUST(DAT_RMR_CREATE(a.pz, &rmr));
	WALK("dat_rmr_query", rmr, rmr, DAT_RMR_PARAM, DAT_RMR_FIELD_ALL);
	triplet.virtual_address = (DAT_VADDR) (uintptr_t) (a.memory + 64);
	triplet.segment_length = 512;
	triplet.lmr_context = out.lmr_context;
	MUST(DAT_RMR_BIND(rmr, lmr, &triplet, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA, near.ep, cookie(5),
			  DAT_COMPLETION_DEFAULT_FLAG, &context));
	CHECK("a bind completes", next(near.dto, &event) == DAT_RMR_BIND_COMPLETION_EVENT);
	WALK("dat_rmr_query, bound", rmr, rmr, DAT_RMR_PARAM, DAT_RMR_FIELD_ALL);
	MUST(DAT_RMR_QUERY(rmr, DAT_RMR_FIELD_ALL, &param));
	CHECK("an RMR's adapter and zone", param.ia_handle == a.ia && param.pz_handle == a.pz);
	CHECK("an RMR's range", memcmp(&param.lmr_triplet, &triplet, sizeof triplet) == 0);
	CHECK("an RMR's privileges and context",
	      param.mem_priv == DAT_MEM_PRIV_REMOTE_READ_FLAG && param.rmr_context == context);
	CHECK("an RMR's scope and addresses", param.rmr_scope == DAT_RMR_SCOPE_PZ && param.va_type == DAT_VA_TYPE_VA);
	MUST(DAT_RMR_FREE(rmr));
	EXPECT("an RMR that was bound and freed, freed again", DAT_RMR_FREE(rmr), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RMR);
	EXPECT("and again", DAT_RMR_FREE(rmr), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RMR);
	EXPECT("a freed RMR, asked", DAT_RMR_QUERY(rmr, DAT_RMR_FIELD_ALL, &param), DAT_INVALID_HANDLE,
	       DAT_INVALID_HANDLE_RMR);
	EXPECT("a freed RMR, bound",
	       DAT_RMR_BIND(rmr, lmr, &triplet, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA, near.ep, cookie(5),
			    DAT_COMPLETION_DEFAULT_FLAG, &context),
	       DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RMR);
	MUST(DAT_RMR_CREATE_FOR_EP(a.pz, &rmr));
	MUST(DAT_RMR_QUERY(rmr, DAT_RMR_FIELD_RMR_SCOPE, &param));
	CHECK("the scope of an RMR of one Endpoint", param.rmr_scope == DAT_RMR_SCOPE_EP);
	MUST(DAT_RMR_FREE(rmr));
	EXPECT("an RMR of one Endpoint, freed twice", DAT_RMR_FREE(rmr), DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RMR);
	MUST(DAT_LMR_FREE(lmr));
	MUST(DAT_EP_DISCONNECT(near.ep, DAT_CLOSE_ABRUPT_FLAG));
	MUST(DAT_EP_FREE(near.ep));
	MUST(DAT_EP_FREE(far.ep));
	MUST(DAT_PSP_FREE(psp));
	MUST(DAT_EVD_FREE(requests));
}

/* What came with a request, and the service points of three kinds. */
static void requests(void)
{
	DAT_EVD_HANDLE requests = evd_of(&b, DAT_EVD_CR_FLAG, 8);
	DAT_COMM comm = {AF_INET, SOCK_STREAM, IPPROTO_TCP};
	struct sockaddr_in address = *(struct sockaddr_in *) b.attr.ia_address_ptr;
	DAT_CR_ARRIVAL_EVENT_DATA *arrival;
	DAT_PSP_PARAM psp_param;
	DAT_RSP_PARAM rsp_param;
	DAT_CSP_PARAM csp_param;
	DAT_CR_PARAM cr_param;
	DAT_PSP_HANDLE psp;
	DAT_RSP_HANDLE rsp;
	DAT_CSP_HANDLE csp;
	DAT_EVENT event;

	MUST(DAT_PSP_CREATE(b.ia, 7002, requests, DAT_PSP_PROVIDER_FLAG, &psp));
	WALK("dat_psp_query", psp, psp, DAT_PSP_PARAM, DAT_PSP_FIELD_ALL);
	MUST(DAT_PSP_QUERY(psp, DAT_PSP_FIELD_ALL, &psp_param));
	CHECK("a Public Service Point", psp_param.ia_handle == b.ia && psp_param.conn_qual == 7002 &&
						psp_param.evd_handle == requests &&
						psp_param.psp_flags == DAT_PSP_PROVIDER_FLAG);
	MUST(DAT_PSP_FREE(psp));
	open_end(&near, &a);
	open_end(&far, &b);
	MUST(DAT_RSP_CREATE(b.ia, 7003, far.ep, requests, &rsp));
	WALK("dat_rsp_query", rsp, rsp, DAT_RSP_PARAM, DAT_RSP_FIELD_ALL);
	MUST(DAT_RSP_QUERY(rsp, DAT_RSP_FIELD_ALL, &rsp_param));
	CHECK("a Reserved Service Point", rsp_param.ia_handle == b.ia && rsp_param.conn_qual == 7003 &&
						  rsp_param.evd_handle == requests && rsp_param.ep_handle == far.ep);
	MUST(DAT_EP_CONNECT(near.ep, b.attr.ia_address_ptr, 7003, LIMIT, 5, "hello", DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	if (next(requests, &event) != DAT_CONNECTION_REQUEST_EVENT)
		exit(2);
	arrival = &event.event_data.cr_arrival_event_data;
	WALK("dat_cr_query", arrival->cr_handle, cr, DAT_CR_PARAM, DAT_CR_FIELD_ALL);
	MUST(DAT_CR_QUERY(arrival->cr_handle, DAT_CR_FIELD_ALL, &cr_param));
	CHECK("a request's private data",
	      cr_param.private_data_size >= 5 && memcmp(cr_param.private_data, "hello", 5) == 0);
	CHECK("a request's Endpoint", cr_param.local_ep_handle == far.ep);
	CHECK("a request's peer", ((struct sockaddr_in *) cr_param.remote_ia_address_ptr)->sin_addr.s_addr ==
					  ((struct sockaddr_in *) a.attr.ia_address_ptr)->sin_addr.s_addr);
	EXPECT("a request for a qualifier beyond 16 bits", DAT_CR_HANDOFF(arrival->cr_handle, 0x10000), DAT_INVALID_PARAMETER,
	       DAT_INVALID_ARG2);
	MUST(DAT_CR_REJECT(arrival->cr_handle, 0, NULL));
	MUST(DAT_RSP_FREE(rsp));
	MUST(DAT_EP_FREE(near.ep));
	MUST(DAT_EP_FREE(far.ep));

	address.sin_port = htons(7004);
	MUST(DAT_CSP_CREATE(b.ia, &comm, (DAT_IA_ADDRESS_PTR) &address, requests, &csp));
	WALK("dat_csp_query", csp, csp, DAT_CSP_PARAM, DAT_CSP_FIELD_ALL);
	MUST(DAT_CSP_QUERY(csp, DAT_CSP_FIELD_ALL, &csp_param));
	CHECK("a Common Service Point", csp_param.ia_handle == b.ia && memcmp(csp_param.comm, &comm, sizeof comm) == 0 &&
						((struct sockaddr_in *) csp_param.address_ptr)->sin_port == htons(7004) &&
						csp_param.evd_handle == requests);
	MUST(DAT_CSP_FREE(csp));
	MUST(DAT_EVD_FREE(requests));
}

/* The wire has the lower 16 bits of a qualifier, and a service point says it as it was given. */
static void qualifiers(void)
{
	static const DAT_CONN_QUAL portless[] = {0x10000, UINT64_C(0x100000000), UINT64_MAX << 16};
	static const DAT_CONN_QUAL long_one = 0x10000 + 7005, same = UINT64_C(0x555500000000) + 7005;
	DAT_EVD_HANDLE requests = evd_of(&b, DAT_EVD_CR_FLAG, 8);
	const DAT_CR_ARRIVAL_EVENT_DATA *arrival;
	DAT_PSP_PARAM param;
	DAT_RSP_PARAM rsp_param;
	DAT_PSP_HANDLE psp;
	DAT_RSP_HANDLE rsp;
	DAT_EP_PARAM ep;
	DAT_EVENT event;

	open_end(&near, &a);
	open_end(&far, &b);
	for (size_t at = 0; at < COUNT(portless); at++) {
		EXPECT("dat_psp_create without a port",
		       DAT_PSP_CREATE(b.ia, portless[at], requests, DAT_PSP_CONSUMER_FLAG, &psp), DAT_INVALID_PARAMETER,
		       DAT_INVALID_ARG2);
		EXPECT("dat_rsp_create without a port", DAT_RSP_CREATE(b.ia, portless[at], far.ep, requests, &rsp),
		       DAT_INVALID_PARAMETER, DAT_INVALID_ARG2);
		EXPECT("dat_ep_connect without a port",
		       DAT_EP_CONNECT(near.ep, b.attr.ia_address_ptr, portless[at], LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT,
				      DAT_CONNECT_DEFAULT_FLAG),
		       DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
	}
	MUST(DAT_EP_QUERY(near.ep, DAT_EP_FIELD_EP_STATE, &ep));
	CHECK("what was refused changed nothing", ep.ep_state == DAT_EP_STATE_UNCONNECTED);
	MUST(DAT_RSP_CREATE(b.ia, same, far.ep, requests, &rsp));
	MUST(DAT_RSP_QUERY(rsp, DAT_RSP_FIELD_CONN_QUAL, &rsp_param));
	CHECK("a long qualifier of a Reserved Service Point", rsp_param.conn_qual == same);
	MUST(DAT_RSP_FREE(rsp));
	MUST(DAT_PSP_CREATE(b.ia, long_one, requests, DAT_PSP_CONSUMER_FLAG, &psp));
	MUST(DAT_PSP_QUERY(psp, DAT_PSP_FIELD_CONN_QUAL, &param));
	CHECK("a long qualifier of a Public Service Point", param.conn_qual == long_one);
	EXPECT("another of the same port", DAT_PSP_CREATE(b.ia, same, requests, DAT_PSP_CONSUMER_FLAG, &psp),
	       DAT_CONN_QUAL_IN_USE, 0);
	MUST(DAT_EP_CONNECT(near.ep, b.attr.ia_address_ptr, same, LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	CHECK("a request at it", next(requests, &event) == DAT_CONNECTION_REQUEST_EVENT);
	arrival = &event.event_data.cr_arrival_event_data;
	CHECK("which names it as it was given", arrival->conn_qual == long_one && arrival->sp_handle.psp_handle == psp);
	MUST(DAT_CR_REJECT(arrival->cr_handle, 0, NULL));
	CHECK("and is answered", next(near.conn, &event) == DAT_CONNECTION_EVENT_PEER_REJECTED);
	MUST(DAT_PSP_FREE(psp));
	MUST(DAT_PSP_CREATE(b.ia, 7005, requests, DAT_PSP_CONSUMER_FLAG, &psp));
	MUST(DAT_PSP_QUERY(psp, DAT_PSP_FIELD_CONN_QUAL, &param));
	CHECK("nothing of it is left", param.conn_qual == 7005);
	MUST(DAT_PSP_FREE(psp));
	MUST(DAT_EP_FREE(near.ep));
	MUST(DAT_EP_FREE(far.ep));
	MUST(DAT_EVD_FREE(requests));
}

/* ---- quality of service: the parameters of the first adapter give two of them a class --------------------------------------- */

static void qualities(void)
{
	DAT_EVD_HANDLE requests = evd_of(&b, DAT_EVD_CR_FLAG, 8);
	DAT_EP_ATTR attr = a.usual;
	DAT_PSP_HANDLE psp;
	DAT_EVENT event;

	CHECK("a quality with a class is supported", a.provider.dat_qos_supported == (DAT_QOS_PREMIUM | DAT_QOS_ECONOMY));
	CHECK("no other is", b.provider.dat_qos_supported == DAT_QOS_BEST_EFFORT);
	open_end(&near, &a);
	MUST(DAT_PSP_CREATE(b.ia, 7009, requests, DAT_PSP_CONSUMER_FLAG, &psp));
#define CONNECT(qos) DAT_EP_CONNECT(near.ep, b.attr.ia_address_ptr, 7009, LIMIT, 0, NULL, qos, DAT_CONNECT_DEFAULT_FLAG)
	EXPECT("dat_ep_connect with a number that is no quality", CONNECT(3), DAT_INVALID_PARAMETER, DAT_INVALID_ARG7);
	EXPECT("dat_ep_connect with a number beyond them", CONNECT(16), DAT_INVALID_PARAMETER, DAT_INVALID_ARG7);
	EXPECT("dat_ep_connect with a quality without a class", CONNECT(DAT_QOS_LOW_LATENCY), DAT_MODEL_NOT_SUPPORTED, 0);
	MUST(CONNECT(DAT_QOS_PREMIUM));
#undef CONNECT
	CHECK("a request with a quality arrives", next(requests, &event) == DAT_CONNECTION_REQUEST_EVENT);
	MUST(DAT_CR_REJECT(event.event_data.cr_arrival_event_data.cr_handle, 0, NULL));
	CHECK("and is answered", next(near.conn, &event) == DAT_CONNECTION_EVENT_PEER_REJECTED);
	MUST(DAT_EP_FREE(near.ep));
	attr.qos = DAT_QOS_PREMIUM;
	MUST(DAT_EP_CREATE(a.ia, a.pz, near.dto, near.dto, near.conn, &attr, &near.ep));
	CHECK("an Endpoint's quality", attr_of(near.ep).qos == DAT_QOS_PREMIUM);
	MUST(DAT_EP_FREE(near.ep));
	MUST(DAT_PSP_FREE(psp));
	MUST(DAT_EVD_FREE(near.dto));
	MUST(DAT_EVD_FREE(near.conn));
	MUST(DAT_EVD_FREE(requests));
}

/* ---- dat_ep_modify ------------------------------------------------------------------------------------------------------- */

static void modifications(void)
{
	/* These never change, by the manual page. */
	static const DAT_EP_PARAM_MASK fixed[] = {
		DAT_EP_FIELD_IA_HANDLE, DAT_EP_FIELD_EP_STATE, DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR,
		DAT_EP_FIELD_LOCAL_PORT_QUAL, DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR, DAT_EP_FIELD_REMOTE_PORT_QUAL,
		DAT_EP_FIELD_SRQ_HANDLE, UINT64_C(1) << 31, UINT64_C(1) << 63,
	};
	DAT_EP_ATTR wanted = unusual(), before;
	DAT_EP_PARAM param, old;
	DAT_PZ_HANDLE pz;
	DAT_EP_HANDLE ep;

	MUST(create(NULL, &ep));
	before = attr_of(ep);
	memset(&param, 0, sizeof param);
	for (size_t at = 0; at < COUNT(fixed); at++)
		EXPECT("dat_ep_modify of what never changes", DAT_EP_MODIFY(ep, fixed[at], &param), DAT_INVALID_PARAMETER,
		       DAT_INVALID_ARG2);
	param.ep_attr = wanted;
	param.ep_attr.max_rdma_size = 54321;
	param.ep_attr.ep_provider_specific_count = 1;
	EXPECT("dat_ep_modify to an attribute that there is not",
	       DAT_EP_MODIFY(ep, DAT_EP_FIELD_EP_ATTR_NUM_PROVIDER_ATTR, &param), DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
	param.ep_attr.ep_provider_specific_count = 0;
	same("attributes after what was refused", attr_of(ep), before);
	/* One at a time: the others stay. */
	MUST(DAT_EP_MODIFY(ep, DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW, &param));
	before.srq_soft_hw = wanted.srq_soft_hw;
	same("after a new soft watermark", attr_of(ep), before);
	MUST(DAT_EP_MODIFY(ep, DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE, &param));
	before.max_message_size = wanted.max_message_size;
	same("after a new size of messages", attr_of(ep), before);
	MUST(DAT_EP_MODIFY(ep, DAT_EP_FIELD_EP_ATTR_ALL, &param));
	wanted.max_rdma_size = 54321;
	same("after new attributes", attr_of(ep), wanted);
	MUST(DAT_PZ_CREATE(a.ia, &pz));
	param.pz_handle = pz;
	MUST(DAT_EP_MODIFY(ep, DAT_EP_FIELD_PZ_HANDLE, &param));
	MUST(DAT_EP_QUERY(ep, DAT_EP_FIELD_ALL, &old));
	CHECK("a new zone", old.pz_handle == pz);
	CHECK("a new zone leaves the Event Dispatchers", old.recv_evd_handle == recv_evd && old.connect_evd_handle == connect_evd);
	param.pz_handle = DAT_HANDLE_NULL;
	EXPECT("no zone is no new zone", DAT_EP_MODIFY(ep, DAT_EP_FIELD_PZ_HANDLE, &param), DAT_INVALID_HANDLE,
	       DAT_INVALID_HANDLE_PZ);
	param.recv_evd_handle = DAT_HANDLE_NULL;
	EXPECT("nor is none a new Event Dispatcher", DAT_EP_MODIFY(ep, DAT_EP_FIELD_RECV_EVD_HANDLE, &param),
	       DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EVD_RECV);
	param.comm = old.comm;
	MUST(DAT_EP_MODIFY(ep, DAT_EP_FIELD_COMM, &param));
	param.comm.type = SOCK_DGRAM;
	EXPECT("other communication parameters", DAT_EP_MODIFY(ep, DAT_EP_FIELD_COMM, &param), DAT_COMM_NOT_SUPPORTED, 0);
	MUST(DAT_EP_FREE(ep));
	MUST(DAT_PZ_FREE(pz));
}
