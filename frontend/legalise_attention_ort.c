/* Attention operators of com.microsoft, which ONNX Runtime's optimiser and exporters write.
 *
 * Their masks are added: what is hidden gets mask_filter_value, a finite number, and only later positions of a causal
 * row are cut off altogether. So a row that is padding all over still has a softmax. */
#include "frontend/attention.h"

#include <inttypes.h>
#include <math.h>

/* What is the same for all of them. */
typedef struct lengths {
    int64_t batch, queries, past, total; /* total: keys, past ones included */
} lengths;

/* 0 where `visible`, else the filter value. */
static ap_value filter(ap_legal *l, ap_value visible)
{
    double value = ap_attr_float(l, "mask_filter_value", -10000);
    return ap_emit_select(l, visible, ap_emit_number(l, AP_F32, 0), ap_emit_number(l, AP_F32, value));
}

/* Lengths [b], or ends [b] and starts [b] behind one another. */
static ap_value filter_of_lengths(ap_legal *l, ap_value mask, const lengths *n)
{
    ap_dims s = ap_dims_of(l, mask), column = {4, {n->batch, 1, 1, 1}}, row = {4, {1, 1, 1, n->total}};
    ap_dtype t = ap_dtype_of(l, mask);
    if (s.at[0] != n->batch && s.at[0] != 2 * n->batch) {
        ap_refuse(l, "a mask of %" PRId64 " numbers for a batch of %" PRId64 " is not supported", s.at[0], n->batch);
        return AP_NONE;
    }
    ap_value at = ap_emit_iota(l, t, &row, 3);
    ap_value end = ap_emit_reshape(l, ap_emit_part(l, mask, 0, 0, n->batch), &column);
    ap_value visible = ap_emit2(l, AP_OP_LT, at, end);
    if (s.at[0] == 2 * n->batch) {
        ap_value start = ap_emit_reshape(l, ap_emit_part(l, mask, 0, n->batch, n->batch), &column);
        visible = ap_emit2(l, AP_OP_AND, visible, ap_emit2(l, AP_OP_LE, start, at));
    }
    return filter(l, visible);
}

/* The mask in any of its forms, as what is added to the scores. */
static ap_value filter_of_mask(ap_legal *l, ap_value mask, const lengths *n)
{
    ap_dims s = ap_dims_of(l, mask), d = {4, {n->batch, 1, n->queries, n->total}};
    if (mask == AP_NONE || l->status)
        return AP_NONE;
    if (!ap_dtype_is_int(ap_dtype_of(l, mask))) {
        ap_refuse(l, "a mask of %s, not integers", ap_dtype_str(ap_dtype_of(l, mask)));
        return AP_NONE;
    }
    if (s.rank == 1)
        return filter_of_lengths(l, mask, n);
    bool fits = s.rank <= 4 && s.at[0] == n->batch && s.at[s.rank - 1] >= n->total;
    if (s.rank == 2) {
        d.at[2] = 1;
    } else if (s.rank == 3) {
        fits = fits && s.at[1] == n->queries;
    } else { /* of the longest sequence there may be; the queries stand behind the past */
        fits = fits && s.at[1] == 1 && s.at[2] >= n->total;
    }
    if (!fits || (s.rank < 4 && s.at[s.rank - 1] != n->total)) {
        ap_refuse(l, "mask %s does not fit %" PRId64 " sequences of %" PRId64 " queries and %" PRId64 " keys",
                  ap_dims_str(l, &s), n->batch, n->queries, n->total);
        return AP_NONE;
    }
    if (s.rank == 4) {
        mask = ap_emit_part(l, mask, 2, n->past, n->queries);
        mask = ap_emit_part(l, mask, 3, 0, n->total);
    }
    mask = ap_emit_reshape(l, mask, &d);
    return l->status ? AP_NONE : filter(l, ap_emit2(l, AP_OP_LT, ap_emit_number(l, ap_dtype_of(l, mask), 0), mask));
}

/* Scale, mask, bias and causality; q, k and v are there. */
static ap_value attend(ap_legal *l, ap_attention *a, const lengths *n, ap_value mask, ap_value bias)
{
    ap_dims q = ap_dims_of(l, a->q);
    if (l->status)
        return AP_NONE;
    double scale = ap_attr_float(l, "scale", 0);
    a->scale = scale != 0 ? scale : 1 / sqrt((double)q.at[3]);
    a->bias = filter_of_mask(l, mask, n);
    if (bias != AP_NONE)
        a->bias = a->bias == AP_NONE ? bias : ap_emit2(l, AP_OP_ADD, ap_emit_cast(l, bias, AP_F32), a->bias);
    if (ap_attr_int(l, "unidirectional", 0))
        ap_attention_hide(a, ap_emit_causal(l, n->queries, n->total, n->past));
    ap_value y = ap_emit_attention(l, a);
    return l->status ? AP_NONE : ap_emit_join_heads(l, y);
}

