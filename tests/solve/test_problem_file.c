/* Problem files: what is printed is read back, plain and compressed; the check by the file's numbers agrees with the
 * evaluation of the problem; whatever is wrong with a file is told once, with its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/solve/problem_file.h"
#include "tests/solve/random_problem.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

static ap_status parse(ap_ctx *ctx, const void *data, size_t size, ap_problem_file *out)
{
    return ap_problem_parse(ctx, &ctx->scratch, "p.json", data, size, out);
}

/* ---- there and back ---- */

static void assert_same(const ap_problem *p, const ap_problem *q)
{
    assert_int_equal(p->nnodes, q->nnodes);
    assert_int_equal(p->nedges, q->nedges);
    assert_int_equal(p->limit, q->limit);
    assert_int_equal(p->npair_demands, q->npair_demands);
    for (uint32_t v = 0; v < p->nnodes; v++) {
        assert_int_equal(p->nstrategies[v], q->nstrategies[v]);
        assert_memory_equal(p->cost[v], q->cost[v], p->nstrategies[v] * sizeof **p->cost);
    }
    for (uint32_t e = 0; e < p->nedges; e++) {
        size_t n = (size_t)p->nstrategies[p->edge[e].u] * p->nstrategies[p->edge[e].v];
        assert_int_equal(p->edge[e].u, q->edge[e].u);
        assert_int_equal(p->edge[e].v, q->edge[e].v);
        assert_memory_equal(p->edge[e].cost, q->edge[e].cost, n * sizeof(int64_t));
    }
}

/* Files say [lo, hi] with lo <= hi; the tests' problems also have intervals the wrong way round, which hold nothing. */
static void tidy(ap_arena *a, ap_problem *p)
{
    ap_demand *d = ap_arena_memdup(a, p->demand, p->ndemands * sizeof *d);
    ap_pair_demand *x = ap_arena_memdup(a, p->pair_demand, p->npair_demands * sizeof *x);
    for (uint32_t i = 0; i < p->ndemands; i++)
        d[i].hi = d[i].hi < d[i].lo ? d[i].lo : d[i].hi;
    for (uint32_t i = 0; i < p->npair_demands; i++)
        x[i].hi = x[i].hi < x[i].lo ? x[i].lo : x[i].hi;
    p->demand = d;
    p->pair_demand = x;
}

static size_t compress_text(ap_arena *a, const char *text, size_t size, uint8_t **out)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t cap = deflateBound(&z, size);
    *out = ap_arena_alloc(a, cap);
    z.next_in = (z_const Bytef *)(uintptr_t)text;
    z.avail_in = (uInt)size;
    z.next_out = *out;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

/* One choice: the check by the file's numbers against the evaluation. */
static void compare_check(ap_arena *a, const ap_problem *p, const ap_problem_file *f, const uint32_t *x)
{
    int64_t cost = 0, peak = 0;
    __int128 cost2, peak2;
    bool ok = ap_problem_evaluate(p, x, &cost, &peak), ok2 = ap_problem_file_check(a, f, x, &cost2, &peak2);
    if (ok) {
        assert_true(ok2 && cost == cost2 && peak == peak2);
        return;
    }
    /* a limit exceeded, or an entry of 10^18 in the sum */
    assert_true(!ok2 || cost2 >= AP_FILE_FORBIDDEN / 2);
}

static void test_round_trip(void **state)
{
    (void)state;
    rng r = {31};
    ap_ctx *ctx = ap_ctx_create();
    uint32_t several = 0, pairs = 0;
    for (uint32_t i = 0; i < test_rounds(2000); i++) {
        ap_arena *a = &ctx->scratch;
        ap_problem p;
        ap_problem_file f, g;
        ap_text t;
        uint8_t *packed;
        random_problem(&r, a, &(shape){9, 4, 500, i % 2 ? 1 : 1000000, i % 3 == 0}, &p);
        tidy(a, &p);
        ap_text_init(&t, a);
        ap_problem_print(&p, "a \"name\"\n", &t);
        assert_int_equal(parse(ctx, t.s, t.len, &f), AP_OK);
        assert_string_equal(f.name, "a _name__");
        assert_same(&p, &f.problem);
        size_t n = compress_text(a, t.s, t.len, &packed);
        assert_int_equal(parse(ctx, packed, n, &g), AP_OK);
        assert_same(&p, &g.problem);
        uint32_t *x = AP_NEW_ARRAY(a, uint32_t, p.nnodes);
        for (int k = 0; k < 20; k++) {
            for (uint32_t v = 0; v < p.nnodes; v++)
                x[v] = rng_below(&r, p.nstrategies[v]);
            compare_check(a, &p, &f, x);
            compare_check(a, &f.problem, &f, x);
        }
        x[0] = p.nstrategies[0];
        __int128 any;
        assert_false(ap_problem_file_check(a, &f, x, &any, &any));
        several += f.more_nodes.n > 0;
        pairs += f.pair_edges.n > 0;
        ap_text again;
        ap_text_init(&again, a);
        ap_problem_print(&f.problem, "a _name__", &again);
        if (p.limit == INT64_MAX || f.more_nodes.n == 0)
            assert_int_equal(again.len, t.len);
        ap_arena_reset(a);
    }
    assert_true(several > test_rounds(2000) / 40 && pairs > test_rounds(2000) / 40);
    ap_ctx_release(ctx);
}

