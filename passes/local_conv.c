/* conv -> a convolution kernel, with the pointwise operators behind it as steps.
 *
 * Of the dimensions batch, groups, channels in and channels out each must be one distance in memory: factors behind
 * each other, at most the outermost with a count. f32 also wants operand and result channels-last and without gaps,
 * which is what libraries are fast at: [n, spatial..., g, c]. An operand that lies otherwise is copied; a result in a
 * buffer of its own is put into this order, and stays in it for whoever reads it; one in somebody else's place is
 * copied there.
 *
 *     steps   add, mul with one number per channel; add, max, min with a number or a whole operand; relu. The whole
 *             operand of an add whose last reader this is lends its buffer to the result, if nothing but a bias is
 *             added before. */
#include "passes/local_conv.h"

#include <string.h>

/* The factors of one dimension, in the order in which they are walked. */
typedef struct walk {
    int nf;
    int8_t order[AP_MAX_DIM_FACTORS]; /* positions in the dimension, major first */
    int64_t extent[AP_MAX_DIM_FACTORS], total;
    bool counted, spoiled; /* the first factor has a count; several have, so that there is none for all */
    ap_int count;
} walk;

typedef struct work {
    ap_low *low;
    const ap_low_item *it;
    const ap_node_info *node;
    ap_dtype dtype;
    const ap_shape_info *xs, *ws, *ys;
    walk n, g, c, m;
    bool timely;          /* the last microbatch has fewer images */
    ap_low_place x, w, y; /* strides by factor of the node's operands and result */
    ap_conv k;
    uint32_t noperands, nints;
    ap_ref ref[3 + AP_MAX_CONV_STEPS];
    ap_int ints[4];
} work;

/* ---- dimensions in memory ---- */

static walk walk_of(const ap_low *low, ap_value v, int d)
{
    const ap_shape_info *s = ap_value_shape(low->m, v);
    const ap_low_value *lv = &low->value[v];
    walk r = {.total = 1};
    int counts = 0, first = 0, nf = s->first[d + 1] - s->first[d];
    for (int j = 0; j < nf; j++) {
        if (ap_low_varies(&lv->count[s->first[d] + j]) && counts++ == 0)
            first = j;
    }
    for (int i = 0; i < nf; i++) {
        int j = i == 0 ? first : i <= first ? i - 1 : i;
        r.order[r.nf] = (int8_t)j;
        r.extent[r.nf] = lv->extent[s->first[d] + j];
        r.total *= r.extent[r.nf++];
    }
    r.spoiled = counts > 1;
    r.counted = counts == 1 && r.extent[0] > 0;
    if (r.counted)
        r.count = ap_low_count_times(&lv->count[s->first[d] + first], r.total / r.extent[0]);
    return r;
}

/* The distance between neighbours along the dimension whose factors begin at `first`; false when there is none. */
static bool distance(const walk *w, const int64_t *stride, int first, int64_t *out)
{
    int64_t total = 1;
    *out = 0;
    for (int i = w->nf - 1; i >= 0; i--) {
        int64_t s = stride[first + w->order[i]];
        if (w->extent[i] == 1)
            continue;
        if (total > 1 && s != *out * total)
            return false;
        if (total == 1)
            *out = s;
        total *= w->extent[i];
    }
    return true;
}

/* Distances by dimension from strides by factor. */
static bool distances(const ap_shape_info *s, const walk *const head[3], const int64_t *stride,
                      int64_t out[AP_MAX_RANK])
{
    for (int d = 0; d < 3; d++) {
        if (!distance(head[d], stride, s->first[d], &out[d]))
            return false;
    }
    for (int d = 3; d < s->rank; d++)
        out[d] = s->first[d + 1] > s->first[d] ? stride[s->first[d]] : 0;
    return true;
}

static void put_stride(const walk *w, int first, int64_t *next, int64_t *stride)
{
    for (int i = w->nf - 1; i >= 0; i--) {
        stride[first + w->order[i]] = *next;
        *next *= w->extent[i] ? w->extent[i] : 1;
    }
}

static void put_plane(const ap_shape_info *s, const int64_t *extent, int64_t *next, int64_t *stride)
{
    for (int d = s->rank - 1; d >= 3; d--) {
        if (s->first[d + 1] > s->first[d])
            stride[s->first[d]] = *next;
        *next *= extent[d - 3] ? extent[d - 3] : 1;
    }
}

