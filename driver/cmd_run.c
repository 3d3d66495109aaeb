/* run: the built program of a folder; a model is compiled into this process where LLVM is built in, else into a
 * temporary folder first. */
#include "driver/commands.h"

#include "driver/jit.h"
#include "driver/launch.h"
#include "driver/plan_file.h"
#include "driver/process.h"
#include "driver/supervise.h"

#include <autopar_rt.h>
#include <string.h>
#include <sys/stat.h>

/* --json: what was written where. */
static ap_status print_outputs(ap_ctx *ctx, const ap_options *opt, uint32_t n, const ap_port *output)
{
    aprt_port *port = AP_NEW_ARRAY(&ctx->arena, aprt_port, n);
    for (uint32_t i = 0; i < n; i++)
        port[i].name = ap_name_str(ctx, output[i].name);
    cJSON *root = cJSON_CreateObject(), *outputs = cJSON_AddArrayToObject(root, "outputs");
    for (uint32_t i = 0; i < n; i++) {
        char file[256];
        aprt_output_file(port, n, i, file, sizeof file);
        const ap_port *p = &output[i];
        cJSON *o = cJSON_CreateObject(), *dims;
        cJSON_AddItemToArray(outputs, o);
        cJSON_AddStringToObject(o, "name", port[i].name);
        cJSON_AddStringToObject(o, "dtype", ap_dtype_str(p->dtype));
        dims = cJSON_AddArrayToObject(o, "shape");
        for (int d = 0; d < p->rank; d++)
            cJSON_AddItemToArray(dims, cJSON_CreateNumber((double)p->dim[d]));
        cJSON_AddStringToObject(
            o, "file", ap_name_str(ctx, ap_name_format(ctx, "%s/%s", opt->output_dir ? opt->output_dir : ".", file)));
    }
    const char *text;
    AP_TRY(ap_json_text(ctx, root, &text));
    printf("%s\n", text);
    return AP_OK;
}

/* What DIR/model is called with; the last one is NULL. */
static const char *const *make_arguments(ap_ctx *ctx, const ap_options *opt, const char *program, int *out_count)
{
    AP_VEC(const char *) argv = {0};
    ap_vec_push(&ctx->arena, &argv, program);
    for (uint32_t i = 0; i < opt->input.item.len; i++) {
        ap_vec_push(&ctx->arena, &argv, "--input");
        ap_vec_push(&ctx->arena, &argv, opt->input.item.at[i]);
    }
    ap_vec_push(&ctx->arena, &argv, "--output-dir");
    ap_vec_push(&ctx->arena, &argv, opt->output_dir ? opt->output_dir : ".");
    if (opt->repeat) {
        ap_vec_push(&ctx->arena, &argv, "--repeat");
        ap_vec_push(&ctx->arena, &argv, opt->repeat);
    }
    if (opt->profile)
        ap_vec_push(&ctx->arena, &argv, "--profile");
    if (opt->trace) {
        ap_vec_push(&ctx->arena, &argv, "--trace");
        ap_vec_push(&ctx->arena, &argv, opt->trace);
    }
    *out_count = (int)argv.len;
    ap_vec_push(&ctx->arena, &argv, NULL);
    return argv.at;
}

static ap_status run_dir(ap_ctx *ctx, const ap_options *opt, const char *dir)
{
    int argc;
    const char *program = ap_name_str(ctx, ap_name_format(ctx, "%s/model", dir));
    AP_TRY(ap_launch(ctx, opt, make_arguments(ctx, opt, program, &argc), opt->quiet || opt->json));
    if (!opt->json)
        return AP_OK;
    ap_plan_file plan;
    AP_TRY(ap_plan_file_read(ctx, dir, &plan));
    return print_outputs(ctx, opt, plan.p->outputs.len, plan.p->outputs.at);
}

/* Without a compiler and without files, where LLVM is built in; ranks that are processes need a program to start. */
static bool runs_here(const ap_options *opt)
{
    bool mpi = opt->launcher && strcmp(opt->launcher, "mpi") == 0, gpu = opt->target && strcmp(opt->target, "cpu") != 0;
    if (opt->codegen)
        return strcmp(opt->codegen, "llvm") == 0 && !mpi && !gpu;
    return ap_jit_is_there() && !mpi && !gpu;
}

