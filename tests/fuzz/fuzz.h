/* What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput; libFuzzer brings main. */
#ifndef AP_TESTS_FUZZ_H
#define AP_TESTS_FUZZ_H

#include "ir/base/ctx.h"
#include "ir/base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Stops here when `ok` is false: the fuzzer keeps the input. */
#define fuzz_check(ok, what)                                                                                           \
    do {                                                                                                               \
        if (!(ok))                                                                                                     \
            fuzz_stop(__FILE__, __LINE__, what);                                                                       \
    } while (0)
_Noreturn void fuzz_stop(const char *file, int line, const char *what);

/* Runs `body` in a context of its own. What must hold: the context never takes more than 256 MB, so nothing is
 * allocated because an input merely announces it; a failure comes with a message, of one line; nothing is our bug. */
typedef ap_status fuzz_body(ap_ctx *ctx, const uint8_t *data, size_t size);
int fuzz_run(fuzz_body *body, const uint8_t *data, size_t size);

/* The input as a file in a folder of this process, which is removed at the end. The path. */
const char *fuzz_file(const char *name, const uint8_t *data, size_t size);

#endif
