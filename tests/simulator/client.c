/* SPDX-License-Identifier: Apache-2.0 */
/* A client of a simulated cluster: an ordinary program on libdfsclient.
 *
 *   sim_client work FIRST THREADS SEED    threads that change files until they are told to end
 *   sim_client check                      is all as the ledger says? waits for what takes time
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/simulator/client.h"

#define READ (16u << 10)

struct ledger *ledger;
struct dfs *fs;

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void pause_ms(uint64_t ms)
{
	const struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};

	nanosleep(&t, NULL);
}

void wrong(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (!ledger->wrong[0])
		vsnprintf(ledger->wrong, sizeof(ledger->wrong), fmt, ap);
	va_end(ap);
	ledger->stop = true;
}

void name_of(uint32_t number, char path[32])
{
	snprintf(path, 32, "/f/%u", number);
}

/* ---- reading ---- */

uint64_t least(const struct file *f)
{
	return f->crashes == ledger->crashes ? f->flushed : f->synced;
}

uint64_t good_bytes(const struct file *f, const uint8_t *buf, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (buf[i] != file_byte(f, i))
			return i;
	return n;
}

int read_all(const char *path, uint8_t *buf, size_t size, size_t *got, struct dfs_err *err)
{
	struct dfs_file *open;
	size_t step = READ;
	ssize_t n;
	int rc = dfs_open(fs, path, &open, err);

	*got = 0;
	if (rc)
		return rc;
	for (;;) {
		n = dfs_read(open, buf + *got, size - *got < step ? size - *got : step, err);
		if (n == 0 || (n < 0 && step == 1))
			break;
		step = n < 0 ? 1 : step;
		*got += n > 0 ? (size_t)n : 0;
	}
	(void)dfs_close(open, NULL);
	return (int)n;
}

/* ---- main ---- */

static struct ledger *open_ledger(void)
{
	const int fd = open(getenv(LEDGER_ENV), O_RDWR | O_CLOEXEC);
	void *at = fd < 0 ? MAP_FAILED
			  : mmap(NULL, sizeof(struct ledger), PROT_READ | PROT_WRITE, MAP_SHARED,
				 fd, 0);

	if (at == MAP_FAILED) {
		perror("sim_client: the ledger");
		exit(1);
	}
	return (struct ledger *)at;
}

static void connect_fs(void)
{
	struct dfs_ec_policy policy;
	struct dfs_err err;

	while (dfs_connect(NULL, &fs, &err)) {
		fprintf(stderr, "sim_client: %s\n", err.text);
		if (ledger->stop)
			exit(0);
		pause_ms(1000);
	}
	(void)dfs_add_ec_policy(fs, "rs", 3, 2, 4096, &policy, &err); /* else somebody was first */
	while (dfs_enable_ec_policy(fs, STRIPED, &err) || dfs_mkdir(fs, "/f", 0777, true, &err)) {
		if (ledger->stop)
			exit(0);
		pause_ms(1000);
	}
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	ledger = open_ledger();
	connect_fs();
	if (!strcmp(argv[1], "check"))
		check_all();
	else
		work_all((uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]),
			 strtoull(argv[4], NULL, 0));
	dfs_disconnect(fs);
	return ledger->wrong[0] != 0;
}
