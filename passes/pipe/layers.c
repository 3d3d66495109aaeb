/* Cutting a body into layers: what crosses each cut, which blocks repeat, and a DP over cuts.
 *
 * G(r, k) is the best way to make r layers of the nodes before position k; a layer is at most `bound` long, which is
 * (1 + DELTA) times the even share, or more where single nodes leave no choice. Better is, in this order: fewer layers
 * that are next to nothing; fewer bytes; fewer values; fewer cuts that are not between repeated blocks; more even
 * times. */
#include "passes/pipe/layers.h"

#include "ir/op.h"
#include "passes/pipe/carve.h"

#include <string.h>

enum {
    UNITS = 1 << 20,   /* the whole body's time */
    THIN = 8,          /* a layer below an eighth of the even share is next to nothing */
    FILTER = 2048,     /* in longer bodies only cuts at local minima are looked at */
    GROUPS = 40,       /* without repeated blocks: layers of at least a fortieth of the time, between single values */
    LONGEST = 1 << 14, /* no repeats are looked for in longer bodies */
};

typedef struct cutter {
    const ap_module *m;
    ap_arena *arena;
    const ap_layers_options *opt;
    const ap_node *node; /* of the body */
    uint32_t n;          /* without the terminator */
    const bool *copied;  /* per value */
    int64_t *ps;         /* per node */
    int64_t *units;      /* per position: share of the time before it */
    int64_t *bytes;      /* per position: crossing */
    uint32_t *count;     /* per position: values crossing */
    uint32_t *real;      /* per position: nodes before it that are not copied to their readers */
    bool *regular;       /* per position: between repeated blocks */
    uint32_t *mark;      /* per node, if there are pins: no layer has two marks (list_marks) */
    uint32_t repeats;
    int64_t before, block, after; /* units in front of the repeated blocks, in one, behind them */
} cutter;

/* ---- what crosses ---- */

/* Per value: is it made again by whoever reads it? (passes/pipe/carve.h) */
static bool *list_copied(const ap_module *m, ap_arena *arena)
{
    bool *copied = AP_NEW_ARRAY(arena, bool, m->values.len);
    const ap_carver *carver = ap_carver_create(arena, m);
    const ap_block_info *body = ap_block_at(m, m->funcs.at[0].body);
    for (uint32_t k = 0; k + 1 < body->nodes.len; k++) {
        const ap_node_info *node = ap_node_at(m, body->nodes.at[k]);
        for (uint32_t j = 0; j < node->nout; j++)
            copied[node->out[j]] = ap_carver_is_free(carver, k);
    }
    return copied;
}

/* Per value: position behind its last reader (0: none), terminators not counted. */
static uint32_t *last_reads(const ap_module *m, ap_arena *arena, const ap_node *node, uint32_t n)
{
    uint32_t *last = AP_NEW_ARRAY(arena, uint32_t, m->values.len);
    for (uint32_t k = 0; k < n; k++) {
        const ap_node_info *info = ap_node_at(m, node[k]);
        for (uint32_t i = 0; i < info->nin; i++)
            last[info->in[i]] = k + 1;
    }
    return last;
}

/* The values that cross are those of node k with k < p < last[v]; sums of them per position by differences. */
static void sum_crossing(const ap_module *m, ap_arena *arena, const bool *copied, const ap_node *node, uint32_t n,
                         int64_t *out_bytes, uint32_t *out_count)
{
    const uint32_t *last = last_reads(m, arena, node, n);
    for (uint32_t k = 0; k < n; k++) {
        const ap_node_info *info = ap_node_at(m, node[k]);
        for (uint32_t j = 0; j < info->nout; j++) {
            ap_value v = info->out[j];
            if (copied[v] || last[v] <= k + 1)
                continue;
            int64_t bytes = ap_min_i64(ap_type_bytes(m->ctx, ap_value_type(m, v)), INT64_MAX / 2 / (n + 1));
            out_bytes[k + 1] += bytes;
            out_bytes[last[v]] -= bytes;
            out_count[k + 1]++;
            out_count[last[v]]--;
        }
    }
    for (uint32_t p = 1; p <= n; p++) {
        out_bytes[p] += out_bytes[p - 1];
        out_count[p] += out_count[p - 1];
    }
}

