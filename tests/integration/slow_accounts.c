/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: the accounts of users named slow-SECONDS-... take so long to answer, as a directory
 * service may. */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

__attribute__((visibility("default"))) int getpwnam_r(const char *name, struct passwd *pw,
						      char *buf, size_t size, struct passwd **ret)
{
	unsigned int seconds;

	(void)pw;
	(void)buf;
	(void)size;
	if (sscanf(name, "slow-%u-", &seconds) == 1)
		(void)sleep(seconds);
	*ret = NULL; /* nobody here has an account */
	return 0;
}
