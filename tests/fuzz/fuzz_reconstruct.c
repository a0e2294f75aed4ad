/* SPDX-License-Identifier: Apache-2.0 */
/* BlockECReconstructionCommandProto, as a NameNode orders it: what gets through is an order that
 * its policy allows. */
#include "common/wire/pb.h"
#include "tests/fuzz/fuzz.h"

#define POOL "BP-1"
#define OWN_UUID "44064693-6513-4186-9e38-86c8aa40fbc2" /* a node of the recordings */
#include "datanode/bp/rebuild_order_test_fixture.h"

static struct dn dn;
static struct bp_set set = {.dn = &dn};
static struct bp_actor actor = {.set = &set, .addr_text = "fuzz"};

/* What reconstruct_open() is given; it looks at the units once more (reconstruct_test.c). */
int data_port_rebuild(struct data_port *x, struct reconstruct_params *p)
{
	uint32_t seen = 0;

	(void)x;
	MUST(p->target_count && p->target_count <= EC_UNITS_MAX && p->source_count &&
	     p->source_count <= REBUILD_SOURCES_MAX);
	MUST(ec_length_ok(p->group.len) && p->done && p->bad);
	for (uint32_t i = 0; i < p->target_count; i++) {
		const uint32_t unit = p->targets[i].unit;

		MUST(unit < (unsigned int)p->policy.k + p->policy.m && !(seen >> unit & 1));
		MUST(ec_unit_length(&p->policy, p->group.len, unit));
		seen |= 1u << unit;
	}
	for (uint32_t i = 0; i < p->source_count; i++)
		MUST(p->sources[i].unit < EC_UNITS_MAX && !(seen >> p->sources[i].unit & 1));
	reconstruct_params_fini(p);
	return -EBUSY;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Hdd__BlockECReconstructionCommandProto *m;

	if (pb_unpack(&hdd__block_ecreconstruction_command_proto__descriptor, data, size, &m))
		return 0;
	log_init("fuzz", LOG_ERROR);
	dn.ec_xmits_pct = 50;
	actor.bp = (struct block_pool *)&dn; /* any: it is not looked into */
	/* those of the recordings are of another pool */
	for (size_t i = 0; i < m->n_blockecreconstructioninfo; i++) {
		Hd__ExtendedBlockProto *b = m->blockecreconstructioninfo[i]->block;

		if (!strncmp(b->poolid, "BP-", 3)) {
			free(b->poolid);
			b->poolid = strdup("BP-1");
		}
	}
	reconstruct_start(&actor, m);
	MUST(atomic_load(&dn.ec_xmits) == 0);
	pb_free(m);
	return 0;
}