/* ---- order ---- */

/* Depth first from the results, in the order of their makers; a node follows its operands. */
static ap_node *walk_depth_first(const ap_module *m, ap_arena *arena, const ap_block_info *body, uint32_t n)
{
    uint32_t *place = AP_NEW_ARRAY(arena, uint32_t, m->nodes.len), at = 0;
    bool *done = AP_NEW_ARRAY(arena, bool, m->nodes.len), *root = AP_NEW_ARRAY(arena, bool, m->nodes.len);
    ap_node *order = AP_NEW_ARRAY(arena, ap_node, n);
    const ap_node_info *ret = ap_node_at(m, body->nodes.at[n]);
    for (uint32_t i = 0; i < ret->nin; i++)
        if (ap_value_at(m, ret->in[i])->kind == AP_VALUE_RESULT)
            root[ap_value_at(m, ret->in[i])->def] = true;
    AP_VEC(ap_node) stack = {0};
    for (uint32_t k = 0; k < 2 * n; k++) { /* results first, then what nobody reads */
        ap_node top = body->nodes.at[k % n];
        if (k < n && !root[top])
            continue;
        ap_vec_push(arena, &stack, top);
        while (stack.len > 0) {
            ap_node x = stack.at[stack.len - 1];
            const ap_node_info *info = ap_node_at(m, x);
            while (!done[x] && place[x] < info->nin) {
                const ap_value_info *v = ap_value_at(m, info->in[place[x]++]);
                if (v->kind == AP_VALUE_RESULT && !done[v->def] && ap_node_at(m, v->def)->block == info->block) {
                    ap_vec_push(arena, &stack, v->def);
                    break;
                }
            }
            if (stack.at[stack.len - 1] != x)
                continue;
            stack.len--;
            if (!done[x])
                order[at++] = x;
            done[x] = true;
        }
    }
    return order;
}

static int64_t all_bytes(const ap_module *m, ap_arena *arena, const bool *copied, const ap_node *node, uint32_t n)
{
    int64_t *bytes = AP_NEW_ARRAY(arena, int64_t, n + 1), sum = 0;
    sum_crossing(m, arena, copied, node, n, bytes, AP_NEW_ARRAY(arena, uint32_t, n + 1));
    for (uint32_t p = 0; p <= n; p++)
        sum = ap_sat_add(sum, bytes[p]);
    return sum;
}

void ap_layers_order(ap_ctx *ctx, ap_module *m)
{
    ap_block_info *body = ap_block_at(m, m->funcs.at[0].body);
    uint32_t n = body->nodes.len - 1;
    const ap_node *order = walk_depth_first(m, &ctx->scratch, body, n);
    const bool *copied = list_copied(m, &ctx->scratch);
    if (all_bytes(m, &ctx->scratch, copied, order, n) < all_bytes(m, &ctx->scratch, copied, body->nodes.at, n))
        memcpy(body->nodes.at, order, n * sizeof *order);
}

/* ---- repeated blocks ---- */

static uint64_t mix(uint64_t h, uint64_t x)
{
    return (h ^ x) * 1099511628211u;
}

/* Nodes that differ only in names and data have equal ones. */
static uint64_t node_signature(const ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    uint64_t h = mix(14695981039346656037u, node->op);
    for (uint32_t i = 0; i < node->nin; i++) {
        h = mix(h, ap_value_type(m, node->in[i]));
        h = mix(h, ap_value_at(m, node->in[i])->kind);
    }
    for (uint32_t j = 0; j < node->nout; j++)
        h = mix(h, ap_value_type(m, node->out[j]));
    return h;
}

typedef struct run {
    uint32_t period, start, len; /* nodes start ... start + len - 1, each like the one a period before it */
    int64_t units;
} run;

