/* The shim's cuDNN against loops over the definition: forwards and backwards, strides, dilations, groups, padding, both
 * orders of the kernel, layouts with and without gaps, all types, scales, bias, what is added, relu. */
#include "unit.h"

#include <cudnn.h>

enum { MOST_ND = 5, WORKSPACE = 1 << 16 };

typedef struct tensor {
    int nd, dim[MOST_ND], stride[MOST_ND];
    unit_array data;
} tensor;

typedef struct conv {
    cudnnDataType_t dnn;
    cudaDataType_t type;
    int spatial, groups, pad[3], stride[3], dilate[3];
    cudnnConvolutionMode_t mode;
    cudnnTensorFormat_t format;
    tensor x, y, w; /* w: strides by its format */
    cudnnTensorDescriptor_t xd, yd;
    cudnnFilterDescriptor_t wd;
    cudnnConvolutionDescriptor_t op;
} conv;

#define DNN(call) assert_int_equal(call, CUDNN_STATUS_SUCCESS)

static int64_t last_of(const tensor *t)
{
    int64_t last = 0;
    for (int i = 0; i < t->nd; i++)
        last += (int64_t)(t->dim[i] - 1) * t->stride[i];
    return last;
}

/* `inner`: channels innermost; `gap`: elements between the ends of one dimension and the next. */
static void lay_out(tensor *t, bool inner, int gap)
{
    int step = 1;
    if (inner) {
        t->stride[1] = 1;
        step = t->dim[1] + gap;
    }
    for (int i = t->nd - 1; i >= 2; i--) {
        t->stride[i] = step;
        step = step * t->dim[i] + gap;
    }
    if (!inner) {
        t->stride[1] = step;
        step = step * t->dim[1] + gap;
    }
    t->stride[0] = step;
}

static void draw(conv *c, uint64_t *seed)
{
    static const cudnnDataType_t dnn[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};
    static const cudaDataType_t type[] = {CUDA_R_32F, CUDA_R_64F, CUDA_R_16F, CUDA_R_16BF};
    memset(c, 0, sizeof *c);
    const int64_t which = below(seed, 4);
    c->dnn = dnn[which];
    c->type = type[which];
    c->spatial = 2 + (int)below(seed, 2);
    c->groups = 1 + (int)below(seed, 3);
    c->mode = below(seed, 3) ? CUDNN_CROSS_CORRELATION : CUDNN_CONVOLUTION;
    c->format = below(seed, 3) || c->type == CUDA_R_64F ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC;
    c->x.nd = c->y.nd = c->w.nd = c->spatial + 2;
    c->x.dim[0] = c->y.dim[0] = 1 + (int)below(seed, 2);
    c->w.dim[1] = 1 + (int)below(seed, 3);
    c->x.dim[1] = c->w.dim[1] * c->groups;
    c->w.dim[0] = c->y.dim[1] = c->groups * (1 + (int)below(seed, 3));
    for (int i = 0; i < c->spatial; i++)
        do {
            c->x.dim[2 + i] = 1 + (int)below(seed, 5);
            c->w.dim[2 + i] = 1 + (int)below(seed, 3);
            c->pad[i] = (int)below(seed, 3);
            c->stride[i] = 1 + (int)below(seed, 3);
            c->dilate[i] = 1 + (int)below(seed, 2);
            const int have = c->x.dim[2 + i] + 2 * c->pad[i] - (c->w.dim[2 + i] - 1) * c->dilate[i] - 1;
            c->y.dim[2 + i] = have < 0 ? 0 : have / c->stride[i] + 1;
        } while (c->y.dim[2 + i] == 0);
    const bool inner = c->format == CUDNN_TENSOR_NHWC;
    lay_out(&c->x, inner || below(seed, 2), inner ? 0 : (int)below(seed, 3));
    lay_out(&c->y, inner || below(seed, 2), inner ? 0 : (int)below(seed, 3));
    lay_out(&c->w, inner, 0);
    c->x.data = unit_make(c->type, last_of(&c->x) + 1, 1, seed);
    c->y.data = unit_make(c->type, last_of(&c->y) + 1, 1, seed);
    c->w.data = unit_make(c->type, last_of(&c->w) + 1, 1, seed);
}

static void describe(conv *c)
{
    DNN(cudnnCreateTensorDescriptor(&c->xd));
    DNN(cudnnCreateTensorDescriptor(&c->yd));
    DNN(cudnnCreateFilterDescriptor(&c->wd));
    DNN(cudnnCreateConvolutionDescriptor(&c->op));
    DNN(cudnnSetTensorNdDescriptor(c->xd, c->dnn, c->x.nd, c->x.dim, c->x.stride));
    DNN(cudnnSetTensorNdDescriptor(c->yd, c->dnn, c->y.nd, c->y.dim, c->y.stride));
    DNN(cudnnSetFilterNdDescriptor(c->wd, c->dnn, c->format, c->w.nd, c->w.dim));
    DNN(cudnnSetConvolutionNdDescriptor(c->op, c->spatial, c->pad, c->stride, c->dilate, c->mode,
                                        c->type == CUDA_R_64F ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT));
    DNN(cudnnSetConvolutionMathType(c->op, CUDNN_FMA_MATH));
    DNN(cudnnSetConvolutionGroupCount(c->op, c->groups));
}

