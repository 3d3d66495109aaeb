/* SPDX-License-Identifier: MIT
 *
 * A rank with a GPU: opening, running, failing. */
#include "target.h"
#include "cuda_device.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const double grace = 1; /* seconds that what is on its way gets to end, when another rank has failed */

/* ---- failures ---- */

int cuda_fail(aprt_device *d, int status, const char *fmt, ...)
{
    cuda_device *c = cuda_of(d);
    va_list args;
    if (c->status != APRT_OK)
        return c->status;
    c->status = status;
    c->failed_at = d->at;
    va_start(args, fmt);
    vsnprintf(c->why.text, sizeof c->why.text, fmt, args);
    va_end(args);
    return status;
}

int cuda_status(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    const int status = c->status;
    if (status == APRT_OK || status == APRT_ABANDONED)
        return status;
    d->at = c->failed_at;
    return aprt_device_fail(d, status, "%s", c->why.text);
}

int cuda_check(aprt_device *d, cudaError_t error, const char *what)
{
    return error == cudaSuccess ? APRT_OK : cuda_fail(d, APRT_ERR_ENV, "%s: %s", what, cudaGetErrorString(error));
}

int cuda_check_nccl(aprt_device *d, ncclResult_t result, const char *what)
{
    return result == ncclSuccess ? APRT_OK : cuda_fail(d, APRT_ERR_ENV, "%s: %s", what, ncclGetErrorString(result));
}

/* Another rank has failed. What is wrong with data leaves connections as they are: then everything ends by itself. */
static int abandon(aprt_device *d, cudaEvent_t event)
{
    cuda_device *c = cuda_of(d);
    const double since = aprt_profile_now();
    while (cudaEventQuery(event) == cudaErrorNotReady) {
        if (aprt_profile_now() - since > grace) {
            cuda_connections_abort(d);
            break;
        }
        sched_yield();
    }
    c->status = c->status == APRT_OK ? APRT_ABANDONED : c->status;
    return APRT_ABANDONED;
}

int cuda_wait(aprt_device *d, cudaEvent_t event)
{
    static const struct timespec nap = {0, 20000};
    aprt_instance *in = d->instance;
    const double since = aprt_profile_now();
    for (int64_t round = 0;; round++) {
        cudaError_t state = cudaEventQuery(event);
        if (state != cudaErrorNotReady)
            return cuda_check(d, state, "the GPU stopped");
        if (in->comm->ops->aborted(in->comm))
            return abandon(d, event);
        CUDA_TRY(cuda_connections_check(d));
        if (aprt_profile_now() - since > in->watchdog)
            return cuda_fail(d, APRT_ERR_ENV, "nothing has come from the GPU for %g seconds", in->watchdog);
        if (round < 1000)
            sched_yield();
        else
            nanosleep(&nap, NULL);
    }
}

/* ---- open, close ---- */

static int number_in(const char *const *variables, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *text = getenv(variables[i]);
        if (text && *text)
            return (int)strtol(text, NULL, 10);
    }
    return -1;
}

/* Which GPU of this host: ranks of a process count those before them, processes ask who started them. */
static int choose_gpu(aprt_device *d)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
    cuda_device *c = cuda_of(d);
    const aprt_instance *in = d->instance;
    int count = 0, before = 0, all = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
        return cuda_fail(d, APRT_ERR_ENV, "there is no GPU, or no driver for it: %s",
                         error == cudaSuccess ? "none was found" : cudaGetErrorString(error));
    for (int32_t i = 0; i < in->nworkers; i++) {
        const bool has = aprt_layout_stage(&in->layout, in->first_rank + i)->target != NULL;
        before += has && in->first_rank + i < d->rank;
        all += has;
    }
    if (all > count)
        return cuda_fail(d, APRT_ERR_ENV, "%d ranks of this process need a GPU each, and there are %d", all, count);
    if (in->nworkers < in->program->nranks) {
        const int local = number_in(variables, sizeof variables / sizeof *variables);
        before = local >= 0 ? local : d->rank;
    }
    c->gpu = before % count;
    CUDA_DO(d, cudaSetDevice, c->gpu);
    CUDA_DO(d, cudaDeviceGetAttribute, &c->multiprocessors, cudaDevAttrMultiProcessorCount, c->gpu);
    return APRT_OK;
}

static bool is_set(const char *variable, bool otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strcmp(text, "0") != 0 : otherwise;
}

