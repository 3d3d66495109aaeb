/* From a path to a module: scan, unpack, build the graph, refuse what is not supported (all of it at once),
 * bind dimensions, lower, return. */
#include "frontend/frontend.h"

#include "frontend/dims.h"
#include "frontend/legalise.h"
#include "frontend/prescan.h"
#include "ir/base/file.h"
#include "ir/base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define IR_VERSION_MAX 13
#define OPSET_MAX 28

static ap_status read_model(const ap_onnx_source *src, const ap_file *file, const Onnx__ModelProto **out)
{
    ap_ctx *ctx = src->ctx;
    const ProtobufCMessageDescriptor *root = &onnx__model_proto__descriptor;
    ap_prescan scan;
    ProtobufCMessage *message;
    AP_TRY(ap_prescan_run(ctx, file->data, file->size, root, "ONNX model", src->loc, &scan));
    AP_TRY(ap_prescan_unpack(ctx, &scan, root, "ONNX model", src->loc, &message));
    const Onnx__ModelProto *m = (const Onnx__ModelProto *)message;
    *out = m;
    if (!m->graph || !m->has_ir_version)
        return ap_error(ctx, src->loc, "this is not an ONNX model: it has no %s", m->graph ? "IR version" : "graph");
    if (m->ir_version < 1 || m->ir_version > IR_VERSION_MAX)
        return ap_error(ctx, src->loc, "IR version %" PRId64 " is not supported; 1 to %d are", m->ir_version,
                        IR_VERSION_MAX);
    if (m->ir_version >= 3 && !m->n_opset_import)
        return ap_error(ctx, src->loc, "the model does not say which opset it uses; the file may be cut off");
    int64_t opset = ap_onnx_opset(m, NULL, "");
    if (opset > OPSET_MAX)
        return ap_error(ctx, src->loc, "opset %" PRId64 " of ai.onnx is not supported; up to %d are", opset, OPSET_MAX);
    return AP_OK;
}

/* One diagnostic for each node that outputs need and that cannot be lowered. */
static ap_status find_operators(ap_ctx *ctx, ap_onnx_graph *g)
{
    ap_status status = AP_OK;
    for (uint32_t k = 0; k < g->norder; k++) {
        ap_onnx_node *n = &g->nodes.at[g->order[k]];
        const char *why;
        n->op = ap_onnx_op_find(ctx, n, &why);
        if (!n->op)
            status = ap_error(ctx, n->loc, "%s", why);
    }
    return status;
}

static void start_function(ap_legal *l, const ap_onnx_input *inputs)
{
    const ap_onnx_graph *g = l->graph;
    ap_ctx *ctx = l->ctx;
    l->func = ap_module_add_func(l->m, ap_name_make(ctx, "main"));
    l->block = l->m->funcs.at[l->func].body;
    l->value = AP_NEW_ARRAY(&ctx->scratch, ap_value, g->values.len);
    for (uint32_t v = 0; v < g->values.len; v++) {
        l->value[v] = AP_NONE;
        if (g->values.at[v].name >= l->ntaken)
            l->ntaken = g->values.at[v].name + 1;
    }
    l->taken = AP_NEW_ARRAY(&ctx->scratch, bool, l->ntaken);
    for (uint32_t i = 0; i < g->ninputs; i++) {
        uint32_t v = g->input_value[i];
        ap_shape shape = ap_shape_of_dims(ctx, inputs[i].rank, inputs[i].dim);
        ap_name name = g->values.at[v].name;
        l->value[v] = ap_func_add_argument(l->m, l->func, name, ap_type_make(ctx, inputs[i].dtype, shape, 0));
        l->taken[name] = true;
    }
}

