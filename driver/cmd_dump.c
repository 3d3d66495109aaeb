/* dump: a plan as text, JSON, a graph or a trace of how it runs, or the program in one of its states as IR. */
#include "driver/commands.h"

#include "driver/plan_file.h"
#include "driver/prediction.h"
#include "ir/base/file.h"
#include "ir/text_form.h"
#include "passes/pipe/lower.h"

#include <string.h>
#include <sys/stat.h>

static const char *const states[] = {"imported", "normal", "planned", "explicit", "local"};
enum { IMPORTED, NORMAL, PLANNED, EXPLICIT, LOCAL, NSTATES };

static ap_status find_state(ap_ctx *ctx, const char *name, int fallback, int *out)
{
    *out = fallback;
    if (!name)
        return AP_OK;
    for (int i = 0; i < NSTATES; i++)
        if (strcmp(states[i], name) == 0) {
            *out = i;
            return AP_OK;
        }
    return ap_fail(ctx, AP_ERR_USAGE, 0, "--state: imported, normal, planned, explicit or local, not '%s'", name);
}

/* States before planned. */
static void print_module(ap_ctx *ctx, const ap_module *m)
{
    ap_text t;
    ap_text_init(&t, &ctx->scratch);
    ap_module_print(m, &t);
    fputs(ap_text_str(&t), stdout);
}

/* A planned pipeline, in this state; `stage` AP_NONE: all of it. */
static ap_status print_lowered(ap_ctx *ctx, ap_pipeline *p, const ap_cluster *c, const char *name, int state,
                               uint32_t stage)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_program *program = NULL;
    if (state >= EXPLICIT)
        AP_TRY(ap_pipe_explicit(ctx, p, c));
    if (state == LOCAL) {
        AP_TRY(ap_lower_program(ctx, p, c, name, &program));
        ap_program_price(program, c);
        ap_program_close_ranks(program);
    }
    if (stage != AP_NONE && program)
        ap_local_print(program->stages.at[stage], &t);
    else if (stage != AP_NONE)
        ap_module_print(p->stages.at[stage].m, &t);
    else if (program)
        ap_program_print(program, &t);
    else
        ap_pipeline_print(p, &t);
    fputs(ap_text_str(&t), stdout);
    return AP_OK;
}

/* How the program runs, as the simulator says. */
static ap_status dump_trace(ap_ctx *ctx, ap_pipeline *pipeline, const ap_cluster *c, const char *state)
{
    ap_prediction p;
    AP_TRY(ap_prediction_make(ctx, pipeline, c, state, &p));
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_prediction_trace(&p, &t);
    fputs(ap_text_str(&t), stdout);
    return AP_OK;
}

