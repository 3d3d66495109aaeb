/* The wire format knows no types: a field of bytes that reads as a message is taken for one. All fields of the tree
 * are numbered in order; one of them is changed, doubled, dropped, or replaced by another one. */
#include "wire.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 12, ROOM = 1 << 16 };

typedef struct span {
    const uint8_t *at, *end;
} span;

typedef enum change { MUTATE, DOUBLE, DROP, REPLACE, CHANGES } change;

typedef struct rewrite {
    unsigned next, target; /* numbers of fields */
    change what;
    span given; /* the donor's bytes */
    wire_mutator *bytes;
    uint8_t *out;
    size_t len, cap;
    bool full;
} rewrite;

static bool read_varint(span *s, uint64_t *out)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64 && s->at < s->end; shift += 7) {
        uint8_t b = *s->at++;
        v |= (uint64_t)(b & 127) << shift;
        if (!(b & 128)) {
            *out = v;
            return true;
        }
    }
    return false;
}

/* One field: its key, and what follows (for bytes: without the length). */
static bool read_field(span *s, uint64_t *key, span *value)
{
    uint64_t n;
    if (!read_varint(s, key) || *key >> 3 == 0 || *key >> 3 > 1000)
        return false;
    value->at = s->at;
    switch (*key & 7) {
    case 0:
        if (!read_varint(s, &n))
            return false;
        break;
    case 1:
    case 5:
        n = (*key & 7) == 1 ? 8 : 4;
        if ((size_t)(s->end - s->at) < n)
            return false;
        s->at += n;
        break;
    case 2:
        if (!read_varint(s, &n) || n > (uint64_t)(s->end - s->at))
            return false;
        value->at = s->at;
        s->at += n;
        break;
    default:
        return false;
    }
    value->end = s->at;
    return true;
}

static bool is_message(span s)
{
    uint64_t key;
    span value;
    if (s.at == s.end)
        return false;
    while (s.at < s.end)
        if (!read_field(&s, &key, &value))
            return false;
    return true;
}

static void put(rewrite *r, const uint8_t *p, size_t n)
{
    if (n > r->cap - r->len) {
        r->full = true;
        return;
    }
    if (n)
        memcpy(r->out + r->len, p, n);
    r->len += n;
}

static void put_varint(rewrite *r, uint64_t v)
{
    uint8_t b[10];
    size_t n = 0;
    do {
        b[n++] = (uint8_t)((v & 127) | (v > 127 ? 128 : 0));
        v >>= 7;
    } while (v);
    put(r, b, n);
}

static void put_value(rewrite *r, uint64_t key, const uint8_t *p, size_t n)
{
    put_varint(r, key);
    if ((key & 7) == 2)
        put_varint(r, n);
    put(r, p, n);
}

/* New contents of about the old size; numbers stay numbers. */
static void put_mutated(rewrite *r, uint64_t key, span value)
{
    uint8_t *room = malloc(ROOM);
    size_t n = (size_t)(value.end - value.at);
    n = n > ROOM / 2 ? ROOM / 2 : n;
    if (!room) {
        r->full = true;
        return;
    }
    if ((key & 7) == 0) {
        uint64_t v = 0;
        read_varint(&value, &v);
        memcpy(room, &v, 8);
        size_t got = r->bytes(room, 8, 8);
        v = 0;
        memcpy(&v, room, got < 8 ? got : 8);
        put_varint(r, key);
        put_varint(r, v);
    } else {
        memcpy(room, value.at, n);
        size_t most = (key & 7) == 2 ? (n < 64 ? 128 : 2 * n) : n, got = r->bytes(room, n, most);
        if ((key & 7) != 2)
            got = n;
        put_value(r, key, room, got);
    }
    free(room);
}

static void walk(rewrite *r, span s, int depth);

static void put_message(rewrite *r, uint64_t key, span value, int depth)
{
    rewrite inner = *r;
    inner.cap = r->cap - r->len;
    inner.out = malloc(inner.cap + 1);
    inner.len = 0;
    if (!inner.out) {
        r->full = true;
        return;
    }
    walk(&inner, value, depth + 1);
    r->next = inner.next;
    r->full |= inner.full;
    put_value(r, key, inner.out, inner.len);
    free(inner.out);
}

static void walk(rewrite *r, span s, int depth)
{
    uint64_t key;
    span value;
    while (s.at < s.end && !r->full) {
        const uint8_t *start = s.at;
        if (!read_field(&s, &key, &value)) {
            put(r, start, (size_t)(s.end - start));
            return;
        }
        bool mine = r->next++ == r->target, message = (key & 7) == 2 && depth < DEPTH && is_message(value);
        size_t whole = (size_t)(s.at - start);
        if (!mine && message) {
            put_message(r, key, value, depth);
        } else if (!mine) {
            put(r, start, whole);
        } else if (r->what == MUTATE) {
            put_mutated(r, key, value);
        } else if (r->what == REPLACE) {
            put(r, r->given.at, (size_t)(r->given.end - r->given.at));
        } else if (r->what == DOUBLE) {
            put(r, start, whole);
            put(r, start, whole);
        }
        if (mine && message) /* its own fields keep their numbers */
            r->next += 1;
    }
}

/* How many fields; the bytes of number `which`. */
static unsigned count_fields(span s, int depth, unsigned at, unsigned which, span *out)
{
    uint64_t key;
    span value;
    while (s.at < s.end) {
        const uint8_t *start = s.at;
        if (!read_field(&s, &key, &value))
            break;
        if (at++ == which)
            *out = (span){start, s.at};
        if ((key & 7) == 2 && depth < DEPTH && is_message(value))
            at = count_fields(value, depth + 1, at, which, out);
    }
    return at;
}

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

size_t wire_mutate(uint8_t *data, size_t size, size_t max, unsigned seed, wire_mutator *bytes)
{
    span all = {data, data + size}, donor = {0};
    unsigned state = seed, n = count_fields(all, 0, 0, UINT32_MAX, &donor);
    if (n == 0 || next_random(&state) % 16 == 0)
        return bytes(data, size, max);
    rewrite r = {
        .target = next_random(&state) % n, .what = (change)(next_random(&state) % (CHANGES + 2)), .bytes = bytes};
    if (r.what >= CHANGES)
        r.what = MUTATE;
    count_fields(all, 0, 0, next_random(&state) % n, &r.given);
    r.cap = max;
    r.out = malloc(max + 1);
    if (!r.out)
        return size;
    walk(&r, all, 0);
    if (!r.full) {
        memcpy(data, r.out, r.len);
        size = r.len;
    }
    free(r.out);
    return size;
}
