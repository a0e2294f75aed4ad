/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/db/db_check.h"

#include <endian.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/err.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/db/db.h"

#define PAGE_MIN 512u
#define PAGE_MAX 32768u
#define PAGE_HEAD 16u
#define NODE_HEAD 8u
#define NODES_MIN 2u /* a leaf has room for so many; what is larger goes to pages of its own */
#define KEY_MAX 511u
#define DEPTH_MAX 32u
#define METAS 2u
#define META_BYTES 136u
#define MAGIC 0xBEEFC0DEu
#define FORMAT 1u
#define NO_PAGE UINT64_MAX
#define TREE_BYTES 48u /* MDB_db */
#define TABLE_NAME_MAX 31u
#define FREE_FLAGS 0x08u /* the list of free pages has integers for keys, and no other flag */
/* The file may end before its last page: pages that were free again before anybody wrote them. */
#define UNWRITTEN_MAX (1ull << 20)

enum page_flag { PAGE_BRANCH = 0x01, PAGE_LEAF = 0x02, PAGE_RUN = 0x04, PAGE_META = 0x08 };
enum node_flag { NODE_LARGE = 0x01, NODE_TREE = 0x02 };

struct tree {
	char name[TABLE_NAME_MAX + 1];
	uint16_t flags, depth;
	uint64_t branches, leaves, runs, entries, root; /* as its record says */
	struct {
		uint64_t branches, leaves, runs, entries;
	} found;
	int (*compare)(const MDB_val *a, const MDB_val *b);
	/* In the order of the tree: the key before, of a leaf or of a branch above the leaf that
	 * follows. */
	uint8_t key[KEY_MAX];
	size_t key_len;
	enum { KEY_NONE, KEY_LEAF, KEY_BRANCH } before;
};

struct meta {
	struct tree free, main;
	uint32_t psize;
	uint64_t last, txnid;
};

struct node {
	uint16_t flags, ksize;
	uint64_t page;  /* branch: its child; leaf, NODE_LARGE: where the value is */
	uint32_t dsize; /* leaf */
	const uint8_t *key, *data;
};

struct check {
	int fd;
	const char *path;
	struct err *err;
	struct meta meta;
	uint64_t file_pages;
	uint64_t *seen;  /* bit by page: it has a use */
	uint8_t *levels; /* a page for each level of a tree, and one for values */
	struct tree table[DB_TABLES_MAX];
	uint32_t tables;
	bool names_signed;
	struct db_check_sum sum;
};

