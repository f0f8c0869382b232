/*
 * Doubly linked lists with the links inside the caller's structs. A list head is an element that points at itself when
 * the list is empty; an element not in any list points at itself too (list_init), so list_remove is idempotent.
 */
#ifndef ASHLAR_BASE_LIST_H
#define ASHLAR_BASE_LIST_H

#include <stdbool.h>

struct list {
    struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
    l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_insert_before(struct list *at, struct list *element)
{
    element->prev = at->prev;
    element->next = at;
    at->prev->next = element;
    at->prev = element;
}

static inline void list_append(struct list *head, struct list *element)
{
    list_insert_before(head, element);
}

static inline void list_prepend(struct list *head, struct list *element)
{
    list_insert_before(head->next, element);
}

static inline void list_remove(struct list *element)
{
    element->prev->next = element->next;
    element->next->prev = element->prev;
    list_init(element);
}

#endif
