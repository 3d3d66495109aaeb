/* NCCL among threads of one process.
 *
 * A call, or a group of calls, of a communicator is one op. When it starts, its parts wait for their partners: all
 * ranks' k-th collective, the k-th message from one rank to another. Nothing is buffered: a send is done when it has
 * been received. What the ranks say of one collective must agree, and is compared as soon as two have said it. */
#include "collective.h"

struct ncclComm {
    std::shared_ptr<shim::World> world;
    int rank, device;
    uint64_t collectives = 0, calls = 0;
    bool aborted = false;
    ncclResult_t error = ncclSuccess;
    std::vector<std::shared_ptr<shim::Part>> pending;
};

namespace shim
{

struct World {
    int size = 0, arrived = 0;
    std::vector<ncclComm_t> ranks;
    std::map<uint64_t, Parts> collectives;
    struct Line { /* messages from one rank to another */
        uint64_t sent = 0, received = 0;
        std::map<uint64_t, Parts> messages;
    };
    std::map<std::pair<int, int>, Line> lines;
};

namespace
{
struct Pending { /* of a group */
    Call call;
    cudaStream_t stream;
};
thread_local int depth;
thread_local std::vector<Pending> group;
thread_local std::vector<ncclComm_t> joining;
thread_local ncclResult_t group_error;

std::map<std::string, std::shared_ptr<World>> &worlds()
{
    static auto *all = new std::map<std::string, std::shared_ptr<World>>;
    return *all;
}
struct Fault {
    int rank = -1;
    long after = 0;
} fault; /* under the machine's lock */

void part_over(Machine &m, const std::shared_ptr<Part> &p)
{
    auto &pending = p->call.comm->pending;
    for (size_t i = 0; i < pending.size(); i++)
        if (pending[i] == p) {
            pending.erase(pending.begin() + (long)i);
            break;
        }
    p->done = true;
    OpRef op = p->op;
    p->op = nullptr;
    if (--op->parts_left == 0)
        op_done(m, op);
}

std::string said(const Call &c)
{
    return std::string(call_name(c.kind)) + " of " + std::to_string(c.count) + " elements of type " +
           std::to_string(c.type) +
           (c.kind == ALL_REDUCE || c.kind == REDUCE || c.kind == REDUCE_SCATTER ? ", operation " + std::to_string(c.op)
                                                                                 : "") +
           (c.kind == REDUCE || c.kind == BROADCAST ? ", root " + std::to_string(c.peer) : "");
}

void compare(const Part &a, int rank_a, const Part &b, int rank_b)
{
    bool folds = a.call.kind == ALL_REDUCE || a.call.kind == REDUCE || a.call.kind == REDUCE_SCATTER;
    bool rooted = a.call.kind == REDUCE || a.call.kind == BROADCAST, message = a.call.kind >= SEND;
    bool agree = (message || a.call.kind == b.call.kind) && a.call.count == b.call.count &&
                 a.call.type == b.call.type && (!folds || a.call.op == b.call.op) &&
                 (!rooted || a.call.peer == b.call.peer);
    if (!agree)
        report("mismatched collective: number %llu of a communicator of %d is %s on rank %d, %s on rank %d",
               (unsigned long long)a.number, a.call.comm->world->size, said(a.call).c_str(), rank_a,
               said(b.call).c_str(), rank_b);
}

/* The parts that must meet, `size` of them; NULL for those that are not there yet. */
Parts *meeting(World &w, const Part &p, int rank)
{
    if (p.call.kind < SEND)
        return &w.collectives[p.number];
    std::pair<int, int> line =
        p.call.kind == SEND ? std::make_pair(rank, p.call.peer) : std::make_pair(p.call.peer, rank);
    return &w.lines[line].messages[p.number];
}

std::shared_ptr<Part> enrol(const Call &call, const OpRef &op)
{
    ncclComm &c = *call.comm;
    World &w = *c.world;
    auto p = std::make_shared<Part>();
    p->call = call;
    p->op = op;
    size_t seat, seats;
    if (call.kind < SEND) {
        p->number = c.collectives++;
        seat = (size_t)c.rank;
        seats = (size_t)w.size;
    } else {
        bool sends = call.kind == SEND;
        World::Line &line = w.lines[sends ? std::make_pair(c.rank, call.peer) : std::make_pair(call.peer, c.rank)];
        p->number = sends ? line.sent++ : line.received++;
        seat = sends ? 0 : 1;
        seats = 2;
    }
    Parts &all = *meeting(w, *p, c.rank);
    all.resize(seats);
    all[seat] = p;
    for (size_t i = 0; i < seats; i++)
        if (all[i] && i != seat) {
            compare(*all[i], all[i]->call.comm->rank, *p, c.rank);
            break;
        }
    c.pending.push_back(p);
    return p;
}

bool lost(ncclComm &c)
{
    if (fault.rank != c.rank || (long)c.calls < fault.after)
        return false;
    for (ncclComm_t other : c.world->ranks)
        if (other)
            other->error = other == &c ? ncclSystemError : ncclRemoteError;
    return true;
}

void part_start(Machine &m, const std::shared_ptr<Part> &p)
{
    ncclComm &c = *p->call.comm;
    if (c.aborted) {
        part_over(m, p);
        return;
    }
    if (lost(c))
        return;
    p->started = true;
    World &w = *c.world;
    Parts all = *meeting(w, *p, c.rank);
    for (auto &other : all)
        if (!other || !other->started)
            return;
    if (p->call.kind < SEND)
        w.collectives.erase(p->number);
    else
        w.lines[{all[0]->call.comm->rank, all[1]->call.comm->rank}].messages.erase(p->number);
    for (auto &other : all)
        other->taken = true;
    Task task;
    task.op = p->op;
    task.run = [all] { collective_run(all); };
    task.after = [all, &m] {
        Clock clock;
        for (auto &other : all)
            clock_join(clock, other->op->clock);
        for (auto &other : all)
            clock_join(other->op->clock, clock);
        for (auto &other : all)
            part_over(m, other);
    };
    task_add(m, std::move(task));
}

/* Ops for what a group, or one call, has asked for: one for each communicator, in the order of the calls. */
ncclResult_t put(std::vector<Pending> &calls)
{
    Lock lock(machine().lock);
    while (!calls.empty()) {
        ncclComm_t comm = calls[0].call.comm;
        cudaStream_t s = calls[0].stream;
        std::vector<Call> mine;
        std::vector<Pending> rest;
        for (Pending &p : calls)
            if (p.call.comm == comm && p.stream == s)
                mine.push_back(p.call);
            else
                rest.push_back(p);
        calls.swap(rest);
        Work work;
        work.name = mine.size() == 1 ? call_name(mine[0].kind) : "group of " + std::to_string(mine.size());
        work.name += ", rank " + std::to_string(comm->rank);
        work.device = comm->device;
        work.rendezvous = [mine, comm](const OpRef &op) {
            comm->calls++;
            Parts parts;
            for (const Call &c : mine)
                parts.push_back(enrol(c, op));
            return parts;
        };
        stream_put(lock, s, std::move(work));
    }
    return ncclSuccess;
}

bool valid(const Call &c, cudaStream_t s)
{
    World &w = *c.comm->world;
    size_t bytes = c.count * type_size(c.type), n = (size_t)w.size;
    int device = c.comm->device;
    bool rooted = c.kind == REDUCE || c.kind == BROADCAST || c.kind >= SEND;
    if (type_size(c.type) == 0 || (unsigned)c.op >= ncclNumOps || (rooted && (c.peer < 0 || c.peer >= w.size)))
        return false;
    if (s->device != device) {
        report("%s: the stream is of device %d, the communicator of device %d", call_name(c.kind), s->device, device);
        return false;
    }
    bool all_send = c.kind == REDUCE_SCATTER || c.kind == ALL_TO_ALL, mine = c.peer == c.comm->rank;
    bool all_receive = c.kind == ALL_GATHER || c.kind == ALL_TO_ALL;
    bool sends = c.kind != RECV && (c.kind != BROADCAST || mine),
         receives = c.kind != SEND && (c.kind != REDUCE || mine);
    return (!sends || memory_check(c.send, bytes * (all_send ? n : 1), device, "ncclXxx: send buffer")) &&
           (!receives || memory_check(c.recv, bytes * (all_receive ? n : 1), device, "ncclXxx: receive buffer"));
}

ncclResult_t call(const Call &c, cudaStream_t stream)
{
    const char *name = call_name(c.kind);
    if (!object_check(c.comm, NCCL_COMM, name))
        return ncclInvalidArgument;
    cudaStream_t s = stream_of(stream, name);
    if (!s || c.comm->aborted || !valid(c, s)) {
        group_error = ncclInvalidArgument;
        return ncclInvalidArgument;
    }
    if (c.count == 0)
        return ncclSuccess;
    std::vector<Pending> one{Pending{c, s}};
    if (depth == 0)
        return put(one);
    group.push_back(one[0]);
    return ncclSuccess;
}

ncclResult_t wait_for_all(ncclComm_t comm)
{
    Lock lock(machine().lock);
    double until = now() + 120;
    while (comm->world->arrived < comm->world->size) {
        machine().moved.wait_for(lock, std::chrono::milliseconds(50));
        if (now() > until) {
            report("ncclCommInitRank: %d of %d ranks have come", comm->world->arrived, comm->world->size);
            return ncclSystemError;
        }
    }
    return ncclSuccess;
}
} // namespace

void parts_start(const OpRef &op)
{
    Parts parts = op->parts;
    for (auto &p : parts)
        part_start(machine(), p);
}

} // namespace shim

