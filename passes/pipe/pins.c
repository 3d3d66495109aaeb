/* Which nodes the user has put into which stages. */
#include "passes/pipe/pins.h"

#include <fnmatch.h>
#include <inttypes.h>

static bool name_matches(const ap_ctx *ctx, const char *pattern, ap_name name)
{
    return name && fnmatch(pattern, ap_name_str(ctx, name), 0) == 0;
}

/* A composite is each node that became a part of it. */
static bool node_matches(const ap_module *m, const char *pattern, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    bool matches = name_matches(m->ctx, pattern, ap_loc_get(m->ctx, node->loc).node);
    for (uint32_t i = 0; i < node->nout && !matches; i++)
        matches = name_matches(m->ctx, pattern, ap_value_at(m, node->out[i])->name);
    const ap_block_info *body = node->body == AP_NONE ? NULL : ap_block_at(m, node->body);
    for (uint32_t i = 0; body && i < body->nodes.len && !matches; i++)
        matches = node_matches(m, pattern, body->nodes.at[i]);
    return matches;
}

static ap_status pin_nodes(const ap_module *m, const ap_node_pin *pin, const char *file, uint32_t *stage)
{
    ap_ctx *ctx = m->ctx;
    const ap_block_info *b = ap_block_at(m, m->funcs.at[0].body);
    bool any = false;
    for (uint32_t at = 0; at + 1 < b->nodes.len; at++) {
        if (!node_matches(m, pin->pattern, b->nodes.at[at]))
            continue;
        any = true;
        if (stage[at] != AP_NONE && stage[at] != pin->stage)
            return ap_fail(ctx, AP_ERR_USAGE, ap_node_at(m, b->nodes.at[at])->loc,
                           "%s:%d: it is pinned to stage %" PRIu32 " and to stage %" PRIu32, file, pin->line, stage[at],
                           pin->stage);
        stage[at] = pin->stage;
    }
    return any ? AP_OK : ap_fail(ctx, AP_ERR_USAGE, 0, "%s:%d: no node matches \"%s\"", file, pin->line, pin->pattern);
}

ap_status ap_pipe_pins_find(ap_arena *arena, const ap_module *m, const ap_pins *pins, const char *file,
                            const uint32_t **out)
{
    uint32_t n = ap_block_at(m, m->funcs.at[0].body)->nodes.len, *stage = AP_NEW_ARRAY(arena, uint32_t, n);
    for (uint32_t at = 0; at < n; at++)
        stage[at] = AP_NONE;
    for (uint32_t i = 0; i < pins->nnodes; i++)
        AP_TRY(pin_nodes(m, &pins->node[i], file, stage));
    *out = pins->nnodes ? stage : NULL;
    return AP_OK;
}
