/* The evaluator's frame: ranks, values, arguments and results. What a node computes is in its `eval` column
 * (ir/op/eval_*.c). */
#include "ir/eval.h"

#include "ir/op/columns.h"
#include "ir/text_form.h"

#include <string.h>

/* ---- what the columns use ---- */

static ap_tensor **slot(const ap_eval *e, ap_value v, int32_t rank)
{
    return &e->value[(size_t)v * (size_t)e->nranks + (size_t)rank];
}

const ap_tensor *ap_eval_operand(const ap_eval *e, ap_node n, uint32_t i)
{
    return *slot(e, ap_node_at(e->m, n)->in[i], e->rank);
}

ap_status ap_eval_mismatch(const ap_eval *e, ap_node n)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    return ap_fail(e->m->ctx, AP_ERR_BUG, node->loc, "local shapes of %s do not fit together on rank %d",
                   ap_op_get(node->op)->name, e->rank);
}

/* What the rank has of the value; false when its sharding does not divide it. */
static bool local_shape(const ap_eval *e, ap_value v, int32_t rank, ap_shape_info *out)
{
    ap_type_info t = ap_type_get(e->m->ctx, ap_value_type(e->m, v));
    const ap_shape_info *whole = ap_shape_get(e->m->ctx, t.shape);
    const ap_sharding_info *s = ap_sharding_get(e->m->ctx, t.sharding);
    int32_t coords[AP_MAX_AXES];
    int64_t start[AP_MAX_FACTORS];
    *out = *whole;
    if (!t.sharding)
        return true;
    ap_mesh_coords(&e->m->meshes.at[s->mesh], rank, coords);
    return ap_mesh_shard(&e->m->meshes.at[s->mesh], whole, s, coords, out, start);
}

ap_status ap_eval_result(ap_eval *e, ap_node n, uint32_t i, ap_tensor **out)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    ap_shape_info local;
    if (!local_shape(e, node->out[i], e->rank, &local))
        return ap_eval_mismatch(e, n);
    ap_tensor *r = AP_NEW(e->arena, ap_tensor);
    if (!ap_tensor_make(e->arena, ap_type_dtype(e->m->ctx, ap_value_type(e->m, node->out[i])), &local, r))
        return ap_error(e->m->ctx, node->loc, "too large to evaluate");
    *slot(e, node->out[i], e->rank) = r;
    *out = r;
    return AP_OK;
}

ap_dtype ap_eval_dtype(const ap_eval *e, ap_node n, uint32_t i)
{
    ap_type_info t = ap_type_get(e->m->ctx, ap_value_type(e->m, ap_node_at(e->m, n)->out[i]));
    if (!ap_dtype_is_float(t.dtype))
        return t.dtype;
    if (!e->round_f32)
        return AP_F64;
    bool partial = t.sharding && ap_sharding_partial_mask(ap_sharding_get(e->m->ctx, t.sharding));
    return partial && ap_dtype_bytes(t.dtype) < 4 ? AP_F32 : t.dtype;
}

void ap_eval_round(const ap_eval *e, ap_node n, uint32_t i, ap_tensor *t)
{
    ap_dtype dtype = ap_eval_dtype(e, n, i);
    for (int64_t k = 0; k < t->count; k++)
        t->at[k] = ap_scalar_round(dtype, t->at[k]);
}

/* ---- walking ---- */

static const ap_mesh_info *mesh_of(const ap_module *m, ap_type type)
{
    ap_sharding s = ap_type_get(m->ctx, type).sharding;
    return s ? &m->meshes.at[ap_sharding_get(m->ctx, s)->mesh] : NULL;
}

static ap_status load_symbol(ap_eval *e, ap_value v)
{
    const ap_symbol_info *sym = &e->m->symbols.at[ap_value_at(e->m, v)->def];
    ap_type type = ap_value_type(e->m, v);
    const ap_mesh_info *mesh = mesh_of(e->m, type);
    ap_tensor *whole = AP_NEW(e->arena, ap_tensor);
    AP_TRY(ap_tensor_from_data(e->m, e->arena, &sym->data, type, sym->loc, whole));
    return ap_tensor_scatter(e->m->ctx, e->arena, mesh, type, whole, e->nranks, sym->loc, slot(e, v, 0));
}

