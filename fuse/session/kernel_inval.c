/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/session/kernel_inval.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct forget {
	struct list link;
	uint64_t ino;   /* of the directory, or the file */
	fuse_req_t req; /* has written the file, and is answered; NULL: nobody waits */
	uint64_t offset;
	size_t len;  /* of the pages; 0: all */
	char name[]; /* "": pages */
};

/* What the kernel does not have is no harm. */
static void forget(struct fuse_session *se, struct forget *g)
{
	if (*g->name)
		(void)fuse_lowlevel_notify_inval_entry(se, g->ino, g->name, strlen(g->name));
	else
		(void)fuse_lowlevel_notify_inval_inode(se, g->ino, (off_t)g->offset, (off_t)g->len);
	if (g->req)
		fuse_reply_write(g->req, g->len);
	free(g);
}

static void *run(void *arg)
{
	struct kernel_inval *f = arg;

	pthread_mutex_lock(&f->lock);
	while (!f->stop) {
		struct list *l = list_pop(&f->work);

		if (!l) {
			pthread_cond_wait(&f->wake, &f->lock);
			continue;
		}
		f->count--;
		pthread_mutex_unlock(&f->lock);
		forget(f->se, container_of(l, struct forget, link));
		pthread_mutex_lock(&f->lock);
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

int kernel_inval_start(struct kernel_inval *f, struct fuse_session *se)
{
	int rc;

	*f = (struct kernel_inval){.se = se};
	list_init(&f->work);
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->wake, NULL);
	rc = pthread_create(&f->thread, NULL, run, f);
	f->started = rc == 0;
	return -rc;
}

void kernel_inval_stop(struct kernel_inval *f)
{
	struct list *l;

	if (!f->started)
		return;
	pthread_mutex_lock(&f->lock);
	f->stop = true;
	pthread_cond_signal(&f->wake);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	while ((l = list_pop(&f->work))) {
		struct forget *g = container_of(l, struct forget, link);

		if (g->req)
			fuse_reply_write(g->req, g->len);
		free(g);
	}
	pthread_mutex_destroy(&f->lock);
	pthread_cond_destroy(&f->wake);
	f->started = false;
}

static void add(struct kernel_inval *f, struct forget *g)
{
	pthread_mutex_lock(&f->lock);
	if (g->req || f->count < INVAL_MAX) {
		list_add_tail(&f->work, &g->link);
		f->count++;
		g = NULL;
		pthread_cond_signal(&f->wake);
	}
	pthread_mutex_unlock(&f->lock);
	free(g);
}

static struct forget *new_forget(uint64_t ino, const char *name)
{
	const size_t len = strlen(name) + 1;
	struct forget *g = malloc(sizeof(*g) + len);

	if (!g)
		return NULL;
	*g = (struct forget){.ino = ino};
	memcpy(g->name, name, len);
	return g;
}

void kernel_inval_add(struct kernel_inval *f, uint64_t parent, const char *name)
{
	struct forget *g = new_forget(parent, name);

	if (g) /* else it goes when its time is over */
		add(f, g);
}

void kernel_inval_file(struct kernel_inval *f, uint64_t ino)
{
	struct forget *g = new_forget(ino, "");

	if (g)
		add(f, g);
}

void kernel_inval_written(struct kernel_inval *f, fuse_req_t req, uint64_t ino, uint64_t offset,
			  size_t len)
{
	struct forget *g = new_forget(ino, "");

	if (!g) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	g->req = req;
	g->offset = offset;
	g->len = len;
	add(f, g);
}
