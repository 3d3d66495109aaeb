/* The convolution library against plain loops of this file, which know nothing of layouts: random shapes, groups,
 * strides, dilations, holes, flips, steps and turns; channels-last f32, which the library takes, and other strides and
 * types, which it does not. Several devices at once give what one gives, bit by bit. */
#include "autopar_rt.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static int64_t below(uint64_t *seed, int64_t n)
{
    return (int64_t)(next_random(seed) % (uint64_t)n);
}

static double number(uint64_t *seed)
{
    return (double)next_random(seed) / (double)(1u << 31) * 2 - 1;
}

typedef struct problem {
    aprt_conv c;
    int64_t turns[4]; /* n, g, m, c */
    int64_t nx, nw, ny, nv;
    double *x, *w, *y, *v; /* v: operands of steps, each of ny elements */
    int nv_used;
} problem;

static int64_t product(const aprt_conv *c, int which)
{
    int64_t n = 1;
    for (int d = 0; d < c->nspatial; d++)
        n *= which == 0 ? c->dim[d].in : which == 1 ? c->dim[d].kernel : c->dim[d].out;
    return n;
}

/* Strides without gaps: [.., plane, b, c] or [a, b, c, plane]. */
static void set_strides(const aprt_conv *c, int which, const int64_t extent[3], int last, int64_t *stride)
{
    int64_t next = 1;
    for (int turn = 0; turn < 2; turn++) {
        for (int d = c->nspatial - 1; d >= 0 && turn == last; d--) {
            stride[3 + d] = next;
            next *= which == 0 ? c->dim[d].in : which == 1 ? c->dim[d].kernel : c->dim[d].out;
        }
        for (int d = 2; d >= 1 && turn != last; d--) {
            stride[d] = next;
            next *= extent[d];
        }
    }
    stride[0] = next;
}

static void draw_window(aprt_conv_dim *d, uint64_t *seed, int transposed)
{
    do {
        *d = (aprt_conv_dim){.in = 1 + below(seed, 9), .kernel = 1 + below(seed, 4), .dilate = 1 + below(seed, 2)};
        d->stride = transposed ? 1 : 1 + below(seed, 3);
        d->hole = transposed ? 2 + below(seed, 2) : 1;
        d->flip = transposed || below(seed, 4) == 0;
        d->lo = below(seed, 4);
        int64_t hi = below(seed, 4), span = (d->in - 1) * d->hole + 1 + d->lo + hi,
                reach = (d->kernel - 1) * d->dilate + 1;
        d->out = span < reach ? 0 : (span - reach) / d->stride + 1;
    } while (d->out < 1);
}

static void draw_step(problem *p, uint64_t *seed, int64_t rank)
{
    aprt_conv *c = &p->c;
    aprt_conv_step *s = &c->step[c->nsteps++];
    *s = (aprt_conv_step){.op = (aprt_conv_op)below(seed, 5)};
    if (s->op == APRT_CONV_RELU)
        return;
    int64_t kind = s->op >= APRT_CONV_MAX ? 0 : below(seed, s->op == APRT_CONV_ADD ? 4 : 2);
    s->other = kind == 0 ? APRT_CONV_NUMBER : APRT_CONV_OPERAND;
    s->number = kind == 0 ? (float)number(seed) : 0;
    s->operand = kind == 0 ? 0 : p->nv_used++;
    if (kind == 1)
        s->stride[1] = c->m, s->stride[2] = 1;
    if (kind == 3) { /* what is there; once, since it is there once */
        for (int i = 0; i + 1 < c->nsteps; i++)
            kind = c->step[i].other == APRT_CONV_OPERAND && c->step[i].operand < 0 ? 2 : kind;
        s->operand = kind == 3 ? -1 : s->operand;
    }
    for (int64_t d = 0; kind >= 2 && d < rank; d++)
        s->stride[d] = c->y[d];
}

