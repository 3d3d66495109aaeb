/* Planted faults: each case has a faulty and a healthy twin. The faulty one must end with the report that is named, the
 * healthy one without any. Each runs in a process of its own. `faults [SEED]`; */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "autopar_rt_cuda.h"

#include <cublasLt.h>
#include <nccl.h>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        cudaError_t e_ = (call);                                                                                       \
        if (e_ != cudaSuccess) {                                                                                       \
            fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorString(e_));                                        \
            exit(3);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { N = 1000, THREADS = 128 };

struct Holder {
    const float *p;
};

__global__ void add_one(const float *x, float *y, int n)
{
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += (int)(gridDim.x * blockDim.x))
        y[i] = x[i] + 1;
}

__global__ void add_held(Holder h, float *y)
{
    y[threadIdx.x] = h.p[threadIdx.x];
}

__global__ void reverse_static(float *x, int barrier)
{
    __shared__ float s[THREADS];
    s[threadIdx.x] = x[threadIdx.x];
    if (barrier)
        __syncthreads();
    x[threadIdx.x] = s[THREADS - 1 - threadIdx.x];
}

__global__ void reverse_dynamic(float *x, int n, int barrier)
{
    APRT_SHARED(float, s);
    if ((int)threadIdx.x < n)
        s[threadIdx.x] = x[threadIdx.x];
    if (barrier)
        __syncthreads();
    if ((int)threadIdx.x < n)
        x[threadIdx.x] = s[n - 1 - (int)threadIdx.x];
}

/* The second barrier is the one that is easily forgotten: before what was read is written again. */
__global__ void twice(float *x, int barrier)
{
    __shared__ float s[THREADS];
    for (int k = 0; k < 2; k++) {
        s[threadIdx.x] = x[threadIdx.x] + (float)k;
        __syncthreads();
        x[threadIdx.x] = s[(threadIdx.x + 1) % THREADS];
        if (barrier)
            __syncthreads();
    }
}

__global__ void swap_lanes(float *x, int sync)
{
    __shared__ float s[32];
    s[threadIdx.x] = x[threadIdx.x];
    if (sync)
        __syncwarp();
    x[threadIdx.x] = s[threadIdx.x ^ 1];
}

__global__ void first_of_all(float *x, int own)
{
    x[own ? blockIdx.x : 0] = (float)blockIdx.x;
}

__global__ void some_wait(float *x, int all)
{
    if (all || threadIdx.x < 40)
        __syncthreads();
    x[threadIdx.x] = 1;
}

__global__ void some_leave(float *x, int nobody)
{
    if (!nobody && threadIdx.x >= 40)
        return;
    __syncthreads();
    x[threadIdx.x] = 1;
}

__global__ void two_barriers(float *x, int one)
{
    if (one || threadIdx.x < 64)
        __syncthreads();
    else
        __syncthreads();
    x[threadIdx.x] = 1;
}

__global__ void shuffle_apart(float *x, int together)
{
    float v = x[threadIdx.x];
    if (together || threadIdx.x < 16)
        v += __shfl_xor_sync(0xffffffffu, v, 1);
    else
        __syncwarp();
    x[threadIdx.x] = v;
}

static float *on_device(int n)
{
    float *p;
    std::vector<float> zeros((size_t)n, 0.0f);
    OK(cudaMalloc(&p, (size_t)n * sizeof(float)));
    OK(cudaMemcpy(p, zeros.data(), (size_t)n * sizeof(float), cudaMemcpyHostToDevice));
    return p;
}

static void finish(float *p)
{
    OK(cudaDeviceSynchronize());
    OK(cudaFree(p));
}

/* ---- accesses ---- */

static void read_behind(bool bad)
{
    float *x = on_device(N), *y = on_device(N + 1);
    APRT_LAUNCH(add_one, 4, THREADS, 0, 0, x, y, bad ? N + 1 : N);
    finish(x);
    finish(y);
}

static void write_behind(bool bad)
{
    float *x = on_device(N + 1), *y = on_device(N);
    APRT_LAUNCH(add_one, 4, THREADS, 0, 0, x, y, bad ? N + 1 : N);
    finish(x);
    finish(y);
}