static ap_status need_operands(ap_eval *e, ap_node n)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    for (uint32_t i = 0; i < node->nin; i++) {
        ap_value v = node->in[i];
        if (*slot(e, v, 0))
            continue;
        if (ap_value_at(e->m, v)->kind != AP_VALUE_SYMBOL)
            return ap_fail(e->m->ctx, AP_ERR_BUG, node->loc, "operand %u of %s is not computed yet", i,
                           ap_op_get(node->op)->name);
        AP_TRY(load_symbol(e, v));
    }
    return AP_OK;
}

/* Where all operands are the very tensors of rank 0, so are the results if they are as large: of a padded factor that
 * the operands lack the rank may have less. */
static bool share_rank0(ap_eval *e, ap_node n, int32_t rank)
{
    const ap_node_info *node = ap_node_at(e->m, n);
    if (node->nin == 0)
        return false;
    for (uint32_t i = 0; i < node->nin; i++) {
        if (*slot(e, node->in[i], rank) != *slot(e, node->in[i], 0))
            return false;
    }
    for (uint32_t i = 0; i < node->nout; i++) {
        const ap_tensor *first = *slot(e, node->out[i], 0);
        ap_shape_info here;
        if (!local_shape(e, node->out[i], rank, &here) ||
            memcmp(here.logical, first->shape.logical, sizeof here.logical) != 0)
            return false;
    }
    for (uint32_t i = 0; i < node->nout; i++)
        *slot(e, node->out[i], rank) = *slot(e, node->out[i], 0);
    return true;
}

ap_status ap_eval_all_ranks(ap_eval *e, ap_node n)
{
    const ap_op_info *info = ap_op_get(ap_node_at(e->m, n)->op);
    AP_TRY(need_operands(e, n));
    if (!info->eval)
        return ap_fail(e->m->ctx, AP_ERR_BUG, ap_node_at(e->m, n)->loc, "%s cannot be evaluated", info->name);
    if (info->has_body || info->planned || info->collective || info->step)
        return info->eval(e, n);
    for (int32_t r = 0; r < e->nranks; r++) {
        if (r > 0 && share_rank0(e, n, r))
            continue;
        e->rank = r;
        AP_TRY(info->eval(e, n));
    }
    return AP_OK;
}

/* ---- a function ---- */

static const ap_mesh_info *func_mesh(const ap_module *m, const ap_func_info *f)
{
    for (uint32_t i = 0; i < f->narguments; i++) {
        const ap_mesh_info *mesh = mesh_of(m, ap_value_type(m, f->argument[i]));
        if (mesh)
            return mesh;
    }
    const ap_block_info *body = ap_block_at(m, f->body);
    for (uint32_t i = 0; i < body->nodes.len; i++) {
        const ap_node_info *node = ap_node_at(m, body->nodes.at[i]);
        for (uint32_t k = 0; k < node->nin + node->nout; k++) {
            ap_value v = k < node->nin ? node->in[k] : node->out[k - node->nin];
            const ap_mesh_info *mesh = mesh_of(m, ap_value_type(m, v));
            if (mesh)
                return mesh;
        }
    }
    return NULL;
}

