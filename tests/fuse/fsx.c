/* SPDX-License-Identifier: Apache-2.0 */
/* fsx - random operations on one file beside a model of it in memory
 *
 * usage: fsx FILE SEED OPERATIONS [LENGTH_MAX]
 *
 * Each read, by read(2) or through a mapping, and each length is compared with the model. A second
 * descriptor comes and goes, which can only read, only write or only append: a file system may take
 * other ways for such. At the first difference the last operations are printed and the exit status
 * is 1. The same seed makes the same operations. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LENGTH_MAX_DEFAULT (256u << 10)
#define PIECE_MAX (64u << 10) /* of one operation */
#define HISTORY 60

struct file {
	const char *name;
	int fd;
	int other, other_flags; /* a second descriptor; -1: none */
	uint8_t *model;         /* limit bytes; zeros behind length */
	uint8_t *buf;           /* limit bytes */
	size_t length, limit;
	uint64_t random;
	uint64_t step;
	char history[HISTORY][96];
};

static uint64_t next_random(struct file *f)
{
	f->random ^= f->random << 13;
	f->random ^= f->random >> 7;
	f->random ^= f->random << 17;
	return f->random * 0x2545f4914f6cdd1dull >> 16;
}

static size_t below(struct file *f, size_t n)
{
	return n ? (size_t)(next_random(f) % n) : 0;
}

__attribute__((format(printf, 2, 3))) static void note(struct file *f, const char *fmt, ...)
{
	char *line = f->history[f->step % HISTORY];
	va_list ap;
	int n = snprintf(line, sizeof(f->history[0]), "%" PRIu64 ": ", f->step);

	va_start(ap, fmt);
	(void)vsnprintf(line + n, sizeof(f->history[0]) - (size_t)n, fmt, ap);
	va_end(ap);
}

__attribute__((noreturn, format(printf, 2, 3))) static void wrong(const struct file *f,
								  const char *fmt, ...)
{
	va_list ap;

	for (uint64_t i = f->step < HISTORY ? 0 : f->step - HISTORY + 1; i <= f->step; i++)
		printf("  %s\n", f->history[i % HISTORY]);
	va_start(ap, fmt);
	(void)vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	exit(1);
}

static void must(const struct file *f, bool ok, const char *what)
{
	if (!ok)
		wrong(f, "%s: %s", what, strerror(errno));
}

static void compare(const struct file *f, const uint8_t *got, size_t at, size_t len,
		    const char *what)
{
	for (size_t i = 0; i < len; i++)
		if (got[i] != f->model[at + i])
			wrong(f, "%s: byte %zu is %02x instead of %02x (of %zu at %zu; length %zu)",
			      what, at + i, got[i], f->model[at + i], len, at, f->length);
}

static void fill(struct file *f, uint8_t *to, size_t len)
{
	const uint64_t seed = next_random(f);

	for (size_t i = 0; i < len; i++)
		to[i] = (uint8_t)((seed >> i % 7 * 8) + i);
}

/* A place for an operation, and how long it is, within @max. */
static size_t place(struct file *f, size_t max, size_t *ret_len)
{
	const size_t at = below(f, max);
	const size_t most = max - at < PIECE_MAX ? max - at : PIECE_MAX;

	*ret_len = 1 + below(f, most);
	if (*ret_len > most)
		*ret_len = most;
	if (next_random(f) % 4 == 0) /* whole pages, now and then */
		return at & ~(size_t)4095;
	return at;
}

static void grow_model(struct file *f, size_t end)
{
	if (end > f->length)
		f->length = end;
}

static void do_write(struct file *f, bool at_end)
{
	size_t len, at = place(f, f->limit, &len);
	int fd = f->fd;

	if (at_end) {
		at = f->length;
		if (at == f->limit)
			return;
		len = len < f->limit - at ? len : f->limit - at;
	}
	if (f->other >= 0 && f->other_flags == O_WRONLY && next_random(f) % 2)
		fd = f->other;
	note(f, "write %zu at %zu%s (length %zu)", len, at, fd == f->other ? " by the other" : "",
	     f->length);
	fill(f, f->model + at, len);
	must(f, pwrite(fd, f->model + at, len, (off_t)at) == (ssize_t)len, "write");
	grow_model(f, at + len);
}

