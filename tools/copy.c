/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/copy.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static volatile sig_atomic_t interrupted; /* set by the handler, read by every worker */

static void on_signal(int sig)
{
	interrupted = sig;
}

bool copy_interrupted(void)
{
	return interrupted != 0;
}

void copy_catch_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	const struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
	struct sigaction old;

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) /* nohup */
			sigaction(signals[i], &sa, NULL);
}

void copy_add(struct copy *c, char *src, char *dst, uint64_t size, uint32_t mode)
{
	if (c->count == c->cap) {
		c->cap = c->cap ? c->cap * 2 : 64;
		c->item = cli_checked(reallocarray(c->item, c->cap, sizeof(*c->item)));
	}
	c->item[c->count++] = (struct copy_item){src, dst, size, mode};
	c->bytes += size;
}

char *copy_tmp_name(const char *dst)
{
	uint64_t salt = 0;
	char *tmp;

	(void)!getrandom(&salt, sizeof(salt), 0);
	if (asprintf(&tmp, "%s" COPY_SUFFIX ".%016llx", dst, (unsigned long long)salt) < 0) {
		fputs("dfs: out of memory\n", stderr);
		exit(EXIT_FAIL);
	}
	return tmp;
}

int copy_fail(struct copy *c, const struct copy_item *it, const char *tmp, const char *text)
{
	/* an append writes to the file itself */
	const char *at = strcmp(tmp, it->dst) ? strstr(text, tmp) : NULL;
	char line[1024];

	if (!at)
		return cli_fail(c->cli, it->dst, text);
	snprintf(line, sizeof(line), "%.*s%s%s", (int)(at - text), text, it->dst, at + strlen(tmp));
	return copy_fail(c, it, tmp, line);
}

void copy_left(struct cli *cli, const char *dst, const char *tmp, const struct dfs_err *why)
{
	const size_t n = strlen(tmp);
	const char *text =
		!strncmp(why->text, tmp, n) && why->text[n] == ':' ? why->text + n + 2 : why->text;
	char *line;

	if (asprintf(&line,
		     "the unfinished copy stays as %s and could not be deleted (%s); delete it",
		     tmp, text) < 0) {
		fputs("dfs: out of memory\n", stderr);
		exit(EXIT_FAIL);
	}
	cli_warn(cli, dst, line);
	free(line);
}

bool copy_wants_dir(const char *path)
{
	size_t n = strlen(path);

	return n > 1 && path[n - 1] == '/';
}

static void *worker(void *arg)
{
	struct copy *c = arg;
	void *buf = NULL;
	struct dfs_err err = {0};
	size_t i;

	if (dfs_buf_alloc(c->cli->fs, COPY_BUFFERS * COPY_BUFFER, &buf, &err) < 0) {
		cli_fail(c->cli, NULL, err.text);
		return NULL;
	}
	while (!interrupted && (i = atomic_fetch_add(&c->next, 1)) < c->count) {
		if (c->one(c, &c->item[i], buf) == EXIT_OK)
			atomic_fetch_add(&c->files_done, 1);
		atomic_fetch_add(&c->progress.files, 1);
	}
	dfs_buf_free(c->cli->fs, buf);
	return NULL;
}

static void print_json(struct copy *c, double seconds)
{
	printf("{\"files\": %llu, \"failed\": %d, \"bytes\": %llu, \"seconds\": %.3f}\n",
	       (unsigned long long)atomic_load(&c->files_done), c->cli->failures,
	       (unsigned long long)atomic_load(&c->progress.bytes), seconds);
}

/* Written, but with less redundancy than its directory asks for: nobody should learn that from the
 * next disk that dies. */
static void warn_short_groups(struct cli *cli)
{
	struct dfs_counters n;
	char line[400], risk[120] = "the loss of any of them loses the file";

	dfs_get_counters(cli->fs, &n);
	if (!n.short_groups)
		return;
	if (n.short_group_nodes > n.short_group_data)
		snprintf(risk, sizeof(risk),
			 "the file survives the loss of %llu of these nodes, not of %llu",
			 (unsigned long long)(n.short_group_nodes - n.short_group_data),
			 (unsigned long long)(n.short_group_units - n.short_group_data));
	snprintf(
		line, sizeof(line),
		"%llu block group%s written on %llu data nodes, and the policy wants %llu: %s. The NameNode has the "
		"missing units made when more nodes are there (dfs admin report); --ec chooses a policy of fewer units; "
		"dfs.namenode.ec.strict-placement=true refuses such groups",
		(unsigned long long)n.short_groups, n.short_groups == 1 ? " was" : "s were",
		(unsigned long long)n.short_group_nodes, (unsigned long long)n.short_group_units,
		risk);
	cli_warn(cli, NULL, line);
}

int copy_run(struct copy *c)
{
	uint32_t n = c->cli->jobs < c->count ? c->cli->jobs : (uint32_t)c->count;
	pthread_t thread[64];
	uint32_t started = 0;
	double seconds;

	copy_catch_signals();
	progress_start(&c->progress, c->bytes, c->count, !c->cli->quiet);
	while (started + 1 < n && pthread_create(&thread[started], NULL, worker, c) == 0)
		started++;
	if (n)
		worker(c);
	for (uint32_t i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
	seconds = progress_end(&c->progress);
	if (c->count)
		warn_short_groups(c->cli);
	if (c->cli->json)
		print_json(c, seconds);
	for (size_t i = 0; i < c->count; i++) {
		free(c->item[i].src);
		free(c->item[i].dst);
	}
	free(c->item);
	if (interrupted)
		return 128 + interrupted;
	return c->cli->failures ? EXIT_FAIL : EXIT_OK;
}
