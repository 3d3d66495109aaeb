/* Places: where a value lies, as a reference and one stride per factor.
 *
 * `view` and composite results rename factors of their root; `slice` and `all_slice` start elsewhere inside their
 * operand; a contiguous `reshape` reads the same bytes under other strides. None of them emits code. */
#include "passes/local.h"

#include <string.h>

bool ap_low_compact(int n, const int64_t *extent, int64_t *stride, int64_t *out_count)
{
    int64_t count = 1;
    bool fits = true;
    for (int f = n - 1; f >= 0; f--) {
        stride[f] = count;
        fits = fits && ap_mul_i64(count, extent[f] ? extent[f] : 1, &count);
    }
    for (int f = 0; f < n; f++) {
        if (extent[f] == 0)
            count = 0;
    }
    *out_count = count;
    return fits;
}

bool ap_low_split(const ap_low *low, const ap_shape_info *s, int f, ap_axes axes, int64_t *extent, ap_int *count)
{
    int64_t parts = axes ? ap_mesh_axes_size(&low->mesh, axes) : 1;
    memset(count, 0, sizeof *count);
    *extent = s->logical[f];
    if (parts == 1)
        return true;
    if (parts < 1 || s->physical[f] % parts)
        return false;
    *extent = s->physical[f] / parts;
    if (s->logical[f] == s->physical[f])
        return true;
    int64_t step = -*extent;
    count->value.base = s->logical[f];
    for (int i = ap_axes_count(axes) - 1; i >= 0; i--) {
        int axis = ap_axes_get(axes, i);
        count->value.step[axis] = step;
        step *= low->mesh.axis_size[axis];
    }
    count->hi = *extent;
    return true;
}

ap_int ap_low_count_times(const ap_int *count, int64_t times)
{
    ap_int r = {.lo = count->lo * times, .hi = count->hi * times};
    ap_low_affine_add(&r.value, &count->value, times);
    return r;
}

bool ap_low_extents(const ap_low *low, ap_type t, int64_t extent[AP_MAX_FACTORS], ap_int count[AP_MAX_FACTORS])
{
    ap_type_info info = ap_type_get(low->ctx, t);
    const ap_shape_info *s = ap_shape_get(low->ctx, info.shape);
    const ap_sharding_info *sh = info.sharding ? ap_sharding_get(low->ctx, info.sharding) : NULL;
    for (int f = 0; f < s->nfactors; f++) {
        if (!ap_low_split(low, s, f, sh ? sh->axes[f] : 0, &extent[f], &count[f]))
            return false;
    }
    return true;
}

void ap_low_affine_add(ap_affine *a, const ap_affine *b, int64_t times)
{
    a->base += b->base * times;
    for (int i = 0; i < AP_MAX_AXES; i++)
        a->step[i] += b->step[i] * times;
}

void ap_low_shard_start(const ap_low *low, const ap_sharding_info *s, const int64_t *extent, int factor, ap_affine *out)
{
    memset(out, 0, sizeof *out);
    int64_t step = extent[factor];
    for (int i = ap_axes_count(s->axes[factor]) - 1; i >= 0; i--) {
        int axis = ap_axes_get(s->axes[factor], i);
        out->step[axis] = step;
        step *= low->mesh.axis_size[axis];
    }
}

ap_status ap_low_new_buffer(ap_low *low, ap_dtype dtype, int64_t count, ap_loc loc, uint32_t *out)
{
    int64_t bytes;
    if (!ap_mul_i64(count, ap_dtype_bytes(dtype), &bytes) || bytes > INT64_MAX / 4)
        return ap_error(low->ctx, loc, "a value of this node is larger than the address space");
    ap_low_buffer b = {.bytes = bytes, .first = AP_NONE, .into = AP_NONE};
    ap_vec_push(low->scratch, &low->buffers, b);
    *out = low->buffers.len - 1;
    return AP_OK;
}