/* The run of the most time; the shorter period on ties, then the earlier one. */
static run longest_run(const cutter *c, const uint64_t *signature)
{
    run best = {0};
    for (uint32_t p = 1; c->n <= LONGEST && 2 * p <= c->n; p++) {
        uint32_t same = 0;
        for (uint32_t i = p; i <= c->n; i++) {
            if (i < c->n && signature[i] == signature[i - p]) {
                same++;
                continue;
            }
            run r = {.period = p, .start = i - same - p, .len = same + p};
            r.units = c->units[i] - c->units[r.start];
            if (same >= p && r.units > best.units)
                best = r;
            same = 0;
        }
    }
    return best;
}

/* Marks the cuts between blocks: of all places in the period that where the fewest bytes cross. */
static void find_repeats(cutter *c)
{
    uint64_t *signature = AP_NEW_ARRAY(c->arena, uint64_t, c->n);
    for (uint32_t k = 0; k < c->n; k++)
        signature[k] = node_signature(c->m, c->node[k]);
    run r = longest_run(c, signature);
    c->repeats = 1;
    if (r.len == 0 || 2 * r.units < UNITS)
        return;
    uint32_t middle = r.start + (r.len / r.period / 2) * r.period, shift = 0;
    for (uint32_t s = 1; s < r.period && middle + s < c->n; s++)
        if (c->bytes[middle + s] < c->bytes[middle + shift])
            shift = s;
    uint32_t first = r.start + shift, blocks = (r.len - shift) / r.period;
    uint32_t every = (blocks + AP_LAYERS_MAX - 3) / (AP_LAYERS_MAX - 2);
    c->repeats = blocks > 0 ? blocks : 1;
    if (blocks < 2)
        return;
    for (uint32_t b = 0; b <= blocks; b += every)
        c->regular[first + b * r.period] = true;
    c->before = c->units[first];
    c->block = (c->units[first + blocks * r.period] - c->before) / blocks * every;
    c->after = UNITS - c->units[first + blocks * r.period];
    c->repeats = blocks;
}

/* How many layers: one for each block (or a few of them), one more for each end that is as long as half of that;
 * without blocks as many as there are cuts that one value crosses. */
static uint32_t automatic_count(const cutter *c)
{
    uint32_t count = 0;
    if (c->repeats > 1) {
        uint32_t every = (c->repeats + AP_LAYERS_MAX - 3) / (AP_LAYERS_MAX - 2);
        count = (c->repeats + every - 1) / every + (2 * c->before > c->block) + (2 * c->after > c->block);
    } else {
        int64_t since = 0;
        count = 1;
        for (uint32_t p = 1; p < c->n; p++)
            if (c->count[p] <= 1 && c->units[p] - since >= UNITS / GROUPS && UNITS - c->units[p] >= UNITS / GROUPS) {
                since = c->units[p];
                count++;
            }
    }
    return count < c->opt->least ? c->opt->least : count;
}

/* ---- the DP ---- */

typedef struct value {
    uint32_t thin, values, irregular;
    int64_t bytes;
    int64_t square; /* of units; the sum of all is below UNITS^2 */
} value;

static bool better(const value *a, const value *b)
{
    if (a->thin != b->thin)
        return a->thin < b->thin;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes;
    if (a->values != b->values)
        return a->values < b->values;
    if (a->irregular != b->irregular)
        return a->irregular < b->irregular;
    return a->square < b->square;
}

typedef struct table {
    uint32_t ncuts, *cut; /* positions; the first is 0, the last n */
    uint32_t nlayers;
    uint32_t groups;    /* runs of nodes with one mark */
    uint32_t *earliest; /* per cut: a layer that ends here may start at this cut or later, by marks */
    int64_t bound;
    value *best;    /* [nlayers + 1][ncuts] */
    uint32_t *from; /* the cut where the last layer starts; AP_NONE: impossible */
} table;

/* Nothing but nodes that are made again where they are read. */
static bool is_empty(const cutter *c, uint32_t from, uint32_t to)
{
    return c->real[from] == c->real[to] && c->real[c->n] > 0;
}

