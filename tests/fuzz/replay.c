/* SPDX-License-Identifier: Apache-2.0 */
/* replay [--whole] DIR...: run every file below the folders once, which is what libFuzzer does with
 * -runs=0, and without --whole every beginning of small ones as well. */
#define _XOPEN_SOURCE 700
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>

#include "tests/fuzz/fuzz.h"

#define INPUT_MAX (4u << 20)

static size_t count;
static bool whole;

static int run(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	FILE *f;
	uint8_t *buf;
	size_t n;

	(void)ftw;
	if (type != FTW_F || st->st_size > (off_t)INPUT_MAX)
		return 0;
	f = fopen(path, "re");
	/* Exactly as long as the input: a read past its end is seen by the sanitizer. */
	buf = malloc(st->st_size ? (size_t)st->st_size : 1);
	if (!f || !buf) {
		perror(path);
		exit(1);
	}
	n = fread(buf, 1, (size_t)st->st_size, f);
	fclose(f);
	LLVMFuzzerTestOneInput(buf, n);
	for (size_t cut = 0; !whole && n <= 256 && cut < n; cut++)
		LLVMFuzzerTestOneInput(buf, cut);
	free(buf);
	count++;
	return 0;
}

int main(int argc, char **argv)
{
	whole = argc > 1 && !strcmp(argv[1], "--whole");
	for (int i = 1 + whole; i < argc; i++)
		if (nftw(argv[i], run, 16, FTW_PHYS) < 0)
			perror(argv[i]);
	printf("%zu inputs\n", count);
	return count ? 0 : 1;
}
