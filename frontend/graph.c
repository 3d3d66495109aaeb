/* From protobuf messages to arrays. Names are resolved per scope: scope 0 is the main graph, every expanded
 * call has one of its own, whose inputs and outputs are bound to the values of the call. */
#include "frontend/graph.h"

#include "ir/base/text.h"

#include <string.h>

#define MAX_CALL_DEPTH 100
/* Functions that call functions can multiply without end: a few lines stand for 2^40 calls. */
#define MAX_CALLS (1u << 17)
#define MAX_NODES (1u << 24)

enum { SCOPE_MAIN = 0, SCOPE_NODE_NAMES = UINT32_MAX }; /* the latter counts uses of a node name */

typedef struct name_slot {
    uint32_t scope;
    ap_name name; /* 0: free */
    uint32_t value;
} name_slot;

typedef struct builder {
    ap_ctx *ctx;
    ap_onnx_graph *g;
    name_slot *slot;
    uint32_t nslots, used, nscopes;
} builder;

static name_slot *probe(const builder *b, uint32_t scope, ap_name name)
{
    uint64_t h = ((uint64_t)scope << 32 | name) * 0x9e3779b97f4a7c15u;
    uint32_t i = (uint32_t)(h >> 33) & (b->nslots - 1);
    while (b->slot[i].name && (b->slot[i].scope != scope || b->slot[i].name != name))
        i = (i + 1) & (b->nslots - 1);
    return &b->slot[i];
}

static void grow_slots(builder *b)
{
    name_slot *old = b->slot;
    uint32_t n = b->nslots;
    b->nslots = n ? n * 2 : 1024;
    b->slot = AP_NEW_ARRAY(&b->ctx->scratch, name_slot, b->nslots);
    for (uint32_t i = 0; i < n; i++)
        if (old[i].name)
            *probe(b, old[i].scope, old[i].name) = old[i];
}

/* The entry for a name; *is_new when it was not there, with value AP_NONE. */
static name_slot *entry(builder *b, uint32_t scope, ap_name name, bool *is_new)
{
    if (b->used * 2 >= b->nslots)
        grow_slots(b);
    name_slot *s = probe(b, scope, name);
    *is_new = s->name == 0;
    if (*is_new) {
        *s = (name_slot){.scope = scope, .name = name, .value = AP_NONE};
        b->used++;
    }
    return s;
}

static uint32_t add_value(builder *b, ap_name name)
{
    ap_vec_push(&b->ctx->scratch, &b->g->values, (ap_onnx_value){.name = name});
    return b->g->values.len - 1;
}

/* The value that `s` names in a scope; a fresh undefined one at its first mention. */
static uint32_t value_of(builder *b, uint32_t scope, ap_name prefix, const char *s)
{
    if (!s || !*s)
        return AP_NONE;
    ap_name name = ap_name_make(b->ctx, s);
    bool is_new;
    name_slot *e = entry(b, scope, name, &is_new);
    if (is_new) {
        if (prefix)
            name = ap_name_format(b->ctx, "%s/%s", ap_name_str(b->ctx, prefix), s);
        uint32_t v = add_value(b, name);
        e->value = v;
    }
    return e->value;
}

static bool is_constant(const ap_onnx_node *n)
{
    return strcmp(n->proto->op_type, "Constant") == 0 && !*n->domain;
}

/* One definition a value. Tools that edit models append a Constant to override another: the last one counts, as
 * it does in ONNX Runtime. */
static ap_status define(builder *b, uint32_t v, ap_onnx_origin origin, uint32_t index, const ap_onnx_node *node,
                        ap_loc loc)
{
    ap_onnx_value *info = &b->g->values.at[v];
    bool overrides = node && is_constant(node) && info->origin == AP_ONNX_NODE && info->index != index &&
                     is_constant(&b->g->nodes.at[info->index]);
    if (info->origin != AP_ONNX_UNDEFINED && !overrides)
        return ap_error(b->ctx, loc, "value \"%s\" is defined a second time", ap_name_str(b->ctx, info->name));
    info->origin = origin;
    info->index = index;
    return AP_OK;
}

