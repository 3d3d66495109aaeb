/* Changing a module: uses, dead code, copies. */
#include "ir/module.h"
#include "ir/op.h"

#include <string.h>

void ap_module_replace_uses(ap_module *m, ap_value from, ap_value to)
{
    for (ap_node n = 0; n < m->nodes.len; n++)
        for (uint32_t i = 0; i < m->nodes.at[n].nin; i++)
            if (m->nodes.at[n].in[i] == from)
                m->nodes.at[n].in[i] = to;
}

void ap_block_replace_uses(ap_module *m, ap_block b, ap_value from, ap_value to)
{
    const ap_block_info *block = ap_block_at(m, b);
    for (uint32_t i = 0; i < block->nodes.len; i++) {
        ap_node_info *n = ap_node_at(m, block->nodes.at[i]);
        for (uint32_t k = 0; k < n->nin; k++)
            if (n->in[k] == from)
                n->in[k] = to;
        if (n->body != AP_NONE)
            ap_block_replace_uses(m, n->body, from, to);
    }
}

void ap_block_drop_reshards(ap_module *m, ap_block b)
{
    ap_block_info *block = ap_block_at(m, b);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < block->nodes.len; i++) {
        ap_node id = block->nodes.at[i];
        ap_node_info *n = ap_node_at(m, id);
        if (ap_op_get(n->op)->planned) {
            ap_block_replace_uses(m, b, n->out[0], n->in[0]);
            n->block = AP_NONE;
            continue;
        }
        if (n->body != AP_NONE)
            ap_block_drop_reshards(m, n->body);
        block->nodes.at[kept++] = id;
    }
    block->nodes.len = kept;
}

uint32_t *ap_module_count_uses(const ap_module *m, ap_arena *arena)
{
    uint32_t *uses = AP_NEW_ARRAY(arena, uint32_t, m->values.len);
    for (ap_node n = 0; n < m->nodes.len; n++)
        if (m->nodes.at[n].block != AP_NONE)
            for (uint32_t i = 0; i < m->nodes.at[n].nin; i++)
                uses[m->nodes.at[n].in[i]]++;
    return uses;
}

/* Takes a node out of use: its operands lose a use, its body goes with it. */
static void drop_node(ap_module *m, ap_node n, uint32_t *uses)
{
    ap_node_info *node = ap_node_at(m, n);
    node->block = AP_NONE;
    for (uint32_t i = 0; i < node->nin; i++)
        uses[node->in[i]]--;
    if (node->body == AP_NONE)
        return;
    ap_block_info *body = ap_block_at(m, node->body);
    for (uint32_t i = 0; i < body->nodes.len; i++)
        drop_node(m, body->nodes.at[i], uses);
    body->nodes.len = 0;
}

static void sweep_block(ap_module *m, ap_block b, uint32_t *uses)
{
    ap_block_info *block = ap_block_at(m, b);
    for (uint32_t i = block->nodes.len; i-- > 0;) {
        ap_node n = block->nodes.at[i];
        const ap_node_info *node = ap_node_at(m, n);
        bool live = ap_op_get(node->op)->terminator;
        for (uint32_t r = 0; r < node->nout; r++)
            live = live || uses[node->out[r]] > 0;
        if (!live)
            drop_node(m, n, uses);
        else if (node->body != AP_NONE)
            sweep_block(m, node->body, uses);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < block->nodes.len; i++)
        if (ap_node_at(m, block->nodes.at[i])->block != AP_NONE)
            block->nodes.at[kept++] = block->nodes.at[i];
    block->nodes.len = kept;
}

void ap_module_remove_dead(ap_module *m)
{
    uint32_t *uses = ap_module_count_uses(m, &m->ctx->scratch);
    for (ap_func f = 0; f < m->funcs.len; f++)
        sweep_block(m, m->funcs.at[f].body, uses);
    for (ap_symbol s = 0; s < m->symbols.len; s++)
        if (uses[m->symbols.at[s].value] == 0)
            m->symbols.at[s].kind = AP_SYMBOL_KIND_COUNT;
}

/* ---- deep copy ---- */

static void *copy_attribute(ap_arena *arena, const ap_node_info *n, ap_node_info *out)
{
    switch (n->op) {
    case AP_OP_CONTRACT:
    case AP_OP_VIEW:
    case AP_OP_GATHER:
        return out->u.spec = ap_arena_memdup(arena, n->u.spec, sizeof *n->u.spec);
    case AP_OP_REDUCE:
        return out->u.reduce.spec = ap_arena_memdup(arena, n->u.reduce.spec, sizeof *n->u.reduce.spec);
    case AP_OP_SCATTER:
        return out->u.scatter.spec = ap_arena_memdup(arena, n->u.scatter.spec, sizeof *n->u.scatter.spec);
    case AP_OP_SLICE:
        return out->u.slice = ap_arena_memdup(arena, n->u.slice, sizeof *n->u.slice);
    case AP_OP_PAD:
        return out->u.pad = ap_arena_memdup(arena, n->u.pad, sizeof *n->u.pad);
    case AP_OP_CONV:
        return out->u.conv = ap_arena_memdup(arena, n->u.conv, sizeof *n->u.conv);
    case AP_OP_POOL:
        return out->u.pool = ap_arena_memdup(arena, n->u.pool, sizeof *n->u.pool);
    case AP_OP_CONSTANT:
        return out->u.constant = ap_arena_memdup(arena, n->u.constant, sizeof *n->u.constant);
    default:
        return NULL;
    }
}

