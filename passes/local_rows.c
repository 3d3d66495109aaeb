/* A group as one nest of sections.
 *
 *     softmax over t                   stage 0, inner: load x, reduce max -> m
 *     for b h s:                       stage 1, inner: sub, exp -> row temporary; reduce sum -> z
 *         sections in order            stage 2, inner: temporary / z, store
 *
 * A value's stage counts the reductions that it waits for. Row values of a stage stand before its inner section. An
 * inner value needed in a later stage is computed again when that is cheap (x - mean), else kept for the length of
 * the row (exp). */
#include "passes/local.h"

#include "ir/text_form.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define MAX_STAGE 6                       /* two sections a stage, 16 in a nest */
#define MAX_TEMP_BYTES ((int64_t)1 << 18) /* all row temporaries of a nest: they live on the stack */
#define CHEAP 4                           /* operations and loads that may be repeated */

typedef struct row_member {
    bool inner, stored, known;
    int stage, temp; /* temp -1: none */
    int cost;
    uint32_t seen; /* bit per stage in which it is computed */
    uint32_t sop;
    uint8_t section; /* of the sop, when inner */
    uint32_t fold;   /* reduce: the REDUCE */
} row_member;

typedef struct rows {
    ap_low *low;
    const ap_low_group *g;
    uint32_t group;
    row_member *mb;
    int stage, last_stage;
    int64_t inner_count, temp_bytes;
    ap_low_nest nest;
} rows;

static const ap_low_item *item_of(const rows *r, uint32_t i)
{
    return &r->low->items.at[r->g->members.at[i].item];
}

static const ap_node_info *node_of(const rows *r, uint32_t i)
{
    return ap_node_at(r->low->m, item_of(r, i)->node);
}

/* Index of the member that computes operand k of member i; AP_NONE when it comes from outside. */
static uint32_t member_of(const rows *r, uint32_t i, uint32_t k)
{
    if (!ap_low_use_is_element(item_of(r, i), k))
        return AP_NONE;
    uint32_t item = r->low->value[ap_low_root(r->low, node_of(r, i)->in[k])].item;
    for (uint32_t j = 0; item != AP_NONE && j < i; j++) {
        if (r->g->members.at[j].item == item)
            return j;
    }
    return AP_NONE;
}

/* ---- stages and temporaries ---- */

static bool moves_inside(const ap_low_group *g, const int8_t *loops)
{
    for (int f = 0; f < AP_MAX_FACTORS; f++) {
        if (loops[f] >= 0 && g->inner[loops[f]])
            return true;
    }
    return false;
}

static int own_cost(const rows *r, uint32_t i)
{
    if (item_of(r, i)->kind == AP_LOW_POINTWISE)
        return ap_op_get(node_of(r, i)->op)->flops_per_element;
    return item_of(r, i)->kind == AP_LOW_GATHER ? CHEAP + 1 : 1;
}

/* A product whose extreme is taken is not computed again: inside a fused multiply-add it would not be rounded, and exp
 * of what it then differs by from the extreme is infinite where numbers are large. */
static void keep_products(rows *r, uint32_t reduce)
{
    ap_reduce_kind kind = node_of(r, reduce)->u.reduce.kind;
    uint32_t j = member_of(r, reduce, 0);
    if (j == AP_NONE || (kind != AP_REDUCE_MAX && kind != AP_REDUCE_MIN) || item_of(r, j)->kind != AP_LOW_POINTWISE)
        return;
    if (ap_op_scalar(node_of(r, j)->op) == AP_PW_MUL && r->mb[j].cost <= CHEAP)
        r->mb[j].cost = CHEAP + 1;
}

static void analyse(rows *r)
{
    for (uint32_t i = 0; i < r->g->members.len; i++) {
        row_member *m = &r->mb[i];
        int8_t loops[AP_MAX_FACTORS];
        ap_low_result_loops(r->low, &r->g->members.at[i], loops);
        m->inner = moves_inside(r->g, loops);
        m->temp = -1;
        m->cost = own_cost(r, i);
        for (uint32_t k = 0; k < node_of(r, i)->nin; k++) {
            uint32_t j = member_of(r, i, k);
            if (j == AP_NONE) {
                m->cost += 1;
                continue;
            }
            m->stage = m->stage > r->mb[j].stage ? m->stage : r->mb[j].stage;
            m->cost += r->mb[j].inner ? r->mb[j].cost : 0;
        }
        if (item_of(r, i)->kind == AP_LOW_REDUCE) {
            m->stage++;
            keep_products(r, i);
        }
        r->last_stage = m->stage > r->last_stage ? m->stage : r->last_stage;
    }
}

