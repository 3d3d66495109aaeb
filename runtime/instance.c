/* SPDX-License-Identifier: MIT
 *
 * Opening, running and closing. The devices of this process are threads: the first one is the thread that calls, the
 * others are workers made when the instance is opened; a job (loading parameters, running the program) is given to all
 * of them and is over when all are done. Where ranks are processes (comm.h), each has one device.
 *
 * A device that fails leaves its text in its own place and lets the others out of what they wait for. When all have
 * come home after wrong data, the instance may go on; after anything else it can only be closed. */
#include "instance.h"
#include "target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SPINS = 20000, FEW_SPINS = 100 };

/* ---- jobs ---- */

static void do_job(aprt_worker *w)
{
    aprt_instance *in = w->device.instance;
    w->status = in->job(w);
    if (w->status != APRT_OK && w->status != APRT_ABANDONED)
        in->comm->ops->abort(in->comm, w->device.rank, w->status, w->why.text);
    in->comm->ops->home(in->comm, &w->device);
}

static void *worker_main(void *user)
{
    aprt_worker *w = user;
    aprt_instance *in = w->device.instance;
    for (uint32_t seen = 0;; seen++) {
        aprt_gate_wait(&in->start, seen, in->spins, NULL, 0, NULL);
        if (atomic_load(&in->stop))
            return NULL;
        do_job(w);
        if (atomic_fetch_sub(&in->remaining, 1) == 1)
            aprt_gate_open(&in->done);
    }
}

/* Gives `job` to every device; the text of the lowest rank that failed becomes the instance's. */
static int run_job(aprt_instance *in, int (*job)(aprt_worker *w))
{
    int32_t n = in->nworkers;
    uint32_t done = atomic_load(&in->done.word);
    in->job = job;
    for (int32_t r = 0; r < n; r++)
        in->worker[r].why.text[0] = 0;
    in->comm->ops->start(in->comm);
    atomic_store(&in->remaining, (uint32_t)n - 1);
    if (n > 1)
        aprt_gate_open(&in->start);
    do_job(&in->worker[0]);
    if (n > 1)
        aprt_gate_wait(&in->done, done, in->spins, NULL, 0, NULL);
    if (!in->comm->ops->aborted(in->comm))
        return APRT_OK;
    for (int32_t r = 0; r < n; r++)
        if (in->worker[r].status != APRT_OK && in->worker[r].status != APRT_ABANDONED) {
            in->why = in->worker[r].why;
            return in->worker[r].status;
        }
    return aprt_fail(&in->why, APRT_ERR_BUG, "a device gave up without a reason");
}

/* ---- open ---- */

static int make_workers(aprt_instance *in, aprt_failure *why)
{
    int32_t n = in->nworkers;
    in->worker = aligned_alloc(64, ((size_t)n * sizeof *in->worker + 63) / 64 * 64);
    if (!in->worker)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory");
    memset(in->worker, 0, (size_t)n * sizeof *in->worker);
    for (int32_t i = 0; i < n; i++) {
        aprt_device *d = &in->worker[i].device;
        d->rank = in->first_rank + i;
        d->stage = aprt_layout_stage(&in->layout, d->rank);
        d->place = d->rank - d->stage->first_rank;
        d->at = d->stage->ninstrs;
        d->instance = in;
    }
    for (int32_t i = 1; i < n; i++) {
        if (pthread_create(&in->worker[i].thread, NULL, worker_main, &in->worker[i]) != 0)
            return aprt_fail(why, APRT_ERR_ENV, "cannot start the thread of device %d of %d", i, n);
        in->worker[i].started = true;
    }
    return APRT_OK;
}

/* AUTOPAR_WATCHDOG: seconds, 60 when it is not set */
static int read_watchdog(double *out, aprt_failure *why)
{
    const char *text = getenv("AUTOPAR_WATCHDOG");
    char *end = NULL;
    *out = 60;
    if (!text || !*text)
        return APRT_OK;
    *out = strtod(text, &end);
    if (*end || !(*out >= 0.1 && *out <= 1e6))
        return aprt_fail(why, APRT_ERR_USAGE, "AUTOPAR_WATCHDOG wants seconds from 0.1 to 1000000, not \"%.40s\"",
                         text);
    return APRT_OK;
}