static void drop(conv *c)
{
    DNN(cudnnDestroyTensorDescriptor(c->xd));
    DNN(cudnnDestroyTensorDescriptor(c->yd));
    DNN(cudnnDestroyFilterDescriptor(c->wd));
    DNN(cudnnDestroyConvolutionDescriptor(c->op));
    unit_free(&c->x.data);
    unit_free(&c->y.data);
    unit_free(&c->w.data);
}

/* The next one in row-major order; false behind the last. */
static bool next(int nd, const int *dim, int *at)
{
    for (int i = nd - 1; i >= 0; i--) {
        if (++at[i] < dim[i])
            return true;
        at[i] = 0;
    }
    return false;
}

static int64_t place(const tensor *t, const int *at)
{
    int64_t p = 0;
    for (int i = 0; i < t->nd; i++)
        p += (int64_t)at[i] * t->stride[i];
    return p;
}

/* Whether results y and operands x, both with batch and channel in front, meet, and at which element of the kernel. */
static bool meets(const conv *c, const int *y, const int *x, const int *tap, int *w)
{
    const int per_y = c->w.dim[0] / c->groups;
    if (y[0] != x[0] || y[1] / per_y != x[1] / c->w.dim[1])
        return false;
    w[0] = y[1];
    w[1] = x[1] % c->w.dim[1];
    for (int i = 0; i < c->spatial; i++) {
        if (y[2 + i] * c->stride[i] + tap[i] * c->dilate[i] - c->pad[i] != x[2 + i])
            return false;
        w[2 + i] = c->mode == CUDNN_CONVOLUTION ? c->w.dim[2 + i] - 1 - tap[i] : tap[i];
    }
    return true;
}

/* The sum of all products that go into one element: `at` of y, or of x when backward. */
static double sum_at(const conv *c, bool backward, const int *at)
{
    const tensor *from = backward ? &c->y : &c->x;
    int other[MOST_ND] = {0}, w[MOST_ND];
    double sum = 0;
    do {
        int tap[MOST_ND] = {0};
        do {
            if (meets(c, backward ? other : at, backward ? at : other, tap, w))
                sum += from->data.x[place(from, other)] * c->w.data.x[place(&c->w, w)];
        } while (next(c->spatial, c->w.dim + 2, tap));
    } while (next(from->nd, from->dim, other));
    return sum;
}

typedef struct scales {
    double alpha, beta;
    bool relu;
    const tensor *z;
    const unit_array *bias;
} scales;

static void compare(const conv *c, bool backward, const scales *s, int number)
{
    const tensor *to = backward ? &c->x : &c->y;
    int at[MOST_ND] = {0};
    do {
        const int64_t p = place(to, at);
        double want = s->alpha * sum_at(c, backward, at) + (s->beta != 0 ? s->beta * s->z->data.x[p] : 0);
        want += s->bias ? s->bias->x[at[1]] : 0;
        want = s->relu && want < 0 ? 0 : want;
        const double got = unit_get(c->type, to->data.bytes, p);
        if (got != want)
            fail_msg("problem %d, element %lld: %g, not %g", number, (long long)p, got, want);
    } while (next(to->nd, to->dim, at));
}

static const void *scalar(const conv *c, const double *wide, const float *narrow)
{
    return c->type == CUDA_R_64F ? (const void *)wide : narrow;
}

static cudnnHandle_t handle;
static void *workspace;

static int open_library(void **state)
{
    (void)state;
    return cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS || cudaMalloc(&workspace, WORKSPACE) != cudaSuccess;
}

static int close_library(void **state)
{
    (void)state;
    return cudnnDestroy(handle) != CUDNN_STATUS_SUCCESS || cudaFree(workspace) != cudaSuccess;
}

static void test_forward(void **state)
{
    static const cudnnConvolutionFwdAlgo_t algo[] = {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                                                     CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM};
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 24; i++) {
        conv c;
        draw(&c, &seed);
        describe(&c);
        const double alpha = (double)(1 + below(&seed, 2)), beta = (double)(below(&seed, 3) - 1);
        const float alpha32 = (float)alpha, beta32 = (float)beta;
        DNN(cudnnConvolutionForward(handle, scalar(&c, &alpha, &alpha32), c.xd, c.x.data.device, c.wd, c.w.data.device,
                                    c.op, algo[i % 2], workspace, WORKSPACE, scalar(&c, &beta, &beta32), c.yd,
                                    c.y.data.device));
        unit_fetch(&c.y.data);
        compare(&c, false, &(scales){alpha, beta, false, &c.y, NULL}, i);
        drop(&c);
    }
}

