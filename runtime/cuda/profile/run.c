/* SPDX-License-Identifier: MIT
 *
 * The stage that measures. Calls of one case are captured into a graph, as programs replay theirs, and the graph's time
 * between two events is divided by them; the lower quartile of several times counts, since what disturbs only adds.
 * Before each case all ranks meet, so that they work at the same time and share what they share. */
#include "profile.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE = 60 /* seconds */, MOST_TURNS = 16 };

cudaStream_t aprt_cuda_stream(aprt_device *d);

/* A rank while it measures. */
typedef struct meter {
    aprt_device *d;
    const profile_stage *stage;
    const aprt_exchange *meeting; /* of all ranks; NULL: there is one, or no exchange is measured */
    cudaStream_t stream;
    cudaEvent_t begin, end;
    char *pinned; /* as large as the largest copy */
} meter;

static int check(aprt_device *d, cudaError_t error)
{
    return error == cudaSuccess ? APRT_OK : aprt_fail_call(d, APRT_ERR_ENV, cudaGetErrorString(error));
}
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const int try_ = (call);                                                                                       \
        if (try_ != APRT_OK)                                                                                           \
            return try_;                                                                                               \
    } while (0)
#define DO(m, call) TRY(check((m)->d, call))

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Until all that is on the stream is done; a rank that has failed keeps the others waiting. */
static int settle(meter *m)
{
    const double since = now();
    DO(m, cudaEventRecord(m->end, m->stream));
    for (;;) {
        const cudaError_t state = cudaEventQuery(m->end);
        if (state != cudaErrorNotReady)
            return check(m->d, state);
        if (now() - since > PATIENCE)
            return aprt_fail_call(m->d, APRT_ERR_ENV, "nothing has come from the GPU for a minute");
    }
}

static int meet(meter *m)
{
    if (m->meeting)
        TRY(aprt_exchange_run(m->d, m->meeting, m->d->arena, m->d->arena + m->stage->cases->arena_bytes / 2));
    return settle(m);
}

/* ---- one call ---- */

static int call(meter *m, const profile_case *k, int turn)
{
    aprt_device *d = m->d;
    char *a = d->arena + k->a, *b = d->arena + k->b, *c = d->arena + k->c;
    switch (k->kind) {
    case PROFILE_LAUNCH:
    case PROFILE_MEMORY:
        profile_negate(d, (const float *)(void *)a, (float *)(void *)c, k->extent[0]);
        break;
    case PROFILE_ROWS:
        profile_rows_run(d, k->rows, (const float *)(void *)a, (float *)(void *)c, k->extent[0], k->extent[1]);
        break;
    case PROFILE_PRODUCT:
        aprt_cuda_gemm(d, &k->product, NULL, a, b + turn % k->weights * k->step, c, NULL);
        break;
    case PROFILE_CONV:
        aprt_cuda_conv(d, k->number, a, NULL, c, NULL);
        break;
    case PROFILE_EXCHANGE:
        return aprt_exchange_run(d, &d->stage->exchange[k->number], a, c);
    case PROFILE_UPLOAD:
        return check(d, cudaMemcpyAsync(a, m->pinned, (size_t)k->bytes, cudaMemcpyHostToDevice, m->stream));
    case PROFILE_DOWNLOAD:
        return check(d, cudaMemcpyAsync(m->pinned, a, (size_t)k->bytes, cudaMemcpyDeviceToHost, m->stream));
    case PROFILE_KINDS:
        break;
    }
    return APRT_OK;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* About a millisecond's work: the same on all ranks, so by what is to be done and not by the time that it takes. */
static int calls_of(const meter *m, const profile_case *k)
{
    const bool copies = k->kind == PROFILE_UPLOAD || k->kind == PROFILE_DOWNLOAD;
    const int64_t bytes = k->kind == PROFILE_EXCHANGE || copies ? 20000000 : 1000000000;
    const int64_t n = least(INT64_C(20000000000) / (k->flops + k->simple + k->functions + 1), bytes / (k->bytes + 1));
    return (int)(n < 1 ? 1 : least(n, m->stage->most_calls));
}

static int put_calls(meter *m, const profile_case *k, int n)
{
    for (int i = 0; i < n; i++)
        TRY(call(m, k, i));
    return APRT_OK;
}

/* ---- a case ---- */

static int compare(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* `exec` NULL: copies with the host, which programs do outside of graphs. */
static int time_turns(meter *m, const profile_case *k, cudaGraphExec_t exec, int n, double *out)
{
    float ms[MOST_TURNS];
    const int turns = m->stage->turns;
    for (int t = -1; t < turns; t++) { /* the first one warms up */
        TRY(meet(m));
        DO(m, cudaEventRecord(m->begin, m->stream));
        if (exec)
            DO(m, cudaGraphLaunch(exec, m->stream));
        else
            TRY(put_calls(m, k, n));
        TRY(settle(m));
        if (t >= 0)
            DO(m, cudaEventElapsedTime(&ms[t], m->begin, m->end));
    }
    qsort(ms, (size_t)turns, sizeof *ms, compare);
    *out = 1e-3 * (double)ms[(turns - 1) / 4] / n;
    return APRT_OK;
}

static int capture(meter *m, const profile_case *k, int n, cudaGraphExec_t *out)
{
    cudaGraph_t graph = NULL;
    DO(m, cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeThreadLocal));
    const int status = put_calls(m, k, n);
    const cudaError_t error = cudaStreamEndCapture(m->stream, &graph);
    TRY(status);
    DO(m, error);
    const cudaError_t made = cudaGraphInstantiate(out, graph, 0);
    cudaGraphDestroy(graph);
    return check(m->d, made);
}

static int measure(meter *m, const profile_case *k, double *out)
{
    const int n = calls_of(m, k);
    if (k->kind == PROFILE_UPLOAD || k->kind == PROFILE_DOWNLOAD)
        return time_turns(m, k, NULL, n, out);
    cudaGraphExec_t exec = NULL;
    TRY(call(m, k, 0)); /* libraries make what they need */
    TRY(settle(m));
    TRY(capture(m, k, n, &exec));
    const int status = time_turns(m, k, exec, n, out);
    cudaGraphExecDestroy(exec);
    return status;
}

static int measure_all(meter *m, double *seconds)
{
    const profile_cases *c = m->stage->cases;
    int64_t copied = 0;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->at[i].kind == PROFILE_UPLOAD || c->at[i].kind == PROFILE_DOWNLOAD)
            copied = c->at[i].bytes > copied ? c->at[i].bytes : copied;
    DO(m, cudaEventCreateWithFlags(&m->begin, cudaEventDefault));
    DO(m, cudaEventCreateWithFlags(&m->end, cudaEventDefault));
    if (copied)
        DO(m, cudaHostAlloc((void **)&m->pinned, (size_t)copied, cudaHostAllocPortable));
    if (m->pinned)
        memset(m->pinned, 0, (size_t)copied);
    profile_fill(m->d, m->d->arena, c->arena_bytes);
    for (uint32_t i = 0; i < c->n; i++)
        TRY(measure(m, &c->at[i], &seconds[i]));
    const size_t bytes = c->n * sizeof *seconds;
    char *row = (char *)m->d->output[0] + (size_t)m->d->place * bytes;
    DO(m, cudaMemcpyAsync(row, seconds, bytes, cudaMemcpyHostToDevice, m->stream));
    return settle(m);
}

