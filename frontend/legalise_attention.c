/* Attention and RotaryEmbedding of ai.onnx. */
#include "frontend/attention.h"

#include <inttypes.h>
#include <math.h>

/* ---- Attention ---- */

/* In opset 24 a mask may be shorter than the keys; what it does not reach is hidden. */
static ap_value full_mask(ap_legal *l, ap_value mask, int64_t keys)
{
    ap_dims s = ap_dims_of(l, mask);
    int64_t none[AP_MAX_RANK] = {0}, more[AP_MAX_RANK] = {0};
    if (l->status)
        return AP_NONE;
    if (s.rank < 1 || s.rank > 4 || s.at[s.rank - 1] > keys) {
        ap_refuse(l, "mask %s does not fit %" PRId64 " keys", ap_dims_str(l, &s), keys);
        return AP_NONE;
    }
    more[s.rank - 1] = s.at[s.rank - 1] == 1 ? 0 : keys - s.at[s.rank - 1];
    ap_dtype t = ap_dtype_of(l, mask);
    return ap_emit_pad(l, mask, none, more, ap_emit_number(l, t, t == AP_BOOL ? 0 : -INFINITY));
}

/* A boolean mask hides; a float mask is added, and hides where it is -inf. */
static void apply_mask(ap_legal *l, ap_attention *a, ap_value mask, int64_t keys)
{
    if (mask == AP_NONE || l->status)
        return;
    mask = full_mask(l, mask, keys);
    ap_dtype t = ap_dtype_of(l, mask);
    a->rows_may_be_empty = true;
    if (l->status || t == AP_BOOL) {
        ap_attention_hide(a, mask);
        return;
    }
    if (!ap_dtype_is_float(t)) {
        ap_refuse(l, "a mask of %s, neither booleans nor numbers to add", ap_dtype_str(t));
        return;
    }
    ap_value hidden = ap_emit2(l, AP_OP_EQ, mask, ap_emit_number(l, t, -INFINITY));
    a->bias = mask;
    ap_attention_hide(a, ap_emit1(l, AP_OP_NOT, hidden));
}

/* Lengths of keys [b] as [b,1,1,1] */
static ap_value per_sequence(ap_legal *l, ap_value lengths, int64_t batch)
{
    ap_dims s = ap_dims_of(l, lengths), d = {4, {batch, 1, 1, 1}};
    if (!l->status && (ap_dims_count(&s) != batch || !ap_dtype_is_int(ap_dtype_of(l, lengths))))
        ap_refuse(l, "%s lengths for a batch of %" PRId64, ap_dims_str(l, &s), batch);
    return l->status ? AP_NONE : ap_emit_cast(l, ap_emit_reshape(l, lengths, &d), AP_I64);
}

/* Keys behind the end of a sequence are hidden; the last query stands at its last key. */
static void apply_lengths(ap_legal *l, ap_attention *a, ap_value end, int64_t rows, int64_t keys, bool causal)
{
    ap_dims row = {4, {1, 1, 1, keys}}, down = {4, {1, 1, rows, 1}};
    ap_value at = ap_emit_iota(l, AP_I64, &row, 3);
    a->rows_may_be_empty = true;
    ap_attention_hide(a, ap_emit2(l, AP_OP_LT, at, end));
    if (!causal)
        return;
    ap_value before = ap_emit2(l, AP_OP_SUB, end, ap_emit_number(l, AP_I64, (double)rows));
    ap_attention_hide(a, ap_emit2(l, AP_OP_LE, at, ap_emit2(l, AP_OP_ADD, before, ap_emit_iota(l, AP_I64, &down, 2))));
}

/* q, k and v in heads; past before k and v. False: refused. */
static bool attention_inputs(ap_legal *l, ap_attention *a)
{
    ap_value past_k = ap_in(l, 4), past_v = ap_in(l, 5);
    int rank = ap_dims_of(l, ap_in(l, 0)).rank;
    a->heads_first = a->kv_heads_first = rank == 4;
    ap_value *x[3] = {&a->q, &a->k, &a->v};
    for (uint32_t i = 0; i < 3; i++) {
        const char *name = i == 0 ? "q_num_heads" : "kv_num_heads";
        *x[i] = ap_in(l, i);
        if (!l->status && (ap_dims_of(l, *x[i]).rank != rank || (rank != 3 && rank != 4)))
            ap_refuse(l, "Q, K and V must all have 3 or 4 dimensions");
        if (rank == 3 && !l->status)
            *x[i] = ap_emit_heads(l, *x[i], ap_attr_int(l, name, 0), i == 0 ? "Q" : i == 1 ? "K" : "V");
    }
    if (!l->status && (past_k == AP_NONE) != (past_v == AP_NONE))
        ap_refuse(l, "past keys and past values go together");
    bool present = past_k != AP_NONE || ap_wants_out(l, 1) || ap_wants_out(l, 2);
    for (int i = 1; i < 3 && present; i++) {
        ap_value past = i == 1 ? past_k : past_v;
        if (!a->kv_heads_first)
            *x[i] = ap_emit_swap_heads(l, *x[i]);
        if (past != AP_NONE)
            *x[i] = ap_emit_concat(l, 2, (ap_value[]){past, *x[i]}, 2);
    }
    a->kv_heads_first = a->kv_heads_first || present;
    return !l->status;
}

