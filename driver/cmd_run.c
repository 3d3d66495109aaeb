/* run: the built program of a folder; a model is compiled into a temporary folder first. */
#include "driver/commands.h"

#include "driver/process.h"
#include "ir/base/file.h"

#include <sys/stat.h>

static ap_status run_dir(ap_ctx *ctx, const ap_options *opt, const char *dir)
{
    AP_VEC(const char *) argv = {0};
    ap_vec_push(&ctx->arena, &argv, ap_name_str(ctx, ap_name_format(ctx, "%s/model", dir)));
    for (uint32_t i = 0; i < opt->input.item.len; i++) {
        ap_vec_push(&ctx->arena, &argv, "--input");
        ap_vec_push(&ctx->arena, &argv, opt->input.item.at[i]);
    }
    ap_vec_push(&ctx->arena, &argv, "--output-dir");
    ap_vec_push(&ctx->arena, &argv, opt->output_dir ? opt->output_dir : ".");
    if (opt->repeat) {
        int64_t n;
        AP_TRY(ap_option_int(ctx, "repeat", opt->repeat, 1, 1000000, &n));
        ap_vec_push(&ctx->arena, &argv, "--repeat");
        ap_vec_push(&ctx->arena, &argv, opt->repeat);
    }
    if (opt->profile)
        ap_vec_push(&ctx->arena, &argv, "--profile");
    ap_vec_push(&ctx->arena, &argv, NULL);
    int code;
    AP_TRY(ap_process_run(ctx, argv.at, opt->quiet, &code));
    if (code == 0)
        return AP_OK;
    if (code > 4 && code != AP_ERR_BUG)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s ended with code %d", argv.at[0], code);
    return (ap_status)code; /* the program has told why */
}

static ap_status run_model(ap_ctx *ctx, const ap_options *opt)
{
    ap_job job;
    const char *dir = NULL;
    ap_status s = ap_job_import(ctx, opt, false, &job);
    if (s == AP_OK)
        s = ap_temp_dir(ctx, &dir);
    if (s == AP_OK)
        s = ap_compile_into(ctx, &job, dir);
    if (s == AP_OK)
        s = run_dir(ctx, opt, dir);
    if (dir) {
        ap_status removed = ap_dir_remove(ctx, dir);
        s = s == AP_OK ? removed : s;
    }
    ap_job_deinit(&job);
    return s;
}

ap_status ap_cmd_run(ap_ctx *ctx, const ap_options *opt)
{
    struct stat st;
    if (stat(opt->subject, &st) == 0 && S_ISDIR(st.st_mode))
        return run_dir(ctx, opt, opt->subject);
    return run_model(ctx, opt);
}
