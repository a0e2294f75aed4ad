/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** ready_file - the file that tells whoever started us where we serve: one line of JSON. It is
 * written under another name and renamed, so that it is whole when it is there. */
#include "common/base/err.h"
#include "common/base/net.h"

int ready_file_write(const char *path, const struct net_addr *rpc, const struct net_addr *http,
		     struct err *err);
