/* A simulated run as a trace. Process 1: ranks, with what they run and what they wait for; process 2: wires, with what
 * is on its way; counters for memory. An arrow leads from the run that makes a microbatch over its transfer to the run
 * that reads it. */
#include "driver/prediction.h"

#include <inttypes.h>

enum { RANKS = 1, WIRES = 2, MAX_TRACED = 200000 };

typedef struct trace {
    const ap_prediction *p;
    ap_text *t;
    bool any;    /* something stands before */
    bool inside; /* what runs consist of is drawn too */
} trace;

static void add_string(ap_text *t, const char *s)
{
    ap_text_add(t, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            ap_text_add(t, "\\");
        if ((unsigned char)*s < ' ')
            ap_text_addf(t, "\\u%04x", (unsigned)*s);
        else
            ap_text_add_n(t, s, 1);
    }
    ap_text_add(t, "\"");
}

static double us(int64_t ps)
{
    return (double)ps * 1e-6;
}

static void begin(trace *x, const char *phase, int process, int64_t thread)
{
    ap_text_addf(x->t, "%s{\"ph\":\"%s\",\"pid\":%d,\"tid\":%" PRId64, x->any ? ",\n" : "", phase, process, thread);
    x->any = true;
}

static void add_label(trace *x, const char *what, int process, int64_t thread, const char *name)
{
    begin(x, "M", process, thread);
    ap_text_addf(x->t, ",\"name\":\"%s\",\"args\":{\"name\":", what);
    add_string(x->t, name);
    ap_text_add(x->t, "}}");
}

static const char *node_of(const trace *x, ap_loc loc)
{
    return ap_name_str(x->p->ctx, ap_loc_get(x->p->ctx, loc).node);
}

static void add_slice(trace *x, int process, int64_t thread, const char *name, int64_t start, int64_t end)
{
    begin(x, "X", process, thread);
    ap_text_addf(x->t, ",\"ts\":%.6f,\"dur\":%.6f,\"name\":", us(start), us(end - start));
    add_string(x->t, name);
}

static void add_microbatch(trace *x, int32_t k)
{
    ap_text_addf(x->t, ",\"args\":{\"microbatch\":%" PRId32 "}}", k);
}

/* What one run consists of, one behind the other. */
static void add_inside(trace *x, uint32_t stage, int64_t rank, int64_t start)
{
    const ap_sim_steps *run = &x->p->model->run[stage];
    for (uint32_t i = 0; i < run->steps.len; i++) {
        const ap_sim_step *n = &run->steps.at[i];
        int64_t end = ap_sat_add(start, n->ps);
        add_slice(x, RANKS, rank, ap_name_str(x->p->ctx, n->name), start, end);
        ap_text_addf(x->t, ",\"cat\":\"%s\",\"args\":{\"node\":", n->exchange ? "exchange" : "kernel");
        add_string(x->t, node_of(x, n->loc));
        ap_text_add(x->t, "}}");
        start = end;
    }
}

static void add_run(trace *x, const ap_sim_event *e)
{
    for (int32_t k = 0; k < x->p->model->in.stage[e->stage].nranks; k++) {
        int64_t rank = (int64_t)x->p->model->first_rank[e->stage] + k;
        add_slice(x, RANKS, rank, "run", e->start_ps, e->end_ps);
        add_microbatch(x, e->microbatch);
        if (x->inside)
            add_inside(x, e->stage, rank, e->start_ps);
    }
}

static void add_wait(trace *x, const ap_sim_event *e)
{
    const ap_wire *w = &x->p->model->w.wire[e->wire];
    ap_ctx *ctx = x->p->ctx;
    const char *name = ap_name_str(
        ctx, ap_name_format(ctx, "%s %%%s", w->to == e->stage ? "recv" : "claim", ap_name_str(ctx, w->slot)));
    for (int32_t k = 0; k < x->p->model->in.stage[e->stage].nranks; k++) {
        add_slice(x, RANKS, (int64_t)x->p->model->first_rank[e->stage] + k, name, e->start_ps, e->end_ps);
        ap_text_add(x->t, ",\"cat\":\"wait\"");
        add_microbatch(x, e->microbatch);
    }
}

/* One end of an arrow, bound to the slice that lies around it. */
static void add_arrow(trace *x, const char *phase, int process, int64_t thread, int64_t ps, int64_t id)
{
    begin(x, phase, process, thread);
    ap_text_addf(x->t, ",\"ts\":%.6f,\"id\":%" PRId64 ",\"cat\":\"wire\",\"name\":\"wire\",\"bp\":\"e\"}", us(ps), id);
}

