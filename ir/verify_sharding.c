/* The rules of the IR that speak of meshes: from planned on every type has one sharding, every node's types
 * satisfy its rule exactly, and an elementary step changes exactly what its name says.
 *
 * Where an axis stands in a sharding is its *place*: nowhere, on a factor, or in a partial kind. A step
 * moves each of its axes from a place of one sort to a place of another, and no other axis moves. */
#include "ir/verify.h"

#include "ir/base/text.h"
#include "ir/op.h"
#include "ir/print.h"
#include "ir/text_form.h"

#include <inttypes.h>

static const char *type_text(const ap_module *m, ap_type t)
{
    ap_text out;
    ap_text_init(&out, &m->ctx->arena);
    ap_type_print(m, t, &out);
    return ap_text_str(&out);
}

/* ---- one type ---- */

/* Reports nothing: a constant text that says what is wrong, or NULL. */
static const char *sharding_fault(const ap_module *m, ap_type_info t)
{
    const ap_sharding_info *s = ap_sharding_get(m->ctx, t.sharding);
    const ap_shape_info *shape = ap_shape_get(m->ctx, t.shape);
    uint8_t used = 0;
    if (m->state < AP_STATE_PLANNED)
        return t.sharding ? "a type has a sharding before state planned" : NULL;
    if (!t.sharding)
        return "a type has no sharding";
    if (s->mesh >= m->meshes.len)
        return "a sharding names no mesh";
    if (s->nfactors != shape->nfactors)
        return "a sharding does not fit its shape";
    const ap_mesh_info *mesh = &m->meshes.at[s->mesh];
    for (int f = 0; f < s->nfactors; f++) {
        int64_t parts = 1;
        for (int i = 0; i < ap_axes_count(s->axes[f]); i++) {
            int a = ap_axes_get(s->axes[f], i);
            if (a < 0 || a >= mesh->naxes)
                return "a sharding names no axis of its mesh";
            if (used >> a & 1)
                return "an axis occurs twice in a sharding";
            if (i > 0 && ap_mesh_time_mask(mesh) >> a & 1)
                return "time is not the major axis of a factor";
            used |= (uint8_t)(1u << a);
            parts = ap_sat_mul(parts, mesh->axis_size[a]);
        }
        if (shape->physical[f] % parts != 0)
            return "the axes of a factor do not divide its physical extent";
    }
    for (int k = 0; k < AP_PARTIAL_COUNT; k++) {
        if (s->partial[k] >> mesh->naxes)
            return "a value is partial over no axis of its mesh";
        if (s->partial[k] & ap_mesh_time_mask(mesh))
            return "a value is partial over time";
        if (s->partial[k] & used)
            return "an axis occurs twice in a sharding";
        used |= s->partial[k];
    }
    return NULL;
}

static bool check_type(ap_verifier *v, ap_type t, ap_node n, const char *what)
{
    const char *fault = sharding_fault(v->m, ap_type_get(v->m->ctx, t));
    if (!fault)
        return true;
    if (n != AP_NONE)
        ap_verify_node_error(v, n, "%s: %s", fault, type_text(v->m, t));
    else
        ap_verify_error(v, 0, "%s: %s: %s", what, fault, type_text(v->m, t));
    return false;
}

static bool is_partial(const ap_module *m, ap_type t)
{
    return ap_sharding_partial_mask(ap_sharding_get(m->ctx, ap_type_get(m->ctx, t).sharding)) != 0;
}

/* ---- elementary steps ---- */

typedef enum place_sort { PLACE_NONE, PLACE_FACTOR, PLACE_PARTIAL } place_sort;

typedef struct place {
    place_sort sort;
    int index; /* factor or partial kind */
} place;

static place find_place(const ap_sharding_info *s, int axis)
{
    for (int f = 0; f < s->nfactors; f++)
        if (ap_axes_mask(s->axes[f]) >> axis & 1)
            return (place){PLACE_FACTOR, f};
    for (int k = 0; k < AP_PARTIAL_COUNT; k++)
        if (s->partial[k] >> axis & 1)
            return (place){PLACE_PARTIAL, k};
    return (place){PLACE_NONE, 0};
}