static void extend(const cutter *c, table *t, uint32_t r, uint32_t k)
{
    int64_t even = UNITS / t->nlayers;
    value *best = &t->best[(size_t)r * t->ncuts + k];
    uint32_t *from = &t->from[(size_t)r * t->ncuts + k];
    for (uint32_t i = k; i-- > t->earliest[k];) {
        int64_t w = c->units[t->cut[k]] - c->units[t->cut[i]];
        if (w > t->bound)
            break;
        if (t->from[(size_t)(r - 1) * t->ncuts + i] == AP_NONE || is_empty(c, t->cut[i], t->cut[k]))
            continue;
        value x = t->best[(size_t)(r - 1) * t->ncuts + i];
        x.thin += THIN * w < even;
        x.square += w * w;
        x.bytes = i == 0 ? x.bytes : ap_sat_add(x.bytes, c->bytes[t->cut[i]]);
        x.values += i == 0 ? 0 : c->count[t->cut[i]];
        x.irregular += i > 0 && !c->regular[t->cut[i]];
        if (*from == AP_NONE || better(&x, best)) {
            *best = x;
            *from = i;
        }
    }
}

static bool run_table(const cutter *c, table *t)
{
    size_t size = (size_t)(t->nlayers + 1) * t->ncuts;
    for (size_t i = 0; i < size; i++)
        t->from[i] = AP_NONE;
    t->from[0] = 0;
    t->best[0] = (value){0};
    for (uint32_t r = 1; r <= t->nlayers; r++)
        for (uint32_t k = r; k < t->ncuts; k++) {
            bool reachable =
                c->units[t->cut[k]] <= t->bound * r && UNITS - c->units[t->cut[k]] <= t->bound * (t->nlayers - r);
            if (reachable)
                extend(c, t, r, k);
        }
    return t->from[size - 1] != AP_NONE;
}

static bool is_candidate(const cutter *c, uint32_t p)
{
    if (p == 0 || p == c->n || c->n <= FILTER || c->opt->stage || c->regular[p])
        return true;
    return c->bytes[p] <= c->bytes[p - 1] && c->bytes[p] <= c->bytes[p + 1];
}

static uint32_t pin_of(const cutter *c, uint32_t k)
{
    return c->opt->stage ? c->opt->stage[k] : AP_NONE;
}

static ap_loc first_pinned(const cutter *c)
{
    for (uint32_t k = 0; k < c->n; k++)
        if (pin_of(c, k) != AP_NONE)
            return ap_node_at(c->m, c->node[k])->loc;
    return 0;
}

/* Pinned stages do not decrease along the order. */
static ap_status check_pins(const cutter *c)
{
    uint32_t last = AP_NONE;
    for (uint32_t k = 0; k < c->n; k++) {
        uint32_t pin = pin_of(c, k);
        if (pin == AP_NONE)
            continue;
        if (last != AP_NONE && pin < pin_of(c, last))
            return ap_fail(c->m->ctx, AP_ERR_USAGE, ap_node_at(c->m, c->node[k])->loc,
                           "pinned to stage %u, but \"%s\" before it to stage %u", pin,
                           ap_name_str(c->m->ctx, ap_loc_get(c->m->ctx, ap_node_at(c->m, c->node[last])->loc).node),
                           pin_of(c, last));
        last = k;
    }
    return AP_OK;
}

static uint32_t mark_of(const cutter *c, uint32_t k)
{
    return c->mark ? c->mark[k] : AP_NONE;
}

/* Marks of their own for `count` of the nodes in [from, to), evenly. */
static void spread_marks(cutter *c, uint32_t from, uint32_t to, uint32_t count, uint32_t *marks)
{
    uint32_t room = c->real[to] - c->real[from], seen = 0, done = 0;
    for (uint32_t k = from; k < to && count <= room && done < count; k++) {
        if (c->real[k + 1] == c->real[k])
            continue;
        if (seen++ == (uint32_t)((2 * (uint64_t)done + 1) * room / (2 * (uint64_t)count))) {
            c->mark[k] = (*marks)++;
            done++;
        }
    }
}

/* Pinned nodes are marked by their stages. Between those of stage a and of stage b there are b - a - 1 stages, which
 * need as many layers: so many of the nodes there are marked, too, and so it is at both ends. */
