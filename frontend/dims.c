/* Binding works on one table of dimension names. Names get sizes from `--dim NAME=SIZE` and from given
 * shapes of inputs; two sources that disagree are an error that names both. A dimension without name is bound by
 * a given shape, or by `--dim INPUT:AXIS=SIZE`. */
#include "frontend/dims.h"

#include "ir/base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct bound {
    const char *name;
    int64_t size;
    const char *by; /* for messages */
} bound;

typedef struct binder {
    ap_ctx *ctx;
    const ap_onnx_graph *g;
    AP_VEC(bound) bound;
} binder;

typedef Onnx__TensorShapeProto__Dimension dimension;

static const dimension *dim_of(const Onnx__TypeProto__Tensor *t, uint32_t d)
{
    return t->shape->dim[d];
}

static bool is_fixed(const dimension *d)
{
    return d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0;
}

static const char *param_of(const dimension *d)
{
    bool named = d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && d->dim_param && *d->dim_param;
    return named ? d->dim_param : NULL;
}

static const Onnx__TypeProto__Tensor *tensor_type(const Onnx__ValueInfoProto *v)
{
    bool is = v->type && v->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    return is ? v->type->tensor_type : NULL;
}

static const char *format(ap_ctx *ctx, const char *a, const char *b, const char *c)
{
    ap_text t;
    ap_text_init(&t, &ctx->scratch);
    ap_text_addf(&t, "%s%s%s", a, b, c);
    return ap_text_str(&t);
}

static bound *find(binder *b, const char *name)
{
    for (uint32_t i = 0; i < b->bound.len; i++)
        if (strcmp(b->bound.at[i].name, name) == 0)
            return &b->bound.at[i];
    return NULL;
}

static ap_status bind(binder *b, const char *name, int64_t size, const char *by)
{
    bound *old = find(b, name);
    bool options = by[0] == '-' && old && old->by[0] == '-';
    if (old && old->size != size)
        return ap_fail(b->ctx, options ? AP_ERR_USAGE : AP_ERR_MODEL, b->g->src->loc,
                       "dimension \"%s\" is %" PRId64 " by %s and %" PRId64 " by %s", name, old->size, old->by, size,
                       by);
    if (!old)
        ap_vec_push(&b->ctx->scratch, &b->bound, (bound){.name = name, .size = size, .by = by});
    return AP_OK;
}

/* ---- does the model know this name? ---- */

static bool mentions(size_t n, Onnx__ValueInfoProto *const *v, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        const Onnx__TypeProto__Tensor *t = tensor_type(v[i]);
        for (size_t d = 0; t && t->shape && d < t->shape->n_dim; d++) {
            const char *p = param_of(t->shape->dim[d]);
            if (p && strcmp(p, name) == 0)
                return true;
        }
    }
    return false;
}

/* "INPUT:AXIS" of an input whose axis has neither size nor name. */
static bool is_anonymous(const ap_onnx_graph *g, const char *name)
{
    const char *colon = strrchr(name, ':');
    if (!colon || colon[1] < '0' || colon[1] > '9')
        return false;
    char *end;
    unsigned long axis = strtoul(colon + 1, &end, 10);
    for (uint32_t i = 0; i < g->ninputs && !*end; i++) {
        const Onnx__TypeProto__Tensor *t = tensor_type(g->input[i]);
        size_t n = (size_t)(colon - name);
        if (strlen(g->input[i]->name) == n && strncmp(g->input[i]->name, name, n) == 0 && t && t->shape &&
            axis < t->shape->n_dim)
            return !is_fixed(t->shape->dim[axis]) && !param_of(t->shape->dim[axis]);
    }
    return false;
}

static ap_status bind_options(binder *b, const ap_import_options *opt)
{
    const Onnx__GraphProto *p = b->g->proto;
    for (uint32_t i = 0; i < opt->ndims; i++) {
        const char *name = opt->dim[i].name;
        bool known = mentions(p->n_input, p->input, name) || mentions(p->n_output, p->output, name) ||
                     mentions(p->n_value_info, p->value_info, name) || is_anonymous(b->g, name);
        if (!known)
            return ap_fail(b->ctx, AP_ERR_USAGE, b->g->src->loc, "the model has no dimension \"%s\" to bind", name);
        if (opt->dim[i].size < 0)
            return ap_fail(b->ctx, AP_ERR_USAGE, b->g->src->loc, "dimension \"%s\" cannot be %" PRId64, name,
                           opt->dim[i].size);
        AP_TRY(bind(b, name, opt->dim[i].size, "--dim"));
    }
    return AP_OK;
}

