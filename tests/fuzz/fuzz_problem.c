/* Problem files, plain and gzip: what is read prints and reads back; small problems are solved, and the answer passes
 * the check by the file's numbers and is no worse than enumeration where that is possible. */
#include "fuzz.h"

#include "passes/solve/problem_file.h"

#include <string.h>

enum { MOST_NODES = 200, MOST_ENTRIES = 20000, MOST_CHOICES = 2000 };

static bool is_small(const ap_problem *p)
{
    uint64_t entries = 0;
    for (uint32_t v = 0; v < p->nnodes; v++)
        entries += p->nstrategies[v];
    for (uint32_t e = 0; e < p->nedges; e++)
        entries += (uint64_t)p->nstrategies[p->edge[e].u] * p->nstrategies[p->edge[e].v];
    return p->nnodes <= MOST_NODES && entries <= MOST_ENTRIES;
}

static bool can_enumerate(const ap_problem *p)
{
    uint64_t n = 1;
    for (uint32_t v = 0; v < p->nnodes && n <= MOST_CHOICES; v++)
        n *= p->nstrategies[v];
    return n <= MOST_CHOICES && p->ndemands + p->npair_demands <= 64;
}

static void check_answer(ap_ctx *ctx, const ap_problem_file *f, const ap_solution *s)
{
    __int128 cost, peak;
    fuzz_check(ap_problem_file_check(&ctx->scratch, f, s->choice, &cost, &peak), "the answer does not fit");
    fuzz_check(cost == s->cost && peak == s->peak && s->bound <= s->cost, "the answer has other figures");
}

static ap_status solve(ap_ctx *ctx, const ap_problem_file *f)
{
    const ap_problem *p = &f->problem;
    ap_solve_options options;
    ap_solution s;
    ap_solve_defaults(&options);
    options.work = 20000;
    AP_TRY(ap_solve(ctx, &ctx->scratch, p, &options, &s));
    if (s.result == AP_SOLVED)
        check_answer(ctx, f, &s);
    if (!can_enumerate(p))
        return AP_OK;
    int64_t least;
    uint32_t *best = AP_NEW_ARRAY(&ctx->scratch, uint32_t, p->nnodes);
    bool any = ap_problem_brute_force(&ctx->scratch, p, best, &least);
    fuzz_check(any || s.result != AP_SOLVED, "an answer to a problem without one");
    fuzz_check(!any || s.result != AP_SOLVE_INFEASIBLE, "a problem with an answer is called infeasible");
    fuzz_check(!any || s.bound <= least, "the bound is above the optimum");
    return AP_OK;
}

static void check_same(const ap_problem *p, const ap_problem *q)
{
    fuzz_check(p->nnodes == q->nnodes && p->nedges == q->nedges && p->limit == q->limit, "another problem");
    for (uint32_t v = 0; v < p->nnodes; v++)
        fuzz_check(p->nstrategies[v] == q->nstrategies[v] &&
                       memcmp(p->cost[v], q->cost[v], p->nstrategies[v] * sizeof **p->cost) == 0,
                   "other costs");
}

static ap_status body(ap_ctx *ctx, const uint8_t *data, size_t size)
{
    ap_problem_file f, again;
    AP_TRY(ap_problem_parse(ctx, &ctx->scratch, "problem.json", data, size, &f));
    ap_text t;
    ap_text_init(&t, &ctx->scratch);
    ap_problem_print(&f.problem, f.name, &t);
    fuzz_check(ap_problem_parse(ctx, &ctx->scratch, "again.json", (const uint8_t *)t.s, t.len, &again) == AP_OK,
               "what is printed is not read");
    check_same(&f.problem, &again.problem);
    return is_small(&f.problem) ? solve(ctx, &f) : AP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(body, data, size);
}
