/* dump --format dot: the planned module as a graph for Graphviz. A node is a box filled in the colour of the sharding
 * of its result; a reshard is a red octagon with its steps and their price; parameters stand in the boxes that read
 * them.
 *
 * Layers that repeat (the same operators, shapes and shardings in the same order) are found by comparing the list of
 * nodes with itself moved by p places: the p that saves most nodes makes a run, what is left and right of it is treated
 * likewise. The first layer of a run is drawn in a frame, the others are one box, unless all are wanted. */
#include "driver/commands.h"
#include "ir/base/text.h"

#include "ir/op.h"
#include "ir/text_form.h"
#include "passes/reshard.h"

#include <inttypes.h>
#include <string.h>

enum { SHORTEST_LAYER = 6, LONGEST_LAYER = 4096, NCOLOURS = 10 };

static const char *const colours[NCOLOURS] = {"#cfe2ff", "#d8f0d0", "#fff2b8", "#e6d7f7", "#ffdcc2",
                                              "#c9f0ee", "#f5d5e6", "#dfe6c8", "#d5dbe6", "#f0e0c8"};

typedef struct run {
    uint32_t first, length, times; /* nodes first .. first + length*times - 1 of the body */
} run;

typedef struct graph {
    ap_ctx *ctx;
    const ap_module *m; /* of the stage that is being drawn */
    ap_resharder *resharder;
    bool whole;
    uint32_t func;   /* number of the stage */
    uint32_t nnodes; /* of the body, terminator left out */
    const ap_node *node;
    ap_name *sign;            /* by position: what must agree in repeated layers */
    uint32_t *at;             /* by node id: its position, AP_NONE elsewhere */
    uint32_t *run_of;         /* by position: AP_NONE or a run */
    AP_VEC(run) runs;         /* from left to right */
    AP_VEC(ap_name) sharding; /* texts that have a colour, in order of appearance */
} graph;

/* ---- text ---- */

/* Inside "...": quotes and backslashes escaped, what is no character or controls the terminal as '?'. */
static void print_text(const char *text)
{
    for (const char *s = text; *s;) {
        size_t n = ap_utf8_length(s);
        if (*s == '"' || *s == '\\')
            putchar('\\');
        if (n == 0 || (n == 1 && *s < 0x20) || *s == 0x7f)
            putchar('?');
        else
            fwrite(s, 1, n, stdout);
        s += n ? n : 1;
    }
}

static const char *type_text(graph *g, ap_value v)
{
    ap_text t;
    ap_text_init(&t, &g->ctx->scratch);
    ap_type_print(g->m, ap_value_type(g->m, v), &t);
    return ap_text_str(&t);
}

static ap_name sharding_name(graph *g, ap_value v)
{
    ap_type_info i = ap_type_get(g->ctx, ap_value_type(g->m, v));
    ap_text t;
    ap_text_init(&t, &g->ctx->scratch);
    ap_sharding_print(g->m, i.shape, i.sharding, &t);
    return ap_name_make(g->ctx, ap_text_str(&t));
}

static const char *node_word(graph *g, const ap_node_info *n)
{
    const ap_op_info *op = ap_op_get(n->op);
    return op->has_body ? ap_name_str(g->ctx, n->u.composite) : op->name;
}

/* White when nothing is split or partial, else by order of appearance. */
static const char *colour(graph *g, ap_value v)
{
    const ap_sharding_info *s = ap_sharding_get(g->ctx, ap_type_get(g->ctx, ap_value_type(g->m, v)).sharding);
    if (ap_sharding_split_mask(s) == 0 && ap_sharding_partial_mask(s) == 0)
        return "#ffffff";
    ap_name text = sharding_name(g, v);
    uint32_t i = 0;
    while (i < g->sharding.len && g->sharding.at[i] != text)
        i++;
    if (i == g->sharding.len)
        ap_vec_push(&g->ctx->scratch, &g->sharding, text);
    return colours[i % NCOLOURS];
}

/* ---- repeated layers ---- */

