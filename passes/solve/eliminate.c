/* Running a plan of elimination: upward for the value, backwards for a choice, downward for the margins. */
#include "passes/solve/eliminate.h"

#include <assert.h>
#include <string.h>

void ap_elim_allocate(ap_elim *e)
{
    for (uint32_t t = 0; t < e->table.len; t++)
        e->table.at[t].value = AP_NEW_ARRAY(e->arena, int64_t, e->table.at[t].size);
}

size_t ap_elim_entry(const ap_elim *e, uint32_t edge, uint32_t i, uint32_t j)
{
    const ap_elim_table *t = &e->table.at[edge];
    const ap_problem_edge *x = &e->k->p.edge[edge];
    return t->scope[0] == x->u ? (size_t)i * e->k->p.nstrategies[x->v] + j : (size_t)j * e->k->p.nstrategies[x->u] + i;
}

void ap_elim_set_edge(ap_elim *e, uint32_t edge, const int64_t *cost, int64_t scale)
{
    const ap_problem_edge *x = &e->k->p.edge[edge];
    uint32_t nu = e->k->p.nstrategies[x->u], nv = e->k->p.nstrategies[x->v];
    for (uint32_t i = 0; i < nu; i++)
        for (uint32_t j = 0; j < nv; j++) {
            int64_t c = cost[(size_t)i * nv + j];
            e->table.at[edge].value[ap_elim_entry(e, edge, i, j)] = c == AP_FORBIDDEN ? AP_ELIM_INF : c * scale;
        }
}

/* Walks over the entries of a part's result in order and keeps the place of the matching row in every input. */
typedef struct walk {
    const ap_elim *e;
    uint32_t nscope, ntables;
    const uint32_t *scope;
    uint32_t *at;   /* per scope node: its strategy */
    size_t *offset; /* per table */
    size_t *stride; /* [table][scope node] */
} walk;

static walk walk_make(ap_arena *arena, const ap_elim *e, const ap_elim_part *part)
{
    const ap_elim_table *out = &e->table.at[part->out];
    walk w = {.e = e, .nscope = out->nscope, .ntables = part->ntables, .scope = out->scope};
    w.at = AP_NEW_ARRAY(arena, uint32_t, w.nscope);
    w.offset = AP_NEW_ARRAY(arena, size_t, w.ntables);
    w.stride = AP_NEW_ARRAY(arena, size_t, (size_t)w.ntables * w.nscope);
    for (uint32_t t = 0; t < w.ntables; t++) {
        const ap_elim_table *x = &e->table.at[part->table[t]];
        size_t stride = 1;
        for (uint32_t s = x->nscope; s-- > 0;) {
            for (uint32_t i = 0; i < w.nscope; i++)
                if (w.scope[i] == x->scope[s])
                    w.stride[(size_t)t * w.nscope + i] = stride;
            stride *= e->k->p.nstrategies[x->scope[s]];
        }
    }
    return w;
}

static void walk_next(walk *w)
{
    for (uint32_t i = w->nscope; i-- > 0;) {
        uint32_t n = w->e->k->p.nstrategies[w->scope[i]];
        bool wrap = ++w->at[i] == n;
        for (uint32_t t = 0; t < w->ntables; t++) {
            size_t stride = w->stride[(size_t)t * w->nscope + i];
            w->offset[t] += stride;
            if (wrap)
                w->offset[t] -= stride * n;
        }
        if (!wrap)
            return;
        w->at[i] = 0;
    }
}

static void add_row(int64_t *sum, const int64_t *row, uint32_t n)
{
    for (uint32_t x = 0; x < n; x++) {
        int64_t c = sum[x] + row[x];
        sum[x] = c < AP_ELIM_INF ? c : AP_ELIM_INF;
    }
}

static int64_t least_of(const int64_t *c, uint32_t n)
{
    int64_t least = c[0];
    for (uint32_t x = 1; x < n; x++)
        least = c[x] < least ? c[x] : least;
    return least;
}

static void part_run(ap_arena *scratch, ap_elim *e, const ap_elim_part *part, const int64_t *own, uint32_t n)
{
    walk w = walk_make(scratch, e, part);
    ap_elim_table *out = &e->table.at[part->out];
    int64_t *sum = AP_NEW_ARRAY(scratch, int64_t, n);
    for (size_t i = 0; i < out->size; i++, walk_next(&w)) {
        if (own)
            memcpy(sum, own, n * sizeof *sum);
        else
            memset(sum, 0, n * sizeof *sum);
        for (uint32_t t = 0; t < w.ntables; t++)
            add_row(sum, e->table.at[part->table[t]].value + w.offset[t], n);
        out->value[i] = least_of(sum, n);
    }
}

