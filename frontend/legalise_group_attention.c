/* GroupQueryAttention of com.microsoft: causal attention with fewer heads of keys than of queries, a cache of keys and
 * values, and rotary positions. Extents are static; how much of the cache counts may be known only at run time:
 *
 *     s      queries and new keys of each sequence      total  most keys that any sequence has, new ones included
 *     start  [b] where the new keys of a sequence stand: seqlens_k + 1 - s, or 0 where s = total (the first prompt)
 *
 *     present[t]   past[t] for t < start, new[t - start] for the next s, else 0
 *     visible      t <= start + i for query i, and not further back than the window
 *
 * The present is a value of its own, never the past's memory. */
#include "frontend/attention.h"

#include <inttypes.h>
#include <math.h>

typedef struct group_attention {
    int64_t batch, s, total, past, cache; /* past, cache: rows of the past and of the present */
    int64_t heads, kv_heads, head;
    bool known;     /* all sequences start at `at` */
    int64_t at;     /* known */
    ap_value start; /* [b,1,1,1], otherwise */
} group_attention;

/* ---- inputs ---- */

static void refuse_forms(ap_legal *l)
{
    if (ap_has_in(l, 11) || ap_attr_int(l, "smooth_softmax", 0) > 0)
        ap_refuse(l, "a softmax with a sink is not supported");
    if (ap_attr_int(l, "qk_output", 0) != 0 || ap_wants_out(l, 3))
        ap_refuse(l, "the scores as an output are not supported");
    if (!ap_has_in(l, 5) || !ap_has_in(l, 6))
        ap_refuse(l, "seqlens_k and total_sequence_length are missing");
    if (ap_has_in(l, 1) != ap_has_in(l, 2) || ap_has_in(l, 3) != ap_has_in(l, 4))
        ap_refuse(l, "keys and values go together");
}

/* q, k and v as [b,s,heads,head], apart or out of one input. */
static bool split_inputs(ap_legal *l, group_attention *g, ap_value x[3])
{
    ap_dims d = ap_dims_of(l, ap_in(l, 0));
    int64_t all = g->heads + 2 * g->kv_heads, count[3] = {g->heads, g->kv_heads, g->kv_heads}, at = 0;
    bool packed = !ap_has_in(l, 1);
    if (!l->status && (g->heads < 1 || g->kv_heads < 1 || g->heads > 4096 || g->kv_heads > g->heads ||
                       g->heads % g->kv_heads || d.rank != 3 || d.at[2] % (packed ? all : g->heads)))
        ap_refuse(l, "query %s, %" PRId64 " heads and %" PRId64 " of keys do not go together", ap_dims_str(l, &d),
                  g->heads, g->kv_heads);
    if (l->status)
        return false;
    g->batch = d.at[0];
    g->s = d.at[1];
    g->head = d.at[2] / (packed ? all : g->heads);
    for (uint32_t i = 0; i < 3; i++) {
        x[i] = packed ? ap_emit_part(l, ap_in(l, 0), 2, at, count[i] * g->head) : ap_in(l, i);
        at += count[i] * g->head;
        ap_dims have = ap_dims_of(l, x[i]), want = {3, {g->batch, g->s, count[i] * g->head}};
        if (!l->status && !ap_dims_equal(&have, &want))
            ap_refuse(l, "%s is %s, not %s", i == 1 ? "key" : "value", ap_dims_str(l, &have), ap_dims_str(l, &want));
        x[i] = ap_emit_heads(l, x[i], count[i], "a projection");
    }
    return !l->status;
}

