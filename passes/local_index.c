/* What is done by index or position, apart from gather and index, which are parts of other nests: scatter is the base
 * copied (unless it can be updated where it is) and a nest over the updates; topk and cumulate go along rows. */
#include "passes/local.h"

#include <math.h>
#include <string.h>

/* A value read in a nest: its element, or the number that it is everywhere. `stride` by loop. */
static uint32_t read_element(ap_low *low, ap_low_nest *nest, ap_value v, const ap_low_place *pl, const int64_t *stride)
{
    const ap_low_value *root = &low->value[ap_low_root(low, v)];
    ap_dtype dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, v));
    if (root->source == AP_LOW_SPLAT)
        return ap_low_nest_const(nest, dtype, root->splat);
    return ap_low_nest_load(nest, &pl->ref, dtype, stride);
}

static ap_status place_unless_splat(ap_low *low, ap_value v, ap_low_place *out)
{
    memset(out, 0, sizeof *out);
    return low->value[ap_low_root(low, v)].source == AP_LOW_SPLAT ? AP_OK : ap_low_place_of(low, v, out);
}

static void set_when(const ap_low *low, ap_value root, ap_low_call *call)
{
    if (low->value[root].direct && low->value[root].replicated) {
        call->when = AP_WHEN_ZERO;
        call->when_mask = low->value[root].replicated;
    }
}

/* ---- scatter ---- */

/* The base is a buffer of its own that nobody else reads. */
static bool updates_in_place(const ap_low *low, ap_value base, ap_value result)
{
    const ap_low_value *b = &low->value[base], *r = &low->value[result];
    return b->root == base && b->owned && b->nuses == 1 && !r->placed && b->nfactors == r->nfactors;
}

static ap_status place_base(ap_low *low, const ap_low_item *it, const ap_low_call *how, ap_low_place *out)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    ap_value base = n->in[0], result = n->out[0];
    const ap_low_value *v = &low->value[base];
    ap_dtype dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, result));
    ap_low_call call = *how;
    ap_low_place from;
    if (updates_in_place(low, base, result)) {
        low->value[result].place = *out = v->place;
        low->value[result].placed = low->value[result].owned = true;
        return AP_OK;
    }
    AP_TRY(ap_low_destination(low, result, out));
    call.name = "scatter_base";
    set_when(low, result, &call);
    if (low->value[v->root].source == AP_LOW_SPLAT)
        return ap_low_fill(low, base, v->nfactors, v->extent, v->count, out, &call);
    AP_TRY(ap_low_place_of(low, base, &from));
    return ap_low_copy(low, dtype, v->nfactors, v->extent, v->count, &from, out, &call);
}

/* Strides of one side's operand by the loops of the updates. */
static void strides_by_loop(const ap_spec_side *side, const int64_t *stride, const ap_spec_side *updates,
                            int64_t out[AP_MAX_LOOPS])
{
    memset(out, 0, AP_MAX_LOOPS * sizeof *out);
    for (int f = 0; f < side->nletters; f++) {
        int loop = ap_spec_side_find(updates, side->letter[f]);
        if (loop >= 0)
            out[loop] = stride[f];
    }
}

/* The sop that updates; what it needs of the indexed factor. */
static ap_sop update_sop(ap_low *low, const ap_node_info *n, ap_low_nest *nest, const ap_low_place *to)
{
    const ap_spec *spec = n->u.scatter.spec;
    const ap_low_value *r = &low->value[n->out[0]];
    ap_type_info t = ap_type_get(low->ctx, ap_value_type(low->m, n->out[0]));
    ap_sop s = {.kind = AP_SOP_UPDATE, .dtype = t.dtype, .reduce = (uint8_t)n->u.scatter.kind};
    ap_affine first = {0};
    for (int f = 0; f < spec->operand[0].nletters; f++) {
        if (ap_spec_side_find(&spec->operand[2], spec->operand[0].letter[f]) >= 0)
            continue;
        s.stride = to->stride[f];
        s.extent = r->extent[f];
        s.limit = ap_shape_get(low->ctx, t.shape)->logical[f];
        if (t.sharding)
            ap_low_shard_start(low, ap_sharding_get(low->ctx, t.sharding), r->extent, f, &first);
    }
    s.imm.i = (int64_t)ap_low_nest_int(nest, &first);
    return s;
}

