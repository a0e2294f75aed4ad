/* SPDX-License-Identifier: Apache-2.0 */
/* dfs - the command line: `dfs CMD ...`, or `dfs-CMD ...` by the name it is called by; and, in the
 * words of Hadoop, `dfs -CMD ...`. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "tools/cli.h"
#include "tools/shell/shell.h"

static const struct cli_command COMMANDS[] = {
	{"put", cmd_put, "rfjqABEJ", OPERANDS_LAST_REMOTE, 2, -1, "LOCAL... PATH",
	 "Copy local files (`-`: standard input) into the cluster. With several, or when PATH is a\n"
	 "directory, into it. A file appears under its name only when it is whole. Directories need -r.\n"
	 "With --append the bytes go to the end of files that exist."},
	{"get", cmd_get, "rfjqJ", OPERANDS_LAST_LOCAL, 2, -1, "PATH... LOCAL",
	 "Copy files to the local disk (`-`: standard output). Every byte is checked against its CRC;\n"
	 "a file appears under its name only when it is whole. Directories need -r; symbolic links in them\n"
	 "are named and left out, and the status is 1 then."},
	{"cat", cmd_cat, "", OPERANDS_REMOTE, 1, -1, "PATH...", "Write files to standard output."},
	{"ls", cmd_ls, "rhJ", OPERANDS_REMOTE, 0, -1, "[PATH]...",
	 "List directories and files, in the order of names."},
	{"mkdir", cmd_mkdir, "pJ", OPERANDS_REMOTE, 1, -1, "PATH...", "Make directories."},
	{"rm", cmd_rm, "rfJ", OPERANDS_REMOTE, 1, -1, "PATH...",
	 "Delete files; directories with -r. They are gone at once: only other clients use the trash."},
	{"mv", cmd_mv, "fJ", OPERANDS_REMOTE, 2, -1, "PATH... TARGET",
	 "Rename; into TARGET when it is a directory."},
	{"stat", cmd_stat, "J", OPERANDS_REMOTE, 1, -1, "PATH...",
	 "All that is known of a path, and where its blocks are."},
	{"df", cmd_df, "hJ", OPERANDS_REMOTE, 0, 0, "",
	 "Capacity, used and free bytes of the cluster."},
	{"du", cmd_du, "shJ", OPERANDS_REMOTE, 0, -1, "[PATH]...",
	 "Bytes of files below each entry, and of all their replicas.\n"
	 "(In an Apache cluster: what the replicas should have.)"},
	{"touch", cmd_touch, "J", OPERANDS_REMOTE, 1, -1, "PATH...",
	 "Make empty files; of existing ones, set the times to now."},
	{"append", cmd_append, "jqNJ", OPERANDS_LAST_REMOTE, 2, -1, "LOCAL... PATH",
	 "Write local files (`-`: standard input) to the end of PATH; it is made when it\n"
	 "is missing. Interrupted, PATH keeps what had arrived."},
	{"truncate", cmd_truncate, "wJ", OPERANDS_FIRST_OTHER, 2, -1, "LENGTH PATH...",
	 "Cut files to LENGTH. Inside a block the data nodes need some seconds, in which the file is not\n"
	 "to be written; -w waits for them, for 10 minutes at most."},
	{"concat", cmd_concat, "J", OPERANDS_REMOTE, 2, -1, "TARGET SOURCE...",
	 "Move the blocks of SOURCEs, files of the same directory, to the end of TARGET; SOURCEs are gone."},
	{"recover-lease", cmd_recover_lease, "wJ", OPERANDS_REMOTE, 1, -1, "PATH...",
	 "Close files whose writer is gone; it may not write any more. -w waits until they are closed, for\n"
	 "10 minutes at most."},
	{"setrep", cmd_setrep, "rwJ", OPERANDS_FIRST_OTHER, 2, -1, "N PATH...",
	 "Keep N replicas of each block; -w waits until there are N, for 10 minutes at most."},
	{"chmod", cmd_chmod, "rJ", OPERANDS_FIRST_OTHER, 2, -1, "MODE PATH...",
	 "Change permissions: 0640, 1777, u+rwx,go-w, a=rX."},
	{"chown", cmd_chown, "rJ", OPERANDS_FIRST_OTHER, 2, -1, "OWNER[:GROUP] PATH...",
	 "Change the owner, the group (:GROUP), or both."},
	{"chgrp", cmd_chgrp, "rJ", OPERANDS_FIRST_OTHER, 2, -1, "GROUP PATH...",
	 "Change the group."},
	{"acl", cmd_acl, "rJ", OPERANDS_FIRST_OTHER, 2, -1, "OPERATION [ENTRY,...] PATH...",
	 "Access control lists; -r for all below. An ENTRY is [default:]user|group|mask|other:[NAME]:rwx.\nOperations:\n"
	 "get PATH...             the whole list, with what the mask leaves of an entry\n"
	 "set ENTRIES PATH...     these instead of what is there; access and default entries apart\n"
	 "modify ENTRIES PATH...  add these, or change them\n"
	 "remove ENTRIES PATH...  take these away (user:NAME)\n"
	 "clear PATH...           all but owner, group and others\n"
	 "clear-default PATH...   the default entries"},
	{"quota", cmd_quota, "hJ", OPERANDS_REMOTE, 0, -1, "[PATH]...",
	 "Names and bytes (all replicas) below each directory, and the limits set for it."},
	{"ec", cmd_ec, "rqJ", OPERANDS_FIRST_OTHER, 1, -1, "OPERATION [OPERAND]...",
	 "Erasure coding: the policies, who uses them, and whether the bytes are right. Operations:\n"
	 "list                    the policies the NameNode knows, and their state\n"
	 "get PATH...             the policy of files, and of what is made in directories\n"
	 "set PATH [POLICY]       what is made in the directory PATH from now on; without POLICY the\n"
	 "                        NameNode's default, \"replication\" for none; files that are there stay;\n"
	 "                        fewer data nodes than it has units: a warning, as with put and enable\n"
	 "unset PATH...           take the policy of directories away; that of their parents holds\n"
	 "enable|disable POLICY...\n"
	 "                        may new files use it\n"
	 "add POLICY...           make RS-4-2-64k known: codec, data and parity units, cell size\n"
	 "remove POLICY...        of those that were added\n"
	 "verify PATH...          read all units of files and compare parity with data; each unit that is\n"
	 "                        missing or wrong is named, and the status is 1 then; -r for directories\n"
	 "convert PATH... POLICY  rewrite files; verified, renamed into place with rights, ACL, times,\n"
	 "                        xattrs, storage policy; -r for directories, whose policy stays;\n"
	 "                        interrupted, the same command goes on where it was"},
	{"cacheadmin", cmd_cacheadmin, "J-", OPERANDS_FIRST_OTHER, 1, -1, "OPERATION [WORD]...",
	 "What data nodes keep in memory, in the words of hdfs cacheadmin. They need\n"
	 "dfs.datanode.max.locked.memory. Options of this command come before the operation. A TTL\n"
	 "is 30s, 20m, 2h, 1d or never. Operations:\n"
	 "-addDirective -path PATH -pool POOL [-force] [-replication N] [-ttl TTL]\n"
	 "                        cache a file, or the files of a directory, N times; -force: over the limit\n"
	 "                        of the pool, too (what is over it is not cached)\n"
	 "-modifyDirective -id ID [-path PATH] [-force] [-replication N] [-pool POOL] [-ttl TTL]\n"
	 "-removeDirective ID\n"
	 "-removeDirectives -path PATH\n"
	 "-listDirectives [-stats] [-path PATH] [-pool POOL] [-id ID]\n"
	 "                        -stats: what is needed, and what is cached\n"
	 "-addPool NAME [-owner USER] [-group GROUP] [-mode MODE] [-limit BYTES|unlimited]\n"
	 "                        [-defaultReplication N] [-maxTtl TTL]\n"
	 "                        who may write a pool gives directives in it; who may read it sees them\n"
	 "-modifyPool NAME [-owner USER] ...\n"
	 "-removePool NAME        with its directives\n"
	 "-listPools [-stats] [NAME]"},
	{"fsck", cmd_fsck, "-", OPERANDS_REMOTE, 0, -1, "[PATH] [-files] [-blocks] ...",
	 "Whether the blocks of all files below PATH are there, in the words of hdfs fsck. It asks the\n"
	 "NameNode's web server (dfs.namenode.http-address). Options of this command come first. -files\n"
	 "-blocks -locations -racks -replicaDetails -openforwrite -storagepolicies -delete -move\n"
	 "-blockId ID... Exit status: 0 healthy, 1 corrupt, 2 decommissioned, 3 being decommissioned, 255\n"
	 "none of these."},
	{"admin", cmd_admin, "QJ", OPERANDS_FIRST_OTHER, 1, -1, "OPERATION [OPERAND]...",
	 "Look at the cluster and steer it. Operations:\n"
	 "report                  the data nodes, their addresses, capacity and state\n"
	 "safemode get|enter|leave|force-exit|wait\n"
	 "                        is the NameNode in safe mode; change it; wait until it is out of it\n"
	 "refresh-nodes           read the lists of admitted and excluded data nodes again\n"
	 "open-files [PATH]       files that are being written, and by whom\n"
	 "ops NODE                what a data node is doing: each read, write and reconstruction, its state,\n"
	 "                        what it waits for and since when; also http://NODE/ops. Without a NameNode\n"
	 "                        NODE is HOST:PORT of its web server (dfs.datanode.http.address)\n"
	 "set-quota PATH...       limit directories, with --names and --space\n"
	 "topology                the racks, and the data nodes in each\n"
	 "balancer-bandwidth BYTES\n"
	 "                        what each data node may spend on balancing a second, until it starts again"},
};
#define COMMAND_COUNT (sizeof(COMMANDS) / sizeof(COMMANDS[0]))

static void print_commands(FILE *f)
{
	fputs("usage: dfs COMMAND [OPTION]... OPERAND...     (or dfs-COMMAND ...)\n\n", f);
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		fprintf(f, "  %-13s %-22s %.*s\n", COMMANDS[i].name, COMMANDS[i].usage,
			(int)strcspn(COMMANDS[i].help, ".;\n"), COMMANDS[i].help);
	fputs("\nPATHs are absolute, or relative to /user/NAME; hdfs://HOST:PORT/PATH names the file system as well.\n"
	      "LOCAL is a file of this machine, also as file:///PATH.\n"
	      "Symbolic links in the file system are not followed. ls, stat, rm and mv take a link for itself; a command\n"
	      "that needs its target fails and says where it leads; chmod -r and the like leave links as they are.\n"
	      "Exit status: 0 done, 1 something failed (the rest was still done), 2 wrong usage.\n"
	      "`dfs COMMAND --help` tells more.\n\n"
	      "In the words of `hdfs dfs`, with its options, output and exit status (dfs -ls -R /x, also dfs fs -ls -R\n"
	      "/x and dfs dfs -ls -R /x; dfs -help [COMMAND]; PATHs may be patterns):\n",
	      f);
	shell_print_names(f);
	fputs("Those that have no other name need no dash: dfs tail -f /x.\n", f);
}

static const struct cli_command *find(const char *name)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (!strcmp(COMMANDS[i].name, name))
			return &COMMANDS[i];
	return NULL;
}

/* Started with `<&-` or `>&-`: the next file that is opened, a connection to a data node for
 * instance, would be taken for standard input or output. In its place stands one that can be
 * neither read nor written as meant. */