/* Strides by factor of a buffer without gaps: channels last, or the dimensions in order. Gives the elements. */
static int64_t fresh_strides(const ap_shape_info *s, const walk *const head[3], const int64_t *plane, bool last,
                             int64_t stride[AP_MAX_FACTORS])
{
    int64_t next = 1;
    if (!last)
        put_plane(s, plane, &next, stride);
    put_stride(head[2], s->first[2], &next, stride);
    put_stride(head[1], s->first[1], &next, stride);
    if (last)
        put_plane(s, plane, &next, stride);
    put_stride(head[0], s->first[0], &next, stride);
    return next;
}

/* Channels last, without gaps; what has one element may lie anyhow. */
static bool is_dense(const walk *const head[3], int nspatial, const int64_t *plane, const int64_t *distance)
{
    int64_t next = 1;
    for (int d = 2; d >= 1; d--) {
        if (head[d]->total > 1 && distance[d] != next)
            return false;
        next *= head[d]->total;
    }
    for (int d = nspatial - 1; d >= 0; d--) {
        if (plane[d] > 1 && distance[3 + d] != next)
            return false;
        next *= plane[d];
    }
    return head[0]->total <= 1 || distance[0] == next;
}

/* ---- operands ---- */

/* What a rank has fewer of than there are places is computed in all of them; so are the images of a short microbatch,
 * because a convolution is prepared once. */
static bool needs_room(const work *w)
{
    return w->timely || w->n.spoiled || w->g.spoiled || w->g.counted || w->m.spoiled || w->m.counted;
}

static ap_status zero_fill(work *w, const ap_low_place *to, int64_t count)
{
    ap_low_nest nest;
    ap_int all = {0};
    ap_low_call call = {.name = "conv_zero", .about = "what is not there of an operand counts as zero"};
    call.loc = w->it->loc;
    int64_t stride[AP_MAX_LOOPS] = {1};
    ap_low_nest_init(w->low, &nest);
    ap_low_nest_loop(&nest, count, &all, false);
    ap_low_nest_section(&nest, false);
    ap_low_nest_store(&nest, &to->ref, w->dtype, stride, ap_low_nest_const(&nest, w->dtype, (ap_scalar){0}));
    return ap_low_nest_finish(&nest, &call);
}

/* The operand in a buffer with these strides by factor. */
static ap_status copy_operand(work *w, ap_value v, const int64_t *stride, int64_t count, bool zero, ap_low_place *place)
{
    const ap_low_value *lv = &w->low->value[v];
    ap_low_call call = {.name = "conv_operand", .about = "operand of a convolution, in the order that it wants"};
    call.loc = w->it->loc;
    ap_low_place to;
    memset(&to, 0, sizeof to);
    to.ref.space = AP_SPACE_ARENA;
    memcpy(to.stride, stride, sizeof to.stride);
    count = ap_max_i64(count, 1);
    AP_TRY(ap_low_new_buffer(w->low, w->dtype, count, w->it->loc, &to.ref.index));
    if (zero)
        AP_TRY(zero_fill(w, &to, count));
    AP_TRY(ap_low_copy(w->low, w->dtype, lv->nfactors, lv->extent, lv->count, place, &to, &call));
    *place = to;
    return AP_OK;
}

static ap_status place_operand(work *w)
{
    const walk *head[3] = {&w->n, &w->g, &w->c};
    ap_value v = w->node->in[0];
    bool zero = w->n.spoiled || w->g.spoiled || w->c.spoiled || w->c.counted;
    bool room = (!w->g.counted && !w->timely) || w->low->value[ap_low_root(w->low, v)].owned;
    AP_TRY(ap_low_place_of(w->low, v, &w->x));
    if (!zero && room && distances(w->xs, head, w->x.stride, w->k.x) &&
        (w->dtype != AP_F32 || is_dense(head, w->k.nspatial, w->k.in, w->k.x)))
        return AP_OK;
    int64_t stride[AP_MAX_FACTORS] = {0}, count = fresh_strides(w->xs, head, w->k.in, true, stride);
    AP_TRY(copy_operand(w, v, stride, count, zero, &w->x));
    distances(w->xs, head, w->x.stride, w->k.x);
    return AP_OK;
}

