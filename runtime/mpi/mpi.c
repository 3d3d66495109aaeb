/* SPDX-License-Identifier: MIT
 *
 * The plugin: joining the job, leaving it, ending it. MPI lives from the first instance that is opened to the end of
 * the process; whoever has started it before keeps it. */
#include "mpi_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* ---- ends ---- */

static void *end_soon(void *user)
{
    const int *status = user;
    nanosleep(&(struct timespec){1, 0}, NULL);
    _exit(*status);
}

_Noreturn void mpi_comm_end(mpi_comm *c, int status, const char *text)
{
    pthread_t thread;
    if (atomic_fetch_add(&c->ended, 1) > 0)
        for (;;)
            pause(); /* the other thread ends both */
    c->end_status = status;
    fflush(stdout);
    if (c->rank != 0) /* what is wrong for all, rank 0 tells; its end ends this one */
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    const bool named = strncmp(text, "rank ", 5) == 0;
    char rank[24] = "", all[1100];
    snprintf(rank, sizeof rank, "rank %d: ", c->rank);
    snprintf(all, sizeof all, "host %s: %s%s", c->host, named ? "" : rank, text);
    if (!aprt_comm_report(status, all)) {
        fprintf(stderr, "%s: %s\n", c->layout->program->name, all);
        fflush(stderr);
    }
    /* MPI_Abort waits for an answer, which does not come when a link is cut. */
    if (pthread_create(&thread, NULL, end_soon, &c->end_status) != 0)
        _exit(status);
    MPI_Abort(MPI_COMM_WORLD, status);
    _exit(status);
}

int mpi_comm_fail(mpi_comm *c, aprt_device *d, int error, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "", where[300] = "";
    int length = 0;
    MPI_Error_string(error, text, &length);
    if (d)
        c->setup.where(d, where, sizeof where);
    else
        snprintf(where, sizeof where, "rank %d", c->rank);
    return aprt_fail(d ? c->setup.why(d) : &c->why, APRT_ERR_ENV, "%s: %s: %.120s", where, what, text);
}

int mpi_buffer_grow(mpi_comm *c, aprt_device *d, mpi_buffer *b, size_t size)
{
    if (size <= b->size)
        return APRT_OK;
    free(b->bytes);
    b->size = 0;
    b->bytes = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!b->bytes)
        return mpi_comm_fail(c, d, MPI_ERR_NO_MEM, "room for messages");
    b->size = size;
    return APRT_OK;
}

/* Until `done` is set, for the bound at most: calls that wait for all processes before anyone watches, or after. */
typedef struct guard {
    mpi_nap nap;
    double seconds;
    pthread_t thread;
    const char *what;
} guard;

static void *guard_main(void *user)
{
    guard *g = user;
    if (!mpi_nap_sleep(&g->nap, g->seconds))
        return NULL;
    char text[160];
    snprintf(text, sizeof text, "not all processes of the job have answered for %g seconds", g->seconds);
    if (!aprt_comm_report(APRT_ERR_ENV, text))
        fprintf(stderr, "%s: %s\n", g->what, text);
    _exit(APRT_ERR_ENV);
}

static bool guard_start(guard *g, double seconds, const char *what)
{
    mpi_nap_init(&g->nap);
    g->seconds = seconds;
    g->what = what;
    return pthread_create(&g->thread, NULL, guard_main, g) == 0;
}

static void guard_stop(guard *g)
{
    mpi_nap_end(&g->nap);
    pthread_join(g->thread, NULL);
    mpi_nap_deinit(&g->nap);
}

/* Instances that are open: one number for the process, as MPI is one for the process. */
static _Atomic int open_instances;

/* At the end of the process, where MPI waits for all others. Who ends in the middle of something is not waited for. */
static void finalize(void)
{
    guard g;
    int done = 0;
    if (atomic_load(&open_instances) > 0) {
        static const char text[] = "a process of the job ends while a program is open";
        if (!aprt_comm_report(APRT_ERR_ENV, text))
            fprintf(stderr, "%s\n", text);
        MPI_Abort(MPI_COMM_WORLD, APRT_ERR_ENV);
    }
    if (MPI_Finalized(&done) != MPI_SUCCESS || done || !guard_start(&g, 60, "leaving MPI"))
        return;
    MPI_Finalize();
    guard_stop(&g);
}

