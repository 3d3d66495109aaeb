/* The emitters: core nodes with folding. See frontend/legalise.h. */
#include "frontend/legalise.h"

#include "ir/base/text.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* ---- types ---- */

ap_dims ap_dims_of(const ap_legal *l, ap_value v)
{
    ap_dims d = {0};
    if (v != AP_NONE)
        d.rank = ap_shape_dims(ap_value_shape(l->m, v), d.at);
    return d;
}

ap_dtype ap_dtype_of(const ap_legal *l, ap_value v)
{
    return v == AP_NONE ? AP_DTYPE_NONE : ap_type_dtype(l->ctx, ap_value_type(l->m, v));
}

int64_t ap_dims_count(const ap_dims *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->rank; i++)
        if (d->at[i] == 0)
            return 0;
    for (int i = 0; i < d->rank; i++)
        n = ap_sat_mul(n, d->at[i]);
    return n;
}

bool ap_dims_equal(const ap_dims *a, const ap_dims *b)
{
    return a->rank == b->rank && memcmp(a->at, b->at, (size_t)a->rank * sizeof *a->at) == 0;
}

const char *ap_dims_str(ap_legal *l, const ap_dims *d)
{
    ap_text t;
    ap_text_init(&t, &l->ctx->scratch);
    ap_text_add(&t, "[");
    for (int i = 0; i < d->rank; i++)
        ap_text_addf(&t, "%s%" PRId64, i ? "," : "", d->at[i]);
    ap_text_add(&t, "]");
    return ap_text_str(&t);
}

ap_dims ap_dims_broadcast(ap_legal *l, const ap_dims *a, const ap_dims *b)
{
    ap_dims r = {.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int i = 0; i < r.rank; i++) {
        int ia = i - (r.rank - a->rank), ib = i - (r.rank - b->rank);
        int64_t x = ia < 0 ? 1 : a->at[ia], y = ib < 0 ? 1 : b->at[ib];
        if (x != y && x != 1 && y != 1) {
            ap_refuse(l, "shapes %s and %s do not broadcast", ap_dims_str(l, a), ap_dims_str(l, b));
            return (ap_dims){0};
        }
        r.at[i] = x == 1 ? y : x;
    }
    return r;
}

int ap_axis(ap_legal *l, int64_t axis, int rank)
{
    if (axis < -rank || axis >= rank) {
        ap_refuse(l, "axis %" PRId64 " of a value with %d dimensions", axis, rank);
        return 0;
    }
    return (int)(axis < 0 ? axis + rank : axis);
}

uint32_t ap_axes_mask_of(ap_legal *l, const int64_t *axes, int n, int rank)
{
    uint32_t mask = 0;
    for (int i = 0; i < n && !l->status; i++) {
        uint32_t bit = 1u << ap_axis(l, axes[i], rank);
        if (!l->status && (mask & bit))
            ap_refuse(l, "axis %" PRId64 " is listed twice", axes[i]);
        mask |= bit;
    }
    return mask;
}

static ap_type type_of(const ap_legal *l, ap_dtype t, const ap_dims *d)
{
    return ap_type_make(l->ctx, t, ap_shape_of_dims(l->ctx, d->rank, d->at), 0);
}

/* Sizes that later arithmetic would overflow on are refused where they arise. */
static bool size_ok(ap_legal *l, ap_type type)
{
    if (ap_shape_fits(ap_type_shape(l->ctx, type)))
        return true;
    ap_refuse(l, "a value here has more than 2^56 elements");
    return false;
}

/* ---- known contents ---- */

static void set_known(ap_legal *l, ap_value v, const ap_tensor *t)
{
    while (l->known.len <= v)
        ap_vec_push(&l->ctx->scratch, &l->known, NULL);
    l->known.at[v] = t;
}

static const ap_tensor *get_known(const ap_legal *l, ap_value v)
{
    return v != AP_NONE && v < l->known.len ? l->known.at[v] : NULL;
}

