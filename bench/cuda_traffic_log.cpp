/* The access log of kernels under the shim: code that is compiled with -fsanitize=thread calls these functions for each
 * load and store. What the 32 threads of a warp do at one place of the code, for the n-th time, is one request of a
 * GPU; it moves the sectors of 32 bytes that it touches. */
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>

#include "cudashim.h"

extern "C" {
using Request = std::tuple<uint64_t, void *, unsigned>; /* warp, place, how many times before */
struct Touched {
    std::set<uintptr_t> sectors, words; /* of 32 bytes, of 4 */
};
static std::map<Request, Touched> requests;
static std::map<std::pair<uint64_t, void *>, unsigned> times;
static std::set<uintptr_t> words_of_kernel;

void traffic_begin(void)
{
    requests.clear(), times.clear(), words_of_kernel.clear();
}

/* kernel, bytes that are touched at all, bytes of the sectors that its requests would need if what they ask for lay
 * together, bytes of those that they touch */
void traffic_end(const char *kernel)
{
    uint64_t needed = 0, sectors = 0;
    for (const auto &r : requests) {
        needed += (r.second.words.size() + 7) / 8;
        sectors += r.second.sectors.size();
    }
    printf("%s %llu %llu %llu\n", kernel, (unsigned long long)words_of_kernel.size() * 4,
           (unsigned long long)needed * 32, (unsigned long long)sectors * 32);
    fflush(stdout);
}

static std::map<const char *, int64_t> ranges; /* device memory */

void traffic_range(const char *p, int64_t n)
{
    ranges[p] = n;
}

static bool is_device(const char *p)
{
    auto range = ranges.upper_bound(p);
    return range != ranges.begin() && p < (--range)->first + range->second;
}

static void note(void *p, size_t n, void *place)
{
    if (!is_device((const char *)p))
        return;
    const uintptr_t at = (uintptr_t)p;
    const uint64_t thread = ((uint64_t)blockIdx.x << 10) + threadIdx.x;
    const unsigned turn = times[{thread, place}]++;
    Touched &touched = requests[{thread / 32, place, turn}];
    for (uintptr_t s = at / 32; s <= (at + n - 1) / 32; s++)
        touched.sectors.insert(s);
    for (uintptr_t s = at / 4; s <= (at + n - 1) / 4; s++) {
        touched.words.insert(s);
        words_of_kernel.insert(s);
    }
}

#define ACCESS(name, n)                                                                                                \
    void __tsan_##name(void *p)                                                                                        \
    {                                                                                                                  \
        note(p, n, __builtin_return_address(0));                                                                       \
    }
#define ACCESSES(n) ACCESS(read##n, n) ACCESS(write##n, n) ACCESS(unaligned_read##n, n) ACCESS(unaligned_write##n, n)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(void *p, size_t n)
{
    note(p, n, __builtin_return_address(0));
}
void __tsan_write_range(void *p, size_t n)
{
    note(p, n, __builtin_return_address(0));
}
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}

/* Of the host code in the same files. */
#define ATOMICS(bits, T)                                                                                               \
    T __tsan_atomic##bits##_load(const volatile T *p, int)                                                             \
    {                                                                                                                  \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                                   \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile T *p, T v, int)                                                          \
    {                                                                                                                  \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                                      \
    }                                                                                                                  \
    T __tsan_atomic##bits##_fetch_add(volatile T *p, T v, int)                                                         \
    {                                                                                                                  \
        return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                                             \
    }
ATOMICS(8, uint8_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)
void __tsan_atomic_thread_fence(int)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_vptr_update(void *, void *) {}
void __tsan_vptr_read(void *) {}
#define VOLATILE(n)                                                                                                    \
    void __tsan_volatile_read##n(void *) {}                                                                            \
    void __tsan_volatile_write##n(void *) {}
VOLATILE(1)
VOLATILE(4)
VOLATILE(8)
}
