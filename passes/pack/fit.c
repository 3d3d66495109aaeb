/* First fit: items in some order, each at the lowest offset where it meets none of those placed before. What is placed
 * stands in lists by offset, one list per block of sections, so that an item is compared only with items of its own
 * blocks. */
#include "passes/pack/part.h"

#include <stdlib.h>
#include <string.h>

enum { MANY = 4096, ORDERS = 5, TRIES = 300 };

typedef struct placed {
    int64_t offset, top;
    uint32_t lo, hi;
} placed;

typedef struct block {
    placed *at; /* by offset */
    uint32_t len;
    uint32_t solid; /* the first of these span the block and leave no gap below solid_top */
    int64_t solid_top;
} block;

typedef struct fit {
    const ap_pack_part *p;
    uint32_t shift; /* sections per block: 1 << shift */
    block *blocks;
    int64_t *offset;
    int64_t *work;
} fit;

/* ---- blocks ---- */

static uint64_t entries_at(const ap_pack_part *p, uint32_t shift)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        n += (p->item[i].hi >> shift) - (p->item[i].lo >> shift) + 1;
    return n;
}

/* Blocks so short that an item lies in four at most, on average. */
static void make_blocks(ap_arena *arena, fit *f)
{
    const ap_pack_part *p = f->p;
    while (entries_at(p, f->shift) > 4 * (uint64_t)p->n && p->nsections >> f->shift)
        f->shift++;
    uint32_t n = ((p->nsections - 1) >> f->shift) + 1;
    f->blocks = AP_NEW_ARRAY(arena, block, n);
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t b = p->item[i].lo >> f->shift; b <= p->item[i].hi >> f->shift; b++)
            f->blocks[b].len++;
    placed *at = AP_NEW_ARRAY(arena, placed, entries_at(p, f->shift));
    for (uint32_t b = 0; b < n; at += f->blocks[b++].len)
        f->blocks[b].at = at;
}

static void clear(fit *f)
{
    for (uint32_t b = 0; b <= (f->p->nsections - 1) >> f->shift; b++) {
        f->blocks[b].len = f->blocks[b].solid = 0;
        f->blocks[b].solid_top = 0;
    }
}

static void extend_solid(const fit *f, block *b)
{
    uint32_t lo = (uint32_t)(b - f->blocks) << f->shift, hi = lo + (1u << f->shift) - 1;
    hi = hi < f->p->nsections ? hi : f->p->nsections - 1;
    while (b->solid < b->len) {
        const placed *e = &b->at[b->solid];
        if (e->lo > lo || e->hi < hi || e->offset > b->solid_top)
            return;
        b->solid_top = ap_max_i64(b->solid_top, e->top);
        b->solid++;
    }
}

static void insert(fit *f, block *b, placed e)
{
    uint32_t lo = 0, hi = b->len;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (b->at[mid].offset <= e.offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    memmove(b->at + lo + 1, b->at + lo, (b->len - lo) * sizeof e);
    b->at[lo] = e;
    *f->work -= (b->len - lo) / 8;
    b->len++;
    extend_solid(f, b); /* nothing goes below solid_top, so what was solid still stands first */
}

/* Lowest offset from `at` on where the item meets nothing in the block. */
static int64_t scan(const fit *f, const block *b, const ap_pack_item *item, int64_t at)
{
    uint32_t i = b->solid;
    at = ap_max_i64(at, b->solid_top);
    for (; i < b->len && b->at[i].offset < at + item->size; i++)
        if (b->at[i].top > at && b->at[i].lo <= item->hi && item->lo <= b->at[i].hi)
            at = b->at[i].top;
    *f->work -= i - b->solid + 1;
    return at;
}

/* ---- one order ---- */

static int64_t place_in_order(fit *f, const uint32_t *order)
{
    int64_t height = 0;
    clear(f);
    for (uint32_t i = 0; i < f->p->n; i++) {
        const ap_pack_item *item = &f->p->item[order[i]];
        block *first = f->blocks + (item->lo >> f->shift), *last = f->blocks + (item->hi >> f->shift);
        int64_t at = 0, before;
        do {
            before = at;
            for (const block *b = first; b <= last; b++)
                at = scan(f, b, item, at);
        } while (at != before && first != last);
        for (block *b = first; b <= last; b++)
            insert(f, b, (placed){at, at + item->size, item->lo, item->hi});
        f->offset[order[i]] = at;
        height = ap_max_i64(height, at + item->size);
    }
    return height;
}

typedef struct order_key {
    int64_t key; /* larger first */
    uint32_t id;
} order_key;

static int compare_keys(const void *pa, const void *pb)
{
    const order_key *a = pa, *b = pb;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* By size, size times life time, begin, life time, and the largest sum that the item is alive with (given). */
static void make_order(const ap_pack_part *p, int which, const int64_t *busy, order_key *key, uint32_t *order)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const ap_pack_item *item = &p->item[i];
        int64_t span = item->hi - item->lo + 1;
        const int64_t by[ORDERS] = {item->size, ap_sat_mul(item->size, span), -(int64_t)item->lo, span, busy[i]};
        key[i] = (order_key){by[which], i};
    }
    qsort(key, p->n, sizeof *key, compare_keys);
    for (uint32_t i = 0; i < p->n; i++)
        order[i] = key[i].id;
}

