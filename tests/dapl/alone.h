/* The calls of DAT that a program makes, by a registry of its own: where there are headers, and no libdat2. */
#ifndef ALONE_H
#define ALONE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "registry.h"

#define dat_cr_accept DAT_CR_ACCEPT
#define dat_ep_connect DAT_EP_CONNECT
#define dat_ep_create DAT_EP_CREATE
#define dat_ep_disconnect DAT_EP_DISCONNECT
#define dat_ep_free DAT_EP_FREE
#define dat_ep_post_rdma_read DAT_EP_POST_RDMA_READ
#define dat_ep_post_rdma_write DAT_EP_POST_RDMA_WRITE
#define dat_ep_post_recv DAT_EP_POST_RECV
#define dat_evd_create DAT_EVD_CREATE
#define dat_ep_query DAT_EP_QUERY
#define dat_evd_dequeue DAT_EVD_DEQUEUE
#define dat_evd_free DAT_EVD_FREE
#define dat_evd_post_se DAT_EVD_POST_SE
#define dat_evd_query DAT_EVD_QUERY
#define dat_evd_resize DAT_EVD_RESIZE
#define dat_evd_wait DAT_EVD_WAIT
#define dat_ia_query DAT_IA_QUERY
#define dat_lmr_create DAT_LMR_CREATE
#define dat_lmr_free DAT_LMR_FREE
#define dat_psp_create DAT_PSP_CREATE
#define dat_psp_free DAT_PSP_FREE
#define dat_pz_create DAT_PZ_CREATE
#define dat_pz_free DAT_PZ_FREE

DAT_RETURN dat_ia_openv(const DAT_NAME_PTR name, DAT_COUNT length, DAT_EVD_HANDLE *async, DAT_IA_HANDLE *ia, DAT_UINT32 major,
			DAT_UINT32 minor, DAT_BOOLEAN safe)
{
	DAT_PROVIDER_INFO info = info_of(name, major, minor);
	const DAT_PROVIDER *table = find(&info);

	return safe != DAT_THREADSAFE || table == NULL ? DAT_PROVIDER_NOT_FOUND : table->ia_open_func(name, length, async, ia);
}

DAT_RETURN dat_ia_close(DAT_IA_HANDLE ia, DAT_CLOSE_FLAGS how)
{
	return DAT_HANDLE_TO_PROVIDER(ia)->ia_close_func(ia, how);
}

DAT_RETURN dat_strerror(DAT_RETURN code, const char **major, const char **minor)
{
	(void) code, (void) major, (void) minor;
	return DAT_NOT_IMPLEMENTED;
}

DAT_RETURN dat_extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP op, ...)
{
	DAT_RETURN got;
	va_list list;

	va_start(list, op);
	got = DAT_HANDLE_TO_PROVIDER(handle)->handle_extendedop_func(handle, op, list);
	va_end(list);
	return got;
}

/* Registers two adapters, and has the words name them as a program with a registry is told of them. */
static int begin_alone(int count, char **words)
{
	DAT_PROVIDER_INFO info;
	int nth;

	if (count != 4 || !load(words[1])) {
		printf("FAIL %s\n", count == 4 ? dlerror() : "LIBRARY PARAMETERS PARAMETERS");
		return 0;
	}
	for (nth = 1; nth < 3; nth++) {
		words[nth] = nth == 1 ? "hca0" : "hca1";
		info = info_of(words[nth], 2, 0);
		begin(&info, words[nth + 1]);
	}
	return atexit(unregister) == 0;
}

#endif
