/* Does a part fit in a capacity? Depth-first search over packings in which no buffer can be moved down alone. Let
 * low(b) be the highest placed top under an unplaced buffer b, and ground(k) the smallest low of the unplaced buffers
 * of section k. A *valley* is a run of sections of equal ground between higher ones. At an end of it exactly one of
 * these holds, and the search branches over them:
 *
 *        |    |           |        - a buffer that begins (ends) there and lies within the valley is on its ground;
 *        |    +-----------+        - none is: each of those rests on an unplaced one of another kind, so their lows
 *   -----+    ^ end    end ^         rise
 *
 * or, in every other run, over one buffer of the valley: it is on the ground, or it rests on an unplaced one. So all
 * packings are met once whichever valleys are taken, and the search takes those with few possibilities where it failed
 * often. What bounds it:
 *   - per section, the unplaced buffers stacked by rising low must end within the capacity: the least makespan of jobs
 *     with release times;
 *   - a buffer that ends before any unplaced neighbour can begin is placed without alternative;
 *   - where no unplaced buffer crosses a boundary between sections, the sides are searched apart;
 *   - states that failed are remembered, by a hash of what is unplaced and its lows: nothing else matters.
 * Runs are short at first and change the order in which buffers are tried; the orders, the parts and the idea of
 * dominated places are those of M. D. Moffitt, MiniMalloc, ASPLOS 2023. */
#include "passes/pack/search.h"

#include <stdlib.h>

enum { MAX_ITEMS = 2048, MEMO_BITS = 18, ORDERS = 3 };
#define FIRST_RUN 2000000

static ap_pack_answer solve(ap_pack_state *s, ap_pack_list u);

/* Places item i of the list, then everything else; takes it all back unless that fits. */
static ap_pack_answer try_item(ap_pack_state *s, ap_pack_list u, uint32_t i)
{
    uint32_t mark = s->trail.len, pool_used = s->pool_used, lists_used = s->lists_used, nparts = 1;
    bool parted = ap_pack_place(s, u.at[i].id);
    ap_pack_list *part = s->lists + lists_used;
    ap_pack_answer answer = AP_PACK_FITS;
    part[0] = ap_pack_copy_without(s, u, i);
    if (parted)
        nparts = ap_pack_split(s, part[0], part);
    s->lists_used += nparts;
    for (uint32_t p = 0; p < nparts && answer == AP_PACK_FITS; p++)
        answer = solve(s, part[p]);
    s->pool_used = pool_used;
    s->lists_used = lists_used;
    if (answer != AP_PACK_FITS)
        ap_pack_take_back(s, mark);
    return answer;
}

/* The next item by rank after `rank` (AP_NONE: the first) on the ground of the valley, at its end or anywhere. */
static uint32_t next_item(const ap_pack_state *s, ap_pack_list u, const ap_pack_valley *v, bool at_end, uint32_t rank)
{
    uint32_t best = AP_NONE;
    for (uint32_t i = 0; i < u.n && u.at[i].low <= v->ground; i++) {
        uint32_t b = u.at[i].id, r = s->rank[b];
        if (!(at_end ? ap_pack_lies_at_end(s, v, b) : ap_pack_lies_in(s, v, b)) || (rank != AP_NONE && r <= rank))
            continue;
        if (best == AP_NONE || r < s->rank[u.at[best].id])
            best = i;
    }
    return best;
}

/* Everything on the ground at this end, then nothing. *out_again: the lows have risen instead. */
static ap_pack_answer branch_end(ap_pack_state *s, ap_pack_list u, const ap_pack_valley *v, bool *out_again)
{
    uint32_t rank = AP_NONE;
    for (uint32_t i; (i = next_item(s, u, v, true, rank)) != AP_NONE;) {
        rank = s->rank[u.at[i].id];
        ap_pack_answer answer = try_item(s, u, i);
        if (answer != AP_PACK_NEVER)
            return answer;
    }
    *out_again = v->can_rise;
    if (v->can_rise)
        ap_pack_rise(s, v);
    return AP_PACK_NEVER;
}

static ap_pack_answer branch_item(ap_pack_state *s, ap_pack_list u, const ap_pack_valley *v, bool *out_again)
{
    uint32_t i = next_item(s, u, v, false, AP_NONE), id = u.at[i].id;
    ap_pack_answer answer = try_item(s, u, i);
    *out_again = answer == AP_PACK_NEVER && ap_pack_rise_one(s, id);
    return answer;
}