/* Where the new keys stand. */
static bool find_start(ap_legal *l, group_attention *g)
{
    ap_value lengths = ap_in(l, 5);
    ap_dims d = ap_dims_of(l, lengths), p = ap_dims_of(l, ap_in(l, 3)), v = ap_dims_of(l, ap_in(l, 4));
    ap_dims want = {4, {g->batch, g->kv_heads, p.rank == 4 ? p.at[2] : 0, g->head}}, column = {4, {g->batch, 1, 1, 1}};
    if (ap_known_ints(l, ap_in(l, 6), "total_sequence_length", &g->total, 1) != 1 && !l->status)
        ap_refuse(l, "total_sequence_length must be one number");
    if (!l->status && (ap_dims_count(&d) != g->batch || !ap_dtype_is_int(ap_dtype_of(l, lengths))))
        ap_refuse(l, "%s lengths for a batch of %" PRId64, ap_dims_str(l, &d), g->batch);
    if (!l->status && ap_has_in(l, 3) && (!ap_dims_equal(&p, &want) || !ap_dims_equal(&v, &want)))
        ap_refuse(l, "past keys %s and values %s are not %s", ap_dims_str(l, &p), ap_dims_str(l, &v),
                  ap_dims_str(l, &want));
    g->past = want.at[2];
    if (!l->status && (g->s < 1 || g->total < g->s || g->total > g->past + g->s || g->total > INT32_MAX))
        ap_refuse(l, "%" PRId64 " keys in all, with %" PRId64 " new ones and %" PRId64 " past ones", g->total, g->s,
                  g->past);
    if (l->status)
        return false;
    g->cache = ap_max_i64(g->past, g->total);
    const ap_tensor *t = g->s == g->total ? NULL : ap_known(l, lengths);
    g->known = g->s == g->total || t != NULL;
    g->at = g->total - g->s;
    for (int64_t b = 0; t && b < t->count; b++)
        g->known = g->known && t->at[b].i == g->total - 1;
    if (!g->known) {
        g->start = ap_emit_cast(l, ap_emit_reshape(l, lengths, &column), AP_I64);
        g->start = ap_emit2(l, AP_OP_SUB, g->start, ap_emit_number(l, AP_I64, (double)(g->s - 1)));
    }
    return !l->status;
}

/* ---- the cache ---- */

static ap_value padded(ap_legal *l, ap_value x, int64_t rows)
{
    ap_dims s = ap_dims_of(l, x);
    int64_t none[AP_MAX_RANK] = {0}, more[AP_MAX_RANK] = {0};
    if (l->status || s.at[2] == rows)
        return l->status ? AP_NONE : x;
    more[2] = rows - s.at[2];
    return ap_emit_pad(l, x, none, more, ap_emit_number(l, ap_dtype_of(l, x), 0));
}

/* x[b,s,n,h] by row of the cache, [b,n,cache,h] or of one row: row t is new row t - start; others hold anything. */
static ap_value spread(ap_legal *l, const group_attention *g, ap_value x, ap_value at)
{
    if (g->s == 1)
        return ap_emit_swap_heads(l, x);
    ap_dims ids = {2, {g->batch, g->cache}};
    ap_value row = ap_emit2(l, AP_OP_MAX, ap_emit2(l, AP_OP_SUB, at, g->start), ap_emit_number(l, AP_I64, 0));
    row = ap_emit2(l, AP_OP_MIN, row, ap_emit_number(l, AP_I64, (double)(g->s - 1)));
    row = l->status ? AP_NONE : ap_emit_reshape(l, row, &ids);
    return l->status ? AP_NONE : ap_emit_swap_heads(l, ap_emit_gather_in_batches(l, x, row, 1));
}

/* [b,n,cache,h] */
static ap_value present_of(ap_legal *l, const group_attention *g, ap_value past, ap_value x)
{
    ap_dims line = {4, {1, 1, g->cache, 1}};
    if (l->status)
        return AP_NONE;
    if (g->known) {
        x = ap_emit_swap_heads(l, x);
        ap_value parts[2] = {g->at ? ap_emit_part(l, past, 2, 0, g->at) : AP_NONE, x};
        return padded(l, g->at ? ap_emit_concat(l, 2, parts, 2) : x, g->cache);
    }
    ap_value at = ap_emit_iota(l, AP_I64, &line, 2), zero = ap_emit_number(l, ap_dtype_of(l, x), 0);
    ap_value end = ap_emit2(l, AP_OP_ADD, g->start, ap_emit_number(l, AP_I64, (double)g->s));
    ap_value fresh = ap_emit_select(l, ap_emit2(l, AP_OP_LT, at, end), spread(l, g, x, at), zero);
    return ap_emit_select(l, ap_emit2(l, AP_OP_LT, at, g->start), padded(l, past, g->cache), fresh);
}

/* ---- positions ---- */