/* `plane`: of two dimensions, or NULL. */
static void draw_problem(problem *p, uint64_t *seed, int plain, const aprt_conv_dim *plane)
{
    aprt_conv *c = &p->c;
    memset(p, 0, sizeof *p);
    int transposed = !plane && below(seed, 4) == 0;
    c->dtype = APRT_F32;
    c->nspatial = plane ? 2 : (int32_t)below(seed, plain ? 5 : 4);
    c->n = 1 + below(seed, 3);
    c->g = below(seed, 3) ? 1 : 1 + below(seed, 20);
    c->m = below(seed, 3) ? 1 + below(seed, 40) : 1;
    c->c = below(seed, 3) ? 1 + below(seed, 20) : 1;
    for (int d = 0; d < c->nspatial && !plane; d++)
        draw_window(&c->dim[d], seed, transposed);
    for (int d = 0; d < c->nspatial && plane; d++)
        c->dim[d] = plane[d];
    set_strides(c, 0, (int64_t[]){c->n, c->g, c->c}, !plain, c->x);
    set_strides(c, 1, (int64_t[]){c->g, c->m, c->c}, below(seed, 3) == 0, c->w);
    set_strides(c, 2, (int64_t[]){c->n, c->g, c->m}, !plain, c->y);
    for (int64_t i = below(seed, 5); i > 0; i--)
        draw_step(p, seed, c->nspatial + 3);
    const int64_t most[4] = {c->n, c->g, c->m, c->c};
    for (int i = 0; i < 4; i++)
        p->turns[i] = below(seed, 4) ? most[i] : below(seed, most[i] + 1);
    p->nx = c->n * c->g * c->c * product(c, 0);
    p->nw = c->g * c->m * c->c * product(c, 1);
    p->ny = c->n * c->g * c->m * product(c, 2);
    p->nv = p->ny * (p->nv_used + 1);
    p->x = malloc((size_t)p->nx * sizeof *p->x);
    p->w = malloc((size_t)p->nw * sizeof *p->w);
    p->y = malloc((size_t)p->ny * sizeof *p->y);
    p->v = malloc((size_t)p->nv * sizeof *p->v);
    double *all[] = {p->x, p->w, p->y, p->v};
    const int64_t count[] = {p->nx, p->nw, p->ny, p->nv};
    for (int a = 0; a < 4; a++)
        for (int64_t i = 0; i < count[a]; i++)
            all[a][i] = (float)number(seed);
}

static void free_problem(problem *p)
{
    free(p->x);
    free(p->w);
    free(p->y);
    free(p->v);
}

static double one_result(const problem *p, const int64_t *at, double before)
{
    const aprt_conv *c = &p->c;
    int64_t taps = product(c, 1), y = 0;
    double sum = 0;
    for (int64_t t = 0; t < taps; t++) {
        int64_t x = at[0] * c->x[0] + at[1] * c->x[1], w = at[1] * c->w[0] + at[2] * c->w[1], rest = t;
        int there = 1;
        for (int d = c->nspatial - 1; d >= 0; d--) {
            const aprt_conv_dim *k = &c->dim[d];
            int64_t tap = rest % k->kernel, used = k->flip ? k->kernel - 1 - tap : tap;
            int64_t i = at[3 + d] * k->stride + used * k->dilate - k->lo;
            rest /= k->kernel;
            there = there && i >= 0 && i % k->hole == 0 && i / k->hole < k->in;
            x += i / k->hole * c->x[3 + d];
            w += tap * c->w[3 + d];
        }
        for (int64_t i = 0; there && i < p->turns[3]; i++)
            sum += p->x[x + i * c->x[2]] * p->w[w + i * c->w[2]];
    }
    for (int i = 0; i < c->nsteps; i++) {
        const aprt_conv_step *s = &c->step[i];
        double o = s->number;
        y = 0;
        for (int d = 0; d < c->nspatial + 3; d++)
            y += at[d] * s->stride[d];
        if (s->other == APRT_CONV_OPERAND)
            o = s->operand < 0 ? before : p->v[s->operand * p->ny + y];
        sum = s->op == APRT_CONV_RELU  ? (sum > 0 ? sum : 0)
              : s->op == APRT_CONV_ADD ? sum + o
              : s->op == APRT_CONV_MUL ? sum * o
              : s->op == APRT_CONV_MAX ? (sum > o ? sum : o)
                                       : (sum < o ? sum : o);
    }
    return sum;
}

