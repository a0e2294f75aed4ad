/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * capsule_port - the RDMA front end of the data port, and its way to the next node
 *
 * Idea: capsules (docs/wire.md) instead of DataTransferProtocol. As acceptor it turns capsules into
 * pieces of the engine: payload is pulled straight into the engine's slots and pushed straight out
 * of them. As dialer it is a piece_sink that names our slots to the next node; when there is no
 * RDMA to that node, the stream sink takes over before anything was sent, and the node is
 * remembered.
 * Every reactor accepts and dials. They share the control thread of the first one, which gives each
 * connection to the reactor that has the fewest.
 * Threading: the core's reactor.
 */
#include "datanode/block/engine.h"

struct capsule_port;

/** Sets core->caps. dfs.rdma.enabled auto: no device is fine (@err says why, 0 is returned).
 *  @first: of the node, which starts before the others. */
int capsule_start(struct engine_core *core, const struct engine_core *first, struct err *err);
/** Accept no more, let go of idle connections. */
void capsule_stop(struct engine_core *core);
/** Close every connection; they drain by themselves. */
void capsule_close_all(struct engine_core *core);
/** All connections are gone: devices are told to let go of what is registered for cached blocks.
 *  Accepts a core without caps, as the next two do. */
void capsule_let_go(struct engine_core *core);
/** Of how many of these they have not let go yet. */
uint32_t capsule_held(const struct engine_core *core);
/** All connections gone, or it waits a few seconds for them; nothing is held. False: a device does
 *  not let go of the core's pool, see verbs_free(). */
bool capsule_free(struct engine_core *core);
/** Slots of 8 KiB that the receives of a core keep: dfs.rdma.receives, for each device. */
int capsule_receive_slots(const struct engine_core *core, uint32_t *ret, struct err *err);

/** The pool for what sources read by RDMA; NULL: there is none here. */
struct pool *capsule_landing(const struct engine_core *core);