ap_status ap_low_fresh(ap_low *low, ap_dtype dtype, int n, const int64_t *extent, ap_loc loc, ap_low_place *out)
{
    int64_t count;
    memset(out, 0, sizeof *out);
    if (!ap_low_compact(n, extent, out->stride, &count))
        return ap_error(low->ctx, loc, "a value of this node is larger than the address space");
    out->ref.space = AP_SPACE_ARENA;
    return ap_low_new_buffer(low, dtype, count, loc, &out->ref.index);
}

/* Strides of a part's factors in the tensor that it is a part of; where it begins there. */
static int64_t strides_in_whole(const ap_data_part *part, const ap_shape_info *s, int64_t stride[AP_MAX_FACTORS])
{
    int64_t below = 1, start = 0;
    for (int d = s->rank - 1; d >= 0; d--) {
        int64_t inner = below;
        for (int f = s->first[d + 1] - 1; f >= s->first[d]; f--) {
            stride[f] = inner;
            inner *= s->logical[f];
        }
        start += part->start[d] * below;
        below *= part->dim[d];
    }
    return start;
}

/* The whole logical tensor of a port, row-major; the offset is where this rank's shard starts. `part`: of which tensor
 * the value is a part, or NULL. */
static bool port_place(const ap_low *low, ap_space space, uint32_t index, ap_type t, const ap_data_part *part,
                       ap_low_place *out)
{
    ap_type_info info = ap_type_get(low->ctx, t);
    const ap_shape_info *s = ap_shape_get(low->ctx, info.shape);
    int64_t local[AP_MAX_FACTORS], elements;
    ap_int count[AP_MAX_FACTORS];
    memset(out, 0, sizeof *out);
    out->ref.space = space;
    out->ref.index = index;
    if (!ap_low_extents(low, t, local, count) || !ap_low_compact(s->nfactors, s->logical, out->stride, &elements))
        return false;
    if (part)
        out->ref.offset.base = strides_in_whole(part, s, out->stride);
    for (int f = 0; info.sharding && f < s->nfactors; f++) {
        ap_affine start;
        ap_low_shard_start(low, ap_sharding_get(low->ctx, info.sharding), local, f, &start);
        ap_low_affine_add(&out->ref.offset, &start, out->stride[f]);
    }
    return true;
}

/* A slot: the rank's own shard, compact. */
static bool slot_place(const ap_low *low, ap_space space, uint32_t index, ap_type t, ap_low_place *out)
{
    int64_t local[AP_MAX_FACTORS], elements;
    ap_int count[AP_MAX_FACTORS];
    memset(out, 0, sizeof *out);
    out->ref.space = space;
    out->ref.index = index;
    return ap_low_extents(low, t, local, count) &&
           ap_low_compact(ap_type_shape(low->ctx, t)->nfactors, local, out->stride, &elements);
}

static void port_fill(const ap_low *low, ap_name name, ap_type t, ap_port *out)
{
    memset(out, 0, sizeof *out);
    out->name = name;
    out->dtype = ap_type_dtype(low->ctx, t);
    out->rank = (uint8_t)ap_shape_dims(ap_type_shape(low->ctx, t), out->dim);
}

/* A constant gets a name that no parameter of the model has. */
static ap_name constant_name(ap_low *low)
{
    for (uint32_t n = 0;; n++) {
        ap_name name = ap_name_format(low->ctx, "const.%u", n);
        bool taken = ap_module_find_symbol(low->m, ap_name_str(low->ctx, name)) != AP_NONE;
        for (uint32_t i = 0; i < low->p->params.len; i++)
            taken = taken || low->p->params.at[i].port.name == name;
        if (!taken)
            return name;
    }
}

