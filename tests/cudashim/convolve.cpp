/* Convolutions in plain loops: operands widened once, one plane of results at a time, to which each element of the
 * kernel adds its share. */
#include <algorithm>

#include "convolve.h"

namespace shim
{

int32_t convolve_type(cudnnDataType_t type)
{
    return type == CUDNN_DATA_DOUBLE     ? CUDA_R_64F
           : type == CUDNN_DATA_HALF     ? CUDA_R_16F
           : type == CUDNN_DATA_BFLOAT16 ? CUDA_R_16BF
                                         : CUDA_R_32F;
}

size_t convolve_span(const cudnnTensorStruct &t)
{
    int64_t last = 0;
    for (int i = 0; i < t.nd; i++)
        last += (int64_t)(t.dim[i] - 1) * t.stride[i];
    return (size_t)(last + 1) * element_size(convolve_type(t.type));
}

size_t convolve_span(const cudnnFilterStruct &w)
{
    size_t n = element_size(convolve_type(w.type));
    for (int i = 0; i < w.nd; i++)
        n *= (size_t)w.dim[i];
    return n;
}

namespace
{

/* Strides of the weights: of a kernel, of a channel, of a step along each dimension. */
void filter_strides(const cudnnFilterStruct &w, int64_t *out)
{
    int64_t step = 1;
    if (w.format == CUDNN_TENSOR_NHWC) {
        out[1] = 1;
        step = w.dim[1];
    }
    for (int i = w.nd - 1; i >= 2; i--) {
        out[i] = step;
        step *= w.dim[i];
    }
    if (w.format == CUDNN_TENSOR_NCHW) {
        out[1] = step;
        step *= w.dim[1];
    }
    out[0] = step;
}

/* Rounded as tensor cores would where the operation allows it. */
template <typename T> std::vector<T> widen(const void *base, size_t bytes, cudnnDataType_t type, bool rounded)
{
    std::vector<T> v(bytes / element_size(convolve_type(type)));
    for (size_t i = 0; i < v.size(); i++) {
        v[i] = (T)matmul_read(base, (int64_t)i, convolve_type(type));
        if (rounded)
            v[i] = (T)matmul_tf32((float)v[i]);
    }
    return v;
}

int64_t places(const cudnnTensorStruct &t)
{
    int64_t n = 1;
    for (int i = 2; i < t.nd; i++)
        n *= t.dim[i];
    return n;
}

/* One element of the kernel and one row of y: y[j] and x[j*step + first] meet, for j in [low, high). */
struct Row {
    bool inside;
    int64_t x, y, first, low, high, step; /* x, y: where the rows begin, by the strides of two tensors */
};

struct Walk { /* strides of x and y along their spatial dimensions */
    int64_t x[CUDNN_DIM_MAX], y[CUDNN_DIM_MAX];
};

Row find_row(const Conv &c, const Walk &by, const int64_t *tap, int64_t row)
{
    int nd = c.op.nd, last = nd - 1;
    Row r = {true, 0, 0, 0, 0, 0, c.op.stride[last]};
    for (int i = last - 1; i >= 0; i--) {
        int64_t j = row % c.y.dim[2 + i], at = j * c.op.stride[i] - c.op.pad[i] + tap[i] * c.op.dilation[i];
        row /= c.y.dim[2 + i];
        r.inside = r.inside && at >= 0 && at < c.x.dim[2 + i];
        r.x += at * by.x[i];
        r.y += j * by.y[i];
    }
    r.first = tap[last] * c.op.dilation[last] - c.op.pad[last];
    r.low = r.first >= 0 ? 0 : (-r.first + r.step - 1) / r.step;
    int64_t left = c.x.dim[2 + last] - 1 - r.first;
    r.high = left < 0 ? 0 : std::min<int64_t>(c.y.dim[2 + last], left / r.step + 1);
    return r;
}

/* Adds what element `tap` of the kernel, of weight w, gives to a plane: of y from x, or of x from y. Planes are dense;
 * what is read lies at `from`. */
template <typename T>
void add_tap(const Conv &c, const Walk &by, const int64_t *tap, T w, const T *from, std::vector<T> &plane)
{
    int64_t width = c.y.dim[c.y.nd - 1], rows = places(c.y) / width;
    int64_t sx = by.x[c.op.nd - 1], sy = by.y[c.op.nd - 1];
    for (int64_t i = 0; i < rows; i++) {
        Row r = find_row(c, by, tap, i);
        if (!r.inside)
            continue;
        const T *in = from + (c.backward ? r.y : r.x + r.first * sx);
        T *out = plane.data() + (c.backward ? r.x + r.first * sx : r.y);
        int64_t si = c.backward ? sy : r.step * sx, so = c.backward ? r.step * sx : sy;
        for (int64_t j = r.low; j < r.high; j++)
            out[j * so] += w * in[j * si];
    }
}

/* The plane of channel m, its sums over the channels of the group that it meets. */
template <typename T>
void sum_plane(const Conv &c, const Walk &by, const int64_t *ws, const std::vector<T> &w, int64_t m, const T *from,
               std::vector<T> &plane)
{
    /* weights are [channel of y, channel of x in its group, ...] */
    int64_t per_y = c.w.dim[0] / c.op.groups, per_x = c.w.dim[1], taps = 1, tap[CUDNN_DIM_MAX];
    int64_t group = m / (c.backward ? per_x : per_y), count = c.backward ? per_y : per_x;
    int64_t stride = c.backward ? c.y.stride[1] : c.x.stride[1];
    for (int i = 2; i < c.w.nd; i++)
        taps *= c.w.dim[i];
    std::fill(plane.begin(), plane.end(), (T)0);
    for (int64_t i = 0; i < count; i++) {
        int64_t first = c.backward ? (group * per_y + i) * ws[0] + m % per_x * ws[1] : m * ws[0] + i * ws[1];
        for (int64_t t = 0; t < taps; t++) {
            int64_t rest = t, at = first;
            for (int d = c.op.nd - 1; d >= 0; d--) {
                int64_t extent = c.w.dim[2 + d], k = rest % extent;
                rest /= extent;
                tap[d] = k;
                at += (c.op.mode == CUDNN_CONVOLUTION ? extent - 1 - k : k) * ws[2 + d];
            }
            add_tap(c, by, tap, w[(size_t)at], from + (group * count + i) * stride, plane);
        }
    }
}

/* What else there is to a result, and where it goes. */
template <typename T> void write_plane(const Conv &c, int64_t n, int64_t m, const std::vector<T> &plane)
{
    const cudnnTensorStruct &to = c.target();
    int32_t type = convolve_type(to.type);
    for (int64_t p = 0; p < (int64_t)plane.size(); p++) {
        int64_t rest = p, at = n * to.stride[0] + m * to.stride[1];
        for (int i = to.nd - 1; i >= 2; i--) {
            at += rest % to.dim[i] * to.stride[i];
            rest /= to.dim[i];
        }
        T v = (T)c.alpha * plane[(size_t)p];
        if (c.beta != 0)
            v += (T)c.beta * (T)matmul_read(c.z, at, type);
        if (c.bias)
            v += (T)matmul_read(c.bias, m, type);
        if (c.relu)
            v = v > 0 || v != v ? v : 0;
        matmul_write(c.to, at, type, v);
    }
}

/* Strides of a dense plane. */
void dense(const cudnnTensorStruct &t, int64_t *out)
{
    int64_t step = 1;
    for (int i = t.nd - 1; i >= 2; i--) {
        out[i - 2] = step;
        step *= t.dim[i];
    }
}

template <typename T> void run(const Conv &c)
{
    const cudnnTensorStruct &from = c.source(), &to = c.target();
    bool rounded = from.type == CUDNN_DATA_FLOAT && c.op.math == CUDNN_TENSOR_OP_MATH;
    int64_t ws[CUDNN_DIM_MAX];
    Walk by;
    filter_strides(c.w, ws);
    std::vector<T> w = widen<T>(c.weights, convolve_span(c.w), c.w.type, rounded);
    std::vector<T> x = widen<T>(c.from, convolve_span(from), from.type, rounded);
    std::vector<T> plane((size_t)places(to));
    for (int i = 0; i < c.op.nd; i++) {
        by.x[i] = c.x.stride[2 + i];
        by.y[i] = c.y.stride[2 + i];
    }
    dense(to, c.backward ? by.x : by.y);
    for (int64_t n = 0; n < to.dim[0]; n++)
        for (int64_t m = 0; m < to.dim[1]; m++) {
            sum_plane(c, by, ws, w, m, x.data() + n * from.stride[0], plane);
            write_plane(c, n, m, plane);
        }
}
} // namespace

void convolve_run(const Conv &c)
{
    check_range(c.from, convolve_span(c.source()), false);
    check_range(c.weights, convolve_span(c.w), false);
    if (c.beta != 0)
        check_range(c.z, convolve_span(c.target()), false);
    check_range(c.to, convolve_span(c.target()), true);
    if (c.workspace_bytes) {
        check_range(c.workspace, c.workspace_bytes, true);
        memset(c.workspace, 0xff, c.workspace_bytes);
    }
    if (c.y.type == CUDNN_DATA_DOUBLE)
        run<double>(c);
    else
        run<float>(c);
}

} // namespace shim
