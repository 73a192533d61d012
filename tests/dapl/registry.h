/* A registry in the program itself: what the provider's library takes from libdat2. The program is built with -rdynamic. */
#ifndef REGISTRY_H
#define REGISTRY_H

#include <dlfcn.h>
#include <string.h>

#include <dat2/udat.h>
#include <dat2/dat_registry.h>

static struct { const DAT_PROVIDER *table; DAT_PROVIDER_INFO info; } registered[8];
static int removed;

DAT_RETURN dat_registry_add_provider(const DAT_PROVIDER *table, const DAT_PROVIDER_INFO *info)
{
	for (int at = 0; at < 8; at++) {
		if (registered[at].table == NULL) {
			registered[at].table = table;
			registered[at].info = *info;
			return DAT_SUCCESS;
		}
	}
	return DAT_INSUFFICIENT_RESOURCES;
}

static int is_of(int at, const DAT_PROVIDER_INFO *info)
{
	return registered[at].table != NULL && memcmp(&registered[at].info, info, sizeof *info) == 0;
}

DAT_RETURN dat_registry_remove_provider(const DAT_PROVIDER *table, const DAT_PROVIDER_INFO *info)
{
	removed++;
	for (int at = 0; at < 8; at++) {
		if (is_of(at, info) && registered[at].table == table) {
			registered[at].table = NULL;
			return DAT_SUCCESS;
		}
	}
	return DAT_PROVIDER_NOT_FOUND;
}

/* Handles of adapters are the provider's own here. */
DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE ia, DAT_IA_HANDLE *real)
{
	*real = ia;
	return DAT_SUCCESS;
}

static const DAT_PROVIDER *find(const DAT_PROVIDER_INFO *info)
{
	for (int at = 0; at < 8; at++)
		if (is_of(at, info))
			return registered[at].table;
	return NULL;
}

static DAT_PROVIDER_INFO info_of(const char *name, unsigned major, unsigned minor)
{
	DAT_PROVIDER_INFO info;

	memset(&info, 0, sizeof info);
	strcpy(info.ia_name, name);
	info.dapl_version_major = major;
	info.dapl_version_minor = minor;
	info.is_thread_safe = DAT_THREADSAFE;
	return info;
}

static void (*begin)(const DAT_PROVIDER_INFO *, const char *);
static void (*end)(const DAT_PROVIDER_INFO *);

/* Loads the library; 0 if it cannot be. */
static int load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);

	if (library == NULL)
		return 0;
	*(void **) &begin = dlsym(library, "dat_provider_init");
	*(void **) &end = dlsym(library, "dat_provider_fini");
	return begin != NULL && end != NULL;
}

/* Takes all lines back. */
static void unregister(void)
{
	DAT_PROVIDER_INFO info;

	for (int at = 0; at < 8; at++) {
		if (registered[at].table != NULL) {
			info = registered[at].info;
			end(&info);
		}
	}
}

#endif
