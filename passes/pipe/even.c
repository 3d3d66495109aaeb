/* Even cuts: the least bottleneck over all ways to cut a row of times into consecutive parts, by dynamic programming.
 *
 *     best[k][i] = min over j < i of max(best[k-1][j], time of j .. i)
 *
 * The first grows with j and the second falls, so the best j is where they cross. Pins are bounds on where a stage may
 * begin. Only nodes that are not copied to their readers (passes/pipe/carve.h) count and begin stages. */
#include "passes/pipe/even.h"

#include "ir/op.h"
#include "passes/pipe/carve.h"

#include <inttypes.h>
#include <string.h>

typedef struct row {
    uint32_t n;         /* nodes that count */
    uint32_t *position; /* n+1: in the block; the last is the terminator's */
    int64_t *before;    /* n+1: time of all nodes before */
    uint32_t *lo, *hi;  /* per stage, where it may begin: lo <= first <= hi */
} row;

static int64_t time_of(const ap_cluster *c, const ap_module *m, ap_node n, ap_arena *arena)
{
    const ap_node_info *node = ap_node_at(m, n);
    ap_strategy whole = {AP_NEW_ARRAY(arena, ap_sharding, node->nin), AP_NEW_ARRAY(arena, ap_sharding, node->nout)};
    return ap_cost_node(c, m, n, &whole);
}

static row make_row(ap_arena *arena, const ap_module *m, const ap_cluster *c)
{
    ap_carver *carver = ap_carver_create(arena, m);
    uint32_t nodes = ap_carver_nnodes(carver);
    const ap_block_info *b = ap_block_at(m, m->funcs.at[0].body);
    row r = {.position = AP_NEW_ARRAY(arena, uint32_t, nodes + 1), .before = AP_NEW_ARRAY(arena, int64_t, nodes + 1)};
    for (uint32_t at = 0; at < nodes; at++) {
        if (ap_carver_is_free(carver, at))
            continue;
        r.position[r.n] = at;
        r.before[r.n + 1] = ap_sat_add(r.before[r.n], time_of(c, m, b->nodes.at[at], arena));
        r.n++;
    }
    r.position[r.n] = nodes;
    return r;
}

/* A stage begins behind all that is pinned to earlier stages, and not behind anything pinned to it or later ones. */
static ap_status find_bounds(ap_ctx *ctx, const ap_module *m, row *r, uint32_t nstages, const uint32_t *pinned)
{
    const ap_block_info *b = ap_block_at(m, m->funcs.at[0].body);
    for (uint32_t s = 0; s < nstages; s++) {
        r->lo[s] = s;
        r->hi[s] = s ? r->n - (nstages - s) : 0;
    }
    for (uint32_t i = 0; pinned && i < r->n; i++) {
        uint32_t stage = pinned[r->position[i]];
        if (stage == AP_NONE)
            continue;
        if (stage >= nstages)
            return ap_fail(ctx, AP_ERR_USAGE, ap_node_at(m, b->nodes.at[r->position[i]])->loc,
                           "it is pinned to stage %" PRIu32 ", there are %" PRIu32 " (0 to %" PRIu32 ")", stage,
                           nstages, nstages - 1);
        for (uint32_t s = 0; s < nstages; s++) {
            if (s > stage)
                r->lo[s] = r->lo[s] > i + 1 ? r->lo[s] : i + 1;
            else
                r->hi[s] = r->hi[s] < i ? r->hi[s] : i;
        }
    }
    for (uint32_t s = 1; s < nstages; s++)
        r->lo[s] = r->lo[s] > r->lo[s - 1] ? r->lo[s] : r->lo[s - 1] + 1;
    for (uint32_t s = nstages; s-- > 1;)
        r->hi[s - 1] = r->hi[s - 1] < r->hi[s] ? r->hi[s - 1] : r->hi[s] - 1;
    for (uint32_t s = 0; s < nstages; s++)
        if (r->lo[s] > r->hi[s])
            return ap_fail(ctx, AP_ERR_USAGE, 0,
                           "pins leave no node to stage %" PRIu32 ": nodes are in stages in the order of the model",
                           r->lo[s] > r->hi[s] && s ? s - 1 : s);
    return AP_OK;
}