using namespace shim;

void cudashim_fail_nccl(int rank, long after)
{
    Lock lock(machine().lock);
    fault.rank = rank;
    fault.after = after;
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static unsigned long count;
    Lock lock(machine().lock);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "cudashim %lu", ++count);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank)
{
    hello();
    *out = nullptr;
    if (size < 1 || rank < 0 || rank >= size)
        return ncclInvalidArgument;
    {
        Lock lock(machine().lock);
        std::shared_ptr<World> &w = worlds()[std::string(id.internal, sizeof id.internal)];
        if (!w) {
            w = std::make_shared<World>();
            w->size = size;
            w->ranks.resize((size_t)size);
        }
        if (w->size != size || w->ranks[(size_t)rank])
            return ncclInvalidArgument;
        ncclComm_t c = new ncclComm;
        c->world = w;
        c->rank = rank;
        c->device = device_now();
        for (ncclComm_t other : w->ranks)
            if (other && other->device == c->device) {
                report("ncclCommInitRank: ranks %d and %d are on one device, %d", other->rank, rank, c->device);
                delete c;
                return ncclInvalidUsage;
            }
        w->ranks[(size_t)rank] = c;
        w->arrived++;
        object_add(c, NCCL_COMM);
        *out = c;
        machine().moved.notify_all();
    }
    if (depth) {
        joining.push_back(*out);
        return ncclSuccess;
    }
    return wait_for_all(*out);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *)
{
    return ncclCommInitRank(comm, size, id, rank);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices)
{
    ncclUniqueId id;
    int was = device_now();
    ncclGetUniqueId(&id);
    ncclGroupStart();
    for (int i = 0; i < n; i++) {
        cudaSetDevice(devices ? devices[i] : i);
        ncclCommInitRank(&comms[i], n, id, i);
    }
    cudaSetDevice(was);
    return ncclGroupEnd();
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (!object_check(comm, NCCL_COMM, "ncclCommFinalize"))
        return ncclInvalidArgument;
    Lock lock(machine().lock);
    while (!comm->pending.empty() && !comm->aborted) {
        OpRef op = comm->pending[0]->op;
        op_wait(lock, op);
    }
    return ncclSuccess;
}

