/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * options - the command line of dfs-fuse, also as mount(8) writes it
 *
 * Idea: -o takes a list of ours and of what fuse and mount know; what nobody knows is one clear
 * line.
 * Ownership: strings are ours until options_free(). Threading: read only after options_parse().
 */
#include <stdbool.h>
#include <stdint.h>

#define CONF_MAX 64

struct fuse_args;

struct options {
	char *uri;                      /* "hdfs://HOST:PORT" or NAME; NULL: fs.defaultFS */
	char *dir;                      /* absolute, in the cluster */
	char *source;                   /* as mount shows it */
	char *mountpoint;               /* absolute */
	char *conf_dir;                 /* --conf, absolute; NULL: as every program */
	char *metrics;                  /* "HOST:PORT"; NULL: no web port */
	char *log;                      /* file of the log in the background; NULL: none */
	char *state;                    /* directory of the overlay, absolute; NULL: the default */
	const char *conf[CONF_MAX + 1]; /* -D */
	unsigned int conf_count;
	double attr_timeout, entry_timeout, negative_timeout; /* seconds */
	int64_t uid, gid, umask;                              /* -1: what HDFS says */
	unsigned int timeout_s;
	unsigned int threads, streams;
	unsigned int overlay_mib;
	unsigned int readahead_kib;
	int passthrough;
	int foreground, debug, allow_other, read_only, sync, nonempty;
	int help, version;
};

/** True: go on, with what is fuse's in @args. False: leave main() with *ret_exit. */
bool options_parse(struct options *o, struct fuse_args *args, int *ret_exit);
void options_free(struct options *o);
