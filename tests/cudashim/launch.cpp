/* Launches: what a device refuses, and pointers that are none of its memory. */
#include <algorithm>

#include "shim.h"

namespace shim
{

namespace
{
const size_t STATIC_SHARED = 48 << 10, MOST_SHARED = 227 << 10;

std::mutex guard;
std::map<const void *, size_t> &allowed()
{
    static auto *of = new std::map<const void *, size_t>;
    return *of;
}

size_t shared_allowed(const void *function)
{
    std::lock_guard<std::mutex> hold(guard);
    auto it = allowed().find(function);
    return it == allowed().end() ? STATIC_SHARED : it->second;
}

std::string dims(dim3 d)
{
    return "(" + std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z) + ")";
}

cudaError_t refuse(const char *name, dim3 grid, dim3 block, size_t shared, size_t allowed)
{
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (threads == 0 || threads > 1024 || block.z > 64) {
        report("launch of %s: a block of %s has more than 1024 threads, or none", name, dims(block).c_str());
        return cudaErrorInvalidConfiguration;
    }
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
        report("launch of %s: a grid of %s is empty or too large", name, dims(grid).c_str());
        return cudaErrorInvalidConfiguration;
    }
    if (shared > allowed) {
        report("launch of %s: %zu bytes of shared memory, %zu allowed (cudaFuncSetAttribute)", name, shared, allowed);
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

void check_pointers(const char *name, const cudashim_pointers &pointers, int device)
{
    for (int i = 0; i < pointers.count; i++) {
        const void *p = pointers.at[i];
        if (!p)
            continue;
        /* One past the end, or an address between pieces, may be given; what is read there is found when it is. */
        if (!in_device_region(p) && !memory_pinned(p))
            report("launch of %s: argument %d, %p, is a pointer into host memory", name, pointers.first[i], p);
        else if (memory_device(p) >= 0 && memory_device(p) != device && !peer_enabled(device, memory_device(p)))
            report("launch of %s: argument %d, %p, is memory of device %d, the stream's is %d", name, pointers.first[i],
                   p, memory_device(p), device);
    }
}
} // namespace

} // namespace shim

using namespace shim;

void cudashim_enqueue_kernel(const char *name, const void *function, dim3 grid, dim3 block, size_t shared,
                             cudaStream_t stream, const cudashim_pointers &pointers, std::shared_ptr<void> data,
                             void (*call)(void *))
{
    cudaStream_t s = stream_of(stream, name);
    if (!s) {
        fail(cudaErrorInvalidResourceHandle);
        return;
    }
    if (s->device != device_now()) {
        report("launch of %s: the stream is of device %d, the current one is %d", name, s->device, device_now());
        fail(cudaErrorInvalidResourceHandle);
        return;
    }
    cudaError_t error = refuse(name, grid, block, shared, shared_allowed(function));
    if (error) {
        fail(error);
        return;
    }
    check_pointers(name, pointers, s->device);
    Lock lock(machine().lock);
    Work work;
    work.name = name;
    work.device = s->device;
    uint64_t order = machine().seed ? draw(machine(), 8) : 0;
    work.run = [name, grid, block, shared, order, data, call] {
        Kernel k = {name, grid, block, shared, order, call, data.get()};
        kernel_run(k);
    };
    stream_put(lock, s, std::move(work));
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attr, int value)
{
    hello();
    if (attr == cudaFuncAttributePreferredSharedMemoryCarveout)
        return cudaSuccess;
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || (size_t)value > MOST_SHARED)
        return fail(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> hold(guard);
    allowed()[function] = (size_t)value;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *function)
{
    memset(attr, 0, sizeof *attr);
    attr->maxThreadsPerBlock = 1024;
    attr->numRegs = 32;
    attr->ptxVersion = attr->binaryVersion = 90;
    attr->maxDynamicSharedSizeBytes = (int)shared_allowed(function);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads, size_t shared)
{
    if (threads <= 0 || threads > 1024)
        return fail(cudaErrorInvalidValue);
    int by_threads = 2048 / threads, by_shared = shared ? (int)((228u << 10) / (shared + 1024)) : 32;
    *blocks = std::min(std::min(by_threads, by_shared), 32);
    return cudaSuccess;
}