/* Keys (or values) with the past before them, [b,n,t,h]. */
static ap_value behind_past(ap_legal *l, ap_value past, ap_value x)
{
    x = ap_emit_swap_heads(l, x);
    return past == AP_NONE || l->status ? x : ap_emit_concat(l, 2, (ap_value[]){past, x}, 2);
}

/* ---- Attention ---- */

/* One of q, k, v: [b,s,n,h] out of the joint projection. */
static ap_value part_of_projection(ap_legal *l, ap_value x, int64_t start, int64_t size, int64_t heads)
{
    return l->status ? AP_NONE : ap_emit_heads(l, ap_emit_part(l, x, 2, start, size), heads, "a projection");
}

static bool projection_sizes(ap_legal *l, int64_t all, int64_t size[3])
{
    int n = ap_attr_ints(l, "qkv_hidden_sizes", size, 3);
    if (n <= 0)
        size[0] = size[1] = size[2] = all / 3;
    bool fits = (n <= 0 && all % 3 == 0) || (n == 3 && size[0] > 0 && size[1] > 0 && size[2] > 0 && size[0] <= all &&
                                             size[1] <= all && all - size[0] - size[1] == size[2]);
    if (!l->status && !fits)
        ap_refuse(l, "weights with %" PRId64 " columns do not hold queries, keys and values", all);
    return !l->status;
}

/* [2,b,n,p,h] -> [b,n,p,h] */
static ap_value part_of_past(ap_legal *l, ap_value past, int which)
{
    ap_dims s = ap_dims_of(l, past);
    if (past == AP_NONE || l->status)
        return AP_NONE;
    ap_value x = ap_emit_part(l, past, 0, which, 1);
    return ap_emit_reshape(l, x, &(ap_dims){4, {s.at[1], s.at[2], s.at[3], s.at[4]}});
}

static void set_present(ap_legal *l, ap_value k, ap_value v)
{
    ap_dims s = ap_dims_of(l, k), d = {5, {1, s.at[0], s.at[1], s.at[2], s.at[3]}};
    ap_value parts[2] = {ap_emit_reshape(l, k, &d), ap_emit_reshape(l, v, &d)};
    ap_set_out(l, 1, ap_emit_concat(l, 2, parts, 0));
}

void ap_lower_ort_attention(ap_legal *l)
{
    ap_value x = ap_in(l, 0), w = ap_in(l, 1), past = ap_in(l, 4);
    ap_dims s = ap_dims_of(l, x), dw = ap_dims_of(l, w), dp = ap_dims_of(l, past);
    int64_t heads = ap_attr_int(l, "num_heads", 0), size[3], rest;
    if (ap_attr_int(l, "do_rotary", 0) || ap_attr_int(l, "past_present_share_buffer", 0) || ap_has_in(l, 6))
        ap_refuse(l, "rotary positions and a past that shares its buffer with the present are not supported");
    if (!l->status && (s.rank != 3 || dw.rank != 2 || dw.at[0] != s.at[2]))
        ap_refuse(l, "input %s and weights %s do not go together", ap_dims_str(l, &s), ap_dims_str(l, &dw));
    if (l->status || !projection_sizes(l, dw.at[1], size))
        return;
    rest = dw.at[1] - size[2];
    if (past != AP_NONE && (dp.rank != 5 || dp.at[0] != 2 || dp.at[1] != s.at[0])) {
        ap_refuse(l, "past %s does not fit the batch of %" PRId64, ap_dims_str(l, &dp), s.at[0]);
        return;
    }
    lengths n = {s.at[0], s.at[1], past == AP_NONE ? 0 : dp.at[3], 0};
    if (!ap_add_i64(n.past, n.queries, &n.total))
        ap_refuse(l, "the number of keys overflows");
    ap_value qkv = ap_emit_matmul(l, x, w, false, false);
    if (ap_has_in(l, 2))
        qkv = ap_emit2(l, AP_OP_ADD, qkv, ap_in(l, 2));
    ap_attention a;
    ap_attention_init(&a);
    a.q = part_of_projection(l, qkv, 0, size[0], heads);
    a.k = part_of_projection(l, qkv, size[0], size[1], heads);
    a.v = part_of_projection(l, qkv, rest, size[2], heads);
    a.kv_heads_first = past != AP_NONE || ap_wants_out(l, 1);
    if (a.kv_heads_first) {
        a.k = behind_past(l, part_of_past(l, past, 0), a.k);
        a.v = behind_past(l, part_of_past(l, past, 1), a.v);
    }
    if (ap_wants_out(l, 1) && !l->status)
        set_present(l, a.k, a.v);
    ap_set_out(l, 0, attend(l, &a, &n, ap_in(l, 3), ap_in(l, 5)));
}

