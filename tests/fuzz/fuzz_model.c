/* ONNX models: imported as `plan` does (weights may be absent), then verified, printed and parsed. Inputs are changed
 * field by field (wire.c), so that they stay well-formed messages most of the time. */
#include "fuzz.h"

#include "frontend/frontend.h"
#include "ir/text_form.h"
#include "wire.h"

#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

static bool has(const uint8_t *data, size_t size, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= size; i++)
        if (memcmp(data + i, word, n) == 0)
            return true;
    return false;
}

static ap_status body(ap_ctx *ctx, const uint8_t *data, size_t size)
{
    ap_module *m, *again;
    ap_import_info info;
    ap_dim_binding batch = {"batch", 4};
    bool open = has(data, size, "batch"); /* a name that no dimension has is refused */
    ap_import_options opt = {.weights_absent = true, .ndims = open, .dim = &batch};
    AP_TRY(ap_onnx_import(ctx, fuzz_file("in.onnx", data, size), &opt, &m, &info));
    fuzz_check(ap_module_verify(m) == AP_OK, "an imported module does not verify");
    ap_text a, b;
    ap_text_init(&a, &ctx->arena);
    ap_text_init(&b, &ctx->arena);
    ap_module_print(m, &a);
    fuzz_check(ap_module_parse(ctx, "out.ap", ap_text_str(&a), a.len, &again) == AP_OK, "printed text does not parse");
    ap_module_print(again, &b);
    fuzz_check(strcmp(ap_text_str(&a), ap_text_str(&b)) == 0, "print(parse(print)) differs");
    return AP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(body, data, size);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    return wire_mutate(data, size, max, seed, LLVMFuzzerMutate);
}
