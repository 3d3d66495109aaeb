/* SPDX-License-Identifier: MIT
 *
 * Devices as threads of one process. Device 0 is the thread that calls, the others are workers made when the instance
 * is opened; a job (loading parameters, running the program) is given to all of them and is over when all are done.
 *
 * A device that fails leaves its text in its own place and lets the others out of their barriers; when all have come
 * home, the barriers are set up afresh, so that wrong input does not cost the instance. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SPINS = 20000, FEW_SPINS = 100 };

/* ---- failures of a device ---- */

static int fail_device(aprt_worker *w, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail_device(aprt_worker *w, int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(w->why.text, sizeof w->why.text, fmt, args);
    va_end(args);
    return status;
}

int aprt_fail_index(aprt_device *d)
{
    const aprt_instr *i = &d->instance->program->instr[d->at];
    return fail_device(&d->instance->worker[d->rank], APRT_ERR_DATA,
                       "rank %d, instruction %u (%s), node \"%s\"%s%s%s: index %lld is outside [%lld, %lld)", d->rank,
                       d->at, i->what, i->node, *i->op ? " (" : "", i->op, *i->op ? ")" : "", (long long)d->bad.index,
                       (long long)d->bad.first, (long long)d->bad.limit);
}

int aprt_fail_call(aprt_device *d, int status, const char *text)
{
    const aprt_program *p = d->instance->program;
    aprt_worker *w = &d->instance->worker[d->rank];
    if (d->at >= p->ninstrs)
        return fail_device(w, status, "rank %d: %s", d->rank, text);
    const aprt_instr *i = &p->instr[d->at];
    return fail_device(w, status, "rank %d, instruction %u (%s), node \"%s\": %s", d->rank, d->at, i->what, i->node,
                       text);
}

/* ---- jobs ---- */

static void do_job(aprt_worker *w)
{
    aprt_instance *in = w->device.instance;
    w->status = in->job(w);
    if (w->status == APRT_OK || w->status == APRT_ABANDONED)
        return;
    atomic_store(&in->aborted, 1);
    for (uint32_t i = 0; i < in->nbarriers; i++)
        aprt_barrier_release(&in->barrier[i]);
}

static void *worker_main(void *user)
{
    aprt_worker *w = user;
    aprt_instance *in = w->device.instance;
    for (uint32_t seen = 0;; seen++) {
        aprt_gate_wait(&in->start, seen, in->spins);
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
    int32_t n = in->program->nranks;
    uint32_t done = atomic_load(&in->done.word);
    in->job = job;
    for (int32_t r = 0; r < n; r++)
        in->worker[r].why.text[0] = 0;
    atomic_store(&in->aborted, 0);
    atomic_store(&in->remaining, (uint32_t)n - 1);
    if (n > 1)
        aprt_gate_open(&in->start);
    do_job(&in->worker[0]);
    if (n > 1)
        aprt_gate_wait(&in->done, done, in->spins);
    if (!atomic_load(&in->aborted))
        return APRT_OK;
    for (uint32_t i = 0; i < in->nbarriers; i++)
        aprt_barrier_reset(&in->barrier[i]);
    for (int32_t r = 0; r < n; r++)
        if (in->worker[r].status != APRT_OK && in->worker[r].status != APRT_ABANDONED) {
            in->why = in->worker[r].why;
            return in->worker[r].status;
        }
    return aprt_fail(&in->why, APRT_ERR_BUG, "a device gave up without a reason");
}

/* ---- open ---- */

static int allocate(aprt_worker *w, int64_t bytes, const char *what, char **out)
{
    /* of the device's own thread, so that its pages lie near it; never empty, whole cache lines */
    size_t size = ((size_t)bytes + 63) / 64 * 64;
    *out = aligned_alloc(64, size ? size : 64);
    if (*out)
        return APRT_OK;
    return fail_device(w, APRT_ERR_ENV, "rank %d: no memory for %s of %lld bytes", w->device.rank, what,
                       (long long)bytes);
}

static void find_coordinate(const aprt_program *p, int32_t rank, int64_t *coordinate)
{
    for (int32_t a = 0; a < p->naxes; a++)
        coordinate[a] = rank / p->axis_stride[a] % p->axis_size[a];
}

int aprt_param_fetch(aprt_device *d, uint32_t index, const void **out)
{
    aprt_worker *w = &d->instance->worker[d->rank];
    aprt_param here = d->instance->program->param[index];
    int64_t coordinate[APRT_MAX_AXES] = {0};
    find_coordinate(d->instance->program, d->rank, coordinate);
    free(w->fetched);
    w->fetched = NULL;
    here.byte_offset = 0;
    int status = allocate(w, here.bytes, "a parameter", &w->fetched);
    if (status != APRT_OK)
        return status;
    if (here.ncounts)
        memset(w->fetched, 0, (size_t)here.bytes);
    *out = w->fetched;
    return aprt_weights_load(w->weights, &here, index, coordinate, w->fetched, here.bytes, &w->why);
}

static int prepare_slots(aprt_worker *w, aprt_weights *from)
{
    aprt_device *d = &w->device;
    const aprt_program *p = d->instance->program;
    d->slot = calloc(p->nslots + 1u, sizeof *d->slot);
    if (!d->slot)
        return fail_device(w, APRT_ERR_ENV, "rank %d: out of memory", d->rank);
    d->nslots = p->nslots;
    d->at = p->ninstrs;
    w->weights = from;
    int status = p->prepare(d);
    free(w->fetched);
    w->fetched = NULL;
    w->weights = NULL;
    return status;
}

static int load_job(aprt_worker *w)
{
    aprt_device *d = &w->device;
    const aprt_program *p = d->instance->program;
    int64_t coordinate[APRT_MAX_AXES] = {0};
    int status = allocate(w, p->arena_bytes, "an arena", &d->arena);
    if (status == APRT_OK)
        status = allocate(w, p->param_bytes, "parameters", &d->param);
    if (status == APRT_OK)
        status = allocate(w, p->scratch_bytes, "scratch", &d->scratch);
    find_coordinate(p, d->rank, coordinate);
    aprt_weights *mine = NULL;
    if (status == APRT_OK && p->nparams)
        status = aprt_weights_enter(d->instance->weights, d->rank, p->nranks, &mine, &w->why);
    for (uint32_t i = 0; i < p->nparams && status == APRT_OK && !atomic_load(&d->instance->aborted); i++)
        if (p->param[i].store != APRT_PREPARED)
            status = aprt_weights_load(mine, &p->param[i], i, coordinate, d->param, p->param_bytes, &w->why);
    if (status == APRT_OK && p->prepare)
        status = prepare_slots(w, mine);
    aprt_weights_leave(d->instance->weights, mine);
    return status;
}

static int check_program(const aprt_program *p, aprt_failure *why)
{
    if (p->abi != APRT_ABI)
        return aprt_fail(why, APRT_ERR_ENV, "the program was made for runtime ABI %u, this one is %u", p->abi,
                         APRT_ABI);
    if (p->nranks < 1 || p->nranks > APRT_MAX_RANKS || p->naxes < 0 || p->naxes > APRT_MAX_AXES)
        return aprt_fail(why, APRT_ERR_BUG, "a program of %d devices and %d axes; at most %d and %d", p->nranks,
                         p->naxes, APRT_MAX_RANKS, APRT_MAX_AXES);
    int64_t most = PTRDIFF_MAX - 64;
    if (p->arena_bytes < 0 || p->arena_bytes > most || p->param_bytes < 0 || p->param_bytes > most ||
        p->scratch_bytes < 0 || p->scratch_bytes > most)
        return aprt_fail(why, APRT_ERR_BUG, "the program asks for impossible amounts of memory");
    for (int32_t a = 0; a < p->naxes; a++)
        if (p->axis_size[a] < 1 || p->axis_stride[a] < 1)
            return aprt_fail(why, APRT_ERR_BUG, "axis %d of the program is empty", a);
    return APRT_OK;
}

/* Where each rank stands in each group, and a barrier for each list. */
static int make_groups(aprt_instance *in, aprt_failure *why)
{
    const aprt_program *p = in->program;
    in->first_barrier = calloc(p->ngroups + 1u, sizeof *in->first_barrier);
    in->place = malloc(((size_t)p->ngroups * (size_t)p->nranks + 1) * sizeof *in->place);
    if (!in->first_barrier || !in->place)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory");
    for (uint32_t g = 0; g < p->ngroups; g++) {
        const aprt_group *group = &p->group[g];
        int32_t *place = in->place + (size_t)g * (size_t)p->nranks;
        if (group->count < 1 || group->size < 1 || (int64_t)group->count * group->size != p->nranks)
            return aprt_fail(why, APRT_ERR_BUG, "group %u does not list every rank once", g);
        for (int32_t r = 0; r < p->nranks; r++)
            place[r] = -1;
        for (int32_t i = 0; i < p->nranks; i++) {
            int32_t r = group->rank[i];
            if (r < 0 || r >= p->nranks || place[r] >= 0)
                return aprt_fail(why, APRT_ERR_BUG, "group %u does not list every rank once", g);
            place[r] = i;
        }
        in->first_barrier[g] = in->nbarriers;
        in->nbarriers += (uint32_t)group->count;
    }
    in->barrier = aligned_alloc(64, (in->nbarriers + 1) * sizeof *in->barrier);
    if (!in->barrier)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory");
    memset(in->barrier, 0, (in->nbarriers + 1) * sizeof *in->barrier);
    for (uint32_t g = 0; g < p->ngroups; g++)
        for (int32_t i = 0; i < p->group[g].count; i++)
            in->barrier[in->first_barrier[g] + (uint32_t)i].size = (uint32_t)p->group[g].size;
    return APRT_OK;
}

static int make_workers(aprt_instance *in, aprt_failure *why)
{
    int32_t n = in->program->nranks;
    in->worker = aligned_alloc(64, (size_t)n * sizeof *in->worker);
    if (!in->worker)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory");
    memset(in->worker, 0, (size_t)n * sizeof *in->worker);
    for (int32_t r = 0; r < n; r++) {
        in->worker[r].device.rank = r;
        in->worker[r].device.instance = in;
    }
    for (int32_t r = 1; r < n; r++) {
        if (pthread_create(&in->worker[r].thread, NULL, worker_main, &in->worker[r]) != 0)
            return aprt_fail(why, APRT_ERR_ENV, "cannot start the thread of device %d of %d", r, n);
        in->worker[r].started = true;
    }
    return APRT_OK;
}

/* weights.safetensors beside the running program */
static int default_weights(char *out, size_t size, aprt_failure *why)
{
    static const char file[] = "weights.safetensors";
    ssize_t n = readlink("/proc/self/exe", out, size - sizeof file);
    if (n <= 0 || (size_t)n >= size - sizeof file)
        return aprt_fail(why, APRT_ERR_ENV, "cannot find out where this program lies: give the path of the weights");
    while (n > 0 && out[n - 1] != '/')
        n--;
    memcpy(out + n, file, sizeof file);
    return APRT_OK;
}

static int open_weights(aprt_instance *in, const aprt_options *options)
{
    char path[4096];
    if (in->program->nparams == 0)
        return APRT_OK;
    if (options && options->weights)
        return aprt_weights_open(options->weights, &in->weights, &in->why);
    int status = default_weights(path, sizeof path, &in->why);
    return status == APRT_OK ? aprt_weights_open(path, &in->weights, &in->why) : status;
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
    int status = check_program(program, &in->why);
    if (status != APRT_OK)
        return status;
    /* More threads than processors: whoever spins keeps away whom it waits for. */
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    in->spins = processors >= program->nranks ? SPINS : FEW_SPINS;
    status = make_groups(in, &in->why);
    if (status == APRT_OK)
        status = open_weights(in, options);
    if (status == APRT_OK)
        status = make_workers(in, &in->why);
    if (status == APRT_OK)
        status = run_job(in, load_job);
    aprt_weights_close(in->weights);
    in->weights = NULL;
    in->usable = status == APRT_OK;
    return status == APRT_OK && getenv("AUTOPAR_TRACE") ? aprt_trace_enable(in) : status;
}

/* ---- run, close ---- */

static int device_job(aprt_worker *w)
{
    aprt_device *d = &w->device;
    int status = d->instance->program->device(d);
    if (d->profile) {
        d->at = d->instance->program->ninstrs;
        aprt_profile_mark(d);
    }
    return status;
}

static int check_pointers(aprt_instance *in, uint32_t n, const aprt_port *port, const void *const *at, const char *what)
{
    for (uint32_t i = 0; i < n; i++)
        if (!at || !at[i])
            return aprt_fail(&in->why, APRT_ERR_USAGE, "%s %u (\"%s\") is NULL", what, i, port[i].name);
    return APRT_OK;
}

int aprt_run(aprt_instance *in, const void *const inputs[], void *const outputs[])
{
    if (!in)
        return APRT_ERR_USAGE;
    const aprt_program *p = in->program;
    pthread_mutex_lock(&in->lock);
    int status = APRT_OK;
    if (!in->usable)
        status = APRT_ERR_USAGE; /* the text says why it could not be opened */
    if (status == APRT_OK) {
        in->why.text[0] = 0;
        status = check_pointers(in, p->ninputs, p->input, inputs, "input");
    }
    if (status == APRT_OK)
        status = check_pointers(in, p->noutputs, p->output, (const void *const *)outputs, "output");
    if (status == APRT_OK) {
        for (int32_t r = 0; r < p->nranks; r++) {
            in->worker[r].device.input = inputs;
            in->worker[r].device.output = outputs;
        }
        status = run_job(in, device_job);
    }
    pthread_mutex_unlock(&in->lock);
    return status;
}

void aprt_close(aprt_instance *in)
{
    if (!in)
        return;
    const char *trace = getenv("AUTOPAR_TRACE");
    aprt_failure why;
    if (trace && in->usable)
        aprt_trace_write(in, trace, &why); /* without a run there is nothing to write */
    if (in->worker) {
        atomic_store(&in->stop, 1);
        aprt_gate_open(&in->start);
        for (int32_t r = 0; r < in->program->nranks; r++) {
            if (in->worker[r].started)
                pthread_join(in->worker[r].thread, NULL);
            if (in->worker[r].device.slot)
                in->program->release(&in->worker[r].device);
            free(in->worker[r].device.slot);
            free(in->worker[r].device.arena);
            free(in->worker[r].device.param);
            free(in->worker[r].device.scratch);
            aprt_profile_free(in->worker[r].device.profile);
        }
    }
    pthread_mutex_destroy(&in->lock);
    free(in->worker);
    free(in->barrier);
    free(in->first_barrier);
    free(in->place);
    free(in->seconds);
    free(in);
}

const char *aprt_error(const aprt_instance *in)
{
    return in ? in->why.text : "out of memory";
}