/* ---- MultiHeadAttention ---- */

/* One part of [b,s,n,parts,h] as [b,s,n,h]. */
static ap_value unpack(ap_legal *l, ap_value x, int which)
{
    ap_dims s = ap_dims_of(l, x);
    x = ap_emit_part(l, x, 3, which, 1);
    return l->status ? AP_NONE : ap_emit_reshape(l, x, &(ap_dims){4, {s.at[0], s.at[1], s.at[2], s.at[4]}});
}

/* Adds entries start.. of the bias of all projections to one of them. */
static ap_value biased(ap_legal *l, ap_value x, ap_value bias, int64_t *start)
{
    ap_dims s = ap_dims_of(l, x), b = ap_dims_of(l, bias);
    if (bias == AP_NONE || l->status)
        return x;
    int64_t n = s.rank == 3 ? s.at[2] : s.at[2] * s.at[3];
    if (b.rank != 1 || n > b.at[0] - *start) {
        ap_refuse(l, "bias %s is too short", ap_dims_str(l, &b));
        return AP_NONE;
    }
    ap_value part = ap_emit_part(l, bias, 0, *start, n);
    *start += n;
    if (s.rank == 4)
        part = ap_emit_reshape(l, part, &(ap_dims){2, {s.at[2], s.at[3]}});
    return ap_emit2(l, AP_OP_ADD, x, part);
}

/* The three forms: apart, keys and values packed, all packed; or keys and values that are already in heads. */
static void multi_head_inputs(ap_legal *l, ap_attention *a, int64_t heads)
{
    ap_value q = ap_in(l, 0), k = ap_in(l, 1), v = ap_in(l, 2), bias = ap_in(l, 3);
    int rank_q = ap_dims_of(l, q).rank, rank_k = ap_dims_of(l, k).rank;
    int64_t at = 0;
    ap_value parts[3] = {q, k, v};
    bool packed = rank_q == 5 && k == AP_NONE && v == AP_NONE, packed_kv = rank_q == 3 && rank_k == 5 && v == AP_NONE;
    bool apart = rank_q == 3 && (rank_k == 3 || rank_k == 4) && ap_dims_of(l, v).rank == rank_k;
    if (!packed && !packed_kv && !apart)
        ap_refuse(l, "inputs of %d, %d and %d dimensions are not supported", rank_q, rank_k, ap_dims_of(l, v).rank);
    if (l->status)
        return;
    if ((packed && (ap_dims_of(l, q).at[3] != 3 || ap_dims_of(l, q).at[2] != heads)) ||
        (packed_kv && (ap_dims_of(l, k).at[3] != 2 || ap_dims_of(l, k).at[2] != heads)))
        ap_refuse(l, "the packed input is not of %" PRId64 " heads", heads);
    for (int i = 0; i < 3 && packed; i++)
        parts[i] = unpack(l, q, i);
    for (int i = 0; i < 2 && packed_kv; i++)
        parts[i + 1] = unpack(l, k, i);
    for (int i = 0; i < (rank_k == 4 ? 1 : 3); i++) {
        parts[i] = biased(l, parts[i], bias, &at);
        if (ap_dims_of(l, parts[i]).rank == 3)
            parts[i] = ap_emit_heads(l, parts[i], heads, i == 0 ? "query" : i == 1 ? "key" : "value");
    }
    a->q = parts[0];
    a->k = parts[1];
    a->v = parts[2];
    a->kv_heads_first = rank_k == 4;
}