/* ---- open ---- */

static int join(mpi_comm *c, aprt_failure *why)
{
    int running = 0, has = 0, size = 0, rank = 0;
    MPI_Initialized(&running);
    if (!running) {
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &has) != MPI_SUCCESS)
            return aprt_fail(why, APRT_ERR_ENV, "MPI cannot be started");
        atexit(finalize);
    }
    MPI_Query_thread(&has);
    if (has < MPI_THREAD_SERIALIZED)
        return aprt_fail(why, APRT_ERR_ENV, "MPI was started without MPI_THREAD_SERIALIZED");
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    c->rank = rank;
    c->base.first_rank = rank;
    c->base.nranks = 1;
    if (size != c->layout->program->nranks)
        return aprt_fail(why, APRT_ERR_USAGE,
                         "the program has %d ranks, but the job has %d process%s: start %d (mpirun -n %d, srun -n %d)",
                         c->layout->program->nranks, size, size == 1 ? "" : "es", c->layout->program->nranks,
                         c->layout->program->nranks, c->layout->program->nranks);
    return APRT_OK;
}

static int duplicate(MPI_Comm *out, aprt_failure *why)
{
    if (MPI_Comm_dup(MPI_COMM_WORLD, out) != MPI_SUCCESS)
        return aprt_fail(why, APRT_ERR_ENV, "MPI cannot make another communicator");
    MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN);
    return APRT_OK;
}

static int meet_others(mpi_comm *c, aprt_failure *why)
{
    int length = 0;
    char name[MPI_MAX_PROCESSOR_NAME] = "?";
    int status = duplicate(&c->exchanges, why);
    if (status == APRT_OK)
        status = duplicate(&c->channels, why);
    if (status == APRT_OK)
        status = duplicate(&c->control, why);
    c->hosts = calloc((size_t)c->layout->program->nranks, sizeof *c->hosts);
    if (status != APRT_OK || !c->hosts)
        return status != APRT_OK ? status : aprt_fail(why, APRT_ERR_ENV, "out of memory");
    MPI_Get_processor_name(name, &length);
    snprintf(c->host, sizeof c->host, "%.60s", name);
    MPI_Allgather(c->host, MPI_COMM_HOST, MPI_CHAR, c->hosts, MPI_COMM_HOST, MPI_CHAR, c->control);
    return APRT_OK;
}

