/* Convolutions on GPUs, under the shim, against plain loops (conv_problem.h): a program of one stage for each problem,
 * opened by the runtime and run twice. All types; what cuDNN takes as it lies, in copies, as gradients, and what it
 * does not take; weights that are given at open and those that come with each run. */
#include "conv_problem.h"
#include "runtime/cuda/conv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

cudaStream_t aprt_cuda_stream(aprt_device *d); /* autopar_rt_cuda.h, for kernels.cu */

enum { PORT_X, PORT_W, PORT_Y, PORT_V, PORTS };

static const problem *current;                  /* what the stage does; set before its program is opened */
static const void *fixed;                       /* weights that are given at open, or NULL */
static int done[3], in_copies, in_other_places; /* how it was done, by conv_way */

static void put(int32_t dtype, void *base, int64_t i, double x)
{
    switch (dtype) {
    case APRT_F32:
        ((float *)base)[i] = (float)x;
        break;
    case APRT_F64:
        ((double *)base)[i] = x;
        break;
    case APRT_F16:
        ((uint16_t *)base)[i] = aprt_f32_to_f16((float)x);
        break;
    case APRT_BF16:
        ((uint16_t *)base)[i] = aprt_f32_to_bf16((float)x);
        break;
    default:
        memcpy((char *)base + i * aprt_dtype_bytes(dtype), &(int64_t){(int64_t)x}, (size_t)aprt_dtype_bytes(dtype));
    }
}

static double get(int32_t dtype, const void *base, int64_t i)
{
    uint64_t bits = 0;
    switch (dtype) {
    case APRT_F32:
        return ((const float *)base)[i];
    case APRT_F64:
        return ((const double *)base)[i];
    case APRT_F16:
        return aprt_f16_to_f32(((const uint16_t *)base)[i]);
    case APRT_BF16:
        return aprt_bf16_to_f32(((const uint16_t *)base)[i]);
    default:
        memcpy(&bits, (const char *)base + i * aprt_dtype_bytes(dtype), (size_t)aprt_dtype_bytes(dtype));
        return (double)bits;
    }
}

static int prepare(aprt_device *d)
{
    const int status = aprt_cuda_conv_prepare(d, 0, &current->c, current->turns, fixed, 0);
    const conv_slot *s = d->slot[0];
    done[s->way] += !s->nothing;
    in_copies += s->way != CONV_OWN && s->copied;
    in_other_places += s->way != CONV_OWN && s->apart;
    return status;
}

static int run(aprt_device *d)
{
    const int64_t size = aprt_dtype_bytes(current->c.dtype);
    const void *operand[APRT_MAX_CONV_STEPS];
    for (int i = 0; i < APRT_MAX_CONV_STEPS; i++)
        operand[i] = (const char *)d->input[PORT_V] + (i < current->nv_used ? i : 0) * current->ny * size;
    aprt_cuda_at(d, 0);
    cudaMemcpyAsync(d->output[0], d->input[PORT_Y], (size_t)(current->ny * size), cudaMemcpyDeviceToDevice,
                    aprt_cuda_stream(d));
    aprt_cuda_conv(d, 0, d->input[PORT_X], fixed ? NULL : d->input[PORT_W], d->output[0], operand);
    return APRT_OK;
}

static int list(aprt_device *d)
{
    return aprt_stage_run(d, 0);
}

/* y of a run. */
static void *run_problem(const problem *p, bool given)
{
    static const aprt_instr instr[] = {{"conv", "node", "Conv", 0}};
    static const int32_t input[PORTS] = {0, 1, 2, 3}, output[1] = {0};
    const int64_t count[PORTS] = {p->nx, p->nw, p->ny, p->nv}, size = aprt_dtype_bytes(p->c.dtype);
    const double *const from[PORTS] = {p->x, p->w, p->y, p->v};
    aprt_port port[PORTS] = {{.name = "x"}, {.name = "w"}, {.name = "before"}, {.name = "others"}}, y = {.name = "y"};
    void *data[PORTS], *out = calloc((size_t)p->ny, (size_t)size);
    for (int i = 0; i < PORTS; i++) {
        port[i].dtype = p->c.dtype;
        port[i].rank = 1;
        port[i].dim[0] = count[i];
        data[i] = malloc((size_t)(count[i] * size));
        for (int64_t k = 0; k < count[i]; k++)
            put(p->c.dtype, data[i], k, from[i][k]);
    }
    y.dtype = p->c.dtype;
    y.rank = 1;
    y.dim[0] = p->ny;
    const aprt_written written = {.ndims = 1, .extent = {p->ny}, .stride = {1}};
    const aprt_stage stage = {.name = "conv",
                              .nranks = 1,
                              .ninputs = PORTS,
                              .noutputs = 1,
                              .input = input,
                              .output = output,
                              .ninstrs = 1,
                              .instr = instr,
                              .run = run,
                              .list = list,
                              .nslots = 2,
                              .prepare = prepare,
                              .release = aprt_cuda_conv_release,
                              .nwritten = 1,
                              .written = &written,
                              .target = &aprt_target_cuda,
                              .workspace_bytes = 1 << 16};
    const aprt_program program = {.abi = APRT_ABI,
                                  .name = "conv",
                                  .nranks = 1,
                                  .microbatches = 1,
                                  .ninputs = PORTS,
                                  .noutputs = 1,
                                  .input = port,
                                  .output = &y,
                                  .nstages = 1,
                                  .stage = &stage};
    aprt_instance *instance = NULL;
    current = p;
    fixed = given ? data[PORT_W] : NULL;
    int status = aprt_open(&program, &(aprt_options){0}, &instance);
    for (int turn = 0; turn < 2 && status == APRT_OK; turn++)
        status = aprt_run(instance, (const void *const *)data, &out);
    if (status != APRT_OK)
        fail_msg("%s", aprt_error(instance));
    aprt_close(instance);
    for (int i = 0; i < PORTS; i++)
        free(data[i]);
    return out;
}

