/* Reductions of the memory rows: what every strategy holds becomes part of the right side; strategies and pairs that
 * alone exceed a row go; a row that cannot be exceeded goes; of two neighbouring rows, one that is live wherever the
 * other is and allows no more makes the other superfluous. */
#include "passes/solve/presolve.h"

#include <string.h>

/* ---- demands in least form ---- */

static bool demand_gone(const ap_pre_demand *d)
{
    return d->lo >= d->hi;
}

static void demands_sweep(ap_pre_demands *list)
{
    uint32_t to = 0;
    for (uint32_t d = 0; d < list->len; d++)
        if (!demand_gone(&list->at[d]))
            list->at[to++] = list->at[d];
    list->len = to;
}

/* The least use of the node's strategies is a constant. True when something changed. */
static bool node_demands(ap_pre *s, uint32_t v)
{
    ap_pre_node *x = &s->node[v];
    bool changed = false;
    for (uint32_t d = 0; d < x->demands.len; d++) {
        ap_pre_demand *y = &x->demands.at[d];
        int64_t least = INT64_MAX, most = 0;
        for (uint32_t i = 0; i < x->n; i++)
            least = ap_min_i64(least, y->usage[i]);
        for (uint32_t i = 0; i < x->n; i++) {
            y->usage[i] -= least;
            most = ap_max_i64(most, y->usage[i]);
        }
        ap_pre_hold(s, y->lo, y->hi, least);
        changed |= least != 0;
        if (most == 0)
            y->lo = y->hi = 0;
    }
    uint32_t before = x->demands.len;
    demands_sweep(&x->demands);
    if (x->demands.len != before)
        x->dirty = changed = true;
    return changed;
}

/* What a pair holds because of one end alone becomes that end's demand. */
static bool take_usage(ap_pre *s, uint32_t e, uint32_t v, ap_pre_demand *d)
{
    ap_pre_view w = ap_pre_look(s, e, v);
    uint32_t n = s->node[v].n;
    int64_t *own = AP_NEW_ARRAY(s->arena, int64_t, n);
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        int64_t least = INT64_MAX;
        for (uint32_t k = 0; k < w.n_other; k++)
            if (w.cost[i * w.row + k * w.column] != AP_FORBIDDEN)
                least = ap_min_i64(least, d->usage[i * w.row + k * w.column]);
        own[i] = least == INT64_MAX ? 0 : least;
        any |= own[i] != 0;
        for (uint32_t k = 0; k < w.n_other; k++) {
            int64_t *u = &d->usage[i * w.row + k * w.column];
            *u = w.cost[i * w.row + k * w.column] == AP_FORBIDDEN ? 0 : *u - own[i];
        }
    }
    ap_pre_demand_add(s, &s->node[v].demands, d->lo, d->hi, own, n);
    if (any)
        s->node[v].dirty = true;
    return any;
}

static bool pair_demands(ap_pre *s, uint32_t e)
{
    ap_pre_edge *x = &s->edge.at[e];
    bool changed = false;
    for (uint32_t d = 0; d < x->demands.len; d++) {
        ap_pre_demand *y = &x->demands.at[d];
        changed |= take_usage(s, e, x->u, y);
        changed |= take_usage(s, e, x->v, y);
        size_t n = (size_t)s->node[x->u].n * s->node[x->v].n;
        bool any = false;
        for (size_t i = 0; i < n; i++)
            any |= y->usage[i] != 0;
        if (!any)
            y->lo = y->hi = 0;
    }
    uint32_t before = x->demands.len;
    demands_sweep(&x->demands);
    if (x->demands.len != before) {
        x->dirty = s->node[x->u].dirty = s->node[x->v].dirty = true;
        changed = true;
    }
    return changed;
}

/* ---- strategies that alone exceed a row ---- */

#define GROUP 64