/* The row of a table for the strategies of its last node, the others being chosen. */
static const int64_t *row_of(const ap_elim *e, const ap_elim_table *t, const uint32_t *choice)
{
    size_t at = 0;
    for (uint32_t s = 0; s < t->nscope; s++)
        at = at * e->k->p.nstrategies[t->scope[s]] + (s + 1 < t->nscope ? choice[t->scope[s]] : 0);
    return t->value + at;
}

static void decode(ap_arena *scratch, const ap_elim *e, int64_t *const *node_cost, uint32_t from, uint32_t *choice)
{
    uint32_t most = 1;
    for (uint32_t v = 0; v < e->n; v++)
        most = e->k->p.nstrategies[v] > most ? e->k->p.nstrategies[v] : most;
    int64_t *sum = AP_NEW_ARRAY(scratch, int64_t, most);
    for (uint32_t i = from; i-- > 0;) {
        const ap_elim_bucket *b = &e->bucket[i];
        uint32_t n = e->k->p.nstrategies[b->node], best = 0;
        memcpy(sum, node_cost[b->node], n * sizeof *sum);
        for (uint32_t g = 0; g < b->nparts; g++)
            for (uint32_t t = 0; t < b->part[g].ntables; t++)
                add_row(sum, row_of(e, &e->table.at[b->part[g].table[t]], choice), n);
        for (uint32_t x = 1; x < n; x++)
            best = sum[x] < sum[best] ? x : best;
        choice[b->node] = best;
    }
}

/* The first `n` buckets; returns what is a constant then. */
static int64_t run_upward(ap_arena *scratch, ap_elim *e, int64_t *const *node_cost, uint32_t n)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        const ap_elim_bucket *b = &e->bucket[i];
        for (uint32_t g = 0; g < b->nparts; g++) {
            part_run(scratch, e, &b->part[g], g == 0 ? node_cost[b->node] : NULL, e->k->p.nstrategies[b->node]);
            const ap_elim_table *out = &e->table.at[b->part[g].out];
            if (out->nscope == 0)
                total = ap_min_i64(total + out->value[0], AP_ELIM_INF);
        }
    }
    return total;
}

int64_t ap_elim_run(ap_elim *e, int64_t *const *node_cost, uint32_t *choice)
{
    ap_arena scratch;
    ap_arena_init(&scratch, e->arena->out_of_memory, e->arena->user);
    int64_t total = run_upward(&scratch, e, node_cost, e->n);
    decode(&scratch, e, node_cost, e->n, choice);
    ap_arena_deinit(&scratch);
    return total;
}

/* ---- two nodes kept ---- */

/* What the kept nodes' own costs and the tables over them add up to; tables that a kept bucket makes do not count. */
static int64_t sum_at(const ap_elim *e, int64_t *const *node_cost, uint32_t kept, const uint32_t *choice)
{
    int64_t sum = 0;
    for (uint32_t i = e->n - kept; i < e->n; i++) {
        const ap_elim_bucket *b = &e->bucket[i];
        sum = ap_min_i64(sum + node_cost[b->node][choice[b->node]], AP_ELIM_INF);
        for (uint32_t t = 0; t < b->part[0].ntables; t++) {
            const ap_elim_table *x = &e->table.at[b->part[0].table[t]];
            bool made = i > e->n - kept && b->part[0].table[t] == e->bucket[e->n - kept].part[0].out;
            int64_t value = made ? 0 : row_of(e, x, choice)[choice[b->node]];
            sum = ap_min_i64(sum + value, AP_ELIM_INF);
        }
    }
    return sum;
}

