/* Random problems for the tests of the search over stages. Small numbers, so that ties, limits met exactly and
 * impossible choices are common. */
#ifndef AP_TESTS_STAGE_RANDOM_STAGES_H
#define AP_TESTS_STAGE_RANDOM_STAGES_H

#include "passes/stage/stages.h"
#include "tests/solve/random_problem.h"

#include <string.h>

/* Transfers by table: [class of boundary][from][out][to][in][near], labels padded to `labels`. */
typedef struct random_transfers {
    const uint32_t *class;
    uint32_t choices, labels;
    const int64_t *price;
} random_transfers;

static inline int64_t random_transfer(void *user, uint32_t boundary, uint32_t from, uint32_t out, uint32_t to,
                                      uint32_t in, ap_near near)
{
    const random_transfers *t = user;
    size_t at = t->class ? t->class[boundary] : boundary;
    at = (at * t->choices + from) * t->labels + out;
    at = (at * t->choices + to) * t->labels + in;
    return t->price[at * AP_NEAR_COUNT + near];
}

typedef struct stages_shape {
    uint32_t max_layers, max_choices, max_labels, max_groups;
    int32_t max_hosts, max_devices;
    int64_t unit; /* times are multiples of it plus a little */
    bool plain;   /* every pair of labels is possible, no limits, no pins */
} stages_shape;

static inline int64_t random_time(rng *r, const stages_shape *s, uint32_t none)
{
    if (!s->plain && rng_below(r, 100) < none)
        return AP_STAGES_NONE;
    return (int64_t)rng_below(r, 12) * s->unit + (s->unit > 1 ? rng_below(r, 3) : 0);
}

static inline void random_groups(rng *r, ap_arena *a, const stages_shape *s, ap_stages_problem *p)
{
    p->ngroups = 1 + rng_below(r, s->max_groups);
    ap_stages_group *group = AP_NEW_ARRAY(a, ap_stages_group, p->ngroups);
    for (uint32_t g = 0; g < p->ngroups; g++) {
        group[g].hosts = 1 + (int32_t)rng_below(r, (uint32_t)s->max_hosts);
        group[g].devices = 1 + (int32_t)rng_below(r, (uint32_t)s->max_devices);
        if (group[g].devices == 5 || group[g].devices == 7)
            group[g].devices = 4;
        group[g].capacity = s->plain || rng_below(r, 3) == 0 ? INT64_MAX : (int64_t)rng_below(r, 60);
    }
    p->group = group;
    p->nchoices = p->ngroups + rng_below(r, s->max_choices + 1 - p->ngroups);
    ap_stages_choice *choice = AP_NEW_ARRAY(a, ap_stages_choice, p->nchoices);
    for (uint32_t c = 0; c < p->nchoices; c++) {
        uint32_t g = c < p->ngroups ? c : rng_below(r, p->ngroups);
        ap_stages_shape mesh[64];
        uint32_t n = ap_stages_shapes(group[g].hosts, group[g].devices, mesh, 64), k = rng_below(r, n);
        int64_t price = rng_below(r, 3) == 0 ? (int64_t)rng_below(r, 4) << 19 : 0;
        choice[c] = (ap_stages_choice){g, mesh[k].hosts, mesh[k].devices, price};
    }
    p->choice = choice;
}

static inline const int64_t *random_bytes(rng *r, ap_arena *a, size_t n, uint32_t most)
{
    int64_t *x = AP_NEW_ARRAY(a, int64_t, n);
    for (size_t i = 0; i < n; i++)
        x[i] = rng_below(r, most);
    return x;
}

