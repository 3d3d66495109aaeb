/* SPDX-License-Identifier: MIT
 *
 * Time per instruction. At the start of each instruction the time since the last mark goes to the one before; what
 * passes between two microbatches belongs to nobody. A profile sums up over runs, on the first rank of each stage; a
 * trace keeps the events of the latest run on every rank: instructions, and what was received, claimed and sent. */
#include "instance.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { INSTRUCTION = -1, BESIDE = -2 };

typedef struct event {
    int32_t step;  /* INSTRUCTION, one BESIDE others, or an aprt_list_step */
    uint32_t what; /* number of the instruction, or of the channel */
    int64_t mb;
    double from, to;
} event;

struct aprt_profile {
    double last;
    uint32_t at;                  /* instruction that runs since then */
    bool running;                 /* false before the first mark of a microbatch */
    double *seconds;              /* of each instruction, or NULL */
    bool tracing, complete, lost; /* complete: the latest run reached its end; lost: there was no room for an event */
    event *event;
    size_t nevents, capacity;
};

double aprt_profile_now(void)
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

int aprt_profile_enable(aprt_instance *in)
{
    if (!in->usable)
        return APRT_ERR_USAGE;
    for (int32_t r = 0; r < in->nworkers; r++) {
        aprt_worker *w = &in->worker[r];
        if (w->device.place != 0 || w->seconds)
            continue;
        aprt_profile *p = profile_of(w);
        w->seconds = calloc(w->device.stage->ninstrs + 1u, sizeof *w->seconds);
        if (!p || !w->seconds)
            return aprt_fail(&in->why, APRT_ERR_ENV, "out of memory");
        p->seconds = w->seconds;
    }
    return APRT_OK;
}

const double *aprt_profile_seconds(const aprt_instance *in, uint32_t stage)
{
    for (int32_t r = 0; r < in->nworkers && stage < in->program->nstages; r++)
        if (in->worker[r].device.rank == in->program->stage[stage].first_rank)
            return in->worker[r].seconds;
    return NULL;
}

int aprt_trace_enable(aprt_instance *in)
{
    if (!in->usable)
        return APRT_ERR_USAGE;
    for (int32_t r = 0; r < in->nworkers; r++) {
        aprt_profile *p = profile_of(&in->worker[r]);
        if (!p)
            return aprt_fail(&in->why, APRT_ERR_ENV, "out of memory");
        p->tracing = true;
    }
    return APRT_OK;
}

void aprt_profile_free(aprt_profile *p)
{
    if (p)
        free(p->event);
    free(p);
}

/* ---- while it runs ---- */

static void add_event(aprt_profile *p, event e)
{
    if (p->nevents == p->capacity) {
        size_t more = p->capacity ? 2 * p->capacity : 1024;
        event *all = realloc(p->event, more * sizeof *all);
        if (!all) {
            p->lost = true;
            return;
        }
        p->event = all;
        p->capacity = more;
    }
    p->event[p->nevents++] = e;
}

void aprt_profile_begin(aprt_device *d)
{
    aprt_profile *p = d->profile;
    p->nevents = 0;
    p->running = p->complete = p->lost = false;
}

void aprt_profile_end(aprt_device *d)
{
    d->profile->complete = !d->profile->lost;
}

static void finish_instruction(aprt_device *d, double t)
{
    aprt_profile *p = d->profile;
    if (p->running && p->seconds)
        p->seconds[p->at] += t - p->last;
    if (p->running && p->tracing)
        add_event(p, (event){INSTRUCTION, p->at, d->mb, p->last, t});
    p->last = t;
}

void aprt_profile_mark(aprt_device *d)
{
    finish_instruction(d, aprt_profile_now());
    d->profile->at = d->at;
    d->profile->running = true;
}

void aprt_profile_pause(aprt_device *d)
{
    finish_instruction(d, aprt_profile_now());
    d->profile->running = false;
}

void aprt_profile_instruction(aprt_device *d, uint32_t at, int64_t mb, bool beside, double from, double to)
{
    aprt_profile *p = d->profile;
    if (p->seconds)
        p->seconds[at] += to - from;
    if (p->tracing)
        add_event(p, (event){beside ? BESIDE : INSTRUCTION, at, mb, from, to});
}

void aprt_profile_step(aprt_device *d, aprt_list_step step, uint32_t channel, int64_t mb, double from)
{
    if (d->profile->tracing)
        add_event(d->profile, (event){(int32_t)step, channel, mb, from, aprt_profile_now()});
}

/* ---- from all processes ---- */