static int open_comm(aprt_instance *in)
{
    const aprt_comm_ops *ops;
    aprt_comm_setup setup = {.layout = &in->layout, .where = aprt_device_where, .why = aprt_device_why};
    int status = read_watchdog(&setup.watchdog, &in->why);
    in->watchdog = setup.watchdog;
    if (status == APRT_OK)
        status = aprt_comm_choose(&ops, &in->why);
    if (status != APRT_OK)
        return status;
    /* More threads than processors: whoever spins keeps away whom it waits for. */
    setup.spins = in->spins = sysconf(_SC_NPROCESSORS_ONLN) >= in->program->nranks ? SPINS : FEW_SPINS;
    status = ops->open(&setup, &in->comm, &in->why);
    if (status != APRT_OK)
        return status;
    in->first_rank = in->comm->first_rank;
    in->nworkers = in->comm->nranks;
    return APRT_OK;
}

/* A failure outside of a job, after the communicator is there: other processes wait for this one. */
static int give_up(aprt_instance *in, int status)
{
    if (status != APRT_OK && in->comm && !in->comm->ops->aborted(in->comm))
        in->comm->ops->abort(in->comm, in->first_rank, status, in->why.text);
    return status;
}

static int connect_device(aprt_worker *w)
{
    aprt_device *d = &w->device;
    return d->stage->target ? d->stage->target->connect(d, d->instance->meeting) : APRT_OK;
}

/* Devices of targets agree on where they meet. All of the program have one target. */
static int connect_devices(aprt_instance *in)
{
    const aprt_target *t = NULL;
    for (uint32_t s = 0; s < in->program->nstages; s++) {
        const aprt_target *of = in->program->stage[s].target;
        if (of && t && of != t)
            return aprt_fail(&in->why, APRT_ERR_BUG, "stages for %s and for %s", t->name, of->name);
        t = of ? of : t;
    }
    if (!t)
        return APRT_OK;
    const size_t bytes = t->meeting_bytes(&in->layout);
    in->meeting = calloc(1, bytes + 1);
    if (!in->meeting)
        return aprt_fail(&in->why, APRT_ERR_ENV, "out of memory");
    int status = t->meeting_make(&in->layout, in->first_rank, in->nworkers, in->meeting, &in->why);
    if (status == APRT_OK)
        status = in->comm->ops->merge(in->comm, in->meeting, bytes, &in->why);
    if (status == APRT_OK)
        status = run_job(in, connect_device);
    free(in->meeting);
    in->meeting = NULL;
    return status;
}

/* A file that cannot be opened is told before anything is computed. */
static int check_trace(aprt_instance *in)
{
    const char *path = getenv("AUTOPAR_TRACE");
    if (!path || in->first_rank != 0)
        return APRT_OK;
    FILE *f = fopen(path, "a");
    return f && fclose(f) == 0 ? APRT_OK
                               : aprt_fail(&in->why, APRT_ERR_ENV, "AUTOPAR_TRACE: %s: %s", path, strerror(errno));
}

static int load(aprt_instance *in, const aprt_options *options)
{
    int status = check_trace(in);
    if (status == APRT_OK)
        status = aprt_load_weights(in, options);
    if (status != APRT_OK && in->nworkers < in->program->nranks) /* processes may have files of their own */
        aprt_failure_at(in, in->first_rank, &in->why);
    if (status == APRT_OK)
        status = make_workers(in, &in->why);
    if (status == APRT_OK)
        status = run_job(in, aprt_load_device);
    if (status == APRT_OK)
        status = connect_devices(in); /* a job that runs nothing: before channels are awaited */
    for (int32_t r = 0; r < in->nworkers && status == APRT_OK; r++)
        status = in->comm->ops->attach(in->comm, &in->worker[r].device, &in->why);
    aprt_weights_close(in->weights);
    in->weights = NULL;
    in->usable = status == APRT_OK;
    return status == APRT_OK && getenv("AUTOPAR_TRACE") ? aprt_trace_enable(in) : status;
}