/* `start`, `end`: of each run of each stage, by microbatch. */
static void add_transfer(trace *x, const ap_sim_event *e, int64_t *const *start, int64_t *const *end)
{
    const ap_wiring *w = &x->p->model->w;
    const ap_wire *of = &w->wire[e->wire];
    const int32_t *first_rank = x->p->model->first_rank;
    int64_t id = (int64_t)e->wire * w->microbatches + e->microbatch;
    add_slice(x, WIRES, e->wire, ap_name_str(x->p->ctx, of->slot), e->start_ps, e->end_ps);
    add_microbatch(x, e->microbatch);
    int64_t out = end[of->from][e->microbatch], in = start[of->to][e->microbatch];
    add_arrow(x, "s", RANKS, first_rank[of->from], out > start[of->from][e->microbatch] ? out - 1 : out, id);
    add_arrow(x, "t", WIRES, e->wire, e->start_ps, id);
    add_arrow(x, "f", RANKS, first_rank[of->to], in, id);
}

static void add_labels(trace *x)
{
    const ap_wiring *w = &x->p->model->w;
    add_label(x, "process_name", RANKS, 0, "simulated");
    for (uint32_t s = 0; s < w->nstages; s++) {
        for (int32_t k = 0; k < x->p->model->in.stage[s].nranks; k++) {
            int32_t rank = x->p->model->first_rank[s] + k;
            ap_name label =
                ap_name_format(x->p->ctx, "device %" PRId32 " %s", rank, ap_name_str(x->p->ctx, w->stage[s]));
            add_label(x, "thread_name", RANKS, rank, ap_name_str(x->p->ctx, label));
        }
    }
    if (w->nwires)
        add_label(x, "process_name", WIRES, 0, "transfers");
    for (uint32_t i = 0; i < w->nwires; i++)
        add_label(x, "thread_name", WIRES, i,
                  ap_name_str(x->p->ctx, ap_name_format(x->p->ctx, "%s -> %s %%%s",
                                                        ap_name_str(x->p->ctx, w->stage[w->wire[i].from]),
                                                        ap_name_str(x->p->ctx, w->stage[w->wire[i].to]),
                                                        ap_name_str(x->p->ctx, w->wire[i].slot))));
}

static void add_memory(trace *x)
{
    for (uint32_t i = 0; i < x->p->result.memory.len; i++) {
        const ap_sim_memory *m = &x->p->result.memory.at[i];
        for (int32_t k = 0; k < x->p->model->in.stage[m->stage].nranks; k++) {
            begin(x, "C", RANKS, 0);
            ap_text_addf(x->t,
                         ",\"ts\":%.6f,\"name\":\"memory of device %" PRId32 "\",\"args\":{\"bytes\":%" PRId64 "}}",
                         us(m->ps), x->p->model->first_rank[m->stage] + k, m->bytes);
        }
    }
}

/* Or would the steps of all runs be too many? */
static bool fits_inside(const ap_prediction *p)
{
    int64_t n = 0;
    for (uint32_t s = 0; s < p->model->w.nstages; s++)
        n += (int64_t)p->model->run[s].steps.len * p->model->in.stage[s].nranks * p->model->w.microbatches;
    return n <= MAX_TRACED;
}

void ap_prediction_trace(const ap_prediction *p, ap_text *out)
{
    const ap_wiring *w = &p->model->w;
    ap_arena *arena = &p->ctx->scratch;
    trace x = {.p = p, .t = out, .inside = fits_inside(p)};
    int64_t **start = AP_NEW_ARRAY(arena, int64_t *, w->nstages), **end = AP_NEW_ARRAY(arena, int64_t *, w->nstages);
    for (uint32_t s = 0; s < w->nstages; s++) {
        start[s] = AP_NEW_ARRAY(arena, int64_t, w->microbatches);
        end[s] = AP_NEW_ARRAY(arena, int64_t, w->microbatches);
    }
    ap_text_add(out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    add_labels(&x);
    for (uint32_t i = 0; i < p->result.events.len; i++) {
        const ap_sim_event *e = &p->result.events.at[i];
        if (e->kind != AP_SIM_RUN)
            continue;
        start[e->stage][e->microbatch] = e->start_ps;
        end[e->stage][e->microbatch] = e->end_ps;
        add_run(&x, e);
    }
    for (uint32_t i = 0; i < p->result.events.len; i++) {
        const ap_sim_event *e = &p->result.events.at[i];
        if (e->kind == AP_SIM_WAIT)
            add_wait(&x, e);
        else if (e->kind == AP_SIM_TRANSFER)
            add_transfer(&x, e, start, end);
    }
    add_memory(&x);
    ap_text_add(out, "\n]}\n");
}
