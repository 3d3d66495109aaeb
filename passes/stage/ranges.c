/* Ranges of layers: min-plus products of the tables of layers, with the memory of the way that was taken. */
#include "passes/stage/dp.h"

#include <inttypes.h>

bool ap_stages_way_less(const ap_stages_way *a, const ap_stages_way *b)
{
    if (a->key != b->key)
        return a->key < b->key;
    if (a->time != b->time)
        return a->time < b->time;
    if (a->resident != b->resident)
        return a->resident < b->resident;
    return a->peak < b->peak;
}

ap_stages_way ap_stages_way_of(const ap_stages_problem *p, uint32_t layer, uint32_t choice, uint32_t in, uint32_t out)
{
    const ap_stages_table *t = &p->table[(size_t)layer * p->nchoices + choice];
    size_t i = (size_t)in * p->nlabels[(size_t)(layer + 1) * p->nchoices + choice] + out;
    if (t->time[i] == AP_STAGES_NONE)
        return (ap_stages_way){.key = AP_STAGES_NONE};
    ap_stages_way w = {.time = t->time[i]};
    w.resident = t->resident ? t->resident[i] : 0;
    w.peak = t->peak ? t->peak[i] : 0;
    w.key = w.time + (int64_t)(((__int128)w.resident * p->choice[choice].price) >> 20);
    return w;
}

ap_stages_way ap_stages_way_join(const ap_stages_way *a, const ap_stages_way *b)
{
    if (a->key == AP_STAGES_NONE || b->key == AP_STAGES_NONE)
        return (ap_stages_way){.key = AP_STAGES_NONE};
    return (ap_stages_way){a->key + b->key, a->time + b->time, ap_sat_add(a->resident, b->resident),
                           ap_max_i64(a->peak, b->peak)};
}

int64_t ap_stages_slot_bytes(const ap_stages_problem *p, uint32_t boundary, uint32_t choice, uint32_t label)
{
    const int64_t *s = p->slot ? p->slot[(size_t)boundary * p->nchoices + choice] : NULL;
    return s ? s[label] : 0;
}

/* Keys of all ways stay below AP_STAGES_LONGEST: the sum over the layers of their largest entry does. */
static ap_status check_sizes(ap_ctx *ctx, const ap_stages_problem *p)
{
    __int128 all = 0;
    for (uint32_t l = 0; l < p->nlayers; l++) {
        __int128 most = 0;
        for (uint32_t c = 0; c < p->nchoices; c++) {
            const ap_stages_table *t = &p->table[(size_t)l * p->nchoices + c];
            const uint32_t *n = &p->nlabels[(size_t)l * p->nchoices + c];
            for (size_t i = 0; i < (size_t)n[0] * n[p->nchoices]; i++) {
                if (t->time[i] == AP_STAGES_NONE)
                    continue;
                int64_t resident = t->resident ? t->resident[i] : 0, peak = t->peak ? t->peak[i] : 0;
                if (t->time[i] < 0 || resident < 0 || peak < 0)
                    return ap_fail(ctx, AP_ERR_USAGE, 0, "stages: layer %" PRIu32 " has a negative time or size", l);
                __int128 key = t->time[i] + (((__int128)resident * p->choice[c].price) >> 20);
                most = key > most ? key : most;
            }
        }
        all += most;
    }
    if (all > AP_STAGES_LONGEST)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "stages: a microbatch takes more than 80 hours in all layers together");
    return AP_OK;
}

/* next[p][j] = best over r of prev[p][r] and the layer's [r][j]; from (or NULL): the r taken, the lowest of equals. */
static void extend(const ap_stages_problem *p, uint32_t choice, uint32_t layer, uint32_t nin, const ap_stages_way *prev,
                   ap_stages_way *next, uint32_t *from)
{
    const uint32_t *n = &p->nlabels[(size_t)layer * p->nchoices + choice];
    uint32_t mid = n[0], out = n[p->nchoices];
    for (size_t i = 0; i < (size_t)nin * out; i++)
        next[i].key = AP_STAGES_NONE;
    for (uint32_t r = 0; r < mid; r++) {
        for (uint32_t j = 0; j < out; j++) {
            ap_stages_way w = ap_stages_way_of(p, layer, choice, r, j);
            for (uint32_t i = 0; w.key != AP_STAGES_NONE && i < nin; i++) {
                ap_stages_way joined = ap_stages_way_join(&prev[(size_t)i * mid + r], &w);
                size_t at = (size_t)i * out + j;
                if (joined.key == AP_STAGES_NONE || !ap_stages_way_less(&joined, &next[at]))
                    continue;
                next[at] = joined;
                if (from)
                    from[at] = r;
            }
        }
    }
}

/* The empty range before a layer. */
static void begin(const ap_stages_problem *p, uint32_t choice, uint32_t first, ap_stages_way *way)
{
    uint32_t n = p->nlabels[(size_t)first * p->nchoices + choice];
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++)
            way[(size_t)i * n + j] = (ap_stages_way){.key = i == j ? 0 : AP_STAGES_NONE};
}

