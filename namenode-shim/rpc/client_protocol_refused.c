/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: what this NameNode does not have. A call says so as HDFS does where the feature
 * is switched off or was never used on the path: rights and existence first, then HDFS's own
 * refusal. Calls that take away what is not there succeed. */
#include "ClientNamenodeProtocol.pb-c.h"
#include "Security.pb-c.h"
#include "encryption.pb-c.h"
#include "namenode-shim/rpc/methods.h"

#define NO_FILE "Directory/File does not exist "
#define NO_DIR "Directory does not exist: "

/* ---- shared steps ---- */

static int find(struct req *q, const char *path, const char *missing, struct ns_path *w)
{
	int rc = ns_resolve_change(&q->ns, path, w);

	return rc ? rc : ns_found(&q->ns, w, missing, "");
}

static int find_dir(struct req *q, const char *path, const char *missing, struct ns_path *w)
{
	int rc = find(q, path, missing, w);

	if (!rc && w->last->type != INODE_DIR)
		rc = exception_throw(&q->exception, EXC_NOT_DIR, "`%s': Is not a directory",
				     w->path);
	return rc;
}

/* ---- snapshots ---- */

static int not_snapshottable(struct req *q, const char *path, const char *missing, bool owner)
{
	struct ns_path w;
	int rc = find(q, path, owner && !q->ns.enforce ? NO_DIR : missing, &w);

	if (!rc && owner && q->ns.enforce)
		rc = ns_check_owner(&q->ns, &w);
	if (!rc && w.last->type != INODE_DIR)
		rc = exception_throw(&q->exception, EXC_NOT_DIR, "`%s': Is not a directory",
				     w.path);
	return rc ? rc
		  : exception_throw(&q->exception, EXC_SNAPSHOT,
				    "Directory is not a snapshottable directory: %s", w.path);
}

static int allow_snapshot(struct req *q, const void *in)
{
	const Hd__AllowSnapshotRequestProto *m = in;
	struct ns_path w;
	int rc = find_dir(q, m->snapshotroot, NO_DIR, &w);

	return rc ? rc
		  : exception_throw(&q->exception, EXC_SNAPSHOT,
				    "Snapshots are not supported by this NameNode: %s", w.path);
}

/* No directory is snapshottable, so each can be made what it is. */
static int disallow_snapshot(struct req *q, const void *in)
{
	const Hd__DisallowSnapshotRequestProto *m = in;
	struct ns_path w;

	req_reply(q, Hd__DisallowSnapshotResponseProto, hd__disallow_snapshot_response_proto__init);
	return find_dir(q, m->snapshotroot, NO_DIR, &w);
}

static int create_snapshot(struct req *q, const void *in)
{
	const Hd__CreateSnapshotRequestProto *m = in;

	return not_snapshottable(q, m->snapshotroot, NO_FILE, true);
}

static int delete_snapshot(struct req *q, const void *in)
{
	const Hd__DeleteSnapshotRequestProto *m = in;

	return not_snapshottable(q, m->snapshotroot, NO_FILE, true);
}

static int rename_snapshot(struct req *q, const void *in)
{
	const Hd__RenameSnapshotRequestProto *m = in;

	return not_snapshottable(q, m->snapshotroot, NO_FILE, true);
}

static int get_snapshot_listing(struct req *q, const void *in)
{
	const Hd__GetSnapshotListingRequestProto *m = in;

	return not_snapshottable(q, m->snapshotroot, NO_DIR, false);
}

static int no_snapshot_root(struct req *q, const char *path)
{
	struct ns_path w;
	int rc = find(q, path, NO_DIR, &w);

	return rc ? rc
		  : exception_throw(
			    &q->exception, EXC_SNAPSHOT,
			    "The path %s is neither snapshottable nor under a snapshot root!",
			    w.path);
}

static int get_snapshot_diff(struct req *q, const void *in)
{
	return no_snapshot_root(q,
				((const Hd__GetSnapshotDiffReportRequestProto *)in)->snapshotroot);
}

static int get_snapshot_diff_listing(struct req *q, const void *in)
{
	return no_snapshot_root(
		q, ((const Hd__GetSnapshotDiffReportListingRequestProto *)in)->snapshotroot);
}

