/* Tests of kernels in C, run again with the kernels in CUDA under the shim: include this, then the test's own file.
 * What the shim's driver cannot do (exchanges, parameters, convolutions) is left to tests of whole programs. */
#ifndef AP_TESTS_BACKEND_CUDA_HARNESS_H
#define AP_TESTS_BACKEND_CUDA_HARNESS_H

#define HARNESS_PRINTER
#include "tests/backend/harness.h"

#include "tests/backend/cuda_run.h"

#ifndef AP_SHIM_LIBRARY /* by the tests' CMakeLists.txt */
#define AP_SHIM_LIBRARY "-lcudashim"
#endif

static inline void cuda_build_files(built *b, const char *name)
{
    find_bin(b);
    snprintf(b->dir, sizeof b->dir, "/tmp/ap-cuda-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    ap_target target[1] = {AP_TARGET_CUDA};
    ap_backend_options options = {.dir = b->dir, .name = name, .header = "a test", .target = target};
    if (!b->program)
        b->program = ap_program_of_local(b->p);
    assert_true(cuda_can_run(b->p));
    assert_int_equal(cuda_build(b->ctx, b->program, &options, AP_TESTS_DIR "/..", AP_SHIM_LIBRARY, HARNESS_SANITIZE,
                                HARNESS_SANITIZE),
                     0);
}

#define build_files cuda_build_files
#define load_library open_library

#include "tests/backend/expect.h"

#endif