/* From which sort of place to which an operator moves its axes. */
static bool step_move(ap_op op, place_sort *from, place_sort *to)
{
    static const struct {
        ap_op op;
        place_sort from, to;
    } moves[] = {
        {AP_OP_ALL_REDUCE, PLACE_PARTIAL, PLACE_NONE},       {AP_OP_ALL_GATHER, PLACE_FACTOR, PLACE_NONE},
        {AP_OP_REDUCE_SCATTER, PLACE_PARTIAL, PLACE_FACTOR}, {AP_OP_ALL_TO_ALL, PLACE_FACTOR, PLACE_FACTOR},
        {AP_OP_ALL_SLICE, PLACE_NONE, PLACE_FACTOR},         {AP_OP_MASK, PLACE_NONE, PLACE_PARTIAL},
    };
    for (size_t i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        if (moves[i].op == op) {
            *from = moves[i].from;
            *to = moves[i].to;
            return true;
        }
    }
    return false;
}

/* The axes of `mask` stand at the minor end of `axes`, in mesh order among themselves. */
static bool minor_end(ap_axes axes, uint8_t mask)
{
    bool begun = false;
    int before = -1;
    for (int i = 0; i < ap_axes_count(axes); i++) {
        int a = ap_axes_get(axes, i);
        bool in = mask >> a & 1;
        if ((begun && !in) || (in && a < before))
            return false;
        before = in ? a : before;
        begun = in;
    }
    return true;
}

static ap_axes without(ap_axes axes, uint8_t mask)
{
    ap_axes r = 0;
    for (int i = 0; i < ap_axes_count(axes); i++)
        if (!(mask >> ap_axes_get(axes, i) & 1))
            r = ap_axes_append(r, ap_axes_get(axes, i));
    return r;
}

static bool step_is_exact(const ap_mesh_info *mesh, ap_op op, uint8_t mask, const ap_sharding_info *x,
                          const ap_sharding_info *y)
{
    place_sort from, to;
    if (!step_move(op, &from, &to) || mask >> mesh->naxes)
        return false;
    for (int a = 0; a < mesh->naxes; a++) {
        place p = find_place(x, a), q = find_place(y, a);
        bool same = p.sort == q.sort && p.index == q.index;
        if (!(mask >> a & 1) ? !same : p.sort != from || q.sort != to || same)
            return false;
    }
    for (int f = 0; f < x->nfactors; f++)
        if (!minor_end(x->axes[f], mask) || !minor_end(y->axes[f], mask) ||
            without(x->axes[f], mask) != without(y->axes[f], mask))
            return false;
    return true;
}

/* ---- nodes ---- */

/* All operands and results on one mesh? */
static bool one_mesh(const ap_module *m, const ap_node_info *n, ap_mesh *out)
{
    *out = AP_NONE;
    for (uint32_t i = 0; i < n->nin + n->nout; i++) {
        ap_type t = ap_value_type(m, i < n->nin ? n->in[i] : n->out[i - n->nin]);
        ap_mesh mesh = ap_sharding_get(m->ctx, ap_type_get(m->ctx, t).sharding)->mesh;
        if (*out != AP_NONE && *out != mesh)
            return false;
        *out = mesh;
    }
    return true;
}

static const char *types_text(const ap_module *m, const ap_node_info *n)
{
    ap_text out;
    ap_text_init(&out, &m->ctx->arena);
    for (uint32_t i = 0; i < n->nin + n->nout; i++) {
        ap_text_add(&out, i == n->nin ? " -> " : i ? ", " : "");
        ap_type_print(m, ap_value_type(m, i < n->nin ? n->in[i] : n->out[i - n->nin]), &out);
    }
    return ap_text_str(&out);
}

static void check_step(ap_verifier *v, ap_node n, ap_mesh mesh)
{
    const ap_module *m = v->m;
    const ap_node_info *node = ap_node_at(m, n);
    const ap_sharding_info *x = ap_sharding_get(m->ctx, ap_type_get(m->ctx, ap_value_type(m, node->in[0])).sharding);
    const ap_sharding_info *y = ap_sharding_get(m->ctx, ap_type_get(m->ctx, ap_value_type(m, node->out[0])).sharding);
    if (!step_is_exact(&m->meshes.at[mesh], node->op, node->u.axes.mask, x, y))
        ap_verify_node_error(v, n, "%s over these axes does not lead from one sharding to the other: %s",
                             ap_op_get(node->op)->name, types_text(m, node));
}

