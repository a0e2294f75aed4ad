/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** refuse - refusals that more than one call has */
struct req;

/** HadoopIllegalArgumentException: no erasure coding policy @name is enabled here. */
int refuse_ec_policy(struct req *q, const char *name);