static uint32_t most_labels(const ap_stages_problem *p)
{
    uint32_t most = 1;
    for (size_t i = 0; i < (size_t)(p->nlayers + 1) * p->nchoices; i++)
        most = p->nlabels[i] > most ? p->nlabels[i] : most;
    return most;
}

/* Bytes of a stage: what the way holds and the slots at both ends. */
static int64_t stage_bytes(const ap_stages_problem *p, uint32_t choice, uint32_t first, uint32_t last, uint32_t in,
                           uint32_t out, const ap_stages_way *w)
{
    int64_t held = ap_sat_add(w->resident, w->peak);
    held = ap_sat_add(held, ap_sat_mul(p->in_depth, ap_stages_slot_bytes(p, first, choice, in)));
    return ap_sat_add(held, ap_sat_mul(p->out_depth, ap_stages_slot_bytes(p, last, choice, out)));
}

static void fill_from(const ap_stages_problem *p, ap_stages_ranges *r, uint32_t choice, uint32_t first,
                      ap_stages_way *prev, ap_stages_way *next)
{
    uint32_t nin = p->nlabels[(size_t)first * p->nchoices + choice];
    begin(p, choice, first, prev);
    for (uint32_t last = first + 1; last <= p->nlayers; last++) {
        extend(p, choice, last - 1, nin, prev, next, NULL);
        uint32_t nout = p->nlabels[(size_t)last * p->nchoices + choice];
        size_t at = ap_stages_range(p, r, choice, first, last);
        for (size_t i = 0; i < (size_t)nin * nout; i++) {
            bool none = next[i].key == AP_STAGES_NONE;
            r->time[at + i] = none ? AP_STAGES_INF : next[i].time;
            r->memory[at + i] =
                none ? AP_STAGES_NONE
                     : stage_bytes(p, choice, first, last, (uint32_t)(i / nout), (uint32_t)(i % nout), &next[i]);
        }
        ap_stages_way *t = prev;
        prev = next;
        next = t;
    }
}

ap_status ap_stages_ranges_make(ap_ctx *ctx, ap_arena *arena, const ap_stages_problem *p, ap_stages_ranges *out)
{
    AP_TRY(check_sizes(ctx, p));
    size_t L = p->nlayers, C = p->nchoices;
    *out = (ap_stages_ranges){.at = AP_NEW_ARRAY(arena, size_t, L * L * C)};
    for (size_t c = 0; c < C; c++) {
        for (size_t i = 0; i < L; i++) {
            for (size_t j = i; j < L; j++) {
                out->at[(c * L + i) * L + j] = out->size;
                out->size += (size_t)p->nlabels[i * C + c] * p->nlabels[(j + 1) * C + c];
            }
        }
    }
    out->time = AP_NEW_ARRAY(arena, int64_t, out->size);
    out->memory = AP_NEW_ARRAY(arena, int64_t, out->size);
    out->usable = AP_NEW_ARRAY(arena, int64_t, out->size);
    size_t n = most_labels(p);
    ap_stages_way *prev = AP_NEW_ARRAY(arena, ap_stages_way, n * n), *next = AP_NEW_ARRAY(arena, ap_stages_way, n * n);
    for (uint32_t c = 0; c < p->nchoices; c++)
        for (uint32_t i = 0; i < p->nlayers; i++)
            fill_from(p, out, c, i, prev, next);
    return AP_OK;
}

void ap_stages_ranges_fit(const ap_stages_problem *p, ap_stages_ranges *r)
{
    for (uint32_t c = 0; c < p->nchoices; c++) {
        int64_t room = p->group[p->choice[c].group].capacity;
        size_t lo = ap_stages_range(p, r, c, 0, 1);
        size_t end = ap_stages_ranges_end(p, r, c);
        for (size_t i = lo; i < end; i++)
            r->usable[i] = r->memory[i] <= room ? r->time[i] : AP_STAGES_INF;
    }
}

bool ap_stages_labels(ap_arena *scratch, const ap_stages_problem *p, const ap_stages_pick *s, uint32_t *out)
{
    size_t n = most_labels(p);
    uint32_t nin = p->nlabels[(size_t)s->first * p->nchoices + s->choice], depth = s->last - s->first;
    ap_stages_way *prev = AP_NEW_ARRAY(scratch, ap_stages_way, n * n);
    ap_stages_way *next = AP_NEW_ARRAY(scratch, ap_stages_way, n * n);
    uint32_t *from = AP_NEW_ARRAY(scratch, uint32_t, depth * n * n);
    begin(p, s->choice, s->first, prev);
    for (uint32_t l = 0; l < depth; l++) {
        extend(p, s->choice, s->first + l, nin, prev, next, from + l * n * n);
        ap_stages_way *t = prev;
        prev = next;
        next = t;
    }
    uint32_t nout = p->nlabels[(size_t)s->last * p->nchoices + s->choice], label = s->out;
    if (s->in >= nin || s->out >= nout || prev[(size_t)s->in * nout + s->out].key == AP_STAGES_NONE)
        return false;
    for (uint32_t l = depth; l > 0; l--) {
        out[l] = label;
        uint32_t here = p->nlabels[(size_t)(s->first + l) * p->nchoices + s->choice];
        label = from[(l - 1) * n * n + (size_t)s->in * here + label];
    }
    out[0] = label;
    return true;
}
