/* SPDX-License-Identifier: Apache-2.0 */
/* Every message, field and enum value of messages.tsv that our .proto files cover is the same in
 * number, label, type and packing; and ours have nothing that Hadoop's do not have, but for the
 * optional fields from OWN_FROM on and the messages that are named here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/golden/descriptors.h"

#define TSV VECTORS_DIR "/../messages.tsv"

static const char *const types[] = {
	[PROTOBUF_C_TYPE_INT32] = "int32",       [PROTOBUF_C_TYPE_SINT32] = "sint32",
	[PROTOBUF_C_TYPE_SFIXED32] = "sfixed32", [PROTOBUF_C_TYPE_INT64] = "int64",
	[PROTOBUF_C_TYPE_SINT64] = "sint64",     [PROTOBUF_C_TYPE_SFIXED64] = "sfixed64",
	[PROTOBUF_C_TYPE_UINT32] = "uint32",     [PROTOBUF_C_TYPE_FIXED32] = "fixed32",
	[PROTOBUF_C_TYPE_UINT64] = "uint64",     [PROTOBUF_C_TYPE_FIXED64] = "fixed64",
	[PROTOBUF_C_TYPE_FLOAT] = "float",       [PROTOBUF_C_TYPE_DOUBLE] = "double",
	[PROTOBUF_C_TYPE_BOOL] = "bool",         [PROTOBUF_C_TYPE_ENUM] = "",
	[PROTOBUF_C_TYPE_STRING] = "string",     [PROTOBUF_C_TYPE_BYTES] = "bytes",
	[PROTOBUF_C_TYPE_MESSAGE] = "",
};
static const char *const labels[] = {
	[PROTOBUF_C_LABEL_REQUIRED] = "required",
	[PROTOBUF_C_LABEL_OPTIONAL] = "optional",
	[PROTOBUF_C_LABEL_REPEATED] = "repeated",
};

struct tally {
	size_t fields, values, bad;
	size_t seen[512]; /* rows per message descriptor */
};

#define OWN_FROM 1000

static const char *const own[] = {
	"hd.GetBlockLocationsResponseProto.fileId",
	"hd.ContentSummaryProto.stored",
	"hd.CreateRequestProto.firstBlock",
	"hd.CreateRequestProto.early",
	"hd.CreateResponseProto.firstBlock",
	"hd.CreateResponseProto.early",
	"hd.CompleteRequestProto.dropFirst",
	"hd.CompleteRequestProto.early",
	"hd.CompleteResponseProto.early",
	"hd.MkdirsRequestProto.exclusive",
	"hd.DatanodeInfoProto.stale",
	"hd.DatanodeInfoProto.failedVolumes",
	"hd.BlockOpResponseProto.keeps",
	"hd.BlockOpResponseProto.later",
	"hd.BlockOpResponseProto.takesSmall",
	"hd.OpReadBlockProto.asksSmall",
	"hd.OpWriteBlockProto.syncLater",
	"hd.OpWriteBlockProto.patienceMs",
	"hd.RecoveringBlockProto.allUnits",
};

static const char *const own_messages[] = {
	"hd.ReplaceBlocksRequestProto",
	"hd.ReplaceBlocksResponseProto",
	"hd.OpSyncLaterProto",
};

/* Fields that only our programs know. */
static size_t count_own(const ProtobufCMessageDescriptor *d)
{
	char full[256];
	size_t n = 0;

	for (size_t k = 0; k < sizeof(own_messages) / sizeof(own_messages[0]); k++)
		if (!strcmp(d->name, own_messages[k]))
			return d->n_fields;

	for (unsigned int i = 0; i < d->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];

		snprintf(full, sizeof(full), "%s.%s", d->name, f->name);
		for (size_t k = 0; k < sizeof(own) / sizeof(own[0]); k++)
			n += f->id >= OWN_FROM && f->label != PROTOBUF_C_LABEL_REQUIRED &&
			     !strcmp(full, own[k]);
	}
	return n;
}

static bool type_fits(const ProtobufCFieldDescriptor *f, const char *type)
{
	if (f->type == PROTOBUF_C_TYPE_ENUM)
		return f->descriptor == descriptors_enum(type);
	if (f->type == PROTOBUF_C_TYPE_MESSAGE)
		return f->descriptor == descriptors_message(type);
	return !strcmp(types[f->type], type);
}