static ap_status place_weights(work *w)
{
    const walk *head[3] = {&w->g, &w->m, &w->c};
    ap_value v = w->node->in[1];
    bool zero = w->g.spoiled || w->m.spoiled || w->c.spoiled;
    AP_TRY(ap_low_place_of(w->low, v, &w->w));
    if (!zero && distances(w->ws, head, w->w.stride, w->k.w))
        return AP_OK;
    int64_t stride[AP_MAX_FACTORS] = {0}, count = fresh_strides(w->ws, head, w->k.kernel, false, stride);
    AP_TRY(copy_operand(w, v, stride, count, zero, &w->w));
    distances(w->ws, head, w->w.stride, w->k.w);
    return AP_OK;
}

/* ---- steps ---- */

static uint32_t add_operand(work *w, const ap_ref *ref)
{
    for (uint32_t i = 3; i < w->noperands; i++) {
        if (!memcmp(&w->ref[i], ref, sizeof *ref))
            return i;
    }
    w->ref[w->noperands] = *ref;
    return w->noperands++;
}

/* Everyone else who reads the root has done so. */
static bool is_last_reader(const ap_low *low, ap_value root, uint32_t group)
{
    const ap_low_value *rv = &low->value[root];
    for (uint32_t i = 0; i < rv->nuses; i++) {
        ap_low_use u = low->use[rv->first_use + i];
        const ap_low_item *it = &low->items.at[u.item];
        uint32_t g = ap_low_group_of(low, u.item);
        if (it->kind >= AP_LOW_PART || (g != group && !low->groups.at[g].emitted))
            return false;
    }
    return true;
}

static bool same_buffer(const ap_ref *a, const ap_ref *b)
{
    return a->space == b->space && a->index == b->index;
}

/* Libraries add to what the result holds before anything but a bias (oneDNN 2.6 has vector code for no other order). */
static bool adds_first(const work *w)
{
    const ap_conv_step *first = &w->k.step[0];
    return w->k.nsteps == 1 || (w->k.nsteps == 2 && first->pw == AP_PW_ADD && !ap_conv_step_is_whole(&w->k, first));
}

/* The result takes the buffer of a whole operand, which lies just as the result would. */
static bool take_buffer(work *w, uint32_t group, ap_value result, ap_value operand, const ap_low_place *at)
{
    ap_low_value *rv = &w->low->value[result];
    const ap_low_value *ov = &w->low->value[ap_low_root(w->low, operand)];
    if (!rv->owned || !ov->owned || ov->item == AP_NONE || at->ref.space != AP_SPACE_ARENA ||
        !is_last_reader(w->low, ap_low_root(w->low, operand), group) || same_buffer(&at->ref, &w->x.ref) ||
        same_buffer(&at->ref, &w->w.ref))
        return false;
    for (uint32_t i = 3; i < w->noperands; i++) {
        if (same_buffer(&at->ref, &w->ref[i]))
            return false;
    }
    rv->place.ref = w->y.ref = at->ref;
    return true;
}

/* Strides of a step's operand by factor of the convolution's result; `back`: those by factor of the result, for the
 * operand. */
static void convert_strides(const work *w, const ap_conv_trail *t, const ap_node_info *n, uint32_t k, bool back,
                            const int64_t *stride, int64_t out[AP_MAX_FACTORS])
{
    int8_t to[AP_MAX_FACTORS];
    ap_conv_factors_in_result(w->low, n, k, to);
    memset(out, 0, AP_MAX_FACTORS * sizeof *out);
    for (int f = 0; f < w->low->value[n->in[k]].nfactors; f++)
        for (int c = 0; c < w->ys->nfactors; c++)
            if (t->map[c] == to[f])
                out[back ? f : c] = stride[back ? c : f];
}