static const ap_tensor *read_data(ap_legal *l, ap_type type, const ap_data *d)
{
    const void *bytes;
    const ap_shape_info *shape = ap_type_shape(l->ctx, type);
    ap_tensor *t = AP_NEW(&l->ctx->scratch, ap_tensor);
    l->status = ap_data_bytes(l->m, d, l->loc, &bytes);
    if (l->status)
        return NULL;
    if (!ap_tensor_make(&l->ctx->scratch, d->dtype, shape, t)) {
        ap_refuse(l, "a tensor that must be known at compile time is too large");
        return NULL;
    }
    if (d->kind == AP_DATA_SPLAT) {
        ap_scalar x = ap_scalar_load(d->dtype, bytes);
        for (int64_t i = 0; i < t->count; i++)
            t->at[i] = x;
    } else {
        ap_tensor_from_bytes(t, bytes);
    }
    return t;
}

/* `plan` works without the files beside the model. */
static bool is_absent(ap_legal *l, const ap_data *d)
{
    const ap_onnx_source *src = l->graph->src;
    if (!src->weights_absent || d->kind != AP_DATA_FILE || d->file == src->base)
        return false;
    ap_name path = ap_name_format(l->ctx, "%s/%s", ap_name_str(l->ctx, src->folder), ap_name_str(l->ctx, d->file));
    return access(ap_name_str(l->ctx, path), R_OK) != 0;
}

const ap_tensor *ap_known(ap_legal *l, ap_value v)
{
    const ap_tensor *t = get_known(l, v);
    if (t || l->status || v == AP_NONE)
        return t;
    const ap_value_info *info = ap_value_at(l->m, v);
    if (info->kind == AP_VALUE_SYMBOL) {
        if (is_absent(l, &l->m->symbols.at[info->def].data))
            return NULL;
        t = read_data(l, info->type, &l->m->symbols.at[info->def].data);
    } else if (info->kind == AP_VALUE_RESULT && ap_node_at(l->m, info->def)->op == AP_OP_CONSTANT &&
               ap_shape_count(ap_value_shape(l->m, v)) <= AP_FOLD_MAX * 16) {
        t = read_data(l, info->type, ap_node_at(l->m, info->def)->u.constant);
    }
    if (t)
        set_known(l, v, t);
    return t;
}

int ap_known_ints(ap_legal *l, ap_value v, const char *what, int64_t *out, int max)
{
    ap_dims d = ap_dims_of(l, v);
    if (l->status || v == AP_NONE)
        return 0;
    if (d.rank > 1 || ap_dtype_is_float(ap_dtype_of(l, v)))
        return ap_refuse(l, "%s must be a list of integers", what), 0;
    if (ap_dims_count(&d) > max)
        return ap_refuse(l, "%s has %" PRId64 " entries, at most %d are possible", what, ap_dims_count(&d), max), 0;
    const ap_tensor *t = ap_known(l, v);
    if (!t) {
        if (!l->status)
            ap_refuse(l, "%s depends on data that is known only at run time", what);
        return 0;
    }
    for (int64_t i = 0; i < t->count; i++)
        out[i] = t->at[i].i;
    return (int)t->count;
}

bool ap_known_scalar(ap_legal *l, ap_value v, double *out)
{
    if (v == AP_NONE)
        return false;
    const ap_tensor *t = get_known(l, v);
    ap_dims d = ap_dims_of(l, v);
    if (!t && ap_dims_count(&d) == 1)
        t = ap_known(l, v);
    if (!t || t->count == 0)
        return false;
    bool is_float = ap_dtype_is_float(t->dtype);
    for (int64_t i = 1; i < t->count; i++)
        if (is_float ? t->at[i].f != t->at[0].f : t->at[i].i != t->at[0].i)
            return false;
    *out = is_float ? t->at[0].f : (double)t->at[0].i;
    return true;
}

/* ---- constants ---- */

static bool all_equal(const ap_tensor *t)
{
    for (int64_t i = 1; i < t->count; i++)
        if (t->at[i].i != t->at[0].i) /* the bits, of floats too: -0 is not 0 */
            return false;
    return true;
}

/* A constant node as it is, without folding. */
static ap_value emit_constant(ap_legal *l, ap_type type, const ap_data *data)
{
    ap_node_info a = {.u.constant = ap_arena_memdup(l->m->arena, data, sizeof *data)};
    ap_value v = AP_NONE;
    if (!l->status && size_ok(l, type))
        l->status = ap_module_emit(l->m, l->block, AP_OP_CONSTANT, 0, NULL, l->loc, &a, type, &v);
    return l->status ? AP_NONE : v;
}