/* The parameter behind a symbol or a large constant, made at its first use. */
static ap_status param_place(ap_low *low, ap_value v, ap_name name, const ap_data *data, ap_loc loc, ap_low_place *out)
{
    ap_low_value *lv = &low->value[v];
    ap_low_place whole;
    if (!port_place(low, AP_SPACE_PARAM, 0, ap_value_type(low->m, v), data->part, &whole))
        return ap_low_bug(low, loc, "parameter does not fit its sharding");
    ap_local_param lp = {.data = *data, .loc = loc, .nfactors = lv->nfactors, .offset = whole.ref.offset};
    port_fill(low, name, ap_value_type(low->m, v), &lp.port);
    if (data->part) {
        lp.data.part = NULL;
        lp.port.name = data->part->of;
        memcpy(lp.port.dim, data->part->dim, sizeof lp.port.dim);
    }
    memset(out, 0, sizeof *out);
    int64_t count;
    if (!ap_low_compact(lv->nfactors, lv->extent, out->stride, &count) ||
        !ap_mul_i64(count, ap_dtype_bytes(lp.port.dtype), &lp.bytes) ||
        lp.bytes > INT64_MAX / 2 - low->p->param_bytes - AP_LOCAL_ALIGN)
        return ap_error(low->ctx, loc, "parameters are larger than the address space");
    memcpy(lp.extent, lv->extent, sizeof lp.extent);
    memcpy(lp.stride, whole.stride, sizeof lp.stride);
    lp.count = AP_NEW_ARRAY(&low->ctx->arena, ap_count, lv->nfactors);
    for (int f = 0; f < lv->nfactors; f++)
        if (ap_low_varies(&lv->count[f]))
            lp.count[lp.ncounts++] = (ap_count){.dim = (uint8_t)f, .value = lv->count[f].value};
    lp.byte_offset = low->p->param_bytes;
    low->p->param_bytes += (lp.bytes + AP_LOCAL_ALIGN - 1) / AP_LOCAL_ALIGN * AP_LOCAL_ALIGN;
    out->ref.space = AP_SPACE_PARAM;
    out->ref.index = low->p->params.len;
    ap_vec_push(&low->ctx->arena, &low->p->params, lp);
    return AP_OK;
}

static ap_status source_place(ap_low *low, ap_value root, ap_low_place *out)
{
    ap_low_value *lv = &low->value[root];
    const ap_value_info *vi = ap_value_at(low->m, root);
    ap_loc loc = vi->kind == AP_VALUE_RESULT ? ap_node_at(low->m, vi->def)->loc : 0;
    ap_dtype dtype = ap_type_dtype(low->ctx, vi->type);
    AP_TRY(ap_low_fresh(low, dtype, lv->nfactors, lv->extent, loc, out));
    ap_low_call call = {.name = lv->source == AP_LOW_SPLAT ? "fill" : "iota", .loc = loc};
    call.about = lv->source == AP_LOW_SPLAT ? "one number everywhere" : "index along a dimension";
    if (lv->source == AP_LOW_SPLAT)
        return ap_low_fill(low, root, lv->nfactors, lv->extent, lv->count, out, &call);
    return ap_low_iota(low, root, out, &call);
}

/* slice: starts and steps per factor; a factor cut to one element is not in the result. */
static void slice_place(const ap_node_info *n, const ap_low_value *from, const ap_low_place *src, ap_low_place *out)
{
    int to = 0;
    for (int f = 0; f < from->nfactors; f++) {
        const ap_range *r = &n->u.slice->range[f];
        int64_t step = r->whole ? 1 : r->step;
        out->ref.offset.base += r->whole ? 0 : r->start * src->stride[f];
        if (r->whole || r->count != 1)
            out->stride[to++] = src->stride[f] * step;
    }
}

/* all_slice: the axes that the result's shardings have more than the operand's say where the part starts. */
static void shard_place(const ap_low *low, const ap_node_info *n, const ap_low_place *src, ap_low_place *out)
{
    ap_sharding from = ap_type_get(low->ctx, ap_value_type(low->m, n->in[0])).sharding;
    ap_sharding to = ap_type_get(low->ctx, ap_value_type(low->m, n->out[0])).sharding;
    const ap_sharding_info *a = ap_sharding_get(low->ctx, from), *b = ap_sharding_get(low->ctx, to);
    const ap_low_value *lv = &low->value[n->out[0]];
    for (int f = 0; f < lv->nfactors; f++) {
        ap_affine start;
        ap_low_shard_start(low, b, lv->extent, f, &start);
        for (int i = 0; i < ap_axes_count(a->axes[f]); i++)
            start.step[ap_axes_get(a->axes[f], i)] = 0;
        ap_low_affine_add(&out->ref.offset, &start, src->stride[f]);
        out->stride[f] = src->stride[f];
    }
}