static void sign_nodes(graph *g)
{
    for (uint32_t i = 0; i < g->nnodes; i++) {
        const ap_node_info *n = ap_node_at(g->m, g->node[i]);
        ap_text t;
        ap_text_init(&t, &g->ctx->scratch);
        ap_text_add(&t, node_word(g, n));
        for (uint32_t k = 0; k < n->nin; k++)
            ap_text_addf(&t, " %u", ap_value_type(g->m, n->in[k]));
        ap_text_add(&t, " :");
        for (uint32_t k = 0; k < n->nout; k++)
            ap_text_addf(&t, " %u", ap_value_type(g->m, n->out[k]));
        g->sign[i] = ap_name_make(g->ctx, ap_text_str(&t));
    }
}

/* The run in [lo, hi) that saves most nodes; the shortest layer on ties, then the leftmost. */
static bool best_run(const graph *g, uint32_t lo, uint32_t hi, run *out)
{
    uint32_t saved = 0, n = hi - lo, longest = n / 2 < LONGEST_LAYER ? n / 2 : LONGEST_LAYER;
    for (uint32_t p = SHORTEST_LAYER; p <= longest; p++) {
        uint32_t same = 0;
        for (uint32_t i = lo; i + p < hi; i++) {
            same = g->sign[i] == g->sign[i + p] ? same + 1 : 0;
            if (same / p * p > saved) {
                saved = same / p * p;
                *out = (run){i + 1 - same, p, 1 + same / p};
            }
        }
    }
    return saved > 0;
}

static void find_runs(graph *g, uint32_t lo, uint32_t hi)
{
    run r;
    if (hi - lo < 2 * SHORTEST_LAYER || !best_run(g, lo, hi, &r))
        return;
    find_runs(g, lo, r.first);
    for (uint32_t i = 0; i < r.length * r.times; i++)
        g->run_of[r.first + i] = g->runs.len;
    ap_vec_push(&g->ctx->scratch, &g->runs, r);
    find_runs(g, r.first + r.length * r.times, hi);
}

static uint32_t layer_of(const graph *g, uint32_t at)
{
    const run *r = &g->runs.at[g->run_of[at]];
    return (at - r->first) / r->length;
}

static bool folded(const graph *g, uint32_t at)
{
    return !g->whole && g->run_of[at] != AP_NONE && layer_of(g, at) > 0;
}

/* ---- what is drawn ---- */

/* The name in the graph of the node at a position. */
static ap_name node_id(const graph *g, uint32_t at)
{
    return folded(g, at) ? ap_name_format(g->ctx, "f%u_more%u", g->func, g->run_of[at])
                         : ap_name_format(g->ctx, "f%u_n%u", g->func, at);
}

/* The name in the graph of what makes a value; 0 for parameters, which have no box. */
static ap_name value_id(const graph *g, ap_value v)
{
    const ap_value_info *info = ap_value_at(g->m, v);
    if (info->kind == AP_VALUE_ARGUMENT)
        return ap_name_format(g->ctx, "f%u_in%u", g->func, info->index);
    return info->kind == AP_VALUE_RESULT ? node_id(g, g->at[info->def]) : 0;
}

static void print_reshard(graph *g, const ap_node_info *n)
{
    ap_type_info from = ap_type_get(g->ctx, ap_value_type(g->m, n->in[0]));
    ap_type_info to = ap_type_get(g->ctx, ap_value_type(g->m, n->out[0]));
    const ap_reshard_path *path;
    if (ap_value_at(g->m, n->in[0])->kind == AP_VALUE_SYMBOL) {
        printf("@");
        print_text(ap_name_str(g->ctx, ap_value_at(g->m, n->in[0])->name));
        printf(" ");
    }
    print_text(ap_name_str(g->ctx, sharding_name(g, n->in[0])));
    printf("\\nto ");
    print_text(ap_name_str(g->ctx, sharding_name(g, n->out[0])));
    if (ap_reshard_find(g->resharder, from.dtype, from.shape, from.sharding, to.sharding, &path)) {
        printf("\\n%.3f us:", (double)path->cost * 1e-6);
        for (int s = 0; s < path->nsteps; s++)
            printf("%s %s", s ? "," : "", ap_op_get(path->step[s].op)->name);
    }
    printf("\", shape=octagon, color=\"#c00000\", penwidth=2, fillcolor=\"%s\"];\n", colour(g, n->out[0]));
}

