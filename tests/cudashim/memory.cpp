/* Memory of devices, and host memory that devices may read.
 *
 * Each device has a region of addresses. A piece of memory in it ends, to 256 bytes, where a page without access
 * begins, and addresses are used once: an access out of bounds or to freed memory is a fault, which the handler below
 * puts into words. What lies between a piece and its pages is filled with a pattern, looked at when it is freed, and
 * poisoned for AddressSanitizer. Fresh memory is full of NaN. Where the processor has protection keys, device memory
 * can be touched by running ops only: host code that follows a device pointer faults. */
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

#include "shim.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifndef __SANITIZE_ADDRESS__
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

namespace shim
{

namespace
{
const size_t REGION = (size_t)32 << 30, PAGE = 4096, ALIGN = 256;
const unsigned char FRESH = 0xff, FENCE = 0xc5;
enum { MAX_DEVICES = 16 };

struct Memories {
    std::mutex lock;
    std::map<uintptr_t, Memory> all;                  /* by first; freed ones stay */
    uintptr_t region = 0, top[MAX_DEVICES + 1] = {0}; /* the last one: pinned host memory */
    size_t used[MAX_DEVICES + 1] = {0};
    bool peers[MAX_DEVICES][MAX_DEVICES] = {{false}};
    unsigned long count = 0, frees = 0;
    long fail_after = -1;
    int key = -1;
};
Memories &memories()
{
    static Memories *m = new Memories;
    return *m;
}
thread_local unsigned access_depth;

size_t capacity()
{
    static const size_t bytes = [] {
        const char *text = getenv("CUDASHIM_MEMORY");
        return text ? (size_t)strtoull(text, nullptr, 0) : (size_t)16 << 30;
    }();
    return bytes;
}

void on_fault(int signal, siginfo_t *info, void *)
{
    ::signal(signal, SIG_DFL);
    uintptr_t at = (uintptr_t)info->si_addr;
    if (!in_device_region(info->si_addr)) {
        if (where.op)
            report("fault at %p, which is no device memory", info->si_addr);
        return; /* again, and the end */
    }
    std::string text = memory_complaint(info->si_addr, 1, -1);
    if (text.empty())
        report("host code touches device memory at %p", (void *)at);
    else
        report("access to %p: %s", (void *)at, text.c_str());
    abort();
}

/* Under the lock. */
void begin(Memories &m)
{
    if (m.region)
        return;
    void *p = mmap(nullptr, REGION * (MAX_DEVICES + 1), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("cudashim: address space");
        abort();
    }
    m.region = (uintptr_t)p;
    for (int i = 0; i <= MAX_DEVICES; i++)
        m.top[i] = m.region + REGION * (size_t)i + PAGE;
    const char *off = getenv("CUDASHIM_KEYS");
    if (!off || strcmp(off, "0") != 0)
        m.key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
}

void *allocate(size_t size, int device, MemoryKind kind)
{
    hello();
    Memories &m = memories();
    std::lock_guard<std::mutex> hold(m.lock);
    begin(m);
    int part = kind == MEMORY_PINNED ? (int)MAX_DEVICES : device;
    if (m.fail_after >= 0 && (long)m.count >= m.fail_after)
        return nullptr;
    size_t pages = (size + PAGE - 1) / PAGE * PAGE;
    uintptr_t map = m.top[part], limit = m.region + REGION * (size_t)(part + 1);
    if (m.used[part] + size > capacity() || map + pages + 2 * PAGE > limit)
        return nullptr;
    if (mprotect((void *)map, pages, PROT_READ | PROT_WRITE) != 0)
        return nullptr;
    uintptr_t first = map + (pages - size) / ALIGN * ALIGN;
    memset((void *)map, FENCE, first - map);
    memset((void *)first, FRESH, size);
    memset((void *)(first + size), FENCE, map + pages - first - size);
    ASAN_POISON_MEMORY_REGION((void *)map, first - map);
    ASAN_POISON_MEMORY_REGION((void *)(first + size), map + pages - first - size);
    if (m.key >= 0 && kind == MEMORY_DEVICE)
        pkey_mprotect((void *)map, pages, PROT_READ | PROT_WRITE, m.key);
    m.top[part] = map + pages + PAGE;
    m.used[part] += size;
    m.all[first] = Memory{first, first + size, map, map + pages, device, kind, false, ++m.count};
    return (void *)first;
}

std::string describe(const Memory &b)
{
    const char *kind = b.kind == MEMORY_DEVICE ? "device" : "pinned";
    return std::to_string(b.end - b.first) + " bytes of " + kind + " memory (allocation " + std::to_string(b.number) +
           (b.kind == MEMORY_DEVICE ? ", device " + std::to_string(b.device) : "") + ")";
}

/* Under the lock: the piece that begins at or before p, or the next one if p is nearer to that. */
const Memory *nearest(Memories &m, uintptr_t p)
{
    auto it = m.all.upper_bound(p);
    const Memory *after = it == m.all.end() ? nullptr : &it->second;
    if (it == m.all.begin())
        return after;
    const Memory *before = &std::prev(it)->second;
    if (p < before->end || !after || p < before->map_end || p - before->end <= after->first - p)
        return before;
    return after;
}

bool fence_intact(uintptr_t from, uintptr_t to)
{
    ASAN_UNPOISON_MEMORY_REGION((void *)from, to - from);
    for (uintptr_t p = from; p < to; p++)
        if (*(const unsigned char *)p != FENCE)
            return false;
    return true;
}

cudaError_t release(void *p, MemoryKind kind, const char *call)
{
    Memories &m = memories();
    Access access;
    std::string bad;
    {
        std::lock_guard<std::mutex> hold(m.lock);
        auto it = m.all.find((uintptr_t)p);
        if (it == m.all.end() || it->second.kind != kind)
            bad = "is not the start of such memory";
        else if (it->second.freed)
            bad = "has been freed before: " + describe(it->second);
        else {
            Memory &b = it->second;
            if (!fence_intact(b.map, b.first))
                bad = "somebody wrote before the start of " + describe(b);
            else if (!fence_intact(b.end, b.map_end))
                bad = "somebody wrote behind the end of " + describe(b);
            b.freed = true;
            __atomic_add_fetch(&m.frees, 1, __ATOMIC_SEQ_CST);
            m.used[kind == MEMORY_PINNED ? (int)MAX_DEVICES : b.device] -= b.end - b.first;
            mmap((void *)b.map, b.map_end - b.map, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                 -1, 0);
            ASAN_UNPOISON_MEMORY_REGION((void *)b.map, b.map_end - b.map);
        }
    }
    if (!bad.empty()) {
        report("%s(%p): %s", call, p, bad.c_str());
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}
} // namespace

Access::Access()
{
    if (access_depth++ == 0 && memories().key >= 0)
        pkey_set(memories().key, 0);
}

Access::~Access()
{
    if (--access_depth == 0 && memories().key >= 0)
        pkey_set(memories().key, PKEY_DISABLE_ACCESS);
}

bool in_device_region(const void *p)
{
    uintptr_t first = memories().region;
    return first && (uintptr_t)p >= first && (uintptr_t)p < first + REGION * (MAX_DEVICES + 1);
}

uintptr_t region_base()
{
    return memories().region;
}

size_t region_bytes()
{
    return REGION * (MAX_DEVICES + 1);
}

unsigned long memory_frees()
{
    return __atomic_load_n(&memories().frees, __ATOMIC_RELAXED);
}

std::string memory_complaint(const void *p, size_t bytes, int device)
{
    Memories &m = memories();
    std::lock_guard<std::mutex> hold(m.lock);
    uintptr_t a = (uintptr_t)p;
    const Memory *b = nearest(m, a);
    if (!b)
        return "no device memory";
    if (a + bytes <= b->first || a >= b->end + PAGE) {
        if (b->kind == MEMORY_REGISTERED || !in_device_region(p))
            return "it is in host memory";
        return "out of bounds, " +
               (a < b->first ? std::to_string(b->first - a) + " bytes before "
                             : std::to_string(a - b->end) + " bytes behind ") +
               describe(*b);
    }
    if (b->freed)
        return "use after free, of " + describe(*b);
    if (a < b->first)
        return "out of bounds, " + std::to_string(b->first - a) + " bytes before " + describe(*b);
    if (a + bytes > b->end)
        return "out of bounds, " + std::to_string(a + bytes - b->end) + " bytes behind the end of " + describe(*b);
    if (device >= 0 && b->kind == MEMORY_DEVICE && b->device != device && !m.peers[device][b->device])
        return "memory of device " + std::to_string(b->device) + " without peer access, " + describe(*b);
    return "";
}

const Memory *memory_find(const void *p)
{
    Memories &m = memories();
    std::lock_guard<std::mutex> hold(m.lock);
    auto it = m.all.upper_bound((uintptr_t)p);
    if (it == m.all.begin())
        return nullptr;
    --it;
    return (uintptr_t)p < it->second.end && !it->second.freed ? &it->second : nullptr;
}

bool memory_check(const void *p, size_t bytes, int device, const char *what)
{
    if (bytes == 0)
        return true;
    std::string bad = memory_complaint(p, bytes, device);
    if (bad.empty())
        return true;
    report("%s at %p: %s", what, p, bad.c_str());
    return false;
}

int memory_device(const void *p)
{
    const Memory *b = memory_find(p);
    return b && b->kind == MEMORY_DEVICE ? b->device : -1;
}

bool memory_pinned(const void *p)
{
    const Memory *b = memory_find(p);
    return b && b->kind != MEMORY_DEVICE;
}

void memory_leaks()
{
    Memories &m = memories();
    std::string text;
    unsigned count = 0;
    {
        std::lock_guard<std::mutex> hold(m.lock);
        for (auto &b : m.all)
            if (!b.second.freed && count++ < 10)
                text += "\n    " + describe(b.second);
    }
    if (count)
        report("leak: %u pieces of memory alive at exit:%s", count, text.c_str());
}

void peer_enable(int from, int to)
{
    std::lock_guard<std::mutex> hold(memories().lock);
    memories().peers[from][to] = true;
}

bool peer_enabled(int from, int to)
{
    std::lock_guard<std::mutex> hold(memories().lock);
    return memories().peers[from][to];
}

} // namespace shim

using namespace shim;

void cudashim_fail_malloc(long after)
{
    std::lock_guard<std::mutex> hold(memories().lock);
    memories().fail_after = after < 0 ? -1 : (long)memories().count + after;
}

cudaError_t cudaMalloc(void **p, size_t size)
{
    {
        Lock lock(machine().lock);
        if (capture_forbids(machine(), "cudaMalloc"))
            return fail(cudaErrorStreamCaptureUnsupported);
    }
    *p = nullptr;
    if (size == 0)
        return cudaSuccess;
    *p = allocate(size, device_now(), MEMORY_DEVICE);
    if (!*p)
        return fail(cudaErrorMemoryAllocation);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    hello();
    {
        Lock lock(machine().lock);
        if (capture_forbids(machine(), "cudaFree"))
            return fail(cudaErrorStreamCaptureUnsupported);
        if (!p)
            return cudaSuccess;
        device_wait(lock, device_now()); /* as CUDA does */
    }
    return fail(release(p, MEMORY_DEVICE, "cudaFree"));
}

cudaError_t cudaHostAlloc(void **p, size_t size, unsigned int)
{
    *p = nullptr;
    if (size == 0)
        return cudaSuccess;
    *p = allocate(size, device_now(), MEMORY_PINNED);
    if (!*p)
        return fail(cudaErrorMemoryAllocation);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **p, size_t size)
{
    return cudaHostAlloc(p, size, 0);
}

cudaError_t cudaFreeHost(void *p)
{
    return p ? fail(release(p, MEMORY_PINNED, "cudaFreeHost")) : cudaSuccess;
}

cudaError_t cudaMallocAsync(void **p, size_t size, cudaStream_t)
{
    return cudaMalloc(p, size);
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    cudaStream_t s = stream_of(stream, "cudaFreeAsync");
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    Lock lock(machine().lock);
    Work work;
    work.name = "cudaFreeAsync";
    work.device = s->device;
    work.run = [p] { release(p, MEMORY_DEVICE, "cudaFreeAsync"); };
    stream_put(lock, s, std::move(work));
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t size, unsigned int)
{
    Memories &m = memories();
    std::lock_guard<std::mutex> hold(m.lock);
    begin(m);
    uintptr_t a = (uintptr_t)p;
    auto it = m.all.upper_bound(a + size - 1);
    if (it != m.all.begin() && std::prev(it)->second.end > a && !std::prev(it)->second.freed)
        return fail(cudaErrorHostMemoryAlreadyRegistered);
    m.all[a] = Memory{a, a + size, a, a + size, -1, MEMORY_REGISTERED, false, ++m.count};
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
    Memories &m = memories();
    std::lock_guard<std::mutex> hold(m.lock);
    auto it = m.all.find((uintptr_t)p);
    if (it == m.all.end() || it->second.kind != MEMORY_REGISTERED)
        return fail(cudaErrorHostMemoryNotRegistered);
    m.all.erase(it); /* the address is the host's again */
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int)
{
    *device = host;
    return memory_pinned(host) ? cudaSuccess : fail(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    int d = device_now();
    std::lock_guard<std::mutex> hold(memories().lock);
    *total = capacity();
    *free = capacity() - memories().used[d];
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *p)
{
    const Memory *b = memory_find(p);
    memset(attributes, 0, sizeof *attributes);
    attributes->device = b && b->kind == MEMORY_DEVICE ? b->device : device_now();
    attributes->type = !b                         ? cudaMemoryTypeUnregistered
                       : b->kind == MEMORY_DEVICE ? cudaMemoryTypeDevice
                                                  : cudaMemoryTypeHost;
    attributes->devicePointer = b ? (void *)p : nullptr;
    attributes->hostPointer = b && b->kind == MEMORY_DEVICE ? nullptr : (void *)p;
    return cudaSuccess;
}
