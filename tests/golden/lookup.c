/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden/descriptors.h"

/* Longest first. */
static const struct {
	const char *theirs, *ours;
} packages[] = {
	{"hadoop.hdfs.datanodelifeline.", "hdl."},
	{"hadoop.hdfs.datanode.", "hdd."},
	{"hadoop.hdfs.namenode.", "hdn."},
	{"hadoop.hdfs.", "hd."},
	{"hadoop.common.", "hc."},
};

static const char *our_name(const char *theirs, char *buf, size_t size)
{
	for (size_t i = 0; i < sizeof(packages) / sizeof(*packages); i++) {
		size_t len = strlen(packages[i].theirs);

		if (strncmp(theirs, packages[i].theirs, len) != 0)
			continue;
		snprintf(buf, size, "%s%s", packages[i].ours, theirs + len);
		return buf;
	}
	return "";
}

const ProtobufCMessageDescriptor *descriptors_message(const char *hadoop_name)
{
	char buf[256];
	const char *name = our_name(hadoop_name, buf, sizeof(buf));

	for (size_t i = 0; i < message_descriptor_count; i++)
		if (!strcmp(message_descriptors[i]->name, name))
			return message_descriptors[i];
	return NULL;
}

const ProtobufCEnumDescriptor *descriptors_enum(const char *hadoop_name)
{
	char buf[256];
	const char *name = our_name(hadoop_name, buf, sizeof(buf));

	for (size_t i = 0; i < enum_descriptor_count; i++)
		if (!strcmp(enum_descriptors[i]->name, name))
			return enum_descriptors[i];
	return NULL;
}

void descriptors_each_row(const char *path, void (*fn)(void *arg, const struct tsv_row *r),
			  void *arg)
{
	FILE *f = fopen(path, "re");
	char line[2048];

	if (!f) {
		perror(path);
		exit(1);
	}
	while (fgets(line, sizeof(line), f)) {
		char *col[9], *rest = line;
		size_t n = 0;

		line[strcspn(line, "\n")] = '\0';
		if (line[0] == '#')
			continue;
		while (n < 9)
			col[n++] = rest ? strsep(&rest, "\t") : (char *)"";
		fn(arg, &(struct tsv_row){col[0], col[1], col[2], col[3], col[4], col[5], col[6],
					  col[7], col[8]});
	}
	fclose(f);
}
