/* The state of the exact search: what is placed, how low the rest can lie, which cuts follow. */
#include "passes/pack/search.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* ---- setting up ---- */

static bool meet(const ap_pack_state *s, uint32_t b, uint32_t c)
{
    return s->lo[c] <= s->hi[b] && s->lo[b] <= s->hi[c];
}

static void find_neighbours(ap_pack_state *s)
{
    s->near_first = AP_NEW_ARRAY(s->arena, uint32_t, s->n + 1);
    for (uint32_t b = 0; b < s->n; b++) {
        s->near_first[b + 1] = s->near_first[b];
        for (uint32_t c = 0; c < s->n; c++)
            s->near_first[b + 1] += c != b && meet(s, b, c);
    }
    s->near = AP_NEW_ARRAY(s->arena, uint32_t, s->near_first[s->n]);
    for (uint32_t b = 0, at = 0; b < s->n; b++)
        for (uint32_t c = 0; c < s->n; c++)
            if (c != b && meet(s, b, c))
                s->near[at++] = c;
    s->work -= 2 * (int64_t)s->n * s->n;
}

/* Items by a section that each of them names. */
static uint32_t *bucket(ap_pack_state *s, const uint32_t *section, uint32_t **out_first)
{
    uint32_t *first = AP_NEW_ARRAY(s->arena, uint32_t, s->nsections + 2);
    uint32_t *item = AP_NEW_ARRAY(s->arena, uint32_t, s->n);
    for (uint32_t b = 0; b < s->n; b++)
        first[section[b] + 2]++;
    for (uint32_t k = 2; k < s->nsections + 2; k++)
        first[k] += first[k - 1];
    for (uint32_t b = 0; b < s->n; b++)
        item[first[section[b] + 1]++] = b;
    *out_first = first;
    return item;
}

static void new_arrays(ap_pack_state *s)
{
    ap_arena *a = s->arena;
    uint32_t n = s->n, sections = s->nsections;
    s->lo = AP_NEW_ARRAY(a, uint32_t, n);
    s->hi = AP_NEW_ARRAY(a, uint32_t, n);
    s->rank = AP_NEW_ARRAY(a, uint32_t, n);
    s->size = AP_NEW_ARRAY(a, int32_t, n);
    s->low = AP_NEW_ARRAY(a, int32_t, n);
    s->offset = AP_NEW_ARRAY(a, int32_t, n);
    s->code = AP_NEW_ARRAY(a, uint64_t, n);
    s->placed = AP_NEW_ARRAY(a, bool, n);
    s->crossing = AP_NEW_ARRAY(a, uint32_t, sections);
    s->rest = AP_NEW_ARRAY(a, int64_t, sections);
    s->ground = AP_NEW_ARRAY(a, int32_t, sections);
    s->stack = AP_NEW_ARRAY(a, int32_t, sections);
    s->part = AP_NEW_ARRAY(a, uint32_t, sections);
    s->failed = AP_NEW_ARRAY(a, int64_t, sections);
    s->pool = AP_NEW_ARRAY(a, ap_pack_entry, (size_t)n * (n + 1) / 2 + n);
    s->lists = AP_NEW_ARRAY(a, ap_pack_list, 2 * n + sections + 2);
}

void ap_pack_state_init(ap_pack_state *s, const ap_pack_part *p, int32_t capacity)
{
    s->n = p->n;
    s->nsections = p->nsections;
    s->capacity = capacity;
    new_arrays(s);
    for (uint32_t b = 0; b < s->n; b++) {
        s->lo[b] = p->item[b].lo;
        s->hi[b] = p->item[b].hi;
        s->size[b] = (int32_t)p->item[b].size;
        s->code[b] = mix(mix(mix(s->lo[b] + 1) + s->hi[b]) + (uint64_t)s->size[b]);
        for (uint32_t k = s->lo[b]; k <= s->hi[b]; k++)
            s->rest[k] += s->size[b];
        for (uint32_t k = s->lo[b]; k < s->hi[b]; k++)
            s->crossing[k]++;
    }
    s->starts = bucket(s, s->lo, &s->starts_first);
    s->ends = bucket(s, s->hi, &s->ends_first);
    find_neighbours(s);
}

/* ---- placing and taking back ---- */

void ap_pack_set_low(ap_pack_state *s, uint32_t id, int32_t to)
{
    ap_vec_push(s->arena, &s->trail, (ap_pack_change){id, s->low[id]});
    s->low[id] = to;
}

bool ap_pack_place(ap_pack_state *s, uint32_t id)
{
    int32_t top = s->low[id] + s->size[id];
    bool parted = false;
    s->placed[id] = true;
    s->offset[id] = s->low[id];
    ap_vec_push(s->arena, &s->trail, (ap_pack_change){id, -1});
    for (uint32_t i = s->near_first[id]; i < s->near_first[id + 1]; i++)
        if (!s->placed[s->near[i]] && s->low[s->near[i]] < top)
            ap_pack_set_low(s, s->near[i], top);
    for (uint32_t k = s->lo[id]; k <= s->hi[id]; k++)
        s->rest[k] -= s->size[id];
    for (uint32_t k = s->lo[id]; k < s->hi[id]; k++)
        parted |= --s->crossing[k] == 0;
    s->work -= s->near_first[id + 1] - s->near_first[id] + s->hi[id] - s->lo[id];
    return parted;
}

void ap_pack_take_back(ap_pack_state *s, uint32_t mark)
{
    while (s->trail.len > mark) {
        ap_pack_change c = s->trail.at[--s->trail.len];
        if (c.was >= 0) {
            s->low[c.id] = c.was;
            continue;
        }
        s->placed[c.id] = false;
        for (uint32_t k = s->lo[c.id]; k <= s->hi[c.id]; k++)
            s->rest[k] += s->size[c.id];
        for (uint32_t k = s->lo[c.id]; k < s->hi[c.id]; k++)
            s->crossing[k]++;
    }
}

