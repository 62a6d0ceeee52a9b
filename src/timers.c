/* SPDX-License-Identifier: Apache-2.0
 *
 * timers.c - the pairing heap behind timers.h.
 *
 * A node's `child` is its first child; children form a list through `next`; `prev` is the left
 * sibling, or the parent for a first child. Insertion is constant; taking the smallest melds the
 * children in pairs, left to right, then right to left (iteratively: a heap may be one long list).
 */
#include "timers.h"

static pawl_timer *meld(pawl_timer *a, pawl_timer *b)
{
    pawl_timer *low, *high;

    if (!a || !b)
        return a ? a : b;
    low = b->due < a->due ? b : a;
    high = low == a ? b : a;
    high->prev = low;
    high->next = low->child;
    if (low->child)
        low->child->prev = high;
    low->child = high;
    low->next = low->prev = NULL;
    return low;
}

/* Meld a list of siblings into one heap. */
static pawl_timer *meld_list(pawl_timer *first)
{
    pawl_timer *pairs = NULL, *root = NULL;

    while (first) {
        pawl_timer *a = first, *b = a->next, *pair;

        first = b ? b->next : NULL;
        a->next = a->prev = NULL;
        if (b)
            b->next = b->prev = NULL;
        pair = meld(a, b);
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs) {
        pawl_timer *rest = pairs->next;

        pairs->next = NULL;
        root = meld(root, pairs);
        pairs = rest;
    }
    return root;
}

static void unlink_node(struct timers *timers, pawl_timer *timer)
{
    pawl_timer *children = timer->child;

    timer->child = NULL;
    if (timer == timers->root) {
        timers->root = meld_list(children);
    } else {
        if (timer->prev->child == timer)
            timer->prev->child = timer->next;
        else
            timer->prev->next = timer->next;
        if (timer->next)
            timer->next->prev = timer->prev;
        timers->root = meld(timers->root, meld_list(children));
    }
    timer->next = timer->prev = NULL;
    timer->armed = false;
}

void pawl__timers_set(struct timers *timers, pawl_timer *timer, int64_t due)
{
    if (timer->armed)
        unlink_node(timers, timer);
    timer->due = due;
    timer->child = timer->next = timer->prev = NULL;
    timer->armed = true;
    timers->root = meld(timers->root, timer);
}

void pawl__timers_clear(struct timers *timers, pawl_timer *timer)
{
    if (timer->armed)
        unlink_node(timers, timer);
}

int64_t pawl__timers_next(const struct timers *timers)
{
    return timers->root ? timers->root->due : PAWL_NEVER;
}

pawl_timer *pawl__timers_take(struct timers *timers, int64_t now)
{
    pawl_timer *first = timers->root;

    if (!first || first->due > now)
        return NULL;
    unlink_node(timers, first);
    return first;
}