static void read_before(bool bad)
{
    float *x = on_device(N), *y = on_device(N);
    APRT_LAUNCH(add_one, 4, THREADS, 0, 0, x - (bad ? 1 : 0), y, N);
    finish(x);
    finish(y);
}

static void shared_behind(bool bad)
{
    float *x = on_device(N);
    APRT_LAUNCH(reverse_dynamic, 1, THREADS, (bad ? 99 : 100) * sizeof(float), 0, x, 100, 1);
    finish(x);
}

static void host_pointer(bool bad)
{
    std::vector<float> host(N);
    float *x = on_device(N), *y = on_device(N);
    APRT_LAUNCH(add_one, 4, THREADS, 0, 0, bad ? host.data() : x, y, N);
    finish(x);
    finish(y);
}

static void host_pointer_held(bool bad)
{
    std::vector<float> host(N);
    float *x = on_device(N), *y = on_device(N);
    Holder h = {bad ? host.data() : x};
    APRT_LAUNCH(add_held, 1, THREADS, 0, 0, h, y);
    finish(x);
    finish(y);
}

static void used_after_free(bool bad)
{
    float *x = on_device(N), *y = on_device(N);
    Holder h = {x};
    if (bad)
        OK(cudaFree(x));
    APRT_LAUNCH(add_held, 1, THREADS, 0, 0, h, y);
    finish(y);
    if (!bad)
        OK(cudaFree(x));
}

static void freed_twice(bool bad)
{
    float *x = on_device(N);
    OK(cudaFree(x));
    if (bad)
        cudaFree(x);
}

static void host_reads_device(bool bad)
{
    float *x = on_device(N), v = 0;
    if (bad)
        v = *(volatile float *)x;
    else
        OK(cudaMemcpy(&v, x, sizeof v, cudaMemcpyDeviceToHost));
    OK(cudaFree(x));
    if (v != 0)
        exit(3);
}

static void wrong_kind(bool bad)
{
    float *x = on_device(N), host[4] = {0};
    OK(cudaMemcpy(host, x, sizeof host, bad ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost));
    OK(cudaFree(x));
}

static void copy_behind(bool bad)
{
    float *x = on_device(N);
    std::vector<float> host(N + 1);
    OK(cudaMemcpy(host.data(), x, (size_t)(bad ? N + 1 : N) * sizeof(float), cudaMemcpyDeviceToHost));
    OK(cudaFree(x));
}

/* ---- barriers ---- */

static void launch_barrier(void (*kernel)(float *, int), bool bad, unsigned grid, unsigned block)
{
    float *x = on_device(N);
    APRT_LAUNCH(kernel, grid, block, 0, 0, x, bad ? 0 : 1);
    finish(x);
}

static void missing_barrier(bool bad)
{
    launch_barrier(reverse_static, bad, 2 - 1, THREADS);
}

static void missing_barrier_dynamic(bool bad)
{
    float *x = on_device(N);
    APRT_LAUNCH(reverse_dynamic, 1, THREADS, 100 * sizeof(float), 0, x, 100, bad ? 0 : 1);
    finish(x);
}

static void missing_second_barrier(bool bad)
{
    launch_barrier(twice, bad, 1, THREADS);
}

static void missing_warp_barrier(bool bad)
{
    launch_barrier(swap_lanes, bad, 1, 32);
}

static void blocks_collide(bool bad)
{
    launch_barrier(first_of_all, bad, 8, 1);
}

static void barrier_in_branch(bool bad)
{
    launch_barrier(some_wait, bad, 1, THREADS);
}

static void barrier_after_return(bool bad)
{
    launch_barrier(some_leave, bad, 1, THREADS);
}

static void barriers_in_branches(bool bad)
{
    launch_barrier(two_barriers, bad, 1, THREADS);
}

static void shuffle_in_branch(bool bad)
{
    launch_barrier(shuffle_apart, bad, 1, 32);
}

/* ---- streams ---- */

