/* SPDX-License-Identifier: MIT
 *
 * Channels at an end with a GPU. Between GPUs: NCCL, one communicator and one stream for each channel, so that a rank
 * that has to wait for one channel holds up no other. What a rank sends to another one in a microbatch is packed into
 * one piece. The order of a slot is kept by events:
 *
 *     source        compute: ready at `send`       channel: waits for ready, packs, sends, slot     claim waits for
 * slot destination   compute: freed at `free`       channel: waits for freed, receives, slot         recv waits for
 * slot
 *
 * To and from processors: slots are mirrored in pinned memory of the host, where the communicator moves them. */
#include "cuda_device.h"

#include <stdlib.h>

static const aprt_channel *channel_of(const aprt_device *d, uint32_t channel)
{
    return &d->instance->program->channel[channel];
}

static bool is_source(const aprt_device *d, const aprt_channel *ch)
{
    return &d->instance->program->stage[ch->src_stage] == d->stage;
}

static bool is_destination(const aprt_device *d, const aprt_channel *ch)
{
    return &d->instance->program->stage[ch->dst_stage] == d->stage;
}

static bool is_mirrored(const aprt_device *d, const aprt_channel *ch)
{
    const aprt_program *p = d->instance->program;
    return p->stage[ch->src_stage].target != p->stage[ch->dst_stage].target;
}

/* ---- open, close ---- */

/* The part of the arena that mirrored slots take. */
static int open_mirror(aprt_device *d)
{
    const aprt_program *p = d->instance->program;
    int64_t from = INT64_MAX, to = 0;
    for (uint32_t i = 0; i < p->nchannels; i++) {
        const aprt_channel *ch = &p->channel[i];
        if (!cuda_of(d)->channel[i].ours || !is_mirrored(d, ch))
            continue;
        const int64_t at = is_source(d, ch) ? ch->src_at : ch->dst_at;
        const int64_t end = at + (is_source(d, ch) ? ch->src_bytes * ch->src_depth : ch->dst_bytes * ch->dst_depth);
        from = at < from ? at : from;
        to = end > to ? end : to;
    }
    if (from >= to)
        return APRT_OK;
    d->host_from = from;
    CUDA_DO(d, cudaHostAlloc, (void **)&d->host, (size_t)(to - from), cudaHostAllocPortable);
    memset(d->host, 0, (size_t)(to - from));
    return APRT_OK;
}

static int open_channel(aprt_device *d, uint32_t number)
{
    const aprt_channel *ch = channel_of(d, number);
    cuda_channel *c = &cuda_of(d)->channel[number];
    const aprt_layout *l = &d->instance->layout;
    const int32_t depth = is_source(d, ch) ? ch->src_depth : ch->dst_depth;
    uint32_t begin, end;
    c->fetched = -1;
    if (is_mirrored(d, ch))
        return cuda_event(d, &c->ready);
    if (is_source(d, ch))
        aprt_layout_outgoing(l, number, d->rank, &begin, &end);
    else
        aprt_layout_incoming(l, number, d->rank, &begin, &end);
    for (uint32_t i = begin; i < end; i++)
        c->bytes += l->route[is_source(d, ch) ? l->outgoing[i] : i].bytes;
    CUDA_TRY(cuda_allocate(d, c->bytes, "what a channel moves", &c->space));
    CUDA_DO(d, cudaStreamCreateWithFlags, &c->stream, cudaStreamNonBlocking);
    CUDA_TRY(cuda_event(d, &c->ready));
    c->slot = calloc((size_t)depth, sizeof *c->slot);
    c->freed = calloc((size_t)depth, sizeof *c->freed);
    if (!c->slot || !c->freed)
        return cuda_fail(d, APRT_ERR_ENV, "out of memory");
    for (int32_t i = 0; i < depth; i++) {
        CUDA_TRY(cuda_event(d, &c->slot[i]));
        CUDA_TRY(cuda_event(d, &c->freed[i]));
    }
    return APRT_OK;
}

int cuda_channels_open(aprt_device *d)
{
    const aprt_program *p = d->instance->program;
    cuda_device *c = cuda_of(d);
    c->channel = calloc(p->nchannels + 1u, sizeof *c->channel);
    if (!c->channel)
        return cuda_fail(d, APRT_ERR_ENV, "out of memory");
    for (uint32_t i = 0; i < p->nchannels; i++) {
        c->channel[i].ours = is_source(d, &p->channel[i]) || is_destination(d, &p->channel[i]);
        if (c->channel[i].ours)
            CUDA_TRY(open_channel(d, i));
    }
    return open_mirror(d);
}

