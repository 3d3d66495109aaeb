/* The loop over nodes, what a lowering reads of its node, and the table of operators. */
#include "frontend/legalise.h"

#include "ir/base/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

/* ---- the table ---- */

static const ap_onnx_op table[] = {
#define ONNX_OP(domain_, name_, since_, min_, max_, lower_, ...)                                                       \
    {.domain = (domain_),                                                                                              \
     .name = #name_,                                                                                                   \
     .since = (since_),                                                                                                \
     .min_in = (min_),                                                                                                 \
     .max_in = (max_),                                                                                                 \
     .lower = ap_lower_##lower_,                                                                                       \
     __VA_ARGS__},
#include "frontend/onnx_ops.def"
#undef ONNX_OP
};

uint32_t ap_onnx_op_count(void)
{
    return sizeof table / sizeof *table;
}

const ap_onnx_op *ap_onnx_op_at(uint32_t i)
{
    return &table[i];
}

static const char *why(ap_ctx *ctx, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static const char *why(ap_ctx *ctx, const char *fmt, ...)
{
    char buf[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(buf, sizeof buf, fmt, args);
    va_end(args);
    return ap_arena_strdup(&ctx->arena, buf);
}

static const char *domain_str(const char *domain)
{
    return *domain ? domain : "ai.onnx";
}

/* Inputs and outputs that are named, left-out ones at the end not counted. */
static int given(uint32_t n, const uint32_t *v)
{
    while (n && v[n - 1] == AP_NONE)
        n--;
    return (int)n;
}

static const char *bad_arity(ap_ctx *ctx, const ap_onnx_op *op, const ap_onnx_node *n)
{
    int nin = given(n->nin, n->in), nout = given(n->nout, n->out);
    int max_out = op->max_out ? op->max_out : 1;
    for (int i = 0; i < op->min_in && i < nin; i++)
        if (n->in[i] == AP_NONE)
            return why(ctx, "input %d of %s cannot be left out", i, op->name);
    if (nin < op->min_in)
        return why(ctx, "%s takes at least %d input%s, here %s %d", op->name, op->min_in, op->min_in == 1 ? "" : "s",
                   nin == 1 ? "is" : "are", nin);
    if (op->max_in >= 0 && nin > op->max_in)
        return why(ctx, "%s takes at most %d input%s, here are %d", op->name, op->max_in, op->max_in == 1 ? "" : "s",
                   nin);
    if (max_out > 0 && nout > max_out)
        return why(ctx, "%s has at most %d output%s, here are %d", op->name, max_out, max_out == 1 ? "" : "s", nout);
    return NULL;
}

const ap_onnx_op *ap_onnx_op_find(ap_ctx *ctx, const ap_onnx_node *n, const char **out_why)
{
    const ap_onnx_op *other = NULL;
    const char *type = n->proto->op_type;
    for (uint32_t i = 0; i < ap_onnx_op_count(); i++) {
        const ap_onnx_op *op = &table[i];
        if (strcmp(op->name, type) != 0 || strcmp(op->domain, n->domain) != 0)
            continue;
        if (n->opset >= op->since && (!op->until || n->opset <= op->until)) {
            *out_why = bad_arity(ctx, op, n);
            return *out_why ? NULL : op;
        }
        other = op;
    }
    if (other && n->opset < other->since)
        *out_why = why(ctx, "%.64s needs opset %d of %s, the model declares %" PRId64, type, other->since,
                       domain_str(n->domain), n->opset);
    else
        *out_why = why(ctx, "operator %.64s of %.64s (opset %" PRId64 ") is not supported", type, domain_str(n->domain),
                       n->opset);
    return NULL;
}

/* ---- the node ---- */

void ap_refuse(ap_legal *l, const char *fmt, ...)
{
    if (l->status)
        return;
    char *buf = ap_arena_alloc(&l->ctx->scratch, 1024);
    va_list args;
    va_start(args, fmt);
    vsnprintf(buf, 1024, fmt, args);
    va_end(args);
    l->status = ap_error(l->ctx, l->loc, "%s", buf);
}

bool ap_has_in(const ap_legal *l, uint32_t i)
{
    return i < l->node->nin && l->node->in[i] != AP_NONE;
}

bool ap_wants_out(const ap_legal *l, uint32_t i)
{
    return i < l->node->nout && l->node->out[i] != AP_NONE && l->used[l->node->out[i]];
}

void ap_set_name(ap_legal *l, ap_value v, ap_name name)
{
    ap_value_info *info = ap_value_at(l->m, v);
    if (info->name || info->kind != AP_VALUE_RESULT || name >= l->ntaken || l->taken[name])
        return;
    info->name = name;
    l->taken[name] = true;
}

void ap_set_out(ap_legal *l, uint32_t i, ap_value v)
{
    if (l->status || i >= l->node->nout || l->node->out[i] == AP_NONE)
        return;
    uint32_t out = l->node->out[i];
    l->value[out] = v;
    ap_set_name(l, v, l->graph->values.at[out].name);
}

int64_t ap_opset(const ap_legal *l)
{
    return l->node->opset;
}

/* ---- attributes ---- */

static const Onnx__AttributeProto *attribute(ap_legal *l, const char *name, int type, const char *type_str)
{
    const Onnx__AttributeProto *a = ap_onnx_node_attribute(l->node, name);
    if (a && a->has_type && a->type != 0 && (int)a->type != type) {
        ap_refuse(l, "attribute %s is not %s", name, type_str);
        return NULL;
    }
    return a;
}

bool ap_has_attr(const ap_legal *l, const char *name)
{
    return ap_onnx_node_attribute(l->node, name) != NULL;
}

int64_t ap_attr_int(ap_legal *l, const char *name, int64_t otherwise)
{
    const Onnx__AttributeProto *a = attribute(l, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, "an integer");
    return a ? a->i : otherwise;
}

double ap_attr_float(ap_legal *l, const char *name, double otherwise)
{
    const Onnx__AttributeProto *a = attribute(l, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, "a number");
    return a ? (double)a->f : otherwise;
}

const char *ap_attr_str(ap_legal *l, const char *name, const char *otherwise)
{
    const Onnx__AttributeProto *a = attribute(l, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING, "a string");
    if (!a)
        return otherwise;
    return a->s.len ? ap_arena_strndup(&l->ctx->scratch, (const char *)a->s.data, a->s.len) : "";
}

int ap_attr_ints(ap_legal *l, const char *name, int64_t *out, int max)
{
    const Onnx__AttributeProto *a =
        attribute(l, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS, "a list of integers");
    if (!a)
        return -1;
    if (a->n_ints > (size_t)max) {
        ap_refuse(l, "attribute %s has %zu entries, at most %d are possible", name, a->n_ints, max);
        return 0;
    }
    for (size_t i = 0; i < a->n_ints; i++)
        out[i] = a->ints[i];
    return (int)a->n_ints;
}

int ap_attr_floats(ap_legal *l, const char *name, float *out, int max)
{
    const Onnx__AttributeProto *a =
        attribute(l, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS, "a list of floats");
    if (!a)
        return -1;
    if (a->n_floats > (size_t)max) {
        ap_refuse(l, "attribute %s has %zu entries, at most %d are possible", name, a->n_floats, max);
        return 0;
    }
    for (size_t i = 0; i < a->n_floats; i++)
        out[i] = a->floats[i];
    return (int)a->n_floats;
}

/* An attribute that nobody reads could change the meaning of the node. */
static void check_attributes(ap_legal *l)
{
    const Onnx__NodeProto *p = l->node->proto;
    for (size_t i = 0; i < p->n_attribute; i++) {
        const char *name = p->attribute[i]->name ? p->attribute[i]->name : "";
        const char *list = l->node->op->attrs ? l->node->op->attrs : "";
        size_t n = strlen(name);
        bool found = false;
        for (const char *at = list; n && !found && (at = strstr(at, name)) != NULL; at += n)
            found = (at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0);
        if (!found)
            ap_refuse(l, "attribute \"%.100s\" is not understood", name);
    }
}

/* ---- all nodes ---- */

static void find_used(ap_legal *l)
{
    const ap_onnx_graph *g = l->graph;
    l->used = AP_NEW_ARRAY(&l->ctx->scratch, bool, g->values.len);
    for (uint32_t k = 0; k < g->norder; k++) {
        const ap_onnx_node *n = &g->nodes.at[g->order[k]];
        for (uint32_t i = 0; i < n->nin; i++)
            if (n->in[i] != AP_NONE)
                l->used[n->in[i]] = true;
    }
    for (size_t i = 0; i < g->proto->n_output; i++)
        l->used[g->output_value[i]] = true;
}

ap_status ap_legalise(ap_legal *l)
{
    const ap_onnx_graph *g = l->graph;
    find_used(l);
    for (uint32_t k = 0; k < g->norder; k++) {
        l->node = &g->nodes.at[g->order[k]];
        l->loc = l->node->loc;
        check_attributes(l);
        if (!l->status)
            l->node->op->lower(l);
        for (uint32_t i = 0; i < l->node->nout && !l->status; i++)
            if (ap_wants_out(l, i) && l->value[l->node->out[i]] == AP_NONE)
                ap_refuse(l, "output %u is used, and not supported", i);
        if (l->status)
            return l->status;
    }
    l->node = NULL;
    return AP_OK;
}
