/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold, whatever the nodes of a group answer: it is cut to the rows of which k units have
 * every byte, never longer, and not shorter; a unit that takes part has exactly its share of that;
 * one that is shorter, older or somebody else's is left out; when enough units cannot be told
 * nothing is changed, but when all nodes answered and there cannot be enough the group is dropped;
 * nothing is committed that a node did not confirm. */
#include "datanode/bp/block_recovery_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GROUP_ID (-1024)
#define GS 1000u
#define RECOVERY_ID 1007u

static struct bp_set set;
static uint64_t rnd = 1;

static uint32_t random_below(uint32_t n)
{
	rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(rnd >> 33) % n;
}

/* ---- the nodes, as the test sets them up ---- */

enum answer { ANSWER_REPLICA, ANSWER_NONE, ANSWER_OLDER, ANSWER_SILENT, ANSWER_BUSY };

static struct script {
	enum answer answer;
	struct block says;
	bool refuses;        /* the update */
	uint64_t updated_to; /* UINT64_MAX: it was not asked to */
} script[LOCS_MAX];

static struct commit {
	int count;
	uint64_t len;
	bool delete;
	size_t targets;
	const struct holder *target[EC_UNITS_MAX];
} commit;

static struct holder holders[LOCS_MAX];
static struct recovery_job job;

static struct script *script_of(const struct holder *h)
{
	return &script[h - job.holders];
}

int holder_init(struct recovery_job *j, struct holder *h, bool *ret_found, struct err *err)
{
	const struct script *s = script_of(h);

	assert_ptr_equal(j, &job);
	switch (s->answer) {
	case ANSWER_REPLICA:
		*ret_found = true;
		h->block = s->says;
		return 0;
	case ANSWER_NONE:
		return 0;
	case ANSWER_OLDER:
		return err_set(err, -ENODATA, "of an older stamp");
	case ANSWER_SILENT:
		return err_set(err, -ETIMEDOUT, "no answer");
	case ANSWER_BUSY:
		return -EBUSY;
	}
	return -EINVAL;
}

int holder_update(struct recovery_job *j, struct holder *h, uint64_t len, int64_t new_id,
		  struct err *err)
{
	struct script *s = script_of(h);

	assert_ptr_equal(j, &job);
	assert_int_equal(new_id, h->ask.id); /* a unit keeps its id */
	if (s->refuses)
		return err_set(err, -EIO, "it cannot");
	assert_true(s->updated_to == UINT64_MAX); /* once */
	s->updated_to = len;
	h->updated = true;
	return 0;
}

int recovery_commit(struct recovery_job *j, uint64_t len, bool delete,
		    const struct holder *const *targets, size_t n, struct err *err)
{
	(void)err;
	assert_ptr_equal(j, &job);
	assert_true(n <= EC_UNITS_MAX);
	commit = (struct commit){
		.count = commit.count + 1, .len = len, .delete = delete, .targets = n};
	for (size_t i = 0; i < n; i++)
		commit.target[i] = targets[i];
	return 0;
}

/* A group of @p of which nobody has said anything yet. */
static void begin(const struct ec_policy *p)
{
	memset(&job, 0, sizeof(job));
	memset(holders, 0, sizeof(holders));
	job.holders = holders;
	memset(&commit, 0, sizeof(commit));
	set.stop = false;
	job.set = &set;
	job.block = (struct block){GROUP_ID, GS, 0};
	job.recovery_id = RECOVERY_ID;
	job.striped = true;
	job.policy = *p;
}

static struct script *add_node(unsigned int unit, enum answer answer, uint64_t len)
{
	const int64_t id = ec_id_of(GROUP_ID, unit);
	struct script *s = &script[job.count];

	job.holders[job.count].ask = (struct block){id, GS, 0};
	job.count++;
	*s = (struct script){.answer = answer, .says = {id, GS, len}, .updated_to = UINT64_MAX};
	return s;
}

static int recover(uint64_t *ret_len)
{
	struct err err = ERR_INIT;
	const int rc = recover_striped(&job, ret_len, &err);

	assert_true(rc == 0 || rc == -EBUSY || rc == -ECANCELED || err.text[0]);
	return rc;
}

static void nothing_changed(void)
{
	assert_int_equal(commit.count, 0);
	for (uint32_t i = 0; i < job.count; i++)
		assert_true(script[i].updated_to == UINT64_MAX);
}

/* ---- a slow way to the same end ---- */

/* Row by row, until one is not whole in k units; the last one may have ended early, unless the last
 * data unit has it or some unit goes on. */
