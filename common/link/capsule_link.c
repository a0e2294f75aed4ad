/* SPDX-License-Identifier: Apache-2.0 */
#include "common/link/capsule_link.h"

#include <assert.h>
#include <string.h>

#include "common/base/cursor.h"
#include "common/wire/capsule.h"

#define CREDIT_OFFSET 4 /* docs/wire.md section 3 */
#define ID_OFFSET 12    /* likewise */
#define BUSY_RETRY_MS 1000

static_assert(VERBS_PRIVATE_MAX == CAPSULE_PRIVATE_MOST && VERBS_RAILS == CAPSULE_RAILS,
	      "the transport has room for what an accept says");

static const uint8_t heartbeat[CAPSULE_HEADER_LEN] = {
	CAPSULE_VERSION, CAPSULE_HEARTBEAT, 0, 0, 0, 0, 0, CAPSULE_HEADER_LEN};

static bool is_control(const void *message, uint32_t len, uint64_t *ret_stream)
{
	struct rd r = rd_init(message, len);
	uint8_t type;

	(void)rd_u8(&r); /* version */
	type = rd_u8(&r);
	(void)rd_bytes(&r, ID_OFFSET - 2);
	*ret_stream = rd_be64(&r);
	return type == CAPSULE_CANCEL || type == CAPSULE_CLOSED || type == CAPSULE_ERROR;
}

static size_t hello_encode(const struct verbs_hello *h, uint8_t out[VERBS_PRIVATE_MAX])
{
	const bool dialer = h->role != CAPSULE_NODE;
	struct capsule_private p = {
		.version = CAPSULE_VERSION,
		.credits = h->credits,
		.reply_slots = dialer ? h->credits : 0,
		.capsule_max = h->message_max,
		.inline_max = h->payload_max,
		.read_depth = h->read_depth,
		.role = h->role,
		.node = h->node,
		.rails = h->rails,
		.features = h->features,
	};

	memcpy(p.rail, h->rail, sizeof(p.rail));
	return capsule_private_encode(&p, out);
}

static int hello_decode(const void *buf, size_t len, struct verbs_hello *ret)
{
	struct capsule_private p;
	int rc = capsule_private_decode(buf, len, &p);

	if (rc < 0)
		return rc;
	*ret = (struct verbs_hello){
		.credits = p.role == CAPSULE_NODE ? p.credits : p.reply_slots,
		.message_max = p.capsule_max,
		.payload_max = p.inline_max,
		.read_depth = p.read_depth,
		.role = p.role,
		.node = p.node,
		.rails = p.rails,
		.features = p.features,
	};
	memcpy(ret->rail, p.rail, sizeof(p.rail));
	return 0;
}

static size_t reject_encode(enum verbs_reject why, uint8_t out[VERBS_PRIVATE_MAX])
{
	static const uint16_t reason[] = {
		[VERBS_MALFORMED] = CAPSULE_REJECT_MALFORMED,
		[VERBS_VERSION] = CAPSULE_REJECT_VERSION,
		[VERBS_BUSY] = CAPSULE_REJECT_BUSY,
		[VERBS_STOPPING] = CAPSULE_REJECT_SHUTDOWN,
		[VERBS_NO_READ] = CAPSULE_REJECT_READ_DEPTH,
	};
	const struct capsule_reject_data r = {
		.version = CAPSULE_VERSION,
		.reason = reason[why],
		.retry_after_ms = why == VERBS_BUSY ? BUSY_RETRY_MS : 0,
	};

	capsule_reject_encode(&r, out);
	return CAPSULE_REJECT_LEN;
}

static const char *reject_text(const void *buf, size_t len)
{
	struct capsule_reject_data r;

	return capsule_reject_decode(buf, len, &r) < 0 ? "" : capsule_reject_text(r.reason);
}

static bool reject_is_malformed(const void *buf, size_t len)
{
	struct capsule_reject_data r;

	return capsule_reject_decode(buf, len, &r) == 0 && r.reason == CAPSULE_REJECT_MALFORMED;
}

static_assert((int)VERBS_ONESIDED == (int)CAPSULE_FEAT_ONESIDED, "one number for both");

const struct verbs_protocol capsule_link = {
	.credit_offset = CREDIT_OFFSET,
	.heartbeat = heartbeat,
	.heartbeat_len = sizeof(heartbeat),
	.is_control = is_control,
	.hello_encode = hello_encode,
	.hello_decode = hello_decode,
	.reject_encode = reject_encode,
	.reject_text = reject_text,
	.reject_is_malformed = reject_is_malformed,
};
