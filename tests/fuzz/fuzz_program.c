/* The text of a program: parse, verify, print, parse again. */
#include "fuzz.h"

#include "ir/program.h"

#include <string.h>

static ap_status body(ap_ctx *ctx, const uint8_t *data, size_t size)
{
    ap_program *p, *again;
    AP_TRY(ap_program_parse(ctx, "in.ap", (const char *)data, size, &p));
    ap_status verified = ap_program_verify(p);
    ap_text a, b;
    ap_text_init(&a, &ctx->arena);
    ap_text_init(&b, &ctx->arena);
    ap_program_print(p, &a);
    fuzz_check(ap_program_parse(ctx, "out.ap", ap_text_str(&a), a.len, &again) == AP_OK, "printed text does not parse");
    ap_program_print(again, &b);
    fuzz_check(strcmp(ap_text_str(&a), ap_text_str(&b)) == 0, "print(parse(print)) differs");
    fuzz_check((ap_program_verify(again) == AP_OK) == (verified == AP_OK), "printing changes what the verifier says");
    return verified;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(body, data, size);
}