static int open_parts(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    CUDA_TRY(choose_gpu(d));
    CUDA_DO(d, cudaStreamCreateWithFlags, &c->compute, cudaStreamNonBlocking);
    CUDA_DO(d, cudaStreamCreateWithFlags, &c->moving, cudaStreamNonBlocking);
    CUDA_TRY(cuda_event(d, &c->ready));
    CUDA_TRY(cuda_event(d, &c->over));
    CUDA_TRY(cuda_memory_open(d));
    CUDA_TRY(cuda_exchanges_open(d));
    CUDA_TRY(cuda_channels_open(d));
    c->tf32 = is_set("AUTOPAR_TF32", false);
    c->graphs = is_set("AUTOPAR_CUDA_GRAPH", true);
    c->graph = calloc((size_t)d->instance->program->microbatches, sizeof *c->graph);
    return c->graph ? APRT_OK : cuda_fail(d, APRT_ERR_ENV, "out of memory");
}

static int target_open(aprt_device *d)
{
    d->on = calloc(1, sizeof(cuda_device));
    if (!d->on)
        return aprt_device_fail(d, APRT_ERR_ENV, "out of memory");
    open_parts(d);
    return cuda_status(d);
}

static void close_graphs(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    for (int64_t mb = 0; c->graph && mb < d->instance->program->microbatches; mb++)
        if (c->graph[mb].exec)
            cudaGraphExecDestroy(c->graph[mb].exec);
    free(c->graph);
}

static bool is_done(const cuda_device *c, uint32_t nchannels)
{
    bool done = !c->compute || cudaStreamQuery(c->compute) != cudaErrorNotReady;
    done = done && (!c->moving || cudaStreamQuery(c->moving) != cudaErrorNotReady);
    for (uint32_t i = 0; c->channel && i < nchannels; i++)
        done = done && (!c->channel[i].stream || cudaStreamQuery(c->channel[i].stream) != cudaErrorNotReady);
    return done;
}

/* By the thread that closes the instance. After a failure there may be work that waits for others for ever: then its
 * connections are ended. */
void cuda_settle(aprt_device *d)
{
    const cuda_device *c = cuda_of(d);
    const double since = aprt_profile_now();
    if (!c)
        return;
    cudaSetDevice(c->gpu);
    while (!is_done(c, d->instance->program->nchannels)) {
        if (aprt_profile_now() - since > grace) {
            cuda_connections_abort(d);
            break;
        }
        sched_yield();
    }
}

static void target_close(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    if (!c)
        return;
    cuda_settle(d);
    cudaStream_t all[] = {c->compute, c->moving};
    for (size_t i = 0; i < 2; i++)
        if (all[i])
            cudaStreamSynchronize(all[i]);
    close_graphs(d);
    cuda_channels_close(d);
    cuda_exchanges_close(d);
    cuda_connections_close(d);
    cuda_products_close(d);
    cuda_measure_close(d);
    if (c->dnn)
        cudnnDestroy(c->dnn);
    cuda_memory_close(d);
    cudaEvent_t events[] = {c->ready, c->over};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    for (size_t i = 0; i < 2; i++)
        if (all[i])
            cudaStreamDestroy(all[i]);
    free(c);
    d->on = NULL;
}

/* ---- a run ---- */

static int target_upload(aprt_device *d, void *dst, const void *src, int64_t bytes)
{
    cuda_upload(d, dst, src, bytes);
    return cuda_status(d);
}

static int target_connect(aprt_device *d, const char *bytes)
{
    cuda_connect(d, bytes);
    return cuda_status(d);
}

/* No kernel has found anything wrong yet. */
static int clear_bad(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    const int64_t n = d->instance->program->microbatches;
    for (int64_t mb = 0; mb < n; mb++)
        c->bad_seen[mb] = (aprt_cuda_bad){.key = ~0ull};
    return cuda_upload(d, c->bad, c->bad_seen, n * (int64_t)sizeof *c->bad);
}

static int target_begin(aprt_device *d, const void *const *inputs, const void *const **out_inputs,
                        void *const **out_outputs)
{
    cuda_device *c = cuda_of(d);
    *out_inputs = c->input;
    *out_outputs = c->output;
    if (c->broken)
        return aprt_device_fail(d, APRT_ERR_ENV, "the connections between GPUs ended with an earlier failure");
    c->status = APRT_OK;
    c->in_flight = NULL;
    for (uint32_t i = 0; i < d->instance->program->nchannels; i++)
        c->channel[i].fetched = -1;
    if (cuda_check(d, cudaSetDevice(c->gpu), "cudaSetDevice") == APRT_OK && clear_bad(d) == APRT_OK &&
        cuda_measure_begin(d) == APRT_OK)
        cuda_upload_inputs(d, inputs);
    return cuda_status(d);
}

/* The first microbatch, and in it the first instruction, that met an index outside of its limits. */
static int check_bad(aprt_device *d)
{
    const cuda_device *c = cuda_of(d);
    for (int64_t mb = 0; mb < d->instance->program->microbatches; mb++) {
        const aprt_cuda_bad *b = &c->bad_seen[mb];
        if (b->key == ~0ull)
            continue;
        d->mb = mb;
        d->at = (uint32_t)(b->key >> 40);
        d->bad = (aprt_bad){.index = b->index, .limit = b->limit, .first = b->first};
        return aprt_fail_index(d);
    }
    return APRT_OK;
}