/* ---- the batch ---- */

static const dimension *axis_of(const ap_onnx_graph *g, uint32_t input, size_t axis)
{
    const Onnx__TypeProto__Tensor *t = tensor_type(g->input[input]);
    return t && t->shape && axis < t->shape->n_dim ? t->shape->dim[axis] : NULL;
}

static bool is_batch_name(const char *s)
{
    return strncasecmp(s, "batch", 5) == 0 || strcmp(s, "N") == 0;
}

/* The name that axis 0 of all inputs has; else the one name among the inputs' dimensions that says batch; else
 * NULL. */
static const char *obvious_batch(const ap_onnx_graph *g)
{
    const char *common = NULL, *said = NULL;
    bool all = true, one = true;
    for (uint32_t i = 0; i < g->ninputs; i++) {
        const dimension *first = axis_of(g, i, 0);
        const char *p = first ? param_of(first) : NULL;
        all = all && p && (!common || strcmp(common, p) == 0);
        common = common ? common : p;
        for (size_t d = 0; axis_of(g, i, d); d++) {
            const char *name = param_of(axis_of(g, i, d));
            if (!name || !is_batch_name(name))
                continue;
            one = one && (!said || strcmp(said, name) == 0);
            said = said ? said : name;
        }
    }
    return all && common ? common : one ? said : NULL;
}

/* INPUT:AXIS of the graph; false when it has none. */
static bool find_axis(const ap_onnx_graph *g, const char *text, uint32_t *out_input, size_t *out_axis)
{
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    if (!colon || colon[1] < '0' || colon[1] > '9')
        return false;
    *out_axis = strtoul(colon + 1, &end, 10);
    size_t n = (size_t)(colon - text);
    for (uint32_t i = 0; i < g->ninputs && !*end; i++) {
        const char *name = g->input[i]->name;
        *out_input = i;
        if (strlen(name) == n && strncmp(name, text, n) == 0 && axis_of(g, i, *out_axis))
            return true;
    }
    return false;
}

static ap_status fixed_batch(binder *b, const char *input, size_t axis, int64_t is, int64_t batch)
{
    if (is == batch)
        return AP_OK;
    return ap_fail(b->ctx, AP_ERR_USAGE, b->g->src->loc,
                   "--batch %" PRId64 ": axis %zu of input \"%s\" is %" PRId64 " in the model itself", batch, axis,
                   input, is);
}

/* INPUT:AXIS; *out_found says whether the model has it. */
static ap_status bind_batch_axis(binder *b, const char *text, int64_t batch, bool *out_found)
{
    uint32_t input;
    size_t axis;
    *out_found = find_axis(b->g, text, &input, &axis);
    if (!*out_found)
        return AP_OK;
    const dimension *d = axis_of(b->g, input, axis);
    if (is_fixed(d))
        return fixed_batch(b, b->g->input[input]->name, axis, d->dim_value, batch);
    return bind(b, param_of(d) ? param_of(d) : text, batch, "--batch");
}

static ap_status bind_batch(binder *b, const ap_import_options *opt)
{
    const Onnx__GraphProto *p = b->g->proto;
    if (!opt->batch)
        return AP_OK;
    if (opt->batch_dim) {
        bool found;
        if (mentions(p->n_input, p->input, opt->batch_dim))
            return bind(b, opt->batch_dim, opt->batch, "--batch");
        AP_TRY(bind_batch_axis(b, opt->batch_dim, opt->batch, &found));
        if (found)
            return AP_OK;
        return ap_fail(b->ctx, AP_ERR_USAGE, b->g->src->loc,
                       "--batch-dim: no input has a dimension \"%s\" (NAME, or INPUT:AXIS)", opt->batch_dim);
    }
    const char *name = obvious_batch(b->g);
    if (name)
        return bind(b, name, opt->batch, "--batch");
    const dimension *first = b->g->ninputs ? axis_of(b->g, 0, 0) : NULL;
    if (ap_onnx_is_static(b->g) && first)
        return fixed_batch(b, b->g->input[0]->name, 0, first->dim_value, opt->batch);
    return ap_fail(b->ctx, AP_ERR_USAGE, b->g->src->loc,
                   "--batch: which dimension of the inputs is the batch cannot be told; say it by --batch-dim NAME or "
                   "--batch-dim INPUT:AXIS");
}

