/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery of a block group, the part of the primary node (hdfs-wire 8.4), as stock nodes do it but
 * in two things: what they keep open for ever is ended, and nobody reads what nobody wrote. The
 * group is cut to its last row of which enough units are there and that was whole for sure: of one
 * that ended early stock keeps the lot, filled up with zeros. A partial row, of which there is no
 * parity, is lost. A group without a row is dropped, and one of which there cannot be enough units,
 * since its nodes were all asked and said so: its writer died in the first row. */
#include "datanode/bp/block_recovery_internal.h"

#include <inttypes.h>

#include "common/base/log.h"

int recover_striped_fill(struct recovery_job *j, const Hd__RecoveringBlockProto *rb)
{
	const uint32_t units = (uint32_t)j->policy.k + j->policy.m;

	if (rb->truncateblock || !ec_id_is_striped(j->block.id) || ec_id_unit(j->block.id) ||
	    rb->blockindices.len != j->count)
		return -EPROTO;
	for (uint32_t i = 0; i < j->count; i++) {
		if (rb->blockindices.data[i] >= units)
			return -EPROTO;
		j->holders[i].ask.id = ec_id_of(j->block.id, rb->blockindices.data[i]);
	}
	return 0;
}

/* Of each unit the longest replica: units[] by index. -EBUSY: another recovery is ahead of us. */
static int ask_all(struct recovery_job *j, struct holder **units, uint32_t *ret_count,
		   uint32_t *ret_silent, struct err *err)
{
	*ret_count = *ret_silent = 0;
	for (uint32_t i = 0; i < j->count && !j->set->stop; i++) {
		struct holder *h = &j->holders[i], **best = &units[ec_id_unit(h->ask.id)];
		bool found = false;
		const int rc = holder_init(j, h, &found, err);

		if (rc == -EBUSY)
			return rc;
		*err = ERR_INIT;
		if (rc == 0 && found && !ec_length_ok(h->block.len)) {
			log_warn("op=recover block=%" PRId64 " id=%" PRIu64
				 " node=%s:%u: says %" PRIu64 " bytes, which no unit has: "
				 "counts as no answer",
				 h->ask.id, j->recovery_id, h->at.ip, h->at.ipc_port, h->block.len);
			found = false;
			++*ret_silent;
		}
		*ret_silent += rc && rc != -ENODATA; /* one of an older stamp is an answer */
		if (rc || !found || h->block.gs < j->block.gs || !h->block.len ||
		    h->block.id != h->ask.id)
			continue;
		*ret_count += !*best;
		if (!*best || h->block.len > (*best)->block.len)
			*best = h;
	}
	return j->set->stop ? -ECANCELED : 0;
}

static int too_few(const struct recovery_job *j, uint32_t n, struct err *err)
{
	return err_set(err, -EAGAIN,
		       "%u units are there, %s needs %u: the NameNode orders it again", n,
		       j->policy.name, (unsigned int)j->policy.k);
}

/* Units that the order names no node for, and that may be somewhere. An Apache NameNode leaves out
 * nodes that it has not heard from lately. */
static uint32_t units_not_asked(const struct recovery_job *j)
{
	uint32_t asked = 0;

	if (j->all_units)
		return 0;
	for (uint32_t i = 0; i < j->count; i++)
		asked |= 1u << ec_id_unit(j->holders[i].ask.id);
	return (uint32_t)j->policy.k + j->policy.m - (uint32_t)__builtin_popcount(asked);
}

/* Those that are long enough take part; one that fails is reason to begin again, for nobody knows
 * its state then. */
static int update_all(struct recovery_job *j, struct holder **units, uint64_t len, struct err *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < EC_UNITS_MAX && !rc; i++) {
		struct holder *h = units[i];
		const uint64_t unit_len = h ? ec_unit_length(&j->policy, len, i) : 0;

		if (!h)
			continue;
		if (h->block.len < unit_len) {
			log_info("op=recover block=%" PRId64 " id=%" PRIu64 " node=%s:%u: %" PRIu64
				 " bytes of %" PRIu64 ": left out",
				 h->ask.id, j->recovery_id, h->at.ip, h->at.ipc_port, h->block.len,
				 unit_len);
			units[i] = NULL;
			continue;
		}
		rc = j->set->stop ? -ECANCELED : holder_update(j, h, unit_len, h->ask.id, err);
	}
	return rc;
}

/* As our reader sees the group while it is open. */
static uint64_t length_of(const struct recovery_job *j, struct holder *const *units)
{
	const struct holder *last = units[j->policy.k - 1];
	uint64_t lengths[EC_UNITS_MAX], longest = 0;
	uint32_t count = 0;

	for (uint32_t i = 0; i < EC_UNITS_MAX; i++) {
		if (!units[i])
			continue;
		lengths[count++] = units[i]->block.len;
		longest = units[i]->block.len > longest ? units[i]->block.len : longest;
	}
	return ec_written_length(&j->policy, ec_safe_length(&j->policy, lengths, count),
				 last ? last->block.len : 0, longest);
}

int recover_striped(struct recovery_job *j, uint64_t *ret_len, struct err *err)
{
	struct holder *units[EC_UNITS_MAX] = {NULL};
	uint32_t count = 0, silent;
	int rc;

	if (j->count < j->policy.k && !j->all_units)
		return too_few(j, j->count, err);
	rc = ask_all(j, units, &count, &silent, err);
	*ret_len = 0;
	/* A writer that died before parity was there: not a row is whole, and never will be. A
	 * stock primary gives up here, and the file stays open. */
	if (rc == 0 && !silent && count + units_not_asked(j) < j->policy.k)
		return recovery_commit(j, 0, true, NULL, 0, err);
	if (rc == 0 && count < j->policy.k)
		rc = too_few(j, count, err);
	if (rc)
		return rc;
	*ret_len = length_of(j, units);
	if (!*ret_len)
		return recovery_commit(j, 0, true, NULL, 0, err);
	rc = update_all(j, units, *ret_len, err);
	return rc ? rc
		  : recovery_commit(j, *ret_len, false, (const struct holder *const *)units,
				    (size_t)j->policy.k + j->policy.m, err);
}
