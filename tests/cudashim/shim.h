/* shim.h - inside of the test shim (README.md).
 *
 * What a host thread puts on a stream is an Op: it is kept, and runs when somebody waits for it (or asks whether it is
 * done), in an order that is drawn among all that streams and events permit. Host threads that wait are the ones that
 * run ops. One lock guards everything but the running of ops. */
#ifndef CUDASHIM_SHIM_H
#define CUDASHIM_SHIM_H

#include <condition_variable>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cudashim.h"

#include "cuda_runtime.h"

namespace shim
{

/* ---- reports: report.cpp ---- */

void report(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool counting();
/* Says once per process that this is a test shim; every entry point that makes something calls it. */
void hello();

struct Where { /* what the thread at hand is doing, for reports */
    const char *op;
    int device;
    uint32_t stream;
};
extern thread_local Where where;

/* ---- ops: op.cpp ---- */

/* Which ops are before one: the last number per chain (a stream, or a stream of a captured graph). */
typedef std::vector<uint32_t> Clock;
void clock_join(Clock &into, const Clock &from);

struct Op;
typedef std::shared_ptr<Op> OpRef;
struct Part; /* of a collective: nccl.h */
typedef std::vector<std::shared_ptr<Part>> Parts;

struct Work {
    std::string name;
    int device = 0;
    std::function<void()> run;                      /* may be empty: a mark */
    std::function<Parts(const OpRef &)> rendezvous; /* of collectives: what must meet, made when the op is put */
};

struct Op {
    Work work;
    uint32_t id = 0, chain = 0, number = 0;
    Clock clock; /* the host's when it was put on the stream; of what came before, too, when it starts */
    std::vector<OpRef> before, after;
    unsigned waiting = 0;
    enum { WAITING, READY, RUNNING, DONE } state = WAITING;
    Parts parts;
    unsigned parts_left = 0;
    uint64_t wanted = 0;
    double time = 0;
};

struct Task {                    /* what can run now */
    OpRef op;                    /* ready, or, of a transfer, one of those that take part */
    std::function<void()> run;   /* of a transfer */
    std::function<void()> after; /* of a transfer, under the lock */
};

struct Machine {
    std::mutex lock;
    std::condition_variable moved;
    std::vector<Task> ready;
    Clock host;
    uint32_t next_op = 1, next_chain = 0;
    std::vector<uint32_t> free_chains, chain_number;
    unsigned running = 0, alive = 0; /* alive: ops that are not done */
    uint64_t seed = 0, draw = 0, wave = 0;
    std::vector<std::weak_ptr<Op>> ops; /* by id modulo its size: for reports and for the checks */
};
Machine &machine();
typedef std::unique_lock<std::mutex> Lock;

uint64_t mix(uint64_t x);
uint64_t draw(Machine &m, uint64_t below);
uint32_t chain_take(Machine &m);
void chain_give(Machine &m, uint32_t chain);
OpRef op_put(Machine &m, Work work, uint32_t chain, const std::vector<OpRef> &before);
void op_done(Machine &m, const OpRef &op);
void task_add(Machine &m, Task task);
/* Runs what is needed until the op is done. */
void op_wait(Lock &lock, const OpRef &op);
/* Some ops run, or none; for queries. */
void op_poll(Lock &lock);
double now();
/* The parts of a collective may meet their partners now; under the lock (nccl.cpp). */
void parts_start(const OpRef &op);

/* Device memory may be touched by this thread while it lives (memory.cpp: protection keys). */
struct Access {
    Access();
    ~Access();
};

/* ---- memory: memory.cpp ---- */

enum MemoryKind { MEMORY_DEVICE, MEMORY_PINNED, MEMORY_REGISTERED };
struct Memory {
    uintptr_t first, end;   /* what was asked for */
    uintptr_t map, map_end; /* pages; no access before and behind */
    int device;
    MemoryKind kind;
    bool freed;
    unsigned long number;
};
bool in_device_region(const void *p);
uintptr_t region_base();
size_t region_bytes();
unsigned long memory_frees(); /* how many pieces have been freed so far */
/* The memory that p lies in, or was in, or is next to, with what is wrong with [p, p+bytes) as text; "" if nothing. */
std::string memory_complaint(const void *p, size_t bytes, int device);
const Memory *memory_find(const void *p);
/* Reports unless an op on `device` may touch the range. */
bool memory_check(const void *p, size_t bytes, int device, const char *what);
int memory_device(const void *p); /* -1: not of a device */
bool memory_pinned(const void *p);
void memory_leaks();
void peer_enable(int from, int to);
bool peer_enabled(int from, int to);

/* ---- objects: object.cpp ---- */

enum ObjectKind { STREAM, EVENT, GRAPH, GRAPH_EXEC, CUBLAS, CUDNN, NCCL_COMM, DESCRIPTOR, OBJECT_KINDS };
void object_add(const void *p, ObjectKind kind);
bool object_check(const void *p, ObjectKind kind, const char *call); /* reports */
void object_remove(const void *p);
long objects_alive();
void object_leaks();

/* ---- streams: stream.cpp, graph.cpp ---- */

struct Capture;
int device_now();
int device_count();
cudaError_t fail(cudaError_t error);                      /* keeps it for cudaGetLastError */
cudaStream_t stream_of(cudaStream_t s, const char *call); /* the default one for 0; NULL and a report if it is none */
/* Puts work on a stream, or into the graph that is captured from it. */
void stream_put(Lock &lock, cudaStream_t s, Work work);
OpRef stream_put_op(Machine &m, cudaStream_t s, Work work, const std::vector<OpRef> &also = {});
/* Whether a call that waits is forbidden because a stream is being captured (it is invalidated then). */
bool capture_forbids(Machine &m, const char *call);
void capture_put(cudaStream_t s, Work work);
void capture_record(cudaStream_t s, cudaEvent_t e);
cudaError_t capture_wait(cudaStream_t s, cudaEvent_t e);
void capture_spoil(Capture &c, const char *call);
void device_wait(Lock &lock, int device);

/* ---- kernels: kernel.cpp ---- */

struct Kernel {
    const char *name;
    dim3 grid, block;
    size_t shared;
    uint64_t order;       /* drawn: of blocks and threads */
    void (*call)(void *); /* runs one thread */
    void *data;
};
void kernel_run(const Kernel &k);
bool kernel_shared_allowed(const void *function, size_t bytes);
/* A thread of a block is running on this host thread. */
bool in_kernel();
std::string kernel_place(); /* "block (0,0,0), thread (3,0,0)" */

/* ---- checks of accesses: check.cpp; only where kernels are compiled for it ---- */

void check_op(const Op &op); /* has been put on a stream */
void check_access(const void *p, unsigned bytes, bool write, bool plain);
void check_range(const void *p, size_t bytes, bool write); /* by the op that runs */
void check_range_of(const Op *op, const void *p, size_t bytes, bool write);
extern thread_local const Op *current_op;

} // namespace shim

struct CUstream_st {
    int device;
    bool is_default;
    unsigned flags;
    uint32_t chain;
    shim::OpRef last;
    std::shared_ptr<shim::Capture> capture;
    std::vector<int> tail; /* nodes of the graph that is captured */
};

struct CUevent_st {
    unsigned flags;
    int device;
    shim::OpRef op;
    std::shared_ptr<shim::Capture> capture;
    std::vector<int> tail;
};

#endif