/* ---- opsets and functions ---- */

static const char *plain_domain(const char *s)
{
    return !s || strcmp(s, "ai.onnx") == 0 ? "" : s;
}

static int64_t find_import(size_t n, Onnx__OperatorSetIdProto *const *import, const char *domain)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(plain_domain(import[i]->domain), domain) == 0)
            return import[i]->version;
    return 0;
}

int64_t ap_onnx_opset(const Onnx__ModelProto *model, const ap_onnx_frame *frame, const char *domain)
{
    int64_t v = 0;
    if (frame)
        v = find_import(frame->function->n_opset_import, frame->function->opset_import, domain);
    v = v ? v : find_import(model->n_opset_import, model->opset_import, domain);
    if (v)
        return v;
    /* The first IR versions had no opsets; ONNX Runtime's own domain is often not declared. */
    return (model->ir_version < 3 && !*domain) || strcmp(domain, "com.microsoft") == 0 ? 1 : 0;
}

static const Onnx__FunctionProto *find_function(const Onnx__ModelProto *m, const Onnx__NodeProto *n)
{
    for (size_t i = 0; i < m->n_functions; i++) {
        const Onnx__FunctionProto *f = m->functions[i];
        if (f->name && n->op_type && strcmp(f->name, n->op_type) == 0 &&
            strcmp(plain_domain(f->domain), plain_domain(n->domain)) == 0 &&
            strcmp(f->overload ? f->overload : "", n->overload ? n->overload : "") == 0)
            return f;
    }
    return NULL;
}

static const Onnx__AttributeProto *find_attribute(size_t n, Onnx__AttributeProto *const *a, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (a[i]->name && strcmp(a[i]->name, name) == 0)
            return a[i];
    return NULL;
}

const Onnx__AttributeProto *ap_onnx_node_attribute(const ap_onnx_node *n, const char *name)
{
    const Onnx__AttributeProto *a = find_attribute(n->proto->n_attribute, n->proto->attribute, name);
    for (const ap_onnx_frame *f = n->frame; a && a->ref_attr_name && *a->ref_attr_name; f = f->parent) {
        if (!f)
            return NULL;
        const char *outer = a->ref_attr_name;
        a = find_attribute(f->call->n_attribute, f->call->attribute, outer);
        if (!a)
            return find_attribute(f->function->n_attribute_proto, f->function->attribute_proto, outer);
    }
    return a;
}

/* ---- nodes ---- */

static ap_name display_name(builder *b, const Onnx__NodeProto *p, uint32_t index, ap_name prefix)
{
    const char *s = NULL;
    if (p->name && *p->name) {
        bool is_new = false;
        name_slot *e = prefix ? NULL : entry(b, SCOPE_NODE_NAMES, ap_name_make(b->ctx, p->name), &is_new);
        s = !e || e->value == 1 ? p->name : NULL;
    }
    if (!s && p->n_output && *p->output[0])
        s = p->output[0];
    if (!s)
        return ap_name_format(b->ctx, "%s%s%s#%u", ap_name_str(b->ctx, prefix), prefix ? "/" : "",
                              p->op_type ? p->op_type : "", index);
    return prefix ? ap_name_format(b->ctx, "%s/%s", ap_name_str(b->ctx, prefix), s) : ap_name_make(b->ctx, s);
}

static void count_node_names(builder *b)
{
    for (size_t i = 0; i < b->g->proto->n_node; i++) {
        const char *s = b->g->proto->node[i]->name;
        if (!s || !*s)
            continue;
        bool is_new;
        name_slot *e = entry(b, SCOPE_NODE_NAMES, ap_name_make(b->ctx, s), &is_new);
        e->value = is_new ? 1 : 2;
    }
}

