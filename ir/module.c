/* Building a module: symbols, functions, blocks, nodes. Changing one: ir/module_edit.c. */
#include "ir/module.h"

#include "ir/op.h"

#include <assert.h>
#include <string.h>

ap_module *ap_module_create(ap_ctx *ctx)
{
    ap_module *m = AP_NEW(&ctx->arena, ap_module);
    m->ctx = ctx;
    m->arena = &ctx->arena;
    return m;
}

static ap_value add_value(ap_module *m, ap_value_info info)
{
    ap_vec_push(m->arena, &m->values, info);
    return m->values.len - 1;
}

ap_symbol ap_module_add_symbol(ap_module *m, ap_symbol_kind kind, ap_name name, ap_type type, ap_data data, ap_loc loc)
{
    ap_symbol s = m->symbols.len;
    ap_value v = add_value(m, (ap_value_info){.type = type, .name = name, .kind = AP_VALUE_SYMBOL, .def = s});
    ap_vec_push(m->arena, &m->symbols,
                (ap_symbol_info){.kind = kind, .name = name, .value = v, .data = data, .loc = loc});
    return s;
}

ap_mesh ap_module_add_mesh(ap_module *m, const ap_mesh_info *info)
{
    ap_vec_push(m->arena, &m->meshes, *info);
    return m->meshes.len - 1;
}

ap_func ap_module_add_func(ap_module *m, ap_name name)
{
    ap_vec_push(m->arena, &m->funcs, (ap_func_info){.name = name});
    ap_func f = m->funcs.len - 1;
    ap_block body = ap_module_add_block(m, f, AP_NONE);
    m->funcs.at[f].body = body;
    return f;
}

ap_value ap_func_add_argument(ap_module *m, ap_func f, ap_name name, ap_type type)
{
    uint32_t index = m->funcs.at[f].narguments;
    ap_value v =
        add_value(m, (ap_value_info){.type = type, .name = name, .kind = AP_VALUE_ARGUMENT, .def = f, .index = index});
    ap_func_info *func = &m->funcs.at[f];
    ap_value *grown = AP_NEW_ARRAY(m->arena, ap_value, index + 1);
    if (index)
        memcpy(grown, func->argument, index * sizeof *grown);
    grown[index] = v;
    bool *slot = AP_NEW_ARRAY(m->arena, bool, index + 1);
    if (index)
        memcpy(slot, func->argument_slot, index * sizeof *slot);
    func->argument = grown;
    func->argument_slot = slot;
    func->narguments = index + 1;
    return v;
}

ap_value ap_func_add_slot(ap_module *m, ap_func f, ap_name name, ap_type type)
{
    ap_value v = ap_func_add_argument(m, f, name, type);
    m->funcs.at[f].argument_slot[m->funcs.at[f].narguments - 1] = true;
    return v;
}

void ap_func_set_results(ap_module *m, ap_func f, uint32_t n, const ap_type *types, const ap_name *names)
{
    ap_func_info *func = &m->funcs.at[f];
    func->nresults = n;
    func->result = AP_NEW_ARRAY(m->arena, ap_type, n);
    func->result_name = AP_NEW_ARRAY(m->arena, ap_name, n);
    func->result_slot = AP_NEW_ARRAY(m->arena, bool, n);
    for (uint32_t i = 0; i < n; i++) {
        func->result[i] = types[i];
        func->result_name[i] = names ? names[i] : 0;
    }
}

ap_block ap_module_add_block(ap_module *m, ap_func f, ap_node parent)
{
    ap_vec_push(m->arena, &m->blocks, (ap_block_info){.parent = parent, .func = f});
    return m->blocks.len - 1;
}

ap_node ap_module_add_node(ap_module *m, ap_op op, uint32_t nin, const ap_value *in, uint32_t nout, ap_loc loc)
{
    ap_node_info n = {.op = op, .nin = nin, .nout = nout, .loc = loc, .block = AP_NONE, .body = AP_NONE};
    n.in = AP_NEW_ARRAY(m->arena, ap_value, nin);
    n.out = AP_NEW_ARRAY(m->arena, ap_value, nout);
    if (nin)
        memcpy(n.in, in, nin * sizeof *in);
    ap_node id = m->nodes.len;
    for (uint32_t i = 0; i < nout; i++)
        n.out[i] = add_value(m, (ap_value_info){.kind = AP_VALUE_RESULT, .def = id, .index = i});
    ap_vec_push(m->arena, &m->nodes, n);
    return id;
}

void ap_block_append(ap_module *m, ap_block b, ap_node n)
{
    ap_vec_push(m->arena, &m->blocks.at[b].nodes, n);
    m->nodes.at[n].block = b;
}

void ap_block_insert(ap_module *m, ap_block b, uint32_t at, ap_node n)
{
    ap_block_append(m, b, n);
    ap_block_info *block = &m->blocks.at[b];
    assert(at < block->nodes.len);
    memmove(block->nodes.at + at + 1, block->nodes.at + at, (block->nodes.len - 1 - at) * sizeof(ap_node));
    block->nodes.at[at] = n;
}

ap_status ap_module_emit(ap_module *m, ap_block b, ap_op op, uint32_t nin, const ap_value *in, ap_loc loc,
                         const ap_node_info *attributes, ap_type type, ap_value *out)
{
    ap_node n = ap_module_add_node(m, op, nin, in, 1, loc);
    if (attributes)
        m->nodes.at[n].u = attributes->u;
    ap_value v = m->nodes.at[n].out[0];
    m->values.at[v].type = type;
    AP_TRY(ap_node_infer(m, n));
    ap_block_append(m, b, n);
    if (out)
        *out = v;
    return AP_OK;
}

ap_symbol ap_module_find_symbol(const ap_module *m, const char *name)
{
    for (ap_symbol s = 0; s < m->symbols.len; s++)
        if (m->symbols.at[s].kind != AP_SYMBOL_KIND_COUNT &&
            strcmp(ap_name_str(m->ctx, m->symbols.at[s].name), name) == 0)
            return s;
    return AP_NONE;
}
