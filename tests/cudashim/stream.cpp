/* Streams and events: what is put where, and what waits for it. */
#include <algorithm>
#include <array>

#include "shim.h"

namespace shim
{

namespace
{
enum { BACKLOG = 1 << 14, DEVICES = 16 };

struct Streams { /* under the machine's lock */
    std::vector<cudaStream_t> all;
    std::array<cudaStream_t, DEVICES> of_device{};
};
Streams &streams()
{
    static auto *s = new Streams;
    return *s;
}

cudaStream_t make(int device, unsigned flags, bool is_default)
{
    cudaStream_t s = new CUstream_st{device, is_default, flags, chain_take(machine()), nullptr, nullptr, {}};
    streams().all.push_back(s);
    return s;
}

/* The default stream and those that do not decline wait for each other. */
bool wait_for_each_other(cudaStream_t a, cudaStream_t b)
{
    return a != b && a->device == b->device && (a->is_default || b->is_default) &&
           !((a->flags | b->flags) & cudaStreamNonBlocking);
}

Work mark(const char *name, int device)
{
    Work work;
    work.name = name;
    work.device = device;
    return work;
}

cudaError_t create(cudaStream_t *out, unsigned flags)
{
    hello();
    if (flags & ~(unsigned)cudaStreamNonBlocking)
        return fail(cudaErrorInvalidValue);
    int device = device_now();
    Lock lock(machine().lock);
    *out = make(device, flags, false);
    object_add(*out, STREAM);
    return cudaSuccess;
}

cudaError_t create_event(cudaEvent_t *out, unsigned flags)
{
    hello();
    *out = new CUevent_st{flags, device_now(), nullptr, nullptr, {}};
    object_add(*out, EVENT);
    return cudaSuccess;
}
} // namespace

cudaStream_t stream_of(cudaStream_t s, const char *call)
{
    hello();
    if (s != nullptr && s != cudaStreamLegacy)
        return object_check(s, STREAM, call) ? s : nullptr;
    int device = device_now();
    Lock lock(machine().lock);
    cudaStream_t &of = streams().of_device[(size_t)device];
    if (!of)
        of = make(device, cudaStreamDefault, true);
    return of;
}

OpRef stream_put_op(Machine &m, cudaStream_t s, Work work, const std::vector<OpRef> &also)
{
    std::vector<OpRef> before = also;
    before.push_back(s->last);
    for (cudaStream_t other : streams().all)
        if (wait_for_each_other(s, other))
            before.push_back(other->last);
    s->last = op_put(m, std::move(work), s->chain, before);
    return s->last;
}

void stream_put(Lock &lock, cudaStream_t s, Work work)
{
    if (s->capture) {
        capture_put(s, std::move(work));
        return;
    }
    Machine &m = machine();
    stream_put_op(m, s, std::move(work));
    while (m.alive > BACKLOG && !m.ready.empty())
        op_poll(lock);
}

void device_wait(Lock &lock, int device)
{
    std::vector<OpRef> last;
    for (cudaStream_t s : streams().all)
        if (s->device == device && s->last)
            last.push_back(s->last);
    for (const OpRef &op : last)
        op_wait(lock, op);
}

bool device_capturing(int device)
{
    for (cudaStream_t s : streams().all)
        if (s->device == device && s->capture) {
            capture_spoil(*s->capture, "cudaDeviceSynchronize");
            return true;
        }
    return false;
}

} // namespace shim