int aprt_open(const aprt_program *program, const aprt_options *options, aprt_instance **out)
{
    aprt_instance *in = aligned_alloc(64, sizeof *in);
    *out = in;
    if (!in)
        return APRT_ERR_ENV;
    memset(in, 0, sizeof *in);
    in->program = program;
    pthread_mutex_init(&in->lock, NULL);
    int status = aprt_layout_make(program, &in->layout, &in->why);
    if (status == APRT_OK)
        status = open_comm(in);
    return status == APRT_OK ? give_up(in, load(in, options)) : status;
}

/* ---- run, close ---- */

static int device_job(aprt_worker *w)
{
    aprt_device *d = &w->device;
    if (d->profile)
        aprt_profile_begin(d);
    const aprt_target *t = d->stage->target;
    d->at = d->stage->ninstrs;
    w->inputs = d->instance->inputs;
    w->outputs = d->instance->outputs;
    int status = t ? t->begin(d, d->instance->inputs, &w->inputs, &w->outputs) : APRT_OK;
    if (status == APRT_OK)
        status = d->stage->list(d);
    if (status == APRT_OK && t)
        status = t->end(d, d->instance->outputs);
    if (d->profile && status == APRT_OK)
        aprt_profile_end(d);
    return status;
}

static int check_pointers(aprt_instance *in, uint32_t n, const aprt_port *port, const void *const *at, const char *what)
{
    for (uint32_t i = 0; i < n; i++)
        if (!at || !at[i])
            return aprt_fail(&in->why, APRT_ERR_USAGE, "%s %u (\"%s\") is NULL", what, i, port[i].name);
    return APRT_OK;
}

static int run_devices(aprt_instance *in)
{
    int status = run_job(in, device_job);
    if (status == APRT_OK)
        status = give_up(in, in->comm->ops->collect(in->comm, in->outputs, &in->why));
    in->usable = status == APRT_OK || status == APRT_ERR_DATA;
    return status;
}

int aprt_run(aprt_instance *in, const void *const inputs[], void *const outputs[])
{
    if (!in)
        return APRT_ERR_USAGE;
    const aprt_program *p = in->program;
    pthread_mutex_lock(&in->lock);
    int status = APRT_OK;
    if (!in->usable)
        status = APRT_ERR_USAGE; /* the text says why it could not be opened, or what ended its last run */
    if (status == APRT_OK) {
        in->why.text[0] = 0;
        status = check_pointers(in, p->ninputs, p->input, inputs, "input");
    }
    if (status == APRT_OK)
        status = check_pointers(in, p->noutputs, p->output, (const void *const *)outputs, "output");
    if (status == APRT_OK) {
        in->traced = false;
        in->inputs = inputs;
        in->outputs = outputs;
        status = run_devices(in);
    }
    pthread_mutex_unlock(&in->lock);
    return status;
}

/* Without a run there is nothing to write. Closing has no other way to tell what goes wrong. */
static void close_trace(aprt_instance *in)
{
    aprt_failure why;
    const char *path = getenv("AUTOPAR_TRACE");
    if (path && aprt_trace_write(in, path, &why) == APRT_ERR_ENV && in->first_rank == 0)
        fprintf(stderr, "%s: AUTOPAR_TRACE: %s\n", in->program->name, why.text);
}

void aprt_close(aprt_instance *in)
{
    if (!in)
        return;
    if (in->usable && !in->traced)
        close_trace(in);
    if (in->worker) {
        atomic_store(&in->stop, 1);
        aprt_gate_open(&in->start);
        for (int32_t r = 0; r < in->nworkers; r++)
            if (in->worker[r].started)
                pthread_join(in->worker[r].thread, NULL);
    }
    if (in->comm)
        in->comm->ops->close(in->comm); /* before the memory that it moves */
    for (int32_t r = 0; in->worker && r < in->nworkers; r++)
        aprt_unload_device(&in->worker[r]);
    pthread_mutex_destroy(&in->lock);
    aprt_layout_deinit(&in->layout);
    free(in->worker);
    free(in);
}

const char *aprt_error(const aprt_instance *in)
{
    return in ? in->why.text : "out of memory";
}
