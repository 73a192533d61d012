/*
 * Has a program ask for a provider that is safe for threads, whatever it asks for: the programs of others ask for one that is not,
 * and the registry takes no line of `dat.conf` that says otherwise.
 *
 *     LD_PRELOAD=threadsafe.so dapltest ...
 */
#define _GNU_SOURCE

#include <dat2/udat.h>
#include <dlfcn.h>

typedef DAT_RETURN (*open_call)(const DAT_NAME_PTR, DAT_COUNT, DAT_EVD_HANDLE *, DAT_IA_HANDLE *, DAT_UINT32, DAT_UINT32, DAT_BOOLEAN);

DAT_RETURN dat_ia_openv(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *async, DAT_IA_HANDLE *ia, DAT_UINT32 major,
			DAT_UINT32 minor, DAT_BOOLEAN safe)
{
	open_call real = (open_call) dlsym(RTLD_NEXT, "dat_ia_openv");

	(void) safe;
	return real ? real(name, qlen, async, ia, major, minor, DAT_TRUE) : (DAT_RETURN) (DAT_CLASS_ERROR | DAT_INTERNAL_ERROR);
}
