/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/block/token.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct token_id id;

	if (token_id_decode(data, size, &id) < 0)
		return 0;
	MUST(id.n_types <= TOKEN_ITEMS_MAX && id.n_ids <= TOKEN_ITEMS_MAX);
	token_id_fini(&id);
	return 0;
}
