/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * dtp_ask - one question to another data node: an op that is answered by one BlockOpResponse
 *
 * Ownership: frees itself after done(). Threading: one reactor.
 * Source: hdfs-wire 5.2, 5.8.
 */
#include "datanode/block/engine.h"
#include "datatransfer.pb-c.h"

struct ask;
#define ASK_ANSWER_MAX (1u << 20)

/** Send @op (malloc'ed, as of dt_op_encode(); taken, also on failure) to @to. @done once, on the
 *  reactor: 0 with the answer, whatever its status (borrowed), or -errno with a sentence. -ENOMEM
 *  and the like at once. */
int dtp_ask(struct engine_core *core, const struct dn_target *to, uint8_t *op, size_t op_len,
	    void (*done)(void *arg, int rc, const Hd__BlockOpResponseProto *answer,
			 const struct err *err),
	    void *arg, struct ask **ret);
/** Before done(), which comes with -ECANCELED then. */
void dtp_ask_cancel(struct ask *a);
