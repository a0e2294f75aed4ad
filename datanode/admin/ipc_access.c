/* SPDX-License-Identifier: Apache-2.0 */
/* Who may call what on the RPC port. */
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/conf.h"
#include "common/base/groups.h"
#include "common/rpc/service_acl.h"
#include "common/wire/rpc_frame.h"
#include "datanode/admin/ipc_internal.h"
#include "datanode/dn.h"

#define ASKING_MAX 2
#define PW_BUF 16384

struct asked {
	struct ipc *ipc;
	bool undecided; /* the groups of the user were not to be had now */
};

/* The name service may take its time, and all calls pass through the same few threads. So few of
 * them wait for it at a time. An answer of false says nothing when k->undecided is set. */
static bool in_group(void *arg, const char *user, const char *group)
{
	struct asked *k = arg;
	struct ipc *i = k->ipc;
	char **groups = NULL;
	int n = -EBUSY;
	bool found = false;

	if (atomic_fetch_add(&i->asking, 1) < ASKING_MAX)
		n = groups_of(user,
			      conf_get(i->dn->conf, "hadoop.user.group.static.mapping.overrides"),
			      &groups);
	atomic_fetch_sub(&i->asking, 1);
	k->undecided |= n < 0;
	for (int g = 0; g < n && !found; g++)
		found = !strcmp(groups[g], group);
	if (n >= 0)
		groups_free(groups, n);
	return found;
}

static void fail_undecided(struct rpc_call *call)
{
	rpc_fail(call, JEX_RETRIABLE,
		 "the accounts are being asked for the groups of others; try again");
}

bool ipc_may_call(struct ipc *i, struct rpc_call *call)
{
	struct asked k = {.ipc = i};
	struct err err = ERR_INIT;
	int rc = service_acl_check(i->service_acl, call->protocol, call->user, call->peer_ip,
				   in_group, &k, &err);

	/* A user whose groups are not known may be in one that is blocked. */
	if (!rc && !k.undecided)
		return true;
	if (k.undecided)
		fail_undecided(call);
	else
		rpc_fail(call, JEX_AUTHORIZATION, "%s", err.text);
	return false;
}

void ipc_learn_user(struct ipc *i)
{
	struct passwd pw, *p = NULL;
	char buf[PW_BUF];

	(void)getpwuid_r(geteuid(), &pw, buf, sizeof(buf), &p);
	(void)snprintf(i->user, sizeof(i->user), "%s", p ? p->pw_name : "dfs");
}

bool ipc_is_admin(struct ipc *i, struct rpc_call *call)
{
	const struct conf *conf = i->dn->conf;
	const char *user = call->user ? call->user : "";
	struct asked k = {.ipc = i};
	struct err err = ERR_INIT;
	bool checked = true;

	(void)conf_bool(conf, "dfs.permissions.enabled", true, &checked, &err);
	if (!checked || !strcmp(user, i->user) ||
	    in_group(&k, user, conf_get_or(conf, "dfs.permissions.superusergroup", "supergroup")))
		return true;
	if (k.undecided)
		fail_undecided(call);
	else
		rpc_fail(call, JEX_ACCESS_CONTROL,
			 "user %.64s may not administer this data node; be %.64s or a member of "
			 "dfs.permissions.superusergroup",
			 user, i->user);
	return false;
}