/* ---- encryption zones: there is no key provider ---- */

static int create_encryption_zone(struct req *q, const void *in)
{
	return exception_throw(
		&q->exception, EXC_IO,
		"Can't create an encryption zone for %s since no key provider is available.",
		((const Hd__CreateEncryptionZoneRequestProto *)in)->src);
}

static int reencrypt_zone(struct req *q, const void *in)
{
	(void)in;
	return exception_throw(&q->exception, EXC_IO,
			       "No key provider configured, re-encryption operation is rejected");
}

static int list_reencryption_status(struct req *q, const void *in)
{
	(void)in;
	req_reply(q, Hd__ListReencryptionStatusResponseProto,
		  hd__list_reencryption_status_response_proto__init);
	return 0;
}

/* ---- tokens, the rest ---- */

#define TOKEN_VERSION 0 /* first byte of a delegation token's identifier */

static int check_token(struct req *q, const Hc__TokenProto *t)
{
	const ProtobufCBinaryData *id = &t->identifier;

	if (id->len && id->data[0] == TOKEN_VERSION)
		return 0;
	return exception_throw(&q->exception, EXC_IO, "Unknown version of delegation token %d",
			       id->len ? (int8_t)id->data[0] : -1);
}

static int renew_delegation_token(struct req *q, const void *in)
{
	const Hc__RenewDelegationTokenRequestProto *m = in;
	int rc = check_token(q, m->token);

	return rc ? rc
		  : exception_throw(
			    &q->exception, EXC_INVALID_TOKEN,
			    "Renewal request for unknown token: this NameNode gives out none");
}

static int cancel_delegation_token(struct req *q, const void *in)
{
	const Hc__CancelDelegationTokenRequestProto *m = in;
	int rc = check_token(q, m->token);

	return rc ? rc
		  : exception_throw(&q->exception, EXC_INVALID_TOKEN,
				    "Token not found: this NameNode gives out none");
}

static int get_edits(struct req *q, const void *in)
{
	(void)in;
	return exception_throw(
		&q->exception, EXC_UNSUPPORTED,
		"This NameNode keeps no log of edits: there are no events to follow");
}

#define CHANGE(name, msg, flags, fn) METHOD(name, hd, msg, REQ_CHANGE, flags, fn)
#define READ(name, msg, flags, fn) METHOD(name, hd, msg, REQ_READ, flags, fn)
#define TOKEN(name, msg, fn) METHOD(name, hc, msg, REQ_READ, 0, fn)
static const struct method table[] = {
	CHANGE(allowSnapshot, allow_snapshot, REQ_SUPER, allow_snapshot),
	CHANGE(disallowSnapshot, disallow_snapshot, REQ_SUPER, disallow_snapshot),
	CHANGE(createSnapshot, create_snapshot, 0, create_snapshot),
	CHANGE(deleteSnapshot, delete_snapshot, 0, delete_snapshot),
	CHANGE(renameSnapshot, rename_snapshot, 0, rename_snapshot),
	READ(getSnapshotListing, get_snapshot_listing, 0, get_snapshot_listing),
	READ(getSnapshotDiffReport, get_snapshot_diff_report, 0, get_snapshot_diff),
	READ(getSnapshotDiffReportListing, get_snapshot_diff_report_listing, 0,
	     get_snapshot_diff_listing),
	CHANGE(createEncryptionZone, create_encryption_zone, REQ_SUPER | REQ_SAFE_OK,
	       create_encryption_zone),
	CHANGE(reencryptEncryptionZone, reencrypt_encryption_zone, REQ_SUPER, reencrypt_zone),
	READ(listReencryptionStatus, list_reencryption_status, REQ_SUPER, list_reencryption_status),
	TOKEN(renewDelegationToken, renew_delegation_token, renew_delegation_token),
	TOKEN(cancelDelegationToken, cancel_delegation_token, cancel_delegation_token),
	READ(getEditsFromTxid, get_edits_from_txid, REQ_SUPER, get_edits),
};
const struct method_table client_refuse_methods = METHOD_TABLE(table);