static ap_value emit_splat(ap_legal *l, ap_type type, ap_scalar x)
{
    ap_dtype t = ap_type_dtype(l->ctx, type);
    void *bytes = ap_arena_alloc(l->m->arena, 8);
    ap_scalar_store(t, bytes, x);
    ap_data data = {.kind = AP_DATA_SPLAT, .dtype = t, .bytes = bytes, .size = (uint64_t)ap_dtype_bytes(t)};
    ap_value v = emit_constant(l, type, &data);
    const ap_shape_info *shape = ap_type_shape(l->ctx, type);
    if (l->status || ap_shape_count(shape) > AP_FOLD_MAX)
        return v;
    set_known(l, v, read_data(l, type, &data));
    return v;
}

ap_value ap_emit_splat(ap_legal *l, ap_dtype t, const ap_dims *d, ap_scalar x)
{
    return l->status ? AP_NONE : emit_splat(l, type_of(l, t, d), x);
}

ap_value ap_emit_number(ap_legal *l, ap_dtype t, double x)
{
    ap_scalar s;
    if (ap_dtype_is_float(t))
        s.f = x;
    else
        s.i = (int64_t)x;
    return ap_emit_splat(l, t, &(ap_dims){0}, s);
}

ap_value ap_emit_tensor(ap_legal *l, const ap_tensor *t)
{
    if (l->status)
        return AP_NONE;
    ap_type type = ap_type_make(l->ctx, t->dtype, ap_shape_intern(l->ctx, &t->shape), 0);
    if (t->count == 0 || all_equal(t))
        return emit_splat(l, type, t->count ? t->at[0] : (ap_scalar){0});
    size_t bytes = (size_t)t->count * (size_t)ap_dtype_bytes(t->dtype);
    void *p = ap_arena_alloc(l->m->arena, bytes);
    ap_tensor_to_bytes(t, p);
    ap_data data = {.kind = AP_DATA_INLINE, .dtype = t->dtype, .bytes = p, .size = bytes};
    ap_value v = emit_constant(l, type, &data);
    if (!l->status)
        set_known(l, v, t);
    return v;
}

ap_value ap_emit_data(ap_legal *l, const ap_onnx_tensor *t)
{
    if (l->status)
        return AP_NONE;
    ap_dims d = {.rank = t->rank};
    memcpy(d.at, t->dim, sizeof d.at);
    const ap_tensor *read = read_data(l, type_of(l, t->dtype, &d), &t->data);
    return read ? ap_emit_tensor(l, read) : AP_NONE;
}

ap_value ap_emit_ints(ap_legal *l, int n, const int64_t *x)
{
    ap_tensor *t = AP_NEW(&l->ctx->scratch, ap_tensor);
    ap_dims d = {.rank = 1, .at = {n}};
    const ap_shape_info *shape = ap_shape_get(l->ctx, ap_shape_of_dims(l->ctx, d.rank, d.at));
    ap_tensor_make(&l->ctx->scratch, AP_I64, shape, t);
    for (int i = 0; i < n; i++)
        t->at[i].i = x[i];
    return ap_emit_tensor(l, t);
}

ap_value ap_emit_iota(ap_legal *l, ap_dtype t, const ap_dims *d, int dim)
{
    if (l->status)
        return AP_NONE;
    if (ap_dims_count(d) == 0 || d->at[dim] == 1)
        return ap_emit_splat(l, t, d, (ap_scalar){0});
    ap_type type = type_of(l, t, d);
    ap_node_info a = {.u.iota.dim = (uint8_t)dim};
    ap_value v = AP_NONE;
    if (size_ok(l, type))
        l->status = ap_module_emit(l->m, l->block, AP_OP_IOTA, 0, NULL, l->loc, &a, type, &v);
    if (l->status || ap_dims_count(d) > AP_FOLD_MAX)
        return l->status ? AP_NONE : v;
    ap_tensor *known = AP_NEW(&l->ctx->scratch, ap_tensor);
    l->status = ap_eval_node(l->m, ap_value_at(l->m, v)->def, &l->ctx->scratch, NULL, known);
    if (!l->status)
        set_known(l, v, known);
    return l->status ? AP_NONE : v;
}

