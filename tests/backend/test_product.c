/* Products as C: random shapes, strides, loops, weights in panels or not, and random work behind them, on 1, 2 and 4
 * ranks. The compiled program must give the evaluator's numbers. */
#include "harness.h"

typedef struct maker {
    ap_text head, kernels, calls;
    uint32_t *seed;
    int inputs, outputs, params, ranks;
    int64_t param_bytes;
} maker;

typedef struct product {
    int m, n, k, nloops, loop[2];
    bool moves[2]; /* B has a matrix for each turn of the loop */
} product;

static int draw(maker *t, int n)
{
    return (int)(next_random(t->seed) % (uint32_t)n);
}

static int size_of(maker *t)
{
    static const int edges[] = {1, 2, 7, 8, 14, 15, 16, 17, 31, 32, 33, 48, 64, 70};
    return draw(t, 3) ? edges[draw(t, 14)] : 1 + draw(t, 40);
}

/* A new input of count elements for each rank; its number. */
static int add_input(maker *t, const char *dtype, int64_t count)
{
    ap_text_addf(&t->head, "input \"i%d\" %s[%d,%lld]\n", t->inputs, dtype, t->ranks, (long long)count);
    return t->inputs++;
}

static int add_output(maker *t, const char *dtype, int64_t count)
{
    ap_text_addf(&t->head, "output \"o%d\" %s[%d,%lld]\n", t->outputs, dtype, t->ranks, (long long)count);
    return t->outputs++;
}

static void add_place(maker *t, const char *space, int number, int64_t per_rank)
{
    ap_text_addf(&t->calls, ", %s(%d)", space, number);
    if (t->ranks > 1)
        ap_text_addf(&t->calls, "+%lld*tp", (long long)per_rank);
}

/* The weight of all ranks side by side: [loops, k, ranks*n], or turned, [loops, ranks*n, k]. */
static int add_weight(maker *t, const product *p, const char *dtype, int bytes, int64_t matrices)
{
    bool turned = draw(t, 2);
    int64_t all = (int64_t)t->ranks * p->n, size = p->k * (int64_t)p->n * matrices * bytes;
    ap_text_addf(&t->head, "param %d \"w%d\" %s[%lld,%lld,%lld] box [%lld,%d,%d] strides [%lld,%lld,%lld] from ",
                 t->params, t->params, dtype, (long long)matrices, (long long)(turned ? all : p->k),
                 (long long)(turned ? p->k : all), (long long)matrices, p->k, p->n, (long long)(p->k * all),
                 (long long)(turned ? 1 : all), (long long)(turned ? p->k : 1));
    if (t->ranks > 1)
        ap_text_addf(&t->head, "%d*tp", turned ? p->n * p->k : p->n);
    else
        ap_text_add(&t->head, "0");
    ap_text_addf(&t->head, " at %lld bytes %lld panels [%d,%d] data([", (long long)t->param_bytes, (long long)size,
                 p->k, p->n);
    for (int64_t i = 0; i < matrices * p->k * all; i++)
        ap_text_addf(&t->head, "%s%g", i ? "," : "", (draw(t, 129) - 64) / 32.0);
    ap_text_add(&t->head, "])\n");
    t->param_bytes += (size + 63) / 64 * 64;
    return t->params++;
}

/* Strides over the loops, m and n of an operand that has any of them; its elements. */
static int64_t add_strides(maker *t, const product *p, ap_text *out, bool all)
{
    int extent[4], n = 0;
    int64_t stride[4], count = 1;
    for (int l = 0; l < p->nloops; l++)
        extent[n++] = p->loop[l];
    extent[n++] = p->m;
    extent[n++] = p->n;
    for (int l = n - 1; l >= 0; l--) {
        bool has = all || draw(t, 2);
        stride[l] = has ? count : 0;
        count *= has ? extent[l] : 1;
    }
    ap_text_add(out, "[");
    for (int l = 0; l < n; l++)
        ap_text_addf(out, "%s%lld", l ? "," : "", (long long)stride[l]);
    ap_text_add(out, "]");
    return count;
}

/* Random work on the sums; operands from 3 on are declared in `operands` and placed in `places`. */
static void add_epilogue(maker *t, const product *p, const char *dtype, ap_text *operands, ap_text *sops, bool ints)
{
    static const char *const unary[] = {"tanh", "erf", "neg", "abs", "sigmoid", "relu"};
    static const char *const binary[] = {"add", "sub", "mul", "max", "min"};
    int next = 1, last = 0, operand = 3, nloops = p->nloops + 2;
    ap_text_addf(sops, "  row:\n    %%0 = load 2 : %s\n", dtype);
    for (int step = 1 + draw(t, 5); step > 0; step--) {
        int what = draw(t, 8);
        if (what < 3) {
            ap_text_addf(sops, "    %%%d = %s %%%d : %s\n", next, unary[draw(t, 6)], last, dtype);
        } else if (what < 6) {
            ap_text_addf(operands, "  read %s ", dtype);
            int64_t count = add_strides(t, p, operands, draw(t, 3) == 0);
            ap_text_add(operands, "\n");
            add_place(t, "input", add_input(t, dtype, count), count);
            ap_text_addf(sops, "    %%%d = load %d : %s\n    %%%d = %s %%%d, %%%d : %s\n", next, operand++, dtype,
                         next + 1, binary[draw(t, 5)], last, next, dtype);
            next++;
        } else if (what == 6) {
            ap_text_addf(sops, "    %%%d = index [", next);
            for (int l = 0; l < nloops; l++)
                ap_text_addf(sops, "%s%d", l ? "," : "", draw(t, 3));
            ap_text_addf(sops, "]%s : i64\n    %%%d = const %d : i64\n    %%%d = lt %%%d, %%%d : bool\n",
                         ints && draw(t, 2) ? " + int 1" : "", next + 1, draw(t, 30), next + 2, next, next + 1);
            ap_text_addf(sops, "    %%%d = const 0.5 : %s\n    %%%d = select %%%d, %%%d, %%%d : %s\n", next + 3, dtype,
                         next + 4, next + 2, last, next + 3, dtype);
            next += 4;
        } else {
            ap_text_addf(operands, "  write %s ", dtype);
            int64_t count = add_strides(t, p, operands, true);
            ap_text_add(operands, "\n");
            add_place(t, "output", add_output(t, dtype, count), count);
            ap_text_addf(sops, "    store %d, %%%d : %s\n", operand++, last, dtype);
        }
        if (what != 7)
            last = next;
        next++;
    }
    ap_text_addf(sops, "    store 2, %%%d : %s\n", last, dtype);
}

