/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that several messages to a NameNode share: the registration, a storage, a target. */
#include "datanode/bp/bp_internal.h"

#include <stdio.h>
#include <string.h>

#define LAYOUT_VERSION (-57)

void reg_msg_fill(struct reg_msg *m, struct bp_actor *a)
{
	struct dn *dn = a->set->dn;

	pthread_mutex_lock(&a->lock);
	m->ns = a->ns;
	memcpy(m->software_version, a->software_version, sizeof(m->software_version));
	memcpy(m->my_ip, a->my_ip, sizeof(m->my_ip));
	pthread_mutex_unlock(&a->lock);

	hdd__datanode_registration_proto__init(&m->reg);
	hd__datanode_idproto__init(&m->id);
	hd__storage_info_proto__init(&m->info);
	hd__exported_block_keys_proto__init(&m->keys);
	hd__block_key_proto__init(&m->key);
	m->reg.datanodeid = &m->id;
	m->reg.storageinfo = &m->info;
	m->reg.keys = &m->keys;
	m->reg.softwareversion = m->software_version;
	m->id.ipaddr = m->my_ip;
	m->id.hostname = dn->host_name;
	m->id.datanodeuuid = (char *)store_datanode_uuid(dn->store); /* only read */
	m->id.xferport = net_port(&dn->data_addr);
	m->id.infoport = net_port(&dn->http_addr);
	m->id.ipcport = net_port(&dn->ipc_addr);
	m->id.has_infosecureport = true;
	m->info.layoutversion = (uint32_t)LAYOUT_VERSION;
	m->info.namespceid = m->ns.namespace_id;
	m->info.clusterid = m->ns.cluster_id;
	m->info.ctime = m->ns.ctime;
	m->keys.currentkey = &m->key;
	/* No keys: an empty byte string, which Java's decoder wants to see. */
	m->key.has_keybytes = true;
}

bool storage_msg_fill(struct storage_msg *m, struct dn *dn, uint32_t i, struct block_pool *bp)
{
	store_volume_info(dn->store, i, bp, &m->info);
	if (m->info.failed)
		return false;
	hd__storage_report_proto__init(&m->report);
	hd__datanode_storage_proto__init(&m->storage);
	m->storage.storageuuid = m->info.uuid;
	m->storage.has_state = m->storage.has_storagetype = true;
	m->storage.state = HD__DATANODE_STORAGE_PROTO__STORAGE_STATE__NORMAL;
	m->storage.storagetype = (Hd__StorageTypeProto)m->info.type;
	m->report.storageuuid = m->info.uuid;
	m->report.has_failed = m->report.has_capacity = m->report.has_dfsused = true;
	m->report.has_remaining = m->report.has_blockpoolused = m->report.has_nondfsused = true;
	m->report.capacity = m->info.capacity;
	m->report.dfsused = m->info.used;
	m->report.remaining = m->info.remaining;
	m->report.blockpoolused = m->info.pool_used;
	m->report.nondfsused = m->info.non_dfs_used;
	m->report.storage = &m->storage;
	m->report.mount = (char *)"";
	return true;
}

Hd__ExtendedBlockProto extended_block(const struct block_pool *bp, const struct block *b)
{
	Hd__ExtendedBlockProto p = HD__EXTENDED_BLOCK_PROTO__INIT;

	p.poolid = (char *)pool_id(bp); /* only read */
	p.blockid = (uint64_t)b->id;
	p.generationstamp = b->gs;
	p.has_numbytes = true;
	p.numbytes = b->len;
	return p;
}

static bool put(char *buf, size_t size, const char *text)
{
	return (size_t)snprintf(buf, size, "%s", text) < size;
}

int target_from_proto(const Hd__DatanodeInfoProto *p, struct dn_target *ret)
{
	const Hd__DatanodeIDProto *id = p->id;

	*ret = (struct dn_target){.storage_type = STORAGE_DISK};
	if (!put(ret->ip, sizeof(ret->ip), id->ipaddr) ||
	    !put(ret->host, sizeof(ret->host), id->hostname) ||
	    !put(ret->uuid, sizeof(ret->uuid), id->datanodeuuid) || id->xferport > UINT16_MAX ||
	    id->infoport > UINT16_MAX || id->ipcport > UINT16_MAX)
		return -EPROTO;
	ret->xfer_port = (uint16_t)id->xferport;
	ret->info_port = (uint16_t)id->infoport;
	ret->ipc_port = (uint16_t)id->ipcport;
	return 0;
}
