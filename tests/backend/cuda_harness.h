/* Tests of kernels in C, run again with the kernels in CUDA under the shim: include this, then the test's own file.
 * What the shim's driver cannot do (exchanges, parameters, convolutions) is left to tests of whole programs. */
#ifndef AP_TESTS_BACKEND_CUDA_HARNESS_H
#define AP_TESTS_BACKEND_CUDA_HARNESS_H

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

static inline void cuda_expect_equal(const char *text, double tolerance)
{
    built b = {.ctx = ap_ctx_create()};
    b.p = parse_local(b.ctx, text);
    cuda_build_files(&b, "t");
    open_library(&b);
    make_tensors(&b, 7);
    check(b.ctx, ap_local_eval(b.p, &b.ctx->arena, b.want_in, b.want));
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(run_built(&b), 0);
        for (uint32_t i = 0; i < b.p->outputs.len; i++)
            compare_output(&b, i, tolerance);
    }
    release_built(&b);
}

#define build_files cuda_build_files
#define load_library open_library
#define expect_equal cuda_expect_equal

#endif