bool ap_low_stages_fit(ap_low *low, const ap_low_group *g)
{
    rows r = {.low = low, .g = g, .mb = AP_NEW_ARRAY(low->scratch, row_member, g->members.len)};
    analyse(&r);
    return r.last_stage <= MAX_STAGE;
}

static bool take_temp(rows *r, row_member *m, ap_dtype dtype)
{
    int64_t bytes;
    if (r->nest.ntemps == 8 || !ap_mul_i64(r->inner_count, ap_dtype_bytes(dtype), &bytes) ||
        bytes > MAX_TEMP_BYTES - r->temp_bytes)
        return false;
    r->temp_bytes += bytes;
    r->nest.temp_dtype[r->nest.ntemps] = dtype;
    m->temp = r->nest.ntemps++;
    return true;
}

/* Member i is wanted in the inner section of `stage`: says where it will be computed and kept. */
static void need(rows *r, uint32_t i, int stage)
{
    row_member *m = &r->mb[i];
    if (!m->inner || m->seen >> stage & 1 || (m->temp >= 0 && m->stage < stage))
        return;
    if (m->stage < stage && m->cost > CHEAP &&
        take_temp(r, m, ap_type_dtype(r->low->ctx, ap_value_type(r->low->m, ap_low_result(r->low, item_of(r, i)))))) {
        need(r, i, m->stage);
        return;
    }
    m->seen |= 1u << stage;
    for (uint32_t k = 0; k < node_of(r, i)->nin; k++) {
        uint32_t j = member_of(r, i, k);
        if (j != AP_NONE)
            need(r, j, stage);
    }
}

static void choose_temps(rows *r)
{
    for (int stage = r->last_stage; stage >= 0; stage--) {
        for (uint32_t i = 0; i < r->g->members.len; i++) {
            const row_member *m = &r->mb[i];
            uint32_t arg = item_of(r, i)->kind == AP_LOW_REDUCE ? member_of(r, i, 0) : AP_NONE;
            if (arg != AP_NONE && m->stage == stage + 1)
                need(r, arg, stage);
            if (m->inner && m->stored && m->stage == stage)
                need(r, i, stage);
        }
    }
}

/* ---- sops ---- */

static void add_strides(int n, const int64_t *stride, const int8_t *loops, int64_t out[AP_MAX_LOOPS])
{
    memset(out, 0, AP_MAX_LOOPS * sizeof *out);
    for (int f = 0; f < n; f++) {
        if (loops[f] >= 0)
            out[loops[f]] += stride[f];
    }
}

static uint32_t member_sop(rows *r, uint32_t i);

static uint32_t operand_sop(rows *r, uint32_t i, uint32_t k)
{
    ap_low *low = r->low;
    uint32_t j = member_of(r, i, k);
    if (j != AP_NONE)
        return member_sop(r, j);
    ap_value root = ap_low_root(low, node_of(r, i)->in[k]);
    const ap_low_value *rv = &low->value[root];
    ap_dtype dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, root));
    if (rv->source == AP_LOW_SPLAT)
        return ap_low_nest_const(&r->nest, dtype, rv->splat);
    int8_t loops[AP_MAX_FACTORS];
    ap_low_operand_loops(low, &r->g->members.at[i], k, loops);
    if (rv->source == AP_LOW_IOTA)
        return ap_low_nest_iota(&r->nest, root, loops);
    int64_t stride[AP_MAX_LOOPS];
    add_strides(rv->nfactors, rv->place.stride, loops, stride);
    return ap_low_nest_load(&r->nest, &rv->place.ref, dtype, stride);
}

