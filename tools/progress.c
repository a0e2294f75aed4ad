/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/progress.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tools/cli.h"

#define BAR_MAX 40

static int columns(void)
{
	struct winsize w;

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 80;
}

static void draw(struct progress *p)
{
	uint64_t done = atomic_load_explicit(&p->bytes, memory_order_relaxed);
	uint64_t files = atomic_load_explicit(&p->files, memory_order_relaxed);
	double seconds = (double)(clock_mono_ns() - p->start_ns) / 1e9;
	double rate = seconds > 0.2 ? (double)done / seconds : 0;
	char a[32], b[32], r[32], eta[32] = "", bar[BAR_MAX + 1] = "";
	int width = columns() - 62;

	if (p->total_bytes) {
		double part = (double)done / (double)p->total_bytes;
		int fill;

		width = width > BAR_MAX ? BAR_MAX : width < 0 ? 0 : width;
		fill = (int)(part > 1 ? width : part * width);
		for (int i = 0; i < width; i++)
			bar[i] = i < fill ? '#' : '.';
		bar[width] = 0;
		if (rate > 0 && done <= p->total_bytes) {
			uint64_t left = (uint64_t)((double)(p->total_bytes - done) / rate);

			snprintf(eta, sizeof(eta), "ETA %llu:%02llu", (unsigned long long)left / 60,
				 (unsigned long long)left % 60);
		}
		fprintf(stderr, "\r\033[K[%s] %3.0f%% %s / %s %s/s %s", bar,
			part > 1 ? 100 : part * 100, cli_size(a, done, true),
			cli_size(b, p->total_bytes, true), cli_size(r, (uint64_t)rate, true), eta);
	} else {
		fprintf(stderr, "\r\033[K%s %s/s", cli_size(a, done, true),
			cli_size(r, (uint64_t)rate, true));
	}
	if (p->total_files > 1)
		fprintf(stderr, " %llu/%llu files", (unsigned long long)files,
			(unsigned long long)p->total_files);
	fflush(stderr);
}

static void *redraw(void *arg)
{
	struct progress *p = arg;
	const struct timespec tick = {.tv_nsec = 100 * NS_PER_MS};

	while (!atomic_load(&p->stop)) {
		nanosleep(&tick, NULL);
		draw(p);
	}
	return NULL;
}

void progress_start(struct progress *p, uint64_t total_bytes, uint64_t total_files, bool wanted)
{
	p->total_bytes = total_bytes;
	p->total_files = total_files;
	p->start_ns = clock_mono_ns();
	p->drawn =
		wanted && isatty(STDERR_FILENO) && pthread_create(&p->thread, NULL, redraw, p) == 0;
}

double progress_end(struct progress *p)
{
	double seconds = (double)(clock_mono_ns() - p->start_ns) / 1e9;

	if (p->drawn) {
		atomic_store(&p->stop, true);
		pthread_join(p->thread, NULL);
		draw(p);
		fputc('\n', stderr);
	}
	return seconds;
}