/* Text of more than one window, and two gzip files in one. */
static void test_windows(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_arena *a = &ctx->scratch;
    ap_text t;
    uint8_t *packed, *second;
    ap_text_init(&t, a);
    ap_text_add(
        &t, "{\"x\": {\"y\": [1.5e+3, -0, null, true, false, \"\\u00e9\\n\"]},\n\"problem\": {\"edges\": {\"nodes\": "
            "[], \"costs\": []}, \"nodes\": {\"costs\": [");
    enum { N = 30000 };
    for (int i = 0; i < N; i++)
        ap_text_addf(&t, "%s\n[%d, -%d, 1000000000000000000]", i ? "," : "", i, i);
    ap_text_add(&t, "], \"usages\": [");
    for (int i = 0; i < N; i++)
        ap_text_addf(&t, "%s[0, %d, 9223372036854775807]", i ? "," : "", i);
    ap_text_add(&t, "], \"intervals\": [");
    for (int i = 0; i < N; i++)
        ap_text_addf(&t, "%s[%d, %d]", i ? "," : "", i, i + i % 2);
    ap_text_add(&t, "]}}}");
    size_t half = t.len / 2, n = compress_text(a, t.s, half, &packed);
    size_t m = compress_text(a, t.s + half, t.len - half, &second);
    uint8_t *both = ap_arena_alloc(a, n + m);
    memcpy(both, packed, n);
    memcpy(both + n, second, m);
    ap_problem_file f;
    assert_int_equal(parse(ctx, both, n + m, &f), AP_OK);
    assert_int_equal(f.problem.nnodes, N);
    assert_int_equal(f.problem.ndemands, N / 2);
    for (int i = 0; i < N; i++) {
        assert_int_equal(f.problem.cost[i][0], i);
        assert_int_equal(f.problem.cost[i][1], -i);
        assert_true(f.problem.cost[i][2] == AP_FORBIDDEN);
        assert_int_equal(f.costs.place[i].line, i + 3);
        assert_int_equal(f.costs.place[i].column, 1);
    }
    for (size_t cut = 1; cut < n + m; cut += 997) { /* all that is missing is missed */
        ap_ctx *c = ap_ctx_create();
        assert_int_equal(parse(c, both, cut, &f), AP_ERR_MODEL);
        assert_int_equal(c->diags.len, 1);
        ap_ctx_release(c);
    }
    both[n + m - 6] ^= 1; /* the checksum */
    assert_int_equal(parse(ctx, both, n + m, &f), AP_ERR_MODEL);
    assert_int_equal(ctx->diags.len, 1);
    assert_non_null(strstr(ctx->diags.at[0].text, "p.json: the compressed data are damaged"));
    ap_ctx_release(ctx);
}

/* ---- what is refused ---- */

#define NODES "\"nodes\": {\"intervals\": [[0, 1], [0, 0]], \"costs\": [[1, 2], [3]], \"usages\": [[4, 5], [6]]}"
#define EDGES "\"edges\": {\"nodes\": [[0, 1]], \"costs\": [[7, 8]]}"
#define P(...) "{\"problem\": {" __VA_ARGS__ "}}"
#define NODES_ARE(i, c, u) "\"nodes\": {\"intervals\": " i ", \"costs\": " c ", \"usages\": " u "}"
#define MORE(n, i, u) "\"demands\": {\"nodes\": " n ", \"intervals\": " i ", \"usages\": " u "}"
#define PAIRS(e, i, u) "\"pair_demands\": {\"edges\": " e ", \"intervals\": " i ", \"usages\": " u "}"

