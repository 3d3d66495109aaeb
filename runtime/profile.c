/* SPDX-License-Identifier: MIT
 *
 * Time per instruction. At the start of each instruction the time since the last mark goes to the one before; what
 * passes before the first instruction of a run belongs to nobody. A profile sums up over runs, on rank 0; a trace keeps
 * when each instruction of the latest run began, on every rank. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct aprt_profile {
    double last;
    uint32_t at;     /* instruction that runs since then */
    bool running;    /* false before the first mark of a run */
    double *seconds; /* of each instruction, or NULL */
    double *start;   /* [ninstrs + 1], the last one is the end; NULL: no trace */
    bool complete;   /* the latest run reached its end */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static aprt_profile *profile_of(aprt_worker *w)
{
    if (!w->device.profile)
        w->device.profile = calloc(1, sizeof *w->device.profile);
    return w->device.profile;
}

static double *times_of(const aprt_instance *in)
{
    return calloc(in->program->ninstrs + 1u, sizeof(double));
}

int aprt_profile_enable(aprt_instance *in)
{
    if (!in->usable || in->seconds)
        return in->usable ? APRT_OK : APRT_ERR_USAGE;
    aprt_profile *p = profile_of(&in->worker[0]);
    in->seconds = times_of(in);
    if (!p || !in->seconds)
        return aprt_fail(&in->why, APRT_ERR_ENV, "out of memory");
    p->seconds = in->seconds;
    return APRT_OK;
}

const double *aprt_profile_seconds(const aprt_instance *in)
{
    return in->seconds;
}

int aprt_trace_enable(aprt_instance *in)
{
    if (!in->usable)
        return APRT_ERR_USAGE;
    for (int32_t r = 0; r < in->program->nranks; r++) {
        aprt_profile *p = profile_of(&in->worker[r]);
        if (p && !p->start)
            p->start = times_of(in);
        if (!p || !p->start)
            return aprt_fail(&in->why, APRT_ERR_ENV, "out of memory");
    }
    return APRT_OK;
}

void aprt_profile_free(aprt_profile *p)
{
    if (p)
        free(p->start);
    free(p);
}

void aprt_profile_mark(aprt_device *d)
{
    aprt_profile *p = d->profile;
    double t = now();
    if (p->running && p->seconds)
        p->seconds[p->at] += t - p->last;
    if (p->start)
        p->start[d->at] = t;
    p->last = t;
    p->at = d->at;
    p->running = d->at < d->instance->program->ninstrs;
    p->complete = !p->running;
}

/* ---- as a file for Perfetto and chrome://tracing ---- */

static void print_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            fprintf(f, "\\%c", *s);
        else if ((unsigned char)*s < ' ')
            fprintf(f, "\\u%04x", *s);
        else
            fputc(*s, f);
    fputc('"', f);
}

static void print_name(FILE *f, const char *what, int process, int thread, const char *name)
{
    fprintf(f, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}},\n", what, process,
            thread, name);
}

/* Times in microseconds. */
static void print_event(FILE *f, const aprt_instr *i, int process, int thread, double from, double duration)
{
    fputs("{\"ph\":\"X\",\"name\":", f);
    print_string(f, i->what);
    fprintf(f, ",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"node\":", process, thread, from, duration);
    print_string(f, i->node);
    fputs(",\"operator\":", f);
    print_string(f, i->op);
    fprintf(f, ",\"predicted_us\":%.3f}},\n", 1e-6 * (double)i->picoseconds);
}

static void print_trace(FILE *f, const aprt_instance *in)
{
    const aprt_program *p = in->program;
    double first = in->worker[0].device.profile->start[0], at = 0;
    char name[32];
    fputs("{\"traceEvents\":[\n", f);
    print_name(f, "process_name", 1, 0, "measured");
    print_name(f, "process_name", 2, 0, "predicted");
    for (int32_t r = 0; r < p->nranks; r++) {
        const double *start = in->worker[r].device.profile->start;
        snprintf(name, sizeof name, "device %d", r);
        print_name(f, "thread_name", 1, r, name);
        first = start[0] < first ? start[0] : first;
    }
    for (int32_t r = 0; r < p->nranks; r++) {
        const double *start = in->worker[r].device.profile->start;
        for (uint32_t i = 0; i < p->ninstrs; i++)
            print_event(f, &p->instr[i], 1, r, 1e6 * (start[i] - first), 1e6 * (start[i + 1] - start[i]));
    }
    for (uint32_t i = 0; i < p->ninstrs; i++) {
        print_event(f, &p->instr[i], 2, 0, at, 1e-6 * (double)p->instr[i].picoseconds);
        at += 1e-6 * (double)p->instr[i].picoseconds;
    }
    fputs("{}],\"displayTimeUnit\":\"ns\"}\n", f);
}

int aprt_trace_write(const aprt_instance *in, const char *path, aprt_failure *why)
{
    char *text = NULL;
    size_t size = 0;
    for (int32_t r = 0; r < in->program->nranks; r++) {
        const aprt_profile *p = in->worker ? in->worker[r].device.profile : NULL;
        if (!p || !p->start || !p->complete)
            return aprt_fail(why, APRT_ERR_USAGE, "%s: there is no run to be traced", path);
    }
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory for a trace");
    print_trace(f, in);
    bool good = !ferror(f);
    good = fclose(f) == 0 && good;
    int status = good ? aprt_file_write(path, "", 0, text, size, why)
                      : aprt_fail(why, APRT_ERR_ENV, "out of memory for a trace");
    free(text);
    return status;
}