static void mpi_comm_free(mpi_comm *c)
{
    mpi_batch_free(&c->batch);
    free(c->out.bytes);
    free(c->in.bytes);
    free(c->compact.bytes);
    free(c->hosts);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static int mpi_open(const aprt_comm_setup *setup, aprt_comm **out, aprt_failure *why)
{
    mpi_comm *c = calloc(1, sizeof *c);
    guard g;
    if (!c)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory");
    c->base.ops = aprt_comm_plugin();
    c->setup = *setup;
    c->layout = setup->layout;
    c->exchanges = c->channels = c->control = MPI_COMM_NULL;
    pthread_mutex_init(&c->lock, NULL);
    atomic_store(&c->state.home, 1);
    if (!guard_start(&g, setup->watchdog, c->layout->program->name)) {
        mpi_comm_free(c);
        return aprt_fail(why, APRT_ERR_ENV, "cannot start a thread");
    }
    int status = join(c, why);
    /* the same in all processes */
    if (status != APRT_OK) {
        guard_stop(&g);
        mpi_comm_free(c);
        return status;
    }
    status = meet_others(c, why);
    guard_stop(&g);
    if (status == APRT_OK)
        status = mpi_watch_start(c, why);
    if (status != APRT_OK)
        mpi_comm_end(c, status, why->text);
    atomic_fetch_add(&open_instances, 1);
    *out = &c->base;
    return APRT_OK;
}

/* ---- what is done by all together ---- */

static int barrier(mpi_comm *c)
{
    MPI_Request request;
    pthread_mutex_lock(&c->lock);
    int error = MPI_Ibarrier(c->control, &request);
    pthread_mutex_unlock(&c->lock);
    if (error != MPI_SUCCESS)
        return mpi_comm_fail(c, c->device, error, "a barrier");
    return mpi_requests_wait(c, c->device, 1, &request, (aprt_waiting){APRT_WAIT_COLLECT, 0, -1, 0, 0});
}

static int mpi_barrier(aprt_comm *base, aprt_failure *why)
{
    mpi_comm *c = (mpi_comm *)base;
    int status = barrier(c);
    if (status != APRT_OK)
        *why = c->device ? *c->setup.why(c->device) : c->why;
    return status;
}

static int mpi_merge(aprt_comm *base, char *bytes, size_t size, aprt_failure *why)
{
    mpi_comm *c = (mpi_comm *)base;
    MPI_Request request;
    if (size > INT32_MAX)
        return aprt_fail(why, APRT_ERR_ENV, "too many devices meet each other");
    pthread_mutex_lock(&c->lock);
    int error = MPI_Iallreduce(MPI_IN_PLACE, bytes, (int)size, MPI_BYTE, MPI_BOR, c->control, &request);
    pthread_mutex_unlock(&c->lock);
    int status = error == MPI_SUCCESS
                     ? mpi_requests_wait(c, c->device, 1, &request, (aprt_waiting){APRT_WAIT_COLLECT, 0, -1, 0, 0})
                     : mpi_comm_fail(c, c->device, error, "what devices agree on");
    if (status != APRT_OK)
        *why = c->device ? *c->setup.why(c->device) : c->why;
    return status;
}

/* Returns when all devices are done, as in `local`; so nobody counts as idle while others still wait. */
static int mpi_run_end(aprt_comm *base, void *const outputs[], aprt_failure *why)
{
    mpi_comm *c = (mpi_comm *)base;
    int status = mpi_collect(base, outputs, why);
    if (status == APRT_OK)
        status = mpi_barrier(base, why);
    atomic_store(&c->state.home, 1);
    return status;
}

static void mpi_close(aprt_comm *base)
{
    mpi_comm *c = (mpi_comm *)base;
    MPI_Comm *all[] = {&c->exchanges, &c->channels, &c->control};
    aprt_failure why;
    guard g;
    if (mpi_barrier(base, &why) != APRT_OK)
        mpi_comm_end(c, APRT_ERR_ENV, why.text);
    const bool guarded = guard_start(&g, c->setup.watchdog, c->layout->program->name);
    mpi_watch_stop(c);
    mpi_channels_close(c);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        MPI_Comm_free(all[i]);
    if (guarded)
        guard_stop(&g);
    atomic_fetch_sub(&open_instances, 1);
    mpi_comm_free(c);
}

/* A device is at home when the run has ended for all. */
static void mpi_home(aprt_comm *base, aprt_device *d)
{
    (void)d;
    if (!((mpi_comm *)base)->device)
        atomic_store(&((mpi_comm *)base)->state.home, 1);
}

static void mpi_abort(aprt_comm *base, int32_t rank, int status, const char *text)
{
    (void)rank; /* the text names it */
    mpi_comm_end((mpi_comm *)base, status, text);
}

static bool mpi_aborted(aprt_comm *base)
{
    (void)base;
    return false;
}

static const aprt_comm_ops ops = {
    .abi = APRT_ABI,
    .name = "mpi",
    .open = mpi_open,
    .close = mpi_close,
    .attach = mpi_attach,
    .start = mpi_start,
    .home = mpi_home,
    .barrier = mpi_barrier,
    .merge = mpi_merge,
    .exchange = mpi_exchange,
    .recv = mpi_recv,
    .claim = mpi_claim,
    .free = mpi_free,
    .send = mpi_send,
    .abort = mpi_abort,
    .aborted = mpi_aborted,
    .collect = mpi_run_end,
    .gather = mpi_gather,
};

const aprt_comm_ops *aprt_comm_plugin(void)
{
    return &ops;
}