void cuda_channels_close(aprt_device *d)
{
    const aprt_program *p = d->instance->program;
    for (uint32_t i = 0; cuda_of(d)->channel && i < p->nchannels; i++) {
        cuda_channel *c = &cuda_of(d)->channel[i];
        const aprt_channel *ch = &p->channel[i];
        const int32_t depth = is_source(d, ch) ? ch->src_depth : ch->dst_depth;
        if (c->stream)
            cudaStreamSynchronize(c->stream);
        for (int32_t k = 0; c->slot && c->freed && k < depth; k++) {
            if (c->slot[k])
                cudaEventDestroy(c->slot[k]);
            if (c->freed[k])
                cudaEventDestroy(c->freed[k]);
        }
        free(c->slot);
        free(c->freed);
        if (c->ready)
            cudaEventDestroy(c->ready);
        if (c->space)
            cudaFree(c->space);
        if (c->stream)
            cudaStreamDestroy(c->stream);
    }
    if (d->host)
        cudaFreeHost(d->host);
    d->host = NULL;
}

/* ---- between GPUs ---- */

/* The moves of a route between the slot and its piece, which begins at byte `at` of the channel's space. */
static int pack_route(aprt_device *d, const aprt_route *r, cuda_channel *c, int64_t at, char *slot, bool unpack)
{
    const int32_t size = aprt_dtype_bytes(channel_of(d, r->channel)->dtype);
    for (int64_t i = r->first; i < r->first + r->count; i++) {
        const aprt_move *m = &d->instance->layout.move[i];
        const int64_t n = aprt_box_count(&m->box);
        int64_t order = 1;
        aprt_box box = m->box;
        for (int32_t k = box.ndims; k-- > 0; order *= box.extent[k])
            (unpack ? box.a : box.b)[k] = order;
        if (n == 0)
            continue;
        char *piece = c->space + at, *there = slot + (unpack ? m->dst : m->src) * size;
        CUDA_DO(d, cuda_box_copy, c->stream, cuda_blocks(d, n), &box, 0, n, size, unpack ? piece : there,
                unpack ? there : piece);
        at += n * size;
    }
    return APRT_OK;
}

static int send_pieces(aprt_device *d, uint32_t channel, int64_t mb)
{
    const aprt_channel *ch = channel_of(d, channel);
    const aprt_layout *l = &d->instance->layout;
    const aprt_stage *src = &l->program->stage[ch->src_stage], *dst = &l->program->stage[ch->dst_stage];
    cuda_channel *c = &cuda_of(d)->channel[channel];
    char *slot = d->arena + ch->src_at + mb % ch->src_depth * ch->src_bytes;
    uint32_t begin, end;
    int64_t at = 0;
    aprt_layout_outgoing(l, channel, d->rank, &begin, &end);
    CUDA_DO(d, cudaEventRecord, c->ready, cuda_of(d)->compute);
    CUDA_DO(d, cudaStreamWaitEvent, c->stream, c->ready, 0);
    for (uint32_t i = begin; i < end; at += l->route[l->outgoing[i++]].bytes)
        CUDA_TRY(pack_route(d, &l->route[l->outgoing[i]], c, at, slot, false));
    at = 0;
    CUDA_NCCL(d, ncclGroupStart);
    for (uint32_t i = begin; i < end; at += l->route[l->outgoing[i++]].bytes) {
        const aprt_route *r = &l->route[l->outgoing[i]];
        CUDA_NCCL(d, ncclSend, c->space + at, (size_t)r->bytes, ncclUint8, src->nranks + r->dst_rank - dst->first_rank,
                  c->comm, c->stream);
    }
    CUDA_NCCL(d, ncclGroupEnd);
    CUDA_DO(d, cudaEventRecord, c->slot[mb % ch->src_depth], c->stream);
    return APRT_OK;
}

static int recv_pieces(aprt_device *d, uint32_t channel, int64_t mb)
{
    const aprt_channel *ch = channel_of(d, channel);
    const aprt_layout *l = &d->instance->layout;
    const aprt_stage *src = &l->program->stage[ch->src_stage];
    cuda_channel *c = &cuda_of(d)->channel[channel];
    char *slot = d->arena + ch->dst_at + mb % ch->dst_depth * ch->dst_bytes;
    uint32_t begin, end;
    int64_t at = 0;
    aprt_layout_incoming(l, channel, d->rank, &begin, &end);
    if (mb >= ch->dst_depth)
        CUDA_DO(d, cudaStreamWaitEvent, c->stream, c->freed[mb % ch->dst_depth], 0);
    CUDA_NCCL(d, ncclGroupStart);
    for (uint32_t i = begin; i < end; at += l->route[i++].bytes)
        CUDA_NCCL(d, ncclRecv, c->space + at, (size_t)l->route[i].bytes, ncclUint8,
                  l->route[i].src_rank - src->first_rank, c->comm, c->stream);
    CUDA_NCCL(d, ncclGroupEnd);
    at = 0;
    for (uint32_t i = begin; i < end; at += l->route[i++].bytes)
        CUDA_TRY(pack_route(d, &l->route[i], c, at, slot, true));
    CUDA_DO(d, cudaEventRecord, c->slot[mb % ch->dst_depth], c->stream);
    CUDA_DO(d, cudaStreamWaitEvent, cuda_of(d)->compute, c->slot[mb % ch->dst_depth], 0);
    return APRT_OK;
}

