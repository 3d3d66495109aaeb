/* plan.json: read, priced, reported, and lowered, as `dump` and `compile --plan` do with a plan from anywhere. */
#include "fuzz.h"

#include "driver/json.h"
#include "driver/plan_file.h"
#include "ir/text_form.h"

static ap_status body(ap_ctx *ctx, const uint8_t *data, size_t size)
{
    ap_plan_file f;
    ap_plan_result r;
    const char *report;
    ap_local *p;
    ap_json_use(ctx);
    AP_TRY(ap_plan_file_read(ctx, fuzz_file("plan.json", data, size), &f));
    AP_TRY(ap_plan_evaluate(ctx, f.m, &f.cluster, &r));
    AP_TRY(ap_plan_report(ctx, f.m, &f.cluster, &f.result, f.model, f.digest, &report));
    AP_TRY(ap_explicit_run(ctx, f.m, &f.cluster));
    fuzz_check(ap_module_verify(f.m) == AP_OK, "the explicit module does not verify");
    AP_TRY(ap_lower_local(ctx, f.m, "m", &p));
    fuzz_check(ap_local_verify(p) == AP_OK, "the local program does not verify");
    return AP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int r = fuzz_run(body, data, size);
    ap_json_use(NULL);
    return r;
}
