/* A program through the printer under test: build_files, load_library and release_built are those of harness.h or what
 * stands for them. */
#ifndef AP_TESTS_BACKEND_EXPECT_H
#define AP_TESTS_BACKEND_EXPECT_H

#include "tests/backend/harness.h"

/* Everything: the text, compiled, equals the text, evaluated; twice, because a second run must not depend on the
 * first. */
static inline void expect_equal(const char *text, double tolerance)
{
    built b = {.ctx = ap_ctx_create()};
    b.p = parse_local(b.ctx, text);
    build_files(&b, "t");
    load_library(&b);
    make_tensors(&b, 7);
    check(b.ctx, ap_local_eval(b.p, &b.ctx->arena, b.want_in, b.want));
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(run_built(&b), 0);
        for (uint32_t i = 0; i < b.p->outputs.len; i++)
            compare_output(&b, i, tolerance);
    }
    release_built(&b);
}

#endif