int aprt_profile_gather(aprt_instance *in, double **out, aprt_failure *why)
{
    const aprt_program *p = in->program;
    size_t all = 0, at = 0, total;
    double *own, *later = NULL;
    void *got = NULL;
    for (uint32_t s = 0; s < p->nstages; s++)
        all += p->stage[s].ninstrs;
    own = calloc(all + 1, sizeof *own);
    if (!own)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory");
    for (uint32_t s = 0; s < p->nstages; s++) {
        const double *seconds = aprt_profile_seconds(in, s);
        if (seconds)
            memcpy(own + at, seconds, p->stage[s].ninstrs * sizeof *own);
        at += p->stage[s].ninstrs;
    }
    int status = in->comm->ops->gather(in->comm, own, all * sizeof *own, &got, &total, &later, why);
    /* every process has numbers for its own stage and zeros elsewhere */
    *out = got;
    for (size_t i = all; got && i < total / sizeof *own; i++)
        (*out)[i % all] += (*out)[i];
    free(own);
    free(later);
    return status;
}

/* ---- as a file for Perfetto and chrome://tracing ---- */

/* The events of a rank as they travel: this, then `count` events. */
typedef struct block {
    int32_t rank;
    uint32_t unused;
    uint64_t count;
} block;

typedef struct track {
    const event *event;
    size_t count;
    double later; /* of its clock than ours */
} track;

static int pack_events(const aprt_instance *in, char **out, size_t *size, aprt_failure *why)
{
    *size = 0;
    for (int32_t r = 0; r < in->nworkers; r++)
        *size += sizeof(block) + in->worker[r].device.profile->nevents * sizeof(event);
    char *at = *out = malloc(*size);
    if (!at)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory for a trace");
    for (int32_t r = 0; r < in->nworkers; r++) {
        const aprt_profile *p = in->worker[r].device.profile;
        block b = {in->first_rank + r, 0, p->nevents};
        memcpy(at, &b, sizeof b);
        if (p->nevents)
            memcpy(at + sizeof b, p->event, p->nevents * sizeof *p->event);
        at += sizeof b + p->nevents * sizeof *p->event;
    }
    return APRT_OK;
}

static void unpack_events(const aprt_instance *in, const char *bytes, size_t size, const double *later, track *out)
{
    for (size_t at = 0; at + sizeof(block) <= size;) {
        block b;
        memcpy(&b, bytes + at, sizeof b);
        at += sizeof b;
        /* one clock, or one for each process */
        out[b.rank] = (track){(const event *)(bytes + at), (size_t)b.count,
                              later[in->nworkers == in->program->nranks ? 0 : b.rank]};
        at += (size_t)b.count * sizeof(event);
    }
}

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
    fprintf(f, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", what, process, thread);
    print_string(f, name);
    fputs("}},\n", f);
}

/* Times in microseconds. */
static void print_event(FILE *f, const aprt_program *p, const aprt_instr *i, int process, int thread, int64_t mb,
                        double from, double duration)
{
    fputs("{\"ph\":\"X\",\"name\":", f);
    print_string(f, i->what);
    fprintf(f, ",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"node\":", process, thread, from, duration);
    print_string(f, i->node);
    fputs(",\"operator\":", f);
    print_string(f, i->op);
    if (p->microbatches > 1)
        fprintf(f, ",\"microbatch\":%lld", (long long)mb);
    fprintf(f, ",\"predicted_us\":%.3f}},\n", 1e-6 * (double)i->picoseconds);
}

static void print_step(FILE *f, const aprt_program *p, const event *e, int thread, double from, double duration)
{
    static const char *const name[] = {
        [APRT_STEP_RECV] = "recv", [APRT_STEP_CLAIM] = "claim", [APRT_STEP_SEND] = "send"};
    fprintf(f, "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"channel\":",
            name[e->step], thread, from, duration);
    print_string(f, p->channel[e->what].name);
    fprintf(f, ",\"microbatch\":%lld}},\n", (long long)e->mb);
}

/* What was predicted, a track for each stage. Where it is not known when a stage begins with a microbatch, that is when
 * it has done the one before and the stages that send to it have done theirs. `done`: per stage, microseconds. */
static void print_predicted(FILE *f, const aprt_program *p, double *done)
{
    for (int64_t mb = 0; mb < p->microbatches; mb++)
        for (uint32_t s = 0; s < p->nstages; s++) {
            for (uint32_t c = 0; c < p->nchannels; c++)
                if (p->channel[c].dst_stage == (int32_t)s && done[p->channel[c].src_stage] > done[s])
                    done[s] = done[p->channel[c].src_stage];
            if (p->run_ps)
                done[s] = 1e-6 * (double)p->run_ps[s * p->microbatches + mb];
            for (uint32_t i = 0; i < p->stage[s].ninstrs; i++) {
                double duration = 1e-6 * (double)p->stage[s].instr[i].picoseconds;
                print_event(f, p, &p->stage[s].instr[i], 2, (int)s, mb, done[s], duration);
                done[s] += duration;
            }
        }
}

/* Predicted transfers, a track for each channel. */
static void print_moves(FILE *f, const aprt_program *p)
{
    for (uint32_t c = 0; c < p->nchannels && p->move_ps; c++)
        for (int64_t mb = 0; mb < p->microbatches; mb++) {
            const int64_t *ps = &p->move_ps[2 * (c * p->microbatches + mb)];
            fprintf(
                f,
                "{\"ph\":\"X\",\"name\":\"move\",\"pid\":3,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"channel\":",
                c, 1e-6 * (double)ps[0], 1e-6 * (double)(ps[1] - ps[0]));
            print_string(f, p->channel[c].name);
            fprintf(f, ",\"microbatch\":%lld}},\n", (long long)mb);
        }
}

