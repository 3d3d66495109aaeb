/* The format of problem files, key by key in any order; then what the parts must say about each other. */
#include "passes/solve/problem_file.h"

#include "ir/base/file.h"
#include "ir/base/text.h"
#include "passes/solve/problem_scan.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_ROWS = INT32_MAX, MOST_IN_ROW = INT32_MAX };

typedef struct reader {
    ap_scan scan;
    ap_arena *arena, *scratch;
    ap_problem_file *f;
    AP_VEC(int64_t) row; /* in hand */
    bool limited;
} reader;

/* ---- lists ---- */

typedef struct row_list {
    AP_VEC(uint32_t) len;
    AP_VEC(int64_t *) at;
    AP_VEC(ap_place) place;
} row_list;

static ap_status read_row(reader *r, row_list *out)
{
    bool more;
    ap_scan_peek(&r->scan);
    ap_place place = ap_scan_place(&r->scan);
    r->row.len = 0;
    AP_TRY(ap_scan_enter(&r->scan, '[', ']', &more));
    while (more) {
        int64_t x;
        AP_TRY(ap_scan_int(&r->scan, &x));
        if (r->row.len == MOST_IN_ROW)
            return ap_scan_fail(&r->scan, "a list of more than 2^31 numbers");
        ap_vec_push(r->scratch, &r->row, x);
        AP_TRY(ap_scan_next(&r->scan, ']', &more));
    }
    if (out->at.len == MOST_ROWS)
        return ap_scan_fail(&r->scan, "more than 2^31 lists");
    ap_vec_push(r->scratch, &out->len, r->row.len);
    ap_vec_push(r->scratch, &out->at, ap_arena_memdup(r->arena, r->row.at, r->row.len * sizeof *r->row.at));
    ap_vec_push(r->scratch, &out->place, place);
    return AP_OK;
}

static ap_status read_rows(reader *r, bool one, ap_rows *out)
{
    row_list list = {0};
    bool more = true;
    if (one) {
        AP_TRY(read_row(r, &list));
    } else {
        AP_TRY(ap_scan_enter(&r->scan, '[', ']', &more));
        while (more) {
            AP_TRY(read_row(r, &list));
            AP_TRY(ap_scan_next(&r->scan, ']', &more));
        }
    }
    *out = (ap_rows){list.at.len, ap_arena_memdup(r->arena, list.len.at, list.at.len * sizeof *list.len.at),
                     ap_arena_memdup(r->arena, list.at.at, list.at.len * sizeof *list.at.at),
                     ap_arena_memdup(r->arena, list.place.at, list.at.len * sizeof *list.place.at)};
    return AP_OK;
}

/* ---- objects ---- */

/* What a key holds. */
typedef struct field {
    const char *key;
    ap_rows *rows;
    bool one, seen; /* one: [1, 2] instead of [[1], [2]] */
} field;

static ap_status read_fields(reader *r, const char *what, field *f, uint32_t n)
{
    ap_scan *s = &r->scan;
    bool more;
    char key[32];
    AP_TRY(ap_scan_enter(s, '{', '}', &more));
    while (more) {
        AP_TRY(ap_scan_string(s, key, sizeof key));
        AP_TRY(ap_scan_expect(s, ':'));
        uint32_t i = 0;
        while (i < n && strcmp(f[i].key, key) != 0)
            i++;
        if (i < n && f[i].seen)
            return ap_scan_fail(s, "%s: '%s' stands there twice", what, key);
        if (i < n) {
            f[i].seen = true;
            AP_TRY(read_rows(r, f[i].one, f[i].rows));
        } else {
            AP_TRY(ap_scan_skip(s));
        }
        AP_TRY(ap_scan_next(s, '}', &more));
    }
    for (uint32_t i = 0; i < n; i++)
        if (!f[i].seen)
            return ap_scan_fail(s, "%s: '%s' is missing", what, f[i].key);
    return AP_OK;
}

/* What is no character, or one cut in two at the end, becomes '?': the name stands in JSON again. */
static ap_status read_name(reader *r)
{
    char name[128];
    AP_TRY(ap_scan_string(&r->scan, name, sizeof name));
    for (char *s = name; *s;) {
        size_t n = ap_utf8_length(s);
        if (n == 0)
            *s = '?';
        s += n ? n : 1;
    }
    r->f->name = ap_arena_strdup(r->arena, name);
    return AP_OK;
}