void ap_lower_multi_head_attention(ap_legal *l)
{
    ap_attention a;
    ap_attention_init(&a);
    if (ap_has_in(l, 8) || ap_has_in(l, 9))
        ap_refuse(l, "a past of its own length and an indirect cache are not supported");
    if (!l->status)
        multi_head_inputs(l, &a, ap_attr_int(l, "num_heads", 0));
    ap_value past_k = ap_in(l, 6), past_v = ap_in(l, 7);
    if (!l->status && (past_k == AP_NONE) != (past_v == AP_NONE))
        ap_refuse(l, "past keys and past values go together");
    if (l->status)
        return;
    bool present = past_k != AP_NONE || ap_wants_out(l, 1) || ap_wants_out(l, 2);
    if (a.kv_heads_first && past_k != AP_NONE) {
        ap_refuse(l, "keys in heads and past keys are not supported together");
        return;
    }
    if (present && !a.kv_heads_first) {
        a.k = behind_past(l, past_k, a.k);
        a.v = behind_past(l, past_v, a.v);
        a.kv_heads_first = true;
    }
    ap_dims q = ap_dims_of(l, a.q), k = ap_dims_of(l, a.k);
    if (l->status)
        return;
    lengths n = {q.at[0], q.at[1], past_k == AP_NONE ? 0 : ap_dims_of(l, past_k).at[2], k.at[a.kv_heads_first ? 2 : 1]};
    ap_set_out(l, 1, a.k);
    ap_set_out(l, 2, a.v);
    ap_set_out(l, 0, attend(l, &a, &n, ap_in(l, 4), ap_in(l, 5)));
}

/* ---- RotaryEmbedding ---- */

/* Rows of a table by position: [1 or b,s,width/2]. One position is that of the first token. */
static ap_value rows_at(ap_legal *l, ap_value table, ap_value positions, int64_t count)
{
    ap_dims d = ap_dims_of(l, positions), row = {2, {1, count}};
    if (!l->status && d.rank == 1 && d.at[0] == 1) {
        ap_value first = ap_emit_cast(l, positions, AP_I64);
        positions = ap_emit2(l, AP_OP_ADD, ap_emit_iota(l, AP_I64, &row, 1), first);
    } else if (!l->status && (d.rank != 2 || d.at[1] != count)) {
        ap_refuse(l, "positions %s do not fit %" PRId64 " tokens", ap_dims_str(l, &d), count);
    }
    return l->status ? AP_NONE : ap_emit_gather(l, table, positions, 0);
}

/* [b,s,width/2] for x in heads */
static ap_value beside_heads(ap_legal *l, ap_value table, bool heads_first)
{
    ap_dims s = ap_dims_of(l, table);
    ap_dims d = {4, {s.at[0], heads_first ? 1 : s.at[1], heads_first ? s.at[1] : 1, s.at[2]}};
    return l->status ? AP_NONE : ap_emit_reshape(l, table, &d);
}

void ap_lower_ort_rotary(ap_legal *l)
{
    ap_value x = ap_in(l, 0), positions = ap_in(l, 1), tables[2] = {ap_in(l, 2), ap_in(l, 3)};
    ap_dims s = ap_dims_of(l, x), c = ap_dims_of(l, tables[0]);
    int64_t width = ap_attr_int(l, "rotary_embedding_dim", 0), heads = ap_attr_int(l, "num_heads", 0);
    if (ap_attr_int(l, "is_packed_batching", 0) || ap_attr_float(l, "scale", 1) != 1)
        ap_refuse(l, "packed sequences and a scale are not supported");
    if (!l->status && ((s.rank != 3 && s.rank != 4) || c.rank != 2 || c.at[1] < 1))
        ap_refuse(l, "input %s and table %s do not go together", ap_dims_str(l, &s), ap_dims_str(l, &c));
    if (l->status)
        return;
    bool heads_first = s.rank == 4;
    int64_t head = heads_first ? s.at[3] : width && heads > 0 ? s.at[2] / heads : 2 * c.at[1];
    if (!heads_first)
        x = ap_emit_heads(l, x, head ? s.at[2] / head : 0, "input");
    for (int i = 0; i < 2; i++)
        tables[i] = beside_heads(l, rows_at(l, tables[i], positions, s.at[heads_first ? 2 : 1]), heads_first);
    ap_value y =
        ap_emit_rotation(l, x, tables[0], tables[1], width ? width : 2 * c.at[1], ap_attr_int(l, "interleaved", 0));
    ap_dims r = ap_dims_of(l, x), got = ap_dims_of(l, y);
    if (!l->status && !ap_dims_equal(&r, &got))
        ap_refuse(l, "tables %s do not fit input %s", ap_dims_str(l, &c), ap_dims_str(l, &s));
    ap_set_out(l, 0, l->status ? AP_NONE : ap_emit_reshape(l, y, &s));
}
