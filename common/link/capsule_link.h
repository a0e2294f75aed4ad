/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * capsule_link - how capsules ride on verbs connections
 *
 * Idea: the transport needs to know where a message has its credits, what an empty one looks like
 * and how the private data is written (struct verbs_protocol); the capsule codec knows. This table
 * joins them; data node and client library use it alike.
 * Source: docs/wire.md sections 2, 3, 7.
 */
#include "common/transport/verbs.h"

extern const struct verbs_protocol capsule_link;
