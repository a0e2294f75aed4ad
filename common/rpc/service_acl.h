/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * service_acl - which users, groups and hosts may call which protocol (hadoop-policy.xml)
 *
 * Idea: with hadoop.security.authorization=true each protocol has a key, security.*.acl, with users
 * and groups ("u1,u2 g1,g2", "*": everybody), one with .blocked behind it, and the same for hosts
 * (security.*.hosts: addresses, names, ranges as 10.0.0.0/8). The default of each is
 * security.service.authorization.default.acl. Users are what clients call themselves: without
 * Kerberos this keeps mistakes out, and nobody who lies.
 * Ownership: the caller owns the object. Threading: any thread; a lock inside.
 * Source: Hadoop 3.4.2 ServiceAuthorizationManager, AccessControlList, MachineList,
 * HDFSPolicyProvider.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct conf;
struct service_acl;

/** *ret is NULL when hadoop.security.authorization is false. Host names are resolved, which may
 *  block.
 *  -EINVAL with key, value and cure. */
int service_acl_new(const struct conf *c, struct service_acl **ret, struct err *err);
/** Accepts NULL. */
void service_acl_free(struct service_acl *a);
/** Read the files again. On an error what was in force stays. Blocks. */
int service_acl_refresh(struct service_acl *a, struct err *err);

/** Is @user in @group? May block. */
typedef bool (*service_acl_in_group)(void *arg, const char *user, const char *group);
/** 0; -EACCES with the text of Hadoop's AuthorizationException. @a NULL: 0. @protocol: Java name.
 * @ip: of the client. */
int service_acl_check(struct service_acl *a, const char *protocol, const char *user, const char *ip,
		      service_acl_in_group in_group, void *arg, struct err *err);
/** The call was refused because of that: count it, and say so in the log, once a second at most. */
void service_acl_note_denied(struct service_acl *a, const char *protocol, const char *user,
			     const char *ip);
/** Calls that were refused. @a NULL: 0. */
uint64_t service_acl_denied(const struct service_acl *a);
