/* Blocks, one after the other; threads of a block as fibers.
 *
 * A fiber takes the next thread that has not begun, runs it to its end, and takes another one, so a kernel without
 * barriers is a loop on one stack. A thread that must wait keeps its fiber, and the next one begins on another. When
 * all have begun, those that may go on do so one by one. When none may, threads wait for each other at different
 * places: the barrier is divergent. Blocks, and threads of a block, run forwards, backwards or warps in turn, as the
 * seed has it; what a missing barrier would have ordered comes out wrong in one of them. */
#include <algorithm>
#include <cstdlib>
#include <sys/mman.h>

#include "fiber.h"
#include "kernel.h"

__thread cudashim_builtin cudashim_self = {{0, 0, 0}, {0, 0, 0}, {1, 1, 1}, {1, 1, 1}};

extern "C" {
extern char __start_cudashim_shared[] __attribute__((weak));
extern char __stop_cudashim_shared[] __attribute__((weak));
}

namespace shim
{

thread_local Block *the_block;

namespace
{
const size_t MOST_SHARED = 227 << 10;
const size_t PAGE = 4096;

const char *const meetings[] = {"__syncthreads",     "__syncthreads_count", "__syncthreads_and", "__syncthreads_or",
                                "__syncwarp",        "__shfl_sync",         "__shfl_up_sync",    "__shfl_down_sync",
                                "__shfl_xor_sync",   "__ballot_sync",       "__all_sync",        "__any_sync",
                                "__match_any_sync",  "__reduce_add_sync",   "__reduce_min_sync", "__reduce_max_sync",
                                "__reduce_and_sync", "__reduce_or_sync",    "__reduce_xor_sync"};

std::string thread_text(const Block &b, unsigned t)
{
    uint3 i = thread_index(b, t);
    return "thread (" + std::to_string(i.x) + "," + std::to_string(i.y) + "," + std::to_string(i.z) + ")";
}

std::string wait_text(const Thread &t)
{
    return std::string(meetings[t.kind]) + " at " + t.file + ":" + std::to_string(t.line);
}

void become(Block &b, unsigned t)
{
    b.current = t;
    cudashim_self.thread_index = thread_index(b, t);
}

unsigned in_order(const Block &b, unsigned i)
{
    switch (b.order) {
    case 0:
        return i;
    case 1:
        return b.count - 1 - i;
    case 2: { /* warps backwards, lanes forwards */
        unsigned full = b.count / 32 * 32;
        return i < full ? full - 32 - i / 32 * 32 + i % 32 : i;
    }
    default: /* from the middle on */
        return (i + b.count / 2) % b.count;
    }
}

void fiber_body();

unsigned take_fiber(Block &b)
{
    if (b.idle.empty()) {
        b.fibers.emplace_back(new Fiber);
        fiber_make(*b.fibers.back(), fiber_body);
        return (unsigned)b.fibers.size() - 1;
    }
    unsigned f = b.idle.back();
    b.idle.pop_back();
    return f;
}

/* Leaves the fiber at hand, for a thread that may go on, for a new one, or for kernel_run. */
void go_on(Block &b)
{
    unsigned from = b.fiber, to = NOBODY;
    if (b.next < b.count && !b.stop) {
        to = take_fiber(b);
    } else if (b.runnable_first != b.runnable_end && !b.stop) {
        unsigned t = b.runnable[b.runnable_first++ % MAX_THREADS];
        to = b.threads[t].fiber;
        become(b, t);
    }
    if (to == from)
        return;
    b.fiber = to;
    fiber_switch(*b.fibers[from], to == NOBODY ? b.host : *b.fibers[to]);
    b.fiber = from;
}

void let_go(Block &b, unsigned t)
{
    Thread &th = b.threads[t];
    th.waits = false;
    if (!th.parked)
        return; /* the one that came last, which calls */
    th.parked = false;
    b.parked--;
    b.runnable[b.runnable_end++ % MAX_THREADS] = t;
}

/* All threads of the block wait, none has ended: the barrier is passed. */
void pass_barrier(Block &b)
{
    const Thread &first = b.threads[0];
    unsigned long long count = 0;
    for (unsigned t = 0; t < b.count; t++) {
        const Thread &th = b.threads[t];
        if (th.kind != first.kind || th.line != first.line ||
            (th.file != first.file && strcmp(th.file, first.file) != 0)) {
            report("divergent barrier: %s waits in %s, %s in %s", thread_text(b, 0).c_str(), wait_text(first).c_str(),
                   thread_text(b, t).c_str(), wait_text(th).c_str());
            break;
        }
        count += th.value;
    }
    b.at_barrier = 0;
    b.epoch++;
    for (unsigned i = 0; i < b.count; i++) {
        Thread &th = b.threads[in_order(b, i)];
        th.result = th.kind == CUDASHIM_SYNC_COUNT ? count
                    : th.kind == CUDASHIM_SYNC_AND ? (unsigned long long)(count == b.count)
                                                   : (unsigned long long)(count != 0);
        let_go(b, in_order(b, i));
    }
}

void thread_ended(Block &b)
{
    b.ended++;
    b.threads[b.current].ended = true;
    if (b.parked)
        warp_try(b, b.current / 32);
}

void fiber_body()
{
    fiber_entered();
    Block &b = *the_block;
    for (;;) {
        unsigned me = b.fiber;
        while (b.next < b.count && !b.stop) {
            unsigned t = in_order(b, b.next++);
            Thread &th = b.threads[t];
            th.fiber = me;
            th.parked = th.atomics = false;
            th.warp_epoch = 0;
            become(b, t);
            b.kernel->call(b.kernel->data);
            if (b.stop)
                break;
            thread_ended(b);
        }
        b.idle.push_back(me);
        b.fiber = me;
        go_on(b);
    }
}

void deadlock(Block &b)
{
    std::string text;
    unsigned shown = 0, ended = b.count;
    const Thread *last = nullptr;
    for (unsigned t = 0; t < b.count; t++) {
        const Thread &th = b.threads[t];
        if (th.ended) {
            ended = t;
            continue;
        }
        if ((!last || th.kind != last->kind || th.line != last->line || th.mask != last->mask) && shown++ < 6)
            text += "; " + thread_text(b, t) + " waits in " + wait_text(th);
        last = &th;
    }
    if (ended < b.count)
        text += "; " + thread_text(b, ended) + " has ended";
    report("divergent barrier: not all threads arrive%s", text.c_str());
}

void fresh_shared(Block &b)
{
    if (b.shared_bytes)
        memset(b.shared, 0xff, b.shared_bytes);
    if (b.static_bytes)
        memset(b.static_first, 0xff, b.static_bytes);
}

/* Dynamic shared memory ends, to 16 bytes, where a page without access begins. */
void place_shared(Block &b, size_t bytes)
{
    if (!b.shared_map) {
        size_t room = (MOST_SHARED + PAGE - 1) / PAGE * PAGE;
        b.shared_map = (char *)mmap(nullptr, room + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (b.shared_map == MAP_FAILED || mprotect(b.shared_map + room, PAGE, PROT_NONE) != 0)
            abort();
        b.shared_end = b.shared_map + room;
    }
    b.shared_bytes = bytes;
    b.shared = b.shared_end - (bytes + 15) / 16 * 16;
}

void find_static(Block &b)
{
    tls_range(b.tls_first, b.tls_end, b.static_first);
    if (b.static_first)
        b.static_bytes = (size_t)(__stop_cudashim_shared - __start_cudashim_shared);
}

void run_block(Block &b)
{
    b.next = b.ended = b.at_barrier = b.parked = 0;
    for (unsigned t = 0; t < b.count; t++)
        b.threads[t].ended = b.threads[t].waits = false;
    b.epoch = 1;
    b.stop = false;
    b.runnable_first = b.runnable_end = 0;
    fresh_shared(b);
    check_block_begins(b);
    b.fiber = take_fiber(b);
    unsigned first = b.fiber;
    fiber_switch(b.host, *b.fibers[first]);
    b.fiber = NOBODY;
    if (b.ended == b.count)
        return;
    if (!b.stop)
        deadlock(b);
    /* a test counts reports: what hangs is given up */
    b.idle.clear();
    for (auto &f : b.fibers)
        fiber_free(*f);
    b.fibers.clear();
}
} // namespace

Block::~Block()
{
    for (auto &f : fibers)
        fiber_free(*f);
    if (shared_map)
        munmap(shared_map, (size_t)(shared_end - shared_map) + PAGE);
    the_block = nullptr;
}

uint3 thread_index(const Block &b, unsigned t)
{
    dim3 e = b.kernel->block;
    return make_uint3(t % e.x, t / e.x % e.y, t / e.x / e.y);
}

void block_wait(Block &b)
{
    Thread &th = b.threads[b.current];
    th.parked = true;
    b.parked++;
    unsigned me = b.current, fiber = th.fiber;
    b.fiber = fiber;
    go_on(b);
    b.fiber = fiber;
    become(b, me);
}

void block_release(Block &b, unsigned t)
{
    let_go(b, t);
}

bool in_kernel()
{
    return the_block && the_block->kernel && the_block->fiber != NOBODY;
}

std::string kernel_place()
{
    const uint3 &i = cudashim_self.block_index;
    return "block (" + std::to_string(i.x) + "," + std::to_string(i.y) + "," + std::to_string(i.z) + "), " +
           thread_text(*the_block, the_block->current);
}

void kernel_run(const Kernel &k)
{
    if (!the_block) {
        static thread_local std::unique_ptr<Block> owner; /* its stacks are used again and again */
        owner.reset(new Block);
        the_block = owner.get();
        fiber_adopt(the_block->host);
        find_static(*the_block);
    }
    Block &b = *the_block;
    b.kernel = &k;
    b.count = k.block.x * k.block.y * k.block.z;
    b.order = (unsigned)(k.order & 3);
    place_shared(b, k.shared);
    cudashim_self.block_extent = k.block;
    cudashim_self.grid_extent = k.grid;
    uint64_t blocks = (uint64_t)k.grid.x * k.grid.y * k.grid.z;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t at = k.order & 4 ? blocks - 1 - i : i;
        cudashim_self.block_index = make_uint3((unsigned)(at % k.grid.x), (unsigned)(at / k.grid.x % k.grid.y),
                                               (unsigned)(at / k.grid.x / k.grid.y));
        b.number = at;
        run_block(b);
    }
    b.kernel = nullptr;
}

unsigned long long barrier_meet(Block &b)
{
    Thread &th = b.threads[b.current];
    b.at_barrier++;
    if (b.at_barrier == b.count)
        pass_barrier(b);
    else
        block_wait(b);
    return th.result;
}

} // namespace shim

using namespace shim;

unsigned long long cudashim_meet(enum cudashim_meeting kind, unsigned mask, unsigned long long value, int lane,
                                 int width, const char *file, int line)
{
    if (!in_kernel()) {
        report("%s outside of a kernel", meetings[kind]);
        return 0;
    }
    Block &b = *the_block;
    Thread &th = b.threads[b.current];
    th.kind = kind;
    th.mask = mask;
    th.value = value;
    th.lane = lane;
    th.width = width;
    th.file = file;
    th.line = line;
    th.waits = true;
    return kind < CUDASHIM_SYNCWARP ? barrier_meet(b) : warp_meet(b);
}

void *cudashim_dynamic_shared(void)
{
    return the_block->shared;
}

void cudashim_fence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void cudashim_trap(void)
{
    report("__trap");
    abort();
}

unsigned cudashim_lane(void)
{
    return the_block->current % 32;
}

unsigned cudashim_active(void)
{
    return 1u << cudashim_lane(); /* nothing more is promised */
}