static ap_status read_nodes(reader *r)
{
    ap_problem_file *f = r->f;
    return read_fields(r, "nodes",
                       (field[]){{.key = "intervals", .rows = &f->intervals},
                                 {.key = "costs", .rows = &f->costs},
                                 {.key = "usages", .rows = &f->usages}},
                       3);
}

static ap_status read_edges(reader *r)
{
    ap_problem_file *f = r->f;
    return read_fields(r, "edges",
                       (field[]){{.key = "nodes", .rows = &f->edges}, {.key = "costs", .rows = &f->edge_costs}}, 2);
}

static ap_status read_demands(reader *r)
{
    ap_problem_file *f = r->f;
    return read_fields(r, "demands",
                       (field[]){{.key = "nodes", .rows = &f->more_nodes, .one = true},
                                 {.key = "intervals", .rows = &f->more_intervals},
                                 {.key = "usages", .rows = &f->more_usages}},
                       3);
}

static ap_status read_pair_demands(reader *r)
{
    ap_problem_file *f = r->f;
    return read_fields(r, "pair_demands",
                       (field[]){{.key = "edges", .rows = &f->pair_edges, .one = true},
                                 {.key = "intervals", .rows = &f->pair_intervals},
                                 {.key = "usages", .rows = &f->pair_usages}},
                       3);
}

static ap_status read_limit(reader *r)
{
    return ap_scan_int(&r->scan, &r->f->limit);
}

static ap_status read_problem(reader *r)
{
    static const struct {
        const char *key;
        ap_status (*read)(reader *r);
        bool needed;
    } parts[] = {{"name", read_name, false},       {"nodes", read_nodes, true},
                 {"edges", read_edges, true},      {"usage_limit", read_limit, false},
                 {"demands", read_demands, false}, {"pair_demands", read_pair_demands, false}};
    enum { N = sizeof parts / sizeof *parts };
    bool seen[N] = {false}, more;
    char key[32];
    AP_TRY(ap_scan_enter(&r->scan, '{', '}', &more));
    while (more) {
        AP_TRY(ap_scan_string(&r->scan, key, sizeof key));
        AP_TRY(ap_scan_expect(&r->scan, ':'));
        size_t i = 0;
        while (i < N && strcmp(parts[i].key, key) != 0)
            i++;
        if (i < N && seen[i])
            return ap_scan_fail(&r->scan, "problem: '%s' stands there twice", key);
        if (i < N)
            seen[i] = true;
        AP_TRY(i < N ? parts[i].read(r) : ap_scan_skip(&r->scan));
        AP_TRY(ap_scan_next(&r->scan, '}', &more));
    }
    for (size_t i = 0; i < N; i++)
        if (parts[i].needed && !seen[i])
            return ap_scan_fail(&r->scan, "problem: '%s' is missing", parts[i].key);
    return AP_OK;
}

static ap_status read_file(reader *r)
{
    bool more, seen = false;
    char key[32];
    AP_TRY(ap_scan_enter(&r->scan, '{', '}', &more));
    while (more) {
        AP_TRY(ap_scan_string(&r->scan, key, sizeof key));
        AP_TRY(ap_scan_expect(&r->scan, ':'));
        bool it = strcmp(key, "problem") == 0;
        if (it && seen)
            return ap_scan_fail(&r->scan, "'problem' stands there twice");
        seen = seen || it;
        AP_TRY(it ? read_problem(r) : ap_scan_skip(&r->scan));
        AP_TRY(ap_scan_next(&r->scan, '}', &more));
    }
    AP_TRY(ap_scan_finish(&r->scan));
    return seen ? AP_OK : ap_scan_fail(&r->scan, "there is no 'problem'");
}

/* ---- what the parts say about each other ---- */