static inline void random_tables(rng *r, ap_arena *a, const stages_shape *s, ap_stages_problem *p)
{
    size_t boundaries = p->nlayers + 1, C = p->nchoices;
    uint32_t *nlabels = AP_NEW_ARRAY(a, uint32_t, boundaries * C);
    const int64_t **slot = AP_NEW_ARRAY(a, const int64_t *, boundaries *C);
    for (size_t i = 0; i < boundaries * C; i++) {
        nlabels[i] = 1 + rng_below(r, s->max_labels);
        if (!s->plain && rng_below(r, 20) == 0)
            nlabels[i] = 0;
        slot[i] = rng_below(r, 3) == 0 ? NULL : random_bytes(r, a, nlabels[i], 6);
    }
    p->nlabels = nlabels;
    p->slot = rng_below(r, 4) == 0 ? NULL : slot;
    p->in_depth = 1 + (int32_t)rng_below(r, 2);
    p->out_depth = 1 + (int32_t)rng_below(r, 2);
    ap_stages_table *table = AP_NEW_ARRAY(a, ap_stages_table, p->nlayers * C);
    for (size_t i = 0; i < p->nlayers * C; i++) {
        size_t n = (size_t)nlabels[i] * nlabels[i + C];
        int64_t *time = AP_NEW_ARRAY(a, int64_t, n);
        for (size_t k = 0; k < n; k++)
            time[k] = random_time(r, s, 8);
        const int64_t *resident = rng_below(r, 4) == 0 ? NULL : random_bytes(r, a, n, 12);
        table[i] = (ap_stages_table){time, resident, rng_below(r, 4) == 0 ? NULL : random_bytes(r, a, n, 20)};
    }
    p->table = table;
}

static inline void random_transfers_make(rng *r, ap_arena *a, const stages_shape *s, ap_stages_problem *p)
{
    random_transfers *t = AP_NEW(a, random_transfers);
    *t = (random_transfers){.choices = p->nchoices, .labels = s->max_labels};
    size_t n = (size_t)(p->nlayers + 1) * p->nchoices * p->nchoices * s->max_labels * s->max_labels * AP_NEAR_COUNT;
    int64_t *price = AP_NEW_ARRAY(a, int64_t, n);
    bool cheap = rng_below(r, 3) == 0, by_label = rng_below(r, 3) == 0;
    for (size_t i = 0; i < n; i++) {
        int64_t x = cheap ? (int64_t)rng_below(r, 2) : random_time(r, s, 5);
        size_t near = i % AP_NEAR_COUNT;
        if (by_label) /* many rows and columns agree */
            x = (int64_t)((i / AP_NEAR_COUNT % s->max_labels + 2 * near) * (size_t)s->unit);
        if (near > 0 && x < price[i - 1] && rng_below(r, 4) > 0)
            x = price[i - 1];
        price[i] = x;
    }
    t->price = price;
    if (rng_below(r, 3) == 0) { /* boundaries with the same labels are one class */
        uint32_t *class = AP_NEW_ARRAY(a, uint32_t, p->nlayers + 1);
        for (uint32_t b = 0; b <= p->nlayers; b++) {
            class[b] = b;
            for (uint32_t k = 0; k < b; k++)
                if (memcmp(p->nlabels + (size_t)k * p->nchoices, p->nlabels + (size_t)b * p->nchoices,
                           p->nchoices * sizeof *p->nlabels) == 0)
                    class[b] = class[k];
        }
        t->class = class;
    }
    p->boundary_class = t->class;
    p->transfer = random_transfer;
    p->user = t;
}

static inline void random_pins(rng *r, ap_arena *a, ap_stages_problem *p)
{
    int8_t *cut = AP_NEW_ARRAY(a, int8_t, p->nlayers + 1);
    uint32_t *stage_of = AP_NEW_ARRAY(a, uint32_t, p->nlayers);
    for (uint32_t b = 0; b <= p->nlayers; b++)
        cut[b] = rng_below(r, 4) > 0 ? 0 : rng_below(r, 2) ? 1 : -1;
    for (uint32_t l = 0; l < p->nlayers; l++)
        stage_of[l] = rng_below(r, 4) > 0 ? AP_NONE : rng_below(r, l + 1);
    if (rng_below(r, 3) == 0)
        p->nstages = 1 + rng_below(r, p->nlayers + 1);
    if (rng_below(r, 3) == 0)
        p->cut = cut;
    if (rng_below(r, 3) == 0)
        p->stage_of = stage_of;
}

static inline void random_stages(rng *r, ap_arena *a, const stages_shape *s, ap_stages_problem *p)
{
    *p = (ap_stages_problem){.nlayers = 1 + rng_below(r, s->max_layers)};
    static const int32_t microbatches[] = {1, 2, 3, 4, 16, 1000};
    p->microbatches = microbatches[rng_below(r, 6)];
    random_groups(r, a, s, p);
    random_tables(r, a, s, p);
    random_transfers_make(r, a, s, p);
    if (!s->plain)
        random_pins(r, a, p);
}

#endif
