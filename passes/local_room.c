/* Which copies a convolution may ask for, known before anything is split: the module is flattened as it is (a reshard
 * is its operand) and the layouts are those that every split leads to. Where convolutions want different orders of one
 * value, it is torn: who gets his way depends on the split, so all count a copy.
 *
 *     tidy     a fresh buffer of its own, channels-last, whatever the split: no copy
 *     others   a caller's tensor, a part of something, what products and reshapes make: a copy
 *
 * What a split adds are slices of the channels or the plane, and padded factors that are cut. */
#include "passes/cluster.h"
#include "passes/local.h"
#include "passes/local_conv.h"
#include "passes/room.h"

#include <string.h>

/* Strides of the value if its root lies alone in the order of the masks; false: it may lie otherwise. */
static bool tidy_strides(const ap_low *low, ap_value v, int64_t out[AP_MAX_FACTORS])
{
    const ap_low_value *lv = &low->value[v], *root = &low->value[lv->root];
    int64_t stride[AP_MAX_FACTORS], count;
    bool seen[AP_MAX_FACTORS] = {false};
    if (!root->tidy || !ap_low_compact(root->nfactors, root->extent, stride, &count))
        return false;
    ap_low_order(root, root->nfactors, root->extent, stride);
    memset(out, 0, AP_MAX_FACTORS * sizeof *out);
    for (int f = 0; f < root->nfactors; f++) {
        if (lv->map[f] < 0)
            continue;
        out[lv->map[f]] = root->extent[f] == 1 ? 0 : stride[f];
        seen[lv->map[f]] = true;
    }
    for (int f = 0; f < lv->nfactors; f++) {
        if (!seen[f] && lv->extent[f] != 1)
            return false;
    }
    return true;
}

/* [n, spatial..., g, c], each behind the other without gaps. */
static bool is_channels_last(const ap_low *low, ap_value v)
{
    const ap_shape_info *s = ap_value_shape(low->m, v);
    int64_t stride[AP_MAX_FACTORS], next = 1;
    int dims[AP_MAX_RANK], n = 0;
    if (!tidy_strides(low, v, stride))
        return false;
    dims[n++] = 2, dims[n++] = 1;
    for (int d = s->rank - 1; d >= 3; d--)
        dims[n++] = d;
    dims[n++] = 0;
    for (int i = 0; i < n; i++) {
        for (int f = s->first[dims[i] + 1] - 1; f >= s->first[dims[i]]; f--) {
            int64_t e = low->value[v].extent[f];
            if (e != 1 && stride[f] != next)
                return false;
            next *= e ? e : 1;
        }
    }
    return true;
}

/* In the order of items: a pool's result lies as its operand does. */
static void find_tidy(ap_low *low)
{
    for (uint32_t i = 0; i < low->items.len; i++) {
        const ap_low_item *it = &low->items.at[i];
        const ap_node_info *n = ap_node_at(low->m, it->node);
        bool fresh = it->kind <= AP_LOW_MASK || it->kind == AP_LOW_CONV || it->kind == AP_LOW_POOL ||
                     it->kind == AP_LOW_CONCAT || it->kind == AP_LOW_PAD;
        if (it->kind == AP_LOW_POOL)
            fresh = low->value[ap_low_root(low, n->in[0])].tidy;
        for (uint32_t k = 0; k < n->nout; k++) {
            ap_low_value *v = &low->value[n->out[k]];
            v->tidy = fresh && !v->torn;
        }
    }
}

/* Parameters whose dimensions are one distance each. */
static bool are_plain_weights(const ap_low *low, ap_value v)
{
    const ap_low_value *lv = &low->value[v], *root = &low->value[lv->root];
    const ap_shape_info *s = ap_value_shape(low->m, v);
    int64_t compact[AP_MAX_FACTORS], stride[AP_MAX_FACTORS] = {0}, count;
    if (root->item != AP_NONE || root->source != AP_LOW_MEMORY ||
        !ap_low_compact(root->nfactors, root->extent, compact, &count))
        return false;
    for (int f = 0; f < root->nfactors; f++) {
        if (lv->map[f] >= 0)
            stride[lv->map[f]] = compact[f];
    }
    for (int d = 0; d < 3; d++) {
        for (int f = s->first[d]; f + 1 < s->first[d + 1]; f++) {
            if (lv->extent[f] != 1 && stride[f] != stride[f + 1] * lv->extent[f + 1])
                return false;
        }
    }
    return true;
}