/* Largest live sum over the item's sections, from maxima over runs of sections of length 2^level. */
static int64_t *find_busy(ap_arena *arena, const ap_pack_part *p)
{
    int64_t *busy = AP_NEW_ARRAY(arena, int64_t, p->n), *most = AP_NEW_ARRAY(arena, int64_t, p->nsections);
    memcpy(most, p->live, p->nsections * sizeof *most);
    for (uint32_t length = 1; length <= p->nsections; length *= 2) {
        for (uint32_t i = 0; i < p->n; i++) {
            uint32_t span = p->item[i].hi - p->item[i].lo + 1;
            if (span >= length && span < 2 * length)
                busy[i] = ap_max_i64(most[p->item[i].lo], most[p->item[i].hi + 1 - length]);
        }
        for (uint32_t k = 0; k + 2 * length <= p->nsections; k++)
            most[k] = ap_max_i64(most[k], most[k + length]);
    }
    return busy;
}

/* ---- better orders ---- */

/* Moves what lies at the top to somewhere earlier in the order, and keeps what is not worse. */
static int64_t improve(fit *f, uint32_t *order, int64_t height, int64_t target, int64_t *best_offset, uint32_t *trial)
{
    uint32_t n = f->p->n;
    uint64_t random = 1;
    for (int i = 0; i < TRIES && height > target && *f->work > 0; i++) {
        uint32_t from = n, to;
        memcpy(trial, order, n * sizeof *trial);
        for (uint32_t k = n; k-- > 0 && from == n;)
            if (best_offset[order[k]] + f->p->item[order[k]].size == height)
                from = k;
        if (from == 0)
            return height;
        random = random * 6364136223846793005u + 1442695040888963407u;
        to = (uint32_t)((random >> 33) % from);
        uint32_t id = trial[from];
        memmove(trial + to + 1, trial + to, (from - to) * sizeof *trial);
        trial[to] = id;
        int64_t got = place_in_order(f, trial);
        if (got > height)
            continue;
        height = got;
        memcpy(order, trial, n * sizeof *order);
        memcpy(best_offset, f->offset, n * sizeof *best_offset);
    }
    return height;
}

int64_t ap_pack_fit(ap_arena *arena, const ap_pack_part *p, int64_t target, int64_t *work, int64_t *offset)
{
    fit f = {.p = p, .work = work, .offset = AP_NEW_ARRAY(arena, int64_t, p->n)};
    uint32_t *order = AP_NEW_ARRAY(arena, uint32_t, p->n), *best_order = AP_NEW_ARRAY(arena, uint32_t, p->n);
    order_key *key = AP_NEW_ARRAY(arena, order_key, p->n);
    const int64_t *busy = find_busy(arena, p);
    int64_t best = INT64_MAX;
    make_blocks(arena, &f);
    for (int which = 0; which < ORDERS && best > target && (which == 0 || *work > 0 || p->n <= MANY); which++) {
        make_order(p, which, busy, key, order);
        int64_t height = place_in_order(&f, order);
        if (height >= best)
            continue;
        best = height;
        memcpy(best_order, order, p->n * sizeof *order);
        memcpy(offset, f.offset, p->n * sizeof *offset);
    }
    return improve(&f, best_order, best, target, offset, order);
}
