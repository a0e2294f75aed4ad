/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * crc_sliced - CRC32C eight bytes at a time by tables; only crc.c and its test include this
 *
 * Idea: ISA-L without PCLMULQDQ falls back to one byte at a time. Such processors are emulators
 * mostly, where every test of the RDMA path runs: in a TCG guest this is several times faster.
 * Source: the slicing-by-8 scheme of Kounavis and Berry, 2005.
 */
#include <stddef.h>
#include <stdint.h>

/** As crc32_iscsi(): neither inverts in nor out. */
uint32_t crc32c_sliced(const uint8_t *p, size_t len, uint32_t crc);