static uint32_t gather_sop(rows *r, uint32_t i)
{
    ap_low *low = r->low;
    const ap_node_info *n = node_of(r, i);
    const ap_low_value *data = &low->value[n->in[0]];
    ap_type_info t = ap_type_get(low->ctx, ap_value_type(low->m, n->in[0]));
    ap_low_place pl;
    ap_status placed = ap_low_place_of(low, n->in[0], &pl);
    assert(placed == AP_OK);
    (void)placed;
    ap_sop s = {.kind = AP_SOP_GATHER, .dtype = t.dtype};
    ap_affine first = {0};
    int8_t loops[AP_MAX_FACTORS];
    for (int f = 0; f < data->nfactors; f++) {
        int to = ap_spec_side_find(&n->u.spec->result, n->u.spec->operand[0].letter[f]);
        loops[f] = to < 0 ? -1 : r->g->members.at[i].loop[to];
        if (to >= 0)
            continue;
        s.stride = pl.stride[f];
        s.extent = data->extent[f];
        s.limit = ap_shape_get(low->ctx, t.shape)->logical[f];
        if (t.sharding)
            ap_low_shard_start(low, ap_sharding_get(low->ctx, t.sharding), data->extent, f, &first);
    }
    int64_t stride[AP_MAX_LOOPS];
    add_strides(data->nfactors, pl.stride, loops, stride);
    s.arg[0] = operand_sop(r, i, 1);
    if (r->nest.sops.at[s.arg[0]].dtype != AP_I64)
        s.arg[0] = ap_low_nest_pointwise(&r->nest, AP_PW_CAST, AP_I64, 1, s.arg);
    s.imm.i = (int64_t)ap_low_nest_int(&r->nest, &first);
    s.operand = (uint8_t)ap_low_nest_operand(&r->nest, &pl.ref, t.dtype, false, stride);
    return ap_low_nest_add(&r->nest, s);
}

/* mask: the ranks at coordinate 0 of the new partial axes keep the value, the others have 0. */
static uint32_t mask_sop(rows *r, uint32_t i)
{
    ap_low *low = r->low;
    const ap_node_info *n = node_of(r, i);
    ap_type_info from = ap_type_get(low->ctx, ap_value_type(low->m, n->in[0]));
    ap_type_info to = ap_type_get(low->ctx, ap_value_type(low->m, n->out[0]));
    uint8_t axes = ap_sharding_partial_mask(ap_sharding_get(low->ctx, to.sharding)) &
                   (uint8_t)~ap_sharding_partial_mask(ap_sharding_get(low->ctx, from.sharding));
    ap_affine sum = {0};
    for (int a = 0; a < AP_MAX_AXES; a++)
        sum.step[a] = axes >> a & 1;
    ap_low_nest *nest = &r->nest;
    ap_sop index = {.kind = AP_SOP_INDEX, .dtype = AP_I64, .imm.i = (int64_t)ap_low_nest_int(nest, &sum)};
    uint32_t zero[2] = {ap_low_nest_add(nest, index), ap_low_nest_const(nest, AP_I64, (ap_scalar){.i = 0})};
    uint32_t arg[3];
    arg[0] = ap_low_nest_pointwise(nest, AP_PW_EQ, AP_BOOL, 2, zero);
    arg[1] = operand_sop(r, i, 0);
    ap_scalar nothing = {.i = 0}; /* also the bits of +0.0 */
    arg[2] = ap_low_nest_const(nest, to.dtype, nothing);
    return ap_low_nest_pointwise(nest, AP_PW_SELECT, to.dtype, 3, arg);
}

static uint32_t compute_sop(rows *r, uint32_t i)
{
    const ap_node_info *n = node_of(r, i);
    uint32_t arg[3] = {0};
    switch (item_of(r, i)->kind) {
    case AP_LOW_GATHER:
        return gather_sop(r, i);
    case AP_LOW_INDEX:
        return ap_low_nest_check(&r->nest, operand_sop(r, i, 0), n->u.index.limit);
    case AP_LOW_MASK:
        return mask_sop(r, i);
    default:
        break;
    }
    for (uint32_t k = 0; k < n->nin; k++)
        arg[k] = operand_sop(r, i, k);
    ap_dtype dtype = ap_type_dtype(r->low->ctx, ap_value_type(r->low->m, n->out[0]));
    return ap_low_nest_pointwise(&r->nest, ap_op_scalar(n->op), dtype, (int)n->nin, arg);
}

static uint32_t member_sop(rows *r, uint32_t i)
{
    row_member *m = &r->mb[i];
    uint8_t section = (uint8_t)(r->nest.nsections - 1);
    if (m->known && (!m->inner || m->section == section))
        return m->sop;
    assert(m->inner || item_of(r, i)->kind != AP_LOW_REDUCE);
    uint32_t sop;
    if (m->temp >= 0 && m->stage < r->stage) {
        ap_sop load = {.kind = AP_SOP_TEMP_LOAD, .dtype = r->nest.temp_dtype[m->temp], .imm.i = m->temp};
        sop = ap_low_nest_add(&r->nest, load);
    } else {
        sop = compute_sop(r, i);
    }
    m->known = true;
    m->sop = sop;
    m->section = section;
    return sop;
}

