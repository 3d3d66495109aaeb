/* weights.safetensors as the runtime reads it: open, then load whole and cut parameters. */
#include "fuzz.h"

#include "runtime/internal.h"

static const aprt_param params[] = {
    {.port = {.name = "w1", .dtype = APRT_F32, .rank = 2, .dim = {4, 6}},
     .ndims = 2,
     .extent = {4, 3},
     .stride = {6, 1},
     .offset = {.step = {3}},
     .bytes = 48},
    {.port = {.name = "w2", .dtype = APRT_F32, .rank = 2, .dim = {6, 4}}, /* turned, in panels */
     .ndims = 2,
     .extent = {4, 3},
     .stride = {1, 4},
     .offset = {.step = {12}},
     .bytes = 48,
     .store = APRT_PANELS,
     .k = 4,
     .n = 3},
    {.port = {.name = "b1", .dtype = APRT_F32, .rank = 1, .dim = {6}},
     .ndims = 1,
     .extent = {6},
     .stride = {1},
     .bytes = 24},
    {.port = {.name = "i", .dtype = APRT_I64, .rank = 0}, .bytes = 8},
    {.port = {.name = "e", .dtype = APRT_BF16, .rank = 3, .dim = {2, 0, 3}},
     .ndims = 3,
     .extent = {2, 0, 3},
     .stride = {0, 3, 1}},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    aprt_weights *w;
    aprt_failure why = {0};
    if (aprt_weights_open(fuzz_file("weights.safetensors", data, size), &w, &why) != APRT_OK) {
        fuzz_check(*why.text, "a failure without a message");
        return 0;
    }
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        for (int64_t k = 0; k < 2; k++) {
            char memory[64];
            int64_t coordinate[APRT_MAX_AXES] = {k};
            int s = aprt_weights_load(w, &params[i], (uint32_t)i, coordinate, memory, sizeof memory, &why);
            fuzz_check(s != APRT_ERR_BUG, "a bug of ours is reported");
        }
    aprt_weights_close(w);
    return 0;
}
