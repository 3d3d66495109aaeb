/* plan: model -> plan, without code; weights are not read. */
#include "driver/commands.h"

#include "driver/plan_file.h"
#include "ir/base/file.h"

#include <string.h>

/* All texts are made before the first is written: no file comes from a run that then fails. */
static ap_status print_plan(ap_job *job)
{
    ap_ctx *ctx = job->ctx;
    const ap_options *opt = job->opt;
    const char *file = NULL, *text = NULL;
    if (opt->output)
        AP_TRY(ap_plan_file_text(job, &file));
    if (opt->json)
        AP_TRY(ap_json_text(ctx, ap_plan_json(job, true), &text));
    else if (!opt->quiet)
        AP_TRY(ap_job_report(job, &text));
    if (file)
        AP_TRY(ap_file_write(ctx, opt->output, file, strlen(file)));
    if (text)
        printf("%s%s", text, opt->json ? "\n" : "");
    return AP_OK;
}

ap_status ap_cmd_plan(ap_ctx *ctx, const ap_options *opt)
{
    ap_job job;
    ap_status s = ap_job_import(ctx, opt, true, &job);
    if (s == AP_OK)
        s = ap_job_normalise(&job);
    if (s == AP_OK)
        s = ap_job_plan(&job);
    if (s == AP_OK)
        s = print_plan(&job);
    ap_job_deinit(&job);
    return s;
}
