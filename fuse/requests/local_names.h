/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * local_names - what a user or group of this machine is called in HDFS, and the other way round
 *
 * Idea: HDFS knows names, the kernel numbers. The C library's name service translates. A number
 * without a name here is a name of its digits in HDFS; any other name that is not known here is
 * nobody. A name service that does not answer is an error where a wrong name would act for somebody
 * else.
 * Threading: any thread; a call may ask a server and take as long as that does.
 */
#include <stdint.h>
#include <sys/types.h>

#include "client/include/dfsclient.h"

#define ID_NOBODY 65534

/** What a local user or group is called in HDFS into @buf[DFS_NAME_MAX + 1]: its name, or its
 *  digits when it has none here. -EIO: it is not known whether it has one (then digits, too). */
int local_user_name(uid_t uid, char *buf);
int local_group_name(gid_t gid, char *buf);
/** The number of a user or group of HDFS here; ID_NOBODY: it has none. */
uint32_t local_uid(const char *owner);
uint32_t local_gid(const char *group);
