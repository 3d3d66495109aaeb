/* Common subexpressions and identities. Exporters repeat shape arithmetic, masks and constants for every
 * layer; sharing them keeps the planner's problem small. */
#include "ir/base/text.h"
#include "ir/op.h"
#include "passes/pass.h"

#include <string.h>

/* A key that two nodes have in common only when they compute the same: operator, operands, attributes,
 * result types. Composites are left alone (key of length 0). */
static void key_of(const ap_module *m, const ap_node_info *n, ap_text *key)
{
    char spec[AP_SPEC_STR_MAX];
    ap_text_addf(key, "%d", (int)n->op);
    for (uint32_t i = 0; i < n->nin; i++)
        ap_text_addf(key, " %u", n->in[i]);
    ap_text_addf(key, ":%u;", ap_value_type(m, n->out[0]));
    switch (n->op) {
    case AP_OP_CONTRACT:
    case AP_OP_VIEW:
    case AP_OP_GATHER:
        ap_spec_str(n->u.spec, spec);
        ap_text_add(key, spec);
        break;
    case AP_OP_REDUCE:
        ap_spec_str(n->u.reduce.spec, spec);
        ap_text_addf(key, "%s %d", spec, (int)n->u.reduce.kind);
        break;
    case AP_OP_SCATTER:
        ap_spec_str(n->u.scatter.spec, spec);
        ap_text_addf(key, "%s %d", spec, (int)n->u.scatter.kind);
        break;
    case AP_OP_INDEX:
        ap_text_addf(key, "%lld", (long long)n->u.index.limit);
        break;
    case AP_OP_CUMULATE:
        ap_text_addf(key, "%d %d %d %d", n->u.cumulate.dim, (int)n->u.cumulate.kind, n->u.cumulate.exclusive,
                     n->u.cumulate.reverse);
        break;
    case AP_OP_SLICE:
        for (int f = 0; f < ap_value_shape(m, n->in[0])->nfactors; f++) {
            ap_range r = n->u.slice->range[f];
            ap_text_addf(key, "%d,%lld,%lld,%lld;", r.whole, (long long)r.start, (long long)r.count, (long long)r.step);
        }
        break;
    case AP_OP_PAD:
        for (int d = 0; d < ap_value_shape(m, n->in[0])->rank; d++)
            ap_text_addf(key, "%lld,%lld;", (long long)n->u.pad->lo[d], (long long)n->u.pad->hi[d]);
        break;
    case AP_OP_CONV:
        for (int d = 0; d < ap_value_shape(m, n->in[0])->rank - 3; d++) {
            ap_conv_dim w = n->u.conv->dim[d];
            ap_text_addf(key, "%lld,%lld,%lld,%lld,%lld,%d;", (long long)w.lo, (long long)w.hi, (long long)w.stride,
                         (long long)w.dilate, (long long)w.hole, w.flip);
        }
        break;
    case AP_OP_POOL:
        ap_text_addf(key, "%d,%d;", (int)n->u.pool->kind, n->u.pool->ceil);
        for (int d = 0; d < ap_value_shape(m, n->in[0])->rank; d++)
            ap_window_print(&n->u.pool->window[d], key);
        break;
    case AP_OP_CONCAT:
        ap_text_addf(key, "%d", n->u.concat.dim);
        break;
    case AP_OP_IOTA:
        ap_text_addf(key, "%d", n->u.iota.dim);
        break;
    case AP_OP_CONSTANT: {
        const ap_data *d = n->u.constant;
        ap_text_addf(key, "%d %u %llu %llu ", (int)d->kind, d->file, (unsigned long long)d->offset,
                     (unsigned long long)d->size);
        for (int i = 0; d->part && i < d->part->rank; i++)
            ap_text_addf(key, "%lld+%lld,", (long long)d->part->dim[i], (long long)d->part->start[i]);
        if (d->kind == AP_DATA_INLINE || d->kind == AP_DATA_SPLAT)
            ap_text_add_n(key, d->bytes, d->size);
        break;
    }
    default:
        break;
    }
}

static bool shareable(const ap_node_info *n)
{
    const ap_op_info *info = ap_op_get(n->op);
    return n->nout == 1 && !info->has_body && !info->terminator && !info->planned && !info->collective && !info->step;
}

/* The value that a node merely repeats, or AP_NONE. */
static ap_value identity_of(const ap_module *m, const ap_node_info *n)
{
    if (n->nin != 1 || n->nout != 1 || ap_value_type(m, n->in[0]) != ap_value_type(m, n->out[0]))
        return AP_NONE;
    if (n->op == AP_OP_CAST || n->op == AP_OP_RESHAPE)
        return n->in[0];
    if (n->op != AP_OP_VIEW)
        return AP_NONE;
    const ap_spec_side *a = &n->u.spec->operand[0], *b = &n->u.spec->result;
    bool same = a->nletters == b->nletters && memcmp(a->letter, b->letter, a->nletters) == 0;
    return same ? n->in[0] : AP_NONE;
}

/* An output keeps its ONNX name: a value that stands in for a named one inherits the name if it has none. */
static void replace_value(ap_module *m, ap_value from, ap_value to, ap_value *stands_for)
{
    stands_for[from] = to;
    if (!ap_value_at(m, to)->name)
        ap_value_at(m, to)->name = ap_value_at(m, from)->name;
}

ap_status ap_pass_fold(ap_ctx *ctx, ap_module *m)
{
    ap_value *stands_for = AP_NEW_ARRAY(&ctx->scratch, ap_value, m->values.len);
    for (ap_value v = 0; v < m->values.len; v++)
        stands_for[v] = v;
    for (ap_func f = 0; f < m->funcs.len; f++) {
        const ap_block_info *block = ap_block_at(m, m->funcs.at[f].body);
        /* from key (as a name) to the first value that has it; names are dense small integers */
        AP_VEC(ap_value) first = {0};
        for (uint32_t i = 0; i < block->nodes.len; i++) {
            ap_node_info *n = ap_node_at(m, block->nodes.at[i]);
            for (uint32_t k = 0; k < n->nin; k++)
                n->in[k] = stands_for[n->in[k]];
            if (n->body != AP_NONE) {
                const ap_block_info *body = ap_block_at(m, n->body);
                for (uint32_t b = 0; b < body->nodes.len; b++) {
                    ap_node_info *inner = ap_node_at(m, body->nodes.at[b]);
                    for (uint32_t k = 0; k < inner->nin; k++)
                        inner->in[k] = stands_for[inner->in[k]];
                }
            }
            ap_value same = identity_of(m, n);
            if (same != AP_NONE) {
                replace_value(m, n->out[0], same, stands_for);
                continue;
            }
            if (!shareable(n))
                continue;
            ap_text key;
            ap_text_init(&key, &ctx->scratch);
            key_of(m, n, &key);
            ap_name name = ap_name_make_n(ctx, ap_text_str(&key), key.len);
            while (first.len <= name)
                ap_vec_push(&ctx->scratch, &first, AP_NONE);
            if (first.at[name] == AP_NONE)
                first.at[name] = n->out[0];
            else
                replace_value(m, n->out[0], first.at[name], stands_for);
        }
    }
    ap_module_remove_dead(m);
    return AP_OK;
}