static bool default_fits(const ProtobufCFieldDescriptor *f, const char *dflt)
{
	const ProtobufCEnumValue *v;

	if (!*dflt || !f->default_value)
		return !*dflt || !strcmp(dflt, "0") || !strcmp(dflt, "false");
	if (f->type == PROTOBUF_C_TYPE_BOOL)
		return *(const protobuf_c_boolean *)f->default_value == !strcmp(dflt, "true");
	if (f->type == PROTOBUF_C_TYPE_ENUM) {
		v = protobuf_c_enum_descriptor_get_value(f->descriptor,
							 *(const int *)f->default_value);
		return v && !strcmp(v->name, dflt);
	}
	if (f->type == PROTOBUF_C_TYPE_STRING)
		return !strcmp(f->default_value, dflt);
	if (strstr(types[f->type], "64"))
		return *(const int64_t *)f->default_value == strtoll(dflt, NULL, 10);
	return *(const int32_t *)f->default_value == strtol(dflt, NULL, 10);
}

static bool field_fits(const ProtobufCMessageDescriptor *d, const struct tsv_row *r)
{
	const ProtobufCFieldDescriptor *f =
		protobuf_c_message_descriptor_get_field_by_name(d, r->name);

	return f && f->id == strtoul(r->number, NULL, 10) && !strcmp(labels[f->label], r->label) &&
	       type_fits(f, r->type) && default_fits(f, r->dflt) &&
	       !(f->flags & PROTOBUF_C_FIELD_FLAG_PACKED) == !*r->packed;
}

static void count_message(struct tally *t, const ProtobufCMessageDescriptor *d)
{
	for (size_t i = 0; i < message_descriptor_count; i++)
		t->seen[i] += message_descriptors[i] == d;
}

static void check_row(void *arg, const struct tsv_row *r)
{
	const ProtobufCMessageDescriptor *m = descriptors_message(r->full);
	const ProtobufCEnumDescriptor *e = descriptors_enum(r->full);
	const ProtobufCEnumValue *v;
	struct tally *t = arg;
	bool fits = true;

	if (!strcmp(r->kind, "message-field") && m && strcmp(r->name, "-") != 0) {
		fits = field_fits(m, r);
		count_message(t, m);
		t->fields++;
	} else if (!strcmp(r->kind, "enum-value") && e) {
		v = protobuf_c_enum_descriptor_get_value_by_name(e, r->name);
		fits = v && v->value == strtol(r->number, NULL, 10);
		t->values++;
	}
	if (!fits) {
		print_error("%s.%s differs\n", r->full, r->name);
		t->bad++;
	}
}

static void our_messages_are_those_of_hadoop(void **state)
{
	struct tally t = {0};

	(void)state;
	assert_true(message_descriptor_count <= 512);
	descriptors_each_row(TSV, check_row, &t);
	for (size_t i = 0; i < message_descriptor_count; i++)
		if (t.seen[i] + count_own(message_descriptors[i]) !=
		    message_descriptors[i]->n_fields) {
			print_error("%s has fields of its own\n", message_descriptors[i]->name);
			t.bad++;
		}
	print_message("%zu messages, %zu fields, %zu enum values compared\n",
		      message_descriptor_count, t.fields, t.values);
	assert_int_equal(t.bad, 0);
	assert_true(t.fields > 1000 && t.values > 190);
}

/* protobuf-c unpacks by recursion without a limit: safe only while no message contains itself. */
static unsigned int depth(const ProtobufCMessageDescriptor *d, unsigned int level)
{
	unsigned int most = 1;

	assert_true(level < 20);
	for (unsigned int i = 0; i < d->n_fields; i++) {
		unsigned int n;

		if (d->fields[i].type != PROTOBUF_C_TYPE_MESSAGE)
			continue;
		n = 1 + depth(d->fields[i].descriptor, level + 1);
		most = n > most ? n : most;
	}
	return most;
}

static void no_message_contains_itself(void **state)
{
	(void)state;
	for (size_t i = 0; i < message_descriptor_count; i++)
		depth(message_descriptors[i], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(our_messages_are_those_of_hadoop),
		cmocka_unit_test(no_message_contains_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
