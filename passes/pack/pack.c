/* The packer as a whole: bytes become units, times sections; parts are packed one by one, and those that are higher
 * than the highest bound get more work. */
#include "passes/pack/part.h"

#include <stdlib.h>
#include <string.h>

typedef struct event {
    uint32_t time, item;
    bool end;
} event;

typedef struct packing {
    ap_arena *arena, scratch; /* scratch: of one part */
    uint32_t n, nsections;
    ap_pack_item *item; /* of size > 0 */
    uint32_t *buffer;   /* per item: which */
    uint32_t *by_lo;    /* items by their first section */
    int64_t *live;
    int64_t *offset; /* per item, in units */
    int64_t unit, target, work;
} packing;

/* ---- units ---- */

/* Items of what has a size; false when all together are too large. The unit divides the alignment's multiples. */
static bool make_items(packing *k, const ap_pack_problem *p)
{
    int64_t total = 0;
    k->item = AP_NEW_ARRAY(k->arena, ap_pack_item, p->n);
    k->buffer = AP_NEW_ARRAY(k->arena, uint32_t, p->n);
    for (uint32_t i = 0; i < p->n; i++) {
        int64_t size;
        if (p->size[i] <= 0)
            continue;
        if (!ap_add_i64(p->size[i], p->align - 1, &size))
            return false;
        size -= size % p->align;
        total = ap_sat_add(total, size);
        k->unit = ap_gcd_i64(size, k->unit);
        k->buffer[k->n] = i;
        k->item[k->n++] = (ap_pack_item){.size = size};
    }
    for (uint32_t i = 0; i < k->n; i++)
        k->item[i].size /= k->unit;
    return total <= (int64_t)1 << 62;
}

/* ---- sections ---- */

static int compare_events(const void *pa, const void *pb)
{
    const event *a = pa, *b = pb;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->end != b->end)
        return a->end ? 1 : -1;
    return a->item < b->item ? -1 : a->item > b->item;
}

/* A section closes when something ends after something began: nothing larger is alive together. */
static void make_sections(packing *k, const ap_pack_problem *p)
{
    event *e = AP_NEW_ARRAY(k->arena, event, 2 * (size_t)k->n);
    uint32_t n = 0;
    bool open = false;
    for (uint32_t i = 0; i < k->n; i++) {
        e[2 * i] = (event){p->first[k->buffer[i]], i, false};
        e[2 * i + 1] = (event){p->last[k->buffer[i]], i, true};
    }
    qsort(e, 2 * (size_t)k->n, sizeof *e, compare_events);
    k->by_lo = AP_NEW_ARRAY(k->arena, uint32_t, k->n);
    for (uint32_t i = 0; i < 2 * k->n; i++) {
        ap_pack_item *item = &k->item[e[i].item];
        if (e[i].end) {
            k->nsections += open;
            open = false;
            item->hi = k->nsections - 1;
        } else {
            item->lo = k->nsections;
            open = true;
            k->by_lo[n++] = e[i].item;
        }
    }
    k->live = AP_NEW_ARRAY(k->arena, int64_t, k->nsections + 1);
    for (uint32_t i = 0; i < k->n; i++) {
        k->live[k->item[i].lo] += k->item[i].size;
        k->live[k->item[i].hi + 1] -= k->item[i].size;
    }
    for (uint32_t s = 1; s < k->nsections; s++)
        k->live[s] += k->live[s - 1];
}

/* ---- parts ---- */

static int64_t height_of(const ap_pack_part *p, const int64_t *offset)
{
    int64_t height = 0;
    for (uint32_t i = 0; i < p->n; i++)
        height = ap_max_i64(height, offset[i] + p->item[i].size);
    return height;
}

/* Asks for the target first, then halves what lies between the highest height that failed and the best known one. */
static int64_t search_lower(packing *k, const ap_pack_part *p, int64_t height, int64_t *offset)
{
    int64_t failed = k->target - 1;
    for (bool first = true; failed + 1 < height && k->work > 0; first = false) {
        int64_t ask = first ? k->target : failed + 1 + (height - failed - 1) / 2, share = k->work / (first ? 2 : 4);
        ask = ap_min_i64(ask, height - 1);
        int64_t left = share + 1;
        ap_arena_reset(&k->scratch);
        ap_pack_answer answer = ap_pack_search(&k->scratch, p, ask, &left, offset);
        k->work -= share + 1 - left;
        if (answer == AP_PACK_FITS)
            height = height_of(p, offset);
        else
            failed = ask;
    }
    return height;
}

/* Items by_lo[from ... to): all of the sections lo ... hi, which nothing crosses. */
static int64_t pack_part(packing *k, uint32_t from, uint32_t to, uint32_t lo, uint32_t hi)
{
    ap_pack_item *item = AP_NEW_ARRAY(k->arena, ap_pack_item, to - from);
    int64_t *offset = AP_NEW_ARRAY(k->arena, int64_t, to - from);
    ap_pack_part p = {.n = to - from, .nsections = hi - lo + 1, .item = item, .live = k->live + lo};
    for (uint32_t i = from; i < to; i++) {
        item[i - from] = k->item[k->by_lo[i]];
        item[i - from].lo -= lo;
        item[i - from].hi -= lo;
    }
    ap_arena_reset(&k->scratch);
    int64_t share = k->work / 4, left = share;
    int64_t height = ap_pack_fit(&k->scratch, &p, k->target, &left, offset);
    k->work -= share - left;
    height = search_lower(k, &p, height, offset);
    for (uint32_t i = from; i < to; i++)
        k->offset[k->by_lo[i]] = offset[i - from];
    return height;
}

static int64_t pack_parts(packing *k)
{
    int64_t height = 0;
    for (uint32_t from = 0, to = 0; from < k->n; from = to) {
        uint32_t lo = k->item[k->by_lo[from]].lo, hi = lo;
        for (; to < k->n && k->item[k->by_lo[to]].lo <= hi; to++)
            hi = k->item[k->by_lo[to]].hi > hi ? k->item[k->by_lo[to]].hi : hi;
        height = ap_max_i64(height, pack_part(k, from, to, lo, hi));
    }
    return height;
}

bool ap_pack(ap_arena *arena, const ap_pack_problem *p, const ap_pack_options *opt, ap_packing *out)
{
    packing k = {.arena = arena, .work = opt->work};
    int64_t bound = 0, height;
    memset(out, 0, sizeof *out);
    out->offset = AP_NEW_ARRAY(arena, int64_t, p->n);
    if (!make_items(&k, p))
        return false;
    if (k.n == 0)
        return true;
    make_sections(&k, p);
    for (uint32_t s = 0; s < k.nsections; s++)
        bound = ap_max_i64(bound, k.live[s]);
    k.target = ap_max_i64(bound, opt->capacity / k.unit);
    k.offset = AP_NEW_ARRAY(arena, int64_t, k.n);
    ap_arena_init(&k.scratch, arena->out_of_memory, arena->user);
    height = pack_parts(&k);
    ap_arena_deinit(&k.scratch);
    for (uint32_t i = 0; i < k.n; i++)
        out->offset[k.buffer[i]] = k.offset[i] * k.unit;
    out->height = height * k.unit;
    out->bound = bound * k.unit;
    out->work = opt->work - k.work;
    return true;
}