void ap_elim_run_ends(ap_elim *e, int64_t *const *node_cost, uint32_t kept, int64_t *out)
{
    assert(e->exact && kept <= 2 && kept <= e->n);
    ap_arena scratch;
    ap_arena_init(&scratch, e->arena->out_of_memory, e->arena->user);
    int64_t total = run_upward(&scratch, e, node_cost, e->n - kept);
    uint32_t *choice = AP_NEW_ARRAY(&scratch, uint32_t, e->n), node[2] = {0, 0};
    for (uint32_t i = 0; i < kept; i++)
        node[i] = e->bucket[e->n - kept + i].node;
    if (kept == 2 && node[0] > node[1]) {
        node[0] = node[1];
        node[1] = e->bucket[e->n - kept].node;
    }
    uint32_t na = kept > 0 ? e->k->p.nstrategies[node[0]] : 1, nb = kept > 1 ? e->k->p.nstrategies[node[1]] : 1;
    for (uint32_t i = 0; i < na; i++)
        for (uint32_t j = 0; j < nb; j++) {
            if (kept > 0)
                choice[node[0]] = i;
            if (kept > 1)
                choice[node[1]] = j;
            out[(size_t)i * nb + j] = ap_min_i64(total + sum_at(e, node_cost, kept, choice), AP_ELIM_INF);
        }
    ap_arena_deinit(&scratch);
}

void ap_elim_decode_ends(const ap_elim *e, int64_t *const *node_cost, uint32_t kept, uint32_t *choice)
{
    ap_arena scratch;
    ap_arena_init(&scratch, e->arena->out_of_memory, e->arena->user);
    decode(&scratch, e, node_cost, e->n - kept, choice);
    ap_arena_deinit(&scratch);
}

/* ---- margins ---- */

/* `margin` of a message is what the rest of the problem adds to each of its entries; while a bucket is swept it
 * gathers totals, from which the message itself is taken off again. */
static void sweep_bucket(ap_arena *scratch, ap_elim *e, const ap_elim_bucket *b, const int64_t *own, int64_t *margin)
{
    const ap_elim_part *part = &b->part[0];
    uint32_t n = e->k->p.nstrategies[b->node];
    walk w = walk_make(scratch, e, part);
    const ap_elim_table *out = &e->table.at[part->out];
    int64_t *sum = AP_NEW_ARRAY(scratch, int64_t, n);
    for (uint32_t x = 0; x < n; x++)
        margin[x] = AP_ELIM_INF;
    for (size_t i = 0; i < out->size; i++, walk_next(&w)) {
        for (uint32_t x = 0; x < n; x++)
            sum[x] = ap_min_i64(own[x] + out->margin[i], AP_ELIM_INF);
        for (uint32_t t = 0; t < w.ntables; t++)
            add_row(sum, e->table.at[part->table[t]].value + w.offset[t], n);
        for (uint32_t x = 0; x < n; x++)
            margin[x] = ap_min_i64(margin[x], sum[x]);
        for (uint32_t t = 0; t < w.ntables; t++) {
            int64_t *m = e->table.at[part->table[t]].margin + w.offset[t];
            for (uint32_t x = 0; x < n; x++)
                m[x] = ap_min_i64(m[x], sum[x]);
        }
    }
    for (uint32_t t = 0; t < part->ntables; t++) {
        ap_elim_table *x = &e->table.at[part->table[t]];
        if (part->table[t] < e->k->p.nedges)
            continue;
        for (size_t i = 0; i < x->size; i++) {
            if (AP_ELIM_FORBIDDEN(x->value[i]))
                x->margin[i] = 0; /* its own entries are forbidden anyway */
            else if (!AP_ELIM_FORBIDDEN(x->margin[i]))
                x->margin[i] -= x->value[i];
        }
    }
}

void ap_elim_margins(ap_elim *e, int64_t *const *node_cost, int64_t *const *out_margin)
{
    assert(e->exact);
    ap_arena scratch;
    ap_arena_init(&scratch, e->arena->out_of_memory, e->arena->user);
    int64_t total = 0;
    for (uint32_t t = 0; t < e->table.len; t++) {
        ap_elim_table *x = &e->table.at[t];
        if (!x->margin)
            x->margin = AP_NEW_ARRAY(e->arena, int64_t, x->size);
        for (size_t i = 0; i < x->size; i++)
            x->margin[i] = AP_ELIM_INF;
        if (x->nscope == 0)
            total = ap_min_i64(total + x->value[0], AP_ELIM_INF);
    }
    for (uint32_t t = 0; t < e->table.len; t++) /* other components add their least */
        if (e->table.at[t].nscope == 0)
            e->table.at[t].margin[0] = AP_ELIM_FORBIDDEN(total) ? AP_ELIM_INF : total - e->table.at[t].value[0];
    for (uint32_t i = e->n; i-- > 0;) {
        const ap_elim_bucket *b = &e->bucket[i];
        sweep_bucket(&scratch, e, b, node_cost[b->node], out_margin[b->node]);
    }
    ap_arena_deinit(&scratch);
}