static bool is_half(ap_dtype t)
{
    return t == AP_F16 || t == AP_BF16;
}

/* Sums and products of 16-bit floats are folded in f32. */
static void reduce_sop(rows *r, uint32_t i)
{
    const ap_node_info *n = node_of(r, i);
    ap_dtype dtype = ap_type_dtype(r->low->ctx, ap_value_type(r->low->m, n->out[0]));
    uint32_t arg = operand_sop(r, i, 0);
    bool widen = is_half(dtype) && (n->u.reduce.kind == AP_REDUCE_SUM || n->u.reduce.kind == AP_REDUCE_PROD);
    if (widen)
        arg = ap_low_nest_pointwise(&r->nest, AP_PW_CAST, AP_F32, 1, &arg);
    ap_sop s = {.kind = AP_SOP_REDUCE, .dtype = widen ? AP_F32 : dtype, .reduce = (uint8_t)n->u.reduce.kind};
    s.arg[0] = arg;
    r->mb[i].fold = ap_low_nest_add(&r->nest, s);
}

static void store_member(rows *r, uint32_t i)
{
    ap_low *low = r->low;
    ap_value root = ap_low_result(low, item_of(r, i));
    const ap_low_value *rv = &low->value[root];
    int8_t loops[AP_MAX_FACTORS];
    int64_t stride[AP_MAX_LOOPS];
    ap_low_result_loops(low, &r->g->members.at[i], loops);
    add_strides(rv->nfactors, rv->place.stride, loops, stride);
    ap_low_nest_store(&r->nest, &rv->place.ref, ap_type_dtype(low->ctx, ap_value_type(low->m, root)), stride,
                      r->mb[i].sop);
}

static void row_section(rows *r)
{
    ap_low_nest_section(&r->nest, false);
    for (uint32_t i = 0; i < r->g->members.len; i++) {
        row_member *m = &r->mb[i];
        if (m->inner || m->stage != r->stage)
            continue;
        if (item_of(r, i)->kind == AP_LOW_REDUCE) {
            ap_dtype dtype = ap_type_dtype(r->low->ctx, ap_value_type(r->low->m, node_of(r, i)->out[0]));
            m->sop = m->fold;
            if (r->nest.sops.at[m->fold].dtype != dtype)
                m->sop = ap_low_nest_pointwise(&r->nest, AP_PW_CAST, dtype, 1, &m->fold);
            m->known = true;
        } else {
            member_sop(r, i);
        }
        if (m->stored)
            store_member(r, i);
    }
}

static void inner_section(rows *r)
{
    ap_low_nest_section(&r->nest, true);
    for (uint32_t i = 0; i < r->g->members.len; i++) {
        const row_member *m = &r->mb[i];
        if (item_of(r, i)->kind == AP_LOW_REDUCE && m->stage == r->stage + 1)
            reduce_sop(r, i);
        if (!m->inner || m->stage != r->stage)
            continue;
        if (m->temp >= 0) {
            ap_sop s = {.kind = AP_SOP_TEMP_STORE, .dtype = r->nest.temp_dtype[m->temp], .imm.i = m->temp};
            s.arg[0] = member_sop(r, i);
            ap_low_nest_add(&r->nest, s);
        }
        if (m->stored) {
            member_sop(r, i);
            store_member(r, i);
        }
    }
}

/* ---- the call ---- */

/* "add_layernorm": composites and operators in order, three at most. */
static const char *group_name(const rows *r, ap_text *about)
{
    ap_text t;
    const char *part[48];
    uint32_t nparts = 0;
    ap_text_init(&t, r->low->scratch);
    for (uint32_t i = 0; i < r->g->members.len; i++) {
        const char *op = ap_op_get(node_of(r, i)->op)->name;
        ap_text_addf(about, "%s%s", i ? ", " : "", op);
        const char *label = ap_name_str(r->low->ctx, item_of(r, i)->label);
        const char *p = *label && strcmp(label, "fused") != 0 ? label : op; /* what passes/rows.c calls the nameless */
        bool seen = false;
        for (uint32_t j = 0; j < nparts; j++)
            seen = seen || !strcmp(part[j], p);
        if (!seen && nparts < 48)
            part[nparts++] = p;
    }
    for (uint32_t j = 0; j < nparts && j < 3; j++)
        ap_text_addf(&t, "%s%s", j ? "_" : "", part[j]);
    return ap_text_str(&t);
}

