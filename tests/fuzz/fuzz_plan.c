/* plan.json: read, priced, reported, and lowered, as `dump` and `compile --plan` do with a plan from anywhere. */
#include "fuzz.h"

#include "driver/json.h"
#include "driver/plan_file.h"
#include "passes/pipe/lower.h"

static ap_status body(ap_ctx *ctx, const uint8_t *data, size_t size)
{
    ap_plan_file f;
    ap_pipe_result r;
    const char *report;
    ap_program *p;
    ap_json_use(ctx);
    AP_TRY(ap_plan_file_read(ctx, fuzz_file("plan.json", data, size), &f));
    AP_TRY(ap_pipe_evaluate(ctx, f.p, &f.cluster, &r));
    AP_TRY(ap_plan_report(ctx, f.p, &f.cluster, &f.result, f.model, f.digest, &report));
    AP_TRY(ap_pipe_explicit(ctx, f.p, &f.cluster));
    fuzz_check(ap_pipeline_verify(f.p) == AP_OK, "the explicit pipeline does not verify");
    AP_TRY(ap_lower_program(ctx, f.p, &f.cluster, "m", &p));
    fuzz_check(ap_program_verify(p) == AP_OK, "the program does not verify");
    return AP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int r = fuzz_run(body, data, size);
    ap_json_use(NULL);
    return r;
}
