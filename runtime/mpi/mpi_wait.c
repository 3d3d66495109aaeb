/* SPDX-License-Identifier: MIT
 *
 * Messages under way, and waiting for them. A process looks again and again whether they have arrived, first at once,
 * then giving way to others, then sleeping in between: there may be more processes than processors. */
#include "mpi_comm.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum { MESSAGE_MAX = 1 << 30, YIELDS = 200, TURNS_ASLEEP = 1000 };

static int batch_room(mpi_comm *c, aprt_device *d)
{
    mpi_batch *b = &c->batch;
    if (b->count < b->capacity)
        return APRT_OK;
    int more = b->capacity ? 2 * b->capacity : 64;
    MPI_Request *request = realloc(b->request, (size_t)more * sizeof *request);
    b->request = request ? request : b->request;
    int32_t *peer = realloc(b->peer, (size_t)more * sizeof *peer);
    b->peer = peer ? peer : b->peer;
    if (!request || !peer)
        return mpi_comm_fail(c, d, MPI_ERR_NO_MEM, "a list of messages");
    b->capacity = more;
    return APRT_OK;
}

/* In pieces of at most a gigabyte, because counts are int. */
static int add_messages(mpi_comm *c, aprt_device *d, MPI_Comm on, int32_t peer, int tag, const char *out, char *in,
                        size_t size)
{
    for (size_t at = 0; at < size; at += MESSAGE_MAX) {
        int some = (int)(size - at < MESSAGE_MAX ? size - at : MESSAGE_MAX);
        int status = batch_room(c, d);
        if (status != APRT_OK)
            return status;
        mpi_batch *b = &c->batch;
        b->peer[b->count] = peer;
        pthread_mutex_lock(&c->lock);
        int error = out ? MPI_Isend(out + at, some, MPI_BYTE, peer, tag, on, &b->request[b->count])
                        : MPI_Irecv(in + at, some, MPI_BYTE, peer, tag, on, &b->request[b->count]);
        pthread_mutex_unlock(&c->lock);
        if (error != MPI_SUCCESS)
            return mpi_comm_fail(c, d, error, out ? "sending" : "receiving");
        b->count++;
    }
    return APRT_OK;
}

int mpi_batch_send(mpi_comm *c, aprt_device *d, MPI_Comm on, int32_t to, int tag, const void *bytes, size_t size)
{
    return add_messages(c, d, on, to, tag, bytes, NULL, size);
}

int mpi_batch_recv(mpi_comm *c, aprt_device *d, MPI_Comm on, int32_t from, int tag, void *bytes, size_t size)
{
    return add_messages(c, d, on, from, tag, NULL, bytes, size);
}

void mpi_batch_free(mpi_batch *b)
{
    free(b->request);
    free(b->peer);
}

/* Between two looks. */
static void pause_between(const mpi_comm *c, int64_t turn)
{
    const struct timespec some = {0, turn < TURNS_ASLEEP ? 20000 : 200000};
    if (turn < c->setup.spins)
        return;
    if (turn < c->setup.spins + YIELDS)
        sched_yield();
    else
        nanosleep(&some, NULL);
}

static void fall_asleep(mpi_comm *c, const aprt_waiting *of)
{
    mpi_state *s = &c->state;
    atomic_store(&s->kind, of->kind);
    atomic_store(&s->what, of->what);
    atomic_store(&s->peer, of->peer);
    atomic_store(&s->at, of->at);
    atomic_store(&s->mb, of->mb);
    atomic_fetch_add(&s->turn, 1);
}

int mpi_requests_wait(mpi_comm *c, aprt_device *d, int n, MPI_Request *request, aprt_waiting of)
{
    int done = 0, error = MPI_SUCCESS;
    bool asleep = false;
    for (int64_t turn = 0; !done && error == MPI_SUCCESS; turn++) {
        pthread_mutex_lock(&c->lock);
        error = MPI_Testall(n, request, &done, MPI_STATUSES_IGNORE);
        pthread_mutex_unlock(&c->lock);
        if (done || error != MPI_SUCCESS)
            break;
        pause_between(c, turn);
        if (!asleep && turn >= (int64_t)c->setup.spins + YIELDS) {
            fall_asleep(c, &of);
            asleep = true;
        }
    }
    if (asleep)
        atomic_fetch_add(&c->state.turn, 1);
    return error == MPI_SUCCESS ? APRT_OK : mpi_comm_fail(c, d, error, "waiting for a message");
}

int mpi_batch_wait(mpi_comm *c, aprt_device *d, aprt_wait kind)
{
    mpi_batch *b = &c->batch;
    aprt_waiting of = {kind, 0, -1, d ? d->at : 0, d ? d->mb : 0};
    int status = APRT_OK;
    /* one after the other, so that whoever watches knows for whom this one waits; they arrive in any order */
    for (int i = 0; i < b->count && status == APRT_OK; i++) {
        of.peer = b->peer[i];
        status = mpi_requests_wait(c, d, 1, &b->request[i], of);
    }
    b->count = 0;
    return status;
}

/* ---- naps ---- */

void mpi_nap_init(mpi_nap *n)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->told, &a);
    pthread_condattr_destroy(&a);
    n->ends = false;
}

void mpi_nap_deinit(mpi_nap *n)
{
    pthread_mutex_destroy(&n->lock);
    pthread_cond_destroy(&n->told);
}

bool mpi_nap_sleep(mpi_nap *n, double seconds)
{
    struct timespec until;
    int error = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const double end = (double)until.tv_nsec * 1e-9 + seconds;
    until.tv_sec += (time_t)end;
    until.tv_nsec = (long)((end - floor(end)) * 1e9);
    pthread_mutex_lock(&n->lock);
    while (!n->ends && error == 0)
        error = pthread_cond_timedwait(&n->told, &n->lock, &until);
    const bool goes_on = !n->ends;
    pthread_mutex_unlock(&n->lock);
    return goes_on;
}

void mpi_nap_end(mpi_nap *n)
{
    pthread_mutex_lock(&n->lock);
    n->ends = true;
    pthread_cond_signal(&n->told);
    pthread_mutex_unlock(&n->lock);
}