/* Places of everything read from outside and written, before the nest is built: this may emit calls of its own. */
static ap_status resolve_places(rows *r, ap_low_call *call)
{
    ap_low *low = r->low;
    for (uint32_t i = 0; i < r->g->members.len; i++) {
        const ap_node_info *n = node_of(r, i);
        for (uint32_t k = 0; k < n->nin; k++) {
            bool element = ap_low_use_is_element(item_of(r, i), k);
            ap_low_place unused;
            if (member_of(r, i, k) == AP_NONE &&
                (!element || low->value[ap_low_root(low, n->in[k])].source == AP_LOW_MEMORY))
                AP_TRY(ap_low_place_of(low, n->in[k], &unused));
        }
    }
    for (uint32_t i = 0; i < r->g->members.len; i++) {
        ap_value root = ap_low_result(low, item_of(r, i));
        ap_low_place unused;
        r->mb[i].stored = ap_low_group_needs_store(low, r->group, root);
        if (!r->mb[i].stored)
            continue;
        AP_TRY(ap_low_destination(low, root, &unused));
        if (low->value[root].direct && low->value[root].replicated) {
            call->when_mask = low->value[root].replicated;
            call->when = AP_WHEN_ZERO;
        }
    }
    return AP_OK;
}

static void describe(rows *r, ap_low_call *call)
{
    uint32_t last = r->g->members.len - 1;
    ap_text about;
    ap_text_init(&about, r->low->scratch);
    call->name = group_name(r, &about);
    ap_text_add(&about, ": ");
    ap_type_print(r->low->m, ap_value_type(r->low->m, ap_low_result(r->low, item_of(r, last))), &about);
    call->about = ap_text_str(&about);
    call->loc = item_of(r, last)->loc;
    for (uint32_t i = 0; i < r->g->members.len; i++) {
        if (item_of(r, i)->kind == AP_LOW_GATHER || item_of(r, i)->kind == AP_LOW_INDEX)
            call->loc = item_of(r, i)->loc;
    }
}

ap_status ap_low_build_nest(ap_low *low, uint32_t group, ap_low_nest *nest, ap_low_call *call)
{
    const ap_low_group *g = &low->groups.at[group];
    rows r = {.low = low, .g = g, .group = group, .mb = AP_NEW_ARRAY(low->scratch, row_member, g->members.len)};
    *call = (ap_low_call){.when = AP_WHEN_ALWAYS};
    ap_low_nest_init(low, nest);
    bool any = false;
    for (uint32_t i = 0; i < g->members.len; i++)
        any = any || ap_low_group_needs_store(low, group, ap_low_result(low, item_of(&r, i)));
    if (!any)
        return AP_OK;
    AP_TRY(resolve_places(&r, call));
    ap_low_nest_init(low, &r.nest);
    r.inner_count = 1;
    for (int l = 0; l < g->nloops; l++) {
        ap_low_nest_loop(&r.nest, g->extent[l], &g->count[l], g->inner[l]);
        if (g->inner[l] && !ap_mul_i64(r.inner_count, g->extent[l], &r.inner_count))
            r.inner_count = INT64_MAX;
    }
    analyse(&r);
    choose_temps(&r);
    for (r.stage = 0; r.stage <= r.last_stage; r.stage++) {
        row_section(&r);
        if (g->has_inner)
            inner_section(&r);
    }
    describe(&r, call);
    *nest = r.nest;
    return AP_OK;
}

/* ---- sums in their place ---- */

static ap_scalar identity_of(ap_reduce_kind kind, ap_dtype t)
{
    static const double start[] = {
        [AP_REDUCE_SUM] = 0, [AP_REDUCE_PROD] = 1, [AP_REDUCE_MAX] = -INFINITY, [AP_REDUCE_MIN] = INFINITY};
    ap_scalar x = {.f = start[kind]};
    return ap_pointwise_eval(AP_PW_CAST, AP_F64, t, &x);
}

/* The group with its loops in the order of the factors of what is summed, all of them outer ones. */
static ap_low_group in_order(ap_low *low, const ap_low_group *g, const ap_low_member *sum)
{
    ap_low_group r = *g;
    int8_t to[AP_MAX_LOOPS];
    r.has_inner = false;
    memset(r.inner, 0, sizeof r.inner);
    memset(to, -1, sizeof to);
    for (int f = 0; f < g->nloops; f++) {
        to[sum->loop[f]] = (int8_t)f;
        r.extent[f] = g->extent[sum->loop[f]];
        r.count[f] = g->count[sum->loop[f]];
    }
    memset(&r.members, 0, sizeof r.members);
    for (uint32_t i = 0; i < g->members.len; i++) {
        ap_low_member mb = g->members.at[i];
        for (int f = 0; f < AP_MAX_FACTORS; f++)
            mb.loop[f] = mb.loop[f] < 0 ? -1 : to[mb.loop[f]];
        ap_vec_push(low->scratch, &r.members, mb);
    }
    return r;
}

