/* SPDX-License-Identifier: Apache-2.0
 *
 * points.h - included before every source file of the steered core (-include): its atomic
 * operations are points where another thread may go on, before the operation takes place.
 */
#ifndef PAWL_SCHED_POINTS_H
#define PAWL_SCHED_POINTS_H

#include <stdatomic.h>

void sched_atomic(const volatile void *word);

#undef atomic_load
#undef atomic_store
#undef atomic_exchange
#undef atomic_fetch_add
#undef atomic_fetch_sub
#define atomic_load(p) (sched_atomic(p), atomic_load_explicit(p, memory_order_seq_cst))
#define atomic_store(p, v) (sched_atomic(p), atomic_store_explicit(p, v, memory_order_seq_cst))
#define atomic_exchange(p, v)                                                                      \
    (sched_atomic(p), atomic_exchange_explicit(p, v, memory_order_seq_cst))
#define atomic_fetch_add(p, v)                                                                     \
    (sched_atomic(p), atomic_fetch_add_explicit(p, v, memory_order_seq_cst))
#define atomic_fetch_sub(p, v)                                                                     \
    (sched_atomic(p), atomic_fetch_sub_explicit(p, v, memory_order_seq_cst))

#endif
