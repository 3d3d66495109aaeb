/* plan: model -> plan, without code; weights are not read. */
#include "driver/commands.h"

#include "driver/plan_file.h"
#include "ir/base/file.h"

#include <string.h>

static ap_status print_plan(ap_job *job)
{
    ap_ctx *ctx = job->ctx;
    const char *text, *slash = strrchr(job->opt->subject, '/');
    if (job->opt->output) {
        AP_TRY(ap_plan_file_text(job, &text));
        AP_TRY(ap_file_write(ctx, job->opt->output, text, strlen(text)));
    }
    if (job->opt->json) {
        AP_TRY(ap_json_text(ctx, ap_plan_json(job, true), &text));
        printf("%s\n", text);
    } else if (!job->opt->quiet) {
        AP_TRY(ap_plan_report(ctx, job->m, &job->planning.cluster, &job->result, slash ? slash + 1 : job->opt->subject,
                              job->digest, &text));
        fputs(text, stdout);
    }
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