static ap_status add_node(builder *b, const Onnx__NodeProto *p, uint32_t index, uint32_t scope, ap_name prefix,
                          const ap_onnx_frame *frame);

static ap_status expand_call(builder *b, const ap_onnx_node *call, const Onnx__FunctionProto *f, ap_name name)
{
    ap_ctx *ctx = b->ctx;
    int depth = call->frame ? call->frame->depth + 1 : 1;
    if (depth > MAX_CALL_DEPTH)
        return ap_error(ctx, call->loc, "functions call each other more than %d deep", MAX_CALL_DEPTH);
    if (b->nscopes >= MAX_CALLS)
        return ap_error(ctx, call->loc, "the model makes more than %u calls of functions", MAX_CALLS);
    if (call->nin > f->n_input || call->nout > f->n_output)
        return ap_error(ctx, call->loc, "the function takes %zu inputs and gives %zu outputs", f->n_input, f->n_output);
    ap_onnx_frame *frame = AP_NEW(&ctx->scratch, ap_onnx_frame);
    *frame = (ap_onnx_frame){.parent = call->frame, .call = call->proto, .function = f, .depth = depth};
    uint32_t scope = ++b->nscopes;
    bool is_new;
    for (size_t i = 0; i < f->n_input; i++)
        if (*f->input[i])
            entry(b, scope, ap_name_make(ctx, f->input[i]), &is_new)->value = i < call->nin ? call->in[i] : AP_NONE;
    for (size_t i = 0; i < f->n_output; i++) {
        if (i >= call->nout || call->out[i] == AP_NONE || !*f->output[i])
            continue;
        name_slot *e = entry(b, scope, ap_name_make(ctx, f->output[i]), &is_new);
        if (!is_new)
            return ap_error(ctx, call->loc, "output \"%s\" of the function is also an input or another output",
                            f->output[i]);
        e->value = call->out[i];
    }
    for (size_t i = 0; i < f->n_node; i++)
        AP_TRY(add_node(b, f->node[i], (uint32_t)i, scope, name, frame));
    return AP_OK;
}

static ap_status add_node(builder *b, const Onnx__NodeProto *p, uint32_t index, uint32_t scope, ap_name prefix,
                          const ap_onnx_frame *frame)
{
    ap_ctx *ctx = b->ctx;
    ap_onnx_graph *g = b->g;
    ap_name name = display_name(b, p, index, prefix);
    ap_loc_info where = ap_loc_get(ctx, g->src->loc);
    ap_onnx_node n = {.proto = p, .frame = frame, .domain = plain_domain(p->domain)};
    n.loc = ap_loc_make(ctx, where.file, name, ap_name_make(ctx, p->op_type ? p->op_type : ""));
    n.opset = ap_onnx_opset(g->model, frame, n.domain);
    if (!p->op_type || !*p->op_type)
        return ap_error(ctx, n.loc, "the node has no operator type");
    if (g->nodes.len >= MAX_NODES)
        return ap_error(ctx, n.loc, "the model has more than %u nodes", MAX_NODES);
    n.nin = (uint32_t)p->n_input;
    n.nout = (uint32_t)p->n_output;
    n.in = AP_NEW_ARRAY(&ctx->scratch, uint32_t, n.nin);
    n.out = AP_NEW_ARRAY(&ctx->scratch, uint32_t, n.nout);
    for (uint32_t i = 0; i < n.nin; i++)
        n.in[i] = value_of(b, scope, prefix, p->input[i]);
    for (uint32_t i = 0; i < n.nout; i++)
        n.out[i] = value_of(b, scope, prefix, p->output[i]);
    const Onnx__FunctionProto *f = find_function(g->model, p);
    if (f)
        return expand_call(b, &n, f, name);
    for (uint32_t i = 0; i < n.nout; i++)
        if (n.out[i] != AP_NONE)
            AP_TRY(define(b, n.out[i], AP_ONNX_NODE, g->nodes.len, &n, n.loc));
    ap_vec_push(&ctx->scratch, &g->nodes, n);
    return AP_OK;
}