/* The least j in lo..hi at which the time of j .. i does not exceed best[j], or the one before it if that is better;
 * `end`: best of all stages up to the one that begins at j. */
static uint32_t crossing(const row *r, const int64_t *best, uint32_t lo, uint32_t hi, uint32_t i, int64_t *out)
{
    uint32_t a = lo, b = hi;
    while (a < b) {
        uint32_t mid = a + (b - a) / 2;
        if (r->before[i] - r->before[mid] <= best[mid])
            b = mid;
        else
            a = mid + 1;
    }
    int64_t here = ap_max_i64(best[a], r->before[i] - r->before[a]);
    if (a > lo && ap_max_i64(best[a - 1], r->before[i] - r->before[a - 1]) <= here) {
        a--;
        here = ap_max_i64(best[a], r->before[i] - r->before[a]);
    }
    *out = here;
    return a;
}

/* first[s]: which node begins stage s. */
static void cut(ap_arena *arena, const row *r, uint32_t nstages, uint32_t *first)
{
    uint32_t width = r->n + 1, *from = AP_NEW_ARRAY(arena, uint32_t, (size_t)width * nstages);
    /* best[i]: slowest of the stages before the current one, which begins at i */
    int64_t *best = AP_NEW_ARRAY(arena, int64_t, width), *next = AP_NEW_ARRAY(arena, int64_t, width);
    for (uint32_t s = 1; s <= nstages; s++) {
        uint32_t lo = s < nstages ? r->lo[s] : r->n, hi = s < nstages ? r->hi[s] : r->n;
        for (uint32_t i = lo; i <= hi; i++) {
            uint32_t top = r->hi[s - 1] < i ? r->hi[s - 1] : i - 1;
            from[(size_t)(s - 1) * width + i] = crossing(r, best, r->lo[s - 1], top, i, &next[i]);
        }
        int64_t *swap = best;
        best = next;
        next = swap;
    }
    for (uint32_t s = nstages, i = r->n; s-- > 0; i = first[s])
        first[s] = from[(size_t)s * width + i];
}

ap_status ap_pipe_even(ap_ctx *ctx, ap_arena *arena, const ap_module *m, const ap_cluster *c, uint32_t nstages,
                       const ap_mesh_info *mesh, int32_t microbatches, const uint32_t *pinned, ap_pipe_choice *out)
{
    row r = make_row(arena, m, c);
    if (nstages > 1 && r.n < nstages)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "%" PRIu32 " stages: the model has %" PRIu32 " nodes to divide", nstages,
                       r.n);
    uint32_t *first = AP_NEW_ARRAY(arena, uint32_t, nstages);
    r.lo = AP_NEW_ARRAY(arena, uint32_t, nstages);
    r.hi = AP_NEW_ARRAY(arena, uint32_t, nstages);
    if (r.n > 0) {
        AP_TRY(find_bounds(ctx, m, &r, nstages, pinned));
        cut(arena, &r, nstages, first);
    }
    ap_pipe_stage *stage = AP_NEW_ARRAY(arena, ap_pipe_stage, nstages);
    for (uint32_t s = 0; s < nstages; s++) {
        stage[s].first = s ? r.position[first[s]] : 0;
        stage[s].last = r.position[s + 1 < nstages ? first[s + 1] : r.n];
        stage[s].mesh = *mesh;
        stage[s].mesh.first_rank = mesh->first_rank + (int32_t)s * ap_mesh_ranks(mesh);
    }
    *out = (ap_pipe_choice){.nstages = nstages, .stage = stage, .microbatches = microbatches};
    return AP_OK;
}
