/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/shell/shell_size.h"

#include <stdio.h>

const char *shell_size(char buf[32], uint64_t n, bool human)
{
	static const char units[] = "KMGTPE";
	unsigned shift = 10, i = 0;
	uint64_t rest, tenths;

	if (!human || n < 1024) {
		snprintf(buf, 32, "%llu", (unsigned long long)n);
		return buf;
	}
	while (n >> shift >= 1024 && units[i + 1]) {
		shift += 10;
		i++;
	}
	rest = n & ((1ull << shift) - 1);
	if (!rest) {
		snprintf(buf, 32, "%llu %c", (unsigned long long)(n >> shift), units[i]);
		return buf;
	}
	tenths = (n >> shift) * 10 + ((rest * 10 + (1ull << (shift - 1))) >> shift);
	if (tenths >= 10240) { /* rounded up to one of the next unit */
		tenths = 10;
		i++;
	}
	snprintf(buf, 32, "%u.%u %c", (unsigned)(tenths / 10), (unsigned)(tenths % 10), units[i]);
	return buf;
}
