/*
 * Every operation of dat_dapldat.h: lists of posts, bursts of events, deferred doorbells, and what is refused of each.
 *
 *     lists SERVER_IA CLIENT_IA                     two names of dat.conf, through the stock registry
 *     lists LIBRARY PARAMETERS PARAMETERS           built with -DALONE -rdynamic: the provider, and what dat.conf would say of two
 *
 * A line "ok NAME" or "FAIL NAME: why" for each check; ends with 0 if all are ok, with 1 if some are not, with 2 if what they rest
 * on fails.
 */
#ifdef ALONE
#include "alone.h"
#endif
#include "side.h"

#include <dat_dapldat.h>

enum { COUNT = 32, SIZE = 256, FAR = BUFFER / 2, SHORT = 20000 };

static struct side near_side, far_side;
static struct end a, b;

static DAT_DAPLDAT_RDMA rdma(DAT_UINT64 word, size_t at, DAT_UINT64 flags)
{
	DAT_DAPLDAT_RDMA it;

	it.cookie = cookie(word);
	it.local = part(&near_side, at, SIZE);
	it.remote = far_part(&far_side, FAR + at, SIZE);
	it.flags = flags;
	return it;
}

static DAT_DAPLDAT_MESSAGE message(struct side *side, DAT_UINT64 word, size_t at)
{
	DAT_DAPLDAT_MESSAGE it;

	it.cookie = cookie(word);
	it.local = part(side, at, SIZE);
	it.flags = DAT_COMPLETION_DEFAULT_FLAG;
	return it;
}

/* Dequeues bursts until `count` events have come; 0 if they do not come, or are others than successes in the order of the cookies,
 * from `first` on. */
static int events_come(DAT_EVD_HANDLE evd, DAT_COUNT count, DAT_UINT64 first, DAT_EP_HANDLE ep)
{
	DAT_EVENT events[COUNT];
	const DAT_DTO_COMPLETION_EVENT_DATA *data;
	DAT_COUNT come = 0, some, nth, looks;

	for (looks = 0; come < count && looks < LIMIT / 1000; looks++) {
		some = -1;
		if (dat_dapldat_evd_dequeue(evd, count - come, events + come, &some) != DAT_SUCCESS) {
			if (some != 0)
				return 0;
			usleep(1000);
		} else if (some < 1 || some > count - come) {
			return 0;
		}
		come += some;
	}
	for (nth = 0; nth < come; nth++) {
		data = &events[nth].event_data.dto_completion_event_data;
		if (events[nth].event_number != DAT_DTO_COMPLETION_EVENT || events[nth].evd_handle != evd || data->ep_handle != ep ||
		    data->status != DAT_DTO_SUCCESS || data->user_cookie.as_64 != first + nth || data->transfered_length != SIZE)
			return 0;
	}
	return come == count;
}

/* Nothing comes for a while. */
static int nothing_comes(DAT_EVD_HANDLE evd)
{
	DAT_EVENT event;
	DAT_COUNT more, some = -1;
	DAT_RETURN got;

	if (DAT_GET_TYPE(dat_evd_wait(evd, SHORT, 1, &event, &more)) != DAT_TIMEOUT_EXPIRED)
		return 0;
	got = dat_dapldat_evd_dequeue(evd, 1, &event, &some);
	return DAT_GET_TYPE(got) == DAT_QUEUE_EMPTY && some == 0 && got == dat_evd_dequeue(evd, &event);
}

static void fill(struct side *side, size_t at, int base)
{
	size_t nth;

	for (nth = 0; nth < COUNT * SIZE; nth++)
		side->memory[at + nth] = (unsigned char) (base + nth / SIZE);
}

static int is_filled(struct side *side, size_t at, int count, int base)
{
	int nth;

	for (nth = 0; nth < count * SIZE; nth++)
		if (side->memory[at + nth] != (unsigned char) (base + nth / SIZE))
			return 0;
	return 1;
}

static void attribute(void)
{
	CHECK("the provider says which version of the extension it has", dat_dapldat_version(near_side.ia) == DAT_DAPLDAT_VERSION);
}

