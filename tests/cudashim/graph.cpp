/* Graphs: what is put on streams while they are captured, and put on a stream as a whole later.
 *
 * A node is work and the nodes before it. A launch puts all nodes, each on a chain of its own graph for each stream
 * that was captured, between two marks on the stream of the launch; so their order is drawn as that of all ops. */
#include <algorithm>
#include <pthread.h>

#include "shim.h"

namespace shim
{

struct Node {
    Work work;
    std::vector<int> before;
    int stream; /* which of the captured ones */
};

struct Capture {
    cudaStream_t origin;
    cudaStreamCaptureMode mode;
    pthread_t thread;
    bool spoilt = false;
    std::vector<Node> nodes;
    std::vector<cudaStream_t> streams;
};

namespace
{
std::vector<Capture *> &captures()
{
    static auto *all = new std::vector<Capture *>; /* active ones, under the machine's lock */
    return *all;
}
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

int stream_index(Capture &c, cudaStream_t s)
{
    for (size_t i = 0; i < c.streams.size(); i++)
        if (c.streams[i] == s)
            return (int)i;
    c.streams.push_back(s);
    return (int)c.streams.size() - 1;
}

void merge(std::vector<int> &into, const std::vector<int> &from)
{
    for (int n : from) {
        bool there = false;
        for (int i : into)
            there = there || i == n;
        if (!there)
            into.push_back(n);
    }
}

/* Whether all nodes are before the end of the origin: no stream was forgotten. */
bool joined(const Capture &c, const std::vector<int> &tail)
{
    std::vector<char> seen(c.nodes.size());
    std::vector<int> todo = tail;
    size_t count = 0;
    while (!todo.empty()) {
        int n = todo.back();
        todo.pop_back();
        if (seen[(size_t)n])
            continue;
        seen[(size_t)n] = 1;
        count++;
        todo.insert(todo.end(), c.nodes[(size_t)n].before.begin(), c.nodes[(size_t)n].before.end());
    }
    return count == c.nodes.size();
}
} // namespace

void capture_spoil(Capture &c, const char *)
{
    c.spoilt = true;
}

bool capture_forbids(Machine &, const char *call)
{
    bool bad = false;
    for (Capture *c : captures()) {
        bool mine = pthread_equal(c->thread, pthread_self()) != 0;
        bool hit = c->mode == cudaStreamCaptureModeGlobal ? thread_mode != cudaStreamCaptureModeRelaxed
                                                          : c->mode == cudaStreamCaptureModeThreadLocal && mine &&
                                                                thread_mode != cudaStreamCaptureModeRelaxed;
        if (hit) {
            capture_spoil(*c, call);
            bad = true;
        }
    }
    return bad;
}

void capture_put(cudaStream_t s, Work work)
{
    Capture &c = *s->capture;
    c.nodes.push_back(Node{std::move(work), s->tail, stream_index(c, s)});
    s->tail = {(int)c.nodes.size() - 1};
}

void capture_record(cudaStream_t s, cudaEvent_t e)
{
    e->capture = s->capture;
    e->tail = s->tail;
    e->op = nullptr;
}

cudaError_t capture_wait(cudaStream_t s, cudaEvent_t e)
{
    if (!e->capture || !e->capture->origin) { /* recorded before, or in a capture that has ended */
        if (!e->capture && !e->op)
            return cudaSuccess;
        if (!s->capture)
            return cudaErrorCapturedEvent;
        capture_spoil(*s->capture, "cudaStreamWaitEvent");
        return cudaErrorStreamCaptureIsolation;
    }
    if (s->capture && s->capture != e->capture) {
        capture_spoil(*s->capture, "cudaStreamWaitEvent");
        return cudaErrorStreamCaptureMerge;
    }
    if (s->is_default)
        return cudaErrorStreamCaptureImplicit;
    if (!s->capture) {
        s->capture = e->capture;
        s->tail.clear();
        stream_index(*s->capture, s);
    }
    merge(s->tail, e->tail);
    return cudaSuccess;
}

} // namespace shim

using namespace shim;

struct CUgraph_st {
    std::vector<Node> nodes;
    size_t streams;
    int device;
};

