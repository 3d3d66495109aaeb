/* weights.json as the runtime reads it: a list of tensors that lie in other files. The file that refers to it is fixed.
 */
#include "fuzz.h"

#include "runtime/internal.h"

#include <string.h>

static const aprt_param params[] = {
    {.port = {.name = "w1", .dtype = APRT_F32, .rank = 2, .dim = {4, 6}},
     .ndims = 2,
     .extent = {4, 3},
     .stride = {6, 1},
     .offset = {.step = {3}},
     .bytes = 48},
    {.port = {.name = "i", .dtype = APRT_I64, .rank = 0}, .bytes = 8},
};

/* A safetensors file without tensors, and bytes behind it that the list may name. */
static const char *write_file(void)
{
    static const char header[] = "{\"__metadata__\":{\"reference\":\"list.json\"}}";
    uint8_t bytes[512] = {sizeof header - 1};
    memcpy(bytes + 8, header, sizeof header - 1);
    return fuzz_file("fixed.safetensors", bytes, sizeof bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[512];
    aprt_weights *w;
    aprt_failure why = {0};
    fuzz_file("list.json", data, size);
    snprintf(path, sizeof path, "%s", write_file());
    if (aprt_weights_open(path, &w, &why) != APRT_OK) {
        fuzz_check(*why.text, "a failure without a message");
        return 0;
    }
    for (uint32_t i = 0; i < sizeof params / sizeof *params; i++) {
        char memory[64];
        int64_t coordinate[APRT_MAX_AXES] = {1};
        int s = aprt_weights_load(w, &params[i], i, coordinate, memory, sizeof memory, &why);
        fuzz_check(s != APRT_ERR_BUG, "a bug of ours is reported");
    }
    aprt_weights_close(w);
    return 0;
}