/* What the file says about an output must agree when nothing was left open in it. */
static ap_status check_output(ap_legal *l, const Onnx__ValueInfoProto *info, ap_value v)
{
    bool is_tensor = info->type && info->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    if (!is_tensor)
        return info->type && info->type->value_case != ONNX__TYPE_PROTO__VALUE__NOT_SET
                   ? ap_error(l->ctx, l->loc, "output \"%s\" is not a tensor", info->name)
                   : AP_OK;
    const Onnx__TypeProto__Tensor *t = info->type->tensor_type;
    int dtype = ap_dtype_onnx(ap_dtype_of(l, v));
    if (t->elem_type && t->elem_type != dtype)
        return ap_error(l->ctx, l->loc, "output \"%s\" is declared as %s and computed as %s", info->name,
                        ap_onnx_dtype_str(t->elem_type) ? ap_onnx_dtype_str(t->elem_type) : "an unknown type",
                        ap_onnx_dtype_str(dtype));
    if (!t->shape || !ap_onnx_is_static(l->graph))
        return AP_OK;
    ap_dims d = ap_dims_of(l, v);
    bool same = t->shape->n_dim == (size_t)d.rank;
    for (int i = 0; same && i < d.rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = t->shape->dim[i];
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && dim->dim_value >= 0)
            same = dim->dim_value == d.at[i];
    }
    return same ? AP_OK
                : ap_error(l->ctx, l->loc, "output \"%s\" is computed as %s, which is not its declared shape",
                           info->name, ap_dims_str(l, &d));
}

static ap_status end_function(ap_legal *l)
{
    const ap_onnx_graph *g = l->graph;
    uint32_t n = (uint32_t)g->proto->n_output;
    ap_value *result = AP_NEW_ARRAY(&l->ctx->scratch, ap_value, n);
    ap_type *type = AP_NEW_ARRAY(&l->ctx->scratch, ap_type, n);
    ap_name *name = AP_NEW_ARRAY(&l->ctx->scratch, ap_name, n);
    bool *seen = AP_NEW_ARRAY(&l->ctx->scratch, bool, g->values.len);
    l->loc = g->src->loc;
    /* An initializer that is an output is read through a node that only has inputs. */
    const ap_onnx_node outputs = {.nin = n, .in = g->output_value, .loc = l->loc};
    l->node = &outputs;
    for (uint32_t i = 0; i < n; i++) {
        result[i] = ap_in(l, i);
        if (l->status)
            return l->status;
        AP_TRY(check_output(l, g->proto->output[i], result[i]));
        type[i] = ap_value_type(l->m, result[i]);
        name[i] = g->values.at[g->output_value[i]].name;
        if (seen[g->output_value[i]])
            return ap_error(l->ctx, l->loc, "two outputs are called \"%s\"", ap_name_str(l->ctx, name[i]));
        seen[g->output_value[i]] = true;
    }
    l->node = NULL;
    ap_func_set_results(l->m, l->func, n, type, name);
    ap_block_append(l->m, l->block, ap_module_add_node(l->m, AP_OP_RET, n, result, 0, 0));
    return AP_OK;
}