using namespace shim;

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return create(out, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    return create(out, flags);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int)
{
    return create(out, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    if (!object_check(s, STREAM, "cudaStreamDestroy"))
        return fail(cudaErrorInvalidResourceHandle);
    Lock lock(machine().lock);
    if (s->capture)
        capture_spoil(*s->capture, "cudaStreamDestroy");
    auto &all = streams().all;
    all.erase(std::find(all.begin(), all.end(), s));
    if (!s->last || s->last->state == Op::DONE)
        chain_give(machine(), s->chain);
    object_remove(s);
    delete s; /* what is on it goes on */
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaStream_t s = stream_of(stream, "cudaStreamSynchronize");
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    Lock lock(machine().lock);
    if (s->capture) {
        capture_spoil(*s->capture, "cudaStreamSynchronize");
        return fail(cudaErrorStreamCaptureUnsupported);
    }
    if (capture_forbids(machine(), "cudaStreamSynchronize"))
        return fail(cudaErrorStreamCaptureImplicit);
    OpRef last = s->is_default ? stream_put_op(machine(), s, mark("cudaStreamSynchronize", s->device)) : s->last;
    if (last)
        op_wait(lock, last);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    cudaStream_t s = stream_of(stream, "cudaStreamQuery");
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    Lock lock(machine().lock);
    if (s->capture) {
        capture_spoil(*s->capture, "cudaStreamQuery");
        return fail(cudaErrorStreamCaptureUnsupported);
    }
    if (capture_forbids(machine(), "cudaStreamQuery"))
        return fail(cudaErrorStreamCaptureImplicit);
    op_poll(lock);
    if (s->last && s->last->state != Op::DONE)
        return cudaErrorNotReady;
    if (s->last)
        clock_join(machine().host, s->last->clock);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    hello();
    Lock lock(machine().lock);
    if (device_capturing(device_now()))
        return fail(cudaErrorStreamCaptureUnsupported);
    if (capture_forbids(machine(), "cudaDeviceSynchronize"))
        return fail(cudaErrorStreamCaptureUnsupported);
    device_wait(lock, device_now());
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int)
{
    cudaStream_t s = stream_of(stream, "cudaStreamWaitEvent");
    if (!s || !object_check(event, EVENT, "cudaStreamWaitEvent"))
        return fail(cudaErrorInvalidResourceHandle);
    Lock lock(machine().lock);
    if (s->capture || event->capture)
        return fail(capture_wait(s, event));
    if (event->op)
        stream_put_op(machine(), s, mark("cudaStreamWaitEvent", s->device), {event->op});
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void *data)
{
    cudaStream_t s = stream_of(stream, "cudaLaunchHostFunc");
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    Lock lock(machine().lock);
    Work work = mark("cudaLaunchHostFunc", s->device);
    work.run = [f, data] { f(data); };
    stream_put(lock, s, std::move(work));
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return create_event(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    return create_event(event, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (!object_check(event, EVENT, "cudaEventDestroy"))
        return fail(cudaErrorInvalidResourceHandle);
    Lock lock(machine().lock);
    object_remove(event);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    cudaStream_t s = stream_of(stream, "cudaEventRecord");
    if (!s || !object_check(event, EVENT, "cudaEventRecord"))
        return fail(cudaErrorInvalidResourceHandle);
    if (event->device != s->device) {
        report("cudaEventRecord: an event of device %d on a stream of device %d", event->device, s->device);
        return fail(cudaErrorInvalidResourceHandle);
    }
    Lock lock(machine().lock);
    if (s->capture) {
        capture_record(s, event);
        return cudaSuccess;
    }
    event->capture = nullptr;
    event->op = stream_put_op(machine(), s, mark("cudaEventRecord", s->device));
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int)
{
    return cudaEventRecord(event, stream);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (!object_check(event, EVENT, "cudaEventSynchronize"))
        return fail(cudaErrorInvalidResourceHandle);
    Lock lock(machine().lock);
    if (event->capture) {
        capture_spoil(*event->capture, "cudaEventSynchronize");
        return fail(cudaErrorCapturedEvent);
    }
    if (capture_forbids(machine(), "cudaEventSynchronize"))
        return fail(cudaErrorStreamCaptureUnsupported);
    OpRef op = event->op;
    if (op)
        op_wait(lock, op);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (!object_check(event, EVENT, "cudaEventQuery"))
        return fail(cudaErrorInvalidResourceHandle);
    Lock lock(machine().lock);
    if (event->capture) {
        capture_spoil(*event->capture, "cudaEventQuery");
        return fail(cudaErrorCapturedEvent);
    }
    if (capture_forbids(machine(), "cudaEventQuery"))
        return fail(cudaErrorStreamCaptureUnsupported);
    op_poll(lock);
    OpRef op = event->op;
    if (op && op->state != Op::DONE)
        return cudaErrorNotReady;
    if (op)
        clock_join(machine().host, op->clock);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    if (!object_check(start, EVENT, "cudaEventElapsedTime") || !object_check(end, EVENT, "cudaEventElapsedTime"))
        return fail(cudaErrorInvalidResourceHandle);
    Lock lock(machine().lock);
    if (!start->op || !end->op || ((start->flags | end->flags) & cudaEventDisableTiming))
        return fail(cudaErrorInvalidResourceHandle);
    if (start->op->state != Op::DONE || end->op->state != Op::DONE)
        return cudaErrorNotReady;
    *ms = (float)(1e3 * (end->op->time - start->op->time));
    return cudaSuccess;
}