/* ---- nodes ---- */

/* Contents that folding may use: constants, and small integer tables (position ids, masks), which nobody trains. */
static const ap_tensor *foldable(ap_legal *l, ap_value v)
{
    const ap_tensor *t = get_known(l, v);
    const ap_value_info *info = ap_value_at(l->m, v);
    bool symbol = info->kind == AP_VALUE_SYMBOL;
    bool is_float = ap_dtype_is_float(ap_dtype_of(l, v));
    if (symbol && (is_float || ap_shape_count(ap_value_shape(l->m, v)) > AP_FOLD_MAX))
        return NULL;
    return t || !symbol ? t : ap_known(l, v);
}

/* Evaluates the node if all it needs is known. It is built in a module of its own, which holds nothing else, so
 * that a fold costs the same in a large graph as in a small one. False: the node has to run. */
static bool fold(ap_legal *l, ap_op op, uint32_t nin, const ap_value *in, const ap_node_info *attributes, ap_type type,
                 ap_value *out)
{
    const ap_tensor **known = AP_NEW_ARRAY(&l->ctx->scratch, const ap_tensor *, nin);
    ap_value *operand = AP_NEW_ARRAY(&l->ctx->scratch, ap_value, nin);
    ap_module *m = l->folder;
    m->values.len = m->nodes.len = 0;
    for (uint32_t i = 0; i < nin; i++) {
        known[i] = foldable(l, in[i]);
        if (!known[i])
            return l->status != AP_OK;
        operand[i] = i;
        ap_vec_push(m->arena, &m->values,
                    (ap_value_info){.type = ap_value_type(l->m, in[i]), .kind = AP_VALUE_ARGUMENT, .index = i});
    }
    ap_node n = ap_module_add_node(m, op, nin, operand, 1, l->loc);
    if (attributes)
        ap_node_at(m, n)->u = attributes->u;
    ap_value v = ap_node_at(m, n)->out[0];
    ap_value_at(m, v)->type = type;
    l->status = ap_node_infer(m, n);
    if (l->status)
        return true;
    type = ap_value_type(m, v);
    if (ap_shape_count(ap_type_shape(l->ctx, type)) > AP_FOLD_MAX)
        return false;
    ap_tensor *result = AP_NEW(&l->ctx->scratch, ap_tensor);
    l->status = ap_eval_node(m, n, &l->ctx->scratch, known, result);
    *out = l->status ? AP_NONE : ap_emit_tensor(l, result);
    return true;
}

ap_value ap_emit(ap_legal *l, ap_op op, uint32_t nin, const ap_value *in, const ap_node_info *attributes, ap_type type)
{
    for (uint32_t i = 0; i < nin && !l->status; i++)
        if (in[i] == AP_NONE)
            l->status = ap_fail(l->ctx, AP_ERR_BUG, l->loc, "an operand of %s is missing", ap_op_get(op)->name);
    ap_value folded = AP_NONE;
    if (l->status || fold(l, op, nin, in, attributes, type, &folded))
        return folded;
    ap_node n = ap_module_add_node(l->m, op, nin, in, 1, l->loc);
    if (attributes)
        ap_node_at(l->m, n)->u = attributes->u;
    ap_value v = ap_node_at(l->m, n)->out[0];
    ap_value_at(l->m, v)->type = type;
    l->status = ap_node_infer(l->m, n);
    if (l->status)
        return AP_NONE;
    type = ap_value_type(l->m, v);
    int64_t count = ap_shape_count(ap_type_shape(l->ctx, type));
    if (count == 0)
        return emit_splat(l, type, (ap_scalar){0});
    if (!size_ok(l, type))
        return AP_NONE;
    ap_block_append(l->m, l->block, n);
    return v;
}

ap_value ap_emit1(ap_legal *l, ap_op op, ap_value x)
{
    return ap_emit(l, op, 1, &x, NULL, 0);
}

ap_value ap_emit2(ap_legal *l, ap_op op, ap_value x, ap_value y)
{
    return ap_emit(l, op, 2, (ap_value[]){x, y}, NULL, 0);
}