static ap_status run_code(ap_ctx *ctx, const ap_options *opt, const ap_program *program, const char *name)
{
    int argc;
    ap_jit *jit;
    AP_TRY(ap_jit_open(ctx, opt->march, program, name, &jit));
    ap_arena_reset(&ctx->scratch);
    const char *const *argv = make_arguments(ctx, opt, name, &argc);
    ap_status s = ap_jit_run(jit, argc, argv, opt->quiet || opt->json);
    ap_jit_close(jit);
    return s;
}

static ap_status run_here(ap_ctx *ctx, const ap_options *opt)
{
    ap_job job;
    ap_program *program;
    const char *name = NULL;
    AP_TRY(ap_compile_options(ctx, opt));
    ap_status s = ap_job_import(ctx, opt, false, &job);
    if (s == AP_OK)
        s = ap_job_name(ctx, opt, &name);
    if (s == AP_OK)
        s = ap_job_normalise(&job);
    if (s == AP_OK)
        s = ap_job_plan(&job);
    if (s == AP_OK)
        s = ap_job_lower(&job, name, &program);
    if (s == AP_OK && !opt->quiet)
        ap_note_cluster(&job);
    if (s == AP_OK)
        s = run_code(ctx, opt, program, name);
    if (s == AP_OK && opt->json)
        s = print_outputs(ctx, opt, program->outputs.len, program->outputs.at);
    ap_job_deinit(&job);
    return s;
}

static ap_status run_model(ap_ctx *ctx, const ap_options *opt)
{
    ap_job job;
    const char *dir = NULL;
    bool worker;
    AP_TRY(ap_compile_options(ctx, opt));
    AP_TRY(ap_temp_dir(ctx, &dir));
    ap_status s = ap_supervise(ctx, &(ap_half_done){.part = dir}, &worker);
    if (!worker)
        return s;
    s = ap_job_import(ctx, opt, false, &job);
    if (s == AP_OK)
        s = ap_compile_into(ctx, &job, dir);
    if (s == AP_OK)
        s = run_dir(ctx, opt, dir);
    ap_job_deinit(&job);
    return s;
}

static ap_status check_values(ap_ctx *ctx, const ap_options *opt)
{
    int64_t n;
    for (uint32_t i = 0; i < opt->input.item.len; i++) {
        const char *s = opt->input.item.at[i], *eq = strchr(s, '=');
        if (!eq || eq == s || !eq[1])
            return ap_fail(ctx, AP_ERR_USAGE, 0, "--input: '%s' is not NAME=FILE", s);
    }
    return opt->repeat ? ap_option_int(ctx, "repeat", opt->repeat, 1, 1000000, &n) : AP_OK;
}

/* The program of a folder is there already: what would have made it otherwise has nothing to say. */
static ap_status is_compiled(ap_ctx *ctx, const ap_options *opt)
{
    AP_TRY(ap_plan_is_given(ctx, opt));
    const char *const decided[] = {opt->plan, opt->shapes_from, opt->batch,   opt->batch_dim,
                                   opt->name, opt->target,      opt->codegen, opt->march};
    bool any = opt->dim.item.len > 0 || opt->check_passes;
    for (size_t i = 0; i < sizeof decided / sizeof *decided; i++)
        any = any || decided[i];
    if (any)
        return ap_fail(ctx, AP_ERR_USAGE, 0,
                       "%s is compiled: no --plan, --dim, --batch, --batch-dim, --shapes-from, --name, --target, "
                       "--codegen, --march, --check-passes beside it",
                       opt->subject);
    return AP_OK;
}

ap_status ap_cmd_run(ap_ctx *ctx, const ap_options *opt)
{
    AP_TRY(check_values(ctx, opt));
    AP_TRY(ap_launch_check(ctx, opt));
    struct stat st;
    if (stat(opt->subject, &st) == 0 && S_ISDIR(st.st_mode)) {
        AP_TRY(is_compiled(ctx, opt));
        return run_dir(ctx, opt, opt->subject);
    }
    return runs_here(opt) ? run_here(ctx, opt) : run_model(ctx, opt);
}