static void list_marks(cutter *c)
{
    uint32_t marks = 0, from = 0, begin = 0, last = AP_NONE;
    if (!c->opt->stage)
        return;
    c->mark = AP_NEW_ARRAY(c->arena, uint32_t, c->n + 1);
    for (uint32_t k = 0; k < c->n; k++)
        c->mark[k] = AP_NONE;
    for (uint32_t k = 0; k <= c->n; k++) {
        uint32_t pin = k < c->n ? pin_of(c, k) : c->opt->nstages;
        if (k < c->n ? pin == AP_NONE : pin <= begin)
            continue;
        spread_marks(c, from, k, pin > begin ? pin - begin : 0, &marks);
        if (k == c->n)
            break;
        marks += pin != last;
        c->mark[k] = marks - 1;
        from = k + 1;
        begin = pin + 1;
        last = pin;
    }
}

/* Cuts, and for each where a layer that ends there may start: behind the last node that is marked otherwise than the
 * last marked node before the cut. */
static void list_cuts(const cutter *c, table *t)
{
    t->cut = AP_NEW_ARRAY(c->arena, uint32_t, c->n + 1);
    t->earliest = AP_NEW_ARRAY(c->arena, uint32_t, c->n + 1);
    uint32_t last = AP_NONE, since = 0, from = 0; /* last marked node; position behind the last one unlike it */
    for (uint32_t p = 0; p <= c->n; p++) {
        if (p > 0 && mark_of(c, p - 1) != AP_NONE) {
            if (last == AP_NONE || mark_of(c, last) != mark_of(c, p - 1)) {
                since = last == AP_NONE ? 0 : last + 1;
                t->groups++;
            }
            last = p - 1;
        }
        if (!is_candidate(c, p))
            continue;
        while (from < t->ncuts && t->cut[from] < since)
            from++;
        t->earliest[t->ncuts] = from;
        t->cut[t->ncuts++] = p;
    }
}

/* A little longer until it works out; at n the whole body may be one layer. */
static ap_status choose(const cutter *c, uint32_t nlayers, table *t)
{
    list_cuts(c, t);
    uint32_t real = c->real[c->n];
    t->nlayers = nlayers > t->groups ? nlayers : t->groups;
    t->nlayers = t->nlayers < t->ncuts ? t->nlayers : t->ncuts - 1;
    t->nlayers = t->nlayers < real || real == 0 ? t->nlayers : real;
    t->nlayers = t->nlayers > 0 ? t->nlayers : 1;
    t->best = AP_NEW_ARRAY(c->arena, value, (size_t)(t->nlayers + 1) * t->ncuts);
    t->from = AP_NEW_ARRAY(c->arena, uint32_t, (size_t)(t->nlayers + 1) * t->ncuts);
    t->bound = UNITS / t->nlayers + UNITS / t->nlayers / 2;
    for (uint32_t k = 1; k < t->ncuts; k++)
        t->bound = ap_max_i64(t->bound, c->units[t->cut[k]] - c->units[t->cut[k - 1]]);
    while (!run_table(c, t)) {
        if (t->bound >= UNITS)
            return ap_fail(c->m->ctx, AP_ERR_USAGE, first_pinned(c),
                           "with the pins of this node and those behind it the nodes cannot be cut into %u layers",
                           t->nlayers);
        t->bound = ap_min_i64(t->bound + t->bound / 4 + 1, UNITS);
    }
    return AP_OK;
}

/* ---- putting it together ---- */

static void list_crossing(const cutter *c, ap_layers *out)
{
    const bool *copied = c->copied;
    const uint32_t *last = last_reads(c->m, c->arena, c->node, c->n);
    for (uint32_t l = 0; l <= out->n; l++) {
        AP_VEC(ap_value) list = {0};
        int64_t most = -1;
        out->largest[l] = AP_NONE;
        for (uint32_t k = 0; k < out->first[l] && l < out->n; k++) {
            const ap_node_info *node = ap_node_at(c->m, c->node[k]);
            for (uint32_t j = 0; j < node->nout; j++) {
                ap_value v = node->out[j];
                if (copied[v] || last[v] <= out->first[l])
                    continue;
                int64_t bytes = ap_type_bytes(c->m->ctx, ap_value_type(c->m, v));
                ap_vec_push(c->arena, &list, v);
                out->largest[l] = bytes > most ? v : out->largest[l];
                most = ap_max_i64(most, bytes);
            }
        }
        out->ncrossing[l] = list.len;
        out->crossing[l] = list.at;
    }
}

