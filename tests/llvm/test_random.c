/* Random nests, with NaN, infinities and denormal numbers among their operands: LLVM against the evaluator.
 * AP_RANDOM_PROGRAMS=N makes N programs of 24 kernels (2); with AP_RANDOM_C in the environment they are compiled as C
 * too. */
#include "tests/backend/jit.h"

#undef build_files
#undef load_library
#undef release_built

#include "ir/base/text.h"

enum { KERNELS = 24, LOOPS = 5 };

typedef struct maker {
    uint32_t seed;
    ap_text body;
    const char *type;
    bool real;
    int nouter, ninner, extent[LOOPS];
    int next; /* sop */
} maker;

static int pick(maker *m, int n)
{
    return (int)(next_random(&m->seed) >> 4) % n;
}

static int count(const maker *m, int from, int to)
{
    int n = 1;
    for (int l = from; l < to; l++)
        n *= m->extent[l];
    return n;
}

static int loops(const maker *m)
{
    return m->nouter + m->ninner;
}

/* [a,b,c]: a dense layout in random order of the loops; `most` of them, the others stay where they are. */
static void add_layout(maker *m, int most, bool broadcast)
{
    int stride[LOOPS] = {0}, left[LOOPS], n = most, step = 1;
    for (int l = 0; l < most; l++)
        left[l] = l;
    while (n > 0) {
        int i = pick(m, 3) ? n - 1 : pick(m, n), l = left[i];
        left[i] = left[--n];
        if (broadcast && pick(m, 3) == 0)
            continue;
        stride[l] = step;
        step *= m->extent[l];
    }
    for (int l = 0; l < loops(m); l++)
        ap_text_addf(&m->body, "%s%d", l ? "," : "[", stride[l]);
    ap_text_add(&m->body, "]\n");
}