static int finish_run(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    const size_t bytes = (size_t)d->instance->program->microbatches * sizeof *c->bad;
    CUDA_DO(d, cudaMemcpyAsync, c->bad_seen, c->bad, bytes, cudaMemcpyDeviceToHost, c->compute);
    /* what was sent has left: the memory of a rank outlives its part in the run */
    for (uint32_t i = 0; i < d->instance->program->nchannels; i++)
        if (c->channel[i].comm) {
            CUDA_DO(d, cudaEventRecord, c->channel[i].ready, c->channel[i].stream);
            CUDA_DO(d, cudaStreamWaitEvent, c->compute, c->channel[i].ready, 0);
        }
    CUDA_DO(d, cudaEventRecord, c->over, c->compute);
    return cuda_wait(d, c->over);
}

static int target_end(aprt_device *d, void *const *outputs)
{
    finish_run(d);
    int status = cuda_status(d);
    if (status == APRT_OK)
        status = check_bad(d);
    if (status != APRT_OK)
        return status;
    d->at = d->stage->ninstrs;
    if (cuda_measure_end(d) == APRT_OK)
        cuda_download_outputs(d, outputs);
    return cuda_status(d);
}

/* ---- a microbatch: as calls, or as the graph that they made ---- */

static int by_calls(aprt_device *d)
{
    const int status = d->stage->run(d);
    cuda_exchanges_join(d);
    cuda_measure_pause(d);
    return status == APRT_OK ? cuda_status(d) : status;
}

static int capture(aprt_device *d, cuda_graph *g)
{
    cuda_device *c = cuda_of(d);
    cudaGraph_t graph = NULL;
    CUDA_DO(d, cudaStreamBeginCapture, c->compute, cudaStreamCaptureModeThreadLocal);
    const int status = d->stage->run(d);
    cuda_exchanges_join(d);
    const cudaError_t error = cudaStreamEndCapture(c->compute, &graph);
    if (status == APRT_OK && cuda_check(d, error, "cudaStreamEndCapture") == APRT_OK)
        cuda_check(d, cudaGraphInstantiate(&g->exec, graph, 0), "cudaGraphInstantiate");
    if (graph)
        cudaGraphDestroy(graph);
    return status;
}

/* Addresses and coordinates of a microbatch are the same in every run, so its graph is, too. The first run is one of
 * calls: libraries make what they need. */
static int target_run(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    cuda_graph *g = &c->graph[d->mb];
    const bool first = !g->has_run;
    g->has_run = true;
    if (d->profile || !c->graphs || first || d->stage->ninstrs == 0)
        return by_calls(d);
    if (!g->exec) {
        const int status = capture(d, g);
        if (status != APRT_OK)
            return status;
    }
    if (c->status == APRT_OK)
        cuda_check(d, cudaGraphLaunch(g->exec, c->compute), "cudaGraphLaunch");
    return cuda_status(d);
}

static int target_exchange(aprt_device *d, const aprt_exchange *x, const void *src, void *dst)
{
    cuda_exchange(d, x, src, dst);
    return cuda_status(d);
}

/* ---- what kernels and their launchers ask ---- */

cudaStream_t aprt_cuda_stream(aprt_device *d);
cudaStream_t aprt_cuda_stream(aprt_device *d)
{
    return cuda_of(d)->compute;
}

void *aprt_cuda_scratch(aprt_device *d)
{
    return d->scratch;
}

int64_t aprt_cuda_grid(aprt_device *d, int64_t blocks)
{
    const int64_t most = (int64_t)cuda_of(d)->multiprocessors * 32;
    return blocks < 1 ? 1 : blocks < most ? blocks : most;
}

void aprt_cuda_launched(aprt_device *d)
{
    cuda_check(d, cudaGetLastError(), "the kernel was not started");
}

aprt_cuda_bad *aprt_cuda_bad_of(aprt_device *d)
{
    return cuda_of(d)->bad + d->mb;
}

unsigned long long aprt_cuda_key(aprt_device *d)
{
    return (unsigned long long)d->at << 40;
}

const aprt_target aprt_target_cuda = {
    .abi = APRT_ABI,
    .name = "CUDA",
    .open = target_open,
    .close = target_close,
    .upload = target_upload,
    .meeting_bytes = cuda_meeting_bytes,
    .meeting_make = cuda_meeting_make,
    .connect = target_connect,
    .begin = target_begin,
    .end = target_end,
    .run = target_run,
    .exchange = target_exchange,
    .recv = cuda_recv,
    .claim = cuda_claim,
    .free = cuda_free,
    .send = cuda_send,
};