static void print_node(graph *g, uint32_t at, const char *indent)
{
    const ap_node_info *n = ap_node_at(g->m, g->node[at]);
    const ap_op_info *op = ap_op_get(n->op);
    ap_loc_info loc = ap_loc_get(g->ctx, n->loc);
    printf("%sf%u_n%u [label=\"", indent, g->func, at);
    print_text(node_word(g, n));
    printf("\\n");
    if (op->planned) {
        print_reshard(g, n);
        return;
    }
    if (loc.node) {
        print_text(ap_name_str(g->ctx, loc.node));
        printf("\\n");
    }
    for (uint32_t k = 0; k < n->nin; k++)
        if (ap_value_at(g->m, n->in[k])->kind == AP_VALUE_SYMBOL) {
            printf("@");
            print_text(ap_name_str(g->ctx, ap_value_at(g->m, n->in[k])->name));
            printf(" ");
            print_text(type_text(g, n->in[k]));
            printf("\\n");
        }
    for (uint32_t k = 0; k < n->nout; k++) {
        printf("%s", k ? "\\n" : "");
        print_text(type_text(g, n->out[k]));
    }
    printf("\"%s, fillcolor=\"%s\"];\n", op->shares_buffer ? ", style=\"filled,dashed\"" : "",
           n->nout ? colour(g, n->out[0]) : "#ffffff");
}

static void print_run(graph *g, uint32_t index)
{
    const run *r = &g->runs.at[index];
    uint32_t drawn = g->whole ? r->times : 1;
    for (uint32_t layer = 0; layer < drawn; layer++) {
        printf("    subgraph cluster_f%u_r%u_l%u {\n      label=\"layer %u of %u (%u nodes)\";\n      style=rounded;\n",
               g->func, index, layer, layer + 1, r->times, r->length);
        for (uint32_t i = 0; i < r->length; i++)
            print_node(g, r->first + layer * r->length + i, "      ");
        printf("    }\n");
    }
    if (!g->whole)
        printf("    f%u_more%u [label=\"%u more like it:\\nsame operators, shapes, shardings\", shape=box3d, "
               "fillcolor=\"#eeeeee\"];\n",
               g->func, index, r->times - 1);
}

static void print_nodes(graph *g)
{
    for (uint32_t i = 0; i < g->nnodes; i++) {
        uint32_t r = g->run_of[i];
        if (r == AP_NONE)
            print_node(g, i, "    ");
        else if (g->runs.at[r].first == i)
            print_run(g, r);
    }
}

static void print_ports(graph *g, const ap_func_info *f, const ap_node_info *ret)
{
    for (uint32_t i = 0; i < f->narguments + ret->nin; i++) {
        bool input = i < f->narguments;
        uint32_t k = input ? i : i - f->narguments;
        ap_value v = input ? f->argument[k] : ret->in[k];
        ap_name name = input ? ap_value_at(g->m, v)->name : f->result_name[k];
        bool slot = input ? f->argument_slot[k] : f->result_slot[k];
        printf("    f%u_%s%u [label=\"%s ", g->func, input ? "in" : "out", k,
               slot    ? "slot"
               : input ? "input"
                       : "output");
        print_text(ap_name_str(g->ctx, name));
        printf("\\n");
        print_text(type_text(g, v));
        printf("\", shape=ellipse, fillcolor=\"%s\"];\n", colour(g, v));
    }
}

/* Each pair once: of folded layers many edges fall together. `seen` is emptied with every target. */
static void print_edge(graph *g, ap_name from, ap_name to, uint32_t *stamp, uint32_t now)
{
    if (from == 0 || from == to || stamp[from] == now)
        return;
    stamp[from] = now;
    printf("    %s -> %s;\n", ap_name_str(g->ctx, from), ap_name_str(g->ctx, to));
}

