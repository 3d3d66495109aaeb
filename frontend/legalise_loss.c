/* Losses of a classification, as they are computed at inference: the logarithm at the label's class, weighted by class,
 * 0 where the label is the one to ignore, and the mean over what counts. */
#include "frontend/legalise.h"

#include <string.h>

typedef struct labels {
    ap_value at;    /* classes, those to ignore replaced by 0 */
    ap_value count; /* which ones count, or AP_NONE: all */
    ap_dims dims;
} labels;

static bool read_labels(ap_legal *l, ap_value x, labels *out)
{
    ap_value target = ap_in(l, 1);
    ap_dims s = ap_dims_of(l, x), k = ap_dims_of(l, target), want = {0};
    for (int i = 0; i < s.rank; i++)
        if (i != 1)
            want.at[want.rank++] = s.at[i];
    if (!l->status && (s.rank < 2 || !ap_dims_equal(&k, &want) || !ap_dtype_is_int(ap_dtype_of(l, target))))
        ap_refuse(l, "labels %s do not go with scores %s", ap_dims_str(l, &k), ap_dims_str(l, &s));
    *out = (labels){.count = AP_NONE, .dims = k};
    out->at = l->status ? AP_NONE : ap_emit_cast(l, target, AP_I64);
    if (!ap_has_attr(l, "ignore_index"))
        return !l->status;
    ap_value ignored = ap_emit_splat(l, AP_I64, &(ap_dims){0}, (ap_scalar){.i = ap_attr_int(l, "ignore_index", 0)});
    out->count = ap_emit1(l, AP_OP_NOT, ap_emit2(l, AP_OP_EQ, out->at, ignored));
    out->at = ap_emit_select(l, out->count, out->at, ap_emit_number(l, AP_I64, 0));
    return !l->status;
}

/* x[n, label[n, d], d] */
static ap_value at_labels(ap_legal *l, ap_value x, const labels *t)
{
    ap_dims s = ap_dims_of(l, x);
    char letters[] = "acdefgh";
    if (l->status)
        return AP_NONE;
    if (s.at[1] == 1)
        return ap_emit_reshape(l, x, &t->dims);
    letters[t->dims.rank] = 0;
    return ap_emit_gather_letters(l, x, t->at, "avcdefgh", letters, letters);
}

static ap_value weights_of(ap_legal *l, const labels *t, ap_dtype type)
{
    ap_value w = ap_has_in(l, 2) ? ap_emit_gather(l, ap_in(l, 2), t->at, 0) : AP_NONE;
    if (t->count == AP_NONE)
        return w;
    if (w == AP_NONE)
        return ap_emit_cast(l, t->count, type);
    return ap_emit_select(l, t->count, w, ap_emit_number(l, type, 0));
}

static ap_value loss_of(ap_legal *l, ap_value logarithms)
{
    const char *reduction = ap_attr_str(l, "reduction", "mean");
    ap_dtype type = ap_dtype_of(l, logarithms);
    labels t;
    if (strcmp(reduction, "mean") != 0 && strcmp(reduction, "sum") != 0 && strcmp(reduction, "none") != 0)
        ap_refuse(l, "reduction \"%.40s\" is not known", reduction);
    if (!read_labels(l, logarithms, &t))
        return AP_NONE;
    ap_value loss = ap_emit1(l, AP_OP_NEG, at_labels(l, logarithms, &t)), w = weights_of(l, &t, type);
    if (t.count != AP_NONE)
        loss = ap_emit_select(l, t.count, loss, ap_emit_number(l, type, 0));
    if (w != AP_NONE)
        loss = ap_emit2(l, AP_OP_MUL, loss, w);
    uint32_t all = (1u << t.dims.rank) - 1;
    if (l->status || strcmp(reduction, "none") == 0)
        return loss;
    if (w == AP_NONE && strcmp(reduction, "mean") == 0)
        return ap_emit_mean(l, loss, all, false);
    ap_value sum = ap_emit_reduce(l, AP_REDUCE_SUM, loss, all, false);
    if (strcmp(reduction, "sum") == 0)
        return sum;
    return ap_emit2(l, AP_OP_DIV, sum, ap_emit_reduce(l, AP_REDUCE_SUM, w, all, false));
}

void ap_lower_nll_loss(ap_legal *l)
{
    ap_set_out(l, 0, loss_of(l, ap_in(l, 0)));
}

void ap_lower_softmax_loss(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    if (!l->status && ap_dims_of(l, x).rank < 2)
        ap_refuse(l, "scores without a dimension of classes");
    ap_value logarithms = l->status ? AP_NONE : ap_emit_softmax(l, x, 2, true);
    ap_set_out(l, 0, loss_of(l, logarithms));
    if (ap_wants_out(l, 1))
        ap_set_out(l, 1, logarithms);
}