/* ---- inputs, initializers, outputs ---- */

static ap_status add_sources(builder *b)
{
    ap_onnx_graph *g = b->g;
    const Onnx__GraphProto *p = g->proto;
    ap_arena *arena = &b->ctx->scratch;
    if (p->n_sparse_initializer)
        return ap_error(b->ctx, g->src->loc, "sparse initializers are not supported");
    for (size_t i = 0; i < p->n_initializer; i++) {
        uint32_t v = value_of(b, SCOPE_MAIN, 0, p->initializer[i]->name);
        if (v == AP_NONE)
            return ap_error(b->ctx, g->src->loc, "initializer %zu has no name", i);
        AP_TRY(define(b, v, AP_ONNX_INITIALIZER, (uint32_t)i, NULL, g->src->loc));
    }
    g->input = AP_NEW_ARRAY(arena, const Onnx__ValueInfoProto *, p->n_input);
    g->input_value = AP_NEW_ARRAY(arena, uint32_t, p->n_input);
    for (size_t i = 0; i < p->n_input; i++) {
        uint32_t v = value_of(b, SCOPE_MAIN, 0, p->input[i]->name);
        if (v == AP_NONE)
            return ap_error(b->ctx, g->src->loc, "input %zu has no name", i);
        if (g->values.at[v].origin == AP_ONNX_INITIALIZER)
            continue;
        AP_TRY(define(b, v, AP_ONNX_INPUT, g->ninputs, NULL, g->src->loc));
        g->input_value[g->ninputs] = v;
        g->input[g->ninputs++] = p->input[i];
    }
    return AP_OK;
}

static ap_status add_outputs(builder *b)
{
    ap_onnx_graph *g = b->g;
    const Onnx__GraphProto *p = g->proto;
    g->output_value = AP_NEW_ARRAY(&b->ctx->scratch, uint32_t, p->n_output);
    if (!p->n_output)
        return ap_error(b->ctx, g->src->loc, "the graph has no outputs");
    for (size_t i = 0; i < p->n_output; i++) {
        uint32_t v = value_of(b, SCOPE_MAIN, 0, p->output[i]->name);
        if (v == AP_NONE)
            return ap_error(b->ctx, g->src->loc, "output %zu has no name", i);
        if (g->values.at[v].origin == AP_ONNX_UNDEFINED)
            return ap_error(b->ctx, g->src->loc, "output \"%s\" is defined by no node", p->output[i]->name);
        g->output_value[i] = v;
    }
    return AP_OK;
}

static ap_status check_inputs_defined(builder *b)
{
    ap_status status = AP_OK;
    for (uint32_t n = 0; n < b->g->nodes.len; n++) {
        const ap_onnx_node *node = &b->g->nodes.at[n];
        for (uint32_t i = 0; i < node->nin; i++)
            if (node->in[i] != AP_NONE && b->g->values.at[node->in[i]].origin == AP_ONNX_UNDEFINED)
                status = ap_error(b->ctx, node->loc, "input %u, \"%s\", is defined nowhere", i,
                                  ap_name_str(b->ctx, b->g->values.at[node->in[i]].name));
    }
    return status;
}

/* ---- order ---- */

typedef struct visit {
    uint32_t node, next; /* input to look at next */
} visit;

static uint32_t producer(const ap_onnx_graph *g, uint32_t value)
{
    if (value == AP_NONE || g->values.at[value].origin != AP_ONNX_NODE)
        return AP_NONE;
    return g->values.at[value].index;
}