static ap_status set_argument(ap_eval *e, ap_value v, const ap_tensor *input)
{
    const ap_module *m = e->m;
    const char *name = ap_name_str(m->ctx, ap_value_at(m, v)->name);
    ap_type type = ap_value_type(m, v);
    ap_type_info t = ap_type_get(m->ctx, type);
    const ap_shape_info *shape = ap_shape_get(m->ctx, t.shape);
    if (input->dtype != t.dtype)
        return ap_error(m->ctx, 0, "input \"%s\" is %s, not %s", name, ap_dtype_str(input->dtype),
                        ap_dtype_str(t.dtype));
    if (!ap_shape_same_dims(&input->shape, shape))
        return ap_error(m->ctx, 0, "input \"%s\" has shape %s, not %s", name, ap_shape_text(m, &input->shape),
                        ap_shape_text(m, shape));
    ap_tensor *whole = AP_NEW(e->arena, ap_tensor);
    if (!ap_tensor_from_logical(e->arena, input, shape, whole))
        return ap_error(m->ctx, 0, "input \"%s\" is too large to evaluate", name);
    return ap_tensor_scatter(m->ctx, e->arena, mesh_of(m, type), type, whole, e->nranks, 0, slot(e, v, 0));
}

static ap_status get_result(ap_eval *e, ap_value v, ap_loc loc, ap_tensor *out)
{
    ap_type type = ap_value_type(e->m, v);
    ap_tensor whole;
    AP_TRY(ap_tensor_assemble(e->m->ctx, e->arena, mesh_of(e->m, type), type, slot(e, v, 0), loc, &whole));
    if (!ap_tensor_to_logical(e->m->ctx, e->arena, &whole, out))
        return ap_error(e->m->ctx, loc, "too large to evaluate");
    return AP_OK;
}

static ap_status eval_func(ap_eval *e, const ap_func_info *f, const ap_tensor *inputs, ap_tensor *outputs)
{
    const ap_block_info *body = ap_block_at(e->m, f->body);
    for (uint32_t i = 0; i < f->narguments; i++)
        AP_TRY(set_argument(e, f->argument[i], &inputs[i]));
    for (uint32_t i = 0; i + 1 < body->nodes.len; i++)
        AP_TRY(ap_eval_all_ranks(e, body->nodes.at[i]));
    if (body->nodes.len == 0)
        return ap_fail(e->m->ctx, AP_ERR_BUG, 0, "a function without ret");
    ap_node ret = body->nodes.at[body->nodes.len - 1];
    AP_TRY(need_operands(e, ret));
    const ap_node_info *node = ap_node_at(e->m, ret);
    for (uint32_t i = 0; i < node->nin; i++)
        AP_TRY(get_result(e, node->in[i], node->loc, &outputs[i]));
    return AP_OK;
}

ap_status ap_eval_func(ap_module *m, ap_func f, ap_arena *arena, const ap_tensor *inputs, ap_tensor *outputs)
{
    const ap_func_info *func = &m->funcs.at[f];
    const ap_mesh_info *mesh = func_mesh(m, func);
    ap_eval e = {.m = m, .arena = arena, .nranks = mesh ? ap_mesh_size(mesh) : 1, .round_f32 = true};
    ap_arena table;
    ap_arena_init(&table, m->ctx->scratch.out_of_memory, m->ctx->scratch.user);
    e.value = AP_NEW_ARRAY(&table, ap_tensor *, (size_t)m->values.len * (size_t)e.nranks);
    ap_status status = eval_func(&e, func, inputs, outputs);
    ap_arena_deinit(&table);
    return status;
}

ap_status ap_eval_node(ap_module *m, ap_node n, ap_arena *arena, const ap_tensor *const *operands, ap_tensor *results)
{
    ap_eval e = {.m = m, .arena = arena, .nranks = 1, .round_f32 = true};
    ap_arena table;
    ap_arena_init(&table, m->ctx->scratch.out_of_memory, m->ctx->scratch.user);
    e.value = AP_NEW_ARRAY(&table, ap_tensor *, m->values.len);
    const ap_node_info *node = ap_node_at(m, n);
    for (uint32_t i = 0; i < node->nin; i++) {
        ap_tensor *t = AP_NEW(&table, ap_tensor);
        *t = *operands[i];
        *slot(&e, node->in[i], 0) = t;
    }
    ap_status status = ap_eval_all_ranks(&e, n);
    for (uint32_t i = 0; i < node->nout && status == AP_OK; i++)
        results[i] = **slot(&e, node->out[i], 0);
    ap_arena_deinit(&table);
    return status;
}
