/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/ready_file.h"

#include <stdio.h>
#include <unistd.h>

#include "common/base/cleanup.h"

int ready_file_write(const char *path, const struct net_addr *rpc, const struct net_addr *http,
		     struct err *err)
{
	char tmp[4200], a[NET_TEXT_MAX], b[NET_TEXT_MAX];
	_cleanup_fclose_ FILE *f = NULL;

	if (snprintf(tmp, sizeof(tmp), "%s.tmp", path) >= (int)sizeof(tmp))
		return err_set(err, -ENAMETOOLONG,
			       "the path of --ready-file is too long; give a shorter one");
	f = fopen(tmp, "we");
	if (!f)
		return err_sys(err, neg_errno(), "cannot write %s", tmp);
	fprintf(f, "{\"rpc\":\"%s\",\"http\":\"%s\",\"pid\":%d}\n", net_text(rpc, a),
		net_text(http, b), (int)getpid());
	if (fflush(f) || rename(tmp, path))
		return err_sys(err, neg_errno(), "cannot write %s", path);
	return 0;
}
