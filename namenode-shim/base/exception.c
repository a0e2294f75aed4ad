/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/base/exception.h"

#include <stdarg.h>

#include "namenode-shim/base/arena.h"

#define HDFS "org.apache.hadoop.hdfs."

static const struct {
	const char *cls;
	int rc;
} table[EXC_COUNT] = {
	[EXC_IO] = {"java.io.IOException", -EIO},
	[EXC_DISK_FULL] = {"org.apache.hadoop.util.DiskChecker$DiskOutOfSpaceException", -ENOSPC},
	[EXC_NOT_FOUND] = {"java.io.FileNotFoundException", -ENOENT},
	[EXC_ACCESS] = {"org.apache.hadoop.security.AccessControlException", -EACCES},
	[EXC_EXISTS] = {"org.apache.hadoop.fs.FileAlreadyExistsException", -EEXIST},
	[EXC_NOT_EMPTY] = {"org.apache.hadoop.fs.PathIsNotEmptyDirectoryException", -ENOTEMPTY},
	[EXC_PARENT_NOT_DIR] = {"org.apache.hadoop.fs.ParentNotDirectoryException", -ENOTDIR},
	[EXC_TRAVERSE] = {"org.apache.hadoop.security.AccessControlException", -ENOTDIR},
	[EXC_NOT_DIR] = {"org.apache.hadoop.fs.PathIsNotDirectoryException", -ENOTDIR},
	[EXC_INVALID_PATH] = {"org.apache.hadoop.fs.InvalidPathException", -EINVAL},
	[EXC_NAME_TOO_LONG] = {HDFS "protocol.FSLimitException$PathComponentTooLongException",
			       -ENAMETOOLONG},
	[EXC_DIR_FULL] = {HDFS "protocol.FSLimitException$MaxDirectoryItemsExceededException",
			  -EDQUOT},
	[EXC_BEING_CREATED] = {HDFS "protocol.AlreadyBeingCreatedException", -EBUSY},
	[EXC_RECOVERY] = {HDFS "protocol.RecoveryInProgressException", -EBUSY},
	[EXC_NOT_REPLICATED] = {HDFS "server.namenode.NotReplicatedYetException", -EBUSY},
	[EXC_LEASE_EXPIRED] = {HDFS "server.namenode.LeaseExpiredException", -ESTALE},
	[EXC_SAFE_MODE] = {HDFS "server.namenode.SafeModeException", -EROFS},
	[EXC_RETRIABLE] = {"org.apache.hadoop.ipc.RetriableException", -EBUSY},
	[EXC_ILLEGAL_ARGUMENT] = {"org.apache.hadoop.HadoopIllegalArgumentException", -EINVAL},
	[EXC_UNSUPPORTED] = {"java.lang.UnsupportedOperationException", -EOPNOTSUPP},
	[EXC_UNREGISTERED] = {HDFS "protocol.UnregisteredNodeException", -ENXIO},
	[EXC_BAD_REPORT_LEASE] = {HDFS "server.protocol.InvalidBlockReportLeaseException", -EINVAL},
	[EXC_NO_XATTR] = {HDFS "protocol.XAttrNotFoundException", -ENODATA},
	[EXC_HA_FAILED] = {"org.apache.hadoop.ha.ServiceFailedException", -EOPNOTSUPP},
	[EXC_AUTHORIZATION] = {"org.apache.hadoop.security.authorize.AuthorizationException",
			       -EACCES},
	[EXC_DISALLOWED] = {HDFS "server.protocol.DisallowedDatanodeException", -EACCES},
	[EXC_BAD_ARGUMENT] = {"java.lang.IllegalArgumentException", -EINVAL},
	[EXC_ASSERTION] = {"java.lang.AssertionError", -EINVAL},
	[EXC_QUOTA_NS] = {HDFS "protocol.NSQuotaExceededException", -EDQUOT},
	[EXC_QUOTA_DS] = {HDFS "protocol.DSQuotaExceededException", -EDQUOT},
	[EXC_SNAPSHOT] = {HDFS "protocol.SnapshotException", -EINVAL},
	[EXC_ACL] = {HDFS "protocol.AclException", -EOPNOTSUPP},
	[EXC_INVALID_REQUEST] = {"org.apache.hadoop.fs.InvalidRequestException", -EINVAL},
	[EXC_UNSUPPORTED_ACTION] = {HDFS "server.namenode.UnsupportedActionException", -EOPNOTSUPP},
	[EXC_NO_EC_POLICY] = {HDFS "protocol.NoECPolicySetException", -ENODATA},
	[EXC_UNRESOLVED] = {HDFS "protocol.UnresolvedPathException", -ELOOP},
	[EXC_INVALID_TOKEN] = {"org.apache.hadoop.security.token.SecretManager$InvalidToken",
			       -EINVAL},
};

int exception_throw(struct exception_info *x, enum exception e, const char *fmt, ...)
{
	va_list ap;

	x->cls = table[e].cls;
	va_start(ap, fmt);
	x->text = arena_vprintf(x->a, fmt, ap);
	/* Clients make a Path...Exception of their own of the text, which appends to it, and show
	 * what stands before the first line break: where an Apache NameNode's stack trace begins.
	 */
	if (e == EXC_NOT_EMPTY || e == EXC_NOT_DIR)
		x->text = arena_printf(x->a, "%s\n", x->text);
	va_end(ap);
	return table[e].rc;
}