static uint64_t expected_length(const struct ec_policy *p, const uint64_t *longest)
{
	unsigned int whole;
	bool goes_on = false;
	uint64_t rows = 0;

	do {
		whole = 0;
		for (unsigned int u = 0; u < EC_UNITS_MAX; u++)
			whole += longest[u] >= (rows + 1) * p->cell;
		rows += whole >= p->k;
	} while (whole >= p->k);
	for (unsigned int u = 0; u < EC_UNITS_MAX; u++)
		goes_on |= longest[u] > rows * p->cell;
	if (rows && !goes_on && longest[p->k - 1] < rows * p->cell)
		rows--;
	return rows * p->k * p->cell;
}

static const struct ec_policy *random_policy(void)
{
	static const unsigned int ids[] = {EC_ID_RS_3_2, EC_ID_RS_6_3, EC_ID_RS_10_4,
					   EC_ID_XOR_2_1};

	return ec_policy_by_id(ids[random_below(4)]);
}

static uint64_t random_length(const struct ec_policy *p)
{
	const uint64_t cells = (uint64_t)random_below(4) * p->cell;

	switch (random_below(4)) {
	case 0:
		return cells;
	case 1:
		return cells + 1;
	case 2:
		return cells + p->cell - 1;
	default:
		return cells + random_below(p->cell);
	}
}

/* Nodes that answer in all ways; the longest good replica of each unit in @longest. Returns how
 * many do not answer. */
static unsigned int random_nodes(const struct ec_policy *p, uint64_t *longest)
{
	const unsigned int nodes = p->k + random_below(2u * p->m + 2);
	unsigned int silent = 0;

	for (unsigned int i = 0; i < nodes; i++) {
		const unsigned int unit = i < (unsigned int)p->k + p->m && random_below(8)
						  ? i
						  : random_below(p->k + p->m);
		const uint64_t len = random_length(p);
		struct script *s = add_node(unit, ANSWER_REPLICA, len);

		switch (random_below(12)) {
		case 0:
			s->answer = ANSWER_NONE;
			continue;
		case 1:
			s->answer = ANSWER_SILENT;
			silent++;
			continue;
		case 2:
			s->says.gs = GS - 1; /* of before a failure that the writer outlived */
			continue;
		case 3:
			s->says.id = ec_id_of(GROUP_ID, (unit + 1) % (p->k + p->m));
			continue;
		case 4:
			s->says.len = UINT64_MAX - random_below(1000);
			silent++;
			continue;
		default:
			break;
		}
		longest[unit] = len > longest[unit] ? len : longest[unit];
	}
	return silent;
}

static unsigned int not_asked(const struct ec_policy *p)
{
	bool asked[EC_UNITS_MAX] = {false};
	unsigned int n = (unsigned int)p->k + p->m;

	for (uint32_t i = 0; i < job.count; i++) {
		const unsigned int unit = (unsigned int)(job.holders[i].ask.id - GROUP_ID);

		n -= !asked[unit];
		asked[unit] = true;
	}
	return n;
}

static void check_parts(const struct ec_policy *p, const uint64_t *longest, uint64_t len)
{
	assert_int_equal(commit.count, 1);
	assert_false(commit.delete);
	assert_true(commit.len == len);
	assert_int_equal(commit.targets, p->k + p->m);
	for (unsigned int u = 0; u < (unsigned int)p->k + p->m; u++) {
		const uint64_t share = ec_unit_length(p, len, u);
		const struct holder *h = commit.target[u];

		assert_int_equal(h != NULL, longest[u] > 0 && longest[u] >= share);
		if (!h)
			continue;
		assert_true(h->ask.id == ec_id_of(GROUP_ID, u) && h->updated);
		assert_true(script_of(h)->updated_to == share &&
			    script_of(h)->says.len == longest[u]);
	}
	for (uint32_t i = 0; i < job.count; i++) /* who was changed is in the list */
		if (script[i].updated_to != UINT64_MAX)
			assert_ptr_equal(commit.target[ec_id_unit(job.holders[i].ask.id)],
					 &job.holders[i]);
}

