/* SPDX-License-Identifier: MIT
 *
 * A device when its instance is opened: its memory, its part of the parameters, the slots of libraries. */
#include "instance.h"
#include "target.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int fail_load(aprt_worker *w, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail_load(aprt_worker *w, int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(w->why.text, sizeof w->why.text, fmt, args);
    va_end(args);
    return status;
}

static int allocate(aprt_worker *w, int64_t bytes, const char *what, char **out)
{
    /* of the device's own thread, so that its pages lie near it; never empty, whole cache lines */
    size_t size = ((size_t)bytes + 63) / 64 * 64;
    *out = aligned_alloc(64, size ? size : 64);
    if (*out)
        return APRT_OK;
    return fail_load(w, APRT_ERR_ENV, "no memory for %s of %lld bytes", what, (long long)bytes);
}

static void drop_fetched(aprt_worker *w)
{
    free(w->fetched);
    w->fetched = NULL;
}

int aprt_param_fetch(aprt_device *d, uint32_t index, const void **out)
{
    aprt_worker *w = aprt_worker_of(d);
    aprt_param here = d->stage->param[index];
    int64_t coordinate[APRT_MAX_AXES];
    aprt_layout_coordinate(&d->instance->layout, d->rank, 0, coordinate);
    drop_fetched(w);
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
    d->slot = calloc(d->stage->nslots + 1u, sizeof *d->slot);
    if (!d->slot)
        return fail_load(w, APRT_ERR_ENV, "out of memory");
    d->nslots = d->stage->nslots;
    d->at = d->stage->ninstrs;
    w->weights = from;
    int status = d->stage->prepare(d);
    drop_fetched(w);
    w->weights = NULL;
    return status;
}

static int make_memory(aprt_worker *w)
{
    aprt_device *d = &w->device;
    const aprt_stage *s = d->stage;
    w->input = calloc(s->ninputs + 1u, sizeof *w->input);
    w->output = calloc(s->noutputs + 1u, sizeof *w->output);
    if (!w->input || !w->output)
        return fail_load(w, APRT_ERR_ENV, "out of memory");
    d->input = w->input;
    d->output = w->output;
    if (s->target)
        return s->target->open(d);
    int status = allocate(w, s->arena_bytes, "an arena", &d->arena);
    d->host = d->arena;
    if (status == APRT_OK)
        status = allocate(w, s->param_bytes, "parameters", &d->param);
    return status == APRT_OK ? allocate(w, s->scratch_bytes, "scratch", &d->scratch) : status;
}

void aprt_failure_at(const aprt_instance *in, int32_t rank, aprt_failure *why)
{
    static const char named[] = "rank ";
    const aprt_program *p = in->program;
    const aprt_stage *s = aprt_layout_stage(&in->layout, rank);
    const aprt_failure text = *why;
    char stage[96] = "";
    if (strncmp(text.text, named, sizeof named - 1) == 0)
        return;
    if (p->nstages > 1)
        snprintf(stage, sizeof stage, ", stage %d (\"%.60s\")", (int)(s - p->stage), s->name);
    snprintf(why->text, sizeof why->text, "rank %d%s: %.*s", rank, stage, (int)sizeof text.text - 128, text.text);
}

/* A parameter at its place; to another device it goes tensor by tensor. */
static int load_param(aprt_worker *w, aprt_weights *from, uint32_t index, const int64_t *coordinate)
{
    aprt_device *d = &w->device;
    const aprt_stage *s = d->stage;
    const aprt_param *p = &s->param[index];
    if (p->store == APRT_PREPARED)
        return APRT_OK;
    if (!s->target)
        return aprt_weights_load(from, p, index, coordinate, d->param, s->param_bytes, &w->why);
    if (p->byte_offset < 0 || p->bytes < 0 || p->byte_offset > s->param_bytes ||
        p->bytes > s->param_bytes - p->byte_offset)
        return fail_load(w, APRT_ERR_BUG, "tensor \"%.100s\": a part is outside the whole", p->port.name);
    const void *box;
    w->weights = from;
    int status = aprt_param_fetch(d, index, &box);
    if (status == APRT_OK)
        status = s->target->upload(d, d->param + p->byte_offset, box, p->bytes);
    drop_fetched(w);
    w->weights = NULL;
    return status;
}

int aprt_load_device(aprt_worker *w)
{
    aprt_device *d = &w->device;
    aprt_instance *in = d->instance;
    const aprt_stage *s = d->stage;
    int64_t coordinate[APRT_MAX_AXES];
    aprt_weights *mine = NULL;
    aprt_layout_coordinate(&in->layout, d->rank, 0, coordinate);
    int status = make_memory(w);
    if (status == APRT_OK && s->nparams)
        status = aprt_weights_enter(in->weights, d->rank, in->program->nranks, &mine, &w->why);
    for (uint32_t i = 0; i < s->nparams && status == APRT_OK; i++) {
        if (in->comm->ops->aborted(in->comm))
            status = APRT_ABANDONED;
        else
            status = load_param(w, mine, i, coordinate);
    }
    if (status == APRT_OK && s->prepare)
        status = prepare_slots(w, mine);
    aprt_weights_leave(in->weights, mine);
    if (status != APRT_OK && status != APRT_ABANDONED)
        aprt_failure_at(in, d->rank, &w->why);
    return status;
}

void aprt_unload_device(aprt_worker *w)
{
    aprt_device *d = &w->device;
    if (d->slot)
        d->stage->release(d);
    free(d->slot);
    if (d->stage->target) {
        d->stage->target->close(d);
    } else {
        free(d->arena);
        free(d->param);
        free(d->scratch);
    }
    free(w->input);
    free(w->output);
    free(w->seconds);
    aprt_profile_free(d->profile);
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

int aprt_load_weights(aprt_instance *in, const aprt_options *options)
{
    const char *path = options ? options->weights : NULL;
    char beside[4096];
    bool any = false;
    for (int32_t r = 0; r < in->nworkers; r++)
        any = any || aprt_layout_stage(&in->layout, in->first_rank + r)->nparams > 0;
    if (!any)
        return APRT_OK;
    if (!path && options && options->source)
        return aprt_weights_hold(options->nsources, options->source, &in->weights, &in->why);
    if (path)
        return aprt_weights_open(path, &in->weights, &in->why);
    int status = default_weights(beside, sizeof beside, &in->why);
    return status == APRT_OK ? aprt_weights_open(beside, &in->weights, &in->why) : status;
}
