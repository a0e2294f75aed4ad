/* SPDX-License-Identifier: Apache-2.0 */
#include "common/erasure/geometry.h"

#include <assert.h>
#include <errno.h>

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static unsigned units(const struct ec_policy *p)
{
	return (unsigned)p->k + p->m;
}

int ec_id_next(int64_t last, int64_t *ret)
{
	int64_t next = last ? ec_id_group(last) : INT64_MIN;

	if (next > -2 * (int64_t)EC_UNITS_MAX)
		return -ENOSPC; /* the next one would be an ordinary block's */
	*ret = next + EC_UNITS_MAX;
	return 0;
}

/* How many of a group's first @x bytes are in data unit @unit: on this, all lengths and parts rest.
 */
static uint64_t share(const struct ec_policy *p, uint64_t x, unsigned unit)
{
	const uint64_t row = ec_row_bytes(p), rest = x % row, before = (uint64_t)unit * p->cell;

	return x / row * p->cell + (rest > before ? min64(rest - before, p->cell) : 0);
}

uint64_t ec_unit_length(const struct ec_policy *p, uint64_t length, unsigned unit)
{
	assert(unit < units(p));
	return share(p, length, unit < p->k ? unit : 0);
}

uint64_t ec_space(const struct ec_policy *p, uint64_t length)
{
	return length + p->m * ec_unit_length(p, length, p->k);
}

unsigned ec_units_needed(const struct ec_policy *p, uint64_t length)
{
	return (unsigned)min64(p->k, length / p->cell + (length % p->cell != 0));
}

uint32_t ec_units_existing(const struct ec_policy *p, uint64_t length)
{
	const uint32_t parity = ((1u << p->m) - 1) << p->k;

	return length ? parity | ((1u << ec_units_needed(p, length)) - 1) : 0;
}

uint64_t ec_safe_length(const struct ec_policy *p, const uint64_t *lengths, unsigned count)
{
	uint64_t safe = 0;

	/* The k-th longest, without sorting: the longest length that k units have at least. */
	for (unsigned i = 0; i < count; i++) {
		unsigned as_long = 0;

		for (unsigned j = 0; j < count; j++)
			as_long += lengths[j] >= lengths[i];
		if (as_long >= p->k && lengths[i] > safe)
			safe = lengths[i];
	}
	return safe > EC_LENGTH_MAX / p->k ? UINT64_MAX : safe / p->cell * ec_row_bytes(p);
}

uint64_t ec_written_length(const struct ec_policy *p, uint64_t safe, uint64_t last_unit,
			   uint64_t longest)
{
	const uint64_t end = safe / p->k; /* of the safe rows, in a unit */

	return !safe || last_unit >= end || longest > end ? safe : safe - ec_row_bytes(p);
}

void ec_have(const struct ec_policy *p, uint64_t length, uint64_t at, uint32_t len, uint32_t *have)
{
	for (unsigned u = 0; u < units(p); u++) {
		const uint64_t n = ec_unit_length(p, length, u);

		have[u] = n > at ? (uint32_t)min64(n - at, len) : 0;
	}
}

struct ec_place ec_place_of(const struct ec_policy *p, uint64_t offset)
{
	const uint64_t cell = offset / p->cell;
	const uint32_t in = (uint32_t)(offset % p->cell);

	return (struct ec_place){.unit = (unsigned)(cell % p->k),
				 .at = cell / p->k * p->cell + in,
				 .run = p->cell - in};
}

uint64_t ec_unit_part(const struct ec_policy *p, uint64_t offset, uint64_t len, unsigned unit,
		      uint64_t *ret_at)
{
	assert(unit < p->k);
	*ret_at = share(p, offset, unit);
	return share(p, offset + len, unit) - *ret_at;
}

int ec_plan_start(struct ec_plan *plan, const struct ec_policy *p, uint64_t length, uint64_t offset,
		  uint64_t len)
{
	if (!ec_length_ok(length) || offset > length || len > length - offset)
		return -EINVAL;
	*plan = (struct ec_plan){.p = p,
				 .length = length,
				 .offset = offset,
				 .end = offset + len,
				 .row = offset / ec_row_bytes(p)};
	return 0;
}

/* The units wanted at the plan's row and cut, and in *@ret_len for how long that stays so. */
static uint32_t wanted(const struct ec_plan *plan, uint32_t *ret_len)
{
	const struct ec_policy *p = plan->p;
	uint32_t set = 0, until = p->cell;

	for (unsigned u = 0; u < p->k; u++) {
		const uint64_t cell = plan->row * ec_row_bytes(p) + (uint64_t)u * p->cell;
		const uint64_t here = cell + plan->cut;

		if (plan->end <= here || plan->offset >= cell + p->cell)
			continue;
		if (plan->offset > here) { /* comes in later */
			until = (uint32_t)min64(until, plan->offset - cell);
			continue;
		}
		set |= 1u << u;
		until = (uint32_t)min64(until, plan->end - cell);
	}
	*ret_len = until - plan->cut;
	return set;
}

bool ec_plan_next(struct ec_plan *plan, struct ec_band *ret)
{
	const struct ec_policy *p = plan->p;
	struct ec_band b = {0};

	while (!b.want) {
		const uint64_t row_at = plan->row * ec_row_bytes(p);

		if (row_at >= plan->end || plan->offset == plan->end)
			return false;
		b.at = plan->row * p->cell + plan->cut;
		b.want = wanted(plan, &b.len);
		for (unsigned u = 0; u < p->k; u++)
			if (b.want >> u & 1)
				b.dest[u] =
					row_at + (uint64_t)u * p->cell + plan->cut - plan->offset;
		plan->cut += b.len;
		if (plan->cut == p->cell) {
			plan->cut = 0;
			plan->row++;
		}
	}
	ec_have(p, plan->length, b.at, b.len, b.have);
	*ret = b;
	return true;
}

unsigned ec_targets(const struct ec_policy *p, uint64_t length, uint32_t live, uint32_t excluded,
		    unsigned max, uint8_t *ret_units)
{
	const uint32_t set = ec_units_existing(p, length) & ~live & ~excluded;
	unsigned n = 0;

	for (unsigned u = 0; u < units(p) && n < max; u++)
		if (set >> u & 1)
			ret_units[n++] = (uint8_t)u;
	return n;
}
