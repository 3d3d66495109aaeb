/* Pin files, and the shardings in them for a value of a module with a mesh of two axes. */
#include "fuzz.h"

#include "ir/text_form.h"
#include "passes/plan.h"

#include <string.h>

static const char context[] = "mesh @m = [dp=2, tp=4] ranks 0..7\n"
                              "func @main(%x: f32[8,3.4.16] @m[dp,-.tp.-]) -> f32[8,3.4.16] @m[dp,-.tp.-] {\n"
                              "  ret %x\n}\n";

static ap_status body(ap_ctx *ctx, const uint8_t *data, size_t size)
{
    ap_pins pins;
    ap_module *m;
    fuzz_check(ap_module_parse(ctx, "context", context, strlen(context), &m) == AP_OK, "the context does not parse");
    AP_TRY(ap_pins_read(ctx, fuzz_file("pins", data, size), &pins));
    ap_shape shape = ap_type_get(ctx, ap_value_type(m, m->funcs.at[0].argument[0])).shape;
    ap_status s = AP_OK;
    for (uint32_t i = 0; i < pins.n; i++) {
        ap_sharding sharding;
        if (pins.pin[i].sharding && ap_sharding_parse(m, pins.pin[i].sharding, shape, &sharding) != AP_OK)
            s = AP_ERR_MODEL;
    }
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(body, data, size);
}
