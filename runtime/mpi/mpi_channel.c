/* SPDX-License-Identifier: MIT
 *
 * Channels by messages. A route is one message for each microbatch, of a type that says where its pieces lie, from slot
 * to slot. Receives are posted as early as a slot is free, so that what arrives goes where it belongs; sends do not
 * wait. Between two ranks the messages of a channel arrive in the order in which they were sent. */
#include "mpi_comm.h"

#include <stdlib.h>

static const aprt_channel *channel_of(const mpi_comm *c, uint32_t channel)
{
    return &c->layout->program->channel[channel];
}

/* ---- types ---- */

/* One piece, from its first byte on. */
static int piece_type(const aprt_box *box, const int64_t *stride, int64_t size, MPI_Datatype *out)
{
    const int inner = box->ndims - 1;
    MPI_Datatype t, outer;
    int error = MPI_Type_contiguous((int)size, MPI_BYTE, &t);
    for (int d = inner; d >= 0 && error == MPI_SUCCESS; d--) {
        error = MPI_Type_create_hvector((int)box->extent[d], 1, (MPI_Aint)(stride[d] * size), t, &outer);
        MPI_Type_free(&t);
        t = outer;
    }
    *out = t;
    return error;
}

static int route_type(const mpi_comm *c, const aprt_route *r, bool sends, MPI_Datatype *out)
{
    const int64_t size = aprt_dtype_bytes(channel_of(c, r->channel)->dtype);
    const size_t n = (size_t)r->count;
    MPI_Datatype *type = malloc(n * sizeof *type);
    MPI_Aint *at = malloc(n * sizeof *at);
    int *one = malloc(n * sizeof *one), error = type && at && one ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    size_t made = 0;
    for (; made < n && error == MPI_SUCCESS; made++) {
        const aprt_move *m = &c->layout->move[r->first + (int64_t)made];
        one[made] = 1;
        at[made] = (MPI_Aint)((sends ? m->src : m->dst) * size);
        error = piece_type(&m->box, sends ? m->box.a : m->box.b, size, &type[made]);
    }
    if (error == MPI_SUCCESS)
        error = MPI_Type_create_struct((int)n, one, at, type, out);
    if (error == MPI_SUCCESS)
        error = MPI_Type_commit(out);
    while (made > 0)
        MPI_Type_free(&type[--made]);
    free(type);
    free(at);
    free(one);
    return error;
}

/* Extents are counts of MPI, which are int. */
static bool route_fits(const mpi_comm *c, const aprt_route *r)
{
    bool fits = r->count <= INT32_MAX;
    for (int64_t i = r->first; fits && i < r->first + r->count; i++)
        for (int32_t d = 0; d < c->layout->move[i].box.ndims; d++)
            fits = fits && c->layout->move[i].box.extent[d] <= INT32_MAX;
    return fits;
}

int mpi_attach(aprt_comm *base, aprt_device *d, aprt_failure *why)
{
    mpi_comm *c = (mpi_comm *)base;
    const aprt_layout *l = c->layout;
    c->route = calloc(l->nroutes + 1u, sizeof *c->route);
    if (!c->route)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory");
    for (uint32_t i = 0; i < l->nroutes; i++) {
        const aprt_route *r = &l->route[i];
        const bool sends = r->src_rank == c->rank;
        const aprt_channel *ch = channel_of(c, r->channel);
        const int32_t depth = sends ? ch->src_depth : ch->dst_depth;
        if (!sends && r->dst_rank != c->rank)
            continue;
        if (!route_fits(c, r))
            return aprt_fail(why, APRT_ERR_ENV, "channel \"%.60s\": pieces of more than 2^31 elements", ch->name);
        c->route[i].slot = malloc((size_t)depth * sizeof *c->route[i].slot);
        if (!c->route[i].slot)
            return aprt_fail(why, APRT_ERR_ENV, "out of memory");
        for (int32_t k = 0; k < depth; k++)
            c->route[i].slot[k] = MPI_REQUEST_NULL;
        pthread_mutex_lock(&c->lock);
        int error = route_type(c, r, sends, &c->route[i].type);
        pthread_mutex_unlock(&c->lock);
        if (error != MPI_SUCCESS)
            return aprt_fail(why, APRT_ERR_ENV, "channel \"%.60s\": MPI refuses the type of its messages", ch->name);
    }
    c->device = d;
    return APRT_OK;
}

void mpi_channels_close(mpi_comm *c)
{
    for (uint32_t i = 0; c->route && i < c->layout->nroutes; i++) {
        if (c->route[i].type)
            MPI_Type_free(&c->route[i].type);
        free(c->route[i].slot);
    }
    free(c->route);
}

/* ---- a run ---- */

