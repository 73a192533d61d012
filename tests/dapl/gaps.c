/*
 * What MPI libraries ask of a provider, each by itself: receives and requests that differ in what notifies, named attributes, datagrams
 * whose both sides learn of each other, service points above the ports, and a graceful end of Endpoints that share an Event Dispatcher.
 *
 *     gaps LIBRARY PARAMETERS PARAMETERS         built with -DALONE -rdynamic
 *
 * Lines and exit code are those of lists.c.
 */
#include <dat2/udat.h>
#include "alone.h"
#include "side.h"

#define dat_cr_query DAT_CR_QUERY
#define dat_cr_reject DAT_CR_REJECT
#define dat_psp_query DAT_PSP_QUERY

static struct side client, server;

static DAT_EP_HANDLE ep_of(struct side *side, DAT_EVD_HANDLE dto, DAT_EVD_HANDLE conn, DAT_EP_ATTR *attr)
{
	DAT_EP_HANDLE ep = DAT_HANDLE_NULL;

	MUST(dat_ep_create(side->ia, side->pz, dto, dto, conn, attr, &ep));
	return ep;
}

static void attributes(DAT_EP_ATTR *attr, int service)
{
	memset(attr, 0, sizeof *attr);
	attr->service_type = (DAT_SERVICE_TYPE) service;
	attr->max_message_size = 1024;
	attr->max_recv_dtos = attr->max_request_dtos = 8;
	attr->max_recv_iov = attr->max_request_iov = 1;
}

/* One Event Dispatcher, whose receives notify always and whose requests notify as they say. */
static void mixed(void)
{
	DAT_EVD_HANDLE dto = evd_of(&client, DAT_EVD_DTO_FLAG, 32), conn = evd_of(&client, DAT_EVD_CONNECTION_FLAG, 8);
	DAT_COMPLETION_FLAGS flags[][2] = {
		{ DAT_COMPLETION_DEFAULT_FLAG, DAT_COMPLETION_UNSIGNALLED_FLAG },
		{ DAT_COMPLETION_SOLICITED_WAIT_FLAG, DAT_COMPLETION_UNSIGNALLED_FLAG },
		{ DAT_COMPLETION_DEFAULT_FLAG, DAT_COMPLETION_DEFAULT_FLAG },
	};
	DAT_EP_HANDLE eps[3];
	DAT_EP_ATTR attr;
	int nth;

	for (nth = 0; nth < 3; nth++) {
		attributes(&attr, DAT_SERVICE_TYPE_RC);
		attr.recv_completion_flags = flags[nth][0];
		attr.request_completion_flags = flags[nth][1];
		EXPECT("an Endpoint beside others that notify otherwise",
		       dat_ep_create(client.ia, client.pz, dto, dto, conn, &attr, &eps[nth]), DAT_SUCCESS);
	}
	for (nth = 0; nth < 3; nth++)
		MUST(dat_ep_free(eps[nth]));
	MUST(dat_evd_free(dto));
	MUST(dat_evd_free(conn));
}

static void names(void)
{
	const char *wanted[] = { DAT_IB_ATTR_UD, DAT_IB_ATTR_COUNTERS, DAT_IB_ATTR_IMMED_DATA };
	DAT_PROVIDER_ATTR attr;
	int nth, at, found;

	MUST(dat_ia_query(client.ia, NULL, DAT_IA_FIELD_NONE, NULL, DAT_PROVIDER_FIELD_ALL, &attr));
	for (nth = 0; nth < 3; nth++) {
		for (at = found = 0; at < attr.num_provider_specific_attr; at++)
			found += !strcmp(attr.provider_specific_attr[at].name, wanted[nth]);
		report(found == 1, wanted[nth], "%d attributes of that name", found);
	}
}

/* A datagram to `to`, and its arrival on the other side. */
static void datagram(struct side *from, DAT_EP_HANDLE ep, DAT_EVD_HANDLE dto, DAT_IB_ADDR_HANDLE *to, struct side *far, DAT_EP_HANDLE far_ep,
		     DAT_EVD_HANDLE far_dto)
{
	DAT_LMR_TRIPLET here = part(from, 0, 32), there = part(far, 1024, 256);
	DAT_EVENT event;

	memset(far->memory + 1024, 0, 256);
	strcpy((char *) from->memory, from->name);
	MUST(dat_ep_post_recv(far_ep, 1, &there, cookie(1), DAT_COMPLETION_DEFAULT_FLAG));
	MUST(dat_ib_post_send_ud(ep, 1, &here, to, cookie(2), DAT_COMPLETION_DEFAULT_FLAG));
	CHECK("a datagram leaves", next(dto, &event, LIMIT) == (unsigned) DAT_IB_DTO_EVENT);
	CHECK("and arrives", next(far_dto, &event, LIMIT) == (unsigned) DAT_IB_DTO_EVENT &&
				     !strcmp((char *) far->memory + 1024 + 40, from->name));
}

