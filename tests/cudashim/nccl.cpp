/* NCCL among threads of one process, or among processes (processes.h).
 *
 * A call, or a group of calls, of a communicator is one op. When it starts, its parts wait for their partners: all
 * ranks' k-th collective, the k-th message from one rank to another. Nothing is buffered: a send is done when it has
 * been received. What the ranks say of one collective must agree, and is compared as soon as two have said it. */
#include <thread>

#include "processes.h"

struct ncclComm {
    std::shared_ptr<shim::World> world;
    std::unique_ptr<shim::Folder> folder; /* where ranks are processes */
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
    c.pending.push_back(p);
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
    if (c.folder)
        return p;
    Parts &all = *meeting(w, *p, c.rank);
    all.resize(seats);
    all[seat] = p;
    for (size_t i = 0; i < seats; i++)
        if (all[i] && i != seat) {
            compare(*all[i], all[i]->call.comm->rank, *p, c.rank);
            break;
        }
    return p;
}

bool lost(ncclComm &c)
{
    if (fault.rank != c.rank || (long)c.calls < fault.after)
        return false;
    for (ncclComm_t other : c.world->ranks)
        if (other)
            other->error = other == &c ? ncclSystemError : ncclRemoteError;
    if (c.folder)
        folder_say_gone(*c.folder);
    return true;
}

/* ---- ranks that are processes ---- */

std::vector<std::shared_ptr<Part>> &posted() /* parts that wait for those of other processes; under the lock */
{
    static auto *all = new std::vector<std::shared_ptr<Part>>;
    return *all;
}

/* Who reads what a rank says of its part, and from whom it hears; by the kind of message: of a collective, what is
 * sent, that it may come. */
char kind_of(const Part &p, bool mine)
{
    if (p.call.kind < SEND)
        return 'c';
    return (p.call.kind == SEND) == mine ? 'm' : 'r';
}

std::vector<int> others(const Part &p)
{
    const ncclComm &c = *p.call.comm;
    if (p.call.kind >= SEND)
        return {p.call.peer};
    std::vector<int> all;
    for (int r = 0; r < c.world->size; r++)
        if (r != c.rank)
            all.push_back(r);
    return all;
}

void post_part(const std::shared_ptr<Part> &p)
{
    const Call &c = p->call;
    const size_t n = (size_t)c.comm->world->size;
    const bool all = c.kind == REDUCE_SCATTER || c.kind == ALL_TO_ALL;
    const size_t bytes = c.kind == RECV ? 0 : c.count * type_size(c.type) * (all ? n : 1);
    check_range_of(p->op.get(), c.send, bytes, false);
    folder_post(*c.comm->folder, kind_of(*p, true), p->number, others(*p),
                Letter{c.kind, c.type, c.op, c.peer, c.count}, c.send, bytes);
}

/* With parts that stand for those of the other ranks: their bytes lie in `bytes`. */
void meet_others(const std::shared_ptr<Part> &p)
{
    ncclComm &c = *p->call.comm;
    std::vector<std::vector<char>> bytes((size_t)c.world->size);
    Parts all((size_t)c.world->size);
    all[(size_t)c.rank] = p;
    std::shared_ptr<Part> other;
    for (int r : others(*p)) {
        Letter l;
        folder_take(*c.folder, kind_of(*p, false), p->number, r, &l, &bytes[(size_t)r]);
        other = std::make_shared<Part>();
        other->call = Call{(CallKind)l.kind,       bytes[(size_t)r].data(), nullptr, l.count,
                           (ncclDataType_t)l.type, (ncclRedOp_t)l.op,       l.peer,  &c};
        other->op = p->op;
        other->number = p->number;
        compare(*p, c.rank, *other, r);
        if (p->call.kind < SEND)
            all[(size_t)r] = other;
    }
    if (p->call.kind < SEND)
        collective_run(all);
    else if (p->call.kind == RECV)
        collective_run({other, p});
}

void part_post(Machine &m, const std::shared_ptr<Part> &p)
{
    Task task;
    task.op = p->op;
    task.run = [p] { post_part(p); };
    task.after = [p, &m] {
        p->taken = false;
        if (p->call.comm->aborted)
            part_over(m, p);
        else
            posted().push_back(p);
    };
    p->taken = true; /* until it has been posted */
    task_add(m, std::move(task));
}

/* Parts whose partners have come. */
void meet_posted(Machine &m)
{
    auto &all = posted();
    for (size_t i = 0; i < all.size(); i++) {
        std::shared_ptr<Part> p = all[i];
        bool there = true;
        if (!p->done)
            for (int r : others(*p))
                there = there && folder_has(*p->call.comm->folder, kind_of(*p, false), p->number, r);
        if (!there)
            continue;
        all.erase(all.begin() + (long)i--);
        if (p->done)
            continue;
        p->taken = true;
        Task task;
        task.op = p->op;
        task.run = [p] { meet_others(p); };
        task.after = [p, &m] { part_over(m, p); };
        task_add(m, std::move(task));
    }
}

/* GPUs go on while their hosts wait for something else, which other processes' ranks may depend on. */
void go_on()
{
    Machine &m = machine();
    Lock lock(m.lock);
    for (;;) {
        meet_posted(m);
        if (!m.ready.empty())
            op_poll(lock);
        else
            m.moved.wait_for(lock, std::chrono::microseconds(posted().empty() ? 20000 : 100));
    }
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
    if (c.folder) {
        part_post(m, p);
        return;
    }
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

ncclResult_t wait_for_processes(ncclComm_t comm)
{
    static std::once_flag once;
    double until = now() + 120;
    while (folder_arrived(*comm->folder) < comm->folder->size) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (folder_lost(*comm->folder))
            return ncclRemoteError;
        if (now() > until)
            return ncclSystemError;
    }
    std::call_once(once, [] { std::thread(go_on).detach(); });
    return ncclSuccess;
}

ncclResult_t wait_for_all(ncclComm_t comm)
{
    if (comm->folder)
        return wait_for_processes(comm);
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
    const std::string folder = folder_make();
    Lock lock(machine().lock);
    memset(id, 0, sizeof *id);
    if (folder.empty())
        snprintf(id->internal, sizeof id->internal, "cudashim %lu", ++count);
    else if ((size_t)snprintf(id->internal, sizeof id->internal, "%s", folder.c_str()) >= sizeof id->internal)
        return ncclInvalidArgument;
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
        if (fault.rank == rank && fault.after < 0)
            return ncclSystemError;
        std::shared_ptr<World> of_process;
        const bool processes = id.internal[0] == '/';
        std::shared_ptr<World> &w = processes ? of_process : worlds()[std::string(id.internal, sizeof id.internal)];
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
        if (processes) {
            c->folder.reset(new Folder{id.internal, size, rank});
            folder_join(*c->folder, c->device);
        }
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
    if (comm->folder)
        folder_leave(*comm->folder, !comm->aborted);
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
                Parts *all = comm->folder ? nullptr : meeting(*comm->world, *p, comm->rank);
                for (size_t i = 0; all && i < all->size(); i++)
                    if ((*all)[i] == p)
                        (*all)[i] = nullptr;
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
    if (comm->folder && comm->error == ncclSuccess && folder_lost(*comm->folder))
        comm->error = ncclRemoteError;
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
