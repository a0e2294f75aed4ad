/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/ec_msg.h"

#include <errno.h>
#include <string.h>

int ec_policy_from_msg(const Hd__ErasureCodingPolicyProto *m, struct ec_policy *ret)
{
	const uint32_t id = m->id & 0xff; /* a Java byte */
	const struct ec_policy *own = ec_policy_by_id(id);
	enum ec_codec codec;

	if (own) {
		*ret = *own;
		return 0;
	}
	if (!m->schema || !m->has_cellsize || ec_codec_find(m->schema->codecname, &codec) < 0)
		return -EBADMSG;
	return ec_policy_make(codec, m->schema->dataunits, m->schema->parityunits, m->cellsize, id,
			      ret, NULL);
}

void ec_policy_to_msg(const struct ec_policy *p, struct ec_policy_msg *store,
		      Hd__ErasureCodingPolicyProto *ret)
{
	hd__erasure_coding_policy_proto__init(ret);
	ret->id = p->id;
	if (ec_policy_by_id(p->id))
		return;
	if (p->id == EC_ID_NONE)
		ret->id = UINT32_MAX; /* Java's -1 */
	memcpy(store->name, p->name, sizeof(store->name));
	hd__ecschema_proto__init(&store->schema);
	store->schema.codecname = (char *)ec_codec_name(p->codec);
	store->schema.dataunits = p->k;
	store->schema.parityunits = p->m;
	ret->name = store->name;
	ret->schema = &store->schema;
	ret->has_cellsize = 1;
	ret->cellsize = p->cell;
}
