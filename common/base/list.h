/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * list - intrusive doubly linked list
 *
 * Idea: a node embedded in its owner; a detached node points at itself, so list_del() twice is
 * harmless and list_is_linked() is a question one may ask. Threading: the owner's.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct list {
	struct list *next, *prev;
};

#define LIST_INIT(l) ((struct list){&(l), &(l)})
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define list_for_each(pos, head)                                                                   \
	for (struct list *pos = (head)->next, *pos##_next = pos->next; pos != (head);              \
	     pos = pos##_next, pos##_next = pos->next)

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}
static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}
static inline uint32_t list_length(const struct list *l)
{
	uint32_t n = 0;

	for (const struct list *e = l->next; e != l; e = e->next)
		n++;
	return n;
}
static inline bool list_is_linked(const struct list *l)
{
	return l->next && l->next != l;
}
static inline void list_add_tail(struct list *head, struct list *n)
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}
static inline void list_add(struct list *head, struct list *n)
{
	list_add_tail(head->next, n);
}
static inline void list_del(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}
/** First node, unlinked; NULL when empty. */
static inline struct list *list_pop(struct list *head)
{
	struct list *n = head->next;

	if (n == head)
		return NULL;
	list_del(n);
	return n;
}