/* ---- figures ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void count_operators(ap_ctx *ctx, const Onnx__GraphProto *g, ap_import_info *info)
{
    const char **all = AP_NEW_ARRAY(&ctx->scratch, const char *, g->n_node);
    for (size_t i = 0; i < g->n_node; i++) {
        const char *domain = g->node[i]->domain;
        bool plain = !domain || !*domain || strcmp(domain, "ai.onnx") == 0;
        ap_name name = ap_name_format(ctx, "%s%s%s", plain ? "" : domain, plain ? "" : ".", g->node[i]->op_type);
        all[i] = ap_name_str(ctx, name);
    }
    qsort(all, g->n_node, sizeof *all, compare_names);
    info->op_name = AP_NEW_ARRAY(&ctx->arena, const char *, g->n_node);
    info->op_count = AP_NEW_ARRAY(&ctx->arena, uint32_t, g->n_node);
    for (size_t i = 0; i < g->n_node; i++) {
        if (i == 0 || strcmp(all[i], all[i - 1]) != 0)
            info->op_name[info->nops++] = all[i];
        info->op_count[info->nops - 1]++;
    }
}

static bool is_constant(const ap_module *m, ap_value v)
{
    const ap_value_info *info = ap_value_at(m, v);
    return info->kind == AP_VALUE_SYMBOL ||
           (info->kind == AP_VALUE_RESULT && ap_node_at(m, info->def)->op == AP_OP_CONSTANT);
}

static void list_origins(const ap_legal *l, ap_import_info *info)
{
    const ap_onnx_graph *g = l->graph;
    AP_VEC(ap_origin) all = {0};
    for (uint32_t k = 0; k < g->norder; k++) {
        const ap_onnx_node *n = &g->nodes.at[g->order[k]];
        for (uint32_t j = 0; j < n->nout; j++) {
            ap_value v = n->out[j] == AP_NONE ? AP_NONE : l->value[n->out[j]];
            if (v == AP_NONE)
                continue;
            ap_origin o = {.value = g->values.at[n->out[j]].name, .loc = n->loc, .constant = is_constant(l->m, v)};
            ap_vec_push(&l->ctx->arena, &all, o);
        }
    }
    info->norigins = all.len;
    info->origin = all.at;
}

static void fill_info(const ap_legal *l, ap_import_info *info)
{
    const Onnx__ModelProto *model = l->graph->model;
    memset(info, 0, sizeof *info);
    info->ir_version = model->ir_version;
    info->opset = ap_onnx_opset(model, NULL, "");
    info->producer = ap_arena_strdup(&l->ctx->arena, model->producer_name ? model->producer_name : "");
    info->onnx_nodes = (uint32_t)model->graph->n_node;
    count_operators(l->ctx, model->graph, info);
    list_origins(l, info);
    for (ap_symbol s = 0; s < l->m->symbols.len; s++) {
        const ap_symbol_info *symbol = &l->m->symbols.at[s];
        ap_type type = ap_value_type(l->m, symbol->value);
        if (symbol->kind != AP_SYMBOL_PARAM || !ap_dtype_is_float(ap_type_dtype(l->ctx, type)))
            continue;
        info->parameters = ap_sat_add(info->parameters, ap_shape_count(ap_type_shape(l->ctx, type)));
        info->parameter_bytes = ap_sat_add(info->parameter_bytes, ap_type_bytes(l->ctx, type));
    }
}

static ap_status import_mapped(const ap_onnx_source *src, const ap_file *file, const ap_import_options *opt,
                               ap_module **out, ap_import_info *out_info)
{
    const Onnx__ModelProto *model;
    ap_onnx_graph graph;
    ap_onnx_input *inputs;
    AP_TRY(read_model(src, file, &model));
    AP_TRY(ap_onnx_graph_build(src, model, &graph));
    AP_TRY(find_operators(src->ctx, &graph));
    AP_TRY(ap_onnx_bind_dims(&graph, opt, &inputs));
    ap_legal l = {.ctx = src->ctx, .m = ap_module_create(src->ctx), .graph = &graph};
    l.m->folder = src->folder;
    l.folder = ap_module_create(src->ctx);
    l.folder->arena = &src->ctx->scratch;
    start_function(&l, inputs);
    AP_TRY(ap_legalise(&l));
    AP_TRY(end_function(&l));
    ap_module_remove_dead(l.m);
    if (out_info) {
        fill_info(&l, out_info);
        out_info->batch_dim = ap_onnx_batch_dims(&graph, opt, inputs);
    }
    *out = l.m;
    return AP_OK;
}

ap_status ap_onnx_import(ap_ctx *ctx, const char *path, const ap_import_options *opt, ap_module **out,
                         ap_import_info *out_info)
{
    ap_file file;
    *out = NULL;
    AP_TRY(ap_file_map(ctx, path, &file));
    ap_onnx_source src = ap_onnx_source_make(ctx, path, opt->weights_absent);
    ap_status status = import_mapped(&src, &file, opt, out, out_info);
    ap_file_unmap(&file);
    return status;
}