static void do_append(struct file *f)
{
	size_t len, at = f->length;

	(void)place(f, f->limit, &len);
	len = len < f->limit - at ? len : f->limit - at;
	if (f->other < 0 || !(f->other_flags & O_APPEND) || len == 0) {
		do_write(f, true);
		return;
	}
	note(f, "append %zu (length %zu)", len, at);
	fill(f, f->model + at, len);
	must(f, write(f->other, f->model + at, len) == (ssize_t)len, "append");
	grow_model(f, at + len);
}

static void do_read(struct file *f)
{
	size_t len, at = place(f, f->limit, &len);
	const size_t want = at >= f->length ? 0 : len < f->length - at ? len : f->length - at;
	const bool by_other = f->other >= 0 && f->other_flags == O_RDONLY && next_random(f) % 2;
	ssize_t n;

	note(f, "read %zu at %zu%s (length %zu)", len, at, by_other ? " by the other" : "",
	     f->length);
	n = pread(by_other ? f->other : f->fd, f->buf, len, (off_t)at);
	must(f, n >= 0, "read");
	if ((size_t)n != want)
		wrong(f, "read gives %zd bytes instead of %zu", n, want);
	compare(f, f->buf, at, want, "read");
}

static void do_truncate(struct file *f, bool up)
{
	const size_t to =
		up ? f->length + below(f, f->limit - f->length + 1) : below(f, f->length + 1);

	note(f, "truncate %zu to %zu", f->length, to);
	must(f,
	     ftruncate(f->other >= 0 && f->other_flags == O_WRONLY ? f->other : f->fd, (off_t)to) ==
		     0,
	     "truncate");
	if (to < f->length)
		memset(f->model + to, 0, f->length - to);
	f->length = to;
}

static void do_fallocate(struct file *f)
{
	static const struct {
		int mode;
		const char *name;
	} kinds[] = {
		{0, "allocate"},
		{FALLOC_FL_KEEP_SIZE, "allocate, keep size"},
		{FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, "punch"},
		{FALLOC_FL_ZERO_RANGE, "zero"},
		{FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, "zero, keep size"},
	};
	const size_t k = below(f, sizeof(kinds) / sizeof(kinds[0]));
	size_t len, at = place(f, f->limit, &len), end;

	note(f, "%s %zu at %zu (length %zu)", kinds[k].name, len, at, f->length);
	if (fallocate(f->fd, kinds[k].mode, (off_t)at, (off_t)len) < 0) {
		/* a model of a file system that is compared with */
		must(f, errno == EOPNOTSUPP, kinds[k].name);
		return;
	}
	end = at + len;
	if (kinds[k].mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) && at < f->limit)
		memset(f->model + at, 0, (end < f->limit ? end : f->limit) - at);
	if (!(kinds[k].mode & FALLOC_FL_KEEP_SIZE))
		grow_model(f, end);
}

static void do_map(struct file *f, bool store)
{
	size_t len, at, skip;
	uint8_t *p;

	if (f->length == 0)
		return;
	at = place(f, f->length, &len);
	if (len > f->length - at)
		len = f->length - at;
	skip = at & 4095;
	note(f, "map %zu at %zu, %s (length %zu)", len, at, store ? "write" : "read", f->length);
	p = mmap(NULL, len + skip, store ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, f->fd,
		 (off_t)(at - skip));
	must(f, p != MAP_FAILED, "mmap");
	if (store) {
		fill(f, f->model + at, len);
		memcpy(p + skip, f->model + at, len);
		if (next_random(f) % 2)
			must(f, msync(p, len + skip, MS_SYNC) == 0, "msync");
	} else {
		compare(f, p + skip, at, len, "mapping");
	}
	must(f, munmap(p, len + skip) == 0, "munmap");
}

