/*
 * dat_dapldat.h: an extension of uDAPL 2.0 by the provider libdapldat: lists of posts, bursts of events, and posts whose doorbell
 * waits for a later one.
 *
 *     #include <dat2/udat.h>
 *     #include <dat2/dat_dapldat.h>
 *
 * Ask dat_dapldat_version() first: another provider has none of this and returns DAT_NOT_IMPLEMENTED, or something else, for these
 * operations. A provider of another version returns DAT_NOT_IMPLEMENTED for operations that it does not have.
 */
#ifndef DAT_DAPLDAT_H
#define DAT_DAPLDAT_H

#include <stdlib.h>
#include <string.h>

#include <dat2/udat.h>

#ifndef DAT_EXTENSIONS
#error "the headers of DAT are without DAT_EXTENSIONS"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The provider-specific attribute that says that this is there, and what its value is then, as text. */
#define DAT_DAPLDAT_ATTR	"DAT_DAPLDAT"
#define DAT_DAPLDAT_VERSION	1

/*
 * A completion flag of requests: the doorbell is left to a later request of the Endpoint without this flag, or to
 * dat_dapldat_ring(). Until then the device need not know of the request. Every post of requests takes it, and dat_rmr_bind().
 */
#define DAT_DAPLDAT_DEFER_FLAG	((DAT_COMPLETION_FLAGS) 0x100)

/*
 * A privilege of dat_lmr_create() that grants nothing: the bytes of a transfer may reach or leave the memory in any order. Only a
 * completion says that all of them are there; to poll the last byte is no longer enough. No effect on adapters without it.
 */
#define DAT_DAPLDAT_MEM_RELAXED_ORDERING	((DAT_MEM_PRIV_FLAGS) 0x80)

/* Most elements of a list or burst. */
#define DAT_DAPLDAT_MOST	65536

/* Operations of dat_extension_op(). The registry takes the bits 0x1000 and 0x2000 for itself. */
#define DAT_DAPLDAT_OP(n)	((DAT_EXTENDED_OP) (0x5a000000 | DAT_DAPLDAT_VERSION << 16 | (n)))
#define DAT_DAPLDAT_RING_OP	DAT_DAPLDAT_OP(0)
#define DAT_DAPLDAT_WRITES_OP	DAT_DAPLDAT_OP(1)
#define DAT_DAPLDAT_READS_OP	DAT_DAPLDAT_OP(2)
#define DAT_DAPLDAT_SENDS_OP	DAT_DAPLDAT_OP(3)
#define DAT_DAPLDAT_RECVS_OP	DAT_DAPLDAT_OP(4)
#define DAT_DAPLDAT_DEQUEUE_OP	DAT_DAPLDAT_OP(5)

/* An RDMA write or read of a list. More than one segment takes a post of its own, with DAT_DAPLDAT_DEFER_FLAG. */
typedef struct dat_dapldat_rdma {
	DAT_DTO_COOKIE cookie;
	DAT_LMR_TRIPLET local;
	DAT_RMR_TRIPLET remote;
	DAT_UINT64 flags; /* DAT_COMPLETION_FLAGS */
} DAT_DAPLDAT_RDMA;

/* A send or receive of a list. */
typedef struct dat_dapldat_message {
	DAT_DTO_COOKIE cookie;
	DAT_LMR_TRIPLET local;
	DAT_UINT64 flags; /* DAT_COMPLETION_FLAGS */
} DAT_DAPLDAT_MESSAGE;

/*
 * Posts a list in its order, under one doorbell, as a loop of dat_ep_post_rdma_write() and so on would: each element is checked as
 * a single post is. The first that is refused ends the list, and its code is returned: those before it are posted, and it and those
 * behind it are not. *posted is how many are. If DAT_DAPLDAT_DEFER_FLAG is among the flags of each element, the doorbell waits;
 * receives do not take that flag.
 *
 * DAT_INVALID_PARAMETER	count is negative or above DAT_DAPLDAT_MOST, or list is no address of such elements
 * DAT_INVALID_HANDLE		ep is no Endpoint
 * Others			those of the single post
 */
static inline DAT_RETURN dat_dapldat_post_rdma_writes(DAT_EP_HANDLE ep, DAT_COUNT count, const DAT_DAPLDAT_RDMA *list,
						      DAT_COUNT *posted)
{
	return dat_extension_op(ep, DAT_DAPLDAT_WRITES_OP, count, list, posted);
}

static inline DAT_RETURN dat_dapldat_post_rdma_reads(DAT_EP_HANDLE ep, DAT_COUNT count, const DAT_DAPLDAT_RDMA *list,
						     DAT_COUNT *posted)
{
	return dat_extension_op(ep, DAT_DAPLDAT_READS_OP, count, list, posted);
}

static inline DAT_RETURN dat_dapldat_post_sends(DAT_EP_HANDLE ep, DAT_COUNT count, const DAT_DAPLDAT_MESSAGE *list,
						DAT_COUNT *posted)
{
	return dat_extension_op(ep, DAT_DAPLDAT_SENDS_OP, count, list, posted);
}

static inline DAT_RETURN dat_dapldat_post_recvs(DAT_EP_HANDLE ep, DAT_COUNT count, const DAT_DAPLDAT_MESSAGE *list,
						DAT_COUNT *posted)
{
	return dat_extension_op(ep, DAT_DAPLDAT_RECVS_OP, count, list, posted);
}

/* Rings the doorbell for the requests of the Endpoint that wait for it. Without any it does nothing. */
static inline DAT_RETURN dat_dapldat_ring(DAT_EP_HANDLE ep)
{
	return dat_extension_op(ep, DAT_DAPLDAT_RING_OP);
}

/*
 * Dequeues up to `most` events into `events`, in the order of dat_evd_dequeue(), and stores how many in *dequeued. Of a plain
 * completion the beginning of the event is stored, up to its data, as dat_evd_dequeue() does.
 *
 * DAT_QUEUE_EMPTY		there is none, with the class that dat_evd_dequeue() returns
 * DAT_INVALID_PARAMETER	most is not 1 to DAT_DAPLDAT_MOST, or events is null
 * Others			those of dat_evd_dequeue(), if it had no event before
 */
static inline DAT_RETURN dat_dapldat_evd_dequeue(DAT_EVD_HANDLE evd, DAT_COUNT most, DAT_EVENT *events, DAT_COUNT *dequeued)
{
	return dat_extension_op(evd, DAT_DAPLDAT_DEQUEUE_OP, most, events, dequeued);
}

/* Returns the version of this extension that the provider of an Interface Adapter has, or 0. */
static inline int dat_dapldat_version(DAT_IA_HANDLE ia)
{
	DAT_PROVIDER_ATTR attr;
	int nth;

	memset(&attr, 0, sizeof attr);
	if (dat_ia_query(ia, NULL, 0, NULL, DAT_PROVIDER_FIELD_ALL, &attr) != DAT_SUCCESS)
		return 0;
	for (nth = 0; nth < attr.num_provider_specific_attr; nth++)
		if (strcmp(attr.provider_specific_attr[nth].name, DAT_DAPLDAT_ATTR) == 0)
			return atoi(attr.provider_specific_attr[nth].value);
	return 0;
}

#ifdef __cplusplus
}
#endif

#endif