static const struct {
    const char *text, *message;
} bad[] = {
    {"", "p.json:1:1: the file ends where '{' should stand"},
    {"\n\n [", "p.json:3:2: '[' where '{' should stand"},
    {"\xff", "p.json:1:1: byte 0xff where '{' should stand"},
    {"{}", "p.json:1:3: there is no 'problem'"},
    {"{\"problem\" 1}", "p.json:1:12: '1' where ':' should stand"},
    {"{\"problem\": 1}", "p.json:1:13: '1' where '{' should stand"},
    {"{\"problem\": {}}", "p.json:1:15: problem: 'nodes' is missing"},
    {P(NODES), "problem: 'edges' is missing"},
    {P(EDGES), "problem: 'nodes' is missing"},
    {P(NODES "," EDGES) "x", "'x' where the end of the file should stand"},
    {P(NODES "," EDGES ","), "'}' where a string should stand"},
    {P(NODES "," NODES "," EDGES), "'nodes' stands there twice"},
    {P(NODES "," EDGES ", \"usage_limit\": 1, \"usage_limit\": 2"), "'usage_limit' stands there twice"},
    {"{\"problem\": {" NODES "," EDGES "}, \"problem\": {}}", "'problem' stands there twice"},
    {P(NODES "," EDGES ", \"usage_limit\": 1.5"), "a fraction or exponent"},
    {P(NODES "," EDGES ", \"usage_limit\": 1e18"), "a fraction or exponent"},
    {P(NODES "," EDGES ", \"usage_limit\": null"), "'n' where a whole number should stand"},
    {P(NODES "," EDGES ", \"usage_limit\": 01"), "a number that begins with 0"},
    {P(NODES "," EDGES ", \"usage_limit\": -"), "'}' where a digit should stand"},
    {P(NODES "," EDGES ", \"usage_limit\": 9223372036854775808"), "a number of more than 64 bits"},
    {P(NODES "," EDGES ", \"usage_limit\": -9223372036854775809"), "a number of more than 64 bits"},
    {P(NODES "," EDGES ", \"usage_limit\": 99999999999999999999999"), "a number of more than 64 bits"},
    {P(NODES "," EDGES ", \"other\": [NaN]"), "'N' where a value should stand"},
    {P(NODES "," EDGES ", \"other\": [1 2]"), "'2' where ',' or ']' should stand"},
    {P(NODES "," EDGES ", \"other\": \"\\x\""), "'x' where an escape of JSON should stand"},
    {P(NODES "," EDGES ", \"other\": \"\\u12g4\""), "'g' where a hexadecimal digit should stand"},
    {P(NODES "," EDGES ", \"other\": \"\n\""), "byte 0x0a where '\"' that ends a string should stand"},
    {P(NODES "," EDGES ", \"other\": 1."), "where a digit should stand"},
    {P(NODES ",\n" EDGES ", \"name\": 5"), "p.json:2:"},
    {P(NODES "," EDGES "]"), "']' where ',' or '}' should stand"},
    {P("\"nodes\": {\"costs\": []}," EDGES), "nodes: 'intervals' is missing"},
    {P(NODES ", \"edges\": {\"nodes\": []}"), "edges: 'costs' is missing"},
    {P(NODES_ARE("[[0, 1]]", "[[1]]", "[]") "," EDGES), "nodes.usages has 0 entries, nodes.costs has 1"},
    {P(NODES_ARE("[]", "[[1]]", "[[1]]") "," EDGES), "nodes.intervals has 0 entries, nodes.costs has 1"},
    {P(NODES_ARE("[[0, 1], [0, 1]]", "[[1], \n[]]", "[[1], []]") "," EDGES), "p.json:2:1: node 1 has no strategy"},
    {P(NODES_ARE("[[0, 1]]", "[[1]]", "[[1, 2]]") "," EDGES), "usages 0 has 2 numbers, strategies are 1"},
    {P(NODES_ARE("[[0, 1]]", "[[1]]", "[[-1]]") "," EDGES), "usages 0: number 0 is negative"},
    {P(NODES_ARE("[[0]]", "[[1]]", "[[1]]") "," EDGES), "interval 0 has 1 numbers, not 2"},
    {P(NODES_ARE("[[2, 1]]", "[[1]]", "[[1]]") "," EDGES), "interval 0 is [2, 1]"},
    {P(NODES_ARE("[[-1, 1]]", "[[1]]", "[[1]]") "," EDGES), "interval 0 is [-1, 1]"},
    {P(NODES_ARE("[[0, 4294967296]]", "[[1]]", "[[1]]") "," EDGES), "interval 0 is [0, 4294967296]"},
    {P(NODES_ARE("[0, 1]", "[[1]]", "[[1]]") "," EDGES), "'0' where '[' should stand"},
    {P(NODES ", \"edges\": {\"nodes\": [[0, 1]], \"costs\": []}"), "edges.nodes has 1 entries, edges.costs has 0"},
    {P(NODES ", \"edges\": {\"nodes\": [[0, 2]], \"costs\": [[7, 8]]}"), "edge 0: there is no node 2"},
    {P(NODES ", \"edges\": {\"nodes\": [[-1, 1]], \"costs\": [[7, 8]]}"), "edge 0: there is no node -1"},
    {P(NODES ", \"edges\": {\"nodes\": [[1, 1]], \"costs\": [[7]]}"), "edge 0 joins node 1 with itself"},
    {P(NODES ", \"edges\": {\"nodes\": [[0, 1, 1]], \"costs\": [[7, 8]]}"), "edge 0 joins 3 nodes"},
    {P(NODES ", \"edges\": {\"nodes\": [[0, 1]], \"costs\": [[7]]}"), "edge 0 has 1 costs, its strategies make 2"},
    {P(NODES "," EDGES "," MORE("[5]", "[[0, 1]]", "[[1]]")), "there is no node 5"},
    {P(NODES "," EDGES "," MORE("[0]", "[]", "[[1]]")), "demands.intervals has 0 entries, demands.nodes has 1"},
    {P(NODES "," EDGES "," MORE("[0]", "[[0, 1]]", "[[1]]")), "usages 0 has 1 numbers, strategies are 2"},
    {P(NODES "," EDGES "," PAIRS("[1]", "[[0, 1]]", "[[1, 2]]")), "there is no edge 1"},
    {P(NODES "," EDGES "," PAIRS("[0]", "[[0, 1]]", "[[1]]")), "usages 0 has 1 numbers, the edge has 2"},
    {P(NODES "," EDGES "," PAIRS("[0]", "[[0, 1]]", "[[1, -2]]")), "usages 0: number 1 is negative"},
    {P(NODES "," EDGES "," PAIRS("0", "[[0, 1]]", "[[1, -2]]")), "'0' where '[' should stand"},
    {"\x1f\x8b", "p.json: the compressed data end early"},
    {"\x1f\x8bxxxxxxxxxxxxxxxxx", "p.json: the compressed data are damaged"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_problem_file f;
        ap_status s = parse(ctx, bad[i].text, strlen(bad[i].text), &f);
        if (s != AP_ERR_MODEL || ctx->diags.len != 1 || !strstr(ctx->diags.at[0].text, bad[i].message))
            fail_msg("%s\nexpected: %s\ngot: %s", bad[i].text, bad[i].message,
                     ctx->diags.len ? ctx->diags.at[0].text : "nothing");
        ap_ctx_release(ctx);
    }
}