struct CUgraphExec_st {
    std::vector<Node> nodes;
    std::vector<uint32_t> chains;
    int device;
    OpRef last; /* launches of one graph come one after the other */
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    cudaStream_t s = stream_of(stream, "cudaStreamBeginCapture");
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    Lock lock(machine().lock);
    if (s->is_default)
        return fail(cudaErrorStreamCaptureUnsupported);
    if (s->capture)
        return fail(cudaErrorInvalidValue);
    auto c = std::make_shared<Capture>();
    c->origin = s;
    c->mode = mode;
    c->thread = pthread_self();
    c->streams.push_back(s);
    s->capture = c;
    s->tail.clear();
    captures().push_back(c.get());
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = nullptr;
    cudaStream_t s = stream_of(stream, "cudaStreamEndCapture");
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    Lock lock(machine().lock);
    std::shared_ptr<Capture> c = s->capture;
    if (!c)
        return fail(cudaErrorInvalidValue);
    if (c->origin != s)
        return fail(cudaErrorStreamCaptureUnmatched);
    if (c->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(c->thread, pthread_self()))
        return fail(cudaErrorStreamCaptureWrongThread);
    cudaError_t error = c->spoilt              ? cudaErrorStreamCaptureInvalidated
                        : !joined(*c, s->tail) ? cudaErrorStreamCaptureUnjoined
                                               : cudaSuccess;
    for (cudaStream_t t : c->streams) {
        t->capture = nullptr;
        t->tail.clear();
    }
    c->origin = nullptr;
    captures().erase(std::find(captures().begin(), captures().end(), c.get()));
    if (error)
        return fail(error);
    *graph = new CUgraph_st{std::move(c->nodes), c->streams.size(), s->device};
    object_add(*graph, GRAPH);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    cudaStream_t s = stream_of(stream, "cudaStreamIsCapturing");
    if (!s)
        return fail(cudaErrorInvalidResourceHandle);
    Lock lock(machine().lock);
    *status = !s->capture          ? cudaStreamCaptureStatusNone
              : s->capture->spoilt ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    std::swap(*mode, thread_mode);
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    if (!object_check(graph, GRAPH, "cudaGraphGetNodes"))
        return fail(cudaErrorInvalidValue);
    if (nodes)
        return fail(cudaErrorNotSupported); /* the shim counts them only */
    *count = graph->nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = nullptr;
    if (!object_check(graph, GRAPH, "cudaGraphInstantiate"))
        return fail(cudaErrorInvalidValue);
    Lock lock(machine().lock);
    *exec = new CUgraphExec_st{graph->nodes, {}, graph->device, nullptr};
    for (size_t i = 0; i < graph->streams; i++)
        (*exec)->chains.push_back(chain_take(machine()));
    object_add(*exec, GRAPH_EXEC);
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t)
{
    return object_check(exec, GRAPH_EXEC, "cudaGraphUpload") ? cudaSuccess : fail(cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaStream_t s = stream_of(stream, "cudaGraphLaunch");
    if (!s || !object_check(exec, GRAPH_EXEC, "cudaGraphLaunch"))
        return fail(cudaErrorInvalidValue);
    Lock lock(machine().lock);
    Machine &m = machine();
    if (s->capture) {
        capture_spoil(*s->capture, "cudaGraphLaunch"); /* graphs in graphs: the shim has none */
        return fail(cudaErrorNotSupported);
    }
    Work mark;
    mark.name = "cudaGraphLaunch";
    mark.device = s->device;
    OpRef begin = stream_put_op(m, s, mark, {exec->last});
    std::vector<OpRef> ops, end;
    std::vector<char> has_next(exec->nodes.size());
    for (const Node &n : exec->nodes) {
        std::vector<OpRef> before;
        for (int b : n.before) {
            before.push_back(ops[(size_t)b]);
            has_next[(size_t)b] = 1;
        }
        if (before.empty())
            before.push_back(begin);
        ops.push_back(op_put(m, n.work, exec->chains[(size_t)n.stream], before));
    }
    for (size_t i = 0; i < ops.size(); i++)
        if (!has_next[i])
            end.push_back(ops[i]);
    exec->last = stream_put_op(m, s, mark, end);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    if (!object_check(exec, GRAPH_EXEC, "cudaGraphExecDestroy"))
        return fail(cudaErrorInvalidValue);
    Lock lock(machine().lock);
    if (!exec->last || exec->last->state == Op::DONE)
        for (uint32_t chain : exec->chains)
            chain_give(machine(), chain);
    object_remove(exec);
    delete exec; /* a launch that is under way goes on */
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    if (!object_check(graph, GRAPH, "cudaGraphDestroy"))
        return fail(cudaErrorInvalidValue);
    object_remove(graph);
    delete graph;
    return cudaSuccess;
}