static void check_length(struct file *f)
{
	struct stat a, b;

	must(f, fstat(f->fd, &a) == 0 && stat(f->name, &b) == 0, "stat");
	if ((size_t)a.st_size != f->length || (size_t)b.st_size != f->length)
		wrong(f, "fstat says %lld bytes, stat %lld, there are %zu", (long long)a.st_size,
		      (long long)b.st_size, f->length);
}

static void check_all(struct file *f)
{
	const ssize_t n = pread(f->fd, f->buf, f->limit, 0);

	must(f, n >= 0, "read of all");
	if ((size_t)n != f->length)
		wrong(f, "all of it is %zd bytes instead of %zu", n, f->length);
	compare(f, f->buf, 0, f->length, "all of it");
}

static void do_reopen(struct file *f)
{
	note(f, "close and open (length %zu)", f->length);
	must(f, close(f->fd) == 0, "close");
	f->fd = open(f->name, O_RDWR | O_CLOEXEC);
	must(f, f->fd >= 0, "open");
	check_length(f);
	check_all(f);
}

static void do_sync(struct file *f)
{
	note(f, "fsync (length %zu)", f->length);
	must(f, fsync(f->other >= 0 && f->other_flags != O_RDONLY ? f->other : f->fd) == 0,
	     "fsync");
}

/* The second descriptor comes, or goes. */
static void do_other(struct file *f)
{
	static const struct {
		int flags;
		const char *name;
	} kinds[] = {{O_RDONLY, "read"}, {O_WRONLY, "write"}, {O_WRONLY | O_APPEND, "append"}};
	const size_t k = below(f, 3);

	if (f->other >= 0) {
		note(f, "the other is closed (length %zu)", f->length);
		must(f, close(f->other) == 0, "close");
		f->other = -1;
		return;
	}
	note(f, "another to %s (length %zu)", kinds[k].name, f->length);
	f->other = open(f->name, kinds[k].flags | O_CLOEXEC);
	f->other_flags = kinds[k].flags;
	must(f, f->other >= 0, "open");
}

static void do_step(struct file *f)
{
	const size_t dice = below(f, 103);

	if (dice < 26)
		do_write(f, false);
	else if (dice < 34)
		do_append(f);
	else if (dice < 62)
		do_read(f);
	else if (dice < 68)
		do_truncate(f, dice % 2);
	else if (dice < 74)
		do_fallocate(f);
	else if (dice < 82)
		do_map(f, false);
	else if (dice < 91)
		do_map(f, true);
	else if (dice < 95)
		check_length(f);
	else if (dice < 98)
		do_sync(f);
	else if (dice < 101)
		do_other(f);
	else
		do_reopen(f);
}

int main(int argc, char **argv)
{
	struct file f = {.limit = LENGTH_MAX_DEFAULT, .other = -1};
	uint64_t steps;

	if (argc < 4) {
		fputs("usage: fsx FILE SEED OPERATIONS [LENGTH_MAX]\n", stderr);
		return 2;
	}
	f.name = argv[1];
	f.random = strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15ull | 1;
	steps = strtoull(argv[3], NULL, 10);
	if (argc > 4)
		f.limit = strtoull(argv[4], NULL, 10);
	f.model = calloc(1, f.limit + PIECE_MAX);
	f.buf = malloc(f.limit + PIECE_MAX);
	f.fd = open(f.name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	must(&f, f.model && f.buf && f.fd >= 0, f.name);
	for (f.step = 0; f.step < steps; f.step++) {
		note(&f, "nothing");
		do_step(&f);
	}
	check_length(&f);
	check_all(&f);
	must(&f, (f.other < 0 || close(f.other) == 0) && close(f.fd) == 0, "close");
	free(f.model);
	free(f.buf);
	return 0;
}