static void datagrams(void)
{
	DAT_EVD_HANDLE dto[] = { evd_of(&client, DAT_EVD_DTO_FLAG, 8), evd_of(&server, DAT_EVD_DTO_FLAG, 8) };
	DAT_EVD_HANDLE conn[] = { evd_of(&client, DAT_EVD_CONNECTION_FLAG, 8), evd_of(&server, DAT_EVD_CONNECTION_FLAG, 8) };
	DAT_EVD_HANDLE requests = evd_of(&server, DAT_EVD_CR_FLAG, 8);
	DAT_EP_HANDLE eps[2];
	DAT_PSP_HANDLE psp;
	DAT_EP_ATTR attr;
	DAT_EVENT event;
	DAT_IB_EXTENSION_EVENT_DATA *extra = (DAT_IB_EXTENSION_EVENT_DATA *) &event.event_extension_data[0];
	DAT_CONNECTION_EVENT_DATA *data = &event.event_data.connect_event_data;
	DAT_IB_ADDR_HANDLE asker, asked;
	DAT_CR_HANDLE cr;
	DAT_CR_PARAM param;

	attributes(&attr, DAT_IB_SERVICE_TYPE_UD);
	eps[0] = ep_of(&client, dto[0], conn[0], &attr);
	eps[1] = ep_of(&server, dto[1], conn[1], &attr);
	MUST(dat_psp_create(server.ia, 4000, requests, DAT_PSP_CONSUMER_FLAG, &psp));
	MUST(dat_ep_connect(eps[0], (DAT_IA_ADDRESS_PTR) &server.address, 4000, LIMIT, 5, "who?", DAT_QOS_BEST_EFFORT,
			    DAT_CONNECT_DEFAULT_FLAG));
	CHECK("a request for datagrams comes", next(requests, &event, LIMIT) == (unsigned) DAT_IB_UD_CONNECTION_REQUEST_EVENT);
	cr = event.event_data.cr_arrival_event_data.cr_handle;
	MUST(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param));
	CHECK("with its private data", param.private_data_size == 5 && !strcmp((char *) param.private_data, "who?"));
	MUST(dat_cr_accept(cr, eps[1], 6, "here!"));
	CHECK("the answering side learns who asked",
	      next(conn[1], &event, LIMIT) == (unsigned) DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED && extra->type == DAT_IB_UD_PASSIVE_REMOTE_AH &&
		      extra->remote_ah.ah && extra->remote_ah.qpn && data->private_data_size == 5 && !strcmp(data->private_data, "who?"));
	asker = extra->remote_ah;
	CHECK("the asking side learns who answers",
	      next(conn[0], &event, LIMIT) == (unsigned) DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED && extra->type == DAT_IB_UD_REMOTE_AH &&
		      extra->remote_ah.ah && extra->remote_ah.qpn && data->private_data_size >= 6 && !strcmp(data->private_data, "here!"));
	asked = extra->remote_ah;
	datagram(&client, eps[0], dto[0], &asked, &server, eps[1], dto[1]);
	datagram(&server, eps[1], dto[1], &asker, &client, eps[0], dto[0]);
	EXPECT("an address is freed", dat_ib_ud_ah_free(eps[1], &asker), DAT_SUCCESS);
	EXPECT("and the other", dat_ib_ud_ah_free(eps[0], &asked), DAT_SUCCESS);
	MUST(dat_psp_free(psp));
	MUST(dat_ep_free(eps[0]));
	MUST(dat_ep_free(eps[1]));
	MUST(dat_evd_free(dto[0]));
	MUST(dat_evd_free(dto[1]));
	MUST(dat_evd_free(conn[0]));
	MUST(dat_evd_free(conn[1]));
	MUST(dat_evd_free(requests));
}