ap_value ap_emit_select(ap_legal *l, ap_value c, ap_value x, ap_value y)
{
    return ap_emit(l, AP_OP_SELECT, 3, (ap_value[]){c, x, y}, NULL, 0);
}

ap_value ap_emit_cast(ap_legal *l, ap_value x, ap_dtype t)
{
    if (l->status || ap_dtype_of(l, x) == t)
        return l->status ? AP_NONE : x;
    ap_dims d = ap_dims_of(l, x);
    return ap_emit(l, AP_OP_CAST, 1, &x, NULL, type_of(l, t, &d));
}

/* ---- views ---- */

static const char operand_letters[] = "abcdefgh", new_letters[] = "ijklmnop";

ap_value ap_emit_view(ap_legal *l, ap_value x, const ap_dims *d, const int *from)
{
    ap_dims s = ap_dims_of(l, x);
    if (l->status)
        return AP_NONE;
    bool same = ap_dims_equal(&s, d);
    ap_spec *spec = AP_NEW(l->m->arena, ap_spec);
    spec->noperands = 1;
    for (int i = 0; i < s.rank; i++) {
        ap_spec_side_dim(&spec->operand[0]);
        if (s.at[i] != 1)
            ap_spec_side_letter(&spec->operand[0], operand_letters[i]);
    }
    for (int i = 0; i < d->rank; i++) {
        ap_spec_side_dim(&spec->result);
        bool moved = from[i] >= 0 && s.at[from[i]] != 1;
        same = same && (from[i] == i || d->at[i] == 1);
        if (moved)
            ap_spec_side_letter(&spec->result, operand_letters[from[i]]);
        else if (d->at[i] != 1)
            ap_spec_side_letter(&spec->result, new_letters[i]);
    }
    if (same)
        return x;
    ap_node_info a = {.u.spec = spec};
    return ap_emit(l, AP_OP_VIEW, 1, &x, &a, type_of(l, ap_dtype_of(l, x), d));
}

ap_value ap_emit_transpose(ap_legal *l, ap_value x, const int *perm)
{
    ap_dims s = ap_dims_of(l, x), d = {.rank = s.rank};
    for (int i = 0; i < s.rank; i++)
        d.at[i] = s.at[perm[i]];
    return ap_emit_view(l, x, &d, perm);
}

ap_value ap_emit_expand(ap_legal *l, ap_value x, const ap_dims *d)
{
    ap_dims s = ap_dims_of(l, x), r = ap_dims_broadcast(l, &s, d);
    int from[AP_MAX_RANK];
    for (int i = 0; i < r.rank; i++)
        from[i] = i - (r.rank - s.rank) < 0 ? -1 : i - (r.rank - s.rank);
    if (ap_dims_count(&r) == 0)
        return ap_emit_splat(l, ap_dtype_of(l, x), &r, (ap_scalar){0});
    return ap_emit_view(l, x, &r, from);
}

ap_value ap_emit_reshape(ap_legal *l, ap_value x, const ap_dims *d)
{
    ap_dims s = ap_dims_of(l, x);
    if (l->status || ap_dims_equal(&s, d))
        return l->status ? AP_NONE : x;
    if (ap_dims_count(&s) != ap_dims_count(d)) {
        ap_refuse(l, "%" PRId64 " elements %s cannot become %" PRId64 " elements %s", ap_dims_count(&s),
                  ap_dims_str(l, &s), ap_dims_count(d), ap_dims_str(l, d));
        return AP_NONE;
    }
    int from[AP_MAX_RANK], at = 0;
    bool is_view = true;
    for (int i = 0; i < d->rank; i++) {
        from[i] = -1;
        if (d->at[i] == 1)
            continue;
        while (at < s.rank && s.at[at] == 1)
            at++;
        if (at < s.rank && s.at[at] == d->at[i])
            from[i] = at++;
        else
            is_view = false;
    }
    if (is_view && ap_dims_count(d))
        return ap_emit_view(l, x, d, from);
    return ap_emit(l, AP_OP_RESHAPE, 1, &x, NULL, type_of(l, ap_dtype_of(l, x), d));
}
