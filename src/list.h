/* SPDX-License-Identifier: Apache-2.0
 *
 * list.h - a doubly linked list whose links are members of the listed structs. An empty list and an
 * unlinked element both point at themselves, so removing an element twice is harmless. A list must
 * be made empty by list_init (or by list_take_all) before anything is appended; appending to an
 * uninitialised list is undefined, and may turn a loop over that list into an endless one.
 *
 * An engine may keep a link in the `void *engine[]` of an op, although the pointers there have
 * another type. Links therefore carry may_alias: the compiler must not conclude that a write
 * through a link leaves the `void *` of the op unchanged.
 */
#ifndef PAWL_LIST_H
#define PAWL_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct __attribute__((may_alias)) list {
    struct list *next, *prev;
};

#define list_entry(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

/* Walk a list: `type *item` is each element in turn. The body must not unlink the element;
 * list_each_safe allows that. */
#define list_each(type, item, head, member)                                                        \
    for (type *item = list_at((head)->next, head, type, member); item;                             \
         item = list_at(item->member.next, head, type, member))
#define list_each_safe(type, item, head, member)                                                   \
    for (type *item = list_at((head)->next, head, type, member), *item##_next;                     \
         item && (item##_next = list_at(item->member.next, head, type, member), true);             \
         item = item##_next)
#define list_at(link, head, type, member)                                                          \
    ((link) == (head) ? NULL : list_entry(link, type, member))

static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_append(struct list *l, struct list *item)
{
    item->prev = l->prev;
    item->next = l;
    l->prev->next = item;
    l->prev = item;
}

static inline void list_remove(struct list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}

/* Move all elements of `from` into `to`, which is made empty first. */
static inline void list_take_all(struct list *to, struct list *from)
{
    list_init(to);
    if (list_empty(from))
        return;
    *to = *from;
    to->next->prev = to->prev->next = to;
    list_init(from);
}

/* Unlink and return the first element; NULL if there is none. */
static inline struct list *list_take(struct list *l)
{
    struct list *item = l->next;

    if (item == l)
        return NULL;
    list_remove(item);
    return item;
}

#endif
