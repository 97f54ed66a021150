/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A circular doubly linked list whose links are members of the elements.  An element that is in no
 * list points to itself.  Modules may include this header. */
#ifndef USM_BASE_LIST_H
#define USM_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct usm_list {
    struct usm_list *next, *prev;
} usm_list;

#define usm_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
/* NOLINTBEGIN(bugprone-macro-parentheses): a declared name cannot have them. */
#define USM_LIST_FOREACH(it, head) for (usm_list *it = (head)->next; it != (head); it = it->next)
/* The current element may be removed from the list. */
#define USM_LIST_FOREACH_SAFE(it, tmp, head)                                                       \
    for (usm_list *it = (head)->next, *tmp = it->next; it != (head); it = tmp, tmp = it->next)

/* NOLINTEND(bugprone-macro-parentheses) */

static inline void usm_list_init(usm_list *l)
{
    l->next = l->prev = l;
}

static inline bool usm_list_is_empty(const usm_list *l)
{
    return l->next == l;
}

static inline void usm_list_append(usm_list *head, usm_list *it)
{
    it->prev         = head->prev;
    it->next         = head;
    head->prev->next = it;
    head->prev       = it;
}

static inline void usm_list_remove(usm_list *it)
{
    it->prev->next = it->next;
    it->next->prev = it->prev;
    usm_list_init(it);
}

/* All elements of `from` leave it for `to`, which was not a list. */
static inline void usm_list_move(usm_list *from, usm_list *to)
{
    usm_list_init(to);
    if (usm_list_is_empty(from))
        return;
    *to            = *from;
    to->next->prev = to->prev->next = to;
    usm_list_init(from);
}

/* NULL if the list is empty. */
static inline usm_list *usm_list_pop(usm_list *head)
{
    usm_list *it = head->next;

    if (it == head)
        return NULL;
    usm_list_remove(it);
    return it;
}

#endif
