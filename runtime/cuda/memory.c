/* SPDX-License-Identifier: MIT
 *
 * Memory of a device, and what goes between it and the host: through pinned memory in pieces, two of which are on their
 * way at a time. The arena has exactly the bytes that the program states; parameters, scratch, the workspace of
 * libraries and the copies of inputs and outputs are apart. */
#include "cuda_device.h"

#include <stdlib.h>

int cuda_allocate(aprt_device *d, int64_t bytes, const char *what, void *out)
{
    void *memory = NULL;
    size_t have = 0, all = 0;
    const cudaError_t error = cudaMalloc(&memory, bytes > 0 ? (size_t)bytes : 1);
    memcpy(out, &memory, sizeof memory);
    if (error == cudaSuccess)
        return APRT_OK;
    cudaGetLastError(); /* it is told here */
    if (cudaMemGetInfo(&have, &all) != cudaSuccess)
        return cuda_check(d, error, what);
    return cuda_fail(d, APRT_ERR_ENV, "GPU %d has no memory for %s of %lld bytes: %zu of %zu bytes are free",
                     cuda_of(d)->gpu, what, (long long)bytes, have, all);
}

int cuda_event(aprt_device *d, cudaEvent_t *out)
{
    return cuda_check(d, cudaEventCreateWithFlags(out, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

static int open_ports(aprt_device *d, uint32_t n, const int32_t *number, const aprt_port *port, void **copy)
{
    for (uint32_t i = 0; i < n; i++) {
        int64_t bytes;
        if (number[i] < 0 || copy[number[i]])
            continue;
        const aprt_port *p = &port[number[i]];
        if (!aprt_tensor_bytes(p->dtype, p->rank, p->dim, &bytes))
            return cuda_fail(d, APRT_ERR_BUG, "\"%.100s\" has an impossible shape", p->name);
        CUDA_TRY(cuda_allocate(d, bytes, p->name, &copy[number[i]]));
    }
    return APRT_OK;
}

int cuda_memory_open(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    const aprt_stage *s = d->stage;
    const aprt_program *p = d->instance->program;
    const int64_t bad = p->microbatches * (int64_t)sizeof *c->bad;
    c->input = calloc(p->ninputs + 1u, sizeof *c->input);
    c->output = calloc(p->noutputs + 1u, sizeof *c->output);
    if (!c->input || !c->output)
        return cuda_fail(d, APRT_ERR_ENV, "out of memory");
    CUDA_TRY(cuda_allocate(d, s->arena_bytes, "an arena", &d->arena));
    CUDA_TRY(cuda_allocate(d, s->param_bytes, "parameters", &d->param));
    CUDA_TRY(cuda_allocate(d, s->scratch_bytes, "scratch", &d->scratch));
    CUDA_TRY(cuda_allocate(d, s->workspace_bytes, "workspace", &c->workspace));
    CUDA_TRY(cuda_allocate(d, bad, "what kernels report", &c->bad));
    CUDA_TRY(cuda_allocate(d, CUDA_CHUNK, "outputs on their way", &c->packed));
    c->exchange_bytes = cuda_exchange_bytes(s);
    CUDA_TRY(cuda_allocate(d, c->exchange_bytes, "boxes of exchanges", &c->exchange_space));
    /* places that no rank fills travel all the same */
    CUDA_DO(d, cudaMemsetAsync, c->exchange_space, 0, (size_t)c->exchange_bytes, c->compute);
    CUDA_TRY(open_ports(d, s->ninputs, s->input, p->input, (void **)(uintptr_t)c->input));
    CUDA_TRY(open_ports(d, s->noutputs, s->output, p->output, c->output));
    CUDA_DO(d, cudaHostAlloc, (void **)&c->bad_seen, (size_t)bad, cudaHostAllocPortable);
    for (int i = 0; i < CUDA_NSTAGING; i++) {
        CUDA_DO(d, cudaHostAlloc, (void **)&c->staging[i].pinned, CUDA_CHUNK, cudaHostAllocPortable);
        CUDA_TRY(cuda_event(d, &c->staging[i].moved));
    }
    return APRT_OK;
}

void cuda_memory_close(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    const aprt_program *p = d->instance->program;
    void *const all[] = {d->arena, d->param, d->scratch, c->workspace, c->bad, c->packed, c->exchange_space};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            cudaFree(all[i]);
    for (uint32_t i = 0; c->input && i < p->ninputs; i++)
        if (c->input[i])
            cudaFree((void *)(uintptr_t)c->input[i]);
    for (uint32_t i = 0; c->output && i < p->noutputs; i++)
        if (c->output[i])
            cudaFree(c->output[i]);
    for (int i = 0; i < CUDA_NSTAGING; i++) {
        if (c->staging[i].pinned)
            cudaFreeHost(c->staging[i].pinned);
        if (c->staging[i].moved)
            cudaEventDestroy(c->staging[i].moved);
    }
    if (c->bad_seen)
        cudaFreeHost(c->bad_seen);
    free(c->input);
    free(c->output);
    d->arena = d->param = d->scratch = NULL;
}

/* ---- to the device ---- */

int cuda_upload(aprt_device *d, void *dst, const void *src, int64_t bytes)
{
    cuda_device *c = cuda_of(d);
    for (int64_t at = 0; at < bytes; at += CUDA_CHUNK) {
        const size_t n = (size_t)(bytes - at < CUDA_CHUNK ? bytes - at : CUDA_CHUNK);
        cuda_staging *s = &c->staging[c->turn++ % CUDA_NSTAGING];
        CUDA_TRY(cuda_wait(d, s->moved));
        memcpy(s->pinned, (const char *)src + at, n);
        CUDA_DO(d, cudaMemcpyAsync, (char *)dst + at, s->pinned, n, cudaMemcpyHostToDevice, c->compute);
        CUDA_DO(d, cudaEventRecord, s->moved, c->compute);
    }
    return APRT_OK;
}

int cuda_upload_inputs(aprt_device *d, const void *const *inputs)
{
    const aprt_program *p = d->instance->program;
    for (uint32_t i = 0; i < p->ninputs; i++) {
        int64_t bytes;
        void *copy = (void *)(uintptr_t)cuda_of(d)->input[i];
        if (copy && aprt_tensor_bytes(p->input[i].dtype, p->input[i].rank, p->input[i].dim, &bytes))
            CUDA_TRY(cuda_upload(d, copy, inputs[i], bytes));
    }
    return APRT_OK;
}

/* ---- from the device ---- */

/* Elements [first, last) of a box of an output, on their way to pinned memory. */
static int start_download(aprt_device *d, const aprt_box *box, int64_t first, int64_t last, int32_t size,
                          const char *src, cuda_staging *s)
{
    cuda_device *c = cuda_of(d);
    if (box->ndims == 1 && box->a[0] == 1) { /* as it lies */
        src += first * size;
    } else {
        CUDA_DO(d, cuda_box_copy, c->compute, cuda_blocks(d, last - first), box, first, last, size, src,
                c->packed - first * size);
        src = c->packed;
    }
    CUDA_DO(d, cudaMemcpyAsync, s->pinned, src, (size_t)((last - first) * size), cudaMemcpyDeviceToHost, c->compute);
    CUDA_DO(d, cudaEventRecord, s->moved, c->compute);
    return APRT_OK;
}

/* One box of an output, in pieces: one is on its way while the one before is put into place. */
static int download_box(aprt_device *d, const aprt_box *box, int32_t size, const char *src, char *dst)
{
    cuda_device *c = cuda_of(d);
    const int64_t each = CUDA_CHUNK / size, count = aprt_box_count(box);
    cuda_staging *before = NULL;
    aprt_box back = *box; /* from row-major order to the output */
    memcpy(back.a, box->b, sizeof back.a);
    memcpy(back.b, box->a, sizeof back.b);
    for (int64_t at = 0; at < count + each; at += each) {
        cuda_staging *s = NULL;
        if (at < count) {
            s = &c->staging[c->turn++ % CUDA_NSTAGING];
            CUDA_TRY(start_download(d, box, at, at + each < count ? at + each : count, size, src, s));
        }
        if (before) {
            CUDA_TRY(cuda_wait(d, before->moved));
            aprt_box_copy(&back, at - each, at < count ? at : count, size, before->pinned - (at - each) * size, dst);
        }
        before = s;
    }
    return APRT_OK;
}

int cuda_download_outputs(aprt_device *d, void *const *outputs)
{
    const aprt_program *p = d->instance->program;
    for (int64_t mb = 0; mb < p->microbatches; mb++)
        for (uint32_t i = 0; i < d->stage->nwritten; i++) {
            const aprt_written *w = &d->stage->written[i];
            const int32_t size = aprt_dtype_bytes(p->output[w->output].dtype);
            aprt_box box;
            int64_t offset;
            if (!aprt_written_box(&d->instance->layout, d->rank, mb, w, &box, &offset))
                continue;
            CUDA_TRY(download_box(d, &box, size, (const char *)cuda_of(d)->output[w->output] + offset * size,
                                  (char *)outputs[w->output] + offset * size));
        }
    return APRT_OK;
}