/* Numbers that no port can have: 1024 and a process, and one with stray upper bits. */
static void qualifiers(void)
{
	DAT_CONN_QUAL numbers[] = { 1024 + 4194303, 0x7fff00001235ull };
	DAT_EVD_HANDLE requests = evd_of(&server, DAT_EVD_CR_FLAG, 8);
	struct end a;
	DAT_PSP_HANDLE psp;
	DAT_EVENT event;
	DAT_PSP_PARAM param;
	int nth;

	for (nth = 0; nth < 2; nth++) {
		end_open(&a, &client);
		MUST(dat_psp_create(server.ia, numbers[nth], requests, DAT_PSP_CONSUMER_FLAG, &psp));
		MUST(dat_psp_query(psp, DAT_PSP_FIELD_ALL, &param));
		CHECK("a service point has the number that it was made with", param.conn_qual == numbers[nth]);
		MUST(dat_ep_connect(a.ep, (DAT_IA_ADDRESS_PTR) &server.address, numbers[nth], LIMIT, 0, NULL, DAT_QOS_BEST_EFFORT,
				    DAT_CONNECT_DEFAULT_FLAG));
		CHECK("so has a request to it", next(requests, &event, LIMIT) == DAT_CONNECTION_REQUEST_EVENT &&
							event.event_data.cr_arrival_event_data.conn_qual == numbers[nth]);
		MUST(dat_cr_reject(event.event_data.cr_arrival_event_data.cr_handle, 0, NULL));
		CHECK("which is rejected", next(a.conn, &event, LIMIT) == DAT_CONNECTION_EVENT_PEER_REJECTED);
		MUST(dat_psp_free(psp));
		end_close(&a);
	}
	MUST(dat_evd_free(requests));
}

/* Endpoints with requests that nobody has dequeued, and one Event Dispatcher for all of them. */
static void graceful(void)
{
	enum { PAIRS = 4, REQUESTS = 3 };
	DAT_EVD_HANDLE dto = evd_of(&client, DAT_EVD_DTO_FLAG, 64);
	struct end near[PAIRS], far[PAIRS];
	DAT_LMR_TRIPLET here = part(&client, 0, 8);
	DAT_RMR_TRIPLET there = far_part(&server, 0, 8);
	DAT_EVENT event;
	int nth, at, ended = 0, done = 0;

	for (nth = 0; nth < PAIRS; nth++) {
		near[nth] = (struct end) { &client, dto, dto, evd_of(&client, DAT_EVD_CONNECTION_FLAG, 8), DAT_HANDLE_NULL };
		near[nth].ep = ep_of(&client, dto, near[nth].conn, NULL);
		end_open(&far[nth], &server);
		CHECK("a pair is connected", link_up(&near[nth], &far[nth]));
		for (at = 0; at < REQUESTS; at++)
			MUST(dat_ep_post_rdma_write(near[nth].ep, 1, &here, cookie(at), &there, DAT_COMPLETION_DEFAULT_FLAG));
	}
	for (nth = 0; nth < PAIRS; nth++)
		MUST(dat_ep_disconnect(near[nth].ep, DAT_CLOSE_GRACEFUL_FLAG));
	for (nth = 0; nth < PAIRS; nth++) {
		ended += next(near[nth].conn, &event, LIMIT) == DAT_CONNECTION_EVENT_DISCONNECTED;
		ended += next(far[nth].conn, &event, LIMIT) == DAT_CONNECTION_EVENT_DISCONNECTED;
	}
	report(ended == 2 * PAIRS, "all connections end gracefully", "%d of %d", ended, 2 * PAIRS);
	while (next(dto, &event, 1000) == DAT_DTO_COMPLETION_EVENT)
		done += event.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS;
	report(done == PAIRS * REQUESTS, "and all requests have completed", "%d of %d", done, PAIRS * REQUESTS);
	for (nth = 0; nth < PAIRS; nth++) {
		MUST(dat_ep_free(near[nth].ep));
		MUST(dat_evd_free(near[nth].conn));
		end_close(&far[nth]);
	}
	MUST(dat_evd_free(dto));
}

int main(int count, char **words)
{
	if (!begin_alone(count, words))
		return 2;
	side_open(&client, words[1]);
	side_open(&server, words[2]);
	mixed();
	names();
	datagrams();
	qualifiers();
	graceful();
	side_close(&client);
	side_close(&server);
	return failures != 0;
}
