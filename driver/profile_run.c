/* The cases as a program: lowered as any other, built by either code generator, run with a trace; the lower quartiles
 * of its instructions over runs and devices: what disturbs a run only adds to it, and of an exchange the device that
 * comes last says what it costs without the waiting. What an instruction does is asked of its price: by clusters of
 * which one figure is 10^9 and the others are without limit, picoseconds are work. */
#include "driver/profile.h"

#include "backend/backend.h"
#include "driver/jit.h"
#include "driver/process.h"
#include "ir/base/file.h"
#include "ir/text_form.h"
#include "passes/local_price.h"
#include "passes/pipe/lower.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 7, QUICK_RUNS = 2 };
#define GIGA INT64_C(1000000000)
#define ENDLESS (INT64_C(1) << 53)

/* ---- the program ---- */

static ap_status make_program(ap_ctx *ctx, const ap_profile_options *opt, ap_program **out)
{
    ap_text text;
    ap_module *m;
    ap_cluster c;
    ap_text_init(&text, &ctx->arena);
    ap_profile_cases(&text, opt->devices, opt->quick);
    AP_TRY(ap_module_parse(ctx, "profile", ap_text_str(&text), text.len, &m));
    AP_TRY(ap_module_verify(m));
    ap_cluster_local(opt->devices, &c);
    ap_pipeline *p = ap_pipeline_of_module(m, ap_name_format(ctx, "profile"));
    return ap_lower_program(ctx, p, &c, "profile", out);
}

/* The program of the cases: a file, or code of this process. */
typedef struct built {
    const char *model;
    ap_jit *jit;
} built;

static ap_status build(ap_ctx *ctx, const ap_profile_options *opt, ap_program *p, built *out)
{
    const char *include, *lib;
    *out = (built){ap_name_str(ctx, ap_name_format(ctx, "%s/model", opt->dir)), NULL};
    if (opt->jit)
        return ap_jit_open(ctx, NULL, p, "cases", &out->jit);
    AP_TRY(ap_find_runtime(ctx, &include, &lib));
    AP_TRY(ap_backend_c_emit(
        ctx, p, &(ap_backend_options){.dir = opt->dir, .name = "cases", .header = "Kernels that autopar measures."}));
    return ap_backend_c_build(
        ctx, opt->dir, "cases",
        &(ap_backend_toolchain){.include_dir = include, .lib_dir = lib, .convolutions = ap_backend_has_conv(p, NULL)});
}

static ap_status start(ap_ctx *ctx, const built *b, const char *const *argv)
{
    int code, argc = 0;
    if (!b->jit) {
        AP_TRY(ap_process_run(ctx, argv, true, &code));
    } else {
        while (argv[argc])
            argc++;
        code = (int)ap_jit_run(b->jit, argc, argv, true);
    }
    return code == 0 ? AP_OK : ap_fail(ctx, AP_ERR_ENV, 0, "the program of the cases ended with code %d", code);
}

/* ---- work ---- */

/* Exchanges are asked for their price by clusters of which one figure is 10^9 and the others are without limit. */
static ap_cluster endless(int32_t devices)
{
    ap_cluster c;
    ap_cluster_local(devices, &c);
    c.launch_ps = 0;
    c.inside = (ap_level){0, ENDLESS, 0};
    return c;
}

static int64_t *work_by(ap_arena *arena, ap_program *p, const ap_cluster *c, int64_t unit)
{
    const ap_local *l = p->stages.at[0];
    int64_t *work = AP_NEW_ARRAY(arena, int64_t, l->instrs.len);
    ap_program_price(p, c);
    for (uint32_t i = 0; i < l->instrs.len; i++)
        work[i] = l->instrs.at[i].picoseconds / unit;
    return work;
}

static ap_profile_kind kind_of(ap_ctx *ctx, const ap_instr *in)
{
    const char *op = ap_name_str(ctx, ap_loc_get(ctx, in->loc).op);
    for (int k = 0; k < AP_PROFILE_COUNT; k++)
        if (strcmp(op, ap_profile_kind_str((ap_profile_kind)k)) == 0)
            return (ap_profile_kind)k;
    return AP_PROFILE_FILL; /* what lowering added */
}

static void find_touches(const ap_instr *in, const ap_touch *t, ap_profile_case *out)
{
    for (uint32_t r = 0; r < in->nrefs; r++) {
        out->bytes = ap_sat_add(out->bytes, t[r].bytes);
        out->work.alone = ap_sat_add(out->work.alone, t[r].alone);
        if (out->ntouches < AP_PROFILE_TOUCHES)
            out->touch[out->ntouches++] = (ap_profile_touch){t[r].bytes, t[r].distance};
    }
}