/* Where dimensions are numbers: axis `axis` of all inputs that have `extent` there; of others nothing is said. */
static void mark_axis(const ap_onnx_graph *g, const ap_onnx_input *inputs, size_t axis, int64_t extent, int8_t *out)
{
    for (uint32_t i = 0; i < g->ninputs; i++)
        if (axis < inputs[i].rank && inputs[i].dim[axis] == extent)
            out[i] = (int8_t)axis;
}

static void mark_name(const ap_onnx_graph *g, const char *name, int8_t *out)
{
    for (uint32_t i = 0; i < g->ninputs; i++)
        for (size_t d = 0; axis_of(g, i, d) && out[i] < 0; d++)
            if (param_of(axis_of(g, i, d)) && strcmp(param_of(axis_of(g, i, d)), name) == 0)
                out[i] = (int8_t)d;
}

const int8_t *ap_onnx_batch_dims(const ap_onnx_graph *g, const ap_import_options *opt, const ap_onnx_input *inputs)
{
    int8_t *out = AP_NEW_ARRAY(&g->src->ctx->arena, int8_t, g->ninputs);
    const char *name = opt->batch_dim ? opt->batch_dim : obvious_batch(g);
    uint32_t input = 0;
    size_t axis = 0;
    memset(out, -1, g->ninputs);
    if (opt->batch_dim && find_axis(g, opt->batch_dim, &input, &axis) &&
        !mentions(g->proto->n_input, g->proto->input, name))
        name = param_of(axis_of(g, input, axis));
    if (name)
        mark_name(g, name, out);
    else if (g->ninputs && axis < inputs[input].rank)
        mark_axis(g, inputs, axis, inputs[input].dim[axis], out);
    bool all = true;
    for (uint32_t i = 0; i < g->ninputs; i++)
        all = all && out[i] >= 0;
    if (!name && !opt->batch_dim && !all) /* which it is cannot be told */
        memset(out, -1, g->ninputs);
    return out;
}

static const ap_input_shape *given_shape(const ap_import_options *opt, const ap_onnx_graph *g, uint32_t i)
{
    for (uint32_t k = 0; k < opt->nshapes; k++) {
        const ap_input_shape *s = &opt->shape[k];
        if (s->name ? strcmp(s->name, g->input[i]->name) == 0 : s->index == i)
            return s;
    }
    return NULL;
}

static ap_status bind_given(binder *b, uint32_t i, const ap_input_shape *given)
{
    const Onnx__TypeProto__Tensor *t = tensor_type(b->g->input[i]);
    const char *name = b->g->input[i]->name;
    bool ok = given->rank <= AP_MAX_RANK;
    for (uint32_t d = 0; ok && d < given->rank; d++)
        ok = given->dim[d] >= 0;
    if (!ok)
        return ap_error(b->ctx, b->g->src->loc, "the given shape of input \"%s\" is not a shape", name);
    if (!t || !t->shape)
        return AP_OK;
    if (t->shape->n_dim != given->rank)
        return ap_error(b->ctx, b->g->src->loc, "input \"%s\" has %zu dimensions, its given shape has %u", name,
                        t->shape->n_dim, given->rank);
    const char *by = format(b->ctx, "the given shape of \"", name, "\"");
    for (uint32_t d = 0; d < given->rank; d++) {
        const dimension *dim = dim_of(t, d);
        if (is_fixed(dim) && dim->dim_value != given->dim[d])
            return ap_error(b->ctx, b->g->src->loc,
                            "axis %u of input \"%s\" is %" PRId64 " in the model and %" PRId64 " in its given shape", d,
                            name, dim->dim_value, given->dim[d]);
        if (param_of(dim))
            AP_TRY(bind(b, param_of(dim), given->dim[d], by));
    }
    return AP_OK;
}

/* ---- the shapes ---- */

static const char *anonymous_name(binder *b, uint32_t i, uint32_t d)
{
    ap_text t;
    ap_text_init(&t, &b->ctx->scratch);
    ap_text_addf(&t, "%s:%u", b->g->input[i]->name, d);
    return ap_text_str(&t);
}