/* softmax_precision: an ONNX element type. */
static ap_dtype softmax_type(ap_legal *l)
{
    int64_t code = ap_attr_int(l, "softmax_precision", 0);
    ap_dtype t = AP_DTYPE_NONE;
    if (code && (code < 0 || code > 1000 || !ap_dtype_from_onnx((int)code, &t) || !ap_dtype_is_float(t)))
        ap_refuse(l, "a softmax in element type %" PRId64 " is not supported", code);
    return t;
}

void ap_lower_attention(ap_legal *l)
{
    ap_attention a;
    ap_attention_init(&a);
    if (!attention_inputs(l, &a))
        return;
    ap_dims q = ap_dims_of(l, a.q), k = ap_dims_of(l, a.k);
    int64_t rows = q.at[a.heads_first ? 2 : 1], keys = k.at[a.kv_heads_first ? 2 : 1];
    int64_t past = ap_has_in(l, 4) ? ap_dims_of(l, ap_in(l, 4)).at[2] : 0;
    bool causal = ap_attr_int(l, "is_causal", 0) != 0, lengths = ap_has_in(l, 6);
    double scale = ap_attr_float(l, "scale", 0);
    a.scale = ap_has_attr(l, "scale") ? scale : 1 / sqrt((double)q.at[3]);
    a.softcap = ap_attr_float(l, "softcap", 0);
    a.softmax_type = softmax_type(l);
    if (ap_wants_out(l, 3))
        a.inner = (int)ap_attr_int(l, "qk_matmul_output_mode", 0);
    if (!l->status && (a.inner < -1 || a.inner > AP_ATTENTION_SOFTMAX))
        ap_refuse(l, "qk_matmul_output_mode %d is not known", a.inner);
    apply_mask(l, &a, ap_in(l, 3), keys);
    if (causal && !lengths)
        ap_attention_hide(&a, ap_emit_causal(l, rows, keys, past));
    if (lengths)
        apply_lengths(l, &a, per_sequence(l, ap_in(l, 6), q.at[0]), rows, keys, causal);
    ap_value y = ap_emit_attention(l, &a);
    ap_set_out(l, 0, a.heads_first || l->status ? y : ap_emit_join_heads(l, y));
    ap_set_out(l, 1, a.k);
    ap_set_out(l, 2, a.v);
    if (ap_wants_out(l, 3))
        ap_set_out(l, 3, a.out_inner);
}

/* ---- RotaryEmbedding ---- */

/* Tables by position, or already [b,s,width/2]. */
void ap_lower_rotary(ap_legal *l)
{
    ap_value x = ap_in(l, 0), positions = ap_in(l, 3), tables[2] = {ap_in(l, 1), ap_in(l, 2)};
    ap_dims s = ap_dims_of(l, x);
    bool heads_first = s.rank == 4;
    int64_t width = ap_attr_int(l, "rotary_embedding_dim", 0);
    if (!heads_first)
        x = ap_emit_heads(l, x, ap_attr_int(l, "num_heads", 0), "X");
    ap_dims h = ap_dims_of(l, x);
    for (int i = 0; i < 2 && !l->status; i++) {
        if (positions != AP_NONE)
            tables[i] = ap_emit_gather(l, tables[i], positions, 0);
        ap_dims t = ap_dims_of(l, tables[i]);
        if (!l->status && t.rank != 3)
            ap_refuse(l, "the table of %s has %d dimensions", i ? "sines" : "cosines", t.rank);
        ap_dims beside = {4, {t.at[0], heads_first ? 1 : t.at[1], heads_first ? t.at[1] : 1, t.at[2]}};
        tables[i] = ap_emit_reshape(l, tables[i], &beside);
    }
    if (l->status)
        return;
    ap_value y =
        ap_emit_rotation(l, x, tables[0], tables[1], width ? width : h.at[3], ap_attr_int(l, "interleaved", 0));
    ap_dims r = ap_dims_of(l, y);
    if (!l->status && !ap_dims_equal(&r, &h))
        ap_refuse(l, "the tables do not fit %s", ap_dims_str(l, &s));
    ap_set_out(l, 0, l->status ? AP_NONE : ap_emit_reshape(l, y, &s));
}
