/* SPDX-License-Identifier: Apache-2.0 */
/* One message as the receiver sees it: up to CAPSULE_MAX_DEFAULT bytes, and the payload behind. */
#include "common/wire/capsule.h"

#include "tests/fuzz/fuzz.h"

static void as_private(const uint8_t *data, size_t size)
{
	uint8_t buf[CAPSULE_PRIVATE_MOST];
	struct capsule_private p, again;
	struct capsule_reject_data rej;

	if (!capsule_private_decode(data, size, &p)) {
		capsule_private_encode(&p, buf);
		MUST(!capsule_private_decode(buf, sizeof(buf), &again));
		MUST(!memcmp(&p, &again, sizeof(p)));
	}
	if (!capsule_reject_decode(data, size, &rej))
		MUST(capsule_reject_text(rej.reason));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint32_t len = size < CAPSULE_MAX_DEFAULT ? (uint32_t)size : CAPSULE_MAX_DEFAULT;
	uint8_t buf[CAPSULE_MAX_DEFAULT];
	struct capsule c;
	ssize_t n;

	as_private(data, size);
	if (size > 1u << 20 ||
	    capsule_decode(data, len, size > len ? data + len : NULL, (uint32_t)size - len, &c))
		return 0;
	/* What was accepted can be sent, and is the same but for the padding. */
	n = capsule_encode(&c, CAPSULE_MAX_DEFAULT, buf);
	MUST(n == (ssize_t)len);
	if (!c.payload.len)
		MUST(!memcmp(buf, data, len));
	return 0;
}
