/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** mini_internal - what the two files of dfs-mini share: mini.c has options, DIR and processes,
 * mini_conf.c ports, configuration and start scripts. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define NODES_MAX 64

struct node {
	char name[24]; /* "namenode", "datanode1" */
	pid_t pid;     /* 0: not running */
};

struct mini {
	uint32_t datanodes;
	const char *host;
	uint16_t port; /* of the NameNode; 0: a free one */
	bool format;
	const char *conf[256]; /* -D, as given */
	uint32_t conf_count;
	char dir[512];
	char bin[512]; /* folder of this program */
	bool temporary;
	int lock_fd;
	struct node node[NODES_MAX + 1]; /* [0] is the NameNode */
	uint16_t ports[2 + 3 * NODES_MAX];
};

/* mini.c */
/** Says it on stderr. Returns -1. */
__attribute__((format(printf, 1, 2))) int mini_fail(const char *fmt, ...);
/** DIR/@name, empty. NULL: it was said why not. */
FILE *mini_create_file(const struct mini *m, const char *name, mode_t mode);
/** 0, or -1: not all was written, which was said. */
int mini_close_file(FILE *f, const char *name);

/* mini_conf.c: 0, or -1, and it was said why. */
int mini_choose_ports(struct mini *m);
int mini_write_conf(const struct mini *m);
/** DIR/start/NAME of node @i. */
int mini_write_start(const struct mini *m, uint32_t i);