static ap_status wrong(const reader *r, const ap_rows *rows, uint32_t i, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static ap_status wrong(const reader *r, const ap_rows *rows, uint32_t i, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return ap_error(r->scan.ctx, 0, "%s:%" PRIu32 ":%" PRIu32 ": %s", r->f->path, rows->place[i].line,
                    rows->place[i].column, text);
}

static ap_status same_count(const reader *r, const char *a, uint32_t na, const char *b, uint32_t nb)
{
    if (na == nb)
        return AP_OK;
    return ap_error(r->scan.ctx, 0, "%s: %s has %" PRIu32 " entries, %s has %" PRIu32, r->f->path, a, na, b, nb);
}

static ap_status check_interval(const reader *r, const ap_rows *rows, uint32_t i, uint32_t *lo, uint32_t *hi)
{
    const int64_t *x = rows->at[i];
    if (rows->len[i] != 2)
        return wrong(r, rows, i, "interval %" PRIu32 " has %" PRIu32 " numbers, not 2", i, rows->len[i]);
    if (x[0] < 0 || x[1] < x[0] || x[1] > UINT32_MAX)
        return wrong(r, rows, i,
                     "interval %" PRIu32 " is [%" PRId64 ", %" PRId64 "]: it must not end before it begins, "
                     "and stay within 0 and 2^32 - 1",
                     i, x[0], x[1]);
    *lo = (uint32_t)x[0];
    *hi = (uint32_t)x[1];
    return AP_OK;
}

static ap_status check_usage(const reader *r, const ap_rows *rows, uint32_t i, uint64_t want, const char *whose)
{
    if (rows->len[i] != want)
        return wrong(r, rows, i, "usages %" PRIu32 " has %" PRIu32 " numbers, %s %" PRIu64, i, rows->len[i], whose,
                     want);
    for (uint32_t k = 0; k < want; k++)
        if (rows->at[i][k] < 0)
            return wrong(r, rows, i, "usages %" PRIu32 ": number %" PRIu32 " is negative", i, k);
    return AP_OK;
}

/* Costs for the solver: the numbers themselves, or a copy where some are forbidden. */
static const int64_t *forbid(const reader *r, const ap_rows *rows, uint32_t i)
{
    const int64_t *from = rows->at[i];
    int64_t *copy = NULL;
    for (uint32_t k = 0; k < rows->len[i]; k++) {
        if (from[k] < AP_FILE_FORBIDDEN)
            continue;
        if (!copy)
            copy = ap_arena_memdup(r->arena, from, rows->len[i] * sizeof *from);
        copy[k] = AP_FORBIDDEN;
    }
    return copy ? copy : from;
}

static ap_status build_nodes(reader *r, ap_problem *p, ap_demand *demand)
{
    const ap_problem_file *f = r->f;
    const int64_t **cost = AP_NEW_ARRAY(r->arena, const int64_t *, f->costs.n);
    AP_TRY(same_count(r, "nodes.intervals", f->intervals.n, "nodes.costs", f->costs.n));
    AP_TRY(same_count(r, "nodes.usages", f->usages.n, "nodes.costs", f->costs.n));
    p->nnodes = f->costs.n;
    p->nstrategies = f->costs.len;
    p->cost = cost;
    for (uint32_t v = 0; v < p->nnodes; v++) {
        ap_demand d = {.node = v, .usage = f->usages.at[v]};
        if (f->costs.len[v] == 0)
            return wrong(r, &f->costs, v, "node %" PRIu32 " has no strategy", v);
        AP_TRY(check_usage(r, &f->usages, v, f->costs.len[v], "strategies are"));
        AP_TRY(check_interval(r, &f->intervals, v, &d.lo, &d.hi));
        cost[v] = forbid(r, &f->costs, v);
        if (d.lo < d.hi)
            demand[p->ndemands++] = d;
    }
    return AP_OK;
}

static ap_status build_edges(reader *r, ap_problem *p)
{
    const ap_problem_file *f = r->f;
    AP_TRY(same_count(r, "edges.nodes", f->edges.n, "edges.costs", f->edge_costs.n));
    ap_problem_edge *edge = AP_NEW_ARRAY(r->arena, ap_problem_edge, f->edges.n);
    for (uint32_t e = 0; e < f->edges.n; e++) {
        const int64_t *end = f->edges.at[e];
        if (f->edges.len[e] != 2)
            return wrong(r, &f->edges, e, "edge %" PRIu32 " joins %" PRIu32 " nodes; only edges of two are known", e,
                         f->edges.len[e]);
        for (int i = 0; i < 2; i++)
            if (end[i] < 0 || end[i] >= p->nnodes)
                return wrong(r, &f->edges, e, "edge %" PRIu32 ": there is no node %" PRId64, e, end[i]);
        if (end[0] == end[1])
            return wrong(r, &f->edges, e, "edge %" PRIu32 " joins node %" PRId64 " with itself", e, end[0]);
        edge[e] = (ap_problem_edge){(uint32_t)end[0], (uint32_t)end[1], NULL};
        uint64_t want = (uint64_t)p->nstrategies[edge[e].u] * p->nstrategies[edge[e].v];
        if (f->edge_costs.len[e] != want)
            return wrong(r, &f->edge_costs, e, "edge %" PRIu32 " has %" PRIu32 " costs, its strategies make %" PRIu64,
                         e, f->edge_costs.len[e], want);
        edge[e].cost = forbid(r, &f->edge_costs, e);
    }
    p->nedges = f->edges.n;
    p->edge = edge;
    return AP_OK;
}

static ap_status check_index(const reader *r, const ap_rows *rows, uint32_t i, uint32_t n, const char *what)
{
    if (rows->at[0][i] < 0 || rows->at[0][i] >= n)
        return wrong(r, rows, 0, "there is no %s %" PRId64, what, rows->at[0][i]);
    return AP_OK;
}

static ap_status build_demands(reader *r, ap_problem *p, ap_demand *demand)
{
    const ap_problem_file *f = r->f;
    uint32_t n = f->more_nodes.n ? f->more_nodes.len[0] : 0;
    AP_TRY(same_count(r, "demands.intervals", f->more_intervals.n, "demands.nodes", n));
    AP_TRY(same_count(r, "demands.usages", f->more_usages.n, "demands.nodes", n));
    for (uint32_t i = 0; i < n; i++) {
        ap_demand d = {.usage = f->more_usages.at[i]};
        AP_TRY(check_index(r, &f->more_nodes, i, p->nnodes, "node"));
        d.node = (uint32_t)f->more_nodes.at[0][i];
        AP_TRY(check_usage(r, &f->more_usages, i, p->nstrategies[d.node], "strategies are"));
        AP_TRY(check_interval(r, &f->more_intervals, i, &d.lo, &d.hi));
        demand[p->ndemands++] = d;
    }
    return AP_OK;
}

static ap_status build_pair_demands(reader *r, ap_problem *p)
{
    const ap_problem_file *f = r->f;
    uint32_t n = f->pair_edges.n ? f->pair_edges.len[0] : 0;
    AP_TRY(same_count(r, "pair_demands.intervals", f->pair_intervals.n, "pair_demands.edges", n));
    AP_TRY(same_count(r, "pair_demands.usages", f->pair_usages.n, "pair_demands.edges", n));
    ap_pair_demand *demand = AP_NEW_ARRAY(r->arena, ap_pair_demand, n);
    for (uint32_t i = 0; i < n; i++) {
        ap_pair_demand d = {.usage = f->pair_usages.at[i]};
        AP_TRY(check_index(r, &f->pair_edges, i, p->nedges, "edge"));
        d.edge = (uint32_t)f->pair_edges.at[0][i];
        AP_TRY(check_usage(r, &f->pair_usages, i, f->edge_costs.len[d.edge], "the edge has"));
        AP_TRY(check_interval(r, &f->pair_intervals, i, &d.lo, &d.hi));
        demand[i] = d;
    }
    p->npair_demands = n;
    p->pair_demand = demand;
    return AP_OK;
}

static ap_status build(reader *r)
{
    ap_problem *p = &r->f->problem;
    uint64_t most = (uint64_t)r->f->costs.n + (r->f->more_nodes.n ? r->f->more_nodes.len[0] : 0);
    if (most > UINT32_MAX)
        return ap_error(r->scan.ctx, 0, "%s: too many demands", r->f->path);
    ap_demand *demand = AP_NEW_ARRAY(r->arena, ap_demand, most);
    p->demand = demand;
    p->limit = r->f->limit;
    AP_TRY(build_nodes(r, p, demand));
    AP_TRY(build_edges(r, p));
    AP_TRY(build_demands(r, p, demand));
    return build_pair_demands(r, p);
}

ap_status ap_problem_parse(ap_ctx *ctx, ap_arena *arena, const char *path, const uint8_t *data, uint64_t size,
                           ap_problem_file *out)
{
    ap_arena scratch;
    *out = (ap_problem_file){.path = path, .name = "", .limit = INT64_MAX};
    ap_arena_init(&scratch, arena->out_of_memory, arena->user);
    reader r = {.arena = arena, .scratch = &scratch, .f = out};
    ap_status s = ap_scan_open(ctx, &scratch, path, data, size, &r.scan);
    if (s == AP_OK)
        s = read_file(&r);
    if (s == AP_OK)
        s = build(&r);
    ap_arena_deinit(&scratch);
    return s;
}

ap_status ap_problem_read(ap_ctx *ctx, ap_arena *arena, const char *path, ap_problem_file *out)
{
    ap_file f;
    AP_TRY(ap_file_map(ctx, path, &f));
    ap_status s = ap_problem_parse(ctx, arena, path, f.data, f.size, out);
    ap_file_unmap(&f);
    return s;
}