static ap_status fill_identity(rows *r, uint32_t i, const ap_low_call *how)
{
    const ap_node_info *n = node_of(r, i);
    const ap_low_value *v = &r->low->value[n->out[0]];
    ap_dtype dtype = ap_type_dtype(r->low->ctx, ap_value_type(r->low->m, n->out[0]));
    ap_low_call call = *how;
    ap_low_nest nest;
    call.name = "start";
    call.about = "where a sum begins";
    ap_low_nest_init(r->low, &nest);
    for (int f = 0; f < v->nfactors; f++)
        ap_low_nest_loop(&nest, v->extent[f], &v->count[f], false);
    ap_low_nest_section(&nest, false);
    uint32_t x = ap_low_nest_const(&nest, dtype, identity_of(n->u.reduce.kind, dtype));
    ap_low_nest_store(&nest, &v->place.ref, dtype, v->place.stride, x);
    return ap_low_nest_finish(&nest, &call);
}

static void fold_in_place(rows *r, uint32_t i)
{
    static const ap_scatter_kind kind[] = {[AP_REDUCE_SUM] = AP_SCATTER_ADD,
                                           [AP_REDUCE_PROD] = AP_SCATTER_MUL,
                                           [AP_REDUCE_MAX] = AP_SCATTER_MAX,
                                           [AP_REDUCE_MIN] = AP_SCATTER_MIN};
    const ap_node_info *n = node_of(r, i);
    const ap_low_value *v = &r->low->value[n->out[0]];
    int8_t loops[AP_MAX_FACTORS];
    int64_t stride[AP_MAX_LOOPS];
    ap_sop s = {.kind = AP_SOP_UPDATE, .reduce = (uint8_t)kind[n->u.reduce.kind], .imm.i = -1};
    s.dtype = ap_type_dtype(r->low->ctx, ap_value_type(r->low->m, n->out[0]));
    s.arg[0] = operand_sop(r, i, 0);
    ap_low_result_loops(r->low, &r->g->members.at[i], loops);
    add_strides(v->nfactors, v->place.stride, loops, stride);
    s.operand = (uint8_t)ap_low_nest_operand(&r->nest, &v->place.ref, s.dtype, true, stride);
    ap_low_nest_add(&r->nest, s);
}

/* for b, l, d: y[b,d] += table[id[b,l],d] * w[b,l] */
static ap_status emit_folding(ap_low *low, uint32_t group, uint32_t sum)
{
    const ap_low_group *was = &low->groups.at[group];
    ap_low_group g = in_order(low, was, &was->members.at[sum]);
    rows r = {.low = low, .g = &g, .group = group, .mb = AP_NEW_ARRAY(low->scratch, row_member, g.members.len)};
    ap_low_call call = {.when = AP_WHEN_ALWAYS};
    AP_TRY(resolve_places(&r, &call));
    describe(&r, &call);
    AP_TRY(fill_identity(&r, sum, &call));
    ap_low_nest_init(low, &r.nest);
    r.nest.ordered = true;
    for (int l = 0; l < g.nloops; l++)
        ap_low_nest_loop(&r.nest, g.extent[l], &g.count[l], false);
    analyse(&r);
    ap_low_nest_section(&r.nest, false);
    for (uint32_t i = 0; i < g.members.len; i++) {
        if (i == sum) {
            fold_in_place(&r, i);
            continue;
        }
        member_sop(&r, i);
        if (r.mb[i].stored)
            store_member(&r, i);
    }
    return ap_low_nest_finish(&r.nest, &call);
}

ap_status ap_low_emit_nest(ap_low *low, uint32_t group)
{
    const ap_low_group *g = &low->groups.at[group];
    ap_low_nest nest;
    ap_low_call call;
    for (uint32_t i = 0; g->folds && ap_low_has_lookup(low, g) && i < g->members.len; i++)
        if (low->items.at[g->members.at[i].item].kind == AP_LOW_REDUCE)
            return emit_folding(low, group, i);
    AP_TRY(ap_low_build_nest(low, group, &nest, &call));
    return nest.sops.len ? ap_low_nest_finish(&nest, &call) : AP_OK;
}