static void want_tidy(const ap_low *low, ap_rooms *r, ap_node n, uint32_t slot)
{
    ap_value root = ap_low_root(low, ap_node_at(low->m, n)->in[slot]);
    r->slots[n] |= 1u << slot;
    r->tidy[root] = true;
}

static bool is_vector(const ap_low *low, ap_value v, ap_value y)
{
    const ap_low_value *root = &low->value[ap_low_root(low, v)];
    return root->item != AP_NONE && root->source == AP_LOW_MEMORY && low->value[v].nfactors < low->value[y].nfactors;
}

/* The pointwise items that may become steps, as far as each is the only reader of what is before it. */
static void follow_steps(const ap_low *low, ap_rooms *r, ap_value y, ap_room *room)
{
    for (int i = 0; i <= AP_MAX_CONV_STEPS; i++) {
        const ap_low_value *v = &low->value[y];
        if (v->nuses != 1)
            return;
        ap_low_use u = low->use[v->first_use];
        const ap_low_item *it = &low->items.at[u.item];
        const ap_node_info *n = ap_node_at(low->m, it->node);
        room->result = room->result || it->kind == AP_LOW_CONCAT || it->kind == AP_LOW_RETURN;
        if (it->kind != AP_LOW_POINTWISE || n->nin > 2)
            return;
        ap_pointwise pw = ap_op_scalar(n->op);
        if (n->nin == 1 ? pw != AP_PW_RELU : pw != AP_PW_ADD && pw != AP_PW_MUL && pw != AP_PW_MAX && pw != AP_PW_MIN)
            return;
        uint32_t other = 1 - u.operand;
        if (n->nin == 2 && pw == AP_PW_ADD && low->value[n->in[other]].nfactors == low->value[n->out[0]].nfactors) {
            int64_t a[AP_MAX_FACTORS], b[AP_MAX_FACTORS];
            bool same =
                tidy_strides(low, n->in[other], a) && tidy_strides(low, n->in[u.operand], b) && !memcmp(a, b, sizeof a);
            room->others++;
            room->untidy_others += !same;
            if (same)
                want_tidy(low, r, it->node, other);
        }
        room->vectors += n->nin == 2 && is_vector(low, n->in[other], n->out[0]);
        y = n->out[0];
    }
}

static void find_room(const ap_low *low, ap_rooms *r, const ap_low_item *it)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    ap_room *room = AP_NEW(low->scratch, ap_room);
    room->operand = !is_channels_last(low, n->in[0]);
    room->weights = !are_plain_weights(low, n->in[1]);
    if (!room->operand)
        want_tidy(low, r, it->node, 0);
    follow_steps(low, r, n->out[0], room);
    r->room[it->node] = room;
}

static bool has_conv(const ap_module *m)
{
    for (ap_node n = 0; n < m->nodes.len; n++) {
        if (ap_op_get(ap_node_at(m, n)->op)->lower == AP_LOWER_CONV)
            return true;
    }
    return false;
}