typedef struct seen {
    int32_t dtype;
    const void *got;
    double tolerance; /* 0: the same number */
    char what[64];
} seen;

static void compare_one(void *user, int64_t y, double want)
{
    const seen *s = user;
    _Alignas(8) char exact[8];
    put(s->dtype, exact, 0, want);
    const double got = get(s->dtype, s->got, y), rounded = get(s->dtype, exact, 0);
    if (s->tolerance > 0 ? !(fabs(got - want) <= s->tolerance * (1 + fabs(want))) : got != rounded)
        fail_msg("%s: result %lld is %g, not %g", s->what, (long long)y, got, want);
}

static void check(const drawn *how, uint64_t seed, int number)
{
    problem p;
    draw_problem(&p, &seed, how);
    void *y = run_problem(&p, number % 2);
    seen s = {how->dtype, y, how->whole ? 0 : how->dtype == APRT_F64 ? 1e-13 : 2e-5, ""};
    snprintf(s.what, sizeof s.what, "type %d, problem %d", (int)how->dtype, number);
    each_result(&p, compare_one, &s);
    free(y);
    free_problem(&p);
}

/* AP_RANDOM_PROGRAMS=N: N times as many. */
static int times(void)
{
    const char *text = getenv("AP_RANDOM_PROGRAMS");
    const int n = text ? atoi(text) : 1;
    return n > 0 ? n : 1;
}

/* Channels innermost, outermost; more dimensions than cuDNN has; borders of all kinds. */
static void test_f32(void **state)
{
    (void)state;
    for (int i = 0; i < 120 * times(); i++) {
        const drawn how = {.dtype = APRT_F32,
                           .outermost = i % 2,
                           .wild = i % 3 == 1,
                           .steps = i % 5 != 0,
                           .spatial = i % 8 == 7 ? 4 : 3,
                           .extent = i % 8 == 7 ? 3 : 6};
        check(&how, (uint64_t)i, i);
    }
}

/* Numbers for which every type and every order of sums is exact. */
static void test_types(void **state)
{
    static const int32_t types[] = {APRT_F64, APRT_F16, APRT_BF16, APRT_I8,  APRT_U8, APRT_I16,
                                    APRT_U16, APRT_I32, APRT_U32,  APRT_I64, APRT_U64};
    (void)state;
    for (int i = 0; i < 6 * times(); i++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            const drawn how = {.dtype = types[t],
                               .whole = true,
                               .outermost = i % 2,
                               .wild = i % 3 == 1,
                               .steps = t < 3,
                               .spatial = t < 3 ? 3 : 4,
                               .extent = 3};
            check(&how, (uint64_t)(1000 * t) + (uint64_t)i, i);
        }
}

/* Sums that are no small numbers. */
static void test_f64(void **state)
{
    (void)state;
    for (int i = 0; i < 16 * times(); i++) {
        const drawn how = {
            .dtype = APRT_F64, .outermost = i % 2, .wild = i % 3 == 1, .steps = true, .spatial = 3, .extent = 5};
        check(&how, 77 + (uint64_t)i, i);
    }
}

static void test_every_way(void **state)
{
    (void)state;
    assert_true(done[CONV_OWN] > 0 && done[CONV_FORWARD] > 0 && done[CONV_BACKWARD] > 0);
    assert_true(in_copies > 0 && in_other_places > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_f64),
        cmocka_unit_test(test_every_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
