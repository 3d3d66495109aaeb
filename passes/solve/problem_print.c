/* Problems as text, and the check of a choice by the numbers of a file. */
#include "passes/solve/problem_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- printing ---- */

static void print_row(ap_text *t, const int64_t *x, size_t n)
{
    ap_text_add(t, "[");
    for (size_t i = 0; i < n; i++)
        ap_text_addf(t, "%s%" PRId64, i ? ", " : "", x[i] == AP_FORBIDDEN ? AP_FILE_FORBIDDEN : x[i]);
    ap_text_add(t, "]");
}

/* Before element i of a list: what separates it. */
static void print_next(ap_text *t, size_t i)
{
    ap_text_add(t, i ? ",\n      " : "\n      ");
}

static size_t entries(const ap_problem *p, uint32_t e)
{
    return (size_t)p->nstrategies[p->edge[e].u] * p->nstrategies[p->edge[e].v];
}

/* The demand that stands beside the costs of each node: its first. */
static uint32_t *first_demands(const ap_problem *p, ap_arena *arena)
{
    uint32_t *first = AP_NEW_ARRAY(arena, uint32_t, p->nnodes);
    for (uint32_t v = 0; v < p->nnodes; v++)
        first[v] = AP_NONE;
    for (uint32_t d = p->ndemands; d-- > 0;)
        first[p->demand[d].node] = d;
    return first;
}

static void print_nodes(const ap_problem *p, const uint32_t *first, ap_text *t)
{
    ap_text_add(t, "  \"nodes\": {\n    \"intervals\": [");
    for (uint32_t v = 0; v < p->nnodes; v++) {
        const ap_demand *d = first[v] == AP_NONE ? NULL : &p->demand[first[v]];
        print_next(t, v);
        ap_text_addf(t, "[%" PRIu32 ", %" PRIu32 "]", d ? d->lo : 0, d ? d->hi : 0);
    }
    ap_text_add(t, "],\n    \"costs\": [");
    for (uint32_t v = 0; v < p->nnodes; v++) {
        print_next(t, v);
        print_row(t, p->cost[v], p->nstrategies[v]);
    }
    ap_text_add(t, "],\n    \"usages\": [");
    for (uint32_t v = 0; v < p->nnodes; v++) {
        const int64_t *usage = first[v] == AP_NONE ? NULL : p->demand[first[v]].usage;
        print_next(t, v);
        if (usage)
            print_row(t, usage, p->nstrategies[v]);
        for (uint32_t i = 0; i < p->nstrategies[v] && !usage; i++)
            ap_text_addf(t, "%s0%s", i ? ", " : "[", i + 1 == p->nstrategies[v] ? "]" : "");
    }
    ap_text_add(t, "]\n  },\n");
}

static void print_edges(const ap_problem *p, ap_text *t)
{
    ap_text_add(t, "  \"edges\": {\n    \"nodes\": [");
    for (uint32_t e = 0; e < p->nedges; e++) {
        print_next(t, e);
        ap_text_addf(t, "[%" PRIu32 ", %" PRIu32 "]", p->edge[e].u, p->edge[e].v);
    }
    ap_text_add(t, "],\n    \"costs\": [");
    for (uint32_t e = 0; e < p->nedges; e++) {
        print_next(t, e);
        print_row(t, p->edge[e].cost, entries(p, e));
    }
    ap_text_add(t, "]\n  }");
}

static void print_more(const ap_problem *p, const uint32_t *first, ap_text *t)
{
    bool any = false;
    for (int part = 0; part < 3; part++) {
        size_t n = 0;
        for (uint32_t i = 0; i < p->ndemands; i++) {
            const ap_demand *d = &p->demand[i];
            if (first[d->node] == i)
                continue;
            if (!any)
                ap_text_add(t, ",\n  \"demands\": {\n    \"nodes\": [");
            any = true;
            print_next(t, n++);
            if (part == 0)
                ap_text_addf(t, "%" PRIu32, d->node);
            else if (part == 1)
                ap_text_addf(t, "[%" PRIu32 ", %" PRIu32 "]", d->lo, d->hi);
            else
                print_row(t, d->usage, p->nstrategies[d->node]);
        }
        static const char *const after[] = {"],\n    \"intervals\": [", "],\n    \"usages\": [", "]\n  }"};
        if (any)
            ap_text_add(t, after[part]);
    }
}