static ap_status check_type(binder *b, uint32_t i, ap_onnx_input *out)
{
    const Onnx__ValueInfoProto *v = b->g->input[i];
    const Onnx__TypeProto__Tensor *t = tensor_type(v);
    if (!t)
        return ap_error(b->ctx, b->g->src->loc, "input \"%s\" is not a tensor", v->name);
    const char *s = ap_onnx_dtype_str(t->elem_type);
    if (!s || t->elem_type == 0)
        return ap_error(b->ctx, b->g->src->loc, "input \"%s\": %d is no element type", v->name, t->elem_type);
    if (!ap_dtype_from_onnx(t->elem_type, &out->dtype))
        return ap_error(b->ctx, b->g->src->loc, "input \"%s\": element type %s is not supported", v->name, s);
    if (t->shape && t->shape->n_dim > AP_MAX_RANK)
        return ap_error(b->ctx, b->g->src->loc, "input \"%s\": rank %zu is above %d", v->name, t->shape->n_dim,
                        AP_MAX_RANK);
    return AP_OK;
}

/* Fills in the shape; names what is unbound in `missing`, each name once. */
static void resolve(binder *b, uint32_t i, const ap_input_shape *given, ap_onnx_input *out, ap_text *missing)
{
    const Onnx__TypeProto__Tensor *t = tensor_type(b->g->input[i]);
    if (given) {
        out->rank = (uint8_t)given->rank;
        memcpy(out->dim, given->dim, given->rank * sizeof *out->dim);
        return;
    }
    if (!t->shape) {
        ap_text_addf(missing, "%sthe shape of input \"%s\"", missing->len ? ", " : "", b->g->input[i]->name);
        return;
    }
    out->rank = (uint8_t)t->shape->n_dim;
    for (uint32_t d = 0; d < out->rank; d++) {
        const dimension *dim = dim_of(t, d);
        const char *name = param_of(dim) ? param_of(dim) : anonymous_name(b, i, d);
        const bound *found = find(b, name);
        if (is_fixed(dim)) {
            out->dim[d] = dim->dim_value;
        } else if (found) {
            out->dim[d] = found->size;
        } else {
            out->dim[d] = 1;
            const char *quoted = format(b->ctx, "\"", name, "\"");
            if (!strstr(ap_text_str(missing), quoted))
                ap_text_addf(missing, "%s%s", missing->len ? ", " : "", quoted);
        }
    }
}

ap_status ap_onnx_bind_dims(const ap_onnx_graph *g, const ap_import_options *opt, ap_onnx_input **out)
{
    ap_ctx *ctx = g->src->ctx;
    binder b = {.ctx = ctx, .g = g};
    *out = AP_NEW_ARRAY(&ctx->scratch, ap_onnx_input, g->ninputs);
    AP_TRY(bind_options(&b, opt));
    AP_TRY(bind_batch(&b, opt));
    for (uint32_t i = 0; i < g->ninputs; i++) {
        const ap_input_shape *given = given_shape(opt, g, i);
        AP_TRY(check_type(&b, i, &(*out)[i]));
        if (given)
            AP_TRY(bind_given(&b, i, given));
    }
    ap_text missing;
    ap_text_init(&missing, &ctx->scratch);
    for (uint32_t i = 0; i < g->ninputs; i++) {
        resolve(&b, i, given_shape(opt, g, i), &(*out)[i], &missing);
        if (!ap_dims_fit((int)(*out)[i].rank, (*out)[i].dim))
            return ap_error(ctx, g->src->loc, "input \"%s\" has more than 2^56 elements", g->input[i]->name);
    }
    if (missing.len)
        return ap_error(ctx, g->src->loc,
                        "dimensions without a size: %s; bind them with --dim NAME=SIZE or --shapes-from DIR",
                        ap_text_str(&missing));
    return AP_OK;
}

bool ap_onnx_is_static(const ap_onnx_graph *g)
{
    for (uint32_t i = 0; i < g->ninputs; i++) {
        const Onnx__TypeProto__Tensor *t = tensor_type(g->input[i]);
        if (!t || !t->shape)
            return false;
        for (uint32_t d = 0; d < t->shape->n_dim; d++)
            if (!is_fixed(dim_of(t, d)))
                return false;
    }
    return true;
}
