/* SPDX-License-Identifier: Apache-2.0 */
/* Every data directory has a list of all directories of the node. One of them that is found empty,
 * or not at all, is a disk that was not mounted: to make it anew would put blocks on the root file
 * system, and call those of the disk lost. */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/log.h"

#define LIST_NAME "known_volumes"
#define NEW_DISK "this_disk_is_new"
#define LIST_MAX (STORE_VOLUMES_MAX * 4200)

static const struct known *find(const struct known_volumes *k, const char *path)
{
	for (uint32_t i = 0; i < k->count; i++)
		if (!strcmp(k->list[i].path, path))
			return &k->list[i];
	return NULL;
}

/* A line is "storageID path". What makes no sense is passed over. */
static void take_line(struct known_volumes *k, const char *line)
{
	const char *path = strchr(line, ' ');
	struct known *e = &k->list[k->count];

	if (line[0] == '#' || !path || (size_t)(path - line) >= sizeof(e->uuid) ||
	    k->count == STORE_VOLUMES_MAX || find(k, path + 1))
		return;
	memcpy(e->uuid, line, (size_t)(path - line));
	e->uuid[path - line] = '\0';
	e->path = strdup(path + 1);
	k->count += e->path != NULL;
}

int known_volumes_read(struct volume *v, void *arg, struct err *err)
{
	_cleanup_close_ int dir = open(v->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int fd =
		dir < 0 ? -1 : openat(dir, LIST_NAME, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	_cleanup_free_ char *text = fd >= 0 ? calloc(1, LIST_MAX + 1) : NULL;
	char *rest = text && read(fd, text, LIST_MAX) > 0 ? text : NULL;

	(void)arg, (void)err;
	pthread_mutex_lock(&v->store->lock);
	for (char *line; rest && (line = strsep(&rest, "\n"));)
		take_line(&v->store->known, line);
	pthread_mutex_unlock(&v->store->lock);
	return 0;
}

void known_volumes_fini(struct known_volumes *k)
{
	for (uint32_t i = 0; i < k->count; i++)
		free(k->list[i].path);
	k->count = 0;
}

int known_volumes_check(struct store *s, const char *path, struct err *err)
{
	const struct known *e; /* stays where it is */
	char name[4200];

	pthread_mutex_lock(&s->lock);
	e = find(&s->known, path);
	pthread_mutex_unlock(&s->lock);
	(void)snprintf(name, sizeof(name), "%s/current", path);
	if (!e || faccessat(AT_FDCWD, name, F_OK, 0) == 0 || (errno != ENOENT && errno != ENOTDIR))
		return 0;
	(void)snprintf(name, sizeof(name), "%s/" NEW_DISK, path);
	if (faccessat(AT_FDCWD, name, F_OK, 0) == 0)
		return 0;
	err_set(err, -EINVAL,
		"data directory %s is empty or not there, but this node has kept blocks in it (%s)",
		path, e->uuid);
	return err_cure(
		err,
		"mount its disk; if the disk is a new one: mkdir -p %s && touch %s; or take it "
		"out of dfs.datanode.data.dir",
		path, name);
}

static char *make_list(struct store *s)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	fprintf(f, "# The data directories of data node %s, for its next start.\n", s->dn_uuid);
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->volume_count; i++) {
		const struct volume *v = &s->volumes[i];
		const struct known *e = find(&s->known, v->path);

		if (!strchr(v->path, '\n') && !v->failed && !v->fresh)
			fprintf(f, "%s %s\n", v->uuid, v->path);
		else if (e)
			fprintf(f, "%s %s\n", e->uuid, e->path);
	}
	pthread_mutex_unlock(&s->lock);
	return fclose(f) ? (free(text), NULL) : text;
}

static int write_list(struct volume *v, void *arg, struct err *err)
{
	static const char tmp[] = LIST_NAME ".tmp";
	_cleanup_free_ char *text = make_list(v->store);
	_cleanup_close_ int fd =
		openat(v->dir_fd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int rc = !text    ? -ENOMEM
		 : fd < 0 ? neg_errno()
			  : file_write_full(fd, text, strlen(text), 0);

	if (!rc)
		rc = ret_errno(fsync(fd));
	if (!rc)
		rc = ret_errno(renameat(v->dir_fd, tmp, v->dir_fd, LIST_NAME));
	(void)unlinkat(v->dir_fd, NEW_DISK, 0);
	(void)arg, (void)err;
	if (rc)
		log_warn("op=volume dir=%s: cannot write " LIST_NAME ": %s", v->path, err_name(rc));
	return 0;
}

void known_volumes_write(struct store *s)
{
	if (s->volume_count <= 1)
		return;
	volumes_do(s, write_list, NULL);
	volumes_out_that_hang(s);
}
