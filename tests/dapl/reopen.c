/*
 * What is left of an Interface Adapter that is closed, when the registry has unloaded the provider and loads it again.
 *
 *     reopen IA OPENS
 *
 * Opens and closes a name of dat.conf so many times, and counts after the first tenth and after the last what the process holds:
 * bytes of its heap, mappings and open files. The last line tells what came to it in between; more than a page for all of the opens
 * together, or one mapping or file, is a failure.
 */
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include <dat2/udat.h>

enum { RESTING = 2000 };

struct held {
	long bytes, mappings, files;
};

static struct held held(void)
{
	struct mallinfo2 heap = mallinfo2();
	struct held it = {(long) (heap.uordblks + heap.hblkhd), 0, 0};
	FILE *maps = fopen("/proc/self/maps", "r");
	DIR *files;
	int letter;

	while (maps && (letter = getc(maps)) != EOF)
		it.mappings += letter == '\n';
	if (maps)
		fclose(maps);
	files = opendir("/proc/self/fd");
	while (files && readdir(files))
		it.files++;
	if (files)
		closedir(files);
	return it;
}

int main(int argc, char **argv)
{
	struct held first = {0, 0, 0}, last;
	long opens, open, made;

	if (argc != 3 || (opens = strtol(argv[2], NULL, 10)) < 20) {
		fprintf(stderr, "usage: %s IA OPENS, 20 at least\n", argv[0]);
		return 2;
	}
	for (open = 1; open <= opens; open++) {
		DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
		DAT_IA_HANDLE ia;
		DAT_PZ_HANDLE pz;
		DAT_RETURN got = dat_ia_open(argv[1], 8, &async, &ia);

		/* A place of an object that was freed rests until many others were: the first time, so many are. */
		for (made = 0; got == DAT_SUCCESS && open == 1 && made < RESTING; made++) {
			got = dat_pz_create(ia, &pz);
			if (got == DAT_SUCCESS)
				got = dat_pz_free(pz);
		}
		if (got == DAT_SUCCESS)
			got = dat_pz_create(ia, &pz);
		if (got == DAT_SUCCESS)
			got = dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG);
		if (got != DAT_SUCCESS) {
			fprintf(stderr, "open %ld: %#x\n", open, (unsigned) got);
			return 2;
		}
		if (open == opens / 10)
			first = held();
	}
	last = held();
	printf("%ld opens: %ld bytes, %ld mappings, %ld files more\n", opens - opens / 10, last.bytes - first.bytes,
	       last.mappings - first.mappings, last.files - first.files);
	return last.bytes - first.bytes > 4096 || last.mappings > first.mappings || last.files > first.files;
}
