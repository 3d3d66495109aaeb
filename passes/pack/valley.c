/* Valleys: where the search branches, and what it means that nothing lies on the ground there. */
#include "passes/pack/search.h"

bool ap_pack_lies_in(const ap_pack_state *s, const ap_pack_valley *v, uint32_t id)
{
    return !s->placed[id] && s->low[id] == v->ground && s->lo[id] >= v->lo && s->hi[id] <= v->hi;
}

static bool reaches(const ap_pack_state *s, uint32_t id, uint32_t section)
{
    return s->lo[id] <= section && section <= s->hi[id];
}

bool ap_pack_lies_at_end(const ap_pack_state *s, const ap_pack_valley *v, uint32_t id)
{
    return reaches(s, id, v->at) && ap_pack_lies_in(s, v, id);
}

/* Items whose first (last) section is the end of the valley. */
static const uint32_t *items_at(const ap_pack_state *s, const ap_pack_valley *v, uint32_t *out_n)
{
    const uint32_t *first = v->at == v->lo ? s->starts_first : s->ends_first;
    *out_n = first[v->at + 1] - first[v->at];
    return (v->at == v->lo ? s->starts : s->ends) + first[v->at];
}

/* Where the item can lie when it rests on an unplaced neighbour; v, or NULL: not on one at this end of the valley. */
static int32_t risen(ap_pack_state *s, const ap_pack_valley *v, uint32_t id)
{
    int32_t best = INT32_MAX;
    for (uint32_t i = s->near_first[id]; i < s->near_first[id + 1]; i++) {
        uint32_t d = s->near[i];
        if (!s->placed[d] && s->low[d] + s->size[d] < best && !(v && ap_pack_lies_at_end(s, v, d)))
            best = s->low[d] + s->size[d];
    }
    s->work -= (s->near_first[id + 1] - s->near_first[id]) / 2;
    return best;
}

/* Counts the possibilities at this end. What rises must leave room for all that reaches the section. */
static void weigh(ap_pack_state *s, ap_pack_valley *v)
{
    uint32_t n, one = AP_NONE;
    const uint32_t *item = items_at(s, v, &n);
    int32_t ground = INT32_MAX;
    v->options = 0;
    v->can_rise = true;
    for (uint32_t i = 0; i < n; i++) {
        if (!ap_pack_lies_in(s, v, item[i]))
            continue;
        v->options++;
        one = item[i];
        int32_t to = v->can_rise ? risen(s, v, one) : 0;
        ground = to < ground ? to : ground;
        v->can_rise = v->can_rise && to <= s->capacity - s->size[one];
    }
    for (uint32_t i = v->can_rise ? s->near_first[one] : 0; v->can_rise && i < s->near_first[one + 1]; i++) {
        uint32_t d = s->near[i];
        if (!s->placed[d] && reaches(s, d, v->at) && s->low[d] > v->ground && s->low[d] < ground)
            ground = s->low[d];
    }
    v->can_rise = v->can_rise && ground + s->rest[v->at] <= s->capacity;
    v->options += v->can_rise;
}

/* Ends without a choice first; then few possibilities where stacks failed often; the fuller of equals. */
static bool is_better(const ap_pack_valley *a, int32_t stack_a, const ap_pack_valley *b, int32_t stack_b)
{
    if (a->options < 2 || b->options < 2)
        return a->options < b->options;
    int64_t x = a->options * b->failed, y = b->options * a->failed;
    return x < y || (x == y && stack_a > stack_b);
}

ap_pack_valley ap_pack_choose_valley(ap_pack_state *s, uint32_t lo, uint32_t hi)
{
    ap_pack_valley best = {.options = INT32_MAX, .failed = 1};
    int32_t best_stack = -1;
    for (uint32_t k = lo; k <= hi;) {
        ap_pack_valley v = {.lo = k, .ground = s->ground[k], .failed = 1};
        int32_t stack = 0;
        for (; k <= hi && s->ground[k] == v.ground; k++) {
            stack = s->stack[k] > stack ? s->stack[k] : stack;
            v.failed = ap_max_i64(v.failed, s->failed[k] + 1);
        }
        v.hi = k - 1;
        if ((v.lo > lo && s->ground[v.lo - 1] < v.ground) || (v.hi < hi && s->ground[v.hi + 1] < v.ground))
            continue;
        for (int side = 0; side < 2; side++) {
            v.at = side ? v.hi : v.lo;
            weigh(s, &v);
            if (!is_better(&v, stack, &best, best_stack))
                continue;
            best = v;
            best_stack = stack;
        }
    }
    s->work -= hi - lo;
    return best;
}

/* New lows are found before any is set. */
void ap_pack_rise(ap_pack_state *s, const ap_pack_valley *v)
{
    uint32_t n, mark = s->trail.len;
    const uint32_t *item = items_at(s, v, &n);
    for (uint32_t i = 0; i < n; i++)
        if (ap_pack_lies_in(s, v, item[i]))
            ap_vec_push(s->arena, &s->trail, (ap_pack_change){item[i], risen(s, v, item[i])});
    for (uint32_t i = mark; i < s->trail.len; i++) {
        ap_pack_change *c = &s->trail.at[i];
        int32_t to = c->was;
        c->was = s->low[c->id];
        s->low[c->id] = to;
    }
}

bool ap_pack_rise_one(ap_pack_state *s, uint32_t id)
{
    int32_t to = risen(s, NULL, id);
    if (to > s->capacity - s->size[id])
        return false;
    ap_pack_set_low(s, id, to);
    return true;
}
