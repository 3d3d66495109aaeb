/* SPDX-License-Identifier: MIT
 *
 * Who meets whom by NCCL: one communicator for each list of a group of a stage, one for each channel whose ends both
 * have GPUs. The first rank of each makes its id when the program is opened; all get all of them. Every rank connects
 * in the order of this list, so nobody waits for somebody who waits for him. Failures: runtime/target.h. */
#include "cuda_device.h"

#include <stdlib.h>
#include <time.h>

enum { ID = NCCL_UNIQUE_ID_BYTES };

static bool has_gpus(const aprt_stage *s)
{
    return s->target == &aprt_target_cuda;
}

static bool between_gpus(const aprt_program *p, const aprt_channel *c)
{
    return has_gpus(&p->stage[c->src_stage]) && has_gpus(&p->stage[c->dst_stage]);
}

size_t cuda_meeting_bytes(const aprt_layout *layout)
{
    const aprt_program *p = layout->program;
    size_t n = 0;
    for (uint32_t s = 0; s < p->nstages; s++)
        for (uint32_t g = 0; has_gpus(&p->stage[s]) && g < p->stage[s].ngroups; g++)
            n += (size_t)p->stage[s].group[g].count;
    for (uint32_t c = 0; c < p->nchannels; c++)
        n += between_gpus(p, &p->channel[c]);
    return n * ID;
}

static int make_id(int32_t leader, int32_t first_rank, int32_t nranks, char *bytes, aprt_failure *why)
{
    ncclUniqueId id;
    if (leader < first_rank || leader >= first_rank + nranks)
        return APRT_OK;
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess)
        return aprt_fail(why, APRT_ERR_ENV, "ncclGetUniqueId: %s", ncclGetErrorString(result));
    memcpy(bytes, &id, ID);
    return APRT_OK;
}

int cuda_meeting_make(const aprt_layout *layout, int32_t first_rank, int32_t nranks, char *bytes, aprt_failure *why)
{
    const aprt_program *p = layout->program;
    for (uint32_t s = 0; s < p->nstages; s++)
        for (uint32_t g = 0; has_gpus(&p->stage[s]) && g < p->stage[s].ngroups; g++) {
            const aprt_group *group = &p->stage[s].group[g];
            for (int32_t l = 0; l < group->count; l++, bytes += ID)
                CUDA_TRY(make_id(group->rank[(int64_t)l * group->size], first_rank, nranks, bytes, why));
        }
    for (uint32_t c = 0; c < p->nchannels; c++)
        if (between_gpus(p, &p->channel[c])) {
            CUDA_TRY(make_id(p->stage[p->channel[c].src_stage].first_rank, first_rank, nranks, bytes, why));
            bytes += ID;
        }
    return APRT_OK;
}

/* A rank that joins the others, in a thread: the call comes back when all of them have joined, and one may have failed
 * before. Of the two that have hold of this the last one frees it. */
typedef struct joining {
    ncclUniqueId id;
    int size, me, gpu;
    ncclResult_t result;
    ncclComm_t comm;
    _Atomic int left; /* one of both has */
} joining;

static void leave(joining *j)
{
    if (atomic_exchange(&j->left, 1) == 0)
        return;
    if (j->comm)
        ncclCommAbort(j->comm);
    free(j);
}

static void *join(void *user)
{
    joining *j = user;
    cudaSetDevice(j->gpu);
    j->result = ncclCommInitRank(&j->comm, j->size, j->id, j->me);
    leave(j);
    return NULL;
}

/* Until it has joined, another rank has failed, or it takes too long. */
static int wait_for_join(aprt_device *d, joining *j, ncclComm_t *out)
{
    static const struct timespec nap = {0, 100000};
    aprt_instance *in = d->instance;
    const double since = aprt_profile_now();
    int status = APRT_OK;
    while (status == APRT_OK && atomic_load(&j->left) == 0) {
        if (in->comm->ops->aborted(in->comm))
            status = cuda_of(d)->status = APRT_ABANDONED;
        else if (aprt_profile_now() - since > in->watchdog)
            status = cuda_fail(d, APRT_ERR_ENV, "not all of %d ranks have met for %g seconds", j->size, in->watchdog);
        else
            nanosleep(&nap, NULL);
    }
    if (status == APRT_OK) {
        status = cuda_check_nccl(d, j->result, "ncclCommInitRank");
        *out = j->comm;
        j->comm = NULL;
    }
    leave(j);
    return status;
}

static int connect_one(aprt_device *d, const char *bytes, int size, int me, ncclComm_t *out)
{
    pthread_t thread;
    joining *j = calloc(1, sizeof *j);
    if (!j)
        return cuda_fail(d, APRT_ERR_ENV, "out of memory");
    memcpy(&j->id, bytes, ID);
    j->size = size;
    j->me = me;
    j->gpu = cuda_of(d)->gpu;
    if (pthread_create(&thread, NULL, join, j) != 0) {
        free(j);
        return cuda_fail(d, APRT_ERR_ENV, "no thread to connect with");
    }
    pthread_detach(thread);
    return wait_for_join(d, j, out);
}

