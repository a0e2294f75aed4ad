/* SPDX-License-Identifier: Apache-2.0 */
/* What a server says in SASL DIGEST-MD5, as a client reads it: the challenge, and the last word. */
#include "common/rpc/digest.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct digest d = {.cnonce = "0123456789abcdef0123456789abcdef"};
	char answer[DIGEST_ANSWER_MAX];
	struct err err = ERR_INIT;
	const int n = digest_answer(&d, (const char *)data, size, "user", "password",
				    "hdfs/default", answer, &err);

	MUST(n < (int)sizeof(answer) && (n >= 0 || err.text[0]));
	if (n >= 0)
		MUST(strlen(d.proof) == DIGEST_HEX);
	if (digest_check(&d, (const char *)data, size, &err) < 0)
		MUST(err.text[0]);
	return 0;
}
