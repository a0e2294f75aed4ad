/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/dtp/dtp_buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dtp_buf_reserve(struct dtp_buf *b, uint32_t total)
{
	const uint32_t len = dtp_buf_len(b);
	uint32_t size = b->size ? b->size : DTP_BUF;
	uint8_t *data;

	if (total > DTP_BUF_MAX)
		return -EMSGSIZE;
	if (b->start + total <= b->size)
		return 0;
	while (size < total)
		size *= 2;
	if (size == b->size) {
		memmove(b->data, dtp_buf_at(b), len);
	} else {
		data = malloc(size);
		if (!data)
			return -ENOMEM;
		if (len)
			memcpy(data, dtp_buf_at(b), len);
		free(b->data);
		b->data = data;
		b->size = size;
	}
	b->start = 0;
	b->end = len;
	return 0;
}
