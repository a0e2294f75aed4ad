/* SPDX-License-Identifier: Apache-2.0 */
/* The recovery of a block group by its primary: @data is what the nodes answer, three bytes for
 * each (kind, length), then the NameNode's order, a RecoveringBlockProto. */
#include "common/wire/ec_msg.h"
#include "common/wire/pb.h"
#include "datanode/bp/block_recovery_internal.h"
#include "tests/fuzz/fuzz.h"

#define ANSWERS LOCS_MAX

static struct bp_set set;
static struct holder holders[LOCS_MAX];
static struct recovery_job job;
static const uint8_t *answers;
static uint64_t committed;

int holder_init(struct recovery_job *j, struct holder *h, bool *ret_found, struct err *err)
{
	const uint8_t *a = answers + 3 * (h - j->holders);

	if (a[0] % 8 == 7)
		return err_set(err, -ETIMEDOUT, "no answer");
	if (a[0] % 8 == 6)
		return -EBUSY;
	*ret_found = a[0] % 8 != 5;
	h->block = (struct block){h->ask.id + (a[0] % 8 == 4), j->block.gs - (a[0] % 8 == 3),
				  (uint64_t)a[1] << a[2] % 64 | a[2]};
	return 0;
}

int holder_update(struct recovery_job *j, struct holder *h, uint64_t len, int64_t new_id,
		  struct err *err)
{
	MUST(len <= h->block.len && new_id == h->ask.id);
	h->updated = true;
	return answers[3 * (h - j->holders)] & 8 ? err_set(err, -EIO, "it cannot") : 0;
}

int recovery_commit(struct recovery_job *j, uint64_t len, bool delete,
		    const struct holder *const *targets, size_t n, struct err *err)
{
	(void)err;
	MUST(!committed++ && ec_length_ok(len) && len % ec_row_bytes(&j->policy) == 0 &&
	     n <= EC_UNITS_MAX);
	MUST(!delete || len == 0);
	for (size_t i = 0; i < n; i++)
		MUST(!targets[i] || (targets[i]->updated && ec_id_unit(targets[i]->ask.id) == i));
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Hd__RecoveringBlockProto *rb;
	struct err err = ERR_INIT;
	uint64_t len;

	if (size < 3 * ANSWERS || pb_unpack(&hd__recovering_block_proto__descriptor,
					    data + 3 * ANSWERS, size - 3 * ANSWERS, &rb))
		return 0;
	log_init("fuzz", LOG_ERROR);
	memset(&job, 0, sizeof(job));
	memset(holders, 0, sizeof(holders));
	job.holders = holders;
	job.set = &set;
	job.block = (struct block){(int64_t)rb->block->b->blockid, rb->block->b->generationstamp,
				   rb->block->b->numbytes};
	job.recovery_id = rb->newgenstamp;
	job.count = rb->block->n_locs < LOCS_MAX ? (uint32_t)rb->block->n_locs : LOCS_MAX;
	answers = data;
	committed = 0;
	if (rb->ecpolicy && ec_policy_from_msg(rb->ecpolicy, &job.policy) == 0 &&
	    recover_striped_fill(&job, rb) == 0) {
		const int rc = recover_striped(&job, &len, &err);

		MUST((rc == 0) == (committed == 1));
	}
	pb_free(rb);
	return 0;
}
