/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * ecpolicy - erasure-coding policies of a namespace, and which directories have one
 *
 * Idea: HDFS's own policies are always there; an administrator adds others and says which may be
 * used for new files. Table ecpol has a row for each policy whose state was changed and for each
 * that was added; table ecdir has the policy of each directory where one was set, which counts for
 * what is created below it. A file carries its policy in its own record (inode.h) and never looks
 * it up, so that it outlives every change here. Without a row (the ordinary case) nothing is
 * walked.
 * The default policy counts as enabled from the start of a process on, unless it was disabled
 * since.
 * The policy "replication" on a directory means: none, whatever is above; clients do not see it.
 * Threading: that of the transaction.
 * Source: Hadoop 3.4.2 ErasureCodingPolicyManager, FSDirErasureCodingOp; messages are worded after
 * it.
 */
#include <stddef.h>
#include <stdint.h>

#include "common/erasure/policy.h"

struct arena;
struct inode;
struct ns;
struct txn;

enum ecpol_state { ECPOL_DISABLED = 1, ECPOL_ENABLED = 2, ECPOL_REMOVED = 3 }; /* as on the wire */

#define ECPOL_MAX 69 /* HDFS's own five and EC_ID_USER_FIRST to EC_ID_LAST */

/* What the configuration says. */
struct ec_rules {
	char dflt[EC_NAME_MAX]; /* dfs.namenode.ec.system.default.policy; "": none */
	uint32_t cell_max;      /* of a policy that is added */
	bool may_add;
	uint64_t run; /* tells this run of the process from others; set by nn_new() */
	bool strict;  /* a group is begun on k + m nodes or not at all */
};

struct ecpol {
	struct ec_policy p;
	enum ecpol_state state;
};

/** All of them in the order of their names into @ret[ECPOL_MAX]. -EBADMSG: a row does not decode.
 */
int ecpol_list(struct txn *t, const struct ec_rules *rules, struct ecpol *ret, size_t *ret_n);
/** By exact name. -ENOENT. */
int ecpol_find(struct txn *t, const struct ec_rules *rules, const char *name, struct ecpol *ret);
/** Names of the enabled ones, "A, B". */
int ecpol_enabled_text(struct txn *t, const struct ec_rules *rules, struct arena *a,
		       const char **ret);
/** The enabled policy @name, or replication; in the arena. HadoopIllegalArgumentException. */
int ecpol_check_enabled(struct ns *n, const struct ec_rules *rules, const char *name,
			const struct ec_policy **ret);
/** Enable, disable or remove. HadoopIllegalArgumentException: there is no @name, or it is HDFS's
 *  own and was to be removed. */
int ecpol_set_state(struct ns *n, const struct ec_rules *rules, const char *name,
		    enum ecpol_state to);
/** Add a policy of these parts, or find the one that has them already. -EINVAL with the sentence of
 *  the refusal in @err; else an error of the database. */
int ecpol_add(struct ns *n, const struct ec_rules *rules, const char *codec,
	      const struct ec_policy *parts, struct ec_policy *ret, struct err *err);
/** As Java prints a policy in its messages. */
const char *ecpol_text(struct arena *a, const struct ec_policy *p);

/** Set @name (NULL or "": the default) on directory @path. */
int ecdir_set(struct ns *n, const struct ec_rules *rules, const char *path, const char *name);
int ecdir_unset(struct ns *n, const char *path);
/** For a directory that is going. */
int ecdir_del(struct txn *t, uint64_t dir);
/** The policy of a file, or what counts for files made in a directory; NULL: replicated. Lives in
 *  the arena. */
int ecdir_of(struct txn *t, const struct inode *n, struct arena *a, const struct ec_policy **ret);
/** Its name, that of "replication" too where that is what counts; "": none. */
int ecdir_name(struct txn *t, const struct inode *n, struct arena *a, char ret[static EC_NAME_MAX]);