static ap_status report_cycle(builder *b, const visit *stack, uint32_t depth, uint32_t node)
{
    ap_text t;
    ap_text_init(&t, &b->ctx->scratch);
    uint32_t from = depth;
    while (stack[from - 1].node != node)
        from--;
    for (uint32_t i = from - 1; i < depth && i < from + 7; i++)
        ap_text_addf(&t, "\"%s\" -> ", ap_name_str(b->ctx, ap_loc_get(b->ctx, b->g->nodes.at[stack[i].node].loc).node));
    if (depth > from + 7)
        ap_text_add(&t, "... -> ");
    ap_loc loc = b->g->nodes.at[node].loc;
    return ap_error(b->ctx, loc, "the graph has a cycle, each node using the next: %s\"%s\"", ap_text_str(&t),
                    ap_name_str(b->ctx, ap_loc_get(b->ctx, loc).node));
}

/* Depth first, in the order of the file, so that a sorted file keeps its order. */
static ap_status sort(builder *b, uint32_t *order)
{
    enum { FRESH, OPEN, DONE };
    ap_onnx_graph *g = b->g;
    uint8_t *state = AP_NEW_ARRAY(&b->ctx->scratch, uint8_t, g->nodes.len);
    visit *stack = AP_NEW_ARRAY(&b->ctx->scratch, visit, g->nodes.len);
    uint32_t n = 0;
    for (uint32_t root = 0; root < g->nodes.len; root++) {
        uint32_t depth = 0;
        if (state[root] == FRESH) {
            stack[depth++] = (visit){.node = root};
            state[root] = OPEN;
        }
        while (depth) {
            visit *top = &stack[depth - 1];
            const ap_onnx_node *node = &g->nodes.at[top->node];
            if (top->next == node->nin) {
                state[top->node] = DONE;
                order[n++] = top->node;
                depth--;
                continue;
            }
            uint32_t p = producer(g, node->in[top->next++]);
            if (p == AP_NONE || state[p] == DONE)
                continue;
            if (state[p] == OPEN)
                return report_cycle(b, stack, depth, p);
            stack[depth++] = (visit){.node = p};
            state[p] = OPEN;
        }
    }
    return AP_OK;
}

/* Keeps the nodes that outputs need. */
static ap_status make_order(builder *b)
{
    ap_onnx_graph *g = b->g;
    uint32_t *all = AP_NEW_ARRAY(&b->ctx->scratch, uint32_t, g->nodes.len);
    AP_TRY(sort(b, all));
    bool *live = AP_NEW_ARRAY(&b->ctx->scratch, bool, g->nodes.len);
    for (size_t i = 0; i < g->proto->n_output; i++) {
        uint32_t p = producer(g, g->output_value[i]);
        if (p != AP_NONE)
            live[p] = true;
    }
    for (uint32_t k = g->nodes.len; k > 0; k--) {
        const ap_onnx_node *n = &g->nodes.at[all[k - 1]];
        for (uint32_t i = 0; live[all[k - 1]] && i < n->nin; i++) {
            uint32_t p = producer(g, n->in[i]);
            if (p != AP_NONE)
                live[p] = true;
        }
    }
    g->order = AP_NEW_ARRAY(&b->ctx->scratch, uint32_t, g->nodes.len);
    for (uint32_t k = 0; k < g->nodes.len; k++)
        if (live[all[k]])
            g->order[g->norder++] = all[k];
    return AP_OK;
}

ap_status ap_onnx_graph_build(const ap_onnx_source *src, const Onnx__ModelProto *model, ap_onnx_graph *out)
{
    memset(out, 0, sizeof *out);
    out->src = src;
    out->model = model;
    out->proto = model->graph;
    builder b = {.ctx = src->ctx, .g = out};
    count_node_names(&b);
    AP_TRY(add_sources(&b));
    for (size_t i = 0; i < out->proto->n_node; i++)
        AP_TRY(add_node(&b, out->proto->node[i], (uint32_t)i, SCOPE_MAIN, 0, NULL));
    AP_TRY(check_inputs_defined(&b));
    AP_TRY(add_outputs(&b));
    return make_order(&b);
}
