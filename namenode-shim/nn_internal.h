/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** nn_internal - what writer_thread.c needs of apply_effects.c, and the simulator of
 * writer_thread.c. All of it runs on the writer thread, nn_apply() with mem_lock held for writing.
 */
#include "namenode-shim/nn.h"

/** Returns how many there are. */
uint32_t nn_apply(struct nn *nn, const struct effect_list *l);
/** The tree whose end @q waits for; 0: none. */
uint64_t nn_tree_waited_for(const struct req *q);
/** Deletes whose tree is gone, or cannot go, to @done. */
void nn_take_deleted(struct nn *nn, struct list *done);
/** A turn of the writer: sleep until there is something to do, and do it. False: it is told to
 *  stop, and nothing is left. */
bool nn_turn(struct nn *nn);
