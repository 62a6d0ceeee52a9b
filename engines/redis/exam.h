/* SPDX-License-Identifier: Apache-2.0
 *
 * exam.h - an examination of the server or servers: see examine.c.
 */
#ifndef PAWL_REDIS_EXAM_H
#define PAWL_REDIS_EXAM_H

#include "redis.h"

typedef struct exam exam;

/* One server. */
typedef struct part {
    exam *exam;
    struct part *next;
    bool settings;      /* CONFIG GET was answered */
    bool saves;         /* RDB files are written automatically */
    char appendfsync[16];
} part;

struct exam {
    redis *redis;
    pawl_op *op;  /* NULL: cancelled */
    size_t out;
    part *parts;
    int code;     /* why a server did not answer, or 0 */
    char words[REDIS_WORDS];
};

/* A finding about the call's server; call->about is a part. */
void redis_found(const redis_call *call, uint64_t level, const char *id, const char *what,
                const char *why, const char *remedy);

/* examine_info.c: findings from the answer to INFO. CONFIG GET was answered or refused before. */
void redis_exam_info(const redis_call *call, const char *info);

#endif
