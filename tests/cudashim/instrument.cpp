/* What code that is compiled with -fsanitize=thread calls, without that sanitizer's library: each load and store of a
 * kernel comes by here (check.cpp). Linked only where there is such code. The names are given by hand, because
 * compilers know the functions as their own. */
#include <cstddef>
#include <cstdint>

#include "shim.h"

extern "C" {
extern int cudashim_instrumented;
int cudashim_instrumented = 1;

#define DEFINE(result, name, parameters)                                                                               \
    result shim_##name parameters __asm__("__tsan_" #name);                                                            \
    result shim_##name parameters

#define ACCESS(name, bytes, write, plain)                                                                              \
    DEFINE(void, name, (void *p))                                                                                      \
    {                                                                                                                  \
        shim::check_access(p, bytes, write, plain);                                                                    \
    }
#define ACCESSES(n)                                                                                                    \
    ACCESS(read##n, n, false, true)                                                                                    \
    ACCESS(write##n, n, true, true)                                                                                    \
    ACCESS(unaligned_read##n, n, false, true)                                                                          \
    ACCESS(unaligned_write##n, n, true, true)                                                                          \
    ACCESS(volatile_read##n, n, false, false)                                                                          \
    ACCESS(volatile_write##n, n, true, false)                                                                          \
    ACCESS(unaligned_volatile_read##n, n, false, false)                                                                \
    ACCESS(unaligned_volatile_write##n, n, true, false)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

DEFINE(void, read_range, (void *p, size_t n))
{
    shim::check_access(p, (unsigned)n, false, true);
}
DEFINE(void, write_range, (void *p, size_t n))
{
    shim::check_access(p, (unsigned)n, true, true);
}
/* clang's */
DEFINE(void *, memcpy, (void *to, const void *from, size_t n))
{
    shim::check_access(from, (unsigned)n, false, true);
    shim::check_access(to, (unsigned)n, true, true);
    return memcpy(to, from, n);
}
DEFINE(void *, memset, (void *to, int value, size_t n))
{
    shim::check_access(to, (unsigned)n, true, true);
    return memset(to, value, n);
}
DEFINE(void, init, (void)) {}
DEFINE(void, func_entry, (void *)) {}
DEFINE(void, func_exit, (void)) {}
DEFINE(void, vptr_update, (void *, void *)) {}
DEFINE(void, vptr_read, (void *)) {}
DEFINE(void, atomic_thread_fence, (int))
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
DEFINE(void, atomic_signal_fence, (int)) {}

/* Of the host code in the same files. */
#define ATOMICS(bits, T)                                                                                               \
    DEFINE(T, atomic##bits##_load, (const volatile T *p, int))                                                         \
    {                                                                                                                  \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                                   \
    }                                                                                                                  \
    DEFINE(void, atomic##bits##_store, (volatile T * p, T v, int))                                                     \
    {                                                                                                                  \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                                      \
    }                                                                                                                  \
    DEFINE(T, atomic##bits##_exchange, (volatile T * p, T v, int))                                                     \
    {                                                                                                                  \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                                            \
    }                                                                                                                  \
    DEFINE(T, atomic##bits##_fetch_add, (volatile T * p, T v, int))                                                    \
    {                                                                                                                  \
        return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                                             \
    }                                                                                                                  \
    DEFINE(T, atomic##bits##_fetch_sub, (volatile T * p, T v, int))                                                    \
    {                                                                                                                  \
        return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                                             \
    }                                                                                                                  \
    DEFINE(int, atomic##bits##_compare_exchange_strong, (volatile T * p, T * was, T v, int, int))                      \
    {                                                                                                                  \
        return __atomic_compare_exchange_n(p, was, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                          \
    }                                                                                                                  \
    DEFINE(int, atomic##bits##_compare_exchange_weak, (volatile T * p, T * was, T v, int, int))                        \
    {                                                                                                                  \
        return __atomic_compare_exchange_n(p, was, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                          \
    }
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)
}