static void print_pairs(const ap_problem *p, ap_text *t)
{
    if (p->npair_demands == 0)
        return;
    ap_text_add(t, ",\n  \"pair_demands\": {\n    \"edges\": [");
    for (uint32_t i = 0; i < p->npair_demands; i++) {
        print_next(t, i);
        ap_text_addf(t, "%" PRIu32, p->pair_demand[i].edge);
    }
    ap_text_add(t, "],\n    \"intervals\": [");
    for (uint32_t i = 0; i < p->npair_demands; i++) {
        print_next(t, i);
        ap_text_addf(t, "[%" PRIu32 ", %" PRIu32 "]", p->pair_demand[i].lo, p->pair_demand[i].hi);
    }
    ap_text_add(t, "],\n    \"usages\": [");
    for (uint32_t i = 0; i < p->npair_demands; i++) {
        print_next(t, i);
        print_row(t, p->pair_demand[i].usage, entries(p, p->pair_demand[i].edge));
    }
    ap_text_add(t, "]\n  }");
}

/* Names come from files of models: what JSON would have to escape and what is no UTF-8 becomes '_'. */
static void print_name(const char *name, ap_text *t)
{
    ap_text_add(t, "  \"name\": \"");
    while (*name) {
        size_t n = ap_utf8_length(name);
        bool plain = n > 1 || (n == 1 && *name >= ' ' && *name != '"' && *name != '\\');
        ap_text_add_n(t, plain ? name : "_", plain ? n : 1);
        name += n ? n : 1;
    }
    ap_text_add(t, "\",\n");
}

void ap_problem_print(const ap_problem *p, const char *name, ap_text *out)
{
    const uint32_t *first = first_demands(p, out->arena);
    ap_text_add(out, "{\"problem\": {\n");
    print_name(name, out);
    print_nodes(p, first, out);
    print_edges(p, out);
    print_more(p, first, out);
    print_pairs(p, out);
    if (p->limit != INT64_MAX)
        ap_text_addf(out, ",\n  \"usage_limit\": %" PRId64, p->limit);
    ap_text_add(out, "\n}}\n");
}

/* ---- checking ---- */

typedef __int128 wide;

/* Bytes come and go; the list of comings and that of goings, each in order of time. */
typedef struct event {
    int64_t time, bytes;
} event;

typedef struct timetable {
    event *in, *out;
    size_t n;
} timetable;

static void hold(timetable *t, const int64_t *interval, int64_t bytes)
{
    if (interval[0] >= interval[1])
        return;
    t->in[t->n] = (event){interval[0], bytes};
    t->out[t->n++] = (event){interval[1], bytes};
}

static int by_time(const void *a, const void *b)
{
    const event *x = a, *y = b;
    return (x->time > y->time) - (x->time < y->time);
}

static wide highest(timetable *t)
{
    wide now = 0, most = 0;
    qsort(t->in, t->n, sizeof *t->in, by_time);
    qsort(t->out, t->n, sizeof *t->out, by_time);
    for (size_t i = 0, o = 0; i < t->n; i++) {
        for (; t->out[o].time <= t->in[i].time; o++)
            now -= t->out[o].bytes;
        now += t->in[i].bytes;
        most = now > most ? now : most;
    }
    return most;
}

/* Entry of edge e that the choice takes. */
static size_t entry(const ap_problem_file *f, int64_t e, const uint32_t *choice)
{
    int64_t u = f->edges.at[e][0], v = f->edges.at[e][1];
    return (size_t)choice[u] * f->costs.len[v] + choice[v];
}

bool ap_problem_file_check(ap_arena *arena, const ap_problem_file *f, const uint32_t *choice, __int128 *out_cost,
                           __int128 *out_peak)
{
    uint32_t nmore = f->more_nodes.n ? f->more_nodes.len[0] : 0, npairs = f->pair_edges.n ? f->pair_edges.len[0] : 0;
    size_t most = (size_t)f->costs.n + nmore + npairs;
    timetable t = {AP_NEW_ARRAY(arena, event, most), AP_NEW_ARRAY(arena, event, most), 0};
    wide cost = 0;
    for (uint32_t v = 0; v < f->costs.n; v++) {
        if (choice[v] >= f->costs.len[v])
            return false;
        cost += f->costs.at[v][choice[v]];
        hold(&t, f->intervals.at[v], f->usages.at[v][choice[v]]);
    }
    for (uint32_t e = 0; e < f->edges.n; e++)
        cost += f->edge_costs.at[e][entry(f, e, choice)];
    for (uint32_t i = 0; i < nmore; i++)
        hold(&t, f->more_intervals.at[i], f->more_usages.at[i][choice[f->more_nodes.at[0][i]]]);
    for (uint32_t i = 0; i < npairs; i++)
        hold(&t, f->pair_intervals.at[i], f->pair_usages.at[i][entry(f, f->pair_edges.at[0][i], choice)]);
    *out_cost = cost;
    *out_peak = highest(&t);
    return f->limit == INT64_MAX || *out_peak <= f->limit;
}