static void fill_closed_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)open("/dev/null",
				   fd == STDIN_FILENO ? O_WRONLY
						      : O_RDONLY); /* the lowest free one is @fd */
}

/* Is @name, the first word, in the words of `hdfs dfs`? *@ret_rc: what came of it. */
static bool is_shell(const char *name, int argc, char **argv, int *ret_rc)
{
	const bool group = !strcmp(name, "fs") || !strcmp(name, "dfs");

	if (group)
		*ret_rc = shell_main(argc - 1, argv + 1, false);
	else if ((name[0] == '-' && name[1] != '-') || (!find(name) && shell_has(name)))
		*ret_rc = shell_main(argc, argv, true);
	else
		return false;
	return true;
}

/* It has something to say, or to do, without a NameNode. */
static bool connects_itself(const struct cli_command *cmd)
{
	return cmd->run == cmd_put || cmd->run == cmd_append || cmd->run == cmd_admin;
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	const struct cli_command *cmd;
	struct cli c = {0};
	int rc;

	fill_closed_streams();
	signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error, told once */
	if (!strncmp(name, "dfs-", 4)) {
		name += 4;
	} else if (argc < 2) {
		print_commands(stderr);
		return EXIT_USAGE;
	} else {
		name = argv[1];
		argc--;
		argv++;
	}
	if (!strcmp(name, "--help") || !strcmp(name, "help")) {
		print_commands(stdout);
		return EXIT_OK;
	}
	if (!strcmp(name, "--version")) {
		printf("dfs-rdma %s\n", dfs_version());
		return EXIT_OK;
	}
	if (name == argv[0] && is_shell(name, argc, argv, &rc))
		return rc;
	cmd = find(name);
	if (!cmd) {
		fprintf(stderr, "dfs: no command '%s'; see dfs --help\n", name);
		return EXIT_USAGE;
	}
	rc = cli_parse(&c, cmd, argc, argv);
	if (rc >= 0)
		goto out;
	rc = connects_itself(cmd) ? EXIT_OK : cli_connect(&c);
	if (!rc)
		rc = cmd->run(&c);
	if (!rc && (fflush(stdout) || ferror(stdout)))
		rc = cli_fail_write(&c, "standard output", neg_errno());
out:
	cli_end(&c);
	return rc ? rc : c.failures ? EXIT_FAIL : EXIT_OK;
}