/* --stage K, AP_NONE without. */
static ap_status find_stage(ap_ctx *ctx, const ap_options *opt, const ap_pipeline *p, uint32_t *out)
{
    int64_t stage = -1;
    if (opt->stage && p->stages.len == 1 && strcmp(opt->stage, "0") != 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--stage: there is one, number 0, not '%s'", opt->stage);
    if (opt->stage)
        AP_TRY(ap_option_int(ctx, "stage", opt->stage, 0, p->stages.len - 1, &stage));
    *out = stage < 0 ? AP_NONE : (uint32_t)stage;
    return AP_OK;
}

static ap_status dump_plan(ap_ctx *ctx, const ap_options *opt, const char *format)
{
    ap_plan_file f;
    AP_TRY(ap_plan_file_read(ctx, opt->subject, &f));
    if (strcmp(format, "json") == 0) {
        struct stat st;
        bool dir = stat(opt->subject, &st) == 0 && S_ISDIR(st.st_mode);
        const char *path = dir ? ap_name_str(ctx, ap_name_format(ctx, "%s/plan.json", opt->subject)) : opt->subject;
        ap_file file;
        AP_TRY(ap_file_map(ctx, path, &file));
        fwrite(file.data, 1, (size_t)file.size, stdout);
        printf("\n");
        ap_file_unmap(&file);
        return AP_OK;
    }
    int state;
    AP_TRY(find_state(ctx, opt->state, PLANNED, &state));
    if (state < PLANNED)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--state: a plan holds states planned, explicit and local");
    uint32_t stage;
    AP_TRY(find_stage(ctx, opt, f.p, &stage));
    if (strcmp(format, "ir") == 0)
        return print_lowered(ctx, f.p, &f.cluster, "model", state, stage);
    if (strcmp(format, "dot") == 0)
        return ap_dump_dot(ctx, f.p, &f.cluster, f.model, opt->verbose > 0);
    if (strcmp(format, "trace") == 0)
        return dump_trace(ctx, f.p, &f.cluster, opt->state);
    const char *text;
    AP_TRY(ap_plan_report(ctx, f.p, &f.cluster, &f.result, f.model, f.digest, &text));
    fputs(text, stdout);
    return AP_OK;
}

static ap_status dump_model(ap_ctx *ctx, const ap_options *opt, const char *format, ap_job *job)
{
    int state;
    bool plans = opt->plan || ap_plan_is_asked(opt);
    AP_TRY(find_state(ctx, opt->state, strcmp(format, "ir") == 0 && !plans ? IMPORTED : PLANNED, &state));
    AP_TRY(ap_job_import(ctx, opt, true, job));
    if (state >= NORMAL)
        AP_TRY(ap_job_normalise(job));
    if (state >= PLANNED)
        AP_TRY(ap_job_plan(job));
    const char *text;
    if (strcmp(format, "json") == 0) {
        AP_TRY(ap_plan_file_text(job, &text));
        printf("%s\n", text);
        return AP_OK;
    }
    const ap_cluster *c = &job->request.plan.cluster;
    if (strcmp(format, "ir") == 0 && state < PLANNED) {
        if (opt->stage)
            return ap_fail(ctx, AP_ERR_USAGE, 0, "--stage: before planning there are no stages");
        print_module(ctx, job->m);
        return AP_OK;
    }
    uint32_t stage;
    AP_TRY(find_stage(ctx, opt, job->p, &stage));
    AP_TRY(ap_job_name(ctx, opt, &text));
    if (strcmp(format, "ir") == 0)
        return print_lowered(ctx, job->p, c, text, state, stage);
    const char *slash = strrchr(opt->subject, '/');
    if (strcmp(format, "dot") == 0)
        return ap_dump_dot(ctx, job->p, c, slash ? slash + 1 : opt->subject, opt->verbose > 0);
    if (strcmp(format, "trace") == 0)
        return dump_trace(ctx, job->p, c, opt->state);
    AP_TRY(ap_job_report(job, &text));
    fputs(text, stdout);
    return AP_OK;
}

ap_status ap_cmd_dump(ap_ctx *ctx, const ap_options *opt)
{
    const char *end = strrchr(opt->subject, '.');
    struct stat st;
    bool plan = (end && strcmp(end, ".json") == 0) || (stat(opt->subject, &st) == 0 && S_ISDIR(st.st_mode));
    const char *format = opt->format ? opt->format : opt->json ? "json" : plan ? "text" : "ir";
    if (strcmp(format, "text") != 0 && strcmp(format, "json") != 0 && strcmp(format, "ir") != 0 &&
        strcmp(format, "dot") != 0 && strcmp(format, "trace") != 0)
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--format: text, json, ir, dot or trace, not '%s'", format);
    bool ir = strcmp(format, "ir") == 0;
    if (!ir && (opt->stage || (opt->state && strcmp(format, "trace") != 0)))
        return ap_fail(ctx, AP_ERR_USAGE, 0, "--%s belongs to --format ir", opt->state ? "state" : "stage");
    if (plan) {
        AP_TRY(ap_plan_is_given(ctx, opt));
        return dump_plan(ctx, opt, format);
    }
    ap_job job = {0};
    ap_status s = dump_model(ctx, opt, format, &job);
    ap_job_deinit(&job);
    return s;
}
