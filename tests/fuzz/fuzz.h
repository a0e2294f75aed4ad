/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** fuzz - one function per decoder of foreign bytes; libFuzzer or replay.c calls it */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was accepted must survive a round trip. */
#define MUST(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond))                                                                       \
			abort();                                                                   \
	} while (0)