static int64_t least_rhs(const ap_pre *s, uint32_t lo, uint32_t hi)
{
    int64_t least = INT64_MAX;
    for (uint32_t r = lo; r < hi;) {
        if (r % GROUP == 0 && r + GROUP <= hi) {
            least = ap_min_i64(least, s->work[r / GROUP]);
            r += GROUP;
        } else {
            least = ap_min_i64(least, s->rhs[r++]);
        }
    }
    return least;
}

static bool drop_large(ap_pre *s)
{
    bool changed = false;
    for (uint32_t g = 0; g * GROUP < s->nrows; g++) {
        s->work[g] = INT64_MAX;
        for (uint32_t r = g * GROUP; r < s->nrows && r < (g + 1) * GROUP; r++)
            s->work[g] = ap_min_i64(s->work[g], s->rhs[r]);
    }
    for (uint32_t v = 0; v < s->nnodes; v++) {
        ap_pre_node *x = &s->node[v];
        for (uint32_t d = 0; x->live && d < x->demands.len; d++) {
            int64_t room = least_rhs(s, x->demands.at[d].lo, x->demands.at[d].hi);
            for (uint32_t i = 0; i < x->n; i++) {
                if (x->demands.at[d].usage[i] > room && x->cost[i] != AP_FORBIDDEN) {
                    x->cost[i] = AP_FORBIDDEN;
                    x->dirty = changed = true;
                }
            }
        }
    }
    for (uint32_t e = 0; e < s->edge.len; e++) {
        ap_pre_edge *x = &s->edge.at[e];
        for (uint32_t d = 0; x->live && d < x->demands.len; d++) {
            int64_t room = least_rhs(s, x->demands.at[d].lo, x->demands.at[d].hi);
            size_t n = (size_t)s->node[x->u].n * s->node[x->v].n;
            for (size_t i = 0; i < n; i++) {
                if (x->demands.at[d].usage[i] > room && x->cost[i] != AP_FORBIDDEN) {
                    x->cost[i] = AP_FORBIDDEN;
                    x->dirty = s->node[x->u].dirty = s->node[x->v].dirty = changed = true;
                }
            }
        }
    }
    return changed;
}

/* ---- rows ---- */

typedef void visit_fn(ap_pre *s, const ap_pre_demand *d, size_t n);

static void each_demand(ap_pre *s, visit_fn *visit)
{
    for (uint32_t v = 0; v < s->nnodes; v++)
        for (uint32_t d = 0; s->node[v].live && d < s->node[v].demands.len; d++)
            visit(s, &s->node[v].demands.at[d], s->node[v].n);
    for (uint32_t e = 0; e < s->edge.len; e++) {
        ap_pre_edge *x = &s->edge.at[e];
        for (uint32_t d = 0; x->live && d < x->demands.len; d++)
            visit(s, &x->demands.at[d], (size_t)s->node[x->u].n * s->node[x->v].n);
    }
}

static void add_most(ap_pre *s, const ap_pre_demand *d, size_t n)
{
    int64_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = ap_max_i64(most, d->usage[i]);
    s->work[d->lo] += most;
    s->work[d->hi] -= most;
}

static void count_ends(ap_pre *s, const ap_pre_demand *d, size_t n)
{
    (void)n;
    s->work[d->lo]++;
    s->work2[d->hi]++;
}

static void remap(ap_pre *s, ap_pre_demand *d)
{
    d->lo = s->row_map[d->lo];
    d->hi = s->row_map[d->hi];
}