/* ---- to and from processors ---- */

/* The slot of microbatch mb as the host has it. Channels with one slot copy it once. */
static int fetch_slot(aprt_device *d, uint32_t channel, int64_t mb)
{
    const aprt_channel *ch = channel_of(d, channel);
    cuda_device *c = cuda_of(d);
    const int64_t at = ch->src_at + mb % ch->src_depth * ch->src_bytes;
    for (uint32_t i = 0; i < d->instance->program->nchannels; i++)
        if (c->channel[i].ours && is_source(d, channel_of(d, i)) && channel_of(d, i)->src_at == ch->src_at &&
            c->channel[i].fetched == mb)
            return APRT_OK;
    CUDA_DO(d, cudaMemcpyAsync, aprt_slot(d, at), d->arena + at, (size_t)ch->src_bytes, cudaMemcpyDeviceToHost,
            c->compute);
    CUDA_DO(d, cudaEventRecord, c->channel[channel].ready, c->compute);
    CUDA_TRY(cuda_wait(d, c->channel[channel].ready));
    c->channel[channel].fetched = mb;
    return APRT_OK;
}

static int fill_slot(aprt_device *d, uint32_t channel, int64_t mb)
{
    const aprt_channel *ch = channel_of(d, channel);
    cuda_device *c = cuda_of(d);
    const int64_t at = ch->dst_at + mb % ch->dst_depth * ch->dst_bytes;
    CUDA_DO(d, cudaMemcpyAsync, d->arena + at, aprt_slot(d, at), (size_t)ch->dst_bytes, cudaMemcpyHostToDevice,
            c->compute);
    CUDA_DO(d, cudaEventRecord, c->channel[channel].ready, c->compute);
    return APRT_OK;
}

/* ---- steps of a list ---- */

int cuda_recv(aprt_device *d, uint32_t channel, int64_t mb)
{
    aprt_comm *comm = d->instance->comm;
    if (is_mirrored(d, channel_of(d, channel))) {
        const int status = comm->ops->recv(comm, d, channel, mb);
        if (status != APRT_OK)
            return status;
        fill_slot(d, channel, mb);
    } else {
        recv_pieces(d, channel, mb);
    }
    return cuda_status(d);
}

int cuda_claim(aprt_device *d, uint32_t channel, int64_t mb)
{
    const aprt_channel *ch = channel_of(d, channel);
    aprt_comm *comm = d->instance->comm;
    cuda_device *c = cuda_of(d);
    if (is_mirrored(d, ch))
        return comm->ops->claim(comm, d, channel, mb);
    if (mb >= ch->src_depth)
        cuda_check(d, cudaStreamWaitEvent(c->compute, c->channel[channel].slot[mb % ch->src_depth], 0),
                   "cudaStreamWaitEvent");
    return cuda_status(d);
}

int cuda_free(aprt_device *d, uint32_t channel, int64_t mb)
{
    aprt_comm *comm = d->instance->comm;
    cuda_device *c = cuda_of(d);
    cuda_channel *at = &c->channel[channel];
    if (is_mirrored(d, channel_of(d, channel))) {
        cuda_wait(d, at->ready); /* the host's copy has been read */
        const int status = cuda_status(d);
        return status == APRT_OK ? comm->ops->free(comm, d, channel, mb) : status;
    }
    cuda_check(d, cudaEventRecord(at->freed[mb % channel_of(d, channel)->dst_depth], c->compute), "cudaEventRecord");
    return cuda_status(d);
}

int cuda_send(aprt_device *d, uint32_t channel, int64_t mb)
{
    aprt_comm *comm = d->instance->comm;
    if (!is_mirrored(d, channel_of(d, channel))) {
        send_pieces(d, channel, mb);
        return cuda_status(d);
    }
    fetch_slot(d, channel, mb);
    const int status = cuda_status(d);
    return status == APRT_OK ? comm->ops->send(comm, d, channel, mb) : status;
}
