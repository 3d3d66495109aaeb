/* SPDX-License-Identifier: MIT
 *
 * Time on the GPU: an event when an instruction begins, and when an exchange does and ends on its own stream, while a
 * profile or a trace is wanted. They become seconds of the host's clock when a run is over, counted from an event at
 * its beginning. NVTX has a range for each instruction that is put on the stream by calls (a graph is one range). */
#include "cuda_device.h"

#include <stdlib.h>

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HAS_NVTX 1
#endif
#endif

static void end_range(cuda_device *c)
{
#ifdef HAS_NVTX
    if (c->in_range)
        nvtxRangePop();
#endif
    c->in_range = false;
}

static void begin_range(aprt_device *d, uint32_t instruction)
{
#ifdef HAS_NVTX
    const aprt_instr *i = &d->stage->instr[instruction];
    nvtxRangePushA(*i->node ? i->node : i->what);
    cuda_of(d)->in_range = true;
#else
    (void)d;
    (void)instruction;
#endif
}

static int add_mark(aprt_device *d, cuda_mark_kind kind, uint32_t at)
{
    cuda_device *c = cuda_of(d);
    if (c->nmarks == c->capacity) {
        const size_t more = c->capacity ? 2 * c->capacity : 256;
        cuda_mark *all = realloc(c->mark, more * sizeof *all);
        if (!all)
            return cuda_fail(d, APRT_ERR_ENV, "out of memory for a trace");
        memset(all + c->capacity, 0, (more - c->capacity) * sizeof *all);
        c->mark = all;
        c->capacity = more;
    }
    cuda_mark *m = &c->mark[c->nmarks];
    if (!m->event)
        CUDA_DO(d, cudaEventCreateWithFlags, &m->event, cudaEventDefault);
    CUDA_DO(d, cudaEventRecord, m->event, kind == CUDA_COMPUTES ? c->compute : c->moving);
    m->kind = kind;
    m->at = at;
    m->mb = d->mb;
    c->nmarks++;
    return APRT_OK;
}

void cuda_measure_mark(aprt_device *d, cuda_mark_kind kind)
{
    if (d->profile)
        add_mark(d, kind, d->at);
}

void cuda_measure_idle(aprt_device *d)
{
    const cuda_device *c = cuda_of(d);
    cuda_mark *last = c->nmarks ? &c->mark[c->nmarks - 1] : NULL;
    if (d->profile && last && last->kind == CUDA_COMPUTES)
        last->at = d->stage->ninstrs;
}

void aprt_cuda_at(aprt_device *d, uint32_t instruction)
{
    d->at = instruction;
    end_range(cuda_of(d));
    begin_range(d, instruction);
    cuda_measure_mark(d, CUDA_COMPUTES);
}

void cuda_measure_pause(aprt_device *d)
{
    end_range(cuda_of(d));
    if (d->profile)
        add_mark(d, CUDA_COMPUTES, d->stage->ninstrs);
}

int cuda_measure_begin(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    c->nmarks = 0;
    if (!d->profile)
        return APRT_OK;
    if (!c->origin)
        CUDA_DO(d, cudaEventCreateWithFlags, &c->origin, cudaEventDefault);
    CUDA_DO(d, cudaEventRecord, c->origin, c->compute);
    CUDA_TRY(cuda_wait(d, c->origin));
    c->origin_seconds = aprt_profile_now();
    return APRT_OK;
}

static int seconds_at(aprt_device *d, const cuda_mark *m, double *out)
{
    float ms = 0;
    CUDA_DO(d, cudaEventElapsedTime, &ms, cuda_of(d)->origin, m->event);
    *out = cuda_of(d)->origin_seconds + 1e-3 * (double)ms;
    return APRT_OK;
}

int cuda_measure_end(aprt_device *d)
{
    const cuda_device *c = cuda_of(d);
    const cuda_mark *begins = NULL, *computes = NULL;
    for (size_t i = 0; d->profile && i < c->nmarks; i++) {
        const cuda_mark *m = &c->mark[i], *before = m->kind == CUDA_COMPUTES ? computes : begins;
        double from, to;
        if (m->kind != CUDA_EXCHANGE_BEGINS && before && before->at < d->stage->ninstrs) {
            CUDA_TRY(seconds_at(d, before, &from));
            CUDA_TRY(seconds_at(d, m, &to));
            aprt_profile_instruction(d, before->at, before->mb, m->kind == CUDA_EXCHANGE_ENDS, from, to);
        }
        if (m->kind == CUDA_COMPUTES)
            computes = m;
        else
            begins = m;
    }
    return APRT_OK;
}

void cuda_measure_close(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    for (size_t i = 0; i < c->capacity; i++)
        if (c->mark[i].event)
            cudaEventDestroy(c->mark[i].event);
    free(c->mark);
    if (c->origin)
        cudaEventDestroy(c->origin);
}