/* What there is for the rank, element by element. */
static void compare(const problem *p, const float *got)
{
    const aprt_conv *c = &p->c;
    int64_t at[APRT_MAX_RANK] = {0}, extent[APRT_MAX_RANK] = {p->turns[0], p->turns[1], p->turns[2]};
    for (int d = 0; d < c->nspatial; d++)
        extent[3 + d] = c->dim[d].out;
    for (int d = 0; d < 3; d++)
        if (extent[d] == 0)
            return;
    for (;;) {
        int64_t y = 0;
        for (int d = 0; d < c->nspatial + 3; d++)
            y += at[d] * c->y[d];
        double want = one_result(p, at, p->y[y]);
        if (!(fabs(got[y] - want) <= 2e-5 * (1 + fabs(want))))
            fail_msg("result %lld is %g, not %g", (long long)y, got[y], want);
        int d = c->nspatial + 2;
        while (d >= 0 && ++at[d] == extent[d])
            at[d--] = 0;
        if (d < 0)
            return;
    }
}

static float *as_f32(const double *x, int64_t n)
{
    float *f = aligned_alloc(64, ((size_t)n * sizeof *f + 63) / 64 * 64 + 64);
    for (int64_t i = 0; i < n; i++)
        f[i] = (float)x[i];
    return f;
}

enum { CHANGING, FIXED, PASSING };

/* Opens, runs twice, closes. Behind its turns x holds zeros for channels, weights hold NaN. */
static float *run(const problem *p, int weights)
{
    aprt_device d = {.nslots = 2, .slot = calloc(2, sizeof(void *))};
    float *x = as_f32(p->x, p->nx), *w = as_f32(p->w, p->nw), *y = as_f32(p->y, p->ny), *v = as_f32(p->v, p->nv);
    const void *operand[APRT_MAX_CONV_STEPS];
    for (int i = 0; i < APRT_MAX_CONV_STEPS; i++)
        operand[i] = v + (i < p->nv_used ? i : 0) * p->ny;
    assert_int_equal(aprt_conv_prepare(&d, 0, &p->c, p->turns, weights ? w : NULL,
                                       weights == PASSING ? p->nw * (int64_t)sizeof *w : 0),
                     APRT_OK);
    for (int64_t i = 0; i < p->nw && weights == PASSING; i++)
        w[i] = NAN;
    for (int i = 0; i < 2; i++) {
        for (int64_t k = 0; k < p->ny; k++)
            y[k] = (float)p->y[k];
        assert_int_equal(aprt_conv_run(&d, 0, x, weights == PASSING ? NULL : w, y, operand), APRT_OK);
    }
    aprt_conv_release(&d);
    free(d.slot);
    free(x);
    free(w);
    free(v);
    return y;
}

static void test_random(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 300; i++) {
        problem p;
        draw_problem(&p, &seed, i % 4 == 3, NULL);
        float *y = run(&p, i % 3);
        compare(&p, y);
        free(y);
        free_problem(&p);
    }
}

#define DIM(IN, KERNEL, LO, OUT, STRIDE, DILATE)                                                                       \
    {                                                                                                                  \
        .in = IN, .kernel = KERNEL, .out = OUT, .lo = LO, .stride = STRIDE, .dilate = DILATE, .hole = 1                \
    }

/* Columns, whose second dimension is left out; rows with more padding than direct convolutions take, on one side or
 * both, with strides, and where it is more than the row has. */