static const aprt_stage *stage_of(const aprt_program *p, int32_t rank)
{
    const aprt_stage *s = p->stage;
    while (rank < s->first_rank || rank >= s->first_rank + s->nranks)
        s++;
    return s;
}

static void print_names(FILE *f, const aprt_program *p)
{
    char name[96];
    print_name(f, "process_name", 1, 0, "measured");
    print_name(f, "process_name", 2, 0, "predicted");
    for (int32_t r = 0; r < p->nranks; r++) {
        snprintf(name, sizeof name, "device %d", r);
        print_name(f, "thread_name", 1, r, name);
        snprintf(name, sizeof name, "device %d, exchanges", r);
        if (stage_of(p, r)->target && stage_of(p, r)->nexchanges)
            print_name(f, "thread_name", 1, p->nranks + r, name);
    }
    for (uint32_t s = 0; s < p->nstages && p->nstages > 1; s++) {
        snprintf(name, sizeof name, "stage %u %.60s", s, p->stage[s].name);
        print_name(f, "thread_name", 2, (int)s, name);
    }
    if (p->move_ps)
        print_name(f, "process_name", 3, 0, "predicted transfers");
    for (uint32_t c = 0; c < p->nchannels && p->move_ps; c++) {
        snprintf(name, sizeof name, "%.60s to stage %d", p->channel[c].name, p->channel[c].dst_stage);
        print_name(f, "thread_name", 3, (int)c, name);
    }
}

static void print_trace(FILE *f, const aprt_instance *in, const track *t, double *done)
{
    const aprt_program *p = in->program;
    double first = 0;
    bool any = false;
    for (int32_t r = 0; r < p->nranks; r++)
        if (t[r].count && (!any || t[r].event[0].from - t[r].later < first)) {
            first = t[r].event[0].from - t[r].later;
            any = true;
        }
    fputs("{\"traceEvents\":[\n", f);
    print_names(f, p);
    for (int32_t r = 0; r < p->nranks; r++)
        for (size_t i = 0; i < t[r].count; i++) {
            const event *e = &t[r].event[i];
            double from = 1e6 * (e->from - t[r].later - first), duration = 1e6 * (e->to - e->from);
            if (e->step < 0) /* what overlaps has tracks of its own */
                print_event(f, p, &stage_of(p, r)->instr[e->what], 1, e->step == BESIDE ? p->nranks + r : r, e->mb,
                            from, duration);
            else
                print_step(f, p, e, r, from, duration);
        }
    print_predicted(f, p, done);
    print_moves(f, p);
    fputs("{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":1,\"tid\":0,\"args\":{\"sort_index\":0}}\n"
          "],\"displayTimeUnit\":\"ns\"}\n",
          f); /* what was measured stands first */
}

static int write_trace(const aprt_instance *in, const char *path, const track *t, aprt_failure *why)
{
    char *text = NULL;
    size_t size = 0;
    double *done = calloc(in->program->nstages, sizeof *done);
    FILE *f = done ? open_memstream(&text, &size) : NULL;
    bool good = f != NULL;
    if (f) {
        print_trace(f, in, t, done);
        good = !ferror(f);
        good = fclose(f) == 0 && good;
    }
    int status = good ? aprt_file_write(path, "", 0, text, size, why)
                      : aprt_fail(why, APRT_ERR_ENV, "out of memory for a trace");
    free(text);
    free(done);
    return status;
}

int aprt_trace_write(const aprt_instance *in, const char *path, aprt_failure *why)
{
    char *own = NULL;
    void *all = NULL;
    double *later = NULL;
    size_t size = 0, total = 0;
    for (int32_t r = 0; r < in->nworkers || r == 0; r++) {
        const aprt_profile *p = in->worker ? in->worker[r].device.profile : NULL;
        if (!p || !p->tracing || !p->complete)
            return aprt_fail(why, APRT_ERR_USAGE, "%s: there is no run to be traced", path);
    }
    int status = pack_events(in, &own, &size, why);
    if (status == APRT_OK)
        status = in->comm->ops->gather(in->comm, own, size, &all, &total, &later, why);
    if (status == APRT_OK && all) {
        track *t = calloc((size_t)in->program->nranks, sizeof *t);
        if (t)
            unpack_events(in, all, total, later, t);
        status = t ? write_trace(in, path, t, why) : aprt_fail(why, APRT_ERR_ENV, "out of memory for a trace");
        free(t);
    }
    free(own);
    free(all);
    free(later);
    return status;
}

int aprt_trace_finish(aprt_instance *in, aprt_failure *why)
{
    const char *path = getenv("AUTOPAR_TRACE");
    if (!path)
        return APRT_OK;
    in->traced = true;
    return aprt_trace_write(in, path, why);
}
