/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/requests/local_names.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_FIRST 2048 /* of an entry of passwd or group, with all its members */
#define TEXT_MAX (8u << 20)

/* ---- names ---- */

struct entry {
	struct passwd pw;
	struct group gr;
	char *text; /* owned: what they point to */
};

typedef int (*ask_fn)(struct entry *e, const void *key, size_t room);

/* A group may have thousands of members, which take room. -ENOENT: there is none; -EIO: who knows
 * of it does not answer.
 * @e is to be freed in any case. */
static int find_entry(struct entry *e, ask_fn ask, const void *key)
{
	int rc = ERANGE;

	e->text = NULL;
	for (size_t room = TEXT_FIRST; rc == ERANGE && room <= TEXT_MAX; room *= 8) {
		free(e->text);
		e->text = malloc(room);
		rc = e->text ? ask(e, key, room) : ENOMEM;
	}
	if (rc == 0)
		return 0;
	/* as getpwnam(3) has it */
	return rc == ENOENT || rc == ESRCH || rc == EBADF || rc == EPERM ? -ENOENT : -EIO;
}

static int ask_uid(struct entry *e, const void *key, size_t room)
{
	struct passwd *found = NULL;

	return getpwuid_r(*(const uid_t *)key, &e->pw, e->text, room, &found) ?: found ? 0 : ENOENT;
}

static int ask_gid(struct entry *e, const void *key, size_t room)
{
	struct group *found = NULL;

	return getgrgid_r(*(const gid_t *)key, &e->gr, e->text, room, &found) ?: found ? 0 : ENOENT;
}

static int ask_owner(struct entry *e, const void *key, size_t room)
{
	struct passwd *found = NULL;

	return getpwnam_r(key, &e->pw, e->text, room, &found) ?: found ? 0 : ENOENT;
}

static int ask_group(struct entry *e, const void *key, size_t room)
{
	struct group *found = NULL;

	return getgrnam_r(key, &e->gr, e->text, room, &found) ?: found ? 0 : ENOENT;
}

/* 1: it has a name here; 0: it has none, and is called by its digits in HDFS; -EIO. */
static int name_of(ask_fn ask, uint32_t id, bool group, char *buf)
{
	struct entry e;
	const int rc = find_entry(&e, ask, &id);

	if (rc == 0)
		snprintf(buf, DFS_NAME_MAX + 1, "%s", group ? e.gr.gr_name : e.pw.pw_name);
	else
		snprintf(buf, DFS_NAME_MAX + 1, "%u", id);
	free(e.text);
	return rc == -ENOENT ? 0 : rc == 0 ? 1 : rc;
}

int local_user_name(uid_t uid, char *buf)
{
	const int rc = name_of(ask_uid, uid, false, buf);

	return rc < 0 ? rc : 0;
}

int local_group_name(gid_t gid, char *buf)
{
	const int rc = name_of(ask_gid, gid, true, buf);

	return rc < 0 ? rc : 0;
}

/* "12345": how a user or group without a name here is called in HDFS. False: it is another name. */
static bool id_in_name(const char *name, uint32_t *ret)
{
	char *end, canonical[16];
	const unsigned long n = strtoul(name, &end, 10);

	snprintf(canonical, sizeof(canonical), "%u", (uint32_t)n);
	if (n >= UINT32_MAX || *end || strcmp(name, canonical) != 0)
		return false;
	*ret = (uint32_t)n;
	return true;
}

uint32_t local_uid(const char *name)
{
	char other[DFS_NAME_MAX + 1];
	struct entry e;
	const bool found = find_entry(&e, ask_owner, name) == 0;
	uint32_t id = found ? e.pw.pw_uid : ID_NOBODY;

	free(e.text);
	if (!found && (!id_in_name(name, &id) || name_of(ask_uid, id, false, other) != 0))
		return ID_NOBODY;
	return id;
}

uint32_t local_gid(const char *name)
{
	char other[DFS_NAME_MAX + 1];
	struct entry e;
	const bool found = find_entry(&e, ask_group, name) == 0;
	uint32_t id = found ? e.gr.gr_gid : ID_NOBODY;

	free(e.text);
	if (!found && (!id_in_name(name, &id) || name_of(ask_gid, id, true, other) != 0))
		return ID_NOBODY;
	return id;
}