struct Streams {
    cudaStream_t a, b;
    cudaEvent_t event;
    Streams()
    {
        OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
        OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
        OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    void end()
    {
        OK(cudaStreamSynchronize(a));
        OK(cudaStreamSynchronize(b));
        OK(cudaEventDestroy(event));
        OK(cudaStreamDestroy(a));
        OK(cudaStreamDestroy(b));
    }
};

static void missing_event(bool bad)
{
    float *x = on_device(N), *y = on_device(N), *z = on_device(N);
    Streams s;
    APRT_LAUNCH(add_one, 4, THREADS, 0, s.a, x, y, N);
    OK(cudaEventRecord(s.event, s.a));
    if (!bad)
        OK(cudaStreamWaitEvent(s.b, s.event, 0));
    APRT_LAUNCH(add_one, 4, THREADS, 0, s.b, y, z, N);
    s.end();
    finish(x);
    finish(y);
    finish(z);
}

/* The buffer is filled again while it may still be read. */
static void missing_event_back(bool bad)
{
    float *x = on_device(N), *y = on_device(N);
    Streams s;
    APRT_LAUNCH(add_one, 4, THREADS, 0, s.a, x, y, N);
    OK(cudaEventRecord(s.event, s.a));
    if (!bad)
        OK(cudaStreamWaitEvent(s.b, s.event, 0));
    OK(cudaMemsetAsync(x, 0, N * sizeof(float), s.b));
    s.end();
    finish(x);
    finish(y);
}

/* The event was recorded before what it should stand for. */
static void event_too_early(bool bad)
{
    float *x = on_device(N), *y = on_device(N), *z = on_device(N);
    Streams s;
    if (bad)
        OK(cudaEventRecord(s.event, s.a));
    APRT_LAUNCH(add_one, 4, THREADS, 0, s.a, x, y, N);
    if (!bad)
        OK(cudaEventRecord(s.event, s.a));
    OK(cudaStreamWaitEvent(s.b, s.event, 0));
    APRT_LAUNCH(add_one, 4, THREADS, 0, s.b, y, z, N);
    s.end();
    finish(x);
    finish(y);
    finish(z);
}

/* cudaMemset does not hold the host, and a stream of its own does not wait for it. */
static void memset_not_waited_for(bool bad)
{
    float *x = on_device(N), *y = on_device(N);
    Streams s;
    OK(cudaMemset(x, 0, N * sizeof(float)));
    if (!bad)
        OK(cudaDeviceSynchronize());
    APRT_LAUNCH(add_one, 4, THREADS, 0, s.a, x, y, N);
    s.end();
    finish(x);
    finish(y);
}

/* Two streams of a graph. */
static void missing_event_in_graph(bool bad)
{
    float *x = on_device(N), *y = on_device(N), *z = on_device(N);
    Streams s;
    cudaEvent_t fork;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    OK(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(fork, s.a));
    OK(cudaStreamWaitEvent(s.b, fork, 0));
    APRT_LAUNCH(add_one, 4, THREADS, 0, s.a, x, y, N);
    if (!bad) {
        OK(cudaEventRecord(fork, s.a));
        OK(cudaStreamWaitEvent(s.b, fork, 0));
    }
    APRT_LAUNCH(add_one, 4, THREADS, 0, s.b, y, z, N);
    OK(cudaEventRecord(s.event, s.b));
    OK(cudaStreamWaitEvent(s.a, s.event, 0));
    OK(cudaStreamEndCapture(s.a, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        OK(cudaGraphLaunch(exec, s.a));
    s.end();
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaEventDestroy(fork));
    finish(x);
    finish(y);
    finish(z);
}

static void wait_while_capturing(bool bad)
{
    float *x = on_device(N), *y = on_device(N);
    Streams s;
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal));
    APRT_LAUNCH(add_one, 4, THREADS, 0, s.a, x, y, N);
    if (bad)
        cudaStreamSynchronize(s.a);
    OK(cudaStreamEndCapture(s.a, &graph));
    OK(cudaGraphDestroy(graph));
    s.end();
    finish(x);
    finish(y);
}

static void stream_not_joined(bool bad)
{
    float *x = on_device(N), *y = on_device(N);
    Streams s;
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(s.event, s.a));
    OK(cudaStreamWaitEvent(s.b, s.event, 0));
    APRT_LAUNCH(add_one, 4, THREADS, 0, s.b, x, y, N);
    if (!bad) {
        OK(cudaEventRecord(s.event, s.b));
        OK(cudaStreamWaitEvent(s.a, s.event, 0));
    }
    OK(cudaStreamEndCapture(s.a, &graph));
    OK(cudaGraphDestroy(graph));
    s.end();
    finish(x);
    finish(y);
}