static void writes(void)
{
	DAT_DAPLDAT_RDMA list[COUNT];
	DAT_COUNT nth, posted = -1;

	fill(&near_side, 0, 1);
	for (nth = 0; nth < COUNT; nth++)
		list[nth] = rdma(nth, nth * SIZE, DAT_COMPLETION_DEFAULT_FLAG);
	EXPECT("a list of writes is posted", dat_dapldat_post_rdma_writes(a.ep, COUNT, list, &posted), DAT_SUCCESS);
	CHECK("all of it", posted == COUNT);
	CHECK("each write completes, in order", events_come(a.request, COUNT, 0, a.ep));
	CHECK("and the bytes are there", is_filled(&far_side, FAR, COUNT, 1));

	/* Flags are those of each element. */
	for (nth = 0; nth < COUNT; nth++)
		list[nth].flags = nth == COUNT - 1 ? DAT_COMPLETION_DEFAULT_FLAG : DAT_COMPLETION_SUPPRESS_FLAG;
	EXPECT("a list whose last write alone completes", dat_dapldat_post_rdma_writes(a.ep, COUNT, list, NULL), DAT_SUCCESS);
	CHECK("has one event", events_come(a.request, 1, COUNT - 1, a.ep) && nothing_comes(a.request));
	EXPECT("an empty list is posted", dat_dapldat_post_rdma_writes(a.ep, 0, NULL, &posted), DAT_SUCCESS);
	CHECK("and is none", posted == 0);
}

static void reads(void)
{
	DAT_DAPLDAT_RDMA list[COUNT];
	DAT_COUNT nth, posted = -1;

	fill(&far_side, FAR, 40);
	for (nth = 0; nth < COUNT; nth++)
		list[nth] = rdma(nth, nth * SIZE, DAT_COMPLETION_DEFAULT_FLAG);
	EXPECT("a list of reads is posted", dat_dapldat_post_rdma_reads(a.ep, COUNT, list, &posted), DAT_SUCCESS);
	CHECK("all of the reads", posted == COUNT && events_come(a.request, COUNT, 0, a.ep));
	CHECK("and what they read is there", is_filled(&near_side, 0, COUNT, 40));
}

static void messages(void)
{
	DAT_DAPLDAT_MESSAGE sends[COUNT], recvs[COUNT];
	DAT_COUNT nth, posted = -1;

	fill(&near_side, 0, 80);
	for (nth = 0; nth < COUNT; nth++) {
		sends[nth] = message(&near_side, nth, nth * SIZE);
		recvs[nth] = message(&far_side, 100 + nth, nth * SIZE);
	}
	EXPECT("a list of receives is posted", dat_dapldat_post_recvs(b.ep, COUNT, recvs, &posted), DAT_SUCCESS);
	CHECK("all of the receives", posted == COUNT);
	EXPECT("a list of sends is posted", dat_dapldat_post_sends(a.ep, COUNT, sends, &posted), DAT_SUCCESS);
	CHECK("all of the sends", posted == COUNT && events_come(a.request, COUNT, 0, a.ep));
	CHECK("each receive completes, in order", events_come(b.recv, COUNT, 100, b.ep));
	CHECK("and the messages are there", is_filled(&far_side, 0, COUNT, 80));
	recvs[0].flags = DAT_DAPLDAT_DEFER_FLAG;
	EXPECT_SUB("a receive has no doorbell to defer", dat_dapldat_post_recvs(b.ep, 1, recvs, &posted), DAT_INVALID_PARAMETER,
		   DAT_INVALID_ARG5);
}