static ap_status part_place(ap_low *low, const ap_low_item *it, ap_low_place *out)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    ap_low_place src;
    AP_TRY(ap_low_place_of(low, n->in[0], &src));
    memset(out, 0, sizeof *out);
    out->ref = src.ref;
    if (ap_op_get(n->op)->lower == AP_LOWER_SLICE)
        slice_place(n, &low->value[n->in[0]], &src, out);
    else
        shard_place(low, n, &src, out);
    return AP_OK;
}

static bool is_contiguous(const ap_low_value *lv, const ap_low_place *pl)
{
    int64_t stride[AP_MAX_FACTORS], count;
    if (!ap_low_compact(lv->nfactors, lv->extent, stride, &count))
        return false;
    for (int f = 0; f < lv->nfactors; f++) {
        if (lv->extent[f] != 1 && stride[f] != pl->stride[f])
            return false;
    }
    return true;
}

static ap_status reshape_place(ap_low *low, const ap_low_item *it, ap_low_place *out)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    const ap_low_value *from = &low->value[n->in[0]], *to = &low->value[n->out[0]];
    ap_low_place src;
    AP_TRY(ap_low_place_of(low, n->in[0], &src));
    if (!is_contiguous(from, &src)) {
        ap_low_place flat;
        ap_dtype dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, n->in[0]));
        ap_low_call call = {.name = "copy", .about = "makes the operand of a reshape contiguous", .loc = it->loc};
        AP_TRY(ap_low_fresh(low, dtype, from->nfactors, from->extent, it->loc, &flat));
        AP_TRY(ap_low_copy(low, dtype, from->nfactors, from->extent, from->count, &src, &flat, &call));
        src = flat;
    }
    int64_t count;
    memset(out, 0, sizeof *out);
    out->ref = src.ref;
    ap_low_compact(to->nfactors, to->extent, out->stride, &count);
    return AP_OK;
}

static ap_status root_place(ap_low *low, ap_value root, ap_low_place *out)
{
    const ap_low_value *lv = &low->value[root];
    const ap_value_info *vi = ap_value_at(low->m, root);
    if (lv->source != AP_LOW_MEMORY)
        return source_place(low, root, out);
    if (vi->kind == AP_VALUE_ARGUMENT) {
        bool fits = low->m->funcs.at[low->func].argument_slot[vi->index]
                        ? slot_place(low, AP_SPACE_INPUT, vi->index, vi->type, out)
                        : port_place(low, AP_SPACE_INPUT, vi->index, vi->type, NULL, out);
        return fits ? AP_OK : ap_low_bug(low, 0, "argument does not fit its sharding");
    }
    if (vi->kind == AP_VALUE_SYMBOL) {
        const ap_symbol_info *s = &low->m->symbols.at[vi->def];
        return param_place(low, root, s->name, &s->data, s->loc, out);
    }
    const ap_node_info *n = ap_node_at(low->m, vi->def);
    if (lv->item == AP_NONE)
        return param_place(low, root, constant_name(low), n->u.constant, n->loc, out);
    const ap_low_item *it = &low->items.at[lv->item];
    if (it->kind == AP_LOW_PART)
        return part_place(low, it, out);
    if (it->kind == AP_LOW_RESHAPE)
        return reshape_place(low, it, out);
    return ap_low_bug(low, it->loc, "value is read before it is computed");
}

