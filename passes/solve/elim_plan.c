/* The order of elimination and the shapes of the tables. Next goes the node whose next table is smallest (ties: the
 * lower id). */
#include "passes/solve/eliminate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAST 1e6 /* above every logarithm of a table's size */

typedef struct offer {
    double key;
    uint32_t node, version;
} offer;

typedef struct planner {
    ap_elim *e;
    uint64_t cap;
    const bool *last; /* per node: goes after all others; or NULL */
    struct {
        AP_VEC(uint32_t) tables;
    } * at;     /* per node: tables not yet used up that it is in */
    bool *used; /* per table */
    uint32_t used_cap;
    bool *done;        /* per node */
    uint32_t *version; /* per node: older offers are void */
    uint32_t *stamp, now;
    AP_VEC(uint32_t) around; /* neighbours of the node in hand */
    AP_VEC(offer) heap;
} planner;

static bool before(const offer *a, const offer *b)
{
    return a->key < b->key || (a->key == b->key && a->node < b->node);
}

static void heap_push(planner *p, offer x)
{
    ap_vec_push(p->e->arena, &p->heap, x);
    uint32_t i = p->heap.len - 1;
    for (; i > 0 && before(&x, &p->heap.at[(i - 1) / 2]); i = (i - 1) / 2)
        p->heap.at[i] = p->heap.at[(i - 1) / 2];
    p->heap.at[i] = x;
}

static offer heap_pop(planner *p)
{
    offer top = p->heap.at[0], x = p->heap.at[--p->heap.len];
    uint32_t i = 0, n = p->heap.len;
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c + 1 < n && before(&p->heap.at[c + 1], &p->heap.at[c]))
            c++;
        if (c >= n || !before(&p->heap.at[c], &x))
            break;
        p->heap.at[i] = p->heap.at[c];
        i = c;
    }
    if (n > 0)
        p->heap.at[i] = x;
    return top;
}

static uint32_t strategies(const planner *p, uint32_t v)
{
    return p->e->k->p.nstrategies[v];
}

/* Fills `around`; returns the logarithm of the table that eliminating v would leave. */
static double look_around(planner *p, uint32_t v)
{
    double key = 0;
    p->around.len = 0;
    p->now++;
    p->stamp[v] = p->now;
    uint32_t to = 0;
    for (uint32_t i = 0; i < p->at[v].tables.len; i++) {
        uint32_t t = p->at[v].tables.at[i];
        if (p->used[t])
            continue;
        p->at[v].tables.at[to++] = t;
        const ap_elim_table *x = &p->e->table.at[t];
        for (uint32_t s = 0; s < x->nscope; s++) {
            if (p->stamp[x->scope[s]] == p->now)
                continue;
            p->stamp[x->scope[s]] = p->now;
            ap_vec_push(p->e->arena, &p->around, x->scope[s]);
            key += log2(strategies(p, x->scope[s]));
        }
    }
    p->at[v].tables.len = to;
    return p->last && p->last[v] ? key + LAST : key;
}