static int connect_groups(aprt_device *d, const char *bytes)
{
    cuda_device *c = cuda_of(d);
    for (uint32_t g = 0; g < d->stage->ngroups; g++) {
        aprt_meeting m;
        aprt_layout_meeting(&d->instance->layout, d, g, &m);
        CUDA_TRY(connect_one(d, bytes + (size_t)m.list * ID, m.size, m.me, &c->group[g]));
        bytes += (size_t)d->stage->group[g].count * ID;
    }
    return APRT_OK;
}

/* NCCL connects two ranks when they first send; that is done here, where all go through channels in one order. */
static int first_words(aprt_device *d, uint32_t number, bool sends)
{
    const cuda_channel *c = &cuda_of(d)->channel[number];
    const aprt_layout *l = &d->instance->layout;
    const aprt_channel *ch = &l->program->channel[number];
    const aprt_stage *src = &l->program->stage[ch->src_stage], *dst = &l->program->stage[ch->dst_stage];
    uint32_t begin, end;
    if (sends)
        aprt_layout_outgoing(l, number, d->rank, &begin, &end);
    else
        aprt_layout_incoming(l, number, d->rank, &begin, &end);
    if (begin == end)
        return APRT_OK;
    CUDA_NCCL(d, ncclGroupStart);
    for (uint32_t i = begin; i < end; i++) {
        const aprt_route *r = &l->route[sends ? l->outgoing[i] : i];
        const ncclResult_t result =
            sends ? ncclSend(c->space, 1, ncclUint8, src->nranks + r->dst_rank - dst->first_rank, c->comm, c->stream)
                  : ncclRecv(c->space, 1, ncclUint8, r->src_rank - src->first_rank, c->comm, c->stream);
        CUDA_TRY(cuda_check_nccl(d, result, "the first word of a channel"));
    }
    CUDA_NCCL(d, ncclGroupEnd);
    CUDA_DO(d, cudaEventRecord, c->ready, c->stream);
    return cuda_wait(d, c->ready);
}

static int connect_channels(aprt_device *d, const char *bytes)
{
    cuda_device *c = cuda_of(d);
    const aprt_program *p = d->instance->program;
    for (uint32_t i = 0; i < p->nchannels; i++) {
        const aprt_channel *ch = &p->channel[i];
        const aprt_stage *src = &p->stage[ch->src_stage], *dst = &p->stage[ch->dst_stage];
        if (!between_gpus(p, ch))
            continue;
        if (c->channel[i].ours) {
            const bool sends = d->stage == src;
            CUDA_TRY(connect_one(d, bytes, src->nranks + dst->nranks, sends ? d->place : src->nranks + d->place,
                                 &c->channel[i].comm));
            CUDA_TRY(first_words(d, i, sends));
        }
        bytes += ID;
    }
    return APRT_OK;
}

int cuda_connect(aprt_device *d, const char *bytes)
{
    cuda_device *c = cuda_of(d);
    const aprt_program *p = d->instance->program;
    const char *of_channels = bytes;
    CUDA_DO(d, cudaSetDevice, c->gpu);
    c->group = calloc(d->stage->ngroups + 1u, sizeof *c->group);
    if (!c->group)
        return cuda_fail(d, APRT_ERR_ENV, "out of memory");
    for (uint32_t s = 0; s < p->nstages; s++) {
        const char *mine = of_channels;
        for (uint32_t g = 0; has_gpus(&p->stage[s]) && g < p->stage[s].ngroups; g++)
            of_channels += (size_t)p->stage[s].group[g].count * ID;
        if (&p->stage[s] == d->stage)
            CUDA_TRY(connect_groups(d, mine));
    }
    return connect_channels(d, of_channels);
}

/* ---- all of them ---- */

static uint32_t count(const aprt_device *d)
{
    return d->stage->ngroups + d->instance->program->nchannels;
}

static ncclComm_t *connection(const aprt_device *d, uint32_t i)
{
    cuda_device *c = cuda_of(d);
    if (i < d->stage->ngroups)
        return c->group ? &c->group[i] : NULL;
    return c->channel ? &c->channel[i - d->stage->ngroups].comm : NULL;
}

int cuda_connections_check(aprt_device *d)
{
    for (uint32_t i = 0; i < count(d); i++) {
        const ncclComm_t *c = connection(d, i);
        ncclResult_t state = ncclSuccess;
        if (!c || !*c)
            continue;
        CUDA_NCCL(d, ncclCommGetAsyncError, *c, &state);
        if (state != ncclSuccess && state != ncclInProgress)
            return cuda_check_nccl(d, state, "a connection between GPUs failed");
    }
    return APRT_OK;
}

static void end_all(aprt_device *d, ncclResult_t (*end)(ncclComm_t comm))
{
    for (uint32_t i = 0; i < count(d); i++) {
        ncclComm_t *c = connection(d, i);
        if (c && *c)
            end(*c);
        if (c)
            *c = NULL;
    }
}

void cuda_connections_abort(aprt_device *d)
{
    end_all(d, ncclCommAbort);
    cuda_of(d)->broken = true;
}

void cuda_connections_close(aprt_device *d)
{
    cuda_device *c = cuda_of(d);
    end_all(d, ncclCommDestroy);
    free(c->group);
    free(c->channel);
}