ap_status ap_low_emit_scatter(ap_low *low, const ap_low_item *it)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    const ap_spec *spec = n->u.scatter.spec;
    const ap_low_value *updates = &low->value[n->in[2]];
    ap_low_call call = {.name = "scatter", .about = ap_low_about(low, it), .loc = it->loc};
    ap_low_place to, from, ids;
    int64_t stride[AP_MAX_LOOPS];
    ap_low_nest nest;
    AP_TRY(place_unless_splat(low, n->in[1], &ids));
    AP_TRY(place_unless_splat(low, n->in[2], &from));
    AP_TRY(place_base(low, it, &call, &to));
    set_when(low, n->out[0], &call);
    ap_low_nest_init(low, &nest);
    nest.ordered = true;
    for (int f = 0; f < updates->nfactors; f++)
        ap_low_nest_loop(&nest, updates->extent[f], &updates->count[f], false);
    ap_low_nest_section(&nest, false);
    ap_sop s = update_sop(low, n, &nest, &to);
    strides_by_loop(&spec->operand[1], ids.stride, &spec->operand[2], stride);
    s.arg[1] = read_element(low, &nest, n->in[1], &ids, stride);
    if (nest.sops.at[s.arg[1]].dtype != AP_I64)
        s.arg[1] = ap_low_nest_pointwise(&nest, AP_PW_CAST, AP_I64, 1, &s.arg[1]);
    strides_by_loop(&spec->operand[2], from.stride, &spec->operand[2], stride);
    s.arg[0] = read_element(low, &nest, n->in[2], &from, stride);
    strides_by_loop(&spec->operand[0], to.stride, &spec->operand[2], stride);
    s.operand = (uint8_t)ap_low_nest_operand(&nest, &to.ref, s.dtype, true, stride);
    ap_low_nest_add(&nest, s);
    return ap_low_nest_finish(&nest, &call);
}

/* ---- along rows ---- */

/* One loop for each factor of v, except `row` (-1: for all); and the strides of a place by these loops. */
static void open_loops(ap_low_nest *nest, const ap_low_value *v, int row)
{
    for (int f = 0; f < v->nfactors; f++)
        if (f != row)
            ap_low_nest_loop(nest, v->extent[f], &v->count[f], false);
}

static void strides_without(const int64_t *stride, int nfactors, int row, int64_t out[AP_MAX_LOOPS])
{
    int l = 0;
    memset(out, 0, AP_MAX_LOOPS * sizeof *out);
    for (int f = 0; f < nfactors; f++)
        if (f != row)
            out[l++] = stride[f];
}

ap_status ap_low_emit_topk(ap_low *low, const ap_low_item *it)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    const ap_shape_info *s = ap_value_shape(low->m, n->in[0]);
    const ap_low_value *x = &low->value[n->in[0]];
    int row = s->first[n->u.topk.dim];
    ap_topk topk = {.largest = n->u.topk.largest, .n = x->extent[row], .k = n->u.topk.k};
    ap_low_call call = {.name = "topk", .about = ap_low_about(low, it), .loc = it->loc};
    ap_low_place place[3];
    ap_low_nest nest;
    AP_TRY(ap_low_place_of(low, n->in[0], &place[0]));
    AP_TRY(ap_low_destination(low, n->out[0], &place[1]));
    AP_TRY(ap_low_destination(low, n->out[1], &place[2]));
    ap_low_nest_init(low, &nest);
    nest.topk = &topk;
    open_loops(&nest, x, row);
    for (int i = 0; i < 3; i++) {
        ap_value v = i ? n->out[i - 1] : n->in[0];
        int64_t stride[AP_MAX_LOOPS];
        bool has_row = i == 0 || topk.k > 1; /* one element has no factor */
        topk.stride[i] = has_row ? place[i].stride[row] : 0;
        strides_without(place[i].stride, low->value[v].nfactors, has_row ? row : -1, stride);
        ap_low_nest_operand(&nest, &place[i].ref, ap_type_dtype(low->ctx, ap_value_type(low->m, v)), i > 0, stride);
    }
    return ap_low_nest_finish(&nest, &call);
}

typedef struct cumulation {
    ap_low *low;
    const ap_low_value *x;
    ap_reduce_kind kind;
    bool exclusive;
    int row; /* the factor */
    ap_dtype dtype;
    ap_ref ref[2]; /* first elements of operand and result in the order of the sum */
    int64_t stride[2][AP_MAX_LOOPS];
    ap_low_call call;
} cumulation;

/* A running value, element by element. */
static ap_status by_element(const cumulation *c)
{
    ap_low_nest nest;
    ap_low_nest_init(c->low, &nest);
    for (int f = 0; f < c->x->nfactors; f++)
        ap_low_nest_loop(&nest, c->x->extent[f], &c->x->count[f], f == c->row);
    ap_low_nest_section(&nest, true);
    ap_sop scan = {.kind = AP_SOP_SCAN, .dtype = c->dtype, .reduce = (uint8_t)c->kind, .imm.i = c->exclusive};
    scan.arg[0] = ap_low_nest_load(&nest, &c->ref[0], c->dtype, c->stride[0]);
    ap_low_nest_store(&nest, &c->ref[1], c->dtype, c->stride[1], ap_low_nest_add(&nest, scan));
    return ap_low_nest_finish(&nest, &c->call);
}