/* One state after the other, lows rising, until something fits or nothing is left. */
static ap_pack_answer solve_states(ap_pack_state *s, ap_pack_list u, uint64_t *out_first)
{
    uint32_t lo, hi;
    ap_pack_sections(s, u, &lo, &hi);
    for (;;) {
        bool again = false;
        if (s->work <= 0)
            return AP_PACK_UNKNOWN;
        if (!ap_pack_stacks_fit(s, u, lo, hi))
            return AP_PACK_NEVER;
        uint64_t hash = ap_pack_hash(s, u);
        if (s->memo[hash >> (64 - MEMO_BITS)] == hash)
            return AP_PACK_NEVER;
        *out_first = *out_first ? *out_first : hash;
        ap_pack_find_ground(s, u);
        uint32_t settled = ap_pack_find_settled(s, u);
        if (settled != AP_NONE)
            return try_item(s, u, settled);
        ap_pack_valley v = ap_pack_choose_valley(s, lo, hi);
        ap_pack_answer answer =
            s->one_item && v.options > 1 ? branch_item(s, u, &v, &again) : branch_end(s, u, &v, &again);
        if (!again)
            return answer;
    }
}

static ap_pack_answer solve(ap_pack_state *s, ap_pack_list u)
{
    uint32_t mark = s->trail.len;
    uint64_t first = 0;
    if (u.n == 0)
        return AP_PACK_FITS;
    ap_pack_answer answer = solve_states(s, u, &first);
    if (answer == AP_PACK_NEVER && first)
        s->memo[first >> (64 - MEMO_BITS)] = first;
    if (answer != AP_PACK_FITS)
        ap_pack_take_back(s, mark);
    return answer;
}

/* ---- runs ---- */

typedef struct order_key {
    int64_t key[3]; /* larger first */
    uint32_t id;
} order_key;

static int compare_keys(const void *pa, const void *pb)
{
    const order_key *a = pa, *b = pb;
    for (int i = 0; i < 3; i++)
        if (a->key[i] != b->key[i])
            return a->key[i] > b->key[i] ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Ranks by life time, area and contention, the largest sum alive with the item. */
static void set_ranks(ap_pack_state *s, const ap_pack_part *p, int order)
{
    static const uint8_t which[ORDERS][3] = {{0, 1, 2}, {2, 1, 0}, {2, 0, 1}};
    order_key *key = AP_NEW_ARRAY(s->arena, order_key, s->n);
    for (uint32_t b = 0; b < s->n; b++) {
        int64_t span = s->hi[b] - s->lo[b] + 1, live = 0;
        for (uint32_t k = s->lo[b]; k <= s->hi[b]; k++)
            live = ap_max_i64(live, p->live[k]);
        const int64_t measure[3] = {span, span * s->size[b], live};
        for (int i = 0; i < 3; i++)
            key[b].key[i] = measure[which[order][i]];
        key[b].id = b;
    }
    qsort(key, s->n, sizeof *key, compare_keys);
    for (uint32_t r = 0; r < s->n; r++)
        s->rank[key[r].id] = r;
}

static ap_pack_answer run(ap_pack_state *s, int64_t limit)
{
    ap_pack_list all = {.at = s->pool, .n = s->n};
    ap_pack_answer answer = AP_PACK_FITS;
    int64_t kept_back = ap_max_i64(s->work - limit, 0);
    for (uint32_t b = 0; b < s->n; b++)
        s->pool[b].id = b;
    s->pool_used = s->n;
    s->work -= kept_back;
    uint32_t nparts = s->lists_used = ap_pack_split(s, all, s->lists);
    for (uint32_t i = 0; i < nparts && answer == AP_PACK_FITS; i++)
        answer = solve(s, s->lists[i]);
    ap_pack_take_back(s, 0);
    s->work += kept_back;
    return answer;
}

ap_pack_answer ap_pack_search(ap_arena *arena, const ap_pack_part *p, int64_t height, int64_t *work, int64_t *offset)
{
    for (uint32_t k = 0; k < p->nsections; k++)
        if (p->live[k] > height)
            return AP_PACK_NEVER;
    if (p->n > MAX_ITEMS || height > INT32_MAX / 4 || *work <= 0)
        return AP_PACK_UNKNOWN;
    ap_pack_state s = {.arena = arena, .work = *work};
    ap_pack_answer answer = AP_PACK_UNKNOWN;
    ap_pack_state_init(&s, p, (int32_t)height);
    s.memo = AP_NEW_ARRAY(arena, uint64_t, (size_t)1 << MEMO_BITS);
    for (int64_t limit = FIRST_RUN; answer == AP_PACK_UNKNOWN && s.work > 0; limit *= 2) {
        for (int i = 0; i < 2 * ORDERS && answer == AP_PACK_UNKNOWN && s.work > 0; i++) {
            set_ranks(&s, p, i / 2);
            s.one_item = i % 2;
            answer = run(&s, limit);
        }
    }
    for (uint32_t b = 0; answer == AP_PACK_FITS && b < s.n; b++)
        offset[b] = s.offset[b];
    *work = s.work;
    return answer;
}
