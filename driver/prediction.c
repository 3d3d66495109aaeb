/* Figures of the simulator as text and as JSON. */
#include "driver/prediction.h"

#include "passes/pipe/lower.h"

#include <inttypes.h>
#include <string.h>

ap_status ap_prediction_make(ap_ctx *ctx, ap_pipeline *p, const ap_cluster *c, const char *state, ap_prediction *out)
{
    ap_program *program;
    ap_sim_model *model;
    *out = (ap_prediction){.ctx = ctx, .lowered = state ? strcmp(state, "local") == 0 : c->transfers_wait};
    if (state && !out->lowered && strcmp(state, "planned") != 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--state: planned or local, not '%s'", state);
    if (out->lowered) {
        AP_TRY(ap_pipe_explicit(ctx, p, c));
        AP_TRY(ap_lower_program(ctx, p, c, "model", &program));
        ap_program_price(program, c);
        model = ap_sim_of_program(program, c, &ctx->arena);
    } else {
        AP_TRY(ap_sim_of_pipeline(p, c, NULL, &ctx->arena, &model));
    }
    out->model = model;
    return ap_simulate(&model->in, &ctx->arena, true, &out->result);
}

/* ---- figures ---- */

static double seconds(int64_t ps)
{
    return (double)ps * 1e-12;
}

static double part_of(int64_t ps, int64_t all)
{
    return all > 0 ? (double)ps / (double)all : 0;
}

/* Of all transfers of a wire: on the way together, and alone. */
static int64_t moving_ps(const ap_prediction *p, uint32_t wire)
{
    int64_t ps = 0;
    for (uint32_t i = 0; i < p->result.events.len; i++) {
        const ap_sim_event *e = &p->result.events.at[i];
        if (e->kind == AP_SIM_TRANSFER && e->wire == wire)
            ps = ap_sat_add(ps, e->end_ps - e->start_ps);
    }
    return ps;
}

/* ---- text ---- */

static void add_ps(ap_text *t, const char *label, int64_t ps)
{
    ap_text_addf(t, "%-24s %16.3f us\n", label, (double)ps * 1e-6);
}

static void report_stages(const ap_prediction *p, ap_text *t)
{
    ap_text_addf(t, "\n%-12s %-11s %12s %9s %9s %9s %9s %14s %14s %14s\n", "stage", "ranks", "run us", "compute",
                 "exchange", "transfer", "bubble", "peak bytes", "at us", "reserved");
    for (uint32_t s = 0; s < p->model->w.nstages; s++) {
        const ap_sim_share *x = &p->result.stage[s];
        const ap_sim_stage *of = &p->model->in.stage[s];
        int32_t first = p->model->first_rank[s];
        char ranks[32];
        snprintf(ranks, sizeof ranks, "%" PRId32 "..%" PRId32, first, first + of->nranks - 1);
        ap_text_addf(t, "%-12s %-11s %12.3f", ap_name_str(p->ctx, p->model->w.stage[s]), ranks,
                     (double)ap_sat_add(of->compute_ps, of->exchange_ps) * 1e-6);
        const int64_t parts[] = {x->compute_ps, x->exchange_ps, x->transfer_ps, x->bubble_ps};
        for (int i = 0; i < 4; i++)
            ap_text_addf(t, " %7.1f %%", 100 * part_of(parts[i], p->result.ps));
        ap_text_addf(t, " %14" PRId64 " %14.3f %14" PRId64 "\n", x->peak_bytes, (double)x->peak_ps * 1e-6,
                     p->model->reserved_bytes[s]);
    }
}

static void report_wires(const ap_prediction *p, ap_text *t)
{
    const ap_wiring *w = &p->model->w;
    if (w->nwires)
        ap_text_addf(t, "\n%-24s %-24s %7s %14s %12s %12s\n", "transfer", "from -> to", "depth", "bytes", "alone us",
                     "mean us");
    for (uint32_t i = 0; i < w->nwires; i++) {
        const ap_wire *x = &w->wire[i];
        char way[64], depth[32];
        snprintf(way, sizeof way, "%.24s -> %.24s", ap_name_str(p->ctx, w->stage[x->from]),
                 ap_name_str(p->ctx, w->stage[x->to]));
        snprintf(depth, sizeof depth, "%" PRId32 ",%" PRId32, x->from_depth, x->to_depth);
        ap_text_addf(t, "%-24s %-24s %7s %14" PRId64 " %12.3f %12.3f\n", ap_name_str(p->ctx, x->slot), way, depth,
                     p->model->moved_bytes[i], (double)ap_sim_alone(&p->model->in.wire[i]) * 1e-6,
                     (double)moving_ps(p, i) * 1e-6 / w->microbatches);
    }
}

void ap_prediction_report(const ap_prediction *p, int64_t planned_ps, ap_text *t)
{
    const ap_sim_result *r = &p->result;
    add_ps(t, "simulated", r->ps);
    ap_text_addf(t, "%-24s %16s\n", "times of", p->lowered ? "kernels" : "planned nodes");
    add_ps(t, "planned", planned_ps);
    add_ps(t, "exposed communication", r->exposed_ps);
    ap_text_addf(t, "%-24s %16.3f %%\n%-24s %16" PRId32 "\n%-24s %16" PRId32 "\n", "bubble", 100 * r->bubble,
                 "microbatches", p->model->w.microbatches, "devices", p->model->nranks);
    report_stages(p, t);
    report_wires(p, t);
}

/* ---- JSON ---- */

static cJSON *stage_json(const ap_prediction *p, uint32_t s)
{
    const ap_sim_share *x = &p->result.stage[s];
    const ap_sim_stage *of = &p->model->in.stage[s];
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "name", ap_name_str(p->ctx, p->model->w.stage[s]));
    cJSON *ranks = cJSON_AddArrayToObject(o, "ranks");
    for (int32_t r = 0; r < of->nranks; r++)
        cJSON_AddItemToArray(ranks, cJSON_CreateNumber(p->model->first_rank[s] + r));
    cJSON_AddNumberToObject(o, "run_seconds", seconds(ap_sat_add(of->compute_ps, of->exchange_ps)));
    cJSON_AddNumberToObject(o, "compute_seconds", seconds(x->compute_ps));
    cJSON_AddNumberToObject(o, "exchange_seconds", seconds(x->exchange_ps));
    cJSON_AddNumberToObject(o, "transfer_seconds", seconds(x->transfer_ps));
    cJSON_AddNumberToObject(o, "bubble_seconds", seconds(x->bubble_ps));
    cJSON_AddNumberToObject(o, "resident_bytes", (double)of->resident_bytes);
    cJSON_AddNumberToObject(o, "reserved_bytes", (double)p->model->reserved_bytes[s]);
    cJSON_AddNumberToObject(o, "peak_bytes", (double)x->peak_bytes);
    cJSON_AddNumberToObject(o, "peak_seconds", seconds(x->peak_ps));
    return o;
}

