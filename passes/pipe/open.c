/* Opening composites where stages need it. */
#include "passes/pipe/open.h"

#include "ir/op.h"
#include "passes/pipe/pins.h"

#include <string.h>

/* Each operand of the yield is made in the body, and no two are one. */
static bool can_open(const ap_module *m, const ap_node_info *node)
{
    const ap_block_info *body = ap_block_at(m, node->body);
    const ap_node_info *yield = ap_node_at(m, body->nodes.at[body->nodes.len - 1]);
    for (uint32_t j = 0; j < yield->nin; j++) {
        const ap_value_info *v = ap_value_at(m, yield->in[j]);
        if (v->kind != AP_VALUE_RESULT || ap_node_at(m, v->def)->block != node->body)
            return false;
        for (uint32_t i = 0; i < j; i++)
            if (yield->in[i] == yield->in[j])
                return false;
    }
    return true;
}

/* The results become those of the nodes that make them, under their own names. */
static void move_results(ap_module *m, const ap_node_info *node, const ap_node_info *yield)
{
    for (uint32_t j = 0; j < node->nout; j++) {
        ap_value inner = yield->in[j], outer = node->out[j];
        ap_value_info *from = ap_value_at(m, inner), *to = ap_value_at(m, outer);
        ap_module_replace_uses(m, inner, outer);
        ap_node_at(m, from->def)->out[from->index] = outer;
        to->name = to->name ? to->name : from->name;
        to->def = from->def;
        to->index = from->index;
        from->name = 0;
    }
}

bool ap_open_composite(ap_module *m, uint32_t position)
{
    ap_block outer = m->funcs.at[0].body;
    ap_block_info *block = ap_block_at(m, outer);
    if (position + 1 >= block->nodes.len)
        return false;
    ap_node_info *node = ap_node_at(m, block->nodes.at[position]);
    if (node->body == AP_NONE || !can_open(m, node))
        return false;
    ap_block_info *body = ap_block_at(m, node->body);
    uint32_t parts = body->nodes.len - 1, behind = block->nodes.len - position - 1;
    ap_node_info *yield = ap_node_at(m, body->nodes.at[parts]);
    ap_node_info copy = *yield;
    copy.in = ap_arena_memdup(m->arena, yield->in, yield->nin * sizeof *yield->in);
    yield->block = AP_NONE;
    move_results(m, node, &copy);
    for (uint32_t i = 1; i < parts; i++)
        ap_vec_push(m->arena, &block->nodes, AP_NONE);
    memmove(block->nodes.at + position + parts, block->nodes.at + position + 1, behind * sizeof *block->nodes.at);
    memcpy(block->nodes.at + position, body->nodes.at, parts * sizeof *block->nodes.at);
    for (uint32_t i = 0; i < parts; i++)
        ap_node_at(m, body->nodes.at[i])->block = outer;
    node->block = AP_NONE;
    body->nodes.len = 0;
    return true;
}

void ap_open_hindrances(ap_ctx *ctx, ap_module *m, const ap_pins *pins, uint32_t nstages, ap_opened *out)
{
    *out = (ap_opened){0};
    for (bool any = true; any;) {
        bool *open;
        uint32_t n = ap_block_at(m, m->funcs.at[0].body)->nodes.len - 1;
        any = false;
        if (ap_pipe_pins_hindrances(&ctx->scratch, m, pins, nstages, &open) == 0)
            return;
        for (uint32_t k = n; k-- > 0;) { /* from behind, so that positions before stay */
            if (!open[k] || !ap_open_composite(m, k))
                continue;
            ap_vec_push(&ctx->arena, out, k);
            any = true;
        }
    }
}