static uint64_t saturated(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

static uint32_t table_add(planner *p, uint32_t nscope, const uint32_t *scope)
{
    ap_elim *e = p->e;
    ap_elim_table t = {.nscope = nscope, .scope = ap_arena_memdup(e->arena, scope, nscope * sizeof *scope), .size = 1};
    for (uint32_t s = 0; s < nscope; s++)
        t.size = saturated(t.size, strategies(p, scope[s]));
    uint32_t id = e->table.len;
    ap_vec_push(e->arena, &e->table, t);
    if (e->table.cap > p->used_cap) {
        bool *used = AP_NEW_ARRAY(e->arena, bool, e->table.cap);
        if (id > 0)
            memcpy(used, p->used, id * sizeof *used);
        p->used = used;
        p->used_cap = e->table.cap;
    }
    p->used[id] = false;
    for (uint32_t s = 0; s < nscope; s++)
        ap_vec_push(e->arena, &p->at[scope[s]].tables, id);
    e->entries = e->entries + t.size < e->entries ? UINT64_MAX : e->entries + t.size;
    return id;
}

/* A part under construction. */
typedef struct group {
    AP_VEC(uint32_t) scope, tables; /* scope without v */
    uint64_t size;
} group;

static uint64_t size_with(planner *p, const group *g, uint32_t v, uint32_t table)
{
    uint64_t size = g->size;
    p->now++;
    p->stamp[v] = p->now;
    for (uint32_t i = 0; i < g->scope.len; i++)
        p->stamp[g->scope.at[i]] = p->now;
    const ap_elim_table *x = &p->e->table.at[table];
    for (uint32_t s = 0; s < x->nscope; s++)
        if (p->stamp[x->scope[s]] != p->now)
            size = saturated(size, strategies(p, x->scope[s]));
    return size;
}

/* Call right after size_with, which stamped what is in the scope. */
static void group_take(planner *p, group *g, uint32_t table, uint64_t size)
{
    const ap_elim_table *x = &p->e->table.at[table];
    for (uint32_t s = 0; s < x->nscope; s++)
        if (p->stamp[x->scope[s]] != p->now)
            ap_vec_push(p->e->arena, &g->scope, x->scope[s]);
    ap_vec_push(p->e->arena, &g->tables, table);
    g->size = size;
}

/* First fit; tables in order of size, largest first, so that small ones fill up. */
static void eliminate(planner *p, uint32_t v, ap_elim_bucket *b)
{
    ap_elim *e = p->e;
    uint32_t nt = p->at[v].tables.len, *order = ap_arena_memdup(e->arena, p->at[v].tables.at, nt * sizeof *order);
    for (uint32_t i = 1; i < nt; i++)
        for (uint32_t j = i; j > 0 && e->table.at[order[j]].size > e->table.at[order[j - 1]].size; j--) {
            uint32_t t = order[j];
            order[j] = order[j - 1];
            order[j - 1] = t;
        }
    AP_VEC(group) groups = {0};
    ap_vec_push(e->arena, &groups, (group){.size = 1});
    for (uint32_t i = 0; i < nt; i++) {
        uint32_t g = 0;
        uint64_t size = 0;
        for (;; g++) {
            if (g == groups.len)
                ap_vec_push(e->arena, &groups, (group){.size = 1});
            size = size_with(p, &groups.at[g], v, order[i]);
            if (size <= p->cap || groups.at[g].tables.len == 0)
                break;
        }
        group_take(p, &groups.at[g], order[i], size);
        p->used[order[i]] = true;
    }
    *b = (ap_elim_bucket){.node = v, .nparts = groups.len, .part = AP_NEW_ARRAY(e->arena, ap_elim_part, groups.len)};
    e->exact &= groups.len == 1;
    for (uint32_t g = 0; g < groups.len; g++) {
        group *x = &groups.at[g];
        b->part[g] = (ap_elim_part){.ntables = x->tables.len, .table = x->tables.at};
        uint64_t work = saturated(saturated(x->size, strategies(p, v)), x->tables.len + 1);
        e->work = e->work + work < e->work ? UINT64_MAX : e->work + work;
        b->part[g].out = table_add(p, x->scope.len, x->scope.at);
    }
}

static void sort_scopes(ap_elim *e)
{
    for (uint32_t t = 0; t < e->table.len; t++) {
        uint32_t *s = e->table.at[t].scope;
        for (uint32_t i = 1; i < e->table.at[t].nscope; i++)
            for (uint32_t j = i; j > 0 && e->position[s[j]] > e->position[s[j - 1]]; j--) {
                uint32_t x = s[j];
                s[j] = s[j - 1];
                s[j - 1] = x;
            }
    }
}

static ap_elim *make_plan(ap_arena *arena, const ap_kernel *k, uint64_t cap, const bool *last, bool whole)
{
    uint32_t n = k->p.nnodes;
    ap_elim *e = AP_NEW(arena, ap_elim);
    *e = (ap_elim){.arena = arena, .k = k, .n = n, .exact = true};
    e->position = AP_NEW_ARRAY(arena, uint32_t, n);
    e->bucket = AP_NEW_ARRAY(arena, ap_elim_bucket, n);
    planner p = {.e = e, .cap = cap, .last = last};
    p.at = ap_arena_calloc(arena, n, sizeof *p.at);
    p.done = AP_NEW_ARRAY(arena, bool, n);
    p.version = AP_NEW_ARRAY(arena, uint32_t, n);
    p.stamp = AP_NEW_ARRAY(arena, uint32_t, n);
    for (uint32_t i = 0; i < k->p.nedges; i++)
        table_add(&p, 2, (uint32_t[]){k->p.edge[i].u, k->p.edge[i].v});
    for (uint32_t v = 0; v < n; v++)
        heap_push(&p, (offer){look_around(&p, v), v, 0});
    for (uint32_t i = 0; i < n;) {
        offer x = heap_pop(&p);
        if (p.done[x.node] || x.version != p.version[x.node])
            continue;
        p.done[x.node] = true;
        e->position[x.node] = i;
        look_around(&p, x.node);
        uint32_t m = p.around.len, *around = ap_arena_memdup(arena, p.around.at, m * sizeof *around);
        eliminate(&p, x.node, &e->bucket[i++]);
        if (e->entries > (uint64_t)1 << 40 || (whole && !e->exact))
            break; /* hopeless: the caller looks at entries and exactness first */
        for (uint32_t a = 0; a < m; a++)
            heap_push(&p, (offer){look_around(&p, around[a]), around[a], ++p.version[around[a]]});
    }
    sort_scopes(e);
    return e;
}

ap_elim *ap_elim_plan_keeping(ap_arena *arena, const ap_kernel *k, uint64_t cap, const bool *last)
{
    return make_plan(arena, k, cap, last, false);
}

ap_elim *ap_elim_plan(ap_arena *arena, const ap_kernel *k, uint64_t cap)
{
    return ap_elim_plan_keeping(arena, k, cap, NULL);
}

ap_elim *ap_elim_plan_exact(ap_arena *arena, const ap_kernel *k, uint64_t cap, uint64_t entries, uint64_t work)
{
    ap_elim *e = make_plan(arena, k, cap, NULL, true);
    return e->exact && e->entries <= entries && e->work <= work ? e : NULL;
}

ap_elim *ap_elim_plan_within(ap_arena *arena, const ap_kernel *k, uint64_t cap, uint64_t entries, uint64_t work)
{
    for (; cap > 0; cap /= 16) {
        ap_elim *e = ap_elim_plan(arena, k, cap);
        if (e->entries <= entries && e->work <= work)
            return e;
    }
    return NULL;
}