static void write_layers(const cutter *c, const table *t, ap_layers *out)
{
    uint32_t n = t->nlayers, k = t->ncuts - 1;
    *out = (ap_layers){.n = n, .repeats = c->repeats};
    out->first = AP_NEW_ARRAY(c->arena, uint32_t, n + 1);
    out->ps = AP_NEW_ARRAY(c->arena, int64_t, n);
    out->bytes = AP_NEW_ARRAY(c->arena, int64_t, n + 1);
    out->largest = AP_NEW_ARRAY(c->arena, ap_value, n + 1);
    out->ncrossing = AP_NEW_ARRAY(c->arena, uint32_t, n + 1);
    out->crossing = AP_NEW_ARRAY(c->arena, ap_value *, n + 1);
    out->first[n] = c->n;
    for (uint32_t r = n; r > 0; r--) {
        k = t->from[(size_t)r * t->ncuts + k];
        out->first[r - 1] = t->cut[k];
        out->bytes[r - 1] = c->bytes[t->cut[k]];
    }
    for (uint32_t l = 0; l < n; l++)
        for (uint32_t i = out->first[l]; i < out->first[l + 1]; i++)
            out->ps[l] = ap_sat_add(out->ps[l], c->ps[i]);
    list_crossing(c, out);
}

/* One device does the whole: shardings of none. */
static void find_times(cutter *c)
{
    __int128 sum = 0, at = 0;
    for (uint32_t k = 0; k < c->n; k++) {
        const ap_node_info *node = ap_node_at(c->m, c->node[k]);
        ap_strategy s = {AP_NEW_ARRAY(c->arena, ap_sharding, node->nin),
                         AP_NEW_ARRAY(c->arena, ap_sharding, node->nout)};
        int64_t ps = ap_cost_node(c->opt->cluster, c->m, c->node[k], &s);
        c->ps[k] = ap_min_i64(ps, INT64_MAX >> 20);
        sum += c->ps[k] + 1;
    }
    for (uint32_t k = 0; k < c->n; k++) {
        at += c->ps[k] + 1;
        c->units[k + 1] = (int64_t)(at * UNITS / sum);
    }
}

static uint32_t *count_real(const cutter *c)
{
    uint32_t *real = AP_NEW_ARRAY(c->arena, uint32_t, c->n + 1);
    for (uint32_t k = 0; k < c->n; k++) {
        const ap_node_info *node = ap_node_at(c->m, c->node[k]);
        real[k + 1] = real[k] + (node->nout > 0 && !c->copied[node->out[0]]);
    }
    return real;
}

ap_status ap_layers_cut(ap_ctx *ctx, ap_arena *arena, const ap_module *m, const ap_layers_options *opt, ap_layers *out)
{
    (void)ctx;
    const ap_block_info *body = ap_block_at(m, m->funcs.at[0].body);
    uint32_t n = body->nodes.len - 1;
    cutter c = {.m = m, .arena = arena, .opt = opt, .node = body->nodes.at, .n = n, .repeats = 1};
    c.ps = AP_NEW_ARRAY(arena, int64_t, n);
    c.units = AP_NEW_ARRAY(arena, int64_t, n + 1);
    c.bytes = AP_NEW_ARRAY(arena, int64_t, n + 1);
    c.count = AP_NEW_ARRAY(arena, uint32_t, n + 1);
    c.regular = AP_NEW_ARRAY(arena, bool, n + 1);
    AP_TRY(check_pins(&c));
    find_times(&c);
    c.copied = list_copied(m, arena);
    sum_crossing(m, arena, c.copied, c.node, n, c.bytes, c.count);
    c.real = count_real(&c);
    list_marks(&c);
    find_repeats(&c);
    uint32_t want = opt->count ? opt->count : automatic_count(&c);
    table t = {0};
    AP_TRY(choose(&c, want < AP_LAYERS_MAX ? want : AP_LAYERS_MAX, &t));
    write_layers(&c, &t, out);
    return AP_OK;
}