ap_status ap_low_place_of(ap_low *low, ap_value v, ap_low_place *out)
{
    ap_value root = ap_low_root(low, v);
    ap_low_value *rv = &low->value[root];
    if (!rv->placed) {
        AP_TRY(root_place(low, root, &rv->place));
        rv->placed = true;
    }
    memset(out, 0, sizeof *out);
    out->ref = rv->place.ref;
    for (int f = 0; f < rv->nfactors; f++)
        out->stride[low->value[v].map[f]] = rv->place.stride[f];
    return AP_OK;
}

/* ---- destinations ---- */

ap_status ap_low_output(ap_low *low, uint32_t i, ap_low_place *out, uint8_t *out_replicated)
{
    const ap_func_info *f = &low->m->funcs.at[low->func];
    ap_type_info info = ap_type_get(low->ctx, f->result[i]);
    *out_replicated = 0;
    if (f->result_slot[i] ? !slot_place(low, AP_SPACE_OUTPUT, i, f->result[i], out)
                          : !port_place(low, AP_SPACE_OUTPUT, i, f->result[i], NULL, out))
        return ap_low_bug(low, 0, "function result does not fit its sharding");
    if (f->result_slot[i]) /* every rank has its own */
        return AP_OK;
    uint8_t split = info.sharding ? ap_sharding_split_mask(ap_sharding_get(low->ctx, info.sharding)) : 0;
    for (int a = 0; a < low->mesh.naxes; a++) {
        if (low->mesh.axis_size[a] > 1 && !(split >> a & 1))
            *out_replicated |= (uint8_t)(1u << a);
    }
    return AP_OK;
}

/* The operand's factors along the joined dimension, in the result: trailing factors are the same ones; what is left,
 * one factor or none, is a stretch of the result's next factor. */
static bool concat_dim(const ap_shape_info *rs, const ap_shape_info *os, int dim, int64_t start,
                       const ap_low_place *whole, ap_low_place *out)
{
    int r = rs->first[dim + 1] - 1, r0 = rs->first[dim];
    int o = os->first[dim + 1] - 1, o0 = os->first[dim];
    int64_t trailing = 1;
    for (; r >= r0 && o >= o0 && rs->logical[r] == os->logical[o]; r--, o--) {
        out->stride[o] = whole->stride[r];
        trailing *= rs->logical[r];
    }
    if (o > o0 || (trailing && start % trailing))
        return false;
    int64_t left = trailing ? start / trailing : 0;
    if (o == o0) {
        if (r < r0 || left % rs->logical[r] + os->logical[o] > rs->logical[r])
            return false;
        out->stride[o] = whole->stride[r];
    }
    for (; r >= r0; r--) {
        out->ref.offset.base += left % rs->logical[r] * whole->stride[r];
        left /= rs->logical[r];
    }
    return left == 0;
}

ap_status ap_low_concat_part(ap_low *low, const ap_low_item *it, uint32_t k, const ap_low_place *whole,
                             ap_low_place *out)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    const ap_shape_info *rs = ap_value_shape(low->m, n->out[0]), *os = ap_value_shape(low->m, n->in[k]);
    int dim = n->u.concat.dim;
    int64_t start = 0;
    for (uint32_t i = 0; i < k; i++)
        start += ap_shape_dim(ap_value_shape(low->m, n->in[i]), dim);
    memset(out, 0, sizeof *out);
    out->ref = whole->ref;
    for (int d = 0; d < os->rank; d++) {
        for (int j = 0; d != dim && j < os->first[d + 1] - os->first[d]; j++)
            out->stride[os->first[d] + j] = whole->stride[rs->first[d] + j];
    }
    if (!concat_dim(rs, os, dim, start, whole, out))
        return ap_low_bug(low, it->loc, "concatenated parts do not match the factors of the result");
    return AP_OK;
}