static void test_bias_relu(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (int i = 0; i < 24; i++) {
        conv c;
        draw(&c, &seed);
        describe(&c);
        const double one = 1, beta = (double)below(&seed, 2);
        const float one32 = 1, beta32 = (float)beta;
        unit_array bias = unit_make(c.type, c.y.dim[1], 2, &seed);
        tensor z = c.y;
        z.data = unit_make(c.type, c.y.data.n, 2, &seed);
        cudnnTensorDescriptor_t bd;
        cudnnActivationDescriptor_t relu;
        const int dim[MOST_ND] = {1, c.y.dim[1], 1, 1, 1}, stride[MOST_ND] = {c.y.dim[1], 1, 1, 1, 1};
        DNN(cudnnCreateTensorDescriptor(&bd));
        DNN(cudnnSetTensorNdDescriptor(bd, c.dnn, c.y.nd, dim, stride));
        DNN(cudnnCreateActivationDescriptor(&relu));
        const bool plain = i % 3 == 0;
        DNN(cudnnSetActivationDescriptor(relu, plain ? CUDNN_ACTIVATION_IDENTITY : CUDNN_ACTIVATION_RELU,
                                         CUDNN_PROPAGATE_NAN, 0));
        DNN(cudnnConvolutionBiasActivationForward(
            handle, scalar(&c, &one, &one32), c.xd, c.x.data.device, c.wd, c.w.data.device, c.op,
            CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, workspace, WORKSPACE, scalar(&c, &beta, &beta32), c.yd,
            z.data.device, bd, bias.device, relu, c.yd, c.y.data.device));
        unit_fetch(&c.y.data);
        compare(&c, false, &(scales){1, beta, !plain, &z, &bias}, i);
        DNN(cudnnDestroyTensorDescriptor(bd));
        DNN(cudnnDestroyActivationDescriptor(relu));
        unit_free(&bias);
        unit_free(&z.data);
        drop(&c);
    }
}

static void test_backward(void **state)
{
    uint64_t seed = 3;
    (void)state;
    for (int i = 0; i < 32; i++) {
        conv c;
        draw(&c, &seed);
        describe(&c);
        const double alpha = (double)(1 + below(&seed, 2)), beta = (double)(below(&seed, 3) - 1);
        const float alpha32 = (float)alpha, beta32 = (float)beta;
        DNN(cudnnConvolutionBackwardData(handle, scalar(&c, &alpha, &alpha32), c.wd, c.w.data.device, c.yd,
                                         c.y.data.device, c.op, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, workspace, WORKSPACE,
                                         scalar(&c, &beta, &beta32), c.xd, c.x.data.device));
        unit_fetch(&c.x.data);
        compare(&c, true, &(scales){alpha, beta, false, &c.x, NULL}, i);
        drop(&c);
    }
}

/* Ten bits behind the point where tensor cores are allowed, all of them where they are not. */
static void test_tf32(void **state)
{
    const int one[4] = {1, 1, 1, 1}, none[2] = {0, 0};
    const float x = 1 + 1.0f / 4096, unit = 1, zero = 0;
    (void)state;
    for (int i = 0; i < 2; i++) {
        conv c = {.dnn = CUDNN_DATA_FLOAT, .type = CUDA_R_32F, .spatial = 2, .groups = 1};
        uint64_t seed = 4;
        tensor *const all[] = {&c.x, &c.y, &c.w};
        for (int k = 0; k < 3; k++) {
            all[k]->nd = 4;
            memcpy(all[k]->dim, one, sizeof one);
            memcpy(all[k]->stride, one, sizeof one);
            all[k]->data = unit_make(CUDA_R_32F, 1, 1, &seed);
        }
        memcpy(c.stride, one, sizeof c.stride);
        memcpy(c.dilate, one, sizeof c.dilate);
        memcpy(c.pad, none, sizeof none);
        describe(&c);
        DNN(cudnnSetConvolutionMathType(c.op, i ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH));
        assert_int_equal(cudaMemcpy(c.x.data.device, &x, sizeof x, cudaMemcpyHostToDevice), cudaSuccess);
        assert_int_equal(cudaMemcpy(c.w.data.device, &unit, sizeof unit, cudaMemcpyHostToDevice), cudaSuccess);
        DNN(cudnnConvolutionForward(handle, &unit, c.xd, c.x.data.device, c.wd, c.w.data.device, c.op,
                                    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, NULL, 0, &zero, c.yd, c.y.data.device));
        unit_fetch(&c.y.data);
        assert_true(unit_get(CUDA_R_32F, c.y.data.bytes, 0) == (i ? 1 : x));
        drop(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_bias_relu),
        cmocka_unit_test(test_backward),
        cmocka_unit_test(test_tf32),
    };
    return cmocka_run_group_tests(tests, open_library, close_library);
}