/* Time stays on its factor: steps only slice what is there all the time. */
static void check_time_stays(ap_verifier *v, ap_node n, ap_mesh mesh)
{
    const ap_module *m = v->m;
    const ap_node_info *node = ap_node_at(m, n);
    if (!m->meshes.at[mesh].ntime)
        return;
    place p = find_place(ap_sharding_get(m->ctx, ap_type_get(m->ctx, ap_value_type(m, node->in[0])).sharding), 0);
    place q = find_place(ap_sharding_get(m->ctx, ap_type_get(m->ctx, ap_value_type(m, node->out[0])).sharding), 0);
    bool sliced = p.sort == PLACE_NONE && q.sort == PLACE_FACTOR;
    if (!sliced && (p.sort != q.sort || p.index != q.index))
        ap_verify_node_error(v, n, "%s moves time: %s", ap_op_get(node->op)->name, types_text(m, node));
}

static void check_node(ap_verifier *v, ap_node n)
{
    const ap_module *m = v->m;
    const ap_node_info *node = ap_node_at(m, n);
    const ap_op_info *op = ap_op_get(node->op);
    ap_mesh mesh;
    if (op->terminator || node->nin + node->nout == 0)
        return;
    if (!one_mesh(m, node, &mesh)) {
        ap_verify_node_error(v, n, "operands and results are on different meshes: %s", types_text(m, node));
        return;
    }
    if (op->planned || op->collective || op->step)
        check_time_stays(v, n, mesh);
    if (op->planned)
        return;
    if (op->collective || op->step) {
        check_step(v, n, mesh);
        return;
    }
    ap_rule rule;
    ap_assign assign;
    ap_rule_get(m, n, &m->ctx->scratch, &rule);
    if (!ap_rule_read(m, n, &rule, mesh, &assign))
        ap_verify_node_error(v, n, "the shardings satisfy no strategy of %s: %s", op->name, types_text(m, node));
}

/* ---- the module ---- */

static void check_block(ap_verifier *v, ap_block b, bool rules)
{
    const ap_block_info *block = ap_block_at(v->m, b);
    for (uint32_t i = 0; i < block->nodes.len; i++) {
        ap_node n = block->nodes.at[i];
        const ap_node_info *node = ap_node_at(v->m, n);
        for (uint32_t k = 0; k < node->nout && !rules; k++)
            check_type(v, ap_value_type(v->m, node->out[k]), n, "");
        if (node->body != AP_NONE)
            check_block(v, node->body, rules);
        if (rules)
            check_node(v, n);
    }
}

static void check_func_types(ap_verifier *v, const ap_func_info *f)
{
    ap_ctx *ctx = v->m->ctx;
    const char *name = ap_name_str(ctx, ap_name_format(ctx, "@%s", ap_name_str(ctx, f->name)));
    for (uint32_t i = 0; i < f->narguments + f->nresults; i++) {
        bool argument = i < f->narguments;
        ap_type t = argument ? ap_value_type(v->m, f->argument[i]) : f->result[i - f->narguments];
        if (check_type(v, t, AP_NONE, name) && is_partial(v->m, t))
            ap_verify_error(v, 0, "%s: %s are complete, here is a partial one: %s", name,
                            argument ? "arguments" : "results", type_text(v->m, t));
    }
}

/* Symbols are there all the time. */
static void check_symbol_time(ap_verifier *v, const ap_symbol_info *s, const char *name)
{
    ap_sharding sharding = ap_type_get(v->m->ctx, ap_value_type(v->m, s->value)).sharding;
    const ap_sharding_info *info = ap_sharding_get(v->m->ctx, sharding);
    if (sharding && ap_sharding_split_mask(info) & ap_mesh_time_mask(&v->m->meshes.at[info->mesh]))
        ap_verify_error(v, 0, "%s: a symbol is split over time", name);
}

void ap_verify_shardings(ap_verifier *v)
{
    ap_module *m = v->m;
    for (ap_symbol i = 0; i < m->symbols.len; i++) {
        const ap_symbol_info *s = &m->symbols.at[i];
        if (s->kind == AP_SYMBOL_KIND_COUNT)
            continue;
        const char *name = ap_name_str(m->ctx, ap_name_format(m->ctx, "@%s", ap_name_str(m->ctx, s->name)));
        if (check_type(v, ap_value_type(m, s->value), AP_NONE, name))
            check_symbol_time(v, s, name);
    }
    for (ap_func f = 0; f < m->funcs.len; f++) {
        v->func = f;
        check_func_types(v, &m->funcs.at[f]);
        check_block(v, m->funcs.at[f].body, false);
    }
    if (v->status != AP_OK || m->state < AP_STATE_PLANNED)
        return;
    for (ap_func f = 0; f < m->funcs.len; f++) {
        v->func = f;
        check_block(v, m->funcs.at[f].body, true);
    }
}
