/* simulate: how a plan runs, event by event: time, bubble, exposed communication, memory of each device. */
#include "driver/commands.h"

#include "driver/plan_file.h"
#include "driver/prediction.h"

ap_status ap_cmd_simulate(ap_ctx *ctx, const ap_options *opt)
{
    ap_plan_file f;
    ap_prediction p;
    AP_TRY(ap_plan_is_given(ctx, opt));
    AP_TRY(ap_plan_file_read(ctx, opt->subject, &f));
    AP_TRY(ap_prediction_make(ctx, f.p, &f.cluster, opt->state, &p));
    const char *json;
    ap_text text;
    ap_text_init(&text, &ctx->arena);
    if (opt->json) {
        AP_TRY(ap_json_text(ctx, ap_prediction_json(&p, f.result.total.cost_ps), &json));
        ap_text_addf(&text, "%s\n", json);
    } else {
        ap_prediction_report(&p, f.result.total.cost_ps, &text);
    }
    fputs(ap_text_str(&text), stdout);
    return AP_OK;
}