static void print_edges(graph *g, const ap_node_info *ret)
{
    /* all names that occur are made before the table of stamps is sized */
    ap_name last = 0;
    for (uint32_t i = 0; i < g->nnodes; i++) {
        ap_name id = node_id(g, i);
        last = id > last ? id : last;
    }
    for (uint32_t v = 0; v < g->m->values.len; v++)
        if (ap_value_at(g->m, v)->kind == AP_VALUE_ARGUMENT) {
            ap_name id = value_id(g, v);
            last = id > last ? id : last;
        }
    uint32_t *stamp = AP_NEW_ARRAY(&g->ctx->scratch, uint32_t, last + 1);
    uint32_t now = 0, more = AP_NONE;
    for (uint32_t i = 0; i < g->nnodes; i++) {
        uint32_t target = folded(g, i) ? g->run_of[i] : AP_NONE;
        now += target == AP_NONE || target != more; /* one stamp for all of a folded run */
        more = target;
        const ap_node_info *n = ap_node_at(g->m, g->node[i]);
        for (uint32_t k = 0; k < n->nin; k++)
            print_edge(g, value_id(g, n->in[k]), node_id(g, i), stamp, now);
    }
    for (uint32_t k = 0; k < ret->nin; k++) {
        ap_name from = value_id(g, ret->in[k]);
        if (from)
            printf("    %s -> f%u_out%u;\n", ap_name_str(g->ctx, from), g->func, k);
    }
}

static void print_legend(const graph *g)
{
    printf("  subgraph cluster_legend {\n    label=\"colour of the result's sharding\";\n    legend [shape=box, "
           "label=\"replicated\", fillcolor=\"#ffffff\"];\n");
    for (uint32_t i = 0; i < g->sharding.len; i++) {
        printf("    legend%u [shape=box, fillcolor=\"%s\", label=\"", i, colours[i % NCOLOURS]);
        print_text(ap_name_str(g->ctx, g->sharding.at[i]));
        printf("\"];\n");
    }
    printf("  }\n");
}

static void print_stage(graph *g, const ap_pipeline *p, uint32_t stage, const ap_cluster *c)
{
    const ap_mesh_info *mesh = ap_stage_mesh(&p->stages.at[stage]);
    ap_cluster part;
    ap_cluster_part(c, mesh->first_rank, ap_mesh_ranks(mesh), &part);
    g->m = p->stages.at[stage].m;
    g->resharder = ap_resharder_create(&g->ctx->scratch, g->m, &part);
    const ap_func_info *func = &g->m->funcs.at[0];
    const ap_block_info *body = ap_block_at(g->m, func->body);
    const ap_node_info *ret = ap_node_at(g->m, body->nodes.at[body->nodes.len - 1]);
    g->func = stage;
    g->nnodes = body->nodes.len - 1;
    g->node = body->nodes.at;
    g->sign = AP_NEW_ARRAY(&g->ctx->scratch, ap_name, g->nnodes + 1);
    g->run_of = AP_NEW_ARRAY(&g->ctx->scratch, uint32_t, g->nnodes + 1);
    g->at = AP_NEW_ARRAY(&g->ctx->scratch, uint32_t, g->m->nodes.len + 1);
    for (uint32_t i = 0; i < g->nnodes; i++) {
        g->run_of[i] = AP_NONE;
        g->at[g->node[i]] = i;
    }
    g->runs.len = 0;
    sign_nodes(g);
    find_runs(g, 0, g->nnodes);
    printf("  subgraph cluster_f%u {\n    label=\"@", stage);
    print_text(ap_name_str(g->ctx, func->name));
    printf("\";\n");
    print_ports(g, func, ret);
    print_nodes(g);
    print_edges(g, ret);
    printf("  }\n");
}

ap_status ap_dump_dot(ap_ctx *ctx, const ap_pipeline *p, const ap_cluster *c, const char *title, bool whole)
{
    graph g = {.ctx = ctx, .whole = whole};
    printf("digraph plan {\n  label=\"plan of ");
    print_text(title);
    printf("\";\n  rankdir=TB;\n  node [shape=box, style=filled, fontname=\"Helvetica\", fontsize=10];\n");
    for (uint32_t s = 0; s < p->stages.len; s++)
        print_stage(&g, p, s, c);
    for (uint32_t i = 0; i < p->links.len; i++) {
        const ap_wire *w = &p->links.at[i];
        printf("  f%u_out%u -> f%u_in%u [penwidth=2, color=\"#c00000\"];\n", w->from, w->result, w->to, w->argument);
    }
    print_legend(&g);
    printf("}\n");
    return AP_OK;
}