ap_node ap_module_copy_node(ap_module *m, ap_node n)
{
    ap_node_info old = *ap_node_at(m, n);
    ap_node c = ap_module_add_node(m, old.op, old.nin, old.in, old.nout, old.loc);
    ap_node_info *copy = ap_node_at(m, c);
    copy->u = old.u;
    copy_attribute(m->arena, &old, copy);
    return c;
}

static void import_body(ap_module *m, ap_node owner, const ap_module *from, ap_block body, ap_value *map)
{
    ap_func f = ap_block_at(m, ap_node_at(m, owner)->block)->func;
    ap_block b = ap_module_add_block(m, f, owner);
    ap_node_at(m, owner)->body = b;
    for (uint32_t i = 0; i < ap_block_at(from, body)->nodes.len; i++)
        ap_module_import_node(m, b, from, ap_block_at(from, body)->nodes.at[i], map);
}

ap_node ap_module_import_node(ap_module *m, ap_block b, const ap_module *from, ap_node n, ap_value *map)
{
    const ap_node_info *old = ap_node_at(from, n);
    ap_node c = ap_module_add_node(m, old->op, old->nin, old->in, old->nout, old->loc);
    ap_node_info *node = ap_node_at(m, c);
    for (uint32_t i = 0; i < node->nin; i++)
        node->in[i] = map[old->in[i]];
    for (uint32_t i = 0; i < node->nout; i++) {
        const ap_value_info *was = ap_value_at(from, old->out[i]);
        ap_value_info *now = ap_value_at(m, node->out[i]);
        now->type = was->type;
        now->name = was->name;
        map[old->out[i]] = node->out[i];
    }
    node->u = old->u;
    copy_attribute(m->arena, old, node);
    ap_block_append(m, b, c);
    if (old->body != AP_NONE)
        import_body(m, c, from, old->body, map);
    return c;
}

ap_module *ap_module_clone(const ap_module *m)
{
    return ap_module_clone_in(m, &m->ctx->arena);
}

ap_module *ap_module_clone_in(const ap_module *m, ap_arena *a)
{
    ap_module *c = AP_NEW(a, ap_module);
    c->ctx = m->ctx;
    c->arena = a;
    c->state = m->state;
    c->folder = m->folder;
#define COPY(vec)                                                                                                      \
    for (uint32_t i = 0; i < m->vec.len; i++)                                                                          \
    ap_vec_push(a, &c->vec, m->vec.at[i])
    COPY(meshes);
    COPY(symbols);
    COPY(funcs);
    COPY(nodes);
    COPY(values);
    for (uint32_t b = 0; b < m->blocks.len; b++) {
        ap_vec_push(a, &c->blocks, (ap_block_info){.parent = m->blocks.at[b].parent, .func = m->blocks.at[b].func});
        for (uint32_t i = 0; i < m->blocks.at[b].nodes.len; i++)
            ap_vec_push(a, &c->blocks.at[b].nodes, m->blocks.at[b].nodes.at[i]);
    }
#undef COPY
    for (ap_node n = 0; n < c->nodes.len; n++) {
        ap_node_info *node = &c->nodes.at[n];
        node->in = ap_arena_memdup(a, node->in, node->nin * sizeof *node->in);
        node->out = ap_arena_memdup(a, node->out, node->nout * sizeof *node->out);
        if (node->block != AP_NONE)
            copy_attribute(a, &m->nodes.at[n], node);
    }
    for (ap_func f = 0; f < c->funcs.len; f++) {
        ap_func_info *func = &c->funcs.at[f];
        func->argument = ap_arena_memdup(a, func->argument, func->narguments * sizeof *func->argument);
        func->argument_slot = ap_arena_memdup(a, func->argument_slot, func->narguments * sizeof *func->argument_slot);
        func->result = ap_arena_memdup(a, func->result, func->nresults * sizeof *func->result);
        func->result_name = ap_arena_memdup(a, func->result_name, func->nresults * sizeof *func->result_name);
        func->result_slot = ap_arena_memdup(a, func->result_slot, func->nresults * sizeof *func->result_slot);
    }
    return c;
}
