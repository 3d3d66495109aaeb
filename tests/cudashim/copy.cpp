/* Copies and fills. From and to pageable memory the host is held, as by CUDA; from and to pinned memory it is not. */
#include <algorithm>

#include "shim.h"

namespace shim
{

namespace
{
struct Box { /* `rows` rows of `width` bytes */
    char *dst;
    const char *src;
    size_t dpitch, spitch, width, rows;
};

enum Side { PAGEABLE, PINNED, DEVICE };

Side side_of(const void *p)
{
    if (memory_pinned(p))
        return PINNED;
    return in_device_region(p) ? DEVICE : PAGEABLE;
}

bool side_fits(const void *p, size_t bytes, bool want_device, const char *call, const char *which)
{
    Side side = side_of(p);
    if (side != PAGEABLE && !memory_check(p, bytes, -1, which))
        return false;
    if ((side == DEVICE) == want_device)
        return true;
    report("%s: the kind says that the %s is in %s memory, but %p is not", call, which, want_device ? "device" : "host",
           p);
    return false;
}

bool kinds_fit(const Box &b, cudaMemcpyKind kind, const char *call)
{
    size_t dbytes = (b.rows - 1) * b.dpitch + b.width, sbytes = (b.rows - 1) * b.spitch + b.width;
    bool to = kind == cudaMemcpyDefault ? side_of(b.dst) == DEVICE
                                        : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from = kind == cudaMemcpyDefault ? side_of(b.src) == DEVICE
                                          : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return side_fits(b.dst, dbytes, to, call, "destination") && side_fits(b.src, sbytes, from, call, "source");
}

void copy_now(const Box &b)
{
    for (size_t r = 0; r < b.rows; r++) {
        check_range(b.src + r * b.spitch, b.width, false);
        check_range(b.dst + r * b.dpitch, b.width, true);
        memmove(b.dst + r * b.dpitch, b.src + r * b.spitch, b.width);
    }
}

/* Puts the copy on the stream; `hold`: the host waits for it. */
cudaError_t copy(Box b, cudaMemcpyKind kind, cudaStream_t stream, bool hold, const char *call)
{
    cudaStream_t s = stream_of(stream, call);
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    if (b.width == 0 || b.rows == 0)
        return cudaSuccess;
    if (b.dpitch < b.width || b.spitch < b.width)
        return fail(cudaErrorInvalidPitchValue);
    if (!kinds_fit(b, kind, call))
        return fail(cudaErrorInvalidMemcpyDirection);
    Side to = side_of(b.dst), from = side_of(b.src);
    Lock lock(machine().lock);
    Work work;
    work.name = call;
    work.device = s->device;
    if (s->capture) {
        if (hold) {
            capture_spoil(*s->capture, call);
            return fail(cudaErrorStreamCaptureUnsupported);
        }
        work.run = [b] { copy_now(b); };
        capture_put(s, std::move(work));
        return cudaSuccess;
    }
    if (hold && capture_forbids(machine(), call))
        return fail(cudaErrorStreamCaptureImplicit);
    if (from == PAGEABLE && to == DEVICE) {
        if (s->last) {
            OpRef last = s->last;
            op_wait(lock, last);
        }
        auto staged = std::make_shared<std::vector<char>>(b.width * b.rows);
        for (size_t r = 0; r < b.rows; r++)
            memcpy(staged->data() + r * b.width, b.src + r * b.spitch, b.width);
        b.src = staged->data();
        b.spitch = b.width;
        work.run = [b, staged] { copy_now(b); };
    } else {
        work.run = [b] { copy_now(b); };
    }
    stream_put(lock, s, std::move(work));
    if (to == PAGEABLE || (hold && (to != DEVICE || from != DEVICE))) {
        OpRef last = s->last;
        op_wait(lock, last);
    }
    return cudaSuccess;
}

cudaError_t fill(Box b, int value, cudaStream_t stream, const char *call)
{
    cudaStream_t s = stream_of(stream, call);
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    if (b.width == 0 || b.rows == 0)
        return cudaSuccess;
    if (b.dpitch < b.width)
        return fail(cudaErrorInvalidPitchValue);
    if (!in_device_region(b.dst) && !memory_pinned(b.dst)) {
        report("%s: %p is not device memory", call, (void *)b.dst);
        return fail(cudaErrorInvalidValue);
    }
    if (!memory_check(b.dst, (b.rows - 1) * b.dpitch + b.width, s->device, call))
        return fail(cudaErrorInvalidValue);
    Lock lock(machine().lock);
    Work work;
    work.name = call;
    work.device = s->device;
    work.run = [b, value] {
        for (size_t r = 0; r < b.rows; r++) {
            check_range(b.dst + r * b.dpitch, b.width, true);
            memset(b.dst + r * b.dpitch, value, b.width);
        }
    };
    stream_put(lock, s, std::move(work));
    return cudaSuccess;
}

Box line(void *dst, const void *src, size_t count)
{
    return Box{(char *)dst, (const char *)src, count, count, count, 1};
}
} // namespace

} // namespace shim

using namespace shim;

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    return copy(line(dst, src, count), kind, nullptr, true, "cudaMemcpy");
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy(line(dst, src, count), kind, stream, false, "cudaMemcpyAsync");
}

cudaError_t cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                         enum cudaMemcpyKind kind)
{
    Box b = {(char *)dst, (const char *)src, dpitch, spitch, width, height};
    return copy(b, kind, nullptr, true, "cudaMemcpy2D");
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    Box b = {(char *)dst, (const char *)src, dpitch, spitch, width, height};
    return copy(b, kind, stream, false, "cudaMemcpy2DAsync");
}

cudaError_t cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t count)
{
    return cudaMemcpyPeerAsync(dst, dst_device, src, src_device, count, nullptr);
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t count,
                                cudaStream_t stream)
{
    if (count && (memory_device(dst) != dst_device || memory_device(src) != src_device)) {
        report("cudaMemcpyPeer: memory of devices %d and %d, not %d and %d", memory_device(dst), memory_device(src),
               dst_device, src_device);
        return fail(cudaErrorInvalidValue);
    }
    return copy(line(dst, src, count), cudaMemcpyDeviceToDevice, stream, false, "cudaMemcpyPeerAsync");
}

cudaError_t cudaMemset(void *p, int value, size_t count)
{
    return fill(line(p, nullptr, count), value, nullptr, "cudaMemset");
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t count, cudaStream_t stream)
{
    return fill(line(p, nullptr, count), value, stream, "cudaMemsetAsync");
}

cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream)
{
    return fill(Box{(char *)p, nullptr, pitch, pitch, width, height}, value, stream, "cudaMemset2DAsync");
}
