/* SPDX-License-Identifier: Apache-2.0
 *
 * keys.c - names to keys. All keys of a name are in one slot of a cluster; docs/redis.md has the
 * table. Different names have different keys, and K itself is prefix + name, unchanged.
 */
#include <pthread.h>

#include "redis.h"

/* The checksum of Redis Cluster's key slots: CRC-16 with polynomial 0x1021, initial value 0. */
static uint16_t crc16(const char *data, size_t length)
{
    uint16_t crc = 0;

    for (size_t i = 0; i < length; i++) {
        crc = (uint16_t)(crc ^ (uint16_t)((unsigned char)data[i] << 8));
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc;
}

/* The tag of a key, which decides the slot. NULL: the whole key decides. */
static const char *find_tag(const char *key, size_t length, size_t *ret)
{
    const char *open = memchr(key, '{', length), *close;

    if (!open)
        return NULL;
    close = memchr(open, '}', length - (size_t)(open - key));
    if (!close || close == open + 1)
        return NULL;
    *ret = (size_t)(close - open) - 1;
    return open + 1;
}

uint16_t redis_slot(const char *key, size_t length)
{
    size_t tag_length = length;
    const char *tag = find_tag(key, length, &tag_length);

    return crc16(tag ? tag : key, tag_length) % REDIS_SLOTS;
}

/* For each slot the smallest number with digits that hash to the slot, plus 1. Filling the table
 * takes some ten milliseconds, and few programs need the table. */
static uint32_t numbers[REDIS_SLOTS];
static pthread_once_t numbered = PTHREAD_ONCE_INIT;

static void number_slots(void)
{
    char digits[12];
    size_t left = REDIS_SLOTS;

    memset(numbers, 0, sizeof numbers); /* a child that was forked meanwhile starts over */
    for (uint32_t n = 0; left; n++) {
        uint16_t slot = redis_slot(digits, (size_t)snprintf(digits, sizeof digits, "%u", n));

        if (!numbers[slot]) {
            numbers[slot] = n + 1;
            left--;
        }
    }
}

size_t redis_slot_tag(char tag[12], uint16_t slot)
{
    pthread_once(&numbered, number_slots);
    return (size_t)snprintf(tag, 12, "%u", numbers[slot] - 1);
}

void redis_keys_of(redis_keys *keys, const char *k, size_t length)
{
    char number[12];
    size_t tag_length = 0, n = 0;
    const char *tag = find_tag(k, length, &tag_length);

    keys->k_length = length;
    memmove(keys->k, k, length);
    keys->k[length] = 0;
    if (!tag && memchr(k, '}', length)) {
        tag = number;
        tag_length = redis_slot_tag(number, redis_slot(k, length));
    }
    keys->base[n++] = '{';
    memcpy(keys->base + n, tag ? tag : k, tag ? tag_length : length);
    n += tag ? tag_length : length;
    keys->base[n++] = '}';
    if (tag) {
        keys->base[n++] = ':';
        memcpy(keys->base + n, k, length);
        n += length;
    }
    keys->base_length = n;
}

size_t redis_key(char k[REDIS_K_MAX + 1], const char *prefix, const char *name)
{
    int length = snprintf(k, REDIS_K_MAX + 1, "%s%s", prefix, name);

    return length > 0 && length <= REDIS_K_MAX ? (size_t)length : 0;
}

void redis_keys_make(redis_keys *keys, const char *prefix, const char *name)
{
    char k[REDIS_K_MAX + 1];
    size_t length = redis_key(k, prefix, name);

    redis_keys_of(keys, k, length);
}

void redis_add_helper(resp_command *c, redis_keys *keys, const char *suffix)
{
    size_t length = strlen(suffix);

    memcpy(keys->base + keys->base_length, suffix, length);
    resp_add(c, keys->base, keys->base_length + length);
}

void redis_add_keys(resp_command *c, redis_keys *keys)
{
    resp_add(c, keys->k, keys->k_length);
    redis_add_helper(c, keys, ":fence");
    redis_add_helper(c, keys, ":queue");
    redis_add_helper(c, keys, ":rec");
    redis_add_helper(c, keys, ":hold");
}