static ap_ref moved(const cumulation *c, int i, int64_t turns)
{
    ap_ref r = c->ref[i];
    r.offset.base += turns * c->stride[i][c->row];
    return r;
}

static ap_scalar nothing(const cumulation *c)
{
    static const double start[] = {
        [AP_REDUCE_SUM] = 0, [AP_REDUCE_PROD] = 1, [AP_REDUCE_MAX] = -INFINITY, [AP_REDUCE_MIN] = INFINITY};
    ap_scalar x = {.f = start[c->kind]};
    return ap_pointwise_eval(AP_PW_CAST, AP_F64, c->dtype, &x);
}

/* Along other than the last factor neighbours in memory go on side by side: the first plane, then y[t] = y[t-1] + x[t].
 */
static ap_status by_plane(const cumulation *c)
{
    static const ap_pointwise op[] = {[AP_REDUCE_SUM] = AP_PW_ADD,
                                      [AP_REDUCE_PROD] = AP_PW_MUL,
                                      [AP_REDUCE_MAX] = AP_PW_MAX,
                                      [AP_REDUCE_MIN] = AP_PW_MIN};
    for (int rest = 0; rest < 2; rest++) {
        ap_low_nest nest;
        uint32_t v[2];
        ap_low_nest_init(c->low, &nest);
        nest.ordered = nest.unjoined = rest;
        for (int f = 0; f < c->x->nfactors; f++) {
            ap_int all = {0};
            bool is_row = f == c->row;
            int64_t extent = !is_row ? c->x->extent[f] : rest ? c->x->extent[f] - 1 : 1;
            ap_low_nest_loop(&nest, extent, is_row ? &all : &c->x->count[f], false);
        }
        ap_low_nest_section(&nest, false);
        if (!rest && c->exclusive) {
            v[0] = ap_low_nest_const(&nest, c->dtype, nothing(c));
        } else {
            ap_ref x = moved(c, 0, rest && !c->exclusive), y = c->ref[1];
            v[0] = ap_low_nest_load(&nest, &x, c->dtype, c->stride[0]);
            v[1] = rest ? ap_low_nest_load(&nest, &y, c->dtype, c->stride[1]) : 0;
            if (rest)
                v[0] = ap_low_nest_pointwise(&nest, op[c->kind], c->dtype, 2, (uint32_t[]){v[1], v[0]});
        }
        ap_ref to = moved(c, 1, rest);
        ap_low_nest_store(&nest, &to, c->dtype, c->stride[1], v[0]);
        AP_TRY(ap_low_nest_finish(&nest, &c->call));
    }
    return AP_OK;
}

/* Long sums of floats are folded in double precision, those of short floats in f32: element by element. */
static bool goes_by_plane(const cumulation *c)
{
    bool inner = false;
    for (int f = c->row + 1; f < c->x->nfactors; f++)
        inner = inner || c->x->extent[f] > 1;
    return inner &&
           (ap_dtype_is_int(c->dtype) || ((c->dtype == AP_F32 || c->dtype == AP_F64) && c->x->extent[c->row] <= 4096));
}

ap_status ap_low_emit_cumulate(ap_low *low, const ap_low_item *it)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    const ap_low_value *x = &low->value[n->in[0]];
    cumulation c = {.low = low, .x = x, .kind = n->u.cumulate.kind, .exclusive = n->u.cumulate.exclusive};
    ap_low_place place[2];
    c.dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, n->in[0]));
    c.row = ap_value_shape(low->m, n->in[0])->first[n->u.cumulate.dim];
    c.call = (ap_low_call){.name = "cumulate", .about = ap_low_about(low, it), .loc = it->loc};
    AP_TRY(ap_low_place_of(low, n->in[0], &place[0]));
    AP_TRY(ap_low_destination(low, n->out[0], &place[1]));
    set_when(low, n->out[0], &c.call);
    for (int i = 0; i < 2; i++) { /* backwards: from the last element */
        memcpy(c.stride[i], place[i].stride, AP_MAX_FACTORS * sizeof c.stride[i][0]);
        c.ref[i] = place[i].ref;
        if (!n->u.cumulate.reverse)
            continue;
        c.ref[i].offset.base += (x->extent[c.row] - 1) * c.stride[i][c.row];
        c.stride[i][c.row] = -c.stride[i][c.row];
    }
    return goes_by_plane(&c) ? by_plane(&c) : by_element(&c);
}