static void find_work(ap_ctx *ctx, int32_t devices, ap_program *p, ap_profile *out)
{
    const ap_local *l = p->stages.at[0];
    ap_cluster link = endless(devices), latency = link;
    link.inside.bytes_per_second = GIGA;
    latency.inside.latency_ps = GIGA;
    ap_arena *scratch = &ctx->scratch;
    const int64_t *crossing = work_by(scratch, p, &link, 1000), *steps = work_by(scratch, p, &latency, GIGA);
    ap_touch **touch = ap_local_touches(l, scratch, INT64_MAX);
    out->ncases = l->instrs.len;
    out->at = AP_NEW_ARRAY(&ctx->arena, ap_profile_case, out->ncases);
    for (uint32_t i = 0; i < out->ncases; i++) {
        const ap_instr *in = &l->instrs.at[i];
        ap_profile_case *c = &out->at[i];
        c->name = ap_name_str(ctx, ap_loc_get(ctx, in->loc).node);
        c->kind = kind_of(ctx, in);
        if (in->kind == AP_INSTR_EXCHANGE) {
            c->bytes = crossing[i];
            c->steps = steps[i];
            continue;
        }
        ap_local_work(&l->kernels.at[in->kernel], &c->work);
        find_touches(in, touch[i], c);
    }
}

/* ---- runs ---- */

static ap_status read_trace(ap_ctx *ctx, const char *path, int32_t devices, uint32_t n, double *out)
{
    ap_file f;
    AP_TRY(ap_file_map(ctx, path, &f));
    cJSON *root = cJSON_ParseWithLength((const char *)f.data, (size_t)f.size);
    ap_file_unmap(&f);
    uint32_t *seen = AP_NEW_ARRAY(&ctx->scratch, uint32_t, devices);
    const cJSON *e;
    cJSON_ArrayForEach(e, cJSON_GetObjectItem(root, "traceEvents"))
    {
        const cJSON *process = cJSON_GetObjectItem(e, "pid"), *thread = cJSON_GetObjectItem(e, "tid");
        const cJSON *duration = cJSON_GetObjectItem(e, "dur");
        if (!cJSON_IsNumber(process) || process->valueint != 1 || !cJSON_IsNumber(duration) || !cJSON_IsNumber(thread))
            continue;
        int32_t r = thread->valueint;
        if (r < 0 || r >= devices || seen[r] >= n)
            return ap_fail(ctx, AP_ERR_BUG, 0, "%s: more events than instructions", path);
        out[(size_t)r * n + seen[r]++] = 1e-6 * duration->valuedouble;
    }
    for (int32_t r = 0; r < devices; r++)
        if (seen[r] != n)
            return ap_fail(ctx, AP_ERR_BUG, 0, "%s: device %d has %u events of %u", path, r, seen[r], n);
    return AP_OK;
}

static ap_status run_once(ap_ctx *ctx, const ap_profile_options *opt, const built *b, uint32_t n, double *out)
{
    const char *trace = ap_name_str(ctx, ap_name_format(ctx, "%s/trace.json", opt->dir));
    const char *const argv[] = {b->model, "--repeat", "3", "--trace", trace, "--output-dir", opt->dir, NULL};
    AP_TRY(start(ctx, b, argv));
    return read_trace(ctx, trace, opt->devices, n, out);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(const ap_profile_options *opt, const char *what, int done, int of)
{
    if (opt->progress)
        opt->progress(opt->user, what, done, of);
}

/* Seconds of every instruction in every run on every device. */
static ap_status run_all(ap_ctx *ctx, const ap_profile_options *opt, const built *b, int runs, uint32_t n, double *out)
{
    for (int r = 0; r < runs; r++) {
        tell(opt, "run", r, runs);
        AP_TRY(run_once(ctx, opt, b, n, out + (size_t)r * (size_t)opt->devices * n));
    }
    return AP_OK;
}

ap_status ap_profile_measure(ap_ctx *ctx, const ap_profile_options *opt, ap_profile *out, ap_program **out_program)
{
    int runs = opt->quick ? QUICK_RUNS : RUNS;
    built b;
    tell(opt, "building", 0, 1);
    AP_TRY(make_program(ctx, opt, out_program));
    find_work(ctx, opt->devices, *out_program, out);
    AP_TRY(build(ctx, opt, *out_program, &b));
    size_t n = out->ncases, samples = (size_t)runs * (size_t)opt->devices;
    double *all = AP_NEW_ARRAY(&ctx->arena, double, n *samples), *one = AP_NEW_ARRAY(&ctx->arena, double, samples);
    ap_status status = run_all(ctx, opt, &b, runs, out->ncases, all);
    ap_jit_close(b.jit);
    AP_TRY(status);
    for (size_t i = 0; i < n; i++) {
        for (size_t s = 0; s < samples; s++)
            one[s] = all[s * n + i];
        qsort(one, samples, sizeof *one, compare);
        out->at[i].seconds = one[(samples - 1) / 4];
    }
    tell(opt, "", runs, runs);
    return AP_OK;
}