/* ---- objects and limits ---- */

static void leaked_memory(bool bad)
{
    float *x = on_device(N);
    if (!bad)
        finish(x);
}

static void leaked_stream(bool bad)
{
    cudaStream_t s;
    OK(cudaStreamCreate(&s));
    if (!bad)
        OK(cudaStreamDestroy(s));
}

static void destroyed_event(bool bad)
{
    Streams s;
    cudaEvent_t event;
    OK(cudaEventCreate(&event));
    if (bad)
        OK(cudaEventDestroy(event));
    cudaEventRecord(event, s.a);
    if (!bad)
        OK(cudaEventDestroy(event));
    s.end();
}

static void too_many_threads(bool bad)
{
    float *x = on_device(N), *y = on_device(N);
    APRT_LAUNCH(add_one, 1, bad ? 1056 : 1024, 0, 0, x, y, N);
    finish(x);
    finish(y);
}

static void too_much_shared(bool bad)
{
    float *x = on_device(N);
    if (!bad)
        OK(cudaFuncSetAttribute(reverse_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
    APRT_LAUNCH(reverse_dynamic, 1, THREADS, 64 << 10, 0, x, 100, 1);
    finish(x);
}

static void small_workspace(bool bad)
{
    float *a = on_device(64), *b = on_device(64), *c = on_device(64), one = 1, zero = 0;
    char *workspace;
    size_t most = 1 << 20;
    int found;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    OK(cudaMalloc(&workspace, most));
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 8, 8, 8);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    cublasLtMatmulAlgoGetHeuristic(handle, desc, layout, layout, layout, layout, preference, 1, &result, &found);
    cublasLtMatmul(handle, desc, &one, a, layout, b, layout, &zero, c, layout, c, layout, &result.algo, workspace,
                   bad ? 16 : most, 0);
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
    finish(a);
    finish(b);
    finish(c);
    OK(cudaFree(workspace));
}

/* ---- collectives ---- */

enum Slip { COUNT, TYPE, KIND, OPERATION, ORDER, UNORDERED };

static void rank_runs(int rank, ncclUniqueId id, Slip slip, bool bad)
{
    ncclComm_t comm;
    Streams *s;
    OK(cudaSetDevice(rank));
    s = new Streams;
    float *x = on_device(N), *y = on_device(N);
    bad = bad && rank == 1;
    if (ncclCommInitRank(&comm, 2, id, rank) != ncclSuccess)
        exit(3);
    OK(cudaDeviceSynchronize());
    APRT_LAUNCH(add_one, 4, THREADS, 0, s->b, y, x, N);
    OK(cudaEventRecord(s->event, s->b));
    if (!(bad && slip == UNORDERED))
        OK(cudaStreamWaitEvent(s->a, s->event, 0));
    if (bad && slip == ORDER)
        ncclBroadcast(x, x, 8, ncclFloat, 0, comm, s->a);
    if (bad && slip == KIND)
        ncclAllGather(x, y, 100, ncclFloat, comm, s->a);
    else
        ncclAllReduce(x, y, bad && slip == COUNT ? 99 : 100, bad && slip == TYPE ? ncclInt32 : ncclFloat,
                      bad && slip == OPERATION ? ncclMax : ncclSum, comm, s->a);
    if (!(bad && slip == ORDER))
        ncclBroadcast(x, x, 8, ncclFloat, 0, comm, s->a);
    s->end();
    delete s;
    finish(x);
    finish(y);
    ncclCommDestroy(comm);
}

static void collective(Slip slip, bool bad)
{
    ncclUniqueId id;
    if (ncclGetUniqueId(&id) != ncclSuccess)
        exit(3);
    std::thread other(rank_runs, 1, id, slip, bad);
    rank_runs(0, id, slip, bad);
    other.join();
}

static void collective_count(bool bad)
{
    collective(COUNT, bad);
}
static void collective_type(bool bad)
{
    collective(TYPE, bad);
}
static void collective_kind(bool bad)
{
    collective(KIND, bad);
}
static void collective_operation(bool bad)
{
    collective(OPERATION, bad);
}
static void collective_order(bool bad)
{
    collective(ORDER, bad);
}
static void collective_unordered(bool bad)
{
    collective(UNORDERED, bad);
}

/* ---- all of them ---- */

struct Case {
    const char *name;
    void (*run)(bool bad);
    const char *report; /* in what the faulty twin says */
};
#define CASE(name, report)                                                                                             \
    {                                                                                                                  \
#name, name, report                                                                                            \
    }
static const Case cases[] = {
    CASE(read_behind, "out of bounds, 4 bytes behind the end of 4000 bytes"),
    CASE(write_behind, "out of bounds, 4 bytes behind the end of 4000 bytes"),
    CASE(read_before, "out of bounds"),
    CASE(shared_behind, "of dynamic shared memory"),
    CASE(host_pointer, "is a pointer into host memory"),
    CASE(host_pointer_held, "host memory"),
    CASE(used_after_free, "use after free"),
    CASE(freed_twice, "has been freed before"),
    CASE(host_reads_device, "host code touches device memory"),
    CASE(wrong_kind, "the kind says"),
    CASE(copy_behind, "out of bounds"),
    CASE(missing_barrier, "race: "),
    CASE(missing_barrier_dynamic, "race: "),
    CASE(missing_second_barrier, "race: "),
    CASE(missing_warp_barrier, "race: "),
    CASE(blocks_collide, "race: "),
    CASE(barrier_in_branch, "divergent barrier"),
    CASE(barrier_after_return, "has ended"),
    CASE(barriers_in_branches, "divergent barrier"),
    CASE(shuffle_in_branch, "divergent barrier"),
    CASE(missing_event, "race: "),
    CASE(missing_event_back, "race: "),
    CASE(event_too_early, "race: "),
    CASE(memset_not_waited_for, "race: "),
    CASE(missing_event_in_graph, "race: "),
    CASE(wait_while_capturing, "due to a previous error during capture"),
    CASE(stream_not_joined, "unjoined"),
    CASE(leaked_memory, "leak: 1 pieces of memory"),
    CASE(leaked_stream, "leak: 1 of kind \"stream\""),
    CASE(destroyed_event, "is a destroyed event"),
    CASE(too_many_threads, "more than 1024 threads"),
    CASE(too_much_shared, "of shared memory, 49152 allowed"),
    CASE(small_workspace, "the algorithm wants"),
    CASE(collective_count, "mismatched collective"),
    CASE(collective_type, "mismatched collective"),
    CASE(collective_kind, "mismatched collective"),
    CASE(collective_operation, "mismatched collective"),
    CASE(collective_order, "mismatched collective"),
    CASE(collective_unordered, "race: "),
};

/* The twin in a child process; what it said on standard error, and whether it ended well. */
static bool twin(const Case &c, bool bad, std::string &said)
{
    int pipes[2], status = 0;
    char buffer[4096];
    if (pipe(pipes) != 0)
        exit(4);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], 2);
        close(pipes[0]);
        close(pipes[1]);
        c.run(bad);
        exit(0);
    }
    close(pipes[1]);
    for (ssize_t n; (n = read(pipes[0], buffer, sizeof buffer)) > 0;)
        said.append(buffer, (size_t)n);
    close(pipes[0]);
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    int failed = 0;
    setenv("CUDASHIM_QUIET", "1", 1);
    if (argc > 1)
        setenv("CUDASHIM_SEED", argv[1], 1);
    for (const Case &c : cases) {
        std::string bad, good;
        bool bad_ended = twin(c, true, bad), good_ended = twin(c, false, good);
        bool caught = !bad_ended && bad.find(c.report) != std::string::npos, quiet = good_ended && good.empty();
        printf("%-26s %s, %s\n", c.name, caught ? "caught" : "NOT CAUGHT", quiet ? "healthy" : "NOT HEALTHY");
        if (!caught)
            printf("    wanted: %s\n    got: %s\n", c.report, bad.c_str());
        if (!quiet)
            printf("    got: %s\n", good.c_str());
        failed += !caught || !quiet;
    }
    printf("%zu faults, %d not as they should be\n", sizeof cases / sizeof *cases, failed);
    return failed != 0;
}