static int post_recv(mpi_comm *c, uint32_t number, int64_t mb)
{
    const aprt_route *r = &c->layout->route[number];
    const aprt_channel *ch = channel_of(c, r->channel);
    const int64_t slot = mb % ch->dst_depth;
    pthread_mutex_lock(&c->lock);
    int error = MPI_Irecv(aprt_slot(c->device, ch->dst_at + slot * ch->dst_bytes), 1, c->route[number].type,
                          r->src_rank, (int)r->channel, c->channels, &c->route[number].slot[slot]);
    pthread_mutex_unlock(&c->lock);
    return error == MPI_SUCCESS ? APRT_OK : mpi_comm_fail(c, c->device, error, "posting a receive");
}

/* Ranks of one target have means of their own. */
static bool is_ours(const mpi_comm *c, const aprt_route *r)
{
    const aprt_target *at = aprt_layout_stage(c->layout, r->dst_rank)->target;
    return r->dst_rank == c->rank && (!at || aprt_layout_stage(c->layout, r->src_rank)->target != at);
}

/* All slots are free at first. */
void mpi_start(aprt_comm *base)
{
    mpi_comm *c = (mpi_comm *)base;
    atomic_store(&c->state.home, 0);
    if (!c->device)
        return;
    atomic_store(&c->moving, 1);
    for (uint32_t i = 0; i < c->layout->nroutes; i++) {
        const aprt_route *r = &c->layout->route[i];
        const int64_t n = c->layout->program->microbatches, depth = channel_of(c, r->channel)->dst_depth;
        for (int64_t mb = 0; is_ours(c, r) && mb < depth && mb < n; mb++)
            if (post_recv(c, i, mb) != APRT_OK)
                mpi_comm_end(c, APRT_ERR_ENV, c->setup.why(c->device)->text);
    }
}

int mpi_recv(aprt_comm *base, aprt_device *d, uint32_t channel, int64_t mb)
{
    mpi_comm *c = (mpi_comm *)base;
    uint32_t i, end;
    int status = APRT_OK;
    aprt_layout_incoming(c->layout, channel, d->rank, &i, &end);
    for (; i < end && status == APRT_OK; i++) {
        aprt_waiting of = {APRT_WAIT_RECV, (int32_t)channel, c->layout->route[i].src_rank, d->at, mb};
        status = mpi_requests_wait(c, d, 1, &c->route[i].slot[mb % channel_of(c, channel)->dst_depth], of);
    }
    return status;
}

int mpi_free(aprt_comm *base, aprt_device *d, uint32_t channel, int64_t mb)
{
    mpi_comm *c = (mpi_comm *)base;
    const int64_t next = mb + channel_of(c, channel)->dst_depth;
    uint32_t i, end;
    int status = APRT_OK;
    aprt_layout_incoming(c->layout, channel, d->rank, &i, &end);
    for (; i < end && status == APRT_OK && next < c->layout->program->microbatches; i++)
        status = post_recv(c, i, next);
    return status;
}

int mpi_send(aprt_comm *base, aprt_device *d, uint32_t channel, int64_t mb)
{
    mpi_comm *c = (mpi_comm *)base;
    const aprt_channel *ch = channel_of(c, channel);
    const int64_t slot = mb % ch->src_depth;
    uint32_t i, end;
    aprt_layout_outgoing(c->layout, channel, d->rank, &i, &end);
    for (; i < end; i++) {
        const uint32_t number = c->layout->outgoing[i];
        pthread_mutex_lock(&c->lock);
        int error =
            MPI_Isend(aprt_slot(d, ch->src_at + slot * ch->src_bytes), 1, c->route[number].type,
                      c->layout->route[number].dst_rank, (int)channel, c->channels, &c->route[number].slot[slot]);
        pthread_mutex_unlock(&c->lock);
        if (error != MPI_SUCCESS)
            return mpi_comm_fail(c, d, error, "sending to a stage");
    }
    return APRT_OK;
}

int mpi_claim(aprt_comm *base, aprt_device *d, uint32_t channel, int64_t mb)
{
    mpi_comm *c = (mpi_comm *)base;
    const aprt_channel *ch = channel_of(c, channel);
    uint32_t i, end;
    int status = APRT_OK;
    aprt_layout_outgoing(c->layout, channel, d->rank, &i, &end);
    for (; i < end && status == APRT_OK; i++) {
        const uint32_t number = c->layout->outgoing[i];
        aprt_waiting of = {APRT_WAIT_CLAIM, (int32_t)channel, c->layout->route[number].dst_rank, d->at,
                           mb - ch->src_depth};
        status = mpi_requests_wait(c, d, 1, &c->route[number].slot[mb % ch->src_depth], of);
    }
    return status;
}

int mpi_finish(mpi_comm *c)
{
    int status = APRT_OK;
    for (uint32_t i = 0; i < c->layout->nroutes && status == APRT_OK; i++) {
        const aprt_route *r = &c->layout->route[i];
        aprt_waiting of = {APRT_WAIT_CLAIM, (int32_t)r->channel, r->dst_rank, c->device->at,
                           c->layout->program->microbatches - 1};
        if (r->src_rank == c->rank)
            status = mpi_requests_wait(c, c->device, channel_of(c, r->channel)->src_depth, c->route[i].slot, of);
    }
    return status;
}