static int sop(maker *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int sop(maker *m, const char *fmt, ...)
{
    char line[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    ap_text_addf(&m->body, "    %%%d = %s : %s\n", m->next, line, m->type);
    return m->next++;
}

static void store(maker *m, int operand, int value)
{
    ap_text_addf(&m->body, "    store %d, %%%d : %s\n", operand, value, m->type);
    m->next++;
}

/* A value of x, a small number, and y; what would jump or overflow is only done to what was loaded. */
static int compute(maker *m, int x, int y)
{
    static const char *const real1[] = {"exp", "tanh", "sigmoid", "relu", "abs", "neg", "erf", "floor", "ceil"};
    static const char *const real2[] = {"add", "sub", "mul", "max", "min"};
    static const char *const whole2[] = {"add", "sub", "mul", "max", "min", "div", "mod", "bit_and", "bit_xor"};
    if (!m->real)
        return sop(m, "%s %%%d, %%%d", whole2[pick(m, 9)], x, y);
    int a = pick(m, 3) ? sop(m, "%s %%%d", real1[pick(m, 9)], x) : x;
    if (pick(m, 5) == 0) {
        ap_text_addf(&m->body, "    %%%d = lt %%%d, %%%d : bool\n", m->next, x, y);
        int condition = m->next++;
        a = sop(m, "select %%%d, %%%d, %%%d", condition, a, y);
    }
    return sop(m, "%s %%%d, %%%d", real2[pick(m, 5)], a, y);
}

/* Operands: 0 and 1 read, 2 written by element, 3 per row. */
static void make_body(maker *m, bool temp)
{
    static const char *const fold[] = {"sum", "max", "min"};
    if (m->ninner == 0) {
        ap_text_add(&m->body, "  row:\n");
        int x = sop(m, "load 0"), y = sop(m, "load 1"), z = compute(m, x, y);
        store(m, 2, z);
        store(m, 3, x);
        return;
    }
    ap_text_add(&m->body, "  inner:\n");
    int x = sop(m, "load 0"), y = sop(m, "load 1"), z = compute(m, x, y);
    if (temp) {
        ap_text_addf(&m->body, "    temp_store 0, %%%d : %s\n", z, m->type);
        m->next++;
    }
    int r = sop(m, "reduce %s %%%d", fold[pick(m, 3)], z);
    if (pick(m, 2)) {
        ap_text_add(&m->body, "  row:\n");
        store(m, 3, m->real && pick(m, 2) ? sop(m, "tanh %%%d", r) : r);
        ap_text_add(&m->body, "  inner:\n");
    } else {
        ap_text_add(&m->body, "  row:\n");
        store(m, 3, r);
        ap_text_add(&m->body, "  inner:\n");
    }
    int again = temp ? sop(m, "temp_load 0") : sop(m, "load 0");
    store(m, 2, sop(m, "%s %%%d, %%%d", pick(m, 2) ? "max" : "sub", again, r));
}

static void make_kernel(maker *m, ap_text *ports, int number)
{
    static const char *const types[] = {"f32", "f32", "f32", "f64", "f16", "bf16", "i8", "u8", "i16", "i32", "i64"};
    static const int extents[] = {1, 2, 3, 4, 7, 8, 16, 33};
    int type = pick(m, 11);
    m->type = types[type];
    m->real = type < 6;
    m->nouter = 1 + pick(m, 3);
    m->ninner = pick(m, 3);
    m->next = 0;
    do
        for (int l = 0; l < loops(m); l++)
            m->extent[l] = extents[pick(m, 8)];
    while (count(m, 0, loops(m)) > 6000);
    int all = count(m, 0, loops(m)), rows = count(m, 0, m->nouter);
    bool temp = m->ninner && pick(m, 2);
    ap_text_addf(ports, "input \"x%d\" %s[%d]\ninput \"y%d\" %s[%d]\n", number, m->type, all, number, m->type, all);
    ap_text_addf(&m->body, "kernel nest @k%d {\n  read %s ", number, m->type);
    add_layout(m, loops(m), false);
    ap_text_addf(&m->body, "  read %s ", m->type);
    add_layout(m, loops(m), true);
    ap_text_addf(&m->body, "  write %s ", m->type);
    add_layout(m, loops(m), false);
    ap_text_addf(&m->body, "  write %s ", m->type);
    add_layout(m, m->nouter, false);
    ap_text_add(&m->body, "  outer [");
    for (int l = 0; l < m->nouter; l++)
        ap_text_addf(&m->body, "%s%d", l ? "," : "", m->extent[l]);
    ap_text_add(&m->body, "] inner [");
    for (int l = m->nouter; l < loops(m); l++)
        ap_text_addf(&m->body, "%s%d", l > m->nouter ? "," : "", m->extent[l]);
    ap_text_addf(&m->body, "]\n%s%s%s", temp ? "  temp " : "", temp ? m->type : "", temp ? "\n" : "");
    make_body(m, temp);
    ap_text_addf(&m->body, "}\ncall @k%d(input(%d), input(%d), output(%d), output(%d))\n", number, 2 * number,
                 2 * number + 1, 2 * number, 2 * number + 1);
    (void)rows;
}

/* NaN, infinities and denormal numbers in a few places. */
static void plant(built *b, maker *m)
{
    static const double special[] = {NAN, INFINITY, -INFINITY, 0x1p-140, -0x1.8p-135, 0x1p-1060, -0.0, 0x1p-24};
    for (uint32_t i = 0; i < b->p->inputs.len; i++) {
        ap_tensor *t = &b->want_in[i];
        for (int k = 0; ap_dtype_is_float(t->dtype) && k < 3; k++) {
            ap_scalar *x = &t->at[(int64_t)(next_random(&m->seed) >> 4) % t->count];
            *x = ap_scalar_round(t->dtype, (ap_scalar){.f = special[pick(m, 8)]});
        }
        ap_tensor_to_bytes(t, b->in[i]);
    }
}

static double tolerance(ap_dtype t)
{
    return t == AP_F16 ? 4e-3 : t == AP_BF16 ? 3e-2 : t == AP_F32 ? 1e-5 : t == AP_F64 ? 1e-12 : 0;
}

static void run_program(const char *text, uint32_t seed, bool jit)
{
    built b = {.ctx = ap_ctx_create()};
    maker m = {.seed = seed};
    b.p = parse_local(b.ctx, text);
    if (jit) {
        jit_build_files(&b, "t");
        jit_load_library(&b);
    } else {
        build_files(&b, "t");
        load_library(&b);
    }
    make_tensors(&b, seed);
    plant(&b, &m);
    check(b.ctx, ap_local_eval(b.p, &b.ctx->arena, b.want_in, b.want));
    assert_int_equal(run_built(&b), 0);
    for (uint32_t i = 0; i < b.p->outputs.len; i++)
        compare_output(&b, i, tolerance(b.p->outputs.at[i].dtype));
    if (jit)
        jit_release_built(&b);
    else
        release_built(&b);
}

static void random_nests(void **state)
{
    (void)state;
    const char *programs = getenv("AP_RANDOM_PROGRAMS");
    for (int i = 0; i < (programs ? atoi(programs) : 2); i++) {
        ap_ctx *ctx = ap_ctx_create();
        maker m = {.seed = 77u + 1000003u * (uint32_t)i};
        ap_text ports;
        ap_text_init(&ports, &ctx->arena);
        ap_text_init(&m.body, &ctx->arena);
        ap_text_add(&ports, "local @t ranks 1 axes [] arena 0 params 0\n");
        ap_text outputs;
        ap_text_init(&outputs, &ctx->arena);
        for (int k = 0; k < KERNELS; k++) {
            make_kernel(&m, &ports, k);
            ap_text_addf(&outputs, "output \"z%d\" %s[%d]\noutput \"r%d\" %s[%d]\n", k, m.type, count(&m, 0, loops(&m)),
                         k, m.type, count(&m, 0, m.nouter));
        }
        ap_text_addf(&ports, "%s%s", ap_text_str(&outputs), ap_text_str(&m.body));
        if (getenv("AP_KEEP"))
            fprintf(stderr, "program %d:\n%s", i, ap_text_str(&ports));
        run_program(ap_text_str(&ports), 5u + (uint32_t)i, true);
        if (getenv("AP_RANDOM_C"))
            run_program(ap_text_str(&ports), 5u + (uint32_t)i, false);
        ap_ctx_release(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_nests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
