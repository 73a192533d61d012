/*
 * A library to be loaded first, for machines on which the limit of locked memory cannot be raised:
 * Intel MPI reads the limit and refuses a low one, whatever the device. A device behind a socket
 * locks nothing.
 */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int getrlimit(__rlimit_resource_t what, struct rlimit *to)
{
	if (what == RLIMIT_MEMLOCK) {
		to->rlim_cur = to->rlim_max = RLIM_INFINITY;
		return 0;
	}
	return (int) syscall(SYS_prlimit64, 0, what, NULL, to);
}