/* Keeps the rows whose flag in row_map is set. */
static bool rows_compact(ap_pre *s)
{
    uint32_t to = 0, n = s->nrows;
    for (uint32_t r = 0; r < n; r++) {
        bool keep = s->row_map[r] != 0;
        s->row_map[r] = to;
        if (keep && s->hint)
            s->hint[to] = s->hint[r];
        if (keep)
            s->rhs[to++] = s->rhs[r];
    }
    s->row_map[n] = to;
    if (to == n)
        return false;
    s->nrows = to;
    for (uint32_t v = 0; v < s->nnodes; v++) {
        ap_pre_demands *list = &s->node[v].demands;
        uint32_t before = list->len;
        for (uint32_t d = 0; d < before; d++)
            remap(s, &list->at[d]);
        demands_sweep(list);
        if (s->node[v].live && list->len != before)
            s->node[v].dirty = true;
    }
    for (uint32_t e = 0; e < s->edge.len; e++) {
        ap_pre_edge *x = &s->edge.at[e];
        uint32_t before = x->demands.len;
        for (uint32_t d = 0; d < before; d++)
            remap(s, &x->demands.at[d]);
        demands_sweep(&x->demands);
        if (x->live && x->demands.len != before)
            x->dirty = s->node[x->u].dirty = s->node[x->v].dirty = true;
    }
    return true;
}

static bool drop_slack(ap_pre *s)
{
    memset(s->work, 0, (s->nrows + 1) * sizeof *s->work);
    each_demand(s, add_most);
    int64_t most = 0;
    for (uint32_t r = 0; r < s->nrows; r++) {
        most += s->work[r];
        s->row_map[r] = most > s->rhs[r];
    }
    return rows_compact(s);
}

static void give_hint(ap_pre *s, uint32_t from, uint32_t to)
{
    if (s->hint)
        s->hint[to] += s->hint[from];
}

/* One pass with the last kept row in hand: starts and ends count what begins or ceases between it and r. */
static bool drop_covered(ap_pre *s)
{
    if (s->nrows < 2)
        return false;
    memset(s->work, 0, (s->nrows + 1) * sizeof *s->work);
    memset(s->work2, 0, (s->nrows + 1) * sizeof *s->work2);
    each_demand(s, count_ends);
    uint32_t *kept = AP_NEW_ARRAY(s->arena, uint32_t, s->nrows), n = 0;
    int64_t *starts = AP_NEW_ARRAY(s->arena, int64_t, s->nrows), *ends = AP_NEW_ARRAY(s->arena, int64_t, s->nrows);
    for (uint32_t r = 0; r < s->nrows; r++) {
        s->row_map[r] = 0;
        int64_t start = s->work[r], end = s->work2[r]; /* since the kept row before */
        bool covered = false;
        while (n > 0) {
            uint32_t k = kept[n - 1];
            if (start == 0 && s->rhs[r] >= s->rhs[k]) {
                covered = true;
                give_hint(s, r, k);
                break;
            }
            if (end != 0 || s->rhs[k] < s->rhs[r])
                break;
            give_hint(s, k, r);
            start += starts[n - 1];
            end += ends[n - 1];
            n--;
        }
        if (covered) { /* its starts and ends still lie between its neighbours */
            if (r + 1 < s->nrows) {
                s->work[r + 1] += start;
                s->work2[r + 1] += end;
            }
            continue;
        }
        kept[n] = r;
        starts[n] = start;
        ends[n++] = end;
    }
    for (uint32_t i = 0; i < n; i++)
        s->row_map[kept[i]] = 1;
    return rows_compact(s);
}

bool ap_pre_rows_reduce(ap_pre *s)
{
    if (s->nrows == 0)
        return false;
    bool changed = false;
    for (uint32_t e = 0; e < s->edge.len && (s->rules & AP_PRE_DEMANDS); e++)
        if (s->edge.at[e].live)
            changed |= pair_demands(s, e);
    for (uint32_t v = 0; v < s->nnodes && (s->rules & AP_PRE_DEMANDS); v++)
        if (s->node[v].live)
            changed |= node_demands(s, v);
    for (uint32_t r = 0; r < s->nrows; r++)
        s->infeasible |= s->rhs[r] < 0;
    if (s->infeasible)
        return changed;
    if (s->rules & AP_PRE_LARGE)
        changed |= drop_large(s);
    if (s->rules & AP_PRE_SLACK)
        changed |= drop_slack(s);
    if (s->rules & AP_PRE_COVERED)
        changed |= drop_covered(s);
    return changed;
}