/* An operand with one element per channel, or one per element of the result. */
static ap_status step_operand(work *w, const ap_conv_trail *t, const ap_node_info *n, uint32_t k, bool all,
                              uint32_t group, ap_value result, ap_conv_step *s)
{
    const walk *head[3] = {&w->n, &w->g, &w->m};
    ap_low_place at;
    int64_t by_factor[AP_MAX_FACTORS], want[AP_MAX_FACTORS] = {0};
    AP_TRY(ap_low_place_of(w->low, n->in[k], &at));
    convert_strides(w, t, n, k, false, at.stride, by_factor);
    bool room = !all || !needs_room(w) || w->low->value[ap_low_root(w->low, n->in[k])].owned;
    bool lies_well = room && distances(w->ys, head, by_factor, s->stride) &&
                     (!all || w->dtype != AP_F32 || !memcmp(s->stride, w->k.y, sizeof s->stride));
    if (lies_well && all && adds_first(w) && w->y.ref.index != at.ref.index &&
        take_buffer(w, group, result, n->in[k], &at)) {
        s->operand = 2;
        return AP_OK;
    }
    if (!lies_well) {
        int64_t own[AP_MAX_FACTORS], count = 1;
        if (all) {
            count = fresh_strides(w->ys, head, w->k.out, true, want);
            memcpy(want, w->y.stride, sizeof want);
        } else {
            put_stride(&w->m, w->ys->first[2], &count, want);
            put_stride(&w->g, w->ys->first[1], &count, want);
        }
        convert_strides(w, t, n, k, true, want, own);
        AP_TRY(copy_operand(w, n->in[k], own, count, false, &at));
        convert_strides(w, t, n, k, false, at.stride, by_factor);
        distances(w->ys, head, by_factor, s->stride);
    }
    s->operand = (uint8_t)add_operand(w, &at.ref);
    return AP_OK;
}

static ap_status add_steps(work *w, const ap_low_group *g, ap_value result)
{
    ap_conv_trail t;
    ap_conv_trail_start(&t, w->node->out[0]);
    for (uint32_t i = 1; i < g->members.len; i++) {
        const ap_node_info *n = ap_node_at(w->low->m, w->low->items.at[g->members.at[i].item].node);
        uint32_t k = 1 - ap_conv_trail_operand(w->low, n, &t);
        ap_conv_step *s = &w->k.step[w->k.nsteps++];
        ap_conv_trail_follow(w->low, n, w->ys->nfactors, &t);
        *s = (ap_conv_step){.pw = (uint16_t)ap_op_scalar(n->op)};
        if (n->nin == 1)
            continue;
        ap_conv_reach r = ap_conv_reach_of(w->low, w->ys, &t, n, k);
        s->other = r == AP_CONV_REACH_NUMBER ? AP_CONV_NUMBER : AP_CONV_OPERAND;
        if (r == AP_CONV_REACH_NUMBER)
            s->imm = w->low->value[ap_low_root(w->low, n->in[k])].splat;
        else
            AP_TRY(step_operand(w, &t, n, k, r == AP_CONV_REACH_ALL, g->members.at[0].item, result, s));
    }
    return AP_OK;
}

/* ---- the result ---- */

static void through_trail(const work *w, const ap_low_group *g, ap_conv_trail *t)
{
    ap_conv_trail_start(t, w->node->out[0]);
    for (uint32_t i = 1; i < g->members.len; i++)
        ap_conv_trail_follow(w->low, ap_node_at(w->low->m, w->low->items.at[g->members.at[i].item].node),
                             w->ys->nfactors, t);
}

/* Where the result is computed; `out_final`: where it is to be copied then, if `*out_copy`. */
static ap_status place_result(work *w, const ap_conv_trail *t, ap_low_place *out_final, bool *out_copy)
{
    const walk *head[3] = {&w->n, &w->g, &w->m};
    ap_low_value *rv = &w->low->value[t->root];
    AP_TRY(ap_low_destination(w->low, t->root, out_final));
    w->y = *out_final;
    for (int f = 0; f < w->ys->nfactors; f++)
        w->y.stride[f] = out_final->stride[t->map[f]];
    *out_copy = false;
    if ((!needs_room(w) || rv->owned) && distances(w->ys, head, w->y.stride, w->k.y) &&
        (w->dtype != AP_F32 || is_dense(head, w->k.nspatial, w->k.out, w->k.y)))
        return AP_OK;
    int64_t count = fresh_strides(w->ys, head, w->k.out, true, w->y.stride);
    distances(w->ys, head, w->y.stride, w->k.y);
    if (rv->owned) {
        for (int f = 0; f < w->ys->nfactors; f++)
            rv->place.stride[t->map[f]] = w->y.stride[f];
        return AP_OK;
    }
    *out_copy = true;
    memset(&w->y.ref, 0, sizeof w->y.ref);
    w->y.ref.space = AP_SPACE_ARENA;
    return ap_low_new_buffer(w->low, w->dtype, count, w->it->loc, &w->y.ref.index);
}

static uint32_t add_count(work *w, const walk *d)
{
    if (!d->counted)
        return 0;
    w->ints[w->nints++] = d->count;
    return w->nints;
}