static uint16_t u16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint32_t u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint64_t u64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static int __attribute__((format(printf, 3, 4)))
bad(struct check *c, uint64_t page, const char *fmt, ...)
{
	char what[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return err_set(c->err, -EBADMSG, "the namespace %s is damaged: page %llu: %s", c->path,
		       (unsigned long long)page, what);
}

static int read_at(struct check *c, uint64_t off, void *buf, size_t len)
{
	uint8_t *p = buf;

	while (len) {
		const ssize_t n = pread(c->fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(c->err, neg_errno(),
				       "cannot read the namespace %s at byte %llu", c->path,
				       (unsigned long long)off);
		if (!n)
			return bad(c, c->meta.psize ? off / c->meta.psize : 0,
				   "the file ends before it");
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/* ---- the uses of pages ---- */

static int take_page(struct check *c, uint64_t from, uint64_t no, bool written)
{
	if (no < METAS || no > c->meta.last)
		return bad(c, from, "it refers to page %llu, but the file has pages %u to %llu",
			   (unsigned long long)no, METAS, (unsigned long long)c->meta.last);
	if (written && no >= c->file_pages)
		return bad(c, from, "it refers to page %llu, but the file was cut to %llu pages",
			   (unsigned long long)no, (unsigned long long)c->file_pages);
	if (c->seen[no / 64] >> (no % 64) & 1)
		return bad(c, from, "it refers to page %llu, which has another use",
			   (unsigned long long)no);
	c->seen[no / 64] |= 1ull << (no % 64);
	return 0;
}

/* ---- nodes ---- */

static struct node node_at(const uint8_t *p, bool leaf)
{
	struct node n = {.flags = u16(p + 4), .ksize = u16(p + 6), .key = p + NODE_HEAD};

	n.data = n.key + n.ksize;
	if (leaf)
		n.dsize = u32(p);
	else
		n.page = u32(p) | (uint64_t)n.flags << 32;
	return n;
}

static uint64_t node_size(const struct node *n, bool leaf)
{
	uint64_t size = NODE_HEAD + n->ksize;

	if (leaf)
		size += n->flags & NODE_LARGE ? sizeof(uint64_t) : n->dsize;
	return (size + 1) & ~1ull;
}

/* The nodes fill the end of the page without a gap, and the array at its start has each of them
 * once. */
static int check_nodes(struct check *c, uint64_t no, const uint8_t *p, bool leaf)
{
	const uint32_t psize = c->meta.psize, lower = u16(p + 12), upper = u16(p + 14);
	const uint32_t nodes = (lower - PAGE_HEAD) / 2,
		       limit = (((psize - PAGE_HEAD) / NODES_MIN) & ~1u) - 2;
	uint64_t starts[PAGE_MAX / 2 / 64] = {0};
	uint32_t at = upper, found = 0;

	for (uint32_t i = 0; i < nodes; i++) {
		const uint32_t off = u16(p + PAGE_HEAD + 2 * (size_t)i);

		if (off < upper || off & 1 || off + NODE_HEAD > psize)
			return bad(c, no, "node %u of %u is at byte %u", i, nodes, off);
		starts[off / 2 / 64] |= 1ull << (off / 2 % 64);
	}
	while (at < psize) {
		struct node n;
		uint64_t size;

		if (at + NODE_HEAD > psize || !(starts[at / 2 / 64] >> (at / 2 % 64) & 1))
			return bad(c, no, "byte %u belongs to no node", at);
		n = node_at(p + at, leaf);
		if (n.ksize > KEY_MAX)
			return bad(c, no, "a key at byte %u has %u bytes", at, n.ksize);
		if (leaf && n.flags & ~(NODE_LARGE | NODE_TREE))
			return bad(c, no, "the node at byte %u has flags 0x%x", at, n.flags);
		size = node_size(&n, leaf);
		if (size > psize - at || (leaf && size > limit))
			return bad(c, no, "the node at byte %u has %llu bytes", at,
				   (unsigned long long)size);
		at += (uint32_t)size;
		found++;
	}
	return found == nodes ? 0 : bad(c, no, "it has %u nodes and names %u", found, nodes);
}

static int check_key(struct check *c, struct tree *t, uint64_t no, const struct node *n, bool leaf)
{
	const MDB_val key = {n->ksize, (void *)(uintptr_t)n->key}, old = {t->key_len, t->key};
	const int order = t->before == KEY_NONE ? 1 : t->compare(&key, &old);

	/* A branch's key is at most the first one below it. */
	if (order < 0 || (order == 0 && !(leaf && t->before == KEY_BRANCH)))
		return bad(c, no, "a key of %s is out of order", t->name);
	memcpy(t->key, n->key, n->ksize);
	t->key_len = n->ksize;
	t->before = leaf ? KEY_LEAF : KEY_BRANCH;
	return 0;
}

/* ---- values ---- */

/* A value on pages of its own: a run of them, of which the first has a header. */
static int check_run(struct check *c, struct tree *t, uint64_t from, struct node *n)
{
	uint8_t head[PAGE_HEAD];
	uint64_t pages, need;
	int rc;

	n->page = u64(n->data);
	need = ((uint64_t)PAGE_HEAD - 1 + n->dsize) / c->meta.psize + 1;
	rc = take_page(c, from, n->page, true);
	rc = rc ? rc : read_at(c, n->page * c->meta.psize, head, sizeof(head));
	if (rc)
		return rc;
	pages = u32(head + 12);
	if (u64(head) != n->page || u16(head + 10) != PAGE_RUN)
		return bad(c, n->page, "it is not the large value that page %llu takes it for",
			   (unsigned long long)from);
	if (pages < need)
		return bad(c, n->page, "a value of %u bytes has %llu pages", n->dsize,
			   (unsigned long long)pages);
	for (uint64_t i = 1; i < pages; i++) {
		rc = take_page(c, n->page, n->page + i, true);
		if (rc)
			return rc;
	}
	t->found.runs += pages;
	c->sum.used += pages;
	return 0;
}

/* Bytes of a value from @off on, wherever it is. */
static int read_value(struct check *c, const struct node *n, uint64_t off, void *buf, size_t len)
{
	if (n->flags & NODE_LARGE)
		return read_at(c, n->page * c->meta.psize + PAGE_HEAD + off, buf, len);
	memcpy(buf, n->data + off, len);
	return 0;
}

static int compare_numbers(const MDB_val *a, const MDB_val *b)
{
	const uint64_t x = u64(a->mv_data), y = u64(b->mv_data);

	return x < y ? -1 : x > y;
}

/* A list of free pages: how many, and their numbers from high to low. */
static int check_free(struct check *c, uint64_t no, const struct node *n)
{
	uint8_t *buf = c->levels + (size_t)DEPTH_MAX * c->meta.psize;
	uint64_t count, before = NO_PAGE, room = n->dsize / sizeof(uint64_t);
	int rc;

	if (n->ksize != sizeof(uint64_t) || u64(n->key) > c->meta.txnid || n->flags & NODE_TREE ||
	    !room)
		return bad(c, no, "a record of free pages has no sense");
	rc = read_value(c, n, 0, &count, sizeof(count));
	if (rc)
		return rc;
	if (count > room - 1)
		return bad(c, no, "a list of %llu free pages has room for %llu",
			   (unsigned long long)count, (unsigned long long)room - 1);
	c->sum.unused += count;
	for (uint64_t off = sizeof(count), left = count * sizeof(uint64_t); left;) {
		const size_t some = left < c->meta.psize ? (size_t)left : c->meta.psize;

		rc = read_value(c, n, off, buf, some);
		for (size_t i = 0; i < some && !rc; i += sizeof(uint64_t)) {
			const uint64_t page = u64(buf + i);

			rc = page < before ? take_page(c, no, page, false)
					   : bad(c, no, "a list of free pages is out of order");
			before = page;
		}
		if (rc)
			return rc;
		off += some;
		left -= some;
	}
	return 0;
}

static int decode_tree(struct check *c, uint64_t no, const uint8_t *p, struct tree *t)
{
	t->flags = u16(p + 4);
	t->depth = u16(p + 6);
	t->branches = u64(p + 8);
	t->leaves = u64(p + 16);
	t->runs = u64(p + 24);
	t->entries = u64(p + 32);
	t->root = u64(p + 40);
	if (t->depth > DEPTH_MAX || (t->root == NO_PAGE) != (t->depth == 0))
		return bad(c, no, "the tree of %s has %u levels", t->name, t->depth);
	return 0;
}

static bool is_table(const struct node *n)
{
	const char *name;

	for (uint32_t i = 0; (name = db_table_name(i)); i++)
		if (strlen(name) == n->ksize && !memcmp(name, n->key, n->ksize))
			return true;
	return false;
}

/* A record of the main tree: a table of ours. Under a wrong name it would be taken for one that an
 * older namespace lacks, and an empty one made in its place. */
static int take_table(struct check *c, uint64_t no, const struct node *n)
{
	struct tree *t = &c->table[c->tables];

	if (n->flags != NODE_TREE || n->dsize != TREE_BYTES)
		return bad(c, no, "a record of the main tree is no table");
	if (!is_table(n))
		return bad(c, no, "it names a table that this version does not know");
	memcpy(t->name, n->key, n->ksize);
	c->tables++;
	if (decode_tree(c, no, n->data, t))
		return -EBADMSG;
	return t->flags ? bad(c, no, "table %s has flags 0x%x", t->name, t->flags) : 0;
}

static int check_value(struct check *c, struct tree *t, uint64_t no, struct node *n)
{
	int rc = 0;

	t->found.entries++;
	if (!n->ksize)
		return bad(c, no, "a record of %s has no key", t->name);
	if (n->flags & NODE_LARGE)
		rc = check_run(c, t, no, n);
	if (rc)
		return rc;
	if (t == &c->meta.free)
		return check_free(c, no, n);
	if (t == &c->meta.main)
		return take_table(c, no, n);
	if (n->flags & NODE_TREE)
		return bad(c, no, "a record of %s is taken for a table", t->name);
	if (!strcmp(t->name, "meta") && n->ksize == strlen(DB_ORDER_KEY) &&
	    !memcmp(n->key, DB_ORDER_KEY, n->ksize))
		c->names_signed = true; /* db_open() judges the value */
	return 0;
}

/* ---- pages and trees ---- */

static int check_head(struct check *c, const struct tree *t, uint64_t no, const uint8_t *p,
		      bool leaf)
{
	const uint32_t lower = u16(p + 12), upper = u16(p + 14);
	const uint32_t least = leaf || t == &c->meta.free ? 1 : 2;

	if (u64(p) != no)
		return bad(c, no, "it says that it is page %llu", (unsigned long long)u64(p));
	if (u16(p + 10) != (leaf ? PAGE_LEAF : PAGE_BRANCH))
		return bad(c, no, "a %s of %s has flags 0x%x", leaf ? "leaf" : "branch", t->name,
			   u16(p + 10));
	if (lower < PAGE_HEAD + 2 * least || lower & 1 || upper & 1 || lower > upper ||
	    upper > c->meta.psize)
		return bad(c, no, "its free space is bytes %u to %u", lower, upper);
	return check_nodes(c, no, p, leaf);
}

static struct node nth_node(const uint8_t *p, uint32_t i, bool leaf)
{
	return node_at(p + u16(p + PAGE_HEAD + 2 * (size_t)i), leaf);
}

/* The disk may read ahead while we look at the first ones. */
static void read_ahead(struct check *c, const uint8_t *p, uint32_t nodes)
{
	for (uint32_t i = 0; i < nodes; i++) {
		const uint64_t page = nth_node(p, i, false).page;

		if (page < c->file_pages)
			(void)posix_fadvise(c->fd, (off_t)(page * c->meta.psize), c->meta.psize,
					    POSIX_FADV_WILLNEED);
	}
}

/* @level: 1 is a leaf. */
static int check_page(struct check *c, struct tree *t, uint64_t from, uint64_t no, uint32_t level)
{
	uint8_t *p = c->levels + (size_t)(level - 1) * c->meta.psize;
	const bool leaf = level == 1;
	uint32_t nodes;
	int rc = take_page(c, from, no, true);

	rc = rc ? rc : read_at(c, no * c->meta.psize, p, c->meta.psize);
	rc = rc ? rc : check_head(c, t, no, p, leaf);
	if (rc)
		return rc;
	c->sum.used++;
	nodes = (u16(p + 12) - PAGE_HEAD) / 2;
	*(leaf ? &t->found.leaves : &t->found.branches) += 1;
	if (!leaf)
		read_ahead(c, p, nodes);
	for (uint32_t i = 0; i < nodes && !rc; i++) {
		struct node n = nth_node(p, i, leaf);

		if (t == &c->meta.free && (leaf || i) && n.ksize != sizeof(uint64_t))
			return bad(c, no, "a key of %s has %u bytes", t->name, n.ksize);
		if (leaf || i) /* the first key of a branch is not used, and mostly empty */
			rc = check_key(c, t, no, &n, leaf);
		if (!rc)
			rc = leaf ? check_value(c, t, no, &n)
				  : check_page(c, t, no, n.page, level - 1);
	}
	return rc;
}

static int check_tree(struct check *c, struct tree *t, uint64_t from)
{
	int rc = t->depth ? check_page(c, t, from, t->root, t->depth) : 0;

	if (rc)
		return rc;
	if (t->branches != t->found.branches || t->leaves != t->found.leaves ||
	    t->runs != t->found.runs)
		return bad(
			c, from, "%s has %llu pages, not the number it says", t->name,
			(unsigned long long)(t->found.branches + t->found.leaves + t->found.runs));
	if (t->entries != t->found.entries)
		return bad(c, from, "%s has %llu records and says %llu", t->name,
			   (unsigned long long)t->found.entries, (unsigned long long)t->entries);
	return 0;
}

/* ---- the file ---- */

static int read_meta(struct check *c, uint32_t i, uint32_t psize, struct meta *m)
{
	uint8_t b[PAGE_HEAD + META_BYTES];
	const uint8_t *p = b + PAGE_HEAD;
	int rc = read_at(c, (uint64_t)i * psize, b, sizeof(b));

	if (rc)
		return rc;
	if (u64(b) != i || u16(b + 10) != PAGE_META || u32(p) != MAGIC)
		return bad(c, i, "it is not the head of an LMDB file");
	if (u32(p + 4) != FORMAT)
		return bad(c, i, "format %u of LMDB, not %u", u32(p + 4), FORMAT);
	*m = (struct meta){.psize = u32(p + 24), .last = u64(p + 120), .txnid = u64(p + 128)};
	snprintf(m->free.name, sizeof(m->free.name), "free pages");
	snprintf(m->main.name, sizeof(m->main.name), "the main tree");
	m->free.compare = compare_numbers;
	m->main.compare = db_compare_keys;
	rc = decode_tree(c, i, p + 24, &m->free);
	rc = rc ? rc : decode_tree(c, i, p + 24 + TREE_BYTES, &m->main);
	if (rc)
		return rc;
	if (m->psize < PAGE_MIN || m->psize > PAGE_MAX || m->psize & (m->psize - 1) ||
	    (psize && m->psize != psize))
		return bad(c, i, "pages of %u bytes", m->psize);
	if (m->free.flags != FREE_FLAGS || m->main.flags)
		return bad(c, i, "flags 0x%x and 0x%x", m->free.flags, m->main.flags);
	return m->last < METAS - 1 ? bad(c, i, "its last page is %llu", (unsigned long long)m->last)
				   : 0;
}

/* Commits write the two in turn: even numbers to page 0, odd ones to page 1. */
static int check_metas(struct check *c, const struct stat *st)
{
	struct meta m[METAS] = {0};
	int rc = read_meta(c, 0, 0, &m[0]);
	uint32_t newer;

	c->meta.psize = rc ? 0 : m[0].psize;
	rc = rc ? rc : read_meta(c, 1, m[0].psize, &m[1]);
	if (rc)
		return rc;
	newer = m[1].txnid > m[0].txnid;
	if (m[newer].txnid - m[!newer].txnid > 1 ||
	    (m[newer].txnid && (m[newer].txnid & 1) != newer))
		return bad(c, newer, "commits %llu and %llu do not follow each other",
			   (unsigned long long)m[0].txnid, (unsigned long long)m[1].txnid);
	c->file_pages = (uint64_t)st->st_size / m[0].psize;
	if (m[newer].last >= c->file_pages + UNWRITTEN_MAX)
		return bad(c, newer, "the file was cut to %llu of %llu pages",
			   (unsigned long long)c->file_pages,
			   (unsigned long long)m[newer].last + 1);
	c->meta = m[newer];
	return 0;
}

static struct tree *table(struct check *c, const char *name)
{
	for (uint32_t i = 0; i < c->tables; i++)
		if (!strcmp(c->table[i].name, name))
			return &c->table[i];
	return NULL;
}

static int check_tables(struct check *c, uint64_t from)
{
	struct tree *meta = table(c, "meta"), *t;
	int rc = 0;

	for (uint32_t i = 0; i < c->tables; i++)
		c->table[i].compare = db_compare_keys;
	if (meta) /* tells the order of names */
		rc = check_tree(c, meta, from);
	t = table(c, "dirents");
	if (t && c->names_signed)
		t->compare = db_compare_names;
	for (uint32_t i = 0; i < c->tables && !rc; i++)
		if (&c->table[i] != meta)
			rc = check_tree(c, &c->table[i], from);
	return rc;
}

static int check_all(struct check *c)
{
	const uint32_t newer = c->meta.txnid & 1;
	struct tree *t;
	int rc;

	c->seen = xcalloc(c->meta.last / 64 + 1, sizeof(*c->seen));
	c->levels = xcalloc(DEPTH_MAX + 1, c->meta.psize);
	rc = check_tree(c, &c->meta.free, newer);
	rc = rc ? rc : check_tree(c, &c->meta.main, newer);
	rc = rc ? rc : check_tables(c, c->meta.main.root == NO_PAGE ? newer : c->meta.main.root);
	c->sum.page_bytes = c->meta.psize;
	c->sum.tables = c->tables;
	c->sum.pages = c->meta.last + 1;
	t = table(c, "inodes");
	c->sum.inodes = t ? t->entries : 0;
	t = table(c, "dirents");
	c->sum.names = t ? t->entries : 0;
	return rc;
}

int db_check_file(const char *path, struct db_check_sum *ret_sum, struct err *err)
{
	struct err own;
	struct check c = {.path = path, .err = err ? err : &own};
	struct stat st;
	int rc;

	/* Not blocked by what is no file. */
	c.fd = ret_errno(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
	if (c.fd < 0)
		return err_sys(err, c.fd, "cannot open the namespace %s", path);
	rc = ret_errno(fstat(c.fd, &st));
	if (rc < 0)
		err_sys(err, rc, "cannot open the namespace %s", path);
	else if (!S_ISREG(st.st_mode))
		rc = err_set(err, -EBADMSG, "the namespace %s is damaged: it is not a file", path);
	rc = rc ? rc : check_metas(&c, &st);
	rc = rc ? rc : check_all(&c);
	if (!rc)
		*ret_sum = c.sum;
	free(c.seen);
	free(c.levels);
	close(c.fd);
	return rc;
}
