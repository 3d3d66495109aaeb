/* kernel.h - the block that a host thread runs. */
#ifndef CUDASHIM_KERNEL_H
#define CUDASHIM_KERNEL_H

#include "fiber.h"
#include "shim.h"

namespace shim
{

enum : unsigned { NOBODY = ~0u, MAX_THREADS = 1024 };

struct Thread {
    unsigned fiber = NOBODY;
    bool waits = false, parked = false, ended = false;
    bool atomics = false; /* has used atomics in this kernel: its other accesses may be ordered by them */
    cudashim_meeting kind = CUDASHIM_SYNCTHREADS;
    unsigned mask = 0;
    unsigned long long value = 0, result = 0;
    int lane = 0, width = 0, line = 0;
    const char *file = nullptr;
    unsigned warp_epoch = 0;
};

struct Block {
    Block() = default;
    Block(const Block &) = delete;
    ~Block();
    const Kernel *kernel = nullptr;
    unsigned count = 0, next = 0, ended = 0, at_barrier = 0, parked = 0;
    unsigned current = 0, fiber = NOBODY, order = 0;
    unsigned epoch = 0; /* barriers passed */
    uint64_t number = 0;
    bool stop = false;
    Thread threads[MAX_THREADS];
    unsigned runnable[MAX_THREADS], runnable_first = 0, runnable_end = 0; /* a ring */
    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<unsigned> idle;
    Fiber host;
    char *shared_map = nullptr, *shared_end = nullptr, *shared = nullptr;
    size_t shared_bytes = 0, static_bytes = 0;
    char *tls_first = nullptr, *tls_end = nullptr, *static_first = nullptr;
};
extern thread_local Block *the_block;

uint3 thread_index(const Block &b, unsigned t);
/* The thread at hand waits until somebody releases it. */
void block_wait(Block &b);
void block_release(Block &b, unsigned t);
/* warp.cpp */
unsigned long long warp_meet(Block &b);
void warp_try(Block &b, unsigned warp);
/* Thread-local memory of the program in this host thread, and where static shared memory begins in it. */
void tls_range(char *&first, char *&end, char *&shared);
void check_block_begins(Block &b); /* check.cpp */

} // namespace shim

#endif