/* [seconds, bytes] whenever it changes; the last of one instant counts. */
static cJSON *memory_json(const ap_prediction *p, uint32_t s)
{
    cJSON *points = cJSON_CreateArray();
    const ap_sim_memory *last = NULL;
    for (uint32_t i = 0; i <= p->result.memory.len; i++) {
        const ap_sim_memory *m = i < p->result.memory.len ? &p->result.memory.at[i] : NULL;
        if (m && m->stage != s)
            continue;
        if (last && (!m || m->ps != last->ps)) {
            double point[2] = {seconds(last->ps), (double)last->bytes};
            cJSON_AddItemToArray(points, cJSON_CreateDoubleArray(point, 2));
        }
        last = m;
    }
    return points;
}

static cJSON *wire_json(const ap_prediction *p, uint32_t i)
{
    const ap_wiring *w = &p->model->w;
    const ap_wire *x = &w->wire[i];
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "slot", ap_name_str(p->ctx, x->slot));
    cJSON_AddStringToObject(o, "from", ap_name_str(p->ctx, w->stage[x->from]));
    cJSON_AddStringToObject(o, "to", ap_name_str(p->ctx, w->stage[x->to]));
    cJSON_AddNumberToObject(o, "from_depth", x->from_depth);
    cJSON_AddNumberToObject(o, "to_depth", x->to_depth);
    cJSON_AddNumberToObject(o, "bytes", (double)p->model->moved_bytes[i]);
    cJSON_AddNumberToObject(o, "alone_seconds", seconds(ap_sim_alone(&p->model->in.wire[i])));
    cJSON_AddNumberToObject(o, "mean_seconds", seconds(moving_ps(p, i)) / w->microbatches);
    return o;
}

cJSON *ap_prediction_json(const ap_prediction *p, int64_t planned_ps)
{
    const ap_sim_result *r = &p->result;
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "seconds", seconds(r->ps));
    cJSON_AddNumberToObject(o, "planned_seconds", seconds(planned_ps));
    cJSON_AddStringToObject(o, "times_of", p->lowered ? "local" : "planned");
    cJSON_AddNumberToObject(o, "bubble", r->bubble);
    cJSON_AddNumberToObject(o, "exposed_communication_seconds", seconds(r->exposed_ps));
    cJSON_AddNumberToObject(o, "microbatches", p->model->w.microbatches);
    cJSON *stages = cJSON_AddArrayToObject(o, "stages"), *wires = cJSON_AddArrayToObject(o, "transfers");
    for (uint32_t s = 0; s < p->model->w.nstages; s++) {
        cJSON *stage = stage_json(p, s);
        cJSON_AddItemToObject(stage, "memory", memory_json(p, s));
        cJSON_AddItemToArray(stages, stage);
    }
    for (uint32_t i = 0; i < p->model->w.nwires; i++)
        cJSON_AddItemToArray(wires, wire_json(p, i));
    cJSON *devices = cJSON_AddArrayToObject(o, "devices");
    for (uint32_t s = 0; s < p->model->w.nstages; s++)
        for (int32_t k = 0; k < p->model->in.stage[s].nranks; k++) {
            cJSON *d = cJSON_CreateObject();
            cJSON_AddNumberToObject(d, "rank", p->model->first_rank[s] + k);
            cJSON_AddNumberToObject(d, "stage", s);
            cJSON_AddNumberToObject(d, "peak_bytes", (double)r->stage[s].peak_bytes);
            cJSON_AddItemToArray(devices, d);
        }
    return o;
}