int profile_run(aprt_device *d)
{
    const profile_stage *stage = (const profile_stage *)(const void *)d->stage;
    const aprt_stage *s = d->stage;
    meter m = {.d = d, .stage = stage, .stream = aprt_cuda_stream(d)};
    for (uint32_t i = 0; i < s->nexchanges && !m.meeting; i++)
        if (s->exchange[i].kind == APRT_ALL_REDUCE && s->group[s->exchange[i].group].size == s->nranks)
            m.meeting = &s->exchange[i];
    double *seconds = calloc(stage->cases->n + 1u, sizeof *seconds);
    if (!seconds)
        return aprt_fail_call(d, APRT_ERR_ENV, "out of memory");
    const int status = measure_all(&m, seconds);
    if (m.pinned)
        cudaFreeHost(m.pinned);
    if (m.begin)
        cudaEventDestroy(m.begin);
    if (m.end)
        cudaEventDestroy(m.end);
    free(seconds);
    return status;
}

/* Weights of convolutions are put into order when a program is opened. */
static int prepare_conv(aprt_device *d, const profile_case *k)
{
    const aprt_conv *c = &k->conv;
    const int64_t turns[4] = {c->n, c->g, c->m, c->c}, n = c->g * c->w[0];
    uint16_t *w = malloc((size_t)(n * aprt_dtype_bytes(c->dtype)));
    if (!w)
        return aprt_fail_call(d, APRT_ERR_ENV, "out of memory");
    for (int64_t i = 0; i < n * aprt_dtype_bytes(c->dtype) / 2; i++)
        w[i] = (uint16_t)(0x3c00 | (i * 40503 & 0x83ff));
    const int status = aprt_cuda_conv_prepare(d, k->number, c, turns, w, n * aprt_dtype_bytes(c->dtype));
    free(w);
    return status;
}

int profile_prepare(aprt_device *d)
{
    const profile_cases *c = ((const profile_stage *)(const void *)d->stage)->cases;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->at[i].kind == PROFILE_CONV)
            TRY(prepare_conv(d, &c->at[i]));
    return APRT_OK;
}