static void add_product(maker *t, int number, bool is_double)
{
    const char *dtype = is_double ? "f64" : "f32";
    product p = {.m = size_of(t), .n = size_of(t), .k = draw(t, 6) ? size_of(t) : 250 + draw(t, 300)};
    if (p.k > 200) /* the weights stand in the text */
        p.n = 1 + p.n % 20;
    int64_t a = 1, b = 1, c = 1, matrices = 1, sa[2], sb[2], sc[2];
    ap_text operands, sops;
    ap_text_init(&operands, t->head.arena);
    ap_text_init(&sops, t->head.arena);
    p.nloops = draw(t, 3);
    for (int l = 0; l < p.nloops; l++) {
        p.loop[l] = 1 + draw(t, 3);
        p.moves[l] = draw(t, 2);
    }
    a = (int64_t)p.m * p.k, b = (int64_t)p.k * p.n, c = (int64_t)p.m * p.n;
    for (int l = p.nloops - 1; l >= 0; l--) {
        sa[l] = a, sc[l] = c, sb[l] = p.moves[l] ? b : 0;
        a *= p.loop[l], c *= p.loop[l];
        b *= p.moves[l] ? p.loop[l] : 1;
        matrices *= p.moves[l] ? p.loop[l] : 1;
    }
    bool panels = draw(t, 3) > 0, ta = draw(t, 2), tb = draw(t, 2), ints = draw(t, 2), follows = draw(t, 5) > 0;
    ap_text_addf(&t->calls, "call @g%d(input(%d)", number, add_input(t, dtype, a));
    if (t->ranks > 1)
        ap_text_addf(&t->calls, "+%lld*tp", (long long)a);
    if (panels)
        ap_text_addf(&t->calls, ", param(%d)", add_weight(t, &p, dtype, is_double ? 8 : 4, matrices));
    else
        add_place(t, "input", add_input(t, dtype, b), b);
    add_place(t, "output", add_output(t, dtype, c), c);
    if (follows)
        add_epilogue(t, &p, dtype, &operands, &sops, ints);
    ap_text_addf(&t->calls, ")%s\n",
                 !ints           ? ""
                 : t->ranks == 1 ? " ints(clamp(100000, 0, 64), 7)"
                                 : " ints(clamp(100000, 0, 64), 7+3*tp)");
    ap_text_addf(&t->kernels, "kernel gemm @g%d {\n  read %s\n  read %s\n  write %s\n%s%s", number, dtype, dtype, dtype,
                 ap_text_str(&operands), ints ? "  ints 2\n" : "");
    ap_text_addf(&t->kernels, "  %s m %d%s n %d k %d\n  a [%d,%d] b ", dtype, p.m, ints && p.m == 64 ? " int 0" : "",
                 p.n, p.k, ta ? 1 : p.k, ta ? p.m : 1);
    if (panels)
        ap_text_add(&t->kernels, "panels");
    else
        ap_text_addf(&t->kernels, "[%d,%d]", tb ? 1 : p.n, tb ? p.k : 1);
    ap_text_addf(&t->kernels, " c [%d,1]\n", p.n);
    for (int l = 0; l < p.nloops; l++)
        ap_text_addf(&t->kernels, "  loop %d a %lld b %lld c %lld\n", p.loop[l], (long long)sa[l], (long long)sb[l],
                     (long long)sc[l]);
    ap_text_addf(&t->kernels, "%s}\n", ap_text_str(&sops));
}

static void products(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 4, 1, 2, 4, 1, 2};
    uint32_t seed = 3;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        ap_ctx *ctx = ap_ctx_create();
        maker t = {.seed = &seed, .ranks = ranks[i]};
        ap_text all;
        ap_text_init(&t.head, &ctx->arena);
        ap_text_init(&t.kernels, &ctx->arena);
        ap_text_init(&t.calls, &ctx->arena);
        ap_text_init(&all, &ctx->arena);
        for (int k = 0; k < 24; k++)
            add_product(&t, k, k % 6 == 5);
        ap_text_addf(&all, "local @t ranks %d axes [%s", t.ranks, t.ranks > 1 ? "tp=" : "");
        if (t.ranks > 1)
            ap_text_addf(&all, "%d stride 1", t.ranks);
        ap_text_addf(&all, "] arena 0 params %lld\n%s%s%s", (long long)t.param_bytes, ap_text_str(&t.head),
                     ap_text_str(&t.kernels), ap_text_str(&t.calls));
        expect_equal(ap_text_str(&all), 2e-5);
        ap_ctx_release(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