/* ---- lists ---- */

ap_pack_list ap_pack_copy_without(ap_pack_state *s, ap_pack_list u, uint32_t i)
{
    ap_pack_list c = {.at = s->pool + s->pool_used, .n = u.n - 1};
    memcpy(c.at, u.at, i * sizeof *u.at);
    memcpy(c.at + i, u.at + i + 1, (u.n - 1 - i) * sizeof *u.at);
    s->pool_used += c.n;
    s->work -= u.n / 4;
    return c;
}

void ap_pack_sections(const ap_pack_state *s, ap_pack_list u, uint32_t *out_lo, uint32_t *out_hi)
{
    uint32_t lo = UINT32_MAX, hi = 0;
    for (uint32_t i = 0; i < u.n; i++) {
        lo = s->lo[u.at[i].id] < lo ? s->lo[u.at[i].id] : lo;
        hi = s->hi[u.at[i].id] > hi ? s->hi[u.at[i].id] : hi;
    }
    *out_lo = lo;
    *out_hi = hi;
}

static int compare_lists(const void *pa, const void *pb)
{
    const ap_pack_list *a = pa, *b = pb;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

uint32_t ap_pack_split(ap_pack_state *s, ap_pack_list u, ap_pack_list *out)
{
    uint32_t lo, hi, all = 0, kept = 0;
    ap_pack_entry *old = s->pool + s->pool_used, *at = u.at; /* free space behind the lists */
    ap_pack_sections(s, u, &lo, &hi);
    for (uint32_t k = lo; u.n && k <= hi; k++) {
        s->part[k] = all;
        out[all].n = 0;
        all += k == hi || s->crossing[k] == 0;
    }
    for (uint32_t i = 0; i < u.n; i++)
        out[s->part[s->lo[u.at[i].id]]].n++;
    for (uint32_t p = 0; p < all; p++) {
        out[p].at = at;
        at += out[p].n;
        out[p].n = 0;
    }
    memcpy(old, u.at, u.n * sizeof *old);
    for (uint32_t i = 0; i < u.n; i++) {
        ap_pack_list *p = &out[s->part[s->lo[old[i].id]]];
        p->at[p->n++] = old[i];
    }
    for (uint32_t p = 0; p < all; p++)
        if (out[p].n)
            out[kept++] = out[p];
    qsort(out, kept, sizeof *out, compare_lists);
    s->work -= u.n + hi - lo;
    return kept;
}

/* ---- cuts ---- */

/* Sorts by low, which changes little from one state to the next. False when one item alone exceeds the capacity. */
static bool refresh(ap_pack_state *s, ap_pack_list u)
{
    bool fits = true;
    for (uint32_t i = 0; i < u.n; i++) {
        uint32_t b = u.at[i].id, j = i;
        int32_t low = s->low[b];
        fits = fits && low <= s->capacity - s->size[b];
        for (; j > 0 && u.at[j - 1].low > low; j--)
            u.at[j] = u.at[j - 1];
        u.at[j] = (ap_pack_entry){low, b};
        s->work -= i - j;
    }
    s->work -= u.n;
    return fits;
}

bool ap_pack_stacks_fit(ap_pack_state *s, ap_pack_list u, uint32_t lo, uint32_t hi)
{
    int32_t *stack = s->stack, highest = 0;
    if (!refresh(s, u))
        return false;
    memset(stack + lo, 0, (hi - lo + 1) * sizeof *stack);
    for (uint32_t i = 0; i < u.n; i++) {
        uint32_t b = u.at[i].id, end = s->hi[b];
        int32_t at = u.at[i].low, size = s->size[b];
        for (uint32_t k = s->lo[b]; k <= end; k++)
            stack[k] = (stack[k] > at ? stack[k] : at) + size;
        s->work -= (end - s->lo[b]) / 2 + 2;
    }
    for (uint32_t k = lo; k <= hi; k++)
        highest = stack[k] > highest ? stack[k] : highest;
    for (uint32_t k = lo; highest > s->capacity && k <= hi; k++)
        s->failed[k] += stack[k] > s->capacity;
    return highest <= s->capacity;
}

void ap_pack_find_ground(ap_pack_state *s, ap_pack_list u)
{
    for (uint32_t i = u.n; i-- > 0;) {
        uint32_t b = u.at[i].id, end = s->hi[b];
        for (uint32_t k = s->lo[b]; k <= end; k++)
            s->ground[k] = u.at[i].low;
        s->work -= (end - s->lo[b]) / 4 + 2;
    }
}

uint32_t ap_pack_find_settled(ap_pack_state *s, ap_pack_list u)
{
    for (uint32_t i = 0; i < u.n; i++) {
        uint32_t b = u.at[i].id, k = s->near_first[b], x = s->lo[b];
        int32_t low = u.at[i].low, end = low + s->size[b];
        while (x <= s->hi[b] && (s->ground[x] == low || s->ground[x] >= end))
            x++;
        if (x <= s->hi[b])
            continue;
        while (k < s->near_first[b + 1] && (s->placed[s->near[k]] || s->low[s->near[k]] >= end))
            k++;
        s->work -= k - s->near_first[b] + 1;
        if (k == s->near_first[b + 1])
            return i;
    }
    return AP_NONE;
}

uint64_t ap_pack_hash(ap_pack_state *s, ap_pack_list u)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < u.n; i++)
        h += mix(s->code[u.at[i].id] + (uint64_t)u.at[i].low);
    s->work -= u.n;
    return h | 1;
}