static void test_planes(void **state)
{
    (void)state;
    static const aprt_conv_dim plane[][2] = {
        {DIM(12, 5, 0, 8, 1, 1), DIM(1, 1, 0, 1, 1, 1)},   {DIM(1, 1, 0, 1, 3, 2), DIM(1, 1, 0, 1, 2, 1)},
        {DIM(4, 3, 5, 4, 1, 5), DIM(14, 3, 5, 14, 1, 5)},  {DIM(3, 1, 0, 3, 1, 1), DIM(24, 13, 6, 24, 1, 1)},
        {DIM(3, 3, 1, 3, 1, 1), DIM(20, 9, 8, 8, 2, 1)},   {DIM(2, 2, 0, 1, 1, 1), DIM(16, 9, 0, 16, 1, 1)},
        {DIM(2, 1, 0, 2, 1, 1), DIM(5, 11, 10, 15, 1, 1)},
    };
    uint64_t seed = 5;
    for (int i = 0; i < 84; i++) {
        problem p;
        draw_problem(&p, &seed, 0, plane[i % 7]);
        float *y = run(&p, i % 3);
        compare(&p, y);
        free(y);
        free_problem(&p);
    }
}

/* One row of a product per type: 3*2 - 4*1, and what is added. */
#define TYPE(T, NAME, X, READ)                                                                                         \
    {                                                                                                                  \
        T x[2] = {X(3), X(4)}, w[2] = {X(2), X(1)}, y[1] = {X(1)};                                                     \
        aprt_device d = {.nslots = 2, .slot = calloc(2, sizeof(void *))};                                              \
        aprt_conv c = {.dtype = NAME, .n = 1, .g = 1, .m = 1, .c = 2, .x = {0, 0, 1}, .w = {0, 0, 1}};                 \
        assert_int_equal(aprt_conv_prepare(&d, 0, &c, (const int64_t[]){1, 1, 1, 2}, w, sizeof w), APRT_OK);           \
        assert_int_equal(aprt_conv_run(&d, 0, x, NULL, y, NULL), APRT_OK);                                             \
        assert_true(READ(y[0]) == 10);                                                                                 \
        aprt_conv_release(&d);                                                                                         \
        free(d.slot);                                                                                                  \
    }
#define SAME(x) (x)
static void test_types(void **state)
{
    (void)state;
    TYPE(float, APRT_F32, SAME, SAME)
    TYPE(double, APRT_F64, SAME, SAME)
    TYPE(uint16_t, APRT_F16, aprt_f32_to_f16, aprt_f16_to_f32)
    TYPE(uint16_t, APRT_BF16, aprt_f32_to_bf16, aprt_bf16_to_f32)
    TYPE(int8_t, APRT_I8, SAME, SAME)
    TYPE(uint8_t, APRT_U8, SAME, SAME)
    TYPE(int16_t, APRT_I16, SAME, SAME)
    TYPE(int32_t, APRT_I32, SAME, SAME)
    TYPE(int64_t, APRT_I64, SAME, SAME)
    TYPE(uint64_t, APRT_U64, SAME, SAME)
}

/* ---- devices at once ---- */

enum { THREADS = 4, PROBLEMS = 40 };

typedef struct together {
    problem *p;
    float **y;
} together;

static void *run_all(void *user)
{
    together *t = user;
    for (int i = 0; i < PROBLEMS; i++)
        t->y[i] = run(&t->p[i], 1);
    return NULL;
}

static void test_devices(void **state)
{
    (void)state;
    static problem p[PROBLEMS];
    static float *y[THREADS + 1][PROBLEMS];
    together t[THREADS + 1];
    pthread_t thread[THREADS];
    uint64_t seed = 7;
    for (int i = 0; i < PROBLEMS; i++)
        draw_problem(&p[i], &seed, 0, NULL);
    for (int i = 0; i <= THREADS; i++)
        t[i] = (together){p, y[i]};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_all, &t[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    run_all(&t[THREADS]);
    for (int i = 0; i < PROBLEMS; i++) {
        compare(&p[i], y[THREADS][i]);
        bool whole = p[i].turns[0] == p[i].c.n && p[i].turns[1] == p[i].c.g && p[i].turns[2] == p[i].c.m;
        for (int k = 0; k < THREADS; k++) {
            if (whole)
                assert_memory_equal(y[k][i], y[THREADS][i], (size_t)p[i].ny * sizeof(float));
            free(y[k][i]);
        }
        free(y[THREADS][i]);
        free_problem(&p[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_planes),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