static void a_group_is_cut_to_the_rows_that_k_units_have(void **state)
{
	unsigned int committed = 0, dropped = 0, refused = 0;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		const struct ec_policy *p = random_policy();
		uint64_t longest[EC_UNITS_MAX] = {0}, len = 1;
		unsigned int silent, units = 0;
		int rc;

		begin(p);
		silent = random_nodes(p, longest);
		for (unsigned int u = 0; u < EC_UNITS_MAX; u++)
			units += longest[u] > 0;
		rc = recover(&len);
		if (!silent && units + not_asked(p) < p->k) {
			assert_int_equal(rc, 0);
			assert_int_equal(commit.count, 1);
			assert_true(commit.delete &&len == 0);
			dropped++;
		} else if (units < p->k) {
			assert_int_equal(rc, -EAGAIN);
			nothing_changed();
			refused++;
		} else {
			assert_int_equal(rc, 0);
			assert_true(len == expected_length(p, longest));
			if (len)
				check_parts(p, longest, len);
			assert_int_equal(commit.delete, !len);
			committed++;
		}
	}
	assert_true(committed > 1000 && refused > 1000 && dropped > 10); /* the dice reached them */
}

static void a_group_without_a_byte_is_dropped_unless_somebody_is_silent(void **state)
{
	uint64_t len;

	(void)state;
	for (unsigned int silent = 0; silent < 2; silent++) {
		begin(ec_policy_by_id(EC_ID_RS_3_2));
		for (unsigned int u = 0; u < 4; u++)
			add_node(u, u % 2 ? ANSWER_NONE : ANSWER_REPLICA, 0);
		add_node(4, silent ? ANSWER_SILENT : ANSWER_OLDER, 0);
		assert_int_equal(recover(&len), silent ? -EAGAIN : 0);
		assert_int_equal(commit.count, !silent);
		assert_int_equal(commit.delete, !silent);
	}
}

/* A log's writer that dies in the first row of a group: one unit to k - 1 of them have some of it.
 */
static void a_group_that_ends_in_its_first_row_is_dropped_when_all_nodes_say_so(void **state)
{
	uint64_t len;

	(void)state;
	for (unsigned int there = 1; there <= 3; there++)
		for (unsigned int silent = 0; silent < 2; silent++) {
			begin(ec_policy_by_id(EC_ID_RS_3_2));
			for (unsigned int u = 0; u < 4; u++)
				add_node(u, u < there ? ANSWER_REPLICA : ANSWER_NONE,
					 u + 1 < there ? 1 << 20 : 70000);
			add_node(4, silent ? ANSWER_SILENT : ANSWER_NONE, 0);
			if (there == 3) { /* enough, and no row in them */
				assert_int_equal(recover(&len), 0);
				assert_true(commit.delete &&commit.len == 0);
				continue;
			}
			assert_int_equal(recover(&len), silent ? -EAGAIN : 0);
			assert_int_equal(commit.delete, !silent);
			assert_int_equal(commit.count, !silent);
		}
	begin(ec_policy_by_id(EC_ID_RS_3_2)); /* one was not asked, and would be the third */
	for (unsigned int u = 0; u < 4; u++)
		add_node(u, u < 2 ? ANSWER_REPLICA : ANSWER_NONE, 1 << 20);
	assert_int_equal(recover(&len), -EAGAIN);
	nothing_changed();
	job.all_units = true; /* nobody has that one */
	assert_int_equal(recover(&len), 0);
	assert_true(commit.count == 1 && commit.delete);
	begin(ec_policy_by_id(EC_ID_RS_3_2));
	add_node(0, ANSWER_REPLICA, 1 << 20);
	assert_int_equal(recover(&len), -EAGAIN);
	job.all_units = true;
	assert_int_equal(recover(&len), 0);
	assert_true(commit.count == 1 && commit.delete);
}

/* Two rows; the second has @written bytes, whose parity was sent as a flush does: nobody is to read
 * the zeros behind them. */
static void a_row_that_ended_early_is_not_filled_up(void **state)
{
	const uint32_t cell = 1 << 20;
	uint64_t len;

	(void)state;
	for (uint32_t written = cell; written <= 3 * cell; written += cell / 2)
		for (unsigned int dead = 0; dead < 6; dead++) {
			const struct ec_policy *p = ec_policy_by_id(EC_ID_RS_3_2);
			const uint64_t all = 3ull * cell + written;

			begin(p);
			for (unsigned int u = 0; u < 5; u++)
				add_node(u, u == dead ? ANSWER_SILENT : ANSWER_REPLICA,
					 ec_unit_length(p, all, u));
			assert_int_equal(recover(&len), 0);
			assert_true(len ==
				    (written == 3 * cell && dead != 2 ? 6u : 3u) * (uint64_t)cell);
		}
}

