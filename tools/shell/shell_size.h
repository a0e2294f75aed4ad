/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * shell_size - numbers as Hadoop's shell writes them
 *
 * Idea: -h divides by 1024 and has one digit behind the point, rounded half up, and none where the
 * number is a whole one: 1.5 K, 2 M. Threading: pure.
 * Source: Hadoop's StringUtils.TraditionalBinaryPrefix.
 */
#include <stdbool.h>
#include <stdint.h>

/** "1.5 K" with @human, else digits. Returns @buf. */
const char *shell_size(char buf[32], uint64_t n, bool human);