/* Nesting is refused before it costs anything; a NUL is a byte like others. */
static void test_deep(void **state)
{
    (void)state;
    ap_ctx *ctx = ap_ctx_create();
    ap_text t;
    ap_problem_file f;
    ap_text_init(&t, &ctx->arena);
    ap_text_add(&t, "{\"x\": ");
    for (int i = 0; i < 100000; i++)
        ap_text_add(&t, "[");
    assert_int_equal(parse(ctx, t.s, t.len, &f), AP_ERR_MODEL);
    assert_non_null(strstr(ctx->diags.at[0].text, "lists in lists: more than 64"));
    assert_int_equal(parse(ctx, "{}\0", 3, &f), AP_ERR_MODEL);
    assert_non_null(strstr(ctx->diags.at[1].text, "byte 0x00 where the end of the file should stand"));
    assert_int_equal(ap_problem_read(ctx, &ctx->scratch, "/nowhere/p.json", &f), AP_ERR_ENV);
    ap_ctx_release(ctx);
}

/* Shortest possible: nothing at all, and keys in a strange order. */
static void test_accepted(void **state)
{
    (void)state;
    static const char empty[] = P("\"edges\": {\"costs\": [], \"nodes\": []}, " NODES_ARE("[]", "[]", "[]"));
    static const char most[] =
        P(EDGES "," NODES "," MORE("[0, 0]", "[[3, 3], [0, 4294967295]]", "[[1, 2], [3, 4]]") "," PAIRS(
            "[0]", "[[1, 2]]", "[[0, 9]]") ", \"usage_limit\": 9, \"name\": \"n\"");
    ap_ctx *ctx = ap_ctx_create();
    ap_problem_file f;
    assert_int_equal(parse(ctx, empty, sizeof empty - 1, &f), AP_OK);
    assert_int_equal(f.problem.nnodes, 0);
    assert_true(f.problem.limit == INT64_MAX);
    assert_int_equal(parse(ctx, most, sizeof most - 1, &f), AP_OK);
    assert_int_equal(f.problem.ndemands, 3); /* node 1 holds nothing: [0, 0] */
    assert_int_equal(f.problem.limit, 9);
    const uint32_t x[2] = {1, 0};
    __int128 cost, peak;
    assert_false(ap_problem_file_check(&ctx->scratch, &f, x, &cost, &peak));
    assert_true(cost == 2 + 3 + 8 && peak == 4 + 9); /* second of the edge: 8; at 1: demand 4 and the pair's 9 */
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_windows),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_deep),       cmocka_unit_test(test_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