static void another_recovery_that_is_ahead_ends_this_one(void **state)
{
	uint64_t len;

	(void)state;
	for (unsigned int ahead = 0; ahead < 5; ahead++) {
		begin(ec_policy_by_id(EC_ID_RS_3_2));
		for (unsigned int u = 0; u < 5; u++)
			add_node(u, u == ahead ? ANSWER_BUSY : ANSWER_REPLICA, 3 << 20);
		assert_int_equal(recover(&len), -EBUSY);
		nothing_changed();
	}
}

static void a_unit_that_cannot_be_cut_leaves_the_group_open(void **state)
{
	uint64_t len;

	(void)state;
	for (unsigned int bad = 0; bad < 5; bad++) {
		begin(ec_policy_by_id(EC_ID_RS_3_2));
		for (unsigned int u = 0; u < 5; u++)
			add_node(u, ANSWER_REPLICA, 3 << 20)->refuses = u == bad;
		assert_int_equal(recover(&len), -EIO);
		assert_int_equal(commit.count, 0);
	}
}

static void a_node_that_stops_changes_nothing_more(void **state)
{
	uint64_t len;

	(void)state;
	begin(ec_policy_by_id(EC_ID_RS_3_2));
	for (unsigned int u = 0; u < 5; u++)
		add_node(u, ANSWER_REPLICA, 3 << 20);
	set.stop = true;
	assert_int_equal(recover(&len), -ECANCELED);
	nothing_changed();
}

static void fewer_nodes_than_data_units_are_too_few(void **state)
{
	uint64_t len;

	(void)state;
	begin(ec_policy_by_id(EC_ID_RS_3_2));
	for (unsigned int u = 0; u < 2; u++)
		add_node(u, ANSWER_REPLICA, 3 << 20);
	assert_int_equal(recover(&len), -EAGAIN);
	nothing_changed();
}

/* ---- orders ---- */

/* An order for a group of RS-3-2 with these units; the parts are changed by the test. */
static int fill(int64_t id, const uint8_t *units, size_t n, uint32_t nodes, bool truncate)
{
	Hd__RecoveringBlockProto rb = HD__RECOVERING_BLOCK_PROTO__INIT;
	Hd__BlockProto cut = HD__BLOCK_PROTO__INIT;

	begin(ec_policy_by_id(EC_ID_RS_3_2));
	job.block.id = id;
	job.count = nodes;
	rb.has_blockindices = 1;
	rb.blockindices = (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)units};
	rb.truncateblock = truncate ? &cut : NULL;
	return recover_striped_fill(&job, &rb);
}

static void an_order_that_does_not_fit_its_policy_is_refused(void **state)
{
	static const uint8_t good[] = {4, 0, 2, 2, 1}, beyond[] = {0, 1, 2, 3, 5},
			     far[] = {0, 1, 2, 3, 255};

	(void)state;
	assert_int_equal(fill(GROUP_ID, good, 5, 5, false), 0);
	for (unsigned int i = 0; i < 5; i++)
		assert_true(job.holders[i].ask.id == GROUP_ID + good[i]);
	assert_int_equal(fill(GROUP_ID, good, 4, 5, false), -EPROTO);
	assert_int_equal(fill(GROUP_ID, good, 5, 4, false), -EPROTO);
	assert_int_equal(fill(GROUP_ID, NULL, 0, 5, false), -EPROTO);
	assert_int_equal(fill(GROUP_ID, beyond, 5, 5, false), -EPROTO);
	assert_int_equal(fill(GROUP_ID, far, 5, 5, false), -EPROTO);
	assert_int_equal(fill(GROUP_ID + 1, good, 5, 5, false), -EPROTO); /* a unit */
	assert_int_equal(fill(1024, good, 5, 5, false), -EPROTO);         /* an ordinary block */
	/* HDFS truncates no group */
	assert_int_equal(fill(GROUP_ID, good, 5, 5, true), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_group_is_cut_to_the_rows_that_k_units_have),
		cmocka_unit_test(a_group_without_a_byte_is_dropped_unless_somebody_is_silent),
		cmocka_unit_test(
			a_group_that_ends_in_its_first_row_is_dropped_when_all_nodes_say_so),
		cmocka_unit_test(a_row_that_ended_early_is_not_filled_up),
		cmocka_unit_test(another_recovery_that_is_ahead_ends_this_one),
		cmocka_unit_test(a_unit_that_cannot_be_cut_leaves_the_group_open),
		cmocka_unit_test(a_node_that_stops_changes_nothing_more),
		cmocka_unit_test(fewer_nodes_than_data_units_are_too_few),
		cmocka_unit_test(an_order_that_does_not_fit_its_policy_is_refused),
	};

	log_init("recovery_striped_test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