/* The place of a root when value v, a renaming of it without broadcast, lies at `pl`. */
static bool place_through(const ap_low *low, ap_value v, const ap_low_place *pl, ap_low_place *out)
{
    const ap_low_value *lv = &low->value[v], *rv = &low->value[lv->root];
    bool seen[AP_MAX_FACTORS] = {false};
    memset(out, 0, sizeof *out);
    out->ref = pl->ref;
    for (int f = 0; f < rv->nfactors; f++) {
        out->stride[f] = pl->stride[lv->map[f]];
        seen[lv->map[f]] = true;
    }
    for (int f = 0; f < lv->nfactors; f++) {
        if (!seen[f] && lv->extent[f] != 1)
            return false;
    }
    return true;
}

/* True when all members of the group but this root stay inside the nest. */
static bool is_only_store(const ap_low *low, uint32_t group, ap_value root)
{
    const ap_low_group *g = &low->groups.at[group];
    for (uint32_t i = 0; i < g->members.len; i++) {
        ap_value r = ap_low_result(low, &low->items.at[g->members.at[i].item]);
        if (r != root && ap_low_group_needs_store(low, group, r))
            return false;
    }
    return true;
}

static ap_status try_output(ap_low *low, ap_value root, const ap_low_use *u, ap_low_place *out, bool *out_done)
{
    const ap_low_item *it = &low->items.at[low->value[root].item];
    ap_low_place whole;
    uint8_t replicated;
    AP_TRY(ap_low_output(low, u->operand, &whole, &replicated));
    bool single = it->kind <= AP_LOW_MASK ? is_only_store(low, ap_low_group_of(low, low->value[root].item), root)
                                          : it->kind <= AP_LOW_POOL;
    if (replicated && !single)
        return AP_OK;
    ap_value returned = ap_node_at(low->m, low->items.at[u->item].node)->in[u->operand];
    *out_done = place_through(low, returned, &whole, out);
    low->value[root].direct = *out_done;
    low->value[root].replicated = replicated;
    return AP_OK;
}

/* The only use of the root outside of its own nest; false when there are several. */
static bool find_sole_use(const ap_low *low, ap_value root, ap_low_use *out)
{
    const ap_low_value *rv = &low->value[root];
    uint32_t group = ap_low_group_of(low, rv->item), count = 0;
    for (uint32_t i = 0; i < rv->nuses; i++) {
        ap_low_use u = low->use[rv->first_use + i];
        if (ap_low_group_of(low, u.item) == group)
            continue;
        *out = u;
        count++;
    }
    return count == 1;
}

/* Whatever the strides of the place are. */
static bool fills_any_place(const ap_low_item *it)
{
    return it->kind <= AP_LOW_POOL || it->kind == AP_LOW_CONCAT || it->kind == AP_LOW_PAD;
}

ap_status ap_low_destination(ap_low *low, ap_value root, ap_low_place *out)
{
    ap_low_value *rv = &low->value[root];
    const ap_low_item *it = &low->items.at[rv->item];
    ap_low_use u = {0};
    bool done = rv->placed;
    if (!done && it->kind != AP_LOW_EXCHANGE && find_sole_use(low, root, &u)) {
        const ap_low_item *user = &low->items.at[u.item];
        if (user->kind == AP_LOW_RETURN) {
            AP_TRY(try_output(low, root, &u, &rv->place, &done));
        } else if (user->kind == AP_LOW_CONCAT && low->in_parts && fills_any_place(it)) {
            ap_low_place whole, part;
            low->nparts++;
            AP_TRY(ap_low_destination(low, ap_low_result(low, user), &whole));
            AP_TRY(ap_low_concat_part(low, user, u.operand, &whole, &part));
            done = place_through(low, ap_node_at(low->m, user->node)->in[u.operand], &part, &rv->place);
        }
    }
    if (!done) {
        ap_dtype dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, root));
        AP_TRY(ap_low_fresh(low, dtype, rv->nfactors, rv->extent, it->loc, &rv->place));
        ap_low_order(rv, rv->nfactors, rv->extent, rv->place.stride);
        rv->owned = true;
    }
    rv->placed = true;
    *out = rv->place;
    return AP_OK;
}
