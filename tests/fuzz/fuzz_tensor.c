/* Tensor files: .npy and TensorProto, by the runtime. */
#include "fuzz.h"

#include <autopar_rt.h>

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    aprt_tensor t;
    aprt_failure why = {0};
    if (aprt_tensor_parse(data, size, &t, &why) != APRT_OK) {
        fuzz_check(*why.text && !strchr(why.text, '\n'), "a failure without a message of one line");
        return 0;
    }
    fuzz_check(t.rank >= 0 && t.rank <= APRT_MAX_RANK && t.bytes >= 0, "a strange tensor");
    volatile uint8_t sum = 0; /* all of it is there */
    for (int64_t i = 0; i < t.bytes; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)t.data)[i]);
    aprt_tensor_free(&t);
    return 0;
}
