/* SPDX-License-Identifier: MIT
 *
 * The watching thread of a process. It keeps messages moving while the device computes, and it and rank 0 tell each
 * other that they live, and what their device waits for. Three things end the job:
 *
 *   a rank that rank 0 has not heard of for the bound: stopped, dead, or cut off
 *   rank 0 itself, not heard of for a quarter longer: the same, seen from the other side
 *   all devices wait, and none has moved for the bound: nobody ever will
 *
 * So a device that computes, however long, trips nothing; one message that takes longer than the bound does. Silence is
 * counted in turns of this thread and not by the clock, so that a process which was stopped itself and goes on does
 * not take the others for silent. */
#include "mpi_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TAG_BEAT = 1, LEAVES = 2, PUMP_MICROSECONDS = 200, IDLE_MICROSECONDS = 20000 };

/* What ranks tell rank 0; rank 0 answers with its own. */
typedef struct beat {
    uint32_t turn, home; /* home: LEAVES in the last one */
    aprt_waiting waiting;
} beat;

struct mpi_watch {
    mpi_comm *c;
    pthread_t thread;
    bool started;
    mpi_nap nap;
    beat *heard, *landing; /* the latest one of each peer; where the next one arrives */
    double *silent;        /* seconds since then */
    beat *said;            /* to whom this rank talks: messages that may be on their way */
    MPI_Request *saying, *hearing;
    int32_t first, peers; /* whom this rank talks to: [first, first + peers) */
    double still;         /* seconds since anyone moved, on rank 0 */
    uint32_t turns;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static beat own_beat(mpi_comm *c)
{
    mpi_state *s = &c->state;
    return (beat){atomic_load(&s->turn),
                  atomic_load(&s->home),
                  {atomic_load(&s->kind), atomic_load(&s->what), atomic_load(&s->peer), atomic_load(&s->at),
                   atomic_load(&s->mb)}};
}

/* Under the lock. A beat that has not left is not followed by another one. */
static void talk(mpi_watch *w, bool speak)
{
    mpi_comm *c = w->c;
    for (int32_t i = 0; i < w->peers; i++) {
        int done = 0;
        if (w->hearing[i] == MPI_REQUEST_NULL)
            w->silent[i] = 0; /* has said that it leaves */
        else if (MPI_Test(&w->hearing[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done) {
            w->silent[i] = 0;
            w->heard[i] = w->landing[i];
            if (w->landing[i].home == LEAVES)
                continue; /* of a peer that is faster than this one in closing; its last */
            MPI_Irecv(&w->landing[i], sizeof *w->landing, MPI_BYTE, w->first + i, TAG_BEAT, c->control, &w->hearing[i]);
        }
        done = 0;
        if (speak && MPI_Test(&w->saying[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done) {
            w->said[i] = own_beat(c);
            MPI_Isend(&w->said[i], sizeof *w->said, MPI_BYTE, w->first + i, TAG_BEAT, c->control, &w->saying[i]);
        }
    }
}

static void check_silence(mpi_watch *w, double seconds)
{
    mpi_comm *c = w->c;
    /* rank 0 knows more, and is given time to say it */
    const double bound = c->rank == 0 ? c->setup.watchdog : 1.25 * c->setup.watchdog;
    char text[256];
    for (int32_t i = 0; i < w->peers; i++) {
        w->silent[i] += seconds;
        if (w->silent[i] < bound)
            continue;
        snprintf(
            text, sizeof text,
            "rank %d on %s has not been heard of for %g seconds: it was stopped, it died, or the link to it is cut",
            w->first + i, c->hosts[w->first + i], bound);
        mpi_comm_end(c, APRT_ERR_ENV, text);
    }
}

static void tell_stall(mpi_watch *w)
{
    mpi_comm *c = w->c;
    char text[1024];
    size_t n = (size_t)snprintf(text, sizeof text, "nothing has moved for %g seconds", c->setup.watchdog);
    for (int32_t r = 0; r < c->layout->program->nranks && n + 3 < sizeof text; r++) {
        beat b = r == 0 ? own_beat(c) : w->heard[r - 1];
        n += (size_t)snprintf(text + n, sizeof text - n, "; ");
        n += aprt_waiting_text(c->layout, r, &b.waiting, text + n, sizeof text - n);
    }
    mpi_comm_end(c, APRT_ERR_ENV, text);
}

static bool is_asleep(const beat *b)
{
    return !b->home && b->turn % 2 == 1;
}

/* On rank 0: does anyone compute, has anyone moved? A process that is between two runs may come back. */
static void check_stall(mpi_watch *w, double seconds)
{
    const beat own = own_beat(w->c);
    uint32_t sum = own.turn;
    bool all = is_asleep(&own);
    for (int32_t i = 0; i < w->peers; i++) {
        all = all && is_asleep(&w->heard[i]);
        sum += w->heard[i].turn;
    }
    w->still = all && sum == w->turns ? w->still + seconds : 0;
    w->turns = sum;
    if (w->still >= w->c->setup.watchdog)
        tell_stall(w);
}

static void *watch_main(void *user)
{
    mpi_watch *w = user;
    mpi_comm *c = w->c;
    const double period = c->setup.watchdog / 8 < 1 ? c->setup.watchdog / 8 : 1;
    double spoken = now() - period;
    double pause = 0;
    while (mpi_nap_sleep(&w->nap, pause)) {
        const double t = now();
        const bool speak = t - spoken >= period;
        pthread_mutex_lock(&c->lock);
        talk(w, speak);
        pthread_mutex_unlock(&c->lock);
        if (speak) {
            /* no longer than two turns, however long this process was stopped */
            const double seconds = t - spoken < 2 * period ? t - spoken : 2 * period;
            check_silence(w, seconds);
            if (c->rank == 0)
                check_stall(w, seconds);
            spoken = t;
        }
        pause = 1e-6 * (atomic_load(&c->moving) ? PUMP_MICROSECONDS : IDLE_MICROSECONDS);
        pause = pause > period ? period : pause;
    }
    return NULL;
}

int mpi_watch_start(mpi_comm *c, aprt_failure *why)
{
    mpi_watch *w = c->watch = calloc(1, sizeof *w);
    if (!w)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory");
    w->c = c;
    mpi_nap_init(&w->nap);
    w->first = c->rank == 0;
    w->peers = c->rank == 0 ? c->layout->program->nranks - 1 : 1;
    const size_t n = (size_t)w->peers + 1;
    w->heard = calloc(n, sizeof *w->heard);
    w->landing = calloc(n, sizeof *w->landing);
    w->said = calloc(n, sizeof *w->said);
    w->silent = calloc(n, sizeof *w->silent);
    w->saying = calloc(n, sizeof(MPI_Request));
    w->hearing = calloc(n, sizeof(MPI_Request));
    if (!w->heard || !w->landing || !w->said || !w->silent || !w->saying || !w->hearing)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory");
    for (int32_t i = 0; i < w->peers; i++) {
        w->heard[i].home = 1;
        w->saying[i] = MPI_REQUEST_NULL;
        MPI_Irecv(&w->landing[i], sizeof *w->landing, MPI_BYTE, w->first + i, TAG_BEAT, c->control, &w->hearing[i]);
    }
    w->started = pthread_create(&w->thread, NULL, watch_main, w) == 0;
    return w->started ? APRT_OK : aprt_fail(why, APRT_ERR_ENV, "cannot start the thread that watches");
}

/* The last beat to each peer says so, and all are heard to that one: a message that is left when a communicator is
 * freed would be taken for one of the next that gets its number. */
static void part(mpi_watch *w)
{
    for (int32_t i = 0; i < w->peers; i++) {
        MPI_Wait(&w->saying[i], MPI_STATUS_IGNORE);
        w->said[i] = (beat){.home = LEAVES};
        MPI_Isend(&w->said[i], sizeof *w->said, MPI_BYTE, w->first + i, TAG_BEAT, w->c->control, &w->saying[i]);
    }
    for (int32_t i = 0; i < w->peers; i++) {
        MPI_Wait(&w->hearing[i], MPI_STATUS_IGNORE); /* nothing, if that was heard already */
        while (w->landing[i].home != LEAVES)
            MPI_Recv(&w->landing[i], sizeof *w->landing, MPI_BYTE, w->first + i, TAG_BEAT, w->c->control,
                     MPI_STATUS_IGNORE);
        MPI_Wait(&w->saying[i], MPI_STATUS_IGNORE);
    }
}

void mpi_watch_stop(mpi_comm *c)
{
    mpi_watch *w = c->watch;
    if (!w)
        return;
    mpi_nap_end(&w->nap);
    if (w->started)
        pthread_join(w->thread, NULL);
    if (w->started)
        part(w);
    mpi_nap_deinit(&w->nap);
    free(w->heard);
    free(w->landing);
    free(w->said);
    free(w->silent);
    free(w->saying);
    free(w->hearing);
    free(w);
    c->watch = NULL;
}