ap_status ap_rooms_find(ap_ctx *ctx, ap_module *m, ap_rooms *out)
{
    ap_low low = {.ctx = ctx, .scratch = &ctx->scratch, .m = m, .early = true};
    memset(out, 0, sizeof *out);
    if (!has_conv(m))
        return AP_OK;
    AP_TRY(ap_low_flatten(&low));
    ap_low_choose_layouts(&low);
    find_tidy(&low);
    out->room = AP_NEW_ARRAY(low.scratch, const ap_room *, m->nodes.len);
    out->slots = AP_NEW_ARRAY(low.scratch, uint32_t, m->nodes.len);
    out->tidy = AP_NEW_ARRAY(low.scratch, bool, m->values.len);
    for (uint32_t i = 0; i < low.items.len; i++) {
        if (low.items.at[i].kind == AP_LOW_CONV)
            find_room(&low, out, &low.items.at[i]);
    }
    for (ap_value v = 0; v < m->values.len; v++)
        out->tidy[v] = out->tidy[ap_low_root(&low, v)];
    return AP_OK;
}

/* ---- bytes ---- */

static int64_t bytes_of(const ap_module *m, ap_value v, ap_sharding s)
{
    ap_type_info t = ap_type_get(m->ctx, ap_value_type(m, v));
    return ap_align_bytes(ap_local_bytes(m, t.dtype, t.shape, s));
}

/* A padded factor of batch, groups or channels is cut. */
static bool is_cut(const ap_module *m, ap_value v, ap_sharding s)
{
    const ap_shape_info *shape = ap_value_shape(m, v);
    const ap_sharding_info *info = ap_sharding_get(m->ctx, s);
    for (int f = shape->first[0]; f < shape->first[3]; f++) {
        if (info->axes[f] && shape->physical[f] != shape->logical[f])
            return true;
    }
    return false;
}

/* One number for each channel of the result. */
static int64_t vector_bytes(const ap_module *m, ap_value v, ap_sharding s)
{
    ap_type_info t = ap_type_get(m->ctx, ap_value_type(m, v));
    const ap_shape_info *shape = ap_shape_get(m->ctx, t.shape);
    const ap_sharding_info *info = ap_sharding_get(m->ctx, s);
    int64_t bytes = ap_dtype_bytes(t.dtype);
    for (int f = shape->first[1]; f < shape->first[3]; f++) {
        int64_t parts = info->axes[f] ? ap_mesh_axes_size(&m->meshes.at[info->mesh], info->axes[f]) : 1;
        bytes = ap_sat_mul(bytes, parts > 1 ? shape->physical[f] / parts : shape->logical[f]);
    }
    return ap_align_bytes(bytes);
}

int64_t ap_room_bytes(const ap_rooms *r, const ap_module *m, ap_node n, const ap_strategy *s)
{
    const ap_room *room = r->room ? r->room[n] : NULL;
    if (!room)
        return 0;
    const ap_node_info *node = ap_node_at(m, n);
    bool x = is_cut(m, node->in[0], s->operand[0]), w = is_cut(m, node->in[1], s->operand[1]);
    bool y = is_cut(m, node->out[0], s->result[0]);
    int64_t result = bytes_of(m, node->out[0], s->result[0]), sum = 0;
    if (room->operand || x)
        sum = ap_sat_add(sum, bytes_of(m, node->in[0], s->operand[0]));
    if (room->weights || w)
        sum = ap_sat_add(sum, bytes_of(m, node->in[1], s->operand[1]));
    sum = ap_sat_add(sum, ap_sat_mul(vector_bytes(m, node->out[0], s->result[0]), room->vectors));
    return ap_sat_add(sum, ap_sat_mul(result, room->result + (y ? room->others : room->untidy_others)));
}

int64_t ap_room_slice_bytes(const ap_rooms *r, const ap_module *m, ap_node n, uint32_t slot, ap_sharding from,
                            ap_sharding to)
{
    if (!r->slots || slot >= 32 || !(r->slots[n] >> slot & 1))
        return 0;
    ap_value v = ap_node_at(m, n)->in[slot];
    const ap_shape_info *shape = ap_value_shape(m, v);
    const ap_sharding_info *a = ap_sharding_get(m->ctx, from), *b = ap_sharding_get(m->ctx, to);
    for (int f = shape->first[1]; f < shape->nfactors; f++) {
        if (a->axes[f] != b->axes[f])
            return bytes_of(m, v, to);
    }
    return 0;
}