static bool passes_in_time(const ap_low *low, const walk *d)
{
    return d->counted && low->mesh.ntime && d->count.value.step[0] != 0;
}

/* Counts of groups and channels that change from one microbatch to the next are none: their places hold zeros. */
static void read_counts(work *w)
{
    walk *d[3] = {&w->g, &w->c, &w->m};
    w->timely = passes_in_time(w->low, &w->n);
    w->n.counted = w->n.counted && !w->timely;
    for (int i = 0; i < 3; i++) {
        if (passes_in_time(w->low, d[i])) {
            d[i]->counted = false;
            d[i]->spoiled = true;
        }
    }
}

static void read_dims(work *w)
{
    ap_conv *k = &w->k;
    w->n = walk_of(w->low, w->node->in[0], 0);
    w->g = walk_of(w->low, w->node->in[0], 1);
    w->c = walk_of(w->low, w->node->in[0], 2);
    w->m = walk_of(w->low, w->node->in[1], 1);
    read_counts(w);
    k->dtype = w->dtype;
    k->nspatial = (uint8_t)(w->xs->rank - 3);
    k->n = w->n.total, k->g = w->g.total, k->c = w->c.total, k->m = w->m.total;
    k->turns_n = add_count(w, &w->n);
    k->turns_g = add_count(w, &w->g);
    k->turns_c = add_count(w, &w->c);
    k->turns_m = add_count(w, &w->m);
    for (int d = 0; d < k->nspatial; d++) {
        k->in[d] = ap_shape_dim(w->xs, 3 + d);
        k->kernel[d] = ap_shape_dim(w->ws, 3 + d);
        k->out[d] = ap_shape_dim(w->ys, 3 + d);
        k->dim[d] = w->node->u.conv->dim[d];
    }
}

static ap_status append_call(work *w, const ap_low_call *call)
{
    ap_kernel k = {.kind = AP_KERNEL_CONV, .noperands = w->noperands, .nints = w->nints, .conv = w->k};
    k.operand = AP_NEW_ARRAY(&w->low->ctx->arena, ap_kernel_operand, w->noperands);
    for (uint32_t i = 0; i < w->noperands; i++)
        k.operand[i] = (ap_kernel_operand){.dtype = w->dtype, .written = i == 2};
    w->ref[0] = w->x.ref;
    w->ref[1] = w->w.ref;
    w->ref[2] = w->y.ref;
    uint32_t kernel;
    AP_TRY(ap_low_kernel(w->low, &k, call, &kernel));
    ap_low_call_append(w->low, kernel, call, w->noperands, w->ref, w->nints, w->ints);
    return AP_OK;
}

ap_status ap_low_emit_conv(ap_low *low, const ap_low_group *g)
{
    const ap_low_item *it = &low->items.at[g->members.at[0].item];
    work w = {.low = low, .it = it, .node = ap_node_at(low->m, it->node), .noperands = 3};
    w.xs = ap_value_shape(low->m, w.node->in[0]);
    w.ws = ap_value_shape(low->m, w.node->in[1]);
    w.ys = ap_value_shape(low->m, w.node->out[0]);
    w.dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, w.node->out[0]));
    ap_low_call call = {.name = "conv", .about = ap_low_about(low, it), .loc = it->loc}, copy;
    ap_low_place final;
    ap_conv_trail t;
    bool copied;
    read_dims(&w);
    through_trail(&w, g, &t);
    AP_TRY(place_result(&w, &t, &final, &copied));
    const ap_low_value *rv = &low->value[t.root];
    for (int f = 0; f < rv->nfactors; f++) {
        if (rv->extent[f] == 0)
            return AP_OK;
    }
    AP_TRY(place_operand(&w));
    AP_TRY(place_weights(&w));
    AP_TRY(add_steps(&w, g, t.root));
    copy = call;
    if (rv->direct && rv->replicated) {
        copy.when_mask = rv->replicated;
        copy.when = AP_WHEN_ZERO;
    }
    AP_TRY(append_call(&w, copied ? &call : &copy));
    if (!copied)
        return AP_OK;
    copy.name = "conv_result";
    copy.about = "result of a convolution, where it belongs";
    ap_low_place from = w.y;
    for (int f = 0; f < rv->nfactors; f++)
        from.stride[t.map[f]] = w.y.stride[f];
    return ap_low_copy(low, w.dtype, rv->nfactors, rv->extent, rv->count, &from, &final, &copy);
}