/* Rows of a table for the new tokens, beside heads: [1 or b,s,1,width/2]. */
static ap_value rows_of(ap_legal *l, const group_attention *g, ap_value table)
{
    ap_dims row = {1, {g->s}}, c = ap_dims_of(l, table), id = ap_dims_of(l, ap_in(l, 9)), one = {1, {1}};
    ap_value at = ap_emit_iota(l, AP_I64, &row, 0), given = ap_in(l, 9);
    if (!l->status && given != AP_NONE && (id.rank != 2 || id.at[0] != g->batch || id.at[1] != g->s))
        ap_refuse(l, "positions %s do not fit the query", ap_dims_str(l, &id));
    if (l->status)
        return AP_NONE;
    int64_t batch = g->batch;
    if (given != AP_NONE && g->s != g->total) {
        at = given;
    } else if (given != AP_NONE) { /* of a first prompt only the first one is read */
        given = ap_emit_part(l, ap_emit_part(l, given, 0, 0, 1), 1, 0, 1);
        given = l->status ? AP_NONE : ap_emit_cast(l, ap_emit_reshape(l, given, &one), AP_I64);
        at = ap_emit2(l, AP_OP_ADD, at, given);
        batch = 1;
    } else if (g->known) {
        at = ap_emit2(l, AP_OP_ADD, at, ap_emit_number(l, AP_I64, (double)g->at));
        batch = 1;
    } else {
        at = ap_emit2(l, AP_OP_ADD, ap_emit_reshape(l, g->start, &(ap_dims){2, {g->batch, 1}}), at);
    }
    ap_value rows = l->status ? AP_NONE : ap_emit_gather(l, table, at, 0);
    return l->status ? AP_NONE : ap_emit_reshape(l, rows, &(ap_dims){4, {batch, g->s, 1, c.at[1]}});
}

static void rotate(ap_legal *l, const group_attention *g, ap_value x[3])
{
    ap_value table[2] = {ap_in(l, 7), ap_in(l, 8)};
    ap_dims c = ap_dims_of(l, table[0]), s = ap_dims_of(l, table[1]);
    if (!ap_attr_int(l, "do_rotary", 0) || l->status)
        return;
    if (c.rank != 2 || !ap_dims_equal(&c, &s) || c.at[1] < 1 || c.at[1] > g->head / 2) {
        ap_refuse(l, "tables %s and %s for heads of %" PRId64, ap_dims_str(l, &c), ap_dims_str(l, &s), g->head);
        return;
    }
    for (int i = 0; i < 2; i++)
        table[i] = rows_of(l, g, table[i]);
    for (int i = 0; i < 2; i++)
        x[i] = ap_emit_rotation(l, x[i], table[0], table[1], 2 * c.at[1], ap_attr_int(l, "rotary_interleaved", 0));
}

/* ---- what is visible ---- */

static void hide(ap_legal *l, const group_attention *g, ap_attention *a)
{
    ap_dims down = {4, {1, 1, g->s, 1}}, across = {4, {1, 1, 1, g->total}};
    int64_t window = ap_attr_int(l, "local_window_size", -1);
    ap_value start = g->known ? ap_emit_number(l, AP_I64, (double)g->at) : g->start;
    ap_value last = ap_emit2(l, AP_OP_ADD, start, ap_emit_iota(l, AP_I64, &down, 2));
    ap_value at = ap_emit_iota(l, AP_I64, &across, 3);
    ap_attention_hide(a, ap_emit2(l, AP_OP_LE, at, last));
    if (window < 0 || window >= g->total)
        return;
    ap_value first = ap_emit2(l, AP_OP_SUB, last, ap_emit_number(l, AP_I64, (double)window));
    ap_attention_hide(a, ap_emit2(l, AP_OP_LE, first, at));
}

void ap_lower_group_attention(ap_legal *l)
{
    group_attention g = {.heads = ap_attr_int(l, "num_heads", 0), .kv_heads = ap_attr_int(l, "kv_num_heads", 0)};
    ap_attention a;
    ap_value x[3], present[2];
    ap_attention_init(&a);
    refuse_forms(l);
    if (l->status || !split_inputs(l, &g, x) || !find_start(l, &g))
        return;
    rotate(l, &g, x);
    for (uint32_t i = 0; i < 2; i++) {
        present[i] = present_of(l, &g, ap_in(l, 3 + i), x[1 + i]);
        ap_set_out(l, 1 + i, present[i]);
    }
    a.q = x[0];
    a.k = ap_emit_part(l, present[0], 2, 0, g.total);
    a.v = ap_emit_part(l, present[1], 2, 0, g.total);
    a.kv_heads_first = true;
    double scale = ap_attr_float(l, "scale", 0);
    a.scale = scale != 0 ? scale : 1 / sqrt((double)g.head);
    a.softcap = ap_attr_float(l, "softcap", 0);
    a.bias = ap_in(l, 10);
    hide(l, &g, &a);
    ap_value y = ap_emit_attention(l, &a);
    ap_set_out(l, 0, l->status ? AP_NONE : ap_emit_join_heads(l, y));
}