static ncclResult_t leave(ncclComm_t comm)
{
    Lock lock(machine().lock);
    comm->world->ranks[(size_t)comm->rank] = nullptr;
    object_remove(comm);
    if (comm->pending.empty())
        delete comm; /* otherwise a peer may still look at what it has asked for */
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!object_check(comm, NCCL_COMM, "ncclCommDestroy"))
        return ncclInvalidArgument;
    ncclCommFinalize(comm);
    return leave(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (!object_check(comm, NCCL_COMM, "ncclCommAbort"))
        return ncclInvalidArgument;
    {
        Lock lock(machine().lock);
        comm->aborted = true;
        Parts pending = comm->pending;
        for (auto &p : pending)
            if (!p->taken && p->op && p->op->state == Op::READY) {
                Parts *all = meeting(*comm->world, *p, comm->rank);
                for (auto &seat : *all)
                    if (seat == p)
                        seat = nullptr;
                part_over(machine(), p);
            }
        machine().moved.notify_all();
    }
    return leave(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    if (!object_check(comm, NCCL_COMM, "ncclCommGetAsyncError"))
        return ncclInvalidArgument;
    Lock lock(machine().lock);
    *error = comm->error;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    *count = comm->world->size;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    *device = comm->device;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < ncclNumResults ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t)
{
    return "";
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    return call(Call{REDUCE, send, recv, count, type, op, root, comm}, stream);
}

ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)
{
    return call(Call{BROADCAST, buffer, buffer, count, type, ncclSum, root, comm}, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    return call(Call{BROADCAST, send, recv, count, type, ncclSum, root, comm}, stream);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    return call(Call{ALL_REDUCE, send, recv, count, type, op, 0, comm}, stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    return call(Call{REDUCE_SCATTER, send, recv, count, type, op, 0, comm}, stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return call(Call{ALL_GATHER, send, recv, count, type, ncclSum, 0, comm}, stream);
}

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream)
{
    return call(Call{ALL_TO_ALL, send, recv, count, type, ncclSum, 0, comm}, stream);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return call(Call{SEND, send, nullptr, count, type, ncclSum, peer, comm}, stream);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return call(Call{RECV, nullptr, recv, count, type, ncclSum, peer, comm}, stream);
}

ncclResult_t ncclGroupStart(void)
{
    hello();
    if (depth++ == 0)
        group_error = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (depth == 0)
        return ncclInvalidUsage;
    if (--depth > 0)
        return ncclSuccess;
    std::vector<Pending> calls;
    std::vector<ncclComm_t> comms;
    calls.swap(group);
    comms.swap(joining);
    for (ncclComm_t c : comms) {
        ncclResult_t e = wait_for_all(c);
        if (e)
            return e;
    }
    return group_error ? group_error : put(calls);
}