/* The first that is refused ends the list, with the code of the single post. */
static void refusals(void)
{
	DAT_DAPLDAT_RDMA list[COUNT];
	DAT_DAPLDAT_MESSAGE sends[COUNT], recvs[COUNT];
	DAT_EVENT event;
	DAT_COUNT nth, posted = -1;

	for (nth = 0; nth < COUNT; nth++) {
		list[nth] = rdma(nth, nth * SIZE, DAT_COMPLETION_DEFAULT_FLAG);
		sends[nth] = message(&near_side, nth, nth * SIZE);
		recvs[nth] = message(&far_side, nth, nth * SIZE);
	}
	list[5].local.lmr_context ^= 0x100;
	EXPECT("a write of foreign memory is refused", dat_dapldat_post_rdma_writes(a.ep, COUNT, list, &posted),
	       DAT_GET_TYPE(dat_ep_post_rdma_write(a.ep, 1, &list[5].local, list[5].cookie, &list[5].remote,
						   DAT_COMPLETION_DEFAULT_FLAG)));
	CHECK("the writes before it are posted", posted == 5 && events_come(a.request, 5, 0, a.ep));
	CHECK("and those behind it are not", nothing_comes(a.request));
	EXPECT("so is a read", dat_dapldat_post_rdma_reads(a.ep, COUNT, list, &posted),
	       DAT_GET_TYPE(dat_ep_post_rdma_read(a.ep, 1, &list[5].local, list[5].cookie, &list[5].remote,
						  DAT_COMPLETION_DEFAULT_FLAG)));
	CHECK("the reads before it are posted", posted == 5 && events_come(a.request, 5, 0, a.ep) && nothing_comes(a.request));
	list[5] = rdma(5, 0, UINT64_C(0x40));
	EXPECT_SUB("unknown flags are refused", dat_dapldat_post_rdma_writes(a.ep, COUNT, list, &posted), DAT_INVALID_PARAMETER,
		   DAT_INVALID_ARG6);
	CHECK("behind the elements before them", posted == 5 && events_come(a.request, 5, 0, a.ep));
	list[0].flags = UINT64_C(1) << 32;
	EXPECT_SUB("so are flags beyond 32 bits", dat_dapldat_post_rdma_writes(a.ep, COUNT, list, &posted), DAT_INVALID_PARAMETER,
		   DAT_INVALID_ARG6);
	CHECK("and nothing is posted", posted == 0 && nothing_comes(a.request));

	recvs[7].local.lmr_context = near_side.context ^ 0x100;
	EXPECT("a receive into foreign memory is refused", dat_dapldat_post_recvs(b.ep, COUNT, recvs, &posted),
	       DAT_GET_TYPE(dat_ep_post_recv(b.ep, 1, &recvs[7].local, recvs[7].cookie, DAT_COMPLETION_DEFAULT_FLAG)));
	CHECK("the receives before it are posted", posted == 7);
	sends[7].flags = DAT_COMPLETION_EVD_THRESHOLD_FLAG;
	EXPECT_SUB("a send with a flag that it does not take is refused", dat_dapldat_post_sends(a.ep, COUNT, sends, &posted),
		   DAT_INVALID_PARAMETER, DAT_INVALID_ARG5);
	CHECK("the sends before it are posted",
	      posted == 7 && events_come(a.request, 7, 0, a.ep) && events_come(b.recv, 7, 0, b.ep));

	EXPECT_SUB("a negative length is refused", dat_dapldat_post_rdma_writes(a.ep, -1, list, &posted), DAT_INVALID_PARAMETER,
		   DAT_INVALID_ARG3);
	EXPECT_SUB("so is a length beyond all queues", dat_dapldat_post_sends(a.ep, DAT_DAPLDAT_MOST + 1, sends, &posted),
		   DAT_INVALID_PARAMETER, DAT_INVALID_ARG3);
	EXPECT_SUB("and no list", dat_dapldat_post_recvs(b.ep, 1, NULL, &posted), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
	CHECK("of which nothing is posted", posted == 0);
	EXPECT("a list is for an Endpoint", dat_dapldat_post_rdma_writes(a.request, 1, list + 1, &posted), DAT_INVALID_HANDLE);
	EXPECT("so is a doorbell", dat_dapldat_ring(a.request), DAT_INVALID_HANDLE);
	EXPECT("a burst is of an Event Dispatcher", dat_dapldat_evd_dequeue(a.ep, 1, &event, &posted), DAT_INVALID_HANDLE);
	EXPECT("so is a single event", dat_evd_dequeue(a.ep, &event), DAT_INVALID_HANDLE);
}

/* More than a queue holds: as many as it holds are posted. */
static void full(void)
{
	static DAT_DAPLDAT_RDMA list[DAT_DAPLDAT_MOST];
	DAT_EVENT event;
	DAT_COUNT nth, posted = -1, come;

	for (nth = 0; nth < DAT_DAPLDAT_MOST; nth++)
		list[nth] = rdma(nth, 0, DAT_COMPLETION_SUPPRESS_FLAG);
	EXPECT("a list longer than the queue is refused", dat_dapldat_post_rdma_writes(a.ep, DAT_DAPLDAT_MOST, list, &posted),
	       DAT_INSUFFICIENT_RESOURCES);
	CHECK("behind what the queue holds", posted > 0 && posted < 4096);
	/* Their slots come back with a completion behind them. */
	for (come = 0; come < LIMIT / 1000; come++) {
		list[0] = rdma(1, 0, DAT_COMPLETION_DEFAULT_FLAG);
		if (dat_dapldat_post_rdma_writes(a.ep, 1, list, &posted) == DAT_SUCCESS)
			break;
		dat_evd_dequeue(a.request, &event);
		usleep(1000);
	}
	CHECK("which completes as ever", posted == 1 && events_come(a.request, 1, 1, a.ep));
}

/* A doorbell that is left to a later post, or to an operation of its own. */
static void deferred(void)
{
	DAT_DAPLDAT_RDMA list[COUNT];
	DAT_LMR_TRIPLET here = part(&near_side, 0, SIZE);
	DAT_RMR_TRIPLET there = far_part(&far_side, FAR, SIZE);
	DAT_COUNT nth, posted;

	EXPECT("a write with its doorbell deferred is posted",
	       dat_ep_post_rdma_write(a.ep, 1, &here, cookie(0), &there, DAT_DAPLDAT_DEFER_FLAG), DAT_SUCCESS);
	CHECK("and waits", nothing_comes(a.request));
	EXPECT("a post without the flag rings for all before it",
	       dat_ep_post_rdma_write(a.ep, 1, &here, cookie(1), &there, DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
	CHECK("in order", events_come(a.request, 2, 0, a.ep));
	EXPECT("a read waits as well", dat_ep_post_rdma_read(a.ep, 1, &here, cookie(0), &there, DAT_DAPLDAT_DEFER_FLAG), DAT_SUCCESS);
	CHECK("until", nothing_comes(a.request));
	EXPECT("the doorbell is rung", dat_dapldat_ring(a.ep), DAT_SUCCESS);
	CHECK("for it", events_come(a.request, 1, 0, a.ep));
	EXPECT("a doorbell for nothing is rung", dat_dapldat_ring(a.ep), DAT_SUCCESS);

	for (nth = 0; nth < COUNT; nth++)
		list[nth] = rdma(nth, nth * SIZE, DAT_DAPLDAT_DEFER_FLAG);
	EXPECT("a list may wait", dat_dapldat_post_rdma_writes(a.ep, COUNT / 2, list, &posted), DAT_SUCCESS);
	CHECK("as a whole", posted == COUNT / 2 && nothing_comes(a.request));
	EXPECT("for another", dat_dapldat_post_rdma_writes(a.ep, COUNT / 2, list + COUNT / 2, &posted), DAT_SUCCESS);
	CHECK("and another", nothing_comes(a.request));
	EXPECT("until it is rung for", dat_dapldat_ring(a.ep), DAT_SUCCESS);
	CHECK("all of it", events_come(a.request, COUNT, 0, a.ep));
	list[3].flags = DAT_COMPLETION_DEFAULT_FLAG;
	EXPECT("one element that does not wait", dat_dapldat_post_rdma_writes(a.ep, COUNT, list, &posted), DAT_SUCCESS);
	CHECK("rings", posted == COUNT && events_come(a.request, 4, 0, a.ep));
	MUST(dat_dapldat_ring(a.ep));
	CHECK("and those behind it can", events_come(a.request, COUNT - 4, 4, a.ep));
}

/* Events of any kind, in the order of dat_evd_dequeue. */
static void bursts(void)
{
	DAT_EVD_HANDLE evd = evd_of(&near_side, DAT_EVD_SOFTWARE_FLAG, 16);
	DAT_EVENT event, events[8];
	DAT_COUNT nth, some = -1;
	int good = 1;

	memset(&event, 0, sizeof event);
	event.event_number = DAT_SOFTWARE_EVENT;
	for (nth = 0; nth < 8; nth++) {
		event.event_data.software_event_data.pointer = events + nth;
		MUST(dat_evd_post_se(evd, &event));
	}
	EXPECT("a burst takes other events than completions", dat_dapldat_evd_dequeue(evd, 5, events, &some), DAT_SUCCESS);
	CHECK("no more than asked for", some == 5);
	EXPECT("the next takes what is left", dat_dapldat_evd_dequeue(evd, 8, events + 5, &some), DAT_SUCCESS);
	CHECK("and ends there", some == 3);
	for (nth = 0; nth < 8; nth++)
		good = good && events[nth].event_number == DAT_SOFTWARE_EVENT && events[nth].evd_handle == evd &&
		       events[nth].event_data.software_event_data.pointer == events + nth;
	CHECK("each as dat_evd_dequeue has it", good);
	EXPECT_SUB("a burst of none is refused", dat_dapldat_evd_dequeue(evd, 0, events, &some), DAT_INVALID_PARAMETER,
		   DAT_INVALID_ARG3);
	EXPECT_SUB("so is one without end", dat_dapldat_evd_dequeue(evd, DAT_DAPLDAT_MOST + 1, events, &some), DAT_INVALID_PARAMETER,
		   DAT_INVALID_ARG3);
	EXPECT_SUB("and one to nowhere", dat_dapldat_evd_dequeue(evd, 1, NULL, &some), DAT_INVALID_PARAMETER, DAT_INVALID_ARG4);
	MUST(dat_evd_free(evd));
}

static void unknown(void)
{
	static const int others[] = {0x5a000000, 0x5a000001, 0x5a020001, 0x5a010006, 0x5a010fff, 0x5b010001, 0x7fffffff & ~0x3000};
	DAT_DAPLDAT_RDMA one = rdma(0, 0, DAT_COMPLETION_DEFAULT_FLAG);
	DAT_COUNT posted = -1;
	size_t nth;

	for (nth = 0; nth < sizeof others / sizeof *others; nth++)
		EXPECT("an operation of another number or version is not there",
		       dat_extension_op(a.ep, others[nth], 1, &one, &posted), DAT_NOT_IMPLEMENTED);
	CHECK("and does nothing", posted == -1 && nothing_comes(a.request));
}

/* After the end of the connection posts come back flushed, those of a list too. */
static void flushed(void)
{
	DAT_DAPLDAT_RDMA list[4];
	DAT_EVENT event;
	DAT_COUNT nth, posted = -1;
	int good = 1;

	for (nth = 0; nth < 4; nth++)
		list[nth] = rdma(nth, 0, DAT_COMPLETION_DEFAULT_FLAG);
	list[3].flags = 0x40;
	EXPECT("a list is refused in its midst on an Endpoint that has ended", dat_dapldat_post_rdma_writes(a.ep, 4, list, &posted),
	       DAT_INVALID_PARAMETER);
	for (nth = 0; nth < 3; nth++)
		good = good && next(a.request, &event, LIMIT) == DAT_DTO_COMPLETION_EVENT &&
		       event.event_data.dto_completion_event_data.status == DAT_DTO_ERR_FLUSHED &&
		       event.event_data.dto_completion_event_data.user_cookie.as_64 == (DAT_UINT64) nth;
	CHECK("and those before it come back flushed", posted == 3 && good);
}

int main(int argc, char **argv)
{
#ifdef ALONE
	if (!begin_alone(argc, argv))
		return 2;
#else
	if (argc != 3) {
		fprintf(stderr, "usage: %s SERVER_IA CLIENT_IA\n", argv[0]);
		return 2;
	}
#endif
	side_open(&far_side, argv[1]);
	side_open(&near_side, argv[2]);
	end_open(&a, &near_side);
	end_open(&b, &far_side);
	if (!link_up(&a, &b))
		return 2;
	attribute();
	writes();
	reads();
	messages();
	refusals();
	deferred();
	full();
	bursts();
	unknown();
	CHECK("the connection ends", link_down(&a, &b));
	flushed();
	end_close(&a);
	end_close(&b);
	side_close(&near_side);
	side_close(&far_side);
	return failures != 0;
}
